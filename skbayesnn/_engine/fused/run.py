"""Train the members of a program on a GPU, one Triton program per member."""

from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch

from skbayesnn._engine.config import MemberParams, TrainingConfig
from skbayesnn._engine.fused import kernel
from skbayesnn._engine.member_loops import (
    EpochPlan,
    Epochs,
    family_name,
    likelihood_name,
    prior_vectors,
)
from skbayesnn._engine.optimizer import BETA_1, BETA_2
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.random import dropped_values
from skbayesnn._engine.step import RowPerturbation, TrainingState
from skbayesnn._engine.training_random import SplitMix
from skbayesnn._families import Family
from skbayesnn._networks import Perceptron
from skbayesnn._priors import Prior

# Largest networks: what fits into registers as tiles.
_MAX_HIDDEN_LAYERS, _MAX_WIDTH, _MAX_INPUTS, _MAX_OUTPUTS = 3, 128, 512, 64
# Progress is reported this often, in seconds.
_SECONDS = 0.25
# Memory of the positions of rows for one launch, and sorted values at once.
_ORDER_BYTES, _SORTED_AT_ONCE = 1 << 28, 1 << 25
# Rows and columns of a tile. Larger tiles do not fit into the registers.
_ROW_TILE, _COLUMN_TILE = 32, 32
_NAMES = "mean", "bias", "rho", "bias_rho"
_LIKELIHOOD_PARAMS = {
    "gaussian": ("log_tau",),
    "heteroscedastic": ("log_tau", "gain", "largest_log_variance"),
    "categorical": ("log_tau",),
}


def can_train(
    config: TrainingConfig, members: MemberParams, rows, posterior: Posterior
) -> bool:
    """Whether the fused kernel can train a program.

    rows : TrainingRows
    """
    network, likelihood = config.network, config.likelihood
    if type(network) is not Perceptron or posterior.dtype != torch.float32:
        return False
    n_inputs, *widths, n_outputs = network.sizes
    has_device = posterior.device.type == "cuda" or kernel.IS_INTERPRETED
    fits = (
        has_device
        and 1 <= len(widths) <= _MAX_HIDDEN_LAYERS
        and max(widths) <= _MAX_WIDTH
        and n_inputs <= _MAX_INPUTS
        and n_outputs <= _MAX_OUTPUTS
    )
    names = [family_name(family) for family in network.families]
    return (
        fits
        and rows.is_dense
        and network.activation in kernel.ACTIVATIONS
        and config.gradient == "pathwise"
        and likelihood_name(likelihood) in kernel.LIKELIHOODS
        and not (likelihood.name == "heteroscedastic" and n_outputs > 2)
        and (config.n_training_draws == 1 or not network.stochastic)
        and len(set(names[1:-1])) <= 1
        and all(map(_is_covered, network.families))
    )


def _is_covered(family: Family) -> bool:
    if family_name(family) not in kernel.FAMILIES:
        return False
    # The first needs weights that all rows share; the last has a mask in addition.
    return not (family.shared_draw or family.sampled_kl or family.spike)


class _Schedule(NamedTuple):
    """Arguments of the kernel that depend on the epochs."""

    n_steps: torch.Tensor
    order: torch.Tensor
    seeds: torch.Tensor
    steps: torch.Tensor
    gain: torch.Tensor


