"""The objective by autograd, as a reference for the analytic gradients."""

import torch

from skbayesnn._networks.activations import ACTIVATIONS


def forward(network, layers, keep, x, noise):
    """One stochastic pass of a perceptron with its graph; random numbers per row.

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
    row_weights : (members or 1, batch rows), or None if all are one
    """
    outputs = forward(q.network, q.layers, q.keep, x, noise)
    nll = q.likelihood.nll(q.likelihood_params, outputs, y)
    weights = torch.ones_like(nll) if row_weights is None else row_weights
    return (weights * nll / objective.mean_weight.unsqueeze(1)).mean(1)


def tangent_kernel(network, weights, variances, x, outputs):
    """J V J^T of ``apply``, row by row with autograd.

    As ``Network.tangent_kernel``; the weights have no mask per row.
    """
    kernels = []
    for i in range(weights[0][0].shape[1]):
        parameters = [
            (w[:, [i]].requires_grad_(), b.flatten(0, -2)[[i]].requires_grad_())
            for w, b in weights
        ]
        rows = x if len(x) == 1 else x[[i]]
        values = network.apply(parameters, rows)[0, 0, :, outputs].mT.flatten()
        leaves = [value for group in parameters for value in group]
        leaf_variances = [value[i] for group in variances for value in group]
        kernel = torch.zeros(len(values), len(values), dtype=x.dtype)
        slopes = [torch.autograd.grad(v, leaves, retain_graph=True) for v in values]
        for variance, *slopes_of_rows in zip(leaf_variances, *slopes, strict=True):
            slope = torch.stack(slopes_of_rows).flatten(1)
            kernel = kernel + variance * slope @ slope.mT
        kernels.append(kernel)
    return torch.stack(kernels)
