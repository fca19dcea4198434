"""Suggestions of rows to measure, from draws of f."""

import itertools

import numpy as np
import pytest
import torch
from scipy import sparse, stats
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
    BBBRegressor,
    CalibratedUncertaintyRegressor,
    LaplaceRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._distributions.components import Gaussians
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.mixin import RegressionPredictiveMixin
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn.acquisition import (
    _front,
    _Hypervolume,
    _VarianceReduction,
    suggest,
    to_botorch,
)

SMALL = {"hidden_layer_sizes": (7,), "max_iter": 2, "n_draws": 9, "random_state": 0}
NOISE = 0.3
# Most positions of a mean by n draws are within five standard errors.
ERRORS = 5.0


class Known(RegressionPredictiveMixin, BaseEstimator):
    """A model of given draws: X is the number of the row.

    f : (draws, rows[, targets])
    """

    def __init__(self, f):
        self.f = f

    def _open_predictive(self, X):
        rows = np.asarray(X)[:, 0].astype(int)

        def block(part):
            f = self.f[:, rows[part]]
            mean = f if f.ndim == 3 else f[..., None]
            noise = np.full(mean.shape, NOISE**2)
            return MixturePredictive(Gaussians(mean, noise), f.ndim == 2)

        return PredictiveBlocks(len(rows), block, 4)


def numbered(n):
    """Rows of ``Known``."""
    return np.arange(n)[:, None]


def all_draws(f, *args, **options):
    """Suggestion of a model of given draws; each is picked many times."""
    n_draws = 40 * len(f)
    X = numbered(f.shape[1])
    return suggest(Known(f), X, *args, n_draws=n_draws, **options)


@pytest.fixture
def random(seed):
    return np.random.default_rng(seed)


@pytest.fixture
def table(random):
    """Rows, and a smooth y of three columns."""
    X = random.uniform(-1, 1, size=(30, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * random.normal(size=30)


# ---- exact values


@pytest.mark.parametrize("goal", ["maximise", "minimise"])
def test_expected_improvement_is_the_closed_form(random, goal):
    """Of normal draws: s (z Phi(z) + phi(z)), with z = (mean - best) / s."""
    n = 20_000
    mean, std = np.array([0.3, -0.2, 0.1]), np.array([0.5, 1.0, 0.2])
    f = mean + std * random.normal(size=(n, 3))
    sign = 1 if goal == "maximise" else -1
    best = (sign * mean).max()
    z = (sign * mean - best) / std
    expected = std * (z * stats.norm.cdf(z) + stats.norm.pdf(z))
    found = suggest(Known(f), numbered(3), 1, goal, n_draws=n)
    assert found.index[0] == expected.argmax()
    # The smooth step of 0.05 deviations adds at most pi^2 / 6 * .05^2 * density < .002.
    error = ERRORS * std.max() / np.sqrt(n) + 0.002
    assert found.score[0] == pytest.approx(expected.max(), abs=error)


def test_upper_confidence_bound_is_mean_and_two_deviations(random):
    n = 20_000
    mean, std = np.array([0.0, 0.5, -1.0]), np.array([1.0, 0.5, 1.8])
    f = mean + std * random.normal(size=(n, 3))
    bounds = mean + 2 * std  # 2.0, 1.5 and 2.6: 30 standard errors apart
    found = suggest(Known(f), numbered(3), 1, method="upper_confidence_bound")
    assert found.index[0] == bounds.argmax()


def test_probability_of_a_row_above_the_level(random):
    n = 20_000
    mean, std = np.array([0.3, -0.2, 0.1]), np.array([0.5, 1.0, 0.2])
    f = mean + std * random.normal(size=(n, 3))
    found = suggest(Known(f), numbered(3), 1, ("above", 0.9), n_draws=n)
    expected = stats.norm.sf(0.9, mean, std)  # .115, .136 and .00003
    assert found.index[0] == 1
    assert found.score[0] == pytest.approx(expected[1], abs=ERRORS * 0.35 / np.sqrt(n))


def test_values_near_a_target():
    """Row 1 is at the target in half of the draws; row 0 is .4 from it in all."""
    f = np.array([[0.0, 0.4, 1.0], [0.0, 2.0, 1.0]])
    found = all_draws(f, 1, ("target", 0.4))
    assert found.index[0] == 1
    assert abs(found.score[0] - 0.4 * 0.5) < 0.4 * ERRORS * 0.5 / np.sqrt(80) + 0.02


def test_variance_reduction_is_gaussian_algebra(random):
    """Conditioning of the covariance on noisy measurements, one after another."""
    f, noise = random.normal(size=(8, 5)), random.uniform(0.1, 1, size=5)
    reference = np.array([0, 2, 3])
    gain = _VarianceReduction(f, noise, reference)
    C = np.cov(f.T, ddof=0)
    for j in (4, 1, 4):
        total = np.diag(C) + noise
        reduced = [C - np.outer(C[i], C[i]) / total[i] for i in range(5)]
        trace = [np.diag(C - new)[reference].mean() for new in reduced]
        np.testing.assert_allclose(gain.gains(), trace, rtol=1e-10)
        gain.choose(j)
        C = reduced[j]
        covariance = gain.root.T @ gain.root
        np.testing.assert_allclose(covariance, C, rtol=1e-10, atol=1e-12)


def test_learn_prefers_what_others_depend_on(random):
    """Rows 0 to 3 have one unknown; row 4 has a larger variance, but is alone."""
    shared = random.normal(size=(400, 1)) * np.ones(4)
    f = np.column_stack([shared, 1.2 * random.normal(size=400)])
    found = suggest(Known(f), numbered(5), 2, "learn")
    assert found.index[0] < 4 and found.index[1] == 4


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([[3, 1], [1, 2]], [[0, 3], [2, 0]]),
        ([[2, 2]], [[1, 1]]),
        ([[1, 3], [2, 1], [4, 2]], np.empty((0, 2))),
    ],
)
def test_hypervolume_is_the_area(points, front):
    """Area above the corner that points dominate, by counting unit squares."""
    corner = np.zeros(2)

    def area(points):
        squares = itertools.product(range(5), range(5))
        return sum(any(p[0] > a and p[1] > b for p in points) for a, b in squares)

    gain = _Hypervolume(np.array([points], dtype=float), np.array(front, float), corner)
    known = [*np.array(front).tolist()]
    for j in range(len(points)):
        expected = [area([*known, p]) - area(known) for p in points]
        np.testing.assert_allclose(gain.gains(), expected, atol=1e-12)
        gain.choose(j)
        known.append(points[j])


