"""Networks of tables with categories, dates and missing values."""

import datetime
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BBBClassifier,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
)
from skbayesnn.preprocessing import TableEncoder
from tests.helpers.bad_input import BOTH

pytest.importorskip("hypothesis")
from hypothesis import given, settings
from hypothesis import strategies as st

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

TINY = {
    "max_iter": 2,
    "hidden_layer_sizes": (5,),
    "n_draws": 7,
    "device": "cpu",
    "dtype": "float64",
    "random_state": 0,
}
# Two epochs are too few, and new dates may be later than all others.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(the network|predicted worse|are later):UserWarning"
)
ROWS, NEW = 59, 6
LEVELS = ["low", "mid", "high"]
EVERY_ESTIMATOR = [
    MCDropoutRegressor,
    MCDropoutClassifier,
    BBBClassifier,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
    AnchoredEnsembleRegressor,
]


@pytest.fixture
def random(seed):
    return np.random.default_rng([seed, 41])


def mixed_table(random, rows=ROWS):
    """A pandas table with a column of every kind, and values missing in most."""
    table = pd.DataFrame(
        {
            "size": random.standard_normal(rows),
            "count": random.integers(0, 9, rows),
            "colour": random.choice(["red", "blue", "green"], rows),
            "city": [f"city {i}" for i in random.permutation(rows) % 13],
            "grade": pd.Categorical(
                random.choice(LEVELS, rows), categories=LEVELS, ordered=True
            ),
            "day": pd.Timestamp(2020, 1, 1)
            + pd.to_timedelta(random.integers(0, 20_000, rows), unit="h"),
        },
        index=random.permutation(rows),
    )
    for name in table.columns.drop("count"):
        table.loc[table.index[random.permutation(rows)[: rows // 6]], name] = None
    return table


def y_of(kind, random, rows=ROWS):
    labels = np.array(["no", "yes", "maybe"])[np.arange(rows) % 3]
    return (
        labels if kind.__name__.endswith("Classifier") else random.standard_normal(rows)
    )


def prediction(model, X):
    return np.stack(list(model.predict_uncertainty(X, "all").values()))


@pytest.mark.parametrize("kind", EVERY_ESTIMATOR)
def test_every_estimator_fits_a_mixed_table(random, kind):
    """A fit equals a fit of the encoded columns."""
    X, X_new = mixed_table(random), mixed_table(random, NEW)
    y, is_gp = y_of(kind, random), kind is VariationalGPRegressor
    parameters = {
        k: v for k, v in TINY.items() if k != "hidden_layer_sizes" or not is_gp
    }
    model = kind(**parameters).fit(X, y)
    target_type = "classes" if hasattr(model, "classes_") else "continuous"
    encoder = TableEncoder(target_type=target_type)
    plain = kind(**parameters).fit(encoder.fit_transform(X, y), y)
    actual = prediction(model, X_new)
    np.testing.assert_array_equal(actual, prediction(plain, encoder.transform(X_new)))
    assert np.isfinite(actual).all()
    assert model.table_.columns_ == encoder.columns_
    assert plain.table_ is None
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    assert model.n_features_in_ == 6
    # A refit to numbers forgets the table.
    assert model.fit(X[["count"]], y).table_ is None


@BOTH
def test_named_integers_are_categories(random, kind):
    X = np.column_stack([random.standard_normal(ROWS), np.arange(ROWS) % 3])
    y = y_of(kind, random)
    models = [
        kind(**TINY, categorical_features=named).fit(X, y)
        for named in ([1], [-1], [False, True])
    ]
    text = np.array([[v, f"{w:.0f}"] for v, w in X], dtype=object)
    models.append(kind(**TINY).fit(text, y))
    expected = prediction(models[0], X)
    for model in models:
        assert [c.kind for c in model.table_.columns_] == ["number", "category"]
        np.testing.assert_array_equal(prediction(model, X), expected)
        np.testing.assert_array_equal(prediction(model, text), expected)
    assert kind(**TINY).fit(X, y).table_ is None


@BOTH
def test_errors_name_the_estimator_and_the_column(random, kind):
    X = mixed_table(random)
    model = kind(**TINY).fit(X, y_of(kind, random))
    with pytest.raises(ValueError, match=f"X has 2 features, but {kind.__name__} is"):
        model.predict([[1.0, 2.0]])
    with pytest.raises(
        ValueError, match=r"names should match(.|\n)*now missing:\n- day"
    ):
        model.predict(X.drop(columns="day"))
    with pytest.raises(ValueError, match=r"names should match(.|\n)*at fit time:\n- z"):
        model.predict(X.assign(z=1))
    with pytest.raises(ValueError, match="same order"):
        model.predict(X[X.columns[::-1]])
    with pytest.raises(ValueError, match=r"'count' must contain numbers.*got 'many'"):
        model.predict(X.assign(count="many"))
    with pytest.raises(ValueError, match="at least one row"):
        model.predict(X[:0])
    with pytest.warns(
        UserWarning, match=f"but {kind.__name__} was fitted with feature"
    ):
        model.predict(X.to_numpy())


def test_bad_tables_are_refused_in_fit(random):
    X, y = mixed_table(random), random.standard_normal(ROWS)
    model = MCDropoutRegressor(**TINY)
    with pytest.raises(
        ValueError, match=r"inconsistent numbers of samples: \[59, 58\]"
    ):
        model.fit(X, y[1:])
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        model.fit(X[:0], y[:0])
    with pytest.raises(ValueError, match="'note' contains free text"):
        model.fit(X.assign(note=[f"they called us {i} times" for i in range(ROWS)]), y)
    with pytest.raises(ValueError, match="got list in column 'tags'"):
        model.fit(X.assign(tags=[[1]] * ROWS), y)
    with pytest.raises(ValueError, match=r"infinity .* in column 'count'"):
        model.fit(X.assign(count=np.inf), y)
    for rows, reason in ((ROWS, ""), (1, r".* constant, because n_samples=1\.")):
        with (
            pytest.warns(UserWarning, match="columns of X were dropped"),
            pytest.raises(ValueError, match=f"a column to learn from{reason}"),
        ):
            model.fit(X.assign(one="x")[["one"]][:rows], y[:rows])


def test_columns_that_are_no_categories_take_the_path_of_arrays(random):
    """Also sparse and nullable columns without missing values, tensors and masks."""
    X = random.standard_normal((ROWS, 2))
    frame = pd.DataFrame(X, columns=["a", "b"])
    sparse_frame = frame.astype(pd.SparseDtype(float, 0.0))
    tables = [frame, frame.convert_dtypes(), frame.astype(object), sparse_frame]
    torch = pytest.importorskip("torch")
    tables += [
        pl.DataFrame(frame),
        torch.from_numpy(X),
        np.ma.masked_array(X),
        X.tolist(),
    ]
    y = random.standard_normal(ROWS)
    expected = MCDropoutRegressor(**TINY).fit(X, y).predict(X)
    for table in tables:
        model = MCDropoutRegressor(**TINY).fit(table, y)
        assert model.table_ is None
        # Sparse rows are multiplied in another order.
        np.testing.assert_allclose(model.predict(table), expected, rtol=1e-9)


def test_stream_of_tables(random):
    """Later rows are encoded as the first ones were, also new levels and values."""
    X, y = mixed_table(random), random.standard_normal(ROWS)
    model = MCDropoutRegressor(**TINY).partial_fit(X, y)
    encoder = TableEncoder(target_type="continuous")
    plain = MCDropoutRegressor(**TINY).partial_fit(encoder.fit_transform(X, y), y)
    later = mixed_table(random).assign(colour="new")
    model.partial_fit(later, y)
    plain.partial_fit(encoder.transform(later), y)
    np.testing.assert_array_equal(
        prediction(model, X), prediction(plain, encoder.transform(X))
    )
    assert model.table_.columns_ == encoder.columns_


# ---- any table


def a_column(kind, n_levels):
    """Strategy of values of a column."""
    text = [f"level {i}" for i in range(n_levels)]
    odd = ["", "nan", "missing", "other", "é\n", "1", "1.0"][: n_levels // 2]
    day = datetime.datetime(2021, 3, 28)
    return {
        "number": st.integers(-99, 99).map(lambda v: v / 4),
        "integer": st.integers(0, n_levels),
        "boolean": st.booleans(),
        "category": st.sampled_from(text + odd),
        "date": st.integers(0, 30_000).map(lambda h: day + datetime.timedelta(hours=h)),
        "duration": st.integers(0, 99).map(lambda h: datetime.timedelta(hours=h)),
    }[kind]


KINDS = ["number", "integer", "boolean", "category", "date", "duration"]


@st.composite
def tables(draw):
    """Columns of any kinds, with missing values and any order of the rows."""
    rows = draw(st.integers(16, 40))
    columns = {"always": list(range(rows))}  # Others may be dropped.
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    for j, kind in enumerate(kinds):
        # Few draws per table: the values are pieces of one list.
        values = draw(
            st.lists(a_column(kind, draw(st.integers(1, 16))), min_size=3, max_size=16)
        )
        column = (values * rows)[:rows]
        for i in draw(st.sets(st.integers(0, rows - 1), max_size=8)):
            column[i] = None
        columns[f"{kind}={j}"] = column
    order = draw(st.permutations(range(rows)))
    return {name: [column[i] for i in order] for name, column in columns.items()}


@settings(max_examples=16, deadline=None, database=None, derandomize=True)
@given(columns=tables(), row=st.integers(0, 15), index=st.sampled_from([1, -3, 0]))
def test_any_table(columns, row, index):
    """Finite predictions, the same alone, after pickle and in another library."""
    rows = len(columns["always"])
    frame = pd.DataFrame(columns).set_index(index * np.arange(rows))
    y = np.sin(np.arange(rows, dtype=float))
    with warnings.catch_warnings():
        # Two epochs are too few, and columns of nothing to learn are dropped.
        warnings.simplefilter("ignore")
        model = MCDropoutRegressor(**TINY).fit(frame, y)
        predicted = model.predict(frame)
        assert np.isfinite(predicted).all()
        alone = model.predict(frame.iloc[[row]])
        # One row is multiplied in another order than many.
        np.testing.assert_allclose(alone, predicted[[row]], rtol=1e-9, atol=1e-12)
        copy = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(copy.predict(frame), predicted)
        in_polars = pl.DataFrame(columns, strict=False)
        np.testing.assert_array_equal(model.predict(in_polars), predicted)
        other = clone(model).fit(in_polars, y)
        np.testing.assert_array_equal(other.predict(frame), predicted)
