"""How long do exact quantiles of the predictive mixture take, and is its CRPS right?

Quantiles of 100,000 rows with 100 draws each, by root finding on the distribution
function and by drawing y and sorting: seconds, and the root mean squared error in units
of the predictive standard deviation (of drawing: from root finding; of root finding:
the distance of F(quantile) from the level over the density). Then the largest
difference of our CRPS from ``scoringrules``.

    python benchmarks/mixtures.py --clock cpu
"""

import argparse
from functools import partial

import numpy as np
import scoringrules
import torch
from common import CLOCKS, environment, interleaved, ratio, table
from scipy.special import ndtr

from skbayesnn._distributions.crps import gaussian_mixture_crps
from skbayesnn._distributions.quantiles import intervals, mixture_quantile

LEVELS = (0.05, 0.5, 0.95)
CRPS_ROWS, CRPS_DRAWS = 2_000, 100


def components(n_rows: int, n_draws: int, seed: int = 0):
    """Means and variances, (draws, rows, 1), with small to large epistemic shares."""
    random = np.random.default_rng(seed)
    epistemic = random.uniform(0, 2, (n_rows, 1))
    mean = epistemic * random.standard_normal((n_draws, n_rows, 1))
    return mean, random.lognormal(-1, 0.5, mean.shape)


def drawn(mean, variance, levels, n_per_draw: int):
    """Quantiles of values drawn from every component, (levels, rows, 1)."""
    random = np.random.default_rng(1)
    samples = np.concatenate(
        [
            mean + np.sqrt(variance) * random.standard_normal(mean.shape)
            for _ in range(n_per_draw)
        ]
    )
    samples.sort(axis=0)
    ranks = (np.array(levels) * len(samples)).astype(int)
    return samples[ranks]


def quantile_table(n_rows, n_draws, repeats, clock) -> str:
    """Seconds and errors of all levels together."""
    mean, variance = components(n_rows, n_draws)
    total = np.sqrt(variance.mean(0) + mean.var(0))

    def exact():
        return np.stack([mixture_quantile(mean, variance, q) for q in LEVELS])

    cases = {"root finding": exact}
    for n in (1, 10):
        name = f"drawing {n * n_draws} values and sorting"
        cases[name] = partial(drawn, mean, variance, LEVELS, n)
    times = interleaved(cases, repeats, clock=clock)
    quantiles = exact()
    reached = np.stack(
        [ndtr((y - mean) / np.sqrt(variance)).mean(0) for y in quantiles]
    )
    density = np.stack(
        [
            (np.exp(-0.5 * (y - mean) ** 2 / variance) / np.sqrt(variance)).mean(0)
            for y in quantiles
        ]
    ) / np.sqrt(2 * np.pi)
    levels = np.array(LEVELS)[:, None, None]
    errors = {"root finding": (reached - levels) / density / total}
    for name in list(cases)[1:]:
        errors[name] = (cases[name]() - quantiles) / total
    first = times["root finding"]
    lines = [
        [
            name,
            f"{np.median(times[name]):.2f}",
            f"{ratio(times[name], first):.2f}",
            f"{np.sqrt(np.mean(np.square(errors[name]))):.1e}",
        ]
        for name in cases
    ]
    return table(["quantiles", "seconds", "times root finding", "rms error"], lines)


def interval_table(n_rows, n_draws, repeats, clock) -> str:
    """The table of times of equal-tailed and highest-density intervals."""
    mean, variance = components(n_rows, n_draws)
    quantile = partial(mixture_quantile, mean, variance)
    cases = {
        kind: partial(intervals, quantile, mean.shape[1:], [0.9], kind)
        for kind in ("equal_tailed", "highest_density")
    }
    times = interleaved(cases, repeats, clock=clock)
    base = times["equal_tailed"]
    lines = [
        [name, f"{np.median(times[name]):.2f}", f"{ratio(times[name], base):.0f}"]
        for name in cases
    ]
    return table(["90 % intervals", "seconds", "times equal-tailed"], lines)


def crps_difference() -> str:
    """Largest difference of our CRPS from crps_mixnorm on random mixtures."""
    mean, variance = components(CRPS_ROWS, CRPS_DRAWS, seed=2)
    y = 3 * np.random.default_rng(3).standard_normal((CRPS_ROWS, 1))
    ours = gaussian_mixture_crps(y, mean, variance)[:, 0]
    theirs = scoringrules.crps_mixnorm(
        y[:, 0], mean[..., 0].T, np.sqrt(variance[..., 0]).T
    )
    return (
        f"CRPS, {CRPS_ROWS} rows x {CRPS_DRAWS} draws, values {ours.min():.2f} to "
        f"{ours.max():.2f}: largest difference from scoringrules "
        f"{np.abs(ours - theirs).max():.1e}"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--rows", type=int, default=100_000)
    add("--draws", type=int, default=100)
    add("--repeats", type=int, default=3)
    add("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(environment())
    print(f"{options.rows} rows x {options.draws} draws, {options.clock} clock")
    sizes = options.rows, options.draws, options.repeats, options.clock
    print(quantile_table(*sizes))
    print()
    print(interval_table(options.rows // 50, *sizes[1:]))
    print(crps_difference())


if __name__ == "__main__":
    main()
