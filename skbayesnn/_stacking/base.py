"""The two stacks: cross-fitted candidates, their weights, and a fit to all rows."""

import pickle
import time
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral
from typing import Any, Self

import joblib
import numpy as np
import sklearn
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from skbayesnn import _validation
from skbayesnn._batch.executor import Resources
from skbayesnn._data.class_order import if_ordered
from skbayesnn._data.scaling import FAR_ROWS, warn_of_far_rows
from skbayesnn._data.validation import check_inputs, check_weights, named_after
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._predictive.mixin import PredictiveBlocks, PredictiveMixin
from skbayesnn._runtime import (
    default_settings,
    on_snapshot,
    replace_fitted,
    warn_no_more,
)
from skbayesnn._sklearn_compat import ShowsSummary
from skbayesnn._stacking.candidates import (
    Candidate,
    Rows,
    candidates_of,
    check_same_kind,
    default_pool,
    dense_if_small,
    drop_failed,
    given_pool,
    held_out,
    model_of,
    refitted,
)
from skbayesnn._stacking.folds import folds_of
from skbayesnn._stacking.summary import Summary
from skbayesnn._stacking.weights import BOUND, OutOfFold, Stacked, corrected, pooled
from skbayesnn._typing import Array, MatrixLike
from skbayesnn.estimators._fit import time_left
from skbayesnn.estimators._training_data import training_data
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor

# Rows that are encoded at a time in predictions: an encoding is some twenty times X,
# and every candidate has its own.
OPENED_AT_ONCE = 16_384


