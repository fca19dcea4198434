"""Does a network distinguish letters from the digits that it was trained on?
==========================================================================

Networks with dropout learn the digits of MNIST. Test digits and letters of notMNIST are
then ranked by each of the five measures of uncertainty. AUROC is the share of pairs of
a letter and a digit in which the letter is the more uncertain one. A baseline without a
network ranks images by the distance of their mean pixel from the mean of the training
images.

The measures rank well. Yet brightness alone ranks better than any of them, with each of
three seeds, since letters are far brighter than digits: on these data a high AUROC
proves little. Among letters as bright as digits every measure is clearly better than
brightness. Mutual information is the best measure for all letters; for letters as
bright as digits, with one network, it is no better than the entropy. Five networks are
slightly better than one.

Without MNIST and notMNIST the example uses scikit-learn's digits: 0 to 4 are known, 5
to 9 unknown. There brightness is useless, and the measures rank well.

Writes examples/output/out_of_distribution.png and prints the AUROC.
"""

import matplotlib.pyplot as plt
import numpy as np
from _common import DATA, save, size
from matplotlib.lines import Line2D
from sklearn.datasets import load_digits
from sklearn.feature_selection import VarianceThreshold
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skbayesnn import MCDropoutClassifier, predict_uncertainty
from skbayesnn.metrics import ood_auroc

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
GREY = "#666666"

SEEDS = size((0, 1, 2), short=(0,))
# Numbers of training images; None is all.
IMAGES = size(None, short=500)
NETWORKS = {"one network": 1, "five networks": 5}
MEASURES = (
    "entropy",
    "expected_entropy",
    "mutual_information",
    "variation_ratio",
    "overlap",
)
BASELINE = "brightness alone"
SCORES = (*MEASURES, BASELINE)


def main():
    """Rank known and unknown images by all scores; print AUROC, draw histograms."""
    X_train, y_train, known, unknown, names = images()
    X_train, y_train = X_train[:IMAGES], y_train[:IMAGES]
    rows = np.concatenate([known, unknown])
    of_training = X_train.mean(1)
    distance = abs(rows.mean(1) - of_training.mean())
    low, high = np.quantile(of_training, [0.01, 0.99])
    as_bright = (low <= unknown.mean(1)) & (unknown.mean(1) <= high)
    groups = {
        f"all {names[1]}": np.full(len(unknown), True),
        "those as bright as training": as_bright,
    }
    print(f"{len(X_train)} training images; {len(known)} test images of {names[0]}")
    print(f"against {len(unknown)} of {names[1]}, {as_bright.sum()} are as")
    print("bright as the middle 98 % of the training images")

    scores = {}
    for name, n_networks in NETWORKS.items():
        for seed in SEEDS:
            network = MCDropoutClassifier(
                (100,),
                dropout=(0, 0.5),
                n_estimators=n_networks,
                n_draws=100 // n_networks,
                max_iter=size(15 if len(X_train) > 5000 else 60, short=5),
                standardize=False,
                random_state=seed,
            )
            # Pixels that are dark in all training images teach nothing.
            model = make_pipeline(VarianceThreshold(), network).fit(X_train, y_train)
            measures = predict_uncertainty(model, rows, "all")
            scores[name, seed] = measures | {BASELINE: distance}
    results = {
        (group, name, score): [
            ood_auroc(of[score][: len(known)], of[score][len(known) :][kept])
            for of in (scores[name, seed] for seed in SEEDS)
        ]
        for group, kept in groups.items()
        for name in NETWORKS
        for score in SCORES
    }
    print_table(results, groups)
    plot(scores["one network", 0], len(known), results, groups, names)


