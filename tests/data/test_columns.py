"""Columns of tables: every library, kind of data and missing value; odd values."""

import datetime
import re
import warnings
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from skbayesnn._data import columns
from skbayesnn._data.columns import KINDS, Kind, TableReader, is_frame
from skbayesnn._data.table_encoder import TableEncoder
from skbayesnn._onnx.tables import description, input_columns
from skbayesnn._stacking.foreign import _with_plain_columns
from skbayesnn.inspection._columns import column_drift, training_columns
from skbayesnn.plotting._rows import select_feature

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

PARIS = ZoneInfo("Europe/Paris")
SECOND = datetime.timedelta(seconds=1)
DAYS = [datetime.datetime(2020, 2, 29, 13), datetime.datetime(1969, 12, 31, 1)]
# The same column with a missing value in all libraries, per kind.
VALUES = {
    "number": [2.5, None, -1.0],
    "boolean": [True, None, False],
    "category": ["b", None, "a"],
    "date": [DAYS[0], None, DAYS[1]],
    "duration": [90 * SECOND, None, -0.5 * SECOND],
}
LEVELS = ["c", "b", "a"]


def categorical(values, ordered=False):
    """A column of categories with an unused level in every library."""
    indices = pa.array([None if v is None else LEVELS.index(v) for v in values])
    dictionary = pa.DictionaryArray.from_arrays(indices, LEVELS, ordered=ordered)
    return {
        "pandas": pd.Series(pd.Categorical(values, LEVELS, ordered=ordered)),
        "polars": pl.Series(values, dtype=pl.Enum(LEVELS) if ordered else None).cast(
            pl.Enum(LEVELS) if ordered else pl.Categorical
        ),
        "pyarrow": dictionary,
        "pyarrow chunks": pa.chunked_array([dictionary[:1], dictionary[1:]]),
    }


def columns_of_kind(kind):
    """The column in every library, and in arrays."""
    if kind == "ordered":
        return categorical(VALUES["category"], ordered=True)
    values = VALUES[kind]
    columns = {
        "pandas": pd.Series(values),
        "pandas objects": pd.Series(values, dtype=object),
        "polars": pl.Series(values, strict=False),
        "polars objects": pl.Series(values, dtype=pl.Object),
        "pyarrow": pa.array(values),
        "pyarrow chunks": pa.chunked_array(
            [pa.array(values[:2]), pa.array(values[2:])]
        ),
        "array": np.array(values, dtype=object),
    }
    if kind == "category":
        columns |= {f"{k} categories": v for k, v in categorical(values).items()}
    nullable = {"number": "Float64", "boolean": "boolean", "category": "string"}
    if kind in nullable:
        columns["pandas nullable"] = pd.Series(values, dtype=nullable[kind])
    arrow = pd.ArrowDtype(columns["pyarrow"].type)
    columns["pandas of pyarrow"] = pd.Series(values, dtype=arrow)
    return columns


def as_table(column, name="x"):
    if isinstance(column, np.ndarray):
        return column[:, None]
    if isinstance(column, pd.Series):
        return pd.DataFrame({name: column})
    if isinstance(column, pl.Series):
        return pl.DataFrame({name: column})
    return pa.table({name: column})


def content(reader, kind, j=0):
    """Values of a column without the order of the levels."""
    if kind in ("category", "ordered"):
        data = reader[j].categories()
        values = [None if i < 0 else data.levels[i] for i in data.codes]
        return (values, reader[j].ordered_levels()) if kind == "ordered" else values
    if kind == "date":
        return reader[j].dates(reader[j].time_zone()).tolist()
    return [None if np.isnan(v) else v for v in reader[j].numbers().tolist()]


CASES = [
    (kind, library)
    for kind in [*VALUES, "ordered"]
    for library in columns_of_kind(kind)
]


