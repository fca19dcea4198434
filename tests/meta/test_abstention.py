"""Abstainer: the largest threshold that meets the target error on held-out rows."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import beta, binom
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.cluster import KMeans
from sklearn.exceptions import DataConversionWarning
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer, r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    Abstainer,
    MCDropoutClassifier,
    MCDropoutRegressor,
    predict_uncertainty,
)
from skbayesnn._meta.abstention import (
    last_before_failure,
    starting_shares,
    upper_bounds,
)
from tests.helpers.linear_gaussian import LinearGaussian
from tests.helpers.seed import SEED

ROWS, FRESH = 300, 1000
SMALL = {
    "hidden_layer_sizes": (8,),
    "max_iter": 30,
    "n_draws": 20,
    "learning_rate_init": 0.03,
    "random_state": SEED,
}


@pytest.fixture(scope="module")
def data():
    """Two classes that overlap in the middle; noise that grows to one side."""
    random = np.random.default_rng([SEED, 31])

    def rows(n):
        X = random.normal(size=(n, 3))
        labels = np.where(X[:, 0] + 0.5 * random.normal(size=n) > 0, 1, 0)
        y = X[:, 1] + np.exp(X[:, 0]) * random.normal(size=n)
        return X, labels, y

    (X, labels, y), (X_new, labels_new, y_new) = rows(ROWS), rows(FRESH)
    return SimpleNamespace(
        X=X, labels=labels, y=y, X_new=X_new, labels_new=labels_new, y_new=y_new
    )


@pytest.fixture(scope="module")
def classifier(data):
    network = MCDropoutClassifier(**SMALL)
    model = Abstainer(network, target_error=0.05, confidence=None, cv=3)
    return model.fit(data.X, data.labels)


def uneven(**parameters):
    """A regressor that models the growing noise."""
    return Abstainer(LinearGaussian(uneven=1.0), **parameters)


# ---------------------------------------------------------------- the threshold


def test_threshold_is_the_largest_that_meets_the_target(data):
    """By brute force over all thresholds, on the rows that each fold holds out."""
    folds = list(KFold(4, shuffle=True, random_state=SEED).split(data.X))
    target = 1.2
    model = uneven(target_error=target, confidence=None, cv=folds).fit(data.X, data.y)
    uncertainty, square = np.empty(ROWS), np.empty(ROWS)
    for train, test in folds:
        fold_model = LinearGaussian(uneven=1.0).fit(data.X[train], data.y[train])
        uncertainty[test] = fold_model.predict_uncertainty(data.X[test])
        square[test] = np.square(fold_model.predict(data.X[test]) - data.y[test])
    within = [
        threshold
        for threshold in uncertainty
        if np.sqrt(square[uncertainty <= threshold].mean()) <= target
    ]
    kept = uncertainty <= max(within)
    assert model.threshold_ == pytest.approx(max(within), rel=1e-12)
    assert model.coverage_ == pytest.approx(kept.mean(), rel=1e-12)
    assert model.error_ == pytest.approx(np.sqrt(square[kept].mean()), rel=1e-12)
    assert 0 < model.coverage_ < 1 and model.error_ <= target


def test_threshold_of_a_classifier(data, classifier):
    """The error is the share of wrong labels; the default measure is entropy."""
    entropy, wrong = np.empty(ROWS), np.empty(ROWS)
    for train, test in StratifiedKFold(3).split(data.X, data.labels):
        model = MCDropoutClassifier(**SMALL).fit(data.X[train], data.labels[train])
        entropy[test] = model.predict_uncertainty(data.X[test])
        wrong[test] = model.predict(data.X[test]) != data.labels[test]
    within = [t for t in entropy if wrong[entropy <= t].mean() <= 0.05]
    assert classifier.threshold_ == pytest.approx(max(within), rel=1e-6)
    assert classifier.error_ == pytest.approx(wrong[entropy <= max(within)].mean())


def test_given_threshold_is_used(data):
    model = uneven(threshold=0.7).fit(data.X, data.y)
    assert model.threshold_ == 0.7
    assert not hasattr(model, "coverage_")
    expected = model.estimator_.predict_uncertainty(data.X_new) <= 0.7
    np.testing.assert_array_equal(model.accepts(data.X_new), expected)
    assert 0 < expected.sum() < FRESH


def test_target_error_that_all_rows_meet(data):
    model = uneven(target_error=1e6, confidence=None).fit(data.X, data.y)
    assert model.coverage_ == 1


def test_target_error_that_no_row_meets(data):
    with pytest.warns(UserWarning, match="No threshold keeps the error .* at or below"):
        model = uneven(target_error=0.0, tolerance=0.0).fit(data.X, data.y)
    assert model.threshold_ == -np.inf and model.coverage_ == 0
    assert np.isnan(model.predict(data.X_new)).all()
    report = model.report(data.X_new, data.y_new)
    assert report["coverage"] == 0 and report["n_accepted"] == 0
    assert np.isnan(report["error"])
    assert np.isnan(model.score(data.X_new, data.y_new))


def test_rows_of_weight_zero_do_not_count(data):
    """With a frozen model, so that the weights change the threshold only."""
    frozen = FrozenEstimator(LinearGaussian(uneven=1.0).fit(data.X, data.y))
    weight = np.arange(ROWS) % 3
    model = Abstainer(frozen, target_error=1.2, confidence=None)
    some = clone(model).fit(data.X, data.y, sample_weight=weight)
    again = np.repeat(np.arange(ROWS), weight)
    repeated = model.fit(data.X[again], data.y[again])
    assert some.threshold_ == repeated.threshold_
    assert some.coverage_ == pytest.approx(repeated.coverage_, rel=1e-12)
    assert some.error_ == pytest.approx(repeated.error_, rel=1e-12)
    for rows, weights in ((slice(None), weight), (again, None)):
        report = some.report(data.X[rows], data.y[rows], weights)
        assert report["error"] == pytest.approx(some.error_, rel=1e-12)
        assert report["coverage"] == pytest.approx(some.coverage_, rel=1e-12)


# ------------------------------------------------------------------- confidence


def test_bound_of_a_share_inverts_the_binomial_distribution():
    """With a share at the bound, at most so many errors have probability 1 - level."""
    wrong = np.repeat([0.0, 1.0, 0.0, 1.0], [5, 1, 20, 3])
    order = np.arange(len(wrong))
    bound = upper_bounds(wrong, order, np.ones(len(wrong)), 0.97)
    n, k = order + 1, wrong.cumsum()
    np.testing.assert_allclose(binom.cdf(k, n, bound), 0.03, rtol=1e-9)
    np.testing.assert_allclose(bound, beta.ppf(0.97, k + 1, n - k), rtol=1e-12)
    weighted = upper_bounds(wrong, order, np.full(len(wrong), 7.0), 0.97)
    np.testing.assert_allclose(weighted, bound, rtol=1e-12)
    # Rows of equal uncertainty are accepted together; without a right label nothing
    # is known about the share.
    together = upper_bounds(wrong, 0 * order, np.ones(len(wrong)), 0.97)
    np.testing.assert_array_equal(together, bound[-1:])
    assert upper_bounds(wrong[-2:], order[:2], np.ones(2), 0.97)[1] == 1


def test_error_above_the_tolerance_is_wrong(data):
    """The same threshold as that of labels that are wrong in these rows."""
    inner = LinearGaussian(uneven=1.0).fit(data.X, data.y)
    model = Abstainer(FrozenEstimator(inner), target_error=0.2, tolerance=1.5)
    model.fit(data.X, data.y)
    uncertainty = inner.predict_uncertainty(data.X)
    wrong = np.abs(inner.predict(data.X) - data.y) > 1.5
    as_labels = Abstainer(MCDropoutClassifier(), target_error=0.2)._select_threshold(
        wrong.astype(float), uncertainty, np.ones(ROWS)
    )
    assert model.threshold_ == as_labels["threshold_"]
    assert model.error_bound_ == as_labels["error_bound_"] <= 0.2
    kept = uncertainty <= model.threshold_
    assert model.report(data.X, data.y) == {
        "coverage": pytest.approx(kept.mean()),
        "error": pytest.approx(wrong[kept].mean()),
        "n_accepted": kept.sum(),
    }
    assert model.error_ == pytest.approx(wrong[kept].mean())


def test_error_of_new_rows_is_probably_below_the_target(seed):
    """Labels are wrong with probability u^2 / 2, so that with a threshold of t the
    error of the accepted rows is t^2 / 6. In at most 10 % of the samples it may exceed
    the target; without a bound it does in about half of them."""
    random = np.random.default_rng([seed, 13])
    target, n_samples, n_rows = 0.08, 300, 400
    excess, accepted = {0.9: 0, None: 0}, 0
    for _ in range(n_samples):
        u = random.uniform(size=n_rows)
        wrong = (random.uniform(size=n_rows) < u**2 / 2).astype(float)
        for confidence in excess:
            abstainer = Abstainer(
                MCDropoutClassifier(), target_error=target, confidence=confidence
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = abstainer._select_threshold(wrong, u, np.ones(n_rows))
            threshold = max(found["threshold_"], 0.0)
            excess[confidence] += threshold**2 / 6 > target
            if confidence is not None:
                accepted += threshold / n_samples
    assert excess[0.9] <= 0.1 * n_samples < 0.2 * n_samples < excess[None]
    assert accepted > 0.3  # of at most sqrt(6 * 0.08) = 0.69


def test_search_continues_until_the_first_failure():
    meets = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1, 1], bool)
    assert last_before_failure(meets, np.array([3, 1])) == 5
    assert last_before_failure(meets, np.array([0])) == 1
    assert last_before_failure(meets, np.array([8])) == 9
    assert last_before_failure(meets, np.array([2, 6])) is None
    np.testing.assert_allclose(starting_shares(np.ones(50)), [0.6])
    np.testing.assert_allclose(starting_shares(np.ones(700)), [0.6, 0.3, 0.15])


def test_threshold_with_confidence_is_smaller(data):
    """The error bound of the threshold meets the target, and is documented."""
    frozen = FrozenEstimator(LinearGaussian(uneven=1.0).fit(data.X, data.y))
    model = Abstainer(frozen, target_error=0.1, tolerance=1.5)
    careful = clone(model).fit(data.X_new, data.y_new)
    bold = clone(model).set_params(confidence=None).fit(data.X_new, data.y_new)
    assert 0 < careful.coverage_ < bold.coverage_
    assert careful.error_ < careful.error_bound_ <= 0.1
    assert not hasattr(bold, "error_bound_")
    weight = np.arange(FRESH) % 2
    odd = clone(model).fit(data.X_new[1::2], data.y_new[1::2])
    some = clone(model).fit(data.X_new, data.y_new, sample_weight=weight)
    assert some.threshold_ == odd.threshold_ and some.error_bound_ == odd.error_bound_


# ------------------------------------------------------------------ predictions


def test_accepted_new_rows_have_a_lower_error(data, classifier):
    """Refused labels are wrong more often, by far more than chance allows."""
    report = classifier.report(data.X_new, data.labels_new)
    inner = classifier.estimator_
    overall = (inner.predict(data.X_new) != data.labels_new).mean()
    # About one label in seven is wrong; the target is one in twenty.
    assert report["error"] < 0.75 * overall
    assert report["coverage"] > 0.3
    score = classifier.score(data.X_new, data.labels_new)
    assert score == pytest.approx(1 - report["error"], rel=1e-12)


def test_refused_rows_have_no_prediction(data, classifier):
    accepted = classifier.accepts(data.X_new)
    labels = classifier.predict(data.X_new)
    inner = classifier.estimator_
    np.testing.assert_array_equal(labels[accepted], inner.predict(data.X_new)[accepted])
    assert (labels[~accepted] == -1).all() and 0 < accepted.sum() < FRESH
    np.testing.assert_array_equal(classifier.classes_, [0, 1])
    np.testing.assert_array_equal(
        classifier.predict_proba(data.X_new), inner.predict_proba(data.X_new)
    )


def test_refused_predictions_are_nan(data):
    model = uneven(target_error=1.2, confidence=None).fit(data.X, data.y)
    accepted, y = model.accepts(data.X_new), model.predict(data.X_new)
    assert np.isnan(y[~accepted]).all()
    np.testing.assert_array_equal(
        y[accepted], model.estimator_.predict(data.X_new)[accepted]
    )
    report = model.report(data.X_new, data.y_new)
    errors = (y - data.y_new)[accepted]
    assert report["error"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-12)
    expected = r2_score(data.y_new[accepted], y[accepted])
    assert model.score(data.X_new, data.y_new) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(AttributeError):
        model.predict_proba(data.X_new)


@pytest.mark.parametrize(
    ("labels", "abstain_label", "expected"),
    [
        (["no", "yes"], "auto", "abstain"),
        (["no", "yes"], "ask", "ask"),
        ([0, 1], "auto", -1),
        ([0, 1], 99, 99),
    ],
    ids=["string", "own string", "number", "own number"],
)
def test_label_of_abstention(data, labels, abstain_label, expected):
    y = np.array(labels)[data.labels]
    model = Abstainer(
        MCDropoutClassifier(**SMALL), threshold=-1.0, abstain_label=abstain_label
    ).fit(data.X, y)
    assert model.abstain_label_ == expected
    assert (model.predict(data.X_new) == expected).all()


def test_classes_are_ranked_by_probability(data, classifier):
    """Scorers of classifiers would use a `decision_function` first."""
    score = get_scorer("roc_auc")(classifier, data.X_new, data.labels_new)
    probability = classifier.predict_proba(data.X_new)[:, 1]
    assert score == roc_auc_score(data.labels_new, probability)
    assert not hasattr(classifier, "decision_function")


def test_kind_selects_the_measure(data):
    """Another measure refuses other rows; the free function uses the same measure."""
    model = Abstainer(
        MCDropoutClassifier(**SMALL), kind="mutual_information", threshold=0.02
    ).fit(data.X, data.labels)
    actual = model.estimator_.predict_uncertainty(data.X_new, "mutual_information")
    np.testing.assert_array_equal(model.predict_uncertainty(data.X_new), actual)
    np.testing.assert_array_equal(predict_uncertainty(model, data.X_new), actual)
    np.testing.assert_array_equal(model.accepts(data.X_new), actual <= 0.02)
    np.testing.assert_array_equal(
        predict_uncertainty(model, data.X_new, "entropy"),
        model.estimator_.predict_uncertainty(data.X_new, "entropy"),
    )


# ------------------------------------------------------- as a scikit-learn estimator


def test_estimator_type_of_the_wrapped_estimator():
    assert is_classifier(Abstainer(MCDropoutClassifier(), threshold=1.0))
    assert is_regressor(Abstainer(MCDropoutRegressor(), threshold=1.0))


def test_in_a_pipeline_and_a_search(data):
    model = make_pipeline(
        StandardScaler(), uneven(target_error=1.2, confidence=None)
    ).fit(data.X, data.y)
    assert np.isnan(model.predict(data.X_new)).any()
    search = GridSearchCV(
        Abstainer(make_pipeline(StandardScaler(), LinearGaussian()), threshold=9.0),
        {"estimator__lineargaussian__uneven": [0.0, 1.0]},
        cv=3,
    ).fit(data.X, data.y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_search_over_kinds(data):
    def coverage(model, X, y):
        return model.report(X, y)["coverage"]

    search = GridSearchCV(
        Abstainer(
            MCDropoutClassifier(**SMALL), target_error=0.1, confidence=None, cv=2
        ),
        {"kind": ["entropy", "variation_ratio"]},
        scoring=coverage,
        cv=2,
    ).fit(data.X, data.labels)
    scores = search.cv_results_["mean_test_score"]
    assert ((scores >= 0) & (scores <= 1)).all()
    best = search.best_estimator_
    assert best.kind == ["entropy", "variation_ratio"][scores.argmax()]
    np.testing.assert_array_equal(search.predict(data.X_new), best.predict(data.X_new))


def test_second_fit_replaces_the_first(data):
    model = uneven(target_error=1.2, confidence=None).fit(data.X, data.y)
    model.set_params(target_error=None, threshold=0.5).fit(data.X, data.y)
    assert model.threshold_ == 0.5
    assert not hasattr(model, "coverage_") and not hasattr(model, "error_")


R, C = MCDropoutRegressor(), MCDropoutClassifier()
SHARE = r"`target_error` must be in \[0, 1\); got"


@pytest.mark.parametrize(
    ("estimator", "parameters", "error", "message"),
    [
        (R, {}, ValueError, "exactly one of `threshold`"),
        (R, {"threshold": 1.0, "target_error": 0.1}, ValueError, "exactly one of"),
        (R, {"threshold": np.nan}, ValueError, "`threshold` must be finite; got nan"),
        (R, {"threshold": "a"}, TypeError, "`threshold` must be a number; got 'a'"),
        (R, {"target_error": "a"}, TypeError, "`target_error` must be a number"),
        (R, {"target_error": -1}, ValueError, ">= 0; got -1"),
        (C, {"target_error": 5}, ValueError, f"{SHARE} 5"),
        (R, {"target_error": 1.5, "tolerance": 0.1}, ValueError, f"{SHARE} 1.5"),
        (R, {"threshold": 1.0, "kind": ["total"]}, TypeError, "name of one measure"),
        (R, {"threshold": 1.0, "kind": "entropy"}, ValueError, "must be one of"),
        (R, {"target_error": 1.0, "kind": "all"}, ValueError, "must be one of"),
        (
            R,
            {"target_error": 1.0},
            ValueError,
            "`confidence` needs a `tolerance`.*got confidence=0.9 and tolerance=None",
        ),
        (
            C,
            {"target_error": 0.1, "tolerance": 0.1},
            ValueError,
            "`tolerance` is for regressors; got MCDropoutClassifier",
        ),
        (
            R,
            {"target_error": 1.0, "confidence": 1.0},
            ValueError,
            r"`confidence` must be in \(0, 1\); got 1",
        ),
        (C, {"threshold": 1, "abstain_label": 1}, ValueError, "not be a label of y"),
        (C, {"threshold": 1, "abstain_label": "none"}, TypeError, "must be a number"),
        (KMeans(), {"threshold": 1.0}, TypeError, "classifier or a regressor"),
    ],
)
def test_wrong_parameters(data, estimator, parameters, error, message):
    y = data.labels if is_classifier(estimator) else data.y
    with pytest.raises(error, match=message):
        Abstainer(estimator, **parameters).fit(data.X, y)


# ----------------------------------------------------------------------- reports


WRONG_ROWS = {
    "one label": (lambda y: y[:1], None, "inconsistent numbers of samples"),
    "too few": (lambda y: y[:-1], None, "inconsistent numbers of samples"),
    "two targets": (lambda y: np.stack([y, y], 1), None, "y"),
    "negative": (lambda y: y, lambda n: -np.ones(n), "Negative values"),
    "NaN": (lambda y: y, lambda n: np.full(n, np.nan), "contains NaN"),
    "zeros": (lambda y: y, np.zeros, r"at least one (row|non-zero)"),
    "too few weights": (lambda y: y, lambda n: np.ones(n - 1), r"expected \(41,\)"),
    "other labels": (lambda y: np.full(len(y), "a"), None, "number|among the model"),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
def test_report_checks_its_rows(seed, kind, name):
    change, weigh, message = WRONG_ROWS[name]
    random = np.random.default_rng([seed, 8])
    X, y = random.normal(size=(41, 3)), random.permutation(41) % 2
    network = kind((4,), max_iter=2, n_draws=5, random_state=seed)
    model = Abstainer(network, threshold=10.0).fit(X, y)
    weights = None if weigh is None else weigh(41)
    for method in (model.report, model.score):
        with pytest.raises(ValueError, match=message):
            method(X, change(y), weights)
    if kind is MCDropoutRegressor:
        with pytest.raises(ValueError, match="contains NaN"):
            model.report(X, np.where(y > 0, np.nan, y))


def test_column_vector_y_warns(seed):
    random = np.random.default_rng([seed, 9])
    X, y = random.normal(size=(41, 3)), random.normal(size=41)
    network = MCDropoutRegressor((4,), max_iter=2, n_draws=5, random_state=seed)
    model = Abstainer(network, threshold=10.0).fit(X, y)
    with pytest.warns(DataConversionWarning):
        assert model.report(X, y[:, None]) == model.report(X, y)
