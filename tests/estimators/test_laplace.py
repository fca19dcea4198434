"""Networks by evidence: exact in linear models, and self-consistent otherwise."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import skbayesnn
from skbayesnn import LaplaceClassifier, LaplaceRegressor
from skbayesnn.estimators import _evidence
from skbayesnn.estimators._dense_network import DenseNetwork, features, linearised
from skbayesnn.estimators._evidence import (
    Logits,
    LogRates,
    LogVariances,
    Quadratic,
    Squares,
    TrainingRows,
    largest_evidence,
)

ROWS, COLUMNS, OUTPUTS = 23, 3, 2


@pytest.fixture
def random(seed):
    return np.random.default_rng(seed)


def _rows(random, n=120, noise=0.1):
    X = random.normal(size=(n, COLUMNS))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + noise * random.normal(size=n)


def _terms(random):
    """Each data term for two outputs, and for the single logit of two classes."""
    weights = random.uniform(0.5, 2, ROWS)
    y = random.normal(size=(ROWS, OUTPUTS))
    classes = np.eye(OUTPUTS)[random.integers(OUTPUTS, size=ROWS)]
    precision = random.uniform(0.5, 2, y.shape)
    return {
        "squares": Squares(y, weights, precision),
        "log rates": LogRates(
            random.poisson(3, y.shape), weights, np.array([1.0, 0.5])
        ),
        "log variances": LogVariances(np.square(y), weights),
        "logits": Logits(classes, weights),
        "logit": Logits(classes[:, 1:], weights),
    }


def _numeric_gradient(function, at, step=1e-6):
    """Central differences, (..., weights); their error is about 1e-9."""
    steps = step * np.eye(len(at))
    return np.stack([(function(at + s) - function(at - s)) / (2 * step) for s in steps])


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_jacobian_and_linearised_outputs(activation, random):
    network = DenseNetwork((COLUMNS, 5, 4, OUTPUTS), activation)
    X, weights = random.normal(size=(ROWS, COLUMNS)), network.initial(random)
    f, gradients = network.jacobian(weights, X)
    numeric = _numeric_gradient(lambda w: network.outputs(w, X), weights)
    np.testing.assert_allclose(gradients, np.moveaxis(numeric, 0, -1), atol=1e-7)
    deviations = random.normal(size=(7, network.n_weights))
    layers, draws = network.layers(weights), network.layers(deviations)
    same, change = linearised(layers, draws, activation, X)
    np.testing.assert_allclose(same, f, rtol=1e-12)
    np.testing.assert_allclose(change, np.einsum("nkp,dp->dnk", gradients, deviations))


@pytest.mark.parametrize(
    "name", ["squares", "log variances", "log rates", "logits", "logit"]
)
def test_gradients_of_data_terms(name, random, monkeypatch):
    """And curvature: of a linear model that of Fisher, the mean over y of the Hessian.

    The Hessian of squares and logits does not depend on y.
    """
    monkeypatch.setattr("skbayesnn.estimators._evidence.BLOCK_ENTRIES", 100)
    term = _terms(random)[name]
    network = DenseNetwork((COLUMNS, term.y.shape[1]), "tanh")
    X, weights = random.normal(size=(ROWS, COLUMNS)), network.initial(random)

    def value(w):
        return (term.weights @ term.losses(network.outputs(w, X))).sum()

    quadratic = Quadratic.of(network, weights, X, term)
    assert quadratic.value.sum() == pytest.approx(value(weights))
    numeric = _numeric_gradient(value, weights)
    np.testing.assert_allclose(quadratic.gradient.sum(0), numeric, atol=1e-6)
    if name == "log variances":
        _, gradients = network.jacobian(weights, X)
        hessian = 0.5 * np.einsum("n,nkp,nkq->pq", term.weights, gradients, gradients)
    else:
        hessian = _numeric_gradient(
            lambda w: Quadratic.of(network, w, X, term).gradient.sum(0), weights
        )
    np.testing.assert_allclose(quadratic.curvature.sum(0), hessian, atol=1e-6)


@pytest.mark.parametrize("name", ["squares", "logits", "logit"])
def test_earlier_rows_are_quadratic(name, random):
    """And equal to their data terms where these were evaluated."""
    term = _terms(random)[name]
    network = DenseNetwork((COLUMNS, 4, term.y.shape[1]), "tanh")
    X, weights = random.normal(size=(ROWS, COLUMNS)), network.initial(random)
    earlier = Quadratic.of(network, weights, X[:9], term.of_rows(slice(9)))
    rows = TrainingRows(network, X[9:], term.of_rows(slice(9, None)), earlier)
    whole = Quadratic.of(network, weights, X, term)
    for part in ("value", "gradient", "curvature"):
        actual = getattr(rows.quadratic(weights), part)
        np.testing.assert_allclose(actual, getattr(whole, part), rtol=1e-10, atol=1e-12)
    elsewhere = network.initial(random)
    quadratic = rows.quadratic(elsewhere)
    np.testing.assert_allclose(quadratic.value, rows.values(elsewhere))
    numeric = _numeric_gradient(lambda w: rows.values(w).sum(), elsewhere)
    np.testing.assert_allclose(quadratic.gradient.sum(0), numeric, atol=1e-5)


def test_evidence_of_a_linear_model_is_exact(random):
    network = DenseNetwork((COLUMNS, 1), "tanh")
    X, y = _rows(random, ROWS, noise=0.5)
    alpha, tau = random.uniform(0.5, 2, network.n_weights), np.array([3.0])
    term = Squares(y[:, None], np.ones(ROWS))
    start = network.initial(random)
    mode = largest_evidence(network, X, term, start, prior="ard", alpha=alpha, tau=tau)
    design = np.c_[X, np.ones(ROWS)]
    covariance = design / alpha @ design.T + np.eye(ROWS) / tau
    exact = multivariate_normal(np.zeros(ROWS), covariance).logpdf(y)
    assert mode.log_evidence == pytest.approx(exact, rel=1e-9)
    precision = tau * design.T @ design + np.diag(alpha)
    np.testing.assert_allclose(mode.hessian, precision, rtol=1e-10)
    mean = np.linalg.solve(precision, tau * design.T @ y)
    np.testing.assert_allclose(mode.weights, mean, rtol=1e-6)
    # With at least as many pairs as weights, the sample covariance is exact.
    draws = mode.deviations(network.n_weights, random)
    sample = draws.T @ draws / len(draws)
    np.testing.assert_allclose(sample, np.linalg.inv(precision), rtol=1e-8, atol=1e-12)


def test_first_steps_use_a_sample_of_many_rows(random, monkeypatch):
    """Of a linear model the mode is the same; the start of a network is better."""
    X = random.normal(size=(301, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.3 * random.normal(size=len(X))
    calls, quadratic = [], _evidence.TrainingRows.quadratic

    def counted(rows, weights):
        calls.append(len(rows.X))
        return quadratic(rows, weights)

    monkeypatch.setattr(_evidence.TrainingRows, "quadratic", counted)
    models = []
    for first in (1000, 60):
        monkeypatch.setattr(_evidence, "FIRST_ROWS", first)
        model = LaplaceRegressor((), likelihood="gaussian", n_estimators=1)
        models.append(model.fit(X, y))
    assert set(calls) == {60, len(X)}
    direct, sampled = models
    # Predictions cross 0, so the tolerance is relative to the std of y.
    np.testing.assert_allclose(
        sampled.predict(X), direct.predict(X), rtol=0, atol=1e-4 * y.std()
    )
    assert sampled.log_evidence_ == pytest.approx(direct.log_evidence_, rel=1e-5)


def test_precisions_are_a_fixed_point(random, monkeypatch):
    """Of the evidence; without the rule that stops earlier."""
    monkeypatch.setattr("skbayesnn.estimators._evidence.PATIENCE", 10**6)
    network = DenseNetwork((COLUMNS, OUTPUTS), "tanh")
    X, y = _rows(random, 60, noise=0.5)
    # Weights and biases are not 0, so that their precisions are finite.
    Y, weights = np.c_[y + 1, y - 2 * X[:, 2] - 1], random.uniform(0.5, 2, 60)
    start = network.initial(random)
    mode = largest_evidence(network, X, Squares(Y, weights), start, prior="layer")
    inverse = np.linalg.inv(mode.hessian)
    groups = network.groups("layer")
    gamma = 1 - mode.alpha * np.diagonal(inverse)
    squares = np.bincount(groups, np.square(mode.weights))
    expected = (np.bincount(groups, gamma) / squares)[groups]
    # The evidence is flat at its maximum.
    np.testing.assert_allclose(mode.alpha, expected, rtol=1e-2)
    error = np.square(network.outputs(mode.weights, X) - Y)
    curvature = Quadratic.of(network, mode.weights, X, Squares(Y, weights)).curvature
    effective = mode.tau * np.einsum("kpq,pq->k", curvature, inverse)
    expected = (weights.sum() - effective) / (weights @ error)
    np.testing.assert_allclose(mode.tau, expected, rtol=1e-2)
    assert mode.effective_parameters() == pytest.approx(gamma.sum())


@pytest.mark.parametrize("hidden", [(), (5,)])
@pytest.mark.parametrize("model_class", [LaplaceRegressor, LaplaceClassifier])
def test_weights_are_copies_of_rows(model_class, hidden, random, seed):
    X, y = _rows(random)
    y = y > 0.3 if model_class is LaplaceClassifier else y
    weights = random.integers(0, 3, len(y))
    options = {"n_estimators": 1, "n_draws": 10, "max_iter": 8, "random_state": seed}
    if model_class is LaplaceRegressor:
        options["likelihood"] = "gaussian"
    model = model_class(hidden, **options)
    weighted = model.fit(X, y, sample_weight=weights).parameters_
    copied = model.fit(np.repeat(X, weights, 0), np.repeat(y, weights)).parameters_
    for name in ("network/0/weight", "network/0/bias"):
        # Rounding grows with the steps of the training.
        np.testing.assert_allclose(copied[name], weighted[name], atol=1e-3)


def test_later_rows_of_a_linear_model_are_exact(random):
    """With given precisions, the posterior of the earlier rows is the prior."""
    network = DenseNetwork((COLUMNS, OUTPUTS), "tanh")
    X, y = random.normal(size=(ROWS, COLUMNS)), random.normal(size=(ROWS, OUTPUTS))
    alpha, tau = random.uniform(0.5, 2, network.n_weights), np.array([3.0, 0.4])
    weights, start = random.uniform(0.5, 2, ROWS), network.initial(random)

    def mode(rows, start, earlier=None):
        term = Squares(y[rows], weights[rows])
        options = {"prior": "layer", "alpha": alpha, "tau": tau, "earlier": earlier}
        return largest_evidence(network, X[rows], term, start, **options)

    first = mode(slice(0, 9), start)
    updated = mode(slice(9, None), first, first.quadratic)
    whole = mode(slice(None), start)
    np.testing.assert_allclose(updated.weights, whole.weights, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(updated.hessian, whole.hessian, rtol=1e-10)
    assert updated.log_evidence == pytest.approx(whole.log_evidence, rel=1e-9)


def test_partial_fit_estimates_precisions_of_all_rows(random, seed, monkeypatch):
    """Exact for a linear model, with the scaling of the first rows."""
    monkeypatch.setattr("skbayesnn.estimators._evidence.PATIENCE", 10**6)
    X, y = _rows(random, 90, noise=0.5)
    later = random.permutation(y)  # the same mean and scale
    options = {"likelihood": "gaussian", "n_estimators": 2, "random_state": seed}
    model = LaplaceRegressor((), **options).partial_fit(X, y).partial_fit(X, later)
    whole = LaplaceRegressor((), **options).fit(np.r_[X, X], np.r_[y, later])
    assert model.total_weight_ == 180
    assert model.tau_ == pytest.approx(whole.tau_, rel=1e-3)
    assert model.log_evidence_ == pytest.approx(whole.log_evidence_, abs=0.1)
    for return_of in (0, 1):
        updated, fitted = (
            m.predict(X, return_std=True)[return_of] for m in (model, whole)
        )
        # The evidence is flat at its maximum.
        np.testing.assert_allclose(updated, fitted, atol=1e-2 * y.std())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c[..., :-1, :-1], r"must agree in the number of coefficients"),
        (lambda c: np.repeat(c, 2, axis=1), r"must agree in the number of terms"),
        (lambda c: np.triu(c), "must be symmetric, without negative"),
        (
            lambda c: c - 0.5 * np.trace(c[0, 0]) * np.eye(len(c[0, 0])),
            "without negative eigenvalues",
        ),
    ],
)
@pytest.mark.parametrize("model_class", [LaplaceRegressor, LaplaceClassifier])
def test_forged_information_is_refused(model_class, change, message, random):
    X, y = _rows(random, 40)
    model = model_class((3,), n_estimators=2, n_draws=4).fit(X, y > 0)
    skbayesnn.loads(skbayesnn.dumps(model)).partial_fit(X, y > 0)
    found = model.information_
    model.information_ = {name: v[..., :-1] for name, v in found.items()}
    model.information_ |= {
        "value": found["value"],
        "curvature": found["curvature"][..., :-1, :-1],
    }
    with pytest.raises(ValueError, match="must have shape"):
        skbayesnn.dumps(model)
    model.information_ = found
    curvature = change(model.information_["curvature"])
    model.information_ = {**model.information_, "curvature": curvature}
    with pytest.raises(ValueError, match=message):
        skbayesnn.dumps(model)


def test_updates_that_are_refused(random, monkeypatch):
    X, y = _rows(random)
    model = LaplaceRegressor((2,), n_estimators=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="must have 1 targets as in the first call"):
        model.partial_fit(X, np.c_[y, y])
    classes = LaplaceClassifier((2,), n_estimators=1, random_state=0)
    with pytest.raises(ValueError, match="must have rows of all `classes`, "):
        classes.partial_fit(X, y > 0, classes=[False, True, 2])
    monkeypatch.setattr("skbayesnn.estimators.laplace.MAX_INFORMATION", 9)
    with pytest.raises(ValueError, match="stores for at most 9 values"):
        model.fit(X, y).partial_fit(X, y)


def test_given_precisions_are_held(random, seed):
    X, y = _rows(random)
    model = LaplaceRegressor(
        (4,), tau=2.5, length_scale=[1.5, 3.0], n_estimators=2, random_state=seed
    ).fit(100 * X, 7 * y)
    assert model.tau_ == pytest.approx(2.5)
    np.testing.assert_allclose(model.length_scale_, [1.5, 3.0])
    decay = np.square([1.5, 3.0]) / (2 * len(y) * 2.5)
    np.testing.assert_allclose(model.weight_decay_, decay)
    aleatoric = model.predict_uncertainty(100 * X, "aleatoric")
    np.testing.assert_allclose(aleatoric, 2.5**-0.5)


def test_mean_is_the_trained_network(random, seed):
    """Draws come in pairs of opposite signs; the draws of functions agree with std."""
    X, y = _rows(random)
    model = LaplaceRegressor((4,), n_draws=20, n_estimators=2, random_state=seed)
    mean, _ = model.fit(X, y).predict(X[:9], return_std=True)
    x = (X[:9] - model.x_mean_) / model.x_scale_
    outputs = [
        linearised(
            model.layers_of(member, "network"),
            model.layers_of(member, "draws"),
            "tanh",
            x,
        )[0][:, 0]
        for member in range(2)
    ]
    expected = np.mean(outputs, axis=0) * model.y_scale_ + model.y_mean_
    np.testing.assert_allclose(mean, expected)


def test_columns_without_effect_have_no_relevance(random, seed):
    X, y = _rows(random, 300)
    frame = pd.DataFrame(X, columns=list("abc"))
    # A category without effect, with three features.
    frame.insert(1, "level", pd.Categorical(random.integers(0, 3, 300)))
    model = LaplaceRegressor((8,), n_estimators=2, random_state=seed).fit(frame, y)
    relevance = dict(zip(frame.columns, model.relevance_, strict=True))
    least = min(relevance["a"], relevance["b"])
    assert max(relevance["level"], relevance["c"]) < least


@pytest.mark.parametrize("kind", [LaplaceRegressor, LaplaceClassifier])
def test_relevance_of_columns_that_are_encoded_together(random, seed, kind):
    """Counts of pairs of levels are features of both columns."""
    codes = random.integers(0, 30, (300, 2))
    frame = "level " + pd.DataFrame(codes, columns=["left", "right"]).astype(str)
    frame["c"] = random.normal(size=300)
    y = (codes.sum(1) % 7 > 3).astype(int)
    model = kind((4,), n_estimators=1, random_state=seed).fit(frame, y)
    assert ("left", "right") in [c.column for c in model.table_.columns_]
    assert (model.relevance_ > 0).all()
    np.testing.assert_allclose(np.square(model.relevance_).sum(), 1)


@pytest.mark.parametrize(("n_rows", "prior"), [(20, "layer"), (80, "ard")])
def test_columns_share_a_precision_with_few_rows(n_rows, prior, random, seed):
    """With a precision of each column, noise is interpolated: std is far too small."""
    X = random.normal(size=(n_rows + 200, 30))
    y = X[:, 0] + random.normal(size=len(X))
    model = LaplaceRegressor(random_state=seed).fit(X[:n_rows], y[:n_rows])
    mean, std = model.predict(X[n_rows:], return_std=True)
    assert model.prior_ == prior
    assert np.sqrt(np.mean(((mean - y[n_rows:]) / std) ** 2)) < 3


def test_auto_selects_by_evidence(random, seed):
    X, y = _rows(random, 200)
    model = LaplaceRegressor(n_estimators=1, random_state=seed).fit(X, y)
    assert model.hidden_layer_sizes_
    linear = LaplaceRegressor(n_estimators=1, random_state=seed).fit(X, X @ [1, -2, 3])
    assert linear.hidden_layer_sizes_ == ()


@pytest.fixture
def tried(monkeypatch):
    """All networks that are trained."""
    networks, initial = [], DenseNetwork.initial

    def recorded(network, generator):
        networks.append(network)
        return initial(network, generator)

    monkeypatch.setattr(DenseNetwork, "initial", recorded)
    return networks


@pytest.mark.parametrize(("most", "units"), [(0, {8}), (2e8, {8, 16})])
def test_slow_networks_are_not_tried_after_a_worse_one(
    most, units, random, seed, tried, monkeypatch
):
    """y is linear, so that the first network has less evidence than a linear model."""
    monkeypatch.setattr("skbayesnn.estimators.laplace.AFTER_WORSE", most)
    X, _ = _rows(random)
    y = X[:, 0] + 0.3 * random.normal(size=len(X))
    options = {"likelihood": "gaussian", "n_estimators": 1, "random_state": seed}
    assert LaplaceRegressor(**options).fit(X, y).hidden_layer_sizes_ == ()
    assert {n for network in tried for n in network.sizes[1:-1]} == units


def test_noise_that_depends_on_the_row(random, seed):
    X, _ = _rows(random, 400)
    std = np.exp(X[:, 0])
    model = LaplaceRegressor((), n_estimators=1, random_state=seed)
    model.fit(X, X[:, 1] + std * random.normal(size=400))
    assert model.likelihood_ == "heteroscedastic"
    aleatoric = model.predict_uncertainty(X, "aleatoric")
    assert np.corrcoef(np.log(aleatoric), np.log(std))[0, 1] > 0.9
    model.fit(X, X[:, 1] + random.normal(size=400))
    aleatoric = model.predict_uncertainty(X, "aleatoric")
    assert aleatoric.std() < 0.2 * aleatoric.mean()


def test_counts_are_at_the_mode_of_poisson_regression(random, seed):
    """With weak priors, both are at maximum likelihood."""
    X, _ = _rows(random, 300)
    y = random.poisson(np.exp(2 + X @ [0.5, -0.3, 0.1]))
    model = LaplaceRegressor(
        (), likelihood="poisson", length_scale=0.02, n_draws=2, random_state=seed
    ).fit(X, y)
    reference = PoissonRegressor(alpha=1e-8, tol=1e-8).fit(X, y)
    expected = np.log(reference.predict(X))
    distribution = model.predict_distribution(X)
    # The mean over draws is above the rate at the mode, by the variance of the log.
    np.testing.assert_allclose(np.log(distribution.mean()), expected, atol=0.02)
    assert model.likelihood_ == "poisson" and model.tau_ == 1
    count = model.predict_quantile(X, 0.5)
    np.testing.assert_array_equal(count, np.floor(count))


@pytest.mark.parametrize("model_class", [LaplaceRegressor, LaplaceClassifier])
def test_a_posterior_of_the_last_layer(model_class, random, seed):
    """A linear model of the hidden units has the same one."""
    X, y = _rows(random, 400)
    y = y > 0.3 if model_class is LaplaceClassifier else y
    model = model_class(
        (7, 5), posterior="last_layer", n_estimators=2, random_state=seed
    )
    model.set_params(**{"likelihood": "gaussian"} if y.dtype == float else {})
    model.fit(X, y)
    assert model.hidden_layer_sizes_ == (7, 5)
    assert model.parameters_["network/0/weight"].shape == (2, 5, 1)
    np.testing.assert_allclose(model.length_scale_[:2], np.sqrt([COLUMNS, 7]))
    linear = model_class((), n_estimators=1, random_state=seed).fit(X, y)
    assert model.score(X, y) > linear.score(X, y)
    x = (X - model.x_mean_) / model.x_scale_
    units = features(model.layers_of(0, "hidden"), "tanh", x)
    design = np.c_[units, np.ones(400)]
    curvature = np.ones(400)
    if model_class is LaplaceClassifier:
        [(matrix, bias)] = model.layers_of(0, "network")
        p = expit(units @ matrix + bias)[:, 0]
        curvature = p * (1 - p)
    expected = (design.T * curvature) @ design
    np.testing.assert_allclose(
        model.information_["curvature"][0, 0], expected, rtol=1e-9
    )


def test_wide_networks_have_a_posterior_of_the_last_layer(random, seed):
    X, y = _rows(random, 60)
    model = LaplaceRegressor((80, 80), n_estimators=1, random_state=seed)
    assert model.fit(X, y).posterior_ == "last_layer"
    whole = LaplaceRegressor((3,), n_estimators=1, random_state=seed).fit(X, y)
    assert whole.posterior_ == "full"


def test_linear_classes_are_at_the_mode_of_logistic_regression(random, seed):
    """With weak priors, both are at maximum likelihood."""
    X, y = _rows(random, 300, noise=2)
    model = LaplaceClassifier((), length_scale=0.02, n_draws=2, random_state=seed)
    model.fit(X, y > 0)
    reference = LogisticRegression(C=1e6).fit(X, y > 0)
    logits = linearised(
        model.layers_of(0, "network"),
        model.layers_of(0, "draws"),
        "tanh",
        (X - model.x_mean_) / model.x_scale_,
    )[0][:, 0]
    expected = reference.decision_function(X)
    # The precision of the bias is always estimated, so that the bias is smaller.
    logits, expected = logits - logits.mean(), expected - expected.mean()
    np.testing.assert_allclose(logits, expected, atol=0.02 * np.abs(expected).max())


def test_separated_classes_are_separated(random, seed):
    """Without a bound of the precisions, probabilities are near to equal."""
    X, _ = _rows(random, 400)
    y = X[:, 0] > 0
    model = LaplaceClassifier((8,), n_estimators=2, random_state=seed)
    model.fit(X[:300], y[:300])
    assert model.length_scale_.min() ** 2 >= 0.3 * (1 - 1e-9)
    assert model.log_predictive_density(X[300:], y[300:]).mean() > -0.1


def test_a_singular_hessian_warns(random, monkeypatch):
    """No step can then estimate the precisions."""
    monkeypatch.setattr("skbayesnn.estimators._evidence._evidence", lambda *_: None)
    X, y = _rows(random, 30)
    model = LaplaceRegressor((3,), likelihood="gaussian", n_estimators=2)
    with pytest.warns(ConvergenceWarning, match="2 of 2 networks was singular"):
        model.fit(X, y)


def test_few_rows_are_refused(random):
    """Networks pass through them, so that their evidence has no maximum."""
    X, y = _rows(random, 30)
    weights = np.r_[np.ones(4), np.zeros(26)]
    with pytest.raises(ValueError, match="at least 5 rows of positive weight; got n_s"):
        LaplaceRegressor().fit(X, y, sample_weight=weights)


def test_bad_parameters(random):
    X, y = _rows(random)
    for parameters, message in [
        ({"hidden_layer_sizes": (300, 300)}, "at most 50000; got 301 and 91801"),
        (
            {"hidden_layer_sizes": (80, 80), "posterior": "full"},
            "at most 5000 weights can have a posterior, .*; got 6881",
        ),
        ({"posterior": "kronecker"}, "'kronecker'"),
        ({"hidden_layer_sizes": "wide"}, "'auto'"),
        ({"activation": "relu"}, "'relu'"),
        ({"prior": "flat"}, "'flat'"),
        ({"likelihood": "student_t"}, "'student_t'"),
        ({"likelihood": "poisson"}, "must contain integers from 0 to 1e12"),
        ({"n_draws": 1}, "n_draws"),
        ({"max_iter": 0}, "max_iter"),
        ({"tau": -1.0}, "tau"),
    ]:
        with pytest.raises(ValueError, match=message):
            LaplaceRegressor(**parameters).fit(X, y)


@pytest.mark.parametrize("n_rows", [5, 30])
def test_wide_tables_have_equal_noise(n_rows, random, tried, monkeypatch):
    """If the network of the noise would have too many weights; also with few rows."""
    monkeypatch.setattr("skbayesnn.estimators.laplace.MOST_WEIGHTS", 20)
    X, y = _rows(random, n_rows)
    model = LaplaceRegressor(n_estimators=1, random_state=0).fit(X, y)
    assert model.likelihood_ == "gaussian"
    assert max(network.n_weights for network in tried) <= 20
    with pytest.raises(ValueError, match="at most 20 weights; got 41 of 3 inputs"):
        LaplaceRegressor(likelihood="heteroscedastic").fit(X, y)
