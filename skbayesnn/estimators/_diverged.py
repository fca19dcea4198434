"""Trained networks -> those among them that are finite, and absurd.

Their loss is a number, but what they say of the training rows is so far off that a
mixture with the others would be spoilt.
"""

from dataclasses import replace

import numpy as np
import torch
from scipy import sparse

from skbayesnn._data.outliers import ordinary_rows
from skbayesnn._inference.mean_noise import MeanWeights
from skbayesnn.estimators._program import Fitted
from skbayesnn.estimators._underfit import FEW_ROWS, some_rows

# Residuals of ten standard deviations, of y and a given noise; draws from a prior that
# few rows outweigh reach eight. Of classes, what so many halvings of a probability say,
# on average; draws from a prior reach some tens.
_ABSURD_RESIDUAL = 100.0
_ABSURD_HALVINGS = 100.0


def without_diverged(fitted: Fitted) -> Fitted:
    """Networks that are absurd while others are not failed in their last epoch.

    Those that are alone, or all absurd, stay: `fit` warns of what they predict.
    """
    trained = fitted.trained
    alive = np.flatnonzero(trained.failed == 0)
    if len(alive) < 2:
        return fitted
    with np.errstate(over="ignore", invalid="ignore"):
        absurd = alive[_absurd(fitted, alive)]
    if len(absurd) in (0, len(alive)):
        return fitted
    failed = trained.failed.copy()
    failed[absurd] = trained.n_epochs[absurd]
    return replace(fitted, trained=replace(trained, failed=failed))


def _absurd(fitted: Fitted, alive: np.ndarray) -> np.ndarray:
    """Of some networks' mean weights on some training rows, (networks,), bool."""
    task, share = fitted.task, fitted.task.shares[0]
    table, scaling = task.table, share.scaling
    chosen = some_rows(np.arange(len(share.rows)), FEW_ROWS)
    rows = share.rows[chosen]
    ordinary = ordinary_rows(table.X[rows], table.y[rows])
    if not ordinary.any():
        return np.zeros(len(alive), dtype=bool)
    rows, weights = rows[ordinary], share.weights[chosen][ordinary]
    X, y = table.X[rows], table.y[rows]
    components = _of_mean_weights(
        fitted, alive, scaling.x_to_network(X.toarray() if sparse.issparse(X) else X)
    )
    if task.plan.likelihood.of_classes:
        own = np.nan_to_num(components.probability[:, np.arange(len(y)), y])
        halvings = -np.log2(own.clip(np.finfo(own.dtype).tiny))
        mean = np.average(halvings, axis=1, weights=weights)
        others = np.quantile(mean, 0.25, method="lower")
        return mean > _ABSURD_HALVINGS * max(others, 1.0)
    y = scaling.y_to_network(y)
    about_mean = np.square(y - np.average(y, axis=0, weights=weights))
    # In the network's scale y has a variance of 1, that of rows may be less by chance.
    usual = np.maximum(np.average(about_mean, axis=0, weights=weights), 1.0)
    if task.tau is not None and not task.plan.likelihood.tempered:
        usual = usual + 1 / scaling.tau_to_network(task.tau)
    squares = np.square(components.mean - y)
    residual = np.average(squares, axis=1, weights=weights)
    residual = np.where(np.isnan(residual), np.inf, residual)
    # Where the prior is wide and says it all, the others are far off, too.
    others = np.quantile(residual, 0.25, axis=0, method="lower")
    usual = np.maximum(usual, others)
    return np.any(residual > _ABSURD_RESIDUAL * usual, axis=1)


def _of_mean_weights(fitted: Fitted, networks: np.ndarray, inputs: np.ndarray):
    """What their likelihood makes of standardised inputs, (networks, rows, ...)."""
    posterior = MeanWeights.of(fitted.trained.posterior.select(networks))
    x = torch.as_tensor(inputs).to(posterior.device, posterior.dtype).unsqueeze(0)
    with torch.no_grad():
        values = posterior.components(posterior.outputs(x, range(1)))
    arrays = (value.flatten(0, 1).double().cpu().numpy() for value in values)
    return posterior.likelihood.components_class(*arrays)
