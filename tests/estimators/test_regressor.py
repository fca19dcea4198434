"""The regressor: shapes and units of its parameters, methods and attributes."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning

from skbayesnn import (
    BBBRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)
from tests.helpers.pairwise import pairwise

LAYERS = 3  # two hidden layers and the output layer
NETWORKS = 2


@pytest.fixture(scope="module")
def single_target(data, small):
    """One target, stochastic weights."""
    return MCDropoutRegressor(**small).fit(data.X, data.y)


@pytest.fixture(scope="module")
def several(data, small):
    """Three targets, two networks."""
    model = MCDropoutRegressor(n_estimators=NETWORKS, **small)
    return model.fit(data.X, data.Y)


# ---- predictions: shapes


@pytest.mark.parametrize(
    ("name", "trailing"), [("single_target", ()), ("several", (3,))]
)
def test_shapes_of_predictions(name, trailing, request, data):
    model = request.getfixturevalue(name)
    X = data.X_new
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (11, *trailing)
    np.testing.assert_array_equal(model.predict(X), mean)
    assert model.predict_uncertainty(X).shape == (11, *trailing)
    assert model.predict_quantile(X, 0.3).shape == (11, *trailing)
    assert model.predict_quantile(X, [0.3]).shape == (11, *trailing, 1)
    assert model.predict_quantile(X, (0.1, 0.2, 0.4, 0.8, 0.9)).shape == (
        *(11, *trailing),
        5,
    )
    assert model.predict_interval(X).shape == (11, *trailing, 2)
    assert model.sample_f(X).shape == (11, *trailing, 1)
    assert model.sample_f(X, 7).shape == (11, *trailing, 7)
    assert model.sample_y(X, 7).shape == (11, *trailing, 7)
    y = data.Y_new if trailing else data.y_new
    assert model.log_predictive_density(X, y).shape == (11,)
    assert np.isscalar(model.score(X, y))


def test_one_column_y_warns_and_is_raveled(data, small, single_target):
    column = MCDropoutRegressor(**small)
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        column.fit(data.X, data.y[:, None])
    mean, std = column.predict(data.X_new, return_std=True)
    assert mean.shape == std.shape == (11,)
    np.testing.assert_array_equal(mean, single_target.predict(data.X_new))


# ---- uncertainty


@pytest.mark.parametrize("name", ["single_target", "several"])
def test_total_is_epistemic_and_aleatoric(name, request, data):
    model = request.getfixturevalue(name)
    parts = model.predict_uncertainty(data.X_new, kind="all")
    assert list(parts) == ["total", "epistemic", "aleatoric"]
    # Exact but for the rounding of two squares, a sum and a root.
    np.testing.assert_allclose(
        parts["total"] ** 2,
        parts["epistemic"] ** 2 + parts["aleatoric"] ** 2,
        rtol=1e-13,
    )
    _, std = model.predict(data.X_new, return_std=True)
    np.testing.assert_array_equal(std, parts["total"])


def test_kinds_of_uncertainty(single_target, data):
    all_kinds = single_target.predict_uncertainty(data.X_new, kind="all")
    for kind, value in all_kinds.items():
        np.testing.assert_array_equal(
            single_target.predict_uncertainty(data.X_new, kind=kind), value
        )
    np.testing.assert_array_equal(
        single_target.predict_uncertainty(data.X_new), all_kinds["total"]
    )
    subset = single_target.predict_uncertainty(
        data.X_new, kind=["aleatoric", "epistemic"]
    )
    assert list(subset) == ["aleatoric", "epistemic"]
    np.testing.assert_array_equal(subset["epistemic"], all_kinds["epistemic"])
    assert (all_kinds["epistemic"] > 0).all()


@pytest.mark.parametrize("kind", ["entropy", ["total", "entropy"]])
def test_unknown_kind(single_target, data, kind):
    with pytest.raises(ValueError, match=r"`kind` must be 'all' or among 'total'.*"):
        single_target.predict_uncertainty(data.X_new, kind=kind)


# ---- quantiles and samples


def test_interval_is_a_pair_of_quantiles(single_target, data):
    interval = single_target.predict_interval(data.X_new, coverage=0.8)
    # (1 - 0.8) / 2 is 0.1 up to rounding, and roots are found to 1e-12 of the std.
    quantiles = single_target.predict_quantile(data.X_new, [0.1, 0.9])
    np.testing.assert_allclose(interval, quantiles, rtol=1e-9, atol=1e-9)
    lower, upper = interval.T
    assert (lower < upper).all()
    default = single_target.predict_interval(data.X_new)
    assert (default[:, 0] < lower).all() and (upper < default[:, 1]).all()


def test_quantiles_agree_with_samples(data, small):
    model = MCDropoutRegressor(**small | {"n_draws": 2000, "dropout": 0.3})
    model.fit(data.X, data.Y)
    samples = model.sample_y(data.X_new, 4000, random_state=3)
    for q in (0.1, 0.5, 0.9):
        quantile = model.predict_quantile(data.X_new, q)
        below = (samples < quantile[..., None]).mean(-1)
        # Binomial standard error of 4000 samples, and of the 2000 fixed draws.
        error = np.sqrt(q * (1 - q) * (1 / 4000 + 1 / 2000))
        assert (np.abs(below - q) < 5 * error).all()


def test_samples_of_one_row(several, data):
    """A row has the same value twice in each function, but not the same noise."""
    X = data.X_new[[4, 4]]
    functions, noisy = several.sample_f(X, 7), several.sample_y(X, 7)
    np.testing.assert_allclose(functions[0], functions[1], rtol=1e-12)
    assert (noisy[0] != noisy[1]).all()


@pytest.mark.parametrize("method", ["sample_f", "sample_y"])
def test_random_state_of_samples(single_target, data, method):
    sample = getattr(single_target, method)
    state = np.random.RandomState(3)
    first, second = (sample(data.X_new, 5, random_state=state) for _ in range(2))
    assert (first != second).any()
    repeated = sample(data.X_new, 5, random_state=np.random.RandomState(3))
    np.testing.assert_array_equal(first, repeated)
    assert sample(data.X_new, 5, random_state=None).shape == (11, 5)


@pytest.mark.parametrize(("coverage", "error"), [(0, ValueError), (1.0, ValueError)])
def test_coverage_out_of_range(single_target, data, coverage, error):
    with pytest.raises(error, match=r"`coverage` must be in \(0, 1\); got"):
        single_target.predict_interval(data.X_new, coverage)


@pytest.mark.parametrize("q", [0, 1.0, -0.5, [0.1, 1.5]])
def test_quantile_level_out_of_range(single_target, data, q):
    with pytest.raises(ValueError, match=r"`q` must be in \(0, 1\); got"):
        single_target.predict_quantile(data.X_new, q)


# ---- log density


# ---- other types of X and y


def test_integers_are_computed_in_float64(data, small):
    X = np.round(data.X * 10).astype(int)
    model = MCDropoutRegressor(**small).fit(X, np.round(data.y * 10).astype(int))
    assert model.predict(X).dtype == np.float64


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array])
def test_sparse_equals_dense(data, small, kind):
    """Of other kinds than in `test_posteriors.py`, and in one batch."""
    X = np.where(np.abs(data.X) < 0.7, 0, data.X)
    X_new = np.where(np.abs(data.X_new) < 0.7, 0, data.X_new)
    model = MCDropoutRegressor(**small | {"standardize": False})
    dense = clone(model).fit(X, data.y)
    model.fit(kind(X), data.y)
    np.testing.assert_allclose(
        model.predict(kind(X_new)), dense.predict(X_new), rtol=1e-12
    )
    np.testing.assert_allclose(
        model.sample_f(kind(X_new), 3), dense.sample_f(X_new, 3), rtol=1e-12
    )


def test_sparse_columns_are_scaled_as_dense_ones(data, small):
    X = np.where(np.abs(data.X) < 0.7, 0, data.X)
    dense = MCDropoutRegressor(**small).fit(X, data.y)
    model = MCDropoutRegressor(**small).fit(sparse.csr_array(X), data.y)
    np.testing.assert_allclose(model.x_scale_, dense.x_scale_, rtol=1e-12)
    # Rounding differences of the scaling grow in 20 steps.
    np.testing.assert_allclose(
        model.predict(sparse.csr_array(X)), dense.predict(X), rtol=1e-6, atol=1e-6
    )


# ---- parameters


def test_without_standardization(data, small):
    model = MCDropoutRegressor(standardize=False, **small).fit(data.X, data.Y)
    np.testing.assert_array_equal(model.x_mean_, np.zeros(4))
    np.testing.assert_array_equal(model.x_scale_, np.ones(4))
    np.testing.assert_array_equal(model.y_mean_, np.zeros(3))
    np.testing.assert_array_equal(model.y_scale_, np.ones(3))
    assert np.isfinite(model.predict(data.X_new)).all()


def test_standardization_uses_mean_and_std_of_the_rows(single_target, data):
    np.testing.assert_allclose(single_target.x_mean_, data.X.mean(0), atol=1e-14)
    np.testing.assert_allclose(single_target.x_scale_, data.X.std(0), rtol=1e-12)
    np.testing.assert_allclose(single_target.y_mean_, [data.y.mean()], rtol=1e-12)
    np.testing.assert_allclose(single_target.y_scale_, [data.y.std()], rtol=1e-12)


@pytest.mark.parametrize("hidden", [(), 7, [7], (7, 5, 2), np.array([7, 5])])
def test_hidden_layer_sizes(data, small, hidden):
    model = MCDropoutRegressor(**small | {"hidden_layer_sizes": hidden})
    model.fit(data.X, data.Y)
    sizes = [4, *np.ravel(hidden).astype(int).tolist(), 3]
    assert model.network_["sizes"] == sizes
    assert model.predict(data.X_new).shape == (11, 3)


def test_no_hidden_layer_is_a_linear_model(data, small):
    model = MCDropoutRegressor(**small | {"hidden_layer_sizes": ()})
    model.fit(data.X, data.y)
    f = model.sample_f(np.array([[0.0] * 4, [1.0] * 4, [2.0] * 4]), 7)
    np.testing.assert_allclose(f[1] - f[0], f[2] - f[1], rtol=1e-9)


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_given_tau_is_in_units_of_y(data, small, likelihood):
    model = MCDropoutRegressor(tau=4.0, likelihood=likelihood, **small)
    model.fit(data.X, data.y)
    assert model.tau_ == 4.0
    if likelihood == "gaussian":
        assert model.noise_std_ == 1 / np.sqrt(4.0)
        aleatoric = model.predict_uncertainty(data.X_new, kind="aleatoric")
        np.testing.assert_allclose(aleatoric, 0.5, rtol=1e-12)


@pytest.mark.parametrize(
    ("tau", "std"), [([4.0, 25.0, 0.01], [0.5, 0.2, 10.0]), (4.0, [0.5] * 3)]
)
def test_tau_per_target(data, small, tau, std):
    """One tau for all targets is in the units of each target."""
    model = MCDropoutRegressor(tau=tau, **small).fit(data.X, data.Y)
    np.testing.assert_array_equal(model.tau_, tau)
    np.testing.assert_allclose(model.noise_std_, std, rtol=1e-14)
    aleatoric = model.predict_uncertainty(data.X_new, kind="aleatoric")
    np.testing.assert_allclose(aleatoric, np.tile(std, (11, 1)))


def test_learned_noise_equals_the_predicted_noise(several, single_target, data):
    """noise_std_ is the root of the networks' mean variance, as in eq. 6."""
    for model in (several, single_target):
        aleatoric = model.predict_uncertainty(data.X_new, kind="aleatoric")
        np.testing.assert_allclose(
            aleatoric, np.broadcast_to(model.noise_std_, aleatoric.shape), rtol=1e-10
        )


