"""Convolutions, then a perceptron [Gal16 3.4.1], over the members axis.

A kernel is the weights of a map from the patches of an image to its channels: it has a
family as any map does, and one draw serves all places of the image. Masks, of the
families that have some, are placed on the image, on units or on whole channels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import torch
from torch.nn import functional

from skbayesnn._families import Draw, Family, Params, describe_family, family_from
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn._networks.base import Keep, Network, StartNormal, start_values
from skbayesnn._networks.wired import AutogradNetwork, affine


@dataclass(frozen=True)
class Convolutional(AutogradNetwork):
    """Convolution, activation and pooling in turn, then layers of linear maps.

    Convolutions keep the size of their image, with zeros around it.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width of the inputs.
    channels, kernel_sizes, pools : tuple of int
        Of every convolution: channels that it makes, height and width of the patches,
        and of the squares whose largest value is kept.
    hidden : tuple of int
        Units of the layers behind.
    n_outputs : int
    activation : str
        A key of ``ACTIVATIONS``.
    mask_per : {"unit", "channel"}
        What has a mask of its own behind a convolution.
    families : tuple of Family
        Of every map.
    """

    image_shape: tuple[int, int, int]
    channels: tuple[int, ...]
    kernel_sizes: tuple[int, ...]
    pools: tuple[int, ...]
    hidden: tuple[int, ...]
    n_outputs: int
    activation: str
    mask_per: str
    families: tuple[Family, ...] = ()

    @property
    def images(self) -> list[tuple[int, int, int]]:
        """Channels, height and width: of the inputs, and behind every convolution."""
        shapes = [self.image_shape]
        for n_channels, pool in zip(self.channels, self.pools, strict=True):
            _, height, width = shapes[-1]
            shapes.append((n_channels, height // pool, width // pool))
        return shapes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Inputs and outputs of the linear maps."""
        return math.prod(self.images[-1]), *self.hidden, self.n_outputs

    @property
    def fan_ins(self) -> tuple[int, ...]:
        """Numbers of a patch; inputs of the linear maps."""
        before = self.image_shape[0], *self.channels
        patches = zip(before, self.kernel_sizes, strict=False)
        return *(n * k * k for n, k in patches), *self.sizes[:-1]

    @property
    def fan_outs(self) -> tuple[int, ...]:
        """Outputs of every map."""
        return *self.channels, *self.sizes[1:]

    @property
    def n_weights(self) -> int:
        """Weights and biases of one member."""
        return sum(
            (a + 1) * b for a, b in zip(self.fan_ins, self.fan_outs, strict=True)
        )

    @property
    def input_groups(self) -> tuple[tuple[int, ...], int]:
        """All pixels of a channel."""
        n_channels, height, width = self.image_shape
        return (n_channels, height * width), 1

    @property
    def smooth(self) -> bool:
        """With a smooth activation, and nothing pooled: the largest has kinks."""
        return max(self.pools) == 1 and ACTIVATIONS[self.activation].smooth

    @property
    def n_units(self) -> int:
        """Of the images, before and after they are pooled, and of all layers."""
        pooled = sum(map(math.prod, self.images[:-1]))
        return pooled + sum(self._convolved) + sum(self.sizes)

    @property
    def widest(self) -> int:
        """Units of the largest image or layer."""
        return max(math.prod(self.image_shape), *self._convolved, *self.sizes)

    @property
    def peak_activation_size(self) -> int:
        """An image before and after it is convolved, and as it is copied there."""
        seen = map(math.prod, self.images[:-1])
        steps = [2 * a + 2 * b for a, b in zip(seen, self._convolved, strict=True)]
        return max(*steps, *(a + b for a, b in pairwise(self.sizes)))

    @property
    def _convolved(self) -> list[int]:
        """Numbers of the images before they are pooled."""
        return [
            n * height * width
            for n, (_, height, width) in zip(self.channels, self.images, strict=False)
        ]

    def with_families(self, families: tuple[Family, ...]) -> Network:
        """Masks are placed on the image itself unit by unit, then as they should be."""
        placed = []
        for i, family in enumerate(families):
            if i < len(self.channels):
                shape = self.images[i]
                per_channel = i > 0 and self.mask_per == "channel"
                family = family.placed((shape[0], 1, 1) if per_channel else shape)
            placed.append(family)
        return super().with_families(tuple(placed))

    def describe(self) -> dict[str, Any]:
        """Sizes and names."""
        return {
            "name": "convolutional",
            "image_shape": list(self.image_shape),
            "channels": list(self.channels),
            "kernel_sizes": list(self.kernel_sizes),
            "pools": list(self.pools),
            "hidden": list(self.hidden),
            "n_outputs": self.n_outputs,
            "activation": self.activation,
            "mask_per": self.mask_per,
            "families": [describe_family(family) for family in self.families],
        }

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "Convolutional":
        """Undo ``describe``."""
        lists = ("image_shape", "channels", "kernel_sizes", "pools", "hidden")
        return cls(
            **{name: tuple(about[name]) for name in lists},
            n_outputs=about["n_outputs"],
            activation=about["activation"],
            mask_per=about["mask_per"],
            families=tuple(family_from(each) for each in about["families"]),
        )

    def init(self, normal: StartNormal, keep: Keep) -> list[Params]:
        """Start values of every map (He et al. 2015, arXiv 1502.01852, eq. 10)."""
        gain = ACTIVATIONS[self.activation].gain
        gains = *(gain for _ in self.fan_ins[1:]), 1.0
        return start_values(
            self.families, self.fan_ins, self.fan_outs, gains, normal, keep
        )

    def outputs(self, maps: Sequence[Draw], x: torch.Tensor) -> torch.Tensor:
        """Images are (rows, networks, channels, height, width)."""
        activate = ACTIVATIONS[self.activation].function
        n = len(self.channels)
        h = x.transpose(0, 1).unflatten(2, self.image_shape)
        for map_, size, pool in zip(
            maps[:n], self.kernel_sizes, self.pools, strict=True
        ):
            h = activate(_convolved(h, map_, size))
            h = _pooled(h, pool)
        h = h.flatten(2).transpose(0, 1)
        for i, map_ in enumerate(maps[n:]):
            h = affine(activate(h) if i else h, map_)
        return h


