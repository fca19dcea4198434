"""Kingma, Salimans & Welling 2015, figure 1: error by width on MNIST.

Three hidden layers, by their width, with variational dropout (type A, independent noise
of the weights, and type B, noise of the units), Gaussian and Bernoulli dropout at given
rates, and without noise. In the paper variational dropout is as good as Gaussian
dropout, and better in small networks.

Here networks are smaller, and trained for fewer epochs.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from side_by_side import BLUE, GREEN, GREY, ORANGE, PINK, Report, mnist, run, save

from skbayesnn import MCDropoutClassifier, VariationalDropoutClassifier

# Dropout of the images and of the layers, as in the paper.
RATES = (0.2, 0.5, 0.5, 0.5)


def main(quick):
    """Errors of five networks at three widths."""
    data = mnist(*((200, 100) if quick else (50_000, None)))
    n_rows, n_test = len(data[0]), len(data[2])
    widths, epochs = ((5, 10), 1) if quick else ((25, 100, 400), 100)
    report = Report(
        "Kingma, Salimans & Welling (2015), figure 1, MNIST.",
        f"{n_rows:,} training images (50,000 in the paper), {n_test:,} test images, "
        f"three layers of {', '.join(map(str, widths))} units, {epochs} epochs, one "
        "seed. The step was chosen on 10,000 other images, with 100 units. One "
        "standard error of an error of 3 % is "
        f"{100 * np.sqrt(0.03 * 0.97 / n_test):.2f} %.",
    )
    errors = errors_by_width(data, widths, epochs, quick)
    draw(errors, widths, quick)
    mean = {name: np.mean(values) for name, values in errors.items()}
    for kind in ("variational, A", "variational, B"):
        for other in ("Gaussian .5", "no noise"):
            report.statement(
                f"error, mean over widths: {kind} not above {other}",
                f"{mean[kind]:.2f} against {mean[other]:.2f} %",
                mean[kind] <= mean[other],
                tolerance="not higher",
            )
    for name, values in errors.items():
        of_widths = ", ".join(f"{value:.2f}" for value in values)
        report.show(f"error in %, {name}", "only drawn", of_widths)
    return report


def errors_by_width(data, widths, epochs, quick):
    """{network: test errors in per cent}."""
    X, y, X_test, y_test = data
    errors = {}
    for width in widths:
        common = {
            "hidden_layer_sizes": (width,) * 3,
            "standardize": False,
            "batch_size": 128,
            "max_iter": epochs,
            "learning_rate_init": 0.002,
            "n_draws": 3 if quick else 30,
            "random_state": 0,
        }
        # The KL of the paper, with rates of at most .5; the default has no bound.
        paper = common | {"kl_approximation": "kingma"}
        networks = {
            "variational, A": VariationalDropoutClassifier(
                noise="independent", **paper
            ),
            "variational, B": VariationalDropoutClassifier(**paper),
            "Gaussian .5": MCDropoutClassifier(
                noise="gaussian", dropout=RATES, **common
            ),
            "Bernoulli .5": MCDropoutClassifier(dropout=RATES, **common),
            "no noise": MCDropoutClassifier(dropout=0, **common),
        }
        for name, model in networks.items():
            error = 100 * (1 - model.fit(X, y).score(X_test, y_test))
            errors.setdefault(name, []).append(error)
            print(name, width, f"{error:.2f}", file=sys.stderr)
    return errors


def draw(errors, widths, quick):
    """Errors by width, as in figure 1."""
    figure, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
    for (name, values), color in zip(
        errors.items(), (BLUE, ORANGE, GREEN, PINK, GREY), strict=True
    ):
        ax.plot(widths, values, "o-", color=color, label=name)
    ax.set(xlabel="units of three layers", ylabel="test error, %", xticks=widths)
    ax.legend(frameon=False)
    save(figure, "kingma2015_widths.png", quick)


if __name__ == "__main__":
    run(main)
