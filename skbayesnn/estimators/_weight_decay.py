"""Convert the weight decay of an optimiser to a model precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skbayesnn._engine.objective import weight_decay as weight_decay_of
from skbayesnn._validation import check_number


def tau_from_weight_decay(
    weight_decay: ArrayLike,
    n_samples: float,
    dropout: ArrayLike = 0.0,
    length_scale: ArrayLike = 1.0,
) -> Any:
    """Model precision tau for which the prior equals a given weight decay [1]_.

    Use it to convert a network trained with weight decay to an estimator's ``tau``. The
    formula is tau = p l^2 / (2 N lambda), p = 1 - dropout, the inverse of the one for
    the attribute ``weight_decay_``. The loss is half the mean squared error, in the
    units of y, plus lambda times the sum of squared weights.

    Parameters
    ----------
    weight_decay : float > 0 or array-like
        lambda, one value or one per layer. The ``weight_decay`` of torch's SGD is 2
        lambda if the loss is half the mean squared error, and 4 lambda with
        ``MSELoss``, since SGD adds weight_decay times the weight to the gradient.
    n_samples : int
        N, the number of training rows, or the sum of their weights.
    dropout : float in [0, 1] or array-like, default=0.0
        Dropout rate, one value or one per layer, as in the estimators.
    length_scale : float > 0 or array-like, default=1.0
        Prior length scale l, one value or one per layer.

    Returns
    -------
    tau : float or ndarray
        1 / variance of the observation noise, in squared inverse units of y. Its shape
        is that of ``weight_decay``, ``dropout`` and ``length_scale``, broadcast. All
        layers have the same noise: unequal values mean that the values of the layers
        do not fit together.

    See Also
    --------
    MCDropoutRegressor : Regressor with the parameter ``tau``.

    References
    ----------
    .. [1] Gal & Ghahramani (2016), "Dropout as a Bayesian approximation:
       representing model uncertainty in deep learning", arXiv:1506.02142, eq. 7.

    Examples
    --------
    >>> from skbayesnn import tau_from_weight_decay
    >>> tau_from_weight_decay(1e-4, 1000, dropout=0.1, length_scale=0.5)
    1.125
    >>> tau_from_weight_decay([1e-4, 8e-5], 1000, dropout=[0, 0.2], length_scale=0.5)
    array([1.25, 1.25])
    """
    n_samples = check_number("n_samples", n_samples, low=0, open_low=True)
    rate = _numbers("dropout", dropout, low=0, high=1)
    scale = _numbers("length_scale", length_scale, low=0, open_low=True)
    decay = np.asarray(weight_decay, dtype=float)
    shapes = decay.shape, rate.shape, scale.shape
    try:
        np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise ValueError(
            "`weight_decay`, `dropout` and `length_scale` must be floats, or have one "
            f"value per layer; got the shapes {', '.join(map(str, shapes))}."
        ) from error
    # Exchanging lambda and tau inverts the formula.
    with np.errstate(divide="ignore", over="ignore"):
        tau = weight_decay_of(1 - rate, scale, n_samples, decay)
    if not ((decay > 0) & (tau > 0) & np.isfinite(tau)).all():
        raise ValueError(
            "`weight_decay` must be > 0 and give a finite tau > 0; got "
            f"{weight_decay!r}. For training without weight decay use length_scale=0, "
            "a flat prior, with any tau."
        )
    return tau if np.ndim(tau) else float(tau)


def _numbers(name: str, values, **bounds) -> np.ndarray:
    """Validate a number or an array of numbers."""
    if np.ndim(values) == 0:
        return np.asarray(check_number(name, values, **bounds), dtype=float)
    checked = [check_number(name, value, **bounds) for value in np.ravel(values)]
    return np.array(checked, dtype=float).reshape(np.shape(values))
