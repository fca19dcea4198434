"""Weights of the candidates, against closed forms and a general solver."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.model_selection import KFold

from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor
from skbayesnn._meta.unwrap import open_predictive
from skbayesnn._stacking.weights import (
    MIN_WEIGHT,
    round_to_total,
    sparse_stacking_weights,
    stacking_weights,
    useful_candidates,
)
from tests.helpers.stacks import QUICK

ROWS, CANDIDATES = 60, 5


def _log_density(seed, rows=ROWS, candidates=CANDIDATES):
    """Candidates that are good at different rows; the last is hopeless."""
    random = np.random.default_rng(seed)
    values = random.normal(scale=2.0, size=(rows, candidates))
    values[:, -1] -= 30
    return values


def _objective(weights, log_density, row_weights, prior_rows):
    density = np.exp(log_density) @ weights
    prior = prior_rows / log_density.shape[1] * np.log(weights).sum()
    return row_weights @ np.log(density) + prior


@pytest.mark.parametrize("prior_rows", [0.5, 3.0, 40.0])
def test_weights_are_the_optimum_of_a_general_solver(seed, prior_rows):
    log_density = _log_density(seed)
    row_weights = np.random.default_rng(seed + 1).uniform(0, 3, size=ROWS)
    weights = stacking_weights(log_density, row_weights, prior_rows)
    assert weights.sum() == pytest.approx(1)
    assert (weights > 0).all()

    def loss(logits):
        shares = np.exp(logits - logits.max())
        shares = (shares / shares.sum()).clip(1e-300)
        return -_objective(shares, log_density, row_weights, prior_rows)

    best = minimize(loss, np.zeros(CANDIDATES), method="BFGS", tol=1e-9)
    actual = _objective(weights, log_density, row_weights, prior_rows)
    # EM stops within 1e-6 nats per row of the optimum; BFGS has an error, too.
    assert actual >= -best.fun - 1e-5 * row_weights.sum()


@pytest.mark.parametrize("prior_rows", [0.1, 3.0])
def test_disjoint_candidates_get_their_share_of_the_rows(prior_rows):
    """Closed form: each row is possible under a single candidate."""
    owner = np.repeat([0, 1, 2], [5, 9, 20])
    log_density = np.full((34, 3), -np.inf)
    log_density[np.arange(34), owner] = -7.0
    weights = stacking_weights(log_density, np.ones(34), prior_rows)
    expected = (np.array([5, 9, 20]) + prior_rows / 3) / (34 + prior_rows)
    np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_few_rows_do_not_give_all_weight_to_one_candidate():
    """The better candidate has more weight with more rows."""
    shares = [
        stacking_weights(np.tile([0.0, -0.5], (rows, 1)), np.ones(rows))[0]
        for rows in (1, 10, 100, 1000)
    ]
    assert 0.5 < shares[0] < shares[1] < shares[2] < shares[3] < 1
    assert shares[0] < 0.8
    assert shares[3] > 0.99


def test_weights_do_not_depend_on_order(seed):
    log_density = _log_density(seed)
    row_weights = np.random.default_rng(seed).uniform(size=ROWS)
    weights = stacking_weights(log_density, row_weights)
    reversed_weights = stacking_weights(log_density[::-1, ::-1], row_weights[::-1])
    # Rounding of sums in another order.
    np.testing.assert_allclose(reversed_weights, weights[::-1], rtol=1e-6)


def test_integer_weights_equal_repeated_rows(seed):
    log_density = _log_density(seed)
    counts = np.random.default_rng(seed).integers(0, 3, size=ROWS)
    weights = stacking_weights(log_density, counts.astype(float))
    repeated = np.repeat(log_density, counts, axis=0)
    np.testing.assert_allclose(
        weights, stacking_weights(repeated, np.ones(len(repeated))), rtol=1e-6
    )


def test_units_of_the_density_do_not_matter(seed):
    """A constant per row changes nothing, even if exp overflows."""
    log_density = _log_density(seed)
    shift = np.random.default_rng(seed).normal(scale=2000, size=(ROWS, 1))
    np.testing.assert_allclose(
        stacking_weights(log_density + shift, np.ones(ROWS)),
        stacking_weights(log_density, np.ones(ROWS)),
        # Values in the thousands have an error of 1e-12.
        rtol=1e-6,
    )


def test_row_impossible_under_all_candidates_has_no_effect(seed):
    log_density = _log_density(seed)
    with_row = np.vstack([log_density, np.full(CANDIDATES, -np.inf)])
    row_weights = np.append(np.ones(ROWS), 0.0)
    expected = stacking_weights(log_density, np.ones(ROWS))
    np.testing.assert_allclose(stacking_weights(with_row, row_weights), expected)
    assert np.isfinite(stacking_weights(with_row, np.ones(ROWS + 1))).all()


def test_small_weights_are_left_out(seed):
    log_density = _log_density(seed)
    weights = sparse_stacking_weights(log_density, np.ones(ROWS))
    before = stacking_weights(log_density, np.ones(ROWS))
    np.testing.assert_array_equal(weights > 0, before >= 0.02)
    assert weights[-1] == 0  # the hopeless candidate
    refitted = stacking_weights(log_density[:, weights > 0], np.ones(ROWS))
    np.testing.assert_allclose(weights[weights > 0], refitted)
    assert weights.sum() == pytest.approx(1)


def test_many_equal_candidates_have_weights_that_sum_to_one():
    weights = sparse_stacking_weights(np.zeros((9, 80)), np.ones(9))
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("total", [1, 7, 200])
def test_whole_numbers_are_close_and_sum_to_the_total(seed, total):
    weights = np.random.default_rng(seed).dirichlet(np.full(9, 0.3))
    numbers = round_to_total(weights, total)
    assert numbers.sum() == total
    assert (np.abs(numbers - total * weights) < 1).all()


# ---- useful candidates


def _promising(mean, spread, error=None, rows=50):
    """Selection among candidates with these mean log densities, which vary by row."""
    random = np.random.default_rng(0)
    deviations = random.normal(size=(rows, len(mean)))
    log_density = np.array(mean) + deviations - deviations.mean(0)
    error = None if error is None else np.array(error)
    return useful_candidates(
        log_density, np.ones(rows), np.array(spread), error
    ).tolist()


def test_constants_are_left_out_unless_they_are_the_likeliest():
    spread = [0.5, 0.01, 0.0, 0.06]
    assert _promising([-1, -2, -2.1, -5], spread) == [True, False, False, True]
    # The columns are unrelated to y: the likeliest constant stays.
    assert _promising([-3, -2, -2.1, -5], spread) == [True, True, False, True]
    assert _promising([-3, -2], [0.0, 0.0]) == [False, True]


def test_candidates_of_large_error_are_left_out_unless_likeliest():
    spread = np.ones(4)
    error = [1.0, 2.9, 3.1, 50.0]
    assert _promising([-1, -2, -3, -4], spread, error) == [True, True, False, False]
    assert _promising([-9, -9, -1, -9], spread, error) == [True, True, True, False]
    # The candidate with the least error is a constant, which is left out.
    assert _promising([-1, -2], [1, 0], [4.0, 1.0]) == [True, False]
    assert _promising([-1, -2, -3, -4], spread) == [True] * 4


def test_first_of_equal_candidates_stays(seed):
    log_density = _log_density(seed)
    with_copies = np.column_stack([log_density, log_density[:, [2, 0]] + 1e-9])
    actual = useful_candidates(with_copies, np.ones(ROWS), np.ones(CANDIDATES + 2))
    assert actual.tolist() == [True] * CANDIDATES + [False] * 2
    # They differ in a single row.
    with_copies[3, -1] += 0.1
    assert useful_candidates(with_copies, np.ones(ROWS), np.ones(CANDIDATES + 2))[-1]


def test_likeliest_candidate_depends_on_the_weights():
    log_density = np.array([[0.0, -9.0], [-9.0, 0.0]])
    constant = np.zeros(2)
    for weights, first in (([3.0, 1.0], True), ([1.0, 3.0], False)):
        actual = useful_candidates(log_density, np.array(weights), constant)
        assert actual.tolist() == [first, not first]


def test_candidate_with_the_only_density_in_a_row_is_kept(seed):
    """Its weight, about 1 / rows, is below the smallest weight."""
    random = np.random.default_rng(seed)
    n_rows = 150
    log_density = random.normal(scale=0.01, size=(n_rows, 3)) - [0.0, 3.0, 4.0]
    without = sparse_stacking_weights(log_density, np.ones(n_rows))
    np.testing.assert_array_equal(without > 0, [True, False, False])
    log_density[7, 0] = -800.0
    weights = sparse_stacking_weights(log_density, np.ones(n_rows))
    np.testing.assert_array_equal(weights > 0, [True, True, False])
    assert weights[1] < MIN_WEIGHT


def test_the_table_has_the_crps_of_each_candidate(seed):
    """Of held-out rows, in standard deviations of y."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(70, 3))
    y = 20 + 6 * X[:, 0] + random.normal(size=70)
    # At most 20 draws are used.
    network = MCDropoutRegressor(**QUICK | {"max_iter": 60, "n_draws": 7})
    model = BayesianStackingRegressor([("network", network)], cv=KFold(2)).fit(X, y)
    scores = [
        open_predictive(fold_model, X[test]).whole().crps(y[test])
        for (_, test), [fold_model] in zip(
            KFold(2).split(X), model.fold_estimators_, strict=True
        )
    ]
    expected = np.concatenate(scores).mean() / y.std()
    assert model.weights_["crps"]["network"] == pytest.approx(expected, rel=1e-6)
