"""Groups of rows: no choice by held-out rows splits them."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GroupShuffleSplit

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    BBBClassifier,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
)
from skbayesnn.estimators import _selection
from skbayesnn.estimators._job import TrainingJob, joined, training_job
from skbayesnn.estimators._training_data import training_data

PATIENTS, VISITS, INPUTS = 12, 4, 3
ROWS = PATIENTS * VISITS
KINDS = [
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    BBBClassifier,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
]
pytestmark = pytest.mark.filterwarnings("ignore")


def small(kind, **params):
    options = {"max_iter": 5, "n_draws": 5, "device": "cpu", "random_state": 0}
    if "Ensemble" in kind.__name__:
        options["n_estimators"] = 3
    if kind is not VariationalGPRegressor:
        options["hidden_layer_sizes"] = (5,)
    return kind(**options | params)


@pytest.fixture
def table(seed):
    """X with the patient in the last column, y, labels, and the patients."""
    random = np.random.default_rng([seed, 43])
    patient = random.permutation(np.repeat(np.arange(PATIENTS), VISITS))
    X = np.column_stack([random.normal(size=(ROWS, INPUTS - 1)), patient])
    return X, random.normal(size=ROWS), (patient + (X[:, 0] > 0)) % 3, patient


def target(kind, table):
    return table[2] if is_classifier(kind()) else table[1]


@pytest.fixture
def held_out(monkeypatch):
    """Patients of the training rows and of the held-out rows of every network."""
    parts = []

    training = TrainingJob.training

    def recorded(job, *arguments, **options):
        patient = job.table.X[:, -1]
        parts.extend(
            (set(patient[s.rows]), set(patient[s.held_out_rows]))
            for s in job.row_subsets
            if len(s.held_out_rows)
        )
        return training(job, *arguments, **options)

    monkeypatch.setattr(TrainingJob, "training", recorded)
    return parts


# ---- no group is on both sides


@pytest.mark.parametrize("kind", KINDS)
def test_selection_does_not_split_groups(kind, table, held_out):
    X, _, _, patient = table
    y = target(kind, table)
    model = small(kind).fit(X, y, groups=patient)
    job = training_job(model, training_data(model, X, y, groups=patient))
    assert bool(held_out) == job.needs_selection
    # Also of the estimators that select nothing here.
    joined(_selection._fold_jobs(job), torch.device("cpu"))
    for train, out in held_out:
        assert out and not train & out
        assert train | out == set(range(PATIENTS))
    assert set.union(*(out for _, out in held_out)) == set(range(PATIENTS))


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_early_stopping_does_not_split_groups(kind, table, held_out, warm_start):
    X, y, patient = table[0], target(kind, table), table[3]
    model = small(
        kind, early_stopping=True, validation_fraction=0.25, warm_start=warm_start
    )
    model.fit(X, y, groups=patient)
    assert held_out and not any(train & out for train, out in held_out)
    # The last entry is the training on all rows, which holds out a quarter.
    assert len(held_out[-1][1]) == PATIENTS // 4


def test_early_stopping_holds_out_the_groups_of_scikit_learn(table):
    X, y, _, patient = table
    model = small(MCDropoutRegressor, early_stopping=True)
    model.set_params(random_state=np.random.RandomState(3))
    job = training_job(model, training_data(model, X, y, groups=patient))
    random = np.random.RandomState(3)
    random.randint(0, 2**31 - 1, size=1)  # the seed of the network
    splitter = GroupShuffleSplit(1, test_size=0.1, random_state=random)
    [(train, validation)] = splitter.split(X, groups=patient)
    [subset] = job.row_subsets
    np.testing.assert_array_equal(subset.rows, train)
    np.testing.assert_array_equal(subset.held_out_rows, validation)


def test_every_class_stays_in_the_training_rows(table, seed):
    """One class is in a single group."""
    X, _, _, patient = table
    labels = np.where(patient == seed % PATIENTS, 7, patient % 2)
    model = small(MCDropoutClassifier, early_stopping=True, validation_fraction=0.9)
    job = training_job(model, training_data(model, X, labels, groups=patient))
    [subset] = job.row_subsets
    assert len(subset.held_out_rows)
    assert set(labels[subset.rows]) == {0, 1, 7}
    fold = _selection.selection_folds(X, labels, patient)
    np.testing.assert_array_equal(fold == -1, labels == 7)


def test_selection_folds_depend_on_the_values_of_the_rows_alone(table, seed):
    """Not on their order or repetition, nor on sparse storage."""
    X, _, labels, patient = table
    random = np.random.default_rng(seed)
    for y in (None, labels):
        fold = _selection.selection_folds(X, y, patient)
        rows = np.append(random.permutation(ROWS), random.integers(ROWS, size=70))
        repeated = _selection.selection_folds(
            X[rows], None if y is None else y[rows], patient[rows]
        )
        np.testing.assert_array_equal(repeated, fold[rows])
        stored = _selection.selection_folds(sparse.csr_array(X), y, patient)
        np.testing.assert_array_equal(stored, fold)


def test_weights_of_zero_are_removed_rows(table):
    """Their groups do not count, and a model is the same with and without them."""
    X, y, _, patient = table
    used = patient % 3 > 0
    model = small(BBBRegressor)
    weighted = clone(model).fit(X, y, used.astype(float), groups=patient)
    removed = clone(model).fit(X[used], y[used], groups=patient[used])
    np.testing.assert_array_equal(weighted.predict(X), removed.predict(X))
    assert weighted.noise_std_ == removed.noise_std_


def test_statistics_of_y_are_from_other_groups(table):
    """Of a category that is the group, a fit sees no statistics of training rows."""
    y, patient = np.repeat(table[1], 2), np.repeat(np.arange(ROWS), 2)
    frame = pd.DataFrame(
        {"patient": [f"p{i // 3}" for i in patient], "size": np.arange(2.0 * ROWS)}
    )
    model = small(MCDropoutRegressor)
    with_groups = training_data(model, frame, y, groups=frame["patient"]).table
    np.testing.assert_array_equal(with_groups.X[:, 0], 0)
    assert training_data(model, frame, y).table.X[:, 0].any()
    # A warm start computes the statistics again.
    model.set_params(warm_start=True).fit(frame, y, groups=frame["patient"])
    again = training_data(model, frame, y, groups=frame["patient"], reset=False)
    np.testing.assert_array_equal(again.table.X[:, 0], 0)


# ---- effect on the noise


def patients(random, n_patients, n_visits):
    """Nearly equal rows of each patient, and y with noise per patient."""
    X = np.repeat(random.normal(size=(n_patients, INPUTS)), n_visits, axis=0)
    y = X[:, 0] + np.repeat(random.normal(size=n_patients), n_visits)
    X += 0.02 * random.normal(size=X.shape)
    y += 0.02 * random.normal(size=y.shape)
    return X, y, np.repeat(np.arange(n_patients), n_visits)


@pytest.mark.parametrize("kind", [MCDropoutRegressor, BBBRegressor])
def test_intervals_cover_new_patients(kind, seed):
    """40 patients of 10 nearly equal rows; the noise has a standard deviation of 1.

    Without groups, 90 % intervals covered 10 to 44 % of new patients, with groups 71
    to 97 % (15 seeds).
    """
    random = np.random.default_rng([seed, 44])
    X, y, patient = patients(random, 40, 10)
    X_new, y_new, _ = patients(random, 400, 1)
    model = kind(random_state=seed)
    covered, noise = [], []
    for groups in (None, patient):
        lower, upper = model.fit(X, y, groups=groups).predict_interval(X_new, 0.9).T
        covered.append(np.mean((lower <= y_new) & (y_new <= upper)))
        noise.append(model.noise_std_)
    assert covered[1] > covered[0] + 0.3
    assert covered[1] > 0.55
    assert noise[1] > 2 * noise[0]


def test_rules_for_few_rows_count_the_groups(seed):
    """300 rows of 50 groups are few, 300 groups are not."""
    X, y = np.random.default_rng(seed).normal(size=(2, 300, INPUTS))
    model = small(BBBRegressor)
    few, many = (
        training_job(model, training_data(model, X, y[:, 0], groups=groups))
        for groups in (np.arange(300) % 50, np.arange(300))
    )
    assert few.estimates_variance and not many.estimates_variance
    assert _selection._n_folds(few) == 5
    X, y = np.random.default_rng(seed).normal(size=(2, 5_100, INPUTS))
    model = small(MCDropoutRegressor)
    for groups, n_folds in ((None, 1), (np.arange(5_100) % 800, 2), (y[:, 1] > 0, 5)):
        job = training_job(model, training_data(model, X, y[:, 0], groups=groups))
        assert _selection._n_folds(job) == n_folds


# ---- errors


def test_too_few_groups(table):
    X, y, _, _ = table
    for kind in (MCDropoutRegressor, BBBRegressor):
        with pytest.raises(
            ValueError, match=rf"at least 2 groups .*; got 1 group in {ROWS} rows"
        ):
            small(kind).fit(X, y, groups=np.ones(ROWS))
    weights = (np.arange(ROWS) % 2).astype(float)
    with pytest.raises(ValueError, match="got 1 group in"):
        small(BBBRegressor).fit(X, y, weights, groups=1 - weights)


def test_early_stopping_with_too_few_groups(table):
    X, _, _, patient = table
    labels = patient % 2
    model = small(MCDropoutClassifier, early_stopping=True)
    with pytest.raises(ValueError, match=r"of the groups; got 2 groups, too few"):
        model.fit(X, labels, groups=labels)
    automatic = small(
        VariationalDropoutClassifier, early_stopping="auto", length_scale=1.0
    )
    automatic.fit(X, labels, groups=labels)


def test_length_of_groups(table):
    X, y, _, patient = table
    with pytest.raises(
        ValueError, match=r"one value for each of the .* rows of X; got shape"
    ):
        small(MCDropoutRegressor).fit(X, y, groups=patient[:-1])
