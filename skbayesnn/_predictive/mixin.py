"""Methods of all estimators with a predictive distribution.

A subclass opens its predictive distribution on some rows. Every method is one line on
the ``PredictiveDistribution`` of these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import r2_score

from skbayesnn._data.target import as_intervals
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.by_blocks import by_blocks
from skbayesnn._predictive.distribution import (
    ClassDistribution,
    ModelRows,
    PredictiveDistribution,
    RegressionDistribution,
)
from skbayesnn._predictive.summaries import to_frame
from skbayesnn._runtime import (
    default_settings,
    imported,
    on_snapshot,
    snapshot,
    store_parameters,
)
from skbayesnn._typing import Array, MatrixLike, OutputPath, RandomState
from skbayesnn._validation import check_number, check_one_of_std_and_cov
from skbayesnn.metrics._validation import drop_zero_weights, weighted_mean


class PredictiveMixin:
    """Methods of regressors and classifiers with a predictive distribution."""

    _store = store_parameters

    def _open_predictive(self, X) -> PredictiveBlocks:
        """Open the predictive distribution, with all draws of a block in memory."""
        raise NotImplementedError

    # Class of the distributions that ``predict_distribution`` returns.
    _distribution_class: type[PredictiveDistribution]

    @default_settings
    def predict_distribution(self, X: MatrixLike) -> Any:
        """Predict the distribution of y, as an object with SciPy's names.

        Use it to compute several results for the same rows, or what no method of the
        estimator returns.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        distribution : PredictiveDistribution
            It computes results when a method is called. Later fits do not change it.
        """
        distribution = self._lazy_distribution(X)
        distribution.open()
        return distribution

    def _lazy_distribution(self, X, method: str = "draws") -> Any:
        """``predict_distribution`` that is opened when a result is computed.

        Only networks have other methods than "draws".
        """
        if isinstance(method, str) and method == "draws":
            return self._distribution_class([ModelRows(snapshot(self), X)])
        raise ValueError(
            f"`method` must be 'draws' for {type(self).__name__}; got {method!r}."
        )

    @by_blocks
    def predict_uncertainty(
        self,
        X: MatrixLike,
        kind: Any = None,
        as_frame: bool = False,
        *,
        output: OutputPath = None,
    ) -> Any:
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
        distribution = self._lazy_distribution(X)
        kind = distribution.kinds[0] if kind is None else kind
        values = distribution.uncertainty(kind)
        return to_frame(values, kind, X) if as_frame else values

    @by_blocks
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

        return self._lazy_distribution(X).logpdf(y)

    def report(
        self,
        X: MatrixLike,
        y: ArrayLike | None = None,
        *,
        X_train: MatrixLike | None = None,
        target: int | None = None,
        random_state: RandomState = 0,
        n_rows: int = 5,
        monitor: Any = None,
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
        monitor : DriftMonitor, default=None
            Its alarms are shown.

        Returns
        -------
        report : Report
            ``report.save("report.html")`` writes the page; a notebook shows it.
            ``report.scores`` is a dict of the scores, such as ``"R^2"`` and
            ``"90 % intervals cover"``; ``report.constant_scores`` of a constant.
        """
        # The page draws with displays, which are above the estimators.
        page_of = imported("skbayesnn._report").page_of
        return page_of(self, X, y, X_train, target, random_state, n_rows, monitor)

    @by_blocks
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
        check_number("n_samples", n_samples, kind=Integral, low=1)
        return self._lazy_distribution(X).functions(n_samples, random_state)

    @by_blocks
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
        check_number("n_samples", n_samples, kind=Integral, low=1)
        return self._lazy_distribution(X).rvs(n_samples, random_state)


class RegressionPredictiveMixin(PredictiveMixin):
    """Methods of regressors with a predictive distribution."""

    _distribution_class = RegressionDistribution

    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[False] = False,
        return_cov: Literal[False] = False,
        *,
        method: str = "draws",
        output: OutputPath = None,
    ) -> Array: ...
    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        method: str = "draws",
        output: OutputPath = None,
    ) -> tuple[Array, Array]: ...
    @by_blocks
    def predict(
        self, X, return_std=False, return_cov=False, *, method="draws", output=None
    ):
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
        method : {"draws", "mean_weights"}, default="draws"
            Leave the default unless predictions must be fast. ``"draws"`` averages
            ``n_draws`` posterior draws. ``"mean_weights"``, which only networks have,
            runs each network once with the posterior means of its weights (units scaled
            by their probability of being kept, the standard dropout approximation
            [1]_). This is about a hundred times as fast, and the mean is slightly
            different. The standard deviation then contains the observation noise and
            the spread of the ensemble members, but not the spread of the draws.
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

        References
        ----------
        .. [1] Srivastava et al. (2014), "Dropout: a simple way to prevent neural
           networks from overfitting", JMLR 15, section 4.
        """
        if return_cov:
            check_one_of_std_and_cov(return_std)
        return self._predict(X, return_std, return_cov, method)

    def _predict(self, X, return_std, return_cov, method):
        distribution = self._lazy_distribution(X, method)
        if return_std or return_cov:
            return distribution.moments(return_cov)
        return distribution.mean()

    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Coefficient of determination R^2; of intervals, the mean log probability.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Numbers, or intervals as :func:`skbayesnn.interval_target` makes them.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
            Larger is better. For numbers R^2 of ``predict(X)``. Intervals have no R^2:
            for them the weighted mean of ``log_predictive_density(X, y)``.
        """
        if as_intervals(y) is None:
            return float(r2_score(y, self.predict(X), sample_weight=sample_weight))
        density = self.log_predictive_density(X, y)
        weights, density = drop_zero_weights(sample_weight, density)
        return weighted_mean(density, weights)

    @by_blocks
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
        return self._lazy_distribution(X).ppf(q)

    @by_blocks
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
        return self._lazy_distribution(X).interval(coverage, kind)

    @by_blocks
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
        return self._lazy_distribution(X).cdf(y)

    @by_blocks
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
        return self._lazy_distribution(X).crps(y)


class ClassificationPredictiveMixin(PredictiveMixin):
    """Methods of classifiers with a predictive distribution."""

    _distribution_class = ClassDistribution
    classes_: Any

    @by_blocks
    @on_snapshot
    def predict(
        self, X: MatrixLike, *, method: str = "draws", output: OutputPath = None
    ) -> Array:
        """Predict the class of the largest mean probability.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        method : {"draws", "mean_weights"}, default="draws"
            How to compute the probabilities, as in ``predict_proba``.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Predicted labels.
        """
        # Subclasses may override predict_proba(X) without the parameter `method`.
        options = {} if method == "draws" else {"method": method}
        # First compute: before `fit`, `classes_` does not exist.
        codes = self.predict_proba(X, **options).argmax(1)
        return self.classes_[codes]

    @by_blocks
    @on_snapshot
    def predict_proba(
        self, X: MatrixLike, *, method: str = "draws", output: OutputPath = None
    ) -> Array:
        """Predict class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        method : {"draws", "mean_weights"}, default="draws"
            Leave the default unless predictions must be fast. ``"draws"`` averages
            ``n_draws`` posterior draws. ``"mean_weights"``, which only networks have,
            runs each network once with the posterior means of its weights (units scaled
            by their probability of being kept). It is about a hundred times as fast,
            and its probabilities are more confident.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        probability : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        return self._lazy_distribution(X, method).proba()

    @by_blocks
    def predict_log_proba(self, X: MatrixLike, *, output: OutputPath = None) -> Array:
        """Predict logarithms of class probabilities; see ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))
