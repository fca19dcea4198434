"""Uncertainty passes through scikit-learn's meta-estimators."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
from sklearn import calibration
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    RandomForestRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    RandomizedSearchCV,
    cross_validate,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)

import skbayesnn
from skbayesnn import (
    BBBClassifier,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
    crps,
    log_predictive_density,
    predict_interval,
    predict_quantile,
    predict_uncertainty,
    predictive_cdf,
    sample_f,
    sample_y,
)
from skbayesnn.scoring import (
    interval_coverage_scorer,
    log_density_scorer,
    neg_crps_scorer,
    neg_interval_width_scorer,
)
from tests.helpers.seed import SEED

ROWS, NEW = 43, 11
TEMPERATURE = ("temperature",) if hasattr(calibration, "_TemperatureScaling") else ()
SMALL = {
    "hidden_layer_sizes": (8,),
    "max_iter": 20,
    "n_draws": 13,
    "dropout": 0.1,
    "length_scale": 0.1,
    "device": "cpu",
    "dtype": "float64",
    "random_state": SEED,
}


def regressor(**parameters):
    return MCDropoutRegressor(**SMALL | parameters)


def classifier(**parameters):
    return MCDropoutClassifier(**SMALL | parameters)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng([SEED, 2])
    X = random.standard_normal((ROWS, 4))
    Y = np.tanh(X) @ random.standard_normal((4, 2)) + 0.3 * random.standard_normal(
        (ROWS, 2)
    )
    return SimpleNamespace(
        X=X,
        y=3 + Y[:, 0],
        Y=Y * [1.0, 20.0],
        positive=np.exp(Y[:, 0]),
        # Three labels of equal frequency, not in alphabetical order.
        labels=np.array(["top", "low", "mid"])[
            np.argsort(np.argsort(X[:, 0])) * 3 // ROWS
        ],
        X_new=random.standard_normal((NEW, 4)),
        y_new=3 + random.standard_normal(NEW),
        Y_new=random.standard_normal((NEW, 2)) * [1.0, 20.0],
        random=random,
    )


def assert_regression_comes_through(model, X, inner=None, inner_X=None):
    """Shapes, and equality with the inner network if ``inner`` is given."""
    std = predict_uncertainty(model, X)
    parts = predict_uncertainty(model, X, kind="all")
    assert list(parts) == ["total", "epistemic", "aleatoric"]
    np.testing.assert_array_equal(parts["total"], std)
    np.testing.assert_allclose(
        std**2, parts["epistemic"] ** 2 + parts["aleatoric"] ** 2, rtol=1e-12
    )
    assert std.shape == np.shape(model.predict(X))
    assert (parts["epistemic"] > 0).all() and (parts["aleatoric"] > 0).all()
    interval = predict_interval(model, X, coverage=0.8)
    assert interval.shape == (*std.shape, 2)
    assert (interval[..., 0] < interval[..., 1]).all()
    np.testing.assert_array_equal(
        predict_quantile(model, X, 0.5).shape, np.shape(model.predict(X))
    )
    assert_intervals_come_through(model, X, interval)
    assert sample_y(model, X, 5).shape == (*std.shape, 5)
    assert sample_f(model, X, 5).shape == (*std.shape, 5)
    frame = predict_uncertainty(model, X, kind=["total", "aleatoric"], as_frame=True)
    columns = [parts["total"], parts["aleatoric"]]
    np.testing.assert_array_equal(
        frame, np.column_stack([c.reshape(len(std), -1) for c in columns])
    )
    density = log_predictive_density(model, X, model.predict(X))
    assert density.shape == (len(std),) and np.isfinite(density).all()
    if inner is not None:
        np.testing.assert_allclose(std, inner.predict_uncertainty(inner_X), rtol=1e-9)
        np.testing.assert_allclose(
            interval, inner.predict_interval(inner_X, 0.8), rtol=1e-9
        )
        np.testing.assert_allclose(
            density,
            inner.log_predictive_density(inner_X, inner.predict(inner_X)),
            rtol=1e-9,
            atol=1e-9,
        )


def assert_intervals_come_through(model, X, interval):
    """Several coverages, the shortest intervals, and the distribution function."""
    several = predict_interval(model, X, coverage=[0.5, 0.8, 0.95])
    assert several.shape == (*interval.shape[:-1], 3, 2)
    np.testing.assert_array_equal(several[..., 1, :], interval)
    levels = [predictive_cdf(model, X, interval[..., end]) for end in (0, 1)]
    assert levels[0].shape == np.shape(model.predict(X))
    np.testing.assert_allclose(levels[0], 0.1, rtol=1e-6)
    np.testing.assert_allclose(levels[1], 0.9, rtol=1e-6)
    shortest = predict_interval(model, X, 0.8, kind="highest_density")
    below, above = (predictive_cdf(model, X, shortest[..., end]) for end in (0, 1))
    np.testing.assert_allclose(above - below, 0.8, rtol=1e-6)
    # Golden sections end within 1e-5 of the best tail, where the width is flat.
    width, shorter = (np.diff(ends)[..., 0] for ends in (interval, shortest))
    assert (shorter <= width * (1 + 1e-4)).all()


def assert_classification_comes_through(model, X, y, *, fixed_draws=False):
    parts = predict_uncertainty(model, X, kind="all")
    np.testing.assert_array_equal(parts["entropy"], predict_uncertainty(model, X))
    assert set(parts) == {
        "entropy",
        "mutual_information",
        "variation_ratio",
        "expected_entropy",
        "overlap",
    }
    assert (parts["mutual_information"] > 0).any()
    frame = predict_uncertainty(model, X, kind="all", as_frame=True)
    np.testing.assert_array_equal(frame["overlap"], parts["overlap"])
    functions = sample_f(model, X, 7)
    assert functions.shape == (len(X), len(model.classes_), 7)
    np.testing.assert_allclose(functions.sum(1), 1, rtol=1e-6)
    samples = sample_y(model, X, 300, random_state=1)
    assert samples.shape == (len(X), 300)
    assert set(np.unique(samples)) <= set(model.classes_)
    # The predicted probability is the mean over the draws.
    probability = model.predict_proba(X)
    codes = np.searchsorted(model.classes_, y)
    np.testing.assert_allclose(
        np.exp(log_predictive_density(model, X, y)),
        probability[np.arange(len(X)), codes],
        rtol=1e-9,
    )
    if fixed_draws:
        # Samples select one of the fixed draws, then a label: binomial with the mean
        # probability. 6 standard errors of 300, and two labels of a rare class.
        share = (samples == np.asarray(y)[:, None]).mean(1)
        p = probability[np.arange(len(X)), codes]
        assert (np.abs(share - p) < 6 * np.sqrt(p * (1 - p) / 300) + 2 / 300).all()


# ---- an estimator of the package


def test_functions_equal_the_methods(data):
    model = regressor(n_estimators=2).fit(data.X, data.Y)
    X = data.X_new
    for function, arguments in (
        (predict_uncertainty, (["epistemic", "total"],)),
        (predict_quantile, ([0.1, 0.7],)),
        (predict_interval, (0.8,)),
        (predict_interval, ([0.5, 0.8], "highest_density")),
        (predictive_cdf, (data.Y_new,)),
        (sample_f, (5, 3)),
        (sample_y, (5, 3)),
        (log_predictive_density, (data.Y_new,)),
    ):
        result, expected = (
            function(model, X, *arguments),
            getattr(model, function.__name__)(X, *arguments),
        )
        if isinstance(result, dict):
            result, expected = (np.stack(list(v.values())) for v in (result, expected))
        np.testing.assert_array_equal(result, expected)
    assert predict_interval(model, X).shape == (11, 2, 2)
    np.testing.assert_array_equal(
        predict_uncertainty(model, X), model.predict_uncertainty(X)
    )
    assert_classification_comes_through(
        classifier().fit(data.X, data.labels), data.X_new, data.labels[:11]
    )


def test_functions_have_the_keywords_of_the_methods():
    """Each keyword of a method of a public class is a keyword of the function."""
    functions = (
        predict_uncertainty,
        predict_interval,
        predict_quantile,
        predictive_cdf,
        sample_f,
        sample_y,
        log_predictive_density,
        crps,
    )
    missing = []
    for kind in map(skbayesnn.__dict__.get, skbayesnn.__all__):
        for function in functions:
            method = getattr(kind, function.__name__, None)
            if inspect.isclass(kind) and method is not None:
                taken = set(inspect.signature(method).parameters) - {"self"}
                lacking = taken - set(inspect.signature(function).parameters)
                missing += [(kind.__name__, function.__name__, n) for n in lacking]
    assert missing == []


# ---- one test for each meta-estimator


def test_pipeline(data):
    model = make_pipeline(
        PolynomialFeatures(include_bias=False), StandardScaler(), regressor()
    )
    model.fit(data.X, data.y)
    inner_X = model[:-1].transform(data.X_new)
    assert_regression_comes_through(model, data.X_new, model[-1], inner_X)
    without_scaler = Pipeline([("network", regressor())]).fit(data.X, data.y)
    assert_regression_comes_through(
        without_scaler, data.X_new, without_scaler[-1], data.X_new
    )
    labels = make_pipeline(StandardScaler(), classifier()).fit(data.X, data.labels)
    assert_classification_comes_through(labels, data.X_new, data.labels[:11])


def test_frame_through_a_pipeline_keeps_the_index(data):
    pandas = pytest.importorskip("pandas")
    names = [f"row {i}" for i in range(NEW)]
    frame = pandas.DataFrame(data.X_new, columns=list("abcd"), index=names)
    X = pandas.DataFrame(data.X, columns=list("abcd"))
    model = make_pipeline(StandardScaler(), regressor()).fit(X, data.y)
    actual = predict_uncertainty(model, frame, as_frame=True)
    assert list(actual.index) == names
    by_position = predict_uncertainty(model, frame, "total", True)
    assert by_position.equals(actual)
    np.testing.assert_array_equal(
        actual.to_numpy()[:, 0], predict_uncertainty(model, frame)
    )


def test_column_transformer_on_a_frame(data):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data.X, columns=list("abcd"))
    frame["colour"] = np.resize(["red", "green", "blue"], ROWS)
    model = make_pipeline(
        ColumnTransformer(
            [
                ("scale", StandardScaler(), list("abcd")),
                ("encode", OneHotEncoder(handle_unknown="ignore"), ["colour"]),
            ]
        ),
        regressor(),
    )
    model.fit(frame, data.y)
    assert model[-1].n_features_in_ == 7
    inner_X = model[:-1].transform(frame)
    assert_regression_comes_through(model, frame, model[-1], inner_X)
    # Rows are selected by position, whatever the index.
    shuffled = frame.iloc[::-1]
    np.testing.assert_allclose(
        predict_uncertainty(model, shuffled), predict_uncertainty(model, frame)[::-1]
    )


def test_grid_search(data):
    """The score is the density of the held-out rows under the network alone."""
    grid = {"tau": [0.1, 1.0, 10.0]}
    model = GridSearchCV(regressor(), grid, scoring=log_density_scorer, cv=3)
    model.fit(data.X, data.y)
    assert_regression_comes_through(
        model, data.X_new, model.best_estimator_, data.X_new
    )
    train, test = next(iter(KFold(3).split(data.X)))
    for i, tau in enumerate(grid["tau"]):
        alone = regressor(tau=tau).fit(data.X[train], data.y[train])
        assert model.cv_results_["split0_test_score"][i] == pytest.approx(
            alone.log_predictive_density(data.X[test], data.y[test]).mean(), rel=1e-6
        )
    assert model.score(data.X, data.y) == pytest.approx(
        log_predictive_density(model, data.X, data.y).mean()
    )


def test_search_without_refit(data):
    model = GridSearchCV(regressor(), {"tau": [1.0]}, cv=2, refit=False)
    model.fit(data.X, data.y)
    with pytest.raises((TypeError, NotFittedError), match=r"refit|not fitted"):
        predict_uncertainty(model, data.X_new)


def test_randomized_search_of_a_classifier(data):
    model = RandomizedSearchCV(
        classifier(),
        {"dropout": [0.05, 0.2, 0.5]},
        n_iter=2,
        scoring=log_density_scorer,
        cv=2,
        random_state=0,
    ).fit(data.X, data.labels)
    assert_classification_comes_through(model, data.X_new, data.labels[:11])


def test_cross_validate_with_several_scorers(data):
    scoring = {
        "density": log_density_scorer,
        "crps": neg_crps_scorer,
        "coverage": interval_coverage_scorer,
        "width": neg_interval_width_scorer,
        "r2": "r2",
    }
    results = cross_validate(
        make_pipeline(StandardScaler(), regressor()),
        data.X,
        data.y,
        cv=KFold(3),
        scoring=scoring,
        return_estimator=True,
        return_indices=True,
    )
    for i, model in enumerate(results["estimator"]):
        test = results["indices"]["test"][i]
        X, y = data.X[test], data.y[test]
        interval = predict_interval(model, X)
        expected = {
            "density": log_predictive_density(model, X, y).mean(),
            "crps": -crps(model, X, y).mean(),
            "coverage": np.mean((interval[:, 0] <= y) & (y <= interval[:, 1])),
            "width": -np.diff(interval).mean(),
            "r2": model.score(X, y),
        }
        for name, value in expected.items():
            assert results[f"test_{name}"][i] == pytest.approx(value)


def test_multi_output_regressor(data):
    model = MultiOutputRegressor(regressor()).fit(data.X, data.Y)
    assert_regression_comes_through(model, data.X_new)
    for name in ("predict_uncertainty", "predict_interval", "predict_quantile"):
        function, q = getattr(skbayesnn, name), [0.2] if "quantile" in name else []
        predictions = function(model, data.X_new, *q)
        for i, member in enumerate(model.estimators_):
            np.testing.assert_allclose(
                predictions[:, i], getattr(member, name)(data.X_new, *q), rtol=1e-9
            )
    assert_samples_match_quantiles(model, data.X_new)


def test_frozen_estimator(data):
    network = regressor().fit(data.X, data.y)
    frozen = FrozenEstimator(network)
    assert_regression_comes_through(frozen, data.X_new, network, data.X_new)


# ---- the other methods


def in_a_pipeline(network, data):
    model = make_pipeline(StandardScaler(), network).fit(data.X, data.y)
    X = model[:-1].transform(data.X_new)
    assert_regression_comes_through(model, data.X_new, model[-1], X)


def in_a_search(network, data):
    search = GridSearchCV(network, {"tau": [1.0, 4.0]}, scoring=log_density_scorer)
    search.set_params(cv=2).fit(data.X, data.y)
    assert_regression_comes_through(
        search, data.X_new, search.best_estimator_, data.X_new
    )


def in_a_target_transform(network, data):
    model = TransformedTargetRegressor(network, func=np.log, inverse_func=np.exp)
    assert_samples_match_quantiles(model.fit(data.X, data.positive), data.X_new)


@pytest.mark.parametrize(
    ("network", "check"),
    [
        (BBBRegressor(**SMALL), in_a_search),
        (
            BBBRegressor(
                **SMALL | {"dropout": 0.0}, prior="scale_mixture", kl="sampled"
            ),
            in_a_pipeline,
        ),
        (VariationalDropoutRegressor(**SMALL), in_a_target_transform),
        (
            VariationalDropoutRegressor(
                **SMALL, noise="independent", alpha_per="weight"
            ),
            in_a_search,
        ),
        (MCDropoutRegressor(**SMALL | {"dropout": "auto"}), in_a_target_transform),
    ],
    ids=["spike and slab", "scale mixture", "type B", "type A", "concrete"],
)
def test_other_regressors(data, network, check):
    """Each in one of the meta-estimators, which do not depend on the posterior."""
    check(network, data)


@pytest.mark.parametrize("kind", [BBBClassifier, VariationalDropoutClassifier])
def test_other_classifiers(data, kind):
    network = kind(**SMALL)
    model = make_pipeline(StandardScaler(), network).fit(data.X, data.labels)
    assert_classification_comes_through(model, data.X_new, data.labels[:11])


# ---- a target transform


def assert_samples_match_quantiles(model, X):
    levels = [0.1, 0.5, 0.9]
    quantiles = predict_quantile(model, X, levels)
    samples = sample_y(model, X, 4000, random_state=SEED)
    below = (samples[..., None, :] < quantiles[..., None]).mean(-1)
    # 6 binomial standard errors of 4000 samples of the same draws.
    error = 6 * np.sqrt(np.multiply(levels, np.subtract(1, levels)) / 4000)
    assert (np.abs(below - levels) < error).all()


@pytest.fixture(scope="module")
def log_target(data):
    model = TransformedTargetRegressor(
        regressor(tau=4.0), func=np.log, inverse_func=np.exp
    )
    return model.fit(data.X, data.positive)


def test_log_target(data, log_target):
    X = data.X_new
    network = log_target.regressor_
    interval = predict_interval(log_target, X)
    np.testing.assert_allclose(interval, np.exp(network.predict_interval(X)), rtol=1e-9)
    median = predict_quantile(log_target, X, 0.5)
    assert (interval > 0).all()
    # Skewed to the right: the upper part of the interval is longer.
    assert (interval[:, 1] - median > median - interval[:, 0]).all()
    assert_samples_match_quantiles(log_target, X)
    assert (sample_y(log_target, X, 50) > 0).all()
    assert (predict_uncertainty(log_target, X) > 0).all()


def test_density_through_a_log_target(data, log_target):
    """The change of variables is exact, and the density integrates to one."""
    X, y = data.X_new, np.exp(data.y_new - 3)
    density = log_predictive_density(log_target, X, y)
    np.testing.assert_allclose(
        density,
        log_target.regressor_.log_predictive_density(X, np.log(y)) - np.log(y),
        rtol=1e-7,  # the slope is a central difference with relative steps of 1e-6
        atol=1e-7,
    )
    ends = predict_quantile(log_target, X[:1], [1e-9, 1 - 1e-9])[0]
    grid = np.geomspace(*ends, 4001)
    values = np.exp(
        log_predictive_density(log_target, np.repeat(X[:1], len(grid), axis=0), grid)
    )
    # Trapezoidal rule in log y over all but 2e-9 of the mass.
    assert np.trapezoid(values * grid, np.log(grid)) == pytest.approx(1, abs=1e-5)
    outside = log_predictive_density(log_target, X[:2], np.array([-1.0, 2.0]))
    assert outside[0] == -np.inf and np.isfinite(outside[1])


def test_moments_through_a_log_target(data):
    """Moments of one log-normal distribution in closed form."""
    model = TransformedTargetRegressor(
        regressor(dropout=0.0, tau=4.0), func=np.log, inverse_func=np.exp
    ).fit(data.X, data.positive)
    mean, std = model.regressor_.predict(data.X_new, return_std=True)
    parts = predict_uncertainty(model, data.X_new, kind="all")
    expected = np.exp(mean + std**2 / 2) * np.sqrt(np.expm1(std**2))
    # 15 Gauss-Hermite nodes for exp(y) and its square.
    np.testing.assert_allclose(parts["aleatoric"], expected, rtol=1e-4)
    np.testing.assert_allclose(parts["epistemic"], 0, atol=1e-12)
    # CRPS by the steps of the quadrature nodes against many samples.
    y = np.exp(data.y_new - 3)
    samples = np.exp(
        mean[:, None] + std[:, None] * data.random.standard_normal((NEW, 4000))
    )
    by_samples = np.abs(samples - y[:, None]).mean(1) - 0.5 * np.abs(
        samples[:, :2000] - samples[:, 2000:]
    ).mean(1)
    # The steps of the quadrature cost a few per cent of the spread; samples cost less.
    np.testing.assert_allclose(
        crps(model, data.X_new, y), by_samples, atol=0.1 * expected.max()
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_linear_target_transform(data, sign):
    """For either sign of the slope the network's predictive is shifted and scaled."""
    transform = FunctionTransformer(
        func=lambda y: sign * 2 * y + 1, inverse_func=lambda z: sign * (z - 1) / 2
    )
    model = TransformedTargetRegressor(regressor(), transformer=transform)
    model.fit(data.X, data.y)
    network, X = model.regressor_, data.X_new
    for kind in ("total", "epistemic", "aleatoric"):
        np.testing.assert_allclose(
            predict_uncertainty(model, X, kind),
            network.predict_uncertainty(X, kind) / 2,
            rtol=1e-9,
        )
    inner = sign * (network.predict_interval(X) - 1) / 2
    np.testing.assert_allclose(predict_interval(model, X), inner[:, ::sign], rtol=1e-9)
    np.testing.assert_allclose(
        log_predictive_density(model, X, data.y_new),
        network.log_predictive_density(X, sign * 2 * data.y_new + 1) + np.log(2),
        rtol=1e-6,
        atol=1e-6,
    )
    assert_samples_match_quantiles(model, X)


