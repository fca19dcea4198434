"""Predictive distributions as objects."""

import inspect
import pickle

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn import (
    Abstainer,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    PredictiveDistribution,
    predict_distribution,
    predict_uncertainty,
)
from skbayesnn.model_selection import BatchedGridSearchCV
from tests.helpers.linear_gaussian import LinearGaussian

SMALL = {"hidden_layer_sizes": (7,), "dropout": 0.2, "max_iter": 2, "random_state": 0}
LEVELS = [0.05, 0.5, 0.8]


@pytest.fixture
def table(seed):
    """X (41, 3), y, labels of three classes, and counts."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(41, 3))
    y = 5 + 3 * X[:, 0] + random.normal(size=41)
    labels = np.array(["c", "a", "b"])[random.permutation(41) % 3]
    return X, y, labels, random.poisson(np.exp(0.3 * X[:, 0]))


@pytest.fixture
def gaussian(table):
    """A regressor with one normal distribution per row, and its distributions."""
    X, y, *_ = table
    model = LinearGaussian(uneven=0.1).fit(X, y)
    std = model.std_[0] * np.exp(0.1 * X[:, 0])
    return model.predict_distribution(X), stats.norm(model.predict(X), std), y


def test_methods_equal_scipys(gaussian):
    actual, expected, y = gaussian
    for name in ("mean", "std", "var", "median"):
        np.testing.assert_allclose(getattr(actual, name)(), getattr(expected, name)())
    for name in ("cdf", "sf", "pdf", "logpdf"):
        # The log density is a difference of terms of size 1.
        np.testing.assert_allclose(
            getattr(actual, name)(y), getattr(expected, name)(y), rtol=1e-9
        )
    for q, quantile in zip(LEVELS, actual.ppf(LEVELS).T, strict=True):
        # The quantile of a mixture is a root, found to 1e-8 of the spread.
        np.testing.assert_allclose(quantile, expected.ppf(q), rtol=1e-7, atol=1e-7)
    interval = actual.interval(0.8)
    np.testing.assert_allclose(interval.T, expected.interval(0.8), rtol=1e-7, atol=1e-7)
    assert actual.support() == (-np.inf, np.inf)
    assert len(actual) == 41


def test_expected_values(gaussian, table):
    actual, expected, _ = gaussian
    mean, std = expected.mean(), expected.std()
    # The fourth moment: quadrature is exact for polynomials.
    fourth = mean**4 + 6 * mean**2 * std**2 + 3 * std**4
    np.testing.assert_allclose(actual.expect(lambda y: y**4), fourth, rtol=1e-10)
    np.testing.assert_allclose(actual.expect(np.exp), np.exp(mean + std**2 / 2))
    # A kink: the error of 31 nodes is below 2 % of the standard deviation.
    z = (mean - 5) / std
    partial = std * (z * stats.norm.cdf(z) + stats.norm.pdf(z))
    above = actual.expect(lambda y: np.maximum(y - 5, 0))
    assert (abs(above - partial) < 0.02 * std).all()
    with pytest.raises(ValueError, match="`function` must return one value for each"):
        actual.expect(lambda y: y.sum())


def test_expected_values_of_counts(table):
    X, _, _, counts = table
    model = MCDropoutRegressor(likelihood="poisson", **SMALL | {"max_iter": 100})
    distribution = model.fit(X, counts).predict_distribution(X)
    k = np.arange(distribution.ppf(1 - 1e-9).max() + 1)
    cdf = np.stack([distribution.cdf(np.full(41, i)) for i in k])
    probability = np.diff(cdf, axis=0, prepend=0)
    for function in (np.sqrt, lambda k: np.maximum(k - 1, 0)):
        exact = probability.T @ function(k)
        # 200 quantiles cut off a part of the tails.
        error = abs(distribution.expect(function) - exact)
        assert (error < 0.02 * distribution.std()).all()
    assert distribution.support() == (0, np.inf)


def test_support_of_a_target_transform(table):
    X, y, *_ = table
    model = TransformedTargetRegressor(
        MCDropoutRegressor(**SMALL), func=np.log, inverse_func=np.exp
    ).fit(X, np.exp(0.1 * y))
    low, high = predict_distribution(model, X).support()
    assert (low, high) == (0, np.inf)
    mean = predict_distribution(model, X).expect(lambda y: y)
    np.testing.assert_allclose(mean, predict_distribution(model, X).mean(), rtol=1e-6)


def methods_and_names(model, y):
    """Results of predictive methods, and of the distribution's methods."""
    pairs = [
        (("predict_uncertainty", "all"), ("uncertainty", "all")),
        (("sample_y", 3, 1), ("rvs", 3, 1)),
        (("sample_f", 2, 1), ("functions", 2, 1)),
        (("log_predictive_density", y), ("logpdf", y)),
    ]
    if y.dtype.kind == "U":
        return pairs
    return [
        *pairs,
        (("predict_quantile", LEVELS), ("ppf", LEVELS)),
        (
            ("predict_interval", 0.7, "highest_density"),
            ("interval", 0.7, "highest_density"),
        ),
        (("predictive_cdf", y), ("cdf", y)),
        (("crps", y), ("crps", y)),
    ]


