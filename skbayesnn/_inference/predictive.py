"""Posterior -> draws of the predictive, streamed within a budget of memory."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from skbayesnn._inference.memory import is_out_of_memory, keep_freed_memory
from skbayesnn._inference.posterior import Posterior

# Activations of one chunk, measured; a GPU wants larger ones.
_CHUNK_BYTES = {"cpu": 1 << 23}
_LARGE_CHUNK_BYTES = 1 << 30
_ROWS_OF_HELD_WEIGHTS = 1024
# Of draws that share what they compute: rows, and chunks of the others' size.
_FEWEST_ROWS, _SHARED = 32, 4
# Weights of all draws that are held, or the inputs of a chunk where they are not.
_MOST_HELD_BYTES = 1 << 27
# Inputs of a chunk beside held weights, and activations of a draw where none are held.
_MOST_BYTES = 1 << 26
# Of an input while it is standardised, in double precision.
_BYTES_OF_INPUT = 16
# What all draws predict for the rows of a block.
_BLOCK_BYTES = 1 << 24


class OpenPosterior:
    """Predictions of the draws of a posterior, some rows after the other.

    The drawn weights are held where they fit, few of them for other rows too, and drawn
    again for every chunk of rows where they do not.

    Parameters
    ----------
    posterior : Posterior
    rows : callable
        Slice of rows -> standardised inputs on the device, (rows, inputs), or
        ``SparseInputs``.
    n_rows, n_draws : int
    budget : int
        Bytes that the temporaries of one chunk may take.
    is_sparse : bool
        Whether ``rows`` returns ``SparseInputs``.
    """

    def __init__(
        self,
        posterior: Posterior,
        rows: Callable[[slice], Any],
        n_rows: int,
        n_draws: int,
        budget: int,
        is_sparse: bool = False,
    ):
        keep_freed_memory()
        self._posterior, self._rows, self.n_rows = posterior, rows, n_rows
        self._is_sparse, self._budget = is_sparse, budget
        n_draws = posterior.distinct_draws(n_draws)
        kept = posterior.bytes_of(n_draws, is_sparse)
        hold = kept <= min(budget // 2, _MOST_HELD_BYTES)
        self._row_step, draw_step = chunk_sizes(
            posterior, n_rows, n_draws, budget, hold, is_sparse
        )
        self._draws = [
            range(start, min(start + draw_step, n_draws))
            for start in range(0, n_draws, draw_step)
        ]
        self._held = posterior.cached(tuple(self._draws), is_sparse) if hold else None

    @property
    def block(self) -> int:
        """Rows to ask ``whole`` for at once: it holds all of their draws."""
        posterior = self._posterior
        n_numbers = posterior.n_members * posterior.likelihood.n_outputs
        of_row = posterior.keep[0].element_size() * self._draws[-1].stop * n_numbers
        most = min(self._budget // 4, _BLOCK_BYTES) // of_row
        return int(np.clip(most, 1, self._row_step))

    def chunks(self, rows: slice | None = None) -> Iterator[slice]:
        """The rows, so many at a time as are best computed at once."""
        first, last, _ = (rows or slice(None)).indices(self.n_rows)
        for start in range(first, last, self._row_step):
            yield slice(start, min(start + self._row_step, last))

    def by_rows(
        self, rows: slice | None = None
    ) -> Iterator[tuple[slice, Iterator[Any]]]:
        """Chunks of the rows, each with the components of its draws, some at a time.

        All draws of a chunk come before the next rows, in an order that does not
        depend on the chunks. An item is (draws * members, rows, ...), of the class
        that the likelihood names.
        """
        for chunk in self.chunks(rows):
            x = self._rows(chunk)
            x = x if self._is_sparse else x.unsqueeze(0)
            yield chunk, map(partial(self._components, x), range(len(self._draws)))

    def whole(self, rows: slice | None = None) -> Any:
        """All draws of some rows in one object."""
        kind = self._posterior.likelihood.components_class
        n_draws = self._draws[-1].stop * self._posterior.n_members
        parts = [kind.collected(parts, n_draws) for _, parts in self.by_rows(rows)]
        return _joined(parts, axis=1)

    def _components(self, x, i: int) -> Any:
        """Of the draws with number i, x (1, rows, inputs).

        Where memory runs out it goes on with half as many rows at a time.
        """
        n_rows = x.shape[1]
        try:
            return self._at_once(x, i)
        except Exception as error:
            if n_rows == 1 or not is_out_of_memory(error):
                raise
        # Outside of `except`, whose traceback holds what did not fit.
        halves = x.split(-(-n_rows // 2), dim=1)
        return _joined([self._components(half, i) for half in halves], axis=1)

    def _at_once(self, x, i: int) -> Any:
        posterior, draws = self._posterior, self._draws[i]
        with torch.inference_mode():
            if self._held:
                drawn = self._held[i]
            else:
                drawn = posterior.drawn(draws, self._is_sparse)
            outputs = drawn(x)
            outputs = outputs.expand(len(draws), posterior.n_members, -1, -1)
            values = posterior.components(outputs)
        return posterior.likelihood.components_class(
            *(value.flatten(0, 1).cpu().numpy() for value in values)
        )


def _joined(parts: list, axis: int):
    return parts[0] if len(parts) == 1 else type(parts[0]).concatenated(parts, axis)


def chunk_sizes(
    posterior: Posterior,
    n_rows: int,
    n_draws: int,
    budget: int,
    held: bool,
    is_sparse: bool = False,
) -> tuple[int, int]:
    """Rows and draws of one chunk, so that all of it stays within the budget.

    That are inputs, activations, and the weights of so many draws. Where these are not
    held they are drawn again for every chunk of rows, which is then as large as it may
    be. Draws that share what they compute are taken together, of as few rows as that
    leaves.
    """
    network, quarter = posterior.network, budget // 4
    item = posterior.keep[0].element_size() * posterior.n_members
    per_row = item * network.live_units
    most_rows = n_rows
    if not is_sparse:
        most = min(quarter, _MOST_BYTES if held else _MOST_HELD_BYTES)
        most_rows = min(n_rows, max(1, most // (_BYTES_OF_INPUT * network.widest)))
    target = min(quarter, _CHUNK_BYTES.get(posterior.device.type, _LARGE_CHUNK_BYTES))
    if held and not is_sparse and posterior.shares_draws(n_draws):
        # A few times as much as they keep: most of it is shared.
        target = min(quarter, _SHARED * target)
        # Of every draw the units that it drops are copied.
        per_row += item * posterior.n_dropped
        draw_step = int(np.clip(target // (_FEWEST_ROWS * per_row), 1, n_draws))
        return int(np.clip(target // (per_row * draw_step), 1, most_rows)), draw_step
    if held:
        most_rows = min(most_rows, _ROWS_OF_HELD_WEIGHTS)
    of_rows = target if held else min(quarter, _MOST_BYTES)
    row_step = int(np.clip(of_rows // per_row, 1, most_rows))
    per_draw = per_row * row_step + item * network.n_weights
    return row_step, int(np.clip(target // per_draw, 1, n_draws))
