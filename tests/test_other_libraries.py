"""Other libraries with the package's estimators, and the reverse.

For each library the first steps of its users and the recipes of the README. A test is
skipped if its library is not installed.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    MCDropoutClassifier,
    MCDropoutRegressor,
    predict_interval,
    predict_uncertainty,
)
from skbayesnn.inspection import attributions
from skbayesnn.metrics import interval_coverage
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.scoring import log_density_scorer
from tests.helpers.seed import SEED

SMALL = {
    "hidden_layer_sizes": (8,),
    "max_iter": 10,
    "n_draws": 13,
    "length_scale": 0.1,
    "device": "cpu",
    "dtype": "float64",
    "random_state": SEED,
}


def regressor(**parameters):
    return MCDropoutRegressor(**SMALL | parameters)


def classifier(**parameters):
    return MCDropoutClassifier(**SMALL | parameters)


@pytest.fixture(scope="module")
def data():
    """90 training rows of 4 columns, 11 new rows, and rare labels."""
    random = np.random.default_rng([SEED, 7])
    X = random.standard_normal((101, 4))
    y = X[:, 0] + 0.3 * random.standard_normal(101)
    rare = (np.argsort(np.argsort(y)) > 85).astype(int)
    return SimpleNamespace(
        X=X[:90], y=y[:90], rare=rare[:90], X_new=X[90:], y_new=y[90:]
    )


def assert_same_uncertainty(model, X, inner, inner_X):
    for kind in inner.predict_uncertainty(inner_X, "all"):
        np.testing.assert_array_equal(
            predict_uncertainty(model, X, kind),
            inner.predict_uncertainty(inner_X, kind),
        )


# ---- searches


@pytest.fixture
def optuna():
    optuna = pytest.importorskip("optuna")
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield optuna
    optuna.logging.set_verbosity(before)


@pytest.mark.filterwarnings("ignore")  # deprecations inside Optuna
def test_uncertainty_of_an_optuna_search(data, optuna):
    integration = pytest.importorskip("optuna_integration")
    space = {"tau": optuna.distributions.FloatDistribution(0.1, 10, log=True)}
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.RandomSampler(SEED)
    )
    search = integration.OptunaSearchCV(
        regressor(), space, cv=2, n_trials=2, scoring=log_density_scorer, study=study
    ).fit(data.X, data.y)
    assert_same_uncertainty(search, data.X_new, search.best_estimator_, data.X_new)
    search = clone(search).set_params(refit=False, study=None, random_state=SEED)
    with pytest.raises(TypeError, match="must be fitted with refit=True"):
        predict_uncertainty(search.fit(data.X, data.y), data.X_new)


def test_optuna_trials_can_be_fitted_in_batches(data, optuna):
    """A trial has the score of the model fitted alone."""
    space = {
        "tau": optuna.distributions.FloatDistribution(0.1, 10, log=True),
        "dropout": optuna.distributions.CategoricalDistribution([0.0, 0.1]),
    }
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=SEED)
    )
    for _ in range(2):
        trials = [study.ask(space) for _ in range(3)]
        grid = [{name: [v] for name, v in trial.params.items()} for trial in trials]
        search = BatchedGridSearchCV(
            regressor(), grid, scoring=log_density_scorer, cv=2, refit=False
        ).fit(data.X, data.y)
        scores = search.cv_results_["mean_test_score"]
        for trial, score in zip(trials, scores, strict=True):
            study.tell(trial, score)
    assert len(study.trials) == 6
    for trial in study.trials:
        alone = regressor(**trial.params)
        scores = cross_val_score(
            alone, data.X, data.y, scoring=log_density_scorer, cv=2
        )
        assert trial.value == pytest.approx(scores.mean(), rel=1e-8)


# ---- steps of pipelines


def test_samplers_of_imbalanced_learn(data):
    pytest.importorskip("imblearn")
    from imblearn.over_sampling import RandomOverSampler
    from imblearn.pipeline import make_pipeline as make_sampling_pipeline

    sampler = RandomOverSampler(random_state=SEED)
    model = make_sampling_pipeline(StandardScaler(), sampler, classifier())
    model.fit(data.X, data.rare)
    inner_X = model[0].transform(data.X_new)
    assert_same_uncertainty(model, data.X_new, model[-1], inner_X)
    # Twice the number of rows with the frequent label.
    assert model[-1].total_weight_ == 2 * (data.rare == 0).sum()
    scores = cross_val_score(model, data.X, data.rare, scoring=log_density_scorer, cv=2)
    assert np.isfinite(scores).all()


def test_column_selector_of_mlxtend(data):
    selection = pytest.importorskip("mlxtend.feature_selection")
    model = make_pipeline(selection.ColumnSelector(cols=[0, 2]), regressor())
    model.fit(data.X, data.y)
    assert_same_uncertainty(model, data.X_new, model[-1], data.X_new[:, [0, 2]])


# ---- tables


@pytest.fixture
def skrub():
    return pytest.importorskip("skrub")


def test_tabular_pipeline_of_skrub(data, skrub):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data.X, columns=list("abcd"))
    frame["colour"] = np.resize(["red", "green", "blue"], len(frame))
    model = skrub.tabular_pipeline(regressor()).fit(frame, data.y)
    inner_X = frame
    for _, step in model.steps[:-1]:
        inner_X = step.transform(inner_X)
    assert_same_uncertainty(model, frame, model[-1], inner_X)


def test_learner_of_skrub(data, skrub):
    """The learner is refused; its step with the table of this step is accepted."""
    table = skrub.X(data.X).skb.apply(StandardScaler()).skb.set_name("table")
    network = table.skb.apply(regressor(), y=skrub.y(data.y)).skb.set_name("network")
    learner = network.skb.make_learner().fit({"X": data.X, "y": data.y})
    new = {"X": data.X_new}
    with pytest.raises(TypeError, match=r"SkrubLearner has no .*set_name\('network'\)"):
        predict_uncertainty(learner, new)
    inside = learner.find_fitted_estimator("network")
    inner_X = learner.truncated_after("table").transform(new)
    np.testing.assert_array_equal(inside.predict(inner_X), learner.predict(new))
    assert predict_interval(inside, inner_X).shape == (11, 2)


# ---- conformal prediction


class Std(RegressorMixin, BaseEstimator):
    """The standard deviation of a fitted model, for mapie and crepes."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        return self

    def predict(self, X):
        return predict_uncertainty(self.model, X)

    apply = predict  # the name that crepes calls

    def __sklearn_is_fitted__(self):
        return True


