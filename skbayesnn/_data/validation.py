"""Frame -> table: what came in from outside, checked and in plain arrays."""

import numbers
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from skbayesnn._distributions.components import columns_of
from skbayesnn._runtime import warn
from skbayesnn._sklearn_compat import check_sample_weight
from skbayesnn.networks import NetworkDescription

FLOATS = (np.float64, np.float32)
# Largest value of y, and smallest difference that counts: in y's own units there are
# its precisions and sums of its squares.
_LARGEST_Y, _SMALLEST_Y = 1e140, 1e-140
# Bounds of N, the sum of the weights, and mean weights that are no choice of N.
_LEAST_N, _MOST_N = 1e-30, 1e30
_SMALL_MEAN_WEIGHT = 0.1
# Beyond it fractions are no counts of rows, and whole numbers hardly.
_LARGE_MEAN_WEIGHT, _LARGE_MEAN_COUNT = 10.0, 1000.0


@contextmanager
def named_after(estimator, inner) -> Iterator[None]:
    """Errors of ``inner``, which no user knows of, in the name of ``estimator``."""
    try:
        yield
    except (TypeError, ValueError) as error:
        own, outer = type(inner).__name__, type(estimator).__name__
        said = re.sub(rf"\b{own}\b", outer, str(error))
        if said == str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(said) from error


@dataclass(frozen=True)
class Table:
    """Checked rows.

    Parameters
    ----------
    X : ndarray or CSR array of shape (rows, inputs), float32 or float64
    y : ndarray
        Regression: (rows, targets), float64. Classification: (rows,), the number of
        each row's label in ``classes_``.
    sample_weight : ndarray of shape (rows,), float64
    ranks : tuple of int, optional
        As ``class_order.class_ranks`` has them.
    """

    X: np.ndarray | sparse.csr_array
    y: np.ndarray
    sample_weight: np.ndarray
    ranks: tuple[int, ...] | None = None

    @property
    def codes(self) -> np.ndarray:
        """Numbers of the rows' classes in the likelihood, (rows,).

        Of rows that are never trained on, any number.
        """
        return self.y if self.ranks is None else np.maximum(self.ranks, 0)[self.y]

    @property
    def n_rows(self) -> int:
        """Rows, those of weight zero too."""
        return len(self.sample_weight)

    def append(self, *others: "Table") -> "Table":
        """The tables, one below the other."""
        tables = (self, *others)
        X: list[Any] = [table.X for table in tables]
        if sparse.issparse(self.X):
            below = sparse.vstack(X, format="csr")
        else:
            dense = [x.toarray() if sparse.issparse(x) else x for x in X]
            below = np.concatenate(dense)
        return Table(
            X=below,
            y=np.concatenate([table.y for table in tables]),
            sample_weight=np.concatenate([table.sample_weight for table in tables]),
            ranks=self.ranks,
        )


def stacked(tables: Sequence[Table]) -> tuple[Table, list[int]]:
    """The different ones of some tables below each other, and where each begins."""
    different = {id(table): table for table in tables}
    first, *others = different.values()
    ends = np.cumsum([table.n_rows for table in different.values()]).tolist()
    starts = dict(zip(different, [0, *ends], strict=False))
    return (
        first.append(*others) if others else first,
        [starts[id(table)] for table in tables],
    )


def check_inputs(estimator, X, *, reset):
    """X as float32 or float64 (dense, or CSR), with feature names and count checked.

    Raises
    ------
    ValueError
        NaN or infinity, no rows, other features than in ``fit``, columns that are
        not numbers (the message names them).
    """
    if not reset and _is_as_it_must_be(estimator, X):
        return X
    refuse_columns_that_are_not_numbers(X)
    X = _flat_rows(getattr(estimator, "network", None), X)
    _refuse_text(X)
    X = validate_data(
        estimator, X, reset=reset, dtype=list(FLOATS), accept_sparse="csr", order="C"
    )
    if sparse.issparse(X) and not X.has_canonical_format:
        # An entry that is there twice is a sum, whose square is not that of its parts.
        X = X.copy()
        X.sum_duplicates()
    return X


def _is_as_it_must_be(estimator, X) -> bool:
    """Whether nothing has to be converted or told: the quick answer for single rows."""
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


