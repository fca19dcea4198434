"""Predictions along a column and reasons for a row, without the page."""

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    sample_f,
)
from skbayesnn._data.columns import KINDS
from skbayesnn.inspection._columns import reader_of
from tests.helpers.frames import mixed_frame, new_frame
from tests.helpers.linear_gaussian import LinearGaussian
from tests.helpers.seed import SEED

pd = pytest.importorskip("pandas")
exploration = pytest.importorskip("skbayesnn._exploration")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SMALL = {
    "hidden_layer_sizes": (7,),
    "max_iter": 5,
    "n_draws": 4,
    # One row and many rows are predicted by different code, equal up to rounding.
    "dtype": "float64",
    "random_state": 0,
}
POSITIONS = {"size": 0, "flag": 1, "colour": 2, "shop": 3, "grade": 4, "start": 5}


@pytest.fixture(scope="module")
def frame():
    return mixed_frame(90, np.random.default_rng([SEED, 8]))


@pytest.fixture(scope="module")
def y(frame):
    noise = np.random.default_rng([SEED, 9]).standard_normal(len(frame))
    return np.nan_to_num(frame["size"]) + 0.1 * noise


@pytest.fixture(scope="module")
def state(frame, y):
    model = MCDropoutRegressor(**SMALL).fit(frame, y)
    return exploration.Exploration(model, frame, pd.DataFrame({"y": y}))


def test_values_and_cells_of_all_kinds(state, frame):
    """A column of a row's value has this value again, also if it is missing."""
    assert {column.kind for column in state.columns} == {*KINDS}
    for row in range(12):
        series = [c.series([c.at(row)]) for c in state.columns]
        again = pd.concat(series, axis=1)
        again.columns = frame.columns
        reader, old = reader_of(again), reader_of(frame[row : row + 1])
        for j, column in enumerate(state.columns):
            assert pd.isna(again.iloc[0, j]) == pd.isna(frame.iloc[row, j])
            if column.levels:
                assert reader[j].categories().levels == old[j].categories().levels
            elif column.at(row) is not None:
                # Seconds of a date; nine digits of a number.
                found = column.numbers([column.at(row)])[0]
                kind = {"abs": 0.5} if column.kind == "date" else {"rel": 1e-8}
                assert found == pytest.approx(column._values[row], **kind)
        prediction = state.model.predict(again)
        assert np.isfinite(prediction).all()
        assert state.changed(row, state.row(row)).equals(
            frame[row : row + 1].reset_index(drop=True)
        )


@pytest.mark.parametrize("name", ["size", "flag", "shop", "grade"])
def test_curve_equals_predictions_of_changed_rows(state, frame, name):
    row, j = 7, POSITIONS[name]
    changes = {POSITIONS["colour"]: "green"}
    display = state.curve(j, row, changes, 0)
    x = state.columns[j].grid(state.columns[j].at(row))
    assert state.columns[j].at(row) in x and len(set(x)) == len(x)
    X = pd.concat([frame[row : row + 1]] * len(x), ignore_index=True)
    X["colour"] = "green"
    values = [v == "True" for v in x] if name == "flag" else x
    X[name] = pd.Series(values, dtype=None if name == "flag" else X[name].dtype)
    np.testing.assert_allclose(display.prediction, state.model.predict(X))
    interval = state.model.predict_interval(X, (0.5, 0.9))
    np.testing.assert_allclose(display.interval, interval)
    position = x.index(state.columns[j].at(row))
    assert display.ax_.get_lines()[-1].get_xdata() == [display.x[position]] * 2


