"""Out-of-fold predictions: batched training equals single fits."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skbayesnn
from skbayesnn import CalibratedUncertaintyRegressor
from skbayesnn.model_selection import cross_val_predict_uncertainty as out_of_fold
from tests.helpers.comparison import SEED, classifier, regressor
from tests.helpers.searches import STOPPING

# 47 rows give folds of two sizes. They are shuffled, so that positions matter.
FOLDS = KFold(3, shuffle=True, random_state=SEED)
FUNCTIONS = {
    "predict_uncertainty": (
        {},
        {"kind": "epistemic"},
        {"kind": ["total", "aleatoric"]},
    ),
    "predict_interval": ({}, {"coverage": [0.5, 0.8]}, {"kind": "highest_density"}),
    "predict_quantile": ({"q": 0.3}, {"q": [0.1, 0.6]}),
    "predictive_cdf": ({},),
    "log_predictive_density": ({},),
    "crps": ({},),
}
FUNCTIONS_OF_Y = {"predictive_cdf", "log_predictive_density", "crps"}


def by_single_fits(estimator, X, y, splits, method, options, weights=None):
    """The same by a fit and a call per fold."""
    result = None
    for train, test in splits:
        params = {} if weights is None else {"sample_weight": weights[train]}
        model = clone(estimator).fit(X[train], y[train], **params)
        arguments = (X[test], y[test]) if method in FUNCTIONS_OF_Y else (X[test],)
        values = getattr(skbayesnn, method)(model, *arguments, **options)
        values = values if isinstance(values, dict) else {"": values}
        if result is None:
            result = {
                k: np.full((len(X), *v.shape[1:]), np.nan) for k, v in values.items()
            }
        for name, value in values.items():
            result[name][test] = value
    return result


def assert_same(actual, expected):
    actual = actual if isinstance(actual, dict) else {"": actual}
    assert list(actual) == list(expected)
    for name, values in expected.items():
        # Rounding of sums in another order.
        np.testing.assert_allclose(actual[name], values, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", FUNCTIONS)
def test_batched_training_equals_single_fits(data, method, programs):
    splits = list(FOLDS.split(data.X))
    estimator = make_pipeline(StandardScaler(), regressor())
    for options in FUNCTIONS[method]:
        programs.clear()
        actual = out_of_fold(
            estimator, data.X, data.y, cv=FOLDS, method=method, **options
        )
        # Two folds have 31 training rows, one has 32.
        assert sorted(programs) == [1, 2]
        assert_same(
            actual, by_single_fits(estimator, data.X, data.y, splits, method, options)
        )


@pytest.mark.parametrize(
    "estimator",
    [
        TransformedTargetRegressor(regressor(), func=np.log1p, inverse_func=np.expm1),
        CalibratedUncertaintyRegressor(regressor(), cv=2),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_meta_estimators_are_fitted_separately(data, estimator):
    y = np.abs(data.y)
    splits = list(FOLDS.split(data.X))
    for method in ("predict_uncertainty", "crps"):
        actual = out_of_fold(estimator, data.X, y, cv=FOLDS, method=method)
        assert_same(actual, by_single_fits(estimator, data.X, y, splits, method, {}))


def test_several_targets_and_classes(data):
    splits = list(FOLDS.split(data.X))
    actual = out_of_fold(
        regressor(), data.X, data.Y, cv=FOLDS, method="predict_interval"
    )
    assert actual.shape == (47, 2, 2)
    assert_same(
        actual,
        by_single_fits(regressor(), data.X, data.Y, splits, "predict_interval", {}),
    )
    # An integer cv is stratified, as in scikit-learn.
    splits = list(StratifiedKFold(3).split(data.X, data.labels))
    for method in ("predict_uncertainty", "log_predictive_density"):
        actual = out_of_fold(classifier(), data.X, data.labels, cv=3, method=method)
        expected = by_single_fits(classifier(), data.X, data.labels, splits, method, {})
        assert_same(actual, expected)
    with pytest.raises(TypeError, match="needs a regressor"):
        out_of_fold(classifier(), data.X, data.labels, cv=3, method="predict_interval")


@pytest.mark.parametrize(
    "estimator", [regressor(), CalibratedUncertaintyRegressor(regressor(), cv=2)]
)
def test_groups_and_weights(data, estimator):
    """Without metadata routing, groups are for the splitter alone."""
    cv = GroupKFold(3)
    splits = list(cv.split(data.X, groups=data.groups))
    expected = by_single_fits(
        estimator, data.X, data.y, splits, "predict_uncertainty", {}, data.weights
    )
    actual = out_of_fold(
        estimator,
        data.X,
        data.y,
        cv=cv,
        groups=data.groups,
        params={"sample_weight": data.weights},
    )
    assert_same(actual, expected)


def test_routed_weights(data):
    cv = GroupKFold(3)
    splits = list(cv.split(data.X, groups=data.groups))
    params = {"sample_weight": data.weights, "groups": data.groups}
    with sklearn.config_context(enable_metadata_routing=True):
        network = regressor().set_fit_request(sample_weight=True, groups=False)
        model = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=False), network
        )
        actual = out_of_fold(model, data.X, data.y, cv=cv, params=params)
        expected = by_single_fits(
            model, data.X, data.y, splits, "predict_uncertainty", {}, data.weights
        )
        with pytest.raises(ValueError, match=r"params=\{'groups': ...\}"):
            out_of_fold(model, data.X, data.y, cv=cv, groups=data.groups)
    assert_same(actual, expected)


@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("step", ["", "mcdropoutregressor__"])
def test_groups_of_the_networks(data, routing, step):
    """Early stopping does not split groups; alone and in a pipeline."""
    cv, network, groups = GroupKFold(3), regressor(**STOPPING), data.groups
    model = make_pipeline(FunctionTransformer(), network) if step else network
    if routing:
        arguments = {"params": {"groups": groups}}
    else:
        arguments = {"groups": groups, "params": {f"{step}groups": groups}}
    with sklearn.config_context(enable_metadata_routing=routing):
        actual = out_of_fold(model, data.X, data.y, cv=cv, **arguments)
    expected = np.empty(47)
    for train, test in cv.split(data.X, groups=groups):
        network.fit(data.X[train], data.y[train], groups=groups[train])
        expected[test] = network.predict_uncertainty(data.X[test])
    assert_same(actual, {"": expected})
    without = out_of_fold(model, data.X, data.y, cv=cv, groups=groups)
    assert (actual != without).any()


def test_frames(data):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data.X, columns=list("abcd"), index=np.arange(47)[::-1])
    actual = out_of_fold(regressor(), frame, pandas.Series(data.y), cv=FOLDS)
    # Copies may have another memory layout, which changes the rounding of sums.
    np.testing.assert_allclose(
        actual, out_of_fold(regressor(), data.X, data.y, cv=FOLDS), rtol=1e-12
    )


def test_invalid_arguments_are_refused(data):
    def call(estimator=regressor(), **options):  # noqa: B008
        return out_of_fold(estimator, data.X, data.y, **{"cv": FOLDS} | options)

    with pytest.raises(ValueError, match=r"`method` must be .*'crps'.*got 'sample_y'"):
        call(method="sample_y")
    with pytest.raises(TypeError, match=r"among \['kind'\]; got \['coverage'\]"):
        call(coverage=0.5)
    with pytest.raises(ValueError, match=r"a partition, such as KFold\); got [1-9]"):
        call(cv=ShuffleSplit(2, random_state=SEED))
    with pytest.raises(TypeError, match="got Ridge"):
        call(Ridge())
    with pytest.raises(ValueError, match="`dropout`"):
        call(regressor(dropout=2.0))
