"""Check X, y and weights, and convert them to plain arrays."""

import datetime
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from skbayesnn._data import _advice
from skbayesnn._data._advice import is_iso_date
from skbayesnn._data.class_order import label_array
from skbayesnn._data.column_encoding import (
    EncodedRows,
    UnknownValues,
    normal_substitutes,
)
from skbayesnn._data.columns import (
    TableReader,
    first_text,
    is_frame,
    is_missing,
    refuse_repeated_names,
)
from skbayesnn._data.table_encoder import (
    AVERAGED,
    TYPICAL,
    TableEncoder,
    is_default,
    needs_encoding,
    refuse_other_names,
    warn_of_new_missing,
)
from skbayesnn._data.target import refuse_values_of_intervals
from skbayesnn._distributions.components import columns_of
from skbayesnn._runtime import warn
from skbayesnn._sklearn_compat import num_samples
from skbayesnn._validation import check_row_weights, compute_class_weights
from skbayesnn.networks import NetworkDescription

FLOATS = (np.float64, np.float32)
# Largest value of y. Its square must be finite.
_MAX_Y = 1e140
# Smallest difference between values of y. Precisions in the units of y must be finite.
_MIN_Y = 1e-140
# Bounds of N, the sum of the weights.
_MIN_N, _MAX_N = 1e-30, 1e30
# Mean weights beyond the following are unlikely to be counts of rows.
_SMALL_MEAN_WEIGHT = 0.1
# For weights that are not integers.
_LARGE_MEAN_WEIGHT = 10.0
# For integer weights.
_LARGE_MEAN_COUNT = 1000.0


@contextmanager
def named_after(estimator, inner) -> Iterator[None]:
    """Replace the internal model's class name in errors by that of ``estimator``."""
    try:
        yield
    except (TypeError, ValueError) as error:
        inner_name, outer_name = type(inner).__name__, type(estimator).__name__
        message = re.sub(rf"\b{inner_name}\b", outer_name, str(error))
        if message == str(error):
            raise
        error_class = TypeError if isinstance(error, TypeError) else ValueError
        raise error_class(message) from error


@dataclass(frozen=True)
class Table:
    """Checked X, y and weights.

    Parameters
    ----------
    X : ndarray or CSR array of shape (rows, inputs), float32 or float64
    y : ndarray
        Regression: (rows, targets), float64. Classification: (rows,), the index of
        each row's label in ``classes_``.
    sample_weight : ndarray of shape (rows,), float64
    ranks : tuple of int, optional
        Index of each class in the likelihood, see ``class_order.class_ranks``.
    intervals : ndarray of shape (rows, 3 targets), optional
        y of the likelihoods of intervals, in the units of y; see ``_data.target``.
    """

    X: np.ndarray | sparse.csr_array
    y: np.ndarray
    sample_weight: np.ndarray
    ranks: tuple[int, ...] | None = None
    intervals: np.ndarray | None = None

    @property
    def codes(self) -> np.ndarray:
        """Index of each row's class in the likelihood, (rows,).

        Arbitrary for rows that are never trained on.
        """
        return self.y if self.ranks is None else np.maximum(self.ranks, 0)[self.y]

    @property
    def n_rows(self) -> int:
        """Number of rows, including rows of weight zero."""
        return len(self.sample_weight)

    def append(self, *others: "Table") -> "Table":
        """Concatenate tables by rows."""
        tables = (self, *others)
        X: list[Any] = [table.X for table in tables]
        if sparse.issparse(self.X):
            stacked_X = sparse.vstack(X, format="csr")
        else:
            dense = [x.toarray() if sparse.issparse(x) else x for x in X]
            stacked_X = np.concatenate(dense)
        intervals = None
        if any(table.intervals is not None for table in tables):
            intervals = np.concatenate([table.as_intervals() for table in tables])
        return Table(
            X=stacked_X,
            y=np.concatenate([table.y for table in tables]),
            sample_weight=np.concatenate([table.sample_weight for table in tables]),
            ranks=self.ranks,
            intervals=intervals,
        )

    def as_intervals(self) -> np.ndarray:
        """Intervals of all rows; of exact values, if there are no others."""
        if self.intervals is not None:
            return self.intervals
        return np.concatenate([self.y, self.y, np.zeros_like(self.y)], axis=1)


