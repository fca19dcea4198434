"""Draws -> summaries (design equations 5 to 8). Pure NumPy, float64.

Components are arrays with the draws axis in front, as the posterior streams them:
means and noise variances ``(draws, rows, targets)`` of a Gaussian mixture, or class
probabilities ``(draws, rows, classes)``. The mixture has equal weights.
"""

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri, xlogy

HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)

REGRESSION_KINDS = ("total", "epistemic", "aleatoric")
CLASSIFICATION_KINDS = (
    "entropy",
    "mutual_information",
    "variation_ratio",
    "expected_entropy",
    "overlap",
)
OVERLAP_BINS = 20


def chosen(kind, kinds: tuple[str, ...], compute):
    """What ``compute`` says of one kind, or a dict of several.

    kind : one of ``kinds``, a list of them, or "all"
    compute : callable, list of kinds -> dict with (at least) these

    Raises
    ------
    ValueError
        For a kind that is not among ``kinds``.
    """
    wanted = [kind] if isinstance(kind, str) and kind != "all" else kind
    wanted = list(kinds) if isinstance(kind, str) and kind == "all" else list(wanted)
    unknown = [name for name in wanted if name not in kinds]
    if unknown:
        raise ValueError(
            f"`kind` must be 'all' or among {', '.join(map(repr, kinds))}; got "
            f"{', '.join(map(repr, unknown))}."
        )
    values = compute(wanted)
    if isinstance(kind, str) and kind != "all":
        return values[kind]
    return {name: values[name] for name in wanted}


def interval_levels(coverage) -> tuple[float, float]:
    """Quantile levels of the central interval of a coverage in (0, 1)."""
    if isinstance(coverage, bool) or not isinstance(coverage, int | float | np.number):
        raise TypeError(f"`coverage` must be a number in (0, 1); got {coverage!r}.")
    if not 0 < coverage < 1:
        raise ValueError(f"`coverage` must be in (0, 1); got {coverage!r}.")
    return (1 - coverage) / 2, (1 + coverage) / 2


class GaussianMoments:
    """Streaming eq. 5 and 6 over chunks of draws.

    Sums are taken about the first draw, so that a small spread on a large mean is
    not lost to rounding.
    """

    def __init__(self):
        self.n_draws = 0

    def add(self, mean: np.ndarray, variance: np.ndarray) -> None:
        """mean, variance : (draws, rows, targets)."""
        if self.n_draws == 0:
            self._origin = mean[0].astype(np.float64)
            self._sum = np.zeros_like(self._origin)
            self._squares = np.zeros_like(self._origin)
            self._noise = np.zeros_like(self._origin)
        shifted = mean - self._origin
        self._sum += shifted.sum(0)
        self._squares += np.square(shifted).sum(0)
        self._noise += variance.sum(0, dtype=np.float64)
        self.n_draws += len(mean)

    @property
    def mean(self) -> np.ndarray:
        """E y, eq. 5; (rows, targets)."""
        return self._origin + self._sum / self.n_draws

    @property
    def epistemic(self) -> np.ndarray:
        """Variance of the draws' means, eq. 6; (rows, targets)."""
        centre = self._sum / self.n_draws
        return np.maximum(self._squares / self.n_draws - np.square(centre), 0.0)

    @property
    def aleatoric(self) -> np.ndarray:
        """Mean of the draws' noise variances, eq. 6; (rows, targets)."""
        return self._noise / self.n_draws


class MeanProbability:
    """Streaming mean of class probabilities over draws."""

    def __init__(self):
        self.n_draws = 0
        self._sum: np.ndarray | float = 0.0

    def add(self, probability: np.ndarray) -> None:
        """probability : (draws, rows, classes)."""
        self._sum = self._sum + probability.sum(0, dtype=np.float64)
        self.n_draws += len(probability)

    @property
    def mean(self) -> np.ndarray:
        """(rows, classes); rows sum to one."""
        return self._sum / np.sum(self._sum, axis=-1, keepdims=True)


