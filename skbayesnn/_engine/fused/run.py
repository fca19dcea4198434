"""Train the members of a program on a GPU, one Triton program per member."""

import numpy as np
import torch

from skbayesnn._engine.config import MemberParams, TableRows, TrainingConfig
from skbayesnn._engine.fused import kernel
from skbayesnn._engine.member_loops import (
    MemberRunner,
    family_name,
    likelihood_name,
)
from skbayesnn._engine.optimizer import BETA_1, BETA_2
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.random import dropped_values
from skbayesnn._engine.training_random import SplitMix
from skbayesnn._families import Family
from skbayesnn._networks import Perceptron

# Largest networks: what fits into registers as tiles.
_MAX_HIDDEN_LAYERS, _MAX_WIDTH, _MAX_INPUTS, _MAX_OUTPUTS = 3, 128, 512, 64
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
    config: TrainingConfig, members: MemberParams, rows: TableRows, posterior: Posterior
) -> bool:
    """Whether the fused kernel can train a program."""
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


class FusedRunner(MemberRunner):
    """Trains the members by the fused kernel, one program per member."""

    engine = "fused"

    def _prepare(self, rows, perturbation, of_prior):
        assert isinstance(self._config.network, Perceptron)
        self._network: Perceptron = self._config.network
        self._device = self.state.parameters.values.device
        self._total_weight = rows.total_weight
        self._orders = _Orders(self._members.seeds, rows.n_rows, self._config.n_batches)
        self._arguments = (
            self._vectors(of_prior)
            | self._places()
            | self._rows(rows, perturbation)
            | self._by_member(rows)
            | self._compile_options(rows, perturbation)
        )

    def _kl(self):
        nothing = self._epochs(0, 0, 1)._replace(n_left=0 * self._members.n_epochs)
        return self._train(nothing)[1][0]

    def _train(self, epochs):
        n_epochs = len(epochs.seeds)
        shape = 2, n_epochs, self._n_members
        nll, kl = self.state.parameters.values.new_full(shape, float("nan"))
        kernel.train_epochs[(self._n_members,)](
            **self._arguments,
            N_STEPS=self._int32(epochs.n_left * self._config.n_batches),
            ORDER=self._orders.positions(epochs.seeds[:, 1], self._device),
            SEEDS=torch.tensor(epochs.seeds[:, 0].view(np.int64), device=self._device),
            STEPS=self._float32(epochs.steps),
            GAIN=self._float32(epochs.gain),
            NLL=nll,
            KL=kl,
            n_epochs=n_epochs,
        )
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return nll, kl / self._total_weight

    def _epochs_at_once(self, n_epochs, seconds):
        # The positions of the rows must fit in memory.
        per_epoch = 4 * self._orders.n_orders * self._orders.n_positions
        return max(1, min(n_epochs, _ORDER_BYTES // per_epoch))

    # ---- arguments of the kernel, by name

    def _int32(self, values) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values)).to(self._device, torch.int32)

    def _float32(self, values) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values)).to(self._device, torch.float32)

    def _vectors(self, of_prior) -> dict:
        values = self.state.parameters.values
        curvature, centre, precision = of_prior
        mean, square = self.state.moments()
        return {
            "P": values,
            "M": mean,
            "V": square,
            "G": torch.zeros_like(values),
            "CURVATURE": curvature,
            "CENTRE": centre,
            "PRECISIONS": precision,
        }

    def _places(self) -> dict:
        places = self.state.parameters.offsets()
        n_maps = len(self._network.families)
        starts = [
            places.get((i, name), (0, 0))[0] for i in range(n_maps) for name in _NAMES
        ]
        names = _LIKELIHOOD_PARAMS[self._config.likelihood.name]
        starts += [places[n_maps, name][0] for name in names]
        return {
            "STARTS": torch.tensor(starts, device=self._device),
            "WIDTHS": self._int32(self._network.sizes),
        }

    def _rows(self, rows, perturbation) -> dict:
        likelihood, table = self._config.likelihood, rows.subset_tables()
        no_float, no_int = self._float32([0.0]), self._int32([0])
        weights, shift = table.weights, no_float
        if perturbation is not None and perturbation.on_y:
            shift = perturbation.values.contiguous()
        elif perturbation is not None:
            weights = perturbation.values[..., 0].contiguous()
            if table.weights is not None:
                weights = weights * table.weights[table.subset]
        is_class = likelihood.is_classification
        return {
            "X": table.x,
            "Y": no_float if is_class else table.y,
            "LABELS": table.y.to(torch.int32) if is_class else no_int,
            "ROWS": no_int if table.rows is None else table.rows.to(torch.int32),
            "WEIGHTS": no_float if weights is None else weights,
            "X_AFFINE": no_float if table.x_affine is None else table.x_affine,
            "Y_AFFINE": no_float if table.y_affine is None else table.y_affine,
            "SHIFT": shift,
            "SUBSET": self._int32(table.subset.cpu()),
            "n_rows_of_subset": int(rows.n_rows.max()),
            "n_targets": max(likelihood.gaussian_targets, 1),
        }

    def _by_member(self, rows) -> dict:
        objective, shape = self.state.objective, (self._n_members,)
        learns = np.broadcast_to(self._members.learns_likelihood, shape)
        keep = torch.stack(list(self.state.posterior.keep))
        return {
            "ORDER_OF": self._int32(self._orders.order_of_member),
            "SCHEDULE": self._int32(self.state.schedule.index),
            "BATCH_ROWS": self._int32(self._batch_rows),
            "SCALE": objective.scale.expand(shape).contiguous(),
            "WEIGHT_SCALE": (1 / rows.mean_weight).contiguous(),
            "KL_SCALE": objective.kl_scale.contiguous(),
            "LEARNS": self._int32(learns),
            "KEEP": keep,
            "N_DROPPED": self._int32(dropped_values(keep).cpu()),
            "n_members": self._n_members,
            "n_batches": self._config.n_batches,
            "max_batch_rows": self._orders.batch_rows,
        }

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
