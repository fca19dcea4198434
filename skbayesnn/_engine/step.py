"""One step of the training, and the state that it changes.

A step (``Step._update``) is, for all members at once:

    outputs, to_layers = network.vjp(layers, keep, x, random)    # _networks, _families
    nll, to_outputs = likelihood.nll_vjp(params, outputs, y)     # _likelihoods
    gradient = to_layers(to_outputs(nll_factor))                 # objective.py
    gradient += kl_factor * gradient of KL(q || prior)           # Penalty, _priors
    parameters += step_size * Adam(gradient)                     # optimizer.py

The rest of this module supplies its arguments: the schedule of step sizes
(``Schedule``), the batches of an epoch (``Batches``) and their perturbation.

Ensembles that sample by randomised maximum a posteriori (MAP) perturb the rows of each
member. For a Gaussian likelihood, normal noise with the likelihood's variance is added
to y. With anchors from the prior, the members of a linear model are then exact
posterior draws [Bardsley et al. 2014, arXiv 1312.2134]. For other likelihoods, the rows
get random weights, Exp(1) for a row of weight one: the weighted likelihood bootstrap
[Newton & Raftery 1994, JRSS B 56].
"""

from collections.abc import Iterable, Iterator
from copy import copy
from typing import NamedTuple

import numpy as np
import torch

from skbayesnn._engine.config import Batch, MemberParams, MemberRows, TrainingConfig
from skbayesnn._engine.objective import Objective, Penalty, data_gradient
from skbayesnn._engine.optimizer import BETA_1, BETA_2, EPSILON, Adam, FlatParameters
from skbayesnn._engine.posterior import Posterior
from skbayesnn._engine.random import ROWS, philox
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import Params
from skbayesnn._priors import Prior

# ---- schedules of step size and KL weight, as tensors

# Number of steps whose values are copied to the device at once.
_STEPS_PER_CHUNK = 256


class StepValues(NamedTuple):
    """Scalars of one step, or (parameters,) tensors if members differ.

    Parameters
    ----------
    step_size : tensor, minus Adam's step size, with its bias corrections
    epsilon : tensor, Adam's epsilon, with the correction of the second moment
    kl_weight : tensor, or None if it is 1 in all steps
    """

    step_size: torch.Tensor
    epsilon: torch.Tensor
    kl_weight: torch.Tensor | None = None


