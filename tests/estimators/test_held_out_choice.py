"""What few rows choose, each by others: prior scale, training length, noise."""

import warnings

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

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
from skbayesnn.estimators import _fit, _selection
from skbayesnn.estimators._defaults import defaults_of
from skbayesnn.estimators._job import training_job
from skbayesnn.estimators._selection import HeldOutScore
from skbayesnn.estimators._training_data import training_data
from skbayesnn.model_selection import TauCV
from skbayesnn.networks import MLP

ROWS, INPUTS, N_FOLDS, N_DRAWS = 46, 3, 5, 50
# The first is that without a choice.
SCALES = (1.0, 0.3, 3.0)
CPU = torch.device("cpu")
KINDS = [MCDropoutClassifier, BBBClassifier, VariationalDropoutClassifier]
REGRESSORS = [
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
]
# Sums in another order, grown by the steps of a training.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
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
    return _selection.selection_folds(X, np.unique(y, return_inverse=True)[1])


def scores_of(model, *given, device=CPU):
    """Log densities of all settings of a task, and the task."""
    job = training_job(model, training_data(model, *given))
    [found] = _selection.held_out_scores([job], device, torch.float64)
    return [one.score for one in found], job


def scales_of(job):
    """The length scales to choose from, each of all layers."""
    assert {one.n_epochs for one in job.settings} <= set(job.members.n_epochs)
    return tuple(float(np.unique(one.length_scale).item()) for one in job.settings)


def lengths_of(job):
    """The numbers of epochs to choose from, the longest first."""
    return tuple(dict.fromkeys(one.n_epochs for one in job.settings))


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


# ---- the length scale


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
    scores, job = scores_of(model, X, y, weights)
    assert scales_of(job) == SCALES
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
        found.append(scores_of(model, *given)[0])
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
    jobs = [
        training_job(model, training_data(model, X[kept], y[kept]))
        for model, kept in zip(models, rows, strict=True)
    ]
    together = _fit.train_together(models, jobs)
    for model, kept, fitted in zip(models, rows, together, strict=True):
        alone = model.fit(X[kept], y[kept]).length_scale_
        np.testing.assert_array_equal(fitted.job.length_scale, [alone, alone])


def test_given_scales_and_those_of_others_are_not_looked_at(table):
    X, y = table
    for model in (
        MCDropoutClassifier(**EXACT, length_scale=[0.7, 0.2]),
        MCDropoutClassifier(**EXACT, length_scale="fan_in"),
        AnchoredEnsembleClassifier(**EXACT),
    ):
        job = training_job(model, training_data(model, X, y))
        assert not job.needs_selection


@pytest.mark.parametrize(
    "kind",
    [MCDropoutClassifier, BBBClassifier, VariationalDropoutClassifier],
)
def test_where_tau_is_chosen_nothing_else_is(kind, table, monkeypatch):
    X, y = table

    def trained(*args):
        raise AssertionError

    monkeypatch.setattr(_selection, "train", trained)
    settings = EXACT | {"max_iter": "auto"}
    network = kind(**settings, random_state=0)
    model = TauCV(network, taus=[0.5, 1.0], cv=2).fit(X, y)
    best = model.best_estimator_
    assert best.length_scale_ == 1.0 and network.length_scale == "auto"
    plain = clone(network).set_params(length_scale=1.0, tau=model.tau_)
    assert (
        best.n_iter_
        == training_job(plain, training_data(plain, X, y)).members.n_epochs[0]
    )


def test_many_rows_have_no_choice(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(201, 2))
    y = (X[:, 0] > 0).astype(int)
    model = MCDropoutClassifier(**EXACT, random_state=seed)
    for n_rows, scales in ((199, SCALES), (200, (1.0,)), (201, (1.0,))):
        job = training_job(model, training_data(model, X[:n_rows], y[:n_rows]))
        assert scales_of(job) == scales
        np.testing.assert_array_equal(job.length_scale, [1.0, 1.0])


