"""Scores of predictive distributions, computed from arrays.

Every function takes ``sample_weight``: a row of weight two counts as two rows, a row of
weight zero is ignored. The scores of lifetimes, ``concordance_index`` and
``survival_brier_score``, take no weights. :mod:`skbayesnn.scoring` has the same
scores as scorers, for ``scoring=`` and for meta-estimators.
"""

from skbayesnn.metrics._calibration import (
    brier_score,
    expected_calibration_error,
    quantile_calibration_error,
)
from skbayesnn.metrics._densities import mixture_crps, mixture_log_density
from skbayesnn.metrics._intervals import (
    coverage_error,
    interval_coverage,
    interval_score,
    interval_width,
    pinball_loss,
    worst_group_coverage,
)
from skbayesnn.metrics._selection import (
    area_under_risk_coverage,
    ood_auroc,
    risk_coverage_curve,
)
from skbayesnn.metrics._survival import concordance_index, survival_brier_score

__all__ = [
    "area_under_risk_coverage",
    "brier_score",
    "concordance_index",
    "coverage_error",
    "expected_calibration_error",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "mixture_crps",
    "mixture_log_density",
    "ood_auroc",
    "pinball_loss",
    "quantile_calibration_error",
    "risk_coverage_curve",
    "survival_brier_score",
    "worst_group_coverage",
]
