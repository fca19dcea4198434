"""One step of the training, and the state that it changes."""

import numpy as np
import torch

from skbayesnn._families import Params
from skbayesnn._inference.batch import Batch
from skbayesnn._inference.data_gradient import DATA_GRADIENTS
from skbayesnn._inference.objective import Objective
from skbayesnn._inference.optimizer import Adam, FlatParameters
from skbayesnn._inference.penalty import Penalty
from skbayesnn._inference.plan import Members, Plan, Rows
from skbayesnn._inference.posterior import Posterior
from skbayesnn._inference.priors import priors_of
from skbayesnn._inference.schedule import Schedule, StepNumbers
from skbayesnn._inference.unequal_noise import noise_of


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
        plan: Plan,
        members: Members,
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
