"""Which model chooses the next experiments best, and does it beat random choice?

Eight pools of rows: four tables, a made-up airfoil, and three functions with noise, of
which one has categories. A run starts with 10 random rows, and measures 40 more, one by
one or in batches of 5.

maximise
    Regret: the best value of the pool less the best that has been measured, without
    noise, in standard deviations of the pool. The area is its mean over the steps.
learn
    RMSE of the model for all rows of the pool, in standard deviations of the pool,
    after rows that it chose, and after random rows.

    python benchmarks/acquisition.py
    python benchmarks/acquisition.py --parts learn --models laplace --starts 1

With ``--file`` each run is a line of the file, and further runs are added to it.
"""

import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from common import command_line, data_folder, environment, table
from scipy.stats import qmc
from sklearn.ensemble import RandomForestRegressor

from skbayesnn import (
    AnchoredEnsembleRegressor,
    BayesianStackingRegressor,
    LaplaceRegressor,
    VariationalGPRegressor,
)
from skbayesnn.acquisition import (
    _greedy,
    _improvement,
    _Largest,
    _VarianceReduction,
    suggest,
)

try:
    import torch
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Normalize, Standardize
    from botorch.optim import optimize_acqf_discrete
    from gpytorch.mlls import ExactMarginalLogLikelihood
except ImportError:
    SingleTaskGP = None

N_START, N_STEPS, MAX_POOL = 10, 40, 1_000
PARTS = {
    "maximise, one by one": 1,
    "maximise, batches of 5": 5,
    "learn, batches of 5": 5,
}


# ---- pools: X, values without noise, and the standard deviation of the noise


def measured_table(name):
    """A table of real measurements, which are taken as exact."""
    with np.load(data_folder("uci", name) / f"{name}.npz") as arrays:
        X, y = arrays["X"].astype(float), np.ravel(arrays["y"]).astype(float)
    rows = np.random.default_rng(0).permutation(len(y))[:MAX_POOL]
    return X[rows], y[rows], 0.0


def unit_points(n_columns):
    """Points of the unit cube."""
    return qmc.Sobol(n_columns, seed=0).random(1_024)[:MAX_POOL]


def airfoil():
    """Sound level of a made-up airfoil: a resonance that moves with speed and angle."""
    u = unit_points(5)
    frequency, angle = 0.2 * 100 ** u[:, 0], 22 * u[:, 1]
    chord, speed = 0.025 + 0.28 * u[:, 2], 30 + 42 * u[:, 3]
    thickness = 0.0004 * 146 ** u[:, 4]
    strouhal = np.log10(1_000 * frequency * (thickness + 0.02 * chord) / speed)
    y = 125 + 50 * np.log10(speed / 71.3) + 10 * np.log10(thickness + 0.002)
    y = y - 12 * np.square(strouhal + 0.4 + 0.02 * angle) - 0.15 * angle
    return np.column_stack([1_000 * frequency, angle, chord, speed, thickness]), y, 1.0


def branin():
    """Two columns, three equal maxima."""
    u = unit_points(2)
    a, b = 15 * u[:, 0] - 5, 15 * u[:, 1]
    root = b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6
    return u, -(root**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10), 5.0


def hartmann():
    """Six columns, a few local maxima."""
    u = unit_points(6)
    alpha = np.array([1.0, 1.2, 3.0, 3.2])
    A = np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    )
    P = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    inner = (A * np.square(u[:, None] - P)).sum(2)
    return u, (alpha * np.exp(-inner)).sum(1), 0.1


def recipe():
    """Yield of a reaction: temperature, time and dose; solvent and catalyst by name."""
    u = unit_points(5)
    solvent, catalyst = (5 * u[:, 3]).astype(int), (4 * u[:, 4]).astype(int)
    best_at = np.array([0.3, 0.75, 0.5, 0.2, 0.6])[solvent]
    speed = np.array([1.0, 2.5, 0.6, 1.6])[catalyst]
    y = 60 * np.exp(-8 * np.square(u[:, 0] - best_at))
    y = y * (1 - np.exp(-speed * (0.3 + 3 * u[:, 1])))
    y = y + np.array([0, 5, 12, -6, 3])[solvent] - 15 * np.square(u[:, 2] - 0.4)
    X = pd.DataFrame(u[:, :3], columns=["temperature", "time", "dose"])
    X["solvent"] = np.array(["A", "B", "C", "D", "E"])[solvent]
    X["catalyst"] = np.array(["none", "Pd", "Ni", "Cu"])[catalyst]
    return X, y, 2.0


