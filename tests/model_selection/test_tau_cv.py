"""TauCV equals scikit-learn's grid search over tau, and a plain fit afterwards."""

import io
import pickle
import re
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning, NotFittedError
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    parametrize_with_checks,
)

import skbayesnn
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
from skbayesnn._batch import executor
from skbayesnn.model_selection import BatchedGridSearchCV, TauCV
from skbayesnn.scoring import log_density_scorer, neg_crps_scorer
from tests.helpers.comparison import (
    ROUNDING_32,
    SEED,
    SMALL,
    assert_close,
    assert_same_state,
    fitted_state,
    quiet,
)
from tests.helpers.searches import STOPPING

TAUS = [0.5, 2.0, 8.0, 3.0]
NETWORK_CLASSES = [
    MCDropoutRegressor,
    MCDropoutClassifier,
    BBBRegressor,
    BBBClassifier,
    VariationalDropoutRegressor,
    VariationalDropoutClassifier,
    AnchoredEnsembleRegressor,
    AnchoredEnsembleClassifier,
    VariationalGPRegressor,
]
OF_TAU_CV = {"taus", "cv", "scoring", "n_jobs", "verbose"}


def new(network_class=MCDropoutRegressor, **parameters):
    """TauCV around a small network; ``parameters`` for either."""
    options = {"taus": TAUS, "cv": 3}
    options |= {name: value for name, value in parameters.items() if name in OF_TAU_CV}
    network = {n: value for n, value in parameters.items() if n not in OF_TAU_CV}
    shared = {n: v for n, v in SMALL.items() if n in network_class().get_params()}
    return TauCV(network_class(**shared | network), **options)


def plain_of(model, **parameters):
    """An unfitted copy of the estimator inside.

    A plain classifier would select its length scale with few rows. TauCV fixes it,
    since tau has the same effect.
    """
    network = clone(model.estimator)
    scale = network.length_scale
    if is_classifier(network) and isinstance(scale, str) and scale == "auto":
        if not isinstance(network, AnchoredEnsembleClassifier):
            network.set_params(length_scale=1.0)
    return network.set_params(**parameters)


def target(model, data):
    return data.labels if is_classifier(model) else data.y


def scores_of(search):
    """Test scores, (candidates, folds)."""
    names = [f"split{i}_test_score" for i in range(search.n_splits_)]
    return np.stack([search.cv_results_[name] for name in names], axis=1)


def searched(model, X, y, search_class=GridSearchCV, taus=None, **fit):
    """A fitted search over the same candidates."""
    search = search_class(
        plain_of(model),
        {"tau": TAUS if taus is None else taus},
        scoring=model.scoring or log_density_scorer,
        cv=model.cv,
    )
    with quiet():
        return search.fit(X, y, **fit)


def assert_same(model, search, tolerance=None):
    """The path and the best estimator equal a search."""
    tolerance = {} if tolerance is None else {"tolerance": tolerance}
    assert_close(scores_of(search), model.scores_, **tolerance)
    assert_close(search.best_score_, model.best_score_, **tolerance)
    np.testing.assert_array_equal(model.tau_, search.best_params_["tau"])
    np.testing.assert_array_equal(model.taus_, list(search.param_grid["tau"]))
    expected, state = map(fitted_state, (search.best_estimator_, model.best_estimator_))
    assert_same_state(expected, state, **tolerance)


# ---- comparison with a search


@pytest.mark.parametrize("network_class", NETWORK_CLASSES)
@pytest.mark.parametrize("search", [GridSearchCV, BatchedGridSearchCV])
def test_equals_a_search(data, network_class, search):
    model = new(network_class)
    with quiet():
        model.fit(data.X, target(model, data))
    assert_same(model, searched(model, data.X, target(model, data), search))


@pytest.mark.parametrize(
    "options",
    [
        {"n_estimators": 2, "likelihood": "heteroscedastic", "standardize": False},
        {"dropout": "auto", "length_scale": 0.1},
        {"early_stopping": True, "validation_fraction": 0.3, "n_iter_no_change": 2},
        {"scoring": "r2", "cv": ShuffleSplit(2, random_state=SEED), "n_jobs": 2},
        {"scoring": neg_crps_scorer, "cv": [(np.arange(30), np.arange(30, 41))]},
        {"scoring": make_scorer(mean_absolute_error, greater_is_better=False)},
    ],
)
def test_options_equal_a_search(data, options):
    model = new(**options).fit(data.X, data.y)
    assert_same(model, searched(model, data.X, data.y))


