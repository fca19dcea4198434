"""Anchored ensembles against the theory of randomised maximum a posteriori.

Let a linear model have Gaussian noise with known precision. Draw an anchor from the
prior, and add a draw of the noise to the targets. The mode is then a draw from the
posterior (Bardsley et al. 2014, section 2), a normal distribution in closed form.
"""

import numpy as np
import pytest
import torch
from scipy.special import erf
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skbayesnn import AnchoredEnsembleClassifier, AnchoredEnsembleRegressor
from skbayesnn._engine.held_out_tau import draws_together, estimate_noise_variance
from skbayesnn._engine.random import ROWS as ROW_PERTURBATION
from skbayesnn._engine.random import anchor_normal, philox
from skbayesnn.estimators import _job, _selection
from skbayesnn.estimators._fit import train_together
from skbayesnn.estimators._fitted import restore_posterior
from skbayesnn.estimators._job import training_job
from skbayesnn.estimators._selection import selection_folds
from skbayesnn.estimators._training_data import training_data
from tests.helpers.kernels import arc_cosine, arc_sine, tanh_kernel

ROWS, INPUTS, TARGETS, MEMBERS = 12, 3, 2, 500
LENGTH_SCALE, BIAS_LENGTH_SCALE = 1.3, 0.6
TAU = np.array([4.0, 9.0])


def _linear(**params):
    """A linear network that is trained to convergence."""
    return AnchoredEnsembleRegressor(
        (),
        length_scale=LENGTH_SCALE,
        bias_length_scale=BIAS_LENGTH_SCALE,
        standardize=False,
        batch_size=ROWS,
        max_iter=600,
        learning_rate_init=0.1,
        device="cpu",
        dtype="float64",
        **params,
    )


@pytest.fixture
def rows(seed):
    random = np.random.default_rng([seed, 1])
    X = random.normal(size=(ROWS, INPUTS)) @ np.triu(np.ones((INPUTS, INPUTS)))
    y = X @ random.normal(size=(INPUTS, TARGETS)) + [0.7, -0.4]
    y += random.normal(size=y.shape) / np.sqrt(TAU)
    return X, y, random.uniform(0.2, 3, size=ROWS)


def _weights(model):
    """Weights of every member, the bias last: (members, targets, inputs + 1)."""
    arrays = model.parameters_
    bias = arrays["layers/0/bias"][:, None]
    return np.concatenate([arrays["layers/0/mean"], bias], axis=1).transpose(0, 2, 1)


def test_members_are_draws_of_the_conjugate_posterior(seed, rows):
    """Precision A = tau Z'WZ + L and mean tau A^-1 Z'Wy, with the prior precision L."""
    X, y, weights = rows
    model = _linear(n_estimators=MEMBERS, tau=TAU.tolist(), random_state=seed)
    weights_of_members = _weights(model.fit(X, y, sample_weight=weights))
    Z = np.column_stack([X, np.ones(ROWS)])
    prior = np.diag([LENGTH_SCALE**2] * INPUTS + [BIAS_LENGTH_SCALE**2])
    for j, tau in enumerate(TAU):
        covariance = np.linalg.inv(tau * Z.T @ (weights[:, None] * Z) + prior)
        mean = tau * covariance @ Z.T @ (weights * y[:, j])
        actual = weights_of_members[:, j]
        std = np.sqrt(covariance.diagonal())
        # Six standard errors; training ends much closer to the mode.
        error = 6 / np.sqrt(MEMBERS)
        assert (abs(actual.mean(0) - mean) < error * std).all()
        spread = np.sqrt(np.outer(std, std) ** 2 + covariance**2)
        assert (abs(np.cov(actual.T) - covariance) < error * spread).all()


