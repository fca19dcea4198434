"""The progress bar of a search."""

from collections.abc import Mapping, Sequence
from numbers import Real

import numpy as np

from skbayesnn._batch.outcomes import Key, Outcome
from skbayesnn.estimators._fit import tqdm_bar


class SearchProgress:
    """Counts trained members, and shows the best mean score of each metric.

    Parameters
    ----------
    n_members, n_folds : int

    Raises
    ------
    ImportError
        If tqdm is not installed.
    """

    def __init__(self, n_members: int, n_folds: int):
        self._n_folds = n_folds
        # All members of a program finish together. smoothing=0 estimates the time left
        # from the mean speed since the start.
        self._bar = tqdm_bar(total=n_members, unit="member", smoothing=0)
        self._outcomes: dict[str, list[Outcome]] = {}
        self._best: dict[str, float] = {}

    def __enter__(self) -> "SearchProgress":
        return self

    def __exit__(self, *_) -> None:
        self._bar.close()

    def add(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Add the outcomes of further members."""
        for (candidate, _), outcome in outcomes.items():
            done = self._outcomes.setdefault(candidate, [])
            done.append(outcome)
            if len(done) == self._n_folds:
                self._update_best(_mean_scores(done))
            self._bar.set_postfix_str(self._best_text(), refresh=False)
            self._bar.update(1)

    def _update_best(self, scores: dict[str, float]) -> None:
        for name, score in scores.items():
            if score > self._best.get(name, -np.inf):
                self._best[name] = score

    def _best_text(self) -> str:
        best = ", ".join(f"{name} {score:.4g}" for name, score in self._best.items())
        return f"best {best}" if best else ""


def _mean_scores(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Mean test score of every metric; NaN where a member or its scoring failed."""
    scores = [o.results[0] if o.results else np.nan for o in outcomes]
    names = {name for score in scores if isinstance(score, dict) for name in score}
    if not names:
        names, scores = {"score"}, [{"score": score} for score in scores]
    dicts = [score if isinstance(score, dict) else {} for score in scores]
    return {
        name: float(np.mean([_float_or_nan(score.get(name)) for score in dicts]))
        for name in sorted(names)
    }


def _float_or_nan(score) -> float:
    return float(score) if isinstance(score, Real) else np.nan
