"""Fit the networks of a stack to more rows than the comparison of candidates needs.

Candidates are compared on a sample. The networks that the mixture uses are then fitted
to all rows of the source, one after the other, with the columns as the stack encoded
them for the sample. Other models of this package, such as forests, are fitted to all
rows if these fit into the working memory, and stay fitted to the sample otherwise, as
models of other libraries do.
"""

import math
from copy import copy
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import PredefinedSplit, TimeSeriesSplit
from sklearn.pipeline import Pipeline

from skbayesnn import _validation
from skbayesnn._batch.jobs import last_step, with_last_step
from skbayesnn._batch.outcomes import Fingerprint
from skbayesnn._data.sources import concatenated
from skbayesnn._data.target import latent_values
from skbayesnn._data.validation import check_inputs
from skbayesnn._distributions.recorded import TargetSpace
from skbayesnn._runtime import atomic_update
from skbayesnn._stacking.candidates import params_of_fit
from skbayesnn._stacking.foreign import ForeignModel
from skbayesnn._stacking.forest import without_unused_trees
from skbayesnn.estimators._base import BayesianNetwork, set_fitted
from skbayesnn.estimators._out_of_core import (
    MAX_STEPS,
    fit_source,
    with_sampled_rows,
)
from skbayesnn.estimators._progress import FitProgress
from skbayesnn.estimators._survey import Part, Survey, TrainingSource


def cv_of_sample(cv, ids: np.ndarray, n_rows: int):
    """The folds of the sample for a ``cv`` that counts or numbers all rows.

    cv : as the stack takes it
    ids : positions of the sample's rows among all rows, sorted
    n_rows : number of all rows

    Raises
    ------
    ValueError
        If a given fold has no rows in the sample.
    """
    if isinstance(cv, TimeSeriesSplit):
        cv, share = copy(cv), len(ids) / n_rows
        for name in ("gap", "test_size", "max_train_size"):
            value = getattr(cv, name)
            setattr(cv, name, value and max(1, round(value * share)))
        return cv
    if isinstance(cv, PredefinedSplit):
        return PredefinedSplit(cv.test_fold[ids])
    if cv is None or isinstance(cv, Integral) or hasattr(cv, "split"):
        return cv
    folds = [
        tuple(np.flatnonzero(np.isin(ids, np.arange(n_rows)[part])) for part in fold)
        for fold in cv
    ]
    for i, (train, test) in enumerate(folds):
        if not (len(train) and len(test)):
            raise ValueError(
                f"fold {i} of `cv` must have training and test rows in the sample of "
                f"{len(ids)} of {n_rows} rows; got {len(train)} and {len(test)}. Raise "
                "n_selection_rows, or give larger folds."
            )
    return folds


def fits_to_all_rows(
    stack,
    training: TrainingSource,
    found: Survey,
    class_weight,
    fits: dict[str, Any],
    log: FitProgress,
) -> list:
    """Models of a stack, with its networks fitted to all rows.

    stack : fitted to the sample
    found : survey of the rows, with the sample
    class_weight : of the stack
    fits : by ``_key_of_fit``, also of an earlier call that was interrupted; extended
    log : with the time limit, after which models stay fitted to the sample
    """
    models, fitted = stack.estimators_, []
    spaces = getattr(stack, "candidate_spaces_", [None] * len(models))
    factors = found.class_factors(class_weight)
    features = _features_of_sample(stack, found.sample)
    rows_of = partial(rows_of_stack, stack, factors, found.sample, features)
    candidates = zip(models, stack.on_frame_, spaces, strict=True)
    longest = 0.0
    for i, (model, on_frame, space) in enumerate(candidates):
        last, before = last_step(model), log.left
        if before < longest:
            log.is_cut = True
            fitted.append(model)
            continue
        encoded = training.transformed(partial(rows_of, model, on_frame))
        key = _key_of_fit(model, on_frame, training)
        if isinstance(last, BayesianNetwork):
            last = _network(last, encoded, found, fits, key)
        elif training.source.is_small and not isinstance(last, ForeignModel):
            space = space and TargetSpace(**space)
            last = _other_model(last, encoded, space, fits, f"{key} {space}")
        fitted.append(with_last_step(model, last))
        longest = max(longest, before - log.left)
        log(f"{i + 1} of {len(models)} fitted to many rows")
    return without_unused_trees(fitted, stack.n_draws_)


