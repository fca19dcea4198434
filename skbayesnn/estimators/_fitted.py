"""Convert trained networks to fitted attributes, and back.

Fitted attributes are plain arrays and scalars, without torch objects. So pickle, joblib
and skops can store them, and a model that was fitted on a GPU loads on any machine.
"""

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import sklearn
import torch
from scipy import sparse

from skbayesnn import _validation
from skbayesnn._data.scaling import Scaling
from skbayesnn._data.sparse_rows import SparseRows, suits_sparse_rows
from skbayesnn._engine.objective import weight_decay
from skbayesnn._engine.posterior import (
    MeanWeightPosterior,
    Posterior,
    PosteriorPredictor,
)
from skbayesnn._engine.resources import as_tensor
from skbayesnn._likelihoods import Likelihood, likelihood_from
from skbayesnn._networks import NETWORKS, Network, network_from
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._runtime import warn
from skbayesnn._sklearn_compat import BaseEstimator
from skbayesnn.estimators._job import TrainedJob, TrainingJob

# ---- fitted attributes <-> trained networks

# Number of training rows for the mean of noise that depends on the row.
_ROWS_OF_NOISE = 1000
# Number of draws for this mean.
_DRAWS_OF_NOISE = 20


def to_arrays(posterior: Posterior) -> dict[str, np.ndarray]:
    """Convert to arrays by name, with the keep probabilities; first axis: members."""
    groups = {f"layers/{i}": group for i, group in enumerate(posterior.layers)}
    groups["likelihood"] = posterior.likelihood_params
    arrays = {
        f"{place}/{name}": value.cpu().numpy()
        for place, group in groups.items()
        for name, value in group.items()
    }
    arrays["keep"] = torch.stack(posterior.keep).double().cpu().numpy()
    return arrays


def describe_network(network: Network, likelihood: Likelihood) -> dict:
    """Sizes, names and options of a network, the value of ``network_``."""
    return network.describe() | {"likelihood": likelihood.describe()}


@dataclass
class PosteriorCache:
    """Cache of a fitted estimator's posterior between predictions.

    The cache is not part of the estimator's state: pickles and copies start with an
    empty one, and all caches compare equal.
    """

    _trained: Any = field(default=None, init=False, repr=False, compare=False)
    _last: Any = field(default=None, init=False, repr=False, compare=False)

    def prime(self, estimator, trained: Posterior) -> None:
        """Store the posterior of which the fitted attributes were made.

        The first prediction uses it and need not read the attributes.
        """
        arrays = [*estimator.parameters_.values(), estimator.seeds_]
        self._trained = deepcopy(estimator.network_), arrays, trained

    def posterior(self, estimator, device: torch.device, dtype: torch.dtype):
        """Return the posterior; rebuild it if fitted attributes were replaced."""
        arrays = [*estimator.parameters_.values(), estimator.seeds_]
        key = estimator.network_, device, dtype
        cached = self._last
        if cached is None or cached[0] != key or not are_same(arrays, cached[1]):
            make_read_only(arrays)
            primed, self._trained = self._trained, None
            if primed and primed[0] == key[0] and are_same(arrays, primed[1]):
                posterior = primed[2].to(device, dtype)
            else:
                posterior = restore_posterior(estimator, device, dtype)
            cached = self._last = deepcopy(key), arrays, posterior
        return cached[2]


def are_same(arrays: list, cached: list) -> bool:
    """Whether two lists contain the same objects, which are read-only."""
    pairs = zip(arrays, cached, strict=False)
    return len(arrays) == len(cached) and all(a is b for a, b in pairs)


def make_read_only(arrays: Iterable[np.ndarray]) -> None:
    """Make arrays read-only, so that a change requires a new array.

    Caches detect only new arrays.
    """
    for values in arrays:
        values.flags.writeable = False


class WithCache(BaseEstimator):
    """Base of estimators that cache results of fitted arrays; copies have no cache."""

    _cache_class: Callable[[], Any]

    @property
    def _cached_arrays(self) -> list[np.ndarray]:
        """Fitted arrays of which the cache has results."""
        raise NotImplementedError

    def _protect(self) -> None:
        """Make the arrays of the cache read-only, and empty the cache."""
        make_read_only(self._cached_arrays)
        self._cache = self._cache_class()

    def __getstate__(self):
        """Return the state without the cache."""
        state = dict(super().__getstate__())
        state.pop("_cache", None)
        return state

    def __setstate__(self, state):
        """Restore a state, with arrays that nothing can change."""
        super().__setstate__(state)
        if "parameters_" in state:
            self._protect()


