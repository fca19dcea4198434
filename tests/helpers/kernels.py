"""Kernels of wide layers: covariances of activations of normal variables."""

import numpy as np
from numpy.polynomial.hermite_e import hermegauss


def arc_sine(covariance):
    """E erf(u) erf(u'), (u, u') normal with that covariance."""
    scale = 1 + 2 * covariance.diagonal()
    inside = 2 * covariance / np.sqrt(np.outer(scale, scale))
    return 2 / np.pi * np.arcsin(inside)


def arc_cosine(covariance):
    """E relu(u) relu(v)."""
    std = np.sqrt(covariance.diagonal())
    cosine = np.clip(covariance / np.outer(std, std), -1, 1)
    angle = np.arccos(cosine)
    numerator = np.sin(angle) + (np.pi - angle) * cosine
    return np.outer(std, std) * numerator / (2 * np.pi)


def tanh_kernel(covariance):
    """E tanh(u) tanh(v), by Gauss-Hermite quadrature."""
    nodes, weights = hermegauss(60)
    weights = weights / weights.sum()
    actual = np.empty_like(covariance)
    for i, j in np.ndindex(covariance.shape):
        std = np.sqrt(covariance[i, i])
        slope = covariance[i, j] / std
        residual_std = np.sqrt(max(covariance[j, j] - slope**2, 0.0))
        v = slope * nodes[:, None] + residual_std * nodes
        actual[i, j] = weights @ (np.tanh(std * nodes)[:, None] * np.tanh(v)) @ weights
    return actual
