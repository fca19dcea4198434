"""Posterior -> draws of the predictive, streamed within a budget of memory."""

from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import torch

from skbayesnn.inference.posterior import Posterior

# Activations of one chunk stay in a processor's cache; a GPU wants larger ones.
_CHUNK_BYTES = {"cpu": 1 << 22}
_LARGE_CHUNK_BYTES = 1 << 30

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
    n_draws = posterior.distinct_draws(n_draws)
    row_step, draw_step = chunk_sizes(posterior, n_rows, n_draws, budget)
    draw_ranges = [
        range(start, min(start + draw_step, n_draws))
        for start in range(0, n_draws, draw_step)
    ]
    held = _held_weights(posterior, draw_ranges, budget)
    with torch.inference_mode():
        for start in range(0, n_rows, row_step):
            chunk = slice(start, min(start + row_step, n_rows))
            x = rows(chunk).unsqueeze(0)
            for i, draws in enumerate(draw_ranges):
                weights = held[i] if held else posterior.draw(draws)
                outputs = posterior.network.apply(weights, x)
                lead = (len(draws), posterior.n_members)
                outputs = outputs.expand(*lead, -1, -1)
                components = posterior.likelihood.components(posterior.noise, outputs)
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
    posterior: Posterior, n_rows: int, n_draws: int, budget: int
) -> tuple[int, int]:
    """Rows and draws of one chunk, so that its activations stay within the budget.

    Two layers are alive at once; weights of a draw are made anew for every chunk.
    """
    sizes = posterior.network.sizes
    item = posterior.keep[0].element_size() * posterior.n_members
    per_row = item * sum(sorted(sizes[1:])[-2:])
    per_draw = item * sum(a * b for a, b in pairwise(sizes))
    device = posterior.device.type
    target = min(budget // 4, _CHUNK_BYTES.get(device, _LARGE_CHUNK_BYTES))
    row_step = int(np.clip(target // per_row, 1, min(n_rows, 1024)))
    draw_step = int(np.clip(target // (per_row * row_step + per_draw), 1, n_draws))
    return row_step, draw_step


def _held_weights(posterior, draw_ranges, budget):
    """The weights of all draws, where they fit in half of the budget; else None."""
    shapes = pairwise(posterior.network.sizes)
    n_weights = sum((a + 1) * b for a, b in shapes)
    n_draws = draw_ranges[-1].stop
    size = posterior.keep[0].element_size() * posterior.n_members * n_draws * n_weights
    if 2 * size > budget:
        return None
    return [posterior.draw(draws) for draws in draw_ranges]
