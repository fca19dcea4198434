"""The noise of predictions, estimated on held-out rows."""

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
from skbayesnn.estimators._fitted import posterior_of
from skbayesnn.estimators._job import training_job
from skbayesnn.estimators._training_data import training_data
from skbayesnn.model_selection import TauCV

ROWS, INPUTS, TARGETS, N_DRAWS = 44, 3, 2, 50
FACTOR = "likelihood/log_factor"
TAU, DF = "likelihood/predictive_log_tau", "likelihood/predictive_log_df"
ADDED = "likelihood/log_added"
T_4 = {"likelihood": "student_t", "likelihood_options": {"df": 4.0}}
FAN_IN = {"length_scale": "fan_in"}
CPU = torch.device("cpu")
# Numbers that fits by themselves and fits together have in common.
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
    MCDropoutRegressor(**EXACT),
    MCDropoutRegressor(likelihood="heteroscedastic", **EXACT),
    MCDropoutRegressor(dropout="auto", **FAN_IN, **EXACT),
    MCDropoutRegressor(likelihood="student_t", **FAN_IN, **EXACT),
    MCDropoutRegressor(likelihood="student_t", tau=4.0, **EXACT),
    VariationalDropoutRegressor(**T_4, **EXACT),
    # For as long as it takes to over-fit: something is then to be added.
    MCDropoutRegressor(likelihood="mixture", **FAN_IN, **EXACT | {"max_iter": 150}),
]
pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:the predictions are"
)


def seeded(model, seed):
    return type(model)(**model.get_params() | {"random_state": seed})


def as_trained(model, X, y):
    """What the likelihood needs of every network's draws, (networks, rows, ...)."""
    posterior = posterior_of(model, CPU, torch.float64)
    likelihood = posterior.likelihood
    params = likelihood.in_training(posterior.likelihood_params)
    outputs = posterior.outputs_of(torch.as_tensor(X)[None], N_DRAWS)
    return likelihood.held_out_draws(
        params, outputs, torch.as_tensor(y)[None, :, None]
    ).numpy()


def kept_noise(model, name):
    """What a fitted model holds of an estimate, (networks, targets)."""
    if name == "log_variance":
        return model.parameters_[FACTOR] - model.parameters_["likelihood/log_tau"]
    return model.parameters_[f"likelihood/{name}"]