def test_scaled_targets(data):
    """Several targets, one of them large: slopes are computed target by target."""
    Y = data.Y * [1e-6, 1e6]
    model = TransformedTargetRegressor(regressor(), transformer=StandardScaler())
    model.fit(data.X, Y)
    scaler = model.transformer_
    assert predict_interval(model, data.X_new).shape == (11, 2, 2)
    density = log_predictive_density(model, data.X_new, Y[:11])
    np.testing.assert_allclose(
        density,
        model.regressor_.log_predictive_density(data.X_new, scaler.transform(Y[:11]))
        - np.log(scaler.scale_).sum(),
        rtol=1e-6,
    )
    # A row's density does not depend on other rows; also at y = 0.
    zeros = np.zeros((NEW, 2))
    np.testing.assert_allclose(
        log_predictive_density(model, data.X_new, zeros),
        model.regressor_.log_predictive_density(data.X_new, scaler.transform(zeros))
        - np.log(scaler.scale_).sum(),
        rtol=1e-6,
    )


def test_target_transform_within_a_target_transform(data):
    inner = TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp)
    model = TransformedTargetRegressor(
        inner, func=lambda y: y / 1000, inverse_func=lambda y: y * 1000
    ).fit(data.X, data.positive * 1000)
    plain = clone(inner).fit(data.X, data.positive)
    # (1000 y) / 1000 is y to rounding, grown by 20 steps.
    np.testing.assert_allclose(
        predict_interval(model, data.X_new),
        1000 * predict_interval(plain, data.X_new),
        rtol=1e-6,
    )
    y = np.exp(data.y_new - 3)
    np.testing.assert_allclose(
        log_predictive_density(model, data.X_new, 1000 * y),
        log_predictive_density(plain, data.X_new, y) - np.log(1000),
        rtol=1e-6,
        atol=1e-6,
    )


