"""Networks without uncertainty: MAP estimation, and maximum likelihood.

``dropout=0`` is MAP and ``length_scale=0`` also maximum likelihood. Least squares is in
`test_conjugate.py`, ridge regression in `tests/engine/test_training.py`.
"""

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression

from skbayesnn import MCDropoutClassifier
from skbayesnn.estimators.mc_dropout import NOISES
from tests.helpers.posteriors import MC_DROPOUT

BOTH = pytest.mark.parametrize("kind", MC_DROPOUT)
parametrize_priors = pytest.mark.parametrize(
    "length_scale", [0.0, 0.7], ids=["ML", "MAP"]
)


def target(kind, data):
    return data.labels if is_classifier(kind()) else data.y


@parametrize_priors
@BOTH
def test_baseline_is_deterministic(data, small, kind, length_scale):
    """Every draw is the network itself, for any number of draws."""
    model = kind(**small | {"dropout": 0.0, "length_scale": length_scale})
    model.set_params(n_estimators=1, batch_size=17).fit(data.X, target(kind, data))
    functions = model.sample_f(data.X_new, 7)
    np.testing.assert_array_equal(functions, functions[..., :1].repeat(7, -1))
    method = "predict_proba" if is_classifier(model) else "predict"
    # Rounding of a mean over equal draws.
    np.testing.assert_allclose(
        getattr(model, method)(data.X_new), functions[..., 0], rtol=1e-12
    )
    kinds = model.predict_uncertainty(data.X_new, kind="all")
    for name in ("epistemic", "mutual_information"):
        np.testing.assert_allclose(kinds.get(name, 0.0), 0.0, atol=1e-12)
    assert model.dropout_ == 0.0
    if length_scale == 0:
        assert model.weight_decay_ == 0.0 and not model.history_["kl"].any()
    single_draw = clone(model).set_params(n_draws=1).fit(data.X, target(kind, data))
    np.testing.assert_array_equal(
        single_draw.predict(data.X_new), model.predict(data.X_new)
    )


@parametrize_priors
@BOTH
def test_dropout_kind_does_not_matter_without_dropout(data, small, kind, length_scale):
    """The weights are exactly the same."""
    y = target(kind, data)
    models = [
        kind(noise=noise, **small | {"dropout": 0.0, "length_scale": length_scale}).fit(
            data.X, y
        )
        for noise in NOISES
    ]
    for model in models[1:]:
        for name, value in models[0].parameters_.items():
            np.testing.assert_array_equal(model.parameters_[name], value)


@BOTH
def test_ensemble_of_deterministic_networks_has_uncertainty(data, small, kind):
    """The uncertainty is due to different initial weights alone."""
    model = kind(n_estimators=3, **small | {"dropout": 0.0})
    model.fit(data.X, target(kind, data))
    name = "mutual_information" if is_classifier(model) else "epistemic"
    assert (model.predict_uncertainty(data.X_new, name) > 0).all()
    functions = model.sample_f(data.X_new, 40)
    assert len(np.unique(functions[0].reshape(-1, 40)[0])) == 3


def test_deterministic_linear_classifier_is_logistic_regression(data, small):
    """MAP: half of l^2 times the squared weights plus the sum of the losses.

    scikit-learn does not penalise the intercepts, so that a column of ones replaces
    them.
    """
    X = (data.X - data.X.mean(0)) / data.X.std(0)
    model = MCDropoutClassifier(
        **small | {"dropout": 0.0, "length_scale": 2.0, "hidden_layer_sizes": ()}
    )
    model.set_params(max_iter=1500, learning_rate_init=0.03).fit(data.X, data.labels)
    reference = LogisticRegression(
        C=1 / 2.0**2, fit_intercept=False, tol=1e-10, max_iter=1000
    ).fit(np.hstack([X, np.ones((len(X), 1))]), data.labels)
    learned = np.vstack(
        [model.parameters_["layers/0/mean"][0], model.parameters_["layers/0/bias"]]
    )
    # Tolerance of Adam's last steps, and of scikit-learn's stopping.
    np.testing.assert_allclose(learned, reference.coef_.T, atol=1e-4)
