"""Requirements of every family, with all of its options and under all its priors.

The cases are in `helpers/families.py`, which includes every new family of the table.
"""

import json
import math
from itertools import product
from typing import ClassVar

import pytest
import torch

from skbayesnn._engine.random import DrawRandom
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import (
    Concrete,
    Family,
    Needed,
    describe_family,
    family_from,
)
from skbayesnn._families.dropout import TEMPERATURE
from skbayesnn._families.variational_dropout import Variational
from skbayesnn._priors import PRIORS
from tests.helpers.checks import Checks
from tests.helpers.families import CASES, LAWS, VARIANTS, Case, label

MEMBERS, ROWS, INPUTS, OUTPUTS, DRAWS = 3, 5, 4, 2, 7
SCALE = 0.7  # standard deviation of the start weights
CPU = torch.device("cpu")

parametrize_cases = pytest.mark.parametrize("case", CASES, ids=str)
parametrize_laws = pytest.mark.parametrize(
    "case",
    [Case(family, "gaussian") for family in LAWS],
    ids=[label(family) for family in LAWS],
)
bounded = pytest.mark.parametrize(
    "case", [case for case in CASES if isinstance(case.family, Variational)], ids=str
)


class Setting:
    """Members that differ in everything, in float64."""

    def __init__(self, case, seed, dtype=torch.float64):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            return values.to(dtype)

        self.family, self.dtype = case.family, dtype
        self.seeds = seed + torch.tensor([11, 5, 7]).numpy()
        # At 0.5 kingma's log alpha is at its bound, where it is not differentiable.
        self.keep = torch.tensor([0.55, 0.9, 0.7], dtype=dtype)
        self.prior = _prior(case.prior, normal, dtype)
        self.params = self.family.init(
            SCALE * normal(MEMBERS, INPUTS, OUTPUTS),
            SCALE,
            normal(MEMBERS, OUTPUTS),
            self.keep,
        )
        for name in self.learned:
            # Parameters with equal start values in members, units or weights are made
            # different. The steps are small enough to keep log alpha within its bounds.
            if name not in ("mean", "bias"):
                value = self.params[name]
                self.params[name] = value + 0.05 * torch.tanh(normal(*value.shape))
        self.x = normal(MEMBERS, ROWS, INPUTS)

    @property
    def learned(self):
        """Names of the parameters that are not constants, in order."""
        return [n for n in self.params if n not in self.family.constants]

    def leaves(self):
        """All parameters; those that are learned require gradients."""
        return {
            name: value.clone().requires_grad_(name in self.learned)
            for name, value in self.params.items()
        }

    def source(self):
        """Random numbers of the training; the same at every call."""
        source = TrainingRandom(self.seeds, CPU, self.dtype)
        source.start_epoch(0)
        return source

    def linear(self, params=None, x=None, source=None):
        """One pass; by default with the same random numbers at every call."""
        params = self.params if params is None else params
        x = self.x if x is None else x
        return self.family.linear(params, self.keep, x, source or self.source())

    def draw(self, n_draws=DRAWS):
        """Weights and biases; the same at every call."""
        source = DrawRandom(self.seeds, range(n_draws), CPU, self.dtype)
        return self.family.draw(self.params, self.keep, source)

    def kl(self, params=None, source=None):
        """The KL; by default with the same random numbers at every call."""
        params = self.params if params is None else params
        return self.family.kl(params, self.keep, self.prior, source or self.source())

    def kl_gradient(self, family=None):
        """The family's gradient, or the gradient by the base class ``family``."""
        arguments = (self.params, self.keep, self.prior, self.source())
        with torch.no_grad():
            if family is None:
                return self.family.kl_gradient(*arguments)
            return family.kl_gradient(self.family, *arguments)

    def linear_vjp(self, x=None, gradient=None, needed=Needed.ALL, family=None):
        """Outputs, and the gradients of the parameters and of the inputs."""
        x = self.x if x is None else x
        arguments = (self.params, self.keep, x.clone(), self.source())
        with torch.no_grad():
            if family is None:
                outputs, pullback = self.family.linear_vjp(*arguments)
            else:
                outputs, pullback = family.linear_vjp(self.family, *arguments)
            gradient = torch.ones_like(outputs) if gradient is None else gradient
            grad_params, grad_x = pullback(gradient.clone(), needed)
        return outputs, grad_params, grad_x

    def beyond_the_bounds(self):
        """Set log alpha alternately above its highest and below its lowest value."""
        for name in ("log_alpha", "log_variance"):
            if name in self.params:
                values = self.params[name]
                far = torch.full((values.numel(),), 30.0, dtype=self.dtype)
                far[1::2] *= -1
                self.params[name] = values + far.view(values.shape)
        return self


