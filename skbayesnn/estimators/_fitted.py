"""Convert trained networks to fitted attributes, and back.

Fitted attributes are plain arrays and scalars. Pickle, joblib and skops need no torch
object, and a model that was fitted on a GPU can be loaded on any machine.
"""

from collections.abc import Iterable
from copy import deepcopy

import numpy as np
import sklearn
import torch
from scipy import sparse

from skbayesnn import _validation
from skbayesnn._data.sparse_rows import SparseRows, suits_sparse_rows
from skbayesnn._data.training_rows import Scaling
from skbayesnn._engine.objective import weight_decay
from skbayesnn._engine.posterior import (
    MeanWeightPosterior,
    Posterior,
    PosteriorPredictor,
)
from skbayesnn._engine.resources import tensor_of
from skbayesnn._likelihoods import Likelihood, likelihood_from
from skbayesnn._likelihoods.gaussian import UNBOUNDED
from skbayesnn._networks import Network, network_from
from skbayesnn._predictive.mixin import seed_from
from skbayesnn._runtime import warn
from skbayesnn.estimators._job import TrainingJob

# ---- fitted attributes <-> trained networks

# Training rows, and draws, whose noise a row-dependent one is told by.
_ROWS_OF_NOISE, _DRAWS_OF_NOISE = 1000, 20
# Of ``network_`` and ``parameters_``: 1 was that of version 0.1.0.
FORMAT = 2


def arrays_of(posterior: Posterior) -> dict[str, np.ndarray]:
    """All parameters by name, members first, and the keep probabilities."""
    groups = {f"layers/{i}": group for i, group in enumerate(posterior.layers)}
    groups["likelihood"] = posterior.likelihood_params
    arrays = {
        f"{place}/{name}": value.cpu().numpy()
        for place, group in groups.items()
        for name, value in group.items()
    }
    arrays["keep"] = torch.stack(posterior.keep).double().cpu().numpy()
    return arrays


def description_of(network: Network, likelihood: Likelihood) -> dict:
    """What is not an array: sizes, names and options."""
    about = {"format": FORMAT, "likelihood": likelihood.describe()}
    return network.describe() | about


class PosteriorCache:
    """The posterior of a fitted estimator, kept from one prediction to the next.

    It is no part of what the estimator is: pickles and copies begin without, and all
    are equal.
    """

    def __init__(self):
        self._last = None

    def __eq__(self, other):
        return isinstance(other, PosteriorCache)

    __hash__ = None  # type: ignore[assignment]

    def posterior(self, estimator, device: torch.device, dtype: torch.dtype):
        """That of the fitted attributes; made anew where they are not the same."""
        arrays = [*estimator.parameters_.values(), estimator.seeds_]
        about = estimator.network_, device, dtype
        last = self._last
        if last is None or last[0] != about or not _all_are(arrays, last[1]):
            locked(arrays)
            posterior = posterior_of(estimator, device, dtype)
            last = self._last = deepcopy(about), arrays, posterior
        return last[2]


def _all_are(arrays: list, others: list) -> bool:
    """Whether they are the same objects, which cannot be written to."""
    pairs = zip(arrays, others, strict=False)
    return len(arrays) == len(others) and all(one is other for one, other in pairs)


def locked(arrays: Iterable[np.ndarray]) -> None:
    """Arrays that cannot be written to any more: to change one, replace it."""
    for values in arrays:
        values.flags.writeable = False


def posterior_of(estimator, device: torch.device, dtype: torch.dtype) -> Posterior:
    """The posterior of a fitted estimator, on a device."""
    about, arrays = estimator.network_, estimator.parameters_
    network = network_from(about)
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
        likelihood=likelihood_from(about["likelihood"]),
        layers=groups,
        likelihood_params=likelihood_params,
        keep=tuple(_tensor(p, device, dtype) for p in arrays["keep"]),
        seeds=estimator.seeds_,
    )


def upgraded(state: dict) -> dict:
    """The attributes of a fitted estimator of any earlier format, in the present one.

    Raises
    ------
    ValueError
        For a format that is newer than this version of the package.
    """
    about = state["network_"]
    version = about.get("format", 1)
    if version > FORMAT:
        raise ValueError(
            f"a fitted estimator must be of format {FORMAT} or earlier; got {version}, "
            "of a later version of skbayesnn. Load it with that version."
        )
    return state if version == FORMAT else state | _from_first_format(state)


