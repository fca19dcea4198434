"""Does variational inference underestimate the variance?
======================================================

A linear model with two correlated columns, for which Bayes' rule has a closed form. If
the columns have correlation r, the rows determine the sum of the two weights well, and
their difference badly: the exact posterior is a narrow ellipse.

- Bayes by Backprop fits an ellipse with axes along the weights. The ellipse that
  minimises KL(q || posterior) has the right mean. Its variances are those of each
  weight *given the other*, 1 / A_jj of the precision matrix A, where (A^-1)_jj is right
  [MacKay 2003, section 33.5]. At r = 0.95 the standard deviation of a weight is 0.37 of
  the exact one. Predictions are too certain across the data, where rows are missing (a
  fourth of the exact value), and less certain than the exact ones along the data.
- MC dropout has four distinct pairs of weights. Their spread comes from the masks: the
  rate and the size of the weights determine it, whatever the number of rows. It is too
  large for small r and too small for large r.
- The networks of an anchored ensemble are draws of the exact posterior of a linear
  model. Their spread is right for every r, within the error of 300 networks.

The independence of the weights is the cause, not the training: the last picture also
shows the closed form of the best independent weights. In a network of more layers, too,
weights depend on each other, and their variances are underestimated.

Writes examples/output/underestimation.png and prints the standard deviations.
"""

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size
from matplotlib.patches import Ellipse

from skbayesnn import AnchoredEnsembleRegressor, BBBRegressor, MCDropoutRegressor

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"

ROWS, NOISE, WEIGHTS = 40, 1.0, np.array([1.0, 0.5])
CORRELATIONS = size((0.0, 0.5, 0.8, 0.9, 0.95, 0.98), short=(0.0, 0.95))
SHOWN = 0.95
# All models are linear, with the true noise and the prior N(0, 1) of every weight.
SHARED = {
    "hidden_layer_sizes": (),
    "likelihood": "gaussian",
    "length_scale": 1.0,
    "tau": NOISE**-2,
    "standardize": False,
    "batch_size": ROWS,
    "learning_rate_init": 0.1,
    "max_iter": size(400, short=20),
    "random_state": 0,
}
N_DRAWS = 1000
MODELS = {
    "Bayes by Backprop": (
        BBBRegressor(**SHARED, n_draws=N_DRAWS, n_training_draws=4),
        BLUE,
    ),
    "MC dropout": (MCDropoutRegressor(**SHARED, dropout=0.1, n_draws=N_DRAWS), ORANGE),
    "anchored ensemble": (
        AnchoredEnsembleRegressor(
            **SHARED, bias_length_scale=1.0, n_estimators=size(300, short=10)
        ),
        GREEN,
    ),
}
# A step along the data, and one across.
DIRECTIONS = {"along": np.array([1, 1]) / 2**0.5, "across": np.array([1, -1]) / 2**0.5}


def main():
    """Fit the models for every correlation, print and draw."""
    print(f"{ROWS} rows, noise {NOISE}; standard deviation of the weights, and of f a")
    print("step along the data and a step across; shares of the exact ones in brackets")
    print(f"{'r':>5} {'model':<18} {'weight':>15} {'f along':>15} {'f across':>15}")
    ratios, shown = {name: [] for name in MODELS}, {}
    for r in CORRELATIONS:
        X, y = rows(r)
        mean, precision = exact(X, y)
        covariance = np.linalg.inv(precision)
        reference = spread(covariance)
        line(r, "exact", reference, reference)
        for name, (model, _) in MODELS.items():
            draws = weights_of(model.fit(X, y))
            of = spread(np.cov(draws))
            line(r, name, of, reference)
            ratios[name].append(of["weight"] / reference["weight"])
            if r == SHOWN:
                shown[name] = draws
        if r == SHOWN:
            shown["exact"] = mean, precision
    plot(shown, ratios)


def rows(r):
    """X with two columns of variance one and sample correlation r, and y."""
    random = np.random.default_rng(1)
    normal = random.standard_normal((ROWS, 2))
    white, _ = np.linalg.qr(normal - normal.mean(0))
    X = white * ROWS**0.5 @ np.array([[1, r], [0, (1 - r**2) ** 0.5]])
    return X, X @ WEIGHTS + NOISE * random.standard_normal(ROWS)


def exact(X, y):
    """Mean and precision of the posterior of the two weights.

    The columns sum to zero, so that the intercept is independent of them.
    """
    precision = np.eye(2) + X.T @ X / NOISE**2
    return np.linalg.solve(precision, X.T @ y / NOISE**2), precision


def weights_of(model):
    """Draws of both weights, (2, draws): differences of f between three points."""
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    f = model.sample_f(points, n_samples=N_DRAWS)
    return f[1:] - f[0]


def spread(covariance):
    """Standard deviations of the weights (root mean square) and of steps of f."""
    return {"weight": (np.trace(covariance) / 2) ** 0.5} | {
        name: (step @ covariance @ step) ** 0.5 for name, step in DIRECTIONS.items()
    }


def line(r, name, of, reference):
    """Print one line of the table."""
    cells = [f"{of[key]:.3f} ({of[key] / reference[key]:4.2f})" for key in of]
    print(f"{r:>5} {name:<18} {' '.join(f'{cell:>15}' for cell in cells)}")


def plot(shown, ratios):
    """The posteriors at one correlation, and the deficit at all of them."""
    mean, precision = shown.pop("exact")
    figure, all_axes = plt.subplots(
        1, 4, figsize=(16, 4.4), layout="constrained", width_ratios=[1, 1, 1, 1.2]
    )
    random = np.random.default_rng(0)
    for axes, (name, draws) in zip(all_axes[:3], shown.items(), strict=True):
        # Equal draws lie on each other: their area shows how many there are.
        points, counts = np.unique(draws.round(4), axis=1, return_counts=True)
        kept = random.permutation(points.shape[1])[:300]
        area = 6 + 600 * counts[kept] / N_DRAWS * (len(counts) < 10)
        axes.scatter(*points[:, kept], area, MODELS[name][1], alpha=0.5, lw=0)
        values, vectors = np.linalg.eigh(np.linalg.inv(precision))
        for stds in (1, 2):
            ellipse = Ellipse(
                mean,
                *(2 * stds * values**0.5),
                angle=np.degrees(np.arctan2(*vectors[::-1, 0])),
                fill=False,
                lw=1.5,
            )
            axes.add_patch(ellipse)
        axes.set(title=name, xlabel="first weight", aspect="equal")
        axes.set(xlim=(-0.9, 1.9), ylim=(-0.4, 2.4))
    all_axes[0].set_ylabel("second weight")
    grid = np.linspace(0, 0.99, 100)
    n = ROWS / NOISE**2
    best = [((1 + n) ** 2 - (n * r) ** 2) ** 0.5 / (1 + n) for r in grid]
    axes = all_axes[3]
    axes.axhline(1, color="black", lw=1)
    axes.plot(grid, best, ":", color=GREY, label="best independent weights")
    for name, values in ratios.items():
        axes.plot(CORRELATIONS, values, "o-", color=MODELS[name][1], label=name, ms=5)
    axes.set(xlabel="correlation r of the columns", ylim=(0, 1.75), xlim=(-0.02, 1))
    axes.set(title="std of a weight / exact")
    axes.legend(frameon=False, loc="lower left", fontsize=9)
    figure.suptitle(
        f"Draws of two weights at r = {SHOWN}; black: the exact posterior, 1 and 2 std"
    )
    save(figure, "underestimation.png")


if __name__ == "__main__":
    main()
