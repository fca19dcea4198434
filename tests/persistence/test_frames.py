"""Models that were fitted to a frame with categories, dates and missing values."""

import copy
import pickle
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
from tests.persistence import forgery, models

pytest.importorskip("pandas")
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    # Of a constant column, of new missing values, and of later dates.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def made_up():
    return models.made_up(SEED)


@pytest.fixture(scope="module")
def encoder(made_up):
    """An encoder with a column of every kind."""
    return TableEncoder(target_type="continuous").fit(made_up.frame, made_up.y)


@pytest.fixture(scope="module")
def network(made_up):
    network = models.sized(MCDropoutRegressor, SEED)
    return network.fit(made_up.frame, made_up.y)


@pytest.mark.parametrize("name", models.of_frames(0))
def test_loaded_model_equals_the_saved_one(name, made_up):
    if "conformal" in name:
        pytest.importorskip("crepes")
    model, target = models.of_frames(SEED)[name]
    model.fit(made_up.frame, getattr(made_up, target))
    expected = forgery.predictions(model, made_up.frame_new)
    content = skbayesnn.dumps(model)
    loaded = skbayesnn.loads(content)
    assert skbayesnn.dumps(loaded) == content
    assert expected
    for again in (loaded, pickle.loads(pickle.dumps(model))):
        assert vars(again).keys() - {"_unfinished"} == vars(model).keys() - {
            "_unfinished"
        }
        actual = forgery.predictions(again, made_up.frame_new)
        for method, values in expected.items():
            np.testing.assert_array_equal(actual[method], values, err_msg=method)


def test_fitted_encoder_is_restored(network):
    again = skbayesnn.loads(skbayesnn.dumps(network))
    assert again.table_.columns_ == network.table_.columns_
    for column, expected in zip(
        again.table_._columns, network.table_._columns, strict=True
    ):
        np.testing.assert_equal(vars(column), vars(expected))


def test_models_of_other_packages_may_contain_frames(made_up):
    """skops stores the network; its values are checked."""
    pytest.importorskip("skops")
    inside = make_pipeline(
        TableEncoder(target_type="continuous"),
        VarianceThreshold(),
        models.sized(MCDropoutRegressor, SEED),
    )
    model = TransformedTargetRegressor(inside).fit(made_up.frame, made_up.y)
    content = skbayesnn.dumps(model)
    types = skbayesnn.get_untrusted_types(data=content)
    again = skbayesnn.loads(content, trusted=types)
    np.testing.assert_array_equal(
        again.predict(made_up.frame_new), model.predict(made_up.frame_new)
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
def test_chosen_columns_are_kept(chosen, made_up):
    encoder = TableEncoder(chosen, "continuous").fit(made_up.frame, made_up.y)
    again = skbayesnn.loads(skbayesnn.dumps(encoder))
    assert type(again.categorical_features) is type(chosen)
    np.testing.assert_equal(again.categorical_features, chosen)
    np.testing.assert_array_equal(
        again.transform(made_up.frame_new), encoder.transform(made_up.frame_new)
    )


@pytest.mark.parametrize("chosen", [1.5, {"a": 1}, ["a", 2.0], np.array([[1]])])
def test_other_choices_of_columns_are_refused(chosen, network):
    model = copy.copy(network).set_params(categorical_features=chosen)
    match = "`categorical_features` of MCDropoutRegressor must be None, a string, or"
    with pytest.raises(ValueError, match=match):
        skbayesnn.dumps(model)


@pytest.fixture(scope="module")
def with_text():
    """An encoder with titles, whose parts predict y, and new rows."""
    titles = [
        f"{a}{b}" for a in ("head of ", "") for b in "sales design law it".split()
    ]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"title": [f"{t} {i}" for t in titles for i in range(7)]})
    y = np.repeat(np.arange(8.0), 7)
    new = pandas.DataFrame({"title": ["head of sales 9", "#", None, "law 3"]})
    return TableEncoder(target_type="continuous").fit(frame, y), new


def test_parts_of_text_are_restored(with_text):
    encoder, new = with_text
    assert "text" in encoder.columns_[0].encoding
    content = skbayesnn.dumps(encoder)
    again = skbayesnn.loads(content)
    assert skbayesnn.dumps(again) == content
    np.testing.assert_array_equal(again.transform(new), encoder.transform(new))
    parts = encoder._columns[0].parts
    for attributes, match in (
        ({"parts": None}, "whether text is used"),
        ({"parts": replace(parts, idf=parts.idf[:3])}, "must agree in parts"),
        ({"coefficients": np.ones((2, 1))}, "coefficients of parts"),
        ({"spreads": -encoder._columns[0].spreads}, "`spreads` of Column"),
        ({"text_ratio": -np.ones(1)}, "`text_ratio` of Column"),
    ):
        with pytest.raises(ValueError, match=match):
            skbayesnn.dumps(changed(encoder, "title", **attributes))


