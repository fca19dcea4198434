"""Conformal intervals and sets: coverage in finite samples, and order statistics."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_regression
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    cross_val_score,
    train_test_split,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    Abstainer,
    CalibratedUncertaintyRegressor,
    ConformalClassifier,
    ConformalRegressor,
    MCDropoutRegressor,
    predict_interval,
    predict_quantile,
    report,
)
from skbayesnn.inspection import attributions
from tests.helpers.checks import Checks
from tests.helpers.linear_gaussian import LinearGaussian
from tests.helpers.seed import SEED

SPLITS = 200
METHODS = pytest.mark.parametrize("method", ["split", "cv+"])


def rows(random, n):
    """Skewed noise that grows to one side, so that no Gaussian model is right."""
    X = random.normal(size=(n, 3))
    noise = np.exp(0.5 * X[:, 0]) * (random.gamma(2.0, 1.0, n) - 2.0)
    return X, X @ [1.0, -2.0, 0.5] + noise


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng([SEED, 41])
    (X, y), (X_new, y_new) = rows(random, 240), rows(random, 100)
    labels = np.array(["no", "so-so", "yes"])[
        np.digitize(X[:, 0] + 0.7 * random.normal(size=240), [-0.5, 0.5])
    ]
    return SimpleNamespace(X=X, y=y, X_new=X_new, y_new=y_new, labels=labels)


def share_inside(interval, y):
    """Share of y inside its interval."""
    return ((interval[..., 0] <= y) & (y <= interval[..., 1])).mean()


def shares_inside(intervals, y):
    """Share of y inside its interval, for every coverage."""
    return [share_inside(intervals[:, j], y) for j in range(len(COVERAGE))]


def assert_between(low, shares, high):
    """The mean over the splits, for every coverage."""
    mean = np.mean(shares, axis=0)
    assert (low <= mean).all() and (mean <= high).all()


# ----------------------------------------- coverage over random splits of the rows


COVERAGE = np.array([0.5, 0.8, 0.9])


@pytest.mark.parametrize("factor", [0.1, 1.0], ids=["too sure", "fair"])
def test_split_covers_in_finite_samples(factor):
    """1 - a <= P(y inside) <= 1 - a + 1 / (n + 1), whatever the model."""
    random = np.random.default_rng([SEED, 42])
    model = FrozenEstimator(
        LinearGaussian(factor=factor).fit(*rows(random, 50)),
    )
    n, shares = 30, []
    for _ in range(SPLITS):
        conformal = ConformalRegressor(model).fit(*rows(random, n))
        X, y = rows(random, 50)
        shares.append(shares_inside(conformal.predict_interval(X, COVERAGE), y))
    # The share varies with the calibration rows, Beta(k, n + 1 - k) of variance below c
    # (1 - c) / (n + 2), and with the 50 test rows; five standard errors of the mean.
    variance = COVERAGE * (1 - COVERAGE) * (1 / (n + 2) + 1 / 50)
    error = 5 * np.sqrt(variance / SPLITS)
    assert_between(COVERAGE - error, shares, COVERAGE + 1 / (n + 1) + error)


def test_cross_covers_in_finite_samples():
    """CV+ promises 2 c - 1, but with a stable model c, which is tested here."""
    random = np.random.default_rng([SEED, 43])
    shares = []
    for _ in range(SPLITS):
        conformal = ConformalRegressor(LinearGaussian(), method="cv+", cv=4)
        conformal.fit(*rows(random, 40))
        X, y = rows(random, 50)
        shares.append(shares_inside(conformal.predict_interval(X, COVERAGE), y))
    error = 5 * np.sqrt(COVERAGE * (1 - COVERAGE) * (1 / 40 + 1 / 50) / SPLITS)
    # Models trained without a quarter of so few rows have slightly larger residuals.
    assert_between(COVERAGE - error, shares, COVERAGE + 0.06 + error)


def test_sets_cover_in_finite_samples():
    random = np.random.default_rng([SEED, 44])

    def labelled(n):
        X = random.normal(size=(n, 2))
        noisy = X[:, 0] + 0.7 * random.normal(size=n)
        return X, np.digitize(noisy, [-0.5, 0.5])

    model = FrozenEstimator(LogisticRegression().fit(*labelled(60)))
    n, shares = 30, []
    for _ in range(SPLITS):
        conformal = ConformalClassifier(model).fit(*labelled(n))
        X, y = labelled(50)
        shares.append(conformal.predict_set(X, COVERAGE)[np.arange(50), :, y].mean(0))
    error = 5 * np.sqrt(COVERAGE * (1 - COVERAGE) * (1 / (n + 2) + 1 / 50) / SPLITS)
    assert_between(COVERAGE - error, shares, COVERAGE + 1 / (n + 1) + error)


# --------------------------------------------------------------- order statistics


@pytest.mark.parametrize("n", [9, 19, 20, 39, 99, 199, 999_999])
@pytest.mark.parametrize("calibrator", ["split", "cv+", "set"])
def test_rank_is_exact(n, calibrator, seed):
    """The ceil(c (n + 1))-th smallest score, computed with Fractions."""
    random = np.random.default_rng(seed)
    score = random.permutation(np.linspace(0.05, 0.95, n))
    X = np.zeros((n, 1))
    if calibrator != "set":
        model = FrozenEstimator(Standard().fit(X, score))
        conformal = ConformalRegressor(model, method=calibrator).fit(X, score)
    else:
        model = FrozenEstimator(ProbabilityOfX().fit(score[:, None], [0, 1] * 99))
        conformal = ConformalClassifier(model).fit(score[:, None], np.ones(n, int))
    with Checks() as check:
        for coverage in ("0.5", "0.8", "0.9"):
            rank = -int(-Fraction(coverage) * (n + 1) // 1)
            with check(f"coverage {coverage}"):
                if calibrator != "set":
                    expected = np.sort(score)[rank - 1]
                    [(low, high)] = conformal.predict_interval(X[:1], float(coverage))
                    assert (-low, high) == pytest.approx((expected,) * 2, rel=1e-12)
                else:
                    # A label of probability x has the score 1 - x.
                    edge = 1 - np.sort(1 - score)[rank - 1]
                    probes = np.array([edge - 1e-9, edge + 1e-9])[:, None]
                    sets = conformal.predict_set(probes, float(coverage))
                    assert sets[:, 1].tolist() == [False, True]


class Standard(LinearGaussian):
    """Predicts a standard normal distribution, whatever the training rows."""

    def fit(self, X, y):
        super().fit(X, y)
        self.coef_, self.std_ = np.zeros_like(self.coef_), np.ones(1)
        return self


class ProbabilityOfX(ClassifierMixin, BaseEstimator):
    """Predicts x as the probability of label 1."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_cross_is_equation_11(data, coverage):
    """Barber et al. 2021, with standardised residuals, by a loop over all rows."""
    folds = list(KFold(5, shuffle=True, random_state=SEED).split(data.X))
    model = ConformalRegressor(LinearGaussian(uneven=0.5), method="cv+", cv=folds).fit(
        data.X, data.y
    )
    n = len(data.y)
    low, high = np.empty((2, n, len(data.X_new)))
    for train, test in folds:
        fold_model = LinearGaussian(uneven=0.5).fit(data.X[train], data.y[train])
        mean, std = (
            fold_model.predict(data.X_new),
            fold_model.predict_uncertainty(data.X_new),
        )
        for i in test:
            residual = abs(data.y[i] - fold_model.predict(data.X[[i]])[0])
            residual /= fold_model.predict_uncertainty(data.X[[i]])[0]
            low[i], high[i] = mean - residual * std, mean + residual * std
    alpha = 1 - Fraction(str(coverage))
    below, above = int(alpha * (n + 1)), -int(-(1 - alpha) * (n + 1) // 1)
    expected = np.sort(low, 0)[below - 1], np.sort(high, 0)[above - 1]
    actual = model.predict_interval(data.X_new, coverage)
    np.testing.assert_allclose(actual, np.stack(expected, -1), rtol=1e-9, atol=1e-12)


def test_split_equals_mapie(data):
    """With a constant std: intervals of constant width, from absolute residuals."""
    mapie = pytest.importorskip("mapie.regression")
    inner = LinearGaussian().fit(data.X[:100], data.y[:100])
    X, y = data.X[100:], data.y[100:]
    model = ConformalRegressor(FrozenEstimator(inner)).fit(X, y)
    reference = mapie.SplitConformalRegressor(inner, confidence_level=[0.5, 0.8, 0.9])
    state = np.random.get_state()  # MAPIE draws from it
    _, expected = reference.conformalize(X, y).predict_interval(data.X_new)
    np.random.set_state(state)
    actual = model.predict_interval(data.X_new, [0.5, 0.8, 0.9])
    np.testing.assert_allclose(actual, expected.swapaxes(1, 2), rtol=1e-9)


def test_blocks_of_rows_do_not_change_the_intervals(data, monkeypatch):
    model = ConformalRegressor(LinearGaussian(), method="cv+").fit(data.X, data.y)
    whole = model.predict_interval(data.X_new, 0.8)
    monkeypatch.setattr("skbayesnn._meta.conformal_scores.BLOCK", 7)
    np.testing.assert_array_equal(model.predict_interval(data.X_new, 0.8), whole)


# ------------------------------------------------------------------------- widths


def test_width_is_proportional_to_the_std(data):
    model = ConformalRegressor(LinearGaussian(uneven=0.5), random_state=SEED).fit(
        data.X, data.y
    )
    interval = model.predict_interval(data.X_new, [0.5, 0.9])
    assert interval.shape == (100, 2, 2)
    [inner] = model.estimators_
    std = inner.predict_uncertainty(data.X_new)
    ratio = np.diff(interval)[..., 0] / std[:, None]
    np.testing.assert_allclose(ratio, ratio[:1].repeat(100, 0), rtol=1e-9)
    np.testing.assert_allclose(interval.mean(-1)[:, 0], inner.predict(data.X_new))
    np.testing.assert_array_equal(
        interval[:, 1], model.predict_interval(data.X_new, 0.9)
    )


@METHODS
def test_width_grows_with_the_coverage(data, method):
    model = ConformalRegressor(LinearGaussian(), method=method, random_state=SEED)
    model.fit(data.X, data.y)
    width = np.diff(model.predict_interval(data.X_new, [0.3, 0.6, 0.9]))[..., 0]
    assert (np.diff(width, axis=1) > 0).all()


@METHODS
def test_too_few_rows_give_infinite_intervals(data, method):
    model = ConformalRegressor(LinearGaussian(), method=method, cv=2)
    model.fit(data.X[:16], data.y[:16])
    few = model.n_calibration_
    with pytest.warns(UserWarning, match=f"at least 19 calibration rows; got {few}"):
        interval = model.predict_interval(data.X_new, [0.5, 0.95])
    assert np.isfinite(interval[:, 0]).all()
    np.testing.assert_array_equal(interval[:, 1], [[-np.inf, np.inf]] * 100)


def test_too_few_rows_give_sets_of_all_labels(data):
    model = ConformalClassifier(LogisticRegression(), calibration_size=9).fit(
        data.X, data.labels
    )
    with pytest.warns(UserWarning, match="at least 19 calibration rows; got 9"):
        assert model.predict_set(data.X_new, 0.95).all()


# --------------------------------------------------------------------------- sets


def test_sets_are_nested(data):
    model = ConformalClassifier(LogisticRegression(), random_state=SEED).fit(
        data.X, data.labels
    )
    sets = model.predict_set(data.X_new, [0.5, 0.8, 0.95])
    assert sets.shape == (100, 3, 3) and sets.dtype == bool
    assert (sets[:, 0] <= sets[:, 1]).all() and (sets[:, 1] <= sets[:, 2]).all()
    assert sets.sum() > sets[:, :1].sum() * 3
    np.testing.assert_array_equal(model.classes_, ["no", "so-so", "yes"])
    np.testing.assert_array_equal(
        model.predict(data.X_new), model.estimator_.predict(data.X_new)
    )
    # The likeliest labels enter the set first.
    probability = model.predict_proba(data.X_new)
    for row, chosen in zip(probability, sets[:, 1], strict=True):
        assert not chosen.any() or row[chosen].min() >= row[~chosen].max(initial=0)


def test_sets_calibrate_on_rows_chosen_without_their_labels(data):
    """Stratified calibration rows would not be exchangeable with new rows."""
    model = ConformalClassifier(
        LogisticRegression(), calibration_size=60, random_state=SEED
    ).fit(data.X, data.labels)
    train, calibration = train_test_split(
        np.arange(240), test_size=60, random_state=SEED
    )
    inner = LogisticRegression().fit(data.X[train], data.labels[train])
    frozen = ConformalClassifier(FrozenEstimator(inner))
    frozen.fit(data.X[calibration], data.labels[calibration])
    np.testing.assert_array_equal(
        model.predict_set(data.X_new, [0.5, 0.9]),
        frozen.predict_set(data.X_new, [0.5, 0.9]),
    )


class Reversed(ClassifierMixin, BaseEstimator):
    """A classifier of another library with unsorted classes."""

    def __init__(self, inner):
        self.inner = inner

    def fit(self, X, y):
        self.inner.fit(X, y)
        self.classes_ = self.inner.classes_[::-1]
        return self

    def predict_proba(self, X):
        return self.inner.predict_proba(X)[:, ::-1]


def test_sets_of_classes_in_any_order(data):
    model = ConformalClassifier(LogisticRegression(), random_state=SEED)
    expected = model.fit(data.X, data.labels).predict_set(data.X_new)
    turned = ConformalClassifier(Reversed(LogisticRegression()), random_state=SEED)
    actual = turned.fit(data.X, data.labels).predict_set(data.X_new)
    np.testing.assert_array_equal(actual[:, ::-1], expected)


def test_sets_require_labels(data):
    with pytest.raises(ValueError, match="continuous"):
        ConformalClassifier(LogisticRegression()).fit(data.X, data.y)


def test_labels_without_training_rows(data):
    model = FrozenEstimator(
        LogisticRegression().fit(
            data.X[data.labels != "yes"], data.labels[data.labels != "yes"]
        )
    )
    with pytest.raises(ValueError, match=r"calibration rows must have labels .*yes"):
        ConformalClassifier(model).fit(data.X, data.labels)


# ------------------------------------------------------------- calibration rows


def test_calibration_rows_are_held_out(data):
    model = ConformalRegressor(
        LinearGaussian(), calibration_size=40, random_state=SEED
    ).fit(data.X, data.y)
    assert model.n_calibration_ == 40
    [inner] = model.estimators_
    train, calibration = train_test_split(
        np.arange(240), test_size=40, random_state=SEED
    )
    np.testing.assert_array_equal(inner.seen_, data.X[train, 0])
    assert len(np.intersect1d(inner.seen_, data.X[calibration, 0])) == 0


def test_every_fold_is_left_out_once(data):
    folds = list(KFold(3, shuffle=True, random_state=SEED).split(data.X))
    model = ConformalRegressor(LinearGaussian(), method="cv+", cv=folds)
    model.fit(data.X, data.y)
    for inner, (train, _) in zip(model.estimators_, folds, strict=True):
        np.testing.assert_array_equal(inner.seen_, data.X[train, 0])
    means = [inner.predict(data.X_new) for inner in model.estimators_]
    np.testing.assert_allclose(model.predict(data.X_new), np.mean(means, 0))
    mean, std = model.predict(data.X_new, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(data.X_new))
    stds = [inner.predict_uncertainty(data.X_new) for inner in model.estimators_]
    np.testing.assert_allclose(
        std, np.sqrt(np.mean(np.square(stds), 0) + np.var(means, 0))
    )
    assert model.n_calibration_ == 240


def test_std_of_the_model_is_returned(data):
    model = ConformalRegressor(LinearGaussian(), random_state=SEED)
    model.fit(data.X, data.y)
    mean, std = model.predict(data.X_new, return_std=True)
    [inner] = model.estimators_
    np.testing.assert_array_equal(mean, inner.predict(data.X_new))
    np.testing.assert_allclose(std, inner.predict_uncertainty(data.X_new))


@METHODS
def test_distribution_is_the_mixture_of_the_models(data, method):
    """Its mean is explained, and its CRPS is in the report."""
    model = ConformalRegressor(LinearGaussian(deviation=0.4), method=method, cv=3)
    model.fit(data.X, data.y)
    distribution = model.predict_distribution(data.X_new)
    moments = model.predict(data.X_new, return_std=True)
    np.testing.assert_allclose(distribution.moments(), moments)
    of_models = [m.predictive_cdf(data.X_new, data.y_new) for m in model.estimators_]
    cdf = distribution.cdf(data.y_new)
    np.testing.assert_allclose(cdf, np.mean(of_models, axis=0), rtol=1e-12)
    explained = attributions(model, data.X_new[:3], background=data.X)
    total = explained.base_values + explained.values.sum(1)
    np.testing.assert_allclose(total, moments[0][:3])
    page = report(model, data.X_new, data.y_new, n_rows=1, X_train=data.X)
    assert "Not available" not in page.html
    inside = share_inside(model.predict_interval(data.X_new, 0.9), data.y_new)
    assert page.scores["90 % intervals cover"] == pytest.approx(inside)
    assert page.scores["CRPS"] == pytest.approx(distribution.crps(data.y_new).mean())


def test_models_of_a_transformed_target_are_not_mixed(data):
    inner = TransformedTargetRegressor(LinearGaussian(), transformer=StandardScaler())
    model = ConformalRegressor(inner, method="cv+", cv=3).fit(data.X, data.y)
    distribution = model.predict_distribution(data.X_new)
    with pytest.raises(TypeError, match="mixed, without a target transform"):
        distribution.mean()


def test_frozen_estimator_is_not_fitted_again(data):
    inner = LinearGaussian().fit(data.X, data.y)
    model = ConformalRegressor(FrozenEstimator(inner)).fit(data.X_new, data.y_new)
    assert model.n_calibration_ == 100
    np.testing.assert_array_equal(inner.seen_, data.X[:, 0])


def test_rows_of_weight_zero_do_not_calibrate(data):
    inner = FrozenEstimator(LinearGaussian().fit(data.X, data.y))
    weight = np.arange(100) % 2
    some = ConformalRegressor(inner).fit(data.X_new, data.y_new, sample_weight=weight)
    removed = ConformalRegressor(inner).fit(data.X_new[1::2], data.y_new[1::2])
    assert some.n_calibration_ == 50
    np.testing.assert_array_equal(
        some.predict_interval(data.X), removed.predict_interval(data.X)
    )


def test_fold_of_weight_zero_does_not_calibrate(data):
    inner = FrozenEstimator(LinearGaussian().fit(data.X, data.y))
    weight = np.repeat([1.0, 0.0], [75, 25])
    some = ConformalRegressor(inner, method="cv+", cv=4)
    some.fit(data.X_new, data.y_new, sample_weight=weight)
    removed = clone(some).set_params(cv=3).fit(data.X_new[:75], data.y_new[:75])
    assert some.n_calibration_ == 75
    np.testing.assert_allclose(
        some.predict_interval(data.X), removed.predict_interval(data.X), rtol=1e-12
    )


def test_folds_must_be_a_partition(data):
    model = ConformalRegressor(
        LinearGaussian(), method="cv+", cv=ShuffleSplit(3, random_state=SEED)
    )
    with pytest.raises(ValueError, match=r"hold every row out once .* never held out"):
        model.fit(data.X, data.y)


# ------------------------------------------------------- as a scikit-learn estimator


@METHODS
def test_around_a_network(data, method):
    network = MCDropoutRegressor((8,), max_iter=20, n_draws=10, random_state=SEED)
    model = ConformalRegressor(
        make_pipeline(StandardScaler(), network), method=method, cv=2
    ).fit(data.X, data.y)
    interval = predict_interval(model, data.X_new, 0.8)
    np.testing.assert_array_equal(interval, model.predict_interval(data.X_new, 0.8))
    prediction = model.predict(data.X_new)
    assert (interval[:, 0] < prediction).all() and (prediction < interval[:, 1]).all()
    with pytest.raises(TypeError, match="use its `predict_distribution`"):
        predict_quantile(model, data.X_new, 0.5)


@METHODS
def test_in_pipelines_and_searches(data, method):
    model = ConformalRegressor(LinearGaussian(), method=method, random_state=0)
    copied = clone(model).set_params(estimator__uneven=0.5)
    assert copied.get_params()["estimator__uneven"] == 0.5
    assert model.estimator.uneven == 0.0
    pipeline = make_pipeline(StandardScaler(), model).fit(data.X, data.y)
    assert predict_interval(pipeline, data.X_new).shape == (100, 2)
    search = GridSearchCV(model, {"estimator__factor": [0.5, 2.0]}, cv=2)
    search.fit(data.X, data.y)
    assert predict_interval(search, data.X_new, [0.5, 0.8]).shape == (100, 2, 2)
    assert np.isfinite(cross_val_score(model, data.X, data.y, cv=3)).all()


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            ConformalRegressor(LinearGaussian(), method="jackknife"),
            ValueError,
            "'split' or 'cv\\+'; got 'jackknife'",
        ),
        (ConformalRegressor(LogisticRegression()), TypeError, "ConformalClassifier"),
        (ConformalClassifier(LinearGaussian()), TypeError, "ConformalRegressor"),
    ],
    ids=["method", "classifier", "regressor"],
)
def test_wrong_parameters(data, model, error, message):
    with pytest.raises(error, match=message):
        model.fit(data.X, data.y)


