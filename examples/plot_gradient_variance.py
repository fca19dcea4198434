"""How noisy are the gradients of variational inference, and what helps?
=====================================================================

Left: the three estimators of the gradient of E f(x), x ~ N(mu, sigma^2) [Gal 2016,
thesis, 3.1]. Each has the lowest variance of d/dsigma for some f: the characteristic
function for polynomials and exp; the path-wise derivative for sin(x), a bump and a
smooth ReLU; the score function for sin(10 x), which oscillates quickly. For d/dmu the
path-wise and the characteristic function are the same estimator.

Right: one layer of Bayes by Backprop, gradients of the mean loss of a batch. If all
rows share a draw of the weights, their gradients are correlated, and the variance stops
falling at that covariance. With local reparameterisation every row has its own noise,
and the variance falls as 1 / rows [Kingma, Salimans & Welling 2015, sections 2.2 and
2.3]. For the spread of the weights (rho) it is smaller already with one row. The
variance is over noise and rows; the part of the rows falls as 1 / rows in both cases.

The program also prints table 1 of that paper, for a network of two hidden layers on
digits, early in training and later. As in the paper, local reparameterisation has the
variance of a draw per row, or less, at the cost of one draw for all rows. The latter
has twice as much variance at first, and four to six times as much after 100 epochs.

Writes examples/output/gradient_variance.png and prints the variances.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import save, size
from matplotlib.lines import Line2D
from sklearn.datasets import load_digits
from torch.nn import functional

from skbayesnn import BBBClassifier
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import MeanField
from skbayesnn.estimators import _fitted
from skbayesnn.gradient_estimators import (
    characteristic_function,
    pathwise,
    score_function,
)

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
CPU = torch.device("cpu")

DRAWS = size(1_000_000, short=20_000)
ESTIMATORS = {
    "score function": (score_function, ORANGE, "s"),
    "path-wise": (pathwise, BLUE, "o"),
    "characteristic function": (characteristic_function, GREEN, "D"),
}
FUNCTIONS = {
    "$x^2$": torch.square,
    "$x + x^3$": lambda x: x + x * x * x,
    "exp($x$)": torch.exp,
    "smooth ReLU": lambda x: functional.softplus(20 * x) / 20,
    "sin($x$)": torch.sin,
    "exp($-x^2$)": lambda x: torch.exp(-x.square()),
    "sin($10 x$)": lambda x: torch.sin(10 * x),
}

BATCH_SIZES = [2**k for k in range(size(11, short=9))]
REPETITIONS = size(2000, short=50)
INPUTS, OUTPUTS, ROWS = 20, 5, 4000
# Standard deviation of every weight under q; the noise in y has a std of one.
WEIGHT_STD = 0.3
FAMILIES = {
    "one draw for all rows": (MeanField(shared_draw=True), ORANGE),
    "local reparameterisation": (MeanField(), BLUE),
}
# Of a trained network: epochs, rows of a batch, and batches.
TRAINED, BATCH, BATCHES = size((10, 100), short=(1, 2)), 128, size(300, short=20)
PARAMETERS = {"mean": ("d/d mean", "o", "full"), "rho": ("d/d rho", "s", "none")}


def main():
    """Both tables, and the picture."""
    of_functions = variances_of_functions()
    print_functions(of_functions)
    layer = Layer()
    of_batches = {name: layer.variances(f) for name, (f, _) in FAMILIES.items()}
    floors = {name: layer.covariance(f) for name, (f, _) in FAMILIES.items()}
    shares = {name: layer.noise_share(f) for name, (f, _) in FAMILIES.items()}
    print_batches(of_batches, floors, shares)
    print_trained({epochs: variances_in_training(epochs) for epochs in TRAINED})

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(13, 6.2), width_ratios=[1, 1.1], layout="constrained"
    )
    plot_functions(left, of_functions)
    plot_batches(right, of_batches, floors)
    save(figure, "gradient_variance.png")


def variances_of_functions():
    """{parameter: {function: {estimator: variance}}} at N(0, 1), float64."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(DRAWS, generator=generator, dtype=torch.float64)
    mu, sigma = torch.tensor([0.0, 1.0], dtype=torch.float64)
    results = {"mu": {}, "sigma": {}}
    for function, f in FUNCTIONS.items():
        estimates = {
            name: estimator(f, mu, sigma, normal)
            for name, (estimator, _, _) in ESTIMATORS.items()
        }
        for i, parameter in enumerate(results):
            results[parameter][function] = {
                name: both[i].var().item() for name, both in estimates.items()
            }
    return results