class Schedule:
    """Progress of each member, and the step size and KL weight of each step.

    Parameters
    ----------
    config : TrainingConfig
    n_epochs : ndarray of shape (members,), int
    first_step : ndarray of shape (members,), int
        Number of steps of earlier runs.
    member_of : tensor of shape (parameters,), int
        Index of the member that each parameter belongs to.
    """

    def __init__(
        self,
        config: TrainingConfig,
        n_epochs: np.ndarray,
        first_step: np.ndarray,
        member_of: torch.Tensor,
    ):
        self._config = config
        self._weighs_kl = (
            config.kl_warm_up > 0
            or config.kl_weighting != "uniform"
            or config.training_ratio != 1
        )
        schedules = np.stack([n_epochs * config.n_batches, first_step], axis=1)
        distinct, schedule_index = np.unique(schedules, axis=0, return_inverse=True)
        # Distinct pairs: steps of this run, steps of earlier runs.
        self._schedules = [(int(n), int(first)) for n, first in distinct]
        # Index of every member's distinct schedule, (members,).
        self.index = schedule_index.reshape(-1)
        self._members = [
            np.flatnonzero(schedule_index == i) for i in range(len(distinct))
        ]
        self._schedule_of: torch.Tensor | None = None
        if len(distinct) > 1:
            schedule_of_member = torch.as_tensor(self.index).to(member_of.device)
            self._schedule_of = schedule_of_member[member_of]

    def progress(self, n_done: int) -> list[tuple[float, np.ndarray]]:
        """Pairs of the completed share of the warm-ups, and its members."""
        return [
            (_warmed_up(*schedule, n_done), members)
            for schedule, members in zip(self._schedules, self._members, strict=True)
        ]

    def steps_done(self, n_done: int) -> np.ndarray:
        """Steps of every member including earlier runs, (members,)."""
        steps = [first + min(n_done, n) for n, first in self._schedules]
        return np.array(steps)[self.index]

    def progress_of(self, n_done: np.ndarray) -> np.ndarray:
        """Completed shares of the warm-ups, (distinct schedules, steps)."""
        return np.stack([_warmed_up(*schedule, n_done) for schedule in self._schedules])

    def arrays(self, n_done: range, dtype: torch.dtype) -> np.ndarray:
        """Step size, epsilon and KL weight of some steps, as in ``StepValues``.

        The step size is 0 after the end of a schedule.

        n_done : steps of this run before each of them
        returns : (distinct schedules, steps, 3), rounded to ``dtype``
        """
        config, n = self._config, np.asarray(n_done)
        values = np.ones((len(self._schedules), len(n), 3))
        for schedule, of_steps in zip(self._schedules, values, strict=True):
            n_steps, first = schedule
            unbiased = np.sqrt(1 - _powers(BETA_2, first + n + 1))
            rate = config.learning_rates(n / n_steps)
            of_steps[:, 0] = -rate * unbiased / (1 - _powers(BETA_1, first + n + 1))
            of_steps[n >= n_steps, 0] = 0.0
            of_steps[:, 1] = unbiased
            if self._weighs_kl:
                warmed_up = _warmed_up(*schedule, n)
                of_steps[:, 2] = config.kl_weights(n % config.n_batches, warmed_up)
        values = torch.as_tensor(values).to(dtype).numpy()
        values[..., 1] *= EPSILON
        return values

    def step_values(self, like: torch.Tensor, first: int = 0) -> Iterator[StepValues]:
        """Iterate over the values of all steps from ``first``, as tensors."""
        n_steps = max(n for n, _ in self._schedules)
        for start in range(first, n_steps, _STEPS_PER_CHUNK):
            steps = range(start, min(start + _STEPS_PER_CHUNK, n_steps))
            values = torch.as_tensor(self.arrays(steps, like.dtype)).to(like)
            columns = values.transpose(0, 1).unbind(-1)
            if not self._weighs_kl:
                columns = columns[:2]
            if self._schedule_of is None:
                yield from map(StepValues, *(c.squeeze(1).unbind() for c in columns))
                continue
            for step_values in zip(*columns, strict=True):
                yield StepValues(*(values[self._schedule_of] for values in step_values))


def _warmed_up(n_steps: int, first: int, n_done):
    return (first + n_done) / n_steps


def _powers(base: float, exponents: np.ndarray) -> np.ndarray:
    """Powers by the C library; NumPy's have other last bits on some processors."""
    return np.array([base**exponent for exponent in exponents.tolist()])


# ---- row perturbation: randomised maximum a posteriori


