"""Variational dropout: its own parameters, the learned alpha, and pruning.

What it has in common with every posterior is in `test_posteriors.py`.
"""

import copy
import pickle
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
from tests.helpers.checks import Checks
from tests.helpers.pairwise import pairwise as pairs
from tests.helpers.posteriors import VARIATIONAL

BOTH = pytest.mark.parametrize("kind", VARIATIONAL)
# Networks of a few units in twenty epochs are worse than a straight line, of course.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the network explains:sklearn.exceptions.ConvergenceWarning"
)

TYPE_A = {"noise": "independent"}
PER_WEIGHT = {"noise": "independent", "alpha_per": "weight"}
STILL = {"max_iter": 1, "learning_rate_init": 1e-12}  # steps of no length
KINDS = [
    {"alpha_per": "layer"},
    {"alpha_per": "unit"},
    {"alpha_per": "layer"} | TYPE_A,
    {"alpha_per": "unit"} | TYPE_A,
    PER_WEIGHT,
    PER_WEIGHT | {"prior": "gaussian"},
]
of_every_kind = pytest.mark.parametrize(
    "options", KINDS, ids=lambda options: "-".join(options.values())
)
# Every kind, as a regressor or as a classifier in turn.
of_kinds_in_turn = pytest.mark.parametrize(
    ("options", "kind"), pairs(KINDS, VARIATIONAL, interacting=[])
)
APPROXIMATIONS = ["molchanov", "kingma"]


def target(kind, data):
    return data.labels if is_classifier(kind()) else data.y


# ---- parameters that are refused

UNSUPPORTED = [
    (
        {"alpha_per": "weight"},
        ValueError,
        "noise='correlated' requires alpha_per='layer' .*; got alpha_per='weight'. "
        "Set alpha_per='unit', or noise='independent'",
    ),
    (
        {"prior": "gaussian"},
        ValueError,
        "noise='correlated' requires prior='log_uniform': .*; got prior='gaussian'. "
        "Set prior='log_uniform', or noise='independent'",
    ),
    (
        {"noise": "bernoulli"},
        ValueError,
        "`noise` must be one of 'correlated', 'independent'; got 'bernoulli'",
    ),
    (
        {"alpha_per": "network"},
        ValueError,
        "`alpha_per` must be one of 'layer', 'unit', 'weight'; got 'network'",
    ),
    ({"alpha_per": 0.1}, ValueError, "`alpha_per` must be one of .*; got 0.1"),
    (
        {"prior": "scale_mixture"},
        ValueError,
        "`prior` must be one of 'log_uniform', 'gaussian'; got 'scale_mixture'",
    ),
    (
        {"kl_approximation": "exact"},
        ValueError,
        "`kl_approximation` must be one of 'molchanov', 'kingma'; got 'exact'",
    ),
    ({"dropout": "auto"}, TypeError, "`dropout` must be a number; got 'auto'"),
    *[
        (
            {"kl_warm_up": value},
            ValueError,
            rf"`kl_warm_up` must be in \[0, 1\); got {value}",
        )
        for value in (-0.1, 1.0, np.nan)
    ],
    (
        {"kl_warm_up": "late"},
        ValueError,
        "`kl_warm_up` must be a number or 'auto'; got 'late'",
    ),
]


@BOTH
def test_bad_parameters(data, small, kind):
    with Checks() as check:
        for parameters, error, message in UNSUPPORTED:
            model = kind(**small | parameters)
            with check(parameters):
                with pytest.raises(error, match=message):
                    model.fit(data.X, target(kind, data))
                assert not {"parameters_", "n_features_in_"} & vars(model).keys()


# ---- alpha


@pytest.mark.parametrize(
    ("options", "approximation", "kind"), pairs(KINDS, APPROXIMATIONS, VARIATIONAL)
)
def test_alpha_starts_where_dropout_says(data, small, kind, options, approximation):
    """alpha = (1 - p) / p, p = 1 - dropout: one per layer here."""
    dropout = np.array([0.05, 0.2, 0.4])
    model = kind(
        **small | options | STILL | {"dropout": dropout},
        kl_approximation=approximation,
    )
    model.fit(data.X, target(kind, data))
    for alpha, rate in zip(model.alpha_, dropout, strict=True):
        # One step of 1e-12; a weight's own alpha is kept as a variance, next to which
        # 1e-12 is added to its square.
        np.testing.assert_allclose(alpha, rate / (1 - rate), rtol=1e-4)
    np.testing.assert_array_equal(model.dropout_, dropout)


