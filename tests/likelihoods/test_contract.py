"""Requirements of every likelihood of the table, with all of its options; float64.

A new likelihood is included automatically, with its defaults and with tau given and
learned; add further options below. CONTRIBUTING's skeleton is included, too.
"""

import itertools
import json
from dataclasses import fields

import numpy as np
import pytest
import torch

from skbayesnn._distributions.components import Components, Labels
from skbayesnn._distributions.recorded import TargetSpace, recorded
from skbayesnn._likelihoods import LIKELIHOODS, likelihood_from
from skbayesnn._likelihoods.base import MAX_LOG_TAU
from skbayesnn._likelihoods.intervals import joined_intervals
from tests.helpers.checks import Checks
from tests.helpers.skeletons import skeletons

DRAWS, MEMBERS, ROWS, TARGETS, CLASSES = 7, 3, 5, 2, 4
LEVELS = [1e-3, 0.1, 0.5, 0.77, 0.999]

LAPLACE = skeletons()["Laplace"]
# Options that are tested in addition to the defaults, by the likelihood's name.
OPTIONS = {
    "student_t": [{"df": 3.5}],
    "mixture": [{"n_components": 2}],
    "interval_gaussian": [{"has_point": True}],
    "interval_heteroscedastic": [{"has_point": True}],
}


def _cases():
    for name, kind in {**LIKELIHOODS, "laplace": LAPLACE}.items():
        for options in [{}, *OPTIONS.get(name, [])]:
            for learned in [False] if kind.tempered else [False, True]:
                options_shown = [f"{key}={value}" for key, value in options.items()]
                options_shown += ["tau learned"] * learned
                yield pytest.param(
                    (kind, options, learned), id=", ".join([name, *options_shown])
                )


CASES = list(_cases())
parametrize_cases = pytest.mark.parametrize("case", CASES)
parametrize_regression_cases = pytest.mark.parametrize(
    "case",
    [case for case in CASES if not case.values[0][0].is_classification],
)
parametrize_classification_cases = pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.values[0][0].is_classification],
)
# Rows that the members share, and separate rows of each member.
LEADS = [1, MEMBERS]


def with_intervals(y, has_point):
    """Rows with an exact value, within an interval, below, above, and at the point."""
    low, high, is_point = y.clone(), y.clone(), torch.zeros_like(y)
    high[:, 1] += 0.7
    low[:, [2, 4]] = -torch.inf
    high[:, 3] = torch.inf
    is_point[:, 4] = has_point
    return torch.as_tensor(joined_intervals(*map(np.asarray, (low, high, is_point))))


class Setting:
    """Members that differ in everything, after the warm-up."""

    def __init__(self, case, seed, lead=MEMBERS):
        kind, options, learned = case
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        self.likelihood = kind.build(
            CLASSES if kind.is_classification else TARGETS,
            learned,
            options,
        )
        self.tau = normal(MEMBERS, 1 if kind.tempered else TARGETS).exp()
        self.outputs = normal(DRAWS, MEMBERS, ROWS, self.likelihood.n_outputs)
        if kind.is_classification:
            # Every class occurs: a threshold above all labels would have no gradient.
            order = torch.rand((lead, ROWS), generator=generator).argsort(1)
            self.y = order % CLASSES
        else:
            self.y = normal(lead, ROWS, TARGETS)
            if kind.components_class.discrete:
                self.y = (2 * self.y.abs()).round()
            kind.check_y(self.y.flatten(0, 1).numpy())
        weights = normal(ROWS).abs().numpy()
        statistics = [
            self.likelihood.statistics(y_of_member.numpy(), weights)
            for y_of_member in self.y.expand(MEMBERS, *self.y.shape[1:])
        ]
        # y without intervals.
        self.values = self.y
        if kind.of_intervals:
            self.y = with_intervals(self.values, self.likelihood.has_point)
        params = self.likelihood.init(self.tau, torch.as_tensor(np.stack(statistics)))
        self.likelihood.schedule(params, 1.0)
        self.start = params
        # Learned parameters with equal start values in all members are made different.
        self.params = {
            name: value + 0.1 * torch.tanh(normal(*value.shape))
            if name in self.likelihood.trainable
            else value
            for name, value in params.items()
        }

    def components(self):
        """Components of all draws, as in a predictive: (draws * members, rows, ...)."""
        values = self.likelihood.components(self.params, self.outputs)
        kind = self.likelihood.components_class
        return kind(*(value.flatten(0, 1).numpy() for value in values))

    def exact(self, y):
        """y as the likelihood takes it, (lead, rows, targets) of exact values."""
        if not self.likelihood.of_intervals:
            return y
        return torch.cat([y, y, torch.zeros_like(y)], dim=-1)

    def leaves(self):
        """The learned parameters, with gradients."""
        names = self.likelihood.trainable
        return {name: self.params[name].clone().requires_grad_() for name in names}


