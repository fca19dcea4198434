"""Every entry point takes frames with categories, dates and missing values.

Results of each entry point are equal for the same table as a pandas, polars or pyarrow
frame, whatever the types of its columns.
"""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_validate
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline

from skbayesnn import (
    Abstainer,
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    ConformalClassifier,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    crps,
    log_predictive_density,
    predict_interval,
    predict_quantile,
    predict_uncertainty,
    predictive_cdf,
    sample_f,
    sample_y,
    scoring,
)
from skbayesnn.inspection import DriftMonitor, attributions
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
    cross_val_predict_uncertainty,
)
from skbayesnn.preprocessing import TableEncoder
from tests.helpers.seed import SEED

polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

ROWS = 66
NETWORK = {
    "hidden_layer_sizes": (5,),
    "max_iter": 2,
    "n_draws": 3,
    "dropout": 0.1,
    "length_scale": 1.0,
    "device": "cpu",
    "dtype": "float64",
    "random_state": SEED,
}
SIZES = ["S", "M", "L"]
REGRESSOR = MCDropoutRegressor(tau=1.0, **NETWORK)
CLASSIFIER = MCDropoutClassifier(**NETWORK)


def _columns():
    """Columns of all kinds, most with missing values; "shop" has many levels."""
    random = np.random.default_rng([SEED, 3])
    day = datetime.datetime(2024, 1, 1)

    def gaps(values):
        missing = random.random(ROWS) < 0.1
        return [None if m else v for m, v in zip(missing, values, strict=True)]

    hours, minutes = random.integers(0, 9000, ROWS), random.integers(0, 900, ROWS)
    return {
        "price": gaps(random.normal(size=ROWS).tolist()),
        "count": random.integers(0, 9, ROWS).tolist(),
        "open": gaps((random.random(ROWS) < 0.5).tolist()),
        "colour": gaps(random.choice(["red", "green", "blue"], ROWS).tolist()),
        "size": random.choice(SIZES, ROWS).tolist(),
        "day": gaps([day + datetime.timedelta(hours=int(h)) for h in hours]),
        "waited": gaps([datetime.timedelta(minutes=int(m)) for m in minutes]),
        # Half of the rows in two shops, and each of the others in its own.
        "shop": random.permutation(
            [f"shop {i % 4 if i % 4 < 2 else i}" for i in range(ROWS)]
        ).tolist(),
    }


def _frames():
    columns = _columns()
    frame = pd.DataFrame(columns)
    frame["price"] = frame["price"].astype(float)
    frame["size"] = pd.Categorical(frame["size"], SIZES, ordered=True)
    frame["shop"] = frame["shop"].astype("category")
    other_index = frame.convert_dtypes().set_axis(np.arange(ROWS)[::-1] * 3)
    arrow = pyarrow.Table.from_pandas(frame, preserve_index=False)
    return {
        "pandas": frame,
        "pandas with nullable types and another index": other_index,
        "polars": polars.DataFrame(columns, strict=False).with_columns(
            size=polars.Series(columns["size"], dtype=polars.Enum(SIZES)),
            shop=polars.Series(columns["shop"], dtype=polars.Categorical),
        ),
        "pyarrow": arrow,
    }


FRAMES = _frames()
_random = np.random.default_rng([SEED, 4])
Y = _random.normal(size=ROWS) + np.nan_to_num(FRAMES["pandas"]["price"].to_numpy())
# Every label is in every fold.
LABELS = np.array(["no", "yes", "perhaps"])[np.arange(ROWS) % 3]
WEIGHTS = _random.uniform(0.5, 2, ROWS)
GROUPS = np.arange(ROWS) % 6


# ---- entry points: functions of a frame that return arrays

ENTRY_POINTS = {}


def entry_point(function):
    """Add a function to the table of entry points."""
    ENTRY_POINTS[function.__name__] = function
    return function


@entry_point
def functions(X):
    model = make_pipeline("passthrough", REGRESSOR).fit(X, Y)
    return (
        predict_interval(model, X),
        predict_quantile(model, X, 0.3),
        predict_uncertainty(model, X),
        predictive_cdf(model, X, Y),
        log_predictive_density(model, X, Y),
        crps(model, X, Y),
        sample_f(model, X),
        sample_y(model, X),
    )


@entry_point
def calibrated(X):
    model = CalibratedUncertaintyRegressor(REGRESSOR, cv=3)
    return model.fit(X, Y, sample_weight=WEIGHTS).predict(X, return_std=True)


@entry_point
def calibrated_in_groups(X):
    model = CalibratedUncertaintyRegressor(
        REGRESSOR, cv=GroupKFold(3), method="isotonic"
    )
    return model.fit(X, Y, groups=GROUPS).predict_interval(X)


@entry_point
def conformal_split(X):
    model = ConformalRegressor(REGRESSOR, random_state=0).fit(X, Y)
    return model.predict_interval(X, 0.5)


@entry_point
def conformal_cv(X):
    model = ConformalRegressor(REGRESSOR, method="cv+", cv=3)
    return model.fit(X, Y, sample_weight=WEIGHTS).predict_interval(X, 0.5)


