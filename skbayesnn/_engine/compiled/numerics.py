"""Elementary functions and random numbers for compiled loops.

In float32 the functions are polynomials without branches, so that loops over arrays use
vector instructions. So are exp and softplus in float64; the others call the C library.
Their errors are a few units in the last place.
"""

import math
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic, overload
from numba.np.numpy_support import from_dtype

from skbayesnn._engine.training_random import (
    GOLDEN,
    MULTIPLIER_1,
    MULTIPLIER_2,
    SHIFT_1,
    SHIFT_2,
    SHIFT_3,
    uniform_bits,
)
from skbayesnn._runtime import warn

# ---- compilation

# No lock is held, and a division by zero gives infinity, as in NumPy: Python's error
# would need a branch, which prevents vector instructions. Sums keep their order.
_OPTIONS = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz"},
}
_PACKAGE = Path(__file__).parents[2]
# Files with compiled functions, or with constants that these contain.
_SOURCES = (
    "_engine/compiled",
    "_distributions/crps.py",
    "_engine/optimizer.py",
    "_engine/random.py",
    "_engine/training_random.py",
    "_families",
    "_likelihoods",
    "_priors.py",
)


@cache
def _hash_of_sources() -> str:
    files = [
        file
        for source in _SOURCES
        for file in [_PACKAGE / source, *sorted((_PACKAGE / source).glob("*.py"))]
        if file.is_file()
    ]
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


class _Cache(FunctionCache):
    """Numba's cache of a function on disk, renewed when any of the sources changes.

    Numba itself compares only the file of the function, not the files of the functions
    that it calls.
    """

    def _index_key(self, sig, codegen):
        return *super()._index_key(sig, codegen), _hash_of_sources()


@cache
def _warn_of_cache() -> None:
    warn(
        "SKB115",
        "Compiled code cannot be stored: the folder of the package and numba's cache "
        "folder cannot be written. Every process compiles again, which takes some "
        "10 s. Set the environment variable NUMBA_CACHE_DIR to a folder that can be "
        "written.",
    )


def _cached(dispatcher):
    try:
        dispatcher._cache = _Cache(dispatcher.py_func)
    except RuntimeError:  # Numba has found no folder that can be written.
        _warn_of_cache()
    return dispatcher


def entry(function):
    """Compile a function that Python calls."""
    return _cached(njit(**_OPTIONS)(function))


def compiled(function):
    """Compile a function that only compiled code calls: it has no entry from Python."""
    options = _OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return _cached(njit(**options)(function))


def compiled_sums(function):
    """Compile a function whose sums may be in any order, so that they use vectors.

    Its arguments are never NaN.
    """
    options = _OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    options["fastmath"] = {"contract", "nsz", "reassoc", "nnan"}
    return _cached(njit(**options)(function))


class FunctionKind:
    """Functions with the same signature, which compiled code calls by their address.

    Each of them is compiled alone, when a program first needs it. The code that calls
    them is compiled once.

    Parameters
    ----------
    signature : callable
        The signature, for a numba type of floats.
    """

    def __init__(self, signature):
        self._signatures = {
            real: signature(real) for real in (types.float32, types.float64)
        }

        @intrinsic
        def call(typing_context, address, *arguments):
            parts = [
                part
                for argument in arguments
                for part in getattr(argument, "types", [argument])
            ]
            (real,) = {
                a.dtype
                for a in parts
                if isinstance(a, types.Array) and isinstance(a.dtype, types.Float)
            }
            expected = self._signatures[real]
            pairs = list(zip(arguments, expected.args, strict=True))
            kept = types.Array | types.Record | types.BaseTuple
            if any(a != e and isinstance(e, kept) for a, e in pairs):
                return None  # numba reports a type error.

            def generate(context, builder, signature, values):
                pointer_type = context.call_conv.get_function_type(
                    expected.return_type, expected.args
                ).as_pointer()
                parts = cgutils.unpack_tuple(builder, values[1])
                status, result = context.call_conv.call_function(
                    builder,
                    builder.inttoptr(values[0], pointer_type),
                    expected.return_type,
                    expected.args,
                    [
                        context.cast(builder, part, *pair)
                        for part, pair in zip(parts, pairs, strict=True)
                    ],
                )
                with cgutils.if_unlikely(builder, status.is_error):
                    context.call_conv.return_status_propagate(builder, status)
                return result

            given = types.StarArgTuple.from_types(arguments)
            return expected.return_type(types.int64, given), generate

        self.call = call

    def address(self, function, dtype) -> int:
        """Compile a function, unless the cache has it, and return its address."""
        signature = self._signatures[from_dtype(np.dtype(dtype))]
        result = function.get_compile_result(signature)
        assert result.signature == signature
        return result.library.get_pointer_to_function(result.fndesc.llvm_func_name)


