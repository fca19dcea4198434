"""Which candidates does a stack need, and how long must they train?

All candidates of a large pool are fitted once to each table, out of fold; their
predictions of held-out rows are kept. The pool has the networks of the default pool
with three lengths of training, deeper and wider ones, linear models, forests, and
gradient boosting (classes). Then candidates are added one by one,
always the one that improves the mean score over the tables most. The weights of each
set are estimated on one half of the held-out rows and scored on the other, and the
reverse. Linear models and trees are always in the set, as they take little time.

Rows are training rows only: of the first canonical split of the UCI sets, and a part of
the sets for classes (at most 6,000).

    python benchmarks/portfolio.py --fit
    python benchmarks/portfolio.py

The score is the mean logarithm of CRPS (regression) or log loss (classes); the table
has it as a ratio to the whole pool. The share of the gain is relative to linear models
and trees alone.
"""

import os
import pickle
import time
from pathlib import Path

import numpy as np
from _leaderboard.tasks import TASKS
from common import command_line, environment, table
from scipy.special import logsumexp
from uci import SETS

from skbayesnn import BayesianStackingClassifier, BayesianStackingRegressor
from skbayesnn._batch.outcomes import Fingerprint, ResultStore
from skbayesnn._stacking.candidates import (
    encode_by_fold,
    expand_pool,
    predict_held_out,
)
from skbayesnn._stacking.folds import make_folds
from skbayesnn._stacking.pool import CandidateSpec, default_specs
from skbayesnn._stacking.weights import (
    OutOfFold,
    crps_products,
    sparse_stacking_weights,
    useful_candidates,
)

TABLES = {
    "regression": SETS,
    "classification": ("wine", "breast_cancer", "titanic", "digits", "adult"),
}
MAX_ROWS = 6_000
# Shares of the training steps of the default pool.
SHARES = 1.0, 0.4, 0.15
# Held-out rows of each half on which the CRPS is computed.
CRPS_ROWS = 400
ALWAYS = "linear", "forest", "boosted_trees"


def rows_of(name: str):
    """X and y of the training rows of the first split, at most ``MAX_ROWS``."""
    [task] = [task for task in TASKS if task.name == name]
    split = task.split(0)
    X, y = split.X_train, split.y_train
    if len(y) > MAX_ROWS:
        rows = np.random.default_rng(0).permutation(len(y))[:MAX_ROWS]
        X, y = X.iloc[rows] if hasattr(X, "iloc") else X[rows], y[rows]
    return X, y


def specs_of(data, is_classification: bool) -> list[CandidateSpec]:
    """The large pool."""

    def pool(max_iter):
        return default_specs(
            data.X,
            data.weights,
            is_classification=is_classification,
            max_iter=max_iter,
            device="cpu",
            random_state=0,
        )

    whole = pool("auto")
    specs = [spec for spec in whole if spec.name in ALWAYS]
    for spec in whole:
        if spec.name in ALWAYS:
            continue
        path = "network__" if spec.name == "encoded" else ""
        params = spec.estimator.get_params()
        epochs, width = (
            params[f"{path}max_iter"],
            params[f"{path}hidden_layer_sizes"][0],
        )
        for share in SHARES:
            shorter = pool(max(round(share * epochs), 1))
            [same] = [other for other in shorter if other.name == spec.name]
            specs.append(same._replace(name=f"{spec.name} {share:g}"))
        for label, sizes in (("deep", (width,) * 3), ("wide", (2 * width,) * 2)):
            [same] = [other for other in pool("auto") if other.name == spec.name]
            same.estimator.set_params(**{f"{path}hidden_layer_sizes": sizes})
            specs.append(same._replace(name=f"{spec.name} {label}"))
    return specs


def fitted(name: str, kind: str) -> dict:
    """Log densities, distances and seconds of all candidates on a table."""
    X, y = rows_of(name)
    is_classification = kind == "classification"
    stack = (
        BayesianStackingClassifier if is_classification else BayesianStackingRegressor
    )(random_state=0)
    y = stack._checked_targets(y)
    data, _ = stack._data_and_pool(X, y, None, None, 0)
    splits = make_folds(None, data, None, is_classification=is_classification, seed=0)
    resources = stack._resources()
    fold_data, folds, _ = encode_by_fold(data, splits)
    store = ResultStore(len(splits), Fingerprint.from_values(0))
    candidates, seconds = [], {}
    for spec in specs_of(data, is_classification):
        group = expand_pool([spec])
        start = time.process_time()
        for new in predict_held_out(group, fold_data, folds, resources, store):
            store.update(new)
        taken = (time.process_time() - start) / len(group)
        seconds |= {candidate.name: taken for candidate in group}
        candidates += group
    oof = OutOfFold.from_outcomes(candidates, splits, store, data)
    log_density = oof.log_density()
    kept = useful_candidates(log_density, oof.weights, *oof.spread_and_error())
    names = [candidate.name for candidate in candidates]
    halves = np.random.default_rng(0).permutation(len(oof.y)) % 2
    result = {
        "names": [name for name, k in zip(names, kept, strict=True) if k],
        "seconds": seconds,
        "log_density": log_density[:, kept],
        "halves": halves,
        "n_rows": len(y),
    }
    if not is_classification:
        result["distances"] = []
        for half in range(2):
            rows = np.flatnonzero(halves == half)[:CRPS_ROWS]
            parts = [
                oof.predictives[i].in_units_of_target().components.rows(rows)
                for i in np.flatnonzero(kept)
            ]
            weights = np.ones(len(rows))
            result["distances"].append(
                crps_products(parts, oof.y[rows].reshape(len(rows), -1), weights)
            )
    return result


