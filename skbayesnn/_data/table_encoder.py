"""Encode a table with categories, dates and missing values as numeric columns."""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted, validate_data

from skbayesnn._data.columns import MISSING, Categories, TableReader, is_frame
from skbayesnn._runtime import warn, warn_once
from skbayesnn._sklearn_compat import BaseEstimator, TransformerMixin

# Categories with at most this many levels are one-hot encoded; with more levels,
# statistics of y encode them.
MAX_ONE_HOT = 12
# One-hot levels with a smaller weight share one level with unseen ones.
MIN_LEVEL = 5.0
# Missing numbers have an indicator if at least this weight of rows is missing, and as
# much is present.
MIN_MISSING = 5.0
# Versions of a row with an unknown value: an unseen level, or a missing number in a
# column without missing values in ``fit``. Draws of the posterior use them in turn.
N_VERSIONS = 16
# Folds of the statistics of y: a row is encoded without its own y.
N_FOLDS = 5
# Parts of a date are used if they have at least two values and, for cycles, if the
# training rows span at least this many of their periods.
MIN_CYCLES = 1.5
# A category is dropped if levels of at least MIN_LEVEL rows have a smaller share of the
# rows: an identifier.
MIN_REPEATED = 0.2
# More different integers are not taken for class labels.
MAX_CLASSES = 30
# Largest number of rows of the overall mean that shrink the mean of a level.
MAX_PSEUDO_ROWS = 1000.0
SECONDS = {"day": 86_400.0, "week": 7 * 86_400.0, "year": 365.2425 * 86_400.0}
OTHER = "other"
KINDS = "number", "boolean", "ordered", "category", "date", "duration"
BY_LEVEL = "mean of y by level"


class ColumnSummary(NamedTuple):
    """What one column of a table became.

    Parameters
    ----------
    column : name of the column, or its position in an array
    kind : str
        "number", "boolean", "ordered", "category", "date" or "duration".
    encoding : str
    features : tuple of str
        Names of the numeric columns; none if the column was dropped.
    n_missing : int
        Missing values in ``fit``.
    """

    column: Any
    kind: str
    encoding: str
    features: tuple[str, ...]
    n_missing: int


