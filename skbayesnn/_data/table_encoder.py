"""Encode a table with categories, dates and missing values as numeric columns."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from skbayesnn._data._advice import listed
from skbayesnn._data.column_encoding import (
    BY_LEVEL,
    Column,
    EncodedRows,
    UnknownValues,
    encode_column,
    fit_column,
    is_identifier,
    level_index,
    stored_name,
    with_statistics,
    without_levels,
)
from skbayesnn._data.columns import TableReader, is_frame
from skbayesnn._data.groups import check_groups
from skbayesnn._data.level_counts import (
    LevelCounts,
    candidates,
    feature,
    fit_counts,
    keys_of,
)
from skbayesnn._data.level_statistics import (
    is_continuous,
    level_statistics,
    targets_of,
)
from skbayesnn._data.text_parts import TextComponents, fit_parts
from skbayesnn._runtime import warn_of_rows, warn_once
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    TransformerMixin,
    check_sample_weight,
)
from skbayesnn._stored import ColumnChoice, NumberOfColumns
from skbayesnn._validation import check_option

# What predictions do with unknown values, for the warning.
AVERAGED = "Predictions average over values of the training rows."
TYPICAL = "Typical values take their place."
# Subjects of the warnings of columns without any level of `fit`, of new missing values
# and of later dates. Folds silence them: all levels of held-out groups can be new, and
# a fold can have fewer missing values, or end earlier.
UNSEEN_LEVELS, NEW_MISSING = "unseen levels", "new missing values"
LATER_DATES = "later dates"
EXPECTED_IN_FOLDS = UNSEEN_LEVELS, NEW_MISSING, LATER_DATES
ROWS = "log(1 + n) of the other training rows with the same levels"


class ColumnSummary(NamedTuple):
    """What one column of a table became.

    Parameters
    ----------
    column : name of the column, or its position in an array
    kind : str
        "number", "boolean", "ordered", "category", "date" or "duration"; "count" for
        the number of rows with the same level, or with the same levels of a tuple of
        columns.
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
    number, boolean,   the value; with at least five missing values in ``fit``, the
    duration           weighted median in their place, and an indicator. Durations are
                       in seconds
    ordered category   the position among the levels, as a number
    category, text     an indicator for each level, up to 12 levels. Levels with fewer
                       than five rows share the level "other". With more levels, the
                       mean of y of the level minus the mean of all rows, shrunk to zero
                       [1]_; for classes, the same with the shares of the classes. If
                       levels with similar text (job titles, ZIP codes) have similar
                       means, the mean is shrunk to a prediction from the parts of the
                       text: n-grams of one to four characters, in a Gaussian
                       process with a linear kernel [2]_. A row is encoded by statistics
                       of the other four fifths of the rows. A further feature is
                       log(1 + n), with the number n of other rows with the level; also
                       for pairs of such columns, and for all of them [3]_. Without y,
                       the first 12 levels with five rows have an indicator. Missing is
                       a level
    date, text in      elapsed days; sine and cosine of the time of the day, week and
    ISO format         year, if the rows span at least half of these periods
    constant, missing  none, with a warning
    or identifier
    without such text
    =================  =================================================================

    References
    ----------
    .. [1] Micci-Barreca (2001), "A preprocessing scheme for high-cardinality
       categorical attributes in classification and prediction problems", SIGKDD
       Explorations 3(1); :class:`sklearn.preprocessing.TargetEncoder`.
    .. [2] Rasmussen & Williams (2006), "Gaussian processes for machine learning",
       section 2.7; for n-grams of categories, Cerda & Varoquaux (2022), "Encoding
       high-cardinality string categorical variables", IEEE TKDE 34(3).
    .. [3] Prokhorenkova et al. (2018), "CatBoost: unbiased boosting with categorical
       features", NeurIPS 31, for counts and combinations of categories.

    Examples
    --------
    >>> from skbayesnn.preprocessing import TableEncoder
    >>> X = [["red", 1.0], ["blue", None], ["red", 3.0]] * 5
    >>> encoder = TableEncoder().fit(X, range(15))
    >>> encoder.get_feature_names_out().tolist()
    ['x0=blue', 'x1', 'x1=missing']
    """

    categorical_features: ColumnChoice
    target_type: Literal["auto", "continuous", "classes"]
    n_features_in_: NumberOfColumns
    _columns: Annotated[list[Column], "columns"]
    _counts: list[LevelCounts]

    def __init__(self, categorical_features="from_dtype", target_type="auto") -> None:
        self.categorical_features = categorical_features
        self.target_type = target_type

    def _check_stored(self) -> None:
        """Raise if the columns do not have the names or levels that are read."""
        if not hasattr(self, "_columns"):
            return
        names = [column.name for column in self._columns]
        given = list(getattr(self, "feature_names_in_", names))
        if len(set(names)) < len(names) or names != given:
            raise ValueError(
                "columns must have distinct names, those of `feature_names_in_`; got "
                f"{names} and {given}."
            )
        for counts in self.level_counts:
            by_level = [j for j, column in enumerate(self._columns) if column.uses_y]
            if not counts.columns or not set(counts.columns) <= set(by_level):
                raise ValueError(
                    "numbers of rows must be of columns with statistics of y, "
                    f"{by_level}; got {counts.columns}."
                )

    def fit(self, X, y=None, sample_weight=None, groups=None) -> Self:
        """Fit the encoding.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            Required for categories with many levels.
        sample_weight : array-like of shape (n_samples,), default=None
            A row of weight 2 counts as two rows; rows of weight zero are ignored.
        groups : array-like of shape (n_samples,), default=None
            Give it if rows depend on each other, such as all rows of a patient. The
            statistics of y that encode a row are then from other groups.

        Returns
        -------
        self : object
        """
        self.fit_transform(X, y, sample_weight, groups)
        return self

    def fit_transform(self, X, y=None, sample_weight=None, groups=None) -> np.ndarray:
        """Fit the encoding, and encode the same rows.

        Statistics of y are computed without the fold that contains the row, so the
        result differs from ``transform`` of the same rows.

        Parameters
        ----------
        X, y, sample_weight, groups
            As in ``fit``.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features_out)
            float32 if all columns are float32, else float64.

        Raises
        ------
        ValueError
            If a column contains free text, infinity, or values of no known kind; if y
            or ``sample_weight`` has another length or is not finite; if ``groups`` has
            another length, missing values or a single group.
        """
        check_option("target_type", self.target_type, ["auto", "continuous", "classes"])
        X = as_table(X)
        reader = TableReader(X)
        if not reader.names:
            raise ValueError("`X` must have at least one column; got none.")
        if sample_weight is None:
            weights = np.ones(reader.n_rows)
        else:
            weights = check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        groups = check_groups(groups, X)
        named = _named_categories(self.categorical_features, reader.names)
        columns = [
            fit_column(
                column,
                "category" if is_named else column.kind(),
                weights,
                y is not None,
            )
            for column, is_named in zip(reader, named, strict=True)
        ]
        blocks = [
            np.empty(0) if c.uses_y else encode_column(data, c).features
            for data, c in zip(reader, columns, strict=True)
        ]
        if any(column.uses_y for column in columns):
            y = self._checked_target(X, y)
            texts = {
                j: text
                for j, c in enumerate(columns)
                if c.uses_y and (text := _text_components(c)) is not None
            }
            columns, blocks = self._with_statistics(
                reader,
                texts,
                columns,
                blocks,
                self._targets(y, weights),
                weights,
                groups,
            )
            for j, column in enumerate(columns):
                if column.encoding == BY_LEVEL and is_identifier(
                    column, reader[j].categories(), weights
                ):
                    columns[j] = without_levels(column, "few levels repeat")
                    blocks[j] = np.empty((reader.n_rows, 0))
        # Only now, so that a failed fit leaves the encoder as it was.
        validate_data(self, X, reset=True, skip_check_array=True)
        self._columns = columns
        self._counts, of_rows = _fit_counts(reader, columns, weights, groups)
        _warn_of_dropped(columns)
        return _joined([*blocks, *of_rows], reader)

    def transform(self, X) -> np.ndarray:
        """Encode the columns of a table.

        A missing number without an indicator becomes the median, with a warning. A
        level that ``fit`` has not seen becomes "other", the mean of all rows, or the
        prediction from its text.

        Parameters
        ----------
        X : frame or array-like of shape (n_samples, n_features)

        Returns
        -------
        X : ndarray of shape (n_samples, n_features_out)
            float32 if all columns are float32, else float64.
        """
        return self.encode(self, X, TYPICAL).X

    def encode(self, estimator, X, consequence: str) -> EncodedRows:
        """Features of new rows, and their unknown values.

        estimator : an estimator with this encoder, whose name is in messages
        consequence : sentence of the warning of new missing values
        """
        check_is_fitted(self)
        X = as_table(X)
        validate_data(estimator, X, reset=False, skip_check_array=True)
        if not hasattr(self, "feature_names_in_"):
            refuse_other_names(X, [column.name for column in self._columns])
        reader = TableReader(X)
        blocks, unknown, position = [], [], 0
        missing: dict[Any, int] = {}
        later: dict[Any, int] = {}
        unseen: list[tuple[Column, str]] = []
        for data, column in zip(reader, self._columns, strict=True):
            encoded = encode_column(data, column)
            place = slice(position, position + len(column.suffixes))
            position = place.stop
            blocks.append(encoded.features)
            if encoded.n_later:
                later[column.name] = encoded.n_later
            if encoded.new_level is not None:
                unseen.append((column, encoded.new_level))
            if encoded.is_unknown.any():
                unknown.append(
                    UnknownValues(place, encoded.is_unknown, encoded.substitutes)
                )
                if not column.is_category:
                    missing[column.name] = int(encoded.is_unknown.sum())
        warn_of_new_missing(estimator, missing, consequence)
        _warn_of_unseen_levels(estimator, unseen, consequence)
        _warn_of_later_dates(estimator, later)
        keys = _Keys(reader, self._columns)
        blocks += [
            feature(counts(keys(counts.columns))) for counts in self.level_counts
        ]
        return EncodedRows(_joined(blocks, reader), tuple(unknown))

    @property
    def uses_y(self) -> bool:
        """Whether statistics of y encode a column."""
        return any(column.uses_y for column in self._columns)

    def with_statistics_of(
        self, X, y, weights: Sequence[np.ndarray], groups=None, used=None
    ) -> Iterator[tuple[Self, np.ndarray]]:
        """Copies with the statistics of y of other rows, and the features of all rows.

        Parameters
        ----------
        X : table of the rows
        y : checked values of the rows
        weights : arrays of shape (rows,)
            One for each copy; zero for rows that are not used.
        groups : result of ``check_groups``, or None
        used : weights of shape (rows,), or None
            Their rows have all classes; None: the largest weights of the copies. A
            copy without rows of a class has its share, too.
        """
        reader = TableReader(as_table(X))
        targets = self._targets(y, np.max(weights, axis=0) if used is None else used)
        texts = {
            j: TextComponents(c.parts, c.named)
            for j, c in enumerate(self._columns)
            if c.parts is not None
        }
        others = [
            np.empty(0) if c.uses_y else encode_column(data, c).features
            for data, c in zip(reader, self._columns, strict=True)
        ]
        keys = _Keys(reader, self._columns)
        for of_copy in weights:
            encoder = copy(self)
            encoder._columns, blocks = self._with_statistics(
                reader, texts, self._columns, others, targets, of_copy, groups
            )
            encoder._counts = []
            for columns in (counts.columns for counts in self.level_counts):
                counts, of_rows = fit_counts(columns, keys(columns), of_copy, groups)
                encoder._counts.append(counts)
                blocks.append(feature(of_rows))
            yield encoder, _joined(blocks, reader)

    def _with_statistics(
        self, reader: TableReader, texts, columns, blocks, targets, weights, groups
    ):
        """Columns and features with the statistics of y of some rows.

        texts : dict, components of the text of the levels of columns, by position
        targets : result of ``_targets``
        weights : (rows,), zero for rows that are not used
        groups : (rows,), or None
        """
        columns, blocks = list(columns), list(blocks)
        for j, column in enumerate(columns):
            if not column.uses_y:
                continue
            # Sums of floats depend on the order of the levels.
            # A later training may lack levels of the first.
            data = reader[j].categories().ordered(column.named)
            text = texts.get(j)
            # A missing value has no text.
            components = None if text is None else text(["", *data.levels])
            statistics, blocks[j] = level_statistics(
                data.codes + 1,
                len(data.levels) + 1,
                targets,
                weights,
                groups,
                components,
                needs_text=column.parts is not None,
            )
            columns[j] = with_statistics(column, data, statistics, text)
        return columns, blocks

    def _targets(self, y, weights) -> list:
        """Values whose means encode a level, as ``targets_of``."""
        continuous = self.target_type == "continuous" or (
            self.target_type == "auto" and is_continuous(y)
        )
        return targets_of(y, weights, continuous)

    def _checked_target(self, X, y) -> np.ndarray:
        check_consistent_length(X, y)
        dtype = np.float64 if self.target_type == "continuous" else None
        return check_array(y, ensure_2d=False, dtype=dtype, input_name="y")

    @property
    def level_counts(self) -> list[LevelCounts]:
        """Numbers of rows of levels and of their combinations."""
        return self._counts

    @property
    def layout(self) -> list:
        """Kinds and features of the columns, and the columns whose rows are counted."""
        columns = [(column.kind, column.features) for column in self._columns]
        return [*columns, *(counts.columns for counts in self.level_counts)]

    @property
    def n_features_out(self) -> int:
        """Number of numeric columns."""
        n_counts = len(self.level_counts)
        return sum(len(column.suffixes) for column in self._columns) + n_counts

    @property
    def columns_(self) -> list[ColumnSummary]:
        """What each column became; then the numbers of rows of their levels."""
        return [
            ColumnSummary(c.name, c.kind, c.encoding, c.features, c.n_missing)
            for c in self._columns
        ] + [
            ColumnSummary(
                names[0] if len(names) == 1 else names, "count", ROWS, (name,), 0
            )
            for names, name in self._names_of_counts()
        ]

    @property
    def are_numbers(self) -> list[bool]:
        """Whether each feature is a column of numbers, as it is in the table."""
        of_columns = [c.kind == "number" for c in self._columns for _ in c.suffixes]
        return of_columns + [False] * len(self.level_counts)

    def _names_of_counts(self) -> Iterator[tuple[tuple, str]]:
        """Names of the columns of each count, and of its feature."""
        for counts in self.level_counts:
            names = tuple(self._columns[j].name for j in counts.columns)
            yield names, f"rows({', '.join(map(_column_name, names))})"

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the numeric columns.

        Parameters
        ----------
        input_features : array-like of str, default=None
            None, or the names of the columns in ``fit``.

        Returns
        -------
        names : ndarray of str

        Raises
        ------
        ValueError
            If the names are others than in ``fit``.
        """
        check_is_fitted(self)
        fitted = getattr(self, "feature_names_in_", None)
        if not (fitted is None or input_features is None) and (
            list(fitted) != list(input_features)
        ):
            raise ValueError(
                f"`input_features` must be the names of the columns in `fit`, "
                f"{list(fitted)}; got {list(input_features)}."
            )
        names = []
        for column in self._columns:
            name = _column_name(column.name)
            names += [f"{name}{suffix}" for suffix in column.suffixes]
        names += [name for _, name in self._names_of_counts()]
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


