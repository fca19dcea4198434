"""Dropout after every layer of a LeNet: what does it add to a plain one?
======================================================================

In [Gal & Ghahramani 2016, arXiv:1506.02158] a LeNet with dropout after all layers had
the lowest error with the mean over its masks, and a very high one with one pass with
averaged weights. In [Gal & Ghahramani 2016, arXiv:1506.02142, fig. 4] a LeNet with
dropout before its last layer classified a 1 that is turned: the draws of the inputs of
the softmax overlap where the digit is between two, and the draws of its outputs are
spread over [0, 1].

Here a perceptron of 100 units with dropout, and LeNets with and without it, learn
10,000 images. On digits dropout adds little to the LeNet: 1.5 % errors against 1.6 %,
and a log loss that is lower by half a standard error; with two more seeds 1.65 % and
1.15 % against 2.25 % and 1.55 %, and a log loss that is lower by 0.024 and higher by
0.001. The AUROC of its errors by entropy equals the plain network's (0.980 and
0.977). One pass with mean weights errs as rarely as the draws, with a lower log loss,
for all three seeds: the rates, which were best on held-out training images, are 0.1 and
0.3, not the 0.5 of the paper. Dropout helps with letters: AUROC 0.954 against 0.892,
and 18 of 100 classified as a digit with more than 90 %, against 46. Brightness alone,
without a network, has 0.961.

The draws disagree where the 1 is between two digits, as in the paper, and agree on a
wrong digit elsewhere: at 60 degrees nearly all draws of the perceptron are a 3, on its
side all draws of the LeNet are a 7. Of 100 images of a 1 turned by 105 degrees none is
recognised; the perceptron classifies 39 as another digit with more than 90 %, the LeNet
with dropout 28, the plain one 12. Dropout does not protect against such images.

Writes examples/output/rotated_mnist.png and prints the scores.
"""

import sys
import time

import matplotlib.pyplot as plt
import numpy as np
from _common import DATA, save, size
from matplotlib.lines import Line2D
from scipy.ndimage import rotate
from sklearn.feature_selection import VarianceThreshold
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline

from skbayesnn import MCDropoutClassifier, sample_f
from skbayesnn.metrics import ood_auroc
from skbayesnn.networks import ConvNet
from skbayesnn.plotting import ClassProbabilityDisplay

# Colours of the networks; the digits have others.
PURPLE, GREY, BROWN = "#5D3A9B", "#999999", "#8C510A"

DIGIT = 1
ANGLES = np.arange(0, 181, size(15, short=90))
# Numbers of training images, and of test images and letters; None is all.
IMAGES, ASKED = size((None, None), short=(200, 100))
# Images of each kind that are turned.
TURNED = size(100, short=5)
# Masks of the perceptron, as in the paper, and of the LeNet.
PERCEPTRON_DRAWS, LENET_DRAWS = size((100, 50), short=(5, 5))
# A prediction with at least this probability counts as certain.
SURE = 0.9

# Two thirds of the paper's channels and half of its units: a third of the work.
LENET = ConvNet((1, 28, 28), (16, 32), 5, hidden_layer_sizes=(256,))
TRAINING = {"batch_size": 128, "learning_rate_init": 0.003, "random_state": 0}
EPOCHS = size(15, short=1)
# Rates, length scales and epochs: of those tried, the best log loss of the last 1,000
# training images, with the networks fitted to the others.
NETWORKS = {
    "perceptron, MC dropout": make_pipeline(
        # Pixels that are dark in all training images teach nothing.
        VarianceThreshold(),
        MCDropoutClassifier(
            (100,),
            dropout=(0, 0.2),
            standardize=False,
            learning_rate_init=0.005,
            batch_size=128,
            max_iter=size(20, short=2),
            random_state=0,
        ),
    ),
    "LeNet, MC dropout": MCDropoutClassifier(
        network=LENET,
        dropout=(0, 0.1, 0.1, 0.3),
        length_scale=3.0,
        max_iter=EPOCHS,
        **TRAINING,
    ),
    "LeNet, plain": MCDropoutClassifier(
        network=LENET, dropout=0, length_scale=6.0, max_iter=EPOCHS, **TRAINING
    ),
}
N_DRAWS = dict(zip(NETWORKS, (PERCEPTRON_DRAWS, LENET_DRAWS, 1), strict=True))
COLORS = dict(zip(NETWORKS, (BROWN, PURPLE, GREY), strict=True))
DROPPED = list(NETWORKS)[:2]


