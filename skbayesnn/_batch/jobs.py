"""Candidates in folds -> jobs: networks to be trained, and the rows for each.

What stands before the network in a pipeline is fitted once per fold and setting of its
own parameters; the networks of all candidates are then trained on what came out.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline

from skbayesnn import _validation
from skbayesnn._batch.outcomes import Key, Outcome, hash_of, without_frames
from skbayesnn._sklearn_compat import (
    check_method_params,
    drop_callbacks,
    safe_split,
)
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._job import TrainingJob, training_job
from skbayesnn.estimators._training_data import TrainingData, training_data


@dataclass(frozen=True)
class FoldFit:
    """A candidate in a fold whose network is to be trained.

    Parameters
    ----------
    key : tuple of str, int
        The candidate's hash, and the fold.
    estimator : estimator
        With the candidate's parameters; the steps before the network are fitted.
    network : BayesianNetwork
        The estimator itself, or its last step.
    job : TrainingJob
        The network's part of a program, with the rows that reach the network.
    """

    key: Key
    estimator: BaseEstimator
    network: BayesianNetwork
    job: TrainingJob


class JobBuilder:
    """Makes the jobs of candidates.

    Parameters
    ----------
    estimator : estimator
        A network, or a pipeline that ends in one.
    fit_params : mapping
        Of the estimator's ``fit``; those with an entry per row are cut.
    X, y : the rows of all folds
    splits : sequence of (train, test)
    variance_source : str, optional
        As in :class:`skbayesnn._engine.config.TrainingConfig`; by default that of
        ``fit``.
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
        self._noise_from = variance_source
        self._X, self._y, self._splits = X, y, splits
        self._path = path_of_network(estimator)
        # What arrives at the network: per setting of the steps before it, and for
        # each fold with and without early stopping, which takes rows of its own.
        self._arrived: dict[
            str, dict[tuple[int, bool], TransformedFold | Exception]
        ] = {}

    @property
    def most_rows(self) -> int:
        """Training rows of the largest fold."""
        return max((len(train) for train, _ in self._splits), default=1) or 1

    def pieces(self, candidates: Sequence[dict], n_at_once: int) -> Iterator[slice]:
        """So many candidates at a time; what only earlier ones needed is let go."""
        last = {self._setting(c): i for i, c in enumerate(candidates)}
        for start in range(0, len(candidates), n_at_once):
            yield slice(start, start + n_at_once)
            for setting in list(self._arrived):
                if last.get(setting, -1) < start + n_at_once:
                    del self._arrived[setting]
                    continue
                for arrived in self._arrived[setting].values():
                    if isinstance(arrived, TransformedFold):
                        # One for each candidate's own rows.
                        arrived.data.forget_scalings()

    def jobs(
        self, candidates: Mapping[str, dict], folds_of: Mapping[str, Sequence[int]]
    ) -> tuple[list[FoldFit], dict[Key, Outcome]]:
        """Some folds of candidates: what is to be done, and what cannot be."""
        fits, failed = [], {}
        for name, folds in folds_of.items():
            candidate = clone(candidates[name], safe=False)
            prototype = clone(self._estimator).set_params(**candidate)
            drop_callbacks(prototype)
            arrived = self._arrived.setdefault(self._setting(candidates[name]), {})
            for fold in folds:
                key = name, fold
                try:
                    fits.append(self._fold_fit(key, prototype, arrived))
                except Exception as error:
                    failed[key] = Outcome(without_frames(error))
        return fits, failed

    def _fold_fit(self, key: Key, prototype, arrived: dict) -> FoldFit:
        network = network_of(prototype)
        _validation.device_for_fit(network.device)
        place = key[1], bool(network.early_stopping)
        if place not in arrived:
            try:
                arrived[place] = self._fit_preprocessing(clone(prototype), key[1])
            except Exception as error:
                arrived[place] = without_frames(error)
        rows = arrived[place]
        if isinstance(rows, Exception):
            raise rows.with_traceback(None)
        network = rows.copy_feature_names(copy(network))
        # A generator has a state.
        network.random_state = clone(network.random_state, safe=False)
        job = training_job(network, rows.data)
        config = replace(
            job.config,
            # An interruption is the search's, also with `warm_start`.
            keep_interrupted=False,
            variance_source=self._noise_from or job.config.variance_source,
        )
        job = replace(job, config=config)
        estimator = _with_network(rows.estimator, network)
        return FoldFit(key, estimator, network, job)

    def _fit_preprocessing(self, estimator, fold: int) -> "TransformedFold":
        """Fit what stands before the network, and check what arrives there."""
        train = self._splits[fold][0]
        params = check_method_params(self._X, self._fit_params, indices=train)
        X, y = safe_split(estimator, self._X, self._y, train)
        recorder = _Recorder(network_of(estimator))
        estimator = _with_network(estimator, recorder)
        estimator.fit(X, y, **params)
        return TransformedFold(estimator, recorder.network, recorder.data_)

    def _setting(self, candidate: dict) -> str:
        """Hash of the parameters that are not the network's own."""
        if not self._path:
            return ""
        others = {n: v for n, v in candidate.items() if not n.startswith(self._path)}
        return hash_of(*others.keys(), *others.values())


@dataclass(frozen=True)
class TransformedFold:
    """What the steps before a network, fitted to a fold, have made of its rows.

    Parameters
    ----------
    estimator : estimator
        The steps are fitted; the last one is whatever has recorded the rows.
    network : BayesianNetwork
        Knows number and names of the columns.
    data : TrainingData
    """

    estimator: Any
    network: BayesianNetwork
    data: TrainingData

    def copy_feature_names(self, network: BayesianNetwork) -> BayesianNetwork:
        """A network of another candidate that knows the columns."""
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.network, name):
                setattr(network, name, getattr(self.network, name))
        return network


class _Recorder(BaseEstimator):
    """Takes a network's place as the last step, and prepares what arrives there.

    Metadata are routed to it as they are to the network.
    """

    def __init__(self, network: BayesianNetwork):
        self.network = network

    def fit(self, X, y=None, **params):
        self.data_ = training_data(self.network, X, y, **params)
        return self

    def get_metadata_routing(self):
        return self.network.get_metadata_routing()


def network_of(estimator) -> BayesianNetwork:
    """The network itself, or the one that is the last step of a pipeline.

    Raises
    ------
    TypeError
        For any other estimator.
    """
    inner = estimator
    while isinstance(inner, Pipeline):
        inner = inner.steps[-1][1]
    if not isinstance(inner, BayesianNetwork):
        raise TypeError(
            "a batched search needs a network of skbayesnn, alone or as the last step "
            f"of a Pipeline; got {type(inner).__name__}. For other estimators use "
            "sklearn.model_selection.GridSearchCV."
        )
    return inner


def _with_network(estimator, network):
    """The network, or a copy of a pipeline that ends in it and shares its steps."""
    if not isinstance(estimator, Pipeline):
        return network
    name, last = estimator.steps[-1]
    pipeline = copy(estimator)
    pipeline.steps = [*estimator.steps[:-1], (name, _with_network(last, network))]
    return pipeline


def path_of_network(estimator) -> str:
    """The name of the network's parameters, up to the last part: "a__b__"."""
    path = ""
    while isinstance(estimator, Pipeline):
        name, estimator = estimator.steps[-1]
        path += f"{name}__"
    return path
