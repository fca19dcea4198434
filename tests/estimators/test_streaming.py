"""Continued training, early stopping and interrupted fits."""

import copy
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._engine.optimizer import Adam
from skbayesnn._engine.training import ENGINE_VARIABLE


def assert_same_state(actual, desired):
    """Two ``__dict__`` are equal, arrays exactly."""
    assert type(actual) is type(desired)
    if isinstance(desired, dict):
        assert list(actual) == list(desired)
        for key, value in desired.items():
            assert_same_state(actual[key], value)
    elif isinstance(desired, np.ndarray):
        np.testing.assert_array_equal(actual, desired)
    else:
        assert actual == desired


def interrupt(monkeypatch, step, error=KeyboardInterrupt):
    """Make the step-th step of torch's optimiser (counted from 1) raise."""
    monkeypatch.setenv(ENGINE_VARIABLE, "torch")
    plain, calls = Adam.step, []

    def step_or_raise(self, *args, **kwargs):
        calls.append(None)
        if len(calls) == step:
            raise error
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(Adam, "step", step_or_raise)


# ---- partial_fit


def test_first_call_of_partial_fit(data, small):
    """It is a fit."""
    model = MCDropoutRegressor(tau=2.0, **small)
    assert model.partial_fit(data.X, data.y) is model
    fitted = clone(model).fit(data.X, data.y)
    np.testing.assert_array_equal(model.predict(data.X), fitted.predict(data.X))
    assert model.n_iter_ == 20 and len(model.loss_curve_) == 20
    assert model.total_weight_ == 41
    assert model.weight_decay_ == pytest.approx(0.9 * 0.1**2 / (2 * 41 * 2.0))
    np.testing.assert_allclose(model.x_mean_, data.X.mean(0), atol=1e-14)
    assert model.predict(data.X_new).shape == (11,)


def test_partial_fit_of_one_epoch(data, small, taken):
    """It equals an epoch of fit if nothing depends on N or the rate."""
    model = MCDropoutRegressor(
        tau=2.0,
        learning_rate="constant",
        batch_size=7,
        **small | {"length_scale": 0.0},
    )
    whole = clone(model).set_params(max_iter=4).fit(data.X, data.y)
    for _ in range(4):
        model.partial_fit(data.X, data.y, n_epochs=1, n_replay=0)
    # Only N differs, and it affects the prior alone.
    np.testing.assert_allclose(
        model.predict(data.X_new), whole.predict(data.X_new), rtol=1e-9
    )


def test_partial_fit_continues_fit(data, small, taken):
    model = MCDropoutRegressor(**small).fit(data.X, data.y)
    before = model.loss_curve_[-1]
    model.partial_fit(data.X, data.y)
    # Half of all rows are new: a quarter of the epochs.
    assert model.n_iter_ == 25 and model.total_weight_ == pytest.approx(82)
    assert model.loss_curve_[-1] < before + 1.0


def test_partial_fit_of_a_classifier(data, small, taken):
    model = MCDropoutClassifier(**small)
    first = data.labels != "top"
    model.partial_fit(data.X[first], data.labels[first], classes=["top", "low", "mid"])
    np.testing.assert_array_equal(model.classes_, ["low", "mid", "top"])
    assert model.predict_proba(data.X_new).shape == (11, 3)
    top = data.labels == "top"
    model.partial_fit(data.X[top], data.labels[top])  # one class is enough now
    assert model.total_weight_ == pytest.approx(41)
    first = model.log_predictive_density(data.X, data.labels).mean()
    model.partial_fit(data.X, data.labels, n_epochs=200)
    assert model.log_predictive_density(data.X, data.labels).mean() > first


def test_partial_fit_needs_all_classes(data, small):
    model = MCDropoutClassifier(**small)
    top = data.labels == "top"
    with pytest.raises(ValueError, match="at least 2 classes; got 1 class: 'top'"):
        model.partial_fit(data.X[top], data.labels[top])
    model.partial_fit(data.X[~top], data.labels[~top])
    with pytest.raises(ValueError, match=r"in `y` must be among the classes.*'top'"):
        model.partial_fit(data.X, data.labels)
    with pytest.raises(ValueError, match="`classes` must be the same as in the"):
        model.partial_fit(data.X, data.labels, classes=["low", "mid", "top"])
    np.testing.assert_array_equal(model.classes_, ["low", "mid"])
    assert model.n_iter_ == 20


