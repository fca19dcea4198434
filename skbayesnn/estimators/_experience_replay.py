"""Rows of a stream that are kept, and seen again with the rows to come.

Without them a network forgets what it does not see any more. They are a uniform sample
of all rows so far [Vitter 1985, "Random sampling with a reservoir"; Rolnick et al.
2019, "Experience replay for continual learning", arXiv:1811.11682], in which each
stands for as many as there are to one that is kept.
"""

from typing import Any

import numpy as np
from scipy import sparse

from skbayesnn._data.validate import Table

# Arrays with an entry per row, and how many rows and what weight there have been.
Kept = dict[str, Any]


def with_kept(table: Table, kept: Kept | None) -> Table:
    """New rows, and below those that were kept, of the weight that they stand for."""
    if kept is None:
        return table
    X, weights = kept["X"].astype(table.X.dtype), kept["sample_weight"]
    weights = weights * (kept["weight_seen"] / weights.sum())
    X = sparse.csr_array(X) if sparse.issparse(table.X) else X
    return table.append(Table(X, kept["y"], weights))


def kept_of(table: Table, kept: Kept | None, n_rows: int, seed: int) -> Kept:
    """A sample of so many of the rows so far: those of the smallest random keys.

    Keys from the smallest one on that was ever left out are left out for good: rows of
    larger ones are not there any more.
    """
    if kept is None:
        kept = {"n_seen": 0, "weight_seen": 0.0, "limit": 1.0}
    used = np.flatnonzero(table.sample_weight > 0)
    key = np.random.default_rng((seed, kept["n_seen"])).random(len(used))
    # One more than can be kept; and a whole sparse table is none to make dense.
    first = np.argsort(key, kind="stable")[: n_rows + 1]
    chosen = used[first]
    X: Any = table.X[chosen]
    rows = {
        "X": X.toarray() if sparse.issparse(X) else X,
        "y": table.y[chosen],
        "sample_weight": table.sample_weight[chosen],
        "key": key[first],
    }
    if "key" in kept:
        rows = {name: np.concatenate([kept[name], rows[name]]) for name in rows}
    order = np.argsort(rows["key"], kind="stable")[: n_rows + 1]
    limit = kept["limit"]
    if len(order) > n_rows:
        limit = min(limit, float(rows["key"][order[-1]]))
    sample = order[rows["key"][order] < limit]
    return {name: values[sample] for name, values in rows.items()} | {
        "n_seen": kept["n_seen"] + len(used),
        "weight_seen": kept["weight_seen"] + float(table.sample_weight[used].sum()),
        "limit": limit,
    }
