"""`dtype`: the precision of the training, whatever the dtype of X.

Predictions have the dtype of X. scikit-learn's checks use the default, float32
(`test_check_estimator.py`); most other tests use float64, to compare up to rounding.
"""

import copy
from inspect import isclass, signature

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import skbayesnn
import skbayesnn.model_selection
from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
)
from tests.helpers.pairwise import pairwise
from tests.helpers.posteriors import CASES, MC_DROPOUT, Case

DTYPES = ["float32", "float64"]
# float32 has seven digits, for values of order one.
SINGLE = {"rtol": 1e-5, "atol": 1e-5}

# The precision is a single code path. These cases draw from every distribution, have
# the prior of each estimator, and every kind of network.
CHOSEN = [
    Case("bernoulli", False),
    Case("concrete", True),
    Case("sampled spike and slab", False),
    Case("type A, weight", True),
    Case("sequences, mean field", False),
    Case("images, channels", True),
    Case("anchored", False),
]
parametrize_chosen = pytest.mark.parametrize("case", CHOSEN, ids=str)


@pytest.fixture(scope="module")
def few(small):
    """Parameters of a network that is trained for a few steps, without `dtype`."""
    few = small | {"hidden_layer_sizes": (6, 5), "max_iter": 3}
    return {name: value for name, value in few.items() if name != "dtype"}


def target(case, data):
    return data.labels if case.classifies else data.y


def dtypes_of(arrays):
    """Dtypes of the trained arrays, without rates and step counts."""
    trained = {n: v for n, v in arrays.items() if n not in ("keep", "step")}
    return {value.dtype.name for value in trained.values()}


def assert_same_parameters(actual, desired, **tolerance):
    assert actual.keys() == desired.keys()
    for name, value in desired.items():
        np.testing.assert_allclose(
            actual[name], value, err_msg=name, **tolerance or {"rtol": 0}
        )


# ---- which precision


def test_float32_is_the_default():
    """In every estimator with the parameter, which follows `device`."""
    wrong = []
    for module in (skbayesnn, skbayesnn.model_selection):
        for name in module.__all__:
            kind = getattr(module, name)
            parameters = signature(kind).parameters if isclass(kind) else {}
            if {"device", "dtype"} <= parameters.keys():
                names = list(parameters)
                before = names[names.index("dtype") - 1]
                default = parameters["dtype"].default
                if (before, default) != ("device", "float32"):
                    wrong.append(f"{name}: dtype={default!r} after {before}")
    assert not wrong, wrong


@parametrize_chosen
def test_default_dtype_does_not_depend_on_x(case, data, few):
    """Of parameters and the moments of Adam, by default."""
    for X_dtype in DTYPES:
        model = case.model(**few).fit(data.X.astype(X_dtype), target(case, data))
        for arrays in (model.parameters_, model.optimizer_):
            assert dtypes_of(arrays) == {"float32"}
        assert np.isfinite(model.loss_curve_).all()


@pytest.mark.parametrize(
    ("case", "X_dtype", "dtype"), pairwise(CHOSEN, DTYPES, DTYPES), ids=str
)
def test_predictions_have_the_dtype_of_x(case, data, few, X_dtype, dtype):
    """Whatever the dtype of the training and of the training rows."""
    X, y = data.X.astype(X_dtype), target(case, data)
    model = case.model(dtype=dtype, **few).fit(X, y)
    assert dtypes_of(model.parameters_) == {dtype}
    for new_dtype in DTYPES:
        X_new = data.X_new.astype(new_dtype)
        if case.classifies:
            predictions = [model.predict_proba(X_new), model.predict_log_proba(X_new)]
        else:
            predictions = [
                *model.predict(X_new, return_std=True),
                *model.predict_uncertainty(X_new, kind="all").values(),
                model.predict_interval(X_new),
                model.sample_y(X_new, 2),
            ]
        predictions.append(model.sample_f(X_new, 2))
        assert {values.dtype.name for values in predictions} == {new_dtype}
        assert all(np.isfinite(values).all() for values in predictions)
    # The same but for rounding in float32: six digits of sums of some ten terms of
    # order one (in y's std).
    method = "predict_proba" if case.classifies else "predict"
    single, double = (
        getattr(model, method)(data.X_new.astype(new_dtype)) for new_dtype in DTYPES
    )
    np.testing.assert_allclose(double, single, rtol=1e-4, atol=1e-4 * data.y.std())