def _column_name(name) -> str:
    """Name of a column; columns of an array are named as features."""
    return name if isinstance(name, str) else f"x{name}"


class _Keys:
    """Keys of the combinations of levels of the rows of a table."""

    def __init__(self, reader: TableReader, columns: Sequence[Column]) -> None:
        self._reader, self._columns = reader, columns
        self._index: dict[int, np.ndarray] = {}

    def __call__(self, positions: tuple[int, ...]) -> np.ndarray:
        """Keys of some columns, (rows,)."""
        for j in positions:
            if j not in self._index:
                data = self._reader[j].categories()
                self._index[j] = level_index(self._columns[j], data)
        n_levels = [len(self._columns[j].levels) for j in positions]
        return keys_of([self._index[j] for j in positions], n_levels)


def _fit_counts(
    reader: TableReader, columns: Sequence[Column], weights, groups
) -> tuple[list[LevelCounts], list[np.ndarray]]:
    """Numbers of rows of levels and combinations, and the features of the rows.

    Constant features are left out, and those that equal an earlier one.
    """
    counts: list[LevelCounts] = []
    features: list[np.ndarray] = []
    n_levels = {j: len(c.levels) for j, c in enumerate(columns) if c.uses_y}
    keys = _Keys(reader, columns)
    for positions in candidates(n_levels):
        fitted, of_rows = fit_counts(positions, keys(positions), weights, groups)
        of_used = of_rows[weights > 0]
        if np.ptp(of_used) and not any(np.array_equal(of_rows, f) for f in features):
            counts.append(fitted)
            features.append(of_rows)
    return counts, [feature(of_rows) for of_rows in features]


