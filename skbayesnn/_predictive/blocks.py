"""Predictive distributions of rows, opened block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch

from skbayesnn._engine.resources import torch_threads
from skbayesnn._runtime import on_threads

# Number of rows whose draws are in memory at once.
BLOCK = 512
# Number of rows whose versions are in memory at once, if values are unknown.
ROWS_WITH_VERSIONS = 1024

# A MixturePredictive or a ClassPredictive.
Predictive = Any


@dataclass(frozen=True)
class PredictiveBlocks:
    """Predictive distribution on the rows of some X, with fixed draws.

    Parameters
    ----------
    n_rows : int
    distribution : callable
        Maps a slice of rows to their predictive distribution.
    block : int
        Number of rows that ``distribution`` handles best.
    open_part : callable, optional
        Opens the part of ``part_rows`` rows that starts at a row. Several threads may
        call it.
    part_rows : int
    by_draws : PredictiveBlocks, optional
        The same rows, for what need not have all draws of a block in memory: ``mean``,
        ``uncertainty``, ``log_density``, ``sample`` and ``sample_f``.
    """

    n_rows: int
    distribution: Callable[[slice], Predictive]
    block: int = BLOCK
    open_part: Callable[[int], PredictiveBlocks] | None = None
    part_rows: int = 0
    by_draws: PredictiveBlocks | None = None

    @classmethod
    def mapped(cls, inner: Sequence[PredictiveBlocks], function) -> PredictiveBlocks:
        """Apply ``function`` to several models' distributions of the same rows."""
        return cls(
            inner[0].n_rows,
            lambda rows: function(*(blocks.distribution(rows) for blocks in inner)),
            min(BLOCK, *(blocks.block for blocks in inner)),
        )

    @classmethod
    def in_parts(
        cls, n_rows: int, opened, n_at_once: int, in_threads: bool = False
    ) -> PredictiveBlocks:
        """Open a few rows at a time, if an open part needs much memory.

        opened : callable, maps a slice of rows to their ``PredictiveBlocks``
        n_at_once : number of rows
        in_threads : whether several threads may call ``opened``
        """
        first = opened(slice(0, min(n_rows, n_at_once)))
        if n_rows <= n_at_once:
            return first
        # A block never spans two parts.
        step = max(n_at_once // first.block, 1) * first.block
        # Keep only the last part that was used; the first is open already.
        open_parts = {0: first} if step <= n_at_once else {}

        def part(start):
            if start not in open_parts:
                open_parts.clear()
                open_parts[start] = opened(slice(start, min(start + step, n_rows)))
            return open_parts[start]

        def distribution(rows):
            pieces = []
            for start in range(rows.start // step * step, rows.stop, step):
                within = slice(max(rows.start - start, 0), min(rows.stop - start, step))
                pieces.append(part(start).distribution(within))
            if len(pieces) == 1:
                return pieces[0]
            return type(pieces[0]).concatenate_rows(pieces)

        def open_part(start):
            if start == 0 and step == n_at_once:
                return first
            return opened(slice(start, min(start + step, n_rows)))

        return cls(
            n_rows, distribution, first.block, open_part if in_threads else None, step
        )

    @classmethod
    def of_encoded(cls, encoded, opened) -> PredictiveBlocks:
        """Open encoded rows, and mix the versions of rows with unknown values.

        encoded : ``EncodedRows``
        opened : callable, maps features of rows to their ``PredictiveBlocks``
        """
        if not encoded.unknown:
            return opened(encoded.X)

        def part(rows):
            X, n_versions = encoded.versions(rows)
            inner = opened(X)
            if len(X) == len(n_versions):
                return inner
            return inner._mixing_versions(n_versions)

        return cls.in_parts(encoded.X.shape[0], part, ROWS_WITH_VERSIONS)

    def _mixing_versions(self, n_versions: np.ndarray) -> PredictiveBlocks:
        """Blocks of rows, if these are blocks of the versions of the rows.

        n_versions : (rows,); the versions of a row are adjacent
        """
        first, most = np.cumsum(n_versions) - n_versions, int(n_versions.max())

        def distribution(rows):
            start, number = first[rows.start], n_versions[rows]
            versions = self.distribution(slice(start, start + number.sum()))
            return versions.mix_versions(first[rows] - start, number, most)

        block = max(1, min(BLOCK, self.block) // most)
        return PredictiveBlocks(len(n_versions), distribution, block)

    def whole(self) -> Predictive:
        """Predictive distribution of all rows at once."""
        return self.distribution(slice(0, self.n_rows))

    def blocks(self) -> Iterator[tuple[slice, Predictive]]:
        """Yield slices that cover all rows, with their predictive distributions."""
        for start in range(0, self.n_rows, self.block):
            rows = slice(start, min(start + self.block, self.n_rows))
            yield rows, self.distribution(rows)

    def map(self, function: Callable[[slice, Predictive], Any]) -> list:
        """Apply ``function`` to the rows and the distribution of every block.

        Parts are computed on as many threads as torch uses, if they may be.
        """
        n_threads, open_part = torch.get_num_threads(), self.open_part
        if open_part is None or n_threads == 1:
            return [function(*block) for block in self.blocks()]

        def of_part(start: int) -> list:
            results = []
            with torch_threads(1):
                for rows, distribution in open_part(start).blocks():
                    rows = slice(start + rows.start, start + rows.stop)
                    results.append(function(rows, distribution))
            return results

        starts = range(0, self.n_rows, self.part_rows)
        parts = on_threads([partial(of_part, i) for i in starts], n_threads)
        return list(chain.from_iterable(parts))
