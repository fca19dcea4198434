"""Step size and weight of the KL, step by step, as tensors."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from skbayesnn._inference.optimizer import BETA_1, BETA_2, EPSILON
from skbayesnn._inference.plan import Plan

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
        plan: Plan,
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
