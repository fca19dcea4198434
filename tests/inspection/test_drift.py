"""The drift monitor: false alarms, alarms, and scikit-learn's conventions."""

import datetime
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from scipy.stats import (
    binom,
    chi2_contingency,
    fisher_exact,
    ks_2samp,
    mannwhitneyu,
    norm,
)
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import KFold, RepeatedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    load,
    save,
)
from skbayesnn.inspection import DriftMonitor
from skbayesnn.inspection._columns import (
    MAX_COMPARED_LEVELS,
    MAX_VALUES,
    _p_of_counts,
    column_drift,
    one_way,
    training_columns,
)

ROWS, COLUMNS = 300, 4


@pytest.fixture
def table(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(2 * ROWS, COLUMNS))
    y = np.sin(X[:, 0]) + X[:, 1] + 0.2 * random.normal(size=2 * ROWS)
    return X, y


def _model(seed):
    return AnchoredEnsembleRegressor(
        max_iter=40, device="cpu", dtype="float64", random_state=seed
    )


def test_false_alarms_and_alarms(table, seed):
    X, y = table
    monitor = DriftMonitor(_model(seed), false_alarm_rate=0.1).fit(X[:ROWS], y[:ROWS])
    assert (monitor.uncertainty_ > -monitor.offset_).mean() == pytest.approx(
        0.1, abs=1 / ROWS
    )
    # The threshold comes from 300 rows and the share from 300 others; each has a
    # standard error of 0.017.
    alarms = (monitor.predict(X[ROWS:]) == -1).mean()
    assert 0.01 < alarms < 0.1 + 6 * np.hypot(0.017, 0.017)
    assert monitor.p_value(X[ROWS:]) > 1e-5
    moved = X[ROWS:] + np.array([0.0, 6.0, 0.0, 0.0])
    assert (monitor.predict(moved) == -1).mean() > 0.6
    assert monitor.p_value(moved) < 1e-20


def test_conventions(table, seed):
    X, y = table
    model = _model(seed).set_params(n_estimators=3)
    monitor = DriftMonitor(model, cv=KFold(3)).fit(X[:ROWS], y[:ROWS])
    score = monitor.score_samples(X)
    np.testing.assert_array_equal(
        score,
        -np.mean(
            [m.predict_uncertainty(X, "epistemic") for m in monitor.estimators_], axis=0
        ),
    )
    np.testing.assert_array_equal(monitor.decision_function(X), score - monitor.offset_)
    np.testing.assert_array_equal(
        monitor.predict(X), np.where(score < monitor.offset_, -1, 1)
    )
    # Folds in order: each row is predicted by the model that held it out.
    third = ROWS // 3
    left_out = clone(model).fit(X[third:ROWS], y[third:ROWS])
    np.testing.assert_allclose(
        monitor.uncertainty_[:third],
        left_out.predict_uncertainty(X[:third], "epistemic"),
    )
    np.testing.assert_array_equal(
        clone(monitor).fit_predict(X[:ROWS], y[:ROWS]), monitor.predict(X[:ROWS])
    )


@pytest.fixture
def short_defaults(monkeypatch):
    """Default estimators train for a few epochs."""
    for network in (AnchoredEnsembleRegressor, AnchoredEnsembleClassifier):
        monkeypatch.setitem(network.__init__.__kwdefaults__, "max_iter", 5)


@pytest.mark.usefixtures("short_defaults")
def test_default_estimator_depends_on_the_type_of_y(table, seed):
    X, y = table
    labels = np.where(y[:60] > 0, "up", "down")
    monitor = DriftMonitor(cv=2, false_alarm_rate=0.1, random_state=seed).fit(
        X[:60], labels
    )
    assert isinstance(monitor.estimators_[0], AnchoredEnsembleClassifier)
    kinds = [
        model.predict_uncertainty(X, "mutual_information")
        for model in monitor.estimators_
    ]
    np.testing.assert_array_equal(monitor.score_samples(X), -np.mean(kinds, axis=0))
    monitor.fit(X[:60], y[:60])
    assert isinstance(monitor.estimators_[1], AnchoredEnsembleRegressor)


def test_pipelines(table, seed):
    X, y = table
    network = MCDropoutClassifier(max_iter=20, device="cpu", random_state=seed)
    model = make_pipeline(StandardScaler(), network)
    monitor = DriftMonitor(model, cv=2, kind="entropy", false_alarm_rate=0.1)
    monitor.fit(X[:60], y[:60] > 0)
    assert set(monitor.predict(X)) <= {-1, 1}