def stacked(tables: Sequence[Table]) -> tuple[Table, list[int]]:
    """Concatenate the distinct tables; return it and the first row of each table."""
    distinct = {id(table): table for table in tables}
    first, *others = distinct.values()
    ends = np.cumsum([table.n_rows for table in distinct.values()]).tolist()
    starts = dict(zip(distinct, [0, *ends], strict=False))
    return (
        first.append(*others) if others else first,
        [starts[id(table)] for table in tables],
    )


def check_inputs(estimator, X, *, reset):
    """Convert X to float32 or float64 (dense, or CSR); check feature names and count.

    If the estimator was fitted to a table with categories, dates or missing values, its
    fitted ``table_`` encodes the columns.

    Raises
    ------
    ValueError
        If X has NaN or infinity, no rows, other features than in ``fit``, or columns
        that are not numeric (the message names them).
    """
    if not reset:
        if table_of(estimator) is not None:
            return _encoded(estimator, X, TYPICAL).X
        if _needs_no_conversion(estimator, X):
            return X
    return _as_numbers(estimator, X, reset=reset)


def check_new_rows(estimator, X, mean=None, std=None) -> EncodedRows:
    """Call ``check_inputs`` for a prediction, which may have unknown values.

    mean, std : ndarray of shape (columns,), optional
        Of the columns that ``fit`` has seen without missing values. A missing number is
        then normal with these moments. By default it raises.
    """
    if table_of(estimator) is not None:
        return _encoded(estimator, X, AVERAGED)
    if _needs_no_conversion(estimator, X):
        return EncodedRows(X)
    X = _as_numbers(estimator, X, reset=False, allow_nan=mean is not None)
    if mean is None or sparse.issparse(X):
        return EncodedRows(X)
    missing = np.isnan(X)
    columns = np.flatnonzero(missing.any(axis=0))
    names = getattr(estimator, "feature_names_in_", range(X.shape[1]))
    n_rows = {names[j]: int(missing[:, j].sum()) for j in columns}
    warn_of_new_missing(estimator, n_rows, AVERAGED)
    unknown = [
        UnknownValues(
            slice(j, j + 1), missing[:, j], normal_substitutes(mean[j], std[j])
        )
        for j in columns
    ]
    filled = np.where(missing, mean, X).astype(X.dtype) if unknown else X
    return EncodedRows(filled, tuple(unknown))


def _refuse_masked(name: str, values) -> None:
    """Raise if values are masked: conversions to arrays would use them."""
    if np.ma.is_masked(values):
        way_out = "Remove their rows from X and y."
        if name == "X":
            way_out = "Give X.astype(float).filled(np.nan)."
        raise ValueError(
            f"`{name}` must not have masked values; got "
            f"{np.ma.count_masked(values)}. {way_out}"
        )


def _refuse_other_tables(X) -> None:
    """Raise if X is a row without its table, or if columns of it share a name."""
    refuse_repeated_names(X)
    _refuse_masked("X", X)
    is_list = isinstance(X, list) and bool(X) and isinstance(X[0], dict)
    is_series = type(X).__name__ == "Series" and getattr(X, "ndim", 1) == 1
    is_dict = isinstance(X, dict) and not sparse.issparse(X)  # dok_array is a dict
    if is_list or is_series or is_dict:
        kind = "list of dicts" if is_list else type(X).__name__
        raise ValueError(
            "`X` must be a table of shape (n_samples, n_features); got a "
            f"{kind}. Give pandas.DataFrame(X), or pandas.DataFrame([X]) if it is one "
            "row; of a table, for one row X.loc[[i]] in place of X.loc[i], for one "
            "column X[[name]] in place of X[name]."
        )


