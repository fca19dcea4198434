"""Predictive distributions as objects, with the names of SciPy's distributions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skbayesnn._data.scaling import FAR_ROWS
from skbayesnn._data.target import as_intervals
from skbayesnn._predictive.blocks import Predictive, PredictiveBlocks
from skbayesnn._predictive.by_blocks import generators, names_parameters
from skbayesnn._predictive.classes import check_known
from skbayesnn._predictive.summaries import (
    CLASSIFICATION_KINDS,
    REGRESSION_KINDS,
    select_kinds,
)
from skbayesnn._runtime import default_settings, silence_warning
from skbayesnn._sklearn_compat import num_samples, safe_indexing
from skbayesnn._typing import Array, RandomState
from skbayesnn._validation import check_levels, check_number


class ModelRows:
    """Rows of X, and the fitted model that predicts them.

    Parameters
    ----------
    model : fitted estimator
        It must not change.
    X : input of its ``predict``
    options : dict
        Options of its ``_open_predictive``.
    """

    def __init__(self, model, X, options: dict | None = None) -> None:
        if isinstance(X, str | os.PathLike):
            raise TypeError(
                f"a predictive distribution needs rows in memory; got the file {X!r}. "
                "Read some rows, or give the file to a method such as predict_interval."
            )
        self._model, self._X, self._options = model, X, options or {}
        self.n_rows = num_samples(X)

    @cached_property
    def _opened(self) -> PredictiveBlocks:
        if self.n_rows == 0:
            raise ValueError("`X` must have at least one row; got none.")
        return self._model._open_predictive(self._X, **self._options)

    def blocks(self, by_draws: bool = False) -> PredictiveBlocks:
        """Distributions of blocks of rows, with all draws or with a part of them."""
        opened = self._opened
        silence_warning(FAR_ROWS)  # the rows were checked when they were opened
        return (by_draws and opened.by_draws) or opened

    def select(self, rows: np.ndarray) -> ModelRows:
        """Return the rows with the given indices."""
        return ModelRows(self._model, safe_indexing(self._X, rows), self._options)

    def __getstate__(self) -> dict:
        """State without open blocks, which are opened again."""
        return {n: v for n, v in vars(self).items() if n != "_opened"}


class PredictiveDistribution:
    """Predictive distribution of y for the rows of X.

    ``model.predict_distribution(X)`` returns it, and for pipelines and other
    meta-estimators :func:`skbayesnn.predict_distribution`. It has the names of SciPy's
    distributions. All methods return one result per row.

    It is lazy: it keeps the fitted model and X, and computes block by block of rows
    when a method is called. Later fits of the model have no effect. ``distribution[i]``
    selects rows as NumPy does, ``len`` is their number, and a pickle contains the model
    and X. Regressions return a ``RegressionDistribution``, classifications a
    ``ClassDistribution``.

    Parameters
    ----------
    parts : sequence of ModelRows
        Models and their rows. Use ``predict_distribution`` instead of the constructor.

    See Also
    --------
    predict_distribution : Return the distribution of any model.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import MCDropoutRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MCDropoutRegressor(max_iter=20, random_state=0).fit(X[:400], y[:400])
    >>> distribution = model.predict_distribution(X[400:])
    >>> distribution.interval(0.9).shape, distribution.sf(200).shape
    ((42, 2), (42,))
    """

    # Measures of uncertainty; the first is the default.
    kinds: ClassVar[tuple[str, ...]]

    def __init__(self, parts: Sequence[ModelRows]) -> None:
        self._parts = list(parts)

    def open(self) -> None:
        """Validate X, before results are computed."""
        for part in self._parts:
            part.blocks()

    @classmethod
    def concatenate(cls, parts: Sequence[Any]) -> Any:
        """Concatenate the rows of several distributions, also of different models.

        Parameters
        ----------
        parts : sequence of PredictiveDistribution
            All of regressions, or all of classifications with the same classes.

        Returns
        -------
        distribution : PredictiveDistribution
        """
        kinds = {type(part) for part in parts}
        if len(kinds) != 1 or not issubclass(kind := kinds.pop(), cls):
            raise TypeError(
                "`parts` must be predictive distributions of one kind, at least one; "
                f"got {[type(part).__name__ for part in parts]}."
            )
        if kind is ClassDistribution:
            first, *others = (part.classes for part in parts)
            if not all(np.array_equal(first, classes) for classes in others):
                raise ValueError(
                    "`parts` must have the same classes; got "
                    f"{[first.tolist(), *(c.tolist() for c in others)]}. Fit the "
                    "models to rows of all classes."
                )
        return kind([rows for part in parts for rows in part._parts])

    def __len__(self) -> int:
        return sum(part.n_rows for part in self._parts)

    def __getitem__(self, rows) -> Any:
        """Distribution of selected rows: an index, a slice, indices or a mask."""
        selected = np.atleast_1d(np.arange(len(self))[rows])
        ends = np.cumsum([part.n_rows for part in self._parts])
        number = np.searchsorted(ends, selected, side="right")
        runs = np.split(np.arange(len(selected)), np.flatnonzero(np.diff(number)) + 1)
        parts = []
        for run in runs:
            part = self._parts[number[run[0]]] if len(run) else self._parts[0]
            parts.append(part.select(selected[run] - ends[number[run]] + part.n_rows))
        return type(self)(parts)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} rows>"

    @default_settings
    def _each(self, function, *rows, by_draws: bool = False) -> list:
        """Results of a function for every block.

        function : takes the distribution of a block, and the values of its rows
        rows : arrays with one value per row of X
        """
        results, start = [], 0
        for part in self._parts:
            of_part = [values[start : start + part.n_rows] for values in rows]

            def of_block(block_rows, block, of_part=of_part):
                return function(block, *(values[block_rows] for values in of_part))

            results += part.blocks(by_draws).map(of_block)
            start += part.n_rows
        return results

    def _joined(self, function, *rows, by_draws: bool = False) -> Array:
        return np.concatenate(self._each(function, *rows, by_draws=by_draws))

    def _checked(self, y: ArrayLike) -> np.ndarray:
        """Values or labels of y, one per row; a scalar is repeated for all rows.

        Intervals are as ``interval_target`` makes them.
        """
        intervals = as_intervals(y)
        y = np.asarray(y) if intervals is None else intervals
        if y.ndim == 0:
            y = np.full(len(self), y)
        check_consistent_length(range(len(self)), y)
        return y

    @property
    def _first(self) -> Predictive:
        """Distribution of the first row."""
        return self._parts[0].blocks().distribution(slice(0, 1))

    def uncertainty(self, kind: Any = None) -> Any:
        """Measures of uncertainty, as ``predict_uncertainty`` of the model returns.

        Parameters
        ----------
        kind : str or list of str, default=None
            Measures among ``kinds``, or ``"all"``; None is the first.

        Returns
        -------
        uncertainty : ndarray of shape (n_samples[, n_targets]), or dict of them
            In the units of y; for classes in nats, or a share.
        """
        kind = self.kinds[0] if kind is None else kind

        def compute(wanted):
            parts = self._each(lambda block: block.uncertainty(wanted), by_draws=True)
            return {
                name: np.concatenate([part[name] for part in parts]) for name in wanted
            }

        return select_kinds(kind, self.kinds, compute)

    def rvs(self, size: int = 1, random_state: RandomState = 0) -> Array:
        """Draw y: one function for all rows, and independent noise in every row.

        Parameters
        ----------
        size : int, default=1
            Number of samples.
        random_state : int, RandomState instance or None, default=0

        Returns
        -------
        y : ndarray of shape (n_samples[, n_targets], size)
            Target values, or labels.
        """
        return self._sampled(size, random_state, lambda block, *how: block.sample(*how))

    def functions(self, size: int = 1, random_state: RandomState = 0) -> Array:
        """Draw functions from the posterior, without observation noise.

        Parameters
        ----------
        size, random_state : as in ``rvs``

        Returns
        -------
        f : ndarray of shape (n_samples[, n_targets or n_classes], size)
            Function values, or class probabilities.
        """
        return self._sampled(
            size, random_state, lambda block, draws, _: block.sample_f(draws)
        )

    @default_settings
    def _sampled(self, size, random_state, sample) -> Array:
        check_number("size", size, kind=Integral, low=1)
        draw_random, noise_random = generators(random_state)
        parts: list[np.ndarray] = []
        draws, n_draws = None, 0
        for part in self._parts:
            for _, block in part.blocks(by_draws=True).blocks():
                if block.n_draws != n_draws:
                    n_draws = block.n_draws
                    draws = draw_random.integers(n_draws, size=size)
                parts.append(sample(block, draws, noise_random))
        return np.concatenate(parts)


class RegressionDistribution(PredictiveDistribution):
    """Predictive distribution of a regression: see :class:`PredictiveDistribution`.

    Results are in the units of y. They have an axis of targets if y of the fit had one.
    """

    kinds = REGRESSION_KINDS

    def mean(self) -> Array:
        """Mean, (n_samples[, n_targets])."""
        return self._joined(lambda block: block.mean(), by_draws=True)

    def std(self) -> Array:
        """Standard deviation, including observation noise, (n_samples[, n_targets])."""
        return self.uncertainty("total")

    def var(self) -> Array:
        """Variance, (n_samples[, n_targets])."""
        return np.square(self.std())

    def cov(self) -> Array:
        """Covariance of the targets of each row, (n_samples, n_targets, n_targets)."""
        return self._joined(lambda block: block.covariance())

    def moments(self, covariance: bool = False) -> tuple[Array, Array]:
        """Mean and standard deviation, or covariance, from one pass over the draws."""
        if covariance:
            parts = self._each(lambda block: (block.mean(), block.covariance()))
        else:
            parts = self._each(lambda block: block.mean_and_std(), by_draws=True)
        mean, spread = map(np.concatenate, zip(*parts, strict=True))
        return mean, spread

    def epistemic(self) -> Array:
        """Standard deviation of the functions that ``functions`` draws.

        returns : (n_samples[, n_targets])
        """
        return self.uncertainty("epistemic")

    def aleatoric(self) -> Array:
        """Standard deviation of the observation noise, (n_samples[, n_targets])."""
        return self.uncertainty("aleatoric")

    def median(self) -> Array:
        """Median, (n_samples[, n_targets])."""
        return self.ppf(0.5)

    def ppf(self, q: float | Sequence[float]) -> Array:
        """Quantiles, the inverse of ``cdf``.

        Parameters
        ----------
        q : float or sequence of float in (0, 1)

        Returns
        -------
        quantile : ndarray of shape (n_samples[, n_targets][, n_levels])
            The last axis exists if q is a sequence. For counts it is the smallest count
            whose cumulative probability reaches q. If y is a lifetime, ``ppf(0.5)`` is
            its median.
        """
        levels = check_levels("q", q)
        result = self._joined(
            lambda block: np.stack([block.quantile(level) for level in levels], -1)
        )
        return result if np.ndim(q) else result[..., 0]

    @names_parameters
    def interval(
        self, coverage: float | Sequence[float] = 0.9, kind: str = "equal_tailed"
    ) -> Array:
        """Interval that contains y with a given probability.

        Parameters
        ----------
        coverage : float or sequence of float in (0, 1), default=0.9
        kind : {"equal_tailed", "highest_density"}, default="equal_tailed"
            Interval with equal probability below and above, or the shortest one.

        Returns
        -------
        interval : ndarray of shape (n_samples[, n_targets][, n_coverages], 2)
        """
        coverages = check_levels("coverage", coverage)
        result = self._joined(lambda block: block.interval(coverages, kind))
        return result if np.ndim(coverage) else result[..., 0, :]

    def cdf(self, y: ArrayLike) -> Array:
        """Probability of values up to y, (n_samples[, n_targets])."""
        return self._joined(lambda block, y: block.cdf(y), self._checked(y))

    def sf(self, y: ArrayLike) -> Array:
        """Probability of values above y, (n_samples[, n_targets]).

        If y is a lifetime, this is the probability to survive the time y.
        """
        return 1 - self.cdf(y)

    def sf_interval(self, times: Sequence[float], coverage: float = 0.9) -> Array:
        """Posterior interval of ``sf`` at several values: its epistemic uncertainty.

        Parameters
        ----------
        times : sequence of float
            Values of y, the same for all rows.
        coverage : float in (0, 1), default=0.9

        Returns
        -------
        interval : ndarray of shape (n_samples[, n_targets], n_times, 2)
        """
        [coverage] = check_levels("coverage", coverage)
        tails = [(1 - coverage) / 2, (1 + coverage) / 2]

        def bounds(block, y):
            return np.quantile(1 - block.cdf_of_draws(y), tails, axis=0)

        return np.moveaxis(self._at(times, bounds, axis=1), 0, -1)

    def cdf_at(self, values: Sequence[float]) -> Array:
        """``cdf`` of the same values for all rows, (n_samples[, n_targets], n_values).

        One minus it is a survival curve, if the values are times.
        """
        return self._at(values, lambda block, y: block.cdf(y))

    def _at(self, values, function, axis: int = 0) -> Array:
        """Join results of a function of a block and of each value; a new last axis.

        axis : of the rows in a result
        """

        def of_block(block):
            shape = block.components.n_rows, block.components.n_targets
            return np.stack([function(block, np.full(shape, v)) for v in values], -1)

        values = np.asarray(values, dtype=np.float64)
        if values.ndim != 1 or not len(values) or np.isnan(values).any():
            raise ValueError(
                "the values must be a sequence of numbers, at least one, without NaN; "
                f"got an array of shape {values.shape}."
            )
        return np.concatenate(self._each(of_block), axis)

    def pmf(self, y: ArrayLike) -> Array:
        """Probability of exactly y, (n_samples[, n_targets]).

        It is positive for counts, at bounds of y that values are recorded as, and at a
        point mass, and zero where y has a density.
        """
        return self._joined(lambda block, y: block.mass(y), self._checked(y))

    def pit(self, y: ArrayLike) -> Array:
        """Bounds of the probability integral transform, (n_samples[, n_targets], 2).

        P(Y < y) and P(Y <= y); they are equal unless ``pmf(y)`` is positive. Of
        intervals, the distribution function at both ends. If the model is calibrated, a
        value drawn uniformly between the bounds is uniform in [0, 1] (Czado, Gneiting &
        Held 2009, "Predictive model assessment for count data", Biometrics 65).
        """
        return self._joined(
            lambda block, y: np.moveaxis(block.pit(y), 0, -1), self._checked(y)
        )

    def logpdf(self, y: ArrayLike) -> Array:
        """Log density of y in nats, joint over targets, (n_samples,).

        For counts it is the log probability, and for intervals of ``interval_target``
        whose ends differ.
        """
        y = self._checked(y)
        by_draws = y.dtype.names is None
        return self._joined(lambda block, y: block.log_density(y), y, by_draws=by_draws)

    def pdf(self, y: ArrayLike) -> Array:
        """Exponential of ``logpdf``, (n_samples,)."""
        return np.exp(self.logpdf(y))

    def crps(self, y: ArrayLike, low: float = -np.inf, high: float = np.inf) -> Array:
        """Continuous ranked probability score, averaged over targets, (n_samples,).

        The integral of (F(z) - 1[y <= z])^2 over z between ``low`` and ``high``. Give
        the limits for intervals: the threshold-weighted score is proper if they are the
        same for all rows, whatever y is (Gneiting & Ranjan 2011, "Comparing density
        forecasts using threshold- and quantile-weighted scoring rules", eq. 16). For
        values below a limit of detection, ``low`` is the limit; for lifetimes, ``high``
        is a time until which every row was observed. Score intervals without common
        limits by ``logpdf``: an unweighted CRPS may prefer a wrong model (Rindt et al.
        2022, "Survival regression with proper scoring rules and monotonic neural
        networks", AISTATS).

        Parameters
        ----------
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Measured values, or intervals outside of the limits.
        low, high : float, default=-inf, inf
            Limits, in y's units.

        Returns
        -------
        crps : ndarray of shape (n_samples,)
            In y's units; 0 is best.

        Raises
        ------
        ValueError
            If y has an interval that overlaps the limits.
        """
        if not low < high:
            raise ValueError(f"`low` must be below `high`; got {low} and {high}.")
        y = self._checked(y)
        return self._joined(lambda block, y: block.crps(y, low, high), y)

    def expect(self, function: Callable[[Array], Array]) -> Array:
        """Expected value of a function of y.

        It is computed by quadrature of every draw: exact for polynomials up to degree
        60 and normal noise, and approximate for functions with kinks.

        Parameters
        ----------
        function : callable
            Maps an array of values of y, of any shape, to an array of that shape. With
            several targets it is applied to each value.

        Returns
        -------
        expected : ndarray of shape (n_samples[, n_targets])
        """
        return self._joined(lambda block: block.expect(function))

    def support(self) -> tuple[Array, Array]:
        """Lower and upper bound of the values that y can have.

        Returns
        -------
        lower, upper : float or ndarray of shape (n_targets,)
        """
        bounds = self._first.support()
        lower, upper = (np.asarray(bound)[()] for bound in bounds)
        return lower, upper


class ClassDistribution(PredictiveDistribution):
    """Predictive distribution of a class: see :class:`PredictiveDistribution`."""

    kinds = CLASSIFICATION_KINDS

    @property
    def classes(self) -> Array:
        """Labels of the columns of ``proba``."""
        return self._first.classes

    def proba(self) -> Array:
        """Class probabilities, averaged over the posterior, (n_samples, n_classes)."""
        return self._joined(lambda block: block.mean(), by_draws=True)

    def logpmf(self, labels: ArrayLike) -> Array:
        """Log probability of one label per row, in nats, (n_samples,).

        Raises
        ------
        ValueError
            If a label is not among the classes of the model.
        """

        def of_block(block: Predictive, labels):
            labels = column_or_1d(labels)
            check_known(labels, block.classes)
            return block.log_density(labels)

        return self._joined(of_block, self._checked(labels), by_draws=True)

    # For code that scores regressions and classifications.
    logpdf = logpmf

    def pmf(self, labels: ArrayLike) -> Array:
        """Probability of one label per row, (n_samples,)."""
        return np.exp(self.logpmf(labels))

    def entropy(self) -> Array:
        """Entropy of the mean probabilities in nats, the total uncertainty."""
        return self.uncertainty("entropy")

    def mutual_information(self) -> Array:
        """Entropy minus the mean entropy of the draws, the epistemic uncertainty."""
        return self.uncertainty("mutual_information")

    def epistemic(self) -> Array:
        """Same as ``mutual_information``, in nats, (n_samples,)."""
        return self.mutual_information()

    def aleatoric(self) -> Array:
        """Mean entropy of the draws in nats, (n_samples,)."""
        return self.uncertainty("expected_entropy")

    def expect(self, cost: ArrayLike) -> Array:
        """Expected cost of each row.

        Parameters
        ----------
        cost : array-like of shape (n_classes,) or (n_classes, n_actions)
            Cost of each true class, in the order of ``classes``; of each action.

        Returns
        -------
        expected : ndarray of shape (n_samples,) or (n_samples, n_actions)
        """
        probability, cost = self.proba(), np.asarray(cost, dtype=np.float64)
        if cost.ndim not in (1, 2) or len(cost) != probability.shape[1]:
            raise ValueError(
                f"`cost` must have {probability.shape[1]} rows, one for each of the "
                f"classes {self.classes.tolist()}; got shape {cost.shape}."
            )
        return probability @ cost
