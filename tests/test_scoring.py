"""Scorers: callables for ``scoring=``; larger values are better."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.metrics import mean_pinball_loss
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.metrics import (
    area_under_risk_coverage,
    brier_score,
    expected_calibration_error,
    mixture_crps,
)
from skbayesnn.scoring import (
    Scorer,
    interval_coverage_scorer,
    log_density_scorer,
    neg_aurc_scorer,
    neg_brier_scorer,
    neg_calibration_error_scorer,
    neg_coverage_error_scorer,
    neg_crps_scorer,
    neg_interval_score_scorer,
    neg_interval_width_scorer,
    neg_pinball_scorer,
    ood_auroc_scorer,
)
from tests.helpers.seed import SEED

ROWS, INPUTS = 37, 3
OUTSIDE = 5 * np.random.default_rng([SEED, 4]).standard_normal((11, INPUTS))
BOTH = [
    log_density_scorer,
    neg_calibration_error_scorer,
    neg_aurc_scorer,
    ood_auroc_scorer(OUTSIDE),
]
REGRESSORS_ONLY = [
    neg_crps_scorer,
    neg_pinball_scorer,
    neg_interval_score_scorer,
    interval_coverage_scorer,
    neg_coverage_error_scorer,
    neg_interval_width_scorer,
]
OF_REGRESSORS = [*BOTH, *REGRESSORS_ONLY]
OF_CLASSIFIERS = [*BOTH, neg_brier_scorer]


def name(scorer):
    return scorer.__name__


EVERY_SCORER = pytest.mark.parametrize(
    "scorer", [*OF_REGRESSORS, neg_brier_scorer], ids=name
)
SMALL = {
    "max_iter": 20,
    "n_draws": 13,
    "dropout": 0.1,
    "device": "cpu",
    "dtype": "float64",
    "random_state": SEED,
}


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng([SEED, 3])
    X = random.standard_normal((ROWS, INPUTS))
    return SimpleNamespace(
        X=X,
        y=X[:, 0] + 0.3 * random.standard_normal(ROWS),
        Y=X[:, :2] * [1, 10] + 0.3 * random.standard_normal((ROWS, 2)),
        labels=np.array(["down", "same", "up"])[np.digitize(X[:, 1], [-0.4, 0.4])],
        weights=np.arange(ROWS) % 4,
    )


@pytest.fixture(scope="module")
def model():
    return MCDropoutRegressor((8,), **SMALL)


@pytest.fixture(scope="module")
def with_tau(model):
    """A regressor that does not estimate tau, in further fits on held-out rows."""
    return clone(model).set_params(tau=10.0)


@pytest.fixture(scope="module")
def fitted(model, data):
    return clone(model).fit(data.X, data.y)


@pytest.fixture(scope="module")
def classifier(data):
    model = MCDropoutClassifier((8,), **SMALL)
    return model.fit(data.X, data.labels)


# ---- values


def test_log_density_and_intervals(fitted, data):
    X, y = data.X, data.y
    assert log_density_scorer(fitted, X, y) == pytest.approx(
        fitted.log_predictive_density(X, y).mean()
    )
    interval = fitted.predict_interval(X)
    inside = (interval[:, 0] <= y) & (y <= interval[:, 1])
    assert interval_coverage_scorer(fitted, X, y) == pytest.approx(inside.mean())
    assert neg_interval_width_scorer(fitted, X, y) == pytest.approx(
        -np.diff(interval).mean()
    )
    half = fitted.predict_interval(X, 0.5)
    assert neg_interval_width_scorer(fitted, X, y, coverage=0.5) == pytest.approx(
        -np.diff(half).mean()
    )
    assert interval_coverage_scorer(fitted, X, y, coverage=0.5) <= inside.mean()
    distance = np.maximum(interval[:, 0] - y, 0) + np.maximum(y - interval[:, 1], 0)
    assert neg_interval_score_scorer(fitted, X, y) == pytest.approx(
        -(np.diff(interval)[:, 0] + 20 * distance).mean()
    )


def test_levels(fitted, data):
    X, y = data.X, data.y
    levels = np.arange(1, 20) / 20
    quantiles = [fitted.predict_quantile(X, level) for level in levels]
    losses = [
        mean_pinball_loss(y, quantile, alpha=level)
        for quantile, level in zip(quantiles, levels, strict=True)
    ]
    assert neg_pinball_scorer(fitted, X, y) == pytest.approx(-np.mean(losses))
    # F(y) <= p where y is below the p-quantile.
    shares = np.array([(y <= quantile).mean() for quantile in quantiles])
    assert neg_calibration_error_scorer(fitted, X, y) == pytest.approx(
        -np.abs(shares - levels).mean()
    )
    gaps = [
        abs(interval_coverage_scorer(fitted, X, y, coverage=level) - level)
        for level in (0.5, 0.8, 0.9, 0.95)
    ]
    assert neg_coverage_error_scorer(fitted, X, y) == pytest.approx(-np.mean(gaps))
    assert neg_coverage_error_scorer(fitted, X, y, coverage=0.8) == pytest.approx(
        -gaps[1]
    )


def test_crps_of_one_gaussian(model, data):
    fitted = clone(model).set_params(dropout=0.0).fit(data.X, data.y)
    mean, std = fitted.predict(data.X, return_std=True)
    assert neg_crps_scorer(fitted, data.X, data.y) == pytest.approx(
        -mixture_crps(data.y, mean[None], std[None] ** 2)
    )


def test_classification(classifier, data):
    X, labels = data.X, data.labels
    codes = np.searchsorted(classifier.classes_, labels)
    probability = classifier.predict_proba(X)
    density = log_density_scorer(classifier, X, labels)
    assert density == pytest.approx(np.log(probability[np.arange(ROWS), codes]).mean())
    # The same number as scikit-learn's own scorer.
    log_loss = sklearn.metrics.get_scorer("neg_log_loss")
    assert density == pytest.approx(log_loss(classifier, X, labels))
    assert neg_brier_scorer(classifier, X, labels) == pytest.approx(
        -brier_score(labels, probability)
    )
    assert neg_calibration_error_scorer(classifier, X, labels) == pytest.approx(
        -expected_calibration_error(labels, probability)
    )


def test_aurc(fitted, model, classifier, data):
    X = data.X
    wrong = classifier.predict(X) != data.labels
    for kind in ("entropy", "mutual_information"):
        assert neg_aurc_scorer(classifier, X, data.labels, kind=kind) == pytest.approx(
            -area_under_risk_coverage(wrong, classifier.predict_uncertainty(X, kind))
        )
    assert neg_aurc_scorer(classifier, X, data.labels) == neg_aurc_scorer(
        classifier, X, data.labels, kind="entropy"
    )
    for kind in ("total", "epistemic"):
        error = (fitted.predict(X) - data.y) ** 2
        assert neg_aurc_scorer(fitted, X, data.y, kind=kind) == pytest.approx(
            -area_under_risk_coverage(error, fitted.predict_uncertainty(X, kind))
        )
    assert neg_aurc_scorer(fitted, X, data.y) == neg_aurc_scorer(
        fitted, X, data.y, kind="total"
    )
    two_targets = clone(model).fit(X, data.Y)
    errors, stds = (
        (two_targets.predict(X) - data.Y) ** 2,
        two_targets.predict_uncertainty(X),
    )
    assert neg_aurc_scorer(two_targets, X, data.Y) == pytest.approx(
        -np.mean([area_under_risk_coverage(errors[:, t], stds[:, t]) for t in (0, 1)])
    )


def test_ood_auroc(fitted, classifier, model, data):
    """Dropout's spread grows with the activations, hence far from the data."""
    far = ood_auroc_scorer(100 * OUTSIDE, kind="epistemic")
    assert far(fitted, data.X) > 0.9
    assert far(clone(model).fit(data.X, data.Y), data.X) > 0.9
    for estimator, kind in ((fitted, "total"), (classifier, "entropy")):
        inside, outside = (
            estimator.predict_uncertainty(rows, kind) for rows in (data.X, OUTSIDE)
        )
        pairs = (outside > inside[:, None]) + 0.5 * (outside == inside[:, None])
        assert ood_auroc_scorer(OUTSIDE)(estimator, data.X) == pytest.approx(
            pairs.mean()
        )
    assert ood_auroc_scorer(data.X)(fitted, data.X) == pytest.approx(0.5)