# ---- loops over arrays


@compiled
def fill(values, value):
    """Set all values; an assignment to a slice takes longer to compile."""
    for i in range(values.size):
        values[i] = value


@compiled
def copy(source, target):
    """Copy all values of ``source``."""
    for i in range(source.size):
        target[i] = source[i]


# ---- bits of a float


@intrinsic
def _bits_of(typing_context, value):
    """The int32 with the bits of a float32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def _float_of(typing_context, bits):
    """The float32 with the bits of an int32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


def by_precision(single, double):
    """Function of a float that has an implementation for each precision.

    Its terms are not reordered, even within ``compiled_sums``: exp in float64 rounds
    by adding and subtracting a large number.
    """

    def function(x):
        raise NotImplementedError("only compiled code calls this function")

    options = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}

    @overload(function, jit_options=options)
    def choose(x):
        return single if x == types.float32 else double

    return function


# ---- elementary functions

F32 = np.float32
_LOG2_E_DOUBLE = 1 / math.log(2)
# log(2) is the sum of both; products of the first with |n| <= 1024 are exact.
_LN2_HIGH_DOUBLE, _LN2_LOW_DOUBLE = 0.6931471806019545, -4.2009150726810846e-11
# 1.5 * 2^52: a sum with it is rounded to an integer, which its lowest bits contain.
_ROUND = 6755399441055744.0
# Taylor's series of exp(x), |x| <= log(2) / 2, and of atanh(x) / x in powers of x^2,
# x <= 1 / 3, from the highest power.
_EXP = tuple(1 / math.factorial(k) for k in range(13, -1, -1))
_ATANH = tuple(1 / (2 * k + 1) for k in range(16, -1, -1))
_LOG2_E, _LN2_HIGH, _LN2_LOW = F32(1.44269504), F32(0.693359375), F32(-2.12194440e-4)


def _exp_single(x):
    # 2^n exp(r) with |r| <= log(2) / 2; Cephes' expf.
    t = min(max(x, F32(-87.0)), F32(88.0))
    n = np.floor(t * _LOG2_E + F32(0.5))
    r = t - n * _LN2_HIGH - n * _LN2_LOW
    p = F32(1.9875691500e-4)
    p = p * r + F32(1.3981999507e-3)
    p = p * r + F32(8.3334519073e-3)
    p = p * r + F32(4.1665795894e-2)
    p = p * r + F32(1.6666665459e-1)
    p = p * r + F32(5.0000001201e-1)
    p = p * r * r + r + F32(1.0)
    return p * _float_of((np.int32(n) + np.int32(127)) << np.int32(23))


def _exp_double(x):
    t = min(max(x, -708.0), 709.0)
    rounded = t * _LOG2_E_DOUBLE + _ROUND
    n = rounded - _ROUND
    r = t - n * _LN2_HIGH_DOUBLE - n * _LN2_LOW_DOUBLE
    p = _EXP[0]
    for k in range(1, 14):
        p = p * r + _EXP[k]
    power = (np.float64(rounded).view(np.int64) + 1023) << 52
    return p * np.int64(power).view(np.float64)


exp = by_precision(_exp_single, _exp_double)


def _log_single(x):
    # e log(2) + log(m) with m in [sqrt(1/2), sqrt(2)); Cephes' logf. For x > 0.
    bits = _bits_of(x)
    e = (bits >> np.int32(23)) - np.int32(126)
    m = _float_of((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000))
    small = m < F32(0.70710678)
    exponent = F32(e) - (F32(1.0) if small else F32(0.0))
    m = (m + m if small else m) - F32(1.0)
    z = m * m
    p = F32(7.0376836292e-2)
    p = p * m + F32(-1.1514610310e-1)
    p = p * m + F32(1.1676998740e-1)
    p = p * m + F32(-1.2420140846e-1)
    p = p * m + F32(1.4249322787e-1)
    p = p * m + F32(-1.6668057665e-1)
    p = p * m + F32(2.0000714765e-1)
    p = p * m + F32(-2.4999993993e-1)
    p = p * m + F32(3.3333331174e-1)
    p = p * m * z + exponent * _LN2_LOW - F32(0.5) * z
    return m + p + exponent * _LN2_HIGH


def _log_double(x):
    return math.log(x) if x > 0 else -math.inf


log = by_precision(_log_single, _log_double)


def _softplus_single(x):
    # log(1 + u) = log(1 + u) u / ((1 + u) - 1) with the rounded 1 + u [Kahan].
    u = exp(-abs(x))
    v = F32(1.0) + u
    d = v - F32(1.0)
    exact = d > F32(0.0)
    ratio = u / (d if exact else F32(1.0))
    value = log(v) * ratio
    return max(x, F32(0.0)) + (value if exact else u)


