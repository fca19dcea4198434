"""Blundell et al. 2015, figure 5: a curve with and without uncertain weights.

Training points are y = x + .3 sin(2 pi (x + e)) + .3 sin(4 pi (x + e)) + e, e ~ N(0,
.02^2), for x between 0 and .5. In the paper, the quartiles of Bayes by Backprop are
narrow at the data and wide outside of them; a plain network predicts one curve, without
any doubt.
"""

import matplotlib.pyplot as plt
import numpy as np
from side_by_side import BLUE, GREY, ORANGE, Report, run, save

from skbayesnn import BBBRegressor, MCDropoutRegressor

NOISE = 0.02


def main(quick):
    """Width of the quartiles of the function, at the data and outside of them."""
    random = np.random.default_rng(0)
    x = random.uniform(0, 0.5, 40 if quick else 1000)
    e = random.normal(0, NOISE, len(x))
    y = x + 0.3 * np.sin(2 * np.pi * (x + e)) + 0.3 * np.sin(4 * np.pi * (x + e)) + e
    sizes = (10, 10) if quick else (100, 100)
    bbb = BBBRegressor(
        sizes,
        likelihood="gaussian",
        prior="scale_mixture",
        kl="sampled",
        gradient="pathwise",
        max_iter=5 if quick else 400,
        learning_rate_init=0.005,
        n_draws=20 if quick else 500,
        random_state=0,
    ).fit(x[:, None], y)
    plain = MCDropoutRegressor(
        sizes, dropout=0, max_iter=5 if quick else 400, random_state=0
    ).fit(x[:, None], y)

    line = np.linspace(-0.2, 1.2, 281)
    draws = bbb.sample_f(line[:, None], 20 if quick else 500)
    low, median, high = np.quantile(draws, (0.25, 0.5, 0.75), axis=1)
    width = high - low
    inside = (line > 0.05) & (line < 0.45)
    left, right = line <= -0.2, line >= 1.0
    at_data = width[inside].mean()
    report = Report(
        "Blundell et al. (2015), figure 5, regression of noisy data.",
        "As published: the function, the scale mixture prior, one draw of the weights "
        f"per step. The network (not in the paper): two layers of {sizes[0]}. "
        "Widths are between the quartiles of the function.",
    )
    for where, rows in (("at x >= 1", right), ("at x = -.2", left)):
        factor = width[rows].mean() / at_data
        report.statement(
            f"Bayes by Backprop: quartiles widen outside of the data, {where}",
            f"{width[rows].mean():.3f} against {at_data:.3f}, x {factor:.1f}",
            factor > 3,
            tolerance="x 3",
        )
    mean = plain.predict(line[:, None])
    truth = line + 0.3 * np.sin(2 * np.pi * line) + 0.3 * np.sin(4 * np.pi * line)
    error = np.abs(mean - truth)[right].mean()
    report.statement(
        "plain network: one curve, although it is wrong outside of the data",
        f"error at x >= 1 {error:.2f}, band 0",
        error > 3 * NOISE,
        tolerance="3 std of e",
    )
    covered = np.mean(np.abs(median - truth)[right] < 3 * (draws.std(1))[right])
    report.notes.append(
        f"Share of x >= 1 where the function is within three standard deviations of "
        f"Bayes by Backprop's mean: {covered:.0%}."
    )

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    axes[0].fill_between(line, draws.min(1), draws.max(1), color=BLUE, alpha=0.15, lw=0)
    axes[0].fill_between(line, low, high, color=BLUE, alpha=0.4, lw=0)
    axes[0].plot(line, median, color=BLUE, label="median, quartiles, all draws")
    axes[1].plot(line, mean, color=BLUE, label="prediction")
    for ax, title in zip(axes, ("Bayes by Backprop", "plain network"), strict=True):
        ax.plot(x, y, "x", color=GREY, ms=3, alpha=0.4, label="training rows")
        ax.plot(line, truth, color=ORANGE, ls="--", lw=1, label="without noise")
        ax.set(title=title, xlabel="x", ylim=(-1.2, 2.2))
        ax.legend(loc="upper left", frameon=False, fontsize=9)
    axes[0].set_ylabel("y")
    figure.tight_layout()
    save(figure, "blundell2015_regression.png", quick)
    return report


if __name__ == "__main__":
    run(main)