@pytest.fixture
def table(seed):
    """X, and y of noise 0.5."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, INPUTS))
    return X, np.sin(X[:, 0]) + 0.5 * random.normal(size=ROWS)


def of_kind(name, n_targets=1, learned=True, **options):
    return likelihood_named(name).build(n_targets, learned, options)


# ---- the likeliest noise


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
    _, estimated = of_kind("gaussian", TARGETS).fit_predictive_params(draws, weights)
    factor = np.exp(estimated["log_variance"])
    squares = weights @ (residuals**2 / noise)
    x = 0.5 * np.log(factor)
    slope = squares / factor - weights.sum() - x / PRIOR_STD**2
    # x is rounded to 0.001; the slope's own is at most 2 squares / factor + 4.
    bound = 1e-3 * (squares / factor + 4)
    assert (abs(slope) <= bound).all()


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_noise_is_estimated_under_the_mixture_of_draws(likelihood, seed):
    """A tenth of the draws lies far out, as under dropout.

    Their variance is a hundred times that of the noise: an estimate that takes draws
    for normal would find no noise at all.
    """
    random = np.random.default_rng(seed)
    n_draws, n_rows = 30, 2_000
    means = random.normal(size=(n_draws, n_rows)) * 0.1
    means[: n_draws // 10] *= 300
    noise = random.uniform(1, 3, size=(n_draws, n_rows))
    which = random.integers(n_draws, size=n_rows)
    of_row = np.arange(n_rows)
    y = means[which, of_row]
    y = y + np.sqrt(0.25 * noise[which, of_row]) * random.normal(size=n_rows)
    kind = of_kind(likelihood)
    draws = draws_of(y - means, noise, 2.0)
    density, estimated = kind.fit_predictive_params(draws, np.ones(n_rows))
    [factor] = np.exp(estimated["log_variance"]) / 2.0
    # The variance is known to sqrt(2 / rows) of itself, were the draw known: 5 times.
    assert factor == pytest.approx(0.25, rel=5 * np.sqrt(2 / n_rows))
    expected = stats.norm.pdf(y, means, np.sqrt(noise * factor)).mean(0)
    np.testing.assert_allclose(density[:, 0], np.log(expected))


def test_networks_of_other_levels_estimate_one_variance(seed):
    """Two folds, whose networks have learned other noises, and residuals of one.

    As over all rows in one: their variance, to the sum's rounding and the prior.
    """
    random = np.random.default_rng(seed)
    n_rows = 500
    residual = 0.7 * random.normal(size=(1, n_rows))
    level = np.where(np.arange(n_rows) < 200, 0.1, 0.9)
    kind = of_kind("gaussian")
    draws = draws_of(residual, level, level)
    _, estimated = kind.fit_predictive_params(draws, np.ones(n_rows))
    expected = np.mean(residual**2)
    # The prior of log s has the weight of 1 / (2 rows 0.25) of the data's.
    assert np.exp(estimated["log_variance"]) == pytest.approx(expected, rel=0.02)


def test_of_two_fits_the_ordinary_rows_say_which_is_better(seed):
    """A row far off costs both as much, 30 nats more than most."""
    random = np.random.default_rng(seed)
    residual = random.normal(size=(1, 40))
    residual[:, 0] = 1e3
    found = []
    for spread in (1.0, 0.5):
        draws = draws_of(spread * residual, 1e-3, 1e-3)
        density, _ = of_kind("gaussian").fit_predictive_params(draws, np.ones(40))
        found.append(density[:, 0])
        ordinary = np.sort(found[-1][1:])
        assert found[-1][0] == pytest.approx(np.sort(found[-1])[19] - 30)
        assert ordinary[0] > found[-1][0]
    assert found[1].sum() > found[0].sum()


def student_t(learned=True, df=None):
    return of_kind("student_t", learned=learned, df=df)


def test_scale_and_degrees_of_freedom_are_the_mode_of_their_posterior(seed):
    """For one draw: the lowest point that a general solver finds."""
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


def test_students_noise_is_estimated_under_the_mixture_of_draws(seed):
    """A tenth of the draws lies far out; the scale is found to its standard error.

    That is sqrt((df + 3) / (2 df rows)) were the draw known.
    """
    random = np.random.default_rng(seed)
    n_draws, n_rows, scale, df = 20, 2_000, 0.5, 4.0
    means = random.normal(size=(n_draws, n_rows)) * 0.1
    means[: n_draws // 10] *= 300
    y = means[random.integers(n_draws, size=n_rows), np.arange(n_rows)]
    y = y + scale * random.standard_t(df, size=n_rows)
    draws = draws_of(y - means, 1.0, df)
    density, noise = student_t(df=df).fit_predictive_params(draws, np.ones(n_rows))
    found = np.sqrt(np.exp(-noise["predictive_log_tau"][0]) * (df - 2) / df)
    error = np.sqrt((df + 3) / (2 * df * n_rows))
    assert found == pytest.approx(scale, rel=5 * error)
    expected = stats.t.pdf(y, df, means, found).mean(0)
    np.testing.assert_allclose(density[:, 0], np.log(expected))


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_a_factor_is_on_the_variance_of_every_row(likelihood, seed):
    """Means stay as they are, and training is not told."""
    before, after, factor = _before_and_after(likelihood, "log_factor", seed)
    np.testing.assert_array_equal(after.mean, before.mean)
    expected = before.variance * factor
    np.testing.assert_allclose(after.variance, expected, rtol=1e-12)


def test_a_variance_is_added_to_every_gaussian_of_a_mixture(seed):
    before, after, added = _before_and_after("mixture", "log_added", seed)
    np.testing.assert_array_equal(after.location, before.location)
    np.testing.assert_array_equal(after.weight, before.weight)
    expected = np.square(before.scale) + added[:, None]
    np.testing.assert_allclose(np.square(after.scale), expected, rtol=1e-12)


def _before_and_after(likelihood, name, seed):
    """Components of one of several members, and the number of its targets."""
    kind = of_kind(likelihood, TARGETS)
    random = torch.Generator().manual_seed(seed)
    draws, members, rows = 5, 4, 3
    shape = draws, members, rows, kind.n_outputs
    outputs = torch.randn(shape, generator=random, dtype=torch.float64)
    tau, number = (
        torch.rand(members, TARGETS, generator=random, dtype=torch.float64) + 0.5
        for _ in range(2)
    )
    params = kind.init(tau, None)
    now = kind.with_predictive_params(params, {name: number.log()})
    assert kind.in_training(now).keys() == params.keys()
    level = (1 / tau) * number if name == "log_factor" else 1 / tau + number
    torch.testing.assert_close(kind.noise_level(now), level)
    before, after = (
        kind.components_class(*(v[:, 1].numpy() for v in kind.components(p, outputs)))
        for p in (params, now)
    )
    return before, after, number[1].numpy()


def test_what_is_added_to_a_mixture_is_the_likeliest(seed):
    """Of draws that differ, by the density of all of them and a grid."""
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

    kind = of_kind("mixture", n_components=k)
    found, noise = kind.fit_predictive_params(draws_of_target[..., None], weights)
    [log_added] = noise["log_added"]
    np.testing.assert_allclose(found[:, 0], density(log_added))
    of_mean = (weight * residual).sum(1).mean(0)
    most = np.log(np.average(np.square(of_mean), weights=weights))
    best = max(weights @ density(one) for one in np.linspace(most - 8, most, 2001))
    # A step of 0.004 from the likeliest costs rows times its square, at most.
    assert weights @ density(log_added) >= best - 2e-3


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "mixture"])
def test_a_weight_of_two_is_two_rows(likelihood, seed):
    """Also where rows are outliers, which do not speak."""
    random = np.random.default_rng(seed)
    n_rows, k = 31, 2
    kind = of_kind(likelihood, **{"n_components": k} if likelihood == "mixture" else {})
    residual = random.standard_t(2.0, size=(k, n_rows)) * 10
    if likelihood == "mixture":
        fields = np.full_like(residual, 0.5), residual, np.full_like(residual, 0.2)
        draws = np.stack(fields).transpose(2, 0, 1)[:, :, None, :, None]
    else:
        draws = draws_of(residual, 1.0, 5.0)
    counts = random.integers(1, 6, size=n_rows)
    repeated = np.repeat(draws, counts, axis=0)
    _, weighted = kind.fit_predictive_params(draws, counts.astype(float))
    _, alike = kind.fit_predictive_params(repeated, np.ones(counts.sum()))
    for name, values in weighted.items():
        # Logarithms are rounded to 0.001, of s or of s^2.
        assert values == pytest.approx(alike[name], abs=2.1e-3)


def test_a_mixture_that_says_it_all_is_left_alone(seed):
    """Next to nothing is added to what is as wide as held-out rows are."""
    random = np.random.default_rng(seed)
    n_rows, k = 3_000, 2
    side, peaks = random.integers(0, k, size=n_rows), np.array([-2.0, 2.0])
    y = peaks[side] + 0.5 * random.normal(size=n_rows)
    weight, scale = (np.full((k, n_rows), value) for value in (0.5, 0.5))
    draws = np.stack([weight, y - peaks[:, None], scale]).transpose(2, 0, 1)
    kind = of_kind("mixture", n_components=k)
    _, noise = kind.fit_predictive_params(draws[:, :, None, :, None], np.ones(n_rows))
    # The variance 0.25 is known to sqrt(2 / rows) of itself.
    assert np.exp(noise["log_added"][0]) < 0.25 * 5 * np.sqrt(2 / n_rows)


def test_what_is_given_of_the_noise_stays(seed):
    """tau: the variance; the degrees of freedom, where these are."""
    residual = np.random.default_rng(seed).standard_t(8.0, size=(1, 300))
    draws, weights = draws_of(residual, 2.0, 6.0), np.ones(300)
    _, of_df = student_t(df=7.0).fit_predictive_params(draws, weights)
    assert of_df.keys() == {"predictive_log_tau"}
    density, of_tau = student_t(learned=False).fit_predictive_params(draws, weights)
    assert of_tau.keys() == {"predictive_log_df"}
    # A variance of 2^2 6 / 4, whatever the degrees of freedom.
    df = np.exp(of_tau["predictive_log_df"])
    scale = np.sqrt(6.0 * (df - 2) / df)
    expected = stats.t.logpdf(residual[0], df, scale=scale)
    np.testing.assert_allclose(density[:, 0], expected)


# ---- of networks without a fold


@pytest.mark.parametrize("model", KINDS)
def test_noise_is_that_of_fits_without_the_folds(model, table, seed):
    """Each fold's network by itself, as it was trained; under each length scale."""
    X, y = table
    model = seeded(model, seed)
    weights = np.random.default_rng(seed).integers(1, 4, size=ROWS).astype(float)
    fold = _selection.selection_folds(X)
    job = training_job(model, training_data(model, X, y, weights))
    [judged] = _selection.held_out_scores([job], CPU, torch.float64)
    for setting, found in zip(job.settings, judged, strict=True):
        said, of_rows = [], []
        for number in range(5):
            train, test = fold != number, fold == number
            alone = seeded(model, seed).set_params(length_scale=setting.length_scale)
            alone.fit(X[train], y[train], weights[train])
            [of_network] = as_trained(alone, X[test], y[test])
            said.append(of_network)
            of_rows.append(weights[test])
        density, expected = job.config.likelihood.fit_predictive_params(
            np.concatenate(said), np.concatenate(of_rows)
        )
        # Logarithms are rounded to 0.001, of s or of s^2; the density with it.
        np.testing.assert_allclose(found.density, density[:, 0], rtol=5e-3, atol=5e-3)
        assert (
            found.predictive_params.keys() == expected.keys()
            and found.predictive_params
        )
        for name, values in expected.items():
            assert found.predictive_params[name] == pytest.approx(values, abs=4e-3)
    model.fit(X, y, weights)
    chosen = judged[_selection.best_setting(job, judged)]
    for name, values in chosen.predictive_params.items():
        np.testing.assert_allclose(kept_noise(model, name), [values], rtol=1e-12)


