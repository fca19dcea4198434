"""Stacks look at y: what they find, the candidates that follow, and what they predict.

Tables are small and networks are trained for a few epochs: the tests check bounds,
names and equalities, and no errors of predictions.
"""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.model_selection import KFold, cross_val_score

import skbayesnn
from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor, interval_target
from skbayesnn._data.target import latent_values
from skbayesnn._distributions.components import Gaussians
from skbayesnn._predictive.mixture import MixturePredictive, in_space
from skbayesnn._stacking import candidates
from skbayesnn._stacking.candidates import StackData
from skbayesnn._stacking.pool import default_specs
from skbayesnn._stacking.target import Target
from tests.helpers.stacks import QUICK

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
INF = np.inf
N, N_FIT = 400, 80


def latent(seed, n):
    """X (n, 3), and a value of every row with noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3))
    return X, X[:, 0] + 0.5 * random.normal(size=n)


def counts(z):
    return np.random.default_rng(0).poisson(np.exp(z)).astype(float)


# y of a latent value, and what is found: scale, low, high, floor, cap.
PLAIN = ("identity", -INF, INF, False, False)
KINDS = {
    "plain": (lambda z: z, PLAIN),
    "skewed": (lambda z: np.exp(1.5 * z), ("log", -INF, INF, False, False)),
    "shares": (lambda z: 1 / (1 + np.exp(-3 * z)), ("logit", -INF, INF, False, False)),
    "shares near 1": (lambda z: 1 - 0.05 / (1 + np.exp(-z)), PLAIN),
    "shares with ends": (
        lambda z: np.where(abs(z) < 1, 0.5 + z / 5, z > 0),
        ("identity", 0, 1, True, True),
    ),
    "floor": (lambda z: z.clip(-0.5), ("identity", -0.5, INF, True, False)),
    "cap": (lambda z: z.clip(None, 0.5), ("identity", -INF, 0.5, False, True)),
    "both": (lambda z: 3 + z.clip(-0.5, 0.5), ("identity", 2.5, 3.5, True, True)),
    "zeros and amounts": (
        lambda z: np.where(z > 0, np.exp(1.5 * z), 0),
        ("log", 0, INF, True, False),
    ),
    "counts": (counts, ("count", 0, INF, None, False)),
    "few distinct values": (lambda z: z.round(), PLAIN),
    "whole amounts": (
        lambda z: 10 + np.exp(8 + 1.5 * z).round(),
        ("log", -INF, INF, False, False),
    ),
    "grades": (lambda z: (3 + z).round().clip(1, 5), PLAIN),
    "years": (lambda z: (2000 + 5 * z).round(), PLAIN),
    "negative counts": (lambda z: -counts(z), PLAIN),
    "two values": (lambda z: (z > 0).astype(float), PLAIN),
    "constant": (lambda z: np.full(len(z), 3.0), PLAIN),
    "seven rows": (lambda z: z[:7], PLAIN),
    "two targets": (lambda z: np.stack([z.clip(0), np.exp(z)], axis=1), PLAIN),
}
parametrize_kinds = pytest.mark.parametrize("kind", KINDS)


def test_single_shares_of_0_and_1_are_beyond_all_others(seed):
    """On the logit scale they are infinite; candidates without bounds need numbers."""
    y = 1 / (1 + np.exp(-3 * latent(seed, N)[1]))
    y[:3] = 0, 1, 1
    weights = np.ones(N)
    target = Target.of(y, weights, None)
    z = latent_values(y, target.space("logit"), weights)
    assert target.scale == "logit" and np.isfinite(z).all()
    assert z[0] < z[3:].min() and z[1] == z[2] > z[3:].max()


def test_only_candidates_without_scales_are_fitted_in_a_space(seed):
    """Networks have the parameter target_scale; both together would apply it twice."""
    X, z = latent(seed, N)
    target = Target.of(np.exp(1.5 * z), np.ones(N), None)
    options = {"is_classification": False, "max_iter": 1, "target": target}
    specs = default_specs(X, np.ones(N), **options)
    scales = {spec.name: spec.space and spec.space.scale for spec in specs}
    networks = dict.fromkeys(["encoded", "network"])
    others = dict.fromkeys(["linear", "forest", "laplace"], "log")
    assert scales == networks | others


@pytest.mark.parametrize("n_zero", [0, 50])
@parametrize_kinds
def test_what_y_is(kind, n_zero, seed):
    """Rows of weight zero may contain anything."""
    y_of, (scale, low, high, floor, cap) = KINDS[kind]
    y = y_of(latent(seed, N)[1])
    weights = np.ones(len(y))
    y = np.concatenate([y, np.full((n_zero, *y.shape[1:]), -1e9)])
    found = Target.of(y, np.concatenate([weights, np.zeros(n_zero)]), None)
    assert (found.scale, found.low, found.high) == (scale, low, high)
    assert floor is None or found.has_floor == floor
    assert found.has_cap == cap
    assert (str(found) == "plain numbers") == (
        found.scale == "identity" == scale and found.bounds is None
    )


def test_bounds_that_are_given(seed):
    z = latent(seed, N)[1]
    found = Target.of(z, np.ones(N), (-50, 50))
    assert (found.low, found.high, found.has_floor, found.has_cap) == (
        -50,
        50,
        False,
        False,
    )
    assert found.bounds == (-50, 50)
    with pytest.raises(ValueError, match="`y_bounds` must be"):
        Target.of(z, np.ones(N), (1, 0))


@pytest.mark.parametrize("sign", [1, -1])
def test_few_rows_beyond_a_frequent_value(sign, seed):
    """Two wrong rows hide a limit; many rows on both sides are right."""
    y = sign * latent(seed, N)[1].clip(0)
    side, limit, bounds = (
        ("below", "floor", r"\(0, None\)")
        if sign == 1
        else ("above", "cap", r"\(None, 0\)")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        limited = Target.of(y, np.ones(N), None)
        Target.of(np.r_[y, -y[y != 0]], np.ones(N + np.count_nonzero(y)), None)
    assert (limited.has_floor, limited.has_cap) == (sign == 1, sign == -1)
    y[:2] = -sign * np.array([1.0, 7.0])
    text = f"2 of {N} rows of y are {side} 0.*as a {limit}.*`y_bounds={bounds}`.*SKB212"
    with pytest.warns(UserWarning, match=text):
        found = Target.of(y, np.ones(N), None)
    assert not (found.has_floor or found.has_cap)


def test_equal_bounds_of_intervals_are_plain():
    """Without a warning about the skewness of equal values."""
    y = interval_target(np.full(N, 3.7), np.where(np.arange(N) % 2, 3.7, INF))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Target.of(y, np.ones(N), None).scale == "identity"


# ---- fitted stacks


def fitted(y, X, sample_weight=None, estimators="fast", **params):
    defaults = {"max_iter": 3, "random_state": 0, "cv": 3, "n_refits": 1}
    model = BayesianStackingRegressor(estimators, **defaults | params)
    return model.fit(X, y, sample_weight=sample_weight)


def predicted(model, X):
    """Predictions in y's units, by name."""
    distribution = model.predict_distribution(X)
    return {
        "mean": model.predict(X),
        "quantile": model.predict_quantile(X, [0.001, 0.5, 0.999]),
        "interval": model.predict_interval(X, 0.99),
        "cv+": model.predict_interval(X[:5], 0.8, method="cv+"),
        "sample": distribution.rvs(5, 0),
    }


