"""Bad input: which input is refused, with which message, and which is accepted.

A message states the rule, the value seen and the way out.
"""

import copy
import re
import warnings
from itertools import product

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._engine.training import TrainingHistory
from tests.helpers.checks import Checks
from tests.helpers.posteriors import BBB, MC_DROPOUT, VARIATIONAL

KINDS = [MCDropoutRegressor, MCDropoutClassifier]
BOTH = pytest.mark.parametrize("kind", KINDS)


def target(kind, data):
    return data.y if kind is MCDropoutRegressor else data.labels


@pytest.fixture
def assert_refused(small):
    """A check that fit raises an error and leaves the estimator unchanged."""

    def check(kind, X, y, error, message, sample_weight=None, **parameters):
        model = kind(**small | parameters)
        before = copy.deepcopy(vars(model))
        with pytest.raises(error, match=message):
            model.fit(X, y, sample_weight=sample_weight)
        assert vars(model).keys() == before.keys()

    return check


@pytest.fixture(scope="module")
def fitted(data, small):
    return {kind: kind(**small).fit(data.X, target(kind, data)) for kind in KINDS}


# ---- NaN and infinity


@BOTH
@pytest.mark.parametrize(
    ("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
def test_nan_and_infinity_in_x(data, assert_refused, fitted, kind, value, word):
    X = data.X.copy()
    X[7, 2] = value
    message = f"Input X contains {word}"
    assert_refused(kind, X, target(kind, data), ValueError, message)
    assert_refused(
        kind, sparse.csr_array(X), target(kind, data), ValueError, "contains"
    )
    for method in ("predict", "predict_uncertainty", "sample_f", "sample_y"):
        with pytest.raises(ValueError, match=message):
            getattr(fitted[kind], method)(X)


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_nan_and_infinity_in_y(data, assert_refused, fitted, value, word):
    for y in (data.y.copy(), data.Y.copy()):
        y[5] = value
        assert_refused(MCDropoutRegressor, data.X, y, ValueError, f"y contains {word}")
    with pytest.raises(ValueError, match=f"y contains {word}"):
        fitted[MCDropoutRegressor].log_predictive_density(
            data.X_new, np.full(11, value)
        )
    labels = data.codes.astype(float)
    labels[5] = value
    message = "contains infinity" if word == "infinity" else "a label for every row"
    assert_refused(MCDropoutClassifier, data.X, labels, ValueError, message)


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float64", "string"])
def test_missing_pandas_targets(data, assert_refused, dtype):
    """The error comes without a warning of NumPy's cast."""
    pd = pytest.importorskip("pandas")
    codes = data.codes if dtype != "boolean" else data.codes > 0
    y = pd.Series(codes.astype(str) if dtype == "string" else codes, dtype=dtype)
    y[5] = pd.NA
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        message = (
            "`y` must have a value for every row; got <NA> in 1 of 41|y contains NaN"
        )
        assert_refused(MCDropoutRegressor, data.X, y, ValueError, message)
        message = (
            "`y` must have a label for every row; got .* in 1 rows, first in row 5"
        )
        assert_refused(MCDropoutClassifier, data.X, y, ValueError, message)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
@BOTH
def test_nan_and_infinity_in_weights(data, assert_refused, kind, value):
    weights = np.ones(41)
    weights[3] = value
    assert_refused(
        kind,
        data.X,
        target(kind, data),
        ValueError,
        "Negative values|sample_weight contains",
        weights,
    )


# ---- few rows


@BOTH
def test_no_rows(data, assert_refused, fitted, kind):
    message = r"Found array with 0 sample\(s\).*minimum of 1 is required"
    assert_refused(kind, data.X[:0], target(kind, data)[:0], ValueError, message)
    with pytest.raises(ValueError, match=message):
        fitted[kind].predict(data.X[:0])


@BOTH
def test_no_columns(data, assert_refused, kind):
    assert_refused(
        kind, data.X[:, :0], target(kind, data), ValueError, r"0 feature\(s\)"
    )


@pytest.mark.parametrize("y", ["y", "Y"])
@pytest.mark.filterwarnings("ignore:.*constant:UserWarning")
def test_one_row_is_fitted(data, small, y):
    """With a warning, and all predictions are finite."""
    model = MCDropoutRegressor(**small).fit(data.X[:1], getattr(data, y)[:1])
    for value in model.predict_uncertainty(data.X_new, "all").values():
        assert np.isfinite(value).all()
    assert np.isfinite(model.predict(data.X_new)).all()


def test_one_row_of_a_classifier_is_refused(data, assert_refused):
    assert_refused(
        MCDropoutClassifier,
        data.X[:1],
        data.labels[:1],
        ValueError,
        "needs rows of at least 2 classes; got 1 class",
    )


@BOTH
def test_different_numbers_of_rows(data, assert_refused, kind):
    message = r"inconsistent numbers of samples: \[41, 11\]"
    assert_refused(kind, data.X, target(kind, data)[:11], ValueError, message)


@BOTH
def test_one_dimensional_x(data, assert_refused, fitted, kind):
    message = "Expected 2D array, got 1D array instead"
    assert_refused(kind, data.X[:, 0], target(kind, data), ValueError, message)
    with pytest.raises(ValueError, match=message):
        fitted[kind].predict(data.X[0])


# ---- constant columns and targets


@pytest.mark.parametrize("value", [0.0, 3.0, 1e12])
@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_constant_y(data, small, value, likelihood):
    model = MCDropoutRegressor(likelihood=likelihood, **small)
    with pytest.warns(UserWarning, match=r"y is constant .* noise cannot be estimated"):
        model.fit(data.X, np.full(41, value))
    mean, std = model.predict(data.X_new, return_std=True)
    assert np.isfinite(mean).all() and (std > 0).all()
    assert np.isfinite(model.log_predictive_density(data.X_new, data.y_new)).all()
    # One constant target among others.
    Y = data.Y.copy()
    Y[:, 1] = value
    with pytest.warns(UserWarning, match="y is constant"):
        model.fit(data.X, Y)
    assert np.isfinite(model.predict(data.X_new)).all()


@pytest.mark.parametrize("kind", [MC_DROPOUT[1], BBB[1], VARIATIONAL[1]])
def test_outlier_in_a_column(data, small, kind):
    """The reference model takes log 0 there, which must not warn."""
    X = data.X.copy()
    X[0, 0] = 1e9
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        kind(**small).fit(X, data.labels)


@BOTH
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_constant_columns(data, small, kind, make):
    X = data.X.copy()
    X[:, 1] = 3.0
    X[:, 3] = 0.0
    model = kind(**small)
    with pytest.warns(
        UserWarning, match=r"2 columns .* constant .*\(1, 3\).*Remove them"
    ):
        model.fit(make(X), target(kind, data))
    assert np.isfinite(model.predict_uncertainty(make(data.X_new))).all()


def test_columns_that_are_constant_in_rows_with_weight(data, small):
    X = data.X.copy()
    X[:30, 2] = 1.0
    model = MCDropoutRegressor(**small)
    with pytest.warns(UserWarning, match=r"1 columns .*rows \(2\)"):
        model.fit(X, data.y, sample_weight=np.r_[np.ones(30), np.zeros(11)])


@BOTH
def test_no_warning_without_a_reason(data, small, kind):
    """With enough epochs: after few, predictions vary too little."""
    small = small | {"max_iter": 200}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = kind(**small).fit(data.X, target(kind, data))
        model.predict_uncertainty(data.X_new, kind="all")
        model.log_predictive_density(data.X_new, target(kind, data)[:11])
        model.sample_y(data.X_new, 2)


# ---- the kind of y


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "timedelta64[D]"])
@pytest.mark.parametrize("kind", [MCDropoutRegressor, BayesianStackingRegressor])
def test_times_as_targets_are_refused(data, kind, dtype):
    """Converted to values, they would be nanoseconds since 1970."""
    message = r"`y` must hold numbers for .*; got times .*np.timedelta64\(1, 'D'\)"
    y = np.arange(41).astype(dtype)
    with pytest.raises(ValueError, match=message):
        kind().fit(data.X, y)
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=message):
        kind().fit(data.X, pd.Series(y))
    with pytest.raises(ValueError, match=r"`y` must hold numbers for .* 'Timestamp'"):
        days = pd.date_range("2020-01-01", periods=41, tz="UTC")
        kind().fit(data.X, pd.Series(days))