def test_dropout_of_every_layer(data, small):
    # With relu all units of a row can be zero, and masks then have no effect.
    options = {"dropout": [0.0, 0.2, 0.5], "activation": "tanh"}
    model = MCDropoutRegressor(**small | options)
    model.fit(data.X, data.y)
    np.testing.assert_array_equal(model.dropout_, [0.0, 0.2, 0.5])
    np.testing.assert_allclose(model.parameters_["keep"][:, 0], [1.0, 0.8, 0.5])
    assert (model.predict_uncertainty(data.X_new, "epistemic") > 0).all()
    same = MCDropoutRegressor(**small | {"dropout": [0.1] * LAYERS})
    same.fit(data.X, data.y)
    assert same.dropout_ == 0.1
    reference = MCDropoutRegressor(**small).fit(data.X, data.y)
    np.testing.assert_array_equal(
        same.predict(data.X_new), reference.predict(data.X_new)
    )


# ---- weight_decay_ = p l^2 / (2 N tau), eq. 4


def test_weight_decay(data, small):
    model = MCDropoutRegressor(tau=5.0, **small | {"length_scale": 0.7})
    weights = np.linspace(0.5, 2.0, 41)
    for sample_weight, n in [(None, 41), (weights, weights.sum())]:
        model.fit(data.X, data.y, sample_weight)
        assert isinstance(model.weight_decay_, float)
        assert model.weight_decay_ == pytest.approx(
            0.9 * 0.7**2 / (2 * n * 5.0), rel=1e-14
        )
        assert model.total_weight_ == pytest.approx(n, rel=1e-14)