def _prior(kind, normal, dtype):
    """A prior that differs by member; some kinds have equal priors for all weights."""

    def by_member(*values):
        return torch.tensor(values, dtype=dtype)

    length_scale = by_member(1.5, 0.3, 0.8)
    fields = {"length_scale": length_scale}
    if kind == "scale_mixture":
        fields |= {
            "pi": by_member(0.5, 0.2, 0.7),
            "s1": by_member(1.0, 2.0, 0.6),
            "s2": by_member(0.1, 0.4, 0.05),
        }
    if kind == "discrete":
        fields["step"] = by_member(0.25, 0.001, 0.1)
    if kind == "anchored":
        fields |= {
            "bias_length_scale": by_member(0.7, 2.0, 0.4),
            "normal": normal(MEMBERS, INPUTS, OUTPUTS),
            "bias_normal": normal(MEMBERS, OUTPUTS),
        }
    if kind == "previous":
        fields = {
            "mean": normal(MEMBERS, INPUTS, OUTPUTS),
            "std": (0.3 * normal(MEMBERS, INPUTS, OUTPUTS)).exp(),
            "bias_mean": normal(MEMBERS, OUTPUTS),
            "bias_std": (0.3 * normal(MEMBERS, OUTPUTS)).exp(),
        }
    return PRIORS[kind](**fields)


class ManyDraws:
    """`DrawRandom` with normal numbers that are made once for all families.

    Twenty thousand draws take a second; the n-th request is the n-th stream.
    """

    _made: ClassVar[dict] = {}

    def __init__(self, seeds, n_draws):
        self._seeds, self._n_draws, self._place = seeds, n_draws, 0

    @property
    def shared_by_rows(self):
        return self

    def _source(self):
        """The source, advanced to the present request."""
        source = DrawRandom(self._seeds, range(self._n_draws), CPU, torch.float64)
        for _ in range(self._place):
            source.bernoulli(torch.ones(1), 1)
        self._place += 1
        return source

    def bernoulli(self, probability, *shape):
        return self._source().bernoulli(probability, *shape)

    def normal(self, *shape):
        key = (tuple(self._seeds), self._n_draws, self._place, shape)
        source = self._source()
        if key not in self._made:
            self._made[key] = source.normal(*shape)
        return self._made[key].clone()

    def uniform(self, *shape):
        return self._source().uniform(*shape)


@pytest.fixture
def setting(case, seed):
    return Setting(case, seed)


def _shares_draws(family):
    """Whether all rows of a step see the same weights."""
    return getattr(family, "shared_draw", False)


