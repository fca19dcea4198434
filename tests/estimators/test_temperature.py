"""The temperature of a classifier's predictions, estimated on held-out rows."""

import numpy as np
import torch
from scipy.special import log_softmax, softmax

from skbayesnn import AnchoredEnsembleClassifier, MCDropoutClassifier
from skbayesnn._likelihoods import Categorical
from tests.helpers.onnx_running import assert_same_classification


def noisy_classes(n_rows, seed):
    """X and labels of overlapping classes."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, 4))
    logits = 1.2 * np.column_stack([X[:, 0], np.sin(2 * X[:, 1]), -X[:, 2]])
    return X, (logits + random.gumbel(size=logits.shape)).argmax(1)


def test_estimate_is_the_factor_of_the_logits(seed):
    random = np.random.default_rng(seed)
    logits = random.normal(size=(5_000, 3))
    y = torch.as_tensor((logits + random.gumbel(size=logits.shape)).argmax(1))
    likelihood = Categorical(3)
    for temperature in (0.4, 1.0, 3.0):
        outputs = torch.as_tensor(temperature * logits)[None, None]
        draws = likelihood.held_out_draws({}, outputs, y[None])
        assert draws.shape == (1, 5_000, 1, 1, 3)
        density, params = likelihood.fit_predictive_params(
            draws[0].numpy(), np.ones(5_000)
        )
        # The standard error of log T is about 0.03.
        assert abs(params["log_temperature"][0] - np.log(temperature)) < 0.15
        log_p = log_softmax(
            temperature * logits / np.exp(params["log_temperature"][0]), axis=1
        )
        np.testing.assert_allclose(density[:, 0], log_p[np.arange(5_000), y])


def test_probabilities_have_the_temperature(seed):
    """Compiled predictions, exported ones and NumPy agree; draws have it, too."""
    X, y = noisy_classes(150, seed)
    model = AnchoredEnsembleClassifier(
        (7,), n_estimators=3, max_iter=40, device="cpu", random_state=seed
    ).fit(X, y)
    values = model.parameters_
    log_temperature = values["likelihood/log_temperature"]
    assert log_temperature.shape == (3, 1) and (log_temperature != 0).all()
    units = (X - model.x_mean_) / model.x_scale_
    first, second = (
        (values[f"layers/{i}/mean"], values[f"layers/{i}/bias"][:, None])
        for i in range(2)
    )
    logits = np.tanh(units @ first[0] + first[1]) @ second[0] + second[1]
    expected = softmax(logits / np.exp(log_temperature[:, None]), axis=2)
    np.testing.assert_allclose(model.predict_proba(X), expected.mean(0), atol=1e-6)
    sampled = model.sample_f(X, 60, random_state=0)  # (rows, classes, samples)
    distance = np.abs(sampled[..., None] - np.moveaxis(expected, 0, -1)[:, :, None])
    # Every sample is one of the three members.
    assert distance.max((0, 1)).min(1).max() < 1e-6
    assert_same_classification(model, X)


def test_anchored_ensembles_are_not_overconfident(seed):
    X, y = noisy_classes(1_800, seed)
    train, test = slice(0, 300), slice(300, None)
    model = AnchoredEnsembleClassifier(
        (50,), max_iter=200, device="cpu", random_state=seed
    ).fit(X[train], y[train])
    with_temperature = model.predict_proba(X[test])
    model.parameters_ = model.parameters_ | {
        "likelihood/log_temperature": np.zeros((10, 1))
    }
    model._cache = type(model._cache)()
    without = model.predict_proba(X[test])
    gap, gap_without = (
        p.max(1).mean() - (p.argmax(1) == y[test]).mean()
        for p in (with_temperature, without)
    )
    # The standard error of the accuracy is 0.013.
    assert gap_without > 0.08 and abs(gap) < 0.05
    rows = np.arange(1_500)
    loss, loss_without = (
        -np.log(p[rows, y[test]]).mean() for p in (with_temperature, without)
    )
    assert loss < loss_without - 0.05


def test_other_classifiers_and_continued_fits(seed):
    X, y = noisy_classes(150, seed)
    settings = {"max_iter": 20, "device": "cpu", "random_state": seed}
    model = MCDropoutClassifier((7,), **settings).fit(X, y)
    assert "likelihood/log_temperature" not in model.parameters_
    model = AnchoredEnsembleClassifier((7,), warm_start=True, **settings).fit(X, y)
    before = model.parameters_["likelihood/log_temperature"]
    model.fit(X, y)
    np.testing.assert_array_equal(
        model.parameters_["likelihood/log_temperature"], before
    )
