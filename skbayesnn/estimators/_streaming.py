"""Update a fit with new rows, as they arrive in a stream.

In a stream, a network forgets rows that it does not see again. To prevent this, a
uniform sample of all earlier rows is kept and replayed [Vitter 1985, "Random sampling
with a reservoir"; Rolnick et al. 2019, "Experience replay for continual learning",
arXiv:1811.11682]. The kept rows are weighted for all earlier rows.

An update trains twice the networks, from the fitted weights: some on all rows, the
others without a part of the new rows. These rows estimate the noise, and show whether
the update is better than the fit before.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np
import torch
from scipy import sparse
from scipy.special import stdtrit

from skbayesnn import _validation
from skbayesnn._data.training_rows import RowSubset
from skbayesnn._data.validation import Table
from skbayesnn._engine.config import MemberRows
from skbayesnn._engine.held_out_tau import draws_together
from skbayesnn._engine.members import select
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.training import (
    validation_density,
    validation_draws,
)
from skbayesnn._likelihoods import likelihood_from
from skbayesnn._runtime import warn
from skbayesnn._stored import NOT_NEGATIVE, Count, Floats, Numbers
from skbayesnn.estimators import _fit, _fitted
from skbayesnn.estimators._continuation import continued
from skbayesnn.estimators._defaults import defaults_of, hidden_layer_sizes
from skbayesnn.estimators._job import (
    TrainedJob,
    TrainingJob,
    continued_likelihood,
    training_job,
)
from skbayesnn.estimators._selection import held_out_noise
from skbayesnn.estimators._survey import smallest_keys
from skbayesnn.estimators._training_data import TrainingData

# ---- the call

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


class Update(NamedTuple):
    """Result of ``PartialFit.train``.

    Parameters
    ----------
    trained_job : TrainedJob, or None
        None if the update is not taken.
    is_fit : bool
        Whether it is a whole fit.
    replay : Kept, or None
        The rows to keep.
    n_kept : int
        Number of rows of the trained job to keep, without ``replay``.
    """

    trained_job: TrainedJob | None
    is_fit: bool = False
    replay: "Kept | None" = None
    n_kept: int = 0


@dataclass(frozen=True)
class PartialFit:
    """Checked arguments of ``partial_fit``.

    Parameters
    ----------
    n_epochs, n_replay : int or "auto"
    n_total : float, or None
    renews : bool
        Whether the present posterior is the prior of a full fit to the new rows.
    """

    n_epochs: int | str
    n_replay: int | str
    n_total: float | None
    renews: bool

    @classmethod
    def checked(cls, estimator, n_epochs, n_replay, n_total, prior) -> "PartialFit":
        """Check the arguments."""
        _validation.check_auto_or_integer("n_epochs", n_epochs, low=1)
        _validation.check_auto_or_integer("n_replay", n_replay, low=0)
        if _validation.stops_early(estimator.early_stopping, 0, math.inf):
            raise ValueError(
                "`partial_fit` must be used without early stopping, which would hold "
                "out other rows; got early_stopping=True. Set it to False, or use "
                "`fit`."
            )
        if prior is not None:
            _validation.check_option("prior", prior, ["previous"])
            if n_epochs != "auto" or n_replay != "auto":
                raise ValueError(
                    "prior='previous' runs a full fit and replays no rows, so "
                    "`n_epochs` and `n_replay` must not be set; got n_epochs="
                    f"{n_epochs!r}, n_replay={n_replay!r}. Leave them out, or set "
                    "prior=None."
                )
            estimator._check_normal_posterior()
            return cls("auto", 0, None, True)
        if n_total is not None:
            # A pass over parts of one table, which may come again.
            n_epochs = 1 if isinstance(n_epochs, str) else n_epochs
            n_replay = 0 if isinstance(n_replay, str) else n_replay
        return cls(n_epochs, n_replay, n_total, False)

    def train(self, estimator, table: Table, target_attributes: dict) -> Update:
        """Train on new rows; return the networks and the rows to keep.

        table : the new rows
        """

        def data_of(table: Table) -> TrainingData:
            rows = np.flatnonzero(table.sample_weight > 0)
            return TrainingData(table, rows, None, target_attributes)

        is_first = not hasattr(estimator, "parameters_")
        if table.intervals is not None or (
            not is_first
            and likelihood_from(estimator.network_["likelihood"]).of_intervals
        ):
            raise ValueError(
                "`partial_fit` requires exact values of y; got intervals, a point "
                "mass, or rows at a bound of y. Call `fit` with all rows in memory."
            )
        if self.renews:
            data = data_of(table)
            renewed = _whole_fit if is_first else _fit_with_posterior_prior
            return Update(renewed(estimator, data), is_fit=True)
        n_kept = n_kept_rows(self.n_replay, table.X.shape[1])
        kept = getattr(estimator, "replay_", None) if n_kept else None
        data = data_of(with_kept(table, kept))
        weights = estimator._row_weights(data.table, data.rows, data.classes)
        seen = 0.0
        if self.n_total is not None:
            weight = float(weights.sum())
            seen = _validation.check_number("n_total", self.n_total, low=weight)
            seen -= weight
        elif not is_first:
            # Replayed rows are part of `total_weight_`: subtract their weight.
            weight_kept = float(weights[data.rows >= len(table.y)].sum())
            seen = estimator.total_weight_ - weight_kept
        if is_first:
            is_fit = isinstance(self.n_epochs, str)
            begun = _begun(estimator, data, self.n_epochs, seen)
            return Update(begun, is_fit, n_kept=n_kept)
        if n_kept and kept is None:
            warn("SKB114", _NO_ROWS)
        refused = data_of(with_refused(table, kept))
        trial = _Trial.of(estimator, data, len(table.y), self.n_epochs)
        trained_job, warning, is_alone = trial.compared(data, refused, seen)
        if trained_job is None:
            warn("SKB113", warning)
            return Update(None, replay=kept and refuse(refused.table, kept))
        if is_alone:
            warn("SKB112", warning)
            table, kept = refused.table, None
        elif isinstance(self.n_epochs, str) and _has_outgrown_its_fit(
            estimator, data, seen
        ):
            whole = replace(_whole_fit(estimator, data), seen=seen)
            return Update(whole, is_fit=True, n_kept=n_kept)
        if not n_kept:
            return Update(trained_job)
        replay = with_update(estimator, table, kept, n_kept)
        return Update(trained_job, replay=replay)


def _whole_fit(estimator, data: TrainingData) -> TrainedJob:
    """A fit as ``fit`` makes it."""
    [trained_job] = _fit.train_together([estimator], [training_job(estimator, data)])
    before = getattr(estimator, "n_epochs_seen_", 0)
    return replace(trained_job, n_epochs_before=before)


def _begun(
    estimator, data: TrainingData, n_epochs: int | str, others: float
) -> TrainedJob:
    """Fit to the first rows of a stream.

    n_epochs : number of epochs without a selection; "auto" for a whole fit
    others : total weight of the rows to come, if it is known
    """
    # The total number of rows may be unknown: size the layers for many.
    hidden = hidden_layer_sizes(estimator, math.inf)
    job = training_job(estimator, data, hidden, continued_likelihood(estimator))
    if isinstance(n_epochs, str):
        [trained_job] = _fit.train_together([estimator], [job])
        return trained_job
    if others:
        fan_ins, n_rows = job.config.network.prior_fan_ins, others + job.total_weight
        job = job.with_length_scale(estimator._length_scales(fan_ins, n_rows))
    return _trained(estimator, job.with_epochs(n_epochs), None, others)


def _fit_with_posterior_prior(estimator, data: TrainingData) -> TrainedJob:
    """Run a full fit whose prior is the fitted posterior."""
    job, posterior = continued(estimator, data)
    job = job.under_prior(_fitted.prior_from(posterior))
    return _trained(estimator, job, posterior)


def _trained(
    estimator, job: TrainingJob, posterior: Posterior | None, seen: float = 0.0
) -> TrainedJob:
    """Train a job without a selection on held-out rows."""
    devices = job.devices(estimator.device)
    before = getattr(estimator, "n_epochs_seen_", 0)
    training = job.training(devices[0], posterior, seen, first_epoch=before)
    trained = _fit.run([estimator], training, devices=devices)
    return TrainedJob(job, trained, before, seen)


def _has_outgrown_its_fit(estimator, data: TrainingData, seen: float) -> bool:
    """Whether there are far more rows than in the last whole fit, and all are kept.

    The layers, the prior and the standardisation then suit another number of rows.
    """
    kept = getattr(estimator, "replay_", {})
    if len(kept.get("y", ())) < kept.get("n_seen", 0):
        return False
    n_rows = data.table.sample_weight.sum()
    before = kept.get("weight_of_fit", math.inf)
    return bool(n_rows >= _GROWN * before and seen <= _ROUNDING * n_rows)


# ---- an update: trained twice, and compared with the fit before

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
_NO_ROWS = (
    "no earlier rows are kept, after a call with n_replay=0 or without `replay_`: the "
    "network may forget them. Call `fit`, or pass n_replay=0 if this is intended."
)


@dataclass(frozen=True)
class _Trial:
    """Trains networks on all rows, and others without a part of the new rows.

    Parameters
    ----------
    estimator : BayesianNetwork
        Before the update.
    n_epochs : int or "auto"
        "auto" is a share of the epochs of the fit.
    held_out, new, kept : ndarray of int
        Rows that are compared. All networks train on ``new`` and ``kept``.
    """

    estimator: Any
    n_epochs: int | str
    held_out: np.ndarray
    new: np.ndarray
    kept: np.ndarray

    @classmethod
    def of(cls, estimator, data: TrainingData, n_new: int, n_epochs) -> "_Trial":
        """Choose the rows at random.

        data : new rows, followed by kept rows
        """
        seeds = int(estimator.seeds_[0]), estimator.n_epochs_seen_
        rows = np.random.default_rng(seeds).permutation(data.rows)
        new, kept = rows[rows < n_new], rows[rows >= n_new]
        n = min(int(_SHARE_HELD_OUT * len(new)), _MAX_HELD_OUT)
        new, kept = new[: n + _MAX_COMPARED], kept[:_MAX_COMPARED]
        return cls(estimator, n_epochs, new[:n], new[n:], kept)

    def compared(
        self, data: TrainingData, refused: TrainingData, seen: float
    ) -> tuple[TrainedJob | None, str, bool]:
        """Train, and decide whether this improves the fit.

        data : new rows, followed by kept rows
        refused : the same new rows, followed by rows that earlier updates did not take
        seen : total weight of the earlier rows that are not in ``data``
        returns : the networks, None if the update is not taken; a warning; whether
            they are trained without the kept rows, which the new rows contradict
        """
        weights = data.table.sample_weight
        of_fit, n_before = epochs_of_fit(self.estimator), self.estimator.total_weight_
        job, posterior = continued(self.estimator, data, seen)
        growth = 1 - n_before / (seen + job.total_weight) if n_before else 1.0
        share = of_fit * max(_LEAST_SHARE, _SHARE_OF_GROWTH * growth)
        n_noise = min(_ROWS_OF_NOISE, _SHARE_OF_NOISE * n_before)
        before, after, trained_job = self._train(job, posterior, share, n_noise, seen)
        of_held_out = weights[self.held_out]
        fall = Difference.paired(before.held_out, after.held_out, of_held_out)
        loss = Difference.paired(before.kept, after.kept, weights[self.kept])
        misfit = Difference.unpaired(after.kept, after.new)
        contradicts = misfit.is_clear and misfit.mean > _MISFIT
        tolerated = _LOSS
        if not contradicts and len(before.kept):
            others = np.concatenate([before.held_out, before.new])
            optimism = before.kept.mean() - others.mean()
            tolerated = np.clip(_SHARE_OF_OPTIMISM * optimism, _LOSS, _MOST_LOSS)
        is_lost = loss.is_clear and not loss.mean <= tolerated
        if contradicts or is_lost:
            alone = replace(self, kept=self.kept[:0])
            job, posterior = continued(self.estimator, refused)
            _, of_alone, alone_job = alone._train(job, posterior, of_fit)
            gains = [
                Difference.paired(of_alone.held_out, other.held_out, of_held_out)
                for other in (before, after)
            ]
            if all(difference.is_clear for difference in gains):
                return alone_job, _CHANGED.format(len(refused.rows)), True
        if is_lost:
            return None, _NOT_TAKEN.format(f"{_LOST_EARLIER} {loss}"), False
        if fall.is_clear:
            reason = f"{_LOST_NEW} {fall}"
            return None, _NOT_TAKEN.format(reason), False
        return trained_job, "", False

    def _train(
        self,
        job: TrainingJob,
        posterior: Posterior,
        share: float,
        rows_of_noise: float = 0.0,
        seen: float = 0.0,
    ) -> tuple["_Densities", "_Densities", TrainedJob]:
        """Densities before and after, and the networks that train on all rows.

        share : share of the epochs of ``max_iter``, if ``n_epochs`` is "auto"
        rows_of_noise : number of rows that the noise before counts for
        """
        estimator, held_out = self.estimator, self.held_out
        job = self._with_schedule(job, posterior, share)
        table, rows, n = job.table, job.data.rows, job.n_members
        weights = estimator._row_weights(table, rows, job.data.classes)
        scored = np.concatenate([held_out, self.new, self.kept])
        whole = RowSubset(n, rows, weights, scored, job.scaling)
        is_in = ~np.isin(rows, held_out)
        part = replace(whole, rows=rows[is_in], weights=weights[is_in])
        job = replace(job, row_subsets=(whole,))
        twice = np.tile(np.arange(n), 2)
        both = replace(
            job, members=job.members.select(twice), row_subsets=(whole, part)
        )
        before, n_epochs_before = posterior.select(twice), estimator.n_epochs_seen_
        devices = job.devices(estimator.device)
        training = both.training(
            devices[0],
            before,
            seen,
            optimizer_state=select(estimator.optimizer_, twice),
            first_epoch=n_epochs_before,
        )
        trained = _fit.run([estimator], training, devices=devices)
        training_rows = training.rows
        after = trained.posterior
        if job.estimates_variance:
            after = after.copy_predictive_params(before)
            if len(held_out):
                share = len(held_out) / (len(held_out) + rows_of_noise)
                after = _with_noise(job, before, after, training_rows, held_out, share)
            trained = replace(trained, posterior=after)
        final, check = np.split(np.arange(2 * n), 2)
        return (
            self._densities(before, training_rows, final, final),
            self._densities(after, training_rows, check, final),
            TrainedJob(job, trained.select(final), n_epochs_before, seen),
        )

    def _with_schedule(
        self, job: TrainingJob, posterior: Posterior, share: float
    ) -> TrainingJob:
        """The job with the epochs of an update."""
        n_epochs = self.n_epochs
        if isinstance(n_epochs, str):
            n_epochs = math.ceil(share * int(job.members.n_epochs[0]))
        job = job.with_epochs(n_epochs).with_config(
            kl_warm_up=0.0,
            variance_source="held_out",
            patience=None,
            keep_interrupted=False,
        )
        if self.estimator.prior_ is not None:
            job = job.under_prior(self.estimator.prior_)
        names = job.config.likelihood.predictive_params
        has_estimate = bool(set(names) & posterior.likelihood_params.keys())
        if has_estimate and (job.estimates_tau or job.perturbs_y):
            job = job.with_fixed_likelihood()
        return job

    def _densities(self, posterior, training_rows, check, final) -> "_Densities":
        """Densities of the compared rows.

        check, final : networks for the held-out rows, and for the others
        """
        of_check, of_final = (
            np.logaddexp.reduce(part.cpu().double().numpy()) - math.log(len(final))
            for part in validation_density(
                posterior, training_rows, _N_DRAWS, (check, final)
            )
        )
        ends = np.cumsum([len(self.held_out), len(self.new)])
        _, new, kept = np.split(of_final[: ends[1] + len(self.kept)], ends)
        return _Densities(of_check[: ends[0]], new, kept)


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
    def is_clear(self) -> bool:
        """Whether it is positive at the 97.5 % level of a t test; true for NaN."""
        if self.n_rows < 2:
            return False
        return not self.mean <= stdtrit(self.n_rows - 1, 0.975) * self.error

    def __str__(self):
        return f"{self.mean:.2g} nats per row (standard error {self.error:.2g})"


def _with_noise(
    job: TrainingJob,
    before: Posterior,
    after: Posterior,
    training_rows: MemberRows,
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


# ---- rows that are kept

# Value of ``replay_``: arrays with an entry per kept row, and others, with ``REFUSED``
# before their names, of rows that updates did not take; the number and the weight of
# all rows so far.
Kept = dict[str, Any]
REFUSED = "refused/"
KeptRows = TypedDict(
    "KeptRows",
    {
        "X": Annotated[Numbers, "kept rows, inputs"],
        "y": Annotated[Numbers, "kept rows, ..."],
        "sample_weight": Annotated[Floats, "kept rows", NOT_NEGATIVE],
        "key": Annotated[Floats, "kept rows"],
        "refused/X": Annotated[Numbers, "refused rows, inputs"],
        "refused/y": Annotated[Numbers, "refused rows, ..."],
        "refused/sample_weight": Annotated[Floats, "refused rows", NOT_NEGATIVE],
        "limit": float,
        "n_seen": Count,
        "weight_seen": Annotated[float, NOT_NEGATIVE],
        "epochs_of_fit": float,
        "weight_of_fit": float,
    },
    total=False,
)
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
    names = (REFUSED + name for name in _COLUMNS)
    return kept | dict(zip(names, _dense_rows(table, used), strict=True))


def update_reservoir(table: Table, kept: Kept | None, n_rows: int, seed: int) -> Kept:
    """Sample ``n_rows`` of all rows so far: those with the smallest random keys."""
    if kept is None:
        kept = {"n_seen": 0, "weight_seen": 0.0, "limit": 1.0}
    used = np.flatnonzero(table.sample_weight > 0)
    key = np.random.default_rng((seed, kept["n_seen"])).random(len(used))
    # Select first: a whole sparse table may be too large for a dense array.
    new, limit = smallest_keys(key, n_rows, kept["limit"])
    X, y, weights = _dense_rows(table, used[new])
    rows = {"X": X, "y": y, "sample_weight": weights, "key": key[new]}
    if "key" in kept:
        rows = {name: np.concatenate([kept[name], rows[name]]) for name in rows}
    sample, limit = smallest_keys(rows["key"], n_rows, limit)
    return {name: values[sample] for name, values in rows.items()} | {
        "n_seen": kept["n_seen"] + len(used),
        "weight_seen": kept["weight_seen"] + float(table.sample_weight[used].sum()),
        "limit": limit,
    }


def _dense_rows(table: Table, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """X, y and weights of some rows."""
    X: Any = table.X[rows]
    X = X.toarray() if sparse.issparse(X) else X
    return X, table.y[rows], table.sample_weight[rows]