def _softplus_double(x):
    # log(1 + u) = 2 atanh(u / (2 + u)); even and odd powers have their own sums.
    u = exp(-abs(x))
    s = u / (2.0 + u)
    z = s * s
    even, odd = _ATANH[0], _ATANH[1]
    for k in range(2, 17, 2):
        even = even * (z * z) + _ATANH[k]
    for k in range(3, 17, 2):
        odd = odd * (z * z) + _ATANH[k]
    return max(x, 0.0) + 2.0 * s * (even + z * odd)


softplus = by_precision(_softplus_single, _softplus_double)


def _sigmoid_single(x):
    return F32(1.0) / (F32(1.0) + exp(-x))


def _sigmoid_double(x):
    return 1.0 / (1.0 + exp(-x))


sigmoid = by_precision(_sigmoid_single, _sigmoid_double)


def tanh_single(x):
    # Cephes' tanhf.
    z = x * x
    p = F32(-5.70498872745e-3)
    p = p * z + F32(2.06390887954e-2)
    p = p * z + F32(-5.37397155531e-2)
    p = p * z + F32(1.33314422036e-1)
    p = p * z + F32(-3.33332819422e-1)
    near = p * z * x + x
    a = abs(x)
    far = F32(1.0) - F32(2.0) / (exp(a + a) + F32(1.0))
    far = -far if x < F32(0.0) else far
    return near if a < F32(0.625) else far


def _tanh_double(x):
    return math.tanh(x)


tanh = by_precision(tanh_single, _tanh_double)


def _erf_single(x):
    # A rational function on [-4, 4], as in Eigen.
    t = min(max(x, F32(-4.0)), F32(4.0))
    z = t * t
    p = F32(-2.72614225801306e-10)
    p = p * z + F32(2.77068142495902e-08)
    p = p * z + F32(-2.10102402082508e-06)
    p = p * z + F32(-5.69250639462346e-05)
    p = p * z + F32(-7.34990630326855e-04)
    p = p * z + F32(-2.95459980854025e-03)
    p = p * z + F32(-1.60960333262415e-02)
    q = F32(-1.45660718464996e-05)
    q = q * z + F32(-2.13374055278905e-04)
    q = q * z + F32(-1.68282697438203e-03)
    q = q * z + F32(-7.37332916720468e-03)
    q = q * z + F32(-1.42647390514189e-02)
    return t * p / q


def _erf_double(x):
    return math.erf(x)


erf = by_precision(_erf_single, _erf_double)


def _cos_turn_single(x):
    # 2 pi x = (pi / 2) q + r with |r| <= pi / 4, for x in [0, 1).
    q = np.floor(F32(4.0) * x + F32(0.5))
    r = (x - F32(0.25) * q) * F32(6.283185307)
    z = r * r
    s = F32(-1.9515295891e-4)
    s = s * z + F32(8.3321608736e-3)
    s = s * z + F32(-1.6666654611e-1)
    s = s * z * r + r
    c = F32(2.443315711809948e-5)
    c = c * z + F32(-1.388731625493765e-3)
    c = c * z + F32(4.166664568298827e-2)
    c = c * z * z - F32(0.5) * z + F32(1.0)
    quadrant = np.int32(q) & np.int32(3)
    value = s if (quadrant & np.int32(1)) != np.int32(0) else c
    half = (quadrant + np.int32(1)) & np.int32(2)
    return -value if half != np.int32(0) else value


def _cos_turn_double(x):
    return math.cos(x * (2 * math.pi))


cos_turn = by_precision(_cos_turn_single, _cos_turn_double)


def _sin_turn_single(x):
    # sin(2 pi x) = cos(2 pi (x - 1/4)); the differences are exact in [0, 1).
    return cos_turn(x - F32(0.25) if x >= F32(0.25) else x + F32(0.75))


def _sin_turn_double(x):
    return math.sin(x * (2 * math.pi))


sin_turn = by_precision(_sin_turn_single, _sin_turn_double)

# ---- random numbers, as in `_engine.training_random`

_GOLDEN = np.uint64(GOLDEN)
_MULTIPLIER_1 = np.uint64(MULTIPLIER_1)
_MULTIPLIER_2 = np.uint64(MULTIPLIER_2)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = (
    np.uint64(SHIFT_1),
    np.uint64(SHIFT_2),
    np.uint64(SHIFT_3),
)
# Bits of a word that a uniform number does not need, and distance of two numbers.
_SPARE_BITS_SINGLE = np.uint64(64 - uniform_bits(torch.float32))
_SPARE_BITS_DOUBLE = np.uint64(64 - uniform_bits(torch.float64))
_SPACING_SINGLE = np.float32(2.0 ** -uniform_bits(torch.float32))
_SPACING_DOUBLE = 2.0 ** -uniform_bits(torch.float64)


