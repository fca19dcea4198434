"""Is local reparameterisation as fast as fast dropout, and does it converge faster?

Kingma et al. (2015) claim so. Fast dropout (Wang & Manning 2013) takes the inputs of a
unit under dropout for normal, and propagates their means and variances through the
layers instead of sampling; only the outputs are sampled here. Wang and Manning also
sample the inputs of every unit: this is the local reparameterisation of independent
noise on the weights.

First in plain torch, with autograd and Adam and one program for all methods, so that
their seconds can be compared. A weight is m (1 + sqrt(alpha) e) with e standard normal
and alpha = (1 - p) / p, or a masked m / p; its mean and variance are the same for all
methods. Global noise is one draw of the weights for all rows of a step; a draw of the
weights for each row is only timed, for a few steps.

Then this package's estimators, whose loops are compiled.

10,000 digits of MNIST, two layers of 100 units, 0.2 of the inputs and half of the units
dropped, batches of 128. Errors are measured with the mean weights on 2,000 other
digits, and are means over the seeds.
"""

import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from common import (
    CLOCKS,
    command_line,
    data_folder,
    environment,
    epoch_seconds,
    interleaved,
    ratio,
    table,
)
from torch.nn import functional

from skbayesnn import BBBClassifier, MCDropoutClassifier

SIZES, RATES, BATCH, STEP_SIZE = (784, 100, 100, 10), (0.2, 0.5, 0.5), 128, 0.001
ALPHAS = [rate / (1 - rate) for rate in RATES]
ROOT_2, ROOT_2_PI = 2**0.5, (2 * np.pi) ** 0.5
# Epochs after which the error is measured.
MARKS = 1, 3, 10, 30
# Steps of the slow method that are timed.
FEW_STEPS = 3

Layers = list[tuple[torch.Tensor, torch.Tensor]]
Data = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

# Plain torch: logits of a batch under the noise of every method


def without_noise(x: torch.Tensor, layers: Layers) -> torch.Tensor:
    """Logits of the mean weights."""
    for i, (weight, bias) in enumerate(layers):
        x = torch.addmm(bias, x.relu() if i else x, weight)
    return x


def binary(x: torch.Tensor, layers: Layers) -> torch.Tensor:
    """Dropout: a mask for each input of a layer and each row."""
    for i, ((weight, bias), rate) in enumerate(zip(layers, RATES, strict=True)):
        x = functional.dropout(x.relu() if i else x, rate)
        x = torch.addmm(bias, x, weight)
    return x


def local(x: torch.Tensor, layers: Layers) -> torch.Tensor:
    """Sample the inputs of every unit, for each row."""
    for i, ((weight, bias), alpha) in enumerate(zip(layers, ALPHAS, strict=True)):
        x = x.relu() if i else x
        mean = torch.addmm(bias, x, weight)
        variance = alpha * (x.square() @ weight.square())
        x = mean + (variance + 1e-12).sqrt() * torch.randn_like(mean)
    return x


def global_noise(x: torch.Tensor, layers: Layers) -> torch.Tensor:
    """One draw of the weights for all rows."""
    for i, ((weight, bias), alpha) in enumerate(zip(layers, ALPHAS, strict=True)):
        weight = weight * (1 + alpha**0.5 * torch.randn_like(weight))
        x = torch.addmm(bias, x.relu() if i else x, weight)
    return x


def weights_per_row(x: torch.Tensor, layers: Layers) -> torch.Tensor:
    """A draw of the weights for each row."""
    for i, ((weight, bias), alpha) in enumerate(zip(layers, ALPHAS, strict=True)):
        x = x.relu() if i else x
        weights = weight * (1 + alpha**0.5 * torch.randn(len(x), *weight.shape))
        x = torch.bmm(x.unsqueeze(1), weights).squeeze(1) + bias
    return x


def fast_dropout(x: torch.Tensor, layers: Layers) -> torch.Tensor:
    """Propagate mean and variance; sample the logits.

    The moments of relu(u) for normal u are Phi and phi of mean / std.
    """
    first, second, mean, variance = x, x.square(), x, x
    for i, ((weight, bias), alpha) in enumerate(zip(layers, ALPHAS, strict=True)):
        if i:
            std = (variance + 1e-12).sqrt()
            z = mean / std
            below = 0.5 * (1 + torch.erf(z / ROOT_2))
            density = std * (-0.5 * z.square()).exp() / ROOT_2_PI
            first = mean * below + density
            second = (mean.square() + variance) * below + mean * density
        mean = torch.addmm(bias, first, weight)
        spread = (1 + alpha) * second - first.square()
        variance = spread @ weight.square()
    return mean + (variance + 1e-12).sqrt() * torch.randn_like(mean)


METHODS: dict[str, Callable[[torch.Tensor, Layers], torch.Tensor]] = {
    "no noise": without_noise,
    "binary dropout": binary,
    "local reparameterisation": local,
    "fast dropout, moments": fast_dropout,
    "global noise": global_noise,
    "weights of each row": weights_per_row,
}


