"""Continue a training: warm starts, streams, and a posterior as the next prior.

In a stream, a network forgets rows that it does not see again. To prevent this, a
uniform sample of all earlier rows is kept and replayed [Vitter 1985, "Random sampling
with a reservoir"; Rolnick et al. 2019, "Experience replay for continual learning",
arXiv:1811.11682]. The kept rows are weighted for all earlier rows.

An update trains twice the networks, from the fitted weights: some on all rows, the
others without a part of the new rows. These rows estimate the noise, and show whether
the update is better than the fit before.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from scipy.special import stdtrit

from skbayesnn import _validation
from skbayesnn._data.training_rows import RowSubset, TrainingRows
from skbayesnn._data.validation import Table
from skbayesnn._engine.held_out_tau import draws_together
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.step import select_state
from skbayesnn._engine.training import Trained, validation_density, validation_draws
from skbayesnn.estimators import _fit, _fitted
from skbayesnn.estimators._checkpoint import Checkpoint
from skbayesnn.estimators._defaults import defaults_of, hidden_layer_sizes
from skbayesnn.estimators._job import (
    TrainedJob,
    TrainingJob,
    continued_likelihood,
    selects_length_scale,
    training_job,
)
from skbayesnn.estimators._selection import held_out_noise
from skbayesnn.estimators._training_data import TrainingData

# ---- continue a training

# Smallest share of the epochs of a fit for which an update trains.
_LEAST_SHARE = 0.1
# An update trains for this share of a fit, times the share of its rows that are new.
_SHARE_OF_GROWTH = 0.5
# A whole fit is made again when the rows are this many times the rows of the last one.
_GROWN = 4.0
# Relative rounding error of a sum of weights.
_ROUNDING = 1e-6
# Share of the new rows that half of the networks do not train on, and the largest
# number of them.
_SHARE_HELD_OUT, _MAX_HELD_OUT = 1 / 3, 500
# Largest number of new rows, and of kept rows, of which training densities are
# compared.
_MAX_COMPARED = 500
# Posterior draws of a predictive density.
_N_DRAWS = 50
# Number of rows that the noise before the update counts for, at most, and as a share of
# all rows so far.
_ROWS_OF_NOISE, _SHARE_OF_NOISE = 200, 1 / 3
# New and kept rows contradict each other if the densities of the new ones, in training,
# are lower by this, in nats.
_MISFIT = 0.3
# Tolerated loss of the density of kept rows, in nats. A fit predicts its own rows too
# well; so the loss may also be a share of the difference to other rows, up to a limit.
_LOSS, _SHARE_OF_OPTIMISM, _MOST_LOSS = 0.1, 0.5, 0.5


def begin_stream(
    estimator, data: TrainingData, n_epochs: int | str, others: float = 0.0
) -> TrainedJob:
    """Fit to the first rows of a stream.

    n_epochs : number of epochs without a selection; "auto" for a whole fit
    others : total weight of the rows to come, if it is known
    """
    # The total number of rows may be unknown: size the layers for many.
    hidden = hidden_layer_sizes(estimator, math.inf)
    job, device, dtype = _job_and_device(estimator, data, hidden)
    if isinstance(n_epochs, str) and not others:
        [trained_job] = _fit.train_together([estimator], [job])
        return trained_job
    if others:
        fan_ins, n_rows = job.config.network.prior_fan_ins, others + job.total_weight
        job = job.with_length_scale(estimator._length_scales(fan_ins, n_rows))
    if not isinstance(n_epochs, str):
        job = job.with_epochs(n_epochs)
    posterior = _fit.initial_posterior(job.config, job.members, device, dtype)
    return _train(estimator, job, posterior, others)


def update(
    estimator,
    data: TrainingData,
    of_new: TrainingData,
    n_new: int,
    n_epochs: int | str,
    seen: float,
) -> "Update":
    """Train on new and kept rows, from the fitted weights, if this improves the fit.

    data : new rows, followed by kept rows
    of_new : the same new rows, followed by rows that earlier updates did not take
    n_new : number of new rows
    n_epochs : "auto" is a share of the epochs of the fit
    seen : total weight of the earlier rows that are not in ``data``
    """
    random = np.random.default_rng([int(estimator.seeds_[0]), estimator.n_epochs_seen_])
    rows = random.permutation(data.rows)
    new, kept = rows[rows < n_new], rows[rows >= n_new]
    held_out = new[: min(int(_SHARE_HELD_OUT * len(new)), _MAX_HELD_OUT)]
    compared = held_out, new[len(held_out) :][:_MAX_COMPARED], kept[:_MAX_COMPARED]
    weights, of_fit = data.table.sample_weight, epochs_of_fit(estimator)
    job, posterior = continued(estimator, data, seen)
    n_before = estimator.total_weight_
    growth = 1 - n_before / (seen + job.total_weight) if n_before else 1.0
    share = of_fit * max(_LEAST_SHARE, _SHARE_OF_GROWTH * growth)
    n_noise = min(_ROWS_OF_NOISE, _SHARE_OF_NOISE * n_before)
    how = {"n_epochs": n_epochs, "rows_of_noise": n_noise, "seen": seen}
    trained = _trained(estimator, job, posterior, compared, share, **how)
    before, after, trained_job = trained
    gain = Difference.paired(after.held_out, before.held_out, weights[held_out])
    loss = Difference.paired(before.kept, after.kept, weights[compared[2]])
    misfit = Difference.unpaired(after.kept, after.new)
    contradicts = misfit.is_clear and misfit.mean > _MISFIT
    tolerated = _LOSS
    if not contradicts and len(before.kept):
        others = np.concatenate([before.held_out, before.new])
        optimism = before.kept.mean() - others.mean()
        tolerated = np.clip(_SHARE_OF_OPTIMISM * optimism, _LOSS, _MOST_LOSS)
    is_lost = loss.is_clear and not loss.mean <= tolerated
    if contradicts or is_lost:
        job, posterior = continued(estimator, of_new)
        compared = *compared[:2], kept[:0]
        how |= {"rows_of_noise": 0.0, "seen": 0.0}
        trained = _trained(estimator, job, posterior, compared, of_fit, **how)
        _, alone, of_alone = trained
        gains = [
            Difference.paired(alone.held_out, other.held_out, weights[held_out])
            for other in (before, after)
        ]
        if all(difference.is_clear for difference in gains):
            n_rows = len(of_new.rows)
            return Update(of_alone, _CHANGED.format(n_rows), is_alone=True)
    if is_lost:
        return Update(None, _NOT_TAKEN.format(f"{_LOST_EARLIER} {loss}"))
    if gain.reversed.is_clear:
        return Update(None, _NOT_TAKEN.format(f"{_LOST_NEW} {gain.reversed}"))
    outgrown = _has_outgrown_its_fit(estimator, trained_job.job, seen)
    if outgrown and isinstance(n_epochs, str):
        whole = training_job(estimator, data)
        [trained_job] = _fit.train_together([estimator], [whole])
        return Update(trained_job, is_fit=True)
    return Update(trained_job)


def _has_outgrown_its_fit(estimator, job: TrainingJob, seen: float) -> bool:
    """Whether there are far more rows than in the last whole fit, and all are kept.

    The layers, the prior and the standardisation then suit another number of rows.
    """
    kept = getattr(estimator, "replay_", {})
    if len(kept.get("y", ())) < kept.get("n_seen", 0):
        return False
    n_rows, before = job.table.sample_weight.sum(), kept.get("weight_of_fit", math.inf)
    return bool(n_rows >= _GROWN * before and seen <= _ROUNDING * n_rows)


_LOST_EARLIER = "the new rows contradict the earlier rows, whose log density falls by"
_LOST_NEW = "with it, the log density of new rows that were held out falls by"
_NOT_TAKEN = (
    "the update was not taken, and the model is unchanged: {}. Check the units and the "
    "columns of the new rows. If the relation between X and y has changed, pass more "
    "rows: the last ones are kept until later rows confirm them. Or call `fit`."
)
_CHANGED = (
    "the relation between X and y has changed: the new rows contradict the earlier "
    "rows. The model was trained on the last {} rows alone, and predicts the earlier "
    "rows worse. If the new rows are wrong, return to the model before. Otherwise call "
    "`fit` when there are enough rows after the change."
)
NO_ROWS = (
    "no earlier rows are kept, after a call with n_replay=0 or without `replay_`: the "
    "network may forget them. Call `fit`, or pass n_replay=0 if this is intended."
)


class Update(NamedTuple):
    """Result of ``update``.

    Parameters
    ----------
    trained_job : TrainedJob, or None
        None if the update is not taken.
    warning : str
        Text of a warning, or empty.
    is_alone : bool
        Whether it was trained without the kept rows, which the new rows contradict.
    is_fit : bool
        Whether it is a whole fit to all rows so far.
    """

    trained_job: TrainedJob | None
    warning: str = ""
    is_alone: bool = False
    is_fit: bool = False


class Difference(NamedTuple):
    """Difference of mean log densities in nats, and its standard error.

    Parameters
    ----------
    mean, error : float
    n_rows : int
        Number of rows behind the standard error.
    """

    mean: float
    error: float
    n_rows: int

    @classmethod
    def paired(cls, first, second, weights) -> "Difference":
        """Of two fits at the same rows."""
        n = len(first)
        if n < 2:
            return cls(0.0, math.inf, n)
        difference = first - second
        mean = np.average(difference, weights=weights)
        variance = np.average(np.square(difference - mean), weights=weights)
        return cls(float(mean), float(np.sqrt(variance / (n - 1))), n)

    @classmethod
    def unpaired(cls, first, second) -> "Difference":
        """Of one fit at different rows."""
        n = min(len(first), len(second))
        if n < 2:
            return cls(0.0, math.inf, n)
        variances = [np.var(values, ddof=1) / len(values) for values in (first, second)]
        return cls(float(first.mean() - second.mean()), math.sqrt(sum(variances)), n)

    @property
    def reversed(self) -> "Difference":
        """The difference with the opposite sign."""
        return self._replace(mean=-self.mean)

    @property
    def is_clear(self) -> bool:
        """Whether it is positive at the 97.5 % level of a t test; true for NaN."""
        if self.n_rows < 2:
            return False
        return not self.mean <= stdtrit(self.n_rows - 1, 0.975) * self.error

    def __str__(self):
        return f"{self.mean:.2g} nats per row (standard error {self.error:.2g})"


class _Densities(NamedTuple):
    """Log densities of rows under the networks before or after an update.

    Parameters
    ----------
    held_out : ndarray
        New rows, by networks that have not trained on them.
    new, kept : ndarray
        New and kept rows, by the networks that have trained on all rows.
    """

    held_out: np.ndarray
    new: np.ndarray
    kept: np.ndarray


def _trained(
    estimator,
    job: TrainingJob,
    posterior: Posterior,
    compared: tuple[np.ndarray, ...],
    share: float,
    n_epochs: int | str,
    rows_of_noise: float,
    seen: float,
) -> tuple[_Densities, _Densities, TrainedJob]:
    """Train networks on all rows of a job, and others without the held-out rows.

    compared : indices of held-out, new and kept rows
    share : share of the epochs of ``max_iter``, if ``n_epochs`` is "auto"
    rows_of_noise : number of rows that the noise before counts for
    returns : densities before and after, and the networks with all rows
    """
    held_out, scored = compared[0], np.concatenate(compared)
    job = _job_of_update(estimator, job, posterior, share, n_epochs)
    table, rows, n = job.table, job.data.rows, job.n_members
    weights = estimator._row_weights(table, rows, job.data.classes)
    whole = RowSubset(n, rows, weights, scored, job.scaling)
    is_in = ~np.isin(rows, held_out)
    part = replace(whole, rows=rows[is_in], weights=weights[is_in])
    job = replace(job, row_subsets=(whole,))
    final, check = np.arange(n), np.arange(n, 2 * n)
    twice = np.tile(final, 2)
    device, dtype = posterior.device, posterior.dtype
    training_rows = TrainingRows(table, [whole, part], device, dtype, seen)
    before = posterior.select(twice)
    trained = _fit.run(
        [estimator],
        job.config,
        job.members.select(twice),
        training_rows,
        before,
        select_state(estimator.optimizer_, twice),
        estimator.n_epochs_seen_,
        devices=_validation.devices_for_fit(estimator.device),
    )
    if job.estimates_variance:
        after = trained.posterior.copy_predictive_params(before)
        if len(held_out):
            share = len(held_out) / (len(held_out) + rows_of_noise)
            after = _with_noise(job, before, after, training_rows, held_out, share)
        trained = replace(trained, posterior=after)

    def densities(posterior: Posterior, by_check: np.ndarray) -> _Densities:
        groups = by_check, final
        of_networks = validation_density(posterior, training_rows, _N_DRAWS, groups)
        of_check, of_final = (
            np.logaddexp.reduce(part.cpu().double().numpy()) - math.log(n)
            for part in of_networks
        )
        n_new, n_scored = len(held_out) + len(compared[1]), len(scored)
        return _Densities(
            held_out=of_check[: len(held_out)],
            new=of_final[len(held_out) : n_new],
            kept=of_final[n_new:n_scored],
        )

    return (
        densities(before, final),
        densities(trained.posterior, check),
        TrainedJob(job, trained.select(final)),
    )


def _with_noise(
    job: TrainingJob,
    before: Posterior,
    after: Posterior,
    training_rows: TrainingRows,
    held_out: np.ndarray,
    share: float,
) -> Posterior:
    """Estimate the noise of predictions on held-out rows.

    The held-out rows may have larger or smaller residuals than other rows. So the same
    rows estimate the noise for the weights before, too, and the difference to its known
    value corrects the estimate.

    share : weight of the held-out rows; with 1 there is no correction
    """
    check = np.arange(job.n_members, 2 * job.n_members)
    y, weights = job.table.y[held_out], job.table.sample_weight[held_out]
    estimated = []
    for posterior in (before, after):
        [values] = validation_draws(posterior, training_rows, _N_DRAWS, [check])
        draws = values.cpu().double().numpy()[:, : len(held_out)]
        noise = held_out_noise(job, draws_together(draws), y, weights)
        if noise is None:
            return after
        estimated.append(posterior.with_predictive_params(noise).likelihood_params)
    known, (of_before, params) = before.likelihood_params, estimated
    for name in job.config.likelihood.predictive_params:
        # Without a value, predictions use the parameter of the training.
        value = known.get(name, known.get(name.removeprefix("predictive_")))
        value = torch.zeros_like(params[name]) if value is None else value
        change = (1 - share) * (value - of_before[name])
        params = params | {name: params[name] + change}
    return replace(after, likelihood_params=params)


def _job_of_update(
    estimator, job: TrainingJob, posterior: Posterior, share: float, n_epochs: int | str
) -> TrainingJob:
    """The job with the schedule of an update."""
    if isinstance(n_epochs, str):
        n_epochs = math.ceil(share * int(job.members.n_epochs[0]))
    config = replace(
        job.config,
        kl_warm_up=0.0,
        variance_source="held_out",
        patience=None,
        keep_interrupted=False,
    )
    job = replace(job, config=config).with_epochs(n_epochs)
    if estimator.prior_ is not None:
        job = job.under_prior(estimator.prior_)
    names = job.config.likelihood.predictive_params
    has_estimate = bool(set(names) & posterior.likelihood_params.keys())
    if has_estimate and (job.estimates_tau or job.perturbs_y):
        job = job.with_fixed_likelihood()
    return job


def warm_start(
    estimator, data: TrainingData, checkpoint: Checkpoint | None = None
) -> TrainedJob:
    """Run a full fit that starts from the fitted weights.

    Warm starts hold out no rows: the noise that an earlier fit estimated is kept.
    """
    job, posterior = continued(estimator, data)
    names = job.config.likelihood.predictive_params
    # After a stream there is no estimate to keep.
    if job.perturbs_y and set(names) & posterior.likelihood_params.keys():
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
    if selects_length_scale(estimator):
        before = np.resize(estimator.length_scale_, len(fan_ins))
        by_rule = estimator._length_scales(fan_ins, estimator.total_weight_)
        if not np.allclose(before, by_rule):
            return before
    return estimator._length_scales(fan_ins, n_rows)


def _job_and_device(estimator, data, hidden):
    """Return the job, its device and its precision."""
    device = _validation.device_for_fit(estimator.device)
    job = training_job(estimator, data, hidden, continued_likelihood(estimator))
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

# Value of ``replay_``: arrays with an entry per kept row, and others, with ``REFUSED``
# before their names, of rows that updates did not take; the number and the weight of
# all rows so far.
Kept = dict[str, Any]
REFUSED = "refused/"
# What is known of the last whole fit.
_OF_FIT = "epochs_of_fit", "weight_of_fit"
# Rows that are kept by default: at most this number, and this number of values of X.
_MAX_ROWS, _MAX_VALUES = 2000, 2**20
# Rows that updates did not take: the last ones are kept, for a change of the relation.
_MAX_REFUSED = 500


def n_kept_rows(n_replay: int | str, n_columns: int) -> int:
    """Number of rows to keep."""
    if isinstance(n_replay, str):
        return min(_MAX_ROWS, _MAX_VALUES // max(1, n_columns))
    return n_replay


def keep_rows_of_fit(
    estimator, trained_job: TrainedJob, n_replay: int | str = "auto"
) -> None:
    """Store a sample of the rows of a fit, for later updates."""
    job, data = trained_job.job, trained_job.job.data
    table, rows = data.table, data.rows
    n_kept = n_kept_rows(n_replay, table.X.shape[1])
    if not n_kept:
        return
    of_fit = Table(table.X[rows], table.y[rows], table.sample_weight[rows])
    kept = update_reservoir(of_fit, None, n_kept, int(estimator.seeds_[0]))
    # A source has more rows than the table.
    kept["weight_seen"] *= estimator.total_weight_ / job.total_weight
    n_rows, n_batches = len(job.row_subsets[0].rows), job.config.n_batches
    steps = defaults_of(estimator).steps_per_sqrt_n
    longest = _validation.epochs(estimator.max_iter, n_rows, n_batches, steps)
    kept["epochs_of_fit"] = min(1.0, estimator.n_iter_ / longest)
    kept["weight_of_fit"] = kept["weight_seen"]
    estimator.replay_ = kept


def epochs_of_fit(estimator) -> float:
    """Epochs of the fit as a share of ``max_iter``; held-out rows may select fewer."""
    share = getattr(estimator, "replay_", {}).get("epochs_of_fit", 1.0)
    return max(share, _LEAST_SHARE)


def with_update(estimator, table: Table, kept: Kept | None, n_rows: int) -> Kept:
    """Sample of all rows after an update.

    estimator : before the update
    """
    before = getattr(estimator, "replay_", {})
    of_fit = {name: before[name] for name in _OF_FIT if name in before}
    if kept is None:  # earlier rows no longer count
        of_fit["weight_of_fit"] = float(table.sample_weight.sum())
    sample = update_reservoir(table, kept, n_rows, int(estimator.seeds_[0]))
    return sample | of_fit


def with_kept(table: Table, kept: Kept | None) -> Table:
    """Append kept rows to new rows, with the total weight of all earlier rows."""
    if kept is None or not len(kept["y"]) or kept["y"].shape[1:] != table.y.shape[1:]:
        return table  # other targets raise an error later
    weights = kept["sample_weight"]
    weights = weights * (kept["weight_seen"] / weights.sum())
    return _appended(table, kept["X"], kept["y"], weights)


def with_refused(table: Table, kept: Kept | None) -> Table:
    """Append the rows that earlier updates did not take."""
    y = None if kept is None else kept.get(REFUSED + "y")
    if kept is None or y is None or y.shape[1:] != table.y.shape[1:]:
        return table
    return _appended(table, *(kept[REFUSED + name] for name in _COLUMNS))


_COLUMNS = "X", "y", "sample_weight"


def _appended(table: Table, X, y, weights) -> Table:
    X = X.astype(table.X.dtype)
    X = sparse.csr_array(X) if sparse.issparse(table.X) else X
    return table.append(Table(X, y, weights))


def refuse(table: Table, kept: Kept) -> Kept:
    """Add rows that an update did not take, if later ones confirm them.

    table : result of ``with_refused``, the newest rows first
    """
    used = np.flatnonzero(table.sample_weight > 0)[:_MAX_REFUSED]
    X: Any = table.X[used]
    X = X.toarray() if sparse.issparse(X) else X
    values = X, table.y[used], table.sample_weight[used]
    refused = zip((REFUSED + name for name in _COLUMNS), values, strict=True)
    return kept | dict(refused)


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
