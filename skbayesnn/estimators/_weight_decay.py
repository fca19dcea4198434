"""Weight decay, as optimisers know it, and the model precision that it stands for."""

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
    """The model precision under which the prior is a given weight decay [1]_.

    tau = p l^2 / (2 N lambda), p = 1 - dropout: the inverse of an estimator's
    ``weight_decay_``. lambda stands beside half the mean squared error in y's own
    units and multiplies the squared weights.

    Parameters
    ----------
    weight_decay : float > 0 or array-like
        lambda, of all layers or of each. Torch's SGD adds its ``weight_decay`` times
        the weight itself to the gradient: that is 2 lambda beside half the mean squared
        error, 4 lambda beside ``MSELoss``.
    n_samples : int
        N, the number of training rows, or the sum of their weights.
    dropout : float in [0, 1] or array-like, default=0.0
        Of all layers or of each, as the estimators' ``dropout``.
    length_scale : float > 0 or array-like, default=1.0
        Prior length scale l, of all layers or of each.

    Returns
    -------
    tau : float or ndarray
        1 / variance of the noise of y, in y's own units; of the shape of
        ``weight_decay``, ``dropout`` and ``length_scale``, broadcast. Of several layers
        there is one noise: lambda_i, p_i and l_i agree where all values are equal.

    See Also
    --------
    MCDropoutRegressor : Whose ``tau`` it is.

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
            "`weight_decay`, `dropout` and `length_scale` must be numbers, or have one "
            f"for each layer; got the shapes {', '.join(map(str, shapes))}."
        ) from error
    # The formula is its own inverse: lambda and tau change places.
    with np.errstate(divide="ignore", over="ignore"):
        tau = weight_decay_of(1 - rate, scale, n_samples, decay)
    if not ((decay > 0) & (tau > 0) & np.isfinite(tau)).all():
        raise ValueError(
            f"`weight_decay` must be > 0 and make a finite tau > 0; got "
            f"{weight_decay!r}. Without any the prior is flat, whatever tau: "
            "length_scale=0."
        )
    return tau if np.ndim(tau) else float(tau)


def _numbers(name: str, values, **bounds) -> np.ndarray:
    """One number, or several, each checked."""
    if np.ndim(values) == 0:
        return np.asarray(check_number(name, values, **bounds), dtype=float)
    checked = [check_number(name, one, **bounds) for one in np.ravel(values)]
    return np.array(checked, dtype=float).reshape(np.shape(values))