@pytest.mark.parametrize("kind", [MCDropoutRegressor, BayesianStackingRegressor])
def test_text_as_target_is_refused(data, kind):
    for y in (np.full(41, "a"), np.full(41, "a", dtype=object)):
        with pytest.raises(ValueError, match=r"`y` must hold numbers .* classifiers"):
            kind().fit(data.X, y)


@pytest.mark.parametrize("kind", [MCDropoutClassifier, BayesianStackingClassifier])
@pytest.mark.parametrize("missing", [None, float("nan"), "pandas.NA"])
@pytest.mark.parametrize("labels", [["a", "b"], [1, 2]])
def test_missing_labels(data, kind, missing, labels):
    if missing == "pandas.NA":
        missing = pytest.importorskip("pandas").NA
    y = np.array(labels, dtype=object)[np.arange(41) % 2]
    y[5] = y[8] = missing
    with pytest.raises(ValueError, match=r"label for every row; .* 2 rows, first in"):
        kind().fit(data.X, y)


@pytest.mark.parametrize("kind", [MCDropoutClassifier, BayesianStackingClassifier])
def test_labels_of_several_kinds(data, kind):
    y = np.array(["a", 1], dtype=object)[np.arange(41) % 2]
    with pytest.raises(ValueError, match=r"labels of one kind.*; got int and str"):
        kind().fit(data.X, y)


@pytest.mark.parametrize("labels", [["low"], ["3 m"], ["1", "x"]])
@pytest.mark.parametrize("dtype", [str, object])
def test_text_labels_for_a_regressor(data, assert_refused, labels, dtype):
    y = np.resize(np.array(labels, dtype=dtype), 41)
    message = r"`y` must hold numbers for MCDropoutRegressor; got .*the classifiers"
    assert_refused(MCDropoutRegressor, data.X, y, ValueError, message)


