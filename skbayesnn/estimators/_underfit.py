"""Is the fit worse than a linear model's on its own training rows? Then it collapsed.

Where the KL outweighs the data, the posterior falls back on the prior and the network
predicts little more than a constant. On the training rows that cannot be overlooked:
there even a straight line does better.
"""

import math
import warnings
from typing import NamedTuple

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression

from skbayesnn._data.outliers import swamped
from skbayesnn._warnings import warn

# Rows that are looked at, evenly spread over the table.
_ROWS = 2000
# Rows that tell whether predictions differ at all, and the share of y's standard
# deviation by which they must, or the standard deviation of a probability.
FEW_ROWS = 200
_CONSTANT = 0.05
# Nor do they differ by so many times what y does, but for outliers.
_WILD = 3.0
# Share of y's variance, or of its entropy, by which a network may fall behind: a mean
# over draws is less sure of a class than one line, however well it tells them apart.
_MARGIN_OF_VARIANCE = 0.05
_MARGIN_OF_ENTROPY = 0.15


class Explained(NamedTuple):
    """Shares of y that the two models explain, and by how much they may differ."""

    network: float
    linear: float
    margin: float


def warn_if_collapsed(explained: Explained) -> bool:
    """Where a linear model is better by more than the margin; whether it is."""
    collapsed = explained.network < explained.linear - explained.margin
    if collapsed:
        warn(
            f"the network explains {explained.network:.0%} of y in its training rows, "
            f"a linear model {explained.linear:.0%}: the KL to the prior outweighs the "
            "data (posterior collapse), or the training was too short. Set a "
            "regressor's length_scale to 'fan_in', which follows the width of the "
            "layers, lower a classifier's (1 lets it be sure), raise max_iter, take "
            "fewer or narrower hidden layers, or let the KL come in later "
            "(kl_warm_up).",
            ConvergenceWarning,
        )
    return collapsed


def is_usual(spread: float) -> bool:
    """Whether predictions differ about as much as y does, or classes may."""
    return _CONSTANT <= spread <= _WILD


def warn_of_spread(spread: float, in_words: str, outliers: str) -> None:
    """Where predictions of the training rows hardly differ, or follow outliers.

    spread, in_words : what is not usual
    outliers : what ``outliers_in`` has found
    """
    if spread < _CONSTANT:
        reason = outliers or (
            "Either the columns say nothing of y, or the prior outweighs the data, as "
            "it does with few rows: then lower length_scale, take narrower layers, or "
            "the stack (BayesianStackingRegressor, BayesianStackingClassifier), which "
            "chooses."
        )
        warn(f"the predictions are constant: {in_words}. {reason}", ConvergenceWarning)
    elif outliers:
        warn(
            f"the predictions follow outliers: {in_words}. {outliers}",
            ConvergenceWarning,
        )


def outliers_in(X, y, likelihood) -> str:
    """What lies so far off that the other rows are alike to a network; may be none.

    X, y : as of a ``Table``, the training rows
    likelihood : class of ``Likelihood``
    """
    found = ""
    if not sparse.issparse(X) and (of_x := np.flatnonzero(swamped(X))).size:
        found += (
            f"Outliers press the other values of {len(of_x)} columns of X flat "
            f"(numbers {of_x[:10].tolist()}): clip them, or put scikit-learn's "
            "QuantileTransformer in front. "
        )
    scaled = not likelihood.of_classes and likelihood.standardizes_y
    if scaled and not likelihood.robust and swamped(y).any():
        found += (
            "Outliers of y press its other values flat: give likelihood='student_t', "
            "clip them, or transform y (TransformedTargetRegressor). "
        )
    return found.rstrip()


def some_rows(rows: np.ndarray, most: int = _ROWS) -> np.ndarray:
    """At most so many of them that the comparison costs little."""
    return rows[:: -(-len(rows) // most)]


def explained_variance(X, y, weights, prediction) -> Explained | None:
    """Of a prediction and of least squares, means over targets; None for few rows.

    The residual variance of least squares is the unbiased one: it has
    ``inputs + 1`` parameters that the prediction did not get to see. What it explains
    of pure noise is then zero with a standard deviation of sqrt(2 inputs) / rows
    left; three of them are in the margin.

    X : (rows, inputs), array or sparse; y, prediction : (rows, targets)
    """
    n_rows, n_free = len(y), len(y) - X.shape[1] - 1
    if n_free < n_rows / 2:
        return None
    line = LinearRegression().fit(X, y, sample_weight=weights)

    def residual(values):
        return np.average(np.square(y - values), axis=0, weights=weights)

    spread = residual(np.average(y, axis=0, weights=weights))
    if not spread.all():
        return None
    of_line = residual(line.predict(X).reshape(y.shape)) * n_rows / n_free
    return Explained(
        float(1 - (residual(prediction) / spread).mean()),
        float(1 - (of_line / spread).mean()),
        _MARGIN_OF_VARIANCE + 3 * math.sqrt(2 * X.shape[1]) / n_free,
    )


def explained_entropy(X, codes, weights, log_probability) -> Explained | None:
    """Of a prediction and of logistic regression; None for few rows.

    The latter's log-likelihood is reduced by its number of parameters, as in
    Akaike's criterion.

    X : (rows, inputs); codes : (rows,), class numbers;
    log_probability : (rows,), of the rows' own classes
    """
    shares = np.bincount(codes, weights=weights)
    shares = shares[shares > 0] / weights.sum()
    n_rows, n_parameters = len(codes), (X.shape[1] + 1) * (len(shares) - 1)
    if n_parameters > n_rows / 2 or len(shares) < 2:
        return None
    entropy = -(shares * np.log(shares)).sum()
    with warnings.catch_warnings():
        # Of columns with outliers it may be sure of a wrong class: log 0.
        for category in (ConvergenceWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        line = LogisticRegression().fit(X, codes, sample_weight=weights)
        log_probability_of_line = line.predict_log_proba(X)
    column = np.searchsorted(line.classes_, codes)
    of_line = log_probability_of_line[np.arange(n_rows), column]
    network, linear = (
        np.average(values, weights=weights) for values in (log_probability, of_line)
    )
    return Explained(
        float(1 + network / entropy),
        float(1 + (linear - n_parameters / n_rows) / entropy),
        _MARGIN_OF_ENTROPY,
    )
