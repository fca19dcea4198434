"""Small stacks and their candidates."""

from sklearn.pipeline import make_pipeline

from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn.preprocessing import PiecewiseLinearEncoder

ROWS, COLUMNS = 41, 3


QUICK = {
    "hidden_layer_sizes": (7,),
    "max_iter": 5,
    "learning_rate_init": 0.05,
    "dtype": "float64",
    "random_state": 0,
    "n_draws": 20,
}


NETWORK = MCDropoutRegressor(**QUICK)


GRID = {"length_scale": [0.5, "auto"], "dropout": [0.0, 0.2]}


def regressor(**params):
    pool = [
        ("network", MCDropoutRegressor(**QUICK), GRID),
        (
            "encoded",
            make_pipeline(
                PiecewiseLinearEncoder(n_bins=4, keep_columns=True),
                MCDropoutRegressor(**QUICK),
            ),
            {"mcdropoutregressor__tau": [1.0, 4.0]},
        ),
    ]
    defaults = {"cv": 3, "n_refits": 2, "random_state": 1}
    return BayesianStackingRegressor(pool, **defaults | params)


def classifier(**params):
    pool = [("network", MCDropoutClassifier(**QUICK), GRID)]
    defaults = {"cv": 3, "n_refits": 2, "random_state": 1}
    return BayesianStackingClassifier(pool, **defaults | params)
