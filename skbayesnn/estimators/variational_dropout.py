"""Variational dropout [KSW15]: Gaussian dropout whose noise is learned."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skbayesnn import _validation
from skbayesnn._families import Correlated, Independent, Point
from skbayesnn._typing import Array, MatrixLike
from skbayesnn.estimators import _pruning
from skbayesnn.estimators._classification import MANY_ROWS, BayesianClassifier
from skbayesnn.estimators._job import VariationalSpec
from skbayesnn.estimators._regression import BayesianRegressor


class _VariationalDropout(_pruning.Prunable):
    """Multiplicative normal noise of a learned variance, and what it makes needless."""

    noise: str
    alpha_per: str
    prior: str
    kl_approximation: str
    kl_warm_up: Any
    prior_: list[dict[str, Array]]

    _can_collapse = True

    @property
    def _learns_rates(self):
        return bool(np.any(np.asarray(self.dropout) > 0))

    def _variational(self, fan_ins):
        rates = _validation.dropout_rates(self.dropout, len(fan_ins))
        noise, alpha, prior, approximation = (
            _validation.check_option(name, getattr(self, name), options)
            for name, options in {
                "noise": ("correlated", "independent"),
                "alpha_per": ("layer", "unit", "weight"),
                "prior": ("log_uniform", "gaussian"),
                "kl_approximation": ("molchanov", "kingma"),
            }.items()
        )
        if noise == "correlated" and alpha == "weight":
            raise ValueError(
                "noise='correlated' has one random number per unit; got "
                "alpha_per='weight'. Set alpha_per='unit', or noise='independent'."
            )
        if noise == "correlated" and prior == "gaussian":
            raise ValueError(
                "noise='correlated' has no density over the weights, and so no KL to "
                "a Gaussian prior; got prior='gaussian'. Set prior='log_uniform', or "
                "noise='independent'."
            )
        kind = Correlated if noise == "correlated" else Independent
        noisy = kind(alpha, approximation)
        families = tuple(noisy if rate > 0 else Point() for rate in rates)
        return VariationalSpec(
            rates,
            families,
            prior=prior,
            kl_warm_up=self._warm_up(noise),
            n_training_draws=_validation.training_draws(self),
            variance_source="held_out" if self._learns_rates else "residuals",
        )

    def _warm_up(self, noise):
        if isinstance(self.kl_warm_up, str):
            _validation.check_named("kl_warm_up", self.kl_warm_up, ["auto"])
            return 0.5 if noise == "independent" else 0.0
        return _validation.check_number("kl_warm_up", self.kl_warm_up, low=0, high=1)

    @property
    def alpha_(self) -> list[Array]:
        """Variance of the noise of a weight of one, per layer."""
        return [
            log_alpha.double().exp().cpu().numpy()
            for log_alpha in _pruning.log_alpha(self._plain_posterior())
        ]

    @property
    def sparsity_(self) -> float:
        """Share of the weights that are noise (log alpha > 3), or pruned."""
        used = _pruning.n_used(self._plain_posterior(), _pruning.THRESHOLD)
        return 1 - used / _pruning.n_connections(self._sizes_of_fit())

    def prune(
        self,
        threshold: float = _pruning.THRESHOLD,
        X: MatrixLike | None = None,
        y: ArrayLike | None = None,
    ) -> Self:
        """Drop the weights that are noise, and the hidden units that nothing uses.

        Weights with log alpha above the threshold become zero and lose their noise; a
        hidden unit whose outgoing weights are zero in all networks is removed.

        Parameters
        ----------
        threshold : float, default=3
            Of log alpha; 3 is a dropout rate of 0.95 [2]_. With
            ``kl_approximation="kingma"`` log alpha is at most 0, with
            ``"molchanov"`` at most 4.
        X, y : array-like, default=None
            Rows to ``score`` before and after.

        Returns
        -------
        self : object
            ``pruning_`` says what was done. A pruned network cannot be trained on.
        """
        threshold = _validation.check_number("threshold", threshold)
        return self._prune(
            {"threshold": threshold},
            lambda posterior: _pruning.less_noisy(posterior, threshold),
            X,
            y,
        )


class VariationalDropoutRegressor(_VariationalDropout, BayesianRegressor):
    """Neural network regression with variational dropout.

    Units, or weights, are multiplied by N(1, alpha), and alpha is learned with the
    weights by minimising the variational free energy [1]_. Under the log-uniform prior
    the KL depends on alpha alone: it asks for noise wherever the data allow it.

    Type B with an alpha per unit, the default, has the lowest errors with one hidden
    layer in this package's benchmarks. Under the log-uniform prior nothing holds the
    weights themselves, and long training over-fits: so rows that are held out say how
    long is trained (``max_iter``), and what the noise is (``tau``). Where they do not
    (``partial_fit``, early stopping, very large tables) intervals can be too narrow:
    there put :class:`CalibratedUncertaintyRegressor` around it.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50, 50)
        Units of each hidden layer; () is a linear model.
    activation : {"relu", "tanh", "logistic", "erf", "silu", "identity"}, default="relu"
    network : None, MLP, ConvNet or RecurrentNet, default=None
        As in :class:`MCDropoutRegressor`.
    dropout : float in [0, 1) or sequence of float, default=0.1
        Where learning starts: alpha = dropout / (1 - dropout). 0 leaves a layer
        without noise.
    noise : {"correlated", "independent"}, default="correlated"
        Noise on units (type B of [1]_), or on every weight by itself (type A).
    alpha_per : {"layer", "unit", "weight"}, default="unit"
        What has an alpha of its own; a unit is an input of a weight layer. ``"weight"``
        needs ``noise="independent"``, and is the better choice there: one alpha for
        many independent weights has their KL to pay, and under-fits.
    prior : {"log_uniform", "gaussian"}, default="log_uniform"
        The scale-free prior of [1]_, or N(0, 1 / l^2), which needs
        ``noise="independent"``.
    kl_approximation : {"molchanov", "kingma"}, default="molchanov"
        Of the KL to the log-uniform prior: for all alpha [2]_, or for alpha <= 1
        [1]_, which is then enforced.
    kl_warm_up : "auto" or float in [0, 1), default="auto"
        Share of the training over which the KL's weight rises from 0 to 1. ``"auto"``
        is half for independent noise, which without it prunes weights before they
        are fitted, and nothing for correlated noise, which over-fits with it.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l of the biases, and with ``prior="gaussian"`` of the
        weights, as in :class:`MCDropoutRegressor`; ``"auto"`` is ``"fan_in"``.
    tau, likelihood, likelihood_options
        As in :class:`MCDropoutRegressor` with ``dropout="auto"``, whose posterior has a
        width that is learned, too (with ``dropout=0`` as there by the residuals).
    n_estimators, n_draws, n_training_draws, standardize, batch_size, learning_rate, \
