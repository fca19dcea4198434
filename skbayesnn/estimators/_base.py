"""What the estimators of all methods have in common: ``fit`` and the way to draws."""

import math
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from inspect import signature
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skbayesnn import _validation
from skbayesnn._data.scaling import Scaling, ordinary_rows, warn_of_far_rows
from skbayesnn._data.validation import Table, check_inputs
from skbayesnn._likelihoods import LIKELIHOODS
from skbayesnn._runtime import atomic_update, default_settings, warn
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    CallbackSupportMixin,
    with_callbacks,
)
from skbayesnn._typing import Array, MatrixLike
from skbayesnn.estimators import _diagnostics, _fit, _fitted, _job, _streaming
from skbayesnn.estimators._defaults import defaults_of
from skbayesnn.estimators._diagnostics import without_diverged
from skbayesnn.estimators._job import PosteriorSpec
from skbayesnn.estimators._training_data import TrainingData, training_data
from skbayesnn.networks import NetworkDescription


class BayesianNetwork(CallbackSupportMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of all estimators; see the classes for the parameters.

    A method defines ``_posterior_spec``. Regression and classification define
    ``_check``, ``_row_weights`` and the predictions.
    """

    # Parameters of all, and of some: for type checkers.
    hidden_layer_sizes: Any
    activation: str
    dropout: Any
    length_scale: Any
    tau: Any
    likelihood: str
    n_estimators: int
    n_draws: int
    n_training_draws: int
    standardize: bool
    batch_size: Any
    learning_rate: str
    learning_rate_init: float
    max_iter: Any
    early_stopping: Any
    validation_fraction: float
    n_iter_no_change: int
    tol: float
    warm_start: bool
    device: Any
    dtype: str
    verbose: bool | int
    random_state: Any
    # Fitted attributes.
    n_iter_: int
    n_epochs_seen_: int
    total_weight_: float
    network_: dict[str, Any]
    parameters_: dict[str, Array]
    optimizer_: dict[str, Array]
    seeds_: Array
    replay_: dict[str, Any]
    x_mean_: Array
    x_scale_: Array
    y_mean_: Array
    y_scale_: Array
    y_ndim_: int
    tau_: Any
    tau_training_: Any
    dropout_: Array
    length_scale_: Array
    weight_decay_: Array
    weight_decay_training_: Array
    elbo_: float
    elbo_std_error_: float
    history_: dict[str, Array]
    loss_curve_: Array
    # Of likelihoods that have some; a class without the parameter has none to give.
    likelihood_options: dict | None = None
    network: NetworkDescription | None = None

    def _length_scales(self, fan_ins, total_weight: float) -> np.ndarray:
        """The prior's scale of every layer for N rows, checked, (layers,)."""
        rule = defaults_of(self).length_scale
        return _validation.length_scales(
            self.length_scale, fan_ins, rule.scales(fan_ins, total_weight)
        )

    def _store(self, arguments: dict) -> None:
        """A constructor's ``locals()`` as attributes.

        Constructors list their parameters in full, which is where ``get_params``,
        editors and type checkers look, and do nothing else.
        """
        self.__dict__.update((n, v) for n, v in arguments.items() if n != "self")

    @abstractmethod
    def _posterior_spec(self, fan_ins: Sequence[int]) -> PosteriorSpec:
        """The posterior's families and prior, checked.

        fan_ins : inputs of every weight layer
        """

    @abstractmethod
    def _explained(self, X, y, weights) -> _diagnostics.ExplainedVariance | None:
        """Share of y that the fit explains in checked rows, and that a line does."""

    @abstractmethod
    def _check(self, X, y, sample_weight, *, reset: bool) -> tuple[Table, dict]:
        """Table, and the fitted attributes that follow from y alone."""

    @abstractmethod
    def _row_weights(self, table: Table, rows, classes) -> np.ndarray:
        """Weights of the rows ``rows`` in the likelihood."""

    @with_callbacks
    @default_settings
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Fit the posterior to training data.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Numbers. Predictions of float32 are float32, unless that cannot resolve y
            (its mean is more than 800 standard deviations from zero); all others are
            float64.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Targets, or labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the likelihood (the prior has none): weight 2
            counts as a row that is there twice, weight 0 as a row that is absent. A
            class all of whose rows have weight 0 stays in ``classes_`` and has
            probability 0.
        X_val, y_val : array-like, default=None
            Rows that decide when to stop, with ``early_stopping=True``; by default
            ``validation_fraction`` of the training rows. A ``Pipeline`` transforms
            ``X_val`` only with metadata routing and ``transform_input=["X_val"]``.

        Returns
        -------
        self : object
            The fitted estimator. After an error or an interruption it is as it was
            before; with ``warm_start=True`` an interrupted fit keeps the finished
            epochs and warns, if those have begun that are of all rows.
        """
        with atomic_update(self) as new:
            warm = _validation.check_bool("warm_start", self.warm_start)
            warm = warm and hasattr(self, "parameters_")
            data = training_data(new, X, y, sample_weight, X_val, y_val, reset=not warm)
            # Callbacks are told about the estimator itself.
            if warm:
                job = _streaming.resume(self, data, "warm")
            else:
                [job] = _fit.train_together([self], [_job.training_job(self, data)])
            set_fitted(new, job, self.n_epochs_seen_ if warm else 0)
            warn_if_doubtful(new, job)
        return self

    @abstractmethod
    def _spread(self, X, y) -> tuple[float, str]:
        """How much predictions of checked rows differ, and that in words.

        Of the mean weights: the draws of noise differ from row to row.
        """

    def _warn_if_doubtful(self, table, rows, weights):
        """Look at the predictions of some training rows.

        Whether they are as good as a constant's and a linear model's, and whether they
        differ: of predictions that are constant since the KL outweighs the data, and
        not for outliers, only the former is said.
        """
        explained = self._explained_in(table, rows, weights)
        if explained and _diagnostics.warn_if_diverged(
            explained, self.learning_rate_init
        ):
            return
        few = _diagnostics.some_rows(rows, _diagnostics.FEW_ROWS)
        few = few[ordinary_rows(table.X[few], table.y[few])]
        spread, in_words = self._spread(table.X[few], table.y[few])
        usual, outliers = _diagnostics.has_usual_spread(spread), ""
        if not usual:
            likelihood = LIKELIHOODS[self.likelihood]
            outliers = _diagnostics.outliers_in(
                table.X[rows], table.y[rows], likelihood
            )
        behind = False
        if explained and not outliers:
            if defaults_of(self).can_collapse:
                behind = _diagnostics.warn_if_collapsed(explained)
            elif not _diagnostics.is_constant(spread):
                behind = _diagnostics.warn_if_far_behind(explained)
        if not usual and not behind:
            _diagnostics.warn_of_spread(spread, in_words, outliers)

    def _explained_in(
        self, table, rows, weights
    ) -> _diagnostics.ExplainedVariance | None:
        """What is explained in some of the training rows."""
        most = (
            _diagnostics.ROWS
            if defaults_of(self).can_collapse
            else _diagnostics.FEW_ROWS
        )
        chosen = _diagnostics.some_rows(np.arange(len(rows)), most)
        rows, weights = rows[chosen], weights[chosen]
        return self._explained(table.X[rows], table.y[rows], weights)

    @default_settings
    def _partial_fit(
        self,
        X,
        y,
        sample_weight,
        *,
        n_epochs=1,
        n_replay=0,
        renew=False,
        **check_params,
    ):
        """Some epochs over new rows; see ``partial_fit`` of the estimators.

        renew : bool, whether the posterior so far, if there is one, becomes the prior
            and the new rows are fitted to the end
        """
        _validation.check_number("n_epochs", n_epochs, kind=Integral, low=1)
        _validation.check_number("n_replay", n_replay, kind=Integral, low=0)
        if _validation.stops_early(self.early_stopping, 0, math.inf):
            raise ValueError(
                "`partial_fit` takes the rows as they come and cannot hold any out; "
                "got early_stopping=True. Set it to False, or use `fit`."
            )
        with atomic_update(self) as new:
            first = not hasattr(self, "parameters_")
            table, of_y = new._check(X, y, sample_weight, reset=first, **check_params)
            earlier = getattr(self, "replay_", None) if n_replay else None
            table_of_all = _streaming.with_kept(table, earlier)
            rows = np.flatnonzero(table_of_all.sample_weight > 0)
            data = TrainingData(table_of_all, rows, None, of_y)
            # Kept rows are there once more, with the weights of their classes.
            weights = self._row_weights(table_of_all, rows, data.classes)
            weight_kept = float(weights[rows >= len(table.y)].sum())
            seen = 0.0 if first or renew else self.total_weight_ - weight_kept
            if first and renew:
                [job] = _fit.train_together([self], [_job.training_job(self, data)])
            elif first:
                job = _streaming.begin_stream(self, data, n_epochs)
            elif renew:
                job = _streaming.resume(self, data, "renew")
            else:
                job = _streaming.resume(self, data, "stream", n_epochs, seen)
            # Others have hardly begun, or see rows that lie far from those before.
            job = without_diverged(job) if renew else job
            new._adopt(job, seen=seen)
            before = 0 if first else self.n_epochs_seen_
            new.n_epochs_seen_ = before + new.n_iter_
            new.n_iter_ = new.n_epochs_seen_
            if n_replay:
                seed = int(new.seeds_[0])
                new.replay_ = _streaming.update_reservoir(
                    table, earlier, n_replay, seed
                )
            if renew:
                warn_if_doubtful(new, job)
        return self

    def _check_can_go_on(self, job: _job.TrainingJob, of_y: dict) -> None:
        """Refuse a warm start or a stream that this fit cannot be continued by."""
        _streaming.check_same_network(self, job, of_y)

    @abstractmethod
    def _check_held_out(self, X, y, table: Table, of_y) -> Table:
        """Validation rows as a table of the same kind as the training rows."""

    def _adopt(self, job: _job.TrainingJob, *, seen: float) -> None:
        """Make the trained networks the fitted state."""
        failed = job.trained.failed
        if failed.any():
            epochs = failed[failed > 0]
            warn(
                f"{len(epochs)} of {len(failed)} networks were left out: their loss "
                "became infinite or NaN, or what they say of the training rows is "
                f"absurd, first in epoch {epochs.min()}. Lower "
                f"learning_rate_init ({self.learning_rate_init:g} here).",
                ConvergenceWarning,
            )
        if job.trained.interrupted:
            warn(
                f"the fit was interrupted; {job.trained.n_epochs.max()} finished "
                "epochs are kept (warm_start=True), a further fit goes on from there.",
                ConvergenceWarning,
            )
        total_weight = seen + job.total_weight
        attributes = _fitted.fitted_attributes(job, total_weight)
        attributes |= job.data.of_y | {"total_weight_": total_weight}
        self.__dict__.pop("replay_", None)
        self.__dict__ |= attributes | {"_cache": _fitted.PosteriorCache()}

    def _checked_inputs(self, X):
        """X of a prediction, checked."""
        check_is_fitted(self)
        _validation.number_of_draws(self.n_draws)
        X = check_inputs(self, X, reset=False)
        if self.standardize is not False:
            names = getattr(self, "feature_names_in_", None)
            of_columns = self.x_mean_, self.x_scale_, self.total_weight_
            warn_of_far_rows(X, *of_columns, names)
        return X

    @property
    def _scaling(self) -> Scaling:
        """The standardisation of the fit."""
        return _fitted.scaling_of(self)

    def __getstate__(self):
        """Without what predictions keep."""
        state = dict(super().__getstate__())
        state.pop("_cache", None)
        return state

    def __setstate__(self, state):
        """Attributes of a pickle; those of earlier versions are brought up to date."""
        if "network_" in state:
            state = _fitted.upgraded(state)
        parameters = signature(type(self).__init__).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        super().__setstate__(defaults | state)
        if "network_" in state:
            _fitted.locked([*self.parameters_.values(), self.seeds_])
            self._cache = _fitted.PosteriorCache()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def set_fitted(
    estimator: BayesianNetwork, job: _job.TrainingJob, n_epochs_before: int = 0
) -> None:
    """Make the trained networks of a job, except diverged ones, the fitted state."""
    estimator._adopt(without_diverged(job), seen=0.0)
    estimator.n_epochs_seen_ = estimator.n_iter_ + n_epochs_before


def warn_if_doubtful(estimator: BayesianNetwork, job: _job.TrainingJob) -> None:
    """Warn if the predictions are no better than a constant or a linear model."""
    share = job.shares[0]
    estimator._warn_if_doubtful(job.table, share.rows, share.weights)
