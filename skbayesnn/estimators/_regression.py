"""Regression: what the draws of the predictive are turned into."""

from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array, check_consistent_length

from skbayesnn import _validation
from skbayesnn._data.validation import check_regression
from skbayesnn._engine.resources import slots
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
    """Base of the regressors; predictions are in y's units."""

    @property
    def noise_std_(self) -> Array:
        """1 / sqrt(tau_), y's units; none where tau_ tempers a likelihood.

        Where the noise depends on the row it is its root mean square over training
        rows, whatever tau is.
        """
        of_rows = getattr(self, "row_noise_std_", None)
        std = self.tau_**-0.5 if of_rows is None else of_rows
        name = self.network_["likelihood"]["name"]
        if likelihood_class(name, of_classes=False).tempered:
            raise AttributeError(
                f"`noise_std_` is of likelihoods with a noise precision; {name!r} has "
                "none. See predict_uncertainty(X, kind='aleatoric')."
            )
        return std

    def _check(self, X, y, sample_weight, *, reset):
        table, y_ndim = check_regression(self, X, y, sample_weight, reset=reset)
        return table, {"y_ndim_": y_ndim}

    def _check_held_out(self, X, y, table, of_y):
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
        """Go on training with new rows (streams, out-of-core data).

        The first call fixes the standardisation. N grows with every call, and the
        weight of the prior falls with it: pass each row once. For further epochs over
        all rows there are ``fit`` and ``warm_start``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None
        n_epochs : int, default=1
            Passes over these rows.
        n_replay : int, default=0
            Rows of the stream to be kept: a uniform sample of all that came with
            ``n_replay`` is seen again in every call, weighted for the rows that it
            stands for, and stored with the model (``replay_``). Without, a network
            forgets what does not come any more; a call without lets them go.

        Returns
        -------
        self : object
        """
        how = {"n_epochs": n_epochs, "n_replay": n_replay}
        return self._partial_fit(X, y, sample_weight, **how)

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
        """Predictive mean (eq. 5), and the total predictive standard deviation.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        return_std : bool, default=False
        return_cov : bool, default=False
            Whether to return the covariance of the targets, of every row by itself;
            not with ``return_std``.
        method : {"draws", "mean_weights"}, default="draws"
            Of ``n_draws`` posterior draws; or one pass of each network with the means
            of its weights (units scaled by their probability of being kept, the
            standard dropout approximation [1]_): some hundred times as quick, with a
            mean that differs a little, and noise and the spread of several networks
            in the standard deviation only.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_targets)
            In y's units.
        std : ndarray of the same shape
            Only with ``return_std=True``; in y's units, noise included (eq. 6).
        cov : ndarray of shape (n_samples, n_targets, n_targets)
            Only with ``return_cov=True``; its diagonal is std^2. Noise is independent
            over targets, what the draws say of them is not.

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
        """Standard deviation of the predictive, whole or in its two parts (eq. 6).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        kind : {"total", "epistemic", "aleatoric", "all"} or list, default="total"
            ``"epistemic"`` is the spread of what the draws say, ``"aleatoric"`` is
            noise; total^2 = epistemic^2 + aleatoric^2. More data remove the former
            where the posterior's width is learned or that of an ensemble. Masks at a
            given rate keep their spread, however many rows there are: where it is
            more than a small share of the noise the total is too wide.
        as_frame : bool, default=False
            Whether to return a pandas DataFrame with a column per kind (of several
            targets, per kind and target), and the index of X if that is one.

        Returns
        -------
        std : ndarray of shape (n_samples,) or (n_samples, n_targets), or dict of them
            In y's units; a dict for a list of kinds or ``"all"``.
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
        """Sample functions: posterior draws without noise, the same for all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Functions. Each is one of the ``n_draws`` posterior draws of each network
            that predictions average, picked at random: raise ``n_draws`` for more
            distinct ones.
        random_state : int, RandomState instance or None, default=0

        Returns
        -------
        f : ndarray of shape (n_samples_X[, n_targets], n_samples)
            In y's units.
        """
        components, _ = sampled_draws(
            self, self._checked_inputs(X), n_samples, random_state
        )
        return self._values_of_y(components.mean)

    @on_snapshot
    def sample_y(
        self, X: MatrixLike, n_samples: int = 1, random_state: RandomState = 0
    ) -> Array:
        """Sample y: functions of ``sample_f`` with independent noise in every row.

        Parameters and shapes are those of ``sample_f``.
        """
        components, random = sampled_draws(
            self, self._checked_inputs(X), n_samples, random_state
        )
        return self._values_of_y(components.sample(random))

    @on_snapshot
    def log_predictive_density(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Log density of y under the predictive mixture (eq. 8).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)

        Returns
        -------
        density : ndarray of shape (n_samples,)
            Nats, of the density in y's units; joint over targets.
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
        """X is checked."""
        opened = open_posterior(self, X, posterior)
        scaling = self._scaling
        dtype = scaling.dtype_of_y(X.dtype)

        def of_rows(rows):
            components = opened.whole(rows)
            return MixturePredictive(
                components, self.y_ndim_ == 1, scaling, dtype=dtype
            )

        return PredictiveBlocks(X.shape[0], of_rows, opened.block)

    @slots.one()
    def _mean_and_stds(
        self, X, posterior=None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Predictive mean, and the stds of all kinds, in y's units; X is checked."""
        scaling = self._scaling
        dtype = scaling.dtype_of_y(X.dtype)
        shape = (X.shape[0], scaling.n_targets)
        mean, stds = np.empty(shape), np.empty((3, *shape))
        total, epistemic, aleatoric = stds
        for chunk, parts in open_posterior(self, X, posterior).by_rows():
            moments = Moments()
            for components in parts:
                moments.add(components.mean, components.variance)
            mean[chunk] = moments.mean
            epistemic[chunk] = np.sqrt(moments.epistemic)
            aleatoric[chunk] = np.sqrt(moments.aleatoric)
        np.hypot(epistemic, aleatoric, out=total)
        mean = self._one_target_flat(scaling.y_from_network(mean)).astype(dtype)
        warn_of_nan(mean)
        stds = scaling.std_from_network(stds).astype(dtype)
        kinds = zip(REGRESSION_KINDS, stds, strict=True)
        return mean, {kind: self._one_target_flat(std) for kind, std in kinds}

    def _spread(self, X, y):
        outputs = open_posterior(self, X, posterior_by(self, X, "mean_weights")).whole()
        mean = self._scaling.y_from_network(outputs.mean.mean(0))
        varies = y.std(0) > 0
        if not varies.any():
            return 1.0, "y does not vary"
        of_y = y.std(0)[varies]
        spread = float((mean.std(0)[varies] / of_y).max())
        off = float((abs(mean.mean(0) - y.mean(0))[varies] / of_y).max())
        if is_far_off(off):
            return off, f"over the training rows they are off by {off:.2g} stds of y"
        said = f"over the training rows they vary by {spread:.1%} of what y does"
        return spread, said

    def _explained(self, X, y, weights):
        mean = self._mean_and_stds(X)[0].reshape(y.shape)
        return explained_variance(X, y, weights, mean, self._given_noise())

    def _given_noise(self):
        """Variance of a noise that is not learned, (targets,), y's units; or 0."""
        name = self.network_["likelihood"]["name"]
        tempered = likelihood_class(name, of_classes=False).tempered
        if tempered or isinstance(getattr(self, "tau", "auto"), str):
            return 0.0
        return 1 / np.asarray(self.tau_)

    def _standardised_targets(self, X, y) -> np.ndarray:
        """y, checked against X, in the network's scale: (rows, targets)."""
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
        """(samples, rows, targets), network's scale -> (rows[, targets], samples)."""
        last = self._scaling.y_from_network(np.moveaxis(values, 0, -1))
        dtype = self._scaling.dtype_of_y(values.dtype)
        return self._one_target_flat(last).astype(dtype)

    def _one_target_flat(self, values):
        """Drop the target axis where y had none."""
        return values[:, 0] if self.y_ndim_ == 1 else values

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
