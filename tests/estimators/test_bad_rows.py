"""Bad rows: NaN and infinity, few or constant rows, targets of the wrong type."""

import re
import warnings

import numpy as np
import pytest
from scipy import sparse

from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._data.validation import check_numbers
from tests.helpers.bad_input import BOTH, KINDS, target
from tests.helpers.checks import Checks
from tests.helpers.posteriors import BBB, MC_DROPOUT, VARIATIONAL

# ---- NaN and infinity


@BOTH
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_in_x(data, assert_refused, fitted, kind, value):
    X = data.X.copy()
    X[7, 2] = value
    message = "Input X contains infinity"
    place = message + r".*Column 2 has infinity in 1 rows, first in row 7\. Replace it"
    assert_refused(kind, X, target(kind, data), ValueError, place)
    # Also with missing values in another column.
    X[3, 1] = np.nan
    for method in ("predict", "predict_uncertainty", "sample_f", "sample_y"):
        with pytest.raises(ValueError, match=message):
            getattr(fitted[kind], method)(X)
    message = r"infinity or a value too large in column 2\. Replace it by NaN"
    assert_refused(kind, X, target(kind, data), ValueError, message)


@BOTH
def test_nan_in_x_of_a_model_of_complete_rows(data, small, fitted, kind):
    """A warning; only the uncertainty of this row changes.

    test_unknown_values.py has exact tests.
    """
    X = data.X_new.copy()
    known = fitted[kind].predict_uncertainty(X)
    X[3, 2] = np.nan
    with pytest.warns(UserWarning, match=r"fewer than five missing values in `fit`: 2"):
        actual = fitted[kind].predict_uncertainty(X)
    others = np.arange(len(X)) != 3
    # Another order of summation.
    np.testing.assert_allclose(actual[others], known[others], rtol=1e-5)
    assert np.isfinite(actual).all()
    assert actual[3] != known[3]
    raw = kind(**small, standardize=False).fit(data.X, target(kind, data))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        raw.predict(X)


@BOTH
def test_masked_values_are_refused(data, small, fitted, kind):
    """The values below a mask are not used."""
    y = target(kind, data)
    masked = np.ma.array(data.X, mask=data.X > 1)
    with pytest.raises(ValueError, match=r"X\.astype\(float\)\.filled\(np\.nan\)"):
        kind(**small).fit(masked, y)
    with pytest.raises(ValueError, match="`X` must not have masked values"):
        fitted[kind].predict(masked)
    with pytest.raises(ValueError, match="`y` must not have masked values; got 3"):
        kind(**small).fit(data.X, np.ma.array(y, mask=np.arange(len(y)) < 3))
    kind(**small).fit(masked.astype(float).filled(np.nan), y)


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_nan_and_infinity_in_y(data, assert_refused, fitted, value, word):
    for y in (data.y.copy(), data.Y.copy()):
        y[5] = value
        assert_refused(MCDropoutRegressor, data.X, y, ValueError, f"y contains {word}")
    with pytest.raises(ValueError, match=f"y contains {word}"):
        fitted[MCDropoutRegressor].log_predictive_density(
            data.X_new, np.full(11, value)
        )
    labels = data.codes.astype(float)
    labels[5] = value
    message = "contains infinity" if word == "infinity" else "a label for every row"
    assert_refused(MCDropoutClassifier, data.X, labels, ValueError, message)


