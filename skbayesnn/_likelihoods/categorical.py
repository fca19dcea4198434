"""Categorical likelihood: softmax over the classes (binary is two classes).

tau tempers the likelihood, p(y | f)^tau: it multiplies the cross entropy in eq. 1 and
so stands where the noise precision stands in eq. 3 and 4. Predictions are softmax(f).
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from skbayesnn._likelihoods.base import OfLabels


@dataclass(frozen=True)
class Categorical(OfLabels):
    """Classes without an order."""

    name = "categorical"

    @property
    def n_outputs(self):
        """Outputs of the network: one logit per class."""
        return self.n_classes

    def nll_vjp(self, params, outputs, y):
        """By hand, from one softmax."""
        tau = params["log_tau"].exp()
        log_p = outputs.log_softmax(-1)
        labels = y.unsqueeze(-1).expand(*log_p.shape[:-1], 1)
        found = log_p.gather(-1, labels)

        def pullback(gradient):
            of_outputs = log_p.exp()
            of_outputs.scatter_add_(-1, labels, torch.full_like(found, -1))
            return of_outputs.mul_((tau * gradient).unsqueeze(-1)), {}

        return -tau * found.squeeze(-1), pullback

    def log_density(self, params, outputs, y):
        """log softmax(f)_y, (..., members, rows).

        outputs : (..., members, rows, classes)
        y : (members or 1, rows), class numbers, int64
        """
        labels = y.expand(outputs.shape[:-1])
        nll = functional.cross_entropy(
            outputs.flatten(0, -2), labels.flatten(), reduction="none"
        )
        return -nll.view(labels.shape)

    def components(self, params, outputs):
        """Probabilities of every draw, (draws, members, rows, labels)."""
        return (self.of_labels(outputs.softmax(-1)),)
