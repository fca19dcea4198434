"""Networks with finite but absurd predictions cause a warning or are left out."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
)
from skbayesnn.estimators import _fit
from skbayesnn.estimators._diagnostics import explained_entropy, explained_variance

REGRESSORS = [
    MCDropoutRegressor,
    BBBRegressor,
    VariationalDropoutRegressor,
    VariationalGPRegressor,
    AnchoredEnsembleRegressor,
]
WORSE = "far worse than a constant.*Lower learning_rate_init"


def _line(seed, n_rows=60):
    random = np.random.default_rng([seed, 4])
    X = random.normal(size=(n_rows, 3))
    return X, 3 * X[:, 0] + random.normal(size=n_rows)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_warning_of_divergence(seed, kind):
    """Steps of many times the weights make every family worse than a constant."""
    X, y = _line(seed)
    rate = 1e3 if kind is VariationalGPRegressor else 10.0
    model = kind(max_iter=10, learning_rate_init=rate, n_draws=10, random_state=seed)
    with pytest.warns(ConvergenceWarning, match=WORSE):
        model.fit(X, y)
    assert model.score(X, y) < -1


@pytest.mark.parametrize("kind", [MCDropoutClassifier, AnchoredEnsembleClassifier])
def test_warning_of_divergence_of_a_classifier(seed, kind):
    """Confident predictions of random labels."""
    X, _ = _line(seed, 400)
    y = np.random.default_rng([seed, 5]).integers(2, size=400)
    model = kind((20,), max_iter=3, learning_rate_init=1e4, n_draws=3)
    model.set_params(random_state=seed, n_estimators=1)
    with pytest.warns(ConvergenceWarning, match=WORSE):
        model.fit(X, y)


@pytest.mark.parametrize(
    "kind", [MCDropoutRegressor, VariationalGPRegressor, MCDropoutClassifier]
)
def test_warning_if_much_worse_than_a_linear_model(seed, kind):
    """The training is too short; the initial network may be worse than a constant."""
    X, y = _line(seed, 128)
    y = y > 0 if is_classifier(kind()) else y
    # With few columns an untrained network may be right by chance.
    noise_columns = np.random.default_rng([seed, 7]).normal(size=(128, 30))
    X = np.hstack([X, noise_columns])
    model = kind(max_iter=1, learning_rate_init=1e-5, n_draws=10, random_state=seed)
    short = rf"a linear model \d+%. The train|{WORSE}"
    with pytest.warns(ConvergenceWarning, match=short):
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.set_params(max_iter=300, learning_rate_init=0.01).fit(X, y)


@pytest.mark.parametrize("kind", [MCDropoutRegressor, AnchoredEnsembleRegressor])
@pytest.mark.parametrize("n_rows", [3, 20])
def test_no_warning_of_divergence_under_a_wide_prior(seed, kind, n_rows):
    """Members are draws from the prior, since tau gives a large noise."""
    random = np.random.default_rng([seed, 6])
    X, y = random.normal(size=(n_rows, 3)), random.normal(size=n_rows)
    model = kind(tau=0.01, max_iter=50, n_estimators=6, n_draws=10, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "far worse")
        warnings.filterwarnings("error", ".*left out")
        model.fit(X, y)
    assert len(model.seeds_) == 6


@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
@pytest.mark.parametrize("factor", [1e3, 1e20])
def test_absurd_network_is_left_out(seed, kind, factor, monkeypatch):
    """The other networks are unaffected."""
    X, y = _line(seed)
    y = y > 0 if is_classifier(kind()) else y
    model = kind(
        (10,), max_iter=60, n_estimators=4, dropout=0.0, n_draws=5, random_state=seed
    )
    whole = clone(model).fit(X, y)
    train = _fit.train

    def spoilt(*arguments, **options):
        trained = train(*arguments, **options)
        for layer in trained.posterior.layers:
            for name in ("mean", "bias"):
                layer[name][2] *= -factor
        return trained

    monkeypatch.setattr(_fit, "train", spoilt)
    with pytest.warns(ConvergenceWarning, match=r"1 of 4 networks.*left out.*absurd"):
        model.fit(X, y)
    np.testing.assert_array_equal(model.seeds_, np.delete(whole.seeds_, 2))
    assert model.score(X, y) > 0.7


def test_explained_share(seed):
    """Zero for a constant, one for y, zero for twice the deviations from the mean."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(40, 3)), random.normal(size=(40, 2))
    weights, mean = np.ones(40), y.mean(0)
    shares = [
        explained_variance(X, y, weights, prediction).network
        for prediction in (np.tile(mean, (40, 1)), y, mean + 2 * (y - mean))
    ]
    np.testing.assert_allclose(shares, [0, 1, 0], atol=1e-12)
    few = explained_variance(X[:4], y[:4], weights[:4], y[:4])
    assert few.linear == -np.inf and few.least == -1
    noisy = explained_variance(X, y, weights, y, noise=y.var(0) * 3)
    assert noisy.least == pytest.approx(-7)
    codes = np.arange(40) % 4
    uniform = explained_entropy(X, codes, weights, np.full(40, -np.log(4)))
    assert uniform.network == pytest.approx(0) and uniform.least == pytest.approx(-1)


def test_networks_trained_for_few_epochs_are_not_left_out(seed):
    """Draws from an anchored prior predict wrong classes confidently at first."""
    random = np.random.default_rng([seed, 5])
    X = random.normal(size=(40, 6)) @ np.diag([1, 1, 1, 3, 9, 27.0])
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    model = AnchoredEnsembleClassifier(max_iter=1, warm_start=True, random_state=seed)
    assert len(model.fit(X, y).fit(X, y).seeds_) == model.n_estimators
    stream = AnchoredEnsembleClassifier(random_state=seed)
    for part in (X[:20], X[20:]):
        stream.partial_fit(part, y[:20], classes=[0, 1, 2])
    assert len(stream.seeds_) == stream.n_estimators
