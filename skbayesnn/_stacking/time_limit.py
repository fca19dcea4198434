"""Which candidates a fit with a time limit trains, and how many refits it can pay."""

from collections.abc import Iterator, Sequence

import numpy as np

from skbayesnn._stacking.candidates import Candidate
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._progress import FitProgress

# Default candidates in the order of their value for their seconds; others come last.
ORDER = "linear", "laplace", "encoded", "network", "boosted_trees", "forest"
# Share of the limit for trainings. The rest is for what happens between them.
FOR_TRAININGS = 0.9
# Share of the candidates, by their seconds, that are expected to have weight.
SHARE_REFITTED = 0.5


def n_training_rows(splits: Sequence[tuple]) -> int:
    """Training rows of all folds together."""
    return sum(len(train) for train, _ in splits)


class TimePlan:
    """The time that candidates take, and what the rest of the limit allows.

    Parameters
    ----------
    log : FitProgress
        It has the limit.
    n_rows : int
        Rows of the fits to all rows.
    splits : sequence of (train, test)
        The folds in which candidates are trained.
    seconds : dict of str to float
        Seconds of each candidate in these folds; extended.
    expected : dict of str to float
        Estimates of them.
    """

    def __init__(
        self,
        log: FitProgress,
        n_rows: int,
        splits: Sequence[tuple],
        seconds: dict[str, float],
        expected: dict[str, float],
    ):
        self._log, self.seconds, self._expected = log, seconds, expected
        self._starts: dict[str, int] = {}
        # Seconds of a refit, as a multiple of the seconds in these folds.
        self._ratio = n_rows / n_training_rows(splits)
        self._spare = (1 - FOR_TRAININGS) * log.left

    @property
    def _left(self) -> float:
        return self._log.left - self._spare

    def groups(
        self, candidates: Sequence[Candidate], share: float = 1.0
    ) -> Iterator[list[Candidate]]:
        """Yield the candidates to be trained; with a limit, one group after another.

        A group is left out if the limit does not suffice for it and for the refits.
        A group is one network, or other models of one kind, which share a fit.

        share : of the time that is left
        """
        if not self._log.has_limit:
            yield list(candidates)
            return
        kept_for_later = (1 - share) * self._left
        groups: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            is_network = isinstance(candidate.model, BayesianNetwork)
            key = candidate.name if is_network else candidate.spec.name
            groups.setdefault(key, []).append(candidate)
        ordered = sorted(groups.values(), key=_place)
        cheapest = min(ordered, key=self._expected_seconds)
        longest: dict[str, float] = {}
        for group in ordered:
            kind = group[0].spec.name
            unknown = longest.get(kind, max(longest.values(), default=0.0))
            costs = [
                self.seconds.get(c.name, self._expected.get(c.name, unknown))
                for c in group
            ]
            is_done = all(c.name in self.seconds for c in group)
            cost = self._ratio * sum(costs) + SHARE_REFITTED * self.of_refits([])
            if not is_done:
                cost += sum(costs)
            is_needed = not self.seconds and group is cheapest
            if cost > self._left - kept_for_later and not is_needed:
                self._log.is_cut = True
                continue
            before = self._log.left
            yield group
            seconds = (before - self._log.left) / len(group)
            if not is_done:
                self.seconds |= dict.fromkeys((c.name for c in group), seconds)
            longest[kind] = max(longest.get(kind, 0.0), self.seconds[group[0].name])

    def _expected_seconds(self, group: list[Candidate]) -> float:
        return sum(self._expected.get(c.name, 0.0) for c in group)

    def of_refits(self, candidates: Sequence[Candidate], n_starts=1) -> float:
        """Seconds of the fits to all rows; without candidates, of all so far."""
        names = [c.name for c in candidates] or list(self.seconds)
        seconds = np.array([self.seconds[name] for name in names])
        return float(self._ratio * np.sum(n_starts * seconds))

    def payable(
        self, kept: Sequence[Candidate], weights: np.ndarray, n_refits: Sequence[int]
    ) -> tuple[list[Candidate], list[int]]:
        """Candidates that can be fitted to all rows, and the starts of each.

        At least the candidate with the largest weight.
        """
        wanted = np.array(n_refits)
        if not self._log.has_limit:
            return list(kept), list(n_refits)
        share = self._left / max(self.of_refits(kept, wanted), 1e-9)
        starts = np.clip((wanted * share).astype(int), 1, wanted)
        # A fit after another candidate has failed keeps the starts.
        starts = np.array(
            [self._starts.get(c.name, n) for c, n in zip(kept, starts, strict=True)]
        )
        self._log.is_cut |= bool((starts < wanted).any())
        order = np.argsort(-weights, kind="stable")
        seconds = np.array([self.of_refits([kept[i]], starts[i]) for i in order])
        is_paid = np.cumsum(seconds) <= self._left
        is_paid[0] = True
        paid = sorted(order[is_paid])
        if len(paid) == len(kept):
            self._starts |= {c.name: int(n) for c, n in zip(kept, starts, strict=True)}
        return [kept[i] for i in paid], [int(starts[i]) for i in paid]


def _place(group: list[Candidate]) -> int:
    name = group[0].spec.name
    return ORDER.index(name) if name in ORDER else len(ORDER)
