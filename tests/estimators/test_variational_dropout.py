"""Variational dropout: its parameters, the learned alpha, and pruning.

Promises of all posteriors are tested in `test_posteriors.py`.
"""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError

from skbayesnn import VariationalDropoutClassifier, VariationalDropoutRegressor
from skbayesnn._engine.posterior import Posterior
from skbayesnn._families import Independent, Point
from skbayesnn._likelihoods import Gaussian
from skbayesnn._networks import Perceptron
from skbayesnn.estimators import _pruning
from tests.helpers.pairwise import pairwise as pairs
from tests.helpers.posteriors import VARIATIONAL

BOTH = pytest.mark.parametrize("kind", VARIATIONAL)
TYPE_A = {"noise": "independent"}
PER_WEIGHT = {"noise": "independent", "alpha_per": "weight"}
STILL = {"max_iter": 1, "learning_rate_init": 1e-12}  # next to no change of the weights
KINDS = [
    {"alpha_per": "layer"},
    {"alpha_per": "unit"},
    {"alpha_per": "layer"} | TYPE_A,
    {"alpha_per": "unit"} | TYPE_A,
    PER_WEIGHT,
    PER_WEIGHT | {"prior": "gaussian"},
]
parametrize_kinds = pytest.mark.parametrize(
    "options", KINDS, ids=lambda options: "-".join(options.values())
)
# Every kind, alternately as a regressor and as a classifier.
parametrize_kinds_alternating = pytest.mark.parametrize(
    ("options", "kind"), pairs(KINDS, VARIATIONAL, interacting=[])
)
APPROXIMATIONS = ["molchanov", "kingma"]


@pytest.fixture(scope="module")
def small(small):
    """Parameters of small networks; no rows are held out to estimate tau."""
    return small | {"tau": 1.0}


def target(kind, data):
    return data.labels if is_classifier(kind()) else data.y


# ---- alpha


@pytest.mark.parametrize(
    ("options", "approximation", "kind"), pairs(KINDS, APPROXIMATIONS, VARIATIONAL)
)
def test_initial_alpha_follows_dropout(data, small, kind, options, approximation):
    """alpha = (1 - p) / p, p = 1 - dropout, per layer."""
    dropout = np.array([0.05, 0.2, 0.4])
    model = kind(
        **small | options | STILL | {"dropout": dropout},
        kl_approximation=approximation,
    )
    model.fit(data.X, target(kind, data))
    for alpha, rate in zip(model.alpha_, dropout, strict=True):
        # One step of 1e-12; an alpha per weight is stored as a variance, and 1e-12 is
        # added to the square of the weight.
        np.testing.assert_allclose(alpha, rate / (1 - rate), rtol=1e-4)
    np.testing.assert_array_equal(model.dropout_, dropout)


@parametrize_kinds
@BOTH
def test_shapes_of_alpha(data, small, kind, options):
    """One value per weight, equal if weights share an alpha, and learned otherwise."""
    model = kind(n_estimators=2, **small | options).fit(data.X, target(kind, data))
    sizes = model.network_["sizes"]
    assert [alpha.shape for alpha in model.alpha_] == [
        (2, a, b) for a, b in pairwise(sizes)
    ]
    # The first layer has 4 inputs and 8 outputs. Some alphas are at a bound.
    least, most = {"layer": (1, 1), "unit": (4, 4), "weight": (9, 32)}[
        options["alpha_per"]
    ]
    for network in model.alpha_[0]:
        assert least <= len(np.unique(network)) <= most
    for alpha in model.alpha_:
        assert (alpha > 0).all() and (alpha != 0.1 / 0.9).all()
    assert not hasattr(kind(), "alpha_") and not hasattr(kind(), "sparsity_")