def test_target_transforms_inside_of_several_outputs_are_refused(data):
    log_target = TransformedTargetRegressor(
        regressor(), func=np.log, inverse_func=np.exp
    )
    model = MultiOutputRegressor(log_target).fit(data.X, np.exp(data.Y / 20))
    with pytest.raises(TypeError, match=r"around it, not inside"):
        predict_interval(model, data.X_new)


# ---- nested


def test_search_of_a_pipeline_of_a_target_transform(data):
    model = GridSearchCV(
        make_pipeline(
            StandardScaler(),
            TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp),
        ),
        {"transformedtargetregressor__regressor__dropout": [0.05, 0.3]},
        scoring=log_density_scorer,
        cv=2,
    ).fit(data.X, data.positive)
    scaler, target = model.best_estimator_
    inner_X = scaler.transform(data.X_new)
    np.testing.assert_allclose(
        predict_interval(model, data.X_new),
        np.exp(target.regressor_.predict_interval(inner_X)),
        rtol=1e-9,
    )
    assert_samples_match_quantiles(model, data.X_new)


def test_blocks_of_rows_do_not_change_predictions(data, monkeypatch):
    model = make_pipeline(StandardScaler(), regressor()).fit(data.X, data.y)
    X, y = data.X_new, data.y_new
    whole = [
        predict_uncertainty(model, X),
        predict_interval(model, X),
        log_predictive_density(model, X, y),
        crps(model, X, y),
    ]
    monkeypatch.setattr(skbayesnn._predictive.blocks, "BLOCK", 3)
    for value, function, arguments in zip(
        whole,
        (predict_uncertainty, predict_interval, log_predictive_density, crps),
        ((), (), (y,), (y,)),
        strict=True,
    ):
        np.testing.assert_allclose(function(model, X, *arguments), value, rtol=1e-9)
    # Blocks share their draws: with almost no noise (std 1e-4) the same row has the
    # same samples in each block, though samples differ from draw to draw.
    model.set_params(mcdropoutregressor__tau=1e8).fit(data.X, data.y)
    same = sample_y(model, np.repeat(X[:1], 8, axis=0), 17, random_state=SEED)
    assert np.ptp(same, axis=0).max() < 2e-3 < np.ptp(same, axis=1).min()


