"""Detect fits that collapsed or diverged, from their predictions of training rows.

A fit that predicts its own training rows worse than a constant or a linear model has
diverged or collapsed. In a collapse the KL outweighs the data, the posterior returns to
the prior, and the network predicts little more than a constant. Single ensemble members
with a finite loss but absurd predictions are also detected, since they would spoil the
predictions of the ensemble.
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
from skbayesnn._data.validation import network_columns
from skbayesnn._distributions.components import columns_of
from skbayesnn._engine.posterior import MeanWeightPosterior, Posterior
from skbayesnn._likelihoods import AUTO
from skbayesnn._runtime import warn
from skbayesnn.estimators._defaults import defaults_of
from skbayesnn.estimators._job import TrainedJob, TrainingJob
from skbayesnn.estimators._unequal_noise import unequal_noise

# ---- compare a fit with a constant and a linear model

# Number of rows for the comparison, evenly spread over the table.
_ROWS = 2000
# Number of rows for the spread of the predictions. A spread below this share of y's
# standard deviation (or standard deviation of a probability) counts as constant.
_FEW_ROWS = 200
# Number of rows for the test for unequal noise.
_ROWS_OF_RESIDUALS = 1000
_CONSTANT = 0.05
# Spread or bias of the predictions, in standard deviations of y, that only outliers
# cause.
_WILD = 3.0
# A network may explain less of y's variance or entropy than a linear model, by this
# share. The share of the entropy is larger: a mean over draws is less confident than a
# single linear model, even if both separate the classes equally well.
_MARGIN_OF_VARIANCE = 0.05
_MARGIN_OF_ENTROPY = 0.15
# Least share of y that a linear model must explain for `is_far_behind`.
_MUCH = 0.1
_REASONS_FOR_CONSTANT = (
    "Either the columns carry no information on y, or the prior outweighs the data, as "
    "with few rows. If the prior is too strong, lower length_scale, use narrower "
    "layers, or use BayesianStackingRegressor or BayesianStackingClassifier, which "
    "select the best model."
)


class ExplainedVariance(NamedTuple):
    """Shares of y that models explain in the training rows.

    Parameters
    ----------
    network : float
        Share of the network.
    linear : float
        Share of a linear model; minus infinity if there are too few rows.
    margin : float
        Tolerated difference between the two.
    least : float
        Lowest plausible share of a network. Negative: a network may be worse than a
        constant, for instance if a large noise variance is given.
    """

    network: float
    linear: float
    margin: float
    least: float

    @property
    def lower_bound(self) -> float:
        """Lowest plausible share, in view of the linear model."""
        return self.linear - self.margin

    @property
    def is_far_behind(self) -> bool:
        """Whether a linear model explains more than twice as much."""
        return self.lower_bound > max(_MUCH, 2 * self.network)


def _has_value(intervals: np.ndarray) -> np.ndarray:
    """Whether each row has finite bounds, and is not at a point mass, (rows,).

    intervals : (rows, 3 targets), as in a ``Table``
    """
    low, high, is_point = np.split(intervals, 3, axis=1)
    return (np.isfinite(low) & np.isfinite(high) & (is_point == 0)).all(axis=1)


def warn_if_doubtful(estimator, job: TrainingJob) -> None:
    """Warn if the predictions of some training rows are implausible.

    The predictions are compared with a constant and with a linear model, and their
    spread is computed. At most one warning is given. For instance, after a posterior
    collapse predictions are constant, too, but only the collapse is reported.

    estimator : fitted
    """
    table, row_subset = job.table, job.row_subsets[0]
    rows, weights = row_subset.rows, row_subset.weights
    if table.intervals is not None:
        has_value = _has_value(table.intervals[rows])
        rows, weights = rows[has_value], weights[has_value]
        if not len(rows):
            return
    can_collapse = defaults_of(estimator).can_collapse
    compared = some_rows(np.arange(len(rows)), _ROWS if can_collapse else _FEW_ROWS)
    explained = estimator._explained_share(
        table.X[rows[compared]], table.y[rows[compared]], weights[compared]
    )
    if explained and explained.network < explained.least:
        rate = estimator.learning_rate_init
        text = _DIVERGED.format(explained=explained, rate=rate)
        warn("SKB102", text, ConvergenceWarning)
        return
    # The posterior means of the weights: draws would add their own variation.
    subset = some_rows(rows, _FEW_ROWS)
    subset = subset[ordinary_rows(table.X[subset], table.y[subset])]
    spread, in_words = estimator._prediction_spread(table.X[subset], table.y[subset])
    is_constant, is_wild = spread < _CONSTANT, not spread <= _WILD
    if is_constant or is_wild:
        outliers = _outliers_in(table.X[rows], table.y[rows], job.config.likelihood)
        if outliers and is_constant:
            warn("SKB106", _IS_CONSTANT.format(in_words, outliers), ConvergenceWarning)
        elif outliers:
            text = f"the predictions follow outliers: {in_words}. {outliers}"
            warn("SKB105", text, ConvergenceWarning)
        if outliers:
            return
    if explained and can_collapse and explained.network < explained.lower_bound:
        warn("SKB104", _COLLAPSED.format(explained=explained), ConvergenceWarning)
    elif is_constant:
        text = _IS_CONSTANT.format(in_words, _REASONS_FOR_CONSTANT)
        warn("SKB106", text, ConvergenceWarning)
    elif explained and not can_collapse and explained.is_far_behind:
        # The KL of these networks cannot outweigh the data.
        warn("SKB103", _FAR_BEHIND.format(explained=explained), ConvergenceWarning)
    elif job.config.likelihood.equal_noise:
        _warn_of_unequal_noise(estimator, job)


_COMPARED = (
    "the network explains {explained.network:.0%} of y in its training rows, a linear "
    "model {explained.linear:.0%}. "
)
_DIVERGED = (
    "on the training rows the network is far worse than a constant (it explains a "
    "share of {explained.network:.2g} of y): the training diverged, or was too short, "
    "or the prior outweighs the data. Lower learning_rate_init ({rate:g} here), raise "
    "max_iter, and scale the data (standardize=True)."
)
_FAR_BEHIND = _COMPARED + (
    "The training was too short, its steps were too large, or dropout and prior are "
    "too strong. Raise max_iter, lower learning_rate_init, dropout or length_scale, or "
    "use wider layers."
)
_COLLAPSED = _COMPARED + (
    "The KL to the prior outweighs the data (posterior collapse), or the training was "
    "too short. For a regressor set length_scale='fan_in', which follows the width of "
    "the layers; for a classifier lower length_scale (1 allows confident predictions). "
    "Or raise max_iter, use fewer or narrower hidden layers, or warm up the KL "
    "(kl_warm_up)."
)
_IS_CONSTANT = "the predictions are constant: {}. {}"


def _warn_of_unequal_noise(estimator, job: TrainingJob) -> None:
    """Warn if the noise differs between rows, but the likelihood has one variance.

    The test uses the held-out rows of the selection, which may be few, and then
    training rows.
    """
    test, kind = job.unequal_noise, "held-out"
    if test is not None and estimator.likelihood == AUTO:
        return  # noise that depends on the row did not predict better
    if test is None or not test.matters:
        kind, table = "training", job.table
        rows = some_rows(job.row_subsets[0].rows, _ROWS_OF_RESIDUALS)
        residual, prediction = estimator._residuals(table.X[rows], table.y[rows])
        n_independent = job.data.n_independent(rows, np.ones(len(rows)))
        test = unequal_noise(residual, prediction, table.X[rows], n_independent)
    if not test.matters:
        return
    variable = "the prediction"
    if test.column is not None:
        names = network_columns(estimator)
        name = test.column if names is None else repr(names[test.column])
        variable = f"column {name} of X"
    warn(
        "SKB307",
        f"the noise differs between rows, but the likelihood has one noise for all: "
        f"residuals of {kind} rows are {test.ratio:.1f} times as large where "
        f"{variable} is {test.side} (a third of the rows, compared with another "
        "third). Intervals are too narrow there, and too wide elsewhere. Set "
        "likelihood='heteroscedastic', or 'auto', which selects it on held-out rows if "
        "length_scale and tau are 'auto', too.",
    )


def is_far_off(bias: float) -> bool:
    """Whether the mean of the predictions is far from the mean of y."""
    return bias > _WILD


def _outliers_in(X, y, likelihood) -> str:
    """Advice if outliers dominate the std of a column or of y; otherwise empty.

    X, y : training rows, as in a ``Table``
    likelihood : Likelihood
    """
    advice = outliers_in_columns(X)
    scaled = not likelihood.is_classification and likelihood.standardizes_y
    if scaled and not likelihood.robust and dominated_by_outliers(y).any():
        advice += (
            " Outliers dominate the standard deviation of y, so its other values are "
            "nearly equal after scaling: give likelihood='student_t', clip the "
            "outliers, or transform y (TransformedTargetRegressor)."
        )
    return advice.lstrip()


def outliers_in_columns(X) -> str:
    """As ``_outliers_in``, for X only."""
    if (
        sparse.issparse(X)
        or not (columns := np.flatnonzero(dominated_by_outliers(X))).size
    ):
        return ""
    return (
        f"Outliers dominate the standard deviation of {len(columns)} columns of X, so "
        "their other values are nearly equal after scaling (columns "
        f"{columns[:10].tolist()}): clip the outliers, or put scikit-learn's "
        "QuantileTransformer before the network."
    )


def some_rows(rows: np.ndarray, most: int) -> np.ndarray:
    """At most ``most`` rows, evenly spread."""
    return rows[:: -(-len(rows) // most)]


def explained_variance(
    X, y, weights, prediction, noise=0.0
) -> ExplainedVariance | None:
    """Share of the variance of y explained by a prediction and by least squares.

    Means over targets; None if a target is constant. Least squares fits ``inputs + 1``
    parameters to these rows, so its residual variance is the unbiased estimate. For
    pure noise its share is then 0 with a standard deviation of sqrt(2 inputs) /
    degrees of freedom; the margin contains three standard deviations.

    X : (rows, inputs), array or sparse; y, prediction : (rows, targets)
    noise : given variance of the observation noise, (targets,)
    """
    n_rows, n_free = len(y), len(y) - X.shape[1] - 1

    def residual(values):
        return np.average(np.square(y - values), axis=0, weights=weights)

    spread = residual(np.average(y, axis=0, weights=weights))
    if not spread.all():
        return None
    linear, margin = -np.inf, 0.0
    if n_free >= n_rows / 2:
        # float64, since scikit-learn converts y to the precision of X.
        X = divided(X, power_of_two_scale(X)).astype(np.float64)
        model = LinearRegression().fit(X, y, sample_weight=weights)
        linear_residual = residual(model.predict(X).reshape(y.shape)) * n_rows / n_free
        linear = float(1 - (linear_residual / spread).mean())
        margin = _MARGIN_OF_VARIANCE + 3 * math.sqrt(2 * X.shape[1]) / n_free
    return ExplainedVariance(
        float(1 - (residual(prediction) / spread).mean()),
        linear,
        margin,
        # Twice the residual variance of a constant plus twice the given noise.
        float(-1 - 2 * np.mean(noise / spread)),
    )


def explained_entropy(X, codes, weights, log_probability) -> ExplainedVariance | None:
    """Share of the entropy of y explained by a prediction and by logistic regression.

    None if there is one class only. The log-likelihood of the regression is reduced
    by its number of parameters, as in Akaike's criterion.

    X : (rows, inputs); codes : (rows,), class numbers;
    log_probability : (rows,), of the observed classes
    """
    shares = np.bincount(codes, weights=weights)
    shares = shares[shares > 0] / weights.sum()
    n_rows, n_parameters = len(codes), (X.shape[1] + 1) * (len(shares) - 1)
    if len(shares) < 2:
        return None
    entropy = -(shares * np.log(shares)).sum()
    share = float(1 + np.average(log_probability, weights=weights) / entropy)
    # Equal probabilities are no divergence, even if a constant explains more.
    least = float(-np.log(len(shares)) / entropy)
    if n_parameters > n_rows / 2:
        return ExplainedVariance(share, -np.inf, 0.0, least)
    X = divided(X, power_of_two_scale(X))
    with warnings.catch_warnings():
        # With outliers in X, a probability may be 0 and its logarithm infinite.
        for category in (ConvergenceWarning, RuntimeWarning):
            warnings.simplefilter("ignore", category)
        model = LogisticRegression().fit(X, codes, sample_weight=weights)
        linear_log_probability = model.predict_log_proba(X)
    column = columns_of(codes, model.classes_)
    linear_log_probability = linear_log_probability[np.arange(n_rows), column]
    linear = np.average(linear_log_probability, weights=weights)
    linear = linear - n_parameters / n_rows
    return ExplainedVariance(
        share, float(1 + linear / entropy), _MARGIN_OF_ENTROPY, least
    )


# ---- members with absurd predictions

# Mean squared residual in units of the variance of y and a given noise: ten standard
# deviations. Draws from a prior reach eight with few rows.
_ABSURD_RESIDUAL = 100.0
# Mean of -log2 of the probability of the observed class. Draws from a prior reach some
# tens.
_ABSURD_HALVINGS = 100.0


def without_diverged(trained_job: TrainedJob) -> TrainedJob:
    """Mark networks with absurd predictions as failed in their last epoch.

    A single network is kept, and so are all networks if all are absurd: `fit` warns of
    their predictions instead.
    """
    trained = trained_job.trained
    alive = np.flatnonzero(trained.failed == 0)
    if len(alive) < 2:
        return trained_job
    with np.errstate(over="ignore", invalid="ignore"):
        absurd = alive[_absurd(trained_job, alive)]
    if len(absurd) in (0, len(alive)):
        return trained_job
    failed = trained.failed.copy()
    failed[absurd] = trained.n_epochs[absurd]
    return replace(trained_job, trained=replace(trained, failed=failed))


def _absurd(trained_job: TrainedJob, alive: np.ndarray) -> np.ndarray:
    """Whether networks with mean weights fail on some training rows, (networks,)."""
    job = trained_job.job
    row_subset = job.row_subsets[0]
    table, scaling = job.table, row_subset.scaling
    chosen = some_rows(np.arange(len(row_subset.rows)), _FEW_ROWS)
    rows = row_subset.rows[chosen]
    ordinary = ordinary_rows(table.X[rows], table.y[rows])
    if not ordinary.any():
        return np.zeros(len(alive), dtype=bool)
    rows, weights = rows[ordinary], row_subset.weights[chosen][ordinary]
    X, y = table.X[rows], table.y[rows]
    components = _mean_weight_components(
        trained_job.trained.posterior.select(alive),
        scaling.x_to_network(X.toarray() if sparse.issparse(X) else X),
    )
    if job.config.likelihood.is_classification:
        probability = np.nan_to_num(components.probability[:, np.arange(len(y)), y])
        halvings = -np.log2(probability.clip(np.finfo(probability.dtype).tiny))
        mean = np.average(halvings, axis=1, weights=weights)
        best_quarter = np.quantile(mean, 0.25, method="lower")
        return mean > _ABSURD_HALVINGS * max(best_quarter, 1.0)
    y = scaling.y_to_network(y)
    squares = np.square(y - np.average(y, axis=0, weights=weights))
    # In the network's scale y has variance 1, but a subset may have less.
    usual = np.maximum(np.average(squares, axis=0, weights=weights), 1.0)
    if job.tau is not None and not job.config.likelihood.tempered:
        usual = usual + 1 / scaling.tau_to_network(job.tau)
    squares = np.square(components.mean - y)
    residual = np.average(squares, axis=1, weights=weights)
    residual = np.where(np.isnan(residual), np.inf, residual)
    # If a wide prior dominates, all networks have large residuals.
    best_quarter = np.quantile(residual, 0.25, axis=0, method="lower")
    usual = np.maximum(usual, best_quarter)
    return np.any(residual > _ABSURD_RESIDUAL * usual, axis=1)


def _mean_weight_components(posterior: Posterior, inputs: np.ndarray):
    """Predictions with the mean weights, (networks, rows, ...).

    inputs : standardised, (rows, inputs)
    """
    posterior = MeanWeightPosterior.of(posterior)
    x = torch.as_tensor(inputs).to(posterior.device, posterior.dtype).unsqueeze(0)
    with torch.no_grad():
        outputs = posterior.outputs(x, range(1))
        return posterior.predictive_components(outputs, torch.float64)