@pytest.mark.parametrize(("kind", "library"), CASES)
def test_every_library_reads_the_same(kind, library):
    table = as_table(columns_of_kind(kind)[library])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader = TableReader(table)
        assert reader[0].kind() == kind
        actual = content(reader, kind)
    seconds = {"duration": [90.0, None, -0.5]}
    expected = seconds.get(kind, VALUES["category" if kind == "ordered" else kind])
    assert actual == ((expected, LEVELS) if kind == "ordered" else expected)
    assert reader.n_rows == 3
    if is_frame(table):
        assert reader.names == ["x"]
        assert not reader[0].is_complete_number()


def test_complete_numbers():
    complete = [
        *(pd.Series([1, 2], dtype=d) for d in ("int8", "Int64", "float32", "bool")),
        pd.Series([1.0, True], dtype=object),
        pd.Series(pd.arrays.SparseArray([0, 1.0])),
        pl.Series([1, 2], dtype=pl.UInt8),
        pl.Series([True, False]),
        pa.array([1.5, 2.0]),
        pa.array([Decimal("1.5")]),
    ]
    assert all(TableReader(as_table(c))[0].is_complete_number() for c in complete)
    others = [
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1.0, np.nan]),
        pd.Series([1.0, None], dtype=object),
        pd.Series(pd.arrays.SparseArray([0, np.nan])),
        pl.Series([1.0, np.nan]),
        pl.Series([None, None]),
        pa.array([1, None]),
        pa.nulls(2),
        pd.Series(["1", "2"]),
    ]
    assert not any(TableReader(as_table(c))[0].is_complete_number() for c in others)


def test_columns_are_read_by_position():
    """Names may be integers next to text, or tuples."""
    table = pd.DataFrame(
        [[1.0, "x"], [None, "y"]], columns=["a", "b"], index=["z", "z"]
    )
    levels = table.set_axis(
        pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")]), axis="columns"
    )
    for X in (table, levels, table.set_axis([1, 0], axis="columns")):
        reader = TableReader(X)
        assert reader.names == X.columns.tolist()
        assert content(reader, "number", 0) == [1.0, None]
        assert content(reader, "category", 1) == ["x", "y"]


def test_repeated_names_are_refused():
    twice = pa.Table.from_arrays([pa.array([1]), pa.array(["x"])], ["a", "a"])
    for table in (twice, twice.to_pandas()):
        with pytest.raises(ValueError, match="must have different names; got 'a'"):
            TableReader(table)


def test_large_integers_with_missing_values():
    """pyarrow refuses to convert integers above 2**53 to floats."""
    values = [2**60, None, -3]
    arrow = pa.array(values)
    columns = pd.Series(values, dtype="Int64"), pl.Series(values), arrow
    for column in (*columns, pd.Series(arrow, dtype=pd.ArrowDtype(arrow.type))):
        numbers = TableReader(as_table(column))[0].numbers()
        assert numbers.tolist()[:1] + numbers.tolist()[2:] == [2.0**60, -3.0]
        assert np.isnan(numbers[1])


def test_levels_do_not_depend_on_missing_values_or_types():
    """Integers become floats if values are missing; 1, 1.0 and "1" are one level."""
    for values in ([7, 10], [7.0, 10.0], ["7", "10"], np.array([7, 10], np.uint8)):
        for extra in ([], [None], [np.nan]):
            column = pd.Series([*values, *extra], dtype=object)
            for series in (column, column.astype("category"), column.infer_objects()):
                actual = content(TableReader(as_table(series)), "category")
                assert actual == ["7", "10", *[None] * len(extra)]
    bins = pd.Series(pd.cut([1, 5, np.nan], [0, 3, 6]))
    reader = TableReader(as_table(bins))
    assert reader[0].kind() == "ordered"
    expected = ["(0, 3]", "(3, 6]"]
    assert content(reader, "ordered") == ([*expected, None], expected)


def test_true_and_1_are_different_levels():
    """In any order of the rows."""
    values = [True, 1, 1.0, "True", np.bool_(False), 0]
    for rows in (values, values[::-1]):
        array = np.array([[v] for v in rows], dtype=object)
        actual = content(TableReader(array), "category")
        expected = ["True", "1", "1", "True", "False", "0"]
        assert actual == (expected if rows is values else expected[::-1])


