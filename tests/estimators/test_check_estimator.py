"""scikit-learn's checks of the estimator contract."""

from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    BBBClassifier,
    BBBRegressor,
    LaplaceClassifier,
    LaplaceRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    NeighbourClassifier,
    NeighbourRegressor,
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
)
from tests.helpers.any_width import AnyImage, AnySequence

# In stochastic training a row of weight 2 has one mask that counts twice, but
# repeated rows have two masks: the fits are equal in distribution, but not exactly.
# scikit-learn declares the same for its stochastic estimators;
# test_weights.py tests the exact equality without dropout, and the distribution.
STOCHASTIC = "equal in distribution only: training is stochastic (see test_weights.py)"
EXPECTED_FAILED_CHECKS = {
    "check_sample_weight_equivalence_on_dense_data": STOCHASTIC,
    "check_sample_weight_equivalence_on_sparse_data": STOCHASTIC,
}
# The contract does not depend on the number of epochs or draws. Checks that need some
# accuracy have 25 epochs, all others two. Every option with separate code occurs in one
# estimator, and test_posteriors.py has the promises of all posteriors. A regressor and
# a classifier select settings on held-out rows, which takes most of the time.
SHORT = {"max_iter": 25, "n_draws": 10}
SHORT_REGRESSOR = SHORT | {"tau": 10.0, "length_scale": 1.0}
SHORT_CLASSIFIER = SHORT | {"length_scale": 1.0}
NEED_ACCURACY = {
    "check_class_weight_classifiers",
    "check_classifiers_train",
    "check_regressors_train",
}
ESTIMATORS = [
    MCDropoutRegressor(**SHORT_REGRESSOR, network=AnyImage()),
    MCDropoutRegressor(
        **SHORT, likelihood="heteroscedastic", dropout="auto", n_estimators=2
    ),
    MCDropoutClassifier(**SHORT),
    BBBRegressor(**SHORT_REGRESSOR, prior="scale_mixture", kl="sampled"),
    BBBClassifier(**SHORT_CLASSIFIER, network=AnySequence()),
    VariationalDropoutRegressor(
        **SHORT_REGRESSOR, noise="independent", alpha_per="weight"
    ),
    VariationalDropoutClassifier(**SHORT_CLASSIFIER),
    AnchoredEnsembleRegressor(max_iter=25, n_estimators=2),
    VariationalGPRegressor(**SHORT_REGRESSOR),
    LaplaceRegressor(n_estimators=1, n_draws=20),
    LaplaceClassifier((4,), n_estimators=1, n_draws=20),
    NeighbourRegressor(n_estimators=1, max_iter=50),
    NeighbourClassifier(n_estimators=1, max_iter=50),
    AnchoredEnsembleClassifier(max_iter=25, n_estimators=2, length_scale=1.0),
]


@parametrize_with_checks(
    ESTIMATORS, expected_failed_checks=lambda estimator: EXPECTED_FAILED_CHECKS
)
def test_scikit_learn_contract(estimator, check):
    if check.func.__name__ not in NEED_ACCURACY:
        estimator = clone(estimator).set_params(max_iter=2)
    check(estimator)