@pytest.mark.parametrize("rate", [0.0, 1.5, "often"])
def test_invalid_false_alarm_rates(table, rate):
    with pytest.raises((TypeError, ValueError), match="false_alarm_rate"):
        DriftMonitor(false_alarm_rate=rate).fit(*table)


def test_several_targets(table, seed):
    X, y = table
    monitor = DriftMonitor(_model(seed), cv=2)
    with pytest.raises(ValueError, match="of one target"):
        monitor.fit(X[:40], np.stack([y, -y], 1)[:40])
    assert not hasattr(monitor, "estimators_")


def test_estimator_without_uncertainty(table):
    estimator = AnchoredEnsembleRegressor(n_estimators=1, max_iter=5, device="cpu")
    with pytest.raises(ValueError, match="differ from row to row; got 0 for all"):
        DriftMonitor(estimator, cv=2).fit(table[0][:40], table[1][:40])


class _Distance(BaseEstimator):
    """Uncertainty that grows with the distance from the training rows.

    It is skewed, and its level differs between folds.
    """

    def __init__(self, every=9):
        self.every = every

    def fit(self, X, y):
        self.known_ = X[:: self.every]
        self.level_ = 1 + y[:3].sum() ** 2
        return self

    def predict_uncertainty(self, X, kind):
        return self.level_ * cdist(X, self.known_).min(axis=1) ** 4


@pytest.fixture
def distances(monkeypatch):
    """A monitor without training costs."""
    monkeypatch.setattr(
        "skbayesnn.inspection._drift.predict_uncertainty",
        lambda model, X, kind: model.predict_uncertainty(X, kind),
    )
    return DriftMonitor(_Distance(), kind="distance", false_alarm_rate=0.05)


@pytest.mark.parametrize(
    ("cv", "every", "n_known", "n_new"),
    [
        (5, 9, 100, 50),
        (KFold(2), 9, 100, 6),
        (RepeatedKFold(n_splits=3, n_repeats=2, random_state=0), 9, 100, 50),
        # Every row is a neighbour: rows of two folds lower each other's uncertainty.
        (5, 1, 60, 150),
    ],
)
def test_size_and_power(distances, cv, every, n_known, n_new, seed):
    """Without drift, p-values below a level are not more frequent than the level."""
    random = np.random.default_rng(seed)
    monitor = clone(distances).set_params(cv=cv, estimator__every=every)
    n_tables = 300
    p, p_moved = np.empty((2, n_tables))
    for i in range(n_tables):
        X = random.normal(size=(n_known + n_new, 3))
        monitor.fit(X[:n_known], random.normal(size=n_known))
        p[i] = monitor.p_value(X[n_known:])
        p_moved[i] = monitor.p_value(X[n_known:] + np.eye(3)[0] * 3)
    for level in (0.01, 0.05, 0.2):
        # For an exact test one seed in a million has more.
        assert (p < level).sum() <= binom.isf(1e-6, n_tables, level)
    # The test need not be exact, but it must reject sometimes.
    assert (p < 0.5).mean() > 0.3
    assert (p_moved < 0.05).mean() > 0.8


def test_one_fold_gives_the_mann_whitney_test(distances, table):
    X, y = table
    train, test = np.arange(60), np.arange(60, 97)
    monitor = distances.set_params(cv=[(train, test)]).fit(X[:97], y[:97])
    expected = mannwhitneyu(
        monitor.estimators_[0].predict_uncertainty(X[97:110], "distance"),
        monitor.uncertainty_,
        alternative="greater",
        method="asymptotic",
    )
    assert monitor.p_value(X[97:110]) == pytest.approx(expected.pvalue, rel=1e-9)


def test_rows_held_out_twice_count_once(distances, table):
    """Repeated folds add no information."""
    X, y = table
    folds = list(KFold(3).split(X[:50]))
    once, twice = (
        clone(distances).set_params(cv=cv).fit(X[:50], y[:50])
        for cv in (folds, folds + folds)
    )
    # Equal up to the continuity correction, half of one of 30 x 50 pairs: less than
    # 0.01 in units of the standard deviation, which is above sqrt(1 / 50 / 12).
    z_once, z_twice = (norm.isf(monitor.p_value(X[50:80])) for monitor in (once, twice))
    assert z_twice == pytest.approx(z_once, abs=0.01)
    np.testing.assert_array_equal(
        np.sort(np.concatenate(twice.held_out_)), np.repeat(np.arange(50), 2)
    )


