"""The query strategies of scikit-activeml accept the package's estimators."""

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier

from skbayesnn import (
    BBBClassifier,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
)
from skbayesnn._predictive.summaries import classification_uncertainty

pool = pytest.importorskip("skactiveml.pool")
SklearnClassifier = pytest.importorskip("skactiveml.classifier").SklearnClassifier
regressors = pytest.importorskip("skactiveml.regressor")

# Its wrappers turn an error of `fit` into a warning and continue with guesses.
pytestmark = pytest.mark.filterwarnings("error:.*could not be fitted")

ROWS, INPUTS, CLASSES, LABELLED = 33, 4, 3, 12
SMALL = {"hidden_layer_sizes": (6,), "max_iter": 10, "n_draws": 8}


@pytest.fixture
def classes(seed):
    """X, all labels, and the labels with NaN after the first rows."""
    random = np.random.default_rng(seed)
    truth = np.arange(ROWS) % CLASSES
    centres = random.standard_normal((CLASSES, INPUTS))
    X = centres[truth] + random.standard_normal((ROWS, INPUTS))
    partial = np.where(np.arange(ROWS) < LABELLED, truth, np.nan)
    return X, truth, partial


@pytest.fixture
def targets(seed):
    """X, and the targets with NaN after the first rows."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((ROWS, INPUTS))
    y = X @ np.arange(1, INPUTS + 1) + random.standard_normal(ROWS)
    return X, np.where(np.arange(ROWS) < LABELLED, y, np.nan)


def classifier(seed, kind=MCDropoutClassifier, **options):
    """An estimator in scikit-activeml's wrapper, which drops unlabelled rows."""
    return wrapped(kind(**SMALL, random_state=seed, **options))


def wrapped(estimator):
    return SklearnClassifier(estimator, classes=list(range(CLASSES)))


def regressor(seed, kind=regressors.SklearnRegressor):
    """A regressor whose masks drop a few units in every draw."""
    return kind(MCDropoutRegressor(**SMALL, dropout=(0, 0.3), random_state=seed))


def check(chosen, utilities, n):
    """Check the query: n different unlabelled rows, and utilities of those only."""
    assert len(set(chosen)) == n and min(chosen) >= LABELLED
    assert np.isnan(utilities[:, :LABELLED]).all()
    assert np.isfinite(utilities[0, LABELLED:]).all()
    # With equal utilities the strategy could not choose.
    assert np.ptp(utilities[0, LABELLED:]) > 0


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (MCDropoutClassifier, "least_confident"),
        (MCDropoutClassifier, "margin_sampling"),
        (BBBClassifier, "entropy"),
        (VariationalDropoutClassifier, "entropy"),
    ],
)
def test_uncertainty_sampling_ranks_by_the_probabilities(classes, seed, kind, method):
    X, truth, partial = classes
    strategy = pool.UncertaintySampling(method=method, random_state=seed)
    chosen, utilities = strategy.query(
        X, partial, clf=classifier(seed, kind), batch_size=2, return_utilities=True
    )
    check(chosen, utilities, 2)
    alone = kind(**SMALL, random_state=seed).fit(X[:LABELLED], truth[:LABELLED])
    second, first = np.sort(alone.predict_proba(X[LABELLED:]))[:, -2:].T
    expected = {
        "entropy": alone.predict_uncertainty(X[LABELLED:], "entropy"),
        "least_confident": 1 - first,
        "margin_sampling": 1 - first + second,
    }
    np.testing.assert_allclose(utilities[0, LABELLED:], expected[method], rtol=1e-6)


@pytest.mark.parametrize(
    ("strategy", "committee"),
    [("GreedyBALD", "bagging"), ("BatchBALD", "list"), ("QueryByCommittee", "bagging")],
)
def test_strategies_accept_committees(classes, seed, strategy, committee):
    X, _, partial = classes
    if committee == "list":
        ensemble = [classifier(seed + i) for i in range(5)]
    else:
        network = MCDropoutClassifier(**SMALL)
        bagging = BaggingClassifier(
            network, n_estimators=5, bootstrap=False, random_state=seed
        )
        ensemble = wrapped(bagging)
    chosen, utilities = getattr(pool, strategy)(random_state=seed).query(
        X, partial, ensemble=ensemble, batch_size=2, return_utilities=True
    )
    check(chosen, utilities, 2)


class Drawn(SklearnClassifier):
    """A committee of posterior draws."""

    def sample_proba(self, X, n_samples):
        """Class probabilities of the draws; the draws are the first axis."""
        return np.moveaxis(self.estimator_.sample_f(X, n_samples), -1, 0)


