"""Weight decay, as optimisers know it, and the model precision that it stands for."""

import numpy as np

from skbayesnn._inference.objective import weight_decay as weight_decay_of
from skbayesnn.estimators._validation import check_number


def tau_from_weight_decay(
    weight_decay: float,
    n_samples: float,
    dropout: float = 0.0,
    length_scale: float = 1.0,
) -> float:
    """The model precision under which the prior is a given weight decay [1]_.

    tau = p l^2 / (2 N lambda), p = 1 - dropout: the inverse of what an estimator says
    in ``weight_decay_``. lambda stands beside half the mean squared error in y's own
    units and multiplies the squared weights.

    Parameters
    ----------
    weight_decay : float > 0 or array-like
        lambda. Torch's SGD adds its ``weight_decay`` times the weight itself to the
        gradient: that is 2 lambda beside half the mean squared error, 4 lambda beside
        ``MSELoss``.
    n_samples : int
        N, the number of training rows, or the sum of their weights.
    dropout : float in [0, 1), default=0.0
    length_scale : float > 0, default=1.0
        Prior length scale l.

    Returns
    -------
    tau : float or ndarray of the shape of ``weight_decay``
        1 / variance of the noise of y, in y's own units.

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
    """
    n_samples = check_number("n_samples", n_samples, low=0, open_low=True)
    dropout = check_number("dropout", dropout, low=0, high=1)
    length_scale = check_number("length_scale", length_scale, low=0, open_low=True)
    decay = np.asarray(weight_decay, dtype=float)
    # The formula is its own inverse: lambda and tau change places.
    with np.errstate(divide="ignore", over="ignore"):
        tau = weight_decay_of(1 - dropout, length_scale, n_samples, decay)
    if not ((decay > 0) & (tau > 0) & np.isfinite(tau)).all():
        raise ValueError(
            f"`weight_decay` must be > 0 and make a finite tau > 0; got "
            f"{weight_decay!r}. Without any the prior is flat, whatever tau: "
            "length_scale=0."
        )
    return tau if decay.ndim else float(tau)
