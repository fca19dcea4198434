"""The engine without an estimator: members, rows and posteriors from plain arrays."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from skbayesnn._engine.config import Batch
from skbayesnn._engine.training import (
    MemberParams,
    Training,
    TrainingConfig,
    initial_posterior,
    train,
)
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import FAMILIES
from skbayesnn._likelihoods import Categorical, Gaussian, Heteroscedastic
from skbayesnn._networks import Perceptron
from tests.helpers.families import CASES

INPUTS, TARGETS, CLASSES = 4, 2, 3


@dataclass
class ArrayRows:
    """The rows of a program (`_engine.config.MemberRows`), made of arrays.

    x (members or 1, rows, inputs); y (members or 1, rows, targets), or without the
    last axis; weights (members, rows), or None if all are one.
    """

    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None
    n_members: int
    held_out: "ArrayRows | None" = None
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float64

    def __post_init__(self):
        n_rows = self.x.shape[1]
        self.n_rows = np.full(self.n_members, n_rows)
        weights = self.weights
        if weights is None:
            weights = np.ones((self.n_members, n_rows))
        self.mean_weight = self._tensor(weights.mean(1))
        self.total_weight = self._tensor(weights.sum(1))

    def batches(self, order, size):
        for positions in order.split(size, dim=1):
            yield Batch(*self.take(positions))

    def take(self, positions):
        lead = max(len(positions), len(self.x), len(self.y))
        if self.weights is not None:
            lead = self.n_members
        members = torch.arange(lead, device=self.device).unsqueeze(1)
        positions = positions.expand(lead, -1)

        def gathered(values):
            values = self._tensor(values)
            return values.expand(lead, *values.shape[1:])[members, positions]

        weights = None if self.weights is None else gathered(self.weights)
        return gathered(self.x), gathered(self.y), weights

    def validation(self):
        held_out = self.held_out
        everything = torch.arange(held_out.n_rows[0], device=self.device).unsqueeze(0)
        return held_out.take(everything)

    def of_member(self, i):
        """The rows of member i alone."""
        parts = {
            name: values if values is None or len(values) == 1 else values[i : i + 1]
            for name, values in vars(self).items()
            if name in ("x", "y", "weights")
        }
        held_out = self.held_out.of_member(i) if self.held_out else None
        return replace(self, **parts, n_members=1, held_out=held_out)

    def _tensor(self, values):
        dtype = None if values.dtype.kind == "i" else self.dtype
        return torch.as_tensor(values).to(self.device, dtype)


def _earlier_posterior(sizes, length_scale):
    """Fields of a `PosteriorPrior` of one layer; all weights differ."""
    random = np.random.default_rng(sizes)
    lead, (n_inputs, n_outputs) = len(length_scale), sizes
    fields = {}
    for name, axes in {"": (n_inputs, n_outputs), "bias_": (n_outputs,)}.items():
        width = 1 / length_scale.reshape(-1, *(1 for _ in axes))
        fields[f"{name}mean"] = width * random.normal(size=(lead, *axes))
        fields[f"{name}std"] = width * random.uniform(0.5, 2, size=(lead, *axes))
    return fields


class Engine:
    """Builders of the engine's parts; the defaults are small and differ by member."""

    Rows = ArrayRows

    @staticmethod
    def likelihood(kind):
        return {
            "gaussian": Gaussian(TARGETS, learned=False),
            "gaussian, tau learned": Gaussian(TARGETS, learned=True),
            "heteroscedastic": Heteroscedastic(TARGETS, learned=True),
            "categorical": Categorical(CLASSES),
        }[kind]

    @staticmethod
    def config(kind="gaussian", hidden=(7, 6), family="bernoulli", **changes):
        """family : of all layers; a name means the family with its defaults."""
        family = FAMILIES[family]() if isinstance(family, str) else family
        likelihood = Engine.likelihood(kind)
        changes.setdefault("n_batches", 3)
        changes.setdefault("learning_rate", 0.01)
        activation = changes.pop("activation", "relu")
        n_layers = len(hidden) + 1
        network = Perceptron(
            (INPUTS, *hidden, likelihood.n_outputs), activation, (family,) * n_layers
        )
        return TrainingConfig(network, likelihood, **changes)

    @staticmethod
    def members(
        config,
        seeds,
        keep,
        length_scale,
        tau,
        n_epochs=3,
        learns_likelihood=True,
        **prior_params,
    ):
        """Parameters of members; each argument is a number, a bool or (members,).

        Layers and targets get slightly different values. prior_params : further
        parameters of the prior (pi, s1, ...). If the prior is an earlier posterior,
        its means are drawn about zero with a spread of 1 / length_scale.
        """
        seeds = np.asarray(seeds)
        n_layers = len(config.network.fan_ins)
        factor_of_layer = 0.95 ** np.arange(n_layers)[:, None]
        n_targets = 1 if isinstance(config.likelihood, Categorical) else TARGETS
        tau = np.broadcast_to(tau, seeds.shape)[:, None]
        numbers = {
            name: np.broadcast_to(value, seeds.shape) * factor_of_layer
            for name, value in {"length_scale": length_scale, **prior_params}.items()
        }
        prior = [
            {name: values[i] for name, values in numbers.items()}
            for i in range(n_layers)
        ]
        if config.prior == "previous":
            prior = [
                _earlier_posterior(size, fields["length_scale"])
                for size, fields in zip(
                    pairwise(config.network.sizes), prior, strict=True
                )
            ]
        return MemberParams(
            seeds=seeds,
            keep=np.broadcast_to(keep, seeds.shape) ** factor_of_layer,
            prior=prior,
            tau=tau * 2.0 ** np.arange(n_targets),
            statistics=np.empty((len(seeds), 0)),
            n_epochs=np.broadcast_to(n_epochs, seeds.shape),
            learns_likelihood=np.array(np.broadcast_to(learns_likelihood, seeds.shape)),
        )

    @staticmethod
    def rows(config, n_members, seed, n_rows=23, shared=True, weighted=False, **kinds):
        """Rows of a noisy nonlinear function, the same for all members or not."""
        random = np.random.default_rng(seed)
        lead = 1 if shared else n_members
        x = random.normal(size=(lead, n_rows, INPUTS))
        slopes = random.normal(size=(INPUTS, CLASSES))
        f = np.sin(x @ slopes)
        if isinstance(config.likelihood, Categorical):
            y = (f + 0.1 * random.normal(size=f.shape)).argmax(-1)
        else:
            y = f[..., :TARGETS] + 0.1 * random.normal(size=(lead, n_rows, TARGETS))
        weights = None
        if weighted:
            weights = random.uniform(0.2, 5, size=(n_members, n_rows))
        return ArrayRows(x, y, weights, n_members, **kinds)

    @staticmethod
    def initial_posterior(config, members, dtype=torch.float64, device="cpu"):
        return initial_posterior(config, members, torch.device(device), dtype)

    @staticmethod
    def train(config, members, rows, **changes):
        posterior = initial_posterior(
            config, members, torch.device(rows.device), rows.dtype
        )
        return train(Training(config, members, rows, posterior, **changes))

    @staticmethod
    def random_source(members, epoch):
        """Random numbers of the first step of an epoch."""
        source = TrainingRandom(members.seeds, torch.device("cpu"), torch.float64)
        source.start_epoch(epoch)
        return source

    @staticmethod
    def member(members, i):
        """The parameters of member i alone."""
        return MemberParams(
            seeds=members.seeds[i : i + 1],
            keep=members.keep[:, i : i + 1],
            prior=[
                {name: values[i : i + 1] for name, values in fields.items()}
                for fields in members.prior
            ],
            tau=members.tau[i : i + 1],
            statistics=members.statistics[i : i + 1],
            n_epochs=members.n_epochs[i : i + 1],
            learns_likelihood=members.learns_likelihood[i : i + 1],
        )

    @staticmethod
    def parameters(posterior):
        """All parameters by name, members first, as float64 arrays."""
        groups = {str(i): params for i, params in enumerate(posterior.layers)}
        groups["likelihood"] = posterior.likelihood_params
        return {
            f"{place}/{name}": value.detach().double().cpu().numpy()
            for place, group in groups.items()
            for name, value in group.items()
        }


