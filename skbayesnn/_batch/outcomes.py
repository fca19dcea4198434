"""Outcomes of training by candidate and fold.

They are kept when a fit is interrupted or fails, so that the next ``fit`` can continue.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import joblib
from sklearn.base import BaseEstimator

# Hash or name of a candidate, and index of a fold.
Key = tuple[str, int]


@dataclass(frozen=True)
class TrainedFit:
    """One candidate that is trained in one fold, and not scored yet.

    Parameters
    ----------
    estimator : fitted estimator
    seconds : float
        Share of the program's training time.
    n_epochs : int
    """

    estimator: BaseEstimator
    seconds: float = 0.0
    n_epochs: int = 0


@dataclass(frozen=True)
class Outcome:
    """The final outcome of one candidate in one fold.

    Parameters
    ----------
    error : Exception, or None
        The exception that training raised.
    results : sequence
        What a ``ResultBuilder`` computes from the trained estimator. In a search: the
        score of the test rows, then of the training rows if ``return_train_score``. An
        entry is an exception if the scorer raised one.
    seconds, score_seconds : float
        Share of the program's training time, and time to score the test rows.
    n_epochs : int
    """

    error: Exception | None = None
    results: Sequence[Any] = ()
    seconds: float = 0.0
    score_seconds: float = 0.0
    n_epochs: int = 0

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
    n_folds : int
    *conditions
        Values, comparable by ``==``, on which all outcomes depend.
    """

    def __init__(self, n_folds: int, *conditions: Any) -> None:
        self._n_folds = n_folds
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

    def outcomes(self, candidates: Iterable[str]) -> list[Outcome]:
        """All outcomes of some candidates, fold by fold."""
        return [self._outcomes[key] for key in self._keys(candidates)]

    def known(self, candidates: Iterable[str]) -> dict[Key, Outcome]:
        """The outcomes of some candidates that exist already."""
        keys = self._keys(dict.fromkeys(candidates))
        return {key: self._outcomes[key] for key in keys if key in self._outcomes}

    def unscored(self, candidates: Iterable[str]) -> dict[Key, TrainedFit]:
        """The trained fits of some candidates that an interruption left unscored."""
        keys = self._keys(dict.fromkeys(candidates))
        return {key: self._unscored[key] for key in keys if key in self._unscored}

    def missing(self, candidates: Iterable[str]) -> dict[str, list[int]]:
        """The folds to train, by candidate; only candidates that have any."""
        folds: dict[str, list[int]] = {}
        for candidate, fold in self._keys(dict.fromkeys(candidates)):
            key = candidate, fold
            if key not in self._outcomes and key not in self._unscored:
                folds.setdefault(candidate, []).append(fold)
        return folds

    def complete(self, candidates: Sequence[str]) -> list[int]:
        """Indices of the candidates that are scored in every fold.

        Empty if training failed for all of them.
        """
        n_scored = Counter(name for name, _ in self.known(candidates))
        complete = [i for i, c in enumerate(candidates) if n_scored[c] == self._n_folds]
        outcomes = self.outcomes(candidates[i] for i in complete)
        return [] if all(outcome.error for outcome in outcomes) else complete

    def forget_failures(self) -> None:
        """Remove failed outcomes, so that the next ``fit`` tries them again."""
        for key, outcome in list(self._outcomes.items()):
            if outcome.has_failed:
                del self._outcomes[key]

    def _keys(self, candidates: Iterable[str]) -> Iterable[Key]:
        return ((c, fold) for c in candidates for fold in range(self._n_folds))


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
