"""Categorical likelihood: softmax over the classes (binary is two classes).

tau tempers the likelihood, p(y | f)^tau: it multiplies the cross entropy in eq. 1 and
so stands where the noise precision stands in eq. 3 and 4. Predictions are softmax(f).

Cumulative logits: classes with an order [McCullagh 1980, proportional odds].

The network has one output f, and K classes have cut points theta_1 < ... < theta_K-1:

    P(y <= k | f) = sigmoid(theta_k - f)

The cut points are learned as theta_1 and the logs of the gaps between neighbours. They
have no prior (that of the network does not reach them): point estimates, beside a
posterior of f. tau tempers as in ``categorical.py``.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from skbayesnn._likelihoods.base import OfLabels

# ---- Categorical likelihood: softmax over the classes (binary is two classes)


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


# ---- cumulative logits: classes with an order [McCullagh 1980, proportional odds]


@dataclass(frozen=True)
class Ordinal(OfLabels):
    """Classes in the order of their numbers; of two classes the logistic model."""

    name = "ordinal"
    trainable = ("cuts",)

    @property
    def n_outputs(self):
        """Outputs of the network: one, larger for later classes."""
        return 1

    def statistics(self, y, weights):
        """Shares of the classes, (classes,).

        Half a row of mean weight is added to each, so that none is empty.
        """
        counts = np.bincount(y, weights, minlength=self.n_classes)
        counts += 0.5 * weights.mean()
        return counts / counts.sum()

    def init(self, tau, statistics=None):
        """At f = 0 the classes have their shares, or even ones without statistics.

        statistics : (members, classes)
        """
        if statistics is None:
            statistics = tau.new_full((len(tau), self.n_classes), 1 / self.n_classes)
        cut_points = statistics.cumsum(1)[:, :-1].logit()
        cuts = torch.cat([cut_points[:, :1], cut_points.diff(dim=1).log()], dim=1)
        return super().init(tau) | {"cuts": cuts}

    def log_probability(self, params, outputs):
        """log P(y = k | f), (..., members, rows, classes).

        Without cancellation, by sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a)
        (1 - e^(a - b)); outputs : (..., members, rows, 1).
        """
        first, log_gaps = params["cuts"].unsqueeze(1).tensor_split([1], dim=-1)
        gaps = log_gaps.exp()
        cut_points = torch.cat([first, first + gaps.cumsum(-1)], dim=-1)
        above_f = cut_points - outputs
        return (
            functional.pad(functional.logsigmoid(above_f), (0, 1))
            + functional.pad(functional.logsigmoid(-above_f), (1, 0))
            + functional.pad((-(-gaps).expm1()).log(), (1, 1))
        )

    def log_density(self, params, outputs, y):
        """log P(y | f), (..., members, rows).

        y : (members or 1, rows), class numbers, int64
        """
        log_p = self.log_probability(params, outputs)
        labels = y.unsqueeze(-1).expand(*log_p.shape[:-1], 1)
        return log_p.gather(-1, labels).squeeze(-1)

    def components(self, params, outputs):
        """Probabilities of every draw, (draws, members, rows, labels)."""
        return (self.of_labels(self.log_probability(params, outputs).exp()),)
