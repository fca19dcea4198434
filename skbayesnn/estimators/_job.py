"""Convert constructor parameters and rows to a training job.

Parameters are checked here. Members of one program share a :class:`TrainingConfig`;
tau, dropout rates, prior scales, seeds and rows may differ.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from skbayesnn import _validation
from skbayesnn._data.training_rows import RowSubset, Scaling, TrainingRows
from skbayesnn._data.validation import Table, stacked
from skbayesnn._engine.config import Hook, MemberParams, TrainingConfig
from skbayesnn._families import Family
from skbayesnn._likelihoods import LIKELIHOODS, Likelihood
from skbayesnn._networks import Network
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn.estimators._training_data import TrainingData
from skbayesnn.networks import MLP

# ---- what a method (MC dropout, Bayes by Backprop, ...) adds to a fit


@dataclass(frozen=True)
class VariationalSpec:
    """The posterior's families, its prior, and how it is trained.

    Parameters
    ----------
    dropout : ndarray of shape (layers,)
        Given rates, or where learning them starts.
    families : tuple of Family
        Of every weight layer.
    prior : str
        A key of ``skbayesnn._priors.PRIORS``.
    prior_fields : mapping of str to float or ndarray of shape (layers,)
        The prior's numbers beside ``length_scale``.
    kl_weighting, kl_warm_up, gradient, n_training_draws, perturbed, variance_source, \
