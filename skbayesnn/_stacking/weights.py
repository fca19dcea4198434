"""Out-of-fold densities of the candidates -> their weights in the mixture.

Pure NumPy, float64.
"""

import numpy as np

# Rows that the prior counts as, each shared out among all candidates alike.
PRIOR_ROWS = 3.0
# Candidates with less weight are left out.
SMALLEST_WEIGHT = 0.02
# EM stops where no weights can have a mean log density that is higher by more, nats.
TOLERANCE = 1e-6
MOST_STEPS = 10_000


def stacking_weights(
    log_density: np.ndarray, row_weights: np.ndarray, prior_rows: float = PRIOR_ROWS
) -> np.ndarray:
    """Weights of the mixture that makes the rows the likeliest, (candidates,).

    Maximises sum_i v_i log sum_k w_k p_k(y_i | x_i) + a sum_k log w_k over the
    simplex [Yao, Vehtari, Simpson & Gelman 2018, "Using stacking to average Bayesian
    predictive distributions", Bayesian Analysis 13(3), eq. 4], with a Dirichlet prior
    of a = ``prior_rows`` / candidates: few rows do not give all to one candidate. It
    is concave; EM for the weights of a mixture gets there.

    log_density : (rows, candidates), log p_k(y_i | x_i) without row i's fold, nats
    row_weights : (rows,), v, not negative
    """
    n_candidates = log_density.shape[1]
    total = row_weights.sum()
    share, prior = row_weights / total, prior_rows / (n_candidates * total)
    # Relative to each row's best: a row that all deem impossible says nothing.
    best = log_density.max(1, keepdims=True)
    known = np.isfinite(best[:, 0])
    density = np.exp(log_density[known] - best[known])
    share = share[known]
    weights = np.full(n_candidates, 1 / n_candidates)
    for _ in range(MOST_STEPS):
        # Of the objective, divided by the total weight of the rows.
        gradient = (share / (density @ weights)) @ density + prior / weights
        weights_next = weights * gradient
        # A concave function lies below its tangents: so much may be left to gain.
        left = gradient.max() - weights_next.sum()
        weights = weights_next / weights_next.sum()
        if left < TOLERANCE:
            break
    return weights


def few_weights(log_density: np.ndarray, row_weights: np.ndarray) -> np.ndarray:
    """``stacking_weights`` of the candidates that get some, (candidates,).

    What has less than ``SMALLEST_WEIGHT`` gets none: it would be fitted to all rows for
    as much as the others cost.
    """
    weights = stacking_weights(log_density, row_weights)
    kept = weights >= min(SMALLEST_WEIGHT, weights.max())
    few = np.zeros_like(weights)
    few[kept] = stacking_weights(log_density[:, kept], row_weights)
    return few


def whole_numbers(weights: np.ndarray, total: int) -> np.ndarray:
    """Weights as whole numbers that sum to ``total``, by largest remainders."""
    exact = weights / weights.sum() * total
    numbers = np.floor(exact).astype(int)
    most = np.argsort(numbers - exact, kind="stable")[: total - numbers.sum()]
    numbers[most] += 1
    return numbers
