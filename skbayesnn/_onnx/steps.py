"""Steps of a pipeline before the network, converted by skl2onnx."""

from itertools import pairwise, takewhile

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from skbayesnn._onnx.graph import OPSETS, Graph, Tensor, needed
from skbayesnn._onnx.parts import thawed
from skbayesnn.preprocessing import PiecewiseLinearEncoder

# Transformers that skl2onnx converts for inputs in double precision. Graphs of others
# fail in ONNX Runtime, such as of PolynomialFeatures and SimpleImputer.
_IN_DOUBLE = (
    MaxAbsScaler,
    MinMaxScaler,
    PiecewiseLinearEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)


def transformed(steps: Pipeline, inputs: dict[str, Tensor], types) -> Tensor:
    """Output of the transformers, (rows, columns).

    types : list of (name, type of skl2onnx) of the inputs; None for one float32 input
    """
    # imbalanced-learn's samplers have no `transform`: they change rows in `fit` only.
    transformers = [
        (name, thawed(step)) for name, step in steps.steps if hasattr(step, "transform")
    ]
    if not transformers and types is None:
        [x] = inputs.values()
        return x
    convert = needed("skl2onnx").convert_sklearn
    _register_encoder()
    if types is None:
        types = [(name, _type_of(steps, "Float")) for name in inputs]
    model = convert(Pipeline(transformers), initial_types=types, target_opset=OPSETS)
    [graph] = {tensor.graph for tensor in inputs.values()}
    return graph.inline(model, inputs)


def after_table(transformers: list, x: Tensor) -> Tensor:
    """Output of the transformers after a ``TableEncoder``, (rows, columns).

    transformers : list of (name, transformer)
    x : features of the table, float64
    """
    double = list(takewhile(lambda step: isinstance(step[1], _IN_DOUBLE), transformers))
    single = transformers[len(double) :]
    if double:
        steps = Pipeline(double)
        x = transformed(steps, {"x": x}, [("x", _type_of(steps, "Double"))])
    if single:
        x = transformed(Pipeline(single), {"x": x.cast(np.float32)}, None)
    return x


def _type_of(steps: Pipeline, precision: str):
    """Type of skl2onnx for the input of transformers; precision : Float or Double."""
    types = needed("skl2onnx.common.data_types")
    shape = [None, getattr(steps, "n_features_in_", None)]
    return getattr(types, f"{precision}TensorType")(shape)


def encoded(encoder: PiecewiseLinearEncoder, x: Tensor) -> Tensor:
    """Apply the encoder: (rows, columns) to (rows, features), float32."""
    columns = zip(encoder.bin_edges_, encoder.values_, strict=True)
    # A column that is kept has the bounds 0 and infinity; an indicator feature has
    # equal bounds; the others are bins.
    features = [
        (j, lower, upper)
        for j, (edges, values) in enumerate(columns)
        for lower, upper in [
            *([(0.0, np.inf)] if encoder.keep_columns else []),
            *pairwise(edges),
            *zip(values, values, strict=True),
        ]
    ]
    column, lower, upper = (np.array(v) for v in zip(*features, strict=True))
    is_kept, is_indicator = np.isinf(upper), lower == upper
    value = x.cast(np.float64).take(column, axis=1)
    in_bin = value.op("Max", lower).op("Min", upper) - lower
    share = in_bin / np.where(is_kept | is_indicator, 1.0, upper - lower)
    indicator = value.op("Equal", upper).cast(np.float64)
    encoding = x.graph.op("Where", is_indicator, indicator, share)
    return x.graph.op("Where", is_kept, value, encoding).cast(np.float32)


def _register_encoder() -> None:
    """Register a converter of the encoder at skl2onnx, for all steps of a pipeline."""
    skl2onnx = needed("skl2onnx")
    types = needed("skl2onnx.common.data_types")
    add_onnx_graph = needed("skl2onnx.helpers").add_onnx_graph

    def shapes(operator):
        encoder = operator.raw_operator
        width = len(encoder.get_feature_names_out())
        operator.outputs[0].type = types.FloatTensorType([None, width])

    def convert(scope, operator, container):
        encoder, graph = operator.raw_operator, Graph()
        n_columns = encoder.n_features_in_
        is_double = isinstance(operator.inputs[0].type, types.DoubleTensorType)
        dtype = np.float64 if is_double else np.float32
        x = graph.input("X", dtype, [None, n_columns])
        graph.output("features", encoded(encoder, x), np.float32, [None, None])
        add_onnx_graph(scope, operator, container, graph.model())

    skl2onnx.update_registered_converter(
        PiecewiseLinearEncoder,
        "SkbayesnnPiecewiseLinearEncoder",
        shapes,
        convert,
        overwrite=True,
    )
