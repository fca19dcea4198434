"""How much faster is a batched search than scikit-learn's search over the networks?

12 candidates x 20 folds on concrete (the canonical splits, 927 training rows x 8), one
hidden layer of 50, dropout on every layer, Adam with a constant learning rate, batches
of 128, 40 epochs, float32, scored by the RMSE, refit included:

1. ``BatchedGridSearchCV`` and scikit-learn's ``GridSearchCV`` over the same estimator,
   and ``GridSearchCV`` over skorch's NeuralNetRegressor with the same network (one seed
   and several dropout rates, and for ours also one dropout rate and 12 taus); whether
   both searches over our estimator have the same results;
2. how the time of the batched search is spent;
3. the same for a network with default parameters: 12 taus, five folds;
4. on a GPU also: 240 and 4,000 networks in one program, and fits in turn on that GPU (a
   few fits in turn are timed, and the time is scaled up).

``GridSearchCV`` uses worker processes with one torch thread each, which are started and
have imported everything before the timing; the batched search uses one process with the
same number of torch threads. In skorch's favour: y is standardised beforehand, skorch
predicts with one pass without dropout while ours averages 200 draws, and skorch does
not shuffle the rows.

``--protocol`` times the published grid search instead: 8 sets x 20 splits x 12
candidates with 4,000 epochs (protein: 5 splits, 2,000 epochs), selected by the log
density of the last 20 % of the training rows of each split, refitted to all of them and
scored on the test rows with 10,000 draws. It is meant for a GPU.

    python benchmarks/search_speed.py
    python benchmarks/search_speed.py --device cuda --protocol all
"""

import argparse
import contextlib
import json
import statistics
import time
import warnings

import joblib
import numpy as np
import torch
from common import (
    command_line,
    data_folder,
    environment,
    fit_splits,
    interleaved,
    ratio,
    skorch_regressor,
    table,
    train_on,
    verdict,
)
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from uci import OF_GRID_SEARCH, grid_search, inner, load, names, with_error

from skbayesnn import MCDropoutRegressor
from skbayesnn._data.validation import Table
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.scoring import log_density_scorer

SET, N_FOLDS = "concrete", 20
HIDDEN, BATCH, EPOCHS, LEARNING_RATE, LENGTH_SCALE = 50, 128, 40, 0.01, 1.0
# tau in 1 / MPa^2, about the published grid.
DROPOUTS = (0.005, 0.01, 0.05, 0.1, 0.2)
LOWEST_TAU, HIGHEST_TAU = 0.025, 0.1
SCORING = "neg_root_mean_squared_error"
GPU_CANDIDATES = ((4, 3), (40, 5))  # taus x dropouts, x 20 folds: 240 and 4,000
IN_TURN = 4  # number of fits in turn that are timed

# The published protocol; its grids are in the data's published_gal2016.json.
PROTOCOL = {
    "batch_size": 128,
    "learning_rate": "constant",
    "learning_rate_init": 0.001,
    # NOTE[DIFF] Published: tau in units of y, with a standardised y, in the penalty
    # p l^2 / (2 N tau); here both are standardised. With this l the penalty is ~ 0.
    "length_scale": 0.01,
    "n_draws": 10_000,
}
PROTOCOL_HIDDEN, PROTOCOL_EPOCHS = (50,), 4_000
PROTOCOL_OF_PROTEIN = {"hidden_layer_sizes": (100,), "max_iter": 2_000}


# Candidates and estimators


def grid(n_taus: int, n_dropouts: int) -> dict[str, list[float]]:
    """Candidates that differ in tau and in the dropout of every layer."""
    taus = np.geomspace(LOWEST_TAU, HIGHEST_TAU, n_taus)
    return {"tau": taus.tolist(), "dropout": list(DROPOUTS[:n_dropouts])}


def estimator(device: str) -> MCDropoutRegressor:
    """Our network with the settings of this benchmark."""
    return MCDropoutRegressor(
        (HIDDEN,),
        length_scale=LENGTH_SCALE,
        batch_size=BATCH,
        max_iter=EPOCHS,
        learning_rate="constant",
        learning_rate_init=LEARNING_RATE,
        device=device,
        random_state=0,
    )


def with_skorch(n_inputs: int, device: str):
    """The same network in skorch, after a scaler."""
    net = skorch_regressor(
        module__n_inputs=n_inputs,
        module__n_hidden=HIDDEN,
        module__dropout=0.0,
        lr=LEARNING_RATE,
        batch_size=BATCH,
        max_epochs=EPOCHS,
        device=device,
    )
    return make_pipeline(StandardScaler(), net)


