"""Do 90 % intervals hold 90 % of new y? Every regressor, with its default parameters.

Three smooth functions of standard normal features, scaled to a standard deviation of 1,
with Gaussian noise of .05, .1 and .5: a wave along one direction, a sum of waves of all
features, and an interaction of two directions. 1, 2, 5 and 20 features, 60 to 2,000
training rows, three seeds. Coverage is that of 1,000 new rows. A cell is one number of
features, noise level and number of rows, the mean over functions and seeds.

Printed for each regressor and number of rows: the share of new y in 50 % and 90 %
intervals, the lowest and highest cell of the latter, the lowest cell of one function
alone, the log density that is lost against the true density, and the error of the mean
(RMSE to the function). Single networks of a size are trained in one program, which
gives the results of separate fits.

    python benchmarks/coverage.py
    python benchmarks/coverage.py --regressors "MC dropout" --rows 150 600
    python benchmarks/coverage.py --regressors stack --jobs 16
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
    "stack": BayesianStackingRegressor,
}
COLUMNS, NOISES, ROWS, SEEDS = (1, 2, 5, 20), (0.05, 0.1, 0.5), (60, 150, 600, 2000), 3
N_NEW = 1000


def directions(n_columns):
    """Two directions of length 1, at right angles where there are two columns."""
    first = 1 / (1 + np.arange(n_columns))
    second = np.roll(first, 1)
    second[0] *= -1
    first, second = (one / np.linalg.norm(one) for one in (first, second))
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
    """Of new rows: shares in intervals, nats lost, RMSE to f."""
    inside = [interval_coverage(y, model.predict_interval(X, coverage=0.5))]
    inside.append(interval_coverage(y, model.predict_interval(X, coverage=0.9)))
    truth = -0.5 * np.square((y - f) / noise) - np.log(noise * np.sqrt(2 * np.pi))
    lost = (truth - model.log_predictive_density(X, y)).mean()
    error = np.sqrt(np.square(model.predict(X) - f).mean())
    return [*map(float, inside), float(lost), float(error)]


def of_size(name, n_rows, n_columns, device):
    """Scores of all tables of a size, by (noise, function, seed)."""
    torch.set_num_threads(1)
    cases = list(itertools.product(NOISES, FUNCTIONS, range(SEEDS)))
    tables = [
        sample(function, n_columns, noise, n_rows, seed)
        for noise, function, seed in cases
    ]
    kind = REGRESSORS[name]
    models = [kind(random_state=seed, device=device) for _, _, seed in cases]
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        if name == "stack":
            for model, (X, _, y) in zip(models, tables, strict=True):
                model.fit(X[:n_rows], y[:n_rows])
        else:
            # Fits to one table of all rows, each to its own.
            X = np.concatenate([X[:n_rows] for X, _, _ in tables])
            y = np.concatenate([y[:n_rows] for _, _, y in tables])
            rows = np.split(np.arange(len(y)), len(tables))
            fit_splits(models, X, y, rows)
        return [
            scores(model, X[n_rows:], f[n_rows:], y[n_rows:], noise)
            for model, (X, f, y), (noise, *_) in zip(models, tables, cases, strict=True)
        ]


def as_rows(name, n_rows, found):
    """found : (columns, noises, functions, seeds, scores)"""
    half, inside, lost, error = np.moveaxis(found, -1, 0)
    cells = inside.mean((2, 3))
    alone = inside.mean(3)
    i, j = np.unravel_index(cells.argmin(), cells.shape)
    return [
        name,
        n_rows,
        f"{half.mean():.3f}",
        f"{inside.mean():.3f}",
        f"{cells.min():.3f} ({COLUMNS[i]} columns, noise {NOISES[j]:g})",
        f"{cells.max():.3f}",
        f"{alone.min():.3f}",
        f"{lost.mean():.3f}",
        f"{error.mean():.3f}",
    ]


def main():
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--regressors", nargs="+", default=list(REGRESSORS))
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="also write all scores to this file")
    options = parser.parse_args()
    print(environment(options.device))
    sizes = list(itertools.product(options.regressors, options.rows, COLUMNS))
    # The longest first, so that no processor is left with one at the end.
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i][1])
    work = (joblib.delayed(of_size)(*sizes[i], options.device) for i in order)
    done = dict(zip(order, joblib.Parallel(options.jobs)(work), strict=True))
    shape = len(COLUMNS), len(NOISES), len(FUNCTIONS), SEEDS, -1
    by_size = np.array([done[i] for i in range(len(sizes))])
    by_size = by_size.reshape(len(options.regressors), len(options.rows), *shape)
    if options.json:
        options.json.write_text(
            json.dumps([vars(options) | {"json": None}, by_size.tolist()])
        )
    lines = [
        as_rows(name, n_rows, by_size[i, j])
        for i, name in enumerate(options.regressors)
        for j, n_rows in enumerate(options.rows)
    ]
    heads = ["regressor", "rows", "in 50 %", "in 90 %", "lowest cell", "highest cell"]
    heads += ["lowest of one function", "nats lost", "RMSE to f"]
    print(table(heads, lines))


if __name__ == "__main__":
    main()
