"""Stack of Bayesian regressors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from skbayesnn import _stored as stored
from skbayesnn._data.scaling import UNCERTAIN_ROWS
from skbayesnn._data.table_encoder import AVERAGED
from skbayesnn._data.target import as_intervals
from skbayesnn._data.validation import check_numbers, check_target_given
from skbayesnn._meta.conformal_scores import cross_intervals, warn_of_few
from skbayesnn._predictive.by_blocks import by_blocks
from skbayesnn._predictive.mixin import RegressionPredictiveMixin
from skbayesnn._runtime import on_snapshot, warn_of_rows
from skbayesnn._sklearn_compat import RegressorMixin, safe_indexing
from skbayesnn._stacking.base import BayesianStacking, StackParameters
from skbayesnn._stacking.summary import (
    summarise_intervals,
    summarise_regression,
    warn_if_nothing_is_explained,
)
from skbayesnn._typing import Array, MatrixLike, OutputPath
from skbayesnn._validation import check_levels, check_option
from skbayesnn.estimators._parameters import parameters

# Predictions warn of rows whose epistemic standard deviation is larger than this
# multiple of the largest of the held-out rows.
FAR = 2.0


@parameters
class _Parameters(StackParameters):
    """Also those of one stack."""

    weights: str = "log_density"
    y_bounds: Any = None
    exposure: str | int | None = None


class BayesianStackingRegressor(
    _Parameters, RegressionPredictiveMixin, RegressorMixin, BayesianStacking
):
    """Weighted mixture of networks, linear models, forests and neighbours.

    Use it when accuracy and calibrated intervals matter more than training time: it
    needs no tuning. It trains a pool of candidates by cross-validation, all candidates
    and folds together in a few batched programs, and estimates the weights that
    maximise the log density of the held-out rows [1]_. The candidates with positive
    weight are refitted to all rows, networks from several random starts. The
    predictive distribution is their weighted mixture. With the default pool a fit takes
    seconds to minutes, many times as long as a fit of one network.

    Parameters
    ----------
    estimators : {"fast", "auto", "best"} or list of tuple, default="auto"
        The pool of candidates. Leave the default unless time matters. ``"fast"`` is for
        first results. ``"best"`` takes up to five times as long as ``"auto"``; on nine
        UCI sets its CRPS is 2 % lower on average.

        ``"auto"`` contains networks, linear models, forests, networks by evidence and
        neighbours. The networks have two hidden layers, observation noise that depends
        on the input, and several length scales. Some have relu units and no dropout,
        the others silu units and dropout. Some get the original columns, the others
        columns that are encoded by
        :class:`~skbayesnn.preprocessing.PiecewiseLinearEncoder`. Forests are used with
        at least 200 rows. Each of their trees is one draw, a normal distribution about
        the mean of y in a leaf. A :class:`LaplaceRegressor` is used up to 20,000 rows,
        a :class:`NeighbourRegressor` from 5,000 rows on. A sparse X with at most 256
        columns and 2^25 entries is made dense. See Notes for few rows and many columns.

        ``"fast"`` contains four or five of these networks, trained for at most 2,500
        steps, and smaller forests, but no neighbours. On nine UCI sets it takes a
        quarter to five sixths of the time, and its CRPS is 0 to 17 % higher. ``"best"``
        also contains networks with three hidden layers and twice as wide ones, and has
        up to six starts instead of four, and five folds with fewer than 3,000 rows.

        A list contains (name, estimator) or (name, estimator, grid of its parameters).
        :func:`~skbayesnn.default_pool` is the list of the candidates of a size, to
        which you can append others: networks of this package, and regressors of
        scikit-learn and other libraries. Their kinds of observation noise may differ,
        except that counts (``likelihood="poisson"``) are mixed with counts only. See
        Notes for regressors of other libraries.
    weights : {"log_density", "crps"}, default="log_density"
        Score of the held-out rows that the weights of the candidates optimise. The log
        density is sensitive to outliers and rewards a correct width of the predictive
        distribution in every row. The continuous ranked probability score is an error
        in units of y, which is less sensitive to both. With ``"log_density"``, three
        quarters of the weight maximise the log density, and one quarter minimises the
        CRPS among the candidates that have weight by log density. See Notes for y with
        ties.
    y_bounds : (low, high), default=None
        Bounds that y cannot exceed; None for a missing one. Give them if you know them:
        no predicted probability is outside. Without them, the smallest value of y is a
        floor if many rows have it, and so is the largest value a cap; see ``target_``.
    exposure : str or int, default=None
        Column of X with the exposure of each row, if y is a count. Networks for counts
        then model the count per unit of exposure; see :class:`MCDropoutRegressor`.
    categorical_features : "from_dtype", array-like of str, int or bool, or None, \
