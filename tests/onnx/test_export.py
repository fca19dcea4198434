"""The exported graph predicts as the estimator: posteriors, likelihoods, kinds of y."""

import json
import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import nn

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    BBBRegressor,
    CalibratedUncertaintyRegressor,
    LaplaceRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    NeighbourRegressor,
    VariationalGPRegressor,
    from_torch,
    interval_target,
    to_onnx,
)
from skbayesnn._likelihoods import LIKELIHOODS
from skbayesnn._likelihoods.gaussian import Heteroscedastic
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn.estimators import neighbours
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.networks import ConvNet
from tests.helpers.onnx_running import (
    Q,
    assert_same_classification,
    assert_same_regression,
    expected_regression,
    outputs,
)
from tests.helpers.posteriors import CASES

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.filterwarnings("ignore:overflow")
PERCEPTRONS = [case for case in CASES if "network" not in case.chosen]


@pytest.mark.parametrize("case", PERCEPTRONS, ids=str)
def test_every_posterior_is_exported(case, data, small):
    model = case.model(**small, n_estimators=2)
    if case.classifies:
        assert_same_classification(model.fit(data.X, data.labels), data.X_new)
    else:
        assert_same_regression(model.fit(data.X, data.y), data.X_new, data.y)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sizes", [(), (6,), (6, 5, 3)])
def test_every_activation_and_depth(activation, sizes, data, small):
    small = small | {"hidden_layer_sizes": sizes, "activation": activation}
    model = MCDropoutRegressor(**small, dropout=0.2).fit(data.X, data.Y)
    assert_same_regression(model, data.X_new, data.Y)


@pytest.mark.parametrize(
    "options",
    [
        {"standardize": False},
        {"dtype": "float64"},
        {"n_draws": 1, "n_estimators": 2},
        {"n_draws": 1, "dropout": 0.2},
        {"dropout": 0.0},
        {"dropout": 0.0, "n_estimators": 2},
        {"dropout": [0.0, 0.2, 0.0]},
    ],
    ids=str,
)
def test_options(options, data, small):
    model = MCDropoutRegressor(**small | options).fit(data.X, data.y)
    assert_same_regression(model, data.X_new, data.y)


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic", "mixture"])
@pytest.mark.parametrize("kind", [MCDropoutRegressor, AnchoredEnsembleRegressor])
def test_gaussian_noise_of_several_targets(likelihood, kind, data, small):
    model = kind(**small, likelihood=likelihood, n_estimators=3)
    assert_same_regression(model.fit(data.X, data.Y), data.X_new, data.Y)


@pytest.mark.parametrize("likelihood", ["student_t", "poisson"])
def test_other_likelihoods_have_moments_only(likelihood, data, small):
    y = np.floor(np.abs(data.Y)) if likelihood == "poisson" else data.Y
    model = MCDropoutRegressor(**small, likelihood=likelihood, n_estimators=2)
    model.fit(data.X, y)
    assert_same_regression(model, data.X_new, y, q=())
    with pytest.raises(TypeError, match=rf"`q` must be \(\).*{likelihood}"):
        to_onnx(model)


# Settings, and a function of standardised y. A floor and a cap have some of the rows.
RECORDED = {
    "log": ({"target_scale": "log"}, np.exp),
    "log, unequal noise": (
        {"target_scale": "log", "likelihood": "heteroscedastic"},
        np.exp,
    ),
    "logit": ({"target_scale": "logit"}, lambda z: 1 / (1 + np.exp(-z))),
    "share with ends": ({"target_scale": "logit"}, lambda z: (z + 0.5).clip(0, 1)),
    "count": ({"target_scale": "count"}, lambda z: np.floor(np.exp(z + 1))),
    "per exposure": (
        {"target_scale": "count", "exposure": 1},
        lambda z: np.floor(np.exp(z + 1)),
    ),
    "floor": ({"y_bounds": (0, None)}, lambda z: z.clip(0)),
    "floor and cap": ({"y_bounds": (-1, 0.5)}, lambda z: z.clip(-1, 0.5)),
    "zeros": ({"target_scale": "log", "point_mass": 0.0}, lambda z: z.clip(0)),
    "point inside": ({"point_mass": 0.0}, lambda z: np.where(z > 0.5, 0, z)),
    "mixture": ({"target_scale": "log", "likelihood": "mixture"}, np.exp),
    "censored": ({}, lambda z: interval_target(z, np.where(z > 0, np.inf, z))),
}


