"""The observation noise of predictions, estimated on held-out rows."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize

from skbayesnn import (
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)
from skbayesnn._distributions.map_factor import PRIOR_STD
from skbayesnn._likelihoods import likelihood_named
from skbayesnn.estimators import _fit, _job, _selection
from skbayesnn.estimators._fitted import restore_posterior
from skbayesnn.estimators._job import training_job
from skbayesnn.estimators._training_data import training_data

ROWS, INPUTS, TARGETS, N_DRAWS = 44, 3, 2, 50
FACTOR = "likelihood/log_factor"
TAU, DF = "likelihood/predictive_log_tau", "likelihood/predictive_log_df"
ADDED = "likelihood/log_added"
T_4 = {"likelihood": "student_t", "likelihood_options": {"df": 4.0}}
FAN_IN = {"length_scale": "fan_in"}
CPU = torch.device("cpu")
# Settings that single fits and batched fits have in common.
EXACT = {
    "hidden_layer_sizes": (7,),
    "max_iter": 40,
    "n_draws": N_DRAWS,
    "standardize": False,
    "device": "cpu",
    "dtype": "float64",
}
KINDS = [
    VariationalDropoutRegressor(**EXACT),
    VariationalDropoutRegressor(noise="independent", alpha_per="weight", **EXACT),
    VariationalDropoutRegressor(likelihood="heteroscedastic", **EXACT),
    MCDropoutRegressor(likelihood="gaussian", **EXACT),
    MCDropoutRegressor(likelihood="heteroscedastic", **EXACT),
    MCDropoutRegressor(dropout="auto", **FAN_IN, **EXACT),
    MCDropoutRegressor(likelihood="student_t", **FAN_IN, **EXACT),
    MCDropoutRegressor(likelihood="student_t", tau=4.0, **EXACT),
    VariationalDropoutRegressor(**T_4, **EXACT),
    BBBRegressor(**EXACT),
    # Trained until it over-fits, so that some variance has to be added.
    MCDropoutRegressor(likelihood="mixture", **FAN_IN, **EXACT | {"max_iter": 150}),
]
pytestmark = pytest.mark.filterwarnings("ignore:the predictions are")


def seeded(model, seed):
    return type(model)(**model.get_params() | {"random_state": seed})


def held_out_draws_of(model, X, y):
    """Inputs of the likelihood's estimate, (networks, rows, ...), in training units."""
    posterior = restore_posterior(model, CPU, torch.float64)
    likelihood = posterior.likelihood
    params = likelihood.in_training(posterior.likelihood_params)
    outputs = posterior.outputs_of(torch.as_tensor(X)[None], N_DRAWS)
    return likelihood.held_out_draws(
        params, outputs, torch.as_tensor(y)[None, :, None]
    ).numpy()


def stored_noise(model, name):
    """The estimate of this name in a fitted model, (networks, targets)."""
    if name == "log_factor":
        return model.parameters_[FACTOR]
    if name == "log_variance":
        return model.parameters_[FACTOR] - model.parameters_["likelihood/log_tau"]
    return model.parameters_[f"likelihood/{name}"]