@of_every_kind
@BOTH
def test_shapes_of_alpha(data, small, kind, options):
    """Of every weight; equal where they share one, and learned apart where not."""
    model = kind(n_estimators=2, **small | options).fit(data.X, target(kind, data))
    sizes = model.network_["sizes"]
    assert [alpha.shape for alpha in model.alpha_] == [
        (2, a, b) for a, b in pairwise(sizes)
    ]
    # Of the first layer: 4 inputs, 8 outputs. (Some weights' own are at a bound.)
    least, most = {"layer": (1, 1), "unit": (4, 4), "weight": (9, 32)}[
        options["alpha_per"]
    ]
    for network in model.alpha_[0]:
        assert least <= len(np.unique(network)) <= most
    for alpha in model.alpha_:
        assert (alpha > 0).all() and (alpha != 0.1 / 0.9).all()
    assert not hasattr(kind(), "alpha_") and not hasattr(kind(), "sparsity_")


@of_kinds_in_turn
def test_alpha_of_kingma_stays_below_one(data, small, kind, options):
    """Where the polynomial holds; the other goes on to e^4.

    y says next to nothing here: it is in no order, and its rows count for few.
    """
    y = np.random.default_rng([small["random_state"], 20]).permutation(
        target(kind, data)
    )
    given = small | options | {"dropout": 0.45, "max_iter": 150}
    free, bounded = (
        kind(kl_approximation=name, **given | {"learning_rate_init": 0.1})
        .set_params(hidden_layer_sizes=(), kl_warm_up=0.0)
        .fit(data.X, y, sample_weight=np.full(len(y), 0.2))
        for name in APPROXIMATIONS
    )
    assert bounded.alpha_[0].max() <= 1
    assert bounded.sparsity_ == 0
    # The Gaussian prior has no need of the approximation, and a layer's one alpha
    # takes longer.
    if options.get("prior") != "gaussian" and options["alpha_per"] != "layer":
        assert 1 < free.alpha_[0].max() <= np.exp(4) * (1 + 1e-12)


@of_kinds_in_turn
def test_dropout_of_zero_is_a_layer_without_noise(data, small, kind, options):
    y = target(kind, data)
    model = kind(**small | options | {"dropout": [0.0, 0.1, 0.0]}).fit(data.X, y)
    names = [family["name"] for family in model.network_["families"]]
    assert names[0] == names[2] == "point" != names[1]
    assert (model.alpha_[0] == 0).all() and (model.alpha_[2] == 0).all()
    assert (model.alpha_[1] > 0).all()

    # No noise at all: whatever the noise would have been like.
    none = small | {"dropout": 0.0, "kl_warm_up": 0.0}
    model = kind(**none | options).fit(data.X, y)
    plain = kind(**none).fit(data.X, y)
    np.testing.assert_array_equal(
        model.sample_f(data.X_new, 3), np.repeat(model.sample_f(data.X_new), 3, -1)
    )
    if options.get("prior") != "gaussian":
        np.testing.assert_array_equal(
            model.predict(data.X_new), plain.predict(data.X_new)
        )


@BOTH
def test_length_scale_acts_on_the_biases_only(data, small, kind):
    """Under the log-uniform prior: the weights' prior has no scale."""
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
def test_kl_comes_in_late_where_weights_would_be_pruned(data, small, kind):
    """``kl_warm_up="auto"`` is 0.5 for independent noise, and 0 for correlated."""
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
    """300 rows: y is a curve of the first 2 of 12 inputs. And 200 fresh rows."""
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
    """A regressor, one with several targets, and a classifier; not to be changed."""
    (X, y), _ = irrelevant
    given = {
        "hidden_layer_sizes": (20, 10),
        "max_iter": 200,
        "n_draws": 100,
        "n_estimators": 2,
        "device": "cpu",
        "random_state": seed_of_module,
    } | PER_WEIGHT
    return {
        "regressor": VariationalDropoutRegressor(**given).fit(X, y),
        "targets": VariationalDropoutRegressor(
            # Only a longer training removes units that two targets share.
            likelihood="heteroscedastic",
            **given | {"max_iter": 400},
        ).fit(X, np.stack([y, -10 * y], 1)),
        "classifier": VariationalDropoutClassifier(**given).fit(X, y > 0),
    }


