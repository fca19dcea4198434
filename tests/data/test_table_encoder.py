"""Encoded tables: closed forms, libraries, weights, names, and warnings."""

import datetime
import warnings

import numpy as np
import pytest

from skbayesnn import dumps, loads
from skbayesnn.preprocessing import TableEncoder

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

ROWS, NEW, CITIES = 60, 7, 13
LEVELS = ["low", "mid", "high"]


@pytest.fixture
def random(seed):
    return np.random.default_rng([seed, 37])


def mixed_columns(random, rows):
    """A column of every kind; all but "count" have missing values."""
    start = datetime.datetime(2020, 2, 28)
    hours = random.integers(0, 20_000, rows).tolist()
    columns = {
        "size": random.standard_normal(rows).tolist(),
        "count": random.integers(0, 9, rows).tolist(),
        "new": random.integers(0, 2, rows).astype(bool).tolist(),
        "colour": random.choice(["red", "blue", "green"], rows).tolist(),
        "city": [f"city {i}" for i in random.permutation(rows) % CITIES],
        "grade": random.choice(LEVELS, rows).tolist(),
        "day": [start + datetime.timedelta(hours=h) for h in hours],
        "age": [datetime.timedelta(minutes=m) for m in hours],
    }
    for name, values in columns.items():
        if name != "count":
            for i in random.permutation(rows)[: rows // 6]:
                values[i] = None
    return columns


def in_pandas(columns):
    grade = pd.Categorical(columns["grade"], LEVELS, ordered=True)
    index = np.arange(len(grade))[::-1] * 3
    return pd.DataFrame(
        {k: pd.Series(v) for k, v in columns.items()} | {"grade": grade}
    )[list(columns)].set_index(index)


def in_pandas_nullable(columns):
    return in_pandas(columns).convert_dtypes()


def in_polars(columns):
    grade = pl.Series("grade", columns["grade"], dtype=pl.Enum(LEVELS))
    return pl.DataFrame(columns).with_columns(grade)


def in_pyarrow(columns):
    codes = [None if v is None else LEVELS.index(v) for v in columns["grade"]]
    grade = pa.DictionaryArray.from_arrays(pa.array(codes), LEVELS, ordered=True)
    return pa.table(columns | {"grade": grade})


LIBRARIES = [in_pandas, in_pandas_nullable, in_polars, in_pyarrow]


@pytest.mark.parametrize("frame", LIBRARIES[1:])
@pytest.mark.parametrize("target_type", ["continuous", "classes"])
def test_every_library_has_the_same_features(random, frame, target_type):
    columns, new = mixed_columns(random, ROWS), mixed_columns(random, NEW)
    y = random.integers(0, 3, ROWS)
    expected = TableEncoder(target_type=target_type)
    actual = TableEncoder(target_type=target_type)
    np.testing.assert_array_equal(
        actual.fit_transform(frame(columns), y),
        expected.fit_transform(in_pandas(columns), y),
    )
    assert actual.columns_ == expected.columns_
    assert [c.kind for c in actual.columns_] == [
        *("number", "number", "boolean", "category", "category"),
        *("ordered", "date", "duration", "count"),
    ]
    with warnings.catch_warnings():  # New dates may be later than all others.
        warnings.simplefilter("ignore")
        features = expected.transform(in_pandas(new))
        np.testing.assert_array_equal(actual.transform(frame(new)), features)
        np.testing.assert_array_equal(expected.transform(frame(new)), features)
    assert np.isfinite(features).all()


def test_arrays_of_objects_and_lists_have_the_same_features(random):
    columns = mixed_columns(random, ROWS)
    del columns["grade"]  # Arrays have no ordered categories.
    frame, y = pl.DataFrame(columns), random.standard_normal(ROWS)
    rows = list(zip(*columns.values(), strict=True))
    expected = TableEncoder().fit_transform(frame, y)
    for X in (rows, [list(row) for row in rows], np.array(rows, dtype=object)):
        np.testing.assert_array_equal(TableEncoder().fit_transform(X, y), expected)


# ---- closed forms


def features_of(values, y=None, sample_weight=None, **parameters):
    """Encoder and features of one column, "x"."""
    encoder = TableEncoder(**parameters)
    table = pd.DataFrame({"x": values})
    return encoder, encoder.fit_transform(table, y, sample_weight)


def test_missing_numbers():
    """The median replaces them; from five missing values they have an indicator."""
    encoder, features = features_of([4.0, 1.0, None, 2.0, 9.0])
    np.testing.assert_array_equal(features[:, 0], [4, 1, 3, 2, 9])
    assert encoder.columns_ == [("x", "number", "number", ("x",), 1)]
    values = [4.0, 1.0, None, 2.0, 9.0] * 5
    encoder, features = features_of(values)
    np.testing.assert_array_equal(
        features[:5], [[4, 0], [1, 0], [3, 1], [2, 0], [9, 0]]
    )
    assert encoder.get_feature_names_out(["x"]).tolist() == ["x", "x=missing"]
    with pytest.raises(ValueError, match=r"must be the names of the columns in `fit`"):
        encoder.get_feature_names_out(["z"])


def test_median_is_the_median_of_repeated_rows(random):
    for n in (1, 2, 5, 8):
        values, weights = random.standard_normal(n), random.integers(0, 4, n)
        weights[0] += 1
        table = np.concatenate([values, [np.nan]])
        # Two values, so that the column is not constant.
        encoder = TableEncoder().fit(
            np.concatenate([table, [5.0, -5.0]])[:, None],
            sample_weight=[*weights, 1, 1, 1],
        )
        filled = encoder.transform([[None]])[0, 0]
        expected = np.median(np.repeat([*values, 5.0, -5.0], [*weights, 1, 1]))
        assert filled == pytest.approx(expected, rel=1e-15)


def test_one_hot_levels():
    """Levels with fewer than five rows share one feature, with unseen levels."""
    values = ["b"] * 6 + ["a"] * 5 + ["c", "d"] + [None]
    encoder, features = features_of(values)
    assert encoder.get_feature_names_out().tolist() == [
        *("x=a", "x=b", "x=missing", "x=other")
    ]
    one_hot = dict(
        zip(["a", "b", None, "c", "d", "new"], [0, 1, 2, 3, 3, 3], strict=True)
    )
    np.testing.assert_array_equal(features, np.eye(4)[[one_hot[v] for v in values]])
    new = pd.DataFrame({"x": list(one_hot)})
    np.testing.assert_array_equal(
        encoder.transform(new), np.eye(4)[list(one_hot.values())]
    )


def test_two_levels_have_one_feature():
    encoder, features = features_of(["b", "a", "a"] * 5)
    assert encoder.get_feature_names_out().tolist() == ["x=a"]
    np.testing.assert_array_equal(features[:3, 0], [0, 1, 1])


def test_rare_levels_of_a_few_rows_are_kept():
    encoder, features = features_of(["a", "b", "c", None])
    assert len(np.unique(features, axis=0)) == 4
    assert encoder.columns_[0].n_missing == 1


def test_ordered_levels():
    """Positions among all levels, with those that have no rows."""
    grades = pd.Categorical(["high", "low", None], ["low", "mid", "high"], ordered=True)
    encoder, features = features_of(grades)
    np.testing.assert_array_equal(features[:, 0], [2, 0, 1])
    assert encoder.columns_[0].encoding == "position of the level"
    # Levels are found by name, whatever their position in the new table.
    new = pd.Categorical(["mid", "high"], ["high", "mid"], ordered=True)
    np.testing.assert_array_equal(
        encoder.transform(pd.DataFrame({"x": new}))[:, 0], [1, 2]
    )


def test_durations_are_seconds():
    _, features = features_of(pd.to_timedelta([90, -1, None], unit="s"))
    np.testing.assert_array_equal(features[:, 0], [90, -1, 44.5])


def test_dates(random):
    """Elapsed days and cycles; the same for every unit of the dates."""
    hours = np.sort(random.integers(0, 900 * 24, 50))
    dates = np.datetime64("2019-03-01T00", "h") + hours
    encoder, features = features_of(dates.astype("datetime64[s]"))
    names = encoder.get_feature_names_out().tolist()
    assert names[0] == "x.days"
    np.testing.assert_allclose(features[:, 0], (hours - hours[0]) / 24, rtol=1e-12)
    since_1970 = (dates - np.datetime64("1970-01-01T00", "h")).astype(float)
    for period, length in {"day": 24, "week": 7 * 24, "year": 365.2425 * 24}.items():
        angle = 2 * np.pi * since_1970 / length
        for name, wave in {"sin": np.sin, "cos": np.cos}.items():
            column = features[:, names.index(f"x.{name}_{period}")]
            # Sine and cosine of up to 2 pi 20,000 in float64.
            np.testing.assert_allclose(column, wave(angle), atol=1e-9)
    for unit in ("ms", "us", "ns"):
        _, others = features_of(dates.astype(f"datetime64[{unit}]"))
        np.testing.assert_array_equal(others, features)


def test_dates_have_the_local_time_of_the_fit():
    """New dates in another zone are converted."""
    local = pd.Series(
        pd.date_range("2020-03-01", periods=40, freq="7h", tz="Asia/Tokyo")
    )
    encoder, features = features_of(local)
    _, naive = features_of(local.dt.tz_localize(None))
    np.testing.assert_array_equal(features, naive)
    utc = pd.DataFrame({"x": local.dt.tz_convert("UTC")})
    np.testing.assert_array_equal(encoder.transform(utc), features)


# ---- statistics of y


def many_levels(random, rows=ROWS):
    return np.array([f"city {i}" for i in random.permutation(rows) % CITIES])


def test_own_y_does_not_change_the_own_encoding(random):
    values, y = many_levels(random), random.standard_normal(ROWS)
    _, features = features_of(values, y)
    assert features.shape == (ROWS, 2)  # with the number of rows of the level
    for row in (0, 17, ROWS - 1):
        changed = y.copy()
        changed[row] = 100.0
        _, others = features_of(values, changed)
        np.testing.assert_array_equal(others[row], features[row])
        assert (others[:, 0] != features[:, 0]).any()


def test_y_of_weight_zero_is_not_used(random):
    values, y = many_levels(random), random.standard_normal(ROWS)
    weights = np.ones(ROWS)
    weights[:5] = 0
    encoder, features = features_of(values, y, weights)
    y[:5] = 100.0
    _, others = features_of(values, y, weights)
    np.testing.assert_array_equal(others, features)
    # They are encoded as new rows.
    new = pd.DataFrame({"x": values[:5]})
    np.testing.assert_array_equal(encoder.transform(new), features[:5])


def test_two_targets_have_the_features_of_each(random):
    values, y = many_levels(random), random.standard_normal((ROWS, 2))
    _, features = features_of(values, y)
    first, second = (features_of(values, target)[1] for target in y.T)
    # The last feature is the number of rows of the level.
    expected = np.column_stack([first[:, 0], second])
    np.testing.assert_array_equal(features, expected)


@pytest.mark.parametrize(
    "classes", [[False, True], [3, 7], ["no", "yes"], ["a", "b", "c"]]
)
def test_classes(random, classes):
    """Shares of the classes minus those of all rows; one if there are two classes."""
    values, y = many_levels(random), np.array(classes)[np.arange(ROWS) % len(classes)]
    encoder, features = features_of(values, y, target_type="classes")
    n_shares = 1 if len(classes) == 2 else len(classes)
    assert features.shape == (ROWS, n_shares + 1)  # with the number of rows
    shares = encoder.transform(pd.DataFrame({"x": values}))[:, :n_shares]
    assert (abs(shares) < 1).all() and np.ptp(shares, axis=0).all()
    if len(classes) > 2:
        np.testing.assert_allclose(shares.sum(1), 0, atol=1e-12)  # rounding of a sum


def test_levels_that_determine_y_have_finite_features(random):
    """A level with one row has no row in the other folds: its statistics are 0 / 0."""
    level = np.array([f"l{i}" for i in range(13)])[np.arange(ROWS) % 13].tolist()
    level[-2:] = ["single", "alone"]
    y = np.array([hash_of(text) for text in level])
    for target_type in ("continuous", "classes"):
        _, features = features_of(level, y, target_type=target_type)
        assert np.isfinite(features).all()
        assert len(features) == ROWS


def hash_of(text):
    """A number that the level determines."""
    return float(sum(map(ord, text)) % 3)


def test_later_rows_without_a_level_of_the_first_fit(random):
    """Its statistics are the same as for a level without rows: zero."""
    values, y = np.array(many_levels(random)), random.standard_normal(ROWS)
    encoder, _ = features_of(values.tolist(), y)
    absent = values == values[0]
    later, weights = pd.DataFrame({"x": values[~absent]}), np.ones((~absent).sum())
    [(again, _)] = encoder.with_statistics_of(later, y[~absent], [weights])
    new = again.transform(pd.DataFrame({"x": [values[0]]}))
    assert new[0, 0] == 0


def test_folds_without_a_class_have_its_share(random):
    values, y = many_levels(random), np.array(["a", "b", "c"])[np.arange(ROWS) % 3]
    y[0] = "single"
    encoder, features = features_of(values, y, target_type="classes")
    weights = [np.ones(ROWS), (np.arange(ROWS) > 9).astype(float)]
    frame = pd.DataFrame({"x": values})
    for fitted, of_fold in encoder.with_statistics_of(frame, y, weights):
        assert of_fold.shape == features.shape
        assert fitted.transform(frame).shape == features.shape


def test_classes_of_weight_zero_do_not_count(random):
    """They have no share, as without their rows."""
    values = many_levels(random)
    y = np.array(["a", "b", "c"])[np.arange(ROWS) % 3]
    weights = np.where(y == "c", 0.0, 1.0)
    _, features = features_of(values, y, weights, target_type="classes")
    used = weights > 0
    kept = [value for value, u in zip(values, used, strict=True) if u]
    _, without = features_of(kept, y[used], target_type="classes")
    np.testing.assert_array_equal(features[used], without)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"sample_weight": [-1.0] * ROWS}, "Negative values"),
        ({"sample_weight": [np.nan] * ROWS}, "NaN"),
        ({"sample_weight": [1.0]}, "shape"),
        ({"y": np.ones(3)}, "inconsistent numbers of samples"),
        ({"y": np.full(ROWS, np.nan)}, "y contains NaN"),
        ({"X": pd.DataFrame(index=range(ROWS))}, "at least one column"),
        ({"target_type": "numbers"}, "`target_type` must be"),
    ],
)
def test_bad_arguments(random, arguments, match):
    encoder = TableEncoder(target_type=arguments.pop("target_type", "continuous"))
    X = arguments.pop("X", pd.DataFrame({"x": many_levels(random)}))
    with pytest.raises(ValueError, match=match):
        encoder.fit(X, **{"y": random.standard_normal(ROWS)} | arguments)


