"""Selection on held-out rows: length scale, number of epochs, observation noise."""

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
from skbayesnn.networks import MLP

ROWS, INPUTS, N_FOLDS, N_DRAWS = 46, 3, 5, 50
# The first is used if nothing is selected.
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
# Rounding of sums in another order, which grows with the training steps.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
# Settings that single fits and batched fits have in common.
EXACT = {
    "hidden_layer_sizes": (7,),
    "max_iter": 30,
    "n_draws": N_DRAWS,
    "device": "cpu",
    "dtype": "float64",
}
pytestmark = pytest.mark.filterwarnings("ignore:the predictions are")


@pytest.fixture
def table(seed):
    """X, and labels of three classes that overlap."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, INPUTS))
    noise = random.normal(size=ROWS)
    y = np.array(["a", "b", "c"])[np.argsort(np.argsort(X[:, 0] + noise)) * 3 // ROWS]
    return X, y


def folds(X, y):
    """Number of the fold of every row, for the data that ``fit`` sees."""
    return _selection.selection_folds(X, np.unique(y, return_inverse=True)[1])


def held_out_scores_of(model, *rows, device=CPU):
    """Log densities of all settings of a job, and the job."""
    job = training_job(model, training_data(model, *rows))
    [results] = _selection.held_out_scores([job], [device])
    return [result.score for result in results], job


def candidate_scales(job):
    """The candidates of the length scale, each the same for all layers."""
    assert {setting.n_epochs for setting in job.settings} <= set(job.members.n_epochs)
    return tuple(
        float(np.unique(setting.length_scale).item()) for setting in job.settings
    )


def candidate_epochs(job):
    """The candidate numbers of epochs, the largest first."""
    return tuple(dict.fromkeys(setting.n_epochs for setting in job.settings))


# ---- folds


def test_folds_are_stratified_by_class(table):
    X, y = table
    fold = folds(X, y)
    fold_by_class = [fold[y == label] for label in "abc"]
    counts = np.array(
        [
            np.bincount(folds_of_class, minlength=N_FOLDS)
            for folds_of_class in fold_by_class
        ]
    )
    assert counts.sum() == ROWS
    assert (np.ptp(counts, axis=1) <= 1).all() and np.ptp(counts.sum(0)) <= 1


def test_folds_depend_on_the_values_of_the_rows_alone(table, seed):
    """Not on their order, repetition or units, nor on sparse storage."""
    X, y = table
    X[:, 1] = np.maximum(X[:, 1], 0)
    fold = folds(X, y)
    random = np.random.default_rng(seed)
    repeated = random.integers(0, ROWS, size=3 * ROWS)
    for rows in (random.permutation(ROWS), np.concatenate([np.arange(ROWS), repeated])):
        np.testing.assert_array_equal(folds(X[rows], y[rows]), fold[rows])
    np.testing.assert_array_equal(folds(sparse.csr_array(X), y), fold)
    np.testing.assert_array_equal(folds(X.astype(np.float32), y), fold)
    np.testing.assert_array_equal(folds(1e3 * X - 5, y), fold)


@pytest.mark.parametrize(
    "labels, held_out",
    [("aaaab", "aaaa"), ("abc", ""), ("aabbc", "aabb")],
)
def test_single_row_of_a_class_is_not_held_out(labels, held_out):
    """The training rows of every fold contain all classes."""
    y = np.array(list(labels))
    fold = folds(np.arange(len(y), dtype=float)[:, None], y)
    assert "".join(y[fold >= 0]) == held_out
    for k in np.unique(fold[fold >= 0]):
        assert set(y[fold != k]) == set(labels)


# ---- the length scale


def _out_of_fold(model, X, y, weights):
    """Sum of the log densities of all rows, each by a single fit without its fold."""
    total, fold = 0.0, folds(X, y)
    for k in range(N_FOLDS):
        train, test = fold != k, fold == k
        model.fit(X[train], y[train], sample_weight=weights[train])
        proba = model.predict_proba(X[test])
        codes = np.searchsorted(model.classes_, y[test])
        total += np.dot(weights[test], np.log(proba[np.arange(len(codes)), codes]))
    return total


@pytest.mark.parametrize("kind", KINDS)
def test_scores_equal_single_fits_without_the_folds(kind, table, seed):
    """Up to rounding: float64, and X is not scaled, which would depend on the fold."""
    X, y = table
    weights = np.random.default_rng(seed).integers(1, 4, size=ROWS).astype(float)
    settings = EXACT | {"standardize": False, "random_state": seed}
    expected = [
        _out_of_fold(kind(length_scale=scale, **settings), X, y, weights)
        for scale in SCALES
    ]
    model = kind(**settings)
    scores, job = held_out_scores_of(model, X, y, weights)
    assert candidate_scales(job) == SCALES
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    assert model.fit(X, y, weights).length_scale_ == SCALES[np.argmax(expected)]


@pytest.mark.parametrize("separated, scale", [(True, 0.3), (False, 3.0)])
def test_length_scale_follows_the_separation_of_classes(separated, scale, seed):
    """A wide prior for well separated classes, a narrow one for random labels."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.arange(60) % 2)
    X = random.normal(size=(60, 4)) + 6 * separated * y[:, None]
    model = MCDropoutClassifier(device="cpu", random_state=seed).fit(X, y)
    assert model.length_scale_ == scale


