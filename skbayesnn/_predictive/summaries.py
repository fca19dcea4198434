"""Summaries of posterior draws, in NumPy and float64.

The first axis of all arrays is the draws, which arrive in chunks: means m and noise
variances v ``(draws, rows, targets)``, or class probabilities p ``(draws, rows,
classes)``. All draws have equal weight. With mean, var over draws, and H the entropy::

    E y = mean m                                                (eq. 5)
    total variance = var m (epistemic) + mean v (aleatoric)     (eq. 6)
    H(mean p) = mutual information + mean H(p)                  (eq. 7)
    log density of y = log mean p(y | draw)                     (eq. 8)
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy.special import logsumexp

from skbayesnn._distributions.components import labels_at
from skbayesnn._runtime import required

REGRESSION_KINDS = ("total", "epistemic", "aleatoric")
CLASSIFICATION_KINDS = (
    "entropy",
    "mutual_information",
    "variation_ratio",
    "expected_entropy",
    "overlap",
)
OVERLAP_BINS = 20


def select_kinds(kind, kinds: tuple[str, ...], compute):
    """Compute one kind of summary, or a dict of several kinds.

    kind : one of ``kinds``, a list of them, or "all"
    compute : callable, takes a list of kinds, returns a dict with (at least) these

    Raises
    ------
    ValueError
        If a kind is not among ``kinds``.
    """
    if not isinstance(kind, str | Sequence | np.ndarray):
        raise TypeError(
            f"`kind` must be a name, a list of names or 'all'; got {kind!r}. The names "
            f"are {', '.join(map(repr, kinds))}."
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


def to_frame(values, kind, X):
    """Convert the result of ``select_kinds`` to a DataFrame with one column per kind.

    values : ndarray (rows[, targets]), or dict of them; kind : as in ``select_kinds``
    X : input whose index, if any, becomes the index of the frame

    Each of several targets has its own column, ``"total_0"``, ``"total_1"``, ...
    """
    pandas = required("pandas", "`as_frame=True` needs", "pip install pandas")
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


class Moments:
    """Mean and variances (eq. 5 and 6), accumulated over chunks of draws.

    Sums are relative to the first draw, so that rounding does not destroy a small
    spread around a large mean.
    """

    def __init__(self):
        self.n_draws = 0

    def add(self, mean: np.ndarray, variance: np.ndarray) -> None:
        """Add a chunk of draws; mean, variance : (draws, rows, targets)."""
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
        """Mean of y, eq. 5; (rows, targets)."""
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
    """Mean class probabilities, accumulated over chunks of draws."""

    def __init__(self):
        self.n_draws = 0
        self._sum: np.ndarray | float = 0.0

    def add(self, probability: np.ndarray) -> None:
        """Add a chunk of draws; probability : (draws, rows, classes)."""
        self._sum = self._sum + probability.sum(0, dtype=np.float64)
        self.n_draws += len(probability)

    @property
    def mean(self) -> np.ndarray:
        """Mean probabilities, (rows, classes); rows sum to one."""
        return self._sum / np.sum(self._sum, axis=-1, keepdims=True)


class LogDensity:
    """Log of the mean density of the draws (eq. 8), accumulated over chunks."""

    def __init__(self):
        self.n_draws = 0
        self._log_sum = -np.inf

    def add(self, log_density: np.ndarray) -> None:
        """Add a chunk of draws; log_density : (draws, rows)."""
        self._log_sum = np.logaddexp(self._log_sum, logsumexp(log_density, axis=0))
        self.n_draws += len(log_density)

    @property
    def value(self) -> np.ndarray:
        """Log predictive density, (rows,), in nats."""
        return self._log_sum - np.log(self.n_draws)


def entropy(probability: np.ndarray) -> np.ndarray:
    """Entropy, -sum p log p over the last axis, in nats."""
    logarithm = np.log(np.maximum(probability, np.finfo(np.float64).tiny))
    return np.abs(np.einsum("...c,...c->...", probability, logarithm))


def classification_uncertainty(
    parts: Callable[[], Iterable[np.ndarray]],
    kinds: Sequence[str],
    uniform: np.ndarray,
) -> dict[str, np.ndarray]:
    """Uncertainties of eq. 7, {kind: (rows,)}, computed from chunks of draws.

    parts : returns the chunks, class probabilities (draws, rows, classes); it is called
        twice for ``"overlap"``
    uniform : (draws,), in [0, 1): samples one label per draw for the variation ratio
    """
    mean = MeanProbability()
    expected, counts = np.zeros(1), np.zeros((1, 1), dtype=int)
    for probability in parts():
        if not {"expected_entropy", "mutual_information"}.isdisjoint(kinds):
            expected = expected + entropy(probability.astype(np.float64)).sum(0)
        if "variation_ratio" in kinds:
            u = uniform[mean.n_draws :][: len(probability)]
            counts = counts + _label_counts(probability, u)
        mean.add(probability)
    mean_entropy, expected = entropy(mean.mean), expected / mean.n_draws
    results = {
        "entropy": mean_entropy,
        "expected_entropy": expected,
        "mutual_information": np.maximum(mean_entropy - expected, 0.0),
        # 1 - share of the modal label among those sampled one per draw [Gal16 3.3.1].
        "variation_ratio": 1 - counts.max(-1) / mean.n_draws,
    }
    if "overlap" in kinds:
        results["overlap"] = _overlap(parts(), mean.mean)
    return {kind: results[kind] for kind in kinds}


def _label_counts(probability: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Number of draws whose sampled label is each class, (rows, classes)."""
    n_draws, n_rows, n_classes = probability.shape
    labels = labels_at(
        probability, np.broadcast_to(uniform[:, None], (n_draws, n_rows))
    )
    cells = (labels + n_classes * np.arange(n_rows)).ravel()
    counts = np.bincount(cells, minlength=n_rows * n_classes)
    return counts.reshape(n_rows, n_classes)


def _overlap(parts: Iterable[np.ndarray], mean: np.ndarray) -> np.ndarray:
    """Overlap of the draws' probabilities of the two most likely classes, in [0, 1].

    Bhattacharyya coefficient sum_bins sqrt(u v) of the two histograms over [0, 1].
    """
    top = np.argsort(mean, axis=-1)[:, -2:]
    counts = np.zeros((len(mean), 2, OVERLAP_BINS))
    first_bin = OVERLAP_BINS * np.arange(2 * len(mean)).reshape(-1, 2)
    for probability in parts:
        values = np.take_along_axis(probability, top[None], axis=-1)
        bins = np.minimum((values * OVERLAP_BINS).astype(int), OVERLAP_BINS - 1)
        chunk = np.bincount((first_bin + bins).ravel(), minlength=counts.size)
        counts += chunk.reshape(counts.shape)
    counts /= counts.sum(-1, keepdims=True)
    return np.sqrt(counts[:, 0] * counts[:, 1]).sum(-1)
