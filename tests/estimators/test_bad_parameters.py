"""Bad parameters, devices, units, weights and classes."""

import copy
from itertools import product

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import is_classifier

from skbayesnn import (
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from tests.helpers.bad_input import BOTH, target
from tests.helpers.checks import Checks
from tests.helpers.posteriors import BBB, MC_DROPOUT, VARIATIONAL

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
    ({"length_scale": 1e200}, ValueError, r"`length_scale` must be in \[0, 1e\+15\)"),
    ({"n_draws": 0}, ValueError, "`n_draws` must be finite and >= 1; got 0"),
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
    ({"device": 0}, TypeError, "`device` must be a name, a torch.device or .*; got 0"),
]


ESTIMATORS = [*MC_DROPOUT, *BBB, *VARIATIONAL]
AUTO_DROPOUT = "`dropout` must be a number or 'auto'; got 'half'"
WRONG_TAU = "`tau`, .* must be between 1e-30 .* times 1 / variance of y"
WRONG_LIKELIHOOD = "`likelihood` must be one of 'gaussian', .*'poisson'.*; got {}"
# Of some estimators only.
PARAMETERS_OF_SOME = [
    (MC_DROPOUT, {"dropout": "half"}, ValueError, AUTO_DROPOUT),
    *[
        (
            kinds,
            {"dropout": "half"},
            TypeError,
            "`dropout` must be a number; got 'half'",
        )
        for kinds in (BBB, VARIATIONAL)
    ],
    *[
        (
            MC_DROPOUT[:1],
            {"likelihood": value},
            ValueError,
            WRONG_LIKELIHOOD.format(rule),
        )
        for value, rule in (("student", "'student'"), (["gaussian"], r"\['gaussian'\]"))
    ],
    *[(MC_DROPOUT[:1], {"tau": tau}, ValueError, WRONG_TAU) for tau in (1e-300, 1e300)],
    *[
        (
            MC_DROPOUT[1:],
            {"class_weight": {"low": weight, "mid": 1.0, "top": 1.0}},
            ValueError,
            "`class_weight` must be finite and >= 0",
        )
        for weight in (-1.0, np.nan, np.inf)
    ],
    (BBB, {"prior": "scale_mixture"}, ValueError, "requires kl='sampled', .*='closed'"),
    *[
        (
            BBB,
            {"prior": "scale_mixture", "kl": "sampled", "length_scale": scale},
            ValueError,
            "prior='scale_mixture' .* by 1 / length_scale, which must be > 0; got",
        )
        for scale in (0, np.array([0.0, 1.0, 1.0]))
    ],
    (
        VARIATIONAL,
        {"alpha_per": "weight"},
        ValueError,
        "noise='correlated' requires alpha_per='layer' .*; got alpha_per='weight'",
    ),
    (
        VARIATIONAL,
        {"prior": "gaussian"},
        ValueError,
        "noise='correlated' requires prior='log_uniform'",
    ),
    *[
        (kinds, {name: "odd"}, ValueError, f"`{name}` must be one of .*; got 'odd'")
        for kinds, names in (
            (BBB, ("prior", "kl", "kl_weighting", "gradient")),
            (VARIATIONAL, ("noise", "alpha_per", "prior", "kl_approximation")),
        )
        for name in names
    ],
    # Also without an effect, such as pi under the Gaussian prior.
    *[
        (kinds, {name: value}, ValueError, rf"`{name}` must be {rule}; got {value}")
        for kinds, name, rule, values in (
            (BBB, "pi", r"in \(0, 1\)", (0.0, 1.0, np.nan)),
            (BBB, "s1", "finite and > 0", (0.0, np.inf)),
            (BBB, "s2", "finite and > 0", (-1.0,)),
            (BBB, "n_training_draws", ".*", (0,)),
            ([*BBB, *VARIATIONAL], "kl_warm_up", r"in \[0, 1\)", (-0.1, 1.0, np.nan)),
        )
        for value in values
    ],
]


def test_invalid_parameters_of_some_estimators(data, assert_refused):
    with Checks() as check:
        for kinds, parameters, error, message in PARAMETERS_OF_SOME:
            for kind in kinds:
                y = data.labels if is_classifier(kind()) else data.y
                with check(f"{kind.__name__}, {parameters}"):
                    assert_refused(kind, data.X, y, error, message, **parameters)


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


@pytest.mark.parametrize("n_draws", [0, -1])
@BOTH
def test_n_draws_below_one(data, fitted, kind, n_draws):
    model = copy.copy(fitted[kind]).set_params(n_draws=n_draws)
    for method in ("predict", "predict_uncertainty"):
        with pytest.raises(
            ValueError, match=f"`n_draws` must be finite and >= 1; got {n_draws}"
        ):
            getattr(model, method)(data.X_new)
    for method in ("sample_f", "sample_y"):
        with pytest.raises(
            ValueError, match="`n_samples` must be finite and >= 1; got 0"
        ):
            getattr(fitted[kind], method)(data.X_new, 0)
    with pytest.raises(TypeError, match=r"`n_draws` must be an integer; got 2.5"):
        model.set_params(n_draws=2.5).predict(data.X_new)


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


# ---- units, weights, classes


def test_targets_and_classes_of_odd_values(data, assert_refused, small):
    """Units of y whose square overflows, and a stream with a single class."""
    message = r"`y` must have values of at most 1e\+140 .* another unit"
    for unit in (1e-300, 1e-145, 1e145, 1e300):
        assert_refused(MCDropoutRegressor, data.X, unit * data.y, ValueError, message)
    model = MCDropoutClassifier(**small)
    with pytest.raises(ValueError, match=r"`classes` must contain .* 2; got \[0\]"):
        model.partial_fit(data.X, np.zeros(41, int), classes=[0])


@pytest.mark.parametrize("unit", [1e-300, 1e-30, 1e30, 1e300])
def test_any_unit_of_x(data, small, unit):
    """Up to rounding, as the units are no powers of two."""
    models = [MCDropoutRegressor(**small).fit(u * data.X, data.y) for u in (1, unit)]
    expected, actual = (
        model.predict(u * data.X) for u, model in zip((1, unit), models, strict=True)
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


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


def test_validation_rows_may_be_sparse_if_x_is_dense(data, small):
    """Early stopping depends on the values of the rows alone."""
    predictions = []
    for train, held_out in ((np.array, sparse.csr_array), (np.array, np.array)):
        model = MCDropoutRegressor(early_stopping=True, **small)
        X_val, y_val = held_out(data.X_new), data.y_new
        model.fit(train(data.X), data.y, X_val=X_val, y_val=y_val)
        predictions.append(model.predict(data.X_new))
    np.testing.assert_array_equal(*predictions)


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


@pytest.mark.filterwarnings("error:The given NumPy array is not writable")
def test_memory_mapped_model(data, fitted, tmp_path):
    joblib = pytest.importorskip("joblib")
    for model in fitted.values():
        joblib.dump(model, tmp_path / "model")
        mapped = joblib.load(tmp_path / "model", mmap_mode="r")
        np.testing.assert_array_equal(
            mapped.predict(data.X_new), model.predict(data.X_new)
        )