def test_numbers_of_rows_are_restored():
    random = np.random.default_rng(5)
    shop, day = random.integers(0, 15, 110), random.integers(0, 13, 110)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"shop": shop, "day": day}).astype(str)
    encoder = TableEncoder(target_type="continuous").fit(frame, shop + day)
    content = skbayesnn.dumps(encoder)
    again = skbayesnn.loads(content)
    assert skbayesnn.dumps(again) == content
    np.testing.assert_array_equal(again.transform(frame), encoder.transform(frame))
    counts = encoder._counts[-1]
    assert counts.columns == (0, 1)
    for attributes, match in (
        ({"columns": (0, -1)}, "`columns` of LevelCounts must be a tuple of integers"),
        ({"columns": (0, 2)}, "must be from 0 to 1; got"),
        ({"counts": counts.counts[1:]}, "must agree in combinations of levels"),
        ({"counts": -counts.counts}, "`counts` of LevelCounts"),
        ({"keys": counts.keys[::-1].copy()}, "keys of combinations of levels must"),
        ({"keys": counts.keys + 15 * 13}, "keys of combinations of levels must"),
    ):
        forged = copy.copy(encoder)
        forged._counts = [replace(counts, **attributes)]
        with pytest.raises(ValueError, match=match):
            skbayesnn.dumps(forged)


# ---- invalid values


def changed(encoder, column_name, **attributes):
    """A copy of the encoder with other attributes of a column."""
    encoder = copy.copy(encoder)
    encoder._columns = [
        replace(column, **attributes) if column.name == column_name else column
        for column in encoder._columns
    ]
    return encoder


COLUMNS = {
    "a name": ("size", {"name": 1.5}, "`name` of Column must be a string or an int"),
    "a repeated name": ("size", {"name": "flag"}, "agree in columns; got 9, 9, 8"),
    "another name": ("size", {"name": "width"}, "agree in names of columns"),
    "a kind": ("size", {"kind": "image"}, "must be one of 'boolean', 'duration', "),
    "a missing share": ("size", {"n_missing": -1}, "`n_missing` of Column must be an"),
    "a fill": ("size", {"fill": np.nan}, "`fill` of Column must be a number, finite"),
    "a large fill": ("size", {"fill": 1e9}, "median .* between its finite bounds"),
    "bounds": ("size", {"bounds": (1.0, -1.0)}, "`bounds` of Column must be a tuple"),
    "wide bounds": ("size", {"bounds": (-1.0, np.inf)}, "between its finite bounds"),
    "dropped": ("size", {"encoding": "dropped: constant"}, "whether it is dropped"),
    "not dropped": ("constant", {"encoding": "number"}, "whether it is dropped"),
    "no dates": ("size", {"time_zone": "UTC"}, "the kind of a column with a time zone"),
    "levels": ("colour", {"levels": ("red",)}, r"agree in levels; got \(2, 4\), \(5"),
    "equal levels": (
        "colour",
        {"levels": ("red", "red", "blue", "missing")},
        "number of distinct levels; got 2, 3",
    ),
    "names of levels": ("colour", {"levels": (1, 2)}, "must be a tuple of strings"),
    "features": ("colour", {"suffixes": ("",)}, "must agree in"),
    "infinite features": (
        "colour",
        {"level_features": np.full((5, 4), np.inf)},
        "array of floats, finite",
    ),
    "features of levels": (
        "size",
        {"level_features": np.ones((1, 2))},
        r"must agree in levels; got \(0, 0\), \(1, 2\)",
    ),
    "substitutes": (
        "colour",
        {"substitutes": np.ones((3, 4))},
        r"must agree in substitutes of unknown values; got \(16, 4\), \(3, 4\)",
    ),
    "a rare level with its own encoding": (
        "colour",
        {"rare": ("red",)},
        "number of distinct levels",
    ),
    "no indicator": ("size", {"indicator": False}, "must agree in substitutes"),
    "positions": ("grade", {"bounds": (0.0, 7.0)}, "positions of 3 levels must be"),
    "an unknown cycle": (
        "start",
        {"suffixes": (".days", ".sin_moon")},
        "agree in features|'moon'",
    ),
    "an infinite date": ("start", {"bounds": (-np.inf, 0.0)}, "finite bounds"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_invalid_columns(case, encoder):
    name, attributes, match = COLUMNS[case]
    with pytest.raises(ValueError, match=match):
        skbayesnn.dumps(changed(encoder, name, **attributes))


@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Nowhere/Else",
        "../UTC",
        "/etc/passwd",
        "America",
        "a" * 10**6,
        "UTC+25:00",
        3,
    ],
    ids=lambda zone: repr(zone)[:20],
)
def test_invalid_time_zones(zone, encoder):
    with pytest.raises(ValueError, match=r"`time_zone` of Column must be None or the"):
        skbayesnn.dumps(changed(encoder, "end", time_zone=zone))


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "+05:30", "UTC-03:00"])
def test_valid_time_zones(zone, encoder, made_up):
    made_up = made_up.frame.assign(end=made_up.frame["end"].dt.tz_convert(zone))
    y = np.arange(len(made_up), dtype=float)
    encoder = TableEncoder(target_type="continuous").fit(made_up, y)
    again = skbayesnn.loads(skbayesnn.dumps(encoder))
    assert again._columns[-1].time_zone == encoder._columns[-1].time_zone
    np.testing.assert_array_equal(again.transform(made_up), encoder.transform(made_up))


