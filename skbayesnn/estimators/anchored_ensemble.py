"""Anchored ensembles [PLB20]: each network's prior is centred on its own prior draw."""

import math
from dataclasses import field
from typing import Any

import numpy as np

from skbayesnn import _stored as stored
from skbayesnn import _validation
from skbayesnn._engine.config import TrainingOptions
from skbayesnn._families import Bernoulli, Point
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._classification import BayesianClassifier
from skbayesnn.estimators._job import PosteriorSpec
from skbayesnn.estimators._parameters import parameters
from skbayesnn.estimators._regression import BayesianRegressor


@parameters
class _AnchoredEnsemble(BayesianNetwork):
    """Randomised MAP sampling, for regression and classification."""

    hidden_layer_sizes: Any = field(default=(100,), kw_only=False)
    activation: str = field(default="tanh", kw_only=False)
    bias_length_scale: Any = "auto"
    noisy_targets: Any = True
    n_estimators: stored.PositiveCount = 10
    learning_rate_init: stored.PositiveFloat = 0.03

    def _posterior_spec(self, fan_ins):
        rates = _validation.dropout_rates(self.dropout, len(fan_ins))
        perturbed = _validation.check_bool("noisy_targets", self.noisy_targets)
        return PosteriorSpec(
            rates,
            tuple(Bernoulli() if rate > 0 else Point() for rate in rates),
            prior="anchored",
            prior_fields={"bias_length_scale": self._bias_length_scale(fan_ins)},
            training=TrainingOptions(
                perturbed=perturbed,
                variance_source="held_out" if perturbed else "residuals",
            ),
        )

    def _bias_length_scale(self, fan_ins):
        weight_scales = self._length_scales(fan_ins, math.inf)
        bias_scales = weight_scales / np.sqrt(fan_ins)
        if isinstance(self.bias_length_scale, str):
            _validation.check_named(
                "bias_length_scale", self.bias_length_scale, ["auto"]
            )
        else:
            bias_scales = _validation.per_layer(
                "bias_length_scale", self.bias_length_scale, len(fan_ins), low=0
            )
        if not (weight_scales.all() and bias_scales.all()):
            raise ValueError(
                "`length_scale` and `bias_length_scale` must be > 0, since anchors are "
                f"drawn from N(0, 1 / l^2); got {self.length_scale!r} and "
                f"{self.bias_length_scale!r}. For maximum likelihood use "
                "MCDropout* with dropout=0 and length_scale=0."
            )
        return bias_scales