def _as_numbers(estimator, X, *, reset, allow_nan=False):
    """X as numbers; NaN is allowed in dense X only."""
    _refuse_other_tables(X)
    refuse_non_numeric_columns(X, in_fit=reset)
    if not (reset or hasattr(estimator, "feature_names_in_")):
        refuse_other_names(X, range(estimator.n_features_in_))
    X = _flat_rows(getattr(estimator, "network", None), X)
    try:
        X = validate_data(
            estimator,
            X,
            reset=reset,
            dtype=list(FLOATS),
            accept_sparse="csr",
            order="C",
            ensure_all_finite=(
                "allow-nan" if allow_nan and not sparse.issparse(X) else True
            ),
        )
    except ValueError as error:
        if "infinity" not in str(error) or sparse.issparse(X):
            raise
        raise ValueError(f"{error}{_place_of_infinity(X)}") from error
    if sparse.issparse(X) and not X.has_canonical_format:
        # Duplicate entries must be summed before they are squared.
        X = X.copy()
        X.sum_duplicates()
    return X


def _place_of_infinity(X) -> str:
    """Sentences on the first column with infinity, and the way out."""
    reader = TableReader(X if is_frame(X) else np.asarray(X, dtype=np.float64))
    for j, name in enumerate(reader.names):
        rows = np.flatnonzero(np.isinf(reader[j].numbers()))
        if len(rows):
            return (
                f" Column {name!r} has infinity in {len(rows)} rows, first in row "
                f"{rows[0]}. Replace it by NaN if the value is unknown."
            )
    return ""


def table_of(estimator) -> TableEncoder | None:
    """Fitted encoder of an estimator; None if it was fitted to numbers."""
    return getattr(estimator, "table_", None)


def _encoded(estimator, X, consequence: str) -> EncodedRows:
    """Features of the rows of a table; errors name the estimator."""
    _refuse_other_tables(X)
    if num_samples(X) == 0:
        raise ValueError("`X` must have at least one row; got none.")
    with named_after(estimator, estimator.table_):
        return estimator.table_.encode(estimator, X, consequence)


def _fit_table(estimator, X, y, weights, groups) -> np.ndarray:
    """Fit ``table_``, store number and names of the columns, and return the features.

    y : checked, (rows,) or (rows, targets)
    weights : ndarray of shape (rows,)
    groups : ndarray of shape (rows,), or None
    """
    encoder = TableEncoder(
        getattr(estimator, "categorical_features", None),
        target_type="classes" if is_classifier(estimator) else "continuous",
    )
    encoder.set_output(transform="default")
    with named_after(estimator, encoder):
        features = encoder.fit_transform(X, y, weights, groups)
    if not features.shape[1]:
        n_rows = num_samples(X)
        raise ValueError(
            "X must have a column to learn from; got only columns that are constant, "
            "missing, or identifiers whose text does not predict y."
            f"{f' All are constant, because n_samples={n_rows}.' * (n_rows == 1)}"
        )
    validate_data(estimator, X, reset=True, skip_check_array=True)
    estimator.table_ = encoder
    return features


def network_columns(estimator) -> list | None:
    """Names of the columns that the network gets; None if they have none."""
    encoder = table_of(estimator)
    if encoder is not None:
        return [c.column for c in encoder.columns_ for _ in c.features]
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else names.tolist()


def _needs_no_conversion(estimator, X) -> bool:
    """Whether X is valid as it is: a shortcut that makes single rows fast."""
    return (
        type(X) is np.ndarray
        and X.dtype in FLOATS
        and X.ndim == 2
        and len(X) > 0
        and X.shape[1] == estimator.n_features_in_
        and X.flags.c_contiguous
        and not hasattr(estimator, "feature_names_in_")
        and bool(np.isfinite(X).all())
    )


