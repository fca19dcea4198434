"""The benchmark of kinds of y: its scores, cells and tables."""

import importlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

ROOT = Path(__file__).parent.parent
INFINITE = np.inf


@pytest.fixture(scope="module")
def scores():
    """The module of the scores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        yield importlib.import_module("_targets.scores")


@pytest.fixture(scope="module")
def tables(scores):
    """The module of the tables."""
    return importlib.import_module("_targets.tables")


@pytest.fixture(scope="module")
def methods(tables):
    """The module of the methods."""
    return importlib.import_module("_targets.methods")


# CRPS


@pytest.mark.parametrize(
    ("lower", "upper", "window"),
    [
        (0.7, 0.7, (-INFINITE, INFINITE)),
        (0.7, INFINITE, (-INFINITE, INFINITE)),
        (-INFINITE, 0.7, (-INFINITE, INFINITE)),
        (-0.2, 0.7, (-INFINITE, INFINITE)),
        (0.7, 0.7, (0.1, 1.5)),
        (2.1, 2.1, (0.1, 1.5)),
        (-2.1, -2.1, (0.1, 1.5)),
        (0.7, INFINITE, (0.0, 1.5)),
        (2.1, INFINITE, (0.0, 1.5)),
        (-INFINITE, 0.5, (0.5, INFINITE)),
        (0.9, 0.9, (0.5, INFINITE)),
        (-INFINITE, INFINITE, (-INFINITE, INFINITE)),
    ],
)
def test_crps_is_the_integral_outside_of_the_interval(scores, lower, upper, window):
    """Integral of (F(z) - [y <= z])^2 over the window, where [y <= z] is known."""
    points = np.sort(np.random.default_rng(0).normal(0.3, 1, 40))

    def integrand(z):
        if lower < z < upper:
            return 0.0
        return (np.mean(points <= z) - (z >= upper)) ** 2

    edges = [points[0] - 1, points[-1] + 1, *points, lower, upper, *window]
    edges = np.clip(np.nan_to_num(edges, posinf=9, neginf=-9), *window)
    edges = np.unique(np.clip(edges, -9, 9))
    # The integrand is constant between the edges.
    expected = sum(integrand((a + b) / 2) * (b - a) for a, b in pairwise(edges))
    found = scores.crps(points[None], np.array([lower]), np.array([upper]), window)
    assert found == pytest.approx(expected, abs=1e-12)


def test_crps_of_the_levels_is_the_one_of_the_distribution(scores):
    """A gamma distribution by its 100 quantiles, against quadrature."""
    frozen = stats.gamma(2, scale=[1.0, 3.0])
    y = np.array([1.4, 11.0])
    points = scores.of_scipy(frozen).ppf(scores.LEVELS)
    for row, scale in enumerate((1.0, 3.0)):
        cdf = stats.gamma(2, scale=scale).cdf
        below = quad(lambda z, cdf=cdf: cdf(z) ** 2, 0, y[row])[0]
        above = quad(lambda z, cdf=cdf: (1 - cdf(z)) ** 2, y[row], 99)[0]
        found = scores.crps(points, y, y)[row]
        assert found == pytest.approx(below + above, rel=2e-3)
        found = scores.crps(points, y, np.full(2, INFINITE))[row]
        assert found == pytest.approx(below, rel=2e-3)


# Probabilities


def test_log_probability_of_cells_and_values(scores):
    """Integrals of the density, and the density itself."""
    frozen = stats.norm([0.0, 0.0, 0.0, 2.0, 50.0], 1.5)
    low = np.array([-INFINITE, 0.5, 1.0, 0.7, -1.0])
    high = np.array([0.5, 1.0, INFINITE, 0.7, 0.0])
    found = scores.log_probability(scores.of_scipy(frozen), low, high, scale=1.0)
    for row, (a, b) in enumerate(zip(low[:3], high[:3], strict=True)):
        mass = quad(lambda z: stats.norm.pdf(z, 0, 1.5), a, b)[0]
        assert found[row] == pytest.approx(np.log(mass))
    assert found[3] == pytest.approx(stats.norm.logpdf(0.7, 2, 1.5))
    assert found[4] == scores.LEAST


def test_smallest_log_density_has_the_unit_of_y(scores):
    far = np.array([1e4])
    predictive = scores.of_scipy(stats.norm([0.0], 1.0))
    for scale in (1.0, 10.0):
        found = scores.log_probability(predictive, far, far, scale)
        assert found == pytest.approx(np.log(1e-9 / scale))


def test_cell_coverage_of_the_right_distribution_is_the_coverage(scores):
    """Exact sum over the cells of a Poisson and of a censored normal distribution."""
    counts = np.arange(40)
    predictive = scores.of_scipy(stats.poisson(np.full(40, 2.3)))
    covered = scores.cell_coverage(predictive, counts - 0.5, counts + 0.5)
    assert covered @ stats.poisson.pmf(counts, 2.3) == pytest.approx(0.9)

    predictive = scores.of_scipy(stats.norm(np.zeros(1), 1.0))
    limit = 0.4
    censored = scores.cell_coverage(predictive, [-INFINITE], [limit])[0]

    def at(y):
        return scores.cell_coverage(predictive, [y], [y])[0]

    edge = stats.norm.ppf(0.95)
    observed = quad(lambda y: at(y) * stats.norm.pdf(y), limit, 9, points=[edge])[0]
    assert censored * stats.norm.cdf(limit) + observed == pytest.approx(0.9, abs=1e-6)


def test_probability_outside_of_the_bounds(scores):
    predictive = scores.of_scipy(stats.norm([0.2, 0.2], 1.0))
    found = scores.outside(predictive, (0.0, 1.0), scale=1.0)
    expected = stats.norm.cdf(-0.2) + stats.norm.sf(0.8)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    at_zero = scores.with_zeros(scores.of_scipy(stats.expon([0.0])), np.array([0.3]))
    assert scores.outside(at_zero, (0.0, INFINITE), 1.0) == pytest.approx(0)


# Predictives


def test_piecewise_distribution_with_a_point_mass(scores):
    """30 % at zero, the others uniform in (0, 2)."""
    predictive = scores.piecewise([0, 0, 2], [0, 0.3, 1], step=1e-3)
    assert predictive.mean == pytest.approx(0.7)
    for y, expected in ((-0.1, 0), (0.0, 0.3), (1.0, 0.65), (2.0, 1), (3.0, 1)):
        assert predictive.cdf(np.array([y])) == pytest.approx(expected)
    assert predictive.log_density(np.array([1.0])) == pytest.approx(np.log(0.35))
    np.testing.assert_allclose(predictive.ppf([0.1, 0.3, 0.65]), [[0, 0, 1]])


def test_zeros_and_amounts(scores):
    """Mean, quantiles and probabilities by quadrature of the amounts."""
    amount, p_zero = stats.gamma([3.0]), np.array([0.4])
    predictive = scores.with_zeros(scores.of_scipy(amount), p_zero)
    assert predictive.mean == pytest.approx(
        0.6 * quad(lambda y: y * stats.gamma(3).pdf(y), 0, INFINITE)[0]
    )
    for y in (0.5, 2.0):
        below = quad(stats.gamma(3).pdf, 0, y)[0]
        assert predictive.cdf(np.array([y])) == pytest.approx(0.4 + 0.6 * below)
        log_density = predictive.log_density(np.array([y]))
        assert log_density == pytest.approx(np.log(0.6 * stats.gamma(3).pdf(y)))
    assert predictive.cdf(np.array([-1e-9])) == 0
    assert predictive.cdf(np.array([0.0])) == pytest.approx(0.4)
    quantiles = predictive.ppf([0.2, 0.7])[0]
    np.testing.assert_allclose(quantiles, [0, stats.gamma(3).ppf(0.5)], rtol=2e-3)


def test_compound_poisson_has_the_moments_of_tweedie(methods):
    """Mean, variance and probability of zero; Jorgensen 1987."""
    mean, dispersion, power = np.array([0.7, 3.0]), 1.3, 1.5
    grid = np.linspace(0, 120, 60_001)
    cdf = methods.compound_poisson(grid, mean, dispersion, power)
    below_zero, at_zero, on_grid = cdf[:, 0], cdf[:, 1], cdf[:, 2:]
    assert not below_zero.any()
    rate = mean**0.5 / (0.5 * dispersion)
    np.testing.assert_allclose(at_zero, np.exp(-rate))
    first = np.trapezoid(1 - on_grid, grid)
    second = np.trapezoid(2 * grid * (1 - on_grid), grid)
    np.testing.assert_allclose(first, mean, rtol=1e-3)
    np.testing.assert_allclose(second - first**2, dispersion * mean**power, rtol=1e-3)


# Cells and tables


def test_cells_contain_the_observed_values(tables):
    lower = np.array([0.0, 1.0, 1.0, 4.0, 0.0, 5.0])
    train, bounds = np.arange(4), (0.0, 5.0)
    of = {n: cell(lower, lower, train, bounds) for n, cell in tables.CELLS.items()}
    np.testing.assert_array_equal(of["value"], [lower, lower])
    low, high = of["integers"]
    np.testing.assert_array_equal(low, [-INFINITE, 0.5, 0.5, 3.5, -INFINITE, 4.5])
    np.testing.assert_array_equal(high, [0.5, 1.5, 1.5, 4.5, 0.5, INFINITE])
    low, high = of["repeated"]
    np.testing.assert_array_equal(high[:4], [0.5, 2.5, 2.5, INFINITE])
    np.testing.assert_array_equal(low[:4], [-INFINITE, 0.5, 0.5, 2.5])
    low, high = of["bounds"]
    np.testing.assert_array_equal(low[:4], [-INFINITE, 1, 1, 4])
    assert low[5] < 5 and high[5] == INFINITE


def test_bins_of_times_cover_all_times(tables):
    random = np.random.default_rng(0)
    time, event = random.exponential(size=300), random.random(300) < 0.5
    upper = np.where(event, time, INFINITE)
    low, high = tables.CELLS["bins"](time, upper, np.arange(200), (0, INFINITE))
    assert (low[event] < time[event]).all() and (time <= high).all()
    np.testing.assert_array_equal(low[~event], time[~event])
    assert np.isinf(high[~event]).all()
    # The bins of the events join, and the first and the last are unbounded.
    edges = np.unique(np.concatenate([low[event], high[event]]))
    assert len(edges) == tables.N_BINS + 1


@pytest.mark.parametrize("name", ["hurdle", "tobit", "exposure", "made-up shares"])
def test_simple_methods_on_made_up_tables(scores, tables, methods, name):
    """The scores are finite, and nothing is outside of the bounds."""
    table = tables.load(name, 0, n_train=200, n_test=50)
    assert len(table.train) == 200
    assert not set(table.train) & set(table.test)
    found = scores.scores_of(methods.no_columns(table)(), table)
    assert np.isfinite(list(found.values())).all()
    assert found["outside"] == pytest.approx(0, abs=1e-9)
    assert 0.8 < found["cover"] < 0.97


def test_censored_table(scores, tables, monkeypatch):
    """A limit of detection: y is known to the scores of the mean only."""
    X, random = tables._columns(0, 300)
    y = np.exp(X.x0 + 0.1 * random.normal(size=300)).to_numpy()
    monkeypatch.setattr(tables, "_uci", lambda name: (X, y))
    raw = tables._below_limit("any", 0.3)
    limit = np.quantile(y, 0.3)
    is_below = y < limit
    assert np.isinf(raw.lower[is_below]).all() and (raw.upper[is_below] == limit).all()
    np.testing.assert_array_equal(raw.lower[~is_below], y[~is_below])
    assert raw.window == (limit, INFINITE)
    monkeypatch.setitem(tables.TABLES, "below", ("limit", lambda: raw))
    table = tables.load("below", 0, 200, 50)
    half = np.where(is_below, limit / 2, y)
    np.testing.assert_array_equal(table.y_plain, half[table.train])
    right = scores.of_scipy(stats.lognorm(0.1, scale=np.exp(X.x0.iloc[table.test])))
    found = scores.scores_of(right, table)
    assert found["rmse"] < 0.3 and 0.8 < found["cover"] <= 1
