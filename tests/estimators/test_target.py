"""y with intervals, bounds, scales and point masses, of all network regressors."""

import inspect
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import RegressorMixin, clone
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_validate,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
    BBBRegressor,
    LaplaceRegressor,
    MCDropoutRegressor,
    NeighbourRegressor,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
    interval_target,
)
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.scoring import log_density_scorer, neg_crps_scorer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
INF = np.inf
NETWORKS = [
    MCDropoutRegressor,
    BBBRegressor,
    VariationalDropoutRegressor,
    AnchoredEnsembleRegressor,
    VariationalGPRegressor,
]
parametrize_networks = pytest.mark.parametrize("kind", NETWORKS)
SMALL = {
    "hidden_layer_sizes": (6,),
    "max_iter": 4,
    "n_draws": 7,
    "dtype": "float64",
    "device": "cpu",
}
N = 53


def sized(kind, seed, **parameters):
    """A network that is fitted in milliseconds."""
    accepted = kind().get_params()
    size = {name: value for name, value in SMALL.items() if name in accepted}
    return kind(**size | {"random_state": seed} | parameters)


@pytest.fixture
def table(seed):
    """X (N, 3), and a latent value of every row, (N,)."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(N, 3))
    z = X[:, 0] + 0.3 * random.normal(size=N)
    # Values at both bounds occur in every fold.
    z[::9], z[1::9] = -1.2, 1.2
    return X, z


def censored(z):
    """Intervals: exact, below a limit, above another one, and rounded."""
    lower, upper = z.copy(), z.copy()
    lower[z < -0.5], upper[z < -0.5] = -INF, -0.5
    lower[z > 0.8], upper[z > 0.8] = 0.8, INF
    lower[10:20], upper[10:20] = np.floor(z[10:20]), np.floor(z[10:20]) + 1
    return interval_target(lower, upper)


# Settings, and y of a latent value.
CASES = {
    "intervals": ({}, censored),
    "floor": ({"y_bounds": (0, None)}, lambda z: z.clip(0)),
    "both bounds": ({"y_bounds": (-0.5, 0.5)}, lambda z: z.clip(-0.5, 0.5)),
    "log": ({"target_scale": "log"}, np.exp),
    "log of intervals": (
        {"target_scale": "log"},
        lambda z: interval_target(np.exp(z), np.where(z > 0.8, INF, np.exp(z))),
    ),
    "logit": ({"target_scale": "logit"}, lambda z: (z / 2 + 0.5).clip(0, 1)),
    "zeros": (
        {"target_scale": "log", "point_mass": 0.0},
        lambda z: np.where(z > 0, np.exp(z), 0.0),
    ),
    "more zeros at a floor": (
        {"y_bounds": (0, None), "point_mass": 0.0, "likelihood": "heteroscedastic"},
        lambda z: z.clip(0),
    ),
    "two targets": (
        {"y_bounds": (0, 2)},
        lambda z: np.stack([z.clip(0, 2), np.exp(-z).clip(0, 2)], axis=1),
    ),
    "other noise": (
        {"target_scale": "log", "likelihood": "mixture"},
        np.exp,
    ),
}
parametrize_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def predictions(model, X):
    distribution = model.predict_distribution(X)
    return [
        model.predict(X),
        model.predict_quantile(X, [0.01, 0.5, 0.99]),
        model.predict_uncertainty(X),
        distribution.rvs(5, 3),
    ]


def assert_same(actual, expected):
    for values, wanted in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(values, wanted)


# ---- y of intervals


def test_intervals_can_be_indexed_and_split():
    y = interval_target([1.5, -INF, 3.0, 4.0], [1.5, 2.0, INF, 5.0])
    np.testing.assert_array_equal(y["lower"], [1.5, -INF, 3.0, 4.0])
    np.testing.assert_array_equal(y["upper"], [1.5, 2.0, INF, 5.0])
    assert y[[2, 0]]["lower"].tolist() == [3.0, 1.5]
    train, test = train_test_split(y, random_state=0)
    assert sorted(np.concatenate([train, test])["upper"]) == sorted(y["upper"])


def test_kinds_of_intervals_are_equal(table, seed):
    """pandas, whose intervals are open on one side, and scikit-survival."""
    X, z = table
    lower, upper = np.floor(z), np.floor(z) + 1
    array = pd.arrays.IntervalArray.from_arrays(lower, upper)
    time, observed = np.exp(z), z < 0.8
    survival = np.array(
        list(zip(observed, time, strict=True)), [("event", bool), ("time", float)]
    )
    alike = [
        [
            interval_target(lower, upper),
            array,
            pd.Series(array, index=np.arange(N)[::-1]),
        ],
        [interval_target(time, np.where(observed, time, INF)), survival],
    ]
    for kinds in alike:
        expected, *others = (
            predictions(sized(MCDropoutRegressor, seed).fit(X, y), X) for y in kinds
        )
        for actual in others:
            assert_same(actual, expected)


@pytest.mark.parametrize(
    ("lower", "upper", "message"),
    [
        ([1.0, 2.0], [2.0, 1.0], "from 2 to 1 in row 1"),
        ([np.nan, 2.0], [2.0, 3.0], "from nan to 2 in row 0"),
        ([1.0, INF], [2.0, INF], "from inf to inf in row 1"),
        ([[1.0]], [[2.0]], r"of shape \(n_samples,\)"),
        ([1.0, 2.0], [2.0], "inconsistent numbers of samples"),
    ],
)
def test_bad_intervals(lower, upper, message):
    with pytest.raises(ValueError, match=message):
        interval_target(lower, upper)


@pytest.mark.parametrize(
    ("settings", "y_of", "message"),
    [
        ({"target_scale": "sqrt"}, np.exp, "`target_scale` must be one of"),
        ({"target_scale": "log"}, lambda z: z, "within its bounds, 0 to inf.*got -"),
        ({"target_scale": "logit"}, lambda z: z + 3, "within its bounds, 0 to 1"),
        ({"target_scale": "log"}, lambda z: z * np.nan, "contains NaN"),
        ({"y_bounds": (0, 0.5)}, lambda z: z, "within its bounds, 0 to 0.5"),
        ({"y_bounds": (1, 0)}, lambda z: z, r"low < high.*got \(1, 0\)"),
        ({"y_bounds": 5}, lambda z: z, r"`y_bounds` must be None or \(low, high\)"),
        ({"y_bounds": ("0", None)}, lambda z: z, "`y_bounds` must be None or"),
        ({"target_scale": "logit", "y_bounds": (0, INF)}, np.exp, "both finite"),
        ({"point_mass": 9.5}, lambda z: z, "got 9.5, which no row has"),
        ({"likelihood": "student_t"}, censored, "requires `likelihood` to be one of"),
        ({"likelihood": "poisson", "target_scale": "log"}, np.exp, "continuous values"),
        ({}, lambda z: censored(z)[:9], "inconsistent numbers of samples"),
        (
            {},
            lambda z: np.zeros(N, [("a", float), ("b", float)]),
            "lower and upper",
        ),
        (
            {},
            lambda z: interval_target(np.full(N, -INF), np.full(N, INF)),
            "with a finite bound",
        ),
    ],
)
def test_bad_settings(settings, y_of, message, table):
    X, z = table
    model = MCDropoutRegressor(**settings)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y_of(z))
    assert not hasattr(model, "parameters_")


# ---- all classes and cases


@parametrize_networks
@parametrize_cases
def test_nothing_is_predicted_outside_of_the_bounds(kind, case, table, seed):
    settings, y_of = case
    X, z = table
    y = y_of(z)
    model = sized(kind, seed, **settings).fit(X, y)
    distribution = model.predict_distribution(X)
    low, high = distribution.support()
    exact = y.dtype.names is None
    if exact:
        assert (np.min(y, 0) >= low).all()
        assert (np.max(y, 0) <= high).all()
        assert np.isfinite(distribution.logpdf(y)).all()
    quantiles = distribution.ppf([1e-6, 0.5, 1 - 1e-6])
    samples = distribution.rvs(20, seed)
    for values in (quantiles, samples):
        values = np.moveaxis(values, 1, -1) if values.ndim == 3 else values
        assert ((low <= values) | np.isclose(values, low, rtol=1e-12)).all()
        assert ((values <= high) | np.isclose(values, high, rtol=1e-12)).all()
    names = [space["scale"] for space in model.target_spaces_]
    assert set(names) == {settings.get("target_scale", "identity")}
    if settings.get("point_mass") is not None:
        # The probability of zero differs between rows.
        at_zero = distribution.cdf(0.0)
        assert ((at_zero > 0) & (at_zero < 1)).all()
        assert np.ptp(at_zero) > 0


@parametrize_cases
def test_saved_cloned_and_pickled(case, table, seed):
    settings, y_of = case
    X, z = table
    model = sized(MCDropoutRegressor, seed, **settings).fit(X, y_of(z))
    expected = predictions(model, X)
    for again in (
        skbayesnn.loads(skbayesnn.dumps(model)),
        pickle.loads(pickle.dumps(model)),
        clone(model).fit(X, y_of(z)),
    ):
        assert again.target_spaces_ == model.target_spaces_
        assert_same(predictions(again, X), expected)


@parametrize_networks
def test_log_scale_equals_logarithms_by_hand(kind, table, seed):
    """Training, quantiles, densities, and the mean of log-normal draws.

    Beyond the largest y the scale is not a logarithm; here this is moved away.
    """
    X, z = table
    y = np.exp(2 * z)
    model = sized(kind, seed, target_scale="log").fit(X, y)
    by_hand = sized(kind, seed).fit(X, np.log(y))
    assert model.parameters_.keys() == by_hand.parameters_.keys()
    for name, values in by_hand.parameters_.items():
        np.testing.assert_array_equal(model.parameters_[name], values)
    # lambda = p l^2 / (2 N tau) and tau are in the units of log y.
    np.testing.assert_array_equal(model.tau_, by_hand.tau_)
    np.testing.assert_array_equal(model.weight_decay_, by_hand.weight_decay_)
    [space] = model.target_spaces_
    assert space["top"] == y.max()
    model.target_spaces_ = [space | {"top": np.inf}]
    levels = [0.05, 0.5, 0.95]
    np.testing.assert_allclose(
        model.predict_quantile(X, levels),
        np.exp(by_hand.predict_quantile(X, levels)),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        model.log_predictive_density(X, y),
        by_hand.log_predictive_density(X, np.log(y)) - np.log(y),
        rtol=1e-6,
        atol=1e-6,
    )
    f = by_hand.sample_f(X, 500)
    assert (model.predict(X) >= np.exp(f.mean(1)) * (1 - 0.2)).all()


def test_weight_decay_is_exact_on_the_log_scale(table, seed):
    X, z = table
    p, length_scale, tau = 0.9, 0.7, 2.5
    for y in (np.exp(z), CASES["log of intervals"][1](z)):
        model = sized(
            MCDropoutRegressor,
            seed,
            dropout=1 - p,
            length_scale=length_scale,
            tau=tau,
            target_scale="log",
        ).fit(X, y)
        expected = p * length_scale**2 / (2 * N * tau)
        np.testing.assert_allclose(np.unique(model.weight_decay_)[-1], expected)
        assert model.tau_ == tau
        assert model.noise_std_ == pytest.approx(tau**-0.5)


# ---- what the settings are for


SIMPLE = {
    "hidden_layer_sizes": (16,),
    "max_iter": 60,
    "n_draws": 30,
    "length_scale": 2.0,
}


def _crps(X, y, n_train, **parameters):
    model = MCDropoutRegressor(**SIMPLE | parameters).fit(X[:n_train], y[:n_train])
    return model.crps(X[n_train:], y[n_train:]).mean()


def test_a_floor_lowers_the_crps(seed):
    """Tobit: two thirds of the rows are zero. Ratios of six seeds: .60 to .68."""
    random = np.random.default_rng(seed)
    X = random.uniform(-2, 2, size=(600, 1))
    y = (1.5 * X[:, 0] + 0.7 * random.normal(size=600) - 0.5).clip(0)
    settings = {"tau": 0.7**-2, "random_state": seed}
    plain = _crps(X, y, 200, **settings)
    assert _crps(X, y, 200, y_bounds=(0, None), **settings) < 0.8 * plain


def test_a_hurdle_lowers_the_crps(seed):
    """Half of the rows are zero, others log-normal. Ratios of six seeds: .77 to .85."""
    random = np.random.default_rng(seed)
    X = random.uniform(-2, 2, size=(600, 1))
    occurs = random.random(600) < 1 / (1 + np.exp(-2 * X[:, 0]))
    amount = np.exp(1 + 0.5 * X[:, 0] + 0.5 * random.normal(size=600))
    y = np.where(occurs, amount, 0.0)
    plain = _crps(X, y, 200, random_state=seed)
    hurdle = {"target_scale": "log", "point_mass": 0.0, "tau": 4.0}
    assert _crps(X, y, 200, random_state=seed, **hurdle) < 0.95 * plain


def test_lifetimes_that_still_run_are_longer(seed):
    """Exponential lifetimes, 40 % censored: the median is not the censored one's.

    Errors of the log median at six seeds: -.02 to -.25, of a fit to the times -.72 to
    -.91. Log lifetimes are skewed, which explains the first.
    """
    random = np.random.default_rng(seed)
    n = 400
    X = random.uniform(-2, 2, size=(n, 1))
    scale = np.exp(1 + 0.7 * X[:, 0])
    life, end = scale * random.exponential(size=n), 4 * random.exponential(size=n)
    time = np.minimum(life, end)
    y = interval_target(time, np.where(life <= end, time, INF))
    errors = []
    for target in (y, time):
        model = MCDropoutRegressor(
            target_scale="log", tau=1 / 1.6, random_state=seed, **SIMPLE
        ).fit(X, target)
        median = model.predict_quantile(X, 0.5)
        errors.append(np.log(median / (scale * np.log(2))).mean())
    assert abs(errors[0]) < 0.5
    assert errors[1] < errors[0] - 0.3


@pytest.mark.parametrize("unit", [2.0**-30, 2.0**30])
def test_large_and_small_units(unit, table, seed):
    """Bounds of 1e9 are bounds. Units of powers of two do not change a rounding."""
    X, z = table
    lower, upper = (censored(z)[name] for name in ("lower", "upper"))
    expected, model = (
        sized(MCDropoutRegressor, seed).fit(X, interval_target(lower * k, upper * k))
        for k in (1.0, unit)
    )
    for method in ("predict", "predict_interval"):
        actual = getattr(model, method)(X) / unit
        np.testing.assert_allclose(actual, getattr(expected, method)(X), rtol=1e-9)


@pytest.mark.parametrize("case", ["censored", "zeros"])
def test_rows_without_a_value_do_not_warn(case, seed):
    """A fit compares its predictions with rows that have a value, and with no others.

    log y is linear, and so is the network: no seed warns.
    """
    random = np.random.default_rng(seed)
    X = random.uniform(-2, 2, size=(120, 2))
    y = np.exp(3 + X[:, 0])
    if case == "censored":
        y = interval_target(np.minimum(y, 8), np.where(y > 8, INF, y))
    else:
        y[X[:, 1] > 0] = 0.0
    settings = {"target_scale": "log", "length_scale": 1.0, "random_state": seed}
    if case == "zeros":
        settings["point_mass"] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MCDropoutRegressor((), **settings).fit(X, y)


# ---- fits and searches


@pytest.mark.parametrize("search", [GridSearchCV, BatchedGridSearchCV])
def test_a_search_over_scales(search, table, seed):
    """The log scale is selected for a log-normal y; candidates do not share y."""
    X, z = table
    y = np.exp(3 * z)
    model = sized(MCDropoutRegressor, seed, max_iter=30, dtype="float32")
    grid = {"target_scale": ["identity", "log"]}
    found = search(model, grid, scoring=log_density_scorer, cv=KFold(3)).fit(X, y)
    assert found.best_params_ == {"target_scale": "log"}
    assert np.ptp(found.cv_results_["mean_test_score"]) > 0.5
    expected = sized(
        MCDropoutRegressor, seed, max_iter=30, dtype="float32", target_scale="log"
    ).fit(X, y)
    if search is GridSearchCV:
        assert_same(predictions(found.best_estimator_, X), predictions(expected, X))
    crps = search(
        sized(MCDropoutRegressor, seed, target_scale="log"),
        {"y_bounds": [None, (0, y.max())]},
        scoring=neg_crps_scorer,
        cv=KFold(2),
    ).fit(X, y)
    assert np.isfinite(crps.cv_results_["mean_test_score"]).all()


@parametrize_cases
def test_cross_validation(case, table, seed):
    """In a pipeline, with the log density, which is a probability of intervals."""
    settings, y_of = case
    X, z = table
    model = make_pipeline(StandardScaler(), sized(MCDropoutRegressor, seed, **settings))
    scores = cross_validate(
        model, X, y_of(z), scoring=log_density_scorer, cv=KFold(3), error_score="raise"
    )["test_score"]
    assert np.isfinite(scores).all()


def test_log_density_of_intervals(table, seed):
    """Log probabilities, and log densities of the exact rows."""
    X, z = table
    y = censored(z)
    for settings, of_rows in (({}, y), ({"y_bounds": (-9, 9)}, y)):
        model = sized(MCDropoutRegressor, seed, **settings).fit(X, of_rows)
        distribution = model.predict_distribution(X)
        wide = y["lower"] < y["upper"]
        probability = distribution.cdf(y["upper"]) - distribution.cdf(y["lower"])
        actual = model.log_predictive_density(X, y)
        np.testing.assert_allclose(np.exp(actual[wide]), probability[wide], rtol=1e-6)
        np.testing.assert_allclose(
            actual[~wide], distribution[~wide].logpdf(z[~wide]), rtol=1e-9
        )
    with pytest.raises(ValueError, match="must be exact values for this result"):
        model.predictive_cdf(X, y)


def test_rows_of_weight_zero_have_no_effect(table, seed):
    X, z = table
    weights = np.where(np.arange(N) < 30, 1.5, 0.0)
    y = censored(z)
    other = y.copy()
    other[30:] = interval_target(np.full(N - 30, -7.0), np.full(N - 30, INF))
    expected, actual, unweighted = (
        predictions(sized(MCDropoutRegressor, seed).fit(X, target, sample_weight=w), X)
        for target, w in ((y, weights), (other, weights), (y, None))
    )
    assert_same(actual, expected)
    assert not np.array_equal(unweighted[0], expected[0])


@parametrize_cases
def test_validation_rows(case, table, seed):
    """They have the spaces of the training rows, and need no row at a point mass."""
    settings, y_of = case
    X, z = table
    y, settings = y_of(z), settings | {"early_stopping": True}
    model = sized(MCDropoutRegressor, seed, **settings)
    for rows in (np.arange(20), np.flatnonzero(z > 0)):
        model.fit(X, y, X_val=X[rows], y_val=y[rows])
        assert np.isfinite(model.predict(X)).all()
        expected = sized(MCDropoutRegressor, seed, **settings).fit(X, y)
        assert model.target_spaces_ == expected.target_spaces_


def test_validation_rows_of_another_kind(table, seed):
    X, z = table
    model = sized(MCDropoutRegressor, seed, early_stopping=True)
    rows = slice(0, 20)
    for y, y_val in ((z, censored(z)), (censored(z), z)):
        model.fit(X, y, X_val=X[rows], y_val=y_val[rows])
        assert model.network_["likelihood"]["name"].startswith("interval_")
    exact = interval_target(z, z)
    model.fit(X, z, X_val=X[rows], y_val=exact[rows])
    assert not model.network_["likelihood"]["name"].startswith("interval_")


@parametrize_networks
def test_a_refit_forgets_the_settings(kind, table, seed):
    """The other way round, too; predictions equal a new model's."""
    X, z = table
    y = np.exp(z)
    model = sized(kind, seed, target_scale="log").fit(X, y)
    assert hasattr(model, "target_spaces_")
    model.set_params(target_scale="identity").fit(X, y)
    assert not hasattr(model, "target_spaces_")
    expected = sized(kind, seed).fit(X, y)
    assert_same(predictions(model, X), predictions(expected, X))
    model.set_params(target_scale="log").fit(X, y)
    again = sized(kind, seed, target_scale="log").fit(X, y)
    assert_same(predictions(model, X), predictions(again, X))


