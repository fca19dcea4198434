"""A call that fits or predicts with many networks warns once."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skbayesnn import (
    Abstainer,
    AnchoredEnsembleRegressor,
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    NeighbourRegressor,
    crps,
    predict_interval,
)
from skbayesnn._runtime import silence_warning, warn_once, warn_once_per_call
from skbayesnn.estimators._training_data import warn_of_codes_in_table
from skbayesnn.inspection import DriftMonitor, attributions
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    cross_val_predict_uncertainty,
)
from skbayesnn.plotting import (
    PredictionIntervalDisplay,
    RiskCoverageDisplay,
    UncertaintyDecompositionDisplay,
)
from tests.helpers.seed import SEED

ROWS = 40
SMALL = {
    "hidden_layer_sizes": (4,),
    "max_iter": 3,
    "n_draws": 5,
    "device": "cpu",
    "random_state": SEED,
}
RANDOM = np.random.default_rng([SEED, 17])
X = RANDOM.standard_normal((ROWS, 4))
Y = X[:, 0] + 0.2 * RANDOM.standard_normal(ROWS)


def messages(call, *rows):
    """The call's warnings, except those about its training."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        call(*rows)
    texts = [str(warning.message) for warning in warned]
    parts = "columns of X are constant", "far outside", "some rows"
    return [text for text in texts if any(part in text for part in parts)]


def fitted(model, X=X, y=Y):
    with warnings.catch_warnings():
        # With so few epochs the networks explain little.
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def test_warning_is_given_once_per_outermost_call():
    @warn_once_per_call
    def inner():
        warn_once("SKB999", "rows", "some rows")

    @warn_once_per_call
    def outer():
        inner()
        inner()
        warn_once("SKB999", "cold", "some rows are cold")

    @warn_once_per_call
    def silent():
        silence_warning("rows")
        inner()

    rows, cold = "some rows [SKB999]", "some rows are cold [SKB999]"
    assert messages(outer) == [rows, cold]
    assert messages(lambda: (inner(), inner())) == [rows] * 2
    assert messages(lambda: warn_once("SKB999", "rows", "some rows")) == [rows]
    assert messages(silent) == []
    assert messages(inner) == [rows]


def test_call_ends_with_an_error():
    @warn_once_per_call
    def broken():
        warn_once("SKB999", "rows", "some rows")
        raise ValueError

    for _ in range(2):
        with pytest.warns(UserWarning, match="some rows"), pytest.raises(ValueError):
            broken()


NETWORK = MCDropoutRegressor(**SMALL)
FITS = {
    "network": NETWORK.fit,
    "monitor": DriftMonitor(
        AnchoredEnsembleRegressor(**SMALL), false_alarm_rate=0.1
    ).fit,
    "search": BatchedGridSearchCV(NETWORK, {"tau": [1.0, 2.0]}, cv=3).fit,
    "calibrated": CalibratedUncertaintyRegressor(NETWORK, cv=3).fit,
    "conformal": ConformalRegressor(NETWORK, method="cv+", cv=3).fit,
    "abstainer": Abstainer(NETWORK, target_error=0.9, tolerance=9.0, cv=3).fit,
    "stack": BayesianStackingRegressor(max_iter=2, random_state=SEED).fit,
    "out of fold": lambda X, y: cross_val_predict_uncertainty(NETWORK, X, y, cv=3),
}


@pytest.mark.parametrize("name", FITS)
def test_constant_columns_are_named_once(name):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["age", "income", "unit", "zone"])
    frame["unit"], frame["zone"] = 7.0, 0.0
    [message] = messages(FITS[name], frame, Y)
    assert (
        "2 columns of X are constant in the training rows ('unit', 'zone')" in message
    )


def test_constant_columns_without_names():
    rows = X.copy()
    rows[:, [1, 3]] = 2.0
    for values in (rows, sparse.csr_array(rows)):
        [message] = messages(NETWORK.fit, values, Y)
        assert "(1, 3)" in message


def test_new_values_in_a_constant_column_raise_the_uncertainty():
    """The prior decides there: draws from the prior differ, so the spread grows."""
    rows, changed = X.copy(), X.copy()
    rows[:, 2], changed[:, 2] = 0.0, 5.0
    model = fitted(AnchoredEnsembleRegressor(max_iter=50, random_state=SEED), rows)
    before = model.predict_uncertainty(rows, "epistemic")
    assert np.median(model.predict_uncertainty(changed, "epistemic") / before) > 2