class RowPerturbation:
    """Perturbation of the rows of every member, the same in all epochs.

    Parameters
    ----------
    config : TrainingConfig
    seeds : ndarray of shape (members,), int
    rows : MemberRows

    Attributes
    ----------
    on_y : bool
        Whether y is perturbed; otherwise the weights of the rows.
    values : tensor of shape (members, rows, targets or 1)
    """

    def __init__(self, config: TrainingConfig, seeds: np.ndarray, rows: MemberRows):
        n_targets = config.likelihood.gaussian_targets
        self.on_y = n_targets > 0
        weights = np.ones((len(seeds), int(rows.n_rows.max())))
        if rows.weights is not None:
            weights *= torch.as_tensor(rows.weights).cpu().numpy()
        values = []
        for seed, row_weights in zip(seeds, weights[..., None], strict=True):
            random = np.random.Generator(philox(int(seed), ROWS))
            if self.on_y:
                # A row of weight w is the mean of w rows: divide by sqrt(w).
                normal = random.standard_normal((len(row_weights), n_targets))
                values.append(normal / np.sqrt(row_weights))
            else:
                values.append(random.standard_gamma(row_weights) / row_weights)
        self.values = torch.as_tensor(np.stack(values)).to(rows.mean_weight)

    def select(self, members: np.ndarray) -> "RowPerturbation":
        """The perturbation of some members, by index."""
        part = copy(self)
        part.values = self.values[torch.as_tensor(members).to(self.values.device)]
        return part

    def of_member(self, member: int) -> np.ndarray:
        """Perturbation of a member's rows, (rows, targets or 1)."""
        return self.values[member].numpy()

    def batches(
        self, batches: Iterable[Batch], order: torch.Tensor, size: int
    ) -> Iterator[Batch]:
        """The batches of an epoch, with their rows perturbed.

        order : (members or 1, rows of all batches)
        """
        lead, _, width = self.values.shape
        index = order.expand(lead, -1).unsqueeze(-1).expand(-1, -1, width)
        values = self.values.gather(1, index).split(size, dim=1)
        return map(self._perturbed, batches, values)

    def _perturbed(self, batch: Batch, perturbation: torch.Tensor) -> Batch:
        x, y, weights, _ = batch
        if self.on_y:
            return Batch(x, y, weights, perturbation)
        factors = perturbation.squeeze(-1)
        return Batch(x, y, factors if weights is None else weights * factors)


# ---- the state of a training, and a step that changes it


