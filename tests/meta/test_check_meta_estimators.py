"""scikit-learn's checks of the meta-estimators, around a quick network."""

import numpy as np
from sklearn.utils.estimator_checks import parametrize_with_checks

from skbayesnn import (
    Abstainer,
    CalibratedUncertaintyRegressor,
    ConformalClassifier,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn.decision import DecisionMaker, newsvendor

# Without dropout training is deterministic, and integer weights equal repeated rows to
# rounding. No setting is estimated on held-out rows, in further fits.
QUICK = {
    "hidden_layer_sizes": (16,),
    "dropout": 0.0,
    "length_scale": 1.0,
    "max_iter": 15,
    "learning_rate_init": 0.1,
    "n_draws": 3,
    "dtype": "float64",
    "random_state": 0,
}
REGRESSOR = MCDropoutRegressor(**QUICK, tau=10.0)
CLASSIFIER = MCDropoutClassifier(**QUICK)


class Wrong:
    """The cost 1 of each wrong label; its name is the same in every process."""

    def __call__(self, action, y):
        return 1.0 * (action != y)

    def __repr__(self):
        return "Wrong()"


ESTIMATORS = [
    CalibratedUncertaintyRegressor(REGRESSOR, method="isotonic", cv=2),
    ConformalRegressor(REGRESSOR, method="cv+", cv=2),
    ConformalClassifier(CLASSIFIER, random_state=0),
    Abstainer(REGRESSOR, threshold=np.inf),
    Abstainer(CLASSIFIER, threshold=np.inf),
    DecisionMaker(REGRESSOR, newsvendor(2.0, 1.0)),
    DecisionMaker(CLASSIFIER, Wrong()),
]

SPLIT = "a repeated row is another row for the split into training and calibration"
LABEL = "the labels of this check are 1 and -1, which is the label of abstention"
EXPECTED_FAILED_CHECKS = {
    ConformalClassifier: {
        "check_sample_weight_equivalence_on_dense_data": SPLIT,
        "check_sample_weight_equivalence_on_sparse_data": SPLIT,
    },
    Abstainer: {"check_classifiers_classes": LABEL},
}


@parametrize_with_checks(
    ESTIMATORS,
    expected_failed_checks=lambda estimator: EXPECTED_FAILED_CHECKS.get(
        type(estimator), {}
    ),
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
