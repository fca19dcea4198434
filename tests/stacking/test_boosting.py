"""Gradient boosting in arrays, against scikit-learn's."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier

import skbayesnn
from skbayesnn import BayesianStackingClassifier, MCDropoutClassifier
from skbayesnn._stacking.boosting import BoostingClassifier
from tests.helpers.stacks import QUICK

ROWS, NEW = 331, 47
CLASSES = {2: np.array(["no", "yes"]), 3: np.array([7, 8, 11])}


@pytest.fixture(params=[2, 3])
def rows(seed, request):
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS + NEW, 4))
    score = X[:, 0] + np.abs(X[:, 1]) + 0.5 * random.normal(size=len(X))
    cuts = np.quantile(score, np.arange(1, request.param) / request.param)
    labels = CLASSES[request.param][np.digitize(score, cuts)]
    return X[:ROWS], labels[:ROWS], X[ROWS:], labels[ROWS:]


def _scikit_learn(X, labels, weights=None, max_iter=30):
    model = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=max_iter, early_stopping=True, random_state=0
    )
    codes = np.unique(labels, return_inverse=True)[1]
    return model.fit(X, codes, weights if weights is None else weights / weights.mean())


def test_probabilities_are_those_of_scikit_learn(rows):
    X, labels, new, _ = rows
    weights = np.random.default_rng(0).uniform(0.5, 2, size=ROWS)
    for given in (None, weights):
        model = BoostingClassifier(max_iter=30).fit(X, labels, given)
        expected = _scikit_learn(X, labels, given)
        # Two sums of the same trees.
        np.testing.assert_allclose(
            model.predict_proba(new), expected.predict_proba(new), rtol=1e-10
        )
    assert model.predict_uncertainty(new, "mutual_information").max() < 1e-12


def test_without_early_stopping_all_rows_train(rows):
    X, labels, new, _ = rows
    settings = {"max_iter": 20, "max_leaf_nodes": 5, "min_samples_leaf": 7}
    model = BoostingClassifier(early_stopping=False, **settings).fit(X, labels)
    expected = HistGradientBoostingClassifier(
        learning_rate=0.05, early_stopping=False, random_state=0, **settings
    ).fit(X, labels)
    np.testing.assert_allclose(
        model.predict_proba(new), expected.predict_proba(new), rtol=1e-10
    )


def test_a_class_with_one_row_does_not_prevent_an_early_end(seed):
    """Early stopping is not possible; 100 trees per class instead of 500."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(40, 2))
    labels = np.repeat(["a", "b", "c"], [20, 19, 1])
    model = BoostingClassifier().fit(X, labels)
    assert len(model.roots_) == 3 * 100


def test_values_at_thresholds_go_to_the_same_leaf(rows):
    X, labels, _, _ = rows
    model = BoostingClassifier(max_iter=20).fit(X, labels)
    points = X.copy()
    for column in range(4):
        values = model.threshold_[model.feature_ == column]
        points[:, column] = np.resize(values, ROWS) if len(values) else 0
    expected = _scikit_learn(X, labels, max_iter=20).predict_proba(points)
    np.testing.assert_allclose(model.predict_proba(points), expected, rtol=1e-10)


def test_training_stops_early(rows):
    X, labels, _, _ = rows
    model = BoostingClassifier(max_iter=500).fit(X, labels)
    assert len(model.roots_) // len(model.baseline_) < 400


def test_rows_without_weight_have_no_effect(rows):
    X, labels, new, _ = rows
    weights = np.random.default_rng(0).integers(0, 3, size=ROWS).astype(float)
    used = weights > 0
    model = BoostingClassifier(max_iter=10).fit(X, labels, weights)
    alone = BoostingClassifier(max_iter=10).fit(X[used], labels[used], weights[used])
    np.testing.assert_array_equal(model.predict_proba(new), alone.predict_proba(new))


def test_candidate_of_a_stack(rows):
    X, labels, new, new_labels = rows
    pool = [
        ("boosting", BoostingClassifier(), {"learning_rate": [0.05, 0.2]}),
        ("network", MCDropoutClassifier(**QUICK)),
    ]
    model = BayesianStackingClassifier(pool, cv=2, random_state=0).fit(X, labels)
    assert model.score(new, new_labels) > 0.6
    again = skbayesnn.loads(skbayesnn.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))


def test_trees_are_default_candidates(seed):
    """From 200 rows on; groups are accepted, without early stopping."""
    random = np.random.default_rng(seed)
    n_rows = 210
    numbers = random.normal(size=(n_rows, 2))
    mixed = numbers.astype(object)
    mixed[:, 1] = np.where(numbers[:, 1] > 0, "a", "b")
    labels = (numbers > 0).sum(1) == 1
    model = BayesianStackingClassifier(max_iter=2, device="cpu", random_state=0)
    groups, all_rows = np.arange(n_rows) // 2, slice(None)
    for X, rows, given in (
        (mixed, all_rows, groups),
        (numbers, all_rows, None),
        (mixed, slice(11, None), None),
    ):
        fitted = clone(model).fit(X[rows], labels[rows], groups=given)
        names = set(fitted.weights_.index.str.split("(").str[0])
        trees = names & {"forest", "boosted_trees"}
        assert len(trees) == (2 if len(labels[rows]) >= 200 else 0)
