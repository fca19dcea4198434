"""MC dropout of modules that were trained in torch."""

import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
import torch.nn.functional as F
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import get_scorer
from sklearn.pipeline import make_pipeline
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import skbayesnn
from skbayesnn import from_torch, scoring

ROWS, COLUMNS, CLASSES, DRAWS = 7, 4, 3, 2


class Forward(nn.Module):
    """A module whose forward is a function of itself and its inputs."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


@pytest.fixture(autouse=True)
def weights_from_the_seed(seed):
    """Modules are initialised with the seed; torch's generator is restored."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@pytest.fixture
def module():
    """Two kinds of dropout; the running moments differ from the moments of the rows."""
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


def perceptron(n_outputs=1, dropout=None, n_inputs=COLUMNS):
    dropout = nn.Dropout(0.5) if dropout is None else dropout
    return nn.Sequential(
        nn.Linear(n_inputs, 8), nn.Tanh(), dropout, nn.Linear(8, n_outputs)
    )


# ---- every kind of dropout


class SeededDropout(TorchDispatchMode):
    """torch's dropout in training mode, with the random numbers of a draw."""

    def __init__(self, draw):
        super().__init__()
        self.generator = torch.Generator().manual_seed(draw)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.bernoulli_.float:
            mask, kept = (*args, 0.5)[:2]
            uniform = torch.rand(mask.shape, generator=self.generator)
            return mask.copy_(uniform >= 1 - kept)
        # Attention without dropout has this tag, too.
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        assert not is_random or "attention" in str(func), func
        return func(*args, **(kwargs or {}))


def outputs_of_torch(module, X, draw):
    """Each row alone through the module in training mode."""
    outputs = []
    for row in torch.tensor(X):
        with torch.no_grad(), SeededDropout(draw):
            outputs.append(module.train()(row[None]).reshape(-1))
    return torch.stack(outputs).numpy()


def encoder(**options):
    return nn.TransformerEncoderLayer(8, 2, 6, dropout=0.25, **options)


def without_attention_dropout(layer):
    layer.self_attn.dropout = 0.0
    return layer


def sequence(layer, call, last, **layers):
    """Rows as sequences of scalars with 8 features, through a layer."""
    return Forward(
        lambda net, x: net.last(call(net, net.first(x[..., None]))),
        first=nn.Linear(1, 8),
        layer=layer,
        last=nn.Linear(last, 1),
        **layers,
    )


class Subclass(nn.Dropout):
    """A subclass as users write it, to identify their layers."""


def channels(dropout):
    return nn.Sequential(
        nn.Unflatten(1, (1, COLUMNS)),
        nn.Conv1d(1, 6, 2),
        dropout,
        nn.Flatten(),
        nn.Linear(18, 1),
    )


def shared_twice():
    drop = nn.Dropout(0.5)
    return nn.Sequential(nn.Linear(COLUMNS, 8), drop, nn.Tanh(), drop, nn.Linear(8, 1))


KINDS = {
    "Dropout": lambda: perceptron(),
    "Dropout in place": lambda: perceptron(dropout=nn.Dropout(0.5, inplace=True)),
    "Dropout of the inputs in place": lambda: nn.Sequential(
        nn.Dropout(0.5, inplace=True), nn.Linear(COLUMNS, 1)
    ),
    "Dropout1d": lambda: channels(nn.Dropout1d(0.5)),
    "Dropout2d": lambda: channels(
        nn.Sequential(nn.Unflatten(2, (1, 3)), nn.Dropout2d(0.5))
    ),
    "Dropout3d": lambda: channels(
        nn.Sequential(nn.Unflatten(2, (1, 3, 1)), nn.Dropout3d(0.5))
    ),
    "subclass": lambda: perceptron(dropout=Subclass(0.5)),
    "layer called twice": shared_twice,
    "sequences": lambda: sequence(
        nn.GRU(8, 5, batch_first=True),
        lambda net, h: net.drop(net.layer(h)[0])[:, -1],
        5,
        drop=nn.Dropout(0.5),
    ),
    "transformer": lambda: sequence(
        without_attention_dropout(encoder(batch_first=True)),
        lambda net, h: net.layer(h).mean(1),
        8,
    ),
}


