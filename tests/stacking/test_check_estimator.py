"""scikit-learn's checks of the stacks, with a small pool for speed."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._stacking import base
from skbayesnn._stacking.pool import CandidateSpec

QUICK = {
    "hidden_layer_sizes": (16,),
    "dropout": 0.0,
    "max_iter": 10,
    "learning_rate_init": 0.1,
    "n_draws": 3,
    # The temperature multiplies the rounding differences of repeated rows.
    "dtype": "float64",
    "random_state": 0,
}
# Without settings that are estimated on held-out rows, in further fits.
GRID = {"length_scale": [1.0, 3.0]}
OPTIONS = {"cv": 2, "n_refits": 1, "random_state": 0}
ESTIMATORS = [
    # With given candidates, and with the default pool.
    BayesianStackingRegressor(
        [("network", MCDropoutRegressor(**QUICK, tau=10.0), GRID)], **OPTIONS
    ),
    BayesianStackingClassifier(**OPTIONS),
]


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    """Replace the default pool by a small one."""

    def pool(X, sample_weight, *, is_classification, **params):
        network_class = MCDropoutClassifier if is_classification else MCDropoutRegressor
        return [CandidateSpec("network", network_class(**QUICK), GRID)]

    monkeypatch.setattr(base, "default_specs", pool)


@parametrize_with_checks(ESTIMATORS)
def test_check_estimator(estimator, check):
    check(estimator)