def restore_posterior(estimator, device: torch.device, dtype: torch.dtype) -> Posterior:
    """Build the posterior of a fitted estimator on a device."""
    description, arrays = estimator.network_, estimator.parameters_
    network = network_from(description)
    groups: list[dict] = [{} for _ in network.families]
    likelihood_params = {}
    for key, value in arrays.items():
        place, *rest = key.split("/")
        if place == "layers":
            groups[int(rest[0])][rest[1]] = _tensor(value, device, dtype)
        elif place == "likelihood":
            likelihood_params[rest[0]] = _tensor(value, device, dtype)
    return Posterior(
        network=network,
        likelihood=likelihood_from(description["likelihood"]),
        layers=groups,
        likelihood_params=likelihood_params,
        keep=tuple(_tensor(p, device, dtype) for p in arrays["keep"]),
        seeds=estimator.seeds_,
    )


def _tensor(values, device, dtype):
    return as_tensor(values).to(device, dtype)


def prior_from(posterior: Posterior) -> list[dict[str, np.ndarray]]:
    """Convert a mean-field posterior to fields of a prior, one dict per layer.

    The first axis of the fields is the members.
    """
    parts = zip(posterior.network.families, posterior.layers, strict=True)
    return [
        {
            name: value.cpu().numpy().copy()
            for name, value in family.as_prior(params).items()
        }
        for family, params in parts
    ]


def restore_scaling(estimator) -> Scaling:
    """Build the standardisation of a fitted estimator."""
    return Scaling(
        estimator.x_mean_, estimator.x_scale_, estimator.y_mean_, estimator.y_scale_
    )


def fitted_attributes(trained_job: TrainedJob) -> tuple[dict, Posterior]:
    """Fitted attributes of all estimators, and the posterior of a trained job."""
    job, trained = trained_job.job, trained_job.trained
    scaling, total_weight = job.scaling, trained_job.total_weight
    alive = np.flatnonzero(trained.failed == 0)
    if len(alive) < len(trained.failed):
        trained = trained.select(alive)
    posterior = trained.posterior
    params, likelihood = posterior.likelihood_params, posterior.likelihood
    tau = _tau(job, params, scaling)
    ratio = job.config.training_ratio
    tau_training = _tau(job, likelihood.in_training(params), scaling) * ratio
    dropout = _one_if_equal(_dropout_rates(job, posterior))
    length_scale = _one_if_equal(_length_scale(job))
    history = _history(trained, scaling.log_density_shift())
    elbo, elbo_std_error = _elbo(trained, scaling, total_weight)
    attributes = {
        "network_": describe_network(posterior.network, posterior.likelihood),
        "parameters_": to_arrays(posterior),
        "seeds_": posterior.seeds,
        "x_mean_": scaling.x_mean,
        "x_scale_": scaling.x_scale,
        "y_mean_": scaling.y_mean,
        "y_scale_": scaling.y_scale,
        "tau_": tau,
        "dropout_": dropout,
        "length_scale_": length_scale,
        "weight_decay_": _per_layer_and_target(
            dropout, length_scale, total_weight, tau
        ),
        "tau_training_": tau_training,
        "weight_decay_training_": _per_layer_and_target(
            dropout, length_scale, total_weight, tau_training
        ),
        "engine_": trained.engine,
        "n_processes_": trained.n_processes,
        "optimizer_": trained.optimizer,
        "history_": history,
        "loss_curve_": np.nanmean(history["loss"], axis=1).tolist(),
        "n_iter_": int(trained.n_epochs.max()),
        "n_epochs_seen_": trained_job.n_epochs_before + int(trained.n_epochs.max()),
        "total_weight_": total_weight,
        "elbo_": elbo,
        "elbo_std_error_": elbo_std_error,
        "prior_": _prior(job, alive),
        "row_noise_std_": _row_noise(job, posterior, scaling),
    }
    return attributes, posterior


def _elbo(trained, scaling: Scaling, total_weight: float) -> tuple[float, float]:
    """Mean -F over networks in nats, for y in its units, and its standard error.

    NaN in the file of a fit that is not finished.
    """
    bound = trained.bound
    if bound is None:
        return math.nan, math.nan
    nll = total_weight * (bound.nll - scaling.log_density_shift())
    elbo = -(nll + bound.kl + trained.kl_constant)
    error = np.hypot(total_weight * bound.nll_error, bound.kl_error)
    return float(elbo.mean()), float(np.linalg.norm(error) / len(error))


