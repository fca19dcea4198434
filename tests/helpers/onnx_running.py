"""Run a graph on rows, and compute the package's predictions under the same names."""

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


def expected_regression(model, X, q=Q):
    """Predictions of a regressor of the package, alone or at the end of a pipeline."""
    expected = {
        "mean": model.predict(X),
        "std": skbayesnn.predict_uncertainty(model, X, kind="total"),
    }
    if len(q):
        expected["quantiles"] = skbayesnn.predict_quantile(model, X, q)
    return expected


def expected_classification(model, X):
    """Predictions of a classifier of the package, alone or at the end of a pipeline."""
    kinds = ["entropy", "mutual_information"]
    return {
        "label": model.predict(X),
        "probabilities": model.predict_proba(X),
        **skbayesnn.predict_uncertainty(model, X, kind=kinds),
    }


# Rounding errors of float32 in sums of some hundred products, with a margin: in
# standard deviations of y, or in probabilities.
TOLERANCE = 1e-5


def assert_same_regression(model, X, y, q=Q, tolerance=TOLERANCE):
    """Equal within `tolerance` standard deviations of y."""
    X = np.asarray(X, dtype=np.float32)
    assert_close(
        outputs(to_onnx(model, q=q), X), expected_regression(model, X, q), y, tolerance
    )


def assert_close(actual, expected, y, tolerance=TOLERANCE):
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        assert actual[name].shape == values.shape, name
        scale = y.std(0)
        if name == "quantiles":
            scale = np.asarray(scale)[..., None]
        error = np.abs(actual[name] - values) / scale
        assert error.max() < tolerance, f"{name}: {error.max():.1e}"


def assert_same_classification(model, X, tolerance=TOLERANCE):
    """Equal probabilities and labels."""
    X = np.asarray(X, dtype=np.float32)
    actual, expected = outputs(to_onnx(model), X), expected_classification(model, X)
    assert_close_classes(actual, expected, tolerance)


def assert_close_classes(actual, expected, tolerance=TOLERANCE):
    """Compare labels only where the two likeliest classes differ by two errors."""
    assert actual.keys() == expected.keys()
    label, expected_label = actual["label"], expected["label"]
    assert label.shape == expected_label.shape
    likeliest = np.sort(expected["probabilities"], axis=1)[:, -2:]
    is_clear = np.diff(likeliest)[:, 0] > 2 * tolerance
    assert np.array_equal(label[is_clear], expected_label[is_clear])
    for name in expected.keys() - {"label"}:
        np.testing.assert_allclose(
            actual[name], expected[name], rtol=0, atol=tolerance, err_msg=name
        )
