"""Convert constructor parameters and rows to a training job.

Parameters are checked here. Members of one program share a :class:`TrainingConfig`;
tau, dropout rates, prior scales, seeds and rows may differ.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from skbayesnn import _validation
from skbayesnn._data.training_rows import RowSubset, Scaling, TrainingRows
from skbayesnn._data.validation import Table, stacked
from skbayesnn._engine.config import MemberParams, TrainingConfig
from skbayesnn._engine.training import Trained
from skbayesnn._families import Family
from skbayesnn._likelihoods import LIKELIHOODS, Likelihood
from skbayesnn._networks import Network
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn.estimators._defaults import (
    defaults_of,
    hidden_layer_sizes,
    length_scale_candidates,
)
from skbayesnn.estimators._training_data import TrainingData
from skbayesnn.networks import MLP

# ---- what a method (MC dropout, Bayes by Backprop, ...) adds to a fit


@dataclass(frozen=True)
class PosteriorSpec:
    """The posterior and the prior of a method, and how it is trained.

    Parameters
    ----------
    dropout : ndarray of shape (layers,)
        Given rates, or initial values of learned ones.
    families : tuple of Family
        One per weight layer.
    prior : str
        A key of ``skbayesnn._priors.PRIORS``.
    prior_fields : mapping of str to float or ndarray of shape (layers,)
        Parameters of the prior, in addition to ``length_scale``.
    training : mapping
        Fields of :class:`~skbayesnn._engine.config.TrainingConfig` that the method
        sets, by name.
    """

    dropout: np.ndarray
    families: tuple[Family, ...]
    prior: str = "gaussian"
    prior_fields: Mapping[str, float | np.ndarray] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)


# ---- checked parameters

# From so many entries of X on no rows are held out to choose anything.
MOST_ENTRIES = 2**22
# Weights of all networks of an estimator together; 8 GiB in float32.
MOST_WEIGHTS = 2**31
MOST_NETWORKS = 1_000_000
# Of `max_iter="auto"`, what rows that are held out may choose in its place.
_SHORTER = 0.25, 0.1


@dataclass(frozen=True)
class Setting:
    """What rows that are held out may choose.

    Parameters
    ----------
    length_scale : ndarray of shape (layers,)
    n_epochs : int
    """

    length_scale: np.ndarray
    n_epochs: int


def training_job(
    estimator, data: TrainingData, hidden: Sequence[int] | int | None = None
) -> "TrainingJob":
    """An estimator's part of a program that trains on these rows.

    hidden : units of the hidden layers, if they do not follow from the rows

    Raises
    ------
    TypeError, ValueError
        A parameter of the wrong type, or outside of its range.
    """
    random_state = _validation.random_source(estimator.random_state)
    n_members = _n_members(estimator)
    _validation.number_of_draws(estimator.n_draws)
    _validation.verbosity(estimator.verbose)
    # Both draw from the random state: their order must not change.
    seeds = random_state.randint(0, 2**31 - 1, size=n_members)
    rows, weights, validation = _split(estimator, data, random_state)
    likelihood, tau = _likelihood(estimator, data)
    n_rows = float(weights.sum())
    if hidden is None:
        hidden = hidden_layer_sizes(estimator, n_rows)
    network, posterior = _network(estimator, data, likelihood, hidden)
    _refuse_too_large(estimator, network, n_members)
    config = TrainingConfig(
        network=network,
        likelihood=likelihood,
        n_batches=-(
            -len(rows) // _validation.batch_rows(estimator.batch_size, len(rows))
        ),
        dtype=_validation.precision(estimator.dtype),
        prior=posterior.prior,
        **_schedule(estimator, stops_early=len(validation) > 0),
        **posterior.training,
    )
    own = Setting(
        estimator._length_scales(network.prior_fan_ins, n_rows),
        _validation.epochs(
            estimator.max_iter,
            len(rows),
            config.n_batches,
            defaults_of(estimator).steps_per_sqrt_n,
        ),
    )
    standardize = _validation.check_bool("standardize", estimator.standardize)
    scaling = data.scaling(
        rows,
        weights,
        inputs=standardize,
        targets=standardize and likelihood.standardizes_y,
        robust=likelihood.robust,
        alike=network.input_groups,
    )
    if likelihood.of_classes:
        y = data.table.codes[rows]
    else:
        y = scaling.y_to_network(data.table.y[rows])
    statistics = likelihood.statistics(y, weights)
    members = MemberParams(
        seeds=seeds,
        keep=np.repeat(1 - posterior.dropout[:, None], n_members, axis=1),
        prior=_prior_fields(posterior, own.length_scale, n_members),
        tau=_network_tau(tau, scaling, n_members),
        statistics=np.repeat(statistics[None], n_members, axis=0),
        n_epochs=np.full(n_members, own.n_epochs),
        learns_noise=np.ones(n_members, dtype=bool),
    )
    return TrainingJob(
        data=data,
        config=config,
        members=members,
        shares=(RowSubset(n_members, rows, weights, validation, scaling),),
        dropout=posterior.dropout,
        length_scale=own.length_scale,
        tau=tau,
        settings=_settings_to_try(estimator, data, config, own, n_rows, len(rows)),
    )


def likelihood_class(name, *, of_classes: bool) -> type[Likelihood]:
    """The likelihood of that name, if it is one of classes, or of numbers."""
    options = [n for n, one in LIKELIHOODS.items() if one.of_classes == of_classes]
    return LIKELIHOODS[_validation.check_option("likelihood", name, options)]


def _likelihood(estimator, data) -> tuple[Likelihood, np.ndarray | None]:
    """The likelihood, and the given tau or None."""
    classes = data.classes
    kind = likelihood_class(estimator.likelihood, of_classes=classes is not None)
    for y in data.targets_apart:
        kind.check_y(y)
    n, ranks = _n_targets(data.table, classes), data.table.ranks
    tau = _validation.precisions(estimator.tau, 1 if kind.tempered else n)
    if kind.tempered and tau is None:
        if kind.of_classes:
            raise ValueError(
                "`tau` of a classifier is the likelihood's inverse temperature and "
                "must be a number; got 'auto'. The default is 1."
            )
        tau = np.ones(1)
    options = _validation.options_of(
        "likelihood_options", estimator.likelihood_options, kind
    )
    if ranks is not None:
        options["ranks"] = ranks
    return kind.build(n, tau is None, options), tau


def _n_targets(table, classes) -> int:
    """Targets, or classes that have training rows."""
    if classes is None:
        return table.y.shape[1]
    return len(classes) if table.ranks is None else max(table.ranks) + 1


def _network(estimator, data, likelihood, hidden) -> tuple[Network, PosteriorSpec]:
    description = MLP(hidden) if estimator.network is None else estimator.network
    network = description.build(
        data.table.X.shape[1],
        likelihood.n_outputs,
        _validation.check_option("activation", estimator.activation, ACTIVATIONS),
    )
    posterior = estimator._posterior_spec(network.prior_fan_ins)
    if posterior.training.get("gradient") == "characteristic" and not network.smooth:
        raise ValueError(
            "gradient='characteristic' follows second derivatives, which say nothing "
            f"of kinks; got activation={estimator.activation!r} and network="
            f"{estimator.network!r}. Set activation='tanh' and, of a ConvNet, pool=1; "
            "or another gradient."
        )
    return network.with_families(posterior.families), posterior


def _n_members(estimator) -> int:
    """`n_estimators`, checked."""
    n_members = _validation.check_number(
        "n_estimators", estimator.n_estimators, kind=_validation.Integral, low=1
    )
    if n_members > MOST_NETWORKS:
        raise ValueError(
            f"`n_estimators` must be at most {MOST_NETWORKS}; got {n_members}."
        )
    return n_members


def _refuse_too_large(estimator, network: Network, n_members: int) -> None:
    """Refuse more weights than any memory has, by the names of what makes them."""
    n_weights = n_members * network.n_weights
    if n_weights > MOST_WEIGHTS:
        has_features = "n_features" in estimator.get_params(deep=False)
        name = "n_features" if has_features else "hidden_layer_sizes"
        name = name if estimator.network is None else "network"
        raise ValueError(
            f"`{name}` and `n_estimators` must make at most {MOST_WEIGHTS:,} weights; "
            f"got {n_weights:,}, with {name}={getattr(estimator, name)!r} and "
            f"n_estimators={n_members}. Take fewer units, channels or networks."
        )


def selects_length_scale(estimator) -> bool:
    """Whether the prior's scale is not given."""
    scale = estimator.length_scale
    return isinstance(scale, str) and scale == "auto"