def test_precision_is_the_table_s():
    X = np.array([[1.0, 2.0], [3.0, np.nan], [2.0, 1.0]] * 6, dtype=np.float32)
    for dtype in (np.float32, np.float64):
        table = X.astype(dtype)
        assert TableEncoder().fit_transform(table).dtype == dtype
        frame = pd.DataFrame(table)
        assert TableEncoder().fit(frame).transform(frame).dtype == dtype


# ---- weights


def test_weight_2_is_a_repeated_row(random):
    """For medians, indicators, levels and dates."""
    columns = mixed_columns(random, ROWS)
    del columns["city"]
    table, new = in_pandas(columns), in_pandas(mixed_columns(random, NEW))
    weights = random.integers(0, 3, ROWS)
    rows = np.repeat(np.arange(ROWS), weights)
    weighted = TableEncoder().fit(table, sample_weight=weights)
    repeated = TableEncoder().fit(table.iloc[rows])
    assert [c[:-1] for c in weighted.columns_] == [c[:-1] for c in repeated.columns_]
    new = new.drop(columns="city")
    with warnings.catch_warnings():  # New dates may be later than all others.
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(weighted.transform(new), repeated.transform(new))


def test_weight_0_is_a_removed_row(random):
    table = in_pandas(mixed_columns(random, ROWS))
    y, weights = random.standard_normal(ROWS), np.ones(ROWS)
    weights[::4] = 0
    weighted, removed = TableEncoder(), TableEncoder()
    actual = weighted.fit_transform(table, y, weights)[weights > 0]
    np.testing.assert_array_equal(
        actual, removed.fit_transform(table[weights > 0], y[weights > 0])
    )
    assert weighted.columns_ == removed.columns_


