"""Constructor parameters, and the rows -> what is asked of a program, checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from skbayesnn._likelihoods import LIKELIHOODS, Likelihood
from skbayesnn._networks import Network
from skbayesnn.estimators import _validation
from skbayesnn.estimators._prepared import Prepared
from skbayesnn.estimators._variational_spec import VariationalSpec
from skbayesnn.networks import MLP

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
        As in :class:`skbayesnn._inference.plan.Plan`.
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
    estimator, prepared: Prepared, hidden: Sequence[int] | int | None = None
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
        estimator.max_iter, len(rows), n_batches, estimator._steps_per_root
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
        _validation.activation_name(estimator.activation),
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
    is_open = isinstance(most, str) and most == "auto" and estimator.network is None
    return is_open and n_rows < estimator._chooses_length_below


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
