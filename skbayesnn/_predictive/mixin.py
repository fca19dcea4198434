"""The methods of a predictive, for all that has one.

A subclass opens its predictive on some rows: networks draw their weights and hold
them. What then is asked goes by blocks of rows, all draws of a block at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length

from skbayesnn._predictive.classes import check_known
from skbayesnn._predictive.summaries import checked_coverages, chosen, framed
from skbayesnn._runtime import default_settings
from skbayesnn._sklearn_compat import num_samples
from skbayesnn._typing import Array, MatrixLike, RandomState
from skbayesnn._validation import numpy_random_state

# Rows of which all draws are held at once.
BLOCK = 512

# A MixturePredictive or a ClassPredictive.
Predictive = Any


@dataclass(frozen=True)
class PredictiveBlocks:
    """A predictive on the rows of some X, with its draws fixed and held.

    Parameters
    ----------
    n_rows : int
    of_rows : callable
        Slice of rows -> their predictive.
    block : int
        Rows that are best asked for at once.
    """

    n_rows: int
    of_rows: Callable[[slice], Predictive]
    block: int = BLOCK

    @classmethod
    def mapped(
        cls, inner: Sequence["PredictiveBlocks"], function
    ) -> "PredictiveBlocks":
        """``function`` of what the inner ones say of the same rows."""
        return cls(
            inner[0].n_rows,
            lambda rows: function(*(one.of_rows(rows) for one in inner)),
            min(BLOCK, *(one.block for one in inner)),
        )

    @classmethod
    def in_parts(cls, n_rows: int, opened, n_at_once: int) -> "PredictiveBlocks":
        """Of rows that are opened some at a time, since what is held of each is large.

        opened : callable, slice of rows -> their ``PredictiveBlocks``
        n_at_once : rows
        """
        first = opened(slice(0, min(n_rows, n_at_once)))
        if n_rows <= n_at_once:
            return first
        # Blocks lie within a part.
        step = max(n_at_once // first.block, 1) * first.block
        # The part that was used last; the first one is opened already.
        held = {0: first} if step <= n_at_once else {}

        def part(start):
            if start not in held:
                held.clear()
                held[start] = opened(slice(start, min(start + step, n_rows)))
            return held[start]

        def of_rows(rows):
            found = []
            for start in range(rows.start // step * step, rows.stop, step):
                within = slice(max(rows.start - start, 0), min(rows.stop - start, step))
                found.append(part(start).of_rows(within))
            return found[0] if len(found) == 1 else type(found[0]).of_other_rows(found)

        return cls(n_rows, of_rows, first.block)

    def whole(self) -> Predictive:
        """The predictive of all rows at once."""
        return self.of_rows(slice(0, self.n_rows))

    def blocks(self) -> Iterator[tuple[slice, Predictive]]:
        """All rows, some at a time, and their predictive."""
        for start in range(0, self.n_rows, self.block):
            rows = slice(start, min(start + self.block, self.n_rows))
            yield rows, self.of_rows(rows)


def mean_and_covariance(opened: PredictiveBlocks) -> tuple[np.ndarray, np.ndarray]:
    """Of all rows, (rows[, targets]) and (rows, targets, targets)."""
    parts = [(one.mean(), one.covariance()) for _, one in opened.blocks()]
    means, covariances = zip(*parts, strict=True)
    return np.concatenate(means), np.concatenate(covariances)


class PredictiveMixin:
    """What the predictives of numbers and of classes have."""

    def _open_predictive(self, X) -> PredictiveBlocks:
        raise NotImplementedError

    @overload
    def predict_uncertainty(  # type: ignore[overload-overlap]
        self,
        X: MatrixLike,
        kind: Literal["all"] | list[str] | tuple[str, ...],
        as_frame: Literal[False] = False,
    ) -> dict[str, Array]: ...
    @overload
    def predict_uncertainty(
        self,
        X: MatrixLike,
        kind: str | None = None,
        as_frame: Literal[False] = False,
    ) -> Array: ...
    @overload
    def predict_uncertainty(
        self,
        X: MatrixLike,
        kind: str | list[str] | tuple[str, ...] | None = None,
        as_frame: bool = False,
    ) -> Any: ...
    @default_settings
    def predict_uncertainty(self, X, kind=None, as_frame=False):
        """How uncertain the predictions are (eq. 6, eq. 7).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        kind : str or list of str, default=None
            A regressor's ``"total"`` (default), ``"epistemic"`` and ``"aleatoric"``;
            a classifier's ``"entropy"`` (default), ``"mutual_information"``,
            ``"variation_ratio"``, ``"expected_entropy"`` and ``"overlap"``; ``"all"``.
        as_frame : bool, default=False
            Whether to return a pandas DataFrame with a column per kind.

        Returns
        -------
        uncertainty : ndarray of shape (n_samples[, n_targets]), or dict of them
            A dict for a list of kinds or ``"all"``.
        """
        blocks = (one for _, one in self._blocks(X))
        first = next(blocks)
        kinds = first.kinds
        kind = kinds[0] if kind is None else kind

        def compute(wanted):
            parts = [one.uncertainty(wanted) for one in chain([first], blocks)]
            return {
                name: np.concatenate([part[name] for part in parts]) for name in wanted
            }

        values = chosen(kind, kinds, compute)
        return framed(values, kind, X) if as_frame else values

    @default_settings
    def log_predictive_density(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Log density (classes and counts: log probability) of y (eq. 8).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)

        Returns
        -------
        density : ndarray of shape (n_samples,)
            Nats, of the density in y's units; joint over targets.

        Raises
        ------
        ValueError
            A label that a classifier does not know.
        """

        def density(one, values):
            if one.of_classes:
                check_known(values, one.classes)
            return one.log_density(values)

        return self._at(X, y, density)

    @default_settings
    def sample_f(
        self, X: MatrixLike, n_samples: int = 1, random_state: RandomState = 0
    ) -> Array:
        """Fixed posterior draws taken at random, without noise; see ``sample_y``."""
        return self._sampled(
            X, n_samples, random_state, lambda one, draws, _: one.sample_f(draws)
        )

    @default_settings
    def sample_y(
        self, X: MatrixLike, n_samples: int = 1, random_state: RandomState = 0
    ) -> Array:
        """Draws of y.

        A sample takes one of the fixed posterior draws at random, coherent over rows,
        with independent noise.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples_X, n_features)
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=0

        Returns
        -------
        y : ndarray of shape (n_samples_X[, n_targets], n_samples)
        """
        return self._sampled(
            X, n_samples, random_state, lambda one, *how: one.sample(*how)
        )

    def _at(self, X, y, function, of_numbers=None):
        y = np.asarray(y)
        check_consistent_length(X, y)
        blocks = self._blocks(X, of_numbers)
        return np.concatenate([function(one, y[rows]) for rows, one in blocks])

    def _sampled(self, X, n_samples, random_state, sample):
        picks, noise = np.random.default_rng(stream_of(random_state)).spawn(2)
        parts: list[np.ndarray] = []
        for _, one in self._blocks(X):
            if not parts:
                draws = picks.integers(one.n_draws, size=n_samples)
            parts.append(sample(one, draws, noise))
        return np.concatenate(parts)

    def _blocks(self, X, of_numbers=None) -> Iterator[tuple[slice, Predictive]]:
        """The predictive of every block of rows.

        of_numbers : str, the method asked for, where classes have none of the kind
        """
        if num_samples(X) == 0:
            raise ValueError("`X` must have at least one row; got none.")
        for rows, one in self._open_predictive(X).blocks():
            if of_numbers and one.of_classes:
                raise TypeError(
                    f"`{of_numbers}` needs a regressor; got the predictive of classes. "
                    "For classifiers there are predict_proba, predict_uncertainty and "
                    "log_predictive_density."
                )
            yield rows, one


