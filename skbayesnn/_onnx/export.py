"""The function ``to_onnx``: inputs and outputs of the exported graph."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skbayesnn._onnx.graph import Graph, Tensor
from skbayesnn._onnx.predictive import Classes, OnnxRows, Regression, predictive
from skbayesnn._onnx.quantiles import mixture_quantiles, recorded_quantiles
from skbayesnn._onnx.resolution import warn_of_rounded_columns
from skbayesnn._onnx.tables import add_inputs, description, input_columns, tables_of
from skbayesnn._validation import check_levels


def to_onnx(
    model: Any, *, q: Sequence[float] = (0.05, 0.5, 0.95), initial_types: Any = None
) -> Any:
    """Export the predictive distribution of a fitted model as an ONNX graph.

    Use it to predict without Python. The graph contains the weights of all posterior
    draws as constants. Its outputs equal the results of ``predict``,
    ``predict_quantile``, ``predict_proba`` and ``predict_uncertainty``, up to rounding
    in float32.

    Parameters
    ----------
    model : fitted estimator
        A multi-layer perceptron of this package, neighbours or a stack, alone, as the
        last step of a ``Pipeline``, in a search, or in
        ``CalibratedUncertaintyRegressor`` with ``method="scale"``. skl2onnx converts
        the other steps, in float32 arithmetic; scalers after a ``TableEncoder`` get
        double precision.
    q : float or sequence of float in (0, 1), default=(0.05, 0.5, 0.95)
        Levels of the quantiles of a regressor, by default the bounds of the 90 %
        interval and the median. Give () to leave quantiles out: they take most of the
        time, and require Gaussian observation noise (constant, heteroscedastic or a
        mixture). So does a y with bounds, a point mass or on another scale.
    initial_types : list of (name, type), default=None
        Inputs as for :func:`skl2onnx.convert_sklearn`. Give them if columns have
        several types. Give ``[("X", DoubleTensorType([None, n_features]))]`` if columns
        are far from zero: float32 rounds such columns, with a warning. None is one
        float32 input ``X`` of shape (n_samples, n_features); or, if the model was
        fitted to a frame with categories, dates or missing values, one input of shape
        (n_samples, 1) for each column that was not dropped, see the notes.

    Returns
    -------
    onnx_model : onnx.ModelProto
        ``onnx_model.SerializeToString()`` is the content of a file, and the input of a
        runtime. The outputs of a regressor are ``mean`` and ``std`` of shape
        (n_samples[, n_targets]), and ``quantiles`` with the levels as last axis. They
        are in y's units and float32, or double if float32 cannot resolve y, as in
        ``predict``. The outputs of a classifier are ``label``, ``probabilities``
        (n_samples, n_classes), ``entropy`` and ``mutual_information`` (n_samples,), in
        nats. The metadata contain ``q`` or ``classes`` as JSON.

    Raises
    ------
    ImportError
        If onnx is missing, or skl2onnx for a pipeline:
        ``pip install "skbayesnn[onnx]"``.
    ValueError
        If the embedded training rows of neighbours are larger than 2 GB, the limit of
        the file format.
    TypeError
        If the model, its network, a column, or quantiles of its observation noise are
        not supported.

    Notes
    -----
    All draws of all rows are in memory at the same time: predict batches of some
    hundred rows. A row with an unknown value or a rare level counts as 16 rows. For
    Bernoulli dropout, with a given or learned rate, and for Gaussian dropout the graph
    contains the weights once; otherwise once per draw (``n_draws``).

    For neighbours, the graph contains the embedded training rows of every draw, and
    computes the distances to all of them: 16 bytes per row, training row and draw.
    For quantiles, training rows with similar y are merged to at most 64 groups for each
    draw, width of the kernel and target, which keep mean and variance; the estimator
    has other groups. All other outputs are exact.

    Inputs of a model that encodes the columns of a frame (``table_``, or a
    ``TableEncoder`` in a pipeline) have the names of the columns. The metadata
    ``columns`` contain their kinds and time zones as JSON. The graph averages over
    unknown values as ``predict`` does; but an unseen level gets the mean of all rows,
    also if ``predict`` would use its text.

    ==================  =============  ================================================
    column              type           missing value
    ==================  =============  ================================================
    number, boolean     double         NaN
    duration            double         NaN; the others in seconds
    category, ordered   string         empty string
    date                int64          the smallest int64, NumPy's NaT; the others in
                                       microseconds since 1970, in local time of the
                                       time zone of ``fit``
    ==================  =============  ================================================

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import MCDropoutRegressor, to_onnx
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MCDropoutRegressor(max_iter=5, random_state=0).fit(X, y)
    >>> try:
    ...     print([output.name for output in to_onnx(model).graph.output])
    ... except ImportError:
    ...     print(["mean", "std", "quantiles"])  # the extra is not installed
    ['mean', 'std', 'quantiles']
    """
    levels = check_levels("q", q) if np.size(q) else []
    check_is_fitted(model)
    columns = input_columns(list(tables_of(model)))
    if initial_types is None and not columns:
        warn_of_rounded_columns(model)
    graph = Graph()
    distribution = predictive(model, _inputs(graph, model, columns, initial_types))
    about = {"columns": json.dumps(description(columns))} if columns else {}
    if isinstance(distribution, Classes):
        _add_class_outputs(graph, distribution)
        labels = json.dumps(distribution.labels.tolist())
        return graph.model(classes=labels, **about)
    _add_regression_outputs(graph, distribution, levels)
    return graph.model(q=json.dumps(levels), **about)


def _inputs(graph: Graph, model, columns, initial_types) -> OnnxRows:
    """Add the inputs of the graph."""
    if initial_types is None and columns:
        return OnnxRows(add_inputs(graph, columns))
    if initial_types is None:
        shape = ["n_samples", getattr(model, "n_features_in_", None)]
        return OnnxRows({"X": graph.input("X", np.float32, shape)})
    inputs = {
        name: graph.input_of(name, tensor_type.to_onnx_type())
        for name, tensor_type in initial_types
    }
    return OnnxRows(inputs, initial_types)


def _add_regression_outputs(
    graph: Graph, distribution: Regression, levels: list[float]
) -> None:
    """Add the outputs ``mean``, ``std`` and, for any levels, ``quantiles``."""
    if levels and distribution.not_normal:
        names = ", ".join(map(repr, sorted(distribution.not_normal)))
        raise TypeError(
            "`q` must be () if the observation noise is not Gaussian, since ONNX lacks "
            f"other distribution functions; got q={tuple(levels)} and likelihood="
            f"{names}. With q=() the graph has the outputs mean and std."
        )
    is_flat, dtype = distribution.is_flat, distribution.dtype
    shape: list = ["n_samples"] if is_flat else ["n_samples", None]
    moments = {"mean": distribution.mean, "std": distribution.variance.op("Sqrt")}
    for name, values in moments.items():
        _add_output(graph, name, _squeezed(values, is_flat), shape, dtype)
    if levels:
        values = (
            recorded_quantiles(distribution.draws, levels)
            if distribution.is_recorded
            else mixture_quantiles(distribution.normals(), levels)
        )
        values = _squeezed(values.op("Transpose", perm=[1, 2, 0]), is_flat)
        _add_output(graph, "quantiles", values, [*shape, len(levels)], dtype)


def _add_class_outputs(graph: Graph, distribution: Classes) -> None:
    """Add ``label``, ``probabilities``, ``entropy`` and ``mutual_information``."""
    share, probability, labels = (
        distribution.share,
        distribution.probability,
        distribution.labels,
    )
    mean = (share * probability).sum(0)
    mean = mean / mean.sum(-1, keepdims=True)
    expected = share.op("Squeeze", np.array([2])) * _entropy(probability)
    entropy, expected = _entropy(mean), expected.sum(0)
    label = graph.op("Gather", labels, mean.op("ArgMax", axis=-1, keepdims=0))
    graph.output("label", label, labels.dtype, ["n_samples"])
    _add_output(graph, "probabilities", mean, ["n_samples", len(labels)])
    _add_output(graph, "entropy", entropy, ["n_samples"])
    mutual = (entropy - expected).op("Max", np.array(0.0))
    _add_output(graph, "mutual_information", mutual, ["n_samples"])


def _entropy(probability: Tensor) -> Tensor:
    """Entropy over the last axis, nats; 0 log 0 is 0."""
    tiny = np.array(np.finfo(float).tiny)
    return -(probability * probability.op("Max", tiny).op("Log")).sum(-1)


def _squeezed(values: Tensor, is_flat: bool) -> Tensor:
    """Drop the target axis of (rows, targets, ...) if y had none."""
    return values.op("Squeeze", np.array([1])) if is_flat else values


def _add_output(
    graph: Graph, name: str, values: Tensor, shape, dtype=np.float32
) -> None:
    graph.output(name, values.cast(dtype), dtype, shape)
