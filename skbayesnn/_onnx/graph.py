"""Builder of an ONNX graph, and tensors whose arithmetic adds nodes to it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy.special import erfcx

from skbayesnn._runtime import required

# Versions that skl2onnx and ONNX Runtime support from 1.14 on.
OPSETS = {"": 18, "ai.onnx.ml": 3}
IR_VERSION = 8


def needed(package: str):
    """Import a package of the extra ``onnx``.

    Raises
    ------
    ImportError
        If it is not installed.
    """
    return required(package, "`to_onnx` needs", 'pip install "skbayesnn[onnx]"')


# Methods of ``Tensor`` for functions of NumPy and torch with other names.
_METHODS = {
    "add": "__add__",
    "sub": "__sub__",
    "subtract": "__sub__",
    "mul": "__mul__",
    "multiply": "__mul__",
    "div": "__truediv__",
    "divide": "__truediv__",
    "negative": "__neg__",
    "log_sigmoid": "logsigmoid",
    "expit": "sigmoid",
    "power": "__pow__",
    "greater": "__gt__",
    "greater_equal": "__ge__",
    "less": "__lt__",
    "less_equal": "__le__",
}


class Tensor:
    """A named value of the graph; arithmetic with arrays and tensors adds nodes.

    So do the functions of NumPy and torch that have a method here. Likelihoods and
    distributions of y are therefore the same code in a graph and in a prediction.
    Operands must have the same type; numbers are float64.
    """

    def __init__(self, graph: "Graph", name: str):
        self.graph, self.name = graph, name

    def __array_ufunc__(self, ufunc, method, *operands, **options):
        return _applied(ufunc.__name__, operands, options)

    def __array_function__(self, function, types, operands, options):
        if function is np.stack:
            axis = options["axis"]
            return concatenated([t.unsqueeze(axis) for t in operands[0]], axis)
        return _applied(function.__name__, operands, options)

    @classmethod
    def __torch_function__(cls, function, types, operands=(), options=None):
        return _applied(function.__name__.strip("_"), operands, options or {})

    def op(self, op_type: str, *others, **attributes) -> "Tensor":
        """Apply an ONNX operator to this and other operands."""
        return self.graph.op(op_type, self, *others, **attributes)

    def __add__(self, other):
        return self.op("Add", other)

    def __sub__(self, other):
        return self.op("Sub", other)

    def __mul__(self, other):
        return self.op("Mul", other)

    def __truediv__(self, other):
        return self.op("Div", other)

    def __matmul__(self, other):
        return self.op("MatMul", other)

    def __radd__(self, other):
        return self.graph.op("Add", other, self)

    def __rsub__(self, other):
        return self.graph.op("Sub", other, self)

    def __rmul__(self, other):
        return self.graph.op("Mul", other, self)

    def __neg__(self):
        return self.op("Neg")

    def __pow__(self, power):
        return self.op("Pow", float(power))

    def __gt__(self, other):
        return self.op("Greater", other)

    def __ge__(self, other):
        return self.op("GreaterOrEqual", other)

    def __lt__(self, other):
        return self.op("Less", other)

    def __le__(self, other):
        return self.op("LessOrEqual", other)

    def __getitem__(self, index) -> "Tensor":
        """Entries of the last axes: ``[..., index]`` with an index for each of them."""
        values, (_, *items) = self, index
        for axis, item in zip(range(-len(items), 0), items, strict=True):
            if item is None:
                values = values.unsqueeze(axis)
            elif not isinstance(item, slice):
                values = values.take(item, axis)
            elif item != slice(None):
                stop = np.iinfo(np.int64).max if item.stop is None else item.stop
                values = values.op("Slice", [item.start or 0], [stop], [axis])
        return values

    def isnan(self) -> "Tensor":
        return self.op("IsNaN")

    def where(self, values, others) -> "Tensor":
        """Values where this tensor is true, and others elsewhere."""
        return self.op("Where", values, others)

    def sin(self) -> "Tensor":
        return self.op("Sin")

    def cos(self) -> "Tensor":
        return self.op("Cos")

    def maximum(self, other) -> "Tensor":
        return self.op("Max", other)

    def minimum(self, other) -> "Tensor":
        return self.op("Min", other)

    def floor(self) -> "Tensor":
        return self.op("Floor")

    def ceil(self) -> "Tensor":
        return self.op("Ceil")

    def zeros_like(self) -> "Tensor":
        return self * 0.0

    def ones_like(self) -> "Tensor":
        return self * 0.0 + 1.0

    def ndtr(self) -> "Tensor":
        """Normal distribution function."""
        return half_erfc(self * -np.sqrt(0.5))[0]

    def exp(self) -> "Tensor":
        return self.op("Exp")

    def log(self) -> "Tensor":
        return self.op("Log")

    def sqrt(self) -> "Tensor":
        return self.op("Sqrt")

    def tanh(self) -> "Tensor":
        return self.op("Tanh")

    def erf(self) -> "Tensor":
        return self.op("Erf")

    def relu(self) -> "Tensor":
        return self.op("Relu")

    def sigmoid(self) -> "Tensor":
        return self.op("Sigmoid")

    def silu(self, inplace: bool = False) -> "Tensor":
        return self * self.sigmoid()

    def square(self) -> "Tensor":
        return self * self

    def clamp(self, min=None, max=None) -> "Tensor":
        """Clip to bounds."""
        values = self if min is None else self.op("Max", min)
        return values if max is None else values.op("Min", max)

    def clip(self, low, high, out=None) -> "Tensor":
        """Clip to bounds, as NumPy calls it."""
        return self.clamp(low, high)

    def softmax(self, dim: int) -> "Tensor":
        return self.op("Softmax", axis=dim)

    def log_softmax(self, dim: int) -> "Tensor":
        return self.op("LogSoftmax", axis=dim)

    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> "Tensor":
        """log(1 + exp(beta x)) / beta; without effect, the threshold of torch."""
        return (self * beta).op("Softplus") / beta

    def logsigmoid(self) -> "Tensor":
        return -(-self).softplus()

    def logaddexp(self, other) -> "Tensor":
        return other + (self - other).softplus()

    def pad(self, widths: Sequence[int], mode="constant", value=None) -> "Tensor":
        """Add zeros before and after the last axis; only that mode is used."""
        return self.op("Pad", np.array(widths), 0.0, np.array([-1]))

    def unflatten(self, dim: int, sizes: Sequence[int]) -> "Tensor":
        """Split the last axis into axes of the given sizes."""
        first = self.op("Shape", end=-1)
        return self.op("Reshape", first.op("Concat", np.array(sizes), axis=0))

    def to(self, other) -> "Tensor":
        """The same values: all are float64."""
        return self

    def sum(self, axis: int, keepdims: bool = False) -> "Tensor":
        """Sum over an axis."""
        return self._reduced("ReduceSum", axis, keepdims)

    def min(self, axis: int, keepdims: bool = False) -> "Tensor":
        """Minimum over an axis."""
        return self._reduced("ReduceMin", axis, keepdims)

    def max(self, axis: int, keepdims: bool = False) -> "Tensor":
        """Maximum over an axis."""
        return self._reduced("ReduceMax", axis, keepdims)

    def take(self, index, axis: int) -> "Tensor":
        """Select entries along an axis; a scalar index drops the axis."""
        return self.op("Gather", np.asarray(index, dtype=np.int64), axis=axis)

    def cast(self, dtype) -> "Tensor":
        """Convert to a dtype."""
        return self.op("Cast", to=element_type(dtype))

    astype = cast

    def unsqueeze(self, axis: int) -> "Tensor":
        """Insert an axis of length 1."""
        return self.op("Unsqueeze", np.array([axis]))

    def squeeze(self, axis: int) -> "Tensor":
        """Drop an axis of length 1."""
        return self.op("Squeeze", np.array([axis]))

    def expand_as(self, other: "Tensor") -> "Tensor":
        """Broadcast to the shape of another tensor."""
        return self.op("Expand", other.op("Shape"))

    def _reduced(self, op_type, axis, keepdims):
        return self.op(op_type, np.array([axis]), keepdims=int(keepdims))


# Degree of the polynomial of the error function; the relative error is 1.3e-8.
_DEGREE = 11


def half_erfc(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return erfc(z) / 2 and exp(-z^2).

    ONNX Runtime has no error function in double precision, and in single precision its
    tails are zero. Here erfc(z) is exp(-z^2) times a polynomial in 1 / (1 + z / 2),
    z >= 0.
    """
    bell = (-z.square()).op("Exp")
    t = (z.op("Abs") * 0.5 + 1.0).op("Reciprocal")
    *lower, highest = half_erfc_polynomial()
    series = t * highest
    for coefficient in lower[::-1]:
        series = (series + coefficient) * t
    tail = series * bell
    return (z < 0).op("Where", 1.0 - tail, tail), bell


