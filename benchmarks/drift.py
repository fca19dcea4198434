"""Do predictions notice that rows have drifted away from the training rows?

The area under the ROC curve (AUROC) of the epistemic standard deviation for telling
test rows from the same rows with one column moved by one or three of its standard
deviations (mean over columns), and with every column shuffled by itself. 0.5 is chance;
what columns that are independent allow is 0.5, too, when they are shuffled. First
canonical split of five UCI sets, at most 2,000 training rows. The Gaussian process has
a length scale per column, and a std that only grows with the distance to the rows.

    python benchmarks/drift.py
"""

import warnings

import numpy as np
from common import command_line, environment, table
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from uci import load

from skbayesnn import BayesianStackingRegressor, MCDropoutRegressor
from skbayesnn.metrics import ood_auroc

SETS = ("concrete", "energy", "power-plant", "protein-tertiary-structure", "kin8nm")
MOST_ROWS, MOST_TEST_ROWS = 2_000, 500


class Process:
    """A Gaussian process whose epistemic std is that without the noise."""

    def fit(self, X, y):
        kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        self.pipeline = make_pipeline(StandardScaler(), process)
        self.pipeline.fit(X, y)
        return self

    def predict_uncertainty(self, X, kind):
        return self.pipeline.predict(X, return_std=True)[1]


MODELS = {
    "BayesianStackingRegressor": lambda: BayesianStackingRegressor(random_state=0),
    "the same, n_refits=5": lambda: BayesianStackingRegressor(
        n_refits=5, random_state=0
    ),
    "MCDropoutRegressor": lambda: MCDropoutRegressor(random_state=0),
    "the same, n_estimators=5, dropout=0": lambda: MCDropoutRegressor(
        n_estimators=5, dropout=0.0, random_state=0
    ),
    "Gaussian process": Process,
}


def drifted(X, random):
    """Kind of drift -> tables that have it."""
    moved = X.std(axis=0) * np.eye(X.shape[1])
    moved = moved[X.std(axis=0) > 0]
    yield "one column + 1 sd", [X + step for step in moved]
    yield "+ 3 sd", [X + 3 * step for step in moved]
    yield "shuffled", [np.column_stack([random.permutation(c) for c in X.T])]


def main():
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--sets", type=lambda text: text.split(","), default=SETS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    found = {}
    for name in options.sets:
        X, y, [train], [test] = load(name, 1)
        train, test = train[:MOST_ROWS], test[:MOST_TEST_ROWS]
        for said, make in MODELS.items():
            model = make().fit(X[train], y[train])
            here = model.predict_uncertainty(X[test], "epistemic")
            for kind, tables in drifted(X[test], np.random.default_rng(0)):
                areas = [
                    ood_auroc(here, model.predict_uncertainty(moved, "epistemic"))
                    for moved in tables
                ]
                found[name, said, kind] = np.mean(areas)
    kinds = [kind for kind, _ in drifted(np.eye(2), np.random.default_rng(0))]
    rows = []
    for said in MODELS:
        for kind in kinds:
            of_sets = [found[name, said, kind] for name in options.sets]
            values = [f"{value:.2f}" for value in (*of_sets, np.mean(of_sets))]
            rows.append([said, kind, *values])
    print(table(["", "drift", *options.sets, "mean"], rows))


if __name__ == "__main__":
    main()
