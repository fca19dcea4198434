"""Fit networks to the rows of a source, which need not fit into memory.

    survey   one pass over all rows, with a random sample of them (`_survey.py`)
    job      from the sample: encoding of the columns, standardisation, held-out rows
    buffers  rows of blocks in random order, encoded, a part of the table at a time; a
             thread fills the next buffer while the networks train on the present one
    train    one training of the engine, whose epochs are buffers: learning rate, warm-
             ups and optimiser run over all passes

A pass over the table has several buffers of the same number of rows. The engine
shuffles the rows of a buffer.
"""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from skbayesnn import _validation
from skbayesnn._data.sources import (
    working_memory,
)
from skbayesnn._data.training_rows import BufferedRows
from skbayesnn._data.validation import (
    Table,
    check_classification,
    refuse_one_class,
)
from skbayesnn._engine.config import Hook, TrainingConfig
from skbayesnn._engine.held_out_tau import Ensemble, HeldOutTauUpdater, draws_together
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.step import RowPerturbation
from skbayesnn._engine.training import (
    Trained,
    Training,
    initial_posterior,
    validation_draws,
)
from skbayesnn._engine.training_random import hashed_uniform
from skbayesnn._runtime import snapshot, wait_for
from skbayesnn.estimators import _fit
from skbayesnn.estimators._continuation import (
    Checkpoint,
    Continuable,
    Start,
    possible_starts,
)
from skbayesnn.estimators._defaults import defaults_of, hidden_layer_sizes
from skbayesnn.estimators._job import TrainedJob, TrainingJob, held_out_groups
from skbayesnn.estimators._selection import held_out_noise
from skbayesnn.estimators._survey import Part, Survey, TrainingSource, located, survey
from skbayesnn.estimators._training_data import training_data

# Share of the working memory for a buffer; there are two.
_SHARE_OF_BUFFER = 1 / 8
# Most rows of the sample that are held out to estimate the observation noise, and their
# largest share.
_MAX_HELD_OUT, _SHARE_HELD_OUT = 5000, 0.1
# Rows that are standardised at once, in double precision.
_ROWS_IN_CACHE = 1024
# Parts of a buffer, which may come from different blocks.
_PARTS_OF_BUFFER = 8
# `max_iter="auto"`: most steps of a training, rounded up to a pass over all rows.
MAX_STEPS = 50_000
# Posterior draws in the predictive distribution of held-out rows.
_N_DRAWS = 50


# ---- buffers: encoded rows in random order


@dataclass(frozen=True)
class Passes:
    """Division of the training into passes and buffers.

    Parameters
    ----------
    n_passes, n_buffers : int
        Number of passes over the table, and of buffers of a pass.
    n_rows : int
        Rows of a buffer.
    n_batches : int
        Batches of a buffer.
    """

    n_passes: int
    n_buffers: int
    n_rows: int
    n_batches: int

    @classmethod
    def of(cls, estimator, n_rows: int, bytes_of_row: int) -> "Passes":
        """Divide ``n_rows`` rows so that a buffer stays within the working memory."""
        most = max(1, int(working_memory() * _SHARE_OF_BUFFER / bytes_of_row))
        n_buffers = math.ceil(n_rows / most)
        of_buffer = math.ceil(n_rows / n_buffers)
        batch = min(_validation.batch_rows(estimator.batch_size, n_rows), of_buffer)
        n_batches = math.ceil(of_buffer / batch)
        max_iter = estimator.max_iter
        if isinstance(max_iter, str):
            steps = defaults_of(estimator).steps_per_sqrt_n * math.sqrt(n_rows)
            steps = min(steps, MAX_STEPS)
            _validation.epochs(max_iter, n_rows, n_batches, 1)  # checks the name
            n_passes = math.ceil(steps / (n_buffers * n_batches))
        else:
            n_passes = _validation.epochs(max_iter, n_rows, n_batches, 1)
        return cls(n_passes, n_buffers, of_buffer, n_batches)

    @property
    def n_epochs(self) -> int:
        """Number of buffers of all passes, which are the epochs of the engine."""
        return self.n_passes * self.n_buffers