default="from_dtype"
        Columns that contain categories. Leave the default unless integers are codes of
        categories: columns of text and of categories are found by their type. Or names
        or indices of further columns, or a mask of all columns. See
        :class:`~skbayesnn.preprocessing.TableEncoder`.
    cv : int, cross-validation generator or iterable, default=None
        Folds. Give ``TimeSeriesSplit`` if the rows are ordered in time: with shuffled
        folds ``summary_`` does not measure the error on future rows. None is five
        shuffled folds with fewer than 700 rows, and one held-out fifth, at most 4,000
        rows, with more. An int is a number of shuffled folds.
    n_refits : "auto" or int, default="auto"
        Networks fitted to all rows, from different starts, for each candidate with
        positive weight. With more networks, predictions are more accurate and the fit
        takes longer. A candidate with a larger ``n_estimators`` keeps it;
        neighbours always have their ``n_estimators``, one in the default pool.
        ``"auto"`` is 2, up to 4 for candidates with more than a quarter of the weight
        (networks by evidence from 3,000 rows on: 2);
        with ``"fast"`` 2, from 3,000 rows on 1, and with ``"best"`` 2 to 6.
    max_iter : "auto" or int, default="auto"
        Number of epochs of the default candidates; neighbours have as many training
        steps as the networks. ``"auto"`` depends on the number of rows.
    n_jobs : int, default=None
        Number of joblib processes, each of which trains a program. None is one, in
        this process; -1 is one per processor. ``joblib.parallel_config`` selects Dask
        or Ray, as for :class:`~skbayesnn.model_selection.BatchedGridSearchCV`.
    memory_budget : float, default=None
        Memory in mebibytes for the networks that are trained at the same time. None is
        scikit-learn's ``working_memory``.
    n_selection_rows : int, default=50_000
        With more rows, the candidates are compared and weighted on a random sample of
        about this number. Rare classes have at least 20 rows in it, and the order of
        the rows is kept. Networks with positive weight are then fitted to all rows, in
        blocks. So are other models, such as forests, if the table is small by the
        working memory (256 bytes for each value of X); otherwise they stay fitted to
        the sample. Attributes by row, such as ``oof_prediction_``, are for the rows of
        the sample, ``sample_rows_``.
    time_limit : float, default=None
        Seconds that ``fit`` may take, such as in a nightly job. None is no limit.
        Candidates are trained in the order of their value for their seconds. Those that
        are finished in time are weighted and fitted to all rows, with fewer starts if
        necessary. At least one candidate is always fitted. The next ``fit`` to the same
        data, with a larger limit or none, trains only what is missing.
    device : str, torch.device or list of these, default="auto"
        Device of the default candidates.
    verbose : "auto", bool or int, default="auto"
        "auto": in a terminal or notebook, a fit that lasts longer than five seconds
        shows one line with its progress, which is removed at the end. If at least 1
        (True), print the progress, the expected time left, and ``summary_``. 0 (False)
        is silent.
    random_state : int, RandomState instance or None, default=None
        Seed of folds and candidates.

    Attributes
    ----------
    weights_ : DataFrame
        ``"weight"`` and two mean out-of-fold scores of each candidate, in order of
        decreasing weight: ``"log_density"`` (nats, y in its own units) and ``"crps"``
        (in standard deviations of y, from at most 500 rows). A candidate
        with a low log density can have weight because of its CRPS. Candidates that
        were dropped after a comparison on a part of the rows have its scores. A dict of
        dicts if pandas is not installed; ``weights_["weight"][name]`` works in both
        cases.
    estimators_ : list of estimator
        The candidates with positive weight, fitted to all rows. They take the encoded
        columns, ``model.table_.transform(X)``; or an array of X, if ``table_`` is None;
        or a frame, where ``on_frame_`` is true.
    n_draws_ : ndarray of int
        Number of posterior draws of each of ``estimators_`` in the mixture, 200 in
        total.
    fold_estimators_ : list of list of estimator
        The same candidates for each fold, fitted to the other folds. This and
        ``fold_scores_`` exist only if no row is held out twice.
    fold_scores_ : list of ndarray of shape (n_rows, n_targets)
        |y - mean| / std of the rows of each fold, under the mixture fitted to the other
        folds and corrected by ``spread_factor_``.
    spread_factor_ : ndarray of shape (n_targets,)
        Factor by which the mixture is spread about its mean. It maximises the
        log density of the held-out rows, under a prior that keeps its logarithm near
        zero. It is then reduced, because refits from several starts have a smaller
        squared error than the single start of cross-validation. It moves the mean of a
        draw by at most one standard deviation of its observation noise: otherwise a
        candidate with a large error in a row would move the draws of the other
        candidates away from y.
    target_ : str
        What y is: plain numbers, or intervals, limits with many rows, and the scale on
        which further candidates were fitted.
    candidate_spaces_ : list of dict or None
        For each of ``estimators_``, from y to what it was fitted to. It exists if one
        of them was not fitted to y itself.
    oof_prediction_, oof_std_ : ndarray of shape (n_samples,) or (n_samples, n_targets)
        Out-of-fold mean and total standard deviation of the mixture, in y's units:
        one start of each candidate, with the factor estimated on the held-out rows. NaN
        for rows that were never held out.
    oof_log_density_ : ndarray of shape (n_samples,)
        Out-of-fold log density of y, nats; for a repeated value the mean density over
        its cell (see Notes).
    largest_epistemic_ : ndarray of shape (n_targets,)
        Largest epistemic standard deviation of the held-out rows. Predictions warn of
        rows in which it is more than twice as large.
    summary_ : Summary
        Out-of-fold log density, R^2 and coverage: ``print(model.summary_)``. The
        networks were not fitted to these rows, but the weights and the factor were. The
        log density is the mean of ``oof_log_density_``, in nats per row. Compare it
        with ``weights_`` and with other models of the same y in the same units. A
        normal distribution with the mean and the standard deviation s of y has
        -1.42 - log(s).
    n_iter_ : int
        Number of epochs of the longest refit.
    on_frame_ : list of bool
        Whether each of ``estimators_`` gets a frame as it is given, and not its encoded
        columns.
    fitted_to_sparse_ : bool or None
        Whether X was a sparse matrix; None if all ``estimators`` are given and of this
        package, which validate X themselves.
    n_features_in_, feature_names_in_
        The names exist if X has names, unless all candidates are given estimators of
        this package.

    Notes
    -----
    With fewer than 700 rows, or more than one column per five rows, the linear models
    are ridge, lasso and adaptive lasso [3]_, with penalties estimated by
    cross-validation. Their posterior is normal, given the prior variances that the
    penalty implies. They require 10 to 1,000 rows and at most 2^22 entries of X;
    otherwise linear models are trained like the networks. If X has at least as many
    columns as rows, the pool has two networks, both on the original columns, and no
    forests or neighbours. There are also no neighbours with several targets or a sparse
    X.

    The forests are extremely randomised trees [4]_. In three candidates a leaf has one
    row, and the standard deviation about it is a share of the standard deviation of y:
    0.03, 0.1 or 0.25. In one candidate a leaf has at least three rows and their
    variance. Their size is limited to 55 MB for each fit, that is 110 MB with one
    held-out part: with many rows they have fewer trees, and then more rows in a leaf.
    The mean of a forest is a weighted sum of y. Its epistemic part is the standard
    deviation of this sum under independent noise of y. The rest of the spread of the
    trees is aleatoric [6]_.

    A regressor of another library has normal observation noise. Its variance is
    estimated from the out-of-fold residuals: one variance, or one for each bin of the
    predicted mean. If the regressor predicts variances, by ``predict(X,
    return_std=True)`` or ``pred_dist(X)`` (NGBoost), these or a multiple of them are
    used. Of these forms the one with the largest log density of held-out rows is
    selected. The epistemic part of such a candidate is zero.

    Regressors that predict quantiles of one target are recognised by their loss:
    ``"quantile"`` in scikit-learn and LightGBM, ``QuantileRegressor``,
    ``"reg:quantileerror"`` in XGBoost, ``"Quantile"`` or ``"MultiQuantile"`` in
    CatBoost; or by ``predict(X, quantiles=...)`` as in quantile-forest. If its
    parameters do not contain several levels, they are 0.025, 0.1, 0.2, ..., 0.9 and
    0.975. A regressor that predicts one quantile is fitted once per level, whatever
    its own level is. Quantiles that cross are sorted. The density is constant between
    two quantiles, and at most 1000 / standard deviation of y. Beyond the outer ones
    the tails are exponential, with the slope of log F, or log(1 - F), between the
    outer and the middle quantile [5]_, and a scale of at least 3 % of the standard
    deviation of y. The spread of such a candidate about its mean is multiplied by
    the factor that is likeliest out of fold.

    ``sample_weight`` is passed to the ``fit`` of these regressors if it takes weights;
    otherwise only rows without weight are left out. If X is a frame, pipelines and
    estimators whose parameters name categorical columns (``cat_features``,
    ``categorical_features``, ``enable_categorical=True``) get it as it is given. Others
    get its encoded columns.
    :func:`~skbayesnn.save` stores these candidates by skops.

    Some candidates are dropped before the weights are estimated:

    - a candidate with constant predictions, unless it has the largest log density;
    - a candidate that equals another one;
    - a candidate whose CRPS is not below the CRPS of a constant, a normal distribution
      with the mean and the standard deviation of y, unless this holds for all;
      of lifetimes, one whose log density is not above the Kaplan-Meier estimator's;
    - with fewer than 150 rows, a candidate with more than three times the smallest
      squared error;
    - a candidate without positive density in any held-out row.

    Narrow spikes at repeated values of y could have any log density. A repeated value
    of y therefore stands for its cell, which ends half-way to the next values, and at
    the latest at a distance of the smallest mean absolute error of a candidate. Its log
    density is the log of the mean density over the cell, log(P(cell) / width). For
    integers with larger errors this is the log probability of the integer. Weights,
    ``weights_``, ``spread_factor_``, ``oof_log_density_`` and ``summary_`` use it;
    ``log_predictive_density`` is the density at y. Counts
    (``likelihood="poisson"``) have log probabilities.

    References
    ----------
    .. [1] Yao, Vehtari, Simpson & Gelman (2018), "Using stacking to average Bayesian
       predictive distributions", Bayesian Analysis 13(3).
    .. [2] Barber, Candes, Ramdas & Tibshirani (2021), "Predictive inference with the
       jackknife+", Annals of Statistics 49(1).
    .. [3] Zou (2006), "The adaptive lasso and its oracle properties", JASA 101(476).
    .. [4] Geurts, Ernst & Wehenkel (2006), "Extremely randomized trees", Machine
       Learning 63(1).
    .. [5] Park, Maddix, Aubet, Kan, Gasthaus & Wang (2022), "Learning quantile
       functions without quantile crossing for distribution-free time series
       forecasting", AISTATS.
    .. [6] Lin & Jeon (2006), "Random forests and adaptive nearest neighbors", JASA
       101(474).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import BayesianStackingRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianStackingRegressor(max_iter=5, random_state=0).fit(X, y)
    >>> model.predict_interval(X[:3], coverage=0.9).shape
    (3, 2)
    """

    weights: Literal["log_density", "crps"]
    fold_estimators_: Annotated[
        list[Annotated[list[stored.Fitted], "candidates"]], "folds", stored.OPTIONAL
    ]
    fold_scores_: Annotated[
        list[Annotated[stored.Floats, stored.NOT_NEGATIVE]], "folds", stored.OPTIONAL
    ]
    oof_std_: Annotated[stored.Records, stored.OPTIONAL]
    largest_epistemic_: Annotated[stored.Floats, stored.POSITIVE, "_"]
    target_: Annotated[str, stored.OPTIONAL]
    y_bounds: Any
    exposure: Annotated[Any, str | int | None]
    _is_classification = False

    @by_blocks
    @on_snapshot
    def predict_interval(
        self,
        X: MatrixLike,
        coverage: float | Sequence[float] = 0.9,
        kind: str = "equal_tailed",
        method: str = "mixture",
        *,
        output: OutputPath = None,
    ) -> Array:
        """Predict an interval that contains y with a given probability.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        coverage : float or sequence of float in (0, 1), default=0.9
            Probability that the interval contains y; for counts at least this.
        kind : {"equal_tailed", "highest_density"}, default="equal_tailed"
            Interval with equal probability below and above, or the shortest one.
        method : {"mixture", "cv+"}, default="mixture"
            Leave the default unless the training set has only a few dozen rows.

            ``"mixture"`` takes quantiles of the predictive distribution. ``"cv+"``
            takes out-of-fold residuals in units of the predictive standard deviation,
            about the predictions of the fold networks (reference 2 of the class); with
            one held-out part these are split conformal intervals. If rows are
            exchangeable, "cv+" intervals of coverage c contain y with probability c in
            practice, even if the mixture is poor. This is not guaranteed, because the
            weights were fitted to the same rows. Their ``kind`` is ``"equal_tailed"``.
        output : path, default=None
            Parquet file for the results, one column each, written block by block.
            The method then returns None.

        Returns
        -------
        interval : ndarray of shape (n_samples[, n_targets][, n_coverages], 2)
            Lower and upper bound in y's units.
        """
        check_option("method", method, ["mixture", "cv+"])
        if method == "mixture":
            return super().predict_interval(X, coverage, kind)
        check_is_fitted(self)
        if kind != "equal_tailed":
            raise ValueError(
                "`kind` must be 'equal_tailed' with method='cv+', whose intervals have "
                f"no density; got {kind!r}. Set method='mixture'."
            )
        if not hasattr(self, "fold_estimators_"):
            raise ValueError(
                "method='cv+' needs a `cv` that holds each row out at most once, as "
                f"KFold does; got {self.cv!r}. Fit again with such a `cv`."
            )
        coverages = check_levels("coverage", coverage)
        rows = self._new_rows(X)
        tables = getattr(self, "fold_tables_", None)
        fold_blocks = (
            self._opened(
                models, tables[fold].encode(self, X, AVERAGED) if tables else rows, X
            )
            for fold, models in enumerate(self.fold_estimators_)
        )
        predicted = []
        for blocks in fold_blocks:
            moments = blocks.map(lambda _, block: block.mean_and_std())
            columns = map(np.concatenate, zip(*moments, strict=True))
            predicted.append([values.reshape(len(values), -1) for values in columns])
        for level in coverages:
            warn_of_few(sum(map(len, self.fold_scores_)), level)
        result = cross_intervals(predicted, self.fold_scores_, coverages)
        low, high = self.predict_distribution(safe_indexing(X, [0])).support()
        result = result.clip(*(np.reshape(v, (-1, 1, 1)) for v in (low, high)))
        result = result if self.oof_prediction_.ndim == 2 else result[:, 0]
        return result if np.ndim(coverage) else result[..., 0, :]

    def _checked_targets(self, y, X):
        check_target_given(self, y)
        intervals = as_intervals(y)
        if intervals is not None:
            return intervals
        y = check_numbers(self, y)
        return column_or_1d(y, warn=True) if y.shape[1:] == (1,) else y

    def _summary(self, mixture, oof):
        if oof.data.intervals is not None:
            return summarise_intervals(mixture, oof.observed, oof.weights)
        warn_if_nothing_is_explained(mixture.mean(), oof.y, oof.weights, oof.X)
        log_density = mixture.log_density(oof.observed)
        return summarise_regression(mixture, oof.y, oof.weights, log_density)

    def _out_of_fold_attributes(self, oof, mixture):
        return {
            "oof_prediction_": oof.by_row(mixture.mean()),
            "oof_std_": oof.by_row(mixture.uncertainty(["total"])["total"]),
            "oof_log_density_": oof.by_row(mixture.log_density(oof.observed)),
            "target_": str(oof.data.target),
        }

    def _mix(self, *predictives):
        mixture = super()._mix(*predictives)
        ratio = _epistemic(mixture) / self.largest_epistemic_
        if (n_far := np.count_nonzero((ratio > FAR).any(1))) > 0:
            warn_of_rows(
                self,
                "SKB303",
                UNCERTAIN_ROWS,
                f"{n_far} of {len(ratio)} rows are unlike the training rows: their "
                f"epistemic standard deviation is up to {ratio.max():.3g} times the "
                "largest of the rows that were held out in `fit`. Their means are "
                "extrapolations; check the columns of these rows.",
            )
        return mixture

    def _interval_attributes(self, mixture, oof, fold_models):
        n_rows = len(oof.y)
        std = mixture.uncertainty(["total"])["total"].reshape(n_rows, -1)
        used = oof.weights > 0
        # Less than a hundredth of the total never matters.
        largest = np.maximum(_epistemic(mixture), 0.01 * std)[used].max(0)
        attributes = {"largest_epistemic_": largest}
        if len(np.unique(oof.test_rows)) < n_rows or oof.data.intervals is not None:
            return attributes  # A row must not calibrate twice; intervals do not.
        # Divide residuals by the standard deviation that predictions have.
        # A row whose draws are all at a bound has no spread.
        least = np.finfo(float).eps * std.max(0)
        error = np.abs(oof.y - mixture.mean()).reshape(n_rows, -1)
        scores = error / np.maximum(std, least)
        fold_scores = [
            scores[used & (oof.fold == fold)] for fold in range(len(fold_models))
        ]
        return attributes | {
            "fold_estimators_": fold_models,
            "fold_scores_": fold_scores,
        }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _epistemic(mixture) -> np.ndarray:
    """Standard deviation of the means given each draw, (rows, targets)."""
    components = mixture.components
    return components.given_draws(components.mean).std(0)
