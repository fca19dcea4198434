"""Are defaults safe with few rows? The stack and single networks beside ridge.

Printed is the RMSE on new rows as a ratio to that of ``RidgeCV``, mean over seeds, and
the share of new rows inside of the stack's 90 % intervals. Tables: a linear one and
sin 2a + b^2 - c, both with five columns and noise, and rows of diabetes.

    python benchmarks/small_tables.py --seeds 3
"""

import warnings

import numpy as np
from common import command_line, environment, table
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    BayesianStackingRegressor,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)
from skbayesnn.metrics import interval_coverage

ROWS = (20, 30, 60, 150)
SINGLE = (MCDropoutRegressor, BBBRegressor, VariationalDropoutRegressor)


def linear(n_rows, random):
    X = random.normal(size=(n_rows + 2000, 5))
    return X, X @ random.normal(size=5) + random.normal(size=len(X))


def curved(n_rows, random):
    X = random.normal(size=(n_rows + 2000, 5))
    f = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - X[:, 2]
    return X, f + 0.5 * random.normal(size=len(X))


def diabetes(n_rows, random):
    X, y = load_diabetes(return_X_y=True)
    order = random.permutation(len(y))
    return X[order], y[order]


def main():
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    rows = []
    for make in (linear, curved, diabetes):
        for n_rows in ROWS:
            ratios, inside = [], []
            for seed in range(options.seeds):
                X, y = make(n_rows, np.random.default_rng(seed))
                train, new = (X[:n_rows], y[:n_rows]), (X[n_rows:], y[n_rows:])
                stack = BayesianStackingRegressor(random_state=0)
                single = [kind(random_state=0) for kind in SINGLE]
                line = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 30)))
                errors = np.array(
                    [_rmse(m.fit(*train), *new) for m in (line, stack, *single)]
                )
                ratios.append(errors[1:] / errors[0])
                inside.append(interval_coverage(new[1], stack.predict_interval(new[0])))
            means = [f"{value:.2f}" for value in np.mean(ratios, axis=0)]
            rows.append([make.__name__, n_rows, *means, f"{np.mean(inside):.0%}"])
    names = [kind.__name__ for kind in SINGLE]
    print(table(["table", "rows", "stack", *names, "in 90 %"], rows))


def _rmse(model, X, y):
    return np.sqrt(np.mean((model.predict(X) - y) ** 2))


if __name__ == "__main__":
    main()
