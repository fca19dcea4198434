"""Quantiles of mixtures: the graph against the package."""

import numpy as np
import pytest
from scipy.special import erfc

from skbayesnn._distributions.quantiles import mixture_quantile
from skbayesnn._onnx.graph import Graph, half_erfc_polynomial
from skbayesnn._onnx.mixtures import Normals
from skbayesnn._onnx.quantiles import mixture_quantiles
from tests.helpers.onnx_running import outputs

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

LEVELS = [1e-6, 0.003, 0.05, 0.5, 0.8, 0.95, 1 - 1e-5]


def quantiles_of_graph(mean, variance, share):
    """Quantiles computed by a graph, (rows, targets, levels)."""
    graph = Graph()
    inputs = {"mean": mean, "variance": variance, "share": share}
    tensors = {n: graph.input(n, np.float64, v.shape) for n, v in inputs.items()}
    mixture = Normals(tensors["share"], tensors["mean"], tensors["variance"])
    values = mixture_quantiles(mixture, LEVELS)
    graph.output("quantiles", values, np.float64, [len(LEVELS), *mean.shape[1:]])
    return np.moveaxis(outputs(graph.model(), inputs)["quantiles"], 0, -1)


def expected(mean, variance, share):
    share = np.broadcast_to(share, mean.shape)
    each = [mixture_quantile(mean, variance, level, share) for level in LEVELS]
    return np.stack(each, axis=-1)


@pytest.mark.parametrize(
    ("spread", "noise"),
    [(1.0, 1.0), (0.0, 2.0), (100.0, 0.7), (1.0, 1e-3), (1.0, 1e3), (2.0, 0.2)],
)
def test_quantiles_equal_the_quantiles_of_the_package(spread, noise, seed):
    """From one Gaussian to distant components, in any units."""
    random = np.random.default_rng(seed)
    mean = 50 + spread * random.standard_normal((13, 5, 2))
    variance = np.square(noise * random.uniform(0.5, 2, size=mean.shape))
    share = random.dirichlet(np.ones(13))[:, None, None]
    # In units of the narrowest component; the interpolation points cause errors of
    # 1e-6.
    error = quantiles_of_graph(mean, variance, share) - expected(mean, variance, share)
    np.testing.assert_allclose(
        error / np.sqrt(variance.min(0))[..., None], 0, atol=1e-4
    )


def test_one_component():
    mean, variance = np.full((1, 3, 2), 7.0), np.full((1, 3, 2), 4.0)
    share = np.ones((1, 1, 1))
    reference = expected(mean, variance, share)
    np.testing.assert_allclose(
        quantiles_of_graph(mean, variance, share), reference, rtol=1e-7
    )


def test_median_between_two_halves():
    """Five components on each side: F is flat between, and its middle is returned."""
    mean = np.repeat([-6.0, 6.0], 5)[:, None, None]
    variance, share = np.ones_like(mean), np.full((10, 1, 1), 0.1)
    median = quantiles_of_graph(mean, variance, share)[..., LEVELS.index(0.5)]
    np.testing.assert_allclose(median, 0, atol=1e-5)


def test_error_function():
    """Accurate to a relative error of 2e-8, also in the tails."""
    z = np.linspace(0, 20, 1001)
    t = 1 / (1 + z / 2)
    value = np.polynomial.Polynomial([0, *half_erfc_polynomial()])(t)
    np.testing.assert_allclose(value * np.exp(-z * z), erfc(z) / 2, rtol=2e-8)