def grid_for_skorch(of_ours, n_rows: int, y_scale: float) -> list[dict]:
    """The same candidates with tau as weight decay of Adam.

    Our loss is half the squared error plus lambda |W|^2, with the gradient 2 lambda W,
    lambda = p l^2 / (2 N tau) and tau in units of the standardised y. The loss in
    skorch is the whole squared error, so the gradient of the penalty is 4 lambda W.
    """
    candidates = []
    for setting in ParameterGrid(of_ours):
        keep, tau = 1 - setting["dropout"], setting["tau"] * y_scale**2
        decay = keep * LENGTH_SCALE**2 / (2 * n_rows * tau)
        candidates.append(
            {
                "neuralnetregressor__module__dropout": [setting["dropout"]],
                "neuralnetregressor__optimizer__weight_decay": [4 * decay],
            }
        )
    return candidates


# Searches


def in_processes():
    """Context of joblib's worker processes with one thread each."""
    return joblib.parallel_config(backend="loky", inner_max_num_threads=1)


def torch_threads(n_jobs: int) -> str:
    """Threads of torch in joblib's worker processes."""
    with in_processes():
        workers = joblib.Parallel(n_jobs)
        counts = workers(joblib.delayed(torch.get_num_threads)() for _ in range(n_jobs))
    return "/".join(map(str, counts))


class Case:
    """A search to be timed; its fitted copies are kept.

    Parameters
    ----------
    search : search, not fitted
    X, y : ndarray
    context : callable
        Returns the context manager for ``fit``.
    y_scale : float
        Factor that converts scores to units of y.
    """

    def __init__(self, search, X, y, context=contextlib.nullcontext, y_scale=1.0):
        self.search, self.X, self.y, self.context = search, X, y, context
        self.y_scale = y_scale
        self.fitted: list = []

    def __call__(self) -> None:
        with self.context():
            self.fitted.append(clone(self.search).fit(self.X, self.y))

    @property
    def best(self) -> str:
        """Mean score of the best candidate over the folds, in units of y."""
        return f"{self.y_scale * self.fitted[-1].best_score_:.3f}"


def cases_of(X, y, folds, options) -> dict[str, Case]:
    """The searches to compare, by name."""
    same = {"cv": folds, "n_jobs": options.n_jobs}
    ours, y_scale = estimator(options.device), float(y.std())
    grids = {"4 x 3": grid(4, 3), "12 x 1": grid(12, 1)}
    standardized = ((y - y.mean()) / y_scale).astype(np.float32)[:, None]
    skorch = GridSearchCV(
        with_skorch(X.shape[1], options.device),
        grid_for_skorch(grids["4 x 3"], len(folds[0][0]), y_scale),
        scoring=SCORING,
        **same,
    )
    cases = {"skorch, 4 x 3": Case(skorch, X, standardized, in_processes, y_scale)}
    for name, candidates in grids.items():
        plain = GridSearchCV(ours, candidates, scoring=SCORING, **same)
        batched = BatchedGridSearchCV(ours, candidates, scoring=SCORING, **same)
        cases[f"plain, {name}"] = Case(plain, X, y, in_processes)
        cases[f"batched, {name}"] = Case(batched, X, y)
    by_density = BatchedGridSearchCV(
        ours, grids["4 x 3"], scoring=log_density_scorer, **same
    )
    cases["batched, 4 x 3, log density"] = Case(by_density, X, y)
    return cases


def speed(cases: dict[str, Case], times: dict[str, list[float]]) -> str:
    """The table of question 1."""
    lines = []
    for name, case in cases.items():
        line = [name, f"{statistics.median(times[name]):.2f}", case.best, "", ""]
        who, _, rest = name.partition(", ")
        if who == "batched":
            plain = f"plain, {rest.removesuffix(', log density')}"
            line[3] = f"{ratio(times[plain], times[name]):.2f}"
            line[4] = f"{ratio(times['skorch, 4 x 3'], times[name]):.2f}"
            if not rest.endswith("log density"):
                for column, target in ((3, 8), (4, 25)):
                    met = verdict(float(line[column]), target, at_most=False)
                    line[column] += f" ({met})"
        lines.append(line)
    header = [
        "search, taus x dropouts",
        "seconds",
        "best mean score",
        "times faster than plain",
        "times faster than skorch",
    ]
    return table(header, lines)