def check_regression(estimator, X, y, sample_weight, *, reset):
    """X, y and weights of a regression as a :class:`Table`, and y's dimensions.

    Raises
    ------
    ValueError
        As ``check_inputs`` and ``check_numbers``; y of another length.
    """
    X = check_inputs_with_target(estimator, X, y, reset=reset)
    y = check_numbers(estimator, y)
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
    """Say where the variance of y, (rows, targets), is no float."""
    largest, span = np.abs(y).max(), np.ptp(y, axis=0)
    too_small = (span > 0) & (span < _SMALLEST_Y)
    if largest <= _LARGEST_Y and not too_small.any():
        return
    seen = largest if largest > _LARGEST_Y else span[too_small].min()
    raise ValueError(
        f"`y` must have values of at most {_LARGEST_Y:g} that differ by at least "
        f"{_SMALLEST_Y:g}, so that its variance is a float; got {seen:g}. Give it in "
        "another unit."
    )


def check_classification(estimator, X, y, sample_weight, *, reset, classes=None):
    """X, labels and weights as a :class:`Table` with class numbers, and the classes.

    ``classes`` are all labels that can occur; by default those in y.

    Raises
    ------
    ValueError
        As ``check_inputs`` and ``check_labels``; y that holds a label that is not
        among ``classes``.
    """
    X = check_inputs_with_target(estimator, X, y, reset=reset)
    y = check_labels(y)
    check_consistent_length(X, y)
    weights = check_weights(sample_weight, X)
    if classes is None:
        classes, codes = np.unique(y, return_inverse=True)
        return Table(X, codes, weights), classes
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            "`y` must hold only labels that are among the classes "
            f"{classes.tolist()}; got {unknown.tolist()}. The classes are those of "
            "the rows that `fit` trains on, or `classes` of the first `partial_fit`."
        )
    return Table(X, columns_of(y, classes), weights), classes


def check_numbers(estimator, y) -> np.ndarray:
    """Targets of a regression as float64, of any shape.

    Raises
    ------
    ValueError
        NaN or infinity; text, times, or other objects that are no numbers.
    """
    kind = type(estimator).__name__
    values = np.asarray(y)
    if values.dtype.kind in "mM":
        raise ValueError(
            f"`y` must hold numbers for {kind}; got times ({values.dtype}), whose unit "
            "would be a guess. Give them as a duration in a unit, for instance "
            "(y - y.min()) / np.timedelta64(1, 'D')."
        )
    if values.dtype.kind in "OUS":
        missing = [value for value in values.flat if _is_missing(value)]
        if missing:
            raise ValueError(
                f"`y` must have a value for every row; got {missing[0]!r} in "
                f"{len(missing)} of {values.size} places. Remove these rows."
            )
        try:
            values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"`y` must hold numbers for {kind}; got {values.dtype} ({error}). For "
                "labels there are the classifiers."
            ) from error
    return check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")


