"""How good are the class probabilities of a stack on tables of up to 2,000 rows?

The stack with trees in its pool, the same pool as it would be without forests and with
boosted trees for mixed tables only, and four methods that people use for such tables:
CatBoost, histogram gradient boosting, a random forest and logistic regression, all with
their defaults. The tables contain the mean log loss and the mean expected calibration
error of the test rows, and the seconds of a fit.

- iris, wine, breast_cancer, digits, titanic and adult as in the leaderboard;
- quality: wine-quality-red of the UCI sets, with the labels 4 (or less) to 7 (or more);
- protein, kin8nm, concrete, power-plant: UCI sets whose y is cut into 3, 2, 3 and 4
  classes of equal size;
- rules: generated; three rare diagnoses from rules on 29 columns, with few exceptions;
- credit: generated; a logistic score of mixed columns, with two thresholds.

A fifth of the rows are test rows, at most ``MOST_TEST``; at most ``MOST`` rows train.

    python benchmarks/class_tables.py
    python benchmarks/class_tables.py --tables rules digits --splits 1
"""

import time
import warnings

import numpy as np
import pandas as pd
from _leaderboard.tasks import TASKS, Split, as_taken
from common import command_line, environment, table
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from uci import load as load_uci

from skbayesnn import BayesianStackingClassifier, default_pool
from skbayesnn.metrics import expected_calibration_error

MOST, MOST_TEST = 2_000, 2_000


def rules(seed=0, n_rows=3_000):
    """Diagnoses from rules on levels, age and flags."""
    random = np.random.default_rng([seed, 7])
    z = random.normal(size=(n_rows, 6))
    levels = np.column_stack(
        [
            np.exp(z[:, 0]),
            z[:, 1],
            np.round(np.exp(0.7 * z[:, 2] + 0.5 * z[:, 0]), 1),
            z[:, 3] + 0.6 * z[:, 1],
            np.exp(1.5 * z[:, 4]),
            np.round(50 + 18 * z[:, 5]),
        ]
    )
    flags = random.random((n_rows, 21)) < random.uniform(0.02, 0.3, 21)
    a, b, c, d, e, age = levels.T
    y = np.where((e > 6) & (b < -0.2) & ~flags[:, 0], 1, 0)
    y = np.where((e > 6) & (b >= -0.2) & (d < 0.8) & ~flags[:, 1], 2, y)
    y = np.where((a > 4.5) & (c > 1.5) & ~flags[:, 2] & (age < 75), 3, y)
    is_exception = random.random(n_rows) < 0.004
    y = np.where(is_exception, random.integers(0, 4, n_rows), y)
    return np.column_stack([levels, random.normal(size=(n_rows, 2)), flags]), y


def credit(seed=0, n_rows=1_000):
    """Loans that are not paid back."""
    random = np.random.default_rng([seed, 8])
    account = random.choice(
        ["none", "low", "mid", "high"], n_rows, p=[0.4, 0.3, 0.2, 0.1]
    )
    savings = random.choice(["0", "1", "2", "3"], n_rows, p=[0.6, 0.15, 0.05, 0.2])
    purpose = random.choice([f"purpose {i}" for i in range(9)], n_rows)
    months = np.clip(np.round(random.gamma(3, 7, n_rows)), 4, 72)
    amount = np.exp(random.normal(7.8, 0.6, n_rows) + 0.02 * (months - 20)).round()
    age = np.clip(np.round(random.gamma(9, 4, n_rows)), 19, 75)
    rate = random.integers(1, 5, n_rows)
    score = (
        1.1
        + pd.Series(account).map({"none": 1.1, "low": -0.8, "mid": -0.3, "high": 0.4})
        - 0.035 * (months - 20)
        - 0.25 * (rate - 2.5)
        + 0.5 * np.isin(savings, ["2", "3"])
        + 0.015 * (age - 35)
        - 0.4 * (amount > 7_000)
        - 0.9 * ((months > 30) & (rate > 3))
    )
    X = pd.DataFrame(
        {
            "account": account,
            "savings": savings,
            "purpose": purpose,
            "months": months,
            "amount": amount,
            "age": age,
            "rate": rate,
            "phone": random.random(n_rows) < 0.4,
        }
    )
    return X, (random.random(n_rows) < 1 / (1 + np.exp(score))).astype(int)


def _of_uci(name, levels):
    X, y, *_ = load_uci(name, 1)
    return X, levels(np.ravel(y))


def _cut(n):
    return lambda y: np.digitize(y, np.quantile(y, np.arange(1, n) / n))