def test_scores_with_weights_equal_those_with_repeated_rows(table, seed):
    """Sample weights and class weights count in the sum of the held-out densities."""
    X, y = table
    counts = np.random.default_rng(seed).integers(0, 3, size=ROWS)
    counts[[np.flatnonzero(y == label)[0] for label in "abc"]] = 2
    rows = np.repeat(np.arange(ROWS), counts)
    scores = []
    for arguments in ((X, y, counts), (X[rows], y[rows], None)):
        model = MCDropoutClassifier(
            class_weight={"a": 2.0, "b": 0.5}, **EXACT, random_state=seed
        )
        scores.append(held_out_scores_of(model, *arguments)[0])
    # Repeated rows get other masks: the scores agree up to the random numbers of the
    # draws and of 30 steps, and differ much from the scores with weights of one.
    np.testing.assert_allclose(*scores, rtol=0.1)


def test_no_selection_if_scale_is_given_or_follows_a_rule(table):
    X, y = table
    for model in (
        MCDropoutClassifier(**EXACT, length_scale=[0.7, 0.2]),
        MCDropoutClassifier(**EXACT, length_scale="fan_in"),
        AnchoredEnsembleClassifier(**EXACT, noisy_targets=False),
    ):
        job = training_job(model, training_data(model, X, y))
        assert not job.needs_selection


def test_scale_is_selected_with_fewer_than_200_rows(seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(201, 2))
    y = (X[:, 0] > 0).astype(int)
    model = MCDropoutClassifier(**EXACT, random_state=seed)
    for n_rows, scales in ((199, SCALES), (200, (1.0,)), (201, (1.0,))):
        job = training_job(model, training_data(model, X[:n_rows], y[:n_rows]))
        assert candidate_scales(job) == scales
        np.testing.assert_array_equal(job.length_scale, [1.0, 1.0])


def test_default_scale_if_no_row_can_be_held_out():
    model = MCDropoutClassifier(**EXACT, random_state=0)
    model.fit([[0.0, 1.0], [1.0, 2.0], [2.0, 0.5]], ["a", "b", "c"])
    assert model.length_scale_ == 1.0


def test_scales_whose_networks_diverge_are_not_selected(table, seed, monkeypatch):
    X, y = table
    train = _selection.train

    def all_but_the_last_fail(*args, **options):
        trained = train(*args, **options)
        trained.failed[np.arange(len(trained.failed)) % 3 < 2] = 1
        return trained

    monkeypatch.setattr(_selection, "train", all_but_the_last_fail)
    model = MCDropoutClassifier(**EXACT, random_state=seed).fit(X, y)
    assert model.length_scale_ == SCALES[-1]


def test_early_stopping_rows_do_not_affect_the_scale(table, seed):
    """The networks of the folds train without early stopping."""
    X, y = table
    model = MCDropoutClassifier(early_stopping=True, **EXACT, random_state=seed)
    model.fit(X, y, X_val=X[:4] + 9, y_val=y[:4])
    without = MCDropoutClassifier(**EXACT, random_state=seed).fit(X, y)
    assert model.length_scale_ == without.length_scale_


