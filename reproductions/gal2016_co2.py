"""Gal & Ghahramani 2016, figure 2: CO2 at Mauna Loa, extrapolated.

Four models learn the concentration of CO2 up to a date, and predict far beyond it: a
network with dropout by one pass with its mean weights (standard dropout), a Gaussian
process with a squared exponential kernel, and MC dropout with ReLU and with tanh. In
the paper, standard dropout predicts a value without any doubt; the uncertainty of the
ReLU network and of the Gaussian process grows away from the data; with tanh it stays
bounded.
"""

import matplotlib.pyplot as plt
import numpy as np
from side_by_side import BLUE, ORANGE, Report, run, save
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from skbayesnn import MCDropoutRegressor

# Extrapolation in widths of the training range: near is right after its end.
NEAR, FAR = 0.05, 1.0


def main(quick):
    """Ratio of the epistemic standard deviation, far from the data and near them."""
    units, layers, epochs = (20, 2, 5) if quick else (256, 4, 2000)
    report = Report(
        "Gal & Ghahramani (2016), figure 2, CO2 at Mauna Loa.",
        f"Series of statsmodels, every tenth week. {layers} hidden layers of {units} "
        "units (4 or 5 of 1,024 in the paper), dropout .1, 1,000 draws. Epistemic "
        f"standard deviation {FAR:g} training range after its end against {NEAR:g}.",
    )
    x, y = series(20 if quick else 10)
    last, width = x.max(), np.ptp(x)
    line = np.linspace(x.min(), last + FAR * width, 200)
    at = np.array([last + NEAR * width, last + FAR * width])

    networks = {
        activation: network(units, layers, activation, epochs, 1.0, quick).fit(x, y)
        for activation in ("relu", "tanh")
    }
    # In the order of the figure.
    predictions = {
        "standard dropout": mean_weights_of(networks["relu"]),
        "Gaussian process": gaussian_process(x, y),
        "MC dropout, relu": bands_of(networks["relu"]),
        "MC dropout, tanh": bands_of(networks["tanh"]),
    }

    ratio, limit = {}, {}
    for name, predict in predictions.items():
        near, far = predict(at)[1]
        ratio[name] = far / near if near else np.nan
        limit[name] = far / y.std()
    _, gp, relu, tanh = predictions
    report.statement(
        "the uncertainty of ReLU grows away from the data",
        f"x {ratio[relu]:.2g}",
        ratio[relu] > 2,
        tolerance="x 2",
    )
    report.statement(
        "the uncertainty of tanh stays bounded, below ReLU's",
        f"x {ratio[tanh]:.2g}, {limit[tanh]:.2g} against {limit[relu]:.2g} std of y",
        ratio[tanh] < ratio[relu] and limit[tanh] < limit[relu],
        tolerance="smaller",
    )
    report.statement(
        "the uncertainty of the Gaussian process grows",
        f"x {ratio[gp]:.2g}",
        ratio[gp] > 2,
        tolerance="x 2",
    )
    standard, deep = predictions["standard dropout"](at)[0], predictions[relu](at)
    report.statement(
        "standard dropout has no uncertainty; MC dropout has the same mean",
        f"far means {standard[1]:.0f} and {deep[0][1]:.0f} +- {deep[1][1]:.0f} ppm",
        abs(standard[1] - deep[0][1]) < 2 * deep[1][1],
        tolerance="2 std",
    )
    draw(x, y, line, predictions, quick)
    return report


def network(units, layers, activation, epochs, length_scale, quick):
    """MC dropout as in the paper: dropout after each hidden layer, 1,000 draws."""
    return MCDropoutRegressor(
        (units,) * layers,
        activation,
        dropout=(0,) + (0.1,) * layers,
        learning_rate_init=0.001,
        max_iter=epochs,
        length_scale=length_scale,
        n_draws=20 if quick else 1000,
        random_state=0,
    )


def series(step):
    """Years and CO2 in ppm, missing weeks left out."""
    from statsmodels.datasets import co2

    table = co2.load_pandas().data.dropna()[::step]
    years = table.index.year + (table.index.day_of_year - 1) / 365.25
    return years.to_numpy()[:, None], table["co2"].to_numpy()


def bands_of(model):
    """A function of x: mean and epistemic standard deviation."""

    def predict(x):
        rows = np.reshape(x, (-1, 1))
        return model.predict(rows), model.predict_uncertainty(rows, kind="epistemic")

    return predict


def mean_weights_of(model):
    """The same by one pass with the mean weights, which has no uncertainty."""

    def predict(x):
        rows = np.reshape(x, (-1, 1))
        return model.predict(rows, method="mean_weights"), np.zeros(len(rows))

    return predict


def gaussian_process(x, y, n_restarts=0):
    """Squared exponential kernel; the standard deviation without the noise."""
    centre, scale = x.mean(), x.std()
    kernel = ConstantKernel(1.0) * RBF(0.5, (0.01, 5)) + WhiteKernel(0.01)
    model = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=n_restarts, random_state=0
    )
    model.fit((x - centre) / scale, y)
    noise = model.kernel_.k2.noise_level * y.var()

    def predict(at):
        rows = (np.reshape(at, (-1, 1)) - centre) / scale
        mean, std = model.predict(rows, return_std=True)
        return mean, np.sqrt(np.maximum(std**2 - noise, 0))

    return predict


def draw(x, y, line, predictions, quick):
    """As in the paper: the mean, and bands of half a standard deviation each."""
    figure, axes = plt.subplots(2, 2, figsize=(11, 6.5), sharex=True, sharey=True)
    for (name, predict), ax in zip(predictions.items(), axes.flat, strict=True):
        mean, std = predict(line)
        for k in (2, 1.5, 1, 0.5):
            ax.fill_between(
                line, mean - k * std, mean + k * std, color=BLUE, alpha=0.15, lw=0
            )
        ax.plot(line, mean, color=BLUE, lw=1)
        ax.plot(x, y, color=ORANGE, lw=1)
        ax.axvline(x.max(), color="grey", ls="--", lw=0.8)
        ax.set(title=name, ylim=(y.min() - 30, y.max() + 90))
    for ax in axes[:, 0]:
        ax.set_ylabel("CO$_2$, ppm")
    figure.tight_layout()
    save(figure, "gal2016_co2.png", quick)


if __name__ == "__main__":
    run(main)
