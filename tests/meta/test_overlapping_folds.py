"""Folds must not train on their held-out rows."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

from skbayesnn import (
    Abstainer,
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._batch.cross_fit import held_out_folds
from skbayesnn.inspection import DriftMonitor
from skbayesnn.model_selection import cross_val_predict_uncertainty

pytestmark = pytest.mark.filterwarnings("ignore")

ROWS, COLUMNS = 24, 3
QUICK = {"hidden_layer_sizes": (4,), "max_iter": 2, "n_draws": 5, "random_state": 0}
NETWORK = MCDropoutRegressor(**QUICK)
CLASSIFIER = MCDropoutClassifier(**QUICK)


def _fits(cv):
    """Functions of X, y and labels that fit out of fold, by name."""
    regressors = {
        "stack": BayesianStackingRegressor([("one", NETWORK)], cv=cv),
        "calibrated": CalibratedUncertaintyRegressor(NETWORK, cv=cv),
        "conformal": ConformalRegressor(NETWORK, method="cv+", cv=cv),
        "abstainer": Abstainer(NETWORK, target_error=0.9, tolerance=9.0, cv=cv),
        "drift": DriftMonitor(NETWORK, cv=cv),
    }
    classifiers = {
        "stack of classes": BayesianStackingClassifier([("one", CLASSIFIER)], cv=cv),
        "abstainer of classes": Abstainer(CLASSIFIER, target_error=0.9, cv=cv),
    }
    return {
        **{name: lambda X, y, _, m=m: m.fit(X, y) for name, m in regressors.items()},
        **{name: lambda X, _, z, m=m: m.fit(X, z) for name, m in classifiers.items()},
        "cross_val_predict": lambda X, y, _: cross_val_predict_uncertainty(
            NETWORK, X, y, cv=cv
        ),
    }


@pytest.fixture
def table(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, COLUMNS))
    return X, random.normal(size=ROWS), np.array(["a", "b"])[np.arange(ROWS) % 2]


def test_folds_that_overlap_are_refused(table):
    """By all estimators, whether rows are given as integers, lists or masks."""
    first, second = np.arange(ROWS // 2), np.arange(ROWS // 2, ROWS)
    several = np.append(second, first[:3])
    folds = {
        "all": [(np.arange(ROWS), np.arange(ROWS))],
        "some": [(first, second), (several, first)],
        "lists": [
            (first.tolist(), second.tolist()),
            (several.tolist(), first.tolist()),
        ],
        "masks": [(np.ones(ROWS, bool), np.arange(ROWS) < 5)],
    }
    accepted = []
    for kind, cv in folds.items():
        for name, fit in _fits(cv).items():
            try:
                fit(*table)
            except ValueError as error:
                if "the training and the test rows of fold" in str(error):
                    continue
            accepted.append((kind, name))
    assert not accepted


def test_folds_without_common_rows_are_accepted(table):
    """Also if they train on a row twice, and if a splitter makes them."""
    first = np.arange(ROWS // 2)
    second = first + ROWS // 2
    twice = [(np.repeat(second, 2), first), (first, second)]
    for cv in (twice, KFold(3)):
        for fit in _fits(cv).values():
            fit(*table)


def test_message_names_the_fold_and_its_common_rows():
    cv = [([0, 1, 2], [3, 4]), ([3, 4, 0], [1, 0, 3])]
    with pytest.raises(ValueError, match=r"got 2 rows in both .* of fold 1"):
        held_out_folds(cv, np.zeros((5, 1)), np.zeros(5), is_classification=False)


def test_masks_and_lists_become_row_indices():
    mask = np.array([True, False, True, False, False])
    expected = [0, 2], [1, 3, 4]
    for cv in ([(mask, ~mask)], [(mask.tolist(), (~mask).tolist())], [expected]):
        [actual] = held_out_folds(
            cv, np.zeros((5, 1)), np.zeros(5), is_classification=False
        )
        assert [part.tolist() for part in actual] == list(expected)