@pytest.mark.parametrize("random_state", [3, None, np.random.RandomState(3)])
def test_random_state_of_samples(data, random_state):
    model = make_pipeline(StandardScaler(), regressor()).fit(data.X, data.y)
    assert sample_y(model, data.X_new, 5, random_state).shape == (11, 5)
    if random_state == 3:
        first, second = (sample_y(model, data.X_new, 5, 3) for _ in range(2))
        np.testing.assert_array_equal(first, second)


# ---- metadata routing


def test_weights_reach_the_network(data):
    weights = np.arange(ROWS) % 4
    with sklearn.config_context(enable_metadata_routing=True):
        network = regressor().set_fit_request(sample_weight=True)
        scorer = make_scorer(r2_score).set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        model = GridSearchCV(
            make_pipeline(scaler, network),
            {"mcdropoutregressor__tau": [1.0, 4.0]},
            scoring=scorer,
            cv=KFold(2),
        ).fit(data.X, data.y, sample_weight=weights)
        present = weights > 0
        absent = clone(model.best_estimator_).fit(
            data.X[present], data.y[present], sample_weight=weights[present]
        )
    np.testing.assert_allclose(
        predict_uncertainty(model, data.X_new),
        predict_uncertainty(absent, data.X_new),
        rtol=1e-7,  # sums over other rows: rounding, grown by 20 steps
    )
    assert model.best_estimator_[-1].total_weight_ == weights.sum()


