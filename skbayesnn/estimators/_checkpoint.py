"""Write the networks of a fit to a file during the training, and continue from it.

With a checkpoint, the training is divided into legs of some epochs. After each leg the
file gets a fitted estimator, with all that the next leg needs in ``unfinished_``. So
whatever ends the process, a later one can load the file and continue. Legs exist for
all ways to train: in one process, on several devices, on a cluster, in a process group.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, cast

import joblib
import numpy as np
import torch
from scipy import sparse

from skbayesnn._engine.processes import (
    LateProcessError,
    LostProcessError,
    present_processes,
)
from skbayesnn._engine.training import Trained
from skbayesnn._runtime import snapshot, warn, warn_once
from skbayesnn.estimators import _fitted
from skbayesnn.estimators._job import Setting, TrainedJob, TrainingJob, random_source
from skbayesnn.estimators._training_data import TrainingData

# The file is written after the first epoch, and then at most every so many seconds, and
# for at most this share of the time.
_SECONDS_BETWEEN, _SHARE_OF_TIME = 30.0, 0.05
# A leg has at most this many times the epochs of the leg before.
_MAX_GROWTH = 16
# Parameters that the continuation of a fit may change.
_FREE = {"verbose", "n_draws", "device", "warm_start"}


class Checkpoint:
    """The file of a fit.

    Parameters
    ----------
    path : str or path-like
    model : BayesianNetwork
        Copy of the estimator, with the fitted attributes that depend on the columns.
    store : callable
        Stores a ``TrainedJob`` in a model: its arguments are the model, the job, the
        number of epochs of earlier fits, and the total weight of rows that are not
        in the job.
    """

    # ``skbayesnn.save``, and whether it may have written a file. Its module sets them,
    # since it imports the estimators.
    save: ClassVar[Callable[[Any, Path], None]]
    is_model_file: ClassVar[Callable[[Path], bool]]

    def __init__(self, path: str | PathLike, model, store: Callable):
        if not isinstance(path, str | PathLike):
            raise TypeError(
                "`checkpoint` must be the path of a file; got "
                f"{type(path).__name__}, {path!r:.100}."
            )
        self._path, self._model, self._store = Path(path), model, store
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
        if self._path.is_file() and not Checkpoint.is_model_file(self._path):
            raise FileExistsError(
                "`checkpoint` must be a new file, or one of skbayesnn.save, which is "
                f"replaced; got {str(path)!r}, which has other content. Give another "
                "name, or remove the file."
            )

    def begin(
        self,
        trained_job: Callable[[Trained], TrainedJob],
        unfinished: dict[str, Any] | None = None,
        n_before: int = 0,
        seen: float = 0.0,
    ) -> None:
        """Prepare for the training.

        trained_job : converts the networks so far to what the fit stores
        unfinished : ``identity`` and ``settings_of`` of the fit. None: no later fit
            can continue it.
        n_before, seen : arguments of ``store``
        """
        self._trained_job, self._unfinished = trained_job, unfinished
        self._n_before, self._seen = n_before, seen

    def train_in_legs(
        self, leg: Callable[[Trained | None, int], Trained], trained: Trained | None
    ) -> Trained:
        """Train until the end or an interruption; write the file after each leg.

        leg : continues a training up to an epoch
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
                self._write(trained)
                return self._with_path(trained)
            if not trained.finished:
                seconds = time.monotonic() - start
                start = time.monotonic()
                self._write(trained)
                wanted = (time.monotonic() - start) / _SHARE_OF_TIME
                share = max(wanted, _SECONDS_BETWEEN) / max(seconds, 1e-9)
                n_epochs = max(1, int(n_epochs * min(share, _MAX_GROWTH)))
        return trained

    def _with_path(self, trained: Trained) -> Trained:
        """The result, with the file in the error for a lost process."""
        error = trained.lost
        if error is None:
            return trained
        text = (
            f"{error.args[0]} The last finished epochs are in {str(self._path)!r}: "
            "load it in the next run, and call fit with the same rows and parameters."
        )
        return replace(trained, lost=type(error)(text))

    def _write(self, trained: Trained) -> None:
        """Write the networks so far, and what the training needs to continue."""
        if not self._is_writer:
            return
        model, state = snapshot(self._model), None
        with warnings.catch_warnings():
            # They are given at the end of the fit, if they still hold.
            warnings.simplefilter("ignore")
            trained_job = self._trained_job(trained)
            self._store(model, trained_job, self._n_before, self._seen)
        if self._unfinished is not None:
            alive = np.flatnonzero(np.isin(trained.posterior.seeds, model.seeds_))
            state = self._unfinished | _state_of(trained.select(alive))
        self.write(model, state)

    def write(self, model, unfinished: dict[str, Any] | None = None) -> None:
        """Write a fitted model; warn if the file cannot be written."""
        if not self._is_writer:
            return
        model = snapshot(model)
        vars(model).pop("unfinished_", None)
        if unfinished is not None:
            model.unfinished_ = unfinished
        try:
            type(self).save(model, self._path)
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