def test_grids(state, frame):
    """The range without outliers, and values beyond."""
    size = state.columns[0]
    present = frame["size"].dropna()
    grid = size.grid(99.0)
    assert grid[-1] == 99 and grid[0] == pytest.approx(present.min())
    start = state.columns[POSITIONS["start"]]
    grid = start.grid("2031-05-06 07:08")
    assert grid[-1] == "2031-05-06 07:08:00" and grid == sorted(grid)
    assert None in state.columns[POSITIONS["colour"]].grid("red")
    whole = state.columns[6]  # seconds
    assert whole.name == "length (seconds)"
    assert all(v == round(v) for v in whole.grid(None))
    with pytest.raises(ValueError, match=r"date such as 2024-05-31.*31\.12\.2024"):
        start.grid("31.12.2024")


def test_an_outlier_is_not_in_the_picture_of_other_rows():
    column = np.append(np.linspace(0, 1, 60), 1e7)
    X = pd.DataFrame({"a": column, "b": np.arange(61.0) % 7})
    model = MCDropoutRegressor(**SMALL).fit(X, X["b"])
    outlier, other = exploration.Exploration(model, X).columns
    grid = outlier.grid(0.5)
    assert len(grid) > 100 and (grid[0], grid[-1]) == (0, 1)
    assert other.grid(2.0) == [*range(7)]
    assert outlier.at(60) == 1e7 and outlier.grid(1e7)[-1] == 1e7


def test_facts_equal_the_methods(state, frame, y):
    facts, _, _, outside = state.reasons(5, {}, 0)
    X = frame[5:6]
    low, high = state.model.predict_interval(X, 0.9)[0]
    assert facts["mean"] == f"{state.model.predict(X)[0]:.4g}"
    assert facts["90 % interval"] == f"{low:.4g} to {high:.4g}"
    for kind in ("total", "epistemic", "aleatoric"):
        value = state.model.predict_uncertainty(X, kind)[0]
        assert facts[f"{kind} uncertainty"] == f"{value:.4g}"
    values = state.model.predict_uncertainty(frame, "epistemic")
    share = np.mean(values < 0.999 * values[5])
    name = "rows of the table with a smaller epistemic uncertainty"
    assert facts[name] == f"{100 * share:.0f} %"
    assert facts["measured"] == f"{y[5]:.6g}" and outside == []
    assert state.most_uncertain() == np.argsort(-values, kind="stable").tolist()
    # A changed row was not measured.
    assert "measured" not in state.reasons(5, {0: 1.5}, 0)[0]


def test_values_outside_of_the_training_range(state, frame, y):
    """The ranges are from the model's encoder."""
    rows = new_frame(30, np.random.default_rng([SEED, 10]))
    rows["size"] = rows["size"].clip(-1, 1)
    rows.loc[4, "size"] = 55.0
    explored = exploration.Exploration(state.model, rows)
    *_, [level] = explored.reasons(1, {}, 0)
    assert level == "colour = mauve (training rows: never this level)"
    outside = explored.reasons(3, {}, 0)[3]
    for name in ("flag", "shop", "end"):
        assert f"{name} = missing (training rows: never missing)" in outside
    low, high = frame["size"].min(), frame["size"].max()
    found = [t for t in explored.reasons(4, {}, 0)[3] if t.startswith("size = 55")]
    [low_text, high_text] = found[0].split("rows: ")[1].rstrip(")").split(" to ")
    assert float(low_text) == pytest.approx(low, abs=1e-3)
    assert float(high_text) == pytest.approx(high, abs=1e-3)


def test_the_cause_is_the_unusual_column(y):
    X = np.random.default_rng([SEED, 11]).standard_normal((90, 3))
    model = MCDropoutRegressor(**SMALL).fit(X, y)
    state = exploration.Exploration(model, pd.DataFrame(X))
    _, _, causes, outside = state.reasons(11, {1: 40.0}, 0)
    assert causes[0].startswith("column 1 = 40 (+")
    [text] = outside
    assert text.startswith("column 1 = 40 (rows of the table: ")