def main():
    """Fit the networks, score them, turn the images, print and draw."""
    X_train, y_train, X_test, y_test, letters = images()
    groups = {
        f"images of a {DIGIT}": X_test[y_test == DIGIT][:TURNED],
        "letters": letters[:TURNED],
    }
    turned = {name: turned_images(group) for name, group in groups.items()}
    print(f"{len(X_train)} training images of digits, {len(X_test)} test images and")
    print(f"{len(letters)} letters; draws: {[*N_DRAWS.values()]}")

    scores, results = {}, {}
    for name, model in NETWORKS.items():
        start = time.process_time()
        model.fit(flat(X_train), y_train)
        fitted = time.process_time()
        known = draws(model, X_test, N_DRAWS[name])
        unknown = draws(model, letters, N_DRAWS[name])
        results[name] = {
            group: draws(model, of_group, N_DRAWS[name])
            for group, of_group in turned.items()
        }
        scores[name] = scores_of(known, unknown, y_test)
        scores[name]["CPU s to fit"] = fitted - start
        scores[name]["CPU s to predict"] = time.process_time() - fitted
        if name == "LeNet, MC dropout":
            of_mean_weights = model.predict_proba(flat(X_test), method="mean_weights")
    print_scores(scores, brightness(X_train, X_test, letters))
    print_mean_weights(of_mean_weights.astype(np.float64), y_test)
    ones, *_ = groups
    print_one({name: results[name][ones][0] for name in NETWORKS})
    print_turned(results)
    plot(turned[ones][0], results)


def images():
    """X_train, y_train, X_test, y_test, letters; pixels in [0, 1], float32."""
    files = [DATA / "digits" / f"{name}.npz" for name in ("mnist_10k2k", "notmnist_2k")]
    for file in files:
        if not file.is_file():
            print(f"Skipped: this example reads {file.name}, which is missing. Set")
            print("the environment variable SKBAYESNN_DATA to the folder that holds")
            print("digits/.")
            sys.exit(0)
    digits, letters = (np.load(file) for file in files)
    train, test, of_letters = (
        (of[key][:n] / 255).astype(np.float32)
        for of, key, n in (
            (digits, "X_train", IMAGES),
            (digits, "X_test", ASKED),
            (letters, "X", ASKED),
        )
    )
    return train, digits["y_train"][:IMAGES], test, digits["y_test"][:ASKED], of_letters


def flat(pictures):
    """A row of pixels for every image."""
    return pictures.reshape(len(pictures), -1)


def turned_images(pictures):
    """Turned copies, (images, angles, height, width)."""
    by_angle = [
        rotate(pictures, angle, axes=(1, 2), reshape=False, order=1) for angle in ANGLES
    ]
    return np.stack(by_angle, axis=1)


def draws(model, pictures, n_draws):
    """Class probabilities of each draw, (*images, classes, draws), in float64."""
    lead = pictures.shape[:-2]
    rows = pictures.reshape(-1, pictures.shape[-2] * pictures.shape[-1])
    probability = sample_f(model, rows, n_samples=n_draws).astype(np.float64)
    # Rounded in float32; the sums should be one.
    probability /= probability.sum(1, keepdims=True)
    return probability.reshape(*lead, *probability.shape[1:])


def entropy(probability, axis):
    """Entropy in nats."""
    tiny = np.finfo(np.float64).tiny
    return -(probability * np.log(probability.clip(tiny))).sum(axis)


