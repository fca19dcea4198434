"""Quantiles and intervals, against definitions, closed forms and scoringrules."""

import numpy as np
import pytest
from scipy.stats import norm

from skbayesnn.metrics import (
    coverage_error,
    interval_coverage,
    interval_score,
    interval_width,
    mixture_crps,
    pinball_loss,
    worst_group_coverage,
)

ROWS, TARGETS, LEVELS = 7, 2, 3


@pytest.fixture
def data(seed):
    """y (7, 2) and three values (7, 2, 3) near each of its entries."""
    random = np.random.default_rng(seed)
    y = random.standard_normal((ROWS, TARGETS))
    return y, y[..., None] + random.standard_normal((ROWS, TARGETS, LEVELS))


@pytest.fixture
def intervals(data):
    """y (7, 2), intervals (7, 2, 3, 2) and their coverages (3,)."""
    y, centre = data
    width = np.abs(centre - y[..., None]) * [0.5, 1.5, 3.0]
    return y, np.stack([centre - width, centre + width], -1), np.array([0.2, 0.5, 0.9])


# ---- pinball loss


def test_pinball_loss_equals_its_definition(data):
    y, quantile = data
    levels = np.array([0.1, 0.35, 0.8])
    below = y[..., None] - quantile
    expected = np.where(below > 0, levels * below, (levels - 1) * below)
    assert pinball_loss(y, quantile, levels) == pytest.approx(expected.mean())
    assert pinball_loss(y, quantile[..., 1], 0.35) == pytest.approx(
        expected[..., 1].mean()
    )
    assert pinball_loss(y[:, 0], quantile[:, 0], levels) == pytest.approx(
        expected[:, 0].mean()
    )


def test_pinball_loss_of_the_median_is_half_the_absolute_error(data):
    y, quantile = data
    error = np.abs(y - quantile[..., 0]).mean()
    assert pinball_loss(y, quantile[..., 0], 0.5) == pytest.approx(error / 2)


def test_pinball_loss_against_scoringrules(data):
    scoringrules = pytest.importorskip("scoringrules")
    y, quantile = data
    levels = np.array([0.1, 0.35, 0.8])
    expected = scoringrules.quantile_score(y[..., None], quantile, levels)
    assert pinball_loss(y, quantile, levels) == pytest.approx(expected.mean())


def test_twice_the_pinball_loss_tends_to_the_crps(data):
    """CRPS = 2 * integral of the pinball loss over the level, by the midpoint rule."""
    y, mean = data[0][:, 0], data[1][:, 0, 0]
    crps = mixture_crps(y, mean[None], np.full((1, ROWS), 0.49))

    def error(n_levels):
        levels = (np.arange(n_levels) + 0.5) / n_levels
        quantile = norm.ppf(levels, mean[:, None], 0.7)
        return abs(2 * pinball_loss(y, quantile, levels) - crps)

    # The integrand has a kink at y, and its slope grows like a log at levels 0 and 1:
    # the error falls about as the square of the step.
    assert error(40) < 1e-2
    assert error(4000) < 1e-5


def test_bad_quantiles(data):
    y, quantile = data
    with pytest.raises(ValueError, match=r"`quantile` must be of shape \(\*y.shape"):
        pinball_loss(y, quantile, 0.5)
    with pytest.raises(ValueError, match=r"`quantile` must be of shape \(\*y.shape"):
        pinball_loss(y[:, 0], quantile[:, 0], [0.1, 0.9])
    for level in (0, 1.0, 90, np.nan):
        with pytest.raises(ValueError, match=r"`levels` must be in \(0, 1\); got"):
            pinball_loss(y, quantile, [0.1, level, 0.9])
    with pytest.raises(ValueError, match="`levels` must be a number in"):
        pinball_loss(y, quantile, [])
    with pytest.raises(ValueError, match="`y` must not contain NaN; got 14"):
        pinball_loss(np.full_like(y, np.nan), quantile, [0.1, 0.2, 0.3])


