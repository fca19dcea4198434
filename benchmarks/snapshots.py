"""Are the ends of several short courses of one training worth as many networks?

A network whose step size falls to zero n times, each time from the start value, is
looked at n times on its way [Huang et al. 2017, "Snapshot ensembles: train 1, get M for
free", ICLR, arXiv 1704.00109]. Compared, in the same number of steps, with one network
and with n that are trained apart; and with n of the whole number of steps each. Printed
is the CRPS as a ratio to that of one network, on tables cut from training rows as in
study.py.

    python benchmarks/snapshots.py
"""

import warnings

import numpy as np
from common import command_line, environment, table
from scipy.stats import gmean
from study import REGRESSION

from skbayesnn import MCDropoutRegressor
from skbayesnn._meta.functions import open_predictive
from skbayesnn._stacking.weights import pooled

N, DRAWS = 4, 50
SETS = (
    "yacht",
    "energy",
    "concrete",
    "wine-quality-red",
    "kin8nm",
    "power-plant",
    "protein-tertiary-structure",
    "synthetic-150",
    "synthetic-1000",
    "diabetes-300",
)


def network(n_epochs, dropout, **params):
    """As those of the stack."""
    return MCDropoutRegressor(
        (32, 32),
        likelihood="heteroscedastic",
        length_scale=1.0,
        dropout=dropout,
        max_iter=n_epochs,
        n_draws=DRAWS,
        random_state=0,
        **params,
    )


def crps(models, X, y):
    """Of the mixture of what networks predict."""
    parts = [open_predictive(one, X).whole() for one in models]
    return pooled(parts, [one.n_draws for one in parts]).crps(y).mean()


def compared(X, y, X_test, y_test, dropout):
    """Ratios to one network: snapshots, short ones apart, long ones apart."""
    steps = 75 * np.sqrt(max(len(X), 400))
    n_epochs = round(steps / -(-len(X) // 128))
    short = -(-n_epochs // N)
    one = crps([network(n_epochs, dropout).fit(X, y)], X_test, y_test)
    model, seen = network(short, dropout, warm_start=True), []
    for _ in range(N):
        seen.append(open_predictive(model.fit(X, y), X_test).whole())
    snapshots = pooled(seen, [part.n_draws for part in seen]).crps(y_test).mean()
    apart = [
        crps([network(n, dropout, n_estimators=N).fit(X, y)], X_test, y_test)
        for n in (short, n_epochs)
    ]
    return [value / one for value in (snapshots, *apart)]


def main():
    """Print the table."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    rows = []
    for dropout in (0.0, 0.01):
        found = np.array([compared(*REGRESSION[name](), dropout) for name in SETS])
        names = (f"{N} snapshots", f"{N} short networks", f"{N} networks")
        for name, values in zip(names, found.T, strict=True):
            cells = (f"{value:.3f}" for value in (gmean(values), *values))
            rows.append([f"{name}, dropout {dropout}", *cells])
    print(table(["", "mean", *SETS], rows))


if __name__ == "__main__":
    main()