@pytest.mark.parametrize("model", KINDS)
def test_together_each_has_its_own_noise(model, table, seed):
    X, y = table
    rows = [slice(0, 40), slice(0, 40), slice(4, 44)]
    models = [seeded(model, seed + i) for i in range(len(rows))]
    jobs = [
        training_job(one, training_data(one, X[kept], y[kept]))
        for one, kept in zip(models, rows, strict=True)
    ]
    together = _fit.train_together(models, jobs)
    found = [fitted.job.predictive_params for fitted in together]
    for name in found[0]:
        assert len({noise[name].tobytes() for noise in found}) > 1
    for one, kept, noise in zip(models, rows, found, strict=True):
        one.fit(X[kept], y[kept])
        for name, values in noise.items():
            np.testing.assert_allclose(kept_noise(one, name), [values], atol=4e-3)


def test_every_target_has_its_own(table, seed):
    """A target that nothing explains, and one without noise."""
    X, _ = table
    y = np.stack([X[:, 0], np.random.default_rng(seed).normal(size=ROWS)], axis=1)
    settings = EXACT | {"max_iter": 1000, "hidden_layer_sizes": (50,)}
    model = VariationalDropoutRegressor(**settings, random_state=seed).fit(X, y)
    certain, noisy = np.exp(model.parameters_[FACTOR][0])
    assert certain < noisy and noisy > 1