@pytest.mark.parametrize("kind", ["float32", "sparse", "frame"])
def test_types_of_tables(data, kind):
    X, y = data.X, data.y
    if kind == "sparse":
        X = sparse.csr_array(X)
    elif kind == "frame":
        X, y = pd.DataFrame(X, columns=list("abcd")), pd.Series(y, index=-np.arange(47))
    else:
        X = X.astype(kind)
    single = kind == "float32"
    model = new(**{"dtype": "float32"} if single else {}).fit(X, y)
    assert_same(model, searched(model, X, y), ROUNDING_32 if single else None)
    assert model.n_features_in_ == 4
    assert hasattr(model, "feature_names_in_") == (kind == "frame")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("network_class", NETWORK_CLASSES)
def test_precision_of_the_training(data, network_class, dtype):
    """Of the path and of the final fit, whatever the dtype of X."""
    for X in (data.X, data.X.astype(np.float32)):
        model = new(network_class, dtype=dtype, taus=TAUS[:2], cv=2)
        with quiet():
            model.fit(X, target(model, data))
        arrays = {
            n: v for n, v in model.best_estimator_.parameters_.items() if n != "keep"
        }
        assert {values.dtype.name for values in arrays.values()} == {dtype}
        plain = plain_of(model, tau=model.tau_)
        assert plain.dtype == dtype
        assert model.predict_uncertainty(X).dtype == (
            np.float64 if is_classifier(model) else X.dtype
        )


@pytest.mark.parametrize("taus", [TAUS, [[0.5, 0.01], [2.0, 0.005], [4.0, 0.02]]])
def test_several_targets(data, taus):
    """With a common tau, or with a tau for each target."""
    model = new(taus=taus).fit(data.X, data.Y)
    search = searched(model, data.X, data.Y, taus=taus)
    # A single tau is used for each target.
    assert_close(scores_of(search), model.scores_)
    np.testing.assert_array_equal(
        model.tau_, np.broadcast_to(search.best_params_["tau"], 2)
    )
    assert_close(search.predict(data.X_new), model.predict(data.X_new))
    assert model.taus_.shape == np.shape(taus)


@pytest.mark.parametrize("network_class", NETWORK_CLASSES)
def test_path_is_trained_in_one_program(data, programs, network_class):
    """If all folds have the same size; also ensembles, whose networks have anchors."""
    model = new(network_class, cv=ShuffleSplit(5, train_size=30, random_state=0))
    with quiet():
        model.fit(data.X, target(model, data))
    assert programs == [(len(TAUS) * 5, None)]


def test_groups(data):
    model = new(cv=GroupKFold(3)).fit(data.X, data.y, groups=data.groups)
    assert_same(model, searched(model, data.X, data.y, groups=data.groups))
    with pytest.raises(ValueError, match="groups"):
        new(cv=GroupKFold(3)).fit(data.X, data.y)


@pytest.mark.parametrize("scoring", [None, "r2"])
@pytest.mark.parametrize("routing", [False, True])
def test_early_stopping_does_not_split_groups(data, routing, scoring):
    """In the folds and in the last fit, with the default score and with others."""
    model = new(cv=GroupKFold(3), scoring=scoring, **STOPPING)
    with sklearn.config_context(enable_metadata_routing=routing):
        model.fit(data.X, data.y, groups=data.groups)
    alone = plain_of(model, tau=model.tau_).fit(data.X, data.y, groups=data.groups)
    assert_close(alone.predict(data.X_new), model.predict(data.X_new))
    scorer = log_density_scorer if scoring is None else model.scorer_
    for i, (train, test) in enumerate(GroupKFold(3).split(data.X, groups=data.groups)):
        for tau, score in zip(TAUS, model.scores_[:, i], strict=True):
            single = plain_of(model, tau=tau)
            single.fit(data.X[train], data.y[train], groups=data.groups[train])
            assert_close(scorer(single, data.X[test], data.y[test]), score)


@pytest.mark.parametrize("network_class", [MCDropoutRegressor, MCDropoutClassifier])
def test_validation_rows(data, network_class):
    model = new(network_class, early_stopping=True, n_iter_no_change=2, max_iter=30)
    labels = is_classifier(model)
    y, y_new = (data.labels, data.labels_new) if labels else (data.y, data.y_new)
    held_out = {"X_val": data.X_new, "y_val": y_new}
    model.fit(data.X, y, **held_out)
    assert_same(model, searched(model, data.X, y, **held_out))
    assert_close(
        plain_of(model, tau=model.tau_).fit(data.X, y, **held_out).history_["loss"],
        model.best_estimator_.history_["loss"],
    )


