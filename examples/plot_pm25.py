"""Fine dust in Beijing from the weather: MC dropout or a variational Gaussian process?

Both see the same 14 columns of weather, time of day and season, learn log(1 + PM2.5)
on 2010 to 2013 and are asked for 2014: rows are split by time, since neighbouring hours
are nearly copies of each other; every third hour is kept. No column holds earlier
values of the target. The dropout rate is chosen on 2013 by a network that has seen the
years before; the Gaussian process has its length scales from its evidence lower bound.
Scores are in micrograms per cubic metre, of the whole predictive behind the log.

It is a draw. Both explain half of the variance of y in 2014, their intervals
hold what they promise, and their log densities are equal; the networks have the lower
error of the mean, the Gaussian process the lower CRPS, by one or two per cent, with
each of three seeds. A network is fitted several times faster. Hours outside of their
interval come in runs: both models take neighbouring errors for independent. For scale,
the last line of the table is one log-normal distribution for all hours.

Needs pandas and the data (folder pm25 in SKBAYESNN_DATA), and gpytorch for the Gaussian
process; without it MC dropout is shown alone. Writes examples/output/pm25.png and
prints the numbers.
"""

import sys
import time

import matplotlib.dates as dates
import matplotlib.pyplot as plt
import numpy as np
import torch
from _common import DATA, save, size
from scipy.special import ndtr, ndtri
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    MCDropoutRegressor,
    crps,
    log_predictive_density,
    predict_interval,
    predict_quantile,
    sample_y,
)
from skbayesnn.metrics import interval_coverage, interval_width
from skbayesnn.scoring import log_density_scorer

try:
    import gpytorch
except ImportError:
    gpytorch = None

# Colours that colour-blind people can tell apart (Okabe & Ito).
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"

SEEDS = size((0, 1, 2), short=(0,))
EVERY = size(3, short=60)
COVERAGE = 0.9
SHOWN_DAYS = 14
RATES = size((0.005, 0.01, 0.05, 0.1), short=(0.01, 0.1))
MAX_ITER = size(50, short=5)
INDUCING, GP_EPOCHS, GP_BATCH = 100, size(30, short=2), 512


def main():
    """Choose the rate, fit both models with three seeds, print and draw."""
    file = DATA / "pm25" / "beijing_pm25.csv.gz"
    if not file.is_file():
        print(f"Skipped: this example reads {file.name}, and there is none. Set the")
        print("environment variable SKBAYESNN_DATA to the folder that holds pm25/.")
        sys.exit(0)
    X, y, when = hours(file)
    year = when.astype("datetime64[Y]").astype(int) + 1970
    train, test = year < 2014, year == 2014
    data = X[train], y[train], X[test], y[test]
    print(f"{train.sum()} hours of 2010 to 2013, {test.sum()} of 2014; {X.shape[1]}")
    print(f"columns; y has a standard deviation of {y[test].std():.0f} in 2014")

    rate = chosen_rate(X[train], y[train], year[train])
    print(f"dropout={rate}: best of {RATES} on 2013, fitted to 2010 to 2012")
    models = {
        "MC dropout": lambda seed: mc_dropout(*data, rate, seed),
    }
    if gpytorch is None:
        print("There is no Gaussian process to compare with: it needs gpytorch")
        print("(pip install gpytorch).")
    else:
        models["Gaussian process"] = lambda seed: gaussian_process(*data, seed)
    found = {name: [fit(seed) for seed in SEEDS] for name, fit in models.items()}
    print_table(found | {"no columns": [climate(*data)]}, y[test])
    plot(found, y[test], when[test])


