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
# Predictions are constant whose standard deviation is less than this share of y's.
CONSTANT = 0.05
# With fewer rows a candidate is hopeless if its squared error is so many times the
# least. With more rows the weights are certain enough by themselves.
HOPELESS_BELOW, HOPELESS = 150, 3.0
# Log densities that are equal to rounding, nats.
EQUAL = 1e-6


def promising(
    log_density: np.ndarray,
    row_weights: np.ndarray,
    spread: np.ndarray,
    error: np.ndarray | None = None,
) -> np.ndarray:
    """Which candidates can have weight, (candidates,), bool.

    The prior of the weights, and one row that lies far off, would give some to each. In
    a mixture of a good candidate with a constant one, the difference between draws is
    the distance to the mean of y.

    - Constant predictions are left out, but for the likeliest one if no others are
      likelier.
    - Of equal candidates the first one stays.
    - With ``error``, candidates are left out whose error is ``HOPELESS`` times the
      least one, but for the likeliest.

    log_density : (rows, candidates); row_weights : (rows,)
    spread : (candidates,), standard deviation of predictions as a share of y's
    error : (candidates,), mean squared error, in any unit
    """
    mean = np.average(log_density, axis=0, weights=row_weights)
    best = int(mean.argmax())
    kept = spread >= CONSTANT
    kept[best] = True
    if error is not None:
        kept &= error <= HOPELESS * error[kept].min()
        kept[best] = True
    for i in np.flatnonzero(kept):
        others = log_density[:, :i][:, kept[:i]]
        apart = np.abs(others - log_density[:, [i]]).max(0, initial=0)
        kept[i] = not (apart <= EQUAL).any()
    return kept


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