def test_levels_of_dates_do_not_depend_on_their_unit():
    dates = pd.Series(pd.to_datetime(["2020-02-29", "2021-01-01"]))
    levels = {
        TableReader(as_table(dates.astype(f"datetime64[{unit}]")))[0]
        .categories()
        .levels
        for unit in ("s", "ms", "us", "ns")
    }
    assert len(levels) == 1


@pytest.mark.parametrize(
    "text", ["", "nan", "None", "NA", " ", "é" * 5000, "a\nb", "0"]
)
def test_odd_text_is_a_level(text):
    for column in (pd.Series([text, "b", None]), pl.Series([text, "b", None])):
        assert content(TableReader(as_table(column)), "category") == [text, "b", None]


def test_the_text_missing_is_a_missing_value():
    """Otherwise its encoding and that of missing values would have the same name."""
    column = pd.Series(["missing", "a", None])
    for series in (column, column.astype("category")):
        assert content(TableReader(as_table(series)), "category") == [None, "a", None]


def test_recoded_levels():
    [column] = TableReader(np.array([["b"], ["a"], [None], ["c"]], dtype=object))
    data = column.categories()
    assert data.recoded(["a", "b"]).tolist() == [1, 0, -1, -2]
    empty = TableReader(np.empty((0, 1), dtype=object))[0].categories()
    assert empty.codes.tolist() == [] == empty.recoded(["a"]).tolist()


# ---- kinds of objects


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5, np.float32(3), Decimal("1.5"), np.int8(1)], "number"),
        ([np.bool_(True), 1.5], "number"),
        ([True, np.bool_(False)], "boolean"),
        ([None, np.nan, pd.NA, pd.NaT], "number"),
        (
            [np.timedelta64(3, "s"), datetime.timedelta(1), np.timedelta64("NaT")],
            "duration",
        ),
        ([datetime.date(2020, 1, 1), pd.Timestamp(2020, 1, 1)], "date"),
        ([np.datetime64("2020-01-01"), None], "date"),
        (["a", 1, True, 2.5], "category"),
    ],
)
def test_kinds_of_objects(values, kind):
    array = np.array([[v] for v in values], dtype=object)
    assert TableReader(array)[0].kind() == kind
    assert TableReader(array[::-1])[0].kind() == kind
    assert TableReader(pd.DataFrame(array))[0].kind() == kind


@pytest.mark.parametrize(
    ("column", "got"),
    [
        (pd.Series([[1], [2]]), "list"),
        (pd.Series([{"a": 1}, None]), "dict"),
        (pd.Series([datetime.time(3), None]), "time"),
        (pd.Series([b"a", "b"]), "bytes"),
        (pd.Series([1 + 2j, 3]), "complex"),
        (pd.Series(pd.period_range("2020", periods=2, freq="M")), "Period"),
        (pd.Series([datetime.date(2020, 1, 1), "2020-01-02"]), "date and str"),
        (pd.Series([datetime.timedelta(1), 5]), "int and timedelta"),
        (pl.Series([[1], None]), "List"),
        (pl.Series([{"a": 1.0, "b": 2.0}, None]), "Struct"),
        (pl.Series([datetime.time(3), None]), "time"),
        (pa.array([[1], None]), "List"),
        (pa.array([{"a": 1}, None]), "Struct"),
        (pa.array([b"1", None]), "bytes"),
    ],
)
def test_values_of_no_kind_are_refused(column, got):
    message = f"got {got}.* in column 'size'. Convert the column, or drop it"
    with pytest.raises(ValueError, match=message):
        TableReader(as_table(column, "size"))[0].kind()


def test_collections_are_no_categories():
    for value in ([1], {"a": 1}, {1}):
        table = pd.DataFrame({"tags": ["a", value]})
        with pytest.raises(
            ValueError, match=rf"got {type(value).__name__} in .*'tags'"
        ):
            TableReader(table)[0].categories()


# ---- numbers and dates of new rows