def test_weight_decay_per_layer_and_per_target(data, small):
    dropout, scale = np.array([0.0, 0.2, 0.5]), np.array([0.1, 0.4, 2.0])
    tau = np.array([4.0, 25.0, 0.01])
    per_layer = (1 - dropout) * scale**2 / (2 * 41 * 5.0)
    model = MCDropoutRegressor(
        **small | {"dropout": dropout, "length_scale": scale, "tau": 5.0}
    )
    np.testing.assert_allclose(model.fit(data.X, data.y).weight_decay_, per_layer)
    per_target = 0.9 * 0.1**2 / (2 * 41 * tau)
    model = MCDropoutRegressor(**small | {"tau": tau}).fit(data.X, data.Y)
    np.testing.assert_allclose(model.weight_decay_, per_target)
    model = MCDropoutRegressor(
        **small | {"dropout": dropout, "length_scale": scale, "tau": tau}
    )
    model.fit(data.X, data.Y)
    assert model.weight_decay_.shape == (3, 3)
    np.testing.assert_allclose(
        model.weight_decay_, np.multiply.outer(per_layer * 5.0, 1 / tau)
    )


@pytest.mark.parametrize(("weight", "largest"), [(1.0, np.sqrt(41) / 2), (0.25, 1.6)])
def test_length_scale_auto_is_less_with_fewer_rows(data, small, weight, largest):
    """Rows count by weight; see `length_scale` for the rule."""
    weights = np.full(41, weight)
    params = {"length_scale": "auto", "hidden_layer_sizes": (30, 6)}
    model = MCDropoutRegressor(tau=5.0, **small | params)
    model.fit(data.X, data.y, sample_weight=weights)
    expected = np.minimum(np.sqrt([4, 30, 6]), [min(4, np.sqrt(41 * weight) / 2)] * 3)
    np.testing.assert_allclose(model.length_scale_, expected)
    assert np.max(model.length_scale_) == pytest.approx(largest, rel=0.01)
    same = clone(model).set_params(length_scale=model.length_scale_)
    same.fit(data.X, data.y, sample_weight=weights)
    np.testing.assert_array_equal(same.predict(data.X_new), model.predict(data.X_new))


