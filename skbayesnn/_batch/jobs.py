"""Turn candidates and folds into fold fits: networks to train, with their rows.

The steps of a pipeline before the network are fitted once per fold and setting of
their parameters. The networks of all candidates are trained on the output. Candidates
that differ in how the network checks and encodes its rows have separate tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline

from skbayesnn import _validation
from skbayesnn._batch.outcomes import Fingerprint, Key, Outcome, without_frames
from skbayesnn._engine.processes import ProcessError
from skbayesnn._sklearn_compat import (
    check_method_params,
    safe_split,
)
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._job import TrainingJob, training_job
from skbayesnn.estimators._training_data import TrainingData, training_data


@dataclass(frozen=True)
class FoldFit:
    """The network of one candidate in one fold, to be trained.

    Parameters
    ----------
    key : tuple of str, int
        The candidate's hash, and the fold.
    estimator : estimator
        It has the candidate's parameters; the steps before the network are fitted.
    network : BayesianNetwork
        The estimator, or its last step.
    job : TrainingJob
        The network's part of a program, with the rows that the steps before it return.
    """

    key: Key
    estimator: BaseEstimator
    network: BayesianNetwork
    job: TrainingJob


class FoldFitBuilder:
    """Creates the fold fits of candidates.

    Parameters
    ----------
    estimator : estimator
        A network, or a pipeline that ends in one.
    fit_params : mapping
        Arguments of the estimator's ``fit``; those with an entry per row are indexed.
    X, y : the rows of all folds
    splits : sequence of (train, test)
    variance_source : str, optional
        As in :class:`skbayesnn._engine.config.TrainingConfig`; by default the same as
        in ``fit``.
    """

    def __init__(
        self,
        estimator,
        fit_params: Mapping,
        X,
        y,
        splits: Sequence[tuple],
        *,
        variance_source: str | None = None,
    ):
        self._estimator, self._fit_params = estimator, fit_params
        self._variance_source = variance_source
        self._X, self._y, self._splits = X, y, splits
        self._path = path_of_network(estimator)
        # Input of the network, by the hash of the earlier steps' parameters, fold,
        # and the parameters of the network on which its table depends.
        self._transformed: dict[
            str, dict[tuple[int, Fingerprint], TransformedFold | Exception]
        ] = {}

    @property
    def max_train_rows(self) -> int:
        """Training rows of the largest fold."""
        return max((len(train) for train, _ in self._splits), default=1) or 1

    def pieces(self, candidates: Sequence[dict], n_at_once: int) -> Iterator[slice]:
        """Slices of ``n_at_once`` candidates.

        After each slice, release the transformed rows that no later candidate needs.
        """
        last = {self._preprocessing_hash(c): i for i, c in enumerate(candidates)}
        for start in range(0, len(candidates), n_at_once):
            yield slice(start, start + n_at_once)
            for hash_ in list(self._transformed):
                if last.get(hash_, -1) < start + n_at_once:
                    del self._transformed[hash_]
                    continue
                for fold in self._transformed[hash_].values():
                    if isinstance(fold, TransformedFold):
                        # Each candidate may have its own training rows and scaling.
                        fold.data.forget_scalings()

    def fold_fits(
        self, candidates: Mapping[str, dict], folds_of: Mapping[str, Sequence[int]]
    ) -> tuple[list[FoldFit], dict[Key, Outcome]]:
        """Fits of candidates to some folds, and outcomes of those that failed already.

        candidates : parameters by name of the candidate
        folds_of : folds by name of the candidate
        """
        fold_fits, failed = [], {}
        for name, folds in folds_of.items():
            candidate = clone(candidates[name], safe=False)
            prototype = clone(self._estimator).set_params(**candidate)
            hash_ = self._preprocessing_hash(candidates[name])
            transformed = self._transformed.setdefault(hash_, {})
            for fold in folds:
                key = name, fold
                try:
                    fold_fits.append(self._fold_fit(key, prototype, transformed))
                except ProcessError:
                    raise
                except Exception as error:
                    failed[key] = Outcome(without_frames(error))
        return fold_fits, failed

    def _fold_fit(self, key: Key, prototype, transformed: dict) -> FoldFit:
        network = network_of(prototype)
        _validation.device_for_fit(network.device)
        fold_key = key[1], _parameters_of_table(network)
        if fold_key not in transformed:
            try:
                transformed[fold_key] = self._fit_preprocessing(
                    clone(prototype), key[1]
                )
            except ProcessError:
                raise
            except Exception as error:
                transformed[fold_key] = without_frames(error)
        fold = transformed[fold_key]
        if isinstance(fold, Exception):
            raise fold.with_traceback(None)
        network = fold.copy_columns(copy(network))
        # Candidates must not share a generator: drawing changes its state.
        network.random_state = clone(network.random_state, safe=False)
        # The search handles interruptions, also with `warm_start`.
        changes: dict[str, Any] = {"keep_interrupted": False}
        likelihood = None
        if self._variance_source is not None:
            changes["variance_source"] = self._variance_source
            likelihood = network.likelihood
        job = training_job(network, fold.data, likelihood=likelihood)
        job = job.with_config(**changes)
        estimator = with_last_step(fold.estimator, network)
        return FoldFit(key, estimator, network, job)

    def _fit_preprocessing(self, estimator, fold: int) -> "TransformedFold":
        """Fit the steps before the network, and check the rows that they return."""
        train = self._splits[fold][0]
        params = check_method_params(self._X, self._fit_params, indices=train)
        X, y = safe_split(estimator, self._X, self._y, train)
        recorder = _Recorder(network_of(estimator))
        estimator = with_last_step(estimator, recorder)
        estimator.fit(X, y, **params)
        return TransformedFold(estimator, recorder.network, recorder.data_)

    def _preprocessing_hash(self, candidate: dict) -> str:
        """Hash of the candidate's parameters of the steps before the network."""
        if not self._path:
            return ""
        before = {n: v for n, v in candidate.items() if not n.startswith(self._path)}
        return Fingerprint.from_values(*before.keys(), *before.values()).text


