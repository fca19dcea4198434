"""Priors of the weights and biases of one affine map, and the table of their names.

Each prior has the parts ``weight`` and ``bias``. A normal part has the closed forms
``energy`` and ``spread``; all parts have ``log_density``. The fields of a prior are
tensors with the members axis first, and may differ between members.

Under the log-uniform prior p(log |w|) = const [KSW15], the KL of N(theta,
alpha theta^2) depends on alpha only and has no closed form:

    KL(alpha) = -1/2 log alpha + E log |1 + sqrt(alpha) e| + C,  e standard normal,

with C = (log 2 + gamma) / 2, gamma Euler's constant, so that it tends to 0 as alpha
tends to infinity. Two approximations are implemented.

Anchored ensembles draw an anchor per member from N(0, 1 / l^2) [PLB20]. The anchor
replaces zero as the centre of the member's prior. In a linear model the members are
then draws from the posterior.

The discrete prior has the probabilities exp(-l^2 w^2 / 2) / Z on the multiples w of a
step [Gal16 3.2.3, example 2]. The KL of masked point masses on these values is finite
and exact: eq. 4 plus constants. The KL of a distribution with a density is infinite.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch

# ---- normal priors, and a posterior used as a prior


@dataclass(frozen=True)
class Normal:
    """N(centre, 1 / precision) on every element of an array, members first.

    Parameters
    ----------
    centre, precision : tensor
        (members, ...), with the array's shape or axes of length 1. Precision 0 is the
        flat (improper) density; its infinite normalising constant is omitted.
    """

    centre: torch.Tensor
    precision: torch.Tensor

    def energy(
        self, mean: torch.Tensor, variance: torch.Tensor | None = None
    ) -> torch.Tensor:
        """E_q[-log p] up to a constant: the sum of precision / 2 E (w - centre)^2.

        mean, variance : E_q w and Var_q w of any q, (members, ...); variance None is a
            point mass
        returns : (members,), nats
        """
        squares = (mean - self.centre).square()
        if variance is not None:
            squares = squares + variance
        return _sum_per_member(0.5 * self.precision * squares)

    def kl_of_width(self, variance: torch.Tensor) -> torch.Tensor:
        """KL(N(centre, variance) || p): 1/2 sum(r - log r - 1), r = variance precision.

        The sum of this and ``energy`` of the mean is the KL of a normal distribution.

        returns : (members,), nats
        """
        ratio = variance * self.precision
        return _sum_per_member(
            0.5 * (ratio - variance.log() - _log(self.precision) - 1)
        )

    def log_scale(self, like: torch.Tensor) -> torch.Tensor:
        """1/2 sum(log precision) over an array of the shape of ``like``, (members,)."""
        return _sum_per_member(0.5 * _log(self.precision).expand_as(like))

    def score(self, values: torch.Tensor) -> torch.Tensor:
        """d log p / d values, in their shape."""
        return self.precision * (self.centre - values)

    def log_density(self, values: torch.Tensor) -> torch.Tensor:
        """log p of values (..., members, *array), nats, (..., members)."""
        squares = self.precision * (values - self.centre).square()
        terms = 0.5 * (_log(self.precision) - math.log(2 * math.pi) - squares)
        return terms.flatten(1 - self.centre.ndim).sum(-1)


@dataclass(frozen=True)
class GaussianPrior:
    """Independent N(0, 1 / l^2) on every weight and bias, l the prior length scale.

    Parameters
    ----------
    length_scale : tensor of shape (members,)
        l, in the units of the standardised inputs; 0 is the flat (improper) prior.
    """

    length_scale: torch.Tensor

    @cached_property
    def weight(self) -> Normal:
        """The prior of weights (members, inputs, outputs)."""
        return _isotropic(self.length_scale, 2)

    @cached_property
    def bias(self) -> Normal:
        """The prior of biases (members, outputs)."""
        return _isotropic(self.length_scale, 1)


@dataclass(frozen=True)
class PosteriorPrior:
    """A mean-field posterior as the prior for later data.

    Parameters
    ----------
    mean, std : tensor of shape (members, inputs, outputs)
    bias_mean, bias_std : tensor of shape (members, outputs)
    """

    mean: torch.Tensor
    std: torch.Tensor
    bias_mean: torch.Tensor
    bias_std: torch.Tensor

    @cached_property
    def weight(self) -> Normal:
        """The prior of weights (members, inputs, outputs)."""
        return Normal(self.mean, self.std.square().reciprocal())

    @cached_property
    def bias(self) -> Normal:
        """The prior of biases (members, outputs)."""
        return Normal(self.bias_mean, self.bias_std.square().reciprocal())


def _isotropic(length_scale: torch.Tensor, n_axes: int) -> Normal:
    precision = length_scale.square().view(-1, *(1,) * n_axes)
    return Normal(torch.zeros_like(precision), precision)


def _sum_per_member(terms: torch.Tensor) -> torch.Tensor:
    """Sum over all axes but the members axis."""
    return terms.flatten(1).sum(1)


def _log(precision: torch.Tensor) -> torch.Tensor:
    """log precision, and 0 where the precision is 0."""
    return torch.where(precision > 0, precision, torch.ones_like(precision)).log()


# ---- discrete prior [Gal16 3.2.3]

# Values on either side of zero: a value's number has 16 bits.
N_POSITIVE = (1 << 15) - 1


@dataclass(frozen=True)
class Quantised(Normal):
    """exp(-precision w^2 / 2) / Z on the multiples w of a step, up to 2^15 - 1 steps.

    With precision 0 it is uniform, and proper.

    Parameters
    ----------
    step : tensor
        > 0, in the shape of the precision.
    """

    step: torch.Tensor

    def nearest(self, values: torch.Tensor) -> torch.Tensor:
        """The nearest values that have a probability."""
        numbers = (values / self.step).round_().clamp_(-N_POSITIVE, N_POSITIVE)
        return numbers.mul_(self.step)

    def log_scale(self, like: torch.Tensor) -> torch.Tensor:
        """The sum of -log Z over an array of the shape of ``like``, (members,)."""
        unit = (self.precision.double().sqrt() * self.step.double()).flatten()
        different, inverse = torch.unique(unit, return_inverse=True)
        numbers = torch.arange(1, N_POSITIVE + 1).to(unit)
        positive = [
            (-0.5 * (value * numbers).square()).exp().sum() for value in different
        ]
        log_z = (2 * torch.stack(positive)).log1p()[inverse]
        return _sum_per_member(-log_z.to(like).view_as(self.precision).expand_as(like))

    def log_density(self, values: torch.Tensor) -> torch.Tensor:
        """Log probability of values (..., members, *array), nats, (..., members)."""
        one = torch.zeros_like(self.precision)
        log_one = self.log_scale(one).view_as(one)
        terms = log_one - 0.5 * self.precision * values.square()
        terms = torch.where(values == self.nearest(values), terms, -torch.inf)
        return terms.flatten(1 - self.centre.ndim).sum(-1)

    def kl_of_width(self, variance: torch.Tensor) -> torch.Tensor:
        """Infinite: a normal distribution has no mass on single values."""
        return torch.full_like(variance.flatten(1).sum(1), torch.inf)


@dataclass(frozen=True)
class DiscretePrior:
    """exp(-l^2 w^2 / 2) / Z on the multiples of a step, for every weight and bias.

    Parameters
    ----------
    length_scale : tensor of shape (members,)
        l; 0 is the uniform distribution.
    step : tensor of shape (members,)
    """

    length_scale: torch.Tensor
    step: torch.Tensor

    @cached_property
    def weight(self) -> Quantised:
        """The prior of weights (members, inputs, outputs)."""
        return self._quantised(2)

    @cached_property
    def bias(self) -> Quantised:
        """The prior of biases (members, outputs)."""
        return self._quantised(1)

    def _quantised(self, n_axes: int) -> Quantised:
        normal = _isotropic(self.length_scale, n_axes)
        step = self.step.view_as(normal.precision)
        return Quantised(normal.centre, normal.precision, step)


# ---- scale mixture [BBB15 eq. 7]: a narrow and a wide normal distribution


@dataclass(frozen=True)
class ScaleMixture:
    """pi N(0, s1^2 / l^2) + (1 - pi) N(0, s2^2 / l^2) on every element of an array.

    All parameters are (members, 1, ...), with as many axes as the array. The KL of a
    normal posterior has no closed form.
    """

    pi: torch.Tensor
    std_1: torch.Tensor
    std_2: torch.Tensor

    def score(self, values: torch.Tensor) -> torch.Tensor:
        """d log p / d values, in their shape."""
        precision_1, precision_2 = self.std_1**-2, self.std_2**-2
        odds = (self.pi * self.std_2).log() - ((1 - self.pi) * self.std_1).log()
        squares = values.square()
        odds = torch.addcmul(odds, squares, 0.5 * (precision_2 - precision_1))
        # Compute both shares separately: 1 - share, times (s1 / s2)^2, loses digits.
        precision = precision_2 * odds.neg().sigmoid_()
        precision.addcmul_(precision_1, odds.sigmoid_())
        return precision.mul_(values).neg_()

    def log_density(self, values: torch.Tensor) -> torch.Tensor:
        """log p of values (..., members, *array), nats, (..., members)."""
        terms = torch.logaddexp(
            self.pi.log() + _log_normal(values, self.std_1),
            (-self.pi).log1p() + _log_normal(values, self.std_2),
        )
        return terms.flatten(1 - self.pi.ndim).sum(-1)


@dataclass(frozen=True)
class ScaleMixturePrior:
    """A scale mixture on weights; biases have the Gaussian prior N(0, 1 / l^2).

    Parameters
    ----------
    length_scale : tensor of shape (members,)
        l scales the whole prior; [BBB15] uses l = 1.
    pi : tensor of shape (members,)
        Weight of the first component, in (0, 1).
    s1, s2 : tensor of shape (members,)
        Standard deviations of the components for l = 1.
    """

    length_scale: torch.Tensor
    pi: torch.Tensor
    s1: torch.Tensor
    s2: torch.Tensor

    @cached_property
    def weight(self) -> ScaleMixture:
        """The prior of weights (members, inputs, outputs)."""
        return ScaleMixture(
            *(
                value.view(-1, 1, 1)
                for value in (
                    self.pi,
                    self.s1 / self.length_scale,
                    self.s2 / self.length_scale,
                )
            )
        )

    @cached_property
    def bias(self) -> Normal:
        """The prior of biases (members, outputs)."""
        return GaussianPrior(self.length_scale).bias


def _log_normal(values: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """log N(values; 0, std^2), elementwise."""
    squares = (values / std).square()
    return -0.5 * (squares + math.log(2 * math.pi)) - std.log()


# ---- log-uniform prior [KSW15]

# C: E log |e| = -(log 2 + gamma) / 2 for a standard normal e.
EULER_GAMMA = 0.5772156649015329
CONSTANT = 0.5 * (math.log(2) + EULER_GAMMA)


@dataclass(frozen=True)
class LogUniformPrior:
    """Log-uniform prior of weights; biases have the Gaussian prior N(0, 1 / l^2).

    Parameters
    ----------
    length_scale : tensor of shape (members,)
        l of the biases.
    """

    length_scale: torch.Tensor

    @cached_property
    def weight(self) -> Normal:
        """A flat prior, for weights (members, inputs, outputs) that are point masses.

        For weights with noise, use one of the functions below.
        """
        return GaussianPrior(torch.zeros_like(self.length_scale)).weight

    @cached_property
    def bias(self) -> Normal:
        """The prior of biases (members, outputs)."""
        return GaussianPrior(self.length_scale).bias


# Coefficients of both approximations.
KINGMA_COEFFICIENTS = 1.16145124, -1.50204118, 0.58629921
MOLCHANOV_COEFFICIENTS = 0.63576, 1.87320, 1.48695


def kingma(log_alpha: torch.Tensor) -> torch.Tensor:
    """KL for alpha <= 1, elementwise [KSW15 eq. 14]; nats."""
    alpha, (a, b, c) = log_alpha.exp(), KINGMA_COEFFICIENTS
    polynomial = alpha * (a + alpha * (b + alpha * c))
    return CONSTANT - 0.5 * log_alpha - polynomial


def kingma_slope(log_alpha: torch.Tensor) -> torch.Tensor:
    """d kingma / d log alpha."""
    alpha, (a, b, c) = log_alpha.exp(), KINGMA_COEFFICIENTS
    slope = a + alpha * (2 * b + alpha * 3 * c)
    return -0.5 - alpha * slope


def molchanov(log_alpha: torch.Tensor) -> torch.Tensor:
    """KL for all alpha, elementwise [MAV17 eq. 14]; nats."""
    a, b, c = MOLCHANOV_COEFFICIENTS
    rise = a * torch.sigmoid(-(b + c * log_alpha))
    return rise + 0.5 * torch.nn.functional.softplus(-log_alpha)


def molchanov_slope(log_alpha: torch.Tensor) -> torch.Tensor:
    """d molchanov / d log alpha."""
    a, b, c = MOLCHANOV_COEFFICIENTS
    share = torch.sigmoid(b + c * log_alpha)
    rise = -a * c * share * (1 - share)
    return rise - 0.5 * torch.sigmoid(-log_alpha)


# ---- anchors [PLB20]


@dataclass(frozen=True)
class AnchoredPrior:
    """N(a, 1 / l^2) on every weight and bias, with anchor a drawn from N(0, 1 / l^2).

    Parameters
    ----------
    length_scale : tensor of shape (members,)
        l of the weights, > 0.
    bias_length_scale : tensor of shape (members,)
        l of the biases, > 0.
    normal : tensor of shape (members, inputs, outputs)
        Standard normal numbers; divided by l, the anchors of the weights.
    bias_normal : tensor of shape (members, outputs)
        The same for the biases.
    """

    length_scale: torch.Tensor
    bias_length_scale: torch.Tensor
    normal: torch.Tensor
    bias_normal: torch.Tensor

    @cached_property
    def weight(self) -> Normal:
        """The prior of weights (members, inputs, outputs)."""
        return _anchored(self.normal, self.length_scale)

    @cached_property
    def bias(self) -> Normal:
        """The prior of biases (members, outputs)."""
        return _anchored(self.bias_normal, self.bias_length_scale)


def _anchored(normal: torch.Tensor, length_scale: torch.Tensor) -> Normal:
    length_scale = length_scale.view(-1, *(1,) * (normal.ndim - 1))
    return Normal(normal / length_scale, length_scale.square())


# ---- table of priors

Prior = (
    GaussianPrior
    | PosteriorPrior
    | DiscretePrior
    | ScaleMixturePrior
    | LogUniformPrior
    | AnchoredPrior
)

PRIORS: dict[str, type] = {
    "gaussian": GaussianPrior,
    "discrete": DiscretePrior,
    "scale_mixture": ScaleMixturePrior,
    "log_uniform": LogUniformPrior,
    "previous": PosteriorPrior,
    "anchored": AnchoredPrior,
}

__all__ = [
    "PRIORS",
    "AnchoredPrior",
    "DiscretePrior",
    "GaussianPrior",
    "LogUniformPrior",
    "PosteriorPrior",
    "Prior",
    "ScaleMixturePrior",
]