def print_functions(results):
    """Which estimator is lowest for which function."""
    print(f"Variance of one estimate of the gradient of E f(x), x ~ N(0, 1), {DRAWS:,}")
    print("draws; the lowest of each row is named")
    for parameter, functions in results.items():
        print(f"\n{'d/d' + parameter:<14}", *[f"{name:>24}" for name in ESTIMATORS])
        for function, variances in functions.items():
            numbers = [f"{value:>24.3g}" for value in variances.values()]
            plain = function.replace("$", "")
            print(f"{plain:<14}", *numbers, f"  {' = '.join(lowest(variances))}")
    winners = {name for v in results["sigma"].values() for name in lowest(v)}
    assert winners == set(ESTIMATORS), "one estimator is never the best"


def lowest(variances):
    """Names of the estimators with the lowest variance; two where they are equal."""
    least = min(variances.values())
    return [name for name, value in variances.items() if value == least]


def plot_functions(axes, results):
    """A row for every function, a mark for every estimator."""
    floor = 0.02  # Where an estimator without any variance is drawn.
    labels, positions = [], []
    place = 0.0
    for parameter, functions in results.items():
        header = rf"$\bf{{d/d\{parameter}}}$"
        axes.text(
            -0.02, place, header, transform=axes.get_yaxis_transform(), ha="right"
        )
        place += 1
        for function, variances in functions.items():
            low, high = min(variances.values()), max(variances.values())
            axes.plot(
                [max(low, floor), high], [place, place], color="#DDDDDD", lw=3, zorder=0
            )
            for name, value in variances.items():
                _, color, marker = ESTIMATORS[name]
                # Equal marks side by side would hide each other: an open one around.
                twin = parameter == "mu" and name == "characteristic function"
                axes.plot(
                    max(value, floor),
                    place,
                    marker,
                    color=color,
                    ms=11 if twin else 7,
                    mfc="none" if twin else color,
                    mew=1.5,
                )
                if value < floor:
                    axes.annotate(
                        "exactly 0",
                        (floor, place),
                        (2, 7),
                        textcoords="offset points",
                        fontsize=8,
                        color=color,
                    )
            labels.append(function)
            positions.append(place)
            place += 1
        place += 0.6
    axes.set(
        xscale="log",
        xlim=(floor / 1.6, None),
        ylim=(place - 0.8, -2.7),
        yticks=positions,
        yticklabels=labels,
        xlabel="variance of one estimate, $x \\sim N(0, 1)$ (units of $f^2$)",
        title="None of three gradient estimators has\n"
        "the lowest variance for every function",
    )
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#EEEEEE", zorder=-1)
    handles = [
        Line2D([], [], color=color, marker=marker, ls="", label=name)
        for name, (_, color, marker) in ESTIMATORS.items()
    ]
    axes.legend(handles=handles, loc="upper center", ncols=3, frameon=False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


class Layer:
    """A linear layer with normal weights, and rows y = x W + noise to draw from.

    Every repetition is a member with separate random numbers and rows. Rows are drawn
    with replacement, so that the rows of a batch are independent, as in [KSW15].
    """

    def __init__(self):
        self.random = torch.Generator().manual_seed(1)
        mean = self._normal(INPUTS, OUTPUTS) / INPUTS**0.5
        self.x = self._normal(ROWS, INPUTS)
        self.y = self.x @ mean + self._normal(ROWS, OUTPUTS)
        rho = float(np.log(np.expm1(WEIGHT_STD)))
        self.one = {
            "mean": mean,
            "rho": torch.full((INPUTS, OUTPUTS), rho),
            "bias": torch.zeros(OUTPUTS),
            "bias_rho": torch.full((OUTPUTS,), rho),
        }

    def variances(self, family):
        """{parameter: variance for every batch size}, mean over the weights."""
        results = {name: [] for name in PARAMETERS}
        for epoch, n_rows in enumerate(BATCH_SIZES):
            gradients = self.gradients(family, n_rows, epoch)
            for name in results:
                results[name].append(gradients[name].var(0).mean().item())
        return {name: np.array(values) for name, values in results.items()}

    def covariance(self, family, half=64):
        """Covariance of two rows: (value, standard error), mean over the weights.

        Measured between the means over the batch's two halves: their rows are
        independent, and more of them leave less noise in the result.
        """
        first = self.gradients(family, 2 * half, 100, slice(0, half))
        second = self.gradients(family, 2 * half, 100, slice(half, None))
        results = {}
        for name in PARAMETERS:
            products = (first[name] - first[name].mean(0)) * second[name]
            of_repetitions = products.flatten(1).mean(1)
            error = of_repetitions.std() / REPETITIONS**0.5
            results[name] = of_repetitions.mean().item(), error.item()
        return results

    def noise_share(self, family):
        """Share of the variance at one row that is due to the noise."""
        first = self.gradients(family, 1, 200, rows_of=200)
        second = self.gradients(family, 1, 201, rows_of=200)
        return {
            name: (
                (first[name] - second[name]).square().mean()
                / 2
                / first[name].var(0).mean()
            ).item()
            for name in PARAMETERS
        }

    def gradients(self, family, n_rows, epoch, part=slice(None), rows_of=None):
        """{parameter: (repetitions, *shape)} of the mean loss over part of a batch.

        The loss of a row is half its squared error: nats, for a precision of one.
        The same epoch has the same noise; the same ``rows_of`` (or epoch) same rows.
        """
        self.random.manual_seed(2 + (epoch if rows_of is None else rows_of))
        chunk = max(1, 2**18 // n_rows)
        pieces = []
        for start in range(0, REPETITIONS, chunk):
            seeds = np.arange(start, min(start + chunk, REPETITIONS))
            noise = TrainingRandom(seeds, CPU, torch.float32)
            noise.start_epoch(epoch)
            rows = torch.randint(ROWS, (len(seeds), n_rows), generator=self.random)
            members = {
                name: value.expand(len(seeds), *value.shape)
                for name, value in self.one.items()
            }
            outputs, pullback = family.linear_vjp(
                members, torch.ones(1), self.x[rows], noise
            )
            of_loss = torch.zeros_like(outputs)
            of_loss[:, part] = (outputs - self.y[rows])[:, part]
            of_loss /= len(range(n_rows)[part])
            pieces.append(pullback(of_loss, False)[0])
        return {
            name: torch.cat([piece[name] for piece in pieces]) for name in PARAMETERS
        }

    def _normal(self, *shape):
        return torch.randn(shape, generator=self.random)


def variances_in_training(epochs):
    """{family: (variance in the first layer, in the last)} after n epochs."""
    X, y = load_digits(return_X_y=True)
    X = X[:, X.std(0) > 0]
    X = ((X - X.mean()) / X.std()).astype(np.float32)
    model = BBBClassifier((100, 100), standardize=False, max_iter=epochs)
    model.set_params(random_state=0, learning_rate="constant").fit(X, y)
    q = _fitted.restore_posterior(model, CPU, torch.float32)
    rows = torch.as_tensor(X), torch.nn.functional.one_hot(torch.as_tensor(y)).float()
    one = MeanField(shared_draw=True)
    results = {
        name: of_batch(q, rows, family, BATCH) for name, (family, _) in FAMILIES.items()
    }
    # A batch of n rows with a draw each is n batches of one row.
    alone = of_batch(q, rows, one, 1)
    return {"one draw for every row": tuple(v / BATCH for v in alone)} | results


def of_batch(q, rows, family, n_rows):
    """Variance of d/d mean of the mean loss, mean over the weights of both layers."""
    random = torch.Generator().manual_seed(0)
    network = q.network.with_families((family,) * len(q.layers))
    layers = [
        {name: value.expand(BATCHES, *value.shape[1:]) for name, value in own.items()}
        for own in q.layers
    ]
    X, of_classes = rows
    chosen = torch.randint(len(X), (BATCHES, n_rows), generator=random)
    noise = TrainingRandom(np.arange(BATCHES), CPU, torch.float32)
    noise.start_epoch(0)
    outputs, pullback = network.vjp(layers, q.keep, X[chosen], noise)
    of_outputs = (outputs.softmax(-1) - of_classes[chosen]) / n_rows
    first, *_, last = pullback(of_outputs)
    return tuple(own["mean"].var(0).mean().item() for own in (first, last))


def print_trained(results):
    """A line for every way to draw, a column for every layer and length of training."""
    print(
        f"\nVariance of d/d mean, batches of {BATCH} digits, two hidden layers of 100,"
    )
    print("mean over the weights of a layer")
    columns = [(e, place) for e in results for place in ("first", "last")]
    print(f"{'':<26}", *[f"{f'{e} epochs, {place}':>18}" for e, place in columns])
    for name in results[TRAINED[0]]:
        values = [value for of_epochs in results.values() for value in of_epochs[name]]
        print(f"{name:<26}", *[f"{value:>18.3g}" for value in values])


def slope(variances, smallest):
    """Slope of log variance against log rows, from ``smallest`` rows on."""
    rows = np.array(BATCH_SIZES)
    used = rows >= smallest
    return np.polyfit(np.log(rows[used]), np.log(variances[used]), 1)[0]


def print_batches(results, floors, shares):
    """Variance against batch size, and its decomposition."""
    columns = [(family, name) for family in results for name in PARAMETERS]
    print(
        f"\nVariance of the gradient of a batch's mean loss, {REPETITIONS} repetitions,"
    )
    print(f"{INPUTS} x {OUTPUTS} weights of standard deviation {WEIGHT_STD}, nats^2")
    print(f"{'':<22}", *[f"{family:>25}" for family, _ in columns])
    print(f"{'rows':<22}", *[f"{'d/d' + name:>25}" for _, name in columns])
    for i, n_rows in enumerate(BATCH_SIZES):
        print(
            f"{n_rows:<22}", *[f"{results[f][name][i]:>25.3g}" for f, name in columns]
        )
    lines = {
        "covariance of two rows": lambda f, name: floors[f][name][0],
        "its standard error": lambda f, name: floors[f][name][1],
        "noise's share, 1 row": lambda f, name: shares[f][name],
        "slope, all": lambda f, name: slope(results[f][name], 1),
        "slope, 128 rows on": lambda f, name: slope(results[f][name], 128),
        "off the formula, most": lambda f, name: off(
            results[f][name],
            floors[f][name][0] if FAMILIES[f][0].shared_draw else 0.0,
        ),
    }
    for line, value in lines.items():
        print(f"{line:<22}", *[f"{value(*column):>25.3g}" for column in columns])


def formula(variance, covariance):
    """V / M + (1 - 1 / M) C for every batch size [KSW15 eq. 5]."""
    rows = np.array(BATCH_SIZES)
    return variance / rows + (1 - 1 / rows) * covariance


def off(variances, covariance):
    """Largest relative deviation from the formula."""
    return abs(variances / formula(variances[0], covariance) - 1).max()


def plot_batches(axes, results, floors):
    """Variance against rows, the covariances, and a guide to 1 / rows."""
    rows = np.array(BATCH_SIZES)
    for family, (q, color) in FAMILIES.items():
        for name, (symbol, marker, fill) in PARAMETERS.items():
            values = results[family][name]
            style = {"marker": marker, "fillstyle": fill, "color": color}
            axes.plot(rows, values, lw=1.2, ms=6, **style)
            axes.annotate(
                f"{symbol},\n{family}",
                (rows[-1], values[-1]),
                (9, 0),
                textcoords="offset points",
                va="center",
                color=color,
            )
            if q.shared_draw:
                floor = np.full(len(rows), floors[family][name][0])
                axes.plot(rows, floor, color=GREY, ls="--", lw=1, zorder=0)
    guide = 0.25 * results["local reparameterisation"]["rho"][0] / rows
    axes.plot(rows[:8], guide[:8], color=GREY, ls=":", lw=1.2)
    handles = [
        Line2D([], [], color=GREY, ls="--", lw=1, label="covariance of two rows"),
        Line2D([], [], color=GREY, ls=":", lw=1.2, label="guide: 1 / rows"),
    ]
    axes.legend(handles=handles, loc="upper right", frameon=False)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(0.8, 12_000),
        xlabel="rows in the batch",
        ylabel="variance of the gradient, mean over weights (nats$^2$)",
        title="With one draw of the weights for all rows the variance\n"
        "has a floor; with noise per row it falls as 1 / rows",
        xticks=rows[::2],
        xticklabels=rows[::2],
    )
    axes.minorticks_off()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


if __name__ == "__main__":
    main()
