"""What would an epoch on 10^8 rows and 100 columns cost on 1, 8 and 64 machines?

A simulation. The compute time of a process is measured here: this process trains its
part of every batch as one of many processes, and the other ones exist only as a count.
So work that every process repeats, such as the order of all rows and the update of the
parameters, is part of the measurement. Disks, network, cores and prices are assumptions
(``--help``). For m machines with k processes each, P = m k processes, N rows of d
columns, batches of B rows, and W weights, the seconds of an epoch are

    compute   c(P) N        c(P): measured CPU seconds per row of the table and process
    reading   4 N d / (m R)                                     R: bytes/s of a machine
    exchange  N / B (2 (P - 1) / P 4 W k / C + 2 log2(P) L)     C: bytes/s, L: latency
    epoch     max(compute, reading) + exchange

The exchange counts all k processes of a machine on its one network card, as if gloo had
no faster way within a machine. Reading needs each process to read only its part of the
rows, from files. In memory every process holds the whole table twice, as given and
standardised, so the last column is what few machines have.

    python benchmarks/cluster_cost.py
"""

import contextlib
import math
import statistics
import warnings
from itertools import pairwise

import numpy as np
from common import command_line, environment, epoch_seconds, table

from skbayesnn import MCDropoutRegressor
from skbayesnn._engine import training
from skbayesnn._engine.processes import Processes

ROWS, COLUMNS = 100_000_000, 100
HIDDEN = (64, 64)
MACHINES = 1, 8, 64
SAMPLE_ROWS, EPOCHS, REPEATS = 524_288, 2, 3


class OneOfMany(Processes):
    """The first of ``count`` processes; the others add nothing to the sums."""

    wants_to_stop = False
    together_interrupted = separate_work = contextlib.nullcontext

    def __init__(self, count):
        self.rank, self.count = 0, count

    def sum(self, values):
        """Leave the values as they are."""

    def gather(self, value):
        """The value, as the value of each process."""
        return [value] * self.count

    def of_first(self, value):
        """The value, since this is the first process."""
        return value

    def can_split(self, n_rows, n_weights):
        """Always split the rows."""
        return True


def seconds_per_row(X, y, batch_size, count):
    """CPU seconds of one of ``count`` processes per row of the table and epoch."""
    training.present_processes = lambda: OneOfMany(count)
    model = MCDropoutRegressor(
        HIDDEN,
        dropout=0.05,
        tau=1.0,
        batch_size=batch_size,
        max_iter=EPOCHS,
        early_stopping=False,
        device="cpu",
        random_state=0,
    )
    with warnings.catch_warnings():
        # The gradients of the other processes are missing.
        warnings.simplefilter("ignore")
        return epoch_seconds(lambda: model.fit(X, y), EPOCHS)["cpu"] / len(X)


def main():
    parser = command_line(__doc__)
    parser.add_argument("--cores", type=int, default=16, help="processes per machine")
    parser.add_argument("--batch", type=int, default=65_536, help="rows of a batch")
    parser.add_argument("--disk", type=float, default=1e9, help="bytes/s of a machine")
    parser.add_argument("--card", type=float, default=1.25e9, help="10 Gbit/s, bytes/s")
    parser.add_argument("--latency", type=float, default=5e-5, help="s of a message")
    parser.add_argument("--price", type=float, default=0.8, help="per machine and hour")
    parser.add_argument("--buffer", type=float, default=1.0, help="GB of a process")
    given = parser.parse_args()
    print(environment())
    random = np.random.default_rng(0)
    X = random.normal(size=(SAMPLE_ROWS, COLUMNS)).astype(np.float32)
    y = X[:, 0] + 0.1 * random.normal(size=SAMPLE_ROWS).astype(np.float32)
    seconds_per_row(X[:1024], y[:1024], 512, 2)  # compiles the loop
    sizes = COLUMNS, *HIDDEN, 1
    n_weights = sum((a + 1) * b for a, b in pairwise(sizes))
    lines = []
    for machines in MACHINES:
        count = machines * given.cores
        runs = [seconds_per_row(X, y, given.batch, count) for _ in range(REPEATS)]
        compute = statistics.median(runs) * ROWS
        reading = 4 * ROWS * COLUMNS / (machines * given.disk)
        per_step = 2 * (count - 1) / count * 4 * n_weights * given.cores / given.card
        per_step += 2 * math.log2(count) * given.latency
        exchange = ROWS / given.batch * per_step
        epoch = max(compute, reading) + exchange
        parts = {"compute": compute, "reading": reading, "exchange": exchange}
        lines.append(
            (
                machines,
                count,
                *(f"{part:.1f}" for part in parts.values()),
                f"{epoch:.1f}",
                max(parts, key=parts.__getitem__),
                f"{machines * epoch / 3600 * given.price:.3f}",
                f"{given.cores * given.buffer:.0f}",
                f"{given.cores * 2 * 4 * ROWS * COLUMNS / 1e9:,.0f}",
            )
        )
    header = (
        "machines",
        "processes",
        "compute, s",
        "reading, s",
        "exchange, s",
        "epoch, s",
        "bottleneck",
        "price",
        "from files, GB",
        "in memory, GB",
    )
    print(
        f"{ROWS:,} rows, {COLUMNS} columns, {n_weights:,} weights, batches of "
        f"{given.batch:,}; per machine {given.cores} processes, {given.disk / 1e9:g} "
        f"GB/s from the disk, {given.card / 1e9:g} GB/s in the network, latency "
        f"{given.latency:g} s, price {given.price:g} per hour (assumptions)"
    )
    print(table(header, lines))


if __name__ == "__main__":
    main()
