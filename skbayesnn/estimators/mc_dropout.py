"""Monte Carlo dropout [GG16]: dropout as approximate Bayesian inference."""

from typing import Any, ClassVar

import numpy as np
import torch

from skbayesnn import _stored as stored
from skbayesnn import _validation
from skbayesnn._engine.config import TrainingOptions
from skbayesnn._families import FAMILIES, Concrete, Family
from skbayesnn._runtime import warn
from skbayesnn.estimators import _fitted
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._classification import BayesianClassifier
from skbayesnn.estimators._job import PosteriorSpec
from skbayesnn.estimators._parameters import parameters
from skbayesnn.estimators._regression import BayesianRegressor
from skbayesnn.networks import MLP

NOISES = ("bernoulli", "gaussian", "dropconnect", "additive")
# Those with a density.
_CONTINUOUS = ("gaussian", "additive")
# Warn if a draw drops fewer units than this on average: then most draws are equal.
_MIN_DROPPED = 0.1


@parameters
class _MCDropout(BayesianNetwork):
    """The stochastic regularisation techniques of [Gal16 3.2]."""

    noise: str = "bernoulli"
    prior: str = "gaussian"
    prior_step: Any = 0.001
    n_training_draws: stored.PositiveCount = 1

    # Initial rate for `dropout="auto"`.
    _start_rate: ClassVar[float]

    @property
    def _learns_rates(self) -> bool:
        return isinstance(self.dropout, str)

    def _posterior_spec(self, fan_ins):
        n_layers = len(fan_ins)
        noise = _validation.check_option("noise", self.noise, NOISES)
        if self._learns_rates:
            _validation.check_named("dropout", self.dropout, ["auto"])
            if noise != "bernoulli":
                raise ValueError(
                    "dropout='auto' requires noise='bernoulli'; got "
                    f"noise={noise!r}. Give a rate, or use VariationalDropout*, which "
                    "learns the variance of Gaussian dropout."
                )
            families: tuple[Family, ...] = (Concrete(),) * n_layers
            rates = np.full(n_layers, self._start_rate)
        else:
            rates = _validation.dropout_rates(self.dropout, n_layers)
            families = tuple(
                FAMILIES[noise if rate > 0 else "point"]() for rate in rates
            )
        prior = _validation.check_option("prior", self.prior, ("gaussian", "discrete"))
        step = _validation.check_number(
            "prior_step", self.prior_step, low=0, open_low=True
        )
        if prior == "discrete":
            self._check_discrete(noise)
        return PosteriorSpec(
            rates,
            families,
            prior=prior,
            prior_fields={"step": step} if prior == "discrete" else {},
            training=TrainingOptions(
                n_training_draws=_validation.training_draws(self),
                variance_source="held_out" if self._learns_rates else "residuals",
            ),
        )

    def _check_discrete(self, noise):
        """Raise if the KL to a discrete prior is infinite, or unknown."""
        if noise in _CONTINUOUS:
            raise ValueError(
                "prior='discrete' requires noise='bernoulli' or 'dropconnect', with "
                "which a weight has two values: the KL of weights with a density is "
                f"infinite; got noise={noise!r}. Set prior='gaussian'."
            )
        if not (self.network is None or isinstance(self.network, MLP)):
            raise ValueError(
                "prior='discrete' requires a perceptron, whose masks are on the rows "
                f"of its weights; got network={self.network!r}. Set network=None, an "
                "MLP, or prior='gaussian'."
            )

    def _warn_of_posterior(self):
        """Warn if the learned dropout rates are so low that draws are equal."""
        # With several networks, predictions have a spread without dropout.
        if not self._learns_rates or len(self.seeds_) > 1:
            return
        posterior = _fitted.restore_posterior(self, torch.device("cpu"), torch.float32)
        groups = zip(posterior.network.families, posterior.layers, strict=True)
        n_masks = [family.n_masks(params) for family, params in groups]
        rates = np.broadcast_to(self.dropout_, len(n_masks))
        if rates @ n_masks < _MIN_DROPPED:
            warn(
                "SKB302",
                f"the learned dropout rates are nearly zero ({rates.max():.1g} at "
                "most): nine of ten draws drop no unit, and the epistemic uncertainty "
                "is too small. If you need the epistemic uncertainty, for instance to "
                "detect rows unlike the training data, use an anchored ensemble "
                "(AnchoredEnsembleRegressor, AnchoredEnsembleClassifier) or stacking "
                "(BayesianStackingRegressor, BayesianStackingClassifier).",
            )


