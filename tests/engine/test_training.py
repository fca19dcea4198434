"""Training: batched members equal separate fits; optima in closed form."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from skbayesnn import MCDropoutRegressor
from skbayesnn._data.validation import Table
from skbayesnn._engine.objective import Objective, data_gradient, make_priors
from skbayesnn._engine.optimizer import BETA_1, BETA_2
from skbayesnn._engine.training import Training, train, validation_draws
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn.estimators._fitted import to_arrays
from tests.helpers.engine import (
    KEEP,
    KINDS,
    LENGTH_SCALE,
    SEEDS,
    TAU,
    config_and_members,
    parametrize_cases,
)
from tests.helpers.families import CASES
from tests.helpers.pairwise import pairwise
from tests.helpers.reference import mean_nll
from tests.helpers.together import fit_together


def _assert_member_equals(together, i, alone, **tolerance):
    """Compare member i of parameters by name with those of one network."""
    assert together.keys() == alone.keys()
    for name, values in together.items():
        np.testing.assert_allclose(
            values[i], alone[name][0], err_msg=f"{name} of member {i}", **tolerance
        )


@pytest.mark.parametrize(
    ("case", "shared", "weighted"),
    [
        *product(KINDS, [True, False], [True, False]),
        *((case, False, True) for case in CASES),
    ],
    ids=str,
)
def test_batched_members_equal_separate_training(
    engine, seed, case, shared, weighted, device
):
    """All parameters that may differ between members do differ.

    With every likelihood, and with every family under every prior. In float64 rounding
    of 1e-16 grows at most by 1e8.
    """
    if isinstance(case, str):
        config = engine.config(case)
        given = KEEP, LENGTH_SCALE, TAU, 8  # 24 steps
        members = engine.members(config, SEEDS + seed, *given)
    else:
        config, members = config_and_members(case, seed, kl_warm_up=0.5)
    options = {"shared": shared, "weighted": weighted, "device": device}
    rows = engine.rows(config, len(SEEDS), seed, **options)
    together = engine.train(config, members, rows)
    for i in range(len(SEEDS)):
        alone = engine.train(config, engine.member(members, i), rows.of_member(i))
        _assert_member_equals(
            engine.parameters(together.posterior),
            i,
            engine.parameters(alone.posterior),
            rtol=1e-8,
            atol=1e-8,
        )
        np.testing.assert_allclose(together.nll[:, i], alone.nll[:, 0], rtol=1e-8)
        np.testing.assert_allclose(together.kl[:, i], alone.kl[:, 0], rtol=1e-8)


def test_several_draws_average_their_gradients(engine, seed):
    """After one step under a flat prior Adam's first moment is the mean gradient."""
    n_draws = 3
    config = engine.config(
        family="bernoulli",
        activation="tanh",
        n_batches=1,
        n_training_draws=n_draws,
        kl_warm_up=0.5,
    )
    members = engine.members(config, SEEDS + seed, KEEP, 1.0, TAU, n_epochs=1)
    rows = engine.rows(config, len(SEEDS), seed)
    q = engine.initial_posterior(config, members)
    trained = train(Training(config, members, rows, q))

    priors = make_priors(config, members, q)
    objective = Objective.of(
        config.likelihood, priors, members.tau, rows.mean_weight, rows.total_weight
    )
    source = engine.random_source(members, 0)
    [batch] = rows.batches(torch.arange(23)[None], 23)
    actual = [
        data_gradient(objective, q, batch.with_own_x(), source) for _ in range(n_draws)
    ]
    nll = torch.stack([draw[0] for draw in actual]).mean((0, 2))
    torch.testing.assert_close(torch.as_tensor(trained.nll[0]), nll)
    for i, layer in enumerate(q.layers):
        for name in layer:
            expected = torch.stack([draw[1][i][name] for draw in actual]).mean(0)
            moment = trained.optimizer[f"exp_avg/{i}/{name}"] / (1 - BETA_1)
            torch.testing.assert_close(torch.as_tensor(moment), expected)


