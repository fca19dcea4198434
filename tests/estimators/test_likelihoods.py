"""Estimators with likelihoods of counts and heavy-tailed noise."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV

import skbayesnn
from skbayesnn import (
    BBBRegressor,
    CalibratedUncertaintyRegressor,
    ConformalRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
    predict_uncertainty,
)
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.scoring import log_density_scorer, neg_crps_scorer

TRAIN, TEST = 300, 400


def _add_student_noise(f, random):
    """Noise with 3 degrees of freedom and variance 0.27."""
    return f + 0.3 * random.standard_t(3, size=f.shape)


def _draw_counts(f, random):
    return random.poisson(np.exp(1 + f)).astype(float)


def _draw_overdispersed_counts(f, random):
    """With dispersion 0.05."""
    return random.poisson(np.exp(1 + f) * random.gamma(20, 0.05, f.shape)).astype(float)


# Likelihood, its options, and a function that draws y given f (rows, targets).
CASES = {
    "student_t": ("student_t", None, _add_student_noise),
    "student_t, df given": ("student_t", {"df": 3}, _add_student_noise),
    "poisson": ("poisson", None, _draw_counts),
    "negative binomial": ("negative_binomial", None, _draw_overdispersed_counts),
}


@pytest.fixture(params=CASES)
def case(request, seed):
    """Training rows from the model, new rows, and parameters of a small network."""
    likelihood, options, draw = CASES[request.param]
    random = np.random.default_rng([seed, 5])
    X = random.uniform(-2, 2, size=(TRAIN + TEST, 2))
    f = np.stack([np.sin(2 * X[:, 0]), 0.5 * X[:, 1]], axis=1)
    Y = draw(f, random)
    return SimpleNamespace(
        name=request.param,
        X=X[:TRAIN],
        y=Y[:TRAIN, 0],
        Y=Y[:TRAIN],
        X_new=X[TRAIN:],
        y_new=Y[TRAIN:, 0],
        Y_new=Y[TRAIN:],
        parameters={
            "hidden_layer_sizes": (20,),
            "likelihood": likelihood,
            "likelihood_options": options,
            "max_iter": 200,
            "n_draws": 30,
            "device": "cpu",
            "dtype": "float64",
            "random_state": seed,
        },
        counts=likelihood in ("poisson", "negative_binomial"),
    )


@pytest.fixture(scope="module")
def models():
    """Fitted models of this module by case, for the fixture ``model``."""
    return {}


@pytest.fixture
def model(case, models):
    """A fitted model that tests do not change."""
    if case.name not in models:
        models[case.name] = MCDropoutRegressor(**case.parameters).fit(case.X, case.y)
    return models[case.name]


def _short(case, **parameters):
    """A network that is trained for a few epochs."""
    short = {"max_iter": 3, "n_draws": 5}
    return MCDropoutRegressor(**case.parameters | short | parameters)


def test_predictive_distribution(case, model):
    mean, std = model.predict(case.X_new, return_std=True)
    assert model.score(case.X_new, case.y_new) > 0.3
    parts = model.predict_uncertainty(case.X_new, "all")
    np.testing.assert_array_equal(parts["total"], std)
    np.testing.assert_allclose(
        std, np.hypot(parts["epistemic"], parts["aleatoric"]), rtol=1e-12
    )
    f = model.sample_f(case.X_new[:4], 2000)
    y = model.sample_y(case.X_new[:4], 2000)
    for samples in (f, y):
        # Six standard errors of 2,000 samples, and three of the 30 fresh weight draws.
        error = (6 / np.sqrt(2000) + 3 / np.sqrt(30)) * std[:4]
        assert (np.abs(samples.mean(1) - mean[:4]) < error).all()
    if case.counts:
        assert (f > 0).all()
        np.testing.assert_array_equal(y, np.round(y))
    share = model.predictive_cdf(case.X_new, case.y_new)
    assert ((share >= 0) & (share <= 1)).all()


def test_intervals_cover(case, model):
    """At the nominal level; counts at least, since their cdf has steps."""
    for kind in ("equal_tailed", "highest_density"):
        rows = slice(None) if kind == "equal_tailed" else slice(0, 50)
        lower, upper = model.predict_interval(case.X_new[rows], 0.9, kind).T
        y = case.y_new[rows]
        assert 0.8 < ((lower <= y) & (y <= upper)).mean() <= 1.0
        if case.counts:
            np.testing.assert_array_equal(lower, np.round(lower))
    lower, upper = model.predict_interval(case.X_new).T
    covered = ((lower <= case.y_new) & (case.y_new <= upper)).mean()
    assert 0.85 < covered < 0.99


def test_density_is_better_than_with_gaussian_noise(case, model):
    plain = case.parameters | {"likelihood": "gaussian", "likelihood_options": None}
    gaussian = MCDropoutRegressor(**plain).fit(case.X, case.y)
    density, gaussian_density = (
        log_density_scorer(fitted, case.X_new, case.y_new)
        for fitted in (model, gaussian)
    )
    assert density > gaussian_density


def test_student_t_fit_is_robust_to_outliers(seed):
    """A tenth of the training rows are outliers."""
    random = np.random.default_rng([seed, 6])
    X = random.uniform(-2, 2, size=(TRAIN + TEST, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=len(X))
    y[:TRAIN:10] += random.choice([-10, 10], size=TRAIN // 10)
    errors, densities = [], []
    for likelihood in ("student_t", "gaussian"):
        network = MCDropoutRegressor(
            (20,), likelihood=likelihood, max_iter=200, n_draws=30, random_state=seed
        ).fit(X[:TRAIN], y[:TRAIN])
        mean = network.predict(X[TRAIN:])
        errors.append(np.square(mean - y[TRAIN:]).mean())
        densities.append(log_density_scorer(network, X[TRAIN:], y[TRAIN:]))
    assert errors[0] < 0.5 * errors[1]
    assert densities[0] > densities[1] + 0.5


@pytest.mark.parametrize(
    ("kind", "size"), [(MCDropoutRegressor, 1e6), (BBBRegressor, 1e3)]
)
def test_size_of_outliers_does_not_matter(kind, size, seed):
    """Neither for the fit nor for the scale of y."""
    random = np.random.default_rng([seed, 11])
    X = random.uniform(-2, 2, size=(TRAIN + TEST, 2))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    y = (f + 0.1 * random.normal(size=len(X)))[:TRAIN]
    outliers = random.choice(TRAIN, 6, replace=False)
    network = kind(
        (20,), likelihood="student_t", length_scale=1.0, max_iter=200, random_state=seed
    )

    def rmse(*rows):
        return np.sqrt(
            np.square(network.fit(*rows).predict(X[TRAIN:]) - f[TRAIN:]).mean()
        )

    clean = rmse(np.delete(X[:TRAIN], outliers, 0), np.delete(y, outliers))
    y[outliers] = size * random.choice([-1, 1], size=6)
    # Another scale of y is another fit of the same function, with an error of about
    # 0.1; a constant prediction has an error above 1.
    assert rmse(X[:TRAIN], y) < clean + 0.15


def test_noise_std_exists_unless_y_are_counts(case, model):
    if case.counts:
        assert not hasattr(model, "noise_std_")
        with pytest.raises(AttributeError, match=f"got {model.likelihood!r}"):
            _ = model.noise_std_
        assert model.tau_ == 1
    else:
        assert model.noise_std_ == pytest.approx(model.tau_**-0.5)
        aleatoric = model.predict_uncertainty(case.X_new[:3], "aleatoric")
        np.testing.assert_allclose(aleatoric, model.noise_std_)


def test_batched_search_equals_grid_search(case):
    tau = [0.3, 1.0, 3.0] if case.counts else [1.0, 3.0, "auto"]
    search = {"param_grid": {"tau": tau}, "cv": 2, "scoring": log_density_scorer}
    batched = BatchedGridSearchCV(_short(case), **search).fit(case.X, case.y)
    plain = GridSearchCV(_short(case), **search).fit(case.X, case.y)
    np.testing.assert_allclose(
        batched.cv_results_["mean_test_score"],
        plain.cv_results_["mean_test_score"],
        rtol=1e-6,
    )
    assert batched.best_params_ == plain.best_params_
    np.testing.assert_allclose(
        batched.predict(case.X_new), plain.predict(case.X_new), rtol=1e-6, atol=1e-9
    )


def test_partial_fit(case):
    """The offset of counts is estimated on the first call."""
    stream = _short(case)
    for start in range(0, TRAIN, 100):
        rows = slice(start, start + 100)
        stream.partial_fit(case.X[rows], case.y[rows])
    assert stream.total_weight_ == TRAIN
    first = _short(case).partial_fit(case.X[:100], case.y[:100])
    if case.counts:
        np.testing.assert_array_equal(
            stream.parameters_["likelihood/offset"],
            first.parameters_["likelihood/offset"],
        )
    assert np.isfinite(stream.predict(case.X_new)).all()


def test_weight_two_equals_a_repeated_row(case):
    exact = _short(case, dropout=0.0, batch_size=10_000)
    weighted = clone(exact).fit(case.X, case.y, sample_weight=np.full(TRAIN, 2.0))
    repeated = clone(exact).fit(np.tile(case.X, (2, 1)), np.tile(case.y, 2))
    for result, expected in zip(
        weighted.predict(case.X_new, True),
        repeated.predict(case.X_new, True),
        strict=True,
    ):
        np.testing.assert_allclose(result, expected, rtol=1e-7)


def test_several_targets(case):
    network = _short(case, n_estimators=2).fit(case.X, case.Y)
    assert network.predict(case.X_new).shape == case.Y_new.shape
    assert network.predict_interval(case.X_new[:3]).shape == (3, 2, 2)
    density = network.log_predictive_density(case.X_new, case.Y_new)
    assert np.isfinite(density).all()
    from_function = skbayesnn.log_predictive_density(network, case.X_new, case.Y_new)
    np.testing.assert_allclose(from_function, density)


def test_float32(case):
    network = _short(case, dtype="float32").fit(case.X.astype(np.float32), case.y)
    X_new = case.X_new.astype(np.float32)
    mean, std = network.predict(X_new, return_std=True)
    assert mean.dtype == std.dtype == np.float32
    assert network.sample_y(X_new, 2).dtype == np.float32
    double = network.predict(case.X_new)
    np.testing.assert_allclose(mean, double, rtol=1e-3, atol=1e-4)
    assert np.isfinite(network.log_predictive_density(X_new, case.y_new)).all()


@pytest.mark.parametrize("kind", [BBBRegressor, VariationalDropoutRegressor])
def test_all_posteriors(case, kind):
    network = kind(**case.parameters | {"max_iter": 20}).fit(case.X, case.y)
    assert np.isfinite(network.predict(case.X_new, return_std=True)).all()
    assert np.isfinite(network.log_predictive_density(case.X_new, case.y_new)).all()


@pytest.mark.parametrize("method", ["scale", "isotonic"])
def test_recalibration(case, method):
    """Counts are refused, with the advice to use conformal intervals."""
    model = CalibratedUncertaintyRegressor(_short(case), method=method, cv=2)
    if case.counts:
        with pytest.raises(TypeError, match=r"of counts .*ConformalRegressor"):
            model.fit(case.X, case.y)
        return
    model.fit(case.X, case.y)
    lower, upper = model.predict_interval(case.X_new[:50]).T
    assert (lower < upper).all()
    assert np.isfinite(neg_crps_scorer(model, case.X_new[:50], case.y_new[:50]))


def test_conformal_intervals(case):
    model = ConformalRegressor(_short(case), method="cv+", cv=2).fit(case.X, case.y)
    lower, upper = model.predict_interval(case.X_new).T
    assert 0.8 < ((lower <= case.y_new) & (case.y_new <= upper)).mean()


def test_unknown_options_are_refused(case):
    with pytest.raises(ValueError, match=r"`likelihood_options` of .* 'dof'"):
        _short(case, likelihood_options={"dof": 3}).fit(case.X, case.y)


@pytest.mark.parametrize("wrong", [-1.0, 0.5])
def test_targets_that_are_no_counts_are_refused(wrong):
    X, y = np.arange(8.0)[:, None], np.arange(8.0)
    bad = np.where(y == 3, wrong, y)
    model = MCDropoutRegressor(likelihood="poisson", max_iter=2, early_stopping=True)
    for arguments in ({"X": X, "y": bad}, {"X": X, "y": y, "X_val": X, "y_val": bad}):
        with pytest.raises(ValueError, match=f"integers .*got {wrong:g} in row 3"):
            model.fit(**arguments)
    with pytest.raises(ValueError, match="integers"):
        clone(model).set_params(early_stopping=False).partial_fit(X, bad)
    model.fit(X, y)
    # After the fit its density is zero, and no error is raised.
    density = model.log_predictive_density(X, bad)
    assert density[3] == -np.inf
    assert np.isfinite(np.delete(density, 3)).all()


@pytest.mark.parametrize("order", [["gaussian", "poisson"], ["poisson", "gaussian"]])
def test_search_checks_y_for_each_likelihood(seed, order):
    """A y that is no count fails under Poisson only, in every order of candidates."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(24, 2)), random.normal(size=24)
    search = BatchedGridSearchCV(
        MCDropoutRegressor((3,), max_iter=2, random_state=seed),
        {"likelihood": order},
        cv=2,
        refit=False,
    )
    with pytest.warns(FitFailedWarning):
        search.fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    np.testing.assert_array_equal(np.isnan(scores), np.array(order) == "poisson")