@entry_point
def conformal_frozen(X):
    frozen = FrozenEstimator(clone(REGRESSOR).fit(X, Y))
    return ConformalRegressor(frozen).fit(X, Y).predict_interval(X, 0.5)


@entry_point
def conformal_sets(X):
    model = ConformalClassifier(CLASSIFIER, random_state=0).fit(X, LABELS)
    return model.predict_set(X, 0.5)


@entry_point
def abstainer(X):
    model = Abstainer(CLASSIFIER, target_error=0.6, cv=3).fit(X, LABELS)
    report = model.report(X, LABELS, sample_weight=WEIGHTS)
    return model.accepts(X), list(report.values()), model.score(X, LABELS)


@entry_point
def out_of_fold(X):
    params = {"sample_weight": WEIGHTS}
    return cross_val_predict_uncertainty(REGRESSOR, X, Y, cv=3, params=params)


@entry_point
def out_of_group(X):
    return cross_val_predict_uncertainty(
        REGRESSOR, X, Y, cv=GroupKFold(3), groups=GROUPS, method="crps"
    )


@entry_point
def transformed_target(X):
    model = TransformedTargetRegressor(REGRESSOR, func=np.sinh, inverse_func=np.arcsinh)
    return predict_interval(model.fit(X, Y), X)


@entry_point
def multi_output(X):
    model = MultiOutputRegressor(REGRESSOR).fit(X, np.stack([Y, -Y], 1))
    return predict_interval(model, X)


@entry_point
def grid_search(X):
    search = BatchedGridSearchCV(
        REGRESSOR, {"tau": [0.1, 1.0]}, cv=3, return_train_score=True
    )
    search.fit(X, Y, sample_weight=WEIGHTS)
    results = search.cv_results_
    scores = results["mean_test_score"], results["mean_train_score"]
    return *scores, search.predict_interval(X)


@entry_point
def random_search(X):
    search = BatchedRandomizedSearchCV(
        CLASSIFIER,
        {"dropout": [0.1, 0.2]},
        n_iter=2,
        cv=3,
        scoring={"density": scoring.log_density_scorer, "accuracy": "accuracy"},
        refit="density",
        random_state=0,
    )
    search.fit(X, LABELS)
    return search.cv_results_["mean_test_density"], search.predict_proba(X)


@entry_point
def search_of_scikit_learn(X):
    search = GridSearchCV(
        REGRESSOR, {"tau": [0.1, 1.0]}, cv=3, scoring=scoring.neg_crps_scorer
    )
    return search.fit(X, Y).cv_results_["mean_test_score"]


@entry_point
def cross_validation(X):
    scorer = scoring.log_density_scorer
    return cross_validate(CLASSIFIER, X, LABELS, cv=3, scoring=scorer)["test_score"]


@entry_point
def scorers(X):
    regressor, classifier = clone(REGRESSOR).fit(X, Y), clone(CLASSIFIER)
    classifier.fit(X, LABELS)
    with_new_label = np.where(np.arange(ROWS) < 2, "new", LABELS)
    names = [n for n in scoring.__all__ if n not in ("Scorer", "ood_auroc_scorer")]
    every = [getattr(scoring, name) for name in names]
    of_classes = scoring.neg_brier_scorer
    scores = [
        scorer(regressor, X, Y, sample_weight=WEIGHTS)
        for scorer in (*every, scoring.ood_auroc_scorer(X))
        if scorer is not of_classes
    ]
    scores.append(of_classes(classifier, X, LABELS))
    return *scores, scoring.log_density_scorer(classifier, X, with_new_label)


@entry_point
def drift(X):
    monitor = DriftMonitor(REGRESSOR, cv=3, false_alarm_rate=0.1).fit(X, Y)
    report = monitor.column_report(X)
    assert [c.column for c in report] == list(FRAMES["pandas"].columns)
    assert "date" in [c.kind for c in report]
    missing = [c.new_missing_share for c in report]
    return monitor.uncertainty_, monitor.p_value(X), monitor.predict(X), missing


@entry_point
def reasons(X):
    model = clone(REGRESSOR).fit(X, Y)
    result = attributions(model, X, background=X, of="epistemic", n_permutations=3)
    assert result.feature_names == list(FRAMES["pandas"].columns)
    return result.values, result.standard_errors


@entry_point
def stack(X):
    other = clone(REGRESSOR).set_params(dropout=0.3)
    model = BayesianStackingRegressor([("a", REGRESSOR), ("b", other)], cv=3)
    model.set_params(random_state=0).fit(X, Y, sample_weight=WEIGHTS)
    return model.predict_interval(X), model.predict_uncertainty(X, "epistemic")


@entry_point
def stack_of_classifiers(X):
    model = BayesianStackingClassifier(
        [
            ("alone", CLASSIFIER),
            ("calibrated", make_pipeline("passthrough", CLASSIFIER)),
        ],
        cv=3,
        random_state=0,
    )
    return model.fit(X, LABELS).predict_proba(X)


