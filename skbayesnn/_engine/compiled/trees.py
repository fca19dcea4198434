"""Leaves of the rows in decision trees."""

import numpy as np

from skbayesnn._engine.compiled.numerics import entry


@entry
def fill_leaves(X, roots, feature, threshold, child, leaf):
    """Leaf of each row in each tree; see ``skbayesnn._stacking.forest``.

    X : (rows, columns); roots : (trees,); feature, threshold, child : (nodes,)
    leaf : (trees, rows), the result
    """
    for tree in range(len(roots)):
        for row in range(len(X)):
            node = np.int64(roots[tree])
            while feature[node] >= 0:
                if X[row, feature[node]] <= threshold[node]:
                    node += 1
                else:
                    node = np.int64(child[node])
            leaf[tree, row] = child[node]
