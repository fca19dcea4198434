"""Piecewise-linear encoding of columns, with features for frequent values.

A column is encoded by the share of each bin below its value. Edges of bins are
quantiles, or supervised by y. Values that occur often can have features of their own.
"""

from collections.abc import Iterator
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from skbayesnn._data.scaling import divided, magnitude
from skbayesnn._data.validation import (
    FLOATS,
    check_row_weights,
    refuse_columns_that_are_not_numbers,
)
from skbayesnn._runtime import atomic_update
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from skbayesnn._typing import Array

# ---- edges of bins

# Of numbers that could be labels: more kinds than these are no classes.
_MOST_CLASSES = 30
# Relative error of summed weights, below which two shares of the rows are the same.
_ROUNDING = 1e-10


def edges_of(column, weights, targets, n_bins: int):
    """Edges of a column's bins, (bins + 1,), float64, increasing.

    column, weights : (rows,); targets : (rows, outputs), or None for quantiles
    """
    values, which = np.unique(column, return_inverse=True)
    values = values.astype(np.float64)
    of_value = np.bincount(which, weights)
    if targets is None:
        return _quantile_edges(values, of_value, n_bins)
    sums = [np.bincount(which, weights * target) for target in targets.T]
    return _tree_edges(values, of_value, np.stack(sums, 1), n_bins)


def _quantile_edges(values, weights, n_bins: int):
    """Edges with equal weight between them, or all values where there are few.

    values : (values,), increasing; weights : (values,), of all rows with a value
    """
    if len(values) <= n_bins + 1:
        return values
    heavy = _heavy(weights, n_bins)
    light = ~heavy
    n_bins -= heavy.sum()
    up_to = np.cumsum(weights[light])
    levels = up_to[-1] * np.arange(1, n_bins) / n_bins
    # Midway, where a level is reached exactly at a value: no direction is preferred.
    first = np.searchsorted(up_to, levels * (1 - _ROUNDING))
    last = np.searchsorted(up_to, levels * (1 + _ROUNDING), side="right")
    # A heavy value between the two is an edge already.
    where, up_to_value = np.flatnonzero(light), np.cumsum(heavy)
    apart = up_to_value[where[first]] == up_to_value[where[last]]
    edges = _with_ends(values[light], first[apart], last[apart])
    return np.union1d(values[heavy], edges)


def _heavy(weights, n_bins: int):
    """Which values have a bin's share of the rows, or of what heavier ones leave."""
    heavy = np.zeros(len(weights), dtype=bool)
    while True:
        share = weights[~heavy].sum() / (n_bins - heavy.sum())
        heavier = heavy | (weights >= share * (1 - _ROUNDING))
        # Up to rounding, all bins can have a value alone, and others next to nothing.
        if (heavier == heavy).all() or heavier.sum() >= n_bins:
            return heavy
        heavy = heavier


def _tree_edges(values, weights, sums, n_bins: int):
    """Edges at the splits of a regression tree.

    values : (values,), increasing; weights : (values,), of all rows with a value;
    sums : (values, outputs), weighted sums of the targets of these rows
    """
    if len(values) <= 2:
        return values
    # A row of their mean stands for all rows with a value: no split can part them.
    # Ranks, since trees round to float32 and take values closer than 1e-7 for equal.
    # The seed keeps the tree from NumPy's global generator; one column needs no draw.
    tree = DecisionTreeRegressor(max_leaf_nodes=n_bins, random_state=0)
    ranks = np.arange(len(values))[:, np.newaxis]
    tree.fit(ranks, sums / weights[:, np.newaxis], sample_weight=weights)
    nodes = tree.tree_
    splits = nodes.threshold[nodes.feature >= 0]  # of leaves it is -2
    below = np.floor(splits).astype(int)
    return _with_ends(values, below, below + 1)


def _with_ends(values, first, last):
    """The smallest value, the middles between pairs of values, and the largest.

    values : (values,), increasing; first, last : (pairs,), numbers of values
    """
    middles = values[first] / 2 + values[last] / 2  # whose sum could overflow
    return np.unique([values[0], *middles, values[-1]])


def tree_targets(y, weights, target_type: str):
    """What a regression tree is to predict, (rows, outputs), float64.

    The summed variance of the indicators of classes is their Gini impurity, so that a
    regression tree grows the tree of a classification.

    y : (rows,) or (rows, targets); weights : (rows,), positive
    """
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    if target_type == "classes" or (target_type == "auto" and _are_classes(y)):
        y = column_or_1d(y)
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        return np.eye(len(classes))[codes]
    y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    y = y.reshape(len(y), -1)
    y = divided(y, magnitude(y))
    # Trees take a variance below 1e-16 for none.
    scaler = StandardScaler().fit(y, sample_weight=weights)
    return (y - scaler.mean_) / scaler.scale_