# ---- warm_start


def test_warm_start_continues_the_random_numbers(data, small):
    """A second fit does not repeat the random numbers of the first."""
    model = MCDropoutRegressor(
        warm_start=True, learning_rate="constant", **small | {"batch_size": 7}
    )
    model.set_params(learning_rate_init=1e-12)  # the weights do not change
    first = model.fit(data.X, data.y).loss_curve_
    second = model.fit(data.X, data.y).loss_curve_
    assert not set(np.round(first, 9)) & set(np.round(second, 9))


def test_length_scale_auto_follows_all_rows_of_partial_fit(data, small, taken):
    model = MCDropoutRegressor(**small | {"length_scale": "auto"})
    for n_rows in (9, 9 + 12):
        model.partial_fit(
            data.X[n_rows - 9 : n_rows + 3], data.y[n_rows - 9 : n_rows + 3], n_epochs=1
        )
    assert model.total_weight_ == pytest.approx(24)
    largest = np.sqrt(24) / 2
    fan_ins = np.array([4, *model.hidden_layer_sizes])
    scale = np.minimum(np.sqrt(fan_ins), largest)
    np.testing.assert_allclose(model.length_scale_, scale)
    keep = 1 - np.asarray(model.dropout_)
    np.testing.assert_allclose(
        model.weight_decay_, keep * scale**2 / (2 * 24 * model.tau_)
    )


def test_warm_start_accepts_other_rows_and_rates(data, small):
    model = MCDropoutRegressor(warm_start=True, **small).fit(data.X, data.y)
    model.set_params(dropout=0.2, tau="auto", length_scale=1.0, max_iter=3)
    model.fit(data.X_new, data.y_new)
    assert model.dropout_ == 0.2 and model.n_iter_ == 3
    assert model.total_weight_ == 11
    assert model.weight_decay_ == pytest.approx(0.8 / (2 * 11 * model.tau_))


NETWORK = "must keep the network; the fitted network has .*, set warm_start=False"
TARGETS = "y has {} the model has {}".format
CLASSES = "keep the classes; y has 3 classes, the model has 3"
STOPPING = r"hold out other rows; got early_stopping=True"
# What a model was fitted to, a changed parameter, a call, and why it is refused.
REFUSED = [
    ("y", {"hidden_layer_sizes": (8, 7)}, "fit", "X y", NETWORK),
    ("y", {"hidden_layer_sizes": (8,)}, "fit", "X y", NETWORK),
    ("y", {"activation": "tanh"}, "fit", "X y", NETWORK),
    ("y", {"likelihood": "heteroscedastic"}, "fit", "X y", NETWORK),
    ("y", {"tau": 2.0}, "fit", "X y", NETWORK),
    ("y", {"dropout": 0.0}, "fit", "X y", NETWORK),
    ("y", {"n_estimators": 3}, "fit", "X y", "n_estimators"),  # it has no effect
    ("y", {}, "fit", "X Y", TARGETS("3 targets,", 1)),
    ("y", {}, "partial_fit", "X Y", TARGETS("3 targets,", 1)),
    ("Y", {}, "fit", "X y", TARGETS("1 target,", 3)),
    ("Y", {}, "partial_fit", "X y", TARGETS("1 target,", 3)),
    ("y", {}, "partial_fit", "X_three y", "3 features"),
    ("labels", {}, "fit", "X codes", CLASSES),
    ("labels", {}, "fit", "X other_labels", CLASSES),
    ("labels", {}, "fit", "X two", "y has 2 classes, the model has 3"),
    # A grid that is an array contains NumPy's booleans.
    ("y", {"early_stopping": np.True_}, "partial_fit", "X y", STOPPING),
    ("labels", {"early_stopping": np.True_}, "partial_fit", "X labels", STOPPING),
]


@pytest.mark.parametrize(("fitted_to", "change", "method", "rows", "reason"), REFUSED)
def test_refused_continuations(data, small, fitted_to, change, method, rows, reason):
    """They leave the model as it is, and the message has only what differs."""
    values = vars(data) | {
        "X_three": data.X[:, :3],
        "other_labels": np.where(data.codes == 2, "tip", data.labels),
        "two": data.codes > 0,
    }
    kind = MCDropoutClassifier if fitted_to == "labels" else MCDropoutRegressor
    model = kind(warm_start=True, **small).fit(data.X, values[fitted_to])
    model.set_params(**change)
    before = copy.deepcopy(vars(model))
    with pytest.raises(ValueError, match=reason) as caught:
        getattr(model, method)(*(values[name] for name in rows.split()))
    assert "format" not in str(caught.value)
    assert_same_state(vars(model), before)