# ---- interval score


def test_interval_score_of_an_example():
    interval = np.array([[0, 1], [0, 1], [2, 6.0]])
    # Width, and 2 / 0.2 = 10 times the distance outside.
    expected = [1, 1 + 10 * 0.5, 4 + 10 * 2]
    y = [1.0, 1.5, 0.0]
    assert interval_score(y, interval, 0.8) == pytest.approx(np.mean(expected))


def test_interval_score_against_scoringrules(intervals):
    scoringrules = pytest.importorskip("scoringrules")
    y, interval, coverage = intervals
    expected = scoringrules.interval_score(
        y, interval[..., 0], interval[..., 1], 1 - coverage
    )
    assert interval_score(y, interval, coverage) == pytest.approx(expected.mean())
    assert interval_score(y, interval[..., 1, :], 0.5) == pytest.approx(
        expected[..., 1].mean()
    )
    assert interval_score(y[:, 0], interval[:, 0], coverage) == pytest.approx(
        expected[:, 0].mean()
    )


def test_interval_score_is_best_at_the_true_quantiles():
    y = norm.ppf((np.arange(5001) + 0.5) / 5001)
    ends = np.linspace(1, 3, 41)
    interval = [np.tile([-end, end], (len(y), 1)) for end in ends]
    best = np.argmin([interval_score(y, i, 0.95) for i in interval])
    # The optimum is 1.96; the grid has steps of 0.05.
    assert ends[best] == pytest.approx(norm.ppf(0.975), abs=0.05)


def test_infinite_intervals():
    """Infinite bounds, as in conformal intervals of few rows, cover everything."""
    interval = np.array([[-np.inf, np.inf], [0, 1]])
    assert interval_score([3, 0.5], interval, 0.9) == np.inf
    assert coverage_error([3, 0.5], interval, 0.75) == pytest.approx(0.25)


# ---- coverage


def test_coverage_error():
    interval = np.array([[0, 1], [0, 1], [0, 1], [-2, 5], [3, 4.0]])
    y = [0.0, 1.0, 1.1, 3.0, 2.9]  # bounds count as inside: 3 of 5
    assert coverage_error(y, interval, 0.9) == pytest.approx(0.3)
    assert coverage_error(y, interval, 0.5) == pytest.approx(0.1)
    assert type(coverage_error(y, interval, 0.5)) is float


def test_coverage_errors_do_not_cancel(intervals):
    """Neither between levels nor between targets."""
    y, interval, coverage = intervals
    per_target = [
        abs(interval_coverage(y[:, t], interval[:, t, i]) - coverage[i])
        for t in range(TARGETS)
        for i in range(LEVELS)
    ]
    assert coverage_error(y, interval, coverage) == pytest.approx(np.mean(per_target))
    half = np.stack([interval[:, 0, 0] * 0, interval[:, 0, 0] * 0 + [-9, 9]], axis=1)
    away = np.where(np.abs(y) < 1e-9, 1, y)  # no y is in [0, 0]
    assert interval_coverage(away, half) == pytest.approx(0.5)
    assert coverage_error(away, half, 0.5) == pytest.approx(0.5)


def test_interval_coverage_and_width():
    interval = np.array([[0, 1], [0, 1], [0, 1], [-2, 5], [3, 4.0]])
    y = [0.0, 1.0, 1.1, 3.0, 2.9]  # bounds count as inside
    assert interval_coverage(y, interval) == pytest.approx(3 / 5)
    assert interval_width(interval) == pytest.approx((3 * 1 + 7 + 1) / 5)
    assert type(interval_coverage(y, interval)) is float
    assert type(interval_width(interval)) is float


