"""Variational dropout [KSW15]: Gaussian dropout whose noise is learned."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skbayesnn import _stored as stored
from skbayesnn import _validation
from skbayesnn._engine.config import TrainingOptions
from skbayesnn._families import Correlated, Independent, Point
from skbayesnn._typing import Array, MatrixLike
from skbayesnn.estimators import _pruning
from skbayesnn.estimators._classification import BayesianClassifier
from skbayesnn.estimators._job import PosteriorSpec
from skbayesnn.estimators._parameters import parameters
from skbayesnn.estimators._regression import BayesianRegressor


@parameters
class _VariationalDropout(_pruning.Prunable):
    """Multiplicative normal noise of a learned variance, and what it makes needless."""

    dropout: stored.Rates = 0.1
    noise: str = "correlated"
    alpha_per: str = "unit"
    prior: str = "log_uniform"
    kl_approximation: str = "molchanov"
    kl_warm_up: Any = "auto"
    n_training_draws: stored.PositiveCount = 1

    @property
    def _learns_rates(self) -> bool:
        rates = np.asarray(self.dropout)
        return rates.dtype.kind in "biuf" and bool((rates > 0).any())

    def _posterior_spec(self, fan_ins):
        rates = _validation.dropout_rates(self.dropout, len(fan_ins))
        noise, alpha_per, prior, approximation = (
            _validation.check_option(name, getattr(self, name), options)
            for name, options in {
                "noise": ("correlated", "independent"),
                "alpha_per": ("layer", "unit", "weight"),
                "prior": ("log_uniform", "gaussian"),
                "kl_approximation": ("molchanov", "kingma"),
            }.items()
        )
        if noise == "correlated" and alpha_per == "weight":
            raise ValueError(
                "noise='correlated' requires alpha_per='layer' or 'unit', since it has "
                "one random number per unit; got alpha_per='weight'. Set "
                "alpha_per='unit', or noise='independent'."
            )
        if noise == "correlated" and prior == "gaussian":
            raise ValueError(
                "noise='correlated' requires prior='log_uniform': it has no density "
                "over the weights, and no KL to a Gaussian prior; got "
                "prior='gaussian'. Set prior='log_uniform', or noise='independent'."
            )
        family_class = Correlated if noise == "correlated" else Independent
        family = family_class(alpha_per, approximation)
        families = tuple(family if rate > 0 else Point() for rate in rates)
        return PosteriorSpec(
            rates,
            families,
            prior=prior,
            training=TrainingOptions(
                kl_warm_up=self._warm_up(noise),
                n_training_draws=_validation.training_draws(self),
                variance_source="held_out" if self._learns_rates else "residuals",
            ),
        )

    def _warm_up(self, noise):
        if isinstance(self.kl_warm_up, str):
            _validation.check_named("kl_warm_up", self.kl_warm_up, ["auto"])
            return 0.5 if noise == "independent" else 0.0
        return _validation.check_number("kl_warm_up", self.kl_warm_up, low=0, high=1)

    @property
    def alpha_(self) -> list[Array]:
        """alpha of every weight, per layer: the relative variance of its noise."""
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
        """Remove the weights that are mostly noise.

        Sets weights with log alpha above a threshold to exactly zero. Removes hidden
        units whose outgoing weights are zero in all networks. The training of a pruned
        network cannot be continued.

        Parameters
        ----------
        threshold : float, default=3
            Largest log alpha of the weights that are kept; 3 is a dropout rate of 0.95
            (Molchanov et al. 2017). log alpha is at most 4, and at most 0 with
            ``kl_approximation="kingma"``.
        X, y : array-like, default=None
            Rows to ``score`` before and after.

        Returns
        -------
        self : object
            The pruned estimator. ``pruning_`` has the sizes and scores before and
            after.
        """
        threshold = _validation.check_number("threshold", threshold)
        return self._prune(
            {"threshold": threshold},
            lambda posterior: _pruning.less_noisy(posterior, threshold),
            X,
            y,
        )


@parameters
class VariationalDropoutRegressor(_VariationalDropout, BayesianRegressor):
    """Neural network regression with variational dropout.

    Use it for low errors and for pruning: the noise of each unit or weight is learned.
    Units, or weights, are multiplied by N(1, alpha), and alpha minimises the
    variational free energy together with the weights (Kingma et al. 2015). Under the
    log-uniform prior the KL depends on alpha alone, so alpha grows if the data permit.
    A fit takes two times (several thousand rows) to seven times (a few hundred rows) as
    long as a fit of :class:`MCDropoutRegressor` with a given length scale.

    This prior does not shrink the weights, and long training over-fits. So held-out
    rows select the number of epochs (``max_iter``) and estimate the noise (``tau``). In
    ``partial_fit``, with early stopping and with very large tables, no rows are held
    out for this, and intervals can be too narrow: then use
    :class:`CalibratedUncertaintyRegressor`.

    Parameters
    ----------
    hidden_layer_sizes, activation, network
        As in :class:`MCDropoutRegressor`.
    dropout : float in [0, 1) or sequence of float, default=0.1
        Initial value, alpha = dropout / (1 - dropout). Leave the default; 0 makes a
        layer deterministic.
    noise : {"correlated", "independent"}, default="correlated"
        ``"correlated"``: noise on units (type B of Kingma et al. 2015).
        ``"independent"``: noise on every weight separately (type A). Leave the default,
        which has lower errors with one hidden layer. Type A with ``alpha_per="weight"``
        prunes single weights.
    alpha_per : {"layer", "unit", "weight"}, default="unit"
        Whether every layer, unit or weight has its own alpha; a unit is an input of a
        weight layer. ``"weight"`` requires ``noise="independent"``, and is the best
        choice with this noise: one alpha for many independent weights under-fits,
        because its KL counts once per weight.
    prior : {"log_uniform", "gaussian"}, default="log_uniform"
        The scale-free prior of Kingma et al. (2015), or N(0, 1 / l^2), which requires
        ``noise="independent"``. Leave the default.
    kl_approximation : {"molchanov", "kingma"}, default="molchanov"
        Approximation of the KL to the log-uniform prior. Leave the default, which holds
        for all alpha (Molchanov et al. 2017); ``"kingma"`` holds for alpha <= 1, which
        is then enforced.
    kl_warm_up : "auto" or float in [0, 1), default="auto"
        Share of the training in which the KL's weight rises from 0 to 1. Leave
        ``"auto"``: 0.5 for independent noise, 0 for correlated noise. Without a
        warm-up, independent noise prunes weights before they are fitted.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l of the biases, and with ``prior="gaussian"`` of the
        weights. Leave the default: ``"auto"`` is ``"fan_in"``, l^2 = the number of
        inputs of each layer.
    tau : "auto", float > 0 or sequence of float, default="auto"
        Model precision: 1 / variance of the observation noise, in y's own units, one
        value or one per target. Leave ``"auto"`` unless the noise is known or a search
        selects it: held-out rows estimate it after training, as described for
        :class:`MCDropoutRegressor` with ``dropout="auto"``.
    likelihood, likelihood_options, target_scale, y_bounds, point_mass, exposure, \
