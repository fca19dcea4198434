"""The ONNX model of an uncertain predictor, inputs to outputs."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skbayesnn._onnx.graph import Graph, Tensor
from skbayesnn._onnx.predictive import Classes, Numbers, Rows, predictive
from skbayesnn._onnx.quantiles import mixture_quantiles
from skbayesnn._onnx.resolution import warn_of_rounded_columns
from skbayesnn._predictive.mixin import checked_levels


def to_onnx(
    model: Any, *, q: Sequence[float] = (0.05, 0.5, 0.95), initial_types: Any = None
) -> Any:
    """The predictive of a fitted model as an ONNX graph.

    The weights of all posterior draws that predictions are made of are constants of
    the graph: it says what ``predict``, ``predict_quantile``, ``predict_proba`` and
    ``predict_uncertainty`` say of the same rows, to rounding in float32.

    Parameters
    ----------
    model : fitted estimator
        A perceptron of this package or a stack, alone, as the last step of a
        ``Pipeline``, in a search, or in ``CalibratedUncertaintyRegressor`` with
        ``method="scale"``. The steps before it are converted by skl2onnx, whose
        arithmetic is float32.
    q : float or sequence of float in (0, 1), default=(0.05, 0.5, 0.95)
        Levels of the quantiles of a regressor: the ends of the 90 % interval and the
        median. With () there are none: they are most of the work, and only Gaussian
        noise (equal, heteroscedastic or of several peaks) has them.
    initial_types : list of (name, type), default=None
        Inputs as :func:`skl2onnx.convert_sklearn` takes them, for columns of several
        types, or in double precision:
        ``[("X", DoubleTensorType([None, n_features]))]`` for columns far from zero,
        which float32 would round (there is a warning). None is one input ``X``,
        float32, of shape (n_samples, n_features).

    Returns
    -------
    onnx_model : onnx.ModelProto
        ``onnx_model.SerializeToString()`` is what a file holds and what a runtime
        takes. The outputs of a regressor are ``mean`` and ``std``, of shape
        (n_samples[, n_targets]), and ``quantiles``, with the levels as last axis, in
        y's units and float32 (double where that cannot resolve y, as of ``predict``);
        of a classifier ``label``, ``probabilities``
        (n_samples, n_classes), ``entropy`` and ``mutual_information`` (n_samples,),
        nats. Its metadata say which ``q``, or which ``classes``, as JSON.

    Raises
    ------
    ImportError
        Without onnx, or skl2onnx for a pipeline: ``pip install "skbayesnn[onnx]"``.
    TypeError
        For models, networks, and quantiles of noise that the graph cannot say.

    Notes
    -----
    All draws of all rows are held at once: give rows in batches of some hundred. The
    size of the file is that of the weights, where noise is on the inputs of a layer
    (Bernoulli dropout, at a given or learned rate, and Gaussian dropout), and
    otherwise as many times as large as there are draws (``n_draws``).

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
    levels = checked_levels(q) if np.size(q) else []
    check_is_fitted(model)
    if initial_types is None:
        warn_of_rounded_columns(model)
    graph = Graph()
    found = predictive(model, _rows(graph, model, initial_types))
    if isinstance(found, Classes):
        _say_of_classes(graph, found)
        return graph.model(classes=json.dumps(found.labels.tolist()))
    _say_of_numbers(graph, found, levels)
    return graph.model(q=json.dumps(levels))


def _rows(graph: Graph, model, initial_types) -> Rows:
    """The inputs of the graph."""
    if initial_types is None:
        shape = ["n_samples", getattr(model, "n_features_in_", None)]
        return Rows({"X": graph.input("X", np.float32, shape)})
    inputs = {
        name: graph.input_of(name, kind.to_onnx_type()) for name, kind in initial_types
    }
    return Rows(inputs, initial_types)


def _say_of_numbers(graph: Graph, found: Numbers, levels: list[float]) -> None:
    """Outputs ``mean``, ``std`` and, for some levels, ``quantiles``."""
    if levels and not found.normal:
        raise TypeError(
            "`q` must be () where noise is not Gaussian: ONNX has no such distribution "
            f"functions; got q={tuple(levels)} and likelihood="
            f"{', '.join(map(repr, sorted(found.likelihoods)))}. With q=() there are "
            "mean and std."
        )
    share, means, variances = found.moments
    mean = (share * means).sum(0)
    variance = (share * (variances + (means - mean).square())).sum(0)
    shape: list = ["n_samples"] if found.flat else ["n_samples", None]
    for name, values in {"mean": mean, "std": variance.op("Sqrt")}.items():
        _say(graph, name, _shaped(values, found.flat), shape, found.dtype)
    if levels:
        values = mixture_quantiles(found.moments, levels)
        last = values.op("Transpose", perm=[1, 2, 0])
        shape = [*shape, len(levels)]
        _say(graph, "quantiles", _shaped(last, found.flat), shape, found.dtype)


def _say_of_classes(graph: Graph, found: Classes) -> None:
    """Outputs ``label``, ``probabilities``, ``entropy`` and ``mutual_information``."""
    mean = (found.share * found.probability).sum(0)
    mean = mean / mean.sum(-1, keepdims=True)
    expected = found.share.op("Squeeze", np.array([2])) * _entropy(found.probability)
    entropy, expected = _entropy(mean), expected.sum(0)
    label = graph.op("Gather", found.labels, mean.op("ArgMax", axis=-1, keepdims=0))
    graph.output("label", label, found.labels.dtype, ["n_samples"])
    _say(graph, "probabilities", mean, ["n_samples", len(found.labels)])
    _say(graph, "entropy", entropy, ["n_samples"])
    mutual = (entropy - expected).op("Max", np.array(0.0))
    _say(graph, "mutual_information", mutual, ["n_samples"])


def _entropy(probability: Tensor) -> Tensor:
    """Over the last axis, nats; 0 log 0 is 0."""
    tiny = np.array(np.finfo(float).tiny)
    return -(probability * probability.op("Max", tiny).op("Log")).sum(-1)


def _shaped(values: Tensor, flat: bool) -> Tensor:
    """(rows, targets, ...), without the targets where y had no axis of them."""
    return values.op("Squeeze", np.array([1])) if flat else values


def _say(graph: Graph, name: str, values: Tensor, shape, dtype=np.float32) -> None:
    graph.output(name, values.cast(dtype), dtype, shape)
