"""How wide are the weights of `VariationalGPRegressor` best, and how many features?

CRPS over the standard deviation of y, and the share of rows in their 90 % interval, on
rows kept apart from parts of training rows as in study.py. Beside it MC dropout and
Bayes by Backprop with their defaults.

    python benchmarks/random_features.py
"""

import warnings

from common import command_line, environment, table
from study import REGRESSION

from skbayesnn import BBBRegressor, MCDropoutRegressor, VariationalGPRegressor
from skbayesnn.metrics import interval_coverage

SETS = ("concrete", "energy", "wine-quality-red", "yacht", "kin8nm")
MODELS = {
    "MC dropout": MCDropoutRegressor(random_state=0),
    "Bayes by Backprop": BBBRegressor(random_state=0),
} | {
    ", ".join(f"{name} = {value}" for name, value in options.items()) or "default": (
        VariationalGPRegressor(random_state=0, **options)
    )
    for options in (
        {},
        {"dropout": 0.01},
        {"sigma": 0.03},
        {"sigma": 0.05},
        {"sigma": "auto"},
        {"activation": "relu"},
        {"length_scale": 0.3},
        {"length_scale": 3.0},
        {"n_features": 300},
    )
}


def main():
    """Print the table."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    data = {name: REGRESSION[name]() for name in SETS}
    rows = []
    for label, model in MODELS.items():
        cells = []
        for X, y, X_test, y_test in data.values():
            model.fit(X, y)
            crps = model.crps(X_test, y_test).mean() / y_test.std()
            inside = interval_coverage(y_test, model.predict_interval(X_test))
            cells.append(f"{crps:.3f} / {inside:.2f}")
        rows.append([label, *cells])
    print(table(["", *SETS], rows))


if __name__ == "__main__":
    main()