@pytest.fixture(autouse=True)
def _table_with_skeleton(monkeypatch):
    monkeypatch.setitem(LIKELIHOODS, "laplace", LAPLACE)


@pytest.fixture
def setting(case, seed):
    return Setting(case, seed)


# ---- description


@parametrize_cases
def test_description_is_json_and_complete(setting):
    likelihood = setting.likelihood
    about = json.loads(json.dumps(likelihood.describe()))
    assert about == likelihood.describe()
    again = likelihood_from(about)
    assert again == likelihood
    assert hash(again) == hash(likelihood)
    assert LIKELIHOODS[likelihood.name] is type(likelihood)


@parametrize_cases
def test_members_are_the_first_axis_of_parameters(setting):
    assert setting.likelihood.n_outputs >= 1
    assert set(setting.likelihood.trainable) <= set(setting.params)
    for value in setting.params.values():
        assert len(value) == MEMBERS
        assert value.dtype == torch.float64


@parametrize_cases
def test_tau_is_learned_as_given(case, setting):
    _, _, learned = case
    assert setting.likelihood.learned == learned
    assert ("log_tau" in setting.likelihood.trainable) == learned
    torch.testing.assert_close(setting.start["log_tau"], setting.tau.log())


# ---- nll


@parametrize_cases
def test_shapes(case, seed):
    """With and without an axis of draws; shared rows count for every member."""
    for lead in LEADS:
        _assert_shapes(Setting(case, seed, lead))


def _assert_shapes(setting):
    expanded_y = setting.y.expand(MEMBERS, *setting.y.shape[1:])
    for function in (setting.likelihood.nll, setting.likelihood.log_density):
        drawn = function(setting.params, setting.outputs, setting.y)
        assert drawn.shape == (DRAWS, MEMBERS, ROWS)
        torch.testing.assert_close(
            function(setting.params, setting.outputs, expanded_y), drawn
        )
        alone = function(setting.params, setting.outputs[2], setting.y)
        torch.testing.assert_close(alone, drawn[2])


@parametrize_cases
def test_wrong_shapes_are_refused(setting):
    """Values must not be broadcast over rows."""
    with pytest.raises((ValueError, RuntimeError)):
        setting.likelihood.nll(setting.params, setting.outputs, setting.y[:, 1:])
    if not setting.likelihood.is_classification:
        y = setting.y
        for wrong in (y[:, :1], y[..., :1], y[..., 0]):
            with pytest.raises(ValueError, match="must agree in rows and targets"):
                setting.likelihood.nll(setting.params, setting.outputs, wrong)


@parametrize_cases
def test_tau_scales_the_nll_or_has_no_effect(setting):
    arguments = setting.params, setting.outputs, setting.y
    nll = setting.likelihood.nll(*arguments)
    factor = setting.tau if setting.likelihood.tempered else 1.0
    torch.testing.assert_close(
        nll, -factor * setting.likelihood.log_density(*arguments)
    )


@parametrize_cases
def test_pullback_equals_autograd(case, seed):
    with Checks() as check:
        for lead in LEADS:
            with check(f"rows of {lead} members"):
                _assert_pullback(Setting(case, seed, lead))


