"""The contestants, and the environments that they need."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from _leaderboard.tasks import Task

import skbayesnn

HERE = Path(__file__).resolve().parent
# Packages that pip installs into the environments of contestants.
ENVIRONMENTS = {
    "catboost": ("catboost", "scikit-learn", "pandas"),
    "ngboost": ("ngboost",),
    "bde": ("sklearn-contrib-bde",),
    "pytabkit": ("pytabkit[models]",),
    "uqregressors": ("uqregressors",),
    "xgboost": ("xgboost", "scikit-learn"),
    "lightgbm": ("lightgbm", "scikit-learn"),
    "quantile_forest": ("quantile-forest",),
    "chimeraboost": ("chimeraboost", "scikit-learn"),
}
# Contestants are compared with the first of these that has results.
REFERENCES = ("stacked", "mc_dropout")
# With at most this many training rows, every contestant runs on all splits.
SMALL_ROWS = 200
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclass(frozen=True)
class Contestant:
    """A contestant, which is a row of the tables.

    kind : "regression" or "classification"
    call : module in this folder and its function, see child.py
    about : description of its settings
    package : package whose version is recorded
    environment : key of ``ENVIRONMENTS``; None is the current Python
    takes : form of X, see ``tasks.as_taken``; matters for mixed tables only
    most_rows : largest number of training rows that it can fit in a reasonable time
    most_splits : limit for more than ``SMALL_ROWS`` rows, because of its cost; None is
        all splits
    """

    name: str
    kind: str
    call: str
    about: str
    package: str
    environment: str | None = None
    takes: str = "numbers"
    most_rows: int | None = None
    most_splits: int | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it comes from this package."""
        return self.call.startswith("ours:")

    def splits(self, task: Task) -> range:
        """The splits of a task on which it runs; all for small tables."""
        n_rows, n_splits = task.n_rows, task.n_splits
        if task.kind != self.kind or n_rows > (self.most_rows or n_rows):
            return range(0)
        if n_rows <= SMALL_ROWS:
            return range(n_splits)
        return range(min(n_splits, self.most_splits or n_splits))

    def why_not(self, pythons: Mapping[str, Path]) -> str | None:
        """The reason why it cannot run; None if it can."""
        estimator = self.call.partition(":")[2].partition("_")[0]
        if self.is_ours and estimator not in skbayesnn.__all__:
            return f"this skbayesnn has no {estimator}"
        if self.environment and not pythons[self.environment].is_file():
            return f"no environment {self.environment!r}: --install {self.environment}"
        return None

    def command(self, pythons: Mapping[str, Path]) -> list[str]:
        """The command of child.py with its first argument only."""
        python = pythons[self.environment] if self.environment else sys.executable
        return [str(python), str(HERE / "child.py"), self.call]


def surroundings(threads: int, *, own: bool) -> dict[str, str]:
    """Environment variables of a child process.

    own : whether it runs in the current Python, and so imports this package
    """
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if own:
        kept["PYTHONPATH"] = str(HERE.parent.parent)
    return kept | dict.fromkeys(THREAD_VARIABLES, str(threads))


def _ours(name: str, stem: str, size: str = "") -> list[Contestant]:
    argument, suffix = (f'"{size}"', f"_{size}") if size else ("", "")
    return [
        Contestant(
            name,
            kind,
            f"ours:{stem}{ending}{suffix}",
            f"`{stem}{ending}({argument})`",
            "skbayesnn",
        )
        for kind, ending in (
            ("regression", "Regressor"),
            ("classification", "Classifier"),
        )
    ]


def _sklearn(name: str, kind: str, about: str, **options) -> Contestant:
    module = "regressors" if kind == "regression" else "classifiers"
    return Contestant(name, kind, f"{module}:{name}", about, "scikit-learn", **options)


def _peer(name: str, kind: str, about: str, environment: str, **options) -> Contestant:
    module = "regressors" if kind == "regression" else "classifiers"
    package = ENVIRONMENTS[environment][0].partition("[")[0]
    call = f"{module}:{name}"
    return Contestant(name, kind, call, about, package, environment, **options)


_REGRESSION, _CLASSIFICATION = "regression", "classification"
_DEAR = {"most_splits": 3}
_DEAREST = {"most_splits": 3, "most_rows": 2_000}
_TEXT = {"takes": "frame"}
_FILLED = {"takes": "imputed"}
_HELD = "noise of the held-out fifth that chooses its epoch"

