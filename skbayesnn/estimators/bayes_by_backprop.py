"""Bayes by Backprop [BBB15]: a normal distribution over every weight."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skbayesnn import _stored as stored
from skbayesnn import _validation
from skbayesnn._engine.config import TrainingOptions
from skbayesnn._families import MeanField
from skbayesnn._typing import MatrixLike
from skbayesnn.estimators import _pruning
from skbayesnn.estimators._classification import BayesianClassifier
from skbayesnn.estimators._job import PosteriorSpec
from skbayesnn.estimators._parameters import parameters
from skbayesnn.estimators._regression import BayesianRegressor

# Precision of the training, in units of a learned tau (docs/defaults.md, "Observation
# noise").
PRECISION_RATIO = 1.3


@parameters
class _BayesByBackprop(_pruning.Prunable):
    """Mean-field normal weights, with spikes where units are dropped."""

    prior: str = "gaussian"
    pi: float = 0.5
    s1: float = 1.0
    s2: float = 0.1
    kl: str = "closed"
    kl_weighting: str = "uniform"
    kl_warm_up: float = 0.5
    gradient: str = "local"
    n_training_draws: stored.PositiveCount = 1

    def _posterior_spec(self, fan_ins):
        rates = _validation.dropout_rates(self.dropout, len(fan_ins))
        if isinstance(self.prior, str) and self.prior == "discrete":
            raise ValueError(
                "normal weights require a prior with a density, 'gaussian' or "
                "'scale_mixture', since their KL to a discrete prior is infinite; got "
                "prior='discrete'. Use MCDropout*, whose weights have few values."
            )
        prior, kl, kl_weighting, gradient = (
            _validation.check_option(name, getattr(self, name), options)
            for name, options in {
                "prior": ("gaussian", "scale_mixture"),
                "kl": ("closed", "sampled"),
                "kl_weighting": ("uniform", "geometric"),
                "gradient": ("local", "pathwise"),
            }.items()
        )
        fields = {
            "pi": _validation.check_number("pi", self.pi, low=0, high=1, open_low=True),
            "s1": _validation.check_number("s1", self.s1, low=0, open_low=True),
            "s2": _validation.check_number("s2", self.s2, low=0, open_low=True),
        }
        if prior == "scale_mixture":
            self._check_scale_mixture(kl)
        families = tuple(
            MeanField(
                spike=bool(rate > 0),
                shared_draw=gradient != "local",
                sampled_kl=kl == "sampled",
            )
            for rate in rates
        )
        return PosteriorSpec(
            rates,
            families,
            prior=prior,
            prior_fields=fields if prior == "scale_mixture" else {},
            training=TrainingOptions(
                kl_weighting=kl_weighting,
                kl_warm_up=_validation.check_number(
                    "kl_warm_up", self.kl_warm_up, low=0, high=1
                ),
                precision_ratio=PRECISION_RATIO,
                n_training_draws=_validation.training_draws(self),
            ),
        )

    def _check_scale_mixture(self, kl):
        if kl == "closed":
            raise ValueError(
                "prior='scale_mixture' requires kl='sampled', since its KL has no "
                "closed form; got kl='closed'. Set kl='sampled', or prior='gaussian'."
            )
        scale = self.length_scale
        if not isinstance(scale, str) and np.any(np.equal(scale, 0)):
            raise ValueError(
                "prior='scale_mixture' scales s1 and s2 by 1 / length_scale, which "
                f"must be > 0; got {self.length_scale!r}. For maximum likelihood set "
                "prior='gaussian'."
            )

    def prune(
        self,
        share: float = 0.75,
        X: MatrixLike | None = None,
        y: ArrayLike | None = None,
    ) -> Self:
        """Remove the weights with the lowest signal-to-noise ratio.

        Sets a share of each network's weights to exactly zero, those with the lowest
        |mean| / std over all layers [1]_. Removes hidden units whose outgoing weights
        are zero in all networks. Keeps all biases. The training of a pruned network
        cannot be continued.

        Parameters
        ----------
        share : float in [0, 1), default=0.75
            Share of the present weights to remove. On scikit-learn's digits, the error
            on held-out rows is 2.9 % before, 3.8 % at 0.75, 10 % at 0.9 and 30 % at
            0.95. Give ``X`` and ``y`` to measure the effect on your data.
        X, y : array-like, default=None
            Rows to ``score`` before and after.

        Returns
        -------
        self : object
            The pruned estimator. ``pruning_`` has the sizes and scores before and
            after. ``elbo_`` and the observation noise are not updated.

        References
        ----------
        .. [1] Blundell, Cornebise, Kavukcuoglu & Wierstra (2015), "Weight uncertainty
           in neural networks", arXiv:1505.05424, section 5.1.
        """
        share = _validation.check_number("share", share, low=0, high=1)
        return self._prune(
            {"share": share},
            lambda posterior: _pruning.clearest(posterior, share),
            X,
            y,
        )

    def _check_normal_posterior(self):
        if np.any(np.asarray(self.dropout) != 0):
            raise ValueError(
                "prior='previous' requires a normal posterior, but dropout makes it "
                f"spike-and-slab; got dropout={self.dropout!r}. Set dropout=0."
            )


@parameters
class BBBRegressor(_BayesByBackprop, BayesianRegressor):
    """Neural network regression by Bayes by Backprop.

    Use it if the width of every weight's posterior matters, to prune weights, or to use
    a posterior as the prior of the next fit. Every weight and bias has its own
    normal distribution, whose mean and standard deviation minimise the variational free
    energy (Blundell et al. 2015). A fit takes about twice as long as a fit of
    :class:`MCDropoutRegressor` with a given length scale. With few rows the posterior
    is close to the prior, and ``fit`` warns.

    The weights are independent under the posterior, and the KL has a term for each of
    them, though many weights share the information of few rows. The minimum of the free
    energy therefore predicts less well than other parameters do, and units that the
    data could use are pruned. A learned noise is compensated for this: see ``tau``.

    Parameters
    ----------
    hidden_layer_sizes : "auto", int or sequence of int, default="auto"
        Units of each hidden layer; () is a linear model. Leave ``"auto"``: the KL grows
        with the number of weights, and if it outweighs the data the posterior is close
        to the prior. ``"auto"`` depends on N, the sum of the training weights: (10,) up
        to N = 100, (20,) up to 200, (20, 20) up to 3,000, and (50, 50) with more.
        Streams (``partial_fit`` without ``prior="previous"``) have (50, 50). A
        continued fit keeps its sizes. In cross-validation, N is the sum over the
        training rows of the fold.
    activation, network
        As in :class:`MCDropoutRegressor`.
    dropout : float in [0, 1) or sequence of float, default=0
        Leave 0 for normal weights. Otherwise the posterior is a spike and slab: with p
        = 1 - dropout, p N(m, sigma^2) + (1 - p) N(0, sigma^2) per row of a weight
        matrix (Gal & Ghahramani 2016).
    prior : {"gaussian", "scale_mixture"}, default="gaussian"
        Prior of the weights. Leave the default. ``"gaussian"`` is N(0, 1 / l^2),
        ``"scale_mixture"`` is pi N(0, (s1 / l)^2) + (1 - pi) N(0, (s2 / l)^2) (Blundell
        et al. 2015). Biases always have the Gaussian prior.
    pi : float in (0, 1), default=0.5
        Weight of the scale mixture's first component.
    s1, s2 : float > 0, default=1.0 and 0.1
        Standard deviations of the scale mixture's components at l = 1.
    kl : {"closed", "sampled"}, default="closed"
        KL(q || prior) in closed form, or as log q(W) - log p(W) at one draw per step.
        ``"sampled"`` has more variance; the scale mixture requires it.
    kl_weighting : {"uniform", "geometric"}, default="uniform"
        Weight of the KL in the batches of an epoch; geometric is eq. 9 of Blundell et
        al. (2015). Leave the default.
    kl_warm_up : float in [0, 1), default=0.5
        Share of the training in which the KL's weight rises from 0. Leave the
        default: without a warm-up, a learned tau is so low at the start that the KL
        outweighs the data, and the fit may not recover from this.
    gradient : {"local", "pathwise"}, default="local"
        Leave the default. ``"local"``: random numbers per row, by local
        reparameterisation (Kingma et al. 2015). ``"pathwise"``: one draw of the weights
        for all rows of a step, as in Blundell et al. (2015).
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l, one value or one per layer. Leave the default: ``"auto"``
        is ``"fan_in"``, l^2 = the number of inputs of each layer. With l = 1 the KL of
        a deep network outweighs the data, and the posterior is close to the prior.
    tau : "auto", float > 0 or sequence of float, default="auto"
        Model precision: 1 / variance of the observation noise, in y's own units, one
        value or one per target. Leave ``"auto"`` unless the noise is known or a search
        selects it. ``"auto"`` learns it with the weights, and the posterior minimises
        the free energy with the precision ``tau_training_`` = 1.3 times the learned
        tau: with the learned tau itself the KL of a mean field outweighs the data. A
        given tau is also the precision of the training. With fewer than 200 rows,
        predictions use the noise with the highest density of held-out rows instead:
        the learned noise also contains the variance of the weights, which predictions
        would count twice. The fit then takes up to four times as long.
    likelihood : str, default="heteroscedastic"
        Distribution of y given the network's output, as in :class:`MCDropoutRegressor`.
        Under the default the noise depends on the input. ``"auto"`` selects on held-out
        rows between this and equal noise, and takes several times as long.
    likelihood_options, target_scale, y_bounds, point_mass, exposure, \
