"""Recurrent networks with one draw of the weights per sequence [GG16b], over members.

The maps of the inputs and of the state are used at every step of a sequence. Their
masks or weights are drawn once per row and kept for all of its steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from skbayesnn._families import Draw, Family, Params, describe_family, family_from
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn._networks.base import InitialNormal, Keep, initial_params
from skbayesnn._networks.wired import AutogradNetwork, affine

State = tuple[torch.Tensor, ...]


class Cell(NamedTuple):
    """The transition of a recurrent cell.

    ``step`` takes the gates' affine maps of the inputs and of the first part of the
    state, (networks, rows, gates * units) each, and the state. It returns the next
    state.
    """

    n_gates: int
    n_states: int
    step: Callable[[torch.Tensor, torch.Tensor, State], State]


def _rnn(from_inputs: torch.Tensor, from_state: torch.Tensor, state: State) -> State:
    """tanh(W x + U h) [Elman 1990]."""
    return ((from_inputs + from_state).tanh(),)


def _gru(from_inputs: torch.Tensor, from_state: torch.Tensor, state: State) -> State:
    """z h + (1 - z) tanh(W x + r (U h)) [Cho et al. 2014], as in torch."""
    n = state[0].shape[-1]
    gates = (from_inputs[..., : 2 * n] + from_state[..., : 2 * n]).sigmoid()
    reset, update = gates.chunk(2, dim=-1)
    new = torch.addcmul(
        from_inputs[..., 2 * n :], reset, from_state[..., 2 * n :]
    ).tanh()
    return (torch.lerp(new, state[0], update),)


def _lstm(from_inputs: torch.Tensor, from_state: torch.Tensor, state: State) -> State:
    """Gates in torch's order: in, forget, cell, out [Hochreiter & Schmidhuber 1997]."""
    into, forget, new, out = (from_inputs + from_state).chunk(4, dim=-1)
    cell = torch.addcmul(forget.sigmoid() * state[1], into.sigmoid(), new.tanh())
    return out.sigmoid() * cell.tanh(), cell


CELLS = {"rnn": Cell(1, 1, _rnn), "gru": Cell(3, 1, _gru), "lstm": Cell(4, 2, _lstm)}


