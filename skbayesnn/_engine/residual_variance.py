"""Estimate the observation noise variance from the residuals after the training.

A tau that is learned with the weights by eq. 1 is estimated from the residuals of
single draws on the training rows. These residuals are too small, because the weights
were fitted to the rows. Under dropout masks at a given rate they are also too large by
the variance of the masks, which predictions would then count twice. If the width of
q(W) is not learned, the variance is estimated as in linear smoothing [Hastie &
Tibshirani 1990, section 3.5]:

      sigma^2 = (sum_n w_n (y_n - E_q f(x_n))^2 + s^2) / (N - gamma + 1)

gamma is the effective number of parameters [MacKay 1992, "Bayesian interpolation"], the
trace of K (K + sigma_0^2 / w)^-1. sigma_0 is the noise std in the training. K is the
covariance of f over the rows under the prior, to first order about E W. s^2 is the
variance of y, which counts as one row: without it, a network that interpolates its rows
would have no noise.

For a variance that depends on the row, the same estimate on standardised residuals is a
factor of the variance.
"""

from dataclasses import replace

import numpy as np
import torch

from skbayesnn._engine.config import MemberRows, TrainingConfig
from skbayesnn._engine.members import select
from skbayesnn._engine.posterior import Posterior, mean_weights
from skbayesnn._families import Params

# Largest number of rows whose residuals are computed.
_MAX_ROWS = 2000
# Posterior draws per row. The errors of a draw are correlated between rows, so more
# rows do not replace draws.
_N_DRAWS = 50
# Limit of rows * draws * units; convolutional networks use fewer rows.
_MAX_UNITS = 1 << 30
# gamma is a trace over all rows, or over a sample of the rows. A sample underestimates
# gamma, by 15 % at 2,000 rows and by more with more rows. But gamma is then a small
# share of N, and the error of the variance is 3 %.
# Largest number of rows in the trace.
_MAX_TRACED_ROWS = 700
# Smallest number of rows in the trace, if the table has as many.
_MIN_TRACED_ROWS = 350
# The rows of the trace times the rows of the table are at most this, between the bounds
# above.
_ROWS_TIMES_TRACED_ROWS = 1_400_000
# Largest number of values of the Jacobian with respect to the weights that are in
# memory at once. Targets form groups within this limit. A weight that several groups
# share counts in each group.
_MAX_JACOBIAN_SIZE = 1 << 25
# Precision that replaces the zero of a flat prior.
_FLAT_PRECISION = 1e-9
# Largest trace of a kernel matrix before the identity is added to it.
_MAX_TRACE = 1e10
# Values that are in memory at once.
_MAX_VALUES = 1 << 22


def with_residual_variance(
    config: TrainingConfig,
    rows: MemberRows,
    posterior: Posterior,
    curvature: list[Params] | None,
) -> Posterior:
    """Set the observation noise variance from the residuals, if they are suitable.

    This requires ``config.uses_residuals``, a Gaussian likelihood that learns its
    variance, and a quadratic KL. Otherwise the posterior is returned unchanged.

    curvature : second derivatives of the KL, one per parameter; None if it is not
        quadratic
    """
    likelihood = config.likelihood
    if not (
        config.uses_residuals
        and likelihood.gaussian_targets
        and likelihood.predictive_params
        and curvature is not None
    ):
        return posterior
    chi_squares, noise_level, y_variance = _residuals(config, rows, posterior)
    gamma = _effective_parameters(rows, posterior, curvature)
    n_rows = _float64(rows.total_weight).unsqueeze(1).cpu()
    factor = (chi_squares + y_variance / noise_level) / (n_rows - gamma + 1)
    # If the weights are far from their mode, the residuals are not noise.
    ceiling = torch.maximum(y_variance / noise_level, chi_squares / n_rows)
    factor = torch.minimum(factor, ceiling)
    return posterior.with_predictive_params(
        {"log_factor": factor.nan_to_num(1.0).log()}
    )