def test_front():
    points = np.array([[1, 3], [2, 2], [1, 1], [2, 2], [3, 0], [0, 3]])
    assert _front(points).tolist() == [[1, 3], [2, 2], [3, 0]]


def test_two_targets(random):
    """One row is better in both targets, in all draws."""
    f = random.uniform(size=(7, 4, 2))
    f[:, 2] = [2.0, -2.0]
    found = all_draws(f, 1, ["maximise", "minimise"], measured=numbered(2))
    assert found.index.tolist() == [2]


# ---- batches


METHODS = [
    ("maximise", "expected_improvement"),
    ("maximise", "maximiser"),
    ("maximise", "thompson"),
    (("above", 1.0), "probability"),
    ("learn", "variance_reduction"),
]


@pytest.mark.parametrize(("goal", "method"), METHODS)
def test_a_batch_has_no_duplicates(goal, method):
    """Rows 0 and 1 are equal and best; row 2 is better in other draws."""
    one = np.where(np.arange(60) % 2, 2.0, -1.0)
    other = np.where(np.arange(60) % 4 > 1, 1.9, -1.0)
    f = np.column_stack([one, one, other, np.full(60, -2.0)])
    found = all_draws(f, 2, goal, method)
    assert len(set(found.index.tolist()) & {0, 1}) == 1
    assert 2 in found.index


@pytest.mark.parametrize(("goal", "method"), METHODS)
def test_all_rows_in_order(random, goal, method):
    f = random.normal(size=(6, 5))
    found = all_draws(f, 5, goal, method)
    assert sorted(found.index) == [0, 1, 2, 3, 4]
    assert found.rows[:, 0].tolist() == found.index.tolist()
    again = all_draws(f, 5, goal, method)
    assert again.index.tolist() == found.index.tolist()


# ---- costs and feasible rows


def test_costs_divide_the_gain(random):
    f = random.normal(size=(50, 4)) + np.array([0, 0, 0, 0.5])
    plain, cost = all_draws(f), np.array([1.0, 1.0, 1.0, 4.0])
    assert all_draws(f, cost=np.full(4, 4.0)).score == pytest.approx(plain.score / 4)
    assert all_draws(f, cost=lambda X: cost[X[:, 0]]).index[0] != 3


def test_infeasible_rows_are_left(random):
    f = random.normal(size=(50, 4)) + np.array([0, 0, 0, 3.0])
    assert all_draws(f).index[0] == 3
    allowed = np.tile([0.0, 0.0, 1.0, -1.0], (3, 1))
    found = all_draws(f, feasible=(Known(allowed), 0.5))
    assert found.index[0] == 2
    found = all_draws(f, feasible=lambda X: (X[:, 0] == 1) * 1.0)
    assert found.index[0] == 1


