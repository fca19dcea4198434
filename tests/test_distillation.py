"""A distilled network has the predictive distributions of its model."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import skbayesnn
from skbayesnn import (
    LaplaceRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    _distillation,
    distill,
)
from skbayesnn.estimators.laplace import LaplaceClassifier

N_ROWS = 300


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Few steps and rows."""
    monkeypatch.setattr(_distillation, "N_STEPS", 800)
    monkeypatch.setattr(_distillation, "N_MADE", 4000)
    monkeypatch.setattr(_distillation, "N_MEASURED", 200)


@pytest.fixture
def measured(monkeypatch):
    """The rows at which the loss is measured, after a call."""
    rows, loss = [], _distillation._loss

    def recording(*arguments):
        rows.append(arguments[-1])
        return loss(*arguments)

    monkeypatch.setattr(_distillation, "_loss", recording)
    return rows


def table(seed, n_columns=3):
    random = np.random.default_rng(seed)
    X = random.normal(size=(N_ROWS, n_columns))
    return X, np.sin(X[:, 0]) + X[:, 1] / 2


def mixed_frame(seed):
    X, y = table(seed)
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame["level"] = random.choice(["x", "y", "z"], N_ROWS)
    frame.index = random.permutation(N_ROWS)
    return frame, y + (frame["level"] == "x").to_numpy()


@pytest.mark.filterwarnings("ignore:.*SKB116")
def test_regression(seed, tmp_path, measured):
    X, y = table(seed)
    noise = np.random.default_rng([seed, 1]).normal(size=N_ROWS)
    model = LaplaceRegressor((8,), random_state=seed).fit(X, y + 0.3 * noise)
    before = model.predict_quantile(X[:5], (0.1, 0.9))
    student = distill(model, X, random_state=seed)
    assert type(student) is MCDropoutRegressor
    np.testing.assert_array_equal(model.predict_quantile(X[:5], (0.1, 0.9)), before)

    # Much closer than the noise. Sharper bounds need more steps.
    error = student.predict(X) - model.predict(X)
    std = model.predict_distribution(X).std()
    assert np.sqrt(np.mean(np.square(error / std))) < 0.3
    assert 0 <= student.distillation_loss_ < 0.05
    np.testing.assert_allclose(
        np.median(student.predict_distribution(X).std() / std), 1, atol=0.1
    )
    noise = model.predict_distribution(X).aleatoric()
    assert student.row_noise_std_ == pytest.approx(
        np.sqrt(np.mean(np.square(noise))), rel=0.15
    )
    # The score supposes that y is one of the quantiles of the model.
    [rows] = measured
    quantiles = model.predict_quantile(rows, _distillation.LEVELS)
    ours, own = (
        np.mean(
            [score(rows, quantiles[:, level]) for level in range(quantiles.shape[1])]
        )
        for score in (student.crps, lambda rows, y: _crps_of_sample(quantiles, y))
    )
    # Quantiles of the model are nearly exact in the training.
    np.testing.assert_allclose(student.distillation_loss_, ours / own - 1, atol=2e-3)

    path = tmp_path / "student.skb"
    skbayesnn.save(student, path)
    loaded = skbayesnn.load(path)
    assert loaded.distillation_loss_ == student.distillation_loss_
    assert np.isnan(loaded.loss_curve_).all()
    np.testing.assert_array_equal(
        loaded.predict_interval(X[:7]), student.predict_interval(X[:7])
    )
    assert path.stat().st_size < 200_000


def _crps_of_sample(sample, y):
    """CRPS of the empirical distribution of each row, by its definition."""
    to_y = np.abs(sample - y[:, None]).mean(1)
    return to_y - np.abs(sample[:, None] - sample[..., None]).mean((1, 2)) / 2