@dataclass(frozen=True)
class Recurrent(AutogradNetwork):
    """A recurrent cell, then linear layers on its last state.

    The maps are, in order: from the inputs to the gates, from the state to the gates,
    and the linear layers. All gates share a mask.

    Parameters
    ----------
    n_steps, n_inputs : int
        Steps of every sequence and inputs per step. A row contains the inputs of the
        first step, then of the second, and so on.
    hidden_size : int
        Units of the state.
    cell : str
        A key of ``CELLS``.
    hidden : tuple of int
        Units of the hidden linear layers.
    n_outputs : int
    activation : str
        Activation of these layers, a key of ``ACTIVATIONS``.
    families : tuple of Family
        Variational family of every map.
    """

    n_steps: int
    n_inputs: int
    hidden_size: int
    cell: str
    hidden: tuple[int, ...]
    n_outputs: int
    activation: str
    families: tuple[Family, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Inputs and units of the linear layers."""
        return self.hidden_size, *self.hidden, self.n_outputs

    @property
    def fan_ins(self) -> tuple[int, ...]:
        """Inputs of every map."""
        return self.n_inputs, self.hidden_size, *self.sizes[:-1]

    @property
    def prior_fan_ins(self) -> tuple[int, ...]:
        """Inputs that count for the prior; 1 for the map of the state, so l = 1.

        That map is used at every step; with the square root of its inputs the network
        would forget too fast. On damped oscillators and on the Beijing air data this
        would increase the CRPS by 10 % and 5 %.
        """
        return self.n_inputs, 1, *self.sizes[:-1]

    @property
    def fan_outs(self) -> tuple[int, ...]:
        """Outputs of every map."""
        return self._n_sums, self._n_sums, *self.sizes[1:]

    @property
    def n_weights(self) -> int:
        """Weights and biases of one member."""
        return sum(
            (a + 1) * b for a, b in zip(self.fan_ins, self.fan_outs, strict=True)
        )

    @property
    def input_groups(self) -> tuple[tuple[int, ...], int]:
        """Groups of inputs: each input at all steps."""
        return (self.n_steps, self.n_inputs), 0

    @property
    def n_units(self) -> int:
        """Inputs, gates and states of all steps, and the units of all layers."""
        per_step = self.n_inputs + 3 * self._n_sums + 2 * self.hidden_size
        return self.n_steps * per_step + sum(self.sizes)

    @property
    def widest(self) -> int:
        """Gates of one step, inputs of all steps, or the widest layer."""
        inputs = self.n_steps * self.n_inputs
        return max(inputs, self._n_sums, *self.sizes)

    @property
    def peak_activation_size(self) -> int:
        """Mapped inputs of all steps and some gates, or two layers."""
        sums = (self.n_steps + 4) * self._n_sums
        return max(sums, *(a + b for a, b in pairwise(self.sizes)))

    @property
    def _n_sums(self) -> int:
        return CELLS[self.cell].n_gates * self.hidden_size

    def describe(self) -> dict[str, Any]:
        """Plain values from which ``from_description`` constructs an equal network."""
        return {
            "name": "recurrent",
            "n_steps": self.n_steps,
            "n_inputs": self.n_inputs,
            "hidden_size": self.hidden_size,
            "cell": self.cell,
            "hidden": list(self.hidden),
            "n_outputs": self.n_outputs,
            "activation": self.activation,
            "families": [describe_family(family) for family in self.families],
        }

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "Recurrent":
        """Inverse of ``describe``."""
        names = (
            "n_steps",
            "n_inputs",
            "hidden_size",
            "cell",
            "n_outputs",
            "activation",
        )
        return cls(
            **{name: description[name] for name in names},
            hidden=tuple(description["hidden"]),
            families=tuple(family_from(family) for family in description["families"]),
        )

    def init(self, normal: InitialNormal, keep: Keep) -> list[Params]:
        """Initial values: variance 1 / inputs in the cell, then as in a perceptron.

        Forget gates start open: their bias is increased by 1 [Jozefowicz et al. 2015].
        """
        gain = ACTIVATIONS[self.activation].gain
        gains = 1.0, 1.0, *(gain for _ in self.hidden), 1.0
        layers = initial_params(
            self.families, self.fan_ins, self.fan_outs, gains, normal, keep
        )
        if self.cell == "lstm":
            forget = slice(self.hidden_size, 2 * self.hidden_size)
            layers[0]["bias"][:, forget] += 1
        return layers

    def outputs(self, maps: Sequence[Draw], x: torch.Tensor) -> torch.Tensor:
        """Outputs computed from the state after the last step."""
        cell, (input_map, state_map, *layers) = CELLS[self.cell], maps
        x = x.unflatten(2, (self.n_steps, self.n_inputs))
        inputs = _map_inputs(x, input_map)
        state: State = (x.new_zeros(1, x.shape[1], self.hidden_size),) * cell.n_states
        for step_inputs in inputs.unbind(2):
            state = cell.step(step_inputs, affine(state[0], state_map), state)
        h = state[0]
        activate = ACTIVATIONS[self.activation].function
        for i, map_ in enumerate(layers):
            h = affine(activate(h) if i else h, map_)
        return h


def _map_inputs(x: torch.Tensor, map_: Draw) -> torch.Tensor:
    """Map inputs to gates, (networks, rows, steps, inputs) to (..., gates).

    All steps of a row share its mask.
    """
    weight, bias, *masks = map_
    for mask in masks:
        x = x * mask.unsqueeze(2)
    return affine(x.flatten(1, 2), (weight, bias)).unflatten(1, x.shape[1:3])
