"""Is the epistemic uncertainty large where predictions are wrong?

Six questions with a table each; uncertainties are epistemic standard deviations.

gap
    Rows of two curves with a gap in the middle (as in examples/plot_gap.py): the ratio
    of the std in the gap to the std in the data, and the share of the gap where the
    curve is within two std of the mean. Three seeds.
extrapolation
    The tenth of the rows with the largest values of one column is left out: the share
    of these rows inside their 90 % intervals, and the rank correlation of the std with
    the absolute error.
drift
    The area under the ROC curve (AUROC) for separating test rows from the same rows
    with one column moved by one or three of its standard deviations (mean over
    columns), and with every column shuffled separately. 0.5 is chance, and the best
    possible if shuffled columns are independent. First canonical split of five UCI
    sets, at most 2,000 training rows. The isolation forest does not use y. The last
    line is an upper reference: boosting trained on all training rows to separate rows
    from rows with the same kind of drift, without knowing which column has moved.
shrinking
    A known function of five columns, noise of std 0.5: the root mean square of the std
    over the root mean square of the true error, from few rows to many.
noise
    Two tables of 250 rows and four columns for each kind of noise; in the last kind y
    does not depend on the columns. At 500 new rows: the root mean square of the std
    over the root mean square of the true error of the mean; the rank correlation of
    the std with the absolute error; and the share of the predicted variance.
refusal
    The RMSE of the half of the test rows with the least total uncertainty, as a share
    of the standard deviation of y; and the root of the area under the risk-coverage
    curve of all shares, mean over the sets.

    python benchmarks/epistemic.py --questions gap,drift

NGBoost (its std per row is used as epistemic and total) and CatBoost's virtual
ensembles take part if they are installed.
"""

import warnings
from functools import partial
from importlib.util import find_spec

import numpy as np
from _leaderboard import regressors
from common import command_line, environment, table
from scipy.stats import spearmanr
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from uci import load

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
    BBBRegressor,
    MCDropoutRegressor,
    VariationalDropoutRegressor,
)
from skbayesnn.metrics import (
    area_under_risk_coverage,
    interval_coverage,
    ood_auroc,
    risk_coverage_curve,
)

MOST_ROWS, MOST_TEST_ROWS = 2_000, 500
# Rows, and seeds of the drift, to train the classifier of drifted rows.
MOST_ROWS_SEEN, SEEDS_SEEN = 8_000, (1, 2, 3)
SEEDS = (0, 1, 2)
# Sets, and the column whose largest values are left out: the Froude number of yachts,
# the age of concrete, the temperature of the day.
LEFT_OUT = {"yacht": 5, "concrete": 7, "power-plant": 0}
DRIFT_SETS = (
    "concrete",
    "energy",
    "power-plant",
    "protein-tertiary-structure",
    "kin8nm",
)
REFUSAL_SETS = ("yacht", "energy", "concrete", "power-plant", "kin8nm")
# Mean of y and noise by kind; the exponential of a normal variable has a mean of 1.65.
NOISES = {
    "normal": lambda f, z: (f, 0.3 * z),
    "log-normal": lambda f, z: (f + 0.4 * np.exp(0.5), 0.4 * (np.exp(z) - np.exp(0.5))),
    "only log-normal": lambda f, z: (0 * f + np.exp(0.5), np.exp(z) - np.exp(0.5)),
}
ROWS = (60, 200, 600, 2_000, 6_000, 20_000)


class Process:
    """A Gaussian process with a length scale per column."""

    def fit(self, X, y):
        kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        self.pipeline = make_pipeline(StandardScaler(), process).fit(X, y)
        self.noise_ = np.sqrt(process.kernel_.k2.noise_level) * y.std()
        return self

    def predict(self, X, return_std=False):
        return self.pipeline.predict(X, return_std=return_std)

    def predict_uncertainty(self, X, kind):
        total = self.predict(X, return_std=True)[1]
        if kind == "total":
            return total
        return np.sqrt(np.maximum(total**2 - self.noise_**2, 0))

    def predict_interval(self, X):
        mean, std = self.predict(X, return_std=True)
        return mean[:, None] + 1.6449 * std[:, None] * [-1, 1]


