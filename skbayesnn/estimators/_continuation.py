"""Continue a training: an unfinished one, or one from fitted weights.

An *unfinished* model is a fitted estimator whose training has not reached its last
epoch. It predicts, and ``unfinished_`` has what the training needs in addition to the
fitted attributes. The next ``fit`` with the same rows and parameters continues it.
There are two kinds, with the same content:

    file     of ``fit(checkpoint=...)``; the training is divided into legs of some
             epochs, and the file is written after each. So whatever ends the process,
             a later one can load the file
    memory   attribute ``_unfinished`` of an estimator, after an interrupted fit to a
             source of rows

Legs exist for all ways to train: in one process, on several devices, on a cluster, in a
process group.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import joblib
import numpy as np
import torch
from scipy import sparse

from skbayesnn import _validation
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.processes import (
    LateProcessError,
    LostProcessError,
    present_processes,
)
from skbayesnn._engine.training import Trained, initial_posterior
from skbayesnn._runtime import imported, snapshot, warn, warn_once
from skbayesnn._stored import ANY, Floats, PositiveCount, Records
from skbayesnn._typing import Array
from skbayesnn.estimators import _fitted
from skbayesnn.estimators._defaults import hidden_layer_sizes
from skbayesnn.estimators._diagnostics import without_diverged
from skbayesnn.estimators._job import (
    Setting,
    TrainedJob,
    TrainingJob,
    continued_likelihood,
    random_source,
    selects_length_scale,
    training_job,
)
from skbayesnn.estimators._training_data import TrainingData

# The file is written after the first epoch, and then at most every so many seconds, and
# for at most this share of the time.
_SECONDS_BETWEEN, _SHARE_OF_TIME = 30.0, 0.05
# A leg has at most this many times the epochs of the leg before.
_MAX_GROWTH = 16
# Parameters that the continuation of a fit may change.
_FREE = {"verbose", "n_draws", "device", "warm_start"}


# ---- how a fit starts


@dataclass(frozen=True)
class Start:
    """How a fit starts: with new networks, fitted ones, or an unfinished training.

    Parameters
    ----------
    estimator : BayesianNetwork
        With the parameters of this fit, and the fitted networks, if it starts from
        them.
    n_epochs_before : int
        Number of epochs of the fits before, of a warm start.
    unfinished : dict, or None
        ``unfinished_`` of the training that it continues.
    identity : dict, or None
        ``identity`` of the fit, if a later one may continue it.
    """

    estimator: Any
    n_epochs_before: int = 0
    unfinished: dict[str, Any] | None = None
    identity: dict[str, Any] | None = None

    @property
    def is_warm(self) -> bool:
        """Whether the first epoch started from fitted weights."""
        return self.n_epochs_before > 0

    def of_rows(self, rows: Any, is_kept: bool, **settings) -> "Start | None":
        """The start of a fit to some rows; None if the unfinished fit is another one.

        rows : what identifies the rows
        is_kept : whether a later fit may continue this one
        settings : what else a continuation needs to be the same
        """
        if not is_kept and self.unfinished is None:
            return self
        estimator, of_fit = self.estimator, identity(self.estimator, rows, **settings)
        if self.unfinished is not None and not _is_same_fit(self.unfinished, of_fit):
            return None
        if not isinstance(estimator.random_state, Integral):
            estimator = snapshot(estimator)
            estimator.random_state = (
                int(random_source(estimator).randint(2**31 - 1))
                if self.unfinished is None
                else self.unfinished["random_state"]
            )
        return replace(self, estimator=estimator, identity=of_fit)

    def job(
        self, data: TrainingData, hidden=None, likelihood: str | None = None
    ) -> tuple[TrainingJob, Posterior | None]:
        """The training job, and the fitted weights of a warm start.

        hidden, likelihood : arguments of ``training_job`` for new networks
        """
        model, state = self.estimator, self.unfinished
        if self.is_warm:
            job, posterior = continued(model, data)
        elif state is None:
            return training_job(model, data, hidden, likelihood), None
        else:
            job = training_job(model, data, hidden, continued_likelihood(model))
            setting = Setting(state["length_scale"], state["n_epochs"])
            job = job.with_setting(setting, state["predictive_params"])
            posterior = None
        alive = np.flatnonzero(np.isin(job.members.seeds, model.seeds_))
        return job.select(alive), posterior

    def before(self, device: torch.device, dtype: torch.dtype) -> Trained | None:
        """The unfinished training, if it is continued."""
        state = self.unfinished
        if state is None:
            return None
        posterior = _fitted.restore_posterior(self.estimator, device, dtype)
        return Trained(
            posterior=posterior,
            n_epochs=state["progress"]["n_epochs"],
            failed=np.zeros(posterior.n_members, dtype=int),
            interrupted=False,
            finished=False,
            optimizer=self.estimator.optimizer_,
            **{name: state[name] for name in _TRAINED},
        )

    def unfinished_state(self, job: TrainingJob, trained: Trained) -> dict[str, Any]:
        """``unfinished_`` of a model, without its networks that have failed."""
        return {
            **cast(dict, self.identity),
            "random_state": self.estimator.random_state,
            "length_scale": job.length_scale,
            "n_epochs": int(job.members.n_epochs[0]),
            "predictive_params": job.predictive_params,
            **{name: getattr(trained, name) for name in _TRAINED},
        }


_Losses = Annotated[Records, "epochs of the unfinished fit, networks"]


class UnfinishedFit(TypedDict):
    """Value of ``unfinished_``."""

    rows: str
    parameters: dict[str, str]
    random_state: int
    length_scale: Annotated[Floats, "layers"]
    n_epochs: PositiveCount
    predictive_params: dict[str, Any] | None
    nll: _Losses
    kl: _Losses
    validation: _Losses | None
    kl_constant: Annotated[Records, "networks"]
    progress: dict[str, Annotated[Array, ANY, "networks, ..."]]


# Fields of ``Trained`` that are not fitted attributes.
_TRAINED = "nll", "kl", "validation", "kl_constant", "progress"


def possible_starts(estimator) -> list[Start]:
    """Starts of a fit; the first one that has these rows is taken."""
    warm = _validation.check_bool("warm_start", estimator.warm_start)
    warm = warm and hasattr(estimator, "parameters_")
    starts = [Start(estimator, estimator.n_epochs_seen_ if warm else 0)]
    model = estimator
    if not hasattr(model, "unfinished_"):
        model = estimator._unfinished
    if model is not None:
        before = model.n_epochs_seen_ - model.n_iter_
        if model is not estimator:
            model = snapshot(model)
            vars(model).update(estimator.get_params(deep=False))
        if warm or not before:
            starts.insert(0, Start(model, before, model.unfinished_))
    return starts


def identity(estimator, rows: Any, **settings) -> dict[str, Any]:
    """What identifies a fit and its continuation.

    rows : result of ``rows_of``, or what identifies the rows of a source
    """
    params = estimator.get_params(deep=False) | settings
    if not isinstance(params["random_state"], Integral):
        params["random_state"] = None
    return {
        "rows": joblib.hash(rows),
        "parameters": {n: repr(v) for n, v in params.items() if n not in _FREE},
    }


def rows_of(data: TrainingData) -> list:
    """Arrays that identify the rows of a table in memory."""
    table, X = data.table, cast(Any, data.table.X)
    inputs = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
    return [
        *inputs,
        table.y,
        table.intervals,
        table.sample_weight,
        data.groups,
        data.validation,
    ]


def _is_same_fit(state: dict[str, Any], of_fit: dict[str, Any]) -> bool:
    """Whether a fit continues an unfinished one; warn if it does not."""
    before, now = state["parameters"], of_fit["parameters"]
    changed = [n for n in {**before, **now} if before.get(n) != now.get(n)]
    if state["rows"] == of_fit["rows"] and not changed:
        return True
    what = f"the parameters {', '.join(changed)} have" if changed else "the rows have"
    warn(
        "SKB111",
        f"the model contains an unfinished fit, but {what} changed: this fit does not "
        "continue it. To continue, call fit with the rows and parameters of that fit.",
    )
    return False


# ---- from fitted weights


def continued(
    estimator, data: TrainingData, seen: float = 0.0
) -> tuple[TrainingJob, Posterior]:
    """Return a job with the scaling and seeds of the fit, and the fitted posterior.

    seen : total weight of the earlier rows that are not in ``data``
    """
    fitted_sizes = tuple(estimator.network_.get("sizes", ())[1:-1])
    hidden = hidden_layer_sizes(estimator, np.inf, fitted_sizes)
    job = training_job(estimator, data, hidden, continued_likelihood(estimator))
    fan_ins = job.config.network.prior_fan_ins
    scale = _length_scale(estimator, fan_ins, seen + job.total_weight)
    job = job.with_length_scale(scale)
    estimator._check_can_continue(job, data.target_attributes)
    job = job.resumed_from(_fitted.restore_scaling(estimator), estimator.seeds_)
    # Parameters such as `dropout` may have changed since the fit.
    device = job.devices(estimator.device)[0]
    dtype = job.config.computed_in(device)
    untrained = initial_posterior(job.config, job.members, device, dtype)
    posterior = _fitted.restore_posterior(estimator, device, dtype)
    return job, posterior.at_rates_of(untrained)


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


def check_same_network(estimator, job: TrainingJob, target_attributes: dict) -> None:
    """Raise ``ValueError`` if a job has other networks or targets than the fit."""
    _check_same_targets(estimator, job, target_attributes)
    old = estimator.network_
    new = _fitted.describe_network(job.config.network, job.config.likelihood)
    changed = [n for n in {**old, **new} if old.get(n) != new.get(n)]
    if changed:
        before, now = (
            ", ".join(f"{name}={description.get(name)}" for name in changed)
            for description in (old, new)
        )
        _refuse("network", f"the fitted network has {before}, got {now}")
    n_members = len(estimator.seeds_)
    if job.n_members != n_members:
        _refuse(
            f"number of networks, {n_members}",
            f"got n_estimators={estimator.n_estimators}",
            f"Set n_estimators={n_members}",
        )


def _check_same_targets(estimator, job: TrainingJob, target_attributes: dict) -> None:
    """Raise if y has other classes, or another number of targets, than the fit."""
    if "classes_" not in target_attributes:
        now, before = job.scaling.n_targets, len(estimator.y_mean_)
        if now != before:
            targets = f"{now} target{'s' * (now > 1)}"
            _refuse("targets", f"y has {targets}, the model has {before}")
        return
    now, before = target_attributes["classes_"], estimator.classes_
    if not np.array_equal(now, before):
        _refuse(
            "classes",
            f"y has {len(now)} classes, the model has {len(before)}: "
            f"{now.tolist()[:10]} and {before.tolist()[:10]}",
        )


def _refuse(what: str, got: str, way_out: str = "Set the parameters back") -> None:
    raise ValueError(
        f"continued training (warm_start, partial_fit) must keep the {what}; {got}. "
        f"{way_out}, set warm_start=False, or fit a clone."
    )


# ---- unfinished models, in memory and in files


@dataclass(frozen=True)
class Continuable:
    """A training that a later fit can continue.

    Parameters
    ----------
    start : Start
    columns : BayesianNetwork
        Copy of the estimator, with the fitted attributes that depend on the columns.
    job : TrainingJob
        After the selection on held-out rows.
    trained_job : callable
        Converts the networks so far to what the fit stores.
    """

    start: Start
    columns: Any
    job: TrainingJob
    trained_job: Callable[[Trained], TrainedJob]

    def unfinished_model(self, trained: Trained):
        """A fitted estimator that contains the networks so far."""
        model = snapshot(self.columns)
        with warnings.catch_warnings():
            # They are given at the end of the fit, if they still hold.
            warnings.simplefilter("ignore")
            model._store_fitted(without_diverged(self.trained_job(trained)))
        alive = np.flatnonzero(np.isin(trained.posterior.seeds, model.seeds_))
        state = self.start.unfinished_state(self.job, trained.select(alive))
        model.unfinished_ = state
        return model


class Checkpoint:
    """The file of a fit.

    Parameters
    ----------
    path : str or path-like
    """

    def __init__(self, path: str | PathLike):
        if not isinstance(path, str | PathLike):
            raise TypeError(
                "`checkpoint` must be the path of a file; got "
                f"{type(path).__name__}, {path!r:.100}."
            )
        self._path = Path(path)
        # Stored, because after a loss a further call would connect again.
        self._processes = present_processes()
        self._is_writer = self._processes is None or self._processes.rank == 0
        if not self._is_writer:
            return
        if not self._path.resolve().parent.is_dir():
            raise FileNotFoundError(
                f"the folder of `checkpoint` must exist; got {str(path)!r}. Create it "
                "first."
            )
        if self._path.is_dir():
            raise IsADirectoryError(
                "`checkpoint` must be the path of a file; got the folder "
                f"{str(path)!r}. Give the name of a file in it."
            )
        # The folder of files is above the estimators.
        is_model_file = imported("skbayesnn._persistence.file_format").is_model_file
        if self._path.is_file() and not is_model_file(self._path):
            raise FileExistsError(
                "`checkpoint` must be a new file, or one of skbayesnn.save, which is "
                f"replaced; got {str(path)!r}, which has other content. Give another "
                "name, or remove the file."
            )

    def train_in_legs(
        self,
        training: Continuable,
        leg: Callable[[Trained | None, int], Trained],
        trained: Trained | None,
    ) -> Trained:
        """Train until the end or an interruption; write the file after each leg.

        leg : continues the training up to an epoch
        trained : unfinished result to continue, or None
        """
        n_epochs = 1
        while trained is None or not trained.finished:
            start = time.monotonic()
            n_before = 0 if trained is None else trained.epochs_done
            try:
                if self._processes:
                    n_epochs = self._processes.of_first(n_epochs)
                trained = leg(trained, n_before + n_epochs).after(trained)
            except (KeyboardInterrupt, LostProcessError, LateProcessError) as error:
                if trained is None:
                    raise
                lost = error if isinstance(error, OSError) else None
                trained = replace(trained, interrupted=True, lost=lost)
            if trained.interrupted:
                self._write_unfinished(training, trained)
                return self._with_path(trained)
            if not trained.finished:
                seconds = time.monotonic() - start
                start = time.monotonic()
                self._write_unfinished(training, trained)
                wanted = (time.monotonic() - start) / _SHARE_OF_TIME
                share = max(wanted, _SECONDS_BETWEEN) / max(seconds, 1e-9)
                n_epochs = max(1, int(n_epochs * min(share, _MAX_GROWTH)))
        return trained

    def _with_path(self, trained: Trained) -> Trained:
        """The result, with the file in the error for a lost process."""
        error = trained.lost
        if not isinstance(error, LostProcessError | LateProcessError):
            return trained
        text = (
            f"{error.args[0]} The last finished epochs are in {str(self._path)!r}: "
            "load it in the next run, and call fit with the same rows and parameters."
        )
        return replace(trained, lost=type(error)(text))

    def _write_unfinished(self, training: Continuable, trained: Trained) -> None:
        if self._is_writer:
            self.write(training.unfinished_model(trained))

    def write(self, model) -> None:
        """Write a fitted model; warn if the file cannot be written."""
        if not self._is_writer:
            return
        try:
            imported("skbayesnn._persistence.functions").save(model, self._path)
        except OSError as error:
            state = "has earlier epochs" if self._path.exists() else "does not exist"
            warn_once(
                "SKB505",
                "checkpoint",
                f"the checkpoint {str(self._path)!r} could not be written "
                f"({error.strerror or error}). The fit continues, and tries again at "
                f"the next checkpoint; until then the file {state}. Free space on the "
                "disk, or make the folder writable.",
            )