def agreement(batched: Case, plain: Case) -> str:
    """Describe the differences of two searches over the same candidates."""
    ours, theirs = batched.fitted[-1], plain.fitted[-1]
    of_scores = np.abs(scores_of(ours) / scores_of(theirs) - 1).max()
    predictions = ours.predict(plain.X), theirs.predict(plain.X)
    of_predictions = np.abs(predictions[0] - predictions[1]).max() / plain.y.std()
    same = "the same" if ours.best_params_ == theirs.best_params_ else "another"
    return (
        f"{same} best_params_ ({theirs.best_params_}); at most {of_scores:.1e} of a "
        "score between the scores of a candidate in a fold, and "
        f"{of_predictions:.1e} of y's standard deviation between the refitted "
        "networks' predictions"
    )


def scores_of(search) -> np.ndarray:
    """Test scores of shape (candidates, folds)."""
    of_folds = range(search.n_splits_)
    return np.stack([search.cv_results_[f"split{i}_test_score"] for i in of_folds], 1)


def shares(search, seconds: float) -> dict[str, float]:
    """Seconds of the parts of one batched search.

    The fit time of a member is its share of the program's time, and programs run one
    after another. The rest is checks, copies and the ranking.
    """
    results = search.cv_results_
    parts = {
        "training": results["mean_fit_time"].sum() * search.n_splits_,
        "scoring": results["mean_score_time"].sum() * search.n_splits_,
        "refit": search.refit_time_,
    }
    return parts | {"rest": seconds - sum(parts.values())}


def where_time_goes(cases, times) -> str:
    """The table of question 2, medians over the rounds."""
    of_batched = [name for name in cases if name.startswith("batched")]
    columns = [
        [
            shares(*each)
            for each in zip(cases[name].fitted[1:], times[name], strict=True)
        ]
        for name in of_batched
    ]
    lines = [
        [part, *(f"{statistics.median(s[part] for s in c):.3f}" for c in columns)]
        for part in columns[0][0]
    ]
    return table(["seconds", *of_batched], lines)


def of_default_network(X, y, options) -> dict[str, Case]:
    """Searches of question 3, over a typical path of taus."""
    taus = np.geomspace(1 / y.var(), 1000 / y.var(), 12).tolist()
    ours = MCDropoutRegressor(device=options.device, random_state=0)
    same = {"cv": 5, "n_jobs": options.n_jobs}
    return {
        "GridSearchCV": Case(
            GridSearchCV(ours, {"tau": taus}, **same), X, y, in_processes
        ),
        "BatchedGridSearchCV": Case(
            BatchedGridSearchCV(ours, {"tau": taus}, **same), X, y
        ),
    }


def speed_of_default(cases: dict[str, Case], times: dict[str, list[float]]) -> str:
    """The table of question 3."""
    faster = ratio(times["GridSearchCV"], times["BatchedGridSearchCV"])
    speed_ups = ["", f"{faster:.2f} ({verdict(faster, 4, at_most=False)})"]
    lines = [
        [name, f"{statistics.median(times[name]):.1f}", case.best, speed_up]
        for (name, case), speed_up in zip(cases.items(), speed_ups, strict=True)
    ]
    return table(["search", "seconds", "best mean R^2", "times faster"], lines)


def many_at_once(X, y, folds, n_taus: int, n_dropouts: int, options) -> list[list[str]]:
    """Lines of the table of question 4."""
    device, candidates = options.device, grid(n_taus, n_dropouts)
    settings = list(ParameterGrid(candidates))
    n_members = len(settings) * len(folds)
    ours = estimator(device)
    # Candidates at equal distances.
    timed = np.linspace(0, len(settings) - 1, IN_TURN).astype(int)
    rows = folds[0][0]

    def in_turn():
        for i in timed:
            clone(ours).set_params(**settings[i]).fit(X[rows], y[rows])

    def program():
        members = [
            (clone(ours).set_params(**setting), train)
            for setting in settings
            for train, _ in folds
        ]
        checked = Table(X, y.astype(float)[:, None], np.ones(len(X)))
        train_on(checked, [rows for _, rows in members], [e for e, _ in members])

    def search():
        BatchedGridSearchCV(
            ours, candidates, cv=folds, scoring=SCORING, refit=False
        ).fit(X, y)

    times = interleaved(
        {"in turn": in_turn, "one program": program, "batched search": search},
        options.repeats,
        device,
    )
    alone = [t * n_members / IN_TURN for t in times.pop("in turn")]
    lines = [[f"{n_members} in turn", f"{statistics.median(alone):.1f}", ""]]
    for name, values in times.items():
        faster = ratio(alone, values)
        lines.append(
            [
                f"{n_members}, {name}",
                f"{statistics.median(values):.2f}",
                f"{faster:.0f} ({verdict(faster, 100, at_most=False)})",
            ]
        )
    return lines


# The published protocol