@pytest.fixture
def same_generator():
    """Restore NumPy's global generator, which mapie draws from."""
    state = np.random.get_state()
    yield
    np.random.set_state(state)


@pytest.mark.filterwarnings("ignore:Estimator does not appear fitted")
def test_mapie(data, same_generator):
    """Conformal intervals of mapie, scaled by the network's standard deviation."""
    mapie = pytest.importorskip("mapie.regression")
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.metrics.regression import regression_coverage_score

    network = regressor().fit(data.X[:50], data.y[:50])
    score = ResidualNormalisedScore(
        residual_estimator=Std(network), prefit=True, sym=True
    )
    model = mapie.SplitConformalRegressor(
        network, confidence_level=[0.5, 0.8], conformity_score=score
    )
    model.conformalize(data.X[50:], data.y[50:])
    mean, interval = model.predict_interval(data.X_new)
    np.testing.assert_array_equal(mean, network.predict(data.X_new))
    assert interval.shape == (11, 2, 2)
    half = (
        np.diff(interval, axis=1)[:, 0]
        / predict_uncertainty(network, data.X_new)[:, None]
    )
    np.testing.assert_allclose(half, np.broadcast_to(half[0], half.shape), rtol=1e-6)
    for function in (predict_uncertainty, predict_interval):
        with pytest.raises(
            TypeError, match="SplitConformalRegressor has no predictive"
        ):
            function(model, data.X_new)
    # mapie has the bounds before the levels, skbayesnn after them.
    ours = predict_interval(network, data.X_new, [0.5, 0.8, 0.9])
    theirs = regression_coverage_score(data.y_new, ours.swapaxes(1, 2))
    expected = [interval_coverage(data.y_new, ours[:, j]) for j in range(3)]
    np.testing.assert_allclose(theirs, expected)


def test_crepes(data):
    crepes = pytest.importorskip("crepes")
    network = regressor().fit(data.X[:50], data.y[:50])
    model = crepes.WrapRegressor(network)
    model.calibrate(data.X[50:], data.y[50:], de=Std(network))
    interval = model.predict_int(data.X_new, confidence=0.8)
    in_stds = np.diff(interval)[:, 0] / predict_uncertainty(network, data.X_new)
    np.testing.assert_allclose(in_stds, in_stds[0])
    with pytest.raises(TypeError, match=r"WrapRegressor has no predictive.*`learner`"):
        predict_uncertainty(model, data.X_new)
    assert_same_uncertainty(model.learner, data.X_new, network, data.X_new)


# ---- explanations, adapters and storage


def test_shap(data):
    """Equal to the kernel explainer within errors; with its plots."""
    shap = pytest.importorskip("shap")
    network = regressor().fit(data.X, data.y)

    def unknown(X):
        return predict_uncertainty(network, X, "epistemic")

    background, rows = data.X[:40], data.X_new[:3]
    # With four columns it takes all sets of columns, and has no error.
    expected = shap.KernelExplainer(unknown, background).shap_values(rows, silent=True)
    result = attributions(network, rows, background=background, of="epistemic")
    error = np.abs(result.values - expected) / result.standard_errors
    assert error.max() < 6
    assert shap.plots.bar(result.to_shap(), show=False) is not None


def test_skpro(data):
    """One normal distribution with the estimator's mean and standard deviation."""
    adapters = pytest.importorskip("skpro.regression.adapters.sklearn")
    pandas = pytest.importorskip("pandas")
    frame, new = (
        pandas.DataFrame(X, columns=list("abcd")) for X in (data.X, data.X_new)
    )
    model = adapters.SklearnProbaReg(regressor())
    model.fit(frame, pandas.DataFrame({"y": data.y}))
    predicted = model.predict_proba(new)
    mean, std = model.estimator_.predict(new, return_std=True)
    np.testing.assert_allclose(np.ravel(predicted.mean()), np.ravel(mean))
    np.testing.assert_allclose(np.ravel(predicted.var()), np.ravel(std) ** 2)
    with pytest.raises(TypeError, match="SklearnProbaReg has no predictive"):
        predict_uncertainty(model, new)


@pytest.mark.filterwarnings("ignore")  # warnings inside mlflow
def test_mlflow_saves_without_pickles(data, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    skops = pytest.importorskip("skops.io")
    pytest.importorskip("mlflow.sklearn")
    model = make_pipeline(StandardScaler(), regressor()).fit(data.X, data.y)
    trusted = skops.get_untrusted_types(data=skops.dumps(model))
    assert all(name.startswith("skbayesnn.") for name in trusted)
    mlflow.sklearn.save_model(
        model,
        tmp_path / "model",
        pip_requirements=["skbayesnn"],
        skops_trusted_types=trusted,
    )
    loaded = mlflow.sklearn.load_model(str(tmp_path / "model"))
    assert_same_uncertainty(
        loaded, data.X_new, model[-1], model[0].transform(data.X_new)
    )
