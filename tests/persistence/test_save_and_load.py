"""Saved models are restored; models that cannot be saved are refused by name.

Also what holds for every kind of model: copies without a fit, and fits that fail.
"""

import inspect
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import textwrap
import warnings
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skbayesnn
from skbayesnn import (
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._persistence import file_format
from skbayesnn._persistence.schema import STORED_CLASSES
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.networks import ConvNet
from skbayesnn.preprocessing import PiecewiseLinearEncoder
from skbayesnn.scoring import log_density_scorer, neg_interval_score_scorer
from tests.helpers.posteriors import CASES
from tests.helpers.seed import SEED
from tests.persistence import forgery, models
from tests.persistence.models import regressors, sized

# Frames have new missing values and dates.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
# Every kind; of the networks with other posteriors than the default, which
# ``tests/estimators/test_posteriors.py`` saves, only those of images.
POSTERIORS = {str(case) for case in CASES if "images" not in str(case)}
NAMES = [name for name in models.every_kind(0) if name not in POSTERIORS]
N_FORGED = 12


@pytest.fixture(scope="module", params=NAMES)
def stored(request, data):
    """A fitted model of every kind, its file and its predictions for new rows."""
    model, target = models.every_kind(SEED)[request.param]
    X, X_new = models.rows_of(request.param, data)
    with warnings.catch_warnings(action="ignore"):
        model.fit(X, getattr(data, target))
        expected = forgery.predictions(model, X_new)
    return SimpleNamespace(
        name=request.param,
        model=model,
        content=skbayesnn.dumps(model),
        X_new=X_new,
        expected=expected,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.skb"


@pytest.fixture
def network(data, seed):
    return sized(MCDropoutRegressor, seed).fit(data.X, data.y)


def without_addresses(model):
    """All parameters as text; generators without their address."""
    return re.sub(" at 0x[0-9A-F]+", "", repr(model))


def assert_same(again, model, X, expected=None):
    """Check that predictions are equal bit by bit, and that nothing is missing."""
    expected = forgery.predictions(model, X) if expected is None else expected
    actual = forgery.predictions(again, X)
    assert actual.keys() == expected.keys()
    for name, values in actual.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
    assert without_addresses(again) == without_addresses(model)
    params, expected_params = again.get_params(), model.get_params()
    assert {n: type(v) for n, v in params.items()} == {
        n: type(v) for n, v in expected_params.items()
    }
    assert vars(again).keys() - {"_unfinished"} == vars(model).keys() - {"_unfinished"}


def test_loaded_model_equals_the_saved_one(stored):
    again = skbayesnn.loads(stored.content)
    assert skbayesnn.dumps(again) == stored.content
    assert_same(again, stored.model, stored.X_new, stored.expected)
    unpickled = pickle.loads(pickle.dumps(stored.model))
    assert_same(unpickled, stored.model, stored.X_new, stored.expected)


def test_a_clone_has_the_parameters_and_no_fit(stored):
    fresh = clone(stored.model)
    assert without_addresses(fresh) == without_addresses(stored.model)
    for name, call in forgery.CALLS.items():
        if hasattr(fresh, name) and is_public(fresh):
            with pytest.raises(NotFittedError):
                call(fresh, stored.X_new)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
def test_a_failed_fit_changes_nothing(stored, data):
    """To a table with other columns; the classes of scikit-learn promise less."""
    if not is_public(stored.model):
        return
    attributes = vars(stored.model)
    before = dict(attributes)
    target = getattr(data, models.every_kind(SEED)[stored.name][1])
    with pytest.raises(ValueError):
        stored.model.fit(np.full((40, 5), 3.0), target)
    assert attributes.keys() == before.keys()
    assert all(attributes[name] is value for name, value in before.items())


def is_public(model):
    return hasattr(skbayesnn, type(model).__name__)


def test_wrong_value_is_refused_or_predictions_are_finite(stored, seed):
    """A sample of the forgeries of `benchmarks/fuzz_files.py`."""
    random = np.random.default_rng([seed, 31])
    expected = {
        name: stored.expected[name] for name in forgery.QUICK if name in stored.expected
    }
    places = list(forgery.places(*file_format.unpacked(stored.content), random))
    failures = []
    for _ in range(N_FORGED):
        place = places[random.integers(len(places))]
        value = forgery.VALUES[random.integers(len(forgery.VALUES))]
        forged = forgery.forged(stored.content, place, value)
        outcome = forgery.outcome(forged, stored.X_new, expected)
        if outcome not in ("refused", "finite"):
            failures.append(f"{place} = {value}: {outcome}")
    assert not failures, "\n".join(failures)


def test_missing_attribute_is_refused(stored, seed):
    """Of every kind: a parameter, and a fitted attribute."""
    random = np.random.default_rng([seed, 32])
    document, members = file_format.unpacked(stored.content)
    model = document["model"]
    entry = STORED_CLASSES[model["object"]]
    required = [name for name, needed in entry.attributes.items() if needed]
    for part, names in (("params", list(model["params"])), ("state", required)):
        if not names:
            continue
        missing = names[random.integers(len(names))]
        rest = {n: v for n, v in model[part].items() if n != missing}
        changed = document | {"model": model | {part: rest}}
        with pytest.raises(ValueError, match=f"'{missing}'"):
            skbayesnn.loads(file_format.packed(changed, members))


def test_every_estimator_can_be_saved():
    """Add a new estimator to the table of what can be saved."""
    packages = "", ".model_selection", ".inspection", ".preprocessing", ".networks"
    for name in packages:
        package = sys.modules[f"skbayesnn{name}"]
        for listed in package.__all__:
            kind = getattr(package, listed)
            is_estimator = isinstance(kind, type) and hasattr(kind, "get_params")
            if is_estimator and listed != "NetworkDescription":
                assert STORED_CLASSES[listed].type is kind


def test_documented_attributes_are_declared():
    """Each attribute in a docstring has an annotation, or is computed from others."""
    for entry in STORED_CLASSES.values():
        if entry.module.startswith("sklearn"):
            continue
        _, _, text = inspect.getdoc(entry.type).partition("Attributes\n----------\n")
        listed = re.findall(r"^\w.*_\b(?=.*:|,|$)", text.partition("\n\n")[0], re.M)
        for name in re.findall(r"\w+_\b", " ".join(listed)):
            computed = hasattr(entry.type, name) or name in entry.derived
            assert computed or name in entry.attributes, (entry.name, name)


def test_fitted_attributes_of_a_stack(data, seed, path):
    model = regressors(seed)["stack of a pool"].fit(data.X, data.y)
    skbayesnn.save(model, path)
    again = skbayesnn.load(path)
    assert again.summary_ == model.summary_
    assert again.weights_["weight"].to_dict() == model.weights_["weight"].to_dict()
    np.testing.assert_array_equal(
        again.predict_interval(data.X_new, method="cv+"),
        model.predict_interval(data.X_new, method="cv+"),
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"hidden_layer_sizes": [3, 2]},
        {"hidden_layer_sizes": np.array([3, 2])},
        {"tau": np.float64(2.0), "n_draws": np.int64(3), "verbose": np.False_},
        {"tau": np.float32(0.1), "learning_rate_init": np.float16(0.01)},
        {"random_state": np.random.RandomState(3), "device": torch.device("cpu")},
        {"likelihood": "student_t", "likelihood_options": {"df": 4.0}},
        {"network": ConvNet((1, 2, 2), channels=(2,), pool=1)},
    ],
    ids=lambda given: ", ".join(given),
)
def test_types_of_parameters_are_kept(parameters, data, path, seed):
    model = sized(MCDropoutRegressor, seed, **parameters).fit(data.X, data.y)
    skbayesnn.save(model, path)
    again = skbayesnn.load(path)
    assert_same(again, model, data.X_new)
    for name, value in parameters.items():
        actual = getattr(again, name)
        assert type(actual) is type(value)
        if isinstance(value, np.random.RandomState):
            assert actual.randint(2**31) == value.randint(2**31)
        else:
            np.testing.assert_equal(actual, value)


