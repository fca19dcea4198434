"""What is known of every candidate; it survives an interruption."""

from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import cast

import numpy as np

from skbayesnn.model_selection._executor import Workshop, hash_of
from skbayesnn.model_selection._grouping import Job
from skbayesnn.model_selection._worker import Outcome, score_all

# Told of the number of members done, and of the best mean test scores so far.
Report = Callable[[int, dict[str, float]], None]


class Ledger:
    """Outcomes of candidates, by their hash, in every fold.

    Only what was trained and not scored holds a network.
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[Outcome | None]] = {}
        # As long as these are there, their hashes are theirs alone.
        self._candidates: dict[str, dict] = {}

    def outcomes(
        self, workshop: Workshop, candidates: Sequence[dict], report: Report
    ) -> Iterator[Outcome]:
        """Of each candidate in each fold; what is missing is trained when asked for.

        Raises
        ------
        KeyboardInterrupt
            What was done until then is known.
        """
        progress = _Progress(report)
        for piece in workshop.pieces(candidates):
            rows = {_name(c): self._row(workshop, c) for c in piece}
            for row in rows.values():
                progress.add(row, sum(_is_done(outcome) for outcome in row))
            self._score_the_trained(workshop, rows.values(), progress)
            places: dict[int, tuple[list, int]] = {}
            for group, outcomes in workshop.train(
                self._missing(workshop, piece, places, progress)
            ):
                for job, outcome in zip(group, outcomes, strict=True):
                    row, fold = places[id(job)]
                    row[fold] = outcome
                    progress.add(row, _is_done(outcome))
                _pass_on_interruption(outcomes)
            for candidate in piece:
                yield from cast(list[Outcome], rows[_name(candidate)])

    def whole(self, candidates: Sequence[dict]) -> list[dict]:
        """Candidates that are done in every fold; none where all of them failed."""
        rows = {i: self._rows.get(_name(c), [None]) for i, c in enumerate(candidates)}
        done = {i: row for i, row in rows.items() if all(map(_is_done, row))}
        if all(o is None or o.error for row in done.values() for o in row):
            return []
        return [candidates[i] for i in done]

    def _row(self, workshop, candidate) -> list[Outcome | None]:
        self._candidates[_name(candidate)] = candidate
        return self._rows.setdefault(_name(candidate), [None] * workshop.n_folds)

    def _missing(self, workshop, candidates, places, progress) -> list[Job]:
        """Jobs of all that is not known, and their places; failures are entered."""
        jobs = []
        for name, candidate in {_name(c): c for c in candidates}.items():
            row = self._rows[name]
            folds = [fold for fold, outcome in enumerate(row) if outcome is None]
            for fold, job in zip(folds, workshop.jobs(candidate, folds), strict=True):
                if isinstance(job, Job):
                    places[id(job)] = row, fold
                    jobs.append(job)
                else:
                    row[fold] = job
                    progress.add(row, 1)
        return jobs

    def _score_the_trained(self, workshop, rows, progress) -> None:
        """What an interruption has left trained but not scored."""
        for row in rows:
            left = [(o, fold) for fold, o in enumerate(row) if o and o.estimator]
            if left:
                outcomes, folds = zip(*left, strict=True)
                score_all(outcomes, folds, workshop.judge)
                _pass_on_interruption(outcomes)
                progress.add(row, len(left))


class _Progress:
    """Counts members, and keeps the best candidate's mean score of each metric."""

    def __init__(self, report: Report):
        self._report = report
        self._n_done = 0
        self._best: dict[str, float] = {}

    def add(self, row, n_more: int) -> None:
        """So many more members of a candidate are done."""
        if n_more and all(map(_is_done, row)):
            for name, score in _mean_scores(row).items():
                if score > self._best.get(name, -np.inf):
                    self._best[name] = score
        self._n_done += n_more
        self._report(self._n_done, self._best)


def _mean_scores(row: Sequence[Outcome]) -> dict[str, float]:
    """Mean test score of every metric; NaN where a member or its scoring failed."""
    scores = [o.scores[0] if o.scores else np.nan for o in row]
    names = {name for score in scores if isinstance(score, dict) for name in score}
    if not names:
        names, scores = {"score"}, [{"score": score} for score in scores]
    of_all = [score if isinstance(score, dict) else {} for score in scores]
    return {
        name: float(np.mean([_number(score.get(name)) for score in of_all]))
        for name in sorted(names)
    }


def _number(score) -> float:
    return float(score) if isinstance(score, Real) else np.nan


def _is_done(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.estimator is None


def _pass_on_interruption(outcomes: Sequence[Outcome]) -> None:
    """A program that was interrupted has estimators left that are not scored."""
    if not all(map(_is_done, outcomes)):
        raise KeyboardInterrupt


def _name(candidate: dict) -> str:
    return hash_of(*candidate.keys(), *candidate.values())