def hours(file):
    """X (n, 14), y in micrograms per cubic metre, time stamps; observed hours only."""
    import pandas as pd

    table = pd.read_csv(file)
    row = np.arange(len(table))
    when = np.datetime64("2010-01-01T00") + row
    columns = pd.get_dummies(table["cbwd"], dtype=float)
    columns[["DEWP", "TEMP", "PRES"]] = table[["DEWP", "TEMP", "PRES"]]
    # Cumulated speed and hours are skewed.
    for name in ("Iws", "Is", "Ir"):
        columns[name] = np.log1p(table[name])
    for name, period in (("day", 24), ("year", 24 * 365.25)):
        columns[f"{name}_sin"] = np.sin(2 * np.pi * row / period)
        columns[f"{name}_cos"] = np.cos(2 * np.pi * row / period)
    y = table["pm2.5"].to_numpy()
    kept = np.isfinite(y) & (row % EVERY == 0)
    return columns.to_numpy(np.float32)[kept], y[kept], when[kept]


def on_log_scale(**options):
    """A network that learns log(1 + y); what is asked of it is in y's units."""
    network = MCDropoutRegressor(max_iter=MAX_ITER, n_draws=50, **options)
    return TransformedTargetRegressor(network, func=np.log1p, inverse_func=np.expm1)


def chosen_rate(X, y, year):
    """The dropout rate with the best log density on the last year of training."""
    fold = np.flatnonzero(year < 2013), np.flatnonzero(year == 2013)
    search = GridSearchCV(
        on_log_scale(random_state=0),
        {"regressor__dropout": RATES},
        scoring=log_density_scorer,
        cv=[fold],
        refit=False,
    )
    return search.fit(X, y).best_params_["regressor__dropout"]


def mc_dropout(X, y, X_test, y_test, dropout, seed):
    """Scores of networks, and their median and interval."""
    start = time.process_time()
    model = on_log_scale(dropout=dropout, random_state=seed).fit(X, y)
    seconds = time.process_time() - start
    return {
        "mean": sample_y(model, X_test, n_samples=500).mean(1),
        "median": predict_quantile(model, X_test, 0.5),
        "interval": predict_interval(model, X_test, COVERAGE),
        "log density": log_predictive_density(model, X_test, y_test),
        "CRPS": crps(model, X_test, y_test),
        "seconds": seconds,
    }


def gaussian_process(X, y, X_test, y_test, seed):
    """The same of a sparse variational Gaussian process [Hensman et al. 2013]."""
    start = time.process_time()
    torch.manual_seed(seed)
    scaler = StandardScaler().fit(X)
    inputs = torch.as_tensor(scaler.transform(X))
    log_y = np.log1p(y)
    centre, scale = log_y.mean(), log_y.std()
    targets = torch.as_tensor((log_y - centre) / scale, dtype=torch.float32)

    inducing = inputs[torch.randperm(len(inputs))[:INDUCING]]
    model = sparse_model(inducing)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, len(inputs))
    steps_per_epoch = -(-len(inputs) // GP_BATCH)
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], 0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, GP_EPOCHS * steps_per_epoch
    )
    for _ in range(GP_EPOCHS):
        for rows in torch.randperm(len(inputs)).split(GP_BATCH):
            optimizer.zero_grad()
            loss = -elbo(model(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
    seconds = time.process_time() - start

    model.eval(), likelihood.eval()
    with torch.no_grad():
        of_y = likelihood(model(torch.as_tensor(scaler.transform(X_test))))
    mean = of_y.mean.numpy().astype(np.float64) * scale + centre
    std = of_y.variance.numpy().astype(np.float64) ** 0.5 * scale
    return log_normal(mean, std, y_test) | {"seconds": seconds}


def sparse_model(inducing):
    """A Gaussian process with one length scale per column, (points, columns)."""

    class Sparse(gpytorch.models.ApproximateGP):
        def __init__(self):
            posterior = gpytorch.variational.CholeskyVariationalDistribution(
                len(inducing)
            )
            super().__init__(
                gpytorch.variational.VariationalStrategy(
                    self, inducing, posterior, learn_inducing_locations=True
                )
            )
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=inducing.shape[1])
            )

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean(x), self.kernel(x)
            )

    return Sparse()