@pytest.mark.filterwarnings("ignore:y is constant in the training rows")
def test_a_constant_target_has_no_say(table, seed):
    """Rows are as likely as their other targets, not as what is the same everywhere."""
    X, y = table
    targets = np.stack([y, np.full(ROWS, 3.0)], axis=1)
    settings = EXACT | {"max_iter": "auto", "random_state": seed}
    model = VariationalDropoutRegressor(**settings)
    job = training_job(model, training_data(model, X, targets))
    [judged] = _selection.held_out_scores([job], CPU, torch.float64)
    # Of y, whose noise is 0.5: -0.7 a row where all else is known.
    assert len(judged) == 3 and max(one.score for one in judged) < 0


def test_ensemble_members_share_the_noise(table, seed):
    """Whatever each has learned in training."""
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


# ---- what users get


def test_students_noise_is_that_of_predictions(table, seed):
    """Not that of the training, which goes on from where it was."""
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
    # Far out the tail's power, which the spread of the draws does not move.
    assert upper == pytest.approx(stats.t.sf(50.0, df[0, 0]) * np.ones(ROWS), rel=0.5)


@pytest.mark.parametrize(
    "kind",
    [VariationalDropoutRegressor(), MCDropoutRegressor(dropout="auto")],
)
def test_intervals_hold_new_rows_that_are_noisy(kind, seed):
    """As the defaults are; 24 % were held where the noise was that of the training.

    Four standard errors of 2,000 rows are 0.03; the rest is that of 400 rows and of a
    network that is too wide.
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(2_400, 8))
    y = X @ random.normal(size=8) + 3 * random.normal(size=len(X))
    model = seeded(kind, seed).fit(X[:400], y[:400])
    low, high = model.predict_interval(X[400:], coverage=0.9).T
    inside = np.mean((low <= y[400:]) & (y[400:] <= high))
    assert 0.8 < inside < 0.97


@pytest.mark.parametrize("dropout", [0.0, 0.01])
def test_intervals_of_few_rows_hold_where_noise_has_outliers(dropout, seed):
    """As the defaults are; 20 to 40 % were held with the noise of the training.

    Four standard errors of 60 rows that are held out are 0.15; a network whose rows are
    few is too wide, too.
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(1_060, 6))
    y = X @ random.normal(size=6) + random.standard_t(3.0, size=len(X))
    model = MCDropoutRegressor(likelihood="student_t", dropout=dropout)
    model = seeded(model, seed).fit(X[:60], y[:60])
    low, high = model.predict_interval(X[60:], coverage=0.9).T
    assert 0.75 < np.mean((low <= y[60:]) & (y[60:] <= high)) < 0.99


