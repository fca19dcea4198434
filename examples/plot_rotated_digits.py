"""How do five measures of uncertainty change when a digit is turned?
==================================================================

A network with dropout learns upright digits. Then the first 1 of the test images is
turned by up to half a turn, as in [Gal & Ghahramani 2016, fig. 4]. The picture shows
all five measures of uncertainty against the angle.

The draws agree while the digit looks as in training, and disagree where it is between
two digits or none: all five measures rise, also on average over all test images of a 1
and three networks. But they are no reliable alarm. At 60 degrees nearly all draws
classify the image as a 3. With a threshold that one upright digit in twenty exceeds,
fewer than half of the 1s on their side raise an alarm; only mutual information, the
best of the five with each network, reaches more than half with one of them. On
scikit-learn's 8 x 8 digits, which are used if MNIST is not available, a 1 on its side
is classified as another digit with more certainty than an upright one as a 1.

Writes examples/output/rotated_digits.png and prints the measures.
"""

import matplotlib.pyplot as plt
import numpy as np
from _common import DATA, save, size
from matplotlib.lines import Line2D
from scipy.ndimage import rotate
from sklearn.datasets import load_digits
from sklearn.feature_selection import VarianceThreshold
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skbayesnn import MCDropoutClassifier, predict_uncertainty
from skbayesnn.plotting import ClassProbabilityDisplay

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"

DIGIT = 1
STEP = 5
ANGLES = np.arange(0, 181, STEP)
SEEDS = size((0, 1, 2), short=(0,))
# Numbers of training images; None is all.
IMAGES = size(None, short=500)
# By unit: nats, and numbers in [0, 1].
NATS = {"entropy": BLUE, "expected_entropy": GREEN, "mutual_information": ORANGE}
SHARES = {"variation_ratio": BLUE, "overlap": ORANGE}
KINDS = (*NATS, *SHARES)


def main():
    """Fit the networks, turn the digits, print the numbers, draw the first network."""
    X_train, X_test, y_train, y_test, source = digits()
    X_train, y_train = X_train[:IMAGES], y_train[:IMAGES]
    turned = turned_images(X_test[y_test == DIGIT])
    print(f"{source}: {len(X_train)} training images; {len(turned)} test images of a")
    print(f"{DIGIT}, each at {len(ANGLES)} angles; networks with seeds {SEEDS}")

    models, results, alarms = [], [], []
    for seed in SEEDS:
        # Dropout before the last layer, at Gal & Ghahramani's rate. Pixels are not
        # scaled separately; those that are always dark carry no information.
        network = MCDropoutClassifier(
            (200,),
            dropout=(0, 0.5),
            n_draws=100,
            max_iter=size(20 if len(X_train) > 5000 else 60, short=5),
            standardize=False,
            random_state=seed,
        )
        model = make_pipeline(VarianceThreshold(), network)
        model.fit(flat(X_train), y_train)
        accuracy = model.score(flat(X_test), y_test)
        print(f"seed {seed}: accuracy {accuracy:.3f} on {len(X_test)} upright images")
        upright = predict_uncertainty(model, flat(X_test), "all")
        models.append(model)
        results.append(of_angles(model, turned))
        alarms.append({kind: np.quantile(upright[kind], 0.95) for kind in KINDS})
    mean = {
        kind: np.mean([of[kind] for of in results], axis=(0, 1)) for kind in results[0]
    }
    first = {kind: values[0] for kind, values in results[0].items()}
    print_measures(first, "The image of the picture, first network")
    print_measures(mean, f"Mean over all images of a {DIGIT} and all networks")
    print_dashes(results, alarms)
    plot(models[0], turned[0], first, mean, source)


def digits():
    """X_train, X_test, y_train, y_test, name; images (n, height, width) in [0, 1]."""
    file = DATA / "digits" / "mnist_10k2k.npz"
    if file.is_file():
        data = np.load(file)
        X = [data[name].astype(np.float32) / 255 for name in ("X_train", "X_test")]
        return *X, data["y_train"], data["y_test"], "MNIST, 28 x 28"
    print("SKBAYESNN_DATA has no MNIST: scikit-learn's digits are shown instead")
    X, y = load_digits(return_X_y=True)
    images = (X / 16).astype(np.float32).reshape(-1, 8, 8)
    split = train_test_split(images, y, test_size=0.3, stratify=y, random_state=0)
    return *split, "scikit-learn's digits, 8 x 8"