def test_every_kind_of_dropout_equals_training_mode(X):
    """All rows at once equal each row alone in torch."""
    X = X[:4]
    wrong, noise = [], 1e-3
    for kind, make in KINDS.items():
        module = make().double()
        model = from_torch(module, noise_std=noise, n_draws=DRAWS)
        expected = np.stack(
            [outputs_of_torch(module, X, draw) for draw in range(DRAWS)]
        )
        mean, variance = expected.mean(0)[:, 0], expected.var(0)[:, 0]
        assert variance.max() > 1e-12, f"{kind}: the masks change nothing"
        actual, std = model.predict(X, return_std=True)
        close = np.allclose(actual, mean, rtol=1e-9, atol=1e-12)
        if not (close and np.allclose(std**2, variance + noise**2, rtol=1e-9)):
            wrong.append(kind)
    assert not wrong


@pytest.mark.parametrize("kind", ["Dropout", "sequences"])
def test_prediction_is_a_function_of_the_row(kind, X):
    """It does not depend on the other rows or their order."""
    model = from_torch(KINDS[kind]().double(), noise_std=1.0, n_draws=DRAWS)
    expected = model.predict(X)
    one_by_one = np.concatenate([model.predict(X[[i]]) for i in range(len(X))])
    results = [
        model.predict(X[::-1].copy())[::-1],
        np.concatenate([model.predict(X[:1]), model.predict(X[1:])]),
        one_by_one,
    ]
    np.testing.assert_allclose(results, [expected] * 3, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), expected)


def outputs_by_hand(module, X, draw):
    """With masks from the random numbers of the draw, in the order of the layers."""
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


def test_regressor_is_the_mixture_over_masks(module, X):
    """Batch normalisation uses its running moments."""
    module[1].running_mean += 0.5
    model = from_torch(module, noise_std=0.4, n_draws=6)
    outputs = np.stack([outputs_by_hand(module, X, draw) for draw in range(6)])
    np.testing.assert_allclose(model.predict(X), outputs.mean(0))
    total = model.predict_uncertainty(X) ** 2
    np.testing.assert_allclose(total, outputs.var(0) + 0.4**2)
    assert model.predict_interval(X).shape == (ROWS, CLASSES, 2)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.RReLU(0.1, 0.9),
        lambda: nn.BatchNorm1d(8),
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)),
    ],
)
def test_other_layers_are_in_evaluation_mode(layer, X):
    layer = layer().double()
    before, after = nn.Linear(COLUMNS, 8).double(), nn.Linear(8, 1).double()
    module = nn.Sequential(before, layer, nn.Dropout(0.5), after)
    model = from_torch(module, noise_std=1.0, n_draws=1)
    mask = torch.rand(1, 8, generator=torch.Generator().manual_seed(0)) >= 0.5
    with torch.no_grad():
        h = layer.eval()(before(torch.as_tensor(X)))
        expected = after(h * mask / 0.5)[:, 0].numpy()
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-12)


def test_wrappers(X):
    """A data-parallel wrapper and half precision use the same masks."""
    net = perceptron(dropout=nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.5)))
    expected = from_torch(net, noise_std=1.0, n_draws=DRAWS).predict(X)
    wrapped = from_torch(nn.DataParallel(net), noise_std=1.0, n_draws=DRAWS)
    np.testing.assert_allclose(wrapped.predict(X), expected, rtol=1e-6)
    for dtype, eps in ((torch.bfloat16, 2**-8), (torch.float16, 2**-11)):
        actual = from_torch(net.to(dtype), noise_std=1.0, n_draws=DRAWS).predict(X)
        np.testing.assert_allclose(actual, expected, atol=20 * eps)


