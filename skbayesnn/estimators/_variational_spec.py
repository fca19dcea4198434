"""What a method (MC dropout, Bayes by Backprop, ...) brings to a fit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from skbayesnn._families import Family
from skbayesnn._inference.hooks import Hook


@dataclass(frozen=True)
class VariationalSpec:
    """The posterior's families, its prior, and how it is trained.

    Parameters
    ----------
    dropout : ndarray of shape (layers,)
        Given rates, or where learning them starts.
    families : tuple of Family
        Of every weight layer.
    prior : str
        A key of ``skbayesnn._priors.PRIORS``.
    prior_fields : mapping of str to float or ndarray of shape (layers,)
        The prior's numbers beside ``length_scale``.
    kl_weighting, kl_warm_up, gradient, n_training_draws, perturbed, noise_from, hooks
        As in :class:`skbayesnn._inference.plan.Plan`.
    """

    dropout: np.ndarray
    families: tuple[Family, ...]
    prior: str = "gaussian"
    prior_fields: Mapping[str, float | np.ndarray] = field(default_factory=dict)
    kl_weighting: str = "uniform"
    kl_warm_up: float = 0.0
    gradient: str = "pathwise"
    n_training_draws: int = 1
    perturbed: bool = False
    noise_from: str = "residuals"
    hooks: tuple[Callable[[], Hook], ...] = ()