@dataclass(frozen=True)
class Column:
    """A fitted column.

    Parameters
    ----------
    name, kind, encoding, n_missing
        As in ``ColumnSummary``.
    suffixes : tuple of str
        A name for each feature, after the name of the column.
    fill : float
        Replaces missing numbers; missing elapsed seconds for dates.
    indicator : bool
        Whether a feature marks missing values. For categories: whether the last level
        is a missing value.
    levels : tuple of str
        Levels of a category that have their own encoding.
    codes : ndarray of shape (levels + 1, features)
        Encoding of each level, then of all other values. For numbers without missing
        values: quantiles, (N_VERSIONS, 1).
    counts : ndarray of shape (levels + 1,)
        Weight of the rows of each level, then of all others.
    time_zone : str, optional
    bounds : tuple of float
        Smallest and largest number, or date in seconds since 1970.
    """

    name: Any
    kind: str
    encoding: str
    n_missing: int
    suffixes: tuple[str, ...] = ()
    fill: float = 0.0
    indicator: bool = False
    levels: tuple[str, ...] = ()
    codes: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0))
    time_zone: str | None = None
    bounds: tuple[float, float] = (-np.inf, np.inf)

    @property
    def uses_y(self) -> bool:
        """Whether the encoding is a statistic of y."""
        return self.encoding == BY_LEVEL

    @property
    def versions(self) -> np.ndarray:
        """Features of an unknown value, (N_VERSIONS, features).

        An unseen level is like one of the levels of ``fit``, each with the same
        probability. A missing number has the distribution of the numbers of ``fit``.
        """
        if self.kind != "category":
            return self.codes
        n_levels = len(self.levels) - self.indicator
        rows = list(range(n_levels))
        if self.counts[-1] > 0:  # rare levels, encoded as "other"
            rows.append(len(self.levels))
        ordered = np.array(rows)[np.lexsort(self.codes[rows].T[::-1])]
        share = (np.arange(N_VERSIONS) + 0.5) / N_VERSIONS
        return self.codes[ordered[(share * len(ordered)).astype(int)]]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the numeric columns."""
        return tuple(f"{self.name}{suffix}" for suffix in self.suffixes)


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a table with categories, dates and missing values as numeric columns.

    Every estimator of this package applies it to a table that needs it; the fitted
    encoder is ``model.table_``. Use it yourself in a pipeline before other estimators.
    The cost is a small share of a fit.

    Parameters
    ----------
    categorical_features : "from_dtype", array-like of str, int or bool, or None, \
default="from_dtype"
        Columns that contain categories. Leave the default unless integers are codes of
        categories. ``"from_dtype"``: columns of categories and of text. Or names or
        indices of further columns, or a mask of all columns. None is the same as
        ``"from_dtype"``.
    target_type : {"auto", "continuous", "classes"}, default="auto"
        Type of y, for the statistics of categories with many levels. ``"auto"``: y is
        continuous if it contains fractions or more than 30 different numbers.

    Attributes
    ----------
    columns_ : list of ColumnSummary
        What each column became. ``pandas.DataFrame(encoder.columns_)`` shows it as a
        table.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Exists if the columns have names.

    Notes
    -----
    =================  =================================================================
    column             features
    =================  =================================================================
    number, boolean    the value; the weighted median if it is missing, and an indicator
                       of missing values if enough are missing
    ordered category   the position among the levels, as a number
    category, text     one indicator for each level, up to 12 levels; with more levels,
                       the mean of y of the level, shrunk to the mean of all rows and
                       computed without the row itself [1]_ (for classes, the share of
                       each class). Missing is a level. Levels with fewer than five
                       rows share the level "other", which unseen levels get, too.
    date               elapsed days; sine and cosine of the times of day, week and year,
                       if the rows span them
    duration           seconds, as a number
    constant, or all   none, with a warning
    missing
    =================  =================================================================

    References
    ----------
    .. [1] Micci-Barreca (2001), "A preprocessing scheme for high-cardinality
       categorical attributes in classification and prediction problems", SIGKDD
       Explorations 3(1); :class:`sklearn.preprocessing.TargetEncoder`.

    Examples
    --------
    >>> from skbayesnn.preprocessing import TableEncoder
    >>> X = [["red", 1.0], ["blue", None], ["red", 3.0]] * 5
    >>> encoder = TableEncoder().fit(X, range(15))
    >>> encoder.get_feature_names_out().tolist()
    ['x0=blue', 'x1', 'x1=missing']
    """

    def __init__(self, categorical_features="from_dtype", target_type="auto") -> None:
        self.categorical_features = categorical_features
        self.target_type = target_type

    def fit(self, X, y=None, sample_weight=None) -> Self:
        """Fit the encoding.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            Required for categories with many levels.
        sample_weight : array-like of shape (n_samples,), default=None
            A row of weight 2 counts as two rows; rows of weight zero are ignored.

        Returns
        -------
        self : object
        """
        self.fit_transform(X, y, sample_weight)
        return self

    def fit_transform(  # type: ignore[override]
        self, X, y=None, sample_weight=None
    ) -> np.ndarray:
        """Fit the encoding, and encode the same rows.

        Statistics of y are computed without the fold that contains the row, so the
        result differs from ``transform`` of the same rows.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features_out), float64
        """
        X = _as_table(X)
        reader = TableReader(X)
        validate_data(self, X, reset=True, skip_check_array=True)
        n_rows = reader.n_rows
        weights = np.ones(n_rows) if sample_weight is None else sample_weight
        weights = np.asarray(weights, dtype=np.float64)
        named = _named_categories(self.categorical_features, reader.names)
        columns, blocks, many = [], [], []
        for j in range(len(reader.names)):
            kind = "category" if named[j] else reader.kind(j)
            column, block, categories = _fitted(reader, j, kind, weights, y is not None)
            if categories is not None:
                many.append((j, categories))
            columns.append(column)
            blocks.append(block)
        if many:
            y = np.asarray(y)
            is_continuous = _is_continuous(y, self.target_type)
            statistics = _target_statistics(many, y, weights, is_continuous)
            for (j, data), (by_level, features) in zip(many, statistics, strict=True):
                blocks[j] = features
                columns[j] = _with_statistics(columns[j], data, by_level)
        self._columns = columns
        _warn_of_dropped(columns)
        return _joined(blocks, n_rows)

    def transform(self, X) -> np.ndarray:
        """Encode the columns of a table.

        Missing values of a column that had none in ``fit`` become its median, with a
        warning. Levels that ``fit`` has not seen become "other".

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        X : ndarray of shape (n_samples, n_features_out), float64
        """
        return self.transform_for(self, X)

    def transform_for(self, estimator, X) -> np.ndarray:
        """``transform``, with messages that name an estimator with this encoder."""
        blocks = self._blocks(estimator, X)
        return _joined([block.values for block in blocks], len(blocks[0].values))

    def _blocks(self, estimator, X) -> list["_Block"]:
        """Features of each column of new rows, with warnings."""
        check_is_fitted(self)
        X = _as_table(X)
        validate_data(estimator, X, reset=False, skip_check_array=True)
        reader = TableReader(X)
        blocks = [_encoded(reader, j, column) for j, column in enumerate(self._columns)]
        pairs = list(zip(self._columns, blocks, strict=True))
        warn_of_new_missing(
            [c.name for c, b in pairs if c.kind != "category" and b.unknown.any()]
        )
        _warn_of_later_dates([c.name for c, b in pairs if b.beyond])
        return blocks

    def transform_versions(self, estimator, X) -> tuple[np.ndarray, np.ndarray]:
        """Encode rows, and rows with unknown values in ``N_VERSIONS`` versions.

        estimator : its name is in messages
        returns : features, (sum of the numbers of versions, features), the versions of
            a row next to each other; and the number of versions of each row, 1 or
            ``N_VERSIONS``
        """
        blocks = self._blocks(estimator, X)
        features = _joined([block.values for block in blocks], len(blocks[0].values))
        unknown = [block.unknown for block in blocks]
        n_versions = np.where(np.any(unknown, axis=0), N_VERSIONS, 1)
        features = np.repeat(features, n_versions, axis=0)
        first = np.cumsum(n_versions) - n_versions
        start = 0
        for j, (column, rows) in enumerate(zip(self._columns, unknown, strict=True)):
            part = slice(start, start + len(column.suffixes))
            start = part.stop
            if rows.any():
                # Another order in each column: unknown values are independent.
                order = np.random.RandomState(j).permutation(N_VERSIONS)
                places = first[rows][:, None] + np.arange(N_VERSIONS)
                features[places, part] = column.versions[order]
        return features, n_versions

    @property
    def uses_y(self) -> bool:
        """Whether statistics of y encode a column."""
        return any(column.uses_y for column in self._columns)

    def with_statistics_of(self, X, y, sample_weight) -> tuple[Self, np.ndarray]:
        """Copy with the statistics of y of other rows, and the features of all rows.

        sample_weight : ndarray of shape (rows,), zero for rows that are not used
        """
        reader = TableReader(_as_table(X))
        blocks = [_encoded(reader, j, c).values for j, c in enumerate(self._columns)]
        many = [
            (j, reader.categories(j)) for j, c in enumerate(self._columns) if c.uses_y
        ]
        columns = list(self._columns)
        is_continuous = _is_continuous(y, self.target_type)
        statistics = _target_statistics(many, y, sample_weight, is_continuous)
        for (j, data), (by_level, features) in zip(many, statistics, strict=True):
            columns[j] = _with_statistics(columns[j], data, by_level)
            blocks[j] = features
        encoder = copy(self)
        encoder._columns = columns
        return encoder, _joined(blocks, reader.n_rows)

    @property
    def columns_(self) -> list[ColumnSummary]:
        """What each column became."""
        return [
            ColumnSummary(c.name, c.kind, c.encoding, c.features, c.n_missing)
            for c in self._columns
        ]

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the numeric columns.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        names : ndarray of str
        """
        check_is_fitted(self)
        names = []
        for column in self._columns:
            name = column.name if isinstance(column.name, str) else f"x{column.name}"
            names += [f"{name}{suffix}" for suffix in column.suffixes]
        return np.array(names, dtype=object)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_columns")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = False
        return tags


def needs_encoding(X, categorical_features) -> bool:
    """Whether X has columns that are not numbers, missing values, or named categories.

    Sparse matrices and arrays that scikit-learn refuses are left to its checks.
    """
    if categorical_features not in (None, "from_dtype"):
        return True
    if is_frame(X):
        reader = TableReader(X)
        return any(not reader.is_complete_number(j) for j in range(len(reader.names)))
    if not hasattr(X, "dtype"):
        try:
            X = np.asarray(X)
        except ValueError:  # rows of different lengths
            return False
        if X.dtype.kind == "U":
            return True
    kind = getattr(X.dtype, "kind", None)
    if X.ndim != 2 or kind is None:  # such as a tensor
        return False
    if kind == "f":
        return bool(np.isnan(np.asarray(X).min(initial=0.0)))
    return kind in "OUMm" and not _are_numbers(X)


def _are_numbers(X: np.ndarray) -> bool:
    """Whether all objects are numbers that are not missing; text never is."""
    if X.dtype.kind != "O" or any(isinstance(value, str) for value in X.flat):
        return False
    try:
        return not np.isnan(X.astype(np.float64)).any()
    except (TypeError, ValueError):
        return False


def _as_table(X):
    """A frame, or an array of two dimensions."""
    if is_frame(X):
        return X
    X = np.asarray(X) if hasattr(X, "dtype") else np.array(X, dtype=object)
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead. Reshape your data: X "
            "must be of shape (n_samples, n_features)."
        )
    return X


def _named_categories(categorical_features, names: Sequence) -> np.ndarray:
    """Mask of the columns that the user named as categories."""
    mask = np.zeros(len(names), dtype=bool)
    if categorical_features is None or isinstance(categorical_features, str):
        if categorical_features in (None, "from_dtype"):
            return mask
        categorical_features = [categorical_features]
    wanted = np.atleast_1d(np.array(categorical_features, dtype=object)).tolist()
    if wanted and all(isinstance(value, bool | np.bool_) for value in wanted):
        if len(wanted) != len(names):
            raise ValueError(
                "`categorical_features` as a mask must have one value per column, "
                f"{len(names)}; got {len(wanted)}."
            )
        return np.array(wanted, dtype=bool)
    for value in wanted:
        if value in names:
            mask[list(names).index(value)] = True
        elif isinstance(value, int | np.integer) and -len(names) <= value < len(names):
            mask[value] = True
        else:
            raise ValueError(
                "`categorical_features` must be names or indices of columns of X; got "
                f"{value!r}. The columns are {', '.join(map(repr, names))}."
            )
    return mask


class _Block(NamedTuple):
    """Features of one column.

    Parameters
    ----------
    values : ndarray of shape (rows, features)
    unknown : ndarray of shape (rows,), bool
        Whether the row has an unseen level, or a missing value that is new.
    beyond : bool
        Whether a date is later than those of ``fit``.
    """

    values: np.ndarray
    unknown: np.ndarray
    beyond: bool = False


def _joined(blocks, n_rows: int) -> np.ndarray:
    return np.concatenate([np.empty((n_rows, 0)), *blocks], axis=1)


# ---- numbers


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """Median of the values with positive weight; weight 2 is a repeated value."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    half = cumulative[-1] / 2
    # If half of the weight is reached exactly, the middle of two values.
    first, last = (np.searchsorted(cumulative, half, side=s) for s in ("left", "right"))
    last = min(last, len(values) - 1)
    pair = values[order[[first, last]]]
    return float(pair[0] / 2 + pair[1] / 2)