@pytest.fixture(params=["regressor", "targets", "classifier"])
def model(request, sparse_models):
    """A copy of a model in which many weights are noise."""
    return copy.deepcopy(sparse_models[request.param])


@pytest.fixture
def fresh(request, model, irrelevant):
    """Rows that the model has not seen."""
    _, (X, y) = irrelevant
    if is_classifier(model):
        return X, y > 0
    return X, y if model.y_ndim_ == 1 else np.stack([y, -10 * y], 1)


def test_weights_of_irrelevant_inputs_are_noise(model):
    """Ten inputs say nothing: most of their weights, and fewer of the other two's."""
    assert 0.5 < model.sparsity_ < 1
    noise = model.alpha_[0] > np.exp(_pruning.THRESHOLD)
    assert noise[:, 2:].mean() > max(0.5, noise[:, :2].mean())


def test_prune(model, fresh):
    """The network is smaller, and says nearly the same."""
    X, y = fresh
    before = model.score(X, y)
    sparsity, sizes = model.sparsity_, model.network_["sizes"]
    std = model.predict_uncertainty(X)
    ask = "predict_proba" if is_classifier(model) else "predict"
    prediction = getattr(model, ask)(X)
    assert model.pruning_ is None
    assert model.prune(X=X, y=y) is model

    assert model.pruning_["threshold"] == _pruning.THRESHOLD
    assert model.pruning_["sizes"] == sizes
    assert model.pruning_["score_before"] == before
    assert model.pruning_["score_after"] == model.score(X, y)
    assert abs(model.score(X, y) - before) < 0.03

    # Really smaller.
    pruned = model.network_["sizes"]
    assert pruned[0] == sizes[0] and pruned[-1] == sizes[-1]
    assert all(0 < a <= b for a, b in zip(pruned, sizes, strict=True))
    assert sum(pruned) < sum(sizes)
    for i, (inputs, outputs) in enumerate(pairwise(pruned)):
        for name in ("mean", "log_variance"):
            assert model.parameters_[f"layers/{i}/{name}"].shape == (2, inputs, outputs)
        assert model.parameters_[f"layers/{i}/bias"].shape == (2, outputs)
        # What is left is no noise, and what is gone has none.
        gone = model.parameters_[f"layers/{i}/mean"] == 0
        assert ((model.alpha_[i] == 0) == gone).all()
        assert (model.alpha_[i] <= np.exp(_pruning.THRESHOLD)).all()
    # Counted against the network as it was; units take their last weights along.
    assert sparsity <= model.sparsity_ < 1

    # The draws are others where layers are smaller: 100 of each of two networks, of
    # which noise is a part of the whole spread. And each pruned weight was noise of
    # a standard deviation that is many times its mean.
    difference = np.abs(getattr(model, ask)(X) - prediction)
    if not is_classifier(model):
        assert (difference < 0.5 * std).all()
    assert difference.mean() < 0.1 * prediction.std()


def test_what_a_pruned_model_can_do(model, fresh):
    skops = pytest.importorskip("skops.io")
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
    stored = skops.dumps(model)
    trusted = skops.get_untrusted_types(data=stored)
    for again in (
        pickle.loads(pickle.dumps(model)),
        skops.loads(stored, trusted=trusted),
    ):
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_array_equal(again.sample_f(X, 3), functions)
        assert again.pruning_ == model.pruning_
        assert again.sparsity_ == model.sparsity_
    unfitted = clone(model)
    assert not hasattr(unfitted, "pruning_")
    assert unfitted.hidden_layer_sizes == (20, 10)


def test_prune_twice(model, fresh):
    """Nothing more is found at the same threshold; a lower one takes more."""
    X, y = fresh
    sizes = model.network_["sizes"]
    model.prune()
    once, sparsity = copy.deepcopy(vars(model)), model.sparsity_
    model.prune(X=X, y=y)
    assert model.network_ == once["network_"]
    for name, value in once["parameters_"].items():
        np.testing.assert_array_equal(model.parameters_[name], value)
    assert model.pruning_["score_before"] == model.pruning_["score_after"]
    model.prune(threshold=-2.0)
    assert model.sparsity_ > sparsity
    assert model.pruning_["threshold"] == -2.0
    assert model.pruning_["sizes"] == sizes  # of the fit, not of the first pruning