def test_text_in_a_column_of_numbers_is_refused():
    table = pd.DataFrame({"size": [1.0, "2.5"]})
    with pytest.raises(ValueError, match=r"'size' must contain numbers.* got '2.5'"):
        TableReader(table)[0].numbers()


@pytest.mark.parametrize("value", ["2020-01", "spring", 18_262, "31.12.2024", True])
def test_other_values_in_a_column_of_dates_are_refused(value):
    """The advice does not make the whole column missing."""
    table = pd.DataFrame({"day": [DAYS[0], value]}, dtype=object)
    message = rf"'day' must contain dates.*got {value!r}.*format=.*unit='s'"
    with pytest.raises(ValueError, match=message) as error:
        TableReader(table)[0].dates()
    assert "coerce" not in str(error.value)


AWARE = [DAYS[0].replace(tzinfo=PARIS), None, DAYS[1].replace(tzinfo=PARIS)]
AWARE_COLUMNS = {
    "pandas": pd.Series(AWARE),
    "pandas objects": pd.Series(AWARE, dtype=object),
    "polars": pl.Series(AWARE, dtype=pl.Datetime("ms", "Europe/Paris")),
    "pyarrow": pa.array(AWARE, pa.timestamp("us", "Europe/Paris")),
    "array": np.array(AWARE, dtype=object),
}


@pytest.mark.parametrize("library", AWARE_COLUMNS)
@pytest.mark.parametrize("zone", ["Europe/Paris", "Asia/Kolkata", "UTC"])
def test_local_times(library, zone):
    """Against the standard library's conversion, without a warning."""
    reader = TableReader(as_table(AWARE_COLUMNS[library]))
    expected = [v and v.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for v in AWARE]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reader[0].kind() == "date"
        assert reader[0].time_zone() == "Europe/Paris"
        assert reader[0].dates(zone).tolist() == expected
    message = r"column ('x'|0) must have no time zone, as in `fit`; got Europe/Paris"
    with pytest.raises(ValueError, match=message):
        reader[0].dates()


@pytest.mark.parametrize("library", columns_of_kind("date"))
def test_dates_without_the_time_zone_of_the_fit(library):
    reader = TableReader(as_table(columns_of_kind("date")[library]))
    message = (
        r"column ('x'|0) must have a time zone \(Europe/Paris in `fit`\).*got none"
    )
    with pytest.raises(ValueError, match=message):
        reader[0].dates("Europe/Paris")


def test_missing_dates_have_any_time_zone():
    for column in (
        pd.Series([None, None], dtype=object),
        pd.Series([np.nan, np.nan]),
        pd.Series(pd.to_datetime([None, None])),
        pl.Series([None, None]),
        pa.nulls(2),
    ):
        for zone in (None, "Europe/Paris"):
            assert np.isnat(TableReader(as_table(column))[0].dates(zone)).all()


def test_dates_with_several_time_zones():
    """They are converted to UTC; a fixed offset has no name."""
    offset = datetime.timezone(datetime.timedelta(hours=2))
    values = [DAYS[0].replace(tzinfo=PARIS), DAYS[1].replace(tzinfo=offset)]
    reader = TableReader(np.array([[v] for v in values], dtype=object))
    assert reader[0].time_zone() == "UTC"
    assert reader[0].dates("UTC").tolist() == [
        v.astimezone(datetime.UTC).replace(tzinfo=None) for v in values
    ]
    assert TableReader(np.array([[values[1]]], dtype=object))[0].time_zone() == "UTC"
    mixed = TableReader(np.array([[values[0]], [DAYS[1]]], dtype=object))
    with pytest.raises(ValueError, match="column 0 must have a time zone, or none"):
        mixed[0].time_zone()


# ---- text


SENTENCES = [f"the customer called {i} times about it" for i in range(20)]