class BayesianStacking(PredictiveMixin, ShowsSummary, metaclass=ABCMeta):
    """Base of both; see the classes for the parameters."""

    estimators: Any
    cv: Any
    n_refits: int
    max_iter: Any
    n_jobs: int | None
    memory_budget: float | None
    device: Any
    verbose: bool | int
    random_state: Any
    weights_: Any
    estimators_: list[Any]
    n_draws_: Array
    spread_factor_: Array
    spread_bound_: float
    oof_prediction_: Array
    oof_log_density_: Array
    summary_: Summary
    n_iter_: int
    fitted_to_sparse_: bool | None
    _of_classes: bool
    _unfinished: "_Unfinished | None" = None

    @default_settings
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
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
            After an error or an interruption it is as it was before, and another
            ``fit`` to the same data goes on from there.
        """
        say = partial(self._say, time.perf_counter())
        given, y = y, self._checked_targets(y)
        _validation.check_number("n_refits", self.n_refits, kind=Integral, low=1)
        _validation.verbosity(self.verbose)
        before = self._unfinished_of(X, (y, if_ordered(given)), sample_weight, groups)
        try:
            rows, pool = self._rows_and_pool(X, y, sample_weight, before.seed)
            rows = replace(rows, ordered_y=if_ordered(given))
            fitted = self._fitted(rows, pool, groups, before, say)
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                before.forget_failures()
            self._unfinished = before
            raise
        # Nothing is changed before all is known, and nothing of an earlier fit stays.
        replace_fitted(self, fitted)
        say(str(self.summary_))
        return self

    def _fitted(self, rows, pool, groups, before: "_Unfinished", say) -> dict:
        """Fitted attributes; what takes long is put into ``before``."""
        candidates = candidates_of(pool)
        check_same_kind(candidates, of_classes=self._of_classes)
        splits = folds_of(
            self.cv, rows, groups, of_classes=self._of_classes, seed=before.seed
        )
        before.forget_other_folds(splits)
        resources = self._resources()
        work = held_out(candidates, rows, splits, before.out_of_fold, resources)
        n_networks = len(candidates) * len(splits)
        seconds = _run_with_progress(work, say, n_networks, "networks out of fold")
        left = drop_failed(candidates, splits, before.out_of_fold)
        # Whoever fails on all rows leaves its weight to the others.
        candidates = []
        while len(left) != len(candidates):
            candidates = left
            oof = OutOfFold.of(candidates, splits, before.out_of_fold, rows)
            stacked = oof.stacked()
            kept, n_draws = _with_weight(candidates, stacked)
            settings = {
                one.name: one.refit_params(self.n_refits, n_draws[one.name])
                for one in kept
            }
            work = refitted(kept, settings, rows, before.refits, resources)
            expected = seconds * _work_of_refits(kept, settings, rows, splits)
            _run_with_progress(work, say, len(kept), "fitted to all rows", expected)
            left = drop_failed(candidates, [None], before.refits)
        models = []
        for one in kept:
            model = before.refits[one.name, 0]
            # What was fitted before another one failed had fewer draws of the mixture.
            model.set_params(**settings[one.name])
            models.append(model)
        factor = self._factor_of_refits(stacked, kept, models, rows)
        folds = [
            [before.out_of_fold[one.name, fold].estimator for one in kept]
            for fold in range(len(splits))
        ]
        return {
            "estimators_": models,
            "n_iter_": max(getattr(model_of(one), "n_iter_", 1) for one in models),
            "n_draws_": np.array([n_draws[one.name] for one in kept]),
            "spread_factor_": factor,
            "spread_bound_": BOUND,
            **self._summary_attributes(candidates, oof, stacked),
            **self._cross_fitted(folds, splits, oof, stacked, factor),
            **self._columns_of(rows),
        }

    # ---- what is asked for

    @abstractmethod
    def _checked_targets(self, y) -> np.ndarray:
        """y as an array, if it is of the right kind."""

    def _class_weights(self, y) -> np.ndarray | None:
        """By which the weights of the rows are multiplied."""

    def _check_weighted(self, y) -> None:
        """Refuse y of the rows of positive weight, where it is not enough."""
        return None

    def _rows_and_pool(self, X, y, sample_weight, seed):
        """The rows as the candidates get them, and the pool."""
        X, y = indexable(X, y)
        by_class = self._class_weights(y)
        if sample_weight is not None or by_class is not None:
            sample_weight = check_weights(sample_weight, X)
            sample_weight = sample_weight * (1.0 if by_class is None else by_class)
            self._check_weighted(y[sample_weight > 0])
        if not isinstance(self.estimators, str):
            return Rows(X, y, sample_weight), given_pool(self.estimators, seed)
        _validation.check_option("estimators", self.estimators, ["auto"])
        # What is wrong is told here once, and not for every candidate.
        probe = MCDropoutClassifier() if self._of_classes else MCDropoutRegressor()
        with named_after(self, probe):
            table = training_data(probe, X, y, sample_weight).table
        names = getattr(probe, "feature_names_in_", None)
        X = dense_if_small(table.X)
        return Rows(X, y, sample_weight, names), default_pool(
            X,
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

    def _unfinished_of(self, X, y, sample_weight, groups) -> "_Unfinished":
        """What an unfinished fit to the same data has found out, or nothing."""
        how = self.get_params(deep=False)
        # A splitter need not be one that can be pickled: see what it splits.
        for name in ("n_jobs", "memory_budget", "verbose", "cv"):
            del how[name]
        if not isinstance(self.random_state, Integral):
            del how["random_state"]  # the seed is kept
        try:
            fingerprint = joblib.hash((how, X, y, sample_weight, groups))
        except (pickle.PicklingError, AttributeError, TypeError):
            fingerprint = None  # what cannot be pickled cannot be compared
        before, self._unfinished = self._unfinished, None
        if before is not None and fingerprint == before.fingerprint is not None:
            return before
        random = _validation.random_source(self.random_state)
        return _Unfinished(fingerprint, int(random.randint(2**31 - 1)))

    # ---- what is made of it

    def _summary_attributes(self, candidates, oof: OutOfFold, stacked: Stacked) -> dict:
        """Fitted attributes that say what the candidates and the mixture are worth."""
        names = [one.name for one in candidates]
        mixture = stacked.corrected
        return {
            "weights_": _framed(names, stacked.weights, stacked.log_density),
            "summary_": self._summary(mixture, oof),
            **self._out_of_fold(oof, mixture),
        }

    @abstractmethod
    def _out_of_fold(self, oof: OutOfFold, mixture) -> dict:
        """Attributes that say what the mixture thinks of rows that it has not seen."""

    def _columns_of(self, rows: Rows) -> dict:
        """Fitted attributes that say which columns there were."""
        # Texts and images have none.
        shape: tuple[int, ...] = getattr(rows.X, "shape", ())
        known: dict[str, Any] = {}
        if len(shape) == 2:
            known["n_features_in_"] = shape[1]
        own_pool = isinstance(self.estimators, str)
        known["fitted_to_sparse_"] = sparse.issparse(rows.X) if own_pool else None
        if rows.columns is not None:
            known["feature_names_in_"] = rows.columns
        return known

    def _factor_of_refits(
        self, stacked: Stacked, kept, models, rows: Rows
    ) -> np.ndarray:
        """The correction of the mixture of these fits to all rows."""
        return stacked.factor

    def _cross_fitted(
        self, folds, splits, oof: OutOfFold, stacked: Stacked, factor
    ) -> dict:
        """Attributes that keep the networks of the folds, where they are needed."""
        return {}

    @abstractmethod
    def _summary(self, mixture, oof: OutOfFold) -> Summary:
        """What the mixture is worth on rows that it has not seen."""

    @on_snapshot
    def _open_predictive(self, X):
        X = self._checked_inputs(X)
        return self._opened(self.estimators_, X)

    def _checked_inputs(self, X):
        """X as the candidates take it."""
        check_is_fitted(self)
        # Estimators that were given check what they get themselves.
        if self.fitted_to_sparse_ is not None:
            X = check_inputs(self, X, reset=False)
            if sparse.issparse(X) and not self.fitted_to_sparse_:
                X = X.toarray()
            names = getattr(self, "feature_names_in_", None)
            warn_of_far_rows(X, *_scale_of_columns(self.estimators_[0]), names)
            # Encoded columns have other numbers, and no names.
            warn_no_more(FAR_ROWS)
        return X

    def _opened(self, estimators, X) -> PredictiveBlocks:
        """The mixture of the candidates in these fits."""

        def mixed(*parts):
            mixture = pooled(parts, self.n_draws_)
            # Stacks of earlier versions had no bound.
            bound = getattr(self, "spread_bound_", np.inf)
            return corrected(mixture, self.spread_factor_, bound)

        def opened(X):
            return PredictiveBlocks.mapped(
                [open_predictive(one, X) for one in estimators], mixed
            )

        # What was given may look at all rows of an X of any kind.
        if self.fitted_to_sparse_ is None:
            return opened(X)
        return PredictiveBlocks.in_parts(
            X.shape[0], lambda rows: opened(X[rows]), OPENED_AT_ONCE
        )

    def __getstate__(self):
        """Plain, and without what an interrupted fit has left behind."""
        state = super().__getstate__() | {"_unfinished": None}
        if "weights_" in state:
            state["weights_"] = _plain(state["weights_"])
        return state

    def __setstate__(self, state):
        """Undo ``__getstate__``."""
        if "weights_" in state:
            columns = _plain(state["weights_"])
            names = list(columns["weight"])
            of_names = ([column[n] for n in names] for column in columns.values())
            state = state | {"weights_": _framed(names, *map(np.array, of_names))}
        super().__setstate__(state)

    def _say(self, start: float, text: str) -> None:
        if self.verbose:
            seconds = time.perf_counter() - start
            print(f"[{type(self).__name__}] {seconds:5.1f} s: {text}")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass
class _Unfinished:
    """What a fit that did not come to its end has found out.

    Parameters
    ----------
    fingerprint : str or None
        Of parameters and data, where they have one.
    seed : int
        Of folds and candidates.
    folds : str or None
        Fingerprint of the folds of ``out_of_fold``.
    out_of_fold, refits : dict
        By candidate's name and fold.
    """

    fingerprint: str | None
    seed: int
    folds: str | None = None
    out_of_fold: dict = field(default_factory=dict)
    refits: dict = field(default_factory=dict)

    def forget_other_folds(self, splits) -> None:
        """What other folds have left out is not held out by these."""
        folds = joblib.hash(splits)
        if folds != self.folds:
            self.out_of_fold.clear()
        self.folds = folds

    def forget_failures(self) -> None:
        """What failed is tried again."""
        for known in (self.out_of_fold, self.refits):
            for key in [k for k, v in known.items() if isinstance(v, Exception)]:
                del known[key]


def _scale_of_columns(candidate) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and standard deviation of each column, and N, from a default candidate."""
    network = model_of(candidate)
    mean, scale = network.x_mean_, network.x_scale_
    if network is not candidate:
        # Each column stands before its encoding.
        encoder = candidate[0].estimator
        widths = 1 + encoder.n_bins_ + [len(values) for values in encoder.values_]
        columns = np.cumsum(widths) - widths
        mean, scale = mean[columns], scale[columns]
    return mean, scale, network.total_weight_


