"""Bayes by Backprop [BBB15]: a normal distribution over every weight."""

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skbayesnn import _validation
from skbayesnn._families import MeanField
from skbayesnn._typing import Array, MatrixLike
from skbayesnn.estimators import _pruning
from skbayesnn.estimators._classification import BayesianClassifier
from skbayesnn.estimators._job import VariationalSpec
from skbayesnn.estimators._regression import BayesianRegressor

# `hidden_layer_sizes="auto"` up to N rows, and what sums of weights are rounded by.
_WIDTHS = ((100, (10,)), (300, (20,)), (3000, (20, 20)), (math.inf, (50, 50)))
_ROUNDING = 1e-9


class _BayesByBackprop(_pruning.Prunable):
    """Mean-field normal weights, with spikes where units are dropped."""

    prior: str
    pi: float
    s1: float
    s2: float
    kl: str
    kl_weighting: str
    kl_warm_up: float
    gradient: str
    prior_: list[dict[str, Array]]

    _can_collapse = True

    def _variational(self, fan_ins):
        rates = _validation.dropout_rates(self.dropout, len(fan_ins))
        prior, kl, kl_weighting, gradient = (
            _validation.check_option(name, getattr(self, name), options)
            for name, options in {
                "prior": ("gaussian", "scale_mixture"),
                "kl": ("closed", "sampled"),
                "kl_weighting": ("uniform", "geometric"),
                "gradient": ("local", "pathwise", "score", "characteristic"),
            }.items()
        )
        fields = {
            "pi": _validation.check_number("pi", self.pi, low=0, high=1, open_low=True),
            "s1": _validation.check_number("s1", self.s1, low=0, open_low=True),
            "s2": _validation.check_number("s2", self.s2, low=0, open_low=True),
        }
        if prior == "scale_mixture":
            self._check_scale_mixture(kl)
        if gradient == "characteristic":
            self._check_normal(rates)
        families = tuple(
            MeanField(
                spike=bool(rate > 0),
                shared_draw=gradient != "local",
                sampled_kl=kl == "sampled",
            )
            for rate in rates
        )
        return VariationalSpec(
            rates,
            families,
            prior=prior,
            prior_fields=fields if prior == "scale_mixture" else {},
            kl_weighting=kl_weighting,
            kl_warm_up=_validation.check_number(
                "kl_warm_up", self.kl_warm_up, low=0, high=1
            ),
            gradient="pathwise" if gradient == "local" else gradient,
            n_training_draws=_validation.training_draws(self),
        )

    def _check_normal(self, rates):
        if rates.any():
            raise ValueError(
                "gradient='characteristic' needs a normal posterior, which the spike "
                f"and slab is not; got dropout={self.dropout!r}. Set dropout=0, or "
                "another gradient."
            )

    def _check_scale_mixture(self, kl):
        if kl == "closed":
            raise ValueError(
                "the KL to prior='scale_mixture' has no closed form; got kl='closed'. "
                "Set kl='sampled', or prior='gaussian'."
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
        """Drop the weights of the least signal to noise, and units that nothing uses.

        A share of each network's weights becomes zero and loses its noise, those of the
        lowest |mean| / std over all layers [1]_; a hidden unit whose outgoing weights
        are zero in all networks is removed. Biases stay.

        Parameters
        ----------
        share : float in [0, 1), default=0.75
            Of the weights of the network as it is. On scikit-learn's digits the error
            of held-out rows is 2.9 %, 3.8 % at 0.75, 10 % at 0.9 and 30 % at 0.95:
            give ``X`` and ``y`` to see yours.
        X, y : array-like, default=None
            Rows to ``score`` before and after.

        Returns
        -------
        self : object
            ``pruning_`` says what was done; ``elbo_`` and the noise are those of the
            fit. A pruned network cannot be trained on.

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

    def _renews(self, prior, n_epochs, n_replay) -> bool:
        """Whether `partial_fit` takes the posterior so far as the prior."""
        if prior is None:
            return False
        _validation.check_option("prior", prior, ["previous"])
        if n_epochs != 1 or n_replay != 0:
            raise ValueError(
                "prior='previous' fits its rows to the end, and earlier ones are in "
                f"the prior; got n_epochs={n_epochs!r}, n_replay={n_replay!r}. Leave "
                "them out, or set prior=None."
            )
        if np.any(np.asarray(self.dropout) != 0):
            raise ValueError(
                "prior='previous' needs a normal posterior, which the spike and slab "
                f"is not; got dropout={self.dropout!r}. Set dropout=0."
            )
        return True


class BBBRegressor(_BayesByBackprop, BayesianRegressor):
    """Neural network regression by Bayes by Backprop.

    Every weight and bias has a normal distribution of its own, whose mean and standard
    deviation are learned by minimising the variational free energy [1]_.

    Parameters
    ----------
    hidden_layer_sizes : "auto", int or sequence of int, default="auto"
        Units of each hidden layer; () is a linear model. The KL grows with the number
        of weights: where it outweighs the data, the posterior falls back on the prior.
        So ``"auto"`` is (10,) up to N = 100, the sum of the training rows' weights,
        (20,) up to 300, (20, 20) up to 3,000 and (50, 50) above, and in streams
        (``partial_fit``, but for ``prior="previous"``). A fit that goes on keeps what
        it has; folds have their own N.
    activation : {"relu", "tanh", "logistic", "erf", "silu", "identity"}, default="relu"
    network : None, MLP, ConvNet or RecurrentNet, default=None
        As in :class:`MCDropoutRegressor`.
    dropout : float in [0, 1) or sequence of float, default=0
        Probability that a unit's mean weights are dropped: the posterior is then the
        spike and slab p N(m, sigma^2) + (1 - p) N(0, sigma^2) per row of a weight
        matrix [3]_, p = 1 - dropout.
    prior : {"gaussian", "scale_mixture"}, default="gaussian"
        N(0, 1 / l^2), or pi N(0, (s1 / l)^2) + (1 - pi) N(0, (s2 / l)^2) [1]_ on the
        weights; biases always have the former.
    pi : float in (0, 1), default=0.5
        Share of the scale mixture's first component.
    s1, s2 : float > 0, default=1.0 and 0.1
        Standard deviations of its components under l = 1.
    kl : {"closed", "sampled"}, default="closed"
        KL(q || prior) in closed form, or as log q(W) - log p(W) at one draw per step,
        which has more variance and is the only way for the scale mixture.
    kl_weighting : {"uniform", "geometric"}, default="uniform"
        How the KL is spread over the batches of an epoch; geometric is eq. 9 of [1]_.
    kl_warm_up : float in [0, 1), default=0.5
        Share of the training over which the KL's weight rises from 0 to 1. Without,
        a learned tau starts so low that the KL outweighs the data, and the fit can
        stay there.
    gradient : {"local", "pathwise", "score", "characteristic"}, default="local"
        Noise per row, by local reparameterisation [2]_; or one draw of the weights for
        all rows of a step, as in [1]_, and the gradient through the network; by the
        score function, of 8 draws; by first and second derivatives of the likelihood
        in the weights [4]_, without a spike and for smooth activations. The latter two
        are for comparison.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l, as in :class:`MCDropoutRegressor`; ``"auto"`` is
        ``"fan_in"``. The prior has to follow the width of the layers: with l = 1 the KL
        of a deep network outweighs the data, and the posterior falls back on the prior.
    tau, likelihood, likelihood_options
        As in :class:`MCDropoutRegressor`, but that ``tau="auto"`` stays as it was
        learned with the weights, whose posterior has a width that is learned.
    n_estimators, n_draws, n_training_draws, standardize, batch_size, learning_rate, \
learning_rate_init, max_iter, early_stopping, validation_fraction, n_iter_no_change, \
tol, warm_start, device, dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    weight_decay_ : float or ndarray
        p l^2 / (2 N tau): the coefficient of the squared mean weights beside half the
        mean squared error. Under the scale mixture it is that of s1 = 1 alone; under
        an earlier posterior l, also as ``length_scale_``, is the root of the mean
        precision of a layer's weights there.
    prior_ : list of dict of ndarray, or None
        The earlier posterior that ``partial_fit`` took as the prior, per layer.
    pruning_ : dict or None
        What ``prune`` did: the share, layer sizes before, scores before and after.
    tau_, noise_std_, dropout_, length_scale_, elbo_, elbo_std_error_, tau_training_, \
weight_decay_training_, history_, loss_curve_, n_iter_, n_features_in_, \
feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, x_scale_, \
y_mean_, y_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    MCDropoutRegressor : Fewer parameters, quicker to train.
    VariationalDropoutRegressor : Noise in proportion to the weights.

    References
    ----------
    .. [1] Blundell, Cornebise, Kavukcuoglu & Wierstra (2015), "Weight uncertainty in
       neural networks", arXiv:1505.05424.
    .. [2] Kingma, Salimans & Welling (2015), "Variational dropout and the local
       reparameterization trick", arXiv:1506.02557.
    .. [3] Gal & Ghahramani (2016), "Dropout as a Bayesian approximation: appendix",
       arXiv:1506.02157.
    .. [4] Gal (2016), "Uncertainty in deep learning", thesis, section 3.1.

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

    def __init__(
        self,
        hidden_layer_sizes="auto",
        activation="relu",
        *,
        network=None,
        dropout=0.0,
        prior="gaussian",
        pi=0.5,
        s1=1.0,
        s2=0.1,
        kl="closed",
        kl_weighting="uniform",
        kl_warm_up=0.5,
        gradient="local",
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

    def _hidden_layer_sizes(self, total_weight, fitted=None):
        """As wide as the data outweigh the KL.

        See docs/defaults.md, "Width".
        """
        sizes = self.hidden_layer_sizes
        if not isinstance(sizes, str):
            return sizes
        if sizes != "auto":
            raise TypeError(
                "`hidden_layer_sizes` must be 'auto', an integer or a sequence of "
                f"them; got {sizes!r}."
            )
        if fitted is not None:
            return fitted
        n_rows = total_weight * (1 - _ROUNDING)
        return next(sizes for most, sizes in _WIDTHS if n_rows <= most)

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        prior: str | None = None,
        *,
        n_epochs: int = 1,
        n_replay: int = 0,
    ) -> Self:
        """Go on training with new rows (streams, out-of-core data).

        The first call fixes the standardisation. By default each call is some epochs
        over new rows of one data set: N grows, and the weight of the prior falls with
        it; pass each row once. With ``prior="previous"`` every call fits its rows to
        the end (``max_iter`` epochs), and they are all of N: the first call under the
        prior of the parameters, the others under the posterior so far, which is Bayes'
        rule applied to one part of the data after another.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), default=None
        prior : {"previous", None}, default=None
        n_epochs, n_replay : int, default=1 and 0
            Passes over these rows, and rows of the stream to be kept, as in
            :meth:`MCDropoutRegressor.partial_fit`; not with ``prior="previous"``.

        Returns
        -------
        self : object
        """
        how = {"n_epochs": n_epochs, "n_replay": n_replay}
        renew = self._renews(prior, **how)
        return self._partial_fit(X, y, sample_weight, renew=renew, **how)


class BBBClassifier(_BayesByBackprop, BayesianClassifier):
    """Neural network classification by Bayes by Backprop.

    Every weight and bias has a normal distribution of its own, whose mean and standard
    deviation are learned by minimising the variational free energy [1]_.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50,)
        Units of each hidden layer; () is a linear model.
    activation : {"relu", "tanh", "logistic", "erf", "silu", "identity"}, default="relu"
    network : None, MLP, ConvNet or RecurrentNet, default=None
        As in :class:`MCDropoutRegressor`.
    dropout, prior, pi, s1, s2, kl, kl_weighting, kl_warm_up, gradient
        As in :class:`BBBRegressor`.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l, as in :class:`MCDropoutClassifier`. ``"fan_in"`` expects
        logits of order one: on a hundred rows of classes that are well apart the KL to
        it outweighs the data, and the posterior falls back on the prior.
    tau, class_weight
        As in :class:`MCDropoutClassifier`.
    n_estimators, n_draws, n_training_draws, standardize, batch_size, learning_rate, \
learning_rate_init, max_iter, early_stopping, validation_fraction, n_iter_no_change, \
tol, warm_start, device, dtype, verbose, random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    weight_decay_, tau_training_, weight_decay_training_, prior_, pruning_
        As in :class:`BBBRegressor`.
    tau_, dropout_, length_scale_, elbo_, elbo_std_error_, history_, loss_curve_, \
n_iter_, n_features_in_, feature_names_in_, parameters_, network_, seeds_, optimizer_, \
x_mean_, x_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    BBBRegressor : The same for numbers.

    References
    ----------
    .. [1] Blundell, Cornebise, Kavukcuoglu & Wierstra (2015), "Weight uncertainty in
       neural networks", arXiv:1505.05424.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from skbayesnn import BBBClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BBBClassifier(max_iter=100, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    def __init__(
        self,
        hidden_layer_sizes=(50,),
        activation="relu",
        *,
        network=None,
        dropout=0.0,
        prior="gaussian",
        pi=0.5,
        s1=1.0,
        s2=0.1,
        kl="closed",
        kl_weighting="uniform",
        kl_warm_up=0.5,
        gradient="local",
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
        """None: its posterior does not over-fit with time.

        See docs/defaults.md, "Training length".
        """
        return 0

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        prior: str | None = None,
        *,
        n_epochs: int = 1,
        n_replay: int = 0,
    ) -> Self:
        """Go on training with new rows (streams, out-of-core data).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like, default=None
            All labels that can occur; needed in the first call, unless that call's
            y has them all.
        sample_weight : array-like of shape (n_samples,), default=None
        prior, n_epochs, n_replay
            As in :meth:`BBBRegressor.partial_fit`.

        Returns
        -------
        self : object
        """
        classes = self._classes_of_stream(classes)
        how: dict[str, Any] = {"n_epochs": n_epochs, "n_replay": n_replay}
        renew = self._renews(prior, **how)
        how |= {"renew": renew, "classes": classes}
        return self._partial_fit(X, y, sample_weight, **how)