def check_regression(estimator, X, y, sample_weight, *, groups=None, reset):
    """Return X, y and weights of a regression as a :class:`Table`, and y's ndim.

    groups : result of ``check_groups``, for statistics of y that encode categories

    Raises
    ------
    ValueError
        See ``check_inputs`` and ``check_numbers``; also if y has another length.
    """
    check_y = partial(check_numbers, estimator)
    X, y = _checked_pair(
        estimator, X, y, sample_weight, check_y, groups=groups, reset=reset
    )
    if y.ndim > 2:
        raise ValueError(
            "`y` must be of shape (n_samples,) or (n_samples, n_targets); got "
            f"{y.ndim} dimensions."
        )
    n_dimensions = y.ndim
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
        n_dimensions = 1
    y = y.reshape(len(y), -1)
    check_consistent_length(X, y)
    _refuse_extreme_targets(y)
    return Table(X, y, check_weights(sample_weight, X)), n_dimensions


def _refuse_extreme_targets(y) -> None:
    """Raise if the variance of y, (rows, targets), would overflow or underflow."""
    seen = np.abs(y).max()
    if seen <= _MAX_Y:  # The span of larger values could overflow.
        span = np.ptp(y, axis=0)
        too_small = (span > 0) & (span < _MIN_Y)
        if not too_small.any():
            return
        seen = span[too_small].min()
    raise ValueError(
        f"`y` must have values of at most {_MAX_Y:g} that differ by at least "
        f"{_MIN_Y:g}, so that its variance is finite; got {seen:g}. Give y in "
        "another unit."
    )


def classes_of_stream(estimator, classes):
    """All labels of a stream; None in a first call without ``classes``."""
    if not hasattr(estimator, "classes_"):
        classes = None if classes is None else np.unique(classes)
        if classes is not None and len(classes) < 2:
            raise ValueError(
                "`classes` must contain all labels that can occur, at least 2; got "
                f"{classes.tolist()}."
            )
        return classes
    if classes is not None and not np.array_equal(
        np.unique(classes), estimator.classes_
    ):
        raise ValueError(
            "`classes` must be the same as in the first call of `partial_fit`, "
            f"{estimator.classes_.tolist()}; got {np.unique(classes).tolist()}."
        )
    return estimator.classes_


def check_weighted_classes(
    estimator, X, y, sample_weight, groups=None, *, reset=True, classes=None
):
    """``check_classification`` with ``class_weight`` in the weights of the rows.

    Raises
    ------
    ValueError
        If fewer than two classes have rows of positive weight, without ``classes``.
    """
    table, labels = check_classification(
        estimator, X, y, sample_weight, groups=groups, reset=reset, classes=classes
    )
    weights = table.sample_weight
    if estimator.class_weight is not None:
        by_row = labels[table.y]
        weights = weights * compute_class_weights(estimator.class_weight, by_row)
    if classes is None:
        present = np.bincount(table.y, weights, len(labels)) > 0
        refuse_one_class(estimator, labels[present])
    return replace(table, sample_weight=weights), labels