def test_continuous_y_for_a_classifier(data, assert_refused):
    assert_refused(
        MCDropoutClassifier,
        data.X,
        data.y,
        ValueError,
        "Unknown label type: continuous",
    )


def test_several_targets_for_a_classifier(data, assert_refused):
    y = np.stack([data.codes, data.codes], axis=1)
    assert_refused(MCDropoutClassifier, data.X, y, ValueError, "y should be a 1d array")


@BOTH
def test_three_dimensional_y(data, assert_refused, kind):
    y = np.ones((41, 3, 2))
    assert_refused(kind, data.X, y, ValueError, "dim 3|1d array")


@BOTH
def test_missing_y(data, assert_refused, kind):
    assert_refused(kind, data.X, None, ValueError, "requires y to be passed.*y is None")


def test_one_class(data, assert_refused):
    rule = "MCDropoutClassifier needs rows of at least 2 classes; got 1 class: "
    assert_refused(MCDropoutClassifier, data.X, ["a"] * 41, ValueError, rule + "'a'")
    assert_refused(
        MCDropoutClassifier, data.X, np.ones(41, int), ValueError, rule + "1"
    )
    assert_refused(
        MCDropoutClassifier,
        data.X,
        data.labels,
        ValueError,
        rule + r"'mid' \(rows of weight zero do not count\). Add rows",
        data.labels == "mid",
    )


def test_number_of_targets_changed(data, fitted):
    with pytest.raises(ValueError, match=r"`y` must have the 1 targets .*; got 3"):
        fitted[MCDropoutRegressor].log_predictive_density(data.X_new, data.Y_new)


# ---- parameters


