"""Does uncertainty tell right predictions from wrong ones, known rows from new ones?"""

from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from skbayesnn._typing import Array
from skbayesnn.metrics._validation import no_nan, one_column, present


def risk_coverage_curve(
    error: Any, uncertainty: Any, sample_weight: Any = None
) -> tuple[Array, Array, Array]:
    """Mean error of the rows kept, where the most uncertain ones are refused.

    Rows of equal uncertainty are accepted together, so the curve does not depend on
    the order of the rows.

    Parameters
    ----------
    error : array-like of shape (n_samples,)
        Loss of each row's prediction: 0 or 1 for right and wrong labels, or a squared
        error, say.
    uncertainty : array-like of shape (n_samples,)
        Larger is refused first.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    coverage : ndarray of shape (n_thresholds,)
        Share of the rows accepted; rises to 1.
    risk : ndarray of shape (n_thresholds,)
        Mean error of the rows accepted.
    threshold : ndarray of shape (n_thresholds,)
        Rows of at most this uncertainty are accepted; the different values of
        ``uncertainty``, sorted.

    References
    ----------
    El-Yaniv & Wiener (2010), "On the foundations of noise-free selective
    classification", J. Mach. Learn. Res. 11. Geifman & El-Yaniv (2017), "Selective
    classification for deep neural networks", NeurIPS.
    """
    error = one_column("error", error)
    uncertainty = one_column("uncertainty", uncertainty)
    if error.shape != uncertainty.shape:
        raise ValueError(
            "`error` and `uncertainty` must have one value for each row; got shapes "
            f"{error.shape} and {uncertainty.shape}."
        )
    weights, error, uncertainty = present(sample_weight, error, uncertainty)
    no_nan("error", error)
    no_nan("uncertainty", uncertainty)
    threshold, value = np.unique(uncertainty, return_inverse=True)
    accepted = np.bincount(value, weights).cumsum()
    risk = np.bincount(value, weights * error).cumsum() / accepted
    return accepted / accepted[-1], risk, threshold


def area_under_risk_coverage(
    error: Any, uncertainty: Any, sample_weight: Any = None
) -> float:
    """Area under the risk-coverage curve (AURC): the mean risk over coverages.

    Every row, from the least uncertain to the most, is a coverage; the selective risk
    there is the mean error of the rows up to it, and the area is the mean of these
    risks. An uncertainty that ranks the errors last has the smallest area; a constant
    one has the mean error.

    Parameters
    ----------
    error : array-like of shape (n_samples,)
        Loss of each row's prediction: 0 or 1 for right and wrong labels, or a squared
        error, say.
    uncertainty : array-like of shape (n_samples,)
        Larger is refused first. Rows of equal uncertainty are accepted together: each
        of them has the risk with all of them accepted.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    area : float
        In the unit of ``error``; smaller is better.

    References
    ----------
    Geifman, Uziel & El-Yaniv (2019), "Bias-reduced uncertainty estimation for deep
    neural classifiers", ICLR.
    """
    coverage, risk, _ = risk_coverage_curve(error, uncertainty, sample_weight)
    return float(risk @ np.diff(coverage, prepend=0.0))


def ood_auroc(
    inside: Any,
    outside: Any,
    sample_weight_inside: Any = None,
    sample_weight_outside: Any = None,
) -> float:
    """Probability that a row from outside is more uncertain than one from inside.

    The area under the ROC curve of finding rows from outside of the distribution by
    their uncertainty; ties count one half. The same function scores the detection of
    errors: ``inside`` are then the uncertainties of right predictions, ``outside``
    those of wrong ones.

    Parameters
    ----------
    inside : array-like of shape (n_inside,)
        Uncertainty of rows like the training rows.
    outside : array-like of shape (n_outside,)
        Uncertainty of other rows.
    sample_weight_inside : array-like of shape (n_inside,), default=None
    sample_weight_outside : array-like of shape (n_outside,), default=None

    Returns
    -------
    auroc : float in [0, 1]
        Larger is better; 1/2 for an uncertainty that cannot tell them apart.

    References
    ----------
    Hendrycks & Gimpel (2017), "A baseline for detecting misclassified and
    out-of-distribution examples in neural networks", ICLR.
    """
    parts = [
        present(weights, one_column(name, values))
        for name, values, weights in (
            ("inside", inside, sample_weight_inside),
            ("outside", outside, sample_weight_outside),
        )
    ]
    (_, inside), (_, outside) = parts
    no_nan("inside", inside)
    no_nan("outside", outside)
    return float(
        roc_auc_score(
            np.repeat([0, 1], [len(inside), len(outside)]),
            np.concatenate([inside, outside]),
            sample_weight=np.concatenate([weights for weights, _ in parts]),
        )
    )