# ---- interruption and failure


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, MemoryError])
@pytest.mark.parametrize("warm_start", [False, True])
def test_interrupted_first_fit_leaves_no_attributes(
    data, small, monkeypatch, error, warm_start
):
    """With warm_start, a finished epoch is kept after Ctrl-C only."""
    model = MCDropoutRegressor(warm_start=warm_start, **small)
    before = copy.deepcopy(vars(model))
    keeps = warm_start and error is KeyboardInterrupt
    interrupt(monkeypatch, step=1 if keeps else 5, error=error)
    with pytest.raises(error):
        model.fit(data.X, data.y)
    assert_same_state(vars(model), before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_interrupted_fit_keeps_the_previous_fit(
    data, small, monkeypatch, error, method
):
    pd = pytest.importorskip("pandas")
    monkeypatch.setenv(ENGINE_VARIABLE, "torch")
    model = MCDropoutClassifier(**small)
    model.fit(pd.DataFrame(data.X, columns=list("abcd")), data.labels)
    before = copy.deepcopy(vars(model))
    expected = model.predict_proba(pd.DataFrame(data.X_new, columns=list("abcd")))
    interrupt(monkeypatch, step=5 if method == "fit" else 2, error=error)
    if method == "fit":  # other columns, without names, and other labels
        with pytest.raises(error):
            model.fit(data.X[:, :3], data.codes)
    else:
        model.set_params(batch_size=7)
        with pytest.raises(error):
            model.partial_fit(pd.DataFrame(data.X, columns=list("abcd")), data.labels)
        model.set_params(batch_size="auto")
    assert_same_state(vars(model), before)
    np.testing.assert_array_equal(
        model.predict_proba(pd.DataFrame(data.X_new, columns=list("abcd"))), expected
    )


def test_failed_validation_keeps_the_previous_fit(data, small):
    """Feature names, which are set early in fit, are restored, too."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data.X, columns=list("abcd"))
    model = MCDropoutRegressor(**small).fit(frame, data.y)
    before = copy.deepcopy(vars(model))
    with pytest.raises(ValueError, match="y contains NaN"):
        model.fit(data.X[:, :3], np.full(41, np.nan))
    with pytest.raises(ValueError, match="y contains NaN"):
        model.fit(frame.rename(columns={"a": "z"}), np.full(41, np.nan))
    assert_same_state(vars(model), before)


def test_warning_as_error_leaves_no_attributes(data, small):
    model = MCDropoutRegressor(**small)
    before = copy.deepcopy(vars(model))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="y is constant"):
            model.fit(data.X, np.ones(41))
    assert_same_state(vars(model), before)


@pytest.mark.parametrize("batch_size", ["auto", 7])
def test_interrupted_warm_start_keeps_the_finished_epochs(
    data, small, monkeypatch, batch_size
):
    """Ctrl-C in the fifth epoch gives the weights after the fourth."""
    monkeypatch.setenv(ENGINE_VARIABLE, "torch")
    model = MCDropoutRegressor(
        warm_start=True, learning_rate="constant", batch_size=batch_size, **small
    )
    four = clone(model).set_params(max_iter=4).fit(data.X, data.y)
    batches = 1 if batch_size == "auto" else 6  # 41 rows
    with monkeypatch.context() as patch:
        interrupt(patch, step=4 * batches + min(batches, 3))
        with pytest.warns(
            ConvergenceWarning, match=r"interrupted; 4 finished epochs are kept"
        ):
            model.fit(data.X, data.y)
    assert model.n_iter_ == len(model.loss_curve_) == 4
    for name, value in four.parameters_.items():
        np.testing.assert_array_equal(model.parameters_[name], value)
    np.testing.assert_array_equal(model.loss_curve_, four.loss_curve_)
    # A further fit continues from them.
    model.fit(data.X, data.y)
    four.set_params(max_iter=20).fit(data.X, data.y)
    np.testing.assert_array_equal(model.predict(data.X_new), four.predict(data.X_new))


# ---- early stopping


@pytest.fixture
def stopping(small):
    """Parameters of a network that over-fits, so that it stops early."""
    return small | {
        "max_iter": 300,
        "learning_rate": "constant",
        "learning_rate_init": 0.03,
        "early_stopping": True,
        "n_iter_no_change": 5,
    }


def test_early_stopping_holds_out_a_fraction(data, stopping):
    model = MCDropoutRegressor(validation_fraction=0.3, **stopping).fit(data.X, data.y)
    assert model.total_weight_ == 41 - np.ceil(0.3 * 41)
    scores = model.history_["validation_score"]
    assert scores.shape == (model.n_iter_, 1) and model.n_iter_ < 300
    # The last epochs gave no improvement.
    assert scores[:-5].max() + model.tol >= scores[-5:].max()


def test_networks_stop_separately(data, stopping):
    model = MCDropoutRegressor(n_estimators=5, **stopping | {"tol": 0.0})
    model.fit(data.X, data.y, X_val=data.X_new, y_val=data.y_new)
    scores, loss = model.history_["validation_score"], model.history_["loss"]
    n_epochs = np.isfinite(scores).sum(0)
    assert n_epochs.max() == model.n_iter_ == len(scores)
    assert len(set(n_epochs)) > 1
    np.testing.assert_array_equal(np.isfinite(loss), np.isfinite(scores))
    for i, n in enumerate(n_epochs):  # NaN only after the stop
        assert np.isfinite(scores[:n, i]).all()
    assert np.isfinite(model.loss_curve_).all()


def test_evidence_bound_belongs_to_the_best_weights(data, stopping):
    """Not to the last weights."""
    options = stopping | {"tol": 0.0, "dropout": 0.0, "learning_rate_init": 0.1}
    model = MCDropoutRegressor(**options | {"n_iter_no_change": 5})
    model.fit(data.X, data.y, X_val=data.X_new, y_val=data.y_new)
    best = int(np.argmax(model.history_["validation_score"])) + 1
    assert best < model.n_iter_
    shorter = clone(model).set_params(early_stopping=False, max_iter=best)
    shorter.fit(data.X, data.y)
    assert model.elbo_ == pytest.approx(shorter.elbo_, rel=1e-9)


@pytest.mark.parametrize(
    ("early_stopping", "arguments"),
    [(False, "Xy"), (True, "X"), (True, "y")],
)
def test_incomplete_or_unused_validation_rows_are_refused(
    data, small, early_stopping, arguments
):
    model = MCDropoutRegressor(early_stopping=early_stopping, **small)
    rows = {
        "X_val": data.X_new if "X" in arguments else None,
        "y_val": data.y_new if "y" in arguments else None,
    }
    with pytest.raises(
        ValueError,
        match=r"must be given together, with early_stopping=True; got X_val=",
    ):
        model.fit(data.X, data.y, **rows)
    assert not hasattr(model, "n_features_in_")


def test_invalid_validation_rows_are_refused(data, small):
    model = MCDropoutRegressor(early_stopping=True, **small)
    with pytest.raises(ValueError, match="features"):
        model.fit(data.X, data.y, X_val=data.X_new[:, :3], y_val=data.y_new)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(data.X, data.y, X_val=data.X_new, y_val=data.y_new * np.nan)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(data.X, data.y, X_val=data.X_new, y_val=data.y)
    model = MCDropoutClassifier(early_stopping=True, **small)
    with pytest.raises(ValueError, match=r"must be among the classes .* got \['new'\]"):
        model.fit(data.X, data.labels, X_val=data.X_new, y_val=["new"] * 11)


def test_other_number_of_validation_targets_is_refused(data, small):
    model = MCDropoutRegressor(early_stopping=True, **small)
    with pytest.raises(ValueError, match=r"`y_val`.*targets"):
        model.fit(data.X, data.y, X_val=data.X_new, y_val=data.Y_new)


def test_too_few_rows_to_hold_out_are_refused(data, small):
    model = MCDropoutRegressor(early_stopping=True, **small)
    with pytest.raises(ValueError, match=r"got 1 rows, too few to split.*X_val"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one row: all columns are constant
            model.fit(data.X[:1], data.y[:1])
    model = MCDropoutClassifier(early_stopping=True, **small)
    with pytest.raises(ValueError, match=r"got 4 rows, too few to split.*X_val"):
        model.fit(data.X[[0, 1, 39, 40]], ["a", "b", "c", "c"])
