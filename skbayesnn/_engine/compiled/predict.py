"""Predictions of many draws of a perceptron in one compiled call, without torch.

Rows are computed in blocks that fit into a core's first cache, for all draws of a
`Plan`. Threads compute different rows; results do not depend on their number.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from skbayesnn._engine.compiled.blocks import (
    ACTIVATIONS,
    activate,
    one_output,
    rows_of,
    softmax,
    two_outputs,
    variances,
)
from skbayesnn._engine.compiled.numerics import entry
from skbayesnn._engine.compiled.plan import (
    ALL,
    DROPPED,
    MOMENTS,
    OUTPUTS,
    PROBABILITIES,
    Plan,
    plan_of,
)
from skbayesnn._likelihoods import Gaussian, StudentT
from skbayesnn._networks import Perceptron
from skbayesnn._runtime import on_threads

# ---- the loop over rows and draws


@entry
def predict(plan, x, first_row, workspace, draws, sums):
    """Outputs of all draws, or sums over the draws.

    x : (blocks, inputs, rows of a block)
    first_row : position of the first row in the results
    workspace : (2 * all units + 1, rows of a block)
    draws : (outputs, draws, all rows), written; or (outputs, draws, 0)
    sums : (3, outputs, all rows), float64, written if ``draws`` is not. Outputs of the
        first draw, and sums of the differences to it and of their squares; the rows of
        the last block are filled up.
    """
    sizes, places, n_layers = plan.sizes, plan.places, plan.sizes.size - 1
    operations, ends = plan.operations, plan.ends
    n_block, n_units, n_outputs = workspace.shape[1], places[-1], sizes[n_layers]
    outputs, is_stored = places[n_layers], draws.shape[2] > 0
    for block in range(x.shape[0]):
        start = first_row + block * n_block
        for j in range(sizes[0]):
            for i in range(n_block):
                workspace[j, i] = x[block, j, i]
        n_done = 0
        for draw in range(ends.size):
            is_new, position = n_done < ends[draw], plan.position[draw]
            while n_done < ends[draw]:
                operation = operations[n_done]
                layer, kind = operation.layer, operation.kind
                n, layer_inputs = sizes[layer + 1], places[layer]
                layer_outputs = places[layer + 1]
                n_done += 1
                # The second half of the units have what several draws use.
                full_outputs = layer_outputs + n_units
                layer_outputs = full_outputs if kind == ALL else layer_outputs
                for k in range(n % 2, n, 2):
                    two_outputs(
                        *(plan.weights, operation.weights + k, n),
                        *(plan.biases, operation.biases + k),
                        *(plan.units, operation.first, operation.last),
                        *(kind == DROPPED, workspace, layer_inputs),
                        *(full_outputs + k, layer_outputs + k),
                    )
                if n % 2:
                    one_output(
                        *(plan.weights, operation.weights, n),
                        *(plan.biases, operation.biases),
                        *(plan.units, operation.first, operation.last),
                        *(kind == DROPPED, workspace, layer_inputs),
                        *(full_outputs, layer_outputs),
                    )
                if kind != ALL and layer + 1 < n_layers:
                    activate(
                        plan.activation, workspace, layer_outputs, layer_outputs + n
                    )
            if is_new and plan.outcome == PROBABILITIES:
                softmax(workspace, outputs, outputs + n_outputs, 2 * n_units)
            elif is_new and plan.outcome == MOMENTS:
                noise = plan.noise[position % len(plan.noise)]
                variances(workspace, outputs + n_outputs // 2, noise)
            for k in range(n_outputs):
                values = workspace[outputs + k]
                if is_stored:
                    for i in range(min(n_block, draws.shape[2] - start)):
                        draws[k, position, start + i] = values[i]
                elif draw == 0:
                    for i in range(n_block):
                        sums[0, k, start + i] = values[i]
                else:
                    for i in range(n_block):
                        shifted = np.float64(values[i]) - sums[0, k, start + i]
                        sums[1, k, start + i] += shifted
                        sums[2, k, start + i] += shifted * shifted


# ---- draws of a posterior

Rows = Callable[[slice], torch.Tensor]
# The loop is faster than torch's products up to this width of a layer, and up to this
# size of the weights of all draws.
_MAX_WIDTH, _MAX_WEIGHT_BYTES = 512, 1 << 25
# Draws subtract units from a product that they share. Inputs up to here leave results
# five exact digits in float32, ten in float64; larger ones have a product per draw.
MAX_SHARED_INPUT = {torch.float32: 1e2, torch.float64: 1e6}
# Rows that a thread computes at once.
_ROWS = 512


def can_predict(posterior, n_draws: int, budget: int) -> bool:
    """Whether the loop can predict draws of a posterior.

    budget : bytes that the weights may take
    """
    network = posterior.network
    if not isinstance(network, Perceptron) or posterior.device.type != "cpu":
        return False
    if network.activation not in ACTIVATIONS or network.widest > _MAX_WIDTH:
        return False
    only_drops = all(
        family.drops or not family.stochastic for family in network.families
    )
    n_bytes = posterior.keep[0].element_size() * posterior.n_members * network.n_weights
    n_bytes *= 1 if only_drops else n_draws
    return n_bytes <= min(budget, _MAX_WEIGHT_BYTES)


class CompiledDraws:
    """Draws of a posterior that the loop computes, on torch's number of threads.

    Parameters
    ----------
    posterior : Posterior
    n_draws : int
    random : callable
        Returns the random source of the draws.
    """

    def __init__(self, posterior, n_draws: int, random: Callable[[], Any]):
        self._posterior, self._n_draws, self._random = posterior, n_draws, random
        self._plan = self._plan_of(share=True)
        self._shares = bool((self._plan.operations["kind"] == ALL).any())

    def _plan_of(self, share: bool) -> Plan:
        posterior = self._posterior
        network = posterior.network
        pairs = zip(network.families, network.fan_ins, strict=True)
        network = network.with_families(
            tuple(
                family.with_mask_shape((n,)) if family.drops else family
                for family, n in pairs
            )
        )
        maps = network.draw(posterior.layers, posterior.keep, self._random())
        return plan_of(posterior, maps, self._n_draws, share)

    @cached_property
    def _separate(self) -> Plan:
        """Plan in which no draw subtracts units, for rows with huge inputs."""
        return self._plan_of(share=False)

    def components(self, x: torch.Tensor) -> Any:
        """The likelihood's ``components_class`` of all draws.

        x : (rows, inputs)
        """
        plan, posterior = self._plan, self._posterior
        shape = plan.sizes[-1], len(plan.position), len(x)
        draws, sums = np.empty(shape, plan.weights.dtype), np.empty((3, shape[0], 0))

        def work(part: slice) -> None:
            self._predict(x[part].numpy(), part.start, draws, sums)

        _in_parallel(work, len(x))
        if plan.outcome == OUTPUTS:
            outputs = torch.as_tensor(draws).unflatten(1, (-1, posterior.n_members))
            return posterior.predictive_components(outputs.permute(1, 2, 3, 0))
        values = np.moveaxis(draws, 0, -1)
        if plan.outcome == MOMENTS:
            return posterior.likelihood.components_class(*np.split(values, 2, axis=-1))
        return posterior.likelihood.components_class(self._of_labels(values))

    def moments(self, rows: Rows, n_rows: int) -> tuple[np.ndarray, ...] | None:
        """Mean of y, and epistemic and aleatoric variances, (rows, targets) each.

        None for likelihoods whose draws must be stored.

        rows : takes a slice, returns inputs (rows, inputs)
        """
        likelihood, params = (
            self._posterior.likelihood,
            self._posterior.likelihood_params,
        )
        if self._plan.outcome == MOMENTS:
            # The second half of the outputs are variances of the noise.
            mean, variance = self._accumulated(rows, n_rows)
            n_targets = mean.shape[1] // 2
            return mean[:, :n_targets], variance[:, :n_targets], mean[:, n_targets:]
        if not isinstance(likelihood, Gaussian | StudentT):
            return None
        mean, variance = self._accumulated(rows, n_rows)
        noise = likelihood.noise_level(params).mean(0).numpy()
        return mean, variance, np.broadcast_to(noise, mean.shape)

    def mean_probability(self, rows: Rows, n_rows: int) -> np.ndarray | None:
        """Mean probabilities, (rows, labels), up to rounding of their sum; or None."""
        if self._plan.outcome != PROBABILITIES:
            return None
        return self._of_labels(self._accumulated(rows, n_rows)[0])

    def _of_labels(self, probability: np.ndarray) -> np.ndarray:
        likelihood = self._posterior.likelihood
        if likelihood.ranks is None:
            return probability
        return likelihood.label_probability(torch.as_tensor(probability)).numpy()

    def _accumulated(self, rows: Rows, n_rows: int) -> np.ndarray:
        """Means and variances over the draws, (2, rows, outputs)."""
        plan = self._plan
        n_outputs, n_draws = plan.sizes[-1], len(plan.position)
        draws = np.empty((n_outputs, n_draws, 0), plan.weights.dtype)
        sums = np.zeros((3, n_outputs, n_rows + _ROWS))

        def work(part: slice) -> None:
            self._predict(rows(part).numpy(), part.start, draws, sums)

        _in_parallel(work, n_rows)
        origin, total, squares = sums[:, :, :n_rows].transpose(0, 2, 1)
        centre = total / n_draws
        variance = np.maximum(squares / n_draws - np.square(centre), 0.0)
        return np.stack([origin + centre, variance])

    def _predict(self, x: np.ndarray, first_row: int, draws, sums) -> None:
        """Write results of some rows, from the position ``first_row``."""
        _run(self._plan, x, first_row, draws, sums)
        if not self._shares:
            return
        limit = MAX_SHARED_INPUT[self._posterior.dtype]
        large = np.flatnonzero(np.abs(x).max(1) > limit)
        if not len(large):
            return
        if draws.shape[2]:
            part = np.empty((*draws.shape[:2], len(large)), draws.dtype)
            _run(self._separate, x[large], 0, part, sums)
            draws[:, :, first_row + large] = part
        else:
            part = np.zeros((*sums.shape[:2], len(large) + _ROWS))
            _run(self._separate, x[large], 0, draws, part)
            sums[:, :, first_row + large] = part[:, :, : len(large)]


def _run(plan: Plan, x: np.ndarray, first_row: int, draws, sums) -> None:
    """Call ``predict`` for x, (rows, inputs)."""
    size = rows_of(x.dtype)
    blocks = np.zeros((-(-len(x) // size), size, x.shape[1]), x.dtype)
    blocks.reshape(-1, x.shape[1])[: len(x)] = x
    blocks = np.ascontiguousarray(blocks.transpose(0, 2, 1))
    workspace = np.empty((2 * plan.places[-1] + 1, size), x.dtype)
    predict(plan, blocks, first_row, workspace, draws, sums)


def _in_parallel(work: Callable[[slice], None], n_rows: int) -> None:
    """Call ``work`` with parts of the rows, on torch's number of threads."""
    parts = [slice(i, min(i + _ROWS, n_rows)) for i in range(0, n_rows, _ROWS)]
    on_threads([partial(work, part) for part in parts], torch.get_num_threads())
