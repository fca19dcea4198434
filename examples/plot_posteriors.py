"""What does each posterior know about the gap between two clouds of data?
=======================================================================

Every family of the package, and two networks without a posterior, are fitted to the
same noisy rows of a curve. There are no rows in the middle: a posterior should be less
certain there than in the data.

- Bayes by Backprop is, under both priors: its epistemic standard deviation is twice as
  large in the gap, and its band contains the curve.
- Fixed rates of dropout on units (Bernoulli, Gaussian, spike and slab) and DropConnect
  contain the curve, too, but with bands that are wide everywhere and a learned noise
  that is too large: the spread of their masks cannot shrink where data are many.
- Variational dropout is too certain in the gap, also type A under the log-uniform
  prior, whose narrow band widens a little. So, in part, are additive noise, which is
  more certain there than in the data, and learned rates.
- MAP and maximum likelihood have no epistemic band.
- Beyond the data no band contains the curve.

The answer depends on the data. If the curve has a hump in the gap, which the rows do
not show, every posterior is at most slightly less certain, and no band contains the
curve (last two columns of the table; not in the picture).

Writes examples/output/posteriors.png and prints the table.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from skbayesnn import BBBRegressor, MCDropoutRegressor, VariationalDropoutRegressor

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"

ROWS, NOISE = 120, 0.1
# |x| of the data, and of the picture.
INNER, OUTER, SHOWN = 0.8, 2.5, 3.5

# A prior wide enough for the curve: under length_scale="fan_in" (1 for the input and
# sqrt(20) for the units) several families flatten it. 20 units, since type A has to
# pay for every weight that is not noise.
SHARED = {
    "hidden_layer_sizes": (20,),
    "activation": "tanh",
    "length_scale": 0.5,
    "likelihood": "gaussian",
    "max_iter": size(1500, short=10),
    "random_state": 0,
}
# Units are dropped, but not the only input. Weights are dropped in both layers: in the
# second alone, which has one output, that would be the same as units.
UNITS, WEIGHTS = (0, 0.05), 0.05
TYPE_A = {"noise": "independent", "alpha_per": "weight"}
MODELS = {
    "MC dropout, Bernoulli": (MCDropoutRegressor, {"dropout": UNITS}),
    "MC dropout, Gaussian": (
        MCDropoutRegressor,
        {"dropout": UNITS, "noise": "gaussian"},
    ),
    "MC dropout, dropconnect": (
        MCDropoutRegressor,
        {"dropout": WEIGHTS, "noise": "dropconnect"},
    ),
    "MC dropout, additive": (
        MCDropoutRegressor,
        {"dropout": WEIGHTS, "noise": "additive"},
    ),
    "MC dropout, learned rates": (MCDropoutRegressor, {"dropout": "auto"}),
    "BBB, Gaussian prior": (BBBRegressor, {}),
    "BBB, scale mixture": (BBBRegressor, {"prior": "scale_mixture", "kl": "sampled"}),
    "BBB, spike and slab": (BBBRegressor, {"dropout": UNITS}),
    "Variational dropout B": (VariationalDropoutRegressor, {}),
    "Variational dropout A": (VariationalDropoutRegressor, TYPE_A),
    "Type A, Gaussian prior": (
        VariationalDropoutRegressor,
        TYPE_A | {"prior": "gaussian"},
    ),
    "MAP": (MCDropoutRegressor, {"dropout": 0}),
    "Maximum likelihood": (MCDropoutRegressor, {"dropout": 0, "length_scale": 0}),
}
# Row and column of every picture; the legend is next to the second row.
PLACES = (
    [(0, i) for i in range(5)] + [(1, i) for i in range(3)] + [(2, i) for i in range(5)]
)


def main():
    """Fit all families to two curves, print the numbers, draw the first curve's."""
    grid = np.linspace(-SHOWN, SHOWN, 281)
    print(f"{ROWS} rows, noise {NOISE}; y's units. Epistemic std, mean over a grid: in")
    print(
        "the data, in the gap, their ratio; holds: share of the gap where the curve is"
    )
    print("within two of it. The last two columns: the same for a curve with a hump.\n")
    columns = ("RMSE", "data", "gap", "ratio", "holds", "noise", "seconds")
    print(f"{'':<26}", *[f"{name:>7}" for name in (*columns, "ratio", "holds")])
    results = {}
    for name, (kind, options) in MODELS.items():
        model = kind(**SHARED | options)
        start = time.perf_counter()
        results[name] = of = fitted(model, steep, grid)
        seconds = time.perf_counter() - start
        hump = fitted(model, humped, grid)
        print(
            f"{name:<26} {of['error']:>7.3f} {of['data']:>7.3f} {of['gap']:>7.3f}"
            f" {of['ratio']:>7.2f} {of['holds']:>7.0%} {of['noise']:>7.3f}"
            f" {seconds:>7.1f} {hump['ratio']:>7.2f} {hump['holds']:>7.0%}"
        )
    plot(results, grid)


