"""Scores of right-censored lifetimes."""

import sys

import numpy as np
import pytest

from skbayesnn import interval_target
from skbayesnn.metrics import concordance_index, survival_brier_score

INF = np.inf


def lifetimes(seed, n=60):
    """Intervals of lifetimes that are censored at random; all times differ."""
    random = np.random.default_rng(seed)
    end, censored = random.exponential(1, n), random.exponential(2, n)
    time = np.minimum(end, censored)
    return interval_target(time, np.where(end <= censored, time, INF)), time


def test_concordance(seed):
    """The share of the pairs that are known to have an order."""
    pytest.importorskip("sksurv")
    y, time = lifetimes(seed)
    prediction = time + np.random.default_rng([seed, 1]).normal(size=len(y))
    # The event of i is observed before j's, whatever the end of j.
    before = (y["upper"][:, None] < INF) & (time[:, None] < time)
    right = prediction[:, None] < prediction
    expected = right[before].mean()
    assert concordance_index(y, prediction) == pytest.approx(expected)
    assert concordance_index(time, time) == 1


def test_brier_score(seed):
    """Without censoring it is a mean square; else an unbiased estimate of it."""
    pytest.importorskip("sksurv")
    _, time = lifetimes(seed)
    times = np.quantile(time, [0.3, 0.5, 0.8])
    survival = np.random.default_rng([seed, 2]).uniform(size=(len(time), 3))
    expected = np.square(survival - (time[:, None] > times)).mean(0)
    actual = survival_brier_score(time, time, survival, times)
    np.testing.assert_allclose(actual, expected)
    # A row censored before has no weight.
    y = interval_target(time, time)
    y["upper"][0], y["lower"][0] = INF, time.min()
    changed = np.random.default_rng([seed, 3]).uniform(size=3)
    before = survival_brier_score(y, y, survival, times)
    survival[0] = changed
    np.testing.assert_allclose(survival_brier_score(y, y, survival, times), before)


@pytest.mark.parametrize("function", [concordance_index, survival_brier_score])
def test_without_scikit_survival(function, monkeypatch):
    monkeypatch.setitem(sys.modules, "sksurv", None)
    monkeypatch.setitem(sys.modules, "sksurv.metrics", None)
    n = 2 if function is concordance_index else 4
    with pytest.raises(ImportError, match="pip install scikit-survival"):
        function(*[None] * n)


def test_other_intervals(monkeypatch):
    pytest.importorskip("sksurv")
    for lower, upper, found in ((-INF, 1.0, "-inf to 1"), (2.0, 3.0, "2 to 3")):
        y = interval_target([1.0, lower], [1.0, upper])
        with pytest.raises(ValueError, match=f"got the interval from {found}"):
            concordance_index(y, [1.0, 2.0])
