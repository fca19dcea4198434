"""Perceptron with several heads that share its weights, as in BatchEnsemble and TabM.

Every map has one weight matrix M, and for every head h a scale of each input and a
bias. Head h is the perceptron with the weights and biases

    W_h = diag(scale_h) M,    b_h = b + bias_h.

The family of the map is the posterior of M and b. The scales and biases of the heads
are estimated without a prior. The posterior is the mixture of all heads with equal
weights. In training every row uses one head, and other heads at other steps, so that a
step has the matrix products of one perceptron. In predictions a draw is the draw of one
head.
"""

from dataclasses import dataclass

import numpy as np
import torch

from skbayesnn._families import Draw, Needed, Params, RandomSource
from skbayesnn._networks.activations import ACTIVATIONS
from skbayesnn._networks.base import InitialNormal, Keep, NetworkPullback
from skbayesnn._networks.mlp import Perceptron


@dataclass(frozen=True)
class SharedPerceptron(Perceptron):
    """A perceptron with heads; see the module.

    Parameters
    ----------
    n_heads : int
    """

    n_heads: int = 1

    @property
    def n_weights(self) -> int:
        """Weights and biases of one member, and the scales and biases of its heads."""
        pairs = zip(self.sizes[:-1], self.sizes[1:], strict=True)
        return super().n_weights + self.n_heads * sum(a + b for a, b in pairs)

    @property
    def stochastic(self) -> bool:
        """Whether two draws can differ."""
        return self.n_heads > 1 or super().stochastic

    def distinct_draws(self, n_draws: int) -> int:
        """The number of draws; at most one per head if the weights have no noise."""
        is_noisy = any(family.stochastic for family in self.families)
        return n_draws if is_noisy else min(n_draws, self.n_heads)

    @property
    def n_means(self) -> int:
        """Each head has its own mean weights."""
        return self.n_heads

    def describe(self):
        """Plain values from which ``from_description`` constructs an equal network."""
        return super().describe() | {"name": "tabm", "n_heads": self.n_heads}

    @classmethod
    def from_description(cls, description):
        """Inverse of ``describe``."""
        plain = Perceptron.from_description(description)
        n_heads = description["n_heads"]
        if not n_heads >= 1:
            raise ValueError(f"a network must have at least one head; got {n_heads}.")
        return cls(plain.sizes, plain.activation, plain.families, n_heads)

    def init(self, normal: InitialNormal, keep: Keep) -> list[Params]:
        """Initial values; the first head is the perceptron without heads.

        The other heads have random signs as scales in the first map [Gorishniy et al.
        2024], one in the other maps, and random biases with the standard deviation of
        the perceptron's. The outputs have equal biases.
        """
        layers, last = super().init(normal, keep), len(self.families) - 1
        for i, params in enumerate(layers):
            n_in, n_out = self.sizes[i : i + 2]
            values = normal(len(layers) + i, self.n_heads, n_in + n_out)
            scale, bias = values[..., :n_in], values[..., n_in:]
            scale = torch.where(scale < 0, -1.0, 1.0) if i == 0 else scale * 0 + 1
            bias = bias * (0.0 if i == last else (3 * n_in) ** -0.5)
            scale[:, 0], bias[:, 0] = 1.0, 0.0
            params |= {"head_scale": scale.to(values), "head_bias": bias}
        return layers

    def vjp(
        self, layers: list[Params], keep: Keep, x: torch.Tensor, random: RandomSource
    ) -> tuple[torch.Tensor, NetworkPullback]:
        """One stochastic forward pass with one head per row, and its pullback.

        Rows use the heads in turn; the first head is random.
        """
        activation = ACTIVATIONS[self.activation]
        of_head = self._one_hot(x, random)
        cache: list[tuple] = []
        saved = x
        for i, (family, params) in enumerate(zip(self.families, layers, strict=True)):
            if i:
                x, saved = activation.forward(x)
            scale = of_head @ params["head_scale"]
            outputs, pullback = family.linear_vjp(params, keep[i], x * scale, random)
            cache.append((x, saved, scale, pullback))
            x = outputs + of_head @ params["head_bias"]

        def gradients(gradient: torch.Tensor) -> list[Params]:
            param_grads = []
            for i, (inputs, saved, scale, pullback) in reversed([*enumerate(cache)]):
                to_bias = of_head.mT @ gradient
                layer_grads, grad_scaled = pullback(gradient, Needed.ALL)
                to_scale = of_head.mT @ (grad_scaled * inputs)
                heads = {"head_scale": to_scale, "head_bias": to_bias}
                param_grads.append(layer_grads | heads)
                if i:
                    gradient = activation.pullback(grad_scaled * scale, saved)
            return param_grads[::-1]

        return x, gradients

    def _one_hot(self, x: torch.Tensor, random: RandomSource) -> torch.Tensor:
        """Ones at the head of every row, (members or 1, rows, heads)."""
        heads, rows = (
            torch.arange(n, device=x.device) for n in (self.n_heads, len(x[0]))
        )
        if self.n_heads == 1:
            return x.new_ones(1, len(rows), 1)
        first = (random.shared_by_rows.uniform(1) * self.n_heads).long()
        # The source of a part of the batch knows where the part starts.
        rows = rows + getattr(random, "first_row", 0)
        head = (rows + first) % self.n_heads
        return (head.unsqueeze(-1) == heads).to(x.dtype)

    def draw(
        self, layers: list[Params], keep: Keep, random: RandomSource
    ) -> list[Draw]:
        """Sample weights (draws, members, inputs, outputs) and biases of every map."""
        draws = getattr(random, "draws", range(1))
        head = torch.as_tensor(head_of_draws(draws, self.n_heads))
        maps = []
        for (weight, bias, *masks), params in zip(
            super().draw(layers, keep, random), layers, strict=True
        ):
            scale, head_bias = (
                params[name][:, head.to(bias.device)].movedim(1, 0)
                for name in ("head_scale", "head_bias")
            )
            maps.append((scale.unsqueeze(-1) * weight, bias + head_bias, *masks))
        return maps

    def shares_draws(self, layers, keep, n_draws):
        """False: draws of different heads share no computations."""
        return False


def head_of_draws(draws: range, n_heads: int) -> np.ndarray:
    """Head of every draw, (draws,).

    A block of ``n_heads`` draws has each head once, in a random order, so that evenly
    spaced draws have different heads.
    """
    blocks = np.arange(draws.start // n_heads, -(-draws.stop // n_heads))
    orders = [np.random.RandomState(block).permutation(n_heads) for block in blocks]
    first = draws.start - draws.start // n_heads * n_heads
    return np.concatenate([*orders, []]).astype(int)[first : first + len(draws)]
