"""Store results of the package, and compare them bit by bit after a refactoring.

    python tools/golden.py store golden.npz
    python tools/golden.py compare golden.npz
    python tools/golden.py compare golden.npz --tolerance 1e-6 --only calibrated

The results are predictions, histories, ``elbo_``, fitted parameters and the bytes of
saved files: for every posterior, streams and warm starts, searches, stacks, mixed
frames, neighbours, calibrated, conformal and abstaining wrappers and a drift monitor.
Further results are the outputs of ONNX graphs, a fit from a file, the values of
displays, and the signatures of the public interface. All fits are small, on the CPU,
with one thread and fixed seeds. A run takes about a minute.
"""

import argparse
import inspect
import json
import pkgutil
import sys
import warnings
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import numpy as np
import onnxruntime
import pandas
import torch
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import skbayesnn  # noqa: E402
from skbayesnn import inspection, model_selection, plotting  # noqa: E402

matplotlib.use("Agg")

ROWS, COLUMNS = 40, 4
SMALL = {
    "hidden_layer_sizes": (5, 3),
    "max_iter": 4,
    "batch_size": 16,
    "n_draws": 6,
    "n_estimators": 2,
    "device": "cpu",
    "random_state": 0,
}


def table():
    """X, y, labels of three classes, and counts."""
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, COLUMNS))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * random.normal(size=ROWS)
    return X, y, np.digitize(y, [-0.5, 0.5]), random.poisson(np.exp(0.3 * y))


# ---- results of an estimator


