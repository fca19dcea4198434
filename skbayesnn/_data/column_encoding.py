"""The numeric features of one column of a table: fitted, and of new rows."""

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri

from skbayesnn import _stored as stored
from skbayesnn._data.columns import DAY, KINDS, MISSING, Categories, TableColumn
from skbayesnn._data.level_statistics import LevelStatistics
from skbayesnn._data.text_parts import TextComponents, TextParts

# Categories with at most this many levels are one-hot encoded; with more levels,
# statistics of y encode them.
MAX_ONE_HOT = 12
# One-hot levels with a smaller weight share the level "other".
MIN_LEVEL = 5.0
# Missing numbers have an indicator if at least this weight of rows is missing, and as
# much is present.
MIN_MISSING = 5.0
# A category is dropped if levels of at least MIN_LEVEL rows have a smaller share of the
# rows, and their text does not predict y: an identifier.
MIN_REPEATED = 0.2
# A cycle of a date is used if the training rows span at least this many of its periods.
MIN_CYCLES = 0.5
# A cycle is also used only if the rows are in several of this many parts of its period.
CYCLE_PARTS = 400
# Values that take the place of an unknown one, evenly spaced in probability.
N_SUBSTITUTES = 16
OTHER = "other"
ALL_MISSING = "dropped: all missing"
BY_LEVEL = "mean of y by level"
BY_TEXT = "mean of y by level and parts of its text"


Empty = Annotated[stored.Floats, "0, 0"]
PerLevel = Empty | Annotated[stored.Floats, "levels + 1, features"]


def _nothing() -> np.ndarray:
    return np.zeros((0, 0))


@dataclass(frozen=True)
class Column:
    """A fitted column.

    Parameters
    ----------
    name : name in the frame, or position in an array
    kind : str
        One of ``KINDS``.
    encoding : str
        In words.
    n_missing : int
        Missing values in ``fit``.
    suffixes : tuple of str
        A name for each feature, after the name of the column.
    fill : float
        Replaces missing numbers.
    indicator : bool
        Whether a feature marks missing values. For categories: whether the last level
        is a missing value.
    levels : tuple of str
        Levels with their own encoding; all levels of an ordered category.
    rare : tuple of str
        Levels of ``fit`` that are encoded as "other".
    mostly_unique : bool
        Whether most levels of a category have one row, as names do.
    level_features : ndarray of shape (levels + 1, features)
        Features of each level of a category, then of all other values.
    substitutes : ndarray of shape (N_SUBSTITUTES, features)
        Features in place of an unknown value; for statistics of y, differences to the
        features of the level. Empty if no value can be unknown.
    spreads : ndarray of shape (levels + 1, features)
        For statistics of y: factor of the substitutes of each level; 0 if its rows are
        numerous enough.
    parts : TextParts, optional
        Parts of the text of levels, if they predict y.
    coefficients : ndarray of shape (parts, features)
        Their product with the parts of an unseen level is its features.
    text_ratio : ndarray of shape (features,)
        Variance between levels that the text explains, relative to the rest; empty
        without parts.
    time_zone : str, optional
    bounds : tuple of float
        Smallest and largest number, or date in seconds since 1970.
    """

    name: stored.ColumnName
    kind: Annotated[str, Literal[*KINDS]]
    encoding: str
    n_missing: stored.Count
    suffixes: Annotated[tuple[str, ...], "features"] = ()
    fill: float = 0.0
    indicator: bool = False
    levels: Annotated[tuple[str, ...], "levels"] = ()
    rare: tuple[str, ...] = ()
    level_features: PerLevel = field(default_factory=_nothing)
    substitutes: Empty | Annotated[stored.Floats, f"{N_SUBSTITUTES}, features"] = field(
        default_factory=_nothing
    )
    spreads: Annotated[PerLevel, stored.NOT_NEGATIVE] = field(default_factory=_nothing)
    parts: TextParts | None = None
    coefficients: Empty | Annotated[stored.Floats, "_, features"] = field(
        default_factory=_nothing
    )
    text_ratio: Annotated[stored.Floats, "_", stored.NOT_NEGATIVE] = field(
        default_factory=lambda: np.zeros(0)
    )
    time_zone: stored.TimeZone | None = None
    bounds: tuple[
        Annotated[float, stored.NOT_NAN], Annotated[float, stored.NOT_NAN]
    ] = (
        -np.inf,
        np.inf,
    )
    mostly_unique: bool = False

    def _check_stored(self) -> None:
        """Raise if a value would not have finite features."""
        if not self.suffixes:
            return
        if self.is_category:
            levels = (*self.named, *self.rare, "\0")
            data = Categories(np.arange(-1, len(levels)), levels)
            parts = (
                _encode_levels(self, data)
                if self.uses_y
                else [self.level_features[level_index(self, data)]]
            )
        else:
            parts = [_features_of(np.array([np.nan, *self.bounds]), self)]
        n_features, n_substitutes = len(self.suffixes), len(self.substitutes)
        is_known = self.indicator and not self.is_category
        if not is_known and n_substitutes != N_SUBSTITUTES:
            raise ValueError(
                f"column {self.name!r} must have {N_SUBSTITUTES} substitutes of "
                f"unknown values; got {n_substitutes}."
            )
        is_whole = parts[0].shape[1] == n_features
        if not (is_whole and all(np.isfinite(part).all() for part in parts)):
            raise ValueError(
                f"column {self.name!r} must have {n_features} finite features for "
                f"missing, known and unknown values; got {parts[0].tolist()!r:.200}."
            )

    @property
    def is_category(self) -> bool:
        """Whether its levels have no numbers."""
        return not KINDS[self.kind].number

    @property
    def uses_y(self) -> bool:
        """Whether the encoding is a statistic of y."""
        return self.encoding in (BY_LEVEL, BY_TEXT)

    @property
    def named(self) -> tuple[str, ...]:
        """Levels of a category with their own encoding, without a missing value."""
        return self.levels[: len(self.levels) - self.indicator]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(f"{self.name}{suffix}" for suffix in self.suffixes)


