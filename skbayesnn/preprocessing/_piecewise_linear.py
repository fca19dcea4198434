"""Piecewise-linear encoding of columns, with features for frequent values.

A column is encoded by the share of each bin that lies below its value. Bin edges are
quantiles, or splits of a decision tree. Frequent values can have their own features.
"""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Annotated, Any, Self

import numpy as np
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from skbayesnn import _stored as stored
from skbayesnn._data.scaling import divided, power_of_two_scale
from skbayesnn._data.validation import (
    FLOATS,
    check_target_given,
    refuse_non_numeric_columns,
)
from skbayesnn._runtime import atomic_update
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from skbayesnn._typing import Array
from skbayesnn._validation import (
    check_bool,
    check_number,
    check_option,
    check_row_weights,
)

# About the most features of the rows that are encoded at once.
_MAX_CELLS = 2**18

# ---- edges of bins

# Integers with more distinct values than this are not taken for class labels.
_MAX_CLASSES = 30
# Relative rounding error of summed weights; shares that differ by less are equal.
_ROUNDING = 1e-10


def compute_edges(column, weights, targets, n_bins: int):
    """Compute the edges of a column's bins, (bins + 1,), float64, increasing.

    column, weights : (rows,); targets : (rows, outputs), or None for quantiles
    """
    values, index = np.unique(column, return_inverse=True)
    values = values.astype(np.float64)
    value_weights = np.bincount(index, weights)
    if targets is None:
        return _quantile_edges(values, value_weights, n_bins)
    sums = [np.bincount(index, weights * target) for target in targets.T]
    return _tree_edges(values, value_weights, np.stack(sums, 1), n_bins)


def _quantile_edges(values, weights, n_bins: int):
    """Edges with equal weight between them, or all values if there are few.

    values : (values,), increasing; weights : (values,), summed over rows
    """
    if len(values) <= n_bins + 1:
        return values
    heavy = _heavy(weights, n_bins)
    light = ~heavy
    n_bins -= heavy.sum()
    cumulative = np.cumsum(weights[light])
    levels = cumulative[-1] * np.arange(1, n_bins) / n_bins
    # If a level is reached exactly at a value, take the middle between its neighbours,
    # so that neither direction is preferred.
    first = np.searchsorted(cumulative, levels * (1 - _ROUNDING))
    last = np.searchsorted(cumulative, levels * (1 + _ROUNDING), side="right")
    # Skip pairs with a heavy value between them, which is an edge already.
    light_index, n_heavy = np.flatnonzero(light), np.cumsum(heavy)
    adjacent = n_heavy[light_index[first]] == n_heavy[light_index[last]]
    edges = _bounds_and_midpoints(values[light], first[adjacent], last[adjacent])
    return np.union1d(values[heavy], edges)


def _heavy(weights, n_bins: int):
    """Find heavy values, (values,), bool.

    A value is heavy if its weight is at least the mean weight per bin after heavier
    values have their own bins.
    """
    heavy = np.zeros(len(weights), dtype=bool)
    while True:
        share = weights[~heavy].sum() / (n_bins - heavy.sum())
        heavier = heavy | (weights >= share * (1 - _ROUNDING))
        # Rounding must not give every bin to a heavy value and none to the others.
        if (heavier == heavy).all() or heavier.sum() >= n_bins:
            return heavy
        heavy = heavier


def _tree_edges(values, weights, sums, n_bins: int):
    """Edges at the splits of a regression tree.

    values : (values,), increasing; weights : (values,), summed over rows;
    sums : (values, outputs), weighted sums of the targets over rows
    """
    if len(values) <= 2:
        return values
    # One row per value, with the mean target: rows of equal value are never split.
    # Ranks, because trees round to float32 and treat values closer than 1e-7 as equal.
    # The seed avoids NumPy's global generator; with one column nothing is random.
    from sklearn.tree import DecisionTreeRegressor

    tree = DecisionTreeRegressor(max_leaf_nodes=n_bins, random_state=0)
    ranks = np.arange(len(values))[:, np.newaxis]
    tree.fit(ranks, sums / weights[:, np.newaxis], sample_weight=weights)
    nodes = tree.tree_
    splits = nodes.threshold[nodes.feature >= 0]  # leaves have feature -2
    below = np.floor(splits).astype(int)
    return _bounds_and_midpoints(values, below, below + 1)