KINDS = ["gaussian", "gaussian, tau learned", "heteroscedastic", "categorical"]

# Members that differ in all parameters; two of them share a seed.
SEEDS = np.array([4, 0, 4, 1])
KEEP = [0.6, 0.95, 0.8, 1.0]
LENGTH_SCALE = [1.0, 0.1, 0.3, 3.0]
TAU = [10.0, 1.0, 0.3, 50.0]

# A rate below 1, so that families that learn it start with dropout in every member.
KEEP_OF_CASES = [0.6, 0.95, 0.8, 0.7]
parametrize_cases = pytest.mark.parametrize("case", CASES, ids=str)


def config_and_members(case, seed, **changes):
    """Config and members of a family under a prior; all parameters differ.

    Two layers and six steps only, because there are many families with many options.
    """
    changes = {"hidden": (7,), "n_epochs": 2} | changes
    if case.prior == "anchored":
        # A dead relu unit has a gradient of rounding errors only, which Adam divides by
        # its size.
        changes["activation"] = "tanh"
    n_epochs = changes.pop("n_epochs")
    config = Engine.config(family=case.family, prior=case.prior, **changes)
    prior_params = {}
    if case.prior == "scale_mixture":
        prior_params = {
            "pi": [0.5, 0.25, 0.75, 0.9],
            "s1": [1.0, 2.0, 0.5, 1.0],
            "s2": [0.1, 0.3, 0.05, 0.5],
        }
    if case.prior == "discrete":
        prior_params = {"step": [0.1, 0.001, 0.25, 0.01]}
    if case.prior == "anchored":
        prior_params = {"bias_length_scale": [0.3, 1.0, 2.0, 0.7]}
    members = Engine.members(
        config, SEEDS + seed, KEEP_OF_CASES, LENGTH_SCALE, TAU, n_epochs, **prior_params
    )
    return config, members
