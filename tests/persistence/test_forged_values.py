"""Files with right checksums whose values are invalid or too large."""

import copy
import io
import json
import math
import re
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn import (
    AnchoredEnsembleRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._persistence import file_format
from tests.persistence import models
from tests.persistence.models import sized

# Bytes and seconds that the refusal of a file of a few kB may take.
MOST_BYTES, SECONDS = 100e6, 2.0


@pytest.fixture(scope="module")
def stored(data):
    """A file of a network whose random state is a generator."""
    random = np.random.RandomState(3)
    model = sized(MCDropoutRegressor, random, hidden_layer_sizes=(6, 7))
    return skbayesnn.dumps(model.fit(data.X, data.y))


def with_changed_document(content, change):
    """The file with a changed document."""
    document, members = file_format.unpacked(content)
    change(document)
    return file_format.packed(document, members)


def refused(content, match):
    """Refused with little time and memory, by an error that names the fault."""
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(ValueError, match=match):
        skbayesnn.loads(content)
    seconds = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_BYTES
    assert seconds < SECONDS


@pytest.mark.parametrize(("name", "value"), [("x_scale_", 1e-300), ("x_mean_", 1e300)])
def test_scales_with_which_predictions_overflow(stored, data, name, value):
    """They are possible in files, so `predict` refuses rows that far away."""

    def change(document):
        entry = document["model"]["state"][name]
        entry["values"] = [value] * len(entry["values"])

    model = skbayesnn.loads(with_changed_document(stored, change))
    with pytest.raises(ValueError, match="must be within 1e\\+100 standard deviations"):
        model.predict(data.X, return_std=True)


# ---- single values


def test_values_that_loading_refuses_cannot_be_saved(stored):
    model = skbayesnn.loads(stored)
    for name, value, rule in (
        (
            "x_scale_",
            np.array([1, 2, -1, 1.0]),
            r"with axes \(inputs\), finite and > 0",
        ),
        ("tau_", 0.0, r"a number with axes \(targets\), finite and > 0 or an array"),
        ("n_draws", 10**9, "an integer, from 1 to 100000; got"),
    ):
        wrong = copy.copy(model)
        setattr(wrong, name, value)
        match = f"`{name}` of MCDropoutRegressor must be .*{rule}"
        with pytest.raises(ValueError, match=match):
            skbayesnn.dumps(wrong)


def test_training_records_may_have_any_value(stored):
    """Predictions do not use them, and a fit can store NaN and infinity in them."""
    model = skbayesnn.loads(stored)
    model.elbo_ = -math.inf
    model.loss_curve_ = [math.nan, math.inf]
    model.history_ = {"loss": np.array([[np.nan], [1.0]])}
    again = skbayesnn.loads(skbayesnn.dumps(model))
    assert again.elbo_ == -math.inf
    np.testing.assert_equal(again.loss_curve_, model.loss_curve_)
    np.testing.assert_equal(again.history_, model.history_)


@pytest.mark.parametrize("log_tau", [-1e9, 1e9])
def test_predictions_must_be_finite(log_tau, data):
    """For any parameters that cause it: here the noise overflows, or vanishes."""
    model = sized(MCDropoutRegressor, 0, tau=1.0).fit(data.X, data.y)
    noise = {"likelihood/log_tau": np.array([[log_tau]], np.float32)}
    model.parameters_ = model.parameters_ | noise
    with pytest.raises(ValueError, match="predictions must be finite, and its noise"):
        skbayesnn.dumps(model)


def test_number_of_draws_is_limited_as_in_fit(data):
    network = sized(AnchoredEnsembleRegressor, 0, n_draws=100_001)
    with pytest.raises(ValueError, match="`n_draws` must be at most 100000; got"):
        network.fit(data.X, data.y)
    network.set_params(n_draws=100_000).fit(data.X, data.y)
    assert skbayesnn.loads(skbayesnn.dumps(network)).n_draws == 100_000


# ---- generators


STATES = {
    "pos": (-5, -1, 625, 10_000, 10**9, 10**400, True, "1", None),
    "has_gauss": (-1, 2, 10**9, False, None),
    "gauss": ({"float": "nan"}, {"float": "inf"}, "1", None),
    "bit_generator": ("PCG64", "SFC64", "", None),
}


@pytest.mark.parametrize("name", STATES)
def test_invalid_state_of_a_generator(name, stored):
    """NumPy does not check it, and would access memory outside the array."""

    def generator(document):
        return document["model"]["params"]["random_state"]["random_state"]["dict"]

    for value in STATES[name]:

        def change(document, value=value):
            state = generator(document)
            where = state["state"]["dict"] if name == "pos" else state
            assert name in where
            where[name] = value

        refused(
            with_changed_document(stored, change), "state of a RandomState must be 624"
        )


@pytest.mark.parametrize(
    "key",
    [
        np.zeros(624, np.uint32),  # all zero: drawing normal numbers never ends
        np.ones(623, np.uint32),
        np.ones(624, np.int64),
        np.ones((624, 1), np.uint32),
    ],
    ids=["zeros", "short", "dtype", "axes"],
)
def test_range_of_the_words_of_a_generator(key, stored):
    document, members = file_format.unpacked(stored)
    state = document["model"]["params"]["random_state"]["random_state"]["dict"]
    member = file_format.as_member(key)
    old = state["state"]["dict"]["key"]["member"]
    state["state"]["dict"]["key"] = {"member": file_format.compute_digest(member)}
    del members[old + file_format.ARRAY]
    members[file_format.compute_digest(member) + file_format.ARRAY] = member
    refused(file_format.packed(document, members), "state of a RandomState must be 624")


def test_generator_continues_after_loading(stored):
    random = np.random.RandomState(3)
    random.randint(2**31 - 1, size=1)  # the seed of one network
    again = skbayesnn.loads(stored).random_state
    np.testing.assert_array_equal(again.standard_normal(5), random.standard_normal(5))


# ---- sizes


def in_place_of_x_mean(array):
    def change(document):
        document["model"]["state"]["x_mean_"] = array

    return change


def likelihood(document):
    return document["model"]["state"]["network_"]["dict"]["likelihood"]["dict"]


BOMBS = {
    "wide strings": (
        in_place_of_x_mean({"array": "<U99999999", "values": ["a"] * 4}),
        "at most 32 entries and 65536 bytes; got 4 of dtype '<U99999999'",
    ),
    "wide bytes": (
        in_place_of_x_mean({"array": "|S999999999", "values": ["a"] * 20}),
        "at most 32 entries and 65536 bytes",
    ),
    "impossible strings": (
        in_place_of_x_mean({"array": "<U10000000000", "values": ["a"]}),
        "has the dtype '<U10000000000', which skbayesnn.save does not write",
    ),
    "many values": (
        in_place_of_x_mean({"array": "<f8", "values": [[0.0] * 4] * 9}),
        "at most 32 entries.*got 36",
    ),
    "targets": (
        lambda document: likelihood(document).update(n_targets=10**9),
        "networks of 1000000000 outputs must have at least as many",
    ),
    "masks": (
        lambda document: document["model"]["state"]["network_"]["dict"]["families"][0][
            "dict"
        ].update(units={"tuple": [10**5, 10**5]}),
        "agree in where masks are placed",
    ),
    "repeated arrays": (
        lambda document: document["model"]["state"].update(
            feature_names_in_=[{"array": "<U500", "values": ["a"] * 32}] * 1_100
        ),
        "must not take many times the size of the file",
    ),
    "deep lists": (
        in_place_of_x_mean(json.loads("[" * 900 + "]" * 900)),
        "it is nested too deeply",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_sizes_are_checked_before_anything_is_allocated(name, stored):
    change, match = BOMBS[name]
    refused(with_changed_document(stored, change), match)


def test_classes_without_arrays_of_their_size(data):
    """The ordinal likelihood has one output for any number of classes."""
    ordinal = sized(MCDropoutClassifier, 0, likelihood="ordinal")
    content = skbayesnn.dumps(ordinal.fit(data.X, data.codes))
    forged = with_changed_document(
        content, lambda document: likelihood(document).update(n_classes=10**9)
    )
    refused(forged, "networks of 1000000000 targets or classes must have at least")


def test_columns_without_arrays_of_their_size(data):
    """A scaler without effect stores no arrays."""
    nothing = StandardScaler(with_mean=False, with_std=False)
    model = make_pipeline(nothing, sized(MCDropoutRegressor, 0))
    content = skbayesnn.dumps(model.fit(data.X, data.y))

    def change(document):
        [_, scaler] = document["model"]["params"]["steps"][0]["tuple"]
        scaler["state"]["n_features_in_"] = 10**9

    tracemalloc.start()
    again = skbayesnn.loads(with_changed_document(content, change))
    assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    tracemalloc.stop()
    with pytest.raises(ValueError, match="1000000000 features"):
        again.predict(data.X_new)


def test_columns_of_a_stack(data, seed):
    """A stack has the columns of its candidates."""
    model, target = models.every_kind(seed)["stack of a pool"]
    content = skbayesnn.dumps(model.fit(data.X, getattr(data, target)))

    def change(document):
        document["model"]["state"]["n_features_in_"] = 10**9

    refused(with_changed_document(content, change), "have 1000000000 columns; got 4")


def test_document_that_json_cannot_read(stored):
    """A document nested too deep; JSON writers do not produce it."""
    with zipfile.ZipFile(io.BytesIO(stored)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    text = b"[" * 200_000 + b"]" * 200_000
    members["model.json"] = text
    members["model.json.sha256"] = (
        f"{file_format.compute_digest(text)}  model.json\n".encode()
    )
    with zipfile.ZipFile(file := io.BytesIO(), "w") as new:
        for name, member in members.items():
            new.writestr(name, member)
    refused(file.getvalue(), re.escape("model.json is nested too deeply."))


def test_dtype_of_wide_labels_is_kept(data):
    """Their dtype is kept, although it is wider than the longest label."""
    labels = data.labels.astype("<U9000")
    model = sized(MCDropoutClassifier, 0).fit(data.X, labels)
    again = skbayesnn.loads(skbayesnn.dumps(model))
    assert again.classes_.dtype == model.classes_.dtype == "<U9000"
