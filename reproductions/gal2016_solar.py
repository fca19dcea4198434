"""Gal & Ghahramani 2016, solar irradiance: segments without data.

The series is a reconstruction of the sun's irradiance by year, of which five segments
of 20 years are left out. A Gaussian process and MC dropout with ReLU and with tanh
predict the whole range. In the paper, the uncertainty of all three grows in the
segments, most of all for the Gaussian process.

The file is ``solar/lean2000_irradiance.txt`` of NOAA's paleoclimatology archive
(climate forcing, solar variability): year, cycle of 11 years, cycle and background.
"""

import matplotlib.pyplot as plt
import numpy as np
from gal2016_co2 import bands_of, gaussian_process, network
from side_by_side import BLUE, GREEN, ORANGE, Report, data_file, run, save

SEGMENTS, LENGTH, MARGIN = 5, 20, 20


def main(quick):
    """Ratio of the epistemic standard deviation, in the segments and at the data."""
    units, layers, epochs = (20, 2, 5) if quick else (256, 5, 20_000)
    x, y = series()
    missing = segments(len(x))
    kept = ~missing
    report = Report(
        "Gal & Ghahramani (2016), solar irradiance with missing segments.",
        f"{len(x)} years, without {SEGMENTS} segments of {LENGTH} years. {layers} "
        f"hidden layers of {units} units (1,024 in the paper), dropout .1, 1,000 "
        "draws. Statements are quoted from memory.",
    )
    networks = {
        f"MC dropout, {activation}": network(
            units, layers, activation, epochs, 0.01, quick
        ).fit(x[kept], y[kept])
        for activation in ("relu", "tanh")
    }
    predictions = {"Gaussian process": gaussian_process(x[kept], y[kept], 10)}
    predictions |= {name: bands_of(model) for name, model in networks.items()}
    for name, predict in predictions.items():
        mean, std = predict(x)
        rmse = [np.sqrt(np.mean(np.square(mean - y)[at])) for at in (kept, missing)]
        ratio = std[missing].mean() / std[kept].mean()
        report.statement(
            f"{name}: more uncertain in the segments than at the data",
            f"x {ratio:.2g}",
            ratio > 1.1,
            tolerance="x 1.1",
        )
        inside = np.mean(np.abs(mean - y)[missing] < 2 * std[missing])
        report.show(
            f"{name}: RMSE at the data, in the segments",
            "-",
            f"{rmse[0]:.3f}, {rmse[1]:.3f} W/m2, in 2 epistemic std {inside:.0%}",
        )
    draw(x, y, kept, predictions, quick)
    return report


def series():
    """Years and irradiance in W/m2, 1610 to 2000."""
    text = data_file("solar", "lean2000_irradiance.txt").read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines()]
    table = np.array([row for row in rows if is_numeric(row)], dtype=float)
    table = table[table[:, 0] < 2001]
    return table[:, :1], table[:, 2]


def is_numeric(row):
    """Whether a line has the three numbers of a year."""
    return len(row) == 3 and all(cell.replace(".", "", 1).isdigit() for cell in row)


def segments(n_years):
    """Mask of the missing years, which are evenly spread."""
    starts = np.linspace(MARGIN, n_years - MARGIN - LENGTH, SEGMENTS).astype(int)
    mask = np.zeros(n_years, bool)
    mask[starts[:, None] + np.arange(LENGTH)] = True
    return mask


def draw(x, y, kept, predictions, quick):
    """The mean and bands of one and two epistemic standard deviations."""
    figure, axes = plt.subplots(3, 1, figsize=(11, 8), sharex=True, layout="tight")
    line = np.linspace(x.min(), x.max(), 800)
    for (name, predict), ax in zip(predictions.items(), axes, strict=True):
        mean, std = predict(line)
        for k in (2, 1):
            ax.fill_between(
                line, mean - k * std, mean + k * std, color=BLUE, alpha=0.2, lw=0
            )
        ax.plot(line, mean, color=BLUE, lw=1)
        ax.plot(x[kept], y[kept], ".", color=ORANGE, ms=3, label="training data")
        ax.plot(x[~kept], y[~kept], ".", color=GREEN, ms=3, label="left out")
        ax.set(title=name, ylabel="W/m$^2$", ylim=(y.min() - 0.5, y.max() + 0.7))
    axes[0].legend(frameon=False, ncols=2, fontsize=9)
    save(figure, "gal2016_solar.png", quick)


if __name__ == "__main__":
    run(main)
