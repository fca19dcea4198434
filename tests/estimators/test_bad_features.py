"""Bad features of X: other columns than in the fit, or of other kinds."""

import datetime

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn import (
    MCDropoutClassifier,
    MCDropoutRegressor,
    dumps,
    loads,
)
from tests.helpers.bad_input import BOTH, target
from tests.helpers.checks import Checks

# ---- features at prediction


METHODS = {
    MCDropoutRegressor: [
        "predict",
        "predict_uncertainty",
        "predict_interval",
        "sample_f",
        "sample_y",
    ],
    MCDropoutClassifier: [
        "predict",
        "predict_proba",
        "predict_log_proba",
        "predict_uncertainty",
        "sample_f",
        "sample_y",
    ],
}


@BOTH
def test_features_changed(data, small, fitted, kind):
    """Their number, names or order, in every method."""
    pd = pytest.importorskip("pandas")
    model = kind(**small).set_params(max_iter=1)
    model.fit(pd.DataFrame(data.X, columns=list("abcd")), target(kind, data))
    fewer = f"X has 3 features, but {kind.__name__} is expecting 4"
    with Checks() as check:
        for method in METHODS[kind]:
            predict = getattr(model, method)
            with check(method):
                with pytest.raises(ValueError, match=fewer):
                    getattr(fitted[kind], method)(data.X_new[:, :3])
                for columns, rule in (
                    ("zbcd", r"feature names should match(.|\n)*- z"),
                    ("bacd", "same order"),
                ):
                    with pytest.raises(ValueError, match=rule):
                        predict(pd.DataFrame(data.X_new, columns=list(columns)))
                with pytest.warns(UserWarning, match="does not have valid feature"):
                    predict(data.X_new)


@BOTH
def test_before_fit(data, kind):
    with Checks() as check:
        for method in METHODS[kind]:
            with check(method):
                with pytest.raises(NotFittedError, match="not fitted yet"):
                    getattr(kind(), method)(data.X_new)
    with pytest.raises(NotFittedError):
        kind().log_predictive_density(data.X_new, target(kind, data)[:11])
    with pytest.raises(NotFittedError):
        kind().score(data.X_new, target(kind, data)[:11])
    for function in (skbayesnn.predict_uncertainty, skbayesnn.sample_y):
        with pytest.raises(NotFittedError):
            function(kind(), data.X_new)
    with pytest.raises(NotFittedError):
        skbayesnn.log_predictive_density(kind(), data.X_new, target(kind, data)[:11])
    if kind is MCDropoutRegressor:
        for function in (skbayesnn.predict_quantile, kind.predict_quantile):
            with pytest.raises(NotFittedError):
                function(kind(), data.X_new, 0.5)
        with pytest.raises(NotFittedError):
            skbayesnn.predict_interval(kind(), data.X_new)


# ---- frames


MIXED = {
    "size": [1.0, 2.0, 3.0, 4.0],
    "colour": ["red", "blue", "red", "green"],
    "count": [1, 2, 3, 4],
    "is new": [True, False, True, True],
}


NOT_NUMERIC = (
    r"every column of X must contain numbers(, as in `fit`)?; got columns of other "
    r"kinds: {}\. (Encode them .*sklearn.compose.ColumnTransformer or skrub|Convert)"
)


def mixed_frame(library):
    """A frame of four rows with numbers, text, booleans and dates."""
    frame_library = pytest.importorskip(library)
    return frame_library.DataFrame(
        MIXED | {"day": [datetime.datetime(2020, 1, d) for d in (1, 2, 3, 4)]}
    )


def names_of(model):
    return list(getattr(model, "feature_names_in_", []))


