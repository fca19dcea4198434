"""Class probabilities of the draws."""

from dataclasses import dataclass

import numpy as np

from skbayesnn._distributions.base import DrawArrays


@dataclass(frozen=True)
class Labels(DrawArrays):
    """Probabilities of the classes, (draws, rows, classes)."""

    probability: np.ndarray


def labels_at(probability: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Class numbers whose cumulative probability is the first above ``uniform``.

    probability : (..., classes), up to a factor; uniform : (...), in [0, 1)
    """
    cumulative = probability.cumsum(-1)
    cumulative /= cumulative[..., -1:]
    return (cumulative <= uniform[..., None]).sum(-1)


def columns_of(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Column of each label, in the shape of ``labels``.

    labels : each is one of ``classes``
    classes : (classes,), in any order, each once
    """
    order = np.argsort(classes, kind="stable")
    return order[np.searchsorted(classes, labels, sorter=order)]