class TrainingState:
    """Parameters, moments of Adam, and schedule of a training.

    Every implementation of the training changes the parameters and moments in place.

    Parameters
    ----------
    config : TrainingConfig
    members : MemberParams
    rows : MemberRows
    posterior : Posterior
        Initial parameters; it is not changed.
    priors : tuple of Prior
        Prior of every parameter group.
    optimizer_state : dict, optional
        ``optimizer_state()`` of the run to continue.
    epochs_done : int
        Epochs of the schedule that the run to continue has finished.
    """

    def __init__(
        self,
        config: TrainingConfig,
        members: MemberParams,
        rows: MemberRows,
        posterior: Posterior,
        priors: tuple[Prior, ...],
        optimizer_state: dict[str, np.ndarray] | None = None,
        epochs_done: int = 0,
    ):
        self.parameters = FlatParameters(posterior)
        # Its parameters are views of the parameters in training.
        self.posterior = self.parameters.posterior()
        self.random = self._random_source(members)
        self.objective = Objective.of(
            config.likelihood,
            priors,
            members.tau,
            rows.mean_weight,
            rows.total_weight,
        )
        # All draws of deterministic weights are equal.
        stochastic = config.network.stochastic
        self.n_draws = config.n_training_draws if stochastic else 1
        self.penalty = Penalty(
            self.parameters, self.posterior, self.objective, self.random.shared_by_rows
        )
        self._optimizer = Adam(self.parameters, optimizer_state)
        self._n_done = epochs_done * config.n_batches
        before = optimizer_state["step"] - self._n_done if optimizer_state else 0
        self.schedule = Schedule(
            config,
            members.n_epochs,
            np.broadcast_to(before, members.seeds.shape),
            self.parameters.member_of,
        )

    def _random_source(self, members):
        values = self.parameters.values
        return TrainingRandom(members.seeds, values.device, values.dtype)

    def vectors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Parameters and both moments of Adam, which a training changes in place."""
        return self.parameters.values, *self._optimizer.vectors

    def end_members(self, ended: np.ndarray) -> None:
        """Store the moments of members that end here, (members,) bool."""
        if ended.any():
            self._optimizer.keep_moments(ended)

    def count_steps(self, n: int) -> None:
        """Count steps that have been run."""
        self._n_done += n

    def optimizer_state(self) -> dict[str, np.ndarray]:
        """State of the optimizer by name, from which a training can continue."""
        steps = collapse_equal(self.schedule.steps_done(self._n_done))
        return {"step": steps} | self._optimizer.moments()


class Step(TrainingState):
    """One step of Adam on F / (N tau) of all members, by torch; call it with a batch.

    See :class:`TrainingState` for the parameters.
    """

    def __init__(self, config: TrainingConfig, members: MemberParams, *args):
        super().__init__(config, members, *args)
        self._likelihood = config.likelihood
        # Which members learn the likelihood's parameters; None if all do.
        self._learns_likelihood: torch.Tensor | None = None
        if not members.learns_likelihood.all():
            learns = torch.as_tensor(members.learns_likelihood)
            self._learns_likelihood = learns.to(self.parameters.values)
        self._step_values = self.schedule.step_values(
            self.parameters.values, self._n_done
        )

    def start_epoch(self, epoch: int, n_batches: int) -> None:
        """Start an epoch; ``epoch`` counts the epochs of earlier runs, too."""
        self.random.start_epoch(epoch, n_batches)
        params = self.posterior.likelihood_params
        groups = self.schedule.progress(self._n_done)
        if len(groups) == 1:
            self._likelihood.schedule(params, groups[0][0])
            return
        for progress, members in groups:
            subset = {name: value[members] for name, value in params.items()}
            self._likelihood.schedule(subset, progress)
            for name, value in subset.items():
                params[name][members] = value

    def __call__(self, batch: Batch) -> torch.Tensor:
        """Update all members; return the nll of their rows, (members, batch rows)."""
        nll = self._update(batch, next(self._step_values))
        self.random.next_step()
        self.count_steps(1)
        return nll

    def _update(self, batch: Batch, step_values: StepValues) -> torch.Tensor:
        nll, gradient = self._nll_and_gradient(batch)
        self.penalty.add_gradient(gradient, step_values.kl_weight)
        self._optimizer.step(gradient, step_values.step_size, step_values.epsilon)
        return nll

    def _nll_and_gradient(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The nll of the rows and its gradient as a vector, averaged over draws."""
        results = []
        for n_left in reversed(range(self.n_draws)):
            # A gradient may overwrite x.
            batch_copy = batch.with_own_x() if n_left else batch
            nll, layer_grads, likelihood_grads = data_gradient(
                self.objective, self.posterior, batch_copy, self.random
            )
            learned_grads = self._mask_fixed(likelihood_grads)
            results.append((nll, self.parameters.vector(layer_grads, learned_grads)))
        if self.n_draws == 1:
            return results[0]
        nlls, gradients = zip(*results, strict=True)
        return torch.stack(nlls).mean(0), torch.stack(gradients).mean(0)

    def _mask_fixed(self, gradients: Params) -> Params:
        """Set the gradients of likelihood parameters that are not learned to zero."""
        learns = self._learns_likelihood
        if learns is None:
            return gradients
        return {
            name: value * learns.view(-1, *(1,) * (value.ndim - 1))
            for name, value in gradients.items()
        }


def collapse_equal(values: np.ndarray) -> np.ndarray:
    """One value if all are equal, else the array."""
    first = np.ravel(values)[0]
    return np.asarray(first) if (values == first).all() else values


# ---- batches of an epoch


class Batches:
    """Split the rows of members with equal row counts into batches.

    Parameters
    ----------
    rows : MemberRows
    config : TrainingConfig
    perturbation : RowPerturbation, optional
        Perturbation of the rows of every member.
    """

    def __init__(
        self,
        rows: MemberRows,
        config: TrainingConfig,
        perturbation: RowPerturbation | None = None,
    ):
        self._rows, self._n, self._perturbation = rows, config.n_batches, perturbation
        self.n_rows = int(config.batch_rows(rows.n_rows[0]))

    def epoch_batches(self, random: TrainingRandom) -> Iterator[Batch]:
        """Iterate over the batches of an epoch."""
        order = random.order(self._rows.n_rows, self._n)
        batches = self._rows.batches(order, self.n_rows)
        if self._perturbation is not None:
            batches = self._perturbation.batches(batches, order, self.n_rows)
        return batches