def test_the_best_is_a_feasible_measured_row():
    """Row 3 is the best, but is infeasible: row 0 improves over row 1 of the others."""
    f = np.array([[2.0, 1.0, 0.5, 9.0], [2.0, 1.0, 0.5, 9.0]])
    found = all_draws(
        f, measured=numbered(4)[1:], feasible=lambda X: 1.0 * (X[:, 0] < 3)
    )
    assert found.index[0] == 0
    assert found.score[0] == pytest.approx(1.0)


# ---- models and tables


def models():
    network = MCDropoutRegressor(**SMALL)
    return {
        "network": network,
        "pipeline": make_pipeline(StandardScaler(), network),
        "search": GridSearchCV(network, {"dropout": [0.1]}, cv=2),
        "calibrated": CalibratedUncertaintyRegressor(network, cv=2),
        "ensemble": AnchoredEnsembleRegressor(
            hidden_layer_sizes=(7,), max_iter=2, n_estimators=3, random_state=0
        ),
        "stack": BayesianStackingRegressor(
            [("a", network), ("b", BBBRegressor(**SMALL))], cv=2, random_state=0
        ),
    }


@pytest.mark.parametrize("name", models())
@pytest.mark.parametrize("goal", ["maximise", "learn"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_models(table, name, goal):
    X, y = table
    model = models()[name].fit(X, y)
    found = suggest(model, X[10:], 4, goal, measured=X[:10], random_state=None)
    assert len(set(found.index)) == 4 and np.isfinite(found.score).all()
    np.testing.assert_array_equal(found.rows, X[10:][found.index])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_space_of_a_frame(table):
    pandas = pytest.importorskip("pandas")
    X, y = table
    frame = pandas.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "u", "v")})
    model = MCDropoutRegressor(**SMALL).fit(frame, y)
    space = {"b": ["v", "u"], "a": (-2.0, 3.0)}
    found = suggest(model, space, 5, measured=frame, cost=lambda X: 1 + X["a"] ** 2)
    assert (
        found.rows["a"].between(-2, 3).all() and found.rows["b"].isin(["u", "v"]).all()
    )
    assert len(found.rows.drop_duplicates()) == 5


def test_space_is_refined(random):
    """The maximum of a known function is found within a hundredth of the range."""

    class Parabola(Known):
        def _open_predictive(self, X):
            f = -np.square(X - [0.312, 0.777]).sum(1) * np.array([[1.0], [1.1]])
            self.f = f
            return super()._open_predictive(numbered(len(X)))

    found = suggest(Parabola(None), {"a": (0.0, 1.0), "b": (0.0, 1.0)})
    np.testing.assert_allclose(found.rows[0], [0.312, 0.777], atol=0.01)


def test_levels_have_few_combinations():
    class Sum(Known):
        def _open_predictive(self, X):
            self.f = np.stack([X.sum(1), X.sum(1) + 1])
            return super()._open_predictive(numbered(len(X)))

    found = suggest(Sum(None), {"a": [1, 2], "b": [10, 20, 30]}, 6)
    assert found.rows[0].tolist() == [2, 30]
    assert len(np.unique(found.rows, axis=0)) == 6


def test_candidates_outside_of_the_measured_rows_are_counted():
    f = np.array([[0.0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]])
    with pytest.warns(UserWarning, match=r"2 of 6 candidates.*SKB408"):
        all_draws(f, measured=numbered(2) + 1)  # 1 to 2: within 0 to 3 is near


def test_sparse_rows(table):
    X, y = table
    X = sparse.csr_array(X * (np.abs(X) > 0.5))
    model = MCDropoutRegressor(**SMALL).fit(X[:10], y[:10])
    found = suggest(model, X[10:], 2, measured=X[:10])
    np.testing.assert_array_equal(found.rows.toarray(), X[10:].toarray()[found.index])


