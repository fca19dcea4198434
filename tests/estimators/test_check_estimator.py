"""scikit-learn's own checks of the estimator contract."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    BBBClassifier,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
)
from tests.helpers.any_width import AnyImage, AnySequence

# 25 epochs are not many, and some of the checks' data are pure noise.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the network explains:sklearn.exceptions.ConvergenceWarning"
)

# With noise in training, a row of weight 2 is one row whose noise counts twice, and a
# repeated row is two rows with noise of their own: equal in distribution, not bit by
# bit. scikit-learn declares the same for its estimators that are trained with noise;
# test_weights.py has the exact statement without noise, and the one in distribution.
NOISE = "equal in distribution only: training is stochastic (see test_weights.py)"
EXPECTED_FAILED_CHECKS = {
    "check_sample_weight_equivalence_on_dense_data": NOISE,
    "check_sample_weight_equivalence_on_sparse_data": NOISE,
}
# The contract does not depend on how long the training is, nor on the draws: 25 epochs
# are enough for the checks that want some accuracy, and much quicker. Every choice
# that has code of its own stands in one of these, and test_posteriors.py has what holds
# for each of them.
SHORT = {"max_iter": 25, "n_draws": 10}
ESTIMATORS = [
    MCDropoutRegressor(**SHORT, network=AnyImage()),
    MCDropoutRegressor(
        **SHORT, likelihood="heteroscedastic", dropout="auto", n_estimators=2
    ),
    MCDropoutClassifier(**SHORT),
    BBBRegressor(**SHORT, prior="scale_mixture", kl="sampled"),
    BBBClassifier(**SHORT, network=AnySequence()),
    VariationalDropoutRegressor(**SHORT, noise="independent", alpha_per="weight"),
    VariationalDropoutClassifier(**SHORT),
    AnchoredEnsembleRegressor(max_iter=25, n_estimators=2),
    VariationalGPRegressor(**SHORT),
    AnchoredEnsembleClassifier(max_iter=25, n_estimators=2),
]


@pytest.fixture(autouse=True)
def global_state_is_untouched(global_state_is_untouched):
    """As everywhere, but NumPy's global generator, which the checks draw from.

    That the estimators leave it alone is in test_promises.py.
    """
    state = np.random.get_state()
    yield
    np.random.set_state(state)


@parametrize_with_checks(
    ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED_FAILED_CHECKS
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
