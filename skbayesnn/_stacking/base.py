"""The two stacks: cross-fitted candidates, their weights, and a fit to all rows."""

import time
from abc import ABCMeta, abstractmethod
from numbers import Integral
from typing import Any

import numpy as np
import sklearn
from joblib import hash as hash_of
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import (
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    check_cv,
)
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from skbayesnn._data.validate import check_inputs
from skbayesnn._meta.functions import open_predictive
from skbayesnn._predictive.mixin import OpenPredictive, PredictiveMixin
from skbayesnn._stacking import pool as default
from skbayesnn._stacking.candidates import (
    Candidate,
    Rows,
    candidates_of,
    held_out,
    refitted,
)
from skbayesnn._stacking.mixture import OutOfFold, best_factor, corrected, pooled
from skbayesnn._stacking.summary import Summary
from skbayesnn._warnings import warn
from skbayesnn.estimators import _validation
from skbayesnn.estimators._prepared import prepare
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.model_selection._executor import Resources

# With fewer rows, folds; from here on a fifth of the rows, held out once.
FOLDS_BELOW, N_FOLDS = 700, 5


class BayesianStacking(PredictiveMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of both; see the classes for the parameters."""

    _of_classes: bool
    # What an interrupted fit has found out, and for which data.
    _unfinished: tuple[str, dict, dict] | None = None

    def fit(self, X, y, sample_weight=None, groups=None):
        """Train all candidates out of fold, weight them, and fit them to all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets, or labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Of the rows, in the likelihood of the candidates and in their weights.
        groups : array-like of shape (n_samples,), default=None
            For a ``cv`` that keeps groups together.

        Returns
        -------
        self : object
        """
        start = time.perf_counter()
        self._check_parameters()
        prepared = self._prepare(X, y, sample_weight)
        random = _validation.random_source(self.random_state)
        seed = int(random.randint(2**31 - 1))
        candidates = candidates_of(self._pool(prepared, seed))
        X, y, groups = indexable(X, np.asarray(y), groups)
        rows = Rows(X, y, sample_weight)
        splits = self._splits(X, y, groups, seed)
        fingerprint = hash_of((self.get_params(), X, y, sample_weight, splits))
        out_of_fold, refits = self._known_of_before(fingerprint)
        resources = self._resources()
        try:
            n_members = len(candidates) * len(splits)
            for n_done in held_out(candidates, rows, splits, out_of_fold, resources):
                self._say(start, f"{n_done} of {n_members} networks out of fold")
            candidates = _that_trained(candidates, splits, out_of_fold)
            found = self._weighted(candidates, splits, out_of_fold, prepared, y)
            n_draws = found["n_draws"]
            kept = [one for one, n in zip(candidates, n_draws, strict=True) if n]
            settings = self._settings(kept, n_draws[n_draws > 0])
            for n_done in refitted(kept, settings, rows, refits, resources):
                self._say(start, f"{n_done} of {len(kept)} fitted to all rows")
        except KeyboardInterrupt:
            self._unfinished = fingerprint, out_of_fold, refits
            raise
        self._become(y, candidates, kept, found, refits)
        self._say(start, str(self.summary_))
        return self

    # ---- what is asked for

    def _check_parameters(self):
        _validation.check_number("n_refits", self.n_refits, kind=Integral, low=1)
        if isinstance(self.estimators, str):
            _validation.check_option("estimators", self.estimators, ["auto"])

    def _prepare(self, X, y, sample_weight):
        """The rows, checked as a network checks them."""
        if not self._is_auto:
            return None
        probe = (MCDropoutClassifier if self._of_classes else MCDropoutRegressor)()
        prepared = prepare(probe, X, y, sample_weight)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(probe, name):
                setattr(self, name, getattr(probe, name))
        return prepared

    @property
    def _is_auto(self) -> bool:
        return isinstance(self.estimators, str)

    def _pool(self, prepared, seed) -> list[default.Entry]:
        if self._is_auto:
            return default.default_pool(
                prepared.table.X,
                prepared.table.sample_weight,
                of_classes=self._of_classes,
                max_iter=self.max_iter,
                device=self.device,
                random_state=seed,
                **self._of_pool(),
            )
        return [default.Entry(*entry) for entry in self.estimators]

    def _splits(self, X, y, groups, seed) -> list[tuple]:
        """(train, test) of every fold; shuffled where a number is asked for."""
        cv, n_rows = self.cv, len(y)
        own = cv is None or isinstance(cv, Integral)
        if cv is None and n_rows >= FOLDS_BELOW:
            kind = StratifiedShuffleSplit if self._of_classes else ShuffleSplit
            cv = kind(1, test_size=1 / N_FOLDS, random_state=seed)
        elif cv is None or isinstance(cv, Integral):
            kind = StratifiedKFold if self._of_classes else KFold
            n_folds = min(N_FOLDS, n_rows) if cv is None else cv
            cv = kind(n_folds, shuffle=True, random_state=seed)
        cv = check_cv(cv, y, classifier=self._of_classes)
        splits = list(cv.split(X, y, groups))
        if not own:
            return splits
        # Folds of equally many rows share a program: some train on one row less.
        n_train = min(len(train) for train, _ in splits)
        return [(train[:n_train], test) for train, test in splits]

    def _resources(self) -> Resources:
        megabytes = self.memory_budget or sklearn.get_config()["working_memory"]
        return Resources(int(megabytes * 2**20), self.n_jobs, "2*n_jobs", None)

    def _settings(self, kept, n_draws) -> dict[str, dict]:
        """Parameters of the fit to all rows, by candidate."""
        settings = {}
        for one, n in zip(kept, n_draws, strict=True):
            n_networks = max(self.n_refits, one.network.n_estimators)
            settings[one.name] = {
                f"{one.path}n_estimators": n_networks,
                f"{one.path}n_draws": int(-(-n // n_networks)),
            }
        return settings

    # ---- what is made of it

    def _weighted(self, candidates, splits, out_of_fold, prepared, y) -> dict[str, Any]:
        """Weights of the candidates, and the correction of their mixture."""
        rows = np.concatenate([test for _, test in splits])
        weights = self._row_weights(prepared, y)[rows]
        seen = weights > 0
        parts = [
            _of_all_folds([out_of_fold[one.name, fold] for fold in range(len(splits))])
            for one in candidates
        ]
        mixed = OutOfFold(parts, y[rows], weights)
        share, n_draws = mixed.draws_of()
        mixture = mixed.mixture(n_draws)
        factor = best_factor(mixture, y[rows], weights)
        final = corrected(mixture, factor)
        return {
            "n_draws": n_draws,
            "weights": share,
            "log_density": np.average(mixed.log_density(), axis=0, weights=weights),
            "factor": factor,
            "rows": rows,
            "mixture": final,
            "summary": self._summary(final, y[rows][seen], weights[seen]),
        }

    def _row_weights(self, prepared, y) -> np.ndarray:
        if prepared is None:
            return np.ones(len(y))
        return prepared.table.sample_weight

    @abstractmethod
    def _summary(self, mixture, y, weights) -> Summary:
        """What the mixture is worth on rows that it has not seen."""

    @abstractmethod
    def _keep_out_of_fold(self, rows, mixture, y) -> None:
        """Attributes that say what the mixture thinks of rows that it has not seen."""

    def _of_pool(self) -> dict:
        """Further parameters of the default candidates."""
        return {}

    def _become(self, y, candidates, kept, found, refits) -> None:
        failed = [
            one.name for one in kept if isinstance(refits[one.name, 0], Exception)
        ]
        if failed:
            raise refits[failed[0], 0]
        self.estimators_ = [refits[one.name, 0] for one in kept]
        self.n_draws_ = found["n_draws"][found["n_draws"] > 0]
        self.spread_factor_ = found["factor"]
        names = [one.name for one in candidates]
        self.weights_ = _framed(names, found["weights"], found["log_density"])
        self.summary_ = found["summary"]
        self._keep_out_of_fold(found["rows"], found["mixture"], y)
        self._unfinished = None

    def _open_predictive(self, X):
        check_is_fitted(self)
        if self._is_auto:
            X = check_inputs(self, X, reset=False)
        inner = [open_predictive(one, X) for one in self.estimators_]

        def mixed(*parts):
            return corrected(pooled(parts, self.n_draws_), self.spread_factor_)

        return OpenPredictive.mapped(inner, mixed)

    def _known_of_before(self, fingerprint) -> tuple[dict, dict]:
        before, self._unfinished = self._unfinished, None
        if before is not None and before[0] == fingerprint:
            return before[1], before[2]
        return {}, {}

    def _say(self, start: float, text: str) -> None:
        if self.verbose:
            seconds = time.perf_counter() - start
            print(f"[{type(self).__name__}] {seconds:5.1f} s: {text}")


def _that_trained(candidates, splits, known) -> list[Candidate]:
    """Without the candidates that failed in a fold, of which is warned."""
    trained, errors = [], {}
    for one in candidates:
        failed = [
            known[one.name, fold]
            for fold in range(len(splits))
            if isinstance(known[one.name, fold], Exception)
        ]
        if failed:
            errors[one.name] = failed[0]
        else:
            trained.append(one)
    if not trained:
        raise next(iter(errors.values())).with_traceback(None)
    if errors:
        name, error = next(iter(errors.items()))
        warn(
            f"{len(errors)} of {len(candidates)} candidates could not be trained and "
            f"were left out; the first, {name}: {type(error).__name__}: {error}",
            ConvergenceWarning,
        )
    return trained


def _of_all_folds(parts):
    return type(parts[0]).of_other_rows(parts)


def by_row(rows, values, n_rows):
    """Values of held-out rows as those of all, (n_rows, ...); NaN where there is none.

    Where a row was held out several times, their mean.
    """
    sums = np.zeros((n_rows, *values.shape[1:]))
    np.add.at(sums, rows, values)
    times = np.bincount(rows, minlength=n_rows).reshape(-1, *[1] * (values.ndim - 1))
    with np.errstate(invalid="ignore"):
        return sums / times


def _framed(names, weights, log_density):
    """A frame with a row per candidate, the heaviest first; without pandas a dict."""
    order = np.argsort(-weights, kind="stable")
    try:
        import pandas
    except ImportError:
        return {names[i]: float(weights[i]) for i in order}
    frame = pandas.DataFrame(
        {"weight": weights, "log_density": log_density}, index=names
    )
    return frame.iloc[order]
