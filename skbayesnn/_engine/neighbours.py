"""Soft nearest neighbours by torch, on any device.

The formulas are in ``_engine.compiled.neighbours``. Batches and masks are the same, so
that both train the same networks, up to rounding.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from skbayesnn._engine.compiled.neighbours import MIN_DENSITY, fill_pass, part_shapes
from skbayesnn._engine.optimizer import BETA_1, BETA_2


def train_steps(
    rows,
    sizes,
    values,
    means,
    moments,
    curvature,
    learns_kernel,
    least_kernel,
    keep,
    seeds,
    step_sizes,
    epsilons,
    device: torch.device,
) -> np.ndarray:
    """Train as ``_engine.compiled.neighbours.train_steps`` does, on a device."""
    tensors = {
        name: torch.as_tensor(getattr(rows, name), device=device)
        for name in ("x", "y", "labels", "weights", "groups")
    }
    state = [torch.tensor(v, device=device) for v in (values, means, moments)]
    parameters, mean, square = state
    decay = torch.as_tensor(curvature, device=device)
    least = torch.as_tensor(least_kernel, device=device)
    first_of_kernel = len(values) - len(least)
    n_subsets = len(rows.weights) // sizes.n_subset
    order = np.empty(len(rows.weights), np.int64)
    masks = np.empty((n_subsets, 2, sizes.n_hidden), values.dtype)
    losses = np.zeros(len(seeds))
    for k, pair in enumerate(seeds):
        fill_pass(order, masks, keep, pair)
        positions = torch.as_tensor(order, device=device)
        passed = torch.as_tensor(masks, device=device)
        total = parameters.new_zeros(())
        for subset in range(n_subsets):
            step = k * n_subsets + subset
            start = subset * sizes.n_subset
            batch = positions[start : start + sizes.n_subset]
            leaf = parameters.clone().requires_grad_()
            loss = _loss(tensors, sizes, rows.n_classes, leaf, passed[subset], batch)
            (gradient,) = torch.autograd.grad(loss, leaf)
            total += loss.detach()
            if not learns_kernel:
                gradient[first_of_kernel:] = 0
            gradient += decay * parameters
            mean += (1 - BETA_1) * (gradient - mean)
            square += (1 - BETA_2) * (gradient.square() - square)
            move = mean / (square.sqrt() + float(epsilons[step]))
            parameters += float(step_sizes[step]) * move
            kernel = parameters[first_of_kernel:]
            torch.maximum(kernel, least, out=kernel)
        losses[k] = total.item() / n_subsets
        if not math.isfinite(losses[k]):
            break
    for array, tensor in zip((values, means, moments), state, strict=True):
        array[:] = tensor.cpu().numpy()
    return losses


def _loss(tensors, sizes, n_classes, values, masks, positions):
    """Mean negative log density of the queries of a batch.

    values : (parameters,); masks : (2, hidden); positions : (subset,)
    """
    x, weights = tensors["x"][positions], tensors["weights"][positions]
    network = sizes.n_inputs, sizes.n_hidden, sizes.n_embedding
    shapes = part_shapes(*network, len(tensors["y"]))
    pieces = values.split([math.prod(shape) for shape in shapes.values()])
    parts = {
        name: piece.view(shape)
        for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }
    units = x
    for k in (1, 2):
        units = (units @ parts[f"w{k}"] + parts[f"b{k}"]).relu() * masks[k - 1]
    z = units @ parts["w3"] + x @ parts["linear"]
    n = sizes.n_queries
    exponents = weights.log() - z.square().sum(1) + 2 * (z[:n] @ z.T)
    group = tensors["groups"]
    group = group[positions] if len(group) else torch.arange(len(z), device=z.device)
    is_same = group[:n, None] == group
    has_others = ~is_same.all(1)
    # A query without others has no gradient.
    exponents = exponents.masked_fill(is_same & has_others[:, None], -math.inf)
    log_kernel = _log_kernel(tensors, n_classes, parts["kernel"], positions, n)
    log_density = (exponents + log_kernel).logsumexp(1) - exponents.logsumexp(1)
    floor = log_density.new_tensor(len(tensors["y"]) * math.log(MIN_DENSITY))
    weights = weights[:n] * has_others
    return -(weights * torch.logaddexp(log_density, floor)).mean()


def _log_kernel(tensors, n_classes, kernel, positions, n):
    """log k of each query and row of a batch, (queries, subset)."""
    log_share, log_rest = (
        torch.nn.functional.logsigmoid(s * kernel[-1]) for s in (1, -1)
    )
    if n_classes:
        labels = tensors["labels"][positions]
        other = log_share - math.log(n_classes)
        equal = torch.logaddexp(log_rest, other)
        return torch.where(labels[:n, None] == labels, equal, other)
    y = tensors["y"][:, positions]
    squares = (y[:, :n, None] - y[:, None]).square()
    wide, small = (
        -0.5 * squares * (-2 * h).exp() - h for h in kernel[:-1].view(2, -1, 1, 1)
    )
    per_target = torch.logaddexp(log_share + wide, log_rest + small)
    return (per_target - 0.5 * math.log(2 * math.pi)).sum(0)


# Most distances that are computed at once.
MAX_DISTANCES = 1 << 26


class DeviceRows(NamedTuple):
    """Embedded training rows on a device, in their order.

    Parameters
    ----------
    columns : Tensor of shape (embedding, rows)
    offsets : Tensor of shape (rows,)
        log s - |z|^2, with the weights s of the rows.
    """

    columns: torch.Tensor
    offsets: torch.Tensor

    def weights(self, z: np.ndarray) -> Iterator[torch.Tensor]:
        """Weights of all rows for some queries after others, (queries, rows).

        They are relative to the largest one. z : (queries, embedding)
        """
        size = max(1, MAX_DISTANCES // len(self.offsets))
        for queries in torch.as_tensor(z, device=self.offsets.device).split(size):
            exponents = torch.addmm(self.offsets, queries, self.columns, alpha=2)
            yield (exponents - exponents.amax(1, keepdim=True)).exp()

    def relevant(self, z: np.ndarray, least: float):
        """Neighbours of each query with weights of at least ``least``.

        returns : number of neighbours of each query, and the positions and weights of
            the neighbours of all queries
        """
        parts: list[list[np.ndarray]] = [[], [], []]
        for weights in self.weights(z):
            is_relevant = weights >= least
            _, rows = is_relevant.nonzero(as_tuple=True)
            tensors = is_relevant.sum(1), rows.int(), weights[is_relevant]
            for part, tensor in zip(parts, tensors, strict=True):
                part.append(tensor.cpu().numpy())
        return tuple(map(np.concatenate, parts))

    def shares(self, z: np.ndarray, labels: np.ndarray, n_classes: int) -> np.ndarray:
        """Share of every class among the neighbours, (queries, classes)."""
        device, dtype = self.offsets.device, self.offsets.dtype
        codes = torch.as_tensor(labels, device=device)
        columns = torch.nn.functional.one_hot(codes, n_classes).to(dtype)
        sums = torch.cat([weights @ columns for weights in self.weights(z)])
        return (sums / sums.sum(1, keepdim=True)).cpu().numpy()