@pytest.mark.cuda
def test_masks_on_gpu_and_cpu_are_the_same(X):
    """In float64, up to the order of sums."""
    for kind in ("Dropout", "Dropout2d", "sequences", "transformer"):
        net = KINDS[kind]().double()
        expected = from_torch(net, noise_std=1.0, n_draws=DRAWS).predict(X)
        model = from_torch(net.to("cuda"), noise_std=1.0, n_draws=DRAWS)
        np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9, err_msg=kind)
        assert next(net.parameters()).device.type == "cuda"


def test_module_is_not_changed(module, X):
    """Neither its mode nor its hooks; later changes of it have no effect."""
    before = {n: v.clone() for n, v in module.state_dict().items()}
    model = from_torch(module, noise_std=0.1, n_draws=DRAWS)
    expected = model.predict(X)
    assert all(layer.training for layer in module.modules())
    assert not any(m._forward_hooks for m in module.modules())
    with torch.no_grad():
        module[0].weight.zero_()
    np.testing.assert_array_equal(model.predict(X), expected)
    del before["0.weight"]
    after = module.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_inputs_are_not_changed(X):
    """The first layers work in place, on memory that torch shares with NumPy."""
    before = X.copy()
    module = nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True))
    model = from_torch(
        nn.Sequential(module, nn.Linear(4, 1).double()), noise_std=1.0, n_draws=DRAWS
    )
    model.predict(X)
    np.testing.assert_array_equal(X, before)


def test_threads_do_not_share_masks(module, X):
    model = from_torch(module, noise_std=0.1, n_draws=DRAWS)
    expected = model.predict(X)
    with ThreadPoolExecutor(4) as pool:
        for actual in pool.map(model.predict, [X] * 8):
            np.testing.assert_array_equal(actual, expected)


# ---- unsupported modules


class AdditiveNoise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x) if self.training else x


class BatchCentring(nn.Module):
    def forward(self, x):
        return x - x.mean(0) if self.training else x


class CountingLayer(nn.Module):
    n = 0

    def forward(self, x):
        self.n += 1
        return x + self.n


def with_layer(layer):
    """This layer followed by dropout and a linear layer."""
    return nn.Sequential(layer, nn.Dropout(0.5), nn.Linear(COLUMNS, 1))


def of_function(function):
    """A function, followed by dropout and a linear layer."""
    return with_layer(Forward(function))


def with_function(function):
    """A dropout layer, followed by a function."""
    return Forward(lambda net, x: function(net, net.drop(x)), drop=nn.Dropout(0.5))