def test_label_without_training_rows(classifier, data):
    """Its probability is zero, so the Brier score is 1 + sum p^2."""
    probability = classifier.predict_proba(data.X)
    new = np.full(ROWS, "new")
    assert neg_brier_scorer(classifier, data.X, new) == pytest.approx(
        -(1 + (probability**2).sum(1).mean())
    )
    assert neg_calibration_error_scorer(classifier, data.X, new) == pytest.approx(
        -probability.max(1).mean()
    )


def test_scores_of_other_targets(model, fitted, data):
    """Of several targets they are numbers.

    In other units, densities shift, CRPS and widths scale, coverage does not change.
    """
    two_targets = clone(model).fit(data.X, data.Y)
    larger = clone(model).fit(data.X, 1000 * data.y)
    factors = {
        "neg_aurc_scorer": 1e6,
        "ood_auroc_scorer": 1,
        "interval_coverage_scorer": 1,
        "neg_coverage_error_scorer": 1,
        "neg_calibration_error_scorer": 1,
    }
    for scorer in OF_REGRESSORS:
        value = scorer(two_targets, data.X, data.Y)
        assert type(value) is float and np.isfinite(value)
        value = scorer(fitted, data.X, data.y)
        expected = factors.get(name(scorer), 1000) * value
        if scorer is log_density_scorer:
            expected = value - np.log(1000)
        # Rounding errors of the scaling, grown by 20 training steps.
        rescaled = scorer(larger, data.X, 1000 * data.y)
        assert rescaled == pytest.approx(expected, rel=1e-6), name(scorer)


