"""MC dropout of modules that were trained in torch."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from torch import nn

import skbayesnn
from skbayesnn import from_torch

ROWS, COLUMNS, CLASSES = 7, 4, 3


@pytest.fixture
def module(seed):
    """Two kinds of dropout, and running moments that are not those of the rows."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(COLUMNS, 24),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Unflatten(1, (6, 4)),
            nn.Conv1d(6, 5, 2),
            nn.Dropout1d(0.5),
            nn.Flatten(),
            nn.Linear(15, CLASSES),
        ).double()


@pytest.fixture
def X(seed):
    return np.random.default_rng(seed).normal(size=(ROWS, COLUMNS))


def by_hand(module, X, draw):
    """With masks of the draw's own stream, in the order of the layers."""
    generator = torch.Generator().manual_seed(draw)
    linear, norm, _, _, unflatten, convolve, _, _, last = module
    with torch.no_grad():
        h = linear(torch.as_tensor(X))
        h = (h - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
        h = torch.relu(h * norm.weight + norm.bias)
        h = h * (torch.rand(1, 24, generator=generator) >= 0.3) / 0.7
        h = convolve(unflatten(h))
        h = h * (torch.rand(1, 5, 1, generator=generator) >= 0.5) / 0.5
        return last(h.flatten(1)).numpy()


def test_regressor_is_the_mixture_of_the_masks(module, X):
    model = from_torch(module, noise_std=0.4, n_draws=6)
    outputs = np.stack([by_hand(module, X, draw) for draw in range(6)])
    np.testing.assert_allclose(model.predict(X), outputs.mean(0))
    total = model.predict_uncertainty(X) ** 2
    np.testing.assert_allclose(total, outputs.var(0) + 0.4**2)
    assert model.predict_interval(X).shape == (ROWS, CLASSES, 2)


def test_classifier_is_the_mean_of_the_softmax(module, X):
    labels = ["c", "a", "b"]
    model = from_torch(module, classes=labels, n_draws=6)
    outputs = np.stack([by_hand(module, X, draw) for draw in range(6)])
    probability = torch.softmax(torch.as_tensor(outputs), -1).mean(0).numpy()
    np.testing.assert_allclose(model.predict_proba(X), probability)
    expected = np.array(labels)[probability.argmax(1)]
    np.testing.assert_array_equal(model.predict(X), expected)
    assert model.score(X, expected) == 1
    assert (model.predict_uncertainty(X, "mutual_information") > 0).all()


def test_prediction_is_a_function_of_the_row(module, X):
    model = from_torch(module, lambda X: X * 2.0, noise_std=0.1)
    whole = model.predict_quantile(X, 0.8)
    np.testing.assert_allclose(model.predict_quantile(X[2:3], 0.8), whole[2:3])
    np.testing.assert_array_equal(model.predict_quantile(X, 0.8), whole)
    doubled = from_torch(module, noise_std=0.1)
    np.testing.assert_allclose(doubled.predict_quantile(2 * X, 0.8), whole)


def test_module_is_left_alone(module, X):
    """Its mode, its hooks, and what it does later."""
    before = {n: v.clone() for n, v in module.state_dict().items()}
    model = from_torch(module, noise_std=0.1)
    found = model.predict(X)
    assert module.training
    assert not any(m._forward_hooks for m in module.modules())
    with torch.no_grad():
        module[0].weight.zero_()
    np.testing.assert_array_equal(model.predict(X), found)
    del before["0.weight"]
    after = module.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_free_functions_and_pipelines_take_it(module, X):
    with torch.random.fork_rng():
        last = nn.Linear(15, 1).double()
    model = from_torch(module[:-1].append(last), noise_std=0.1)
    piped = make_pipeline("passthrough", model)
    assert skbayesnn.predict_interval(piped, X).shape == (ROWS, 2)


def test_threads_have_masks_of_their_own(module, X):
    model = from_torch(module, noise_std=0.1)
    expected = model.predict(X)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(model.predict, [X] * 8):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (nn.Dropout1d, (4,)),
        (nn.Dropout1d, (4, 6)),
        (nn.Dropout2d, (4, 6)),  # which torch takes for (rows, channels, length)
        (nn.Dropout2d, (4, 6, 5)),
        (nn.Dropout3d, (4, 6, 5, 3)),
    ],
)
def test_channels_are_dropped_as_a_whole(kind, shape):
    """Each by itself, alike in all rows, whatever stands behind them."""
    scale = nn.Parameter(torch.ones(1))
    layer = nn.Sequential(nn.Flatten(0, 0), kind(0.5))
    layer.register_parameter("scale", scale)
    model = from_torch(layer, lambda X: X.reshape(-1, *shape), noise_std=1.0)
    ones = np.ones((3, int(np.prod(shape))))
    channels = model._draws(ones).reshape(50, 3, 4, -1)
    assert set(np.unique(channels)) == {0.0, 2.0}
    assert (np.ptp(channels, axis=(1, 3)) == 0).all()
    assert 1 < channels[:, 0, :, 0].sum(1).std()  # Not all of them together.


def test_logits_are_as_many_as_classes(module, X):
    model = from_torch(module, classes=[0, 1])
    with pytest.raises(ValueError, match=r"logit for each of 2 classes; got 3"):
        model.predict_proba(X)


def test_net_of_skorch(X):
    skorch = pytest.importorskip("skorch")
    with torch.random.fork_rng():
        layers = nn.Linear(COLUMNS, 5), nn.Dropout(0.2), nn.Linear(5, 1)
        net = skorch.NeuralNetRegressor(
            nn.Sequential(*layers), max_epochs=1, verbose=0, train_split=False
        )
        net.fit(X.astype(np.float32), X[:, :1].astype(np.float32))
    assert from_torch(net, noise_std=1.0).predict(X).shape == (ROWS,)


@pytest.mark.parametrize(
    ("layer", "options", "error", "said"),
    [
        (
            nn.ReLU(),
            {"noise_std": 1.0},
            ValueError,
            "`module` must have a layer torch.nn.Dropout",
        ),
        (nn.Dropout(0.0), {"noise_std": 1.0}, ValueError, "with p > 0; got none"),
        (nn.Dropout(), {}, TypeError, "`noise_std` must be a number; got None"),
        (nn.Dropout(), {"noise_std": 0.0}, ValueError, "`noise_std` must be .* > 0"),
        (nn.Dropout(), {"n_draws": 0}, ValueError, "`n_draws` must be .* >= 1; got 0"),
    ],
)
def test_bad_arguments_are_refused(layer, options, error, said):
    with pytest.raises(error, match=said):
        from_torch(nn.Sequential(layer), **options)