@pytest.mark.filterwarnings("ignore:.*SKB116")
def test_onnx(seed):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = table(seed)
    X = X.astype(np.float32)
    model = MCDropoutRegressor(max_iter=20, random_state=seed).fit(X, y)
    student = distill(model)  # at the rows that the network keeps
    graph = skbayesnn.to_onnx(student, q=(0.1, 0.9)).SerializeToString()
    mean, std, quantiles = onnxruntime.InferenceSession(graph).run(None, {"X": X[:9]})
    expected = student.predict(X[:9], return_std=True)
    np.testing.assert_allclose(mean.ravel(), expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(std.ravel(), expected[1], rtol=1e-4)
    np.testing.assert_allclose(
        quantiles.reshape(9, 2),
        student.predict_quantile(X[:9], (0.1, 0.9)),
        rtol=1e-3,
        atol=1e-3,
    )


@pytest.mark.filterwarnings("ignore:.*SKB116")
def test_epistemic_part_of_targets(seed):
    X, y = table(seed)
    Y = np.column_stack([y, 100 * X[:, 1]])
    model = MCDropoutRegressor(dropout=0.1, max_iter=100, random_state=seed).fit(X, Y)
    student = distill(model, X, random_state=seed)
    parts = [m.predict_uncertainty(X, "epistemic") for m in (student, model)]
    assert parts[0].shape == (N_ROWS, 2)
    # In each target's units.
    np.testing.assert_allclose(parts[0].mean(0), parts[1].mean(0), rtol=0.3)


@pytest.mark.filterwarnings("ignore:.*SKB116")
@pytest.mark.parametrize("convert", [lambda frame: frame, pl.from_pandas])
def test_raw_frames_of_classes(seed, convert):
    frame, y = mixed_frame(seed)
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-0.3, 0.8])]
    X = convert(frame)
    model = LaplaceClassifier((8,), random_state=seed).fit(X, labels)
    student = distill(model, X, random_state=seed)
    assert type(student) is MCDropoutClassifier
    assert student.classes_.tolist() == model.classes_.tolist()
    error = student.predict_proba(X) - model.predict_proba(X)
    assert np.abs(error).mean() < 0.05
    assert np.isfinite(student.predict_uncertainty(X)).all()


def test_values_stay_in_their_column(seed):
    frame, _ = mixed_frame(seed)
    inputs = frame[["a", "b"]].to_numpy()
    random = np.random.default_rng(seed)
    rows = _distillation._parents(inputs, 3, 500, random)
    made = _distillation._of_columns(frame, rows)
    assert made.dtypes.tolist() == frame.dtypes.tolist()
    expected = frame.to_numpy()[rows, np.arange(3)]
    assert (made.to_numpy() == expected).all()
    assert len(np.unique(rows[:, 0] - rows[:, 2])) > 1


def test_warning_of_a_large_loss(monkeypatch):
    X, y = table(0)
    monkeypatch.setattr(_distillation, "N_STEPS", 1)
    model = LaplaceRegressor((8,), random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match=r"expected CRPS is .* larger.*SKB116"):
        student = distill(model, X)
    assert student.distillation_loss_ > 0.02


def test_errors():
    X, y = table(0)
    model = LaplaceRegressor((4,), random_state=0)
    with pytest.raises(NotFittedError):
        distill(model, X)
    model.fit(X, y)
    with pytest.raises(ValueError, match=r"has 2 features.*expecting 3"):
        distill(model, X[:, :2])
    with pytest.raises(ValueError, match=r"at least 50 rows.*\(20, 3\)"):
        distill(model, X[:20])
    with pytest.raises(ValueError, match=r"`X` must be given.*LaplaceRegressor"):
        distill(model)
    with pytest.raises(TypeError, match="needs an estimator of skbayesnn"):
        distill(LinearRegression().fit(X, y), X)
    frame, y = mixed_frame(0)
    network = MCDropoutRegressor(max_iter=1, random_state=0).fit(frame, y)
    with pytest.raises(ValueError, match="`X` must be given"):
        distill(network)
