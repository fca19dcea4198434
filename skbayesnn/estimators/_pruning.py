"""Posteriors say which weights are needless; here they are dropped [MAV17, BBB15].

By the rate of their noise, or by the ratio of signal to noise.
"""

from dataclasses import replace
from itertools import pairwise

import torch
from sklearn.utils.validation import check_is_fitted

from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.resources import tensor_of
from skbayesnn._families.mean_field import signal_to_noise
from skbayesnn._networks import MLP
from skbayesnn._runtime import atomic_update
from skbayesnn.estimators import _fitted
from skbayesnn.estimators._base import BayesianNetwork

# log alpha above which a weight is noise: a dropout rate of 0.95 [MAV17 section 5].
THRESHOLD = 3.0


def n_connections(sizes) -> int:
    """Weights of one network, biases apart."""
    return sum(a * b for a, b in pairwise(sizes))


def n_used(posterior: Posterior, threshold: float) -> float:
    """Weights that are neither zero nor noise, mean over the networks."""
    used = sum(int(of_layer.sum()) for of_layer in less_noisy(posterior, threshold))
    return used / posterior.n_members


def log_alpha(posterior: Posterior) -> list[torch.Tensor]:
    """Of every weight, per layer (members, inputs, outputs); -inf without noise."""
    return [
        torch.where(params["mean"] == 0, -torch.inf, family.log_alpha_of(params))
        for family, params in zip(
            posterior.network.families, posterior.layers, strict=True
        )
    ]


def prune(posterior: Posterior, used: list[torch.Tensor]) -> Posterior:
    """Without the weights that are not used, and the units that nothing uses.

    Of perceptrons: what a unit feeds is the next layer.

    used : per layer (members, inputs, outputs), bool
    """
    groups = zip(posterior.network.families, posterior.layers, used, strict=True)
    layers = [family.without(params, mask) for family, params, mask in groups]
    perceptron = MLP.from_description(posterior.network.describe())
    sizes = list(perceptron.sizes)
    # From the outputs down: a unit that only fed removed units is not used either.
    for i in reversed(range(1, len(layers))):
        units = (layers[i]["mean"] != 0).any(2).any(0).nonzero().flatten()
        units = units if len(units) else torch.zeros(1, dtype=torch.int64)
        layers[i - 1] = _take(layers[i - 1], units, axis=2)
        layers[i] = _take(layers[i], units, axis=1)
        sizes[i] = len(units)
    network = replace(perceptron, sizes=tuple(sizes))
    return replace(posterior, network=network, layers=layers)


def less_noisy(posterior: Posterior, threshold: float) -> list[torch.Tensor]:
    """Weights of a log alpha up to this, per layer (members, inputs, outputs), bool."""
    return [
        (params["mean"] != 0) & (of_layer <= threshold)
        for params, of_layer in zip(posterior.layers, log_alpha(posterior), strict=True)
    ]


def clearest(posterior: Posterior, share: float) -> list[torch.Tensor]:
    """All but a share of each network's weights, those of the lowest |m| / sigma.

    returns : per layer (members, inputs, outputs), bool
    """
    ratios = [signal_to_noise(params) for params in posterior.layers]
    flat = torch.cat([ratio.flatten(1) for ratio in ratios], dim=1)
    dropped = round(share * flat.shape[1])
    place = flat.argsort(dim=1).argsort(dim=1)
    kept = (place >= dropped).split([ratio[0].numel() for ratio in ratios], dim=1)
    return [k.view_as(ratio) for k, ratio in zip(kept, ratios, strict=True)]


def _take(params, units: torch.Tensor, axis: int):
    """Some of a layer's inputs (axis 1) or outputs (axis 2), where there is an axis.

    Parameters have three axes, members first; the bias has the outputs only.
    """
    taken = {}
    for name, value in params.items():
        of_value = axis - 1 if value.ndim == 2 else axis
        shared = value.shape[of_value] == 1 and value.ndim == 3
        absent = of_value == 0
        taken[name] = value if shared or absent else value.index_select(of_value, units)
    return taken


class Prunable(BayesianNetwork):
    """Base of the methods whose posterior says which weights it could do without."""

    # What `prune` did: None, or its rule, the sizes before, and scores.
    pruning_: dict | None

    def _check_can_go_on(self, job, of_y):
        done = getattr(self, "pruning_", None)
        if done is not None:
            rule, value = next(iter(done.items()))
            raise ValueError(
                "a fit that goes on (warm_start, partial_fit) would let pruned "
                f"weights grow again; this network was pruned with {rule}={value:g}. "
                "Set warm_start=False, or fit a clone."
            )
        super()._check_can_go_on(job, of_y)

    def _adopt(self, job, *, seen):
        super()._adopt(job, seen=seen)
        self.pruning_ = None

    def _prune(self, rule: dict[str, float], choose, X, y):
        """Keep the weights that ``choose`` says of the posterior.

        rule : what it goes by, for ``pruning_``
        """
        check_is_fitted(self)
        if self.network_["name"] != "mlp":
            raise ValueError(
                "`prune` removes units of perceptrons; got "
                f"{type(self.network).__name__}. Fit it with network=None."
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
            new.parameters_ = _fitted.arrays_of(posterior)
            new.network_ = _fitted.description_of(
                posterior.network, posterior.likelihood
            )
            after = None if X is None else new.score(X, y)
            scores = {"score_before": before, "score_after": after}
            new.pruning_ = rule | {"sizes": sizes} | scores
        return self

    def _sizes_of_fit(self):
        """Layer sizes before any pruning."""
        about = getattr(self, "pruning_", None) or self.network_
        return about["sizes"]

    def _plain_posterior(self):
        """The networks on the CPU, in the precision that they are kept in."""
        dtype = tensor_of(self.parameters_["layers/0/mean"]).dtype
        return _fitted.posterior_of(self, torch.device("cpu"), dtype)
