"""The estimators of this package as contestants, by the names of their classes.

``Name_size`` is a stack with ``estimators="size"``.
"""

import numpy as np
import torch
from predictives import COVERAGES

import skbayesnn


class Predict:
    """``predict`` of a fitted regressor; it times mean and standard deviation."""

    def __init__(self, model):
        self.model = model

    def __call__(self, X):
        return {"mean": self.model.predict(X, return_std=True)[0]}

    def at(self, X, y):
        """Exact scores and intervals of the predictive distribution at y."""
        return {
            "log_density": skbayesnn.log_predictive_density(self.model, X, y),
            "crps": skbayesnn.crps(self.model, X, y),
            "intervals": skbayesnn.predict_interval(self.model, X, COVERAGES),
        }


def __getattr__(name):
    """A contestant for every public class, with default parameters."""
    name, _, size = name.partition("_")
    kind = getattr(skbayesnn, name)
    options = {"estimators": size} if size else {}

    def contestant(seed, threads):
        torch.set_num_threads(threads)

        def fit(X, y):
            model = kind(**options, random_state=seed).fit(X, y)
            return Predict(model) if name.endswith("Regressor") else labels(model)

        return fit

    return contestant


def labels(model):
    """``predict`` of a fitted classifier."""
    return lambda X: {
        "classes": np.asarray(model.classes_),
        "probability": model.predict_proba(X),
    }
