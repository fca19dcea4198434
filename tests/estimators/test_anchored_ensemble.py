"""Anchored ensembles against what is known of randomised maximum a posteriori.

In a linear model with Gaussian noise of known precision the mode about a draw from the
prior, of targets with a draw of noise on them, is a draw from the posterior (Bardsley
et al. 2014, section 2): a normal distribution in closed form.
"""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import erf

from skbayesnn import AnchoredEnsembleClassifier, AnchoredEnsembleRegressor
from skbayesnn._inference.noise import ROWS as ROW_NOISE
from skbayesnn._inference.noise import anchor_normal, philox

ROWS, INPUTS, TARGETS, MEMBERS = 12, 3, 2, 500
LENGTH_SCALE, BIAS_LENGTH_SCALE = 1.3, 0.6
TAU = np.array([4.0, 9.0])


def _linear(**params):
    """A linear network that is trained to the end."""
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
    """Of every member, the bias last: (members, targets, inputs + 1)."""
    arrays = model.parameters_
    bias = arrays["layers/0/bias"][:, None]
    return np.concatenate([arrays["layers/0/mean"], bias], axis=1).transpose(0, 2, 1)


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
def test_members_are_draws_of_the_conjugate_posterior(seed, rows, weighted):
    """Of precision A = tau Z'WZ + L and mean tau A^-1 Z'Wy, L the prior's precision."""
    X, y, weights = rows
    weights = weights if weighted else np.ones(ROWS)
    model = _linear(n_estimators=MEMBERS, tau=TAU.tolist(), random_state=seed)
    found = _weights(model.fit(X, y, sample_weight=weights))
    Z = np.column_stack([X, np.ones(ROWS)])
    prior = np.diag([LENGTH_SCALE**2] * INPUTS + [BIAS_LENGTH_SCALE**2])
    for j, tau in enumerate(TAU):
        covariance = np.linalg.inv(tau * Z.T @ (weights[:, None] * Z) + prior)
        mean = tau * covariance @ Z.T @ (weights * y[:, j])
        of_target = found[:, j]
        std = np.sqrt(covariance.diagonal())
        # Six standard errors, at any seed; training ends much closer to the mode.
        error = 6 / np.sqrt(MEMBERS)
        assert (abs(of_target.mean(0) - mean) < error * std).all()
        spread = np.sqrt(np.outer(std, std) ** 2 + covariance**2)
        assert (abs(np.cov(of_target.T) - covariance) < error * spread).all()


def test_without_noise_on_y_members_agree_too_much(seed, rows):
    """Only anchors differ: the covariance is A^-1 L A^-1, less than A^-1."""
    X, y, _ = rows
    model = _linear(
        n_estimators=MEMBERS, tau=TAU.tolist(), noisy_targets=False, random_state=seed
    )
    found = _weights(model.fit(X, y))
    Z = np.column_stack([X, np.ones(ROWS)])
    prior = np.diag([LENGTH_SCALE**2] * INPUTS + [BIAS_LENGTH_SCALE**2])
    for j, tau in enumerate(TAU):
        inverse = np.linalg.inv(tau * Z.T @ Z + prior)
        covariance = inverse @ prior @ inverse
        std = np.sqrt(covariance.diagonal())
        spread = np.sqrt(np.outer(std, std) ** 2 + covariance**2)
        error = 6 / np.sqrt(MEMBERS) * spread
        assert (abs(np.cov(found[:, j].T) - covariance) < error).all()


def test_noise_is_learned_from_the_rows_alone(seed, rows):
    """The noise that a member gets on top of y is not taken for y's.

    Two equations hold at the end of each training, a the anchor and e the member's own
    standard normal numbers: A w = tau Z'(y + e / sqrt(tau)) + L a, and 1 / tau is the
    mean of (y - Z w)^2.
    """
    X, y, _ = rows
    y = y[:, 0]
    model = _linear(n_estimators=5, tau="auto", random_state=seed)
    # A noise that is learned with the weights takes longer to arrive.
    model.set_params(max_iter=4000).fit(X, y)
    Z = np.column_stack([X, np.ones(ROWS)])
    prior = np.diag([LENGTH_SCALE**2] * INPUTS + [BIAS_LENGTH_SCALE**2])
    scale = np.array([LENGTH_SCALE] * INPUTS + [BIAS_LENGTH_SCALE])
    anchors = anchor_normal(model.seeds_, 0, INPUTS + 1, 1)[..., 0] / scale
    variances = []
    for w, a, member in zip(_weights(model)[:, 0], anchors, model.seeds_, strict=True):
        own = np.random.Generator(philox(int(member), ROW_NOISE)).standard_normal(ROWS)
        variance = np.mean((y - Z @ w) ** 2)
        left = (Z.T @ Z / variance + prior) @ w
        right = Z.T @ (y + np.sqrt(variance) * own) / variance + prior @ a
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4 * abs(right).max())
        variances.append(variance)
    assert model.noise_std_**2 == pytest.approx(np.mean(variances), rel=1e-4)