def climate(X, y, X_test, y_test):
    """The same of one normal distribution of log(1 + y) for all hours."""
    log_y = np.log1p(y)
    ones = np.ones(len(y_test))
    return log_normal(log_y.mean() * ones, log_y.std() * ones, y_test) | {"seconds": 0}


def log_normal(mean, std, y):
    """Scores where log(1 + y) is normal; mean, std : (n,), of the log."""
    log_y = np.log1p(y)
    z = (log_y - mean) / std
    mean_of_1_plus_y = np.exp(mean + std**2 / 2)
    ends = mean[:, None] + std[:, None] * ndtri(
        [0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2]
    )
    return {
        "mean": mean_of_1_plus_y - 1,
        "median": np.expm1(mean),
        "interval": np.expm1(ends),
        "log density": -0.5 * z**2 - np.log(std * np.sqrt(2 * np.pi)) - log_y,
        # Baran & Lerch (2015), "Log-normal distribution based ensemble model output
        # statistics models for probabilistic wind-speed forecasting"; of 1 + y.
        "CRPS": (1 + y) * (2 * ndtr(z) - 1)
        - 2 * mean_of_1_plus_y * (ndtr(z - std) + ndtr(std / np.sqrt(2)) - 1),
    }


def print_table(found, y):
    """Mean of every score over the seeds, and half its range."""
    scores = {
        "RMSE": lambda of: np.sqrt(np.square(of["mean"] - y).mean()),
        "log density": lambda of: of["log density"].mean(),
        f"{COVERAGE:.0%} covers": lambda of: interval_coverage(y, of["interval"]),
        "width": lambda of: interval_width(of["interval"]),
        "CRPS": lambda of: of["CRPS"].mean(),
        "seconds": lambda of: of["seconds"],
    }
    print(f"\nMean of {len(SEEDS)} seeds \N{PLUS-MINUS SIGN} half their range")
    print(f"{'':<17}", *[f"{score:>16}" for score in scores])
    for name, of_seeds in found.items():
        cells = []
        for score, of in scores.items():
            values = [of(one) for one in of_seeds]
            digits = 3 if score in ("log density", f"{COVERAGE:.0%} covers") else 1
            half = np.ptp(values) / 2
            cells.append(
                f"{np.mean(values):.{digits}f} \N{PLUS-MINUS SIGN} {half:.{digits}f}"
            )
        print(f"{name:<17}", *[f"{cell:>16}" for cell in cells])


def plot(found, y, when):
    """The first two weeks of 2014: medians, intervals and what was measured."""
    figure, all_axes = plt.subplots(
        len(found),
        1,
        figsize=(11, 3.5 * len(found)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    shown = when < when[0] + np.timedelta64(SHOWN_DAYS, "D")
    for axes, (name, of_seeds), color in zip(
        all_axes[:, 0], found.items(), (BLUE, ORANGE), strict=False
    ):
        of = of_seeds[0]
        lower, upper = of["interval"][shown].T
        inside = (lower <= y[shown]) & (y[shown] <= upper)
        band = {"color": color, "alpha": 0.25, "lw": 0}
        axes.fill_between(
            when[shown], lower, upper, label=f"{COVERAGE:.0%} interval", **band
        )
        axes.plot(when[shown], of["median"][shown], color=color, label="median")
        axes.plot(
            when[shown][inside], y[shown][inside], ".", color=GREY, label="measured"
        )
        axes.plot(
            when[shown][~inside],
            y[shown][~inside],
            "x",
            color="black",
            label="measured, outside",
        )
        year = interval_coverage(y, of["interval"])
        axes.set_title(
            f"{name}: {inside.mean():.0%} inside in these weeks, {year:.0%} in the year"
        )
        axes.set(ylabel="PM2.5 (\N{MICRO SIGN}g/m\N{SUPERSCRIPT THREE})", yscale="log")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%d %b"))
    axes.set_xlabel("2014")
    save(figure, "pm25.png")


if __name__ == "__main__":
    main()