UNSUPPORTED = {
    "a function": (
        lambda: of_function(lambda net, x: F.dropout(x, 0.1, net.training)),
        r"`0` \(Forward\) still differs .*Replace torch.nn.functional.dropout",
    ),
    "a function that is always on": (
        lambda: of_function(lambda net, x: F.dropout(x)),
        "treat every row separately",
    ),
    "a layer made in forward": (
        lambda: of_function(lambda net, x: nn.Dropout(0.5)(x)),
        "treat every row separately",
    ),
    "dropped weights": (
        lambda: Forward(
            lambda net, x: F.linear(x, net.drop(net.last.weight)),
            last=nn.Linear(COLUMNS, 1),
            drop=nn.Dropout(0.5),
        ),
        r"`drop` \(Dropout\) gets \(1, 4\) for 2 rows",
    ),
    "rows on the second axis": (
        lambda: Forward(
            lambda net, x: net.last(net.drop(x.T).T),
            last=nn.Linear(COLUMNS, 1),
            drop=nn.Dropout(0.5),
        ),
        r"gets \(4, 2\) for 2 rows\. Put the rows on the first axis",
    ),
    "channels of a matrix": (
        lambda: perceptron(dropout=nn.Dropout1d(0.5)),
        r"inputs of shape \(rows, channels, ...\)",
    ),
    "a recurrent layer": (
        lambda: sequence(
            nn.GRU(8, 5, 2, dropout=0.5, batch_first=True),
            lambda net, h: net.drop(net.layer(h)[0][:, -1]),
            5,
            drop=nn.Dropout(0.5),
        ),
        r"`layer` \(GRU\) has its own",
    ),
    "attention": (
        lambda: sequence(encoder(batch_first=True), lambda net, h: net.layer(h), 8),
        r"`layer.self_attn` \(MultiheadAttention\) has its own",
    ),
    "alpha dropout": (
        lambda: perceptron(dropout=nn.AlphaDropout(0.25)),
        r"`2` \(AlphaDropout\) has its own",
    ),
    "a layer that is not called": (
        lambda: Forward(lambda net, x: x, drop=nn.Dropout(0.5)),
        "calls none",
    ),
    "noise": (lambda: with_layer(AdditiveNoise()), r"`0` \(AdditiveNoise\) still"),
    "a state": (lambda: with_layer(CountingLayer()), "treat every row separately"),
    "moments in training": (
        lambda: with_layer(BatchCentring()),
        r"`0` \(BatchCentring\) still",
    ),
    "moments of the batch": (
        lambda: with_layer(Forward(lambda net, x: x - x.mean(0))),
        "treat every row separately",
    ),
    "a tuple": (lambda: with_function(lambda net, x: (x, x)), "got tuple"),
    "a scalar": (lambda: with_function(lambda net, x: x.mean()), r"of shape \(\)"),
    "rows last": (lambda: with_function(lambda net, x: x.T), r"of shape \(4, 2\)"),
    "several axes": (
        lambda: with_function(lambda net, x: x.unflatten(1, (2, 2))),
        r"of shape \(2, 2, 2\)",
    ),
    "labels": (lambda: with_function(lambda net, x: x.long()), "torch.int64"),
    "NaN": (
        lambda: with_function(lambda net, x: x * torch.nan),
        "finite; got others in 7 of 7 rows",
    ),
}


def test_unsupported_modules_are_refused(X):
    """Most errors name the layer."""
    wrong = {}
    for name, (make, expected) in UNSUPPORTED.items():
        try:
            wrong[name] = from_torch(make(), noise_std=1.0, n_draws=DRAWS).predict(X)
        except ValueError as error:
            if not re.search(expected, str(error)):
                wrong[name] = str(error)
    assert not wrong


@pytest.mark.parametrize(
    ("module", "options", "error", "message"),
    [
        (nn.ReLU(), {"noise_std": 1.0}, ValueError, "must have a dropout layer"),
        (nn.Dropout(0.0), {"noise_std": 1.0}, ValueError, "a rate > 0"),
        (nn.LSTM(2, 3, dropout=0), {"noise_std": 1.0}, ValueError, "a rate > 0"),
        (nn.Dropout(), {}, TypeError, r"regressor\) must be given; got neither"),
        (nn.Dropout(), {"classes": [0, 1], "noise_std": 1.0}, TypeError, "got both"),
        (nn.Dropout(), {"noise_std": 0.0}, ValueError, "`noise_std` must be"),
        (nn.Dropout(), {"noise_std": [1, -1]}, ValueError, "`noise_std` must be"),
        (nn.Dropout(), {"noise_std": 1.0, "n_draws": 0}, ValueError, "`n_draws` must"),
        (nn.Dropout(), {"classes": ["a", "b", "a"]}, ValueError, "2 different labels"),
        (nn.Dropout(), {"classes": ["a"]}, ValueError, "2 different labels"),
        (nn.Dropout(), {"classes": [[0, 1]]}, ValueError, "2 different labels"),
        (nn.Dropout(), {"classes": [0, 1], "outputs": "log"}, ValueError, "'logits'"),
        (
            nn.Dropout(),
            {"noise_std": 1.0, "outputs": "logits"},
            ValueError,
            "for classifiers",
        ),
        (nn.Dropout, {"noise_std": 1.0}, TypeError, "torch.nn.Module"),
    ],
)
def test_invalid_arguments_are_refused(module, options, error, message):
    with pytest.raises(error, match=message):
        from_torch(module, **options)