def half_erfc_polynomial() -> np.ndarray:
    """c in erfc(z) exp(z^2) / 2 = sum_k c_k t^(k + 1), t = 1 / (1 + z / 2)."""

    def scaled(t):
        return 0.5 * erfcx(2 * (1 / t - 1)) / t

    series = Chebyshev.interpolate(scaled, _DEGREE - 1, domain=[0, 1])
    return series.convert(kind=Polynomial, domain=[-1, 1], window=[-1, 1]).coef


def concatenated(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate one or more tensors along an axis."""
    first, *others = tensors
    return first.op("Concat", *others, axis=axis) if others else first


def _applied(name: str, operands: Sequence, options: dict) -> Tensor:
    """Apply a function of NumPy or torch, by its name, of which a tensor is an operand.

    Raises
    ------
    TypeError
        If ``Tensor`` has no such method.
    """
    method = getattr(Tensor, _METHODS.get(name, name), None)
    if method is None:
        raise TypeError(
            f"`to_onnx` has no operator for {name!r}, which the model computes from "
            "the outputs of a network. Add it to the class `Tensor` of a graph."
        )
    [graph] = {value.graph for value in operands if isinstance(value, Tensor)}
    first, *others = operands
    first = first if isinstance(first, Tensor) else graph.constant(first)
    return method(first, *others, **options)


class Graph:
    """Nodes and constants of a graph, in the order of their creation."""

    def __init__(self):
        self._onnx = needed("onnx")
        self._nodes: list = []
        self._constants: list = []
        self._inputs: dict[str, Any] = {}
        self._outputs: list = []
        self._n_names = 0

    def op(self, op_type: str, *operands, **attributes) -> Tensor:
        """Add a node with one output; arrays become constants."""
        names = [self._name_of(operand) for operand in operands]
        output = self._fresh(op_type)
        self._node(op_type, names, [output], **attributes)
        return Tensor(self, output)

    def constant(self, values) -> Tensor:
        """Add an array as a constant, with its own dtype."""
        name = self._fresh("constant")
        values = np.asarray(values)
        values = values.astype(object) if values.dtype.kind == "U" else values
        self._constants.append(self._onnx.numpy_helper.from_array(values, name))
        return Tensor(self, name)

    def input(self, name: str, dtype, shape) -> Tensor:
        """Add an input of the graph; None in the shape is a variable length."""
        self._inputs[name] = self._described(name, dtype, shape)
        return Tensor(self, name)

    def input_of(self, name: str, tensor_type) -> Tensor:
        """Add an input with an ONNX type."""
        self._inputs[name] = self._onnx.helper.make_value_info(name, tensor_type)
        return Tensor(self, name)

    def output(self, name: str, tensor: Tensor, dtype, shape) -> None:
        """Add an output of the graph.

        Raises
        ------
        TypeError
            If an input has the same name.
        """
        if name in self._inputs:
            raise TypeError(
                f"a graph has an output {name!r}, and no column of this name. Rename "
                "the column before fit, or the input in `initial_types`."
            )
        self._node("Identity", [tensor.name], [name])
        self._outputs.append(self._described(name, dtype, shape))

    def loop(self, body: Callable, most: int, *start: Tensor) -> list[Tensor]:
        """Add a loop, and return the last values of its state.

        body : takes the state, float64 tensors; returns whether to continue, and the
            next state
        most : maximum number of iterations
        start : first values of the state
        """
        helper = self._onnx.helper
        outer_nodes, self._nodes = self._nodes, []
        state = [Tensor(self, self._fresh("state")) for _ in start]
        resume, *next_state = body(*state)
        iteration, condition = self._fresh("step"), self._fresh("go_on")
        inputs = [
            self._described(iteration, np.int64, []),
            self._described(condition, np.bool_, []),
            *(self._described(tensor.name, np.float64, None) for tensor in state),
        ]
        outputs = [
            self._described(resume.name, np.bool_, []),
            *(self._described(tensor.name, np.float64, None) for tensor in next_state),
        ]
        graph = helper.make_graph(self._nodes, self._fresh("body"), inputs, outputs)
        self._nodes = outer_nodes
        names = [self._name_of(np.array(most)), self._name_of(np.array(True))]
        results = [Tensor(self, self._fresh("Loop")) for _ in start]
        names += [tensor.name for tensor in start]
        self._node("Loop", names, [tensor.name for tensor in results], body=graph)
        return results

    def inline(self, model, inputs: dict[str, Tensor]) -> Tensor:
        """Insert another model with a single output, and connect its inputs by name."""
        prefix = self._fresh("steps") + "/"
        inner = self._onnx.compose.add_prefix(model, prefix).graph
        for name, tensor in inputs.items():
            self._node("Identity", [tensor.name], [prefix + name])
        self._nodes.extend(inner.node)
        self._constants.extend(inner.initializer)
        [output] = inner.output
        return Tensor(self, output.name)

    def model(self, **properties: str) -> Any:
        """Return the validated model, with properties as its metadata."""
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes,
            "skbayesnn",
            list(self._inputs.values()),
            self._outputs,
            self._constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*pair) for pair in OPSETS.items()],
            ir_version=IR_VERSION,
            producer_name="skbayesnn",
        )
        helper.set_model_props(model, properties)
        self._onnx.checker.check_model(model)
        return model

    def _node(self, op_type: str, inputs, outputs, **attributes) -> None:
        make = self._onnx.helper.make_node
        name = self._fresh(f"{op_type}_node")
        self._nodes.append(make(op_type, inputs, outputs, name=name, **attributes))

    def _name_of(self, operand) -> str:
        if isinstance(operand, int | float):
            operand = np.float64(operand)
        if not isinstance(operand, Tensor):
            operand = self.constant(operand)
        return operand.name

    def _fresh(self, op_type: str) -> str:
        """A name that no input has."""
        self._n_names += 1
        name = f"{op_type}_{self._n_names}"
        return self._fresh(op_type) if name in self._inputs else name

    def _described(self, name, dtype, shape):
        return self._onnx.helper.make_tensor_value_info(
            name, element_type(dtype), shape
        )


def element_type(dtype) -> int:
    """ONNX type number of a dtype; str and object are strings."""
    dtype = np.dtype(dtype)
    if dtype.kind in "OU":
        return needed("onnx").TensorProto.STRING
    return needed("onnx").helper.np_dtype_to_tensor_dtype(dtype)