@pytest.mark.parametrize("missing", [np.nan, np.inf, None])
@pytest.mark.parametrize("kind", ["array", "series", "Float64", "frame"])
def test_rows_without_a_target_are_named(data, small, kind, missing):
    """The message has the rows; the code in it removes them."""
    pd = pytest.importorskip("pandas")
    X, y = pd.DataFrame(data.X), data.y.astype(object if missing is None else float)
    X.index += 100
    y[[3, 7]] = missing
    if kind == "Float64":
        y = pd.Series(np.where(np.arange(len(y)) % 4 == 3, 2.0, 1.0), dtype="Float64")
        y[[3, 7]] = missing
    elif kind == "frame":
        y = pd.DataFrame({"u": y, "v": 1.0})
    elif kind == "series":
        y = pd.Series(y)
    for model in (MCDropoutRegressor(**small), BayesianStackingRegressor()):
        with pytest.raises(ValueError, match=r"in 2 of 41 rows, .* 3, 7") as error:
            model.fit(X, y)
    code = re.search(r"keep = (.*), X\[keep\] and y\[keep\]", str(error.value))
    assert (code is None) == (kind == "frame")
    if code is not None:
        keep = eval(code[1], {"y": y, "np": np})
        assert np.flatnonzero(~keep).tolist() == [3, 7]
        MCDropoutRegressor(**small).fit(X[keep], y[keep])


@pytest.mark.parametrize("dtype", [float, "Float64", "double[pyarrow]", object])
def test_names_of_targets_may_repeat(data, dtype):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    y = pd.DataFrame(data.Y[:, :2], columns=["y", "y"]).astype(dtype)
    checked = check_numbers(MCDropoutRegressor(), y)
    np.testing.assert_array_equal(checked, data.Y[:, :2])


def test_dates_in_y():
    """The code in the message makes days of them."""
    pd = pytest.importorskip("pandas")
    days = pd.Series(pd.to_datetime(["2020-01-01", "2020-01-04"]))
    zoned = days.dt.tz_localize("UTC")
    for y in (days.astype(str), days.astype(str).tolist(), days.dt.date, zoned):
        with pytest.raises(ValueError, match="got times, such as '2020-01-01") as error:
            check_numbers(MCDropoutRegressor(), y)
        code = re.search(r"with dates = (.*), then y = (.*)\.$", str(error.value))
        dates = eval(code[1], {"pandas": pd, "y": y})
        assert eval(code[2], {"pandas": pd, "dates": dates}).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ("abc", "single value 'abc'"),
        (5.0, "single value '5.0'"),
        (np.array([], dtype=object), "0 sample"),
        ([np.inf, -np.inf], "got inf in 2 of 2 rows"),
    ],
)
def test_targets_of_odd_shapes_and_sizes(y, message):
    """Errors come without warnings of overflow."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            check_numbers(MCDropoutRegressor(), y)
        assert len(check_numbers(MCDropoutRegressor(), np.full(5, 1e308))) == 5
        with pytest.raises(ValueError, match=r"at most 1e\+140"):
            MCDropoutRegressor().fit(np.ones((2, 1)), [1e308, -1e308])


def test_names_of_columns_must_differ(data, small):
    pd = pytest.importorskip("pandas")
    X = pd.concat([pd.DataFrame(data.X, columns=list("abcd"))] * 2, axis=1)
    message = r"different names; got 'a', 'b', .* X\.loc\[:, ~X\.columns"
    for model in (MCDropoutRegressor(**small), BayesianStackingRegressor()):
        with pytest.raises(ValueError, match=message):
            model.fit(X, data.y)
    fitted = MCDropoutRegressor(**small).fit(X.loc[:, ~X.columns.duplicated()], data.y)
    with pytest.raises(ValueError, match=message):
        fitted.predict(X)


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float64", "string"])
def test_missing_pandas_targets(data, assert_refused, dtype):
    """The error comes without a warning of NumPy's cast."""
    pd = pytest.importorskip("pandas")
    codes = data.codes if dtype != "boolean" else data.codes > 0
    y = pd.Series(codes.astype(str) if dtype == "string" else codes, dtype=dtype)
    y[5] = pd.NA
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        message = (
            "`y` must have a value for every row; got <NA> in 1 of 41|y contains NaN"
        )
        assert_refused(MCDropoutRegressor, data.X, y, ValueError, message)
        message = (
            "`y` must have a label for every row; got .* in 1 rows, first in row 5"
        )
        assert_refused(MCDropoutClassifier, data.X, y, ValueError, message)


