"""Outcomes of training and scoring, by candidate and fold.

They are kept when a search is interrupted, so that the next ``fit`` can continue.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import joblib
from sklearn.base import BaseEstimator

# The hash of a candidate, and the index of a fold.
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


Outcomes = dict[Key, Outcome | TrainedFit]


def without_unscored(outcomes: Outcomes) -> dict[Key, Outcome]:
    """The outcomes, without trained fits that are not scored."""
    return {k: value for k, value in outcomes.items() if isinstance(value, Outcome)}


class ResultStore:
    """Outcomes by candidate and fold; before the scoring, trained fits."""

    def __init__(self, n_folds: int) -> None:
        self._n_folds = n_folds
        self._outcomes: Outcomes = {}
        # Keeps the candidates alive, so that no later object can get an equal hash.
        self._candidates: dict[str, dict] = {}

    def add(self, candidates: Iterable[dict]) -> list[str]:
        """Register candidates; return their hashes, the keys of their outcomes."""
        hashes = []
        for candidate in candidates:
            hashes.append(hash_values(*candidate.keys(), *candidate.values()))
            self._candidates[hashes[-1]] = candidate
        return hashes

    def update(self, outcomes: Mapping[Key, Outcome | TrainedFit]) -> None:
        """Add or replace outcomes."""
        self._outcomes.update(outcomes)

    def of(self, candidates: Iterable[str]) -> list[Outcome]:
        """All outcomes of some candidates, fold by fold; all of them must be scored."""
        return [cast("Outcome", self._outcomes[key]) for key in self._keys(candidates)]

    def known(self, candidates: Iterable[str]) -> Outcomes:
        """The outcomes and trained fits of some candidates that exist already."""
        keys = self._keys(dict.fromkeys(candidates))
        return {key: self._outcomes[key] for key in keys if key in self._outcomes}

    def missing(self, candidates: Iterable[str]) -> dict[str, list[int]]:
        """The folds without an outcome, by candidate; only candidates that have any."""
        folds: dict[str, list[int]] = {}
        for candidate, fold in self._keys(dict.fromkeys(candidates)):
            if (candidate, fold) not in self._outcomes:
                folds.setdefault(candidate, []).append(fold)
        return folds

    def whole(self, candidates: Sequence[str]) -> list[int]:
        """Indices of the candidates that are scored in every fold.

        Empty if training failed for all of them.
        """
        n_done = dict.fromkeys(candidates, 0)
        for (candidate, _), outcome in self.known(candidates).items():
            n_done[candidate] += isinstance(outcome, Outcome)
        whole = [i for i, c in enumerate(candidates) if n_done[c] == self._n_folds]
        outcomes = self.of(candidates[i] for i in whole)
        return [] if all(outcome.error for outcome in outcomes) else whole

    def forget_failures(self) -> None:
        """Remove failed outcomes, so that the next ``fit`` tries them again."""
        for key, outcome in list(self._outcomes.items()):
            if isinstance(outcome, Outcome) and outcome.has_failed:
                del self._outcomes[key]

    def _keys(self, candidates: Iterable[str]) -> Iterable[Key]:
        return ((c, fold) for c in candidates for fold in range(self._n_folds))


def hash_values(*values) -> str:
    """Hash of objects by content; by ``id`` if an object cannot be pickled.

    A hash by ``id`` is valid as long as the object is alive.
    """
    return "".join(map(_hash_of_one, values))


def _hash_of_one(value) -> str:
    try:
        return joblib.hash(value)
    except Exception:
        return f"id{id(value)}"


def without_frames(error: Exception) -> Exception:
    """Drop the traceback, whose frames keep tables and networks alive."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error