class Other:
    """A contestant of the leaderboard from another package.

    A single Gaussian per row has no epistemic part; its std is used instead.

    contestant : function of ``_leaderboard.regressors``
    """

    def __init__(self, contestant, random_state):
        self.contestant, self.random_state = contestant, random_state

    def fit(self, X, y):
        fit = self.contestant(self.random_state, threads=1)
        self.moments = fit(np.asarray(X, dtype=np.float64), y)
        return self

    def _gaussians(self, X):
        """Means and variances, (components, rows)."""
        moments = self.moments(np.asarray(X, dtype=np.float64))
        return np.atleast_2d(moments["mean"]), np.atleast_2d(moments["std"]) ** 2

    def predict(self, X):
        return self._gaussians(X)[0].mean(0)

    def predict_uncertainty(self, X, kind):
        mean, variance = self._gaussians(X)
        if kind == "epistemic" and len(mean) > 1:
            return mean.std(0)
        return np.sqrt(mean.var(0) + variance.mean(0))

    def predict_interval(self, X):
        std = self.predict_uncertainty(X, "total")
        return self.predict(X)[:, None] + 1.6449 * std[:, None] * [-1, 1]


MODELS = {
    "BayesianStackingRegressor": BayesianStackingRegressor,
    "AnchoredEnsembleRegressor": AnchoredEnsembleRegressor,
    "five MAP networks": lambda **how: MCDropoutRegressor(
        n_estimators=5, dropout=0.0, **how
    ),
    "MCDropoutRegressor": MCDropoutRegressor,
    'the same, dropout="auto"': lambda **how: MCDropoutRegressor(dropout="auto", **how),
    "BBBRegressor": BBBRegressor,
    "VariationalDropoutRegressor": VariationalDropoutRegressor,
    "Gaussian process": lambda random_state: Process(),
}
# Models of packages that need not be installed.
OTHERS = {
    "ngboost": ("NGBoost", regressors.ngboost),
    "catboost": ("CatBoost, virtual ensembles", regressors.catboost_ensemble),
}
MODELS |= {
    title: partial(Other, contestant)
    for package, (title, contestant) in OTHERS.items()
    if find_spec(package)
}


def steep(x):
    """A curve that rises through the gap."""
    return np.sin(2 * x) + 0.3 * x


def humped(x):
    """A curve with a hump in the gap."""
    return np.cos(2.2 * x) + 0.2 * x


def gap(make):
    """Ratio of std, and share of the gap within two std, for both curves."""
    grid = np.linspace(-2.5, 2.5, 201)
    cells = []
    for curve in (steep, humped):
        by_seed = []
        for seed in SEEDS:
            random = np.random.default_rng(seed)
            x = random.uniform(0.8, 2.5, 120) * np.repeat([-1, 1], 60)
            y = curve(x) + 0.1 * random.standard_normal(120)
            model = make(random_state=seed).fit(x[:, None], y)
            std = model.predict_uncertainty(grid[:, None], "epistemic")
            inside = abs(model.predict(grid[:, None]) - curve(grid)) < 2 * std
            middle = abs(grid) < 0.8
            by_seed.append((std[middle].mean() / std[~middle].mean(), inside[middle]))
        ratios, covered = zip(*by_seed, strict=True)
        cells += [f"{np.median(ratios):.1f}", f"{np.mean(covered):.2f}"]
    return cells