def _settings_to_try(
    estimator, data, config: TrainingConfig, own: Setting, n_weight: float, n_rows: int
) -> tuple[Setting, ...]:
    """What held-out rows select from, the estimator's own first.

    Empty for tables that are too large to hold out rows.

    n_weight, n_rows : sum of the weights of the training rows, and their number
    """
    if n_rows * data.table.X.shape[1] >= MOST_ENTRIES:
        return ()
    settings = [own]
    if selects_length_scale(estimator):
        fan_ins = config.network.prior_fan_ins
        settings += [
            replace(own, length_scale=scale)
            for scale in length_scale_candidates(estimator, fan_ins, n_weight)
            if not np.array_equal(scale, own.length_scale)
        ]
    most = estimator.max_iter
    selects_epochs = (
        config.patience is None
        and isinstance(most, str)
        and most == "auto"
        and estimator.network is None
        and n_weight < defaults_of(estimator).selects_epochs_below_n
    )
    if selects_epochs:
        n_epochs = [math.ceil(share * own.n_epochs) for share in _SHORTER]
        settings += [replace(own, n_epochs=n) for n in n_epochs]
    return tuple(settings)


def _schedule(estimator, *, stops_early: bool) -> dict:
    """How long is trained, and at which rate."""
    schedule = _validation.check_option(
        "learning_rate", estimator.learning_rate, ["cosine", "constant"]
    )
    patience = _validation.check_number(
        "n_iter_no_change",
        estimator.n_iter_no_change,
        kind=_validation.Integral,
        low=1,
    )
    return {
        "learning_rate": _validation.check_number(
            "learning_rate_init", estimator.learning_rate_init, low=0, open_low=True
        ),
        "cosine": schedule == "cosine",
        "patience": patience if stops_early else None,
        "tol": _validation.check_number("tol", estimator.tol, low=0),
        "keep_interrupted": _validation.check_bool("warm_start", estimator.warm_start),
    }