def test_reasons_of_predictions(state, y):
    """The column that determines y, with the sign of its effect; a class."""
    X = np.random.default_rng([SEED, 15]).standard_normal((90, 3))
    X[4:6, 2] = -6.0, 6.0
    model = LinearGaussian().fit(X, X[:, 2])
    explored = exploration.Exploration(model, pd.DataFrame(X))
    for row, sign in ((4, "\u2212"), (5, "+")):
        _, [text], *_ = explored.reasons(row, {}, 0)
        value = model.predict(X)[row] - model.predict(X).mean()
        assert text.startswith(f"column 2 = {X[row, 2]:.0f} (")
        assert text.endswith(f"({sign}{abs(value):.4g})")
    labels = np.where(X[:, 2] > 0, "high", "low")
    model = MCDropoutClassifier(**SMALL | {"max_iter": 100}).fit(X, labels)
    explored = exploration.Exploration(model, pd.DataFrame(X))
    _, [text, *_], *_ = explored.reasons(5, {}, 0)
    assert text.startswith("column 2 = 6 (+")


def test_classes(frame, y):
    labels = np.array([f"<{k}>" for k in range(7)])
    labels = labels[np.digitize(y, np.quantile(y, np.arange(1, 7) / 7))]
    model = MCDropoutClassifier(**SMALL).fit(frame, labels)
    state = exploration.Exploration(model, frame)
    display = state.curve(2, 3, {}, 0)
    x = state.columns[2].grid(state.columns[2].at(3))
    X = pd.concat([frame[3:4]] * len(x), ignore_index=True)
    X["colour"] = x
    draws = sample_f(model, X, exploration.N_DRAWS)
    np.testing.assert_allclose(display.probability, draws)
    assert display.x_levels == [exploration.shown(level) for level in x]
    top = sorted(np.argsort(-draws.mean((0, 2)))[:5])
    assert display.classes.tolist() == model.classes_[top].tolist()
    facts, *_ = state.reasons(3, {}, 0)
    value = model.predict_uncertainty(frame[3:4], "mutual_information")[0]
    assert facts["mutual information"] == f"{value:.4g}"
    probability = model.predict_proba(frame[3:4])[0]
    for k in np.argsort(-probability)[:5]:
        text = exploration.number_text(probability[k])
        assert facts[f"probability of {model.classes_[k]}"] == text
    # Of two classes, the second.
    model = MCDropoutClassifier(**SMALL).fit(frame, y > 0)
    display = exploration.Exploration(model, frame).curve(0, 3, {}, 0)
    assert display.classes.tolist() == [True]


def test_several_targets(frame, y):
    model = MCDropoutRegressor(**SMALL).fit(frame, np.column_stack([y, -y, y]))
    state = exploration.Exploration(model, frame)
    assert state.n_targets == 3
    display = state.curve(1, 4, {}, 2)
    assert np.isclose(display.prediction, model.predict(frame[4:5])[0, 2]).any()


def test_tables_of_models_without_names(frame, y):
    """Arrays of numbers or objects; the table has names of its columns or not."""
    objects = frame.drop(columns=["end", "length"])
    for X in (frame[["size", "flag"]].astype(float).fillna(0.0), objects):
        array = X.to_numpy()
        model = MCDropoutRegressor(**SMALL).fit(array, y)
        for table in (X, pd.DataFrame(array)):
            state = exploration.Exploration(model, table)
            display = state.curve(1, 3, {}, 0)
            x = state.columns[1].grid(state.columns[1].at(3))
            rows = array[[3] * len(x)].copy()
            rows[:, 1] = [v == "True" if isinstance(v, str) else v for v in x]
            np.testing.assert_allclose(display.prediction, model.predict(rows))


