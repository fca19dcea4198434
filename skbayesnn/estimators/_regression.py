"""Regression: what the draws of the predictive are turned into."""

from functools import partial

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length

from skbayesnn._data.validate import check_regression
from skbayesnn._inference.predictive import all_draws, by_rows, whole
from skbayesnn._predictive.mixtures import GaussianMixture
from skbayesnn._predictive.quantiles import intervals, mixture_cdf, mixture_quantile
from skbayesnn._predictive.summaries import (
    REGRESSION_KINDS,
    GaussianMoments,
    LogDensity,
    checked_coverages,
    chosen,
    framed,
    gaussian_log_density,
)
from skbayesnn.estimators import _validation
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._serialization import likelihood_named
from skbayesnn.estimators._underfit import explained_variance


class BayesianRegressor(RegressorMixin, BayesianNetwork):
    """Base of the regressors; predictions are in y's units."""

    @property
    def noise_std_(self):
        """1 / sqrt(tau_), y's units."""
        return self.tau_**-0.5

    def _check(self, X, y, sample_weight, *, reset):
        table, y_ndim = check_regression(self, X, y, sample_weight, reset=reset)
        return table, {"y_ndim_": y_ndim}

    def _check_held_out(self, X, y, of_y):
        return check_regression(self, X, y, None, reset=False)[0]

    def _likelihood(self, n, learned):
        name = _validation.check_option(
            "likelihood", self.likelihood, ["gaussian", "heteroscedastic"]
        )
        return likelihood_named(name, n, learned)

    def _row_weights(self, table, rows, classes):
        return table.sample_weight[rows]

    def partial_fit(self, X, y, sample_weight=None):
        """Go on training with one epoch over new rows (streams, out-of-core data).

        The first call fixes the standardisation. N, and with it the weight of the
        prior, grows with every call: pass each row once. For several epochs over
        the same rows there are ``fit`` and ``warm_start``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : object
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X, return_std=False):
        """Predictive mean (eq. 5), and the total predictive standard deviation.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        return_std : bool, default=False

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_targets)
            In y's units.
        std : ndarray of the same shape
            Only with ``return_std=True``; in y's units, noise included (eq. 6).
        """
        moments = self._moments(self._checked_inputs(X))
        if return_std:
            return moments["mean"], moments["total"]
        return moments["mean"]

    def predict_uncertainty(self, X, kind="total", as_frame=False):
        """Standard deviation of the predictive, whole or in its two parts (eq. 6).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        kind : {"total", "epistemic", "aleatoric", "all"} or list, default="total"
            ``"epistemic"`` is what more data would remove, ``"aleatoric"`` is noise;
            total^2 = epistemic^2 + aleatoric^2.
        as_frame : bool, default=False
            Whether to return a pandas DataFrame with a column per kind (of several
            targets, per kind and target), and the index of X if that is one.

        Returns
        -------
        std : ndarray of shape (n_samples,) or (n_samples, n_targets), or dict of them
            In y's units; a dict for a list of kinds or ``"all"``.
        """
        values = chosen(
            kind,
            REGRESSION_KINDS,
            lambda kinds: self._moments(self._checked_inputs(X)),
        )
        return framed(values, kind, X) if as_frame else values

    def predict_quantile(self, X, q):
        """Quantiles of the predictive mixture of all draws.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        q : float or sequence of float in (0, 1)

        Returns
        -------
        quantile : ndarray of shape (n_samples[, n_targets][, n_levels])
            In y's units; the last axis where q is a sequence.
        """
        levels = [
            _validation.check_number("q", level, low=0, high=1, open_low=True)
            for level in np.atleast_1d(np.asarray(q, dtype=object))
        ]
        X = self._checked_inputs(X)
        result = np.empty((X.shape[0], len(self.y_mean_), len(levels)))
        for chunk, (mean, variance) in all_draws(self._gaussians(X)):
            for i, level in enumerate(levels):
                result[chunk, :, i] = mixture_quantile(mean, variance, level)
        result = result if np.ndim(q) else result[..., 0]
        return self._in_units_of_y(result, X.dtype)

    def predict_interval(self, X, coverage=0.9, kind="equal_tailed"):
        """Interval of the predictive mixture that holds y with a given probability.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        coverage : float or sequence of float in (0, 1), default=0.9
            Probability inside.
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
        X = self._checked_inputs(X)
        result = np.empty((X.shape[0], len(self.y_mean_), len(coverages), 2))
        for chunk, (mean, variance) in all_draws(self._gaussians(X)):
            quantile = partial(mixture_quantile, mean, variance)
            result[chunk] = intervals(quantile, mean.shape[1:], coverages, kind)
        result = result if np.ndim(coverage) else result[..., 0, :]
        return self._in_units_of_y(result, X.dtype)

    def predictive_cdf(self, X, y):
        """Distribution function of the predictive mixture at y.

        Where the predictive is right, these values are uniform in [0, 1] (the
        probability integral transform; Gneiting, Balabdaoui & Raftery 2007).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)

        Returns
        -------
        probability : ndarray of shape (n_samples,) or (n_samples, n_targets)
        """
        X = self._checked_inputs(X)
        y = self._standardised_targets(X, y)
        result = np.empty_like(y)
        for chunk, (mean, variance) in all_draws(self._gaussians(X)):
            result[chunk] = mixture_cdf(mean, variance, y[chunk])
        return self._one_target_flat(result)

    def sample_f(self, X, n_samples=1, random_state=0):
        """Noise-free functions drawn from the posterior, coherent over rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Functions; each is one fresh draw of the weights of one network.
        random_state : int, RandomState instance or None, default=0

        Returns
        -------
        f : ndarray of shape (n_samples_X[, n_targets], n_samples)
            In y's units.
        """
        (mean, _), _ = self._random_functions(X, n_samples, random_state)
        return self._in_units_of_y(np.moveaxis(mean, 0, -1), mean.dtype)

    def sample_y(self, X, n_samples=1, random_state=0):
        """Draws of y: functions of ``sample_f`` with independent noise on them.

        Parameters and shapes as in ``sample_f``.
        """
        (mean, variance), random = self._random_functions(X, n_samples, random_state)
        noise = random.standard_normal(mean.shape, dtype=mean.dtype)
        draws = mean + np.sqrt(variance) * noise
        return self._in_units_of_y(np.moveaxis(draws, 0, -1), mean.dtype)

    def log_predictive_density(self, X, y):
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
        result = np.empty(X.shape[0])
        for chunk, parts in by_rows(self._gaussians(X)):
            density = LogDensity()
            for mean, variance in parts:
                density.add(gaussian_log_density(mean, variance, y[chunk]))
            result[chunk] = density.value
        return result - np.log(self.y_scale_).sum()

    def _gaussians(self, X):
        """Chunks of (mean, variance) of the draws, in the network's scale."""
        return self._components(X, self._posterior(X), self.n_draws)

    def _mixture(self, X) -> GaussianMixture:
        """The predictive of a few rows in y's units, all draws held."""
        mean, variance = whole(self._gaussians(self._checked_inputs(X)))
        return GaussianMixture(
            mean * self.y_scale_ + self.y_mean_,
            variance * np.square(self.y_scale_),
            flat=self.y_ndim_ == 1,
        )

    def _moments(self, X) -> dict[str, np.ndarray]:
        """Predictive mean and the stds of all kinds, in y's units; X is checked."""
        shape = (X.shape[0], len(self.y_mean_))
        mean, epistemic, aleatoric = (np.empty(shape) for _ in range(3))
        for chunk, parts in by_rows(self._gaussians(X)):
            moments = GaussianMoments()
            for component in parts:
                moments.add(*component)
            mean[chunk] = moments.mean
            epistemic[chunk] = np.sqrt(moments.epistemic)
            aleatoric[chunk] = np.sqrt(moments.aleatoric)
        stds = {
            "total": np.hypot(epistemic, aleatoric),
            "epistemic": epistemic,
            "aleatoric": aleatoric,
        }
        return {"mean": self._in_units_of_y(mean, X.dtype)} | {
            kind: self._one_target_flat(std * self.y_scale_).astype(X.dtype)
            for kind, std in stds.items()
        }

    def _explained(self, X, y, weights):
        mean = self._moments(X)["mean"].reshape(y.shape)
        return explained_variance(X, y, weights, mean)

    def _standardised_targets(self, X, y):
        """y, checked against X, in the network's scale: (rows, targets)."""
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        y = y.reshape(len(y), -1)
        check_consistent_length(X, y)
        if y.shape[1] != len(self.y_mean_):
            raise ValueError(
                f"`y` must have the {len(self.y_mean_)} targets of the fit; got "
                f"{y.shape[1]}."
            )
        return (y - self.y_mean_) / self.y_scale_

    def _in_units_of_y(self, values, dtype):
        """(rows, targets, ...) in the network's scale -> y's units and shape."""
        ones = (1,) * (values.ndim - 2)
        scale, mean = (v.reshape(-1, *ones) for v in (self.y_scale_, self.y_mean_))
        return self._one_target_flat(values * scale + mean).astype(dtype)

    def _one_target_flat(self, values):
        """Drop the target axis where y had none."""
        return values[:, 0] if self.y_ndim_ == 1 else values

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
