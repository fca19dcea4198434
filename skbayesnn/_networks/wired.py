"""Networks defined by one function of their maps' weights, with autograd gradients."""

from abc import abstractmethod
from collections.abc import Sequence

import torch

from skbayesnn._families import Draw, Params, RandomSource
from skbayesnn._networks.base import Keep, Network, NetworkPullback

# Values of the widest layer at once, so that they stay in a core's cache.
_MAX_VALUES = 1 << 21
# Rows at once for the tangent kernel, each with a copy of the weights.
_MAX_ROWS = 32


class AutogradNetwork(Network):
    """A network with one function for training and prediction; it uses autograd.

    In training, each step draws weights, or a mask per row (see
    ``Family.training_draw``). A map that is used at several positions of a row uses the
    same draw at all of them.
    """

    @abstractmethod
    def outputs(self, maps: Sequence[Draw], x: torch.Tensor) -> torch.Tensor:
        """Outputs of several networks, on shared or separate rows.

        Axes of length 1 broadcast.

        maps : for every group weights (networks, inputs, outputs), biases (networks,
            outputs) and, unless they are part of the weights, masks (networks, rows,
            \\*units)
        x : (networks, rows, inputs); not changed
        returns : (networks, rows, outputs)
        """

    def vjp(
        self, layers: list[Params], keep: Keep, x: torch.Tensor, random: RandomSource
    ) -> tuple[torch.Tensor, NetworkPullback]:
        """One forward pass with the families' shared draws, and its pullback."""
        leaves = [
            {
                name: value.detach().requires_grad_(name not in family.constants)
                for name, value in params.items()
            }
            for family, params in zip(self.families, layers, strict=True)
        ]
        groups = zip(self.families, leaves, keep, strict=True)
        with torch.enable_grad():
            maps = [
                family.training_draw(leaf, p, random, x.shape[1])
                for family, leaf, p in groups
            ]
            outputs = self._in_parts(maps, x.detach())
        learned = [
            (i, name)
            for i, leaf in enumerate(leaves)
            for name, value in leaf.items()
            if value.requires_grad
        ]

        def gradients(gradient: torch.Tensor) -> list[Params]:
            flat = torch.autograd.grad(
                outputs,
                [leaves[i][name] for i, name in learned],
                gradient,
                materialize_grads=True,
            )
            grads: list[Params] = [{} for _ in leaves]
            for (i, name), value in zip(learned, flat, strict=True):
                grads[i][name] = value
            return grads

        return outputs.detach(), gradients

    def _in_parts(self, maps: list[Draw], x: torch.Tensor) -> torch.Tensor:
        """``outputs``; on a CPU, for as many networks at once as its caches hold."""
        n_networks = max(len(weight) for weight, *_ in maps)
        step = max(1, _MAX_VALUES // (x.shape[1] * self.widest))
        if step >= n_networks or x.device.type != "cpu":
            return self.outputs(maps, x)
        split = [[_split(value, step, n_networks) for value in draw] for draw in maps]
        return torch.cat(
            [
                self.outputs([tuple(v[i] for v in draw) for draw in split], x_part)
                for i, x_part in enumerate(_split(x, step, n_networks))
            ]
        )

    def apply(self, weights: list[Draw], x: torch.Tensor) -> torch.Tensor:
        """Outputs for drawn weights; each pair of draw and member is a network."""
        n_draws = max(len(value) for w, _, *masks in weights for value in (w, *masks))
        n_members = max(weights[0][0].shape[1], len(x))
        lead = n_draws, n_members
        maps = [
            (
                _flatten_networks(weight, lead),
                _flatten_networks(bias if bias.ndim == 3 else bias.unsqueeze(0), lead),
                # All rows of a draw share its mask.
                *(_flatten_networks(mask, lead).unsqueeze(1) for mask in masks),
            )
            for weight, bias, *masks in weights
        ]
        outputs = self.outputs(maps, _flatten_networks(x.unsqueeze(0), lead))
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
        """Covariance of outputs over rows, as in ``Network``.

        It costs one pass over the rows per output: every row has its own copy of the
        weights, so the gradient of a sum over rows contains the gradient of each row.
        """
        kernels = []
        for i in range(weights[0][0].shape[1]):
            leaf_variances = [value[i] for group in variances for value in group]
            rows = (x[0] if len(x) == 1 else x[i]).split(_MAX_ROWS)
            parts = [self._jacobians(weights, i, x_part, outputs) for x_part in rows]
            kernel = x.new_zeros(())
            for variance, *jacobians in zip(leaf_variances, *parts, strict=True):
                jacobian = torch.cat(jacobians, dim=1).flatten(0, 1)
                kernel = kernel + variance * jacobian @ jacobian.mT
            kernels.append(kernel)
        return torch.stack(kernels)

    def _jacobians(self, weights: list[Draw], i: int, x: torch.Tensor, outputs: slice):
        """Jacobian of a member's outputs, per parameter (outputs, rows, size).

        x : (rows, inputs)
        """
        maps = [
            (
                w[0, i].expand(len(x), *w.shape[2:]).detach().requires_grad_(),
                b.flatten(0, -2)[i].expand(len(x), -1).detach().requires_grad_(),
                *(mask[0, i][None, None] for mask in masks),
            )
            for w, b, *masks in weights
        ]
        with torch.enable_grad():
            totals = self.outputs(maps, x.unsqueeze(1))[:, 0, outputs].sum(0).unbind()
        leaves = [value for group in maps for value in group[:2]]
        grads = [
            torch.autograd.grad(total, leaves, retain_graph=True) for total in totals
        ]
        return [
            torch.stack(leaf_grads).flatten(2)
            for leaf_grads in zip(*grads, strict=True)
        ]


def _split(values: torch.Tensor, step: int, n_networks: int):
    """Split along the networks axis; an axis of length 1 is repeated."""
    if len(values) == 1:
        return [values] * -(-n_networks // step)
    return values.split(step)


def _flatten_networks(values: torch.Tensor, lead: tuple[int, int]) -> torch.Tensor:
    """Flatten (draws or 1, members or 1, ...) to (draws * members or 1, ...)."""
    if values.shape[:2] == (1, 1):
        return values[0]
    return values.expand(*lead, *values.shape[2:]).flatten(0, 1)


def affine(h: torch.Tensor, map_: Draw) -> torch.Tensor:
    """Affine map of masked inputs, (networks, rows, inputs) to (..., outputs)."""
    weight, bias, *masks = map_
    for mask in masks:
        h = h * mask
    product = h @ (weight[0] if len(weight) == 1 else weight)
    return product + bias.unsqueeze(1)