def test_a_failed_fit_leaves_the_model_as_it_was(table, seed):
    X, z = table
    model = sized(MCDropoutRegressor, seed, target_scale="log").fit(X, np.exp(z))
    expected = predictions(model, X)
    with pytest.raises(ValueError, match="within its bounds"):
        model.fit(X, z)
    assert_same(predictions(model, X), expected)


def test_streams_and_sources_take_exact_values_only(table, seed, tmp_path):
    """On every scale; rows at a bound and intervals are refused."""
    X, z = table
    model = sized(MCDropoutRegressor, seed, target_scale="log")
    model.partial_fit(X, np.exp(z)).partial_fit(X, np.exp(z))
    assert (model.predict_quantile(X, 1e-6) > 0).all()
    fitted = sized(MCDropoutRegressor, seed).fit(X, censored(z))
    for call in (
        lambda: sized(MCDropoutRegressor, seed).partial_fit(X, censored(z)),
        lambda: fitted.partial_fit(X, z),
        lambda: sized(MCDropoutRegressor, seed, y_bounds=(0, None)).partial_fit(
            X, z.clip(0)
        ),
    ):
        with pytest.raises(ValueError, match=r"partial_fit. requires exact values"):
            call()


@pytest.mark.parametrize("scale", ["log", "logit"])
def test_a_later_part_keeps_the_space_of_the_earlier_one(scale, table, seed):
    """Rows so far keep their latent values, also if the new ones span less."""
    X, z = table
    y = np.exp(z) if scale == "log" else 1 / (1 + np.exp(-z))
    model = sized(MCDropoutRegressor, seed, target_scale=scale)
    (before,) = model.partial_fit(X, y).target_spaces_
    half = np.abs(z) < 0.5
    assert model.partial_fit(X[half], y[half]).target_spaces_ == [before]
    if scale == "log":
        assert model.partial_fit(X, 2 * y).target_spaces_[0]["top"] == 2 * before["top"]


