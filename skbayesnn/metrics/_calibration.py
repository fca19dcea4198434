"""Calibration: do events occur as often as predicted?"""

from numbers import Integral
from typing import Any

import numpy as np

from skbayesnn._distributions.components import columns_of
from skbayesnn._validation import check_levels, check_number, check_option
from skbayesnn.metrics._validation import (
    LEVELS,
    drop_zero_weights,
    no_nan,
    weighted_mean,
    with_targets,
)


def quantile_calibration_error(
    cdf: Any,
    levels: Any = None,
    sample_weight: Any = None,
    *,
    cdf_below: Any = None,
) -> float:
    """Calibration error of a predictive distribution, over quantile levels.

    The mean over levels p of |share of rows with F(y) <= p - p|: if the distribution is
    calibrated, a share p of the targets lies below the p-quantile. Like every
    calibration error it does not measure sharpness, and with few rows it is positive
    even for a perfect model.

    A y with a probability, such as a count or a zero, counts with the share of
    [P(Y < y), P(Y <= y)] that is below p.

    Parameters
    ----------
    cdf : array-like of shape (n_samples[, n_targets])
        F(y), the cumulative distribution function at y, as ``predictive_cdf`` returns
        it. Each target is scored separately, and the errors are averaged.
    levels : array-like of shape (n_levels,), default=None
        Quantile levels in (0, 1); None is 0.05, 0.1, ..., 0.95.
    sample_weight : array-like of shape (n_samples,), default=None
    cdf_below : array-like of shape (n_samples[, n_targets]), default=None
        P(Y < y), or the distribution function at the lower end of intervals; by default
        equal to ``cdf``. The method ``pit`` of a predictive distribution returns both.

    Returns
    -------
    error : float in [0, 1]
        Smaller is better.

    Notes
    -----
    The shares are defined by Kuleshov et al. (2018), section 3.5. NOTE[DIFF] Their
    calibration error, eq. 9, sums w_p (share - p)^2 over the levels with weights that
    the user chooses; here |share - p| is averaged. The result is a probability, like
    the calibration errors of classifiers, and equals the expected calibration error of
    Chung et al. (2021).

    References
    ----------
    Kuleshov, Fenner & Ermon (2018), "Accurate uncertainties for deep learning using
    calibrated regression", ICML. Czado, Gneiting & Held (2009), "Predictive model
    assessment for count data", Biometrics 65. Chung, Neiswanger, Char & Schneider
    (2021), "Beyond pinball loss: quantile methods for calibrated uncertainty
    quantification", NeurIPS.
    """
    cdf = with_targets("cdf", cdf)
    levels = np.array(check_levels("levels", LEVELS if levels is None else levels))
    below = cdf if cdf_below is None else with_targets("cdf_below", cdf_below)
    weights, cdf, below = drop_zero_weights(sample_weight, cdf, below)
    check_probabilities("cdf", cdf)
    check_probabilities("cdf_below", below)
    cdf, below = cdf[..., None], below[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        part = ((levels - below) / (cdf - below)).clip(0, 1)
    share = np.where(below < cdf, part, cdf <= levels)
    share = np.average(share, axis=0, weights=weights)
    return float(np.abs(share - levels).mean())


def expected_calibration_error(
    y: Any,
    probability: Any,
    classes: Any = None,
    kind: str = "top_label",
    n_bins: int = 15,
    sample_weight: Any = None,
) -> float:
    """Expected calibration error of predicted class probabilities.

    Rows are sorted by predicted probability into bins of equal mass. The error is the
    mean over bins, weighted by mass, of |mean predicted probability - observed
    frequency|.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    probability : array-like of shape (n_samples, n_classes)
        Predicted probabilities; rows sum to one.
    classes : array-like of shape (n_classes,), default=None
        Labels of the columns; None is the sorted labels in y.
    kind : {"top_label", "classwise"}, default="top_label"
        ``"top_label"`` compares the probability of the most likely class with how
        often that class is right. ``"classwise"`` compares the probability of every
        class with how often it occurs, and averages over the classes.
    n_bins : int, default=15
        Bins of equal total weight. Rows of equal probability are never split: they all
        go into the bin that contains the middle of their mass. So the number of bins
        is smaller if there are fewer than ``n_bins`` distinct probabilities.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    error : float in [0, 1]
        Smaller is better. Not zero for a perfect model with few rows, because
        frequencies within a bin vary by chance.

    Notes
    -----
    NOTE[DIFF] Guo et al. (2017), eq. 3, and Kull et al. (2019) use bins of equal width.
    Equal mass (Nguyen & O'Connor 2015; Nixon et al. 2019) puts equally many rows into
    every bin, which makes the estimate less noisy.

    References
    ----------
    Naeini, Cooper & Hauskrecht (2015), "Obtaining well calibrated probabilities using
    Bayesian binning", AAAI. Guo, Pleiss, Sun & Weinberger (2017), "On calibration of
    modern neural networks", ICML. Kull, Perello-Nieto, Kängsepp, Silva Filho, Song &
    Flach (2019), "Beyond temperature scaling", NeurIPS, for the classwise error. Nguyen
    & O'Connor (2015), "Posterior calibration and exploratory analysis for natural
    language processing models", EMNLP. Nixon, Dusenberry, Zhang, Jerfel & Tran (2019),
    "Measuring calibration in deep learning", CVPR workshops.
    """
    check_option("kind", kind, ["top_label", "classwise"])
    n_bins = check_number("n_bins", n_bins, kind=Integral, low=1)
    weights, codes, probability = labelled(y, probability, classes, sample_weight)
    if kind == "top_label":
        correct = probability.argmax(1) == codes
        return _binned_error(probability.max(1), correct, weights, n_bins)
    errors = [
        _binned_error(column, codes == code, weights, n_bins)
        for code, column in enumerate(probability.T)
    ]
    return float(np.mean(errors))


def brier_score(
    y: Any,
    probability: Any,
    classes: Any = None,
    sample_weight: Any = None,
) -> float:
    """Mean squared error of predicted class probabilities.

    The squared difference between the probability of a class and 1 if it is the label,
    otherwise 0, summed over classes. With two classes this is twice scikit-learn's
    ``brier_score_loss``.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    probability : array-like of shape (n_samples, n_classes)
        Predicted probabilities; rows sum to one.
    classes : array-like of shape (n_classes,), default=None
        Labels of the columns; None is the sorted labels in y.
    sample_weight : array-like of shape (n_samples,), default=None

    Returns
    -------
    score : float in [0, 2]
        Smaller is better.

    References
    ----------
    Brier (1950), "Verification of forecasts expressed in terms of probability", Mon.
    Weather Rev. 78, eq. 2.
    """
    weights, codes, probability = labelled(y, probability, classes, sample_weight)
    outcome = np.eye(probability.shape[1])[codes]
    return weighted_mean(np.square(probability - outcome).sum(1), weights)


def _binned_error(probability, occurred, weights, n_bins) -> float:
    """Mass-weighted mean over equal-mass bins of |mean probability - frequency|.

    probability, occurred, weights : (rows,)
    """
    bins, total = equal_mass_bins(probability, weights, n_bins)
    difference = np.bincount(bins, weights * (probability - occurred))
    return float(np.abs(difference).sum() / total)


def equal_mass_bins(values, weights, n_bins):
    """Index of each row's bin, (rows,), and the total weight of the rows.

    Rows of equal value share a bin.

    values, weights : (rows,)
    """
    _, group = np.unique(values, return_inverse=True)
    mass = np.bincount(group, weights)
    cumulative = mass.cumsum()
    bins = (n_bins * (cumulative - mass / 2) // cumulative[-1]).astype(int)
    return bins[group], cumulative[-1]


def labelled(y, probability, classes, sample_weight):
    """Check and return weights (rows,), column of each label (rows,), probability.

    Rows of weight zero are left out.
    """
    y, probability = np.asarray(y), np.asarray(probability, dtype=np.float64)
    if y.ndim != 1 or probability.ndim != 2 or len(probability) != len(y):
        raise ValueError(
            "`probability` must be of shape (n_samples, n_classes) for y of shape "
            f"(n_samples,); got {probability.shape} and {y.shape}. Two classes have "
            "two columns."
        )
    weights, y, probability = drop_zero_weights(sample_weight, y, probability)
    check_probabilities("probability", probability)
    total = probability.sum(1)
    # Single-precision probabilities, averaged over draws, sum to one within 1e-6.
    if np.abs(total - 1).max() > 1e-4:
        raise ValueError(
            "the rows of `probability` must sum to one; got "
            f"{total[np.abs(total - 1).argmax()]}."
        )
    labels = np.unique(y) if classes is None else np.asarray(classes)
    if labels.shape != (probability.shape[1],):
        raise ValueError(
            f"`classes` must name the {probability.shape[1]} columns of `probability`; "
            + (
                f"y has {len(labels)} different labels. Give `classes`."
                if classes is None
                else f"got an array of shape {labels.shape}."
            )
        )
    if len(np.unique(labels)) < len(labels):
        raise ValueError(f"`classes` must name each class once; got {labels.tolist()}.")
    known = set(labels.tolist())
    unknown = [label for label in y.tolist() if label not in known]
    if unknown:
        raise ValueError(
            f"the labels in y must be among `classes`; got {unknown[0]!r}."
        )
    return weights, columns_of(y, labels), probability


def check_probabilities(name, values) -> None:
    """Raise unless all values are in [0, 1]."""
    no_nan(name, values)
    wrong = values[(values < 0) | (values > 1)]
    if wrong.size:
        raise ValueError(f"`{name}` must be in [0, 1]; got {wrong[0]}.")