@pytest.mark.parametrize(("case", "dtype"), pairwise(CHOSEN, DTYPES), ids=str)
def test_training_depends_on_the_values_of_x_alone(case, data, few, dtype):
    """The same values in another dtype give exactly the same training."""
    X, y = data.X.astype(np.float32), target(case, data)
    model = case.model(dtype=dtype, standardize=False, **few)
    single, double = (clone(model).fit(X.astype(X_dtype), y) for X_dtype in DTYPES)
    assert_same_parameters(single.parameters_, double.parameters_)
    assert single.loss_curve_ == double.loss_curve_


@parametrize_chosen
def test_same_random_state_gives_the_same_model(case, data, few):
    y = target(case, data)
    model = case.model(batch_size=17, **few)
    first, second = (clone(model).fit(data.X, y) for _ in range(2))
    assert_same_parameters(second.parameters_, first.parameters_)
    assert second.loss_curve_ == first.loss_curve_


# ---- comparison of both precisions


def agree(actual, desired):
    """Which parameters agree, up to the rounding of float32."""
    parts = [
        np.isclose(actual[name], value, **SINGLE) for name, value in desired.items()
    ]
    return np.concatenate([part.ravel() for part in parts])


# Normal random numbers depend on the precision of the training; dropout masks and
# rounding do not.
WITH_MASKS = [c for c in CASES if c.name in ("bernoulli", "some layers")]


@pytest.mark.parametrize("case", WITH_MASKS, ids=str)
def test_both_precisions_agree_up_to_rounding(case, data, few):
    """A few steps with the same seed agree to the digits of float32."""
    y = target(case, data)
    for batch_size in ("auto", 17):
        model = case.model(batch_size=batch_size, n_estimators=2, **few)
        single, double = (
            clone(model).set_params(dtype=dtype).fit(data.X, y) for dtype in DTYPES
        )
        # If a gradient is next to zero, Adam's step depends on its last digits.
        assert np.mean(agree(single.parameters_, double.parameters_)) > 0.95
        np.testing.assert_allclose(single.loss_curve_, double.loss_curve_, rtol=1e-4)
        # The precisions differ.
        assert single.loss_curve_ != double.loss_curve_
        method = "predict_proba" if case.classifies else "predict"
        unit = 1.0 if case.classifies else data.y.std()
        np.testing.assert_allclose(
            getattr(single, method)(data.X_new) / unit,
            getattr(double, method)(data.X_new) / unit,
            atol=1e-3,
        )


@parametrize_chosen
def test_both_precisions_have_the_same_initial_weights(case, data, few):
    """Up to rounding: the learning rate is next to zero."""
    still = few | {"max_iter": 1, "learning_rate_init": 1e-12}
    single, double = (
        case.model(dtype=dtype, **still).fit(data.X, target(case, data))
        for dtype in DTYPES
    )
    assert_same_parameters(single.parameters_, double.parameters_, **SINGLE)


@parametrize_chosen
def test_both_precisions_agree_in_distribution(case, data, few):
    """Losses of 24 networks agree within their standard error, in every epoch."""
    single, double = (
        case.model(dtype=dtype, n_estimators=24, **few)
        .set_params(max_iter=20)
        .fit(data.X, target(case, data))
        .history_["loss"]
        for dtype in DTYPES
    )
    error = np.sqrt((single.var(1, ddof=1) + double.var(1, ddof=1)) / 24)
    # Beyond 6.5 about once in 10^7 (Student's t, 46 degrees of freedom).
    assert (np.abs(single.mean(1) - double.mean(1)) < 6.5 * error).all()


@pytest.mark.parametrize("kind", MC_DROPOUT)
@pytest.mark.parametrize(
    "container", [np.asarray, sparse.csr_array], ids=["dense", "csr"]
)
def test_columns_are_scaled_in_float64(data, few, kind, container):
    """Values far from zero, which are equal in float32."""
    model = kind(**few)
    y = data.y if kind is MCDropoutRegressor else data.labels
    plain = clone(model).fit(data.X, y)
    shift = np.array([1e6, -2e6, 0.0, 3e6])
    moved = clone(model)
    if kind is MCDropoutRegressor:
        moved.fit(container(data.X + shift), data.y + 1e6)
        actual = moved.predict(data.X_new + shift) - 1e6
        np.testing.assert_allclose(actual, plain.predict(data.X_new), atol=1e-3)
    else:
        moved.fit(container(data.X + shift), data.labels)
        np.testing.assert_allclose(
            moved.predict_proba(data.X_new + shift),
            plain.predict_proba(data.X_new),
            atol=1e-3,
        )
    assert np.mean(agree(moved.parameters_, plain.parameters_)) > 0.95


