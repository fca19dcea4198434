"""A graph, run on rows; and the package's own predictions under the same names."""

import numpy as np
import pytest

import skbayesnn
from skbayesnn import to_onnx

Q = (0.05, 0.5, 0.95)


def outputs(onnx_model, inputs):
    """Arrays by name; inputs : X, or arrays by name."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(
        onnx_model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    if not isinstance(inputs, dict):
        inputs = {"X": np.asarray(inputs, dtype=np.float32)}
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def own_numbers(model, X, q=Q):
    """What a regressor of the package, or a pipeline of one, says."""
    own = {
        "mean": model.predict(X),
        "std": skbayesnn.predict_uncertainty(model, X, kind="total"),
    }
    if len(q):
        own["quantiles"] = skbayesnn.predict_quantile(model, X, q)
    return own


def own_classes(model, X):
    """What a classifier of the package, or a pipeline of one, says."""
    kinds = ["entropy", "mutual_information"]
    return {
        "label": model.predict(X),
        "probabilities": model.predict_proba(X),
        **skbayesnn.predict_uncertainty(model, X, kind=kinds),
    }


def assert_same_numbers(model, X, y, q=Q, tolerance=1e-5):
    """To float32's rounding of what the networks say: in standard deviations of y."""
    X = np.asarray(X, dtype=np.float32)
    assert_close(
        outputs(to_onnx(model, q=q), X), own_numbers(model, X, q), y, tolerance
    )


def assert_close(actual, own, y, tolerance=1e-5):
    assert actual.keys() == own.keys()
    for name, values in own.items():
        assert actual[name].shape == values.shape, name
        scale = y.std(0)
        if name == "quantiles":
            scale = np.asarray(scale)[..., None]
        error = np.abs(actual[name] - values) / scale
        assert error.max() < tolerance, f"{name}: {error.max():.1e}"


def assert_same_classes(model, X, tolerance=1e-5):
    """Labels are the same where the two likeliest classes are apart."""
    X = np.asarray(X, dtype=np.float32)
    actual, own = outputs(to_onnx(model), X), own_classes(model, X)
    assert actual.keys() == own.keys()
    label, expected = actual.pop("label"), own.pop("label")
    assert label.shape == expected.shape
    likeliest = np.sort(own["probabilities"], axis=1)[:, -2:]
    apart = np.diff(likeliest)[:, 0] > 2 * tolerance
    assert np.array_equal(label[apart], expected[apart])
    for name, values in own.items():
        np.testing.assert_allclose(actual[name], values, rtol=0, atol=tolerance)