def test_only_equal_tailed_intervals(data):
    model = ConformalRegressor(LinearGaussian(), method="cv+").fit(data.X, data.y)
    with pytest.raises(ValueError, match="must be 'equal_tailed'; got 'highest_den"):
        predict_interval(model, data.X_new, kind="highest_density")


def test_several_targets(data):
    with pytest.raises(ValueError, match="MultiOutputRegressor"):
        ConformalRegressor(LinearGaussian()).fit(data.X, np.c_[data.y, data.y])
    one_by_one = MultiOutputRegressor(ConformalRegressor(LinearGaussian()))
    for model in one_by_one.fit(data.X, np.c_[data.y, data.y]).estimators_:
        assert model.predict_interval(data.X_new).shape == (100, 2)


# ---- checks of the calibration rows


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", [ConformalRegressor, CalibratedUncertaintyRegressor])
def test_y_that_is_not_finite_is_refused(seed, bad, frozen, kind):
    """Also if all rows calibrate and no estimator checks them."""
    X, y = make_regression(60, 3, noise=5.0, random_state=seed)
    network = MCDropoutRegressor((4,), max_iter=2, random_state=seed)
    share_inside = FrozenEstimator(network.fit(X, y)) if frozen else network
    y[np.random.default_rng(seed).integers(60)] = bad
    with pytest.raises(ValueError, match=r"Input y contains (NaN|infinity)"):
        kind(share_inside).fit(X, y)
    with pytest.raises(ValueError, match=f"must hold numbers for {kind.__name__}"):
        kind(share_inside).fit(X, np.full(60, "a"))