def test_members_vary_too_little_without_row_perturbation(seed, rows):
    """Only anchors differ: the covariance is A^-1 L A^-1, less than A^-1."""
    X, y, _ = rows
    model = _linear(
        n_estimators=MEMBERS, tau=TAU.tolist(), noisy_targets=False, random_state=seed
    )
    weights = _weights(model.fit(X, y))
    Z = np.column_stack([X, np.ones(ROWS)])
    prior = np.diag([LENGTH_SCALE**2] * INPUTS + [BIAS_LENGTH_SCALE**2])
    for j, tau in enumerate(TAU):
        inverse = np.linalg.inv(tau * Z.T @ Z + prior)
        covariance = inverse @ prior @ inverse
        std = np.sqrt(covariance.diagonal())
        spread = np.sqrt(np.outer(std, std) ** 2 + covariance**2)
        error = 6 / np.sqrt(MEMBERS) * spread
        assert (abs(np.cov(weights[:, j].T) - covariance) < error).all()


def _check_members(model, X, y, tau):
    """Assert that each member is the mode given its anchor and row perturbation.

    A w = tau Z'(y + e / sqrt(tau)) + L a: A = tau Z'Z + L is the precision of the
    posterior, a the anchor, e the member's standard normal numbers.

    tau : (members,)
    """
    Z = np.column_stack([X, np.ones(len(X))])
    prior = np.diag([LENGTH_SCALE**2] * INPUTS + [BIAS_LENGTH_SCALE**2])
    scale = np.array([LENGTH_SCALE] * INPUTS + [BIAS_LENGTH_SCALE])
    anchors = anchor_normal(model.seeds_, 0, INPUTS + 1, 1)[..., 0] / scale
    for i, member in enumerate(model.seeds_):
        random = np.random.Generator(philox(int(member), ROW_PERTURBATION))
        noise = random.standard_normal(len(y)) / np.sqrt(tau[i])
        actual = (tau[i] * Z.T @ Z + prior) @ _weights(model)[i, 0]
        expected = tau[i] * Z.T @ (y + noise) + prior @ anchors[i]
        np.testing.assert_allclose(
            actual, expected, rtol=1e-4, atol=1e-4 * abs(expected).max()
        )


def test_members_are_draws_under_the_estimated_tau(seed, rows):
    """Each solves the equations of a draw from the conjugate posterior at ``tau_``."""
    X, y, _ = rows
    model = _linear(n_estimators=6, tau="auto", random_state=seed).fit(X, y[:, 0])
    _check_members(model, X, y[:, 0], np.full(6, model.tau_))
    assert model.noise_std_ == pytest.approx(model.tau_**-0.5)
    trained = np.exp(model.parameters_["likelihood/log_tau"])
    np.testing.assert_allclose(trained, model.tau_, rtol=1e-6)
    decay = LENGTH_SCALE**2 / (2 * ROWS * model.tau_)
    assert model.weight_decay_ == pytest.approx(decay)


def _linear_table(seed, n_rows, noise):
    random = np.random.default_rng([seed, 5])
    X = random.normal(size=(n_rows, INPUTS)) @ np.triu(np.ones((INPUTS, INPUTS)))
    return X, X @ random.normal(size=INPUTS) + 0.7 + noise * random.normal(size=n_rows)


def test_tau_is_estimated_on_held_out_rows_under_the_conjugate_posterior(
    seed, monkeypatch
):
    """The fixed point: the posterior depends on the noise that it estimates.

    Many networks represent the posterior of each fold. Their sample variance has an
    error of 18 % in each fold, and is a tenth of the variance of the rows, so that the
    error of the noise is 1 %. It is rounded to 1 %.
    """
    monkeypatch.setattr(_selection, "_ENSEMBLE_NETWORKS_PER_FOLD", 60)
    monkeypatch.setattr(_selection, "_ENSEMBLE_NETWORKS", 300)
    X, y = _linear_table(seed, 40, 0.5)
    model = _linear(n_estimators=60, random_state=seed)
    model.set_params(batch_size=40).fit(X, y)
    fold, Z = selection_folds(X), np.column_stack([X, np.ones(40)])
    prior = np.diag([LENGTH_SCALE**2] * INPUTS + [BIAS_LENGTH_SCALE**2])
    log_level = 0.0
    for _ in range(50):
        tau, draws = np.exp(-log_level), []
        for held_out in (fold == i for i in range(5)):
            Z_train, Z_test = Z[~held_out], Z[held_out]
            inverse = np.linalg.inv(tau * Z_train.T @ Z_train + prior)
            residual = y[held_out] - Z_test @ (tau * inverse @ Z_train.T @ y[~held_out])
            std = np.sqrt(((Z_test @ inverse) * Z_test).sum(1))
            draws.append([residual - std, residual + std])
        residual = np.concatenate(draws, axis=1).T[:, None, :, None]
        fields = _with_noise(residual, 1 / tau)
        _, [log_level] = estimate_noise_variance(fields, np.ones(40))
    assert model.noise_std_ == pytest.approx(np.exp(0.5 * log_level), rel=0.05)


