"""Gal 2016, thesis, chapter 3: three estimators of a gradient, and factorised weights.

Section 3.1 compares the variance of three estimators of d/dmu and d/dsigma of E f(x), x
~ N(mu, sigma^2): the score function, the path-wise derivative and the characteristic
function. None is the best for every f. The variances here are exact, by quadrature, and
estimated with the package's functions.

A posterior that is factorised over the weights is too narrow where the columns of X are
correlated: its variances are 1 / A_ii in place of (A^-1)_ii, with the precision A of
the true posterior. A Bayes by Backprop network without hidden layer has exactly these.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from side_by_side import BLUE, GREEN, ORANGE, Report, run, save

from skbayesnn import BBBRegressor
from skbayesnn.gradient_estimators import (
    characteristic_function,
    pathwise,
    score_function,
)

ESTIMATORS = {
    "score function": (score_function, ORANGE),
    "path-wise": (pathwise, BLUE),
    "characteristic function": (characteristic_function, GREEN),
}
FUNCTIONS = {
    "x + x^2": lambda x: x + x * x,
    "x + x^3": lambda x: x + x * x * x,
    "sin(x)": torch.sin,
    "exp(-x^2)": lambda x: torch.exp(-x * x),
    "sin(10 x)": lambda x: torch.sin(10 * x),
}
# Where the picture has an estimator without variance.
FLOOR, OFFSET = 0.03, {"textcoords": "offset points", "fontsize": 8}
# Correlation of the columns, observations, precision of the noise, length scale.
CORRELATION, ROWS, TAU, LENGTH_SCALE = 0.9, 200, 4.0, 1.0


def main(quick):
    """Variances of the estimators at N(0, 1), and widths of a factorised posterior."""
    n_draws = 2_000 if quick else 1_000_000
    report = Report(
        "Gal (2016), thesis, section 3.1 and the factorisation over weights.",
        f"x ~ N(0, 1). Published is only the order of the estimators; the numbers are "
        f"by quadrature, those here from {n_draws:,} draws. Tolerance of a variance: "
        "five standard errors of its estimate.",
    )
    exact, winners = {}, {}
    nodes, weights = np.polynomial.hermite_e.hermegauss(180)
    weights = weights / weights.sum()
    normal = torch.randn(
        n_draws, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    mu, sigma = torch.tensor([0.0, 1.0], dtype=torch.float64)
    for function, f in FUNCTIONS.items():
        for name, (estimator, _) in ESTIMATORS.items():
            both = estimator(f, mu, sigma, torch.as_tensor(nodes))
            drawn = estimator(f, mu, sigma, normal)
            for parameter, at, of in zip(("mu", "sigma"), both, drawn, strict=True):
                mean = weights @ at.numpy()
                square = np.square(at.numpy() - mean)
                variance = weights @ square
                exact[parameter, function, name] = variance
                kurtosis = weights @ np.square(square - variance)
                if parameter == "sigma":
                    tolerance = 5 * np.sqrt(kurtosis / n_draws)
                    report.number(
                        f"variance, d/dsigma, {function}, {name}",
                        variance,
                        of.var().item(),
                        tolerance + 1e-9,
                    )
        of_function = {name: exact["sigma", function, name] for name in ESTIMATORS}
        winners[function] = min(of_function, key=of_function.get)
    report.statement(
        "d/dsigma: no estimator has the lowest variance for every function",
        "; ".join(f"{function}: {name}" for function, name in winners.items()),
        len(set(winners.values())) > 1,
        tolerance="exact",
    )
    equal = [
        np.isclose(
            exact["mu", function, "path-wise"],
            exact["mu", function, "characteristic function"],
        )
        for function in FUNCTIONS
    ]
    report.statement(
        "d/dmu: path-wise and characteristic function are the same",
        f"{sum(equal)} of {len(equal)} functions",
        all(equal),
        tolerance="exact",
    )
    factorised(report, quick)
    draw(exact, quick)
    return report


def factorised(report, quick):
    """Standard deviation of two weights: factorised q against the true posterior."""
    random = np.random.default_rng(0)
    covariance = [[1, CORRELATION], [CORRELATION, 1]]
    X = random.multivariate_normal([0, 0], covariance, ROWS).astype(np.float32)
    y = X @ [1.0, -0.5] + random.normal(0, TAU**-0.5, ROWS)
    model = BBBRegressor(
        (),
        likelihood="gaussian",
        tau=TAU,
        length_scale=LENGTH_SCALE,
        standardize=False,
        max_iter=10 if quick else 1500,
        random_state=0,
    ).fit(X, y)
    precision = LENGTH_SCALE**2 * np.eye(2) + TAU * X.T @ X
    narrow, true = 1 / np.sqrt(precision[0, 0]), np.linalg.inv(precision)[0, 0] ** 0.5
    here = np.logaddexp(0, model.parameters_["layers/0/rho"])[0, 0, 0]
    report.number(
        "std of a weight, factorised: 1 / sqrt(A_ii)", narrow, here, 0.03 * narrow
    )
    report.statement(
        f"... which is too narrow (correlation of the columns {CORRELATION})",
        f"true posterior {true:.3g}, factorised {here:.3g}",
        here < 0.9 * true,
        tolerance="10 %",
    )


def draw(exact, quick):
    """A mark for every estimator and function."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True)
    for ax, parameter in zip(axes, ("mu", "sigma"), strict=True):
        for place, function in enumerate(FUNCTIONS):
            for name, (_, color) in ESTIMATORS.items():
                value = exact[parameter, function, name]
                if value < FLOOR:
                    ax.annotate("exactly 0", (FLOOR, place), (9, -3), **OFFSET)
                # Equal marks: an open one around the other.
                fill = "none" if name.startswith("char") else color
                size = 11 if name.startswith("char") else 7
                ax.plot(max(value, FLOOR), place, "o", color=color, mfc=fill, ms=size)
        ax.set(xscale="log", title=rf"$d / d\{parameter}$", xlabel="variance")
        ax.set_yticks(range(len(FUNCTIONS)), [f"${f}$" for f in FUNCTIONS])
        ax.grid(axis="x", color="#EEEEEE")
    for name, (_, color) in ESTIMATORS.items():
        axes[0].plot([], [], "o", color=color, label=name)
    axes[0].legend(frameon=False, fontsize=9)
    axes[0].invert_yaxis()
    figure.tight_layout()
    save(figure, "gal_thesis_gradients.png", quick)


if __name__ == "__main__":
    run(main)
