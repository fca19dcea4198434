"""Outcomes of training by candidate and fold.

They are kept when a fit is interrupted or fails, so that the next ``fit`` can continue.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import joblib
from sklearn.base import BaseEstimator

# Hash or name of a candidate, and index of a fold.
Key = tuple[str, int]
Folds = Collection[int]
# Index of the fold without held-out rows.
ALL_ROWS = -1


@dataclass(frozen=True)
class TrainedFit:
    """One candidate that is trained in one fold, and not scored yet.

    Parameters
    ----------
    estimator : fitted estimator
    seconds : float
        Share of the program's training time.
    """

    estimator: BaseEstimator
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """The final outcome of one candidate in one fold.

    Parameters
    ----------
    error : Exception, or None
        The exception that training raised.
    results : sequence
        What is computed from the trained estimator. In a search: the
        score of the test rows, then of the training rows if ``return_train_score``. An
        entry is an exception if the scorer raised one.
    seconds, score_seconds : float
        Share of the program's training time, and time to score the test rows.
    """

    error: Exception | None = None
    results: Sequence[Any] = ()
    seconds: float = 0.0
    score_seconds: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether training or scoring raised an exception."""
        return self.error is not None or any(
            isinstance(result, Exception) for result in self.results
        )


@dataclass(frozen=True)
class ProgramResult:
    """What a program returns.

    Parameters
    ----------
    outcomes : dict of Key to Outcome
    unscored : dict of Key to TrainedFit
        Fits that are trained but not scored, because the scoring was interrupted.
        Without an interruption it is empty.
    """

    outcomes: dict[Key, Outcome] = field(default_factory=dict)
    unscored: dict[Key, TrainedFit] = field(default_factory=dict)


class ResultStore:
    """Outcomes by candidate and fold, for the present fit and one that continues it.

    Parameters
    ----------
    *conditions
        Values, comparable by ``==``, on which all outcomes depend.
    """

    def __init__(self, *conditions: Any) -> None:
        self._conditions = conditions
        self._outcomes: dict[Key, Outcome] = {}
        self._unscored: dict[Key, TrainedFit] = {}
        # Keeps candidates alive that are hashed by identity.
        self._candidates: list[Fingerprint] = []

    def __len__(self) -> int:
        """Number of outcomes."""
        return len(self._outcomes)

    def resumed(self, earlier: "ResultStore | None") -> "ResultStore":
        """The store of an earlier fit if the conditions are equal, or else this one."""
        if earlier is None or earlier._conditions != self._conditions:
            return self
        return earlier

    def add(self, candidates: Iterable[dict]) -> list[str]:
        """Register candidates; return their hashes, for the keys of their outcomes."""
        new = [Fingerprint.from_values(*c.keys(), *c.values()) for c in candidates]
        self._candidates += new
        return [candidate.text for candidate in new]

    def update(self, result: ProgramResult) -> None:
        """Add or replace outcomes and unscored fits."""
        self._outcomes |= result.outcomes
        unscored = self._unscored | result.unscored
        self._unscored = {
            key: fit for key, fit in unscored.items() if key not in self._outcomes
        }

    def outcomes(self, candidates: Iterable[str], folds: Folds) -> list[Outcome]:
        """Outcomes of some candidates, fold by fold."""
        return [self._outcomes[name, fold] for name in candidates for fold in folds]

    def known(self, candidates: Iterable[str], folds: Folds) -> dict[Key, Outcome]:
        """The outcomes that exist already."""
        keys = product(candidates, folds)
        return {key: self._outcomes[key] for key in keys if key in self._outcomes}

    def unscored(self, candidates: Iterable[str], folds: Folds) -> dict[Key, Any]:
        """The trained fits that an interruption left unscored."""
        keys = product(candidates, folds)
        return {key: self._unscored[key] for key in keys if key in self._unscored}

    def missing(self, candidates: Iterable[str], folds: Folds) -> dict[str, list[int]]:
        """The folds to train, by candidate; only candidates that have any."""
        done = self._outcomes.keys() | self._unscored.keys()
        missing = {
            name: [fold for fold in folds if (name, fold) not in done]
            for name in candidates
        }
        return {name: open_folds for name, open_folds in missing.items() if open_folds}

    def complete(self, candidates: Sequence[str], folds: Folds) -> list[int]:
        """Indices of the candidates that are scored in every fold.

        Empty if training failed for all of them.
        """
        known = [self.known([name], folds) for name in candidates]
        complete = [i for i, found in enumerate(known) if len(found) == len(folds)]
        succeeded = any(not o.error for i in complete for o in known[i].values())
        return complete if succeeded else []

    def forget(self, fold: int) -> None:
        """Remove the outcomes of a fold."""
        self._outcomes = {k: o for k, o in self._outcomes.items() if k[1] != fold}

    def forget_failures(self) -> None:
        """Remove failed outcomes, so that the next ``fit`` tries them again."""
        self._outcomes = {k: o for k, o in self._outcomes.items() if not o.has_failed}


@dataclass(frozen=True)
class Fingerprint:
    """Hash of values by content, or by identity if they cannot be pickled.

    Parameters
    ----------
    text : str
    by_identity : list
        The objects that are hashed by identity. They are kept alive, so that no later
        object has the same hash.
    """

    text: str
    by_identity: list = field(compare=False)

    @classmethod
    def from_values(cls, *values: Any) -> "Fingerprint":
        """Hash some values."""
        by_identity: list = []
        return cls("".join(_hash(value, by_identity) for value in values), by_identity)


def _hash(value, by_identity: list) -> str:
    try:
        return joblib.hash(value)
    except Exception:  # It cannot be pickled.
        pass
    # Hash the parts: an object can change and keep its identity.
    if isinstance(value, BaseEstimator):
        parts: Iterable = (type(value), vars(value))
    elif isinstance(value, dict):
        parts = (*value.keys(), *value.values())
    elif isinstance(value, list | tuple):
        parts = value
    else:
        by_identity.append(value)
        return f"id{id(value)}"
    return f"({','.join(_hash(part, by_identity) for part in parts)})"


def without_frames(error: Exception) -> Exception:
    """Drop the traceback, whose frames keep tables and networks alive."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error