def _split(estimator, data, random_state):
    """Training rows, their weights, and validation rows; the latter may be empty."""
    rows, validation = _validation_rows(estimator, data, random_state)
    weights = estimator._row_weights(data.table, rows, data.classes)
    if not weights.all():
        rows, weights = rows[weights > 0], weights[weights > 0]
    return rows, weights, validation


def _validation_rows(estimator, data, random_state):
    fraction = _validation.check_number(
        "validation_fraction",
        estimator.validation_fraction,
        low=0,
        high=1,
        open_low=True,
    )
    table, rows = data.table, data.rows
    given = data.validation
    # Who gives rows to stop by wants to stop.
    from_rows = defaults_of(estimator).early_stopping_from_n if given is None else 0
    if not _validation.stops_early(estimator.early_stopping, len(rows), from_rows):
        return rows, np.empty(0, dtype=int)
    if given is not None:
        return rows, given[table.sample_weight[given] > 0]
    stratify = None if data.classes is None else table.codes[rows]
    try:
        return train_test_split(
            rows, test_size=fraction, random_state=random_state, stratify=stratify
        )
    except ValueError as error:
        if isinstance(estimator.early_stopping, str):
            return rows, np.empty(0, dtype=int)  # the only row of a class stays
        raise ValueError(
            f"early_stopping holds out validation_fraction={fraction:g} of the rows; "
            f"got {len(rows)} rows, too few to split. Raise validation_fraction, set "
            f"early_stopping=False, or give `X_val` and `y_val`. ({error})"
        ) from error


# ---- the job, in the units of the network

# Of tau in the network's scale: beyond them nothing is left of one part of the loss.
_LEAST_TAU, _MOST_TAU = 1e-30, 1e30


