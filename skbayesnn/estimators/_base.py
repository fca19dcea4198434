"""What the estimators of all methods have in common: ``fit`` and the way to draws."""

from abc import ABCMeta, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import sklearn
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skbayesnn._data.design import Design
from skbayesnn._data.scaling import Scaling
from skbayesnn._data.validate import Table, check_inputs
from skbayesnn._inference.posterior import Posterior
from skbayesnn._inference.predictive import all_draws, stream
from skbayesnn._predictive.mixin import stream_of
from skbayesnn._sklearn_compat import CallbackSupportMixin, with_callbacks
from skbayesnn._warnings import warn
from skbayesnn.estimators import _program, _serialization, _underfit, _validation
from skbayesnn.estimators._variational_spec import VariationalSpec

# Steps of `partial_fit` after which the likelihood's warm-up is over.
PARTIAL_FIT_HORIZON = 2000


@dataclass(frozen=True)
class Prepared:
    """What ``fit`` was given, checked; the candidates of a search share one per fold.

    Parameters
    ----------
    table : Table
    rows : ndarray of int
        Of positive weight, to be trained on.
    validation : ndarray of int, or None
        Rows given to stop the training.
    of_y : dict
        Fitted attributes that follow from y alone.
    """

    table: Table
    rows: np.ndarray
    validation: np.ndarray | None
    of_y: dict
    _scalings: dict = field(default_factory=dict, repr=False, compare=False)

    def scaling(self, rows: np.ndarray, weights: np.ndarray, **which) -> Scaling:
        """That of some rows; computed once for the same ones."""
        key = rows.tobytes(), weights.tobytes(), *which.values()
        if key not in self._scalings:
            X, y = self.table.X[rows], self.table.y[rows]
            self._scalings[key] = Scaling.of(X, y, weights, **which)
        return self._scalings[key]

    def forget_scalings(self) -> None:
        """Those computed so far, one for each candidate's own rows."""
        self._scalings.clear()

    def task_of(self, estimator) -> _program.Task:
        """An estimator's part of a program that trains on this."""
        return _program.make_task(estimator, self)


