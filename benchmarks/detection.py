"""Which measure of uncertainty detects wrong predictions, and which detects letters?

Classifiers with their default settings after ``VarianceThreshold`` (which drops pixels
that are always dark), trained on 10,000 digits (MNIST): the area under the ROC curve
(AUROC) of each measure for separating wrong from right predictions on 2,000 test
digits, and 2,000 letters (notMNIST) from the test digits; mean +- standard deviation
over seeds. The last row uses the brightness of the image only, the distance of its mean
pixel from the mean of the training images: notMNIST is so much brighter that a high
AUROC may measure nothing else.

    python benchmarks/detection.py
"""

import argparse
import time
import warnings

import numpy as np
import torch
from common import data_folder, environment, table
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import make_pipeline

from skbayesnn import (
    BBBClassifier,
    MCDropoutClassifier,
    VariationalDropoutClassifier,
    predict_uncertainty,
)
from skbayesnn.metrics import ood_auroc

MODELS = {
    "mc_dropout": MCDropoutClassifier(),
    "mc_dropout, dropout 0.5": MCDropoutClassifier(dropout=0.5),
    "mc_dropout, 5 networks": MCDropoutClassifier(n_estimators=5),
    "bbb": BBBClassifier(),
    "variational_dropout": VariationalDropoutClassifier(),
}
KINDS = (
    "entropy",
    "expected_entropy",
    "mutual_information",
    "variation_ratio",
    "overlap",
)


def load() -> tuple[np.ndarray, ...]:
    """Training digits and labels, test digits and labels, letters; rows in [0, 1]."""
    folder = data_folder("digits")

    def flat(images):
        return images.reshape(len(images), -1).astype(np.float32) / 255

    with np.load(folder / "mnist_10k2k.npz") as mnist:
        train, test = flat(mnist["X_train"]), flat(mnist["X_test"])
        labels = mnist["y_train"], mnist["y_test"]
    with np.load(folder / "notmnist_2k.npz") as letters:
        return train, labels[0], test, labels[1], flat(letters["X"])


def brightness(train, images) -> np.ndarray:
    """Distance of the mean pixel from the mean over the training images."""
    return np.abs(images.mean(1) - train.mean())


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", type=lambda text: text.split(";"), default=MODELS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)
    train, y_train, test, y_test, letters = load()
    print(environment())
    wrong_rows, outside_rows = [], []
    for name in options.models:
        start = time.perf_counter()
        accuracy, wrong, outside = [], [], []
        for seed in range(options.seeds):
            network = clone(MODELS[name]).set_params(random_state=seed)
            model = make_pipeline(VarianceThreshold(), network).fit(train, y_train)
            right = model.predict(test) == y_test
            inside, far = (
                predict_uncertainty(model, images, "all") for images in (test, letters)
            )
            accuracy.append(right.mean())
            wrong.append(
                [ood_auroc(inside[k][right], inside[k][~right]) for k in KINDS]
            )
            outside.append([ood_auroc(inside[k], far[k]) for k in KINDS])
        accuracies = f"{np.mean(accuracy):.4f}"
        wrong_rows.append([name, accuracies, *_spread(wrong)])
        outside_rows.append([name, *_spread(outside)])
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    alone = ood_auroc(brightness(train, test), brightness(train, letters))
    outside_rows.append(["brightness alone", f"{alone:.3f}", *[""] * (len(KINDS) - 1)])
    print(f"{options.seeds} seeds\n\nWrong predictions, AUROC")
    print(table(["model", "accuracy", *KINDS], wrong_rows))
    print("\nLetters against test digits, AUROC")
    print(table(["model", *KINDS], outside_rows))


def _spread(values) -> list[str]:
    """Mean +- standard deviation over seeds."""
    return [
        f"{mean:.3f} +- {std:.3f}"
        for mean, std in zip(np.mean(values, 0), np.std(values, 0), strict=True)
    ]


if __name__ == "__main__":
    main()