hooks
        As in :class:`skbayesnn._engine.config.TrainingConfig`.
    """

    dropout: np.ndarray
    families: tuple[Family, ...]
    prior: str = "gaussian"
    prior_fields: Mapping[str, float | np.ndarray] = field(default_factory=dict)
    kl_weighting: str = "uniform"
    kl_warm_up: float = 0.0
    gradient: str = "pathwise"
    n_training_draws: int = 1
    perturbed: bool = False
    variance_source: str = "residuals"
    hooks: tuple[Callable[[], Hook], ...] = ()


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


@dataclass(frozen=True)
class Specification:
    """One estimator's part of a program, in the units of the data.

    Parameters
    ----------
    seeds : ndarray of shape (members,), int
    network, likelihood : Network, Likelihood
    variational : VariationalSpec
    length_scale : ndarray of shape (layers,)
    tau : ndarray of shape (targets or 1,), or None
        None where it is learned.
    standardize : bool
    rows, weights : ndarray of shape (R,)
        Training rows of the table, and their weights in the likelihood, all positive.
    validation : ndarray of int
        Rows that stop the training; may be empty.
    n_batches, learning_rate, cosine, patience, tol, keep_interrupted, dtype
        As in :class:`skbayesnn._engine.config.TrainingConfig`.
    n_epochs : int
    settings : tuple of Setting
        Among which rows that are held out may choose, first the estimator's own; empty
        where the table is too large for it.
    """

    seeds: np.ndarray
    network: Network
    likelihood: Likelihood
    variational: VariationalSpec
    length_scale: np.ndarray
    tau: np.ndarray | None
    standardize: bool
    rows: np.ndarray
    weights: np.ndarray
    validation: np.ndarray
    n_batches: int
    n_epochs: int
    learning_rate: float
    cosine: bool
    patience: int | None
    tol: float
    keep_interrupted: bool
    dtype: torch.dtype
    settings: tuple[Setting, ...]


def specify(
    estimator, prepared: TrainingData, hidden: Sequence[int] | int | None = None
) -> Specification:
    """What an estimator asks for on these rows.

    hidden : units of the hidden layers, if they do not follow from the rows

    Raises
    ------
    TypeError, ValueError
        A parameter that is none, or outside of its range.
    """
    random_state = _validation.random_source(estimator.random_state)
    n_members = _n_members(estimator)
    _validation.number_of_draws(estimator.n_draws)
    _validation.verbosity(estimator.verbose)
    # The order of these two is that of the random numbers.
    seeds = random_state.randint(0, 2**31 - 1, size=n_members)
    rows, weights, validation = _split(estimator, prepared, random_state)
    likelihood, tau = _likelihood(estimator, prepared)
    n_rows = float(weights.sum())
    if hidden is None:
        hidden = estimator._hidden_layer_sizes(n_rows)
    network, variational = _network(estimator, prepared, likelihood, hidden)
    _refuse_too_large(estimator, network, n_members)
    n_batches = -(-len(rows) // _validation.batch_rows(estimator.batch_size, len(rows)))
    n_epochs = _validation.epochs(
        estimator.max_iter, len(rows), n_batches, estimator._steps_per_sqrt_n
    )
    length_scale = estimator._length_scales(network.prior_fan_ins, n_rows)
    own = Setting(length_scale, n_epochs)
    schedule = _schedule(estimator, stops_early=len(validation) > 0)
    scales = _scales_to_try(estimator, network.prior_fan_ins, n_rows)
    leaves_training = schedule["patience"] is None and _leaves_training(
        estimator, n_rows
    )
    return Specification(
        seeds=seeds,
        network=network,
        likelihood=likelihood,
        variational=variational,
        length_scale=length_scale,
        tau=tau,
        standardize=_validation.check_bool("standardize", estimator.standardize),
        rows=rows,
        weights=weights,
        validation=validation,
        n_batches=n_batches,
        n_epochs=n_epochs,
        dtype=_validation.precision(estimator.dtype),
        settings=_to_choose_from(prepared, weights, own, scales, leaves_training),
        **schedule,
    )


def likelihood_class(name, *, of_classes: bool) -> type[Likelihood]:
    """The likelihood of that name, if it is one of classes, or of numbers."""
    options = [n for n, one in LIKELIHOODS.items() if one.of_classes == of_classes]
    return LIKELIHOODS[_validation.check_option("likelihood", name, options)]


def _likelihood(estimator, prepared) -> tuple[Likelihood, np.ndarray | None]:
    """The likelihood, and the given tau or None."""
    classes = prepared.classes
    kind = likelihood_class(estimator.likelihood, of_classes=classes is not None)
    for y in prepared.targets_apart:
        kind.check_y(y)
    n, ranks = _n_targets(prepared.table, classes), prepared.table.ranks
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


def _network(
    estimator, prepared, likelihood, hidden
) -> tuple[Network, VariationalSpec]:
    description = MLP(hidden) if estimator.network is None else estimator.network
    network = description.build(
        prepared.table.X.shape[1],
        likelihood.n_outputs,
        _validation.check_option("activation", estimator.activation, ACTIVATIONS),
    )
    variational = estimator._variational(network.prior_fan_ins)
    if variational.gradient == "characteristic" and not network.smooth:
        raise ValueError(
            "gradient='characteristic' follows second derivatives, which say nothing "
            f"of kinks; got activation={estimator.activation!r} and network="
            f"{estimator.network!r}. Set activation='tanh' and, of a ConvNet, pool=1; "
            "or another gradient."
        )
    return network.with_families(variational.families), variational


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


def leaves_length_scale(estimator) -> bool:
    """Whether the prior's scale is not given."""
    scale = estimator.length_scale
    return isinstance(scale, str) and scale == "auto"


def _scales_to_try(estimator, fan_ins, n_rows: float) -> list[np.ndarray]:
    """Beside the estimator's own, where that is not given."""
    if not leaves_length_scale(estimator):
        return []
    return estimator._length_scales_to_try(fan_ins, n_rows)


def _leaves_training(estimator, n_rows: float) -> bool:
    """Whether so many rows may choose how long a perceptron is trained."""
    most = estimator.max_iter
    is_auto = isinstance(most, str) and most == "auto" and estimator.network is None
    return is_auto and n_rows < estimator._selects_epochs_below


