"""How much slower is a step of a convolutional or recurrent network than plain torch?

One training step, forward pass and gradients, on 128 rows of float32, with MC dropout
on all maps: images of 28 x 28 with 16 and 32 channels, and sequences of 24 steps of 14
inputs with 32 units. The same network in plain torch is ``nn.Conv2d`` with
``nn.Dropout``, or torch's cells in a loop with one mask for all steps. All cases are
timed in turn within each round; ratios are medians over the rounds. For 16 networks in
one program the cost per network is given.
"""

import statistics
from functools import partial

import numpy as np
import torch
from common import CLOCKS, command_line, environment, interleaved, ratio, table
from torch import nn

from skbayesnn._engine.random import initial_normal
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import Bernoulli
from skbayesnn._networks import Convolutional, Recurrent

N_ROWS, DROPOUT, MEMBERS = 128, 0.1, 16
N_STEPS, N_INPUTS, HIDDEN = 24, 14, 32
CELLS = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


class PlainImages(nn.Module):
    """The layers of ``ConvNet((1, 28, 28))``."""

    def __init__(self):
        super().__init__()

        def block(n_in, n_out):
            convolution = nn.Conv2d(n_in, n_out, 3, padding=1)
            return nn.Dropout(DROPOUT), convolution, nn.ReLU(), nn.MaxPool2d(2)

        self.layers = nn.Sequential(
            *block(1, 16),
            *block(16, 32),
            nn.Flatten(),
            nn.Dropout(DROPOUT),
            nn.Linear(32 * 7 * 7, 64),
            nn.ReLU(),
            nn.Dropout(DROPOUT),
            nn.Linear(64, 10),
        )

    def forward(self, x):
        """Outputs of x, which is (rows, 784)."""
        return self.layers(x.view(-1, 1, 28, 28))


class PlainSequences(nn.Module):
    """A loop over the steps, with the same masks at each step."""

    def __init__(self, cell):
        super().__init__()
        self.cell = CELLS[cell](N_INPUTS, HIDDEN)
        self.last = nn.Linear(HIDDEN, 1)

    def forward(self, x):
        """Outputs of x, which is (rows, steps * inputs)."""
        ones = x.new_ones(len(x), N_INPUTS + HIDDEN)
        of_inputs, of_state = nn.functional.dropout(ones, DROPOUT).split(
            [N_INPUTS, HIDDEN], dim=1
        )
        h = cells = x.new_zeros(len(x), HIDDEN)
        for inputs in (x.view(-1, N_STEPS, N_INPUTS) * of_inputs[:, None]).unbind(1):
            if isinstance(self.cell, nn.LSTMCell):
                h, cells = self.cell(inputs, (h * of_state, cells))
            else:
                h = self.cell(inputs, h * of_state)
        return self.last(nn.functional.dropout(h, DROPOUT))


def cases():
    """Name, our network, torch's network, number of inputs per row."""
    images = Convolutional(
        (1, 28, 28), (16, 32), (3, 3), (2, 2), (64,), 10, "relu", "unit"
    )
    yield "ConvNet", images, PlainImages(), 28 * 28
    for cell in CELLS:
        network = Recurrent(N_STEPS, N_INPUTS, HIDDEN, cell, (), 1, "relu")
        yield f"RecurrentNet, {cell}", network, PlainSequences(cell), N_STEPS * N_INPUTS


def plain_step(module, x):
    """Forward pass and gradients of a torch module."""
    module.zero_grad()
    module(x[0]).square().mean().backward()


def our_step(network, members, device, x):
    """A function that computes forward pass and gradients of several members."""
    n_maps = len(network.fan_ins)
    network = network.with_families((Bernoulli(),) * n_maps)
    seeds = np.arange(members)
    keep = (torch.full((members,), 1 - DROPOUT, device=device),) * n_maps

    def normal(group, *shape):
        numbers = initial_normal(seeds, group, *shape)
        return torch.as_tensor(numbers).to(device, torch.float32)

    layers = network.init(normal, keep)
    noise = TrainingRandom(seeds, torch.device(device), torch.float32)
    noise.start_epoch(0, 1 << 20)

    def step():
        with torch.no_grad():
            outputs, pullback = network.vjp(layers, keep, x, noise)
            pullback(outputs / N_ROWS)
        noise.next_step()

    return step


# Input channels, height and width of the image, width of the kernel, output channels.
CONVOLUTIONS = (1, 28, 3, 16), (16, 14, 3, 32), (20, 14, 5, 50)


def ways_to_convolve(members, channels, size, kernel, n_out, device):
    """Three ways to compute the convolutions of all members and their gradients."""
    images = torch.randn(members, N_ROWS, channels, size, size, device=device)
    kernels = torch.randn(members, n_out, channels, kernel, kernel, device=device)
    grouped = images.transpose(0, 1).flatten(1, 2).contiguous()
    # (members, inputs of a patch, output channels)
    weights = kernels.flatten(2).mT.contiguous()
    convolve = partial(nn.functional.conv2d, padding="same")

    def in_turn(x, w):
        return torch.stack([convolve(*pair) for pair in zip(x, w, strict=True)])

    def in_groups(x, w):
        return convolve(x, w.flatten(0, 1), groups=members)

    def unfolded(x, w):
        patches = nn.functional.unfold(x.flatten(0, 1), kernel, padding=kernel // 2)
        return w.mT.unsqueeze(1) @ patches.unflatten(0, (members, N_ROWS))

    def step(function, *inputs):
        inputs = [value.detach().requires_grad_() for value in inputs]
        torch.autograd.grad(function(*inputs).square().mean(), inputs)

    return {
        "in turn": partial(step, in_turn, images, kernels),
        "in groups": partial(step, in_groups, grouped, kernels),
        "unfolded": partial(step, unfolded, images, weights),
    }


def print_convolutions(arguments):
    """Print milliseconds of all ways, for a single member and for many."""
    rows = []
    for shape in CONVOLUTIONS:
        for members in (1, MEMBERS):
            ways = ways_to_convolve(members, *shape, arguments.device)
            times = interleaved(
                ways, arguments.rounds, arguments.device, arguments.clock
            )
            channels, size, kernel, n_out = shape
            name = f"{channels} x {size} x {size}, {kernel}, {n_out} channels"
            medians = [1e3 * statistics.median(times[way]) for way in ways]
            rows.append([name, members, *(f"{value:.0f}" for value in medians)])
    print("\nA convolution, pass and gradients, ms")
    print(table(["image, kernel", "members", *ways], rows))


def main():
    """Time all networks and convolutions, and print tables."""
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    arguments = parser.parse_args()
    device = arguments.device
    torch.set_num_threads(1)
    rows = []
    for name, network, module, n_numbers in cases():
        x = torch.randn(1, N_ROWS, n_numbers, device=device)
        times = interleaved(
            {
                "torch": partial(plain_step, module.to(device), x),
                "one": our_step(network, 1, device, x),
                "many": our_step(network, MEMBERS, device, x),
            },
            arguments.rounds,
            device,
            arguments.clock,
        )
        each = [seconds / MEMBERS for seconds in times["many"]]
        rows.append(
            [
                name,
                f"{1e3 * statistics.median(times['torch']):.1f}",
                f"{1e3 * statistics.median(times['one']):.1f}",
                f"{ratio(times['one'], times['torch']):.2f}",
                f"{ratio(each, times['torch']):.2f}",
            ]
        )
    print(environment(device))
    print()
    header = ["network", "torch ms", "ms", "one / torch", f"each of {MEMBERS} / torch"]
    print(table(header, rows))
    print_convolutions(arguments)


if __name__ == "__main__":
    main()