def test_free_text_is_refused():
    message = re.escape(
        "column 'notes' contains free text, 20 different values such as 'the customer "
        "called 0 times about it'. Encode it in a pipeline:\n"
        "    from skrub import TableVectorizer\n"
        "    make_pipeline(TableVectorizer(), estimator)\n"
        "If the values are categories, name the column: categorical_features=['notes']."
    )
    for table in (pd.DataFrame, pl.DataFrame, pa.table):
        with pytest.raises(ValueError, match=message):
            TableReader(table({"notes": SENTENCES}))[0].kind()
    with pytest.raises(ValueError, match=r"(?s)column 0 .* as 'the .*_features=\[0\]"):
        TableReader(np.array(SENTENCES)[:, None])[0].kind()
    # Few different values, or many repeated ones, are categories.
    for few in (SENTENCES[:19], SENTENCES * 3):
        assert TableReader(pd.DataFrame({"notes": few}))[0].kind() == "category"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ([f"{i / 4}" for i in range(19)] + ["?", "1e-3"], "numbers, such as '0.0'"),
        (
            ["2020-01-01", "?"] + [f"2020-01-{i:02d}" for i in range(2, 25)],
            "dates, except 1 of 25 values such as '.'",
        ),
    ],
)
def test_text_of_numbers_or_dates(text, message):
    """It is a category, with a warning that names the column and the conversion."""
    table = pd.DataFrame({"size": text})
    with pytest.warns(UserWarning, match=rf"'size' contains .*{message}.*pandas.to_"):
        assert TableReader(table)[0].kind() == "category"


@pytest.mark.parametrize(
    "date_format",
    [
        *("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%y", "%Y/%m/%d", "%d.%m.%Y %H:%M"),
        *("%d %b %Y", "%B %d, %Y", "%m/%d/%Y %I:%M:%S %p"),
    ],
)
def test_dates_in_another_format(date_format):
    """A warning; at prediction it is an error."""
    dates = [
        datetime.datetime(2024, 3, 1, 10, 30) + i * 37 * 60 * 60 * SECOND
        for i in range(12)
    ]
    table = pd.DataFrame({"day": [d.strftime(date_format) for d in dates]})
    example = re.escape(table["day"][0])
    with pytest.warns(UserWarning, match=f"'day' .* dates, such as '{example}'"):
        assert TableReader(table)[0].kind() == "category"
    with pytest.raises(ValueError, match=f"'day' must contain dates.*'{example}'"):
        TableReader(table)[0].dates()


NUMBERS_AS_TEXT = [
    ["3,14", *(f"{i},5" for i in range(8)), "2"],
    *([f"1{mark}{i},5" for i in range(100, 112)] for mark in ". \u00a0'"),
    *([f"1{mark}{i}" for i in range(100, 112)] for mark in "\u202f_,"),
    [f"{i},100,000.5" for i in range(1, 12)],
    *(
        [*(form.format(1000 + 7.25 * i) for i in range(60)), "none"]
        for form in (
            *(
                "${:,.2f}",
                "-${:,.2f}",
                "$ {:,.2f}",
                "{:,.2f} \u20ac",
                "{:,.0f}\u00a0USD",
            ),
            *("{:.1f} kg", "{:.1f}k", "({:,.2f})", '"{:.2f}"', "[{:.2f}]", "+{:.2f}%"),
            *(
                "\u2212{:.2f}",
                "\u2013{:.1f} \u00b0C",
                "{:.3e} m2",
                "{:.0f}-star",
                "{} %",
            ),
        )
    ),
]


@pytest.mark.parametrize("texts", NUMBERS_AS_TEXT, ids=lambda texts: texts[0])
def test_text_of_numbers_in_another_format(texts):
    """The warning names an example, and the format that pandas reads."""
    table = pd.DataFrame({"size": texts})
    with pytest.warns(UserWarning, match=r"SKB204") as warned:
        assert TableReader(table)[0].kind() == "category"
    message = str(warned[0].message)
    content = f"seems to represent numbers, such as {texts[0]!r},"
    assert f"'size' contains text that {content}" in message
    assert "in one format, such as 1234.5," in message


def _call_in(message):
    """The first call of pandas in a message."""
    return re.search(
        r"(pandas\.\w+\(.*?\))(?:, (?:which|with|or)| reads|\.(?: |$))", message
    )[1]