# ---- unknown values


@dataclass(frozen=True)
class UnknownValues:
    """Unknown values of one column.

    Parameters
    ----------
    features : slice
        Positions of the column's features.
    rows : ndarray of shape (rows,), bool
        Rows whose value is unknown.
    substitutes : ndarray of shape (N_SUBSTITUTES, features), or with these axes after \
an axis of the unknown rows
    """

    features: slice
    rows: np.ndarray
    substitutes: np.ndarray


@dataclass(frozen=True)
class EncodedRows:
    """Features of new rows, some of which have unknown values.

    An unseen level of a category is unknown, and so is a missing number in a column
    without an indicator of missing values. The predictive distribution of such a row is
    the mixture over values of the training rows in its place: the substitutes. If a
    level has few training rows, the substitutes are from the posterior of its mean of
    y. Several unknown values of a row are independent.

    Parameters
    ----------
    X : {ndarray, sparse matrix} of shape (rows, features)
        With a typical value in place of an unknown one.
    unknown : tuple of UnknownValues
        One for each column with unknown values.
    """

    X: Any
    unknown: tuple[UnknownValues, ...] = ()

    def versions(self, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """All versions of some rows, and the number of versions of each row.

        returns : (versions of all rows, features), adjacent for each row; and
            (rows,), each 1 or ``N_SUBSTITUTES``
        """
        masks = [values.rows[rows] for values in self.unknown]
        n_versions = np.where(np.any(masks, axis=0), N_SUBSTITUTES, 1)
        X = np.repeat(self.X[rows], n_versions, axis=0)
        first = np.cumsum(n_versions) - n_versions
        for values, mask in zip(self.unknown, masks, strict=True):
            order = order_of_substitutes(values.features.start)
            places = first[mask][:, np.newaxis] + np.arange(N_SUBSTITUTES)
            substitutes = values.substitutes[..., order, :]
            if substitutes.ndim == 3:
                first_unknown = np.count_nonzero(values.rows[: rows.start or 0])
                substitutes = substitutes[first_unknown:][: mask.sum()]
            X[places, values.features] = substitutes
        return X, n_versions


def order_of_substitutes(position: int) -> np.ndarray:
    """The substitute that each version of a row has, (N_SUBSTITUTES,).

    Each column has its own order: unknown values are independent.

    position : of the first feature of the column
    """
    return np.random.RandomState(position).permutation(N_SUBSTITUTES)


_SHARES = (np.arange(N_SUBSTITUTES) + 0.5) / N_SUBSTITUTES
# Dates count as later than those of ``fit`` if they are later by this share of the time
# that those cover: the last of random rows may be held out.
_LATER_SHARE = 0.02


def normal_substitutes(mean: float, std: float) -> np.ndarray:
    """Quantiles of a normal distribution, (N_SUBSTITUTES, 1)."""
    return mean + std * ndtri(_SHARES)[:, np.newaxis]


def _quantiles(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Quantiles of weighted values, (N_SUBSTITUTES,)."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    return values[order[np.searchsorted(cumulative, _SHARES * cumulative[-1])]]


def _level_substitutes(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Features of levels, each with the share of its weight, (N_SUBSTITUTES, features).

    features : (levels, features); weights : (levels,)
    """
    order = np.lexsort(features.T[::-1])
    cumulative = np.cumsum(weights[order])
    places = np.searchsorted(cumulative, _SHARES * cumulative[-1], side="right")
    return features[order[np.minimum(places, len(order) - 1)]]


# ---- numbers


def weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """Median of the values; weight 2 is a repeated value."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    half = cumulative[-1] / 2
    # If half of the weight is reached exactly, the middle of two values.
    first, last = (np.searchsorted(cumulative, half, side=s) for s in ("left", "right"))
    last = min(last, len(values) - 1)
    pair = values[order[[first, last]]]
    return float(pair[0] / 2 + pair[1] / 2)


def _fit_number(name, kind: str, values: np.ndarray, weights: np.ndarray) -> Column:
    """Fit numbers, positions of levels, or seconds since 1970; NaN is missing."""
    used, missing = weights > 0, np.isnan(values)
    column = Column(name, kind, ALL_MISSING, int(missing[used].sum()))
    present = used & ~missing
    if not present.any():
        return column
    values, weights_present = values[present], weights[present]
    missing_weight = weights[used & missing].sum()
    indicator = bool(min(missing_weight, weights_present.sum()) >= MIN_MISSING)
    low, high = float(values.min()), float(values.max())
    if low == high and not indicator:
        return replace(column, encoding="dropped: constant")
    column = replace(
        column,
        fill=weighted_median(values, weights_present),
        indicator=indicator,
        bounds=(low, high),
    )
    texts, suffixes = _number_parts(column, values)
    if indicator:
        texts, suffixes = (
            [*texts, "indicator of missing values"],
            [
                *suffixes,
                "=missing",
            ],
        )
    column = replace(column, encoding=", ".join(texts), suffixes=tuple(suffixes))
    if indicator:
        return column
    quantiles = _quantiles(values, weights_present)
    return replace(column, substitutes=_features_of(quantiles, column))


def _number_parts(column: Column, values: np.ndarray) -> tuple[list[str], list[str]]:
    """Descriptions and suffixes of the features of present values."""
    kind, varies = KINDS[column.kind], column.bounds[0] < column.bounds[1]
    periods = [
        name
        for name, length in kind.cycles.items()
        if np.ptp(values) >= MIN_CYCLES * length
        and len(np.unique(np.mod(values, length) // (length / CYCLE_PARTS))) > 1
    ]
    waves = [f".{wave}_{name}" for name in periods for wave in ("sin", "cos")]
    texts = [f"cycle of the {name}" for name in periods]
    return [kind.number] * varies + texts, [kind.suffix] * varies + waves


def number_features(values: Any, column: Column) -> list:
    """Features of numbers, positions of levels, or seconds since 1970; or NaN.

    values : (rows,); or a tensor of an exported graph, as the features then are
    """
    missing = np.isnan(values)
    filled = np.where(missing, column.fill, values)
    features = []
    for suffix in column.suffixes:
        if suffix == "=missing":
            features.append(missing.astype(np.float64))
        elif suffix == "":
            features.append(filled)
        elif suffix == ".days":
            features.append((filled - column.bounds[0]) / DAY)
        else:
            wave = np.sin if suffix.startswith(".sin_") else np.cos
            period = KINDS[column.kind].cycles[suffix[5:]]
            features.append(wave(2 * np.pi * filled / period))
    return features


def _features_of(values: np.ndarray, column: Column) -> np.ndarray:
    """Features of numbers, (rows, features), float64."""
    return np.array(number_features(values, column)).T


# ---- categories


def _fit_category(name, data: Categories, weights: np.ndarray, has_y: bool) -> Column:
    """Fit levels; the encoding is ``BY_LEVEL``, without features, if it needs y."""
    used = weights > 0
    weight_of = np.bincount(
        data.codes[used] + 1, weights[used], minlength=len(data.levels) + 1
    )
    missing, by_level = weight_of[0], weight_of[1:]
    seen = sorted(np.flatnonzero(by_level > 0), key=lambda i: data.levels[i])
    n_rows = np.bincount(data.codes[used] + 1, minlength=len(data.levels) + 1)[1:]
    column = Column(
        name,
        "category",
        "dropped: constant",
        int((data.codes[used] < 0).sum()),
        indicator=bool(missing),
        mostly_unique=bool(2 * np.count_nonzero(n_rows == 1) > len(seen)),
    )
    if len(seen) + (missing > 0) < 2:
        return column
    if len(seen) > MAX_ONE_HOT and has_y:
        return replace(column, encoding=BY_LEVEL, levels=_names(column, data, seen))
    kept = [i for i in seen if by_level[i] >= MIN_LEVEL]
    if not kept:  # Few rows: keep all levels.
        kept = seen[:MAX_ONE_HOT]
    rare = [data.levels[i] for i in seen if i not in kept]
    column = replace(column, levels=_names(column, data, kept), rare=tuple(rare))
    counts = [*by_level[kept], missing] if missing else by_level[kept]
    return _one_hot(column, np.array(counts))


def _names(column: Column, data: Categories, kept) -> tuple[str, ...]:
    names = [data.levels[i] for i in kept]
    return (*names, MISSING) if column.indicator else tuple(names)


def _one_hot(column: Column, counts: np.ndarray) -> Column:
    """One feature per level; one for two levels.

    An unseen level has the features of rare levels, or the mean of all rows.

    counts : (levels,), weight of the rows of each level
    """
    n_levels = len(column.levels)
    features = np.eye(n_levels + 1)
    names = [*column.levels, OTHER]
    if not column.rare:
        features, names = features[:, :-1], names[:-1]
        features[-1] = counts / counts.sum()
    if len(names) == 2:
        features, names = features[:, :1], names[:1]
    named = list(range(n_levels - column.indicator))
    rows = [*named, n_levels] if column.rare else named
    return replace(
        column,
        encoding="one-hot",
        suffixes=tuple(f"={name}" for name in names),
        level_features=features,
        substitutes=_level_substitutes(features[rows], np.ones(len(rows))),
    )


def is_identifier(column: Column, data: Categories, weights: np.ndarray) -> bool:
    """Whether few rows of a category have a level that repeats."""
    index = level_index(column, data)
    by_level = np.bincount(index, weights, len(column.levels) + 1)
    repeated = by_level[by_level >= MIN_LEVEL].sum()
    return bool(repeated < MIN_REPEATED * weights.sum())


def without_levels(column: Column, reason: str) -> Column:
    """A category without features."""
    return Column(
        column.name,
        column.kind,
        f"dropped: {reason}",
        column.n_missing,
        indicator=column.indicator,
    )


def with_statistics(
    column: Column,
    data: Categories,
    statistics: LevelStatistics,
    text: TextComponents | None,
) -> Column:
    """The column with the statistics of y of its levels.

    statistics : of missing values, and of each level of the data
    text : components of the text of levels, if the statistics have their coefficients
    """
    position = {level: i + 1 for i, level in enumerate(data.levels)}
    named = [position[level] for level in column.named]
    rows = [*named, *[0] * column.indicator, -1]
    n_features = statistics.means.shape[1]
    column = replace(
        column,
        suffixes=("",)
        if n_features == 1
        else tuple(f"={i}" for i in range(n_features)),
        level_features=statistics.means[rows],
        spreads=statistics.spreads[rows],
        # By rows: the spreads are relative to the variance over rows.
        substitutes=_level_substitutes(
            statistics.deviations[named], statistics.counts[named]
        ),
    )
    if text is None or statistics.coefficients is None:
        return column
    return replace(
        column,
        encoding=BY_TEXT,
        parts=text.parts,
        coefficients=text.coefficients(statistics.coefficients),
        text_ratio=statistics.text_ratio,
    )


def _encode_levels(
    column: Column, data: Categories
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Statistics of y of the level of each row.

    returns : features, (rows, features); unknown rows, (rows,) bool; and their
        substitutes, (unknown rows, N_SUBSTITUTES, features)
    """
    index = level_index(column, data)
    features, spreads = column.level_features[index], column.spreads[index]
    if column.parts is not None:
        is_unseen = index == len(column.levels)
        levels, of_row = np.unique(data.codes[is_unseen], return_inverse=True)
        # A missing value has no text.
        texts = [data.levels[i] if i >= 0 else "" for i in levels]
        if texts:
            features[is_unseen] = (column.parts(texts) @ column.coefficients)[of_row]
            cosines = column.parts.similarities(texts, column.named)
            unexplained = 1 - np.square(cosines)[:, np.newaxis]
            spreads[is_unseen] = np.sqrt(1 + unexplained * column.text_ratio)[of_row]
    is_unknown = spreads.any(axis=1)
    around = spreads[is_unknown, np.newaxis] * column.substitutes
    return features, is_unknown, features[is_unknown, np.newaxis] + around


def level_index(column: Column, data: Categories) -> np.ndarray:
    """Index of each row in ``column.level_features``."""
    n_levels = len(column.levels)
    index = data.recoded(column.named)
    missing = n_levels - 1 if column.indicator else n_levels
    return np.where(index == -1, missing, np.where(index == -2, n_levels, index))


def _new_level(column: Column, data: Categories, index: np.ndarray) -> str | None:
    """A level that ``fit`` has not seen, if several rows have no other level.

    None if new levels are to be expected, or their text predicts y.

    index : (rows,), negative for a missing value and for an unseen level
    """
    is_new = index == -2
    if column.mostly_unique or column.parts is not None:
        return None
    if len(index) < 2 or not is_new.any() or (index >= 0).any():
        return None
    return data.levels[data.codes[is_new.argmax()]]


# ---- columns of all kinds


def stored_name(name) -> str | int:
    """Name of a column, as it is stored: text if it is no number, such as a pair."""
    return name if isinstance(name, str) or type(name) is int else str(name)


def fit_column(
    data: TableColumn, kind: str, weights: np.ndarray, has_y: bool
) -> Column:
    """Fit a column.

    has_y : whether statistics of y may encode a category; ``with_statistics`` then
        completes the column
    """
    name = stored_name(data.name)
    if kind == "category":
        return _fit_category(name, data.categories(), weights, has_y)
    zone, levels = data.time_zone(), tuple(data.ordered_levels())
    values = data.numbers_of_kind(kind, zone, levels)
    fitted = _fit_number(name, kind, values, weights)
    return replace(fitted, time_zone=zone, levels=levels)


class EncodedColumn(NamedTuple):
    """Features of one column of new rows.

    Parameters
    ----------
    features : ndarray of shape (rows, features)
    is_unknown : ndarray of shape (rows,), bool
    substitutes : ndarray
        As in ``UnknownValues``.
    n_later : int
        Rows whose date is clearly later than in ``fit``.
    new_level : str, optional
        As ``_new_level`` returns it.
    """

    features: np.ndarray
    is_unknown: np.ndarray
    substitutes: np.ndarray
    n_later: int = 0
    new_level: str | None = None


def encode_column(data: TableColumn, column: Column) -> EncodedColumn:
    """Features of new rows."""
    substitutes = column.substitutes
    if not column.suffixes:
        n_rows = len(data)
        nothing = np.empty((n_rows, 0)), np.zeros(n_rows, dtype=bool)
        return EncodedColumn(*nothing, substitutes)
    if column.is_category:
        levels = data.categories()
        index = levels.recoded((*column.named, *column.rare))
        new_level = _new_level(column, levels, index)
        if column.uses_y:
            return EncodedColumn(*_encode_levels(column, levels), new_level=new_level)
        features = column.level_features[level_index(column, levels)]
        is_unknown = (index == -2) | ((index == -1) & (not column.indicator))
        return EncodedColumn(features, is_unknown, substitutes, new_level=new_level)
    values = data.numbers_of_kind(column.kind, column.time_zone, column.levels)
    features = _features_of(values, column)
    is_unknown = np.isnan(values) & (not column.indicator)
    first, last = column.bounds
    latest = last + _LATER_SHARE * (last - first)
    n_later = int((values > latest).sum()) if KINDS[column.kind].is_date else 0
    return EncodedColumn(features, is_unknown, substitutes, n_later)
