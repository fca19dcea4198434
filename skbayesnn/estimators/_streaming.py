"""Continue a training: warm starts, streams, and a posterior as the next prior.

In a stream a network forgets rows that it does not see again. So a uniform sample of
all earlier rows can be kept [Vitter 1985, "Random sampling with a reservoir"; Rolnick
et al. 2019, "Experience replay for continual learning", arXiv:1811.11682]. A kept row
stands for the number of rows per kept row.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from skbayesnn import _validation
from skbayesnn._data.training_rows import TrainingRows
from skbayesnn._data.validation import Table
from skbayesnn.estimators import _fit, _fitted, _job
from skbayesnn.estimators._defaults import hidden_layer_sizes
from skbayesnn.estimators._job import selects_length_scale
from skbayesnn.estimators._training_data import TrainingData

# ---- continue a training

# Steps of `partial_fit` after which the likelihood's warm-up is over.
PARTIAL_FIT_HORIZON = 2000


def begin_stream(estimator, data: TrainingData, n_epochs: int) -> _job.TrainingJob:
    """Epochs over the first rows of a stream."""
    # How many rows will come is not known.
    hidden = hidden_layer_sizes(estimator, math.inf)
    job, device, dtype = _placed(estimator, data, hidden)
    job = job.for_streaming(PARTIAL_FIT_HORIZON, n_epochs)
    posterior = _fit.start(job.config, job.members, device, dtype)
    design = TrainingRows(data.table, job.shares, device, dtype)
    trained = _fit.run([estimator], job.config, job.members, design, posterior)
    return replace(job, trained=trained)


def resume(
    estimator, data: TrainingData, how: str, n_epochs: int = 1, seen: float = 0.0
) -> _job.TrainingJob:
    """Train on from the present weights, in the present scaling.

    how : "warm", a fit to the end; "stream", epochs over further rows of a stream;
        "renew", a fit to the end whose prior is the posterior so far
    n_epochs, seen : of a stream: passes, and the weight of the rows before that are
        not among these
    """
    fitted = tuple(estimator.network_.get("sizes", ())[1:-1])
    hidden = hidden_layer_sizes(estimator, math.inf, fitted)
    job, device, dtype = _placed(estimator, data, hidden)
    if how == "stream":
        job = job.for_streaming(PARTIAL_FIT_HORIZON, n_epochs)
    n_rows = seen + job.total_weight if how == "stream" else job.total_weight
    job = job.with_length_scale(
        _length_scale(estimator, job.config.network.prior_fan_ins, n_rows)
    )
    estimator._check_can_go_on(job, data.of_y)
    job = job.resumed_from(_fitted.scaling_of(estimator), estimator.seeds_)
    posterior = _fitted.posterior_of(estimator, device, dtype).at_rates_of(
        _fit.start(job.config, job.members, device, dtype)
    )
    stream = how == "stream"
    if how == "renew":
        job = job.under_prior(_fitted.prior_from(posterior))
    elif stream and estimator.prior_ is not None:
        job = job.under_prior(estimator.prior_)
    if how == "warm" and job.estimates_tau:
        # That of the fit before, if it is not a stream's.
        noise = set(job.config.likelihood.predictive_params)
        if noise & posterior.likelihood_params.keys():
            job = job.holding_noise()
    design = TrainingRows(data.table, job.shares, device, dtype, seen)
    trained = _fit.run(
        [estimator],
        job.config,
        job.members,
        design,
        posterior,
        estimator.optimizer_ if stream else None,
        estimator.n_epochs_seen_,
    )
    if how == "warm" and job.estimates_variance:
        # No rows are held out of what goes on.
        noisy = trained.posterior.with_noise_of(posterior)
        trained = replace(trained, posterior=noisy)
    return replace(job, trained=trained)


def _length_scale(estimator, fan_ins, n_rows: float) -> np.ndarray:
    """Of what goes on, (layers,): for N rows now, or what rows have chosen before."""
    # Fits of the first format do not say theirs, and had no choice.
    if selects_length_scale(estimator) and hasattr(estimator, "length_scale_"):
        before = np.resize(estimator.length_scale_, len(fan_ins))
        by_rule = estimator._length_scales(fan_ins, estimator.total_weight_)
        if not np.allclose(before, by_rule):
            return before
    return estimator._length_scales(fan_ins, n_rows)


def _placed(estimator, data, hidden):
    """The task, and where and in what precision it is computed."""
    device = _validation.device_for_fit(estimator.device)
    job = _job.training_job(estimator, data, hidden)
    return job, device, _fit.computed_in(job.config, device)


def check_same_network(estimator, job: _job.TrainingJob, of_y: dict) -> None:
    """What is continued must be the same network.

    Raises
    ------
    ValueError
    """
    _check_same_targets(estimator, job, of_y)
    old = estimator.network_
    new = _fitted.description_of(job.config.network, job.config.likelihood)
    if new != old:
        changed = [n for n in {**old, **new} if old.get(n) != new.get(n)]
        before, now = (
            ", ".join(f"{name}={one.get(name)}" for name in changed)
            for one in (old, new)
        )
        raise ValueError(
            "training that goes on (warm_start, partial_fit) must keep the network; "
            f"it had {before}, and is asked to have {now}. Set the parameters back, "
            "set warm_start=False, or fit a clone."
        )
    if job.n_members != len(estimator.seeds_):
        raise ValueError(
            "training that goes on (warm_start, partial_fit) must keep its networks: "
            f"there are {len(estimator.seeds_)}; got n_estimators="
            f"{estimator.n_estimators}. Set n_estimators={len(estimator.seeds_)}, or "
            "warm_start=False."
        )


def _check_same_targets(estimator, job: _job.TrainingJob, of_y: dict) -> None:
    """y must have the classes, or the number of targets, of the fit before."""
    if "classes_" not in of_y:
        now, before = job.scaling.n_targets, len(estimator.y_mean_)
        if now != before:
            raise ValueError(
                "training that goes on (warm_start, partial_fit) must keep the "
                f"targets; y has {_counted(now, 'target')}, the model has {before}. "
                "Set warm_start=False, or fit a clone."
            )
        return
    now, before = of_y["classes_"], estimator.classes_
    if not np.array_equal(now, before):
        raise ValueError(
            "training that goes on (warm_start, partial_fit) must keep the classes; "
            f"y has {len(now)} classes, the model has {len(before)}: "
            f"{now.tolist()[:10]} and {before.tolist()[:10]}. Set warm_start=False, or "
            "fit a clone."
        )


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


# ---- rows that are kept

# Arrays with an entry per row, and how many rows and what weight there have been.
Kept = dict[str, Any]


def with_kept(table: Table, kept: Kept | None) -> Table:
    """New rows, and below those that were kept, of the weight that they stand for."""
    if kept is None:
        return table
    X, weights = kept["X"].astype(table.X.dtype), kept["sample_weight"]
    weights = weights * (kept["weight_seen"] / weights.sum())
    X = sparse.csr_array(X) if sparse.issparse(table.X) else X
    return table.append(Table(X, kept["y"], weights))


def update_reservoir(table: Table, kept: Kept | None, n_rows: int, seed: int) -> Kept:
    """A sample of so many of the rows so far: those of the smallest random keys.

    Keys from the smallest one on that was ever left out are left out for good: rows of
    larger ones are not there any more.
    """
    if kept is None:
        kept = {"n_seen": 0, "weight_seen": 0.0, "limit": 1.0}
    used = np.flatnonzero(table.sample_weight > 0)
    key = np.random.default_rng((seed, kept["n_seen"])).random(len(used))
    # One more than can be kept; and a whole sparse table is none to make dense.
    first = np.argsort(key, kind="stable")[: n_rows + 1]
    chosen = used[first]
    X: Any = table.X[chosen]
    rows = {
        "X": X.toarray() if sparse.issparse(X) else X,
        "y": table.y[chosen],
        "sample_weight": table.sample_weight[chosen],
        "key": key[first],
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
