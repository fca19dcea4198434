"""Blundell et al. 2015, tables 1 and 2 and figure 3: MNIST, weights and pruning.

The paper has the test error of networks with two layers of 400, 800 and 1,200 units:
plain, with dropout, and by Bayes by Backprop with a Gaussian prior and a mixture of
two. The mixture and dropout are the best, a Gaussian prior is no better than a plain
network. The weights of Bayes by Backprop spread more than other weights. Three quarters
of them can be removed by their signal-to-noise ratio at no cost, 98 % for .15 % of
error.

Here only the smallest of these networks is trained, for half of the epochs.
"""

import sys
from copy import copy

import matplotlib.pyplot as plt
import numpy as np
from side_by_side import BLUE, GREEN, GREY, ORANGE, Report, mnist, run, save

from skbayesnn import BBBClassifier, MCDropoutClassifier

# Test errors in per cent of the paper's table 1, with 400 units, and of table 2, by the
# share of weights that is removed, with 1,200. From memory, not checked again.
PUBLISHED = {
    "plain": 1.83,
    "dropout": 1.51,
    "Bayes by Backprop, Gaussian": 1.82,
    "Bayes by Backprop, mixture": 1.36,
}
PRUNED = {0.0: 1.24, 0.5: 1.24, 0.75: 1.24, 0.95: 1.29, 0.98: 1.39}
COLORS = dict(zip(PUBLISHED, (GREY, GREEN, ORANGE, BLUE), strict=True))


def main(quick):
    """Errors by method, spread of the weights, errors after pruning."""
    X, y, X_test, y_test = mnist(*((300, 100) if quick else (None, None)))
    units, epochs = (20, 1) if quick else (400, 300)
    error_of = np.sqrt(0.015 * 0.985 / len(X_test))
    report = Report(
        "Blundell et al. (2015), tables 1 and 2, figure 3, MNIST.",
        f"{len(X):,} training images (60,000 in the paper), {len(X_test):,} test "
        f"images, two layers of {units} units (400, 800, 1,200), batches of 128, Adam "
        f"in place of SGD, {epochs} epochs (600), one seed. The step was chosen on "
        "10,000 of the training images. One standard error of an error of 1.5 % is "
        f"{100 * error_of:.2f} %. Published errors are quoted from memory.",
    )
    errors, models = {}, {}
    for name, model in methods(units, epochs, quick).items():
        models[name] = model.fit(X, y)
        errors[name] = 100 * (1 - model.score(X_test, y_test))
        print(name, f"{errors[name]:.2f}", file=sys.stderr)
        # Two networks with this error differ by more in one of twenty cases.
        tolerance = 100 * 1.96 * np.sqrt(2) * error_of
        report.number(
            f"error in %, {name}",
            PUBLISHED[name],
            errors[name],
            tolerance,
            ".2f",
            higher=False,
        )
    plain, dropout, gaussian, mixture = PUBLISHED
    for better, worse in ((dropout, plain), (mixture, plain), (mixture, gaussian)):
        report.statement(
            f"lower error: {better} than {worse}",
            f"{errors[better]:.2f} against {errors[worse]:.2f}",
            errors[better] < errors[worse],
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
    draw(errors, weights, pruned, quick)
    return report


def methods(width, epochs, quick):
    """Networks of the paper's table."""
    common = {
        "standardize": False,
        "batch_size": 128,
        "learning_rate_init": 0.001,
        "max_iter": epochs,
        "n_draws": 3 if quick else 30,
        "random_state": 0,
    }
    sizes = (width, width)
    # One draw of the weights for a batch, as in the paper.
    bbb = common | {"gradient": "pathwise", "learning_rate_init": 0.002}
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


def draw(errors, weights, pruned, quick):
    """Errors by method, histograms of the weights, errors after pruning."""
    figure, axes = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    places = np.arange(len(errors))
    axes[0].plot(places - 0.1, PUBLISHED.values(), "o", color=GREY, label="published")
    axes[0].plot(places + 0.1, errors.values(), "o", color=BLUE, label="here")
    axes[0].set_xticks(places, [name.replace(", ", ",\n") for name in errors])
    axes[0].set(ylabel="test error, %", ylim=(0, None))
    axes[0].tick_params(axis="x", labelsize=8)
    axes[0].legend(frameon=False, fontsize=9)
    bins = np.linspace(-0.3, 0.3, 121)
    for name, values in weights.items():
        axes[1].hist(
            values, bins, density=True, histtype="step", color=COLORS[name], label=name
        )
    axes[1].set(xlabel="weight", ylabel="density", yscale="log")
    axes[1].legend(frameon=False, fontsize=9)
    kept = [100 * (1 - share) for share in pruned]
    axes[2].plot(kept, pruned.values(), "o-", color=BLUE, label="here")
    axes[2].plot(kept, PRUNED.values(), "o-", color=GREY, label="published, MNIST")
    axes[2].set(xlabel="weights left, %", ylabel="test error, %", xscale="log")
    axes[2].invert_xaxis()
    axes[2].legend(frameon=False, fontsize=9)
    save(figure, "blundell2015_mnist.png", quick)


if __name__ == "__main__":
    run(main)
