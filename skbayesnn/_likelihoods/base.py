"""What a likelihood is: p(y | f) of the outputs f of a network, and its predictive.

All tensors carry the members axis in front. ``params`` is a dict of tensors, made by
``init``; y and f are in the network's scale. tau is the model precision, given or
learned, or what tempers the likelihood (see :class:`Precision`, :class:`Tempered`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from skbayesnn._distributions.components import Labels

Params = dict[str, torch.Tensor]
# Gradient of the rows' nll (members or 1, rows or 1) -> gradients of the outputs, and
# of the learned parameters by name.
LikelihoodPullback = Callable[[torch.Tensor], tuple[torch.Tensor, Params]]

# A learned noise never falls below this share of y's own standard deviation, so that
# targets that a network can interpolate do not drive the precision to infinity.
SMALLEST_NOISE = 1e-3
LARGEST_LOG_TAU = -2 * math.log(SMALLEST_NOISE)
# Nor is it so large that a variance overflows (also in float32).
SMALLEST_LOG_TAU = -70.0


class Likelihood(ABC):
    """p(y | f): base of dataclasses of plain values.

    These are the number of targets or classes, and options.

    ``nll`` and ``components`` make a likelihood. Gradients come from autograd, unless
    it takes them by hand, which saves much of a small network's step.
    """

    # Its key in the table, and the value of the estimators' ``likelihood``.
    name: ClassVar[str]
    # Whether y are classes, numbered in order; else numbers, (rows, targets).
    of_classes: ClassVar[bool] = False
    # Whether y is centred and scaled before the network sees it.
    standardizes_y: ClassVar[bool] = True
    # Whether it has outliers, which then do not count in how y is scaled.
    robust: ClassVar[bool] = False
    # Whether tau tempers it, instead of being the precision of its noise.
    tempered: ClassVar[bool] = False
    # Whether its noise is a function of the row.
    row_noise: ClassVar[bool] = False
    # What ``components`` are the arrays of: of numbers a ``Components``, or ``Labels``.
    components_class: ClassVar[type[Any]]
    # Whether tau is a parameter inside of ``nll``, learned with the weights.
    learned: bool
    __dataclass_fields__: ClassVar[dict]

    @classmethod
    def build(cls, n: int, learned: bool, options: dict) -> "Likelihood":
        """For n targets or classes.

        learned : whether tau is asked to be learned
        options : further fields by name, checked by ``__post_init__``
        """
        return cls(n, **options)  # type: ignore[call-arg]

    def describe(self) -> dict:
        """Plain values, from which ``likelihood_from`` makes it again."""
        return {"name": self.name} | asdict(self)

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Outputs of the network."""

    @property
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that are learned."""
        return ()

    @property
    def gaussian_targets(self) -> int:
        """Targets whose noise is Gaussian, so that ``noise_slope`` puts some on y."""
        return 0

    @property
    def predictive_params(self) -> tuple[str, ...]:
        """Parameters of the noise that are estimated once the weights are trained.

        Only predictions use them, after ``with_predictive_params``: one number per
        target, of residuals about the first outputs.
        """
        return ()

    @classmethod
    def check_y(cls, y: np.ndarray) -> None:
        """Refuse targets (rows, targets) that the likelihood gives no density.

        Raises
        ------
        ValueError
        """
        return None

    def statistics(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """What ``init`` has to know of the training rows, (numbers,); may be none.

        y : (rows, targets), the network's scale, or class numbers (rows,)
        """
        return np.empty(0)

    @abstractmethod
    def init(self, tau: torch.Tensor, statistics: torch.Tensor | None = None) -> Params:
        """Start values.

        tau : (members, targets or 1), given, or where learning starts
        statistics : (members, numbers), what ``statistics`` has said
        """

    def schedule(self, params: Params, progress: float) -> None:
        """Told before each epoch how far the training has come, in [0, 1]."""
        return None

    @abstractmethod
    def nll(
        self, params: Params, outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """-log p(y | f), what is minimised, (..., members, rows), nats.

        outputs : (..., members, rows, n_outputs)
        y : (members or 1, rows, targets), or class numbers without last axis
        """

    def nll_vjp(
        self, params: Params, outputs: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, LikelihoodPullback]:
        """``nll`` (members, rows), and what takes gradients back through it.

        To be called without autograd.
        """
        learned = {
            name: params[name].detach().requires_grad_() for name in self.trainable
        }
        outputs = outputs.detach().requires_grad_()
        with torch.enable_grad():
            nll = self.nll(params | learned, outputs, y)

        def pullback(gradient):
            of_outputs, *of_learned = torch.autograd.grad(
                nll,
                [outputs, *learned.values()],
                gradient.expand_as(nll),
                materialize_grads=True,
            )
            return of_outputs, dict(zip(learned, of_learned, strict=True))

        return nll.detach(), pullback

    def noise_slope(
        self, params: Params, outputs: torch.Tensor, noise: torch.Tensor
    ) -> torch.Tensor:
        """What noise on y adds to the gradient of ``nll`` in the outputs.

        noise : (members, rows, targets), in stds of the likelihood's noise
        returns : of the shape of the outputs
        """
        raise NotImplementedError(f"{type(self).__name__} has no Gaussian noise on y.")

    def log_density(
        self, params: Params, outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """log p(y | f), (..., members, rows); shapes as in ``nll``."""
        return -self.nll(params, outputs, y)

    @abstractmethod
    def components(
        self, params: Params, outputs: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """What the draws say of y: the fields of ``components_class``.

        outputs : (draws, members, rows, n_outputs)
        returns : tensors (draws, members, rows, targets or classes[, ...])
        """

    def with_predictive_params(self, params: Params, noise: Params) -> Params:
        """Params whose predictions have a noise of their own; training has its own.

        noise : what ``fit_predictive_params`` has estimated, (members, targets) each
        """
        return params | noise

    def in_training(self, params: Params) -> Params:
        """Params of the training, without those of ``with_predictive_params``."""
        predicted = self.predictive_params
        return {name: v for name, v in params.items() if name not in predicted}

    def with_noise_of(self, params: Params, others: Params) -> Params:
        """Params with the noise of others' predictions, if that is one of their own."""
        return params | {
            name: others[name] for name in self.predictive_params if name in others
        }

    def held_out_draws(
        self, params: Params, outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """What ``fit_predictive_params`` needs of held-out rows and posterior draws.

        outputs : (draws, members, rows, n_outputs); y : (members or 1, rows, targets)
        returns : (members, rows, ..., targets)
        """
        raise NotImplementedError(f"{type(self).__name__} has no noise of its own.")

    def fit_predictive_params(
        self, draws: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Estimate the noise of predictions by the density of held-out rows.

        The noise that eq. 1 learns with the weights is that of the rows that the
        weights were fitted to. No count of parameters corrects it (as in
        `_inference/residual_noise.py`) where q(W) learns a width of its own, nor where
        the noise is not Gaussian.

        draws : (rows, ..., targets), of ``held_out_draws``
        weights : (rows,)
        returns : log densities (rows, targets), nats, bounded for outliers; and arrays
            (targets,) for ``with_predictive_params``
        """
        raise NotImplementedError(f"{type(self).__name__} has no noise of its own.")

    def noise_level(self, params: Params) -> torch.Tensor | None:
        """Variance of y about f, (members, targets); None where it has no noise.

        Where the noise depends on the row: its overall level, about which it varies.
        """
        return None


@dataclass(frozen=True)
class Precision(Likelihood):
    """With a noise precision per target, given, or learned with the weights."""

    n_targets: int
    learned: bool

    @classmethod
    def build(cls, n, learned, options):
        """For n targets."""
        return cls(n, learned, **options)

    @property
    def trainable(self):
        """Names of the parameters that are learned."""
        return ("log_tau",) if self.learned else ()

    def init(self, tau, statistics=None):
        """tau : (members, targets), the given precision, or where learning starts."""
        return {"log_tau": tau.log()}

    def log_tau(self, params: Params) -> torch.Tensor:
        """Log precision, (members, 1, targets)."""
        log_tau = params["log_tau"].unsqueeze(1)
        if not self.learned:
            return log_tau
        return log_tau.clamp(SMALLEST_LOG_TAU, LARGEST_LOG_TAU)

    def predictive_log_tau(self, params: Params) -> torch.Tensor:
        """Log precision of predictions, (members, 1, targets)."""
        return self.log_tau(params)

    def noise_level(self, params):
        """1 / tau, of predictions."""
        return self.predictive_log_tau(params)[:, 0].double().neg().exp()


class Tempered(Likelihood):
    """Without a noise of its own: tau tempers it, p(y | f)^tau, and is never learned.

    It multiplies the log-likelihood in eq. 1, and so stands where the precision
    stands in eq. 3 and 4. Predictions have no tau.
    """

    learned = False
    tempered = True

    def init(self, tau, statistics=None):
        """tau : (members, 1 or targets), the inverse temperature."""
        return {"log_tau": tau[:, :1].log()}

    def nll(self, params, outputs, y):
        """-tau log p(y | f), (..., members, rows)."""
        return -params["log_tau"].exp() * self.log_density(params, outputs, y)

    @abstractmethod
    def log_density(self, params, outputs, y):
        """log p(y | f), (..., members, rows)."""


@dataclass(frozen=True)
class OfLabels(Tempered):
    """Of classes, with a probability for each label.

    Parameters
    ----------
    n_classes : int
        Classes that y has, numbered from 0.
    ranks : tuple of int, optional
        The class of every label, in the order of ``classes_``; -1 for a label without
        training rows, whose probability is 0. None: label k is class k.
    """

    of_classes = True
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
                f"`ranks` must hold each of {self.n_classes} classes once, and -1 for "
                f"labels without a class; got {self.ranks}."
            )

    @property
    def n_labels(self) -> int:
        """Labels that have a probability."""
        return self.n_classes if self.ranks is None else len(self.ranks)

    def describe(self):
        """Without ``ranks`` where labels are classes."""
        return {k: v for k, v in super().describe().items() if v is not None}

    def of_labels(self, probability: torch.Tensor) -> torch.Tensor:
        """Probabilities of classes, (..., classes), as those of labels."""
        if self.ranks is None:
            return probability
        nothing = probability.new_zeros(*probability.shape[:-1], 1)
        return torch.cat([probability, nothing], dim=-1)[..., list(self.ranks)]


def check_same_shape(mean: torch.Tensor, y: torch.Tensor) -> None:
    """Refuse rows and targets that broadcasting would only seem to bring together.

    mean : (..., rows, targets); y : (members or 1, rows, targets)
    """
    if mean.shape[-2:] != y.shape[-2:]:
        raise ValueError(
            "outputs and y must agree in rows and targets; got "
            f"{tuple(mean.shape)} and {tuple(y.shape)}."
        )
