"""Posterior -> draws of the predictive, streamed within a budget of memory."""

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np
import torch

from skbayesnn._inference.memory import keep_freed_memory
from skbayesnn._inference.posterior import Posterior

# Activations of one chunk, measured; a GPU wants larger ones.
_CHUNK_BYTES = {"cpu": 1 << 23}
_LARGE_CHUNK_BYTES = 1 << 30
_ROWS_OF_HELD_WEIGHTS = 1024

Component = tuple[np.ndarray, ...]


def stream(
    posterior: Posterior,
    rows: Callable[[slice], torch.Tensor],
    n_rows: int,
    n_draws: int,
    budget: int,
) -> Iterator[tuple[slice, Component]]:
    """The predictive's components, chunk by chunk.

    Parameters
    ----------
    posterior : Posterior
    rows : callable
        Slice of rows -> standardised inputs on the device, (rows, inputs).
    n_rows, n_draws : int
    budget : int
        Bytes that the temporaries of one chunk may take.

    Yields
    ------
    chunk : slice of rows
    component : arrays (draws * members, rows, outputs)
        What the likelihood makes of the outputs: mean and variance of a Gaussian, or
        class probabilities. All draws of a chunk of rows come before the next rows,
        in an order that does not depend on the chunks.
    """
    keep_freed_memory()
    n_draws = posterior.distinct_draws(n_draws)
    hold = _fits(posterior, n_draws, budget)
    row_step, draw_step = chunk_sizes(posterior, n_rows, n_draws, budget, hold)
    draw_ranges = [
        range(start, min(start + draw_step, n_draws))
        for start in range(0, n_draws, draw_step)
    ]
    held = [posterior.draw(draws) for draws in draw_ranges] if hold else []
    with torch.inference_mode():
        for start in range(0, n_rows, row_step):
            chunk = slice(start, min(start + row_step, n_rows))
            x = rows(chunk).unsqueeze(0)
            for i, draws in enumerate(draw_ranges):
                weights = held[i] if held else posterior.draw(draws)
                outputs = posterior.network.apply(weights, x)
                lead = (len(draws), posterior.n_members)
                outputs = outputs.expand(*lead, -1, -1)
                components = posterior.components(outputs)
                yield (
                    chunk,
                    tuple(c.flatten(0, 1).cpu().numpy() for c in components),
                )


def by_rows(chunks) -> Iterator[tuple[slice, Iterator[Component]]]:
    """One item per chunk of rows, with the components of its draws one by one."""
    for chunk, group in groupby(chunks, key=itemgetter(0)):
        yield chunk, (component for _, component in group)


def all_draws(chunks) -> Iterator[tuple[slice, Component]]:
    """One item per chunk of rows, with all draws in one component."""
    for chunk, parts in by_rows(chunks):
        yield (
            chunk,
            tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True)),
        )


def whole(chunks) -> Component:
    """All draws of all rows, for a few rows: (draws * members, rows, outputs)."""
    parts = [component for _, component in all_draws(chunks)]
    return tuple(np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))


def chunk_sizes(
    posterior: Posterior, n_rows: int, n_draws: int, budget: int, held: bool
) -> tuple[int, int]:
    """Rows and draws of one chunk, so that its activations stay within the budget.

    Where the weights are not held they are made anew
    for every chunk of rows, which is then as large as a quarter of the budget allows.
    """
    item = posterior.keep[0].element_size() * posterior.n_members
    per_row = item * posterior.network.live_units
    quarter = budget // 4
    target = min(quarter, _CHUNK_BYTES.get(posterior.device.type, _LARGE_CHUNK_BYTES))
    most = _ROWS_OF_HELD_WEIGHTS if held else n_rows
    row_step = int(
        np.clip((target if held else quarter) // per_row, 1, min(n_rows, most))
    )
    per_draw = per_row * row_step + item * posterior.network.n_weights
    return row_step, int(np.clip(target // per_draw, 1, n_draws))


def _fits(posterior: Posterior, n_draws: int, budget: int) -> bool:
    """Whether the weights of all draws take at most half of the budget."""
    item = posterior.keep[0].element_size() * posterior.n_members
    return 2 * item * n_draws * posterior.network.n_weights <= budget
