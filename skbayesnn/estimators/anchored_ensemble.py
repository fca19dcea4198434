"""Anchored ensembles [PLB20]: MAP networks, each about its own draw from the prior."""

import math
from typing import Any

import numpy as np

from skbayesnn import _validation
from skbayesnn._families import Bernoulli, Point
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._classification import BayesianClassifier
from skbayesnn.estimators._job import VariationalSpec
from skbayesnn.estimators._regression import BayesianRegressor

# Standard deviations before any data (docs/defaults.md, "Anchored ensembles"): of what
# a column adds to a unit where it is the only one, and of the sum over many columns, at
# least.
ONE_COLUMN_STD, FIRST_STD = 3.0, 0.5


class _AnchoredEnsemble(BayesianNetwork):
    """Randomised MAP sampling."""

    bias_length_scale: Any
    noisy_targets: Any

    # Of the outputs before any data: y is standardised, logits are not.
    _output_std: float

    def _variational(self, fan_ins):
        rates = _validation.dropout_rates(self.dropout, len(fan_ins))
        perturbed = _validation.check_bool("noisy_targets", self.noisy_targets)
        return VariationalSpec(
            rates,
            tuple(Bernoulli() if rate > 0 else Point() for rate in rates),
            prior="anchored",
            prior_fields={"bias_length_scale": self._bias_length_scale(fan_ins)},
            perturbed=perturbed,
            variance_source="held_out" if perturbed else "residuals",
        )

    def _bias_length_scale(self, fan_ins):
        of_weights = self._length_scales(fan_ins, math.inf)
        of_biases = of_weights / np.sqrt(fan_ins)
        if isinstance(self.bias_length_scale, str):
            _validation.check_named(
                "bias_length_scale", self.bias_length_scale, ["auto"]
            )
        else:
            of_biases = _validation.per_layer(
                "bias_length_scale", self.bias_length_scale, len(fan_ins), low=0
            )
        if not (of_weights.all() and of_biases.all()):
            raise ValueError(
                "anchors are drawn from N(0, 1 / l^2), so that `length_scale` and "
                f"`bias_length_scale` must be > 0; got {self.length_scale!r} and "
                f"{self.bias_length_scale!r}. For maximum likelihood take "
                "MCDropout* with dropout=0 and length_scale=0."
            )
        return of_biases

    def _auto_length_scale(self, fan_ins, total_weight):
        """Of order one in the middle, wide at both ends."""
        scale = np.sqrt(fan_ins)
        scale[0] /= max(ONE_COLUMN_STD / scale[0], FIRST_STD)
        scale[-1] /= self._output_std
        return scale

    def _length_scales_to_try(self, fan_ins, total_weight):
        """How wide functions are believed to be is not for the rows to say."""
        return []


