"""Trainings that diverge."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skbayesnn import (
    MCDropoutRegressor,
)
from skbayesnn._engine.training import TrainingHistory
from tests.helpers.bad_input import BOTH, target


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
    with pytest.raises(ValueError, match="Set n_estimators=2, set warm_start=False"):
        model.fit(data.X, data.y)
    model.set_params(n_estimators=2).fit(data.X, data.y)
    assert model.history_["loss"].shape == (20, 2)