def _with_noise(residual, level):
    """``held_out_draws`` of residuals (rows, 1, draws, targets) and a noise level."""
    noise = np.full_like(residual, level)
    return np.concatenate([residual, noise, noise], axis=1)


def test_defaults_find_the_noise_of_a_linear_model(seed):
    """Within six standard errors of a standard deviation of 60 rows."""
    random = np.random.default_rng([seed, 6])
    X = random.normal(size=(60, 5))
    y = X @ random.normal(size=5) * 2 + 0.7 * random.normal(size=60)
    model = AnchoredEnsembleRegressor((), device="cpu", random_state=seed).fit(X, y)
    assert abs(np.log(model.noise_std_ / 0.7)) < 6 / np.sqrt(2 * 60)


def test_wide_anchors_do_not_change_the_noise(seed):
    """Learned with the weights, the noise was larger than y, as were the residuals."""
    random = np.random.default_rng([seed, 7])
    X = random.normal(size=(100, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * random.normal(size=100)
    model = AnchoredEnsembleRegressor(
        (30,), length_scale=0.5, n_estimators=5, device="cpu", random_state=seed
    ).fit(X, y)
    assert 0.3 / 2 < model.noise_std_ < 0.3 * 2
    assert model.score(X, y) > 0.9


def test_warning_of_functions_that_are_too_wide(seed):
    """The training noise is then at most the standard deviation of y."""
    X, y = _linear_table(seed, 40, 0.5)
    options = {"n_estimators": 3, "device": "cpu", "random_state": seed}
    model = AnchoredEnsembleRegressor((20,), length_scale=0.02, max_iter=100, **options)
    with pytest.warns(ConvergenceWarning, match="worse than by their mean.*length_sc"):
        model.fit(X, y)
    trained = np.exp(-0.5 * model.parameters_["likelihood/log_tau"])
    assert (trained * model.y_scale_ <= y.std() * (1 + 1e-6)).all()


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_warm_start_keeps_tau(seed, rows, likelihood):
    X, y, _ = rows
    model = AnchoredEnsembleRegressor(
        (4,), likelihood=likelihood, n_estimators=3, max_iter=30, warm_start=True
    ).set_params(device="cpu", dtype="float64", random_state=seed)
    tau, before = model.fit(X, y).tau_, model.parameters_
    after = model.fit(X, y).parameters_
    np.testing.assert_allclose(model.tau_, tau, rtol=1e-12)
    name = "likelihood/log_tau"
    np.testing.assert_array_equal(after[name], before[name])
    assert (after["layers/0/mean"] != before["layers/0/mean"]).all()
    later = model.partial_fit(X, y, n_epochs=1).parameters_
    np.testing.assert_array_equal(later[name], after[name])


def test_large_tables_learn_the_noise_from_the_rows_alone(seed, rows, monkeypatch):
    """The row perturbation of a member does not count as noise of y.

    At the end of each training 1 / tau is the mean of (y - Z w)^2.
    """
    for module in (_job, _selection):
        monkeypatch.setattr(module, "MAX_ENTRIES", ROWS * INPUTS)
    X, y, _ = rows
    y = y[:, 0]
    # Learning the noise with the weights takes longer to converge.
    model = _linear(n_estimators=5, random_state=seed).set_params(max_iter=4000)
    with pytest.warns(
        UserWarning, match="no rows were held out to estimate the observation noise"
    ):
        model.fit(X, y)
    Z = np.column_stack([X, np.ones(ROWS)])
    variances = np.mean((y - _weights(model)[:, 0] @ Z.T) ** 2, axis=1)
    _check_members(model, X, y, 1 / variances)
    assert model.noise_std_**2 == pytest.approx(np.mean(variances), rel=1e-4)


@pytest.mark.parametrize("likelihood", ["student_t", "mixture"])
def test_noise_of_other_likelihoods_is_estimated_on_held_out_rows(seed, likelihood):
    """The estimate maximises the density of the mixture of all networks."""
    X, y = _linear_table(seed, 40, 0.5)
    model = AnchoredEnsembleRegressor(
        (4,), likelihood=likelihood, n_estimators=3, max_iter=30, batch_size=40
    ).set_params(device="cpu", dtype="float64", standardize=False, random_state=seed)
    draws, fold = [], selection_folds(X)
    for held_out in (fold == i for i in range(5)):
        # A fit without the fold holds out other rows, which changes its predictions
        # but not the training.
        without_fold = clone(model).fit(X[~held_out], y[~held_out])
        draws.append(_held_out_draws(without_fold, X[held_out], y[held_out]))
    posterior = restore_posterior(model.fit(X, y), torch.device("cpu"), torch.float64)
    likelihood, fields = posterior.likelihood, np.concatenate(draws)
    _, noise = likelihood.fit_predictive_params(fields, np.ones(40))
    for name, values in noise.items():
        stored = model.parameters_[f"likelihood/{name}"]
        np.testing.assert_allclose(stored, values[None].repeat(3, 0), atol=2e-3)


def _held_out_draws(model, X, y):
    """``held_out_draws`` of all networks together, (rows, fields, networks, ...)."""
    posterior = restore_posterior(model, torch.device("cpu"), torch.float64)
    params = posterior.likelihood.in_training(posterior.likelihood_params)
    outputs = posterior.outputs_of(torch.as_tensor(X)[None], 1)
    y = torch.as_tensor(y)[None, :, None]
    draws = posterior.likelihood.held_out_draws(params, outputs, y)
    return draws_together(draws.numpy())


def test_batched_fits_have_the_tau_of_single_fits(seed):
    """With different rows, numbers of epochs and folds."""
    X, y = _linear_table(seed, 150, 0.5)
    options = {"n_estimators": 3, "max_iter": 60, "batch_size": 1000, "device": "cpu"}
    models = [
        AnchoredEnsembleRegressor(
            (4,), dtype="float64", random_state=seed + i, **options
        )
        for i in range(2)
    ]
    models[1].set_params(length_scale=0.7, max_iter=40)
    slices = [slice(0, 40), slice(0, 150)]
    prepared = [
        training_data(model, X[subset], y[subset])
        for model, subset in zip(models, slices, strict=True)
    ]
    tasks = [
        training_job(model, table)
        for model, table in zip(models, prepared, strict=True)
    ]
    together = train_together(models, tasks)
    for model, subset, fitted in zip(models, slices, together, strict=True):
        single = model.fit(X[subset], y[subset])
        posterior = fitted.trained.posterior
        for name in ("log_tau", "log_factor"):
            actual = posterior.likelihood_params[name].numpy()
            expected = single.parameters_[f"likelihood/{name}"]
            np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)
        mean = posterior.layers[0]["mean"].numpy()
        np.testing.assert_allclose(mean, single.parameters_["layers/0/mean"], rtol=1e-5)


def test_early_stopping_learns_tau_with_the_weights(seed):
    X, y = _linear_table(seed, 40, 0.5)
    options = {"n_estimators": 3, "max_iter": 30, "device": "cpu", "random_state": seed}
    model = AnchoredEnsembleRegressor((4,), early_stopping=True, **options).fit(X, y)
    assert "likelihood/log_factor" not in model.parameters_
    assert len(np.unique(model.parameters_["likelihood/log_tau"])) == 3


@pytest.mark.parametrize("activation", ["relu", "erf", "tanh"])
def test_anchors_have_the_kernel_of_the_prior(seed, activation):
    """Cov f(x) f(x') = s_b^2 + H s_w^2 E h(u) h(u'), u normal, for H units.

    For relu and erf in closed form: the arc-cosine kernel (Cho & Saul 2009, eq. 6) and
    the arc-sine kernel (Williams 1998, eq. 11); otherwise by quadrature. With one
    hidden layer it holds for any width.
    """
    units = 30
    model = AnchoredEnsembleRegressor(
        (units,),
        activation,
        length_scale=[0.8, 3.0],
        bias_length_scale=[0.5, 1.5],
        n_estimators=MEMBERS,
        standardize=False,
        max_iter=1,
        learning_rate_init=1e-9,
        device="cpu",
        dtype="float64",
        random_state=seed,
    )
    random = np.random.default_rng([seed, 2])
    X = random.normal(size=(4, INPUTS))
    model.fit(X, random.normal(size=4))
    arrays = model.parameters_
    hidden = X @ arrays["layers/0/mean"] + arrays["layers/0/bias"][:, None]
    functions = {"relu": lambda u: np.maximum(u, 0), "erf": erf, "tanh": np.tanh}
    hidden = functions[activation](hidden)
    f = hidden @ arrays["layers/1/mean"] + arrays["layers/1/bias"][:, None]
    actual = np.cov(f[..., 0].T)

    covariance_of_units = X @ X.T / 0.8**2 + 1 / 0.5**2
    kernel = {"relu": arc_cosine, "erf": arc_sine, "tanh": tanh_kernel}[activation]
    expected = kernel(covariance_of_units) * units / 3.0**2 + 1 / 1.5**2
    variance = expected.diagonal()
    # Six standard errors; sums over units have somewhat heavier tails.
    error = 6 * np.sqrt((np.outer(variance, variance) + expected**2) / MEMBERS)
    assert (abs(actual - expected) < 1.3 * error).all()


def test_spread_grows_away_from_the_rows(seed):
    random = np.random.default_rng(seed)
    X = np.append(random.uniform(-2, -1, 60), random.uniform(1, 2, 60))[:, None]
    y = np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=120)
    model = AnchoredEnsembleRegressor(random_state=seed, device="cpu").fit(X, y)
    X_new = np.array([[-1.5], [1.5], [0.0], [4.0]])
    left, right, gap, beyond = model.predict_uncertainty(X_new, "epistemic")
    assert min(gap, beyond) > 2 * max(left, right)


