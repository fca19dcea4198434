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

The third compares ``likelihood="gaussian"``, one noise for all rows, with "auto", which
selects on held-out rows. It uses at most ``--most`` training rows of the first split of
UCI sets, diabetes, Friedman's function, and made-up rows: "grows" has noise of standard
deviation 0.2 exp(x1), "equal" of 0.2. Test rows are further training rows of the split,
with ``--test`` the test rows. It contains ratios of RMSE, CRPS and processor seconds,
the difference of the log densities, and the coverage of 90 % intervals: of all rows,
and of the worst third of the rows by the predicted mean.

The fourth counts false warnings of unequal noise (SKB307) on made-up rows with equal
noise that is normal, exponential or t with 3 degrees of freedom.

The fifth has the temperature of anchored ensembles of classifiers: made-up overlapping
classes, the log loss of 1,500 new rows, and the mean largest probability minus the
share of right predictions, of the same networks without and with it.

    python benchmarks/noise.py
    python benchmarks/noise.py --tables 3 --estimators mc_dropout anchored
"""

import pickle
import time
import warnings

import numpy as np
from _leaderboard.tasks import TASKS
from common import command_line, environment, table
from sklearn.datasets import load_diabetes, make_friedman1
from uci import SETS

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)

NOISE = 0.5
NETWORKS = {
    "default": {},
    "without masks": {"dropout": 0.0},
    "five without masks": {"dropout": 0.0, "n_estimators": 5},
}
REGRESSORS = {
    "mc_dropout": MCDropoutRegressor,
    "variational_dropout": VariationalDropoutRegressor,
    "anchored": AnchoredEnsembleRegressor,
    "bbb": BBBRegressor,
}
NOISES = {
    "normal": lambda random, n: random.normal(size=n),
    "exponential": lambda random, n: random.exponential(size=n) - 1,
    "t, 3 degrees": lambda random, n: random.standard_t(3, size=n) / np.sqrt(3),
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


def of_all_sizes(options, seed: int):
    """Name, training and test rows of every set of the third table."""
    for task in TASKS:
        if task.name in SETS:
            split = task.split(0)
            X, y = np.asarray(split.X_train, float), np.ravel(split.y_train)
            if options.test:
                rows = np.random.default_rng(seed).permutation(len(X))[: options.most]
                X_test = np.asarray(split.X_test, float)[:1000]
                yield task.name, X[rows], y[rows], X_test, np.ravel(split.y_test)[:1000]
                continue
            yield task.name, *parted(X, y, options.most, seed)
    yield "diabetes", *parted(*load_diabetes(return_X_y=True), options.most, seed)
    X, y = make_friedman1(2000, noise=1.0, random_state=seed)
    yield "friedman", *parted(X, y, options.most, seed)
    random = np.random.default_rng(seed)
    X, noise = random.normal(size=(1800, 3)), random.normal(size=1800)
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    yield "grows", *parted(X, f + 0.2 * np.exp(X[:, 0]) * noise, options.most, seed)
    yield "equal", *parted(X, f + 0.2 * noise, options.most, seed)


def parted(X, y, most: int, seed: int):
    """Random training rows, at most 80 % of the rows, and up to 1,000 test rows."""
    order = np.random.default_rng(seed).permutation(len(X))
    n_rows = min(most, int(0.8 * len(X)))
    train, test = order[:n_rows], order[n_rows : n_rows + 1000]
    return X[train], y[train], X[test], y[test]


def measured(regressor, likelihood: str, X, y, X_test, y_test, seed: int):
    """RMSE, CRPS, seconds, log density, coverage and worst coverage; likelihood."""
    start = time.process_time()
    model = regressor(likelihood=likelihood, random_state=seed, device="cpu").fit(X, y)
    seconds = time.process_time() - start
    mean = model.predict(X_test)
    low, high = model.predict_interval(X_test, coverage=0.9).T
    inside = (low <= y_test) & (y_test <= high)
    thirds = np.array_split(np.argsort(mean), 3)
    values = [
        np.sqrt(np.mean(np.square(mean - y_test))),
        model.crps(X_test, y_test).mean(),
        seconds,
        model.log_predictive_density(X_test, y_test).mean(),
        inside.mean(),
        min(inside[third].mean() for third in thirds),
    ]
    return np.array(values), model.likelihood_


def equal_or_selected(options) -> list[list]:
    """Lines of the third table, means over seeds."""
    lines = []
    for name in options.estimators:
        regressor, values, selected = REGRESSORS[name], {}, {}
        # Compile the loops.
        regressor(likelihood="auto", max_iter=2).fit(*made_up(60, 2, np.random))
        for seed in range(options.repeats):
            for of_set, *rows in of_all_sizes(options, seed):
                for likelihood in ("gaussian", "auto"):
                    scores, used = measured(regressor, likelihood, *rows, seed)
                    values.setdefault(of_set, {}).setdefault(likelihood, []).append(
                        scores
                    )
                selected.setdefault(of_set, []).append(used == "heteroscedastic")
        for of_set, of_likelihood in values.items():
            equal, auto = (np.array(of_likelihood[k]) for k in ("gaussian", "auto"))
            ratios = np.exp(np.log(auto[:, :3] / equal[:, :3]).mean(0))
            cover = [f"{v:.0%}" for v in (*equal.mean(0)[4:], *auto.mean(0)[4:])]
            gain = (auto - equal)[:, 3].mean()
            line = [name, of_set, f"{np.mean(selected[of_set]):.0%}"]
            line += [f"{ratio:.2f}" for ratio in ratios]
            lines.append([*line, f"{gain:+.2f}", *cover])
            print(*lines[-1], flush=True)
    return lines


def false_warnings(options) -> list[list]:
    """Lines of the fourth table."""
    lines = []
    for name in options.estimators:
        for n_rows, n_columns in ((100, 5), (300, 3)):
            for of_noise, draw in NOISES.items():
                count = 0
                for seed in range(options.false_repeats):
                    random = np.random.default_rng([seed, n_rows])
                    X = random.normal(size=(n_rows, n_columns))
                    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
                    model = REGRESSORS[name](
                        likelihood="gaussian", random_state=seed, device="cpu"
                    )
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        model.fit(X, f + 0.3 * draw(random, n_rows))
                    count += any("SKB307" in str(w.message) for w in caught)
                share = f"{count} of {options.false_repeats}"
                lines.append([name, n_rows, n_columns, of_noise, share])
                print(*lines[-1], flush=True)
    return lines


def temperatures(options) -> list[list]:
    """Lines of the fifth table."""
    lines = []
    for n_classes, n_rows in ((3, 300), (10, 400)):
        for seed in range(options.repeats):
            random = np.random.default_rng(seed)
            X = random.normal(size=(n_rows + 1500, 4))
            weights = np.random.default_rng(99).normal(size=(8, n_classes))
            logits = 1.2 / np.sqrt(2) * np.hstack([X, np.sin(2 * X)]) @ weights
            y = (logits + random.gumbel(size=logits.shape)).argmax(1)
            model = AnchoredEnsembleClassifier(random_state=seed, device="cpu")
            model.fit(X[:n_rows], y[:n_rows])
            log_temperature = model.parameters_["likelihood/log_temperature"]
            line = [n_classes, n_rows, seed, f"{np.exp(log_temperature[0, 0]):.2f}"]
            rows = np.arange(1500)
            for values in (0 * log_temperature, log_temperature):
                model.parameters_ = model.parameters_ | {
                    "likelihood/log_temperature": values
                }
                # A pickle has no cache of the networks.
                p = pickle.loads(pickle.dumps(model)).predict_proba(X[n_rows:])
                loss = -np.log(p[rows, y[n_rows:]]).mean()
                excess = p.max(1).mean() - (p.argmax(1) == y[n_rows:]).mean()
                line += [f"{loss:.3f}", f"{excess:+.3f}"]
            lines.append(line)
    return lines


def main() -> None:
    """Print the tables."""
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=2, help="seeds")
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 2000, 20_000])
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--estimators", nargs="+", default=list(REGRESSORS))
    parser.add_argument("--most", type=int, default=600, help="rows of the third table")
    parser.add_argument("--test", action="store_true", help="test rows of the split")
    parser.add_argument("--false-repeats", type=int, default=20)
    options = parser.parse_args()
    print(environment())
    if 1 in options.tables:
        header = ["columns", "rate"]
        for n_rows in options.rows:
            header += [f"{n_rows:,} rows: trained", "estimated", "in 90 %"]
        print(table(header, where_it_is_known(options)))
    if 2 in options.tables:
        header = ["network", "rows", "trained", "estimated"]
        header += ["trained: in 90 %", "estimated: in 90 %"]
        print(table(header, on_tables(options)))
    if 3 in options.tables:
        header = ["regressor", "set", "selects unequal", "RMSE", "CRPS", "seconds"]
        header += ["log density", "gaussian: in 90 %", "worst third"]
        header += ["auto: in 90 %", "worst third"]
        print(table(header, equal_or_selected(options)))
    if 4 in options.tables:
        header = ["regressor", "rows", "columns", "noise", "false warnings"]
        print(table(header, false_warnings(options)))
    if 5 in options.tables:
        header = ["classes", "rows", "seed", "temperature", "without: log loss"]
        header += ["excess confidence", "with: log loss", "excess confidence"]
        print(table(header, temperatures(options)))


if __name__ == "__main__":
    main()