def _assert_pullback(setting):
    likelihood, params = setting.likelihood, setting.params
    if likelihood.learned:
        params["log_tau"][0, 0] = MAX_LOG_TAU + 1  # clamped, so without gradient
    outputs = setting.outputs[0]
    gradient = torch.linspace(-1, 2, MEMBERS * ROWS, dtype=torch.float64)
    gradient = gradient.view(MEMBERS, ROWS)

    leaf, learned = outputs.clone().requires_grad_(), setting.leaves()
    nll = likelihood.nll(params | learned, leaf, setting.y)
    expected = torch.autograd.grad(nll, [leaf, *learned.values()], gradient)

    with torch.no_grad():
        result, pullback = likelihood.nll_vjp(params, outputs, setting.y)
        grad_outputs, grad_learned = pullback(gradient)
    assert not result.requires_grad
    torch.testing.assert_close(result, nll)
    torch.testing.assert_close(grad_outputs, expected[0])
    assert grad_learned.keys() == learned.keys()
    for value, wanted in zip(grad_learned.values(), expected[1:], strict=True):
        torch.testing.assert_close(value, wanted)


@parametrize_cases
def test_gradients_equal_finite_differences(setting):
    learned = setting.leaves()

    def nll(outputs, *values):
        params = setting.params | dict(zip(learned, values, strict=True))
        return setting.likelihood.nll(params, outputs, setting.y)

    outputs = setting.outputs[0].clone().requires_grad_()
    assert torch.autograd.gradcheck(nll, [outputs, *learned.values()])


@parametrize_cases
def test_learned_parameters_and_outputs_have_gradients(setting):
    outputs, learned = setting.outputs[0].clone().requires_grad_(), setting.leaves()
    nll = setting.likelihood.nll(setting.params | learned, outputs, setting.y)
    for gradient in torch.autograd.grad(nll.sum(), [outputs, *learned.values()]):
        assert gradient.isfinite().all()
        assert gradient.all()


@parametrize_cases
def test_members_are_independent(case, seed):
    """Invalid values of the last member leave the others bit-equal."""
    results = []
    for broken in (False, True):
        setting = Setting(case, seed)
        likelihood = setting.likelihood
        if broken:
            setting.outputs[:, -1] = float("nan")
            for value in setting.params.values():
                value[-1] = float("nan")
        arguments = setting.params, setting.outputs[0], setting.y
        nll, pullback = likelihood.nll_vjp(*arguments)
        grad_outputs, grad_learned = pullback(torch.ones_like(nll))
        parts = likelihood.components(setting.params, setting.outputs)
        results.append(
            [
                nll,
                grad_outputs,
                *grad_learned.values(),
                likelihood.log_density(*arguments),
            ]
            + [part.transpose(0, 1) for part in parts]
        )
    for before, after in zip(*results, strict=True):
        assert torch.equal(before[:-1], after[:-1])


@parametrize_cases
def test_batched_members_equal_separate_ones(setting):
    """The first member alone has the nll that it has among the others."""
    likelihood, first = setting.likelihood, slice(0, 1)
    params = {name: value[first] for name, value in setting.params.items()}
    alone = likelihood.nll(params, setting.outputs[:, first], setting.y[first])
    together = likelihood.nll(setting.params, setting.outputs, setting.y)
    torch.testing.assert_close(alone, together[:, first])


# ---- classes


@parametrize_classification_cases
def test_labels_have_probabilities(setting):
    components = setting.components()
    assert isinstance(components, Labels)
    probability = components.probability
    assert probability.shape == (DRAWS * MEMBERS, ROWS, CLASSES)
    assert (probability >= 0).all()
    np.testing.assert_allclose(probability.sum(-1), 1, rtol=1e-12)
    for label in range(CLASSES):
        y = torch.full((1, ROWS), label)
        density = setting.likelihood.log_density(setting.params, setting.outputs, y)
        np.testing.assert_allclose(
            density.flatten(0, 1),
            np.log(probability[..., label]),
            rtol=1e-9,
            atol=1e-12,
        )


# ---- regression


def _single_distribution(components, draw, row, target, times):
    """One of the distributions, repeated as rows of one draw and one target."""

    def chosen(values):
        return np.repeat(values[draw, row, target][None, None, None], times, axis=1)

    return type(components)(*map(chosen, _arrays(components)))


def _arrays(components):
    """The fields, without ``own_share``, which the draws of a likelihood lack."""
    values = [getattr(components, f.name) for f in fields(components)]
    return [value for value in values if value is not None]


