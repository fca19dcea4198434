"""Models that were fitted to a frame with categories, dates and missing values."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import make_pipeline

import skbayesnn
from skbayesnn import MCDropoutRegressor
from skbayesnn.preprocessing import TableEncoder
from tests.helpers.seed import SEED
from tests.persistence import models

pandas = pytest.importorskip("pandas")
pytestmark = [
    # Of a constant column, of new missing values, and of later dates.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def encoder(data):
    """An encoder with a column of every kind."""
    return TableEncoder(target_type="continuous").fit(data.frame, data.y)


@pytest.fixture(scope="module")
def network(data):
    return models.sized(MCDropoutRegressor, SEED).fit(data.frame, data.y)


def assert_restored(encoder, X):
    content = skbayesnn.dumps(encoder)
    again = skbayesnn.loads(content)
    assert skbayesnn.dumps(again) == content
    assert again.columns_ == encoder.columns_
    np.testing.assert_array_equal(again.transform(X), encoder.transform(X))
    return again


def changed(encoder, column_name, **attributes):
    """A copy of the encoder with other attributes of a column."""
    encoder = copy.copy(encoder)
    encoder._columns = [
        replace(column, **attributes) if column.name == column_name else column
        for column in encoder._columns
    ]
    return encoder


def test_models_of_other_packages_may_contain_frames(data):
    """skops stores the network; its values are checked."""
    pytest.importorskip("skops")
    inside = make_pipeline(
        TableEncoder(target_type="continuous"),
        VarianceThreshold(),
        models.sized(MCDropoutRegressor, SEED),
    )
    model = TransformedTargetRegressor(inside).fit(data.frame, data.y)
    content = skbayesnn.dumps(model)
    types = skbayesnn.get_untrusted_types(data=content)
    again = skbayesnn.loads(content, trusted=types)
    np.testing.assert_array_equal(
        again.predict(data.frame_new), model.predict(data.frame_new)
    )


@pytest.mark.parametrize(
    "chosen",
    [
        "flag",
        None,
        ["flag", "grade"],
        ("grade",),
        [1, -5],
        np.array([1, 4]),
        np.array(["flag"]),
        np.arange(9) == 1,
        [False, True] + 7 * [False],
    ],
    ids=str,
)
def test_chosen_columns_are_kept(chosen, data):
    encoder = TableEncoder(chosen, "continuous").fit(data.frame, data.y)
    again = assert_restored(encoder, data.frame_new)
    assert type(again.categorical_features) is type(chosen)
    np.testing.assert_equal(again.categorical_features, chosen)


def test_parts_of_text_and_numbers_of_rows_are_restored():
    titles = [
        f"{a}{b}" for a in ("head of ", "") for b in "sales design law it".split()
    ]
    frame = pandas.DataFrame({"title": [f"{t} {i}" for t in titles for i in range(7)]})
    new = pandas.DataFrame({"title": ["head of sales 9", "#", None, "law 3"]})
    encoder = TableEncoder(target_type="continuous")
    encoder.fit(frame, np.repeat(np.arange(8.0), 7))
    assert "text" in encoder.columns_[0].encoding
    assert_restored(encoder, new)

    random = np.random.default_rng(5)
    shop, day = random.integers(0, 15, 110), random.integers(0, 13, 110)
    frame = pandas.DataFrame({"shop": shop, "day": day}).astype(str)
    encoder = TableEncoder(target_type="continuous").fit(frame, shop + day)
    assert encoder._counts[-1].columns == (0, 1)
    assert_restored(encoder, frame)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "+05:30", "UTC-03:00"])
def test_time_zones_are_restored(zone, data):
    frame = data.frame.assign(end=data.frame["end"].dt.tz_convert(zone))
    encoder = TableEncoder(target_type="continuous").fit(frame, data.y)
    assert_restored(encoder, frame)


INVALID = [
    ("flag", {"name": "size"}, "must have distinct names"),
    ("size", {"name": "width"}, "those of `feature_names_in_`; got"),
    ("size", {"kind": "image"}, "`kind` of Column must be .*one of .*'number'"),
    ("size", {"indicator": False}, "must have 16 substitutes of unknown values"),
    ("colour", {"levels": ("red",)}, "must agree in the number of levels"),
    ("colour", {"suffixes": ("",)}, "must agree in the number of features"),
    ("colour", {"level_features": np.full((5, 4), np.inf)}, "array of floats"),
    ("colour", {"substitutes": np.ones((3, 4))}, "`substitutes` of Column must be"),
    ("start", {"suffixes": (".days", ".sin_moon")}, "the number of features|'moon'"),
    ("start", {"bounds": (-np.inf, 0.0)}, "must have 8 finite features"),
    *(
        ("end", {"time_zone": zone}, "`time_zone` of Column must be .*name of a time")
        for zone in ("", "Nowhere/Else", "../UTC", "/etc/passwd", "America", 3)
    ),
]


def test_invalid_columns_are_refused(encoder):
    for name, attributes, match in INVALID:
        with pytest.raises(ValueError, match=match):
            skbayesnn.dumps(changed(encoder, name, **attributes))


@pytest.mark.parametrize("chosen", [1.5, {"a": 1}, ["a", 2.0], np.array([[1]])])
def test_other_choices_of_columns_are_refused(chosen, network):
    model = copy.copy(network).set_params(categorical_features=chosen)
    match = "`categorical_features` of MCDropoutRegressor must be None, a string, or"
    with pytest.raises(ValueError, match=match):
        skbayesnn.dumps(model)


def test_network_has_the_columns_of_its_table(network):
    dropped = {"suffixes": (), "substitutes": np.zeros((0, 0))}
    tables = {
        "must agree in the number of inputs": changed(
            network.table_, "flag", **dropped
        ),
        "`table_` must be fitted": TableEncoder(),
        "must agree in the number of": None,
    }
    for match, table in tables.items():
        model = copy.copy(network)
        model.table_ = table
        with pytest.raises(ValueError, match=match):
            skbayesnn.dumps(model)


def test_stack_has_a_table_for_every_fold(data):
    model, _ = models.of_frames(SEED)["stack of a frame"]
    tables = model.fit(data.frame, data.y).fold_tables_
    other = changed(tables[0], "length", kind="number")
    for wrong, match in (
        (tables[:1], "must agree in the number of folds; got 1 and 2"),
        (None, "`fold_tables_` must exist if, and only if"),
        ([other, tables[1]], "must have the features of `table_`"),
        ([None, tables[1]], "`fold_tables_` of BayesianStackingRegressor must be"),
    ):
        model.fold_tables_ = wrong
        with pytest.raises(ValueError, match=match):
            skbayesnn.dumps(model)
    # Without statistics of y, the features of all folds are the same.
    rows = data.frame[["length", "end"]]
    model.fit(rows, data.y)
    assert model.table_ is not None and model.fold_tables_ is None
    again = skbayesnn.loads(skbayesnn.dumps(model))
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
