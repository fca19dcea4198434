"""Scale of the embedding and of the kernel of trained networks, by held-out rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from skbayesnn._distributions.map_factor import PRIOR_STD, least_density, log_mean_exp
from skbayesnn._runtime import snapshot
from skbayesnn.estimators._neighbour_search import Cache, Draw

# Most draws of each network.
CALIBRATION_DRAWS = 2
# Range of the factors on embedding and kernel, and of log densities below most rows.
FACTORS, OUTLIER = (0.3, 3.0), 10.0
# Precision of the log of a factor.
LOG_PRECISION = 0.02


@dataclass(frozen=True)
class Calibration:
    """Held-out rows, which scale the embedding and the kernel of trained networks.

    In training, the neighbours are a subset of the rows, and the embedding adapts to
    their y. So the best scale of the distances is another one in predictions.

    Parameters
    ----------
    model : NeighbourModel
        With the other rows as its training rows.
    rows : Rows
        Its training rows, for the compiled loop.
    features, y, labels, weights : ndarray
        Held-out rows; y or labels are empty.
    """

    model: Any
    rows: Any
    features: np.ndarray
    y: np.ndarray
    labels: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, model, trainer, held_out) -> "Calibration | None":
        """Calibration by the held-out rows of a model; None if there are none."""
        if not held_out.any():
            return None
        part = snapshot(model)
        part.n_draws, part._cache = min(model.n_draws, CALIBRATION_DRAWS), Cache()
        for name in ("X_train_", "y_train_", "weights_train_"):
            setattr(part, name, getattr(model, name)[~held_out])
        features = model._encoded(model.X_train_[held_out])
        y, labels = trainer.targets(model.y_train_[held_out])
        weights = model.weights_train_[held_out]
        return cls(part, trainer.rows, features, y, labels, weights)

    def calibrated(self, parameters, seeds) -> dict[str, np.ndarray]:
        """Scale the embedding, and then the kernel of a regression."""
        queries = self._queries(parameters, seeds)
        kernel, least = parameters["kernel"], self.model._least_kernel
        factor = self._best(
            lambda log: self._density(scaled(queries, np.exp(log)), kernel)
        )
        parameters = dict(parameters)
        for name in ("w3", "linear"):
            values = parameters[name]
            parameters[name] = values * values.dtype.type(factor)
        if least is None:
            return parameters
        queries = scaled(queries, factor)

        def widened(log_factor):
            shift = np.full(len(least), log_factor)
            shift[-1] = 0.0
            return np.maximum(kernel + shift, least).astype(kernel.dtype)

        factor = self._best(lambda log: self._density(queries, widened(log)))
        return parameters | {"kernel": widened(np.log(factor))}

    def _best(self, density) -> float:
        """Factor with the highest posterior density, given the held-out rows.

        The log factor has a normal prior. Densities are bounded below, so that outliers
        do not decide.

        density : log density of the rows as a function of the log factor
        """
        bound = least_density(density(0.0), self.weights, OUTLIER)

        def loss(log_factor):
            values = np.maximum(density(log_factor), bound)
            return 0.5 * (log_factor / PRIOR_STD) ** 2 - self.weights @ values

        options = {"xatol": LOG_PRECISION}
        best = minimize_scalar(
            loss, bounds=np.log(FACTORS), method="bounded", options=options
        )
        return float(np.exp(np.round(best.x, 3)))

    def _queries(self, parameters, seeds):
        """Embeddings of the held-out rows by the draws of some networks."""
        model = snapshot(self.model)
        model.parameters_, model.seeds_ = parameters, seeds
        return model._queries(self.features, model._embedded_draws())

    def _density(self, queries, kernel) -> np.ndarray:
        """Log density of the held-out rows, in the units of the training."""
        from skbayesnn._engine.compiled.neighbours import log_densities

        densities = np.empty((len(queries), len(self.weights)))
        for (draw, z), row in zip(queries, densities, strict=True):
            log_densities(
                z,
                draw.stored.columns,
                draw.stored.offsets,
                self.rows,
                self.y,
                self.labels,
                kernel[draw.member],
                row,
            )
        return log_mean_exp(densities)


def scaled(queries, factor: float) -> list[tuple[Draw, np.ndarray]]:
    """Multiply the embeddings of queries and training rows by a factor."""
    scaled = []
    for draw, z in queries:
        columns, offsets = draw.stored.columns, draw.stored.offsets
        squares, kind = np.square(columns).sum(0), z.dtype.type
        stored = draw.stored._replace(
            columns=columns * kind(factor),
            offsets=offsets + kind(1 - factor**2) * squares,
        )
        scaled.append((draw._replace(stored=stored), z * kind(factor)))
    return scaled
