"""Do 90 % intervals cover 90 % of new y? Every regressor, with its default parameters.

Three smooth functions of standard normal features, scaled to a standard deviation of 1,
with Gaussian noise of .05, .1 and .5: a wave along one direction, a sum of waves of all
features, and an interaction of two directions. 1, 2, 5 and 20 features, 60 to 2,000
training rows, three seeds. Coverage is measured on 1,000 new rows. A cell is a number
of features, a noise level and a number of rows, averaged over functions and seeds.

The table contains for each regressor and number of rows: the share of new y in 50 % and
90 % intervals, the lowest and highest cell of the latter, the lowest cell of a single
function, the mean log of the true density minus the model's mean log density, and the
RMSE of the mean to the function. Networks with the same number of rows are trained in
one program, which gives the results of separate fits.

    python benchmarks/interval_coverage.py
    python benchmarks/interval_coverage.py --regressors "MC dropout" --rows 150 600
    python benchmarks/interval_coverage.py --regressors stack --jobs 16 --seeds 1
"""

import itertools
import json
import warnings
from pathlib import Path

import joblib
import numpy as np
import torch
from common import command_line, environment, fit_splits, table
from threadpoolctl import threadpool_limits

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
    BBBRegressor,
    LaplaceRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
)
from skbayesnn.metrics import interval_coverage

REGRESSORS = {
    "MC dropout": MCDropoutRegressor,
    "BBB": BBBRegressor,
    "variational dropout": VariationalDropoutRegressor,
    "variational GP": VariationalGPRegressor,
    "anchored": AnchoredEnsembleRegressor,
    "laplace": LaplaceRegressor,
    "stack": BayesianStackingRegressor,
}
# These cannot share a program with others.
SEPARATE = "laplace", "stack"
COLUMNS, NOISES, ROWS, SEEDS = (1, 2, 5, 20), (0.05, 0.1, 0.5), (60, 150, 600, 2000), 3
N_NEW = 1000


def directions(n_columns):
    """Two directions of length 1, orthogonal if there are at least two columns."""
    first = 1 / (1 + np.arange(n_columns))
    second = np.roll(first, 1)
    second[0] *= -1
    first, second = (v / np.linalg.norm(v) for v in (first, second))
    if n_columns > 1:
        second = second - first * (first @ second)
    return first, second / np.linalg.norm(second)


def wave(X):
    return np.sin(2 * X @ directions(X.shape[1])[0])


def waves(X):
    columns = np.arange(X.shape[1])
    return np.sin(2 * X + columns) @ (1 / (1 + columns))


def interaction(X):
    first, second = directions(X.shape[1])
    return 2 * np.tanh(X @ first) + (X @ first) * (X @ second)


FUNCTIONS = {"wave": wave, "waves": waves, "interaction": interaction}


def scaled(function, X):
    """The function at X, in units of its standard deviation."""
    many = np.random.default_rng(0).normal(size=(50_000, X.shape[1]))
    return function(X) / function(many).std()


def sample(function, n_columns, noise, n_rows, seed):
    """X, f and y of training and new rows."""
    entropy = [seed, n_columns, n_rows, list(FUNCTIONS).index(function)]
    random = np.random.default_rng(entropy)
    X = random.normal(size=(n_rows + N_NEW, n_columns))
    f = scaled(FUNCTIONS[function], X)
    return X, f, f + noise * random.normal(size=len(f))


def scores(model, X, f, y, noise):
    """Scores of new rows: shares in intervals, nats lost, RMSE to f."""
    intervals = model.predict_interval(X, coverage=[0.5, 0.9])
    half, inside = (interval_coverage(y, i) for i in np.moveaxis(intervals, 1, 0))
    truth = -0.5 * np.square((y - f) / noise) - np.log(noise * np.sqrt(2 * np.pi))
    lost = (truth - model.log_predictive_density(X, y)).mean()
    error = np.sqrt(np.square(model.predict(X) - f).mean())
    return [float(value) for value in (half, inside, lost, error)]


