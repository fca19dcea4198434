"""The noise of y, made anew of the residuals once the weights are trained.

A tau that is learned with the weights by eq. 1 is that of the residuals of single
draws, on the rows that the weights were fitted to. These are too small by what the
weights have taken up; and under masks at a given rate they are too large by the masks'
spread, which predictions add to the noise once more. Where q(W) has no width of its own
that is learned, the noise is made as in linear smoothing [Hastie & Tibshirani 1990,
section 3.5]:

      sigma^2 = (sum_n w_n (y_n - E_q f(x_n))^2 + s^2) / (N - gamma + 1)

gamma is the effective number of parameters [MacKay 1992, "Bayesian interpolation"], the
trace of K (K + sigma_0^2 / w)^-1 with sigma_0 the noise that the weights were trained
under and K the covariance of f over the rows under the prior, to first order about E W.
s^2 is the variance of y, which counts as one row: a network that interpolates its rows
leaves no residuals to go by.

A noise that depends on the row is multiplied by what this says of its standardised
residuals.
"""

from dataclasses import replace

import numpy as np
import torch

from skbayesnn._engine.config import Rows, TrainingConfig
from skbayesnn._engine.posterior import Posterior, mean_weights
from skbayesnn._families import Params

# Rows whose residuals are looked at, and the draws whose mean is taken there. A draw is
# off in the same direction on many rows: many rows do not stand for many draws.
_RESIDUALS, _DRAWS = 2000, 50
# Units of all these, at most: a convolutional network is asked of fewer rows.
_UNITS = 1 << 30
# Rows that gamma is the trace over: all, or so many that stand for them, fewer of many
# rows. It then comes out too small, by 15 % of 2,000 rows and by more of more, of which
# it is a smaller share: the noise by 3 %.
# Targets are taken together as far as so many numbers allow; the weights that groups of
# them share count in each.
_MOST_TRACED, _FEWEST_TRACED, _ROWS_TIMES_TRACED = 700, 350, 1_400_000
# Slopes in the weights that are held for the trace.
_SLOPES = 1 << 25
# The precision of a prior that is flat.
_FLAT = 1e-9
# Of the products that ones are added to.
_LARGEST_TRACE = 1e10
# Numbers that are held at once.
_NUMBERS = 1 << 22


def with_residual_variance(
    plan: TrainingConfig,
    rows: Rows,
    posterior: Posterior,
    curvature: list[Params] | None,
) -> Posterior:
    """The posterior with the noise of the residuals, where they say it.

    That is where the likelihood's noise is learned of residuals and q's width is given;
    where the training has ended with the weights at their mode, as it does not with
    early stopping; and where the rows are all that were seen, and bear no noise of the
    members' own.

    curvature : of the KL, like the parameters; None where it is not quadratic
    """
    likelihood = plan.likelihood
    if not (
        plan.asks_residuals
        and likelihood.gaussian_targets
        and likelihood.predictive_params
        and curvature is not None
    ):
        return posterior
    squares, level, of_y = _residuals(plan, rows, posterior)
    gamma = _effective_parameters(rows, posterior, curvature)
    n_rows = _exact(rows.total_weight).unsqueeze(1).cpu()
    factor = (squares + of_y / level) / (n_rows - gamma + 1)
    # Weights that are far from their mode leave residuals that are no noise.
    factor = torch.minimum(factor, torch.maximum(of_y / level, squares / n_rows))
    return posterior.with_predictive_params(
        {"log_factor": factor.nan_to_num(1.0).log()}
    )


def _some_rows(rows: Rows, most: int | np.ndarray):
    """x, y and weights of some rows of every member; the weights sum to N.

    All of them, or so many in proportion to their weights, drawn without regard to
    their order. Members with fewer rows than others have more of weight zero.

    most : of each member, or of all
    """
    own = np.minimum(rows.n_rows, most)
    alike = rows.weights is None and (rows.n_rows == rows.n_rows[0]).all()
    given = np.ones((1, rows.n_rows.max()))
    if rows.weights is not None:
        given = torch.as_tensor(rows.weights).cpu().double().numpy()
    size = int(own.max())
    chosen, share = (np.zeros((len(own), size)) for _ in range(2))
    for i, (n, k) in enumerate(zip(rows.n_rows, own, strict=True)):
        chosen[i, :k], share[i, :k] = _drawn(given[i % len(given), :n], k)
    order = torch.as_tensor(chosen[:1] if alike else chosen, dtype=torch.int64)
    x, y, _ = next(iter(rows.batches(order.to(rows.mean_weight.device), size)))
    share /= share.sum(1, keepdims=True)
    total = _exact(rows.total_weight).unsqueeze(1)
    return x, y, torch.as_tensor(share, device=total.device) * total