def _key_of_fit(model, on_frame: bool, training: TrainingSource) -> str:
    """Hash of what the fit of the last step of a model depends on.

    The steps before it count with what they have learned, since it gets their output.
    """
    steps: list = []
    while isinstance(model, Pipeline):
        steps += [step for _, step in model.steps[:-1]]
        model = model.steps[-1][1]
    before = Fingerprint.from_values(training.fingerprint, on_frame, *steps)
    return f"{before.text} {params_of_fit(model)}"


def _other_model(
    model,
    training: TrainingSource,
    space: TargetSpace | None,
    fits: dict[str, Any],
    key: str,
):
    """A model with the same parameters, fitted to all rows at once.

    space : from y to what the model is fitted to

    Models that differ only in parameters of their predictions share a fit.
    """
    if key not in fits:
        parts = list(training.parts(training.source.in_order(training.source.n_rows)))
        X, y, weights = (
            concatenated([getattr(part, name) for part in parts])
            for name in ("X", "y", "weights")
        )
        options = {} if (weights == 1).all() else {"sample_weight": weights}
        if parts[0].groups is not None:
            options["groups"] = np.concatenate([part.groups for part in parts])
        fits[key] = clone(model).fit(X, latent_values(y, space, weights), **options)
    return copy(fits[key]).set_params(**model.get_params(deep=False))


def _network(
    network: BayesianNetwork,
    training: TrainingSource,
    found: Survey,
    fits: dict[str, Any],
    key: str,
):
    """A network with the same parameters, fitted to all rows."""
    if key not in fits:
        n_passes = passes_over_all_rows(network, len(found.sample.ids), found.n_rows)
        fits[key] = clone(network).set_params(max_iter=n_passes)
    fit = fits[key]
    if not hasattr(fit, "parameters_"):
        # After an interruption `fit` has the finished part of its training.
        with atomic_update(fit) as new:
            # As in the stack, the noise of the training: the mixture is corrected.
            set_fitted(new, fit_source(fit, new, training, variance_source="training"))
    return copy(fit)


def passes_over_all_rows(network, n_sample: int, n_rows: int) -> int:
    """Number of passes over all rows.

    It takes the steps of the fit to the sample, times the root of the number of rows
    in units of the sample, and at most ``MAX_STEPS``.
    """

    def steps_of_pass(n):
        return math.ceil(n / _validation.batch_rows(network.batch_size, n))

    steps = network.n_iter_ * steps_of_pass(n_sample) * math.sqrt(n_rows / n_sample)
    return max(1, round(min(steps, MAX_STEPS) / steps_of_pass(n_rows)))


def _features_of_sample(stack, sample: Part) -> np.ndarray | None:
    """Encoded rows of the sample, whose statistics of y exclude the row itself.

    returns : None if no column has such statistics
    """
    encoder = getattr(stack, "table_", None)
    if encoder is None or not encoder.uses_y:
        return None
    statistics = encoder.with_statistics_of(
        sample.X, sample.y, [sample.weights], sample.groups
    )
    return next(iter(statistics))[1]


def rows_of_stack(
    stack, factors: dict, sample: Part, features, model, on_frame: bool, part: Part
) -> Part:
    """Rows of the source as a candidate of the stack takes them.

    factors : class weights by label, or empty
    features : result of ``_features_of_sample``
    model : fitted candidate, whose steps before the network are used
    on_frame : whether the candidate takes X as it is given
    """
    X = part.X
    # Networks of a user's pool check X themselves.
    if not on_frame and stack.fitted_to_sparse_ is not None:
        X = check_inputs(stack, X, reset=False)
        if features is not None:
            X = with_sampled_rows(X, part.ids, features, sample.ids)
    while isinstance(model, Pipeline):
        X, model = model[:-1].transform(X), model.steps[-1][1]
    if not factors:
        return part._replace(X=X)
    by_row = np.array([factors[label] for label in part.y.tolist()])
    return part._replace(X=X, weights=part.weights * by_row)
