"""Kingma, Salimans & Welling 2015, table 1 and section 5.1: variance and time.

Table 1 has the variance of the gradient of a mini-batch: with local
reparameterisation, with a draw of the weights for every row, with one draw for all
rows, and without noise. Section 5.1 compares the seconds of an epoch: on a GPU, a draw
for every row took 1,635 s, local reparameterisation 7.4 s.

Here a sixth of MNIST is learned, by smaller networks. Variances are those of Bayes by
Backprop; the paper has variational dropout with independent weight noise.
"""

import time

import numpy as np
import torch
from side_by_side import Report, mnist, run

from skbayesnn import BBBClassifier
from skbayesnn._engine.training_random import TrainingRandom
from skbayesnn._families import FAMILIES, MeanField
from skbayesnn.estimators import _fitted

CPU = torch.device("cpu")
# The variances of the paper's table 1: (last layer early and late, first layer early
# and late); early is after 10 epochs. From memory, not checked again.
PUBLISHED = {
    "local reparameterisation": (7.8e3, 1.2e3, 1.9e2, 1.1e2),
    "a draw for every row": (1.4e4, 2.6e3, 4.3e2, 2.5e2),
    "one draw for all rows": (4.9e4, 4.3e3, 8.5e2, 3.3e2),
    "no noise in the weights": (2.8e3, 5.9e1, 1.3e2, 9.0),
}
PUBLISHED_SECONDS = {"local reparameterisation": 7.4, "a draw for every row": 1635.0}
COLUMNS = ("last layer, early", "last layer, late", "first, early", "first, late")
BATCH = 1000


def main(quick):
    """Variances and seconds of three ways to draw the weights."""
    X, y, _, _ = mnist(200 if quick else 10_000)
    units, epochs = (10, (1, 2)) if quick else (200, (10, 40))
    report = Report(
        "Kingma, Salimans & Welling (2015), table 1 and section 5.1, MNIST.",
        f"{len(X):,} training images (50,000 in the paper). Variances: three layers of "
        f"{units} units (1,000), batches of {min(BATCH, len(X)):,} images (1,000), "
        f"after {epochs[0]} and {epochs[1]} epochs (10 and 100). Each variance is "
        "divided by that of local reparameterisation. Published variances and seconds "
        "are quoted from memory.",
    )
    variances, seconds = gradients(X, y, units, epochs, 4 if quick else 60)
    local, separate, single, none = PUBLISHED
    for name in (separate, single, none):
        for i, column in enumerate(COLUMNS):
            report.show(
                f"variance, {name}, {column}",
                f"x {PUBLISHED[name][i] / PUBLISHED[local][i]:.2g}",
                f"x {variances[name][i] / variances[local][i]:.2g}",
            )
    for low, high in ((local, separate), (separate, single), (none, local)):
        lower = sum(np.array(variances[low]) < variances[high])
        report.statement(
            f"variance: {low} below {high}", f"{lower} of 4", lower == 4, tolerance="4"
        )
    report.statement(
        "time: a draw for every row takes far longer",
        f"x {seconds[separate] / seconds[local]:.0f} ({seconds[local]:.2f} and "
        f"{seconds[separate]:.1f} s for a batch)",
        seconds[separate] > 10 * seconds[local],
        published=f"x {PUBLISHED_SECONDS[separate] / PUBLISHED_SECONDS[local]:.0f}",
        tolerance="x 10",
    )
    return report


def gradients(X, y, units, epochs, n_batches):
    """{way to draw: four variances}, and seconds of a batch with each."""
    options = {"standardize": False, "learning_rate": "constant", "batch_size": 128}
    model = BBBClassifier((units,) * 3, gradient="pathwise", random_state=0, **options)
    model.set_params(learning_rate_init=0.001)
    ways = {
        "local reparameterisation": (MeanField(), False),
        "a draw for every row": (MeanField(shared_draw=True), True),
        "one draw for all rows": (MeanField(shared_draw=True), False),
        "no noise in the weights": (FAMILIES["point"](), False),
    }
    variances, seconds = {name: [] for name in ways}, {}
    for done, total in zip((0, epochs[0]), epochs, strict=True):
        model.set_params(max_iter=total - done, warm_start=done > 0).fit(X, y)
        for name, way in ways.items():
            start = time.process_time()
            variances[name].append(variance(model, X, y, *way, n_batches))
            seconds[name] = (time.process_time() - start) / n_batches
    # By layer, then by epoch.
    return {name: np.ravel(values, "F") for name, values in variances.items()}, seconds


def variance(model, X, y, family, own_draws, n_batches):
    """Variance of d/d mean of a batch's mean loss: (last layer, first layer).

    own_draws : whether every row is a member with its own draw of the weights
    """
    random = torch.Generator().manual_seed(0)
    q = _fitted.restore_posterior(model, CPU, torch.float32)
    network = q.network.with_families((family,) * len(q.layers))
    n_rows = min(BATCH, len(X))
    groups = max(n_rows // 50, 1) if own_draws else 1
    ends = q.layers[-1], q.layers[0]
    sums_of = [torch.zeros(n_batches, *end["mean"].shape[1:]) for end in ends]
    images, of_classes = torch.as_tensor(X), torch.eye(10)[y.astype(int)]
    for batch in range(n_batches):
        chosen = torch.randint(len(X), (n_rows,), generator=random)
        for rows in chosen.chunk(groups):
            n_members = len(rows) if own_draws else 1
            x = images[rows].reshape(n_members, -1, X.shape[1])
            noise = TrainingRandom(rows[:n_members].numpy() + batch, CPU, torch.float32)
            noise.start_epoch(batch)
            layers = [
                {k: v.expand(n_members, *v.shape[1:]) for k, v in own.items()}
                for own in q.layers
            ]
            outputs, pullback = network.vjp(layers, q.keep, x, noise)
            labels = of_classes[rows].reshape(outputs.shape)
            *_, last = parts = pullback((outputs.softmax(-1) - labels) / n_rows)
            for sums, part in zip(sums_of, (last, parts[0]), strict=True):
                sums[batch] += part["mean"].sum(0)
    return [sums.var(0).mean().item() for sums in sums_of]


if __name__ == "__main__":
    run(main)