def _to_choose_from(
    prepared, weights, own: Setting, scales, leaves_training: bool
) -> tuple[Setting, ...]:
    """What rows that are held out choose from; nothing of tables that are too large.

    own : without a choice; what is returned at least
    scales : others for its length scale
    """
    if len(weights) * prepared.table.X.shape[1] >= MOST_ENTRIES:
        return ()
    scales = [one for one in scales if not np.array_equal(one, own.length_scale)]
    settings = [own, *(replace(own, length_scale=scale) for scale in scales)]
    if leaves_training:
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


def _split(estimator, prepared, random_state):
    """Training rows, their weights, and validation rows; the latter may be empty."""
    rows, validation = _validation_rows(estimator, prepared, random_state)
    weights = estimator._row_weights(prepared.table, rows, prepared.classes)
    if not weights.all():
        rows, weights = rows[weights > 0], weights[weights > 0]
    return rows, weights, validation


def _validation_rows(estimator, prepared, random_state):
    fraction = _validation.check_number(
        "validation_fraction",
        estimator.validation_fraction,
        low=0,
        high=1,
        open_low=True,
    )
    table, rows = prepared.table, prepared.rows
    given = prepared.validation
    # Who gives rows to stop by wants to stop.
    from_rows = estimator._stops_early_from if given is None else 0
    if not _validation.stops_early(estimator.early_stopping, len(rows), from_rows):
        return rows, np.empty(0, dtype=int)
    if given is not None:
        return rows, given[table.sample_weight[given] > 0]
    stratify = None if prepared.classes is None else table.codes[rows]
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
    plan : Plan
    members : Members
        The estimator's networks.
    table : Table
    shares : tuple of Share
        The rows of it that they see, in the order of the members: all the same ones, or
        some their own (each may leave a fold out), in one scaling.
    dropout, length_scale : ndarray of shape (layers,)
    tau : ndarray of shape (targets,), or None
        Given precision in y's units; None where it is learned.
    settings : tuple of Setting
        Among which rows that are held out may choose; of a task that has chosen, or
        may not, none.
    noise : dict of ndarray of shape (targets,), or None
        The likelihood's ``predictive_params``, as rows that are held out have it.
    """

    plan: TrainingConfig
    members: MemberParams
    table: Table
    shares: tuple[RowSubset, ...]
    dropout: np.ndarray
    length_scale: np.ndarray
    tau: np.ndarray | None
    settings: tuple[Setting, ...] = ()
    noise: dict[str, np.ndarray] | None = None

    @property
    def n_members(self) -> int:
        """Networks of the estimator."""
        return len(self.members.seeds)

    @property
    def scaling(self) -> Scaling:
        """Between y's units and the networks' scale."""
        return self.shares[0].scaling

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
        plan, likelihood = self.plan, self.plan.likelihood
        told_better = not likelihood.gaussian_targets or self._leaves_length_scale
        asked = plan.variance_source == "held_out" and plan.patience is None
        asked |= plan.asks_residuals and told_better
        return bool(likelihood.predictive_params) and asked

    @property
    def estimates_tau(self) -> bool:
        """Whether held-out rows estimate the tau of the training, too.

        Where the noise that members put on y depends on it.
        """
        plan = self.plan
        of_y = plan.perturbed and plan.likelihood.gaussian_targets > 0
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
    def _leaves_length_scale(self) -> bool:
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
        plan = replace(
            self.plan,
            cosine=False,
            horizon=horizon,
            keep_interrupted=False,
        )
        of_members = np.full_like(self.members.n_epochs, n_epochs)
        members = replace(self.members, n_epochs=of_members)
        return replace(self, plan=plan, members=members)

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
        task = self.of_length_scale(setting.length_scale)
        n_epochs = np.full_like(task.members.n_epochs, setting.n_epochs)
        members = replace(task.members, n_epochs=n_epochs)
        task = replace(task, members=members, settings=(), noise=noise)
        if noise is None or not self.estimates_tau:
            return task
        # Noise is at most all of y.
        variance = np.minimum(np.exp(noise["log_variance"]), self.variance_of_y)
        tau = np.repeat(1 / variance[None], self.n_members, axis=0)
        return replace(task, members=replace(members, tau=tau)).holding_noise()

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
            plan=replace(self.plan, prior="previous", kl_warm_up=0.0),
            members=replace(self.members, prior=prior),
        )


def task_of(
    estimator, prepared: TrainingData, hidden: Sequence[int] | int | None = None
) -> TrainingJob:
    """An estimator's part of a program that trains on these rows.

    hidden : as in :func:`specify`
    """
    return make_task(prepared, specify(estimator, prepared, hidden))


def make_task(prepared: TrainingData, asked: Specification) -> TrainingJob:
    """What is asked for, in the network's scale."""
    table, weights = prepared.table, asked.weights
    scaling = prepared.scaling(
        asked.rows,
        weights,
        inputs=asked.standardize,
        targets=asked.standardize and asked.likelihood.standardizes_y,
        robust=asked.likelihood.robust,
        alike=asked.network.input_groups,
    )
    n_members = len(asked.seeds)
    if asked.likelihood.of_classes:
        y = table.codes[asked.rows]
    else:
        y = scaling.y_to_network(table.y[asked.rows])
    statistics = asked.likelihood.statistics(y, weights)
    members = MemberParams(
        seeds=asked.seeds,
        keep=np.repeat(1 - asked.variational.dropout[:, None], n_members, axis=1),
        prior=_prior_fields(asked.variational, asked.length_scale, n_members),
        tau=_network_tau(asked.tau, scaling, n_members),
        statistics=np.repeat(statistics[None], n_members, axis=0),
        n_epochs=np.full(n_members, asked.n_epochs),
        learns_noise=np.ones(n_members, dtype=bool),
    )
    return TrainingJob(
        plan=_plan(asked),
        members=members,
        table=table,
        shares=(RowSubset(n_members, asked.rows, weights, asked.validation, scaling),),
        dropout=asked.variational.dropout,
        length_scale=asked.length_scale,
        tau=asked.tau,
        settings=asked.settings,
    )


