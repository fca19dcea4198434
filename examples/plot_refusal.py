"""Which rows should a model refuse?
=================================

A classifier trained on 300 digits passes uncertain digits to a person. `Abstainer`
estimates, by cross-validation on the training rows, how uncertain an accepted digit may
be so that, with a probability of 90 %, at most 3 % of the accepted ones are wrong. The
test digits show whether this holds. The upper picture shows the error among the
accepted digits against their share, for each measure of uncertainty, between random
refusal (dashed) and an oracle that refuses exactly the wrong ones (dotted). The lower
pictures show the digits refused first and the most certain ones.

Writes examples/output/refusal.png and prints, for each measure, the threshold, the
share accepted, the error on test digits, and the area under the curve.
"""

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size
from sklearn.datasets import load_digits
from sklearn.feature_selection import VarianceThreshold
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skbayesnn import Abstainer, MCDropoutClassifier, predict_uncertainty
from skbayesnn.metrics import area_under_risk_coverage
from skbayesnn.plotting import RiskCoverageDisplay

ROWS, TARGET_ERROR, SHOWN = 300, 0.03, 12
MAX_ITER = size("auto", short=5)
KINDS = ("entropy", "expected_entropy", "mutual_information", "variation_ratio")


def show_digits(figure, images, title, notes) -> None:
    """A row of digits with a note below each."""
    figure.suptitle(title, x=0.02, ha="left", fontsize=10)
    axes = figure.subplots(1, len(images))
    for ax, image, note in zip(axes, images, notes, strict=True):
        ax.imshow(image.reshape(8, 8), cmap="gray_r")
        ax.set(xticks=[], yticks=[])
        ax.set_xlabel(note, fontsize=8)


def main() -> None:
    """Fit, refuse, print and plot."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    X, X_test, y, y_test = train_test_split(
        X, y, train_size=ROWS, stratify=y, random_state=0
    )
    network = MCDropoutClassifier(max_iter=MAX_ITER, random_state=0)
    network = make_pipeline(VarianceThreshold(), network)
    print(
        f"{ROWS} digits to learn from, {len(y_test)} to test; target {TARGET_ERROR:.0%}"
    )
    print("measure              threshold   accepted   error   area (x 100)")
    models = {}
    for kind in KINDS:
        model = Abstainer(network, kind=kind, target_error=TARGET_ERROR).fit(X, y)
        report = model.report(X_test, y_test)
        # The network inside is the same each time: fitted to all training rows.
        wrong = model.estimator_.predict(X_test) != y_test
        area = area_under_risk_coverage(wrong, model.predict_uncertainty(X_test))
        print(
            f"{kind:<20} {model.threshold_:9.3f}   {report['coverage']:8.1%}   "
            f"{report['error']:5.2%}   {100 * area:6.2f}"
        )
        models[kind] = model
    print(f"without refusing: error {wrong.mean():.2%}")

    fig = plt.figure(figsize=(9, 8), layout="constrained")
    top, *below = fig.subfigures(3, 1, height_ratios=[4, 1, 1])
    ax = top.subplots()
    network = models["entropy"].estimator_
    RiskCoverageDisplay.from_estimator(network, X_test, y_test, kind=KINDS, ax=ax)
    ax.axhline(TARGET_ERROR, color="#666666", lw=0.8)
    ax.annotate("target", (0, TARGET_ERROR), (2, 3), textcoords="offset points")
    ax.set_title("Refuse the most uncertain digits first", loc="left")
    predicted = network.predict(X_test)
    order = np.argsort(predict_uncertainty(network, X_test))
    titles = "refused first: predicted (true)", "accepted first"
    for figure, title, rows in zip(
        below, titles, (order[::-1][:SHOWN], order[:SHOWN]), strict=True
    ):
        notes = [f"{predicted[i]} ({y_test[i]})" for i in rows]
        show_digits(figure, X_test[rows], title, notes)
    save(fig, "refusal.png")


if __name__ == "__main__":
    main()
