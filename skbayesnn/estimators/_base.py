"""Base class of the estimators: ``fit``, ``partial_fit`` and the fitted state."""

from __future__ import annotations

import math
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skbayesnn import _validation
from skbayesnn._data.column_encoding import EncodedRows
from skbayesnn._data.scaling import Scaling, warn_of_far_rows
from skbayesnn._data.sources import resolved_columns, source_of
from skbayesnn._data.table_encoder import LATER_DATES, TableEncoder
from skbayesnn._data.validation import (
    Table,
    check_new_rows,
)
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.distribution import ModelRows
from skbayesnn._predictive.mixin import PredictiveMixin
from skbayesnn._runtime import (
    atomic_update,
    default_settings,
    silenced,
    snapshot,
    warn,
)
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    CallbackSupportMixin,
    accept_frames,
    with_callbacks,
)
from skbayesnn._typing import Array, MatrixLike
from skbayesnn.estimators import (
    _checkpoint,
    _fit,
    _fitted,
    _job,
    _out_of_core,
    _streaming,
)
from skbayesnn.estimators._defaults import defaults_of
from skbayesnn.estimators._diagnostics import (
    ExplainedVariance,
    warn_if_doubtful,
    without_diverged,
)
from skbayesnn.estimators._job import PosteriorSpec
from skbayesnn.estimators._survey import TrainingSource
from skbayesnn.estimators._training_data import (
    TrainingData,
    input_columns,
    training_data,
)
from skbayesnn.networks import NetworkDescription


