"""A pool -> candidates -> trained networks, in as few programs as can be.

The default candidates: what is tried where a user names nothing.

See docs/defaults.md, "Stacks: candidates".
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import delayed

from skbayesnn._batch.cross_fit import Keeper, fitted_to
from skbayesnn._batch.executor import Executor, Resources
from skbayesnn._batch.jobs import FoldFit, JobBuilder, network_of, path_of_network
from skbayesnn._batch.outcomes import Key, Outcome, without_frames
from skbayesnn._likelihoods import likelihood_named
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._predictive.mixin import Predictive
from skbayesnn._runtime import warn
from skbayesnn._sklearn_compat import safe_split
from skbayesnn._stacking.folds import FOLDS_BELOW
from skbayesnn._stacking.linear import (
    ShrunkLinearClassifier,
    ShrunkLinearModel,
    ShrunkLinearRegressor,
)
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.preprocessing import PiecewiseLinearEncoder

# ---- the default candidates: what is tried where a user names nothing

Grid = dict[str, Sequence[Any]]

# Units of both hidden layers: fewer than so many rows, and more.
WIDTHS, WIDE_FROM = (32, 64), 3000
# Steps of the training per root of the number of rows, and the fewest and most.
REGRESSION_STEPS, CLASSIFICATION_STEPS, STEPS = 75, 40, (750, 5000)
# Bins of a column: of fewer rows, and of more; and bins of all columns: what a network
# costs goes with the number of its inputs.
FEWEST_BINS, MOST_BINS, MOST_ENCODED = 4, (16, 32), 256
# Values with a feature of their own, of all columns that have some.
MOST_VALUES = 128
# A sparse table of few columns has categories beside numbers, which can be encoded if
# it is dense: columns at most, and entries of the array.
MOST_COLUMNS, MOST_DENSE = 256, 2**25
# From so many rows on networks at the higher rate, which are soon as good as they get,
# take this share of the steps; and columns have more bins.
MANY_ROWS, SHARE_OF_STEPS = 10_000, 0.25

# The lower and the higher rate. Kinks suit some tables, smooth functions others.
REGRESSION_RATES: tuple[Grid, Grid] = (
    {"dropout": [0.0]},
    {"dropout": [0.01], "activation": ["silu"]},
)
CLASSIFICATION_RATES: tuple[Grid, Grid] = {"dropout": [0.05]}, {"dropout": [0.2]}
# Of classifiers on the columns; on their encoding these steps would be too long.
LONG_STEPS = {"learning_rate_init": 0.03}
REGRESSION_LENGTH_SCALES = (1.0, 3.0, "fan_in")
CLASSIFICATION_LENGTH_SCALES = (0.3, 1.0, 3.0)
# Linear models, from next to no shrinkage to much. Their noise is equal everywhere:
# they are there for few rows, which tell no other.
LINEAR_LENGTH_SCALES = (1.0, 2.0, 4.0, 8.0)
# Ridge and lassos take their place with fewer rows than the first, or more columns than
# this share of the rows: their penalty is estimated, and they have a posterior. Tables
# are dense for them, up to so many rows and entries.
SHRUNK_BELOW, SHARE_OF_COLUMNS = FOLDS_BELOW, 0.2
SHRUNK_ROWS, SHRUNK_ENTRIES = range(10, 1001), 2**22
REGRESSION_PENALTIES = "ridge", "lasso", "adaptive_lasso"
CLASSIFICATION_PENALTIES = {
    "ridge": (0.3, 1.0, 3.0, 10.0),
    "lasso": (0.4, 0.2, 0.1, 0.05),
}


class CandidateSpec(NamedTuple):
    """One estimator of the pool, with the settings to be tried.

    Parameters
    ----------
    name : str
    estimator : estimator
        Of this package, or a pipeline that ends in one.
    grid : dict, or list of dict
        As of ``ParameterGrid``.
    """

    name: str
    estimator: Any
    grid: Any


def given_pool(estimators, seed: int) -> list[CandidateSpec]:
    """What a user gives in place of the default pool, checked.

    seed : of networks without a ``random_state``

    Raises
    ------
    TypeError, ValueError
        Other than a list of (name, estimator) or (name, estimator, grid), with names
        that differ.
    """
    rule = (
        "`estimators` must be 'auto' or a list of (name, estimator) or (name, "
        "estimator, grid of its parameters)"
    )
    if not isinstance(estimators, list | tuple) or not estimators:
        raise TypeError(f"{rule}; got {estimators!r}.")
    pool = []
    for one in estimators:
        if not isinstance(one, list | tuple) or len(one) not in (2, 3):
            raise TypeError(f"{rule}; got {one!r} among them.")
        name, estimator, *grid = one
        if not isinstance(name, str):
            raise TypeError(f"{rule}; got the name {name!r}.")
        estimator = clone(estimator)
        network = network_of(estimator)
        if network.random_state is None:
            network.set_params(random_state=seed)
        pool.append(CandidateSpec(name, estimator, grid[0] if grid else {}))
    return pool


def default_pool(
    X, sample_weight, *, of_classes: bool, max_iter, **params
) -> list[CandidateSpec]:
    """Networks on the columns and on their encoding, and linear models.

    With as many columns as rows, or more, there are fewer networks: linear models with
    a penalty predict as well or better there, unless the function is far from linear in
    a few directions.

    X : {array, sparse matrix} of shape (rows, columns), checked
    sample_weight : ndarray of shape (rows,)
    max_iter : int, epochs, or "auto"
    params : of all networks
    """
    n_rows = int(np.count_nonzero(sample_weight))
    kind = MCDropoutClassifier if of_classes else MCDropoutRegressor
    width = WIDTHS[n_rows >= WIDE_FROM]
    params |= {
        "hidden_layer_sizes": (width, width),
        "batch_size": _batch_rows(n_rows),
        "max_iter": max_iter,
        # Held-out rows weight the candidates.
        "early_stopping": False,
    }
    if max_iter == "auto":
        steps = CLASSIFICATION_STEPS if of_classes else REGRESSION_STEPS
        params["max_iter"] = _epochs(n_rows, steps)
    shrunk, wide = _has_shrunk(X, n_rows), X.shape[1] >= n_rows
    linear = _linear(kind(**params), of_classes, shrunk)
    if not of_classes:
        params["likelihood"] = "heteroscedastic"
    grids = _grids(of_classes)
    if max_iter == "auto" and n_rows >= MANY_ROWS:
        grids[1]["max_iter"] = [math.ceil(SHARE_OF_STEPS * params["max_iter"])]
    on_columns = kind(**params | LONG_STEPS) if of_classes else kind(**params)
    if shrunk and wide and not of_classes:
        grids = [one | {"length_scale": ["fan_in"]} for one in grids]
    pool = [CandidateSpec("network", on_columns, grids), linear]
    n_bins = 0 if sparse.issparse(X) or wide else _bins(X, sample_weight)
    if n_bins < FEWEST_BINS:
        return pool
    # It looks at no y: fitted to all rows, it has equally many columns in all folds,
    # which can share a program.
    encoder = FrozenEstimator(_encoder(X, sample_weight, n_bins))
    encoded = Pipeline([("encoder", encoder), ("network", kind(**params))])
    grids = [
        {f"network__{name}": values for name, values in grid.items()} for grid in grids
    ]
    # The longest first, for workers side by side.
    return [CandidateSpec("encoded", encoded, grids), *pool]


def _has_shrunk(X, n_rows: int) -> bool:
    """Whether the linear models are ridge and lassos."""
    few = n_rows < SHRUNK_BELOW or X.shape[1] > SHARE_OF_COLUMNS * n_rows
    return few and n_rows in SHRUNK_ROWS and n_rows * X.shape[1] <= SHRUNK_ENTRIES


def _linear(network, of_classes: bool, shrunk: bool) -> CandidateSpec:
    """The linear models: ridge and lassos, or networks without hidden layers.

    network : of the pool, with its number of epochs
    """
    seed = network.random_state
    if not shrunk:
        network.set_params(hidden_layer_sizes=(), dropout=0.0)
        return CandidateSpec("linear", network, {"length_scale": LINEAR_LENGTH_SCALES})
    if not of_classes:
        grid: Any = {"penalty": REGRESSION_PENALTIES}
        return CandidateSpec("linear", ShrunkLinearRegressor(random_state=seed), grid)
    grid = [
        {"penalty": [penalty], "strength": strengths}
        for penalty, strengths in CLASSIFICATION_PENALTIES.items()
    ]
    return CandidateSpec("linear", ShrunkLinearClassifier(random_state=seed), grid)


def dense_if_small(X):
    """X as an array, unless it is sparse and large."""
    if not sparse.issparse(X):
        return X
    small = X.shape[1] <= MOST_COLUMNS and X.shape[0] * X.shape[1] <= MOST_DENSE
    return X.toarray() if small else X


def _batch_rows(n_rows: int) -> int:
    """A power of two, some 40 batches of many rows."""
    return int(min(max(2 ** round(math.log2(n_rows / 40)), 128), 1024))


def _epochs(n_rows: int, per_root: float) -> int:
    fewest, most = STEPS
    steps = min(max(per_root * math.sqrt(n_rows), fewest), most)
    return math.ceil(steps / math.ceil(n_rows / _batch_rows(n_rows)))


def _grids(of_classes: bool) -> list[Grid]:
    """What differs among the networks, at the lower rate and at the higher."""
    rates = CLASSIFICATION_RATES if of_classes else REGRESSION_RATES
    scales = CLASSIFICATION_LENGTH_SCALES if of_classes else REGRESSION_LENGTH_SCALES
    return [one | {"length_scale": scales} for one in rates]


def _encoder(X, sample_weight, n_bins: int) -> PiecewiseLinearEncoder:
    """Fitted."""
    encoder = PiecewiseLinearEncoder(n_bins=n_bins, keep_columns=True)
    # A value needs some rows, whatever unit the weights have.
    weights = sample_weight * (np.count_nonzero(sample_weight) / sample_weight.sum())
    encoder.set_params(n_values=MOST_VALUES).fit(X, sample_weight=weights)
    n_values = [len(values) for values in encoder.values_ if len(values)]
    if sum(n_values) > MOST_VALUES:
        encoder.set_params(n_values=MOST_VALUES // len(n_values))
        encoder.fit(X, sample_weight=weights)
    return encoder


def _bins(X, sample_weight) -> int:
    """Of each column; those of one or two values have none."""
    X = X[sample_weight > 0]
    most = MOST_BINS[len(X) >= MANY_ROWS]
    n_encoded = sum(len(np.unique(column)) > 2 for column in X.T)
    return min(most, MOST_ENCODED // n_encoded) if n_encoded else 0


# ---- A pool -> candidates -> trained networks, in as few programs as can be

# Draws of a network with noise that say what it thinks of held-out rows.
HELD_OUT_DRAWS = 20


@dataclass(frozen=True)
class Candidate:
    """One setting of one estimator of the pool.

    Parameters
    ----------
    name : str
    entry : CandidateSpec
    params : dict
    """

    name: str
    entry: CandidateSpec
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


def candidates_of(pool: Sequence[CandidateSpec]) -> list[Candidate]:
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


def _name(entry: CandidateSpec, params: dict) -> str:
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
    predictive : MixturePredictive or ClassPredictive
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


def drop_failed(
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
    fits: list[FoldFit] = []
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
            variance_source="training",
        )
        of_entry, failed = builder.jobs(params, missing)
        fits += of_entry
        known.update((key, outcome.error) for key, outcome in failed.items())
    yield len(known)
    programs = Executor(scorer, resources).run(fits)
    del fits
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