def _are_classes(y) -> bool:
    """Whether y is labels; integers of many kinds are numbers (prices, counts)."""
    if y.ndim > 1:
        return False
    if y.dtype.kind in "iuf":
        kinds = np.unique(y)
        return len(kinds) <= _MOST_CLASSES and bool((kinds == np.floor(kinds)).all())
    return type_of_target(y, input_name="y") in ("binary", "multiclass")


# ---- frequent values

# Share of the rows that have the most frequent value, at least.
_MOSTLY = 0.5
# Median distance between neighbouring values, in units of the smallest, at least.
_APART = 10.0
# Rows with a value, at least.
_FEWEST_ROWS = 2
# Relative error of summed weights.


def repeated_values(column, weights, n_values: int):
    """The most frequent values but the very first, (values,), float32, increasing.

    None, unless the column is mostly one value, and the others are far apart although
    they could be close: codes, or amounts that a rule has set; not what is measured.

    column, weights : (rows,)
    """
    none = np.empty(0, dtype=np.float32)
    if n_values == 0:
        return none
    values, which = np.unique(as_compared(column), return_inverse=True)
    of_value = np.bincount(which, weights) * (1 + _ROUNDING)
    if len(values) < 3 or of_value.max() < _MOSTLY * weights.sum():
        return none
    if not np.isfinite(values[[0, -1]]).all():
        return none
    steps = np.diff(values.astype(np.float64))
    if np.median(steps) < _APART * steps.min():
        return none
    # The very first has no feature: without any, a row has that value, or a rare one.
    frequent = np.argsort(-of_value, kind="stable")[1 : n_values + 1]
    return np.sort(values[frequent[of_value[frequent] >= _FEWEST_ROWS]])


def as_compared(column):
    """In float32, where a value is the same whatever type it comes in."""
    with np.errstate(over="ignore"):
        return column.astype(np.float32)


# ---- the encoder


