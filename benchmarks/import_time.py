"""How much longer than torch and scikit-learn does skbayesnn take to import?

New interpreters import torch and scikit-learn, and then a name of skbayesnn, which is
imported when it is first used. The ratio is of processor seconds, the median of
interpreters that take turns. scikit-learn loads its modules on demand: modules that
skbayesnn needs count as part of its import. matplotlib must not be imported.
"""

import argparse
import os
import statistics
import subprocess
import sys

from common import ROOT, command_line, environment, table, verdict

FIRST = "import torch, sklearn"
CASES = {
    "nothing else": FIRST,
    "import skbayesnn": f"{FIRST}, skbayesnn",
    "a network": f"{FIRST}; from skbayesnn import MCDropoutRegressor",
    "a stack": f"{FIRST}; from skbayesnn import BayesianStackingRegressor",
}
MEASURED = """
import sys, time
print(time.process_time(), "matplotlib" in sys.modules)
"""


def output_of(code: str) -> str:
    """Output of code in a new interpreter, which keeps compiled modules."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=kept,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def one_interpreter(case: str) -> tuple[float, bool]:
    """Processor seconds of an interpreter, and whether it imports matplotlib."""
    took, matplotlib = output_of(f"{case}\n{MEASURED}").split()
    return float(took), matplotlib == "True"


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    result = command_line(__doc__)
    result.add_argument("--repeats", type=int, default=7, help="interpreters per line")
    return result


def main() -> None:
    """Print one table."""
    options = parser().parse_args()
    print(environment())
    for case in CASES.values():
        one_interpreter(case)
    times: dict[str, list[float]] = {name: [] for name in CASES}
    with_matplotlib = False
    for _ in range(options.repeats):
        for name, case in CASES.items():
            took, matplotlib = one_interpreter(case)
            times[name].append(took)
            with_matplotlib |= matplotlib
    medians = {name: statistics.median(values) for name, values in times.items()}
    lines = []
    for name, median in medians.items():
        ratio = median / medians["nothing else"]
        target = verdict(ratio, 1.1, at_most=True) if ratio != 1 else ""
        lines.append([name, f"{median:.2f}", f"{ratio:.3f}", target])
    print(table(["torch, scikit-learn and", "seconds", "ratio", "target"], lines))
    print(f"imports matplotlib: {'yes' if with_matplotlib else 'no'}")


if __name__ == "__main__":
    main()
