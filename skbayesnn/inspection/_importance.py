"""Permutation importance of an uncertainty instead of a score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from skbayesnn._data.columns import is_frame
from skbayesnn._data.sources import concatenated
from skbayesnn._meta.functions import predict_uncertainty
from skbayesnn._runtime import warn_once_per_call
from skbayesnn._sklearn_compat import safe_indexing
from skbayesnn._typing import RandomState
from skbayesnn._validation import check_number, random_source
from skbayesnn.inspection._columns import column_names, with_dtype

# Longest name that is displayed in full, in characters.
LONGEST_NAME = 32
# Largest number of columns in the printed table.
MAX_PRINTED = 20
# About the most cells of the rows that are predicted at once.
MAX_CELLS = 2_000_000


class Importances(Bunch):
    """Result of ``uncertainty_importance``, printed as a table."""

    def __repr__(self):
        mean = self.importances_mean
        order = np.argsort(-np.abs(mean), kind="stable")[:MAX_PRINTED]
        order = order[np.argsort(-mean[order], kind="stable")]
        names = short_names([self.feature_names[i] for i in order])
        width = max(map(len, ("column", *names)))
        lines = [f"{'column':<{width}}  importance       std"]
        lines += [
            f"{name:<{width}}  {mean[i]:>10.3g}{self.importances_std[i]:>10.2g}"
            for name, i in zip(names, order, strict=True)
        ]
        if len(order) < len(mean):
            lines.append(f"{len(mean) - len(order)} more columns are nearer to zero")
        lines.append(f"mean uncertainty of the rows: {self.uncertainty.mean():.3g}")
        return "\n".join(lines)

    __str__ = __repr__


def short_names(names: Sequence[str], longest: int = LONGEST_NAME) -> list[str]:
    """Cut the middle out of long names; distinct names stay distinct."""

    def short(name):
        head, tail = (longest - 1) // 2, longest // 2
        return name if len(name) <= longest else f"{name[:head]}\u2026{name[-tail:]}"

    while len(set(map(short, names))) < len(set(names)):
        longest += 4
    return [short(name) for name in names]


@warn_once_per_call
def uncertainty_importance(
    model: Any,
    X: Any,
    *,
    background: Any = None,
    kind: str | None = None,
    n_repeats: int = 5,
    random_state: RandomState = None,
    target: int | None = None,
    feature_names: Sequence[str] | None = None,
) -> Importances:
    """Find the columns whose values make predictions uncertain.

    Use it to explain drifted or unusual rows. The values of one column are replaced by
    values of random reference rows (``background``); the rest of each row stays [1]_.
    The importance is the original uncertainty minus the uncertainty after replacement,
    averaged over ``n_repeats`` replacements.

    - Positive: with other values the rows would be less uncertain. The column's values
      alone, or combined with the row's other values, are unusual.
    - Near zero: the column does not matter for the uncertainty.
    - Negative: with other values the rows would be more uncertain. The column's values
      fit the row's other values, and replacing them creates unrealistic rows. Important
      columns of ordinary rows are negative.

    So give the rows to be explained as ``X``, such as drifted rows or the most
    uncertain rows, and the training rows as ``background``.

    Parameters
    ----------
    model : fitted estimator
        Any model that :func:`skbayesnn.predict_uncertainty` accepts.
    X : {frame, array-like} of shape (n_samples, n_features)
        Rows to be explained. Not sparse. Whole columns are replaced: a category or a
        date is one column, however many features the model makes of it.
    background : like X, of shape (n_background, n_features), default=None
        Reference rows, usually the training rows. None uses X; the importances then
        only show how the rows of X differ from each other.
    kind : str, default=None
        A kind of :func:`skbayesnn.predict_uncertainty`; None is ``"epistemic"`` for
        regressors and ``"mutual_information"`` for classifiers.
    n_repeats : int >= 1, default=5
        Number of replacements. For each of them, all rows are predicted once per
        column.
    random_state : int, RandomState instance or None, default=None
    target : int, default=None
        Index of the target; required if the model has several targets.
    feature_names : sequence of str of length n_features, default=None
        None uses the columns of a frame, or "column 0", "column 1" and so on.

    Returns
    -------
    result : :class:`~sklearn.utils.Bunch`
        ``importances_mean``, ``importances_std`` (n_features,) and ``importances``
        (n_features, n_repeats) as in
        :func:`sklearn.inspection.permutation_importance`: averaged over rows, in the
        uncertainty's units. ``per_row`` (n_samples, n_features): averaged over repeats.
        ``uncertainty`` (n_samples,): before replacement. ``feature_names``
        (n_features,). ``print(result)`` shows a table of the most important columns,
        the largest importance first.

    References
    ----------
    .. [1] Breiman (2001), "Random forests", Machine Learning 45.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayesnn import AnchoredEnsembleRegressor
    >>> from skbayesnn.inspection import uncertainty_importance
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-1, 1, size=(200, 3))
    >>> y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * random.normal(size=200)
    >>> model = AnchoredEnsembleRegressor(random_state=0).fit(X, y)
    >>> far = X[:20] + [0, 3, 0]
    >>> result = uncertainty_importance(model, far, background=X, random_state=0)
    >>> result.feature_names[result.importances_mean.argmax()]
    'column 1'
    """
    check_number("n_repeats", n_repeats, kind=Integral, low=1)
    random = random_source(random_state)
    X = _dense("X", X)
    names = _names_of(X, feature_names)
    background = _check_background(X, background)
    kind = default_kind(model) if kind is None else kind

    def uncertainty(X):
        return _uncertainty(model, X, kind, target)

    before, size = uncertainty(X), (X.shape[1], n_repeats, X.shape[0])
    rows = random.randint(background.shape[0], size=size)
    after = uncertainty_replaced(uncertainty, X, background, rows)
    importances = before.mean() - after.mean(2)
    return Importances(
        importances_mean=importances.mean(1),
        importances_std=importances.std(1),
        importances=importances,
        per_row=before[:, None] - after.mean(1).T,
        uncertainty=before,
        feature_names=names,
    )


def uncertainty_replaced(
    uncertainty: Callable[[Any], np.ndarray], X, background, rows: np.ndarray
) -> np.ndarray:
    """Uncertainty of the rows of X if a column has the values of other rows.

    uncertainty : of each row of a table, (rows,)
    rows : indices of rows of the background, broadcast to the shape of the result

    returns : (columns, repeats, rows), one column replaced at a time
    """
    n_rows, n_columns = X.shape
    rows = np.broadcast_to(rows, (n_columns, rows.shape[-2], n_rows))
    # Predictions of few rows take a fixed time: predict many of them at once.
    n_at_once = 1
    if not is_frame(X) or types_of_columns(X) == types_of_columns(background):
        n_at_once = max(1, MAX_CELLS // (n_rows * n_columns))
    after = []
    for repeats in np.array_split(rows, -(-rows.shape[1] // n_at_once), axis=1):
        n_repeats, values = repeats.shape[1], []
        base = safe_indexing(X, np.tile(np.arange(n_rows), n_repeats))
        n_parts = -(-n_columns * n_repeats // n_at_once)
        for columns in np.array_split(np.arange(n_columns), n_parts):
            tables = [
                with_column(base, j, background, repeats[j].ravel())
                for j in columns.tolist()
            ]
            values.append(uncertainty(concatenated(tables)))
        after.append(np.concatenate(values).reshape(n_columns, n_repeats, n_rows))
    return np.concatenate(after, axis=1)


def types_of_columns(X) -> dict:
    """Types of the columns of a frame."""
    import narwhals.stable.v2 as narwhals

    return dict(narwhals.from_native(X, eager_only=True).schema)


def causes_of_rows(
    uncertainty: Callable[[Any], np.ndarray],
    X,
    background,
    rows: np.ndarray,
    texts: Sequence[Sequence[str]],
) -> list[list[str]]:
    """For each row of X, columns that make it uncertain, the most important first.

    uncertainty, background, rows : as in ``uncertainty_replaced``
    texts : name and value of each column, for each row
    """
    before = uncertainty(X)
    after = uncertainty_replaced(uncertainty, X, background, rows).mean(1)
    return [
        [
            f"{names[j]} (\u2212{100 * (1 - without[j] / value):.0f} %)"
            for j in np.argsort(without, kind="stable")
            if without[j] < 0.995 * value
        ]
        for names, value, without in zip(texts, before, after.T, strict=True)
    ]


def default_kind(model) -> str:
    """Name of the epistemic uncertainty for the model's task."""
    return "mutual_information" if hasattr(model, "predict_proba") else "epistemic"


