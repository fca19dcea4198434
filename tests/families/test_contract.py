"""What every family of the table must do; a new one is tested here by itself."""

import pytest
import torch

from skbayesnn.families import FAMILIES, linear_vjp
from skbayesnn.inference.noise import DrawNoise, TrainingNoise
from skbayesnn.priors import GaussianPrior

MEMBERS, ROWS, INPUTS, OUTPUTS, DRAWS = 3, 5, 4, 2, 7
CPU = torch.device("cpu")


@pytest.fixture(params=FAMILIES, ids=str)
def family(request):
    return FAMILIES[request.param]


class Setting:
    """Members with different everything, in float64."""

    def __init__(self, family, seed, dtype=torch.float64):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            return values.to(dtype)

        self.family, self.dtype = family, dtype
        self.seeds = seed + torch.tensor([11, 5, 7]).numpy()
        self.keep = torch.tensor([0.5, 0.9, 0.7], dtype=dtype)
        self.prior = GaussianPrior(torch.tensor([1.5, 0.3, 0.8], dtype=dtype))
        self.mean = normal(MEMBERS, INPUTS, OUTPUTS)
        self.params = family.init(self.mean.clone(), self.keep)
        self.x = normal(MEMBERS, ROWS, INPUTS)
        self.bias = normal(MEMBERS, OUTPUTS)

    def linear(self, params=None, x=None):
        """One pass; the same noise at every call."""
        noise = TrainingNoise(self.seeds, CPU, self.dtype)
        noise.start_epoch(0)
        params = self.params if params is None else params
        x = self.x if x is None else x
        return self.family.linear(params, self.keep, x, self.bias, noise)

    def draw(self, n_draws=DRAWS):
        """Weights; the same at every call."""
        noise = DrawNoise(self.seeds, range(n_draws), CPU, self.dtype)
        return self.family.draw(self.params, self.keep, noise)

    def kl(self, params=None):
        params = self.params if params is None else params
        return self.family.kl(params, self.keep, self.prior)


@pytest.fixture
def setting(family, seed):
    return Setting(family, seed)


