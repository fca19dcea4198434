"""Stacks on more rows than the comparison of their candidates needs."""

from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import PredefinedSplit, TimeSeriesSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skbayesnn
from skbayesnn import (
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    LaplaceRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    interval_target,
)
from skbayesnn._data.sources import in_memory
from skbayesnn._stacking import base, many_rows
from skbayesnn._stacking.forest import ForestRegressor
from skbayesnn._stacking.many_rows import fits_to_all_rows, passes_over_all_rows
from skbayesnn.estimators import _out_of_core
from skbayesnn.estimators._out_of_core import MAX_STEPS
from skbayesnn.estimators._progress import FitProgress
from skbayesnn.estimators._survey import TrainingSource, survey

pandas = pytest.importorskip("pandas", reason="needs pandas")

N, N_SAMPLE = 900, 300


def _frame():
    random = np.random.default_rng(2)
    X = random.normal(size=(N, 3))
    y = X[:, 0] - 0.5 * X[:, 1] ** 2 + 0.2 * random.normal(size=N)
    level = np.array([f"level {i}" for i in range(30)])[np.arange(N) % 30]
    return pandas.DataFrame(X, columns=list("abc")).assign(level=level, y=y)


def _regressor(**params):
    network = MCDropoutRegressor((6,), max_iter=20, n_draws=10)
    pool = [("network", network, {"dropout": [0.05, 0.1]}), ("linear", "fast")]
    return BayesianStackingRegressor(
        pool,
        n_refits=1,
        max_iter=5,
        n_selection_rows=N_SAMPLE,
        random_state=0,
        **params,
    )


@pytest.fixture(scope="module")
def frame():
    return _frame()


@pytest.fixture(scope="module")
def model(frame):
    return _regressor().fit(frame, y="y")


def test_sample_and_all_rows(frame, model):
    """Candidates are compared on the sample; networks are fitted to all rows."""
    assert len(model.sample_rows_) == len(model.oof_prediction_) == N_SAMPLE
    assert (np.diff(model.sample_rows_) > 0).all()
    networks = [m for m in model.estimators_ if isinstance(m, MCDropoutRegressor)]
    assert networks
    for network in networks:
        assert network.total_weight_ == N
    assert model.n_features_in_ == 4
    X = frame.drop(columns="y")
    assert np.isfinite(model.predict_interval(X[:5])).all()
    assert model.score(X, frame["y"]) > 0.5


def test_source_and_table_give_the_same(frame, model, tmp_path):
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    other = _regressor().fit(tmp_path / "rows.parquet", y="y")
    np.testing.assert_array_equal(other.sample_rows_, model.sample_rows_)
    X = frame.drop(columns="y")[:50]
    # float32 and float64 weights of the candidates' encoded columns.
    np.testing.assert_allclose(other.predict(X), model.predict(X), rtol=1e-4, atol=1e-4)


@pytest.fixture
def seen_folds(monkeypatch):
    """The folds of the last fit of a stack."""
    folds, make = [], base.make_folds

    def seen(*args, **options):
        folds[:] = make(*args, **options)
        return folds

    monkeypatch.setattr(base, "make_folds", seen)
    return folds


def _fitted(frame, cv=None, groups=None):
    model = BayesianStackingRegressor(
        [("linear", "fast")], n_selection_rows=N_SAMPLE, cv=cv, random_state=0
    )
    return model.fit(frame[["a", "b", "c"]], frame["y"], groups=groups)


def test_folds_of_the_sample_keep_groups_together(frame, seen_folds):
    """Groups of 7 rows, of which the sample has two or three."""
    groups = np.arange(N) // 7
    of_sample = groups[_fitted(frame, 4, groups).sample_rows_]
    assert len(np.unique(of_sample)) > 100
    assert len(seen_folds) == 4
    for train, test in seen_folds:
        assert not np.isin(of_sample[train], of_sample[test]).any()


def test_folds_of_the_sample_follow_time(frame, seen_folds):
    """Numbers of rows in the splitter are numbers of all rows."""
    cv = TimeSeriesSplit(3, gap=90, test_size=150, max_train_size=240)
    rows = _fitted(frame, cv).sample_rows_
    assert len(seen_folds) == 3
    for train, test in seen_folds:
        # A third of the rows, in order: 30, 50 and 80 of them.
        assert (test[0] - train[-1] - 1, len(test), len(train)) == (30, 50, 80)
        assert rows[train].max() < rows[test].min()
    assert (cv.gap, cv.test_size, cv.max_train_size) == (90, 150, 240)