class AnchoredEnsembleRegressor(_AnchoredEnsemble, BayesianRegressor):
    """Ensemble of networks, each pulled to its own draw from the prior.

    A member minimises the squared error of y, with noise of its own on it, plus
    weight_decay_ times the squared distance of its weights from its anchor, a draw
    from the prior. In a linear model the members are then draws of the exact posterior
    [2]_, and of wide networks nearly so [1]_: they agree where the rows say what the
    function is, and are as far apart as the prior elsewhere. It has no masks, so that
    its steps are the cheapest, and knows gaps in the data and drift better than the
    other posteriors. What the anchors do to the weights, a fixed random function that
    is added to every member does to the function [3]_.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(100,)
        Units of each hidden layer; () is a linear model.
    activation : {"tanh", "relu", "logistic", "erf", "silu", "identity"}, default="tanh"
    network : None, MLP, ConvNet or RecurrentNet, default=None
        As in :class:`MCDropoutRegressor`.
    dropout : float in [0, 1) or sequence of float, default=0
        Probability that a unit is dropped, as in :class:`MCDropoutRegressor`; masks
        add to the members' spread.
    length_scale : {"auto", "fan_in"}, float > 0 or sequence of float, default="auto"
        Prior length scale l of the weights, one value or one per layer: anchors are
        drawn from N(0, 1 / l^2). They decide what functions are believed in where
        there are no rows. ``"fan_in"`` is l^2 = the number of inputs of each layer, so
        that units are of order one before data are seen; ``"auto"`` the same, but a
        third of it at the last layer, so that functions are wider than y, and divided
        by 3 / sqrt(n_features), at least 0.5, at the first, so that few columns bend
        units in many places.
    bias_length_scale : "auto", float > 0 or sequence of float, default="auto"
        That of the biases, which say where a unit bends. ``"auto"`` is ``length_scale``
        divided by the root of the layer's inputs: a bias varies as much as the
        weighted sum of standardised inputs does.
    noisy_targets : bool, default=True
        Whether every member sees y with noise of its own, N(0, 1 / tau); where the
        likelihood is not Gaussian its rows have random weights instead, Exp(1) [4]_.
        Without, members agree more than a posterior does where there are rows: the
        mean is a little better where y has little noise, and the epistemic part is too
        small.
    tau : "auto", float > 0 or sequence of float, default="auto"
        Model precision, 1 / variance of the observation noise, in y's own units; one
        value, or one per target. Leave the default unless the noise is known.
        ``"auto"`` estimates it on held-out rows: up to 25 networks are trained without
        a part of the rows, for half of ``max_iter``, and their tau follows these rows.
        The members are then trained on all rows under the estimate. This adds about
        half of the training time with a few hundred rows. With ``early_stopping``, in
        ``partial_fit`` and for very large X, tau is learned with the weights, which
        overestimates the noise where ``length_scale`` is small. Without
        ``noisy_targets`` the noise is estimated from residuals, as in
        :class:`MCDropoutRegressor`.
    n_estimators : int, default=10
        Members. The spread of m of them is known to 1 / sqrt(2 m).
    learning_rate_init : float > 0, default=0.03
        Anchors are further from the end of the training than small weights are.
    likelihood, likelihood_options, n_draws, standardize, batch_size, learning_rate, \
max_iter, early_stopping, validation_fraction, n_iter_no_change, tol, warm_start, \
device, dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`; ``n_draws`` matters with dropout only.

    Attributes
    ----------
    weight_decay_ : float or ndarray of shape ([n_layers][, n_targets])
        lambda = p l^2 / (2 N tau), with p = 1 but for layers with dropout; an axis
        for what differs. ``weight_decay_training_`` is that of the training.
    elbo_ : float
        Minus the mean over members of the penalised loss, nats, up to constants that
        depend on the size of the network only.
    tau_, noise_std_, dropout_, length_scale_, elbo_std_error_, tau_training_, \
weight_decay_training_, history_, loss_curve_, n_iter_, n_features_in_, \
feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, x_scale_, \
y_mean_, y_scale_
        As in :class:`MCDropoutRegressor`. Anchors follow from ``seeds_`` and
        ``length_scale_``.

    See Also
    --------
    AnchoredEnsembleClassifier : The same for classes.
    BayesianStackingRegressor : The most accurate of this package.

    References
    ----------
    .. [1] Pearce, Leibfried & Brintrup (2020), "Uncertainty in neural networks:
       approximately Bayesian ensembling", AISTATS, arXiv:1810.05546.
    .. [2] Bardsley, Solonen, Haario & Laine (2014), "Randomize-then-optimize: a method
       for sampling from posterior distributions in nonlinear inverse problems", SIAM
       Journal on Scientific Computing 36.
    .. [3] Osband, Aslanides & Cassirer (2018), "Randomized prior functions for deep
       reinforcement learning", arXiv:1806.03335.
    .. [4] Newton & Raftery (1994), "Approximate Bayesian inference with the weighted
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

    _output_std = 3.0

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        activation="tanh",
        *,
        network=None,
        dropout=0.0,
        length_scale="auto",
        bias_length_scale="auto",
        noisy_targets=True,
        tau="auto",
        likelihood="gaussian",
        likelihood_options=None,
        n_estimators=10,
        n_draws=200,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.03,
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


class AnchoredEnsembleClassifier(_AnchoredEnsemble, BayesianClassifier):
    """Ensemble of networks, each pulled to its own draw from the prior.

    As :class:`AnchoredEnsembleRegressor`, for classes; the rows of every member have
    random weights, Exp(1), as in the weighted likelihood bootstrap [2]_.

    Parameters
    ----------
    hidden_layer_sizes, activation, dropout, bias_length_scale, n_estimators, \
learning_rate_init
        As in :class:`AnchoredEnsembleRegressor`.
    length_scale : {"auto", "fan_in"}, float > 0 or sequence of float, default="auto"
        As there, but ``"auto"`` is a tenth of ``"fan_in"`` at the last layer: logits
        of classes that are well apart are large.
    noisy_targets : bool, default=True
        Whether every member has its own random weights of the rows.
    tau : float > 0, default=1
        Inverse temperature of the likelihood, p(y | f)^tau.
    likelihood, class_weight, n_draws, standardize, batch_size, learning_rate, \
max_iter, early_stopping, validation_fraction, n_iter_no_change, tol, warm_start, \
device, dtype, verbose, random_state
        As in :class:`MCDropoutClassifier`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    weight_decay_, tau_training_, weight_decay_training_, tau_, dropout_, \
length_scale_, elbo_, elbo_std_error_, history_, loss_curve_, n_iter_, n_features_in_, \
feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, x_scale_
        As in :class:`AnchoredEnsembleRegressor`.

    See Also
    --------
    AnchoredEnsembleRegressor : The same for numbers.

    References
    ----------
    .. [1] Pearce, Leibfried & Brintrup (2020), "Uncertainty in neural networks:
       approximately Bayesian ensembling", AISTATS, arXiv:1810.05546.
    .. [2] Newton & Raftery (1994), "Approximate Bayesian inference with the weighted
       likelihood bootstrap", Journal of the Royal Statistical Society B 56.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayesnn import AnchoredEnsembleClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AnchoredEnsembleClassifier(max_iter=20, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    _output_std = 10.0

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        activation="tanh",
        *,
        network=None,
        dropout=0.0,
        length_scale="auto",
        bias_length_scale="auto",
        noisy_targets=True,
        tau=1.0,
        likelihood="categorical",
        class_weight=None,
        n_estimators=10,
        n_draws=200,
        standardize=True,
        batch_size="auto",
        learning_rate="cosine",
        learning_rate_init=0.03,
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
