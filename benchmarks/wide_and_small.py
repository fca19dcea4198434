"""How does the default stack perform with more columns than rows, and with few rows?

Wide tables: the ratio of the RMSE on new rows to the better one of ``RidgeCV`` and
``LassoCV``; for classification, the ratio of the log loss to the better
``LogisticRegressionCV`` of l1 and l2. Small tables with 40 to 100 rows: whether the
epistemic standard deviation is large where predictions are wrong, as its correlation
with the absolute error and with the distance of the prediction from the mean of y; the
log density; and the ratio of the RMSE to ``RidgeCV``. Means over simulated tables that
were not used to choose any setting.

    python benchmarks/wide_and_small.py
    python benchmarks/wide_and_small.py --of wide --first 5 --last 10
"""

import time
import warnings

import numpy as np
from common import command_line, environment, table
from sklearn.linear_model import LassoCV, LogisticRegressionCV, RidgeCV
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import BayesianStackingClassifier, BayesianStackingRegressor
from skbayesnn.metrics import interval_coverage

WIDE, SMALL, NEW_ROWS = 20, 30, 1000
SIGNALS = "sparse", "dense", "low-rank"
SIZES = (
    (60, 50),
    (60, 500),
    (100, 200),
    (100, 2000),
    (200, 1000),
    (300, 300),
    (200, 100),
)
NOISE = 0.2, 0.5, 1.0
RIDGE = np.logspace(-2, 6, 33)


# ---- tables