n_estimators, n_draws
        As in :class:`MCDropoutRegressor`.
    n_training_draws : int, default=1
        Draws of the noise in every training step. Their gradients are averaged. Leave
        1: more draws reduce the variance of the gradients, but the training time is
        proportional to their number.
    standardize, categorical_features, batch_size, learning_rate, \
learning_rate_init
        As in :class:`MCDropoutRegressor`.
    max_iter : "auto" or int, default="auto"
        Epochs. Leave ``"auto"``: 100 sqrt(N) steps, and at least ten epochs. Held-out
        rows may select a quarter or a tenth of these epochs. The log density must then
        be higher by more than a standard error. ``n_iter_`` is the selected number.
    early_stopping, validation_fraction, n_iter_no_change, tol, warm_start, device, \
dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    alpha_ : list of ndarray of shape (networks, inputs, outputs)
        Per weight layer, within the bounds of alpha; 0 without noise and for pruned
        weights.
    sparsity_ : float
        Share of the weights that are noise (log alpha > 3), or pruned.
    pruning_ : dict or None
        What ``prune`` did: threshold, layer sizes before, scores before and after.
    weight_decay_ : float or ndarray
        p l^2 / (2 N tau), p = 1 - dropout. With the log-uniform prior, which has no
        scale, it is the weight decay of the biases, l^2 / (2 N tau).
    likelihood_, target_spaces_, \
