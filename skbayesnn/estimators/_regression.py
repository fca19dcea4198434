"""Base class of the regressors: target validation and predictions."""

from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, check_consistent_length

from skbayesnn import _validation
from skbayesnn._data.validation import check_regression
from skbayesnn._engine.resources import prediction_slots
from skbayesnn._predictive.mixin import (
    PredictiveBlocks,
    RegressionPredictiveMixin,
    mean_and_covariance,
)
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._predictive.summaries import (
    REGRESSION_KINDS,
    LogDensity,
    Moments,
    select_kinds,
    to_frame,
)
from skbayesnn._runtime import on_snapshot
from skbayesnn._sklearn_compat import RegressorMixin
from skbayesnn._typing import Array, MatrixLike, RandomState
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._diagnostics import explained_variance, is_far_off
from skbayesnn.estimators._fitted import (
    open_posterior,
    posterior_by,
    sampled_draws,
    warn_of_nan,
)
from skbayesnn.estimators._job import likelihood_class


class BayesianRegressor(RegressionPredictiveMixin, RegressorMixin, BayesianNetwork):
    """Base class of the regressors. Predictions are in the units of y."""

    @property
    def noise_std_(self) -> Array:
        """Standard deviation of the observation noise, 1 / sqrt(tau_), units of y.

        If the noise variance depends on the row, it is the root mean square over
        training rows. Likelihoods without a noise precision lack this attribute.
        """
        row_std = getattr(self, "row_noise_std_", None)
        std = self.tau_**-0.5 if row_std is None else row_std
        name = self.network_["likelihood"]["name"]
        if likelihood_class(name, is_classification=False).tempered:
            raise AttributeError(
                "`noise_std_` requires a likelihood with a noise precision; got "
                f"{name!r}. Use predict_uncertainty(X, kind='aleatoric')."
            )
        return std

    def _validate_table(self, X, y, sample_weight, *, reset):
        table, y_ndim = check_regression(self, X, y, sample_weight, reset=reset)
        return table, {"y_ndim_": y_ndim}

    def _check_held_out(self, X, y, table, target_attributes):
        return check_regression(self, X, y, None, reset=False)[0]

    def _row_weights(self, table, rows, classes):
        return table.sample_weight[rows]

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        n_epochs: int = 1,
        n_replay: int = 0,
    ) -> Self:
        """Update the fit with new rows, for streams and out-of-core data.

        The first call fixes the standardisation. Pass each row once: every call adds
        its rows to N, which lowers the weight of the prior. For more epochs over the
        same rows use ``fit`` with ``warm_start=True``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            New target values.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, as in ``fit``.
        n_epochs : int, default=1
            Passes over the new rows.
        n_replay : int, default=0
            Number of earlier rows to keep and replay. Set it if the distribution of
            the rows changes: without replay, a network forgets earlier rows. The kept
            rows are a uniform sample of the rows of all calls with ``n_replay > 0``,
            and are stored in ``replay_``. Every call trains on them, with weights that
            represent all of these rows. A call with 0 discards them.

        Returns
        -------
        self : object
            The updated estimator.
        """
        return self._partial_fit(
            X, y, sample_weight, n_epochs=n_epochs, n_replay=n_replay
        )

    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[False] = False,
        return_cov: Literal[False] = False,
        *,
        method: str = "draws",
    ) -> Array: ...
    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[True],
        return_cov: Literal[False] = False,
        *,
        method: str = "draws",
    ) -> tuple[Array, Array]: ...
    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: Literal[False] = False,
        *,
        return_cov: Literal[True],
        method: str = "draws",
    ) -> tuple[Array, Array]: ...
    @overload
    def predict(
        self,
        X: MatrixLike,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        method: str = "draws",
    ) -> Array | tuple[Array, Array]: ...
    @on_snapshot
    def predict(self, X, return_std=False, return_cov=False, *, method="draws"):
        """Predict the mean of y, and optionally its standard deviation or covariance.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Whether to return the standard deviation of the predictive distribution.
        return_cov : bool, default=False
            Whether to return the covariance of the targets, one matrix per row. Cannot
            be combined with ``return_std``.
        method : {"draws", "mean_weights"}, default="draws"
            Leave the default unless predictions must be fast. ``"draws"`` averages
            ``n_draws`` posterior draws. ``"mean_weights"`` runs each network once with
            the posterior means of its weights (units scaled by their probability of
            being kept, the standard dropout approximation [1]_). This is about a
            hundred times as fast, and the mean is slightly different. The standard
            deviation then contains the observation noise and the spread of the ensemble
            members, but not the spread of the draws.

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
        X = self._checked_inputs(X)
        posterior = posterior_by(self, X, method)
        if return_cov:
            _validation.check_one_of_std_and_cov(return_std)
            mean, cov = mean_and_covariance(self._opened(X, posterior))
            dtype = self._scaling.dtype_of_y(X.dtype)
            return mean.astype(dtype), cov.astype(dtype)
        mean, stds = self._mean_and_stds(X, posterior)
        return (mean, stds["total"]) if return_std else mean

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
        kind: str | None = "total",
        as_frame: Literal[False] = False,
    ) -> Array: ...
    @overload
    def predict_uncertainty(
        self,
        X: MatrixLike,
        kind: str | list[str] | tuple[str, ...] | None = "total",
        as_frame: bool = False,
    ) -> Any: ...
    @on_snapshot
    def predict_uncertainty(self, X, kind="total", as_frame=False):
        """Predict the standard deviation of y, in total or split by its source.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        kind : {"total", "epistemic", "aleatoric", "all"} or list, default="total"
            Source of the uncertainty. ``"epistemic"`` is the standard deviation of the
            draws' means, ``"aleatoric"`` is the observation noise; total^2 =
            epistemic^2 + aleatoric^2. Epistemic uncertainty shrinks with more data in
            ensembles, and if the width of the posterior is learned. With a fixed
            dropout rate it does not shrink. With many rows, the total then
            overestimates the uncertainty, unless the epistemic part is small compared
            with the noise.
        as_frame : bool, default=False
            Whether to return a pandas DataFrame, with one column per kind (and target),
            and with the index of X if X is a DataFrame.

        Returns
        -------
        std : ndarray of shape (n_samples,) or (n_samples, n_targets), or dict of them
            Standard deviation in the units of y. A dict for a list of kinds or
            ``"all"``.
        """
        kind = "total" if kind is None else kind
        values = select_kinds(
            kind,
            REGRESSION_KINDS,
            lambda kinds: self._mean_and_stds(self._checked_inputs(X))[1],
        )
        return to_frame(values, kind, X) if as_frame else values

    @on_snapshot
    def sample_f(
        self, X: MatrixLike, n_samples: int = 1, random_state: RandomState = 0
    ) -> Array:
        """Draw functions from the posterior, without observation noise.

        A sample evaluates one posterior draw at all rows, so that its values form one
        function.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples_X, n_features)
            Inputs.
        n_samples : int, default=1
            Number of functions. Each is picked at random among the ``n_draws``
            posterior draws of each network that predictions average. Raise ``n_draws``
            for more distinct functions.
        random_state : int, RandomState instance or None, default=0
            Source of the random numbers.

        Returns
        -------
        f : ndarray of shape (n_samples_X[, n_targets], n_samples)
            Function values, in the units of y.
        """
        components, _ = sampled_draws(
            self, self._checked_inputs(X), n_samples, random_state
        )
        return self._values_of_y(components.mean)

    @on_snapshot
    def sample_y(
        self, X: MatrixLike, n_samples: int = 1, random_state: RandomState = 0
    ) -> Array:
        """Draw y from the predictive distribution.

        Adds observation noise, independent in every row, to functions that are drawn
        as in ``sample_f``. Parameters and shapes are the same.
        """
        components, random = sampled_draws(
            self, self._checked_inputs(X), n_samples, random_state
        )
        return self._values_of_y(components.sample(random))

    @on_snapshot
    def log_predictive_density(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Log density of y under the predictive distribution.

        Its mean over test rows is a score of the whole distribution: higher is better.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Observed target values.

        Returns
        -------
        density : ndarray of shape (n_samples,)
            Log density in nats, in the units of y, joint over targets.
        """
        X = self._checked_inputs(X)
        y = self._standardised_targets(X, y)
        result = np.empty(len(y))
        for chunk, parts in open_posterior(self, X).by_rows():
            density = LogDensity()
            for components in parts:
                density.add(components.log_density(y[chunk]))
            result[chunk] = density.value
        return result + self._scaling.log_density_shift()

    @on_snapshot
    def _open_predictive(self, X):
        return self._opened(self._checked_inputs(X))

    def _opened(self, X, posterior=None) -> PredictiveBlocks:
        """Predictive distribution of checked rows, computed in blocks."""
        predictor = open_posterior(self, X, posterior)
        scaling = self._scaling
        dtype = scaling.dtype_of_y(X.dtype)

        def predictive(rows):
            return MixturePredictive(
                predictor.whole(rows), self.y_ndim_ == 1, scaling, dtype=dtype
            )

        return PredictiveBlocks(X.shape[0], predictive, predictor.block)

    @prediction_slots.acquire()
    def _mean_and_stds(
        self, X, posterior=None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Predictive mean and stds of all kinds, in the units of y; X is checked."""
        scaling = self._scaling
        dtype = scaling.dtype_of_y(X.dtype)
        shape = (X.shape[0], scaling.n_targets)
        mean, stds = np.empty(shape), np.empty((3, *shape))
        total, epistemic, aleatoric = stds
        predictor = open_posterior(self, X, posterior)
        accumulated = predictor.moments()
        if accumulated:
            mean, stds[1:] = accumulated[0], np.sqrt(accumulated[1:])
        else:
            for chunk, parts in predictor.by_rows():
                moments = Moments()
                for components in parts:
                    moments.add(components.mean, components.variance)
                mean[chunk] = moments.mean
                epistemic[chunk] = np.sqrt(moments.epistemic)
                aleatoric[chunk] = np.sqrt(moments.aleatoric)
        np.hypot(epistemic, aleatoric, out=total)
        mean = self._drop_target_axis(scaling.y_from_network(mean)).astype(dtype)
        warn_of_nan(mean)
        stds = scaling.std_from_network(stds).astype(dtype)
        kinds = zip(REGRESSION_KINDS, stds, strict=True)
        return mean, {kind: self._drop_target_axis(std) for kind, std in kinds}

    def _prediction_spread(self, X, y):
        outputs = open_posterior(self, X, posterior_by(self, X, "mean_weights")).whole()
        mean = self._scaling.y_from_network(outputs.mean.mean(0))
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
        mean = self._mean_and_stds(X)[0].reshape(y.shape)
        return explained_variance(X, y, weights, mean, self._given_noise())

    def _given_noise(self):
        """Variance of given observation noise, (targets,), units of y; 0 if learned."""
        name = self.network_["likelihood"]["name"]
        tempered = likelihood_class(name, is_classification=False).tempered
        if tempered or isinstance(getattr(self, "tau", "auto"), str):
            return 0.0
        return 1 / np.asarray(self.tau_)

    def _standardised_targets(self, X, y) -> np.ndarray:
        """Validate y against X and standardise it, (rows, targets)."""
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        y = y.reshape(len(y), -1)
        check_consistent_length(X, y)
        if y.shape[1] != self._scaling.n_targets:
            raise ValueError(
                f"`y` must have the {self._scaling.n_targets} targets of the fit; got "
                f"{y.shape[1]}."
            )
        return self._scaling.y_to_network(y)

    def _values_of_y(self, values):
        """Convert samples to the units of y.

        values : (samples, rows, targets), standardised
        returns : (rows[, targets], samples)
        """
        y = self._scaling.y_from_network(np.moveaxis(values, 0, -1))
        dtype = self._scaling.dtype_of_y(values.dtype)
        return self._drop_target_axis(y).astype(dtype)

    def _drop_target_axis(self, values):
        """Drop the target axis if y was one-dimensional in ``fit``."""
        return values[:, 0] if self.y_ndim_ == 1 else values

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
