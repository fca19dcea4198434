"""The predictive of a few rows of a classification, all draws held."""

import math
from dataclasses import dataclass, replace

import numpy as np

from skbayesnn._distributions.labels import labels_at
from skbayesnn._predictive.summaries import (
    CLASSIFICATION_KINDS,
    classification_uncertainty,
)


@dataclass(frozen=True)
class LabelPredictive:
    """The predictive of a classification, all draws held.

    Parameters
    ----------
    probability : ndarray of shape (draws, rows, classes)
    classes : ndarray of shape (classes,)
    """

    probability: np.ndarray
    classes: np.ndarray

    kinds = CLASSIFICATION_KINDS
    of_classes = True

    @classmethod
    def pooled(cls, parts, classes):
        """The equal-weight mixture; a member may know only some of the classes."""
        widened = []
        for part in parts:
            full = np.zeros((*part.probability.shape[:2], len(classes)))
            full[..., np.searchsorted(classes, part.classes)] = part.probability
            widened.append(full)
        return cls(np.concatenate(_even(widened)), classes)

    def in_units_of_target(self):
        """The same: labels have no units."""
        return self

    def labelled(self, classes):
        """The same of labels, where the classes are numbers of these labels.

        Some meta-estimators hand the inner classifier numbers in place of labels.
        """
        return replace(self, classes=classes[self.classes])

    @property
    def n_draws(self) -> int:
        """Components of the mixture."""
        return len(self.probability)

    def uncertainty(self, kinds) -> dict[str, np.ndarray]:
        """Measures of eq. 7: {kind: (rows,)}."""
        uniform = np.random.default_rng(0).random(self.n_draws)
        return {
            kind: classification_uncertainty(self.probability, kind, uniform)
            for kind in kinds
        }

    def sample_f(self, draws: np.ndarray) -> np.ndarray:
        """Class probabilities of the given draws, (rows, classes, samples)."""
        return np.moveaxis(self.probability[draws], 0, -1)

    def sample(self, draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Labels of the given draws, (rows, samples)."""
        uniform = random.random((self.probability.shape[1], len(draws))).T
        return self.classes[labels_at(self.probability[draws], uniform)].T

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Log of the mean probability of the labels y, (rows,)."""
        with np.errstate(divide="ignore"):
            return label_log_density(np.log(self.probability.mean(0)), self.classes, y)


def label_log_density(log_probability, classes, y) -> np.ndarray:
    """Entry of the label y in each row; minus infinity for unknown labels."""
    known = np.isin(y, classes)
    codes = np.searchsorted(classes, y[known])
    result = np.full(len(y), -np.inf)
    result[known] = log_probability[known, codes]
    return result


def _even(parts):
    """Repeat draws, so that all parts have as many (a point mass has one)."""
    n_draws = math.lcm(*(len(part) for part in parts))
    return [np.repeat(part, n_draws // len(part), axis=0) for part in parts]
