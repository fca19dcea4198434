"""Should the stacks' candidates have other settings, or others beside them?

Every table is cut from training rows, as in study.py. A plain pool is trained (relu
and steps from 0.01 everywhere), and its networks once more with one setting changed;
the stack then has these in place of the plain ones, or beside them. Scores are ratios
to those of the plain pool, and differences of the log density in nats. The default pool
is what followed from it.

    python benchmarks/pool_settings.py --train --folder FOLDER [--settings ...]
    python benchmarks/pool_settings.py --folder FOLDER
"""

import argparse
import pickle
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from common import environment, table
from scipy.stats import gmean
from sklearn.base import clone
from study import CLASSES, REGRESSION, outputs_of, scored, thinned
from torch.nn import functional

from skbayesnn import (
    AnchoredEnsembleClassifier,
    AnchoredEnsembleRegressor,
    BBBClassifier,
    BBBRegressor,
    VariationalDropoutClassifier,
    VariationalDropoutRegressor,
)
from skbayesnn._batch.jobs import network_of, path_of_network
from skbayesnn._networks.activations import ACTIVATIONS, Activation
from skbayesnn._stacking.candidates import CandidateSpec, default_pool

PLAIN, DEFAULT = "plain", "the default pool"


# ---- activations that the package has not


def _selu_back(gradient, values):
    return torch.ops.aten.elu_backward(
        gradient, 1.6732632423543772, 1.0507009873554805, 1, True, values
    )


def _mish_back(gradient, inputs):
    return torch.ops.aten.mish_backward(gradient, inputs)


def _softplus_back(gradient, values):
    return gradient.mul_(-torch.expm1(-values))


OTHERS = {
    "softplus": Activation(
        functional.softplus, functional.softplus, _softplus_back, 2.0
    ),
    "selu": Activation(functional.selu, torch.selu_, _selu_back, 1.0, smooth=False),
    "mish": Activation(
        functional.mish, functional.mish, _mish_back, 2.0, of_inputs=True
    ),
}


# ---- settings of all networks of the pool


def plain(pool):
    """The same length scales and rates, and nothing else that differs."""
    entries = []
    for name, estimator, grids in pool:
        if name == "linear":
            entries.append(CandidateSpec(name, estimator, grids))
            continue
        path, grid = path_of_network(estimator), {}
        for key in ("length_scale", "dropout"):
            values = [value for one in grids for value in one[path + key]]
            grid[path + key] = list(dict.fromkeys(values))
        entries.append(CandidateSpec(name, estimator, grid))
    return with_params(activation="relu", learning_rate_init=0.01)(entries, None)


def with_params(**params):
    """The networks of the pool with other parameters."""

    def changed(pool, n_rows):
        entries = []
        for name, estimator, grid in pool:
            estimator = clone(estimator)
            network_of(estimator).set_params(**params)
            entries.append(CandidateSpec(name, estimator, grid))
        return entries

    return changed


def with_steps(factor):
    """As many times as many epochs."""

    def changed(pool, n_rows):
        n_epochs = network_of(pool[0].estimator).max_iter
        return with_params(max_iter=max(1, round(factor * n_epochs)))(pool, n_rows)

    return changed


