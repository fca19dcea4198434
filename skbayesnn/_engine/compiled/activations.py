"""Compiled activations and their derivatives; torch's are in `_networks.activations`.

An activation is a function of (h, slope), one-dimensional arrays of the same size: it
replaces pre-activations by activations, and writes the derivatives to ``slope``. The
loop calls it by its address. To add one, write it and add it to ``FUNCTIONS``.
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
def _relu(h, slope):
    one, zero = h.dtype.type(1), h.dtype.type(0)
    for i in range(h.size):
        positive = h[i] > zero
        h[i] = h[i] if positive else zero
        slope[i] = one if positive else zero


@compiled
def _tanh(h, slope):
    one = h.dtype.type(1)
    for i in range(h.size):
        value = tanh(h[i])
        h[i] = value
        slope[i] = one - value * value


@compiled
def _logistic(h, slope):
    one = h.dtype.type(1)
    for i in range(h.size):
        value = sigmoid(h[i])
        h[i] = value
        slope[i] = value * (one - value)


@compiled
def _erf(h, slope):
    factor = h.dtype.type(2 / math.sqrt(math.pi))
    for i in range(h.size):
        value = h[i]
        h[i] = erf(value)
        slope[i] = factor * exp(-value * value)


@compiled
def _silu(h, slope):
    one = h.dtype.type(1)
    for i in range(h.size):
        value = h[i]
        share = sigmoid(value)
        h[i] = value * share
        slope[i] = share * (one + value * (one - share))


@compiled
def _identity(h, slope):
    fill(slope, h.dtype.type(1))


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