def _evaluated(call, column):
    return eval(call, {"pandas": pd, "column": column})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.5, "2", 3.0], [1.5, 2.0, 3.0]),
        (["1.5", "n/a", "2"], [1.5, None, 2.0]),
        ([1.5, "n/a", 2.0], [1.5, None, 2.0]),
    ],
)
def test_advice_for_numbers_can_be_run(values, expected):
    """It reads the numbers; only values that are no numbers become missing."""
    table = pd.DataFrame({"size": pd.Series(values, dtype=object)})
    with pytest.raises(ValueError, match="'size' must contain numbers") as error:
        TableReader(table)[0].numbers()
    read = _evaluated(_call_in(str(error.value)), table["size"])
    np.testing.assert_array_equal(
        read.to_numpy(dtype=float, na_value=np.nan), np.array(expected, dtype=float)
    )


@pytest.mark.parametrize("zones", [("",), ("+01:00", "+02:00")])
def test_advice_for_dates_in_iso_format_can_be_run(zones):
    texts = [f"2024-01-{i:02d}T10:00{zones[i % len(zones)]}" for i in range(1, 29)]
    table = pd.DataFrame({"day": [*texts, "unknown"]})
    with pytest.warns(UserWarning, match="dates, except 1 of 29") as warned:
        assert TableReader(table)[0].kind() == "category"
    read = _evaluated(_call_in(str(warned[0].message)), table["day"])
    assert read.isna().tolist() == [False] * 28 + [True]
    mixed = np.array([["2024-01-01"], ["2024-01-02T10:00+01:00"]], dtype=object)
    with pytest.raises(ValueError, match="or none of them; got both") as error:
        TableReader(mixed)[0].time_zone()
    assert _evaluated(_call_in(str(error.value)), mixed[:, 0]).notna().all()


@pytest.mark.parametrize(
    "texts",
    [
        [f"{i}.{i}.{i}" for i in range(1, 13)],
        [f"31.12.20{i}" for i in range(10, 19)],
        [f"{i},5" for i in range(9)],
        [f"{i},5 {'cm' if i % 2 else 'in'}" for i in range(30)],
        [f"room {i}" for i in range(30)],
        [f"#{i}" for i in range(30)],
        [f"<{i}" for i in range(30)],
        [f"area {i}" for i in range(30)],
        [*(f"0{i}.12.2024" for i in range(1, 9)), "spring", "autumn"],
    ],
    ids=[
        *("versions", "few dates", "few numbers", "several units", "rooms"),
        *("numbered", "bounds", "names", "other text"),
    ],
)
def test_other_text_does_not_warn(texts):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TableReader(pd.DataFrame({"x": texts}))[0].kind() == "category"


