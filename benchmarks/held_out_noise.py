"""Do rows that are held out say what the noise is? Of regressors that learn rates.

On training rows of the UCI sets (some of those of their first split), diabetes,
Friedman's function and a linear one, both with noise; scored on up to 1,500 others.
Three fits: the longest training with the noise that is learned in it; the longest with
the noise that is likeliest of held-out rows; and the default, whose length these rows
choose, too. Printed are means over tables of the log density, the CRPS as a ratio to
that of the first (geometric), the share of new rows that the 90 % intervals hold (in
brackets: on the table with the fewest and with the most), and the seconds of the
default over those of the first.

    python benchmarks/held_out_noise.py
"""

import time
import warnings

import numpy as np
from common import command_line, environment, table
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_friedman1
from study import UCI, uci

from skbayesnn import MCDropoutRegressor, VariationalDropoutRegressor, crps
from skbayesnn.estimators._job import task_of
from skbayesnn.estimators._training_data import prepare
from skbayesnn.metrics import interval_coverage

KINDS = {
    "variational dropout": VariationalDropoutRegressor(device="cpu"),
    "MC dropout, rates learned": MCDropoutRegressor(dropout="auto", device="cpu"),
}
ROWS, MOST_NEW = (60, 150, 400, 1000, 2000), 1500


def friedman(n_rows=4000):
    return make_friedman1(n_rows, noise=1.0, random_state=0)


def linear(n_rows=4000):
    random = np.random.default_rng(0)
    X = random.normal(size=(n_rows, 10))
    return X, X @ random.normal(size=10) + 3 * random.normal(size=n_rows)


def tables():
    """All rows of each."""
    for name in UCI:
        X, y, X_more, y_more = uci(name, most_rows=3000)
        yield np.concatenate([X, X_more]), np.concatenate([y, y_more])
    yield load_diabetes(return_X_y=True)
    yield friedman()
    yield linear()


def scores(model, X, y):
    """Log density, CRPS, and the share in 90 % intervals."""
    inside = interval_coverage(y, model.predict_interval(X, coverage=0.9))
    return model.log_predictive_density(X, y).mean(), crps(model, X, y).mean(), inside


def three_fits(network, X, y, new):
    """Scores of the three, and seconds of the last over those of one without folds."""
    [longest] = np.unique(task_of(network, prepare(network, X, y)).members.n_epochs)
    model = clone(network).set_params(max_iter=int(longest)).fit(X, y)
    held_out = scores(model, *new)
    model.parameters_.pop("likelihood/log_factor", None)
    found = [scores(model, *new), held_out]
    seconds = []
    for one in (clone(network).set_params(max_iter=int(longest), tau=1.0), network):
        start = time.perf_counter()
        one.fit(X, y)
        seconds.append(time.perf_counter() - start)
    return [*found, scores(network, *new)], seconds[1] / seconds[0]


def told(of_tables):
    """Of (tables, fits, scores), as cells."""
    first = of_tables[:, :1]
    for density, score, inside in np.moveaxis(of_tables, 0, 2):
        ratio = np.exp(np.log(score / first[:, 0, 1]).mean())
        ends = f"{inside.min():.2f} to {inside.max():.2f}"
        yield f"{density.mean():.2f}; {ratio:.3f}; {inside.mean():.2f} ({ends})"


def main():
    """Print the table."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    rows = []
    for kind, network in KINDS.items():
        for n_rows in ROWS:
            found, ratios = [], []
            for X, y in tables():
                if n_rows > 0.75 * len(y):
                    continue
                order = np.random.default_rng(n_rows).permutation(len(y))
                train, new = np.split(order[: n_rows + MOST_NEW], [n_rows])
                model = clone(network).set_params(random_state=0)
                fits, ratio = three_fits(model, X[train], y[train], (X[new], y[new]))
                found.append(fits)
                ratios.append(ratio)
            cells = *told(np.array(found)), f"{np.mean(ratios):.1f}"
            rows.append([kind, n_rows, *cells])
    heads = ["as learned", "held out", "default: length, too", "seconds"]
    print(table(["posterior", "N", *heads], rows))


if __name__ == "__main__":
    main()