def measures(drawn):
    """{measure: (*images)}, of draws (*images, classes, draws).

    As in ``predict_uncertainty``, but from given draws. One draw has no disagreement.
    """
    of_mean = entropy(drawn.mean(-1), -1)
    if drawn.shape[-1] == 1:
        return {"entropy": of_mean}
    return {"entropy": of_mean, "information": of_mean - entropy(drawn, -2).mean(-1)}


def scores_of(known, unknown, y):
    """Errors, log loss, and the AUROC of errors and of letters."""
    probability = known.mean(-1)
    wrong = probability.argmax(1) != y
    inside, outside = measures(known), measures(unknown)
    results = {
        "error": wrong.mean(),
        "log loss": log_loss(y, probability, labels=np.arange(10)),
        "loss of each": -np.log(probability[np.arange(len(y)), y]),
    }
    for kind, values in inside.items():
        results[f"errors, {kind}"] = ood_auroc(values[~wrong], values[wrong])
    for kind, values in inside.items():
        results[f"letters, {kind}"] = ood_auroc(values, outside[kind])
    return results


def brightness(X_train, X_test, letters):
    """AUROC of the letters by the distance of the mean pixel from training."""
    distance = (abs(flat(X).mean(1) - X_train.mean()) for X in (X_test, letters))
    return ood_auroc(*distance)


def print_scores(scores, of_brightness):
    """A line for each score, and the difference of the LeNets' log loss."""
    print(f"\n{'':<22}", *[f"{name:>22}" for name in scores])
    for line in next(iter(scores.values())):
        if line == "loss of each":
            continue
        form = {"error": ".2%", "log loss": ".4f"}.get(line, ".3f")
        form = ".0f" if line.startswith("CPU") else form
        texts = [f"{of[line]:{form}}" if line in of else "-" for of in scores.values()]
        print(f"{line:<22}", *[f"{text:>22}" for text in texts])
    print(f"{'letters, brightness':<22} {of_brightness:>22.3f}")
    each = [scores[name]["loss of each"] for name in list(scores)[1:]]
    less = each[1] - each[0]
    error = less.std() / np.sqrt(len(less))
    print("Errors and letters: AUROC, by entropy and by mutual information. The log")
    print(f"loss of LeNet is lower with dropout than without by {less.mean():.4f}")
    print(f"\N{PLUS-MINUS SIGN} {error:.4f} (standard error over the images)")


def print_mean_weights(probability, y):
    """Standard dropout: one pass, units scaled by their probability of being kept."""
    probability /= probability.sum(1, keepdims=True)
    error = (probability.argmax(1) != y).mean()
    loss = log_loss(y, probability, labels=np.arange(10))
    print("LeNet with dropout by one pass with its mean weights, in place of draws:")
    print(f"error {error:.2%}, log loss {loss:.4f}")


def print_one(of_networks):
    """The predictions of each network for the pictured image, by angle."""
    print(f"\nThe {DIGIT} of the picture: the likeliest digit, its mean probability,")
    print("the share of the draws with that class, and mutual information in nats")
    print(f"{'':>5}", *[f"{name:>24}" for name in of_networks])
    for i, angle in enumerate(ANGLES):
        cells = []
        for drawn in of_networks.values():
            mean = drawn[i].mean(-1)
            label = mean.argmax()
            agree = (drawn[i].argmax(0) == label).mean()
            information = measures(drawn[i]).get("information")
            nats = "-" if information is None else f"{information:.2f}"
            cells.append(f"{label:>6}{mean[label]:>6.2f}{agree:>6.0%}{nats:>6}")
        print(f"{angle:>5}", *cells)


def print_turned(results):
    """Means over the images, at every angle."""
    for group, own in zip(next(iter(results.values())), (DIGIT, None), strict=True):
        n_images = len(next(iter(results.values()))[group])
        print(f"\nMean over {n_images} {group}, at each angle (degrees)")
        print(f"{'':<39}", *[f"{angle:>5}" for angle in ANGLES])
        for name, of_groups in results.items():
            sure = {f"wrong, {SURE:.0%} sure": wrongly_sure(of_groups[group], own)}
            for column, values in (sure | measures(of_groups[group])).items():
                cells = [f"{number:>5.2f}" for number in values.mean(0)]
                print(f"{name:<23}{column:<16}", *cells)


