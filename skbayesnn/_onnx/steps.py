"""The steps before the network of a pipeline, by skl2onnx."""

from itertools import pairwise

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skbayesnn._onnx.graph import OPSETS, Graph, Tensor, needed
from skbayesnn.preprocessing import PiecewiseLinearEncoder


def transformed(steps: Pipeline, inputs: dict[str, Tensor], types) -> Tensor:
    """What the transformers make of the inputs, (rows, columns).

    types : list of (name, type of skl2onnx) of the inputs, or None: one of float32
    """
    # imbalanced-learn's samplers have no transform: they change the rows of the fit.
    known = [
        (n, _thawed(step)) for n, step in steps.steps if hasattr(step, "transform")
    ]
    if not known and types is None:
        [x] = inputs.values()
        return x
    convert = needed("skl2onnx").convert_sklearn
    _register_encoder()
    if types is None:
        columns = getattr(steps, "n_features_in_", None)
        kind = needed("skl2onnx.common.data_types").FloatTensorType([None, columns])
        types = [(name, kind) for name in inputs]
    model = convert(Pipeline(known), initial_types=types, target_opset=OPSETS)
    [graph] = {tensor.graph for tensor in inputs.values()}
    return graph.inline(model, inputs)


def _thawed(step):
    return _thawed(step.estimator) if isinstance(step, FrozenEstimator) else step


def encoded(encoder: PiecewiseLinearEncoder, x: Tensor) -> Tensor:
    """As its ``transform``: (rows, columns), float32 -> (rows, features), float32."""
    of_columns = zip(encoder.bin_edges_, encoder.values_, strict=True)
    features = [
        (j, below, above)
        for j, (edges, values) in enumerate(of_columns)
        for below, above in [
            *([(0.0, np.inf)] if encoder.keep_columns else []),
            *pairwise(edges),
            # A value's feature: of no width.
            *zip(values, values, strict=True),
        ]
    ]
    column, below, above = (np.array(v) for v in zip(*features, strict=True))
    kept, own = np.isinf(above), below == above
    value = x.cast(np.float64).take(column, axis=1)
    inside = value.op("Max", below).op("Min", above) - below
    share = inside / np.where(kept | own, 1.0, above - below)
    is_value = value.op("Equal", above).cast(np.float64)
    encoding = x.graph.op("Where", own, is_value, share)
    return x.graph.op("Where", kept, value, encoding).cast(np.float32)


def _register_encoder() -> None:
    """Tell skl2onnx of the encoder, wherever among the steps it is."""
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