@pytest.mark.parametrize("pattern", [[0, 0, 0, 0], [0, 1, 2, 3]], ids=str)
def test_batched_members_in_float32(engine, seed, pattern, device):
    config = engine.config("gaussian", activation="tanh")
    seeds = seed + np.array(pattern)
    members = engine.members(config, seeds, KEEP, LENGTH_SCALE, TAU, 10)
    rows = engine.rows(config, len(SEEDS), seed, device=device, dtype=torch.float32)
    together = engine.train(config, members, rows)
    for i in range(len(SEEDS)):
        alone = engine.train(config, engine.member(members, i), rows.of_member(i))
        # Rounding of 1e-7. Adam divides by the gradient's size, so if a gradient
        # vanishes rounding determines its step of 0.01: allow a fraction of a step.
        _assert_member_equals(
            engine.parameters(together.posterior),
            i,
            engine.parameters(alone.posterior),
            rtol=1e-4,
            atol=1e-3,
        )


def _with_validation(engine, config, seed):
    """Separate rows and a validation set on which the members stop at different epochs.

    Reversed validation targets make a member's validation score fall early.
    """
    rows = engine.rows(config, len(SEEDS), seed, shared=False, weighted=True)
    held_out = engine.rows(config, len(SEEDS), seed, shared=False, weighted=True)
    held_out.y = np.stack([-held_out.y[0], *held_out.y[1:]])
    return replace(rows, held_out=held_out)


def test_early_stopping_equals_separate_training(engine, seed):
    config = engine.config(patience=5, tol=1e-4)
    members = engine.members(config, SEEDS + seed, KEEP, 0.1, 3.0, 40)
    rows = _with_validation(engine, config, seed)
    together = engine.train(config, members, rows)
    # The order in which they stop depends on the rows.
    assert together.n_epochs.min() < together.n_epochs.max()
    for i in range(len(SEEDS)):
        alone = engine.train(config, engine.member(members, i), rows.of_member(i))
        n = alone.n_epochs[0]
        assert together.n_epochs[i] == n
        assert len(alone.validation) == n
        np.testing.assert_allclose(
            together.validation[:n, i], alone.validation[:, 0], rtol=1e-8
        )
        _assert_member_equals(
            engine.parameters(together.posterior),
            i,
            engine.parameters(alone.posterior),
            rtol=1e-7,
            atol=1e-7,
        )


def test_early_stopping_restores_the_best_epoch(engine, seed):
    config = engine.config(patience=30, tol=0.0, cosine=False)
    members = engine.members(config, SEEDS + seed, KEEP, 0.1, 3.0, 30)
    rows = _with_validation(engine, config, seed)
    trained = engine.train(config, members, rows)
    best = trained.validation.argmax(0)
    for i, epoch in enumerate(best):
        shorter = replace(members, n_epochs=np.full(len(SEEDS), epoch + 1))
        up_to_best = engine.train(replace(config, patience=None), shorter, rows)
        _assert_member_equals(
            engine.parameters(trained.posterior),
            i,
            {
                n: v[i : i + 1]
                for n, v in engine.parameters(up_to_best.posterior).items()
            },
            rtol=1e-12,
        )


def test_patience_counts_epochs_without_improvement(engine, seed):
    config = engine.config(patience=4, tol=1e-3)
    members = engine.members(config, SEEDS + seed, KEEP, 0.1, 3.0, 60)
    trained = engine.train(config, members, _with_validation(engine, config, seed))
    for i, n in enumerate(trained.n_epochs):
        best, last = -np.inf, 0
        for epoch in range(n):
            assert epoch - last <= config.patience
            if trained.validation[epoch, i] > best + config.tol:
                best, last = trained.validation[epoch, i], epoch
        assert n == 60 or n - 1 - last == config.patience