POOLS = {
    "concrete": lambda: measured_table("concrete"),
    "energy": lambda: measured_table("energy"),
    "yacht": lambda: measured_table("yacht"),
    "power-plant": lambda: measured_table("power-plant"),
    "airfoil, made-up": airfoil,
    "branin + noise": branin,
    "hartmann + noise": hartmann,
    "recipe + noise": recipe,
}


# ---- models: each chooses rows, and predicts the mean


class Ours:
    """A regressor of the package, and ``suggest``."""

    def __init__(self, make):
        self.make = make

    def fit(self, X, y, seed):
        self.X, self.model = X, self.make(seed).fit(X, y)
        return self

    def choose(self, candidates, n, goal, seed):
        return suggest(
            self.model, candidates, n, goal, measured=self.X, random_state=seed
        ).index

    def predict(self, X):
        return self.model.predict(X)


class Forest:
    """A random forest; its trees are the draws."""

    def fit(self, X, y, seed):
        self.X = numbers(X)
        self.model = RandomForestRegressor(random_state=seed).fit(self.X, y)
        return self

    def _trees(self, X):
        return np.stack([tree.predict(X) for tree in self.model.estimators_])

    def choose(self, candidates, n, goal, seed):
        f = self._trees(numbers(candidates))
        if goal == "learn":
            noise = np.full(f.shape[1], 1e-3 * f.var(0).mean())
            gain = _VarianceReduction(f, noise, np.arange(f.shape[1]))
        else:
            best = self.model.predict(self.X).max()
            gain = _Largest(_improvement(f, best), f.mean(0))
        return _greedy(gain, np.ones(f.shape[1]), n)[0]

    def predict(self, X):
        return self.model.predict(numbers(X))


class GaussianProcess:
    """BoTorch's Gaussian process with its defaults; categories are one-hot."""

    def fit(self, X, y, seed):
        torch.manual_seed(seed)
        self.X = torch.as_tensor(numbers(X))
        transforms = {
            "input_transform": Normalize(self.X.shape[1]),
            "outcome_transform": Standardize(1),
        }
        target = torch.as_tensor(y)[:, None]
        self.model = SingleTaskGP(self.X, target, **transforms)
        likelihood = ExactMarginalLogLikelihood(self.model.likelihood, self.model)
        fit_gpytorch_mll(likelihood)
        return self

    def choose(self, candidates, n, goal, seed):
        C = torch.as_tensor(numbers(candidates))
        if goal == "learn":  # the same criterion, by the exact covariance
            with torch.no_grad():
                posterior = self.model.posterior(C)
                noise = self.model.posterior(C, observation_noise=True).variance
                noise = (noise - posterior.variance).clamp(min=0).ravel().numpy()
                covariance = posterior.distribution.covariance_matrix.numpy()
            values, vectors = np.linalg.eigh(covariance)
            roots = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
            # Rows of opposite signs have mean zero, and this covariance.
            f = np.concatenate([roots, -roots]) * np.sqrt(len(roots))
            gain = _VarianceReduction(f, noise, np.arange(len(C)))
            return _greedy(gain, np.ones(len(C)), n)[0]
        with torch.no_grad():
            best = self.model.posterior(self.X).mean.max()
        improvement = qLogExpectedImprovement(self.model, best)
        chosen, _ = optimize_acqf_discrete(improvement, n, C, unique=True)
        return np.array([int((C == row).all(1).nonzero()[0]) for row in chosen])

    def predict(self, X):
        with torch.no_grad():
            return self.model.posterior(torch.as_tensor(numbers(X))).mean.numpy()[:, 0]


class Random:
    """Choose rows at random."""

    def fit(self, X, y, seed):
        return self

    def choose(self, candidates, n, goal, seed):
        return np.random.default_rng(seed).permutation(len(candidates))[:n]


def numbers(X):
    """X as an array; categories one-hot, with the levels of the whole pool."""
    if not hasattr(X, "columns"):
        return X
    levels = {"solvent": list("ABCDE"), "catalyst": ["none", "Pd", "Ni", "Cu"]}
    X = X.assign(**{c: pd.Categorical(X[c], v) for c, v in levels.items()})
    return pd.get_dummies(X, dtype=float).to_numpy()