def test_where_nothing_can_be_held_out_there_is_no_choice():
    model = MCDropoutClassifier(**EXACT, random_state=0)
    model.fit([[0.0, 1.0], [1.0, 2.0], [2.0, 0.5]], ["a", "b", "c"])
    assert model.length_scale_ == 1.0


def test_a_scale_that_diverges_is_not_chosen(table, seed, monkeypatch):
    X, y = table
    train = _selection.train

    def all_but_the_last_fail(*args, **options):
        trained = train(*args, **options)
        trained.failed[np.arange(len(trained.failed)) % 3 < 2] = 1
        return trained

    monkeypatch.setattr(_selection, "train", all_but_the_last_fail)
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


def test_a_stream_begins_without_a_choice(table):
    """How many rows will come is not known."""
    X, y = table
    model = MCDropoutClassifier(**EXACT, random_state=0)
    for rows in (slice(0, 20), slice(20, None)):
        model.partial_fit(X[rows], y[rows], classes=["a", "b", "c"])
        assert model.length_scale_ == 1.0


def test_an_interruption_leaves_the_estimator_as_it_was(table, monkeypatch):
    X, y = table

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    model = MCDropoutClassifier(warm_start=True, **EXACT, random_state=0)
    monkeypatch.setattr(_selection, "train", interrupted)
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


# ---- the length scale of regressors


