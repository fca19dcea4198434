"""How well do the estimators predict on the UCI sets with the canonical splits?

All splits of a set are trained as members of one batched program, and each split is
scaled by its own training rows. The table contains the RMSE of the predictive mean and
the mean log predictive density of the test rows (nats, units of y), mean +- standard
error over the splits, and a published result. For MC dropout and its variants this is
the grid search of MC dropout, which selected parameters per split on validation rows;
for the others it is Bayes by Backprop (see the cautions in `published.py`).

One setting per posterior is used for all sets. It was selected with ``--inner``, which
scores the last part of the training rows. (It does not score the test rows of a split,
but a row that is held out there can be a test row of another split.)

    python benchmarks/uci.py --estimator mc_dropout --sets yacht,energy
    python benchmarks/uci.py --estimator all --sets yacht,energy,kin8nm --splits 5

bostonHousing serves only for comparison with published results: one of its features
was built on the racial composition of towns. It runs only if it is named.
"""

import argparse
import json
import time
import warnings

import numpy as np
import torch
from common import data_folder, environment, fit_splits, table
from posteriors import POSTERIORS
from published import PUBLISHED
from sklearn.exceptions import ConvergenceWarning

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
OF_GRID_SEARCH = "100_xepochs_1_hidden_layers"

# One setting per posterior for all sets, the best one by --inner.
DEFAULT = {
    "hidden_layer_sizes": (50, 50),
    "length_scale": 1.0,
    "likelihood": "heteroscedastic",
    "n_estimators": 3,
    "n_draws": 200,
    "batch_size": 128,
    "learning_rate_init": 0.01,
    "steps": 3000,
}
# Tables get 130 sqrt(N) steps if this is more.
SHALLOW = {"hidden_layer_sizes": (50,), "steps": 5000, "steps_per_root": 130}
SETTINGS = {
    "mc_dropout": DEFAULT | {"dropout": 0.02, "n_estimators": 5},
    # No noise on the inputs: it blurs steep functions (yacht).
    "gaussian": DEFAULT | {"dropout": (0.0, 0.02, 0.02)},
    "dropconnect": DEFAULT | {"dropout": 0.05},
    "additive": DEFAULT | {"dropout": 0.02},
    "concrete": DEFAULT | {"length_scale": "auto"},
    "bbb": DEFAULT | SHALLOW,
    "bbb_spike": DEFAULT | SHALLOW,
    "bbb_mixture": DEFAULT | SHALLOW,
    "vd_correlated": DEFAULT | SHALLOW,
    "vd_independent": DEFAULT | SHALLOW,
    "vd_weight": DEFAULT | SHALLOW,
}


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


def grid_search(name: str) -> dict[str, tuple[float, float]]:
    """Mean and standard error of MC dropout's published RMSE and log density."""
    results = json.loads((data_folder("uci") / "published_gal2016.json").read_text())
    variant = results["data_sets"][name][OF_GRID_SEARCH]
    return {
        ours: (variant[theirs]["mean"], variant[theirs]["stderr"])
        for ours, theirs in (("rmse", "test_MC_rmse"), ("density", "test_ll"))
    }


def published(posterior: str, name: str) -> dict[str, tuple[float, float | None]]:
    """The published results for a posterior; None if the standard error is unknown."""
    if not posterior.startswith(("bbb", "vd")):
        return dict(grid_search(name))
    rmse, density = PUBLISHED["bbb"].get(name, (np.nan, np.nan))
    return {"rmse": (rmse, None), "density": (density, None)}


def settings_of(posterior: str, options) -> dict:
    """The posterior's settings, updated by the settings of the command line."""
    given = {name: getattr(options, name) for name in [*DEFAULT, "dropout", "max_iter"]}
    return SETTINGS[posterior] | {k: v for k, v in given.items() if v is not None}


