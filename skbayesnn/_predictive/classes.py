"""Predictive distribution of a few rows of a classification, all draws in memory."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skbayesnn._distributions.components import Labels, columns_of, labels_at
from skbayesnn._predictive.summaries import (
    CLASSIFICATION_KINDS,
    classification_uncertainty,
)


@dataclass(frozen=True)
class ClassPredictive:
    """Predictive distribution of a classification, with all draws in memory.

    Parameters
    ----------
    probability : ndarray of shape (draws, rows, classes)
    classes : ndarray of shape (classes,)
    uniform : ndarray of shape (draws,), in [0, 1), optional
        Samples one label of each draw for the variation ratio.
    dtype : dtype of mean probabilities
    """

    probability: np.ndarray
    classes: np.ndarray
    uniform: np.ndarray | None = None
    dtype: Any = np.float64

    kinds = CLASSIFICATION_KINDS
    is_classification = True
    has_spread = False

    @classmethod
    def pooled(cls, parts, n_draws):
        """Pool several distributions into one mixture, with all classes of any part.

        n_draws : sequence of int, number of draws of each part, which is its weight
        """
        classes = _all_classes(parts)
        pairs = zip(parts, n_draws, strict=True)
        resized = [part._widened(classes).resized(n) for part, n in pairs]
        return cls(Labels.concatenated(resized).probability, classes)

    def mix_versions(self, first: np.ndarray, n_versions: np.ndarray, most: int):
        """Mix the versions of each row; see ``DrawArrays.mix_versions``."""
        labels = Labels(self.probability).mix_versions(first, n_versions, most)
        uniform = self.uniform
        if uniform is not None:
            uniform = np.repeat(uniform, len(labels.probability) // self.n_draws)
        return replace(self, probability=labels.probability, uniform=uniform)

    @classmethod
    def concatenate_rows(cls, parts):
        """Concatenate the rows of several distributions."""
        classes = _all_classes(parts)
        n_draws = max(part.n_draws for part in parts)
        widened = [part._widened(classes).resized(n_draws) for part in parts]
        return cls(Labels.concatenated(widened, axis=1).probability, classes)

    def _widened(self, classes) -> Labels:
        """Add classes that are missing here, with a probability of zero."""
        if np.array_equal(self.classes, classes):
            return Labels(self.probability)
        full = np.zeros((*self.probability.shape[:2], len(classes)))
        full[..., columns_of(self.classes, classes)] = self.probability
        return Labels(full)

    def among(self, classes):
        """Return the distribution over ``classes``; missing ones have probability 0."""
        return replace(
            self, probability=self._widened(classes).probability, classes=classes
        )

    def in_units_of_target(self):
        """Return self: labels have no units."""
        return self

    def tempered(self, inverse: float):
        """Raise every draw's probabilities to the power ``inverse``; normalise them."""
        with np.errstate(divide="ignore"):
            log_probability = inverse * np.log(self.probability)
        log_probability -= log_probability.max(-1, keepdims=True)
        probability = np.exp(log_probability)
        return replace(
            self, probability=probability / probability.sum(-1, keepdims=True)
        )

    def corrected(self, factor, bound):
        """Apply a temperature, (1,), to every draw; ``bound`` has no effect."""
        return self.tempered(1 / factor.item())

    def densities_of_factor(self, y, bound):
        """Return, in a list, a function: log temperature to log probability of y."""
        return [lambda log_t: self.tempered(np.exp(-log_t)).log_density(y)]

    @property
    def n_draws(self) -> int:
        """Number of components of the mixture."""
        return len(self.probability)

    def mean(self) -> np.ndarray:
        """Mean probabilities, (rows, classes); rows sum to one."""
        mean = self.probability.mean(0)
        mean /= mean.sum(-1, keepdims=True)
        return mean.astype(self.dtype, copy=False)

    def rows(self, index):
        """Select rows by index or slice."""
        return replace(self, probability=self.probability[:, index])

    def outcomes(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels, (1, classes), and their probabilities, (rows, draws, classes)."""
        probability = self.probability.astype(np.float64).swapaxes(0, 1)
        return self.classes[None], probability / probability.sum(-1, keepdims=True)

    def uncertainty(self, kinds) -> dict[str, np.ndarray]:
        """Uncertainties of the labels: {kind: (rows,)}."""
        uniform = self.uniform
        if uniform is None:
            uniform = np.random.default_rng(0).random(self.n_draws)
        return classification_uncertainty(lambda: [self.probability], kinds, uniform)

    def sample_f(self, draws: np.ndarray) -> np.ndarray:
        """Class probabilities of selected draws, (rows, classes, samples)."""
        return np.moveaxis(self.probability[draws], 0, -1)

    def sample(self, draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Sample one label from each selected draw, (rows, samples)."""
        uniform = random.random((self.probability.shape[1], len(draws))).T
        return self.classes[labels_at(self.probability[draws], uniform)].T

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Log of the mean probability of the labels y, (rows,)."""
        with np.errstate(divide="ignore"):
            return label_log_density(np.log(self.probability.mean(0)), self.classes, y)


def _all_classes(parts) -> np.ndarray:
    return np.unique(np.concatenate([part.classes for part in parts]))


def check_known(y, classes) -> None:
    """Raise if labels, (rows,), are not among the model's classes.

    Raises
    ------
    ValueError
    """
    is_known = np.isin(y, classes)
    if not is_known.all():
        unknown = np.unique(np.asarray(y)[~is_known]).tolist()
        raise ValueError(
            f"the labels in `y` must be among the model's classes {classes.tolist()}; "
            f"got {unknown[:10]}. The log probability of others is minus infinity."
        )


def label_log_density(log_probability, classes, y) -> np.ndarray:
    """Log probability of the label y in each row; minus infinity for unknown labels."""
    is_known = np.isin(y, classes)
    codes = columns_of(y[is_known], classes)
    result = np.full(len(y), -np.inf)
    result[is_known] = log_probability[is_known, codes]
    return result