def fitted_and_scored(name, n_rows, n_columns, cases, device):
    """Scores of tables of one size, by (noise, function, seed)."""
    torch.set_num_threads(1)
    tables = [
        sample(function, n_columns, noise, n_rows, seed)
        for noise, function, seed in cases
    ]
    kind = REGRESSORS[name]
    options = {} if name == "laplace" else {"device": device}
    models = [kind(random_state=seed, **options) for _, _, seed in cases]
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        if name in SEPARATE:
            for model, (X, _, y) in zip(models, tables, strict=True):
                model.fit(X[:n_rows], y[:n_rows])
        else:
            # Concatenate the tables; each network is fitted to its own rows.
            X = np.concatenate([X[:n_rows] for X, _, _ in tables])
            y = np.concatenate([y[:n_rows] for _, _, y in tables])
            rows = np.split(np.arange(len(y)), len(tables))
            fit_splits(models, X, y, rows)
        return [
            scores(model, X[n_rows:], f[n_rows:], y[n_rows:], noise)
            for model, (X, f, y), (noise, *_) in zip(models, tables, cases, strict=True)
        ]


def work_of(names, rows, n_seeds):
    """Arguments of ``fitted_and_scored``, the longest first."""
    work = []
    for name, n_rows, n_columns in itertools.product(names, rows, COLUMNS):
        for noise in NOISES:
            cases = list(itertools.product([noise], FUNCTIONS, range(n_seeds)))
            parts = [[case] for case in cases] if name in SEPARATE else [cases]
            work += [(name, n_rows, n_columns, part) for part in parts]
    return sorted(work, key=lambda arguments: -arguments[1])


def collected(work, jobs, device, file):
    """Scores by (regressor, rows, columns, noise, function, seed)."""
    tasks = (joblib.delayed(fitted_and_scored)(*args, device) for args in work)
    parallel = joblib.Parallel(jobs, return_as="generator", pre_dispatch="all")
    scored = {}
    for (*size, cases), case_scores in zip(work, parallel(tasks), strict=True):
        scored |= {(*size, *c): s for c, s in zip(cases, case_scores, strict=True)}
        if file:
            file.write_text(json.dumps([[*key, s] for key, s in scored.items()]))
    return scored


def as_row(name, n_rows, scored):
    """The line of the table for a regressor and a number of rows.

    scored : dict of scores by (columns, noise, function, seed)
    """
    keys = list(scored)
    half, inside, lost, error = np.array(list(scored.values())).T

    def means(n_first):
        groups = {}
        for key, value in zip(keys, inside, strict=True):
            groups.setdefault(key[:n_first], []).append(value)
        return {key: np.mean(values) for key, values in groups.items()}

    cells, cells_by_function = means(2), means(3)
    lowest = min(cells, key=cells.get)
    return [
        name,
        n_rows,
        len(scored),
        f"{half.mean():.3f}",
        f"{inside.mean():.3f}",
        f"{cells[lowest]:.3f} ({lowest[0]} columns, noise {lowest[1]:g})",
        f"{max(cells.values()):.3f}",
        f"{min(cells_by_function.values()):.3f}",
        f"{lost.mean():.3f}",
        f"{error.mean():.3f}",
    ]


HEADS = ["regressor", "rows", "fits", "in 50 %", "in 90 %", "lowest cell"]
HEADS += ["highest cell", "lowest of one function", "nats lost", "RMSE to f"]


def main():
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--regressors", nargs="+", default=list(REGRESSORS))
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="write all scores to this file")
    options = parser.parse_args()
    print(environment(options.device))
    work = work_of(options.regressors, options.rows, options.seeds)
    scored = collected(work, options.jobs, options.device, options.json)
    lines = [
        as_row(
            name,
            n_rows,
            {key[2:]: s for key, s in scored.items() if key[:2] == (name, n_rows)},
        )
        for name in options.regressors
        for n_rows in options.rows
    ]
    print(table(HEADS, lines))


if __name__ == "__main__":
    main()