# ---- dropped columns


def test_columns_of_nothing_to_learn_are_dropped_with_one_warning():
    rows = 40
    table = pd.DataFrame(
        {
            "size": np.arange(rows),
            "one": "x",
            "same": 3.0,
            "nothing": None,
            "id": [chr(0x4E00 + i) for i in range(rows)],  # no common text
            "note": [None] * rows,
        }
    )
    with pytest.warns(UserWarning) as caught:
        features = TableEncoder().fit_transform(table, np.arange(rows))
    assert features.shape == (rows, 1)
    [message] = [str(w.message) for w in caught if "dropped" in str(w.message)]
    assert "5 columns of X were dropped" in message
    for name in ("one", "same", "nothing", "id", "note"):
        assert f"'{name}' (" in message


# ---- named categories


@pytest.mark.parametrize(
    "named",
    [
        *(["code"], "code", ("code",), ["code", 1], [1], 1, [-2], np.array([1])),
        *([False, True, False], np.array([False, True, False])),
    ],
)
def test_named_categories(named):
    table = pd.DataFrame({"a": [1.5, 2.5], "code": [7, 9], "c": [True, False]})
    table = pd.concat([table] * 5)
    plain = TableEncoder().fit(table)
    assert [c.kind for c in plain.columns_] == ["number", "number", "boolean"]
    encoder = TableEncoder(categorical_features=named).fit(table)
    assert [c.kind for c in encoder.columns_] == ["number", "category", "boolean"]
    # Also as floats and text.
    expected = encoder.transform(table)
    for dtype in (float, str, "Int64"):
        new = table.astype({"code": dtype})
        np.testing.assert_array_equal(encoder.transform(new), expected)