def dense_rows(X) -> np.ndarray:
    """Array of an array or sparse matrix, float64."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def check_classification(
    estimator, X, y, sample_weight, *, groups=None, reset, classes=None
):
    """Return X, class indices and weights as a :class:`Table`, and the classes.

    groups : as in ``check_regression``
    classes : all labels that can occur; by default the labels in y

    Raises
    ------
    ValueError
        See ``check_inputs`` and ``check_labels``; also if y has a label that is not
        among ``classes``.
    """
    X, y = _checked_pair(
        estimator, X, y, sample_weight, check_labels, groups=groups, reset=reset
    )
    check_consistent_length(X, y)
    weights = check_weights(sample_weight, X)
    if classes is None:
        classes, codes = np.unique(y, return_inverse=True)
        return Table(X, codes, weights), classes
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            f"the labels in `y` must be among the classes {classes.tolist()}; got "
            f"{unknown.tolist()}. The classes are set by the rows that `fit` trains "
            "on, or by `classes` of the first `partial_fit`."
        )
    return Table(X, columns_of(y, classes), weights), classes


def check_numbers(estimator, y) -> np.ndarray:
    """Convert targets of a regression to float64, of any shape but a single value.

    Raises
    ------
    ValueError
        If y has NaN, infinity, text, times, or other objects that are not numbers.
    """
    class_name = type(estimator).__name__
    _refuse_masked("y", y)
    values = np.asarray(y)
    if not values.ndim:
        raise ValueError(
            "`y` must be of shape (n_samples,) or (n_samples, n_targets); got the "
            f"single value {str(values)[:40]!r}."
        )
    if values.dtype.kind == "c":
        raise ValueError(
            f"`y` must hold real numbers for {class_name}; got {values.dtype}. Complex "
            "data not supported: give its real and imaginary part as two targets."
        )
    is_text = values.dtype.kind in "OUS"
    if is_text:
        _refuse_places(values, [is_missing(value) for value in values.flat])
    first = next(iter(values.flat), None)
    is_date = isinstance(first, datetime.date) or (
        isinstance(first, str) and is_iso_date(first)
    )
    if values.dtype.kind in "mM" or is_date:
        way_out = _advice.DAYS if values.dtype.kind == "m" else _advice.DAYS_OF_DATES
        raise ValueError(
            f"`y` must hold numbers for {class_name}; got times, such as "
            f"{str(first)!r}, whose unit is unclear. {way_out}"
        )
    if is_text:
        try:
            values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"`y` must hold numbers for {class_name}; got "
                f"{_odd_target(values) or f'{values.dtype} ({error})'}. For labels use "
                "the classifiers, such as BayesianStackingClassifier; for limits such "
                "as '<0.25' or '5-7' call skbayesnn.preprocessing.parse_limits."
            ) from error
    refuse_values_of_intervals(y)
    # scikit-learn refuses frames whose columns share a name, which y may be.
    checked = check_array(
        values if is_frame(y) else y,
        ensure_2d=False,
        dtype=np.float64,
        input_name="y",
        ensure_all_finite=False,
    )
    if not np.isfinite(checked).all():
        _refuse_places(checked, np.isnan(checked), "Input y contains NaN, ")
        infinite = "Input y contains infinity or a value too large for dtype('float64')"
        _refuse_places(checked, np.isinf(checked), f"{infinite}, ")
    return checked


def _refuse_places(values: np.ndarray, odd, words: str = "") -> None:
    """Raise if y has values that are missing or not finite.

    values : y as an array
    odd : of the shape of the values, or flat
    words : of scikit-learn about the same error
    """
    if not np.any(odd):
        return
    by_row = np.reshape(odd, (len(values), -1))
    rows = np.flatnonzero(by_row.any(axis=1)).tolist()
    first = values.reshape(len(by_row), -1)[rows[0]][by_row[rows[0]].argmax()]
    raise ValueError(
        f"`y` must have a value for every row; {words}got {first!s} in {len(rows)} of "
        f"{len(by_row)} rows, at positions {_advice.listed(rows, 5)}. "
        f"{_advice.REMOVE_ROWS}"
        f"{_advice.WITH_MASK * (by_row.shape[1] == 1)}."
    )


def _odd_target(values: np.ndarray) -> str:
    """A text in y, and how to read it; empty if there is no text."""
    found = first_text(values.ravel())
    if found is None:
        return ""
    place, text = found
    row = place // (values.size // len(values))
    way = _advice.NUMBERS.format("pandas.Series(y)")
    return f"{text[:40]!r} in row {row}. {way.rstrip('.')}"


def check_labels(y) -> np.ndarray:
    """Check the labels of a classification, (rows,).

    Raises
    ------
    ValueError
        If labels are continuous, missing, or of types that cannot be sorted together.
    """
    given = y
    _refuse_masked("y", y)
    y = column_or_1d(label_array(y) if hasattr(y, "to_pylist") else y, warn=True)
    # Missing integers become NaN when pandas converts to an array.
    labels = y.tolist() if y.dtype.kind in "fO" else []
    if y.dtype.kind in "mM":
        labels = list(y)
    elif y.dtype.kind == "U" and isinstance(given, list | tuple):
        labels = list(given)
    elif y.dtype.kind == "U" and isinstance(given, np.ndarray):
        # NumPy makes text of NaN.
        labels = [np.nan if label == "nan" else label for label in y.tolist()]
    missing = [row for row, label in enumerate(labels) if is_missing(label)]
    if missing:
        raise ValueError(
            f"`y` must have a label for every row; got {labels[missing[0]]!s} in "
            f"{len(missing)} rows, first in row {missing[0]}. Remove these rows, "
            "or give them a separate label."
        )
    if y.dtype.kind == "O":
        kinds = {type(label).__name__ for label in y}
        if len(kinds) > 1 and "str" in kinds:
            raise ValueError(
                "`y` must have labels of one kind, which can be sorted; got "
                f"{' and '.join(sorted(kinds))}. Make all of them strings."
            )
    check_classification_targets(y)
    return y


def refuse_one_class(estimator, classes) -> None:
    """Raise if there are fewer than two classes.

    classes : labels of the rows with positive weight
    """
    if len(classes) < 2:
        seen = [repr(c) for c in classes.tolist()]
        by = "" if estimator.class_weight is None else ", also by class_weight,"
        raise ValueError(
            f"{type(estimator).__name__} needs rows of at least 2 classes; got "
            f"{len(classes)} class: {', '.join(seen) or 'none'} (rows of weight "
            f"zero{by} do not count). Add rows of another class, or give its rows a "
            "weight."
        )


def _checked_pair(estimator, X, y, sample_weight, check_y, *, groups, reset):
    """X as numbers, and y checked by ``check_y``."""
    check_target_given(estimator, y)
    if not reset:
        return check_inputs(estimator, X, reset=False), check_y(y)
    estimator.table_ = None
    if not _needs_encoding(estimator, X):
        return check_inputs(estimator, X, reset=True), check_y(y)
    # Before statistics of y encode categories.
    check_consistent_length(X, y)
    y = check_y(y)
    weights = _used_weights(estimator, y, sample_weight)
    return _fit_table(estimator, X, y, weights, groups), y


def _used_weights(estimator, y, sample_weight) -> np.ndarray:
    """Weights of the rows; zero also for classes whose ``class_weight`` is zero."""
    weights = np.ones(len(y))
    if sample_weight is not None:
        weights = check_row_weights(sample_weight, np.empty((len(y), 0)))
    by_class = getattr(estimator, "class_weight", None)
    if isinstance(by_class, dict):
        unused = [label for label, weight in by_class.items() if weight == 0]
        weights = np.where(np.isin(y, unused), 0.0, weights)
    return weights


def _needs_encoding(estimator, X) -> bool:
    """Whether X has columns that are not numbers, or missing values.

    Raises
    ------
    ValueError
        If categories are named in X that has no columns of a table.
    """
    network = getattr(estimator, "network", None)
    named = getattr(estimator, "categorical_features", None)
    if sparse.issparse(X) or getattr(network, "row_shapes", ()):
        # Images and sequences have no columns.
        refuse_named_categories(named, "a sparse X, or a network of images")
        return False
    return needs_encoding(X, named)


def refuse_named_categories(categorical_features, where: str) -> None:
    """Raise if columns are named as categories where they cannot be encoded."""
    if not is_default(categorical_features):
        raise ValueError(
            "`categorical_features` must be 'from_dtype' or None for "
            f"{where}; got {categorical_features!r}. Encode the categories before, or "
            "give a dense table."
        )


def refuse_column_name(caller: str, y):
    """Raise an error if y is a name: only some estimators look up columns by it."""
    if isinstance(y, str):
        raise TypeError(
            f"{caller} needs X and y as values in memory; got the "
            f"name y={y!r}. Read the table and give its columns, for example "
            "`fit(frame.drop(columns=name), frame[name])`. Files and names of columns "
            "are for `fit` of stacks and of single networks, such as "
            "MCDropoutRegressor."
        )


def check_target_given(estimator, y):
    """Raise scikit-learn's error if y is None, and an error if it is a name."""
    refuse_column_name(type(estimator).__name__, y)
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y "
            "is None."
        )