def _dense(name, X):
    """Return a frame unchanged, or a two-dimensional array."""
    if sparse.issparse(X):
        raise TypeError(
            f"`{name}` must be dense, since whole columns are replaced; got "
            f"{type(X).__name__}. Give some rows as `X.toarray()`."
        )
    if is_frame(X):
        return X
    X = np.asarray(with_dtype(name, X))
    if X.ndim != 2:
        raise ValueError(f"`{name}` must have rows and columns; got shape {X.shape}.")
    return X


def _names_of(X, feature_names) -> list[str]:
    """One name per column of X: as given, from the frame, or numbered."""
    n_columns = X.shape[1]
    if feature_names is None:
        return column_names(X)
    if isinstance(feature_names, str) or len(feature_names) != n_columns:
        raise ValueError(
            f"`feature_names` must have one name for each of the {n_columns} columns "
            f"of X; got {feature_names!r}."
        )
    return [str(name) for name in feature_names]


def _check_background(X, background):
    """Return the reference rows, checked against X."""
    if background is None:
        if X.shape[0] < 2:
            raise ValueError(
                "`background` must be given for fewer than 2 rows, which cannot be "
                f"compared with each other; got {X.shape[0]} rows and None. Give the "
                "training rows."
            )
        return X
    background = _dense("background", background)
    if is_frame(X) != is_frame(background) or (
        is_frame(X) and type(X).__module__ != type(background).__module__
    ):
        raise TypeError(
            "`X` and `background` must be of one kind, so that their columns match; "
            f"got {type(X).__name__} and {type(background).__name__}. Give both as "
            "frames of one library, or both as arrays."
        )
    if is_frame(X) and column_names(X) != column_names(background):
        raise ValueError(
            "`X` and `background` must have the same columns in the same order; got "
            f"{column_names(X)} and {column_names(background)}."
        )
    if background.shape[1] != X.shape[1]:
        raise ValueError(
            "`X` and `background` must have the same columns; got shapes "
            f"{X.shape} and {background.shape}."
        )
    if not background.shape[0]:
        raise ValueError(
            "`background` must have at least one row; got none. Give the training rows."
        )
    return background