def test_length_scale_fan_in_is_its_root(data, small):
    model = MCDropoutRegressor(tau=5.0, **small | {"length_scale": "fan_in"})
    model.fit(data.X, data.y)
    np.testing.assert_allclose(
        model.weight_decay_, 0.9 * np.array([4, 8, 6]) / (2 * 41 * 5.0)
    )
    np.testing.assert_allclose(model.length_scale_, np.sqrt([4, 8, 6]))
    same = clone(model).set_params(length_scale=np.sqrt([4, 8, 6]))
    np.testing.assert_array_equal(
        same.fit(data.X, data.y).predict(data.X_new), model.predict(data.X_new)
    )


def test_large_length_scale_flattens_the_mean(data, small):
    spreads = []
    for length_scale in (0.0, 30.0):
        model = MCDropoutRegressor(tau=1.0, **small)
        # The optimum of the prior has no slope, and is reached: over sixty seeds the
        # remaining spread is at most 0.005 of the spread without a prior.
        model.set_params(length_scale=length_scale, max_iter=300).fit(data.X, data.y)
        spreads.append(model.predict(data.X).std())
    assert spreads[1] < 0.05 * spreads[0]


# ---- fitted attributes


def test_loss_is_the_negative_log_density_in_units_of_y(data, small):
    """Deterministic initial weights, and a step that is next to zero."""
    model = MCDropoutRegressor(
        **small | {"dropout": 0.0, "learning_rate_init": 1e-12, "max_iter": 1},
        tau=[0.5, 1.0, 2.0],
    )
    model.fit(data.X, data.Y)
    nll = model.history_["negative_log_likelihood"]
    density = model.log_predictive_density(data.X, data.Y)
    np.testing.assert_allclose(nll, [[-density.mean()]], rtol=1e-9)


def test_fitted_attributes(several, single_target):
    for model in (several, single_target):
        assert model.n_features_in_ == 4
        assert not hasattr(model, "feature_names_in_")
        assert model.dropout_ == 0.1
        fitted = {name for name in vars(model) if name.endswith("_")}
        assert {"tau_", "dropout_", "weight_decay_", "history_", "elbo_"} <= fitted
    assert isinstance(single_target.tau_, float) and isinstance(
        single_target.noise_std_, float
    )
    assert isinstance(single_target.n_iter_, int) and isinstance(
        single_target.elbo_, float
    )
    assert not hasattr(MCDropoutRegressor(), "noise_std_")