def _text_components(column: Column) -> TextComponents | None:
    """Components of the text of the levels; None if no two levels share a part."""
    parts = fit_parts(column.named)
    return None if parts is None else TextComponents(parts, column.named)


def _joined(blocks, reader: TableReader) -> np.ndarray:
    """Features of all columns, in the precision of the table."""
    features = np.concatenate([np.empty((reader.n_rows, 0)), *blocks], axis=1)
    return features.astype(reader.dtype, copy=False)


def needs_encoding(X, categorical_features) -> bool:
    """Whether X has columns that are not numbers, missing values, or named categories.

    Also whether columns have names that only the encoder stores. Sparse matrices and
    arrays that scikit-learn refuses are left to its checks.
    """
    if not is_default(categorical_features):
        return True
    if is_frame(X):
        reader = TableReader(X)
        if not reader.names:
            raise ValueError("`X` must have at least one column; got none.")
        if not (
            all(isinstance(name, str) for name in reader.names)
            or _are_positions(reader.names)
        ):
            return True
        return not all(column.is_complete_number() for column in reader)
    if not hasattr(X, "dtype"):
        try:
            X = np.asarray(X)
        except ValueError:  # rows of different lengths
            return False
        if X.dtype.kind == "U":
            return True
    kind = getattr(X.dtype, "kind", None)
    if kind is None or getattr(X, "ndim", 1) != 2:  # such as a tensor
        return False
    if kind == "f":
        return bool(np.isnan(np.asarray(X).min(initial=0.0)))
    if kind not in "OUMm":
        return False
    return not all(column.is_complete_number() for column in TableReader(X))


