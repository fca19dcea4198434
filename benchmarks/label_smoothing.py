"""Do smoothed labels help classifiers, single ones and corrected by a temperature?

Every row has its label with weight 1 - s and every label with s / classes [Szegedy et
al. 2016, "Rethinking the inception architecture", arXiv 1512.00567, section 7]: weights
of rows say so exactly. Log loss as a ratio to that without, on tables cut from training
rows as in study.py; "tempered" is after the temperature that is best for half of the
scored rows, on the other half, of both.

    python benchmarks/label_smoothing.py
"""

import warnings

import numpy as np
from common import command_line, environment, table
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import gmean
from study import CLASSES

from skbayesnn import MCDropoutClassifier

SHARES, RATES = (0.02, 0.1), (0.05, 0.2)


def smoothed(X, y, share):
    """Rows, labels and weights: of one row as many as there are classes."""
    classes = np.unique(y)
    labels = np.repeat(classes, len(y))
    own = labels == np.tile(y, len(classes))
    weights = share / len(classes) + (1 - share) * own
    return np.tile(X, (len(classes), 1)), labels, weights


def log_losses(X, y, X_test, y_test, dropout, share):
    """Of all scored rows, and of half of them at the best temperature of the others."""
    steps = max(40 * np.sqrt(len(y)), 750)
    if share:
        X, y, weights = smoothed(X, y, share)
        batch = 128 * len(np.unique(y))
    else:
        weights, batch = None, 128
    model = MCDropoutClassifier(
        (32, 32),
        length_scale=1.0,
        dropout=dropout,
        batch_size=min(batch, len(y)),
        max_iter=round(steps / -(-len(y) // batch)),
        random_state=0,
    ).fit(X, y, sample_weight=weights)
    logits = np.log(np.maximum(model.predict_proba(X_test), 1e-12))
    code = np.searchsorted(model.classes_, y_test)
    half = np.arange(len(code)) % 2 == 0

    def loss(log_power, rows):
        z = np.exp(log_power) * logits[rows]
        return np.mean(logsumexp(z, axis=1) - z[np.arange(len(z)), code[rows]])

    best = minimize_scalar(loss, bounds=(-2, 2), method="bounded", args=(half,)).x
    return loss(0.0, slice(None)), loss(best, ~half)


def main():
    """Print the table."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    rows = []
    for dropout in RATES:
        found = {
            share: np.array(
                [log_losses(*load(), dropout, share) for load in CLASSES.values()]
            )
            for share in (0.0, *SHARES)
        }
        for share in SHARES:
            ratios = found[share] / found[0.0]
            for said, values in zip(("", ", tempered"), ratios.T, strict=True):
                cells = (f"{value:.3f}" for value in (gmean(values), *values))
                rows.append([f"{share} at dropout {dropout}{said}", *cells])
    print(table(["", "mean", *CLASSES], rows))


if __name__ == "__main__":
    main()
