"""Is the estimated observation noise right, before and after training has ended?

It is learned in training, and estimated again afterwards: on held-out rows if these
also select the prior length scale, and from the residuals of the training rows
otherwise.

The first table has a known truth: sin(x1) + x2 and noise of standard deviation 0.5. It
contains the estimated noise as a share of the truth, and the share of 2,000 new rows
inside 90 % intervals, for several dropout rates and numbers of rows.

The second uses diabetes, Friedman's function and the UCI sets (up to 80 % of the
training rows of the first split). It contains the loss in log density of the other
rows, relative to the best constant noise for the same predictions (nats per row, as if
the predictive were normal), and the share of rows inside 90 % intervals.

    python benchmarks/noise.py
"""

import numpy as np
from _leaderboard.tasks import TASKS
from common import command_line, environment, table
from sklearn.datasets import load_diabetes, make_friedman1

from skbayesnn import MCDropoutRegressor

NOISE = 0.5
NETWORKS = {
    "default": {},
    "without masks": {"dropout": 0.0},
    "five without masks": {"dropout": 0.0, "n_estimators": 5},
}


def as_trained(model) -> tuple[float, float]:
    """Std of the noise as trained and as estimated afterwards, in units of y."""
    variances = np.exp(-model.parameters_["likelihood/log_tau"][:, 0])
    return np.sqrt(variances.mean()) * float(model.y_scale_[0]), float(model.noise_std_)


def made_up(n_rows: int, n_columns: int, random):
    """Rows with known noise."""
    X = random.normal(size=(n_rows, n_columns))
    y = np.sin(X[:, 0]) + X[:, 1] + NOISE * random.normal(size=n_rows)
    return X, y


def where_it_is_known(options) -> list[list]:
    """Lines of the first table."""
    lines = []
    for n_columns in (2, 5):
        for rate in (0.01, 0.05, 0.1):
            line = [n_columns, rate]
            for n_rows in options.rows:
                scores = []
                for seed in range(options.repeats):
                    random = np.random.default_rng([seed, n_columns])
                    X, y = made_up(n_rows + 2000, n_columns, random)
                    model = MCDropoutRegressor(
                        dropout=rate, random_state=seed, device="cpu"
                    ).fit(X[:n_rows], y[:n_rows])
                    low, high = model.predict_interval(X[n_rows:]).T
                    inside = (low <= y[n_rows:]) & (y[n_rows:] <= high)
                    scores.append([*np.divide(as_trained(model), NOISE), inside.mean()])
                before, now, inside = np.mean(scores, axis=0)
                line += [f"{before:.2f}", f"{now:.2f}", f"{inside:.1%}"]
            lines.append(line)
    return lines


def tables():
    """Training rows of every set."""
    for task in TASKS:
        if task.name in ("yacht", "energy", "concrete", "wine-quality-red"):
            split = task.split(0)
            yield np.asarray(split.X_train, float), np.ravel(split.y_train)
    yield load_diabetes(return_X_y=True)
    for noise in (0.2, 1.0):
        yield make_friedman1(1500, noise=noise, random_state=0)


def on_tables(options) -> list[list]:
    """Lines of the second table, means over tables and seeds."""
    lines = []
    for name, parameters in NETWORKS.items():
        for n_rows in (50, 120, 300, 700):
            scores = []
            for X, y in tables():
                if n_rows > 0.8 * len(X):
                    continue
                for seed in range(options.repeats):
                    order = np.random.default_rng(seed).permutation(len(X))
                    train, test = np.split(order, [n_rows])
                    model = MCDropoutRegressor(
                        random_state=seed, device="cpu", **parameters
                    ).fit(X[train], y[train])
                    scores.append(losses(model, X[test[:500]], y[test[:500]]))
            means = np.mean(scores, axis=0)
            line = [f"{loss:.2f}" for loss in means[:, 0]]
            line += [f"{share:.0%}" for share in means[:, 1]]
            lines.append([name, n_rows, *line])
    return lines


def losses(model, X, y):
    """Excess loss and coverage, for the noise as trained and as estimated."""
    squares = (y - model.predict(X)) ** 2
    epistemic = model.predict_uncertainty(X, "epistemic")
    best = 0.5 + 0.5 * np.log(squares.mean())
    scores = []
    for noise in as_trained(model):
        variance = epistemic**2 + noise**2
        loss = np.mean(squares / variance + np.log(variance)) / 2
        scores.append([loss - best, np.mean(squares <= 1.645**2 * variance)])
    return scores


def main() -> None:
    """Print both tables."""
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=2, help="seeds")
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 2000, 20_000])
    options = parser.parse_args()
    header = ["columns", "rate"]
    for n_rows in options.rows:
        header += [f"{n_rows:,} rows: trained", "estimated", "in 90 %"]
    print(environment())
    print(table(header, where_it_is_known(options)))
    header = ["network", "rows", "trained", "estimated"]
    header += ["trained: in 90 %", "estimated: in 90 %"]
    print(table(header, on_tables(options)))


if __name__ == "__main__":
    main()