class Buffer(NamedTuple):
    """Standardised rows in the precision of the training.

    Parameters
    ----------
    x : ndarray of shape (rows, inputs)
    y : ndarray of shape (rows, targets), or class indices (rows,)
    weights : ndarray of shape (rows,)
        Divided by their mean over the table.
    ids : ndarray of shape (rows,), int
    """

    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    ids: np.ndarray

    def at(self, positions) -> "Buffer":
        """Some of these rows."""
        return Buffer(*(values[positions] for values in self))


@dataclass(frozen=True)
class Encoder:
    """Encodes rows of the source as the network takes them.

    Parameters
    ----------
    estimator : BayesianNetwork
        With the columns of the fit.
    job : TrainingJob
        Of the sample.
    sample_ids : ndarray of int
        Positions of the rows of the sample, in the order of its table.
    factor_of_class : dict of label to float
        Class weights; empty without.
    mean_weight : float
    """

    estimator: Any
    job: TrainingJob
    sample_ids: np.ndarray
    factor_of_class: dict
    mean_weight: float

    @property
    def dtype(self) -> np.dtype:
        """Type of the training's numbers."""
        return np.dtype(str(self.job.config.dtype).removeprefix("torch."))

    def __call__(self, part: Part) -> Buffer:
        job, classes = self.job, self.job.data.classes
        with located(part.place):
            if classes is None:
                table = self.estimator._check_held_out(
                    part.X, part.y, None, job.data.target_attributes
                )
            else:
                table, _ = check_classification(
                    self.estimator, part.X, part.y, None, reset=False, classes=classes
                )
                table = replace(table, ranks=job.data.table.ranks)
        weights = part.weights * table.sample_weight / self.mean_weight
        if job.config.likelihood.of_intervals:
            intervals = job.scaling.intervals_to_network(table.as_intervals())
            y = intervals.astype(self.dtype)
        elif classes is None:
            # Rare rows at a bound count as values if the sample has none of them.
            y = job.scaling.y_to_network(table.y).astype(self.dtype)
        else:
            y = table.codes
        if classes is not None and self.factor_of_class:
            factors = np.array([self.factor_of_class[c] for c in classes.tolist()])
            weights = weights * factors[table.y]
        features = self._features(part, table)
        x = np.empty(features.shape, self.dtype)
        for start in range(0, len(x), _ROWS_IN_CACHE):
            rows = slice(start, start + _ROWS_IN_CACHE)
            x[rows] = job.scaling.x_to_network(features[rows])
        return Buffer(x, y, weights, part.ids)

    def _features(self, part: Part, table: Table) -> np.ndarray:
        """Features, without the row's own y in statistics of y."""
        encoder = getattr(self.estimator, "table_", None)
        if encoder is None or not encoder.uses_y:
            return table.X
        return with_sampled_rows(table.X, part.ids, self.job.table.X, self.sample_ids)


def with_sampled_rows(
    X: np.ndarray, ids: np.ndarray, sample: np.ndarray, sample_ids: np.ndarray
) -> np.ndarray:
    """A copy of encoded rows; rows of the sample are as the sample has them.

    ids : positions of the rows in the source
    sample_ids : positions of the sample's rows, sorted
    """
    at = np.searchsorted(sample_ids, ids)
    at = np.minimum(at, len(sample_ids) - 1)
    is_sampled = sample_ids[at] == ids
    X = X.copy()
    X[is_sampled] = sample[at[is_sampled]]
    return X


