"""Meta-estimators of scikit-learn one by one: a predictive passes, or is refused."""

import warnings
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, MetaEstimatorMixin, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingRegressor,
    StackingRegressor,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE, RFECV, SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegressionCV, Ridge
from sklearn.model_selection import (
    FixedThresholdClassifier,
    TunedThresholdClassifierCV,
    cross_val_score,
)
from sklearn.multiclass import (
    OneVsOneClassifier,
    OneVsRestClassifier,
    OutputCodeClassifier,
)
from sklearn.multioutput import (
    ClassifierChain,
    MultiOutputClassifier,
    RegressorChain,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

from skbayesnn import (
    CalibratedUncertaintyRegressor,
    ConformalRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    crps,
    log_predictive_density,
    predict_interval,
    predict_uncertainty,
    sample_y,
)
from skbayesnn.scoring import log_density_scorer
from tests.helpers.seed import SEED

# SelfTrainingClassifier warns if all rows have labels.
pytestmark = pytest.mark.filterwarnings("ignore:y contains no unlabeled samples")
ROWS, NEW = 43, 11
SMALL = {
    "hidden_layer_sizes": (8,),
    "max_iter": 15,
    "n_draws": 13,
    "length_scale": 0.1,
    "device": "cpu",
    "dtype": "float64",
    "random_state": SEED,
}
PARTS = ("total", "epistemic", "aleatoric")


def regressor(**parameters):
    return MCDropoutRegressor(**SMALL | parameters)


def classifier(**parameters):
    return MCDropoutClassifier(**SMALL | parameters)


def first_weights(network):
    """Norm of the weights of every input, for feature eliminations."""
    weights = network.parameters_["layers/0/mean"]
    return np.abs(weights).sum(axis=(0, 2))


class Log(TransformerMixin, BaseEstimator):
    """A transformer without fitted state; scikit-learn never calls it fitted."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.log1p(np.abs(X))


class Thinning(BaseEstimator):
    """A sampler: it has no ``transform``, and does not change new rows."""

    def fit_resample(self, X, y):
        return X[::2], y[::2]


class SamplingPipeline(Pipeline):
    """A pipeline with samplers, as imbalanced-learn's is."""

    def fit(self, X, y):
        for _, step in self.steps[:-1]:
            X, y = step.fit_resample(X, y)
        self.steps[-1][1].fit(X, y)
        return self


class OtherSearch(MetaEstimatorMixin, BaseEstimator):
    """A search of another library; it shares the fitted attributes only."""

    def __init__(self, estimator, refit=True):
        self.estimator, self.refit = estimator, refit

    def fit(self, X, y):
        self.n_trials_ = 1
        if self.refit:
            self.best_estimator_ = self.estimator.fit(X, y)
        return self


class ParallelPostFit(MetaEstimatorMixin, BaseEstimator):
    """A meta-estimator as in dask-ml."""

    def __init__(self, estimator):
        self.estimator = estimator

    @property
    def _postfit_estimator(self):
        return self.estimator

    def fit(self, X, y):
        self.estimator.fit(X, y)
        return self


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng([SEED, 3])
    X = random.standard_normal((ROWS, 4))
    y = X[:, 0] + 0.3 * random.standard_normal(ROWS)
    return SimpleNamespace(
        X=X,
        y=y,
        Y=np.stack([y, -y], axis=1),
        # As objects: SelfTrainingClassifier accepts no other dtype.
        labels=np.array(["no", "yes"], object)[(y > np.median(y)).astype(int)],
        three=np.array(["top", "low", "mid"])[np.argsort(np.argsort(y)) * 3 // ROWS],
        X_new=random.standard_normal((NEW, 4)),
        y_new=random.standard_normal(NEW),
    )


def assert_same_uncertainty(model, X, inner, inner_X):
    """A model and its inner network have the same predictive."""
    actual = predict_uncertainty(model, X, "all")
    expected = inner.predict_uncertainty(inner_X, "all")
    assert list(actual) == list(expected)
    for kind, values in expected.items():
        np.testing.assert_allclose(actual[kind], values, rtol=1e-9, atol=1e-12)


# ---- transformers, samplers and searches


def test_stateless_transformer_before_the_network(data):
    """All functions that search for the network accept it: calibrations, scorers."""
    model = make_pipeline(StandardScaler(), Log(), regressor()).fit(data.X, data.y)
    inner_X = Log().transform(model[0].transform(data.X_new))
    assert_same_uncertainty(model, data.X_new, model[-1], inner_X)
    assert np.isfinite(
        cross_val_score(model, data.X, data.y, scoring=log_density_scorer, cv=3)
    ).all()
    for meta in (
        ConformalRegressor(model, method="cv+", cv=3),
        CalibratedUncertaintyRegressor(model, cv=3),
    ):
        meta.fit(data.X, data.y)
        assert predict_interval(meta, data.X_new).shape == (NEW, 2)


def test_passthrough_steps(data):
    model = Pipeline(
        [("nothing", "passthrough"), ("neither", None), ("network", regressor())]
    ).fit(data.X, data.y)
    assert_same_uncertainty(model, data.X_new, model[-1], data.X_new)
    passthrough = make_pipeline("passthrough").fit(data.X, data.y)
    with pytest.raises(TypeError, match="got str"):
        predict_uncertainty(passthrough, data.X_new)


def test_samplers_are_skipped(data):
    model = SamplingPipeline([("thin", Thinning()), ("network", regressor())])
    model.fit(data.X, data.y)
    network = regressor().fit(data.X[::2], data.y[::2])
    assert_same_uncertainty(model, data.X_new, network, data.X_new)


def test_searches_of_other_libraries(data):
    model = OtherSearch(regressor()).fit(data.X, data.y)
    assert_same_uncertainty(model, data.X_new, model.best_estimator_, data.X_new)
    with pytest.raises(NotFittedError):
        predict_uncertainty(OtherSearch(regressor()), data.X_new)
    without = OtherSearch(regressor(), refit=False).fit(data.X, data.y)
    with pytest.raises(TypeError, match="OtherSearch must be fitted with refit=True"):
        predict_uncertainty(without, data.X_new)


def test_parallel_post_fit(data):
    model = ParallelPostFit(regressor().fit(data.X, data.y))
    assert_same_uncertainty(model, data.X_new, model.estimator, data.X_new)
    with pytest.raises(NotFittedError):
        predict_uncertainty(ParallelPostFit(regressor()), data.X_new)


@pytest.mark.parametrize(
    "model",
    [
        RFE(regressor(), n_features_to_select=2, importance_getter=first_weights),
        RFECV(regressor(), cv=2, importance_getter=first_weights),
    ],
    ids=["RFE", "RFECV"],
)
def test_feature_elimination(data, model):
    model.fit(data.X, data.y)
    assert_same_uncertainty(
        model, data.X_new, model.estimator_, data.X_new[:, model.support_]
    )


def test_selection_by_a_network(data):
    select = SelectFromModel(regressor(), importance_getter=first_weights)
    model = make_pipeline(select, regressor()).fit(data.X, data.y)
    assert_same_uncertainty(
        model, data.X_new, model[-1], model[0].transform(data.X_new)
    )


@pytest.mark.parametrize(
    "model",
    [
        FixedThresholdClassifier(classifier(), threshold=0.9),
        TunedThresholdClassifierCV(classifier(), cv=2),
        SelfTrainingClassifier(classifier(), threshold=0.6),
    ],
    ids=lambda model: type(model).__name__,
)
def test_classifiers_around_a_classifier(data, model):
    """Labels may come from the outer model; probabilities come from the inner one."""
    model.fit(data.X, data.labels)
    assert_same_uncertainty(model, data.X_new, model.estimator_, data.X_new)
    np.testing.assert_allclose(
        np.exp(log_predictive_density(model, data.X_new, ["yes"] * NEW)),
        model.predict_proba(data.X_new)[:, 1],
        rtol=1e-9,
    )


def test_threshold_of_a_fitted_classifier(data):
    network = classifier().fit(data.X, data.labels)
    model = FixedThresholdClassifier(FrozenEstimator(network), threshold=0.3)
    assert len(model.predict(data.X_new)) == NEW  # scikit-learn permits it
    assert_same_uncertainty(model, data.X_new, network, data.X_new)


# ---- refused


@pytest.mark.parametrize(
    ("model", "way_out"),
    [
        (MultiOutputClassifier(classifier()), "each of its `estimators_`"),
        (ClassifierChain(classifier()), "use MultiOutputClassifier"),
        (RegressorChain(regressor()), "several targets at once"),
        (OneVsRestClassifier(classifier()), "all classes at once"),
        (OneVsOneClassifier(classifier()), "all classes at once"),
        (OutputCodeClassifier(classifier()), "all classes at once"),
        (BaggingRegressor(regressor()), "`n_estimators`"),
        (VotingClassifier([("one", classifier())]), "BayesianStackingClassifier"),
        (StackingRegressor([("one", Ridge())], regressor()), "`final_estimator_`"),
        (CalibratedClassifierCV(classifier()), "`predict_proba`"),
        (AdaBoostRegressor(regressor()), "`n_estimators`"),
        (AdaBoostClassifier(classifier()), "`n_estimators`"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseEstimator) else "",
)
def test_refused_with_the_way_out(data, model, way_out):
    for function in (predict_uncertainty, sample_y):
        with pytest.raises(
            TypeError, match=f"{type(model).__name__} has no predictive.*{way_out}"
        ):
            function(model, data.X_new)


def test_targets_of_a_multi_output_classifier(data):
    """The suggested alternative works."""
    classes = (data.Y > 0).astype(int)
    model = MultiOutputClassifier(classifier()).fit(data.X, classes)
    for member, probability in zip(
        model.estimators_, model.predict_proba(data.X_new), strict=True
    ):
        density = log_predictive_density(member, data.X_new, [1] * NEW)
        np.testing.assert_allclose(np.exp(density), probability[:, 1], rtol=1e-9)


def test_other_objects_are_refused(data):
    """The message names their type; methods of the same name are not called."""

    class Foreign:
        def predict_interval(self, X):
            return "something else"

    # LogisticRegressionCV has a parameter `refit`, but is not a search.
    for thing in (Foreign(), None, "network", {"X": data.X}, LogisticRegressionCV()):
        with pytest.raises(TypeError, match=f"got {type(thing).__name__}"):
            predict_interval(thing, data.X_new)


# ---- warnings


def test_frames_through_estimators_that_convert_them(data):
    """Members were fitted without column names and get none."""
    pandas = pytest.importorskip("pandas")
    frame, new = (
        pandas.DataFrame(X, columns=list("abcd")) for X in (data.X, data.X_new)
    )
    network = regressor()
    for model, y in (
        (SelfTrainingClassifier(classifier()), data.labels),
        (TunedThresholdClassifierCV(classifier(), cv=2), data.labels),
        (RFE(network, importance_getter=first_weights), data.y),
    ):
        model.fit(frame, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            predict_uncertainty(model, new)
    model = SelfTrainingClassifier(classifier()).fit(frame, data.labels)
    with pytest.raises(ValueError, match="feature names"):
        predict_uncertainty(model, new.rename(columns={"a": "z"}))


def test_model_mapped_from_a_file(data, tmp_path):
    """Read-only weights give the same predictions without a warning."""
    network = regressor().fit(data.X, data.y)
    joblib.dump(network, tmp_path / "network.joblib")
    mapped = joblib.load(tmp_path / "network.joblib", mmap_mode="r")
    assert not mapped.parameters_["layers/0/mean"].flags.writeable
    X = data.X_new.copy()
    X.flags.writeable = False
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # otherwise torch warns once per process
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for kind in PARTS:
                np.testing.assert_array_equal(
                    mapped.predict_uncertainty(X, kind),
                    network.predict_uncertainty(X, kind),
                )
            crps(mapped, X, data.y_new)
            mapped.partial_fit(X, data.y_new)
    finally:
        torch.set_warn_always(always)
