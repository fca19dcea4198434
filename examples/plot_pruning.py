"""How many weights can be removed, and which posterior ranks them best?
=====================================================================

Left: the test error against the share of weights that is left, on scikit-learn's
digits. Bayes by Backprop removes the weights with the lowest signal to noise [Blundell
et al. 2015, section 5.1: on MNIST three quarters at no cost, 95 % for .1 %, 98 % for
.15 % of error, with 1,200 units a layer]. Variational dropout of type A, with a
variance for every weight, removes weights that are mostly noise [Molchanov et al. 2017:
98 % at no cost]. MC dropout has no such order and removes the smallest weights.

Right: the error against the width of both hidden layers, for variational dropout of
both types, Gaussian and Bernoulli dropout at one half, and no noise. [Kingma et al.
2015, figure 1] results on MNIST that the types are as good as, or better than, Gaussian
dropout at given rates, type A most of all in small networks.

Results: three quarters of the weights can be removed at no cost in either order, nine
tenths for one point of error. Below that, the learned noise ranks best: variational
dropout starts with more error and keeps it down to 1.3 % of the weights, its own
threshold; with 5 % left, signal to noise has a third of the error of size. On the
right, type B is the best at every width, half a point to a point below no noise. Type
A, which prunes during training, is worse, and dropout at one half needs wide layers.

Writes examples/output/pruning.png and prints the errors.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skbayesnn import BBBClassifier, MCDropoutClassifier, VariationalDropoutClassifier

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
PINK = "#CC79A7"

SEEDS = size((0, 1, 2), short=(0,))
WIDTH = size(200, short=20)
MAX_ITER = size(60, short=4)
SHARES = (0.0, 0.5, 0.75, 0.9, 0.95, 0.98)
THRESHOLDS = (4.0, 3.0, 1.0, 0.0, -1.0, -2.0)
WIDTHS = size((10, 20, 50, 100, 200), short=(5, 10))


def main():
    """Both halves, and the picture."""
    # Some pixels are dark in all training images; they share one scale.
    warnings.filterwarnings("ignore", r"\d+ columns of X are constant")
    data = [digits(seed) for seed in SEEDS]
    left = pruned(data)
    print_pruned(left)
    right = by_width(data)
    print_widths(right)
    plot(left, right)


def digits(seed):
    """Images that are scaled alike, without pixels that are always dark."""
    X, y = load_digits(return_X_y=True)
    X = X[:, X.std(0) > 0].astype(np.float32)
    X = (X - X.mean()) / X.std()
    return train_test_split(X, y, test_size=0.4, stratify=y, random_state=seed)


def options(seed, width):
    """Settings that all networks share."""
    return {
        "hidden_layer_sizes": (width, width),
        "standardize": False,
        "max_iter": MAX_ITER,
        "n_draws": 50,
        "random_state": seed,
    }


# ---- pruning of weights


def pruned(data):
    """By method: (share of weights left, error), each (seeds, steps)."""
    results = {
        name: [] for name in ("signal to noise", "noise of every weight", "size")
    }
    for seed, (X, X_test, y, y_test) in zip(SEEDS, data, strict=True):
        common = options(seed, WIDTH)
        bbb = BBBClassifier(**common).fit(X, y)
        results["signal to noise"].append(
            [
                (1 - share, error(clone_fitted(bbb).prune(share), X_test, y_test))
                for share in SHARES
            ]
        )
        sparse = VariationalDropoutClassifier(
            noise="independent", alpha_per="weight", **common
        ).fit(X, y)
        steps = [clone_fitted(sparse).prune(threshold) for threshold in THRESHOLDS]
        results["noise of every weight"].append(
            [(left_of(one, sparse), error(one, X_test, y_test)) for one in steps]
        )
        plain = MCDropoutClassifier(**common).fit(X, y)
        results["size"].append(
            [
                (1 - share, error(without_smallest(plain, share), X_test, y_test))
                for share in SHARES
            ]
        )
    return {name: np.moveaxis(np.array(v), 2, 0) for name, v in results.items()}


def clone_fitted(model):
    """A fitted copy, to be pruned."""
    copied = clone(model)
    copied.__dict__.update(model.__dict__)
    return copied


def error(model, X, y):
    """Error in per cent."""
    return 100 * (1 - model.score(X, y))


def weights_of(model):
    """Names of the weights among the parameters."""
    return [name for name in model.parameters_ if name.endswith("/mean")]


def left_of(model, whole):
    """Share of the weights that are not zero."""
    used = sum(np.count_nonzero(model.parameters_[n]) for n in weights_of(model))
    return used / sum(whole.parameters_[n].size for n in weights_of(whole))


def without_smallest(model, share):
    """With a share of all weights set to zero, by their size."""
    model = clone_fitted(model)
    model.parameters_ = dict(model.parameters_)
    names = weights_of(model)
    sizes = np.concatenate([abs(model.parameters_[n]).ravel() for n in names])
    least = np.quantile(sizes, share)
    for name in names:
        weights = model.parameters_[name]
        model.parameters_[name] = np.where(abs(weights) < least, 0, weights)
    return model


def print_pruned(results):
    """Mean over the seeds."""
    print(f"Digits, two layers of {WIDTH}: error of test images in %, by the share of")
    print(f"weights that is left; mean of {len(SEEDS)} seeds")
    for name, (left, errors) in results.items():
        print(f"\n{name}")
        print("left  ", *[f"{100 * v:6.1f}" for v in left.mean(0)])
        print("error ", *[f"{v:6.1f}" for v in errors.mean(0)])


# ---- networks of different widths


def kinds():
    """Name, colour, and the network of a seed and a width."""
    return {
        "variational, type A": (
            BLUE,
            lambda **o: VariationalDropoutClassifier(noise="independent", **o),
        ),
        "variational, type B": (ORANGE, VariationalDropoutClassifier),
        "Gaussian, 0.5": (
            GREEN,
            lambda **o: MCDropoutClassifier(noise="gaussian", dropout=RATES, **o),
        ),
        "Bernoulli, 0.5": (PINK, lambda **o: MCDropoutClassifier(dropout=RATES, **o)),
        "no noise": (GREY, lambda **o: MCDropoutClassifier(dropout=0.0, **o)),
    }


# Of the images a fifth is dropped, of the layers one half, as in the papers.
RATES = (0.2, 0.5, 0.5)


def by_width(data):
    """By kind: errors (seeds, widths)."""
    return {
        name: np.array(
            [
                [
                    error(make(**options(seed, width)).fit(X, y), X_test, y_test)
                    for width in WIDTHS
                ]
                for seed, (X, X_test, y, y_test) in zip(SEEDS, data, strict=True)
            ]
        )
        for name, (_, make) in kinds().items()
    }


def print_widths(results):
    """Mean over the seeds."""
    print("\nError of test images in %, by the width of both hidden layers")
    print(f"{'':<22}", *[f"{width:>5}" for width in WIDTHS])
    for name, errors in results.items():
        print(f"{name:<22}", *[f"{v:5.1f}" for v in errors.mean(0)])


def plot(pruned_by, of_width):
    """Errors on a logarithmic scale; every seed is a thin line."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    colors = dict(zip(pruned_by, (BLUE, ORANGE, GREY), strict=True))
    for name, (shares, errors) in pruned_by.items():
        for x, y in zip(shares, errors, strict=True):
            left.plot(100 * x, y, color=colors[name], lw=0.6, alpha=0.5)
        mean = 100 * shares.mean(0), errors.mean(0)
        left.plot(*mean, "o-", color=colors[name], label=name)
    left.set(xscale="log", yscale="log", xlabel="weights after pruning, %")
    left.set(ylabel="error of test images, %", title="pruning")
    left.invert_xaxis()
    for name, (color, _) in kinds().items():
        for y in of_width[name]:
            right.plot(WIDTHS, y, color=color, lw=0.6, alpha=0.5)
        right.plot(WIDTHS, of_width[name].mean(0), "o-", color=color, label=name)
    right.set(xscale="log", yscale="log", xlabel="units of both hidden layers")
    right.set(title="networks of different widths")
    for axes in (left, right):
        axes.set_yticks([2, 3, 5, 10, 20, 50])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter("")
        axes.grid(color="#EEEEEE", which="both")
        axes.legend(frameon=False)
    save(figure, "pruning.png")


if __name__ == "__main__":
    main()
