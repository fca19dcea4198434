"""A fitted model consists of plain arrays, is small, and can be stored."""

import copy
import io
import os
import pickle
import subprocess
import sys
import tempfile
import textwrap

import joblib
import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn import (
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)

# States that the posteriors of `test_posteriors.py` do not have.
MODELS = {
    "targets": MCDropoutRegressor(likelihood="heteroscedastic", early_stopping=True),
    "under a previous posterior": BBBRegressor(n_estimators=2),
    "pruned": VariationalDropoutRegressor(
        noise="independent", alpha_per="weight", early_stopping=True
    ),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request, data, small):
    model = MODELS[request.param]
    settings = {k: v for k, v in small.items() if k != "dropout"}
    model.set_params(**settings)
    y = data.labels if is_classifier(model) else data.y
    model.fit(data.X, data.Y if request.param == "targets" else y)
    if request.param == "under a previous posterior":
        model.partial_fit(data.X, y, prior="previous")
    if request.param == "pruned":
        model.prune(0.0, data.X, y)
    return model


def through_pickle(model):
    return pickle.loads(pickle.dumps(model))


def through_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file, compress=3)
    file.seek(0)
    return joblib.load(file)


def through_skops(model):
    skops = pytest.importorskip("skops.io")
    stored = skops.dumps(model)
    untrusted = skops.get_untrusted_types(data=stored)
    name = f"{type(model).__module__}.{type(model).__name__}"
    assert untrusted in ([], [name])
    return skops.loads(stored, trusted=untrusted)


def through_save(model):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        skbayesnn.save(model, path)
        return skbayesnn.load(path)


@pytest.mark.parametrize(
    "through", [through_pickle, through_joblib, through_skops, through_save]
)
def test_restored_model_predicts_exactly_the_same(model, data, through):
    restored = through(model)
    X = data.X_new
    np.testing.assert_array_equal(restored.predict(X), model.predict(X))
    for kind, value in model.predict_uncertainty(X, kind="all").items():
        np.testing.assert_array_equal(restored.predict_uncertainty(X, kind), value)
    np.testing.assert_array_equal(restored.sample_y(X, 3), model.sample_y(X, 3))
    assert restored.get_params().keys() == model.get_params().keys()
    assert vars(restored).keys() == vars(model).keys()
    # Further training gives the same, too.
    if model.early_stopping is not True:
        y = np.asarray(data.y_new)
        if is_classifier(model):
            y = data.labels[:11]
        continued = copy.deepcopy(model).partial_fit(X, y)
        restored.partial_fit(X, y)
        np.testing.assert_array_equal(restored.predict(X), continued.predict(X))
        for name, values in continued.parameters_.items():
            np.testing.assert_array_equal(restored.parameters_[name], values)


def test_skops_in_a_pipeline(data, small):
    skops = pytest.importorskip("skops.io")
    pipeline = make_pipeline(StandardScaler(), MCDropoutRegressor(**small))
    pipeline.fit(data.X, data.y)
    stored = skops.dumps(pipeline)
    untrusted = skops.get_untrusted_types(data=stored)
    assert untrusted in ([], ["skbayesnn.estimators.mc_dropout.MCDropoutRegressor"])
    restored = skops.loads(stored, trusted=untrusted)
    np.testing.assert_array_equal(
        restored.predict(data.X_new), pipeline.predict(data.X_new)
    )


PLAIN = (bool, int, float, str, type(None), np.generic)


def assert_plain(value, path):
    if isinstance(value, dict):
        for key, item in value.items():
            assert type(key) is str, path
            assert_plain(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            assert_plain(item, f"{path}[{i}]")
    elif isinstance(value, np.ndarray):
        assert type(value) is np.ndarray and value.dtype.kind in "biufU", path
    else:
        assert isinstance(value, PLAIN), f"{path} is {type(value)}"


def test_fitted_state_is_plain(model, data):
    """Also after predictions, whose cache is not part of the state."""
    names = set(vars(model))
    model.predict_uncertainty(data.X_new)
    model.sample_f(data.X_new, 2)
    assert set(vars(model)) == names
    assert_plain(model.__getstate__(), "model")


def test_stored_model_is_small(data, small):
    """It has the weights, two moments of the optimiser, and no rows."""
    wide = small | {"hidden_layer_sizes": (200, 100), "max_iter": 2}
    model = MCDropoutRegressor(n_estimators=2, **wide).fit(data.X, data.y)
    n_weights = 2 * ((4 + 1) * 200 + (200 + 1) * 100 + (100 + 1))
    assert len(pickle.dumps(model)) < 4 * 8 * n_weights
    model.set_params(dtype="float32")
    model.fit(np.tile(data.X, (20, 1)), np.tile(data.y, 20))
    assert len(pickle.dumps(model)) < 4 * 4 * n_weights + 10_000


@pytest.mark.slow
def test_model_is_loaded_in_another_process(data, small, tmp_path):
    model = MCDropoutClassifier(**small).fit(data.X, data.labels)
    joblib.dump((model, data.X_new), tmp_path / "model")
    script = textwrap.dedent("""
        import sys
        import joblib, numpy as np
        model, X = joblib.load(sys.argv[1] + "/model")
        np.save(sys.argv[1] + "/result.npy", model.predict_proba(X))
    """)
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"},
    )
    # The number of threads may differ, which affects rounding.
    np.testing.assert_allclose(
        np.load(tmp_path / "result.npy"), model.predict_proba(data.X_new), rtol=1e-10
    )
