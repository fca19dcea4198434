"""Is the stack good if values of y are repeated? Fast stacks, with default parameters.

Generated tables with 2,000 training and 1,000 test rows, two seeds. The function is
Friedman's of ten columns. The same y is

- 61 values: rounded to 61 values with uneven gaps, noise 1 or .2
- nine values: rounded to multiples of 3
- rings: integers from 1 to 29, log-normal
- ratings: integers from 1 to 5
- floor: 30 % of y at the smallest value
- zeros: 30 % of y at one value in the middle, by one of the columns
- heaped: 60 % of y rounded to multiples of 5, the others to .1
- pay grades: 35 % of y are an exact function of two columns
- counts: Poisson, of three columns; the true distribution has -1.51 nats
- continuous: without repeated values

protein and power-plant are the UCI sets, rounded to 61 values with uneven gaps.

The log density is log(P(cell) / width): a cell ends half-way between a value and its
neighbours. "Out of fold" is the log density in ``summary_``.

    python benchmarks/repeated_y.py
    python benchmarks/repeated_y.py --tables rings counts
"""

import warnings

import numpy as np
from common import command_line, data_folder, environment, table

from skbayesnn import BayesianStackingRegressor
from skbayesnn.metrics import interval_coverage

N_TRAIN, N_TEST, SEEDS = 2000, 1000, 2
UCI = {"protein": "protein-tertiary-structure", "power plant": "power-plant"}
TABLES = (
    "61 values",
    "61 values, less noise",
    "protein",
    "power plant",
    "nine values",
    "rings",
    "ratings",
    "floor",
    "zeros",
    "heaped",
    "pay grades",
    "counts",
    "continuous",
)


def rounded(y, n_values, random):
    """The nearest of some values with uneven gaps."""
    low, high = np.quantile(y, [0.001, 0.999])
    position = np.append(0, np.cumsum(random.lognormal(0, 0.8, n_values - 1)))
    values = low + (high - low) * position / position[-1]
    return values[np.abs(y[:, None] - values).argmin(1)]


def sample(name, seed):
    """X and y of training and test rows."""
    random = np.random.default_rng([seed, TABLES.index(name)])
    n = N_TRAIN + N_TEST
    if name in UCI:
        arrays = np.load(data_folder("uci", UCI[name]) / f"{UCI[name]}.npz")
        rows = random.permutation(len(arrays["y"]))[:n]
        y = rounded(arrays["y"].ravel()[rows].astype(float), 61, random)
        return arrays["X"][rows], y
    if name == "counts":
        X = random.normal(size=(n, 3))
        return X, random.poisson(np.exp(0.3 + 0.5 * X[:, 0])).astype(float)
    X = random.uniform(size=(n, 10))
    f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    f += 10 * X[:, 3] + 5 * X[:, 4]
    y = f + (0.2 if name == "61 values, less noise" else 1) * random.normal(size=n)
    if name.startswith("61 values"):
        y = rounded(y, 61, random)
    elif name == "nine values":
        y = 3 * np.round(y / 3)
    elif name == "rings":
        y = np.exp((y - 14) / 20 + 0.1 * random.normal(size=n))
        y = np.clip(np.round(10 * y), 1, 29)
    elif name == "ratings":
        y = np.clip(np.round((y - 14) * 0.24 + 3.3), 1, 5)
    elif name == "floor":
        y = np.maximum(y, np.quantile(y, 0.3))
    elif name == "zeros":
        y = np.where(X[:, 5] + 0.2 * random.normal(size=n) < 0.3, 14.0, y)
    elif name == "heaped":
        y = np.where(random.random(n) < 0.6, 5 * np.round(y / 5), np.round(y, 1))
    elif name == "pay grades":
        X[:, 5], X[:, 6] = np.floor(15 * X[:, 5]), X[:, 6] < 0.35
        grade = 4 + 1.37 * X[:, 5] + 0.01 * X[:, 5] ** 2
        y = np.where(X[:, 6] == 1, grade, y)
    return X, y


def cells(y, training_y):
    """Lower and upper bounds of the cells of y."""
    values = np.unique(training_y)
    middle = (values[1:] + values[:-1]) / 2
    low = np.append(2 * values[0] - middle[0], middle)
    high = np.append(middle, 2 * values[-1] - middle[-1])
    nearest = np.searchsorted(middle, y)
    return low[nearest], high[nearest]


def scores(name, seed):
    """RMSE, CRPS, log density on test rows and out of fold, and coverage."""
    X, y = sample(name, seed)
    model = BayesianStackingRegressor("fast", random_state=seed, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:N_TRAIN], y[:N_TRAIN])
    X_test, y_test = X[N_TRAIN:], y[N_TRAIN:]
    low, high = cells(y_test, y[:N_TRAIN])
    inside = model.predictive_cdf(X_test, high) - model.predictive_cdf(X_test, low)
    return [
        np.sqrt(np.square(model.predict(X_test) - y_test).mean()),
        model.crps(X_test, y_test).mean(),
        np.log(np.maximum(inside, 1e-12) / (high - low)).mean(),
        model.summary_.log_density,
        interval_coverage(y_test, model.predict_interval(X_test)),
    ]


def main():
    parser = command_line(__doc__)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    arguments = parser.parse_args()
    print(environment())
    rows = []
    for name in arguments.tables:
        results = [scores(name, seed) for seed in range(SEEDS)]
        rmse, crps, density, out_of_fold, coverage = np.mean(results, axis=0)
        values = f"{rmse:.4g}", f"{crps:.4g}", f"{density:.3f}", f"{out_of_fold:.3f}"
        rows.append((name, *values, f"{coverage:.3f}"))
        print(*rows[-1], sep=" | ", flush=True)
    header = "table", "RMSE", "CRPS", "log density", "out of fold", "90 % cover"
    print(table(header, rows))


if __name__ == "__main__":
    main()