def test_better_model_has_larger_scores(model, data):
    """A trained network scores higher than one that is hardly trained."""
    # The poor model has noise of the size of y; the good model estimates it.
    poor = clone(model).set_params(tau=0.5 / data.y.var(), learning_rate_init=1e-6)
    good = clone(model).set_params(max_iter=150)
    poor.fit(data.X, data.y)
    good.fit(data.X, data.y)
    for scorer in (
        *(log_density_scorer, neg_crps_scorer, neg_pinball_scorer),
        *(neg_interval_score_scorer, neg_interval_width_scorer, neg_aurc_scorer),
    ):
        low, high = (scorer(m, data.X, data.y) for m in (poor, good))
        assert low < high, name(scorer)


# ---- weights


class Rounded:
    """Round predictions, so that copies of a row are ties where rows are sorted.

    Networks do not promise equal predictions: the position of a row in a matrix product
    decides the last digit.
    """

    def predict_proba(self, X):
        return super().predict_proba(X).round(12)

    def predict_uncertainty(self, X, *kind):
        return super().predict_uncertainty(X, *kind).round(12)


class RoundedRegressor(Rounded, MCDropoutRegressor):
    pass


class RoundedClassifier(Rounded, MCDropoutClassifier):
    pass


def test_weights_are_repeated_rows(fitted, classifier, data):
    for kind, single, scorers, y in (
        (RoundedRegressor, fitted, OF_REGRESSORS, data.y),
        (RoundedClassifier, classifier, OF_CLASSIFIERS, data.labels),
    ):
        rounded = kind(**single.get_params()).fit(data.X, y)
        rows = np.repeat(np.arange(ROWS), data.weights)
        for scorer in scorers:
            expected = scorer(rounded, data.X[rows], y[rows])
            actual = scorer(rounded, data.X, y, sample_weight=data.weights)
            assert actual == pytest.approx(expected), name(scorer)