def flat(images):
    """A row of pixels for every image."""
    return images.reshape(len(images), -1)


def turned_images(images):
    """Turned copies, (images, angles, height, width)."""
    by_angle = [
        rotate(images, angle, axes=(1, 2), reshape=False, order=1) for angle in ANGLES
    ]
    return np.stack(by_angle, axis=1)


def of_angles(model, turned):
    """{measure: (images, angles)}, and under "right" where the class is."""
    rows = turned.reshape(turned.shape[0] * turned.shape[1], -1)
    measures = predict_uncertainty(model, rows, "all")
    measures["right"] = model.predict(rows) == DIGIT
    return {kind: v.reshape(turned.shape[:2]) for kind, v in measures.items()}


def print_measures(measures, title):
    """A line for every third angle."""
    print(f"\n{title}; entropies and information in nats")
    print(f"{'angle':>5}{f'P({DIGIT})':>8}", *heads())
    for i in range(0, len(ANGLES), 3):
        numbers = [f"{measures[kind][i]:>11.2f}" for kind in KINDS]
        print(f"{ANGLES[i]:>5}{measures['right'][i]:>8.0%}", *numbers)


def print_dashes(results, alarms):
    """The measures at 90 degrees, for each network."""
    upright, dash = np.searchsorted(ANGLES, (0, 90))
    pairs = list(zip(results, alarms, strict=True))
    lines = {
        "less sure than upright": lambda kind: [
            (of[kind][:, dash] > of[kind][:, upright]).mean() for of in results
        ],
        "less sure than 95 % of all upright images": lambda kind: [
            (of[kind][:, dash] > alarm[kind]).mean() for of, alarm in pairs
        ],
    }
    print(f"\nShare of the images of a {DIGIT} that are, at 90 degrees,")
    print(f"{'':<44}{'seed':>5}", *heads())
    for line, share in lines.items():
        of_kinds = [share(kind) for kind in KINDS]
        for seed, shares in zip(SEEDS, zip(*of_kinds, strict=True), strict=True):
            print(f"{line:<44}{seed:>5}", *[f"{share:>11.0%}" for share in shares])


def heads():
    """The first words of the measures, as columns."""
    return [f"{kind.split('_')[0]:>11}" for kind in KINDS]


def plot(model, images, first, mean, source):
    """The images, the draws' class probabilities, and the measures."""
    figure = plt.figure(figsize=(10, 10), layout="constrained")
    shown = range(0, len(ANGLES), 3)
    grid = figure.add_gridspec(4, len(shown), height_ratios=[0.9, 2.6, 1.9, 1.5])
    for column, i in enumerate(shown):
        axes = figure.add_subplot(grid[0, column])
        axes.imshow(images[i], cmap="gray_r", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[], title=f"{ANGLES[i]}\N{DEGREE SIGN}")

    middle = figure.add_subplot(grid[1, :])
    ClassProbabilityDisplay.from_estimator(model, flat(images), x=ANGLES, ax=middle)
    middle.set_xlabel("")
    aside = {"frameon": False, "loc": "center left", "bbox_to_anchor": (1, 0.5)}
    for row, measures, unit in ((2, NATS, "nats"), (3, SHARES, "share")):
        axes = figure.add_subplot(grid[row, :], sharex=middle)
        for kind, color in measures.items():
            axes.plot(ANGLES, first[kind], color=color, label=kind.replace("_", " "))
            axes.plot(ANGLES, mean[kind], color=color, ls=":")
        axes.set(ylabel=unit, ylim=(0, None))
        axes.legend(**aside)
        axes.grid(axis="x", color="#EEEEEE")
    handles = [
        Line2D([], [], color=GREY, label="this image, one network"),
        Line2D([], [], color=GREY, ls=":", label=f"mean over all {DIGIT}s"),
    ]
    # Every image stands above its angle.
    half = (ANGLES[shown[1]] - ANGLES[0]) / 2
    axes.set(xlabel="turned by (degrees)", xlim=(-half, ANGLES[-1] + half))
    axes.set_xticks(ANGLES[shown])
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(
        f"A {DIGIT} that is turned: the draws part between two digits, "
        f"and can agree on a wrong one\n{source}"
    )
    save(figure, "rotated_digits.png")


if __name__ == "__main__":
    main()
