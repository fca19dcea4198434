"""How much slower is a training step of each posterior than one of Bernoulli dropout?

One hidden layer of 50, concrete's shape (927 x 8), batches of 128, float32, fixed tau
and prior length scale, so that only the network is trained; a single network, and 64
with distinct seeds in one program. All posteriors are timed in turn within each round;
ratios are medians over the rounds of the ratio within a round.
"""

import statistics
import warnings

import numpy as np
import torch
from common import (
    CLOCKS,
    command_line,
    environment,
    fit_splits,
    interleaved,
    ratio,
    table,
    verdict,
)
from posteriors import POSTERIORS
from sklearn.exceptions import ConvergenceWarning

N_ROWS, N_INPUTS, HIDDEN, BATCH = 927, 8, 50, 128
TAU = 4.0
STEPS_PER_EPOCH = -(-N_ROWS // BATCH)
LIMIT = 2.5  # times Bernoulli's step


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of the inputs with noise, float32."""
    random = np.random.default_rng(0)
    X = random.standard_normal((N_ROWS, N_INPUTS), dtype=np.float32)
    signal = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2
    return X, signal + 0.3 * random.standard_normal(N_ROWS, dtype=np.float32)


def fit(name: str, X, y, n_members: int, epochs: int, device: str) -> None:
    """Train n networks in one program."""
    kind, own = POSTERIORS[name]
    estimator = kind(
        (HIDDEN,),
        **own,
        tau=TAU,
        length_scale=1.0,
        n_estimators=n_members,
        batch_size=BATCH,
        max_iter=epochs,
        device=device,
        random_state=0,
    )
    fit_splits([estimator], X, y, [np.arange(N_ROWS)])


def lines(X, y, n_members: int, epochs: int, options) -> list[list[str]]:
    """One line of the table per posterior."""
    times = interleaved(
        {
            name: lambda name=name: fit(name, X, y, n_members, epochs, options.device)
            for name in POSTERIORS
        },
        options.repeats,
        options.device,
        options.clock,
    )
    result = []
    for name, values in times.items():
        times_bernoulli = ratio(values, times["mc_dropout"])
        per_step = statistics.median(values) / epochs / STEPS_PER_EPOCH / n_members
        result.append(
            [
                name,
                str(n_members),
                f"{1e6 * per_step:.1f}",
                f"{times_bernoulli:.2f} "
                f"({verdict(times_bernoulli, LIMIT, at_most=True)})",
            ]
        )
    return result


def main() -> None:
    """Print one table."""
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=1, help="of torch, intra-op")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(environment(options.device))
    X, y = make_data()
    print(f"\nA training step: {N_ROWS} x {N_INPUTS}, {options.clock} clock")
    header = ["posterior", "networks", "us per network step", "times Bernoulli's"]
    rows = lines(X, y, 1, 40, options) + lines(X, y, 64, 4, options)
    print(table(header, rows))


if __name__ == "__main__":
    main()