class FusedRunner:
    """Runs epochs of all members of a program, as ``training.TorchRunner``.

    Parameters
    ----------
    config : TrainingConfig
    members : MemberParams
    rows : TrainingRows
    priors : tuple of Prior
    state : TrainingState
        Its parameters and moments are trained in place.
    perturbation : RowPerturbation or None
    """

    engine = "fused"

    def __init__(
        self,
        config: TrainingConfig,
        members: MemberParams,
        rows,
        priors: tuple[Prior, ...],
        state: TrainingState,
        perturbation: RowPerturbation | None,
    ):
        self._config, self._members, self.state = config, members, state
        self._device = state.parameters.values.device
        self._n_members = len(members.seeds)
        assert isinstance(config.network, Perceptron)
        self._network: Perceptron = config.network
        self._batch_rows = config.batch_rows(rows.n_rows)
        self._orders = _Orders(members.seeds, rows.n_rows, config.n_batches)
        values = state.parameters.values
        self._vectors = (
            values,
            *state.moments(),
            torch.zeros_like(values),
            *prior_vectors(config, priors, state),
        )
        self._fixed = self._fixed_arguments(rows, perturbation)
        self._options = self._compile_options(rows, perturbation)
        self._plan = EpochPlan(config, members, state)
        nothing = self._plan.epochs(0, 0, 1)._replace(n_left=0 * members.n_epochs)
        _, at_start = self._launch(self._schedule(nothing))
        self._kl_constant = state.penalty.kl() - at_start[0]
        self.max_epochs = 1

    def run(self, first: int, epoch: int, n_epochs: int):
        """Train all members for some epochs; return nll and KL, (epochs, members).

        first : epochs of earlier runs
        epoch : epochs of this run so far
        """
        start = perf_counter()
        nll, kl = self._launch(
            self._schedule(self._plan.epochs(first, epoch, n_epochs))
        )
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.state.count_steps(n_epochs * self._config.n_batches)
        # The next run takes about ``_SECONDS``, if its row positions fit in memory.
        growth = min(_SECONDS / (perf_counter() - start), 8)
        per_epoch = 4 * self._orders.n_orders * self._orders.n_positions
        fits = _ORDER_BYTES // per_epoch
        self.max_epochs = max(1, min(int(n_epochs * growth), fits))
        return nll, kl + self._kl_constant

    def _launch(self, schedule: _Schedule) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the kernel; return nll and KL per row, (epochs, members)."""
        n_epochs, n_members = len(schedule.seeds), self._n_members
        nll, kl = self._vectors[0].new_full((2, n_epochs, n_members), float("nan"))
        starts, widths, *table, by_member, by_map = self._fixed
        kernel.train_epochs[(n_members,)](
            *self._vectors,
            starts,
            widths,
            *table,
            *by_member[:4],
            schedule.n_steps,
            *by_member[4:],
            *by_map,
            schedule.order,
            schedule.seeds,
            schedule.steps,
            schedule.gain,
            nll,
            kl,
            n_members,
            n_epochs,
            self._config.n_batches,
            self._rows_per_subset,
            self._orders.batch_rows,
            self._n_targets,
            **self._options,
        )
        return nll, kl / self._total_weight

    # ---- arguments

    def _int32(self, values) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values)).to(self._device, torch.int32)

    def _float32(self, values) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values)).to(self._device, torch.float32)

    def _fixed_arguments(self, rows, perturbation):
        config, state = self._config, self.state
        likelihood, table = config.likelihood, rows.subset_tables()
        self._n_targets = max(likelihood.gaussian_targets, 1)
        self._total_weight = rows.total_weight
        self._rows_per_subset = int(rows.n_rows.max())
        none = self._float32([0.0])
        weights, shift, weight_scale = table.weights, none, 1 / rows.mean_weight
        if perturbation is not None and perturbation.on_y:
            shift = perturbation.values.contiguous()
        elif perturbation is not None:
            weights = perturbation.values[..., 0].contiguous()
            if table.weights is not None:
                weights = weights * table.weights[table.subset]
        places = state.parameters.offsets()
        starts = [
            places.get((i, name), (0, 0))[0]
            for i in range(len(config.network.families))
            for name in _NAMES
        ]
        group = len(config.network.families)
        starts += [places[group, n][0] for n in _LIKELIHOOD_PARAMS[likelihood.name]]
        learns = np.broadcast_to(self._members.learns_likelihood, self._n_members)
        keep = torch.stack(list(state.posterior.keep))
        by_member = (
            self._int32(table.subset.cpu()),
            self._int32(self._orders.order_of_member),
            self._int32(state.schedule.index),
            self._int32(self._batch_rows),
            state.objective.scale.expand(self._n_members).contiguous(),
            weight_scale.contiguous(),
            state.objective.kl_scale.contiguous(),
            self._int32(learns),
        )
        is_class = likelihood.is_classification
        return (
            torch.tensor(starts, device=self._device),
            self._int32(self._network.sizes),
            table.x,
            none if is_class else table.y,
            table.y.to(torch.int32) if is_class else self._int32([0]),
            self._int32([0]) if table.rows is None else table.rows.to(torch.int32),
            none if weights is None else weights,
            none if table.x_affine is None else table.x_affine,
            none if table.y_affine is None else table.y_affine,
            shift,
            by_member,
            (keep, self._int32(dropped_values(keep).cpu())),
        )

    def _compile_options(self, rows, perturbation) -> dict:
        network, likelihood = self._network, self._config.likelihood
        table = rows.subset_tables()
        first, *inner, last = [
            kernel.FAMILIES[family_name(family)] for family in network.families
        ]
        n_inputs, *widths, n_outputs = network.sizes
        width = _power_of_two(max(widths))
        column_tile = min(_COLUMN_TILE, _power_of_two(n_inputs))
        on_y = perturbation is not None and perturbation.on_y
        by_member = perturbation is not None and not on_y
        return {
            "HIDDEN": len(widths),
            "ACTIVATION": kernel.ACTIVATIONS[network.activation],
            "LIKELIHOOD": kernel.LIKELIHOODS[likelihood.name],
            "FIRST": first,
            "INNER": inner[0] if inner else first,
            "LAST": last,
            "LEARNED": bool(likelihood.learned) and not likelihood.is_classification,
            "HAS_WEIGHTS": by_member or table.weights is not None,
            "WEIGHTS_BY_MEMBER": by_member,
            "HAS_SHIFT": on_y,
            "HAS_X_AFFINE": table.x_affine is not None,
            "HAS_Y_AFFINE": table.y_affine is not None,
            "ALL_ROWS": table.rows is None,
            "ROW_TILE": min(_ROW_TILE, _power_of_two(int(self._batch_rows.max()))),
            "COLUMN_TILE": column_tile,
            "WIDTH": width,
            "OUTPUTS": _power_of_two(n_outputs),
            "ONE_TILE": n_inputs <= column_tile,
            "PRECISION": "tf32x3",
            "DECAY_1": 1 - BETA_1,
            "DECAY_2": 1 - BETA_2,
            "BLOCK": 1024,
            "num_warps": 4 if width <= 32 else 8,
            "num_stages": 1,
        }

    def _schedule(self, epochs: Epochs) -> _Schedule:
        return _Schedule(
            n_steps=self._int32(epochs.n_left * self._config.n_batches),
            order=self._orders.positions(epochs.seeds[:, 1], self._device),
            seeds=torch.tensor(epochs.seeds[:, 0].view(np.int64), device=self._device),
            steps=self._float32(epochs.steps),
            gain=self._float32(epochs.gain),
        )


class _Orders:
    """Positions of the rows of all batches. Members with equal seeds and numbers of
    rows share them.

    Parameters
    ----------
    seeds, n_rows : ndarray of shape (members,), int
    n_batches : int

    Attributes
    ----------
    order_of_member : ndarray of shape (members,), int
    batch_rows, n_positions : int
        Rows of the largest batch; with all batches.
    """

    def __init__(self, seeds: np.ndarray, n_rows: np.ndarray, n_batches: int):
        pairs = np.stack([seeds if n_batches > 1 else 0 * seeds, n_rows], axis=1)
        _, self._example, index = np.unique(
            pairs, axis=0, return_index=True, return_inverse=True
        )
        self.order_of_member = index.ravel()
        self._n_rows, self._n_batches = n_rows[self._example], n_batches
        self.n_orders = len(self._example)
        self.batch_rows = -(-int(n_rows.max()) // n_batches)
        self.n_positions = self.batch_rows * n_batches

    def positions(self, seeds: np.ndarray, device) -> torch.Tensor:
        """Positions for some epochs, (orders, epochs, n_positions), int32.

        The last batch is filled up from the start of the order.

        seeds : (epochs, members), of the orders
        """
        n_epochs, n_batches = len(seeds), self._n_batches
        shape = self.n_orders, n_epochs, n_batches, self.batch_rows
        result = torch.zeros(shape, dtype=torch.int32, device=device)
        for n in np.unique(self._n_rows):
            orders = np.flatnonzero(self._n_rows == n)
            n_rows, size = int(n), -(-int(n) // n_batches)
            if n_batches == 1:
                result[orders, :, 0, :n_rows] = torch.arange(
                    n_rows, dtype=torch.int32, device=device
                )
                continue
            of_orders = np.ascontiguousarray(seeds[:, self._example[orders]].T)
            flat, parts = of_orders.reshape(1, -1), []
            at_once = max(1, _SORTED_AT_ONCE // n_rows)
            for start in range(0, flat.shape[1], at_once):
                random = SplitMix(device)
                random.prepare(np.ascontiguousarray(flat[:, start : start + at_once]))
                random.start(0)
                parts.append(random.permutations(n_rows).to(torch.int32))
            order = torch.cat(parts)
            order = torch.cat([order, order[:, : size * n_batches - n_rows]], dim=1)
            result[orders, ..., :size] = order.view(-1, n_epochs, n_batches, size)
        return result


def _power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n`` and 16."""
    return max(16, 1 << (n - 1).bit_length())
