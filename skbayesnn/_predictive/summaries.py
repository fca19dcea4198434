"""Draws -> summaries (design equations 5 to 8). Pure NumPy, float64.

Arrays have the draws axis in front, as the posterior streams them: means and noise
variances ``(draws, rows, targets)``, or class probabilities ``(draws, rows, classes)``.
The mixture has equal weights.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp, xlogy

from skbayesnn._distributions.labels import labels_at

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
    if not isinstance(kind, str | Sequence | np.ndarray):
        raise TypeError(
            f"`kind` must be a name, a list of names or 'all'; got {kind!r}. There are "
            f"{', '.join(map(repr, kinds))}."
        )
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


def framed(values, kind, X):
    """What ``chosen`` gives, as a DataFrame with a column per kind.

    values : ndarray (rows[, targets]), or dict of them; kind : as asked for
    X : the input, whose index (if it has one) becomes the frame's

    Several targets get a column each, ``"total_0"``, ``"total_1"``, ...
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            "`as_frame=True` needs pandas, which is not installed: pip install pandas"
        ) from error
    if not isinstance(values, dict):
        values = {kind: values}
    columns = {}
    for name, value in values.items():
        if value.ndim == 1:
            columns[name] = value
        else:
            columns |= {f"{name}_{j}": value[:, j] for j in range(value.shape[1])}
    index = X.index if isinstance(X, pandas.DataFrame | pandas.Series) else None
    return pandas.DataFrame(columns, index=index)


def checked_coverages(coverage) -> list[float]:
    """One coverage or a sequence of them as a list; each in (0, 1)."""
    values = [coverage] if np.ndim(coverage) == 0 else list(coverage)
    if not values:
        raise ValueError(
            "`coverage` must be a number in (0, 1), or a list of some; got none."
        )
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise TypeError(
                "`coverage` must be a number in (0, 1), or a list of them; got "
                f"{value!r}."
            )
        if not 0 < value < 1:
            raise ValueError(f"`coverage` must be in (0, 1); got {value!r}.")
    return [float(value) for value in values]


class Moments:
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
    n_draws, n_rows, n_classes = probability.shape
    labels = labels_at(
        probability, np.broadcast_to(uniform[:, None], (n_draws, n_rows))
    )
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