@pytest.mark.parametrize("name", RECORDED)
def test_kinds_of_y(name, data, small):
    settings, function = RECORDED[name]
    z = (data.y - data.y.mean()) / data.y.std()
    model = MCDropoutRegressor(**small | {"max_iter": 50}, dropout=0.1, **settings)
    model.fit(data.X, function(z))
    assert_same_regression(model, data.X_new, np.exp(z))


def test_several_targets_on_a_scale(data, small):
    Y = np.exp((data.Y - data.Y.mean(0)) / data.Y.std(0))
    settings = small | {"max_iter": 50, "target_scale": "log"}
    model = AnchoredEnsembleRegressor(**settings, n_estimators=3).fit(data.X, Y)
    assert_same_regression(model, data.X_new, Y)


@pytest.mark.parametrize("target", ["y", "Y"])
@pytest.mark.parametrize(
    "model",
    [
        LaplaceRegressor((3,), n_draws=6, y_bounds=(0, None)),
        NeighbourRegressor(6, 3, max_iter=20, y_bounds=(0, 1)),
        BayesianStackingRegressor(
            [("one", LaplaceRegressor((3,)))], cv=2, y_bounds=(0, 1)
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_bounds_of_other_models(model, target, data, seed, monkeypatch):
    # Each neighbour is a component, as in a graph with few training rows.
    monkeypatch.setattr(neighbours, "N_GROUPS", 100)
    monkeypatch.setattr(neighbours, "MERGED", 0.0)
    y = getattr(data, target)
    y = ((y - y.mean(0)) / y.std(0)).clip(0, 1)
    model = clone(model).set_params(random_state=seed).fit(data.X, y)
    assert (model.predict_quantile(data.X, 0.01) == 0).any()
    assert_same_regression(model, data.X_new, y)


@pytest.mark.parametrize(
    "function",
    [
        np.exp,
        lambda z: z.clip(0),
        lambda z: np.floor(np.exp(z + 1)),
        lambda z: interval_target(
            np.exp(z).clip(0, 3), np.where(z < 1, np.exp(z), np.inf)
        ),
    ],
    ids=["skewed", "zeros", "counts", "lifetimes"],
)
def test_stacks_of_kinds_of_y(function, seed):
    """With a correction about the mean of the draws on a scale."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(80, 2)).astype(np.float32)
    y = function(2 * X[:, 0] + random.normal(size=80))
    model = BayesianStackingRegressor("fast", max_iter=20, random_state=seed)
    model.fit(X, y)
    assert "plain" not in model.target_
    model.spread_factor_ = np.array([1.2])
    X_new = random.normal(size=(9, 2))
    y = y["lower"] if y.dtype.names else y
    assert_same_regression(model, X_new, y, tolerance=1e-4)


def test_kinds_of_y_without_operators(data, small):
    y = np.exp((data.y - data.y.mean()) / data.y.std())
    model = MCDropoutRegressor(**small, target_scale="log", likelihood="student_t")
    with pytest.raises(TypeError, match=r"Gaussian observation noise.*student_t"):
        to_onnx(model.fit(data.X, y), q=())


def test_a_new_likelihood_needs_no_formula(data, small, monkeypatch):
    """Its own functions of torch and NumPy make the graph."""

    @dataclass(frozen=True)
    class Log(Heteroscedastic):
        name = "log"

        def components(self, params, outputs):
            mean, variance = super().components(params, outputs)
            return torch.tanh(mean) - 1, 2 * variance.sqrt()

    monkeypatch.setitem(LIKELIHOODS, "log", Log)
    model = MCDropoutRegressor(**small, likelihood="log").fit(data.X, data.Y)
    assert_same_regression(model, data.X_new, data.Y)
    monkeypatch.setattr(Log, "components", lambda s, p, f: (torch.special.i0(f), f))
    with pytest.raises(TypeError, match="no operator for 'special_i0'"):
        to_onnx(model)


@pytest.mark.parametrize("likelihood", ["categorical", "ordinal"])
def test_unordered_classes_and_a_class_without_rows(likelihood, data, small):
    labels = pd.Categorical(data.labels, categories=[2, 0, 1], ordered=True)
    for absent in (None, 0):
        model = MCDropoutClassifier(**small, likelihood=likelihood)
        model.fit(data.X, labels, sample_weight=1.0 * (data.labels != absent))
        assert_same_classification(model, data.X_new)


@pytest.mark.parametrize("likelihood", ["categorical", "ordinal"])
@pytest.mark.parametrize(
    "classes",
    [
        np.array([0, 1, 2]),
        np.array([-3, 5, 5]),
        np.array([1.0, 2.0, 7.0]),
        np.array([False, True, True]),
        np.array(["a b", "c", "d"]),
        np.array(["a b", "c", "d"], dtype=object),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_kinds_of_labels(likelihood, classes, data, small):
    model = MCDropoutClassifier(**small, likelihood=likelihood, n_estimators=2)
    model.fit(data.X, classes[data.labels])
    assert_same_classification(model, data.X_new)
    [metadata] = to_onnx(model).metadata_props
    assert json.loads(metadata.value) == np.unique(classes).tolist()


def test_random_features(data, small):
    del small["hidden_layer_sizes"]
    model = VariationalGPRegressor(n_features=9, **small).fit(data.X, data.y)
    assert_same_regression(model, data.X_new, data.y)


def test_after_pruning_and_a_search_for_tau(data, small):
    pruned = BBBRegressor(**small).fit(data.X, data.y).prune(0.5)
    assert_same_regression(pruned, data.X_new, data.y)
    network = MCDropoutRegressor(**small)
    searched = BatchedGridSearchCV(network, {"tau": [0.1, 1.0]}, cv=2)
    assert_same_regression(searched.fit(data.X, data.y), data.X_new, data.y)


def test_single_rows(data, small):
    model = MCDropoutRegressor(**small).fit(data.X, data.y)
    graph = to_onnx(model)
    together = outputs(graph, data.X_new)
    alone = [outputs(graph, row[None]) for row in data.X_new]
    for name, values in together.items():
        np.testing.assert_allclose(
            np.concatenate([row[name] for row in alone]), values, rtol=1e-5, atol=1e-5
        )


def test_levels_are_the_given_ones(data, small):
    model = MCDropoutRegressor(**small, likelihood="heteroscedastic")
    model.fit(data.X, data.y)
    for q in ([0.3], (0.999, 0.001), 0.5):
        actual = outputs(to_onnx(model, q=q), data.X_new)["quantiles"]
        expected = expected_regression(model, data.X_new, np.atleast_1d(q))["quantiles"]
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * data.y.std())
    assert [p.value for p in to_onnx(model, q=q).metadata_props] == ["[0.5]"]
    with pytest.raises(ValueError, match="`q` must be in"):
        to_onnx(model, q=1.0)


def test_masks_keep_the_file_small(data, small):
    """Bernoulli dropout stores each weight once, not once per draw."""
    small = small | {"hidden_layer_sizes": (50, 50), "n_draws": 100}
    sizes = [
        len(to_onnx(kind(**small).fit(data.X, data.y)).SerializeToString())
        for kind in (MCDropoutRegressor, BBBRegressor)
    ]
    n_weights = 50 * 50 + 6 * 50 + 1
    assert sizes[0] < 4 * (100 * 104 + n_weights) + 50_000
    assert sizes[1] > 4 * 100 * n_weights


def test_scaled_uncertainty(data, small):
    network = MCDropoutRegressor(**small)
    for y in (data.y, data.Y):
        model = CalibratedUncertaintyRegressor(network, cv=2).fit(data.X, y)
        assert_same_regression(model, data.X_new, y)
    isotonic = CalibratedUncertaintyRegressor(network, cv=2, method="isotonic")
    with pytest.raises(TypeError, match=r"isotonic.*method='scale'"):
        to_onnx(isotonic.fit(data.X, data.y))


def test_stacks(data, small):
    """Integer weights as numbers of draws, several fits, and one correction."""
    pool = [
        ("masks", MCDropoutRegressor(**small, likelihood="heteroscedastic")),
        ("points", MCDropoutRegressor(**small, dropout=0.0), {"tau": [0.1, 3.0]}),
    ]
    stack = BayesianStackingRegressor(pool, cv=3, random_state=0)
    for y in (data.y, data.Y):
        stack.fit(data.X, y)
        stack.spread_factor_ = 1.3 * stack.spread_factor_
        assert_same_regression(stack, data.X_new, y)
    pool = [("masks", MCDropoutClassifier(**small)), ("two", MCDropoutClassifier())]
    pool[1][1].set_params(**small, dropout=0.0)
    stack = BayesianStackingClassifier(pool, cv=3, random_state=0)
    stack.fit(data.X, data.labels).spread_factor_ = np.array([1.3])
    assert_same_classification(stack, data.X_new)


def test_refusals_name_the_way_out(data, small):
    del small["hidden_layer_sizes"]
    image = ConvNet((1, 2, 2), channels=(3,), hidden_layer_sizes=())
    model = MCDropoutRegressor(network=image, **small).fit(data.X, data.y)
    with pytest.raises(TypeError, match=r"'convolutional'.*network=None"):
        to_onnx(model)
    with torch.random.fork_rng():
        module = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.Linear(3, 1))
    with pytest.raises(TypeError, match="got _TorchRegressor"):
        to_onnx(from_torch(module, noise_std=1.0))


def test_without_onnx(data, small, monkeypatch):
    model = MCDropoutRegressor(**small).fit(data.X, data.y)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"needs onnx.*skbayesnn\[onnx\]"):
        to_onnx(model)


def test_outputs_are_described(data, small):
    """Names, shapes and the levels, before the graph is run."""
    model = MCDropoutRegressor(**small).fit(data.X, data.Y)
    graph = to_onnx(model)
    onnx.checker.check_model(graph, full_check=True)
    [given] = graph.graph.input
    dimensions = given.type.tensor_type.shape.dim
    assert [d.dim_value or d.dim_param for d in dimensions] == ["n_samples", 4]
    assert [o.name for o in graph.graph.output] == ["mean", "std", "quantiles"]
    metadata = {p.key: json.loads(p.value) for p in graph.metadata_props}
    assert metadata == {"q": list(Q)}


def test_y_that_underflows_in_a_runtime_is_refused(data, small):
    model = MCDropoutRegressor(**small).fit(data.X, 1e-60 * data.y)
    with pytest.raises(ValueError, match=r"not zero in float32; got .*e-[56]"):
        to_onnx(model)


@pytest.mark.parametrize("unit, shift", [(1.0, 2.0**31), (1e120, 0.0), (1e-40, 0.0)])
def test_y_that_single_precision_cannot_resolve(unit, shift, data, small):
    """Then the graph's outputs are double, as predictions of float32 X are."""
    y = data.y * unit + shift
    model = MCDropoutRegressor(**small).fit(data.X, y)
    X = data.X_new.astype(np.float32)
    for name, values in outputs(to_onnx(model, q=Q), X).items():
        assert values.dtype == np.float64, name
    assert_same_regression(model, X, y)
    ordinary = MCDropoutRegressor(**small).fit(data.X, data.y)
    for name, values in outputs(to_onnx(ordinary, q=Q), X).items():
        assert values.dtype == np.float32, name