# ---- inputs


def test_outputs_of_X_transform(X):
    """Integers stay integers; tuples and dicts are the arguments of the module."""
    codes = np.abs(X * 10).astype(int) % 5
    embedded = Forward(
        lambda net, codes, x: net.last(net.drop(net.table(codes).mean(1))) + x,
        table=nn.Embedding(5, 3),
        drop=nn.Dropout(0.5),
        last=nn.Linear(3, 1),
    )
    both = np.hstack([codes, X[:, :1]])

    def predicted(X_transform, X=both):
        model = from_torch(embedded, X_transform, noise_std=1.0, n_draws=DRAWS)
        return model.predict(X)

    def split(X):
        return torch.as_tensor(X[:, :-1]).long(), X[:, -1:]

    expected = predicted(split)
    with torch.no_grad():
        without = embedded.eval()(torch.as_tensor(codes), torch.zeros(1))
    assert not np.allclose(expected, without[:, 0] + X[:, 0])
    for transform, rows in (
        (lambda X: dict(zip(("codes", "x"), split(X), strict=True)), both),
        (lambda X: split(X.toarray()), sparse.csr_array(both)),
        (lambda X: split(X.to_numpy()), pd.DataFrame(both)),
    ):
        np.testing.assert_allclose(predicted(transform, rows), expected, rtol=1e-6)


def test_arrays_get_the_dtype_of_the_parameters(X):
    module, options = perceptron().double(), {"noise_std": 1.0, "n_draws": DRAWS}
    model = from_torch(module, **options)
    expected = model.predict(X)
    for transform in (lambda X: X, sparse.csr_array, torch.as_tensor):
        actual = from_torch(module, transform, **options).predict(X)
        np.testing.assert_array_equal(actual, expected)
    frame = pd.DataFrame(X, columns=list("abcd"))
    np.testing.assert_array_equal(model.predict(frame), expected)
    single = model.predict(X.astype(np.float32))
    np.testing.assert_allclose(single, expected, rtol=1e-5, atol=1e-6)


def test_missing_values_and_sparse_X_are_refused(X):
    model = from_torch(perceptron(), noise_std=1.0, n_draws=DRAWS)
    X_missing = X.copy()
    X_missing[2, 1] = np.nan
    for method in ("predict", "predict_uncertainty", "predict_interval", "sample_y"):
        with pytest.raises(ValueError, match="X contains NaN"):
            getattr(model, method)(X_missing)
    with pytest.raises(ValueError, match="no missing values"):
        from_torch(perceptron(), lambda X: X, noise_std=1.0, n_draws=DRAWS).predict(
            X_missing
        )
    filled = from_torch(
        perceptron(), np.nan_to_num, noise_std=1.0, n_draws=DRAWS
    ).predict(X_missing)
    assert np.isfinite(filled).all()
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        model.predict(sparse.csr_array(X))
    with pytest.raises(ValueError, match="Expected 2D array"):
        model.predict(X[0])
    for transform in (None, lambda X: X):
        with pytest.raises(ValueError, match=r"at least one row|0 sample"):
            from_torch(perceptron(), transform, noise_std=1.0, n_draws=DRAWS).predict(
                X[:0]
            )


def test_rows_are_processed_in_blocks(seed):
    """Each row once, and first the compared rows, also alone, and one for its size."""
    X = np.random.default_rng(seed).normal(size=(600, COLUMNS))
    block_sizes = []

    def transform(X):
        block_sizes.append(len(X))
        return X

    model = from_torch(perceptron().double(), transform, noise_std=1.0, n_draws=5)
    with sklearn.config_context(working_memory=0.5):
        mean = model.predict(X)
    assert 1 < max(block_sizes) < 600 and sum(block_sizes) == 600 + 2 * 3 + 1
    again = np.concatenate([model.predict(X[:90]), model.predict(X[90:])])
    np.testing.assert_allclose(again, mean)


# ---- classes


