"""Plots of fitted models, in scikit-learn's display convention; they need matplotlib.

Create a display by ``from_estimator(estimator, X, y)``, also through the
meta-estimators of :mod:`skbayesnn`, and most of them from arrays by
``from_predictions``. The display stores the values that it shows as attributes, one
entry per row in the order of the rows. ``plot(ax=None)`` draws it and sets axes, figure
and artists as attributes ending in ``_``::

    from skbayesnn.plotting import PredictionIntervalDisplay

    display = PredictionIntervalDisplay.from_estimator(model, X_test, y_test)
    display.ax_.set(title="Test rows")
    display.figure_.savefig("intervals.png")

The class methods accept the keywords of ``plot``, too.
"""

from skbayesnn.plotting._attribution import AttributionDisplay
from skbayesnn.plotting._calibration_curve import CalibrationCurveDisplay
from skbayesnn.plotting._class_probability import ClassProbabilityDisplay
from skbayesnn.plotting._decision import DecisionDisplay
from skbayesnn.plotting._prediction_interval import PredictionIntervalDisplay
from skbayesnn.plotting._risk_coverage import RiskCoverageDisplay
from skbayesnn.plotting._rootogram import RootogramDisplay
from skbayesnn.plotting._survival_curve import SurvivalCurveDisplay
from skbayesnn.plotting._training_curve import TrainingCurveDisplay
from skbayesnn.plotting._uncertainty_decomposition import (
    UncertaintyDecompositionDisplay,
)

__all__ = [
    "AttributionDisplay",
    "CalibrationCurveDisplay",
    "ClassProbabilityDisplay",
    "DecisionDisplay",
    "PredictionIntervalDisplay",
    "RiskCoverageDisplay",
    "RootogramDisplay",
    "SurvivalCurveDisplay",
    "TrainingCurveDisplay",
    "UncertaintyDecompositionDisplay",
]
