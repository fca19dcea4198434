"""A monitor of drift: false alarms, alarms, and scikit-learn's conventions."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    MCDropoutClassifier,
)
from skbayesnn.inspection import DriftMonitor

ROWS, COLUMNS = 300, 4


@pytest.fixture
def table(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(2 * ROWS, COLUMNS))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.2 * random.normal(size=2 * ROWS)
    return X, y


def _model(seed):
    return AnchoredEnsembleRegressor(
        max_iter=40, device="cpu", dtype="float64", random_state=seed
    )


def test_false_alarms_and_alarms(table, seed):
    X, y = table
    monitor = DriftMonitor(_model(seed), false_alarm_rate=0.1).fit(X[:ROWS], y[:ROWS])
    assert (monitor.uncertainty_ > -monitor.offset_).mean() == pytest.approx(
        0.1, abs=1 / ROWS
    )
    # The threshold is of 300 rows and the share of 300 others, each known to 0.017.
    alarms = (monitor.predict(X[ROWS:]) == -1).mean()
    assert 0.01 < alarms < 0.1 + 6 * np.hypot(0.017, 0.017)
    assert monitor.p_value(X[ROWS:]) > 1e-5
    moved = X[ROWS:] + np.array([0.0, 6.0, 0.0, 0.0])
    assert (monitor.predict(moved) == -1).mean() > 0.6
    assert monitor.p_value(moved) < 1e-20


def test_conventions(table, seed):
    X, y = table
    monitor = DriftMonitor(_model(seed), cv=KFold(3)).fit(X[:ROWS], y[:ROWS])
    score = monitor.score_samples(X)
    np.testing.assert_array_equal(
        score,
        -np.mean(
            [m.predict_uncertainty(X, "epistemic") for m in monitor.estimators_], axis=0
        ),
    )
    np.testing.assert_array_equal(monitor.decision_function(X), score - monitor.offset_)
    np.testing.assert_array_equal(
        monitor.predict(X), np.where(score < monitor.offset_, -1, 1)
    )
    expected = mannwhitneyu(-score, monitor.uncertainty_, alternative="greater")
    assert monitor.p_value(X) == expected.pvalue
    # Folds in order: each row's uncertainty is that of the model that left it out.
    third = ROWS // 3
    left_out = _model(seed).fit(X[third:ROWS], y[third:ROWS])
    np.testing.assert_allclose(
        monitor.uncertainty_[:third],
        left_out.predict_uncertainty(X[:third], "epistemic"),
    )
    np.testing.assert_array_equal(
        clone(monitor).fit_predict(X[:ROWS], y[:ROWS]), monitor.predict(X[:ROWS])
    )
    with pytest.raises(NotFittedError):
        clone(monitor).predict(X)


def test_default_estimator_is_of_the_labels_kind(table, seed):
    X, y = table
    labels = np.where(y[:60] > 0, "up", "down")
    monitor = DriftMonitor(cv=2, random_state=seed).fit(X[:60], labels)
    assert isinstance(monitor.estimators_[0], AnchoredEnsembleClassifier)
    kinds = [
        one.predict_uncertainty(X, "mutual_information") for one in monitor.estimators_
    ]
    np.testing.assert_array_equal(monitor.score_samples(X), -np.mean(kinds, axis=0))
    monitor.fit(X[:60], y[:60])
    assert isinstance(monitor.estimators_[1], AnchoredEnsembleRegressor)


def test_pipelines(table, seed):
    X, y = table
    network = MCDropoutClassifier(max_iter=20, device="cpu", random_state=seed)
    model = make_pipeline(StandardScaler(), network)
    monitor = DriftMonitor(model, cv=2, kind="entropy").fit(X[:60], y[:60] > 0)
    assert set(monitor.predict(X)) <= {-1, 1}


@pytest.mark.parametrize("rate", [0.0, 1.5, "often"])
def test_a_rate_that_is_none(table, rate):
    with pytest.raises((TypeError, ValueError), match="false_alarm_rate"):
        DriftMonitor(false_alarm_rate=rate).fit(*table)


def test_several_targets(table, seed):
    X, y = table
    monitor = DriftMonitor(_model(seed), cv=2)
    with pytest.raises(ValueError, match="of one target"):
        monitor.fit(X[:40], np.stack([y, -y], 1)[:40])
    assert not hasattr(monitor, "estimators_")


def test_an_estimator_that_is_always_sure(table):
    one = AnchoredEnsembleRegressor(n_estimators=1, max_iter=5, device="cpu")
    with pytest.raises(ValueError, match="differ from row to row; got 0 for all"):
        DriftMonitor(one, cv=2).fit(table[0][:40], table[1][:40])
