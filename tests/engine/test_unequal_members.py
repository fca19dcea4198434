"""Members with different numbers of rows and epochs equal separate trainings."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from skbayesnn._data.training_rows import RowSubset, Scaling, TrainingRows
from skbayesnn._data.validation import Table
from skbayesnn._engine.compiled import ENGINE_VARIABLE
from skbayesnn._engine.training import Training, train
from skbayesnn._families import MeanField
from tests.helpers.pairwise import pairwise

ROWS = 31
SEEDS = np.array([4, 0, 4, 1])
KEEP, LENGTH_SCALE, TAU = [0.6, 0.95, 0.8, 0.7], [1.0, 0.1, 0.3, 3.0], [9, 1, 0.3, 5]
N_BATCHES = 3

# Rows of each member: batches of 7, 6, 7 and 9 rows, or of 8, 7, 8 and 8.
ROWS_OF = {
    "folds": [range(20), range(3, 20), range(2, 23), range(4, 31)],
    "a fold left out": [
        [row for row in range(24) if row % 8 not in out]
        for out in ((), (1, 4), (2,), (7,))
    ],
}


@pytest.fixture(autouse=True)
def by_torch(monkeypatch):
    """Torch trains members with equal row counts in one program."""
    monkeypatch.setenv(ENGINE_VARIABLE, "torch")


@pytest.fixture(params=ROWS_OF)
def rows_of(request):
    return [np.array(rows) for rows in ROWS_OF[request.param]]


def _shares(table, rows_of, validation=(), weighted=False):
    """Rows of each member, in the scale of all rows.

    validation : row indices for each member
    """
    return [
        RowSubset(
            1,
            rows,
            table.sample_weight[rows] if weighted else np.ones(len(rows)),
            np.array(validation[i] if len(validation) else [], dtype=int),
            Scaling.none(
                table.X.shape[1], table.y.shape[-1] if table.y.ndim > 1 else 1
            ),
        )
        for i, rows in enumerate(rows_of)
    ]


def _table(engine, config, seed):
    rows = engine.rows(config, 1, seed, n_rows=ROWS)
    weights = np.random.default_rng(seed).uniform(0.2, 5, ROWS)
    return Table(rows.x[0], rows.y[0], weights)


def _assert_members_equal_separate_training(engine, config, members, table, shares):
    """Compare in float64.

    Adam divides by the gradient's size: rounding counts where a gradient is small.
    """

    def trained(members, shares):
        design = TrainingRows(table, shares, torch.device("cpu"), torch.float64)
        return train(
            Training(config, members, design, engine.initial_posterior(config, members))
        )

    together = trained(members, shares)
    for i, share in enumerate(shares):
        alone = trained(engine.member(members, i), [share])
        [n] = alone.n_epochs
        assert together.n_epochs[i] == n
        expected = engine.parameters(alone.posterior)
        for name, values in engine.parameters(together.posterior).items():
            np.testing.assert_allclose(
                values[i], expected[name][0], rtol=1e-9, atol=1e-10, err_msg=name
            )
        for name in ("nll", "kl", "validation"):
            if getattr(alone, name) is not None:
                actual, expected = getattr(together, name), getattr(alone, name)
                np.testing.assert_allclose(actual[:n, i], expected[:n, 0], rtol=1e-9)
        _assert_optimizer(together.select(np.array([i])), alone, config)
    return together


def _assert_optimizer(actual, expected, config):
    """Compare the optimizer state, unless members stop early.

    With early stopping a member's state advances until all members have stopped.
    """
    if config.patience is not None:
        return
    assert actual.optimizer.keys() == expected.optimizer.keys()
    for name, values in expected.optimizer.items():
        np.testing.assert_allclose(
            actual.optimizer[name], values, rtol=1e-9, atol=1e-10, err_msg=name
        )


# Members with equal row counts are trained together, by the program that
# `test_training.py` tests with every family.
EQUAL, OWN = [6, 6, 6, 6], [6, 4, 5, 6]
PROGRAMS = {
    "dropout": {},
    "tau learned": {"kind": "gaussian, tau learned", "cosine": False},
    "classes": {"kind": "categorical", "n_batches": 1},
    "warm-up": {"family": "mean_field", "kl_warm_up": 0.5, "n_training_draws": 3},
    "sampled": {"family": MeanField(sampled_kl=True), "kl_weighting": "geometric"},
}


@pytest.mark.parametrize(
    ("program", "rows_of", "n_epochs"),
    pairwise(PROGRAMS, ROWS_OF, [EQUAL, OWN]),
    indirect=["rows_of"],
    ids=str,
)
def test_members_with_unequal_rows_equal_separate_training(
    engine, seed, rows_of, program, n_epochs
):
    config = engine.config(**PROGRAMS[program])
    members = engine.members(
        config, SEEDS + seed, KEEP, LENGTH_SCALE, TAU, n_epochs=n_epochs
    )
    table = _table(engine, config, seed)
    shares = _shares(table, rows_of, weighted=program == "dropout")
    together = _assert_members_equal_separate_training(
        engine, config, members, table, shares
    )
    np.testing.assert_array_equal(together.n_epochs, n_epochs)


def test_early_stopping_of_members_with_unequal_rows(engine, seed, rows_of):
    """Numbers of validation rows differ; some members stop before their last epoch."""
    config = engine.config(patience=3, tol=1e-3, cosine=False)
    members = engine.members(
        config, SEEDS + seed, KEEP, 0.1, 3.0, n_epochs=[25, 20, 22, 25]
    )
    table = _table(engine, config, seed)
    validation = [range(24, 29), range(22, 31), range(30, 31), range(23, 25)]
    shares = _shares(table, rows_of, validation)
    together = _assert_members_equal_separate_training(
        engine, config, members, table, shares
    )
    assert (together.n_epochs < members.n_epochs).any()


def test_training_of_members_with_unequal_epochs_can_continue(engine, seed):
    """Each member continues with the moments of its last epoch."""
    config = engine.config("heteroscedastic", cosine=False)
    members = engine.members(
        config, SEEDS + seed, KEEP, LENGTH_SCALE, TAU, n_epochs=[2, 1, 2, 3]
    )
    rows = engine.rows(config, len(SEEDS), seed)
    first = engine.train(config, members, rows)
    second = train(Training(config, members, rows, first.posterior, first.optimizer, 3))
    np.testing.assert_array_equal(first.optimizer["step"], [6, 3, 6, 9])
    np.testing.assert_array_equal(second.optimizer["step"], [12, 6, 12, 18])
    for i in range(len(SEEDS)):
        member, index = engine.member(members, i), np.array([i])
        selected = first.select(index)
        start = selected.posterior, selected.optimizer, 3
        alone = train(Training(config, member, rows.of_member(i), *start))
        expected = engine.parameters(alone.posterior)
        for name, values in engine.parameters(second.posterior).items():
            np.testing.assert_allclose(values[i], expected[name][0], rtol=1e-9)


def test_numbers_of_epochs_do_not_change_the_common_epochs(engine, seed):
    """Members with fewer epochs do not affect the others."""
    config = engine.config()
    members = engine.members(config, SEEDS + seed, KEEP, LENGTH_SCALE, TAU, n_epochs=4)
    rows = engine.rows(config, len(SEEDS), seed)
    shorter = replace(members, n_epochs=np.array([4, 4, 2, 4]))
    whole, actual = (engine.train(config, each, rows) for each in (members, shorter))
    others = [0, 1, 3]
    after = engine.parameters(actual.posterior)
    for name, values in engine.parameters(whole.posterior).items():
        np.testing.assert_array_equal(after[name][others], values[others])