# Draw, row and target of some distributions of a setting.
PICKS = [(0, 0, 0), (4, 1, 1), (9, 4, 0)]


def _quadrature(components, pick):
    """Values of y (nodes, 1), and weights (nodes,) of an integral or sum over y.

    Integrals use the trapezoidal rule in u, y = mean + std sinh(u). Its range suffices
    for the second moment of a heavy tail; it is spectrally exact for smooth densities.
    """
    mean, std = components.mean[pick], np.sqrt(components.variance[pick])
    if components.discrete:
        last = int(mean + 20 * std + 40)
        return np.arange(-2.0, last)[:, None], np.ones(last + 2)
    u = np.linspace(-40, 40, 16_001)
    step = u[1] - u[0]
    return (mean + std * np.sinh(u))[:, None], step * std * np.cosh(u)


@parametrize_regression_cases
def test_components_of_every_draw(setting):
    components = setting.components()
    assert isinstance(components, Components)
    shape = (DRAWS * MEMBERS, ROWS, TARGETS)
    assert components.mean.shape == components.variance.shape == shape
    assert (components.n_draws, components.n_rows, components.n_targets) == shape
    assert (components.variance > 0).all()
    part = components.targets(slice(1, 2)).draws([3, 1])
    np.testing.assert_array_equal(part.mean, components.mean[[3, 1], :, 1:])


@parametrize_regression_cases
def test_components_and_likelihood_have_the_same_density(setting):
    """On the network's scale, joint over targets, for shared rows."""
    y = setting.values[:1]
    density = setting.likelihood.log_density(
        setting.params, setting.outputs, setting.exact(y)
    )
    components, y = setting.components(), y[0].numpy()
    if getattr(setting.likelihood, "has_point", False):
        components = recorded(components, [TargetSpace(point=0.0)] * TARGETS)
    np.testing.assert_allclose(
        components.log_density(y), density.flatten(0, 1), rtol=1e-9, atol=1e-10
    )
    per_target = components.log_density_per_target(y)
    assert per_target.shape == components.mean.shape
    np.testing.assert_allclose(per_target.sum(-1), components.log_density(y), rtol=1e-9)
    mixture = np.log(np.exp(density.flatten(0, 1).numpy()).mean(0))
    np.testing.assert_allclose(components.mixture_log_density(y), mixture, rtol=1e-9)


@parametrize_regression_cases
def test_density_integrates_to_one_and_the_moments(setting):
    with Checks() as check:
        for pick in PICKS:
            with check(pick):
                _assert_moments(setting.components(), pick)


def _assert_moments(components, pick):
    y, weights = _quadrature(components, pick)
    if not components.discrete:
        # Simpson's rule, which is exact enough if a density has a kink at a node.
        weights = weights * np.where(np.arange(len(y)) % 2, 4 / 3, 2 / 3)
    distribution = _single_distribution(components, *pick, len(y))
    mass = weights * np.exp(distribution.log_density_per_target(y))[0, :, 0]
    mean, variance = components.mean[pick], components.variance[pick]
    assert mass.sum() == pytest.approx(1, rel=1e-9)
    assert mass @ y[:, 0] == pytest.approx(mean, rel=1e-7, abs=1e-8)
    assert mass @ np.square(y[:, 0] - mean) == pytest.approx(variance, rel=1e-6)


@parametrize_regression_cases
def test_cdf_is_the_integral_of_the_density(setting):
    with Checks() as check:
        for pick in PICKS:
            with check(pick):
                _assert_cdf(setting.components(), pick)


def _assert_cdf(components, pick):
    y, weights = _quadrature(components, pick)
    distribution = _single_distribution(components, *pick, len(y))
    mass = weights * np.exp(distribution.log_density_per_target(y))[0, :, 0]
    # Up to an inner node the trapezoidal rule counts this node by half.
    below = mass.cumsum() - (0 if components.discrete else 0.5 * mass)
    # Its error at this bound is step^2 / 12 times the slope (Euler-Maclaurin), here a
    # twelfth of the difference of two neighbours, and terms of order step^4. A kink at
    # the mean, where the slope changes its sign, adds twice as much.
    error = 1e-9 if components.discrete else abs(np.diff(mass)).max() * 3 / 11
    np.testing.assert_allclose(distribution.cdf(y)[0, :, 0], below, rtol=0, atol=error)
    if components.discrete:
        np.testing.assert_array_equal(distribution.cdf(y + 0.5), distribution.cdf(y))