# ---- the state of an unfinished fit


def _state_of(trained: Trained) -> dict[str, Any]:
    """What ``restored`` needs in addition to the fitted attributes."""
    return {
        "nll": trained.nll,
        "kl": trained.kl,
        "validation": trained.validation,
        "kl_constant": trained.kl_constant,
        "progress": trained.progress,
    }


def restored(model, device: torch.device, dtype: torch.dtype) -> Trained:
    """The unfinished training of a model from a file."""
    state = model.unfinished_
    posterior = _fitted.restore_posterior(model, device, dtype)
    return Trained(
        posterior=posterior,
        nll=state["nll"],
        kl=state["kl"],
        validation=state["validation"],
        n_epochs=state["progress"]["n_epochs"],
        kl_constant=state["kl_constant"],
        failed=np.zeros(posterior.n_members, dtype=int),
        interrupted=False,
        finished=False,
        optimizer=model.optimizer_,
        progress=state["progress"],
    )


def identity(estimator, rows: Any) -> dict[str, Any]:
    """What identifies a fit and its continuation.

    rows : result of ``rows_of``, or what identifies the rows of a source
    """
    params = estimator.get_params(deep=False)
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
    return [*inputs, table.y, table.sample_weight, data.groups, data.validation]


def is_continued(model, of_fit: dict[str, Any]) -> bool:
    """Whether a fit continues the unfinished one of a model; warn if it does not.

    of_fit : ``identity`` of the fit
    """
    state = getattr(model, "unfinished_", None)
    if state is None:
        return False
    before, now = state["parameters"], of_fit["parameters"]
    changed = [n for n in {**before, **now} if before.get(n) != now.get(n)]
    if state["rows"] == of_fit["rows"] and not changed:
        return True
    what = f"the parameters {', '.join(changed)} have" if changed else "the rows have"
    warn(
        "SKB111",
        f"the file contains an unfinished fit, but {what} changed: this fit does not "
        "continue it. To continue, call fit with the rows and parameters of that fit.",
    )
    return False


def seeded(estimator, *, continued: bool):
    """The estimator, or a copy whose random state is an integer.

    continued : whether the integer is the one of its unfinished fit
    """
    if isinstance(estimator.random_state, Integral):
        return estimator
    twin = snapshot(estimator)
    if continued:
        twin.random_state = estimator.unfinished_["random_state"]
    else:
        twin.random_state = int(random_source(estimator).randint(2**31 - 1))
    return twin


def settings_of(estimator, job: TrainingJob) -> dict[str, Any]:
    """What a continuation needs to build the same job.

    estimator : result of ``seeded``
    job : after the selection on held-out rows
    """
    return {
        "random_state": estimator.random_state,
        "length_scale": job.length_scale,
        "n_epochs": int(job.members.n_epochs[0]),
        "predictive_params": job.predictive_params,
    }


def with_settings_of(job: TrainingJob, model) -> TrainingJob:
    """The job of the unfinished fit of a model, with its networks."""
    state = model.unfinished_
    setting = Setting(state["length_scale"], state["n_epochs"])
    job = job.with_setting(setting, state["predictive_params"])
    return with_networks_of(job, model)


def with_networks_of(job: TrainingJob, model) -> TrainingJob:
    """The job without networks that had failed when the file was written."""
    alive = np.flatnonzero(np.isin(job.members.seeds, model.seeds_))
    [row_subset] = job.row_subsets
    return replace(
        job,
        members=job.members.select(alive),
        row_subsets=(replace(row_subset, n_members=len(alive)),),
    )