@parametrize_kinds_alternating
def test_alpha_of_kingma_stays_below_one(data, small, kind, options):
    """The polynomial is valid there; the other approximation goes up to e^4.

    y is unrelated to X, since it is permuted, and its rows have small weights.
    """
    y = np.random.default_rng([small["random_state"], 20]).permutation(
        target(kind, data)
    )
    settings = small | options | {"dropout": 0.45, "max_iter": 150}
    free, bounded = (
        kind(kl_approximation=name, **settings | {"learning_rate_init": 0.1})
        .set_params(hidden_layer_sizes=(), kl_warm_up=0.0)
        .fit(data.X, y, sample_weight=np.full(len(y), 0.2))
        for name in APPROXIMATIONS
    )
    assert bounded.alpha_[0].max() <= 1
    assert bounded.sparsity_ == 0
    # The Gaussian prior needs no approximation, and a common alpha of a layer
    # takes longer.
    if options.get("prior") != "gaussian" and options["alpha_per"] != "layer":
        assert 1 < free.alpha_[0].max() <= np.exp(4) * (1 + 1e-12)


@parametrize_kinds_alternating
def test_dropout_of_zero_gives_a_deterministic_layer(data, small, kind, options):
    y = target(kind, data)
    model = kind(**small | options | {"dropout": [0.0, 0.1, 0.0]}).fit(data.X, y)
    names = [family["name"] for family in model.network_["families"]]
    assert names[0] == names[2] == "point" != names[1]
    assert (model.alpha_[0] == 0).all() and (model.alpha_[2] == 0).all()
    assert (model.alpha_[1] > 0).all()

    # A deterministic network does not depend on the dropout kind.
    without_noise = small | {"dropout": 0.0, "kl_warm_up": 0.0}
    model = kind(**without_noise | options).fit(data.X, y)
    plain = kind(**without_noise).fit(data.X, y)
    np.testing.assert_array_equal(
        model.sample_f(data.X_new, 3), np.repeat(model.sample_f(data.X_new), 3, -1)
    )
    if options.get("prior") != "gaussian":
        np.testing.assert_array_equal(
            model.predict(data.X_new), plain.predict(data.X_new)
        )


@BOTH
def test_length_scale_affects_the_biases_only(data, small, kind):
    """The log-uniform prior of the weights has no scale."""
    y = target(kind, data)
    for options in (TYPE_A, PER_WEIGHT | {"prior": "gaussian"}):
        kl = [
            kind(**small | options | STILL | {"length_scale": scale, "kl_warm_up": 0.0})
            .fit(data.X, y)
            .history_["kl"][0, 0]
            * 41
            for scale in (1.0, 3.0)
        ]
        start = kind(**small | options | STILL).fit(data.X, y).parameters_
        biases = sum((start[f"layers/{i}/bias"] ** 2).sum() for i in range(3))
        difference = (3.0**2 - 1.0**2) / 2 * biases
        alike = np.isclose(kl[1] - kl[0], difference, rtol=1e-6)
        assert alike == ("prior" not in options)


@BOTH
def test_default_warm_up_of_the_kl(data, small, kind):
    """``kl_warm_up="auto"`` is 0.5 for independent and 0 for correlated dropout."""
    y = target(kind, data)
    for options, value in (({}, 0.0), (TYPE_A, 0.5), (PER_WEIGHT, 0.5)):
        models = [
            kind(**small | options, kl_warm_up=warm_up).fit(data.X, y)
            for warm_up in ("auto", value, 0.25)
        ]
        assert models[0].loss_curve_ == models[1].loss_curve_
        assert models[0].loss_curve_ != models[2].loss_curve_


# ---- pruning


@pytest.fixture(scope="module")
def irrelevant(seed_of_module):
    """300 rows, with y a function of the first 2 of 12 columns; and 200 new rows."""
    random = np.random.default_rng([seed_of_module, 21])

    def rows(n):
        X = random.standard_normal((n, 12))
        return X, np.sin(2 * X[:, 0]) + 0.7 * X[:, 1] + 0.1 * random.standard_normal(n)

    return rows(300), rows(200)


@pytest.fixture(scope="module")
def seed_of_module(small):
    return small["random_state"]


@pytest.fixture(scope="module")
def sparse_models(irrelevant, seed_of_module):
    """Fitted models for ``model``: regressor, several targets, classifier."""
    (X, y), _ = irrelevant
    settings = {
        "hidden_layer_sizes": (20, 10),
        "max_iter": 200,
        "n_draws": 100,
        "n_estimators": 2,
        "device": "cpu",
        "random_state": seed_of_module,
    } | PER_WEIGHT
    return {
        "regressor": VariationalDropoutRegressor(**settings).fit(X, y),
        "targets": VariationalDropoutRegressor(
            # Only longer training removes units that two targets share.
            likelihood="heteroscedastic",
            **settings | {"max_iter": 400},
        ).fit(X, np.stack([y, -10 * y], 1)),
        "classifier": VariationalDropoutClassifier(**settings).fit(X, y > 0),
    }