@parametrize_cases
def test_axes_of_results(setting):
    params = setting.params
    assert all(len(value) == MEMBERS for value in params.values())
    assert params["bias"].shape == (MEMBERS, OUTPUTS)
    assert set(setting.family.constants) <= set(params)
    assert setting.linear().shape == (MEMBERS, ROWS, OUTPUTS)
    assert setting.linear(x=setting.x[:1]).shape == (MEMBERS, ROWS, OUTPUTS)
    weight, bias = setting.draw()
    draws = DRAWS if setting.family.stochastic else 1
    assert weight.shape == (draws, MEMBERS, INPUTS, OUTPUTS)
    assert bias.shape in [(MEMBERS, OUTPUTS), (DRAWS, MEMBERS, OUTPUTS)]
    assert setting.kl().shape == (MEMBERS,)
    grad_kl = setting.kl_gradient()
    outputs, grad_params, grad_x = setting.linear_vjp()
    assert outputs.shape == (MEMBERS, ROWS, OUTPUTS)
    assert grad_x.shape == (MEMBERS, ROWS, INPUTS)
    for actual in (grad_kl, grad_params):
        assert all(actual[name].shape == params[name].shape for name in actual)


@parametrize_cases
def test_axes_of_results_with_a_shared_seed(case, seed):
    """With one seed for all members the members axis of random numbers has length 1."""
    setting = Setting(case, seed)
    setting.seeds = setting.seeds[:1].repeat(MEMBERS)
    assert setting.linear().shape == (MEMBERS, ROWS, OUTPUTS)
    assert setting.linear(x=setting.x[:1]).shape == (MEMBERS, ROWS, OUTPUTS)
    assert setting.kl().shape == (MEMBERS,)
    _, grad_params, grad_x = setting.linear_vjp()
    assert grad_x.shape == (MEMBERS, ROWS, INPUTS)
    _, grad_shared_x, _ = setting.linear_vjp(setting.x[:1], needed=Needed.NONE)
    for actual in (grad_params, grad_shared_x, setting.kl_gradient()):
        assert all(actual[n].shape == setting.params[n].shape for n in actual)


@parametrize_cases
def test_precision_is_kept(case, seed):
    for dtype in (torch.float32, torch.float64):
        setting = Setting(case, seed, dtype)
        outputs, grad_params, grad_x = setting.linear_vjp()
        results = [setting.linear(), *setting.draw(), setting.kl(), outputs, grad_x]
        for group in (setting.params, grad_params, setting.kl_gradient()):
            results += group.values()
        assert {values.dtype for values in results} == {dtype}


@parametrize_cases
def test_inputs_are_not_changed(setting):
    """Except for the inputs of ``linear_vjp``, which may be overwritten."""
    x, keep = setting.x.clone(), setting.keep.clone()
    params = {name: value.clone() for name, value in setting.params.items()}
    prior = {name: value.clone() for name, value in _fields(setting.prior).items()}
    setting.linear(), setting.draw(), setting.kl()
    assert torch.equal(setting.x, x)
    setting.kl_gradient(), setting.linear_vjp()
    assert torch.equal(setting.keep, keep)
    assert all(torch.equal(setting.params[name], params[name]) for name in params)
    after = _fields(setting.prior)
    assert all(torch.equal(after[name], prior[name]) for name in prior)


def _fields(prior):
    """The tensors of a prior, not copies."""
    return {name: getattr(prior, name) for name in prior.__dataclass_fields__}


