"""Compiled activations and their derivatives; torch's are in `_networks.activations`.

An activation is a function of (values, slopes), one-dimensional arrays of the same
size: it replaces pre-activations by activations, and writes the derivatives to
``slopes``. The loop calls it by its address. To add one, write it and add it to
``FUNCTIONS``.
"""

import math

from numba import types

from skbayesnn._engine.compiled.numerics import (
    FunctionKind,
    compiled,
    erf,
    exp,
    fill,
    sigmoid,
    tanh,
)


@compiled
def _relu(values, slopes):
    one, zero = values.dtype.type(1), values.dtype.type(0)
    for i in range(values.size):
        positive = values[i] > zero
        values[i] = values[i] if positive else zero
        slopes[i] = one if positive else zero


@compiled
def _tanh(values, slopes):
    one = values.dtype.type(1)
    for i in range(values.size):
        activation = tanh(values[i])
        values[i] = activation
        slopes[i] = one - activation * activation


@compiled
def _logistic(values, slopes):
    one = values.dtype.type(1)
    for i in range(values.size):
        activation = sigmoid(values[i])
        values[i] = activation
        slopes[i] = activation * (one - activation)


@compiled
def _erf(values, slopes):
    factor = values.dtype.type(2 / math.sqrt(math.pi))
    for i in range(values.size):
        activation = values[i]
        values[i] = erf(activation)
        slopes[i] = factor * exp(-activation * activation)


@compiled
def _silu(values, slopes):
    one = values.dtype.type(1)
    for i in range(values.size):
        activation = values[i]
        share = sigmoid(activation)
        values[i] = activation * share
        slopes[i] = share * (one + activation * (one - share))


@compiled
def _identity(values, slopes):
    fill(slopes, values.dtype.type(1))


FUNCTIONS = {
    "relu": _relu,
    "tanh": _tanh,
    "logistic": _logistic,
    "erf": _erf,
    "silu": _silu,
    "identity": _identity,
}
CODES = {name: code for code, name in enumerate(FUNCTIONS)}
KIND = FunctionKind(lambda real: types.void(real[::1], real[::1]))
apply = KIND.call