def published_grid(name: str) -> dict[str, list[float]]:
    """The dropout rates and precisions of the published search on a set."""
    results = json.loads((data_folder("uci") / "published_gal2016.json").read_text())
    pairs = results["data_sets"][name][OF_GRID_SEARCH]["validation_grid"]
    rates, taus = (sorted(set(values)) for values in zip(*pairs, strict=True))
    return {"dropout": rates, "tau": taus}


def protocol(name: str, options) -> tuple[list[str], float]:
    """A line of the table, and its seconds.

    Every split is a fold of one search, and selects its best candidate by the score of
    that fold. The selected candidates of all splits are refitted in one program.
    """
    X, y, train, test = load(name, None)
    ours = MCDropoutRegressor(
        **{"hidden_layer_sizes": PROTOCOL_HIDDEN, "max_iter": PROTOCOL_EPOCHS}
        | PROTOCOL
        | (PROTOCOL_OF_PROTEIN if name.startswith("protein") else {}),
        device=options.device,
        random_state=0,
    )
    start = time.perf_counter()
    search = BatchedGridSearchCV(
        ours,
        published_grid(name),
        scoring=log_density_scorer,
        cv=list(zip(*inner(train), strict=True)),
        refit=False,
        n_jobs=options.n_jobs,
    ).fit(X, y)
    searched = time.perf_counter()
    best = scores_of(search).argmax(0)
    chosen = [clone(ours).set_params(**search.cv_results_["params"][i]) for i in best]
    fit_splits(chosen, X, y, list(train))
    rmse, density = [], []
    for fitted, rows in zip(chosen, test, strict=True):
        error = fitted.predict(X[rows]) - y[rows]
        rmse.append(np.sqrt(np.mean(np.square(error))))
        density.append(fitted.log_predictive_density(X[rows], y[rows]).mean())
    end = time.perf_counter()
    line = [name, f"{searched - start:.0f}", f"{end - searched:.0f}"]
    for metric, values in (("rmse", rmse), ("density", density)):
        standard_error = np.std(values) / np.sqrt(len(values))
        line += [
            with_error(np.mean(values), standard_error),
            with_error(*grid_search(name)[metric]),
        ]
    return line, end - start


def run_protocol(options) -> None:
    """Print the table of the published protocol."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("\nThe published protocol: mean +- standard error over splits")
    lines = []
    for name in options.protocol:
        lines.append(protocol(name, options))
        print(f"{name}: {lines[-1][1]:.0f} s", flush=True)
    header = ["set", "search s", "refit and test s", "RMSE", "published"]
    header += ["log density", "published"]
    print(table(header, [line for line, _ in lines]))
    print(f"all sets: {sum(seconds for _, seconds in lines):.0f} s")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    result = command_line(__doc__)
    add = result.add_argument
    add("--device", default="cpu", help="cpu or cuda")
    add("--repeats", type=int, default=3, help="rounds, after one to warm up")
    add("--n-jobs", type=int, default=2, help="of every search")
    add(
        "--protocol",
        type=names,
        metavar="SETS",
        help="time the published protocol on these sets, or 'all', instead",
    )
    return result


def main() -> None:
    """Print the tables."""
    options = parser().parse_args()
    data_folder("uci")
    torch.set_num_threads(1)
    print(environment(options.device))
    if options.protocol:
        run_protocol(options)
        return
    X, y, train, test = load(SET, N_FOLDS)
    folds = list(zip(train, test, strict=True))
    print(
        f"\n{SET}, {len(train[0])} x {X.shape[1]}, {len(folds)} folds, {EPOCHS} "
        f"epochs, n_jobs={options.n_jobs}; threads of torch in the worker processes: "
        f"{torch_threads(options.n_jobs)}. The targets are for two cores."
    )
    cases = cases_of(X, y, folds, options)
    times = interleaved(cases, options.repeats, options.device)
    print(speed(cases, times))
    for name in ("4 x 3", "12 x 1"):
        differences = agreement(cases[f"batched, {name}"], cases[f"plain, {name}"])
        print(f"batched against plain, {name}: {differences}")
    print("\nWhere the time of the batched search goes")
    print(where_time_goes(cases, times), flush=True)
    print("\nThe default network, 12 taus, 5 folds of all rows")
    cases = of_default_network(X, y, options)
    print(speed_of_default(cases, interleaved(cases, options.repeats, options.device)))
    if torch.device(options.device).type == "cuda":
        print(f"\nMany at once ({IN_TURN} fits in turn timed, and multiplied up)")
        header = ["networks", "seconds", "times faster than in turn"]
        for of_grid in GPU_CANDIDATES:
            print(table(header, many_at_once(X, y, folds, *of_grid, options)))


if __name__ == "__main__":
    main()
