"""scikit-learn's own checks of the estimator contract."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import (
    check_regressors_train,
    parametrize_with_checks,
)

from skbayesnn import (
    BBBClassifier,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
)

# 50 epochs are not many, and some of the checks' data are pure noise.
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
# A regressor's alpha is taken for a penalty and set to 0.01 by this one check, unless
# there are `alphas`. What else it checks is tested below.
OF_VARIATIONAL_REGRESSORS = {
    "check_regressors_train": "alpha is a word here; the check sets it to a number"
}

# The contract does not depend on how long the training is: 50 epochs are enough for
# the checks that want some accuracy, and ten times quicker than the default.
SHORT = {"max_iter": 50}
ESTIMATORS = [
    MCDropoutRegressor(**SHORT),
    MCDropoutRegressor(**SHORT, likelihood="heteroscedastic", n_estimators=3),
    MCDropoutRegressor(**SHORT, dropout="auto"),
    MCDropoutClassifier(**SHORT),
    MCDropoutClassifier(**SHORT, n_estimators=3),
    BBBRegressor(**SHORT),
    BBBRegressor(**SHORT, prior="scale_mixture", kl="sampled"),
    BBBClassifier(**SHORT),
    VariationalDropoutRegressor(**SHORT),
    VariationalDropoutRegressor(**SHORT, noise="independent", alpha="weight"),
    VariationalDropoutClassifier(**SHORT),
]


@pytest.fixture(autouse=True)
def global_state_is_untouched(global_state_is_untouched):
    """As everywhere, but NumPy's global generator, which the checks draw from.

    That the estimators leave it alone is in test_promises.py.
    """
    state = np.random.get_state()
    yield
    np.random.set_state(state)


def expected_failed_checks(estimator):
    if isinstance(estimator, VariationalDropoutRegressor):
        return EXPECTED_FAILED_CHECKS | OF_VARIATIONAL_REGRESSORS
    return EXPECTED_FAILED_CHECKS


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failed_checks)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


class WithAlphas(VariationalDropoutRegressor):
    """Tells scikit-learn's check to leave alpha as it is."""

    alphas = None


@pytest.mark.parametrize(
    "estimator",
    [e for e in ESTIMATORS if isinstance(e, VariationalDropoutRegressor)],
    ids=["B", "A"],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("read_only", [False, True])
def test_variational_regressors_learn(estimator, dtype, read_only):
    """``check_regressors_train`` in full, with the estimator's own alpha."""
    check_regressors_train(
        "WithAlphas",
        WithAlphas(**estimator.get_params()),
        readonly_memmap=read_only,
        X_dtype=dtype,
    )
