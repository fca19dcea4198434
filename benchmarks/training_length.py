"""How long should classifiers train? On training rows of the tables of ``study.py``.

Printed is the log loss on rows kept apart, with ``max_iter`` for so many steps times
sqrt(N) and no row held out, as the constructor has it, and of logistic regression.

    python benchmarks/training_length.py
"""

import warnings

import numpy as np
from common import command_line, environment, table
from sklearn.base import clone
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from study import CLASSES

from skbayesnn import (
    BBBClassifier,
    MCDropoutClassifier,
    VariationalDropoutClassifier,
    _validation,
)

STEPS_PER_ROOT = (100, 40, 20, 10)
KINDS = {
    "MC dropout": MCDropoutClassifier(random_state=0),
    "MC dropout, rates learned": MCDropoutClassifier(dropout="auto", random_state=0),
    "Bayes by Backprop": BBBClassifier(random_state=0),
    "variational dropout": VariationalDropoutClassifier(random_state=0),
}


def main():
    """Print the table."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    rows = []
    for name, load in CLASSES.items():
        X, y, X_test, y_test = load()
        line = make_pipeline(StandardScaler(), LogisticRegressionCV(max_iter=2000))
        probability = line.fit(X, y).predict_proba(X_test)
        own = probability[np.arange(len(y_test)), y_test]
        logistic = f"{-np.log(own.clip(1e-12)).mean():.3f}"
        n_batches = -(-len(y) // _validation.batch_rows("auto", len(y)))
        for kind, network in KINDS.items():
            networks = [clone(network)]
            for per_root in STEPS_PER_ROOT:
                n_epochs = _validation.epochs("auto", len(y), n_batches, per_root)
                other = clone(network).set_params(max_iter=n_epochs)
                networks.insert(-1, other.set_params(early_stopping=False))
            losses = [
                f"{-one.fit(X, y).log_predictive_density(X_test, y_test).mean():.3f}"
                for one in networks
            ]
            rows.append([name, len(y), kind, *losses, logistic])
    steps = [f"{n} sqrt(N)" for n in STEPS_PER_ROOT]
    print(table(["table", "N", "posterior", *steps, "default", "logistic"], rows))


if __name__ == "__main__":
    main()
