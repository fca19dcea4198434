"""Sequential tests of later rows: false alarms at any time, and detection."""

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from scipy.stats import betabinom
from sklearn.model_selection import KFold

from skbayesnn import (
    LaplaceRegressor,
    MCDropoutClassifier,
    dumps,
    loads,
)
from skbayesnn.inspection import DriftMonitor
from skbayesnn.inspection._watches import LEAST_ROWS, SHARES, Watches
from tests.helpers.linear_gaussian import LinearGaussian
from tests.helpers.seed import SEED

STREAMS, STEPS = 2000, 1000
INNER = LinearGaussian(uneven=0.1, deviation=0.3)


def streams(random, n_held_out, change=1.0, start=STEPS):
    """Independent tests of 90 % intervals, each with other rows."""
    old = np.abs(random.normal(size=(STREAMS, n_held_out)))
    new = np.abs(random.normal(size=(STREAMS, STEPS)))
    new[:, start:] *= change
    one = Watches.of({"coverage": old[0]}, {"": np.full(n_held_out, "")})
    rank = n_held_out + 1 - one.urn_above[0]
    threshold = np.sort(old, axis=1)[:, rank - 1]
    assert threshold[0] == one.threshold
    arrays = {f.name: getattr(one, f.name) for f in fields(one) if f.name != "names"}
    repeated = {k: np.repeat(v, STREAMS, axis=0) for k, v in arrays.items()}
    watches = Watches(one.names * STREAMS, **(repeated | {"threshold": threshold}))
    above = (new > threshold[:, None]).T
    return watches, above


@pytest.mark.parametrize("n_held_out", [60, 300])
def test_false_alarms_at_any_time(n_held_out):
    """Ville's inequality: also with the error of the threshold from few rows."""
    watches, above = streams(np.random.default_rng([SEED, 3]), n_held_out)
    after = watches._after_rows(above, np.ones_like(above))
    for rate in (0.05, 0.1, 0.2):
        share = (after.log_largest >= -np.log(rate)).mean()
        # The bound is not reached, since bets end with more than they need.
        assert 0 < share <= rate
    # The mean wealth is one at all times, with a heavy tail: half of it is rare.
    assert np.median(after.log_wealth) < 0


def test_wealth_is_a_martingale_of_the_urn():
    """The wealth times its probability by the urn sums to one over all outcomes."""
    rows = 9
    outcomes = (np.arange(2**rows)[:, None] >> np.arange(rows)) % 2 == 1
    scores = np.arange(60.0)
    watches = Watches.of({"coverage": scores}, {"": np.full(60, "")})
    wealth = np.array(
        [
            np.exp(
                watches._after_rows(o[:, None], np.ones((rows, 1), bool)).log_wealth[0]
            )
            for o in outcomes
        ]
    )
    # 55 = ceil(0.9 * 61) is the rank of the threshold: 6 of 61 in the urn are above.
    n_above = outcomes.sum(1)
    urn = betabinom(rows, 6, 55).pmf(n_above)
    n_equal = np.array([(n_above == k).sum() for k in n_above])
    assert np.sum(wealth * urn / n_equal) == pytest.approx(1, rel=1e-10)
    assert watches.threshold == [54.0]


def test_detection_and_its_delay():
    """Twice the noise after 300 rows: of 100 rows, 32 are outside instead of ten."""
    random = np.random.default_rng([SEED, 4])
    watches, above = streams(random, 300, change=2.0, start=300)
    before = watches._after_rows(above[:300], np.ones_like(above[:300]))
    after = before._after_rows(above[300:400], np.ones_like(above[300:400]))
    assert (before.log_largest >= np.log(100)).mean() <= 0.01
    assert (after.log_largest >= np.log(100)).mean() > 0.95


def rows(random, n, noise=1.0, noise_of_b=1.0):
    site = random.choice(["a", "b"], n)
    X = pd.DataFrame({"x": random.normal(size=n), "code": (site == "b") * 1.0})
    noise = np.where(site == "b", noise_of_b, noise)
    return X, (X["x"] + noise * random.normal(size=n)).to_numpy()