def _from_first_format(state: dict) -> dict:
    about, arrays = dict(state["network_"]), state["parameters_"]
    name, learned = about["likelihood"], about.pop("learned_tau")
    n_outputs = about["sizes"][-1]
    likelihood = {
        "gaussian": {"n_targets": n_outputs, "learned": learned},
        "heteroscedastic": {"n_targets": n_outputs // 2, "learned": learned},
        "categorical": {"n_classes": n_outputs},
    }[name]
    about["likelihood"] = {"name": name} | likelihood
    arrays = {
        key.replace("noise/", "likelihood/"): value for key, value in arrays.items()
    }
    optimizer = dict(state["optimizer_"])
    if name == "heteroscedastic":
        unbounded = np.full_like(arrays["likelihood/log_tau"], UNBOUNDED)
        arrays["likelihood/largest_log_variance"] = unbounded
        optimizer |= {
            key.replace("log_tau", "largest_log_variance"): np.zeros_like(moment)
            for key, moment in optimizer.items()
            if key.endswith("/log_tau")
        }
    return {
        "network_": about | {"format": FORMAT, "name": "mlp"},
        "parameters_": arrays,
        "optimizer_": optimizer,
    }


def _tensor(values, device, dtype):
    return tensor_of(values).to(device, dtype)


def prior_from(posterior: Posterior) -> list[dict[str, np.ndarray]]:
    """A mean-field posterior as the fields of a prior, per layer, members first."""
    parts = zip(posterior.network.families, posterior.layers, strict=True)
    return [
        {
            name: value.cpu().numpy().copy()
            for name, value in family.as_prior(params).items()
        }
        for family, params in parts
    ]


def scaling_of(estimator) -> Scaling:
    """The standardisation of a fitted estimator."""
    return Scaling(
        estimator.x_mean_, estimator.x_scale_, estimator.y_mean_, estimator.y_scale_
    )


def fitted_attributes(job: TrainingJob, total_weight: float) -> dict:
    """The fitted attributes that estimators of all kinds have, by name.

    total_weight : N, the sum of the weights of all rows seen
    """
    trained, scaling = job.trained, job.scaling
    alive = np.flatnonzero(trained.failed == 0)
    if len(alive) < len(trained.failed):
        trained = trained.select(alive)
    posterior = trained.posterior
    params, likelihood = posterior.likelihood_params, posterior.likelihood
    tau = _precision(job, params, scaling)
    tau_training = _precision(job, likelihood.in_training(params), scaling)
    dropout = _shared(_rates(job, posterior))
    length_scale = _shared(_length_scale(job))
    history = _history(trained, scaling.log_density_shift())
    elbo, elbo_std_error = _bound(trained, scaling, total_weight)
    return {
        "network_": description_of(posterior.network, posterior.likelihood),
        "parameters_": arrays_of(posterior),
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
        "optimizer_": trained.optimizer,
        "history_": history,
        "loss_curve_": np.nanmean(history["loss"], axis=1).tolist(),
        "n_iter_": int(trained.n_epochs.max()),
        "elbo_": elbo,
        "elbo_std_error_": elbo_std_error,
        "prior_": _prior(job, alive),
        "row_noise_std_": _row_noise(job, posterior, scaling),
    }


def _bound(trained, scaling: Scaling, total_weight: float) -> tuple[float, float]:
    """-F in y's units, nats, mean over networks, and the standard error of that."""
    bound = trained.bound
    nll = total_weight * (bound.nll - scaling.log_density_shift())
    elbo = -(nll + bound.kl + trained.kl_constant)
    error = np.hypot(total_weight * bound.nll_error, bound.kl_error)
    return float(elbo.mean()), float(np.linalg.norm(error) / len(error))


def _row_noise(job: TrainingJob, posterior: Posterior, scaling: Scaling):
    """Of a noise that depends on the row, its root mean square, y's units; or None.

    Over training rows, of the first network's where networks have their own.
    """
    if not posterior.likelihood.row_noise:
        return None
    rows = job.shares[0].rows
    X = job.table.X[rows[:: -(-len(rows) // _ROWS_OF_NOISE)]]
    inputs = scaling.x_to_network(X.toarray() if sparse.issparse(X) else X)
    inputs = _tensor(inputs, posterior.device, posterior.dtype).unsqueeze(0)
    with torch.no_grad():
        draws = range(posterior.distinct_draws(_DRAWS_OF_NOISE))
        components = posterior.components(posterior.outputs(inputs, draws))
    arrays = (value.flatten(0, 1).cpu().double().numpy() for value in components)
    variance = posterior.likelihood.components_class(*arrays).variance
    std = scaling.std_from_network(np.sqrt(variance.mean((0, 1))))
    return float(std[0]) if len(std) == 1 else std


def _length_scale(job: TrainingJob) -> np.ndarray:
    """l of every layer: of an earlier posterior that root of its mean precision."""
    if job.config.prior != "previous":
        return job.length_scale
    stds = [fields["std"] for fields in job.members.prior]
    return np.array([np.sqrt(np.mean(std**-2.0)) for std in stds])


def _prior(job: TrainingJob, alive: np.ndarray) -> list[dict[str, np.ndarray]] | None:
    """An earlier posterior that was the prior, its fields per layer; or None."""
    if job.config.prior != "previous":
        return None
    return [
        {name: value[alive] for name, value in fields.items()}
        for fields in job.members.prior
    ]


def _rates(job: TrainingJob, posterior: Posterior) -> np.ndarray:
    """Dropout of every layer: given, or the networks' mean of the learned ones."""
    learned = [family.learns_keep for family in posterior.network.families]
    keep = torch.stack(posterior.learned_keep()).double().mean(1).cpu().numpy()
    return np.where(learned, 1 - keep, job.dropout)


def _shared(per_layer: np.ndarray):
    """(layers,) -> a number where all layers agree."""
    first = per_layer[0]
    return float(first) if (per_layer == first).all() else per_layer


def _per_layer_and_target(dropout, length_scale, total_weight, tau):
    """lambda: a number, (layers,), (targets,) or (layers, targets)."""
    if np.ndim(tau):
        dropout, length_scale = (
            v[:, None] if np.ndim(v) else v for v in (dropout, length_scale)
        )
    return weight_decay(1 - dropout, length_scale, total_weight, tau)


def _precision(job: TrainingJob, params: dict, scaling: Scaling):
    """tau in y's units: given, or that of the networks' mean noise variance."""
    tau = job.tau
    if tau is None:
        of_members = job.config.likelihood.noise_level(params)
        assert of_members is not None, "a learned tau is that of a noise"
        tau = scaling.tau_from_network(of_members.mean(0).cpu().numpy())
    return float(tau[0]) if len(tau) == 1 else tau


def _history(trained, shift: float) -> dict[str, np.ndarray]:
    """Per epoch and network, (n_iter, networks); NaN after a network has stopped."""
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

# What predictions can be made of.
METHODS = ("draws", "mean_weights")
# Samples are computed one by one if they are at most one in this many of all draws.
_FEW_OF_ALL = 8


def fitted_posterior(estimator, X) -> Posterior:
    """The fitted posterior, on the device and in the precision for X."""
    device = _validation.device_for_prediction(estimator.device)
    dtype = torch.float32 if X.dtype == np.float32 else torch.float64
    dtype = torch.float32 if device.type == "mps" else dtype
    return estimator._cache.posterior(estimator, device, dtype)


def posterior_by(estimator, X, method: str) -> Posterior:
    """The fitted posterior, or with ``"mean_weights"`` its networks of mean weights."""
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
    """The draws of a posterior, by default the fitted one's, on checked rows."""
    posterior = posterior or fitted_posterior(estimator, X)
    scaling = scaling_of(estimator)
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
        return tensor_of(values).to(posterior.device, posterior.dtype)

    budget = int(sklearn.get_config()["working_memory"] * 2**20)
    n_draws = n_draws or estimator.n_draws
    return PosteriorPredictor(
        posterior, rows, X.shape[0], n_draws, budget, is_sparse, first_draw
    )


def warn_of_nan(predicted: np.ndarray) -> None:
    """Say so where rows have no prediction, (rows, ...)."""
    lacking = np.isnan(predicted).reshape(len(predicted), -1).any(1)
    if lacking.any():
        warn(
            f"{lacking.sum()} rows have no prediction but NaN, first row "
            f"{lacking.argmax()}: their inputs, or what the network makes of them, are "
            f"too large for {predicted.dtype}. Are they in the units of the fit?",
            RuntimeWarning,
        )


def sampled_draws(estimator, X, n_samples: int, random_state):
    """Components of posterior draws that are picked at random, and a generator.

    The draws are those that predictions average. Only the picked ones are computed,
    unless they are many; X is checked.

    returns : components (n_samples, rows, ...), and the generator of the noise
    """
    _validation.check_number("n_samples", n_samples, kind=_validation.Integral, low=1)
    draw_random, noise_random = np.random.default_rng(seed_from(random_state)).spawn(2)
    posterior = fitted_posterior(estimator, X)
    n_members = posterior.n_members
    n_all = posterior.distinct_draws(estimator.n_draws) * n_members
    picked = draw_random.integers(n_all, size=n_samples)
    distinct, of_sample = np.unique(picked, return_inverse=True)
    if len(distinct) * _FEW_OF_ALL > n_all:
        return open_posterior(estimator, X, posterior).whole().draws(picked), (
            noise_random
        )
    parts = []
    for number in distinct:
        draw, member = divmod(int(number), n_members)
        network = posterior.select(np.array([member]))
        predictor = open_posterior(estimator, X, network, 1, first_draw=draw)
        parts.append(predictor.whole())
    return type(parts[0]).concatenated(parts).draws(of_sample), noise_random