@dataclass(frozen=True)
class TrainingJob:
    """One estimator's part of a program.

    Parameters
    ----------
    config : TrainingConfig
    members : MemberParams
        The estimator's networks.
    data : TrainingData
    shares : tuple of RowSubset
        The rows of it that they see, in the order of the members: all the same ones, or
        some their own (each may leave a fold out), in one scaling.
    dropout, length_scale : ndarray of shape (layers,)
    tau : ndarray of shape (targets,), or None
        Given precision in y's units; None where it is learned.
    settings : tuple of Setting
        Among which rows that are held out may choose; of a task that has chosen, or
        may not, none.
    noise : dict of ndarray of shape (targets,), or None
        The likelihood's ``predictive_params``, estimated on held-out rows.
    trained : Trained
        The trained networks; None before the training.
    """

    data: TrainingData
    config: TrainingConfig
    members: MemberParams
    shares: tuple[RowSubset, ...]
    dropout: np.ndarray
    length_scale: np.ndarray
    tau: np.ndarray | None
    settings: tuple[Setting, ...] = ()
    noise: dict[str, np.ndarray] | None = None
    trained: Trained = None  # type: ignore[assignment]

    @property
    def n_members(self) -> int:
        """Networks of the estimator."""
        return len(self.members.seeds)

    @property
    def scaling(self) -> Scaling:
        """Between y's units and the networks' scale."""
        return self.shares[0].scaling

    @property
    def table(self) -> Table:
        """The rows of ``fit``, checked."""
        return self.data.table

    @property
    def total_weight(self) -> float:
        """N, the sum of the weights of the rows that a network sees, on average."""
        sums = [float(share.weights.sum()) for share in self.shares]
        counts = np.array([share.n_members for share in self.shares])
        return float(np.dot(sums, counts / self.n_members))

    @property
    def estimates_variance(self) -> bool:
        """Whether the noise is for rows to say that are held out.

        Where residuals would be asked of the training rows, and the likelihood's noise
        is none that they tell, or rows are held out anyway, for the length scale. As of
        residuals, not with early stopping: it stays as it was learned.
        """
        config, likelihood = self.config, self.config.likelihood
        told_better = not likelihood.gaussian_targets or self._selects_length_scale
        asked = config.variance_source == "held_out" and config.patience is None
        asked |= config.asks_residuals and told_better
        return bool(likelihood.predictive_params) and asked

    @property
    def estimates_tau(self) -> bool:
        """Whether held-out rows estimate the tau of the training, too.

        Where the noise that members put on y depends on it.
        """
        config = self.config
        of_y = config.perturbed and config.likelihood.gaussian_targets > 0
        return bool(of_y) and self.estimates_variance

    @property
    def variance_of_y(self) -> np.ndarray:
        """Of the first network's rows, in the network's scale; 1 of constants.

        (targets,)
        """
        share = self.shares[0]
        y = self.scaling.y_to_network(self.table.y[share.rows])
        mean = np.average(y, axis=0, weights=share.weights)
        variance = np.average(np.square(y - mean), axis=0, weights=share.weights)
        return np.where(variance > 0, variance, 1.0)

    @property
    def _selects_length_scale(self) -> bool:
        scales = [one.length_scale for one in self.settings]
        return any(not np.array_equal(scale, scales[0]) for scale in scales)

    @property
    def needs_selection(self) -> bool:
        """Whether rows that are held out have something to say.

        One setting is no choice, but the noise may be open.
        """
        return len(self.settings) > (0 if self.estimates_variance else 1)

    def for_streaming(self, horizon: int, n_epochs: int) -> "TrainingJob":
        """Epochs at a constant learning rate, within a warm-up of ``horizon``."""
        config = replace(
            self.config,
            cosine=False,
            horizon=horizon,
            keep_interrupted=False,
        )
        of_members = np.full_like(self.members.n_epochs, n_epochs)
        members = replace(self.members, n_epochs=of_members)
        return replace(self, config=config, members=members)

    def of_length_scale(self, length_scale: np.ndarray) -> "TrainingJob":
        """The same under a prior of other scales, (layers,)."""
        prior = [
            fields | {"length_scale": np.full(self.n_members, scale)}
            for fields, scale in zip(self.members.prior, length_scale, strict=True)
        ]
        return replace(
            self,
            members=replace(self.members, prior=prior),
            length_scale=length_scale,
        )

    def with_setting(
        self, setting: Setting, noise: dict[str, np.ndarray] | None = None
    ) -> "TrainingJob":
        """The same with what was chosen."""
        job = self.of_length_scale(setting.length_scale)
        n_epochs = np.full_like(job.members.n_epochs, setting.n_epochs)
        members = replace(job.members, n_epochs=n_epochs)
        job = replace(job, members=members, settings=(), noise=noise)
        if noise is None or not self.estimates_tau:
            return job
        # Noise is at most all of y.
        variance = np.minimum(np.exp(noise["log_variance"]), self.variance_of_y)
        tau = np.repeat(1 / variance[None], self.n_members, axis=0)
        return replace(job, members=replace(members, tau=tau)).holding_noise()

    def with_trained(self, trained: Trained) -> "TrainingJob":
        """The same with its trained networks and the variance of held-out rows."""
        if self.noise is not None:
            posterior = trained.posterior.with_predictive_params(self.noise)
            trained = replace(trained, posterior=posterior)
        return replace(self, trained=trained)

    def holding_noise(self) -> "TrainingJob":
        """The same with a noise of the training that stays where it starts."""
        learns = np.zeros(self.n_members, dtype=bool)
        return replace(self, members=replace(self.members, learns_noise=learns))

    def resumed_from(self, scaling: Scaling, seeds: np.ndarray) -> "TrainingJob":
        """The same in the scaling and with the networks of an earlier fit."""
        members = replace(
            self.members,
            seeds=seeds,
            tau=_network_tau(self.tau, scaling, len(seeds)),
        )
        shares = tuple(replace(share, scaling=scaling) for share in self.shares)
        return replace(self, members=members, shares=shares)

    def under_prior(self, prior: list[dict[str, np.ndarray]]) -> "TrainingJob":
        """The same with an earlier posterior as the prior, its fields per layer.

        Without warm-up of the KL: what is known already would be forgotten.
        """
        return replace(
            self,
            config=replace(self.config, prior="previous", kl_warm_up=0.0),
            members=replace(self.members, prior=prior),
        )


