"""Monte Carlo dropout [GG16]: dropout as approximate Bayesian inference."""

import math

import numpy as np
import torch

from skbayesnn import _validation
from skbayesnn._families import FAMILIES, Concrete, Family
from skbayesnn._runtime import warn
from skbayesnn.estimators import _fitted
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._classification import MANY_ROWS, BayesianClassifier
from skbayesnn.estimators._job import VariationalSpec
from skbayesnn.estimators._regression import BayesianRegressor

NOISES = ("bernoulli", "gaussian", "dropconnect", "additive")
# Units that a draw drops on average, where draws are to differ.
_FEWEST_DROPPED = 0.1


class _MCDropout(BayesianNetwork):
    """The stochastic regularisation techniques of [Gal16 3.2]."""

    noise: str

    # Where `dropout="auto"` starts to learn: the default of a rate that is given.
    _start_rate: float

    @property
    def _learns_rates(self):
        return isinstance(self.dropout, str)

    def _variational(self, fan_ins):
        n_layers = len(fan_ins)
        noise = _validation.check_option("noise", self.noise, NOISES)
        if self._learns_rates:
            _validation.check_named("dropout", self.dropout, ["auto"])
            if noise != "bernoulli":
                raise ValueError(
                    "dropout='auto' learns the rate of noise='bernoulli' only; got "
                    f"noise={noise!r}. Give a number, or see VariationalDropout*, "
                    "which learns the variance of Gaussian noise."
                )
            families: tuple[Family, ...] = (Concrete(),) * n_layers
            rates = np.full(n_layers, self._start_rate)
        else:
            rates = _validation.dropout_rates(self.dropout, n_layers)
            families = tuple(
                FAMILIES[noise if rate > 0 else "point"]() for rate in rates
            )
        return VariationalSpec(
            rates,
            families,
            n_training_draws=_validation.training_draws(self),
            variance_source="held_out" if self._learns_rates else "residuals",
        )

    def _warn_if_doubtful(self, table, rows, weights):
        """Also where the rates that are learned leave nothing to be dropped."""
        super()._warn_if_doubtful(table, rows, weights)
        # Several networks differ by themselves.
        if not self._learns_rates or len(self.seeds_) > 1:
            return
        posterior = _fitted.posterior_of(self, torch.device("cpu"), torch.float32)
        groups = zip(posterior.network.families, posterior.layers, strict=True)
        n_masks = [family.n_masks(params) for family, params in groups]
        rates = np.broadcast_to(self.dropout_, len(n_masks))
        if rates @ n_masks < _FEWEST_DROPPED:
            warn(
                "the learned rates of dropout are next to nothing "
                f"({rates.max():.1g} at most): nine draws in ten drop no unit, and "
                "what the network does not know is hardly in its uncertainty. Where "
                "that, or rows unlike those of the training, are to be seen, take an "
                "anchored ensemble (AnchoredEnsembleRegressor, "
                "AnchoredEnsembleClassifier) or the stack (BayesianStackingRegressor, "
                "BayesianStackingClassifier)."
            )


