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
        value = tanh(values[i])
        values[i] = value
        slopes[i] = one - value * value


@compiled
def _logistic(values, slopes):
    one = values.dtype.type(1)
    for i in range(values.size):
        value = sigmoid(values[i])
        values[i] = value
        slopes[i] = value * (one - value)


@compiled
def _erf(values, slopes):
    factor = values.dtype.type(2 / math.sqrt(math.pi))
    for i in range(values.size):
        value = values[i]
        values[i] = erf(value)
        slopes[i] = factor * exp(-value * value)


@compiled
def _silu(values, slopes):
    one = values.dtype.type(1)
    for i in range(values.size):
        value = values[i]
        share = sigmoid(value)
        values[i] = value * share
        slopes[i] = share * (one + value * (one - share))


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
KIND = FunctionKind(lambda real: types.void(real[::1], real[::1]))
apply = KIND.call
