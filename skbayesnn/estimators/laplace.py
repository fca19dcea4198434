"""Small networks by evidence, with a Laplace posterior [Mac92]."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field
from numbers import Integral
from typing import Annotated, Any, ClassVar, Literal, Self, TypedDict

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from skbayesnn import _stored as stored
from skbayesnn import _validation
from skbayesnn._data.validation import classes_of_stream, table_of
from skbayesnn._distributions.components import Components, Gaussians
from skbayesnn._engine.objective import weight_decay
from skbayesnn._likelihoods.poisson import LOG_RATE_BOUNDS, Counts, Poisson
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._runtime import warn
from skbayesnn._typing import Array, MatrixLike
from skbayesnn._validation import MAX_N_DRAWS
from skbayesnn.estimators import _evidence
from skbayesnn.estimators._dense_network import (
    ACTIVATIONS,
    DenseNetwork,
    Layers,
    features,
    linearised,
)
from skbayesnn.estimators._evidence import (
    DataTerm,
    Logits,
    LogRates,
    LogVariances,
    Mode,
    Quadratic,
    Squares,
    largest_evidence,
)
from skbayesnn.estimators._last_layer import trained_hidden_layers
from skbayesnn.estimators._parameters import parameters
from skbayesnn.estimators._table_model import (
    TableClassifier,
    TableModel,
    TableParameters,
    TableRegressor,
)

# Hidden layers that "auto" tries after a linear model, in this order.
AUTO_HIDDEN: tuple[tuple[int, ...], ...] = ((8,), (16,), (16, 16), (28, 28))
# Numbers of further hidden layers with less evidence after which "auto" stops.
MAX_WORSE = 2
# "auto" tries networks up to this number of operations of a step, which are rows times
# squared weights and cubed weights: about a tenth of a second. After a network with
# less evidence it tries only networks with faster steps.
AUTO_OPERATIONS, AFTER_WORSE = 2e9, 2e8
# Most weights that can have a posterior together, and most weights of a network. Hidden
# layers of a posterior of the last layer, unless they are given.
MOST_WEIGHTS, MOST_OF_NETWORK = 5000, 50_000
WIDE_HIDDEN: tuple[int, ...] = (50, 50)
# Parts of the name of a parameter of a layer.
PARTS = "weight", "bias"
# Least number of rows for each column with which columns have their own precisions.
ROWS_OF_A_COLUMN = 2
# Units of the hidden layer of the log variance.
NOISE_UNITS = 8
# Most values of ``information_``.
MAX_INFORMATION = 1 << 20
# Bound of the log variance of the noise, relative to its mean.
MAX_LOG = 12.0
# Least share of a residual's variance that is noise.
LEAST_NOISE = 0.05


class Information(TypedDict):
    """Value of ``information_``: prior precisions, and fields of ``Quadratic``."""

    alpha: Annotated[stored.Floats, "networks, coefficients", stored.POSITIVE]
    value: Annotated[stored.Floats, "networks, terms"]
    gradient: Annotated[stored.Floats, "networks, terms, coefficients"]
    curvature: Annotated[stored.Floats, "networks, terms, coefficients, coefficients"]


@parameters
class _Parameters(TableParameters):
    """Constructor parameters of both estimators."""

    hidden_layer_sizes: Any = field(default="auto", kw_only=False)
    activation: Literal["tanh", "logistic"] = field(default="tanh", kw_only=False)
    tau: Annotated[Any, stored.each(stored.POSITIVE)] = "auto"
    prior: Any = "auto"
    posterior: Any = "auto"
    n_draws: Annotated[int, stored.between(2, MAX_N_DRAWS)] = 200


class LaplaceModel(_Parameters, TableModel):
    """Base class of both estimators: training, and draws of linearised networks."""

    information_: Annotated[Information, stored.OPTIONAL]
    posterior_: Literal["full", "last_layer"]
    prior_: Literal["ard", "layer", "isotropic"]
    log_evidence_: stored.Records
    effective_parameters_: stored.Records
    length_scale_: stored.PerLayer
    relevance_: stored.Records
    # First parts of the names of parameters: layers with a posterior and its draws,
    # the log variance of the noise, and hidden layers without a posterior.
    KINDS: ClassVar = ("network", "draws", "noise", "hidden")
    LEAST_ROWS = 5, "Fewer rows do not determine the noise."

    @abstractmethod
    def _data_term(self, y, weights, reset) -> tuple[DataTerm, np.ndarray | None]:
        """Data term of rows of positive weight, and tau if it is held.

        reset : whether the rows set the standardisation of y
        """

    @abstractmethod
    def _distribution(self, x, dtype):
        """Predictive distribution of standardised rows; dtype : of the rows."""

    @property
    def hidden_layer_sizes_(self) -> tuple[int, ...]:
        """Units of each hidden layer."""
        layers = self._layers("hidden") + self._layers("network")
        return tuple(len(bias[0]) for _, bias in layers[:-1])

    def _fit_table(self, table, groups, random, reset):
        term, tau = self._data_term(table.y, table.sample_weight, reset)
        x = (table.X - self.x_mean_) / self.x_scale_
        (self._train if reset else self._update)(x, term, tau, random)

    # ---- training

    def _update(self, x, term: DataTerm, tau, random) -> None:
        """Train all networks with further rows.

        The earlier rows are represented by their data terms about the fitted weights,
        to second order. This is the posterior as prior, but precisions are estimated
        again.
        """
        if not hasattr(self, "information_"):
            raise ValueError(
                "`partial_fit` must have `information_`, which fit stores for at most "
                f"{MAX_INFORMATION} values; the model has none. Take fewer units or "
                "networks, or fit to all rows."
            )
        sizes = len(self.x_mean_), *self.hidden_layer_sizes_, self._n_outputs
        whole, found = DenseNetwork(sizes, self.activation), []
        network = self._with_posterior(whole)
        for member in range(len(self.log_evidence_)):
            noise, hidden = (self.layers_of(member, kind) for kind in self.KINDS[2:])
            weights = network.vector(self.layers_of(member, "network"))
            of_rows: Any = {**self.information_}
            of_rows = {name: value[member] for name, value in of_rows.items()}
            alpha = of_rows.pop("alpha")
            mode = largest_evidence(
                network,
                features(hidden, self.activation, x),
                self._with_precision(term, noise, x),
                Mode(weights, alpha, self.parameters_["tau"][member]),
                prior=self.prior_,
                alpha=self._held_precisions(whole)[-network.n_weights :],
                tau=tau,
                max_steps=self._max_steps(),
                earlier=Quadratic(weights, n_rows=self.total_weight_, **of_rows),
            )
            found.append((_named("noise", noise) | _named("hidden", hidden), mode))
        seeds = random.randint(0, 2**31 - 1, size=len(found))
        self._store_modes(whole, found, seeds)

    def _with_precision(self, term: DataTerm, noise, x) -> DataTerm:
        """The data term with the noise that depends on the row, if it does."""
        return term

    def _max_steps(self) -> int | None:
        if self.max_iter == "auto":
            return None
        return _validation.check_number("max_iter", self.max_iter, kind=Integral, low=1)

    def _train(self, x, term: DataTerm, tau, random) -> None:
        """Train all networks, and set the attributes that follow from it."""
        _validation.check_option("activation", self.activation, ACTIVATIONS)
        priors = ["auto", "ard", "layer", "isotropic"]
        _validation.check_option("prior", self.prior, priors)
        posteriors = ["auto", "full", "last_layer"]
        _validation.check_option("posterior", self.posterior, posteriors)
        _validation.check_number("n_draws", self.n_draws, kind=Integral, low=2)
        n_networks = _validation.check_number(
            "n_estimators", self.n_estimators, kind=Integral, low=1
        )
        max_steps = self._max_steps()
        seeds = random.randint(0, 2**31 - 1, size=n_networks)

        def fitted(whole: DenseNetwork, seed: int) -> tuple[Layers, Mode]:
            generator = np.random.default_rng([int(seed), 0])
            held, hidden = self._held_precisions(whole), []
            if self.posterior_ == "last_layer":
                hidden = trained_hidden_layers(
                    whole, x, term, generator, alpha=held, tau=tau
                )
            network = self._with_posterior(whole)
            return hidden, largest_evidence(
                network,
                features(hidden, self.activation, x),
                term,
                network.initial(generator),
                prior=self.prior_,
                alpha=held[-network.n_weights :],
                tau=tau,
                max_steps=max_steps,
            )

        sizes = len(x), x.shape[1], term.y.shape[1]
        whole, first = self._selected(sizes, lambda n: fitted(n, seeds[0]))
        fits = [first, *(fitted(whole, seed) for seed in seeds[1:])]
        self._store_modes(whole, self._with_noise(whole, x, term, fits, tau), seeds)

    def _with_posterior(self, whole: DenseNetwork) -> DenseNetwork:
        """The layers that have a posterior."""
        if self.posterior_ == "full":
            return whole
        return DenseNetwork(whole.sizes[-2:], self.activation)

    def _store_modes(self, whole, found: list[tuple[dict, Mode]], seeds) -> None:
        """Set the attributes that follow from the modes.

        found : hidden layers, parameters of noise that depends on the row, and mode, of
            each network
        """
        network = self._with_posterior(whole)
        parts, modes, n_networks = [], [mode for _, mode in found], len(found)
        for seed, (noise, mode) in zip(seeds, found, strict=True):
            generator = np.random.default_rng([int(seed), 1])
            deviations = mode.deviations(self.n_draws // 2, generator)
            parts.append(
                _named("network", network.layers(mode.weights))
                | _named("draws", network.layers(deviations))
                | {"tau": mode.tau}
                | noise
            )
        self.parameters_ = {
            name: np.stack([part[name] for part in parts]) for name in parts[0]
        }
        fields = [{"alpha": mode.alpha} | vars(mode.quadratic) for mode in modes]
        self.total_weight_ = fields[0]["n_rows"]
        vars(self).pop("information_", None)
        if n_networks * fields[0]["curvature"].size <= MAX_INFORMATION:
            of_rows: Any = {
                name: np.stack([field[name] for field in fields])
                for name in Information.__annotations__
            }
            self.information_ = of_rows
        self.n_iter_ = max(mode.n_steps for mode in modes)
        self.effective_parameters_ = np.array(
            [mode.effective_parameters() for mode in modes]
        )
        shift = self._log_density_shift() * self.total_weight_
        self.log_evidence_ = np.array([mode.log_evidence for mode in modes]) + shift
        precisions = self._held_precisions(whole)
        precisions[-network.n_weights :] = np.mean([m.alpha for m in modes], axis=0)
        layers = whole.layers(precisions)
        n_failed = np.count_nonzero(~np.isfinite(self.log_evidence_))
        if n_failed:
            warn(
                "SKB101",
                f"the Hessian of {n_failed} of {n_networks} networks was singular in "
                "all steps, so that neither the noise nor the prior was estimated. Set "
                "`length_scale` and `tau`, or take fewer units.",
                ConvergenceWarning,
            )
        self.length_scale_ = np.sqrt([matrix.mean() for matrix, _ in layers])
        variances = 1 / layers[0][0].mean(1)
        if self.posterior_ == "last_layer":
            variances = np.square(self._layers("hidden")[0][0]).mean((0, 2))
        self._store_relevance(variances)

    def _selected(self, sizes, fitted) -> tuple[DenseNetwork, tuple[Layers, Mode]]:
        """The network with the largest evidence, and its fit.

        sizes : numbers of rows, inputs and outputs
        """
        n_rows, inputs, outputs = sizes

        def network(hidden) -> DenseNetwork:
            return DenseNetwork((inputs, *hidden, outputs), self.activation)

        def is_fast(hidden, most: float) -> bool:
            n = network(hidden).n_weights
            return n <= MOST_WEIGHTS and (n_rows + n) * n**2 <= most

        is_auto, hidden = isinstance(self.hidden_layer_sizes, str), WIDE_HIDDEN
        if is_auto:
            given = self.hidden_layer_sizes
            _validation.check_named("hidden_layer_sizes", given, ["auto"])
        else:
            hidden = _validation.hidden_sizes(self.hidden_layer_sizes)
        is_full = not hidden or self.posterior == "full"
        if self.posterior == "auto":
            is_full = is_auto or network(hidden).n_weights <= MOST_WEIGHTS
        self.posterior_ = "full" if is_full else "last_layer"
        self.prior_ = self.prior
        if self.prior == "auto":
            has_rows = n_rows >= ROWS_OF_A_COLUMN * inputs
            self.prior_ = "ard" if is_full and has_rows else "layer"
        if not (is_auto and is_full):
            self._check_size(network(hidden))
            return network(hidden), fitted(network(hidden))
        self._check_size(network(()))
        best, n_worse = (network(()), fitted(network(()))), 0
        for hidden in AUTO_HIDDEN:
            most = AFTER_WORSE if n_worse else AUTO_OPERATIONS
            if n_worse == MAX_WORSE or not is_fast(hidden, most):
                break
            tried = network(hidden), fitted(network(hidden))
            if tried[1][1].log_evidence > best[1][1].log_evidence:
                best, n_worse = tried, 0
            else:
                n_worse += 1
        return best

    def _check_size(self, network: DenseNetwork) -> None:
        """Raise if a network has too many weights."""
        n_posterior = self._with_posterior(network).n_weights
        if n_posterior > MOST_WEIGHTS or network.n_weights > MOST_OF_NETWORK:
            inputs, *hidden, _ = network.sizes
            raise ValueError(
                f"{type(self).__name__} computes a matrix of all pairs of weights: "
                f"at most {MOST_WEIGHTS} weights can have a posterior, and networks "
                f"must have at most {MOST_OF_NETWORK}; got {n_posterior} and "
                f"{network.n_weights} of {inputs} inputs and hidden_layer_sizes="
                f"{tuple(hidden)} with posterior={self.posterior_!r}. Take fewer "
                "columns or units, posterior='last_layer', or an AnchoredEnsemble."
            )

    def _held_precisions(self, network: DenseNetwork) -> np.ndarray:
        """Prior precisions that are held; NaN for others.

        These are given as ``length_scale``, or of layers without a posterior.
        """
        fan_ins = [inputs for inputs, _ in network.shapes]
        auto = np.full(len(fan_ins), np.nan)
        if self.posterior_ == "last_layer":
            auto[:-1] = np.sqrt(fan_ins[:-1])
        scales = _validation.length_scales(self.length_scale, fan_ins, auto)
        alpha = np.full(network.n_weights, np.nan)
        for (matrix, _), scale in zip(network.layers(alpha), scales, strict=True):
            matrix[:] = np.clip(scale**2, *_evidence.PRECISIONS)
        return alpha

    def _with_noise(self, whole, x, term, fits, tau) -> list[tuple[dict, Mode]]:
        """Arrays and mode of each network, with noise that depends on the row.

        fits : hidden layers without a posterior, and mode, of each network
        """
        return [(_named("hidden", hidden), mode) for hidden, mode in fits]

    def _log_density_shift(self) -> float:
        """From log densities of standardised y to those of y, for a row."""
        return 0.0

    def _store_relevance(self, variances) -> None:
        """Set the relevance of each of the user's columns.

        variances : (inputs,), prior variances of the weights of each input
        """
        if (table := table_of(self)) is not None:
            columns, n = table.columns_, self.n_features_in_
            place = {c.column: j for j, c in enumerate(columns[:n])}
            ends = np.cumsum([len(c.features) for c in columns])[:-1]
            by_column = np.zeros(n)
            for column, part in zip(columns, np.split(variances, ends), strict=True):
                # Of combined columns, equal parts.
                names = [column.column] if column.column in place else column.column
                for name in names:
                    by_column[place[name]] += part.sum() / len(names)
            variances = by_column
        self.relevance_ = np.sqrt(variances / variances.sum())

    # ---- predictions

    def _layers(self, kind: str) -> list[tuple[np.ndarray, ...]]:
        """Matrix and bias of each layer, of all networks; one of ``KINDS``."""
        layers = []
        for k in range(len(self.parameters_)):
            name = f"{kind}/{k}"
            if f"{name}/weight" in self.parameters_:
                arrays = (self.parameters_[f"{name}/{part}"] for part in PARTS)
                layers.append(tuple(arrays))
        return layers

    def layers_of(self, member: int, kind: str) -> list[tuple[np.ndarray, ...]]:
        """Matrix and bias of each layer of one network."""
        layers = self._layers(kind)
        return [tuple(part[member] for part in layer) for layer in layers]

    @property
    def n_components(self) -> int:
        """Draws of all networks, which alternate.

        Each draw of a network is followed by its mirror image.
        """
        return 2 * self.parameters_["draws/0/bias"].shape[1] * len(self.log_evidence_)

    def _outputs(self, x) -> np.ndarray:
        """Draws of the linearised networks, (draws, rows, outputs)."""
        outputs = np.empty((self.n_components, len(x), self._n_outputs))
        n_networks = len(self.log_evidence_)
        for member in range(n_networks):
            layers, draws, _, hidden = (
                self.layers_of(member, kind) for kind in self.KINDS
            )
            units = features(hidden, self.activation, x)
            f, change = linearised(layers, draws, self.activation, units)
            of_member = outputs[member::n_networks]
            of_member[::2], of_member[1::2] = f + change, f - change
        return outputs

    @property
    def _n_outputs(self) -> int:
        return self._layers("network")[-1][1].shape[-1]

    def _opened(self):
        widest = max(bias.shape[-1] for _, bias in self._layers("draws"))

        def predicted(X, dtype):
            return self._distribution((X - self.x_mean_) / self.x_scale_, dtype)

        return predicted, self.n_components * widest

    def _check_stored(self) -> None:
        """Raise if layers do not fit together, or ``information_`` to them."""
        if not hasattr(self, "parameters_"):
            return
        for kind, extra in zip(self.KINDS, (0, 1, 0, 0), strict=True):
            before = len(self.x_mean_)
            if kind in ("network", "draws") and self._layers("hidden"):
                before = self._layers("hidden")[-1][1].shape[1]
            for matrix, bias in self._layers(kind):
                shape = matrix.shape[1 + extra :]
                if shape[:1] != (before,) or shape[1:] != bias.shape[1 + extra :]:
                    raise ValueError(
                        "its layers must fit together; got a matrix of shape "
                        f"{matrix.shape} after {before} units."
                    )
                before = shape[1]
        if not hasattr(self, "information_"):
            return
        curvature = np.asarray(self.information_["curvature"], dtype=np.float64)
        n_weights = sum(
            array[0].size for part in self._layers("network") for array in part
        )
        shape = (*self.parameters_["tau"].shape, n_weights, n_weights)
        if curvature.shape != shape:
            raise ValueError(
                f"the curvature of `information_` must have shape {shape}; got "
                f"{curvature.shape}."
            )
        rounding = 1e-8 * np.abs(curvature).max()
        skew = np.abs(curvature - np.swapaxes(curvature, -1, -2)).max()
        if skew > rounding or np.linalg.eigvalsh(curvature).min() < -rounding:
            raise ValueError(
                "the curvature of `information_` must be symmetric, without negative "
                "eigenvalues: it is a sum of squares."
            )


def _relative_variance(noise, x) -> Any:
    """Variance of the noise relative to its mean, (rows, targets).

    noise : layers of the log variance
    """
    (matrix, bias), (last, last_bias) = noise
    log_variance = np.tanh(x @ matrix + bias) @ last + last_bias
    return np.exp(np.clip(log_variance, -MAX_LOG, MAX_LOG))


def _named(kind: str, layers) -> dict[str, np.ndarray]:
    """Arrays of layers by name."""
    named: dict[str, np.ndarray] = {}
    for k, (matrix, bias) in enumerate(layers):
        named |= {f"{kind}/{k}/weight": matrix, f"{kind}/{k}/bias": bias}
    return named


@parameters
class LaplaceRegressor(TableRegressor, LaplaceModel):
    """Small networks for regression that need no tuning: all precisions by evidence.

    Use it for smooth functions of few numeric columns with little noise, such as
    physical measurements and simulations: it is then far more accurate than other
    networks. A fit of 1,000 rows x 8 columns takes about a second. The time grows with
    the rows, and with the square of the number of weights (at most 5,000; more with
    ``posterior="last_layer"``).

    A network is trained by Levenberg-Marquardt steps. Between the steps, the evidence
    sets the precision tau of the noise and the prior precisions of the weights, by
    default one for each column (MacKay 1992; Foresee & Hagan 1997). So tau, length
    scales and lambda = l^2 / (2 N tau) follow from the training rows, without a grid
    and without held-out rows. Training stops when the evidence stops to increase. The
    posterior of the weights is N(w, H^-1), with H the Gauss-Newton Hessian. Predictions
    use draws of it in the network that is linearised in its weights, so that f is
    normally distributed.

    Parameters
    ----------
    hidden_layer_sizes : "auto", int or sequence of int, default="auto"
        Units of each hidden layer; () is a linear model. Leave ``"auto"``: the evidence
        selects none, 8, 16, 16 x 16 or 28 x 28 units, the larger ones only if a step
        takes at most about a tenth of a second.
    activation : {"tanh", "logistic"}, default="tanh"
        Leave the default. Both are smooth, which Gauss-Newton steps require.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of float, default="auto"
        Prior length scale l of the weights, N(0, 1 / l^2), one value or one per layer,
        for standardised columns. Leave ``"auto"``: the evidence estimates l. Precisions
        of biases are always estimated.
    tau : "auto", float > 0 or sequence of float, default="auto"
        Precision of the noise, 1 / variance in y's own units. Leave ``"auto"``, an
        estimate by evidence, unless the noise is known.
    prior : {"auto", "ard", "layer", "isotropic"}, default="auto"
        Weights that share a precision. Leave ``"auto"``: ``"ard"`` with at least two
        rows for each column and a full posterior, else ``"layer"``. ``"ard"``: the
        weights of a column, so that columns without effect are removed, and the matrix
        of each further layer. ``"layer"``: the matrix of each layer. ``"isotropic"``:
        all matrices.
    posterior : {"auto", "full", "last_layer"}, default="auto"
        Weights with a posterior. ``"full"``: all, at most 5,000. ``"last_layer"``:
        weights of the last layer, for up to 50,000 weights and many rows. L-BFGS trains
        the hidden layers, with ``length_scale="fan_in"`` unless it is given, until a
        fifth of the rows, which are held out, are predicted worse; then the evidence
        of all rows sets tau and the last layer. Leave ``"auto"``: ``"full"`` for
        networks of at most 5,000 weights. With ``"last_layer"``,
        ``hidden_layer_sizes="auto"`` is 50 x 50.
    likelihood : {"auto", "gaussian", "heteroscedastic", "poisson"}, default="auto"
        Distribution of y given the function. ``"gaussian"`` has one tau for all rows.
        ``"heteroscedastic"`` fits a second network to the log of the squared residuals,
        and then the first one again, with these variances. Leave ``"auto"``: the second
        network is used if its evidence is larger than the evidence of a constant, and
        never with more than 5,000 weights, about 600 columns. ``"poisson"`` is for
        counts: the network is their log rate relative to the mean count, and tau, by
        default 1, is the weight of the data relative to the prior.
    y_bounds : (low, high), default=None
        Bounds that y cannot exceed; None for a missing one. Give them if you know them:
        no predicted probability is outside. Rows at a bound are fitted as values beyond
        it, by .3 standard deviations of y: then new rows can have the bound with a
        probability near 1.
    n_estimators : int, default=4
        Networks from different initial weights; the predictive distribution is their
        mixture with equal weights.
    n_draws : int, default=200
        Posterior draws of each network in predictions, in pairs of opposite signs.
    categorical_features
        As in :class:`MCDropoutRegressor`.
    max_iter : "auto" or int, default="auto"
        Most Levenberg-Marquardt steps. ``"auto"`` is 300, of which few tables need
        more than 60.
    random_state : int, RandomState instance or None, default=None
        Seed of initial weights and draws. None is a fresh seed.

    Attributes
    ----------
    hidden_layer_sizes_ : tuple of int
        Units of each hidden layer.
    likelihood_ : {"gaussian", "heteroscedastic", "poisson"}
        The likelihood that is used.
    posterior_ : {"full", "last_layer"}
        The weights with a posterior.
    prior_ : {"ard", "layer", "isotropic"}
        The prior that is used.
    log_evidence_ : ndarray of shape (n_networks,)
        Log marginal likelihood of the training rows by Laplace's approximation, in
        nats, for y in its units.
    effective_parameters_ : ndarray of shape (n_networks,)
        gamma, the number of weights that the rows determine.
    relevance_ : ndarray of shape (n_features_in_,)
        Prior standard deviations of the weights of each column, divided by their root
        sum of squares. Near 0 for columns without effect, with ``prior="ard"``. With a
        posterior of the last layer, of the weights themselves. Weights of features of
        several columns count in equal parts for each of them.
    length_scale_ : ndarray of shape (n_layers,)
        Root mean prior precision of the weights of each layer.
    tau_ : float or ndarray of shape (n_targets,)
        1 / variance of the noise in y's units, of the mean variance over networks. With
        noise that depends on the row, of a row whose log variance is 0.
    weight_decay_ : ndarray of shape (n_layers,) or (n_layers, n_targets)
        lambda = l^2 / (2 N tau); no weight is dropped, so that p = 1.
    n_iter_ : int
        Steps to the largest evidence, the maximum over networks.
    parameters_ : dict
        The networks and the draws as plain arrays.
    information_ : dict
        Prior precisions, and log likelihood to second order about the weights, for
        ``partial_fit``. Networks with many weights have none.
    total_weight_ : float
        N, the sum of the weights.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_, table_, x_mean_, x_scale_, y_mean_, y_scale_, target_spaces_
        As in :class:`MCDropoutRegressor`; for counts, ``y_mean_`` is the log of the
        mean count.

    See Also
    --------
    BayesianStackingRegressor : Mixes these networks with trees and other networks.
    AnchoredEnsembleRegressor : For larger networks.

    References
    ----------
    - MacKay (1992), "A practical Bayesian framework for backpropagation networks",
      Neural Computation 4.
    - Foresee & Hagan (1997), "Gauss-Newton approximation to Bayesian learning", ICNN.
    - Immer, Korzepa & Bauer (2021), "Improving predictions of Bayesian neural nets via
      local linearization", AISTATS, arXiv:2008.08400.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import LaplaceRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = LaplaceRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    """

    likelihood: Any = "auto"
    y_bounds: Any = None

    likelihood_: Literal["gaussian", "heteroscedastic", "poisson"] = field(init=False)
    tau_: stored.PerTarget = field(init=False)

    @property
    def weight_decay_(self) -> Array:
        """lambda = l^2 / (2 N tau), of each layer and target."""
        scales, tau = self.length_scale_, self.tau_
        scales = scales[:, None] if np.ndim(tau) else scales
        return weight_decay(1.0, scales, self.total_weight_, tau)

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Update the fit with further rows: the posterior becomes the prior.

        Pass each row once; no rows are kept. The first call is a fit, if there was
        none. It sets the standardisation and the encoding of columns, the units, and
        the form of the noise. Later calls represent the earlier rows by their log
        likelihood to second order about the fitted weights, and estimate weights, tau
        and length scales again. This is exact for a linear model,
        ``hidden_layer_sizes=()``. With hidden units it is an approximation, and a fit
        to all rows is more accurate: let the first call have many rows.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            New inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            New target values.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, as in ``fit``.

        Returns
        -------
        self : object
            The updated estimator. After an error it is unchanged.
        """
        return self._fit_rows(
            X, y, sample_weight, reset=not hasattr(self, "parameters_")
        )

    def _data_term(self, y, weights, reset):
        if self.likelihood == "poisson":
            Poisson.check_y(y)
            if reset:
                self.y_mean_ = Poisson(y.shape[1]).statistics(y, weights)
                self.y_scale_ = np.ones(y.shape[1])
            tau = 1.0 if self.tau == "auto" else self.tau
            tau = _validation.check_number("tau", tau, low=0, open_low=True)
            return LogRates(y, weights, self.y_mean_), np.array([tau])
        if reset:
            self._standardise(y, weights)
        scaling = self._scaling
        held = _validation.precisions(self.tau, y.shape[1])
        if held is not None:
            held = scaling.tau_to_network(held)
        return Squares(scaling.y_to_network(y), weights), held

    def _train(self, x, term, tau, random):
        options = ["auto", "gaussian", "heteroscedastic", "poisson"]
        _validation.check_option("likelihood", self.likelihood, options)
        super()._train(x, term, tau, random)

    def _store_modes(self, network, found, seeds):
        super()._store_modes(network, found, seeds)
        variance = (1 / self.parameters_["tau"]).mean(0)
        tau = self._scaling.tau_from_network(variance)
        self.tau_ = float(tau[0]) if len(tau) == 1 else tau

    def _first_noise(self, network, x, units, term, mode, tau) -> Mode | None:
        """The log variance of the noise, if it depends on the row.

        units : inputs of the layers that have a posterior
        mode : of the first network
        """
        noise = self._noise_network(x, term)
        is_auto = self.likelihood == "auto"
        self.likelihood_ = "gaussian" if is_auto else self.likelihood
        if is_auto and (tau is not None or noise.n_weights > MOST_WEIGHTS):
            return None
        if not (is_auto or self.likelihood == "heteroscedastic"):
            return None
        if noise.n_weights > MOST_WEIGHTS:
            raise ValueError(
                "the network of the noise must have at most "
                f"{MOST_WEIGHTS} weights; got {noise.n_weights} of {x.shape[1]} "
                'inputs. Take fewer columns, or likelihood="gaussian".'
            )
        variances = self._variances(network, units, term, mode)
        start = noise.initial(np.random.default_rng(0))
        found = self._noise_mode(noise, x, variances, start)
        if is_auto:
            # By evidence: the log variance of the noise is a network, or constant.
            constant = DenseNetwork((0, term.y.shape[1]), "tanh")
            equal = self._noise_mode(
                constant, x[:, :0], variances, np.zeros(constant.n_weights)
            )
            if found.log_evidence > equal.log_evidence:
                self.likelihood_ = "heteroscedastic"
        return found

    def _with_noise(self, whole, x, term, fits, tau):
        network, found = self._with_posterior(whole), []
        held = self._held_precisions(whole)[-network.n_weights :]
        units = [features(hidden, self.activation, x) for hidden, _ in fits]
        first = self._first_noise(network, x, units[0], term, fits[0][1], tau)
        if self.likelihood_ != "heteroscedastic":
            return super()._with_noise(whole, x, term, fits, tau)
        dense = self._noise_network(x, term)
        for (hidden, mode), inputs in zip(fits, units, strict=True):
            variances = self._variances(network, inputs, term, mode)
            noise = self._noise_mode(dense, x, variances, first)
            precise = self._with_precision(term, dense.layers(noise.weights), x)
            mode = largest_evidence(
                network, inputs, precise, mode, prior=self.prior_, alpha=held
            )
            variances = self._variances(network, inputs, precise, mode)
            noise = self._noise_mode(dense, x, variances, noise)
            layers = _named("noise", dense.layers(noise.weights))
            found.append((_named("hidden", hidden) | layers, mode))
        return found

    def _with_precision(self, term, noise, x):
        if not noise:
            return term
        return Squares(term.y, term.weights, 1 / _relative_variance(noise, x))

    def _noise_network(self, x, term) -> DenseNetwork:
        return DenseNetwork((x.shape[1], NOISE_UNITS, term.y.shape[1]), "tanh")

    def _noise_mode(self, network, x, variances, start) -> Mode:
        """The log variance that a network fits to squared residuals."""
        return largest_evidence(network, x, variances, start, prior=self.prior_)

    def _variances(self, network, x, term, mode) -> LogVariances:
        """Data term of squared errors times tau, without the part that the fit removed.

        In a linear model, 1 minus the influence of a row on its own prediction is the
        expected share of the noise in the residual. The weight of a row is a number of
        equal rows, each with its own influence.
        """
        inverse = np.linalg.inv(mode.hessian)
        squares = np.empty(term.y.shape)
        size = max(1, _evidence.BLOCK_ENTRIES // network.n_weights)
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            f, gradients = network.jacobian(mode.weights, x[rows])
            part = term.of_rows(rows)
            own = np.einsum("nkp,nkp->nk", gradients @ inverse, gradients)
            own *= mode.tau * part.precision
            error = np.square(f - part.y) * mode.tau
            squares[rows] = error / np.maximum(1 - own, LEAST_NOISE)
        return LogVariances(squares, term.weights)

    def noise_variance(self, member: int, noise, x) -> Any:
        """Variance of the noise by one network, (rows, targets) or (targets,).

        noise : layers of the log variance, if it depends on the row
        x : standardised rows, an array or a tensor of a graph
        """
        variance = 1 / self.parameters_["tau"][member]
        if not noise:
            return variance
        return _relative_variance(noise, x) * variance

    def counts(self, f) -> Components:
        """Poisson distributions of log rates relative to the mean count.

        f : (draws, rows, targets), an array or a tensor of a graph
        """
        log_rate, _ = self._scaling.moments_from_network(f, 0.0)
        return Counts(np.exp(np.clip(log_rate, *LOG_RATE_BOUNDS)))

    def _log_density_shift(self):
        return float(self._scaling.log_density_shift())

    def _distribution(self, x, dtype):
        mean = self._outputs(x)
        if self.likelihood_ == "poisson":
            return MixturePredictive(self.counts(mean), self.y_ndim_ == 1)
        variance, n_networks = np.empty(mean.shape), len(self.log_evidence_)
        for member in range(n_networks):
            noise = self.layers_of(member, "noise")
            variance[member::n_networks] = self.noise_variance(member, noise, x)
        return self._predictive_of(Gaussians(mean, variance), dtype)


@parameters
class LaplaceClassifier(TableClassifier, LaplaceModel):
    """Small networks for classification that need no tuning: precisions by evidence.

    Use it for classes with smooth boundaries in few numeric columns. It is the
    classification counterpart of :class:`LaplaceRegressor`: the data term is the
    cross-entropy, with the Hessian of generalised Gauss-Newton, and the logits are
    linearised in the weights. With more than two classes, the time of a step grows
    with their number.

    If the classes are separated, no evidence bounds the logits: estimated length scales
    are at least .55, weights of standard deviation 1.8.

    Parameters
    ----------
    hidden_layer_sizes, activation, length_scale
        As in :class:`LaplaceRegressor`.
    tau : float > 0, default=1.0
        Weight of the data relative to the prior. Leave 1, Bayes' rule: smaller values
        give less confident probabilities.
    prior, posterior
        As in :class:`LaplaceRegressor`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply the weights of the rows.
    n_estimators, n_draws, categorical_features, max_iter, random_state
        As in :class:`LaplaceRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels in the order of the probabilities.
    hidden_layer_sizes_, prior_, posterior_, log_evidence_, effective_parameters_, \
relevance_, length_scale_, n_iter_, parameters_, information_, total_weight_, \
n_features_in_
        As in :class:`LaplaceRegressor`.
    x_mean_, x_scale_ : ndarray of shape (n_columns,)
        The standardisation of the columns.
    feature_names_in_, table_
        As in :class:`MCDropoutRegressor`.
    weight_decay_ : ndarray of shape (n_layers,)
        lambda = l^2 / (2 N tau).

    See Also
    --------
    LaplaceRegressor : Regression.

    References
    ----------
    - MacKay (1992), "The evidence framework applied to classification networks",
      Neural Computation 4.
    - Immer, Korzepa & Bauer (2021), "Improving predictions of Bayesian neural nets via
      local linearization", AISTATS, arXiv:2008.08400.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayesnn import LaplaceClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LaplaceClassifier(random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    tau: Annotated[Any, stored.each(stored.POSITIVE)] = 1.0
    class_weight: Any = None

    @property
    def weight_decay_(self) -> Array:
        """lambda = l^2 / (2 N tau), of each layer."""
        return weight_decay(1.0, self.length_scale_, self.total_weight_, self.tau)

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Update the fit with further rows: the posterior becomes the prior.

        See :meth:`LaplaceRegressor.partial_fit`. Pass each row once.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            New inputs.
        y : array-like of shape (n_samples,)
            New labels.
        classes : array-like, default=None
            All labels that can occur; y of the first call must contain them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, as in ``fit``.

        Returns
        -------
        self : object
            The updated estimator. After an error it is unchanged.
        """
        reset = not hasattr(self, "parameters_")
        classes = classes_of_stream(self, classes)
        return self._fit_rows(X, y, sample_weight, reset=reset, classes=classes)

    def _data_term(self, y, weights, reset):
        tau = _validation.check_number("tau", self.tau, low=0, open_low=True)
        is_class = np.eye(len(self.classes_))[y]
        is_class = is_class[:, 1:] if len(self.classes_) == 2 else is_class
        return Logits(is_class, weights), np.array([tau])

    def _distribution(self, x, dtype):
        probability = logit_proba(self._outputs(x), self._n_outputs)
        return ClassPredictive(probability.astype(dtype), self.classes_)


def logit_proba(f, n_outputs: int):
    """Class probabilities of logits, (draws, rows, classes).

    f : (draws, rows, outputs), an array or a tensor of a graph
    """
    if n_outputs == 1:
        return expit(f * np.array([-1.0, 1.0]))
    f = np.exp(f - f.max(-1, keepdims=True))
    return f / f.sum(-1, keepdims=True)