tau_, noise_std_, dropout_, length_scale_, tau_training_, \
weight_decay_training_, elbo_, elbo_std_error_, history_, loss_curve_, n_iter_, \
engine_, n_processes_, n_features_in_, feature_names_in_, parameters_, network_, \
seeds_, optimizer_, x_mean_, x_scale_, table_, y_mean_, y_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    MCDropoutRegressor : A fixed rate, or one rate learned per layer.
    BBBRegressor : A variance for every weight.

    References
    ----------
    - Kingma, Salimans & Welling (2015), "Variational dropout and the local
      reparameterization trick", arXiv:1506.02557.
    - Molchanov, Ashukha & Vetrov (2017), "Variational dropout sparsifies deep neural
      networks", arXiv:1701.05369.

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


@parameters
class VariationalDropoutClassifier(_VariationalDropout, BayesianClassifier):
    """Neural network classification with variational dropout.

    Use it for pruning, and if the noise of each unit should be learned. Units, or
    weights, are multiplied by N(1, alpha), and alpha minimises the variational free
    energy together with the weights (Kingma et al. 2015). A fit takes about as long as
    a fit of :class:`MCDropoutClassifier`.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50,)
        Units of each hidden layer; () is a linear model.
    activation, network
        As in :class:`MCDropoutRegressor`.
    dropout, noise, alpha_per, prior, kl_approximation, kl_warm_up
        As in :class:`VariationalDropoutRegressor`.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l of the biases, and with ``prior="gaussian"`` of the
        weights. Leave the default: 1 from 200 rows on, and 0.3, 1 or 3 by
        cross-validation with fewer rows.
    tau, likelihood, class_weight
        As in :class:`MCDropoutClassifier`.
    n_estimators, n_draws
        As in :class:`MCDropoutRegressor`.
    n_training_draws
        As in :class:`VariationalDropoutRegressor`.
    standardize, categorical_features
        As in :class:`MCDropoutClassifier`.
    batch_size, learning_rate, learning_rate_init
        As in :class:`MCDropoutRegressor`.
    max_iter : "auto" or int, default="auto"
        Epochs. Leave ``"auto"``: 20 sqrt(N) steps, and at least ten epochs. With fewer
        than 5,000 rows, held-out rows may select a quarter or a tenth of these epochs.
        The log density must then be higher by more than a standard error. ``n_iter_``
        is the selected number.
    early_stopping : bool or "auto", default="auto"
        Hold out rows, stop after ``n_iter_no_change`` epochs without an improvement of
        their log density, and keep the weights of the best epoch of each network.
        ``"auto"`` stops early with 5,000 rows or more, and if ``X_val`` is given.
    validation_fraction, n_iter_no_change, tol, warm_start, device, dtype, verbose, \
random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    classes_, tau_
        As in :class:`MCDropoutClassifier`.
    alpha_, sparsity_, pruning_, weight_decay_
        As in :class:`VariationalDropoutRegressor`.
    tau_training_, weight_decay_training_, dropout_, length_scale_, elbo_, \
elbo_std_error_, history_, loss_curve_, n_iter_, engine_, n_processes_, \
n_features_in_, feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, \
x_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    VariationalDropoutRegressor : Regression.

    References
    ----------
    - Kingma, Salimans & Welling (2015), "Variational dropout and the local
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

    hidden_layer_sizes: Any = field(default=(50,), kw_only=False)
    early_stopping: Any = "auto"