def smooth(seed, noise, n_rows=90):
    """X, and a smooth y with noise."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, size=(n_rows, 2))
    return X, np.sin(3 * X[:, 0]) * X[:, 1] + noise * random.normal(size=n_rows)


@pytest.mark.parametrize(("noise", "wide"), [(0.0, True), (3.0, False)])
def test_what_the_noise_asks_for(noise, wide, seed):
    """The widest prior where y has none, a narrower one where it is all there is."""
    X, y = smooth(seed, noise)
    model = MCDropoutRegressor(device="cpu", random_state=seed).fit(X, y)
    assert (np.asarray(model.length_scale_) == 1.0).all() == wide


@pytest.mark.parametrize("chosen", [0, 1, 2])
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_means_are_those_with_the_scale_given(likelihood, chosen, seed, monkeypatch):
    X, y = smooth(seed, 0.1)
    y = np.exp(y).round() if likelihood == "poisson" else y
    monkeypatch.setattr(_selection, "best_setting", lambda job, judged: chosen)
    settings = EXACT | {"likelihood": likelihood, "n_estimators": 2}
    model = MCDropoutRegressor(**settings, random_state=seed).fit(X, y)
    job = training_job(model, training_data(model, X, y))
    assert [one.length_scale[0] for one in job.settings[1:]] == [4.0, 1.0]
    np.testing.assert_array_equal(
        np.resize(model.length_scale_, 2), job.settings[chosen].length_scale
    )
    given = MCDropoutRegressor(
        **settings, length_scale=model.length_scale_, random_state=seed
    ).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), given.predict(X))


def test_a_scale_that_is_that_of_the_rule_is_there_once():
    """Of 16 columns and 64 to 144 rows."""
    X = np.random.default_rng(0).normal(size=(100, 16))
    model = MCDropoutRegressor((16,), device="cpu")
    assert scales_of(training_job(model, training_data(model, X, X[:, 0]))) == (
        4.0,
        1.0,
    )


@pytest.mark.parametrize("chosen", [0, 2])
def test_a_stream_keeps_what_was_chosen_and_else_follows_its_rows(
    chosen, seed, monkeypatch
):
    X, y = smooth(seed, 0.1)
    monkeypatch.setattr(_selection, "best_setting", lambda job, judged: chosen)
    settings = EXACT | {"hidden_layer_sizes": (40,)}
    model = MCDropoutRegressor(**settings, random_state=seed).fit(X[:30], y[:30])
    fan_ins = np.array([2, 40])
    for n_rows in (60, 90):
        model.partial_fit(X[n_rows - 30 : n_rows], y[n_rows - 30 : n_rows])
        by_rule = defaults_of(model).length_scale.scales(fan_ins, float(n_rows))
        expected = 1.0 if chosen == 2 else by_rule
        np.testing.assert_array_equal(model.length_scale_, expected)


# ---- the training length

SHARES = (1.0, 0.25, 0.1)
OPEN = EXACT | {"max_iter": "auto", "hidden_layer_sizes": (5,), "length_scale": 1.0}
TIMED = [MCDropoutClassifier, VariationalDropoutClassifier, AnchoredEnsembleClassifier]


@pytest.mark.parametrize("kind", TIMED)
def test_few_rows_may_train_for_a_quarter_or_a_tenth(kind, table):
    X, y = table
    model = kind(**OPEN)
    job = training_job(model, training_data(model, X, y))
    n_epochs = job.members.n_epochs[0]
    expected = tuple(int(np.ceil(share * n_epochs)) for share in SHARES)
    assert lengths_of(job) == expected and len(job.settings) == len(SHARES)


@pytest.mark.parametrize("kind", TIMED[:2])
def test_lengths_and_scales_have_the_first_in_common(kind, table):
    X, y = table
    model = kind(**OPEN | {"length_scale": "auto"})
    job = training_job(model, training_data(model, X, y))
    pairs = [(one.length_scale[0], one.n_epochs) for one in job.settings]
    most, *shorter = lengths_of(job)
    assert pairs == [*((scale, most) for scale in SCALES), *((1.0, n) for n in shorter)]


def judged(*densities, weights=None):
    """What rows of these log densities say of each setting."""
    rows = np.ones(len(densities[0])) if weights is None else np.asarray(weights, float)
    return [HeldOutScore(np.asarray(of_rows, float), rows) for of_rows in densities]


def test_a_shorter_training_has_to_be_better_beyond_doubt(table):
    """By more than the standard error of the sum of differences, over rows."""
    X, y = table
    model = MCDropoutClassifier(**OPEN)
    job = training_job(model, training_data(model, X, y))
    most, quarter, tenth = lengths_of(job)
    none = np.full(4, -np.inf)
    for densities, n_epochs in (
        # A sum of 2, and an error of sqrt(3 / 4) of one row's 2; and the other way.
        (([0, 0, 0, 0], [2, 0, 0, 0], none), quarter),
        (([0, 0, 0, 0], [2, -1, -1, 1], none), most),
        (([0, 0, 0, 0], [2, 0, 0, 0], [1, 1, 1, 1]), tenth),
        # Better, but with doubt; worse, and without.
        (([0, 0, 0, 0], [1, 1, 1, 1], [9, -1, -2, -1]), quarter),
        ((none, none, none), most),
        ((none, [-9, -9, -9, -9], [-8, -8, -9, -9]), tenth),
        ((np.full(4, np.nan), [-9, -9, -9, -9], none), quarter),
    ):
        chosen = _selection._with_best_setting(job, judged(*densities))
        assert set(chosen.members.n_epochs) == {n_epochs}
        assert chosen.predictive_params is None and not chosen.settings


def test_doubt_is_that_of_rows_that_are_there_as_often(seed):
    """Weights are counts."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, 4, size=30)
    longest = random.normal(size=30)
    for shift in np.linspace(-0.5, 0.5, 21):
        shorter = longest + shift + random.normal(size=30)
        one, other = judged(shorter, longest, weights=counts)
        again = [np.repeat(values, counts) for values in (shorter, longest)]
        one_again, other_again = judged(*again)
        apart = again[0] - again[1]
        expected = apart.mean() > apart.std() / np.sqrt(len(apart))
        assert one.is_better_than(other) == one_again.is_better_than(other_again)
        assert one.is_better_than(other) == expected