@pytest.fixture(params=["regressor", "targets", "classifier"])
def model(request, sparse_models):
    """A copy of a model in which many weights are noise."""
    return copy.deepcopy(sparse_models[request.param])


@pytest.fixture
def fresh(request, model, irrelevant):
    """Rows that no model was fitted to."""
    _, (X, y) = irrelevant
    if is_classifier(model):
        return X, y > 0
    return X, y if model.y_ndim_ == 1 else np.stack([y, -10 * y], 1)


def test_weights_of_irrelevant_inputs_are_noise(model):
    """Ten columns are unrelated to y; most of their weights are noise."""
    assert 0.5 < model.sparsity_ < 1
    noise = model.alpha_[0] > np.exp(_pruning.THRESHOLD)
    assert noise[:, 2:].mean() > max(0.5, noise[:, :2].mean())


def test_prune(model, fresh):
    """The network is smaller, and its predictions are nearly the same."""
    X, y = fresh
    before = model.score(X, y)
    sparsity, sizes = model.sparsity_, model.network_["sizes"]
    std = model.predict_uncertainty(X)
    method = "predict_proba" if is_classifier(model) else "predict"
    prediction = getattr(model, method)(X)
    assert model.pruning_ is None
    assert model.prune(X=X, y=y) is model

    assert model.pruning_["threshold"] == _pruning.THRESHOLD
    assert model.pruning_["sizes"] == sizes
    assert model.pruning_["score_before"] == before
    assert model.pruning_["score_after"] == model.score(X, y)
    assert abs(model.score(X, y) - before) < 0.03

    # The arrays are smaller.
    pruned = model.network_["sizes"]
    assert pruned[0] == sizes[0] and pruned[-1] == sizes[-1]
    assert all(0 < a <= b for a, b in zip(pruned, sizes, strict=True))
    assert sum(pruned) < sum(sizes)
    for i, (inputs, outputs) in enumerate(pairwise(pruned)):
        for name in ("mean", "log_variance"):
            assert model.parameters_[f"layers/{i}/{name}"].shape == (2, inputs, outputs)
        assert model.parameters_[f"layers/{i}/bias"].shape == (2, outputs)
        # Removed weights have an alpha of zero, the others are no noise.
        zero = model.parameters_[f"layers/{i}/mean"] == 0
        assert ((model.alpha_[i] == 0) == zero).all()
        assert (model.alpha_[i] <= np.exp(_pruning.THRESHOLD)).all()
    # Relative to the network before; removed units remove their last weights.
    assert sparsity <= model.sparsity_ < 1

    # Smaller layers have other random numbers: 100 draws of each of two networks,
    # and part of the difference is their random error. Each pruned weight had
    # a standard deviation of many times its mean.
    difference = np.abs(getattr(model, method)(X) - prediction)
    if not is_classifier(model):
        assert (difference < 0.5 * std).all()
    assert difference.mean() < 0.1 * prediction.std()


def test_methods_of_a_pruned_model(model, fresh):
    """`test_persistence.py` stores one."""
    X, y = fresh
    model.prune()
    assert model.pruning_["score_before"] is model.pruning_["score_after"] is None
    parts = model.predict_uncertainty(X, kind="all")
    assert all(np.isfinite(value).all() for value in parts.values())
    functions = model.sample_f(X, 3)
    assert np.isfinite(functions).all()
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    np.testing.assert_array_equal(model.predict(X), model.predict(X))
    np.testing.assert_array_equal(model.sample_f(X, 3), functions)
    unfitted = clone(model)
    assert not hasattr(unfitted, "pruning_")
    assert unfitted.hidden_layer_sizes == (20, 10)