# ---- choice


def score(one: dict, names) -> tuple[float, float]:
    """Logarithm of CRPS or log loss, and log density, of a set of candidates."""
    index = [i for i, name in enumerate(one["names"]) if name in names]
    if not index:
        return np.inf, -np.inf
    log_density = one["log_density"][:, index]
    losses, densities = [], []
    for half in range(2):
        train, test = one["halves"] == half, one["halves"] != half
        weights = sparse_stacking_weights(log_density[train], np.ones(train.sum()))
        with np.errstate(divide="ignore"):
            density = logsumexp(log_density[test] + np.log(weights), axis=1).mean()
        densities.append(density)
        if "distances" in one:
            distances = one["distances"][1 - half][np.ix_(index, index)]
            losses.append(weights @ distances @ weights)
        else:
            losses.append(-density)
    return float(np.log(np.mean(losses))), float(np.mean(densities))


def mean_score(results: dict, names) -> float:
    """Mean over the tables of the logarithm of the score."""
    return float(np.mean([score(one, names)[0] for one in results.values()]))


def greedy(results: dict, pool: list[str], always: list[str], most: int) -> list:
    """Candidates in the order in which they are added, with the score afterwards."""
    chosen: list[str] = []
    steps = [("", mean_score(results, always))]
    while len(chosen) < min(most, len(pool)):
        left = [name for name in pool if name not in chosen]
        scores = [mean_score(results, [*always, *chosen, name]) for name in left]
        best = int(np.argmin(scores))
        chosen.append(left[best])
        steps.append((left[best], scores[best]))
    return steps


def report(kind: str, results: dict, most: int) -> None:
    """Print the tables of a kind."""
    names = list(dict.fromkeys(n for one in results.values() for n in one["names"]))
    always = [name for name in names if name.partition("(")[0] in ALWAYS]
    default = [n for n in names if n.split("(")[0].endswith((" 1", *ALWAYS))]
    everything = mean_score(results, names)
    least = mean_score(results, always)
    print(f"\n{kind}: score without networks {np.exp(least - everything):.3f}")
    pools = {
        "all lengths": [n for n in names if n not in always],
        "default": [n for n in default if n not in always],
        "deep and wide": [n for n in names if " deep" in n or " wide" in n],
    }
    pools |= {
        f"share {share:g}": [
            n for n in names if n.split("(")[0].endswith(f" {share:g}")
        ]
        for share in SHARES[1:]
    }
    lines = []
    for label, pool in pools.items():
        value = mean_score(results, [*always, *pool])
        gain = (least - value) / (least - everything)
        cost = np.mean(
            [
                sum(one["seconds"].get(n, 0) for n in [*always, *pool])
                / sum(one["seconds"].get(n, 0) for n in default)
                for one in results.values()
            ]
        )
        ratio = f"{np.exp(value - everything):.3f}"
        lines.append([label, len(pool), ratio, f"{gain:.0%}", f"{cost:.2f}"])
    print(table(["pool", "networks", "score", "share of gain", "seconds"], lines))
    for label, pool in pools.items():
        lines = []
        for name, value in greedy(results, pool, always, most):
            gain = (least - value) / (least - everything)
            lines.append([name, f"{np.exp(value - everything):.3f}", f"{gain:.0%}"])
        print(f"\n{kind}, {label}, one by one")
        print(table(["added", "score", "share of gain"], lines), flush=True)


def main() -> None:
    """Fit the candidates, or report."""
    parser = command_line(__doc__)
    folder = Path(__file__).parent / "output" / "portfolio"
    parser.add_argument("--fit", action="store_true", help="fit the candidates")
    parser.add_argument("--folder", type=Path, default=folder)
    parser.add_argument("--most", type=int, default=8, help="candidates to add")
    options = parser.parse_args()
    print(environment())
    options.folder.mkdir(parents=True, exist_ok=True)
    for kind, names in TABLES.items():
        results = {}
        for name in names:
            path = options.folder / f"{name}-{kind}.pickle"
            if options.fit and not path.exists():
                results[name] = fitted(name, kind)
                path.write_bytes(pickle.dumps(results[name]))
                print(name, f"{os.times().user:.0f} s of CPU time", flush=True)
            elif path.exists():
                results[name] = pickle.loads(path.read_bytes())
        if results and not options.fit:
            report(kind, results, options.most)


if __name__ == "__main__":
    main()