@pytest.mark.parametrize("strategy", ["GreedyBALD", "QueryByCommittee"])
def test_bald_of_posterior_draws_is_mutual_information(classes, seed, strategy):
    """QueryByCommittee's mean divergence from the mean is the same value."""
    X, truth, partial = classes
    network = MCDropoutClassifier(**SMALL, dropout=0.3, random_state=seed)
    chosen, utilities = getattr(pool, strategy)(
        sample_predictions_method_name="sample_proba",
        sample_predictions_dict={"n_samples": 7},
        random_state=seed,
    ).query(
        X,
        partial,
        ensemble=Drawn(network, classes=list(range(CLASSES))),
        batch_size=2,
        return_utilities=True,
    )
    check(chosen, utilities, 2)
    network.fit(X[:LABELLED], truth[:LABELLED])
    draws = np.moveaxis(network.sample_f(X[LABELLED:], 7), -1, 0)
    information = classification_uncertainty(
        lambda: [draws], ["mutual_information"], np.zeros(7)
    )["mutual_information"]
    # scikit-activeml clips probabilities at 1e-7.
    np.testing.assert_allclose(utilities[0, LABELLED:], information, atol=1e-5)


def test_query_loop_labels_all_rows(classes, seed):
    X, truth, partial = classes
    strategy = pool.UncertaintySampling(random_state=seed)
    model = classifier(seed, n_estimators=2)
    while np.isnan(partial).any():
        chosen = strategy.query(X, partial, clf=model, batch_size=7)
        partial[chosen] = truth[chosen]
    np.testing.assert_array_equal(partial, truth)
    alone = MCDropoutClassifier(**SMALL, n_estimators=2, random_state=seed)
    np.testing.assert_array_equal(
        model.fit(X, partial).predict_proba(X), alone.fit(X, truth).predict_proba(X)
    )


@pytest.mark.parametrize(
    "strategy",
    [
        "KLDivergenceMaximization",
        "ExpectedModelVarianceReduction",
        "ExpectedModelOutputChange",
    ],
)
def test_strategies_accept_the_predictive_distribution(targets, seed, strategy):
    """They fit a network per candidate (three) and per possible value of each."""
    X, y = targets
    candidates = [LABELLED, LABELLED + 1, LABELLED + 2]
    chosen, utilities = getattr(pool, strategy)(random_state=seed).query(
        X,
        y,
        reg=regressor(seed, regressors.SklearnNormalRegressor),
        candidates=candidates,
        batch_size=2,
        return_utilities=True,
    )
    assert len(set(chosen)) == 2 and set(chosen) <= set(candidates)
    assert np.isfinite(utilities[0, candidates]).all()
    assert np.ptp(utilities[0, candidates]) > 0


def test_predictive_distribution_has_the_moments_of_the_estimator(targets, seed):
    X, y = targets
    model = regressor(seed, regressors.SklearnNormalRegressor).fit(X, y)
    mean, std = model.estimator_.predict(X, return_std=True)
    distribution = model.predict_target_distribution(X)
    np.testing.assert_array_equal(distribution.mean(), mean)
    np.testing.assert_array_equal(distribution.std(), std)


def test_strategy_accepts_expected_model_change(targets, seed):
    """GreedySamplingTarget is left out: it draws from NumPy's global generator."""
    X, y = targets
    strategy = pool.ExpectedModelChangeMaximization(random_state=seed)
    chosen, utilities = strategy.query(
        X, y, reg=regressor(seed), batch_size=2, return_utilities=True
    )
    check(chosen, utilities, 2)


def test_strategy_accepts_a_committee_of_regressors(targets, seed):
    X, y = targets
    chosen, utilities = pool.QueryByCommittee(random_state=seed).query(
        X,
        y,
        ensemble=[regressor(seed + i) for i in range(5)],
        batch_size=2,
        return_utilities=True,
    )
    check(chosen, utilities, 2)


def test_utility_of_posterior_draws_is_their_spread(targets, seed):
    X, y = targets
    model = regressor(seed)
    chosen, utilities = pool.QueryByCommittee(
        sample_predictions_method_name="sample_f",
        sample_predictions_dict={"n_samples": 20},
        random_state=seed,
    ).query(X, y, ensemble=model, batch_size=2, return_utilities=True)
    check(chosen, utilities, 2)
    functions = model.fit(X, y).estimator_.sample_f(X[LABELLED:], 20)
    np.testing.assert_allclose(utilities[0, LABELLED:], functions.std(1), rtol=1e-6)
