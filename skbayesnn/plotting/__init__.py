"""Displays of fitted models, in scikit-learn's convention; they need matplotlib.

A display is made by ``from_estimator(estimator, X, y)``, through the meta-estimators of
:mod:`skbayesnn`, or from numbers by ``from_predictions``. It keeps what it shows
in attributes, one entry per row and in the order of the rows, and draws it with
``plot(ax=None)``; axes, figure and artists are then attributes ending in ``_``::

    from skbayesnn.plotting import PredictionIntervalDisplay

    display = PredictionIntervalDisplay.from_estimator(model, X_test, y_test)
    display.ax_.set(title="Test rows")
    display.figure_.savefig("intervals.png")

Keywords of ``plot`` can be given to the class methods too.
"""

from skbayesnn.plotting._calibration_curve import CalibrationCurveDisplay
from skbayesnn.plotting._class_probability import ClassProbabilityDisplay
from skbayesnn.plotting._prediction_interval import PredictionIntervalDisplay
from skbayesnn.plotting._risk_coverage import RiskCoverageDisplay
from skbayesnn.plotting._tau_path import TauPathDisplay
from skbayesnn.plotting._training_curve import TrainingCurveDisplay
from skbayesnn.plotting._uncertainty_decomposition import (
    UncertaintyDecompositionDisplay,
)
from skbayesnn.plotting._uncertainty_importance import UncertaintyImportanceDisplay

__all__ = [
    "CalibrationCurveDisplay",
    "ClassProbabilityDisplay",
    "PredictionIntervalDisplay",
    "RiskCoverageDisplay",
    "TauPathDisplay",
    "TrainingCurveDisplay",
    "UncertaintyDecompositionDisplay",
    "UncertaintyImportanceDisplay",
]