CONTESTANTS = [
    *_ours("stacked", "BayesianStacking"),
    *_ours("stacked_fast", "BayesianStacking", "fast"),
    *_ours("stacked_best", "BayesianStacking", "best"),
    *_ours("mc_dropout", "MCDropout"),
    *_ours("bbb", "BBB"),
    *_ours("variational_dropout", "VariationalDropout"),
    *_ours("anchored_ensemble", "AnchoredEnsemble"),
    *_ours("laplace", "Laplace"),
    _sklearn("bayesian_ridge", _REGRESSION, "`BayesianRidge()`, standardised"),
    _sklearn(
        "gaussian_process",
        _REGRESSION,
        "`GaussianProcessRegressor`, RBF with a length scale per column + white noise",
        most_rows=2_000,
    ),
    _sklearn(
        "boosting",
        _REGRESSION,
        "`HistGradientBoostingRegressor()`; noise of a held-out fifth, then refitted",
    ),
    _sklearn(
        "boosting_quantiles",
        _REGRESSION,
        'the same with `loss="quantile"` at 15 levels',
    ),
    _sklearn(
        "extra_trees",
        _REGRESSION,
        "`ExtraTreesRegressor(200, min_samples_leaf=5)`, a Gaussian per tree and leaf",
    ),
    _sklearn(
        "random_forest",
        _REGRESSION,
        "`RandomForestRegressor(200, min_samples_leaf=5)`, a Gaussian per tree and "
        "leaf",
    ),
    _peer(
        "xgboost",
        _REGRESSION,
        "`XGBRegressor()`; noise of five folds, then refitted",
        "xgboost",
    ),
    _peer(
        "xgboost_meta",
        _REGRESSION,
        "`XGBRegressor` with pytabkit's tuned defaults; trees and noise of a held-out "
        "fifth, then refitted",
        "xgboost",
    ),
    _peer(
        "chimeraboost",
        _REGRESSION,
        "`ChimeraBoostQuantileRegressor()` at 15 levels",
        "chimeraboost",
    ),
    _peer(
        "lightgbm_quantiles",
        _REGRESSION,
        '`LGBMRegressor(objective="quantile")` at 15 levels',
        "lightgbm",
    ),
    _peer(
        "quantile_forest",
        _REGRESSION,
        "`RandomForestQuantileRegressor()` at 15 levels",
        "quantile_forest",
    ),
    _peer(
        "catboost",
        _REGRESSION,
        '`CatBoostRegressor(loss_function="RMSEWithUncertainty")`',
        "catboost",
    ),
    _peer(
        "catboost_stopped",
        _REGRESSION,
        "the same with the number of trees that is best for a held-out fifth",
        "catboost",
    ),
    _peer(
        "catboost_ensemble",
        _REGRESSION,
        "`catboost` with `posterior_sampling=True`, mixture of its virtual ensembles",
        "catboost",
    ),
    _peer("ngboost", _REGRESSION, "`NGBRegressor()`", "ngboost"),
    _peer("bde", _REGRESSION, "`BdeRegressor`, README's settings", "bde", **_DEAR),
    _peer("realmlp", _REGRESSION, f"`RealMLP_TD_S_Regressor()`; {_HELD}", "pytabkit"),
    _peer(
        "tabm", _REGRESSION, f"`TabM_D_Regressor()`; {_HELD}", "pytabkit", **_DEAREST
    ),
    _peer(
        "uqr_mc_dropout",
        _REGRESSION,
        "`MCDropoutRegressor()` of uqregressors",
        "uqregressors",
        **_DEAR,
    ),
    _peer(
        "uqr_deep_ensemble",
        _REGRESSION,
        "`DeepEnsembleRegressor()` of uqregressors",
        "uqregressors",
        **_DEAR,
    ),
    _sklearn("logistic", _CLASSIFICATION, "`LogisticRegression()`, standardised"),
    _sklearn(
        "boosting", _CLASSIFICATION, "`HistGradientBoostingClassifier()`", **_TEXT
    ),
    _peer("catboost", _CLASSIFICATION, "`CatBoostClassifier()`", "catboost", **_TEXT),
    _peer("ngboost", _CLASSIFICATION, "`NGBClassifier()`", "ngboost", **_DEAR),
    _peer("bde", _CLASSIFICATION, "`BdeClassifier`, README's settings", "bde", **_DEAR),
    _peer(
        "realmlp",
        _CLASSIFICATION,
        "`RealMLP_TD_S_Classifier`, README's settings for log loss",
        "pytabkit",
        **_FILLED,
    ),
    _peer(
        "tabm",
        _CLASSIFICATION,
        "`TabM_D_Classifier`, stopped by log loss",
        "pytabkit",
        **_FILLED,
        **_DEAREST,
    ),
]
