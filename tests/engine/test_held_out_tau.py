"""The tau of ensembles, estimated on held-out rows during training."""

import numpy as np
import pytest
from scipy import stats

from skbayesnn._engine.config import Hook
from skbayesnn._engine.held_out_tau import (
    Ensemble,
    HeldOutTauUpdater,
    draws_together,
    estimate_noise_variance,
    finite,
)
from skbayesnn._likelihoods import Gaussian, Heteroscedastic

N_ROWS, N_DRAWS, TARGETS = 23, 5, 2
# log s is rounded to 0.01.
ROUNDED = 0.011


def fields(residual, variance, level):
    """``held_out_draws`` of one target; the arrays broadcast to (draws, rows)."""
    arrays = np.broadcast_arrays(residual, variance, level)
    return np.stack(arrays).transpose(2, 0, 1)[..., None]


# ---- the estimate


def test_level_of_one_network_is_a_mean_square(seed):
    """sum w r^2 / v = s^2 (sum w - 1): the prior counts as one row."""
    random = np.random.default_rng(seed)
    residual = random.normal(size=N_ROWS)
    variance, weights = (random.uniform(0.5, 2, size=N_ROWS) for _ in range(2))
    level = 0.7
    _, actual = estimate_noise_variance(
        fields(residual[None], variance, level), weights
    )
    mean = weights @ (residual**2 / variance) / (weights.sum() - 1)
    assert 0.5 * actual[0] == pytest.approx(0.5 * np.log(level * mean), abs=ROUNDED)


def test_density_is_normal(seed):
    """Mean and variance of the networks' functions, plus the mean noise variance."""
    random = np.random.default_rng(seed)
    residual = random.normal(size=(N_DRAWS, N_ROWS))
    variance = random.uniform(0.5, 2, size=(N_DRAWS, N_ROWS))
    draws = fields(residual, variance, 0.7)
    density, log_level = estimate_noise_variance(draws, np.ones(N_ROWS))

    def expected(log_level):
        noise_variance = (variance / 0.7).mean(0) * np.exp(log_level)
        std = np.sqrt(noise_variance + residual.var(0))
        return stats.norm.logpdf(residual.mean(0), scale=std)

    np.testing.assert_allclose(density[:, 0], expected(log_level[0]))
    grid = log_level[0] + 2 * np.linspace(-4, 4, 801)
    best = max(expected(level).sum() + 0.5 * level for level in grid)
    # An error of half a step of log s costs less than 2 rows times its square.
    lost = best - density.sum() - 0.5 * log_level[0]
    assert lost < 2 * N_ROWS * ROUNDED**2


@pytest.mark.parametrize("n_rows", [40, 1000])
def test_level_is_one_standard_error_if_the_spread_explains_all(n_rows):
    """Residuals as large as the spread v: s^2 is v / (sqrt(n) - 1), not zero.

    The standard error of v is sqrt(2 / n) v.
    """
    residual = np.array([[0.0], [2.0]]) * np.ones(n_rows)  # mean and std are 1
    _, actual = estimate_noise_variance(fields(residual, 1.0, 1.0), np.ones(n_rows))
    expected = -0.5 * np.log(np.sqrt(n_rows) - 1)
    assert 0.5 * actual[0] == pytest.approx(expected, abs=ROUNDED)


def test_draws_of_networks_are_concatenated(seed):
    random = np.random.default_rng(seed)
    networks = random.normal(size=(4, N_ROWS, 3, N_DRAWS, TARGETS))
    actual = draws_together(networks)
    assert actual.shape == (N_ROWS, 3, 4 * N_DRAWS, TARGETS)
    for i in range(4):
        part = actual[:, :, i * N_DRAWS : (i + 1) * N_DRAWS]
        np.testing.assert_array_equal(part, networks[i])
    np.testing.assert_array_equal(draws_together(networks[:1]), networks[0])


def test_diverged_networks_are_dropped(seed):
    draws = np.random.default_rng(seed).normal(size=(N_ROWS, 3, N_DRAWS, TARGETS))
    broken = draws.copy()
    broken[3, :, 1] = np.nan
    np.testing.assert_array_equal(finite(broken), np.delete(draws, 1, axis=2))
    assert not finite(np.full_like(draws, np.nan)).size


# ---- in training


class Taus(Hook):
    """log tau after every epoch."""

    def __init__(self):
        self.epochs = []

    def epoch_end(self, n_done, posterior):
        log_tau = posterior.likelihood_params["log_tau"]
        self.epochs.append(log_tau.clone().numpy())


@pytest.fixture
def ensembles(engine, seed):
    """Two ensembles of two folds and three networks; the second has half the epochs."""
    config = engine.config(
        "gaussian, tau learned", family="point", prior="anchored", perturbed=True
    )
    members = engine.members(
        config,
        np.tile(seed + np.arange(3), 4),
        1.0,
        np.repeat([1.0, 0.7], 6),
        2.0,
        n_epochs=np.repeat([60, 30], 6),
        learns_likelihood=False,
        bias_length_scale=1.0,
    )
    held_out = engine.rows(config, 12, seed + 1, n_rows=9, shared=False, weighted=True)
    rows = engine.rows(config, 12, seed, shared=False, held_out=held_out)
    numbers = np.arange(12).reshape(2, 2, 3)
    return config, members, rows, [Ensemble(numbers[0], 60), Ensemble(numbers[1], 30)]