def test_categories_named_by_levels_of_names():
    table = pd.DataFrame([[7, "a"], [9, "b"]] * 5)
    table.columns = pd.MultiIndex.from_tuples([("code", 1), ("code", 2)])
    for named in ([("code", 1)], ("code", 1), [0]):
        encoder = TableEncoder(categorical_features=named).fit(table)
        assert [c.kind for c in encoder.columns_] == ["category", "category"]
        assert_equal_transforms(loads(dumps(encoder)), encoder, table)


def assert_equal_transforms(actual, expected, table):
    np.testing.assert_array_equal(actual.transform(table), expected.transform(table))


def test_names_of_no_column_are_refused():
    table = pd.DataFrame({"a": [1.5, 2.5]})
    for named in (["b"], [1], "b"):
        with pytest.raises(
            ValueError, match=r"must be names or indices.*The columns are"
        ):
            TableEncoder(categorical_features=named).fit(table)
    with pytest.raises(ValueError, match=r"one value per column, 1; got 2"):
        TableEncoder(categorical_features=[True, False]).fit(table)


# ---- names and shapes of new tables


def test_new_columns_are_checked_as_in_scikit_learn():
    table = pd.DataFrame({"a": [1.5, 2.5], "b": ["x", "y"]})
    encoder = TableEncoder().fit(table)
    with pytest.raises(ValueError, match="names should match"):
        encoder.transform(table[["b", "a"]])
    with pytest.raises(ValueError, match="names should match"):
        encoder.transform(table[["a"]])
    with pytest.raises(ValueError, match="names should match"):
        encoder.transform(table.assign(c=1))
    with pytest.raises(ValueError, match="X has 1 features"):
        encoder.transform([[1.5]])
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        encoder.transform([1.5, "x"])


