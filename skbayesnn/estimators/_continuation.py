"""Training that goes on: warm starts, streams, and yesterday's posterior as a prior."""

import math
from dataclasses import replace

import numpy as np

from skbayesnn._data.design import Design
from skbayesnn.estimators import _program, _serialization, _task, _validation
from skbayesnn.estimators._prepared import Prepared
from skbayesnn.estimators._specification import leaves_length_scale

# Steps of `partial_fit` after which the likelihood's warm-up is over.
PARTIAL_FIT_HORIZON = 2000


def begin_stream(estimator, prepared: Prepared, n_epochs: int) -> _program.Fitted:
    """Epochs over the first rows of a stream."""
    # How many rows will come is not known.
    hidden = estimator._hidden_layer_sizes(math.inf)
    task, device, dtype = _placed(estimator, prepared, hidden)
    task = task.for_streaming(PARTIAL_FIT_HORIZON, n_epochs)
    posterior = _program.start(task.plan, task.members, device, dtype)
    design = Design(prepared.table, task.shares, device, dtype)
    trained = _program.run([estimator], task.plan, task.members, design, posterior)
    return _program.Fitted(task, trained)


def go_on(
    estimator, prepared: Prepared, how: str, n_epochs: int = 1, seen: float = 0.0
) -> _program.Fitted:
    """Train on from the present weights, in the present scaling.

    how : "warm", a fit to the end; "stream", epochs over further rows of a stream;
        "renew", a fit to the end whose prior is the posterior so far
    n_epochs, seen : of a stream: passes, and the weight of the rows before that are
        not among these
    """
    fitted = tuple(estimator.network_.get("sizes", ())[1:-1])
    hidden = estimator._hidden_layer_sizes(math.inf, fitted)
    task, device, dtype = _placed(estimator, prepared, hidden)
    if how == "stream":
        task = task.for_streaming(PARTIAL_FIT_HORIZON, n_epochs)
    n_rows = seen + task.total_weight if how == "stream" else task.total_weight
    task = task.of_length_scale(
        _length_scale(estimator, task.plan.network.prior_fan_ins, n_rows)
    )
    estimator._check_can_go_on(task, prepared.of_y)
    task = task.going_on(_serialization.scaling_of(estimator), estimator.seeds_)
    posterior = _serialization.posterior_of(estimator, device, dtype).at_rates_of(
        _program.start(task.plan, task.members, device, dtype)
    )
    stream = how == "stream"
    if how == "renew":
        task = task.under_prior(_serialization.prior_from(posterior))
    elif stream and estimator.prior_ is not None:
        task = task.under_prior(estimator.prior_)
    if how == "warm" and task.estimates_tau:
        # That of the fit before, if it is not a stream's.
        noise = set(task.plan.likelihood.noise_of_predictions)
        if noise & posterior.likelihood_params.keys():
            task = task.holding_noise()
    design = Design(prepared.table, task.shares, device, dtype, seen)
    trained = _program.run(
        [estimator],
        task.plan,
        task.members,
        design,
        posterior,
        estimator.optimizer_ if stream else None,
        estimator.n_epochs_seen_,
    )
    if how == "warm" and task.leaves_noise:
        # No rows are held out of what goes on.
        noisy = trained.posterior.with_noise_of(posterior)
        trained = replace(trained, posterior=noisy)
    return _program.Fitted(task, trained)


def _length_scale(estimator, fan_ins, n_rows: float) -> np.ndarray:
    """Of what goes on, (layers,): for N rows now, or what rows have chosen before."""
    # Fits of the first format do not say theirs, and had no choice.
    if leaves_length_scale(estimator) and hasattr(estimator, "length_scale_"):
        before = np.resize(estimator.length_scale_, len(fan_ins))
        by_rule = estimator._length_scales(fan_ins, estimator.total_weight_)
        if not np.allclose(before, by_rule):
            return before
    return estimator._length_scales(fan_ins, n_rows)


def _placed(estimator, prepared, hidden):
    """The task, and where and in what precision it is computed."""
    device = _validation.device_for_fit(estimator.device)
    task = _task.task_of(estimator, prepared, hidden)
    return task, device, _program.computed_in(task.plan, device)


def check_same_network(estimator, task: _task.Task, of_y: dict) -> None:
    """What is continued must be the same network.

    Raises
    ------
    ValueError
    """
    _check_same_targets(estimator, task, of_y)
    old = estimator.network_
    new = _serialization.description_of(task.plan.network, task.plan.likelihood)
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
    if task.n_members != len(estimator.seeds_):
        raise ValueError(
            "training that goes on (warm_start, partial_fit) must keep its networks: "
            f"there are {len(estimator.seeds_)}; got n_estimators="
            f"{estimator.n_estimators}. Set n_estimators={len(estimator.seeds_)}, or "
            "warm_start=False."
        )


def _check_same_targets(estimator, task: _task.Task, of_y: dict) -> None:
    """y must have the classes, or the number of targets, of the fit before."""
    if "classes_" not in of_y:
        now, before = task.scaling.n_targets, len(estimator.y_mean_)
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