def test_classifier_members_spread_as_the_posterior(seed):
    """With many rows the anchors have little effect.

    The covariance of the logits is then the inverse of the Fisher information.
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(400, 2))
    y = X[:, 0] + random.logistic(size=400) > 0
    model = AnchoredEnsembleClassifier(
        (),
        length_scale=1.0,
        n_estimators=200,
        standardize=False,
        device="cpu",
        random_state=seed,
    ).fit(X, y)
    differences = np.diff(_weights(model), axis=1)[:, 0]
    Z = np.column_stack([X, np.ones(len(X))])
    p = 1 / (1 + np.exp(-Z @ differences.mean(0)))
    expected = np.linalg.inv((p * (1 - p) * Z.T) @ Z).diagonal()
    # Six standard errors of a variance of 200 draws, and a tolerance for the
    # limited number of rows.
    np.testing.assert_allclose(differences.var(0), expected, rtol=0.7)


def test_partial_fit_perturbs_the_rows_of_every_call_separately(seed, rows):
    """The same rows in two calls have two perturbations."""
    X, y, _ = rows
    model = _linear(n_estimators=2, random_state=seed)
    first = model.partial_fit(X, y).parameters_["layers/0/mean"].copy()
    repeated = _linear(n_estimators=2, random_state=seed).partial_fit(X, y)
    np.testing.assert_array_equal(repeated.parameters_["layers/0/mean"], first)
    assert (model.partial_fit(X, y).parameters_["layers/0/mean"] != first).all()


@pytest.mark.parametrize("changes", [{"length_scale": 0}, {"bias_length_scale": 0.0}])
def test_flat_prior_is_refused(rows, changes):
    with pytest.raises(ValueError, match="anchors are drawn from"):
        AnchoredEnsembleRegressor(**changes).fit(*rows[:2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias_length_scale": "wide"}, "bias_length_scale"),
        ({"bias_length_scale": [1.0, 2.0, 3.0]}, "one per weight layer"),
        ({"noisy_targets": "yes"}, "noisy_targets"),
    ],
)
def test_invalid_parameters_are_refused(rows, changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        AnchoredEnsembleRegressor(**changes).fit(*rows[:2])
