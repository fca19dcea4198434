"""Decision trees as draws of a predictive distribution.

For regression each tree is one draw: a normal distribution about the mean of y in the
leaf of the row [1]_. Its standard deviation is a share of the standard deviation of y
(the kernel of a learned neighbourhood), or the standard deviation of the rows in the
leaf. The trees are stored in arrays, without objects of scikit-learn. NumPy, float32 as
in scikit-learn's trees.

Trees differ mostly by the noise of the few rows in their leaves, which is not the
uncertainty of the forest. The mean of the forest is a weighted sum of y, with weights
a_i = mean over trees of 1 / (size of the leaf) if row i is in it [2]_. Independent
noise of variance s^2 gives this sum the variance s^2 S, where S is the sum of a_i^2,
and the trees a variance of s^2 (A - S) about it, where A is the same sum for one tree.
So the epistemic variance is S / (A - S) times the variance of the trees. (If the
variances in the leaves are known, they estimate s^2, too.) The rest of the variance of
the trees is aleatoric.

For classes y is 1 in the rows of a class and 0 elsewhere, and a tree has the shares of
the classes in the leaf. Draws are the trees, moved towards their mean until their
variance is the epistemic one.

References
----------
.. [1] Geurts, Ernst & Wehenkel (2006), "Extremely randomized trees", Machine Learning
   63(1). Meinshausen (2006), "Quantile regression forests", JMLR 7, for distributions.
.. [2] Lin & Jeon (2006), "Random forests and adaptive nearest neighbors", JASA
   101(474).
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from functools import cache
from typing import Annotated, Any, Literal, Self

import numpy as np
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
)

from skbayesnn import _stored as stored
from skbayesnn._data.scaling import Scaling
from skbayesnn._data.validation import (
    check_classification,
    check_inputs,
    check_regression,
)
from skbayesnn._distributions.components import Gaussians
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import (
    ClassificationPredictiveMixin,
    RegressionPredictiveMixin,
)
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn._runtime import atomic_update
from skbayesnn._sklearn_compat import ClassifierMixin, RegressorMixin
from skbayesnn._stacking.separate_model import SeparateModel
from skbayesnn._typing import Array
from skbayesnn._validation import MAX_N_DRAWS

# Largest size of the arrays of a forest, in bytes: with leaves of one row, and with
# larger leaves. The overlaps of the leaves come in addition. A stack may have both, and
# both again for each fold: 110 MB with one fold.
MAX_BYTES = 35e6, 15e6
# With less space than for this number of trees, their leaves have more rows.
MIN_TREES = 30
BYTES_PER_NODE = 12
# Rows that the variance of all leaves is worth in a leaf.
PRIOR_ROWS = 3.0
# One tree in this many is wide, so that y far from all leaves has some density; and its
# width.
WIDE_EVERY, WIDE_WIDTH = 50, 0.5
GOLDEN_RATIO = (5**0.5 - 1) / 2
# Smallest variance of a leaf, as a share of the variance of y.
MIN_VARIANCE = 1e-6
# Largest numbers of rows and of columns with which trees of bagging are fitted.
MAX_BAGGED = 10_000, 64
# The overlap of the trees is computed at about this number of training rows.
MAX_OVERLAP_ROWS = 20_000


class Trees(SeparateModel):
    """Decision trees of scikit-learn, stored in arrays.

    Attributes
    ----------
    roots_ : ndarray of shape (n_trees,), int32
        Position of the root of each tree.
    feature_ : ndarray of shape (nodes,), int32
        Column that a node splits; -1 in a leaf.
    threshold_ : ndarray of shape (nodes,)
        Rows with at most this value continue at the next node.
    child_ : ndarray of shape (nodes,), int32
        Node at which the other rows continue; in a leaf its index.
    leaf_value_ : ndarray of shape (leaves, ...)
    """

    roots_: Annotated[stored.Integers, "trees", stored.Index("nodes"), stored.BITS_32]
    feature_: Annotated[
        stored.Integers, "nodes", stored.Index("columns", low=-1), stored.BITS_32
    ]
    child_: Annotated[stored.Integers, "nodes", stored.NOT_NEGATIVE, stored.BITS_32]
    threshold_: Array
    leaf_value_: Array

    def _checked_rows(self, X, y, sample_weight) -> tuple[Array, Array, Array]:
        """Store classes and scales of the rows with positive weight.

        returns : these rows, the index of the class of each, and the weights with a
            mean of 1
        """
        table, classes = check_classification(self, X, y, sample_weight, reset=True)
        used = table.sample_weight > 0
        weights, X = table.sample_weight[used], table.X[used].astype(np.float64)
        present, codes = np.unique(table.y[used], return_inverse=True)
        self.classes_ = classes[present]
        self._store_scales(X, weights)
        return X, codes, weights / weights.mean()

    def _store_nodes(self, feature: list, right: list) -> None:
        """Store one tree after another. The left child of a node is the next node.

        feature : for each tree the column that a node splits, negative in a leaf
        right : for each tree the position of the right child in the tree
        """
        sizes = np.array([len(one) for one in feature])
        first = np.cumsum(sizes) - sizes
        features = np.concatenate(feature)
        is_leaf = features < 0
        child = np.concatenate(right) + np.repeat(first, sizes)
        child[is_leaf] = np.arange(np.count_nonzero(is_leaf))
        self.roots_ = first.astype(np.int32)
        self.feature_ = np.where(is_leaf, -1, features).astype(np.int32)
        self.child_ = child.astype(np.int32)

    def _check_stored(self) -> None:
        """Raise if a row would not reach a leaf: compiled functions do not check it.

        Children come later than their parents, so that a row cannot return to a node.
        """
        if not hasattr(self, "roots_"):
            return
        feature, child, n_nodes = self.feature_, self.child_, len(self.feature_)
        node, is_leaf = np.arange(n_nodes), feature == -1
        first = np.where(is_leaf, 0, node + 1)
        last = np.where(is_leaf, len(self.leaf_value_), n_nodes)
        is_valid = (child >= first) & (child < last) & (is_leaf | (node < n_nodes - 1))
        if not (is_valid.all() and len(self.roots_)):
            raise ValueError(
                "trees must have roots, children and leaves that exist; got "
                f"{np.count_nonzero(~is_valid)} invalid nodes of {n_nodes}."
            )


class Forest(Trees):
    """Independent trees as draws.

    Attributes
    ----------
    threshold_ : float32
    leaf_overlap_ : ndarray of shape (leaves, 1 or 2), float16
        Overlap of two trees near a leaf; see ``leaf_overlap``.
    """

    n_trees: stored.PositiveCount
    threshold_: Annotated[stored.Floats, "nodes", stored.BITS_32]
    leaf_overlap_: Annotated[stored.Floats, "leaves, _", stored.SHARE, stored.BITS_16]

    def _store_trees(self, forest) -> None:
        """Store the nodes of a fitted forest of scikit-learn."""
        trees = [member.tree_ for member in forest.estimators_]
        feature = [tree.feature for tree in trees]
        for one, tree in zip(feature, trees, strict=True):
            inner = np.flatnonzero(one >= 0)
            if not np.array_equal(tree.children_left[inner], inner + 1):
                raise RuntimeError(
                    "the left child of a node must be the next node; this version of "
                    "scikit-learn stores trees in another order."
                )
        self._store_nodes(feature, [tree.children_right for tree in trees])
        threshold = np.concatenate([tree.threshold for tree in trees])
        # The largest float32 that is not larger: a column in float32 is at most this
        # value if, and only if, it is at most the threshold.
        rounded = threshold.astype(np.float32)
        too_large = rounded > threshold
        rounded[too_large] = np.nextafter(rounded[too_large], np.float32(-np.inf))
        self.threshold_ = np.where(self.feature_ < 0, np.float32(0), rounded)

    def _inputs(self, X) -> np.ndarray:
        return _as_float32(check_inputs(self, X, reset=False))

    def _overlap(self, leaf, column: int) -> Array:
        """Mean of ``leaf_overlap_`` over the trees, (rows, 1); leaf : (trees, rows)."""
        return self.leaf_overlap_[leaf, column].mean(0, dtype=np.float64)[:, None]

    def _ratio(self, overlap):
        """S / A of the overlap of two trees: each tree overlaps with itself, too."""
        n_trees = len(self.roots_)
        return (1 + (n_trees - 1) * overlap) / n_trees


class ForestRegressor(RegressionPredictiveMixin, RegressorMixin, Forest):
    """Extremely randomised trees as draws.

    The size is at most ``MAX_BYTES``: with many rows there are fewer trees, and then
    more rows in a leaf.

    Parameters
    ----------
    width : float or None, default=0.1
        Standard deviation of y about the mean of its leaf, as a share of the standard
        deviation of y. None is the standard deviation of the rows in the leaf, shrunk
        to all leaves; leaves then have at least three rows. If a width is given, one
        tree in 50 has at least 0.5: without it, y far from all leaves has nearly no
        density.
    n_trees : int, default=200
    random_state : int, default=0

    Attributes
    ----------
    is_wide_ : ndarray of shape (n_trees,), bool
        Trees whose width is at least ``WIDE_WIDTH``; without effect if ``width`` is
        None.
    leaf_value_ : ndarray of shape (leaves, n_targets), float32
        Mean of y, in standard deviations of y from its mean.
    leaf_variance_ : ndarray of shape (leaves, n_targets), float32
        In variances of y. Without leaves if ``width`` is given.
    leaf_overlap_
        With the overlap of a tree with itself if ``width`` is None.
    y_mean_, y_scale_ : ndarray of shape (n_targets,)
    x_mean_, x_scale_ : ndarray of shape (n_features_in_,)
    total_weight_ : float
    y_ndim_ : int
    """

    likelihood = "gaussian"
    params_of_predictions = ("width",)

    width: Annotated[Any, stored.PositiveFloat | None]
    is_wide_: Annotated[stored.Bools, "trees"]
    leaf_value_: Annotated[stored.Floats, "leaves, targets", stored.BITS_32]
    leaf_variance_: (
        Annotated[stored.Floats, "0, targets", stored.BITS_32]
        | Annotated[stored.Floats, "leaves, targets", stored.POSITIVE, stored.BITS_32]
    )
    y_mean_: Annotated[stored.Floats, "targets"]
    y_scale_: Annotated[stored.Floats, "targets", stored.POSITIVE]
    y_ndim_: Literal[1, 2]

    def __init__(self, width=0.1, n_trees=200, random_state=0):
        self._store(locals())

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the trees to the rows with positive weight.

        groups : ignored; the trees hold out no rows
        """
        with atomic_update(self) as new:
            table, new.y_ndim_ = check_regression(new, X, y, sample_weight, reset=True)
            used = table.sample_weight > 0
            weights = table.sample_weight[used]
            X, Y = table.X[used].astype(np.float64), table.y[used]
            new.total_weight_ = float(weights.sum())
            # The unit of the weights has no effect, also on rounding.
            share = weights / weights.sum()
            scaling = Scaling.of(X, Y, share, inputs=True, targets=True)
            new.x_mean_, new.x_scale_ = scaling.x_mean, scaling.x_scale
            new.y_mean_, new.y_scale_ = scaling.y_mean, scaling.y_scale
            standard = scaling.y_to_network(Y)
            n_trees, min_rows = size_of_forest(
                len(X), Y.shape[1], self.n_trees, 3 if self.width is None else 1
            )
            forest = ExtraTreesRegressor(
                n_trees, min_samples_leaf=min_rows, random_state=self.random_state
            )
            X, weights = _as_float32(X), weights / weights.mean()
            # scikit-learn warns of a single target with a second axis.
            flat = standard.ravel() if standard.shape[1] == 1 else standard
            forest.fit(X, flat, sample_weight=weights)
            new._store_trees(forest)
            # Multiples of the golden ratio spread the wide trees evenly.
            position = (np.arange(n_trees) + 0.5) * GOLDEN_RATIO
            new.is_wide_ = position % 1 < 1 / WIDE_EVERY
            mean = np.concatenate([one.tree_.value[..., 0] for one in forest])
            new.leaf_value_ = mean[new.feature_ < 0].astype(np.float32)
            new.leaf_variance_ = np.empty((0, Y.shape[1]), np.float32)
            leaf = leaves(X, new)
            if self.width is None:
                variance = leaf_variance(leaf, standard, weights, len(new.leaf_value_))
                new.leaf_variance_ = variance.astype(np.float32)
            overlap = leaf_overlap(X, leaf, weights, new, self.random_state)
            new.leaf_overlap_ = overlap if self.width is None else overlap[:, :1].copy()
        return self

    def with_trees(self, n: int) -> Self:
        """Copy without the trees that ``n`` draws of the mixture do not use.

        These are selected as by ``DrawArrays.resized``.
        """
        n_trees = len(self.roots_)
        if n >= n_trees:
            return self
        trees = np.arange(n) * n_trees // n
        first = self.roots_[trees]
        sizes = np.append(self.roots_[1:], len(self.feature_))[trees] - first
        roots = np.cumsum(sizes) - sizes
        shift = np.repeat(first - roots, sizes)
        node = np.arange(len(shift)) + shift
        is_leaf = self.feature_[node] < 0
        leaf = self.child_[node][is_leaf]
        child = self.child_[node] - shift
        child[is_leaf] = np.arange(len(leaf))
        smaller = copy(self)
        smaller.roots_, smaller.is_wide_ = roots.astype(np.int32), self.is_wide_[trees]
        smaller.feature_, smaller.threshold_ = (
            self.feature_[node],
            self.threshold_[node],
        )
        smaller.child_ = child.astype(np.int32)
        smaller.leaf_value_ = self.leaf_value_[leaf]
        smaller.leaf_overlap_ = self.leaf_overlap_[leaf]
        if self.width is None:
            smaller.leaf_variance_ = self.leaf_variance_[leaf]
        return smaller

    def _distribution(self, X):
        return lambda rows: self._mixture(leaves(X[rows], self))

    def _mixture(self, leaf: np.ndarray) -> MixturePredictive:
        """Mixture of the trees; leaf : (trees, rows)."""
        mean = self.leaf_value_[leaf]
        if self.width is None:
            variance = self.leaf_variance_[leaf]
        else:
            variance = np.empty_like(mean)
            variance[:] = np.square(self.widths)[:, np.newaxis, np.newaxis]
        share = np.broadcast_to(self._function_share(leaf, mean, variance), mean.shape)
        mean, variance = self._scaling.moments_from_network(mean, variance)
        return MixturePredictive(
            Gaussians(mean, variance, own_share=share), self.y_ndim_ == 1
        )

    def _function_share(self, leaf, mean, variance) -> np.ndarray:
        """Epistemic standard deviation, relative to the trees, (rows, targets).

        At most 1. With the notation of the module's docstring.

        leaf : (trees, rows); mean, variance : (trees, rows, targets)
        """
        ratio = self._ratio(self._overlap(leaf, 0))
        spread = mean.var(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.width is None:
                # The variance of y about the forest, in the leaves and between them.
                single = self._overlap(leaf, 1)
                local = spread + (1 - single) * variance.mean(0)
                epistemic = local * single * ratio / (1 - single * ratio)
            else:
                epistemic = spread * ratio / np.maximum(1 - ratio, 0)
            return np.sqrt(np.fmin(epistemic / spread, 1.0))

    @property
    def widths(self) -> np.ndarray:
        """Standard deviation of y about the leaves of each tree, (trees,)."""
        return np.where(self.is_wide_, max(self.width, WIDE_WIDTH), self.width)

    @property
    def _scaling(self) -> Scaling:
        return Scaling(self.x_mean_, self.x_scale_, self.y_mean_, self.y_scale_)


class ForestClassifier(ClassificationPredictiveMixin, ClassifierMixin, Forest):
    """Trees as draws of class probabilities.

    Each tree has the shares of the classes among all rows in a leaf, also those that
    its bootstrap sample leaves out. The shares among all rows have the weight of one
    row, so that no probability is zero. The draws have the epistemic part of the spread
    of the trees about the mean of all trees.

    Parameters
    ----------
    kind : {"extra_trees", "bagging"}, default="extra_trees"
        Extremely randomised trees, fitted to all rows; or trees with the best splits of
        all columns (at most ``MAX_BAGGED``), each fitted to a bootstrap sample.
    n_trees : int, default=100
    n_draws : int, default=100
        Number of trees that are draws, evenly spaced.
    random_state : int, default=0

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    leaf_value_ : ndarray of shape (leaves, n_classes), float32
        Shares of the classes.
    x_mean_, x_scale_ : ndarray of shape (n_features_in_,)
    total_weight_ : float
    """

    likelihood = "categorical"

    kind: Literal["extra_trees", "bagging"]
    n_draws: Annotated[int, stored.between(1, MAX_N_DRAWS)]
    classes_: stored.Labels
    leaf_value_: Annotated[
        stored.Floats, "leaves, classes", stored.SHARE, stored.BITS_32
    ]

    def __init__(self, kind="extra_trees", n_trees=100, n_draws=100, random_state=0):
        self._store(locals())

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the trees to the rows with positive weight.

        groups : ignored; the trees hold out no rows
        """
        with atomic_update(self) as new:
            X, codes, weights = new._checked_rows(X, y, sample_weight)
            X, n_classes = _as_float32(X), len(new.classes_)
            rows, columns = X.shape
            forest: Any = ExtraTreesClassifier()
            if self.kind == "bagging":
                rows, columns = np.minimum(X.shape, MAX_BAGGED).tolist()
                forest = RandomForestClassifier(max_samples=rows, max_features=columns)
            n_trees, min_rows = size_of_forest(rows, n_classes, self.n_trees, 1)
            forest.set_params(
                n_estimators=n_trees,
                min_samples_leaf=min_rows,
                random_state=self.random_state,
            )
            new._store_trees(forest.fit(X, codes, sample_weight=weights))
            leaf = leaves(X, new)
            cell = (leaf * n_classes + codes).ravel()
            n_leaves = np.count_nonzero(new.feature_ < 0)
            sums = np.bincount(cell, np.tile(weights, n_trees), n_leaves * n_classes)
            sums = sums.reshape(n_leaves, n_classes)
            shares = sums / sums.sum(1, keepdims=True)
            shares += np.bincount(codes, weights) / len(X) / len(X)
            new.leaf_value_ = (shares / (1 + 1 / len(X))).astype(np.float32)
            overlap = leaf_overlap(X, leaf, weights, new, self.random_state)
            new.leaf_overlap_ = overlap[:, :1].copy()
        return self

    @property
    def drawn_trees(self) -> np.ndarray:
        """Trees that are draws, selected as by ``DrawArrays.resized``."""
        n_trees = len(self.roots_)
        n_draws = min(self.n_draws, n_trees)
        return np.arange(n_draws) * n_trees // n_draws

    def _distribution(self, X):
        return lambda rows: self._classes(leaves(X[rows], self))

    def _classes(self, leaf: np.ndarray) -> ClassPredictive:
        """Class probabilities of the draws; leaf : (trees, rows)."""
        mean = np.zeros((leaf.shape[1], len(self.classes_)))
        for one in leaf:
            mean += self.leaf_value_[one]
        mean /= len(leaf)
        trees = self.leaf_value_[leaf[self.drawn_trees]]
        draws = self.draws_about(mean, self._overlap(leaf, 0), trees)
        return ClassPredictive(draws, self.classes_)

    def draws_about(self, mean, overlap, trees):
        """Draws with the epistemic part of the spread of the trees.

        mean : (rows, classes); overlap : (rows, 1); trees : (draws, rows, classes)
        """
        # With a ratio of more than 1/2 the trees differ by less than forests would.
        ratio = self._ratio(overlap).clip(0.0, 0.5)
        share = np.sqrt(ratio / (1.0 - ratio))
        return (1.0 - share) * mean + share * trees


def size_of_forest(
    n_rows: int, n_targets: int, n_trees: int, min_rows: int
) -> tuple[int, int]:
    """Number of trees and least number of rows in a leaf, within ``MAX_BYTES``.

    min_rows : rows in a leaf, if the trees are small enough
    """
    # A tree has at most this number of leaves, and fewer other nodes.
    bytes_per_leaf = 2 * BYTES_PER_NODE + 4 * n_targets * (1 + (min_rows > 1))
    most, n_leaves = MAX_BYTES[min_rows > 1], max(n_rows // min_rows, 1)
    possible = int(most // (n_leaves * bytes_per_leaf))
    if possible >= min(MIN_TREES, n_trees):
        return min(possible, n_trees), min_rows
    n_trees = min(MIN_TREES, n_trees)
    n_leaves = int(most // (n_trees * bytes_per_leaf))
    return n_trees, -(-n_rows // n_leaves)


def without_unused_trees(models: list, n_draws) -> list:
    """Copies of the forests among some models without unused trees.

    Forests that share their trees keep all of them if their copies would have more.

    n_draws : number of draws of each model in the mixture
    """
    n_used: Counter = Counter()
    for model, n in zip(models, n_draws, strict=True):
        if isinstance(model, ForestRegressor):
            n_used[id(model.roots_)] += min(n, len(model.roots_))
    return [
        model.with_trees(n)
        if isinstance(model, ForestRegressor)
        and n_used[id(model.roots_)] < len(model.roots_)
        else model
        for model, n in zip(models, n_draws, strict=True)
    ]


def leaf_variance(leaf, y, weights, n_leaves: int) -> np.ndarray:
    """Variance of y in each leaf, (leaves, targets).

    It is shrunk to the variance within all leaves, which is worth ``PRIOR_ROWS`` rows.

    leaf : (trees, rows); y : (rows, targets); weights : (rows,), with a mean of 1
    """
    flat, n_trees = leaf.ravel(), len(leaf)
    repeated = np.tile(weights, n_trees)
    n_rows = np.bincount(flat, repeated, n_leaves)
    variances = np.empty((n_leaves, y.shape[1]))
    for j, values in enumerate(y.T):
        values = np.tile(values, n_trees)
        mean = np.bincount(flat, repeated * values, n_leaves) / n_rows
        squares = repeated * np.square(values - mean[flat])
        squares = np.bincount(flat, squares, n_leaves)
        freedom = np.maximum(n_rows - 1, 0)
        pooled = squares.sum() / max(freedom.sum(), 1)
        variances[:, j] = (squares + PRIOR_ROWS * pooled) / (freedom + PRIOR_ROWS)
    return np.maximum(variances, MIN_VARIANCE)


def leaf_overlap(X, leaf, weights, trees, seed) -> np.ndarray:
    """Overlap of two trees, relative to A, and A, near each leaf; (leaves, 2).

    At a new row A is the mean of sum a_i^2 over trees, and the overlap the mean of
    sum a_i b_i over pairs of trees: a_i and b_i are the weights of training row i in
    the leaves of two trees. Training rows take the place of new rows: each is left out,
    and means over the rows of a leaf are returned. A row that is alone in its leaf
    moves to the other branch. In [0, 1], float16.

    X : (rows, columns), float32; leaf : (trees, rows); weights : (rows,), positive
    trees : as in ``leaves``
    """
    random = np.random.RandomState(seed)
    n_trees, n_rows = leaf.shape
    rows = np.arange(0, n_rows, -(-n_rows // MAX_OVERLAP_ROWS))
    neighbour = np.empty((n_trees, len(rows)), np.int32)
    own = np.zeros(len(rows))
    node_of_leaf = np.flatnonzero(trees.feature_ < 0)
    sibling = np.arange(len(trees.feature_))
    inner = np.flatnonzero(trees.feature_ >= 0)
    sibling[inner + 1], sibling[trees.child_[inner]] = trees.child_[inner], inner + 1
    for tree, leaf_of_row in enumerate(leaf):
        first_leaf = leaf_of_row.min()
        local = leaf_of_row - first_leaf
        counts = np.bincount(local)
        is_alone = counts[local[rows]] == 1
        node = node_of_leaf[leaf_of_row[rows]]
        node[is_alone] = sibling[node[is_alone]]
        arrays = trees.feature_, trees.threshold_, trees.child_
        reached = trees.child_[_down(X, rows, node, *arrays)] - first_leaf
        remains = (local[rows] == reached) & (counts[reached] > 1)
        left_out = np.where(remains, weights[rows], 0.0)
        total = np.bincount(local, weights)[reached]
        squares = np.bincount(local, np.square(weights))[reached]
        with np.errstate(divide="ignore", invalid="ignore"):
            squares = (squares - np.square(left_out)) / np.square(total - left_out)
        own += np.nan_to_num(squares, nan=1.0).clip(1 / n_rows, 1.0) / n_trees
        # A row of the leaf, drawn by its weight, independently in each tree: two trees
        # draw the same row with probability sum a_i b_i.
        order = np.argsort(local, kind="stable")
        ends = np.cumsum(counts)[reached]
        starts = ends - counts[reached]
        cumulative = np.append(0.0, np.cumsum(weights[order]))
        drawn = cumulative[starts] + random.uniform(size=len(rows)) * total
        place = np.searchsorted(cumulative, drawn, side="right") - 1
        place = np.clip(place, starts, ends - 1)
        following = np.where(place + 1 < ends, place + 1, starts)
        place = np.where(order[place] == rows, following, place)
        neighbour[tree] = order[place]
    pairs = _equal_pairs(neighbour) / max(n_trees * (n_trees - 1), 1)
    used, n_leaves = leaf[:, rows].ravel(), len(node_of_leaf)
    counts = np.bincount(used, minlength=n_leaves)
    means = np.empty((n_leaves, 2), np.float16)
    for column, values in enumerate((np.minimum(pairs / own, 1.0), own)):
        sums = np.bincount(used, np.tile(values, n_trees), n_leaves)
        means[:, column] = np.where(
            counts > 0, sums / np.maximum(counts, 1), values.mean()
        )
    return means


def _equal_pairs(values: np.ndarray) -> np.ndarray:
    """Number of ordered pairs of equal values in each column, (columns,)."""
    ordered = np.sort(values, axis=0)
    place = np.arange(len(values))[:, np.newaxis]
    starts = np.zeros(values.shape, dtype=int)
    starts[1:] = np.where(ordered[1:] != ordered[:-1], place[1:], 0)
    return 2 * (place - np.maximum.accumulate(starts, axis=0)).sum(0)


def leaves(X: np.ndarray, trees) -> np.ndarray:
    """Leaf of each row in each tree, (trees, rows), int32.

    X : (rows, columns), with the dtype of the thresholds
    trees : object with ``roots_``, ``feature_``, ``threshold_`` and ``child_``
    """
    leaf = np.empty((len(trees.roots_), len(X)), np.int32)
    fill = _fill_leaves()
    fill(X, trees.roots_, trees.feature_, trees.threshold_, trees.child_, leaf)
    return leaf


@cache
def _fill_leaves():
    """Compiled loop over the trees, or NumPy without numba."""
    try:
        from skbayesnn._engine.compiled.trees import fill_leaves
    except Exception:  # e.g. a NumPy that numba refuses
        return _fill_by_level
    return fill_leaves


def _fill_by_level(X, roots, feature, threshold, child, leaf) -> None:
    """All rows and trees go down one level at a time; as ``fill_leaves``."""
    nodes = np.repeat(roots, len(X))
    rows = np.tile(np.arange(len(X)), len(roots))
    nodes = _down(X, rows, nodes, feature, threshold, child)
    leaf[:] = child[nodes].reshape(leaf.shape)


def _down(X, rows, nodes, feature, threshold, child) -> np.ndarray:
    """Nodes of the leaves that rows reach from given nodes, (rows,).

    rows : indices; nodes : (rows,)
    """
    nodes, active = nodes.copy(), np.arange(len(nodes))
    while len(active):
        at = nodes[active]
        inner = feature[at] >= 0
        active, at = active[inner], at[inner]
        is_left = X[rows[active], feature[at]] <= threshold[at]
        nodes[active] = np.where(is_left, at + 1, child[at])
    return nodes


def _as_float32(X) -> np.ndarray:
    """X as the trees take it, without overflow."""
    largest = np.finfo(np.float32).max
    return np.ascontiguousarray(np.clip(X, -largest, largest), np.float32)
