"""The update of the parameters; torch's is in `_engine.optimizer`."""

import numpy as np

from skbayesnn._engine.compiled.numerics import compiled
from skbayesnn._engine.optimizer import BETA_1, BETA_2


@compiled
def adam(
    values, gradients, means, squares, curvature, centre, scale, step_size, epsilon
):
    """One step of Adam, with the gradient of a quadratic penalty.

    The penalty is the sum of scale curvature / 2 (value - centre)^2.
    """
    dtype = values.dtype.type
    decay_1, decay_2 = dtype(1 - BETA_1), dtype(1 - BETA_2)
    scale, step_size, epsilon = dtype(scale), dtype(step_size), dtype(epsilon)
    for i in range(values.size):
        gradient = gradients[i] + scale * curvature[i] * (values[i] - centre[i])
        mean = means[i] + decay_1 * (gradient - means[i])
        square = squares[i] + decay_2 * (gradient * gradient - squares[i])
        means[i], squares[i] = mean, square
        values[i] += step_size * mean / (np.sqrt(square) + epsilon)
