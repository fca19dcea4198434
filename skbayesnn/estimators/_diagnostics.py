"""Detect fits that collapsed or diverged, from their predictions of training rows.

A fit that predicts its own training rows worse than a constant or a linear model has
diverged, or it has collapsed: where the KL outweighs the data, the posterior returns to
the prior and the network predicts little more than a constant. Single members of an
ensemble whose loss is finite but whose predictions are far off would spoil the mixture
with the others; they are detected, too.
"""

import math
import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression

from skbayesnn._data.scaling import (
    divided,
    dominated_by_outliers,
    ordinary_rows,
    power_of_two_scale,
)
from skbayesnn._distributions.components import columns_of
from skbayesnn._engine.posterior import MeanWeightPosterior
from skbayesnn._runtime import warn
from skbayesnn.estimators._job import TrainingJob

# ---- compare a fit with a constant and a linear model

# Rows that are looked at, evenly spread over the table.
ROWS = 2000
# Rows that tell whether predictions differ at all, and the share of y's standard
# deviation by which they must, or the standard deviation of a probability.
FEW_ROWS = 200
_CONSTANT = 0.05
# Nor do they differ, or are off on average, by so many times what y does, but for
# outliers.
_WILD = 3.0
# Share of y's variance, or of its entropy, by which a network may fall behind: a mean
# over draws is less sure of a class than one line, however well it tells them apart.
_MARGIN_OF_VARIANCE = 0.05
_MARGIN_OF_ENTROPY = 0.15
# Share that a linear model explains at least, for networks to be far behind it.
_MUCH = 0.1


class ExplainedVariance(NamedTuple):
    """Shares of y that models explain in its training rows.

    Parameters
    ----------
    network : float
    linear : float
        Of a linear model; minus infinity where there are too few rows for one.
    margin : float
        By which a network may fall behind.
    least : float
        That a network may be worse than a constant, for noise that it was told of.
    """

    network: float
    linear: float
    margin: float
    least: float


def warn_if_diverged(explained: ExplainedVariance, learning_rate: float) -> bool:
    """Where a constant is far better; whether it is."""
    diverged = explained.network < explained.least
    if diverged:
        warn(
            "in its training rows the network is far worse than a constant (it "
            f"explains a share of {explained.network:.2g} of y): the training has "
            "diverged, or was too short, or the prior outweighs the rows. Lower "
            f"learning_rate_init ({learning_rate:g} here), raise max_iter, and scale "
            "the data (standardize=True).",
            ConvergenceWarning,
        )
    return diverged


def warn_if_far_behind(explained: ExplainedVariance) -> bool:
    """Where a linear model explains more than twice as much; whether it does.

    For networks whose KL cannot outweigh the data.
    """
    certain = explained.linear - explained.margin
    behind = certain > _MUCH and explained.network < certain / 2
    if behind:
        warn(
            f"the network explains {explained.network:.0%} of y in its training rows, "
            f"a linear model {explained.linear:.0%}: the training was too short or its "
            "steps too large, or dropout and prior leave little of the data. Raise "
            "max_iter, lower learning_rate_init, dropout or length_scale, or take "
            "wider layers.",
            ConvergenceWarning,
        )
    return behind


def warn_if_collapsed(explained: ExplainedVariance) -> bool:
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


def is_constant(spread: float) -> bool:
    """Whether predictions hardly differ."""
    return spread < _CONSTANT


def has_usual_spread(spread: float) -> bool:
    """Whether predictions differ about as much as y does, or classes may."""
    return _CONSTANT <= spread <= _WILD


def is_far_off(bias: float) -> bool:
    """Whether predictions are so far from y on average, whatever they differ by."""
    return bias > _WILD


