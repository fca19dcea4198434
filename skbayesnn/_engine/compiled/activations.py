"""Compiled activations and their derivatives; torch's are in `_networks.activations`.

``apply`` is the only function that the loop calls. To add an activation, write a
function of (h, slope) and a branch of ``apply``.
"""

import math

from numba import njit

from skbayesnn._engine.compiled.numerics import OPTIONS, erf, exp, fill, sigmoid, tanh

CODES = {
    name: code
    for code, name in enumerate(["relu", "tanh", "logistic", "erf", "silu", "identity"])
}
RELU, TANH, LOGISTIC, ERF, SILU, IDENTITY = CODES.values()


@njit(**OPTIONS)
def _relu(h, slope):
    one, zero = h.dtype.type(1), h.dtype.type(0)
    for i in range(h.size):
        positive = h[i] > zero
        h[i] = h[i] if positive else zero
        slope[i] = one if positive else zero


@njit(**OPTIONS)
def _tanh(h, slope):
    one = h.dtype.type(1)
    for i in range(h.size):
        value = tanh(h[i])
        h[i] = value
        slope[i] = one - value * value


@njit(**OPTIONS)
def _logistic(h, slope):
    one = h.dtype.type(1)
    for i in range(h.size):
        value = sigmoid(h[i])
        h[i] = value
        slope[i] = value * (one - value)


@njit(**OPTIONS)
def _erf(h, slope):
    factor = h.dtype.type(2 / math.sqrt(math.pi))
    for i in range(h.size):
        value = h[i]
        h[i] = erf(value)
        slope[i] = factor * exp(-value * value)


@njit(**OPTIONS)
def _silu(h, slope):
    one = h.dtype.type(1)
    for i in range(h.size):
        value = h[i]
        share = sigmoid(value)
        h[i] = value * share
        slope[i] = share * (one + value * (one - share))


@njit(**OPTIONS)
def apply(code, h, slope):
    """Replace pre-activations by activations; write the derivatives to ``slope``.

    h, slope : one-dimensional, of the same size
    """
    if code == RELU:
        _relu(h, slope)
    elif code == TANH:
        _tanh(h, slope)
    elif code == LOGISTIC:
        _logistic(h, slope)
    elif code == ERF:
        _erf(h, slope)
    elif code == SILU:
        _silu(h, slope)
    else:
        fill(slope, h.dtype.type(1))