def _row_noise(job: TrainingJob, posterior: Posterior, scaling: Scaling):
    """Root mean square of row-dependent noise, in the units of y; else None.

    The mean is over training rows of the first network.
    """
    if not posterior.likelihood.row_noise:
        return None
    rows = job.row_subsets[0].rows
    X = job.table.X[rows[:: -(-len(rows) // _ROWS_OF_NOISE)]]
    inputs = scaling.x_to_network(X.toarray() if sparse.issparse(X) else X)
    inputs = _tensor(inputs, posterior.device, posterior.dtype).unsqueeze(0)
    with torch.no_grad():
        draws = range(posterior.distinct_draws(_DRAWS_OF_NOISE))
        outputs = posterior.outputs(inputs, draws)
        components = posterior.predictive_components(outputs, torch.float64)
    std = scaling.std_from_network(np.sqrt(components.variance.mean((0, 1))))
    return float(std[0]) if len(std) == 1 else std


def _length_scale(job: TrainingJob) -> np.ndarray:
    """Prior length scale per layer; root mean precision of an earlier posterior."""
    if job.config.prior != "previous":
        return job.length_scale
    stds = [fields["std"] for fields in job.members.prior]
    return np.array([np.sqrt(np.mean(std**-2.0)) for std in stds])


def _prior(job: TrainingJob, alive: np.ndarray) -> list[dict[str, np.ndarray]] | None:
    """Fields per layer of an earlier posterior that was the prior; else None."""
    if job.config.prior != "previous":
        return None
    return [
        {name: value[alive] for name, value in fields.items()}
        for fields in job.members.prior
    ]


def _dropout_rates(job: TrainingJob, posterior: Posterior) -> np.ndarray:
    """Dropout rate per layer; if learned, the mean over networks."""
    learned = [family.learns_keep for family in posterior.network.families]
    keep = torch.stack(posterior.learned_keep()).double().mean(1).cpu().numpy()
    return np.where(learned, 1 - keep, job.dropout)


def _one_if_equal(per_layer: np.ndarray):
    """Replace equal values of all layers by one float."""
    first = per_layer[0]
    return float(first) if (per_layer == first).all() else per_layer


def _per_layer_and_target(dropout, length_scale, total_weight, tau):
    """Weight decay lambda: float, (layers,), (targets,) or (layers, targets)."""
    if np.ndim(tau):
        dropout, length_scale = (
            v[:, None] if np.ndim(v) else v for v in (dropout, length_scale)
        )
    return weight_decay(1 - dropout, length_scale, total_weight, tau)


def _tau(job: TrainingJob, params: dict, scaling: Scaling):
    """tau in the units of y; if learned, from the networks' mean noise variance."""
    tau = job.tau
    if tau is None:
        variance = job.config.likelihood.noise_level(params)
        assert variance is not None, "tau is learned only for observation noise"
        tau = scaling.tau_from_network(variance.mean(0).cpu().numpy())
    return float(tau[0]) if len(tau) == 1 else tau


def _history(trained, shift: float) -> dict[str, np.ndarray]:
    """Losses, (n_iter, networks); NaN after a network has stopped."""
    n_epochs = trained.n_epochs.max()
    stopped = np.arange(n_epochs)[:, None] >= trained.n_epochs

    def cut(values):
        return np.where(stopped, np.nan, values[:n_epochs])

    nll = cut(trained.nll - shift)
    kl = cut(trained.kl)
    history = {"loss": nll + kl, "negative_log_likelihood": nll, "kl": kl}
    if trained.validation is not None:
        history["validation_score"] = cut(trained.validation + shift)
    return history


# ---- draws of the posterior, for rows in the user's units

# Options of the parameter `method` of predictions.
METHODS = ("draws", "mean_weights")
# Selected draws are computed one by one if at most one in this many is selected.
_FEW_OF_ALL = 8


def fitted_posterior(estimator, X) -> Posterior:
    """Fitted posterior on the prediction device, in the precision of X."""
    suits_gpu = not NETWORKS[estimator.network_["name"]].is_compiled
    device = _validation.device_for_prediction(estimator.device, suits_gpu)
    dtype = torch.float32 if X.dtype == np.float32 else torch.float64
    dtype = torch.float32 if device.type == "mps" else dtype
    return estimator._cache.posterior(estimator, device, dtype)


def posterior_by(estimator, X, method: str) -> Posterior:
    """Fitted posterior, for ``"mean_weights"`` reduced to its mean weights."""
    _validation.check_option("method", method, METHODS)
    posterior = fitted_posterior(estimator, X)
    return MeanWeightPosterior.of(posterior) if method == "mean_weights" else posterior


def open_posterior(
    estimator,
    X,
    posterior: Posterior | None = None,
    n_draws: int | None = None,
    first_draw: int = 0,
) -> PosteriorPredictor:
    """Predictor of posterior draws at checked rows.

    posterior : by default the fitted posterior
    """
    posterior = posterior or fitted_posterior(estimator, X)
    scaling = restore_scaling(estimator)
    on_cpu, takes_sparse = (
        posterior.device.type == "cpu",
        posterior.network.takes_sparse,
    )
    is_sparse = on_cpu and takes_sparse and suits_sparse_rows(X, scaling)

    def rows(chunk: slice) -> torch.Tensor | SparseRows:
        if is_sparse:
            return SparseRows.of(X[chunk], scaling)
        values = X[chunk].toarray() if sparse.issparse(X) else X[chunk]
        values = scaling.x_to_network(values).astype(X.dtype, copy=False)
        return as_tensor(values).to(posterior.device, posterior.dtype)

    budget = int(sklearn.get_config()["working_memory"] * 2**20)
    n_draws = n_draws or estimator.n_draws
    return PosteriorPredictor(
        posterior, rows, X.shape[0], n_draws, budget, is_sparse, first_draw
    )


def warn_of_nan(predicted: np.ndarray) -> None:
    """Warn if predictions are NaN, (rows, ...)."""
    is_nan = np.isnan(predicted).reshape(len(predicted), -1).any(1)
    if is_nan.any():
        warn(
            "SKB306",
            f"the predictions of {is_nan.sum()} rows are NaN, first row "
            f"{is_nan.argmax()}: their inputs, or values computed from them, are too "
            f"large for {predicted.dtype}. Check that X has the units of the training "
            "data.",
            RuntimeWarning,
        )


class PredictiveByDraws:
    """Predictive distribution of all rows, computed from a part of the draws at a time.

    Subclasses have the methods of ``MixturePredictive`` or ``ClassPredictive`` that
    need not have all draws at once.

    Parameters
    ----------
    estimator : BayesianNetwork
        Fitted; it must not change.
    X : {array, sparse array} of shape (rows, inputs)
        Checked inputs.
    posterior : Posterior, optional
        By default the fitted posterior.
    """

    def __init__(self, estimator, X, posterior: Posterior | None = None):
        self.estimator, self.X = estimator, X
        self.posterior = posterior or fitted_posterior(estimator, X)

    @cached_property
    def predictor(self) -> PosteriorPredictor:
        """Predictor of all draws."""
        return open_posterior(self.estimator, self.X, self.posterior)

    @property
    def n_draws(self) -> int:
        """Number of draws of all networks that can differ."""
        n_draws = self.posterior.distinct_draws(self.estimator.n_draws)
        return n_draws * self.posterior.n_members

    def predictive_of(self, components) -> Any:
        """Predictive distribution of some rows with these components, one per draw."""
        raise NotImplementedError

    def in_blocks(self) -> PredictiveBlocks:
        """Blocks of rows with all draws, and one block of all rows by draws."""
        n_rows, predictor = self.X.shape[0], self.predictor
        return PredictiveBlocks(
            n_rows,
            lambda rows: self.predictive_of(predictor.whole(rows)),
            predictor.block,
            by_draws=PredictiveBlocks(n_rows, lambda rows: self, n_rows),
        )

    def components_of(self, draws: np.ndarray) -> tuple[Any, np.ndarray]:
        """Components with at least the given draws, and the indices of these draws."""
        estimator, X, posterior = self.estimator, self.X, self.posterior
        distinct, inverse = np.unique(draws, return_inverse=True)
        # Compute only the selected draws, unless they are many.
        if len(distinct) * _FEW_OF_ALL > self.n_draws:
            return self.predictor.whole(), draws
        parts = []
        for number in distinct:
            draw, member = divmod(int(number), posterior.n_members)
            network = posterior.select(np.array([member]))
            predictor = open_posterior(estimator, X, network, 1, first_draw=draw)
            parts.append(predictor.whole())
        return type(parts[0]).concatenated(parts), inverse
