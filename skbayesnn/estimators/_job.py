"""Convert an estimator's parameters and training data to a training job.

The parameters are validated here. All networks that train in one program share a
:class:`TrainingConfig`. Their tau, dropout rates, prior scales, seeds and rows may
differ.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import GroupShuffleSplit, train_test_split

from skbayesnn import _validation
from skbayesnn._data.groups import keep_classes
from skbayesnn._data.scaling import Scaling
from skbayesnn._data.training_rows import RowSubset, TrainingRows
from skbayesnn._data.validation import Table, stacked
from skbayesnn._engine.config import MemberParams, TrainingConfig, TrainingOptions
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.processes import present_processes
from skbayesnn._engine.training import Trained, Training, initial_posterior
from skbayesnn._families import Family
from skbayesnn._likelihoods import (
    AUTO,
    LIKELIHOODS,
    LIKELIHOODS_OF_AUTO,
    OF_INTERVALS,
    Likelihood,
    likelihood_named,
)
from skbayesnn._networks import Network
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn.estimators._defaults import (
    defaults_of,
    hidden_layer_sizes,
    length_scale_candidates,
)
from skbayesnn.estimators._training_data import TrainingData
from skbayesnn.estimators._unequal_noise import UnequalNoise
from skbayesnn.networks import MLP

# ---- what a method (MC dropout, Bayes by Backprop, ...) adds to a fit


@dataclass(frozen=True)
class PosteriorSpec:
    """Posterior, prior and training options of a method.

    Parameters
    ----------
    dropout : ndarray of shape (layers,)
        Dropout rates; initial values if they are learned.
    families : tuple of Family
        Posterior family of each weight layer.
    prior : str
        A key of ``skbayesnn._priors.PRIORS``.
    prior_fields : mapping of str to float or ndarray of shape (layers,)
        Parameters of the prior, in addition to ``length_scale``.
    training : TrainingOptions
    """

    dropout: np.ndarray
    families: tuple[Family, ...]
    prior: str = "gaussian"
    prior_fields: Mapping[str, float | np.ndarray] = field(default_factory=dict)
    training: TrainingOptions = field(default_factory=TrainingOptions)


# ---- checked parameters

# If X has at least this many entries, no rows are held out to select settings.
MAX_ENTRIES = 2**22
# Most weights of an estimator, over all its networks; 8 GiB in float32.
MAX_WEIGHTS = 2**31
MAX_NETWORKS = 1_000_000
# Shorter trainings that held-out rows may select, as shares of `max_iter="auto"`.
_SHORTER = 0.25, 0.1


@dataclass(frozen=True)
class Setting:
    """Values that are selected on held-out rows.

    Parameters
    ----------
    length_scale : ndarray of shape (layers,)
    n_epochs : int
    """

    length_scale: np.ndarray
    n_epochs: int


def training_job(
    estimator,
    data: TrainingData,
    hidden: Sequence[int] | int | None = None,
    likelihood: str | None = None,
) -> "TrainingJob":
    """Validate an estimator's parameters and build its training job.

    hidden : units of the hidden layers; by default they depend on the number of rows
    likelihood : name of the likelihood, if held-out rows do not select it

    Raises
    ------
    TypeError, ValueError
        If a parameter has the wrong type, or is out of range.
    """
    random_state = random_source(estimator)
    n_members = _n_members(estimator)
    _validation.check_n_draws(estimator.n_draws)
    _validation.verbosity(estimator.verbose)
    # `seeds` and `_split` draw from the same random state: keep this order.
    seeds = random_state.randint(0, 2**31 - 1, size=n_members)
    split = _split(estimator, data, random_state)
    if likelihood is not None:
        return _job_with(likelihood, estimator, data, hidden, seeds, split)
    job = _job_with(estimator.likelihood, estimator, data, hidden, seeds, split)
    if data.classes is not None:
        return job.with_temperature_second() if job.estimates_variance else job
    selects = selects_likelihood(estimator)
    needs_equal = job.perturbs_y and job.config.likelihood.row_noise
    if not (job.settings and (selects or needs_equal)):
        return job
    equal, by_row = (
        _job_with(name, estimator, data, hidden, seeds, split)
        for name in LIKELIHOODS_OF_AUTO
    )
    if equal.config.uses_residuals:
        # Rows are held out anyway, so they also estimate the noise.
        by_row = by_row.with_config(variance_source="held_out")
        if not equal.estimates_variance:
            equal = equal.with_config(variance_source="held_out")
    return replace(equal, second_stage=by_row, is_second_optional=selects)


def _job_with(
    likelihood_name: str, estimator, data: TrainingData, hidden, seeds, split
) -> "TrainingJob":
    """Build the training job with a likelihood.

    seeds : (members,), int
    split : result of ``_split``
    """
    rows, weights, validation = split
    n_members = len(seeds)
    likelihood, tau = _likelihood(likelihood_name, estimator, data)
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
        **vars(posterior.training),
    )
    n_independent = data.n_independent(rows, weights)
    if n_independent < defaults_of(estimator).estimates_noise_below_n:
        config = replace(config, variance_source="held_out")
    default = Setting(
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
    if likelihood.is_classification:
        y = data.table.codes[rows]
    else:
        y = scaling.y_to_network(data.table.y[rows])
    statistics = likelihood.statistics(y, weights)
    members = MemberParams(
        seeds=seeds,
        keep=np.repeat(1 - posterior.dropout[:, None], n_members, axis=1),
        prior=_prior_fields(posterior, default.length_scale, n_members),
        tau=_network_tau(tau, scaling, n_members),
        statistics=np.repeat(statistics[None], n_members, axis=0),
        n_epochs=np.full(n_members, default.n_epochs),
        learns_likelihood=np.ones(n_members, dtype=bool),
    )
    return TrainingJob(
        data=data,
        config=config,
        members=members,
        row_subsets=(RowSubset(n_members, rows, weights, validation, scaling),),
        dropout=posterior.dropout,
        length_scale=default.length_scale,
        tau=tau,
        settings=_settings_to_try(
            estimator, data, config, default, n_independent, len(rows)
        ),
    )


def random_source(estimator) -> np.random.RandomState:
    """Generator of the fit; without a seed, the same one in all processes."""
    random_state = _validation.random_source(estimator.random_state)
    if not isinstance(estimator.random_state, Integral):
        processes = present_processes()
        if processes:
            random_state.set_state(processes.of_first(random_state.get_state()))
    return random_state


def likelihood_class(name, *, is_classification: bool) -> type[Likelihood]:
    """Look up a likelihood for classification or regression by name."""
    names = [
        n
        for n, likelihood_type in LIKELIHOODS.items()
        if likelihood_type.is_classification == is_classification
        and not likelihood_type.of_intervals
    ]
    names += [] if is_classification else [AUTO]
    found = likelihood_named(_validation.check_option("likelihood", name, names))
    assert found is not None
    return found


def selects_likelihood(estimator) -> bool:
    """Whether held-out rows may select the likelihood.

    A given ``length_scale`` or ``tau`` turns off the selection on held-out rows.
    """
    values = estimator.likelihood, estimator.length_scale, estimator.tau
    return all(isinstance(value, str) and value == "auto" for value in values)


def _likelihood(name, estimator, data) -> tuple[Likelihood, np.ndarray | None]:
    """Return the likelihood and the given tau; None if tau is learned."""
    classes = data.classes
    likelihood_type = likelihood_class(name, is_classification=classes is not None)
    for y in data.separate_targets:
        likelihood_type.check_y(y)
    n, ranks = _n_targets(data.table, classes), data.table.ranks
    tau = _validation.precisions(estimator.tau, 1 if likelihood_type.tempered else n)
    if likelihood_type.tempered and tau is None:
        if likelihood_type.is_classification:
            raise ValueError(
                "`tau` of a classifier is the likelihood's inverse temperature and "
                "must be a number; got 'auto'. The default is 1."
            )
        tau = np.ones(1)
    options = _validation.check_option_dict(
        "likelihood_options", estimator.likelihood_options, likelihood_type
    )
    if ranks is not None:
        options["ranks"] = ranks
    intervals = data.table.intervals
    if intervals is not None:
        likelihood_type = OF_INTERVALS[name]
        options["has_point"] = bool(intervals[:, 2 * n :].any())
    return likelihood_type.build(n, tau is None, options), tau


def continued_likelihood(estimator) -> str:
    """Name of the likelihood of a training that is continued, or of a stream.

    It is the one that an earlier fit selected; without one, "auto" is "gaussian".
    """
    if selects_likelihood(estimator) and hasattr(estimator, "network_"):
        return estimator.likelihood_
    return estimator.likelihood


def _n_targets(table, classes) -> int:
    """Number of targets, or of classes with training rows."""
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
    return network.with_families(posterior.families), posterior


def _n_members(estimator) -> int:
    """Number of networks, checked."""
    n_members = _validation.check_number(
        "n_estimators", estimator.n_estimators, kind=_validation.Integral, low=1
    )
    if n_members > MAX_NETWORKS:
        raise ValueError(
            f"`n_estimators` must be at most {MAX_NETWORKS}; got {n_members}."
        )
    return n_members


def _refuse_too_large(estimator, network: Network, n_members: int) -> None:
    """Raise if the networks have more weights than fit into any memory."""
    n_weights = n_members * network.n_weights
    if n_weights > MAX_WEIGHTS:
        has_features = "n_features" in estimator.get_params(deep=False)
        name = "n_features" if has_features else "hidden_layer_sizes"
        name = name if estimator.network is None else "network"
        raise ValueError(
            f"`{name}` and `n_estimators` must give at most {MAX_WEIGHTS:,} weights; "
            f"got {n_weights:,}, with {name}={getattr(estimator, name)!r} and "
            f"n_estimators={n_members}. Use fewer units, channels or networks."
        )


def selects_length_scale(estimator) -> bool:
    """Whether ``length_scale`` is "auto"."""
    scale = estimator.length_scale
    return isinstance(scale, str) and scale == "auto"


def _settings_to_try(
    estimator,
    data,
    config: TrainingConfig,
    default: Setting,
    n_independent: float,
    n_rows: int,
) -> tuple[Setting, ...]:
    """Candidate settings for the selection on held-out rows, the default first.

    Empty if X is too large to hold out rows.

    n_independent : result of ``TrainingData.n_independent``
    n_rows : number of training rows
    """
    if n_rows * data.table.X.shape[1] >= MAX_ENTRIES:
        return ()
    settings = [default]
    if selects_length_scale(estimator):
        fan_ins = config.network.prior_fan_ins
        settings += [
            replace(default, length_scale=scale)
            for scale in length_scale_candidates(estimator, fan_ins, n_independent)
            if not np.array_equal(scale, default.length_scale)
        ]
    max_iter = estimator.max_iter
    selects_epochs = (
        config.patience is None
        and isinstance(max_iter, str)
        and max_iter == "auto"
        and estimator.network is None
        and n_independent < defaults_of(estimator).selects_epochs_below_n
    )
    if selects_epochs:
        n_epochs = [math.ceil(share * default.n_epochs) for share in _SHORTER]
        settings += [replace(default, n_epochs=n) for n in n_epochs]
    return tuple(settings)


def _schedule(estimator, *, stops_early: bool) -> dict:
    """Fields of ``TrainingConfig`` for the learning rate and early stopping."""
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
    """Return training rows, their weights, and validation rows (may be empty)."""
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
    validation = data.validation
    # With "auto", a given validation set turns early stopping on for any N.
    from_n = defaults_of(estimator).early_stopping_from_n if validation is None else 0
    if not _validation.stops_early(estimator.early_stopping, len(rows), from_n):
        return rows, np.empty(0, dtype=int)
    if validation is not None:
        return rows, validation[table.sample_weight[validation] > 0]
    labels = None if data.classes is None else table.codes[rows]
    groups = data.groups_of(rows)
    try:
        if groups is not None:
            held_out = held_out_groups(groups, labels, fraction, random_state)
            return rows[~held_out], rows[held_out]
        return train_test_split(
            rows, test_size=fraction, random_state=random_state, stratify=labels
        )
    except ValueError as error:
        if isinstance(estimator.early_stopping, str):
            return rows, np.empty(0, dtype=int)  # a class has one row only
        unit, n = "rows", len(rows)
        if groups is not None:
            unit, n = "groups", len(np.unique(groups))
        raise ValueError(
            f"early_stopping holds out validation_fraction={fraction:g} of the {unit}; "
            f"got {n} {unit}, too few to split. Raise validation_fraction, set "
            f"early_stopping=False, or give `X_val` and `y_val`. ({error})"
        ) from error


def held_out_groups(groups, labels, fraction: float, random_state) -> np.ndarray:
    """Rows of a random share of the groups, (rows,) bool; other rows have all classes.

    labels : (rows,), or None for regression
    """
    splitter = GroupShuffleSplit(1, test_size=fraction, random_state=random_state)
    [(_, validation)] = splitter.split(groups, groups=groups)
    held_out = np.zeros(len(groups), dtype=bool)
    held_out[validation] = True
    if labels is not None:
        held_out = keep_classes(held_out, groups, labels)
    if not held_out.any():
        raise ValueError("each held-out group contains all rows of a class")
    return held_out


# ---- the job, in the units of the network

# Bounds of tau in the network's scale. Outside, one part of the loss is lost in
# rounding.
_MIN_TAU, _MAX_TAU = 1e-30, 1e30


@dataclass(frozen=True)
class TrainingJob:
    """Untrained networks of one estimator, with the rows that they train on.

    Parameters
    ----------
    data : TrainingData
        Validated arguments of ``fit``.
    config : TrainingConfig
        Configuration that all networks share.
    members : MemberParams
        Parameters of the single networks.
    row_subsets : tuple of RowSubset
        Subsets of the rows of ``data`` with the number of networks that train on each,
        in the order of the networks. All have the same scaling.
    dropout, length_scale : ndarray of shape (layers,)
        Dropout rates and prior length scales.
    tau : ndarray of shape (targets,), or None
        Given precision in the units of y; None if it is learned.
    settings : tuple of Setting
        Candidates for the selection on held-out rows. Empty after the selection, or
        without a selection.
    predictive_params : dict of ndarray of shape (targets,), or None
        The likelihood's ``predictive_params``, estimated on held-out rows.
    second_stage : TrainingJob, or None
        What held-out rows estimate second, with the setting that this job selects: the
        fit with another likelihood, or the temperature.
    is_second_optional : bool
        Whether the result of the second stage is taken only if it is better. Otherwise
        its tau is the one of this job.
    unequal_noise : UnequalNoise, or None
        Result of the test on held-out rows, for the warning.
    """

    data: TrainingData
    config: TrainingConfig
    members: MemberParams
    row_subsets: tuple[RowSubset, ...]
    dropout: np.ndarray
    length_scale: np.ndarray
    tau: np.ndarray | None
    settings: tuple[Setting, ...] = ()
    predictive_params: dict[str, np.ndarray] | None = None
    second_stage: "TrainingJob | None" = None
    is_second_optional: bool = False
    unequal_noise: UnequalNoise | None = None

    def devices(self, device) -> list[torch.device]:
        """The devices of the parameter `device`; the rule of ``"auto"``."""
        n_rows = max(len(subset.rows) for subset in self.row_subsets)
        return _validation.devices_for_fit(device, self.config.suits_gpu(n_rows))

    @property
    def n_members(self) -> int:
        """Number of networks."""
        return len(self.members.seeds)

    @property
    def scaling(self) -> Scaling:
        """Standardisation of X and y."""
        return self.row_subsets[0].scaling

    @property
    def table(self) -> Table:
        """Validated rows of ``fit``."""
        return self.data.table

    @property
    def total_weight(self) -> float:
        """N: sum of the weights of a network's training rows, mean over networks."""
        sums = [float(row_subset.weights.sum()) for row_subset in self.row_subsets]
        counts = np.array([row_subset.n_members for row_subset in self.row_subsets])
        return float(np.dot(sums, counts / self.n_members))

    @property
    def n_independent(self) -> float:
        """N, or the number of groups of the training rows if it is smaller."""
        [row_subset] = self.row_subsets
        return self.data.n_independent(row_subset.rows, row_subset.weights)

    @property
    def estimates_variance(self) -> bool:
        """Whether held-out rows estimate the noise, or the temperature of classes.

        They do if the method requires it. They also replace training residuals if the
        likelihood has no Gaussian noise, or if rows are held out anyway to select the
        length scale. With early stopping, the noise that was learned in training stays.
        """
        config, likelihood = self.config, self.config.likelihood
        held_out = config.variance_source == "held_out" and config.patience is None
        if likelihood.is_classification:
            # The spread of other methods' draws does not make them overconfident.
            return bool(likelihood.predictive_params) and held_out and config.perturbed
        replaces_residuals = config.uses_residuals and (
            not likelihood.gaussian_targets or self._selects_length_scale
        )
        return bool(likelihood.predictive_params) and (held_out or replaces_residuals)

    @property
    def estimates_tau(self) -> bool:
        """Whether held-out rows also estimate the tau of the training.

        Required if members perturb y, since the variance of the perturbation is 1 /
        tau. If the noise depends on the row, this tau is not identified: the output of
        the network makes up for any change. It is then the tau of equal noise.
        """
        return self.perturbs_y and self.config.likelihood.equal_noise

    @property
    def perturbs_y(self) -> bool:
        """Whether members perturb y, and held-out rows estimate the noise."""
        config = self.config
        perturbs_y = config.perturbed and config.likelihood.gaussian_targets > 0
        return bool(perturbs_y) and self.estimates_variance

    @property
    def variance_of_y(self) -> np.ndarray:
        """Variance of the first network's standardised y; 1 if constant, (targets,)."""
        row_subset = self.row_subsets[0]
        y = self.scaling.y_to_network(self.table.y[row_subset.rows])
        mean = np.average(y, axis=0, weights=row_subset.weights)
        variance = np.average(np.square(y - mean), axis=0, weights=row_subset.weights)
        return np.where(variance > 0, variance, 1.0)

    @property
    def _selects_length_scale(self) -> bool:
        scales = [setting.length_scale for setting in self.settings]
        return any(not np.array_equal(scale, scales[0]) for scale in scales)

    @property
    def needs_selection(self) -> bool:
        """Whether held-out rows select a setting or estimate the noise."""
        selects = self.estimates_variance or self.second_stage is not None
        return len(self.settings) > (0 if selects else 1)

    # ---- copies with changes

    def with_config(self, **changes) -> "TrainingJob":
        """Copy with changes of the configuration, also of the second stage."""
        second = self.second_stage
        return replace(
            self,
            config=replace(self.config, **changes),
            second_stage=second and second.with_config(**changes),
        )

    def with_members(self, **values) -> "TrainingJob":
        """Copy with other fields of ``MemberParams``, the same for every network."""
        columns: dict[str, Any] = {
            name: np.repeat(np.asarray(value)[None], self.n_members, axis=0)
            for name, value in values.items()
        }
        return replace(self, members=replace(self.members, **columns))

    def with_temperature_second(self) -> "TrainingJob":
        """Copy that selects a setting first, and estimates the temperature second.

        Single networks select the setting. The temperature needs ensembles, which are
        trained for the selected setting only.
        """
        if len(self.settings) < 2:
            return self
        job = self.with_config(variance_source="training")
        return replace(job, second_stage=self)

    def with_epochs(self, n_epochs: int) -> "TrainingJob":
        """Copy that trains for ``n_epochs``, without a selection."""
        return replace(self.with_members(n_epochs=n_epochs), settings=())

    def with_length_scale(self, length_scale: np.ndarray) -> "TrainingJob":
        """Copy with other prior length scales, (layers,)."""
        prior = [
            fields | {"length_scale": np.full(self.n_members, scale)}
            for fields, scale in zip(self.members.prior, length_scale, strict=True)
        ]
        members = replace(self.members, prior=prior)
        return replace(self, members=members, length_scale=length_scale)

    def with_setting(
        self, setting: Setting, predictive_params: dict[str, np.ndarray] | None = None
    ) -> "TrainingJob":
        """Copy with the selected setting and the estimated ``predictive_params``."""
        job = replace(
            self.with_length_scale(setting.length_scale).with_epochs(setting.n_epochs),
            predictive_params=predictive_params,
            second_stage=None,
        )
        if predictive_params is None or not self.estimates_tau:
            return job
        # The noise variance is at most the variance of y.
        variance = np.exp(predictive_params["log_variance"])
        variance = np.minimum(variance, self.variance_of_y)
        return job.with_members(tau=1 / variance, learns_likelihood=False)

    def training(
        self,
        device: torch.device,
        posterior: Posterior | None = None,
        seen: float = 0.0,
        **options,
    ) -> Training:
        """The training of this job.

        posterior : initial weights; by default those of new networks
        seen : total weight of earlier rows, which the job does not contain
        options : further arguments of ``Training``
        """
        config, members = self.config, self.members
        dtype = config.computed_in(device)
        if posterior is None:
            posterior = initial_posterior(config, members, device, dtype)
        rows = TrainingRows(self.table, self.row_subsets, device, dtype, seen)
        return Training(config, members, rows, posterior, **options)

    def with_trained(self, trained: Trained) -> "TrainedJob":
        """Add the trained networks; they get the estimates of held-out rows."""
        if self.predictive_params is not None:
            posterior = trained.posterior.with_predictive_params(self.predictive_params)
            trained = replace(trained, posterior=posterior)
        return TrainedJob(self, trained)

    def select(self, members: np.ndarray) -> "TrainingJob":
        """Select networks, which all train on the same rows."""
        [row_subset] = self.row_subsets
        return replace(
            self,
            members=self.members.select(members),
            row_subsets=(replace(row_subset, n_members=len(members)),),
        )

    def with_fixed_likelihood(self) -> "TrainingJob":
        """Copy whose training keeps the likelihood at its initial values."""
        return self.with_members(learns_likelihood=False)

    def resumed_from(self, scaling: Scaling, seeds: np.ndarray) -> "TrainingJob":
        """Copy with the scaling and the seeds of an earlier fit."""
        members = replace(
            self.members, seeds=seeds, tau=_network_tau(self.tau, scaling, len(seeds))
        )
        subsets = tuple(replace(subset, scaling=scaling) for subset in self.row_subsets)
        return replace(self, members=members, row_subsets=subsets)

    def under_prior(self, prior: list[dict[str, np.ndarray]]) -> "TrainingJob":
        """Copy with an earlier posterior as the prior.

        The KL has no warm-up, during which networks would forget the earlier rows.

        prior : fields of the earlier posterior, one dict per layer
        """
        job = self.with_config(prior="previous", kl_warm_up=0.0)
        return replace(job, members=replace(self.members, prior=prior))


