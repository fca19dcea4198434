"""Shapley values of what a model predicts for a row: which columns are the reason?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse

from skbayesnn._data.columns import is_frame
from skbayesnn._data.sources import concatenated
from skbayesnn._meta.functions import predict_distribution
from skbayesnn._predictive.distribution import ClassDistribution
from skbayesnn._runtime import required, warn_once_per_call
from skbayesnn._typing import Array, RandomState
from skbayesnn._validation import check_number, random_source
from skbayesnn.inspection._columns import column_names, number_text, shown, with_dtype

# Longest name that is displayed in full, in characters.
LONGEST_NAME = 32
# Largest number of columns in the printed table.
MAX_PRINTED = 20
# About the most cells of the rows that are predicted at once.
MAX_CELLS = 2_000_000


# ---- result


@dataclass(frozen=True, eq=False, repr=False)
class Attributions:
    """Contributions of the columns to a prediction, printed as a table.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_features)
        Contribution of each column: the sum over columns is the prediction of the row
        minus ``base_values``.
    base_values : ndarray of shape (n_samples,)
        Mean prediction of the background, the same for all rows.
    standard_errors : ndarray of shape (n_samples, n_features)
        Standard errors of the values, from the random permutations and the choice of
        background rows. Rows share both, so their errors are correlated.
    data : {frame, ndarray} of shape (n_samples, n_features)
        Explained rows.
    feature_names : list of str
    of : str
        What is explained, such as "mean".
    """

    values: Array
    base_values: Array
    standard_errors: Array
    data: Any
    feature_names: list[str]
    of: str

    def __repr__(self) -> str:
        mean, size = self.values.mean(0), np.abs(self.values).mean(0)
        error = self.standard_errors.mean(0)
        order = np.argsort(-size, kind="stable")[:MAX_PRINTED]
        names = short_names([self.feature_names[i] for i in order])
        width = max(map(len, ("column", *names)))
        lines = [f"{'column':<{width}}        mean        size     error"]
        lines += [
            f"{name:<{width}}  {mean[i]:>10.3g}  {size[i]:>10.3g}{error[i]:>10.2g}"
            for name, i in zip(names, order, strict=True)
        ]
        if len(order) < len(mean):
            lines.append(f"{len(mean) - len(order)} more columns are nearer to zero")
        total = (self.base_values + self.values.sum(1)).mean()
        lines.append(
            f"{self.of}: {number_text(total)} in {len(self.values)} rows, "
            f"{number_text(self.base_values[0])} in the background"
        )
        return "\n".join(lines)

    def to_shap(self) -> Any:
        """Return a ``shap.Explanation``, which all plots of shap take.

        Returns
        -------
        explanation : shap.Explanation
        """
        shap: Any = required("shap", "to_shap needs", "pip install shap")
        return shap.Explanation(
            self.values,
            self.base_values,
            np.asarray(self.data),
            feature_names=self.feature_names,
            error_std=self.standard_errors,
        )


def reasons(
    result: Attributions, texts: Sequence[Sequence[str]], both_signs: bool = False
) -> list[list[str]]:
    """For each row, the columns that raise the value, the most important first.

    Contributions below two standard errors are left out.

    texts : name and value of each column, for each row
    both_signs : also the columns that lower the value
    """
    found, signs = [], "\u2212+"
    for names, values, errors in zip(
        texts, result.values, result.standard_errors, strict=True
    ):
        sizes = np.abs(values) if both_signs else values
        smallest = np.maximum(2 * errors, 0.005 * np.abs(values).sum())
        found.append(
            [
                f"{names[j]} ({signs[int(values[j] > 0)]}{number_text(sizes[j])})"
                for j in np.argsort(-sizes, kind="stable")
                if sizes[j] > smallest[j]
            ]
        )
    return found


def short_names(names: Sequence[str], longest: int = LONGEST_NAME) -> list[str]:
    """Cut the middle out of long names; distinct names stay distinct."""

    def short(name):
        head, tail = (longest - 1) // 2, longest // 2
        return name if len(name) <= longest else f"{name[:head]}\u2026{name[-tail:]}"

    while len(set(map(short, names))) < len(set(names)):
        longest += 4
    return [short(name) for name in names]


# ---- estimation


@warn_once_per_call
def attributions(
    model: Any,
    X: Any,
    *,
    background: Any,
    of: str | tuple[str, Any] = "mean",
    n_permutations: int = 64,
    random_state: RandomState = 0,
    target: int | None = None,
    feature_names: Sequence[str] | None = None,
) -> Attributions:
    """Find the columns that explain the predictions of rows, and their uncertainty.

    The contributions of the columns are Shapley values [1]_: columns of a row of the
    background get the values of the explained row, one after another in random order,
    and the prediction changes each time. The mean change over orders and background
    rows is the contribution of the column. Contributions are in the units of the
    prediction. Their sum is exactly the prediction of the row minus the mean
    prediction of all background rows.

    Each random order is used with its reverse [2]_, so that effects of single columns
    and of pairs of columns have no error by the orders. The mean over a sample of the
    background is corrected to the mean over all of its rows, by regression.

    Parameters
    ----------
    model : fitted estimator
        Any model that :func:`skbayesnn.predict_distribution` accepts; for a
        ``"probability"`` any classifier.
    X : {frame, array-like} of shape (n_samples, n_features)
        Rows to be explained. Not sparse. A category or a date is one column, however
        many features the model makes of it.
    background : like X, of shape (n_background, n_features)
        Rows to compare with, usually training rows. All are predicted once.
    of : str or tuple, default="mean"
        What is explained. Regression: ``"mean"``, ``"std"``, ``"epistemic"``,
        ``"aleatoric"`` or ``("quantile", level)``. Classification: ``("probability",
        label)``, ``"entropy"``, ``"mutual_information"`` or another kind of
        :func:`skbayesnn.predict_uncertainty`.
    n_permutations : int >= 3, default=64
        Number of random orders with their reverses, and of background rows that they
        start from. A row takes ``2 * n_permutations * (n_features - 1)`` predictions.
        Errors decrease with its square root.
    random_state : int, RandomState instance or None, default=0
        The orders and background rows are the same for all rows of X, so a row has the
        same contributions alone and among others.
    target : int, default=None
        Index of the target; required if the model has several targets.
    feature_names : sequence of str of length n_features, default=None
        None uses the columns of a frame, or "column 0", "column 1" and so on.

    Returns
    -------
    result : Attributions
        ``values``, ``base_values``, ``standard_errors``, ``data`` and
        ``feature_names``. ``print(result)`` shows a table with the mean contribution
        of each column over rows, and its mean size; ``result.to_shap()`` has the plots
        of shap.

    See Also
    --------
    skbayesnn.plotting.AttributionDisplay : Plot the contributions.

    References
    ----------
    .. [1] Strumbelj & Kononenko (2014), "Explaining prediction models and individual
       predictions with feature contributions", Knowledge and Information Systems 41.
    .. [2] Mitchell, Cooper, Frank & Holmes (2022), "Sampling permutations for Shapley
       value estimation", JMLR 23.

    Examples
    --------
    Why are rows uncertain whose second column is far from the training rows?

    >>> import numpy as np
    >>> from skbayesnn import AnchoredEnsembleRegressor
    >>> from skbayesnn.inspection import attributions
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-1, 1, size=(200, 3))
    >>> y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * random.normal(size=200)
    >>> model = AnchoredEnsembleRegressor(random_state=0).fit(X, y)
    >>> far = X[:20] + [0, 3, 0]
    >>> result = attributions(model, far, background=X, of="epistemic")
    >>> result.feature_names[result.values.mean(0).argmax()]
    'column 1'
    """
    # Errors have n_permutations - 2 degrees of freedom.
    check_number("n_permutations", n_permutations, kind=Integral, low=3)
    random = random_source(random_state)
    X = _dense("X", X)
    names = _names_of(X, feature_names)
    background = _checked_background(X, background)
    table, value = _stacked(X, background), _value_of(model, of, target)
    of_rows, of_background = value(X), value(background)
    base = of_background.mean()
    n_rows, n_columns = X.shape
    chosen = np.resize(random.permutation(len(of_background)), n_permutations)
    rank = random.random_sample((n_permutations, n_columns)).argsort(1)
    rank = np.stack([rank, n_columns - 1 - rank], axis=1)
    start = of_background[chosen]
    values, errors = np.empty((2, n_rows, n_columns))
    step = max(1, MAX_CELLS // rank.size)
    for rows in np.split(np.arange(n_rows), range(step, n_rows, step)):
        each = _changes(
            lambda source: value(_mixed(table, source)),
            of_rows[rows],
            start,
            rows,
            n_rows + chosen,
            rank,
        )
        values[rows], errors[rows] = _regressed(each, start, base)
    text = of if isinstance(of, str) else f"{of[0]} {of[1]}"
    bases = np.full(n_rows, base)
    return Attributions(values, bases, errors, X, names, text.replace("_", " "))


def _changes(value: Callable, of_rows, start, rows, others, rank) -> Array:
    """Changes of the value by each column, (rows, pairs, columns).

    value : takes the row of the table from which each cell comes, (n, columns)
    of_rows, start : values of the rows, and of the background row of each pair
    rows, others : their positions in the table
    rank : position of each column in an order, (pairs, 2, columns)
    """
    n_pairs, _, n_columns = rank.shape
    shape = len(rows), n_pairs, 2, n_columns - 1
    size, step = int(np.prod(shape)), max(1, MAX_CELLS // n_columns)
    parts = [np.empty(0)]
    for first in range(0, size, step):
        i = np.arange(first, min(first + step, size))
        row, pair, way, position = np.unravel_index(i, shape)
        is_new = rank[pair, way] <= position[:, None]
        parts.append(value(np.where(is_new, rows[row, None], others[pair, None])))
    path = np.empty((*shape[:3], n_columns + 1))
    path[..., 0] = start[:, None]
    path[..., 1:-1] = np.concatenate(parts).reshape(shape)
    path[..., -1] = of_rows[:, None, None]
    return np.take_along_axis(np.diff(path), rank[None], axis=-1).mean(2)


def _regressed(each: Array, start: Array, base: float) -> tuple[Array, Array]:
    """Values and standard errors, (rows, columns), for all rows of the background.

    The changes of a pair depend on the value of its background row, whose mean over the
    background is known. The slopes of a row have the sum -1. They are shrunk, as by one
    more pair, to the shares of the columns in the sizes of the changes.

    each : (rows, pairs, columns), start : (pairs,)
    """
    n_pairs = each.shape[1]
    mean, deviation = each.mean(1), start - start.mean()
    around = each - mean[:, None]
    tiny = np.finfo(float).tiny
    shrinkage = np.square(around).sum((1, 2))[:, None] / n_pairs + tiny
    share = np.abs(each).sum(1) + tiny
    share = shrinkage * share / share.sum(1, keepdims=True)
    slope = (deviation @ around - share) / (deviation @ deviation + shrinkage)
    residual = around - slope[:, None] * deviation[:, None]
    variance = np.square(residual).sum(1) / (n_pairs - 2)
    values = mean - slope * (start.mean() - base)
    return values, np.sqrt(variance / n_pairs)


def _value_of(model, of, target) -> Callable[[Any], Array]:
    """Function that returns what is explained, float64 of shape (rows,)."""
    name, argument = of if isinstance(of, tuple) and len(of) == 2 else (of, None)
    if name == "probability":
        labels = list(getattr(model, "classes_", []))
        if argument not in labels:
            raise ValueError(
                f"the label of a probability must be among the classes {labels} of the "
                f"model; got {argument!r}."
            )
        k = labels.index(argument)
        return lambda X: np.asarray(model.predict_proba(X), dtype=np.float64)[:, k]

    def value(X):
        distribution = predict_distribution(model, X)
        known: dict[Any, Callable] = {
            kind: partial(distribution.uncertainty, kind) for kind in distribution.kinds
        }
        if isinstance(distribution, ClassDistribution):
            names = [("probability", "label"), *known]
        else:
            names = ["mean", "std", ("quantile", "level"), *known]
            known |= {"mean": distribution.mean, "std": distribution.std}
            if isinstance(of, tuple):
                known["quantile"] = partial(distribution.ppf, argument)
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"`of` must be among {names}; got {of!r}.")
        return select_target("prediction", known[name](), target)

    return value


# ---- tables


def _stacked(X, background):
    """Rows of X, then of the background. Columns of pandas get a common type."""
    if hasattr(X, "isetitem"):
        X, background = X.copy(deep=False), background.copy(deep=False)
        for j, dtype in enumerate(X.dtypes):
            ours, theirs = X.iloc[:, j], background.iloc[:, j]
            if hasattr(dtype, "categories") and dtype != theirs.dtype:
                levels = ours.cat.categories
                others = theirs.astype("category").cat.categories
                dtype = type(dtype)(levels.union(others, sort=False), dtype.ordered)
                X.isetitem(j, ours.astype(dtype))
                background.isetitem(j, theirs.astype(dtype))
    elif is_frame(X):
        ours, theirs = _types_of_columns(X), _types_of_columns(background)
        if other := [name for name in ours if ours[name] != theirs[name]]:
            raise TypeError(
                "`X` and `background` must have the same types of columns; they differ "
                f"in {other}. Cast these columns."
            )
    return concatenated([X, background])


def _types_of_columns(X) -> dict:
    """Types of the columns of a frame."""
    import narwhals.stable.v2 as narwhals

    return dict(narwhals.from_native(X, eager_only=True).schema)


def _mixed(table, source: Array):
    """Table whose cells come from the given rows of a table; source : (n, columns)."""
    columns = range(source.shape[1])
    if hasattr(table, "isetitem"):
        arrays = {j: table.iloc[:, j].array.take(source[:, j]) for j in columns}
        return type(table)(arrays, copy=False).set_axis(table.columns, axis=1)
    if is_frame(table):
        import narwhals.stable.v2 as narwhals

        frame = narwhals.from_native(table, eager_only=True)
        mixed = [frame[:, j][source[:, j]].to_frame() for j in columns]
        return narwhals.concat(mixed, how="horizontal").to_native()
    return table[source, np.arange(source.shape[1])]


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


def _checked_background(X, background):
    """Return the reference rows, checked against X."""
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


def cell_text(X, row: int, column: int) -> str:
    """Value of one cell, as text."""
    if hasattr(X, "iloc"):
        value = X.iloc[row, column]
    elif hasattr(X, "column_names"):
        value = X.column(column)[row].as_py()
    else:
        value = X[row, column] if hasattr(X, "shape") else X[row][column]
    is_fraction = isinstance(value, float | np.floating) and value % 1 > 0
    return number_text(value) if is_fraction else shown(value)