def wrongly_sure(drawn, own):
    """Whether a mean probability is above ``SURE`` for a wrong class."""
    mean = drawn.mean(-1)
    others = mean if own is None else np.delete(mean, own, axis=-1)
    return others.max(-1) > SURE


def plot(pictures, results):
    """The images, the draws of both networks with dropout, and the uncertainty."""
    figure = plt.figure(figsize=(13, 13), layout="constrained")
    top, middle, bottom = figure.subfigures(3, 1, height_ratios=[1.1, 8, 3.6])
    for axes, picture, angle in zip(
        top.subplots(1, len(ANGLES)), pictures, ANGLES, strict=True
    ):
        axes.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[], title=f"{angle}\N{DEGREE SIGN}")

    ones, letters = next(iter(results.values()))
    rows = middle.subplots(len(DROPPED), 2, sharex=True)
    of_one = {name: results[name][ones][0] for name in DROPPED}
    shown = most_likely(of_one.values())
    for (left, right), (name, drawn) in zip(rows, of_one.items(), strict=True):
        logs = np.log(drawn.clip(np.finfo(np.float32).tiny))
        for axes, values, what in (
            (left, logs - logs.mean(1, keepdims=True), "softmax input, centred"),
            (right, drawn, "softmax output"),
        ):
            ClassProbabilityDisplay.from_predictions(
                values,
                np.arange(10),
                x=ANGLES,
                classes=shown,
                ax=axes,
                line_kwargs={"markersize": 3, "lw": 1},
            )
            axes.set(xlabel="", ylabel=what, title=name)
            axes.set_xticks(ANGLES)
            axes.get_legend().remove()
            of_shown = values[:, shown]
            pad = 0.03 * np.ptp(of_shown)
            axes.set_ylim(of_shown.min() - pad, of_shown.max() + pad)
        left.yaxis.set_major_locator(plt.MaxNLocator(6))
    handles, labels = right.get_legend_handles_labels()
    middle.legend(
        handles,
        labels,
        title="digit: a draw is a point, the mean a line",
        ncols=len(shown),
        frameon=False,
        loc="outside upper center",
    )

    for axes, group in zip(
        bottom.subplots(1, 2, sharey=True), (ones, letters), strict=True
    ):
        for name, color in COLORS.items():
            of_group = measures(results[name][group])
            axes.plot(ANGLES, of_group["entropy"].mean(0), color=color)
            if name in DROPPED:
                axes.plot(ANGLES, of_group["information"].mean(0), color=color, ls=":")
        n_images = len(of_group["entropy"])
        axes.set(title=f"mean over {n_images} {group}", ylim=(0, None))
        axes.set(xlabel="turned by (degrees)", xticks=ANGLES)
        axes.grid(axis="y", color="#EEEEEE")
    bottom.axes[0].set_ylabel("nats")
    handles = [
        Line2D([], [], color=color, label=name) for name, color in COLORS.items()
    ] + [
        Line2D([], [], color="black", label="entropy"),
        Line2D([], [], color="black", ls=":", label="mutual information"),
    ]
    bottom.legend(handles=handles, ncols=5, frameon=False, loc="outside lower center")
    figure.suptitle(
        f"A {DIGIT} that is turned: the draws part between two digits, "
        "and can agree on a wrong one"
    )
    save(figure, "rotated_mnist.png")


def most_likely(of_networks, n=7):
    """The digits of largest mean probability at some angle, of any network."""
    largest = np.max([drawn.mean(-1).max(0) for drawn in of_networks], axis=0)
    return np.sort(np.argsort(-largest)[:n])


if __name__ == "__main__":
    main()