@pytest.mark.parametrize("wrap", [lambda model: model, make_pipeline, FrozenEstimator])
def test_abstainer_is_refused(seed, wrap):
    """It selects rows, so the accepted rows are not exchangeable with new rows."""
    X, y = make_regression(60, 3, noise=5.0, random_state=seed)
    network = MCDropoutRegressor((4,), max_iter=2, random_state=seed)
    for label in ("auto", -999.0):
        model = Abstainer(network, threshold=1e-9, abstain_label=label).fit(X, y)
        with pytest.raises(TypeError, match="got an Abstainer"):
            ConformalRegressor(wrap(model)).fit(X, y)


def test_model_without_a_prediction_for_every_row(seed):
    class Silent(MCDropoutRegressor):
        def predict(self, X, **options):
            return np.where(X[:, 0] > 0, np.nan, super().predict(X, **options))

    X, y = make_regression(60, 3, random_state=seed)
    with pytest.raises(ValueError, match=r"every row; got nan and .* of 60 rows"):
        frozen = FrozenEstimator(Silent((4,), max_iter=2, random_state=seed).fit(X, y))
        ConformalRegressor(frozen).fit(X, y)


@pytest.mark.parametrize(
    "model",
    [
        ConformalRegressor(MCDropoutRegressor((4,), max_iter=2), method="cv+"),
        CalibratedUncertaintyRegressor(MCDropoutRegressor((4,), max_iter=2)),
        Abstainer(
            MCDropoutRegressor((4,), max_iter=2), target_error=1.0, confidence=None
        ),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("tests", [[], [0], [0, 10]])
def test_folds_without_test_rows(seed, model, tests):
    X, y = make_regression(20, 3, random_state=seed)
    rows = np.arange(20)
    folds = [(rows[n:], rows[:n]) for n in tests]
    with pytest.raises(ValueError, match=f"hold out some rows .* {len(tests)} f"):
        clone(model).set_params(cv=folds).fit(X, y)


@METHODS
def test_bounds_of_counts_are_not_negative(method):
    """Clipping does not change the coverage; other targets keep negative bounds."""
    random = np.random.default_rng([SEED, 58])
    X = random.normal(size=(90, 3))
    y = random.poisson(np.exp(0.5 * X[:, 0] - 1))
    quick = {"hidden_layer_sizes": (4,), "max_iter": 5, "n_draws": 5, "random_state": 0}
    for likelihood in ("poisson", "gaussian"):
        network = MCDropoutRegressor(**quick, likelihood=likelihood)
        for inner in (network, make_pipeline(StandardScaler(), network)):
            model = ConformalRegressor(inner, method=method, cv=3, random_state=0)
            model.fit(X, y)
            interval = model.predict_interval(X, [0.5, 0.9])
            assert (interval[..., 0].min() >= 0) == (likelihood == "poisson")
            assert share_inside(interval[:, 1], y) > 0.7
