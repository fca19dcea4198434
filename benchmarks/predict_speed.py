"""How much time and memory does a prediction with many posterior draws take?

T = 1,000 draws on 10,000 x 50 rows and T = 50 on 1,000,000 x 50, hidden (100, 100),
float32: seconds of ``predict(X, return_std=True)`` and of the same matrix products
alone (the fastest of some chunk sizes, with preallocated outputs), and the increase of
the peak resident memory, which should stay below scikit-learn's ``working_memory``
+ 200 MB. Every case runs in a new interpreter. The model is trained for one epoch on
2,000 rows.

In long cases the products are timed on a part of the rows, and the time is scaled up.
"""

import argparse
import gc
import json
import resource
import statistics
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import sklearn
import torch
from common import (
    CLOCKS,
    command_line,
    environment,
    in_own_process,
    ratio,
    seconds,
    table,
    verdict,
)

from skbayesnn import MCDropoutRegressor

N_INPUTS, HIDDEN, DROPOUT = 50, (100, 100), 0.05
SIZES = (N_INPUTS, *HIDDEN, 1)
TRAINING_ROWS = 2_000
# (rows, draws, working_memory in MB, rows for the timing of the products, repeats)
CASES = (
    (10_000, 1_000, 1024, 10_000, 2),
    (10_000, 1_000, 64, 10_000, 2),
    (1_000_000, 50, 1024, 50_000, 1),
    (1_000_000, 50, 64, 50_000, 1),
)
QUICK_CASES = (
    (10_000, 100, 1024, 10_000, 1),
    (10_000, 100, 64, 10_000, 1),
    (100_000, 20, 1024, 50_000, 1),
)
# Rows and draws of one batched product: sizes that suit a CPU cache, or a GPU.
CHUNKS = {
    "cpu": ((256, 32), (1024, 8), (10_000, 1)),
    "cuda": ((10_000, 20), (10_000, 100), (2_500, 100)),
}
ALLOWANCE = 200
MB = 2**20


def fitted(n_draws: int, device: str) -> MCDropoutRegressor:
    """A model that is trained for one epoch."""
    random = np.random.default_rng(0)
    X = random.standard_normal((TRAINING_ROWS, N_INPUTS), dtype=np.float32)
    y = X[:, 0] + 0.1 * random.standard_normal(TRAINING_ROWS)
    model = MCDropoutRegressor(
        HIDDEN,
        dropout=DROPOUT,
        max_iter=1,
        n_draws=n_draws,
        device=device,
        random_state=0,
    )
    return model.fit(X, y)


def products(n_rows: int, n_draws: int, chunk: tuple[int, int], device: str) -> None:
    """Compute the matrix products of all draws and rows, chunk by chunk."""
    rows, draws = min(chunk[0], n_rows), min(chunk[1], n_draws)
    weights = [torch.randn(draws, a, b, device=device) for a, b in pairwise(SIZES)]
    x = torch.randn(rows, N_INPUTS, device=device).expand(draws, -1, -1)
    outputs = [torch.empty(draws, rows, b, device=device) for b in SIZES[1:]]
    with torch.inference_mode():
        for _ in range(round(n_rows / rows) * round(n_draws / draws)):
            h = x
            for weight, out in zip(weights, outputs, strict=True):
                h = torch.bmm(h, weight, out=out)


def resident() -> float:
    """Resident memory of this process in MB; its peak on systems without /proc."""
    held = Path("/proc/self/statm")
    if not held.exists():
        return peak()
    pages = int(held.read_text().split()[1])
    return pages * resource.getpagesize() / MB


def peak() -> float:
    """Peak of the resident memory of this process in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MB


def one_case(case, device: str, clock: str) -> dict:
    """Memory of the first prediction; then seconds of predictions and products."""
    n_rows, n_draws, working_memory, timed_rows, repeats = case
    model = fitted(n_draws, device)
    X = np.random.default_rng(1).standard_normal((n_rows, N_INPUTS), dtype=np.float32)
    model.predict(X[:10], return_std=True)
    gc.collect()
    sklearn.set_config(working_memory=working_memory)
    before, predictions, bare = resident(), [], []
    model.predict(X, return_std=True)
    above = peak() - before
    chunks = CHUNKS[torch.device(device).type]
    for _ in range(repeats):
        predictions.append(
            seconds(lambda: model.predict(X, return_std=True), device, clock)
        )
        part = [
            seconds(lambda c=c: products(timed_rows, n_draws, c, device), device, clock)
            for c in chunks
        ]
        bare.append(min(part) * n_rows / timed_rows)
    return {"predict": predictions, "products": bare, "above": above}


def line(case, result) -> list[str]:
    """The line of the table for one case."""
    n_rows, n_draws, working_memory, *_ = case
    slower = ratio(result["predict"], result["products"])
    allowed = working_memory + ALLOWANCE
    return [
        f"{n_rows:,} rows, T = {n_draws:,}",
        str(working_memory),
        f"{statistics.median(result['predict']):.2f}",
        f"{statistics.median(result['products']):.2f}",
        f"{slower:.2f} ({verdict(slower, 2, at_most=True)})",
        f"{result['above']:.0f} ({verdict(result['above'], allowed, at_most=True)})",
    ]


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    result = command_line(__doc__)
    result.add_argument("--quick", action="store_true", help="smaller cases")
    result.add_argument("--device", default="cpu", help="cpu or cuda")
    result.add_argument("--threads", type=int, default=1, help="of torch, intra-op")
    result.add_argument("--clock", choices=list(CLOCKS), default="wall")
    result.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    return result


def main() -> None:
    """Print one table."""
    options = parser().parse_args()
    torch.set_num_threads(options.threads)
    if options.case:
        print(json.dumps(one_case(options.case, options.device, options.clock)))
        return
    print(environment(options.device))
    print(f"hidden {HIDDEN}, {N_INPUTS} inputs, float32, {options.clock} clock")
    header = [
        "case",
        "working_memory MB",
        "predict s",
        "products s",
        "ratio",
        "peak above before, MB",
    ]
    cases = QUICK_CASES if options.quick else CASES
    common = {name: getattr(options, name) for name in ("device", "threads", "clock")}
    results = [in_own_process(__file__, case=case, **common) for case in cases]
    print(table(header, list(map(line, cases, results))))


if __name__ == "__main__":
    main()