# ---- shapes, few rows, and the type of y


def with_nan(X):
    X = X.copy()
    X[7, 2] = np.nan
    return sparse.csr_array(X)


CLASSES = "MCDropoutClassifier needs rows of at least 2 classes; got 1 class"
TEXT = r"`y` must hold numbers for MCDropoutRegressor; got .*the classifiers"
# Estimators, what `fit` gets in place of X, y and weights, and the rule.
REFUSED = [
    (KINDS, lambda X, y: (with_nan(X), y), "X contains NaN"),
    (KINDS, lambda X, y: (X[:0], y[:0]), r"array with 0 sample\(s\).*minimum of 1 is"),
    (KINDS, lambda X, y: (X[:, :0], y), r"0 feature\(s\)"),
    (KINDS, lambda X, y: (X, y[:11]), r"inconsistent numbers of samples: \[41, 11\]"),
    (KINDS, lambda X, y: (X[:, 0], y), "Expected 2D array, got 1D array instead"),
    (KINDS, lambda X, y: (X, np.ones((41, 3, 2))), "dim 3|1d array"),
    (KINDS, lambda X, y: (X, None), "requires y to be passed.*y is None"),
    *[
        (KINDS[:1], lambda X, y, text=text: (X, np.resize(text, 41)), TEXT)
        for labels in (["low"], ["3 m"], ["1", "x"])
        for text in (np.array(labels), np.array(labels, dtype=object))
    ],
    (KINDS[1:], lambda X, y: (X[:1], y[:1]), CLASSES),
    (KINDS[1:], lambda X, y: (X, ["a"] * 41), CLASSES + ": 'a'"),
    (KINDS[1:], lambda X, y: (X, np.ones(41, int)), CLASSES + ": 1"),
    (
        KINDS[1:],
        lambda X, y: (X, y, y == "mid"),
        CLASSES + r": 'mid' \(rows of weight zero do not count\). Add rows",
    ),
    (KINDS[1:], lambda X, y: (X, X[:, 0]), "Unknown label type: continuous"),
    (KINDS[1:], lambda X, y: (X, np.stack([y, y], 1)), "y should be a 1d array"),
]


def test_refused_in_fit(data, assert_refused):
    with Checks() as check:
        for kinds, change, rule in REFUSED:
            for kind in kinds:
                X, y, *weights = change(data.X, target(kind, data))
                with check(f"{kind.__name__}, {rule}"):
                    assert_refused(kind, X, y, ValueError, rule, *weights)


@BOTH
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (with_nan, "X contains NaN"),
        (lambda X: X[:0], "`X` must have at least one row"),
        (lambda X: X[0], "Expected 2D array, got 1D array instead"),
    ],
)
def test_refused_in_predict(data, fitted, kind, change, rule):
    with pytest.raises(ValueError, match=rule):
        fitted[kind].predict(change(data.X))


def test_number_of_targets_changed(data, fitted):
    with pytest.raises(ValueError, match=r"`y` must have the 1 targets .*; got 3"):
        fitted[MCDropoutRegressor].log_predictive_density(data.X_new, data.Y_new)


@pytest.mark.parametrize("y", ["y", "Y"])
@pytest.mark.filterwarnings("ignore:.*constant:UserWarning")
def test_one_row_is_fitted(data, small, y):
    """With a warning, and all predictions are finite."""
    model = MCDropoutRegressor(**small).fit(data.X[:1], getattr(data, y)[:1])
    for value in model.predict_uncertainty(data.X_new, "all").values():
        assert np.isfinite(value).all()
    assert np.isfinite(model.predict(data.X_new)).all()


