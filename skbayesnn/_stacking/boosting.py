"""Gradient boosting of class probabilities, stored in arrays.

scikit-learn's histogram gradient boosting [1]_ with early stopping is fitted; then its
trees are stored in arrays, without objects of scikit-learn, and predicted by the loop
for forests. The prediction is a single draw. NumPy, float64.

References
----------
.. [1] Ke et al. (2017), "LightGBM: a highly efficient gradient boosting decision tree",
   NeurIPS 30.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, softmax
from sklearn.ensemble import HistGradientBoostingClassifier

from skbayesnn._data.scaling import Scaling
from skbayesnn._data.validation import check_classification, check_inputs
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import (
    ClassificationPredictiveMixin,
    PredictiveBlocks,
    PredictiveMixin,
)
from skbayesnn._runtime import atomic_update, on_snapshot
from skbayesnn._sklearn_compat import BaseEstimator, ClassifierMixin, boosted_trees
from skbayesnn._stacking.forest import leaves
from skbayesnn._typing import Array


class BoostingClassifier(
    ClassificationPredictiveMixin, ClassifierMixin, PredictiveMixin, BaseEstimator
):
    """Histogram gradient boosting with early stopping, as a single draw.

    Parameters
    ----------
    learning_rate : float, default=0.05
    max_iter : int, default=500
        Largest number of trees per class.
    random_state : int, default=0
        Seed of the rows that stop the training.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    roots_, feature_, threshold_, child_
        Trees, as in :class:`ForestRegressor`, with thresholds in float64. Trees of the
        same iteration are adjacent, one for each output.
    leaf_value_ : ndarray of shape (leaves,)
    baseline_ : ndarray of shape (n_outputs,)
        Outputs without trees: one logit for two classes, otherwise one per class.
    x_mean_, x_scale_ : ndarray of shape (n_features_in_,)
    total_weight_ : float
    """

    likelihood = "categorical"

    classes_: Array
    roots_: Array
    feature_: Array
    threshold_: Array
    child_: Array
    leaf_value_: Array
    baseline_: Array
    x_mean_: Array
    x_scale_: Array
    total_weight_: float
    n_features_in_: int

    def __init__(self, learning_rate=0.05, max_iter=500, random_state=0):
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the trees to the rows with positive weight.

        groups : if given, 100 trees without early stopping, which would split groups.
            The same if a class has a single row.
        """
        with atomic_update(self) as new:
            table, classes = check_classification(new, X, y, sample_weight, reset=True)
            used = table.sample_weight > 0
            weights = table.sample_weight[used]
            X = table.X[used].astype(np.float64)
            present, codes = np.unique(table.y[used], return_inverse=True)
            new.classes_ = classes[present]
            new.total_weight_ = float(weights.sum())
            scaling = Scaling.of(X, weights, weights, inputs=True, targets=False)
            new.x_mean_, new.x_scale_ = scaling.x_mean, scaling.x_scale
            # A tenth of the rows, stratified, stops the training.
            can_hold_out = np.bincount(codes).min() > 1 and len(X) >= 10 * len(present)
            stops = bool(can_hold_out) and groups is None
            model = HistGradientBoostingClassifier(
                learning_rate=self.learning_rate,
                max_iter=self.max_iter if stops else min(self.max_iter, 100),
                early_stopping=stops,
                random_state=self.random_state,
            )
            model.fit(X, codes, sample_weight=weights / weights.mean())
            baseline, trees = boosted_trees(model)
            new.baseline_ = baseline
            parts = [_ordered(tree) for tree in trees]
            sizes = np.array([len(part.feature) for part in parts])
            first = np.cumsum(sizes) - sizes
            n_leaves = np.array([len(part.value) for part in parts])
            first_leaf = np.cumsum(n_leaves) - n_leaves
            new.roots_ = first.astype(np.int32)
            new.feature_ = np.concatenate([part.feature for part in parts])
            new.threshold_ = np.concatenate([part.threshold for part in parts])
            new.child_ = np.concatenate(
                [
                    np.where(part.feature < 0, leaf, node) + part.child
                    for part, node, leaf in zip(parts, first, first_leaf, strict=True)
                ]
            ).astype(np.int32)
            new.leaf_value_ = np.concatenate([part.value for part in parts])
        return self

    def _outputs(self, X) -> np.ndarray:
        """Logits, (rows, outputs)."""
        values = self.leaf_value_[leaves(X, self)]
        values = values.reshape(-1, len(self.baseline_), len(X))
        return self.baseline_ + values.sum(0).T

    @on_snapshot
    def _open_predictive(self, X):
        X = np.ascontiguousarray(check_inputs(self, X, reset=False), np.float64)
        return PredictiveBlocks(len(X), lambda rows: self._predictive(X[rows]))

    def _predictive(self, X) -> ClassPredictive:
        outputs = self._outputs(X)
        if len(self.baseline_) == 1:
            positive = expit(outputs)
            probability = np.concatenate([1 - positive, positive], axis=1)
        else:
            probability = softmax(outputs, axis=1)
        return ClassPredictive(probability[None], self.classes_)


class Tree(NamedTuple):
    """A tree whose nodes precede their children, the left child directly.

    Parameters
    ----------
    feature : ndarray of shape (nodes,), int32; -1 in a leaf
    threshold : ndarray of shape (nodes,)
    child : ndarray of shape (nodes,), int32
        The right child; in a leaf its index.
    value : ndarray of shape (leaves,)
    """

    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    value: np.ndarray


def _ordered(nodes: np.ndarray) -> Tree:
    """Order the nodes of a tree of scikit-learn depth first.

    nodes : structured array of one tree; the first node is the root
    """
    left, right = nodes["left"].tolist(), nodes["right"].tolist()
    is_leaf = nodes["is_leaf"].astype(bool)
    order, stack, leaf_list = [], [0], is_leaf.tolist()
    while stack:
        node = stack.pop()
        order.append(node)
        if not leaf_list[node]:
            stack += [right[node], left[node]]
    place = np.empty(len(nodes), np.int64)
    place[order] = np.arange(len(order))
    ordered, leaf = nodes[order], is_leaf[order]
    child = place[ordered["right"]]
    child[leaf] = np.arange(np.count_nonzero(leaf))
    return Tree(
        np.where(leaf, -1, ordered["feature_idx"]).astype(np.int32),
        np.where(leaf, 0.0, ordered["num_threshold"]),
        child,
        ordered["value"][leaf],
    )