@entry_point
def warm_start(X):
    model = clone(REGRESSOR).set_params(warm_start=True).fit(X, Y)
    return model.fit(X, Y[::-1]).predict(X)


@entry_point
def partial_fit(X):
    model = clone(CLASSIFIER)
    for _ in range(2):
        model.partial_fit(X, LABELS, classes=np.unique(LABELS))
    return model.predict_proba(X)


@entry_point
def mean_weights(X):
    return clone(REGRESSOR).fit(X, Y).predict(X, method="mean_weights")


@entry_point
def unknown_values(X):
    """Levels that `fit` has not seen, and new missing values."""
    half = ROWS // 2
    first = X.slice(0, half) if hasattr(X, "slice") else X[:half]
    model = clone(REGRESSOR).fit(first, Y[:half])
    return model.predict_interval(X), model.crps(X, Y)


@entry_point
def encoder_in_a_pipeline(X):
    model = make_pipeline(TableEncoder(), REGRESSOR).fit(X, Y)
    return predict_interval(model, X)


def _numbers(result) -> list[np.ndarray]:
    parts = result if isinstance(result, tuple) else (result,)
    return [np.asarray(part, dtype=np.float64) for part in parts]


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_frame_gives_the_same_result(name):
    """Up to rounding of sums in another order."""
    offenders, expected = {}, None
    for kind, X in FRAMES.items():
        try:
            with warnings.catch_warnings():
                # With so few epochs the networks explain little.
                warnings.simplefilter("ignore")
                actual = _numbers(ENTRY_POINTS[name](X))
            expected = actual if expected is None else expected
            for one, other in zip(actual, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)
        except Exception as error:
            offenders[kind] = f"{type(error).__name__}: {error}"
    assert offenders == {}


def test_predictions_convert_frames_and_not_each_column(monkeypatch):
    """A conversion takes a third of the time of one row; a frame has 8 columns."""
    import narwhals.stable.v2 as narwhals

    models = {name: clone(REGRESSOR).fit(X, Y) for name, X in FRAMES.items()}
    calls, from_native = [], narwhals.from_native
    monkeypatch.setattr(
        narwhals, "from_native", lambda *a, **k: calls.append(1) or from_native(*a, **k)
    )
    for name, X in FRAMES.items():
        calls.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models[name].predict(X[:3])
        assert len(calls) <= 2, name


def test_arrays_with_nan_or_objects():
    """Equal frames of the same columns without names."""
    frame = FRAMES["pandas"][["price", "count", "colour", "waited"]]
    for columns, dtype in ((frame.columns[:2], float), (frame.columns, object)):
        X = frame[columns]
        for name in ("calibrated", "conformal_cv", "grid_search", "out_of_fold"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                pairs = zip(
                    _numbers(ENTRY_POINTS[name](X)),
                    _numbers(ENTRY_POINTS[name](X.to_numpy(dtype))),
                    strict=True,
                )
            for expected, actual in pairs:
                np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-9)


# ---- folds


class _KeepEncoders:
    """A scorer that keeps the encoder of every fold."""

    def __init__(self):
        self.encoders = []

    def __call__(self, estimator, X, y):
        self.encoders.append(estimator.table_)
        return 0.0


def _of_search(X, y, cv):
    scorer = _KeepEncoders()
    BatchedGridSearchCV(
        REGRESSOR, {"tau": [0.1, 1.0]}, cv=cv, scoring=scorer, refit=False
    ).fit(X, y)
    return scorer.encoders


def _of_conformal(X, y, cv):
    model = ConformalRegressor(REGRESSOR, method="cv+", cv=cv).fit(X, y)
    return [member.table_ for member in model.estimators_]


def _of_monitor(X, y, cv):
    monitor = DriftMonitor(REGRESSOR, cv=cv, false_alarm_rate=0.1).fit(X, y)
    return [member.table_ for member in monitor.estimators_]


@pytest.mark.parametrize("encoders_of", [_of_search, _of_conformal, _of_monitor])
def test_encoders_of_folds_do_not_see_held_out_rows(encoders_of):
    """Neither their y, in the means by level, nor their values."""
    X = FRAMES["pandas"]
    folds = list(KFold(3, shuffle=True, random_state=SEED).split(X))
    _, held_out = folds[0]
    other_y = Y.copy()
    other_y[held_out] += 7 * np.arange(len(held_out))
    other_X = X.copy()
    other_X.loc[held_out, "price"] = 50.0
    other_X.loc[held_out, "colour"] = "violet"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, after = encoders_of(X, Y, folds), encoders_of(other_X, other_y, folds)
        # The first encoder is of the first fold. The last one is of another fold, which
        # is trained on the changed rows.
        first, last = (
            [encoders[i].transform(X) for encoders in (before, after)] for i in (0, -1)
        )
    assert "mean of y by level" in [c.encoding for c in before[0].columns_]
    np.testing.assert_array_equal(*first)
    assert last[0].shape != last[1].shape or not np.allclose(*last)