learning_rate_init, max_iter, early_stopping, validation_fraction, n_iter_no_change, \
tol, warm_start, device, dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    alpha_ : list of ndarray of shape (networks, inputs, outputs)
        Per weight layer, within its bounds; 0 without noise and where pruned.
    sparsity_ : float
        Share of the weights that are noise (log alpha > 3), or pruned.
    pruning_ : dict or None
        What ``prune`` did: threshold, layer sizes before, scores before and after.
    weight_decay_ : float or ndarray
        p l^2 / (2 N tau), p = 1 - dropout. Under the log-uniform prior, which has no
        scale, it acts on the biases only, without the p.
    tau_, noise_std_, dropout_, length_scale_, elbo_, elbo_std_error_, tau_training_, \
weight_decay_training_, history_, loss_curve_, n_iter_, n_features_in_, \
feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, x_scale_, \
y_mean_, y_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    MCDropoutRegressor : A fixed rate, or one rate learned per layer.
    BBBRegressor : A variance for every weight.

    References
    ----------
    .. [1] Kingma, Salimans & Welling (2015), "Variational dropout and the local
       reparameterization trick", arXiv:1506.02557.
    .. [2] Molchanov, Ashukha & Vetrov (2017), "Variational dropout sparsifies deep
       neural networks", arXiv:1701.05369.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import VariationalDropoutRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = VariationalDropoutRegressor(max_iter=50, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    """

    def __init__(
        self,
        hidden_layer_sizes=(50, 50),
        activation="relu",
        *,
        network=None,
        dropout=0.1,
        noise="correlated",
        alpha_per="unit",
        prior="log_uniform",
        kl_approximation="molchanov",
        kl_warm_up="auto",
        length_scale="auto",
        tau="auto",
        likelihood="gaussian",
        likelihood_options=None,
        n_estimators=1,
        n_draws=200,
        n_training_draws=1,
        standardize=True,
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
    def _selects_epochs_below(self):
        """With a prior without a scale noise is over-fitted.

        See docs/defaults.md, "Training length".
        """
        return math.inf if self._learns_rates else 0


class VariationalDropoutClassifier(_VariationalDropout, BayesianClassifier):
    """Neural network classification with variational dropout.

    Units, or weights, are multiplied by N(1, alpha), and alpha is learned with the
    weights by minimising the variational free energy [1]_.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50,)
        Units of each hidden layer; () is a linear model.
    activation : {"relu", "tanh", "logistic", "erf", "silu", "identity"}, default="relu"
    network : None, MLP, ConvNet or RecurrentNet, default=None
        As in :class:`MCDropoutRegressor`.
    dropout, noise, alpha_per, prior, kl_approximation, kl_warm_up
        As in :class:`VariationalDropoutRegressor`.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l of the biases, and with ``prior="gaussian"`` of the
        weights, as in :class:`MCDropoutClassifier`.
    tau, class_weight
        As in :class:`MCDropoutClassifier`.
    n_estimators, n_draws, n_training_draws, standardize, batch_size, learning_rate, \
learning_rate_init, max_iter, early_stopping, validation_fraction, n_iter_no_change, \
tol, warm_start, device, dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    alpha_, sparsity_, pruning_, weight_decay_, tau_training_, weight_decay_training_
        As in :class:`VariationalDropoutRegressor`.
    tau_, dropout_, length_scale_, elbo_, elbo_std_error_, history_, loss_curve_, \
n_iter_, n_features_in_, feature_names_in_, parameters_, network_, seeds_, optimizer_, \
x_mean_, x_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    VariationalDropoutRegressor : The same for numbers.

    References
    ----------
    .. [1] Kingma, Salimans & Welling (2015), "Variational dropout and the local
       reparameterization trick", arXiv:1506.02557.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from skbayesnn import VariationalDropoutClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = VariationalDropoutClassifier(max_iter=50, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    def __init__(
        self,
        hidden_layer_sizes=(50,),
        activation="relu",
        *,
        network=None,
        dropout=0.1,
        noise="correlated",
        alpha_per="unit",
        prior="log_uniform",
        kl_approximation="molchanov",
        kl_warm_up="auto",
        length_scale="auto",
        tau=1.0,
        likelihood="categorical",
        class_weight=None,
        n_estimators=1,
        n_draws=200,
        n_training_draws=1,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.01,
        max_iter="auto",
        early_stopping="auto",
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
    def _steps_per_sqrt_n(self):
        """With a prior without a scale classes are over-fitted.

        See docs/defaults.md, "Training length".
        """
        return 20

    @property
    def _stops_early_from(self):
        return MANY_ROWS