def test_axes(setting):
    assert all(len(value) == MEMBERS for value in setting.params.values())
    assert setting.linear().shape == (MEMBERS, ROWS, OUTPUTS)
    assert setting.linear(x=setting.x[:1]).shape == (MEMBERS, ROWS, OUTPUTS)
    draws = DRAWS if setting.family.stochastic else 1
    assert setting.draw().shape == (draws, MEMBERS, INPUTS, OUTPUTS)
    assert setting.kl().shape == (MEMBERS,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_precision_is_kept(family, seed, dtype):
    setting = Setting(family, seed, dtype)
    results = [setting.linear(), setting.draw(), setting.kl()]
    results += setting.params.values()
    assert all(values.dtype == dtype for values in results)


def test_inputs_are_not_changed(setting):
    x, bias, keep = setting.x.clone(), setting.bias.clone(), setting.keep.clone()
    params = {name: value.clone() for name, value in setting.params.items()}
    setting.linear(), setting.draw(), setting.kl()
    assert torch.equal(setting.x, x)
    assert torch.equal(setting.bias, bias)
    assert torch.equal(setting.keep, keep)
    assert all(torch.equal(setting.params[name], params[name]) for name in params)


def test_linear_has_the_moments_of_draw(setting):
    """Noise per row (training) and noise per network (prediction) are one q(W)."""
    n = 20_000
    x = setting.x[:, :1]
    per_row = setting.linear(x=x.expand(-1, n, -1))
    weights = setting.draw(n)
    of_draws = (x @ weights + setting.bias.unsqueeze(1)).squeeze(2).transpose(0, 1)

    mean, mean_error = _mean_and_error(per_row)
    expected, expected_error = _mean_and_error(of_draws)
    # Six standard errors: one false alarm in 10^8 comparisons, at any seed. The
    # probabilities are rounded to 2^-16, far below that; 1e-9 is for sums of equals.
    tolerance = 6 * torch.hypot(mean_error, expected_error) + 1e-9
    assert ((mean - expected).abs() < tolerance).all()

    covariance, error = _mean_and_error(_products(per_row))
    expected, expected_error = _mean_and_error(_products(of_draws))
    tolerance = 6 * torch.hypot(error, expected_error) + 1e-9
    assert ((covariance - expected).abs() < tolerance).all()


def _mean_and_error(values):
    """Mean over axis 1 and its standard error; one value has none."""
    n = values.shape[1]
    if n == 1:
        return values[:, 0], torch.zeros_like(values[:, 0])
    return values.mean(1), values.std(1) / n**0.5


def _products(values):
    """(members, n, outputs) -> products of centred outputs, pair by pair."""
    centred = values - values.mean(1, keepdim=True)
    return (centred.unsqueeze(-1) * centred.unsqueeze(-2)).flatten(2)


def test_every_parameter_learns(setting):
    params = {n: v.clone().requires_grad_() for n, v in setting.params.items()}
    through_data = torch.autograd.grad(
        setting.linear(params).square().sum(), list(params.values())
    )
    through_prior = torch.autograd.grad(setting.kl(params).sum(), list(params.values()))
    for data, prior in zip(through_data, through_prior, strict=True):
        assert (data.flatten(1) != 0).any(1).all()
        assert (data + prior != 0).all()


def test_gradients_are_those_of_finite_differences(setting):
    names = list(setting.params)
    values = [setting.params[name].clone().requires_grad_() for name in names]

    def linear(*values):
        return setting.linear(dict(zip(names, values, strict=True)))

    def kl(*values):
        return setting.kl(dict(zip(names, values, strict=True)))

    assert torch.autograd.gradcheck(linear, values)
    assert torch.autograd.gradcheck(kl, values)


@pytest.mark.parametrize("what", ["linear", "draw", "kl"])
def test_members_do_not_touch_each_other(family, seed, what):
    """Anything may happen to the last member: the others stay bit-equal."""
    before, after = Setting(family, seed), Setting(family, seed)
    for value in after.params.values():
        value[-1] = float("nan")
    after.keep[-1] = 0.2
    after.bias[-1] = float("inf")
    after.x[-1] = float("nan")
    after.prior.length_scale[-1] = 100.0
    axis = 1 if what == "draw" else 0
    first = getattr(before, what)().transpose(0, axis)
    second = getattr(after, what)().transpose(0, axis)
    assert torch.equal(first[:-1], second[:-1])
    assert not torch.equal(first[-1], second[-1])


def test_claim_of_a_quadratic_kl(setting):
    """The gradient is linear in the parameters, so one product gives it."""
    if not setting.family.quadratic_kl:
        pytest.skip("the family does not claim it")

    def gradient(params):
        params = {n: v.clone().requires_grad_() for n, v in params.items()}
        return torch.autograd.grad(setting.kl(params).sum(), list(params.values()))

    theta = setting.params
    at_theta = gradient(theta)
    at_two = gradient({name: 2 * value for name, value in theta.items()})
    at_one = gradient({name: torch.ones_like(value) for name, value in theta.items()})
    for g, g2, g1, value in zip(at_theta, at_two, at_one, theta.values(), strict=True):
        torch.testing.assert_close(g2, 2 * g)
        torch.testing.assert_close(g1 * value, g)


def test_claim_of_being_stochastic(setting):
    weights = setting.draw(30)
    same_row = setting.linear(x=setting.x[:, :1].expand(-1, 30, -1))
    differ = not torch.equal(weights, weights[:1].expand_as(weights))
    rows_differ = not torch.equal(same_row, same_row[:, :1].expand_as(same_row))
    assert differ == rows_differ == setting.family.stochastic


def test_start_has_the_wanted_size(setting):
    """E ||W||^2 at the start is that of the weights asked for, whatever is dropped.

    Of many weights: a family may add a small variance of its own.
    """
    generator = torch.Generator().manual_seed(int(setting.seeds[0]))
    mean = torch.randn(MEMBERS, 100, 50, generator=generator, dtype=torch.float64)
    params = setting.family.init(mean, setting.keep)
    noise = DrawNoise(setting.seeds, range(200), CPU, torch.float64)
    weights = setting.family.draw(params, setting.keep, noise)
    size = weights.square().sum((2, 3)).mean(0)
    torch.testing.assert_close(size, mean.square().sum((1, 2)), rtol=0.1, atol=0)


@pytest.mark.parametrize("by_hand", [True, False], ids=["by hand", "autograd"])
@pytest.mark.parametrize("shared", [False, True], ids=["own rows", "shared rows"])
def test_pullback_is_autograds(setting, monkeypatch, by_hand, shared):
    """``linear_vjp``, a family's own and the one for families without."""
    if not by_hand and hasattr(setting.family, "linear_vjp"):
        monkeypatch.delattr(setting.family, "linear_vjp")
    [name] = [key for key, value in FAMILIES.items() if value is setting.family]
    x = setting.x[:1] if shared else setting.x
    params = {
        key: value.clone().requires_grad_()
        for key, value in (setting.params | {"bias": setting.bias}).items()
    }
    leaf = x.clone().requires_grad_()
    noise = TrainingNoise(setting.seeds, CPU, setting.dtype)
    noise.start_epoch(0)
    outputs = setting.family.linear(params, setting.keep, leaf, params["bias"], noise)
    gradient = torch.linspace(-1, 2, outputs.numel(), dtype=setting.dtype)
    gradient = gradient.view(outputs.shape)
    expected = torch.autograd.grad(outputs, [*params.values(), leaf], gradient)

    noise.start_epoch(0)
    detached = {key: value.detach() for key, value in params.items()}
    with torch.no_grad():
        result, pullback = linear_vjp(name, detached, setting.keep, x.clone(), noise)
        of_params, of_x = pullback(gradient, not shared)
    torch.testing.assert_close(result, outputs)
    for key, value in zip(params, expected, strict=False):
        torch.testing.assert_close(of_params[key], value)
    if shared:
        assert of_x is None
    else:
        torch.testing.assert_close(of_x, expected[-1])