n_estimators, n_draws
        As in :class:`MCDropoutRegressor`.
    n_training_draws : int, default=1
        Draws of the weights in every training step. Their gradients are averaged. Leave
        1: more draws reduce the variance of the gradients, but the training time is
        proportional to their number.
    standardize, categorical_features, batch_size, learning_rate, \
learning_rate_init
        As in :class:`MCDropoutRegressor`.
    max_iter : "auto" or int, default="auto"
        Epochs. Leave ``"auto"``: 100 sqrt(N) steps, and at least ten epochs.
    early_stopping, validation_fraction, n_iter_no_change, tol, warm_start, device, \
dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    weight_decay_ : float or ndarray
        p l^2 / (2 N tau): the coefficient of the squared mean weights in addition to
        half the mean squared error. With the scale mixture, this formula is used with
        s1 = 1. With an earlier posterior as the prior, l (also ``length_scale_``) is
        the root of the mean precision of a layer's weights.
    tau_training_ : float or ndarray of shape (n_targets,)
        Precision of the free energy that the posterior minimises. If tau is learned,
        it is 1.3 times the learned precision, at which ``elbo_`` is computed.
    prior_ : list of dict of ndarray, or None
        The earlier posterior that ``partial_fit`` used as the prior, per layer.
    pruning_ : dict or None
        What ``prune`` did: the share, layer sizes before, scores before and after.
    likelihood_, target_spaces_, \
