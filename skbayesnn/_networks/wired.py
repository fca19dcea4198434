"""Networks that are one function of their maps' weights; the rest is derived."""

from abc import abstractmethod
from collections.abc import Sequence

import torch

from skbayesnn._families import Draw, Params, RandomSource
from skbayesnn._networks.base import Keep, Network, NetworkPullback

# Of the widest layer's: these stay in a core's cache.
_NUMBERS_AT_ONCE = 1 << 21
# Of the tangent kernel, for each of which the weights are copied.
_ROWS_AT_ONCE = 32


class AutogradNetwork(Network):
    """One function says how the maps are wired, in training and at prediction.

    In training the weights are a draw of the step, or masks are each row's own (see
    ``Family.held``): whatever a map is used for, it is the same one at all places of a
    row. Gradients come from autograd.
    """

    @abstractmethod
    def outputs(self, maps: Sequence[Draw], x: torch.Tensor) -> torch.Tensor:
        """Several networks on the same or on their own rows.

        Axes of length 1 stand for all.

        maps : of every group weights (networks, inputs, outputs), biases (networks,
            outputs) and, of masks that are not in the weights, these (networks, rows,
            \\*units)
        x : (networks, rows, inputs); not changed
        returns : (networks, rows, outputs)
        """

    def vjp(
        self, layers: list[Params], keep: Keep, x: torch.Tensor, noise: RandomSource
    ) -> tuple[torch.Tensor, NetworkPullback]:
        """One pass with what is held of each family, and its pullback."""
        leaves = [
            {
                name: value.detach().requires_grad_(name not in family.constants)
                for name, value in params.items()
            }
            for family, params in zip(self.families, layers, strict=True)
        ]
        groups = zip(self.families, leaves, keep, strict=True)
        with torch.enable_grad():
            maps = [family.held(own, p, noise, x.shape[1]) for family, own, p in groups]
            outputs = self._in_parts(maps, x.detach())
        learned = [
            (i, name)
            for i, own in enumerate(leaves)
            for name, value in own.items()
            if value.requires_grad
        ]

        def gradients(gradient: torch.Tensor) -> list[Params]:
            flat = torch.autograd.grad(
                outputs,
                [leaves[i][name] for i, name in learned],
                gradient,
                materialize_grads=True,
            )
            found: list[Params] = [{} for _ in leaves]
            for (i, name), value in zip(learned, flat, strict=True):
                found[i][name] = value
            return found

        return outputs.detach(), gradients

    def _in_parts(self, maps: list[Draw], x: torch.Tensor) -> torch.Tensor:
        """``outputs``; on a CPU of so many networks at a time as its caches hold."""
        n_networks = max(len(weight) for weight, *_ in maps)
        step = max(1, _NUMBERS_AT_ONCE // (x.shape[1] * self.widest))
        if step >= n_networks or x.device.type != "cpu":
            return self.outputs(maps, x)
        split = [[_split(value, step, n_networks) for value in draw] for draw in maps]
        return torch.cat(
            [
                self.outputs([tuple(v[i] for v in draw) for draw in split], own)
                for i, own in enumerate(_split(x, step, n_networks))
            ]
        )

    def apply(self, weights: list[Draw], x: torch.Tensor) -> torch.Tensor:
        """Draws times members are so many networks."""
        n_draws = max(len(value) for w, _, *masks in weights for value in (w, *masks))
        n_members = max(weights[0][0].shape[1], len(x))
        lead = n_draws, n_members
        maps = [
            (
                _networks(weight, lead),
                _networks(bias if bias.ndim == 3 else bias.unsqueeze(0), lead),
                # A mask of a draw is that of all rows.
                *(_networks(mask, lead).unsqueeze(1) for mask in masks),
            )
            for weight, bias, *masks in weights
        ]
        outputs = self.outputs(maps, _networks(x.unsqueeze(0), lead))
        if len(outputs) == 1:
            return outputs.unsqueeze(0)
        return outputs.unflatten(0, lead)

    def tangent_kernel(
        self,
        weights: list[Draw],
        variances: Sequence[tuple[torch.Tensor, torch.Tensor]],
        x: torch.Tensor,
        outputs: slice,
    ) -> torch.Tensor:
        """As the base class has it, at the cost of one pass over the rows per output.

        Every row is a network of its own, whose gradient is that of their sum.
        """
        kernels = []
        for i in range(weights[0][0].shape[1]):
            of_leaves = [value[i] for group in variances for value in group]
            rows = (x[0] if len(x) == 1 else x[i]).split(_ROWS_AT_ONCE)
            parts = [self._slopes(weights, i, some, outputs) for some in rows]
            kernel = x.new_zeros(())
            for variance, *of_rows in zip(of_leaves, *parts, strict=True):
                slope = torch.cat(of_rows, dim=1).flatten(0, 1)
                kernel = kernel + variance * slope @ slope.mT
            kernels.append(kernel)
        return torch.stack(kernels)

    def _slopes(self, weights: list[Draw], i: int, x: torch.Tensor, outputs: slice):
        """Gradients of the rows' outputs, of a member: per leaf (outputs, rows, size).

        x : (rows, inputs)
        """
        own = [
            (
                w[0, i].expand(len(x), *w.shape[2:]).detach().requires_grad_(),
                b.flatten(0, -2)[i].expand(len(x), -1).detach().requires_grad_(),
                *(mask[0, i][None, None] for mask in masks),
            )
            for w, b, *masks in weights
        ]
        with torch.enable_grad():
            sums = self.outputs(own, x.unsqueeze(1))[:, 0, outputs].sum(0).unbind()
        leaves = [value for group in own for value in group[:2]]
        found = [torch.autograd.grad(each, leaves, retain_graph=True) for each in sums]
        return [torch.stack(of_leaf).flatten(2) for of_leaf in zip(*found, strict=True)]


def _split(values: torch.Tensor, step: int, n_networks: int):
    """Parts of the networks; what stands for all is in each of them."""
    if len(values) == 1:
        return [values] * -(-n_networks // step)
    return values.split(step)


def _networks(values: torch.Tensor, lead: tuple[int, int]) -> torch.Tensor:
    """(draws or 1, members or 1, ...) -> (draws * members, ...), or 1 for all."""
    if values.shape[:2] == (1, 1):
        return values[0]
    return values.expand(*lead, *values.shape[2:]).flatten(0, 1)


def affine(h: torch.Tensor, map_: Draw) -> torch.Tensor:
    """(networks, rows, inputs) -> (networks, rows, outputs), of masked inputs."""
    weight, bias, *masks = map_
    for mask in masks:
        h = h * mask
    product = h @ (weight[0] if len(weight) == 1 else weight)
    return product + bias.unsqueeze(1)