def extrapolation(make):
    """Coverage and rank correlation of the rows left out, for every set."""
    cells = []
    for name, column in LEFT_OUT.items():
        X, y, [rows], _ = load(name, 1)
        outside = X[rows, column] > np.quantile(X[rows, column], 0.9)
        if not outside.any():  # a tenth of the rows or more have the largest value
            outside = X[rows, column] == X[rows, column].max()
        train, test = rows[~outside][:MOST_ROWS], rows[outside][:MOST_TEST_ROWS]
        model = make(random_state=0).fit(X[train], y[train])
        covered = interval_coverage(y[test], model.predict_interval(X[test]))
        error = abs(model.predict(X[test]) - y[test])
        std = model.predict_uncertainty(X[test], "epistemic")
        cells += [f"{covered:.2f}", f"{spearmanr(std, error).statistic:.2f}"]
    return cells


def drifted(X, random):
    """(kind of drift, tables with this drift) for every kind."""
    moved = X.std(axis=0) * np.eye(X.shape[1])
    moved = moved[X.std(axis=0) > 0]
    yield "+ 1 sd", [X + step for step in moved]
    yield "+ 3 sd", [X + 3 * step for step in moved]
    yield "shuffled", [np.column_stack([random.permutation(c) for c in X.T])]


def drift(make):
    """Mean AUROC of every kind of drift, and the three AUROCs of every set."""
    return _of_areas([_areas(name, make) for name in DRIFT_SETS])


def _of_areas(areas):
    means = [f"{value:.2f}" for value in np.mean(areas, axis=0)]
    return means + [" ".join(f"{value:.2f}" for value in row) for row in areas]


def _areas(name, make):
    X, y, [train], [test] = load(name, 1)
    train, test = train[:MOST_ROWS], test[:MOST_TEST_ROWS]
    model = make(random_state=0).fit(X[train], y[train])

    def unknown(X):
        if isinstance(model, IsolationForest):
            return -model.score_samples(X)
        return model.predict_uncertainty(X, "epistemic")

    here = unknown(X[test])
    return [
        np.mean([ood_auroc(here, unknown(moved)) for moved in tables])
        for _, tables in drifted(X[test], np.random.default_rng(0))
    ]


def drift_that_was_seen():
    """AUROC as in ``drift``, of a classifier trained on drifted training rows."""
    return _of_areas([_areas_where_seen(name) for name in DRIFT_SETS])


def _areas_where_seen(name):
    X, _, [train], [test] = load(name, 1)
    rows, here = X[train[:MOST_ROWS_SEEN]], X[test[:MOST_TEST_ROWS]]
    return [
        _area_where_seen(
            rows,
            # Other permutations than in the test rows.
            [t for seed in SEEDS_SEEN for t in _drifted_as(kind, rows, seed)],
            here,
            _drifted_as(kind, here, 0),
        )
        for kind, _ in drifted(here, np.random.default_rng(0))
    ]


def _drifted_as(kind, X, seed):
    return dict(drifted(X, np.random.default_rng(seed)))[kind]


def _area_where_seen(rows, moved, here, tables):
    """Mean AUROC of a classifier, trained on other rows, of ``here`` and the tables."""
    both = np.concatenate([rows, *moved])
    drift = np.arange(len(both)) >= len(rows)
    # With all rows, a shuffled column would have exactly the values of the original, so
    # that no tree could start with a useful split by one column.
    subset = np.random.default_rng(0).random(len(both)) < 0.9
    weights = np.where(drift, 1 / len(moved), 1)
    classifier = HistGradientBoostingClassifier(max_iter=300, random_state=0)
    classifier.fit(both[subset], drift[subset], sample_weight=weights[subset])
    scores = [classifier.predict_proba(table)[:, 1] for table in (here, *tables)]
    return np.mean([ood_auroc(scores[0], drifted) for drifted in scores[1:]])