def images():
    """X_train, y_train, X of known kind, X of unknown kind, their names; in [0, 1]."""
    files = [DATA / "digits" / f"{name}.npz" for name in ("mnist_10k2k", "notmnist_2k")]
    if all(file.is_file() for file in files):
        digits, letters = (np.load(file) for file in files)
        return (
            flat(digits["X_train"] / 255),
            digits["y_train"],
            flat(digits["X_test"] / 255),
            flat(letters["X"] / 255),
            ("digits", "letters"),
        )
    print("SKBAYESNN_DATA has no MNIST and notMNIST: 0 to 4 are known, 5 to 9 are not")
    X, y = load_digits(return_X_y=True)
    X = flat(X / 16)
    X_train, known, y_train, _ = train_test_split(
        X[y < 5], y[y < 5], test_size=0.3, stratify=y[y < 5], random_state=0
    )
    return X_train, y_train, known, X[y >= 5], ("0 to 4", "5 to 9")


def flat(pixels):
    """A row of pixels for every image."""
    return pixels.reshape(len(pixels), -1).astype(np.float32)


def print_table(results, groups):
    """Mean AUROC over the seeds."""
    print(f"\nAUROC, mean of {len(SEEDS)} seeds \N{PLUS-MINUS SIGN} half their range")
    print(f"{'':<19}", *[f"{group:>32}" for group in groups])
    print(f"{'':<19}", *[f"{name:>15}" for _ in groups for name in NETWORKS])
    for score in SCORES:
        cells = []
        for group in groups:
            for name in NETWORKS:
                values = results[group, name, score]
                half = np.ptp(values) / 2
                cells.append(f"{np.mean(values):.3f} \N{PLUS-MINUS SIGN} {half:.3f}")
        print(f"{score:<19}", *[f"{cell:>15}" for cell in cells])


def plot(scores, n_known, results, groups, names):
    """Histograms of the scores of one network; AUROC of all."""
    figure = plt.figure(figsize=(14, 6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.6, 1])
    all_axes = left.subplots(2, 3, sharey=True)
    for axes, score in zip(all_axes.flat, SCORES, strict=True):
        bins = np.linspace(0, scores[score].max(), 31)
        parts = (scores[score][:n_known], scores[score][n_known:])
        for values, color, label in zip(parts, (BLUE, ORANGE), names, strict=True):
            weights = np.full(len(values), 1 / len(values))
            filled = {"histtype": "stepfilled", "color": color, "alpha": 0.2}
            axes.hist(values, bins, weights=weights, **filled)
            outline = {"histtype": "step", "color": color, "lw": 1.5}
            axes.hist(values, bins, weights=weights, label=label, **outline)
        axes.set(xlabel=score.replace("_", " "), yscale="log")
    for axes in all_axes[:, 0]:
        axes.set_ylabel("share of images")
    all_axes[0, 0].legend(frameon=False)
    left.suptitle("Scores of the images: one network, first seed")

    axes = right.subplots()
    marks = dict(zip(groups, ("full", "none"), strict=True))
    shifts = dict(zip(NETWORKS, (-0.13, 0.13), strict=True))
    colors = dict(zip(NETWORKS, (GREEN, PINK), strict=True))
    for (group, name, score), values in results.items():
        # The baseline has no networks.
        place = SCORES.index(score) + (shifts[name] if score in MEASURES else 0)
        color = colors[name] if score in MEASURES else GREY
        style = {"color": color, "fillstyle": marks[group], "ms": 7}
        axes.plot(values, np.full(len(values), place), "o", **style)
    handles = [
        Line2D([], [], color=color, marker="o", ls="", label=name)
        for name, color in colors.items()
    ] + [
        Line2D([], [], color=GREY, marker="o", ls="", fillstyle=fill, label=group)
        for group, fill in marks.items()
    ]
    axes.set(
        yticks=range(len(SCORES)),
        yticklabels=[score.replace("_", " ") for score in SCORES],
        ylim=(len(SCORES) - 0.5, -0.5),
        xlabel=f"AUROC of {names[1]} against {names[0]}; {len(SEEDS)} seeds",
        title="AUROC of each score",
    )
    axes.axvline(0.5, color=GREY, lw=1, ls=":")
    axes.grid(axis="x", color="#EEEEEE", zorder=-1)
    right.legend(handles=handles, frameon=False, loc="outside lower center", ncols=2)
    figure.suptitle(f"Trained on {names[0]}, predictions for {names[1]}")
    save(figure, "out_of_distribution.png")


if __name__ == "__main__":
    main()