@compiled
def _finalise(word):
    word = (word ^ (word >> _SHIFT_1)) * _MULTIPLIER_1
    word = (word ^ (word >> _SHIFT_2)) * _MULTIPLIER_2
    return word ^ (word >> _SHIFT_3)


@compiled
def fill_words(words, seed, n_used):
    """Write words after the first ``n_used`` of a sequence; return the new count."""
    state = _finalise(seed) + _GOLDEN * np.uint64(n_used)
    for i in range(words.size):
        words[i] = _finalise(state + _GOLDEN * np.uint64(i + 1))
    return n_used + words.size


# Pairs of numbers that are computed at once, in a core's first cache.
_BLOCK = 256


def _uniform_of(word, like):
    raise NotImplementedError("only compiled code calls this function")


@overload(_uniform_of)
def _(word, like):
    # Through int32, since few processors convert int64 to float32 in vectors.
    if like == types.float32:
        return lambda word, like: (
            np.float32(np.int32(word >> _SPARE_BITS_SINGLE)) * _SPACING_SINGLE
        )
    return lambda word, like: (
        np.float64(np.int64(word >> _SPARE_BITS_DOUBLE)) * _SPACING_DOUBLE
    )


@compiled
def fill_uniform(values, words):
    """Uniform numbers in [0, 1), one per word, at the full precision."""
    for i in range(values.size):
        values[i] = _uniform_of(words[i], values[0])


@compiled
def fill_normal(values, words):
    """Standard normal numbers, two per pair of words [Box & Muller 1958].

    values : an even number of floats
    """
    one, minus_two = values.dtype.type(1), values.dtype.type(-2)
    n = values.size // 2
    radius, turn = np.empty(_BLOCK, values.dtype), np.empty(_BLOCK, values.dtype)
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        pairs = words[2 * start : 2 * (start + size)]
        for i in range(size):
            radius[i] = one - _uniform_of(pairs[2 * i], one)
            turn[i] = _uniform_of(pairs[2 * i + 1], one)
        for i in range(size):
            radius[i] = np.sqrt(minus_two * log(radius[i]))
        out = values[2 * start : 2 * (start + size)]
        for i in range(size):
            out[2 * i] = radius[i] * cos_turn(turn[i])
        for i in range(size):
            out[2 * i + 1] = radius[i] * sin_turn(turn[i])


@compiled
def fill_order(order, words, keys, spare):
    """A random order of range(n): a stable radix sort of the words' upper halves.

    order, keys, spare : arrays of n int64, uint32 and uint64
    """
    n = order.size
    counts = np.empty(2048, np.int64)
    for i in range(n):
        order[i] = i
        keys[i] = np.uint32(words[i] >> np.uint64(32))
    for digit in range(3):
        shift = np.uint32(11 * digit)
        fill(counts, 0)
        for i in range(n):
            counts[(keys[i] >> shift) & np.uint32(2047)] += 1
        total = 0
        for k in range(2048):
            total, counts[k] = total + counts[k], total
        for i in range(n):
            key = keys[i]
            k = (key >> shift) & np.uint32(2047)
            spare[counts[k]] = (np.uint64(key) << np.uint64(32)) | np.uint64(order[i])
            counts[k] += 1
        for i in range(n):
            keys[i] = np.uint32(spare[i] >> np.uint64(32))
            order[i] = np.int64(spare[i] & np.uint64(0xFFFFFFFF))


# ---- matrix products, by the BLAS that SciPy ships
#
# Of flat arrays: inputs (rows, inputs), W (inputs, outputs), outputs (rows, outputs).
# The last array is written; shape is (rows, inputs, outputs).


@compiled
def product(inputs, weights, outputs, shape):
    """outputs = inputs W."""
    n_rows, n_inputs, n_outputs = shape
    np.dot(
        inputs.reshape(n_rows, n_inputs),
        weights.reshape(n_inputs, n_outputs),
        outputs.reshape(n_rows, n_outputs),
    )


@compiled
def product_over_rows(inputs, outputs, weights, shape):
    """W = inputs^T outputs, a sum over the rows."""
    n_rows, n_inputs, n_outputs = shape
    np.dot(
        inputs.reshape(n_rows, n_inputs).T,
        outputs.reshape(n_rows, n_outputs),
        weights.reshape(n_inputs, n_outputs),
    )


@compiled
def product_back(outputs, weights, inputs, shape):
    """inputs = outputs W^T."""
    n_rows, n_inputs, n_outputs = shape
    np.dot(
        outputs.reshape(n_rows, n_outputs),
        weights.reshape(n_inputs, n_outputs).T,
        inputs.reshape(n_rows, n_inputs),
    )