def taus_of(engine, config, members, rows, ensembles, least=1e-3):
    """log tau after every epoch, (epochs, members, targets), and after the training."""
    taus = Taus()
    hook = HeldOutTauUpdater(rows, ensembles, 1, np.full_like(members.tau, least))
    trained = engine.train(config, members, rows, hooks=[hook, taus])
    log_tau = trained.posterior.likelihood_params["log_tau"]
    return np.stack(taus.epochs), log_tau.numpy()


def test_each_ensemble_has_one_tau_and_its_own_update_epochs(engine, ensembles):
    config, members, rows, both = ensembles
    history, last = taus_of(engine, config, members, rows, both)
    start = np.log(members.tau)
    for ensemble in both:
        taus = history[:, ensemble.members.ravel()]
        np.testing.assert_array_equal(taus, taus[:, :1].repeat(6, axis=1))
        moved = (
            np.flatnonzero(np.diff(taus[:, 0], axis=0, prepend=start[:1]).any(1)) + 1
        )
        n, every = ensemble.n_epochs, ensemble.n_epochs // 20
        due = [i for i in range(every, n + 1, every) if 0.2 * n <= i <= 0.75 * n]
        assert set(moved) <= set(due) and moved[0] == due[0]
        # Each update changes the standard deviation at most by a factor of two.
        steps = np.diff(taus[:, 0], axis=0, prepend=start[:1])
        assert abs(steps).max() <= 2 * np.log(2) + 1e-12
    np.testing.assert_array_equal(history[-1], last)


def test_noise_is_not_larger_than_the_spread_of_y(engine, ensembles):
    config, members, rows, both = ensembles
    history, _ = taus_of(engine, config, members, rows, both, least=1e3)
    assert (history[-1] >= np.log(1e3) - 1e-12).all()


def test_tau_of_an_ensemble_does_not_depend_on_other_ensembles(engine, ensembles):
    """Nor on the length of their training."""
    config, members, rows, both = ensembles
    _, together = taus_of(engine, config, members, rows, both)
    for ensemble in both:
        index = ensemble.members.ravel()
        member_rows = [rows.of_member(i) for i in index]
        rows_alone = _joined(member_rows)
        _, actual = taus_of(
            engine,
            config,
            members.select(index),
            rows_alone,
            [Ensemble(np.arange(6).reshape(2, 3), ensemble.n_epochs)],
        )
        np.testing.assert_allclose(actual, together[index], rtol=1e-9)


def _joined(parts):
    """Join the rows of several members; each member keeps its rows."""
    first = parts[0]
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("x", "y", "weights")
        if getattr(first, name) is not None
    }
    held_out = [part.held_out for part in parts]
    held_out = _joined(held_out) if held_out[0] is not None else None
    return type(first)(
        **{"weights": None} | arrays, n_members=len(parts), held_out=held_out
    )


@pytest.mark.parametrize("likelihood", [Gaussian, Heteroscedastic])
def test_fixed_noise_is_unchanged_and_other_members_learn(likelihood, engine, seed):
    """The members that learn do not depend on the members that do not."""
    kind = "gaussian, tau learned" if likelihood is Gaussian else "heteroscedastic"
    config = engine.config(kind)
    rows = engine.rows(config, 3, seed)
    arguments = config, [seed, seed + 1, seed + 2], 0.9, 1.0, 2.0
    mixed = engine.members(
        *arguments, n_epochs=9, learns_likelihood=[True, False, True]
    )
    free = engine.members(*arguments, n_epochs=9)
    actual, reference = (
        engine.parameters(engine.train(config, members, rows).posterior)
        for members in (mixed, free)
    )
    np.testing.assert_array_equal(actual["likelihood/log_tau"][1], np.log(mixed.tau[1]))
    for name, values in actual.items():
        np.testing.assert_allclose(values[::2], reference[name][::2], rtol=1e-12)
    assert (reference["likelihood/log_tau"] != np.log(free.tau)).all()


def test_fixed_tau_gives_the_weights_of_a_given_tau(engine, seed):
    """F / N and F / (N tau) have the same minimum and the same steps of Adam."""
    results = []
    for kind, learns in (("gaussian, tau learned", False), ("gaussian", True)):
        config = engine.config(kind, family="point")
        members = engine.members(
            config,
            [seed, seed + 1],
            1.0,
            0.8,
            3.0,
            n_epochs=30,
            learns_likelihood=learns,
        )
        # One precision for both targets: the given one divides the loss.
        members.tau[:] = 3.0
        rows = engine.rows(config, 2, seed)
        results.append(engine.parameters(engine.train(config, members, rows).posterior))
    fixed, given = results
    for name, values in given.items():
        # Adam adds 1e-8 to gradients of order 0.1.
        np.testing.assert_allclose(fixed[name], values, rtol=1e-4, atol=1e-5)
