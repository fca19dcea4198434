"""The estimated evidence lower bound against closed forms and the training loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from skbayesnn._engine import bound as module
from skbayesnn._engine.bound import estimate_bound
from skbayesnn._engine.objective import make_priors
from skbayesnn._families import Bernoulli, MeanField, Point

# Members of one seed have the same random numbers.
SEEDS = np.array([4, 0, 4])
KEEP, LENGTH_SCALE, TAU = [0.6, 0.9, 0.8], 1.0, [3.0, 0.5, 8.0]
N_ROWS = 23


def config_members_and_rows(
    engine, seed, kind="gaussian", *, n_members=3, weighted=False, **changes
):
    """A config, untrained members, and their rows."""
    shared = changes.pop("shared", True)
    n_rows = changes.pop("n_rows", N_ROWS)
    config = engine.config(kind, **changes)
    seeds = seed + (SEEDS if n_members == 3 else np.arange(n_members))
    keep, tau = (KEEP, TAU) if n_members == 3 else (0.7, 2.0)
    members = engine.members(config, seeds, keep, LENGTH_SCALE, tau)
    rows = engine.rows(
        config, len(seeds), seed, n_rows=n_rows, shared=shared, weighted=weighted
    )
    return config, members, rows


def estimated_bound(config, members, rows, posterior):
    with torch.no_grad():
        priors = make_priors(config, members, posterior)
        return estimate_bound(config, members, rows, posterior, priors)


def expected_nll(rows, posterior):
    """E_q[-log p] of a linear network with masks and known noise, (members,)."""
    params, p = posterior.layers[0], posterior.keep[0].numpy()[:, None, None]
    mean, bias = (params[name].numpy() for name in ("mean", "bias"))
    log_tau = posterior.likelihood_params["log_tau"].numpy()[:, None]
    residual = rows.y - (rows.x @ (p * mean) + bias[:, None])
    variance = np.square(rows.x) @ (p * (1 - p) * np.square(mean))
    squares = np.square(residual) + variance
    nll = 0.5 * (np.exp(log_tau) * squares - log_tau + np.log(2 * np.pi)).sum(-1)
    weights = np.ones_like(nll) if rows.weights is None else rows.weights
    return (weights * nll).sum(1) / weights.sum(1)


@pytest.mark.parametrize("n_rows", [23, 400], ids=["many draws", "one draw"])
@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
def test_bound_equals_closed_form_within_its_error(engine, seed, weighted, n_rows):
    """A linear network; the error estimate is neither too small nor too large."""
    config, members, rows = config_members_and_rows(
        engine, seed, n_members=100, hidden=(), weighted=weighted, n_rows=n_rows
    )
    members = replace(members, n_epochs=np.full(100, 500 if n_rows == 23 else 1))
    posterior = engine.initial_posterior(config, members)
    actual = estimated_bound(config, members, rows, posterior)
    distance = (actual.nll - expected_nll(rows, posterior)) / actual.nll_error
    assert np.abs(distance).max() < 6
    # Student's t with 15 degrees of freedom has the variance 1.15; its estimate from
    # 100 members has a standard deviation of .18. If rows have one draw each, the
    # estimate treats them as a sample: differences between rows enlarge the error.
    spread = np.mean(distance**2)
    assert (0.4 if n_rows == 23 else 0.1) < spread < 2.2


def test_bound_of_a_large_table_uses_a_sample_of_rows(engine, seed, monkeypatch):
    monkeypatch.setattr(module, "_MIN_UNITS", 100)
    monkeypatch.setattr(module, "_MAX_UNITS", 500)
    config, members, rows = config_members_and_rows(
        engine, seed, n_members=100, hidden=(), n_rows=400
    )
    posterior = engine.initial_posterior(config, members)
    actual = estimated_bound(config, members, rows, posterior)
    used = module._DrawCounts.of(config, 400, 3).rows
    assert len(used) < 100 and len(set(used)) == len(used)
    distance = (actual.nll - expected_nll(rows, posterior)) / actual.nll_error
    # All members use the same rows, so their errors are correlated.
    assert np.abs(distance).max() < 6 and np.abs(distance).min() > 0


KINDS = ["gaussian", "gaussian, tau learned", "heteroscedastic", "categorical"]


@pytest.mark.parametrize("perturbed", [False, True], ids=["as it is", "perturbed"])
@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize("kind", KINDS)
def test_bound_without_dropout_equals_training_loss(
    engine, seed, kind, weighted, perturbed
):
    """The learning rate is about zero and all rows are in one batch."""
    config, members, rows = config_members_and_rows(
        engine,
        seed,
        kind,
        family=Point(),
        weighted=weighted,
        n_batches=1,
        learning_rate=1e-300,
        perturbed=perturbed,
    )
    trained = engine.train(config, members, rows, compute_bound=True)
    actual = trained.bound
    np.testing.assert_allclose(actual.nll, trained.nll[-1], rtol=1e-12)
    total = rows.total_weight.numpy()
    np.testing.assert_allclose(actual.kl, total * trained.kl[-1], rtol=1e-12)
    assert not actual.nll_error.any() and not actual.kl_error.any()
    assert engine.train(config, members, rows).bound is None


@pytest.mark.parametrize("family", ["bernoulli", "mean_field", "concrete"])
def test_bound_with_dropout_equals_mean_loss_over_epochs(engine, seed, family):
    """Training and bound draw from the same distribution, for every family."""
    config, members, rows = config_members_and_rows(
        engine, seed, family=family, n_batches=1, learning_rate=1e-300
    )
    n_epochs = 200
    members = replace(members, n_epochs=np.full(3, n_epochs))
    trained = engine.train(config, members, rows, compute_bound=True)
    error = np.hypot(
        trained.bound.nll_error, trained.nll.std(0, ddof=1) / np.sqrt(n_epochs)
    )
    assert (np.abs(trained.bound.nll - trained.nll.mean(0)) < 6 * error).all()
    assert (trained.bound.nll_error > 0).all()


@pytest.mark.parametrize("perturbed", [False, True], ids=["as it is", "perturbed"])
def test_bound_of_a_member_does_not_depend_on_other_members(
    engine, seed, monkeypatch, perturbed
):
    """Members differ in rows and epochs; they may be computed in chunks."""
    config, members, rows = config_members_and_rows(
        engine, seed, "categorical", shared=False, weighted=True, perturbed=perturbed
    )
    members = replace(members, n_epochs=np.array([3, 60, 20]))
    together = engine.train(config, members, rows, compute_bound=True).bound
    for i in range(3):
        member = engine.member(members, i)
        alone = engine.train(
            config, member, rows.of_member(i), compute_bound=True
        ).bound
        for name, values in vars(together).items():
            # Rounding of batched products, grown by the training.
            close = {"rtol": 1e-6, "atol": 1e-12, "err_msg": name}
            np.testing.assert_allclose(getattr(alone, name)[0], values[i], **close)
    monkeypatch.setattr(module, "_MAX_VALUES", 100)
    in_parts = engine.train(config, members, rows, compute_bound=True).bound
    # Smaller chunks of rows have other random numbers.
    error = np.hypot(in_parts.nll_error, together.nll_error)
    assert (np.abs(in_parts.nll - together.nll) < 6 * error).all()


def test_members_with_different_numbers_of_rows(engine, seed):
    """Padding rows are not used."""
    config, members, rows = config_members_and_rows(engine, seed, shared=False)
    posterior = engine.initial_posterior(config, members)
    whole = estimated_bound(config, members, rows, posterior)
    rows.n_rows = np.array([N_ROWS, 17, N_ROWS])
    actual = estimated_bound(config, members, rows, posterior)
    short = replace(rows.of_member(1), x=rows.x[1:2, :17], y=rows.y[1:2, :17])
    posterior_of_member = posterior.select(np.array([1]))
    alone = estimated_bound(
        config, engine.member(members, 1), short, posterior_of_member
    )
    np.testing.assert_allclose(actual.nll[[0, 2]], whole.nll[[0, 2]], rtol=1e-12)
    np.testing.assert_allclose(actual.nll[1], alone.nll[0], rtol=1e-12)
    assert actual.nll[1] != whole.nll[1]


def test_estimated_kl_is_averaged_over_draws(engine, seed):
    """Normal weights, whose KL has a closed form."""
    results = {}
    for sampled in (True, False):
        config, members, rows = config_members_and_rows(
            engine, seed, n_members=100, family=MeanField(sampled_kl=sampled)
        )
        posterior = engine.initial_posterior(config, members)
        results[sampled] = estimated_bound(config, members, rows, posterior)
    assert not results[False].kl_error.any()
    distance = (results[True].kl - results[False].kl) / results[True].kl_error
    assert np.abs(distance).max() < 6 and 0.4 < np.mean(distance**2) < 2.2


def test_cost_is_a_fraction_of_the_training_cost(engine):
    """Computed units are bounded, for short and long trainings."""
    config = engine.config(family=Bernoulli(), hidden=(50, 50), n_batches=10)
    for n_rows in (20, 1000, 50_000, 10**6):
        for n_epochs in (1, 30, 3000):
            draws = module._DrawCounts.of(config, n_rows, n_epochs)
            n_values = len(draws.rows) * draws.n_passes * draws.n_copies
            n_trained = n_rows * n_epochs
            n_units = config.network.n_units
            assert n_values * n_units <= module._MAX_UNITS
            least = max(n_rows, module._MIN_UNITS // n_units)
            step_cost = module._STEP_UNITS * n_epochs * config.n_batches / n_units
            assert n_values <= max(least, 0.015 * (3.1 * n_trained + step_cost) + 1)
            if n_rows * n_epochs > 1000:
                assert n_values >= min(n_rows, 1000)
