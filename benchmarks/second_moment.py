"""How fast should Adam's second moment follow? Values of its decay beside each other.

Printed is the CRPS on rows kept apart as a ratio to that of 0.999: geometric means over
four settings of single networks, each of three starts, as in the pool of the stack.
Parts of training rows, as in study.py.

    python benchmarks/second_moment.py --decays 0.99,0.98,0.95
"""

import warnings
from unittest.mock import patch

import numpy as np
from common import command_line, environment, table
from study import REGRESSION

from skbayesnn import MCDropoutRegressor
from skbayesnn._engine import optimizer, step
from skbayesnn._stacking import candidates

USUAL = 0.999
SETTINGS = ((1.0, 0.0), (3.0, 0.0), (1.0, 0.01), ("auto", 0.05))
LIKELIHOODS = {"gaussian": "constant noise", "heteroscedastic": "noise by input"}
TABLES = [name for name in REGRESSION if name != "synthetic-60"]


def scores(X, y, X_test, y_test, decay: float) -> np.ndarray:
    """CRPS, (likelihoods, settings)."""
    width = candidates.WIDTHS[len(y) >= candidates.WIDE_FROM]
    found = [
        [
            MCDropoutRegressor(
                (width, width),
                likelihood=likelihood,
                length_scale=length_scale,
                dropout=dropout,
                n_estimators=3,
                n_draws=20,
                batch_size=candidates._batch_rows(len(y)),
                max_iter=candidates._epochs(len(y), candidates.REGRESSION_STEPS),
                random_state=0,
            )
            for length_scale, dropout in SETTINGS
        ]
        for likelihood in LIKELIHOODS
    ]
    with (
        patch.object(optimizer, "BETA_2", decay),
        patch.object(step, "BETA_2", decay),
    ):
        return np.array(
            [
                [one.fit(X, y).crps(X_test[:1000], y_test[:1000]).mean() for one in row]
                for row in found
            ]
        )


def main():
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--decays", default="0.99,0.98,0.95")
    parser.add_argument("--tables", default=",".join(TABLES))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    decays = [float(decay) for decay in options.decays.split(",")]
    rows = []
    for name in options.tables.split(","):
        parts = REGRESSION[name]()
        usual = np.log(scores(*parts, USUAL))
        ratios = [np.exp((np.log(scores(*parts, d)) - usual).mean(1)) for d in decays]
        rows.append([name, *(f"{value:.3f}" for one in ratios for value in one)])
        print(*rows[-1], flush=True)
    kinds = LIKELIHOODS.values()
    print(table(["table", *(f"{d:g}, {kind}" for d in decays for kind in kinds)], rows))


if __name__ == "__main__":
    main()