class RegressionPredictiveMixin(PredictiveMixin):
    """What only the predictives of numbers have."""

    @default_settings
    def predict_quantile(self, X: MatrixLike, q: float | Sequence[float]) -> Array:
        """Quantiles of the predictive mixture of all draws.

        Behind a target transform they are the transformed quantiles, which is exact
        for a monotone transform of each target. Of counts the quantile is the smallest
        one whose distribution function reaches q.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        q : float or sequence of float in (0, 1)

        Returns
        -------
        quantile : ndarray of shape (n_samples[, n_targets][, n_levels])
            In y's units; the last axis where q is a sequence.
        """
        levels = checked_levels(q)
        result = np.concatenate(
            [
                np.stack([one.quantile(level) for level in levels], axis=-1)
                for _, one in self._blocks(X, "predict_quantile")
            ]
        )
        return result if np.ndim(q) else result[..., 0]

    @default_settings
    def predict_interval(
        self,
        X: MatrixLike,
        coverage: float | Sequence[float] = 0.9,
        kind: str = "equal_tailed",
    ) -> Array:
        """Interval of the predictive mixture that holds y with a given probability.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        coverage : float or sequence of float in (0, 1), default=0.9
            Probability inside; of counts at least.
        kind : {"equal_tailed", "highest_density"}, default="equal_tailed"
            Half of the rest on each side, or the shortest interval. The latter takes
            about forty times as long; its probability is exact, its ends are within
            about 1e-5 of their levels.

        Returns
        -------
        interval : ndarray of shape (n_samples[, n_targets][, n_coverages], 2)
            Lower and upper end in y's units, ``lower, upper = interval.T``; the axis
            before the last where ``coverage`` is a sequence.
        """
        coverages = checked_coverages(coverage)
        blocks = self._blocks(X, "predict_interval")
        result = np.concatenate([one.interval(coverages, kind) for _, one in blocks])
        return result if np.ndim(coverage) else result[..., 0, :]

    @default_settings
    def predictive_cdf(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Distribution function of the predictive mixture at y.

        Where the predictive is right, these values are uniform in [0, 1] (the
        probability integral transform; Gneiting, Balabdaoui & Raftery 2007); of counts,
        which share values, it is larger than that.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)

        Returns
        -------
        probability : ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        return self._at(X, y, lambda one, values: one.cdf(values), "predictive_cdf")

    @default_settings
    def crps(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Continuous ranked probability score; smaller is better.

        Exact for Gaussian mixtures and counts; behind a monotone, smooth target
        transform by quadrature, within 2e-4 of its value; otherwise by quantiles of 200
        levels [Gneiting & Raftery 2007].

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)

        Returns
        -------
        crps : ndarray of shape (n_samples,)
            In y's units, the mean over targets.
        """
        return self._at(X, y, lambda one, values: one.crps(values), "crps")


def checked_levels(q) -> list[float]:
    """One level or a sequence of them as a list; each in (0, 1)."""
    levels = list(np.atleast_1d(np.asarray(q, dtype=object)))
    if not levels:
        raise ValueError("`q` must be a number in (0, 1), or a list of some; got none.")
    for level in levels:
        if isinstance(level, bool | np.bool_) or not isinstance(
            level, int | float | np.number
        ):
            raise TypeError(f"`q` must be a number; got {level!r}.")
        if not 0 < level < 1:
            raise ValueError(f"`q` must be in (0, 1); got {float(level)!r}.")
    return [float(level) for level in levels]


def stream_of(random_state):
    """A seed for NumPy's generators from scikit-learn's random_state."""
    if random_state is None:
        return None
    state = numpy_random_state(random_state)
    if isinstance(random_state, int | np.integer):
        return random_state
    return state.randint(2**31)