ON_SCALE = {
    "plain": [],
    "skewed": ["target_scale=log"],
    "shares": ["target_scale=logit"],
    "shares with ends": ["point_mass=0.0"],
    "floor": ["point_mass=-0.5"],
    "cap": ["point_mass=0.5"],
    "zeros and amounts": ["target_scale=log", "point_mass=0.0"],
    "counts": ["target_scale=count"],
    "grades": [],
}


@pytest.mark.parametrize("kind", ON_SCALE)
def test_candidates_and_bounds(kind, seed, tmp_path):
    """Candidates by name; no prediction is outside of the bounds; saved models."""
    X, z = latent(seed, N_FIT)
    y = KINDS[kind][0](z)
    model = fitted(y, X)
    found = Target.of(y, np.ones(N_FIT), None)
    assert model.target_ == str(found)
    others = [
        name
        for name in model.weights_.index
        if "target_scale=" in name or "point_mass=" in name
    ]
    # Names show the settings that are needed to tell candidates apart.
    expected = [f"{name}={value}" for name, value in found.on_scale.items()]
    assert bool(others) == bool(expected)
    for name in others:
        if name.startswith(("network", "encoded")):
            assert any(setting in name for setting in expected)
    low, high = model.predict_distribution(X).support()
    for values in predicted(model, 3 * X).values():
        assert np.isfinite(values).all()
        assert (values >= low).all()
        assert (values <= high).all()
    one, batch = (model.predict(rows, return_std=True) for rows in (X[:1], X))
    np.testing.assert_allclose(
        [v[0] for v in one], [v[0] for v in batch], rtol=1e-5, atol=1e-7
    )
    few = X[:4]
    expected = model.predict_quantile(few, [0.1, 0.9])
    skbayesnn.save(model, tmp_path / "model")
    for other in (
        skbayesnn.load(tmp_path / "model"),
        pickle.loads(pickle.dumps(model)),
    ):
        np.testing.assert_array_equal(other.predict_quantile(few, [0.1, 0.9]), expected)
    assert clone(model).get_params()["estimators"] == "fast"