@BOTH
@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.filterwarnings("ignore:.*constant:UserWarning")
def test_frame_with_text_and_dates(small, kind, library):
    """It is refused by a model of numeric columns, with their names."""
    frame = mixed_frame(library)
    columns = ["size", "count", "is new"]
    model = kind(**small).fit(frame[columns], [0, 1, 0, 1])
    assert model.table_ is None
    with pytest.raises(ValueError, match=NOT_NUMERIC.format("'colour', 'day'")):
        model.predict(frame)
    # Which frames have feature names depends on the version of scikit-learn.
    assert names_of(model) == names_of(StandardScaler().fit(frame[columns]))
    model.fit(frame, [0, 1, 0, 1])
    assert [c.kind for c in model.table_.columns_] == [
        *("number", "category", "number", "boolean", "date")
    ]
    with pytest.raises(ValueError, match=r"X has 3 features|names should match"):
        model.predict(frame[columns])


@BOTH
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_numeric_frame(data, small, fitted, kind, library):
    frame = pytest.importorskip(library).DataFrame(
        dict(zip("abcd", data.X.T, strict=True))
    )
    series = pytest.importorskip(library).Series(target(kind, data))
    model = kind(**small).fit(frame, series)
    np.testing.assert_array_equal(
        model.predict_uncertainty(frame), fitted[kind].predict_uncertainty(data.X)
    )
    assert names_of(model) == names_of(StandardScaler().fit(frame))


@BOTH
def test_text_arrays(data, small, fitted, kind):
    """Text in an array is a category; a model of numbers refuses it."""
    X = data.X.astype(object)
    np.testing.assert_array_equal(
        kind(**small).fit(X, target(kind, data)).predict(data.X_new),
        fitted[kind].predict(data.X_new),
    )
    X[3, 1] = X[7, 2] = "red"
    message = NOT_NUMERIC.format("1, 2")
    for table in (X, X.tolist()):
        with pytest.raises(ValueError, match=message):
            fitted[kind].predict(table)


@pytest.mark.parametrize("text", ["n/a", "3,14", "3.14"])
@pytest.mark.parametrize("with_category", [False, True])
def test_text_in_a_column_of_numbers(data, small, text, with_category):
    """The message has the row, the column, the text and a way to convert it."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data.X, columns=list("abcd"))
    if with_category:
        frame["kind"] = np.resize(["u", "v"], 41)
    model = MCDropoutRegressor(**small).fit(frame, data.y)
    new = frame.astype({"b": object})
    new.loc[6, "b"] = text
    where = f"as in `fit`.*Row 6 of column 'b' has '{text}'"
    if with_category:
        where = f"'b' must .* as in `fit`; got '{text}' in row 6"
    with pytest.raises(ValueError, match=rf"{where}.*1234\.5, .*to_numeric\(column"):
        model.predict(new)


def test_columns_of_times(data, fitted):
    X = np.zeros((41, 4), dtype="datetime64[s]")
    with pytest.raises(ValueError, match=NOT_NUMERIC.format("0, 1, 2, 3")):
        fitted[MCDropoutRegressor].predict(X)


@pytest.mark.parametrize(
    "names",
    [[0, 1], [5, 7], [1, 0], [2.5, 3.5], [("a", 1), ("a", 2)]],
    ids=str,
)
def test_the_order_of_columns_whose_names_are_no_text_counts(names):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(np.random.RandomState(0).normal(size=(20, 2)), columns=names)
    model = MCDropoutRegressor((4,), max_iter=1, random_state=0).fit(X, X.iloc[:, 0])
    model = loads(dumps(model))
    with pytest.raises(ValueError, match=r"in the same order; got .* at position 0"):
        model.predict(X.iloc[:, ::-1])
    assert_array_equal(model.predict(X), model.predict(X.to_numpy()))


def test_other_columns_whose_names_are_no_text_are_refused():
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(np.random.RandomState(0).normal(size=(20, 2)), columns=[1, 2])
    model = MCDropoutRegressor((4,), max_iter=1, random_state=0).fit(X, X[1])
    with pytest.raises(ValueError, match="got 3 instead of 2 at position 1"):
        model.predict(X.rename(columns={2: 3}))
    # The columns of an array have names of positions.
    by_position = pd.DataFrame(X.to_numpy())
    assert_array_equal(model.predict(X), model.predict(by_position))


def test_a_table_without_columns():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="at least one column; got none"):
        MCDropoutRegressor().fit(pandas.DataFrame(index=range(7)), np.arange(7.0))