@pytest.mark.parametrize("as_frame", [False, True])
def test_exposure_equals_intervals_of_log_rates(table, seed, as_frame):
    """The same latent values by hand; counts are at the exposure of the new rows."""
    X, z = table
    random = np.random.default_rng(seed)
    exposure = np.exp(random.normal(size=N))
    y = random.poisson(exposure * np.exp(z + 1)).astype(float)
    X = np.column_stack([X, exposure])
    shift = np.log(exposure)
    with np.errstate(divide="ignore"):
        rates = interval_target(np.log(y) - shift, np.log(y + 1) - shift)
    by_hand = sized(MCDropoutRegressor, seed).fit(X, rates)
    given, name = (pd.DataFrame(X, columns=list("abce")), "e") if as_frame else (X, 3)
    model = sized(MCDropoutRegressor, seed, target_scale="count", exposure=name)
    model.fit(given, y)
    for key, values in by_hand.parameters_.items():
        # log y - log e is rounded in another order.
        np.testing.assert_allclose(model.parameters_[key], values, rtol=1e-6, atol=1e-8)
    # Beyond the largest rate of the training rows the two differ.
    model.exposure_ = model.exposure_ | {"largest": INF}
    expected = by_hand.predictive_cdf(X, np.log(y + 1) - shift)
    np.testing.assert_allclose(model.predictive_cdf(given, y), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "change", "message"),
    [
        ({"exposure": 0}, {}, "requires target_scale='count'"),
        ({"exposure": "days", "target_scale": "count"}, {}, "got 'days'"),
        ({"exposure": "e", "target_scale": "count"}, {"e": 0.0}, "positive in all"),
    ],
)
def test_wrong_exposures(table, seed, parameters, change, message):
    X = pd.DataFrame(table[0], columns=list("abc")).assign(e=1.0).assign(**change)
    with pytest.raises(ValueError, match=message):
        sized(MCDropoutRegressor, seed, **parameters).fit(X, np.arange(N))


