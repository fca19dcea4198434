"""One step of the training, and the state that it changes.

Ensembles that sample by randomised maximum a posteriori perturb the rows of each
member. For a Gaussian likelihood, noise with the likelihood's variance is added to y;
with anchors from the prior, the members of a linear model are exact posterior draws
[Bardsley et al. 2014, arXiv 1312.2134]. For other likelihoods, rows have random
weights, Exp(1) for a row of weight one: the weighted likelihood bootstrap [Newton &
Raftery 1994, JRSS B 56].
"""

import math
from collections.abc import Iterable, Iterator
from itertools import starmap
from typing import NamedTuple

import numpy as np
import torch

from skbayesnn._engine.config import MemberParams, Rows, TrainingConfig
from skbayesnn._engine.objective import (
    DATA_GRADIENTS,
    Batch,
    Objective,
    Penalty,
    priors_of,
)
from skbayesnn._engine.optimizer import BETA_1, BETA_2, EPSILON, Adam, FlatParameters
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.random import ROWS, philox
from skbayesnn._engine.training_random import PaddedRandom, TrainingRandom, noise_of
from skbayesnn._families import Params

# ---- schedules of step size and KL weight, as tensors

# Steps whose numbers are brought to the device at once.
_STEPS_AT_ONCE = 256


class StepNumbers(NamedTuple):
    """Of one step: without axes, or (parameters,) where members are at odds.

    Parameters
    ----------
    step_size : tensor, minus Adam's, with its bias corrections
    epsilon : tensor, Adam's, with the correction of the second moment
    kl_weight : tensor, or None where it is one in all steps
    """

    step_size: torch.Tensor
    epsilon: torch.Tensor
    kl_weight: torch.Tensor | None = None


class Schedule:
    """How far each member has come, and the numbers that follow from it.

    Parameters
    ----------
    plan : Plan
    n_epochs : ndarray of shape (members,), int
    first_step : ndarray of shape (members,), int
        Steps that earlier runs have done.
    member_of : tensor of shape (parameters,), int
    """

    def __init__(
        self,
        plan: TrainingConfig,
        n_epochs: np.ndarray,
        first_step: np.ndarray,
        member_of: torch.Tensor,
    ):
        self._plan = plan
        self._weighs_kl = plan.kl_warm_up > 0 or plan.kl_weighting != "uniform"
        courses = np.stack([n_epochs * plan.n_batches, first_step], axis=1)
        distinct, of_member = np.unique(courses, axis=0, return_inverse=True)
        # (steps in all, steps of earlier runs)
        self._courses = [(int(n), int(first)) for n, first in distinct]
        self._of_member = of_member.reshape(-1)
        self._members = [np.flatnonzero(of_member == i) for i in range(len(distinct))]
        self._course_of: torch.Tensor | None = None
        if len(distinct) > 1:
            of_device = torch.as_tensor(self._of_member).to(member_of.device)
            self._course_of = of_device[member_of]

    def progress(self, n_done: int) -> list[tuple[float, np.ndarray]]:
        """Share of the warm-ups' horizon that is done, and which members it is of."""
        return [
            (self._warmed_up(*course, n_done), members)
            for course, members in zip(self._courses, self._members, strict=True)
        ]

    def steps_done(self, n_done: int) -> np.ndarray:
        """Steps of every member with those of earlier runs, (members,)."""
        ends = [first + min(n_done, n) for n, first in self._courses]
        return np.array(ends)[self._of_member]

    def numbers(self, like: torch.Tensor) -> Iterator[StepNumbers]:
        """Of one step after the other, as tensors like another."""
        n_steps = max(n for n, _ in self._courses)
        for start in range(0, n_steps, _STEPS_AT_ONCE):
            steps = range(start, min(start + _STEPS_AT_ONCE, n_steps))
            of_steps = [[self._at(*c, s) for c in self._courses] for s in steps]
            values = torch.tensor(of_steps, dtype=torch.float64).to(like)
            values[..., 1].mul_(EPSILON)
            columns = values.unbind(-1)
            if not self._weighs_kl:
                columns = columns[:2]
            if self._course_of is None:
                yield from map(StepNumbers, *(c.squeeze(1).unbind() for c in columns))
                continue
            for numbers in zip(*columns, strict=True):
                yield StepNumbers(*(of[self._course_of] for of in numbers))

    def _at(self, n_steps: int, first: int, n_done: int) -> tuple[float, float, float]:
        """Numbers of the step after ``n_done``; those that have ended do not move."""
        plan, weight = self._plan, 1.0
        if self._weighs_kl:
            warmed_up = self._warmed_up(n_steps, first, n_done)
            weight = plan.kl_weight_at(n_done % plan.n_batches, warmed_up)
        number = first + n_done + 1
        unbiased = math.sqrt(1 - BETA_2**number)
        if n_done >= n_steps:
            return 0.0, unbiased, weight
        rate = plan.learning_rate_at(n_done / n_steps)
        return -(rate * unbiased / (1 - BETA_1**number)), unbiased, weight

    def _warmed_up(self, n_steps: int, first: int, n_done: int) -> float:
        return (first + n_done) / (self._plan.horizon or n_steps)