def refuse_other_names(X, names_in_fit: Sequence) -> None:
    """Raise if a frame has other columns than in ``fit``, or in another order.

    scikit-learn compares names that are text; these are other names, such as numbers
    and pairs.
    """
    if is_frame(X):
        names = getattr(X, "column_names", X.columns)
        # scikit-learn compares the numbers of columns.
        if len(names) == len(names_in_fit) and not any(
            isinstance(name, str) for name in names
        ):
            refuse_other_order(list(map(stored_name, names)), names_in_fit)


def refuse_other_order(names: list, names_in_fit: Sequence) -> None:
    """Raise if equally many columns have other names, or another order.

    Names of positions may be of an array, as in ``pandas.DataFrame(array)``, and are
    only compared with names of positions.
    """
    same = set(names) == set(names_in_fit)
    if not same and (_are_positions(names) or _are_positions(names_in_fit)):
        return
    for j, (name, name_in_fit) in enumerate(zip(names, names_in_fit, strict=True)):
        if name != name_in_fit:
            raise ValueError(
                "`X` must have the columns of `fit` in the same order; got "
                f"{name!r} instead of {name_in_fit!r} at position {j}."
            )


def _are_positions(names: Sequence) -> bool:
    """Whether names are 0, 1, 2 and so on."""
    return all(type(n) is int and n == j for j, n in enumerate(names))


