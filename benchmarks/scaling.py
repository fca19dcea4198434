"""How does the time grow with rows, networks and candidates?

1. one fit, 1,000 to 1,000,000 rows x 8, 5 epochs; the steps per epoch grow likewise;
2. one fit of 1 to 1,024 networks (``n_estimators``), 927 x 8, 20 epochs;
3. a batched search over 1 to 256 values of tau, 5 folds, 927 x 8, 20 epochs, without
   refit: training and scoring.

One hidden layer of 50, dropout 0.05, batches of 128, float32, one job. The local slope
is d log(seconds) / d log(size) between a line and the line above: 1 is proportional
growth, less than 1 is a saving of larger programs. ``--picture`` draws the three
curves in log-log axes.

    python benchmarks/scaling.py --picture scaling.png
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from common import CLOCKS, command_line, environment, interleaved, table, verdict

from skbayesnn import MCDropoutRegressor
from skbayesnn.model_selection import BatchedGridSearchCV

ROWS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
MEMBERS = (1, 4, 16, 64, 256, 1_024)
CANDIDATES = (1, 4, 16, 64, 256)
N_ROWS, N_INPUTS, N_FOLDS = 927, 8, 5
EPOCHS, EPOCHS_OF_ROWS = 20, 5
STEEPEST = 1.1
# Okabe & Ito: colours that colour-blind people can distinguish; grey for the guide.
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"


def make_data(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of 8 inputs with noise, float32."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n_rows, N_INPUTS), dtype=np.float32)
    noise = random.standard_normal(n_rows, dtype=np.float32)
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + 0.5 * noise


def estimator(device: str, max_iter: int, **options) -> MCDropoutRegressor:
    """Our network with the settings of this benchmark."""
    return MCDropoutRegressor(
        (50,),
        dropout=0.05,
        tau=4.0,
        batch_size=128,
        max_iter=max_iter,
        device=device,
        random_state=0,
        **options,
    )


def search(device: str, n_candidates: int) -> BatchedGridSearchCV:
    """A search over n values of tau."""
    return BatchedGridSearchCV(
        estimator(device, EPOCHS),
        {"tau": np.geomspace(1, 10, n_candidates).tolist()},
        scoring="neg_root_mean_squared_error",
        cv=N_FOLDS,
        refit=False,
    )


def cases_of(device: str) -> dict[str, dict[int, Callable[[], object]]]:
    """The calls to be timed, by question and size."""
    X, y = make_data(ROWS[-1])
    single = estimator(device, EPOCHS_OF_ROWS)
    several = partial(estimator, device, EPOCHS)
    few = X[:N_ROWS], y[:N_ROWS]
    return {
        "rows": {n: partial(single.fit, X[:n], y[:n]) for n in ROWS},
        "networks": {n: partial(several(n_estimators=n).fit, *few) for n in MEMBERS},
        "candidates": {n: partial(search(device, n).fit, *few) for n in CANDIDATES},
    }


def lines_of(sizes: np.ndarray, seconds: np.ndarray) -> list[list[str]]:
    """The lines of a table of sizes and seconds."""
    slopes = local_slopes(sizes, seconds)
    return [
        [f"{n:,}", f"{s:.4g}", f"{1e6 * s / n:,.1f}", slope]
        for n, s, slope in zip(
            sizes, seconds, ["", *(f"{slope:.2f}" for slope in slopes)], strict=True
        )
    ]


def local_slopes(sizes: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """d log(seconds) / d log(size) between neighbours."""
    return np.diff(np.log(seconds)) / np.diff(np.log(sizes))


def draw(results: dict[str, tuple[np.ndarray, np.ndarray]], path: str) -> None:
    """Draw seconds against size in log-log axes, with lines of slope 1."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    panels = figure.subplots(1, len(results), sharey=True)
    styles = {
        "rows": (BLUE, "o", f"rows of one fit ({EPOCHS_OF_ROWS} epochs)"),
        "networks": (VERMILION, "s", f"networks of one fit ({EPOCHS} epochs)"),
        "candidates": (GREEN, "^", f"candidates of a search, {N_FOLDS} folds"),
    }
    for axes, (question, (sizes, seconds)) in zip(panels, results.items(), strict=True):
        color, marker, label = styles[question]
        proportional = seconds[-1] * sizes / sizes[-1]
        axes.loglog(sizes, proportional, color=GREY, ls="--", lw=1, label="slope 1")
        axes.loglog(sizes, seconds, color=color, marker=marker, label="measured")
        axes.set_xlabel(label)
        axes.grid(color="#EEEEEE")
        axes.legend(loc="upper left", frameon=False)
    panels[0].set_ylabel("seconds")
    figure.savefig(path, dpi=130)


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    result = command_line(__doc__)
    add = result.add_argument
    add("--device", default="cpu", help="cpu or cuda")
    add("--threads", type=int, default=1, help="of torch, intra-op")
    add("--clock", choices=list(CLOCKS), default="wall")
    add("--repeats", type=int, default=3, help="rounds, after one to warm up")
    add("--picture", metavar="FILE", help="draw there (needs matplotlib)")
    return result


def main() -> None:
    """Print three tables, and draw them."""
    options = parser().parse_args()
    torch.set_num_threads(options.threads)
    print(environment(options.device))
    results = {}
    for question, cases in cases_of(options.device).items():
        times = interleaved(cases, options.repeats, options.device, options.clock)
        sizes = np.array(list(times))
        seconds = np.array([statistics.median(values) for values in times.values()])
        results[question] = sizes, seconds
        header = [question, "seconds", "us each", "local slope"]
        steepest = local_slopes(sizes, seconds).max()
        print(f"\n{options.clock} clock")
        print(table(header, lines_of(sizes, seconds)))
        met = verdict(steepest, STEEPEST, at_most=True)
        print(f"largest local slope: {steepest:.2f} ({met})", flush=True)
    if options.picture:
        draw(results, options.picture)


if __name__ == "__main__":
    main()
