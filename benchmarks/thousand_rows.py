"""The default stack on small samples of three large tables, and published figures.

The protocol of Izbicki & Rodrigues (2026, arXiv:2603.26611): n rows are drawn by
NumPy's RandomState, a quarter of them is held out, and the CRPS is averaged over
repetitions. The published columns are their table for n = 1,000 (marked *); TabPFN and
TabICL are pretrained. Their rows are other draws of the same tables.

    python benchmarks/thousand_rows.py
    python benchmarks/thousand_rows.py --rows 50,500,1000,5000 --draws 3
"""

import time
import warnings

import numpy as np
from common import command_line, environment, table
from uci import load

from skbayesnn import BayesianStackingRegressor
from skbayesnn.metrics import interval_coverage

# CRPS for n = 1,000: TabPFN 2.5, TabICLv2, the best without pre-training.
PUBLISHED = {
    "kin8nm": ("0.0521", "0.0474", "0.0819"),
    "protein-tertiary-structure": ("2.249", "2.128", "2.526"),
    "naval-propulsion-plant": ("0.0002", "0.0001", "0.0018"),
}


def measure(name: str, n_rows: int, draw: int, size: str) -> list[float]:
    """CRPS, log density, coverage and wall-clock seconds for one draw of the rows."""
    X, y, *_ = load(name, 1)
    rows = np.random.RandomState(draw).permutation(len(y))[:n_rows]
    train, test = rows[: 3 * n_rows // 4], rows[3 * n_rows // 4 :]
    start = time.perf_counter()
    model = BayesianStackingRegressor(size, random_state=draw).fit(X[train], y[train])
    seconds = time.perf_counter() - start
    return [
        model.crps(X[test], y[test]).mean(),
        model.log_predictive_density(X[test], y[test]).mean(),
        interval_coverage(y[test], model.predict_interval(X[test], 0.9)),
        seconds,
    ]


def main() -> None:
    arguments = command_line(__doc__)
    arguments.add_argument("--rows", default="1000")
    arguments.add_argument("--draws", type=int, default=10)
    arguments.add_argument("--sets", default=",".join(PUBLISHED))
    arguments.add_argument("--size", default="auto", choices=["fast", "auto", "best"])
    options = arguments.parse_args()
    print(environment())
    warnings.filterwarnings("ignore")
    rows = []
    for name in options.sets.split(","):
        for n_rows in map(int, options.rows.split(",")):
            draws = [
                measure(name, n_rows, draw, options.size)
                for draw in range(options.draws)
            ]
            crps, density, coverage, seconds = np.mean(draws, axis=0)
            error = np.std(draws, axis=0, ddof=1)[0] / np.sqrt(len(draws))
            published = PUBLISHED[name] if n_rows == 1000 else ("", "", "")
            rows.append(
                [
                    name,
                    f"{n_rows:,}",
                    f"{crps:.3g} ± {error:.1g}",
                    f"{density:.2f}",
                    f"{coverage:.2f}",
                    f"{seconds:.1f}",
                    *published,
                ]
            )
    header = ["table", "rows", "CRPS", "log density", "90 % cover", "fit, s"]
    peers = ["TabPFN 2.5 *", "TabICLv2 *", "best without pre-training *"]
    print(table([*header, *peers], rows))


if __name__ == "__main__":
    main()