# ---- weights


@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("network_class", [MCDropoutRegressor, MCDropoutClassifier])
def test_weights(data, network_class, routing):
    """In the likelihood and in the default score, in all versions of scikit-learn."""
    model, weights = new(network_class), data.weights
    y = target(model, data)
    with sklearn.config_context(enable_metadata_routing=routing):
        model.fit(data.X, y, sample_weight=weights)
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            plain_of(model).set_fit_request(sample_weight=True),
            {"tau": TAUS},
            scoring=log_density_scorer.set_score_request(sample_weight=True),
            cv=3,
        ).fit(data.X, y, sample_weight=weights)
    assert_same(model, search)


def test_rows_of_weight_zero_are_ignored(data):
    """Also in the default path and its score."""
    X, y, weights = data.X, data.y.copy(), data.weights.copy()
    absent = np.arange(len(y)) % 5 == 0
    y[absent], weights[absent] = 1e3, 0.0
    folds = np.arange(len(y)) % 3
    kept = folds[~absent]
    with_zeros = [
        (np.flatnonzero(folds != i), np.flatnonzero(folds == i)) for i in (0, 1)
    ]
    without = [(np.flatnonzero(kept != i), np.flatnonzero(kept == i)) for i in (0, 1)]
    model = new(cv=with_zeros, taus=5).fit(X, y, sample_weight=weights)
    without_rows = new(cv=without, taus=5).fit(
        X[~absent], y[~absent], sample_weight=weights[~absent]
    )
    for name in ("taus_", "scores_", "tau_"):
        assert_close(getattr(without_rows, name), getattr(model, name))
    assert_close(without_rows.predict(data.X_new), model.predict(data.X_new))


def test_weights_are_routed_to_other_scorers(data):
    """With metadata routing, if the scorer requests them."""
    scores = []
    with sklearn.config_context(enable_metadata_routing=True):
        for requests in (True, False):
            scorer = make_scorer(mean_absolute_error, greater_is_better=False)
            model = new(scoring=scorer.set_score_request(sample_weight=requests))
            model.fit(data.X, data.y, sample_weight=data.weights)
            scores.append(model.scores_)
    assert (scores[0] != scores[1]).all()


def test_weights_and_groups_are_routed_through_an_outer_search(data):
    model = new(cv=GroupKFold(2), dropout=0.1)
    with sklearn.config_context(enable_metadata_routing=True):
        model.estimator.set_fit_request(sample_weight=True)
        search = GridSearchCV(
            clone(model),
            {"estimator__n_draws": [3, 5]},
            cv=GroupKFold(3),
            scoring=log_density_scorer.set_score_request(sample_weight=True),
        ).fit(data.X, data.y, sample_weight=data.weights, groups=data.groups)
    single = clone(model).set_params(**search.best_params_)
    single.fit(data.X, data.y, sample_weight=data.weights, groups=data.groups)
    assert_close(single.scores_, search.best_estimator_.scores_)


# ---- the path


def test_default_path_of_regression(data):
    """From the weighted precision of y to a thousand times that, per target."""
    mean = np.average(data.Y, axis=0, weights=data.weights)
    variance = np.average((data.Y - mean) ** 2, axis=0, weights=data.weights)
    expected = np.geomspace(1, 1000, 4)[:, None] / variance
    model = new(taus=4, standardize=False)
    model.fit(data.X, data.Y, sample_weight=data.weights)
    # Rounding of sums in another order.
    np.testing.assert_allclose(model.taus_, expected, rtol=1e-12)
    assert model.taus_.shape == (4, 2) and model.tau_.shape == (2,)
    model.fit(data.X, data.Y[:, 1], sample_weight=data.weights)
    np.testing.assert_allclose(model.taus_, expected[:, 1], rtol=1e-12)
    assert isinstance(model.tau_, float)


def test_default_path_follows_the_units_of_y(data):
    """Another unit of y gives the same networks, and scores in that unit."""
    model, scaled = (new(taus=4).fit(data.X, c * data.y) for c in (1.0, 1000.0))
    np.testing.assert_allclose(scaled.taus_ * 1e6, model.taus_, rtol=1e-12)
    assert_close(model.scores_ - np.log(1000), scaled.scores_)


