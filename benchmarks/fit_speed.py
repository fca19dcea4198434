"""How long does a fit take, compared with other ways to train the same network?

One hidden layer of 50, dropout 0.05 on every layer, Adam, batches of 128, 20 epochs (10
for many networks), 5,000 x 13 rows of float32, four comparisons:

1. one fit with skorch's NeuralNetRegressor and the same network (default settings, but
   without a held-out split and printing; skorch does not shuffle the rows, which is in
   its favour);
2. one fit with the shortest hand-written loop in torch; our fit is also timed with
   automatic tau and prior length scale, which train further networks on a part of the
   rows;
3. 64 to 1,024 networks in one program with the same number of fits one after another
   (a few of these are timed, and the time is scaled up);
4. a training step of a member with its five matrix products alone (two forward, two for
   the gradients of weights, one for those of activations), as batched products of the
   same shapes.

All cases are timed in turn within each round; ratios are medians over the rounds of
the ratio within a round. On a GPU the last two are taken with 64 and 2,000 members.
"""

import argparse
import statistics
from functools import partial

import numpy as np
import torch
from common import (
    CLOCKS,
    command_line,
    dropout_network,
    environment,
    interleaved,
    ratio,
    skorch_regressor,
    table,
    train_on,
    verdict,
)
from torch import nn

from skbayesnn import MCDropoutRegressor
from skbayesnn._data.validation import Table