def _some_rows(rows: MemberRows, max_rows: int | np.ndarray):
    """x, y and weights of up to ``max_rows`` rows per member; the weights sum to N.

    A sample is drawn in proportion to the row weights, independent of the order of the
    rows. Members with fewer rows than others are padded with rows of weight zero.

    max_rows : (members,), or one value for all
    """
    n_used = np.minimum(rows.n_rows, max_rows)
    same_rows = rows.weights is None and (rows.n_rows == rows.n_rows[0]).all()
    weights = np.ones((1, rows.n_rows.max()))
    if rows.weights is not None:
        weights = torch.as_tensor(rows.weights).cpu().double().numpy()
    size = int(n_used.max())
    indices, share = (np.zeros((len(n_used), size)) for _ in range(2))
    for i, (n, k) in enumerate(zip(rows.n_rows, n_used, strict=True)):
        indices[i, :k], share[i, :k] = _sample_rows(weights[i % len(weights), :n], k)
    order = torch.as_tensor(indices[:1] if same_rows else indices, dtype=torch.int64)
    x, y, *_ = next(iter(rows.batches(order.to(rows.mean_weight.device), size)))
    share /= share.sum(1, keepdims=True)
    total = _float64(rows.total_weight).unsqueeze(1)
    return x, y, torch.as_tensor(share, device=total.device) * total