def test_default_path_of_classes(data):
    model = new(MCDropoutClassifier, taus=9).fit(data.X, data.labels)
    np.testing.assert_allclose(np.log10(model.taus_), np.linspace(-2, 2, 9), atol=1e-12)
    assert model.taus_[4] == 1.0


def test_constant_target(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = new(taus=3).fit(data.X, np.full(47, 7.0))
    np.testing.assert_allclose(model.taus_, np.geomspace(1, 1000, 3))


@pytest.mark.parametrize(
    "container",
    [tuple, np.array, pd.Series, np.float32, lambda t: np.array(t, dtype=object)],
)
def test_types_of_paths(data, container):
    model = new(taus=container(TAUS), max_iter=1).fit(data.X, data.y)
    np.testing.assert_array_equal(model.taus_, TAUS)
    assert model.taus_.dtype == np.float64


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"taus": 0}, ValueError, r"`taus` must be finite and >= 1; got 0"),
        ({"taus": True}, TypeError, "`taus` must be an integer; got True"),
        ({"taus": 1.5}, TypeError, r"`taus` must be the number .* got 1.5"),
        ({"taus": "auto"}, TypeError, r"`taus` must be the number .* got 'auto'"),
        ({"taus": None}, TypeError, r"`taus` must be the number .* got None"),
        ({"taus": []}, TypeError, r"`taus` must be the number .* got \[\]"),
        ({"taus": [1.0, 0.0]}, ValueError, r"`taus` must be finite and > 0; got 0.0"),
        ({"taus": [1.0, np.nan]}, ValueError, r"`taus` must be finite .* got nan"),
        ({"taus": [1.0, "auto"]}, TypeError, "`taus` must be a number; got 'auto'"),
        ({"taus": [[1.0, 2.0]]}, ValueError, r"^`tau` must be a number; got 2"),
        ({"dropout": 1.2}, ValueError, r"^`dropout` must be in \[0, 1\); got 1.2"),
        ({"verbose": -2}, ValueError, "`verbose` must be >= 0; got -2"),
        ({"cv": 99}, ValueError, "n_splits=99"),
        ({"scoring": "no"}, ValueError, "'no'"),
        (
            {"scoring": ["r2"]},
            TypeError,
            "`scoring` must be None, a name or a callable",
        ),
        ({"scoring": lambda *_: {"a": 1.0}}, ValueError, "one number"),
        ({"random_state": "no"}, ValueError, "'no'"),
        ({"device": "cuda:77"}, ValueError, "^`device` must be available"),
    ],
)
def test_invalid_arguments(data, parameters, error, message):
    """With the messages of the plain estimator."""
    with pytest.raises(error, match=message):
        new(**parameters).fit(data.X, data.y)


def test_label_missing_in_a_training_fold_is_refused(data):
    """Its log probability would be minus infinity; raised before any training."""
    labels = data.labels.copy()
    labels[5] = "new"
    model = new(MCDropoutClassifier, cv=KFold(3))
    message = r"got \['new'\] only in the test rows of fold 0.*fewer folds"
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ValueError, match=message):
            model.fit(data.X, labels)
    assert model.set_params(scoring="accuracy").fit(data.X, labels).scores_.min() >= 0


def test_failed_candidates_are_not_selected(data, monkeypatch):
    trained = executor._trained_fit

    def fail(job, fitted, seconds):
        if fitted.job.tau[0] == 2.0:
            raise FloatingPointError("diverged")
        return trained(job, fitted, seconds)

    monkeypatch.setattr(executor, "_trained_fit", fail)
    with pytest.warns(FitFailedWarning, match="diverged"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "One or more of the test")
        model = new().fit(data.X, data.y)
    np.testing.assert_array_equal(np.isnan(model.scores_).all(1), model.taus_ == 2.0)
    assert model.tau_ != 2.0


# ---- randomness


def test_candidates_share_a_random_seed(data):
    """Without a `random_state`, two fits have different seeds."""
    model = new(taus=[2.0, np.nextafter(2.0, 3.0)], random_state=None)
    first = model.fit(data.X, data.y).scores_
    assert_close(first[0], first[1])
    assert (model.fit(data.X, data.y).scores_ != first).all()


def test_random_state_instance(data, seed):
    """As in scikit-learn, a fit copies it and draws one seed."""
    model = new(random_state=np.random.RandomState(seed))
    draw = np.random.RandomState(seed).randint(2**31 - 1)
    with_integer = new(random_state=int(draw)).fit(data.X, data.y)
    for _ in range(2):
        model.fit(data.X, data.y)
        np.testing.assert_array_equal(model.scores_, with_integer.scores_)
        np.testing.assert_array_equal(
            model.predict(data.X), with_integer.predict(data.X)
        )