def estimators_of(posterior: str, options, n_rows: int, n_splits: int) -> list:
    """One estimator per split; they differ in their random_state only."""
    kind, own = POSTERIORS[posterior]
    setting = own | settings_of(posterior, options)
    steps = max(
        setting.pop("steps"), setting.pop("steps_per_root", 0) * np.sqrt(n_rows)
    )
    if "max_iter" not in setting:
        n_batches = -(-n_rows // min(setting["batch_size"], n_rows))
        setting["max_iter"] = max(round(steps / n_batches), 1)
    return [
        kind(**setting, device=options.device, random_state=split)
        for split in range(n_splits)
    ]


def evaluate(posterior: str, name: str, options) -> dict:
    """RMSE and log density per split, and the seconds of fit and prediction."""
    X, y, train, test = load(name, options.splits)
    if options.inner:
        train, test = inner(train)
    estimators = estimators_of(posterior, options, train.shape[1], len(train))
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
    """Whether the RMSE is at most, or the log density at least, the published mean."""
    return ours <= theirs if metric == "rmse" else ours >= theirs


def with_error(mean: float, error: float | None) -> str:
    """Mean and standard error with two significant digits of the error."""
    if error is None:
        return f"{mean:g}"
    decimals = int(np.clip(2 - np.ceil(np.log10(error)), 2, 6)) if error else 3
    return f"{mean:.{decimals}f} +- {error:.{decimals}f}"


def report(posterior: str, name: str, result: dict) -> tuple[list[str], int]:
    """A line of the table, and how many of its two scores are not worse."""
    cells, count = [name], 0
    for metric in ("rmse", "density"):
        values, (theirs, error) = result[metric], published(posterior, name)[metric]
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


def published_table(names_of_sets: list[str]) -> str:
    """The table of published results, RMSE / log density."""
    lines = []
    for name in names_of_sets:
        rmse, density = (value for value, _ in grid_search(name).values())
        cells = [f"{rmse:.3g} / {density:.3g}"]
        for results in PUBLISHED.values():
            cells.append(
                "{:g} / {:g}".format(*results[name]) if name in results else ""
            )
        lines.append([name, *cells])
    return table(["published", "mc_dropout", *PUBLISHED], lines)


def number_or_word(text: str):
    """Convert '0.1' to 0.1; keep 'auto'."""
    try:
        return float(text)
    except ValueError:
        return text


def epochs_or_word(text: str):
    """Convert '40' to 40; keep 'auto'."""
    return text if text == "auto" else int(text)


def units(text: str) -> tuple[int, ...]:
    """Convert '50,50' to (50, 50)."""
    return tuple(int(size) for size in text.split(","))


def names(text: str) -> list[str]:
    """Split 'yacht,energy'; 'all' is every set but those in ``ONLY_BY_NAME``."""
    chosen = list(SETS) if text == "all" else text.split(",")
    unknown = [name for name in chosen if name not in SETS + ONLY_BY_NAME]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown sets {', '.join(unknown)}; there are {', '.join(SETS)}"
        )
    return chosen


def posteriors(text: str) -> list[str]:
    """Split 'bbb,concrete'; 'all' is every posterior of the table."""
    chosen = list(POSTERIORS) if text == "all" else text.split(",")
    unknown = [name for name in chosen if name not in POSTERIORS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown posteriors {', '.join(unknown)}; there are "
            f"{', '.join(POSTERIORS)}"
        )
    return chosen


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    result = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        epilog="Options that are not given have the posterior's own settings.",
    )
    add = result.add_argument
    add("--estimator", type=posteriors, default="mc_dropout", help="names, or 'all'")
    add("--sets", type=names, default=",".join(DEFAULT_SETS))
    add("--splits", type=int, help="number of splits; default: all")
    add("--inner", action="store_true", help="score the last 20 %% of training rows")
    add("--per-split", action="store_true", help="print every split's two numbers")
    add("--hidden", type=units, dest="hidden_layer_sizes")
    add("--dropout", type=float)
    add("--length-scale", type=number_or_word)
    add("--likelihood")
    add("--n-estimators", type=int)
    add("--n-draws", type=int)
    add("--batch-size", type=int)
    add("--learning-rate-init", type=float)
    add("--steps", type=int, help="steps of Adam, whatever the rows")
    add("--max-iter", type=epochs_or_word, help="epochs, or 'auto', instead of steps")
    add("--device", default="cpu")
    add("--threads", type=int, help="intra-op threads of torch")
    return result


HEADER = [
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


def run(posterior: str, options) -> None:
    """Print one posterior's table."""
    setting = settings_of(posterior, options)
    print(f"\n{posterior}: " + ", ".join(f"{k} {v}" for k, v in setting.items()))
    lines, count = [], 0
    for name in options.sets:
        if name in ONLY_BY_NAME:
            print(f"{name}: for comparison with published rows only, see the docstring")
        result = evaluate(posterior, name, options)
        line, good = report(posterior, name, result)
        lines.append(line)
        count += good
        if options.per_split:
            for split in range(len(result["rmse"])):
                numbers = result["rmse"][split], result["density"][split]
                print(
                    f"  {name}, split {split}: RMSE {numbers[0]:.4f}, log density "
                    f"{numbers[1]:.4f}"
                )
    print(table(HEADER, lines))
    print(f"not worse than published: {count} of {2 * len(lines)} numbers", flush=True)


def main() -> None:
    """Print a table per posterior, and the published rows."""
    options = parser().parse_args()
    data_folder("uci")
    if options.threads:
        torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(environment(options.device))
    rows = "last 20 % of the training rows" if options.inner else "test rows"
    print(
        f"Scored on: {rows}; {options.splits or 'all'} splits; mean +- standard "
        "error over splits"
    )
    for posterior in options.estimator:
        run(posterior, options)
    print(f"\n{published_table(options.sets)}")


if __name__ == "__main__":
    main()