@pytest.fixture
def table(seed):
    """X, and y with a noise of standard deviation 0.5."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, INPUTS))
    return X, np.sin(X[:, 0]) + 0.5 * random.normal(size=ROWS)


def likelihood_of(name, n_targets=1, learned=True, **options):
    return likelihood_named(name).build(n_targets, learned, options)


# ---- the estimate


def draws_of(*fields):
    """``held_out_draws`` of one target from arrays that broadcast to (draws, rows)."""
    return np.stack(np.broadcast_arrays(*fields)).transpose(2, 0, 1)[..., None]


def test_factor_is_the_mode_of_its_posterior(seed):
    """For one draw, by the stationary equation; x = log s, weights w:

    sum_i w_i (r_i^2 / v_i exp(-2 x) - 1) = x / prior variance
    """
    random = np.random.default_rng(seed)
    n_rows = 13
    noise = random.uniform(0.5, 2, size=(n_rows, TARGETS))
    residuals = [0.3, 2.0] * np.sqrt(noise) * random.uniform(-2, 2, (n_rows, TARGETS))
    weights = random.uniform(0.5, 1.5, size=n_rows)
    draws = np.stack([residuals, noise, np.ones_like(noise)], axis=1)[:, :, None]
    _, estimated = likelihood_of("heteroscedastic", TARGETS).fit_predictive_params(
        draws, weights
    )
    factor = np.exp(estimated["log_factor"])
    squares = weights @ (residuals**2 / noise)
    x = 0.5 * np.log(factor)
    slope = squares / factor - weights.sum() - x / PRIOR_STD**2
    # x is rounded to 0.001; d slope / dx is at most 2 squares / factor + 4.
    bound = 1e-3 * (squares / factor + 4)
    assert (abs(slope) <= bound).all()


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_noise_is_estimated_under_the_mixture_of_draws(likelihood, seed):
    """A tenth of the draws lies far out, as under dropout.

    Their variance is a hundred times the noise variance: an estimate that takes the
    draws for normal would find no noise at all.
    """
    random = np.random.default_rng(seed)
    n_draws, n_rows = 30, 2_000
    means = random.normal(size=(n_draws, n_rows)) * 0.1
    means[: n_draws // 10] *= 300
    noise = random.uniform(1, 3, size=(n_draws, n_rows))
    draw = random.integers(n_draws, size=n_rows)
    row = np.arange(n_rows)
    y = means[draw, row]
    y = y + np.sqrt(0.25 * noise[draw, row]) * random.normal(size=n_rows)
    kind = likelihood_of(likelihood)
    level = 2.0
    if likelihood == "gaussian":
        noise, level = np.ones_like(noise), 1.0
        y = means[draw, row] + 0.5 * random.normal(size=n_rows)
    draws = draws_of(y - means, noise, level)
    density, estimated = kind.fit_predictive_params(draws, np.ones(n_rows))
    [log_factor] = estimated.values()
    [factor] = np.exp(log_factor)
    # Five relative standard errors, sqrt(2 / rows) each if the draw were known.
    assert factor == pytest.approx(0.25, rel=5 * np.sqrt(2 / n_rows))
    expected = stats.norm.pdf(y, means, np.sqrt(noise * factor)).mean(0)
    np.testing.assert_allclose(density[:, 0], np.log(expected))


def test_variance_is_shared_by_networks_of_different_noise_levels(seed):
    """Two folds, whose networks have learned different noise variances.

    The estimate is the variance of all residuals, to the rounding of the sum and the
    prior.
    """
    random = np.random.default_rng(seed)
    n_rows = 500
    residual = 0.7 * random.normal(size=(1, n_rows))
    level = np.where(np.arange(n_rows) < 200, 0.1, 0.9)
    kind = likelihood_of("gaussian")
    draws = draws_of(residual, level, level)
    _, estimated = kind.fit_predictive_params(draws, np.ones(n_rows))
    expected = np.mean(residual**2)
    # The prior of log s has 1 / (2 rows 0.25) of the weight of the data.
    assert np.exp(estimated["log_variance"]) == pytest.approx(expected, rel=0.02)


def test_factor_of_row_dependent_noise_ignores_the_level(seed):
    """A constant in s(x) makes up for any change of tau."""
    random = np.random.default_rng(seed)
    variance = random.uniform(0.5, 2, size=(3, 50))
    residual = random.normal(size=(3, 50))
    kind = likelihood_of("heteroscedastic")
    results = [
        kind.fit_predictive_params(draws_of(residual, variance, level), np.ones(50))
        for level in (1.0, np.where(np.arange(50) < 20, 0.1, 0.9))
    ]
    assert results[0][1] == results[1][1]
    np.testing.assert_array_equal(results[0][0], results[1][0])


def test_outlier_does_not_decide_between_two_fits(seed):
    """Its density is clipped in both fits, 30 nats below the median."""
    random = np.random.default_rng(seed)
    residual = random.normal(size=(1, 40))
    residual[:, 0] = 1e3
    densities = []
    for spread in (1.0, 0.5):
        draws = draws_of(spread * residual, 1e-3, 1e-3)
        density, _ = likelihood_of("gaussian").fit_predictive_params(draws, np.ones(40))
        densities.append(density[:, 0])
        ordinary = np.sort(densities[-1][1:])
        assert densities[-1][0] == pytest.approx(np.sort(densities[-1])[19] - 30)
        assert ordinary[0] > densities[-1][0]
    assert densities[1].sum() > densities[0].sum()


def student_t(learned=True, df=None):
    return likelihood_of("student_t", learned=learned, df=df)


def test_scale_and_degrees_of_freedom_are_the_mode_of_their_posterior(seed):
    """For one draw: the lowest loss that a general solver finds."""
    random = np.random.default_rng(seed)
    residual = 0.3 * random.standard_t(4.0, size=150)
    weights = random.uniform(0.5, 1.5, size=len(residual))

    def loss(log_scale_and_df):
        scale, df = np.exp(log_scale_and_df)
        density = stats.t.logpdf(residual, df, scale=scale)
        return -(weights @ density + stats.gamma.logpdf(df, 2, scale=10))

    starts = np.log([[0.1, 3.1], [0.3, 6.0], [0.5, 50.0]])
    bounds = np.log([(1e-3, 3.0), (3.0, 200.0)])
    lowest = min(minimize(loss, start, bounds=bounds).fun for start in starts)
    draws = draws_of(residual[None], 1.0, 5.0)
    density, noise = student_t().fit_predictive_params(draws, weights)
    df = np.exp(noise["predictive_log_df"])
    scale = np.sqrt(np.exp(-noise["predictive_log_tau"]) * (df - 2) / df)
    # Next to the mode a step of 0.001 in both logarithms costs rows times its square.
    assert loss(np.log([scale[0], df[0]])) == pytest.approx(lowest, abs=1e-3)
    expected = stats.t.logpdf(residual, df, scale=scale)
    np.testing.assert_allclose(density[:, 0], expected)


def test_student_t_scale_is_estimated_under_the_mixture_of_draws(seed):
    """A tenth of the draws lies far out; the scale is found to its standard error.

    It would be sqrt((df + 3) / (2 df rows)) if the draw were known.
    """
    random = np.random.default_rng(seed)
    n_draws, n_rows, scale, df = 20, 2_000, 0.5, 4.0
    means = random.normal(size=(n_draws, n_rows)) * 0.1
    means[: n_draws // 10] *= 300
    y = means[random.integers(n_draws, size=n_rows), np.arange(n_rows)]
    y = y + scale * random.standard_t(df, size=n_rows)
    draws = draws_of(y - means, 1.0, df)
    density, noise = student_t(df=df).fit_predictive_params(draws, np.ones(n_rows))
    estimate = np.sqrt(np.exp(-noise["predictive_log_tau"][0]) * (df - 2) / df)
    error = np.sqrt((df + 3) / (2 * df * n_rows))
    assert estimate == pytest.approx(scale, rel=5 * error)
    expected = stats.t.pdf(y, df, means, estimate).mean(0)
    np.testing.assert_allclose(density[:, 0], np.log(expected))


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_factor_multiplies_the_variance_of_every_row(likelihood, seed):
    """The means and the parameters of the training stay as they are."""
    before, after, factor = _before_and_after(likelihood, "log_factor", seed)
    np.testing.assert_array_equal(after.mean, before.mean)
    expected = before.variance * factor
    np.testing.assert_allclose(after.variance, expected, rtol=1e-12)


def test_variance_is_added_to_every_gaussian_of_a_mixture(seed):
    before, after, added = _before_and_after("mixture", "log_added", seed)
    np.testing.assert_array_equal(after.location, before.location)
    np.testing.assert_array_equal(after.weight, before.weight)
    expected = np.square(before.scale) + added[:, None]
    np.testing.assert_allclose(np.square(after.scale), expected, rtol=1e-12)


def _before_and_after(likelihood, name, seed):
    """Components of one of several members before and after, and the estimates."""
    kind = likelihood_of(likelihood, TARGETS)
    random = torch.Generator().manual_seed(seed)
    draws, members, rows = 5, 4, 3
    shape = draws, members, rows, kind.n_outputs
    outputs = torch.randn(shape, generator=random, dtype=torch.float64)
    tau, estimate = (
        torch.rand(members, TARGETS, generator=random, dtype=torch.float64) + 0.5
        for _ in range(2)
    )
    params = kind.init(tau, None)
    params_after = kind.with_predictive_params(params, {name: estimate.log()})
    assert kind.in_training(params_after).keys() == params.keys()
    level = (1 / tau) * estimate if name == "log_factor" else 1 / tau + estimate
    torch.testing.assert_close(kind.noise_level(params_after), level)
    before, after = (
        kind.components_class(*(v[:, 1].numpy() for v in kind.components(p, outputs)))
        for p in (params, params_after)
    )
    return before, after, estimate[1].numpy()


def test_variance_added_to_a_mixture_maximises_the_density(seed):
    """Of draws that differ, compared with a grid of values."""
    random = np.random.default_rng(seed)
    n_rows, draws, k = 80, 3, 2
    weight = random.dirichlet(np.ones(k), size=(draws, n_rows)).swapaxes(1, 2)
    residual = random.normal(size=(draws, k, n_rows))
    scale = random.uniform(0.2, 0.4, size=(draws, k, n_rows))
    draws_of_target = np.stack([weight, residual, scale]).transpose(3, 0, 1, 2)
    weights = random.uniform(0.5, 1.5, size=n_rows)

    def density(log_added):
        std = np.sqrt(np.square(scale) + np.exp(log_added))
        return np.log((weight * stats.norm.pdf(residual, scale=std)).sum(1).mean(0))

    kind = likelihood_of("mixture", n_components=k)
    log_density, noise = kind.fit_predictive_params(draws_of_target[..., None], weights)
    [log_added] = noise["log_added"]
    np.testing.assert_allclose(log_density[:, 0], density(log_added))
    mean_residual = (weight * residual).sum(1).mean(0)
    most = np.log(np.average(np.square(mean_residual), weights=weights))
    best = max(weights @ density(value) for value in np.linspace(most - 8, most, 2001))
    # A step of 0.004 from the maximum costs at most rows times its square.
    assert weights @ density(log_added) >= best - 2e-3


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "mixture"])
def test_integer_weights_equal_repeated_rows(likelihood, seed):
    """Also for outliers, whose densities are clipped."""
    random = np.random.default_rng(seed)
    n_rows, k = 31, 2
    kind = likelihood_of(
        likelihood, **{"n_components": k} if likelihood == "mixture" else {}
    )
    residual = random.standard_t(2.0, size=(k, n_rows)) * 10
    if likelihood == "mixture":
        fields = np.full_like(residual, 0.5), residual, np.full_like(residual, 0.2)
        draws = np.stack(fields).transpose(2, 0, 1)[:, :, None, :, None]
    else:
        draws = draws_of(residual, 1.0, 5.0)
    counts = random.integers(1, 6, size=n_rows)
    repeated = np.repeat(draws, counts, axis=0)
    _, weighted = kind.fit_predictive_params(draws, counts.astype(float))
    _, unweighted = kind.fit_predictive_params(repeated, np.ones(counts.sum()))
    for name, values in weighted.items():
        # Logarithms are rounded to 0.001, of s or of s^2.
        assert values == pytest.approx(unweighted[name], abs=2.1e-3)


def test_almost_nothing_is_added_to_a_mixture_that_fits(seed):
    """The mixture is already as wide as the held-out rows are."""
    random = np.random.default_rng(seed)
    n_rows, k = 3_000, 2
    peak, peaks = random.integers(0, k, size=n_rows), np.array([-2.0, 2.0])
    y = peaks[peak] + 0.5 * random.normal(size=n_rows)
    weight, scale = (np.full((k, n_rows), value) for value in (0.5, 0.5))
    draws = np.stack([weight, y - peaks[:, None], scale]).transpose(2, 0, 1)
    kind = likelihood_of("mixture", n_components=k)
    _, noise = kind.fit_predictive_params(draws[:, :, None, :, None], np.ones(n_rows))
    # The relative standard error of the variance 0.25 is sqrt(2 / rows).
    assert np.exp(noise["log_added"][0]) < 0.25 * 5 * np.sqrt(2 / n_rows)


def test_given_noise_parameters_are_not_estimated(seed):
    """A given tau fixes the variance, given degrees of freedom stay."""
    residual = np.random.default_rng(seed).standard_t(8.0, size=(1, 300))
    draws, weights = draws_of(residual, 2.0, 6.0), np.ones(300)
    _, with_df = student_t(df=7.0).fit_predictive_params(draws, weights)
    assert with_df.keys() == {"predictive_log_tau"}
    density, with_tau = student_t(learned=False).fit_predictive_params(draws, weights)
    assert with_tau.keys() == {"predictive_log_df"}
    # A variance of 2^2 6 / 4, whatever the degrees of freedom.
    df = np.exp(with_tau["predictive_log_df"])
    scale = np.sqrt(6.0 * (df - 2) / df)
    expected = stats.t.logpdf(residual[0], df, scale=scale)
    np.testing.assert_allclose(density[:, 0], expected)


# ---- held-out rows of cross-validation folds


@pytest.mark.parametrize("model", KINDS)
def test_estimate_equals_single_fits_without_the_folds(model, table, seed):
    """One network per fold and length scale, fitted alone."""
    X, y = table
    model = seeded(model, seed)
    weights = np.random.default_rng(seed).integers(1, 4, size=ROWS).astype(float)
    fold = _selection.selection_folds(X)
    job = training_job(model, training_data(model, X, y, weights))
    [results] = _selection.held_out_scores([job], [CPU])
    for setting, result in zip(job.settings, results, strict=True):
        draws, fold_weights = [], []
        for k in range(5):
            train, test = fold != k, fold == k
            network = seeded(model, seed).set_params(length_scale=setting.length_scale)
            network.fit(X[train], y[train], weights[train])
            [network_draws] = held_out_draws_of(network, X[test], y[test])
            draws.append(network_draws)
            fold_weights.append(weights[test])
        density, expected = job.config.likelihood.fit_predictive_params(
            np.concatenate(draws), np.concatenate(fold_weights)
        )
        # Logarithms of s or of s^2 are rounded to 0.001; so is the density.
        np.testing.assert_allclose(result.density, density[:, 0], rtol=5e-3, atol=5e-3)
        assert (
            result.predictive_params.keys() == expected.keys()
            and result.predictive_params
        )
        for name, values in expected.items():
            assert result.predictive_params[name] == pytest.approx(values, abs=4e-3)
    model.fit(X, y, weights)
    chosen = results[_selection.best_setting(job, results)]
    for name, values in chosen.predictive_params.items():
        np.testing.assert_allclose(stored_noise(model, name), [values], rtol=1e-12)


@pytest.mark.parametrize("model", KINDS[::2])
def test_batched_fits_estimate_their_noise_separately(model, table, seed):
    X, y = table
    rows = [slice(0, 40), slice(0, 40), slice(4, 44)]
    models = [seeded(model, seed + i) for i in range(len(rows))]
    jobs = [
        training_job(model, training_data(model, X[subset], y[subset]))
        for model, subset in zip(models, rows, strict=True)
    ]
    together = _fit.train_together(models, jobs)
    estimates = [fitted.job.predictive_params for fitted in together]
    for name in estimates[0]:
        assert len({noise[name].tobytes() for noise in estimates}) > 1
    for model, subset, noise in zip(models, rows, estimates, strict=True):
        model.fit(X[subset], y[subset])
        for name, values in noise.items():
            np.testing.assert_allclose(stored_noise(model, name), [values], atol=4e-3)


def test_every_target_has_its_noise_estimate(table, seed):
    """One target is unrelated to X, the other has no noise."""
    X, _ = table
    y = np.stack([X[:, 0], np.random.default_rng(seed).normal(size=ROWS)], axis=1)
    settings = EXACT | {"max_iter": 1000, "hidden_layer_sizes": (50,)}
    model = VariationalDropoutRegressor(**settings, random_state=seed).fit(X, y)
    certain, noisy = np.exp(model.parameters_[FACTOR][0])
    assert certain < noisy and noisy > 1


@pytest.mark.filterwarnings("ignore:y is constant in the training rows")
def test_constant_target_is_left_out_of_the_scores(table, seed):
    """Rows are scored by their other targets only."""
    X, y = table
    targets = np.stack([y, np.full(ROWS, 3.0)], axis=1)
    settings = EXACT | {"max_iter": "auto", "random_state": seed}
    model = VariationalDropoutRegressor(**settings)
    job = training_job(model, training_data(model, X, targets))
    [results] = _selection.held_out_scores([job], [CPU])
    # y has a noise of 0.5: the best score is -0.7 per row.
    assert len(results) == 3 and max(result.score for result in results) < 0


def test_ensemble_members_share_the_noise(table, seed):
    """Members differ in the noise that they learn in training."""
    X, y = table
    model = VariationalDropoutRegressor(**EXACT, n_estimators=2, random_state=seed)
    model.fit(X, y)
    trained = model.parameters_["likelihood/log_tau"]
    factor = np.exp(model.parameters_[FACTOR])
    assert factor.shape == (2, 1) and trained[0] != trained[1]
    variance = factor / np.exp(trained)
    np.testing.assert_allclose(variance[0], variance[1])
    assert model.noise_std_ == pytest.approx(np.sqrt(variance[0, 0]))
    noise = model.predict_uncertainty(X, "aleatoric")
    np.testing.assert_allclose(noise, np.sqrt(variance[0, 0]))


# ---- predictions of fitted models


def test_student_t_predictions_use_the_held_out_estimate(table, seed):
    """The parameters of the training stay, so that it can be continued."""
    X, y = table
    model = MCDropoutRegressor(**EXACT, likelihood="student_t", random_state=seed)
    components = model.fit(X, y)
    tau, df = np.exp(components.parameters_[TAU]), np.exp(components.parameters_[DF])
    assert (tau != np.exp(model.parameters_["likelihood/log_tau"])).all()
    assert model.tau_ == pytest.approx(tau[0, 0]) and df >= 3
    noise = model.predict_uncertainty(X, "aleatoric")
    np.testing.assert_allclose(noise, 1 / np.sqrt(tau[0, 0]))
    draws = model.sample_f(X, n_samples=1)[:, 0]
    scale = np.sqrt((df - 2) / df / tau)[0, 0]
    upper = 1 - model.predictive_cdf(X, draws + 50 * scale)
    # Far out, the tail follows a power law that the spread of draws does not change.
    assert upper == pytest.approx(stats.t.sf(50.0, df[0, 0]) * np.ones(ROWS), rel=0.5)


@pytest.mark.parametrize(
    "kind",
    [VariationalDropoutRegressor(), MCDropoutRegressor(dropout="auto")],
)
def test_default_intervals_cover_new_rows_with_much_noise(kind, seed):
    """With the noise of the training rows the coverage was 24 %.

    Four standard errors of 2,000 rows are 0.03. The rest of the tolerance is for the
    400 training rows and a network that is too wide.
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(2_400, 8))
    y = X @ random.normal(size=8) + 3 * random.normal(size=len(X))
    model = seeded(kind, seed).fit(X[:400], y[:400])
    low, high = model.predict_interval(X[400:], coverage=0.9).T
    inside = np.mean((low <= y[400:]) & (y[400:] <= high))
    assert 0.8 < inside < 0.97