MODELS = {
    "stack": lambda: Ours(lambda s: BayesianStackingRegressor("fast", random_state=s)),
    "laplace": lambda: Ours(lambda s: LaplaceRegressor(random_state=s)),
    "anchored": lambda: Ours(lambda s: AnchoredEnsembleRegressor(random_state=s)),
    "variational gp": lambda: Ours(lambda s: VariationalGPRegressor(random_state=s)),
    "gp of botorch": GaussianProcess,
    "forest": Forest,
    "random": Random,
}


# ---- runs


def rows_of(X, index):
    """Some rows of a frame or array."""
    return X.iloc[index].reset_index(drop=True) if hasattr(X, "iloc") else X[index]


def run(part, pool, model, start):
    """Regret after each measurement, or the two RMSE; and CPU seconds."""
    X, f, noise = POOLS[pool]()
    random = np.random.default_rng([start, *pool.encode()])
    y, scale = f + noise * random.normal(size=len(f)), f.std()
    index = list(random.permutation(len(f))[:N_START])
    others = list(random.permutation(np.setdiff1d(np.arange(len(f)), index))[:N_STEPS])
    goal, n, begin = part.split(",")[0], PARTS[part], time.process_time()
    chooser = MODELS[model]()

    def fitted(index):
        return chooser.fit(rows_of(X, index), y[index], start)

    def rmse(index):
        return float(np.sqrt(np.mean((fitted(index).predict(X) - f) ** 2)) / scale)

    for step in range(0, N_STEPS, n):
        free = np.setdiff1d(np.arange(len(f)), index)
        chosen = fitted(index).choose(rows_of(X, free), n, goal, 1_000 * start + step)
        index += list(free[chosen])
    if goal == "learn":
        result = [rmse(index), rmse(index[:N_START] + others)]
    else:
        best = np.maximum.accumulate(f[index])[N_START - 1 :]
        result = ((f.max() - best) / scale).tolist()
    seconds = time.process_time() - begin
    return {"part": part, "pool": pool, "model": model, "start": start} | {
        "result": result,
        "seconds": seconds,
    }


def cell(values):
    """Mean and standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.3f} ± {error:.3f}"


def print_tables(runs):
    """One table of all pools per part, and one of each pool."""
    for part in PARTS:
        ours = runs[runs["part"] == part]
        if not len(ours):
            continue
        learns = part.startswith("learn")
        names = ("chosen rows", "random rows") if learns else ("last", "area")
        rows, by_pool = [], []
        for model, of_model in ours.groupby("model", sort=False):
            results = np.array(of_model["result"].tolist())
            pair = results if learns else np.stack([results[:, -1], results.mean(1)], 1)
            of_model = of_model.assign(first=pair[:, 0], second=pair[:, 1])
            # Pools count equally; the error is from the starts.
            by_start = of_model.groupby("start")[["first", "second"]].mean()
            seconds = of_model["seconds"].mean()
            rows.append([model, cell(by_start["first"]), cell(by_start["second"])])
            rows[-1] += [str(len(by_start)), f"{seconds:.1f}"]
            shown = "first" if learns else "second"
            means = of_model.groupby("pool", sort=False)[shown].mean()
            by_pool.append([model, *(f"{means.get(p, np.nan):.2f}" for p in POOLS)])
        header = ["model", *names, "starts", "CPU s of a run"]
        print(f"\n{part}\n\n{table(header, rows)}")
        print(f"\n{'RMSE' if learns else 'area'} by pool\n")
        print(table(["model", *POOLS], by_pool))


def main() -> None:
    """Run what is missing in the file, and print the tables."""
    parser = command_line(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--pools", nargs="+", choices=POOLS, default=[*POOLS])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--file", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    known = []
    if args.file and args.file.exists():
        known = [json.loads(line) for line in args.file.read_text().splitlines()]
    done = {(r["part"], r["pool"], r["model"], r["start"]) for r in known}
    for start in range(args.starts):
        for part in args.parts:
            for model in args.models:
                skipped = model == "random" and part.startswith("learn")
                skipped |= model == "gp of botorch" and SingleTaskGP is None
                for pool in [] if skipped else args.pools:
                    if (part, pool, model, start) in done:
                        continue
                    known.append(run(part, pool, model, start))
                    if args.file:
                        with args.file.open("a") as file:
                            file.write(json.dumps(known[-1]) + "\n")
    print(environment())
    print_tables(pd.DataFrame(known))


if __name__ == "__main__":
    main()
