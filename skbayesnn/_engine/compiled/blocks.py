"""Layers of a perceptron for a block of rows, in compiled predictions.

A block stores a layer as (units, rows), and the rows of a unit are one vector of the
processor, or a few of them. So every row is computed alone, and its result does not
depend on the other rows. The functions have no branches, also in double precision, so
that loops over rows use vector instructions.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from skbayesnn._engine.compiled.numerics import (
    by_precision,
    compiled,
    exp,
    sigmoid,
    softplus,
    tanh_single,
)
from skbayesnn._likelihoods.gaussian import (
    LOG_VARIANCE_RANGE,
    MAX_LOG_PRECISION,
    SHARPNESS,
    SOFTPLUS_LINEAR_FROM,
)

# ---- affine maps

# Bytes of the rows of a block, for one unit.
_BYTES = 256


def rows_of(dtype) -> int:
    return _BYTES // np.dtype(dtype).itemsize


def _affine(n_outputs: int):
    """Function that computes consecutive outputs of an affine map.

    LLVM would vectorise a loop over the rows, but write the sum to memory for every
    unit. Here it stays in registers, which takes half of the time.
    """

    @intrinsic
    def affine(
        typing_context,
        weights,
        first_weight,
        stride,
        biases,
        first_bias,
        units,
        first_unit,
        last_unit,
        subtracts,
        workspace,
        layer_inputs,
        full_outputs,
        layer_outputs,
    ):
        """Outputs k < n_outputs: biases plus sums of products of weights and inputs.

        The weights are weights[first_weight + k + j stride] and the biases
        biases[first_bias + k]; the inputs j are units[first_unit:last_unit]. If
        ``subtracts``, the sums are subtracted from the full outputs instead.
        Inputs, full outputs and outputs are positions in ``workspace``, which has the
        rows of a block for every unit.
        """
        dtype, number = workspace.dtype, types.int64
        size, align = rows_of(f"f{dtype.bitwidth // 8}"), dtype.bitwidth // 8
        signature = types.void(
            weights,
            number,
            number,
            biases,
            number,
            units,
            number,
            number,
            types.boolean,
            workspace,
            number,
            number,
            number,
        )

        def generate(context, builder, signature, values):
            (
                _,
                first_weight,
                stride,
                _,
                first_bias,
                _,
                first_unit,
                last_unit,
                subtracts,
                _,
                layer_inputs,
                full_outputs,
                layer_outputs,
            ) = values
            index = ir.IntType(64)
            scalar = context.get_value_type(dtype)
            vector = ir.VectorType(scalar, size)
            weights, biases, units, workspace = (
                context.make_array(signature.args[k])(context, builder, values[k]).data
                for k in (0, 3, 5, 9)
            )

            def plus(value, k):
                return builder.add(value, ir.Constant(index, k))

            def value_at(array, position):
                return builder.load(builder.gep(array, [position]))

            def rows(unit):
                start = builder.mul(unit, ir.Constant(index, size))
                return builder.bitcast(
                    builder.gep(workspace, [start]), vector.as_pointer()
                )

            def spread(value):
                empty = ir.Constant(vector, ir.Undefined)
                zeros = ir.Constant(ir.VectorType(ir.IntType(32), size), None)
                one = builder.insert_element(
                    empty, value, ir.Constant(ir.IntType(32), 0)
                )
                return builder.shuffle_vector(one, empty, zeros)

            sign = builder.select(
                subtracts, ir.Constant(scalar, -1.0), ir.Constant(scalar, 1.0)
            )
            sums = [cgutils.alloca_once(builder, vector) for _ in range(n_outputs)]
            with builder.if_else(subtracts) as (then, otherwise):
                with then:
                    for k, total in enumerate(sums):
                        value = builder.load(rows(plus(full_outputs, k)), align=align)
                        builder.store(value, total)
                with otherwise:
                    for k, total in enumerate(sums):
                        builder.store(
                            spread(value_at(biases, plus(first_bias, k))), total
                        )
            with cgutils.for_range_slice(
                builder, first_unit, last_unit, ir.Constant(index, 1), intp=index
            ) as (position, _):
                unit = value_at(units, position)
                x = builder.load(rows(builder.add(layer_inputs, unit)), align=align)
                x = builder.fmul(x, spread(sign))
                start = builder.add(first_weight, builder.mul(unit, stride))
                for k, total in enumerate(sums):
                    weight = spread(value_at(weights, plus(start, k)))
                    term = builder.fmul(weight, x, flags=("contract",))
                    term = builder.fadd(builder.load(total), term, flags=("contract",))
                    builder.store(term, total)
            for k, total in enumerate(sums):
                builder.store(
                    builder.load(total), rows(plus(layer_outputs, k)), align=align
                )
            return context.get_dummy_value()

        return signature, generate

    return affine


one_output, two_outputs = _affine(1), _affine(2)


# ---- elementary functions


def _tanh_double(x):
    # Without a branch; its error is a rounding of 1.
    u = exp(-2.0 * abs(x))
    value = (1.0 - u) / (1.0 + u)
    return -value if x < 0.0 else value


tanh = by_precision(tanh_single, _tanh_double)


# ---- activations

RELU, TANH, LOGISTIC, SILU, IDENTITY = range(5)
ACTIVATIONS = {
    "relu": RELU,
    "tanh": TANH,
    "logistic": LOGISTIC,
    "silu": SILU,
    "identity": IDENTITY,
}


@compiled
def activate(code, workspace, first, last):
    zero = workspace.dtype.type(0)
    for k in range(first, last):
        if code == RELU:
            for i in range(workspace.shape[1]):
                workspace[k, i] = max(workspace[k, i], zero)
        elif code == TANH:
            for i in range(workspace.shape[1]):
                workspace[k, i] = tanh(workspace[k, i])
        elif code == LOGISTIC:
            for i in range(workspace.shape[1]):
                workspace[k, i] = sigmoid(workspace[k, i])
        elif code == SILU:
            for i in range(workspace.shape[1]):
                workspace[k, i] *= sigmoid(workspace[k, i])


# ---- outputs as parameters of a distribution


@compiled
def softmax(workspace, first, last, spare):
    """Replace outputs by probabilities; the row ``spare`` is overwritten."""
    size = workspace.shape[1]
    for i in range(size):
        workspace[spare, i] = workspace[first, i]
    for k in range(first + 1, last):
        for i in range(size):
            workspace[spare, i] = max(workspace[spare, i], workspace[k, i])
    for k in range(first, last):
        for i in range(size):
            workspace[k, i] = exp(workspace[k, i] - workspace[spare, i])
    for i in range(size):
        workspace[spare, i] = workspace[first, i]
    for k in range(first + 1, last):
        for i in range(size):
            workspace[spare, i] += workspace[k, i]
    for k in range(first, last):
        for i in range(size):
            workspace[k, i] /= workspace[spare, i]


@compiled
def variances(workspace, first, noise):
    """Replace the second half of the outputs, from ``first``, by variances.

    noise : (4, targets), log tau, gain, least log tau, log of the variance factor
    """
    kind = workspace.dtype.type
    limit, most = kind(LOG_VARIANCE_RANGE), kind(MAX_LOG_PRECISION)
    sharpness = kind(SHARPNESS)
    linear_from = kind(SOFTPLUS_LINEAR_FROM / SHARPNESS)
    for t in range(noise.shape[1]):
        k, log_tau, gain = first + t, noise[0, t], noise[1, t]
        least, log_factor = noise[2, t], noise[3, t]
        for i in range(workspace.shape[1]):
            value = log_tau - gain * limit * tanh(workspace[k, i] / limit)
            workspace[k, i] = min(value, most) - least
        for i in range(workspace.shape[1]):
            above = workspace[k, i]
            smooth = softplus(sharpness * above) / sharpness
            above = above if above > linear_from else smooth
            workspace[k, i] = exp(log_factor - (least + above))