def test_network_has_the_columns_of_its_table(network):
    """Without one of the columns, and without the features of one."""
    model, table = copy.copy(network), copy.copy(network.table_)
    model.table_ = table
    dropped = {"encoding": "dropped: constant", "suffixes": ()}
    table._columns = changed(table, "length", **dropped)._columns
    with pytest.raises(ValueError, match="agree in"):
        skbayesnn.dumps(model)
    model.table_ = TableEncoder()
    with pytest.raises(ValueError, match="`table_` must be fitted"):
        skbayesnn.dumps(model)
    model.table_ = None
    with pytest.raises(ValueError, match="agree in"):
        skbayesnn.dumps(model)


def test_stack_has_a_table_for_every_fold(made_up, network):
    model, target = models.of_frames(SEED)["stack of a frame"]
    model.fit(made_up.frame, getattr(made_up, target))
    tables = model.fold_tables_
    other = changed(tables[0], "length", kind="number")
    for wrong, match in (
        (tables[:1], "agree in folds; got 2, 1"),
        (None, "agree in whether folds have encoders"),
        ([other, tables[1]], "agree in features"),
        ([None, tables[1]], "`fold_tables_` of BayesianStackingRegressor must be"),
    ):
        model.fold_tables_ = wrong
        with pytest.raises(ValueError, match=match):
            skbayesnn.dumps(model)


def test_stack_without_statistics_of_y_has_no_tables_of_folds(made_up):
    """The features of all folds are the same."""
    model, target = models.of_frames(SEED)["stack of a frame"]
    rows = made_up.frame[["length", "end"]]
    model.fit(rows, getattr(made_up, target))
    assert model.table_ is not None and model.fold_tables_ is None
    again = skbayesnn.loads(skbayesnn.dumps(model))
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))


# ---- the training rows of a monitor


@pytest.fixture(scope="module")
def monitor(made_up):
    model, target = models.of_frames(SEED)["monitor of a frame"]
    return model.fit(made_up.frame, getattr(made_up, target))


TRAINING_COLUMNS = {
    "no kind": ("size", {"kind": "image"}, "`kind` of TrainingColumn must be one of"),
    "a direction": ("size", {"direction": 2}, "must be an integer from -1 to 1"),
    "unsorted": ("size", {"values": np.array([2.0, 1.0])}, "not falling; got"),
    "infinite": ("size", {"values": np.array([np.inf])}, "finite"),
    "many values": ("size", {"values": np.ones(99)}, "must have at most"),
    "no numbers": ("size", {"values": np.ones(0)}, "has numbers; got True, False"),
    "a level": ("size", {"levels": ("a",)}, "agree in levels; got 1, 0, 1"),
    "missing": ("size", {"n_missing": 41}, "has numbers; got False, True"),
    "more missing": ("flag", {"n_missing": 1}, "agree in rows of the levels"),
    "negative counts": ("flag", {"counts": np.array([-1, 1])}, "finite and >= 0; got"),
    "equal levels": ("flag", {"levels": ("a", "a")}, "agree in levels; got 2, 2, 1"),
    "numbers": ("flag", {"values": np.ones(3)}, "has numbers; got False, True"),
    "rows": ("constant", {"n_rows": 3, "values": np.ones(3)}, "agree in training rows"),
    "a name": ("flag", {"name": "flags"}, "agree in names of columns"),
    "no values": (
        "size",
        {"values": np.zeros(0), "n_missing": 41, "direction": 1},
        "from row to row must have values",
    ),
    "a zone": ("size", {"time_zone": "UTC"}, "the kind of a column with a time zone"),
}


@pytest.mark.parametrize("case", TRAINING_COLUMNS)
def test_invalid_training_columns(case, monitor):
    name, attributes, match = TRAINING_COLUMNS[case]
    wrong = copy.copy(monitor)
    wrong.training_columns_ = [
        replace(column, **attributes) if column.name == name else column
        for column in monitor.training_columns_
    ]
    with pytest.raises(ValueError, match=match):
        skbayesnn.dumps(wrong)


def test_a_monitor_has_the_columns_of_its_models(monitor):
    wrong = copy.copy(monitor)
    wrong.training_columns_ = [{"direction": 1}] * 9
    with pytest.raises(ValueError, match="a list, each a TrainingColumn; got"):
        skbayesnn.dumps(wrong)
    wrong.training_columns_ = monitor.training_columns_[:2]
    with pytest.raises(ValueError, match="agree in columns; got 9, 2"):
        skbayesnn.dumps(wrong)