def test_offset_of_counts_is_their_weighted_mean_in_any_unit_of_weights(seed):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(40, 2)), random.poisson(3.0, size=40)
    weights = random.uniform(0.5, 2, size=40)
    model = MCDropoutRegressor(
        (3,), max_iter=1, likelihood="poisson", dtype="float64", random_state=seed
    )
    offsets = [
        clone(model)
        .fit(X, y, sample_weight=unit * weights)
        .parameters_["likelihood/offset"]
        for unit in (1.0, 1e-6, 1e6)
    ]
    expected = np.log(np.average(y, weights=weights))
    np.testing.assert_allclose(offsets, np.full((3, 1, 1), expected), rtol=1e-9)


def test_identity_target_transform_keeps_the_moments(case):
    """Counts must not have a target transform."""
    if case.counts:
        model = TransformedTargetRegressor(_short(case)).fit(case.X, case.y)
        with pytest.raises(TypeError, match="counts must not have a target transform"):
            predict_uncertainty(model, case.X)
        return
    direct = _short(case).fit(case.X, case.y)
    transformed = TransformedTargetRegressor(_short(case)).fit(case.X, case.y)
    for kind, std in direct.predict_uncertainty(case.X, "all").items():
        actual = predict_uncertainty(transformed, case.X, kind)
        # If all draws agree, only the rounding of values of order one is left.
        np.testing.assert_allclose(actual, std, rtol=1e-9, atol=1e-12)


