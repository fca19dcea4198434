"""Recurrent networks with one draw of the weights per sequence [GG16b], over members.

The maps of the inputs and of the state are used at every step: their masks, or their
weights, are drawn once for a row and held through all of its steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from skbayesnn._families import Draw, Family, Params, describe_family, family_from
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn._networks.base import Keep, StartNormal, start_values
from skbayesnn._networks.wired import AutogradNetwork, affine

State = tuple[torch.Tensor, ...]


class Cell(NamedTuple):
    """How a state follows from the one before.

    ``step`` takes what the inputs and what the state's first part add to every gate,
    (networks, rows, gates * units) each, and the state; it returns the next one.
    """

    n_gates: int
    n_states: int
    step: Callable[[torch.Tensor, torch.Tensor, State], State]


def _rnn(of_inputs: torch.Tensor, of_state: torch.Tensor, state: State) -> State:
    """tanh(W x + U h) [Elman 1990]."""
    return ((of_inputs + of_state).tanh(),)


def _gru(of_inputs: torch.Tensor, of_state: torch.Tensor, state: State) -> State:
    """z h + (1 - z) tanh(W x + r (U h)) [Cho et al. 2014], as torch has it."""
    n = state[0].shape[-1]
    gates = (of_inputs[..., : 2 * n] + of_state[..., : 2 * n]).sigmoid()
    reset, update = gates.chunk(2, dim=-1)
    new = torch.addcmul(of_inputs[..., 2 * n :], reset, of_state[..., 2 * n :]).tanh()
    return (torch.lerp(new, state[0], update),)


def _lstm(of_inputs: torch.Tensor, of_state: torch.Tensor, state: State) -> State:
    """Gates in torch's order: in, forget, cell, out [Hochreiter & Schmidhuber 1997]."""
    into, forget, new, out = (of_inputs + of_state).chunk(4, dim=-1)
    cell = torch.addcmul(forget.sigmoid() * state[1], into.sigmoid(), new.tanh())
    return out.sigmoid() * cell.tanh(), cell


CELLS = {"rnn": Cell(1, 1, _rnn), "gru": Cell(3, 1, _gru), "lstm": Cell(4, 2, _lstm)}


@dataclass(frozen=True)
class Recurrent(AutogradNetwork):
    """A cell that goes through the steps, then layers of linear maps of its last state.

    Maps, in their order: of the inputs to the gates, of the state to the gates, and of
    the layers. Gates share masks.

    Parameters
    ----------
    n_steps, n_inputs : int
        Of every sequence; a row holds the inputs of one step after the other.
    hidden_size : int
        Units of the state.
    cell : str
        A key of ``CELLS``.
    hidden : tuple of int
        Units of the layers behind.
    n_outputs : int
    activation : str
        Of these layers, a key of ``ACTIVATIONS``.
    families : tuple of Family
        Of every map.
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
        """Inputs and outputs of the linear maps behind."""
        return self.hidden_size, *self.hidden, self.n_outputs

    @property
    def fan_ins(self) -> tuple[int, ...]:
        """Inputs of every map."""
        return self.n_inputs, self.hidden_size, *self.sizes[:-1]

    @property
    def prior_fan_ins(self) -> tuple[int, ...]:
        """The map of the state is used at every step: l = 1, or little is remembered.

        On damped oscillators and on the air of Beijing the root of its inputs costs a
        tenth, and a twentieth, of the CRPS.
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
        """An input at all steps."""
        return (self.n_steps, self.n_inputs), 0

    @property
    def smooth(self) -> bool:
        """Cells are."""
        return not self.hidden or ACTIVATIONS[self.activation].smooth

    @property
    def n_units(self) -> int:
        """Inputs, sums and states of all steps, and the layers."""
        per_step = self.n_inputs + 3 * self._n_sums + 2 * self.hidden_size
        return self.n_steps * per_step + sum(self.sizes)

    @property
    def widest(self) -> int:
        """Sums of one step, the inputs of all, or the widest layer."""
        inputs = self.n_steps * self.n_inputs
        return max(inputs, self._n_sums, *self.sizes)

    @property
    def peak_activation_size(self) -> int:
        """What the inputs add at every step, and some sums; or two layers."""
        sums = (self.n_steps + 4) * self._n_sums
        return max(sums, *(a + b for a, b in pairwise(self.sizes)))

    @property
    def _n_sums(self) -> int:
        return CELLS[self.cell].n_gates * self.hidden_size

    def describe(self) -> dict[str, Any]:
        """Sizes and names."""
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
    def from_description(cls, about: dict[str, Any]) -> "Recurrent":
        """Undo ``describe``."""
        plain = (
            "n_steps",
            "n_inputs",
            "hidden_size",
            "cell",
            "n_outputs",
            "activation",
        )
        return cls(
            **{name: about[name] for name in plain},
            hidden=tuple(about["hidden"]),
            families=tuple(family_from(each) for each in about["families"]),
        )

    def init(self, normal: StartNormal, keep: Keep) -> list[Params]:
        """Of variance 1 / inputs in the cell, as a perceptron's behind it.

        A forget gate starts open, its bias one higher [Jozefowicz et al. 2015].
        """
        gain = ACTIVATIONS[self.activation].gain
        gains = 1.0, 1.0, *(gain for _ in self.hidden), 1.0
        layers = start_values(
            self.families, self.fan_ins, self.fan_outs, gains, normal, keep
        )
        if self.cell == "lstm":
            forget = slice(self.hidden_size, 2 * self.hidden_size)
            layers[0]["bias"][:, forget] += 1
        return layers

    def outputs(self, maps: Sequence[Draw], x: torch.Tensor) -> torch.Tensor:
        """Of the state after the last step."""
        cell, (of_inputs, of_state, *layers) = CELLS[self.cell], maps
        x = x.unflatten(2, (self.n_steps, self.n_inputs))
        inputs = _at_every_step(x, of_inputs)
        state: State = (x.new_zeros(1, x.shape[1], self.hidden_size),) * cell.n_states
        for of_step in inputs.unbind(2):
            state = cell.step(of_step, affine(state[0], of_state), state)
        h = state[0]
        activate = ACTIVATIONS[self.activation].function
        for i, map_ in enumerate(layers):
            h = affine(activate(h) if i else h, map_)
        return h


def _at_every_step(x: torch.Tensor, map_: Draw) -> torch.Tensor:
    """(networks, rows, steps, inputs) -> (networks, rows, steps, sums).

    A row's mask is that of all of its steps.
    """
    weight, bias, *masks = map_
    for mask in masks:
        x = x * mask.unsqueeze(2)
    return affine(x.flatten(1, 2), (weight, bias)).unflatten(1, x.shape[1:3])
