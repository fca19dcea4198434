"""Does the uncertainty rank wrong predictions, or unfamiliar rows, above the rest?"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from skbayesnn._typing import Array
from skbayesnn.metrics._validation import drop_zero_weights, no_nan, with_targets


def risk_coverage_curve(
    error: Any, uncertainty: Any, sample_weight: Any = None
) -> tuple[Array, Array, Array]:
    """Mean error of the accepted rows, if the most uncertain rows are rejected.

    Rows of equal uncertainty are accepted together, so the curve does not depend on
    the order of the rows.

    Parameters
    ----------
    error : array-like of shape (n_samples,)
        Loss of each row's prediction, such as 0 or 1 for right and wrong labels, or a
        squared error.
    uncertainty : array-like of shape (n_samples,)
        Rows with the largest uncertainty are rejected first.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    coverage : ndarray of shape (n_thresholds,)
        Share of the rows that are accepted; rises to 1.
    risk : ndarray of shape (n_thresholds,)
        Mean error of the accepted rows.
    threshold : ndarray of shape (n_thresholds,)
        Rows of at most this uncertainty are accepted. The distinct values of
        ``uncertainty``, sorted.

    References
    ----------
    El-Yaniv & Wiener (2010), "On the foundations of noise-free selective
    classification", J. Mach. Learn. Res. 11. Geifman & El-Yaniv (2017), "Selective
    classification for deep neural networks", NeurIPS.
    """
    error = with_targets("error", error, several=False)
    uncertainty = with_targets("uncertainty", uncertainty, several=False)
    if error.shape != uncertainty.shape:
        raise ValueError(
            "`error` and `uncertainty` must have one value for each row; got shapes "
            f"{error.shape} and {uncertainty.shape}."
        )
    weights, error, uncertainty = drop_zero_weights(sample_weight, error, uncertainty)
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

    Rows are accepted one after another, the least uncertain first. The risk is the mean
    error of the rows accepted so far, and the area is the mean of these risks. The area
    is smallest if the uncertainty ranks the rows by their error. A constant uncertainty
    has the mean error as its area.

    Parameters
    ----------
    error : array-like of shape (n_samples,)
        Loss of each row's prediction, such as 0 or 1 for right and wrong labels, or a
        squared error.
    uncertainty : array-like of shape (n_samples,)
        Rows with the largest uncertainty are rejected first. Rows of equal uncertainty
        are accepted together and have the same risk.
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
    """AUROC of detecting out-of-distribution rows by their uncertainty.

    The probability that a row of ``outside`` is more uncertain than a row of
    ``inside``; ties count one half. The function also scores the detection of errors:
    give the uncertainties of right predictions as ``inside`` and of wrong predictions
    as ``outside``.

    Parameters
    ----------
    inside : array-like of shape (n_inside,)
        Uncertainty of rows like the training rows.
    outside : array-like of shape (n_outside,)
        Uncertainty of out-of-distribution rows.
    sample_weight_inside : array-like of shape (n_inside,), default=None
    sample_weight_outside : array-like of shape (n_outside,), default=None

    Returns
    -------
    auroc : float in [0, 1]
        Larger is better; 1/2 for an uncertainty that does not distinguish the rows.

    References
    ----------
    Hendrycks & Gimpel (2017), "A baseline for detecting misclassified and
    out-of-distribution examples in neural networks", ICLR.
    """
    parts = [
        drop_zero_weights(weights, with_targets(name, values, several=False))
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
