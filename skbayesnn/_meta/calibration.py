"""Recalibration of a regressor's predictive distribution on held-out rows."""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from skbayesnn._data.scaling import TRAINING_CODES
from skbayesnn._meta.base import BaseHeldOutMetaEstimator
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.mixin import PredictiveMixin, RegressionPredictiveMixin
from skbayesnn._predictive.recalibration import QuantileMap, likeliest_scale
from skbayesnn._runtime import default_settings, on_snapshot, silenced
from skbayesnn._sklearn_compat import RegressorMixin, safe_indexing
from skbayesnn._stored import OPTIONAL, Estimator, Fitted, PerTarget
from skbayesnn._typing import MatrixLike

# Most held-out rows for the correction: they determine the scale within 0.5 %.
MAX_ROWS = 20_000


class CalibratedUncertaintyRegressor(
    RegressionPredictiveMixin, RegressorMixin, BaseHeldOutMetaEstimator
):
    """Recalibrate the predictive distribution of a regressor by cross-validation.

    Use it if intervals are too narrow or too wide. As
    :class:`sklearn.calibration.CalibratedClassifierCV` with ``ensemble=False``, it fits
    a clone without each fold, estimates a correction on the held-out rows, and applies
    it to a model fitted to all rows. This costs one more fit per fold. Point
    predictions do not change. For classifiers use ``CalibratedClassifierCV`` with
    ``method="temperature"``.

    Parameters
    ----------
    estimator : estimator
        A regressor of this package, or a meta-estimator around one (see
        :mod:`skbayesnn`). A ``FrozenEstimator`` is not fitted again: all rows of
        ``fit`` calibrate, and the model must not have been fitted to them.
    method : {"scale", "isotonic"}, default="scale"
        Leave the default with few rows. With 300 rows or more try ``"isotonic"``: on
        six UCI tables of 277 to 8,611 training rows it had a lower error of the
        coverage, a lower CRPS and no lower log density than ``"scale"``. It cannot be
        exported to ONNX.

        ``"scale"`` multiplies the spread of draws and observation noise about the mean
        by one factor per target, which maximises the log predictive density [1]_.
        ``"isotonic"`` also corrects the shape, and requires several hundred rows. After
        the scaling, it maps the levels of the predictive distribution to the observed
        shares of y below them [2]_. (Without the scaling, the levels of a much too
        narrow distribution are all near 0 or 1, and the map is inaccurate.)
    cv : int, cross-validation generator or iterable, default=None
        Folds. None is five folds.
    n_jobs : int, default=None
        Number of folds fitted in parallel, as in scikit-learn.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to all rows.
    scale_ : float or ndarray of shape (n_targets,)
        Factor of the spread.
    quantile_maps_ : list of QuantileMap
        Only with ``method="isotonic"``; one per target.
    n_features_in_, feature_names_in_
        As in the fitted estimator, if it has them.

    References
    ----------
    .. [1] Laves, Ihler, Fast, Kahrs & Ortmaier (2020), "Well-calibrated regression
       uncertainty in medical imaging with deep learning", MIDL; there for one
       Gaussian, here for the mixture of all draws.
    .. [2] Kuleshov, Fenner & Ermon (2018), "Accurate uncertainties for deep learning
       using calibrated regression", ICML.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import CalibratedUncertaintyRegressor, MCDropoutRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> network = MCDropoutRegressor((16,), max_iter=50, random_state=0)
    >>> model = CalibratedUncertaintyRegressor(network).fit(X, y)
    >>> model.predict_interval(X[:3], coverage=[0.5, 0.9]).shape
    (3, 2, 2)
    """

    estimator: Estimator
    estimator_: Fitted
    scale_: PerTarget
    quantile_maps_: Annotated[list[QuantileMap], "targets", OPTIONAL]

    def __init__(self, estimator, *, method="scale", cv=None, n_jobs=None) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.n_jobs = n_jobs

    @default_settings
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the estimator, and estimate the correction on held-out rows.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None
            Weights for the estimator and for the correction.
        **fit_params : dict
            Parameters of the estimator's ``fit``. ``groups`` are for a ``cv`` of groups
            and for an estimator whose ``fit`` takes them, such as a network. With
            metadata routing the parameters that the estimator and the splitter request.

        Returns
        -------
        self : object
        """
        if self.method not in ("scale", "isotonic"):
            raise ValueError(
                f"`method` must be 'scale' or 'isotonic'; got {self.method!r}."
            )
        if is_classifier(self.estimator):
            raise TypeError(
                "CalibratedUncertaintyRegressor needs a regressor; got "
                f"{type(self.estimator).__name__}. For classifiers use "
                "sklearn.calibration.CalibratedClassifierCV(method='temperature')."
            )
        X, y, weights, routed = self._validate_fit_arguments(
            X, y, sample_weight, fit_params
        )
        with silenced(TRAINING_CODES):  # the fit to all rows warns
            fitted = self._cross_fit(X, y, routed)
        held_out = [
            (model, rows[weights[rows] > 0])
            for model, rows in fitted
            if weights[rows].any()
        ]
        step = -(-sum(len(rows) for _, rows in held_out) // MAX_ROWS)
        held_out = [(model, rows[::step]) for model, rows in held_out]
        predicted = list(_predicted(held_out, X, y))
        weights = weights[np.concatenate([rows for _, rows in held_out])]
        scale = _scales(predicted, weights)
        correction: dict[str, Any] = {
            "scale_": scale if np.ndim(y) == 2 else scale.item()
        }
        if self.method == "isotonic":
            correction["quantile_maps_"] = _quantile_maps(predicted, scale, weights)
        model = clone(self.estimator).fit(X, y, **routed.estimator.fit)
        return self._set_fitted(model, estimator_=model, **correction)

    @on_snapshot
    def _predict(self, X, return_std, return_cov, method):
        check_is_fitted(self)
        if method != "draws":
            return self._lazy_distribution(X, method)  # raises
        if not (return_std or return_cov):
            return self.estimator_.predict(X)
        if self._scales_moments:  # computes the draws only once
            mean, spread = self.estimator_.predict(
                X, return_std=return_std, return_cov=return_cov
            )
            scale = np.atleast_1d(self.scale_)
            scale = np.outer(scale, scale) if return_cov else np.asarray(self.scale_)
            return mean, (spread * scale).astype(spread.dtype)
        distribution = self.predict_distribution(X)
        spread = distribution.cov() if return_cov else distribution.std()
        return self.estimator_.predict(X), spread

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = get_tags(
            self.estimator
        ).target_tags.multi_output
        return tags

    @on_snapshot
    def _open_predictive(self, X):
        check_is_fitted(self)
        inner = open_predictive(self.estimator_, X)
        return PredictiveBlocks.mapped([inner], self._corrected)

    def _corrected(self, predictive):
        scaled = predictive.scaled(np.atleast_1d(self.scale_))
        if hasattr(self, "quantile_maps_"):
            return scaled.mapped(self.quantile_maps_)
        return scaled

    @property
    def _scales_moments(self):
        """Whether the correction multiplies the estimator's own standard deviation."""
        mapped = hasattr(self, "quantile_maps_")
        return isinstance(self.estimator_, PredictiveMixin) and not mapped


def _predicted(held_out, X, y):
    """Predictive mixture and y of each block of held-out rows."""
    for model, rows in held_out:
        blocks = open_predictive(model, safe_indexing(X, rows))
        for block, mixture in blocks.blocks():
            mixture.check_not_mapped()
            yield mixture, y[rows[block]]


def _scales(predicted, weights) -> np.ndarray:
    """Factors of the spread that maximise the log density of each target."""
    parts = [mixture.components for mixture, _ in predicted]
    y = np.concatenate([mixture.standard(y) for mixture, y in predicted])
    return np.array(
        [
            likeliest_scale(
                [part.targets(slice(j, j + 1)) for part in parts], y[:, j], weights
            )
            for j in range(y.shape[-1])
        ]
    )


def _quantile_maps(predicted, scale, weights) -> list[QuantileMap]:
    """One map per target, fitted to the levels after scaling."""
    levels = np.concatenate(
        [mixture.scaled(scale).cdf_of_standardised(y) for mixture, y in predicted]
    )
    return [QuantileMap.fit(level, weights) for level in levels.T]