def shrinking(make):
    """Ratio of the root mean squares of std and true error, by number of rows."""
    cells = []
    for n_rows in ROWS:
        random = np.random.default_rng(0)
        X = random.uniform(-2, 2, size=(n_rows + 2_000, 5))
        f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + X[:, 2] * X[:, 3]
        y = f + 0.5 * random.standard_normal(len(f))
        if n_rows > MOST_ROWS and make is MODELS["Gaussian process"]:
            cells.append("-")
            continue
        model = make(random_state=0).fit(X[:n_rows], y[:n_rows])
        std = model.predict_uncertainty(X[n_rows:], "epistemic")
        error = model.predict(X[n_rows:]) - f[n_rows:]
        cells.append(f"{np.sqrt(np.mean(std**2) / np.mean(error**2)):.2f}")
    return cells


def noise(make):
    """Ratio of std and true error, rank correlation, and share of the variance."""
    cells = []
    for of_kind in NOISES.values():
        results = []
        for seed in SEEDS[:2]:
            random = np.random.default_rng(seed)
            X = random.normal(size=(250 + MOST_TEST_ROWS, 4))
            f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.5 * X[:, 2] * X[:, 3]
            f, noise_of_y = of_kind(f, random.normal(size=len(X)))
            model = make(random_state=0).fit(X[:250], (f + noise_of_y)[:250])
            std = model.predict_uncertainty(X[250:], "epistemic")
            total = model.predict_uncertainty(X[250:], "total")
            error = np.abs(model.predict(X[250:]) - f[250:])
            squares = [np.mean(np.square(v)) for v in (std, error, total)]
            correlation = spearmanr(std, error)[0]
            ratio = np.sqrt(squares[0] / squares[1])
            results.append((ratio, correlation, squares[0] / squares[2]))
        cells += [f"{value:.2f}" for value in np.mean(results, axis=0)]
    return cells


def refusal(make):
    """RMSE of the least uncertain half of every set, their mean, and the mean area."""
    halves, areas = [], []
    for name in REFUSAL_SETS:
        X, y, [train], [test] = load(name, 1)
        model = make(random_state=0).fit(X[train[:MOST_ROWS]], y[train[:MOST_ROWS]])
        squares = np.square(model.predict(X[test]) - y[test]) / y[test].var()
        std = model.predict_uncertainty(X[test], "total")
        coverage, risk, _ = risk_coverage_curve(squares, std)
        halves.append(np.sqrt(np.interp(0.5, coverage, risk)))
        areas.append(np.sqrt(area_under_risk_coverage(squares, std)))
    return [f"{value:.3f}" for value in (*halves, np.mean(halves), np.mean(areas))]


QUESTIONS = {
    gap: ["rising: gap / data", "holds", "humped: gap / data", "holds"],
    extrapolation: [
        head for name in LEFT_OUT for head in (f"{name}: in 90 %", "correlation")
    ],
    drift: ["+ 1 sd", "+ 3 sd", "shuffled", *DRIFT_SETS],
    shrinking: [f"{n_rows:,} rows" for n_rows in ROWS],
    noise: [
        head
        for kind in NOISES
        for head in (f"{kind}: std / error", "correlation", "share")
    ],
    refusal: [*REFUSAL_SETS, "mean", "root of the area"],
}


def main():
    """Print a table for every question."""
    parser = command_line(__doc__)
    names = [question.__name__ for question in QUESTIONS]
    parser.add_argument("--questions", type=lambda text: text.split(","), default=names)
    parser.add_argument("--models", default="", help="parts of names, by commas")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    for question, columns in QUESTIONS.items():
        if question.__name__ not in options.questions:
            continue
        models = dict(MODELS)
        if question is drift:
            models["isolation forest"] = Forest
        rows = [
            [title, *question(make)]
            for title, make in models.items()
            if any(part in title for part in options.models.split(","))
        ]
        if question is drift:
            rows.append(["boosting that has seen it", *drift_that_was_seen()])
        print(f"\n{question.__name__}\n\n{table(['', *columns], rows)}", flush=True)


class Forest(IsolationForest):
    def fit(self, X, y):
        return super().fit(X)


if __name__ == "__main__":
    main()