tau_, noise_std_, dropout_, length_scale_, \
weight_decay_training_, elbo_, elbo_std_error_, history_, loss_curve_, n_iter_, \
engine_, n_processes_, n_features_in_, feature_names_in_, parameters_, network_, \
seeds_, optimizer_, x_mean_, x_scale_, table_, y_mean_, y_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    MCDropoutRegressor : Fewer parameters, faster training.
    VariationalDropoutRegressor : Noise in proportion to the weights.

    References
    ----------
    - Blundell, Cornebise, Kavukcuoglu & Wierstra (2015), "Weight uncertainty in neural
      networks", arXiv:1505.05424.
    - Kingma, Salimans & Welling (2015), "Variational dropout and the local
      reparameterization trick", arXiv:1506.02557.
    - Gal & Ghahramani (2016), "Dropout as a Bayesian approximation: appendix",
      arXiv:1506.02157.
    - Gal (2016), "Uncertainty in deep learning", thesis.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import BBBRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BBBRegressor(max_iter=100, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    """

    hidden_layer_sizes: Any = field(default="auto", kw_only=False)
    likelihood: str = "heteroscedastic"


@parameters
class BBBClassifier(_BayesByBackprop, BayesianClassifier):
    """Neural network classification by Bayes by Backprop.

    Use it if the width of every weight's posterior matters, to prune weights, or to use
    a posterior as the prior of the next fit. Every weight and bias has its own
    normal distribution, whose mean and standard deviation minimise the variational free
    energy (Blundell et al. 2015). A fit takes about as long as a fit of
    :class:`MCDropoutClassifier`.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50,)
        Units of each hidden layer; () is a linear model. With few rows, use few units:
        the KL grows with the number of weights.
    activation, network
        As in :class:`MCDropoutRegressor`.
    dropout, prior, pi, s1, s2, kl, kl_weighting, kl_warm_up, gradient
        As in :class:`BBBRegressor`.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l of the weights. Leave the default: 1 from 200 rows on, and
        0.3, 1 or 3 by cross-validation with fewer rows. With ``"fan_in"``, logits are
        of order one before training: with a hundred rows of separated classes, the KL
        of larger logits outweighs the data, and the posterior is close to the prior.
    tau, likelihood, class_weight
        As in :class:`MCDropoutClassifier`.
    n_estimators, n_draws
        As in :class:`MCDropoutRegressor`.
    n_training_draws
        As in :class:`BBBRegressor`.
    standardize, categorical_features
        As in :class:`MCDropoutClassifier`.
    batch_size, learning_rate, learning_rate_init
        As in :class:`MCDropoutRegressor`.
    max_iter
        As in :class:`BBBRegressor`.
    early_stopping, validation_fraction, n_iter_no_change, tol, warm_start, device, \
dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    classes_, tau_
        As in :class:`MCDropoutClassifier`.
    weight_decay_, prior_, pruning_
        As in :class:`BBBRegressor`.
    tau_training_, weight_decay_training_, dropout_, length_scale_, elbo_, \
elbo_std_error_, history_, loss_curve_, n_iter_, engine_, n_processes_, \
n_features_in_, feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, \
x_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    BBBRegressor : Regression.

    References
    ----------
    - Blundell, Cornebise, Kavukcuoglu & Wierstra (2015), "Weight uncertainty in neural
      networks", arXiv:1505.05424.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from skbayesnn import BBBClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BBBClassifier(max_iter=100, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    hidden_layer_sizes: Any = field(default=(50,), kw_only=False)
