"""What is known of every candidate in every fold; it survives an interruption."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import joblib
from sklearn.base import BaseEstimator

# A candidate's hash, and the number of a fold.
Key = tuple[str, int]


@dataclass
class Outcome:
    """What became of one candidate in one fold.

    Parameters
    ----------
    error : Exception, or None
        Why it could not be trained.
    scores : list
        What the scorer said, or the exception that it raised: of the test rows, then
        of the training rows if these are asked for.
    seconds, score_seconds : float
        Its share of its program's time, and the time to score the test rows.
    n_epochs : int
    estimator : estimator, or None
        Trained, as long as it has not been scored.
    """

    error: Exception | None = None
    scores: list[Any] = field(default_factory=list)
    seconds: float = 0.0
    score_seconds: float = 0.0
    n_epochs: int = 0
    estimator: BaseEstimator | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the training or a scorer has raised an exception."""
        return self.error is not None or any(
            isinstance(score, Exception) for score in self.scores
        )


class ResultStore:
    """Outcomes by candidate and fold.

    Only what was trained and not scored holds a network.
    """

    def __init__(self, n_folds: int) -> None:
        self._n_folds = n_folds
        self._outcomes: dict[Key, Outcome] = {}
        # As long as these are there, their hashes are theirs alone.
        self._candidates: dict[str, dict] = {}

    def add(self, candidates: Iterable[dict]) -> list[str]:
        """The candidates' hashes, under which their outcomes are kept."""
        hashes = []
        for candidate in candidates:
            hashes.append(hash_of(*candidate.keys(), *candidate.values()))
            self._candidates[hashes[-1]] = candidate
        return hashes

    def update(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Keep some more outcomes."""
        self._outcomes.update(outcomes)

    def of(self, candidates: Iterable[str]) -> list[Outcome]:
        """All outcomes of some candidates, fold by fold."""
        return [self._outcomes[key] for key in self._keys(candidates)]

    def known(self, candidates: Iterable[str]) -> dict[Key, Outcome]:
        """The outcomes that there are of some candidates."""
        keys = self._keys(dict.fromkeys(candidates))
        return {key: self._outcomes[key] for key in keys if key in self._outcomes}

    def missing(self, candidates: Iterable[str]) -> dict[str, list[int]]:
        """The folds of which nothing is known, of candidates that have such."""
        folds: dict[str, list[int]] = {}
        for candidate, fold in self._keys(dict.fromkeys(candidates)):
            if (candidate, fold) not in self._outcomes:
                folds.setdefault(candidate, []).append(fold)
        return folds

    def whole(self, candidates: Sequence[str]) -> list[int]:
        """Numbers of the candidates that are done in every fold.

        None where all of them failed.
        """
        n_done = dict.fromkeys(candidates, 0)
        for (candidate, _), outcome in self.known(candidates).items():
            n_done[candidate] += outcome.estimator is None
        whole = [i for i, c in enumerate(candidates) if n_done[c] == self._n_folds]
        outcomes = self.of(candidates[i] for i in whole)
        return [] if all(outcome.error for outcome in outcomes) else whole

    def forget_failures(self) -> None:
        """What has failed is tried again when it is asked for."""
        for key in [k for k, outcome in self._outcomes.items() if outcome.has_failed]:
            del self._outcomes[key]

    def _keys(self, candidates: Iterable[str]) -> Iterable[Key]:
        return ((c, fold) for c in candidates for fold in range(self._n_folds))


def hash_of(*things) -> str:
    """Hash of objects; what cannot be pickled is equal only to itself.

    Such a hash holds as long as the object is there.
    """
    return "".join(map(_hash_of_one, things))


def _hash_of_one(thing) -> str:
    try:
        return joblib.hash(thing)
    except Exception:
        return f"id{id(thing)}"


def without_frames(error: Exception) -> Exception:
    """Without the tables and networks that the frames of a traceback hold."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error