@pytest.mark.parametrize(
    "labels", [["low", "mid", "high"], [2, 0, 1], [1.0, 0.0, -1.0]]
)
def test_classes_in_any_order(module, X, labels, seed):
    """Probabilities, densities and scores belong to the right labels."""
    model = from_torch(module, classes=labels, n_draws=6)
    outputs = np.stack([outputs_by_hand(module, X, draw) for draw in range(6)])
    p_outputs = torch.softmax(torch.as_tensor(outputs), -1).mean(0).numpy()
    labels = np.array(labels)
    np.testing.assert_array_equal(model.classes_, np.sort(labels))
    p = model.predict_proba(X)
    np.testing.assert_allclose(p, p_outputs[:, labels.argsort()])
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(p))
    expected = labels[p_outputs.argmax(1)]
    np.testing.assert_array_equal(model.predict(X), expected)
    assert model.score(X, expected) == 1

    code = np.arange(ROWS) % CLASSES
    p_label, y = p_outputs[np.arange(ROWS), code], labels[code]
    np.testing.assert_allclose(model.log_predictive_density(X, y), np.log(p_label))
    loss = -np.log(p_label).mean()
    assert scoring.log_density_scorer(model, X, y) == pytest.approx(-loss)
    assert get_scorer("neg_log_loss")(model, X, y) == pytest.approx(-loss)
    brier = np.square(p_outputs - np.eye(CLASSES)[code]).sum(1).mean()
    assert scoring.neg_brier_scorer(model, X, y) == pytest.approx(-brier)
    drawn = model.sample_y(X, 4000, random_state=seed)
    share = (drawn == labels[0]).mean(1)
    # Five standard errors and the spread of the six draws.
    spread = np.sqrt(0.25 / 4000) * 6
    np.testing.assert_allclose(share, p_outputs[:, 0], atol=spread)
    assert (model.predict_uncertainty(X, "mutual_information") > 0).all()


def test_outputs_are_logits_or_probabilities(module, X):
    """Log probabilities are valid logits; probabilities are refused as logits."""
    expected = from_torch(module, classes=[0, 1, 2], n_draws=DRAWS).predict_proba(X)
    logs = nn.Sequential(module, nn.LogSoftmax(-1))
    actual = from_torch(logs, classes=[0, 1, 2], n_draws=DRAWS).predict_proba(X)
    np.testing.assert_allclose(actual, expected)
    softmax = nn.Sequential(module, nn.Softmax(-1))
    with pytest.raises(ValueError, match=r"outputs that sum to one"):
        from_torch(softmax, classes=[0, 1, 2]).predict_proba(X)
    options = {"classes": [0, 1, 2], "n_draws": DRAWS}
    actual = from_torch(softmax, outputs="probabilities", **options).predict_proba(X)
    np.testing.assert_allclose(actual, expected)
    softmax_twice = from_torch(softmax, outputs="logits", **options).predict_proba(X)
    assert softmax_twice.max() < 0.6  # softmax of values in [0, 1]
    with pytest.raises(ValueError, match=r"give outputs='logits'"):
        from_torch(module, classes=[0, 1, 2], outputs="probabilities").predict(X)
    dropped = nn.Sequential(nn.Linear(COLUMNS, 3), nn.Softmax(-1), nn.Dropout(0.5))
    with pytest.raises(ValueError, match="that are probabilities"):
        from_torch(dropped, classes=[0, 1, 2], outputs="probabilities").predict(X)


def test_one_output_for_two_classes(X):
    """It belongs to the second label, with or without a last axis."""
    net = perceptron().double()
    logits = np.stack([outputs_of_torch(net, X, draw)[:, 0] for draw in range(DRAWS)])
    expected = (1 / (1 + np.exp(-logits))).mean(0)
    for module in (net, nn.Sequential(net, nn.Flatten(0))):
        with pytest.raises(ValueError, match="for a module with one output"):
            from_torch(module, classes=["b", "a"]).predict(X)
        for outputs, last in (("logits", []), ("probabilities", [nn.Sigmoid()])):
            options = {"outputs": outputs, "n_draws": DRAWS}
            model = from_torch(
                nn.Sequential(module, *last), classes=["b", "a"], **options
            )
            np.testing.assert_allclose(model.predict_proba(X)[:, 0], expected)
            likelier = np.where(expected > 0.5, "a", "b")
            np.testing.assert_array_equal(model.predict(X), likelier)


