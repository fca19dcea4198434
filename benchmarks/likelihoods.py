"""Is a single network honest under each likelihood, with all else left alone?

On training rows of the UCI sets (some of those of their first split), diabetes,
Friedman's function, the same with outliers in every twentieth row, and linear functions
with Gaussian noise and with Student's t of three degrees of freedom; scored on up to
1,500 others. Printed are, on average over tables, the log density less that of the
Gaussian network, the CRPS as a ratio to the Gaussian network's (geometric), the share
of new rows that the 90 % intervals hold (in brackets: on the table with the fewest and
with the most), and the seconds over the Gaussian network's (geometric). "As trained" is
the network before it: with the noise that was learned with its weights.

    python benchmarks/likelihoods.py
"""

import copy
import time
import warnings

import numpy as np
from common import command_line, environment, table
from held_out_noise import friedman, scores, tables
from sklearn.base import clone

from skbayesnn import BBBRegressor, MCDropoutRegressor, VariationalDropoutRegressor

POSTERIORS = {
    "MC dropout": MCDropoutRegressor(device="cpu"),
    "variational dropout": VariationalDropoutRegressor(device="cpu"),
    "Bayes by Backprop": BBBRegressor(device="cpu"),
}
LIKELIHOODS = "gaussian", "heteroscedastic", "student_t", "mixture"
ROWS, MOST_NEW = (60, 150, 600), 1500


def with_outliers(n_rows=4000):
    """Friedman's function."""
    X, y = friedman(n_rows)
    random = np.random.default_rng(0)
    return X, y + (random.random(n_rows) < 0.05) * random.normal(0, 15, n_rows)


def linear_with_tails(n_rows=4000):
    random = np.random.default_rng(1)
    X = random.normal(size=(n_rows, 10))
    return X, X @ random.normal(size=10) + 1.5 * random.standard_t(3, size=n_rows)


def parts(n_rows: int):
    """Training rows and new ones of every table with enough of them."""
    for X, y in (*tables(), with_outliers(), linear_with_tails()):
        if n_rows > 0.75 * len(y):
            continue
        order = np.random.default_rng(n_rows).permutation(len(y))
        train, new = np.split(order[: n_rows + MOST_NEW], [n_rows])
        yield (X[train], y[train]), (X[new], y[new])


def as_trained(network):
    """The same without what was told of its noise once it was trained."""
    network = copy.deepcopy(network)
    for name in ("log_factor", "log_added", "predictive_log_tau", "predictive_log_df"):
        network.parameters_.pop(f"likelihood/{name}", None)
    return network


def judged(network, rows, new):
    """Scores of a fit and of the same as trained, both with the seconds it took."""
    start = time.perf_counter()
    network.fit(*rows)
    seconds = time.perf_counter() - start
    return [[*scores(one, *new), seconds] for one in (network, as_trained(network))]


def told(found, of_gaussian):
    """Of (tables, scores), as cells."""
    density, inside = found[:, [0, 2]].T
    ratios = found[:, [1, 3]] / of_gaussian[:, [1, 3]]
    crps, longer = np.exp(np.log(ratios).mean(0))
    apart = (density - of_gaussian[:, 0]).mean()
    ends = f"{inside.min():.2f} to {inside.max():.2f}"
    cells = f"{apart:+.2f}", f"{crps:.3f}", f"{inside.mean():.2f} ({ends})"
    return [*cells, f"{longer:.1f}"]


def main():
    """Print the table."""
    parser = command_line(__doc__)
    names = ",".join(POSTERIORS)
    parser.add_argument("--posteriors", default=names, help="by commas")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    lines = []
    for posterior in options.posteriors.split(","):
        for n_rows in ROWS:
            found = {}
            for name in LIKELIHOODS:
                network = clone(POSTERIORS[posterior])
                network.set_params(likelihood=name, random_state=0)
                each = [judged(network, *part) for part in parts(n_rows)]
                now, before = np.moveaxis(np.array(each), 1, 0)
                found[name] = now
                if (now != before).any():
                    found[f"{name}, as trained"] = before
            for name, of_tables in found.items():
                cells = told(of_tables, found["gaussian"])
                lines.append([posterior, n_rows, name, *cells])
    heads = ["log density", "CRPS", "in 90 %", "seconds"]
    print(table(["posterior", "N", "likelihood", *heads], lines))


if __name__ == "__main__":
    main()