@pytest.mark.parametrize("activation", ["relu", "erf", "tanh"])
def test_anchors_have_the_kernel_of_the_prior(seed, activation):
    """Cov f(x) f(x') = s_b^2 + H s_w^2 E h(u) h(u'), u normal, for H units.

    For relu and erf in closed form, the arc-cosine kernel (Cho & Saul 2009, eq. 6) and
    the arc-sine kernel (Williams 1998, eq. 11); else by quadrature. With one hidden
    layer it holds for any width.
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
    found = np.cov(f[..., 0].T)

    of_units = X @ X.T / 0.8**2 + 1 / 0.5**2
    kernel = {"relu": _arc_cosine, "erf": _arc_sine, "tanh": _of_tanh}[activation]
    expected = kernel(of_units) * units / 3.0**2 + 1 / 1.5**2
    variance = expected.diagonal()
    # Six standard errors; sums over units have tails that are somewhat heavier.
    error = 6 * np.sqrt((np.outer(variance, variance) + expected**2) / MEMBERS)
    assert (abs(found - expected) < 1.3 * error).all()


def _arc_sine(covariance):
    """E erf(u) erf(u'), (u, u') normal with that covariance."""
    scale = 1 + 2 * covariance.diagonal()
    inside = 2 * covariance / np.sqrt(np.outer(scale, scale))
    return 2 / np.pi * np.arcsin(inside)


def _arc_cosine(covariance):
    """E relu(u) relu(v)."""
    std = np.sqrt(covariance.diagonal())
    cosine = np.clip(covariance / np.outer(std, std), -1, 1)
    angle = np.arccos(cosine)
    both = np.sin(angle) + (np.pi - angle) * cosine
    return np.outer(std, std) * both / (2 * np.pi)


def _of_tanh(covariance):
    """E tanh(u) tanh(v), by Gauss-Hermite quadrature."""
    nodes, weights = hermegauss(60)
    weights = weights / weights.sum()
    found = np.empty_like(covariance)
    for i, j in np.ndindex(covariance.shape):
        std = np.sqrt(covariance[i, i])
        slope = covariance[i, j] / std
        rest = np.sqrt(max(covariance[j, j] - slope**2, 0.0))
        v = slope * nodes[:, None] + rest * nodes
        found[i, j] = weights @ (np.tanh(std * nodes)[:, None] * np.tanh(v)) @ weights
    return found


def test_spread_grows_away_from_the_rows(seed):
    random = np.random.default_rng(seed)
    X = np.append(random.uniform(-2, -1, 60), random.uniform(1, 2, 60))[:, None]
    y = np.sin(2 * X[:, 0]) + 0.1 * random.normal(size=120)
    model = AnchoredEnsembleRegressor(random_state=seed, device="cpu").fit(X, y)
    at = np.array([[-1.5], [1.5], [0.0], [4.0]])
    left, right, gap, beyond = model.predict_uncertainty(at, "epistemic")
    assert min(gap, beyond) > 2 * max(left, right)


def test_members_of_a_classifier_part_by_their_weights_of_the_rows(seed):
    """With many rows the anchors say little, and logits spread as in a posterior.

    Its covariance is then the inverse of the Fisher information.
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
    apart = np.diff(_weights(model), axis=1)[:, 0]
    Z = np.column_stack([X, np.ones(len(X))])
    p = 1 / (1 + np.exp(-Z @ apart.mean(0)))
    expected = np.linalg.inv((p * (1 - p) * Z.T) @ Z).diagonal()
    # Six standard errors of a variance of 200 draws, and a little for what rows that
    # are not many make of it.
    np.testing.assert_allclose(apart.var(0), expected, rtol=0.7)


def test_a_stream_has_new_noise_for_new_rows(seed, rows):
    """The same rows in two calls are two sets of rows, with noise of their own."""
    X, y, _ = rows
    model = _linear(n_estimators=2, random_state=seed)
    first = model.partial_fit(X, y).parameters_["layers/0/mean"].copy()
    again = _linear(n_estimators=2, random_state=seed).partial_fit(X, y)
    np.testing.assert_array_equal(again.parameters_["layers/0/mean"], first)
    assert (model.partial_fit(X, y).parameters_["layers/0/mean"] != first).all()


@pytest.mark.parametrize("changes", [{"length_scale": 0}, {"bias_length_scale": 0.0}])
def test_a_flat_prior_has_no_anchors(rows, changes):
    with pytest.raises(ValueError, match="anchors are drawn"):
        AnchoredEnsembleRegressor(**changes).fit(*rows[:2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias_length_scale": "wide"}, "bias_length_scale"),
        ({"bias_length_scale": [1.0, 2.0, 3.0]}, "one per weight layer"),
        ({"noisy_targets": "yes"}, "noisy_targets"),
    ],
)
def test_bad_parameters(rows, changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        AnchoredEnsembleRegressor(**changes).fit(*rows[:2])