def test_an_alarm_names_the_group():
    random = np.random.default_rng([SEED, 5])
    monitor = DriftMonitor(INNER, cv=KFold(4), groups="code")
    X, y = rows(random, 400)
    monitor.fit(X, y)
    # Two signals of all rows and of both groups.
    assert len(monitor.alarms()) == 6
    assert monitor.update(*rows(random, 100)) == []
    alarms = monitor.update(*rows(random, 400, noise_of_b=5.0))
    assert {alarm.group for alarm in alarms} == {"1", ""}
    first = alarms[0]
    assert (first.column, first.p_value < 1e-3) in [("code", True), ("", True)]
    of_b = [alarm for alarm in alarms if alarm.group == "1"]
    assert {alarm.signal for alarm in of_b} == set(SHARES)
    for alarm in of_b:
        assert alarm.share > alarm.expected and alarm.n_rows < 500
    # An alarm remains after good rows.
    assert {a.group for a in monitor.update(X[:50], y[:50])} >= {"1"}


def test_row_by_row_equals_all_at_once_and_files():
    random = np.random.default_rng([SEED, 6])
    X, y = rows(random, 150)
    later, y_later = rows(random, 23, noise=3.0)
    model = LaplaceRegressor((3,), n_draws=4, random_state=0)
    at_once = DriftMonitor(model, cv=3, groups=["code"], false_alarm_rate=0.1)
    at_once.fit(X, y)
    by_row = loads(dumps(at_once))
    at_once.update(later, y_later)
    for i in range(len(later)):
        by_row = loads(dumps(by_row))
        by_row.update(later[i : i + 1], y_later[i : i + 1])
    for one, other in zip(at_once.alarms(), by_row.alarms(), strict=True):
        assert one[:3] + one[4:] == other[:3] + other[4:]
        # Rows are scored in other blocks, which round differently.
        assert one.p_value == pytest.approx(other.p_value, rel=1e-9)


def test_false_alarms_of_cross_validated_models():
    """The monitor itself: its models of the folds share most training rows."""
    random = np.random.default_rng([SEED, 8])
    n_fits, rate, n_alarms = 150, 0.2, 0
    for _ in range(n_fits):
        monitor = DriftMonitor(INNER, false_alarm_rate=rate)
        monitor.fit(*rows(random, 80))
        n_alarms += bool(monitor.update(*rows(random, 200)))
    # The rate, and four standard errors of a share of the fits.
    assert n_alarms / n_fits <= rate + 4 * np.sqrt(rate * (1 - rate) / n_fits)


def test_classes_and_small_groups(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(120, 3))
    X[:, 2] = np.arange(120) < LEAST_ROWS - 1
    labels = np.where(X[:, 0] + 0.3 * random.normal(size=120) > 0, "yes", "no")
    network = MCDropoutClassifier((8,), max_iter=60, random_state=seed)
    monitor = DriftMonitor(network, cv=2, groups=2).fit(X, labels)
    assert {a.group for a in monitor.alarms()} == {"", "0"}
    wrong = np.where(labels == "yes", "no", "yes")
    assert monitor.update(X, wrong)


def test_wrong_rows():
    random = np.random.default_rng([SEED, 9])
    X, y = rows(random, 80)
    with pytest.raises(ValueError, match="`groups` must be the name of a column"):
        DriftMonitor(INNER, groups="town").fit(X, y)
    network = LaplaceRegressor((3,), n_draws=4, random_state=0)
    monitor = DriftMonitor(network, cv=2, false_alarm_rate=0.1).fit(X, y)
    before = monitor.alarms()
    with pytest.raises(ValueError, match="inconsistent numbers"):
        monitor.update(X, y[:3])
    with pytest.raises(ValueError, match="NaN"):
        monitor.update(X, np.full(len(X), np.nan))
    assert monitor.alarms() == before
