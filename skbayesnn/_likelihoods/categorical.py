"""Categorical likelihood: softmax over the classes (binary is two classes).

tau tempers the likelihood, p(y | f)^tau: it multiplies the cross entropy in eq. 1 and
so stands where the noise precision stands in eq. 3 and 4. Predictions are softmax(f).
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from skbayesnn._likelihoods.gaussian import LikelihoodPullback


@dataclass(frozen=True)
class Categorical:
    """Parameter ``log_tau`` (members, 1) is given, never learned."""

    n_classes: int

    @property
    def n_outputs(self) -> int:
        """Outputs of the network: one logit per class."""
        return self.n_classes

    @property
    def learned(self) -> bool:
        """Whether tau is learned with the weights."""
        return False

    @property
    def trainable(self) -> tuple[str, ...]:
        """Names of the parameters that are learned."""
        return ()

    def init(self, tau: torch.Tensor) -> dict[str, torch.Tensor]:
        """tau : (members, 1), the inverse temperature."""
        return {"log_tau": tau.log()}

    def schedule(self, params: dict[str, torch.Tensor], progress: float) -> None:
        """Told before each epoch how far the training has come, in [0, 1]."""

    def nll(
        self, params: dict[str, torch.Tensor], outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """-tau log p(y | f), (..., members, rows); shapes as in ``log_density``."""
        return -params["log_tau"].exp() * self.log_density(params, outputs, y)

    def nll_vjp(
        self, params: dict[str, torch.Tensor], outputs: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, LikelihoodPullback]:
        """``nll`` and its pullback, by hand; (members, rows)."""
        tau = params["log_tau"].exp()
        log_p = outputs.log_softmax(-1)
        labels = y.unsqueeze(-1).expand(*log_p.shape[:-1], 1)
        found = log_p.gather(-1, labels)

        def pullback(gradient):
            of_outputs = log_p.exp()
            of_outputs.scatter_add_(-1, labels, torch.full_like(found, -1))
            return of_outputs.mul_((tau * gradient).unsqueeze(-1)), {}

        return -tau * found.squeeze(-1), pullback

    def log_density(
        self, params: dict[str, torch.Tensor], outputs: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """log softmax(f)_y, (..., members, rows).

        outputs : (..., members, rows, classes)
        y : (members or 1, rows), class numbers, int64
        """
        labels = y.expand(outputs.shape[:-1])
        nll = functional.cross_entropy(
            outputs.flatten(0, -2), labels.flatten(), reduction="none"
        )
        return -nll.view(labels.shape)

    def components(
        self, params: dict[str, torch.Tensor], outputs: torch.Tensor
    ) -> tuple[torch.Tensor]:
        """Class probabilities of every draw, (draws, members, rows, classes)."""
        return (outputs.softmax(-1),)