def arrays_of(value, name):
    """(name, array) of all arrays in a fitted attribute or a prediction."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from arrays_of(item, f"{name}/{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from arrays_of(item, f"{name}/{number}")
    elif hasattr(value, "to_numpy"):  # a frame
        yield from arrays_of(np.asarray(value.to_numpy()), name)
    elif isinstance(value, np.ma.MaskedArray):
        yield from arrays_of(value.filled(np.nan), name)
    elif isinstance(value, np.ndarray) and value.dtype == object:
        yield name, np.array([str(item) for item in value.ravel()])
    elif isinstance(value, np.ndarray | np.generic | int | float | str | bool):
        yield name, np.asarray(value)


FITTED = "elbo_", "elbo_std_error_", "history_", "parameters_", "tau_", "noise_std_"
FITTED += "weight_decay_", "n_iter_", "length_scale_", "dropout_", "weights_"
FITTED += "spread_factor_", "oof_prediction_", "cv_results_", "best_index_"
FITTED += "quantiles_", "scale_", "calibration_", "threshold_"
METHODS = "predict", "predict_proba", "predict_uncertainty", "predict_interval"
METHODS += (
    "predict_quantile",
    "predictive_cdf",
    "predict_set",
    "decision_function",
    "p_value",
)
METHODS += "score_samples", "sample_f", "sample_y"


def results(model, X, y):
    """(name, array) of the fitted attributes and predictions of an estimator."""
    for name in FITTED:
        value = getattr(model, name, None)
        if name == "cv_results_" and value is not None:
            value = {k: v for k, v in value.items() if "_time" not in k}
        yield from arrays_of(value, name)
    for name in METHODS:
        method = getattr(model, name, None)
        if method is not None:
            parameters = inspect.signature(method).parameters
            given = {"random_state": 1} if "random_state" in parameters else {}
            needed = {"q": [0.1, 0.5], "y": y, "quantile": 0.1, "alpha": 0.2}
            given |= {k: v for k, v in needed.items() if k in parameters}
            try:
                value = method(X, **given)
            except (NotImplementedError, TypeError, ValueError) as error:
                value = f"{type(error).__name__}: {error}"
            yield from arrays_of(value, name)
    if hasattr(model, "log_predictive_density"):
        yield "log_predictive_density", model.log_predictive_density(X, y)
    if not hasattr(model, "cv_results_"):  # the files of searches contain times
        yield "file", np.frombuffer(skbayesnn.dumps(model), np.uint8)


# ---- cases: name, estimator and its data


def posteriors():
    """Every posterior, with explicit parameters and with automatic ones."""
    from tests.helpers.posteriors import CASES

    X, y, labels, _ = table()
    for case in CASES:
        target = labels if case.classifies else y
        yield f"posterior/{case}", case.model(**SMALL), X, target
    for kind in (
        skbayesnn.MCDropoutRegressor,
        skbayesnn.BBBRegressor,
        skbayesnn.VariationalDropoutRegressor,
        skbayesnn.AnchoredEnsembleRegressor,
        skbayesnn.VariationalGPRegressor,
        skbayesnn.MCDropoutClassifier,
        skbayesnn.BBBClassifier,
        skbayesnn.VariationalDropoutClassifier,
        skbayesnn.AnchoredEnsembleClassifier,
    ):
        target = labels if kind.__name__.endswith("Classifier") else y
        model = kind(n_draws=5, device="cpu", random_state=0)
        yield f"defaults/{kind.__name__}", model, X, target


def likelihoods():
    """Every likelihood of the regressors and classifiers."""
    X, y, labels, counts = table()
    for name in ("heteroscedastic", "student_t", "mixture"):
        model = skbayesnn.MCDropoutRegressor(likelihood=name, **SMALL)
        yield f"likelihood/{name}", model, X, y
    model = skbayesnn.MCDropoutRegressor(likelihood="poisson", **SMALL)
    yield "likelihood/poisson", model, X, counts
    model = skbayesnn.MCDropoutClassifier(likelihood="ordinal", **SMALL)
    yield "likelihood/ordinal", model, X, labels
    model = skbayesnn.MCDropoutRegressor(early_stopping=True, verbose=0, **SMALL)
    yield "early stopping", model, X, np.stack([y, X[:, 2]], axis=1)
    model = skbayesnn.MCDropoutRegressor(**SMALL | {"dtype": "float64"})
    yield "weights", model, X, y


def wrappers():
    """Searches, stacks, calibration, conformal intervals, monitors."""
    X, y, labels, _ = table()
    network = skbayesnn.MCDropoutRegressor(**SMALL)
    classes = skbayesnn.MCDropoutClassifier(**SMALL)
    pipeline = make_pipeline(StandardScaler(), network)
    yield (
        "search",
        model_selection.BatchedGridSearchCV(
            pipeline, {"mcdropoutregressor__tau": [1.0, 3.0]}, cv=3
        ),
        X,
        y,
    )
    yield (
        "random search",
        model_selection.BatchedRandomizedSearchCV(
            classes, {"length_scale": [0.5, 1.0, 2.0]}, n_iter=2, cv=2, random_state=0
        ),
        X,
        labels,
    )
    quick = {"max_iter": 3, "random_state": 0, "device": "cpu"}
    yield "stack", skbayesnn.BayesianStackingRegressor(**quick), X, y
    yield "stack of classes", skbayesnn.BayesianStackingClassifier(**quick), X, labels
    yield "calibrated", skbayesnn.CalibratedUncertaintyRegressor(network, cv=3), X, y
    yield "conformal", skbayesnn.ConformalRegressor(network, cv=3, random_state=0), X, y
    yield (
        "conformal classes",
        skbayesnn.ConformalClassifier(classes, random_state=0),
        X,
        labels,
    )
    yield "abstainer", skbayesnn.Abstainer(classes, target_error=0.6), X, labels
    monitor = inspection.DriftMonitor(network, random_state=0)
    yield "drift", monitor, X, y


def mixed_frame():
    """A frame with numbers, categories, text, dates and missing values, and its y."""
    X, y, labels, _ = table()
    random = np.random.default_rng(1)
    shops = np.array([f"shop {letter}" for letter in "ABCDEFG"])
    frame = pandas.DataFrame(
        {
            "size": X[:, 0],
            "age": np.where(random.random(ROWS) < 0.2, np.nan, X[:, 1]),
            "colour": random.choice(["red", "green", "blue"], ROWS),
            "shop": shops[random.integers(7, size=ROWS)],
            "note": [f"{shops[i % 7]} no {i % 2}" for i in range(ROWS)],
            "day": pandas.Timestamp("2024-01-01")
            + pandas.to_timedelta(random.integers(400, size=ROWS), unit="D"),
        }
    )
    return frame, y, labels


def frames():
    """Estimators of a mixed frame, and neighbours."""
    X, y, labels = mixed_frame()
    quick = {"max_iter": 3, "random_state": 0, "device": "cpu"}
    yield "frame/network", skbayesnn.MCDropoutRegressor(**SMALL), X, y
    yield "frame/stack", skbayesnn.BayesianStackingRegressor("fast", **quick), X, y
    classes = skbayesnn.BayesianStackingClassifier("fast", **quick)
    yield "frame/stack of classes", classes, X, labels
    few = {"max_iter": 4, "random_state": 0}
    yield "frame/neighbours", skbayesnn.NeighbourRegressor(**few), X, y
    classes = skbayesnn.NeighbourClassifier(**few)
    yield "frame/neighbours of classes", classes, X, labels
    network = skbayesnn.MCDropoutRegressor(**SMALL)
    yield "frame/abstainer", skbayesnn.Abstainer(network, threshold=0.5), X, y
    conformal = skbayesnn.ConformalRegressor(network, method="cv+", cv=3)
    yield "frame/conformal cv+", conformal, X, y


def routes():
    """Other ways to results: ONNX Runtime, rows from a file, displays."""
    X, y, labels = mixed_frame()
    quick = {"max_iter": 3, "random_state": 0, "device": "cpu"}
    for name, model, target in (
        ("network", skbayesnn.MCDropoutRegressor(**SMALL), y),
        ("classes", skbayesnn.MCDropoutClassifier(**SMALL), labels),
        ("stack", skbayesnn.BayesianStackingRegressor("fast", **quick), y),
    ):
        yield f"onnx/{name}", onnx_results(model.fit(X, target), X)
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "rows.parquet")
        X.assign(y=y).to_parquet(path, row_group_size=8)
        model = skbayesnn.MCDropoutRegressor(**SMALL)
        with config_context(working_memory=0.001):
            model.fit(path, y="y")
        yield "out of core", dict(results(model, X, y))
    array, y, labels, _ = table()
    regressor = skbayesnn.MCDropoutRegressor(**SMALL).fit(array, y)
    classifier = skbayesnn.MCDropoutClassifier(**SMALL).fit(array, labels)
    for name in plotting.__all__:
        arrays = {}
        for kind, model, target in (
            ("regressor", regressor, y),
            ("classifier", classifier, labels),
        ):
            arguments = {"X": array, "y": target, "random_state": 0}
            method = getattr(plotting, name).from_estimator
            names = inspect.signature(method).parameters
            given = {k: v for k, v in arguments.items() if k in names}
            try:
                display = vars(method(model, **given))
            except (AttributeError, NotImplementedError, TypeError, ValueError) as e:
                display = {"error": f"{type(e).__name__}: {e}"}
            public = {k: v for k, v in display.items() if not k.endswith("_")}
            arrays |= dict(arrays_of(public, kind))
        yield f"display/{name}", arrays


def onnx_results(model, X):
    """(name, array) of the outputs of the exported graph."""
    graph = skbayesnn.to_onnx(model).SerializeToString()
    session = onnxruntime.InferenceSession(graph)
    columns = {}
    for node in session.get_inputs():
        values = X[[node.name]].to_numpy()
        if X[node.name].dtype.kind == "M":
            values = values.astype("datetime64[us]").astype(np.int64)
        if node.type == "tensor(string)":
            values = values.astype(object)
        columns[node.name] = values
    names = [node.name for node in session.get_outputs()]
    return dict(zip(names, session.run(None, columns), strict=True))


def streams():
    """Fits that continue an earlier fit."""
    X, y, labels, _ = table()
    half = ROWS // 2
    for name, mode in (("stream", "partial_fit"), ("warm start", "fit")):
        model = skbayesnn.MCDropoutRegressor(warm_start=mode == "fit", **SMALL)
        getattr(model, mode)(X[:half], y[:half])
        getattr(model, mode)(X[half:], y[half:])
        yield name, model, X, y
    model = skbayesnn.BBBClassifier(**SMALL)
    model.partial_fit(X[:half], labels[:half], classes=[0, 1, 2])
    yield "stream of classes", model.partial_fit(X[half:], labels[half:]), X, labels


def signatures():
    """Parameters and defaults of every public class, method and function."""
    result = {}
    for module in public_modules():
        for name in sorted(getattr(module, "__all__", [])):
            item = getattr(module, name)
            path = f"{module.__name__}.{name}"
            result[path] = signature_of(item)
            if inspect.isclass(item):
                for member, value in sorted(inspect.getmembers(item)):
                    if not member.startswith("_") and callable(value):
                        result[f"{path}.{member}"] = signature_of(value)
    return result


def public_modules():
    """The package and its public modules."""
    yield skbayesnn
    for info in pkgutil.iter_modules(skbayesnn.__path__):
        if not info.name.startswith("_"):
            yield import_module(f"skbayesnn.{info.name}")


def signature_of(item):
    """The signature as text; empty if the callable has none."""
    try:
        parameters = inspect.signature(item).parameters.values()
    except (TypeError, ValueError):
        return ""
    return ", ".join(f"{p.kind.name} {p.name}={p.default!r}" for p in parameters)


def everything(only):
    """All arrays by name, for the cases with ``only`` in their name."""
    torch.set_num_threads(1)
    arrays = {}
    for cases in (posteriors, likelihoods, streams, wrappers, frames):
        for name, model, X, y in cases():
            if only not in name:
                continue
            fitted = model if cases is streams else model.fit(X, y)
            if isinstance(fitted, BaseEstimator):
                for key, value in results(fitted, X, y):
                    arrays[f"{name}: {key}"] = value
    for name, found in routes() if only in "routes" or not only else ():
        arrays |= {f"{name}: {key}": value for key, value in found.items()}
    if only in "signatures":
        arrays["signatures"] = np.array(json.dumps(signatures(), indent=1))
    return arrays


def differences(before, after, tolerance):
    """A line for every difference."""
    for name in sorted(set(before) | set(after)):
        if name not in after or name not in before:
            yield f"{name}: only {'before' if name in before else 'after'}"
            continue
        old, new = before[name], after[name]
        if old.dtype == new.dtype and old.tobytes() == new.tobytes():
            continue
        if name == "signatures":
            old, new = json.loads(str(old)), json.loads(str(new))
            for key in sorted(set(old) | set(new)):
                if old.get(key) != new.get(key):
                    yield f"signature of {key}: {old.get(key)} -> {new.get(key)}"
        elif old.shape != new.shape or old.dtype.kind not in "fiub":
            yield f"{name}: {old.shape} {old.dtype} -> {new.shape} {new.dtype}"
        else:
            difference = np.abs(old.astype(float) - new).max(initial=0)
            if not difference <= tolerance:
                yield f"{name}: largest difference {difference:.3g}"


def main():
    """Store or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["store", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="part of the names of cases")
    parser.add_argument("--tolerance", type=float, default=0.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    arrays = everything(options.only)
    print(f"{len(arrays)} arrays")
    if options.what == "store":
        np.savez_compressed(options.file, **arrays)
        return
    with np.load(options.file, allow_pickle=False) as file:
        before = {name: file[name] for name in file.files if options.only in name}
    lines = list(differences(before, arrays, options.tolerance))
    print("\n".join(lines) or "equal")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
