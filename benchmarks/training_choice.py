"""What do rows that are held out choose, of prior and training length of classifiers?

On training rows of the tables of ``study.py``, log loss on rows kept apart. Every
setting is fitted, and printed is what would be chosen, as a ratio to the setting of
the longest training that would be, where a shorter one has to be likelier, likelier by
two nats, or likelier by its standard error over rows. Geometric mean over tables and
two draws of their rows, the lowest and the highest ratio; and the seconds of choosing,
as a ratio to a fit.

    python benchmarks/training_choice.py
"""

import time
import warnings

import numpy as np
import torch
from common import command_line, environment, table
from sklearn.base import clone
from study import CLASSES
from training_length import KINDS

from skbayesnn import AnchoredEnsembleClassifier
from skbayesnn.estimators import _selection
from skbayesnn.estimators._job import task_of
from skbayesnn.estimators._training_data import prepare

TABLES = (
    *("breast_cancer", "digits", "noisy-2500", "wine-quality halves", "kin8nm halves"),
    *("protein halves-10000", "adult-15000"),
)
ROWS, SEEDS = (60, 150, 300, 900), (0, 1)
RULES = "likelier", "by two nats", "by its standard error"
KINDS = {name: one for name, one in KINDS.items() if name != "Bayes by Backprop"} | {
    "anchored ensemble": AnchoredEnsembleClassifier(random_state=0)
}


def some_of(name, n_rows, seed):
    """So many rows of a table, and those kept apart; None where there are too few."""
    X, y, X_test, y_test = CLASSES[name]()
    if len(y) < n_rows:
        return None
    rows = np.random.default_rng([n_rows, seed]).permutation(len(y))[:n_rows]
    if len(np.unique(y[rows])) < len(np.unique(y)):
        return None
    return X[rows], y[rows], X_test, y_test


def open_task(network, X, y):
    """The task of a network that leaves the length open, whatever it is."""
    kind = type(network)
    below = kind._selects_epochs_below
    kind._selects_epochs_below = np.inf
    task = task_of(network, prepare(network, X, y))
    kind._selects_epochs_below = below
    return task


def losses_of_settings(network, task, X, y, X_test, y_test):
    """Log loss of every setting, and the seconds of the longest fit."""
    losses, seconds = [], []
    for one in task.settings:
        model = clone(network).set_params(max_iter=one.n_epochs)
        if network._length_scales_of_few_rows:
            model.set_params(length_scale=one.length_scale)
        start = time.perf_counter()
        model.fit(X, y)
        seconds.append(time.perf_counter() - start)
        losses.append(-model.log_predictive_density(X_test, y_test).mean())
    return np.array(losses), seconds[0]


def ratios(network, X, y, X_test, y_test):
    """Loss of what each rule chooses, as a ratio, and the seconds of choosing."""
    task = open_task(network, X, y)
    losses, of_fit = losses_of_settings(network, task, X, y, X_test, y_test)
    start = time.perf_counter()
    [judged] = _selection.judgements([task], torch.device("cpu"), torch.float32)
    seconds = time.perf_counter() - start
    scores = np.array([one.score for one in judged])
    n_epochs = np.array([one.n_epochs for one in task.settings])
    shorter = n_epochs < n_epochs.max()
    longest = np.where(shorter, -np.inf, scores).argmax()
    surely = _selection.best_setting(task, judged)
    chosen = scores.argmax(), np.argmax(scores - 2 * shorter), surely
    return losses[list(chosen)] / losses[longest], seconds / of_fit


def told(values):
    """Ratios of some tables, as a cell."""
    ends = f"{values.min():.2f} to {values.max():.2f}"
    return f"{np.exp(np.log(values).mean()):.3f} ({ends})"


def main():
    """Print the table."""
    command_line(__doc__).parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    rows = []
    for kind, network in KINDS.items():
        for n_rows in ROWS:
            cuts = [some_of(name, n_rows, seed) for name in TABLES for seed in SEEDS]
            found = [ratios(network, *cut) for cut in cuts if cut]
            of_rules = np.array([losses for losses, _ in found]).T
            seconds = np.mean([of_choosing for _, of_choosing in found])
            rows.append([kind, n_rows, *map(told, of_rules), f"{seconds:.1f}"])
    print(table(["posterior", "N", *RULES, "seconds"], rows))


if __name__ == "__main__":
    main()