def test_max_iter_auto_follows_the_number_of_rows(data, small):
    """100 sqrt(N) steps, with one batch per epoch here."""
    model = MCDropoutRegressor(**small | {"max_iter": "auto"})
    model.fit(data.X[:5], data.y[:5])
    assert model.n_iter_ == int(np.ceil(100 * np.sqrt(5)))


# ---- several networks


def test_networks_are_a_mixture(data, small):
    """Mean and variance of the mixture of networks that are fitted alone."""
    together = MCDropoutRegressor(n_estimators=NETWORKS, **small)
    together.fit(data.X, data.y)
    state = np.random.RandomState(small["random_state"])
    singles = [
        MCDropoutRegressor(**small | {"random_state": state}).fit(data.X, data.y)
        for _ in range(NETWORKS)
    ]
    np.testing.assert_array_equal(
        together.seeds_, np.concatenate([model.seeds_ for model in singles])
    )
    means, stds = zip(
        *[model.predict(data.X_new, return_std=True) for model in singles], strict=True
    )
    mean, std = together.predict(data.X_new, return_std=True)
    # Rounding of batched products, which grows in 20 steps.
    np.testing.assert_allclose(mean, np.mean(means, 0), rtol=1e-7)
    np.testing.assert_allclose(
        std**2, np.mean(np.square(stds), 0) + np.var(means, 0), rtol=1e-7
    )
    densities = [m.log_predictive_density(data.X_new, data.y_new) for m in singles]
    np.testing.assert_allclose(
        together.log_predictive_density(data.X_new, data.y_new),
        np.logaddexp(*densities) - np.log(NETWORKS),
        rtol=1e-7,
        atol=1e-7,
    )


# ---- warnings of constant predictions


@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
def test_warning_of_constant_predictions(kind, seed):
    """With a prior that outweighs forty rows; not with another prior."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(40, 3))
    y, what = 5 * X[:, 0], "predictions are constant.*Stacking"
    if kind is MCDropoutClassifier:
        y, what = y > 0, rf"no class's probability has a stand.*|{what}"
    model = kind(max_iter=200, random_state=seed)
    with pytest.warns(ConvergenceWarning, match=what):
        model.set_params(length_scale=1000.0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.set_params(length_scale=1.0).fit(X, y)


@pytest.mark.parametrize(
    ("likelihood", "column", "message"),
    [
        ("gaussian", "y", "Outliers .* of y,.*='student_t'"),
        (
            "gaussian",
            "x",
            r"Outliers .* 1 columns of X.* \(columns \[0\]\): .*Quantile",
        ),
        ("student_t", "y", None),
    ],
)
def test_warning_names_outliers_if_they_are_the_reason(
    likelihood, column, message, seed
):
    """Two of 200 values are a million standard deviations off."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(200, 1))
    y = 5 * X[:, 0] + random.normal(size=200)
    (y if column == "y" else X[:, 0])[[7, 70]] = [1e6, -2e6]
    model = MCDropoutRegressor(likelihood=likelihood, max_iter=100, random_state=seed)
    if message is not None:
        with pytest.warns(
            ConvergenceWarning, match=f"(constant|outliers): .*{message}"
        ):
            model.fit(X, y)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.fit(X, y)


@pytest.mark.parametrize(
    ("kind", "size"),
    pairwise(
        [BBBRegressor, VariationalDropoutRegressor],
        [1e3, 1e4, 1e5, 1e6],
        interacting=[],
    ),
)
def test_warning_names_outliers_of_any_size(kind, size, seed):
    """Also if predictions are far from all other rows, and vary as much as y."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(120, 4))
    y = 3 * np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * random.normal(size=120)
    y[::30] = size
    with pytest.warns(ConvergenceWarning, match="standard deviation of y"):
        kind(random_state=seed).fit(X, y)


def test_no_warning_if_predictions_vary_despite_outliers(seed):
    """A y with a long tail."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(200, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        MCDropoutRegressor(max_iter=100, random_state=seed).fit(X, np.exp(X[:, 0]))


def test_variation_between_draws_does_not_prevent_the_warning(seed):
    """The posterior is as wide as the prior, since the 15 rows are unrelated to y."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(15, 3)), random.normal(size=15)
    with pytest.warns(ConvergenceWarning, match="predictions are constant"):
        BBBRegressor((50, 50), random_state=seed).fit(X, y)
