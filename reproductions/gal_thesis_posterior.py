"""Gal 2016, thesis, chapter 3: rows of weights against single weights, calibration.

Dropout has one random number for all weights of a unit: a row of the weight matrix.
DropConnect has one for each weight, with the same mean and variance, and a factorised
normal distribution (Bayes by Backprop) has a mean and a variance for each weight. The
thesis explains the better results of dropout by the correlations within a row, which
the others lose.

In the thesis the uncertainty of dropout is not calibrated, either: its scale depends on
the dropout rate, as the uncertainty of a Gaussian process depends on its covariance
function. Held-out rows can correct it.
"""

import matplotlib.pyplot as plt
import numpy as np
from side_by_side import BLUE, GREEN, ORANGE, PINK, Report, mnist, run, save, uci

from skbayesnn import (
    BBBRegressor,
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn.metrics import expected_calibration_error

# Set and number of splits. Both are those of table 1 of Gal & Ghahramani (2016).
SETS = {
    "bostonHousing": 10,
    "concrete": 10,
    "energy": 10,
    "kin8nm": 3,
    "naval-propulsion-plant": 3,
    "power-plant": 3,
    "protein-tertiary-structure": 1,
    "wine-quality-red": 10,
    "yacht": 10,
}
RATE = 0.05
# Rates and coverages of the figure.
RATES, LEVELS = (0.005, 0.05, 0.2, 0.5), np.linspace(0.1, 0.9, 9)
CORRECTIONS = ("none", "scale", "isotonic")
COLORS = dict(zip(RATES, (BLUE, GREEN, ORANGE, PINK), strict=True))


def main(quick):
    """Scores of row and weight factorisation; calibration before and after."""
    report = Report(
        "Gal (2016), thesis, chapter 3, factorisation over rows, calibration.",
        "One hidden layer of 50 units, 400 epochs (protein 100 units, 60 epochs), Adam "
        f"with a cosine schedule from .01, dropout {RATE:g}, tau and length scale "
        "estimated; canonical splits. Statements are quoted from memory.",
    )
    covariance_of_units(report, quick)
    rows_against_weights(report, quick)
    X, y, train, test = uci("yacht" if quick else "concrete")
    train, test = train[: 2 if quick else 10], test[: 2 if quick else 10]
    curves = calibration_by_rate(report, X, y, train, test, quick)
    classes(report, quick)
    draw(curves, quick)
    return report


def covariance_of_units(report, quick):
    """Covariance of two units, which masks of rows have and masks of weights lack.

    A linear model with two targets: Cov(f_k, f_l) = p (1 - p) sum_i x_i^2 m_ik m_il.
    """
    rate, n_draws = 0.3, 500 if quick else 100_000
    random = np.random.default_rng(0)
    X = random.normal(size=(150, 4)).astype(np.float32)
    y = X @ random.normal(size=(4, 2)) + random.normal(0, 0.1, (150, 2))
    at = X[:1]
    for noise, of in (("bernoulli", "rows"), ("dropconnect", "single weights")):
        model = MCDropoutRegressor(
            (),
            noise=noise,
            dropout=rate,
            tau=100.0,
            length_scale=1.0,
            standardize=False,
            max_iter=20 if quick else 200,
            n_draws=n_draws,
            random_state=0,
        ).fit(X, y)
        mean = model.parameters_["layers/0/mean"][0].astype(float)
        draws = model.sample_f(at, n_draws, random_state=1)[0]
        exact = rate * (1 - rate) * np.square(at[0]) @ (mean[:, 0] * mean[:, 1])
        if of != "rows":
            exact = 0.0
        # Standard error of a covariance of normal draws, twice the variance because
        # the functions are drawn with replacement from as many draws.
        here = np.cov(draws)
        error = np.sqrt(2 * (here[0, 0] * here[1, 1] + here[0, 1] ** 2) / n_draws)
        report.number(
            f"covariance of two units, masks of {of}", exact, here[0, 1], 5 * error
        )


def rows_against_weights(report, quick):
    """Paired differences of the log density: rows minus weights, by set."""
    names = ("dropout", "DropConnect", "Bayes by Backprop")
    better = dict.fromkeys(names[1:], 0)
    sets = {"yacht": 2} if quick else SETS
    for name, n_splits in sets.items():
        X, y, train, test = uci(name)
        scores = []
        for rows, held_out in zip(train[:n_splits], test[:n_splits], strict=True):
            models = networks(name, quick)
            scores.append(
                [
                    scores_of(model.fit(X[rows], y[rows]), X[held_out], y[held_out])
                    for model in models
                ]
            )
        mean = np.mean(scores, axis=0)
        for place, other in enumerate(names[1:], 1):
            better[other] += mean[0, 1] > mean[place, 1]
        report.show(
            f"{name}, {n_splits} splits: log density (RMSE) of {', '.join(names)}",
            "-",
            ", ".join(f"{density:.3f} ({rmse:.3g})" for rmse, density in mean),
        )
    for other, count in better.items():
        report.statement(
            f"log density: dropout (rows) above {other} (single weights)",
            f"{count} of {len(sets)} sets",
            count >= max(len(sets) - 1, 1),
            tolerance="all but one",
        )


def networks(name, quick):
    """Dropout, DropConnect and Bayes by Backprop with the same network."""
    is_protein = name.startswith("protein")
    common = {
        "hidden_layer_sizes": (100 if is_protein else 50,),
        "batch_size": 32 if not is_protein else 256,
        "max_iter": 5 if quick else 60 if is_protein else 400,
        "n_draws": 20 if quick else 200,
        "random_state": 0,
    }
    return (
        MCDropoutRegressor(dropout=RATE, **common),
        MCDropoutRegressor(dropout=RATE, noise="dropconnect", **common),
        BBBRegressor(likelihood="gaussian", **common),
    )


def scores_of(model, X, y):
    """RMSE and mean log predictive density."""
    rmse = np.sqrt(np.mean(np.square(model.predict(X) - y)))
    return rmse, model.log_predictive_density(X, y).mean()


def calibration_by_rate(report, X, y, train, test, quick):
    """{(kind of correction, rate): coverages of the test rows at all levels}."""
    curves, epistemic = {}, {}
    for rate in RATES:
        covered, spread = {kind: [] for kind in CORRECTIONS}, []
        for rows, held_out in zip(train, test, strict=True):
            model = MCDropoutRegressor(
                (50,),
                dropout=rate,
                # Noise of a tenth of the standard deviation of y, whatever the rate.
                tau=100 / y[rows].var(),
                length_scale=0.01,
                max_iter=5 if quick else 400,
                batch_size=32,
                n_draws=20 if quick else 200,
                random_state=0,
            )
            for kind in CORRECTIONS:
                fitted = model
                if kind != "none":
                    fitted = CalibratedUncertaintyRegressor(model, method=kind, cv=3)
                bounds = fitted.fit(X[rows], y[rows]).predict_interval(
                    X[held_out], coverage=LEVELS
                )
                of_rows = y[held_out, None]
                inside = (bounds[..., 0] <= of_rows) & (of_rows <= bounds[..., 1])
                covered[kind].append(inside.mean(0))
                if kind == "none":
                    std = fitted.predict_uncertainty(X[held_out], kind="epistemic")
                    spread.append(std.mean())
        epistemic[rate] = np.mean(spread)
        for kind, of_splits in covered.items():
            curves[kind, rate] = np.mean(of_splits, axis=0)
    report.statement(
        "the scale of the epistemic uncertainty depends on the dropout rate",
        by_rate(epistemic.values(), ".2g"),
        max(epistemic.values()) > 2 * min(epistemic.values()),
        tolerance="x 2",
    )
    what = {
        "none": "... and with it the calibration: mean error of the coverage",
        "scale": "a factor from held-out rows corrects it: mean error",
        "isotonic": "a map of the levels from held-out rows corrects it: mean error",
    }
    for kind in CORRECTIONS:
        errors = [np.abs(curves[kind, rate] - LEVELS).mean() for rate in RATES]
        is_bad = max(errors) > 0.1
        report.statement(
            what[kind],
            by_rate(errors, ".3f"),
            is_bad if kind == "none" else max(errors) < 0.05,
            tolerance="one above .1" if kind == "none" else "all below .05",
        )
    for kind in CORRECTIONS:
        of_rates = [curves[kind, rate][-1] for rate in RATES]
        report.show(
            f"coverage of 90 % intervals, correction: {kind}",
            "-",
            by_rate(of_rates, ".3f"),
        )
    return curves


def by_rate(values, form):
    """Text with a value for each rate."""
    pairs = zip(RATES, values, strict=True)
    return ", ".join(f"{rate:g}: {value:{form}}" for rate, value in pairs)


def classes(report, quick):
    """Calibration error of a plain network and of MC dropout."""
    X, y, X_test, y_test = mnist(*((300, 100) if quick else (None, None)))
    error = {}
    for name, dropout in (("plain", 0), ("MC dropout", (0.2, 0.5, 0.5))):
        model = MCDropoutClassifier(
            (20, 20) if quick else (200, 200),
            dropout=dropout,
            length_scale=0,
            standardize=False,
            max_iter=1 if quick else 30,
            n_draws=20 if quick else 100,
            random_state=0,
        ).fit(X, y)
        error[name] = expected_calibration_error(
            y_test, model.predict_proba(X_test), classes=model.classes_
        )
    plain, dropout = error.values()
    report.show(
        f"MNIST, {len(X):,} images: calibration error of MC dropout, plain network",
        "-",
        f"{dropout:.4f}, {plain:.4f}",
    )


def draw(curves, quick):
    """Nominal coverage and coverage of the test rows, by correction and rate."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), sharey=True, layout="tight")
    for ax, kind in zip(axes, CORRECTIONS, strict=True):
        ax.plot((0, 1), (0, 1), color="grey", lw=0.8)
        for rate, color in COLORS.items():
            curve = curves[kind, rate]
            ax.plot(LEVELS, curve, "o-", color=color, ms=4, label=f"dropout {rate:g}")
        ax.set(title=f"correction: {kind}", xlabel="nominal coverage")
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes[0].set_ylabel("coverage of test rows")
    axes[0].legend(frameon=False, fontsize=9)
    save(figure, "gal_thesis_posterior.png", quick)


if __name__ == "__main__":
    run(main)