def steep(x):
    """A curve that rises through the gap."""
    return np.sin(2 * x) + 0.3 * x


def humped(x):
    """A curve with a hump in the gap; the data show only where it begins."""
    return np.cos(2.2 * x) + 0.2 * x


def rows(curve):
    """X, y with as many rows left of the gap as right of it."""
    random = np.random.default_rng(0)
    x = random.uniform(INNER, OUTER, ROWS) * np.repeat([-1, 1], ROWS // 2)
    y = curve(x) + NOISE * random.standard_normal(ROWS)
    return x[:, None].astype(np.float32), y


def fitted(model, curve, grid):
    """Fit a model to a curve: mean and bands on the grid, and the scores."""
    model.fit(*rows(curve))
    X = grid[:, None].astype(np.float32)
    mean, parts = model.predict(X), model.predict_uncertainty(X, kind="all")
    in_gap, in_data = abs(grid) < INNER, (abs(grid) >= INNER) & (abs(grid) <= OUTER)
    data, gap = (parts["epistemic"][where].mean() for where in (in_data, in_gap))
    error = mean - curve(grid)
    return parts | {
        "mean": mean,
        "error": np.sqrt(np.square(error[in_data]).mean()),
        "holds": (abs(error) < 2 * parts["epistemic"])[in_gap].mean(),
        "data": data,
        "gap": gap,
        "ratio": gap / data if data > 0 else np.nan,
        "noise": float(model.noise_std_),
    }


def plot(results, grid):
    """A small picture of every family, on the same axes."""
    figure, all_axes = plt.subplots(
        3, 5, figsize=(14, 8), sharex=True, sharey=True, layout="constrained"
    )
    X, y = rows(steep)
    for (name, of), place in zip(results.items(), PLACES, strict=True):
        axes = all_axes[place]
        axes.axvspan(-INNER, INNER, color="#F0F0F0", lw=0)
        for kind, color, alpha in (("total", BLUE, 0.25), ("epistemic", ORANGE, 0.5)):
            lower, upper = of["mean"] - 2 * of[kind], of["mean"] + 2 * of[kind]
            axes.fill_between(grid, lower, upper, color=color, alpha=alpha, lw=0)
        axes.plot(grid, steep(grid), color="black", ls=":", lw=1)
        axes.plot(grid, of["mean"], color=BLUE, lw=1.5)
        axes.plot(X[:, 0], y, ".", color=GREY, ms=3)
        scores = (
            f"gap / data {of['ratio']:.1f}" if of["data"] > 0 else "no epistemic part"
        )
        axes.set_title(f"{name}\n{scores}", fontsize=10)
        axes.set(xlim=(-SHOWN, SHOWN), ylim=(-2.4, 2.4))
        axes.label_outer()
    for axes in all_axes[1, 3:]:
        axes.axis("off")
    handles = [
        Line2D([], [], color=GREY, marker=".", ls="", label="data, y"),
        Line2D([], [], color="black", ls=":", lw=1, label="curve without noise"),
        Line2D([], [], color=BLUE, label="predictive mean"),
        Patch(color=ORANGE, alpha=0.5, lw=0, label="epistemic, 2 std"),
        Patch(color=BLUE, alpha=0.25, lw=0, label="total, 2 std"),
        Patch(color="#F0F0F0", lw=0, label="gap: no data"),
    ]
    all_axes[1, 3].legend(
        handles=handles,
        title="gap / data: mean epistemic std\nin the gap over that in the data",
        loc="center left",
        fontsize=11,
        frameon=False,
    )
    for axes in all_axes[:, 0]:
        axes.set_ylabel("y")
    for axes in all_axes[2]:
        axes.set_xlabel("x")
    figure.suptitle(
        "Only Bayes by Backprop with normal weights is clearly less sure in the gap "
        "than in the data",
        fontsize=13,
    )
    save(figure, "posteriors.png")


if __name__ == "__main__":
    main()