PARAMETERS = [
    ({"dropout": 1.0}, ValueError, r"`dropout` must be in \[0, 1\); got 1.0"),
    ({"dropout": -0.1}, ValueError, r"`dropout` must be in \[0, 1\); got -0.1"),
    ({"dropout": np.nan}, ValueError, r"`dropout` must be in \[0, 1\); got nan"),
    ({"dropout": [0.1, 0.2, 1.2]}, ValueError, r"`dropout` must be in .* got 1.2"),
    ({"dropout": [0.1, 0.2]}, ValueError, "one per weight layer.* 3 here.*got 2"),
    ({"dropout": []}, ValueError, "one per weight layer.* 3 here.*got 0"),
    ({"dropout": ["auto"] * 3}, TypeError, "`dropout` must be a number; got 'auto'"),
    ({"dropout": None}, TypeError, "`dropout` must be a number; got None"),
    ({"dropout": True}, TypeError, "`dropout` must be a number; got True"),
    ({"tau": 0}, ValueError, "`tau` must be finite and > 0; got 0"),
    ({"tau": -2.5}, ValueError, "`tau` must be finite and > 0; got -2.5"),
    ({"tau": np.inf}, ValueError, "`tau` must be finite and > 0; got inf"),
    (
        {"tau": "automatic"},
        ValueError,
        "`tau` must be a number or 'auto'; got 'automatic'",
    ),
    ({"tau": None}, TypeError, "`tau` must be a number; got None"),
    ({"tau": [1.0, 2.0]}, ValueError, "must be a number; got 2 values"),
    (
        {"length_scale": -1},
        ValueError,
        r"`length_scale` must be in \[0, 1e\+15\); got -1",
    ),
    ({"length_scale": np.nan}, ValueError, "`length_scale` must be in .*; got nan"),
    ({"length_scale": [1.0] * 4}, ValueError, "weight layer.* 3 here.*got 4"),
    ({"length_scale": "fan"}, ValueError, "`length_scale` must be a number or 'auto'"),
    (
        {"hidden_layer_sizes": 0},
        ValueError,
        "`hidden_layer_sizes` must be finite and >= 1; got 0",
    ),
    ({"hidden_layer_sizes": (5, -1)}, ValueError, "must be finite and >= 1; got -1"),
    (
        {"hidden_layer_sizes": 10**9},
        ValueError,
        "at most 1000000 per layer; got 1000000000. Weights grow",
    ),
    (
        {"hidden_layer_sizes": (10**6, 10**6)},
        ValueError,
        "`hidden_layer_sizes` and `n_estimators` must give at most .* got 1,000,00",
    ),
    ({"n_estimators": 10**9}, ValueError, "`n_estimators` must be at most 1000000"),
    ({"hidden_layer_sizes": "abc"}, TypeError, "integer or a sequence.* got 'abc'"),
    ({"hidden_layer_sizes": 2.5}, TypeError, "integer or a sequence.* got 2.5"),
    ({"hidden_layer_sizes": (5, 2.5)}, TypeError, "must be an integer; got 2.5"),
    ({"hidden_layer_sizes": None}, TypeError, "integer or a sequence.* got None"),
    *[
        (
            {"dtype": dtype},
            ValueError,
            rf"`dtype` must be one of 'float32', 'float64'; got {got}",
        )
        for dtype, got in [
            ("float16", "'float16'"),
            (64, "64"),
            (None, "None"),
            (np.float32, "<class 'numpy.float32'>"),
            (np.dtype("float32"), r"dtype\('float32'\)"),
            (torch.float64, "torch.float64"),
        ]
    ],
    ({"batch_size": 0}, ValueError, "`batch_size` must be finite and >= 1; got 0"),
    ({"batch_size": 2.5}, TypeError, "`batch_size` must be an integer; got 2.5"),
    ({"batch_size": "all"}, ValueError, "`batch_size` must be a number or 'auto'"),
    ({"n_estimators": 0}, ValueError, "`n_estimators` must be finite and >= 1; got 0"),
    ({"n_estimators": 1.5}, TypeError, "`n_estimators` must be an integer; got 1.5"),
    (
        {"learning_rate_init": 0},
        ValueError,
        "`learning_rate_init` must be finite and > 0; got 0",
    ),
    ({"learning_rate_init": -1e-3}, ValueError, "must be finite and > 0; got -0.001"),
    (
        {"learning_rate": "invscaling"},
        ValueError,
        "`learning_rate` must be one of 'cosine', 'constant'; got 'invscaling'",
    ),
    ({"max_iter": 0}, ValueError, "`max_iter` must be finite and >= 1; got 0"),
    ({"max_iter": 2.0}, TypeError, "`max_iter` must be an integer; got 2.0"),
    ({"max_iter": "many"}, ValueError, "`max_iter` must be a number or 'auto'"),
    (
        {"activation": "gelu"},
        ValueError,
        "`activation` must be one of 'relu', 'tanh'.*; got 'gelu'",
    ),
    ({"activation": None}, ValueError, "`activation` must be one of .*; got None"),
    ({"standardize": "yes"}, TypeError, "`standardize` must be True or False"),
    (
        {"early_stopping": 1},
        TypeError,
        "`early_stopping` must be True, False or 'auto'; got 1",
    ),
    ({"warm_start": "no"}, TypeError, "`warm_start` must be True or False; got 'no'"),
    ({"verbose": 1.0}, TypeError, "`verbose` must be True, False or an integer >= 0"),
    ({"verbose": "yes"}, TypeError, "`verbose` must be .* got 'yes'"),
    ({"verbose": None}, TypeError, "`verbose` must be .* got None"),
    ({"verbose": -1}, ValueError, "`verbose` must be >= 0; got -1"),
    (
        {"validation_fraction": 1.0},
        ValueError,
        r"`validation_fraction` must be in \(0, 1\); got 1.0",
    ),
    ({"n_iter_no_change": 0}, ValueError, "`n_iter_no_change` must be finite and >= 1"),
    ({"tol": -1.0}, ValueError, "`tol` must be finite and >= 0; got -1.0"),
    (
        {"random_state": "seed"},
        ValueError,
        "`random_state` must be None, an integer.*got 'seed'",
    ),
    ({"device": "gpu"}, ValueError, "`device` must be 'auto', 'cpu'.*; got 'gpu'"),
    ({"device": "meta"}, ValueError, "`device` must be 'auto', 'cpu'.*; got 'meta'"),
    ({"device": 0}, TypeError, "`device` must be a name or a torch.device; got 0"),
]


ESTIMATORS = [*MC_DROPOUT, *BBB, *VARIATIONAL]


@pytest.mark.parametrize("name", sorted({name for [name], *_ in PARAMETERS}))
def test_invalid_parameters(data, assert_refused, name):
    """Every invalid value of a parameter with every estimator."""
    with Checks() as check:
        for kind, (parameters, error, message) in product(ESTIMATORS, PARAMETERS):
            if name not in parameters:
                continue
            classifies = is_classifier(kind())
            if classifies and name == "tau":
                message = "tau"  # the rule is the same, but not the word for 'auto'
            y = data.labels if classifies else data.y
            with check(f"{kind.__name__}, {parameters}"):
                assert_refused(kind, data.X, y, error, message, **parameters)


def test_dropout_as_a_string(data, assert_refused):
    """Only MC dropout accepts 'auto'."""
    with Checks() as check:
        for kind in ESTIMATORS:
            y = data.labels if is_classifier(kind()) else data.y
            error, message = TypeError, "`dropout` must be a number; got 'half'"
            if kind in MC_DROPOUT:
                error = ValueError
                message = "`dropout` must be a number or 'auto'; got 'half'"
            with check(kind.__name__):
                assert_refused(kind, data.X, y, error, message, dropout="half")


@BOTH
def test_dropout_kind_of_mc_dropout(data, assert_refused, kind):
    y = target(kind, data)
    message = (
        "`noise` must be one of 'bernoulli', 'gaussian', 'dropconnect', 'additive'; "
        "got 'concrete'"
    )
    assert_refused(kind, data.X, y, ValueError, message, noise="concrete")
    for noise in ("gaussian", "dropconnect", "additive"):
        message = (
            "dropout='auto' requires noise='bernoulli'; got "
            rf"noise='{noise}'. Give a rate, or use VariationalDropout\*"
        )
        assert_refused(
            kind, data.X, y, ValueError, message, noise=noise, dropout="auto"
        )