def _drawn(weights: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of k rows, and their weights: all rows, or a systematic sample."""
    if k == len(weights):
        return np.arange(k), weights
    order = np.random.default_rng(len(weights)).permutation(len(weights))
    levels = np.cumsum(weights[order])
    steps = (np.arange(k) + 0.5) / k * levels[-1]
    places = order[np.searchsorted(levels, steps).clip(max=len(order) - 1)]
    return places, np.ones(k)


def _parts(n_members: int, numbers_of_one: int):
    """Members, so many at a time."""
    step = max(1, _NUMBERS // numbers_of_one)
    for start in range(0, n_members, step):
        yield np.arange(start, min(start + step, n_members))


def _exact(values: torch.Tensor) -> torch.Tensor:
    """In double precision, where the device has it or else on the CPU."""
    device = "cpu" if values.device.type == "mps" else values.device
    return values.to(device, torch.float64)


def _of(values: torch.Tensor, members: np.ndarray) -> torch.Tensor:
    """Some members' share of what may be the same for all."""
    return values if len(values) == 1 else values[torch.as_tensor(members)]


def _residuals(plan: TrainingConfig, rows: Rows, posterior: Posterior):
    """sum_n w_n (y_n - E f_n)^2 / v_n, the mean of v, and the variance of y.

    v is the variance of the noise so far. What a mean of few draws adds to the squares
    is taken off.

    returns : (members, targets) each
    """
    n_draws, network = posterior.distinct_draws(_DRAWS), plan.network
    most = min(_RESIDUALS, max(1, _UNITS // (n_draws * network.n_units)))
    x, y, weights = _some_rows(rows, most)
    squares, levels, of_y = [], [], []
    numbers = n_draws * x.shape[1] * network.widest
    for part in _parts(posterior.n_members, numbers):
        one, w = posterior.select(part), _of(weights, part).unsqueeze(2)
        outputs = one.outputs_of(_of(x, part), n_draws)
        mean, variance = map(_exact, one.components(outputs))
        noise = variance.mean(0)
        targets = _exact(_of(y, part))
        square = (targets - mean.mean(0)).square()
        if n_draws > 1:
            square -= mean.var(0) / n_draws
        squares.append((w * square / noise).sum(1).clamp(min=0))
        total = w.sum(1)
        levels.append((w * noise).sum(1) / total)
        apart = targets - ((w * targets).sum(1) / total).unsqueeze(1)
        of_y.append((w * apart.square()).sum(1) / total)
    return tuple(torch.cat(parts).cpu() for parts in (squares, levels, of_y))


def _effective_parameters(
    rows: Rows, posterior: Posterior, curvature: list[Params]
) -> torch.Tensor:
    """gamma of every member and target, (members, targets)."""
    n_targets = posterior.likelihood.gaussian_targets
    most = (_ROWS_TIMES_TRACED // rows.n_rows).clip(_FEWEST_TRACED, _MOST_TRACED)
    jacobian_size = posterior.network.jacobian_size
    x, _, weights = _some_rows(rows, most.clip(max=max(1, _SLOPES // jacobian_size)))
    together = min(n_targets, _MOST_TRACED // x.shape[1])
    together = max(1, min(together, _SLOPES // (x.shape[1] * jacobian_size)))
    groups = [
        slice(start, min(start + together, n_targets))
        for start in range(0, n_targets, together)
    ]
    variances = _prior_variances(posterior, curvature)
    gammas = []
    for part in _parts(posterior.n_members, (x.shape[1] * together) ** 2):
        one, of_part = posterior.select(part), torch.as_tensor(part)
        weights_of_mean = mean_weights(one)
        outputs = one.network.apply(weights_of_mean, _of(x, part))
        noise = _exact(one.components(outputs)[1][0])
        of_rows, of_x = _of(weights, part).unsqueeze(2), _exact(_of(x, part))
        exact = [tuple(map(_exact, of_group)) for of_group in weights_of_mean]
        wide = [(_exact(v[of_part]), _exact(b[of_part])) for v, b in variances]
        of_groups = []
        for group in groups:
            root = (of_rows / noise[..., group]).sqrt().mT.flatten(1)
            kernel = one.network.tangent_kernel(exact, wide, of_x, group)
            traces = _traces(root, kernel).unflatten(1, (-1, x.shape[1]))
            # No row takes up more than there is of it.
            of_groups.append(torch.minimum(traces, of_rows.mT.to(traces)).sum(2))
        gammas.append(torch.cat(of_groups, dim=1))
    return torch.cat(gammas).cpu()


def _traces(root: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """Diagonal of A (A + I)^-1 for A = diag(root) K diag(root), (members, rows).

    The kernel is overwritten.
    """
    product = kernel.mul_(root.unsqueeze(2)).mul_(root.unsqueeze(1))
    # As far as double precision can tell products from ones.
    trace = product.diagonal(dim1=1, dim2=2).sum(1)
    product.mul_((_LARGEST_TRACE / trace).clamp(max=1).view(-1, 1, 1))
    product.diagonal(dim1=1, dim2=2).add_(1)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(product).L)
    return 1 - inverse.diagonal(dim1=1, dim2=2)


def _prior_variances(posterior: Posterior, curvature: list[Params]):
    """Variances of E W and E b under the prior, per group, (members,) each.

    E W is a multiple of the mean parameters. A flat prior is one that is wide.
    """
    layers = [
        params | {"mean": torch.ones_like(params["mean"])}
        for params in posterior.layers
    ]
    multiples = mean_weights(replace(posterior, layers=layers))
    found = []
    for (multiple, *_), of_kl in zip(multiples, curvature, strict=True):
        of_mean, of_bias = (
            1 / _first(of_kl[name]).clamp(min=_FLAT) for name in ("mean", "bias")
        )
        found.append((_first(multiple[0]).square() * of_mean, of_bias))
    return found


def _first(values: torch.Tensor) -> torch.Tensor:
    """One number of every member, which stands for all, (members,)."""
    return values.flatten(1)[:, 0]