# ---- bad input


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"n": 6}, ValueError, "at most 5"),
        ({"n": 0}, ValueError, "`n`"),
        ({"goal": "best"}, ValueError, "`goal` must be"),
        ({"goal": ("above",)}, ValueError, "`goal` must be"),
        ({"goal": ["maximise"]}, ValueError, "must have two"),
        ({"goal": ["maximise", "minimise"]}, ValueError, "one goal for each of the 1"),
        ({"method": "probability"}, ValueError, "`method`"),
        ({"cost": np.full(5, np.nan)}, ValueError, "nan and 5 such"),
        ({"cost": np.zeros(5)}, ValueError, "> 0"),
        ({"cost": np.ones(3)}, ValueError, "5 candidates"),
        ({"feasible": lambda X: np.full(5, 2.0)}, ValueError, r"in \[0, 1\]"),
        ({"cost": np.ones(5), "method": "thompson"}, ValueError, "with a gain"),
        ({"candidates": {"a": (1, 1)}}, ValueError, "low < high"),
        ({"candidates": {"a": []}}, ValueError, "list of levels"),
        ({"candidates": {}}, ValueError, "must have a column"),
        ({"candidates": {"a": (0, 1)}, "cost": [1]}, TypeError, "a function"),
    ],
)
def test_bad_input(options, error, match):
    model = Known(np.arange(10.0).reshape(2, 5))
    arguments = {"candidates": numbered(5)} | options
    with pytest.raises(error, match=match):
        suggest(model, **arguments)


def test_classes_are_refused(table):
    X, y = table
    model = MCDropoutClassifier(**SMALL).fit(X, y > 0)
    for function in (lambda m: suggest(m, X), to_botorch):
        with pytest.raises(TypeError, match="needs a regressor"):
            function(model)


# ---- BoTorch


def networks():
    return {
        "laplace": LaplaceRegressor(
            hidden_layer_sizes=(4,), n_estimators=2, n_draws=6, random_state=0
        ),
        "dropout": MCDropoutRegressor(**SMALL),
        "mean field": BBBRegressor(**SMALL, likelihood="heteroscedastic"),
    }


@pytest.mark.parametrize("name", networks())
@pytest.mark.parametrize("n_targets", [1, 2])
def test_botorch_has_the_draws(table, name, n_targets):
    """Its posterior has the moments of the draws, and its gradients are differences."""
    pytest.importorskip("botorch", reason="botorch is not installed")
    X, y = table
    model = networks()[name].fit(
        X, y if n_targets == 1 else np.column_stack([y, -2 * y])
    )
    rows = torch.tensor(X[:6].reshape(2, 3, 3), requires_grad=True)
    posterior = to_botorch(model).posterior(rows)
    mean, std = (
        model.predict(X[:6]),
        model.predict_uncertainty(X[:6], "epistemic"),
    )
    shape = 2, 3, n_targets
    assert posterior.mean.shape == shape
    np.testing.assert_allclose(posterior.mean.detach(), mean.reshape(shape), atol=1e-6)
    n = posterior.values.shape[-3]
    spread = posterior.variance.detach() * (n - 1) / n
    np.testing.assert_allclose(spread, std.reshape(shape) ** 2, atol=1e-6)
    posterior.mean.sum().backward()
    step = np.zeros(3)
    step[1] = 1e-4
    slope = (model.predict(X[:6] + step) - model.predict(X[:6] - step)) / 2e-4
    slope = slope.reshape(6, -1).sum(1).reshape(2, 3)
    if name == "laplace":  # the others have kinks, and float32 predictions
        np.testing.assert_allclose(rows.grad[..., 1], slope, atol=1e-5)
    assert (rows.grad != 0).any()


@pytest.fixture
def botorch():
    """BoTorch draws from global generators, which are restored."""
    module = pytest.importorskip("botorch", reason="botorch is not installed")
    state = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        yield module
    np.random.set_state(state)


def test_botorch_optimises(table, botorch):
    from botorch.acquisition import qLogExpectedImprovement

    X, y = table
    model = LaplaceRegressor(random_state=0).fit(X, y)
    improvement = qLogExpectedImprovement(to_botorch(model), best_f=y.max())
    bounds = torch.tensor([[-1.0] * 3, [1.0] * 3], dtype=torch.float64)
    found, value = botorch.optim.optimize_acqf(
        improvement, bounds, q=2, num_restarts=2, raw_samples=8
    )
    assert found.shape == (2, 3) and torch.isfinite(value)
    with torch.no_grad():
        corners = torch.rand(20, 2, 3, dtype=torch.float64) * 2 - 1
        assert value >= improvement(corners).max() - 0.5


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_botorch_chooses_among_rows_of_any_model(table, botorch):
    from botorch.acquisition import qLogExpectedImprovement

    X, y = table
    model = models()["stack"].fit(X, y)
    improvement = qLogExpectedImprovement(to_botorch(model), best_f=y.mean())
    choices = torch.tensor(X)
    found, _ = botorch.optim.optimize_acqf_discrete(improvement, 2, choices)
    assert found.shape == (2, 3)
    with pytest.raises(TypeError, match="no gradients"):
        to_botorch(model).posterior(choices.requires_grad_())