class PiecewiseLinearEncoder(TransformerMixin, BaseEstimator):
    """Columns as how far a value has come through each of their bins [1]_.

    A column with the edges b_0 < b_1 < ... < b_T becomes T features; the t-th is 0
    below its bin, 1 above it, and rises between:
    clip((x - b_{t-1}) / (b_t - b_{t-1}), 0, 1). A linear function of them is a
    piecewise linear function of x with its knots at the edges.

    Parameters
    ----------
    n_bins : int, default=16
        Largest number of bins of a column, at least 2. A column has fewer where
        edges coincide, or where there are few distinct values.
    strategy : {"quantile", "tree"}, default="quantile"
        Where the edges are. ``"quantile"``: at quantiles of the column, so that each
        bin has an equal share of the rows; all distinct values, where there are at
        most ``n_bins + 1``. A value that alone has a bin's share is an edge, and the
        others share the bins that it leaves: of a column that is mostly zero the rest
        is told apart, too. ``"tree"``: where a decision tree of this one column, with
        at most ``n_bins`` leaves, splits to predict y; a column that says nothing of
        y alone has one bin.
    target_type : {"auto", "continuous", "classes"}, default="auto"
        What y is, for ``strategy="tree"``. ``"auto"``: classes if y is strings or
        booleans, or whole numbers of at most 30 kinds, and continuous otherwise. Give
        ``"continuous"`` for small counts, ``"classes"`` for labels of many numbers.
    keep_columns : bool, default=False
        Whether each column, as it is, stands before its encoding.
    n_values : int, default=0
        Largest number of values of a column that have a feature of their own after its
        bins, 1 where the column has that value and 0 elsewhere; see Notes. 0: none.
    sparse_output : bool, default=False
        Whether ``transform`` returns a CSR array. All bins above a value are 0, all
        below are 1: it is smaller only where most values are in the lowest bins.

    Attributes
    ----------
    bin_edges_ : list of ndarray of shape (n_bins_[j] + 1,), float64
        Of each column, increasing, from its smallest to its largest value in training;
        the smallest alone for a column without bins.
    n_bins_ : ndarray of shape (n_features_in_,), int
        0 for a constant column; with ``keep_columns=True`` also for one that would have
        a single bin, as a column of two values has.
    values_ : list of ndarray of shape (at most n_values,), float32
        Of each column those that have a feature of their own, increasing.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Where X has names of strings.

    Notes
    -----
    In the paper the first bin goes on falling below b_0, and the last goes on rising
    above b_T. Here both stop, so that a value outside of the training rows' range is
    encoded as the nearest inside, and no encoding is larger than those in training.
    With ``keep_columns=True`` the network can tell such rows, and extrapolate.

    A constant column distinguishes no rows and has no bins; without ``keep_columns`` it
    is left out. If all columns are constant, the encoding has no columns. A column of
    two values has one bin from the smaller to the larger. With ``keep_columns=True`` a
    single bin is left out: it would repeat the column.

    Some columns of numbers are codes in part: 0 for nearly all, and for the others one
    of the amounts that a rule has set, of which each says something else. A piecewise
    linear function has no room for that: what it says of a value it says of those next
    to it. With ``n_values`` the most frequent values have a feature of their own, of
    columns that are mostly one value (at least half of the rows; it needs none) and
    whose others are far apart though they could be close (the median distance between
    neighbours is at least ten times the smallest). A value of a single row has none.
    Values are compared in float32.

    Trees are grown on the order of the values, not on the values: distinct ones are
    told apart whatever their unit. Classes are told apart by Gini impurity, several
    targets count alike whatever their units, and splits lie midway between two values.
    As these edges have seen y, they belong inside of what is cross-validated: into a
    pipeline.

    References
    ----------
    .. [1] Gorishniy, Rubachev & Babenko (2022), "On embeddings for numerical features
       in tabular deep learning", NeurIPS, arXiv:2203.05556, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from skbayesnn.preprocessing import PiecewiseLinearEncoder
    >>> X = np.array([[0.0], [1.0], [2.0], [6.0], [10.0]])
    >>> encoder = PiecewiseLinearEncoder(n_bins=2).fit(X)
    >>> encoder.bin_edges_
    [array([ 0.,  2., 10.])]
    >>> encoder.transform([[1.0], [6.0], [99.0]])
    array([[0.5, 0. ],
           [1. , 0.5],
           [1. , 1. ]])

    In front of a network:

    >>> from sklearn.pipeline import make_pipeline
    >>> from skbayesnn import MCDropoutRegressor
    >>> model = make_pipeline(PiecewiseLinearEncoder(), MCDropoutRegressor())
    """

    bin_edges_: list[Array]
    n_bins_: Array
    values_: list[Array]

    def __init__(
        self,
        n_bins=16,
        *,
        strategy="quantile",
        target_type="auto",
        keep_columns=False,
        n_values=0,
        sparse_output=False,
    ) -> None:
        self.n_bins = n_bins
        self.strategy = strategy
        self.target_type = target_type
        self.keep_columns = keep_columns
        self.n_values = n_values
        self.sparse_output = sparse_output

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Find the edges of every column's bins, and its repeated values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
            Labels or numbers; only with ``strategy="tree"``, otherwise ignored.
        sample_weight : array-like of shape (n_samples,), default=None
            A row of weight two counts as two rows, a row of weight zero as none.

        Returns
        -------
        self : object

        Raises
        ------
        TypeError
            A sparse X, or a parameter of the wrong kind.
        ValueError
            NaN or infinity, no y where one is needed, or a wrong parameter.
        """
        self._check_parameters()
        supervised = self.strategy == "tree"
        if supervised and y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        with atomic_update(self) as new:
            refuse_columns_that_are_not_numbers(X)
            X = validate_data(new, X, dtype=list(FLOATS))
            weights = check_row_weights(sample_weight, X)
            there = weights > 0
            targets = None
            if supervised:
                y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
                check_consistent_length(X, y)
                targets = tree_targets(y[there], weights[there], self.target_type)
            new.bin_edges_ = [
                edges_of(column[there], weights[there], targets, self.n_bins)
                for column in X.T
            ]
            if self.keep_columns:
                # A single bin would repeat the column.
                new.bin_edges_ = [
                    edges[:1] if len(edges) == 2 else edges for edges in new.bin_edges_
                ]
            new.n_bins_ = np.array([len(edges) - 1 for edges in new.bin_edges_])
            new.values_ = [
                repeated_values(column[there], weights[there], self.n_values)
                for column in X.T
            ]
        return self

    def transform(self, X: Any) -> Array:
        """The encoding of every column, one after the other.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        encoding : ndarray or CSR array of shape (n_samples, n_features_out)
            float32 where X is, otherwise float64. n_features_out is the sum of
            ``n_bins_`` and of the numbers of ``values_``, and with
            ``keep_columns=True`` n_features more.
        """
        check_is_fitted(self)
        refuse_columns_that_are_not_numbers(X)
        X = validate_data(self, X, dtype=list(FLOATS), reset=False)
        if self.sparse_output:
            # The first, of no columns, is for encodings that have none.
            blocks = [np.empty((len(X), 0)), *self._blocks(X)]
            blocks = [sparse.csr_array(block, dtype=X.dtype) for block in blocks]
            return sparse.hstack(blocks, format="csr")
        encoding = np.empty((len(X), self._widths().sum()), dtype=X.dtype)
        end = 0
        for block in self._blocks(X):
            start, end = end, end + block.shape[1]
            encoding[:, start:end] = block
        return encoding

    def inverse_transform(self, X: Any) -> Array:
        """The columns of an encoding.

        Exact up to rounding; without ``keep_columns`` a value outside of the edges
        comes back as the nearest of them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features_out)
            As ``transform`` returns it.

        Returns
        -------
        columns : ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        X = check_array(
            X, dtype=list(FLOATS), accept_sparse="csc", ensure_min_features=0
        )
        widths = self._widths()
        if X.shape[1] != widths.sum():
            raise ValueError(
                f"X must have the {widths.sum()} features of an encoding; got "
                f"{X.shape[1]}."
            )
        columns = np.empty((X.shape[0], len(widths)), dtype=X.dtype)
        starts = np.cumsum(widths) - widths
        for j, start in enumerate(starts):
            if self.keep_columns:
                block, shift, factors = X[:, start : start + 1], 0.0, np.ones(1)
            else:
                edges = self.bin_edges_[j]
                block, shift = X[:, start : start + self.n_bins_[j]], edges[0]
                factors = np.diff(edges)
            columns[:, j] = shift + block @ factors
        return columns

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the encoding's features: ``age_bin0``, ``age_bin1``, ...

        A column that is kept has its own name; a value's feature is ``gain_7298.0``.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns; None is those seen in ``fit``, or x0, x1, ...

        Returns
        -------
        names : ndarray of str objects, (n_features_out,)
        """
        # Of a column each: what that mixin does with the argument is wanted here.
        columns = OneToOneFeatureMixin.get_feature_names_out(
            self,  # type: ignore[arg-type]
            input_features,
        )
        names = []
        of_columns = zip(columns, self.n_bins_, self.values_, strict=True)
        for column, n_bins, values in of_columns:
            names += [column] * bool(self.keep_columns)
            names += [f"{column}_bin{t}" for t in range(n_bins)]
            names += [f"{column}_{value}" for value in values.tolist()]
        return np.array(names, dtype=object)

    def _check_parameters(self):
        for name, least in {"n_bins": 2, "n_values": 0}.items():
            value = getattr(self, name)
            if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
                raise TypeError(f"`{name}` must be an integer; got {value!r}.")
            if value < least:
                raise ValueError(f"`{name}` must be at least {least}; got {value!r}.")
        for name, options in {
            "strategy": ("quantile", "tree"),
            "target_type": ("auto", "continuous", "classes"),
        }.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in options:
                wanted = ", ".join(map(repr, options))
                raise ValueError(f"`{name}` must be one of {wanted}; got {value!r}.")
        for name in ("keep_columns", "sparse_output"):
            value = getattr(self, name)
            if not isinstance(value, bool | np.bool_):
                raise TypeError(f"`{name}` must be True or False; got {value!r}.")

    def _widths(self) -> np.ndarray:
        """Features that each column becomes, (n_features_in_,)."""
        n_values = np.array([len(values) for values in self.values_])
        return bool(self.keep_columns) + self.n_bins_ + n_values

    def _blocks(self, X) -> Iterator[np.ndarray]:
        """What the columns become, (rows, features of the column) each."""
        for j, edges in enumerate(self.bin_edges_):
            column = X[:, [j]]
            kept = [column] if self.keep_columns else []
            is_value = as_compared(column) == self.values_[j]
            yield np.hstack([*kept, _encoding(column, edges), is_value])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.strategy == "tree"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _encoding(column, edges):
    """Share of each bin that lies below a value, (rows, bins), float64.

    column : (rows, 1); edges : (bins + 1,), float64, increasing
    """
    # NOTE[DIFF] The paper's first bin has no lower bound, and its last no upper one.
    # Clipped before it is divided, a value far away cannot overflow in a thin bin.
    below, above = edges[:-1], edges[1:]
    encoding = np.clip(column, below, above)
    encoding -= below
    encoding /= above - below
    return encoding
