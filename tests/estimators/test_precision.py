"""`dtype`: float32 or float64 is the precision of the training, whatever X's own.

Predictions have X's. That float32 is the default is seen by scikit-learn's checks, too
(`test_check_estimator.py`); most other tests ask for float64, to compare to rounding.
"""

import copy
from inspect import isclass, signature

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import skbayesnn
from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
)
from tests.helpers.pairwise import pairwise
from tests.helpers.posteriors import CASES, HALF, MC_DROPOUT, Case

# Networks of a few units in a few epochs are worse than a straight line, of course.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the network explains:sklearn.exceptions.ConvergenceWarning"
)

DTYPES = ["float32", "float64"]
# float32 has seven digits, of numbers of order one.
SINGLE = {"rtol": 1e-5, "atol": 1e-5}

# The precision is one code path. These draw random numbers of every distribution, have
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
of_chosen = pytest.mark.parametrize("case", CHOSEN, ids=str)


@pytest.fixture(scope="module")
def few(small):
    """A few steps of a network without `dtype`."""
    few = small | {"hidden_layer_sizes": (6, 5), "max_iter": 3}
    return {name: value for name, value in few.items() if name != "dtype"}


def target(case, data):
    return data.labels if case.classifies else data.y


def dtypes_of(arrays):
    """Of what is trained; rates are given, and steps are counted."""
    numbers = {n: v for n, v in arrays.items() if n not in ("keep", "step")}
    return {value.dtype.name for value in numbers.values()}


def assert_same_parameters(actual, desired, **tolerance):
    assert actual.keys() == desired.keys()
    for name, value in desired.items():
        np.testing.assert_allclose(
            actual[name], value, err_msg=name, **tolerance or {"rtol": 0}
        )


# ---- which precision


def test_float32_is_the_default():
    """Of every estimator with the parameter, which comes right after the device."""
    wrong = []
    for module in (skbayesnn, skbayesnn.model_selection):
        for name in module.__all__:
            kind = getattr(module, name)
            parameters = signature(kind).parameters if isclass(kind) else {}
            if "dtype" in parameters:
                names = list(parameters)
                before = names[names.index("dtype") - 1]
                default = parameters["dtype"].default
                if (before, default) != ("device", "float32"):
                    wrong.append(f"{name}: dtype={default!r} after {before}")
    assert not wrong, wrong


@of_chosen
def test_float32_whatever_x_is(case, data, few):
    """Parameters, and the moments of Adam, by default."""
    for of_X in DTYPES:
        model = case.model(**few).fit(data.X.astype(of_X), target(case, data))
        for arrays in (model.parameters_, model.optimizer_):
            assert dtypes_of(arrays) == {"float32"}
        assert np.isfinite(model.loss_curve_).all()


@pytest.mark.parametrize(
    ("case", "of_X", "dtype"), pairwise(CHOSEN, DTYPES, DTYPES), ids=str
)
def test_predictions_have_the_precision_of_their_x(case, data, few, of_X, dtype):
    """Whatever that of the training was, and of its rows."""
    X, y = data.X.astype(of_X), target(case, data)
    model = case.model(dtype=dtype, **few).fit(X, y)
    assert dtypes_of(model.parameters_) == {dtype}
    for of_new in DTYPES:
        X_new = data.X_new.astype(of_new)
        if case.classifies:
            found = [model.predict_proba(X_new), model.predict_log_proba(X_new)]
        else:
            found = [
                *model.predict(X_new, return_std=True),
                *model.predict_uncertainty(X_new, kind="all").values(),
                model.predict_interval(X_new),
                model.sample_y(X_new, 2),
            ]
        found.append(model.sample_f(X_new, 2))
        assert {values.dtype.name for values in found} == {of_new}
        assert all(np.isfinite(values).all() for values in found)


@pytest.mark.parametrize(("case", "dtype"), pairwise(CHOSEN, DTYPES), ids=str)
def test_only_the_numbers_of_x_count(case, data, few, dtype):
    """The same numbers in another precision are the same training, bit by bit."""
    X, y = data.X.astype(np.float32), target(case, data)
    model = case.model(dtype=dtype, standardize=False, **few)
    one, other = (clone(model).fit(X.astype(of_X), y) for of_X in DTYPES)
    assert_same_parameters(one.parameters_, other.parameters_)
    assert one.loss_curve_ == other.loss_curve_


@of_chosen
def test_same_random_state_gives_the_same_bits(case, data, few):
    y = target(case, data)
    model = case.model(batch_size=17, **few)
    first, second = (clone(model).fit(data.X, y) for _ in range(2))
    assert_same_parameters(second.parameters_, first.parameters_)
    assert second.loss_curve_ == first.loss_curve_


# ---- what the precision changes: the last digits


def agree(one, other):
    """Which of all parameters do, to float32."""
    parts = [np.isclose(one[name], value, **SINGLE) for name, value in other.items()]
    return np.concatenate([part.ravel() for part in parts])


# Noise that is normal is drawn in the precision of the training, and is another one;
# what is dropped, and what is rounded, is the same.
OF_BITS = [c for c in CASES if c.name in ("bernoulli", "some layers")]


