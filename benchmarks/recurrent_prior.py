"""Which prior length scale lets a recurrent network remember?

Damped oscillators with noise, each with a period, phase and damping of its own: 24
steps are seen, the value six steps later is asked for. Printed is the CRPS of fresh
sequences, mean over seeds, of gated recurrent units under several length scales of
their maps: of the inputs, of the state, and of the outputs. "root" is the root of a
map's inputs; the input is not dropped. Beside it the perceptron on the same numbers.

    python benchmarks/recurrent_prior.py
"""

import numpy as np
from common import command_line, environment, table

from skbayesnn import MCDropoutRegressor
from skbayesnn.networks import RecurrentNet

STEPS, AHEAD, NOISE, HIDDEN = 24, 6, 0.1, 32
EPOCHS, DROPOUT = 100, (0, 0.01, 0.01)
ROOT = np.sqrt(HIDDEN)
SCALES = {
    "root, all": (1.0, ROOT, ROOT),
    "1 of the state (default)": (1.0, 1.0, ROOT),
    "1 of the outputs": (1.0, ROOT, 1.0),
    "1, all": (1.0, 1.0, 1.0),
    "0.3, all": (0.3, 0.3, 0.3),
}


def oscillators(n, seed):
    """Windows (n, steps), and the values to come."""
    random = np.random.default_rng(seed)
    period = random.uniform(6, 24, (n, 1))
    phase = random.uniform(0, 2 * np.pi, (n, 1))
    damping = random.uniform(0, 0.05, (n, 1))
    t = np.arange(STEPS + AHEAD)
    values = np.exp(-damping * t) * np.sin(2 * np.pi * t / period + phase)
    values += NOISE * random.standard_normal(values.shape)
    return values[:, :STEPS].astype(np.float32), values[:, -1]


def models(seed):
    """By name."""
    network = RecurrentNet(STEPS, 1, hidden_size=HIDDEN, cell="gru")
    common = {"network": network, "dropout": DROPOUT, "max_iter": EPOCHS}
    recurrent = {
        name: MCDropoutRegressor(length_scale=scales, random_state=seed, **common)
        for name, scales in SCALES.items()
    }
    return recurrent | {"perceptron": MCDropoutRegressor(random_state=seed)}


def main():
    """Print the table."""
    parser = command_line(__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    print(environment())
    found = {}
    for seed in range(options.seeds):
        X, y = oscillators(options.rows, seed)
        fresh = oscillators(options.rows, 1000 + seed)
        for name, model in models(seed).items():
            score = model.fit(X, y).crps(*fresh).mean()
            found.setdefault(name, []).append(score)
    rows = [[name, f"{np.mean(of_seeds):.4f}"] for name, of_seeds in found.items()]
    print(table(["length scale", "CRPS"], rows))


if __name__ == "__main__":
    main()