def test_too_few_rows_for_the_rate(distances, table):
    """One of 20 exchangeable rows is the most uncertain with probability .05."""
    X, y = table
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor = clone(distances).fit(X[:19], y[:19])
    assert monitor.offset_ == -monitor.uncertainty_.max()
    message = "=0.05 needs at least 19 held-out rows; got 18. .* 0.053 of"
    with pytest.warns(UserWarning, match=message):
        monitor.fit(X[:18], y[:18])
    assert monitor.offset_ == -monitor.uncertainty_.max()


def _clock(random, n_rows):
    """A frame with a growing time, a falling column, and two other columns."""
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(
        {
            "when": pandas.date_range("2024", periods=n_rows, freq="h", tz="UTC"),
            "value": random.normal(size=n_rows),
            "left": np.arange(n_rows)[::-1] / 2,
            "site": np.arange(n_rows) * 3 // n_rows,
        }
    )


class _OneColumn(_Distance):
    """Uncertainty that depends on one column of a frame."""

    def fit(self, X, y):
        return super().fit(X[["value"]].to_numpy(), y)

    def predict_uncertainty(self, X, kind):
        return super().predict_uncertainty(X[["value"]].to_numpy(), kind)


def test_columns_that_only_move_forward_warn(distances, seed):
    """The warning of the fit names them."""
    frame = _clock(np.random.default_rng(seed), 90)
    monitor = clone(distances).set_params(estimator=_OneColumn())
    y = frame["value"].to_numpy()
    with pytest.warns(UserWarning, match="does: 'when', 'left'. New rows"):
        monitor.fit(frame[:60], y[:60])
    assert one_way(frame[:60]) == ["when", "left"]
    directions = [column.direction for column in monitor.training_columns_]
    assert directions == [1, 0, -1, 0]


