"""Candidates of a stack: the default pool, and training in as few programs as possible.

The constants of the default pool come from a study: docs/defaults.md, "Stacks:
candidates".
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
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

from skbayesnn._batch.cross_fit import KeepEstimator, fitted_to
from skbayesnn._batch.executor import Executor, Resources
from skbayesnn._batch.jobs import FoldFit, FoldFitBuilder, network_of, path_of_network
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
from skbayesnn._validation import batch_rows
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.preprocessing import PiecewiseLinearEncoder

# ---- default pool

Grid = dict[str, Sequence[Any]]

# Units of both hidden layers.
WIDTH = 32
# Units of both hidden layers from WIDE_FROM rows on.
LARGE_WIDTH = 64
WIDE_FROM = 3000
# Training steps per square root of the number of rows.
REGRESSION_STEPS = 75
CLASSIFICATION_STEPS = 40
# Bounds of the number of training steps.
MIN_STEPS = 750
MAX_STEPS = 5000
# From this many rows on, columns have more bins, and networks with the higher dropout
# rate train for fewer steps.
MANY_ROWS = 10_000
# Share of the steps for which these networks train. More steps do not improve them.
SHARE_OF_STEPS = 0.25
# Columns are not encoded if fewer bins than this are possible.
MIN_BINS = 4
# Largest number of bins of a column.
MAX_BINS = 16
# Largest number of bins of a column from MANY_ROWS rows on.
MAX_BINS_OF_MANY_ROWS = 32
# Largest number of bins of all columns. The cost of a network grows with the number of
# its inputs.
MAX_ENCODED = 256
# Largest number of indicator features of single values, over all columns.
MAX_VALUES = 128
# Largest sparse table that becomes dense, which the encoder needs. Tables with few
# columns have numeric columns as well as one-hot categories.
MAX_COLUMNS = 256
MAX_DENSE_ENTRIES = 2**25

# The lower and the higher dropout rate. relu and silu suit different tables.
REGRESSION_RATES: tuple[Grid, Grid] = (
    {"dropout": [0.0]},
    {"dropout": [0.01], "activation": ["silu"]},
)
CLASSIFICATION_RATES: tuple[Grid, Grid] = {"dropout": [0.05]}, {"dropout": [0.2]}
# Classifiers on the original columns; on encoded columns this rate is too high.
LONG_STEPS = {"learning_rate_init": 0.03}
REGRESSION_LENGTH_SCALES = (1.0, 3.0, "fan_in")
CLASSIFICATION_LENGTH_SCALES = (0.3, 1.0, 3.0)
# Linear models, from nearly no shrinkage to strong shrinkage. Their observation noise
# is constant. This suits small tables, where a noise that depends on the row cannot be
# estimated.
LINEAR_LENGTH_SCALES = (1.0, 2.0, 4.0, 8.0)
# Ridge and lasso replace these linear models with fewer rows than this. Ridge and lasso
# estimate their penalty and have a posterior.
SHRUNK_BELOW = FOLDS_BELOW
# They also replace them with more columns than this share of the rows.
SHARE_OF_COLUMNS = 0.2
# Numbers of rows with which ridge and lasso are used.
SHRUNK_ROWS = range(10, 1001)
# Largest number of entries of X with which ridge and lasso are used.
SHRUNK_ENTRIES = 2**22
REGRESSION_PENALTIES = "ridge", "lasso", "adaptive_lasso"
CLASSIFICATION_PENALTIES = {
    "ridge": (0.3, 1.0, 3.0, 10.0),
    "lasso": (0.4, 0.2, 0.1, 0.05),
}


class CandidateSpec(NamedTuple):
    """One estimator of the pool, and the grid of its settings.

    Parameters
    ----------
    name : str
    estimator : estimator
        One of this package, or a pipeline with one as its last step.
    grid : dict, or list of dict
        Argument of ``ParameterGrid``.
    """

    name: str
    estimator: Any
    grid: Any


def given_pool(estimators, seed: int) -> list[CandidateSpec]:
    """Validate the pool of a user.

    seed : random state of networks without one

    Raises
    ------
    TypeError, ValueError
        If it is not a list of (name, estimator) or (name, estimator, grid).
    """
    rule = (
        "`estimators` must be 'auto' or a list of (name, estimator) or (name, "
        "estimator, grid of its parameters)"
    )
    if not isinstance(estimators, list | tuple) or not estimators:
        raise TypeError(f"{rule}; got {estimators!r}.")
    pool = []
    for item in estimators:
        if not isinstance(item, list | tuple) or len(item) not in (2, 3):
            raise TypeError(f"{rule}; got the item {item!r}.")
        name, estimator, *grid = item
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
    """Networks on the columns and on encoded columns, and linear models.

    With at least as many columns as rows the pool has fewer networks. Linear models
    with a penalty predict such tables as well or better, unless the function is far
    from linear in a few directions.

    X : {array, sparse matrix} of shape (rows, columns), validated
    sample_weight : ndarray of shape (rows,)
    max_iter : int, epochs, or "auto"
    params : parameters of all networks
    """
    n_rows = int(np.count_nonzero(sample_weight))
    kind = MCDropoutClassifier if of_classes else MCDropoutRegressor
    width = LARGE_WIDTH if n_rows >= WIDE_FROM else WIDTH
    params |= {
        "hidden_layer_sizes": (width, width),
        "batch_size": batch_rows("auto", n_rows),
        "max_iter": max_iter,
        # The stack itself holds out rows.
        "early_stopping": False,
    }
    if max_iter == "auto":
        steps = CLASSIFICATION_STEPS if of_classes else REGRESSION_STEPS
        params["max_iter"] = _epochs(n_rows, steps)
    is_shrunk, is_wide = _has_shrunk(X, n_rows), X.shape[1] >= n_rows
    linear = _linear(kind(**params), of_classes, is_shrunk)
    if not of_classes:
        params["likelihood"] = "heteroscedastic"
    grids = _grids(of_classes)
    if max_iter == "auto" and n_rows >= MANY_ROWS:
        grids[1]["max_iter"] = [math.ceil(SHARE_OF_STEPS * params["max_iter"])]
    on_columns = kind(**params | LONG_STEPS) if of_classes else kind(**params)
    if is_shrunk and is_wide and not of_classes:
        grids = [grid | {"length_scale": ["fan_in"]} for grid in grids]
    pool = [CandidateSpec("network", on_columns, grids), linear]
    n_bins = 0 if sparse.issparse(X) or is_wide else _bins(X, sample_weight)
    if n_bins < MIN_BINS:
        return pool
    # The encoder does not use y. Fitted once to all rows, it gives all folds the same
    # number of columns, so that they can share a program.
    encoder = FrozenEstimator(_encoder(X, sample_weight, n_bins))
    encoded = Pipeline([("encoder", encoder), ("network", kind(**params))])
    grids = [
        {f"network__{name}": values for name, values in grid.items()} for grid in grids
    ]
    # Longest training first, which balances parallel workers.
    return [CandidateSpec("encoded", encoded, grids), *pool]


def _has_shrunk(X, n_rows: int) -> bool:
    """Whether the linear models are ridge and lasso."""
    few = n_rows < SHRUNK_BELOW or X.shape[1] > SHARE_OF_COLUMNS * n_rows
    return few and n_rows in SHRUNK_ROWS and n_rows * X.shape[1] <= SHRUNK_ENTRIES


def _linear(network, of_classes: bool, is_shrunk: bool) -> CandidateSpec:
    """Linear models: ridge and lasso, or networks without hidden layers.

    network : with the parameters of the pool; modified
    """
    seed = network.random_state
    if not is_shrunk:
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
    """Return X as an array, unless it is sparse and large."""
    if not sparse.issparse(X):
        return X
    small = X.shape[1] <= MAX_COLUMNS and X.shape[0] * X.shape[1] <= MAX_DENSE_ENTRIES
    return X.toarray() if small else X


def _epochs(n_rows: int, steps_per_root: float) -> int:
    """Number of epochs of the networks, for a number of steps within the bounds."""
    steps = np.clip(steps_per_root * math.sqrt(n_rows), MIN_STEPS, MAX_STEPS)
    return math.ceil(steps / math.ceil(n_rows / batch_rows("auto", n_rows)))


def _grids(of_classes: bool) -> list[Grid]:
    """Grids of the networks, for the lower and the higher dropout rate."""
    rates = CLASSIFICATION_RATES if of_classes else REGRESSION_RATES
    scales = CLASSIFICATION_LENGTH_SCALES if of_classes else REGRESSION_LENGTH_SCALES
    return [rate | {"length_scale": scales} for rate in rates]


def _encoder(X, sample_weight, n_bins: int) -> PiecewiseLinearEncoder:
    """A fitted encoder with at most ``MAX_VALUES`` indicator features."""
    encoder = PiecewiseLinearEncoder(n_bins=n_bins, keep_columns=True)
    # The encoder requires a minimum number of rows per value: normalise the weights to
    # a mean of one.
    weights = sample_weight * (np.count_nonzero(sample_weight) / sample_weight.sum())
    encoder.set_params(n_values=MAX_VALUES).fit(X, sample_weight=weights)
    n_values = [len(values) for values in encoder.values_ if len(values)]
    if sum(n_values) > MAX_VALUES:
        encoder.set_params(n_values=MAX_VALUES // len(n_values))
        encoder.fit(X, sample_weight=weights)
    return encoder


def _bins(X, sample_weight) -> int:
    """Bins per column; columns with at most two distinct values are not binned."""
    X = X[sample_weight > 0]
    most = MAX_BINS_OF_MANY_ROWS if len(X) >= MANY_ROWS else MAX_BINS
    n_encoded = sum(len(np.unique(column)) > 2 for column in X.T)
    return min(most, MAX_ENCODED // n_encoded) if n_encoded else 0


# ---- candidates

# Posterior draws of a network that predict held-out rows.
HELD_OUT_DRAWS = 20


@dataclass(frozen=True)
class Candidate:
    """One setting of one estimator of the pool.

    Parameters
    ----------
    name : str
    spec : CandidateSpec
    params : dict
    """

    name: str
    spec: CandidateSpec
    params: dict

    @property
    def path(self) -> str:
        """Prefix of the names of the network's parameters."""
        return path_of_network(self.spec.estimator)

    @property
    def model(self) -> BayesianNetwork | ShrunkLinearModel:
        """Network or linear model with these parameters, not fitted."""
        return model_of(clone(self.spec.estimator).set_params(**self.params))

    def refit_params(self, n_refits: int, n_draws: int) -> dict[str, int]:
        """Parameters of the fit to all rows.

        n_draws : draws of all networks together
        """
        model = self.model
        if isinstance(model, ShrunkLinearModel):
            return {"n_draws": int(n_draws)}
        n_networks = max(n_refits, model.n_estimators)
        return {
            f"{self.path}n_estimators": n_networks,
            f"{self.path}n_draws": int(-(-n_draws // n_networks)),
        }


def model_of(estimator) -> BayesianNetwork | ShrunkLinearModel:
    """Network or linear model of a candidate's estimator."""
    if isinstance(estimator, ShrunkLinearModel):
        return estimator
    return network_of(estimator)


def n_networks(estimator) -> int:
    """Number of networks from different starts in a fitted candidate."""
    model = model_of(estimator)
    return 1 if isinstance(model, ShrunkLinearModel) else len(model.seeds_)


def candidates_of(pool: Sequence[CandidateSpec]) -> list[Candidate]:
    """All estimators of the pool with all their settings.

    Raises
    ------
    ValueError
        If two candidates have the same name.
    """
    candidates = [
        Candidate(_name(spec, params), spec, params)
        for spec in pool
        for params in ParameterGrid(spec.grid)
    ]
    names = [candidate.name for candidate in candidates]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"the candidates of a stack must differ; got {', '.join(repeated)} more "
            "than once. Give each estimator its own name, and each value of a grid "
            "once."
        )
    return candidates


def check_same_kind(candidates: Sequence[Candidate], *, of_classes: bool) -> None:
    """Raise before any training if the candidates cannot be mixed.

    Raises
    ------
    TypeError
        If regressors and classifiers, or several kinds of observation noise, are mixed.
    """
    kinds: dict[type, str] = {}
    for candidate in candidates:
        model = candidate.model
        if is_classifier(model) != of_classes:
            required = "classifiers" if of_classes else "regressors"
            raise TypeError(
                f"the pool must contain {required} only; got {type(model).__name__} as "
                f"{candidate.spec.name!r}."
            )
        # An unknown likelihood raises its own error in training.
        likelihood = likelihood_named(model.likelihood)
        if likelihood is not None:
            kinds.setdefault(likelihood.components_class, model.likelihood)
    if len(kinds) > 1:
        raise TypeError(
            "the candidates of a stack must have the same kind of observation noise, "
            "so that their draws can be mixed; got "
            f"{' and '.join(map(repr, kinds.values()))}. 'gaussian' and "
            "'heteroscedastic' are the same kind. Give all the same `likelihood`."
        )


def _name(spec: CandidateSpec, params: dict) -> str:
    path = path_of_network(spec.estimator)
    settings = [f"{name.removeprefix(path)}={value}" for name, value in params.items()]
    return f"{spec.name}({', '.join(settings)})" if settings else spec.name


@dataclass(frozen=True)
class StackData:
    """Arguments of ``fit``.

    Parameters
    ----------
    X, y : all rows
    sample_weight : ndarray of shape (rows,), or None
    columns : ndarray of shape (columns,), or None
        Names of the columns of the original X.
    ordered_y : Series or None
        The original y, if it is an ordered categorical: candidates use the order.
    """

    X: Any
    y: Any
    sample_weight: Any
    columns: Any = None
    ordered_y: Any = None

    @property
    def weights(self) -> np.ndarray:
        """Weights of the rows, ones if ``sample_weight`` is None."""
        if self.sample_weight is None:
            return np.ones(len(self.y))
        return self.sample_weight

    def fit_params(self, path: str) -> dict:
        """Keyword arguments for the ``fit`` of an estimator."""
        if self.sample_weight is None:
            return {}
        return {f"{path}sample_weight": self.sample_weight}


@dataclass(frozen=True)
class Predicted:
    """A candidate fitted to the other folds, and its prediction of the held-out rows.

    Parameters
    ----------
    estimator : fitted estimator
    predictive : MixturePredictive or ClassPredictive
    """

    estimator: Any
    predictive: Predictive


@dataclass(frozen=True)
class HeldOutPredictor:
    """Predicts the held-out rows of each fold with the models trained without them."""

    data: StackData
    splits: Sequence[tuple]

    def score_all(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Replace the estimator of each outcome by a :class:`Predicted` as score."""
        for (_, fold), outcome in outcomes.items():
            if outcome.estimator is None:
                continue
            train, test = self.splits[fold]
            model, outcome.estimator = outcome.estimator, None
            try:
                X, _ = safe_split(model, self.data.X, self.data.y, test, train)
                predictive = open_predictive(model, X).whole()
                outcome.scores = [Predicted(model, predictive)]
            except Exception as error:
                outcome.error = without_frames(error)


# Results by (candidate's name, fold); an exception if the training failed.
Results = dict[Key, Any]


def held_out(
    candidates: Sequence[Candidate],
    data: StackData,
    splits: Sequence[tuple],
    resources: Resources,
    done: Container[Key] = (),
) -> Iterator[Results]:
    """Train candidates without each fold and predict it.

    done : keys to skip
    yields : new results, as soon as a program is done
    """
    few_draws = {}
    for candidate in candidates:
        n_draws = min(HELD_OUT_DRAWS, candidate.model.n_draws)
        few_draws[candidate.name] = {f"{candidate.path}n_draws": n_draws}
    scorer = HeldOutPredictor(data, splits)
    return _trained(candidates, few_draws, data, splits, scorer, resources, done)


def refitted(
    candidates: Sequence[Candidate],
    settings: Mapping[str, dict],
    data: StackData,
    resources: Resources,
    done: Container[Key] = (),
) -> Iterator[Results]:
    """Fit candidates to all rows with further settings; otherwise as ``held_out``."""
    every_row = [(np.arange(len(data.y)), np.arange(0))]
    return _trained(
        candidates, settings, data, every_row, KeepEstimator(), resources, done
    )


def drop_failed(
    candidates: Sequence[Candidate], splits: Sequence, results: Mapping[Key, Any]
) -> list[Candidate]:
    """Drop the candidates that failed in a fold, with a warning.

    A candidate without a result has not failed.

    Raises
    ------
    Exception
        The exception of the first candidate, if all have failed.
    """
    remaining, errors = [], {}
    for candidate in candidates:
        per_fold = [results.get((candidate.name, fold)) for fold in range(len(splits))]
        failures = [result for result in per_fold if isinstance(result, Exception)]
        if failures:
            errors[candidate.name] = failures[0]
        else:
            remaining.append(candidate)
    if not remaining:
        raise next(iter(errors.values())).with_traceback(None)
    if errors:
        name, error = next(iter(errors.items()))
        warn(
            f"{len(errors)} of {len(candidates)} candidates could not be trained and "
            f"were dropped; the first, {name}: {type(error).__name__}: {error}",
            ConvergenceWarning,
        )
    return remaining


def _trained(
    candidates, settings, data, splits, scorer, resources, done
) -> Iterator[Results]:
    """Train all candidates on all splits and score them.

    settings : further parameters by candidate's name
    """
    fold_fits: list[FoldFit] = []
    failed: Results = {}
    folds = range(len(splits))
    specs = {id(candidate.spec): candidate.spec for candidate in candidates}
    for spec in specs.values():
        group = [candidate for candidate in candidates if candidate.spec is spec]
        params = {
            candidate.name: candidate.params | settings[candidate.name]
            for candidate in group
        }
        missing = {
            name: [fold for fold in folds if (name, fold) not in done]
            for name in params
        }
        if isinstance(spec.estimator, ShrunkLinearModel):
            models = {
                (name, fold): clone(spec.estimator).set_params(**params[name])
                for name in missing
                for fold in missing[name]
            }
            yield from _fitted_linear(models, data, splits, scorer, resources)
            continue
        # Candidates keep the observation noise of their training, since the mixture is
        # corrected out of fold.
        builder = FoldFitBuilder(
            spec.estimator,
            data.fit_params(group[0].path),
            data.X,
            data.y if data.ordered_y is None else data.ordered_y,
            splits,
            variance_source="training",
        )
        new_fits, failures = builder.fold_fits(params, missing)
        fold_fits += new_fits
        failed |= {key: outcome.error for key, outcome in failures.items()}
    yield failed
    programs = Executor(scorer, resources).run(fold_fits)
    del fold_fits
    for outcomes in programs:
        yield {
            key: outcome.error or outcome.scores[0] for key, outcome in outcomes.items()
        }


def _fitted_linear(models, data, splits, scorer, resources) -> Iterator[Results]:
    """Fit linear models separately: each takes a fraction of a second.

    models : dict of (name, fold) to estimator, not fitted
    """
    calls = (
        delayed(_linear_result)(key, model, data, splits[key[1]][0], scorer)
        for key, model in models.items()
    )
    for key, result in zip(models, resources.parallel()(calls), strict=True):
        yield {key: result}


def _linear_result(key: Key, model, data: StackData, train, scorer):
    """Score of a fit to the training rows, or the exception."""
    try:
        fitted = fitted_to(model, data.X, data.y, train, data.fit_params(""))
    except Exception as error:
        return without_frames(error)
    outcome = Outcome(estimator=fitted)
    scorer.score_all({key: outcome})
    return outcome.error or outcome.scores[0]