# ---- perturbed rows: randomised maximum a posteriori


class RowPerturbation:
    """Noise of every member and row, the same in all epochs.

    Parameters
    ----------
    plan : Plan
    seeds : ndarray of shape (members,), int
    rows : Rows
    place : int
        Other rows of the same members, as those of a stream, have another.
    """

    def __init__(self, plan: TrainingConfig, seeds: np.ndarray, rows: Rows, place: int):
        n_targets = plan.likelihood.gaussian_targets
        self._on_y = n_targets > 0
        weights = np.ones((len(seeds), int(rows.n_rows.max())))
        if rows.weights is not None:
            weights *= torch.as_tensor(rows.weights).cpu().numpy()
        numbers = []
        for seed, own in zip(seeds, weights[..., None], strict=True):
            random = np.random.Generator(philox(int(seed), ROWS, place))
            if self._on_y:
                # That of the mean of so many rows as the weight says.
                normal = random.standard_normal((len(own), n_targets))
                numbers.append(normal / np.sqrt(own))
            else:
                numbers.append(random.standard_gamma(own) / own)
        self._numbers = torch.as_tensor(np.stack(numbers)).to(rows.mean_weight)

    def batches(
        self, batches: Iterable[Batch], order: torch.Tensor, size: int
    ) -> Iterator[Batch]:
        """The batches of an epoch, with the noise of their rows.

        order : (members or 1, rows of all batches)
        """
        lead, _, width = self._numbers.shape
        index = order.expand(lead, -1).unsqueeze(-1).expand(-1, -1, width)
        numbers = self._numbers.gather(1, index).split(size, dim=1)
        return map(self._perturbed, batches, numbers)

    def _perturbed(self, batch: Batch, own: torch.Tensor) -> Batch:
        x, y, weights, _ = batch
        if self._on_y:
            return Batch(x, y, weights, own)
        factors = own.squeeze(-1)
        return Batch(x, y, factors if weights is None else weights * factors)


# ---- the step