# ---- where it is not asked for


def test_noise_that_is_not_for_held_out_rows_to_say(table):
    X, y = table
    for model in (
        VariationalDropoutRegressor(**EXACT, tau=4.0),
        MCDropoutRegressor(**EXACT, **T_4, tau=4.0),
        MCDropoutRegressor(**EXACT, **T_4, **FAN_IN, early_stopping=True),
        BBBRegressor(**EXACT, **T_4),
        VariationalDropoutRegressor(**EXACT, early_stopping=True),
        MCDropoutRegressor(**EXACT, dropout="auto", tau=4.0),
    ):
        assert not training_job(model, training_data(model, X, y)).needs_selection
        assert not {FACTOR, ADDED, TAU, DF} & model.fit(X, y).parameters_.keys()


def test_without_noise_on_the_weights_it_is_of_the_residuals(table, monkeypatch):
    X, y = table

    def trained(*args):
        raise AssertionError

    monkeypatch.setattr(_selection, "train", trained)
    point = VariationalDropoutRegressor(**EXACT, dropout=0.0, random_state=0)
    assert (
        training_job(point, training_data(point, X, y)).config.variance_source
        == "residuals"
    )
    point.set_params(max_iter="auto").fit(X, y)


def test_where_tau_is_chosen_nothing_else_is(table, monkeypatch):
    X, y = table

    def trained(*args):
        raise AssertionError

    monkeypatch.setattr(_selection, "train", trained)
    settings = EXACT | {"max_iter": "auto"}
    TauCV(VariationalDropoutRegressor(**settings), taus=[2.0, 4.0], cv=2).fit(X, y)


UNTOLD = (
    "no rows were held out to estimate the observation noise.*"
    "CalibratedUncertaintyRegressor"
)


@pytest.mark.filterwarnings("ignore:2 columns of X are constant")
def test_rows_that_are_the_same_have_the_noise_of_their_training():
    """None can be held out, of which is warned."""
    model = VariationalDropoutRegressor(**EXACT, random_state=0)
    with pytest.warns(UserWarning, match=f"too few of 2 rows differ.*{UNTOLD}"):
        model.fit([[0.0, 1.0], [0.0, 1.0]], [1.0, 2.0])
    assert FACTOR not in model.parameters_


def test_networks_that_diverge_have_no_say(table, monkeypatch):
    X, y = table
    train = _selection.train

    def one_fails(*args, **options):
        trained = train(*args, **options)
        trained.failed[1] = 3
        return trained

    monkeypatch.setattr(_selection, "train", one_fails)
    model = VariationalDropoutRegressor(**EXACT, random_state=0)
    with pytest.warns(UserWarning, match=f"or the networks diverged.*{UNTOLD}"):
        model.fit(X, y)
    assert FACTOR not in model.parameters_


