"""Continue a training: warm starts, streams, and a posterior as the next prior.

In a stream, a network forgets rows that it does not see again. To prevent this, a
uniform sample of all earlier rows can be kept and replayed [Vitter 1985, "Random
sampling with a reservoir"; Rolnick et al. 2019, "Experience replay for continual
learning", arXiv:1811.11682]. The kept rows are weighted for all earlier rows.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from skbayesnn import _validation
from skbayesnn._data.training_rows import TrainingRows
from skbayesnn._data.validation import Table
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.training import Trained
from skbayesnn.estimators import _fit, _fitted
from skbayesnn.estimators._checkpoint import Checkpoint
from skbayesnn.estimators._defaults import hidden_layer_sizes
from skbayesnn.estimators._job import (
    TrainedJob,
    TrainingJob,
    selects_length_scale,
    training_job,
)
from skbayesnn.estimators._training_data import TrainingData

# ---- continue a training

# Number of steps of `partial_fit` over which the likelihood warms up.
PARTIAL_FIT_HORIZON = 2000


def begin_stream(
    estimator, data: TrainingData, n_epochs: int, others: float = 0.0
) -> TrainedJob:
    """Train on the first rows of a stream.

    others : total weight of the rows to come, if it is known
    """
    # The total number of rows may be unknown: size the layers for many.
    hidden = hidden_layer_sizes(estimator, math.inf)
    job, device, dtype = _job_and_device(estimator, data, hidden)
    if others:
        fan_ins, n_rows = job.config.network.prior_fan_ins, others + job.total_weight
        job = job.with_length_scale(estimator._length_scales(fan_ins, n_rows))
    job = job.for_streaming(PARTIAL_FIT_HORIZON, n_epochs)
    posterior = _fit.initial_posterior(job.config, job.members, device, dtype)
    return _train(estimator, job, posterior, others)


def continue_stream(
    estimator, data: TrainingData, n_epochs: int, seen: float
) -> TrainedJob:
    """Train for ``n_epochs`` on new rows of a stream.

    seen : total weight of the earlier rows that are not in ``data``
    """
    job, posterior = continued(estimator, data, seen)
    job = job.for_streaming(PARTIAL_FIT_HORIZON, n_epochs)
    if estimator.prior_ is not None:
        job = job.under_prior(estimator.prior_)
    return _train(
        estimator, job, posterior, seen, estimator.optimizer_, estimator.n_epochs_seen_
    )


def warm_start(
    estimator, data: TrainingData, checkpoint: Checkpoint | None = None
) -> TrainedJob:
    """Run a full fit that starts from the fitted weights.

    Warm starts hold out no rows: the noise that an earlier fit estimated is kept.
    """
    job, posterior = continued(estimator, data)
    names = job.config.likelihood.predictive_params
    # After a stream there is no estimate to keep.
    if job.estimates_tau and set(names) & posterior.likelihood_params.keys():
        job = job.with_fixed_likelihood()

    def trained_job(trained: Trained) -> TrainedJob:
        if job.estimates_variance:
            updated = trained.posterior.copy_predictive_params(posterior)
            trained = replace(trained, posterior=updated)
        return TrainedJob(job, trained)

    n_before = estimator.n_epochs_seen_
    if checkpoint is not None:
        checkpoint.begin(trained_job, None, n_before)
    result = _train(
        estimator, job, posterior, first_epoch=n_before, checkpoint=checkpoint
    )
    return trained_job(result.trained)


def refit_with_posterior_prior(estimator, data: TrainingData) -> TrainedJob:
    """Run a full fit whose prior is the fitted posterior."""
    job, posterior = continued(estimator, data)
    job = job.under_prior(_fitted.prior_from(posterior))
    return _train(estimator, job, posterior, first_epoch=estimator.n_epochs_seen_)


def continued(
    estimator, data: TrainingData, seen: float = 0.0
) -> tuple[TrainingJob, Posterior]:
    """Return a job with the scaling and seeds of the fit, and the fitted posterior.

    seen : total weight of the earlier rows that are not in ``data``
    """
    fitted_sizes = tuple(estimator.network_.get("sizes", ())[1:-1])
    hidden = hidden_layer_sizes(estimator, math.inf, fitted_sizes)
    job, device, dtype = _job_and_device(estimator, data, hidden)
    fan_ins = job.config.network.prior_fan_ins
    job = job.with_length_scale(
        _length_scale(estimator, fan_ins, seen + job.total_weight)
    )
    estimator._check_can_continue(job, data.target_attributes)
    job = job.resumed_from(_fitted.restore_scaling(estimator), estimator.seeds_)
    # Parameters such as `dropout` may have changed since the fit.
    untrained = _fit.initial_posterior(job.config, job.members, device, dtype)
    posterior = _fitted.restore_posterior(estimator, device, dtype)
    return job, posterior.at_rates_of(untrained)


def _train(
    estimator,
    job: TrainingJob,
    posterior: Posterior,
    seen: float = 0.0,
    optimizer_state: dict[str, np.ndarray] | None = None,
    first_epoch: int = 0,
    checkpoint: Checkpoint | None = None,
) -> TrainedJob:
    """Train a job without a selection on held-out rows, starting from ``posterior``."""
    rows = TrainingRows(
        job.table, job.row_subsets, posterior.device, posterior.dtype, seen
    )
    trained = _fit.run(
        [estimator],
        job.config,
        job.members,
        rows,
        posterior,
        optimizer_state,
        first_epoch,
        devices=_validation.devices_for_fit(estimator.device),
        checkpoint=checkpoint,
    )
    return TrainedJob(job, trained)


def _length_scale(estimator, fan_ins, n_rows: float) -> np.ndarray:
    """Prior length scale of a continued training, (layers,).

    Keeps a scale that an earlier fit selected; otherwise follows the rule for N rows.
    """
    # Fits of the first format selected no scale and lack the attribute.
    if selects_length_scale(estimator) and hasattr(estimator, "length_scale_"):
        before = np.resize(estimator.length_scale_, len(fan_ins))
        by_rule = estimator._length_scales(fan_ins, estimator.total_weight_)
        if not np.allclose(before, by_rule):
            return before
    return estimator._length_scales(fan_ins, n_rows)


def _job_and_device(estimator, data, hidden):
    """Return the job, its device and its precision."""
    device = _validation.device_for_fit(estimator.device)
    job = training_job(estimator, data, hidden)
    return job, device, _fit.computed_in(job.config, device)


def check_same_network(estimator, job: TrainingJob, target_attributes: dict) -> None:
    """Raise ``ValueError`` if a job has other networks or targets than the fit."""
    _check_same_targets(estimator, job, target_attributes)
    old = estimator.network_
    new = _fitted.describe_network(job.config.network, job.config.likelihood)
    if new != old:
        changed = [n for n in {**old, **new} if old.get(n) != new.get(n)]
        before, now = (
            ", ".join(f"{name}={description.get(name)}" for name in changed)
            for description in (old, new)
        )
        raise ValueError(
            "continued training (warm_start, partial_fit) must keep the network; "
            f"the fitted network has {before}, got {now}. Set the parameters back, "
            "set warm_start=False, or fit a clone."
        )
    if job.n_members != len(estimator.seeds_):
        raise ValueError(
            "continued training (warm_start, partial_fit) must keep the number of "
            f"networks, {len(estimator.seeds_)}; got n_estimators="
            f"{estimator.n_estimators}. Set n_estimators={len(estimator.seeds_)}, or "
            "warm_start=False."
        )


def _check_same_targets(estimator, job: TrainingJob, target_attributes: dict) -> None:
    """Raise if y has other classes, or another number of targets, than the fit."""
    if "classes_" not in target_attributes:
        now, before = job.scaling.n_targets, len(estimator.y_mean_)
        if now != before:
            raise ValueError(
                "continued training (warm_start, partial_fit) must keep the "
                f"targets; y has {_pluralised(now, 'target')}, the model has {before}. "
                "Set warm_start=False, or fit a clone."
            )
        return
    now, before = target_attributes["classes_"], estimator.classes_
    if not np.array_equal(now, before):
        raise ValueError(
            "continued training (warm_start, partial_fit) must keep the classes; "
            f"y has {len(now)} classes, the model has {len(before)}: "
            f"{now.tolist()[:10]} and {before.tolist()[:10]}. Set warm_start=False, or "
            "fit a clone."
        )


def _pluralised(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


# ---- rows that are kept

# Value of ``replay_``: arrays with an entry per kept row, and the number and the weight
# of all rows so far.
Kept = dict[str, Any]


def with_kept(table: Table, kept: Kept | None) -> Table:
    """Append kept rows to new rows, with the total weight of all earlier rows."""
    if kept is None:
        return table
    X, weights = kept["X"].astype(table.X.dtype), kept["sample_weight"]
    weights = weights * (kept["weight_seen"] / weights.sum())
    X = sparse.csr_array(X) if sparse.issparse(table.X) else X
    return table.append(Table(X, kept["y"], weights))


def update_reservoir(table: Table, kept: Kept | None, n_rows: int, seed: int) -> Kept:
    """Sample ``n_rows`` of all rows so far: the rows with the smallest random keys.

    ``limit`` is the smallest key that was ever dropped. Rows with keys at or above it
    are never kept, since earlier rows with such keys are lost; so the sample stays
    uniform if ``n_rows`` grows.
    """
    if kept is None:
        kept = {"n_seen": 0, "weight_seen": 0.0, "limit": 1.0}
    used = np.flatnonzero(table.sample_weight > 0)
    key = np.random.default_rng((seed, kept["n_seen"])).random(len(used))
    # One row more than can be kept, for `limit`. Select first: all rows of a sparse
    # table may be too many to convert to a dense array.
    smallest = np.argsort(key, kind="stable")[: n_rows + 1]
    subset = used[smallest]
    X: Any = table.X[subset]
    rows = {
        "X": X.toarray() if sparse.issparse(X) else X,
        "y": table.y[subset],
        "sample_weight": table.sample_weight[subset],
        "key": key[smallest],
    }
    if "key" in kept:
        rows = {name: np.concatenate([kept[name], rows[name]]) for name in rows}
    order = np.argsort(rows["key"], kind="stable")[: n_rows + 1]
    limit = kept["limit"]
    if len(order) > n_rows:
        limit = min(limit, float(rows["key"][order[-1]]))
    sample = order[rows["key"][order] < limit]
    return {name: values[sample] for name, values in rows.items()} | {
        "n_seen": kept["n_seen"] + len(used),
        "weight_seen": kept["weight_seen"] + float(table.sample_weight[used].sum()),
        "limit": limit,
    }
