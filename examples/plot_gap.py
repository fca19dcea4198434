"""Which networks and ensembles detect a gap in the data, in one dimension?
========================================================================

Noisy rows of two curves, without rows in the middle. One curve rises through the gap;
the other has a hump there, of which the rows show only the beginning. A posterior that
detects the gap is less certain there than in the data, and its band contains the curve.
A Gaussian process achieves both, for both curves. `plot_posteriors.py` shows single
networks of every family; this example compares one and five networks of each method.

- Of single networks, only Bayes by Backprop detects a gap, and only the first one. Five
  of them detect both, but their band misses the hump.
- One network of MC dropout is as certain in the gap as in the data. Five have the same
  band; it contains the first curve because it is wide everywhere.
- Five networks of variational dropout do not detect a gap either.
- Five networks without a posterior (MAP) are much less certain in the gap than in the
  data, but their band contains either curve in less than half of the gap. The ratio of
  the two uncertainties alone does not show whether a band can be trusted.
- The anchored ensemble, ten networks tied to separate draws from a prior, detects both
  gaps. Its band is wider than the band of the Gaussian process, and contains the first
  curve, and most of the hump.
- The stack with its defaults is less certain in both gaps, but its band misses half of
  the hump.

Ratios are medians of three seeds of rows and networks; the picture shows the first.
Writes examples/output/gap.png and prints the ratios.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"

SEEDS = size((0, 1, 2), short=(0,))
ROWS, NOISE = 120, 0.1
# |x| of the data, and of the picture.
INNER, OUTER, SHOWN = 0.8, 2.5, 3.5

# As in plot_posteriors.py: a prior wide enough for the curves.
SHARED = {
    "hidden_layer_sizes": (20,),
    "activation": "tanh",
    "length_scale": 0.5,
    "likelihood": "gaussian",
    "max_iter": size(800, short=10),
}
# Estimators with their defaults.
DEFAULT = {"max_iter": size("auto", short=5)}
FIVE = {"n_estimators": 5, "n_draws": 40}
UNITS = SHARED | {"dropout": (0, 0.05)}
MODELS = {
    "MC dropout": (MCDropoutRegressor, UNITS),
    "BBB": (BBBRegressor, SHARED),
    "Variational dropout": (VariationalDropoutRegressor, SHARED),
    "Gaussian process": (None, {}),
    "stack, all defaults": (BayesianStackingRegressor, DEFAULT),
    "five of MC dropout": (MCDropoutRegressor, UNITS | FIVE),
    "five of BBB": (BBBRegressor, SHARED | FIVE),
    "five of variational dropout": (VariationalDropoutRegressor, SHARED | FIVE),
    "five of MAP": (MCDropoutRegressor, SHARED | {"dropout": 0} | FIVE),
    "anchored ensemble, all defaults": (AnchoredEnsembleRegressor, DEFAULT),
}


def steep(x):
    """A curve that rises through the gap."""
    return np.sin(2 * x) + 0.3 * x


def humped(x):
    """A curve with a hump in the gap; the data show only where it begins."""
    return np.cos(2.2 * x) + 0.2 * x


CURVES = {steep: "rises through the gap", humped: "has a hump in the gap"}


def main():
    """Fit all models to both curves with every seed, print and draw."""
    grid = np.linspace(-SHOWN, SHOWN, 281)
    print(f"{ROWS} rows, noise {NOISE}; y's units; seeds of rows and networks {SEEDS}")
    print(
        "Epistemic std, mean over a grid: in the data, in the gap; their ratio, median"
    )
    print(
        "and range of the seeds; holds: share of the gap where the curve is within two"
    )
    print("of it")
    # The stack warns of the rows in the gap, which are in the grid on purpose.
    warnings.filterwarnings("ignore", r".*\[SKB303\]")
    results = {}
    for curve in CURVES:
        columns = ("data", "gap", "ratio", "from", "to", "holds", "noise")
        print(f"\n{CURVES[curve]:<32}", *[f"{n:>7}" for n in columns])
        for name, (kind, options) in MODELS.items():
            of_seeds = [fitted(kind, options, curve, seed, grid) for seed in SEEDS]
            results[curve, name] = of_seeds[0]
            data, gap, ratio, holds, noise = (
                np.array([of[key] for of in of_seeds])
                for key in ("data", "gap", "ratio", "holds", "noise")
            )
            print(
                f"{name:<32} {data.mean():>7.3f} {gap.mean():>7.3f}"
                f" {np.median(ratio):>7.2f} {ratio.min():>7.2f} {ratio.max():>7.2f}"
                f" {holds.mean():>7.0%} {noise.mean():>7.3f}"
            )
    plot(results, grid)


def rows(curve, seed):
    """X, y with as many rows left of the gap as right of it."""
    random = np.random.default_rng(seed)
    x = random.uniform(INNER, OUTER, ROWS) * np.repeat([-1, 1], ROWS // 2)
    y = curve(x) + NOISE * random.standard_normal(ROWS)
    return x[:, None].astype(np.float32), y


def fitted(kind, options, curve, seed, grid):
    """Fit a model to a curve: mean and bands on the grid, and the scores."""
    X, y = rows(curve, seed)
    if kind is None:
        of = gaussian_process(X, y, grid, seed)
    else:
        model = kind(**options, random_state=seed).fit(X, y)
        on_grid = grid[:, None].astype(np.float32)
        of = model.predict_uncertainty(on_grid, "all")
        of |= {"mean": model.predict(on_grid), "noise": of["aleatoric"].mean()}
    in_gap, in_data = abs(grid) < INNER, (abs(grid) >= INNER) & (abs(grid) <= OUTER)
    data, gap = (of["epistemic"][where].mean() for where in (in_data, in_gap))
    inside = abs(of["mean"] - curve(grid)) < 2 * of["epistemic"]
    numbers = {"data": data, "gap": gap, "ratio": gap / data}
    return of | numbers | {"holds": inside[in_gap].mean()}


def gaussian_process(X, y, grid, seed):
    """The same bands for a Gaussian process with a learned length scale."""
    kernel = ConstantKernel() * RBF() + WhiteKernel(NOISE**2)
    model = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed
    ).fit(X, y)
    mean, total = model.predict(grid[:, None], return_std=True)
    noise = np.sqrt(model.kernel_.k2.noise_level) * y.std()
    epistemic = np.sqrt(np.maximum(total**2 - noise**2, 0))
    return {"mean": mean, "total": total, "epistemic": epistemic, "noise": noise}


def plot(results, grid):
    """A small picture of every model and curve, first seed: two rows a curve."""
    figure, all_axes = plt.subplots(
        4, 5, figsize=(16, 11.5), sharex=True, sharey="row", layout="constrained"
    )
    for axes, ((curve, name), of) in zip(all_axes.flat, results.items(), strict=True):
        axes.axvspan(-INNER, INNER, color="#F0F0F0", lw=0)
        for kind, color, alpha in (("total", BLUE, 0.25), ("epistemic", ORANGE, 0.5)):
            lower, upper = of["mean"] - 2 * of[kind], of["mean"] + 2 * of[kind]
            axes.fill_between(grid, lower, upper, color=color, alpha=alpha, lw=0)
        X, y = rows(curve, SEEDS[0])
        axes.plot(X[:, 0], y, ".", color=GREY, ms=3)
        axes.plot(grid, of["mean"], color=BLUE, lw=1.5)
        axes.plot(grid, curve(grid), color="black", ls=":", lw=1.2)
        scores = f"gap / data {of['ratio']:.1f}, holds {of['holds']:.0%}"
        axes.set_title(f"{name}\n{scores}", fontsize=10)
        axes.set(xlim=(-SHOWN, SHOWN), ylim=(-2.4, 2.4))
    for axes, curve in zip(all_axes[:, 0], np.repeat(list(CURVES), 2), strict=True):
        axes.set_ylabel(f"y {CURVES[curve]}")
    for axes in all_axes[-1]:
        axes.set_xlabel("x")
    handles = [
        Line2D([], [], color=GREY, marker=".", ls="", label="data"),
        Line2D([], [], color="black", ls=":", label="curve without noise"),
        Line2D([], [], color=BLUE, label="predictive mean"),
        Patch(color=ORANGE, alpha=0.5, lw=0, label="epistemic, 2 std"),
        Patch(color=BLUE, alpha=0.25, lw=0, label="total, 2 std"),
        Patch(color="#F0F0F0", lw=0, label="gap: no data"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)
    figure.suptitle(
        "gap / data: mean epistemic std in the gap divided by the one in the data; "
        "holds: share of the gap where the curve is in the epistemic band"
    )
    save(figure, "gap.png")


if __name__ == "__main__":
    main()