def _parameters_of_table(network: BayesianNetwork) -> Fingerprint:
    """Hash of the parameters on which ``training_data`` depends."""
    description = network.network
    return Fingerprint.from_values(
        bool(network.early_stopping),  # whether validation rows are accepted
        getattr(network, "categorical_features", None),
        getattr(network, "class_weight", None),  # rows of weight zero are left out
        network.likelihood,  # ranks of the classes
        network.target_scale,
        network.y_bounds,
        network.point_mass,
        network.exposure,
        getattr(description, "row_shapes", description),
    )


@dataclass(frozen=True)
class TransformedFold:
    """A fold after the steps before the network, which are fitted to it.

    Parameters
    ----------
    estimator : estimator
        Pipeline with fitted steps; its last step is a ``_Recorder``.
    network : BayesianNetwork
        It has ``n_features_in_``, ``feature_names_in_`` and ``table_``.
    data : TrainingData
    """

    estimator: Any
    network: BayesianNetwork
    data: TrainingData

    def copy_columns(self, network: BayesianNetwork) -> BayesianNetwork:
        """Set the columns and their encoding on the network of another candidate."""
        for name in ("n_features_in_", "feature_names_in_", "table_"):
            if hasattr(self.network, name):
                setattr(network, name, getattr(self.network, name))
        return network


class _Recorder(BaseEstimator):
    """Replaces the network as the last step, and prepares the rows that it gets.

    Metadata are routed to it as to the network.
    """

    def __init__(self, network: BayesianNetwork):
        self.network = network

    def fit(self, X, y=None, **params):
        self.data_ = training_data(self.network, X, y, **params)
        return self

    def get_metadata_routing(self):
        return self.network.get_metadata_routing()


def last_step(estimator):
    """The estimator, or the last step of a pipeline."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def network_of(estimator) -> BayesianNetwork:
    """The estimator if it is a network, or the network that ends a pipeline.

    Raises
    ------
    TypeError
        For any other estimator.
    """
    inner = last_step(estimator)
    if not isinstance(inner, BayesianNetwork):
        raise TypeError(
            "batched training needs a network of skbayesnn, alone or as the last step "
            f"of a Pipeline; got {type(inner).__name__}. For other estimators use "
            "sklearn.model_selection.GridSearchCV."
        )
    return inner


def with_last_step(estimator, last):
    """The last step given, or a copy of the pipeline that ends in it.

    The copy shares the other steps.
    """
    if not isinstance(estimator, Pipeline):
        return last
    name, inner = estimator.steps[-1]
    pipeline = copy(estimator)
    pipeline.steps = [*estimator.steps[:-1], (name, with_last_step(inner, last))]
    return pipeline


def path_of_network(estimator) -> str:
    """Prefix of the parameters of a pipeline's last step, such as "a__b__"."""
    path = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        path += f"{name}__"
    return path