def check_labels(y) -> np.ndarray:
    """Labels of a classification, (rows,).

    Raises
    ------
    ValueError
        Numbers that are continuous; labels that are missing, or of kinds that have no
        order.
    """
    y = column_or_1d(y, warn=True)
    # Missing integers of pandas are NaN in an array.
    labels = y.tolist() if y.dtype.kind in "fO" else []
    missing = [row for row, label in enumerate(labels) if _is_missing(label)]
    if missing:
        raise ValueError(
            f"`y` must have a label for every row; got {labels[missing[0]]!r} in "
            f"{len(missing)} rows, first in row {missing[0]}. Remove these rows, "
            "or give them a label of their own."
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
    """Say that there is nothing to tell apart.

    classes : those of the rows of positive weight
    """
    if len(classes) < 2:
        seen = [repr(c) for c in classes.tolist()]
        by = "" if estimator.class_weight is None else ", by class_weight too,"
        raise ValueError(
            f"{type(estimator).__name__} needs rows of at least 2 classes; got "
            f"{len(classes)} class: {', '.join(seen) or 'none'} (rows of weight "
            f"zero{by} do not count). Add rows of another class, or give its rows a "
            "weight."
        )


def _is_missing(label) -> bool:
    """None, NaN, and what pandas has in their place."""
    if isinstance(label, float):
        return label != label
    return label is None or type(label).__name__ in ("NAType", "NaTType")


def check_inputs_with_target(estimator, X, y, *, reset):
    """``check_inputs``, with scikit-learn's error where y is missing."""
    check_target_given(estimator, y)
    return check_inputs(estimator, X, reset=reset)


def check_target_given(estimator, y):
    """scikit-learn's error where y is missing."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y "
            "is None."
        )


def check_row_weights(sample_weight, X):
    """Row weights, (rows,), float64, finite and not negative; ones by default."""
    weights = check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    if not weights.any():
        raise ValueError(
            "`sample_weight` must be positive for at least one row; got zeros only."
        )
    return weights


def check_weights(sample_weight, X):
    """``check_row_weights``, whose sum is N, the number of rows that they count as.

    Weights that seem to be relative, or counts of a population, are warned of: that N
    is their sum is another convention than that of models without a prior.
    """
    weights = check_row_weights(sample_weight, X)
    total = weights.sum()
    if not _LEAST_N <= total <= _MOST_N:
        raise ValueError(
            "`sample_weight` must sum to N, the number of rows that they count as, "
            f"between {_LEAST_N:g} and {_MOST_N:g}; got {total:g}. Divide the weights "
            "by their mean."
        )
    mean = weights[weights > 0].mean()
    whole = (weights == np.floor(weights)).all()
    if mean < _SMALL_MEAN_WEIGHT:
        _warn_of_weights(mean, "fewer", "only relative, w / w.sum(),")
    elif mean > (_LARGE_MEAN_COUNT if whole else _LARGE_MEAN_WEIGHT):
        _warn_of_weights(mean, "more", "how many others a row stands for")
    return weights


def _warn_of_weights(mean: float, which: str, kind: str) -> None:
    warn(
        "the sum of `sample_weight` is N, the number of rows that the prior is weighed "
        f"against, and their mean is {mean:.1g}: they count as far {which} rows than "
        f"there are. Weights that are {kind} are to have the mean 1: w / w.mean().",
    )


def refuse_columns_that_are_not_numbers(X):
    """A message that names the columns, where a frame says what its columns are."""
    schema = getattr(X, "schema", None)  # polars: name -> dtype
    if schema is not None and hasattr(schema, "items"):
        columns = [
            name
            for name, dtype in schema.items()
            if not (dtype.is_numeric() or str(dtype) == "Boolean")
        ]
    elif hasattr(X, "dtypes") and hasattr(X, "columns"):  # pandas
        columns = [
            name
            for name, dtype in zip(X.columns, X.dtypes, strict=True)
            if not _is_numeric(X[name], dtype)
        ]
    else:
        return
    if columns:
        _refuse_columns(columns)


def _refuse_text(X):
    """The same message for arrays of objects or text, and for times."""
    if sparse.issparse(X) or hasattr(X, "columns"):
        return
    try:
        values = np.asarray(X)
    except ValueError:
        return  # rows of several lengths, of which check_array tells
    if values.ndim != 2 or values.dtype.kind not in "OUSmM":
        return
    columns = [j for j in range(values.shape[1]) if _is_text_or_time(values[:, j])]
    if columns:
        _refuse_columns(columns)


def _is_text_or_time(column) -> bool:
    if column.dtype.kind in "mM":
        return True
    try:
        column.astype(np.float64)
    except ValueError:
        return True
    except TypeError:
        return False  # another object, of which check_array tells
    return False


def _refuse_columns(columns):
    raise ValueError(
        "every column of X must hold numbers; got columns of other kinds: "
        f"{', '.join(map(repr, columns))}. Encode them first, for instance with "
        "sklearn.compose.ColumnTransformer or skrub.TableVectorizer in a pipeline."
    )


def _is_numeric(column, dtype):
    """Whether a pandas column holds numbers; object columns are looked into."""
    if dtype.kind != "O":
        return dtype.kind in "biuf"
    return all(v is None or isinstance(v, numbers.Number) for v in column)


def _flat_rows(network: NetworkDescription | None, X):
    """X of a network's own shape as (n_samples, n_features); any other as it is.

    Raises
    ------
    TypeError
        A network that is none.
    ValueError
        More than two dimensions, of other sizes than the network's.
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
        own = " or ".join(map(str, ["(n_features,)", *shapes]))
        raise ValueError(
            f"each row of `X` must be of shape {own} for "
            f"{type(network).__name__}; got "
            f"{shape[1:]}, of X with shape {shape}."
        )
    return X.reshape(shape[0], -1)