def _pooled(h: torch.Tensor, size: int) -> torch.Tensor:
    """The largest values of squares, images (rows, networks, ...) as above.

    Without gradients by slices of the image, which takes a quarter of the time of
    torch's own function.
    """
    if size == 1:
        return h
    if torch.is_grad_enabled():
        return functional.max_pool2d(h.flatten(0, 1), size).unflatten(0, h.shape[:2])
    for axis in (3, 4):
        n = h.shape[axis] // size
        squares = h.narrow(axis, 0, n * size).unflatten(axis, (n, size))
        h = reduce(torch.maximum, squares.unbind(axis + 1))
    return h


def _convolved(h: torch.Tensor, map_: Draw, size: int) -> torch.Tensor:
    """Images (rows, networks or 1, ...) -> images of the channels that the map makes.

    Where all networks see the same images, or have the same kernels, it is a single
    convolution, and one in groups otherwise.
    """
    weight, bias, *masks = map_
    for mask in masks:
        h = h * mask.transpose(0, 1)
    n_rows, n_seen, n_channels = h.shape[:3]
    n_kernels = len(weight)
    kernels = weight.mT.reshape(-1, n_channels, size, size)
    # Groups of one convolution, where not all see the same or have the same kernels.
    groups = 1 if 1 in (n_seen, n_kernels) else n_seen
    images = h.reshape(-1, groups * n_channels, *h.shape[3:])
    found = functional.conv2d(
        images,
        kernels,
        bias.expand(n_kernels, -1).flatten(),
        padding="same",
        groups=groups,
    )
    return found.view(n_rows, max(n_seen, n_kernels), -1, *h.shape[3:])