def test_wrong_number_of_outputs_is_refused(module, X):
    for classes in ([0, 1], [0, 1, 2, 3]):
        model = from_torch(module, classes=classes)
        with pytest.raises(ValueError, match=f"each of {len(classes)} classes; got 3"):
            model.predict_proba(X)


def test_logit_of_minus_infinity_is_a_probability_of_zero(X):
    net = Forward(
        lambda net, x: F.pad(net.first(x), (0, 1), value=-torch.inf),
        first=perceptron(2),
    )
    p = from_torch(net, classes=["a", "b", "never"]).predict_proba(X)
    np.testing.assert_array_equal(p[:, 2], 0)
    np.testing.assert_allclose(p.sum(1), 1)


# ---- regression


def test_std_covariance_and_noise_of_each_target(module, X):
    noise = np.array([0.1, 1.0, 10.0])
    model = from_torch(module, noise_std=noise, n_draws=6)
    outputs = np.stack([outputs_by_hand(module, X, draw) for draw in range(6)])
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, outputs.mean(0))
    np.testing.assert_allclose(std**2, outputs.var(0) + noise**2)
    aleatoric = model.predict_uncertainty(X, "aleatoric")
    np.testing.assert_allclose(aleatoric, np.broadcast_to(noise, aleatoric.shape))
    mean, cov = model.predict(X, return_cov=True)
    deviation = outputs - outputs.mean(0)
    expected = np.einsum("dri,drj->rij", deviation, deviation) / 6 + np.diag(noise**2)
    np.testing.assert_allclose(cov, expected, atol=1e-12)
    with pytest.raises(ValueError, match="at most one of"):
        model.predict(X, return_std=True, return_cov=True)
    wrong = from_torch(module, noise_std=[0.1, 1.0])
    with pytest.raises(ValueError, match="each of the 3 outputs of `module`; got 2"):
        wrong.predict(X)


def test_methods_equal_mc_dropout():
    """Except methods and attributes of the training."""

    def public(model):
        return {name for name in dir(model) if not name.startswith("_")}

    training_names = {"partial_fit", "noise_std_", "likelihood_"}
    training_names |= {"likelihood_options", "target_scale", "y_bounds", "point_mass"}
    training_names |= {"exposure"}
    regressor = from_torch(perceptron(), noise_std=1.0, n_draws=DRAWS)
    classifier = from_torch(perceptron(2), classes=[0, 1])
    for estimator, model in (
        (skbayesnn.MCDropoutRegressor, regressor),
        (skbayesnn.MCDropoutClassifier, classifier),
    ):
        missing = public(estimator) - public(model) - training_names
        missing -= estimator().get_params().keys()
        assert not {name for name in missing if not name.startswith("set_")}


def test_pipelines_clones_and_pickles(module, X):
    model = from_torch(perceptron(), noise_std=0.1, n_draws=DRAWS)
    expected = model.predict(X)
    piped = make_pipeline("passthrough", model)
    assert skbayesnn.predict_interval(piped, X).shape == (ROWS, 2)
    for copied in (clone(model), pickle.loads(pickle.dumps(model)), model.fit(X, X)):
        np.testing.assert_array_equal(copied.predict(X), expected)
    labels = from_torch(perceptron(2), classes=["b", "a"], outputs="logits")
    np.testing.assert_array_equal(clone(labels).predict(X), labels.predict(X))


# ---- skorch


def fitted_by_skorch(kind, module, X, y, **options):
    options |= {"max_epochs": 1, "verbose": 0, "train_split": None}
    return kind(module, **options).fit(X.astype(np.float32), y)