@parametrize_regression_cases
def test_quantile_inverts_the_cdf(setting):
    """For one draw, and for the mixture of all draws."""
    with Checks() as check:
        for level in LEVELS:
            with check(level):
                _assert_quantile(setting.components(), level)


def _assert_quantile(components, level):
    levels = np.full((ROWS, TARGETS), level)
    one_draw = components.draws(slice(0, 1))
    for quantile, cdf in (
        (one_draw.quantile(levels)[0], lambda y: one_draw.cdf(y)[0]),
        (components.mixture_quantile(level), components.mixture_cdf),
        (components.mixture_quantile(levels), components.mixture_cdf),
    ):
        assert quantile.shape == (ROWS, TARGETS)
        if components.discrete:
            np.testing.assert_array_equal(quantile, np.round(quantile))
            assert (cdf(quantile) >= level).all()
            assert (cdf(quantile - 1) < level).all()
        else:
            np.testing.assert_allclose(cdf(quantile), level, rtol=1e-6)


@parametrize_regression_cases
def test_samples_have_the_mean(setting, seed):
    times = 10_000
    components = setting.components()
    samples = components.repeated(times).sample(np.random.default_rng(seed))
    samples = samples.reshape(-1, times, ROWS, TARGETS)
    error = np.sqrt(components.variance / times)
    assert (np.abs(samples.mean(1) - components.mean) < 5 * error).all()
    if components.discrete:
        np.testing.assert_array_equal(samples, np.round(samples))


@parametrize_regression_cases
def test_crps_equals_its_defining_integral(setting):
    """Integral of (F(z) - 1[y <= z])^2 on both sides of y, on a log scale."""
    components, y = setting.components(), setting.values[0].numpy()
    std = np.sqrt(components.variance.mean(0) + components.mean.var(0))
    expected = np.zeros_like(y)
    if components.discrete:
        for k in itertools.count():
            share = components.mixture_cdf(np.full(y.shape, float(k)))
            expected += np.square(share - (y <= k))
            if (share > 1 - 1e-12).all() and (y <= k).all():
                break
    else:
        u = np.arange(-35, 35, 0.05)
        for distance in np.exp(u):
            below = components.mixture_cdf(y - std * distance)
            above = 1 - components.mixture_cdf(y + std * distance)
            expected += 0.05 * std * distance * (below**2 + above**2)
    # Without a closed form the CRPS uses 200 quantiles, which are that accurate.
    result = components.mixture_crps(y)
    np.testing.assert_allclose(result / std, expected / std, rtol=0, atol=1e-3)


@parametrize_regression_cases
def test_rescaled_and_spread(setting):
    components = setting.components()
    shift, factor = np.array([3.0, -20.0]), np.array([0.2, 7.0])
    if components.discrete:
        with pytest.raises(TypeError, match="ConformalRegressor"):
            components.rescaled(shift, factor)
        with pytest.raises(TypeError, match="ConformalRegressor"):
            components.scaled_about(shift, factor)
        return
    y = setting.values[0].numpy()
    before = components.log_density_per_target(y) - np.log(factor)
    levels = np.full((ROWS, TARGETS), 0.3)
    for moved, y_moved, centre in (
        (components.rescaled(shift, factor), shift + factor * y, shift),
        (
            components.scaled_about(shift, factor),
            shift + factor * (y - shift),
            (1 - factor) * shift,
        ),
    ):
        np.testing.assert_allclose(
            moved.log_density_per_target(y_moved), before, rtol=1e-8, atol=1e-8
        )
        np.testing.assert_allclose(moved.mean, centre + factor * components.mean)
        np.testing.assert_allclose(moved.variance, factor**2 * components.variance)
        np.testing.assert_allclose(moved.cdf(y_moved), components.cdf(y), rtol=1e-8)
        np.testing.assert_allclose(
            moved.quantile(levels), centre + factor * components.quantile(levels)
        )
