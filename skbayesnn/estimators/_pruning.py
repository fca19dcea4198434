"""Remove weights that the posterior shows to be unnecessary [MAV17, BBB15].

The criterion is the dropout rate of a weight, or its signal-to-noise ratio.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any

import torch
from sklearn.utils.validation import check_is_fitted

from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.resources import as_tensor
from skbayesnn._families.mean_field import signal_to_noise
from skbayesnn._networks import Perceptron
from skbayesnn._runtime import atomic_update
from skbayesnn._stored import OPTIONAL
from skbayesnn.estimators import _fitted
from skbayesnn.estimators._base import BayesianNetwork

# A weight with a larger log alpha is noise: dropout rate 0.95 [MAV17 section 5].
THRESHOLD = 3.0


def n_connections(sizes) -> int:
    """Number of weights of one network, without biases."""
    return sum(a * b for a, b in pairwise(sizes))


def n_used(posterior: Posterior, threshold: float) -> float:
    """Number of weights that are neither zero nor noise, mean over the networks."""
    n_all = sum(int(used.sum()) for used in less_noisy(posterior, threshold))
    return n_all / posterior.n_members


def log_alpha(posterior: Posterior) -> list[torch.Tensor]:
    """log alpha of the weights, per layer (members, inputs, outputs).

    Minus infinity for weights without noise.
    """
    return [
        torch.where(params["mean"] == 0, -torch.inf, family.log_alpha_of(params))
        for family, params in zip(
            posterior.network.families, posterior.layers, strict=True
        )
    ]


def prune(posterior: Posterior, used: list[torch.Tensor]) -> Posterior:
    """Set unused weights to zero, and remove hidden units without outgoing weights.

    Only for multilayer perceptrons, where the outputs of a unit go to the next layer.

    used : per layer (members, inputs, outputs), bool
    """
    groups = zip(posterior.network.families, posterior.layers, used, strict=True)
    layers = [family.without(params, mask) for family, params, mask in groups]
    perceptron = Perceptron.from_description(posterior.network.describe())
    sizes = list(perceptron.sizes)
    # Start at the outputs: a unit that only feeds removed units is removed, too.
    for i in reversed(range(1, len(layers))):
        units = (layers[i]["mean"] != 0).any(2).any(0).nonzero().flatten()
        units = units if len(units) else torch.zeros(1, dtype=torch.int64)
        layers[i - 1] = _take(layers[i - 1], units, axis=2)
        layers[i] = _take(layers[i], units, axis=1)
        sizes[i] = len(units)
    network = replace(perceptron, sizes=tuple(sizes))
    return replace(posterior, network=network, layers=layers)


def less_noisy(posterior: Posterior, threshold: float) -> list[torch.Tensor]:
    """Nonzero weights whose log alpha is at most a threshold.

    returns : per layer (members, inputs, outputs), bool
    """
    return [
        (params["mean"] != 0) & (alpha <= threshold)
        for params, alpha in zip(posterior.layers, log_alpha(posterior), strict=True)
    ]


def clearest(posterior: Posterior, share: float) -> list[torch.Tensor]:
    """Weights of each network without the share with the lowest |mean| / std.

    returns : per layer (members, inputs, outputs), bool
    """
    ratios = [signal_to_noise(params) for params in posterior.layers]
    flat = torch.cat([ratio.flatten(1) for ratio in ratios], dim=1)
    dropped = round(share * flat.shape[1])
    rank = flat.argsort(dim=1).argsort(dim=1)
    kept = (rank >= dropped).split([ratio[0].numel() for ratio in ratios], dim=1)
    return [k.view_as(ratio) for k, ratio in zip(kept, ratios, strict=True)]


def _take(params, units: torch.Tensor, axis: int):
    """Select inputs (axis 1) or outputs (axis 2) of a layer's parameters.

    Weights have the axes (members, inputs, outputs), where an axis of length 1 is
    shared by all units. Biases have the axes (members, outputs).
    """
    selected = {}
    for name, value in params.items():
        value_axis = axis - 1 if value.ndim == 2 else axis
        shared = value.shape[value_axis] == 1 and value.ndim == 3
        absent = value_axis == 0
        selected[name] = (
            value if shared or absent else value.index_select(value_axis, units)
        )
    return selected


class Prunable(BayesianNetwork):
    """Base class of the methods with ``prune``."""

    # None, or the rule of `prune`, the sizes before, and scores before and after.
    pruning_: Annotated[dict[str, Any] | None, OPTIONAL]

    def _check_can_continue(self, job, target_attributes):
        pruning = getattr(self, "pruning_", None)
        if pruning is not None:
            rule, value = next(iter(pruning.items()))
            raise ValueError(
                "continued training (warm_start, partial_fit) must start from a "
                "network that is not pruned, since pruned weights would grow again; "
                f"got one pruned with {rule}={value:g}. Set warm_start=False, or fit a "
                "clone."
            )
        super()._check_can_continue(job, target_attributes)

    def _store_fitted(self, trained_job):
        super()._store_fitted(trained_job)
        self.pruning_ = None

    def _prune(self, rule: dict[str, float], choose, X, y):
        """Remove all weights but those that ``choose(posterior)`` selects.

        rule : name and value of the criterion, for ``pruning_``
        """
        check_is_fitted(self)
        if self.network_["name"] != "mlp":
            raise ValueError(
                "`prune` requires a multilayer perceptron; got "
                f"{type(self.network).__name__}. Fit with network=None."
            )
        if (X is None) != (y is None):
            raise ValueError(
                "`X` and `y` are the rows to score and must be given together; got "
                f"only {'y' if X is None else 'X'}."
            )
        with atomic_update(self) as new:
            before = None if X is None else new.score(X, y)
            sizes, posterior = self._sizes_of_fit(), self._plain_posterior()
            posterior = prune(posterior, choose(posterior))
            new.parameters_ = _fitted.to_arrays(posterior)
            new.network_ = _fitted.describe_network(
                posterior.network, posterior.likelihood
            )
            after = None if X is None else new.score(X, y)
            scores = {"score_before": before, "score_after": after}
            new.pruning_ = rule | {"sizes": sizes} | scores
        return self

    def _sizes_of_fit(self):
        """Layer sizes before any pruning."""
        description = getattr(self, "pruning_", None) or self.network_
        return description["sizes"]

    def _plain_posterior(self):
        """Posterior on the CPU, in the precision of the stored parameters."""
        dtype = as_tensor(self.parameters_["layers/0/mean"]).dtype
        return _fitted.restore_posterior(self, torch.device("cpu"), dtype)
