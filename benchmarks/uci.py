"""How well do the estimators predict on the UCI sets with the canonical splits?

All splits of a set are trained as the members of one batched program, every split
scaled by its own training rows. Printed are the RMSE of the predictive mean and the
mean log predictive density of the test rows (nats, y's units), mean +- standard error
over the splits, beside the published grid search of MC dropout, which chose its
setting per split on validation rows. Here one setting serves all sets; it is chosen
with ``--inner``, which scores the last part of the training rows. (No split's test rows
are scored there, but a row that is held out in one split can be a test row of another.)

    python benchmarks/uci.py --estimator mc_dropout --sets yacht,energy

bostonHousing is there for comparison with published rows only: one of its features
was built on the racial composition of towns. It has to be asked for by name.
"""

import argparse
import json
import time

import numpy as np
import torch
from common import data_folder, environment, fit_splits, table

from skbayesnn import MCDropoutRegressor

ESTIMATORS = {"mc_dropout": MCDropoutRegressor}
SETS = (
    "yacht",
    "energy",
    "concrete",
    "wine-quality-red",
    "kin8nm",
    "power-plant",
    "protein-tertiary-structure",
    "naval-propulsion-plant",
)
DEFAULT_SETS = SETS[:4]
ONLY_BY_NAME = ("bostonHousing",)
PUBLISHED = "100_xepochs_1_hidden_layers"

# One setting for all sets, the best of those compared with --inner --splits 5.
HIDDEN = (50, 50)
DROPOUT = 0.02
LENGTH_SCALE = 1.0
LIKELIHOOD = "heteroscedastic"
N_ESTIMATORS = 5
STEPS = 3000
LEARNING_RATE = 0.01
N_DRAWS = 200


def load(name: str, n_splits: int | None):
    """X (float32), y, and the training and test rows of every split."""
    with np.load(data_folder("uci", name) / f"{name}.npz") as arrays:
        X = arrays["X"].astype(np.float32)
        train = arrays["train_index"].astype(int)[:n_splits]
        test = arrays["test_index"].astype(int)[:n_splits]
        return X, arrays["y"], train, test


def inner(train: np.ndarray):
    """The first 80 % and the last 20 % of every training set, as published."""
    cut = int(0.8 * train.shape[1])
    return train[:, :cut], train[:, cut:]


def published(name: str) -> dict[str, tuple[float, float]]:
    """Mean and standard error of the published RMSE and log density."""
    results = json.loads((data_folder("uci") / "published_gal2016.json").read_text())
    variant = results["data_sets"][name][PUBLISHED]
    return {
        ours: (variant[theirs]["mean"], variant[theirs]["stderr"])
        for ours, theirs in (("rmse", "test_MC_rmse"), ("density", "test_ll"))
    }