def test_derived_names_of_two_columns_may_be_equal():
    table = pd.DataFrame(
        {"a=x": [1.5, 2.5] * 6, "a": ["x", "y"] * 6, "": [3, None] * 6}
    )
    features = TableEncoder().fit_transform(table)
    np.testing.assert_array_equal(features[:2], [[1.5, 1, 0], [2.5, 0, 1]])


def test_warning_of_missing_values_that_the_fit_had_none_of():
    encoder, _ = features_of([1.0, 2.0, 6.0])
    with pytest.warns(UserWarning, match="missing values in `fit`: 'x'"):
        features = encoder.transform(pd.DataFrame({"x": [None, 4.0]}))
    np.testing.assert_array_equal(features[:, 0], [2, 4])


def test_infinity_is_refused_with_the_name_of_the_column():
    message = r"infinity or a value too large in column 'x'. Replace it by NaN"
    with pytest.raises(ValueError, match=message):
        features_of([1.0, np.inf, None])
    encoder, _ = features_of([1.0, 2.0, None])
    with pytest.raises(ValueError, match=message):
        encoder.transform(pd.DataFrame({"x": [-np.inf]}))


def test_one_new_row_and_none(random):
    """A row alone has the features that it has among others."""
    table = in_pandas(mixed_columns(random, ROWS))
    encoder = TableEncoder().fit(table, random.standard_normal(ROWS))
    features = encoder.transform(table)
    for row in (0, 13, ROWS - 1):
        np.testing.assert_array_equal(
            encoder.transform(table.iloc[[row]]), features[[row]]
        )
    assert encoder.transform(table[:0]).shape == (0, features.shape[1])