@pytest.mark.parametrize("with_category", [False, True])
def test_a_row_without_its_table(data, small, with_category):
    """A row of a frame, and rows as dicts; the message has the way out."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(data.X, columns=list("abcd"))
    if with_category:
        frame["kind"] = np.resize(["u", "v"], 41)
    model = MCDropoutRegressor(**small).fit(frame, data.y)
    row = frame.loc[4]
    for rows, kind in (
        (row, "Series"),
        (row.to_dict(), "dict"),
        ([row.to_dict()], "list of dicts"),
    ):
        message = rf"`X` must be a table .*; got a {kind}\. .*X\.loc\[\[i\]\]"
        with pytest.raises(ValueError, match=message):
            model.predict(rows)
        for new in (MCDropoutRegressor(**small), BayesianStackingRegressor()):
            with pytest.raises(ValueError, match=message):
                new.fit(rows, np.ones(len(rows)))
    expected = model.predict(frame.loc[[4]])
    assert model.predict(pd.DataFrame([row.to_dict()])) == expected
    column = pytest.importorskip("polars").Series("a", data.X[:, 0])
    with pytest.raises(ValueError, match=r"got a Series\. .*X\[\[name\]\]"):
        MCDropoutRegressor(**small).fit(column, data.y)


# ---- constant columns and targets


@pytest.mark.parametrize("value", [0.0, 3.0, 1e12])
@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_constant_y(data, small, value, likelihood):
    model = MCDropoutRegressor(likelihood=likelihood, **small)
    with pytest.warns(UserWarning, match=r"y is constant .* noise cannot be estimated"):
        model.fit(data.X, np.full(41, value))
    mean, std = model.predict(data.X_new, return_std=True)
    assert np.isfinite(mean).all() and (std > 0).all()
    assert np.isfinite(model.log_predictive_density(data.X_new, data.y_new)).all()
    # One constant target among others.
    Y = data.Y.copy()
    Y[:, 1] = value
    with pytest.warns(UserWarning, match="y is constant"):
        model.fit(data.X, Y)
    assert np.isfinite(model.predict(data.X_new)).all()


@pytest.mark.parametrize("kind", [MC_DROPOUT[1], BBB[1], VARIATIONAL[1]])
def test_outlier_in_a_column(data, small, kind):
    """The reference model takes log 0 there, which must not warn."""
    X = data.X.copy()
    X[0, 0] = 1e9
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        kind(**small).fit(X, data.labels)


@BOTH
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_constant_columns(data, small, kind, make):
    X = data.X.copy()
    X[:, 1] = 3.0
    X[:, 3] = 0.0
    model = kind(**small)
    with pytest.warns(
        UserWarning, match=r"2 columns .* constant .*\(1, 3\).*Remove them"
    ):
        model.fit(make(X), target(kind, data))
    assert np.isfinite(model.predict_uncertainty(make(data.X_new))).all()


def test_columns_that_are_constant_in_rows_with_weight(data, small):
    X = data.X.copy()
    X[:30, 2] = 1.0
    model = MCDropoutRegressor(**small)
    with pytest.warns(UserWarning, match=r"1 columns .*rows \(2\)"):
        model.fit(X, data.y, sample_weight=np.r_[np.ones(30), np.zeros(11)])


@BOTH
def test_no_warning_without_a_reason(data, small, kind):
    """With enough epochs: after few, predictions vary too little."""
    small = small | {"max_iter": 200}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = kind(**small).fit(data.X, target(kind, data))
        model.predict_uncertainty(data.X_new, kind="all")
        model.log_predictive_density(data.X_new, target(kind, data)[:11])
        model.sample_y(data.X_new, 2)


@BOTH
def test_a_code_for_missing_values(data, small, fitted, kind):
    """A warning in the fit, and one at prediction if the fit has not seen it."""
    X = data.X.copy()
    X[:6, 2] = -999.0
    message = r"code for missing values: -999 in column 2 .*SKB303"
    with pytest.warns(UserWarning, match=message):
        kind(**small).fit(X, target(kind, data))
    with pytest.warns(UserWarning, match=message):
        fitted[kind].predict(X)


# ---- the kind of y


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "timedelta64[D]"])
@pytest.mark.parametrize("kind", [MCDropoutRegressor, BayesianStackingRegressor])
def test_times_as_targets_are_refused(data, kind, dtype):
    """Converted to values, they would be nanoseconds since 1970."""
    message = (
        r"`y` must hold numbers for .*; got times, .*(1D|np.timedelta64\(1, 'D)'\)"
    )
    y = np.arange(41).astype(dtype)
    with pytest.raises(ValueError, match=message):
        kind().fit(data.X, y)
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match=message):
        kind().fit(data.X, pd.Series(y))
    with pytest.raises(ValueError, match=r"must hold numbers for .*got times, such"):
        days = pd.date_range("2020-01-01", periods=41, tz="UTC")
        kind().fit(data.X, pd.Series(days))
    with pytest.raises(ValueError, match=r"must hold real numbers .*as two targets"):
        kind().fit(data.X, y.astype(float) * 1j)


@pytest.mark.parametrize("kind", [MCDropoutRegressor, BayesianStackingRegressor])
def test_text_as_target_is_refused(data, kind):
    for y in (np.full(41, "a"), np.full(41, "a", dtype=object)):
        with pytest.raises(ValueError, match=r"`y` must hold numbers .* classifiers"):
            kind().fit(data.X, y)


@pytest.mark.parametrize("ordered", [False, True])
def test_missing_labels_of_pyarrow(data, ordered):
    """NumPy converts missing values of its categories to one of the categories."""
    pyarrow = pytest.importorskip("pyarrow")
    y = pyarrow.array(["a", "b"] * 20 + [None]).dictionary_encode()
    y = pyarrow.DictionaryArray.from_arrays(y.indices, y.dictionary, ordered=ordered)
    message = "label for every row; got None in 1 rows, first in row 40"
    for labels in y, pyarrow.chunked_array([y[:7], y[7:]]):
        with pytest.raises(ValueError, match=message):
            MCDropoutClassifier(max_iter=2).fit(data.X, labels)


@pytest.mark.parametrize("kind", [MCDropoutClassifier, BayesianStackingClassifier])
@pytest.mark.parametrize("missing", [None, float("nan"), "pandas.NA"])
@pytest.mark.parametrize("labels", [["a", "b"], [1, 2]])
def test_missing_labels(data, kind, missing, labels):
    if missing == "pandas.NA":
        missing = pytest.importorskip("pandas").NA
    y = np.array(labels, dtype=object)[np.arange(41) % 2]
    y[5] = y[8] = missing
    with pytest.raises(ValueError, match=r"label for every row; .* 2 rows, first in"):
        kind().fit(data.X, y)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
        np.array(["a", np.nan]),
        ["a", np.nan],
    ],
    ids=["NaT", "text array", "list"],
)
def test_missing_labels_that_become_a_class(y):
    """NumPy makes text of NaN, and NaT differs from itself."""
    with pytest.raises(ValueError, match=r"every row; .* first in row 1"):
        MCDropoutClassifier().fit(np.ones((2, 1)), y)


@pytest.mark.parametrize("kind", [MCDropoutClassifier, BayesianStackingClassifier])
def test_labels_of_several_kinds(data, kind):
    y = np.array(["a", 1], dtype=object)[np.arange(41) % 2]
    with pytest.raises(ValueError, match=r"labels of one kind.*; got int and str"):
        kind().fit(data.X, y)


@pytest.mark.parametrize(
    ("labels", "place"), [(["1.5", "yes"], "'yes' in row 1"), (["1,5", "2"], "'1,5'")]
)
def test_text_among_values_of_y(data, labels, place):
    y = np.resize(np.array(labels, dtype=object), 41)
    message = rf"got {place}.* as 1234\.5, .*Series\(y\).* BayesianStackingClassifier"
    with pytest.raises(ValueError, match=message):
        MCDropoutRegressor().fit(data.X, y)