def test_prune_twice(model, fresh):
    """A second call with the same threshold removes nothing, with a lower one more."""
    X, y = fresh
    sizes = model.network_["sizes"]
    model.prune()
    state, sparsity = copy.deepcopy(vars(model)), model.sparsity_
    model.prune(X=X, y=y)
    assert model.network_ == state["network_"]
    for name, value in state["parameters_"].items():
        np.testing.assert_array_equal(model.parameters_[name], value)
    assert model.pruning_["score_before"] == model.pruning_["score_after"]
    model.prune(threshold=-2.0)
    assert model.sparsity_ > sparsity
    assert model.pruning_["threshold"] == -2.0
    assert model.pruning_["sizes"] == sizes  # of the fit, not after the first call


@parametrize_kinds
@BOTH
def test_prune_removes_nothing_if_no_weight_is_noise(data, small, kind, options):
    model = kind(**small | options | STILL).fit(data.X, target(kind, data))
    before, parameters = model.predict(data.X_new), model.parameters_
    assert model.sparsity_ == 0
    model.prune()
    assert model.sparsity_ == 0
    np.testing.assert_array_equal(model.predict(data.X_new), before)
    for name, value in parameters.items():
        np.testing.assert_array_equal(model.parameters_[name], value)


@parametrize_kinds
@BOTH
def test_prune_everything(data, small, kind, options):
    """The threshold is below every alpha: biases remain, and a unit in each layer."""
    model = kind(n_estimators=2, **small | options).fit(data.X, target(kind, data))
    model.prune(threshold=-50.0)
    assert model.sparsity_ == 1
    assert model.network_["sizes"][1:-1] == [1, 1]
    assert all((alpha == 0).all() for alpha in model.alpha_)
    f = model.sample_f(data.X_new, 5)
    np.testing.assert_array_equal(f, np.broadcast_to(f[:1], f.shape))  # constant


@parametrize_kinds
def test_pruned_network_equals_the_network_with_zeros(data, small, options):
    """The outputs of the mean weights agree."""
    model = VariationalDropoutRegressor(
        n_estimators=3, **small | options | {"dropout": 0.4, "max_iter": 60}
    ).fit(data.X, data.Y)
    model.set_params(n_draws=1)
    for threshold in (-1.0, 0.0, 1.0):
        _assert_pruned(copy.deepcopy(model), threshold, data)


def _assert_pruned(model, threshold, data):
    weights = _mean_weights(model)
    zeros = [
        (np.where(np.log(alpha) > threshold, 0, mean), bias)
        for alpha, (mean, bias) in zip(model.alpha_, weights, strict=True)
    ]
    model.prune(threshold)
    np.testing.assert_allclose(
        _outputs(_mean_weights(model), data.X_new),
        _outputs(zeros, data.X_new),
        rtol=1e-10,
        atol=1e-12,
    )


def _mean_weights(model):
    p = model.parameters_
    return [(p[f"layers/{i}/mean"], p[f"layers/{i}/bias"]) for i in range(3)]


def _outputs(weights, x):
    """Outputs of ReLU networks with these weights, (networks, rows, outputs)."""
    for i, (weight, bias) in enumerate(weights):
        x = (np.maximum(x, 0) if i else x) @ weight + bias[:, None]
    return x


def test_units_that_feed_removed_units_are_removed():
    """By hand: only the second of 3 hidden units of the first layer is used.

    The first has no weights. The third feeds the second unit of the second layer, which
    has no weights.
    """
    log_alpha = -5.0
    first = torch.ones(1, 2, 3, dtype=torch.float64)
    second = torch.tensor([[[0.0, 0.0], [2.0, 0.0], [0.0, 3.0]]], dtype=torch.float64)
    third = torch.tensor([[[4.0], [0.0]]], dtype=torch.float64)
    layers = [
        {
            "mean": mean,
            "bias": torch.zeros(1, mean.shape[2], dtype=torch.float64),
            "log_alpha": torch.full((1, 1, 1), log_alpha, dtype=torch.float64),
        }
        for mean in (first, second)
    ]
    layers.append({"mean": third, "bias": torch.zeros(1, 1, dtype=torch.float64)})
    noisy = Independent("layer")
    posterior = Posterior(
        network=Perceptron((2, 3, 2, 1), "relu", (noisy, noisy, Point())),
        likelihood=Gaussian(1, learned=False),
        layers=layers,
        likelihood_params={},
        keep=(torch.ones(1, dtype=torch.float64),) * 3,
        seeds=np.array([0]),
    )
    pruned = _pruning.prune(posterior, _pruning.less_noisy(posterior, 3.0))
    assert pruned.network.sizes == (2, 1, 1, 1)
    for params, expected in zip(pruned.layers, (1.0, 2.0, 4.0), strict=True):
        np.testing.assert_array_equal(params["mean"].numpy().ravel()[-1:], expected)