def test_encoders_after_a_transformer_are_not_used():
    """The encoder of the network has ranges of scaled numbers."""
    random = np.random.default_rng([SEED, 14])
    X = pd.DataFrame({"a": random.normal(160, 5, 80), "b": random.normal(size=80)})
    y = X["a"] - X["b"]
    X.loc[:9, "b"] = np.nan
    network = MCDropoutRegressor(**SMALL)
    scaled = make_pipeline(StandardScaler(), network).fit(X, y)
    assert hasattr(scaled[-1], "table_")
    state = exploration.Exploration(scaled, X)
    assert [state.reasons(row, {}, 0)[3] for row in range(20)] == [[]] * 20
    assert state.range_of == "rows of the table"
    # Steps and wrappers that leave X as it is.
    models = [
        make_pipeline("passthrough", network),
        TransformedTargetRegressor(network),
        GridSearchCV(network, {"tau": [1.0]}, cv=2),
    ]
    for model in models:
        state = exploration.Exploration(model.fit(X, y), X[:5])
        assert state.range_of == "training rows"


def test_few_rows_have_the_range_of_the_training_rows(state, frame, y):
    """One row, and rows without any value of a column."""
    rows = frame[3:4].copy()
    rows["size"], rows["start"] = np.nan, pd.NaT
    few = exploration.Exploration(state.model, rows)
    for name in ("size", "start"):
        column = few.columns[POSITIONS[name]]
        low, high = frame[name].min(), frame[name].max()
        ends = [column.grid(None)[i] for i in (0, -1)]
        if name == "start":
            assert pd.to_datetime(ends).tz_localize(low.tz)[0] == low.floor("s")
        else:
            np.testing.assert_allclose(ends, [low, high], atol=1e-3)
        display = few.curve(POSITIONS[name], 0, {}, 0)
        assert len(display.x) > 20 and np.isfinite(display.prediction).all()
        assert few.reasons(0, {POSITIONS[name]: ends[1]}, 0)[3] == []
    [text] = few.reasons(0, {0: 1e3}, 0)[3]
    assert text.startswith("size = 1000 (training rows: ")


def test_columns_that_the_model_does_not_use(frame, y):
    """Of a constant column the encoder has no range."""
    training = frame[["size"]].assign(constant=2.0)
    model = MCDropoutRegressor(**SMALL).fit(training, y)
    rows = training[:4].assign(constant=np.nan)
    texts = exploration.Exploration(model, rows).reasons(1, {}, 0)[3]
    assert texts == ["constant = missing (training rows: never missing)"]
    assert exploration.Exploration(model, rows).reasons(1, {1: 3.0}, 0)[3] == []


def test_pipelines_and_conformal_intervals():
    X = pd.DataFrame(
        np.random.default_rng([SEED, 12]).normal(size=(80, 2)), columns=["a", "b"]
    )
    y = X["a"] + 0.1 * X["b"]
    network = make_pipeline(StandardScaler(), MCDropoutRegressor(**SMALL))
    state = exploration.Exploration(network.fit(X, y), X)
    assert type(state.estimator) is MCDropoutRegressor
    assert len(state.reasons(2, {}, 0)[0]) == 7
    model = ConformalRegressor(MCDropoutRegressor(**SMALL)).fit(X, y)
    with pytest.raises(TypeError, match="its intervals are conformal; use"):
        exploration.Exploration(model, X)


def test_bad_models_and_tables(state, frame, y):
    explore = exploration.Exploration
    with pytest.raises(ValueError, match="it lacks shop, end"):
        explore(state.model, frame.drop(columns=["shop", "end"]))
    with pytest.raises(ValueError, match="at least one row; got none"):
        explore(state.model, frame[:0])
    numbers = np.ones((90, 2)) * y[:, None]
    model = MCDropoutRegressor(**SMALL).fit(numbers, y)
    with pytest.raises(
        ValueError, match=r"the 2 columns of the model.* columns are a, b, c"
    ):
        explore(model, pd.DataFrame(np.ones((3, 3)), columns=list("abc")))
    with pytest.raises(TypeError, match="regressor or classifier; got StandardScaler"):
        explore(StandardScaler().fit(numbers), pd.DataFrame(numbers))
    with pytest.raises(TypeError, match="LinearRegression"):
        explore(LinearRegression().fit(numbers, y), pd.DataFrame(numbers))
