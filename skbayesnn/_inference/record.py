"""What happens in training, per member: losses, failures, best epochs."""

import numpy as np
import torch

from skbayesnn._inference.optimizer import FlatParameters
from skbayesnn._inference.posterior import Posterior


class Record:
    """What happened in each epoch, per member; kept on the device until asked for."""

    def __init__(self, n_members: int):
        self._nll: list[torch.Tensor] = []
        self._kl: list[torch.Tensor] = []
        self.validation: list[torch.Tensor] = []
        self.failed = np.zeros(n_members, dtype=int)
        self._checked = 0

    def add(self, nll: torch.Tensor, kl: torch.Tensor) -> None:
        """nll, kl : (members,), means over the epoch's steps, per row."""
        self._nll.append(nll)
        self._kl.append(kl)

    def find_failures(self) -> None:
        """Note the first epoch with a loss that is not finite."""
        if self._checked == len(self._nll):
            return
        loss = torch.stack(self._nll[self._checked :]) + torch.stack(
            self._kl[self._checked :]
        )
        bad = ~torch.isfinite(loss).cpu().numpy()
        first = self._checked + 1 + bad.argmax(0)
        new = bad.any(0) & (self.failed == 0)
        self.failed[new] = first[new]
        self._checked = len(self._nll)

    def history(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """nll, kl and validation score, (epochs, members) each."""
        nll, kl = (torch.stack(v).double().cpu().numpy() for v in (self._nll, self._kl))
        if not self.validation:
            return nll, kl, None
        return nll, kl, torch.stack(self.validation).double().cpu().numpy()


class Best:
    """Which parameters are kept: the last epoch's, or each member's best ones.

    Parameters
    ----------
    flat : FlatParameters
        The parameters in training.
    most_epochs : ndarray of shape (members,), int
        After which a member stops.
    patience : int or None
        Epochs without an improvement of the validation score by more than ``tol``
        after which it stops before; None keeps the last epoch's.
    tol : float
    """

    def __init__(
        self,
        flat: FlatParameters,
        most_epochs: np.ndarray,
        patience: int | None,
        tol: float,
    ):
        self._flat, self._patience, self._tol = flat, patience, tol
        self._most_epochs, n_members = most_epochs, len(most_epochs)
        self._score = np.full(n_members, -np.inf)
        self._epoch = np.zeros(n_members, dtype=int)
        self.stopped = np.zeros(n_members, dtype=bool)
        self.n_epochs = np.zeros(n_members, dtype=int)
        self._kept = flat.values.clone()

    def update(self, record: Record) -> bool:
        """After an epoch; returns whether no member is left to be trained."""
        running = ~self.stopped & (record.failed == 0)
        self.n_epochs[running] += 1
        if self._patience is None:
            self._kept.copy_(self._flat.values)
        else:
            self._stop_early(running, record, self._patience)
        self.stopped |= self.n_epochs == self._most_epochs
        return bool(self.stopped[record.failed == 0].all())

    def _stop_early(self, running: np.ndarray, record: Record, patience: int) -> None:
        score = record.validation[-1].double().cpu().numpy()
        better = running & (score > self._score + self._tol)
        self._keep(better)
        self._score[better] = score[better]
        self._epoch[better] = self.n_epochs[better]
        self.stopped |= running & (self.n_epochs - self._epoch >= patience)

    def _keep(self, members: np.ndarray) -> None:
        chosen = torch.as_tensor(members).to(self._flat.values.device)
        chosen = chosen[self._flat.member_of]
        self._kept = torch.where(chosen, self._flat.values, self._kept)

    @property
    def posterior(self) -> Posterior:
        """The posterior to go on with, of parameters of its own."""
        return self._flat.posterior(self._kept)
