"""Soft nearest neighbours as ONNX operators.

The graph computes the distances to all training rows. For quantiles, training rows with
similar y are groups, each with the total weight, mean and variance of its rows.
"""

from collections.abc import Iterator

import numpy as np

from skbayesnn._onnx.graph import Tensor, concatenated
from skbayesnn._onnx.steps import encoded
from skbayesnn.estimators.neighbours import (
    MAX_FEATURE,
    NeighbourClassifier,
    NeighbourModel,
    NeighbourRegressor,
)

# Largest number of groups of each draw and width.
N_GROUPS = 64
# Largest size of a file of Protocol Buffers, in bytes.
MAX_BYTES = 1 << 31


def check_size(model: NeighbourModel, n_draws: int) -> None:
    """Raise if the embedded training rows are too large for a graph."""
    n_rows, n_embedding = len(model.X_train_), model.parameters_["w3"].shape[2]
    # Embedding and offset of each row and draw, in single precision.
    n_bytes = 4 * n_draws * n_rows * (n_embedding + 1)
    if n_bytes >= MAX_BYTES:
        raise ValueError(
            "a graph contains the embeddings of the training rows, and at most 2 GB; "
            f"got {n_bytes / 1e9:.1f} GB: {n_draws} draws of {n_rows} rows. Use fewer "
            "n_draws or n_estimators, a smaller embedding_size, or fewer rows."
        )


def class_shares(model: NeighbourClassifier, used: np.ndarray, x: Tensor) -> Tensor:
    """Probabilities of the classes by some draws, (draws, rows, classes).

    used : indices of the draws
    x : (rows, columns), in the units of the data
    """
    n_classes = len(model.classes_)
    labels = np.eye(n_classes)[model.y_train_]
    parts = []
    for member, weights in _weights(model, used, x):
        kernel = np.float64(model.parameters_["kernel"][member, -1])
        smoothing = 1 / (1 + np.exp(-kernel))
        shares = (weights @ labels) * (1 - smoothing) + smoothing / n_classes
        parts.append(shares.unsqueeze(0))
    return concatenated(parts, 0)


def normal_mixtures(
    model: NeighbourRegressor, used: np.ndarray, x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Weights, means and standard deviations, (draws, rows, targets, K) each.

    In the scale of the network; arguments as for ``class_shares``.
    """
    columns = model.y_train_.reshape(len(model.y_train_), -1).T
    parts: list[list[Tensor]] = [[], [], []]
    for member, weights in _weights(model, used, x):
        kernel = model.parameters_["kernel"][member].astype(np.float64)
        share = 1 / (1 + np.exp(-kernel[-1]))
        squares = np.exp(2 * kernel[:-1]).reshape(2, -1)
        targets = [
            _groups(weights, y, share, squares[:, t]) for t, y in enumerate(columns)
        ]
        for part, values in zip(parts, zip(*targets, strict=True), strict=True):
            part.append(concatenated([v.unsqueeze(1) for v in values], 1).unsqueeze(0))
    weight, mean, variance = (concatenated(part, 0) for part in parts)
    return weight, mean, variance.sqrt()


def _groups(weights: Tensor, y: np.ndarray, share: float, squares: np.ndarray):
    """Groups for both widths: weights, means and variances, (rows, K) each.

    weights : (rows, training rows)
    y : (training rows,)
    share : of the first width
    squares : (2,), squared widths
    """
    order = np.argsort(y, kind="stable")
    size = -(-len(y) // N_GROUPS)
    n_groups = -(-len(y) // size)
    missing = n_groups * size - len(y)
    y = np.pad(y[order], (0, missing), mode="edge").reshape(n_groups, size)
    if (np.diff(order) != 1).any():
        weights = weights.take(order, axis=1)
    if missing:
        weights = weights.op("Pad", np.array([0, 0, 0, missing]), np.array(0.0))
    weights = weights.op("Reshape", np.array([-1, n_groups, size]))
    # Relative to the centre of a group, for precise variances.
    centre = y.mean(1)
    deviation = y - centre[:, None]
    weight = weights.sum(2)
    divisor = weight.op("Max", np.array(np.finfo(float).tiny))
    first = (weights * deviation).sum(2) / divisor
    second = (weights * np.square(deviation)).sum(2) / divisor
    variance = (second - first.square()).op("Max", np.array(0.0))
    pairs = (
        (weight * share, weight * (1 - share)),
        (first + centre, first + centre),
        (variance + squares[0], variance + squares[1]),
    )
    return [concatenated(pair, 1) for pair in pairs]


def _weights(
    model: NeighbourModel, used: np.ndarray, x: Tensor
) -> Iterator[tuple[int, Tensor]]:
    """Member of some draws, and the weights of the training rows, (rows, rows)."""
    scaled = (x.cast(np.float64) - model.x_mean_) / model.x_scale_
    limit = np.array(MAX_FEATURE)
    scaled = scaled.op("Min", limit).op("Max", -limit).cast(np.float32)
    features = scaled if model.encoder_ is None else encoded(model.encoder_, scaled)
    draws = model._embedded_draws()
    for draw in [draws[k] for k in used]:
        parts = {
            name: values[draw.member].astype(np.float32)
            for name, values in model.parameters_.items()
        }
        units = features
        for k, mask in enumerate(draw.masks.astype(np.float32), 1):
            units = (units @ parts[f"w{k}"] + parts[f"b{k}"]).op("Relu") * mask
        z = units @ parts["w3"] + features @ parts["linear"]
        columns = draw.columns.astype(np.float32)
        exponents = (z @ (2 * columns)) + draw.offsets.astype(np.float32)
        yield draw.member, exponents.cast(np.float64).op("Softmax", axis=-1)