class Plain:
    """A network in plain torch, trained by Adam."""

    def __init__(self, method: str, seed: int):
        torch.manual_seed(seed)
        self.logits = METHODS[method]
        self.layers = [
            (torch.randn(n_in, n_out) * (2 / n_in) ** 0.5, torch.zeros(n_out))
            for n_in, n_out in pairwise(SIZES)
        ]
        parameters = [p.requires_grad_() for layer in self.layers for p in layer]
        self.optimizer = torch.optim.Adam(parameters, STEP_SIZE)

    def train(self, data: Data, n_epochs: int, n_steps: int | None = None) -> None:
        """Train for some epochs, or for the first steps of one."""
        X, y, *_ = data
        for _ in range(n_epochs):
            for rows in torch.randperm(len(X)).split(BATCH)[:n_steps]:
                nll = functional.cross_entropy(
                    self.logits(X[rows], self.layers), y[rows]
                )
                # The prior N(0, 1) of every weight.
                squares = sum(weight.square().sum() for weight, _ in self.layers)
                self.optimizer.zero_grad()
                (nll + squares / (2 * len(X))).backward()
                self.optimizer.step()

    def error(self, data: Data) -> float:
        """Share of wrong labels of the test rows."""
        *_, X, y = data
        with torch.no_grad():
            labels = without_noise(X, self.layers).argmax(1)
        return (labels != y).double().mean().item()


# This package

ESTIMATORS = {
    "MCDropout, noise='bernoulli'": partial(MCDropoutClassifier, dropout=RATES),
    "MCDropout, noise='dropconnect'": partial(
        MCDropoutClassifier, dropout=RATES, noise="dropconnect"
    ),
    "BBB, gradient='local'": partial(BBBClassifier, kl_warm_up=0.0),
    "BBB, gradient='pathwise'": partial(
        BBBClassifier, kl_warm_up=0.0, gradient="pathwise"
    ),
}


class Ours:
    """An estimator that continues its fit."""

    def __init__(self, name: str, seed: int):
        self.model = ESTIMATORS[name](
            SIZES[1:-1],
            length_scale=1.0 if "MC" in name else "fan_in",
            batch_size=BATCH,
            learning_rate="constant",
            learning_rate_init=STEP_SIZE,
            standardize=False,
            warm_start=True,
            device="cpu",
            random_state=seed,
        )

    def train(self, data: Data, n_epochs: int) -> None:
        """Train for some epochs."""
        X, y, *_ = data
        self.model.set_params(max_iter=n_epochs).fit(X.numpy(), y.numpy())

    def error(self, data: Data) -> float:
        """Share of wrong labels of the test rows."""
        *_, X, y = data
        labels = self.model.predict(X.numpy(), method="mean_weights")
        return float((labels != y.numpy()).mean())


# Both


def digits() -> Data:
    """Training and test digits."""
    folder = data_folder("digits")
    with np.load(folder / "mnist_10k2k.npz") as file:
        arrays = {name: file[name] for name in file.files}

    def pixels(name):
        return torch.tensor(arrays[name].reshape(len(arrays[name]), -1) / 255).float()

    def labels(name):
        return torch.tensor(arrays[name]).long()

    return pixels("X_train"), labels("y_train"), pixels("X_test"), labels("y_test")


def errors(new, data: Data, n_seeds: int) -> list[str]:
    """Mean error at every mark, per cent."""
    of_seeds = []
    for seed in range(n_seeds):
        network, of_marks = new(seed), []
        for before, mark in pairwise((0, *MARKS)):
            network.train(data, mark - before)
            of_marks.append(100 * network.error(data))
        of_seeds.append(of_marks)
    return [f"{error:.2f}" for error in np.mean(of_seeds, axis=0)]


def plain_rows(data: Data, options) -> list[list[str]]:
    """One line for each method in plain torch."""
    n_steps = -(-len(data[0]) // BATCH)
    networks = {name: Plain(name, 0) for name in METHODS}
    few = {"weights of each row": FEW_STEPS}

    def epoch(name):
        networks[name].train(data, 1, few.get(name))

    cases = {name: partial(epoch, name) for name in METHODS}
    times = interleaved(cases, options.repeats, clock=options.clock)
    for name, steps in few.items():
        times[name] = [value * n_steps / steps for value in times[name]]
    rows = []
    for name, values in times.items():
        of_marks = ["-"] * len(MARKS)
        if name not in few:
            of_marks = errors(partial(Plain, name), data, options.seeds)
        times_binary = ratio(values, times["binary dropout"])
        seconds = f"{np.median(values):.3f}"
        rows.append([name, seconds, f"{times_binary:.2f}", *of_marks])
    return rows


def our_rows(data: Data, options) -> list[list[str]]:
    """One line for each estimator."""
    times: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    for _ in range(options.repeats):
        for name in ESTIMATORS:
            network = Ours(name, 0)
            clocks = epoch_seconds(partial(network.train, data, 2), 2)
            times[name].append(clocks[options.clock])
    rows = []
    for name, values in times.items():
        of_marks = errors(partial(Ours, name), data, options.seeds)
        times_binary = ratio(values, times["MCDropout, noise='bernoulli'"])
        seconds = f"{np.median(values):.3f}"
        rows.append([name, seconds, f"{times_binary:.2f}", *of_marks])
    return rows


def main() -> None:
    """Print both tables."""
    parser = command_line(__doc__)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # Few epochs, and pixels that are constant.
    warnings.simplefilter("ignore", UserWarning)
    data = digits()
    print(environment())
    marks = [f"error after {mark}" for mark in MARKS]
    header = ["seconds per epoch", "times binary", *marks]
    print(f"\nPlain torch, {options.clock} clock; errors in per cent, after epochs")
    print(table(["method", *header], plain_rows(data, options)))
    print("\nThis package")
    print(table(["estimator", *header], our_rows(data, options)))


if __name__ == "__main__":
    main()
