"""Gaussian process that dropout approximates [GG16 appendix 3], by random features."""

from numbers import Real
from typing import Any

import numpy as np

from skbayesnn import _validation
from skbayesnn._engine.config import TrainingOptions
from skbayesnn._families import Bernoulli, Family, FixedWidth, MeanField, Point
from skbayesnn._validation import layer_size
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
    likelihood, likelihood_options, n_estimators, n_draws
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
    tau_, noise_std_, dropout_, weight_decay_, tau_training_, weight_decay_training_, \
elbo_, elbo_std_error_, history_, loss_curve_, n_iter_, engine_, n_processes_, \
n_features_in_, feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, \
x_scale_, table_, y_mean_, y_scale_
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
