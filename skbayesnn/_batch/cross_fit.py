"""One estimator without each of the folds, as one program where that can be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sklearn
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from skbayesnn._batch.executor import Executor, Resources
from skbayesnn._batch.jobs import JobBuilder, network_of
from skbayesnn._batch.outcomes import Key, Outcome
from skbayesnn._sklearn_compat import check_method_params, num_samples, safe_indexing


def refuse_fitted(estimator) -> None:
    """Refuse a predictor that ``fit`` leaves as it was, anywhere inside.

    Models of folds are to be fitted without the rows that are held out. A transformer
    may be frozen: it says nothing of y.

    Raises
    ------
    ValueError
    """
    for part in (*_parts_of(estimator), estimator):
        if not (is_classifier(part) or is_regressor(part)):
            continue
        try:
            check_is_fitted(clone(part))
        except NotFittedError:
            continue
        named = type(part).__name__
        if hasattr(part, "estimator"):
            named += f"({type(part.estimator).__name__})"
        raise ValueError(
            "rows are held out to be predicted by models that have not seen them; got "
            f"{named}, which is fitted already and may have seen them all. Give the "
            "estimator unfitted; for rows that a fitted model has not seen, take "
            "predict_uncertainty(model, X)."
        )


def _parts_of(estimator) -> list:
    """Estimators inside of one, at any depth."""
    values = estimator.get_params(deep=True).values()
    return [one for one in values if hasattr(one, "get_params") and hasattr(one, "fit")]


def held_out_folds(cv, X, y, *, of_classes: bool, **params) -> list[tuple]:
    """Training and test rows of every fold, as integer arrays.

    cv : as scikit-learn takes it
    params : of its ``split``

    Raises
    ------
    ValueError
        A fold that trains on rows that it holds out.
    """
    rows = np.arange(num_samples(X))
    splits = check_cv(cv, y, classifier=of_classes).split(X, y, **params)
    folds = [(rows[train], rows[test]) for train, test in splits]
    trained_on = np.zeros(len(rows), dtype=bool)
    for i, (train, test) in enumerate(folds):
        trained_on[:] = False
        trained_on[train] = True
        if n_both := np.count_nonzero(trained_on[test]):
            raise ValueError(
                "`cv` must hold out rows that the fold does not train on; got "
                f"{n_both} rows in both the training and the test rows of fold {i}. "
                "Give folds without common rows, as KFold makes them."
            )
    return folds


def check_each_row_once(held_out, n_rows: int) -> None:
    """Refuse folds that are no partition of the rows.

    held_out : sequence of ndarray, the rows of each fold
    """
    times = np.bincount(np.concatenate(held_out), minlength=n_rows)
    if (times != 1).any():
        raise ValueError(
            "`cv` must hold every row out once (a partition, as KFold's); got "
            f"{(times == 0).sum()} rows never held out and {(times > 1).sum()} more "
            "than once."
        )


def fitted_to(estimator, X, y, rows, fit_params):
    """A clone fitted to some rows."""
    params = check_method_params(X, fit_params, indices=rows)
    return clone(estimator).fit(
        safe_indexing(X, rows), safe_indexing(y, rows), **params
    )


@dataclass(frozen=True)
class Keeper:
    """Keeps the trained estimators themselves."""

    def score_all(self, outcomes: Mapping[Key, Outcome]) -> None:
        """Each outcome hands its estimator on."""
        for outcome in outcomes.values():
            if outcome.estimator is not None:
                outcome.scores, outcome.estimator = [outcome.estimator], None


def cross_fitted(
    estimator,
    X,
    y,
    splits: Sequence[tuple],
    fit_params: Mapping | None = None,
    n_jobs: int | None = None,
) -> list:
    """Copies of an estimator, each fitted to the training rows of a fold.

    Networks are members of one program, and equal to rounding to those of a ``fit`` by
    themselves; whatever else there is, is fitted by its own ``fit``.

    splits : sequence of (train, test)
    fit_params : of ``fit``; those with an entry per row are cut
    n_jobs : fits side by side, or threads of programs
    """
    fit_params = fit_params or {}
    try:
        network_of(estimator)
    except TypeError:
        return Parallel(n_jobs=n_jobs)(
            delayed(fitted_to)(estimator, X, y, train, fit_params)
            for train, _ in splits
        )
    jobs, failed = JobBuilder(estimator, fit_params, X, y, splits).jobs(
        {"": {}}, {"": range(len(splits))}
    )
    memory = int(sklearn.get_config()["working_memory"] * 2**20)
    outcomes = dict(failed)
    resources = Resources(memory, n_jobs, "2*n_jobs", None)
    for of_program in Executor(Keeper(), resources).run(jobs):
        outcomes |= of_program
    for outcome in outcomes.values():
        if outcome.error is not None:
            raise outcome.error
    return [outcomes["", fold].scores[0] for fold in range(len(splits))]