def test_every_model_has_one(table):
    """Methods, functions and the object return the same bits."""
    X, y, labels, _ = table
    network = MCDropoutRegressor(n_draws=9, **SMALL)
    models = [
        network,
        BayesianStackingRegressor([("network", network)], random_state=0, cv=2),
        CalibratedUncertaintyRegressor(network, cv=2),
        make_pipeline(StandardScaler(), network),
        BatchedGridSearchCV(network, {"tau": [1.0, 2.0]}, cv=2),
        TransformedTargetRegressor(network, transformer=StandardScaler()),
        MCDropoutClassifier(**SMALL),
        make_pipeline(StandardScaler(), MCDropoutClassifier(**SMALL)),
    ]
    for model in models:
        target = labels if "Classifier" in repr(model) else y
        model.fit(X, target)
        distribution = predict_distribution(model, X)
        assert isinstance(distribution, PredictiveDistribution)
        for (function, *arguments), (name, *others) in methods_and_names(model, target):
            expected = getattr(skbayesnn, function)(model, X, *arguments)
            actual = getattr(distribution, name)(*others)
            if isinstance(expected, dict):
                assert expected.keys() == actual.keys()
                expected, actual = (np.stack([*v.values()]) for v in (expected, actual))
            np.testing.assert_array_equal(actual, expected, err_msg=f"{model} {name}")
        if hasattr(model, "predict_distribution"):
            again = model.predict_distribution(X).rvs(2)
            np.testing.assert_array_equal(again, distribution.rvs(2))


def test_mean_and_std_are_those_of_predict(table):
    X, y, labels, _ = table
    model = MCDropoutRegressor(**SMALL).fit(X.astype("f"), y)
    mean, std = model.predict(X.astype("f"), return_std=True)
    distribution = model.predict_distribution(X.astype("f"))
    np.testing.assert_array_equal(distribution.mean(), mean)
    np.testing.assert_array_equal(distribution.std(), std)
    total = np.hypot(distribution.epistemic(), distribution.aleatoric())
    np.testing.assert_allclose(total, std, rtol=1e-6)
    classifier = MCDropoutClassifier(**SMALL).fit(X, labels)
    classes = classifier.predict_distribution(X)
    np.testing.assert_array_equal(classes.proba(), classifier.predict_proba(X))
    np.testing.assert_allclose(
        classes.entropy(), classes.epistemic() + classes.aleatoric(), rtol=1e-9
    )


def test_expected_cost_of_classes(table):
    X, _, labels, _ = table
    distribution = MCDropoutClassifier(**SMALL).fit(X, labels).predict_distribution(X)
    cost = np.array([[0.0, 5.0], [1.0, 2.0], [4.0, 0.0]])
    proba = distribution.proba()
    np.testing.assert_allclose(distribution.expect(cost), proba @ cost)
    np.testing.assert_allclose(distribution.expect(cost[:, 1]), proba @ cost[:, 1])
    assert distribution.classes.tolist() == ["a", "b", "c"]
    code = np.searchsorted(distribution.classes, labels)
    np.testing.assert_allclose(distribution.pmf(labels), proba[np.arange(41), code])
    with pytest.raises(ValueError, match="`cost` must have 3 rows"):
        distribution.expect(cost[:2])


def test_rows_are_selected_as_in_numpy(table):
    X, y, *_ = table
    model = MCDropoutRegressor(**SMALL).fit(X, y)
    distribution = model.predict_distribution(X)
    mean = distribution.mean()
    for rows in (3, -1, slice(2, 9, 3), [5, 1, 5], X[:, 0] > 0, np.arange(0)):
        part = distribution[rows]
        expected = np.atleast_1d(mean[rows])
        assert len(part) == len(expected)
        if len(part):
            np.testing.assert_allclose(part.mean(), expected, rtol=1e-12)
    with pytest.raises(IndexError):
        distribution[41]
    with pytest.raises(ValueError, match="at least one row"):
        distribution[:0].mean()


