"""Rows of a batch, for every member in its scale, against NumPy."""

import numpy as np
import pytest
import torch
from scipy import sparse

from skbayesnn._data import training_rows
from skbayesnn._data.training_rows import RowSubset, Scaling, TrainingRows
from skbayesnn._data.validation import Table

ROWS, INPUTS, TARGETS, TRAINING, HELD_OUT = 23, 4, 2, 11, 3
CPU, F64 = torch.device("cpu"), torch.float64
# Networks per share; the first and the third share contain the same rows.
SHARES = (2, 1, 3)
MEMBERS = sum(SHARES)


@pytest.fixture(params=["regression", "sparse", "classes"])
def table(request, seed):
    random = np.random.default_rng(seed)
    X = random.normal(3.0, 2.0, size=(ROWS, INPUTS))
    y = random.normal(-1.0, 5.0, size=(ROWS, TARGETS))
    weights = random.uniform(0.5, 2.0, ROWS)
    if request.param == "sparse":
        X = sparse.csr_matrix(X * (random.random(X.shape) < 0.5))
    if request.param == "classes":
        y = random.integers(3, size=ROWS)
    return Table(X, y, weights)


@pytest.fixture(params=["weights", "no weights"])
def shares(request, table, seed):
    """Three shares, two of them with the same rows; the order of rows differs."""
    random = np.random.default_rng([seed, 1])
    orders = [random.permutation(ROWS) for _ in range(2)]
    results = []
    for n_members, order in zip(SHARES, (orders[0], orders[1], orders[0]), strict=True):
        rows, validation = order[:TRAINING], order[TRAINING : TRAINING + HELD_OUT]
        weights = table.sample_weight[rows]
        if request.param == "no weights":
            weights = np.ones(TRAINING)
        scaling = Scaling.of(
            table.X[rows],
            table.y[rows],
            weights,
            inputs=True,
            targets=table.y.ndim == 2,
        )
        results.append(RowSubset(n_members, rows, weights, validation, scaling))
    return results


def _expected(table, share, rows):
    """Inputs, and targets or class codes, in the scale of the share."""
    X = table.X.toarray() if sparse.issparse(table.X) else table.X
    scaling = share.scaling
    x, y = (X[rows] - scaling.x_mean) / scaling.x_scale, table.y[rows]
    return x, y if y.ndim == 1 else (y - scaling.y_mean) / scaling.y_scale


def _assert_rows(table, share, rows, x, y):
    # Values are converted from another scale: a few roundings of float64.
    for actual, expected in zip((x, y), _expected(table, share, rows), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def _of_members(shares):
    return [share for share in shares for _ in range(share.n_members)]


def _positions(common, seed):
    random = np.random.default_rng([seed, 2])
    orders = [random.permutation(TRAINING) for _ in range(1 if common else MEMBERS)]
    return torch.as_tensor(np.stack(orders))


@pytest.mark.parametrize("common", [True, False], ids=["one order", "own orders"])
def test_rows_of_every_member(table, shares, common, seed):
    positions = _positions(common, seed)
    x, y, weights = TrainingRows(table, shares, CPU, F64).take(positions)
    for i, share in enumerate(_of_members(shares)):
        at = positions[0 if common else i].numpy()
        _assert_rows(table, share, share.rows[at], x[i], y[i])
        if weights is not None:
            np.testing.assert_array_equal(weights[i], share.weights[at])
    assert (weights is None) == (shares[0].weights == 1).all()


@pytest.mark.parametrize("at_once", [1, 2 * MEMBERS * 4 * INPUTS, 1 << 20], ids=str)
@pytest.mark.parametrize("common", [True, False], ids=["one order", "own orders"])
def test_batches_are_parts_of_the_order(
    table, shares, common, seed, at_once, monkeypatch
):
    """Whether all, two of three, or one batch are gathered at once."""
    monkeypatch.setattr(training_rows, "_VALUES_AT_ONCE", at_once)
    rows = TrainingRows(table, shares, CPU, F64)
    order = _positions(common, seed)
    actual = list(rows.batches(order, 4))
    assert [batch[0].shape[1] for batch in actual] == [4, 4, 3]
    for batch, positions in zip(actual, order.split(4, dim=1), strict=True):
        for part, expected in zip(batch[:3], rows.take(positions), strict=True):
            both_none = part is None and expected is None
            assert both_none or torch.equal(part, expected)


def test_held_out_rows(table, shares):
    x, y, weights = TrainingRows(table, shares, CPU, F64).validation()
    for i, share in enumerate(_of_members(shares)):
        _assert_rows(table, share, share.held_out_rows, x[i], y[i])
        expected = table.sample_weight[share.held_out_rows]
        np.testing.assert_array_equal(weights[i], expected)


def test_common_rows_are_stored_once(table, shares, seed):
    """One gather for all members, and the memory of one."""
    equal = TrainingRows(table, [shares[0], shares[2]], CPU, F64)
    x, y, weights = equal.take(_positions(True, seed))
    assert len(x) == len(y) == len(equal.validation()[0]) == 1
    assert weights is None or len(weights) == 1


def test_sums_of_weights(table, shares):
    rows = TrainingRows(table, shares, CPU, F64, seen=7.0)
    sums = np.array([share.weights.sum() for share in _of_members(shares)])
    np.testing.assert_allclose(rows.total_weight, 7.0 + sums, rtol=1e-14)
    np.testing.assert_allclose(rows.mean_weight, sums / TRAINING, rtol=1e-14)


def test_selected_members_with_fewer_rows(table, seed):
    """As if they were alone: without the subsets and the padding of the others."""
    random = np.random.default_rng(seed)
    shares, n_targets = [], 1 if table.y.ndim == 1 else TARGETS
    for n_rows in (9, 7, 11, 7):
        rows, held_out = np.split(random.permutation(ROWS), [n_rows])
        weights, scaling = table.sample_weight[rows], Scaling.none(INPUTS, n_targets)
        shares.append(RowSubset(1, rows, weights, held_out, scaling))
    alone = TrainingRows(table, [shares[3], shares[1]], CPU, F64)
    selected = TrainingRows(table, shares, CPU, F64).select(np.array([3, 1]))
    assert selected.weights.shape == alone.weights.shape == (2, 7)
    positions = torch.as_tensor(np.stack([random.permutation(7) for _ in range(2)]))
    for own, other in zip(selected.take(positions), alone.take(positions), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0)