N_ROWS, N_INPUTS, HIDDEN = 5_000, 13, 50
BATCH, EPOCHS, DROPOUT, LEARNING_RATE = 128, 20, 0.05, 0.01
EPOCHS_OF_MANY = 10
N_BATCHES = -(-N_ROWS // BATCH)
TAU = 4.0
MEMBERS, GPU_MEMBERS = (64, 256, 1_024), (64, 2_000)
# Targets: speed-up over skorch, time relative to the loop, speed-up over fits in turn,
# time relative to the products (of networks with a common seed).
OF_SKORCH, OF_LOOP, OF_TURN, OF_PRODUCTS = 8, 1.1, 6, 2
IN_TURN = 4  # number of fits in turn that are timed
GEMM_STEPS = 100  # number of steps whose products are timed


def make_data() -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of 13 inputs with noise, float32."""
    random = np.random.default_rng(0)
    X = random.standard_normal((N_ROWS, N_INPUTS), dtype=np.float32)
    signal = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 2 + X[:, 3:].mean(1)
    noise = random.standard_normal(N_ROWS, dtype=np.float32)
    return X, signal + 0.5 * noise


def estimator(device: str, **options) -> MCDropoutRegressor:
    """Our network with the settings of this benchmark."""
    return MCDropoutRegressor(
        (HIDDEN,),
        dropout=DROPOUT,
        batch_size=BATCH,
        learning_rate_init=LEARNING_RATE,
        device=device,
        **{"length_scale": 1.0, "max_iter": EPOCHS, "random_state": 0} | options,
    )


def many(device: str, **options) -> MCDropoutRegressor:
    """Our network with the settings for many fits."""
    return estimator(device, max_iter=EPOCHS_OF_MANY, **options)


def with_skorch(X, y, device: str):
    """Fit the same network with skorch."""
    net = skorch_regressor(
        module__n_inputs=N_INPUTS,
        module__n_hidden=HIDDEN,
        module__dropout=DROPOUT,
        lr=LEARNING_RATE,
        batch_size=BATCH,
        max_epochs=EPOCHS,
        device=device,
    )
    return net.fit(X, y[:, None])


def by_hand(X, y, device: str) -> nn.Module:
    """Train with the shortest sensible loop: copy the rows to the device once."""
    inputs, targets = torch.as_tensor(X).to(device), torch.as_tensor(y).to(device)
    targets = targets.unsqueeze(1)
    net = dropout_network(N_INPUTS, HIDDEN, DROPOUT).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    for _ in range(EPOCHS):
        for index in torch.randperm(N_ROWS, device=device).split(BATCH):
            loss = nn.functional.mse_loss(net(inputs[index]), targets[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net


def shared_seed(X, y, device: str, n_members: int):
    """Train candidates of a search, with the same random_state and different taus."""
    candidates = [
        many(device, tau=TAU * 1.01**i, random_state=0) for i in range(n_members)
    ]
    rows = Table(X, y.astype(float)[:, None], np.ones(N_ROWS))
    return train_on(rows, [np.arange(N_ROWS)] * n_members, candidates)


class Products:
    """The five matrix products of one step of all members."""

    def __init__(self, n_members: int, device: str):
        rows = -(-N_ROWS // N_BATCHES)
        random = partial(torch.randn, device=device)
        self.x, self.w1 = (
            random(n_members, rows, N_INPUTS),
            random(n_members, N_INPUTS, HIDDEN),
        )
        self.h, self.w2 = random(n_members, rows, HIDDEN), random(n_members, HIDDEN, 1)
        self.grad_h, self.grad_f = (
            random(n_members, rows, HIDDEN),
            random(n_members, rows, 1),
        )

    def __call__(self) -> None:
        for _ in range(GEMM_STEPS):
            torch.bmm(self.x, self.w1)
            torch.bmm(self.h, self.w2)
            torch.bmm(self.h.mT, self.grad_f)
            torch.bmm(self.grad_f, self.w2.mT)
            torch.bmm(self.x.mT, self.grad_h)


def one_fit(X, y, options) -> list[list[str]]:
    """Lines of the table for comparisons 1 and 2."""
    device = options.device
    times = interleaved(
        {
            "skorch": lambda: with_skorch(X, y, device),
            "hand-written loop": lambda: by_hand(X, y, device),
            "ours, tau given": lambda: estimator(device, tau=TAU).fit(X, y),
            "ours, tau='auto'": lambda: estimator(device, tau="auto").fit(X, y),
            "ours, tau and l 'auto'": lambda: estimator(
                device, tau="auto", length_scale="auto"
            ).fit(X, y),
        },
        options.repeats,
        device,
        options.clock,
    )
    lines = []
    for name, values in times.items():
        line = [name, f"{statistics.median(values):.3f}", "", ""]
        if name.startswith("ours"):
            faster = ratio(times["skorch"], values)
            slower = ratio(values, times["hand-written loop"])
            line[2] = f"{faster:.2f} ({verdict(faster, OF_SKORCH, at_most=False)})"
            line[3] = f"{slower:.2f} ({verdict(slower, OF_LOOP, at_most=True)})"
        lines.append(line)
    return lines


def many_fits(X, y, n_members: int, options) -> list[list[str]]:
    """Lines of the table for comparisons 3 and 4."""
    device = options.device
    in_turn = [many(device, tau=TAU, random_state=i) for i in range(IN_TURN)]
    products = Products(n_members, device)
    together = {
        "distinct seeds, tau given": lambda: many(
            device, tau=TAU, n_estimators=n_members
        ).fit(X, y),
        "distinct seeds, tau='auto'": lambda: many(
            device, tau="auto", n_estimators=n_members
        ).fit(X, y),
        "one shared seed, tau given": lambda: shared_seed(X, y, device, n_members),
    }
    times = interleaved(
        {
            "in turn": lambda: [each.fit(X, y) for each in in_turn],
            "products": products,
            **together,
        },
        options.repeats_many,
        device,
        options.clock,
    )
    alone = [t * n_members / IN_TURN for t in times["in turn"]]
    n_steps = EPOCHS_OF_MANY * N_BATCHES
    bare = [t * n_steps / GEMM_STEPS for t in times["products"]]

    def line(name, values, faster="", slower=""):
        per_step = 1e6 * statistics.median(values) / n_steps / n_members
        total = f"{statistics.median(values):.2f}"
        return [f"{n_members} {name}", total, f"{per_step:.2f}", faster, slower]

    lines = [line("in turn, tau given", alone), line("products alone", bare)]
    for name in together:
        faster, slower = ratio(alone, times[name]), ratio(times[name], bare)
        lines.append(
            line(
                name,
                times[name],
                f"{faster:.2f} ({verdict(faster, OF_TURN, at_most=False)})",
                f"{slower:.2f} ({verdict(slower, OF_PRODUCTS, at_most=True)})",
            )
        )
    return lines


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    result = command_line(__doc__)
    result.add_argument("--device", default="cpu", help="cpu or cuda")
    result.add_argument("--threads", type=int, default=1, help="of torch, intra-op")
    result.add_argument("--clock", choices=list(CLOCKS), default="wall")
    result.add_argument("--repeats", type=int, default=7, help="rounds of one fit")
    result.add_argument("--repeats-many", type=int, default=3, help="rounds of many")
    return result


def main() -> None:
    """Print two tables."""
    options = parser().parse_args()
    torch.set_num_threads(options.threads)
    print(environment(options.device))
    X, y = make_data()
    about = f"{N_ROWS} x {N_INPUTS}, float32, {options.clock} clock"
    print(f"\nOne fit: {about}, {EPOCHS * N_BATCHES} steps")
    header = ["", "seconds", "times faster than skorch", "times the loop's seconds"]
    print(table(header, one_fit(X, y, options)), flush=True)
    on_cpu = torch.device(options.device).type == "cpu"
    header = [
        "members",
        "seconds",
        "us per member step",
        "times faster than in turn",
        "times the products",
    ]
    print(f"\nMany at once ({IN_TURN} fits in turn timed, and multiplied up)")
    for n_members in MEMBERS if on_cpu else GPU_MEMBERS:
        print(table(header, many_fits(X, y, n_members, options)), flush=True)


if __name__ == "__main__":
    main()
