"""What may look on while a program is trained, and go on from where it ends."""

from skbayesnn._inference.posterior import Posterior


class Hook:
    """Told about the training of a program; each method does nothing by default."""

    def epoch_end(self, n_done: int, posterior: Posterior) -> None:
        """After ``n_done`` epochs.

        posterior : views of what is in training: clone what is to be kept
        """

    def training_end(self, posterior: Posterior) -> Posterior:
        """The posterior to go on with, by default the trained one."""
        return posterior