def test_skorch_classifiers(X):
    """skorch's probabilities for every criterion; dropout has next to no effect."""
    skorch = pytest.importorskip("skorch")
    y = np.arange(ROWS) % CLASSES
    two = (y > 0).astype(np.float32)
    plain, binary = skorch.NeuralNetClassifier, skorch.NeuralNetBinaryClassifier

    def layers(*last):
        # A rate at which no unit is dropped.
        return nn.Sequential(*perceptron(CLASSES, nn.Dropout(1e-9)), *last)

    def single_output(*last):
        return nn.Sequential(*perceptron(1, nn.Dropout(1e-9)), *last)

    pair = Forward(lambda net, x: (net.first(x), x), first=layers())
    entropy = {"criterion": nn.CrossEntropyLoss}
    for kind, module, target, options in (
        (plain, layers(nn.Softmax(-1)), y, {}),
        (plain, layers(), y, entropy),
        (binary, single_output(), two, {}),
        (binary, single_output(nn.Flatten(0)), two, {}),
        (
            binary,
            single_output(nn.Flatten(0), nn.Sigmoid()),
            two,
            {"criterion": nn.BCELoss},
        ),
    ):
        net = fitted_by_skorch(kind, module, X, target, **options)
        expected = net.predict_proba(X.astype(np.float32))
        model = from_torch(net, classes=np.unique(target), n_draws=3)
        np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-5)
    # skorch uses the first of several outputs.
    net = plain(pair, **entropy).initialize()
    expected = net.predict_proba(X.astype(np.float32))
    actual = from_torch(net, classes=range(CLASSES)).predict_proba(X)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    # `outputs` describes the outputs of the module alone.
    net = plain(layers(), predict_nonlinearity=None, **entropy).initialize()
    with pytest.raises(ValueError, match="give outputs='logits'"):
        from_torch(net, classes=range(CLASSES)).predict_proba(X)
    with_outputs = from_torch(net, classes=range(CLASSES), outputs="logits")
    assert with_outputs.predict_proba(X).shape == (ROWS, CLASSES)


def test_skorch_regressor(X):
    skorch = pytest.importorskip("skorch")
    module, y = perceptron(1, nn.Dropout(1e-9)), X[:, :1].astype(np.float32)
    net = fitted_by_skorch(
        skorch.NeuralNetRegressor, module, X, y, predict_nonlinearity=torch.exp
    )
    expected = net.predict(X.astype(np.float32))[:, 0]
    actual = from_torch(net, noise_std=1.0, n_draws=DRAWS).predict(X)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    with pytest.raises(TypeError, match="NeuralNetRegressor, which is not fitted"):
        from_torch(skorch.NeuralNetRegressor(module), noise_std=1.0, n_draws=DRAWS)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames(library, seed):
    """Numbers as arrays; other columns need ``X_transform``."""
    frames = pytest.importorskip(library)
    frame_of = frames.table if library == "pyarrow" else frames.DataFrame
    X = np.random.default_rng(seed).normal(size=(7, 2)).astype(np.float32)
    net = nn.Sequential(nn.Linear(2, 5), nn.Dropout(), nn.Linear(5, 1))
    model = from_torch(net, noise_std=1.0)
    numbers = frame_of({"a": X[:, 0], "b": X[:, 1]})
    np.testing.assert_array_equal(model.predict(numbers), model.predict(X))
    mixed = frame_of({"a": X[:, 0], "colour": ["red"] * 7})
    with pytest.raises(ValueError, match="could not convert string to float"):
        model.predict(mixed)

    def first_twice(rows):
        assert type(rows) is type(mixed)
        return np.stack([np.asarray(rows["a"])] * 2, axis=1)

    model = from_torch(net, first_twice, noise_std=1.0)
    expected = from_torch(net, noise_std=1.0).predict_interval(X[:, [0, 0]])
    # Layers of torch round differently for other blocks of rows.
    np.testing.assert_allclose(model.predict_interval(mixed), expected, rtol=1e-5)