@pytest.mark.parametrize("bounds", [[0, 9], (0.0, 9.0), np.array([0.0, 9.0])])
def test_bounds_of_any_sequence(table, seed, bounds):
    X, z = table
    model = sized(MCDropoutRegressor, seed, y_bounds=bounds).fit(X, np.exp(z))
    low, high = model.predict_distribution(X).support()
    assert (low, high) == (0, 9)


def test_a_refit_without_exposure_forgets_it(table, seed):
    X, z = table
    y, X = np.floor(np.exp(z + 1)), np.column_stack([X, np.exp(z)])
    model = sized(MCDropoutRegressor, seed, target_scale="count", exposure=3)
    model.fit(X, y).set_params(exposure=None).fit(X, y)
    fresh = sized(MCDropoutRegressor, seed, target_scale="count").fit(X, y)
    assert not hasattr(model, "exposure_")
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))


def test_predictions_may_exceed_the_times_of_censored_rows(table, seed):
    """Most lifetimes are longer than the study, and known to be."""
    X, z = table
    limit = np.exp(np.quantile(z, 0.4))
    y = np.exp(z)
    y = interval_target(np.minimum(y, limit), np.where(y > limit, np.inf, y))
    model = sized(MCDropoutRegressor, seed, target_scale="log", max_iter=100)
    median = model.fit(X, y).predict_quantile(X, 0.5)
    # Without an effect of the bound, all of the longest half are beyond it.
    assert np.mean(median > 1.1 * limit) > 0.25


