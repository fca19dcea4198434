"""Base class of the estimators: ``fit``, ``partial_fit`` and the fitted state."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from os import PathLike
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from skbayesnn import _stored as stored
from skbayesnn import _validation
from skbayesnn._data.column_encoding import EncodedRows
from skbayesnn._data.scaling import Scaling, warn_of_far_rows
from skbayesnn._data.sources import resolved_columns, source_of
from skbayesnn._data.table_encoder import LATER_DATES, TableEncoder
from skbayesnn._data.validation import (
    Table,
    check_new_rows,
)
from skbayesnn._distributions.recorded import is_space
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
    accept_frames,
)
from skbayesnn._typing import MatrixLike
from skbayesnn.estimators import _fit, _fitted, _out_of_core, _streaming
from skbayesnn.estimators._continuation import (
    Checkpoint,
    UnfinishedFit,
    check_same_network,
)
from skbayesnn.estimators._defaults import defaults_of
from skbayesnn.estimators._diagnostics import (
    ExplainedVariance,
    warn_if_doubtful,
    without_diverged,
)
from skbayesnn.estimators._job import PosteriorSpec, TrainedJob, TrainingJob
from skbayesnn.estimators._parameters import Parameters
from skbayesnn.estimators._survey import TrainingSource
from skbayesnn.estimators._training_data import input_columns


class BayesianNetwork(
    _fitted.WithCache,
    PredictiveMixin,
    Parameters,
    BaseEstimator,
    metaclass=ABCMeta,
):
    """Base class of all estimators.

    Each method defines ``_posterior_spec``. The regression and classification classes
    define ``_validate_table``, ``_row_weights`` and the predictions.
    """

    # Of regressors and classifiers, with different defaults.
    tau: Any
    likelihood: str
    # Fitted attributes.
    n_features_in_: stored.NumberOfColumns
    n_iter_: stored.Count
    engine_: str
    n_processes_: stored.PositiveCount
    n_epochs_seen_: stored.Count
    total_weight_: stored.PositiveFloat
    network_: dict[str, Any]
    parameters_: dict[str, Annotated[stored.Floats, stored.NOT_NAN_OR_INF]]
    optimizer_: dict[str, Annotated[stored.Numbers, stored.NOT_NAN]]
    seeds_: stored.Seeds
    replay_: Annotated[dict[str, Any], _streaming.KeptRows, stored.OPTIONAL]
    unfinished_: Annotated[dict[str, Any], UnfinishedFit, stored.OPTIONAL]
    table_: TableEncoder | None
    x_mean_: Annotated[stored.Floats, "inputs"]
    x_scale_: Annotated[stored.Floats, "inputs", stored.POSITIVE]
    y_mean_: Annotated[stored.Floats, "targets"]
    y_scale_: Annotated[stored.Floats, "targets", stored.POSITIVE]
    # Of regressors.
    y_ndim_: Annotated[Literal[1, 2], stored.OPTIONAL]
    exposure_: Annotated[dict[str, float], stored.OPTIONAL]
    target_spaces_: Annotated[
        list[Annotated[dict[str, Any], stored.Property("a space of y", is_space)]],
        stored.OPTIONAL,
    ]
    tau_: stored.PerTarget
    tau_training_: stored.PerTarget
    row_noise_std_: stored.PerTarget | None
    dropout_: Annotated[
        Any, Annotated[float, stored.SHARE] | Annotated[stored.Floats, stored.SHARE]
    ]
    length_scale_: stored.PerLayer
    weight_decay_: stored.PerLayer
    weight_decay_training_: stored.PerLayer
    distillation_loss_: Annotated[stored.Record, stored.OPTIONAL]
    prior_: list[dict[str, stored.Floats]] | None
    elbo_: stored.Record
    elbo_std_error_: stored.Record
    history_: dict[str, Annotated[stored.Records, "epochs, networks"]]
    loss_curve_: list[stored.Record]
    # Classifiers have no such parameters.
    likelihood_options: dict | None = None
    target_scale: str = "identity"
    y_bounds: Any = None
    point_mass: float | None = None
    exposure: str | int | None = None
    _predictive_class: type[_fitted.PredictiveByDraws]
    _cache_class = _fitted.PosteriorCache
    # The unfinished model of an interrupted fit to a source of rows.
    _unfinished: BayesianNetwork | None = None
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
            Path of a file, such as ``"fit.skb"``. Give it for fits that take hours, or
            on machines that may stop. The networks are written to this file after the
            first epoch of the training on all rows, and then at most every 30 seconds
            and for at most 5 % of the time. If the process ends,
            :func:`skbayesnn.load` returns the networks of the last write, which can
            predict. A ``fit`` of the loaded estimator with the same rows and parameters
            trains the remaining epochs. The result equals the result of a fit without
            interruption, up to rounding. At the end the file contains the fitted
            estimator.

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
            lost. The file of ``checkpoint`` keeps the finished epochs.

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
            for name in ("unfinished_", "_unfinished"):
                vars(new).pop(name, None)
            file = None if checkpoint is None else Checkpoint(checkpoint)
            source = source_of(X)
            if source is not None and not source.is_small:
                _out_of_core.refuse_validation_set(X_val, y_val)
                training = TrainingSource(source, y, sample_weight, groups)
                trained_job = _out_of_core.fit_source(
                    self, new, training, checkpoint=file
                )
            else:
                X = X if source is None else source.read()
                X, y, sample_weight, groups = resolved_columns(
                    X, y, sample_weight, groups
                )
                table = X, y, sample_weight, X_val, y_val, groups
                trained_job = _fit.fit_to_table(self, new, table, file)
            set_fitted(new, trained_job)
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
        n_epochs,
        n_replay,
        n_total,
        prior,
        **check_params,
    ):
        """Train on new rows; see ``partial_fit`` of the estimators.

        check_params : further arguments of ``_validate_table``
        """
        options = _streaming.PartialFit.checked(
            self, n_epochs, n_replay, n_total, prior
        )
        with atomic_update(self) as new:
            vars(new).pop("_unfinished", None)
            with silenced(LATER_DATES):  # the network is about to learn from them
                table, target_attributes = new._validate_table(
                    X,
                    y,
                    sample_weight,
                    reset=not hasattr(self, "parameters_"),
                    **check_params,
                )
            update = options.train(self, table, target_attributes)
            trained_job = update.trained_job
            if trained_job is None:
                if update.replay is not None:
                    new.replay_ = update.replay
                return self
            if update.is_fit:
                # In a stream, networks may be at their start, or new rows may differ
                # from earlier ones.
                trained_job = without_diverged(trained_job)
            new._store_fitted(trained_job)
            if update.replay is not None:
                new.replay_ = update.replay
            elif update.n_kept:
                _streaming.keep_rows_of_fit(new, trained_job, update.n_kept)
            new.n_iter_ = new.n_epochs_seen_
            if update.is_fit:
                warn_if_doubtful(new, trained_job.job)
        if trained_job.trained.lost is not None:
            raise trained_job.trained.lost
        return self

    def _check_normal_posterior(self) -> None:
        """Raise if the posterior cannot be a prior, as that of most methods."""
        raise ValueError(
            "prior='previous' requires the posterior of BBBRegressor or BBBClassifier; "
            f"got {type(self).__name__}. Leave it out."
        )

    def _check_can_continue(self, job: TrainingJob, target_attributes: dict) -> None:
        """Raise if training cannot continue from the fitted state."""
        check_same_network(self, job, target_attributes)

    @abstractmethod
    def _check_held_out(self, X, y, table: Table, target_attributes) -> Table:
        """Validate the validation set and return it as a table."""

    def _store_fitted(self, trained_job: TrainedJob) -> None:
        """Store the trained networks as fitted attributes."""
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
        attributes, posterior = _fitted.fitted_attributes(trained_job)
        attributes |= trained_job.job.data.target_attributes
        for name in ("replay_", "unfinished_", "target_spaces_", "exposure_"):
            self.__dict__.pop(name, None)
        self.__dict__ |= attributes
        self._protect()
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
            warn_of_far_rows(self, rows.X, *scale, input_columns(self))
        return rows

    def _open_predictive(self, X, method="draws"):
        fitted = snapshot(self)
        rows = fitted._new_rows(X)

        def opened(X) -> PredictiveBlocks:
            posterior = _fitted.posterior_by(fitted, X, method)
            return self._predictive_class(fitted, X, posterior).in_blocks()

        return PredictiveBlocks.of_encoded(rows, opened)

    def _lazy_distribution(self, X, method="draws"):
        if isinstance(method, str) and method == "draws":
            return super()._lazy_distribution(X)
        _validation.check_option("method", method, _fitted.METHODS)
        rows = ModelRows(snapshot(self), X, {"method": method})
        return self._distribution_class([rows])

    @property
    def _scaling(self) -> Scaling:
        """Standardisation of X and y."""
        return _fitted.restore_scaling(self)

    @property
    def _cached_arrays(self):
        return [*self.parameters_.values(), self.seeds_]

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the estimator is fitted; scikit-learn would read all attributes."""
        return hasattr(self, "parameters_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return accept_frames(tags)


def set_fitted(estimator: BayesianNetwork, trained_job: TrainedJob) -> None:
    """Store trained networks, without diverged ones, as fitted attributes."""
    estimator._store_fitted(without_diverged(trained_job))