def small(**params):
    """A stack of two networks and a linear model, in milliseconds."""
    network = MCDropoutRegressor(**QUICK, **params)
    pool = [("network", network, {"dropout": [0.0, 0.2]}), ("linear", "fast")]
    return BayesianStackingRegressor(pool, cv=3, n_refits=1, random_state=0)


def censored(z):
    """Half of the values are below a limit or above another one."""
    lower, upper = z.copy(), z.copy()
    lower[z < -0.4], upper[z < -0.4] = -INF, -0.4
    lower[z > 0.4], upper[z > 0.4] = 0.4, INF
    return interval_target(lower, upper)


def lifetimes(z):
    """Times of events; a third of the rows is censored, at all times."""
    random = np.random.default_rng(0)
    life, end = np.exp(z), np.exp(0.4 + random.normal(size=len(z)))
    return interval_target(np.minimum(life, end), np.where(life <= end, life, INF))


def test_quantile_scale_of_lifetimes(seed):
    """Kaplan-Meier by hand; rows of weight zero have no effect."""
    y = lifetimes(latent(seed, N)[1])
    time, is_event = y["lower"], np.isfinite(y["upper"])
    others = interval_target(np.full(9, -1.0), np.full(9, 1.0))
    weights = np.concatenate([np.ones(N), np.zeros(9)])
    target = Target.of(np.concatenate([y, others]), weights, None)
    assert target == Target.of(y, np.ones(N), None)
    assert (target.low, target.high) == (0, INF)
    space = target.quantiles
    scaled, z = np.array(space.knots)
    at = np.exp(scaled[1:-1])
    times = np.unique(time[is_event])
    at_risk = (time >= times[:, None]).sum(1)
    survival = np.cumprod(1 - 1 / at_risk)  # no event occurs twice
    position = np.searchsorted(times, at * (1 - 1e-9))
    np.testing.assert_allclose(times[position], at)
    before = np.concatenate([[1.0], survival])[position]
    expected = stats.norm.isf((before + survival[position]) / 2)
    np.testing.assert_allclose(z[1:-1], expected)
    # Knots divide the events about evenly: with 16 of them, at most an eighth each.
    assert np.diff(stats.norm.cdf(z[1:-1])).max() < 1 / 8


@pytest.mark.parametrize(
    ("lower", "upper", "has_scale"),
    [
        ([1, 2, 3, 4] * 9, [1, 2, 3, INF] * 9, True),
        ([1, 2, 3, 4] * 9, [1, 2, 3, 4] * 9, False),
        ([-1, 2, 3, 4] * 9, [-1, 2, 3, INF] * 9, False),
        ([0, 2, 3, 4] * 9, [0, 2, 3, INF] * 9, True),
        ([2] * 36, [2, INF] * 18, True),
        ([1, 2, 3, 4], [INF] * 4, True),
        ([0, 0, 1, 2] * 9, [1, 2, INF, INF] * 9, True),
    ],
)
def test_what_lifetimes_are(lower, upper, has_scale):
    """Some have no end. Ties, no event and zeros have a scale, with knots or without.

    Times return from z.
    """
    y = interval_target(lower, upper)
    for bounds in (None, (0, 9)):
        space = Target.of(y, np.ones(len(y)), bounds).quantiles
        assert (space is not None) == has_scale
        if space is not None:
            assert space.is_valid
            times = np.array([1.5, 2.0, 2.5, 8.0])
            np.testing.assert_allclose(
                space.from_latent(space.to_latent(times)), times, rtol=1e-9
            )