# ---- models without a likelihood of intervals

# Regressors that lack `y_bounds`: the estimator inside of them has it.
WRAPPERS = {"CalibratedUncertaintyRegressor", "ConformalRegressor"}
OTHERS = {
    LaplaceRegressor: {"hidden_layer_sizes": (3,), "n_draws": 8},
    NeighbourRegressor: {"max_iter": 20, "n_draws": 2, "embedding_size": 3},
}
parametrize_others = pytest.mark.parametrize("kind", OTHERS)


def bounded(kind, seed, y_bounds, **settings):
    size = OTHERS[kind] | {"n_estimators": 2, "random_state": seed}
    return kind(**size, y_bounds=y_bounds, **settings)


def test_every_regressor_has_bounds():
    lacking = {
        name
        for name in skbayesnn.__all__
        if isinstance(kind := getattr(skbayesnn, name), type)
        and issubclass(kind, RegressorMixin)
        and "y_bounds" not in inspect.signature(kind).parameters
    }
    assert lacking == WRAPPERS


@parametrize_others
@pytest.mark.parametrize("case", ["floor", "both bounds", "two targets"])
def test_others_are_clipped_at_the_bounds(kind, case, table, seed):
    """Moments and scores by samples of the clipped draws; the bound is a point mass."""
    settings, y_of = CASES[case]
    X, z = table
    y = y_of(z)
    model = bounded(kind, seed, **settings).fit(X, y)
    distribution = model.predict_distribution(X)
    low, high = distribution.support()
    expected = [INF if b is None else b for b in settings["y_bounds"]]
    assert np.all(low == expected[0])
    assert np.all(high == expected[1])
    extreme = model.predict_quantile(X, [1e-9, 1 - 1e-9])
    samples = model.sample_y(X, 4000, random_state=seed)
    for values in (extreme, samples, model.predict_interval(X, 0.99)):
        assert ((values >= expected[0]) & (values <= expected[1])).all()
    # At a bound the cdf is the probability of the bound, and the density its log.
    at_low = np.full(y.shape, float(expected[0]))
    share = (samples == expected[0]).mean(-1)
    if y.ndim == 1:
        density = model.log_predictive_density(X, at_low)
        np.testing.assert_allclose(np.exp(density), model.predictive_cdf(X, at_low))
        np.testing.assert_allclose(model.predictive_cdf(X, at_low), share, atol=0.05)
    # Six standard errors of 4,000 samples.
    total = model.predict_uncertainty(X, "total")
    error = 6 * np.maximum(total, 1e-3) / np.sqrt(4000)
    if y.ndim == 1:
        apart = np.abs(samples - y[:, None]).mean(1)
        score = apart - np.abs(samples - samples[:, ::-1]).mean(1) / 2
        assert (np.abs(score - model.crps(X, y)) < 2 * error).all()
    assert (np.abs(samples.mean(-1) - model.predict(X)) < error).all()
    epistemic = model.predict_uncertainty(X, "epistemic")
    assert (epistemic <= total).all()
    for again in (
        skbayesnn.loads(skbayesnn.dumps(model)),
        pickle.loads(pickle.dumps(model)),
        clone(model).fit(X, y),
    ):
        assert again.target_spaces_ == model.target_spaces_
        assert_same(predictions(again, X), predictions(model, X))


