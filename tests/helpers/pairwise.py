"""Pairwise combinations: few cases that contain every pair of values of two options.

The full product of several options repeats one code path many times. Most faults show
with one option or with a pair of options.
"""

from collections import Counter
from itertools import combinations, product


def pairwise(*axes, interacting=None):
    """Tuples of one value per axis; every pair of values of two axes occurs in one.

    axes : sequences of values, which need not be hashable
    interacting : pairs of positions of axes, if not all pairs of axes interact; in the
        other pairs every value occurs, each about equally often
    returns : list of tuples, the same at every call, in the order of the full product
    """
    axes = [list(axis) for axis in axes]
    places = [(i, i) for i in range(len(axes))]
    places += combinations(range(len(axes)), 2) if interacting is None else interacting
    pairs = {
        row: {(i, row[i], j, row[j]) for i, j in places}
        for row in product(*(range(len(axis)) for axis in axes))
    }
    missing, chosen, uses = set().union(*pairs.values()), [], Counter()
    while missing:
        gains = {
            row: len(pairs_of_row & missing) for row, pairs_of_row in pairs.items()
        }
        most = max(gains.values())
        # Among the rows with most missing pairs, take the first with the rarest values.
        best = min(
            (row for row, gain in gains.items() if gain == most),
            key=lambda row: sum(
                uses[item] * len(axes[item[0]]) for item in enumerate(row)
            ),
        )
        chosen.append(best)
        uses.update(enumerate(best))
        missing -= pairs[best]
    return [
        tuple(axis[i] for axis, i in zip(axes, row, strict=True))
        for row in sorted(chosen)
    ]
