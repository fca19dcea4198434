"""Fit copies of an estimator to the training rows of each fold.

Networks are trained in one program; other estimators by their own ``fit``.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from skbayesnn._batch.executor import Executor, Resources
from skbayesnn._batch.jobs import FoldFitBuilder, network_of
from skbayesnn._batch.outcomes import Key, Outcome, TrainedFit
from skbayesnn._data.table_encoder import EXPECTED_IN_FOLDS
from skbayesnn._runtime import silence_warning
from skbayesnn._sklearn_compat import (
    check_method_params,
    num_samples,
    predicts_numbers,
    safe_indexing,
)
from skbayesnn.estimators.torch_module import TorchModule


def refuse_fitted(estimator) -> None:
    """Raise if the estimator, or a predictor inside it, is frozen or a torch module.

    Such a predictor keeps its fit and may have been trained on the held-out rows. A
    frozen transformer is allowed: it does not predict y.

    Raises
    ------
    ValueError
    """
    for part in (*_nested_estimators(estimator), estimator):
        if not (predicts_numbers(part) or is_classifier(part)):
            continue
        try:
            is_frozen = clone(part) is part
        # CatBoost with lists as parameters cannot be cloned, but is not frozen.
        except RuntimeError:
            continue
        if not (is_frozen or isinstance(part, TorchModule)):
            continue
        name = type(part).__name__
        if hasattr(part, "estimator"):
            name += f"({type(part.estimator).__name__})"
        raise ValueError(
            "held-out rows must be predicted by models that were not trained on them; "
            f"got {name}, which is already fitted, maybe to these rows. Give the "
            "estimator unfitted, or predict new rows with predict_uncertainty(model, "
            "X)."
        )


def _nested_estimators(estimator) -> list:
    """Estimators among the parameters of an estimator, at any depth."""
    values = estimator.get_params(deep=True).values()
    return [v for v in values if hasattr(v, "get_params") and hasattr(v, "fit")]


def held_out_folds(cv, X, y, *, is_classification: bool, **params) -> list[tuple]:
    """Training and test rows of every fold, as integer arrays.

    cv : as in scikit-learn
    is_classification : whether y contains labels; then an integer ``cv`` is stratified
    params : keyword arguments of the splitter's ``split``

    Raises
    ------
    ValueError
        If a fold has rows in both its training and its test rows.
    """
    rows = np.arange(num_samples(X))
    splits = check_cv(cv, y, classifier=is_classification).split(X, y, **params)
    folds = [(rows[train], rows[test]) for train, test in splits]
    trained_on = np.zeros(len(rows), dtype=bool)
    for i, (train, test) in enumerate(folds):
        trained_on[:] = False
        trained_on[train] = True
        if n_common := np.count_nonzero(trained_on[test]):
            raise ValueError(
                "training and test rows of a fold must be disjoint; got "
                f"{n_common} rows in both the training and the test rows of fold {i}. "
                "Give disjoint folds, such as those of KFold."
            )
    return folds


def check_each_row_once(held_out, n_rows: int) -> None:
    """Raise unless every row is a test row of exactly one fold.

    held_out : sequence of ndarray, the test rows of each fold
    """
    counts = np.bincount(np.concatenate(held_out), minlength=n_rows)
    if (counts != 1).any():
        raise ValueError(
            "`cv` must hold every row out once (a partition, such as KFold); got "
            f"{(counts == 0).sum()} rows never held out and {(counts > 1).sum()} more "
            "than once."
        )


def fitted_to(estimator, X, y, rows, fit_params):
    """A clone of the estimator, fitted to a subset of the rows."""
    params = check_method_params(X, fit_params, indices=rows)
    return clone(estimator).fit(
        safe_indexing(X, rows), safe_indexing(y, rows), **params
    )


def return_estimator(key: Key, fit: TrainedFit, cache: dict) -> Outcome:
    """Outcome with the trained estimator as its only result."""
    return Outcome(results=[fit.estimator])


def cross_fitted(
    estimator,
    X,
    y,
    splits: Sequence[tuple],
    fit_params: Mapping | None = None,
    n_jobs: int | None = None,
) -> list:
    """Copies of an estimator, each fitted to the training rows of a fold.

    Networks are trained as members of one program; separate calls of ``fit`` give the
    same networks up to rounding. Other estimators are fitted by their own ``fit``.

    splits : sequence of (train, test)
    fit_params : arguments of ``fit``; those with an entry per row are indexed
    n_jobs : parallel fits, or threads of the networks' program
    """
    fit_params = fit_params or {}
    if not isinstance(estimator, FrozenEstimator):
        silence_warning(*EXPECTED_IN_FOLDS)
    try:
        network_of(estimator)
    except TypeError:
        return Parallel(n_jobs=n_jobs)(
            delayed(fitted_to)(estimator, X, y, train, fit_params)
            for train, _ in splits
        )
    builder = FoldFitBuilder(estimator, fit_params, X, y, splits)
    fold_fits, failed = builder.fold_fits({"": {}}, {"": range(len(splits))})
    outcomes = dict(failed)
    resources = Resources.from_budget(None, n_jobs)
    for result in Executor(return_estimator, resources).run(fold_fits):
        outcomes |= result.outcomes
    for outcome in outcomes.values():
        if outcome.error is not None:
            raise outcome.error
    return [outcomes["", fold].results[0] for fold in range(len(splits))]