def joined(
    jobs: Sequence[TrainingJob], device: torch.device, dtype: torch.dtype
) -> tuple[MemberParams, TrainingRows]:
    """All members of some tasks, one after the other, and their rows."""
    table, starts = stacked([job.table for job in jobs])
    shares = [
        share.shifted(start)
        for job, start in zip(jobs, starts, strict=True)
        for share in job.shares
    ]
    members = MemberParams.concatenate([job.members for job in jobs])
    return members, TrainingRows(table, shares, device, dtype)


def _network_tau(tau, scaling: Scaling, n_members: int) -> np.ndarray:
    """tau in the network's scale, (members, targets); learned ones start at y's own."""
    if tau is None:
        tau = scaling.signal_precision()
    in_network = scaling.tau_to_network(tau)
    beyond = (in_network < _LEAST_TAU) | (in_network > _MOST_TAU)
    if beyond.any():
        unit = scaling.signal_precision()[beyond][0]
        raise ValueError(
            f"`tau`, 1 / variance of the noise, must be between {_LEAST_TAU:g} and "
            f"{_MOST_TAU:g} times 1 / variance of y, {unit:.3g} here; got "
            f"{np.broadcast_to(tau, beyond.shape)[beyond][0]:g}. Write it k / y.var()."
        )
    return np.repeat(in_network[None], n_members, axis=0)


def _prior_fields(posterior: PosteriorSpec, length_scale, n_members: int):
    """The fields of the prior of every layer, (members,) each."""
    fields = {"length_scale": length_scale, **posterior.prior_fields}
    of_layers = {name: np.resize(v, len(length_scale)) for name, v in fields.items()}
    return [
        {name: np.full(n_members, values[i]) for name, values in of_layers.items()}
        for i in range(len(length_scale))
    ]