class Buffers:
    """The buffers of a training, in order.

    Parameters
    ----------
    training : TrainingSource
    encode : Encoder
    passes : Passes
    held_out : Part
        Rows that are left out, and their groups with all their rows.
    seed : int
    """

    def __init__(
        self,
        training: TrainingSource,
        encode: Encoder,
        passes: Passes,
        held_out: Part,
        seed: int,
    ):
        self._training, self._encode, self._passes = training, encode, passes
        self._held_out_ids, self._seed = np.sort(held_out.ids), seed
        # Here and not in a thread, in which scikit-learn has its default settings.
        part = max(1, passes.n_rows // _PARTS_OF_BUFFER)
        self._n_at_once = min(training.rows_at_once, part)
        self._n_open = training.n_open
        self._held_out_groups = None
        if held_out.groups is not None and len(held_out.ids):
            self._held_out_groups = np.unique(held_out.groups)

    def from_number(self, first: int) -> Iterator[Buffer]:
        """Iterate over the buffers from one on.

        All have the same arrays: use a buffer before the next one is requested.
        """
        spare: Buffer | None = None
        n, n_buffers = self._passes.n_rows, self._passes.n_buffers
        for n_pass in range(first // n_buffers, self._passes.n_passes):
            # A pass has exactly its number of buffers: with too few rows, the last one
            # is filled up from the start of the pass.
            number, n_filled = n_pass * n_buffers, 0
            end = number + n_buffers
            for rows in chain.from_iterable(self._again(n_pass)):
                start = 0
                spare = spare or _empty(rows, n)
                while start < len(rows.ids) and number < end:
                    stop = min(len(rows.ids), start + n - n_filled)
                    place = slice(n_filled, n_filled + stop - start)
                    for target, values in zip(spare, rows, strict=True):
                        target[place] = values[start:stop]
                    start, n_filled = stop, place.stop
                    if n_filled == n:
                        if number >= first:
                            yield spare
                        number, n_filled = number + 1, 0
                if number == end:
                    break

    def _again(self, n_pass: int) -> Iterator[Iterator[Buffer]]:
        """The rows of a pass, as often as they are requested."""
        while True:
            yield self._encoded(n_pass)

    def _encoded(self, n_pass: int) -> Iterator[Buffer]:
        random = np.random.default_rng([self._seed, n_pass])
        rows = self._training.source.shuffled(random, self._n_at_once, self._n_open)
        for part in self._training.parts(rows):
            out = np.isin(part.ids, self._held_out_ids, assume_unique=True)
            if self._held_out_groups is not None and part.groups is not None:
                out |= np.isin(part.groups, self._held_out_groups)
            kept = part if not out.any() else part.at(np.flatnonzero(~out))
            if len(kept.ids):
                encoded = self._encode(kept)
                used = encoded.weights > 0
                yield encoded if used.all() else encoded.at(used)


def _empty(like: Buffer, n: int) -> Buffer:
    return Buffer(*(np.empty((n, *v.shape[1:]), v.dtype) for v in like))


class Refill(Hook):
    """Hook that loads the next buffer after each epoch of the engine.

    A thread fills it during the epoch. An error while reading ends the training, so
    that the finished part is kept.

    Parameters
    ----------
    rows : BufferedRows
    buffers : iterator of Buffer
        Those after the present one. They have the same arrays.
    perturbation : PerturbationById, or None
    """

    def __init__(
        self,
        rows: BufferedRows,
        buffers: Iterator[Buffer],
        perturbation: "PerturbationById | None",
    ):
        self._rows, self._buffers, self._perturbation = rows, buffers, perturbation
        self._pool = ThreadPoolExecutor(1)
        # The thread has the settings of NumPy and of warnings of this one.
        self._context = copy_context()
        self._fill()

    def _fill(self) -> None:
        """Start to fill the next buffer, if there is one."""
        run = self._context.run
        self._next = self._pool.submit(run, lambda: next(self._buffers, None))

    def epoch_end(self, n_done, posterior):
        try:
            [buffer] = wait_for([self._next])
        except Exception as error:
            raise KeyboardInterrupt from error
        if buffer is not None:
            if self._perturbation is not None:
                self._perturbation.renew(buffer.ids, buffer.weights)
            self._rows.load(buffer.x, buffer.y, buffer.weights)
            self._fill()

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(cancel_futures=True)


class PerturbationById(RowPerturbation):
    """Perturbation of the rows of a buffer, a function of seed and position.

    So a row has the same perturbation in all passes.

    Parameters
    ----------
    config : TrainingConfig
    seeds : ndarray of shape (members,), int
    rows : BufferedRows
    buffer : Buffer
        The rows of the first buffer.
    """

    def __init__(
        self, config: TrainingConfig, seeds: np.ndarray, rows: BufferedRows, buffer
    ):
        self._seeds, self._n_targets = seeds, config.likelihood.gaussian_targets
        self.on_y = self._n_targets > 0
        width = max(1, self._n_targets)
        shape = (len(seeds), len(buffer.ids), width)
        self.values = torch.zeros(shape).to(rows.mean_weight)
        self.renew(buffer.ids, buffer.weights)

    def renew(self, ids: np.ndarray, weights: np.ndarray) -> None:
        """Compute the perturbation of other rows, in place."""
        for member, seed in enumerate(self._seeds):
            for target in range(self.values.shape[2]):
                uniform = [_uniform(int(seed), ids, 2 * target + k) for k in range(2)]
                if self.on_y:
                    radius = np.sqrt(-2 * np.log1p(-uniform[0]))
                    values = radius * np.cos(2 * np.pi * uniform[1]) / np.sqrt(weights)
                else:
                    values = _gamma_quantile(weights, uniform[0]) / weights
                self.values[member, :, target] = torch.as_tensor(values)


def _gamma_quantile(shape: np.ndarray, probability: np.ndarray) -> np.ndarray:
    if (shape == 1).all():
        return -np.log1p(-probability)
    from scipy.special import gammaincinv

    return gammaincinv(shape, probability)


def _uniform(seed: int, ids: np.ndarray, stream: int) -> np.ndarray:
    """Uniform numbers in [0, 1), a hash of seed, stream and position."""
    return hashed_uniform(seed, stream + 1, ids + 1)


# ---- the fit


def refuse_validation_set(X_val, y_val) -> None:
    """Raise for a validation set, which is not supported for sources."""
    if X_val is not None or y_val is not None:
        raise ValueError(
            "`X_val` and `y_val` must be left out if X is a source of rows: early "
            "stopping holds out random rows. Fit to a table in memory to give them."
        )


def fit_source(
    estimator,
    new,
    training: TrainingSource,
    *,
    variance_source: str | None = None,
    checkpoint: Checkpoint | None = None,
) -> TrainedJob:
    """Train the networks of an estimator on all rows of a source.

    estimator : with the parameters, and the state of an earlier fit
    new : copy that gets the fitted attributes
    variance_source : of the configuration of the training, by default as for a table
    returns : trained networks, with the sample as the rows of their job

    Raises
    ------
    KeyboardInterrupt, Exception
        If the training is interrupted, or reading fails. The finished part is stored
        in ``estimator._unfinished``, for the next call.
    """
    fingerprint = training.fingerprint
    # It sets the rows of the sample and of a buffer.
    memory = repr(working_memory())
    for possible in possible_starts(estimator):
        start = possible.of_rows(fingerprint, is_kept=True, working_memory=memory)
        if start is not None:
            break
    assert start is not None, "the last possible start fits any rows"
    twin = start.estimator
    seed = _seed_of(twin)
    # An unfinished model in memory has the survey, too.
    found = getattr(twin, "_survey", None) if start.unfinished else None
    found = found or survey(new, training, seed)
    job, posterior = _job(start, new, found)
    if variance_source is not None:
        job = job.with_config(variance_source=variance_source)
    plan = _Plan.of(estimator, new, training, found, job, seed, start.is_warm)

    def trained_job(trained: Trained) -> TrainedJob:
        return TrainedJob(
            plan.job,
            _by_pass(plan.with_noise(trained), plan.passes),
            start.n_epochs_before,
            plan.total_weight - plan.job.total_weight,
        )

    resumable = Continuable(start, snapshot(new), plan.job, trained_job)
    in_legs = checkpoint and partial(checkpoint.train_in_legs, resumable)
    trained = plan.train(estimator, posterior, start, in_legs)
    if trained.interrupted:
        unfinished = resumable.unfinished_model(trained)
        unfinished._survey = found
        # In `new` for a fit that returns, in `estimator` for one that raises.
        new._unfinished = estimator._unfinished = unfinished
        if not estimator.warm_start:
            raise trained.lost or KeyboardInterrupt
    return trained_job(trained)


def _seed_of(estimator) -> int:
    """Seed of the sample and of the order of the rows."""
    # The job draws from a source of the same seed: take another number.
    random_state = _validation.random_source(estimator.random_state)
    return int(random_state.randint(2**31, size=2)[1])


def _job(start: Start, new, found: Survey) -> tuple[TrainingJob, Posterior | None]:
    """The job of the sample, and the fitted posterior of a warm start."""
    sample, estimator = found.sample, start.estimator
    data = training_data(
        new,
        sample.X,
        sample.y,
        sample.weights,
        groups=sample.groups,
        reset=not start.is_warm,
    )
    if data.classes is not None:
        refuse_one_class(new, data.classes)
    hidden = None
    if not start.is_warm:
        hidden = hidden_layer_sizes(estimator, found.weight)
    return start.job(data, hidden, estimator.likelihood)


@dataclass(frozen=True)
class _Plan:
    """A training on all rows.

    Parameters
    ----------
    job : TrainingJob
        Of the sample, with the schedule of all rows.
    passes : Passes
    buffers : Buffers
    held_out : Buffer
        Encoded rows that no network trains on.
    total_weight : float
        N, without held-out rows.
    is_weighted : bool
    """

    job: TrainingJob
    passes: Passes
    buffers: Buffers
    held_out: Buffer
    total_weight: float
    is_weighted: bool

    @classmethod
    def of(
        cls, estimator, new, training, found: Survey, job, seed: int, warm: bool
    ) -> "_Plan":
        """Plan the training: held-out rows, class weights, passes and schedule.

        warm : whether the length scale of the fit before is kept
        """
        job, sample = replace(job, settings=()), found.sample
        factors = found.class_factors(getattr(estimator, "class_weight", None))
        weight, n_rows = found.weighted(factors)
        encode = Encoder(new, job, sample.ids, factors, weight / n_rows)
        out = _held_out(job, sample, seed)
        # Without held-out rows, of one row: an empty buffer has its types and columns.
        held_out = encode(sample.at(out if len(out) else np.arange(1)))
        held_out = held_out.at(slice(len(out)))
        n_out, weight_out = len(out), float(held_out.weights.sum()) * encode.mean_weight
        if sample.groups is not None:
            # All rows of the groups are left out; the sample shows their share.
            share = len(out) / len(sample.ids)
            n_out, weight_out = int(share * n_rows), share * weight
        total_weight = weight - weight_out
        row_bytes = (job.table.X.shape[1] + 2) * encode.dtype.itemsize
        passes = Passes.of(estimator, max(1, n_rows - n_out), row_bytes)
        if not warm:
            fan_ins = job.config.network.prior_fan_ins
            scale = estimator._length_scales(fan_ins, total_weight)
            job = job.with_length_scale(scale)
        if job.estimates_tau:
            tau = 1 / job.variance_of_y
            job = job.with_members(tau=tau, learns_likelihood=False)
        patience = job.config.patience
        job = job.with_epochs(passes.n_epochs).with_config(
            n_batches=passes.n_batches,
            patience=patience and patience * passes.n_buffers,
            keep_interrupted=True,
        )
        encode = replace(encode, job=job)
        buffers = Buffers(training, encode, passes, sample.at(out), seed)
        first = sample.weights[0]
        is_equal = math.isclose(found.weight, found.n_rows * first)
        is_weighted = bool(factors) or not (
            is_equal and (sample.weights == first).all()
        )
        return cls(job, passes, buffers, held_out, total_weight, is_weighted)

    def train(
        self, estimator, posterior: Posterior | None, start: Start, in_legs
    ) -> Trained:
        """Train on all rows.

        posterior : of a warm start
        in_legs : as in ``_fit.run``
        returns : trained networks, with an epoch for each buffer
        """
        job, passes = self.job, self.passes
        suits_gpu = job.config.suits_gpu(passes.n_rows)
        device = _validation.devices_for_fit(estimator.device, suits_gpu)[0]
        dtype = job.config.computed_in(device)
        before = start.before(device, dtype)
        n_done = 0 if before is None else before.epochs_done
        buffers = self.buffers.from_number(min(n_done, passes.n_epochs - 1))
        first = next(buffers)
        rows = self._rows(first, device, dtype)
        perturbation = None
        if job.config.perturbed:
            perturbation = PerturbationById(job.config, job.members.seeds, rows, first)
        hooks: list[Hook] = []
        if job.estimates_tau and len(self.held_out.ids):
            ensemble = Ensemble(np.arange(job.n_members)[None], passes.n_epochs)
            tau = job.members.tau
            hooks.append(HeldOutTauUpdater(rows, [ensemble], _N_DRAWS, tau))
        if posterior is None:
            posterior = initial_posterior(job.config, job.members, device, dtype)
        del first  # the thread overwrites it
        refill = Refill(rows, buffers, perturbation)
        try:
            return _fit.run(
                [estimator],
                Training(
                    job.config,
                    job.members,
                    rows,
                    posterior,
                    first_epoch=start.n_epochs_before,
                    hooks=[*hooks, refill],
                    perturbation=perturbation,
                    before=before,
                ),
                rows_of_epoch=passes.n_rows,
                in_legs=in_legs,
            )
        finally:
            refill.close()

    def _rows(self, buffer: Buffer, device, dtype) -> BufferedRows:
        """Training rows in a buffer, and the held-out rows, on the device."""
        x, y, weights, _ = map(np.concatenate, zip(buffer, self.held_out, strict=True))
        return BufferedRows(
            Table(x, y, weights),
            self.job.n_members,
            len(buffer.ids),
            device,
            dtype,
            self.total_weight,
            self.is_weighted,
        )

    def with_noise(self, trained: Trained) -> Trained:
        """Estimate the observation noise on held-out rows."""
        job, out, posterior = self.job, self.held_out, trained.posterior
        if not (job.estimates_variance and len(out.ids)):
            return trained
        # The held-out rows stand for the training rows, too, which are not used.
        rows = self._rows(out, posterior.device, posterior.dtype)
        alive = np.flatnonzero(trained.failed == 0)
        draws = validation_draws(posterior, rows, _N_DRAWS, [alive])
        together = draws_together(next(draws).cpu().double().numpy())
        values = held_out_noise(job, together, self.held_out.y, self.held_out.weights)
        if values is None:
            return trained
        return replace(trained, posterior=posterior.with_predictive_params(values))


def _held_out(job: TrainingJob, sample: Part, seed: int) -> np.ndarray:
    """Rows of the sample for early stopping, or to estimate the noise."""
    held_out = job.row_subsets[0].held_out_rows
    if len(held_out) or not job.estimates_variance:
        return np.sort(held_out)
    n = len(sample.ids)
    size = min(_MAX_HELD_OUT, int(_SHARE_HELD_OUT * n))
    if sample.groups is None:
        random = np.random.default_rng([seed, 1])
        return np.sort(random.choice(n, size, replace=False))
    seed %= 2**31
    return np.flatnonzero(held_out_groups(sample.groups, None, size / n, seed))


def _by_pass(trained: Trained, passes: Passes) -> Trained:
    """Average the history over the buffers of every pass."""
    n = passes.n_buffers

    def averaged(values):
        if values is None:
            return None
        starts = range(0, len(values), n)
        return np.stack([values[i : i + n].mean(0) for i in starts])

    return replace(
        trained,
        nll=averaged(trained.nll),
        kl=averaged(trained.kl),
        validation=averaged(trained.validation),
        n_epochs=-(-trained.n_epochs // n),
        failed=-(-trained.failed // n),
    )