@pytest.mark.parametrize("kind", TIMED)
@pytest.mark.parametrize("chosen", [0, 1, 2])
def test_the_fit_is_that_with_the_length_given(kind, chosen, table, seed, monkeypatch):
    X, y = table
    monkeypatch.setattr(_selection, "best_setting", lambda job, judged: chosen)
    model = kind(**OPEN, random_state=seed).fit(X, y)
    given = kind(**OPEN | {"max_iter": model.n_iter_}, random_state=seed).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), given.predict_proba(X))
    assert (
        model.n_iter_
        == lengths_of(training_job(model, training_data(model, X, y)))[chosen]
    )


def test_scores_of_lengths_are_those_of_fits_of_these_lengths(table, seed):
    """In a program each: exact but for rounding, which grows with the steps."""
    X, y = table
    settings = OPEN | {"standardize": False, "random_state": seed}
    model = MCDropoutClassifier(**settings)
    scores, job = scores_of(model, X, y)
    weights = np.ones(ROWS)
    expected = [
        _out_of_fold(MCDropoutClassifier(**settings | {"max_iter": n}), X, y, weights)
        for n in lengths_of(job)
    ]
    np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_labels_that_are_noise_are_not_learned_by_heart(seed):
    """Of coin tosses ten times as many steps are worse, of what is certain better."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(300, 8))
    found = []
    for y in (random.permutation(np.arange(300) % 2), (X[:, 0] > X[:, 1]).astype(int)):
        model = MCDropoutClassifier(device="cpu", random_state=seed).fit(X, y)
        job = training_job(model, training_data(model, X, y))
        found.append(lengths_of(job).index(model.n_iter_))
    assert found[0] == 2 and found[1] == 0


@pytest.mark.parametrize("n_rows, n_folds", [(699, 5), (700, 2)])
def test_of_many_rows_two_parts_are_held_out(n_rows, n_folds, seed):
    X = np.random.default_rng(seed).normal(size=(n_rows, 2))
    y = (X[:, 0] > 0).astype(int)
    model = MCDropoutClassifier(**OPEN, random_state=seed)
    job = training_job(model, training_data(model, X, y))
    for without in _selection._fold_jobs(job):
        assert len(without.row_subsets) == n_folds
        assert without.n_members == n_folds * len(without.settings)
    held_out = np.concatenate([share.validation for share in without.row_subsets])
    assert len(np.unique(held_out)) == len(held_out)
    assert abs(len(held_out) - n_rows * n_folds / N_FOLDS) <= n_folds


def test_together_each_chooses_its_length_as_alone(seed):
    """Tasks of few rows and of more, in one program."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(230, INPUTS))
    y = (X[:, 0] + random.normal(size=230) > 0).astype(int)
    settings = OPEN | {"max_iter": "auto", "length_scale": "auto", "batch_size": 115}
    models = [MCDropoutClassifier(**settings, random_state=seed + i) for i in range(2)]
    rows = [slice(0, 190), slice(0, 230)]
    data = [
        training_data(model, X[r], y[r]) for model, r in zip(models, rows, strict=True)
    ]
    jobs = [training_job(model, one) for model, one in zip(models, data, strict=True)]
    assert [len(job.settings) for job in jobs] == [5, 3]
    together = _fit.train_together(models, jobs)
    for model, r, fitted in zip(models, rows, together, strict=True):
        alone = model.fit(X[r], y[r])
        np.testing.assert_array_equal(fitted.job.length_scale[:1], alone.length_scale_)
        assert fitted.job.members.n_epochs[0] == alone.n_iter_


def test_no_length_is_chosen_where_one_is_given_or_rows_stop(table):
    X, y = table
    for model in (
        MCDropoutClassifier(**OPEN | {"max_iter": 30}),
        MCDropoutClassifier(**OPEN, early_stopping=True),
        MCDropoutClassifier(**OPEN, network=MLP((5,))),
    ):
        job = training_job(model, training_data(model, X, y))
        assert not job.needs_selection


