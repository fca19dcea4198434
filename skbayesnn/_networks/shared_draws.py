"""Draws whose masks drop little, computed together.

Most masks of a low rate drop nothing: of a hundred units at a rate of .01 one. Draws
whose masks agree up to some layer have the same inputs there, of which the product
with the weights is the same, too; from it each takes off the units that its own mask
drops. The numbers are those of one product per draw, but for rounding: what is taken
off must not be much larger than the rest, so that rows with huge inputs have a product
per draw.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from skbayesnn._networks.activations import Activation

# What a pass over an output costs, in products of the same output.
_PASS = 20
# Inputs up to here leave the rest five digits in float32, ten in float64.
_LARGEST = {torch.float32: 1e2, torch.float64: 1e6}
# Masked inputs of several draws that are held at once.
_NUMBERS = 1 << 21


def pays(sizes: Sequence[int], keep: Sequence[float], n_draws: int) -> bool:
    """Whether it takes less than half of the time of a product per draw.

    sizes : units of all layers
    keep : probability that an input of each map is kept
    """
    apart, together = 0.0, 0.0
    n_inputs, all_kept = 1.0, 1.0
    for n_in, n_out, p in zip(sizes[:-1], sizes[1:], keep, strict=True):
        all_kept *= p**n_in
        n_outputs = 1 + n_draws * (1 - all_kept)
        apart += n_draws * (n_in + _PASS) * n_out
        dropped = n_in * (1 - p)
        together += (n_inputs * n_in + n_outputs * (dropped + _PASS)) * n_out
        n_inputs = n_outputs
    return n_draws > 1 and 2 * together < apart


@dataclass(frozen=True)
class _Map:
    """An affine map, and what the outputs that differ are made of.

    Parameters
    ----------
    weight, bias : (inputs, outputs), (outputs,)
    of_inputs : (different outputs,)
        Which of the different inputs.
    dropped : (different outputs, most)
        Units that are dropped, then any others.
    lost : (different outputs, most, outputs)
        Their weights, then zeros.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    of_inputs: torch.Tensor
    dropped: torch.Tensor
    lost: torch.Tensor

    def __call__(self, h: torch.Tensor) -> torch.Tensor:
        """(different inputs, rows, inputs) -> (different outputs, rows, outputs)."""
        shared = torch.addmm(self.bias, h.flatten(0, 1), self.weight)
        outputs = shared.unflatten(0, h.shape[:2])[self.of_inputs]
        if self.dropped.shape[1]:
            units = h[self.of_inputs.unsqueeze(1), :, self.dropped]
            outputs.baddbmm_(units.mT, self.lost, alpha=-1)
        return outputs


class SharedDraws:
    """Draws of one perceptron.

    Parameters
    ----------
    maps : sequence of (weight, bias, mask)
        (inputs, outputs), (outputs,), and zeros and ones (draws, inputs), or
        (1, inputs) for all draws.
    activation : Activation
    """

    def __init__(self, maps, activation: Activation):
        self._activation = activation
        self._maps: list[_Map] = []
        self._masks = [mask for *_, mask in maps]
        n_draws = max(len(mask) for *_, mask in maps)
        which = maps[0][0].new_zeros(n_draws, dtype=torch.long)
        for weight, bias, mask in maps:
            dropped = (mask == 0).expand(n_draws, -1)
            pairs = torch.cat([which.unsqueeze(1), dropped.long()], 1)
            different, which = torch.unique(pairs, dim=0, return_inverse=True)
            self._maps.append(_map_of(weight, bias, different))
        self._of_draws = which

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, inputs) -> (draws, rows, outputs)."""
        h = x.unsqueeze(0)
        for i, layer in enumerate(self._maps):
            h = layer(self._activation.in_place(h) if i else h)
        outputs = h[self._of_draws]
        far = (x.abs().amax(1) > _LARGEST[x.dtype]).nonzero().flatten()
        if len(far):
            outputs[:, far] = self._apart(x[far])
        return outputs

    def _apart(self, x: torch.Tensor) -> torch.Tensor:
        """The same by a product per draw, of so many draws as memory is there for."""
        n_draws, step = len(self._of_draws), max(1, _NUMBERS // x.numel())
        parts = []
        for start in range(0, n_draws, step):
            h = x.unsqueeze(0)
            for i, (layer, masks) in enumerate(
                zip(self._maps, self._masks, strict=True)
            ):
                h = self._activation.in_place(h) if i else h
                mask = masks if len(masks) == 1 else masks[start : start + step]
                kept = h * mask.unsqueeze(1)
                h = torch.matmul(kept, layer.weight).add_(layer.bias)
            n = min(step, n_draws - start)
            parts.append(h.expand(n, -1, -1))
        return torch.cat(parts)


def _map_of(weight, bias, different: torch.Tensor) -> _Map:
    """different : (different outputs, 1 + inputs), number of the input, dropped."""
    of_inputs, is_dropped = different[:, 0], different[:, 1:]
    most = int(is_dropped.sum(1).max())
    dropped = is_dropped.argsort(dim=1, descending=True, stable=True)[:, :most]
    lost = weight[dropped] * is_dropped.gather(1, dropped).unsqueeze(2)
    return _Map(weight, bias, of_inputs, dropped, lost)
