"""scikit-learn's own checks of the stacks, with a small pool for their time."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._stacking import pool as default
from skbayesnn._stacking.pool import Entry

# The few epochs are not always enough, and some of the checks' data are pure noise.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the network explains:sklearn.exceptions.ConvergenceWarning"
)

QUICK = {
    "hidden_layer_sizes": (16,),
    "dropout": 0.0,
    "max_iter": 15,
    "learning_rate_init": 0.1,
    "n_draws": 3,
    "random_state": 0,
}
GRID = {"length_scale": [1.0, "auto"]}
HOW = {"cv": 2, "n_refits": 1, "random_state": 0}
ESTIMATORS = [
    BayesianStackingRegressor([("network", MCDropoutRegressor(**QUICK), GRID)], **HOW),
    BayesianStackingClassifier(
        [("network", MCDropoutClassifier(**QUICK), GRID)], **HOW
    ),
    BayesianStackingRegressor(**HOW),
    BayesianStackingClassifier(**HOW),
]
FOLDS = "a repeated row is another row for the folds"
DENSE, SPARSE = (
    f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")
)
EXPECTED_FAILED_CHECKS = {
    BayesianStackingRegressor: {DENSE: FOLDS, SPARSE: FOLDS},
    BayesianStackingClassifier: {DENSE: FOLDS, SPARSE: FOLDS},
}


@pytest.fixture(autouse=True)
def global_state_is_untouched(global_state_is_untouched):
    """As everywhere, but NumPy's global generator, which the checks draw from."""
    state = np.random.get_state()
    yield
    np.random.set_state(state)


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    """In place of the default pool."""

    def pool(X, sample_weight, *, of_classes, **params):
        kind = MCDropoutClassifier if of_classes else MCDropoutRegressor
        return [Entry("network", kind(**QUICK), GRID)]

    monkeypatch.setattr(default, "default_pool", pool)


@parametrize_with_checks(
    ESTIMATORS,
    expected_failed_checks=lambda estimator: EXPECTED_FAILED_CHECKS[type(estimator)],
)
def test_check_estimator(estimator, check):
    check(estimator)