def as_table(X):
    """A frame, or an array of two dimensions; a sparse matrix becomes dense."""
    if is_frame(X):
        return X
    if sparse.issparse(X):
        return X.toarray()
    X = np.asarray(X) if hasattr(X, "dtype") else np.array(X, dtype=object)
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead. Reshape your data: X "
            "must be of shape (n_samples, n_features)."
        )
    return X


def is_default(categorical_features) -> bool:
    """Whether no columns are named as categories."""
    if isinstance(categorical_features, str):
        return categorical_features == "from_dtype"
    return categorical_features is None


def _named_categories(categorical_features, names: Sequence) -> np.ndarray:
    """Mask of the columns that the user named as categories."""
    mask = np.zeros(len(names), dtype=bool)
    if is_default(categorical_features):
        return mask
    wanted = categorical_features
    if not isinstance(wanted, str | list | tuple):
        wanted = np.array(wanted, dtype=object).tolist()
    # Levels of names are tuples.
    is_one = not isinstance(wanted, list | tuple) or (
        isinstance(wanted, tuple) and wanted in names
    )
    wanted = [wanted] if is_one else list(wanted)
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


# ---- warnings


def _warn_of_dropped(columns: Sequence[Column]) -> None:
    dropped = {c.name: c.encoding for c in columns if not c.suffixes}
    if dropped:
        reasons = [
            f"{name!r} ({encoding.removeprefix('dropped: ')})"
            for name, encoding in dropped.items()
        ]
        warn_once(
            "SKB203",
            "dropped columns",
            f"{len(dropped)} columns of X were dropped, because nothing can be learned "
            f"from them: {listed(reasons)}.",
        )


