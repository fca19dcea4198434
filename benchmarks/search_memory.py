"""How does the memory of a batched search grow with the number of networks?

The increase of peak memory, for growing numbers of networks (candidates x folds) and
two memory budgets. It should grow linearly up to the budget, and stay below the budget
plus an allowance for the data, the scores and the interpreter. Two sizes of network:
one hidden layer of 50, and (500, 500), where a few networks fill the budget. Every case
runs in a new interpreter. On a CPU the resident memory of the process is measured, on a
GPU the memory that torch has allocated.

One epoch on 400 x 8 rows, float32, 4 folds: memory does not depend on the epochs.
"""

import argparse
import gc
import json

import numpy as np
import torch
from common import command_line, environment, in_own_process, seconds, table, verdict
from predict_speed import peak, resident

from skbayesnn import MCDropoutRegressor
from skbayesnn.model_selection import BatchedGridSearchCV

N_ROWS, N_INPUTS, BATCH, N_FOLDS = 400, 8, 128, 4
BUDGETS = (256, 1024)  # MiB
# Hidden layers, and the number of networks of each case.
SIZES = (
    ((50,), (60, 240, 960, 3840)),
    ((500, 500), (12, 60, 240, 480)),
)
ALLOWANCE = 64  # MiB
MB = 2**20


def search(hidden, n_members: int, budget: float, options) -> BatchedGridSearchCV:
    """A search that trains n networks, which differ in tau and in their rows."""
    network = MCDropoutRegressor(
        tuple(hidden),
        dropout=0.05,
        batch_size=BATCH,
        max_iter=1,
        n_draws=2,
        device=options.device,
        random_state=0,
    )
    return BatchedGridSearchCV(
        network,
        {"tau": np.geomspace(1, 100, n_members // N_FOLDS).tolist()},
        scoring="neg_root_mean_squared_error",
        cv=N_FOLDS,
        refit=False,
        n_jobs=options.n_jobs,
        memory_budget=budget,
    )


def one_case(hidden, n_members: int, budget: float, options) -> dict[str, float]:
    """Seconds and MB of one search, after a small one."""
    random = np.random.default_rng(0)
    X = random.standard_normal((N_ROWS, N_INPUTS), dtype=np.float32)
    y = X[:, 0] + 0.1 * random.standard_normal(N_ROWS)
    search((50,), 2 * N_FOLDS, budget, options).fit(X, y)
    gc.collect()
    measured = search(hidden, n_members, budget, options)
    on_gpu = torch.device(options.device).type == "cuda"
    before = torch.cuda.memory_allocated() / MB if on_gpu else resident()
    took = seconds(lambda: measured.fit(X, y), options.device)
    most = torch.cuda.max_memory_allocated() / MB if on_gpu else peak()
    return {"above": most - before, "seconds": took}


def lines_of(hidden, counts, budget: float, options) -> list[list[str]]:
    """Lines of the table: one size of network under one budget."""
    lines, before = [], None
    for n_members in counts:
        result = in_own_process(
            __file__,
            case=(hidden, n_members, budget),
            device=options.device,
            n_jobs=options.n_jobs,
        )
        above, slope = result["above"], ""
        if before is not None:
            slope = f"{(above - before[1]) / (n_members - before[0]):.3f}"
        before = n_members, above
        most = budget + ALLOWANCE
        lines.append(
            [
                f"{hidden}, {n_members:,} networks",
                str(budget),
                f"{result['seconds']:.1f}",
                f"{above:.0f} ({verdict(above, most, at_most=True)})",
                slope,
            ]
        )
    return lines


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    result = command_line(__doc__)
    add = result.add_argument
    add("--device", default="cpu", help="cpu or cuda")
    add("--n-jobs", type=int, default=2, help="programs side by side")
    add("--case", type=json.loads, help=argparse.SUPPRESS)
    return result


def main() -> None:
    """Print one table."""
    options = parser().parse_args()
    torch.set_num_threads(1)
    if options.case:
        print(json.dumps(one_case(*options.case, options)))
        return
    print(environment(options.device))
    print(
        f"{N_ROWS} x {N_INPUTS}, batches of {BATCH}, {N_FOLDS} folds, float32, "
        f"n_jobs={options.n_jobs}; allowed: the budget and {ALLOWANCE} MiB"
    )
    header = [
        "case",
        "memory_budget MiB",
        "seconds",
        "peak above before, MiB",
        "MiB per further network",
    ]
    lines = [
        line
        for hidden, counts in SIZES
        for budget in BUDGETS
        for line in lines_of(hidden, counts, budget, options)
    ]
    print(table(header, lines))


if __name__ == "__main__":
    main()
