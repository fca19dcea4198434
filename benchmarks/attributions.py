"""How accurate are Shapley values, for how many predictions, and how long do they take?

accuracy
    Contributions of 12 columns to the epistemic uncertainty of a network, for 5 rows
    and a background of 64 rows. The exact values are sums over all sets of columns.
    The table has the predictions of a row, and the root mean square error divided by
    the mean size of the exact values. The explainers of shap have their defaults, or a
    number of sets.
time
    200 rows of 20 columns, and the default stack fitted to 1,000 rows.

    python benchmarks/attributions.py
    python benchmarks/attributions.py --parts time
"""

import argparse
import time
import warnings
from math import comb

import numpy as np
from common import environment, table
from sklearn.datasets import make_friedman1

from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor
from skbayesnn.inspection import attributions

try:
    import shap
except ImportError:
    shap = None

COLUMNS, BACKGROUND, EXPLAINED, SEEDS = 12, 64, 5, 5


def exact(function, x, background):
    """Sums over all sets of columns; x and the values: (columns,)."""
    d = len(x)
    sets = (np.arange(2**d)[:, None] >> np.arange(d)) & 1
    mixed = np.where(sets[:, None], x, background)
    value = function(mixed.reshape(-1, d)).reshape(2**d, -1).mean(1)
    size = sets.sum(1)
    weight = 1 / (d * np.array([comb(d - 1, s) for s in range(d)]))
    values = []
    for j in range(d):
        without = np.flatnonzero(sets[:, j] == 0)
        gain = value[without + 2**j] - value[without]
        values.append((weight[size[without]] * gain).sum())
    return np.array(values)


def accuracy():
    """Errors and numbers of predictions of each method."""
    count, errors = {}, {}
    for seed in range(SEEDS):
        X, y = make_friedman1(400, COLUMNS, noise=1.0, random_state=seed)
        model = MCDropoutRegressor(max_iter=100, random_state=seed)
        model.fit(X[:300], y[:300])
        background, rows = X[:BACKGROUND], X[300 : 300 + EXPLAINED]
        n_predicted = 0

        def function(X, model=model):
            nonlocal n_predicted
            n_predicted += len(X)
            return model.predict_uncertainty(X, "epistemic").astype(np.float64)

        expected = np.stack([exact(function, x, background) for x in rows])

        def add(name, values, per_row, expected=expected):
            error = np.sqrt(np.square(values - expected).mean())
            errors.setdefault(name, []).append(error / np.abs(expected).mean())
            count[name] = per_row

        for n in (16, 32, 64, 256):
            result = attributions(
                model,
                rows,
                background=background,
                of="epistemic",
                n_permutations=n,
                random_state=seed,
            )
            name = f"attributions, n_permutations={n}"
            add(name, result.values, 2 * n * (COLUMNS - 1))
        if shap is None:
            continue
        np.random.seed(seed)
        for options in ({"nsamples": 200}, {}):
            n_predicted = 0
            explainer = shap.KernelExplainer(function, background)
            values = explainer.shap_values(rows, silent=True, **options)
            name = f"KernelExplainer, nsamples={options.get('nsamples', 'auto')}"
            add(name, values, n_predicted / EXPLAINED)
        n_predicted = 0
        explainer = shap.PermutationExplainer(
            function, shap.maskers.Independent(background, BACKGROUND), seed=seed
        )
        add("PermutationExplainer", explainer(rows).values, n_predicted / EXPLAINED)
    lines = [
        [name, f"{count[name]:,.0f}", f"{np.mean(v):.3f} ± {_error(v):.3f}"]
        for name, v in errors.items()
    ]
    print(table(["method", "predictions of a row", "relative error"], lines))


def _error(values):
    return np.std(values, ddof=1) / np.sqrt(len(values))


def duration():
    """Seconds for 200 rows of 20 columns."""
    X, y = make_friedman1(1_200, 20, noise=1.0, random_state=0)
    model = BayesianStackingRegressor(random_state=0).fit(X[:1_000], y[:1_000])
    lines = []
    for of in ("mean", "std", "epistemic", ("quantile", 0.9)):
        start, processor = time.perf_counter(), time.process_time()
        attributions(model, X[1_000:], background=X[:1_000], of=of)
        seconds = time.perf_counter() - start, time.process_time() - processor
        lines.append([str(of), *(f"{s:.1f}" for s in seconds)])
    print(table(["of", "seconds", "processor seconds"], lines))


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", default=["accuracy", "time"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    for part in options.parts:
        {"accuracy": accuracy, "time": duration}[part]()
        print()


if __name__ == "__main__":
    main()