def joined(
    tasks: Sequence[TrainingJob], device: torch.device, dtype: torch.dtype
) -> tuple[MemberParams, TrainingRows]:
    """All members of some tasks, one after the other, and their rows."""
    table, starts = stacked([task.table for task in tasks])
    shares = [
        share.shifted(start)
        for task, start in zip(tasks, starts, strict=True)
        for share in task.shares
    ]
    members = MemberParams.concatenate([task.members for task in tasks])
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


def _prior_fields(variational: VariationalSpec, length_scale, n_members: int):
    """The fields of the prior of every layer, (members,) each."""
    fields = {"length_scale": length_scale, **variational.prior_fields}
    of_layers = {name: np.resize(v, len(length_scale)) for name, v in fields.items()}
    return [
        {name: np.full(n_members, values[i]) for name, values in of_layers.items()}
        for i in range(len(length_scale))
    ]


def _plan(asked: Specification) -> TrainingConfig:
    """What the members of its program have in common."""
    return TrainingConfig(
        network=asked.network,
        likelihood=asked.likelihood,
        n_batches=asked.n_batches,
        learning_rate=asked.learning_rate,
        cosine=asked.cosine,
        patience=asked.patience,
        tol=asked.tol,
        keep_interrupted=asked.keep_interrupted,
        prior=asked.variational.prior,
        kl_weighting=asked.variational.kl_weighting,
        kl_warm_up=asked.variational.kl_warm_up,
        gradient=asked.variational.gradient,
        n_training_draws=asked.variational.n_training_draws,
        perturbed=asked.variational.perturbed,
        variance_source=asked.variational.variance_source,
        dtype=asked.dtype,
        hooks=asked.variational.hooks,
    )