@pytest.mark.parametrize(
    "model, below",
    [
        (BBBClassifier(**OPEN), 0),
        (MCDropoutClassifier(**OPEN), 5_000),
        (MCDropoutClassifier(**OPEN, dropout="auto"), 5_000),
        (VariationalDropoutClassifier(**OPEN), 5_000),
        (AnchoredEnsembleClassifier(**OPEN), 5_000),
        (MCDropoutRegressor(**OPEN), 0),
        (BBBRegressor(**OPEN), 0),
    ],
)
def test_of_many_rows_no_length_is_chosen(model, below, seed):
    X = np.random.default_rng(seed).normal(size=(below + 30, 2))
    y = (X[:, 0] > 0).astype(int)
    for n_rows in (30, below - 1, below):
        if n_rows > 0:
            job = training_job(model, training_data(model, X[:n_rows], y[:n_rows]))
            assert len(lengths_of(job)) == (len(SHARES) if n_rows < below else 1)


@pytest.mark.parametrize(
    "model",
    [
        VariationalDropoutRegressor(**OPEN),
        MCDropoutRegressor(**OPEN, dropout="auto"),
    ],
)
@pytest.mark.parametrize(
    "n_rows, n_folds", [(699, 5), (700, 2), (4_999, 2), (5_000, 1)]
)
def test_regressors_that_learn_rates_choose_of_all_rows(model, n_rows, n_folds, seed):
    """Of many by one part; however many there are."""
    X = np.random.default_rng(seed).normal(size=(n_rows, 2))
    job = training_job(model, training_data(model, X, X[:, 0]))
    assert len(lengths_of(job)) == len(SHARES)
    for without in _selection._fold_jobs(job):
        assert len(without.row_subsets) == n_folds


def test_a_tenth_of_few_epochs_is_one_at_least(seed):
    """Rounded up: there is no fit of no epoch."""
    X = np.random.default_rng(seed).normal(size=(4_000, 2))
    y = (X[:, 0] > 0).astype(int)
    model = MCDropoutClassifier(**OPEN, dropout="auto", batch_size=1)
    job = training_job(model, training_data(model, X, y))
    assert lengths_of(job) == (10, 3, 1)


# ---- CUDA


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [MCDropoutClassifier, MCDropoutRegressor])
def test_devices_choose_alike(kind, table, seed):
    """Held-out rows say on a GPU what they say on a CPU, and so do the fits.

    Where the training draws nothing: its noise is another one on every device.
    """
    X, y = smooth(seed, 0.5) if kind is MCDropoutRegressor else table
    settings = EXACT | {"dropout": 0.0, "random_state": seed}
    here = kind(**settings)
    there = kind(**settings | {"device": "cuda"})
    np.testing.assert_allclose(
        scores_of(there, X, y, device=torch.device("cuda"))[0],
        scores_of(here, X, y)[0],
        **CLOSE,
    )
    here.fit(X, y)
    there.fit(X, y)
    np.testing.assert_allclose(there.length_scale_, here.length_scale_)
    assert there.n_iter_ == here.n_iter_
    np.testing.assert_allclose(
        there.log_predictive_density(X, y), here.log_predictive_density(X, y), **CLOSE
    )


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [*KINDS, *REGRESSORS])
def test_defaults_on_a_gpu(kind, table, seed):
    """What nobody has set, but for the device: it repeats, and says so on a CPU."""
    X, y = smooth(seed, 0.5) if kind in REGRESSORS else table
    model = kind(max_iter=20, device="cuda", random_state=seed).fit(X, y)
    density = model.log_predictive_density(X, y)
    again = clone(model).fit(X, y).log_predictive_density(X, y)
    np.testing.assert_array_equal(again, density)
    here = model.set_params(device="cpu").log_predictive_density(X, y)
    # Rounding of float32, over stds.
    np.testing.assert_allclose(here, density, rtol=1e-3, atol=1e-3)
