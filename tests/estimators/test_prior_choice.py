"""`length_scale="auto"` of classifiers: few rows choose it, each by others."""

import warnings

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from skbayesnn import (
    AnchoredEnsembleClassifier,
    BBBClassifier,
    MCDropoutClassifier,
    VariationalDropoutClassifier,
)
from skbayesnn.estimators import _prior_choice, _program
from skbayesnn.estimators._prepared import prepare
from skbayesnn.estimators._task import task_of
from skbayesnn.model_selection import (
    BBBClassifierCV,
    MCDropoutClassifierCV,
    VariationalDropoutClassifierCV,
)

ROWS, INPUTS, N_FOLDS, N_DRAWS = 46, 3, 5, 50
SCALES = (0.3, 1.0, 3.0)
KINDS = [MCDropoutClassifier, BBBClassifier, VariationalDropoutClassifier]
# Numbers that fits by themselves and fits together have in common.
EXACT = {
    "hidden_layer_sizes": (7,),
    "max_iter": 30,
    "n_draws": N_DRAWS,
    "device": "cpu",
    "dtype": "float64",
}
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:the predictions are"
)


@pytest.fixture
def table(seed):
    """X, and labels of three classes that overlap."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, INPUTS))
    noise = random.normal(size=ROWS)
    y = np.array(["a", "b", "c"])[np.argsort(np.argsort(X[:, 0] + noise)) * 3 // ROWS]
    return X, y


def folds(X, y):
    """The part of every row, as of the table that ``fit`` sees."""
    return _prior_choice.folds_of(X, np.unique(y, return_inverse=True)[1])


# ---- parts of the rows


def test_parts_have_equally_many_rows_of_every_class(table):
    X, y = table
    fold = folds(X, y)
    of_classes = [fold[y == label] for label in "abc"]
    counts = np.array([np.bincount(one, minlength=N_FOLDS) for one in of_classes])
    assert counts.sum() == ROWS
    assert (np.ptp(counts, axis=1) <= 1).all() and np.ptp(counts.sum(0)) <= 1


def test_only_the_rows_have_a_say(table, seed):
    """Not their order, how often they are there, their units, or zeros not stored."""
    X, y = table
    X[:, 1] = np.maximum(X[:, 1], 0)
    fold = folds(X, y)
    random = np.random.default_rng(seed)
    again = random.integers(0, ROWS, size=3 * ROWS)
    for rows in (random.permutation(ROWS), np.concatenate([np.arange(ROWS), again])):
        np.testing.assert_array_equal(folds(X[rows], y[rows]), fold[rows])
    np.testing.assert_array_equal(folds(sparse.csr_array(X), y), fold)
    np.testing.assert_array_equal(folds(X.astype(np.float32), y), fold)
    np.testing.assert_array_equal(folds(1e3 * X - 5, y), fold)


@pytest.mark.parametrize(
    "labels, held_out",
    [("aaaab", "aaaa"), ("abc", ""), ("aabbc", "aabb")],
)
def test_the_only_row_of_a_class_stays(labels, held_out):
    """What is left without a fold knows all classes."""
    y = np.array(list(labels))
    fold = folds(np.arange(len(y), dtype=float)[:, None], y)
    assert "".join(y[fold >= 0]) == held_out
    for number in np.unique(fold[fold >= 0]):
        assert set(y[fold != number]) == set(labels)


# ---- the choice


def _out_of_fold(model, X, y, weights):
    """Log density of all rows by fits without them, each by itself."""
    total, fold = 0.0, folds(X, y)
    for number in range(N_FOLDS):
        train, test = fold != number, fold == number
        model.fit(X[train], y[train], sample_weight=weights[train])
        proba = model.predict_proba(X[test])
        codes = np.searchsorted(model.classes_, y[test])
        total += np.dot(weights[test], np.log(proba[np.arange(len(codes)), codes]))
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_fits_without_the_folds(kind, table, seed):
    """Float64 and X as it is, which is the same whatever is left out: rounding."""
    X, y = table
    weights = np.random.default_rng(seed).integers(1, 4, size=ROWS).astype(float)
    settings = EXACT | {"standardize": False, "random_state": seed}
    expected = [
        _out_of_fold(kind(length_scale=scale, **settings), X, y, weights)
        for scale in SCALES
    ]
    model = kind(**settings)
    task = task_of(model, prepare(model, X, y, weights))
    assert task.length_scales == SCALES
    [scores] = _prior_choice.held_out_scores([task], torch.device("cpu"), torch.float64)
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    assert model.fit(X, y, weights).length_scale_ == SCALES[np.argmax(expected)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_fit_is_that_with_the_scale_given(kind, table, seed):
    X, y = table
    settings = EXACT | {"n_estimators": 2, "random_state": seed}
    model = kind(**settings).fit(X, y)
    given = kind(length_scale=model.length_scale_, **settings).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), given.predict_proba(X))
    np.testing.assert_array_equal(model.weight_decay_, given.weight_decay_)


@pytest.mark.parametrize("apart, scale", [(True, 0.3), (False, 3.0)])
def test_what_the_labels_ask_for(apart, scale, seed):
    """A wide prior of classes that are well apart, a narrow one of coin tosses."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.arange(60) % 2)
    X = random.normal(size=(60, 4)) + 6 * apart * y[:, None]
    model = MCDropoutClassifier(device="cpu", random_state=seed).fit(X, y)
    assert model.length_scale_ == scale


