"""A column, and the targets where bins are supervised -> the edges of its bins."""

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, column_or_1d

from skbayesnn._data.magnitude import divided, magnitude

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