@parameters
class MCDropoutRegressor(_MCDropout, BayesianRegressor):
    """Neural network regression with Monte Carlo dropout.

    Use it for a fast network with uncertainty. Dropout stays active in predictions:
    each mask is a draw from an approximate posterior over the weights, and the spread
    of the draws is the epistemic uncertainty (Gal & Ghahramani 2016). A fit takes about
    as long as a fit of a plain network. If held-out rows select ``length_scale`` (the
    default), it takes three times (several thousand rows) to nine times (a few hundred
    rows) as long. :class:`BayesianStackingRegressor` predicts better and needs no
    tuning, but takes longer. For gaps between training rows and for drift use
    :class:`AnchoredEnsembleRegressor`.

    The objective is the variational free energy, with the prior N(0, 1 /
    length_scale^2) on every weight and Gaussian noise of precision tau. It is half the
    mean squared error of y plus ``weight_decay_`` times the squared weights. Here
    weight_decay_ = p l^2 / (2 N tau) and p = 1 - dropout. For MAP estimation set
    ``dropout=0``, for maximum likelihood also ``length_scale=0``.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(50, 50)
        Units of each hidden layer; () is a linear model. Wider layers cost more and
        rarely help on tables.
    activation : {"relu", "tanh", "logistic", "erf", "silu", "identity"}, default="relu"
        Leave the default, or try ``"tanh"`` or ``"silu"`` for smooth functions.
        ``"silu"`` is x / (1 + exp(-x)) (Hendrycks & Gimpel 2016). With ``"erf"``, the
        error function, wide layers have the arc-sine kernel (Williams 1998).
    network : None, MLP, ConvNet or RecurrentNet, default=None
        A network of :mod:`skbayesnn.networks`, for images or sequences;
        ``hidden_layer_sizes`` is then ignored. For tables leave None.
    dropout : float in [0, 1), sequence of float or "auto", default=0.01
        Probability that a unit is dropped. Leave the default, or search 0.005 to 0.2.
        Higher rates regularise more, and the spread of their masks is part of all
        predictions. A sequence has one rate for the inputs of each weight layer (hidden
        layers + 1), the network's inputs first. ``"auto"`` learns one rate per layer
        with the weights (Gal, Hron & Kendall 2017), starting at 0.01. With several
        thousand rows the learned rates are near zero, and so is the epistemic
        uncertainty; ``fit`` then warns.
    noise : {"bernoulli", "gaussian", "dropconnect", "additive"}, default="bernoulli"
        Kind of dropout (Gal 2016); leave the default unless you compare methods.
        ``"bernoulli"`` drops units; ``"gaussian"`` multiplies them by N(p, p (1 - p)),
        p = 1 - dropout; ``"dropconnect"`` drops single weights; ``"additive"`` adds
        N(0, v (1 - p) / p) to weights, where v is the variance of their initial values.
        With ``"gaussian"`` the objective omits the entropy of the weights, which has no
        bound if a unit's weights are near zero. ``elbo_`` is then not a lower bound:
        for a unit with one weight m it is .92 - log |m| nats too large.
        ``"dropconnect"`` is trained with normal activations of the same mean and
        variance.
    prior : {"gaussian", "discrete"}, default="gaussian"
        Leave the default unless ``elbo_`` must bound the evidence. ``"gaussian"`` is
        N(0, 1 / l^2) on every weight and bias; the KL of dropout to it is infinite, and
        ``elbo_`` omits the infinite constant. ``"discrete"`` has probabilities in
        proportion to exp(-l^2 w^2 / 2) on the multiples w of ``prior_step``, as in Gal
        (2016, section 3.2.3). The training is the same; at the end, weights are rounded
        to such multiples. ``elbo_`` is then a lower bound of the log evidence under
        this prior, with all constants (with ``"dropconnect"`` its data term has normal
        activations). It requires ``noise="bernoulli"`` or ``"dropconnect"``, and a
        perceptron.
    prior_step : float > 0, default=0.001
        Step of the discrete prior, for standardised columns. Leave the default: weights
        are between -32.767 and 32.767, 16 bits each. ``elbo_`` is lower by about log 2
        for every weight and bias if the step is halved, so compare it at equal steps.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Leave the default, or give ``"fan_in"``, which takes a third of the time or
        less. The prior of the weights is N(0, 1 / l^2), with one l or one per layer. A
        larger l keeps weights smaller and functions smoother. ``"fan_in"`` is l^2 = the
        number of inputs of each layer, and ``"auto"`` adds an upper bound that depends
        on the number of rows. If ``tau`` is also ``"auto"``, held-out rows may select l
        = 4 or l = 1 in all layers instead. Details: ``docs/defaults.md``, "Prior length
        scale".
    tau : "auto", float > 0 or sequence of float, default="auto"
        Leave ``"auto"`` unless the noise is known or a search selects tau. Tau is the
        precision of the observation noise, 1 / variance in y's own units, one value or
        one per target. ``"auto"`` learns it with the weights, and after the training
        estimates the noise of predictions. It uses held-out rows if they select the
        length scale, and always with ``dropout="auto"``, Student's t and mixtures.
        Otherwise it uses the residuals of the training rows, corrected for the degrees
        of freedom of the weights (Hastie & Tibshirani 1990). Details:
        ``docs/defaults.md``, "Observation noise".
    likelihood : str, default="auto"
        Distribution of y given the network's output. ``"auto"`` selects one of the next
        two on held-out rows, if ``length_scale`` and ``tau`` are ``"auto"``: a rank
        test of the residuals finds unequal noise, and the log density is higher by more
        than a standard error. Otherwise, and in ``partial_fit``, it is ``"gaussian"``.
        If the test finds unequal noise, a fit takes 20 to 50 % longer.
        ``"gaussian"``: equal noise; ``fit`` warns if the test finds unequal noise.
        ``"heteroscedastic"``: noise that depends on the input, by a second output that
        is learned after a warm-up; ``tau`` is then its overall level. ``"student_t"``:
        if y has outliers, which then have little effect on the fit (Lange, Little &
        Taylor 1989) and on the scale of y; ``tau`` is still 1 / variance.
        ``"mixture"``: for noise with several peaks or skew, a few Gaussians that depend
        on the input (Bishop 1994); ``tau`` is their overall level. For Student's t and
        mixtures held-out rows estimate the noise: with a given ``length_scale`` a fit
        with Student's t takes up to 4 times as long. A fit with mixtures takes 5 times
        as long, with a given ``length_scale`` up to 30 times, because torch trains
        them. ``"poisson"``: for counts; the output is the log rate (McCullagh & Nelder
        1989). ``"negative_binomial"``: for counts whose variance exceeds their mean m,
        m + d m^2; the dispersion d is learned, and held-out rows estimate it. For both,
        y is not scaled, and ``tau`` is an inverse temperature as for classifiers;
        ``"auto"`` is 1.
    likelihood_options : dict, default=None
        Further parameters of the likelihood. ``"student_t"``: ``df``, degrees of
        freedom > 2, or None. None learns them per target, between 2.1 and 200, or
        between 3 and 200 if held-out rows estimate them. ``"mixture"``:
        ``n_components``, 3 by default.
    target_scale : {"identity", "log", "logit", "count"}, default="identity"
        Scale on which y is modelled. Take ``"log"`` for a positive y whose spread grows
        with its mean, such as prices: the logarithm of the distance from the lower
        bound, 0 by default. Take ``"logit"`` for shares between the bounds (0 and 1 by
        default). ``"count"`` is for 0, 1, 2 and so on, with any spread: log(y + 1/2) is
        modelled, and predictions are integers. Predictions are in the units of y.
        ``tau``, ``tau_`` and ``noise_std_`` are in the units of the scale, log y for
        example; then lambda = p l^2 / (2 N tau) holds.
    y_bounds : (low, high), default=None
        Bounds that y cannot exceed; None for a missing one. Give them if you know them:
        no predicted probability is outside. Rows at a finite bound count as censored
        there (Tobin 1958): (0, None) is a floor at 0.
    point_mass : float, default=None
        Value of y with a separate probability, which depends on X; often 0, for sales
        or claims (Cragg 1971). On the log scale the other rows are positive. It costs
        one output of the network.
    exposure : str or int, default=None
        Column of X with the exposure of each row, such as days or persons, for counts
        (``target_scale="count"``). The network then models the count per unit of
        exposure, and predicts counts at the exposure of the new rows.
    n_estimators : int, default=1
        Networks with different initial weights, trained side by side; the predictive
        distribution is their mixture with equal weights (Lakshminarayanan, Pritzel &
        Blundell 2017). Five improve the epistemic uncertainty and cost up to five times
        as much.
    n_draws : int, default=200
        Posterior draws of each network in predictions, at most 100,000. Leave the
        default: fewer draws only make predictions faster. ``n_draws`` can be changed
        after ``fit``. Draws are fixed by the fitted model, so a row always has the same
        prediction.
    n_training_draws : int, default=1
        Draws of the masks in every training step. Their gradients are averaged. Leave
        1: more draws reduce the variance of the gradients, but the training time is
        proportional to their number.
    standardize : bool, default=True
        Centre and scale X and y by the weighted mean and standard deviation of the
        training rows (constant columns by 1). Results are in the original units. Leave
        True unless the data are scaled already.
    categorical_features : "from_dtype", array-like of str, int or bool, or None, \
default="from_dtype"
        Columns that contain categories. Leave the default unless integers are codes of
        categories: columns of text and of categories are found by their type. Or names
        or indices of further columns, or a mask of all columns. See
        :class:`~skbayesnn.preprocessing.TableEncoder`.
    batch_size : "auto" or int, default="auto"
        Largest number of rows per step; an epoch consists of equal batches. ``"auto"``
        is 128 with up to 5,000 rows, and grows to 1,024 with more rows.
    learning_rate : {"cosine", "constant"}, default="cosine"
        Schedule of Adam's step size; ``"cosine"`` decays to zero.
    learning_rate_init : float > 0, default=0.01
        Step size at the start. Lower it if a warning reports that training diverged.
    max_iter : "auto" or int, default="auto"
        Epochs. Leave ``"auto"``: 100 sqrt(N) steps, and at least ten epochs. If rates
        are learned, held-out rows may select a quarter or a tenth of these epochs. The
        log density must then be higher by more than a standard error. ``n_iter_`` is
        the selected number.
    early_stopping : bool or "auto", default=False
        Hold out rows, stop after ``n_iter_no_change`` epochs without an improvement of
        their log density, and keep the weights of the best epoch of each network. Leave
        False for small tables, which need all rows for training. ``"auto"`` stops early
        only if ``X_val`` is given.
    validation_fraction : float in (0, 1), default=0.1
        Share of the rows that early stopping holds out, unless ``fit`` gets ``X_val``
        and ``y_val``.
    n_iter_no_change : int, default=10
        Epochs without improvement after which early stopping ends the training.
    tol : float >= 0, default=1e-4
        Smallest improvement of the held-out log density, in nats per row.
    warm_start : bool, default=False
        Whether ``fit`` continues from the present weights and standardisation. An
        interrupted fit then keeps its finished epochs.
    device : str, torch.device or list of these, default="auto"
        ``"auto"`` (a CUDA GPU if there is one and it takes less time: for large
        batches, wide networks, images and sequences), ``"cpu"``, ``"cuda"``,
        ``"cuda:1"``, ``"mps"``. Predictions use the CPU if the device does not exist.
        With a list such as ``["cuda:0", "cuda:1"]``, the networks are spread over the
        devices. Predictions use the first.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the training; ``"float64"`` takes up to twice as long. Scaling and
        predictions have X's precision.
    verbose : bool or int, default=False
        From 1 (True) on, show a progress bar with the time left (needs tqdm).
    random_state : int, RandomState instance or None, default=None
        Seed of initial weights, batches, masks and posterior draws. None is a fresh
        seed. Global generators are never used.

    Attributes
    ----------
    tau_ : float or ndarray of shape (n_targets,)
        Precision of predictions in y's units, given or estimated.
    likelihood_ : str
        Likelihood in use.
    target_spaces_ : list of dict
        Scale, bounds and point mass of each target, if they are not the defaults, or y
        has intervals.
    noise_std_ : float or ndarray of shape (n_targets,)
        1 / sqrt(tau_), in y's units; not defined for counts. If the noise depends on
        the row, the root mean square over training rows.
    dropout_ : float or ndarray of shape (n_layers,)
        Dropout rates in use.
    length_scale_ : float or ndarray of shape (n_layers,)
        Prior length scale in use.
    weight_decay_ : float or ndarray of shape ([n_layers][, n_targets])
        lambda = p l^2 / (2 N tau), where N is the total weight of the training rows and
        tau is ``tau_``. It has an axis for layers or targets if they differ. The weight
        decay of biases has no factor p.
    tau_training_ : float or ndarray of shape (n_targets,)
        Precision at the end of the training. It differs from ``tau_`` if the noise
        variance was estimated after the training.
    weight_decay_training_ : float or ndarray of shape ([n_layers][, n_targets])
        lambda with ``tau_training_``: the weight decay of the training.
    elbo_ : float
        Evidence lower bound in nats and y's units, mean over networks, at
        ``tau_training_``. Compare it over tau, ``length_scale`` and ``dropout``, but
        not over kinds of ``noise``: point masses have an infinite constant, which is
        omitted unless ``prior`` is ``"discrete"``. It is
        estimated from draws on the training rows (on a sample if there are many rows);
        after ``partial_fit``, on the rows of that call.
    elbo_std_error_ : float
        Standard error of ``elbo_`` in nats, due to draws and sampled rows. 0 if nothing
        is random. It does not contain the effect of ``random_state`` on the training:
        if the ``elbo_`` of two settings is close, compare them with several seeds.
    history_ : dict of ndarray of shape (n_iter_, n_networks)
        Per epoch and network, nats per row: ``"loss"`` and its two parts
        ``"negative_log_likelihood"`` and ``"kl"``, and ``"validation_score"`` with
        early stopping. NaN after a network has stopped.
    loss_curve_ : list of float
        Mean loss over networks, per epoch.
    n_iter_ : int
        Number of epochs; the largest over the networks.
    engine_ : {"compiled", "torch"}
        What trained the networks: a compiled loop for each network (numba; for
        perceptrons on a CPU), or torch. Both give the same networks up to rounding.
        The environment variable ``SKBAYESNN_ENGINE=torch`` forces torch.
    n_processes_ : int
        Number of processes that shared the training, as under torchrun; on a cluster,
        the number of parts into which the networks were divided.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X has names that are strings.
    parameters_, network_, seeds_, optimizer_ : dict, dict, ndarray, dict
        The networks as plain arrays.
    replay_ : dict
        Rows that ``fit`` and ``partial_fit`` keep for later updates: at most 2,000, and
        at most 2^20 values of X. Delete it if the model must not contain them.
    unfinished_ : dict
        What ``fit`` needs to continue; only after loading a file of ``checkpoint``
        whose fit is not finished.
    table_ : TableEncoder or None
        Encoder of a table with categories, dates or missing values; None if X was an
        array or frame of numbers. ``table_.columns_`` shows what each column became.
    x_mean_, x_scale_, y_mean_, y_scale_ : ndarray
        The standardisation.

    See Also
    --------
    MCDropoutClassifier : Classification.
    BayesianStackingRegressor : More accurate, without tuning.
    skbayesnn.predict_interval : Intervals through pipelines and searches.

    Notes
    -----
    Masks are not rescaled by 1 / p as torch's are: E W = p M, and the penalty has the
    factor p as in Gal & Ghahramani (2016). Dropout rates are rounded to multiples of
    2^-16.

    References
    ----------
    - Gal & Ghahramani (2016), "Dropout as a Bayesian approximation: representing model
      uncertainty in deep learning", arXiv:1506.02142.
    - Lakshminarayanan, Pritzel & Blundell (2017), "Simple and scalable predictive
      uncertainty estimation using deep ensembles", arXiv:1612.01474.
    - Gal, Hron & Kendall (2017), "Concrete dropout", arXiv:1705.07832.
    - Gal (2016), "Uncertainty in deep learning", thesis, section 3.2.
    - Lange, Little & Taylor (1989), "Robust statistical modeling using the t
      distribution", JASA.
    - McCullagh & Nelder (1989), "Generalized linear models", chapter 6.
    - Bishop (1994), "Mixture density networks", Aston University, NCRG/94/004.
    - Hastie & Tibshirani (1990), "Generalized additive models", section 3.5; MacKay
      (1992), "Bayesian interpolation", Neural Computation 4.
    - Williams (1998), "Computation with infinite neural networks", Neural Computation
      10.
    - Hendrycks & Gimpel (2016), "Gaussian error linear units (GELUs)",
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

    dropout: stored.Rates = 0.01


@parameters
class MCDropoutClassifier(_MCDropout, BayesianClassifier):
    """Neural network classification with Monte Carlo dropout.

    Use it for a fast classifier with uncertainty. Dropout stays active in predictions:
    each mask is a draw from an approximate posterior over the weights. Probabilities
    are means over the draws, and the disagreement of the draws is the epistemic
    uncertainty (Gal & Ghahramani 2016). A fit takes about as long as a fit of a plain
    network. With fewer than 5,000 rows it takes three to nine times as long, because
    held-out rows then select the number of epochs. :class:`BayesianStackingClassifier`
    predicts better and needs no tuning, but takes longer.

    Parameters
    ----------
    hidden_layer_sizes, activation, network
        As in :class:`MCDropoutRegressor`.
    dropout : float in [0, 1), sequence of float or "auto", default=0.1
        Probability that a unit is dropped. Leave the default, or search 0.02 to 0.5. A
        sequence has one rate for the inputs of each weight layer (hidden layers + 1),
        the network's inputs first. ``"auto"`` learns one rate per layer with the
        weights, starting at 0.1.
    noise, prior, prior_step
        As in :class:`MCDropoutRegressor`.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Leave the default unless a search selects l. The prior of the weights is N(0, 1
        / l^2): a small l suits separated classes, a large l suits classes that overlap.
        ``"auto"`` is 1 from 200 rows on (sum of the weights) and in ``partial_fit``.
        With fewer rows, five-fold cross-validation selects 0.3, 1 or 3 by the log
        density of the labels. ``"fan_in"`` is l^2 = the number of inputs of each layer;
        before training, logits are then of order one.
    tau : float > 0, default=1
        Leave 1, which is Bayes' rule, or select tau with
        :class:`~skbayesnn.model_selection.BatchedGridSearchCV`. Tau is the inverse
        temperature of the likelihood, p(y | f)^tau. It takes the place of the precision
        in weight_decay_ = p l^2 / (2 N tau).
    likelihood : str, default="categorical"
        ``"categorical"``: a softmax over the classes. ``"ordinal"``: ordered classes,
        by cumulative logits (McCullagh 1980). The cut points are learned without a
        prior. If y is an ordered ``pandas.Categorical`` or a polars ``Enum``, the
        classes have the order of the categories, otherwise the order of the sorted
        labels. For strings, whose order is alphabetical, ``fit`` warns.
        Meta-estimators of scikit-learn that replace labels by integers (votes, bagging)
        lose the order of categories: give them integers. ``classes_`` and the columns
        of ``predict_proba`` are always sorted.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the likelihood, as in scikit-learn. Leave None if you
        need calibrated probabilities. Weight 0 excludes a class: its probability is 0.
    n_estimators, n_draws, n_training_draws
        As in :class:`MCDropoutRegressor`.
    standardize : bool, default=True
        Centre and scale X by the weighted mean and standard deviation of the training
        rows (constant columns by 1). Leave True unless X is scaled already.
    categorical_features, batch_size, learning_rate, learning_rate_init
        As in :class:`MCDropoutRegressor`.
    max_iter : "auto" or int, default="auto"
        Epochs. Leave ``"auto"``: 40 sqrt(N) steps (20 sqrt(N) if rates are learned),
        and at least ten epochs. With fewer than 5,000 rows, held-out rows may select a
        quarter or a tenth of these epochs, because long trainings over-fit noisy
        labels. The log density must then be higher by more than a standard error.
        ``n_iter_`` is the selected number.
    early_stopping : bool or "auto", default="auto"
        Hold out rows, stop after ``n_iter_no_change`` epochs without an improvement of
        their log density, and keep the weights of the best epoch of each network.
        ``"auto"`` stops early if ``X_val`` is given, and if dropout rates are learned
        with 5,000 rows or more.
    validation_fraction, n_iter_no_change, tol, warm_start, device, dtype, verbose, \
random_state
        As in :class:`MCDropoutRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    tau_ : float
        The inverse temperature.
    dropout_, length_scale_, weight_decay_, tau_training_, weight_decay_training_, \
elbo_, elbo_std_error_, history_, loss_curve_, n_iter_, engine_, n_processes_, \
n_features_in_, feature_names_in_, parameters_, network_, seeds_, optimizer_, x_mean_, \
x_scale_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    MCDropoutRegressor : Regression.
    BayesianStackingClassifier : More accurate, without tuning.
    skbayesnn.predict_uncertainty : Uncertainty through pipelines and searches.

    References
    ----------
    - Gal & Ghahramani (2016), "Dropout as a Bayesian approximation: representing model
      uncertainty in deep learning", arXiv:1506.02142.
    - McCullagh (1980), "Regression models for ordinal data", Journal of the Royal
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

    dropout: stored.Rates = 0.1
    early_stopping: Any = "auto"