@pytest.mark.parametrize(
    ("array", "value"),
    [("y", np.nan), ("y", 1e200), ("x", np.inf), ("weights", np.nan)],
    ids=["y NaN", "y overflows", "x infinite", "weight NaN"],
)
@pytest.mark.parametrize("patience", [None, 5])
def test_failed_member_does_not_change_the_others(engine, seed, array, value, patience):
    config = engine.config(patience=patience)
    members = engine.members(config, SEEDS + seed, KEEP, LENGTH_SCALE, TAU, 12)
    rows = _with_validation(engine, config, seed)
    sound = engine.train(config, members, rows)
    getattr(rows, array)[1, 7] = value
    poisoned = engine.train(config, members, replace(rows))
    np.testing.assert_array_equal(poisoned.failed > 0, [False, True, False, False])
    assert poisoned.failed[1] == 1  # the first epoch contains every row
    healthy = [0, 2, 3]
    after = engine.parameters(poisoned.posterior)
    for name, values in engine.parameters(sound.posterior).items():
        np.testing.assert_array_equal(after[name][healthy], values[healthy])
    np.testing.assert_array_equal(poisoned.n_epochs[healthy], sound.n_epochs[healthy])
    shared = min(len(poisoned.nll), len(sound.nll))
    np.testing.assert_array_equal(
        poisoned.nll[:shared, healthy], sound.nll[:shared, healthy]
    )


def test_training_ends_when_every_member_has_failed(engine, seed):
    config = engine.config()
    members = engine.members(config, SEEDS + seed, KEEP, LENGTH_SCALE, TAU, 500)
    rows = engine.rows(config, len(SEEDS), seed)
    rows.y[0, 3] = np.nan
    trained = engine.train(config, members, rows)
    np.testing.assert_array_equal(trained.failed, 1)
    assert len(trained.nll) < 500