def test_best_estimator_equals_a_plain_fit(data):
    model = new().fit(data.X, data.y)
    plain = plain_of(model, tau=model.tau_).fit(data.X, data.y)
    for function in (
        skbayesnn.predict_interval,
        skbayesnn.predict_uncertainty,
        skbayesnn.sample_f,
        skbayesnn.sample_y,
    ):
        np.testing.assert_array_equal(
            function(model, data.X_new), function(plain, data.X_new)
        )
    # Up to rounding of the conversion to standardised units and back.
    assert_close(
        skbayesnn.log_predictive_density(plain, data.X_new, data.y_new),
        model.log_predictive_density(data.X_new, data.y_new),
    )
    assert model.score(data.X, data.y) == plain.score(data.X, data.y)
    assert model.best_estimator_.noise_std_ == plain.noise_std_


# ---- as an estimator


def test_not_fitted(data):
    with pytest.raises(NotFittedError):
        new().predict(data.X)


@pytest.mark.parametrize("format", ["pickle", "joblib", "skops"])
def test_pickled_and_restored(data, format):
    model = new(VariationalDropoutRegressor, cv=KFold(2))
    with quiet():
        model.fit(data.X, data.y)
    if format == "pickle":
        restored = pickle.loads(pickle.dumps(model))
    elif format == "joblib":
        joblib.dump(model, file := io.BytesIO())
        file.seek(0)
        restored = joblib.load(file)
    else:
        skops = pytest.importorskip("skops.io")
        stored = skops.dumps(model)
        untrusted = skops.get_untrusted_types(data=stored)
        restored = skops.loads(stored, trusted=untrusted)
    assert vars(restored).keys() == vars(model).keys()
    np.testing.assert_array_equal(restored.scores_, model.scores_)
    np.testing.assert_array_equal(
        restored.predict(data.X_new), model.predict(data.X_new)
    )


def test_inside_other_estimators(data):
    """In a pipeline, in a search over another parameter, and in cross-validation."""
    pipeline = make_pipeline(StandardScaler(), new())
    grid = {"taucv__estimator__dropout": [0.05, 0.2]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring=log_density_scorer)
    search.fit(data.X, data.y)
    best = search.best_estimator_[-1]
    X = StandardScaler().fit_transform(data.X)
    single = new(dropout=best.estimator.dropout).fit(X, data.y)
    assert_close(single.scores_, best.scores_)
    assert skbayesnn.predict_interval(search, data.X_new).shape == (11, 2)
    scores = cross_val_score(new(), data.X, data.y, cv=2, scoring=log_density_scorer)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("wrong", [{"taus": -1}, {"scoring": lambda *_: np.nan}])
def test_failed_fit_keeps_the_previous_fit(data, wrong):
    model = new().fit(data.X, data.y)
    state, parameters = dict(vars(model)), model.get_params(deep=False)
    with warnings.catch_warnings(), pytest.raises(ValueError):
        warnings.simplefilter("ignore", UserWarning)
        model.set_params(**wrong).fit(data.X[:, :3], data.y)
    model.set_params(**parameters)
    assert vars(model) == state
    model.predict(data.X)


@pytest.mark.parametrize("n_trained", [0, 1])
def test_interrupted_fit_keeps_the_previous_fit(data, monkeypatch, n_trained):
    """Also if a part of the path was trained."""
    monkeypatch.setattr(executor, "MEMBERS_AT_ONCE", 3)
    train_group, trained = executor.train_group, []

    def train(jobs, *others):
        if len(trained) == n_trained:
            raise KeyboardInterrupt
        trained.append(jobs)
        return train_group(jobs, *others)

    folds = ShuffleSplit(3, train_size=30, random_state=0)
    model = new(cv=folds).fit(data.X, data.y)
    state = dict(vars(model))
    monkeypatch.setattr(executor, "train_group", train)
    with pytest.raises(KeyboardInterrupt), warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(data.X[:, :3], data.y)
    assert vars(model) == state


def test_only_the_final_fit_warns(data):
    """The networks of the path are not used for predictions."""
    hopeless = {"max_iter": 1, "learning_rate_init": 1e-9}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        new(BBBRegressor, **hopeless).fit(data.X, data.y)
    assert [warning.category for warning in caught] == [ConvergenceWarning]
    # Worse than a constant, or than a linear model; the first for most seeds.
    assert re.search("SKB10[24]", str(caught[0].message))


