"""Gradient boosting of class probabilities, stored in arrays.

scikit-learn's histogram gradient boosting [1]_ is fitted; then its trees are stored in
arrays, without objects of scikit-learn, and predicted by the loop for forests. The
prediction is a single draw. NumPy, float64.

References
----------
.. [1] Ke et al. (2017), "LightGBM: a highly efficient gradient boosting decision tree",
   NeurIPS 30.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from scipy.special import expit, softmax
from sklearn.ensemble import HistGradientBoostingClassifier

from skbayesnn import _stored as stored
from skbayesnn._data.validation import check_inputs
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.mixin import ClassificationPredictiveMixin
from skbayesnn._runtime import atomic_update
from skbayesnn._sklearn_compat import ClassifierMixin, boosted_trees
from skbayesnn._stacking.forest import Trees, leaves


class BoostingClassifier(ClassificationPredictiveMixin, ClassifierMixin, Trees):
    """Histogram gradient boosting, as a single draw.

    Parameters
    ----------
    learning_rate : float, default=0.05
    max_iter : int, default=500
        Largest number of trees per class.
    max_leaf_nodes : int, default=31
        Largest number of leaves of a tree.
    min_samples_leaf : int, default=20
    early_stopping : bool, default=True
        Whether a tenth of the rows stops the training.
    random_state : int, default=0
        Seed of the rows that stop the training.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    roots_
        Trees of the same iteration are adjacent, one for each output.
    threshold_ : float64
    leaf_value_ : ndarray of shape (leaves,)
    baseline_ : ndarray of shape (n_outputs,)
        Outputs without trees: one logit for two classes, otherwise one per class.
    x_mean_, x_scale_ : ndarray of shape (n_features_in_,)
    total_weight_ : float
    """

    likelihood = "categorical"

    learning_rate: stored.PositiveFloat
    max_iter: stored.PositiveCount
    max_leaf_nodes: stored.PositiveCount
    min_samples_leaf: stored.PositiveCount
    early_stopping: bool
    classes_: stored.Labels
    threshold_: Annotated[stored.Floats, "nodes", stored.BITS_64]
    leaf_value_: Annotated[stored.Floats, "leaves", stored.BITS_64]
    baseline_: Annotated[stored.Floats, "outputs", stored.BITS_64]

    def __init__(
        self,
        learning_rate=0.05,
        max_iter=500,
        max_leaf_nodes=31,
        min_samples_leaf=20,
        early_stopping=True,
        random_state=0,
    ):
        self._store(locals())

    def fit(self, X, y, sample_weight=None, groups=None):
        """Fit the trees to the rows with positive weight.

        groups : if given, 100 trees without early stopping, which would split groups.
            The same if a class has a single row.
        """
        with atomic_update(self) as new:
            X, codes, weights = new._checked_rows(X, y, sample_weight)
            # A tenth of the rows, stratified, stops the training.
            counts = np.bincount(codes)
            can_hold_out = counts.min() > 1 and len(X) >= 10 * len(counts)
            stops = bool(self.early_stopping and can_hold_out and groups is None)
            must_stop = self.early_stopping and not stops
            model = HistGradientBoostingClassifier(
                learning_rate=self.learning_rate,
                max_iter=min(self.max_iter, 100) if must_stop else self.max_iter,
                max_leaf_nodes=self.max_leaf_nodes,
                min_samples_leaf=self.min_samples_leaf,
                early_stopping=stops,
                random_state=self.random_state,
            )
            # With weights, scikit-learn takes several times as long to find the bins.
            is_equal = (weights == 1).all()
            model.fit(X, codes, sample_weight=None if is_equal else weights)
            baseline, trees = boosted_trees(model)
            new.baseline_ = baseline
            trees = [_ordered(tree) for tree in trees]
            feature = [
                np.where(tree["is_leaf"], -1, tree["feature_idx"].astype(int))
                for tree in trees
            ]
            new._store_nodes(feature, [tree["right"] for tree in trees])
            nodes, is_leaf = np.concatenate(trees), new.feature_ < 0
            new.threshold_ = np.where(is_leaf, 0.0, nodes["num_threshold"])
            new.leaf_value_ = nodes["value"][is_leaf]
        return self

    def _outputs(self, X) -> np.ndarray:
        """Logits, (rows, outputs)."""
        values = self.leaf_value_[leaves(X, self)]
        values = values.reshape(-1, len(self.baseline_), len(X))
        return self.baseline_ + values.sum(0).T

    def _inputs(self, X) -> np.ndarray:
        return np.ascontiguousarray(check_inputs(self, X, reset=False), np.float64)

    def _distribution(self, X):
        return lambda rows: self._classes(self._outputs(X[rows]))

    def _classes(self, outputs: np.ndarray) -> ClassPredictive:
        """Class probabilities of logits, (rows, outputs)."""
        if len(self.baseline_) == 1:
            positive = expit(outputs)
            probability = np.concatenate([1 - positive, positive], axis=1)
        else:
            probability = softmax(outputs, axis=1)
        return ClassPredictive(probability[None], self.classes_)


def _ordered(nodes: np.ndarray) -> np.ndarray:
    """Nodes of a tree of scikit-learn, depth first: the left child is the next node.

    nodes : structured array of one tree; the first node is the root
    """
    left, right = nodes["left"].tolist(), nodes["right"].tolist()
    is_leaf = nodes["is_leaf"].tolist()
    order, stack = [], [0]
    while stack:
        node = stack.pop()
        order.append(node)
        if not is_leaf[node]:
            stack += [right[node], left[node]]
    place = np.empty(len(nodes), np.int64)
    place[order] = np.arange(len(order))
    ordered = nodes[order]
    ordered["right"] = place[ordered["right"]]
    return ordered