def epochs(options, n_rows: int):
    """``max_iter``: as given, or the epochs that make up the wanted steps."""
    if options.max_iter is not None:
        return options.max_iter
    batch = min(options.batch_size, n_rows)
    return max(round(options.steps / -(-n_rows // batch)), 1)


def estimators_of(options, n_rows: int, n_splits: int) -> list:
    """One estimator per split; they differ in their random_state only."""
    return [
        ESTIMATORS[options.estimator](
            hidden_layer_sizes=options.hidden,
            dropout=options.dropout,
            length_scale=options.length_scale,
            likelihood=options.likelihood,
            n_estimators=options.n_estimators,
            n_draws=options.n_draws,
            batch_size=options.batch_size,
            learning_rate_init=options.learning_rate_init,
            max_iter=epochs(options, n_rows),
            device=options.device,
            random_state=split,
        )
        for split in range(n_splits)
    ]


def evaluate(name: str, options) -> dict:
    """RMSE and log density per split, and the seconds of fit and prediction."""
    X, y, train, test = load(name, options.splits)
    if options.inner:
        train, test = inner(train)
    estimators = estimators_of(options, train.shape[1], len(train))
    start = time.perf_counter()
    fit_splits(estimators, X, y, list(train))
    fitted = time.perf_counter()
    rmse, density = [], []
    for estimator, rows in zip(estimators, test, strict=True):
        error = estimator.predict(X[rows]) - y[rows]
        rmse.append(np.sqrt(np.mean(np.square(error))))
        density.append(estimator.log_predictive_density(X[rows], y[rows]).mean())
    return {
        "rmse": np.array(rmse),
        "density": np.array(density),
        "fit_seconds": fitted - start,
        "predict_seconds": time.perf_counter() - fitted,
        "epochs": estimators[0].n_iter_,
    }


def not_worse(metric: str, ours: float, theirs: float) -> bool:
    """RMSE at most, log density at least the published mean."""
    return ours <= theirs if metric == "rmse" else ours >= theirs


def with_error(mean: float, error: float) -> str:
    """Both with the decimals that the standard error warrants."""
    decimals = int(np.clip(2 - np.ceil(np.log10(error)), 2, 6)) if error else 3
    return f"{mean:.{decimals}f} +- {error:.{decimals}f}"


def report(name: str, result: dict) -> tuple[list[str], int]:
    """A line of the table, and how many of its two numbers are not worse."""
    cells, count = [name], 0
    for metric in ("rmse", "density"):
        values, (theirs, error) = result[metric], published(name)[metric]
        ours = values.mean()
        good = not_worse(metric, ours, theirs)
        count += good
        cells += [
            with_error(ours, values.std() / np.sqrt(len(values))),
            with_error(theirs, error),
            "yes" if good else "no",
        ]
    cells += [
        str(result["epochs"]),
        f"{result['fit_seconds']:.0f}",
        f"{result['predict_seconds']:.0f}",
    ]
    return cells, count


def number_or_word(text: str):
    """'0.1' -> 0.1, 'auto' -> 'auto'."""
    try:
        return float(text)
    except ValueError:
        return text


def epochs_or_word(text: str):
    """'40' -> 40, 'auto' -> 'auto'."""
    return text if text == "auto" else int(text)


def units(text: str) -> tuple[int, ...]:
    """'50,50' -> (50, 50)."""
    return tuple(int(size) for size in text.split(","))


def names(text: str) -> list[str]:
    """'yacht,energy' -> ['yacht', 'energy']; 'all' leaves out those by name only."""
    chosen = list(SETS) if text == "all" else text.split(",")
    unknown = [name for name in chosen if name not in SETS + ONLY_BY_NAME]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown sets {', '.join(unknown)}; there are {', '.join(SETS)}"
        )
    return chosen


def parser() -> argparse.ArgumentParser:
    """Command line."""
    result = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = result.add_argument
    add("--estimator", choices=list(ESTIMATORS), default="mc_dropout")
    add("--sets", type=names, default=",".join(DEFAULT_SETS))
    add("--splits", type=int, help="the first so many splits only")
    add("--inner", action="store_true", help="score the last 20 %% of training rows")
    add("--per-split", action="store_true", help="print every split's two numbers")
    add("--hidden", type=units, default=",".join(map(str, HIDDEN)))
    add("--dropout", type=float, default=DROPOUT)
    add("--length-scale", type=number_or_word, default=LENGTH_SCALE)
    add("--likelihood", default=LIKELIHOOD)
    add("--n-estimators", type=int, default=N_ESTIMATORS)
    add("--n-draws", type=int, default=N_DRAWS)
    add("--batch-size", type=int, default=128)
    add("--learning-rate-init", type=float, default=LEARNING_RATE)
    add("--steps", type=int, default=STEPS, help="steps of Adam, whatever the rows")
    add("--max-iter", type=epochs_or_word, help="epochs, or 'auto', instead of steps")
    add("--device", default="cpu")
    add("--threads", type=int, help="intra-op threads of torch")
    return result


def main() -> None:
    """Print one table."""
    options = parser().parse_args()
    data_folder("uci")
    if options.threads:
        torch.set_num_threads(options.threads)
    print(environment(options.device))
    steps = f"steps {options.steps}"
    print(
        f"{options.estimator}: hidden {options.hidden}, dropout {options.dropout:g}, "
        f"length_scale {options.length_scale}, {options.likelihood}, "
        f"{options.n_estimators} networks, {options.n_draws} draws, batch "
        f"{options.batch_size}, learning rate {options.learning_rate_init:g}, "
        + (steps if options.max_iter is None else f"max_iter {options.max_iter}")
    )
    lines, count = [], 0
    for name in options.sets:
        if name in ONLY_BY_NAME:
            print(
                f"{name}: only for comparison with published rows (see the docstring)"
            )
        result = evaluate(name, options)
        line, good = report(name, result)
        lines.append(line)
        count += good
        print(f"done: {' '.join(line)}", flush=True)
        if options.per_split:
            for split in range(len(result["rmse"])):
                numbers = result["rmse"][split], result["density"][split]
                print(
                    f"  split {split}: RMSE {numbers[0]:.4f}, log density "
                    f"{numbers[1]:.4f}"
                )
    rows = "last 20 % of the training rows" if options.inner else "test rows"
    print(
        f"\nScored on: {rows}; {options.splits or 'all'} splits; mean +- standard "
        "error over splits"
    )
    header = [
        "set",
        "RMSE",
        "published",
        "not worse",
        "log density",
        "published",
        "not worse",
        "epochs",
        "fit s",
        "predict s",
    ]
    print(table(header, lines))
    print(f"\nnot worse than published: {count} of {2 * len(lines)} numbers")


if __name__ == "__main__":
    main()
