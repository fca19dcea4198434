"""Are defaults safe with few rows? The stack and single networks beside linear models.

Printed is the RMSE on new rows as a ratio to that of ``RidgeCV``, or the log loss as
one to that of ``LogisticRegressionCV``, mean over seeds, and the share of new rows
inside of the first one's 90 % intervals. Tables: a linear one and sin 2a + b^2 - c,
both with five columns and noise, rows of scikit-learn's sets and training rows of UCI
sets.

    python benchmarks/small_tables.py --seeds 5
    python benchmarks/small_tables.py --of classes --kinds MCDropout,BBB --first 3
"""

import warnings

import numpy as np
from common import command_line, data_folder, environment, table
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn.metrics import interval_coverage

ROWS, FEWEST_NEW = (20, 30, 60, 100, 150), 40
KINDS = ("BayesianStacking", "MCDropout", "BBB", "VariationalDropout")


# ---- tables: rows enough to learn from, and others


def linear(n_rows, random):
    X = random.normal(size=(n_rows + 2000, 5))
    return X, X @ random.normal(size=5) + random.normal(size=len(X))


def curved(n_rows, random):
    X = random.normal(size=(n_rows + 2000, 5))
    f = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - X[:, 2]
    return X, f + 0.5 * random.normal(size=len(X))


def diabetes(n_rows, random):
    return _shuffled(*load_diabetes(return_X_y=True), random)


def uci(name):
    def rows(n_rows, random):
        with np.load(data_folder("uci", name) / f"{name}.npz") as arrays:
            train = arrays["train_index"][0].astype(int)
            return _shuffled(arrays["X"][train], arrays["y"][train], random)

    rows.__name__ = name
    return rows


def loaded(load):
    def rows(n_rows, random):
        return _shuffled(*load(return_X_y=True), random)

    rows.__name__ = load.__name__.removeprefix("load_")
    return rows


def of_classes(make):
    """Whether y is above its median."""

    def rows(n_rows, random):
        X, y = make(n_rows, random)
        return X, (y > np.median(y)).astype(int)

    rows.__name__ = f"{make.__name__}, halves"
    return rows


def _shuffled(X, y, random):
    order = random.permutation(len(y))
    return X[order], y[order]


REGRESSION = (linear, curved, diabetes, uci("yacht"), uci("energy"), uci("concrete"))
CLASSES = (
    *map(loaded, (load_iris, load_wine, load_breast_cancer)),
    *map(of_classes, (linear, curved, diabetes)),
)


# ---- scores


def errors(models, X, y, X_new, y_new):
    """RMSE of each."""
    means = [model.fit(X, y).predict(X_new) for model in models]
    return [np.sqrt(np.mean((mean - y_new) ** 2)) for mean in means]


def losses(models, X, y, X_new, y_new):
    """Log loss of each."""
    found = [model.fit(X, y).predict_proba(X_new) for model in models]
    return [log_loss(y_new, each, labels=models[0].classes_) for each in found]


def parted(make, n_rows, seed):
    """So many rows to learn from, and others; None without rows enough to score."""
    X, y = make(n_rows, np.random.default_rng(seed))
    if len(y) < n_rows + FEWEST_NEW:
        return None
    X, X_new, y, y_new = train_test_split(
        X,
        y,
        train_size=n_rows,
        random_state=seed,
        stratify=y if make in CLASSES else None,
    )
    return X, y, X_new[:2000], y_new[:2000]


def logistic():
    """The linear model of classes."""
    line = LogisticRegressionCV(scoring="neg_log_loss", max_iter=1000)
    return make_pipeline(StandardScaler(), line)


def compared(make, n_rows, seed, kinds):
    """Scores of all as ratios to the linear model's, and the first one's coverage."""
    cut = parted(make, n_rows, seed)
    if cut is None:
        return np.full(len(kinds) + 1, np.nan)
    classes = make in CLASSES
    ending = "Classifier" if classes else "Regressor"
    ours = [getattr(skbayesnn, f"{kind}{ending}")(random_state=0) for kind in kinds]
    if classes:
        found = losses([logistic(), *ours], *cut)
        inside = np.nan
    else:
        line = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 30)))
        found = errors([line, *ours], *cut)
        inside = interval_coverage(cut[3], ours[0].predict_interval(cut[2]))
    return [*np.array(found[1:]) / found[0], inside]


def main():
    """Print the tables."""
    parser = command_line(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="of the seeds")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--of", choices=["numbers", "classes"], help="default: both")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    seeds = range(options.first, options.first + options.seeds)
    warnings.simplefilter("ignore")
    print(environment())
    for of, makes in (("numbers", REGRESSION), ("classes", CLASSES)):
        if options.of not in (None, of):
            continue
        found = {
            (make.__name__, n_rows): np.mean(
                [compared(make, n_rows, seed, kinds) for seed in seeds], axis=0
            )
            for make in makes
            for n_rows in ROWS
        }
        found = {
            which: means for which, means in found.items() if np.isfinite(means[0])
        }
        every = np.array(list(found.values()))
        found["mean", ""] = every.mean(axis=0)
        found["geometric mean", ""] = np.exp(np.log(every).mean(axis=0))
        rows = [
            [*which, *(f"{v:.2f}" for v in means[:-1]), f"{means[-1]:.0%}"]
            for which, means in found.items()
        ]
        print(table(["table", "rows", *kinds, "in 90 %"], rows), flush=True)


if __name__ == "__main__":
    main()