def test_fit_after_pruning_trains_the_whole_network(data, small):
    model = VariationalDropoutRegressor(**small | PER_WEIGHT).fit(data.X, data.y)
    before = model.predict(data.X_new)
    model.prune(threshold=-3.0)
    assert (model.predict(data.X_new) != before).any()
    model.fit(data.X, data.y)
    assert model.pruning_ is None
    assert model.network_["sizes"] == [4, 8, 6, 1]
    np.testing.assert_array_equal(model.predict(data.X_new), before)


@BOTH
@pytest.mark.parametrize("threshold", [-3.0, 3.0])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_continued_training_after_pruning_is_refused(
    data, small, kind, threshold, method, taken
):
    """Pruned weights would grow again."""
    y = target(kind, data)
    model = kind(warm_start=True, **small | PER_WEIGHT).fit(data.X, y)
    model.prune(threshold)
    before = copy.deepcopy(model.parameters_)
    with pytest.raises(
        ValueError,
        match=r"pruned weights would grow again; .* pruned with threshold="
        rf"{threshold:g}\. Set warm_start=False, or fit a clone",
    ):
        getattr(model, method)(data.X, y)
    for name, value in before.items():
        np.testing.assert_array_equal(model.parameters_[name], value)
    assert model.set_params(warm_start=False).fit(data.X, y).pruning_ is None
    assert model.partial_fit(data.X, y, n_epochs=1).n_epochs_seen_ == 21


@BOTH
def test_invalid_arguments_of_prune(data, small, kind):
    y = target(kind, data)
    with pytest.raises(NotFittedError):
        kind().prune()
    model = kind(**small | PER_WEIGHT).fit(data.X, y)
    before = copy.deepcopy(model.parameters_)
    for threshold, error in (("high", TypeError), (np.nan, ValueError)):
        with pytest.raises(error, match="`threshold` must be"):
            model.prune(threshold)
    for rows, name_given in (({"X": data.X}, "X"), ({"y": y}, "y")):
        with pytest.raises(
            ValueError, match=f"must be given together; got only {name_given}"
        ):
            model.prune(-3.0, **rows)
    with pytest.raises(ValueError, match="features"):
        model.prune(-3.0, data.X[:, :3], y)
    for name, value in before.items():
        np.testing.assert_array_equal(model.parameters_[name], value)
    assert model.pruning_ is None


# ---- range of single draws


@pytest.mark.parametrize(
    ("options", "approximation"),
    pairs([TYPE_A, PER_WEIGHT, {}], APPROXIMATIONS, interacting=[]),
)
def test_draws_stay_in_the_range_of_y(seed, options, approximation):
    """Multiplicative noise has heavy tails, which grow with the number of layers.

    2000 networks on 50 new rows. Within the training range no value is farther from the
    mean of y than 2.5 times the range of y, and at up to half as much again no farther
    than four times. Both limits are twice the values of ten seeds.
    """
    random = np.random.default_rng([seed, 22])
    X = random.uniform(-1, 1, (100, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * random.standard_normal(100)
    model = VariationalDropoutRegressor(
        (30, 30),
        max_iter=400,
        kl_approximation=approximation,
        device="cpu",
        random_state=seed,
        **options,
    ).fit(X, y)
    X_new = random.uniform(-1, 1, (50, 3))
    for reach, multiple in ((1.0, 2.5), (1.5, 4)):
        functions = model.sample_f(reach * X_new, 2000, random_state=seed)
        assert np.abs(functions - y.mean()).max() < multiple * np.ptp(y)
    # The network was fitted, too.
    assert model.score(X, y) > 0.5
