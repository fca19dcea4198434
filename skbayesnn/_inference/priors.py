"""What is asked of the members -> the prior of every group of their parameters."""

from dataclasses import replace

import torch

from skbayesnn._inference.noise import anchor_normal
from skbayesnn._inference.plan import Members, Plan
from skbayesnn._inference.posterior import Posterior
from skbayesnn._priors import PRIORS, AnchoredPrior, Prior


def priors_of(plan: Plan, members: Members, posterior: Posterior) -> tuple[Prior, ...]:
    """The prior of every group.

    posterior : of the members; its values do not matter, their shapes do
    """
    kind = PRIORS[plan.prior]
    found = []
    for group, params in enumerate(posterior.layers):
        like, fields = params["mean"], members.prior[group]
        if issubclass(kind, AnchoredPrior):
            inputs, outputs = like.shape[1:]
            numbers = anchor_normal(members.seeds, group, inputs + 1, outputs)
            drawn = {"numbers": numbers[:, :-1], "bias_numbers": numbers[:, -1]}
            fields = fields | drawn
        tensors = {name: torch.as_tensor(v).to(like) for name, v in fields.items()}
        found.append(kind(**tensors))
    return tuple(found)


def at_anchors(posterior: Posterior, priors: tuple[Prior, ...]) -> Posterior:
    """Every member at its own draw from the prior, where it has one."""
    layers = [
        params | {"mean": prior.weight.centre, "bias": prior.bias.centre}
        if isinstance(prior, AnchoredPrior)
        else params
        for params, prior in zip(posterior.layers, priors, strict=True)
    ]
    return replace(posterior, layers=layers)