def test_impossible_row_of_weight_zero(classifier, data):
    """Its log probability of minus infinity does not count."""
    labels = np.where(data.weights == 0, "new", data.labels)
    assert log_density_scorer(classifier, data.X, labels) == -np.inf
    expected = log_density_scorer(classifier, data.X, data.labels, data.weights)
    # The sums differ in the order of their rows.
    assert log_density_scorer(
        classifier, data.X, labels, data.weights
    ) == pytest.approx(expected, rel=1e-12)


# ---- as scoring=


def test_as_scoring(with_tau, classifier, data):
    """Each score of a fold is the scorer's, for the model of the fold."""
    for network, scorers, y in (
        (with_tau, OF_REGRESSORS, data.y),
        (classifier, OF_CLASSIFIERS, data.labels),
    ):
        pipeline = make_pipeline(StandardScaler(), network)
        named = {name(scorer): scorer for scorer in scorers}
        options = {"return_estimator": True, "return_indices": True}
        results = cross_validate(
            pipeline, data.X, y, cv=KFold(3), scoring=named, **options
        )
        test = results["indices"]["test"][1]
        for key, scorer in named.items():
            value = scorer(results["estimator"][1], data.X[test], y[test])
            assert results[f"test_{key}"][1] == pytest.approx(value), key
        grid = {f"{pipeline.steps[-1][0]}__dropout": [0.05, 0.5]}
        search = GridSearchCV(
            pipeline, grid, scoring=named, refit="log_density_scorer", cv=2
        ).fit(data.X, y)
        means = search.cv_results_["mean_test_log_density_scorer"]
        assert search.best_score_ == means.max()
        for scorer in scorers:
            value = scorer(search.best_estimator_, data.X, y)
            assert scorer(search, data.X, y) == pytest.approx(value), name(scorer)
        assert search.score(data.X, y) == log_density_scorer(search, data.X, y)


@EVERY_SCORER
def test_copies(fitted, classifier, data, scorer):
    """A scorer is unchanged by pickling (for n_jobs), cloning and copying."""
    model, y = fitted, data.y
    if scorer is neg_brier_scorer:
        model, y = classifier, data.labels
    value = scorer(model, data.X, y)
    search = clone(GridSearchCV(model, {}, scoring=scorer))
    for copied in (
        pickle.loads(pickle.dumps(scorer)),
        copy.deepcopy(scorer),
        search.scoring,
    ):
        assert isinstance(copied, Scorer)
        assert repr(copied) == repr(scorer)
        assert copied(model, data.X, y) == value


# ---- options and names


def test_options(fitted, data):
    half = interval_coverage_scorer.with_options(coverage=0.5)
    assert half(fitted, data.X, data.y) == interval_coverage_scorer(
        fitted, data.X, data.y, coverage=0.5
    )
    assert half(fitted, data.X, data.y, coverage=0.9) == interval_coverage_scorer(
        fitted, data.X, data.y
    )
    assert repr(half) == "interval_coverage_scorer(coverage=0.5)"
    assert repr(interval_coverage_scorer) == "interval_coverage_scorer"
    with pytest.raises(TypeError, match="unexpected keyword argument 'level'"):
        half.with_options(level=3)(fitted, data.X, data.y)


@EVERY_SCORER
def test_repr_of_a_scorer(scorer):
    assert scorer.__doc__ != Scorer.__doc__
    assert len(repr(scorer)) < 120  # without all rows outside the data