@parametrize_others
def test_bounds_of_others_that_are_far_change_nothing(kind, table, seed):
    X, z = table
    plain = bounded(kind, seed, None).fit(X, z)
    assert not hasattr(plain, "target_spaces_")
    far = bounded(kind, seed, (-1e6, 1e6)).fit(X, z)
    for actual, expected in zip(
        predictions(far, X), predictions(plain, X), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    far.set_params(y_bounds=None).fit(X, z)
    assert_same(predictions(far, X), predictions(plain, X))


@parametrize_others
def test_wrong_y_of_others(kind, table, seed):
    """Rows of weight zero may be outside."""
    X, z = table
    model = bounded(kind, seed, (0, None))
    with pytest.raises(ValueError, match="within its bounds, 0 to inf; got -"):
        model.fit(X, z)
    weights = (z >= 0).astype(float)
    model.fit(X, z, weights)
    expected = predictions(model, X)
    with pytest.raises(ValueError, match="within its bounds"):
        model.fit(X, -z - 5)
    assert_same(predictions(model, X), expected)
    assert_same(predictions(model.fit(X[z >= 0], z[z >= 0]), X), expected)


@parametrize_others
def test_searches_and_stacks_with_bounds_of_others(kind, table, seed):
    """The stack gives y itself to a candidate with its own bounds."""
    X, z = table
    y = z.clip(0)
    grid = {"y_bounds": [(0, 5), (0, None)]}
    search = GridSearchCV(bounded(kind, seed, None), grid, scoring=neg_crps_scorer)
    search.fit(X, y)
    assert (search.best_estimator_.predict_quantile(X, 1e-6) >= 0).all()
    pool = [("own", bounded(kind, seed, (0, None))), ("other", bounded(kind, 0, None))]
    for given in (None, (0, None)):
        stack = BayesianStackingRegressor(pool, cv=2, y_bounds=given, random_state=seed)
        stack.fit(X, y)
        assert np.isfinite(stack.weights_["log_density"]).all()
        assert (stack.predict_quantile(3 * X, [1e-6, 0.5]) >= 0).all()


def test_counts_and_updates_with_bounds(table, seed):
    X, z = table
    y = z.clip(0)
    model = bounded(LaplaceRegressor, seed, (0, None)).partial_fit(X, y)
    model.partial_fit(X, y)
    assert (model.predict_quantile(X, 1e-6) >= 0).all()
    with pytest.raises(ValueError, match="within its bounds, 0 to inf"):
        model.partial_fit(X, z)
    with pytest.raises(ValueError, match="likelihood='poisson'"):
        bounded(LaplaceRegressor, seed, (0, 9), likelihood="poisson").fit(X, y.round())