@pytest.mark.filterwarnings("ignore:2 columns of X are constant")
def test_what_is_open_is_what_can_be_given():
    """The degrees of freedom, where tau is given; counted are rows with weight."""
    X, y = np.ones((6, 2)), np.arange(6.0)
    given = r"too few of 5 rows differ.* or give likelihood_options=\{'df': \.\.\.\}\.$"
    with pytest.warns(UserWarning, match=given):
        MCDropoutRegressor(**EXACT, likelihood="student_t", tau=4.0).fit(
            X, y, np.arange(6)
        )
    with pytest.warns(UserWarning, match="or give tau and likelihood_options="):
        MCDropoutRegressor(**EXACT, likelihood="student_t").fit(X, y)


def test_of_many_rows_some_are_looked_at(table, monkeypatch, seed):
    """All of a part are left out of the training; what is said is said of some."""
    X, y = table
    monkeypatch.setattr(_selection, "_MAX_HELD_OUT", 5)
    model = seeded(MCDropoutRegressor(**EXACT, likelihood="student_t"), seed)
    job = training_job(model, training_data(model, X, y))
    shares = [
        one for [part] in [_selection._fold_jobs(job)] for one in part.row_subsets
    ]
    assert [len(share.validation) for share in shares] == [5] * 5
    assert sum(len(share.rows) for share in shares) == 4 * ROWS
    assert {TAU, DF} <= model.fit(X, y).parameters_.keys()


def test_large_tables_hold_nothing_out(table, monkeypatch):
    """Of as many numbers as the limit, of which is warned; not of one less."""
    X, y = table
    model = VariationalDropoutRegressor(**EXACT, random_state=0)
    for module in (_job, _selection):
        monkeypatch.setattr(module, "MAX_ENTRIES", ROWS * INPUTS)
    with pytest.warns(UserWarning, match=f"X has {ROWS * INPUTS} entries.*{UNTOLD}"):
        model.fit(X, y)
    assert FACTOR not in model.parameters_
    assert FACTOR in model.fit(X[1:], y[1:]).parameters_


# ---- with the length scale


def test_with_a_scale_that_is_chosen_it_is_that_of_held_out_rows(table, seed):
    """And of the residuals where none is, or nothing can be held out."""
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
def test_where_nothing_is_held_out_the_residuals_tell_it(recwarn):
    model = MCDropoutRegressor(**EXACT, random_state=0)
    model.fit([[0.0, 1.0], [0.0, 1.0]], [1.0, 2.0])
    given = MCDropoutRegressor(
        **EXACT, length_scale=model.length_scale_, random_state=0
    ).fit([[0.0, 1.0], [0.0, 1.0]], [1.0, 2.0])
    assert model.tau_ == given.tau_
    assert not [one for one in recwarn if "held out" in str(one.message)]


# ---- training that goes on


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_a_fit_that_goes_on_keeps_the_noise(likelihood, table, seed):
    """Its ratio to that of the training rises as the latter falls, and its level stays.

    Where it depends on the row, that about which it varies.
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
def test_a_fit_that_goes_on_keeps_what_is_no_factor(likelihood, names, table, seed):
    X, y = table
    settings = EXACT | {"warm_start": True, "likelihood": likelihood}
    model = MCDropoutRegressor(**settings, random_state=seed)
    before = model.fit(X, y).parameters_.copy()
    after = model.fit(X, y).parameters_
    for name in names:
        np.testing.assert_array_equal(after[name], before[name])
    assert (after["likelihood/log_tau"] != before["likelihood/log_tau"]).all()


def test_a_fit_that_goes_on_without_one_has_that_of_its_training(table, seed):
    X, y = table
    model = VariationalDropoutRegressor(**EXACT, warm_start=True, random_state=seed)
    model.partial_fit(X, y).fit(X, y)
    assert FACTOR not in model.parameters_


def test_a_stream_has_the_noise_of_its_training(table):
    X, y = table
    model = VariationalDropoutRegressor(**EXACT, random_state=0)
    assert FACTOR not in model.partial_fit(X, y).partial_fit(X, y).parameters_
    assert FACTOR in model.fit(X, y).parameters_
    assert FACTOR not in model.partial_fit(X, y).parameters_