def _quantiles(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values at evenly spaced shares of the weight, (N_VERSIONS, 1)."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    levels = (np.arange(N_VERSIONS) + 0.5) / N_VERSIONS * cumulative[-1]
    return values[order[np.searchsorted(cumulative, levels)]][:, None]


def _refuse_infinite(values: np.ndarray, name) -> None:
    if np.isinf(values).any():
        raise ValueError(
            "X must be finite or missing; Input X contains infinity or a value too "
            f"large in column {name!r}. Replace it by NaN if the value is unknown."
        )


def _number_features(values: np.ndarray, column: Column) -> np.ndarray:
    """Value and indicator of missing values, as the column has them."""
    missing = np.isnan(values)
    features = {"": np.where(missing, column.fill, values), "=missing": missing}
    return np.stack([features[s] for s in column.suffixes], 1).astype(np.float64)


def _fit_number(name, kind: str, values: np.ndarray, weights: np.ndarray):
    _refuse_infinite(values, name)
    used, missing = weights > 0, np.isnan(values)
    column = Column(name, kind, "dropped: all missing", int(missing[used].sum()))
    present = used & ~missing
    if not present.any():
        return column, np.empty((len(values), 0))
    missing_weight = weights[used & missing].sum()
    enough = min(missing_weight, weights[present].sum()) >= MIN_MISSING
    indicator = bool(enough)
    low, high = float(values[present].min()), float(values[present].max())
    if low == high and not indicator:
        column = replace(column, encoding="dropped: constant")
        return column, np.empty((len(values), 0))
    text = {"ordered": "position of the level", "duration": "seconds"}.get(
        kind, "number"
    )
    column = replace(
        column,
        encoding=text + ", indicator of missing values" * indicator,
        suffixes=("",) * (low < high) + ("=missing",) * indicator,
        fill=_weighted_median(values[present], weights[present]),
        indicator=indicator,
        bounds=(low, high),
    )
    if not column.n_missing:
        column = replace(column, codes=_quantiles(values[present], weights[present]))
    return column, _number_features(values, column)


# ---- categories


def _fit_category(name, data: Categories, weights: np.ndarray, has_y: bool):
    """Fitted column, features, and the categories if they need statistics of y."""
    used = weights > 0
    weight_of = np.bincount(
        data.codes[used] + 1, weights[used], minlength=len(data.levels) + 1
    )
    missing, by_level = weight_of[0], weight_of[1:]
    seen = sorted(np.flatnonzero(by_level > 0), key=lambda i: data.levels[i])
    column = Column(
        name, "category", "dropped: constant", int((data.codes[used] < 0).sum())
    )
    nothing = np.empty((len(weights), 0))
    if len(seen) + (missing > 0) < 2:
        return column, nothing, None
    kept = [i for i in seen if by_level[i] >= MIN_LEVEL]
    if len(seen) > MAX_ONE_HOT and has_y:
        repeated = by_level[kept].sum() + missing * (missing >= MIN_LEVEL)
        if repeated < MIN_REPEATED * weight_of.sum():
            column = replace(column, encoding="dropped: few levels repeat")
            return column, nothing, None
        return _with_levels(column, data, seen, weight_of), nothing, data
    if not kept:  # Few rows: keep all levels.
        kept = seen[:MAX_ONE_HOT]
    column = _one_hot(_with_levels(column, data, kept, weight_of))
    return column, column.codes[level_index(column, data)], None


def _with_levels(column: Column, data: Categories, kept, weight_of) -> Column:
    """The column with the kept levels, and "missing" if values are missing.

    weight_of : (levels + 1,), of missing values, then of each level
    """
    missing, by_level = weight_of[0], weight_of[1:]
    levels, counts = [data.levels[i] for i in kept], by_level[kept].tolist()
    if missing:
        levels, counts = [*levels, MISSING], [*counts, missing]
    other = np.delete(by_level, kept).sum()  # exactly zero if all are kept
    return replace(
        column,
        levels=tuple(levels),
        counts=np.array([*counts, other]),
        indicator=bool(missing),
    )


def _one_hot(column: Column) -> Column:
    """One feature per level; one for two levels. Values of no level have the mean."""
    n_levels = len(column.levels)
    has_other = column.counts[-1] > 0
    codes = np.eye(n_levels + 1)
    if not has_other:
        codes = codes[:, :-1]
        codes[-1] = column.counts[:-1] / column.counts.sum()
    names = [*column.levels, OTHER][: codes.shape[1]]
    if len(names) == 2:
        codes, names = codes[:, :1], names[:1]
    return replace(
        column,
        encoding="one-hot",
        suffixes=tuple(f"={name}" for name in names),
        codes=codes,
    )


def level_index(column: Column, data: Categories) -> np.ndarray:
    """Index of each row's encoding in ``column.codes``."""
    n_levels = len(column.levels)
    index = data.recoded(column.levels[: n_levels - column.indicator])
    missing = n_levels - 1 if column.indicator else n_levels
    return np.where(index == -1, missing, np.where(index == -2, n_levels, index))


def _is_continuous(y: np.ndarray, target_type: str) -> bool:
    """Whether y contains numbers instead of class labels."""
    if target_type != "auto":
        return target_type == "continuous"
    if y.dtype.kind not in "iuf":
        return False
    return y.ndim > 1 or len(np.unique(y)) > MAX_CLASSES or (y % 1 != 0).any()


def _target_statistics(many, y: np.ndarray, weights: np.ndarray, is_continuous: bool):
    """Encodings of the levels, and of the rows without their own fold, per column.

    many : pairs of a column's position and its categories
    returns : pairs of (1 + levels + 1, features), for missing values, each level and
        unseen levels; and (rows, features)
    """
    targets = list(y.T) if y.ndim > 1 else [y]
    results = []
    for _, data in many:
        levels, rows = [], []
        for target in targets:
            by_level, by_row = _statistics_of(data, target, weights, is_continuous)
            levels.append(by_level)
            rows.append(by_row)
        results.append((np.concatenate(levels, axis=1), np.concatenate(rows, axis=1)))
    return results


def _statistics_of(data: Categories, y, weights: np.ndarray, is_continuous: bool):
    """Encodings of the levels and of the rows for one target.

    The rows of a fold are encoded by statistics of the other folds. A class is encoded
    as the share of its rows. Two classes need one share only.
    """
    values = np.asarray(y, dtype=np.float64)[:, None] if is_continuous else _shares(y)
    index, n_levels = data.codes + 1, len(data.levels) + 1
    by_level = _level_means(index, values, weights, n_levels)
    by_row = by_level[index]
    used = np.flatnonzero(weights > 0)
    folds = KFold(min(N_FOLDS, len(used)), shuffle=True, random_state=0).split(used)
    for rest, fold in folds:
        others, rows = used[rest], used[fold]
        of_others = (index[others], values[others], weights[others])
        by_row[rows] = _level_means(*of_others, n_levels)[index[rows]]
    return by_level, by_row


def _level_means(index, values, weights, n_levels: int) -> np.ndarray:
    """Shrunk means of the levels, and the mean of all rows, (levels + 1, columns).

    index : (rows,), the level of each row
    """
    counts = np.bincount(index, weights, n_levels)[:, None]
    sums = [np.bincount(index, weights * v, n_levels) for v in values.T]
    mean = np.average(values, axis=0, weights=weights)
    shrinkage = _pseudo_rows(index, values, weights)
    means = (np.stack(sums, 1) + shrinkage * mean) / (counts + shrinkage)
    return np.concatenate([means, mean[None]])


def _shares(y: np.ndarray) -> np.ndarray:
    """Indicators of the classes, (rows, classes); of the second of two classes."""
    classes = np.unique(y)
    if len(classes) == 2:
        classes = classes[1:]
    return (y[:, None] == classes).astype(np.float64)


def _pseudo_rows(index: np.ndarray, values: np.ndarray, weights: np.ndarray) -> float:
    """Number of rows of the overall mean that shrink the mean of a level.

    It is the variance of y within levels, divided by the variance of the true means of
    the levels: the analysis of variance with random effects [Searle, Casella &
    McCulloch 1992, section 3.6].

    index : (rows,), the level of each row
    values : (rows, columns); the variances are summed over columns
    """
    counts = np.bincount(index, weights)
    n_levels, n_rows = np.count_nonzero(counts), counts.sum()
    if n_levels < 2 or n_rows <= n_levels:
        return MAX_PSEUDO_ROWS
    centred = values - np.average(values, axis=0, weights=weights)
    sums = np.stack([np.bincount(index, weights * v) for v in centred.T], 1)
    total = (weights[:, None] * np.square(centred)).sum()
    between = (np.square(sums[counts > 0]) / counts[counts > 0, None]).sum()
    within = (total - between) / (n_rows - n_levels)
    effective = (n_rows - np.square(counts).sum() / n_rows) / (n_levels - 1)
    of_means = (between / (n_levels - 1) - within) / effective
    if of_means * MAX_PSEUDO_ROWS <= within:
        return MAX_PSEUDO_ROWS
    return float(max(within, 0.0) / of_means)


def _with_statistics(column: Column, data: Categories, by_level: np.ndarray) -> Column:
    """The column with the statistics of y of its levels.

    by_level : (1 + levels of the data + 1, features), for missing values, each level,
        and unseen levels
    """
    position = {level: i + 1 for i, level in enumerate(data.levels)}
    named = column.levels[: len(column.levels) - column.indicator]
    rows = [*(position[level] for level in named), *([0] if column.indicator else [])]
    n_features = by_level.shape[1]
    suffixes = ("",) if n_features == 1 else tuple(f"={i}" for i in range(n_features))
    return replace(
        column,
        encoding=BY_LEVEL,
        suffixes=suffixes,
        codes=by_level[[*rows, -1]],
    )


# ---- dates

_DAY = 86_400.0


def _date_features(seconds: np.ndarray, column: Column) -> np.ndarray:
    """Features of local times in seconds since 1970, NaN for missing ones."""
    missing = np.isnan(seconds)
    filled = np.where(missing, column.fill, seconds)
    features = []
    for suffix in column.suffixes:
        if suffix == "=missing":
            features.append(missing)
        elif suffix == ".days":
            features.append((filled - column.bounds[0]) / _DAY)
        else:
            wave = np.sin if suffix.startswith(".sin_") else np.cos
            features.append(wave(2 * np.pi * filled / SECONDS[suffix[5:]]))
    return np.stack(features, 1).astype(np.float64)


def _seconds(dates: np.ndarray) -> np.ndarray:
    """Seconds since 1970 of datetime64[us]; NaN for NaT."""
    seconds = dates.astype(np.int64) / 1e6
    return np.where(np.isnat(dates), np.nan, seconds)


def _fit_date(name, seconds: np.ndarray, weights: np.ndarray, time_zone: str | None):
    column, _ = _fit_number(name, "date", seconds, weights)
    if not column.suffixes:
        return column, np.empty((len(seconds), 0))
    used = seconds[(weights > 0) & ~np.isnan(seconds)]
    periods = [
        name
        for name, length in SECONDS.items()
        if np.ptp(used) >= MIN_CYCLES * length
        and len(np.unique(np.mod(used, length) // (length / 400))) > 1
    ]
    varies = column.bounds[0] < column.bounds[1]
    texts = ["elapsed days"] * varies
    texts += [f"cycle of the {name}" for name in periods]
    texts += ["indicator of missing values"] * column.indicator
    waves = [f".{wave}_{name}" for name in periods for wave in ("sin", "cos")]
    days = [".days"] * varies
    column = replace(
        column,
        encoding=", ".join(texts),
        suffixes=(*days, *waves, *["=missing"] * column.indicator),
        time_zone=time_zone,
    )
    if len(column.codes):
        column = replace(column, codes=_date_features(column.codes[:, 0], column))
    return column, _date_features(seconds, column)


# ---- columns of all kinds


def _fitted(reader: TableReader, j: int, kind: str, weights, has_y: bool):
    """Fitted column, features, and the categories if they need statistics of y."""
    name = reader.names[j]
    if kind == "category":
        return _fit_category(name, reader.categories(j), weights, has_y)
    if kind == "date":
        zone = reader.time_zone(j)
        return *_fit_date(name, _seconds(reader.dates(j, zone)), weights, zone), None
    if kind == "ordered":
        levels = reader.ordered_levels(j)
        values = _positions(reader.categories(j), levels)
        column, features = _fit_number(name, kind, values, weights)
        return replace(column, levels=tuple(levels)), features, None
    return *_fit_number(name, kind, reader.numbers(j), weights), None


def _positions(data: Categories, levels: Sequence[str]) -> np.ndarray:
    """Position of each value among ordered levels; NaN if it is not among them."""
    index = data.recoded(levels).astype(np.float64)
    return np.where(index < 0, np.nan, index)


def _encoded(reader: TableReader, j: int, column: Column) -> "_Block":
    """Features of a column of new rows."""
    none = np.zeros(reader.n_rows, dtype=bool)
    if not column.suffixes:
        return _Block(np.empty((reader.n_rows, 0)), none)
    if column.kind == "category":
        index = level_index(column, reader.categories(j))
        return _Block(column.codes[index], index == len(column.levels))
    if column.kind == "date":
        values = _seconds(reader.dates(j, column.time_zone))
    else:
        if column.kind == "ordered":
            values = _positions(reader.categories(j), column.levels)
        else:
            values = reader.numbers(j)
        _refuse_infinite(values, column.name)
    features = features_of_values(values, column)
    unknown = none if column.n_missing else np.isnan(values)
    beyond = column.kind == "date" and bool((values > column.bounds[1]).any())
    return _Block(features, unknown, beyond)


def features_of_values(values: np.ndarray, column: Column) -> np.ndarray:
    """Features of numbers, positions of levels, or seconds since 1970; or NaN."""
    if column.kind == "date":
        return _date_features(values, column)
    return _number_features(values, column)


# ---- warnings


def _listed(names: Sequence) -> str:
    return ", ".join(map(repr, names[:10])) + ", ..." * (len(names) > 10)


def _warn_of_dropped(columns: Sequence[Column]) -> None:
    dropped = {c.name: c.encoding for c in columns if not c.suffixes}
    if dropped:
        reasons = "; ".join(
            f"{name!r} ({encoding.removeprefix('dropped: ')})"
            for name, encoding in list(dropped.items())[:10]
        )
        warn_once(
            "dropped columns",
            f"{len(dropped)} columns of X were dropped, because nothing can be learned "
            f"from them: {reasons}{', ...' * (len(dropped) > 10)}.",
        )


def warn_of_new_missing(
    names: Sequence,
    consequence: str = "Predictions average over values of the training rows.",
) -> None:
    if names:
        warn(
            f"values are missing in columns that had none in `fit`: {_listed(names)}. "
            f"{consequence}",
        )


def _warn_of_later_dates(names: Sequence) -> None:
    if names:
        warn(
            f"dates are later than all training dates: {_listed(names)}. Predictions "
            "extrapolate in time, and the predicted uncertainty may be too small.",
        )