def _with_rows(n_rows: Mapping[Any, int]) -> str:
    """Names of columns with numbers of rows, for a warning."""
    return listed([f"{name!r} ({n} row{'s' * (n > 1)})" for name, n in n_rows.items()])


def warn_of_new_missing(estimator, n_rows: Mapping[Any, int], consequence: str) -> None:
    """Warn of missing values in columns without an indicator of missing values.

    n_rows : by name of the column
    """
    if n_rows:
        warn_of_rows(
            estimator,
            "SKB304",
            NEW_MISSING,
            "values are missing in columns with fewer than five missing values in "
            f"`fit`: {_with_rows(n_rows)}. {consequence}",
        )


def _warn_of_unseen_levels(
    estimator, columns: Sequence[tuple[Column, str]], consequence: str
) -> None:
    """Warn of columns without any level of ``fit``, with an example of the levels."""
    if columns:
        parts = [
            f"{column.name!r} (such as {level[:40]!r}; in `fit`: "
            f"{listed([repr(v[:40]) for v in column.named], 3)})"
            for column, level in columns
        ]
        warn_of_rows(
            estimator,
            "SKB304",
            UNSEEN_LEVELS,
            "all values of a column are levels that `fit` has not seen: "
            f"{listed(parts)}. {consequence} Check that spelling and type equal those "
            "in the training rows.",
        )


def _warn_of_later_dates(estimator, n_rows: Mapping[Any, int]) -> None:
    if n_rows:
        warn_of_rows(
            estimator,
            "SKB305",
            LATER_DATES,
            f"dates are later than all training dates: {_with_rows(n_rows)}. "
            "Predictions extrapolate in time, and the predicted uncertainty may be too "
            "small.",
        )