def _bounds_and_midpoints(values, first, last):
    """Return the smallest value, midpoints of pairs of values, and the largest value.

    values : (values,), increasing; first, last : (pairs,), indices of values
    """
    midpoints = values[first] / 2 + values[last] / 2  # the sum could overflow
    return np.unique([values[0], *midpoints, values[-1]])


def tree_targets(y, weights, target_type: str):
    """Targets of the regression tree, (rows, outputs), float64.

    Classes become indicators. Their summed variance is the Gini impurity, so the
    regression tree equals a classification tree.

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
    y = divided(y, power_of_two_scale(y))
    # Trees treat a variance below 1e-16 as zero.
    scaler = StandardScaler().fit(y, sample_weight=weights)
    return (y - scaler.mean_) / scaler.scale_


def _are_classes(y) -> bool:
    """Whether y contains class labels; many distinct integers are prices or counts."""
    if y.ndim > 1:
        return False
    if y.dtype.kind in "iuf":
        distinct = np.unique(y)
        whole = bool((distinct == np.floor(distinct)).all())
        return len(distinct) <= _MAX_CLASSES and whole
    return type_of_target(y, input_name="y") in ("binary", "multiclass")


# ---- frequent values

# Smallest share of the rows that have the most frequent value.
_MOSTLY = 0.5
# Smallest median distance between neighbouring values, relative to the least distance.
_APART = 10.0
# Smallest weight of the rows with a value.
_MIN_ROWS = 2


def repeated_values(column, weights, n_values: int):
    """Find frequent values, except the most frequent: (values,), float32, increasing.

    Empty unless one value fills at least half of the rows and the values are far apart,
    compared with the smallest distance. Such values are codes, or amounts set by a
    rule, not measurements.

    column, weights : (rows,)
    """
    none = np.empty(0, dtype=np.float32)
    if n_values == 0:
        return none
    values, index = np.unique(as_compared(column), return_inverse=True)
    value_weights = np.bincount(index, weights) * (1 + _ROUNDING)
    if len(values) < 3 or value_weights.max() < _MOSTLY * weights.sum():
        return none
    if not np.isfinite(values[[0, -1]]).all():
        return none
    steps = np.diff(values.astype(np.float64))
    if np.median(steps) < _APART * steps.min():
        return none
    # The most frequent value needs no feature: a row without one has it or a rare one.
    frequent = np.argsort(-value_weights, kind="stable")[1 : n_values + 1]
    return np.sort(values[frequent[value_weights[frequent] >= _MIN_ROWS]])


def as_compared(column):
    """Convert to float32, so that a value compares equal in every input type."""
    with np.errstate(over="ignore"):
        return column.astype(np.float32)


# ---- the encoder


class PiecewiseLinearEncoder(TransformerMixin, BaseEstimator):
    """Encode numeric columns by bins, so that a network can learn thresholds [1]_.

    Use it before a network if trees do better on your table. A column with the edges
    b_0 < b_1 < ... < b_T becomes T features. The t-th feature is 0 below its bin, 1
    above it, and linear within: clip((x - b_{t-1}) / (b_t - b_{t-1}), 0, 1). A linear
    function of the features is a piecewise linear function of x with knots at the
    edges.

    Parameters
    ----------
    n_bins : int, default=16
        Largest number of bins of a column, at least 2. A column has fewer bins if edges
        coincide or if it has few distinct values.
    strategy : {"quantile", "tree"}, default="quantile"
        How edges are selected. ``"quantile"``: quantiles of the column, so that bins
        have equal shares of the rows; all distinct values if there are at most
        ``n_bins + 1``. A value that alone has a bin's share is an edge, and the other
        values share the remaining bins, so that a column that is mostly zero still has
        bins for the rest. ``"tree"``: splits of a decision tree with at most ``n_bins``
        leaves that predicts y from this column alone; a column that does not help to
        predict y has one bin.
    target_type : {"auto", "continuous", "classes"}, default="auto"
        Type of y for ``strategy="tree"``. ``"auto"``: classes if y contains strings,
        booleans, or at most 30 distinct integers; otherwise continuous. Give
        ``"continuous"`` for small counts, and ``"classes"`` for more than 30 integer
        labels.
    keep_columns : bool, default=False
        Whether to put each original column before its encoding.
    n_values : int, default=0
        Largest number of frequent values per column that have an indicator feature
        after the bins: 1 if the column has this value, otherwise 0. 0 disables these
        features. See Notes.
    sparse_output : bool, default=False
        Whether ``transform`` returns a CSR array. Bins above a value are 0 and bins
        below are 1, so this saves memory only if most values are in the lowest bins.

    Attributes
    ----------
    bin_edges_ : list of ndarray of shape (n_bins_[j] + 1,), float64
        Edges of each column, increasing, from its smallest to its largest training
        value. A column without bins has its smallest value only.
    n_bins_ : ndarray of shape (n_features_in_,), int
        Number of bins. 0 for a constant column; with ``keep_columns=True`` also for a
        column that would have a single bin, such as a column of two values.
    values_ : list of ndarray of shape (at most n_values,), float32
        Values of each column that have an indicator feature, increasing.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Defined if all names of X's columns are strings.

    Notes
    -----
    In the paper, the first bin keeps falling below b_0 and the last bin keeps rising
    above b_T. Here both are clipped: a value outside of the training range is encoded
    like the nearest value inside, and no feature leaves [0, 1]. With
    ``keep_columns=True`` the network can recognise such rows and extrapolate.

    A constant column has no bins; without ``keep_columns`` it is left out. If all
    columns are constant, the encoding has no columns. A column of two values has one
    bin from the smaller to the larger value. With ``keep_columns=True`` a single bin is
    left out, because it would repeat the column.

    Some numeric columns are partly codes: nearly all values are 0, and each of the
    other values is an amount set by a rule, with its own meaning. A piecewise linear
    function cannot separate a value from its neighbours. ``n_values`` adds indicators
    of the most frequent values. A column is selected if it meets two conditions: one
    value fills at least half of the rows, and the median distance between neighbouring
    values is at least ten times the smallest distance. The most frequent value and a
    value in a single row have no indicator. Values are compared in float32.

    Trees are fitted to the ranks of the values, so distinct values are separated in any
    unit. Trees minimise the Gini impurity for classes, and weight several targets
    equally in any units. Splits lie midway between two values. These edges depend on y:
    put the encoder into the pipeline that is cross-validated.

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

    Before a network:

    >>> from sklearn.pipeline import make_pipeline
    >>> from skbayesnn import MCDropoutRegressor
    >>> model = make_pipeline(PiecewiseLinearEncoder(), MCDropoutRegressor())
    """

    keep_columns: bool
    sparse_output: bool
    n_features_in_: stored.NumberOfColumns
    bin_edges_: Annotated[list[Annotated[stored.Floats, "_", stored.RISING]], "columns"]
    n_bins_: Annotated[stored.Integers, "columns", stored.NOT_NEGATIVE]
    values_: Annotated[list[Annotated[stored.Floats, "_", stored.RISING]], "columns"]

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

    def _check_stored(self) -> None:
        """Raise before ``transform`` would allocate other numbers of bins."""
        n_bins = [len(edges) - 1 for edges in getattr(self, "bin_edges_", [])]
        stored_bins = getattr(self, "n_bins_", np.zeros(0)).tolist()
        if n_bins != stored_bins:
            raise ValueError(f"`n_bins_` must be {n_bins}; got {stored_bins}.")

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
            Labels or floats; used by ``strategy="tree"`` only.
        sample_weight : array-like of shape (n_samples,), default=None
            A row of weight two counts as two rows, a row of weight zero is ignored.

        Returns
        -------
        self : object

        Raises
        ------
        TypeError
            If X is sparse, or a parameter has the wrong type.
        ValueError
            If X has NaN or infinity, y is required but missing, or a parameter is
            invalid.
        """
        self._check_parameters()
        supervised = self.strategy == "tree"
        if supervised:
            check_target_given(self, y)
        with atomic_update(self) as new:
            refuse_non_numeric_columns(X)
            X = validate_data(new, X, dtype=list(FLOATS))
            weights = check_row_weights(sample_weight, X)
            positive = weights > 0
            targets = None
            if supervised:
                y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
                check_consistent_length(X, y)
                targets = tree_targets(y[positive], weights[positive], self.target_type)
            new.bin_edges_ = [
                compute_edges(column[positive], weights[positive], targets, self.n_bins)
                for column in X.T
            ]
            if self.keep_columns:
                # A single bin would repeat the column.
                new.bin_edges_ = [
                    edges[:1] if len(edges) == 2 else edges for edges in new.bin_edges_
                ]
            new.n_bins_ = np.array([len(edges) - 1 for edges in new.bin_edges_])
            new.values_ = [
                repeated_values(column[positive], weights[positive], self.n_values)
                for column in X.T
            ]
        return self

    def transform(self, X: Any) -> Array:
        """Encode every column; the encodings are concatenated in column order.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        encoding : ndarray or CSR array of shape (n_samples, n_features_out)
            float32 if X is float32, otherwise float64. n_features_out is the sum of
            ``n_bins_`` and of the lengths of ``values_``, plus n_features with
            ``keep_columns=True``.
        """
        check_is_fitted(self)
        refuse_non_numeric_columns(X)
        X = validate_data(self, X, dtype=list(FLOATS), reset=False)
        if self.sparse_output:
            blocks = [sparse.csr_array(block) for _, block in self._blocks(X)]
            return sparse.vstack(blocks, format="csr")
        encoding = np.empty((len(X), self._widths().sum()), dtype=X.dtype)
        for rows, block in self._blocks(X):
            encoding[rows] = block
        return encoding

    def inverse_transform(self, X: Any) -> Array:
        """Recover the columns from their encoding, exact up to rounding.

        Without ``keep_columns`` a value outside of the edges becomes the nearest edge.

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
        """Names of the features: ``age_bin0``, ``age_bin1``, ...

        With ``keep_columns`` the original column keeps its name. The indicator of a
        value is named ``gain_7298.0``.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns; None is the names seen in ``fit``, or x0, x1, ...

        Returns
        -------
        names : ndarray of str objects, (n_features_out,)
        """
        # The mixin validates the argument and returns one name per column.
        columns = OneToOneFeatureMixin.get_feature_names_out(
            self,  # type: ignore[arg-type]
            input_features,
        )
        names = []
        encodings = zip(columns, self.n_bins_, self.values_, strict=True)
        for column, n_bins, values in encodings:
            names += [column] * bool(self.keep_columns)
            names += [f"{column}_bin{t}" for t in range(n_bins)]
            names += [f"{column}_{value}" for value in values.tolist()]
        return np.array(names, dtype=object)

    def _check_parameters(self):
        check_number("n_bins", self.n_bins, kind=Integral, low=2)
        check_number("n_values", self.n_values, kind=Integral, low=0)
        check_option("strategy", self.strategy, ["quantile", "tree"])
        target_types = ["auto", "continuous", "classes"]
        check_option("target_type", self.target_type, target_types)
        check_bool("keep_columns", self.keep_columns)
        check_bool("sparse_output", self.sparse_output)

    def _widths(self) -> np.ndarray:
        """Number of features of each column's encoding, (n_features_in_,)."""
        n_values = np.array([len(values) for values in self.values_])
        return bool(self.keep_columns) + self.n_bins_ + n_values

    def _blocks(self, X) -> Iterator[tuple[slice, np.ndarray]]:
        """Encodings of blocks of rows, in the type of X."""
        widths = self._widths()
        column = np.repeat(np.arange(len(widths)), widths)
        # Of each feature: its position in the encoding of its column.
        position = np.arange(len(column)) - (np.cumsum(widths) - widths)[column]
        position -= bool(self.keep_columns)
        is_value = position >= self.n_bins_[column]
        is_bin = (position >= 0) & ~is_value
        below = np.concatenate([edges[:-1] for edges in self.bin_edges_])
        above = np.concatenate([edges[1:] for edges in self.bin_edges_])
        values = np.concatenate(self.values_)
        step = max(1, _MAX_CELLS // max(1, len(column)))
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            block = X[rows, column]
            # NOTE[DIFF] The paper's first bin has no lower bound, and its last no upper
            # bound. Clipping before the division prevents overflow in narrow bins.
            share = np.clip(block[:, is_bin], below, above) - below
            block[:, is_bin] = share / (above - below)
            block[:, is_value] = as_compared(block[:, is_value]) == values
            yield rows, block

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.strategy == "tree"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