class MCDropoutRegressor(_MCDropout, BayesianRegressor):
    """Neural network regression with Monte Carlo dropout.

    Dropout stays on at prediction: every mask is a draw from an approximate
    posterior over the weights, and the spread of the draws is what the network does
    not know [1]_. The objective is the variational free energy under the prior
    N(0, 1 / length_scale^2) on every weight and Gaussian noise of precision tau:
    half the mean squared error of y plus ``weight_decay_`` times the squared weights,
    with weight_decay_ = p l^2 / (2 N tau), p = 1 - dropout. MAP estimation is
    ``dropout=0``, maximum likelihood also ``length_scale=0``.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50, 50)
        Units of each hidden layer; () is a linear model.
    activation : {"relu", "tanh", "logistic", "erf", "silu", "identity"}, default="relu"
        Under ``"erf"``, the error function, wide layers have the arc-sine kernel [9]_.
        ``"silu"`` is x / (1 + exp(-x)), smooth where ``"relu"`` has a kink [10]_.
    network : None, MLP, ConvNet or RecurrentNet, default=None
        Another network than the perceptron of ``hidden_layer_sizes``, which then is not
        looked at: see :mod:`skbayesnn.networks`.
    dropout : float in [0, 1), sequence of float or "auto", default=0.01
        Probability that a unit is dropped; a sequence gives one for the inputs of
        each weight layer (hidden layers + 1), the network's inputs first. Higher rates
        regularise more, and their masks' spread is in all predictions.
        ``"auto"`` learns one per layer with the weights [3]_, starting at 0.01; what
        weighs it against the data are N, l and tau. The entropy of a mask does not grow
        with N, and what it costs the likelihood does: of some thousand rows next to
        nothing is dropped in the end, and epistemic uncertainty is next to zero, of
        which is warned. Where new rows may differ from those of the training, use
        :class:`AnchoredEnsembleRegressor` or :class:`BayesianStackingRegressor`.
    noise : {"bernoulli", "gaussian", "dropconnect", "additive"}, default="bernoulli"
        What is random [4]_, with p = 1 - dropout: units that are dropped; units that
        are scaled by N(p, p (1 - p)); weights that are dropped one by one; weights
        with N(0, v (1 - p) / p) added, v the variance that they start with.
        ``"gaussian"`` minimises the expected loss plus the weight decay, which is not a
        free energy: it leaves out the entropy of the weights, which has no bound where
        a unit's weights are near zero. ``elbo_`` is then no lower bound: of a unit with
        one weight m it is .92 - log |m| nats too large. ``"dropconnect"`` is trained
        with normal activations of the mean and the variance that dropped weights give,
        and predicts with dropped weights.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l of the weights, which see standardised inputs: a large l
        keeps weights small and functions smooth. ``"fan_in"`` is l^2 = the number of
        inputs of each layer, so that units are of order one before data are seen. The
        best l is lower where y has little noise: ``"auto"`` lets rows that are held out
        choose, with the noise (see ``tau``). By rule it is that of ``"fan_in"``, but at
        most sqrt(N) / 2 up to 64 rows, 4 up to 144 and sqrt(N) / 3 from there: a prior
        that is stronger outweighs few rows. It is 4 or 1 in all layers where those rows
        have a higher log density then. That takes some two times as long as a fit of a
        given l. Where a tau is given, or searched, it is the rule: ``weight_decay_``
        goes with l^2 / tau, and tau does what choosing l would.
    tau : "auto", float > 0 or sequence of float, default="auto"
        Model precision: 1 / variance of the observation noise, in y's own units, one
        value or one per target. Leave it at ``"auto"`` unless the noise is known or a
        search selects it. It is then learned with the weights, one per target, and the
        noise of predictions is estimated again after training:

        - On held-out rows, where these choose the length scale, and always with
          ``dropout="auto"``, Student's t and mixtures. Networks are trained without a
          fifth of the rows each. The noise maximises the density that the mixture of
          their draws gives these rows. Every row is held out once; two fifths are from
          700 rows on (sum of their weights), one fifth from 5,000, and none where X has
          more than 4 million entries.
        - On the training rows otherwise: the variance of the residuals of the
          predictive mean, corrected for the degrees of freedom that the weights use, as
          in linear smoothing [8]_. The variance of y counts as one more residual, so
          that a network that interpolates its rows has some noise. With few rows and a
          strong signal the noise is too large for that: for linear models of 8 columns,
          whose signal has 13 times the variance of the noise, its std is 1.16 times the
          true one with 40 rows, 1.05 times with 100 and 1.01 times with 400.
        - Not at all with early stopping, in ``partial_fit`` and in the candidates of a
          stack.

        Several networks share the noise that one of them needs, which is slightly too
        large. A warm start keeps the noise.
    likelihood : str, default="gaussian"
        Noise of y. ``"gaussian"`` is equal everywhere; ``"heteroscedastic"`` depends on
        the input (a second output of the network, learned after a warm-up; ``tau`` is
        then its overall level). ``"student_t"`` has outliers, which move the fit little
        [5]_, nor do they the scale of y; ``tau`` is still 1 / variance. ``"mixture"``
        is of several peaks or skewed: a few Gaussians that depend on the input [7]_;
        ``tau`` is the overall level of their noise. Both take up to 4 times the
        time, for the networks that tell what is learned of their noise (see ``tau``).
        ``"poisson"`` is for counts, whose log rate is the network's output [6]_: y is
        not scaled, ``tau`` is an inverse temperature as a classifier's, 1 for
        ``"auto"``.
    likelihood_options : dict, default=None
        Further parameters of the likelihood, by name. ``"student_t"``: ``df``, degrees
        of freedom > 2, or None: learned, one per target, between 2.1 and 200; from 3
        on where rows that are held out say so.
        ``"mixture"``: ``n_components``, 3.
    n_estimators : int, default=1
        Independently initialised networks, trained side by side; the predictive is
        their equal-weight mixture [2]_. Five know better what they do not know.
    n_draws : int, default=200
        Posterior draws of each network at prediction, at most 100,000. They are fixed
        by the fitted model: the same row always gets the same prediction.
    n_training_draws : int, default=1
        Draws of the noise in every step of the training, whose gradients are averaged:
        less of their variance, for as many times the work.
    standardize : bool, default=True
        Centre and scale X and y by the training rows' weighted mean and standard
        deviation (constant columns by 1); undone in everything that is returned.
    batch_size : "auto" or int, default="auto"
        Rows per step, at most; an epoch is cut into equal batches. ``"auto"`` is 128,
        and up to 1,024 for tables of more than 5,000 rows.
    learning_rate : {"cosine", "constant"}, default="cosine"
        Whether Adam's step size decays to zero along half a cosine.
    learning_rate_init : float > 0, default=0.01
    max_iter : "auto" or int, default="auto"
        Epochs. ``"auto"`` follows the number of rows: 100 sqrt(N) steps, and at least
        ten epochs. Classifiers, which over-fit noisy labels with time, take fewer:
        40 sqrt(N), or 20 where rates are learned; Bayes by Backprop and anchored
        ensembles 100. Of all but Bayes by Backprop fewer than 5,000 rows (sum of their
        weights) may choose a quarter or a tenth of that, if rows that networks have not
        seen, each trained without a fifth of them, have a higher log density then, by
        more than its standard error; fits take two to four times as long. So may the
        rows of regressors that learn rates, however many there are. That goes for
        ``network=None``, tables of up to 4 million numbers and where no row is held out
        to stop by, and not for fits that go on (warm starts, streams); ``n_iter_``
        tells what was chosen.
    early_stopping : bool or "auto", default=False
        Hold out rows, keep each network's best weights on them and stop after
        ``n_iter_no_change`` epochs without improvement of their log density.
        ``"auto"``, the default of ``MCDropoutClassifier`` and
        ``VariationalDropoutClassifier``, does so where they learn rates of 5,000 rows
        or more, by which classes are soon over-fitted, and where ``X_val`` is given.
    validation_fraction : float in (0, 1), default=0.1
        Share of the rows held out, unless ``fit`` is given ``X_val`` and ``y_val``.
    n_iter_no_change : int, default=10
    tol : float >= 0, default=1e-4
        Improvement of the held-out log density, in nats per row, that counts.
    warm_start : bool, default=False
        Let ``fit`` go on from the present weights (and their standardisation).
    device : str or torch.device, default="auto"
        ``"auto"`` (a CUDA GPU where there is one), ``"cpu"``, ``"cuda"``,
        ``"cuda:1"``, ``"mps"``. Predictions fall back to the CPU where the device is
        absent.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the training, whatever X's own; ``"float64"`` takes up to twice as
        long. The scaling is done in X's precision before, and predictions have it.
    verbose : bool or int, default=False
        From 1 (True) on, show a progress bar with the time left (needs tqdm).
    random_state : int, RandomState instance or None, default=None
        Determines start values, batches, masks and posterior draws. None takes fresh
        randomness from the system; global generators are never touched.

    Attributes
    ----------
    tau_ : float or ndarray of shape (n_targets,)
        Precision in y's units, given or learned.
    noise_std_ : float or ndarray of shape (n_targets,)
        1 / sqrt(tau_), y's units; counts have none. Of noise that depends on the row,
        the root mean square over training rows.
    dropout_ : float or ndarray of shape (n_layers,)
        Rates in use.
    length_scale_ : float or ndarray of shape (n_layers,)
        Prior length scale in use.
    weight_decay_ : float or ndarray of shape ([n_layers][, n_targets])
        lambda = p l^2 / (2 N tau), N the total weight of the training rows and tau
        ``tau_``; an axis for what differs. Biases have the same without the p.
    tau_training_ : float or ndarray of shape (n_targets,)
        Precision that the weights were trained under, by the end of the training.
        ``tau_`` differs from it where the noise of predictions was estimated after the
        training (see ``tau``).
    weight_decay_training_ : float or ndarray of shape ([n_layers][, n_targets])
        lambda with ``tau_training_`` for tau: the penalty that the weights were trained
        with.
    elbo_ : float
        Evidence lower bound of the weights that are kept, in nats and y's units; mean
        over networks. Comparable over tau, ``length_scale`` and ``dropout``, up to a
        constant for points, whose entropy is infinite: not over kinds of ``noise``. An
        average over draws of the training's noise on the training rows (some of them
        where they are many), under ``tau_training_``; after ``partial_fit`` the rows of
        that call stand for all. It takes 1 or 2 % of the time of a fit.
    elbo_std_error_ : float
        Standard error of ``elbo_``, nats: of the draws, and of the rows where some of
        them stand for all. 0 where nothing is random.
    history_ : dict of ndarray of shape (n_iter_, n_networks)
        Per epoch and network, nats per row: ``"loss"`` and its two parts
        ``"negative_log_likelihood"`` and ``"kl"``, and ``"validation_score"`` with
        early stopping. NaN after a network has stopped.
    loss_curve_ : list of float
        Mean loss over networks, per epoch.
    n_iter_ : int
        Epochs done (by the network that took most).
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Where X has names that are strings.
    parameters_, network_, seeds_, optimizer_ : dict, dict, ndarray, dict
        The networks, as plain arrays.
    replay_ : dict
        Rows of a stream that ``partial_fit`` has kept; only with ``n_replay``.
    x_mean_, x_scale_, y_mean_, y_scale_ : ndarray
        The standardisation.

    See Also
    --------
    MCDropoutClassifier : The same for classes.
    skbayesnn.predict_interval : Intervals through pipelines and searches.

    Notes
    -----
    Masks are not rescaled by 1 / p, as torch's are: E W = p M, and the penalty has
    the factor p as it stands in [1]_. Dropout probabilities are rounded to multiples
    of 2^-16.

    References
    ----------
    .. [1] Gal & Ghahramani (2016), "Dropout as a Bayesian approximation:
       representing model uncertainty in deep learning", arXiv:1506.02142.
    .. [2] Lakshminarayanan, Pritzel & Blundell (2017), "Simple and scalable
       predictive uncertainty estimation using deep ensembles", arXiv:1612.01474.
    .. [3] Gal, Hron & Kendall (2017), "Concrete dropout", arXiv:1705.07832.
    .. [4] Gal (2016), "Uncertainty in deep learning", thesis, section 3.2.
    .. [5] Lange, Little & Taylor (1989), "Robust statistical modeling using the t
       distribution", JASA.
    .. [6] McCullagh & Nelder (1989), "Generalized linear models", chapter 6.
    .. [7] Bishop (1994), "Mixture density networks", Aston University, NCRG/94/004.
    .. [8] Hastie & Tibshirani (1990), "Generalized additive models", section 3.5;
       MacKay (1992), "Bayesian interpolation", Neural Computation 4.
    .. [9] Williams (1998), "Computation with infinite neural networks", Neural
       Computation 10.
    .. [10] Hendrycks & Gimpel (2016), "Gaussian error linear units (GELUs)",
       arXiv:1606.08415.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import MCDropoutRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MCDropoutRegressor(max_iter=50, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    >>> model.predict_interval(X[:3], coverage=0.9).shape
    (3, 2)
    """

    _start_rate = 0.01

    def __init__(
        self,
        hidden_layer_sizes=(50, 50),
        activation="relu",
        *,
        network=None,
        dropout=0.01,
        noise="bernoulli",
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
        """Rates that are learned over-fit noise with time.

        See docs/defaults.md, "Training length".
        """
        return math.inf if self._learns_rates else 0

    def _auto_length_scale(self, fan_ins, total_weight):
        """So that few rows are fitted at all.

        See docs/defaults.md, "Prior length scale".
        """
        root = math.sqrt(total_weight)
        return np.minimum(np.sqrt(fan_ins), max(min(4.0, root / 2), root / 3))

    def _length_scales_to_try(self, fan_ins, total_weight):
        """Wide priors have the shape of y that has little noise.

        See docs/defaults.md, "Prior length scale".

        A tau that is given, or searched, does what choosing the scale would:
        `weight_decay_` goes with l^2 / tau.
        """
        scales = (4.0, 1.0) if isinstance(self.tau, str) else ()
        return [np.full(len(fan_ins), scale) for scale in scales]


class MCDropoutClassifier(_MCDropout, BayesianClassifier):
    """Neural network classification with Monte Carlo dropout.

    Dropout stays on at prediction: every mask is a draw from an approximate
    posterior over the weights. Probabilities are means over the draws; how much the
    draws disagree is what the network does not know [1]_.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50, 50)
        Units of each hidden layer; () is a linear model.
    activation : {"relu", "tanh", "logistic", "erf", "silu", "identity"}, default="relu"
    network : None, MLP, ConvNet or RecurrentNet, default=None
        As in :class:`MCDropoutRegressor`.
    dropout : float in [0, 1), sequence of float or "auto", default=0.1
        Probability that a unit is dropped; a sequence gives one for the inputs of
        each weight layer (hidden layers + 1), the network's inputs first. ``"auto"``
        learns one per layer with the weights, starting at 0.1.
    noise : {"bernoulli", "gaussian", "dropconnect", "additive"}, default="bernoulli"
        What is random, as in :class:`MCDropoutRegressor`.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l of the weights, p(W) = N(0, 1 / l^2): a small one suits
        classes that are well apart, a large one classes that overlap. ``"auto"`` lets
        fewer than 200 rows (sum of their weights) choose: the one of 0.3, 1 and 3 whose
        networks, trained without a fifth of the rows each, give the labels of that
        fifth the highest density. From 200 rows on it is 1, as in ``partial_fit``.
        ``"fan_in"`` is l^2 = the number of inputs of each layer, which expects logits
        of order one.
    tau : float > 0, default=1
        Inverse temperature of the likelihood, p(y | f)^tau: it stands where the
        precision stands in weight_decay_ = p l^2 / (2 N tau).
    likelihood : str, default="categorical"
        ``"categorical"``: a softmax over the classes. ``"ordinal"``: ordered classes,
        by cumulative logits [2]_, whose cut points are learned without a prior. The
        order is that of the categories where y is an ordered ``pandas.Categorical`` or
        a polars ``Enum``, and otherwise that of the sorted labels; of texts, which
        sort by the alphabet, ``fit`` warns. Meta-estimators of scikit-learn that
        replace labels by numbers (votes, bagging) lose the order of categories: give
        them integers. ``classes_`` and the columns of ``predict_proba`` are sorted in
        any case.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the likelihood, as in scikit-learn. Weight 0 leaves a
        class out: its probability is 0.
    n_estimators : int, default=1
        Independently initialised networks, trained side by side; the predictive is
        their equal-weight mixture.
    n_draws : int, default=200
        Posterior draws of each network at prediction, fixed by the fitted model.
    n_training_draws : int, default=1
        As in :class:`MCDropoutRegressor`.
    standardize : bool, default=True
        Centre and scale X by the training rows' weighted mean and standard
        deviation (constant columns by 1).
    batch_size, learning_rate, learning_rate_init, max_iter, early_stopping, \
validation_fraction, n_iter_no_change, tol, warm_start, device, dtype, verbose, \
random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    tau_, dropout_, length_scale_, weight_decay_, tau_training_, \
weight_decay_training_, elbo_, elbo_std_error_, history_, loss_curve_, n_iter_, \
n_features_in_, feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, \
x_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    MCDropoutRegressor : The same for numbers.
    skbayesnn.predict_uncertainty : Uncertainty through pipelines and searches.

    References
    ----------
    .. [1] Gal & Ghahramani (2016), "Dropout as a Bayesian approximation:
       representing model uncertainty in deep learning", arXiv:1506.02142.
    .. [2] McCullagh (1980), "Regression models for ordinal data", Journal of the Royal
       Statistical Society B 42.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from skbayesnn import MCDropoutClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X = X[:, X.std(axis=0) > 0]
    >>> model = MCDropoutClassifier(max_iter=10, random_state=0).fit(X[:1000], y[:1000])
    >>> model.predict_proba(X[1000:1003]).shape
    (3, 10)
    >>> model.predict_uncertainty(X[1000:1003], "mutual_information").shape
    (3,)
    """

    _start_rate = 0.1

    def __init__(
        self,
        hidden_layer_sizes=(50, 50),
        activation="relu",
        *,
        network=None,
        dropout=0.1,
        noise="bernoulli",
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
        """A rate that is learned is soon too low for classes.

        See docs/defaults.md, "Training length".
        """
        return 20 if self._learns_rates else 40

    @property
    def _stops_early_from(self):
        return MANY_ROWS if self._learns_rates else math.inf