def check_weights(sample_weight, X):
    """Check row weights whose sum is N, the number of rows that they count as.

    Warn if the weights seem to be relative, or counts of a population. Models without a
    prior do not depend on the sum of the weights; here it sets the weight of the prior.
    """
    weights = check_row_weights(sample_weight, X)
    total = weights.sum()
    if not _MIN_N <= total <= _MAX_N:
        raise ValueError(
            "`sample_weight` must sum to N, the number of rows that they count as, "
            f"between {_MIN_N:g} and {_MAX_N:g}; got {total:g}. Divide the weights "
            "by their mean."
        )
    mean = weights[weights > 0].mean()
    whole = (weights == np.floor(weights)).all()
    if mean < _SMALL_MEAN_WEIGHT:
        _warn_of_weights(mean, "more", "are only relative")
    elif mean > (_LARGE_MEAN_COUNT if whole else _LARGE_MEAN_WEIGHT):
        _warn_of_weights(mean, "less", "count how many others a row represents")
    return weights


def _warn_of_weights(mean: float, comparison: str, meaning: str) -> None:
    warn(
        "SKB206",
        f"the mean of `sample_weight` is {mean:.1g}. The sum of the weights is the "
        "number of rows, N, in the posterior, so the prior has far "
        f"{comparison} influence than with unit weights. If the weights {meaning}, "
        "give w / w.mean().",
    )