def test_a_stack_of_lifetimes(seed, tmp_path):
    """Bounds, names, other units and saved models."""
    X, z = latent(seed, N_FIT)
    y = lifetimes(z)
    model = fitted(y, X)
    assert model.target_.startswith("intervals, fitted on the scale of normal quantile")
    assert all("target_scale=quantiles" in name for name in model.weights_.index)
    quantiles = model.predict_quantile(3 * X, [0.001, 0.5, 0.999])
    assert (quantiles > 0).all()
    assert np.isfinite(model.predict(X)).all()
    skbayesnn.save(model, tmp_path / "model")
    other = skbayesnn.load(tmp_path / "model")
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    # The logarithm rounds; three epochs of float32 do not amplify it to a percent.
    minutes = interval_target(1000 * y["lower"], 1000 * y["upper"])
    np.testing.assert_allclose(
        fitted(minutes, X).predict_quantile(3 * X, 0.5) / 1000,
        quantiles[:, 1],
        rtol=0.01,
    )


def test_candidates_are_better_than_no_columns(seed):
    """Columns without information: networks that follow the noise get no weight."""
    X, z = latent(seed, N_FIT)
    y = lifetimes(np.roll(z, 7))
    pool = [
        ("network", MCDropoutRegressor(length_scale=0.5, dropout=0.0, max_iter=100)),
        ("linear", "fast"),
    ]
    model = BayesianStackingRegressor(pool, cv=3, n_refits=1, random_state=0).fit(X, y)
    space = Target.of(y, np.ones(N_FIT), None).quantiles
    shape = (1, N_FIT, 1)
    marginal = MixturePredictive(Gaussians(np.zeros(shape), np.ones(shape)), True)
    alone = in_space(marginal, space).log_density(y).mean()
    density, weight = model.weights_["log_density"], model.weights_["weight"]
    assert density["network"] < alone
    assert weight["network"] == 0
    is_better = density > alone
    if is_better.any():
        assert (is_better | (weight == 0)).all()


def test_intervals(seed, tmp_path):
    """Fit, scores, row weights, groups, a search by score, and saved models."""
    X, z = latent(seed, N_FIT)
    y = censored(z)
    model = BayesianStackingRegressor("fast", cv=3, max_iter=3, random_state=0)
    model.fit(
        X, y, sample_weight=1 + np.arange(N_FIT) % 2, groups=np.arange(N_FIT) // 4
    )
    assert model.target_ == "intervals"
    assert not any(name.startswith("forest") for name in model.weights_.index)
    density = model.log_predictive_density(X, y)
    assert np.isfinite(density).all()
    assert model.score(X, y) == pytest.approx(density.mean())
    scores = cross_val_score(small(), X, y, cv=KFold(3))
    assert np.isfinite(scores).all()
    with pytest.raises(ValueError, match=r"cv\+"):
        model.predict_interval(X, method="cv+")
    skbayesnn.save(model, tmp_path / "model")
    other = skbayesnn.load(tmp_path / "model")
    np.testing.assert_array_equal(other.predict(X), model.predict(X))


def test_intervals_tell_more_than_limits(seed):
    """Half of y is censored: better than with limits in place of values.

    Compared with the fit to the values themselves. 400 rows: the errors of seeds differ
    by a few percent, and limits in place of values triple the error.
    """
    X, z = latent(seed, 2 * N)
    y = censored(z)[:N]
    limits = np.where(np.isfinite(y["lower"]), y["lower"], y["upper"])
    errors = [
        np.mean(
            np.square(
                BayesianStackingRegressor([("linear", "fast")], random_state=0)
                .fit(X[:N], of_y)
                .predict(X[N:])
                - z[N:]
            )
        )
        for of_y in (z[:N], y, limits)
    ]
    assert errors[1] < 1.2 * errors[0]
    assert 2 * errors[1] < errors[2]


def test_rows_of_weight_zero_have_no_effect(seed):
    X, z = latent(seed, N_FIT)
    y = z.clip(0)
    weights = (np.arange(N_FIT) % 4 > 0).astype(float)
    changed = np.where(weights > 0, y, -1e3)
    first, second = (fitted(of_y, X, sample_weight=weights) for of_y in (y, changed))
    assert first.target_ == second.target_ == "many rows at 0, bounds 0 to inf"
    np.testing.assert_allclose(first.predict(X), second.predict(X), rtol=1e-5)


@pytest.mark.parametrize(
    "other",
    [LinearRegression(), QuantileRegressor(solver="highs", alpha=0)],
    ids=["mean", "quantile"],
)
def test_models_of_other_libraries_keep_to_the_bounds(other, seed):
    """They do not know the bounds; a linear model predicts beyond them."""
    X, z = latent(seed, N_FIT)
    y = z.clip(-0.5, 0.5)
    pool = [("other", other), ("network", MCDropoutRegressor(**QUICK))]
    model = fitted(y, X, estimators=pool)
    assert model.target_ == "many rows at -0.5 and 0.5, bounds -0.5 to 0.5"
    for values in predicted(model, 5 * X).values():
        assert (abs(values) <= 0.5).all()