def with_batches(size):
    """Batches of so many rows, and as many steps."""

    def changed(pool, n_rows):
        network = network_of(pool[0].estimator)
        n_steps = network.max_iter * -(-n_rows // network.batch_size)
        n_epochs = max(1, round(n_steps / -(-n_rows // size)))
        return with_params(max_iter=n_epochs, batch_size=size)(pool, n_rows)

    return changed


def with_grid(**values):
    """Other values of the grids."""

    def changed(pool, n_rows):
        entries = []
        for name, estimator, grid in pool:
            path = path_of_network(estimator)
            others = {path + key: value for key, value in values.items()}
            entries.append(CandidateSpec(name, estimator, grid | others))
        return entries

    return changed


def of_kind(regressor, classifier, **params):
    """Networks of another posterior, with two length scales."""

    def changed(pool, n_rows):
        entries = []
        for name, estimator, _ in pool:
            estimator, path = clone(estimator), path_of_network(estimator)
            own = network_of(estimator)
            kind = classifier if hasattr(own, "predict_proba") else regressor
            shared = ("max_iter", "random_state", "batch_size", "hidden_layer_sizes")
            other = kind(**{key: getattr(own, key) for key in shared} | params)
            if kind is regressor:
                other.set_params(likelihood="heteroscedastic")
            if path:
                estimator.steps[-1] = (estimator.steps[-1][0], other)
            else:
                estimator = other
            grid = {f"{path}length_scale": [1.0, "fan_in"]}
            entries.append(CandidateSpec(name, estimator, grid))
        return entries

    return changed


SETTINGS = {
    "tanh": with_params(activation="tanh"),
    "erf": with_params(activation="erf"),
    "SELU": with_params(activation="selu"),
    "Mish": with_params(activation="mish"),
    "SiLU": with_params(activation="silu"),
    "softplus": with_params(activation="softplus"),
    "learning rate 0.003": with_params(learning_rate_init=0.003),
    "learning rate 0.03": with_params(learning_rate_init=0.03),
    "constant learning rate": with_params(learning_rate="constant"),
    "batches of 32": with_batches(32),
    "batches of 512": with_batches(512),
    "a quarter of the steps": with_steps(0.25),
    "three times the steps": with_steps(3),
    "one layer of 64": with_params(hidden_layer_sizes=(64,)),
    "three layers of 32": with_params(hidden_layer_sizes=(32, 32, 32)),
    "equal noise": with_params(likelihood="gaussian"),
    "dropout 0.003, 0.03": with_grid(dropout=[0.003, 0.03]),
    "dropout 0, 0.5": with_grid(dropout=[0.0, 0.5]),
    "Student's t": with_params(likelihood="student_t"),
    "three peaks": with_params(likelihood="mixture"),
    "variational dropout": of_kind(
        VariationalDropoutRegressor, VariationalDropoutClassifier
    ),
    "Bayes by Backprop": of_kind(BBBRegressor, BBBClassifier),
    "anchored": of_kind(AnchoredEnsembleRegressor, AnchoredEnsembleClassifier),
}
# Of regression, of classes, and components that cannot be mixed with the others.
REGRESSION_ONLY = {"equal noise", "dropout 0.003, 0.03", "Student's t", "three peaks"}
CLASSES_ONLY = {"dropout 0, 0.5"}
ALONE = {"Student's t", "three peaks"}


def pool_of(X, of_classes, setting):
    """The default pool, the plain one, or its networks with a setting changed."""
    how = {"max_iter": "auto", "device": "cpu", "random_state": 0}
    pool = default_pool(X, np.ones(len(X)), of_classes=of_classes, **how)
    if setting == DEFAULT:
        return pool
    pool = plain(pool)
    if setting == PLAIN:
        return pool
    networks = [one for one in pool if setting in ALONE or one.name != "linear"]
    return SETTINGS[setting](networks, len(X))


def concerns(setting, of_classes):
    """Whether a setting is one of such tables."""
    return setting not in (REGRESSION_ONLY if of_classes else CLASSES_ONLY)


# ---- what came of it


def compared(folder, names, of_classes, beside):
    """Rows of a table: scores with a setting, relative to those of the plain pool."""
    score = "log_loss" if of_classes else "crps"
    start = {t: _read(folder, PLAIN, t) for t in names}
    start = {t: found for t, found in start.items() if found}
    before = {t: scored(found, list(found["of"])) for t, found in start.items()}
    rows = []
    for setting in [*SETTINGS] if beside else [*SETTINGS, DEFAULT]:
        if not concerns(setting, of_classes) or (beside and setting in ALONE):
            continue
        ratios, gains, cells = [], [], []
        for t, found in start.items():
            other = _read(folder, setting, t)
            if not other:
                cells.append("-")
                continue
            own = {f"{setting} {name}": one for name, one in other["of"].items()}
            kept = found["of"]
            if not beside:
                linear = {n: one for n, one in kept.items() if n.startswith("linear")}
                kept = {} if setting in {DEFAULT, *ALONE} else linear
            mixed = kept | own
            value = scored(found | {"of": mixed}, list(mixed))
            ratios.append(value[score] / before[t][score])
            gains.append(_log_density(value) - _log_density(before[t]))
            cells.append(f"{ratios[-1]:.3f}")
        if ratios:
            rows.append(
                [setting, f"{gmean(ratios):.3f}", f"{np.mean(gains):+.3f}", *cells]
            )
    rows.append([score, "", "", *(f"{one[score]:.4g}" for one in before.values())])
    return ["", "mean", "log density", *start], rows


def _log_density(value):
    return value["log_density"] if "log_density" in value else -value["log_loss"]


def _read(folder, setting, name):
    path = folder / setting / f"{name}.pickle"
    return thinned(pickle.loads(path.read_bytes())) if path.exists() else None


def train(folder, settings, tables):
    """Train what is not there yet."""
    ACTIVATIONS.update(OTHERS)
    for setting in settings:
        for name, load in {**REGRESSION, **CLASSES}.items():
            of_classes = name in CLASSES
            path = folder / setting / f"{name}.pickle"
            wanted = tables is None or name in tables
            if not wanted or path.exists() or not concerns(setting, of_classes):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            start = time.process_time()
            X, y, X_test, y_test = load()
            X, X_test = X.astype(np.float32), X_test.astype(np.float32)
            pool = pool_of(X, of_classes, setting)
            rows = X, y, X_test, y_test
            found = outputs_of(pool, rows, of_classes=of_classes, starts=2)
            found["seconds"] = time.process_time() - start
            path.write_bytes(pickle.dumps(found))
            print(setting, name, f"{found['seconds']:.0f} s", flush=True)


def main():
    """Train, or compare what was trained."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--settings", nargs="+", default=[PLAIN, *SETTINGS, DEFAULT])
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--train", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.train:
        train(options.folder, options.settings, options.tables)
        return
    print(environment())
    for names, of_classes in ((REGRESSION, False), (CLASSES, True)):
        for beside in (False, True):
            header, rows = compared(options.folder, names, of_classes, beside)
            where = "beside the plain networks" if beside else "in place of them"
            print(f"\n{'Classes' if of_classes else 'Regression'}, {where}\n")
            print(table(header, rows))


if __name__ == "__main__":
    main()
