"""Base of the two stacks: cross-fitted candidates, their weights, fits to all rows."""

from __future__ import annotations

import math
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, field, replace
from functools import partial
from itertools import compress
from numbers import Integral
from operator import not_
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast

import joblib
import numpy as np
import sklearn
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from skbayesnn import _stored as stored
from skbayesnn import _validation
from skbayesnn._batch.executor import Resources
from skbayesnn._batch.jobs import last_step
from skbayesnn._batch.outcomes import (
    ALL_ROWS,
    Fingerprint,
    Folds,
    ProgramResult,
    ResultStore,
)
from skbayesnn._data.class_order import if_ordered
from skbayesnn._data.column_encoding import EncodedRows
from skbayesnn._data.columns import KINDS, is_frame
from skbayesnn._data.groups import check_groups
from skbayesnn._data.scaling import FAR_ROWS, TRAINING_CODES, warn_of_far_rows
from skbayesnn._data.sources import in_memory, resolved_columns, source_of
from skbayesnn._data.table_encoder import EXPECTED_IN_FOLDS, TableEncoder, is_default
from skbayesnn._data.target import latent_target
from skbayesnn._data.validation import (
    check_new_rows,
    check_weights,
    named_after,
    refuse_named_categories,
)
from skbayesnn._distributions.recorded import TargetSpace
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.mixin import PredictiveMixin
from skbayesnn._predictive.mixture import in_space
from skbayesnn._runtime import (
    default_settings,
    on_snapshot,
    replace_fitted,
    silence_warning,
    silenced,
    snapshot,
    warn_once,
)
from skbayesnn._sklearn_compat import (
    ShowsSummary,
    accept_frames,
    num_samples,
    safe_indexing,
)
from skbayesnn._stacking.candidates import (
    Candidate,
    StackData,
    check_can_be_mixed,
    drop_failed,
    encode_by_fold,
    expand_pool,
    model_of,
    n_networks,
    predict_held_out,
    refit_to_all_rows,
)
from skbayesnn._stacking.folds import (
    FIRST_FROM,
    N_FIRST,
    SAMPLE_WEIGHT,
    SAMPLED_FROM,
    lacks_class,
    make_folds,
    thinned,
)
from skbayesnn._stacking.foreign import ForeignModel, name_features
from skbayesnn._stacking.forest import without_unused_trees
from skbayesnn._stacking.many_rows import cv_of_sample, fits_to_all_rows
from skbayesnn._stacking.pool import (
    LAPLACE_REFITS,
    WIDE_FROM,
    CandidateSpec,
    PoolSize,
    default_specs,
    dense_if_small,
    encoded_positions,
    given_spec,
    is_own,
    largest_size,
    pool_items,
)
from skbayesnn._stacking.summary import Summary, warn_of_few_rows
from skbayesnn._stacking.target import Target
from skbayesnn._stacking.time_limit import TimePlan, n_training_rows
from skbayesnn._stacking.weights import (
    N_DRAWS,
    OutOfFold,
    Stacked,
    corrected,
    factor_with_starts,
    pooled,
    share_of_starts,
)
from skbayesnn._typing import MatrixLike
from skbayesnn._validation import MAX_N_DRAWS
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._diagnostics import some_rows
from skbayesnn.estimators._parameters import parameters
from skbayesnn.estimators._progress import (
    FitProgress,
    RemainingSteps,
    check_verbose,
)
from skbayesnn.estimators._survey import TrainingSource, survey
from skbayesnn.estimators._training_data import (
    input_columns,
    training_data,
    warn_of_codes_in_table,
)
from skbayesnn.estimators.laplace import LaplaceModel
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.preprocessing import PiecewiseLinearEncoder

# Share of a time limit for the comparison on some rows.
SHARE_OF_FIRST = 0.3
# Rows that a thread encodes at a time: an encoding takes about twenty times the memory
# of X, and each candidate has its own.
OPENED_AT_ONCE = 8192
# At most this many rows times targets estimate how much refits from different starts
# differ.
MAX_COMPARED = 1_000


@parameters
class StackParameters:
    """Constructor parameters of both stacks, which document them."""

    estimators: Any = field(default="auto", kw_only=False)
    categorical_features: stored.ColumnChoice = "from_dtype"
    cv: Any = None
    n_refits: Any = "auto"
    max_iter: Any = "auto"
    n_jobs: int | None = None
    memory_budget: float | None = None
    n_selection_rows: Any = 50_000
    time_limit: float | None = None
    device: Any = "auto"
    verbose: bool | int | str = "auto"
    random_state: stored.Seed = None


