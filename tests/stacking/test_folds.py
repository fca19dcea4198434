"""Folds of stacks: defaults, groups, rare classes, rows that are repeated."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.model_selection import GroupKFold, KFold, TimeSeriesSplit
from sklearn.pipeline import make_pipeline

from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor
from skbayesnn._data.validation import Table
from skbayesnn._stacking.candidates import StackData, encode_by_fold
from skbayesnn._stacking.folds import FOLDS_BELOW, make_folds, thinned, warn_of_copies
from skbayesnn.estimators._job import TrainingJob
from skbayesnn.preprocessing import PiecewiseLinearEncoder, TableEncoder
from tests.helpers.stacks import (
    COLUMNS,
    QUICK,
    ROWS,
    classifier,
    regressor,
)


def test_rows_that_are_never_held_out_have_nan_predictions(table):
    X, y = table
    test = np.array([2, 5, 40])
    cv = [(np.setdiff1d(np.arange(ROWS), test), test)]
    model = regressor(cv=cv).fit(X, y)
    assert np.isfinite(model.oof_prediction_[test]).all()
    for values in (model.oof_prediction_, model.oof_std_, model.oof_log_density_):
        assert values.shape == (ROWS,)
        assert np.isnan(np.delete(values, test)).all()


def test_the_held_out_rows_of_a_group_stay_together(table):
    X, y = table
    groups = np.arange(ROWS) % 5
    model = regressor(cv=GroupKFold(3)).fit(X, y, groups=groups)
    same = regressor(cv=list(GroupKFold(3).split(X, y, groups)))
    same.fit(X, y, groups=groups)
    np.testing.assert_array_equal(model.oof_prediction_, same.oof_prediction_)


def folds_of(cv, X, y, groups, weights=None, *, is_classification=False, seed=0):
    data = StackData(X, y, weights, groups=groups)
    return make_folds(cv, data, groups, is_classification=is_classification, seed=seed)


@pytest.mark.parametrize("is_classification", [False, True])
@pytest.mark.parametrize("cv", [None, 3, 7])
def test_default_folds_do_not_split_groups(table, seed, cv, is_classification):
    """By default and with a given number; rows of weight zero are left out."""
    X, y = table
    y = y > 0 if is_classification else y
    random = np.random.default_rng([seed, 45])
    groups = np.append(np.arange(9), random.integers(9, size=ROWS - 9))
    weights = (random.uniform(size=ROWS) > 0.2).astype(float)
    weights[:9] = 1
    arguments = X, y, groups, weights
    splits = folds_of(cv, *arguments, is_classification=is_classification, seed=seed)
    assert len(splits) == (cv or 5)
    for train, test in splits:
        assert not set(groups[train]) & set(groups[test])
        rows = np.sort(np.concatenate([train, test]))
        np.testing.assert_array_equal(rows, np.flatnonzero(weights))
    tests = np.concatenate([test for _, test in splits])
    np.testing.assert_array_equal(np.sort(tests), np.flatnonzero(weights))


def test_default_with_many_rows_holds_out_one_of_five_folds_of_groups(seed):
    X = np.random.default_rng(seed).normal(size=(FOLDS_BELOW, 2))
    groups = np.arange(FOLDS_BELOW) % 50
    [(train, test)] = folds_of(None, X, X[:, 0], groups, seed=seed)
    assert len(set(groups[test])) == 10 and not set(groups[train]) & set(groups[test])
    [_, _] = folds_of(2, X, X[:, 0], groups, seed=seed)
    [(_, other)] = folds_of(None, X, X[:, 0], groups, seed=seed + 1)
    assert set(groups[other]) != set(groups[test])
    # As many folds as groups, if these are fewer.
    assert len(folds_of(None, X[:60], X[:60, 0], np.arange(60) % 4)) == 4


@pytest.mark.parametrize("fit", ["folds", "stack"])
def test_too_few_groups(table, fit):
    X, y = table
    call = (
        folds_of
        if fit == "folds"
        else lambda cv, *rows: regressor(cv=cv).fit(*rows[:2], groups=rows[2])
    )
    with pytest.raises(ValueError, match=r"between 2 and the number of groups, 5; got"):
        call(6, X, y, np.arange(ROWS) % 5)
    for cv in (None, 2, GroupKFold(2)):
        with pytest.raises(ValueError, match=r"at least 2 groups to train on.*got 2 g"):
            call(cv, X, y, np.arange(ROWS) % 2)
    with pytest.raises(ValueError, match="at least 2 groups in the training rows"):
        call(None, X, y, np.zeros(ROWS, dtype=int))


def test_candidates_do_not_split_groups(table, monkeypatch):
    """Nor do their fits out of fold, and to all rows; in pipelines, too."""
    X, y = table
    groups = np.arange(ROWS) % 8
    X[:, -1] = groups
    held_out = []

    training = TrainingJob.training

    def recorded(job, *arguments, **options):
        columns = job.table.X
        group = columns[:, np.flatnonzero((columns % 1 == 0).all(0))[0]]
        held_out.extend(
            (len(s.rows) + len(s.held_out_rows), *(set(group[r]) for r in rows))
            for s in job.row_subsets
            if len((rows := (s.rows, s.held_out_rows))[1])
        )
        return training(job, *arguments, **options)

    monkeypatch.setattr(TrainingJob, "training", recorded)
    stop = {"early_stopping": True, "validation_fraction": 0.3}
    pool = [
        ("network", MCDropoutRegressor(**QUICK | {"max_iter": "auto"}, dropout=0.1)),
        ("stopped", MCDropoutRegressor(**QUICK, **stop, length_scale=1.0)),
        (
            "encoded",
            make_pipeline(
                PiecewiseLinearEncoder(n_bins=4, keep_columns=True),
                MCDropoutRegressor(**QUICK, **stop, length_scale=1.0),
            ),
        ),
    ]
    model = BayesianStackingRegressor(pool, cv=3, n_refits=2, random_state=1)
    model.fit(X, y, groups=groups)
    assert not any(train & out for _, train, out in held_out)
    assert {n for n, *_ in held_out} > {ROWS}


def test_statistics_of_y_in_folds_are_from_other_groups(seed):
    """Patients are a category of many levels, whose rows are groups."""
    random = np.random.default_rng([seed, 46])
    patient = random.permutation(np.repeat(np.arange(15), 6))
    frame = pd.DataFrame({"patient": [f"p{i:02}" for i in patient]})
    frame["size"], y = random.normal(size=(2, 90))
    encoder = TableEncoder()
    data = StackData(
        encoder.fit_transform(frame, y, groups=patient),
        y,
        None,
        frame=frame,
        encoder=encoder,
        groups=patient,
    )
    copies, folds, _ = encode_by_fold(data, list(KFold(3).split(y)))
    params = copies.fit_params("network__")
    for train, test in folds:
        np.testing.assert_array_equal(copies.X[train, 0], 0)
        # Rows of the patients that are also among the training rows.
        assert copies.X[test, 0].any()
        np.testing.assert_array_equal(
            params["network__groups"][train], patient[train % 90]
        )


def test_stack_of_classifiers_with_groups(labelled, seed):
    X, y = labelled
    groups = np.random.default_rng(seed).permutation(ROWS) % 10
    model = classifier(cv=None).fit(X, y, groups=groups)
    same = classifier(
        cv=folds_of(None, X, y, groups, is_classification=True, seed=model_seed(model))
    ).fit(X, y, groups=groups)
    np.testing.assert_array_equal(model.oof_prediction_, same.oof_prediction_)


def model_seed(model):
    """Seed of the folds that a stack draws from its ``random_state``."""
    return np.random.RandomState(model.random_state).randint(2**31 - 1)


def test_default_cv_depends_on_the_number_of_rows(monkeypatch, table):
    X, y = table
    model = regressor(cv=None).fit(X, y)
    assert np.isfinite(model.oof_prediction_).all()
    monkeypatch.setattr("skbayesnn._stacking.folds.FOLDS_BELOW", 40)
    model = regressor(cv=None).fit(X, y)
    assert np.isfinite(model.oof_prediction_).sum() == 9  # A fifth, rounded up.


def test_a_single_fold_holds_out_a_limited_number_of_rows(monkeypatch, table):
    X, y = table
    monkeypatch.setattr("skbayesnn._stacking.folds.FOLDS_BELOW", 40)
    monkeypatch.setattr("skbayesnn._stacking.folds.MAX_HELD_OUT", 7)
    for is_classification in (False, True):
        codes = (np.arange(ROWS) % 2) if is_classification else y
        [(train, test)] = folds_of(
            None, X, codes, None, is_classification=is_classification
        )
        assert (len(train), len(test)) == (ROWS - 7, 7)


def test_thinned_folds_are_samples_of_the_same_rows(monkeypatch, seed):
    """Also of the copies of the rows, and without rows of weight zero."""
    monkeypatch.setattr("skbayesnn._stacking.folds.SAMPLE", (5, 4))
    weights = (np.arange(60) % 3 > 0).astype(float)
    splits = list(KFold(3, shuffle=True, random_state=seed).split(weights))
    copies = [(train + i * 60, test + i * 60) for i, (train, test) in enumerate(splits)]
    both = zip(thinned(splits, weights), thinned(copies, weights), strict=True)
    for fold, copied in both:
        whole = splits[copied[0][0] // 60]
        for rows, of_copy, of_fold, n in zip(fold, copied, whole, (5, 4), strict=True):
            np.testing.assert_array_equal(rows, of_copy % 60)
            n = min(n, math.ceil(weights[of_fold].sum() / 4))
            assert len(rows) == n == len(set(rows) & set(of_fold))
            assert weights[rows].all()
    [(train, test)] = thinned([(np.arange(13), np.arange(13, 15))], np.ones(60))
    assert (len(train), len(test)) == (4, 1)  # A quarter, rounded up.


def test_single_split_with_more_classes_than_held_out_rows(monkeypatch, seed):
    """Not every class can be among the held-out rows."""
    monkeypatch.setattr("skbayesnn._stacking.folds.FOLDS_BELOW", 40)
    codes = np.repeat(np.arange(15), 3)
    [(train, test)] = make_folds(
        None,
        Table(np.zeros((45, 2)), codes, None),
        None,
        is_classification=True,
        seed=seed,
    )
    assert (len(train), len(test)) == (36, 9)


@pytest.mark.parametrize("new_stack", [regressor, classifier])
def test_rows_of_weight_zero_are_in_no_fold(new_stack, labelled, table):
    """The default folds depend only on the rows with weight."""
    X, y = table if new_stack is regressor else labelled
    random = np.random.default_rng(0)
    absent = np.repeat([False, True], [ROWS, 700])[random.permutation(ROWS + 700)]
    many = random.normal(size=(len(absent), COLUMNS))
    labels = np.repeat(y, 20)[: len(absent)]
    many[~absent], labels[~absent] = X, y
    model = new_stack(cv=None).fit(many, labels, sample_weight=1.0 * ~absent)
    without_rows = new_stack(cv=None).fit(X, y)
    densities = model.oof_log_density_
    assert np.isnan(densities[absent]).all()
    np.testing.assert_allclose(
        densities[~absent], without_rows.oof_log_density_, rtol=1e-5
    )


def test_folds_may_be_masks(table):
    X, y = table
    test = np.arange(ROWS) % 4 == 0
    with_masks = regressor(cv=[(~test, test)]).fit(X, y)
    rows = np.flatnonzero(~test), np.flatnonzero(test)
    with_indices = regressor(cv=[rows]).fit(X, y)
    np.testing.assert_array_equal(
        with_masks.oof_prediction_, with_indices.oof_prediction_
    )


@pytest.mark.parametrize("counts", [(20, 19, 1), (3, 3, 3), (30, 8, 2)])
def test_rare_classes(counts, seed):
    y = np.repeat(["a", "b", "c"], counts)
    X = np.random.default_rng(seed).normal(size=(len(y), COLUMNS))
    model = classifier(cv=None).fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert np.isfinite(model.summary_.log_density)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("n_rows", [56, 101])
def test_default_folds_train_on_every_class(n_rows, seed):
    """Labels are in order, and the last class has two rows."""
    y = np.repeat([0, 1], [n_rows - 2, 2])
    rows = Table(np.zeros((n_rows, 2)), y, None)
    for train, test in make_folds(None, rows, None, is_classification=True, seed=seed):
        assert len(train) + len(test) == n_rows
        assert np.unique(y[train]).tolist() == [0, 1]


@pytest.mark.parametrize("cv", [None, 3])
def test_raises_if_only_one_class_can_be_held_out(cv):
    """One of the two classes has a single row."""
    y = np.array(["a"] + 20 * ["b"])
    message = (
        "stack of classifiers needs rows of at least 2 classes .*; got class 'a' in 1 "
        "of 21 rows.*Give each class at least 2 rows"
    )
    with pytest.raises(ValueError, match=message):
        classifier(cv=cv).fit(np.eye(21), y)
    with pytest.raises(ValueError, match="BayesianStackingClassifier needs rows of at"):
        classifier(cv=cv).fit(np.eye(21)[1:], y[1:])


@pytest.mark.parametrize("classes", [False, True])
def test_warning_of_repeated_rows(table, classes, seed):
    """But not if columns have few values."""
    X, y = table
    y = (y > 0).astype(int) if classes else y
    message = "of the rows are repeated"
    with pytest.warns(UserWarning, match=f"100% {message}"):
        warn_of_copies(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    with pytest.warns(UserWarning, match=f"100% {message}"):
        warn_of_copies(sparse.csr_array(np.repeat(X, 2, axis=0)), np.repeat(y, 2))
    with pytest.warns(UserWarning, match=f"48% {message}"):  # 26 of 54
        warn_of_copies(np.concatenate([X, X[:13]]), np.concatenate([y, y[:13]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_copies(X, y)
        warn_of_copies(np.repeat(X, 2, axis=0), np.r_[y, y + 1])
        warn_of_copies(np.array(["a", "b"] * 20), y[:40])
        random = np.random.default_rng(seed)
        few = random.integers(2, size=(500, 3))
        warn_of_copies(few, random.integers(2, size=500))
    folds_of_copies = Table(np.repeat(X, 2, axis=0), np.repeat(y, 2), None)
    with pytest.warns(UserWarning, match=message):
        make_folds(5, folds_of_copies, None, is_classification=classes, seed=seed)


def test_raises_with_a_single_row():
    with pytest.raises(ValueError, match=r"a stack needs at least 2 rows, .*; got n_s"):
        regressor(cv=None).fit(np.ones((1, 2)), np.ones(1))


def test_dates_with_shuffled_default_folds_warn(seed):
    random = np.random.default_rng(seed)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(60), unit="D")
    X = pd.DataFrame({"day": days, "a": random.normal(size=60)})
    y = X["a"].to_numpy() + 0.1 * random.normal(size=60)
    model = BayesianStackingRegressor(max_iter=2, random_state=0)
    with pytest.warns(UserWarning, match=r"dates \('day'\).*cv=TimeSeriesSplit"):
        model.fit(X, y)
    for cv in (TimeSeriesSplit(2), KFold(2)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.set_params(cv=cv).fit(X, y)
        assert not [w for w in caught if "columns of dates" in str(w.message)]
