"""What prior should the anchors of an ensemble be drawn from?

On training rows only: at most 1,200 of one canonical split of eight UCI sets, 300 more
to score. Printed for every variant: the CRPS as a ratio to that of five networks
without a posterior (geometric mean of the sets), the share of rows in their 90 %
intervals, and the AUROC of the epistemic std for one column moved by one or three of
its standard deviations and for columns shuffled (see epistemic.py; mean of the sets);
then the two curves with a gap of epistemic.py: how many times larger the std is in the
gap, and the share of it that is held. A second table has the log loss of classifiers.

    python benchmarks/anchored_prior.py
"""

import warnings
from functools import partial

import numpy as np
from common import command_line, environment, table
from epistemic import drifted, gap
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from uci import SETS, load

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    crps,
)
from skbayesnn.metrics import interval_coverage, ood_auroc

ROWS, SCORED = 1_200, 300


def with_prior(kind, one_column, first, output, **params):
    """An ensemble whose ``length_scale="auto"`` has other standard deviations.

    one_column, first, output : as in skbayesnn/estimators/anchored_ensemble.py
    """

    class Variant(kind):
        def _auto_length_scale(self, fan_ins, total_weight):
            scale = np.sqrt(fan_ins)
            scale[0] /= max(one_column / scale[0], first)
            scale[-1] /= output
            return scale

    return partial(Variant, **params)


WIDE, DEEP = {"hidden_layer_sizes": (100,)}, {"hidden_layer_sizes": (50, 50)}
SLOW, RELU = {"learning_rate_init": 0.01}, {"activation": "relu"}
REGRESSORS = {
    "five MAP networks": partial(MCDropoutRegressor, n_estimators=5, dropout=0.0),
    "the default": AnchoredEnsembleRegressor,
    "- noise on y": partial(AnchoredEnsembleRegressor, noisy_targets=False),
    "learning rate 0.01": partial(AnchoredEnsembleRegressor, **SLOW),
    "20 members": partial(AnchoredEnsembleRegressor, n_estimators=20),
    "first 1": with_prior(AnchoredEnsembleRegressor, 1, 1, 3),
    "first 2": with_prior(AnchoredEnsembleRegressor, 2, 2, 3),
    "first 3": with_prior(AnchoredEnsembleRegressor, 3, 3, 3),
    "output 1": with_prior(AnchoredEnsembleRegressor, 3, 0.5, 1),
    "output 6": with_prior(AnchoredEnsembleRegressor, 3, 0.5, 6),
    "(50, 50)": partial(AnchoredEnsembleRegressor, **DEEP),
    "(50, 50), first 1, output 1": with_prior(
        AnchoredEnsembleRegressor, 1, 1, 1, **DEEP
    ),
    "(50, 50), relu": partial(AnchoredEnsembleRegressor, **DEEP | RELU),
}
CLASSIFIERS = {
    "logistic regression": lambda random_state: make_pipeline(
        StandardScaler(),
        LogisticRegressionCV(scoring="neg_log_loss", max_iter=2_000),
    ),
    "five MAP networks": partial(MCDropoutClassifier, n_estimators=5, dropout=0.0),
    "MCDropoutClassifier": MCDropoutClassifier,
    "the default": AnchoredEnsembleClassifier,
    "- weights of rows": partial(AnchoredEnsembleClassifier, noisy_targets=False),
    "output 3": with_prior(AnchoredEnsembleClassifier, 3, 0.5, 3),
    "output 20": with_prior(AnchoredEnsembleClassifier, 3, 0.5, 20),
    "first 1": with_prior(AnchoredEnsembleClassifier, 3, 1, 10),
    "first 2": with_prior(AnchoredEnsembleClassifier, 3, 2, 10),
    "(50, 50)": partial(AnchoredEnsembleClassifier, **DEEP),
}


def of_set(name, make):
    """CRPS, coverage and the three AUROCs."""
    X, y, [rows], _ = load(name, 1)
    rows = np.random.default_rng(7).permutation(rows)[: ROWS + SCORED]
    n_train = min(ROWS, len(rows) * 4 // 5)
    train, scored = rows[:n_train], rows[n_train:]
    model = make(random_state=0).fit(X[train], y[train])

    def unknown(X):
        return model.predict_uncertainty(X, "epistemic")

    here = unknown(X[scored])
    areas = [
        np.mean([ood_auroc(here, unknown(moved)) for moved in tables])
        for _, tables in drifted(X[scored], np.random.default_rng(0))
    ]
    covered = interval_coverage(y[scored], model.predict_interval(X[scored]))
    return crps(model, X[scored], y[scored]).mean(), covered, *areas


def regression():
    """A row for every variant."""
    found = {
        said: np.array([of_set(name, make) for name in SETS])
        for said, make in REGRESSORS.items()
    }
    reference, *_ = found.values()
    rows = []
    for said, of_sets in found.items():
        ratio = np.exp(np.mean(np.log(of_sets[:, 0] / reference[:, 0])))
        _, covered, *areas = of_sets.mean(0)
        worst = f"{of_sets[:, 1].min():.2f} to {of_sets[:, 1].max():.2f}"
        areas = [f"{area:.2f}" for area in areas]
        own = gap(REGRESSORS[said])
        rows.append([said, f"{ratio:.3f}", f"{covered:.2f}", worst, *areas, *own])
    columns = ["crps", "in 90 %", "of the sets", "+ 1 sd", "+ 3 sd", "shuffled"]
    gaps = ["rising: gap / data", "holds", "humped: gap / data", "holds"]
    return table(["", *columns, *gaps], rows)


def tables_of_classes():
    """Name -> X, y."""
    for load_one in (load_iris, load_wine, load_digits, load_breast_cancer):
        X, y = load_one(return_X_y=True)
        yield load_one.__name__.removeprefix("load_"), X[:, X.std(axis=0) > 0], y
    shape = {"n_informative": 4, "flip_y": 0.2, "random_state": 1}
    yield "noisy", *make_classification(400, 10, **shape)
    shape = {"n_informative": 5, "class_sep": 0.7, "flip_y": 0.1, "random_state": 2}
    yield "overlapping", *make_classification(1_500, 20, **shape)


def classification():
    """Log loss, mean of two random cuts."""
    tables = list(tables_of_classes())
    rows = []
    for said, make in CLASSIFIERS.items():
        losses = []
        for _, X, y in tables:
            of_cuts = []
            for seed in (0, 1):
                X_train, X_test, y_train, y_test = train_test_split(
                    X, y, test_size=0.3, stratify=y, random_state=seed
                )
                model = make(random_state=0).fit(X_train, y_train)
                of_cuts.append(log_loss(y_test, model.predict_proba(X_test)))
            losses.append(np.mean(of_cuts))
        rows.append([said, *(f"{loss:.3f}" for loss in losses)])
    return table(["", *(name for name, *_ in tables)], rows)


def main():
    """Print both tables."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    print(f"\n{regression()}\n\n{classification()}")


if __name__ == "__main__":
    main()