def _uncertainty(model, X, kind, target):
    uncertainty = predict_uncertainty(model, X, kind)
    if isinstance(uncertainty, dict):
        raise ValueError(f"`kind` must be one kind of uncertainty; got kind={kind!r}.")
    return select_target("uncertainty", uncertainty, target)


def select_target(name: str, values, target, trailing: int = 0) -> np.ndarray:
    """Select one target: float64 of shape (n_samples, ...).

    Parameters
    ----------
    values : of shape (n_samples[, n_targets], ...)
    target : int or None
        None if there is only one target.
    trailing : int
        Number of axes after the axis of the targets.

    Raises
    ------
    ValueError
        If there are several targets and ``target`` is None or out of range.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim == trailing + 1:
        values = np.expand_dims(values, 1)
    if values.ndim != trailing + 2:
        raise ValueError(
            f"`{name}` must have {trailing + 1} axes, or {trailing + 2} with an axis "
            f"of targets; got shape {values.shape}."
        )
    n_targets = values.shape[1]
    if target is None and n_targets != 1:
        raise ValueError(
            f"`target` must be the index of one of the {n_targets} targets of "
            f"`{name}`, from 0 to {n_targets - 1}; got None."
        )
    target = 0 if target is None else check_number("target", target, kind=Integral)
    if not 0 <= target < n_targets:
        raise ValueError(
            f"`target` must be from 0 to {n_targets - 1}, one of the {n_targets} "
            f"targets of `{name}`; got {target}."
        )
    return values[:, target]


def with_column(X, column, background, rows):
    """Copy X, with one column replaced by values of the background's ``rows``."""
    if hasattr(X, "iloc"):
        X = X.copy()
        # Keeps the type of the column, such as categories.
        X.isetitem(column, background.iloc[rows, column].set_axis(X.index))
        return X
    if is_frame(X):
        import narwhals.stable.v2 as narwhals

        frame, other = (
            narwhals.from_native(f, eager_only=True) for f in (X, background)
        )
        return frame.with_columns(other[:, column][rows]).to_native()
    replacement = background[rows, column]
    # An integer X may receive floats.
    X = X.astype(np.result_type(X, replacement))
    X[:, column] = replacement
    return X
