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


class OpenPosterior:
    """What the draws of a posterior say, of some rows after the other.

    The drawn weights are held where they fit, few of them for other rows too, and made
    anew for every chunk of rows where they do not.

    Parameters
    ----------
    posterior : Posterior
    rows : callable
        Slice of rows -> standardised inputs on the device, (rows, inputs).
    n_rows, n_draws : int
    budget : int
        Bytes that the temporaries of one chunk may take.
    """

    def __init__(
        self,
        posterior: Posterior,
        rows: Callable[[slice], torch.Tensor],
        n_rows: int,
        n_draws: int,
        budget: int,
    ):
        keep_freed_memory()
        self._posterior, self._rows, self.n_rows = posterior, rows, n_rows
        n_draws = posterior.distinct_draws(n_draws)
        hold = 2 * posterior.bytes_of(n_draws) <= budget
        # Rows that are best asked for at once.
        self.row_step, draw_step = chunk_sizes(posterior, n_rows, n_draws, budget, hold)
        self._draws = [
            range(start, min(start + draw_step, n_draws))
            for start in range(0, n_draws, draw_step)
        ]
        self._held = posterior.cached(tuple(self._draws)) if hold else None

    def chunks(self, rows: slice | None = None) -> Iterator[slice]:
        """The rows, so many at a time as are best asked for at once."""
        first, last, _ = (rows or slice(None)).indices(self.n_rows)
        for start in range(first, last, self.row_step):
            yield slice(start, min(start + self.row_step, last))

    def by_rows(
        self, rows: slice | None = None
    ) -> Iterator[tuple[slice, Iterator[Any]]]:
        """Chunks of the rows, each with the components of its draws, some at a time.

        All draws of a chunk come before the next rows, in an order that does not
        depend on the chunks. An item is (draws * members, rows, ...), of the class
        that the likelihood names.
        """
        for chunk in self.chunks(rows):
            x = self._rows(chunk).unsqueeze(0)
            yield chunk, map(partial(self._components, x), range(len(self._draws)))

    def whole(self, rows: slice | None = None) -> Any:
        """All draws of some rows in one object."""
        parts = [_joined(list(parts)) for _, parts in self.by_rows(rows)]
        return _joined(parts, axis=1)

    def _components(self, x: torch.Tensor, i: int) -> Any:
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

    def _at_once(self, x: torch.Tensor, i: int) -> Any:
        posterior, draws = self._posterior, self._draws[i]
        with torch.inference_mode():
            drawn = self._held[i] if self._held else posterior.drawn(draws)
            outputs = drawn(x)
            outputs = outputs.expand(len(draws), posterior.n_members, -1, -1)
            values = posterior.components(outputs)
        return posterior.likelihood.components_class(
            *(value.flatten(0, 1).cpu().numpy() for value in values)
        )


def _joined(parts: list, axis: int = 0):
    return parts[0] if len(parts) == 1 else type(parts[0]).concatenated(parts, axis)


def chunk_sizes(
    posterior: Posterior, n_rows: int, n_draws: int, budget: int, held: bool
) -> tuple[int, int]:
    """Rows and draws of one chunk, so that its activations stay within the budget.

    Where the weights are not held they are made anew for every chunk of rows, which is
    then as large as a quarter of the budget allows. Draws that share what they compute
    are taken together, of as few rows as that leaves.
    """
    item = posterior.keep[0].element_size() * posterior.n_members
    per_row = item * posterior.network.live_units
    quarter = budget // 4
    target = min(quarter, _CHUNK_BYTES.get(posterior.device.type, _LARGE_CHUNK_BYTES))
    if held and posterior.shares_draws(n_draws):
        # A few times as much as they keep: most of it is shared.
        target = min(quarter, _SHARED * target)
        draw_step = int(np.clip(target // (_FEWEST_ROWS * per_row), 1, n_draws))
        return int(np.clip(target // (per_row * draw_step), 1, n_rows)), draw_step
    most = _ROWS_OF_HELD_WEIGHTS if held else n_rows
    row_step = int(
        np.clip((target if held else quarter) // per_row, 1, min(n_rows, most))
    )
    per_draw = per_row * row_step + item * posterior.network.n_weights
    return row_step, int(np.clip(target // per_draw, 1, n_draws))