def _with_weight(candidates, stacked: Stacked) -> tuple[list[Candidate], dict]:
    """The candidates that have draws of the mixture, and how many, by name."""
    n_draws = {
        one.name: n for one, n in zip(candidates, stacked.n_draws, strict=True) if n
    }
    return [one for one in candidates if one.name in n_draws], n_draws


def _work_of_refits(kept: list[Candidate], settings, rows: Rows, splits) -> float:
    """How many times as long a fit to all rows takes as one out of fold, on average."""
    of_rows = len(rows.y) / np.mean([len(train) for train, _ in splits])
    more = [
        settings[one.name].get(f"{one.path}n_estimators", 1) / one.model.n_estimators
        for one in kept
    ]
    return float(of_rows * np.mean(more))


def _run_with_progress(
    trained: Iterator[int],
    say: Callable[[str], None],
    n_all: int,
    of: str,
    seconds: float = 0.0,
) -> float:
    """Train all there is, without the warnings of single candidates.

    seconds : expected time of each one, until the first one is trained

    Returns
    -------
    seconds : float
        Mean time of each one.
    """
    # Weights are handed to the network by its name, whatever is routed outside.
    with (
        warnings.catch_warnings(),
        sklearn.config_context(enable_metadata_routing=False),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message=".*columns of X are constant")
        warnings.filterwarnings("ignore", message="y is constant")
        # An outlier among the rows of a fold; what follows from it is looked at later.
        warn_no_more(FAR_ROWS)
        n_before, start = None, 0.0
        for n_done in trained:
            now = time.perf_counter()
            if n_before is None:
                n_before, start = n_done, now
            if n_done > n_before:
                seconds = (now - start) / (n_done - n_before)
            left = time_left(seconds * (n_all - n_done))
            say(f"{n_done} of {n_all} {of}{left}")
    return seconds


def _framed(names, weights, log_density):
    """A column each, the heaviest candidate first; without pandas dicts by name.

    ``_["weight"][name]`` and ``_["weight"].items()`` are the same of both.
    """
    order = np.argsort(-weights, kind="stable")
    columns = {"weight": weights, "log_density": log_density}
    try:
        import pandas
    except ImportError:
        return {
            column: {names[i]: float(values[i]) for i in order}
            for column, values in columns.items()
        }
    return pandas.DataFrame(columns, index=names).iloc[order]


def _plain(frame) -> dict[str, dict[str, float]]:
    """What ``_framed`` has made, without pandas."""
    return {
        column: {str(name): float(value) for name, value in frame[column].items()}
        for column in ("weight", "log_density")
    }