def test_progress(data, capsys):
    pytest.importorskip("tqdm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        new(verbose=True).fit(data.X, data.y)
    shown = capsys.readouterr()
    assert f"{len(TAUS) * 3}/{len(TAUS) * 3}" in shown.err
    new().fit(data.X, data.y)
    assert capsys.readouterr() == ("", "")


# ---- scikit-learn's own checks

QUICK = {
    "hidden_layer_sizes": (16,),
    "dtype": "float64",
    "length_scale": 1.0,
    "max_iter": 15,
    "learning_rate_init": 0.1,
    "n_draws": 3,
    "random_state": 0,
}


@pytest.fixture
def generator_restored():
    """Restore NumPy's global generator, from which the checks draw."""
    state = np.random.get_state()
    yield
    np.random.set_state(state)


# Without dropout training is deterministic, and weights equal repeated rows. In some
# checks a class has one row; the default scoring refuses a fold that trains without it.
@pytest.mark.usefixtures("generator_restored")
@parametrize_with_checks(
    [
        TauCV(MCDropoutRegressor(**QUICK, dropout=0.0), taus=2, cv=2),
        TauCV(
            MCDropoutClassifier(**QUICK, dropout=0.0),
            taus=[1.0, 2.0],
            cv=2,
            scoring="accuracy",
        ),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("cv", [3, KFold(3)], ids=["number", "splitter"])
def test_rows_of_weight_zero_are_in_no_fold(data, cv):
    """Also if they would fill a whole fold."""
    n_rows = len(data.X)
    present = np.arange(n_rows) >= n_rows // 2
    weighted = new(cv=cv).fit(data.X, data.y, sample_weight=present.astype(float))
    without_rows = new(cv=cv).fit(data.X[present], data.y[present])
    np.testing.assert_allclose(weighted.scores_, without_rows.scores_, rtol=1e-4)
    assert weighted.tau_ == without_rows.tau_


def test_other_estimators_are_refused():
    """Such as a pipeline, whose network gets another X."""
    network = MCDropoutRegressor(**SMALL)
    for estimator in (make_pipeline(StandardScaler(), network), StandardScaler()):
        with pytest.raises(TypeError, match=r"single network.*last in a Pipeline"):
            TauCV(estimator).fit(np.ones((4, 2)), np.arange(4.0))


def test_methods_equal_the_best_estimator(data):
    """Regressors have no methods of classifiers, and vice versa."""
    regressor = new().fit(data.X, data.y)
    for name in ("predict_interval", "predict_uncertainty", "sample_f", "sample_y"):
        np.testing.assert_array_equal(
            getattr(regressor, name)(data.X_new),
            getattr(regressor.best_estimator_, name)(data.X_new),
        )
    for name, argument in (("predict_quantile", 0.3), ("predictive_cdf", data.y_new)):
        np.testing.assert_array_equal(
            getattr(regressor, name)(data.X_new, argument),
            getattr(regressor.best_estimator_, name)(data.X_new, argument),
        )
    classifier = new(MCDropoutClassifier).fit(data.X, data.labels)
    assert not hasattr(classifier, "predict_interval")
    assert not hasattr(regressor, "predict_proba")
    np.testing.assert_array_equal(
        classifier.predict_proba(data.X_new),
        classifier.best_estimator_.predict_proba(data.X_new),
    )


def test_saved_and_loaded(data):
    for model, y in ((new(), data.y), (new(MCDropoutClassifier), data.labels)):
        loaded = skbayesnn.loads(skbayesnn.dumps(model.fit(data.X, y)))
        np.testing.assert_array_equal(loaded.predict(data.X), model.predict(data.X))
        assert loaded.score(data.X, y) == model.score(data.X, y)


def test_callbacks_get_the_events_of_the_search(data):
    pytest.importorskip("sklearn.callback")
    events = []

    class Recorder:
        requires_fit_predict = False

        def setup(self, estimator, context):
            events.append("setup")

        def teardown(self, estimator, context):
            events.append("teardown")

        def on_fit_task_begin(self, estimator, context, **_):
            events.append(context.task_name)

        def on_fit_task_end(self, estimator, context, **_):
            pass

    new(taus=2, cv=2).set_callbacks(Recorder()).fit(data.X, data.y)
    assert events[0] == "setup" and events[-1] == "teardown"
    assert events.count("setup") == 1 and "fit" in events