@pytest.mark.parametrize("likelihood", ["student", ["gaussian"]])
def test_unknown_likelihood(data, assert_refused, likelihood):
    value = re.escape(repr(likelihood))
    message = f"`likelihood` must be one of 'gaussian', .*'poisson'.*; got {value}"
    assert_refused(
        MCDropoutRegressor, data.X, data.y, ValueError, message, likelihood=likelihood
    )


@pytest.mark.parametrize("n_draws", [0, -1])
@BOTH
def test_n_draws_below_one(data, fitted, kind, n_draws):
    model = copy.copy(fitted[kind]).set_params(n_draws=n_draws)
    for method in ("predict", "predict_uncertainty"):
        with pytest.raises(
            ValueError, match=f"`n_draws` must be finite and >= 1; got {n_draws}"
        ):
            getattr(model, method)(data.X_new)
    with pytest.raises(TypeError, match=r"`n_draws` must be an integer; got 2.5"):
        model.set_params(n_draws=2.5).predict(data.X_new)


@BOTH
def test_n_draws_is_checked_before_training(data, assert_refused, kind):
    message = "`n_draws` must be finite and >= 1; got 0"
    assert_refused(kind, data.X, target(kind, data), ValueError, message, n_draws=0)


@BOTH
@pytest.mark.parametrize("method", ["sample_f", "sample_y"])
def test_n_samples_below_one(data, fitted, kind, method):
    with pytest.raises(ValueError, match="`n_samples` must be finite and >= 1; got 0"):
        getattr(fitted[kind], method)(data.X_new, 0)


@BOTH
def test_batch_size_above_the_number_of_rows(data, small, kind):
    """A batch has all rows."""
    y = target(kind, data)
    large = kind(batch_size=1000, **small).fit(data.X, y)
    whole = kind(batch_size=41, **small).fit(data.X, y)
    np.testing.assert_array_equal(large.predict(data.X_new), whole.predict(data.X_new))
    assert large.optimizer_["step"] == 20


# ---- devices