def test_mean_over_targets_and_rows():
    interval = np.zeros((3, 2, 2))
    interval[..., 1] = [[1, 10], [1, 20], [1, 30]]
    y = np.array([[0.5, 40], [2.0, 40], [0.5, 5]])
    assert interval_coverage(y, interval) == pytest.approx(3 / 6)
    assert interval_coverage(y, interval, [1, 0, 1]) == pytest.approx(3 / 4)
    assert interval_width(interval) == pytest.approx((3 + 60) / 6)


@pytest.mark.parametrize("score", [interval_score, coverage_error])
def test_bad_intervals(intervals, score):
    y, interval, coverage = intervals
    message = r"`interval` must have two bounds for each y and each level, shape"
    for wrong in (
        (y, interval, 0.5),
        (y, interval[..., 0, :], coverage),
        (y[:, 0], interval, coverage),
        (y, interval[..., 0], coverage),
    ):
        with pytest.raises(ValueError, match=message):
            score(*wrong)
    for level in (0, 1, 95):
        with pytest.raises(ValueError, match=r"`coverage` must be in \(0, 1\); got"):
            score(y, interval[..., 0, :], level)
    with pytest.raises(ValueError, match="lower bound first; got an interval from"):
        score(y, interval[..., ::-1], coverage)
    with pytest.raises(ValueError, match="`interval` must not contain NaN"):
        score(y, interval * np.nan, coverage)
    with pytest.raises(ValueError, match="`y` must be of shape"):
        score(y[..., None], interval, coverage)


def test_shapes_of_the_coverage():
    with pytest.raises(
        ValueError, match=r"`interval` must have two bounds for each y and each level"
    ):
        interval_coverage(np.zeros(ROWS), np.zeros((2, ROWS)))


@pytest.mark.parametrize("where", ["y", "lower", "upper"])
def test_nan_intervals_are_neither_hit_nor_miss(seed, where):
    random = np.random.default_rng(seed)
    y = random.normal(size=7)
    interval = np.stack([y - 1, y + 1], axis=1)
    assert interval_coverage(y, interval) == 1
    if where == "y":
        y[3] = np.nan
    else:
        interval[3, ["lower", "upper"].index(where)] = np.nan
    with pytest.raises(ValueError, match="must not contain NaN; got 1"):
        interval_coverage(y, interval)
    weights = np.where(np.arange(7) == 3, 0.0, 1.0)
    assert interval_coverage(y, interval, weights) == 1
    if where != "y":
        with pytest.raises(ValueError, match="must not contain NaN; got 1"):
            interval_width(interval)
        assert interval_width(interval, weights) == pytest.approx(2)


def test_invalid_intervals():
    y, interval = [0.5, 1.0], [[1.0, 0.0], [0.0, 2.0]]
    with pytest.raises(
        ValueError, match=r"lower bound first; got .* from 1\.0 to 0\.0"
    ):
        interval_coverage(y, interval)
    with pytest.raises(ValueError, match="lower bound first"):
        interval_width(interval)
    with pytest.raises(ValueError, match=r"of shape .* 2\); got \(2,\)"):
        interval_width(y)
    with pytest.raises(ValueError, match="`y` must hold numbers"):
        interval_coverage(["a", "b"], interval)


def test_worst_group_coverage():
    interval = np.array([[0, 1]] * 5)
    y = [0.0, 1.0, 1.1, 3.0, 0.5]
    groups = np.array(["a", "a", "a", "b", "b"])
    assert worst_group_coverage(y, interval, groups) == pytest.approx(1 / 2)
    # The miss in b has no weight; of a, one third of the weight is outside.
    weights = [1, 1, 1, 0, 1]
    assert worst_group_coverage(y, interval, groups, weights) == pytest.approx(2 / 3)
    weights = [3, 1, 4, 0, 0]
    assert worst_group_coverage(y, interval, groups, weights) == pytest.approx(4 / 8)
    with pytest.raises(ValueError, match=r"group for each row .* \(4,\), \(5,\)"):
        worst_group_coverage(y, interval, groups[:4])