def warn_of_spread(spread: float, in_words: str, outliers: str) -> None:
    """Where predictions of the training rows hardly differ, or follow outliers.

    spread, in_words : what is not usual
    outliers : what ``outliers_in`` has found
    """
    if is_constant(spread):
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
    found = outliers_in_columns(X)
    scaled = not likelihood.of_classes and likelihood.standardizes_y
    if scaled and not likelihood.robust and dominated_by_outliers(y).any():
        found += (
            " Outliers of y press its other values flat: give likelihood='student_t', "
            "clip them, or transform y (TransformedTargetRegressor)."
        )
    return found.lstrip()


def outliers_in_columns(X) -> str:
    """As ``outliers_in``, of X alone."""
    if (
        sparse.issparse(X)
        or not (columns := np.flatnonzero(dominated_by_outliers(X))).size
    ):
        return ""
    return (
        f"Outliers press the other values of {len(columns)} columns of X flat (numbers "
        f"{columns[:10].tolist()}): clip them, or put scikit-learn's "
        "QuantileTransformer in front."
    )


def some_rows(rows: np.ndarray, most: int = ROWS) -> np.ndarray:
    """At most so many of them that the comparison costs little."""
    return rows[:: -(-len(rows) // most)]


def explained_variance(
    X, y, weights, prediction, noise=0.0
) -> ExplainedVariance | None:
    """Of a prediction and of least squares, means over targets; None of constants.

    The residual variance of least squares is the unbiased one: it has
    ``inputs + 1`` parameters that the prediction did not get to see. What it explains
    of pure noise is then zero with a standard deviation of sqrt(2 inputs) / rows
    left; three of them are in the margin.

    X : (rows, inputs), array or sparse; y, prediction : (rows, targets)
    noise : variance of the noise where it is given, (targets,)
    """
    n_rows, n_free = len(y), len(y) - X.shape[1] - 1

    def residual(values):
        return np.average(np.square(y - values), axis=0, weights=weights)

    spread = residual(np.average(y, axis=0, weights=weights))
    if not spread.all():
        return None
    linear, margin = -np.inf, 0.0
    if n_free >= n_rows / 2:
        # scikit-learn takes y in the precision of X, which may not resolve it.
        X = divided(X, power_of_two_scale(X)).astype(np.float64)
        line = LinearRegression().fit(X, y, sample_weight=weights)
        of_line = residual(line.predict(X).reshape(y.shape)) * n_rows / n_free
        linear = float(1 - (of_line / spread).mean())
        margin = _MARGIN_OF_VARIANCE + 3 * math.sqrt(2 * X.shape[1]) / n_free
    return ExplainedVariance(
        float(1 - (residual(prediction) / spread).mean()),
        linear,
        margin,
        # Twice the residuals of a constant, and of what it was told is noise.
        float(-1 - 2 * np.mean(noise / spread)),
    )


def explained_entropy(X, codes, weights, log_probability) -> ExplainedVariance | None:
    """Of a prediction and of logistic regression; None of a single class.

    The latter's log-likelihood is reduced by its number of parameters, as in
    Akaike's criterion.

    X : (rows, inputs); codes : (rows,), class numbers;
    log_probability : (rows,), of the rows' own classes
    """
    shares = np.bincount(codes, weights=weights)
    shares = shares[shares > 0] / weights.sum()
    n_rows, n_parameters = len(codes), (X.shape[1] + 1) * (len(shares) - 1)
    if len(shares) < 2:
        return None
    entropy = -(shares * np.log(shares)).sum()
    share = float(1 + np.average(log_probability, weights=weights) / entropy)
    # To know nothing is no divergence, though a constant may be surer.
    least = float(-np.log(len(shares)) / entropy)
    if n_parameters > n_rows / 2:
        return ExplainedVariance(share, -np.inf, 0.0, least)
    X = divided(X, power_of_two_scale(X))
    with warnings.catch_warnings():
        # Of columns with outliers it may be sure of a wrong class: log 0.
        for category in (ConvergenceWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        line = LogisticRegression().fit(X, codes, sample_weight=weights)
        log_probability_of_line = line.predict_log_proba(X)
    column = columns_of(codes, line.classes_)
    of_line = log_probability_of_line[np.arange(n_rows), column]
    linear = np.average(of_line, weights=weights) - n_parameters / n_rows
    return ExplainedVariance(
        share, float(1 + linear / entropy), _MARGIN_OF_ENTROPY, least
    )


# ---- members with absurd predictions

# Residuals of ten standard deviations, of y and a given noise; draws from a prior that
# few rows outweigh reach eight. Of classes, what so many halvings of a probability say,
# on average; draws from a prior reach some tens.
_ABSURD_RESIDUAL = 100.0
_ABSURD_HALVINGS = 100.0


def without_diverged(job: TrainingJob) -> TrainingJob:
    """Networks that are absurd while others are not failed in their last epoch.

    Those that are alone, or all absurd, stay: `fit` warns of what they predict.
    """
    trained = job.trained
    alive = np.flatnonzero(trained.failed == 0)
    if len(alive) < 2:
        return job
    with np.errstate(over="ignore", invalid="ignore"):
        absurd = alive[_absurd(job, alive)]
    if len(absurd) in (0, len(alive)):
        return job
    failed = trained.failed.copy()
    failed[absurd] = trained.n_epochs[absurd]
    return replace(job, trained=replace(trained, failed=failed))


def _absurd(job: TrainingJob, alive: np.ndarray) -> np.ndarray:
    """Of some networks' mean weights on some training rows, (networks,), bool."""
    share = job.shares[0]
    table, scaling = job.table, share.scaling
    chosen = some_rows(np.arange(len(share.rows)), FEW_ROWS)
    rows = share.rows[chosen]
    ordinary = ordinary_rows(table.X[rows], table.y[rows])
    if not ordinary.any():
        return np.zeros(len(alive), dtype=bool)
    rows, weights = rows[ordinary], share.weights[chosen][ordinary]
    X, y = table.X[rows], table.y[rows]
    components = _of_mean_weights(
        job, alive, scaling.x_to_network(X.toarray() if sparse.issparse(X) else X)
    )
    if job.config.likelihood.of_classes:
        own = np.nan_to_num(components.probability[:, np.arange(len(y)), y])
        halvings = -np.log2(own.clip(np.finfo(own.dtype).tiny))
        mean = np.average(halvings, axis=1, weights=weights)
        others = np.quantile(mean, 0.25, method="lower")
        return mean > _ABSURD_HALVINGS * max(others, 1.0)
    y = scaling.y_to_network(y)
    about_mean = np.square(y - np.average(y, axis=0, weights=weights))
    # In the network's scale y has a variance of 1, that of rows may be less by chance.
    usual = np.maximum(np.average(about_mean, axis=0, weights=weights), 1.0)
    if job.tau is not None and not job.config.likelihood.tempered:
        usual = usual + 1 / scaling.tau_to_network(job.tau)
    squares = np.square(components.mean - y)
    residual = np.average(squares, axis=1, weights=weights)
    residual = np.where(np.isnan(residual), np.inf, residual)
    # Where the prior is wide and says it all, the others are far off, too.
    others = np.quantile(residual, 0.25, axis=0, method="lower")
    usual = np.maximum(usual, others)
    return np.any(residual > _ABSURD_RESIDUAL * usual, axis=1)


def _of_mean_weights(job: TrainingJob, networks: np.ndarray, inputs: np.ndarray):
    """What their likelihood makes of standardised inputs, (networks, rows, ...)."""
    posterior = MeanWeightPosterior.of(job.trained.posterior.select(networks))
    x = torch.as_tensor(inputs).to(posterior.device, posterior.dtype).unsqueeze(0)
    with torch.no_grad():
        values = posterior.components(posterior.outputs(x, range(1)))
    arrays = (value.flatten(0, 1).double().cpu().numpy() for value in values)
    return posterior.likelihood.components_class(*arrays)