class LogDensity:
    """Streaming eq. 8: log of the mean of the draws' densities."""

    def __init__(self):
        self.n_draws = 0
        self._log_sum = -np.inf

    def add(self, log_density: np.ndarray) -> None:
        """log_density : (draws, rows)."""
        self._log_sum = np.logaddexp(self._log_sum, logsumexp(log_density, axis=0))
        self.n_draws += len(log_density)

    @property
    def value(self) -> np.ndarray:
        """(rows,), nats."""
        return self._log_sum - np.log(self.n_draws)


def gaussian_log_density(mean, variance, y):
    """log N(y; mean, variance) summed over targets: (draws, rows), nats.

    mean, variance : (draws, rows, targets); y : (rows, targets)
    """
    squares = np.square(y - mean.astype(np.float64)) / variance
    return -(0.5 * (squares + np.log(variance)) + HALF_LOG_2PI).sum(-1)


def mixture_quantile(mean, variance, level: float) -> np.ndarray:
    """Quantile of the equal-weight Gaussian mixture, (rows, targets).

    Bisection on the distribution function, between the smallest and the largest of
    the components' own quantiles, which enclose the mixture's. Newton steps are
    taken where they stay inside the bracket.

    mean, variance : (draws, rows, targets); level in (0, 1)
    """
    mean = mean.astype(np.float64)
    std = np.sqrt(variance.astype(np.float64))
    ends = mean + std * ndtri(level)
    low, high = ends.min(0), ends.max(0)
    point = ends.mean(0)
    for _ in range(100):
        z = (point - mean) / std
        excess = ndtr(z).mean(0) - level
        low = np.where(excess < 0, point, low)
        high = np.where(excess < 0, high, point)
        density = (np.exp(-0.5 * np.square(z)) / std).mean(0) / np.sqrt(2 * np.pi)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = point - excess / density
        inside = (low < newton) & (newton < high)
        following = np.where(inside, newton, 0.5 * (low + high))
        moved = np.abs(following - point)
        point = following
        if (moved <= 1e-12 * std.min(0) + 1e-15 * np.abs(point)).all():
            break
    return point


def entropy(probability: np.ndarray) -> np.ndarray:
    """-sum p log p over the last axis, nats."""
    return -xlogy(probability, probability).sum(-1)


def classification_uncertainty(
    probability: np.ndarray, kind: str, uniform: np.ndarray
) -> np.ndarray:
    """One of eq. 7's measures; (rows,).

    probability : (draws, rows, classes)
    uniform : (draws,), in [0, 1): samples one label per draw for the variation ratio
    """
    mean = probability.mean(0, dtype=np.float64)
    mean /= mean.sum(-1, keepdims=True)
    if kind == "entropy":
        return entropy(mean)
    if kind == "expected_entropy":
        return entropy(probability.astype(np.float64)).mean(0)
    if kind == "mutual_information":
        expected = entropy(probability.astype(np.float64)).mean(0)
        return np.maximum(entropy(mean) - expected, 0.0)
    if kind == "variation_ratio":
        return variation_ratio(probability, uniform)
    return overlap(probability)


def variation_ratio(probability: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """1 - share of the modal label among labels sampled one per draw [Gal16 3.3.1]."""
    cumulative = probability.cumsum(-1)
    cumulative /= cumulative[..., -1:]
    labels = (cumulative <= uniform[:, None, None]).sum(-1)
    n_draws, _, n_classes = probability.shape
    counts = np.stack([(labels == c).sum(0) for c in range(n_classes)])
    return 1 - counts.max(0) / n_draws


def overlap(probability: np.ndarray) -> np.ndarray:
    """Overlap of the draws' softmax values of the two likeliest classes, in [0, 1].

    Bhattacharyya coefficient sum_bins sqrt(u v) of the two histograms over [0, 1].
    """
    n_draws, n_rows, _ = probability.shape
    top = np.argsort(probability.mean(0), axis=-1)[:, -2:]
    values = np.take_along_axis(probability, top[None], axis=-1)
    bins = np.minimum((values * OVERLAP_BINS).astype(int), OVERLAP_BINS - 1)
    shares = np.zeros((2, n_rows, OVERLAP_BINS))
    rows = np.arange(n_rows)
    for draw in bins:
        shares[0, rows, draw[:, 0]] += 1 / n_draws
        shares[1, rows, draw[:, 1]] += 1 / n_draws
    return np.sqrt(shares[0] * shares[1]).sum(-1)