def _sample_rows(weights: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights of k rows: all rows, or a systematic sample."""
    if k == len(weights):
        return np.arange(k), weights
    order = np.random.default_rng(len(weights)).permutation(len(weights))
    cumulative = np.cumsum(weights[order])
    levels = (np.arange(k) + 0.5) / k * cumulative[-1]
    indices = order[np.searchsorted(cumulative, levels).clip(max=len(order) - 1)]
    return indices, np.ones(k)


def _member_chunks(n_members: int, values_per_member: int):
    """Iterate over chunks of member indices, within the memory limit."""
    step = max(1, _MAX_VALUES // values_per_member)
    for start in range(0, n_members, step):
        yield np.arange(start, min(start + step, n_members))


def _float64(values: torch.Tensor) -> torch.Tensor:
    """Convert to float64, on the CPU if the device does not support it."""
    device = "cpu" if values.device.type == "mps" else values.device
    return values.to(device, torch.float64)


def _residuals(config: TrainingConfig, rows: MemberRows, posterior: Posterior):
    """sum_n w_n (y_n - E f_n)^2 / v_n, the mean of v, and the variance of y.

    v is the present noise variance. The Monte Carlo variance of the mean over draws is
    subtracted from the squares.

    returns : (members, targets) each
    """
    n_draws, network = posterior.distinct_draws(_N_DRAWS), config.network
    max_rows = min(_MAX_ROWS, max(1, _MAX_UNITS // (n_draws * network.n_units)))
    x, y, weights = _some_rows(rows, max_rows)
    chi_squares, noise_levels, y_variances = [], [], []
    values_per_member = n_draws * x.shape[1] * network.widest
    for part in _member_chunks(posterior.n_members, values_per_member):
        subset = posterior.select(part)
        x_part, y_part, w = select((x, y, weights), part, shared=True)
        w = w.unsqueeze(2)
        outputs = subset.outputs_of(x_part, n_draws)
        mean, variance = map(_float64, subset.components(outputs))
        noise_variance = variance.mean(0)
        targets = _float64(y_part)
        square = (targets - mean.mean(0)).square()
        if n_draws > 1:
            square -= mean.var(0) / n_draws
        chi_squares.append((w * square / noise_variance).sum(1).clamp(min=0))
        total = w.sum(1)
        noise_levels.append((w * noise_variance).sum(1) / total)
        deviation = targets - ((w * targets).sum(1) / total).unsqueeze(1)
        y_variances.append((w * deviation.square()).sum(1) / total)
    results = chi_squares, noise_levels, y_variances
    return tuple(torch.cat(parts).cpu() for parts in results)


def _effective_parameters(
    rows: MemberRows, posterior: Posterior, curvature: list[Params]
) -> torch.Tensor:
    """gamma of every member and target, (members, targets)."""
    n_targets = posterior.likelihood.gaussian_targets
    jacobian_size = posterior.network.jacobian_size
    max_rows = _ROWS_TIMES_TRACED_ROWS // rows.n_rows
    max_rows = max_rows.clip(_MIN_TRACED_ROWS, _MAX_TRACED_ROWS)
    max_rows = max_rows.clip(max=max(1, _MAX_JACOBIAN_SIZE // jacobian_size))
    x, _, weights = _some_rows(rows, max_rows)
    n_rows = x.shape[1]
    group_size = min(
        n_targets,
        _MAX_TRACED_ROWS // n_rows,
        _MAX_JACOBIAN_SIZE // (n_rows * jacobian_size),
    )
    group_size = max(1, group_size)
    groups = [
        slice(start, min(start + group_size, n_targets))
        for start in range(0, n_targets, group_size)
    ]
    variances = _prior_variances(posterior, curvature)
    gammas = []
    for part in _member_chunks(posterior.n_members, (n_rows * group_size) ** 2):
        subset, index = posterior.select(part), torch.as_tensor(part)
        mean_draw = mean_weights(subset)
        x_part, row_weights = select((x, weights), part, shared=True)
        outputs = subset.network.apply(mean_draw, x_part)
        noise_variance = _float64(subset.components(outputs)[1][0])
        row_weights, x_part = row_weights.unsqueeze(2), _float64(x_part)
        mean_params = [tuple(map(_float64, pair)) for pair in mean_draw]
        prior_variances = [
            (_float64(v[index]), _float64(b[index])) for v, b in variances
        ]
        group_gammas = []
        for group in groups:
            root = (row_weights / noise_variance[..., group]).sqrt().mT.flatten(1)
            kernel = subset.network.tangent_kernel(
                mean_params, prior_variances, x_part, group
            )
            traces = _row_traces(root, kernel).unflatten(1, (-1, n_rows))
            # A row of weight w uses at most w parameters.
            group_gammas.append(torch.minimum(traces, row_weights.mT.to(traces)).sum(2))
        gammas.append(torch.cat(group_gammas, dim=1))
    return torch.cat(gammas).cpu()


def _row_traces(root: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """Diagonal of A (A + I)^-1 for A = diag(root) K diag(root), (members, rows).

    The kernel is overwritten.
    """
    product = kernel.mul_(root.unsqueeze(2)).mul_(root.unsqueeze(1))
    # Scale A down so that adding I does not vanish in double precision.
    trace = product.diagonal(dim1=1, dim2=2).sum(1)
    product.mul_((_MAX_TRACE / trace).clamp(max=1).view(-1, 1, 1))
    product.diagonal(dim1=1, dim2=2).add_(1)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(product).L)
    return 1 - inverse.diagonal(dim1=1, dim2=2)


def _prior_variances(posterior: Posterior, curvature: list[Params]):
    """Variances of E W and E b under the prior, per group, (members,) each.

    E W is a multiple of the mean parameters. A flat prior is treated as a wide one.
    """
    layers = [
        params | {"mean": torch.ones_like(params["mean"])}
        for params in posterior.layers
    ]
    multiples = mean_weights(replace(posterior, layers=layers))
    variances = []
    for (multiple, *_), group_curvature in zip(multiples, curvature, strict=True):
        mean_variance, bias_variance = (
            1 / _first_value(group_curvature[name]).clamp(min=_FLAT_PRECISION)
            for name in ("mean", "bias")
        )
        mean_variance = _first_value(multiple[0]).square() * mean_variance
        variances.append((mean_variance, bias_variance))
    return variances


def _first_value(values: torch.Tensor) -> torch.Tensor:
    """First value of every member, which represents all of its values, (members,)."""
    return values.flatten(1)[:, 0]