TABLES = {
    **{
        task.name: lambda task=task: task.load()[:2]
        for task in TASKS
        if task.kind == "classification"
    },
    "quality": lambda: _of_uci(
        "wine-quality-red", lambda y: np.clip(y, 4, 7).astype(int)
    ),
    "protein": lambda: _of_uci("protein-tertiary-structure", _cut(3)),
    "kin8nm": lambda: _of_uci("kin8nm", _cut(2)),
    "concrete": lambda: _of_uci("concrete", _cut(3)),
    "power-plant": lambda: _of_uci("power-plant", _cut(4)),
    "rules": rules,
    "credit": credit,
}


def splits_of(name, n_splits):
    """Training and test rows of each split."""
    X, y = TABLES[name]()
    take = X.iloc.__getitem__ if isinstance(X, pd.DataFrame) else X.__getitem__
    splitter = StratifiedShuffleSplit(n_splits, test_size=0.2, random_state=1)
    for train, test in splitter.split(y, y):
        train, test = train[:MOST], test[:MOST_TEST]
        yield Split(take(train), y[train], take(test), y[test])


def _catboost(split):
    from catboost import CatBoostClassifier

    names = []
    if isinstance(split.X_train, pd.DataFrame):
        is_text = [kind.kind not in "biuf" for kind in split.X_train.dtypes]
        names = split.X_train.columns[is_text].tolist()

    def filled(X):
        return X.assign(**{n: X[n].fillna("missing") for n in names}) if names else X

    model = CatBoostClassifier(
        verbose=False, allow_writing_files=False, random_seed=0, thread_count=1
    ).fit(filled(split.X_train), split.y_train, cat_features=names)
    return model.classes_, model.predict_proba(filled(split.X_test))


def _of_numbers(model, takes="numbers"):
    def fitted(split):
        X, X_test = as_taken(split, takes)
        model.fit(X, split.y_train)
        return model.classes_, model.predict_proba(X_test)

    return fitted


def _stack(with_trees):
    def fitted(split):
        pool = "auto"
        if not with_trees:
            mixed = isinstance(split.X_train, pd.DataFrame)
            left_out = ["forest"] + ["boosted_trees"] * (not mixed)
            pool = [item for item in default_pool() if item[0] not in left_out]
        model = BayesianStackingClassifier(pool, device="cpu", random_state=0)
        model.fit(split.X_train, split.y_train)
        return model.classes_, model.predict_proba(split.X_test)

    return fitted


CONTESTANTS = {
    "stack": _stack(True),
    "stack without": _stack(False),
    "CatBoost": _catboost,
    "boosting": _of_numbers(HistGradientBoostingClassifier(random_state=0)),
    "random forest": _of_numbers(RandomForestClassifier(200, random_state=0)),
    "logistic": _of_numbers(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=10_000))
    ),
}


def main() -> None:
    """Print the tables."""
    parser = command_line(__doc__)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument(
        "--contestants", nargs="+", default=list(CONTESTANTS), choices=CONTESTANTS
    )
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment(), flush=True)
    rows: dict[str, list] = {"log loss": [], "calibration error": [], "seconds": []}
    for name in options.tables:
        results = []
        for split in splits_of(name, options.splits):
            of_split = []
            for contestant in options.contestants:
                start = time.process_time()
                classes, p = CONTESTANTS[contestant](split)
                seconds = time.process_time() - start
                # A forest may exclude a class: the loss of a row is at most 16 nats.
                loss = log_loss(split.y_test, np.clip(p, 1e-7, 1), labels=classes)
                error = expected_calibration_error(split.y_test, p, classes=classes)
                of_split.append((loss, error, seconds))
            results.append(of_split)
        loss, error, seconds = np.mean(results, axis=0).T
        size = f"{len(split.y_train):,} x {split.X_train.shape[1]}"
        others = [
            value
            for contestant, value in zip(options.contestants, loss, strict=True)
            if not contestant.startswith("stack")
        ]
        ratio = f"{loss[0] / min(others):.3f}" if others else ""
        rows["log loss"].append([name, size, *(f"{v:.4f}" for v in loss), ratio])
        rows["calibration error"].append([name, size, *(f"{v:.3f}" for v in error)])
        rows["seconds"].append([name, size, *(f"{v:.1f}" for v in seconds)])
        for kind, lines in rows.items():
            print(name, kind, lines[-1], flush=True)
    header = ["table", "training rows", *options.contestants]
    for kind, lines in rows.items():
        more = [f"{options.contestants[0]} / best other"] * (kind == "log loss")
        print(f"\n{kind}\n\n{table([*header, *more], lines)}", flush=True)


if __name__ == "__main__":
    main()
