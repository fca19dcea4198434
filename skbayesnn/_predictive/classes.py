"""The predictive of a few rows of a classification, all draws held."""

import math
from dataclasses import dataclass, replace

import numpy as np

from skbayesnn._distributions.components import Labels, columns_of, labels_at
from skbayesnn._predictive.summaries import (
    CLASSIFICATION_KINDS,
    classification_uncertainty,
)


@dataclass(frozen=True)
class ClassPredictive:
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
    def pooled(cls, parts, classes=None, n_draws=None):
        """The mixture of mixtures, which weigh alike.

        A member may know only some of the classes; by default they are all that any
        knows.

        n_draws : of each part, which then weighs as many; a sequence of int
        """
        if classes is None:
            classes = _all_classes(parts)
        widened = [part._widened(classes) for part in parts]
        if n_draws is None:
            n_draws = [math.lcm(*(one.n_draws for one in widened))] * len(widened)
        sized = [one.resized(n) for one, n in zip(widened, n_draws, strict=True)]
        return cls(Labels.concatenated(sized).probability, classes)

    @classmethod
    def of_other_rows(cls, parts):
        """One predictive of the rows of several, one after the other."""
        classes = _all_classes(parts)
        n_draws = max(part.n_draws for part in parts)
        widened = [part._widened(classes).resized(n_draws) for part in parts]
        return cls(Labels.concatenated(widened, axis=1).probability, classes)

    def _widened(self, classes) -> Labels:
        """With a probability of zero for the classes that it does not know."""
        full = np.zeros((*self.probability.shape[:2], len(classes)))
        full[..., columns_of(self.classes, classes)] = self.probability
        return Labels(full)

    def among(self, classes):
        """The same of these classes, with zero for those that it does not know."""
        return replace(
            self, probability=self._widened(classes).probability, classes=classes
        )

    def in_units_of_target(self):
        """The same: labels have no units."""
        return self

    def labelled(self, classes):
        """The same with labels, where the classes are positions in ``classes``.

        Some meta-estimators fit the inner classifier to positions in place of labels.
        A classifier that was fitted before (a ``FrozenEstimator``) has labels.
        """
        own = self.classes
        if own.dtype.kind in "iu" and np.isin(own, np.arange(len(classes))).all():
            return replace(self, classes=classes[own])
        if not np.isin(own, classes).all():
            raise ValueError(
                "the members of an ensemble must have labels that it has, "
                f"{classes.tolist()}; got {own.tolist()}."
            )
        return self

    def tempered(self, inverse: float):
        """Every draw's probabilities to this power, normalised."""
        with np.errstate(divide="ignore"):
            log_probability = inverse * np.log(self.probability)
        log_probability -= log_probability.max(-1, keepdims=True)
        probability = np.exp(log_probability)
        return replace(
            self, probability=probability / probability.sum(-1, keepdims=True)
        )

    def corrected(self, factor, bound):
        """With a temperature, (1,), of every draw: nothing to be bounded."""
        return self.tempered(1 / factor.item())

    def densities_of_factor(self, y, bound):
        """Log temperature -> log probability of the labels y, (rows,); in a list."""
        return [lambda log_t: self.tempered(np.exp(-log_t)).log_density(y)]

    @property
    def n_draws(self) -> int:
        """Components of the mixture."""
        return len(self.probability)

    def mean(self) -> np.ndarray:
        """Mean probabilities, (rows, classes); rows sum to one."""
        mean = self.probability.mean(0)
        return mean / mean.sum(-1, keepdims=True)

    def uncertainty(self, kinds) -> dict[str, np.ndarray]:
        """Measures of eq. 7: {kind: (rows,)}."""
        uniform = np.random.default_rng(0).random(self.n_draws)
        return classification_uncertainty(lambda: [self.probability], kinds, uniform)

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


def _all_classes(parts) -> np.ndarray:
    return np.unique(np.concatenate([part.classes for part in parts]))


def check_known(y, classes) -> None:
    """Refuse labels, (rows,), that a model does not know.

    Raises
    ------
    ValueError
    """
    known = np.isin(y, classes)
    if not known.all():
        unknown = np.unique(np.asarray(y)[~known]).tolist()
        raise ValueError(
            f"`y` must hold labels that the model knows, {classes.tolist()}; got "
            f"{unknown[:10]}. The log probability of others is minus infinity."
        )


def label_log_density(log_probability, classes, y) -> np.ndarray:
    """Entry of the label y in each row; minus infinity for unknown labels."""
    known = np.isin(y, classes)
    codes = columns_of(y[known], classes)
    result = np.full(len(y), -np.inf)
    result[known] = log_probability[known, codes]
    return result