@pytest.mark.parametrize("n_levels", [3, 20])
def test_only_unseen_levels_warn(n_levels):
    """Of few and of many levels; the message has the column and examples."""
    levels = [f"level {i % n_levels}" for i in range(200)]
    table = pd.DataFrame({"color": levels, "size": range(200)})
    encoder = TableEncoder().fit(table, np.arange(200) % n_levels)
    new = table[:3].assign(color=["Level 0", None, "Level 1"])
    message = r"'color' \(such as 'Level 0'; in `fit`: 'level 0'.*SKB304"
    with pytest.warns(UserWarning, match=message):
        encoder.transform(new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.transform(new.assign(color=["Level 0", "level 2", "Level 1"]))
        encoder.transform(new[:1])
        encoder.transform(new.assign(color=[None] * 3))


def test_new_levels_that_are_expected_do_not_warn(random):
    """Names of rows, without y or few, and levels whose text predicts y."""
    names = [f"name {i}" for i in range(40)]
    towns = [f"{place} {i:02}" for i in range(20) for place in ("north", "south")]
    for column, y in (
        (names, None),
        (names[:8], np.arange(8)),
        (["none"] * 20 + names, random.standard_normal(60)),
        (np.repeat(towns, 5), np.tile(np.repeat([0.0, 5.0], 5), 20)),
    ):
        encoder = TableEncoder().fit(pd.DataFrame({"x": column}), y)
        assert encoder.get_feature_names_out().size
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            encoder.transform(pd.DataFrame({"x": ["north 77", "south 77"]}))


def test_durations_and_numbers_do_not_replace_each_other():
    """Their units can differ; missing values have none."""
    pd = pytest.importorskip("pandas")
    days = pd.DataFrame({"t": np.arange(9), "c": ["a", "b", "c"] * 3})
    for unit in ("s", "D"):
        durations = days.assign(t=pd.to_timedelta(days["t"], unit))
        encoder = TableEncoder().fit(durations)
        with pytest.raises(ValueError, match="must contain durations, as in `fit`; "):
            encoder.transform(days)
        for other in (durations.astype({"t": object}), durations.to_numpy(object)):
            features = encoder.transform(other)
            np.testing.assert_array_equal(features, encoder.transform(durations))
        encoder = TableEncoder().fit(days)
        with pytest.raises(ValueError, match="must contain numbers, as in `fit`; got"):
            encoder.transform(durations)
        with pytest.warns(UserWarning, match="SKB304"):
            encoder.transform(durations.assign(t=durations["t"] * np.nan))


@pytest.mark.parametrize("n_large", [10, 30])
def test_unseen_level_has_the_spread_over_rows(seed, n_large):
    """Many levels with one row, whose posterior means are near zero, do not matter.

    With equal shares of the levels the spread would be at most three quarters of it.
    """
    pd = pytest.importorskip("pandas")
    random = np.random.default_rng([seed, 57])
    index = np.repeat(np.arange(n_large + 300), [100] * n_large + [1] * 300)
    names = np.array([f"{random.integers(10**9):x}" for _ in range(n_large + 300)])
    y = random.normal(size=len(names))[index] + 1.5 * random.normal(size=len(index))
    encoder = TableEncoder().fit(pd.DataFrame({"name": names[index]}), y)
    column = next(c for c in encoder._columns if c.uses_y)
    place = {level: i for i, level in enumerate(column.levels)}
    means = column.level_features[[place[name] for name in names[index]]]
    spread = column.spreads[-1] * column.substitutes.std(0)
    # The substitutes are quantiles, without the tails; the means are centred by rows.
    assert 0.8 < spread.item() / means.std() < 1.15