@parametrize_laws
def test_linear_has_the_moments_of_draw(setting):
    """Training (per row) and prediction (per network) draw from the same q(W, b)."""
    n = 20_000
    x = setting.x[:, :1]
    source = ManyDraws(setting.seeds, n)
    weight, bias = setting.family.draw(setting.params, setting.keep, source)
    draws = (x @ weight + bias.unsqueeze(-2)).squeeze(2).transpose(0, 1)
    if _shares_draws(setting.family):  # a draw per step, each for one row
        source = setting.source()
        steps = [setting.linear(x=x, source=source) for _ in range(n // 5)]
        per_row = torch.cat(steps, dim=1)
    else:
        per_row = setting.linear(x=x.expand(-1, n, -1))
    mean_effect, covariance_effect = _effect_of_relaxation(setting)

    mean, mean_error = _mean_and_error(per_row)
    expected, expected_error = _mean_and_error(draws)
    # Six standard errors: one false alarm in 10^8 comparisons, at any seed.
    # Probabilities are rounded to 2^-16, which is negligible; 1e-9 is for sums of equal
    # values.
    tolerance = 6 * torch.hypot(mean_error, expected_error) + mean_effect + 1e-9
    assert ((mean - expected).abs() < tolerance).all()

    covariance, error = _mean_and_error(_products(per_row))
    expected, expected_error = _mean_and_error(_products(draws))
    tolerance = 6 * torch.hypot(error, expected_error) + covariance_effect + 1e-9
    assert ((covariance - expected).abs() < tolerance).all()


def _effect_of_relaxation(setting):
    """Bounds of the effect of relaxed masks on a row's mean and covariance.

    A relaxed mask z is a sigmoid of width t = 0.1 about the true one. To leading order
    in t, its mean is p + (t pi)^2 / 6 p (1 - p) (1 - 2 p), off by less than 0.0016,
    and its variance is less than p (1 - p) by E z (1 - z) = t p (1 - p), from the
    values between 0 and 1; higher orders are a tenth of these. Only Concrete has them.
    """
    if not isinstance(setting.family, Concrete):
        return 0.0, 0.0
    p = setting.params["logit"].sigmoid().view(-1, 1, 1)
    variance = p * (1 - p)
    x, mean = setting.x[:, :1], setting.params["mean"]
    mean_effect = (TEMPERATURE * math.pi) ** 2 / 6 * variance * (1 - 2 * p).abs()
    pairs = (mean.unsqueeze(-1) * mean.unsqueeze(-2)).flatten(2).abs()
    return (
        1.1 * (mean_effect * x.abs() @ mean.abs()).squeeze(1),
        1.1 * (TEMPERATURE * variance * x.square() @ pairs).squeeze(1),
    )


def _mean_and_error(values):
    """Mean over axis 1 and its standard error, which is zero for one value."""
    n = values.shape[1]
    if n == 1:
        return values[:, 0], torch.zeros_like(values[:, 0])
    return values.mean(1), values.std(1) / n**0.5


def _products(values):
    """Products of centred outputs, pair by pair; values : (members, n, outputs)."""
    centred = values - values.mean(1, keepdim=True)
    return (centred.unsqueeze(-1) * centred.unsqueeze(-2)).flatten(2)


def _without_prior_gradient(case):
    """Parameters on which the KL does not depend.

    The log-uniform prior has no scale: if alpha is learned separately the KL does not
    depend on the means. Weights without dropout have a flat prior.
    """
    if case.prior != "log_uniform":
        return set()
    learns_variances = getattr(case.family, "alpha", None) == "weight"
    return set() if learns_variances else {"mean"}


@parametrize_cases
def test_every_parameter_has_a_gradient(case, setting):
    """From the data, and from the prior if the KL depends on the parameter.

    Twenty draws: in a single draw for all rows a spike can hide the mean weights.
    """
    params = setting.leaves()
    leaves = [params[name] for name in setting.learned]
    source = setting.source()
    outputs = [setting.linear(params, source=source) for _ in range(20)]
    through_data = torch.autograd.grad(torch.stack(outputs).square().sum(), leaves)
    kl = sum(setting.kl(params, source).sum() for _ in range(20))
    through_prior = torch.autograd.grad(kl, leaves, materialize_grads=True)
    unseen = _without_prior_gradient(case)
    for name, data, prior in zip(
        setting.learned, through_data, through_prior, strict=True
    ):
        assert (data.reshape(MEMBERS, -1) != 0).any(1).all(), name
        assert (data + prior != 0).all(), name
        assert not prior.any() if name in unseen else (prior != 0).all(), name


@pytest.mark.parametrize("case", [c for c in CASES if c.family.constants], ids=str)
def test_constants_have_no_gradient(setting):
    """Neither by autograd nor analytically, so training does not change them."""
    params = {n: v.clone().requires_grad_() for n, v in setting.params.items()}
    results = [setting.kl_gradient(), setting.linear_vjp()[1]]
    results += [setting.kl_gradient(Family), setting.linear_vjp(family=Family)[1]]
    for values in (setting.linear(params), setting.kl(params)):
        gradients = torch.autograd.grad(
            values.sum(), list(params.values()), materialize_grads=True
        )
        results.append(dict(zip(params, gradients, strict=True)))
    for name in setting.family.constants:
        assert not any(gradient[name].any() for gradient in results if name in gradient)


@parametrize_cases
def test_keep_is_given_or_learned(setting):
    """A learned p starts at the given one, which is not used again."""
    family, keep = setting.family, setting.keep
    zeros = torch.zeros(MEMBERS, INPUTS, OUTPUTS, dtype=setting.dtype)
    start = family.init(zeros, SCALE, zeros[:, 0], keep)
    torch.testing.assert_close(family.keep_of(start, keep), keep)
    flipped = setting.keep.flip(0)
    grad_params = family.keep_of(setting.params, keep)
    assert torch.equal(family.keep_of(setting.params, flipped), grad_params) == (
        family.learns_keep
    )
    assert torch.equal(grad_params, keep) == (not family.learns_keep)


@parametrize_cases
def test_gradients_equal_finite_differences(setting):
    names = setting.learned
    values = [setting.params[name].clone().requires_grad_() for name in names]

    def linear(*values):
        return setting.linear(setting.params | dict(zip(names, values, strict=True)))

    def kl(*values):
        return setting.kl(setting.params | dict(zip(names, values, strict=True)))

    assert torch.autograd.gradcheck(linear, values)
    assert torch.autograd.gradcheck(kl, values)


def _as_dict(setting, function):
    """Results of one function by name, members first."""
    if function == "draw":
        weight, bias = setting.draw()
        return {"weight": weight.transpose(0, 1), "bias": bias.movedim(-2, 0)}
    if function == "linear_vjp":
        outputs, grad_params, grad_x = setting.linear_vjp()
        return grad_params | {"outputs": outputs, "x": grad_x}
    if function == "kl_gradient":
        return setting.kl_gradient()
    return {function: getattr(setting, function)()}


@parametrize_cases
def test_members_are_independent(case, seed):
    """Invalid values of the last member leave the others bit-equal."""
    before, after = Setting(case, seed), Setting(case, seed)
    for value in [*after.params.values(), *_fields(after.prior).values(), after.x]:
        value[-1] = float("nan")
    after.keep[-1] = 0.2
    with Checks() as check:
        for function in ("linear", "draw", "kl", "linear_vjp", "kl_gradient"):
            first, second = _as_dict(before, function), _as_dict(after, function)
            with check(function):
                assert first.keys() == second.keys()
                changed = [n for n, v in first.items() if _differ(v, second[n], -1)]
                assert changed, "the last member is as before"
                changed_others = [
                    n for n, v in first.items() if _differ(v, second[n], slice(-1))
                ]
                assert not changed_others


def _differ(first, second, members):
    return not torch.equal(first[members], second[members])


@pytest.mark.parametrize("case", [c for c in CASES if c.family.quadratic_kl], ids=str)
def test_gradient_of_a_quadratic_kl_is_linear(setting):
    """So the training computes it with one product and a sum.

    These are computed with all parameters, also constants, at zero and at one.
    """

    def gradient(params):
        params = {n: v.clone().requires_grad_() for n, v in params.items()}
        actual = torch.autograd.grad(
            setting.kl(params).sum(), list(params.values()), materialize_grads=True
        )
        return dict(zip(params, actual, strict=True))

    theta = setting.params
    at_theta = gradient(theta)
    doubled = {name: 2 * theta[name] for name in setting.learned}
    at_two = gradient(theta | doubled)
    at_zero, at_one = (
        gradient(
            {name: value.new_full(value.shape, x) for name, value in theta.items()}
        )
        for x in (0.0, 1.0)
    )
    for name, value in theta.items():
        zero = at_zero[name]
        torch.testing.assert_close(at_two[name] - zero, 2 * (at_theta[name] - zero))
        torch.testing.assert_close((at_one[name] - zero) * value + zero, at_theta[name])


@parametrize_cases
def test_stochastic_families_draw_random_numbers(setting):
    """Draws differ, and rows; rows that share a draw differ between steps."""

    def differ(values, axis):
        return not torch.equal(values, values.narrow(axis, 0, 1).expand_as(values))

    weight, _ = setting.draw(30)
    same_row = setting.x[:, :1].expand(-1, 30, -1)
    source = setting.source()
    steps = torch.stack([setting.linear(x=same_row, source=source) for _ in range(30)])
    stochastic = setting.family.stochastic
    assert differ(weight, 0) == differ(steps[:, :, :1], 0) == stochastic
    rows_differ = stochastic and not _shares_draws(setting.family)
    assert differ(steps[0], 1) == rows_differ


def test_many_draws_equal_draw_random(seed):
    """The test of moments uses the random numbers of the package."""
    seeds, p = seed + torch.arange(2).numpy(), torch.tensor([0.3, 0.8])
    plain = DrawRandom(seeds, range(9), CPU, torch.float64)
    many = ManyDraws(seeds, 9)
    for _ in range(2):
        for kind, arguments in {"bernoulli": (p, 5), "normal": (3, 2)}.items():
            expected = getattr(plain, kind)(*arguments)
            assert torch.equal(getattr(many, kind)(*arguments), expected)


@pytest.mark.parametrize("family", VARIANTS, ids=label)
def test_start_has_the_given_size(family, seed):
    """E ||W||^2 at the start equals the value for the given weights, at any rate.

    For many weights, because a family may add a small variance. 0.3 is a rate at which
    alpha is beyond the bound of an approximation.
    """
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(MEMBERS, 100, 20, generator=generator, dtype=torch.float64)
    mean *= SCALE
    bias = torch.randn(MEMBERS, 20, generator=generator, dtype=torch.float64)
    keep = torch.tensor([0.3, 0.9, 0.7], dtype=torch.float64)
    params = family.init(mean.clone(), SCALE, bias.clone(), keep)
    seeds = seed + torch.tensor([11, 5, 7]).numpy()
    source = DrawRandom(seeds, range(200), CPU, torch.float64)
    weight, biases = family.draw(params, keep, source)
    size = weight.square().sum((2, 3)).mean(0)
    torch.testing.assert_close(size, mean.square().sum((1, 2)), rtol=0.1, atol=0)
    # Biases start at the given values, with at most a tenth of noise.
    size = biases.square().sum(-1).view(-1, MEMBERS).mean(0)
    torch.testing.assert_close(size, bias.square().sum(1), rtol=0.1, atol=0)


def _assert_gradients(actual, expected):
    """Compare by name; a missing gradient is zero."""
    assert actual.keys() <= expected.keys()
    for name, value in expected.items():
        gradient = actual[name] if name in actual else torch.zeros_like(value)
        torch.testing.assert_close(gradient, value, msg=lambda m, n=name: f"{n}: {m}")


def _assert_pullback(setting, by_hand, shared):
    """Compare ``linear_vjp``, of the family or of the base class, with autograd."""
    x = setting.x[:1] if shared else setting.x
    leaf, params = x.clone().requires_grad_(), setting.leaves()
    outputs = setting.linear(params, leaf)
    gradient = torch.linspace(-1, 2, outputs.numel(), dtype=setting.dtype)
    gradient = gradient.view(outputs.shape)
    learned = [params[name] for name in setting.learned]
    *grad_params, grad_x = torch.autograd.grad(outputs, [*learned, leaf], gradient)
    expected = {n: torch.zeros_like(v) for n, v in setting.params.items()}
    expected |= dict(zip(setting.learned, grad_params, strict=True))

    base = None if by_hand else Family
    needed = Needed.NONE if shared else Needed.ALL
    result, actual, grad_inputs = setting.linear_vjp(x, gradient, needed, base)
    assert not result.requires_grad
    torch.testing.assert_close(result, outputs)
    _assert_gradients(actual, expected)
    if shared:
        assert grad_inputs is None
    else:
        torch.testing.assert_close(grad_inputs, grad_x)


@parametrize_cases
def test_gradient_of_nonzero_inputs(setting):
    """With WHERE_NONZERO, gradients at inputs that are not zero are the full ones."""
    arguments = (setting.params, setting.keep)
    gradients, nonzero = [], []
    for needed in (Needed.ALL, Needed.WHERE_NONZERO):
        x = setting.x.clone()
        with torch.no_grad():
            outputs, pullback = setting.family.linear_vjp(
                *arguments, x, setting.source()
            )
            gradient = torch.linspace(-1, 2, outputs.numel(), dtype=setting.dtype)
            gradients.append(pullback(gradient.view(outputs.shape), needed)[1])
        nonzero.append(x != 0)
    assert torch.equal(*nonzero)
    assert nonzero[0].any()
    torch.testing.assert_close(gradients[0][nonzero[0]], gradients[1][nonzero[0]])


# The gradients of a family, and the gradients that it inherits.
WAYS = {"by hand": True, "by autograd": False}


@parametrize_cases
def test_pullback_equals_autograd(setting):
    with Checks() as check:
        for way, shared in product(WAYS, (False, True)):
            with check(f"{way}, {'shared' if shared else 'own'} rows"):
                _assert_pullback(setting, WAYS[way], shared)


def _assert_kl_gradient(setting, by_hand):
    """Compare ``kl_gradient``, of the family or of the base class, with autograd."""
    params = setting.leaves()
    learned = [params[name] for name in setting.learned]
    gradients = torch.autograd.grad(
        setting.kl(params).sum(), learned, materialize_grads=True
    )
    expected = {n: torch.zeros_like(v) for n, v in setting.params.items()}
    expected |= dict(zip(setting.learned, gradients, strict=True))
    actual = setting.kl_gradient(None if by_hand else Family)
    assert not any(value.requires_grad for value in actual.values())
    _assert_gradients(actual, expected)


@parametrize_cases
def test_kl_gradient_equals_autograd(setting):
    """A sampled KL is computed at the same draw."""
    with Checks() as check:
        for way, by_hand in WAYS.items():
            with check(way):
                _assert_kl_gradient(setting, by_hand)


@bounded
def test_gradients_beyond_the_bounds_equal_autograd(setting):
    setting.beyond_the_bounds()
    with Checks() as check:
        for way, by_hand in WAYS.items():
            with check(way):
                _assert_pullback(setting, by_hand, shared=False)
                _assert_kl_gradient(setting, by_hand)


@bounded
def test_log_alpha_stays_within_its_bounds(setting):
    """Beyond the bounds it counts as the bound, and has no gradient."""
    setting.beyond_the_bounds()
    lowest, highest = setting.family.bounds
    log_alpha = setting.family.log_alpha_of(setting.params)
    # The log alpha of a weight is a difference of logarithms: equal to rounding.
    at_bound = (log_alpha - highest).abs() < 1e-9
    assert (at_bound | ((log_alpha - lowest).abs() < 1e-9)).all()
    assert at_bound.any()
    [name] = {"log_alpha", "log_variance"} & set(setting.params)
    for actual in (setting.linear_vjp()[1], setting.kl_gradient()):
        assert not actual[name].any()


@pytest.mark.parametrize("family", VARIANTS, ids=label)
def test_options_are_plain_values(family):
    """Fitted estimators store a family as its name and options."""
    for described in (family, family.with_mask_shape((3, 2))):
        about = json.loads(json.dumps(describe_family(described)))
        again = family_from(about)
        assert again == described
        assert hash(again) == hash(described)