def test_given_folds_are_of_all_rows(frame, seen_folds):
    first = np.arange(N) < 500
    for cv in (
        [(np.flatnonzero(first), np.flatnonzero(~first))],
        [(first, ~first)],
        PredefinedSplit(np.where(first, -1, 0)),
    ):
        rows = _fitted(frame, cv).sample_rows_
        [(train, test)] = seen_folds
        np.testing.assert_array_equal(rows[train], rows[rows < 500])
        np.testing.assert_array_equal(rows[test], rows[rows >= 500])
    with pytest.raises(ValueError, match="fold 0 of `cv` must have training and test"):
        _fitted(frame, [(rows[:200], np.setdiff1d(np.arange(N), rows))])


@pytest.mark.parametrize("random_state", [0, None])
def test_an_interrupted_fit_continues(frame, monkeypatch, random_state):
    """Nothing that was finished before the interruption is trained again."""
    X, y = frame[["a", "b", "c"]], frame["y"]
    # Both candidates must have weight: networks that learn, and differ little.
    options = {"max_iter": 8, "n_draws": 5, "batch_size": 300}
    network = MCDropoutRegressor((4,), learning_rate_init=0.1, **options)
    pool = [("network", network, {"dropout": [0.05, 0.1]})]

    def new(random_state):
        return BayesianStackingRegressor(
            pool, n_refits=1, n_selection_rows=N_SAMPLE, random_state=random_state
        )

    samples, trained, n_steps, n_stored = [], [], [], []
    survey, fit_source = base.survey, many_rows.fit_source
    epoch_end = _out_of_core.Refill.epoch_end
    predict_held_out = base.predict_held_out

    def surveyed(*args):
        samples.append(survey(*args))
        return samples[-1]

    def counted(estimator, *args, **options):
        trained.append(estimator)
        return fit_source(estimator, *args, **options)

    def interrupted(self, *args):
        n_steps.append(args[0])
        if len(trained) == 2 and args[0] == 2:
            raise KeyboardInterrupt
        epoch_end(self, *args)

    def stored(*args):
        n_stored.append(len(args[-1]))
        yield from predict_held_out(*args)

    monkeypatch.setattr(base, "survey", surveyed)
    monkeypatch.setattr(base, "predict_held_out", stored)
    monkeypatch.setattr(many_rows, "fit_source", counted)
    monkeypatch.setattr(_out_of_core.Refill, "epoch_end", interrupted)
    model = new(random_state)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    # The first network is finished, the second one has two epochs.
    n_before = len(n_steps)
    model.fit(X, y)
    np.testing.assert_array_equal(samples[0].sample.ids, samples[1].sample.ids)
    assert n_stored[0] == 0
    assert n_stored[1] > 0
    assert len(trained) == 3
    assert trained[2] is trained[1]
    assert n_steps[n_before] == 3
    if random_state is not None:
        expected = new(random_state).fit(X, y)
        np.testing.assert_allclose(
            model.predict(X), expected.predict(X), rtol=1e-5, atol=1e-6
        )


def test_saved(frame, model, tmp_path):
    skbayesnn.save(model, tmp_path / "model")
    other = skbayesnn.load(tmp_path / "model")
    X = frame.drop(columns="y")[:20]
    np.testing.assert_array_equal(other.predict(X), model.predict(X))


def test_classes_and_their_weights(frame):
    labels = np.where(frame["y"] > 0.3, "high", "low").astype(object)
    labels[[4, 811]] = "rare"
    network = MCDropoutClassifier((6,), max_iter=3, n_draws=10)
    model = BayesianStackingClassifier(
        [("network", network)],
        n_refits=1,
        n_selection_rows=N_SAMPLE,
        class_weight={"low": 2.0},
        random_state=0,
    )
    X = frame[["a", "b", "c"]]
    model.fit(X, labels)
    assert model.classes_.tolist() == ["high", "low", "rare"]
    [fitted] = model.estimators_
    assert fitted.total_weight_ == N + (labels == "low").sum()
    assert model.predict_proba(X[:4]).shape == (4, 3)


def test_small_tables_are_not_sampled(frame):
    model = _regressor().set_params(n_selection_rows=N).fit(frame, y="y")
    assert not hasattr(model, "sample_rows_")
    assert len(model.oof_prediction_) == N