@BOTH
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda")])
def test_cuda_without_a_gpu(data, assert_refused, kind, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = (
        r"`device` must be available on this computer; got 'cuda.*, but torch finds no "
        r"CUDA GPU. Use device='cpu' or device='auto'"
    )
    assert_refused(kind, data.X, target(kind, data), ValueError, message, device=device)


def test_index_of_a_missing_gpu(data, assert_refused, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    message = "got 'cuda:2', but torch finds 2 CUDA GPUs"
    assert_refused(
        MCDropoutRegressor, data.X, data.y, ValueError, message, device="cuda:2"
    )


def test_unknown_device_at_prediction(data, fitted):
    model = copy.copy(fitted[MCDropoutRegressor]).set_params(device="gpu")
    with pytest.raises(ValueError, match=r"`device` must be 'auto'.*; got 'gpu'"):
        model.predict(data.X_new)


# ---- features at prediction


METHODS = {
    MCDropoutRegressor: [
        "predict",
        "predict_uncertainty",
        "predict_interval",
        "sample_f",
        "sample_y",
    ],
    MCDropoutClassifier: [
        "predict",
        "predict_proba",
        "predict_log_proba",
        "predict_uncertainty",
        "sample_f",
        "sample_y",
    ],
}
EVERY_METHOD = pytest.mark.parametrize(
    ("kind", "method"), [(k, m) for k, methods in METHODS.items() for m in methods]
)


@EVERY_METHOD
def test_count_of_features_changed(data, fitted, kind, method):
    with pytest.raises(
        ValueError, match=f"X has 3 features, but {kind.__name__} is expecting 4"
    ):
        getattr(fitted[kind], method)(data.X_new[:, :3])


@EVERY_METHOD
def test_names_of_features_changed(data, small, kind, method):
    pd = pytest.importorskip("pandas")
    model = kind(**small).set_params(max_iter=1)
    model.fit(pd.DataFrame(data.X, columns=list("abcd")), target(kind, data))
    predict = getattr(model, method)
    with pytest.raises(ValueError, match=r"feature names should match(.|\n)*- z"):
        predict(pd.DataFrame(data.X_new, columns=list("zbcd")))
    with pytest.raises(ValueError, match="same order"):
        predict(pd.DataFrame(data.X_new, columns=list("bacd")))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        predict(data.X_new)


@EVERY_METHOD
def test_before_fit(data, kind, method):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(kind(), method)(data.X_new)


@BOTH
def test_functions_with_further_arguments_before_fit(data, kind):
    with pytest.raises(NotFittedError):
        kind().log_predictive_density(data.X_new, target(kind, data)[:11])
    with pytest.raises(NotFittedError):
        kind().score(data.X_new, target(kind, data)[:11])
    for function in (skbayesnn.predict_uncertainty, skbayesnn.sample_y):
        with pytest.raises(NotFittedError):
            function(kind(), data.X_new)
    with pytest.raises(NotFittedError):
        skbayesnn.log_predictive_density(kind(), data.X_new, target(kind, data)[:11])
    if kind is MCDropoutRegressor:
        for function in (skbayesnn.predict_quantile, kind.predict_quantile):
            with pytest.raises(NotFittedError):
                function(kind(), data.X_new, 0.5)
        with pytest.raises(NotFittedError):
            skbayesnn.predict_interval(kind(), data.X_new)


# ---- frames


MIXED = {
    "size": [1.0, 2.0, 3.0, 4.0],
    "colour": ["red", "blue", "red", "green"],
    "count": [1, 2, 3, 4],
    "is new": [True, False, True, True],
}
NOT_NUMERIC = (
    r"every column of X must hold numbers; got columns of other kinds: {}\. Encode "
    r"them .*sklearn\.compose\.ColumnTransformer or skrub\.TableVectorizer"
)


@BOTH
@pytest.mark.parametrize("dtype", [None, object, "category"])
def test_pandas_frame_with_text_and_dates(small, kind, dtype):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(MIXED | {"day": pd.date_range("2020-01-01", periods=4)})
    if dtype is not None:
        frame["colour"] = frame["colour"].astype(dtype)
    with pytest.raises(ValueError, match=NOT_NUMERIC.format("'colour', 'day'")):
        kind(**small).fit(frame, [0, 1, 0, 1])
    model = kind(**small).fit(frame[["size", "count", "is new"]], [0, 1, 0, 1])
    with pytest.raises(ValueError, match=NOT_NUMERIC.format("'colour', 'day'")):
        model.predict(frame)
    assert list(model.feature_names_in_) == ["size", "count", "is new"]


def names_of(model):
    return list(getattr(model, "feature_names_in_", []))


@BOTH
def test_polars_frame_with_text_and_dates(small, kind):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(MIXED).with_columns(
        pl.Series("day", ["2020-01-01"] * 4).str.to_date()
    )
    with pytest.raises(ValueError, match=NOT_NUMERIC.format("'colour', 'day'")):
        kind(**small).fit(frame, [0, 1, 0, 1])
    model = kind(**small).fit(frame.select("size", "count", "is new"), [0, 1, 0, 1])
    # Which frames have feature names depends on the version of scikit-learn.
    assert names_of(model) == names_of(
        StandardScaler().fit(frame.select("size", "count", "is new"))
    )
    with pytest.raises(ValueError, match=NOT_NUMERIC.format("'colour', 'day'")):
        model.predict(frame)


@BOTH
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_numeric_frame(data, small, fitted, kind, library):
    frame = pytest.importorskip(library).DataFrame(
        dict(zip("abcd", data.X.T, strict=True))
    )
    series = pytest.importorskip(library).Series(target(kind, data))
    model = kind(**small).fit(frame, series)
    np.testing.assert_array_equal(
        model.predict_uncertainty(frame), fitted[kind].predict_uncertainty(data.X)
    )
    assert names_of(model) == names_of(StandardScaler().fit(frame))


def test_pandas_object_columns_with_numbers(data, small, fitted):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data.X, columns=list("abcd"))
    model = MCDropoutRegressor(**small).fit(frame.astype(object), data.y)
    np.testing.assert_array_equal(
        model.predict(frame), fitted[MCDropoutRegressor].predict(data.X)
    )


def test_pandas_missing_values(data, small):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": [1.0, 2, 3]})
    with pytest.raises(ValueError, match="Input X contains NaN"):
        MCDropoutRegressor(**small).fit(frame, [1.0, 2.0, 3.0])


@BOTH
@pytest.mark.parametrize("dtype", [object, "U32"])
def test_text_arrays(data, small, assert_refused, fitted, kind, dtype):
    """Errors name the column numbers; text that represents numbers is converted."""
    X = data.X.astype(dtype)
    np.testing.assert_array_equal(
        kind(**small).fit(X, target(kind, data)).predict(data.X_new),
        fitted[kind].predict(data.X_new),
    )
    X[3, 1] = X[7, 2] = "red"
    message = NOT_NUMERIC.format("1, 2")
    assert_refused(kind, X, target(kind, data), ValueError, message)
    with pytest.raises(ValueError, match=message):
        fitted[kind].predict(X)
    with pytest.raises(ValueError, match=message):
        fitted[kind].predict(X.tolist())


def test_columns_of_times(data, assert_refused):
    X = np.zeros((41, 2), dtype="datetime64[s]")
    message = NOT_NUMERIC.format("0, 1")
    assert_refused(MCDropoutRegressor, X, data.y, ValueError, message)


# ---- training that fails


@BOTH
@pytest.mark.parametrize("early_stopping", [False, True])
def test_all_networks_diverge(data, assert_refused, kind, early_stopping):
    assert_refused(
        kind,
        data.X,
        target(kind, data),
        FloatingPointError,
        r"every network became infinite or NaN, first in epoch \d+\. Lower "
        r"learning_rate_init \(1e\+150 here\)",
        n_estimators=3,
        learning_rate_init=1e150,
        early_stopping=early_stopping,
    )


@pytest.mark.parametrize("max_iter", [1, 5, 50])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_large_learning_rates_raise_or_give_finite_predictions(
    data, small, max_iter, early_stopping
):
    """Whichever step diverges, there is no other error and no model with NaN."""
    model = MCDropoutRegressor(early_stopping=early_stopping, **small)
    for rate in (1e3, 1e10, 1e30):
        model.set_params(learning_rate_init=rate, max_iter=max_iter)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(data.X, data.y)
        except FloatingPointError as error:
            assert "first in epoch" in str(error)
            assert not hasattr(model, "parameters_")
        else:
            mean, std = model.predict(data.X_new, return_std=True)
            assert np.isfinite(mean).all() and np.isfinite(std).all()
            assert np.isfinite(model.loss_curve_).all()
            model = clone(model)


def make_loss_nan(monkeypatch, members, first_epoch):
    """Make the loss of some networks NaN from an epoch (counted from 1) on."""
    plain = TrainingHistory.add

    def add(self, nll, kl):
        nll, n_done = nll.clone(), sum(map(len, self._nll))
        nll[max(first_epoch - n_done - 1, 0) :, members] = float("nan")
        plain(self, nll, kl)

    monkeypatch.setattr(TrainingHistory, "add", add)


@BOTH
@pytest.mark.parametrize("early_stopping", [False, True])
def test_one_network_of_several_diverges(
    data, small, kind, early_stopping, monkeypatch
):
    """It is left out, and the other networks are unaffected."""
    y = target(kind, data)
    model = kind(n_estimators=3, early_stopping=early_stopping, **small)
    model.set_params(n_iter_no_change=30)  # do not stop before the failure is seen
    whole = clone(model).fit(data.X, y)
    make_loss_nan(monkeypatch, [1], first_epoch=4)
    with pytest.warns(
        ConvergenceWarning,
        match=r"1 of 3 networks were left out.*first in epoch 4\. Lower "
        r"learning_rate_init \(0.01 here\)",
    ):
        model.fit(data.X, y)
    np.testing.assert_array_equal(model.seeds_, whole.seeds_[[0, 2]])
    assert model.history_["loss"].shape == (20, 2)
    assert np.isfinite(model.loss_curve_).all() and np.isfinite(model.elbo_)
    for name, value in model.parameters_.items():
        axis = 1 if name == "keep" else 0
        np.testing.assert_array_equal(
            value, np.delete(whole.parameters_[name], 1, axis=axis)
        )
    assert np.isfinite(model.predict_uncertainty(data.X_new)).all()


def test_network_that_diverges_after_its_early_stop(data, small, monkeypatch):
    """It keeps its best weights, as in a single fit."""
    model = MCDropoutRegressor(
        n_estimators=5, early_stopping=True, **small | {"learning_rate": "constant"}
    )
    model.set_params(max_iter=300, n_iter_no_change=3, learning_rate_init=0.03)
    held_out = {"X_val": data.X_new, "y_val": data.y_new}
    whole = clone(model).fit(data.X, data.y, **held_out)
    n_epochs = np.isfinite(whole.history_["loss"]).sum(0)
    first = int(n_epochs.argmin())
    assert n_epochs[first] < whole.n_iter_
    make_loss_nan(monkeypatch, [first], first_epoch=n_epochs[first] + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(data.X, data.y, **held_out)
    np.testing.assert_array_equal(model.predict(data.X_new), whole.predict(data.X_new))


def test_all_networks_diverge_in_different_epochs(data, small, monkeypatch):
    """The message names the first epoch, and an earlier fit is kept."""
    model = MCDropoutRegressor(n_estimators=2, **small).fit(data.X, data.y)
    before = model.predict(data.X_new)
    make_loss_nan(monkeypatch, [0], first_epoch=7)
    make_loss_nan(monkeypatch, [1], first_epoch=3)
    with pytest.raises(FloatingPointError, match="first in epoch 3"):
        model.fit(data.X, data.y)
    np.testing.assert_array_equal(model.predict(data.X_new), before)


def test_warm_start_needs_the_number_of_networks_left(data, small, monkeypatch):
    """Networks that were left out are not trained again."""
    model = MCDropoutRegressor(n_estimators=3, warm_start=True, **small)
    with monkeypatch.context() as patch:
        make_loss_nan(patch, [1], first_epoch=4)
        with pytest.warns(ConvergenceWarning, match="1 of 3 networks"):
            model.fit(data.X, data.y)
    with pytest.raises(ValueError, match="Set n_estimators=2, or warm_start=False"):
        model.fit(data.X, data.y)
    model.set_params(n_estimators=2).fit(data.X, data.y)
    assert model.history_["loss"].shape == (20, 2)


# ---- units, weights, classes


@pytest.mark.parametrize("unit", [1e-300, 1e-145, 1e145, 1e300])
def test_units_of_y_whose_square_overflows(data, assert_refused, unit):
    message = r"`y` must have values of at most 1e\+140 .* another unit"
    assert_refused(MCDropoutRegressor, data.X, unit * data.y, ValueError, message)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("unit", [1e-300, 1e-30, 1e30, 1e300])
def test_any_unit_of_x(data, small, unit):
    """Up to rounding, as the units are no powers of two."""
    models = [MCDropoutRegressor(**small).fit(u * data.X, data.y) for u in (1, unit)]
    expected, actual = (
        model.predict(u * data.X) for u, model in zip((1, unit), models, strict=True)
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_invalid_class_weight(data, assert_refused, weight):
    assert_refused(
        MCDropoutClassifier,
        data.X,
        data.labels,
        ValueError,
        "`class_weight` must be finite and >= 0",
        class_weight={"low": weight, "mid": 1.0, "top": 1.0},
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"length_scale": 1e200}, r"`length_scale` must be in \[0, 1e\+15\)"),
        ({"tau": 1e-300}, "`tau`, .* must be between 1e-30 .* times 1 / variance of y"),
        ({"tau": 1e300}, "`tau`, .* must be between 1e-30 .* times 1 / variance of y"),
    ],
)
def test_extreme_priors(data, assert_refused, parameters, message):
    assert_refused(
        MCDropoutRegressor, data.X, data.y, ValueError, message, **parameters
    )