def test_given_bounds_hold_for_all_candidates(seed):
    X, z = latent(seed, N_FIT)
    model = fitted(z, X, estimators="fast", y_bounds=(-20, None))
    values = model.predict_quantile(20 * X, [0.001, 0.999])
    assert (values >= -20).all()
    assert (values == -20).any()
    with pytest.raises(ValueError, match="`y` must be within its bounds"):
        fitted(z, X, y_bounds=(0, None))


def test_given_bounds_of_intervals_and_of_several_targets(seed):
    X, z = latent(seed, N_FIT)
    for y in (censored(z), np.stack([z, -z], axis=1)):
        weights = (np.arange(N_FIT) % 7 > 0).astype(float)
        model = fitted(y, X, sample_weight=weights, y_bounds=(-9, 9))
        values = model.predict_quantile(20 * X, [0.001, 0.999])
        assert (abs(values) <= 9).all()


def test_frames_with_categories(seed):
    X, z = latent(seed, N_FIT)
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["level"] = np.array(["low", "middle", "high"])[np.arange(N_FIT) % 3]
    y = pd.Series(np.where(z > 0, np.exp(z), 0), index=frame.index + 5)
    model = fitted(y.to_numpy(), frame)
    assert model.target_.startswith("many rows at 0")
    assert (model.predict_interval(frame, 0.999) >= 0).all()
    y = pd.arrays.IntervalArray.from_arrays(z, z + 1)
    assert fitted(y, frame).target_.startswith("intervals")


def test_rows_in_another_order(seed):
    """What y is does not depend on the order of the rows."""
    z = latent(seed, N)[1]
    order = np.random.default_rng(seed).permutation(N)
    for y_of, _ in KINDS.values():
        y = y_of(z)
        y = np.resize(y, (N, *y.shape[1:]))
        weights = np.ones(N)
        assert Target.of(y, weights, None) == Target.of(y[order], weights, None)


@pytest.mark.parametrize("y_of", [censored, lifetimes])
def test_values_of_intervals_are_imputed_from_the_training_rows(
    y_of, seed, monkeypatch
):
    """They are in their intervals; y of other rows has no effect."""
    monkeypatch.setattr(
        candidates,
        "MCDropoutRegressor",
        lambda **params: MCDropoutRegressor(**QUICK | params),
    )
    X, z = latent(seed, N_FIT)
    y, train = y_of(z), np.arange(N_FIT // 2)
    target = Target.of(y, np.ones(N_FIT), None)
    found = []
    for others in (y, np.roll(y, 3)):
        intervals = np.where(np.arange(N_FIT) < len(train), y, others)
        data = StackData(X, z, None, target=target, intervals=intervals)
        values = candidates.imputed(data, train)
        assert ((intervals["lower"] <= values) & (values <= intervals["upper"])).all()
        is_exact = intervals["lower"] == intervals["upper"]
        np.testing.assert_array_equal(values[is_exact], intervals["lower"][is_exact])
        found.append(values[train])
    np.testing.assert_array_equal(*found)
    # Random values, which have a spread beyond each limit.
    assert len(np.unique(found[0])) == len(train)


@pytest.mark.parametrize("as_frame", [False, True])
def test_exposure_of_a_stack(seed, as_frame):
    """Networks for counts get its column, also behind an encoder of columns."""
    X, z = latent(seed, N_FIT)
    days = np.exp(np.random.default_rng(seed).normal(size=N_FIT))
    y, X = counts(z + np.log(days)), np.column_stack([days, X])
    if as_frame:
        X = pd.DataFrame(X, columns=["days", "a", "b", "c"]).assign(k=["x", "y"] * 40)
    model = fitted(y, X, exposure="days" if as_frame else 0)
    assert model.target_.startswith("counts per exposure")
    of_counts = [name for name in model.weights_.index if "exposure=" in name]
    assert {name.split("(")[0] for name in of_counts} >= {"encoded", "network"}
    for estimator in model.estimators_:
        network = estimator[-1] if hasattr(estimator, "steps") else estimator
        if hasattr(network, "exposure_"):
            assert network.exposure_["column"] == network.exposure
    with pytest.raises(ValueError, match="`exposure` requires a `y` of counts"):
        fitted(z, X, exposure=0)