def test_training_continues_after_loading(network, path, data, seed):
    skbayesnn.save(network, path)
    again = skbayesnn.load(path)
    for model in (network, again):
        model.partial_fit(data.X, data.y)
    assert_same(again, network, data.X_new)


def test_column_names_and_object_labels(data, path, seed):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(data.X, columns=["a", "b", "c", "d"])
    labels = data.labels.astype(object)
    model = sized(MCDropoutClassifier, seed, class_weight={"low": 2}).fit(X, labels)
    skbayesnn.save(model, path)
    again = skbayesnn.load(path)
    assert again.classes_.dtype == object
    assert again.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_output_format_of_a_transformer(data, path):
    pytest.importorskip("pandas")
    model = PiecewiseLinearEncoder(n_bins=3).set_output(transform="pandas").fit(data.X)
    skbayesnn.save(model, path)
    assert skbayesnn.load(path).transform(data.X).equals(model.transform(data.X))


def test_metadata_requests(data, path, seed):
    with sklearn.config_context(enable_metadata_routing=True):
        model = sized(MCDropoutRegressor, seed).set_fit_request(sample_weight="w")
        model.fit(data.X, data.y)
    skbayesnn.save(model, path)
    again = skbayesnn.load(path)
    assert str(again.get_metadata_routing()) == str(model.get_metadata_routing())


def test_scorers_of_a_search(network, data, path):
    scorer = neg_interval_score_scorer.with_options(coverage=0.5)
    search = BatchedGridSearchCV(network, {"tau": [1.0]}, scoring=scorer, cv=2)
    search.fit(data.X, data.y)
    skbayesnn.save(search, path)
    again = skbayesnn.load(path)
    assert again.score(data.X, data.y) == search.score(data.X, data.y)
    assert again.scoring.options == scorer.options


@pytest.mark.slow
def test_loading_in_another_process(network, path, data, tmp_path):
    """It needs the file only, and no module that the model does not use."""
    skbayesnn.save(network, path)
    np.save(tmp_path / "X.npy", data.X_new)
    script = textwrap.dedent("""
        import sys
        import numpy as np, skbayesnn, torch
        torch.set_num_threads(int(sys.argv[2]))
        model = skbayesnn.load(sys.argv[1] + "/model.skb")
        X = np.load(sys.argv[1] + "/X.npy")
        np.save(sys.argv[1] + "/result.npy", model.predict(X))
        assert "skbayesnn.inspection" not in sys.modules
        assert "matplotlib" not in sys.modules
    """)
    arguments = [str(tmp_path), str(torch.get_num_threads())]
    environment = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
    subprocess.run(
        [sys.executable, "-c", script, *arguments], check=True, env=environment
    )
    np.testing.assert_array_equal(
        np.load(tmp_path / "result.npy"), network.predict(data.X_new)
    )


def test_file_is_arrays_and_json(network, path, data):
    """Other programs can read it: NumPy the arrays, `sha256sum` the checksum."""
    network.set_params(hidden_layer_sizes=(30, 20)).fit(data.X, data.y)
    skbayesnn.save(network, path)
    with zipfile.ZipFile(path) as archive:
        document = json.loads(archive.read("model.json"))
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        for name in names:
            np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
    assert names
    assert document["format"] == 1
    assert document["skbayesnn"] == skbayesnn.__version__
    assert document["model"]["object"] == "MCDropoutRegressor"
    assert len(path.read_bytes()) < 1.2 * len(pickle.dumps(network)) + 10_000


# ---- refusals


def _local_class():
    class Local(FunctionTransformer):
        """A class that cannot be imported."""

    return Local


def _scorer_of_user(network):
    def score(estimator, X, y):
        return 0.0

    return BatchedGridSearchCV(network, {"tau": [1.0]}, scoring=score, cv=2)


UNSUPPORTED = {
    "a function without a name": (
        lambda network: CalibratedUncertaintyRegressor(
            make_pipeline(FunctionTransformer(lambda X: 2 * X), network), cv=2
        ),
        r"builtins.function \S*<lambda> in Calib.*\.estimator\.steps\[0\]\[1\]\.func",
    ),
    "a function of another": (_scorer_of_user, r"<locals>.score in \S*\.scoring"),
    "a class inside of a function": (
        lambda network: make_pipeline(_local_class()(), network),
        r"_local_class.<locals>.Local in Pipeline.steps\[0\]\[1\]\.",
    ),
    "a folder of pickles": (
        lambda network: make_pipeline(StandardScaler(), network, memory="folder"),
        "memory",
    ),
}


@pytest.mark.filterwarnings("ignore:Persisting input arguments")
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_models_that_cannot_be_saved(name, network, data, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, named = UNSUPPORTED[name]
    model = make(network).fit(data.X, data.y)
    path.write_bytes(b"as it was")
    with pytest.raises(ValueError, match=named):
        skbayesnn.save(model, path)
    assert path.read_bytes() == b"as it was"


def test_refusal_names_the_place_and_the_way_out(network, path):
    network.note_ = {"by": [object()]}
    with pytest.raises(ValueError, match=r"'note_' in MCDropoutRegressor.*joblib"):
        skbayesnn.save(network, path)
    del network.note_
    network.network_ = {"by": [1, object()]}
    place = r"builtins.object in MCDropoutRegressor.network_\['by'\]\[1\]"
    with pytest.raises(ValueError, match=place):
        skbayesnn.save(network, path)


def test_module_of_torch_is_refused(path):
    with torch.random.fork_rng():
        net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Dropout())
    with pytest.raises(ValueError, match="_TorchRegressor"):
        skbayesnn.save(skbayesnn.from_torch(net, noise_std=1.0), path)


def test_unfitted_models_are_refused(path):
    with pytest.raises(NotFittedError):
        skbayesnn.save(MCDropoutRegressor(), path)
    with pytest.raises(TypeError, match="not an estimator"):
        skbayesnn.save({"a": 1}, path)
    assert not path.exists()


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_failed_save_does_not_change_the_file(network, path, monkeypatch, fails):
    skbayesnn.save(network, path)
    before = path.read_bytes()

    def full(*arguments):
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(f"skbayesnn._persistence.file_format.os.{fails}", full)
        with pytest.raises(OSError, match="no space"):
            skbayesnn.save(network.set_params(verbose=True), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_parts_of_killed_processes_are_removed(network, path):
    """The next save removes them, if no other process can be writing them."""
    parts = [
        path.with_name(f".{name}.{'0123456789abcde' + last}.part")
        for name, last in ((path.name, "1"), (path.name, "2"), ("other", "3"))
    ]
    for part in parts:
        part.write_bytes(b"part")
    for part in (parts[0], parts[2]):
        os.utime(part, (0, 0))
    skbayesnn.save(network, path)
    assert {*path.parent.iterdir()} == {path, *parts[1:]}


def test_no_such_file(path, network):
    with pytest.raises(FileNotFoundError):
        skbayesnn.load(path)
    with pytest.raises(FileNotFoundError):
        skbayesnn.save(network, path / "model")


@pytest.mark.parametrize(
    ("file", "error", "match"),
    [
        ("", FileNotFoundError, "`file` must be the path of a file; got ''"),
        (".", IsADirectoryError, "path of a file; got the folder '.'. Give the name"),
        ("folder", IsADirectoryError, "path of a file; got the folder 'folder'"),
        (b"model", TypeError, "got bytes. Use skbayesnn.dumps and"),
        (3, TypeError, "a path or a binary file object; got int"),
        (io.StringIO(), TypeError, "must be a binary file object; got .* Open it"),
    ],
    ids=["empty", "dot", "folder", "bytes", "integer", "text"],
)
def test_invalid_files(file, error, match, network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    calls = [
        lambda: skbayesnn.save(network, file),
        lambda: skbayesnn.load(file),
        lambda: skbayesnn.get_untrusted_types(file),
    ]
    for call in calls:
        with pytest.raises(error, match=match):
            call()
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


# ---- file objects and bytes


def test_file_objects_and_bytes(network, path, data):
    skbayesnn.save(network, path)
    content = skbayesnn.dumps(network)
    assert path.read_bytes() == content
    skbayesnn.save(network, file := io.BytesIO(b"before"))
    assert file.getvalue() == content  # Written from the position of the file.
    file.seek(0)
    with open(path, "rb") as opened:
        models = [skbayesnn.load(opened), skbayesnn.load(file)]
    models += [skbayesnn.loads(of(content)) for of in (bytes, bytearray, memoryview)]
    for again in models:
        assert_same(again, network, data.X_new)
    with tempfile.TemporaryFile() as opened:
        skbayesnn.save(network, opened)
        assert opened.tell() == len(content)
    with pytest.raises(TypeError, match="`data` must be bytes; got str"):
        skbayesnn.loads("model")


def test_message_names_the_file(network, path, tmp_path):
    with pytest.raises(ValueError, match="`data` must be a whole file"):
        skbayesnn.loads(skbayesnn.dumps(network)[:-1])
    with pytest.raises(ValueError, match=r"the file object .*BytesIO.* whole file"):
        skbayesnn.load(io.BytesIO(b"PK"))
    path.write_bytes(b"PK")
    with (
        open(path, "rb") as opened,
        pytest.raises(ValueError, match=rf"the file object '{path}' must be a whole"),
    ):
        skbayesnn.load(opened)


def test_file_and_data_are_exclusive(path):
    for arguments in ({}, {"file": path, "data": b""}):
        with pytest.raises(TypeError, match="exactly one of `file` and `data`"):
            skbayesnn.get_untrusted_types(**arguments)


def test_import_and_memory_errors_are_raised_unchanged(network, monkeypatch):
    """They do not mean that the file is invalid."""
    content = skbayesnn.dumps(network)
    for error in (ModuleNotFoundError("No module named 'pandas'"), MemoryError("full")):

        def fails(*arguments, error=error, **options):
            raise error

        monkeypatch.setattr("skbayesnn._persistence.functions.decoded", fails)
        with pytest.raises(type(error), match=str(error)):
            skbayesnn.loads(content)


# ---- skops


def test_trusted_types(stored):
    """skops needs no further names for any estimator of the package."""
    skops = pytest.importorskip("skops.io")
    dumped = skops.dumps(make_pipeline(stored.model))
    # The user decides whether to trust types of other packages.
    other_types = {
        "numpy.random.mtrand.RandomState",
        "sklearn.metrics._regression.r2_score",
    }
    untrusted = set(skops.get_untrusted_types(data=dumped))
    assert untrusted - other_types <= set(skbayesnn.trusted_types())
    again = skops.loads(dumped, trusted=[*skbayesnn.trusted_types(), *other_types])
    actual = forgery.predictions(again[-1], stored.X_new, list(stored.expected))
    for name, values in actual.items():
        np.testing.assert_array_equal(values, stored.expected[name], err_msg=name)


def test_trusted_types_in_a_pipeline(network, data, tmp_path):
    skops = pytest.importorskip("skops.io")
    model = make_pipeline(StandardScaler(), network).fit(data.X, data.y)
    skops.dump(model, tmp_path / "model.skops")
    again = skops.load(tmp_path / "model.skops", trusted=skbayesnn.trusted_types())
    np.testing.assert_array_equal(again.predict(data.X_new), model.predict(data.X_new))


def test_trusted_types_are_named_in_full():
    names = skbayesnn.trusted_types()
    assert "skbayesnn.estimators.mc_dropout.MCDropoutRegressor" in names
    assert f"skbayesnn.scoring.{log_density_scorer.function.__name__}" in names
    assert len(names) == len(set(names))


def test_stream_continues_with_its_replay_rows(tmp_path, seed):
    X = np.random.default_rng(seed).normal(size=(2, 11, 3))
    model = MCDropoutRegressor((4,), n_draws=3, random_state=seed)
    model.partial_fit(X[0], X[0, :, 0], n_replay=6)
    skbayesnn.save(model, tmp_path / "model")
    again = skbayesnn.load(tmp_path / "model")
    for stream in (model, again):
        stream.partial_fit(X[1], X[1, :, 0], n_replay=6)
    np.testing.assert_array_equal(again.predict(X[0]), model.predict(X[0]))
    for name, axis in (("y", 0), ("X", 0), ("X", 1)):
        fewer = np.delete(again.replay_[name], 0, axis)
        model.replay_ = again.replay_ | {name: fewer}
        with pytest.raises(ValueError, match="must agree in"):
            skbayesnn.save(model, tmp_path / "model")