@pytest.mark.parametrize("dropout", [0.0, 0.01])
def test_intervals_of_few_rows_cover_if_noise_has_outliers(dropout, seed):
    """With the noise of the training rows the coverage was 20 to 40 %.

    Four standard errors of 60 held-out rows are 0.15. A network with few rows is too
    wide, too.
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(1_060, 6))
    y = X @ random.normal(size=6) + random.standard_t(3.0, size=len(X))
    model = MCDropoutRegressor(likelihood="student_t", dropout=dropout)
    model = seeded(model, seed).fit(X[:60], y[:60])
    low, high = model.predict_interval(X[60:], coverage=0.9).T
    assert 0.75 < np.mean((low <= y[60:]) & (y[60:] <= high)) < 0.99


# ---- fits that hold out no rows


def test_noise_is_not_estimated_on_held_out_rows(table):
    X, y = table
    for model in (
        VariationalDropoutRegressor(**EXACT, tau=4.0),
        MCDropoutRegressor(**EXACT, **T_4, tau=4.0),
        MCDropoutRegressor(**EXACT, **T_4, **FAN_IN, early_stopping=True),
        BBBRegressor(**EXACT, **T_4, tau=4.0),
        VariationalDropoutRegressor(
            **EXACT, likelihood="gaussian", early_stopping=True
        ),
        MCDropoutRegressor(**EXACT, dropout="auto", tau=4.0),
    ):
        assert not training_job(model, training_data(model, X, y)).needs_selection
        assert not {FACTOR, ADDED, TAU, DF} & model.fit(X, y).parameters_.keys()


def test_bayes_by_backprop_holds_out_rows_if_they_are_few(seed):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(200, INPUTS)), random.normal(size=200)
    model = BBBRegressor(**EXACT)
    for n_rows in (199, 200):
        job = training_job(model, training_data(model, X[:n_rows], y[:n_rows]))
        assert job.needs_selection == (n_rows < 200)


def test_deterministic_network_takes_the_noise_of_its_residuals(table, monkeypatch):
    X, y = table

    def trained(*args):
        raise AssertionError

    monkeypatch.setattr(_selection, "train", trained)
    point = VariationalDropoutRegressor(
        **EXACT, dropout=0.0, likelihood="gaussian", random_state=0
    )
    assert (
        training_job(point, training_data(point, X, y)).config.variance_source
        == "residuals"
    )
    point.set_params(max_iter="auto").fit(X, y)


NO_ESTIMATE = (
    "no rows were held out to estimate the observation noise.*"
    "CalibratedUncertaintyRegressor"
)


@pytest.mark.filterwarnings("ignore:2 columns of X are constant")
def test_identical_rows_warn_and_keep_training_noise():
    model = VariationalDropoutRegressor(**EXACT, random_state=0)
    with pytest.warns(UserWarning, match=f"too few of 2 rows differ.*{NO_ESTIMATE}"):
        model.fit([[0.0, 1.0], [0.0, 1.0]], [1.0, 2.0])
    assert FACTOR not in model.parameters_


def test_warning_if_networks_of_the_folds_diverge(table, monkeypatch):
    X, y = table
    train = _selection.train

    def one_fails(*args, **options):
        trained = train(*args, **options)
        trained.failed[1] = 3
        return trained

    monkeypatch.setattr(_selection, "train", one_fails)
    model = VariationalDropoutRegressor(**EXACT, random_state=0)
    with pytest.warns(UserWarning, match=f"or the networks diverged.*{NO_ESTIMATE}"):
        model.fit(X, y)
    assert FACTOR not in model.parameters_


@pytest.mark.filterwarnings("ignore:2 columns of X are constant")
def test_warning_names_the_parameters_that_can_be_set():
    """Only the degrees of freedom if tau is given; rows of weight zero do not count."""
    X, y = np.ones((6, 2)), np.arange(6.0)
    message = (
        r"too few of 5 rows.* or give likelihood_options=\{'df': \.\.\.\}\. \[SKB301\]$"
    )
    with pytest.warns(UserWarning, match=message):
        MCDropoutRegressor(**EXACT, likelihood="student_t", tau=4.0).fit(
            X, y, np.arange(6)
        )
    with pytest.warns(UserWarning, match="or give tau and likelihood_options="):
        MCDropoutRegressor(**EXACT, likelihood="student_t").fit(X, y)


def test_number_of_held_out_rows_is_limited(table, monkeypatch, seed):
    """All rows of a fold are left out of the training, but only some are scored."""
    X, y = table
    monkeypatch.setattr(_selection, "_MAX_HELD_OUT", 5)
    model = seeded(MCDropoutRegressor(**EXACT, likelihood="student_t"), seed)
    job = training_job(model, training_data(model, X, y))
    shares = [
        share
        for [fold_job] in [_selection._fold_jobs(job)]
        for share in fold_job.row_subsets
    ]
    assert [len(share.held_out_rows) for share in shares] == [5] * 5
    assert sum(len(share.rows) for share in shares) == 4 * ROWS
    assert {TAU, DF} <= model.fit(X, y).parameters_.keys()


def test_large_tables_warn_and_keep_training_noise(table, monkeypatch):
    """If X has as many entries as the limit; not with one row less."""
    X, y = table
    model = VariationalDropoutRegressor(**EXACT, random_state=0)
    for module in (_job, _selection):
        monkeypatch.setattr(module, "MAX_ENTRIES", ROWS * INPUTS)
    with pytest.warns(
        UserWarning, match=f"X has {ROWS * INPUTS} entries.*{NO_ESTIMATE}"
    ):
        model.fit(X, y)
    assert FACTOR not in model.parameters_
    assert FACTOR in model.fit(X[1:], y[1:]).parameters_


# ---- together with the selection of the length scale


def test_noise_is_estimated_if_length_scale_is_selected(table, seed):
    """But not if tau is given, nor with early stopping."""
    X, y = table
    model = seeded(MCDropoutRegressor(**EXACT), seed)
    for tau, needs_selection in (("auto", True), (4.0, False)):
        model.set_params(tau=tau)
        job = training_job(model, training_data(model, X, y))
        assert job.needs_selection == job.estimates_variance == needs_selection
        assert len(job.settings) == (3 if needs_selection else 1)
    early = model.set_params(tau="auto", early_stopping=True)
    job = training_job(early, training_data(early, X, y))
    assert job.needs_selection and not job.estimates_variance


@pytest.mark.filterwarnings("ignore:2 columns of X are constant")
def test_noise_of_residuals_if_no_row_can_be_held_out(recwarn):
    model = MCDropoutRegressor(**EXACT, random_state=0)
    model.fit([[0.0, 1.0], [0.0, 1.0]], [1.0, 2.0])
    fixed_scale = MCDropoutRegressor(
        **EXACT, length_scale=model.length_scale_, random_state=0
    ).fit([[0.0, 1.0], [0.0, 1.0]], [1.0, 2.0])
    assert model.tau_ == fixed_scale.tau_
    assert not [warning for warning in recwarn if "held out" in str(warning.message)]


# ---- continued training


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_warm_start_keeps_the_noise_level(likelihood, table, seed):
    """The training noise falls, and its ratio to the predicted noise rises.

    If the noise depends on the row, the level about which it varies is kept.
    """
    X, y = table
    settings = EXACT | {"warm_start": True, "likelihood": likelihood}
    model = VariationalDropoutRegressor(**settings, random_state=seed)
    tau = model.fit(X, y).tau_
    trained = model.parameters_["likelihood/log_tau"].copy()
    assert model.fit(X, y).tau_ == pytest.approx(tau, rel=1e-12)
    assert (abs(model.parameters_["likelihood/log_tau"] - trained) > 0.01).all()


@pytest.mark.parametrize(
    "likelihood, names", [("student_t", [TAU, DF]), ("mixture", [ADDED])]
)
def test_warm_start_keeps_parameters_that_are_no_factor(likelihood, names, table, seed):
    X, y = table
    settings = EXACT | {"warm_start": True, "likelihood": likelihood}
    model = MCDropoutRegressor(**settings, random_state=seed)
    before = model.fit(X, y).parameters_.copy()
    after = model.fit(X, y).parameters_
    for name in names:
        np.testing.assert_array_equal(after[name], before[name])
    assert (after["likelihood/log_tau"] != before["likelihood/log_tau"]).all()


def test_warm_start_without_noise_estimate_keeps_training_noise(table, seed):
    X, y = table
    model = VariationalDropoutRegressor(**EXACT, warm_start=True, random_state=seed)
    model.partial_fit(X, y, n_epochs=1).fit(X, y)
    assert FACTOR not in model.parameters_


def test_partial_fit_estimates_the_noise(table):
    """After a call without an estimate, too."""
    X, y = table
    model = VariationalDropoutRegressor(**EXACT, random_state=0)
    assert FACTOR not in model.partial_fit(X, y, n_epochs=1).parameters_
    before = model.fit(X, y).parameters_[FACTOR]
    after = model.partial_fit(X, y, n_epochs=1).parameters_[FACTOR]
    assert after.shape == before.shape and (after != before).any()