@parameters
class AnchoredEnsembleRegressor(_AnchoredEnsemble, BayesianRegressor):
    """Ensemble of networks for regression, each pulled to its own draw from the prior.

    Use it to detect gaps between training rows and drift: its epistemic uncertainty is
    the best of the single estimators. A fit trains ten networks side by side, without
    masks, and some more to estimate the noise. It takes up to three times as long as a
    fit of :class:`MCDropoutRegressor`.

    A member minimises the squared error of y, with its own noise added to y, plus
    weight_decay_ times the squared distance of its weights from its anchor, a draw from
    the prior. In a linear model the members are draws of the exact posterior (Bardsley
    et al. 2014); for wide networks this holds nearly (Pearce et al. 2020). The members
    agree where there are training rows, and differ as much as the prior elsewhere.
    Anchors of the weights have the same effect as a fixed random function that is added
    to every member (Osband et al. 2018).

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(100,)
        Units of each hidden layer; () is a linear model.
    activation : {"tanh", "relu", "logistic", "erf", "silu", "identity"}, default="tanh"
        Leave the default. With ``"relu"``, functions are linear far from the rows.
    network
        As in :class:`MCDropoutRegressor`.
    dropout : float in [0, 1) or sequence of float, default=0
        Probability that a unit is dropped. Leave 0: masks add to the spread of the
        members.
    length_scale : {"auto", "fan_in"}, float > 0 or sequence of float, default="auto"
        Prior length scale l of the weights, one value or one per layer: anchors are
        drawn from N(0, 1 / l^2). It determines which functions are possible where there
        are no rows, so it is not selected on data. ``"fan_in"`` is l^2 = the number of
        inputs of each layer, so that units are of order one before training. ``"auto"``
        is ``"fan_in"`` with wider priors of two layers. The first layer's l is divided
        by max(3 / sqrt(n_features), 0.5): with few columns, units then bend at many
        places. The last layer's l is divided by 3: prior functions then have about
        three times the standard deviation of y.
    bias_length_scale : "auto", float > 0 or sequence of float, default="auto"
        Prior length scale of the biases, which place the bend of a unit. Leave
        ``"auto"``: ``length_scale`` divided by the root of the layer's inputs, so that
        a bias varies as much as the weighted sum of standardised inputs.
    noisy_targets : bool, default=True
        Whether every member has its own noise on y, N(0, 1 / tau). With likelihoods
        that are not Gaussian, every member has its own random weights of the rows,
        Exp(1), instead (Newton & Raftery 1994). Leave True: without this noise, members
        agree more at training rows than posterior draws, and the epistemic uncertainty
        is too small.
    tau : "auto", float > 0 or sequence of float, default="auto"
        Model precision, 1 / variance of the observation noise, in y's own units; one
        value, or one per target. Leave ``"auto"`` unless the noise is known: up to 25
        networks are trained without a part of the rows, for half of ``max_iter``, and
        tau is estimated on the held-out part. The members are then trained on all rows
        with this estimate. If the noise depends on the row, it is the tau of equal
        noise, and a factor of the noise is estimated on the same rows. With a few
        hundred rows, this increases the training time by about half. With
        ``early_stopping``, in ``partial_fit`` and for very large X, tau is learned with
        the weights, which overestimates the noise if ``length_scale`` is small. Without
        ``noisy_targets`` the noise is estimated from residuals, as in
        :class:`MCDropoutRegressor`.
    likelihood, likelihood_options, target_scale, y_bounds, point_mass, exposure
        As in :class:`MCDropoutRegressor`.
    n_estimators : int, default=10
        Members. Their spread has a relative error of 1 / sqrt(2 n_estimators).
    n_draws : int, default=200
        Posterior draws of each member in predictions; only used with dropout.
    standardize, categorical_features, batch_size, learning_rate
        As in :class:`MCDropoutRegressor`.
    learning_rate_init : float > 0, default=0.03
        Step size at the start, larger than for other networks, since anchors are far
        from the trained weights. Lower it if a warning reports that training diverged.
    max_iter
        As in :class:`BBBRegressor`.
    early_stopping, validation_fraction, n_iter_no_change, tol, warm_start, device, \
dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    weight_decay_ : float or ndarray of shape ([n_layers][, n_targets])
        lambda = p l^2 / (2 N tau), with p = 1 for layers without dropout, and with an
        axis for layers or targets if they differ. ``weight_decay_training_`` is the
        weight decay of the training.
    elbo_ : float
        Minus the mean penalised loss of the members, nats, up to constants that depend
        on the size of the network only.
    likelihood_, target_spaces_, \
tau_, noise_std_, dropout_, length_scale_, elbo_std_error_, \
tau_training_, weight_decay_training_, history_, loss_curve_, n_iter_, engine_, \
n_processes_, n_features_in_, feature_names_in_, parameters_, network_, seeds_, \
optimizer_, x_mean_, x_scale_, table_, y_mean_, y_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    AnchoredEnsembleClassifier : Classification.
    BayesianStackingRegressor : The most accurate of this package.

    References
    ----------
    - Pearce, Leibfried & Brintrup (2020), "Uncertainty in neural networks:
      approximately Bayesian ensembling", AISTATS, arXiv:1810.05546.
    - Bardsley, Solonen, Haario & Laine (2014), "Randomize-then-optimize: a method for
      sampling from posterior distributions in nonlinear inverse problems", SIAM Journal
      on Scientific Computing 36.
    - Osband, Aslanides & Cassirer (2018), "Randomized prior functions for deep
      reinforcement learning", arXiv:1806.03335.
    - Newton & Raftery (1994), "Approximate Bayesian inference with the weighted
      likelihood bootstrap", Journal of the Royal Statistical Society B 56.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import AnchoredEnsembleRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = AnchoredEnsembleRegressor(max_iter=50, random_state=0).fit(X, y)
    >>> model.predict_uncertainty(X[:3], "epistemic").shape
    (3,)
    """


