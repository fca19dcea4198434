"""Changed files: none is loaded as a different model."""

import copy
import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn import (
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._persistence import file_format
from skbayesnn._persistence.schema import STORED_CLASSES
from skbayesnn.preprocessing import PiecewiseLinearEncoder
from tests.persistence.models import sized

N_MUTATIONS = 1000
# Entries of optional noise variances. Without one, the file is a different but valid
# model.
OPTIONAL = [
    f"likelihood/{name}"
    for name in ("log_factor", "log_added", "predictive_log_tau", "predictive_log_df")
]


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(3)
    X = random.standard_normal((31, 4))
    return X, X[:, 0] + 0.3 * random.standard_normal(31)


def _models():
    network = sized(MCDropoutRegressor, 0, hidden_layer_sizes=(6, 7))
    encoded = make_pipeline(PiecewiseLinearEncoder(n_bins=3), StandardScaler(), network)
    return [
        network,
        sized(MCDropoutRegressor, 0, likelihood="student_t"),
        sized(MCDropoutClassifier, 0, n_estimators=2),
        CalibratedUncertaintyRegressor(encoded, method="isotonic", cv=2),
        BayesianStackingRegressor([("one", network)], cv=2, random_state=0),
    ]


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    """Content of a file, and its predictions, for several models."""
    X, y = data
    path = tmp_path_factory.mktemp("files") / "model"
    results = []
    for model in _models():
        labels = np.array(["a", "b", "c"])[np.digitize(y, [-0.5, 0.5])]
        model.fit(X, labels if is_classifier(model) else y)
        skbayesnn.save(model, path)
        results.append((path.read_bytes(), predictions(model, X)))
    return results


def predictions(model, X):
    if hasattr(model, "predict_proba"):
        return [model.predict(X), model.predict_proba(X)]
    return list(model.predict(X, return_std=True))


def refused(content, path, match):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=match) as caught:
        skbayesnn.load(path)
    assert f"{str(path)!r} must be a whole file of skbayesnn.save" in str(caught.value)


def with_header(content, **header):
    document, members = file_format.unpacked(content)
    return file_format.packed(document | header, members)


def as_pickle(content):
    return pickle.dumps(MCDropoutRegressor())


def as_arrays(content):
    np.savez(file := io.BytesIO(), X=np.ones(3))
    return file.getvalue()


def compressed(content):
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    return archive_of(members, zipfile.ZIP_DEFLATED)


UNSUPPORTED = {
    "empty": (lambda content: b"", "no whole archive"),
    "cut off": (lambda content: content[:-1], "no whole archive.*Copy it again"),
    "a pickle": (as_pickle, "does not begin as an archive.*joblib.load"),
    "NumPy's archive": (
        as_arrays,
        "no model.json.*save has not written it.*joblib.*skops",
    ),
    "compressed": (compressed, "compressed"),
    "newer": (
        lambda content: with_header(content, format=2, skbayesnn="0.7.1"),
        "format is 2, of skbayesnn 0.7.1; this is .* Upgrade",
    ),
    "another class": (
        lambda content: content_of(content, "MCDropoutRegressor", "os.system"),
        "'os.system', which skbayesnn.save does not",
    ),
    "another attribute": (
        lambda content: content_of(content, "x_mean_", "__class__"),
        "MCDropoutRegressor has no '__class__'",
    ),
}


def content_of(content, old, new):
    """The file with a text of the document replaced, with its checksum."""
    document, members = file_format.unpacked(content)
    text = json.dumps(document)
    assert old in text
    return file_format.packed(json.loads(text.replace(f'"{old}"', f'"{new}"')), members)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_error_names_the_fault(name, files, tmp_path):
    change, match = UNSUPPORTED[name]
    refused(change(files[0][0]), tmp_path / "model", match)


def test_member_with_a_wrong_checksum(files, tmp_path):
    with zipfile.ZipFile(io.BytesIO(files[0][0])) as old:
        members = {name: old.read(name) for name in old.namelist()}
    array = next(name for name in members if name.endswith(".npy"))
    for name in (array, "model.json"):
        changed = members | {name: members[name][:-1] + b" "}
        match = f"checksum of {name} does not"
        refused(archive_of(changed), tmp_path / "model", match)


def test_repeated_name(files, tmp_path):
    """In the text of a document; JSON writers do not produce it."""
    with zipfile.ZipFile(io.BytesIO(files[0][0])) as old:
        members = {name: old.read(name) for name in old.namelist()}
    text = members["model.json"].replace(b'{"format":1', b'{"format":1,"format":1')
    members["model.json"] = text
    members["model.json.sha256"] = (
        f"{file_format.compute_digest(text)}  model.json\n".encode()
    )
    refused(archive_of(members), tmp_path / "model", "repeats a name")


# ---- damaged bytes


def flipped(content, random):
    changed = bytearray(content)
    for _ in range(random.integers(1, 4)):
        changed[random.integers(len(changed))] ^= 1 << random.integers(8)
    return bytes(changed)


def cut_off(content, random):
    return content[: random.integers(len(content))]


def with_more(content, random):
    at = random.integers(len(content) + 1)
    return content[:at] + random.bytes(random.integers(1, 50)) + content[at:]


def with_less(content, random):
    at = random.integers(len(content))
    return content[:at] + content[at + random.integers(1, 50) :]


def swapped_members(content, random):
    """Two members exchange their contents; the archive's checksums are right."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    first, second = random.choice(list(members), 2, replace=False)
    members[first], members[second] = members[second], members[first]
    return archive_of(members)


def archive_of(members, compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as packed:
        for name, member in members.items():
            packed.writestr(name, member)
    return file.getvalue()


# ---- changed documents with valid checksums


def places(document, inside=()):
    """Container and key of every value of a document."""
    if isinstance(document, dict | list):
        keys = document if isinstance(document, dict) else range(len(document))
        for key in keys:
            yield document, key
            yield from places(document[key], inside)


def edited(change):
    def mutate(content, random):
        document, members = file_format.unpacked(content)
        document = copy.deepcopy(document)
        change(document, members, random)
        return file_format.packed(document, members)

    mutate.__name__ = change.__name__
    return mutate


def _random_item(actual, random):
    return actual[random.integers(len(actual))]


@edited
def another_class(document, members, random):
    actual = [(d, k) for d, k in places(document) if k == "object"]
    container, key = _random_item(actual, random)
    other_classes = set(STORED_CLASSES) - {container[key]}
    names = [*sorted(other_classes), "os.system", "builtins.eval", "", None, ["MLP"]]
    container[key] = _random_item(names, random)


@edited
def another_name(document, members, random):
    """Rename a parameter, an attribute, or another named entry."""
    actual = [d for d, _ in places(document) if isinstance(d, dict)]
    container = _random_item(actual, random)
    old = _random_item(list(container), random)
    names = [*container, old + "_", "__class__", "__dict__", "predict", "network_"]
    new = _random_item([name for name in names if name != old], random)
    if old not in OPTIONAL:
        container[new] = container.pop(old)


@edited
def one_less(document, members, random):
    actual = [(d, k) for d, k in places(document) if isinstance(d, dict)]
    container, key = _random_item(actual, random)
    if key not in OPTIONAL:
        del container[key]


@edited
def another_type(document, members, random):
    container, key = _random_item(list(places(document)), random)
    values = [None, "x", [], {}, [1.0], {"dict": {}}, {"tuple": []}, 1e300, -1, True]
    kinds = [v for v in values if _kind(v) is not _kind(container[key])]
    container[key] = _random_item(kinds, random)


def _kind(value):
    return float if type(value) is int else type(value)


@edited
def another_array(document, members, random):
    """Change the dtype or the values of a small array."""
    containers = [d for d, k in places(document) if k == "array"]
    container = _random_item(containers, random)
    key = _random_item(["array", "values"], random)
    value, others = container[key], [None, "x", [], 8, "<f4", "<i8", "<U1", ">f8"]
    others += ["|O", "<c8", "<M8[ns]"]
    if isinstance(value, list):
        others += [[value], value + value, value[:-1], value[::-1], [-1], [10**15]]
    container[key] = _random_item([o for o in others if repr(o) != repr(value)], random)


@edited
def another_member(document, members, random):
    """Change the dtype or the shape of an array with its own member."""
    containers = [d for d, k in places(document) if k == "member"]
    if not containers:
        members[file_format.compute_digest(b"") + file_format.ARRAY] = b""
        return
    container = _random_item(containers, random)
    values = np.load(io.BytesIO(members.pop(container["member"] + file_format.ARRAY)))
    changed = [values.view("<i4"), values[None], values[:-1], values.T]
    changed += [values[..., 0]] if values.size else []
    changed = [
        array
        for array in changed
        if array.shape != values.shape or array.dtype.kind == "i"
    ]
    member = file_format.as_member(_random_item(changed, random))
    cut = member[:-1], member.replace(b"'shape': (", b"'shape': (9", 1)
    member = _random_item([member, *cut], random)
    container["member"] = file_format.compute_digest(member)
    members[container["member"] + file_format.ARRAY] = member


MUTATIONS = [
    flipped,
    cut_off,
    with_more,
    with_less,
    swapped_members,
    another_class,
    another_name,
    one_less,
    another_type,
    another_array,
    another_member,
]


def test_no_changed_file_is_loaded_as_another_model(files, data, tmp_path, seed):
    """It is refused by name, or its predictions are equal, bit by bit."""
    random, path = np.random.default_rng([seed, 5]), tmp_path / "changed"
    n_refused = dict.fromkeys((mutate.__name__ for mutate in MUTATIONS), 0)
    for i in range(N_MUTATIONS):
        # Most are single networks, which load faster.
        content, expected = files[random.choice(4, p=[0.5, 0.35, 0.1, 0.05])]
        mutate = MUTATIONS[i % len(MUTATIONS)]
        changed = mutate(content, random)
        path.write_bytes(changed)
        try:
            model = skbayesnn.load(path)
        except ValueError as error:
            assert str(path) in str(error)
            n_refused[mutate.__name__] += 1
            continue
        for actual, values in zip(predictions(model, data[0]), expected, strict=True):
            np.testing.assert_array_equal(actual, values, err_msg=mutate.__name__)
    # All kinds of change are refused at least once.
    assert min(n_refused.values()) > 0
