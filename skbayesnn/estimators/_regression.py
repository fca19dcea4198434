"""Base class of the regressors: target validation and predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import check_array

from skbayesnn._data.scaling import Scaling
from skbayesnn._data.target import (
    Latent,
    as_intervals,
    exposure_column,
    latent_target,
)
from skbayesnn._data.validation import Table, check_regression, network_columns
from skbayesnn._distributions.recorded import TargetSpace, recorded, with_largest_mean
from skbayesnn._engine.resources import prediction_slots
from skbayesnn._likelihoods import OF_INTERVALS, likelihood_named
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.mixin import RegressionPredictiveMixin
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._predictive.summaries import REGRESSION_KINDS, LogDensity, Moments
from skbayesnn._sklearn_compat import RegressorMixin
from skbayesnn._typing import Array, MatrixLike
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._diagnostics import explained_variance, is_far_off
from skbayesnn.estimators._fitted import (
    PredictiveByDraws,
    open_posterior,
    posterior_by,
    warn_of_nan,
)
from skbayesnn.estimators._job import likelihood_class
from skbayesnn.estimators._parameters import RegressorParameters


class MixtureByDraws(PredictiveByDraws):
    """Predictive distribution of a regression, from a part of the draws at a time."""

    kinds = REGRESSION_KINDS
    is_classification = False

    @cached_property
    def scaling(self) -> Scaling:
        """Standardisation of y."""
        return self.estimator._scaling

    @property
    def dtype(self) -> np.dtype:
        """Precision of predictions in the units of y."""
        return self.scaling.dtype_of_y(self.X.dtype)

    def predictive_of(self, components) -> MixturePredictive:
        """Predictive distribution of some rows with these components, one per draw."""
        squeeze = self.estimator.y_ndim_ == 1
        return MixturePredictive(components, squeeze, self.scaling, dtype=self.dtype)

    def in_blocks(self):
        """Blocks of rows; by draws only if y is the latent value itself."""
        if self.estimator._spaces is None:
            return super().in_blocks()
        return PredictiveBlocks(self.X.shape[0], self._recorded, self.predictor.block)

    def _recorded(self, rows: slice) -> MixturePredictive:
        """Predictive distribution of some rows of y on another scale."""
        latent = self.scaling.components_from_network(self.predictor.whole(rows))
        log_exposure = partial(_log_exposure, self.X[rows])
        found = recorded_of(self.estimator, latent, log_exposure)
        return MixturePredictive(found, self.estimator.y_ndim_ == 1)

    @prediction_slots.acquire()
    def mean_and_stds(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Mean of y, and standard deviations of all kinds, (rows[, targets])."""
        scaling, dtype = self.scaling, self.dtype
        shape = (self.X.shape[0], scaling.n_targets)
        mean, stds = np.empty(shape), np.empty((3, *shape))
        total, epistemic, aleatoric = stds
        accumulated = self.predictor.moments()
        if accumulated:
            mean, stds[1:] = accumulated[0], np.sqrt(accumulated[1:])
        else:
            for chunk, parts in self.predictor.by_rows():
                moments = Moments()
                for components in parts:
                    moments.add(components.mean, components.variance)
                mean[chunk] = moments.mean
                epistemic[chunk] = np.sqrt(moments.epistemic)
                aleatoric[chunk] = np.sqrt(moments.aleatoric)
        np.hypot(epistemic, aleatoric, out=total)
        mean = scaling.y_from_network(mean).astype(dtype)
        stds = scaling.std_from_network(stds).astype(dtype)
        if self.estimator.y_ndim_ == 1:
            mean, stds = mean[:, 0], stds[..., 0]
        warn_of_nan(mean)
        return mean, dict(zip(REGRESSION_KINDS, stds, strict=True))

    def mean(self) -> np.ndarray:
        """Mean of y, (rows[, targets])."""
        return self.mean_and_stds()[0]

    def mean_and_std(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and total standard deviation of y, (rows[, targets])."""
        mean, stds = self.mean_and_stds()
        return mean, stds["total"]

    def uncertainty(self, kinds) -> dict[str, np.ndarray]:
        """Standard deviations of y: {kind: (rows[, targets])}."""
        stds = self.mean_and_stds()[1]
        return {kind: stds[kind] for kind in kinds}

    def log_density(self, y) -> np.ndarray:
        """Log density of y in its own units, (rows,); y (rows[, targets])."""
        scaling = self.scaling
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        y = y.reshape(len(y), -1)
        if y.shape[1] != scaling.n_targets:
            raise ValueError(
                f"`y` must have the {scaling.n_targets} targets of the fit; got "
                f"{y.shape[1]}."
            )
        y = scaling.y_to_network(y)
        result = np.empty(len(y))
        for chunk, parts in self.predictor.by_rows():
            density = LogDensity()
            for components in parts:
                density.add(components.log_density(y[chunk]))
            result[chunk] = density.value
        return result + scaling.log_density_shift()

    def sample(self, draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Sample y from the given draws, with noise, (rows[, targets], samples)."""
        components, index = self.components_of(draws)
        return self.predictive_of(components).sample(index, random)

    def sample_f(self, draws: np.ndarray) -> np.ndarray:
        """Means of the given draws, without noise, (rows[, targets], samples)."""
        components, index = self.components_of(draws)
        return self.predictive_of(components).sample_f(index)


def recorded_of(model, latent: Any, log_exposure: Callable[[int], Any]) -> Any:
    """Distributions of y, from latent ones of a fitted model.

    log_exposure : function of the column of exposure, (rows, 1)
    """
    spaces, exposure = model._spaces, getattr(model, "exposure_", None)
    if exposure is not None:
        # Rates, not counts, are near the ones of training rows.
        spaces = tuple(replace(space, top=np.inf) for space in spaces)
        latent = with_largest_mean(latent, np.array([exposure["largest"]]))
        latent = latent.rescaled(log_exposure(int(exposure["column"])), np.ones(1))
    return recorded(latent, spaces)


def _spaces(stored: list[dict] | None) -> tuple[TargetSpace, ...] | None:
    """Spaces of the targets, as stored in ``target_spaces_``."""
    if stored is None:
        return None
    return tuple(TargetSpace(**space) for space in stored)


def _log_exposure(X, column: int) -> np.ndarray:
    """Logarithm of the exposure of each row, (rows, 1).

    Raises
    ------
    ValueError
        If an exposure is not positive.
    """
    values = X[:, [column]]
    values = values.toarray() if sparse.issparse(values) else values
    if not (values > 0).all():
        i = int(np.argmin(values[:, 0] > 0))
        raise ValueError(
            "`exposure` must be positive in all rows; got "
            f"{values[i, 0]:g} in row {i}. Leave out rows without exposure."
        )
    return np.log(values.astype(np.float64))


class BayesianRegressor(
    RegressorParameters, RegressionPredictiveMixin, RegressorMixin, BayesianNetwork
):
    """Base class of the regressors. Predictions are in the units of y."""

    _predictive_class = MixtureByDraws

    @property
    def noise_std_(self) -> Array:
        """Standard deviation of the observation noise, 1 / sqrt(tau_), units of y.

        If the noise variance depends on the row, it is the root mean square over
        training rows. Likelihoods without a noise precision lack this attribute.
        """
        row_std = getattr(self, "row_noise_std_", None)
        std = self.tau_**-0.5 if row_std is None else row_std
        name = self.likelihood_
        if likelihood_class(name, is_classification=False).tempered:
            raise AttributeError(
                "`noise_std_` requires a likelihood with a noise precision; got "
                f"{name!r}. Use predict_uncertainty(X, kind='aleatoric')."
            )
        return std

    @property
    def likelihood_(self) -> str:
        """Likelihood in use, which held-out rows select with ``likelihood="auto"``."""
        return self.network_["likelihood"]["name"].removeprefix("interval_")

    def _validate_table(self, X, y, sample_weight, *, groups=None, reset, spaces=None):
        latent = self._latent(y, spaces)
        if latent is not None and spaces is None and not reset and self._spaces:
            # Rows of the calls before keep their latent values.
            pairs = zip(self._spaces, latent.spaces, strict=True)
            latent = self._latent(y, tuple(old.joined(new) for old, new in pairs))
        if latent is not None:
            y = latent.y if latent.y.shape[1] > 1 else latent.y[:, 0]
        table, y_ndim = check_regression(
            self, X, y, sample_weight, groups=groups, reset=reset
        )
        attributes: dict[str, Any] = {"y_ndim_": y_ndim}
        if latent is None:
            return table, attributes
        attributes["target_spaces_"] = [asdict(space) for space in latent.spaces]
        table = replace(table, intervals=latent.intervals)
        if self.exposure is not None:
            table, attributes["exposure_"] = self._per_exposure(table)
        return table, attributes

    def _per_exposure(self, table: Table) -> tuple[Table, dict[str, float]]:
        """Rows with counts per unit of exposure, and the attribute ``exposure_``."""
        if self.target_scale != "count":
            raise ValueError(
                "`exposure` requires target_scale='count'; got "
                f"target_scale={self.target_scale!r}."
            )
        assert self.exposure is not None
        column = exposure_column(self.exposure, network_columns(self))
        shift = _log_exposure(table.X, column)
        assert table.intervals is not None  # every count is one
        n = table.y.shape[1]
        intervals = table.intervals.copy()
        intervals[:, : 2 * n] -= shift
        y = table.y - shift
        largest = float(y.max())
        table = replace(table, y=y, intervals=intervals)
        return table, {"column": column, "largest": largest}

    def _latent(self, y, spaces=None) -> Latent | None:
        """y as latent values, if it has intervals, bounds, a scale or a point mass.

        spaces : of the training rows, if y is of held-out rows
        """
        intervals = as_intervals(y)
        settings = self.target_scale, self.y_bounds, self.point_mass
        if intervals is None:
            further = self.y_bounds, self.point_mass, self.exposure
            if self.target_scale == "identity" and all(v is None for v in further):
                return None
            y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
            intervals = y.reshape(len(y), -1)
        likelihood = likelihood_named(self.likelihood)
        if likelihood is not None and likelihood.components_class.discrete:
            raise ValueError(
                "`target_scale`, `y_bounds`, `point_mass` and a `y` of intervals "
                "require a likelihood of continuous values; got "
                f"likelihood={self.likelihood!r}. Take one of "
                f"{', '.join(map(repr, OF_INTERVALS))}."
            )
        latent = latent_target(intervals, *settings, spaces)
        if latent.intervals is not None and self.likelihood not in OF_INTERVALS:
            raise ValueError(
                "a `y` with intervals, a point mass, or rows at its bounds requires "
                f"`likelihood` to be one of {', '.join(map(repr, OF_INTERVALS))}; got "
                f"{self.likelihood!r}."
            )
        return latent

    @property
    def _spaces(self) -> tuple[TargetSpace, ...] | None:
        """Spaces of the targets, if y is not the latent value itself."""
        return _spaces(getattr(self, "target_spaces_", None))

    def _check_held_out(self, X, y, table, target_attributes):
        spaces = _spaces(target_attributes.get("target_spaces_"))
        return self._validate_table(X, y, None, reset=False, spaces=spaces)[0]

    def _row_weights(self, table, rows, classes):
        return table.sample_weight[rows]

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        n_epochs: int | str = "auto",
        n_replay: int | str = "auto",
        n_total: float | None = None,
        prior: str | None = None,
    ) -> Self:
        """Update the fit with new rows, in a tenth of the time of a fit or less.

        Use it if rows arrive in parts, for instance every day. The first call is a
        fit, if there was none. Later calls train on the new rows and on a sample of
        the earlier ones, starting from the fitted weights, and estimate the noise on
        new rows that half of the networks held out. When there are four times as
        many rows as in the last whole fit, and all of them are kept, the call is a fit
        to all rows, and takes as long.

        The update is not taken if the held-out rows are predicted worse, or if the new
        rows contradict the earlier ones, with a warning (SKB113). If enough new rows,
        of this call and the calls before, show that the relation between X and y has
        changed, the model follows them alone (SKB112).

        Pass each row once: every call adds its rows to N, which lowers the weight of
        the prior. For more epochs over the same rows use ``fit`` with
        ``warm_start=True``.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            New inputs. Parts of 100 rows or more give a reliable check. The last whole
            fit sets the standardisation and the encoding of columns.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            New target values.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, as in ``fit``.
        n_epochs : "auto" or int, default="auto"
            Passes over the new and the kept rows. Leave ``"auto"``: a tenth of the
            epochs of the fit, more if many rows are new. With an integer, the first
            call selects no settings on held-out rows, and no call is a whole fit.
        n_replay : "auto" or int, default="auto"
            Number of rows to keep for later calls, in ``replay_``: a uniform sample of
            all rows so far, with weights that represent all of them. ``"auto"`` is
            2,000 rows, and at most 2^20 values of X; ``fit`` keeps as many. The file of
            the model contains them. With 0, the call uses and keeps no rows, and the
            network may forget earlier ones. ``del model.replay_`` removes them after
            ``fit``.
        n_total : float, default=None
            Total weight (or number) of the rows of the whole stream. Set it if the
            chunks are parts of one table: the prior then has the weight that it has in
            a fit to the whole table, from the first call on, and the same rows may be
            passed several times. Every call needs it. ``"auto"`` then means one pass,
            and no kept rows.
        prior : {"previous", None}, default=None
            Leave None. ``"previous"``, of :class:`BBBRegressor` and
            :class:`BBBClassifier` only, applies Bayes' rule to the new rows: the call
            is a full fit (``max_iter`` epochs) with the present posterior as the prior,
            and N is the number of new rows. The first call uses the prior of the
            constructor. Use it if no earlier rows may be kept, and the parts are few
            and large; nothing then checks the update. The other arguments must keep
            their defaults; ``n_total`` has no effect.

        Returns
        -------
        self : object
            The updated estimator; unchanged if the update was not taken.
        """
        return self._partial_fit(
            X,
            y,
            sample_weight,
            n_epochs=n_epochs,
            n_replay=n_replay,
            n_total=n_total,
            prior=prior,
        )

    def _mean_at_mean_weights(self, X) -> np.ndarray:
        """Mean of y at checked rows, (rows, targets)."""
        posterior = posterior_by(self, X, "mean_weights")
        outputs = open_posterior(self, X, posterior).whole()
        return self._scaling.y_from_network(outputs.mean.mean(0))

    def _residuals(self, X, y) -> tuple[np.ndarray, np.ndarray]:
        """Residuals at checked rows and the predictions, (rows, targets) each."""
        mean = self._mean_at_mean_weights(X)
        return y - mean, mean

    def _prediction_spread(self, X, y):
        mean = self._mean_at_mean_weights(X)
        varies = y.std(0) > 0
        if not varies.any():
            return 1.0, "y does not vary"
        y_std = y.std(0)[varies]
        spread = float((mean.std(0)[varies] / y_std).max())
        bias = float((abs(mean.mean(0) - y.mean(0))[varies] / y_std).max())
        if is_far_off(bias):
            return bias, f"on the training rows their bias is {bias:.2g} stds of y"
        return spread, (
            f"on the training rows their standard deviation is {spread:.1%} of y's"
        )

    def _explained_share(self, X, y, weights):
        mean = MixtureByDraws(self, X).mean_and_stds()[0].reshape(y.shape)
        return explained_variance(X, y, weights, mean, self._given_noise())

    def _given_noise(self):
        """Variance of given observation noise, (targets,), units of y; 0 if learned."""
        name = self.likelihood_
        tempered = likelihood_class(name, is_classification=False).tempered
        if tempered or isinstance(getattr(self, "tau", "auto"), str):
            return 0.0
        return 1 / np.asarray(self.tau_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