class Step:
    """Adam on F / (N tau) of all members: called with a batch, it moves them.

    What changes from step to step is held here: parameters, moments, noise, and as
    tensors the step size and the weight of the KL.

    Parameters
    ----------
    plan, members, rows : Plan, Members, Rows
    posterior : Posterior
        Where to start; it is not changed.
    optimizer_state : dict, optional
        ``state()`` of the run that is continued.
    """

    def __init__(
        self,
        plan: TrainingConfig,
        members: MemberParams,
        rows: Rows,
        posterior: Posterior,
        optimizer_state: dict[str, np.ndarray] | None = None,
    ):
        self._likelihood = plan.likelihood
        self.parameters = FlatParameters(posterior)
        # Its parameters are views of those in training.
        self.posterior = self.parameters.posterior()
        values = self.parameters.values
        self.noise = self._noise_of(
            members.seeds, rows.n_rows, plan.n_batches, values.device, values.dtype
        )
        objective = Objective.of(
            plan.likelihood,
            priors_of(plan, members, posterior),
            members.tau,
            rows.mean_weight,
            rows.total_weight,
        )
        self._objective = objective
        # Which members learn their noise; None where all do.
        self._learns_noise: torch.Tensor | None = None
        if not members.learns_noise.all():
            learns = torch.as_tensor(members.learns_noise)
            self._learns_noise = learns.to(values.device, values.dtype)
        self._data_gradient = DATA_GRADIENTS[plan.gradient]
        # A posterior without noise has one draw.
        stochastic = plan.network.stochastic
        self._n_draws = plan.n_training_draws if stochastic else 1
        self.penalty = Penalty(
            self.parameters, self.posterior, objective, self.noise.of_weights
        )
        self._optimizer = Adam(self.parameters, optimizer_state)
        before = optimizer_state["step"] if optimizer_state else 0
        self._schedule = Schedule(
            plan,
            members.n_epochs,
            np.broadcast_to(before, members.seeds.shape),
            self.parameters.member_of,
        )
        self._numbers = self._schedule.numbers(values)
        self._n_done = 0

    def start_epoch(self, epoch: int, n_batches: int) -> None:
        """The steps that follow are those of an epoch; earlier runs' are counted."""
        self.noise.start_epoch(epoch, n_batches)
        params = self.posterior.likelihood_params
        courses = self._schedule.progress(self._n_done)
        if len(courses) == 1:
            self._likelihood.schedule(params, courses[0][0])
            return
        for progress, members in courses:
            own = {name: value[members] for name, value in params.items()}
            self._likelihood.schedule(own, progress)
            for name, value in own.items():
                params[name][members] = value

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Move all members; returns the nll of their rows, (members, batch rows)."""
        nll = self._move(batch, next(self._numbers))
        self.noise.next_step()
        self._n_done += 1
        return nll

    def _noise_of(self, *args):
        """See ``noise_of``."""
        return noise_of(*args)

    def _move(self, batch: Batch, numbers: StepNumbers) -> torch.Tensor:
        nll, gradient = self._of_draws(batch)
        self.penalty.add_gradient(gradient, numbers.kl_weight)
        self._optimizer.step(gradient, numbers.step_size, numbers.epsilon)
        return nll

    def _of_draws(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The nll of the rows, and its gradient as a vector: means over draws."""
        found = []
        for left in reversed(range(self._n_draws)):
            # A gradient may overwrite x.
            own = batch.with_own_x() if left else batch
            nll, of_layers, of_likelihood = self._data_gradient(
                self._objective, self.posterior, own, self.noise
            )
            of_learned = self._of_learned(of_likelihood)
            found.append((nll, self.parameters.vector(of_layers, of_learned)))
        if self._n_draws == 1:
            return found[0]
        nll_of_draws, gradients = zip(*found, strict=True)
        return torch.stack(nll_of_draws).mean(0), torch.stack(gradients).mean(0)

    def _of_learned(self, of_likelihood: Params) -> Params:
        """Gradients of the likelihood's parameters: zero where these stay."""
        learns = self._learns_noise
        if learns is None:
            return of_likelihood
        return {
            name: value * learns.view(-1, *(1,) * (value.ndim - 1))
            for name, value in of_likelihood.items()
        }

    def end_members(self, ended: np.ndarray) -> None:
        """Some members, (members,) bool, stay as they are while others go on."""
        self._optimizer.keep_moments(ended)

    def state(self) -> dict[str, np.ndarray]:
        """The optimizer's, by name, to go on with."""
        steps = _common(self._schedule.steps_done(self._n_done))
        return {"step": steps} | self._optimizer.moments()


def select_state(state: dict[str, np.ndarray], members: np.ndarray):
    """``Step.state()`` of some members, by index."""
    chosen = {n: values[members] for n, values in state.items() if n != "step"}
    if state["step"].ndim == 0:
        return {"step": state["step"]} | chosen
    return {"step": _common(state["step"][members])} | chosen


def _common(values: np.ndarray) -> np.ndarray:
    """One number where all are equal."""
    return np.asarray(values[0]) if (values == values[0]).all() else values


# ---- batches of an epoch, of one size for all members


class Batches:
    """Cuts the rows of every member into equally many batches.

    A member with fewer rows has smaller batches. They are padded with rows of weight
    zero, and the others weigh more: the mean over all rows is that over its own.

    Parameters
    ----------
    rows : Rows
    plan : Plan
    perturbation : Perturbation, optional
        What every member has of its own on the rows.
    """

    def __init__(
        self,
        rows: Rows,
        plan: TrainingConfig,
        perturbation: RowPerturbation | None = None,
    ):
        self._rows, self._n, self._perturbation = rows, plan.n_batches, perturbation
        own = plan.batch_rows(rows.n_rows)
        self.n_rows = int(own.max())
        self._padding: torch.Tensor | None = None
        if (own < self.n_rows).any():
            present = np.arange(self.n_rows) < own[:, None]
            share = present * (self.n_rows / own[:, None])
            self._padding = torch.as_tensor(share).to(rows.mean_weight)

    def of_epoch(self, noise: TrainingRandom | PaddedRandom) -> Iterator[Batch]:
        """One batch after the other."""
        order = noise.order(self._rows.n_rows, self._n)
        rows = self._rows.batches(order, self.n_rows)
        batches: Iterator[Batch] = starmap(Batch, rows)
        if self._perturbation is not None:
            batches = self._perturbation.batches(batches, order, self.n_rows)
        if self._padding is None:
            return batches
        return self._padded(batches, self._padding)

    def _padded(self, batches: Iterator[Batch], padding: torch.Tensor):
        for x, y, weights, noise_on_y in batches:
            weights = padding if weights is None else weights * padding
            yield Batch(x, y, weights, noise_on_y)
