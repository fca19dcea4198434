"""Methods of all estimators with a predictive distribution.

A subclass opens its predictive distribution on some rows. Most methods compute block by
block of the rows, with all draws of a block at once. Uncertainties, log densities and
samples need not have all draws at once: networks compute them for all rows, from a part
of the draws at a time, so that the memory does not grow with the number of draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skbayesnn._engine.resources import torch_threads
from skbayesnn._predictive.by_blocks import by_blocks, generators
from skbayesnn._predictive.classes import check_known
from skbayesnn._predictive.summaries import select_kinds, to_frame
from skbayesnn._runtime import default_settings, imported, on_snapshot
from skbayesnn._sklearn_compat import num_samples
from skbayesnn._typing import Array, MatrixLike, OutputPath, RandomState
from skbayesnn._validation import (
    check_levels,
    check_number,
    check_one_of_std_and_cov,
)

# Number of rows whose draws are in memory at once.
BLOCK = 512
# Number of rows whose versions are in memory at once, if values are unknown.
ROWS_WITH_VERSIONS = 1024

# A MixturePredictive or a ClassPredictive.
Predictive = Any


@dataclass(frozen=True)
class PredictiveBlocks:
    """Predictive distribution on the rows of some X, with fixed draws.

    Parameters
    ----------
    n_rows : int
    distribution : callable
        Maps a slice of rows to their predictive distribution.
    block : int
        Number of rows that ``distribution`` handles best.
    open_part : callable, optional
        Opens the part of ``part_rows`` rows that starts at a row. Several threads may
        call it.
    part_rows : int
    dtype : dtype
        Of the features.
    """

    n_rows: int
    distribution: Callable[[slice], Predictive]
    block: int = BLOCK
    open_part: Callable[[int], PredictiveBlocks] | None = None
    part_rows: int = 0
    dtype: Any = np.float64

    @classmethod
    def mapped(cls, inner: Sequence[PredictiveBlocks], function) -> PredictiveBlocks:
        """Apply ``function`` to several models' distributions of the same rows."""
        return cls(
            inner[0].n_rows,
            lambda rows: function(*(blocks.distribution(rows) for blocks in inner)),
            min(BLOCK, *(blocks.block for blocks in inner)),
        )

    @classmethod
    def in_parts(
        cls, n_rows: int, opened, n_at_once: int, in_threads: bool = False
    ) -> PredictiveBlocks:
        """Open a few rows at a time, if an open part needs much memory.

        opened : callable, maps a slice of rows to their ``PredictiveBlocks``
        n_at_once : number of rows
        in_threads : whether several threads may call ``opened``
        """
        first = opened(slice(0, min(n_rows, n_at_once)))
        if n_rows <= n_at_once:
            return first
        # A block never spans two parts.
        step = max(n_at_once // first.block, 1) * first.block
        # Keep only the last part that was used; the first is open already.
        open_parts = {0: first} if step <= n_at_once else {}

        def part(start):
            if start not in open_parts:
                open_parts.clear()
                open_parts[start] = opened(slice(start, min(start + step, n_rows)))
            return open_parts[start]

        def distribution(rows):
            pieces = []
            for start in range(rows.start // step * step, rows.stop, step):
                within = slice(max(rows.start - start, 0), min(rows.stop - start, step))
                pieces.append(part(start).distribution(within))
            if len(pieces) == 1:
                return pieces[0]
            return type(pieces[0]).concatenate_rows(pieces)

        def open_part(start):
            if start == 0 and step == n_at_once:
                return first
            return opened(slice(start, min(start + step, n_rows)))

        return cls(
            n_rows, distribution, first.block, open_part if in_threads else None, step
        )

    @classmethod
    def of_encoded(cls, encoded, opened) -> PredictiveBlocks:
        """Open encoded rows, and mix the versions of rows with unknown values.

        encoded : ``EncodedRows``
        opened : callable, maps features of rows to their ``PredictiveBlocks``
        """
        if not encoded.unknown:
            return opened(encoded.X)

        def part(rows):
            X, n_versions = encoded.versions(rows)
            inner = opened(X)
            if len(X) == len(n_versions):
                return inner
            return inner._mixing_versions(n_versions)

        blocks = cls.in_parts(encoded.X.shape[0], part, ROWS_WITH_VERSIONS)
        return replace(blocks, dtype=encoded.X.dtype)

    def _mixing_versions(self, n_versions: np.ndarray) -> PredictiveBlocks:
        """Blocks of rows, if these are blocks of the versions of the rows.

        n_versions : (rows,); the versions of a row are adjacent
        """
        first, most = np.cumsum(n_versions) - n_versions, int(n_versions.max())

        def distribution(rows):
            start, number = first[rows.start], n_versions[rows]
            versions = self.distribution(slice(start, start + number.sum()))
            return versions.mix_versions(first[rows] - start, number, most)

        block = max(1, min(BLOCK, self.block) // most)
        return PredictiveBlocks(len(n_versions), distribution, block)

    def whole(self) -> Predictive:
        """Predictive distribution of all rows at once."""
        return self.distribution(slice(0, self.n_rows))

    def blocks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yield slices that cover all rows, with their predictive distributions."""
        for start in range(0, self.n_rows, self.block):
            rows = slice(start, min(start + self.block, self.n_rows))
            yield rows, self.distribution(rows)

    def map(self, function: Callable[[slice, Predictive], Any]) -> list:
        """Apply ``function`` to the rows and the distribution of every block.

        Parts are computed on as many threads as torch uses, if they may be.
        """
        n_threads, open_part = torch.get_num_threads(), self.open_part
        if open_part is None or n_threads == 1:
            return [function(*block) for block in self.blocks()]

        def of_part(start: int) -> list:
            results = []
            with torch_threads(1):
                for rows, distribution in open_part(start).blocks():
                    rows = slice(start + rows.start, start + rows.stop)
                    results.append(function(rows, distribution))
            return results

        with ThreadPoolExecutor(n_threads) as pool:
            # Threads have the settings of NumPy and of warnings of this one.
            starts = range(0, self.n_rows, self.part_rows)
            futures = [pool.submit(copy_context().run, of_part, i) for i in starts]
            try:
                return [result for future in futures for result in future.result()]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def mean_and_covariance(opened: PredictiveBlocks) -> tuple[np.ndarray, np.ndarray]:
    """Mean (rows[, targets]) and covariance (rows, targets, targets) of all rows."""
    return _mean_and(opened, lambda block: block.covariance())


def mean_and_std(opened: PredictiveBlocks) -> tuple[np.ndarray, np.ndarray]:
    """Mean and total standard deviation of all rows, (rows[, targets])."""
    return _mean_and(opened, lambda block: block.uncertainty(["total"])["total"])


def predicted_means(opened: PredictiveBlocks) -> np.ndarray:
    """Mean of all rows, (rows[, targets or classes])."""
    return np.concatenate(opened.map(lambda _, block: block.mean()))


def predicted_moments(opened: PredictiveBlocks, return_std: bool, return_cov: bool):
    """Mean of all rows, and optionally their standard deviation or covariance."""
    if return_cov:
        return mean_and_covariance(opened)
    return mean_and_std(opened) if return_std else predicted_means(opened)


def _mean_and(opened, spread) -> tuple[np.ndarray, np.ndarray]:
    parts = opened.map(lambda _, block: (block.mean(), spread(block)))
    means, spreads = zip(*parts, strict=True)
    return np.concatenate(means), np.concatenate(spreads)


class PredictiveMixin:
    """Methods of regressors and classifiers with a predictive distribution."""

    def _store(self, arguments: dict) -> None:
        """Store a constructor's ``locals()`` as attributes.

        Constructors list all parameters, as ``get_params``, editors and type checkers
        require, and only store them.
        """
        self.__dict__.update((n, v) for n, v in arguments.items() if n != "self")

    def _open_predictive(self, X) -> PredictiveBlocks:
        """Open the predictive distribution, with all draws of a block in memory."""
        raise NotImplementedError

    def _open_by_draws(self, X) -> PredictiveBlocks:
        """Open it for methods that need not have all draws in memory at once.

        Blocks need only ``uncertainty``, ``log_density``, ``sample`` and ``sample_f``.
        """
        return self._open_predictive(X)

    @overload
    def predict_uncertainty(  # type: ignore[overload-overlap]
        self,
        X: MatrixLike,
        kind: Literal["all"] | list[str] | tuple[str, ...],
        as_frame: Literal[False] = False,
        *,
        output: OutputPath = None,
    ) -> dict[str, Array]: ...
    @overload
    def predict_uncertainty(
        self,
        X: MatrixLike,
        kind: str | None = None,
        as_frame: Literal[False] = False,
        *,
        output: OutputPath = None,
    ) -> Array: ...
    @overload
    def predict_uncertainty(
        self,
        X: MatrixLike,
        kind: str | list[str] | tuple[str, ...] | None = None,
        as_frame: bool = False,
        *,
        output: OutputPath = None,
    ) -> Any: ...
    @by_blocks
    @default_settings
    def predict_uncertainty(self, X, kind=None, as_frame=False, *, output=None):
        """Predict the uncertainty of y, in total or split by its source.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        kind : str or list of str, default=None
            Measure of uncertainty, a list of measures, or ``"all"``.

            Regressors have standard deviations, in the units of y:

            - ``"total"`` (default): total^2 = epistemic^2 + aleatoric^2;
            - ``"epistemic"``: standard deviation of the functions that ``sample_f``
              draws. It shrinks with
              more data in ensembles, and if the width of the posterior is learned. With
              a fixed dropout rate it does not shrink. With many rows, the total then
              overestimates the uncertainty, unless the epistemic part is small compared
              with the noise;
            - ``"aleatoric"``: the observation noise.

            Classifiers have the measures of [1]_, section 3.3.1:

            - ``"entropy"`` (default): total uncertainty, the entropy of the mean
              probability, in nats;
            - ``"expected_entropy"``: aleatoric part, the mean entropy of the draws;
            - ``"mutual_information"``: epistemic part, the entropy minus the expected
              entropy. It shrinks with more data, but not to zero with a fixed dropout
              rate;
            - ``"variation_ratio"``: 1 - the share of the most frequent label, if one
              label is sampled per draw;
            - ``"overlap"``: Bhattacharyya coefficient of the draws' probabilities of
              the two most likely classes. It is large if the draws disagree on which of
              these classes is more likely, and small if all draws give nearly 1/2 to
              both.
        as_frame : bool, default=False
            Whether to return a pandas DataFrame, with one column per kind (and target),
            and with the index of X if X is a DataFrame.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        uncertainty : ndarray of shape (n_samples[, n_targets]), or dict of them
            A dict for a list of kinds or ``"all"``.

        References
        ----------
        .. [1] Gal (2016), "Uncertainty in deep learning", PhD thesis, University of
           Cambridge.
        """
        blocks = (block for _, block in self._opened_rows(X, by_draws=True).blocks())
        first = next(blocks)
        kinds = first.kinds
        kind = kinds[0] if kind is None else kind

        def compute(wanted):
            parts = [block.uncertainty(wanted) for block in chain([first], blocks)]
            return {
                name: np.concatenate([part[name] for part in parts]) for name in wanted
            }

        values = select_kinds(kind, kinds, compute)
        return to_frame(values, kind, X) if as_frame else values

    @by_blocks
    @default_settings
    def log_predictive_density(
        self, X: MatrixLike, y: ArrayLike, *, output: OutputPath = None
    ) -> Array:
        """Log density of y under the predictive distribution.

        For labels and counts it is the log probability. Its mean over test rows is a
        score of the whole distribution: higher is better.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Observed target values or labels.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        density : ndarray of shape (n_samples,)
            Log density in nats, in the units of y, joint over targets.

        Raises
        ------
        ValueError
            If a label is not in ``classes_``.
        """

        def density(block, values):
            if block.is_classification:
                values = column_or_1d(values)
                check_known(values, block.classes)
            return block.log_density(values)

        return self._at(X, y, density, by_draws=True)

    def report(
        self,
        X: MatrixLike,
        y: ArrayLike | None = None,
        *,
        X_train: MatrixLike | None = None,
        target: int | None = None,
        random_state: RandomState = 0,
        n_rows: int = 5,
    ) -> Any:
        """Describe the model and its predictions of held-out rows, on one page.

        See :func:`skbayesnn.report`, which also takes pipelines and searches.

        Parameters
        ----------
        X : {frame, array-like} of shape (n_samples, n_features)
            Rows that the model was not fitted to.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Measured targets; required. The page has the name of a series.
        X_train : {frame, array-like} of shape (n_rows, n_features), default=None
            Training rows, to find columns that have drifted.
        target : int, default=None
            Index of the target; required if the model has several targets.
        random_state : int, RandomState instance or None, default=0
        n_rows : int, default=5
            Number of uncertain rows that are listed with a reason; 0 lists none.

        Returns
        -------
        report : Report
            ``report.save("report.html")`` writes the page; a notebook shows it.
            ``report.scores`` is a dict of the scores, such as ``"R^2"`` and
            ``"90 % intervals cover"``; ``report.constant_scores`` of a constant.
        """
        # The page draws with displays, which are above the estimators.
        page_of = imported("skbayesnn._report").page_of
        return page_of(self, X, y, X_train, target, random_state, n_rows)

    @by_blocks
    @default_settings
    def sample_f(
        self,
        X: MatrixLike,
        n_samples: int = 1,
        random_state: RandomState = 0,
        *,
        output: OutputPath = None,
    ) -> Array:
        """Draw functions from the posterior, without observation noise.

        A sample evaluates one posterior draw at all rows, so that its values form one
        function. The functions of a classifier are class probabilities.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples_X, n_features)
            Inputs.
        n_samples : int, default=1
            Number of functions. Each is picked at random among the fixed posterior
            draws that predictions average, ``n_draws`` for each network. Raise
            ``n_draws`` for more distinct functions.
        random_state : int, RandomState instance or None, default=0
            Source of the random numbers.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        f : ndarray of shape (n_samples_X[, n_targets or n_classes], n_samples)
            Function values, in the units of y, or class probabilities.
        """
        return self._sampled(
            X, n_samples, random_state, lambda block, draws, _: block.sample_f(draws)
        )

    @by_blocks
    @default_settings
    def sample_y(
        self,
        X: MatrixLike,
        n_samples: int = 1,
        random_state: RandomState = 0,
        *,
        output: OutputPath = None,
    ) -> Array:
        """Draw y from the predictive distribution.

        Adds observation noise, independent in every row, to functions that are drawn
        as in ``sample_f``. Classifiers draw labels from such class probabilities.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples_X, n_features)
            Inputs.
        n_samples, random_state
            As in ``sample_f``.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        y : ndarray of shape (n_samples_X[, n_targets], n_samples)
            Sampled target values or labels.
        """
        return self._sampled(
            X, n_samples, random_state, lambda block, *how: block.sample(*how)
        )

    def _at(self, X, y, function, method=None, by_draws=False):
        y = np.asarray(y)
        check_consistent_length(X, y)
        return self._of_blocks(
            X, lambda rows, block: function(block, y[rows]), method, by_draws
        )

    def _sampled(self, X, n_samples, random_state, sample):
        check_number("n_samples", n_samples, kind=Integral, low=1)
        draw_random, noise_random = generators(random_state)
        parts: list[np.ndarray] = []
        for _, block in self._opened_rows(X, by_draws=True).blocks():
            if not parts:
                draws = draw_random.integers(block.n_draws, size=n_samples)
            parts.append(sample(block, draws, noise_random))
        return np.concatenate(parts)

    def _of_blocks(self, X, function, method=None, by_draws=False) -> np.ndarray:
        """Results of ``function`` for all blocks of rows, concatenated.

        function : takes a slice of rows and their predictive distribution
        method : str, name of a method that only regressors have
        by_draws : bool, whether to use ``_open_by_draws``
        """

        def checked(rows, block):
            if method and block.is_classification:
                raise TypeError(
                    f"`{method}` needs a regressor; got the predictive distribution of "
                    "a classifier. For classifiers use predict_proba, "
                    "predict_uncertainty or log_predictive_density."
                )
            return function(rows, block)

        return np.concatenate(self._opened_rows(X, by_draws).map(checked))

    def _opened_rows(self, X, by_draws=False) -> PredictiveBlocks:
        """Predictive distribution of at least one row."""
        if num_samples(X) == 0:
            raise ValueError("`X` must have at least one row; got none.")
        return self._open_by_draws(X) if by_draws else self._open_predictive(X)


class RegressionPredictiveMixin(PredictiveMixin):
    """Methods of regressors with a predictive distribution."""

    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[False] = False,
        return_cov: Literal[False] = False,
        *,
        output: OutputPath = None,
    ) -> Array: ...
    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[True],
        return_cov: Literal[False] = False,
        *,
        output: OutputPath = None,
    ) -> tuple[Array, Array]: ...
    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[False] = False,
        *,
        return_cov: Literal[True],
        output: OutputPath = None,
    ) -> tuple[Array, Array]: ...
    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        output: OutputPath = None,
    ) -> Array | tuple[Array, Array]: ...
    @by_blocks
    @default_settings
    def predict(self, X, return_std=False, return_cov=False, *, output=None):
        """Predict the mean of y, and optionally its standard deviation or covariance.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Whether to return the standard deviation of the predictive distribution.
        return_cov : bool, default=False
            Whether to return the covariance of the targets, one matrix per row. Cannot
            be combined with ``return_std``.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictive mean, in the units of y.
        std : ndarray of the same shape
            Standard deviation, including observation noise, in the units of y. Only
            with ``return_std=True``.
        cov : ndarray of shape (n_samples, n_targets, n_targets)
            Covariance; its diagonal is std^2. The observation noise of the targets is
            independent; their draws are correlated. Only with ``return_cov=True``.
        """
        if return_cov:
            check_one_of_std_and_cov(return_std)
        return self._predict(X, return_std, return_cov)

    def _predict(self, X, return_std, return_cov):
        return predicted_moments(self._opened_rows(X), return_std, return_cov)

    @by_blocks
    @default_settings
    def predict_quantile(
        self, X: MatrixLike, q: float | Sequence[float], *, output: OutputPath = None
    ) -> Array:
        """Quantiles of the predictive distribution, the mixture of all draws.

        If y is transformed, these are the transformed quantiles, which is exact for a
        monotone transform of each target. For counts, a quantile is the smallest count
        whose cumulative probability reaches q.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        q : float or sequence of float in (0, 1)
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        quantile : ndarray of shape (n_samples[, n_targets][, n_levels])
            In y's units; the last axis exists if q is a sequence.
        """
        levels = check_levels("q", q)
        result = self._of_blocks(
            X,
            lambda _, block: np.stack([block.quantile(level) for level in levels], -1),
            "predict_quantile",
        )
        return result if np.ndim(q) else result[..., 0]

    @by_blocks
    @default_settings
    def predict_interval(
        self,
        X: MatrixLike,
        coverage: float | Sequence[float] = 0.9,
        kind: str = "equal_tailed",
        *,
        output: OutputPath = None,
    ) -> Array:
        """Prediction interval that contains y with a given probability.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        coverage : float or sequence of float in (0, 1), default=0.9
            Probability that y is inside; for counts at least this probability.
        kind : {"equal_tailed", "highest_density"}, default="equal_tailed"
            ``"equal_tailed"``: y is below and above with equal probability.
            ``"highest_density"``: the shortest interval. It takes about forty times as
            long. Its probability is exact; its bounds are accurate to about 1e-5 of
            their levels.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        interval : ndarray of shape (n_samples[, n_targets][, n_coverages], 2)
            Lower and upper bound in y's units, ``lower, upper = interval.T``; the axis
            of coverages exists if ``coverage`` is a sequence.
        """
        coverages = check_levels("coverage", coverage)
        result = self._of_blocks(
            X, lambda _, block: block.interval(coverages, kind), "predict_interval"
        )
        return result if np.ndim(coverage) else result[..., 0, :]

    @by_blocks
    @default_settings
    def predictive_cdf(
        self, X: MatrixLike, y: ArrayLike, *, output: OutputPath = None
    ) -> Array:
        """Cumulative distribution function of the predictive distribution, at y.

        Use it to check calibration. If the predictive distribution is correct, the
        values are uniform in [0, 1] (the probability integral transform; Gneiting,
        Balabdaoui & Raftery 2007). For counts, which have ties, they are larger.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        probability : ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        return self._at(X, y, lambda block, values: block.cdf(values), "predictive_cdf")

    @by_blocks
    @default_settings
    def crps(self, X: MatrixLike, y: ArrayLike, *, output: OutputPath = None) -> Array:
        """Continuous ranked probability score (CRPS) of each row; smaller is better.

        Exact for Gaussian mixtures and counts. If y has a monotone, smooth transform,
        by quadrature, within 2e-4 of the exact value. Otherwise by quantiles at 200
        levels [Gneiting & Raftery 2007].

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        crps : ndarray of shape (n_samples,)
            In y's units, averaged over targets.
        """
        return self._at(X, y, lambda block, values: block.crps(values), "crps")


class ClassificationPredictiveMixin(PredictiveMixin):
    """Methods of classifiers with a predictive distribution."""

    classes_: Any

    @by_blocks
    @on_snapshot
    def predict(self, X: MatrixLike, *, output: OutputPath = None) -> Array:
        """Predict the class of the largest mean probability.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Predicted labels.
        """
        # First compute: before `fit`, `classes_` does not exist.
        codes = self.predict_proba(X).argmax(1)
        return self.classes_[codes]

    @by_blocks
    @default_settings
    def predict_proba(self, X: MatrixLike, *, output: OutputPath = None) -> Array:
        """Predict class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        probability : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return predicted_means(self._opened_rows(X))

    @by_blocks
    @default_settings
    def predict_log_proba(self, X: MatrixLike, *, output: OutputPath = None) -> Array:
        """Predict logarithms of class probabilities; see ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))
