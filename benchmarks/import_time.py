"""How long does `import skbayesnn` take after torch and scikit-learn are imported?

New interpreters import torch and scikit-learn first, and then time the import of
skbayesnn. scikit-learn loads its modules on demand: modules that skbayesnn needs count
as part of its import in the first line, and are imported before in the second line.
matplotlib must not be imported.
"""

import argparse
import os
import statistics
import subprocess
import sys

from common import ROOT, command_line, environment, table, verdict

FIRST = "import torch, sklearn"
PARTS = """
import sys, skbayesnn
print(*[name for name in sys.modules if name.split(".")[0] == "sklearn"], sep=", ")
"""
MEASURED = """
import sys, time
start = time.perf_counter()
import skbayesnn
print(time.perf_counter() - start, "matplotlib" in sys.modules)
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


def one_interpreter(before: str) -> tuple[float, bool]:
    """Seconds of the import after ``before``, and whether it imports matplotlib."""
    took, matplotlib = output_of(f"{before}\n{MEASURED}").split()
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
    parts = output_of(PARTS).strip()
    cases = {
        "torch and sklearn": FIRST,
        "torch and all parts of sklearn that it loads": f"{FIRST}, {parts}",
    }
    for before in cases.values():
        one_interpreter(before)
    times: dict[str, list[float]] = {name: [] for name in cases}
    with_matplotlib = False
    for _ in range(options.repeats):
        for name, before in cases.items():
            took, matplotlib = one_interpreter(before)
            times[name].append(took)
            with_matplotlib |= matplotlib
    lines = []
    for name, values in times.items():
        median = statistics.median(values)
        lines.append([name, f"{median:.3f}", verdict(median, 0.3, at_most=True)])
    print(table(["import skbayesnn after", "seconds", "target"], lines))
    print(f"imports matplotlib: {'yes' if with_matplotlib else 'no'}")


if __name__ == "__main__":
    main()