def test_warm_start_and_partial_fit_keep_the_scale(table, seed):
    X, y = table
    model = MCDropoutClassifier(warm_start=True, **EXACT, random_state=seed)
    scale = model.fit(X, y).length_scale_
    model.fit(X[:9], y[:9])
    assert model.length_scale_ == scale
    model.partial_fit(X[9:], y[9:])
    assert model.length_scale_ == scale


def test_first_partial_fit_takes_the_default_scale(table):
    """The number of rows to come is unknown."""
    X, y = table
    model = MCDropoutClassifier(**EXACT, random_state=0)
    for rows in (slice(0, 20), slice(20, None)):
        model.partial_fit(X[rows], y[rows], classes=["a", "b", "c"])
        assert model.length_scale_ == 1.0


def test_interrupted_selection_leaves_the_estimator_unchanged(table, monkeypatch):
    X, y = table

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    model = MCDropoutClassifier(warm_start=True, **EXACT, random_state=0)
    monkeypatch.setattr(_selection, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not hasattr(model, "length_scale_")


def test_networks_of_the_folds_do_not_warn(table, seed):
    """A fit gives at most one convergence warning."""
    X, y = table
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        MCDropoutClassifier(**EXACT, random_state=seed).fit(X, y)
    assert (
        len([warning for warning in caught if warning.category is ConvergenceWarning])
        <= 1
    )


# ---- the length scale of regressors


def smooth(seed, noise, n_rows=90):
    """X, and a smooth y with noise."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, size=(n_rows, 2))
    return X, np.sin(3 * X[:, 0]) * X[:, 1] + noise * random.normal(size=n_rows)


@pytest.mark.parametrize(("noise", "wide"), [(0.0, True), (3.0, False)])
def test_length_scale_of_regressor_follows_the_noise(noise, wide, seed):
    """The widest prior without noise, a narrower one if noise dominates y."""
    X, y = smooth(seed, noise)
    model = MCDropoutRegressor(device="cpu", random_state=seed).fit(X, y)
    assert (np.asarray(model.length_scale_) == 1.0).all() == wide


def test_candidate_equal_to_the_rule_appears_once():
    """With 16 columns and 64 to 144 rows."""
    X = np.random.default_rng(0).normal(size=(100, 16))
    model = MCDropoutRegressor((16,), device="cpu")
    assert candidate_scales(training_job(model, training_data(model, X, X[:, 0]))) == (
        4.0,
        1.0,
    )


@pytest.mark.parametrize("chosen", [0, 2])
def test_partial_fit_keeps_selected_scale_or_follows_the_rule(
    chosen, seed, monkeypatch
):
    X, y = smooth(seed, 0.1)
    monkeypatch.setattr(_selection, "best_setting", lambda job, scores_from: chosen)
    settings = EXACT | {"hidden_layer_sizes": (40,), "likelihood": "gaussian"}
    model = MCDropoutRegressor(**settings, random_state=seed).fit(X[:30], y[:30])
    fan_ins = np.array([2, 40])
    for n_rows in (60, 90):
        model.partial_fit(X[n_rows - 30 : n_rows], y[n_rows - 30 : n_rows])
        scale_of_rule = defaults_of(model).length_scale.scales(fan_ins, float(n_rows))
        expected = 1.0 if chosen == 2 else scale_of_rule
        np.testing.assert_array_equal(model.length_scale_, expected)


# ---- the number of epochs

SHARES = (1.0, 0.25, 0.1)
AUTO_EPOCHS = EXACT | {
    "max_iter": "auto",
    "hidden_layer_sizes": (5,),
    "length_scale": 1.0,
}
EPOCH_KINDS = [
    MCDropoutClassifier,
    VariationalDropoutClassifier,
    AnchoredEnsembleClassifier,
]


@pytest.mark.parametrize("kind", EPOCH_KINDS)
def test_candidates_of_few_rows_are_all_epochs_a_quarter_and_a_tenth(kind, table):
    X, y = table
    model = kind(**AUTO_EPOCHS)
    job = training_job(model, training_data(model, X, y))
    n_epochs = job.members.n_epochs[0]
    expected = tuple(int(np.ceil(share * n_epochs)) for share in SHARES)
    assert candidate_epochs(job) == expected and len(job.settings) == len(SHARES)


@pytest.mark.parametrize("kind", EPOCH_KINDS[:2])
def test_scales_and_shorter_trainings_share_the_first_candidate(kind, table):
    X, y = table
    model = kind(**AUTO_EPOCHS | {"length_scale": "auto"})
    job = training_job(model, training_data(model, X, y))
    pairs = [(setting.length_scale[0], setting.n_epochs) for setting in job.settings]
    most, *shorter = candidate_epochs(job)
    assert pairs == [*((scale, most) for scale in SCALES), *((1.0, n) for n in shorter)]


def scores_from(*densities, weights=None):
    """Held-out scores of each setting from log densities of rows."""
    rows = np.ones(len(densities[0])) if weights is None else np.asarray(weights, float)
    return [HeldOutScore(np.asarray(density, float), rows) for density in densities]


def test_shorter_training_needs_to_be_better_by_a_standard_error(table):
    """By more than the standard error of the sum of differences over rows."""
    X, y = table
    model = MCDropoutClassifier(**AUTO_EPOCHS)
    job = training_job(model, training_data(model, X, y))
    most, quarter, tenth = candidate_epochs(job)
    none = np.full(4, -np.inf)
    for densities, n_epochs in (
        # A sum of 2 with an error of 2 sqrt(3 / 4), and then a larger error.
        (([0, 0, 0, 0], [2, 0, 0, 0], none), quarter),
        (([0, 0, 0, 0], [2, -1, -1, 1], none), most),
        (([0, 0, 0, 0], [2, 0, 0, 0], [1, 1, 1, 1]), tenth),
        # The last is better, but within the error.
        (([0, 0, 0, 0], [1, 1, 1, 1], [9, -1, -2, -1]), quarter),
        ((none, none, none), most),
        ((none, [-9, -9, -9, -9], [-8, -8, -9, -9]), tenth),
        ((np.full(4, np.nan), [-9, -9, -9, -9], none), quarter),
    ):
        chosen = _selection._with_best_setting(job, scores_from(*densities))[0]
        assert set(chosen.members.n_epochs) == {n_epochs}
        assert chosen.predictive_params is None and not chosen.settings


def test_standard_error_with_weights_equals_repeated_rows(seed):
    """Weights are counts of rows."""
    random = np.random.default_rng(seed)
    counts = random.integers(0, 4, size=30)
    longest = random.normal(size=30)
    for shift in np.linspace(-0.5, 0.5, 21):
        shorter = longest + shift + random.normal(size=30)
        score, reference = scores_from(shorter, longest, weights=counts)
        repeated = [np.repeat(values, counts) for values in (shorter, longest)]
        shorter_repeated, longest_repeated = scores_from(*repeated)
        difference = repeated[0] - repeated[1]
        expected = difference.mean() > difference.std() / np.sqrt(len(difference))
        assert score.is_better_than(reference) == shorter_repeated.is_better_than(
            longest_repeated
        )
        assert score.is_better_than(reference) == expected


def test_scores_equal_fits_with_given_epochs(table, seed):
    """Exact but for rounding, which grows with the steps."""
    X, y = table
    settings = AUTO_EPOCHS | {"standardize": False, "random_state": seed}
    model = MCDropoutClassifier(**settings)
    scores, job = held_out_scores_of(model, X, y)
    weights = np.ones(ROWS)
    expected = [
        _out_of_fold(MCDropoutClassifier(**settings | {"max_iter": n}), X, y, weights)
        for n in candidate_epochs(job)
    ]
    np.testing.assert_allclose(scores, expected, rtol=1e-4)


def test_random_labels_select_the_shortest_training(seed):
    """Labels that follow from X select the longest."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(300, 8))
    selected = []
    for y in (random.permutation(np.arange(300) % 2), (X[:, 0] > X[:, 1]).astype(int)):
        model = MCDropoutClassifier(device="cpu", random_state=seed).fit(X, y)
        job = training_job(model, training_data(model, X, y))
        selected.append(candidate_epochs(job).index(model.n_iter_))
    assert selected[0] == 2 and selected[1] == 0


@pytest.mark.parametrize("n_rows, n_folds", [(699, 5), (700, 2)])
def test_two_folds_are_held_out_from_700_rows_on(n_rows, n_folds, seed):
    X = np.random.default_rng(seed).normal(size=(n_rows, 2))
    y = (X[:, 0] > 0).astype(int)
    model = MCDropoutClassifier(**AUTO_EPOCHS, random_state=seed)
    job = training_job(model, training_data(model, X, y))
    for fold_job in _selection._fold_jobs(job):
        assert len(fold_job.row_subsets) == n_folds
        assert fold_job.n_members == n_folds * len(fold_job.settings)
    held_out = np.concatenate([share.held_out_rows for share in fold_job.row_subsets])
    assert len(np.unique(held_out)) == len(held_out)
    assert abs(len(held_out) - n_rows * n_folds / N_FOLDS) <= n_folds


def test_batched_fits_select_the_epochs_of_single_fits(seed):
    """Jobs with few rows and with more, trained together."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(230, INPUTS))
    y = (X[:, 0] + random.normal(size=230) > 0).astype(int)
    settings = AUTO_EPOCHS | {
        "max_iter": "auto",
        "length_scale": "auto",
        "batch_size": 115,
    }
    models = [MCDropoutClassifier(**settings, random_state=seed + i) for i in range(2)]
    rows = [slice(0, 190), slice(0, 230)]
    data = [
        training_data(model, X[subset], y[subset])
        for model, subset in zip(models, rows, strict=True)
    ]
    jobs = [
        training_job(model, table) for model, table in zip(models, data, strict=True)
    ]
    assert [len(job.settings) for job in jobs] == [5, 3]
    together = _fit.train_together(models, jobs)
    for model, subset, fitted in zip(models, rows, together, strict=True):
        single = model.fit(X[subset], y[subset])
        np.testing.assert_array_equal(fitted.job.length_scale[:1], single.length_scale_)
        assert fitted.job.members.n_epochs[0] == single.n_iter_


def test_epochs_are_not_selected_if_given_or_with_early_stopping(table):
    X, y = table
    for model in (
        MCDropoutClassifier(**AUTO_EPOCHS | {"max_iter": 30}),
        MCDropoutClassifier(**AUTO_EPOCHS, early_stopping=True),
        MCDropoutClassifier(**AUTO_EPOCHS, network=MLP((5,))),
    ):
        job = training_job(model, training_data(model, X, y))
        assert not job.needs_selection


@pytest.mark.parametrize(
    "model, below",
    [
        (BBBClassifier(**AUTO_EPOCHS), 0),
        (MCDropoutClassifier(**AUTO_EPOCHS), 5_000),
        (MCDropoutClassifier(**AUTO_EPOCHS, dropout="auto"), 5_000),
        (VariationalDropoutClassifier(**AUTO_EPOCHS), 5_000),
        (AnchoredEnsembleClassifier(**AUTO_EPOCHS), 5_000),
        (MCDropoutRegressor(**AUTO_EPOCHS), 0),
        (BBBRegressor(**AUTO_EPOCHS), 0),
    ],
)
def test_epochs_are_selected_below_a_number_of_rows(model, below, seed):
    X = np.random.default_rng(seed).normal(size=(below + 30, 2))
    y = (X[:, 0] > 0).astype(int)
    for n_rows in (30, below - 1, below):
        if n_rows > 0:
            job = training_job(model, training_data(model, X[:n_rows], y[:n_rows]))
            assert len(candidate_epochs(job)) == (len(SHARES) if n_rows < below else 1)


@pytest.mark.parametrize(
    "model",
    [
        VariationalDropoutRegressor(**AUTO_EPOCHS),
        MCDropoutRegressor(**AUTO_EPOCHS, dropout="auto"),
    ],
)
@pytest.mark.parametrize(
    "n_rows, n_folds", [(699, 5), (700, 2), (4_999, 2), (5_000, 1)]
)
def test_regressors_that_learn_rates_select_epochs_for_any_number_of_rows(
    model, n_rows, n_folds, seed
):
    """With many rows only one fold is held out."""
    X = np.random.default_rng(seed).normal(size=(n_rows, 2))
    job = training_job(model, training_data(model, X, X[:, 0]))
    assert len(candidate_epochs(job)) == len(SHARES)
    for fold_job in _selection._fold_jobs(job):
        assert len(fold_job.row_subsets) == n_folds


def test_candidate_numbers_of_epochs_are_rounded_up(seed):
    """No candidate has zero epochs."""
    X = np.random.default_rng(seed).normal(size=(4_000, 2))
    y = (X[:, 0] > 0).astype(int)
    model = MCDropoutClassifier(**AUTO_EPOCHS, dropout="auto", batch_size=1)
    job = training_job(model, training_data(model, X, y))
    assert candidate_epochs(job) == (10, 3, 1)


# ---- the fit with the selected settings

SELECTING = [
    *(kind(**EXACT, n_estimators=2) for kind in KINDS),
    *(kind(**AUTO_EPOCHS) for kind in EPOCH_KINDS),
    *(
        MCDropoutRegressor(**EXACT, likelihood=name, n_estimators=2)
        for name in ("gaussian", "poisson")
    ),
]


@pytest.mark.parametrize("chosen", [0, 1, 2])
@pytest.mark.parametrize("model", SELECTING, ids=lambda model: type(model).__name__)
def test_fit_equals_fit_with_the_selected_settings(
    model, chosen, table, seed, monkeypatch
):
    """Means of regressors, whose noise is estimated on the held-out rows."""
    X, y = table
    method = "predict_proba"
    if isinstance(model, MCDropoutRegressor):
        X, y = smooth(seed, 0.1)
        y, method = np.exp(y).round() if model.likelihood == "poisson" else y, "predict"
    monkeypatch.setattr(
        _selection, "best_setting", lambda job, _: min(chosen, len(job.settings) - 1)
    )
    model = clone(model).set_params(random_state=seed).fit(X, y)
    settings = training_job(model, training_data(model, X, y)).settings
    setting = settings[min(chosen, len(settings) - 1)]
    assert model.n_iter_ == setting.n_epochs
    np.testing.assert_array_equal(
        np.resize(model.length_scale_, len(setting.length_scale)), setting.length_scale
    )
    given = {"length_scale": model.length_scale_, "max_iter": model.n_iter_}
    fixed = clone(model).set_params(**given).fit(X, y)
    np.testing.assert_array_equal(getattr(model, method)(X), getattr(fixed, method)(X))
    decay = [fitted.weight_decay_ * fitted.tau_ for fitted in (model, fixed)]
    np.testing.assert_allclose(*decay, rtol=1e-12)


# ---- CUDA


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [MCDropoutClassifier, MCDropoutRegressor])
def test_devices_select_alike(kind, table, seed):
    """Held-out scores and fits agree on a CPU and a GPU.

    Without dropout, since random numbers differ between devices.
    """
    X, y = smooth(seed, 0.5) if kind is MCDropoutRegressor else table
    settings = EXACT | {"dropout": 0.0, "random_state": seed}
    on_cpu = kind(**settings)
    on_gpu = kind(**settings | {"device": "cuda"})
    np.testing.assert_allclose(
        held_out_scores_of(on_gpu, X, y, device=torch.device("cuda"))[0],
        held_out_scores_of(on_cpu, X, y)[0],
        **CLOSE,
    )
    on_cpu.fit(X, y)
    on_gpu.fit(X, y)
    np.testing.assert_allclose(on_gpu.length_scale_, on_cpu.length_scale_)
    assert on_gpu.n_iter_ == on_cpu.n_iter_
    np.testing.assert_allclose(
        on_gpu.log_predictive_density(X, y),
        on_cpu.log_predictive_density(X, y),
        **CLOSE,
    )


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [*KINDS, *REGRESSORS])
def test_defaults_on_a_gpu(kind, table, seed):
    """Default parameters: a fit repeats exactly, and a CPU predicts the same."""
    X, y = smooth(seed, 0.5) if kind in REGRESSORS else table
    model = kind(max_iter=20, device="cuda", random_state=seed).fit(X, y)
    density = model.log_predictive_density(X, y)
    repeated = clone(model).fit(X, y).log_predictive_density(X, y)
    np.testing.assert_array_equal(repeated, density)
    on_cpu = model.set_params(device="cpu").log_predictive_density(X, y)
    # Rounding of float32, divided by standard deviations.
    np.testing.assert_allclose(on_cpu, density, rtol=1e-3, atol=1e-3)