def test_concatenation_of_different_models(table):
    X, y, labels, _ = table
    kinds = MCDropoutRegressor(n_draws=5, **SMALL), LinearGaussian(deviation=0.5)
    parts = [model.fit(X, y).predict_distribution(X[:7]) for model in kinds]
    joined = PredictiveDistribution.concatenate(parts)
    assert len(joined) == 14
    twice = np.concatenate([y[:7], y[:7]])
    for name, arguments in (
        ("mean", ()),
        ("ppf", (LEVELS,)),
        ("crps", (twice,)),
        ("logpdf", (twice,)),
    ):
        arrays = [a[:7] if a is twice else a for a in arguments]
        expected = np.concatenate([getattr(p, name)(*arrays) for p in parts])
        np.testing.assert_array_equal(getattr(joined, name)(*arguments), expected)
    assert joined.rvs(6).shape == (14, 6)
    order = np.random.default_rng(0).permutation(14)
    np.testing.assert_allclose(joined[order].std(), joined.std()[order], rtol=1e-12)
    classes = MCDropoutClassifier(**SMALL).fit(X, labels).predict_distribution(X)
    for wrong in ([*parts, classes], []):
        with pytest.raises(TypeError, match="`parts` must be predictive distributions"):
            PredictiveDistribution.concatenate(wrong)


def test_concatenated_classes_must_be_equal(table):
    X, _, labels, _ = table
    model, some = MCDropoutClassifier(**SMALL), labels != "a"
    parts = [
        clone(model).fit(X, labels).predict_distribution(X),
        clone(model).fit(X[some], labels[some]).predict_distribution(X),
    ]
    assert len(PredictiveDistribution.concatenate([parts[0]] * 2).proba()) == 82
    with pytest.raises(ValueError, match="`parts` must have the same classes"):
        PredictiveDistribution.concatenate(parts)


def test_the_column_of_a_frame_has_the_name_of_the_default_kind(table):
    pytest.importorskip("pandas")
    X, y, labels, _ = table
    for model, target, name in (
        (MCDropoutRegressor(**SMALL), y, "total"),
        (MCDropoutClassifier(**SMALL), labels, "entropy"),
    ):
        frame = model.fit(X, target).predict_uncertainty(X, as_frame=True)
        assert list(frame.columns) == [name]


def test_later_fits_change_nothing(table):
    X, y, *_ = table
    model = MCDropoutRegressor(**SMALL).fit(X, y)
    distribution = model.predict_distribution(X)
    before = distribution.ppf(0.3)
    model.set_params(max_iter=4).fit(X, -y)
    np.testing.assert_array_equal(distribution.ppf(0.3), before)


def test_a_pickle_has_the_same_results(table):
    X, y, *_ = table
    pipeline = make_pipeline(StandardScaler(), MCDropoutRegressor(**SMALL)).fit(X, y)
    distribution = predict_distribution(pipeline, X)
    expected = distribution.interval()
    loaded = pickle.loads(pickle.dumps(distribution))
    np.testing.assert_array_equal(loaded.interval(), expected)


def test_models_without_one_and_invalid_rows(table):
    X, y, labels, _ = table
    with pytest.raises(NotFittedError):
        MCDropoutRegressor().predict_distribution(X)
    model = MCDropoutRegressor(**SMALL).fit(X, y)
    with pytest.raises(ValueError, match="has 2 features"):
        model.predict_distribution(X[:, :2])
    with pytest.raises(TypeError, match="got the file 'a"):
        model.predict_distribution("a.parquet")
    abstainer = Abstainer(model, threshold=1.0).fit(X, y)
    all_rows = predict_distribution(abstainer, X).mean()
    np.testing.assert_array_equal(all_rows, abstainer.estimator_.predict(X))
    conformal = ConformalRegressor(model, method="cv+", cv=2).fit(X, y)
    with pytest.raises(TypeError, match="use its `predict_distribution`"):
        predict_uncertainty(conformal, X)
    with pytest.raises(TypeError, match="a predictive distribution needs"):
        predict_distribution(RandomForestRegressor(2, random_state=0).fit(X, y), X)
    distribution = model.predict_distribution(X)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        distribution.cdf(y[:5])
    classes = MCDropoutClassifier(**SMALL).fit(X, labels).predict_distribution(X)
    with pytest.raises(ValueError, match="must be among the model's classes"):
        classes.pmf(np.full(41, "d"))


def test_docstrings_of_functions_name_the_model():
    """They are the docstrings of the methods, and name every parameter."""
    for name in ("predict_distribution", "crps", "sample_y", "predict_uncertainty"):
        function = getattr(skbayesnn, name)
        doc = inspect.getdoc(function)
        for parameter in inspect.signature(function).parameters:
            assert f"\n{parameter}" in doc or f", {parameter}" in doc, (name, parameter)