def wide(i):
    """Kind of signal, number of training rows, X, signal, noise std, and generator."""
    random = np.random.default_rng([2024, i])
    signal, (n_rows, n_columns) = SIGNALS[i % 3], SIZES[i % 7]
    shape = n_rows + NEW_ROWS, n_columns
    X = random.normal(size=shape)
    if signal == "sparse":
        used = random.choice(n_columns, 5, replace=False)
        f = X[:, used] @ random.choice([-1, 1], 5) * random.uniform(0.5, 2)
    elif signal == "dense":
        f = X @ random.normal(size=n_columns)
    else:
        factors = random.normal(size=(len(X), 5))
        X += factors @ random.normal(size=(5, n_columns))
        f = factors @ random.normal(size=5)
    return signal, n_rows, X, f / f.std(), NOISE[i // 7], random


def wide_regression(i):
    """A wide table with a numerical target, (kind, X, y, X_new, y_new)."""
    signal, n, X, f, noise, random = wide(i)
    y = f + noise * random.normal(size=len(f))
    return signal, X[:n], y[:n], X[n:], y[n:]


def wide_classification(i):
    """A wide table with two classes, or three if i % 4 == 3 and columns are few."""
    signal, n, X, f, noise, random = wide(i)
    logits = np.stack([-2 * f, np.zeros_like(f), 2 * f], 1) / noise
    if i % 4 != 3 or X.shape[1] > 500:
        logits = logits[:, 1:]
    y = (logits + random.gumbel(size=logits.shape)).argmax(1)
    return signal, X[:n], y[:n], X[n:], y[n:]


def small(i):
    """A small table with a numerical target, (kind, X, y, X_new, y_new)."""
    random = np.random.default_rng([2025, i])
    n, n_columns = int(random.integers(40, 101)), int(random.integers(3, 14))
    kinds = "linear", "curved", "uneven noise", "steps", "heavy tails", "product"
    kind = kinds[i % 6]
    shape = n + NEW_ROWS, n_columns
    X = random.standard_t(4, size=shape) if i % 6 == 4 else random.normal(size=shape)
    f = {
        "curved": np.sin(2 * X[:, 0]) + np.square(X[:, 1]) - X[:, 2],
        "steps": (X[:, 0] > 0) + 2.0 * (X[:, 1] > 0.5),
        "heavy tails": 2 * X[:, 0] + np.sin(X[:, 1]),
        "product": X[:, 0] * X[:, 1] + X[:, 2],
    }.get(kind, X @ random.normal(size=n_columns))
    noise = random.choice([0.2, 0.5, 1.0]) * random.normal(size=len(X))
    if kind == "uneven noise":
        noise *= np.exp(0.7 * X[:, 0])
    y = f / f.std() + noise
    return kind, X[:n], y[:n], X[n:], y[n:]


# ---- models and scores


def rmse(mean, y):
    """Root mean squared error."""
    return np.sqrt(np.mean(np.square(mean - y)))


def linear_regressors():
    """Linear regressors by name."""
    models = {"RidgeCV": RidgeCV(RIDGE), "LassoCV": LassoCV()}
    return {n: make_pipeline(StandardScaler(), model) for n, model in models.items()}


def linear_classifiers(n_classes):
    """Linear classifiers by name."""
    solver = {"solver": "liblinear"} if n_classes == 2 else {"solver": "saga"}
    models = {
        "l2": LogisticRegressionCV(l1_ratios=(0,), scoring="neg_log_loss"),
        "l1": LogisticRegressionCV(
            l1_ratios=(1,), scoring="neg_log_loss", tol=1e-3, max_iter=1000, **solver
        ),
    }
    return {n: make_pipeline(StandardScaler(), model) for n, model in models.items()}


def timed_fit(model, X, y):
    """The fitted model, and seconds of CPU time."""
    start = time.process_time()
    model.fit(X, y)
    return model, time.process_time() - start


def wide_rows(make, regression):
    """A function that returns the line of the table for table i."""

    def row(i):
        signal, X, y, X_new, y_new = make(i)
        if regression:
            linear = linear_regressors()
            stack = BayesianStackingRegressor(random_state=i)
            linear_scores = {
                n: rmse(m.fit(X, y).predict(X_new), y_new) for n, m in linear.items()
            }
        else:
            linear = linear_classifiers(len(np.unique(y)))
            stack = BayesianStackingClassifier(random_state=i)
            linear_scores = {
                n: log_loss(y_new, m.fit(X, y).predict_proba(X_new))
                for n, m in linear.items()
            }
        stack, seconds = timed_fit(stack, X, y)
        if regression:
            score = rmse(stack.predict(X_new), y_new)
            others = [
                stack.log_predictive_density(X_new, y_new).mean(),
                interval_coverage(y_new, stack.predict_interval(X_new)),
            ]
        else:
            score = log_loss(y_new, stack.predict_proba(X_new))
            others = [-score, np.mean(stack.predict(X_new) == y_new)]
        best = min(linear_scores.values())
        return [signal, *X.shape], [
            *linear_scores.values(),
            score / best,
            *others,
            seconds,
        ]

    return row


def small_row(i):
    """The line of the stack on small table i."""
    kind, X, y, X_new, y_new = small(i)
    stack, seconds = timed_fit(BayesianStackingRegressor(random_state=i), X, y)
    mean = stack.predict(X_new)
    linear = linear_regressors()["RidgeCV"].fit(X, y).predict(X_new)
    epistemic = stack.predict_uncertainty(X_new, "epistemic")
    return [kind, *X.shape], [
        _correlation(epistemic, np.abs(mean - y_new)),
        _correlation(epistemic, np.abs(mean - y.mean())),
        stack.log_predictive_density(X_new, y_new).mean(),
        rmse(mean, y_new) / rmse(linear, y_new),
        interval_coverage(y_new, stack.predict_interval(X_new)),
        seconds,
    ]


def _correlation(a, b):
    """Correlation; zero if one of the arrays is constant."""
    if np.ptp(a) < 1e-9 * np.abs(a).max() or np.ptp(b) == 0:
        return 0.0
    return np.corrcoef(a, b)[0, 1]


# ---- tables to print

OF = "signal", "rows", "columns"
PARTS = {
    "wide": (
        WIDE,
        wide_rows(wide_regression, True),
        (*OF, "RidgeCV", "LassoCV", "stack", "log density", "in 90 %", "CPU s"),
    ),
    "wide-classes": (
        WIDE,
        wide_rows(wide_classification, False),
        (*OF, "l2", "l1", "stack", "log density", "accuracy", "CPU s"),
    ),
    "small": (
        SMALL,
        small_row,
        (
            *OF,
            "with |error|",
            "with |mean - mean y|",
            "log density",
            "RMSE to ridge",
            "in 90 %",
            "CPU s",
        ),
    ),
}


def main():
    """Print the tables."""
    parser = command_line(__doc__)
    parser.add_argument("--of", choices=list(PARTS), help="default: all")
    parser.add_argument("--first", type=int, default=0, help="of the tables")
    parser.add_argument("--last", type=int, help="default: all")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    for name, (n_tables, row, head) in PARTS.items():
        if options.of not in (None, name):
            continue
        indices = range(options.first, min(options.last or n_tables, n_tables))
        names, values = zip(*map(row, indices), strict=True)
        values = np.array(values)
        rows = [
            [*map(str, name), *(f"{v:.2f}" for v in row_values)]
            for name, row_values in zip(names, values, strict=True)
        ]
        for what, summary in (("mean", np.mean), ("largest", np.max)):
            rows.append([what, "", "", *(f"{v:.2f}" for v in summary(values, axis=0))])
        print(f"\n{name}\n\n{table(list(head), rows)}", flush=True)


if __name__ == "__main__":
    main()
