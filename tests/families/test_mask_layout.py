"""Masks that are shared over positions or steps, for all families."""

import numpy as np
import pytest
import torch

from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import Family, MaskLayout, Needed
from tests.helpers.families import LAWS, label

MEMBERS, ROWS, STEPS, CHANNELS, TAPS = 3, 5, 4, 3, 2
CPU, F64 = torch.device("cpu"), torch.float64
LAYOUTS = {
    "channels": MaskLayout((ROWS, 1, CHANNELS, 1), (ROWS, STEPS, CHANNELS, TAPS)),
    "sequence": MaskLayout((ROWS, 1, CHANNELS), (ROWS, STEPS, CHANNELS)),
}


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]


@pytest.fixture(params=LAWS, ids=label)
def family(request):
    return request.param


def _n_inputs(layout):
    return int(np.prod(layout.spread[2:]))


def _source(seed):
    source = TrainingRandom(seed + np.arange(MEMBERS), CPU, F64)
    source.start_epoch(0)
    return source


def _keep():
    return torch.tensor([0.55, 0.9, 0.7], dtype=F64)


def _params(family, layout, seed, n_outputs):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(
        (MEMBERS, _n_inputs(layout), n_outputs), generator=generator, dtype=F64
    )
    bias = torch.randn((MEMBERS, n_outputs), generator=generator, dtype=F64)
    return family.init(0.4 * mean, 0.4, bias, _keep())


def _mask(family, layout, seed, shared):
    """Outputs of ones through W = 1 without random weights: the mask itself."""
    n = _n_inputs(layout)
    params = _params(family, layout, seed, n)
    params["mean"] = torch.eye(n, dtype=F64).expand(MEMBERS, n, n)
    params["bias"] = torch.zeros_like(params["bias"])
    for name in {"rho", "bias_rho"} & params.keys():
        params[name] = torch.full_like(params[name], -60.0)
    x = torch.ones((MEMBERS, ROWS * STEPS, n), dtype=F64)
    layout_ = layout if shared else None
    with torch.no_grad():
        outputs = family.linear(params, _keep(), x, _source(seed), layout_)
    return outputs.view(MEMBERS, *layout.spread)


def _has_mask(family):
    with_input_masks = ("Bernoulli", "Gaussian", "Concrete", "Correlated")
    spiked = getattr(family, "spike", False) and not family.shared_draw
    return type(family).__name__ in with_input_masks or spiked


def test_mask_is_the_same_along_the_shared_axes(family, layout, seed):
    """The layout does not change families without masks."""
    shared, unshared = (
        _mask(family, layout, seed, is_shared) for is_shared in (True, False)
    )
    if not _has_mask(family):
        torch.testing.assert_close(shared, unshared, rtol=0, atol=0)
        return
    first = shared[tuple(slice(0, n) for n in (MEMBERS, *layout.drawn))]
    torch.testing.assert_close(shared, first.expand_as(shared), rtol=0, atol=1e-12)
    assert not torch.allclose(unshared, unshared[:, :, :1].expand_as(unshared))
    assert (first.flatten(2).std(1) > 0).any() and (first[0] != first[1]).any()


def test_pullback_equals_autograd(family, layout, seed):
    for needed in (Needed.NONE, Needed.ALL):
        _assert_pullback(family, layout, seed, needed)


def _assert_pullback(family, layout, seed, needed):
    params = _params(family, layout, seed, 2)
    generator = torch.Generator().manual_seed(seed + 1)
    shape = MEMBERS, ROWS * STEPS, _n_inputs(layout)
    x = torch.randn(shape, generator=generator, dtype=F64)
    results = []
    for linear_vjp in (type(family).linear_vjp, Family.linear_vjp):
        with torch.no_grad():
            outputs, pullback = linear_vjp(
                family, params, _keep(), x.clone(), _source(seed), layout
            )
            gradient = torch.linspace(-1, 1, outputs.numel(), dtype=F64)
            results.append((outputs, *pullback(gradient.view_as(outputs), needed)))
    (
        (outputs, grad_params, grad_x),
        (expected, grad_params_by_autograd, grad_x_by_autograd),
    ) = results
    torch.testing.assert_close(outputs, expected)
    for name, value in grad_params.items():
        torch.testing.assert_close(value, grad_params_by_autograd[name])
    assert (grad_x is None) == (grad_x_by_autograd is None)
    if grad_x is not None:
        torch.testing.assert_close(grad_x, grad_x_by_autograd)
