"""How good are networks by evidence, alone and in the default stack?

Made-up tables (the default): 60 tables of 40 to 3,000 rows and 1 to 50 columns, with
linear and curved functions and noise of .01 to 3 standard deviations of the function.
LaplaceRegressor and its linear model, hidden_layer_sizes=(), are compared on 1,000 new
rows: CRPS, and whether the network is worse by more than a standard error of the mean
difference.

With ``--sets``: canonical split 0 of UCI sets, with at most ``--rows`` training rows:
the scores of LaplaceRegressor, and of the default stack with and without it. With
``--time``: CPU seconds of a network by rows.

    python benchmarks/evidence.py
    python benchmarks/evidence.py --sets naval-propulsion-plant,kin8nm --rows 750
    python benchmarks/evidence.py --time
"""

import time
import warnings

import numpy as np
from common import command_line, environment, table
from sklearn.datasets import make_friedman1
from uci import load

from skbayesnn import BayesianStackingRegressor, LaplaceRegressor, default_pool
from skbayesnn.metrics import interval_coverage

N_TABLES, N_NEW = 60, 1000


def made_up(seed: int):
    """X and y of training rows and of new rows, and what they are."""
    random = np.random.default_rng(seed)
    n_rows = int(np.exp(random.uniform(np.log(40), np.log(3000))))
    n_columns = int(np.exp(random.uniform(0, np.log(50.99))))
    noise = float(np.exp(random.uniform(np.log(0.01), np.log(3))))
    X = random.normal(size=(n_rows + N_NEW, n_columns))
    used = X[:, : min(n_columns, 6)]
    f = used @ random.normal(size=used.shape[1])
    if seed % 3:
        weights = random.normal(size=(used.shape[1], 4)) / np.sqrt(used.shape[1])
        curved = np.sin(2 * used @ weights) @ random.normal(size=4)
        f = curved + (f if seed % 3 == 1 else 0)
    y = f + noise * f.std() * random.normal(size=len(f))
    kind = ("linear", "linear and curved", "curved")[seed % 3]
    what = [kind, n_rows, n_columns, f"{noise:.2f}"]
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:], what


def against_linear() -> None:
    """One line for each made-up table, and the number of tables that are worse."""
    rows, worse, ratios = [], 0, []
    for seed in range(N_TABLES):
        X, y, X_new, y_new, what = made_up(seed)
        start = time.process_time()
        network = LaplaceRegressor(random_state=0).fit(X, y)
        seconds = time.process_time() - start
        linear = LaplaceRegressor((), random_state=0).fit(X, y)
        crps = [model.crps(X_new, y_new) for model in (network, linear)]
        difference = crps[0] - crps[1]
        # The same model, if the evidence selects no units.
        error = max(difference.std() / np.sqrt(N_NEW), np.finfo(float).tiny)
        worse += difference.mean() > error
        ratios.append(crps[0].mean() / crps[1].mean())
        interval = network.predict_interval(X_new, 0.9)
        rows.append(
            [
                *what,
                "x".join(map(str, network.hidden_layer_sizes_)) or "none",
                f"{ratios[-1]:.3f}",
                f"{difference.mean() / error:.1f}",
                f"{interval_coverage(y_new, interval):.2f}",
                f"{seconds:.1f}",
            ]
        )
    header = ["function", "rows", "columns", "noise", "units", "CRPS / linear"]
    print(table([*header, "standard errors", "90 % cover", "CPU s"], rows))
    print(
        f"Worse than the linear model by more than a standard error: {worse} of "
        f"{N_TABLES}; largest CRPS ratio {max(ratios):.3f}."
    )


def on_sets(names: list[str], most: int) -> None:
    """Scores on the test rows of canonical split 0."""
    pool = [item for item in default_pool() if item[0] != "laplace"]
    models = {
        "LaplaceRegressor": LaplaceRegressor(random_state=0),
        "stack without": BayesianStackingRegressor(pool, random_state=0),
        "stack": BayesianStackingRegressor(random_state=0),
    }
    for name in names:
        X, y, train, test = load(name, 1)
        train, test, rows = train[0][:most], test[0], []
        for label, model in models.items():
            start = time.process_time()
            model.fit(X[train], y[train])
            seconds = time.process_time() - start
            error = model.predict(X[test]) - y[test]
            interval = model.predict_interval(X[test], 0.9)
            weight = ""
            if label == "stack":
                weights = model.weights_["weight"]
                share = weights[weights.index.str.startswith("laplace")].sum()
                weight = f"{share:.2f}"
            rows.append(
                [
                    label,
                    f"{model.crps(X[test], y[test]).mean():.4g}",
                    f"{np.sqrt(np.square(error).mean()):.4g}",
                    f"{model.log_predictive_density(X[test], y[test]).mean():.3f}",
                    f"{interval_coverage(y[test], interval):.2f}",
                    weight,
                    f"{seconds:.1f}",
                ]
            )
        print(f"\n{name}: {len(train)} rows")
        header = ["model", "CRPS", "RMSE", "log density", "90 % cover", "weight"]
        print(table([*header, "CPU s"], rows), flush=True)


def seconds_by_rows() -> None:
    """CPU seconds of one network on Friedman's first function, 8 columns."""
    rows = []
    for n_rows in (1000, 5000, 20_000):
        X, y = make_friedman1(n_rows, 8, noise=1.0, random_state=0)
        line = [f"{n_rows:,}"]
        for hidden in ((16,), (16, 16)):
            model = LaplaceRegressor(
                hidden, likelihood="gaussian", n_estimators=1, random_state=0
            )
            start = time.process_time()
            model.fit(X, y)
            line += [f"{time.process_time() - start:.2f}", str(model.n_iter_)]
        rows.append(line)
    header = ["rows", "16 units, CPU s", "steps", "16 x 16 units, CPU s", "steps"]
    print(table(header, rows))


def main() -> None:
    arguments = command_line(__doc__)
    arguments.add_argument("--sets", default="")
    arguments.add_argument("--rows", type=int, default=10**9)
    arguments.add_argument("--time", action="store_true")
    options = arguments.parse_args()
    print(environment())
    warnings.filterwarnings("ignore")
    if options.time:
        seconds_by_rows()
    elif options.sets:
        on_sets(options.sets.split(","), options.rows)
    else:
        against_linear()


if __name__ == "__main__":
    main()