@pytest.mark.parametrize(
    ("X_val", "y_val", "message"),
    [
        (lambda d: np.full((5, 4), np.nan), lambda d: d.y[:5], "Input X contains NaN"),
        (lambda d: d.X[:5], lambda d: np.full(5, np.nan), "Input y contains NaN"),
        (lambda d: d.X[:5], lambda d: d.y[:3], "inconsistent numbers of samples"),
        (lambda d: d.X[:5, :2], lambda d: d.y[:5], "X has 2 features"),
    ],
)
def test_errors_of_validation_rows_name_the_arguments(
    data, small, X_val, y_val, message
):
    model = MCDropoutRegressor(early_stopping=True, **small)
    with pytest.raises(ValueError, match=f"^in `X_val` and `y_val`: .*{message}"):
        model.fit(data.X, data.y, X_val=X_val(data), y_val=y_val(data))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_validation_rows_may_be_sparse_if_x_is_dense(data, small):
    """Early stopping depends on the values of the rows alone."""
    predictions = []
    for train, held_out in ((np.array, sparse.csr_array), (np.array, np.array)):
        model = MCDropoutRegressor(early_stopping=True, **small)
        X_val, y_val = held_out(data.X_new), data.y_new
        model.fit(train(data.X), data.y, X_val=X_val, y_val=y_val)
        predictions.append(model.predict(data.X_new))
    np.testing.assert_array_equal(*predictions)