REGRESSORS = [
    MCDropoutRegressor,
    BBBRegressor,
    VariationalDropoutRegressor,
    AnchoredEnsembleRegressor,
    VariationalGPRegressor,
]


def predictions_of(model, X):
    """Predictions of a regressor, by name; all but stds are in the position of y."""
    mean, std = model.predict(X, return_std=True)
    return {
        "predict": mean,
        "std": std,
        "mean_weights": model.predict(X, method="mean_weights"),
        "cov": model.predict(X, return_cov=True)[1],
        "uncertainty": model.predict_uncertainty(X, "epistemic"),
        "interval": model.predict_interval(X),
        "quantile": model.predict_quantile(X, [0.2, 0.7]),
        "sample_f": model.sample_f(X, 3),
        "sample_y": model.sample_y(X, 3),
    }


@pytest.mark.filterwarnings("ignore:on the training rows the network is far worse")
@pytest.mark.parametrize("shift", [2.0**31, -1e7, 1.0])
def test_predictions_of_single_precision_resolve_y(data, shift):
    """float32 X gives float32 predictions, but float64 if float32 would round them.

    2^31 is a time in seconds: neighbours in float32 are 256 apart, and the std of y is
    2.
    """
    X, y = data.X.astype(np.float32), data.y + shift
    expected = np.float32 if shift == 1 else np.float64
    wrong = []
    for kind in REGRESSORS:
        model = kind(max_iter=2, n_draws=7, random_state=0).fit(X, y)
        single = predictions_of(model, data.X_new.astype(np.float32))
        double = predictions_of(model, data.X_new.astype(np.float32).astype(float))
        for name, values in single.items():
            # Seven digits of the network's outputs, and of y in float32.
            error = np.abs(values - double[name]).max() / model.y_scale_[0]
            if name == "sample_y":  # its random numbers depend on the precision
                error = 1.0 - len(np.unique(values)) / values.size
            if values.dtype != expected or error > 1e-4:
                wrong.append((kind.__name__, name, values.dtype.name, error))
    assert not wrong


def test_covariances_that_overflow_float32_are_float64(data, few):
    """1e20 squared is infinite in float32."""
    X = data.X.astype(np.float32)
    for unit in (1e20, 1e-20):
        model = MCDropoutRegressor(**few).fit(X, data.y * unit)
        mean, cov = model.predict(X, return_cov=True)
        assert mean.dtype == cov.dtype == np.float64
        assert np.isfinite(cov).all()
        assert (cov > 0).all()


# ---- continued training


@pytest.mark.parametrize(
    ("case", "change", "method"),
    pairwise(CHOSEN, [DTYPES, DTYPES[::-1]], ["warm_start", "partial_fit"]),
    ids=str,
)
def test_continued_training_in_another_precision(
    case, data, few, change, method, taken
):
    """With the present weights and moments: the learning rate is next to zero."""
    y = target(case, data)
    before, after = change
    model = case.model(dtype=before, warm_start=True, **few)
    model.partial_fit(data.X, y, n_epochs=1)
    old = copy.deepcopy(model)
    model.set_params(dtype=after, max_iter=1, learning_rate_init=1e-12)
    if method == "warm_start":
        model.fit(data.X, y)
    else:
        model.partial_fit(data.X, y, n_epochs=1)
    assert dtypes_of(model.parameters_) == dtypes_of(model.optimizer_) == {after}
    # The noise variance of predictions is estimated again after the training. The gain
    # of noise that depends on the row follows the schedule.
    changed = "likelihood/log_factor", "likelihood/gain"
    trained, expected = (
        {n: v for n, v in fit.parameters_.items() if n not in changed}
        for fit in (model, old)
    )
    assert_same_parameters(trained, expected, **SINGLE)
    assert model.optimizer_["step"] == (1 if method == "warm_start" else 2)
    assert model.n_epochs_seen_ == 2
    assert dtypes_of(old.parameters_) == {before}
