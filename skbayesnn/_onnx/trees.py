"""Decision trees of forests and of gradient boosting as one ONNX operator."""

import numpy as np

from skbayesnn._onnx.graph import Tensor
from skbayesnn._stacking.forest import Forest, Trees


def leaf_values(x: Tensor, model: Forest, trees, values) -> Tensor:
    """Values of the leaves of the rows, (trees, rows, targets), float64.

    One operator evaluates all trees; each tree and target has its own output.

    x : (rows, columns), float32; trees : indices; values : (leaves, targets)
    """
    shape = len(trees), values.shape[1]
    output = np.arange(shape[0] * shape[1]).reshape(shape)
    flat = summed_leaves(x, model, trees, values, output)
    split = flat.op("Reshape", np.array([-1, *shape]))
    return split.op("Transpose", perm=[1, 0, 2]).cast(np.float64)


def summed_leaves(x: Tensor, model: Trees, trees, values, output) -> Tensor:
    """Sums of leaf values over the trees with the same output, (rows, outputs).

    x : (rows, columns), float32
    trees : (trees,), indices
    values : (leaves, targets)
    output : (trees, targets), index of the output
    """
    n_targets = values.shape[1]
    ends = np.append(model.roots_[1:], len(model.feature_))
    first = model.roots_[trees]
    sizes = ends[trees] - first
    tree = np.repeat(np.arange(len(trees)), sizes)
    node = np.concatenate([np.arange(size) for size in sizes])
    at = np.repeat(first, sizes) + node
    is_leaf = model.feature_[at] < 0
    other = model.child_[at] - np.repeat(first, sizes)
    # The largest float32 that is not larger divides float32 columns equally.
    threshold = model.threshold_[at].astype(np.float32)
    above = threshold > model.threshold_[at]
    threshold[above] = np.nextafter(threshold[above], np.float32(-np.inf))
    return x.op(
        "TreeEnsembleRegressor",
        domain="ai.onnx.ml",
        n_targets=int(output.max()) + 1,
        nodes_treeids=tree.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=np.where(is_leaf, 0, model.feature_[at]).tolist(),
        nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_values=threshold.tolist(),
        nodes_truenodeids=np.where(is_leaf, 0, node + 1).tolist(),
        nodes_falsenodeids=np.where(is_leaf, 0, other).tolist(),
        target_treeids=np.repeat(tree[is_leaf], n_targets).tolist(),
        target_nodeids=np.repeat(node[is_leaf], n_targets).tolist(),
        target_ids=output[tree[is_leaf]].ravel().tolist(),
        target_weights=values[model.child_[at[is_leaf]]].ravel().tolist(),
    )
