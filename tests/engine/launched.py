"""The script that ``test_processes.py`` starts in two processes.

Arguments: a folder for the results, and a port for the second connection.
"""

import os
import pickle
import signal
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn._engine import processes, training

MODELS = {
    "members": MCDropoutRegressor(dropout=0.2, n_estimators=3),
    "classes": MCDropoutClassifier(dropout=0.2, n_estimators=2),
    "no seed": MCDropoutRegressor(dropout=0.2, n_estimators=2),
}


def table():
    random = np.random.default_rng(1)
    X = random.normal(size=(57, 4))
    return X, X[:, 0] * X[:, 1] + 0.1 * random.normal(size=57)


def fitted(name):
    model = MODELS[name].set_params(
        hidden_layer_sizes=(6,),
        batch_size=19,
        max_iter=4,
        early_stopping=False,
        device="cpu",
        dtype="float64",
        random_state=None if name == "no seed" else 5,
    )
    X, y = table()
    return model.fit(X, y > 0 if "classes" in name else y)


def wait_for(path):
    while not path.exists():
        time.sleep(0.02)


def main():
    folder, port, rank = Path(sys.argv[1]), sys.argv[2], os.environ["RANK"]
    results = {name: fitted(name) for name in MODELS}

    def failure(fit, *args):
        try:
            fit(*args)
        except (ValueError, OSError) as error:
            return repr(error)
        return "no error"

    X, y = table()
    other = MCDropoutRegressor(max_iter=2, random_state=0)
    results["other data"] = failure(other.fit, X, y if rank == "0" else y[::-1])
    # The second process is late: it calls no fit until the first has given up.
    os.environ[processes.TIMEOUT_VARIABLE] = "2"
    processes.leave_processes()
    os.environ["MASTER_PORT"] = port
    fitted("members")
    has_given_up = folder / "has given up"
    if rank == "0":
        results["late"] = failure(fitted, "members")
        has_given_up.touch()
    else:
        wait_for(has_given_up)
    processes.leave_processes()
    # Long enough for a busy machine; a process that ends is noticed at once.
    os.environ[processes.TIMEOUT_VARIABLE] = "60"
    os.environ["MASTER_PORT"] = sys.argv[3]

    def stopped(action, ranks="01", max_iter=100_000_000, **fit):
        """A long fit, in the third run of which some processes do something."""
        add, n_runs = training.TrainingHistory.add, []

        def add_and_act(*args):
            n_runs.append(1)
            if rank in ranks and len(n_runs) == 3:
                action()
            add(*args)

        training.TrainingHistory.add = add_and_act
        model = MCDropoutRegressor(batch_size=19, n_estimators=3)
        model.set_params(dropout=0.2, dtype="float64")
        model.set_params(max_iter=max_iter, tau=1.0, length_scale=1.0)
        model.set_params(early_stopping=False)
        model.set_params(device="cpu", warm_start=True, random_state=0)
        error = failure(partial(model.fit, **fit), X, y)
        training.TrainingHistory.add = add
        return error, model

    has_noticed = folder / "has noticed"
    if rank == "0":
        has_noticed.touch()
    wait_for(has_noticed)

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    results["interrupted"] = stopped(interrupt)
    if rank == "1":
        (folder / "1.pickle").write_bytes(pickle.dumps(results))
    # The second process ends in the middle of a fit.
    file = folder / "fit.skb"
    results["lost"] = stopped(lambda: os._exit(0), "1", 10_000, checkpoint=file)
    (folder / "0.pickle").write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    main()