def test_intervals_of_the_largest_coverage_are_finite(case):
    """Levels that sum to one by rounding count as the largest below one."""
    model = _short(case).fit(case.X, case.y)
    for kind in ("equal_tailed", "highest_density"):
        lower, upper = model.predict_interval(case.X[:2], 1 - 2.0**-53, kind=kind).T
        assert np.isfinite(lower).all() and (upper >= lower).all()
        assert np.isfinite(upper).all()


@pytest.mark.parametrize("likelihood", ["heteroscedastic", "mixture"])
@pytest.mark.parametrize("tau", [0.04, "auto"])
def test_noise_std_equals_the_mean_predicted_noise(seed, likelihood, tau):
    """Also if the given tau is far from it: s(x) makes up for the difference."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, size=(400, 2))
    y = X[:, 0] + np.exp(X[:, 1]) * random.normal(size=400)
    model = MCDropoutRegressor(
        (10,),
        likelihood=likelihood,
        tau=tau,
        max_iter=50,
        device="cpu",
        random_state=seed,
    ).fit(X, y)
    used = np.sqrt(np.mean(model.predict_uncertainty(X, "aleatoric") ** 2))
    # With 20 of the 200 draws: over 40 seeds the std of the ratio is at most 0.014.
    assert model.noise_std_ == pytest.approx(used, rel=5 * 0.014)


def test_noise_std_after_a_change_of_the_likelihood(seed):
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(40, 2)), random.normal(size=40)
    model = MCDropoutRegressor(
        (5,), likelihood="heteroscedastic", max_iter=5, device="cpu"
    ).fit(X, y)
    model.set_params(likelihood="gaussian").fit(X, y)
    assert model.noise_std_ == model.tau_**-0.5
