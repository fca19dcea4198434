"""Gaussian process that dropout approximates [GG16 appendix 3], by random features."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
)

from skbayesnn import _stored as stored
from skbayesnn import _validation
from skbayesnn._engine.config import TrainingOptions
from skbayesnn._engine.posterior import mean_weights
from skbayesnn._engine.resources import as_tensor
from skbayesnn._families import Bernoulli, Family, FixedWidth, MeanField, Point
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn._runtime import on_snapshot
from skbayesnn._typing import Array, MatrixLike
from skbayesnn._validation import layer_size
from skbayesnn.estimators._fitted import fitted_posterior
from skbayesnn.estimators._job import PosteriorSpec
from skbayesnn.estimators._regression import BayesianRegressor


def _family(rate: float, width: float | str, length_scale: float) -> Family:
    """Posterior family of one weight layer.

    width : posterior standard deviation as a share of the prior's; "auto" learns it
    """
    if isinstance(width, str):
        return MeanField(spike=bool(rate > 0))
    if width > 0:
        return FixedWidth(spike=bool(rate > 0), sigma=float(width / length_scale))
    return Bernoulli() if rate > 0 else Point()


# ---- kernels of infinitely many features, and the marginal likelihood

# Covariances of u and u', variances of u as a column, variances of u' as a row.
Kernel = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def _arc_sine(covariance, left, right):
    """E erf(u) erf(u') (Williams 1998)."""
    sine = 2 * covariance / np.sqrt((1 + 2 * left) * (1 + 2 * right))
    return 2 / np.pi * np.arcsin(sine)


def _arc_cosine(covariance, left, right):
    """E relu(u) relu(u') (Cho & Saul 2009)."""
    stds = np.sqrt(left * right)
    cosine = np.clip(covariance / stds, -1, 1)
    angle = np.arccos(cosine)
    return stds * (np.sin(angle) + (np.pi - angle) * cosine) / (2 * np.pi)


_KERNELS: dict[str, Kernel] = {
    "erf": _arc_sine,
    "relu": _arc_cosine,
    "identity": lambda covariance, left, right: covariance,
}


def _log_marginal(features: np.ndarray, y: np.ndarray, tau: float) -> float:
    """log N(y; 0, Phi Phi' + I / tau), by a matrix of the size of the features."""
    n_rows, n_features = features.shape
    precision = np.eye(n_features) + tau * features.T @ features
    factor = cho_factor(precision, lower=True)
    residual = y - features @ cho_solve(factor, tau * features.T @ y)
    log_determinant = 2 * np.log(np.diagonal(factor[0])).sum() - n_rows * np.log(tau)
    squares = tau * (y @ residual)
    return -0.5 * (squares + log_determinant + n_rows * np.log(2 * np.pi))


# ---- the estimator


class VariationalGPRegressor(BayesianRegressor):
    """Approximate Gaussian process regression by random features.

    Use it for smooth functions of few columns, or to compare dropout with the Gaussian
    process that it approximates. A fit takes about as long as a fit of
    :class:`BBBRegressor` with one hidden layer, and two to three times as long if
    held-out rows estimate the noise (the default).

    The process has infinitely many features sigma(w x + b), with w and b drawn from a
    prior. It is approximated by K features (Gal & Ghahramani 2016):

        f(x) = c + sqrt(1 / K) sum_k v_k sigma(w_k x + b_k),  v_k ~ N(0, 1),
        w_k, b_k ~ N(0, 1 / length_scale^2),  c ~ N(0, 1 / K).

    The constant c, which the paper does not have, adds 1 / K to every covariance.
    Given w and b, y has the marginal distribution N(0, Phi Phi' + I / tau): see
    ``features``, ``kernel`` and ``log_marginal_likelihood``.

    The posterior over w and v consists of mixtures of two normal distributions, p N(m,
    s^2) + (1 - p) N(0, s^2), p = 1 - dropout. The weights of a column to all features
    share a component of the mixture, and so do the weights of a feature to all targets.
    The posterior over b and c is normal. As s goes to zero this is MC dropout in one
    hidden layer. The training maximises the evidence
    lower bound, with its data term estimated from draws.

    Parameters
    ----------
    n_features : int, default=100
        K, units of the hidden layer. With more features the approximation is better
        and the fit takes longer.
    activation : {"erf", "tanh", "relu", "logistic", "silu", "identity"}, default="erf"
        sigma. Leave the default, or ``"relu"`` for rougher functions. The error
        function gives the arc-sine kernel (Williams 1998), ``"relu"`` the arc-cosine
        kernel of degree one (Cho & Saul 2009).
    dropout : float in [0, 1) or sequence of 2 floats, default=0
        1 - p for the rows of w and of v. Leave 0 unless you compare with MC
        dropout.
    length_scale : float > 0, default=1.0
        l, for standardised columns: search 0.3 to 3. With a large l, functions change
        slowly. The precision of the feature weights is K.
    tau : "auto", float > 0 or sequence of float, default="auto"
        Precision of the noise, 1 / variance in y's own units. Leave ``"auto"`` unless
        the noise is known or a search selects it. With ``"auto"``, the noise of
        predictions is estimated on held-out rows if ``sigma`` is a number > 0, and
        otherwise from the residuals of the training rows; see
        :class:`MCDropoutRegressor`.
    sigma : float >= 0, "auto", or two of these, default=0.1
        s, as a share of the prior's standard deviation; of two values, the first
        belongs to w and b, the second to v. Leave the default. ``"auto"`` learns an s
        for every weight, as :class:`BBBRegressor` does. With 0, the posterior is
        dropout, or a point estimate if ``dropout`` is 0.
    likelihood : str, default="gaussian"
        Distribution of y given the function, as in :class:`MCDropoutRegressor`.
        ``"auto"`` is ``"gaussian"``.
    likelihood_options, target_scale, y_bounds, point_mass, exposure, \
n_estimators, n_draws
        As in :class:`MCDropoutRegressor`.
    n_training_draws
        As in :class:`BBBRegressor`.
    standardize, categorical_features, batch_size, learning_rate, \
learning_rate_init
        As in :class:`MCDropoutRegressor`.
    max_iter
        As in :class:`BBBRegressor`.
    early_stopping, validation_fraction, n_iter_no_change, tol, warm_start, device, \
dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    length_scale_ : ndarray of shape (2,)
        The length scale of w and b, and the length scale of v, sqrt(K).
    likelihood_, target_spaces_, \
tau_, noise_std_, dropout_, weight_decay_, tau_training_, \
weight_decay_training_, elbo_, elbo_std_error_, history_, loss_curve_, n_iter_, \
engine_, n_processes_, n_features_in_, feature_names_in_, parameters_, network_, \
seeds_, optimizer_, x_mean_, x_scale_, table_, y_mean_, y_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    MCDropoutRegressor : The limit s = 0, with any number of layers.
    sklearn.gaussian_process.GaussianProcessRegressor : Without approximation, for some
        thousand rows.

    References
    ----------
    - Gal & Ghahramani (2016), "Dropout as a Bayesian approximation: appendix",
      arXiv:1506.02157, section 3.
    - Williams (1998), "Computation with infinite neural networks", Neural Computation
      10.
    - Cho & Saul (2009), "Kernel methods for deep learning", NeurIPS.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import VariationalGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = VariationalGPRegressor(max_iter=50, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    """

    n_features: Any
    sigma: Any
    n_training_draws: stored.PositiveCount

    def __init__(
        self,
        n_features=100,
        activation="erf",
        *,
        dropout=0.0,
        length_scale=1.0,
        tau="auto",
        sigma=0.1,
        likelihood="gaussian",
        likelihood_options=None,
        target_scale="identity",
        y_bounds=None,
        point_mass=None,
        exposure=None,
        n_estimators=1,
        n_draws=200,
        n_training_draws=1,
        standardize=True,
        categorical_features="from_dtype",
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.01,
        max_iter="auto",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        warm_start=False,
        device="auto",
        dtype="float32",
        verbose=False,
        random_state=None,
    ) -> None:
        self._store(locals())

    @property
    def hidden_layer_sizes(self) -> tuple[int, ...]:
        """Layer sizes of the network: the features are one hidden layer."""
        return (self._n_features(),)

    def _n_features(self):
        return layer_size("n_features", self.n_features)

    def _length_scales(self, fan_ins, total_weight):
        """Length scale of the features; their weights have variance 1 / n_features."""
        feature_scale = _validation.check_number(
            "length_scale", self.length_scale, low=0, open_low=True
        )
        return np.array([feature_scale, np.sqrt(fan_ins[1])])

    @on_snapshot
    def features(self, X: MatrixLike, *, draw: int | None = None) -> Array:
        """Evaluate the features sqrt(1 / K) sigma(w_k x + b_k) of a fitted model.

        They are the basis functions of a Bayesian linear regression: f is their sum
        with weights N(0, 1).

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows without missing values.
        draw : int, default=None
            Leave None for w and b at their posterior means. Set it for one of the draws
            that predictions average: draws of the networks alternate, and there are
            ``n_draws * n_estimators``. None uses the first network.

        Returns
        -------
        Phi : ndarray of shape (n_samples, K + 1)
            K features, and last the constant sqrt(1 / K), the feature of c.
        """
        return self._features(X, draw)

    @on_snapshot
    def kernel(
        self, X: MatrixLike, Z: MatrixLike | None = None, *, draw: int | None = None
    ) -> Array:
        """Evaluate the covariance of f given w and b, Phi(X) Phi(Z)'.

        Use it to see which rows the fitted model takes as similar, or as the kernel of
        another model.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows without missing values.
        Z : {frame, array-like, sparse matrix} of shape (m_samples, n_features), \
default=None
            Other rows; None is X.
        draw : int, default=None
            Leave None for w and b at their posterior means; see ``features``.

        Returns
        -------
        covariance : ndarray of shape (n_samples, m_samples)
            In the units of the standardised y: ``y_scale_`` squared is 1.
        """
        left = self._features(X, draw)
        right = left if Z is None else self._features(Z, draw)
        return left @ right.T

    @on_snapshot
    def prior_kernel(self, X: MatrixLike, Z: MatrixLike | None = None) -> Array:
        """Evaluate the covariance of f under the prior of w and b, for any K.

        It is the mean of ``kernel`` over the prior. As K grows, the kernel of a single
        draw from the prior tends to it: with ``"erf"`` to the arc-sine kernel, with
        ``"relu"`` to the arc-cosine kernel of degree one.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows without missing values.
        Z : {frame, array-like, sparse matrix} of shape (m_samples, n_features), \
default=None
            Other rows; None is X.

        Returns
        -------
        covariance : ndarray of shape (n_samples, m_samples)
            In the units of the standardised y, with the variance 1 / K of c.

        Raises
        ------
        ValueError
            If the kernel of the activation has no closed form.
        """
        check_is_fitted(self)
        activation = self.network_["activation"]
        if activation not in _KERNELS:
            raise ValueError(
                "`prior_kernel` requires an activation whose kernel has a closed form, "
                f"{', '.join(map(repr, _KERNELS))}; got {activation!r}. Use `kernel`, "
                "the kernel of the fitted features."
            )
        scale, feature_scale = np.broadcast_to(self.length_scale_, 2)
        left = self._standardized(X) / scale
        right = left if Z is None else self._standardized(Z) / scale
        bias = 1 / scale**2
        kernel = _KERNELS[activation](
            left @ right.T + bias,
            np.square(left).sum(1)[:, None] + bias,
            np.square(right).sum(1) + bias,
        )
        return kernel + feature_scale**-2

    @on_snapshot
    def log_marginal_likelihood(
        self, X: MatrixLike, y: ArrayLike, *, draw: int | None = None
    ) -> float:
        """Evaluate log p(y | X, w, b) = log N(y; 0, Phi Phi' + I / tau).

        The weights v and c are integrated out. Use it to compare draws, or numbers of
        features, with the same rows. Unlike ``elbo_`` it has no penalty for w and b,
        which were fitted to the training rows.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Rows without missing values.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets, in their own units. Phi is for the standardised y, and tau is
            ``tau_``.
        draw : int, default=None
            Leave None for w and b at their posterior means; see ``features``.

        Returns
        -------
        log_likelihood : float
            Joint log density of all rows and targets, in nats.

        Raises
        ------
        ValueError
            If the likelihood is not Gaussian with constant noise.
        """
        check_is_fitted(self)
        name = self.network_["likelihood"]["name"]
        if name != "gaussian":
            raise ValueError(
                "`log_marginal_likelihood` requires likelihood='gaussian', so that v "
                f"can be integrated out; got {name!r}. Compare models by "
                "`log_predictive_density` of held-out rows."
            )
        features = self._features(X, draw).astype(np.float64)
        targets = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        targets = targets.reshape(len(targets), -1)
        check_consistent_length(features, targets)
        scaling = self._scaling
        if targets.shape[1] != scaling.n_targets:
            raise ValueError(
                f"`y` must have the {scaling.n_targets} targets of the fit; got "
                f"{targets.shape[1]}."
            )
        precisions = scaling.tau_to_network(np.atleast_1d(self.tau_))
        parts = zip(scaling.y_to_network(targets).T, precisions, strict=True)
        density = sum(_log_marginal(features, *part) for part in parts)
        return float(density + len(targets) * scaling.log_density_shift())

    def _features(self, X, draw: int | None) -> np.ndarray:
        """Phi, (rows, K + 1), in the precision of X."""
        values = self._standardized(X)
        posterior = fitted_posterior(self, values)
        if draw is None:
            weight, bias, *_ = mean_weights(posterior)[0]
        else:
            n_draws = self.n_draws * posterior.n_members
            number = _validation.check_number(
                "draw", draw, kind=Integral, low=0, high=n_draws
            )
            number, member = divmod(number, posterior.n_members)
            posterior = posterior.select(np.array([member]))
            weight, bias, *_ = posterior.draw(range(number, number + 1))[0]
        inputs = as_tensor(values).to(posterior.device, posterior.dtype)
        bias = bias.expand(*weight.shape[:2], -1)
        with torch.no_grad():
            units = torch.addmm(bias[0, 0], inputs, weight[0, 0])
            units = ACTIVATIONS[self.network_["activation"]].in_place(units)
            features = torch.cat([units, torch.ones_like(units[:, :1])], 1)
            return features.div_(units.shape[1] ** 0.5).cpu().numpy()

    def _standardized(self, X) -> np.ndarray:
        """Rows as the network sees them, (rows, inputs), float32 if X is."""
        rows = self._new_rows(X)
        if rows.unknown:
            raise ValueError(
                "features and kernels require rows without missing values and unseen "
                f"levels; got {len(rows.unknown)} columns with such values. Fill them "
                "first, for instance with sklearn.impute.SimpleImputer."
            )
        dense = rows.X.toarray() if sparse.issparse(rows.X) else rows.X
        return self._scaling.x_to_network(dense).astype(rows.X.dtype, copy=False)

    def _posterior_spec(self, fan_ins):
        rates = _validation.dropout_rates(self.dropout, len(fan_ins))
        scales = self._length_scales(fan_ins, np.inf)
        families = tuple(map(_family, rates, self._widths(), scales))
        # If the features interpolate the rows, a given width is too narrow, so that
        # residuals underestimate the noise: held-out rows estimate it.
        has_fixed_width = any(isinstance(family, FixedWidth) for family in families)
        return PosteriorSpec(
            rates,
            families,
            training=TrainingOptions(
                n_training_draws=_validation.training_draws(self),
                variance_source="held_out" if has_fixed_width else "residuals",
            ),
        )

    def _widths(self) -> list[float | str]:
        """Posterior widths of both weight layers, as shares of the prior's."""
        widths = self.sigma
        if isinstance(widths, str | Real):
            widths = (widths, widths)
        if len(widths) != 2:
            raise ValueError(
                "`sigma` must be a float, 'auto', or a pair of these for the features "
                f"and their weights; got {self.sigma!r}."
            )
        return [
            _validation.check_named("sigma", width, ["auto"])
            if isinstance(width, str)
            else _validation.check_number("sigma", width, low=0)
            for width in widths
        ]