MODELS = {
    "network": NETWORK,
    "pipeline": make_pipeline(FunctionTransformer(), NETWORK),
    "conformal": ConformalRegressor(NETWORK, method="cv+", cv=3),
    "calibrated": CalibratedUncertaintyRegressor(NETWORK, cv=3),
    "stack": BayesianStackingRegressor(max_iter=2, random_state=SEED),
    "stack of pipelines": BayesianStackingRegressor(
        [("one", make_pipeline(StandardScaler(), NETWORK)), ("two", NETWORK)],
        random_state=SEED,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_far_rows_are_reported_once_per_call(name):
    """One value of 1e9 where all others are of order one."""
    model = fitted(MODELS[name])
    far = X[:5].copy()
    far[3, 1] = 1e9
    for call in (lambda rows: predict_interval(model, rows, 0.5), model.predict):
        [message] = messages(call, far)
        assert "in column 1 of row 3 is " in message
        assert messages(call, X) == []


def test_pictures_and_attributions_warn_once():
    """They predict several times."""
    pytest.importorskip("matplotlib")
    model = fitted(NETWORK)
    far = X[:6].copy()
    far[3, 1] = 1e9
    for call in (
        lambda rows: attributions(model, rows, background=X),
        lambda rows: RiskCoverageDisplay.from_estimator(model, rows, Y[:6]),
        lambda rows: PredictionIntervalDisplay.from_estimator(model, rows, Y[:6]),
        lambda rows: UncertaintyDecompositionDisplay.from_estimator(model, rows),
    ):
        [message] = messages(call, far)
        assert "in column 1 of row 3 is " in message
        assert messages(call, X[:6]) == []


def test_far_rows_are_reported_by_classifiers():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["age", "income", "unit", "zone"])
    far = frame.copy()
    far.loc[6, "unit"] = -1e6
    for model in (
        MCDropoutClassifier(**SMALL),
        BayesianStackingClassifier(max_iter=2, random_state=SEED),
    ):
        fitted(model, frame, Y > 0)
        for call in (model.predict, model.predict_proba, model.predict_uncertainty):
            [message] = messages(call, far)
            assert "-1e+06 in column 'unit' of row 6" in message
            assert messages(call, frame) == []


def test_outlier_in_the_training_rows_is_not_reported():
    """A stack does not warn about the fold that holds the row out, either."""
    rows = X.copy()
    rows[7, 1] = 1e9
    for model in (NETWORK, BayesianStackingRegressor(max_iter=2, random_state=SEED)):
        assert messages(model.fit, rows, Y) == []
        assert messages(model.predict, rows) == []


def test_levels_of_held_out_groups_are_not_reported():
    """They are new in every fold; new rows with new levels are reported."""
    pandas = pytest.importorskip("pandas")
    groups = np.repeat([f"g{i}" for i in range(8)], ROWS // 8)
    frame = pandas.DataFrame({"group": groups, "a": X[:, 0]})
    folds = GroupKFold(2)
    network = MCDropoutRegressor(**SMALL | {"max_iter": 1})
    model = BayesianStackingRegressor([("net", network)], n_refits=1, cv=2)
    new = frame.assign(group="other")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model.fit(frame, Y, groups=groups)
        CalibratedUncertaintyRegressor(network, cv=folds).fit(frame, Y, groups=groups)
        cross_val_predict_uncertainty(network, frame, Y, groups=groups, cv=folds)
    assert not any("SKB304" in str(warning.message) for warning in warned)
    with pytest.warns(UserWarning, match="all values of a column are levels .*SKB304"):
        model.predict(new)
    frozen = FrozenEstimator(fitted(network, frame))
    with pytest.warns(UserWarning, match="all values of a column are levels .*SKB304"):
        CalibratedUncertaintyRegressor(frozen).fit(new, Y)


def test_rows_of_folds_do_not_warn_as_new_rows():
    """A fold may end before the last dates, or have few of the missing values."""
    pandas = pytest.importorskip("pandas")
    days = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(np.arange(ROWS), "D")
    frame = pandas.DataFrame({"day": days, "a": X[:, 0]})
    frame.loc[ROWS - 5 :, "a"] = np.nan
    network = MCDropoutRegressor(**SMALL | {"max_iter": 1})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        Abstainer(network, target_error=9.0, confidence=None, cv=2).fit(frame, Y)
        CalibratedUncertaintyRegressor(network, cv=2).fit(frame, Y)
        ConformalRegressor(network, random_state=0).fit(frame, Y)
    assert not any("SKB30" in str(warning.message) for warning in warned)


def test_codes_are_counted_in_all_rows():
    """And not in the training rows of a fold, which may have fewer than three."""
    rows = np.abs(X)
    rows[[1, 9, 20], 2] = 99.0
    network = MCDropoutRegressor(**SMALL | {"max_iter": 1})
    pool = [("net", network), ("neighbours", NeighbourRegressor())]
    for model in (
        BayesianStackingRegressor(pool, n_refits=1, random_state=SEED),
        BatchedGridSearchCV(network, {"tau": [1.0]}, cv=2),
        CalibratedUncertaintyRegressor(network, cv=2),
    ):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            model.fit(rows, Y)
        [text] = [m for w in warned if "read as a number" in (m := str(w.message))]
        assert "99 in column 2 (3 rows; " in text


def test_codes_in_given_tables():
    """A stack of given networks checks the columns of numbers, used rows only."""
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    frame = pandas.DataFrame({"kind": ["a", "b"] * 20, "age": 10 + X[:, 0]})
    frame["day"] = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(X[:, 1], "D")
    frame.loc[[1, 9, 20, 30], "age"] = -99.0
    frame.loc[25, "age"] = np.nan
    for table in (frame, polars.from_pandas(frame)):
        with pytest.warns(UserWarning, match=r"-99 in column 'age' \(3 rows;.*SKB303"):
            warn_of_codes_in_table(table, np.arange(ROWS) > 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_codes_in_table(frame, np.arange(ROWS) > 9)
        warn_of_codes_in_table(frame[["kind"]])
        warn_of_codes_in_table(["text"] * ROWS)


def test_rows_are_reported_once_per_fit():
    """Also by other methods, at other lines and with other numbers of rows."""
    pandas = pytest.importorskip("pandas")
    days = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(np.arange(ROWS), "D")
    frame = pandas.DataFrame({"day": days, "a": X[:, 0], "b": X[:, 1]})
    new = frame.assign(day=days + pandas.Timedelta(days=500), a=1e9)
    new.loc[3, "b"] = np.nan
    network = MCDropoutRegressor(**SMALL | {"max_iter": 1})
    stack = BayesianStackingRegressor([("net", network)], n_refits=1, cv=2)

    def codes(action, *calls):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter(action)
            for call in calls:
                call()
        texts = [str(w.message) for w in warned]
        if action == "default":
            kinds = [text[-8:] + text.lstrip("0123456789")[:15] for text in texts]
            assert len(set(kinds)) == len(kinds), "each kind once"
        return {text[-7:-1] for text in texts}, len(texts)

    for model in (network, stack):
        kinds = {"SKB303", "SKB304", "SKB305"}
        for _ in range(2):  # the second fit warns again
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(frame, Y)
                model.predict(new)  # ignored warnings do not count
            calls = [
                partial(model.predict, new[:7]),
                partial(model.predict_interval, new),
                partial(crps, model, new, Y),
            ]
            found, n_once = codes("default", *calls)
            assert found == kinds
        assert codes("always", *calls)[1] > n_once
        loaded = pickle.loads(pickle.dumps(model))
        assert codes("default", partial(loaded.predict, new))[0] == kinds
        for call in calls:
            with warnings.catch_warnings(), pytest.raises(UserWarning, match="SKB30"):
                warnings.simplefilter("error")
                call()


def test_elapsed_days_are_no_codes():
    pandas = pytest.importorskip("pandas")
    days = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(np.arange(ROWS), "D")
    model = fitted(NETWORK, pandas.DataFrame({"day": days, "a": X[:, 0]}))
    new = pandas.DataFrame({"day": [days[0] + pandas.Timedelta(days=999)], "a": [0.0]})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model.predict(new)
    assert [str(w.message)[-8:] for w in warned] == ["[SKB305]"]


def test_dates_a_little_later_do_not_warn():
    """The last date of random rows may be held out."""
    pandas = pytest.importorskip("pandas")
    days = pandas.Timestamp("2020-01-01") + pandas.to_timedelta(np.arange(ROWS), "D")
    model = fitted(NETWORK, pandas.DataFrame({"day": days, "a": X[:, 0]}))

    def predict(share):
        day = days[-1] + share * (days[-1] - days[0])
        model.predict(pandas.DataFrame({"day": [day], "a": [0.0]}))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predict(0.019)
    with pytest.warns(UserWarning, match="SKB305"):
        predict(0.021)