def test_few_numbers_as_text_do_not_warn():
    """They can be names of categories."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = pd.DataFrame({"size": [f"{i / 4}" for i in range(19)]})
        assert TableReader(table)[0].kind() == "category"


ISO_TEXT = {
    "days": ["2020-02-29", None, "2021-01-01"],
    "times": ["2020-02-29 07:08:09", None, "2021-01-01 10:11:12.5"],
    "T": ["2020-02-29T07:08", None, "2021-01-01T10:11"],
    "zone": ["2020-02-29T07:08+01:00", None, "2021-01-01T10:11+02:00"],
}


@pytest.mark.parametrize("texts", ISO_TEXT.values(), ids=ISO_TEXT)
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, "array"])
def test_text_in_iso_format_is_a_date(texts, make):
    """As a CSV file has it. Its dates equal those that pandas reads."""
    table = (
        np.array(texts, dtype=object)[:, None]
        if make == "array"
        else make({"day": texts})
    )
    reader = TableReader(table)
    assert reader[0].kind() == "date"
    zone = reader[0].time_zone()
    assert zone == ("UTC" if "+" in texts[0] else None)
    expected = pd.to_datetime(pd.Series(texts), format="ISO8601", utc=zone == "UTC")
    local = expected.dt.tz_localize(None)
    np.testing.assert_array_equal(reader[0].dates(zone), local.to_numpy("M8[us]"))


def test_few_dates_as_text_among_others_warn():
    table = pd.DataFrame({"day": [f"2020-01-{i:02d}" for i in range(1, 10)] + ["NA"]})
    with pytest.warns(UserWarning, match="'day' .*1 of 10 values such as 'NA'"):
        assert TableReader(table)[0].kind() == "category"


@pytest.mark.parametrize("text", ["9999-12-31 23:59-05:00", "0001-01-01 00:00+05:00"])
def test_dates_that_no_time_zone_can_have(text):
    reader = TableReader(pd.DataFrame({"day": [text]}))
    with pytest.raises(ValueError, match=r"'day' must be between .* zone UTC; got"):
        reader[0].dates("UTC")


@pytest.mark.parametrize("kind", ["Int64", "int64[pyarrow]", "polars"])
def test_large_integers_with_missing_values_stay_different(kind):
    """In float64, 2**53 + 1 equals 2**53."""
    values = [None, *(2**53 + i for i in range(4))]
    table = (
        pl.DataFrame({"id": values})
        if kind == "polars"
        else pd.DataFrame({"id": pd.array(values, dtype=kind)})
    )
    categories = TableReader(table)[0].categories()
    assert categories.levels == tuple(str(v) for v in values[1:])
    np.testing.assert_array_equal(categories.codes, [-1, 0, 1, 2, 3])


def test_other_text_is_no_date():
    for texts in (["2020-01-01", "2020-02-30"], ["20200101"], ["2020-01"], ["2020"]):
        assert TableReader(pd.DataFrame({"day": texts}))[0].kind() == "category"


# ---- what is a frame


def test_frames():
    for frame in (
        pd.DataFrame({"a": [1]}),
        pl.DataFrame({"a": [1]}),
        pa.table({"a": [1]}),
    ):
        assert is_frame(frame)
    others = [np.ones((2, 3)), [[1]], pd.Series([1]), pl.LazyFrame({"a": [1]}), None]
    with warnings.catch_warnings():  # of the columns of a lazy frame
        warnings.simplefilter("ignore")
        assert not any(is_frame(other) for other in others)


@pytest.mark.parametrize("cycles", [{}, {"day": 86_400.0}])
def test_a_new_kind_of_column_is_one_entry(cycles, monkeypatch):
    """Models, other libraries, graphs, drift and displays take it."""
    kind = Kind(
        (datetime.time,),
        ("Time",),
        number="seconds of the day",
        cycles=cycles,
        unit="seconds",
        to_number=lambda t: 3600.0 * t.hour + 60.0 * t.minute,
    )
    monkeypatch.setitem(KINDS, "time", kind)
    monkeypatch.setitem(columns._KIND_OF_DTYPE, "Time", "time")
    times = [datetime.time(i % 24, i % 60) for i in range(60)]
    for frame in (pd.DataFrame({"at": times}), pl.DataFrame({"at": times})):
        encoder = TableEncoder().fit(frame, np.arange(60.0))
        [summary] = encoder.columns_
        assert (summary.column, summary.kind) == ("at", "time")
        assert summary.encoding.startswith("seconds of the day")
        waves = [f"at.{wave}_{name}" for name in cycles for wave in ("sin", "cos")]
        assert summary.features == ("at", *waves)
        seconds = [3600 * t.hour + 60 * t.minute for t in times]
        np.testing.assert_array_equal(encoder.transform(frame)[:, 0], seconds)
        assert description(input_columns([encoder])) == {
            "at": {"kind": "time", "unit": "seconds"}
        }
        [drift] = column_drift(frame[:10], training_columns(frame))
        assert drift.kind == "time" and drift.p_value < 0.05
        np.testing.assert_array_equal(select_feature(frame, "at")["x"], seconds)
        with warnings.catch_warnings():  # later times of the day are no later dates
            warnings.simplefilter("error")
            TableEncoder().fit(frame[:12], np.arange(12.0)).transform(frame)
    plain = _with_plain_columns(pd.DataFrame({"at": times}), keeps_categories=False)
    np.testing.assert_array_equal(plain["at"], seconds)