def test_forests_of_tables_that_fit_into_memory(frame):
    """They are fitted to all rows, with the trees that the mixture uses."""
    X = frame[["a", "b", "c"]]
    stack = BayesianStackingRegressor(
        [("forest", "fast")], n_selection_rows=N_SAMPLE, random_state=0
    )
    errors = []
    for megabytes in (1024, 0.01):
        with sklearn.config_context(working_memory=megabytes):
            stack.fit(X, frame["y"])
        errors.append(np.mean(np.square(stack.predict(X) - frame["y"])))
    # Of training rows: two thirds of them are new to the second forest.
    assert errors[1] > 2 * errors[0]


def test_models_after_other_steps_have_their_own_fits(frame):
    """The same forest after two steps that differ, and after the same step twice."""
    forest = ForestRegressor(n_trees=5)
    stack = SimpleNamespace(
        estimators_=[], on_frame_=[True] * 3, n_draws_=[5] * 3, table_=None
    )
    X, y = frame[["a", "b", "c"]].to_numpy(), frame["y"].to_numpy()
    for scale in (1.0, 100.0, 1.0):
        scaler = StandardScaler().fit(scale * X)
        stack.estimators_.append(Pipeline([("scaler", scaler), ("forest", forest)]))
    training = TrainingSource(in_memory(X), y)
    found = survey(forest, training, 0, N_SAMPLE)
    fitted = fits_to_all_rows(stack, training, found, None, {}, FitProgress("", 0))
    scales = [np.ravel(model[-1].x_scale_)[0] for model in fitted]
    np.testing.assert_allclose(scales, [1, 0.01, 1], rtol=0.01)
    assert fitted[0][-1].threshold_ is fitted[2][-1].threshold_


KINDS_OF_Y = {
    "skewed": np.exp,
    "logit": lambda z: 1 / (1 + np.exp(-3 * z)),
    "zeros": lambda z: np.where(z > 0, np.exp(z), 0),
    "counts": lambda z: np.floor(np.exp(z)),
    "floor": lambda z: z.clip(-0.2),
}


@pytest.mark.parametrize("kind", KINDS_OF_Y)
def test_kinds_of_y(frame, kind):
    """All models are fitted to all rows on their scale, with rows at a bound."""
    X, y = frame[["a", "b", "c"]], KINDS_OF_Y[kind](frame["y"].to_numpy())
    model = BayesianStackingRegressor(
        "fast", n_selection_rows=N_SAMPLE, max_iter=30, n_refits=1, random_state=0
    ).fit(X, y)
    assert model.target_ != "plain numbers"
    low, high = model.predict_distribution(X).support()
    interval = model.predict_interval(X, 0.999)
    assert (low <= interval).all()
    assert (interval <= high).all()
    assert model.score(X, y) > 0.5


def test_intervals_are_not_sampled(frame):
    y = interval_target(frame["y"], frame["y"] + 1)
    with pytest.raises(ValueError, match="`y` must be exact values here; got interv"):
        _regressor().fit(frame[["a", "b", "c"]], y)


