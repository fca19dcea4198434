"""Blundell et al. 2015, tables 1 and 2 and figure 3: MNIST, weights and pruning.

The paper has the test error of networks with two layers of 400, 800 and 1,200 units:
plain, with dropout, and by Bayes by Backprop with a Gaussian prior and a mixture of
two. The mixture and dropout are the best, a Gaussian prior is no better than a plain
network. The weights of Bayes by Backprop spread more than other weights. Three quarters
of them can be removed by their signal-to-noise ratio at no cost, 98 % for .15 % of
error.

Here a sixth of MNIST is learned (10,000 images), with smaller networks. Errors are
larger, so that only their order can be compared.
"""

import sys
from copy import copy

import matplotlib.pyplot as plt
import numpy as np
from side_by_side import BLUE, GREEN, GREY, ORANGE, Report, mnist, run, save

from skbayesnn import BBBClassifier, MCDropoutClassifier

# Test errors in per cent of the paper's table 1, by 400, 800 and 1,200 units, and of
# table 2, by the share of weights that is removed. From memory, not checked again.
PUBLISHED = {
    "plain": (1.83, 1.84, 1.88),
    "dropout": (1.51, 1.33, 1.36),
    "Bayes by Backprop, Gaussian": (1.82, 1.99, 2.04),
    "Bayes by Backprop, mixture": (1.36, 1.34, 1.32),
}
PRUNED = {0.0: 1.24, 0.5: 1.24, 0.75: 1.24, 0.95: 1.29, 0.98: 1.39}
COLORS = dict(zip(PUBLISHED, (GREY, GREEN, ORANGE, BLUE), strict=True))


def main(quick):
    """Errors by method and width, spread of the weights, errors after pruning."""
    X, y, X_test, y_test = mnist(*((300, 100) if quick else (None, None)))
    units = (10, 20, 30) if quick else (100, 200, 400)
    report = Report(
        "Blundell et al. (2015), tables 1 and 2, figure 3, MNIST.",
        f"{len(X):,} training images (60,000 in the paper), {len(X_test):,} test "
        f"images, two layers of {', '.join(map(str, units))} units (400, 800, 1,200), "
        "Adam in place of SGD, 60 epochs (600), one seed. One standard error of an "
        f"error of 3 % is {100 * np.sqrt(0.03 * 0.97 / len(X_test)):.1f} %. Published "
        "errors are quoted from memory.",
    )
    errors, models = {}, {}
    for width in units:
        for name, model in methods(width, quick).items():
            models[name] = model.fit(X, y)
            errors[name, width] = 100 * (1 - model.score(X_test, y_test))
            print(name, width, f"{errors[name, width]:.2f}", file=sys.stderr)
    for name, theirs in PUBLISHED.items():
        of_widths = [f"{errors[name, width]:.2f}" for width in units]
        report.show(
            f"error in %, {name}",
            ", ".join(f"{value:.2f}" for value in theirs),
            ", ".join(of_widths),
        )
    mean = {name: np.mean([errors[name, w] for w in units]) for name in PUBLISHED}
    plain, dropout, gaussian, mixture = PUBLISHED
    for better, worse in ((dropout, plain), (mixture, plain), (mixture, gaussian)):
        report.statement(
            f"lower error, mean over widths: {better} than {worse}",
            f"{mean[better]:.2f} against {mean[worse]:.2f}",
            mean[better] < mean[worse],
            tolerance="lower",
        )
    weights = {name: drawn_weights(models[name]) for name in (plain, dropout, mixture)}
    spread = {name: values.std() for name, values in weights.items()}
    report.statement(
        "weights (draws) spread most in Bayes by Backprop, then dropout, then plain",
        ", ".join(f"{name} {value:.3f}" for name, value in spread.items()),
        spread[mixture] > spread[dropout] > spread[plain],
        tolerance="order",
    )
    pruned = {
        share: 100 * (1 - copy(models[mixture]).prune(share).score(X_test, y_test))
        for share in PRUNED
    }
    for share, error in pruned.items():
        if share:
            report.number(
                f"error with {share:.0%} of the weights removed, minus with none, %",
                PRUNED[share] - PRUNED[0.0],
                error - pruned[0.0],
                0.3,
                ".2f",
            )
    draw(errors, units, weights, pruned, quick)
    return report


def methods(width, quick):
    """Networks of the paper's table."""
    common = {
        "standardize": False,
        "batch_size": 128,
        "learning_rate_init": 0.002,
        "max_iter": 1 if quick else 60,
        "n_draws": 3 if quick else 30,
        "random_state": 0,
    }
    sizes = (width, width)
    # One draw of the weights for a batch, as in the paper.
    bbb = common | {"gradient": "pathwise"}
    mixture = {"prior": "scale_mixture", "kl": "sampled", "pi": 0.5, "s2": np.exp(-6)}
    networks = (
        MCDropoutClassifier(sizes, dropout=0, length_scale=0, **common),
        MCDropoutClassifier(sizes, dropout=(0.2, 0.5, 0.5), length_scale=0, **common),
        BBBClassifier(sizes, **bbb),
        BBBClassifier(sizes, **bbb, **mixture),
    )
    return dict(zip(PUBLISHED, networks, strict=True))


def drawn_weights(model):
    """A draw of all weights, without biases; of dropout the weights themselves."""
    random = np.random.default_rng(0)
    values = []
    for name, mean in model.parameters_.items():
        if name.endswith("/mean"):
            rho = model.parameters_.get(name.replace("/mean", "/rho"))
            std = 0.0 if rho is None else np.logaddexp(0, rho)
            values.append((mean + std * random.normal(size=mean.shape)).ravel())
    return np.concatenate(values)


def draw(errors, units, weights, pruned, quick):
    """Errors by width, histograms of the weights, errors after pruning."""
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    for name, color in COLORS.items():
        of_widths = [errors[name, width] for width in units]
        axes[0].plot(units, of_widths, "o-", color=color, label=name)
    axes[0].set(xlabel="units of both layers", ylabel="test error, %", xticks=units)
    axes[0].legend(frameon=False, fontsize=9)
    bins = np.linspace(-0.3, 0.3, 121)
    for name, values in weights.items():
        axes[1].hist(
            values, bins, density=True, histtype="step", color=COLORS[name], label=name
        )
    axes[1].set(xlabel="weight", ylabel="density", yscale="log")
    axes[1].legend(frameon=False, fontsize=9)
    kept = [100 * (1 - share) for share in pruned]
    axes[2].plot(kept, pruned.values(), "o-", color=BLUE, label="10,000 images, here")
    axes[2].plot(kept, PRUNED.values(), "o-", color=GREY, label="published, MNIST")
    axes[2].set(xlabel="weights left, %", ylabel="test error, %", xscale="log")
    axes[2].invert_xaxis()
    axes[2].legend(frameon=False, fontsize=9)
    save(figure, "blundell2015_mnist.png", quick)


if __name__ == "__main__":
    run(main)
