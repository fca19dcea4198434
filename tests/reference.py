"""The objective by autograd: what the gradients by hand are compared with."""

import torch

from skbayesnn._networks.activations import ACTIVATIONS


def forward(network, layers, keep, x, noise):
    """One stochastic pass of a perceptron, noise per row, with its graph.

    x : (members or 1, rows, inputs)
    returns : (members, rows, outputs)
    """
    activate = ACTIVATIONS[network.activation].function
    groups = zip(network.families, layers, keep, strict=True)
    for i, (family, params, p) in enumerate(groups):
        x = family.linear(params, p, activate(x) if i else x, noise)
    return x


def mean_nll(objective, q, x, y, row_weights, noise):
    """Expected negative log-likelihood per row, eq. 1 and 2; (members,), nats.

    x : (members or 1, batch rows, inputs)
    y : (members or 1, batch rows, targets), or class numbers without last axis
    row_weights : (members or 1, batch rows), or None where all are one
    """
    outputs = forward(q.network, q.layers, q.keep, x, noise)
    nll = q.likelihood.nll(q.likelihood_params, outputs, y)
    weights = torch.ones_like(nll) if row_weights is None else row_weights
    return (weights * nll / objective.mean_weight.unsqueeze(1)).mean(1)