def test_partial_fit_needs_at_least_two_classes(data, small):
    model = MCDropoutClassifier(**small)
    with pytest.raises(ValueError, match=r"`classes` must contain .* 2; got \[0\]"):
        model.partial_fit(data.X, np.zeros(41, int), classes=[0])


@pytest.mark.parametrize("value", [-1, 2**33, "a", np.random.default_rng(0)])
def test_invalid_random_state(data, small, fitted, value):
    """NumPy's new generators cannot be shared with scikit-learn."""
    with pytest.raises(ValueError, match=r"`random_state` must be None, .*; got"):
        MCDropoutRegressor(**small | {"random_state": value}).fit(data.X, data.y)
    with pytest.raises(ValueError, match=r"`random_state` must be None, .*; got"):
        fitted[MCDropoutRegressor].sample_y(data.X_new, random_state=value)


def test_kinds_of_uncertainty(data, fitted):
    for model in fitted.values():
        default = model.predict_uncertainty(data.X_new)
        actual = model.predict_uncertainty(data.X_new, kind=None)
        np.testing.assert_array_equal(actual, default)
        with pytest.raises(TypeError, match=r"`kind` must be a name, a list.* got 3"):
            model.predict_uncertainty(data.X_new, kind=3)
    with pytest.raises(ValueError, match=r"`coverage` must be .* got none"):
        fitted[MCDropoutRegressor].predict_interval(data.X_new, [])
    with pytest.raises(ValueError, match=r"`q` must be .* got none"):
        fitted[MCDropoutRegressor].predict_quantile(data.X_new, [])


def test_missing_value_in_an_object_array(data, small):
    pandas = pytest.importorskip("pandas")
    X = data.X.astype(object)
    X[3, 1] = None
    for table in (X, pandas.DataFrame(X)):
        with pytest.raises(ValueError, match="Input X contains NaN"):
            MCDropoutRegressor(**small).fit(table, data.y)


@pytest.mark.filterwarnings("error:The given NumPy array is not writable")
def test_memory_mapped_model(data, fitted, tmp_path):
    joblib = pytest.importorskip("joblib")
    for model in fitted.values():
        joblib.dump(model, tmp_path / "model")
        mapped = joblib.load(tmp_path / "model", mmap_mode="r")
        np.testing.assert_array_equal(
            mapped.predict(data.X_new), model.predict(data.X_new)
        )
