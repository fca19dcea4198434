"""Candidates of a stack, and their training in as few programs as possible."""

from collections.abc import Container, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid

from skbayesnn._batch.cross_fit import fitted_to, return_estimator
from skbayesnn._batch.executor import Executor, Resources
from skbayesnn._batch.jobs import (
    FoldFit,
    FoldFitBuilder,
    last_step,
    network_of,
    path_of_network,
)
from skbayesnn._batch.outcomes import (
    ALL_ROWS,
    Fingerprint,
    Folds,
    Key,
    Outcome,
    ProgramResult,
    ResultStore,
    TrainedFit,
    without_frames,
)
from skbayesnn._data.table_encoder import TableEncoder
from skbayesnn._data.target import latent_values
from skbayesnn._distributions.recorded import TargetSpace
from skbayesnn._engine.processes import ProcessError
from skbayesnn._likelihoods import likelihood_named
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._predictive.blocks import Predictive
from skbayesnn._predictive.mixture import in_space
from skbayesnn._runtime import warn
from skbayesnn._sklearn_compat import num_samples, safe_split
from skbayesnn._stacking.foreign import ForeignModel, ForeignQuantileRegressor
from skbayesnn._stacking.pool import CandidateSpec
from skbayesnn._stacking.separate_model import SeparateModel
from skbayesnn._stacking.target import Target, latent_intervals
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._workers import results_of
from skbayesnn.estimators.laplace import LaplaceModel
from skbayesnn.estimators.mc_dropout import MCDropoutRegressor
from skbayesnn.estimators.neighbours import NeighbourModel