@parameters
class AnchoredEnsembleClassifier(_AnchoredEnsemble, BayesianClassifier):
    """Ensemble of networks for classification, each pulled to its own prior draw.

    Use it to detect rows unlike the training rows. It is the classification counterpart
    of :class:`AnchoredEnsembleRegressor`: a member minimises the cross-entropy, with
    its own random weights of the rows, plus the penalty of the distance of its weights
    from its anchor. A fit trains ten networks side by side. Without more it would be
    overconfident: ensembles that are trained without a part of the rows estimate a
    temperature T of the logits (Guo et al. 2017), and probabilities are softmax(f / T).
    This takes about half as long again. In ``partial_fit``, with early stopping, with
    ``likelihood="ordinal"`` and without ``noisy_targets`` T is 1.

    Parameters
    ----------
    hidden_layer_sizes, activation
        As in :class:`AnchoredEnsembleRegressor`.
    network
        As in :class:`MCDropoutRegressor`.
    dropout
        As in :class:`AnchoredEnsembleRegressor`.
    length_scale : {"auto", "fan_in"}, float > 0 or sequence of float, default="auto"
        Prior length scale l of the weights, one value or one per layer: anchors are
        drawn from N(0, 1 / l^2). ``"auto"`` is the rule of
        :class:`AnchoredEnsembleRegressor`, except at the last layer, where l is a tenth
        of ``"fan_in"``, because logits of separated classes are large.
    bias_length_scale
        As in :class:`AnchoredEnsembleRegressor`.
    noisy_targets : bool, default=True
        Whether every member has its own random weights of the rows, Exp(1) (Newton &
        Raftery 1994). Leave True.
    tau, likelihood, class_weight
        As in :class:`MCDropoutClassifier`.
    n_estimators, n_draws
        As in :class:`AnchoredEnsembleRegressor`.
    standardize, categorical_features
        As in :class:`MCDropoutClassifier`.
    batch_size, learning_rate
        As in :class:`MCDropoutRegressor`.
    learning_rate_init
        As in :class:`AnchoredEnsembleRegressor`.
    max_iter : "auto" or int, default="auto"
        Epochs. Leave ``"auto"``: 100 sqrt(N) steps, and at least ten epochs. With fewer
        than 5,000 rows, held-out rows may select a quarter or a tenth of these epochs.
        The log density must then be higher by more than a standard error. ``n_iter_``
        is the selected number.
    early_stopping, validation_fraction, n_iter_no_change, tol, warm_start, device, \
dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    classes_, tau_
        As in :class:`MCDropoutClassifier`.
    weight_decay_, elbo_
        As in :class:`AnchoredEnsembleRegressor`.
    tau_training_, weight_decay_training_, dropout_, length_scale_, elbo_std_error_, \
history_, loss_curve_, n_iter_, engine_, n_features_in_, feature_names_in_, \
parameters_, network_, seeds_, optimizer_, x_mean_, x_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    AnchoredEnsembleRegressor : Regression.

    References
    ----------
    - Pearce, Leibfried & Brintrup (2020), "Uncertainty in neural networks:
      approximately Bayesian ensembling", AISTATS, arXiv:1810.05546.
    - Newton & Raftery (1994), "Approximate Bayesian inference with the weighted
      likelihood bootstrap", Journal of the Royal Statistical Society B 56.
    - Guo, Pleiss, Sun & Weinberger (2017), "On calibration of modern neural networks",
      ICML, arXiv:1706.04599.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayesnn import AnchoredEnsembleClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AnchoredEnsembleClassifier(max_iter=20, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """
