"""A fitted estimator -> the draws of its posterior, on rows in their own units."""

import numpy as np
import sklearn
import torch
from scipy import sparse

from skbayesnn._data.sparse_rows import SparseRows, suits_sparse_rows
from skbayesnn._inference.mean_noise import MeanWeights
from skbayesnn._inference.memory import tensor_of
from skbayesnn._inference.posterior import Posterior
from skbayesnn._inference.predictive import OpenPosterior
from skbayesnn._predictive.mixin import stream_of
from skbayesnn._warnings import warn
from skbayesnn.estimators import _serialization, _validation

# What predictions can be made of.
METHODS = ("draws", "mean_weights")


def fitted_posterior(estimator, X) -> Posterior:
    """The fitted posterior, on the device and in the precision for X."""
    device = _validation.device_for_prediction(estimator.device)
    dtype = torch.float32 if X.dtype == np.float32 else torch.float64
    dtype = torch.float32 if device.type == "mps" else dtype
    return estimator._cache.posterior(estimator, device, dtype)


def posterior_by(estimator, X, method: str) -> Posterior:
    """The fitted posterior, or with ``"mean_weights"`` its networks of mean weights."""
    _validation.check_option("method", method, METHODS)
    posterior = fitted_posterior(estimator, X)
    return MeanWeights.of(posterior) if method == "mean_weights" else posterior


def open_posterior(
    estimator, X, posterior: Posterior | None = None, n_draws: int | None = None
) -> OpenPosterior:
    """The draws of a posterior, by default the fitted one's, on checked rows."""
    posterior = posterior or fitted_posterior(estimator, X)
    scaling = _serialization.scaling_of(estimator)
    on_cpu, takes_sparse = (
        posterior.device.type == "cpu",
        posterior.network.takes_sparse,
    )
    is_sparse = on_cpu and takes_sparse and suits_sparse_rows(X, scaling)

    def rows(chunk: slice) -> torch.Tensor | SparseRows:
        if is_sparse:
            return SparseRows.of(X[chunk], scaling)
        values = X[chunk].toarray() if sparse.issparse(X) else X[chunk]
        values = scaling.x_to_network(values).astype(X.dtype, copy=False)
        return tensor_of(values).to(posterior.device, posterior.dtype)

    budget = int(sklearn.get_config()["working_memory"] * 2**20)
    n_draws = n_draws or estimator.n_draws
    return OpenPosterior(posterior, rows, X.shape[0], n_draws, budget, is_sparse)


def warn_of_nan(predicted: np.ndarray) -> None:
    """Say so where rows have no prediction, (rows, ...)."""
    lacking = np.isnan(predicted).reshape(len(predicted), -1).any(1)
    if lacking.any():
        warn(
            f"{lacking.sum()} rows have no prediction but NaN, first row "
            f"{lacking.argmax()}: their inputs, or what the network makes of them, are "
            f"too large for {predicted.dtype}. Are they in the units of the fit?",
            RuntimeWarning,
        )


def random_functions(estimator, X, n_samples: int, random_state):
    """Components of freshly drawn functions (n_samples, rows, ...), and a generator.

    Each sample is a draw of the weights of a network picked at random; X is checked.
    """
    _validation.check_number("n_samples", n_samples, kind=_validation.Integral, low=1)
    random = np.random.default_rng(stream_of(random_state))
    posterior = fitted_posterior(estimator, X).reseed(int(random.integers(2**31)))
    member_of_sample = random.integers(posterior.n_members, size=n_samples)
    parts = []
    for member in np.unique(member_of_sample):
        n_wanted = (member_of_sample == member).sum()
        one = posterior.select(np.array([member]))
        drawn = open_posterior(estimator, X, one, n_wanted).whole()
        parts.append(drawn.repeated(n_wanted) if drawn.n_draws == 1 else drawn)
    of_samples = np.argsort(np.argsort(member_of_sample, kind="stable"))
    return type(parts[0]).concatenated(parts).draws(of_samples), random