@pytest.mark.parametrize("case", OF_BITS, ids=str)
def test_both_are_one_training_to_rounding(case, data, few):
    """A few steps of one seed agree in as many digits as float32 has."""
    y = target(case, data)
    for batch_size in ("auto", 17):
        model = case.model(batch_size=batch_size, n_estimators=2, **few)
        single, double = (
            clone(model).set_params(dtype=dtype).fit(data.X, y) for dtype in DTYPES
        )
        # Where a gradient is next to zero, Adam makes steps of its last digits.
        assert np.mean(agree(single.parameters_, double.parameters_)) > 0.95
        np.testing.assert_allclose(single.loss_curve_, double.loss_curve_, rtol=1e-4)
        # The difference is there: they are two precisions.
        assert single.loss_curve_ != double.loss_curve_
        ask = "predict_proba" if case.classifies else "predict"
        unit = 1.0 if case.classifies else data.y.std()
        np.testing.assert_allclose(
            getattr(single, ask)(data.X_new) / unit,
            getattr(double, ask)(data.X_new) / unit,
            atol=1e-3,
        )


@of_chosen
def test_both_start_alike(case, data, few):
    """To rounding, whatever the noise: a step of no length."""
    still = few | {"max_iter": 1, "learning_rate_init": 1e-12}
    single, double = (
        case.model(dtype=dtype, **still).fit(data.X, target(case, data))
        for dtype in DTYPES
    )
    assert_same_parameters(single.parameters_, double.parameters_, **SINGLE)


@pytest.mark.parametrize("case", HALF, ids=str)
def test_both_are_one_training_in_distribution(case, data, few):
    """Losses of 24 networks agree within their standard error, in every epoch."""
    single, double = (
        case.model(dtype=dtype, n_estimators=24, **few)
        .set_params(max_iter=20)
        .fit(data.X, target(case, data))
        .history_["loss"]
        for dtype in DTYPES
    )
    error = np.sqrt((single.var(1, ddof=1) + double.var(1, ddof=1)) / 24)
    # Beyond 6.5 once in 10^7 or so (Student's t, 46 degrees of freedom).
    assert (np.abs(single.mean(1) - double.mean(1)) < 6.5 * error).all()


@pytest.mark.parametrize("kind", MC_DROPOUT)
@pytest.mark.parametrize("held", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_units_are_left_before_the_training(data, few, kind, held):
    """Columns far from zero, which float32 could not tell apart."""
    model = kind(**few)
    y = data.y if kind is MCDropoutRegressor else data.labels
    plain = clone(model).fit(data.X, y)
    shift = np.array([1e6, -2e6, 0.0, 3e6])
    moved = clone(model)
    if kind is MCDropoutRegressor:
        moved.fit(held(data.X + shift), data.y + 1e6)
        found = moved.predict(data.X_new + shift) - 1e6
        np.testing.assert_allclose(found, plain.predict(data.X_new), atol=1e-3)
    else:
        moved.fit(held(data.X + shift), data.labels)
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
    """What a regressor returns of y, by name; all but stds are in y's position."""
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
    """float32 X gives float32 predictions, and float64 where those would be rounded.

    2^31 is a time in seconds: neighbours in float32 are 256 apart, and y's std is 2.
    """
    X, y = data.X.astype(np.float32), data.y + shift
    wanted = np.float32 if shift == 1 else np.float64
    wrong = []
    for kind in REGRESSORS:
        model = kind(max_iter=2, n_draws=7, random_state=0).fit(X, y)
        single = predictions_of(model, data.X_new.astype(np.float32))
        double = predictions_of(model, data.X_new.astype(np.float32).astype(float))
        for name, values in single.items():
            # Seven digits of what the network computes, and of y itself in float32.
            error = np.abs(values - double[name]).max() / model.y_scale_[0]
            if name == "sample_y":  # its noise depends on the precision
                error = 1.0 - len(np.unique(values)) / values.size
            if values.dtype != wanted or error > 1e-4:
                wrong.append((kind.__name__, name, values.dtype.name, error))
    assert not wrong


def test_predictions_of_single_precision_are_in_its_range(data, few):
    """The squares of stds are; 1e20 squared is infinite in float32."""
    X = data.X.astype(np.float32)
    for unit in (1e20, 1e-20):
        model = MCDropoutRegressor(**few).fit(X, data.y * unit)
        mean, cov = model.predict(X, return_cov=True)
        assert mean.dtype == cov.dtype == np.float64
        assert np.isfinite(cov).all()
        assert (cov > 0).all()


# ---- training that goes on


@pytest.mark.parametrize(
    ("case", "change", "how"),
    pairwise(CHOSEN, [DTYPES, DTYPES[::-1]], ["warm_start", "partial_fit"]),
    ids=str,
)
def test_training_goes_on_in_another_precision(case, data, few, change, how):
    """From the present weights, and Adam's moments: steps of no length show it."""
    y = target(case, data)
    before, after = change
    model = case.model(dtype=before, warm_start=True, **few).partial_fit(data.X, y)
    old = copy.deepcopy(model)
    model.set_params(dtype=after, max_iter=1, learning_rate_init=1e-12)
    model.fit(data.X, y) if how == "warm_start" else model.partial_fit(data.X, y)
    assert dtypes_of(model.parameters_) == dtypes_of(model.optimizer_) == {after}
    # A fit recomputes the noise variance from the residuals after the training.
    trained = {n: v for n, v in model.parameters_.items() if "log_factor" not in n}
    assert_same_parameters(trained, old.parameters_, **SINGLE)
    assert model.optimizer_["step"] == (1 if how == "warm_start" else 2)
    assert model.n_epochs_seen_ == 2
    assert dtypes_of(old.parameters_) == {before}