@of_every_kind
@BOTH
def test_prune_where_nothing_is_noise(data, small, kind, options):
    model = kind(**small | options | STILL).fit(data.X, target(kind, data))
    before, parameters = model.predict(data.X_new), model.parameters_
    assert model.sparsity_ == 0
    model.prune()
    assert model.sparsity_ == 0
    np.testing.assert_array_equal(model.predict(data.X_new), before)
    for name, value in parameters.items():
        np.testing.assert_array_equal(model.parameters_[name], value)


@of_every_kind
@BOTH
def test_prune_everything(data, small, kind, options):
    """Below every alpha: the biases are left, and a unit in each layer."""
    model = kind(n_estimators=2, **small | options).fit(data.X, target(kind, data))
    model.prune(threshold=-50.0)
    assert model.sparsity_ == 1
    assert model.network_["sizes"][1:-1] == [1, 1]
    assert all((alpha == 0).all() for alpha in model.alpha_)
    f = model.sample_f(data.X_new, 5)
    np.testing.assert_array_equal(f, np.broadcast_to(f[:1], f.shape))  # constant


@of_every_kind
def test_pruned_network_is_the_network_with_zeros(data, small, options):
    """Removed units are those that change nothing: the mean weights' outputs agree."""
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
    """ReLU networks with given weights, (networks, rows, outputs)."""
    for i, (weight, bias) in enumerate(weights):
        x = (np.maximum(x, 0) if i else x) @ weight + bias[:, None]
    return x


def test_units_that_feed_removed_units_are_removed():
    """By hand: of 3 hidden units of the first layer only the second is used.

    The first has no weights; the third feeds the second layer's second unit, which
    has none.
    """
    nothing = -5.0
    first = torch.ones(1, 2, 3, dtype=torch.float64)
    second = torch.tensor([[[0.0, 0.0], [2.0, 0.0], [0.0, 3.0]]], dtype=torch.float64)
    third = torch.tensor([[[4.0], [0.0]]], dtype=torch.float64)
    layers = [
        {
            "mean": mean,
            "bias": torch.zeros(1, mean.shape[2], dtype=torch.float64),
            "log_alpha": torch.full((1, 1, 1), nothing, dtype=torch.float64),
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


def test_a_fit_after_pruning_starts_anew(data, small):
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
def test_training_does_not_go_on_after_pruning(data, small, kind, threshold, method):
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
    assert model.partial_fit(data.X, y).n_epochs_seen_ == 21


@BOTH
def test_bad_calls_of_prune(data, small, kind):
    y = target(kind, data)
    with pytest.raises(NotFittedError):
        kind().prune()
    model = kind(**small | PER_WEIGHT).fit(data.X, y)
    before = copy.deepcopy(model.parameters_)
    for threshold, error in (("high", TypeError), (np.nan, ValueError)):
        with pytest.raises(error, match="`threshold` must be"):
            model.prune(threshold)
    for rows, given in (({"X": data.X}, "X"), ({"y": y}, "y")):
        with pytest.raises(
            ValueError, match=f"must be given together; got only {given}"
        ):
            model.prune(-3.0, **rows)
    with pytest.raises(ValueError, match="features"):
        model.prune(-3.0, data.X[:, :3], y)
    for name, value in before.items():
        np.testing.assert_array_equal(model.parameters_[name], value)
    assert model.pruning_ is None


# ---- single draws stay where the data are


@pytest.mark.parametrize(
    ("options", "approximation"),
    pairs([TYPE_A, PER_WEIGHT, {}], APPROXIMATIONS, interacting=[]),
)
def test_no_draw_explodes(seed, options, approximation):
    """Noise in proportion to the weights, product over layers, has heavy tails.

    2000 networks on 50 fresh rows. Within the training range no value is farther from
    y's mean than 2.5 times y's range, and at up to half as much again no farther than
    four times: both are twice of what ten seeds had.
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
    # They are draws of something that was fitted.
    assert model.score(X, y) > 0.5
