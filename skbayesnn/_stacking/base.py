"""The two stacks: cross-fitted candidates, their weights, and a fit to all rows."""

import time
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from numbers import Integral

import joblib
import numpy as np
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from skbayesnn._data.validate import check_inputs, check_weights
from skbayesnn._meta.functions import open_predictive
from skbayesnn._predictive.mixin import OpenPredictive, PredictiveMixin
from skbayesnn._sklearn_compat import ShowsSummary
from skbayesnn._stacking import pool as default
from skbayesnn._stacking.candidates import (
    Candidate,
    Rows,
    candidates_of,
    check_same_kind,
    held_out,
    refitted,
    that_trained,
)
from skbayesnn._stacking.folds import folds_of
from skbayesnn._stacking.mixture import OutOfFold, Stacked, corrected, pooled
from skbayesnn._stacking.summary import Summary
from skbayesnn.estimators import _validation
from skbayesnn.estimators._prepared import prepare
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.model_selection._executor import Resources
from skbayesnn.model_selection._jobs import network_of


class BayesianStacking(PredictiveMixin, ShowsSummary, metaclass=ABCMeta):
    """Base of both; see the classes for the parameters."""

    _of_classes: bool
    # What an interrupted fit has found out, and of what: (hash, out of fold, refits).
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
            After an error it is as it was before; after an interruption, too, and
            another ``fit`` to the same data goes on from there.
        """
        say = partial(self._say, time.perf_counter())
        y = self._checked_targets(y)
        seed = int(_validation.random_source(self.random_state).randint(2**31 - 1))
        rows, pool = self._rows_and_pool(X, y, sample_weight, seed)
        candidates = candidates_of(pool)
        check_same_kind(candidates, of_classes=self._of_classes)
        _validation.check_number("n_refits", self.n_refits, kind=Integral, low=1)
        splits = folds_of(
            self.cv, rows.X, y, groups, of_classes=self._of_classes, seed=seed
        )
        fingerprint = joblib.hash((pool, self.n_refits, rows, splits))
        out_of_fold, refits = self._known_of_before(fingerprint)
        try:
            resources = self._resources()
            work = held_out(candidates, rows, splits, out_of_fold, resources)
            of_members = f"of {len(candidates) * len(splits)} networks out of fold"
            _work_off(work, lambda n_done: say(f"{n_done} {of_members}"))
            candidates = that_trained(candidates, splits, out_of_fold)
            oof = OutOfFold.of(candidates, splits, out_of_fold, rows)
            stacked = oof.stacked()
            kept = [candidates[i] for i in np.flatnonzero(stacked.n_draws)]
            n_draws = {one.name: stacked.n_draws[candidates.index(one)] for one in kept}
            work = refitted(
                kept, self._refit_settings(kept, n_draws), rows, refits, resources
            )
            _work_off(
                work, lambda n_done: say(f"{n_done} of {len(kept)} fitted to all rows")
            )
            kept = that_trained(kept, [None], refits)
        except KeyboardInterrupt:
            self._unfinished = fingerprint, out_of_fold, refits
            raise
        self.estimators_ = [refits[one.name, 0] for one in kept]
        self.n_draws_ = np.array([n_draws[one.name] for one in kept])
        self._keep_what_is_known(candidates, oof, stacked)
        say(str(self.summary_))
        return self

    # ---- what is asked for

    @abstractmethod
    def _checked_targets(self, y) -> np.ndarray:
        """y as an array, if it is of the right kind."""

    def _class_weights(self, y) -> np.ndarray | None:
        """By which the weights of the rows are multiplied."""

    def _rows_and_pool(self, X, y, sample_weight, seed):
        """The rows as the candidates get them, and the pool."""
        X, y = indexable(X, y)
        by_class = self._class_weights(y)
        if sample_weight is not None or by_class is not None:
            sample_weight = check_weights(sample_weight, X)
            sample_weight = sample_weight * (1.0 if by_class is None else by_class)
        rows = Rows(X, y, sample_weight)
        if not isinstance(self.estimators, str):
            return rows, default.given_pool(self.estimators)
        _validation.check_option("estimators", self.estimators, ["auto"])
        # What is wrong is told here once, and not for every candidate.
        probe = MCDropoutClassifier() if self._of_classes else MCDropoutRegressor()
        table = prepare(probe, X, y, sample_weight).table
        return rows, default.default_pool(
            table.X,
            table.sample_weight,
            of_classes=self._of_classes,
            max_iter=self.max_iter,
            device=self.device,
            random_state=seed,
        )

    def _resources(self) -> Resources:
        megabytes = self.memory_budget
        if megabytes is None:
            megabytes = sklearn.get_config()["working_memory"]
        _validation.check_number("memory_budget", megabytes, low=0, open_low=True)
        memory = int(megabytes * 2**20)
        resources = Resources(memory, self.n_jobs, "2*n_jobs", None)
        if not resources.in_turn or joblib.effective_n_jobs(self.n_jobs) == 1:
            return resources
        return replace(resources, backend="loky")

    def _refit_settings(self, kept: list[Candidate], n_draws) -> dict[str, dict]:
        """Parameters of the fit to all rows, by candidate's name."""
        settings = {}
        for one in kept:
            n_networks = max(self.n_refits, one.network.n_estimators)
            settings[one.name] = {
                f"{one.path}n_estimators": n_networks,
                f"{one.path}n_draws": int(-(-n_draws[one.name] // n_networks)),
            }
        return settings

    def _known_of_before(self, fingerprint: str) -> tuple[dict, dict]:
        """What an unfinished fit to the same data has found out."""
        before, self._unfinished = self._unfinished, None
        if before is not None and before[0] == fingerprint:
            return before[1], before[2]
        return {}, {}

    # ---- what is made of it

    def _keep_what_is_known(self, candidates, oof: OutOfFold, stacked: Stacked) -> None:
        """Fitted attributes that say what the candidates and the mixture are worth."""
        names = [one.name for one in candidates]
        self.weights_ = _framed(names, stacked.weights, stacked.log_density)
        self.spread_factor_ = stacked.factor
        self.n_iter_ = max(network_of(one).n_iter_ for one in self.estimators_)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        self._keep_out_of_fold(oof, stacked.mixture)
        self.summary_ = self._summary(stacked.mixture, oof.y, oof.weights)

    @abstractmethod
    def _keep_out_of_fold(self, oof: OutOfFold, mixture) -> None:
        """Attributes that say what the mixture thinks of rows that it has not seen."""

    @abstractmethod
    def _summary(self, mixture, y, weights) -> Summary:
        """What the mixture is worth on rows that it has not seen."""

    def _open_predictive(self, X):
        check_is_fitted(self)
        if isinstance(self.estimators, str):
            X = check_inputs(self, X, reset=False)
        inner = [open_predictive(one, X) for one in self.estimators_]

        def mixed(*parts):
            return corrected(pooled(parts, self.n_draws_), self.spread_factor_)

        return OpenPredictive.mapped(inner, mixed)

    def _say(self, start: float, text: str) -> None:
        if self.verbose:
            seconds = time.perf_counter() - start
            print(f"[{type(self).__name__}] {seconds:5.1f} s: {text}")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _work_off(trained: Iterator[int], report: Callable[[int], None]) -> None:
    """Train all there is, without the warnings of single candidates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message=".*columns of X are constant")
        for n_done in trained:
            report(n_done)


def _framed(names, weights, log_density):
    """A frame with a row per candidate, the heaviest first; without pandas a dict."""
    order = np.argsort(-weights, kind="stable")
    try:
        import pandas
    except ImportError:
        return {names[i]: float(weights[i]) for i in order}
    columns = {"weight": weights, "log_density": log_density}
    return pandas.DataFrame(columns, index=names).iloc[order]