class BayesianNetwork(CallbackSupportMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of all estimators; see the classes for the parameters.

    A method gives ``_method``, a kind of task (regression, classification) gives
    ``_check``, ``_likelihood``, ``_row_weights`` and the predictions.
    """

    n_iter_: int
    network_: dict
    n_epochs_seen_: int
    total_weight_: float
    # Whether the KL may outweigh the data: then `fit` compares itself with a line.
    _can_collapse = False

    @abstractmethod
    def _method(self, n_layers: int) -> VariationalSpec:
        """The checked parameters of the method, for so many weight layers."""

    @abstractmethod
    def _explained(self, X, y, weights) -> _underfit.Explained | None:
        """Share of y that the fit explains in checked rows, and that a line does."""

    @abstractmethod
    def _check(self, X, y, sample_weight, *, reset: bool) -> tuple[Table, dict]:
        """Table, and the fitted attributes that follow from y alone."""

    @abstractmethod
    def _likelihood(self, n: int, learned: bool):
        """The likelihood for n targets or classes."""

    @abstractmethod
    def _row_weights(self, table: Table, rows, classes) -> np.ndarray:
        """Weights of the rows ``rows`` in the likelihood."""

    @with_callbacks
    def fit(self, X, y, sample_weight=None, X_val=None, y_val=None):
        """Fit the posterior to training data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Numbers; computed in float32 if X is float32, else in float64.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets, or labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the likelihood (the prior has none): weight 2
            counts as a row that is there twice, weight 0 as a row that is absent.
        X_val, y_val : array-like, default=None
            Rows that decide when to stop, with ``early_stopping=True``; by default
            ``validation_fraction`` of the training rows.

        Returns
        -------
        self : object
            The fitted estimator. After an error or an interruption it is as it was
            before; with ``warm_start=True`` an interrupted fit keeps the finished
            epochs and warns.
        """
        with self._restored_on_failure():
            warm = _validation.check_bool("warm_start", self.warm_start)
            warm = warm and hasattr(self, "parameters_")
            prepared = prepare(self, X, y, sample_weight, X_val, y_val, reset=not warm)
            if warm:
                fitted = self._continue(prepared, "warm")
            else:
                task = prepared.task_of(self)
                [fitted] = _program.train_together([self], [task])
            adopt(self, prepared, fitted, self.n_epochs_seen_ if warm else 0)
        return self

    def _warn_if_collapsed(self, table, rows, weights):
        """Compare the fit of some training rows with a linear model's."""
        chosen = _underfit.some_rows(np.arange(len(rows)))
        rows, weights = rows[chosen], weights[chosen]
        explained = self._explained(table.X[rows], table.y[rows], weights)
        if explained is not None:
            _underfit.warn_if_collapsed(explained)

    def _partial_fit(self, X, y, sample_weight, *, renew=False, **check_params):
        """One epoch over new rows; see ``partial_fit`` of the estimators.

        renew : bool, whether the posterior so far becomes the prior and the new rows
            are fitted to the end
        """
        if self.early_stopping:
            raise ValueError(
                "`partial_fit` takes the rows as they come and cannot hold any out; "
                "got early_stopping=True. Set it to False, or use `fit`."
            )
        with self._restored_on_failure():
            first = not hasattr(self, "parameters_")
            table, of_y = self._check(X, y, sample_weight, reset=first, **check_params)
            rows = np.flatnonzero(table.sample_weight > 0)
            prepared = Prepared(table, rows, None, of_y)
            how = "renew" if renew else "first" if first else "stream"
            fitted = self._continue(prepared, how)
            self._adopt(
                fitted, of_y, seen=self.total_weight_ if how == "stream" else 0.0
            )
            before = 0 if first else self.n_epochs_seen_
            self.n_epochs_seen_ = before + self.n_iter_
            self.n_iter_ = self.n_epochs_seen_
        return self

    def _continue(self, prepared: Prepared, how: str):
        """Train on from the present weights, in the present scaling.

        how : "warm", a fit to the end; "first" or "stream", an epoch over the first
            or further rows of a stream; "renew", a fit to the end whose prior is the
            posterior so far
        """
        table = prepared.table
        device = _validation.device_for_fit(self.device)
        dtype = _program.precision(table, device)
        task = prepared.task_of(self)
        if how in ("first", "stream"):
            task = task.for_streaming(PARTIAL_FIT_HORIZON)
        if how == "first":
            posterior = _program.start(task.plan, task.members, device, dtype)
            design = Design(table, [task.share], device, dtype)
            trained = _program.run([self], task.plan, task.members, design, posterior)
            return _program.Fitted(task, trained)

        self._check_same_shape(task, prepared.of_y)
        task = task.going_on(_serialization.scaling_of(self), self.seeds_)
        posterior = _serialization.posterior_of(self, device, dtype).at_rates_of(
            _program.start(task.plan, task.members, device, dtype)
        )
        if how == "renew":
            task = task.under_prior(_serialization.prior_from(posterior))
        elif how == "stream" and self.prior_ is not None:
            task = task.under_prior(self.prior_)
        stream = how == "stream"
        design = Design(
            table, [task.share], device, dtype, self.total_weight_ if stream else 0.0
        )
        trained = _program.run(
            [self],
            task.plan,
            task.members,
            design,
            posterior,
            self.optimizer_ if stream else None,
            self.n_epochs_seen_,
        )
        return _program.Fitted(task, trained)

    def _check_same_shape(self, task, of_y):
        """What is continued must be the same network."""
        old = self.network_
        new = _serialization.description_of(task.plan.network, task.plan.likelihood)
        if new != old:
            raise ValueError(
                "a fit that goes on (warm_start, partial_fit) must keep the network "
                f"as it was; it was {old}, and is asked to be {new}. Set "
                "warm_start=False, or fit a clone."
            )
        if task.share.n_members != len(self.seeds_):
            raise ValueError(
                "a fit that goes on (warm_start, partial_fit) must keep its networks: "
                f"there are {len(self.seeds_)}; got n_estimators="
                f"{self.n_estimators}. Set n_estimators={len(self.seeds_)}, or "
                "warm_start=False."
            )
        if "classes_" in of_y and not np.array_equal(of_y["classes_"], self.classes_):
            raise ValueError(
                "warm_start needs the classes of the fit before; they were "
                f"{self.classes_.tolist()}, y has {of_y['classes_'].tolist()}. Set "
                "warm_start=False."
            )

    def _with_validation(self, table, X_val, y_val, of_y):
        """The table with the given validation rows below, and their numbers."""
        if X_val is None and y_val is None:
            return table, None
        if X_val is None or y_val is None or not self.early_stopping:
            raise ValueError(
                "`X_val` and `y_val` must be given together, with "
                f"early_stopping=True; got X_val={_given(X_val)}, "
                f"y_val={_given(y_val)}, early_stopping={self.early_stopping!r}."
            )
        held_out = self._check_held_out(X_val, y_val, of_y)
        if held_out.y.shape[1:] != table.y.shape[1:]:
            raise ValueError(
                "`y_val` must have as many targets as `y`; got "
                f"{held_out.y.shape[1]} targets, y has {table.y.shape[1]}."
            )
        n = len(table.sample_weight)
        both = table.append(held_out)
        return both, np.arange(n, len(both.sample_weight))

    @abstractmethod
    def _check_held_out(self, X, y, of_y) -> Table:
        """Validation rows as a table of the same kind as the training rows."""

    def _adopt(self, fitted, of_y: dict, *, seen: float) -> None:
        """Make the trained networks the fitted state."""
        failed = fitted.trained.failed
        if failed.any():
            epochs = failed[failed > 0]
            warn(
                f"{len(epochs)} of {len(failed)} networks were left out: their loss "
                f"became infinite or NaN, first in epoch {epochs.min()}. Lower "
                f"learning_rate_init ({self.learning_rate_init:g} here).",
                ConvergenceWarning,
            )
        if fitted.trained.interrupted:
            warn(
                f"the fit was interrupted; {fitted.trained.n_epochs.max()} finished "
                "epochs are kept (warm_start=True), a further fit goes on from there.",
                ConvergenceWarning,
            )
        total_weight = seen + float(fitted.task.share.weights.sum())
        attributes = _serialization.fitted_attributes(fitted, total_weight)
        attributes |= of_y | {"total_weight_": total_weight}
        for name, value in attributes.items():
            setattr(self, name, value)

    @contextmanager
    def _restored_on_failure(self):
        """A failed or interrupted fit leaves the estimator as it was."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            private = {n: v for n, v in self.__dict__.items() if n.startswith("_")}
            self.__dict__.clear()
            self.__dict__.update(before | private)
            raise

    def _posterior(self, X) -> Posterior:
        """The fitted posterior, on the device and in the precision for X."""
        device = _validation.device_for_prediction(self.device)
        dtype = torch.float32 if X.dtype == np.float32 else torch.float64
        dtype = torch.float32 if device.type == "mps" else dtype
        return _serialization.posterior_of(self, device, dtype)

    def _checked_inputs(self, X):
        """X of a prediction, checked."""
        check_is_fitted(self)
        _validation.check_number(
            "n_draws", self.n_draws, kind=_validation.Integral, low=1
        )
        return check_inputs(self, X, reset=False)

    def _components(
        self, X, posterior: Posterior, n_draws: int
    ) -> Iterator[tuple[slice, tuple]]:
        """Chunks of the predictive, network's scale; see ``predictive.stream``."""
        scale, mean = self.x_scale_, self.x_mean_

        def rows(chunk: slice) -> torch.Tensor:
            values = X[chunk].toarray() if sparse.issparse(X) else X[chunk]
            values = ((values - mean) / scale).astype(X.dtype, copy=False)
            return torch.as_tensor(values).to(posterior.device, posterior.dtype)

        budget = int(sklearn.get_config()["working_memory"] * 2**20)
        yield from stream(posterior, rows, X.shape[0], n_draws, budget)

    def _random_functions(self, X, n_samples: int, random_state):
        """Components of freshly drawn functions: arrays (n_samples, rows, outputs).

        Each sample is a draw of the weights of a network picked at random.
        """
        X = self._checked_inputs(X)
        _validation.check_number(
            "n_samples", n_samples, kind=_validation.Integral, low=1
        )
        random = np.random.default_rng(stream_of(random_state))
        posterior = self._posterior(X).reseed(int(random.integers(2**31)))
        member_of_sample = random.integers(posterior.n_members, size=n_samples)
        results: tuple[np.ndarray, ...] = ()
        for member in np.unique(member_of_sample):
            samples = np.flatnonzero(member_of_sample == member)
            one = posterior.select(np.array([member]))
            n_draws = one.distinct_draws(len(samples))
            for chunk, parts in all_draws(self._components(X, one, n_draws)):
                if not results:
                    results = tuple(
                        np.empty((n_samples, X.shape[0], p.shape[-1]), p.dtype)
                        for p in parts
                    )
                for result, part in zip(results, parts, strict=True):
                    result[samples, chunk] = part
        return results, random

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def prepare(
    estimator: BayesianNetwork,
    X,
    y,
    sample_weight=None,
    X_val=None,
    y_val=None,
    *,
    reset: bool = True,
) -> Prepared:
    """Checked arguments of an estimator's ``fit``.

    reset : bool, whether the columns of X are new to the estimator
    """
    table, of_y = estimator._check(X, y, sample_weight, reset=reset)
    _warn_of_constants(table, of_y.get("classes_"))
    rows = np.flatnonzero(table.sample_weight > 0)
    table, validation = estimator._with_validation(table, X_val, y_val, of_y)
    return Prepared(table, rows, validation, of_y)


def adopt(
    estimator: BayesianNetwork,
    prepared: Prepared,
    fitted: _program.Fitted,
    n_epochs_before: int = 0,
) -> None:
    """Make trained networks the fitted state, and say where it is doubtful."""
    estimator._adopt(fitted, prepared.of_y, seen=0.0)
    estimator.n_epochs_seen_ = estimator.n_iter_ + n_epochs_before
    if estimator._can_collapse:
        share = fitted.task.share
        estimator._warn_if_collapsed(prepared.table, share.rows, share.weights)


def _given(value):
    return None if value is None else type(value).__name__


def _warn_of_constants(table: Table, classes) -> None:
    """Constant columns and targets can be fitted, but what they tell is doubtful."""
    used = table.sample_weight > 0
    X = table.X if used.all() else table.X[used]
    span = X.max(axis=0) - X.min(axis=0)
    span = span.toarray().ravel() if sparse.issparse(span) else span
    columns = np.flatnonzero(span == 0)
    if len(columns):
        warn(
            f"{len(columns)} columns of X are constant in the training rows (numbers "
            f"{columns[:10].tolist()}): nothing can be learned from them, and other "
            "values at prediction give arbitrary results. Remove them, for instance "
            "with sklearn.feature_selection.VarianceThreshold.",
        )
    if classes is None and (table.y[used] == table.y[used][0]).all(0).any():
        warn(
            "y is constant in the training rows: its noise cannot be told, and the "
            "predicted uncertainty is that of the smallest noise allowed.",
        )