def test_weights_count_as_rows(table, seed):
    """The sum of the held-out densities has the weights, those of classes too."""
    X, y = table
    counts = np.random.default_rng(seed).integers(0, 3, size=ROWS)
    counts[[np.flatnonzero(y == label)[0] for label in "abc"]] = 2
    rows = np.repeat(np.arange(ROWS), counts)
    found = []
    for given in ((X, y, counts), (X[rows], y[rows], None)):
        model = MCDropoutClassifier(
            class_weight={"a": 2.0, "b": 0.5}, **EXACT, random_state=seed
        )
        task = task_of(model, prepare(model, *given))
        found += _prior_choice.held_out_scores(
            [task], torch.device("cpu"), torch.float64
        )
    # Masks are those of other rows where rows are repeated: the same to the noise of
    # draws and of 30 steps, and far from those of weight one.
    np.testing.assert_allclose(*found, rtol=0.1)


def test_together_each_chooses_as_alone(table, seed):
    X, y = table
    rows = [np.arange(ROWS), np.arange(5, ROWS), np.arange(ROWS - 3)]
    models = [
        BBBClassifier(tau=tau, **EXACT, random_state=seed + i)
        for i, tau in enumerate((0.5, 1.0, 20.0))
    ]
    tasks = [
        task_of(model, prepare(model, X[kept], y[kept]))
        for model, kept in zip(models, rows, strict=True)
    ]
    together = _program.train_together(models, tasks)
    for model, kept, fitted in zip(models, rows, together, strict=True):
        alone = model.fit(X[kept], y[kept]).length_scale_
        np.testing.assert_array_equal(fitted.task.length_scale, [alone, alone])


def test_given_scales_and_those_of_others_are_not_looked_at(table):
    X, y = table
    for model in (
        MCDropoutClassifier(**EXACT, length_scale=[0.7, 0.2]),
        MCDropoutClassifier(**EXACT, length_scale="fan_in"),
        AnchoredEnsembleClassifier(**EXACT),
    ):
        task = task_of(model, prepare(model, X, y))
        assert task.length_scales == ()


@pytest.mark.parametrize(
    "kind",
    [MCDropoutClassifierCV, BBBClassifierCV, VariationalDropoutClassifierCV],
)
def test_where_tau_is_chosen_the_scale_is_not(kind, table):
    X, y = table
    model = kind(taus=[0.5, 1.0], cv=2, **EXACT, random_state=0).fit(X, y)
    assert model.length_scale_ == 1.0 and model.length_scale == "auto"


def test_many_rows_have_the_middle_one(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(201, 2))
    y = (X[:, 0] > 0).astype(int)
    model = MCDropoutClassifier(**EXACT, random_state=seed)
    for n_rows, scales in ((199, SCALES), (200, ()), (201, ())):
        task = task_of(model, prepare(model, X[:n_rows], y[:n_rows]))
        assert task.length_scales == scales
        np.testing.assert_array_equal(task.length_scale, [1.0, 1.0])


def test_where_nothing_can_be_held_out_it_is_the_middle_one():
    model = MCDropoutClassifier(**EXACT, random_state=0)
    model.fit([[0.0, 1.0], [1.0, 2.0], [2.0, 0.5]], ["a", "b", "c"])
    assert model.length_scale_ == 1.0


def test_a_scale_that_diverges_is_not_chosen(table, seed, monkeypatch):
    X, y = table
    train = _prior_choice.train

    def all_but_the_last_fail(*args):
        trained = train(*args)
        trained.failed[np.arange(len(trained.failed)) % 3 < 2] = 1
        return trained

    monkeypatch.setattr(_prior_choice, "train", all_but_the_last_fail)
    model = MCDropoutClassifier(**EXACT, random_state=seed).fit(X, y)
    assert model.length_scale_ == SCALES[-1]


def test_early_stopping_does_not_stop_the_folds(table, seed):
    """Rows that stop the training have no say in the scale."""
    X, y = table
    model = MCDropoutClassifier(early_stopping=True, **EXACT, random_state=seed)
    model.fit(X, y, X_val=X[:4] + 9, y_val=y[:4])
    without = MCDropoutClassifier(**EXACT, random_state=seed).fit(X, y)
    assert model.length_scale_ == without.length_scale_


def test_what_goes_on_keeps_the_scale(table, seed):
    X, y = table
    model = MCDropoutClassifier(warm_start=True, **EXACT, random_state=seed)
    scale = model.fit(X, y).length_scale_
    model.fit(X[:9], y[:9])
    assert model.length_scale_ == scale
    model.partial_fit(X[9:], y[9:])
    assert model.length_scale_ == scale


def test_a_stream_begins_with_the_middle_one(table):
    """How many rows will come is not known."""
    X, y = table
    model = MCDropoutClassifier(**EXACT, random_state=0)
    for rows in (slice(0, 20), slice(20, None)):
        model.partial_fit(X[rows], y[rows], classes=["a", "b", "c"])
        assert model.length_scale_ == 1.0


def test_an_interruption_leaves_the_estimator_as_it_was(table, monkeypatch):
    X, y = table

    def interrupted(*args):
        raise KeyboardInterrupt

    model = MCDropoutClassifier(warm_start=True, **EXACT, random_state=0)
    monkeypatch.setattr(_prior_choice, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not hasattr(model, "length_scale_")


def test_no_warning_of_the_networks_of_the_folds(table, seed):
    """One fit, one word."""
    X, y = table
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        MCDropoutClassifier(**EXACT, random_state=seed).fit(X, y)
    assert len([one for one in caught if one.category is ConvergenceWarning]) <= 1