# ---- errors


POSSIBLE = "a predictive distribution needs .*Pipeline.*RFE.*TransformedTarget"


@pytest.mark.parametrize(
    "function",
    [predict_uncertainty, predict_interval, sample_y],
    ids=lambda function: function.__name__,
)
def test_estimators_without_a_predictive(data, function):
    for model in (
        LinearRegression(),
        RandomForestRegressor(3, random_state=SEED),
        make_pipeline(StandardScaler(), Ridge()),
    ):
        model.fit(data.X, data.y)
        with pytest.raises(TypeError, match=POSSIBLE + ".* got [A-Z]"):
            function(model, data.X_new)
    with pytest.raises(TypeError, match="got LinearRegression"):
        function(LinearRegression().fit(data.X, data.y), data.X_new)


def test_unfitted(data):
    for model in (
        make_pipeline(StandardScaler(), regressor()),
        GridSearchCV(regressor(), {"tau": [1.0]}),
        TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp),
    ):
        with pytest.raises(NotFittedError):
            predict_uncertainty(model, data.X_new)


def test_intervals_of_a_classifier(data):
    models = [
        classifier(),
        make_pipeline(StandardScaler(), classifier()),
    ]
    for model in models:
        model.fit(data.X, data.labels)
        with pytest.raises(
            TypeError, match=r"`predict_interval` needs a regressor; .*predict_proba"
        ):
            predict_interval(model, data.X_new)
        with pytest.raises(TypeError, match="`crps` needs a regressor"):
            crps(model, data.X_new, np.zeros(NEW))


def test_unknown_kind(data):
    model = make_pipeline(StandardScaler(), regressor()).fit(data.X, data.y)
    with pytest.raises(ValueError, match="`kind` must be 'all' or among 'total'"):
        predict_uncertainty(model, data.X_new, kind="entropy")


def test_wrong_number_of_targets(data):
    """They are refused as by the network; y is not broadcast."""
    model = make_pipeline(StandardScaler(), regressor()).fit(data.X, data.Y)
    for function in (log_predictive_density, predictive_cdf, crps):
        with pytest.raises(ValueError, match="the 2 targets of the fit; got 1"):
            function(model, data.X_new, data.y_new)
        with pytest.raises(ValueError, match="NaN"):
            function(model, data.X_new, np.full((NEW, 2), np.nan))
    with pytest.raises(ValueError, match=r"minimum of 1|at least one row"):
        predict_uncertainty(model, data.X_new[:0])


def test_wrong_number_of_rows(data):
    model = regressor().fit(data.X, data.y)
    for function in (log_predictive_density, crps):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            function(model, data.X_new, data.y)