def test_extremes_of_y_are_in_the_sample(frame):
    """One row below zero: zero is no floor."""
    X, y = frame[["a", "b", "c"]], frame["y"].to_numpy().clip(0)
    y[N // 2] = -1e-3
    model = BayesianStackingRegressor(
        [("linear", "fast")], n_selection_rows=N_SAMPLE, random_state=0
    ).fit(X, y)
    assert model.target_ == "plain numbers"
    assert np.isin([N // 2, y.argmax()], model.sample_rows_).all()
    assert len(model.sample_rows_) == N_SAMPLE


def test_number_of_passes():
    """Steps grow with the root of the number of rows, up to a bound."""
    network = MCDropoutRegressor(batch_size=100)
    network.n_iter_ = 10  # 10 passes of 10 steps
    assert passes_over_all_rows(network, 1000, 1000) == 10
    assert passes_over_all_rows(network, 1000, 4000) == 5
    assert passes_over_all_rows(network, 1000, 10**8) == 1
    network.n_iter_ = 10_000
    n_passes = passes_over_all_rows(network, 1000, 100_000)
    assert n_passes * 1000 == MAX_STEPS


@pytest.mark.parametrize("is_classification", [False, True])
@pytest.mark.parametrize("is_sampled", [False, True])
def test_candidates_without_weight_on_some_rows_are_not_compared_on_all(
    monkeypatch, seed, is_classification, is_sampled
):
    """They keep their scores of these rows; the others predict as without them."""
    if is_sampled:
        monkeypatch.setattr("skbayesnn._stacking.base.SAMPLED_FROM", 200)
        monkeypatch.setattr("skbayesnn._stacking.folds.SAMPLE", (60, 30))
    random = np.random.default_rng(seed)
    X = random.normal(size=(240, 3))
    y = 3 * X[:, 0] - X[:, 1] + random.normal(size=240)
    stack, model, constant = BayesianStackingRegressor, Ridge(), DummyRegressor()
    if is_classification:
        y, stack = np.digitize(y, [-1, 1]), BayesianStackingClassifier
        model, constant = LogisticRegression(), DummyClassifier()
    good, bad = ("good", model), ("bad", constant)
    fitted_to = set()

    def counted(self, X, y, **params):
        fitted_to.add((len(y), y.tobytes()))
        return fit(self, X, y, **params)

    fit = type(constant).fit
    monkeypatch.setattr(type(constant), "fit", counted)
    fitted, alone = (
        stack(pool, random_state=seed).fit(X, y) for pool in ([bad, good], [good])
    )
    # A quarter of the training rows of each of five folds, or all of two.
    expected = [48] * 5 if is_sampled else [192] * 2
    assert [n_rows for n_rows, _ in fitted_to] == expected
    np.testing.assert_array_equal(fitted.predict(X), alone.predict(X))
    weights = fitted.weights_
    assert list(weights["weight"].items()) == [("good", 1.0), ("bad", 0.0)]
    for score, values in alone.weights_.items():
        assert weights[score]["good"] == values["good"]
        assert np.isfinite(weights[score]["bad"])


@pytest.mark.parametrize(("least", "n_compared"), [(0.0, 2), (1.0, 1)])
def test_candidate_needs_a_share_of_the_weight_on_a_sample(
    monkeypatch, seed, least, n_compared
):
    """The one with the largest weight is always kept."""
    monkeypatch.setattr("skbayesnn._stacking.base.SAMPLED_FROM", 200)
    monkeypatch.setattr("skbayesnn._stacking.base.SAMPLE_WEIGHT", least)
    random = np.random.default_rng(seed)
    X = random.normal(size=(240, 3))
    # Each is far better than the other one on half of the rows.
    y = np.where(X[:, 0] > 0, 5 * X[:, 1], -5 * X[:, 2]) + random.normal(size=240)
    pool = [
        (name, make_pipeline(FunctionTransformer(function), Ridge()))
        for name, function in (
            ("second", lambda X: (X[:, 0] > 0)[:, None] * X[:, 1:2]),
            ("third", lambda X: (X[:, 0] <= 0)[:, None] * X[:, 2:]),
        )
    ]
    weight = BayesianStackingRegressor(pool, random_state=seed).fit(X, y).weights_
    assert np.count_nonzero(weight["weight"]) == n_compared


def test_networks_by_evidence_leave_no_candidate_out_on_a_sample(monkeypatch, seed):
    """They need the fewest rows, and others may be better on all rows."""
    X = np.random.default_rng(seed).normal(size=(240, 3))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    laplace = LaplaceRegressor(hidden_layer_sizes=(4,), n_estimators=1)
    pool = [("laplace", laplace), ("ridge", Ridge())]
    scores = []
    for sampled_from in (10_000, 200):
        monkeypatch.setattr("skbayesnn._stacking.base.SAMPLED_FROM", sampled_from)
        monkeypatch.setattr("skbayesnn._stacking.base.N_FIRST", 5)
        model = BayesianStackingRegressor(pool, random_state=seed).fit(X, y)
        scores.append(model.weights_["log_density"])
    assert scores[1]["ridge"] == pytest.approx(scores[0]["ridge"], rel=1e-6)


def test_all_rows_are_compared_if_a_sample_lacks_a_class(monkeypatch, seed):
    monkeypatch.setattr("skbayesnn._stacking.base.SAMPLED_FROM", 200)
    monkeypatch.setattr("skbayesnn._stacking.folds.SAMPLE", (3, 30))
    X = np.random.default_rng(seed).normal(size=(240, 3))
    pool = [("good", LogisticRegression()), ("bad", DummyClassifier())]
    # Fits to three rows have at most three of the classes.
    model = BayesianStackingClassifier(pool, cv=3, random_state=seed)
    scores = model.fit(X, np.arange(240) % 4).weights_["log_density"]
    assert scores["bad"] == pytest.approx(-np.log(4), abs=1e-6)