# Posterior draws of a network that predict held-out rows.
HELD_OUT_DRAWS = 20
# Prior length scale of the network that imputes intervals.
IMPUTATION_LENGTH_SCALE = 3.0
# Candidates that are not trained in a program of networks.
FittedAlone = SeparateModel | NeighbourModel | LaplaceModel


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

    @cached_property
    def model(self) -> BayesianNetwork | FittedAlone:
        """Network or other model with these parameters, not fitted."""
        return model_of(clone(self.spec.estimator).set_params(**self.params))

    @property
    def n_starts(self) -> int:
        """Number of networks from different starts; 1 for other models."""
        return self.model.get_params(deep=False).get("n_estimators", 1)

    def refit_params(self, n_refits: int, n_draws: int) -> dict[str, int]:
        """Parameters of the fit to all rows.

        n_draws : draws of all networks together
        """
        model = self.model
        if isinstance(model, NeighbourModel):
            # The mixture repeats their draws: predictions take longer with each
            # network and each draw.
            return {}
        if isinstance(model, SeparateModel):
            return self.draws_param(n_draws)
        n_networks = max(n_refits, self.n_starts)
        return {
            f"{self.path}n_estimators": n_networks,
            **self.draws_param(-(-n_draws // n_networks)),
        }

    def draws_param(self, n_draws, *, at_most: bool = False) -> dict[str, int]:
        """Parameter with the number of draws, if the model has one.

        at_most : whether to keep a smaller number
        """
        own = self.model.get_params(deep=False).get("n_draws")
        if own is None:
            return {}
        return {f"{self.path}n_draws": int(min(own, n_draws) if at_most else n_draws)}


def model_of(estimator) -> BayesianNetwork | FittedAlone:
    """Network or other model of a candidate's estimator."""
    model = last_step(estimator)
    return model if isinstance(model, FittedAlone) else network_of(estimator)


def n_networks(estimator) -> int:
    """Number of networks from different starts in a fitted candidate."""
    return len(getattr(model_of(estimator), "seeds_", [0]))


def expand_pool(pool: Sequence[CandidateSpec]) -> list[Candidate]:
    """List all estimators of the pool with all their settings.

    Raises
    ------
    ValueError
        If two candidates have the same name.
    """
    candidates = []
    for spec in pool:
        settings = list(ParameterGrid(spec.grid))
        shown = _distinguishing(settings)
        candidates += [
            Candidate(_name(spec, {n: p[n] for n in shown if n in p}), spec, p)
            for p in settings
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


def check_can_be_mixed(
    candidates: Sequence[Candidate], *, is_classification: bool
) -> None:
    """Raise before any training if the candidates cannot be mixed.

    Raises
    ------
    TypeError
        If regressors and classifiers, or counts and real numbers, are mixed.
    """
    names: dict[bool, str] = {}
    for candidate in candidates:
        model = candidate.model
        if is_classifier(model) != is_classification:
            required = "classifiers" if is_classification else "regressors"
            raise TypeError(
                f"the pool must contain {required} only; got {type(model).__name__} as "
                f"{candidate.spec.name!r}."
            )
        if is_classification:
            continue
        # An unknown likelihood raises its own error in training.
        likelihood = likelihood_named(model.likelihood)
        if likelihood is not None or isinstance(model, ForeignQuantileRegressor):
            counts = bool(likelihood and likelihood.components_class.discrete)
            names.setdefault(counts, candidate.spec.name)
    if len(names) > 1:
        raise TypeError(
            "candidates that predict counts and candidates that predict real numbers "
            "cannot be mixed, since probabilities and densities cannot be compared; "
            f"got counts from {names[True]!r} and real numbers from {names[False]!r}. "
            "Give all networks the same likelihood of counts and leave other "
            "candidates out, or use target_scale='count', which can be mixed."
        )


def _distinguishing(settings: Sequence[dict]) -> list[str]:
    """Parameters in which the settings differ, without those that others determine."""
    shown = sorted({name for params in settings for name in params})
    for name in sorted(shown, key=len, reverse=True):
        others = [other for other in shown if other != name]
        values = {
            repr([(n, params[n]) for n in others if n in params]) for params in settings
        }
        if others and len(values) == len(settings):
            shown = others
    return shown


def _name(spec: CandidateSpec, params: dict) -> str:
    is_foreign = isinstance(spec.estimator, ForeignModel)
    path = "estimator__" if is_foreign else path_of_network(spec.estimator)
    settings = [f"{name.removeprefix(path)}={value}" for name, value in params.items()]
    if spec.space is not None and spec.space.scale != "identity":
        scale = "quantiles" if spec.space.knots else spec.space.scale
        settings.append(f"target_scale={scale}")
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
    ordered_y : OrderedLabels or None
        y, if it is an ordered categorical: candidates use the order.
    frame : frame or array, or None
        The original X, if ``encoder`` made X from it.
    encoder : TableEncoder, or None
        Fitted to all rows.
    groups : ndarray of shape (rows,), int, or None
        Candidates do not split groups where they hold out rows.
    is_checked : bool
        Whether the stack has validated X, and encoded its columns if necessary.
    target : Target
        What y is.
    intervals : ndarray of shape (rows,), or None
        y as intervals; ``y`` then has a value of each interval.
    """

    X: Any
    y: Any
    sample_weight: Any
    columns: Any = None
    ordered_y: Any = None
    frame: Any = None
    encoder: TableEncoder | None = None
    groups: np.ndarray | None = None
    is_checked: bool = False
    target: Target = field(default_factory=Target)
    intervals: np.ndarray | None = None

    @property
    def column_names(self) -> list | None:
        """Names of the columns of X, also of encoded ones."""
        if self.encoder is not None:
            return [c.column for c in self.encoder.columns_ for _ in c.features]
        return None if self.columns is None else list(self.columns)

    def y_of_networks(self, space: TargetSpace | None) -> Any:
        """y as a network takes it; with intervals, in the space of the candidate."""
        if self.ordered_y is not None:
            return self.ordered_y
        if self.intervals is None:
            return self.y
        if space is None or space.scale == "identity":
            return self.intervals
        return latent_intervals(self.intervals, space)

    def with_y_of(self, spec: CandidateSpec, train: np.ndarray) -> "StackData":
        """Data with y as a candidate takes it that knows neither bounds nor intervals.

        train : rows of the fit; the values of intervals are imputed from these
        """
        y = self.y if self.intervals is None else imputed(self, train)
        return replace(self, y=latent_values(y, spec.space, self.weights))

    @property
    def weights(self) -> np.ndarray:
        """Weights of the rows, ones if ``sample_weight`` is None."""
        if self.sample_weight is None:
            return np.ones(len(self.y))
        return self.sample_weight

    def rows_of(self, candidate: Candidate) -> Any:
        """X as a candidate takes it; of a stack without copies of the rows."""
        is_given = candidate.spec.on_frame and self.frame is not None
        return self.frame if is_given else self.X

    def as_given(self, splits: Sequence[tuple]) -> tuple["StackData", list[tuple]]:
        """Data and folds with the original X.

        splits : of these data, or of the copies that ``encode_by_fold`` makes
        """
        if self.frame is None:
            return self, list(splits)
        n = num_samples(self.frame)
        data = self.with_rows(self.frame, slice(n))
        return data, [(train % n, test % n) for train, test in splits]

    def with_rows(self, X, rows) -> "StackData":
        """Data with another X, whose rows belong to ``rows`` here."""
        by_row = ("y", "sample_weight", "ordered_y", "groups", "intervals")
        given = {name: getattr(self, name) for name in by_row}
        taken = {name: v[rows] for name, v in given.items() if v is not None}
        return replace(self, X=X, **taken)

    def fit_params(self, path: str) -> dict:
        """Keyword arguments for the ``fit`` of an estimator."""
        params = {"sample_weight": self.sample_weight, "groups": self.groups}
        return {f"{path}{n}": value for n, value in params.items() if value is not None}


def imputed(data: StackData, train: np.ndarray) -> np.ndarray:
    """A random value of every interval, for candidates without intervals, (rows,).

    It is drawn from the predictive distribution of a network that is fitted to the
    training rows. Held-out rows are scored by their intervals.
    """
    target, intervals = data.target, data.intervals
    assert intervals is not None
    space = target.quantiles
    settings: dict[str, Any] = {"dropout": 0.2, "activation": "silu"}
    if space is None:
        settings = {"target_scale": target.scale, "y_bounds": target.bounds}
    network = MCDropoutRegressor(
        **settings,
        likelihood="heteroscedastic",
        length_scale=IMPUTATION_LENGTH_SCALE,
        n_draws=HELD_OUT_DRAWS,
        random_state=0,
    )
    y = data.y_of_networks(space)
    fitted = fitted_to(network, data.X, y, train, data.fit_params(""))
    share = np.random.default_rng(0).random((len(intervals), 1))

    def values(rows: slice, block) -> np.ndarray:
        components, of_rows = in_space(block, space).components, intervals[rows]
        lower, upper = of_rows["lower"][:, None], of_rows["upper"][:, None]
        below, up_to = (components.mixture_cdf(end) for end in (lower, upper))
        level = (below + share[rows] * (up_to - below)).clip(1e-6, 1 - 1e-6)
        value = components.mixture_quantile(level).clip(lower, upper)
        return np.where(lower == upper, lower, value)

    blocks = open_predictive(fitted, data.X).map(values)
    return np.concatenate(blocks)[:, 0]


def encode_by_fold(
    data: StackData, splits: Sequence[tuple]
) -> tuple[StackData, list[tuple], list[TableEncoder] | None]:
    """Data and folds with statistics of y from the training rows of each fold only.

    If columns contain such statistics, each fold gets its own copy of all rows.
    Otherwise nothing changes.

    returns : data, folds, and the encoder of each fold or None
    """
    encoder = data.encoder
    if encoder is None or not encoder.uses_y:
        return data, list(splits), None
    encoders, features, folds = [], [], []
    n_rows = len(data.y)
    weights = [np.zeros(n_rows) for _ in splits]
    for of_fold, (train, _) in zip(weights, splits, strict=True):
        of_fold[train] = data.weights[train]
    encoded = encoder.with_statistics_of(
        data.frame, data.y, weights, data.groups, data.weights
    )
    pairs = zip(splits, encoded, strict=True)
    for i, ((train, test), (fold_encoder, X)) in enumerate(pairs):
        encoders.append(fold_encoder)
        features.append(X)
        folds.append((train + i * n_rows, test + i * n_rows))
    rows = np.tile(np.arange(n_rows), len(features))
    return data.with_rows(np.concatenate(features), rows), folds, encoders


class HeldOutPrediction(NamedTuple):
    """A candidate fitted to the other folds, and its prediction of the held-out rows.

    Parameters
    ----------
    estimator : fitted estimator
    predictive : MixturePredictive or ClassPredictive
    """

    estimator: Any
    predictive: Predictive


def held_out_outcome(
    data: StackData,
    splits: Sequence[tuple],
    on_frame: Container[str],
    key: Key,
    fit: TrainedFit,
    cache: dict,
) -> Outcome:
    """Outcome with a :class:`HeldOutPrediction`, or the exception.

    on_frame : names of the candidates that get the original X
    """
    if key[0] in on_frame:
        data, splits = data.as_given(splits)
    train, test = splits[key[1]]
    model = fit.estimator
    try:
        X, _ = safe_split(model, data.X, data.y, test, train)
        predictive = open_predictive(model, X).whole()
    except Exception as error:
        return Outcome(without_frames(error))
    return Outcome(results=[HeldOutPrediction(model, predictive)])


def predict_held_out(
    candidates: Sequence[Candidate],
    data: StackData,
    splits: Sequence[tuple],
    resources: Resources,
    store: ResultStore,
) -> Iterator[ProgramResult]:
    """Train candidates without each fold and predict it.

    store : outcomes by (candidate's name, fold) that exist already
    yields : new results, as soon as a program is done; the caller stores them
    """
    few_draws = {
        c.name: c.draws_param(HELD_OUT_DRAWS, at_most=True) for c in candidates
    }
    on_frame = {c.name for c in candidates if c.spec.on_frame}
    predictor = partial(held_out_outcome, data, splits, on_frame)
    return _train(
        candidates,
        few_draws,
        data,
        splits,
        range(len(splits)),
        predictor,
        resources,
        store,
    )


def refit_to_all_rows(
    candidates: Sequence[Candidate],
    settings: Mapping[str, dict],
    data: StackData,
    resources: Resources,
    store: ResultStore,
) -> Iterator[ProgramResult]:
    """Fit candidates to all rows with further settings.

    store, yields : as in ``predict_held_out``
    """
    # The only fold, so that its index may be ALL_ROWS, -1.
    every_row = [(np.arange(len(data.y)), np.arange(0))]
    return _train(
        candidates,
        settings,
        data,
        every_row,
        [ALL_ROWS],
        return_estimator,
        resources,
        store,
    )


def drop_failed(
    candidates: Sequence[Candidate], store: ResultStore, folds: Folds
) -> list[Candidate]:
    """Drop the candidates that failed in one of the folds, with a warning.

    A candidate without an outcome has not failed.

    Raises
    ------
    Exception
        The exception of the first candidate, if all have failed.
    """
    remaining, errors = [], {}
    for candidate in candidates:
        outcomes = store.known([candidate.name], folds).values()
        failures = [outcome.error for outcome in outcomes if outcome.error]
        if failures:
            errors[candidate.name] = failures[0]
        else:
            remaining.append(candidate)
    if not remaining:
        raise next(iter(errors.values())).with_traceback(None)
    if errors:
        name, error = next(iter(errors.items()))
        spec = next(c.spec for c in candidates if c.name == name)
        way_out = ""
        if isinstance(spec.estimator, ForeignModel) and not spec.on_frame:
            way_out = (
                ". If its parameters refer to columns of X by position, put it into a "
                "Pipeline, which gets X as it is"
            )
        warn(
            "SKB109",
            f"{len(errors)} of {len(candidates)} candidates could not be trained and "
            f"were dropped; the first, {name}: {type(error).__name__}: {error}"
            f"{way_out}",
            ConvergenceWarning,
        )
    return remaining


def _train(
    candidates, settings, data, splits, folds: Folds, result_builder, resources, store
) -> Iterator[ProgramResult]:
    """Train candidates on all splits without an outcome, and build their results.

    settings : further parameters by candidate's name
    """
    executor = Executor(result_builder, resources)
    names = [candidate.name for candidate in candidates]
    yield from executor.resume(store.unscored(names, folds))
    fold_fits: list[FoldFit] = []
    failed: dict[Key, Outcome] = {}
    specs = {id(candidate.spec): candidate.spec for candidate in candidates}
    for spec in specs.values():
        group = [candidate for candidate in candidates if candidate.spec is spec]
        params = {
            candidate.name: candidate.params | settings[candidate.name]
            for candidate in group
        }
        missing = store.missing(params, folds)
        spec_data, spec_splits = (
            data.as_given(splits) if spec.on_frame else (data, splits)
        )
        if isinstance(last_step(spec.estimator), FittedAlone):
            models = {
                (name, fold): clone(spec.estimator).set_params(**params[name])
                for name in missing
                for fold in missing[name]
            }
            yield from _fitted_alone(
                models, spec, spec_data, spec_splits, result_builder, resources
            )
            continue
        # Candidates keep the observation noise of their training, since the mixture is
        # corrected out of fold.
        builder = FoldFitBuilder(
            spec.estimator,
            spec_data.fit_params(group[0].path),
            spec_data.X,
            spec_data.y_of_networks(spec.space),
            spec_splits,
            variance_source="training",
        )
        new_fits, failures = builder.fold_fits(params, missing)
        fold_fits += new_fits
        failed |= failures
    yield ProgramResult(failed)
    programs = executor.run(fold_fits)
    del fold_fits  # Release each of them when its program is done.
    yield from programs


def _fitted_alone(
    models, spec: CandidateSpec, data, splits, result_builder, resources
) -> Iterator[ProgramResult]:
    """Fit models that are not networks, each by its own ``fit``.

    Models that differ only in parameters of their predictions share a fit.

    models : dict of (name, fold) to estimator, not fitted
    """
    path = path_of_network(spec.estimator)
    data_of_fold = {
        fold: data.with_y_of(spec, splits[fold][0]) for fold in {k[1] for k in models}
    }
    groups: dict[tuple, dict[Key, Any]] = {}
    for key, model in models.items():
        groups.setdefault((key[1], params_of_fit(model)), {})[key] = model
    calls = (
        (
            *(_outcomes_alone, group, path, data_of_fold[fold]),
            *(splits[fold][0], result_builder),
        )
        for (fold, _), group in groups.items()
    )
    for outcomes in results_of(resources.workers(), calls):
        yield ProgramResult(outcomes)


def params_of_fit(model) -> str:
    """Hash of the parameters on which the fit depends."""
    params = model.get_params()
    for name in getattr(model, "params_of_predictions", ()):
        if params[name] is not None:
            del params[name]
    return Fingerprint.from_values(*params.keys(), *params.values()).text


def _outcomes_alone(
    models: Mapping[Key, Any], path: str, data: StackData, train, result_builder
) -> dict[Key, Outcome]:
    """Outcomes of one fit to the training rows."""
    try:
        first = next(iter(models.values()))
        fitted = fitted_to(first, data.X, data.y, train, data.fit_params(path))
    except ProcessError:
        raise
    except Exception as error:
        return dict.fromkeys(models, Outcome(without_frames(error)))
    outcomes = {}
    for key, model in models.items():
        shared = fitted
        if model is not first:
            # Copies share the fitted arrays.
            shared = copy(fitted).set_params(**model.get_params(deep=False))
        outcomes[key] = result_builder(key, TrainedFit(shared), {})
    return outcomes