class BayesianStacking(
    StackParameters, PredictiveMixin, ShowsSummary, metaclass=ABCMeta
):
    """Base of both stacks."""

    # Of regressors.
    weights = "log_density"
    y_bounds: Any = None
    exposure: str | int | None = None
    n_features_in_: Annotated[stored.NumberOfColumns, stored.OPTIONAL]
    _weights: dict[str, dict[str, stored.Record]]
    estimators_: Annotated[list[stored.Fitted], "candidates"]
    n_draws_: Annotated[stored.Integers, "candidates", stored.between(1, MAX_N_DRAWS)]
    spread_factor_: Annotated[stored.Floats, stored.POSITIVE]
    oof_prediction_: stored.Records
    oof_log_density_: stored.Records
    summary_: Summary
    n_iter_: stored.Count
    fitted_to_sparse_: bool | None
    table_: TableEncoder | None
    fold_tables_: Annotated[list[TableEncoder], "folds"] | None
    on_frame_: Annotated[list[bool], "candidates"] | None
    candidate_spaces_: Annotated[
        Annotated[list[dict[str, Any] | None], "candidates"], stored.OPTIONAL
    ]
    sample_rows_: Annotated[stored.Integers, "_", stored.NOT_NEGATIVE, stored.OPTIONAL]
    _is_classification: bool
    _unfinished: _Progress | None = None
    # With metadata routing, `groups` are requested by default, as by GroupKFold.
    __metadata_request__fit: ClassVar = {"groups": True}

    def _check_stored(self) -> None:
        """Raise if candidates or tables of folds have other columns than the stack."""
        if not hasattr(self, "estimators_"):
            return
        table, tables = self.table_, self.fold_tables_
        n_inputs = self.n_features_in_ if table is None else table.n_features_out
        on_frame = self.on_frame_ or [False] * len(self.estimators_)
        for candidate, is_on_frame in zip(self.estimators_, on_frame, strict=True):
            n_columns = getattr(candidate, "n_features_in_", n_inputs)
            if n_columns != n_inputs and not is_on_frame:
                raise ValueError(
                    f"its candidates must have {n_inputs} columns; got {n_columns}."
                )
        # Folds have encoders only if encodings are statistics of y.
        if (tables is not None) != (table is not None and table.uses_y):
            raise ValueError(
                "`fold_tables_` must exist if, and only if, `table_` encodes levels by "
                f"statistics of y; got {tables!r:.100}."
            )
        layouts = [encoder.layout for encoder in (table, *(tables or ())) if encoder]
        if any(layout != layouts[0] for layout in layouts):
            raise ValueError(
                f"`fold_tables_` must have the features of `table_`; got {layouts}."
            )

    @default_settings
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Cross-validate the candidates, weight them, and refit them to all rows.

        If a fit is interrupted or fails, the fitted attributes stay as they were. The
        next ``fit`` to the same data resumes it.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Or a source of rows, which need not fit into memory; see
            :meth:`MCDropoutRegressor.fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), or str
            Targets, or labels. If X has named columns, y can be the name of one of
            them; so can ``sample_weight`` and ``groups``.
        sample_weight : array-like of shape (n_samples,) or str, default=None
            Weights of the rows. They enter the likelihood of the candidates and the
            log density that the stacking weights maximise.
        groups : array-like of shape (n_samples,), default=None
            Give it if rows depend on each other, such as all rows of a patient, and
            predictions will be for new groups. The folds keep the rows of a group
            together. With an integer or None as ``cv`` there are as many folds as
            without groups, at most one per group, with about equal numbers of rows;
            groups of the same size are shuffled. Any other ``cv`` gets the groups for
            its ``split``. The candidates get them for the rows that they hold out. With
            metadata routing, groups are requested by default.

        Returns
        -------
        self : object
        """
        name, verbose = type(self).__name__, check_verbose(self.verbose)
        with FitProgress(name, verbose, self.time_limit) as log:
            return self._logged_fit(X, y, sample_weight, groups, log)

    def _logged_fit(self, X, y, sample_weight, groups, log) -> Self:
        n_most = _validation.check_number(
            "n_selection_rows", self.n_selection_rows, kind=Integral, low=100
        )
        source = source_of(X)
        if source is None:
            X, y, sample_weight, groups = resolved_columns(X, y, sample_weight, groups)
            if num_samples(X) > n_most and not sparse.issparse(X):
                source = in_memory(X)
        # Drawn once: a fit that resumes has the folds and the sample of the first one.
        seed = self._seed()
        if source is None:
            attributes = self._fitted_attributes(
                X, y, sample_weight, groups, log, self.cv, seed
            )
        else:
            training = TrainingSource(source, y, sample_weight, groups)
            attributes = self._fitted_to_many_rows(training, n_most, log, seed)
        # Replace all attributes at the end: a failed fit changes nothing, and nothing
        # of an earlier fit remains.
        replace_fitted(self, attributes)
        if log.is_cut and self._unfinished is not None:
            self._unfinished.store.forget(ALL_ROWS)  # They may have fewer starts.
        else:
            self._unfinished = None
        log(str(self.summary_))
        return self

    def _fitted_to_many_rows(
        self, training: TrainingSource, n_sample: int, log, seed: int
    ) -> dict[str, Any]:
        """Fitted attributes: of a sample, with its networks fitted to all rows."""
        found = survey(self, training, seed, n_sample)
        sample = found.sample
        weights = None if (sample.weights == 1).all() else sample.weights
        log(f"candidates are compared on {len(sample.ids)} of {found.n_rows} rows")
        attributes = self._fitted_attributes(
            sample.X,
            sample.y,
            weights,
            sample.groups,
            log,
            cv_of_sample(self.cv, sample.ids, training.source.n_rows),
            seed,
        )
        fitted = snapshot(self)
        replace_fitted(fitted, attributes)
        progress = cast(_Progress, self._unfinished)
        attributes["estimators_"] = fits_to_all_rows(
            fitted,
            training,
            found,
            getattr(self, "class_weight", None),
            progress.many_rows,
            log,
        )
        return attributes | {"sample_rows_": sample.ids}

    def _fitted_attributes(
        self, X, y, sample_weight, groups, log, cv, seed: int
    ) -> dict[str, Any]:
        """Cross-validate the candidates, weight them, and refit them to all rows.

        cv : the parameter, for these rows
        seed : of folds and candidates
        """
        original_y, y = y, self._checked_targets(y, X)
        ordered_y = if_ordered(original_y)
        if isinstance(self.n_refits, str):
            _validation.check_named("n_refits", self.n_refits, ["auto"])
        else:
            _validation.check_number("n_refits", self.n_refits, kind=Integral, low=1)
        _validation.check_option("weights", self.weights, ["log_density", "crps"])
        orders = None if ordered_y is None else ordered_y.orders
        conditions = self._conditions(seed, X, y, orders, sample_weight, groups)
        data, pool = self._data_and_pool(
            X, y, sample_weight, check_groups(groups, X), seed
        )
        data = replace(data, ordered_y=ordered_y)
        candidates = expand_pool(pool)
        check_can_be_mixed(candidates, is_classification=self._is_classification)
        splits = make_folds(
            cv,
            data,
            groups,
            is_classification=self._is_classification,
            seed=seed,
            folds_below=self._pool_size.folds_below,
        )
        store = ResultStore(conditions, Fingerprint.from_values(splits))
        progress = self._unfinished
        if progress is None or store.resumed(progress.store) is store:
            progress = _Progress(self.random_state, seed, store, {}, {})
        # Until the end of `fit`, which may fit networks to more rows.
        self._unfinished = progress
        try:
            return self._fit_stack(data, candidates, splits, progress, log)
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                progress.store.forget_failures()
            raise

    def _fit_stack(
        self, data, candidates, splits, progress: _Progress, log
    ) -> dict[str, Any]:
        """Compute the fitted attributes; add trained models to ``progress``."""
        resources, folds = self._resources(), range(len(splits))
        store, expected = progress.store, {}
        warn_of_few_rows(int(np.count_nonzero(data.weights > 0)))
        fold_data, fold_rows, fold_tables = encode_by_fold(data, splits)

        def predicted(rows: list[tuple], store: ResultStore, label: str, groups):
            """The candidates that could be trained on all of these folds."""
            folds, done = range(len(rows)), []
            # Warnings of rows are not by the rows of a fold, which may be fewer.
            with silenced(TRAINING_CODES):
                for group in groups:
                    new = predict_held_out(group, fold_data, rows, resources, store)
                    _collect(new, store, group, folds, label, log)
                    done += group
            done.sort(key=candidates.index)
            return drop_failed(done, store, folds)

        n_rows = int(np.count_nonzero(data.weights))
        first, first_rows, first_store = splits[:N_FIRST], fold_rows[:N_FIRST], store
        has_first = self.cv is None and len(splits) > N_FIRST and n_rows >= FIRST_FROM
        if n_rows >= SAMPLED_FROM:
            # An interrupted fit compares on the sample again, which takes little time.
            first_store = ResultStore()
            first, first_rows = (thinned(f, data.weights) for f in (splits, fold_rows))
            has_first = not (
                self._is_classification and lacks_class(data.y, first, splits)
            )
        remaining = splits
        left_out: list[tuple[list[Candidate], Stacked]] = []
        if has_first and len(candidates) > 1:
            plan = TimePlan(log, 0, first, {}, {})
            groups = plan.groups(candidates, SHARE_OF_FIRST)
            label = "networks on some rows"
            candidates = predicted(first_rows, first_store, label, groups)
            oof = OutOfFold.from_outcomes(candidates, first, first_store, data)
            stacked = oof.stacked(self.weights)
            left_out.append((candidates, stacked))
            if first_store is store:
                candidates = list(compress(candidates, stacked.weights))
                remaining = splits[N_FIRST:]
            else:
                candidates = self._promising(
                    candidates, stacked, first, first_store, data
                )
            growth = n_training_rows(remaining) / n_training_rows(first)
            expected = {name: growth * s for name, s in plan.seconds.items()}
        plan = TimePlan(log, n_rows, remaining, progress.seconds, expected)
        groups = plan.groups(candidates)
        candidates = predicted(fold_rows, store, "networks out of fold", groups)
        while True:
            oof = OutOfFold.from_outcomes(candidates, splits, store, data)
            stacked = oof.stacked(self.weights)
            kept = list(compress(candidates, stacked.n_draws))
            n_draws = stacked.n_draws[stacked.n_draws > 0]
            starts = [
                self._n_refits(candidate, n, n_rows)
                for candidate, n in zip(kept, n_draws, strict=True)
            ]
            paid, starts = plan.payable(kept, n_draws, starts)
            if len(paid) < len(kept):
                candidates = paid
                continue
            settings = {
                candidate.name: candidate.refit_params(n_starts, n)
                for candidate, n_starts, n in zip(kept, starts, n_draws, strict=True)
            }
            new = refit_to_all_rows(kept, settings, data, resources, store)
            _collect(new, store, kept, [ALL_ROWS], "fitted to all rows", log)
            successful = drop_failed(candidates, store, [ALL_ROWS])
            if len(successful) == len(candidates):
                break
            # Weight the others again.
            candidates = successful
        outcomes = store.outcomes(settings, [ALL_ROWS])
        models = [
            # The number of draws is larger if another candidate was dropped after the
            # fit.
            outcome.results[0].set_params(**params)
            for outcome, params in zip(outcomes, settings.values(), strict=True)
        ]
        fold_models = [
            [outcome.results[0].estimator for outcome in outcomes]
            for outcomes in (store.outcomes(settings, [fold]) for fold in folds)
        ]
        models, *fold_models = (
            _with_noise(kept, fitted, oof, n_draws) for fitted in (models, *fold_models)
        )
        factor = _factor_of_refits(stacked, kept, models, data)
        # Other models have no epochs.
        networks = [m for m in map(model_of, models) if isinstance(m, BayesianNetwork)]
        mixture = stacked.corrected
        return {
            "estimators_": models,
            "on_frame_": [c.spec.on_frame and data.frame is not None for c in kept],
            "n_iter_": max((network.n_iter_ for network in networks), default=1),
            "n_draws_": n_draws,
            "spread_factor_": factor,
            "fold_tables_": fold_tables,
            "_weights": _weights_table([*left_out, (candidates, stacked)]),
            "summary_": self._summary(mixture, oof),
            **self._out_of_fold_attributes(oof, mixture),
            **_spaces_attribute(kept),
            **self._interval_attributes(
                corrected(stacked.mixture, factor), oof, fold_models
            ),
            **self._column_attributes(data),
        }

    def _promising(self, candidates, stacked, splits, store, data) -> list[Candidate]:
        """Candidates with enough weight on a sample of the rows.

        Networks by evidence need the fewest rows. On a sample they may leave no weight
        to candidates that are better on all rows, which are compared without them.
        """
        kept = _with_enough_weight(candidates, stacked)
        others = [c for c in candidates if not isinstance(c.model, LaplaceModel)]
        if 0 < len(others) < len(candidates):
            oof = OutOfFold.from_outcomes(others, splits, store, data)
            of_others = _with_enough_weight(others, oof.stacked(self.weights))
            kept += [c for c in of_others if c not in kept]
        return sorted(kept, key=candidates.index)

    def _n_refits(self, candidate: Candidate, n_draws: int, n_rows: int) -> int:
        """Networks that are fitted to all rows for a candidate with these draws."""
        if self.n_refits != "auto":
            return self.n_refits
        size = self._pool_size
        most = size.regression_refits if n_rows < WIDE_FROM else size.many_rows_refits
        if self._is_classification:
            most = size.classification_refits
        if n_rows >= WIDE_FROM and isinstance(candidate.model, LaplaceModel):
            most = min(most, LAPLACE_REFITS)
        # Starts reduce the error of the mixture by the square of the weight.
        return min(most, max(2, math.ceil(2 * most * n_draws / N_DRAWS)))

    # ---- inputs

    @abstractmethod
    def _checked_targets(self, y, X) -> np.ndarray:
        """Return y, of the rows of X, as an array, or raise if it has a wrong kind."""

    def _class_weights(self, y) -> np.ndarray | None:
        """Factors of the row weights, or None."""

    def _check_weighted(self, y) -> None:
        """Raise if y of the rows with positive weight is not sufficient."""
        return None

    def _data_and_pool(self, X, y, sample_weight, groups, seed):
        """Arguments of the fits of the candidates, and the pool."""
        X, y = indexable(X, y)
        by_class = self._class_weights(y)
        if sample_weight is not None or by_class is not None:
            sample_weight = check_weights(sample_weight, X)
            sample_weight = sample_weight * (1.0 if by_class is None else by_class)
            self._check_weighted(y[sample_weight > 0])
        data = StackData(X, y, sample_weight, groups=groups)
        if not self._is_classification:
            target = Target.of(y, data.weights, self.y_bounds)
            if target.bounds is not None and not target.has_intervals:
                # Rows of weight zero may contain anything.
                y = np.where(data.weights > 0, y.T, y.T.clip(target.low, target.high)).T
            data = replace(data, y=y, target=target)
        if data.target.has_intervals:
            points = latent_target(y, "identity", self.y_bounds).y[:, 0]
            data = replace(data, y=points, intervals=y)
        items = pool_items(self.estimators)
        # None in place of default candidates.
        specs = [
            None
            if isinstance(item[1], str)
            else given_spec(item, seed, is_classification=self._is_classification)
            for item in items
        ]
        if all(is_own(estimator) for _, estimator, _ in items):
            refuse_named_categories(
                self.categorical_features,
                "a stack of given `estimators`, which have this parameter themselves",
            )
            if not any(_names_categories(estimator) for _, estimator, _ in items):
                warn_of_codes_in_table(X, sample_weight)
            return data, [spec and _in_bounds(spec, data.target) for spec in specs]
        takes_frames = any(spec is not None and spec.on_frame for spec in specs)
        data = self._checked_data(data, takes_frames)
        if self.exposure is not None:
            target = data.target.with_exposure(self.exposure, data.column_names)
            data = replace(data, target=target)
        features = data.columns
        if data.encoder is not None:
            features = data.encoder.get_feature_names_out()
        for i, spec in enumerate(specs):
            if spec and isinstance(spec.estimator, ForeignModel):
                name_features(spec.estimator, features)
            specs[i] = spec and _in_bounds(spec, data.target)
        return data, self._with_default_specs(items, specs, data, seed)

    def _checked_data(self, data: StackData, takes_frames: bool) -> StackData:
        """Validate X and y once, and not for each candidate, and encode the columns.

        takes_frames : whether a candidate gets X as it is given
        """
        network_class = (
            MCDropoutClassifier if self._is_classification else MCDropoutRegressor
        )
        probe = network_class(categorical_features=self.categorical_features)
        X, y, weights = data.X, data.y, data.sample_weight
        with named_after(self, probe):
            table = training_data(probe, X, y, weights, groups=data.groups).table
        # Candidates get encoded columns, without their names.
        silence_warning(TRAINING_CODES)
        encoder = probe.table_
        if encoder is not None and self.cv is None:
            dates = [c for c in encoder._columns if KINDS[c.kind].is_date]
            _warn_of_dates([column.name for column in dates])
        is_used = encoder is not None or (takes_frames and is_frame(X))
        return replace(
            data,
            X=dense_if_small(table.X),
            columns=getattr(probe, "feature_names_in_", None),
            frame=X if is_used else None,
            encoder=encoder,
            is_checked=True,
        )

    def _with_default_specs(
        self, items: list[tuple], specs: list, data: StackData, seed: int
    ) -> list[CandidateSpec]:
        """The pool, with the default candidates for this table.

        items : of ``pool_items``; specs : for each of them, None for default candidates
        """
        default: dict[tuple[str, str], list[CandidateSpec]] = {}
        for size in {item[1] for item in items if isinstance(item[1], str)}:
            default_pool = default_specs(
                data.X,
                data.weights,
                is_classification=self._is_classification,
                max_iter=self.max_iter,
                size=size,
                n_targets=1 if data.y.ndim == 1 else data.y.shape[1],
                target=data.target,
                device=self.device,
                random_state=seed,
            )
            for spec in default_pool:
                default.setdefault((spec.name, size), []).append(spec)
        # Some tables have no encoded columns, forests or neighbours.
        pool: list[CandidateSpec] = []
        for item, spec in zip(items, specs, strict=True):
            pool += [spec] if spec else default.get(item[:2], [])
        if not pool:
            raise ValueError(
                "the default candidates 'encoded' need columns with many distinct "
                "values, 'forest' 200 rows, 'neighbours' regression with 5,000 rows, "
                "and 'boosted_trees' classes with 200 rows; 'fast' has neither of the "
                "last two. The pool must have other candidates for this table; got "
                f"{self.estimators!r}."
            )
        return pool

    @property
    def _pool_size(self) -> PoolSize:
        """Size of the default candidates."""
        return largest_size(pool_items(self.estimators))

    def _resources(self) -> Resources:
        resources = Resources.from_budget(self.memory_budget, self.n_jobs)
        if not resources.sequential or joblib.effective_n_jobs(self.n_jobs) == 1:
            return resources
        return replace(resources, backend="loky")

    def _seed(self) -> int:
        """Seed of folds and candidates; after an interruption, the same as before it.

        The interruption must have been under the same ``random_state``.
        """
        unfinished = self._unfinished
        if unfinished is not None and unfinished.random_state is self.random_state:
            return unfinished.seed
        random = _validation.random_source(self.random_state)
        return int(random.randint(2**31 - 1))

    def _conditions(self, *arguments) -> Fingerprint:
        """Hash of the values on which the candidates' fits to given rows depend."""
        params = self.get_params(deep=False)
        # The folds of `cv` are compared, and the seed is among the arguments.
        unused = "n_jobs", "memory_budget", "verbose", "cv", "random_state", "weights"
        for name in (*unused, "n_selection_rows", "time_limit"):
            params.pop(name, None)
        return Fingerprint.from_values(*params.values(), *arguments)

    # ---- fitted attributes

    @property
    def weights_(self) -> Any:
        """Weights and scores of the candidates; a DataFrame if pandas is installed."""
        try:
            import pandas
        except ImportError:
            return self._weights
        return pandas.DataFrame(self._weights)

    @abstractmethod
    def _out_of_fold_attributes(self, oof: OutOfFold, mixture) -> dict:
        """Fitted attributes with out-of-fold predictions of the mixture."""

    def _column_attributes(self, data: StackData) -> dict:
        """Fitted attributes that describe the columns of X."""
        # Texts and images have no columns.
        shape: tuple[int, ...] = getattr(data.X, "shape", ())
        attributes: dict[str, Any] = {"table_": data.encoder}
        if data.encoder is not None:
            attributes["n_features_in_"] = data.encoder.n_features_in_
        elif len(shape) == 2:
            attributes["n_features_in_"] = shape[1]
        attributes["fitted_to_sparse_"] = (
            sparse.issparse(data.X) if data.is_checked else None
        )
        if data.columns is not None:
            attributes["feature_names_in_"] = data.columns
        return attributes

    def _interval_attributes(self, mixture, oof: OutOfFold, fold_models: list) -> dict:
        """Further fitted attributes that predictions need.

        mixture : out of fold, with the correction of the refitted models
        fold_models : fits of the candidates to each fold
        """
        return {}

    @abstractmethod
    def _summary(self, mixture, oof: OutOfFold) -> Summary:
        """Out-of-fold scores of the mixture."""

    # ---- prediction

    @on_snapshot
    def _open_predictive(self, X):
        rows = self._new_rows(X)
        return self._opened(self.estimators_, rows, X)

    def _opened(self, estimators, rows: EncodedRows, X) -> PredictiveBlocks:
        """Mixture of the given fits of the candidates at new rows.

        rows : X as most candidates take it
        """
        on_frame = self.on_frame_ or [False] * len(estimators)
        if not any(on_frame):
            return PredictiveBlocks.of_encoded(
                rows, lambda X: self._mixture_blocks(estimators, X)
            )
        parts = [
            open_predictive(estimator, X)
            if is_on_frame
            else PredictiveBlocks.of_encoded(rows, partial(_in_parts, estimator))
            for estimator, is_on_frame in zip(estimators, on_frame, strict=True)
        ]
        return PredictiveBlocks.mapped(parts, self._mix)

    def _new_rows(self, X) -> EncodedRows:
        """X as the candidates take it."""
        check_is_fitted(self)
        # Estimators of a user's pool validate X themselves.
        if self.fitted_to_sparse_ is None:
            return EncodedRows(X)
        on_frame = self.on_frame_ or [False] * len(self.estimators_)
        encoded = compress(self.estimators_, map(not_, on_frame))
        scales = next(filter(None, map(_column_scales, encoded)), None)
        rows = check_new_rows(self, X, *(scales or ())[:2])
        if sparse.issparse(rows.X) and not self.fitted_to_sparse_:
            rows = EncodedRows(rows.X.toarray())
        if scales is None:
            return rows
        mean, scale, total_weight = scales
        warn_of_far_rows(self, rows.X, mean, scale, total_weight, input_columns(self))
        # Do not warn again about encoded columns, which have other values and no
        # names.
        silence_warning(FAR_ROWS)
        return rows

    def _mix(self, *predictives):
        """Mixture of the predictions of the candidates, with its correction."""
        spaces = getattr(self, "candidate_spaces_", None)
        if spaces is not None:
            predictives = tuple(
                in_space(predictive, space and TargetSpace(**space))
                for predictive, space in zip(predictives, spaces, strict=True)
            )
        mixture = pooled(predictives, self.n_draws_)
        return corrected(mixture, self.spread_factor_)

    def _mixture_blocks(self, estimators, X) -> PredictiveBlocks:
        """Mixture of the given fits of the candidates."""

        def blocks(X):
            return PredictiveBlocks.mapped(
                [open_predictive(estimator, X) for estimator in estimators], self._mix
            )

        # An estimator of a user's pool may need all rows at once.
        if self.fitted_to_sparse_ is None:
            return blocks(X)
        # Predictions of other libraries may not be safe in threads.
        in_threads = not any(isinstance(e, ForeignModel) for e in estimators)
        return PredictiveBlocks.in_parts(
            X.shape[0], lambda rows: blocks(X[rows]), OPENED_AT_ONCE, in_threads
        )

    def __getstate__(self):
        """State without the progress of a failed fit."""
        return super().__getstate__() | {"_unfinished": None}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return accept_frames(tags)


class _Progress(NamedTuple):
    """Progress of a fit, from which the next one resumes after an interruption.

    Parameters
    ----------
    random_state : object
    seed : int
        The number that was drawn from ``random_state``.
    store : ResultStore
        Outcomes by the candidate's name, of the folds and of the fits to all rows.
    many_rows : dict of str to estimator
        Fits to more rows than the candidates are compared on, by a hash of what they
        depend on. The training of the last network may be unfinished.
    seconds : dict of str to float
        Of each candidate in all folds.
    """

    random_state: Any
    seed: int
    store: ResultStore
    many_rows: dict[str, Any]
    seconds: dict[str, float]


def _with_enough_weight(candidates: list[Candidate], stacked: Stacked) -> list:
    """Candidates with enough weight on a sample; always the one with the largest."""
    least = min(SAMPLE_WEIGHT, stacked.weights.max())
    return list(compress(candidates, stacked.weights >= least))


def _in_bounds(spec: CandidateSpec, target: Target) -> CandidateSpec:
    """A given candidate in the bounds of y, unless it has its own."""
    has_own = getattr(last_step(spec.estimator), "y_bounds", None) is not None
    return spec if has_own else spec._replace(space=target.space())


def _names_categories(estimator) -> bool:
    """Whether columns are named as categories: their codes are no numbers."""
    return any(
        name.endswith("categorical_features") and not is_default(value)
        for name, value in estimator.get_params().items()
    )


def _warn_of_dates(columns: list) -> None:
    """Warn that rows may be ordered in time."""
    if columns:
        warn_once(
            "SKB208",
            "dates",
            f"X has columns of dates ({', '.join(map(repr, columns))}), and the folds "
            "are shuffled. If the model will predict later rows, sort the rows by time "
            "and give cv=TimeSeriesSplit(), so that weights and summary_ rest on the "
            "errors of later rows. Otherwise ignore this warning: "
            "warnings.filterwarnings('ignore', message='.*SKB208').",
        )


def _in_parts(estimator, X) -> PredictiveBlocks:
    """Prediction of one candidate for encoded rows, a part of the rows at a time."""
    return PredictiveBlocks.in_parts(
        X.shape[0], lambda rows: open_predictive(estimator, X[rows]), OPENED_AT_ONCE
    )


def _column_scales(candidate) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Mean and standard deviation of each column, and the sum of the row weights.

    candidate : fitted
    returns : None if the candidate has only scales of transformed columns
    """
    model = model_of(candidate)
    if not hasattr(model, "x_mean_"):
        return None
    mean, scale = model.x_mean_, model.x_scale_
    if model is not candidate:
        encoder = getattr(candidate[0], "estimator", None)
        if not isinstance(encoder, PiecewiseLinearEncoder) or len(candidate) != 2:
            return None
        columns = encoded_positions(encoder)
        mean, scale = mean[columns], scale[columns]
    return mean, scale, model.total_weight_


def _spaces_attribute(kept: list[Candidate]) -> dict[str, Any]:
    """``candidate_spaces_``, if a candidate was not fitted to y itself."""
    spaces = [candidate.spec.space for candidate in kept]
    if not any(spaces):
        return {}
    return {"candidate_spaces_": [space and asdict(space) for space in spaces]}


def _with_noise(kept: list[Candidate], models: list, oof: OutOfFold, n_draws) -> list:
    """Fitted candidates with their noise out of fold, and the trees that are used."""
    for candidate, model in zip(kept, models, strict=True):
        if candidate.name in oof.noise:
            model.set_noise(oof.noise[candidate.name])
    return without_unused_trees(models, n_draws)


def _factor_of_refits(
    stacked: Stacked, kept: list[Candidate], models: list, data: StackData
) -> np.ndarray:
    """Correction of the mixture of the refitted models, which may have more starts."""
    n_before = [candidate.n_starts for candidate in kept]
    n_now = [n_networks(model) for model in models]
    if not (stacked.mixture.has_spread and np.any(np.greater(n_now, n_before))):
        return stacked.factor
    subset = np.flatnonzero(data.weights)
    subset = some_rows(subset, max(MAX_COMPARED // stacked.factor.size, 1))
    predictives = [
        in_space(
            open_predictive(
                model, safe_indexing(data.rows_of(candidate), subset)
            ).whole(),
            candidate.spec.space,
        )
        for candidate, model in zip(kept, models, strict=True)
    ]
    n_draws = stacked.n_draws[stacked.n_draws > 0]
    reduction = share_of_starts(predictives, n_draws, n_before, n_now)
    return factor_with_starts(stacked.factor, reduction, data.weights[subset])


def _collect(
    training: Iterator[ProgramResult],
    store: ResultStore,
    candidates: list[Candidate],
    folds: Folds,
    label: str,
    log: Callable[[str], None],
) -> None:
    """Add the results of a training to ``store`` and log the progress.

    Warnings of single candidates are ignored.
    """
    names = [candidate.name for candidate in candidates]
    steps = RemainingSteps(len(names) * len(folds))
    # Row weights go to the network by the name of its step, so that metadata routing
    # must be off here.
    with (
        warnings.catch_warnings(),
        sklearn.config_context(enable_metadata_routing=False),
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message=".*columns of X are constant")
        warnings.filterwarnings("ignore", message="y is constant")
        # A fold may contain an outlier. The summary warns if that makes the mixture
        # poor.
        silence_warning(FAR_ROWS)
        silence_warning(*EXPECTED_IN_FOLDS)
        for new in training:
            store.update(new)
            if new.outcomes:
                log(steps.text(len(store.known(names, folds)), label))


def _weights_table(
    stages: Sequence[tuple[list[Candidate], Stacked]],
) -> dict[str, dict[str, float]]:
    """Weights and scores of the candidates, in order of decreasing weight.

    stages : comparisons; the last one gives the weights and has the candidates with
        weight in the earlier one, of which the others have their scores
    """
    lines: dict[str, dict[str, float]] = {}
    for candidates, stacked in stages:
        columns = {"weight": stacked.weights} | stacked.scores
        # Those with weight are in the next stage, unless they could not be trained.
        lines = {name: line for name, line in lines.items() if not line["weight"]}
        for i, candidate in enumerate(candidates):
            lines[candidate.name] = {n: float(v[i]) for n, v in columns.items()}
    order = sorted(lines, key=lambda name: -lines[name]["weight"])
    return {n: {name: lines[name][n] for name in order} for n in lines[order[0]]}