@pytest.mark.parametrize("case", [*KINDS, *CASES], ids=str)
def test_continued_training_equals_one_run(engine, seed, case, device):
    """Adam's state, random numbers and the KL's warm-up continue, bit for bit."""
    if isinstance(case, str):
        config = engine.config(case, cosine=False)
        whole = engine.members(config, SEEDS + seed, KEEP, LENGTH_SCALE, TAU, 2)
    else:
        config, whole = config_and_members(case, seed, cosine=False)
    rows = engine.rows(config, len(SEEDS), seed, device=device)
    expected = engine.train(config, whole, rows)
    half = replace(whole, n_epochs=whole.n_epochs // 2)
    first = engine.train(config, half, rows)
    second = train(Training(config, half, rows, first.posterior, first.optimizer, 1))
    after = engine.parameters(second.posterior)
    for name, values in engine.parameters(expected.posterior).items():
        np.testing.assert_array_equal(after[name], values)
    assert second.optimizer.keys() == expected.optimizer.keys()
    for name, values in expected.optimizer.items():
        np.testing.assert_array_equal(second.optimizer[name], values)
    for name in ("nll", "kl"):
        np.testing.assert_array_equal(
            getattr(second, name)[0], getattr(expected, name)[1]
        )


@parametrize_cases
def test_constants_do_not_change(engine, seed, case):
    """All other parameters change, in every layer and member."""
    config, members = config_and_members(case, seed)
    start = engine.parameters(engine.initial_posterior(config, members))
    trained = engine.train(config, members, engine.rows(config, len(SEEDS), seed))
    for name, values in engine.parameters(trained.posterior).items():
        constant = name.split("/")[1] in case.family.constants
        is_likelihood = name.startswith("likelihood")  # tau is given
        moved = values.reshape(len(SEEDS), -1) != start[name].reshape(len(SEEDS), -1)
        assert not moved.any() if constant or is_likelihood else moved.any(1).all(), (
            name
        )


# ------------------------------------------------------------------ steps by autograd


def _by_autograd(engine, config, members, rows):
    """The same training by loss.backward() and torch's Adam, one loss per step."""
    q = engine.initial_posterior(config, members)
    for layer, family in zip(q.layers, config.network.families, strict=True):
        for name, value in layer.items():
            layer[name] = value.requires_grad_(name not in family.constants)
    leaves = [v for layer in q.layers for v in layer.values() if v.requires_grad]
    objective = Objective(
        make_priors(config, members, q),
        rows.mean_weight,
        rows.total_weight,
        torch.as_tensor(1 / members.tau.mean(1)),
    )
    source = TrainingRandom(members.seeds, torch.device("cpu"), torch.float64)
    optimizer = torch.optim.Adam(leaves, betas=(BETA_1, BETA_2))
    n_batches, n_epochs = config.n_batches, int(members.n_epochs[0])
    n_steps = n_epochs * n_batches
    for epoch in range(n_epochs):
        source.start_epoch(epoch, n_batches)
        order = source.permutations(int(rows.n_rows[0])).chunk(n_batches, dim=1)
        for batch, positions in enumerate(order):
            done = (epoch * n_batches + batch) / n_steps
            nll = mean_nll(objective, q, *rows.take(positions), source)
            weight = min(done / config.kl_warm_up, 1.0) if config.kl_warm_up else 1.0
            if config.kl_weighting == "geometric":
                weight *= n_batches * 2.0 ** (n_batches - batch - 1)
                weight /= 2.0**n_batches - 1
            loss = (nll + weight * objective.kl(q, source)) * objective.scale
            optimizer.zero_grad()
            loss.sum().backward()
            cosine = 0.5 * (1 + np.cos(np.pi * done)) if config.cosine else 1.0
            optimizer.param_groups[0]["lr"] = config.learning_rate * cosine
            optimizer.step()
            source.next_step()
    return q, objective.kl(q, source).detach()


WEIGHTINGS = {
    "plain": {},
    "geometric after a warm-up": {"kl_weighting": "geometric", "kl_warm_up": 0.7},
}


@pytest.mark.parametrize(
    ("case", "weighting"), pairwise(CASES, WEIGHTINGS, interacting=[]), ids=str
)
def test_steps_equal_autograd(engine, seed, case, weighting):
    """Analytic gradients, with the KL and its weight in every batch.

    The KL's weight rises from zero, linearly in the progress; geometric weights are eq.
    9 of [BBB15], times the number of batches, so that their mean is one.
    """
    config, members = config_and_members(case, seed, **WEIGHTINGS[weighting])
    rows = engine.rows(config, len(SEEDS), seed, n_rows=24, weighted=True)
    trained = engine.train(config, members, rows)
    q, kl = _by_autograd(engine, config, members, rows)
    expected = engine.parameters(q)
    for name, values in engine.parameters(trained.posterior).items():
        # Six steps in float64. Adam divides by the gradient's size: where one is
        # small, its rounding counts.
        np.testing.assert_allclose(
            values, expected[name], rtol=1e-8, atol=1e-8, err_msg=name
        )
    np.testing.assert_allclose(trained.kl[-1], kl, rtol=1e-8)


def test_warm_up_counts_earlier_steps(engine, seed):
    """A continued training has the KL weight of its earlier steps.

    The prior outweighs the data, so the first step shows whether the KL counts.
    """
    config = engine.config(family="point", kl_warm_up=0.5, n_batches=1)
    members = engine.members(config, [seed], 1.0, 1e3, 1.0, 1)
    rows = engine.rows(config, 1, seed)
    cold = engine.train(config, members, rows)
    steps = {"step": np.asarray(50)} | {
        name: np.zeros_like(value)
        for name, value in cold.optimizer.items()
        if name != "step"
    }
    start = engine.initial_posterior(config, members)
    warm = train(Training(config, members, rows, start, steps))
    mean = engine.parameters(start)["0/mean"]
    # Adam's first moment after one step is a tenth of the gradient.
    grad_kl = 0.1 * 1e3**2 * mean / (rows.n_rows[0] * members.tau.mean())
    grad_data = cold.optimizer["exp_avg/0/mean"]
    np.testing.assert_allclose(
        warm.optimizer["exp_avg/0/mean"], grad_data + grad_kl, rtol=1e-10
    )


def test_training_does_not_change_the_start_values(engine, seed):
    config = engine.config("heteroscedastic")
    members = engine.members(config, SEEDS + seed, KEEP, LENGTH_SCALE, TAU)
    start = engine.initial_posterior(config, members)
    before = {n: v.copy() for n, v in engine.parameters(start).items()}
    train(Training(config, members, engine.rows(config, len(SEEDS), seed), start))
    for name, values in engine.parameters(start).items():
        np.testing.assert_array_equal(values, before[name])


# ---------------------------------------------------------------- `train_together`


def _table(seed, n_rows, weighted):
    """Columns with different units: means and scales far from 0 and 1."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(n_rows, 4))
    x = 1e3 + z * [1e-3, 1.0, 50.0, 1e4]
    f = np.sin(z @ random.normal(size=(4, 2)))
    y = (5 + 300 * (f + 0.1 * random.normal(size=f.shape))).round(9)
    weights = random.uniform(0.2, 5, n_rows) if weighted else np.ones(n_rows)
    return Table(x, y, weights)


def _regressors(seed, **shared):
    """Estimators that differ in all parameters that members of a program may have."""
    settings = [
        {"tau": 1e-3, "dropout": 0.3, "length_scale": 0.1},
        {"tau": [1e-2, 1e-4], "dropout": [0.1, 0.2, 0.3], "length_scale": "auto"},
        {"tau": 1e-4, "dropout": 0.05, "length_scale": [3.0, 0.0, 1.0]},
    ]
    return [
        MCDropoutRegressor(
            (7, 6),
            batch_size=16,
            max_iter=15,
            random_state=seed + i % 2,  # the first and the last share their seeds
            n_estimators=2,
            device="cpu",
            **setting | shared,
        )
        for i, setting in enumerate(settings)
    ]


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
@pytest.mark.parametrize(
    "shared",
    [{}, {"tau": "auto"}, {"tau": "auto", "likelihood": "heteroscedastic"}],
    ids=["tau given", "tau learned", "heteroscedastic"],
)
def test_estimators_together_equal_separate_fits(seed, weighted, shared):
    """Each with its rows, in the scaling of these rows."""
    table = _table(seed, 60, weighted)
    rows = np.array_split(np.random.default_rng(seed).permutation(60), 3)
    rows = [np.concatenate([rows[i], rows[i - 1]]) for i in range(3)]
    together = fit_together(_regressors(seed, **shared), table, rows)
    for fitted, row_numbers, estimator in zip(
        together, rows, _regressors(seed, **shared), strict=True
    ):
        estimator.fit(
            table.X[row_numbers], table.y[row_numbers], table.sample_weight[row_numbers]
        )
        _assert_same_fit(fitted, estimator)


def _assert_same_fit(fitted, estimator):
    arrays = to_arrays(fitted.trained.posterior)
    assert arrays.keys() == estimator.parameters_.keys()
    for name, values in arrays.items():
        # The rows pass through another estimator's scale: rounding of 1e-13 at the
        # start (a column's mean is up to 10^6 times its spread), 1e-6 after 45 steps.
        np.testing.assert_allclose(
            values, estimator.parameters_[name], rtol=1e-5, atol=1e-6, err_msg=name
        )
    np.testing.assert_array_equal(fitted.trained.posterior.seeds, estimator.seeds_)
    np.testing.assert_array_equal(fitted.trained.n_epochs.max(), estimator.n_iter_)


def test_early_stopping_of_estimators_together(seed):
    table = _table(seed, 60, weighted=False)
    order = np.random.default_rng(seed).permutation(60)
    rows = [order[:36], order[12:48], order[24:]]
    validation = [order[36:46], order[:10], order[10:20]]
    early = {"early_stopping": True, "n_iter_no_change": 3, "max_iter": 40}
    together = fit_together(_regressors_until(seed, early), table, rows, validation)
    for fitted, row_numbers, held_out, estimator in zip(
        together, rows, validation, _regressors_until(seed, early), strict=True
    ):
        estimator.fit(
            table.X[row_numbers],
            table.y[row_numbers],
            X_val=table.X[held_out],
            y_val=table.y[held_out],
        )
        _assert_same_fit(fitted, estimator)


def _regressors_until(seed, early):
    return [e.set_params(**early) for e in _regressors(seed)]


@pytest.mark.parametrize("axis", ["X", "y"])
def test_outlier_of_one_estimator_does_not_affect_the_others(seed, axis):
    """In float32, next to rows with a scale 10^8 times larger."""
    table = _table(seed, 60, weighted=False)
    x = (table.X - 1e3) / [1e-3, 1.0, 50.0, 1e4]
    x, y = x.astype(np.float32), table.y / 300
    (x if axis == "X" else y)[0, 1] = 1e10
    table = Table(x, y, table.sample_weight)
    rows = [np.arange(40), np.arange(20, 60)]  # the outlier is in the first only
    settings = {"tau": "auto", "activation": "tanh", "max_iter": 3}
    together = fit_together(
        [e.set_params(**settings) for e in _regressors(seed)[:2]], table, rows
    )
    alone = _regressors(seed)[1].set_params(**settings)
    alone.fit(x[rows[1]], y[rows[1]])
    for name, values in to_arrays(together[1].trained.posterior).items():
        # Nine steps of 0.01 in float32: see the test in float32 above.
        np.testing.assert_allclose(
            values, alone.parameters_[name], rtol=1e-4, atol=1e-3, err_msg=name
        )


# ------------------------------------------------------------------- closed forms


def _map(x, y, weights, length_scale, tau):
    """argmin of tau/2 sum_n w_n (y - x W - b)^2 + l^2/2 (||W||^2 + b^2), per target."""
    x = np.column_stack([x, np.ones(len(x))])
    ridge = Ridge(alpha=length_scale**2 / tau, fit_intercept=False, solver="cholesky")
    return ridge.fit(x, y, sample_weight=weights).coef_.T


@pytest.mark.parametrize("weighted", [False, True], ids=["even", "weighted"])
def test_linear_network_converges_to_the_map(engine, seed, weighted):
    """Gaussian prior and noise without dropout: ridge regression, bias included."""
    config = engine.config(hidden=(), family="point", n_batches=1, learning_rate=0.05)
    members = engine.members(config, SEEDS + seed, 1.0, LENGTH_SCALE, TAU, 1000)
    rows = engine.rows(config, len(SEEDS), seed, weighted=weighted)
    trained = engine.train(config, members, rows)
    actual = engine.parameters(trained.posterior)
    for i in range(len(SEEDS)):
        weights = rows.weights[i] if weighted else None
        length_scale = members.prior[0]["length_scale"][i]
        tau = members.tau[i]
        expected = _map(rows.x[0], rows.y[0], weights, length_scale, tau)
        np.testing.assert_allclose(actual["0/mean"][i], expected[:-1], atol=1e-5)
        np.testing.assert_allclose(actual["0/bias"][i], expected[-1], atol=1e-5)


def test_linear_network_learns_the_noise(engine, seed):
    """tau learned: 1 / tau is the weighted mean square of the residuals."""
    config = engine.config(
        "gaussian, tau learned",
        hidden=(),
        family="point",
        n_batches=1,
        learning_rate=0.05,
    )
    members = engine.members(config, SEEDS + seed, 1.0, LENGTH_SCALE, 1.0, 1500)
    rows = engine.rows(config, len(SEEDS), seed, weighted=True)
    trained = engine.train(config, members, rows)
    actual = engine.parameters(trained.posterior)
    for i in range(len(SEEDS)):
        mean, bias = actual["0/mean"][i], actual["0/bias"][i]
        residual = rows.y[0] - rows.x[0] @ mean - bias
        variance = np.average(residual**2, axis=0, weights=rows.weights[i])
        tau = np.exp(actual["likelihood/log_tau"][i])
        np.testing.assert_allclose(1 / tau, variance, rtol=1e-4)
        length_scale = members.prior[0]["length_scale"][i]
        expected = _map(rows.x[0], rows.y[0], rows.weights[i], length_scale, tau)
        np.testing.assert_allclose(np.vstack([mean, bias]), expected, atol=1e-4)


def test_autograd_stays_enabled_between_validation_draws(engine, seed):
    """A generator that is kept, suspended, does not disable it for others."""
    config = engine.config()
    members = engine.members(config, SEEDS[:2] + seed, 0.9, 1.0, 1.0)
    rows = engine.rows(config, 2, seed, held_out=engine.rows(config, 2, seed + 1))
    posterior = engine.initial_posterior(config, members)
    with torch.enable_grad():
        draws = validation_draws(posterior, rows, 3, np.arange(2)[:, None])
        assert not next(draws).requires_grad
        assert torch.is_grad_enabled()