def test_columns_that_move_both_ways_do_not_warn(distances, table):
    """Shuffled rows, groups of rows and constant columns are not times."""
    X, y = table
    X = np.column_stack([X[:, 0], np.repeat([0, 1, 2], 200), np.ones(600), X[:, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor = clone(distances).fit(X[:60], y[:60])
        assert [c.direction for c in monitor.training_columns_] == [0] * 4
        monitor.p_value(X[60:] + 100)
    rising = np.sort(X[:60], axis=0)
    with pytest.warns(UserWarning, match="does: 0, 3. New rows"):
        clone(distances).fit(rising, y[:60])


def test_statistics_of_columns_are_computed_once(distances, table, monkeypatch):
    """The check for times before the models are fitted does not need them."""
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return training_columns(*arguments)

    monkeypatch.setattr("skbayesnn.inspection._drift.training_columns", counted)
    distances.fit(table[0][:60], table[1][:60])
    assert len(calls) == 1


@pytest.mark.usefixtures("short_defaults")
def test_errors_name_the_monitor(table):
    """With a default estimator, which the user did not choose."""
    X, y = table
    X, y = X[:60], y[:60]
    times = np.arange(60).astype("datetime64[D]")
    with pytest.raises(ValueError, match="hold numbers for DriftMonitor; got times"):
        DriftMonitor().fit(X, times)
    with pytest.raises(ValueError, match="numbers for AnchoredEnsembleRegressor; got"):
        DriftMonitor(_model(0)).fit(X, times)
    monitor = DriftMonitor(cv=2, false_alarm_rate=0.1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="3 features, but DriftMonitor is expecting 4"):
        monitor.predict(X[:, :3])


# ---- each column


def _mixed_rows(random, n_rows):
    """Columns of each kind, with missing values, as a dict of lists."""
    day = datetime.datetime(2024, 1, 1)
    hours = random.permutation(n_rows)
    return {
        "price": np.where(random.random(n_rows) < 0.1, np.nan, random.random(n_rows)),
        "open": random.random(n_rows) < 0.4,
        "colour": random.choice(["red", "green", "blue", None], n_rows).tolist(),
        "when": [day + datetime.timedelta(hours=int(h)) for h in hours],
        "waited": [
            datetime.timedelta(minutes=float(m)) for m in 90 * random.random(n_rows)
        ],
        "row": np.arange(n_rows),
    }


@pytest.fixture(params=["pandas", "polars", "pyarrow"])
def frame_of(request):
    library = pytest.importorskip(request.param)
    return library.table if request.param == "pyarrow" else library.DataFrame


@pytest.fixture
def described(frame_of, seed):
    """Statistics of 120 rows, and the rows as a dict."""
    rows = _mixed_rows(np.random.default_rng(seed), 120)
    return training_columns(frame_of(rows)), rows


def test_columns_are_compared_by_tests_of_their_kind(described, frame_of, seed):
    """P-values are SciPy's; the smaller of two is doubled."""
    columns, old = described
    new = _mixed_rows(np.random.default_rng(seed + 1), 70)
    report = {c.column: c for c in column_drift(frame_of(new), columns)}
    assert list(report) == list(old)
    price = [rows["price"][~np.isnan(rows["price"])] for rows in (old, new)]
    counts = [[len(p), n - len(p)] for p, n in zip(price, (120, 70), strict=True)]
    p_values = ks_2samp(*price, method="exact").pvalue, fisher_exact(counts).pvalue
    assert report["price"].p_value == pytest.approx(min(1, 2 * min(p_values)))
    waited = [[w.total_seconds() for w in rows["waited"]] for rows in (old, new)]
    expected = ks_2samp(*waited, method="exact").pvalue
    assert report["waited"].p_value == pytest.approx(expected)
    shares = [[sum(r["open"]), n - sum(r["open"])] for r, n in ((old, 120), (new, 70))]
    assert report["open"].p_value == pytest.approx(fisher_exact(shares).pvalue)
    colours = [
        [rows["colour"].count(c) for c in ("red", "green", "blue", None)]
        for rows in (old, new)
    ]
    expected = chi2_contingency(colours, correction=False).pvalue
    assert report["colour"].p_value == pytest.approx(expected)
    assert np.isnan([report["when"].p_value, report["row"].p_value]).all()
    assert "only rises" in report["row"].change


def test_changes_are_described(described, frame_of):
    columns, old = described
    year = datetime.timedelta(days=366)
    new = {
        "price": [None] * 30 + [0.5] * 30,
        "open": [True] * 60,
        "colour": ["violet", "red"] * 30,
        "when": [when + year for when in old["when"][:60]],
        "waited": [datetime.timedelta(hours=5)] * 60,
        "row": np.full(60, 500),
    }
    report = {c.column: c for c in column_drift(frame_of(new), columns)}
    for name in ("price", "open", "colour", "waited"):
        assert report[name].p_value < 1e-6
    assert report["price"].new_missing_share == 0.5
    assert report["price"].missing_share == np.isnan(old["price"]).mean()
    assert "missing 50%" in report["price"].change
    assert "'True' 100% of the rows" in report["open"].change
    assert report["colour"].new_levels == ("violet",)
    assert "50% have new levels: 'violet'" in report["colour"].change
    assert report["when"].change.endswith("100% are later")
    assert "median 5 hours" in report["waited"].change


def test_p_values_of_shares_are_valid(seed):
    """Of equal shares, at most about 5 % are below 0.05, also with rare levels."""
    random = np.random.default_rng(seed)
    shares = np.array([0.6, 0.3] + [0.01] * 10)
    n_tests = 400
    p_values = [
        _p_of_counts(np.stack([random.multinomial(n, shares) for n in (90, 40)], 1))
        for _ in range(n_tests)
    ]
    # Four standard deviations of a binomial share; the test is approximate.
    assert np.mean(np.array(p_values) < 0.05) < 0.05 + 4 * np.sqrt(
        0.05 * 0.95 / n_tests
    )


def test_a_monitor_reports_its_columns(distances, table):
    X, y = table
    monitor = clone(distances).fit(X[:60], y[:60])
    stuck = X[60:120].copy()
    stuck[:, 1] = np.median(X[:, 1])
    report = monitor.column_report(stuck)
    assert [c.column for c in report] == list(range(X.shape[1]))
    assert np.argmin([c.p_value for c in report]) == 1
    with pytest.raises(ValueError, match=f"the {X.shape[1]} columns of `fit`; got 1"):
        monitor.column_report(X[:, :1])
    with pytest.raises(TypeError, match=r"dense arrays .*; got csr_array. Give some"):
        monitor.column_report(sparse.csr_array(X))
    with pytest.raises(TypeError, match=r"compared if `fit` got .*; it got a sparse"):
        column_drift(X, training_columns(sparse.csr_array(X)))


def test_columns_of_text_are_not_compared(seed):
    text = [f"the item number {i} arrived" for i in range(40)]
    columns = training_columns(np.array([text, range(40)], dtype=object).T)
    free, number = column_drift(np.array([text[:9], range(9)], dtype=object).T, columns)
    assert (free.kind, number.kind) == ("other", "number")
    assert np.isnan(free.p_value) and "not compared" in free.change


def test_lists_with_text_have_numbers(seed):
    """They are read as arrays of objects, in which numbers stay numbers."""
    random = np.random.default_rng(seed)
    rows = [
        [level, float(x)] for level, x in zip("ab" * 20, random.random(40), strict=True)
    ]
    columns = training_columns(rows)
    assert [column.kind for column in columns] == ["category", "number"]
    assert columns[1].values.tolist() == sorted(x for _, x in rows)


def test_names_of_columns_are_compared(frame_of, seed):
    """Other names and another order are refused; an array has no names."""
    random = np.random.default_rng(seed)
    rows = {name: random.random(30) + i for i, name in enumerate("abc")}
    columns = training_columns(frame_of(rows))
    for other, difference in (
        ("acb", "'c' instead of 'b' at position 1"),
        ("abd", "'d' instead of 'c' at position 2"),
    ):
        X = frame_of({name: rows.get(name, rows["a"]) for name in other})
        with pytest.raises(ValueError, match=f"in the same order; got {difference}"):
            column_drift(X, columns)
    array = np.stack(list(rows.values()), axis=1)
    of_array = training_columns(array)
    for X, expected in ((array, columns), (frame_of(rows), of_array)):
        assert [c.p_value for c in column_drift(X, expected)] == [1.0] * 3


def test_reports_of_infinity_or_no_rows_are_refused(table):
    X, _ = table
    columns = training_columns(X)
    infinite = X[:9].copy()
    infinite[3, 1] = -np.inf
    with pytest.raises(ValueError, match=r"infinity .* in column 1"):
        column_drift(infinite, columns)
    with pytest.raises(ValueError, match=r"infinity .* in column 1"):
        training_columns(infinite)
    with pytest.raises(ValueError, match="at least one row; got none"):
        column_drift(X[:0], columns)


def test_many_values_are_thinned_to_quantiles(seed):
    """With the smallest and the largest value; the test is the asymptotic one."""
    random = np.random.default_rng(seed)
    n_rows, n_new = 2 * MAX_VALUES + 37, 53
    X, X_new = random.normal(size=(n_rows, 1)), random.normal(size=(n_new, 1)) + 0.2
    [column] = training_columns(X)
    assert column.n_rows == n_rows and len(column.values) == MAX_VALUES
    assert column.values[[0, -1]].tolist() == [X.min(), X.max()]
    # Ranks are rounded to integers: every value is within half a rank of its quantile.
    ranks = np.searchsorted(np.sort(X[:, 0]), column.values)
    exact = np.linspace(0, n_rows - 1, MAX_VALUES)
    assert np.abs(ranks - exact).max() <= 0.5
    [drift] = column_drift(X_new, [column])
    expected = ks_2samp(column.values, X_new[:, 0], method="asymp").pvalue
    assert drift.p_value == pytest.approx(expected, rel=1e-12)
    # Shares below a value change by at most one rank, and so does the statistic.
    thinned, full = (ks_2samp(v, X_new[:, 0]) for v in (column.values, X[:, 0]))
    assert abs(thinned.statistic - full.statistic) <= 1 / MAX_VALUES + 1e-12


@pytest.mark.parametrize("n_levels", [MAX_COMPARED_LEVELS, MAX_COMPARED_LEVELS + 1])
def test_columns_of_too_many_levels_are_not_compared(n_levels):
    X = np.array([f"c{i}" for i in range(n_levels)], dtype=object)[:, None]
    [column] = training_columns(X)
    is_compared = n_levels <= MAX_COMPARED_LEVELS
    assert column.kind == ("category" if is_compared else "other")
    assert len(column.levels) == len(column.counts) == n_levels * is_compared
    [drift] = column_drift(X[:7], [column])
    assert np.isnan(drift.p_value) == (not is_compared)
    assert ("too many levels" in drift.change) == (not is_compared)


def test_pairs_as_names_of_columns_are_saved(tmp_path):
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    X = pandas.DataFrame(random.normal(size=(60, 3)))
    X.columns = pandas.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    monitor = DriftMonitor(MCDropoutRegressor((4,), max_iter=3, random_state=0), cv=2)
    monitor.fit(X, X.iloc[:, 0].to_numpy())
    save(monitor, tmp_path / "monitor.skb")
    loaded = load(tmp_path / "monitor.skb")
    np.testing.assert_array_equal(loaded.score_samples(X), monitor.score_samples(X))
