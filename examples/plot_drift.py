"""A sensor drifts while a model is in use: when is it detected, and which one is it?
==================================================================================

An anchored ensemble is fitted to rows of a synthetic plant with ten sensors, five of
which matter (Friedman 1991). It then predicts week by week. From the sixth week on the
fourth sensor reads a little more each week. y is unknown in use, so errors cannot raise
an alarm. The disagreement of the networks can: `DriftMonitor` compares it with the
out-of-fold disagreement on training rows. Shapley values of this uncertainty
name the sensor.

The alarm is raised in the third week of the drift, when the sensor is off by 0.9
standard deviations, and names it. By then the errors are twice as large as before,
since this sensor matters most; at the end they are five times as large. Single rows
are flagged late: small drift shows in all rows of a week together.

Writes examples/output/drift.png and prints a line per week.
"""

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size
from sklearn.base import clone
from sklearn.datasets import make_friedman1

from skbayesnn import AnchoredEnsembleRegressor
from skbayesnn.inspection import DriftMonitor, attributions

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"

REFERENCE, PER_WEEK, WEEKS = size((600, 100, 14), short=(60, 20, 8))
SENSOR, FIRST, STEP = 3, 5, 0.3  # standard deviations per week
# Threshold of p-values: one false alarm in about twenty years of weeks.
ALARM = 1e-3


def main():
    """Fit, monitor every week, and print what happened."""
    n_rows = REFERENCE + WEEKS * PER_WEEK
    X, y = make_friedman1(n_rows, noise=1.0, random_state=0)
    X_fit, y_fit = X[:REFERENCE], y[:REFERENCE]
    network = AnchoredEnsembleRegressor(max_iter=size("auto", short=5), random_state=0)
    model = clone(network).fit(X_fit, y_fit)
    monitor = DriftMonitor(network).fit(X_fit, y_fit)

    weeks = []
    for week in range(WEEKS):
        rows = slice(REFERENCE + week * PER_WEEK, REFERENCE + (week + 1) * PER_WEEK)
        seen = X[rows].copy()
        drift = max(week - FIRST + 1, 0) * STEP
        seen[:, SENSOR] += drift * X_fit[:, SENSOR].std()
        error = model.predict(seen) - y[rows]
        p_value = monitor.p_value(seen)
        flagged = (monitor.predict(seen) == -1).mean()
        reasons = attributions(
            model, seen, background=X_fit, of="epistemic", n_permutations=8
        )
        contribution = reasons.values.mean(0)
        rmse = np.sqrt(np.mean(error**2))
        weeks.append((p_value, rmse, contribution))
        cause = contribution.argmax()
        print(
            f"week {week + 1:>2}: drift {drift:.1f} sd, RMSE {rmse:.2f}, "
            f"p {p_value:.0e}, rows flagged {flagged:.0%}"
            + (f": ALARM, sensor {cause + 1}" if p_value < ALARM else "")
        )
    plot(weeks)


def plot(weeks):
    """Alarm, error and cause, week by week."""
    p_value, rmse, contribution = zip(*weeks, strict=True)
    number = np.arange(1, len(weeks) + 1)
    figure, (alarm, error, cause) = plt.subplots(
        3, 1, figsize=(8, 9), sharex=True, layout="constrained"
    )
    logs = -np.log10(np.maximum(p_value, 1e-30))
    rings = np.array(p_value) < ALARM
    alarm.bar(number, logs, color=np.where(rings, ORANGE, BLUE))
    alarm.axhline(-np.log10(ALARM), color=GREY, ls="--", lw=1)
    alarm.set(ylabel="-log10 p", title="alarm (orange), without y")
    error.plot(number, rmse, "o-", color=BLUE)
    error.set(ylabel="RMSE", ylim=(0, None), title="RMSE, unknown in use")
    of_columns = np.array(contribution).T
    for column, values in enumerate(of_columns):
        mark = column == SENSOR
        cause.plot(
            number,
            values,
            color=ORANGE if mark else GREY,
            lw=2 if mark else 0.8,
            label=f"sensor {column + 1}, which drifts" if mark else None,
        )
    cause.plot([], [], color=GREY, lw=0.8, label="the other nine")
    cause.set(
        xlabel="week",
        ylabel="epistemic std due to it",
        title="cause: contribution of each sensor to the uncertainty",
    )
    cause.legend(loc="upper left", frameon=False)
    cause.xaxis.get_major_locator().set_params(integer=True)
    for axes in (alarm, error, cause):
        axes.axvline(FIRST + 0.5, color="black", ls=":", lw=1)
    figure.suptitle(
        f"a sensor that drifts by {STEP} sd a week, from the dotted line on"
    )
    save(figure, "drift.png")


if __name__ == "__main__":
    main()
