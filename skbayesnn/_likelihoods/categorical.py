"""Likelihoods of classes: softmax, and cumulative logits for ordered classes.

Both are tempered by tau, p(y | f)^tau: tau multiplies the cross entropy in eq. 1, so it
replaces the noise precision in eq. 3 and 4. Predictions do not use tau.

**Categorical.** The probabilities are softmax(f); binary problems have two classes. If
held-out rows estimate a temperature T, predictions are softmax(f / T) [Guo et al. 2017,
"On calibration of modern neural networks", ICML]. T maximises the log of the mean
probability over draws, with the prior log T ~ N(0, 0.5^2).

**Ordinal** [McCullagh 1980, proportional odds]. The network has one output f, and K
classes have cut points theta_1 < ... < theta_K-1:

    P(y <= k | f) = sigmoid(theta_k - f)

The cut points are learned as theta_1 and the logs of the differences between
neighbours. They have no prior, so they are point estimates.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import logsumexp
from torch.nn import functional

from skbayesnn._distributions.map_factor import log_mean_exp, map_estimate
from skbayesnn._likelihoods.base import OfLabels

# Bounds of the log temperature of predictions.
LOG_TEMPERATURE_BOUNDS = math.log(0.1), math.log(10.0)

# ---- softmax over the classes


@dataclass(frozen=True)
class Categorical(OfLabels):
    """Classes without an order."""

    name = "categorical"
    predictive_params = ("log_temperature",)

    @property
    def n_outputs(self):
        """Outputs of the network: one logit per class."""
        return self.n_classes

    @staticmethod
    def inverse_temperature(params) -> torch.Tensor | float:
        """1 / T of predictions, (members, 1, 1), or 1 if it is not estimated."""
        if "log_temperature" not in params:
            return 1.0
        return params["log_temperature"].unsqueeze(1).neg().exp()

    def nll_vjp(self, params, outputs, y):
        """``nll`` and its pullback without autograd."""
        tau = params["log_tau"].exp()
        log_p = outputs.log_softmax(-1)
        labels = y.unsqueeze(-1).expand(*log_p.shape[:-1], 1)
        log_p_y = log_p.gather(-1, labels)

        def pullback(gradient):
            grad_outputs = log_p.exp()
            grad_outputs.scatter_add_(-1, labels, torch.full_like(log_p_y, -1))
            return grad_outputs.mul_((tau * gradient).unsqueeze(-1)), {}

        return -tau * log_p_y.squeeze(-1), pullback

    def log_density(self, params, outputs, y):
        """log softmax(f)_y, (..., members, rows).

        outputs : (..., members, rows, classes)
        y : (members or 1, rows), class indices, int64
        """
        labels = y.expand(outputs.shape[:-1])
        nll = functional.cross_entropy(
            outputs.flatten(0, -2), labels.flatten(), reduction="none"
        )
        return -nll.view(labels.shape)

    def components(self, params, outputs):
        """Probabilities of every draw, (draws, members, rows, labels)."""
        scaled = outputs * self.inverse_temperature(params)
        return (self.label_probability(scaled.softmax(-1)),)

    def held_out_draws(self, params, outputs, y):
        """Logits minus the logit of the observed class.

        returns : (members, rows, 1, draws, classes)
        """
        labels = y.unsqueeze(-1).expand(*outputs.shape[:-1], 1)
        margins = outputs - outputs.gather(-1, labels)
        return margins.permute(1, 2, 0, 3).unsqueeze(2)

    def fit_predictive_params(self, draws, weights):
        """Estimate the temperature on held-out rows.

        draws : logits minus the logit of the observed class, (rows, 1, draws, classes)
        """
        margins = draws[:, 0].swapaxes(0, 1)

        def density(log_temperature):
            return log_mean_exp(-logsumexp(margins * np.exp(-log_temperature), axis=2))

        values, log_temperature = map_estimate(
            density, weights, *LOG_TEMPERATURE_BOUNDS
        )
        return values[:, None], {"log_temperature": np.array([log_temperature])}


# ---- cumulative logits for ordered classes [McCullagh 1980, proportional odds]


@dataclass(frozen=True)
class Ordinal(OfLabels):
    """Ordered classes; with two classes, the logistic model."""

    name = "ordinal"
    trainable = ("cuts",)

    @property
    def n_outputs(self):
        """Outputs of the network: one, larger for later classes."""
        return 1

    def statistics(self, y, weights):
        """Frequencies of the classes, (classes,).

        Half a row of mean weight is added to each class, so that none is empty.
        """
        counts = np.bincount(y, weights, minlength=self.n_classes)
        counts += 0.5 * weights.mean()
        return counts / counts.sum()

    def init(self, tau, statistics=None):
        """Initial cut points: at f = 0 the probabilities equal the frequencies.

        statistics : frequencies, (members, classes); None: equal frequencies
        """
        if statistics is None:
            statistics = tau.new_full((len(tau), self.n_classes), 1 / self.n_classes)
        cut_points = statistics.cumsum(1)[:, :-1].logit()
        cuts = torch.cat([cut_points[:, :1], cut_points.diff(dim=1).log()], dim=1)
        return super().init(tau) | {"cuts": cuts}

    def log_probability(self, params, outputs):
        """log P(y = k | f), (..., members, rows, classes).

        sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - e^(a - b)) avoids
        cancellation.

        outputs : (..., members, rows, 1)
        """
        first, log_differences = params["cuts"].unsqueeze(1).tensor_split([1], dim=-1)
        differences = log_differences.exp()
        cut_points = torch.cat([first, first + differences.cumsum(-1)], dim=-1)
        distance = cut_points - outputs
        return (
            functional.pad(functional.logsigmoid(distance), (0, 1))
            + functional.pad(functional.logsigmoid(-distance), (1, 0))
            + functional.pad((-(-differences).expm1()).log(), (1, 1))
        )

    def log_density(self, params, outputs, y):
        """log P(y | f), (..., members, rows).

        y : (members or 1, rows), class indices, int64
        """
        log_p = self.log_probability(params, outputs)
        labels = y.unsqueeze(-1).expand(*log_p.shape[:-1], 1)
        return log_p.gather(-1, labels).squeeze(-1)

    def components(self, params, outputs):
        """Probabilities of every draw, (draws, members, rows, labels)."""
        return (self.label_probability(self.log_probability(params, outputs).exp()),)
