"""How long do fits and predictions take with default parameters?

Friedman's first function and three irrelevant inputs, 1,030 x 8 (concrete's shape),
noise of std 1; for classification, whether y is above its median. A prediction is the
mean and the std, or the probabilities, of 100,000 rows. One fit initialises the
libraries before the timing.

    python benchmarks/default_speed.py --device cuda
"""

import warnings

import numpy as np
import torch
from common import command_line, environment, seconds, table
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning

import skbayesnn

N_ROWS, N_INPUTS, N_NEW = 1_030, 8, 100_000
NAMES = ("MCDropout", "BBB", "VariationalDropout", "AnchoredEnsemble")
KINDS = [f"{name}Regressor" for name in (*NAMES, "BayesianStacking")] + [
    f"{name}Classifier" for name in (*NAMES, "BayesianStacking")
]


def line(name: str, device: str) -> list[str]:
    """The line of the table for one estimator."""
    X, y = make_friedman1(N_ROWS, N_INPUTS, noise=1.0, random_state=0)
    X_new = np.random.default_rng(0).uniform(size=(N_NEW, N_INPUTS))
    model = getattr(skbayesnn, name)(device=device, random_state=0)
    if name.endswith("Regressor"):
        times = [
            seconds(lambda: model.fit(X, y), device),
            seconds(lambda: model.predict(X_new, return_std=True), device),
        ]
    else:
        times = [
            seconds(lambda: model.fit(X, y > np.median(y)), device),
            seconds(lambda: model.predict_proba(X_new), device),
        ]
    return [name, *(f"{t:.2f}" for t in times)]


def main() -> None:
    """Print one table."""
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=1, help="of torch, intra-op")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(environment(options.device))
    line(KINDS[0], options.device)
    rows = [line(name, options.device) for name in KINDS]
    print(table(["default", "fit, s", "100,000 rows, s"], rows))


if __name__ == "__main__":
    main()