@dataclass(frozen=True)
class TrainedJob:
    """A job and its trained networks.

    Parameters
    ----------
    job : TrainingJob
    trained : Trained
    n_epochs_before : int
        Number of epochs of earlier fits, from whose weights the training started.
    seen : float
        Total weight of training rows that the job does not contain.
    """

    job: TrainingJob
    trained: Trained
    n_epochs_before: int = 0
    seen: float = 0.0

    @property
    def total_weight(self) -> float:
        """N, the total weight of all training rows so far."""
        return self.seen + self.job.total_weight


def joined(jobs: Sequence[TrainingJob], device: torch.device, **options) -> Training:
    """The training of new networks of several jobs in one program.

    options : further arguments of ``Training``
    """
    table, starts = stacked([job.table for job in jobs])
    row_subsets = tuple(
        row_subset.shifted(start)
        for job, start in zip(jobs, starts, strict=True)
        for row_subset in job.row_subsets
    )
    first = jobs[0]
    whole = replace(
        first,
        data=replace(first.data, table=table),
        members=MemberParams.concatenate([job.members for job in jobs]),
        row_subsets=row_subsets,
    )
    return whole.training(device, **options)


def _network_tau(tau, scaling: Scaling, n_members: int) -> np.ndarray:
    """tau in the network's scale, (members, targets).

    A learned tau starts at 1 / variance of y.
    """
    if tau is None:
        tau = scaling.signal_precision()
    network_tau = scaling.tau_to_network(tau)
    invalid = (network_tau < _MIN_TAU) | (network_tau > _MAX_TAU)
    if invalid.any():
        unit = scaling.signal_precision()[invalid][0]
        raise ValueError(
            f"`tau`, 1 / variance of the noise, must be between {_MIN_TAU:g} and "
            f"{_MAX_TAU:g} times 1 / variance of y, {unit:.3g} here; got "
            f"{np.broadcast_to(tau, invalid.shape)[invalid][0]:g}. Write it as "
            "k / y.var()."
        )
    return np.repeat(network_tau[None], n_members, axis=0)


def _prior_fields(posterior: PosteriorSpec, length_scale, n_members: int):
    """Fields of the prior, one dict per layer with values of shape (members,)."""
    n_layers = len(length_scale)
    fields = {"length_scale": length_scale, **posterior.prior_fields}
    per_layer = {name: np.resize(v, n_layers) for name, v in fields.items()}
    return [
        {name: np.full(n_members, values[i]) for name, values in per_layer.items()}
        for i in range(n_layers)
    ]
