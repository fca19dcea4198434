"""Base classes of likelihoods p(y | f) for the outputs f of a network.

All tensors have the members axis first. ``params`` is the dict of tensors that ``init``
returns. y and f are in the network's scale. tau is the noise precision, given or
learned (see :class:`Precision`), or the inverse temperature (see :class:`Tempered`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn import functional

from skbayesnn._distributions.components import Labels

Params = dict[str, torch.Tensor]
# Takes the gradient of the nll, (members or 1, rows or 1). Returns the gradients of the
# outputs, and of the learned parameters by name.
LikelihoodPullback = Callable[[torch.Tensor], tuple[torch.Tensor, Params]]

# Lower bound of a learned noise std, as a share of the std of y. Without it, the
# precision diverges for targets that the network can interpolate.
MIN_NOISE = 1e-3
MAX_LOG_TAU = -2 * math.log(MIN_NOISE)
# Lower bound of log tau, so that variances do not overflow, also in float32.
MIN_LOG_TAU = -70.0


class Likelihood(ABC):
    """Base class of likelihoods p(y | f).

    Subclasses are frozen dataclasses of plain values: the number of targets or classes,
    and options. They implement ``nll`` and ``components``. Gradients come from autograd
    by default; without it, a step of a small network is much faster.
    """

    # Key in the table, and value of the estimators' parameter ``likelihood``.
    name: ClassVar[str]
    # Whether y holds class indices; else y is (rows, targets).
    is_classification: ClassVar[bool] = False
    # Whether y is centred and scaled for the network.
    standardizes_y: ClassVar[bool] = True
    # Whether outliers are expected; they are then ignored when y is scaled.
    robust: ClassVar[bool] = False
    # Whether y holds intervals; see ``_likelihoods/intervals.py``.
    of_intervals: ClassVar[bool] = False
    # Whether tau is an inverse temperature instead of the precision of the noise.
    tempered: ClassVar[bool] = False
    # Whether the observation noise depends on the row.
    row_noise: ClassVar[bool] = False
    # Whether it has the same normal distribution for all rows.
    equal_noise: ClassVar[bool] = False
    # Class of the predictive components: a ``Components``, or ``Labels``.
    components_class: ClassVar[type[Any]]
    # Whether tau is a parameter of ``nll`` that is learned with the weights.
    learned: bool
    __dataclass_fields__: ClassVar[dict]

    @classmethod
    def build(cls, n: int, learned: bool, options: dict) -> "Likelihood":
        """Construct a likelihood for n targets or classes.

        learned : whether tau is trained with the weights
        options : other fields by name; ``__post_init__`` checks them
        """
        return cls(n, **options)  # type: ignore[call-arg]

    def describe(self) -> dict:
        """Plain values from which ``likelihood_from`` constructs it again."""
        return {"name": self.name} | asdict(self)

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of outputs of the network."""

    @property
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that are learned."""
        return ()

    @property
    def gaussian_targets(self) -> int:
        """Number of targets with Gaussian noise, for ``perturbation_slope``; or 0."""
        return 0

    @property
    def predictive_params(self) -> tuple[str, ...]:
        """Names of the noise parameters that are estimated after the training.

        Only predictions use them, see ``with_predictive_params``. Each has one value
        per target.
        """
        return ()

    @classmethod
    def check_y(cls, y: np.ndarray) -> None:
        """Check that y (rows, targets) is in the support of the likelihood.

        Raises
        ------
        ValueError
            If a value of y has no density.
        """
        return None

    def statistics(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Statistics of the training rows for ``init``, (statistics,); empty if none.

        y : (rows, targets), in the network's scale, or class indices (rows,)
        """
        return np.empty(0)

    @abstractmethod
    def init(self, tau: torch.Tensor, statistics: torch.Tensor | None = None) -> Params:
        """Initial parameters.

        tau : (members, targets or 1), given, or the initial value if it is learned
        statistics : results of ``statistics``, (members, statistics)
        """

    def schedule(self, params: Params, progress: float) -> None:
        """Update params, before each epoch, by the share of the training in [0, 1]."""
        return None

    @abstractmethod
    def nll(
        self, params: Params, outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """-log p(y | f), which the training minimises, (..., members, rows), nats.

        outputs : (..., members, rows, n_outputs)
        y : (members or 1, rows, targets), or class indices (members or 1, rows)
        """

    def nll_vjp(
        self, params: Params, outputs: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, LikelihoodPullback]:
        """``nll`` (members, rows), and its pullback. Call it without autograd."""
        learned = {
            name: params[name].detach().requires_grad_() for name in self.trainable
        }
        outputs = outputs.detach().requires_grad_()
        with torch.enable_grad():
            nll = self.nll(params | learned, outputs, y)

        def pullback(gradient):
            grad_outputs, *grad_learned = torch.autograd.grad(
                nll,
                [outputs, *learned.values()],
                gradient.expand_as(nll),
                materialize_grads=True,
            )
            return grad_outputs, dict(zip(learned, grad_learned, strict=True))

        return nll.detach(), pullback

    def perturbation_slope(
        self, params: Params, outputs: torch.Tensor, perturbation: torch.Tensor
    ) -> torch.Tensor:
        """Change of the gradient of ``nll`` in the outputs if y is perturbed.

        perturbation : (members, rows, targets), in units of the observation noise std
        returns : in the shape of the outputs
        """
        raise NotImplementedError(f"{type(self).__name__} has no Gaussian noise.")

    def log_density(
        self, params: Params, outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """log p(y | f), (..., members, rows); shapes as in ``nll``."""
        return -self.nll(params, outputs, y)

    @abstractmethod
    def components(
        self, params: Params, outputs: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Predictive distributions of the draws, as fields of ``components_class``.

        outputs : (draws, members, rows, n_outputs)
        returns : tensors (draws, members, rows, targets or classes[, ...])
        """

    def with_predictive_params(self, params: Params, values: Params) -> Params:
        """Params with a separate observation noise for predictions.

        values : ``predictive_params`` as estimated, (members, targets) each
        """
        return params | values

    def in_training(self, params: Params) -> Params:
        """Params for the training, without the ``predictive_params``."""
        excluded = self.predictive_params
        return {name: v for name, v in params.items() if name not in excluded}

    def copy_predictive_params(self, params: Params, source: Params) -> Params:
        """Params with the ``predictive_params`` of ``source``, if it has any."""
        return params | {
            name: source[name] for name in self.predictive_params if name in source
        }

    def held_out_draws(
        self, params: Params, outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """Values of held-out rows and posterior draws for ``fit_predictive_params``.

        outputs : (draws, members, rows, n_outputs); y : (members or 1, rows, targets)
        returns : (members, rows, ..., targets)
        """
        raise NotImplementedError(f"{type(self).__name__} has no noise variance.")

    def fit_predictive_params(
        self, draws: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Estimate the observation noise of predictions on held-out rows.

        The noise that is learned with the weights by eq. 1 is estimated on the rows to
        which the weights were fitted. If the width of q(W) is learned, or the noise is
        not Gaussian, the number of parameters cannot correct this estimate (as in
        `_engine/residual_variance.py`).

        draws : results of ``held_out_draws``, (rows, ..., targets)
        weights : (rows,)
        returns : log densities (rows, targets), nats, clipped for outliers; and arrays
            (targets,) for ``with_predictive_params``
        """
        raise NotImplementedError(f"{type(self).__name__} has no noise variance.")

    def noise_level(self, params: Params) -> torch.Tensor | None:
        """Observation noise variance, (members, targets); None without such noise.

        For noise that depends on the row, its overall level.
        """
        return None


@dataclass(frozen=True)
class Precision(Likelihood):
    """A likelihood with a noise precision per target, given or learned."""

    n_targets: int
    learned: bool

    @classmethod
    def build(cls, n, learned, options):
        return cls(n, learned, **options)

    @property
    def trainable(self):
        """Names of the parameters that are learned."""
        return ("log_tau",) if self.learned else ()

    def init(self, tau, statistics=None):
        """Initial parameters, with tau (members, targets) given or learned."""
        return {"log_tau": tau.log()}

    def log_tau(self, params: Params) -> torch.Tensor:
        """Log precision in the training, (members, 1, targets)."""
        log_tau = params["log_tau"].unsqueeze(1)
        if not self.learned:
            return log_tau
        return log_tau.clamp(MIN_LOG_TAU, MAX_LOG_TAU)

    def predictive_log_tau(self, params: Params) -> torch.Tensor:
        """Log precision of predictions, (members, 1, targets)."""
        return self.log_tau(params)

    def noise_level(self, params):
        """1 / tau, of predictions."""
        return self.predictive_log_tau(params)[:, 0].double().neg().exp()


class Tempered(Likelihood):
    """A likelihood without observation noise, tempered by tau: p(y | f)^tau.

    tau multiplies the log-likelihood in eq. 1, so it replaces the precision in eq. 3
    and 4. It is never learned, and predictions do not use it.
    """

    learned = False
    tempered = True

    def init(self, tau, statistics=None):
        """Initial parameters; tau (members, targets or 1) is an inverse temperature."""
        return {"log_tau": tau[:, :1].log()}

    def nll(self, params, outputs, y):
        """-tau log p(y | f), (..., members, rows)."""
        return -params["log_tau"].exp() * self.log_density(params, outputs, y)

    @abstractmethod
    def log_density(self, params, outputs, y):
        """log p(y | f), (..., members, rows)."""


@dataclass(frozen=True)
class OfLabels(Tempered):
    """A likelihood of classes, with a probability for each label.

    Parameters
    ----------
    n_classes : int
        Number of classes in y, numbered from 0.
    ranks : tuple of int, optional
        The class of every label, in the order of ``classes_``. A label without training
        rows has class -1 and probability 0. None: label k is class k.
    """

    is_classification = True
    standardizes_y = False
    components_class = Labels

    n_classes: int
    ranks: tuple[int, ...] | None = None

    def __post_init__(self):
        if self.ranks is None:
            return
        used = sorted(rank for rank in self.ranks if rank != -1)
        if used != list(range(self.n_classes)):
            raise ValueError(
                f"`ranks` must contain each of {self.n_classes} classes once, and -1 "
                f"for labels without a class; got {self.ranks}."
            )

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.n_classes if self.ranks is None else len(self.ranks)

    def describe(self):
        """Plain values, without ``ranks`` if it is None."""
        return {k: v for k, v in super().describe().items() if v is not None}

    def label_probability(self, probability: torch.Tensor) -> torch.Tensor:
        """Convert probabilities of classes, (..., classes), to (..., labels)."""
        if self.ranks is None:
            return probability
        # Rank -1 selects the zero: labels without rows have probability zero.
        return functional.pad(probability, (0, 1))[..., list(self.ranks)]


def check_same_shape(mean: torch.Tensor, y: torch.Tensor) -> None:
    """Raise an error if rows or targets differ and would be broadcast.

    mean : (..., rows, targets); y : (members or 1, rows, targets)
    """
    if mean.shape[-2:] != y.shape[-2:]:
        raise ValueError(
            "outputs and y must agree in rows and targets; got "
            f"{tuple(mean.shape)} and {tuple(y.shape)}."
        )
