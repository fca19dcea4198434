"""Does every saved file with one wrong value raise an error or predict finite values?

For every kind of model, every value of a file (of large arrays the first and a random
one) is replaced by 0, -1, 1e9, NaN and infinity, and the checksums are recomputed.
`skbayesnn.loads` must raise an error, or the model must predict finite values wherever
the original does. Either must take at most 100 MB, and at most 2 seconds of CPU time
more than the original. A separate process loads the files, so that crashes are counted.
(Linux only.)
"""

import multiprocessing
import re
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from common import ROOT, command_line, environment, table
from sklearn.exceptions import ConvergenceWarning

sys.path.insert(0, str(ROOT))

import skbayesnn
from tests.persistence import forgery, models

SECONDS, MEGABYTES, SEED = 2.0, 100.0, 0
# Limits of a process: seconds of CPU time, and megabytes of address space.
_STOPPED_AFTER, _MOST_MEGABYTES = 10.0, 1_500
# Rows of a prediction.
_ROWS = 3


class Stopped(BaseException):
    """Raised when a file takes too long."""


def candidates(name: str, most: int | None, quick: bool):
    """The content of a file, its predictions, and (place, value) of every forgery."""
    data = models.made_up(SEED)
    model, target = models.every_kind(SEED)[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        X, X_new = models.rows_of(name, data)
        model.fit(X, getattr(data, target))
    content = skbayesnn.dumps(model)
    X = X_new[:_ROWS]
    methods = forgery.QUICK if quick else list(forgery.CALLS)
    expected = forgery.predictions(skbayesnn.loads(content), X, methods)
    random = np.random.default_rng(SEED)
    places = list(forgery.places(*forgery.file_format.unpacked(content), random))
    forgeries = [(place, value) for place in places for value in forgery.VALUES]
    if most is not None and most < len(forgeries):
        chosen = np.sort(random.choice(len(forgeries), most, replace=False))
        forgeries = [forgeries[i] for i in chosen]
    return content, X, expected, forgeries


def _megabytes(name: str) -> float:
    """Memory of this process: VmRSS, its largest value VmHWM, or VmSize."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) / 1024


def _stop(*_):
    raise Stopped


def judge(connection, start: int, *arguments) -> None:
    """Send the outcome of every candidate from ``start`` on."""
    content, X, expected, forgeries = candidates(*arguments)
    began = time.process_time()
    forgery.outcome(content, X, expected)
    usual = time.process_time() - began
    largest = int(_megabytes("VmSize") + _MOST_MEGABYTES) << 20
    resource.setrlimit(resource.RLIMIT_AS, (largest, largest))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGVTALRM, _stop)
    connection.send(len(forgeries))
    for place, value in forgeries[start:]:
        changed = forgery.forged(content, place, value)
        Path("/proc/self/clear_refs").write_text("5")  # reset VmHWM
        before, began = _megabytes("VmRSS"), time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, _STOPPED_AFTER)
        try:
            outcome = forgery.outcome(changed, X, expected)
        except Stopped:
            outcome = "stopped"
        except MemoryError:
            outcome = "MemoryError"
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        took, grown = time.process_time() - began, _megabytes("VmHWM") - before
        if took > SECONDS + usual:
            outcome += f" after {took:.1f} s"
        if grown > MEGABYTES:
            outcome += f" with {grown:.0f} MB"
        connection.send((f"{place} = {value}", outcome, took, grown))
    connection.send(None)


def _answers(connection) -> bool:
    """Whether a result arrives within minutes; both processes may have been paused."""
    return any(connection.poll(2 * _STOPPED_AFTER) for _ in range(10))


def judged(name: str, *arguments) -> tuple[Counter, list[str], float, float]:
    """Counts of outcomes, errors, largest seconds and megabytes of a kind of model."""
    context = multiprocessing.get_context("spawn")
    outcomes, wrong, seconds, megabytes = Counter(), [], 0.0, 0.0
    n_done, n_all = 0, None
    while n_done != n_all:
        ours, theirs = context.Pipe()
        process = context.Process(target=judge, args=(theirs, n_done, name, *arguments))
        process.start()
        theirs.close()
        try:
            n_all = ours.recv()
            while n_done < n_all and _answers(ours):
                what, outcome, took, grown = ours.recv()
                n_done += 1
                seconds, megabytes = max(seconds, took), max(megabytes, grown)
                is_right = outcome in ("refused", "finite")
                outcomes[outcome if is_right else "wrong"] += 1
                if not is_right:
                    wrong.append(f"{name}: {what}: {outcome}")
        except EOFError:
            pass
        if n_done != n_all:  # The process crashed or does not answer.
            process.kill()
            outcomes["wrong"] += 1
            wrong.append(f"{name}: number {n_done}: crashed")
            n_done += 1
        process.join()
    return outcomes, wrong, seconds, megabytes


def main() -> None:
    """Print a table, and the wrong outcomes."""
    parser = command_line(__doc__)
    parser.add_argument("--kinds", nargs="*", help="of models; all by default")
    parser.add_argument("--most", type=int, help="candidates of a kind, at random")
    parser.add_argument(
        "--quick", action="store_true", help="without intervals and samples"
    )
    options = parser.parse_args()
    print(environment())
    rows, all_wrong, total = [], [], Counter()
    for name in options.kinds or models.every_kind(SEED):
        outcomes, wrong, seconds, megabytes = judged(name, options.most, options.quick)
        total += outcomes
        all_wrong += wrong
        counts = [outcomes[name] for name in ("refused", "finite", "wrong")]
        rows.append([name, *counts, f"{seconds:.2f}", f"{megabytes:.0f}"])
        print(*rows[-1], *wrong, sep=" | ", file=sys.stderr, flush=True)
    counts = [total[name] for name in ("refused", "finite", "wrong")]
    rows.append(["all", *counts, "", ""])
    print(table(["model", "refused", "finite", "wrong", "most s", "most MB"], rows))
    print(*all_wrong, sep="\n")


if __name__ == "__main__":
    main()