def refuse_non_numeric_columns(X, in_fit: bool = True) -> None:
    """Raise an error with the names of columns of a dense X that are not numeric."""
    if sparse.issparse(X):
        return
    if not is_frame(X):
        try:
            X = np.asarray(X)
        except ValueError:
            return  # rows of different lengths: check_array raises
        if X.ndim != 2 or X.dtype.kind not in "OUSmM":
            return
    columns = [column for column in TableReader(X) if not column.may_be_numbers()]
    if not columns:
        return
    if in_fit:
        way_out = _advice.ENCODE_COLUMNS
    else:
        name, values = columns[0].name, columns[0].values
        row, value = first_text(values) or (0, values[0])
        way_out = f"Convert them. Row {row} of column {name!r} has {str(value)[:40]!r}"
        if isinstance(value, str):
            way_out += f": {_advice.NUMBERS.format('column')}"
    names = ", ".join(repr(column.name) for column in columns)
    raise ValueError(
        f"every column of X must contain numbers{'' if in_fit else ', as in `fit`'}; "
        f"got columns of other kinds: {names}. {way_out}"
    )


def _flat_rows(network: NetworkDescription | None, X):
    """Flatten the rows of X if they have the network's shape; otherwise return X.

    Raises
    ------
    TypeError
        If ``network`` is not a network description.
    ValueError
        If X has more than two dimensions and the rows have another shape.
    """
    if network is None:
        return X
    if not isinstance(network, NetworkDescription):
        raise TypeError(
            "`network` must be None or an object of skbayesnn.networks (MLP, ConvNet, "
            f"RecurrentNet); got {network!r}."
        )
    if isinstance(X, Sequence):
        X = np.asarray(X)
    shape = tuple(getattr(X, "shape", ()))
    if len(shape) < 3:
        return X
    shapes = network.row_shapes
    if shape[1:] not in shapes:
        expected = " or ".join(map(str, ["(n_features,)", *shapes]))
        raise ValueError(
            f"each row of `X` must be of shape {expected} for "
            f"{type(network).__name__}; got "
            f"{shape[1:]}, of X with shape {shape}."
        )
    return X.reshape(shape[0], -1)
