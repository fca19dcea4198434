"""Convolutions, then a perceptron [Gal16 3.4.1], over the members axis.

A kernel is the weights of an affine map from image patches to channels. It has a family
as any map, and one draw is used at all positions of the image. Dropout masks are
applied to the image, per unit or per channel.
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
from skbayesnn._networks.base import InitialNormal, Keep, Network, initial_params
from skbayesnn._networks.wired import AutogradNetwork, affine


@dataclass(frozen=True)
class Convolutional(AutogradNetwork):
    """Blocks of convolution, activation and max pooling, then linear layers.

    Convolutions pad with zeros and keep the size of the image.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width of the inputs.
    channels, kernel_sizes, pools : tuple of int
        Output channels of every convolution, height and width of its kernel, and of the
        squares that are pooled.
    hidden : tuple of int
        Units of the hidden linear layers.
    n_outputs : int
    activation : str
        A key of ``ACTIVATIONS``.
    mask_per : {"unit", "channel"}
        Whether each unit or each channel after a convolution has its own mask.
    families : tuple of Family
        Variational family of every map.
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
        """Channels, height and width of the inputs, and after every convolution."""
        shapes = [self.image_shape]
        for n_channels, pool in zip(self.channels, self.pools, strict=True):
            _, height, width = shapes[-1]
            shapes.append((n_channels, height // pool, width // pool))
        return shapes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Inputs and units of the linear layers."""
        return math.prod(self.images[-1]), *self.hidden, self.n_outputs

    @property
    def fan_ins(self) -> tuple[int, ...]:
        """Values per patch of every convolution; inputs of every linear map."""
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
        """Groups of inputs: the pixels of each channel."""
        n_channels, height, width = self.image_shape
        return (n_channels, height * width), 1

    @property
    def n_units(self) -> int:
        """Units of all images, before and after pooling, and of all layers."""
        pooled = sum(map(math.prod, self.images[:-1]))
        return pooled + sum(self._convolved_sizes) + sum(self.sizes)

    @property
    def widest(self) -> int:
        """Units of the largest image or layer."""
        return max(math.prod(self.image_shape), *self._convolved_sizes, *self.sizes)

    @property
    def peak_activation_size(self) -> int:
        """An image before and after its convolution, with a copy of each."""
        seen = map(math.prod, self.images[:-1])
        steps = [
            2 * a + 2 * b for a, b in zip(seen, self._convolved_sizes, strict=True)
        ]
        return max(*steps, *(a + b for a, b in pairwise(self.sizes)))

    @property
    def _convolved_sizes(self) -> list[int]:
        """Units of the convolutions' outputs before pooling."""
        return [
            n * height * width
            for n, (_, height, width) in zip(self.channels, self.images, strict=False)
        ]

    def with_families(self, families: tuple[Family, ...]) -> Network:
        """Replace the families, with masks per unit on the inputs, then as required."""
        with_masks = []
        for i, family in enumerate(families):
            if i < len(self.channels):
                shape = self.images[i]
                per_channel = i > 0 and self.mask_per == "channel"
                family = family.with_mask_shape(
                    (shape[0], 1, 1) if per_channel else shape
                )
            with_masks.append(family)
        return super().with_families(tuple(with_masks))

    def describe(self) -> dict[str, Any]:
        """Plain values from which ``from_description`` constructs an equal network."""
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
    def from_description(cls, description: dict[str, Any]) -> "Convolutional":
        """Inverse of ``describe``."""
        lists = ("image_shape", "channels", "kernel_sizes", "pools", "hidden")
        return cls(
            **{name: tuple(description[name]) for name in lists},
            n_outputs=description["n_outputs"],
            activation=description["activation"],
            mask_per=description["mask_per"],
            families=tuple(family_from(family) for family in description["families"]),
        )

    def init(self, normal: InitialNormal, keep: Keep) -> list[Params]:
        """Initial values of every map (He et al. 2015, arXiv 1502.01852, eq. 10)."""
        gain = ACTIVATIONS[self.activation].gain
        gains = *(gain for _ in self.fan_ins[1:]), 1.0
        return initial_params(
            self.families, self.fan_ins, self.fan_outs, gains, normal, keep
        )

    def outputs(self, maps: Sequence[Draw], x: torch.Tensor) -> torch.Tensor:
        """Outputs; images have the shape (rows, networks, channels, height, width)."""
        activate = ACTIVATIONS[self.activation].function
        n = len(self.channels)
        h = x.transpose(0, 1).unflatten(2, self.image_shape)
        for map_, size, pool in zip(
            maps[:n], self.kernel_sizes, self.pools, strict=True
        ):
            h = activate(_convolve(h, map_, size))
            h = _max_pool(h, pool)
        h = h.flatten(2).transpose(0, 1)
        for i, map_ in enumerate(maps[n:]):
            h = affine(activate(h) if i else h, map_)
        return h


def _max_pool(h: torch.Tensor, size: int) -> torch.Tensor:
    """Max pooling of images (rows, networks, channels, height, width).

    Without gradients, slices of the image are compared, which takes a quarter of the
    time of torch's function.
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


def _convolve(h: torch.Tensor, map_: Draw, size: int) -> torch.Tensor:
    """Convolve images (rows, networks or 1, channels, height, width).

    If all networks have the same images or the same kernels, this is an ordinary
    convolution, else a grouped one.
    """
    weight, bias, *masks = map_
    for mask in masks:
        h = h * mask.transpose(0, 1)
    n_rows, n_images, n_channels = h.shape[:3]
    n_kernels = len(weight)
    kernels = weight.mT.reshape(-1, n_channels, size, size)

    groups = 1 if 1 in (n_images, n_kernels) else n_images
    images = h.reshape(-1, groups * n_channels, *h.shape[3:])
    outputs = functional.conv2d(
        images,
        kernels,
        bias.expand(n_kernels, -1).flatten(),
        padding="same",
        groups=groups,
    )
    return outputs.view(n_rows, max(n_images, n_kernels), -1, *h.shape[3:])
