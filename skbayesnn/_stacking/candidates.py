"""A pool -> candidates -> trained networks, in as few programs as can be."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid
from sklearn.utils.parallel import delayed

from skbayesnn._likelihoods import likelihood_named
from skbayesnn._meta.held_out import fitted_to
from skbayesnn._meta.walk import open_predictive
from skbayesnn._predictive.mixin import Predictive
from skbayesnn._sklearn_compat import safe_split
from skbayesnn._stacking.linear import ShrunkLinearModel
from skbayesnn._stacking.pool import Entry
from skbayesnn._warnings import warn
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.model_selection._cross_fit import Keeper
from skbayesnn.model_selection._executor import Executor, Resources
from skbayesnn.model_selection._jobs import (
    Job,
    JobBuilder,
    network_of,
    path_of_network,
)
from skbayesnn.model_selection._result_store import Key, Outcome, without_frames

# Draws of a network with noise that say what it thinks of held-out rows.
HELD_OUT_DRAWS = 20


@dataclass(frozen=True)
class Candidate:
    """One setting of one estimator of the pool.

    Parameters
    ----------
    name : str
    entry : Entry
    params : dict
    """

    name: str
    entry: Entry
    params: dict

    @property
    def path(self) -> str:
        """In front of the names of the network's parameters."""
        return path_of_network(self.entry.estimator)

    @property
    def model(self) -> BayesianNetwork | ShrunkLinearModel:
        """The network or linear model with these parameters, not fitted."""
        return model_of(clone(self.entry.estimator).set_params(**self.params))

    def refit_params(self, n_refits: int, n_draws: int) -> dict[str, int]:
        """Parameters of the fit to all rows, for so many draws in all."""
        model = self.model
        if isinstance(model, ShrunkLinearModel):
            return {"n_draws": int(n_draws)}
        n_networks = max(n_refits, model.n_estimators)
        return {
            f"{self.path}n_estimators": n_networks,
            f"{self.path}n_draws": int(-(-n_draws // n_networks)),
        }


def model_of(estimator) -> BayesianNetwork | ShrunkLinearModel:
    """What a candidate's estimator is, or ends in."""
    if isinstance(estimator, ShrunkLinearModel):
        return estimator
    return network_of(estimator)


def n_networks(estimator) -> int:
    """Of a fitted candidate, how many fits from different starts it holds."""
    model = model_of(estimator)
    return 1 if isinstance(model, ShrunkLinearModel) else len(model.seeds_)


def candidates_of(pool: Sequence[Entry]) -> list[Candidate]:
    """Every estimator in all of its settings, with names that tell them apart."""
    candidates = [
        Candidate(_name(entry, params), entry, params)
        for entry in pool
        for params in ParameterGrid(entry.grid)
    ]
    names = [one.name for one in candidates]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"the candidates of a stack must differ; got {', '.join(twice)} more than "
            "once. Name each estimator, and each value of its grid, once."
        )
    return candidates


def check_same_kind(candidates: Sequence[Candidate], *, of_classes: bool) -> None:
    """Refuse before any work what could not be mixed after it.

    Raises
    ------
    TypeError
        Regressors among classifiers, or the other way round; several kinds of noise.
    """
    kinds: dict[type, str] = {}
    for one in candidates:
        model = one.model
        if is_classifier(model) != of_classes:
            wanted = "classifiers" if of_classes else "regressors"
            raise TypeError(
                f"the pool must hold {wanted} only; got {type(model).__name__} as "
                f"{one.entry.name!r}."
            )
        # An unknown likelihood raises its own error where the network is trained.
        likelihood = likelihood_named(model.likelihood)
        if likelihood is not None:
            kinds.setdefault(likelihood.components_class, model.likelihood)
    if len(kinds) > 1:
        raise TypeError(
            "the candidates of a stack must have the same kind of noise, so that their "
            f"draws can be mixed; got {' and '.join(map(repr, kinds.values()))}. "
            "'gaussian' and 'heteroscedastic' are one kind. Give all one `likelihood`."
        )


def _name(entry: Entry, params: dict) -> str:
    path = path_of_network(entry.estimator)
    said = [f"{name.removeprefix(path)}={value}" for name, value in params.items()]
    return f"{entry.name}({', '.join(said)})" if said else entry.name


@dataclass(frozen=True)
class Rows:
    """What ``fit`` was given.

    Parameters
    ----------
    X, y : all rows
    sample_weight : ndarray of shape (rows,), or None
    columns : ndarray of shape (columns,), or None
        Names that X had before it was an array.
    ordered_y : Series or None
        y as it was given, where its categories have an order: candidates take it so.
    """

    X: Any
    y: Any
    sample_weight: Any
    columns: Any = None
    ordered_y: Any = None

    @property
    def weights(self) -> np.ndarray:
        """Of the rows, one each where none were given."""
        if self.sample_weight is None:
            return np.ones(len(self.y))
        return self.sample_weight

    def fit_params(self, path: str) -> dict:
        """Arguments of the ``fit`` of an estimator."""
        if self.sample_weight is None:
            return {}
        return {f"{path}sample_weight": self.sample_weight}


@dataclass(frozen=True)
class Predicted:
    """A candidate that has not seen some rows, and what it says of them.

    Parameters
    ----------
    estimator : fitted estimator
    predictive : MixturePredictive or LabelPredictive
    """

    estimator: Any
    predictive: Predictive


@dataclass(frozen=True)
class HeldOutPredictor:
    """Lets trained candidates say something of the rows that their fold leaves out."""

    rows: Rows
    splits: Sequence[tuple]

    def score_all(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Each outcome gets its :class:`Predicted`."""
        for (_, fold), outcome in outcomes.items():
            if outcome.estimator is None:
                continue
            train, test = self.splits[fold]
            model, outcome.estimator = outcome.estimator, None
            try:
                X, _ = safe_split(model, self.rows.X, self.rows.y, test, train)
                predictive = open_predictive(model, X).whole()
                outcome.scores = [Predicted(model, predictive)]
            except Exception as error:
                outcome.error = without_frames(error)


def held_out(
    candidates: Sequence[Candidate],
    rows: Rows,
    splits: Sequence[tuple],
    known: dict[Key, Predicted | Exception],
    resources: Resources,
) -> Iterator[int]:
    """Put into ``known`` what is missing; yields how many were trained so far."""
    few_draws = {}
    for one in candidates:
        n_draws = min(HELD_OUT_DRAWS, one.model.n_draws)
        few_draws[one.name] = {f"{one.path}n_draws": n_draws}
    yield from _trained(
        candidates,
        few_draws,
        rows,
        splits,
        HeldOutPredictor(rows, splits),
        resources,
        known,
    )


def refitted(
    candidates: Sequence[Candidate],
    settings: Mapping[str, dict],
    rows: Rows,
    known: dict[Key, Any],
    resources: Resources,
) -> Iterator[int]:
    """Fitted to all rows with further settings; as ``held_out``."""
    every_row = [(np.arange(len(rows.y)), np.arange(0))]
    yield from _trained(
        candidates, settings, rows, every_row, Keeper(), resources, known
    )


def that_trained(
    candidates: Sequence[Candidate], splits: Sequence, known: Mapping[Key, Any]
) -> list[Candidate]:
    """Without the candidates that failed in a fold, of which is warned.

    What was not to be trained has not failed.

    Raises
    ------
    Exception
        That of the first candidate, where all have failed.
    """
    trained, errors = [], {}
    for one in candidates:
        of_folds = [known.get((one.name, fold)) for fold in range(len(splits))]
        failed = [value for value in of_folds if isinstance(value, Exception)]
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


def _trained(
    candidates, settings, rows, splits, scorer, resources, known
) -> Iterator[int]:
    jobs: list[Job] = []
    folds = range(len(splits))
    for entry in {id(one.entry): one.entry for one in candidates}.values():
        own = [one for one in candidates if one.entry is entry]
        params = {one.name: one.params | settings[one.name] for one in own}
        missing = {
            name: [fold for fold in folds if (name, fold) not in known]
            for name in params
        }
        if isinstance(entry.estimator, ShrunkLinearModel):
            models = {
                (name, fold): clone(entry.estimator).set_params(**params[name])
                for name in missing
                for fold in missing[name]
            }
            yield from _fitted_linear(models, rows, splits, scorer, resources, known)
            continue
        # What is wrong with the noise of all is corrected out of fold.
        builder = JobBuilder(
            entry.estimator,
            rows.fit_params(own[0].path),
            rows.X,
            rows.y if rows.ordered_y is None else rows.ordered_y,
            splits,
            noise_from="training",
        )
        of_entry, failed = builder.jobs(params, missing)
        jobs += of_entry
        known.update((key, outcome.error) for key, outcome in failed.items())
    yield len(known)
    programs = Executor(scorer, resources).run(jobs)
    del jobs
    for outcomes in programs:
        for key, outcome in outcomes.items():
            known[key] = outcome.error or outcome.scores[0]
        yield len(known)


def _fitted_linear(models, rows, splits, scorer, resources, known) -> Iterator[int]:
    """Linear models, one by one: each takes a fraction of a second.

    models : dict of (name, fold) to estimator, not fitted
    """
    calls = (
        delayed(_linear_outcome)(key, model, rows, splits[key[1]][0], scorer)
        for key, model in models.items()
    )
    for key, outcome in zip(models, resources.parallel()(calls), strict=True):
        known[key] = outcome
        yield len(known)


def _linear_outcome(key: Key, model, rows: Rows, train, scorer):
    """What the scorer makes of a fit to the training rows, or the exception."""
    try:
        fitted = fitted_to(model, rows.X, rows.y, train, rows.fit_params(""))
    except Exception as error:
        return without_frames(error)
    outcome = Outcome(estimator=fitted)
    scorer.score_all({key: outcome})
    return outcome.error or outcome.scores[0]