class BayesianNetwork(
    PredictiveMixin, CallbackSupportMixin, BaseEstimator, metaclass=ABCMeta
):
    """Base class of all estimators.

    Each method defines ``_posterior_spec``. The regression and classification classes
    define ``_validate_table``, ``_row_weights`` and the predictions.
    """

    # Constructor parameters, for type checkers. Some classes lack some of them.
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
    categorical_features: Any = "from_dtype"
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
    engine_: str
    n_processes_: int
    n_epochs_seen_: int
    total_weight_: float
    network_: dict[str, Any]
    parameters_: dict[str, Array]
    optimizer_: dict[str, Array]
    seeds_: Array
    replay_: dict[str, Any]
    unfinished_: dict[str, Any]
    table_: TableEncoder | None
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
    # Defaults for classes whose constructors lack these parameters.
    likelihood_options: dict | None = None
    network: NetworkDescription | None = None
    _predictive_class: type[_fitted.PredictiveByDraws]
    # An interrupted fit to a source of rows, which the next `fit` continues.
    _unfinished: _out_of_core.Unfinished | None = None
    # With metadata routing, `groups` are requested by default, as by GroupKFold.
    __metadata_request__fit: ClassVar = {"groups": True}

    @property
    def _learns_rates(self) -> bool:
        """Whether dropout rates are learned; ``AutoDefaults`` may then differ."""
        return False

    def _length_scales(self, fan_ins, total_weight: float) -> np.ndarray:
        """Validated prior length scale of every layer for N rows, (layers,)."""
        rule = defaults_of(self).length_scale
        return _validation.length_scales(
            self.length_scale, fan_ins, rule.scales(fan_ins, total_weight)
        )

    @abstractmethod
    def _posterior_spec(self, fan_ins: Sequence[int]) -> PosteriorSpec:
        """Validate the method's parameters and return its posterior and prior.

        fan_ins : number of inputs of every weight layer
        """

    @abstractmethod
    def _explained_share(self, X, y, weights) -> ExplainedVariance | None:
        """Share of y explained by the network and by a linear model; X is checked."""

    @abstractmethod
    def _validate_table(
        self, X, y, sample_weight, *, groups=None, reset: bool
    ) -> tuple[Table, dict]:
        """Return the validated table and fitted attributes that depend only on y.

        groups : result of ``check_groups``
        """

    @abstractmethod
    def _row_weights(self, table: Table, rows, classes) -> np.ndarray:
        """Weights of ``table``'s rows ``rows`` in the likelihood."""

    @with_callbacks
    @default_settings
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        X_val: MatrixLike | None = None,
        y_val: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        checkpoint: str | PathLike | None = None,
    ) -> Self:
        """Fit the posterior to training data.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Training inputs. For float32 inputs, predictions are float32, unless that
            precision cannot represent y (its mean is more than 800 standard deviations
            from zero). For all other inputs they are float64.

            Or a source of rows, which need not fit into memory: Parquet files (a path,
            a pattern such as ``"flights/*.parquet"``, a folder or a list), a pyarrow
            dataset, a polars LazyFrame, a Dask collection, or an array on disk
            (``numpy.memmap``, HDF5, Zarr). See Notes.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), or str
            Target values or class labels. If X has named columns, y can be the name of
            one of them; so can ``sample_weight`` and ``groups``.
        sample_weight : array-like of shape (n_samples,) or str, default=None
            Weights of the rows in the likelihood; the prior is not weighted. Weight 2
            is equivalent to a duplicated row, weight 0 to a removed row. A class whose
            rows all have weight 0 stays in ``classes_`` with probability 0.
        X_val, y_val : array-like, default=None
            Validation set for early stopping; requires ``early_stopping=True``. The
            default is a random ``validation_fraction`` of the training rows. A
            ``Pipeline`` transforms ``X_val`` only with metadata routing and
            ``transform_input=["X_val"]``.
        groups : array-like of shape (n_samples,), default=None
            Give it if rows depend on each other, such as all rows of a patient, and
            predictions will be for new groups. Wherever rows are held out (length
            scale, epochs, observation noise, early stopping, statistics of y for
            categories), the rows of a group stay together. Otherwise rows of the same
            group are among the training rows, and the noise is underestimated.
            Rules for few rows count the groups, if these are fewer. With metadata
            routing, groups are requested by default.
        checkpoint : str or path-like, default=None
            Give it for fits that take hours, or on machines that may stop. Path of a
            file, such as ``"fit.skb"``, to which the networks are written after the
            first epoch of the training on all rows, and then at most every 30 seconds
            and for at most 5 % of the time. Whatever ends the process,
            :func:`skbayesnn.load` returns the networks of the last write, which can
            predict, and the ``fit`` of the loaded estimator with the same rows and
            parameters trains the remaining epochs: the result is the one of a fit
            without interruption, up to rounding. At the end the file contains the
            fitted estimator.

        Returns
        -------
        self : object
            The fitted estimator. After an error or an interruption it is unchanged.
            Exception: with ``warm_start=True``, an interruption during the final
            training on all rows keeps the finished epochs, with a warning.

        Raises
        ------
        ConnectionError, TimeoutError
            If several processes share the fit (``n_processes_``) and one of them is
            lost. With ``warm_start=True``, the estimator keeps the finished epochs; so
            does the file of ``checkpoint``.

        Notes
        -----
        A source is read once for the number of rows, the classes and a random sample
        of up to 100,000 rows. The sample sets the encoding of the columns, the
        standardisation, and the rows that are held out. Then ``max_iter`` passes train
        on all rows, in blocks of random order whose rows are shuffled in a buffer.
        ``max_iter="auto"`` is at most 50,000 steps, rounded up to whole passes. The
        memory stays within scikit-learn's ``working_memory`` (1 GiB, see
        :func:`sklearn.set_config`), whatever the size of the source; a source that is
        small by this limit is read as a whole. After an interruption or an error of
        reading, the next ``fit`` to the same source continues the training.
        """
        with atomic_update(self) as new:
            vars(new).pop("unfinished_", None)
            file = None
            if checkpoint is not None:
                file = _checkpoint.Checkpoint(checkpoint, new, set_fitted)
            has_unfinished = getattr(self, "unfinished_", None) is not None
            warm = _validation.check_bool("warm_start", self.warm_start)
            warm = warm and hasattr(self, "parameters_")
            source, seen, n_before = source_of(X), 0.0, 0
            if source is not None and source.is_small:
                X, source = source.read(), None
            # Callbacks receive `self`, not the copy `new`.
            if source is not None:
                _out_of_core.refuse_validation_set(X_val, y_val)
                training = TrainingSource(source, y, sample_weight, groups)
                trained_job, seen, n_before = _out_of_core.fit_source(
                    self, new, training, warm=warm, checkpoint=file
                )
            else:
                X, y, sample_weight, groups = resolved_columns(
                    X, y, sample_weight, groups
                )
                table = X, y, sample_weight, X_val, y_val, groups
                of_fit, continued = None, False
                if has_unfinished or (file is not None and not warm):
                    fresh = snapshot(new)
                    data = training_data(fresh, *table)
                    of_fit = _checkpoint.identity(self, _checkpoint.rows_of(data))
                    continued = _checkpoint.is_continued(self, of_fit)
                    if continued or not warm:
                        warm = False
                        vars(new).update(vars(fresh))
                if of_fit is None or warm:
                    data = training_data(new, *table, reset=not warm)
                if warm:
                    n_before = self.n_epochs_seen_
                    trained_job = _streaming.warm_start(self, data, file)
                elif of_fit is not None:
                    trained_job = _fit.train_with_checkpoint(
                        self, data, file, of_fit, continued
                    )
                else:
                    [trained_job] = _fit.train_together(
                        [self], [_job.training_job(self, data)]
                    )
            set_fitted(new, trained_job, n_before, seen)
            _streaming.keep_rows_of_fit(new, trained_job)
            warn_if_doubtful(new, trained_job.job)
            new._warn_of_posterior()
        if trained_job.trained.lost is not None:
            raise trained_job.trained.lost
        if file is not None and not trained_job.trained.interrupted:
            file.write(self)
        return self

    @abstractmethod
    def _prediction_spread(self, X, y) -> tuple[float, str]:
        """Spread of the predictions over checked rows, and a phrase for a warning.

        Uses the posterior means of the weights: draws would add their own variation.
        """

    def _warn_of_posterior(self) -> None:
        """Warn of problems that only this method's posterior can have; none here."""

    @default_settings
    def _partial_fit(
        self,
        X,
        y,
        sample_weight,
        *,
        n_epochs="auto",
        n_replay="auto",
        n_total=None,
        renew=False,
        **check_params,
    ):
        """Train on new rows; see ``partial_fit`` of the estimators.

        renew : bool, whether to use the present posterior, if any, as the prior and
            run a full fit on the new rows
        """
        _validation.check_auto_or_integer("n_epochs", n_epochs, low=1)
        _validation.check_auto_or_integer("n_replay", n_replay, low=0)
        if _validation.stops_early(self.early_stopping, 0, math.inf):
            raise ValueError(
                "`partial_fit` must be used without early stopping, which would hold "
                "out other rows; got early_stopping=True. Set it to False, or use "
                "`fit`."
            )
        with atomic_update(self) as new:
            first = not hasattr(self, "parameters_")
            with silenced(LATER_DATES):  # the network is about to learn from them
                table, target_attributes = new._validate_table(
                    X, y, sample_weight, reset=first, **check_params
                )
            if n_total is not None:
                # A pass over parts of one table, which may come again.
                n_epochs = 1 if isinstance(n_epochs, str) else n_epochs
                n_replay = 0 if isinstance(n_replay, str) else n_replay
            n_replay = _streaming.n_kept_rows(n_replay, table.X.shape[1])
            kept = getattr(self, "replay_", None) if n_replay and not renew else None

            def data_of(table):
                rows = np.flatnonzero(table.sample_weight > 0)
                return TrainingData(table, rows, None, target_attributes)

            data = data_of(_streaming.with_kept(table, kept))
            weights = self._row_weights(data.table, data.rows, data.classes)
            seen, is_fit = 0.0, first and isinstance(n_epochs, str)
            if n_total is not None and not renew:
                new_weight = float(weights.sum())
                _validation.check_number("n_total", n_total, low=new_weight)
                seen = n_total - new_weight
            elif not (first or renew):
                # Replayed rows are part of `total_weight_`: subtract their weight.
                weight_kept = float(weights[data.rows >= len(table.y)].sum())
                seen = self.total_weight_ - weight_kept
            if renew and first:
                job = _job.training_job(self, data)
                [trained_job] = _fit.train_together([self], [job])
            elif renew:
                trained_job = _streaming.refit_with_posterior_prior(self, data)
            elif first:
                trained_job = _streaming.begin_stream(self, data, n_epochs, seen)
            else:
                if n_replay and kept is None:
                    warn("SKB114", _streaming.NO_ROWS)
                with_refused = _streaming.with_refused(table, kept)
                update = _streaming.update(
                    self, data, data_of(with_refused), len(table.y), n_epochs, seen
                )
                if update.trained_job is None:
                    warn("SKB113", update.warning)
                    if kept is not None:
                        new.replay_ = _streaming.refuse(with_refused, kept)
                    return self
                if update.is_alone:
                    warn("SKB112", update.warning)
                    table, kept, seen = with_refused, None, 0.0
                trained_job, is_fit = update.trained_job, update.is_fit
            if renew or is_fit:
                # Only after a full fit: in a stream, networks may be at their start, or
                # new rows may differ from earlier ones.
                trained_job = without_diverged(trained_job)
            new._store_fitted(trained_job, seen=seen)
            before = 0 if first else self.n_epochs_seen_
            new.n_epochs_seen_ = before + new.n_iter_
            if (first or is_fit) and not renew:
                _streaming.keep_rows_of_fit(new, trained_job, n_replay)
            elif n_replay and not renew:
                new.replay_ = _streaming.with_update(self, table, kept, n_replay)
            new.n_iter_ = new.n_epochs_seen_
            if renew or is_fit:
                warn_if_doubtful(new, trained_job.job)
        if trained_job.trained.lost is not None:
            raise trained_job.trained.lost
        return self

    def _check_can_continue(
        self, job: _job.TrainingJob, target_attributes: dict
    ) -> None:
        """Raise if training cannot continue from the fitted state."""
        _streaming.check_same_network(self, job, target_attributes)

    @abstractmethod
    def _check_held_out(self, X, y, table: Table, target_attributes) -> Table:
        """Validate the validation set and return it as a table."""

    def _store_fitted(self, trained_job: _job.TrainedJob, *, seen: float) -> None:
        """Store the trained networks as fitted attributes.

        seen : total weight of earlier rows of the stream
        """
        trained = trained_job.trained
        failed = trained.failed
        if failed.any():
            epochs = failed[failed > 0]
            warn(
                "SKB101",
                f"{len(epochs)} of {len(failed)} networks were left out, because their "
                "loss became infinite or NaN, or their predictions of training rows "
                f"became absurdly large, first in epoch {epochs.min()}. Lower "
                f"learning_rate_init ({self.learning_rate_init:g} here).",
                ConvergenceWarning,
            )
        if trained.interrupted:
            warn(
                "SKB108",
                f"the fit was interrupted; {trained.n_epochs.max()} finished "
                "epochs are kept (warm_start=True). Call `fit` again to continue.",
                ConvergenceWarning,
            )
        total_weight = seen + trained_job.job.total_weight
        attributes, posterior = _fitted.fitted_attributes(trained_job, total_weight)
        attributes |= trained_job.job.data.target_attributes | {
            "total_weight_": total_weight
        }
        self.__dict__.pop("replay_", None)
        self.__dict__ |= attributes | {"_cache": _fitted.PosteriorCache()}
        self._cache.prime(self, posterior)

    def _new_rows(self, X) -> EncodedRows:
        """Validate X of a prediction."""
        check_is_fitted(self)
        _validation.check_n_draws(self.n_draws)
        standardized = self.standardize is not False
        moments = (self.x_mean_, self.x_scale_) if standardized else ()
        rows = check_new_rows(self, X, *moments)
        if standardized:
            scale = self.x_mean_, self.x_scale_, self.total_weight_
            warn_of_far_rows(self, rows.X, *scale, input_columns(self, X))
        return rows

    def _open_predictive(self, X, method="draws"):
        fitted = snapshot(self)
        rows = fitted._new_rows(X)

        def opened(X) -> PredictiveBlocks:
            posterior = _fitted.posterior_by(fitted, X, method)
            return self._predictive_class(fitted, X, posterior).in_blocks()

        return PredictiveBlocks.of_encoded(rows, opened)

    def _distribution_by(self, X, method):
        if isinstance(method, str) and method == "draws":
            return self.predict_distribution(X)
        _validation.check_option("method", method, _fitted.METHODS)
        rows = ModelRows(snapshot(self), X, {"method": method})
        return self._distribution_class([rows])

    @property
    def _scaling(self) -> Scaling:
        """Standardisation of X and y."""
        return _fitted.restore_scaling(self)

    def __getstate__(self):
        """Return the state without the cached posterior."""
        state = dict(super().__getstate__())
        state.pop("_cache", None)
        return state

    def __setstate__(self, state):
        """Restore a pickled state, with arrays that nothing can change."""
        super().__setstate__(state)
        if "network_" in state:
            _fitted.make_read_only([*self.parameters_.values(), self.seeds_])
            self._cache = _fitted.PosteriorCache()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return accept_frames(tags)


def set_fitted(
    estimator: BayesianNetwork,
    trained_job: _job.TrainedJob,
    n_epochs_before: int = 0,
    seen: float = 0.0,
) -> None:
    """Store trained networks, without diverged ones, as fitted attributes.

    seen : total weight of training rows that the job does not contain
    """
    estimator._store_fitted(without_diverged(trained_job), seen=seen)
    estimator.n_epochs_seen_ = estimator.n_iter_ + n_epochs_before
