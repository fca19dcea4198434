"""How much time do batches of trials save, compared with Optuna's own search?

32 trials x 3 folds on scikit-learn's diabetes (442 rows x 10), one hidden layer of 50,
100 epochs. Optuna's TPE sampler selects tau, dropout and length scale by the log
predictive density, without a refit:

1. ``OptunaSearchCV`` of optuna-integration, one network after another;
2. the recipe of the README: draw 8 or 16 trials, train them in all folds by one
   ``BatchedGridSearchCV``, and pass the scores to the study;
3. the same with a median pruner: all trials are trained for 10 epochs, the remaining
   ones for 30, and the remaining ones for 100, each time from the start.

A batch is chosen before any of its scores exists, so its best trial may be worse than
with sequential trials. The table contains the mean best score over several seeds.
"""

import statistics
import warnings

import numpy as np
import optuna
import torch
from common import CLOCKS, command_line, environment, interleaved, ratio, table, verdict
from optuna.distributions import FloatDistribution
from optuna_integration import OptunaSearchCV
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.exceptions import ConvergenceWarning

from skbayesnn import MCDropoutRegressor
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.scoring import log_density_scorer

N_FOLDS, EPOCHS, RUNGS = 3, 100, (10, 30, 100)
TARGET = 5  # times faster


def estimator() -> MCDropoutRegressor:
    """The network whose tau, dropout and length scale are selected."""
    return MCDropoutRegressor((50,), max_iter=EPOCHS, device="cpu", random_state=0)


def space() -> dict[str, FloatDistribution]:
    """Ranges of the parameters."""
    return {
        "tau": FloatDistribution(0.3, 10, log=True),  # y has a variance of 1
        "dropout": FloatDistribution(0.001, 0.3, log=True),
        "length_scale": FloatDistribution(0.1, 10, log=True),
    }


def study_of(seed: int, pruner=None) -> optuna.Study:
    """A study that treats running trials as bad ones, so that a batch spreads out."""
    sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    return optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)


def one_by_one(X, y, n_trials: int, seed: int) -> float:
    """Best mean score of Optuna's own search."""
    search = OptunaSearchCV(
        estimator(),
        space(),
        cv=N_FOLDS,
        n_trials=n_trials,
        refit=False,
        scoring=log_density_scorer,
        study=study_of(seed),
    )
    return search.fit(X, y).best_score_


def scores_of(trials, X, y, epochs: int = EPOCHS) -> np.ndarray:
    """Mean scores of some trials, trained as the members of one search."""
    grid = [{name: [value] for name, value in t.params.items()} for t in trials]
    network = clone(estimator()).set_params(max_iter=epochs)
    search = BatchedGridSearchCV(
        network, grid, cv=N_FOLDS, scoring=log_density_scorer, refit=False
    )
    return search.fit(X, y).cv_results_["mean_test_score"]


def in_batches(X, y, n_trials: int, seed: int, size: int) -> float:
    """Best mean score of batches of trials."""
    study = study_of(seed)
    for _ in range(n_trials // size):
        trials = [study.ask(space()) for _ in range(size)]
        for trial, score in zip(trials, scores_of(trials, X, y), strict=True):
            study.tell(trial, score)
    return study.best_value


def pruned(X, y, n_trials: int, seed: int, size: int) -> float:
    """Best mean score of batches that shrink from rung to rung."""
    study = study_of(seed, optuna.pruners.MedianPruner(n_startup_trials=size))
    for _ in range(n_trials // size):
        trials = [study.ask(space()) for _ in range(size)]
        for epochs in RUNGS:
            scores = scores_of(trials, X, y, epochs)
            for trial, score in zip(trials, scores, strict=True):
                trial.report(score, epochs)
            if epochs == RUNGS[-1]:
                for trial, score in zip(trials, scores, strict=True):
                    study.tell(trial, score)
                break
            stopped = [trial for trial in trials if trial.should_prune()]
            for trial in stopped:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            trials = [trial for trial in trials if trial not in stopped]
            if not trials:
                break
    return study.best_value


def main() -> None:
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--trials", type=int, default=32, help="of every study")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, each its seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # optuna-integration warns of what Optuna has deprecated.
    for kind in (ConvergenceWarning, UserWarning, FutureWarning):
        warnings.simplefilter("ignore", kind)
    X, y = load_diabetes(return_X_y=True)
    y = y / y.std()
    ways = {
        "OptunaSearchCV": one_by_one,
        "batches of 8": lambda *given: in_batches(*given, size=8),
        "batches of 16": lambda *given: in_batches(*given, size=16),
        "batches of 8, pruned": lambda *given: pruned(*given, size=8),
    }
    best: dict[str, list[float]] = {name: [] for name in ways}

    def work(name):
        def run():
            # The seed of a round is the same for all ways.
            best[name].append(ways[name](X, y, options.trials, len(best[name])))

        return run

    cases = {name: work(name) for name in ways}
    times = interleaved(cases, options.repeats, clock=options.clock)
    print(environment())
    print(
        f"\n{options.trials} trials x {N_FOLDS} folds, {len(y)} rows, {EPOCHS} epochs"
    )
    rows = []
    for name, seconds in times.items():
        faster = ratio(times["OptunaSearchCV"], seconds)
        speed_up = f"{faster:.1f} ({verdict(faster, TARGET, at_most=False)})"
        rows.append(
            [
                name,
                f"{statistics.median(seconds):.1f}",
                f"{np.mean(best[name][1:]):.3f}",
                "" if name == "OptunaSearchCV" else speed_up,
            ]
        )
    header = ["search", "seconds", "best mean log density, nats", "times faster"]
    print(table(header, rows))


if __name__ == "__main__":
    main()
