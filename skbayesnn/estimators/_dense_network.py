"""Networks of dense layers with smooth units, and their gradients, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit


class SmoothActivation(NamedTuple):
    """A smooth activation of arrays or graph tensors, and its slope.

    slope : of the values
    """

    function: Callable[[Any], Any]
    slope: Callable[[Any], Any]


# Matrix and bias of each layer.
Layers = list[tuple[np.ndarray, np.ndarray]]

ACTIVATIONS = {
    "tanh": SmoothActivation(np.tanh, lambda h: 1.0 - h * h),
    "logistic": SmoothActivation(expit, lambda h: h * (1.0 - h)),
}


@dataclass(frozen=True)
class DenseNetwork:
    """Layers of units between inputs and outputs; weights are one vector.

    Parameters
    ----------
    sizes : tuple of int
        Inputs, units of each hidden layer, outputs.
    activation : str
    """

    sizes: tuple[int, ...]
    activation: str

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer."""
        return list(zip(self.sizes[:-1], self.sizes[1:], strict=True))

    @property
    def n_weights(self) -> int:
        """Number of weights and biases."""
        return sum((inputs + 1) * outputs for inputs, outputs in self.shapes)

    def layers(self, weights: np.ndarray) -> Layers:
        """Matrix and bias of each layer; weights : (..., n_weights)."""
        layers, start = [], 0
        for inputs, outputs in self.shapes:
            middle = start + inputs * outputs
            matrix = weights[..., start:middle]
            bias = weights[..., middle : middle + outputs]
            layers.append((matrix.reshape(*weights.shape[:-1], inputs, outputs), bias))
            start = middle + outputs
        return layers

    def vector(self, layers) -> np.ndarray:
        """Weights of matrices and biases of all layers, (n_weights,)."""
        return np.concatenate([part.ravel() for layer in layers for part in layer])

    def initial(self, random: np.random.Generator) -> np.ndarray:
        """Random weights with which units are of order one, (n_weights,)."""
        parts: list[np.ndarray] = []
        for inputs, outputs in self.shapes:
            parts.append(random.normal(size=inputs * outputs) / np.sqrt(inputs))
            parts.append(random.normal(size=outputs) / 2)
        return np.concatenate(parts)

    def groups(self, prior: str) -> np.ndarray:
        """Group of each weight, (n_weights,): those that share a prior precision.

        Biases of a layer are a group. ``"ard"`` has a group for each input of the
        first layer, and one for each other matrix; ``"layer"`` one for each matrix;
        ``"isotropic"`` one for all matrices.
        """
        parts: list[np.ndarray] = []
        n = int(prior == "isotropic")
        for layer, (inputs, outputs) in enumerate(self.shapes):
            if prior == "isotropic":
                matrix = np.zeros(inputs * outputs, int)
            elif prior == "ard" and layer == 0:
                matrix = n + np.repeat(np.arange(inputs), outputs)
                n += inputs
            else:
                matrix = np.full(inputs * outputs, n)
                n += 1
            parts += [matrix, np.full(outputs, n)]
            n += 1
        return np.concatenate(parts)

    def outputs(self, weights: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Outputs for some rows, (rows, outputs)."""
        return self._forward(weights, X)[0][-1]

    def gradient(self, weights, X, slopes) -> np.ndarray:
        """Gradient of a loss, (n_weights,); slopes : of the outputs."""
        values, hidden_slopes = self._forward(weights, X)
        layers, parts, back = self.layers(weights), [], slopes
        for layer in reversed(range(len(layers))):
            parts.append((values[layer].T @ back, back.sum(0)))
            if layer:
                back = (back @ layers[layer][0].T) * hidden_slopes[layer - 1]
        return self.vector(parts[::-1])

    def _forward(self, weights, X):
        """Inputs of every layer and the outputs, and the slopes of hidden units."""
        function, slope = ACTIVATIONS[self.activation]
        values, slopes = [X], []
        *hidden, (matrix, bias) = self.layers(weights)
        for hidden_matrix, hidden_bias in hidden:
            values.append(function(values[-1] @ hidden_matrix + hidden_bias))
            slopes.append(slope(values[-1]))
        values.append(values[-1] @ matrix + bias)
        return values, slopes

    def jacobian(self, weights, X) -> tuple[np.ndarray, np.ndarray]:
        """Outputs, (rows, outputs), and their gradients, (rows, outputs, n_weights)."""
        values, slopes = self._forward(weights, X)
        n_rows, n_outputs = values[-1].shape
        gradients = np.empty((n_rows, n_outputs, self.n_weights))
        layers, end = self.layers(weights), self.n_weights
        back = np.broadcast_to(np.eye(n_outputs), (n_rows, n_outputs, n_outputs))
        for layer in reversed(range(len(layers))):
            inputs, outputs = self.shapes[layer]
            middle, start = end - outputs, end - outputs * (inputs + 1)
            gradients[..., middle:end] = back
            products = gradients[..., start:middle].reshape(
                n_rows, n_outputs, inputs, outputs
            )
            products[...] = values[layer][:, None, :, None] * back[:, :, None]
            gradients[..., start:middle] = products.reshape(n_rows, n_outputs, -1)
            if layer:
                back = (back @ layers[layer][0].T) * slopes[layer - 1][:, None]
            end = start
        return values[-1], gradients


def _smooth(activation: str | SmoothActivation) -> SmoothActivation:
    return ACTIVATIONS[activation] if isinstance(activation, str) else activation


def features(layers, activation: str | SmoothActivation, x):
    """Units of the last of some hidden layers; x if there are none.

    activation, x : arguments of ``linearised``
    """
    for matrix, bias in layers:
        x = _smooth(activation).function(x @ matrix + bias)
    return x


def linearised(layers, deviations, activation: str | SmoothActivation, x):
    """Outputs for some rows, and their change for small changes of the weights.

    The change is linear in the deviations. Takes and returns arrays, tensors of an
    ONNX graph, or tensors of torch with an activation of torch.

    layers : matrix and bias of each layer
    deviations : the same for each draw, (draws, inputs, outputs) and (draws, outputs)
    x : (rows, inputs)
    returns : (rows, outputs), and (draws, rows, outputs)
    """
    function, slope = _smooth(activation)
    change = None
    for layer, ((matrix, bias), (by_matrix, by_bias)) in enumerate(
        zip(layers, deviations, strict=True)
    ):
        further = x @ by_matrix + by_bias[:, None]
        change = further if change is None else further + change @ matrix
        x = x @ matrix + bias
        if layer < len(layers) - 1:
            x = function(x)
            change = change * slope(x)
    return x, change