# ---- metadata routing


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@EVERY_SCORER
@pytest.mark.usefixtures("routing")
def test_routed_weights(with_tau, classifier, data, scorer):
    """The scorer gets the weights of the test rows, alone and in a dict."""
    model, y = with_tau, data.y
    if scorer is neg_brier_scorer:
        model = clone(classifier).set_params(length_scale=1.0)
        y = data.labels
    # The network is fitted without weights.
    model = clone(model).set_fit_request(sample_weight=False)
    weighted = scorer.set_score_request(sample_weight=True)
    plain = scorer.set_score_request(sample_weight=False)
    results = cross_validate(
        model,
        data.X,
        y,
        cv=KFold(2),
        scoring={"weighted": weighted, "plain": plain},
        params={"sample_weight": data.weights},
    )
    search = GridSearchCV(model, {}, scoring=weighted, cv=KFold(2))
    search.fit(data.X, y, sample_weight=data.weights)
    for i, (train, test) in enumerate(KFold(2).split(data.X)):
        part = clone(model).fit(data.X[train], y[train])
        expected = scorer(part, data.X[test], y[test], data.weights[test])
        assert results["test_weighted"][i] == pytest.approx(expected)
        assert search.cv_results_[f"split{i}_test_score"][0] == pytest.approx(expected)
        assert results["test_plain"][i] == pytest.approx(
            scorer(part, data.X[test], y[test])
        )
    assert search.score(data.X, y, sample_weight=data.weights) == pytest.approx(
        scorer(search, data.X, y, data.weights)
    )


@pytest.mark.usefixtures("routing")
def test_weights_of_another_name(model, data):
    scorer = neg_crps_scorer.set_score_request(sample_weight="trust")
    scores = cross_validate(
        model, data.X, data.y, cv=2, scoring=scorer, params={"trust": data.weights}
    )["test_score"]
    plain = cross_val_score(model, data.X, data.y, cv=2, scoring=neg_crps_scorer)
    assert (scores != plain).all()


@pytest.mark.usefixtures("routing")
def test_weights_without_request_are_refused(model, data):
    """``set_score_request`` does not change the module's scorers."""
    neg_crps_scorer.set_score_request(sample_weight=True)
    model = clone(model).set_fit_request(sample_weight=True)
    search = GridSearchCV(model, {}, scoring=neg_crps_scorer, cv=2)
    with pytest.raises(UnsetMetadataPassedError, match="neg_crps_scorer"):
        search.fit(data.X, data.y, sample_weight=data.weights)


def test_request_without_routing():
    with pytest.raises(RuntimeError, match="metadata routing must be enabled"):
        neg_crps_scorer.set_score_request(sample_weight=True)


def test_weights_without_routing(model, data):
    """A search passes weights equally to a scorer alone and in a dict."""
    alone, named = (
        GridSearchCV(model, {}, scoring=scoring, cv=2, refit=refit).fit(
            data.X, data.y, sample_weight=data.weights
        )
        for scoring, refit in (
            (neg_crps_scorer, True),
            ({"crps": neg_crps_scorer}, "crps"),
        )
    )
    assert named.best_score_ == alone.best_score_


# ---- errors


@pytest.mark.parametrize("scorer", REGRESSORS_ONLY, ids=name)
def test_scores_of_regressors_only(classifier, data, scorer):
    with pytest.raises(TypeError, match="needs a regressor"):
        scorer(classifier, data.X, data.labels)


def test_scores_of_classifiers_only(fitted, data):
    with pytest.raises(TypeError, match=r"needs a classifier; got MCDropoutRegressor"):
        neg_brier_scorer(fitted, data.X, data.y)


def test_shape_of_y(fitted, data):
    with pytest.raises(ValueError, match=r"shape of the predictions, \(37,\); got"):
        neg_aurc_scorer(fitted, data.X, data.y[:, None])


@EVERY_SCORER
def test_bad_weights(fitted, classifier, data, scorer):
    model, y = fitted, data.y
    if scorer is neg_brier_scorer:
        model, y = classifier, data.labels
    with pytest.raises(ValueError, match=r"at least one (row|non-zero)"):
        scorer(model, data.X, y, np.zeros(ROWS))
    with pytest.raises(ValueError, match="Negative values in data"):
        scorer(model, data.X, y, -data.weights)
