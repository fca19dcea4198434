"""Bayesian stacking of regressors."""

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from skbayesnn._data.validation import check_numbers, check_target_given
from skbayesnn._meta.cross_conformal import cross_interval, not_below_zero, too_few
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._predictive.mixin import (
    PredictiveBlocks,
    RegressionPredictiveMixin,
    mean_and_covariance,
)
from skbayesnn._predictive.summaries import checked_coverages
from skbayesnn._runtime import on_snapshot
from skbayesnn._sklearn_compat import RegressorMixin, safe_indexing
from skbayesnn._stacking.base import BayesianStacking
from skbayesnn._stacking.candidates import n_networks
from skbayesnn._stacking.summary import of_numbers, warn_if_nothing_is_explained
from skbayesnn._stacking.weights import corrected, factor_with_starts, share_of_starts
from skbayesnn._typing import Array, MatrixLike
from skbayesnn._validation import check_one_of_std_and_cov, check_option
from skbayesnn.estimators._diagnostics import some_rows

# Rows times targets on which the starts of fits to all rows are compared, at most.
ROWS_LOOKED_AT = 1_000


class BayesianStackingRegressor(
    RegressionPredictiveMixin, RegressorMixin, BayesianStacking
):
    """A weighted mixture of Bayesian neural networks that chooses itself.

    A pool of candidates is trained without each fold, all candidates and folds side by
    side in a few batched programs. Their weights make the held-out rows the likeliest
    [1]_: nothing is selected, so nothing is over-selected. The candidates with weight
    are then fitted to all rows, from several starts each, and the predictive is their
    weighted mixture.

    Parameters
    ----------
    estimators : "auto" or list of tuple, default="auto"
        The pool. ``"auto"``: networks of two hidden layers with a noise that depends on
        the input, of several length scales, without dropout (of relu) and with it (of
        silu), on the columns as they are and with
        :class:`~skbayesnn.preprocessing.PiecewiseLinearEncoder` in front; and linear
        models. A sparse X of at most 256 columns is dense for them, if it has at most
        2^25 entries then. See Notes for few rows and many columns. Or (name, estimator)
        or (name, estimator, grid of its parameters), with estimators of this package,
        also as the last step of a ``Pipeline``, and noise of one kind.
    cv : int, cross-validation generator or iterable, default=None
        Folds. None is five with fewer than 700 rows, and one held-out fifth from there
        on. Numbers mean shuffled folds. Rows in time order need
        ``TimeSeriesSplit``: with shuffled folds ``summary_`` says nothing about the
        future.
    n_refits : int, default=4
        Networks of each candidate with weight, from different starts, fitted to all
        rows; its own ``n_estimators`` where that is more.
    max_iter : "auto" or int, default="auto"
        Epochs of the default candidates.
    n_jobs : int, default=None
        Programs that are trained side by side, each in a process of joblib's; None is
        one, in this process, -1 all processors. Dask and Ray by
        ``joblib.parallel_config``, as for
        :class:`~skbayesnn.model_selection.BatchedGridSearchCV`.
    memory_budget : float, default=None
        Mebibytes that the networks in training may take; None is scikit-learn's
        ``working_memory``.
    device : str or torch.device, default="auto"
        Of the default candidates.
    verbose : bool or int, default=False
        From 1 (True) on, print what is done, how long that may still take, and
        ``summary_``.
    random_state : int, RandomState instance or None, default=None
        Determines folds and candidates.

    Attributes
    ----------
    weights_ : DataFrame
        ``"weight"`` and mean out-of-fold ``"log_density"`` (nats, y's units) of every
        candidate, the heaviest first; without pandas a dict of
        dicts, ``weights_["weight"][name]`` in both.
    estimators_ : list of estimator
        The candidates with weight, fitted to all rows. As the trees of a forest, they
        take X as an array: ``X.to_numpy()`` for a frame.
    n_draws_ : ndarray of int
        Of each of these in the mixture, 200 in all.
    fold_estimators_ : list of list of estimator
        The same candidates, fitted without each fold.
    fold_scores_ : list of ndarray of shape (n_rows, n_targets)
        Of each fold's rows, |y - mean| / std of the mixture that has not seen them,
        spread by ``spread_factor_``. Both only where no row is held out twice.
    spread_factor_ : ndarray of shape (n_targets,)
        By which the whole mixture is spread about its mean: so that the held-out rows
        are the likeliest, under a prior that holds its logarithm near zero; less what
        several starts in place of one take off the squared error of the mean, as far
        as the starts differ.
    spread_bound_ : float
        The factor moves the mean of a draw by at most this many standard deviations of
        its noise. So one candidate that is far off in a row does not draw the others
        away from y there.
    oof_prediction_, oof_std_ : ndarray of shape (n_samples,) or (n_samples, n_targets)
        What the mixture says of each row without having seen it: mean and total
        standard deviation, y's units; of one start of each candidate, with the spread
        that the held-out rows ask for. NaN for rows that were never held out.
    oof_log_density_ : ndarray of shape (n_samples,)
        Log density of y there, nats.
    summary_ : Summary
        Of these, in one line (weights and factor have seen these rows, networks have
        not): ``print(model.summary_)``. Its log density is the mean of
        ``oof_log_density_``, in nats per row: compare it with ``weights_`` and with
        other models of the same y, in the same units. A normal distribution with the
        mean and the standard deviation s of y has -1.42 - log(s).
    n_iter_ : int
        Epochs of the longest fit to all rows.
    fitted_to_sparse_ : bool or None
        Whether X was a sparse matrix; None of estimators that were given.
    n_features_in_, feature_names_in_
        The latter where X has names and the pool is the default.

    Notes
    -----
    With fewer than 700 rows, or more than one column per five rows, the linear models
    are ridge, lasso and adaptive lasso [3]_, with penalties estimated by held-out rows.
    Their posterior is normal, given the prior variances that the penalty implies. They
    need 10 to 1,000 rows and at most 2^22 entries of X; beyond, linear models are
    trained like the networks. With at least as many columns as rows, there are two
    networks, and none on encoded columns.

    Candidates are left out before weighting if their predictions are constant (unless
    no other candidate is likelier), if they equal another one, or if, with fewer than
    150 rows, their squared error is three times the smallest one.

    References
    ----------
    .. [1] Yao, Vehtari, Simpson & Gelman (2018), "Using stacking to average Bayesian
       predictive distributions", Bayesian Analysis 13(3).
    .. [2] Barber, Candes, Ramdas & Tibshirani (2021), "Predictive inference with the
       jackknife+", Annals of Statistics 49(1).
    .. [3] Zou (2006), "The adaptive lasso and its oracle properties", JASA 101(476).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import BayesianStackingRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianStackingRegressor(max_iter=5, random_state=0).fit(X, y)
    >>> model.predict_interval(X[:3], coverage=0.9).shape
    (3, 2)
    """

    fold_estimators_: list[list[Any]]
    fold_scores_: list[Array]
    oof_std_: Array
    _of_classes = False

    def __init__(
        self,
        estimators="auto",
        *,
        cv=None,
        n_refits=4,
        max_iter="auto",
        n_jobs=None,
        memory_budget=None,
        device="auto",
        verbose=False,
        random_state=None,
    ) -> None:
        self.estimators = estimators
        self.cv = cv
        self.n_refits = n_refits
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.memory_budget = memory_budget
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[False] = False,
        return_cov: Literal[False] = False,
    ) -> Array: ...
    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[True],
        return_cov: Literal[False] = False,
    ) -> tuple[Array, Array]: ...
    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[False] = False,
        *,
        return_cov: Literal[True],
    ) -> tuple[Array, Array]: ...
    @overload
    def predict(
        self, X: MatrixLike, return_std: bool = False, return_cov: bool = False
    ) -> Array | tuple[Array, Array]: ...
    @on_snapshot
    def predict(self, X, return_std=False, return_cov=False):
        """Mean of the mixture, and its total standard deviation.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        return_std : bool, default=False
        return_cov : bool, default=False
            Whether to return the covariance of the targets, of every row by itself;
            not with ``return_std``.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_targets)
            In y's units.
        std : ndarray of the same shape
            Only with ``return_std=True``; noise included (eq. 6).
        cov : ndarray of shape (n_samples, n_targets, n_targets)
            Only with ``return_cov=True``; its diagonal is std^2. Noise is independent
            over targets, what the draws say of them is not.
        """
        check_is_fitted(self)
        if return_cov:
            check_one_of_std_and_cov(return_std)
            return mean_and_covariance(self._open_predictive(X))
        if return_std:
            return _mean_and_std(self._open_predictive(X))
        return np.concatenate([one.mean() for _, one in self._blocks(X)])

    @on_snapshot
    def predict_interval(
        self,
        X: MatrixLike,
        coverage: float | Sequence[float] = 0.9,
        kind: str = "equal_tailed",
        method: str = "mixture",
    ) -> Array:
        """Interval that holds y with a given probability.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        coverage : float or sequence of float in (0, 1), default=0.9
            Probability inside; of counts at least.
        kind : {"equal_tailed", "highest_density"}, default="equal_tailed"
            Half of the rest on each side, or the shortest interval.
        method : {"mixture", "cv+"}, default="mixture"
            Of the predictive mixture; or, ``"cv+"``, from the out-of-fold residuals in
            units of the predictive standard deviation, about the predictions of the
            networks that have not seen these rows [2]_ (with one held-out part: split
            conformal intervals). If rows are exchangeable, "cv+" intervals of coverage
            c hold y with probability c in practice, whatever the mixture is worth (the
            weights have seen the residuals, so that it is not guaranteed): the choice
            for a few dozen rows. Their kind is ``"equal_tailed"``.

        Returns
        -------
        interval : ndarray of shape (n_samples[, n_targets][, n_coverages], 2)
            Lower and upper end in y's units.
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
                "method='cv+' needs a `cv` that holds each row out once at most, as "
                f"KFold does; got {self.cv!r}. Fit again with another one."
            )
        coverages = checked_coverages(coverage)
        X = self._checked_inputs(X)
        predicted = [
            [part.reshape(len(part), -1) for part in _mean_and_std(opened)]
            for opened in (self._opened(one, X) for one in self.fold_estimators_)
        ]
        n_rows, n_targets = predicted[0][0].shape
        n_scores = sum(map(len, self.fold_scores_))
        result = np.empty((n_rows, n_targets, len(coverages), 2))
        for i, level in enumerate(coverages):
            if too_few(n_scores, level):
                result[:, :, i] = -np.inf, np.inf
                continue
            for j in range(n_targets):
                result[:, j, i] = cross_interval(
                    [[part[:, j] for part in parts] for parts in predicted],
                    [scores[:, j] for scores in self.fold_scores_],
                    level,
                )
        one_row = safe_indexing(X, np.arange(1))
        result = not_below_zero(result, self._opened(self.estimators_, one_row))
        result = result if self.oof_prediction_.ndim == 2 else result[:, 0]
        return result if np.ndim(coverage) else result[..., 0, :]

    def _checked_targets(self, y):
        check_target_given(self, y)
        y = check_numbers(self, y)
        return column_or_1d(y, warn=True) if y.shape[1:] == (1,) else y

    def _summary(self, mixture, oof):
        warn_if_nothing_is_explained(mixture.mean(), oof.y, oof.weights, oof.X)
        return of_numbers(mixture, oof.y, oof.weights)

    def _out_of_fold(self, oof, mixture):
        return {
            "oof_prediction_": oof.by_row(mixture.mean()),
            "oof_std_": oof.by_row(mixture.uncertainty(["total"])["total"]),
            "oof_log_density_": oof.by_row(mixture.log_density(oof.y)),
        }

    def _factor_of_refits(self, stacked, kept, models, rows):
        before = [one.model.n_estimators for one in kept]
        now = [n_networks(one) for one in models]
        if not (stacked.mixture.has_spread and np.any(np.greater(now, before))):
            return stacked.factor
        some = np.flatnonzero(rows.weights)
        some = some_rows(some, max(ROWS_LOOKED_AT // stacked.factor.size, 1))
        X = safe_indexing(rows.X, some)
        parts = [open_predictive(one, X).whole() for one in models]
        n_draws = stacked.n_draws[stacked.n_draws > 0]
        taken_off = share_of_starts(parts, n_draws, before, now)
        return factor_with_starts(stacked.factor, taken_off, rows.weights[some])

    def _cross_fitted(self, folds, splits, oof, stacked, factor):
        if len(np.unique(oof.test_rows)) < len(oof.test_rows):
            return {}  # no row calibrates twice
        # In the units of what predicts.
        mixture = corrected(stacked.mixture, factor)
        n_rows = len(oof.y)
        residual = np.abs(oof.y - mixture.mean()).reshape(n_rows, -1)
        std = mixture.uncertainty(["total"])["total"].reshape(n_rows, -1)
        ends = np.cumsum([len(test) for _, test in splits])[:-1]
        scores, kept = (
            np.split(values, ends) for values in (residual / std, oof.weights > 0)
        )
        return {
            "fold_estimators_": folds,
            "fold_scores_": [one[rows] for one, rows in zip(scores, kept, strict=True)],
        }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _mean_and_std(opened: PredictiveBlocks) -> tuple[np.ndarray, np.ndarray]:
    """Of all rows, (rows[, targets])."""
    means, stds = [], []
    for _, one in opened.blocks():
        means.append(one.mean())
        stds.append(one.uncertainty(["total"])["total"])
    return np.concatenate(means), np.concatenate(stds)
