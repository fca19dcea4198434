"""Thompson sampling: what is it worth to know what is not known?
==============================================================

A contextual bandit like the mushrooms of [Blundell et al. 2015, section 5.3], with a
table of scikit-learn. The agent sees thirty measurements of a tumour and treats it or
leaves it. Treating a malignant one is worth 5; treating a benign one is worth -35 or 5
with equal probability; leaving one is worth 0. The reward of the other choice is not
observed. Regret is the reward that an oracle expects minus the agent's.

Agents learn the reward of treating, with a network that is fitted again whenever the
number of treated tumours has grown by a tenth. Thompson sampling draws one function
from the posterior (``sample_f``) and acts as if it were true. Epsilon-greedy takes the
better choice on average, but acts at random once in twenty times, or never (greedy). In
the paper Bayes by Backprop explores longer and has far less regret in the end.

With MC dropout, Thompson sampling has three fifths of the regret of epsilon-greedy, and
no less than greedy, which does not get stuck here: a straight line separates most
tumours, and every treatment adds information. Bayes by Backprop and the anchored
ensemble explore longer, as in the paper. At the end their regret grows most slowly, but
after 3,000 tumours it is still twice as large.

Writes examples/output/bandit.png and prints the regret.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from skbayesnn import AnchoredEnsembleRegressor, BBBRegressor, MCDropoutRegressor

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
PINK = "#CC79A7"

SEEDS = size((0, 1, 2), short=(0,))
N_STEPS = size(3000, short=60)
FIRST, GROWTH = 20, 1.1
COMMON = {"max_iter": size(60, short=3), "batch_size": 64, "standardize": False}
GOOD, BAD, P_BAD = 5.0, -35.0, 0.5
# Rewards are divided by this for the networks.
UNIT = 20.0


def network(kind, seed, **options):
    """A network of one hidden layer; rewards have noise of about 13 / 20."""
    return kind((50,), random_state=seed, **COMMON | options)


# Name: colour, network of a seed, share of choices at random or None for Thompson's.
AGENTS = {
    "Thompson, Bayes by Backprop": (BLUE, BBBRegressor, None),
    "Thompson, MC dropout": (ORANGE, MCDropoutRegressor, None),
    "Thompson, anchored": (GREEN, AnchoredEnsembleRegressor, None),
    "greedy, 5 % at random": (PINK, MCDropoutRegressor, 0.05),
    "greedy": (GREY, MCDropoutRegressor, 0.0),
}


def main():
    """Cumulative regret of all agents and seeds."""
    warnings.filterwarnings("ignore")  # A few rows, or all of one reward.
    X, benign = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X).astype(np.float32)
    regret = {
        name: np.array([play(X, benign == 1, kind, share, seed) for seed in SEEDS])
        for name, (_, kind, share) in AGENTS.items()
    }
    print_table(regret)
    plot(regret)


def play(X, benign, kind, share, seed):
    """Cumulative regret after every step, (steps,)."""
    random = np.random.default_rng(seed)
    rows = random.integers(len(X), size=N_STEPS)
    bad = random.random(N_STEPS) < P_BAD
    reward = np.where(benign[rows] & bad, BAD, GOOD)
    worth = np.where(benign, P_BAD * BAD + (1 - P_BAD) * GOOD, GOOD)[rows]
    treated, model, due = [], None, FIRST
    regret = np.empty(N_STEPS)
    for step in range(N_STEPS):
        if model is None:
            treat = random.random() < 0.5
        elif share is None:
            [[f]] = model.sample_f(
                X[rows[[step]]], 1, random_state=seed * N_STEPS + step
            )
            treat = f > 0
        elif random.random() < share:
            treat = random.random() < 0.5
        else:
            treat = model.predict(X[rows[[step]]], method="mean_weights")[0] > 0
        if treat:
            treated.append(step)
        regret[step] = max(worth[step], 0) - treat * worth[step]
        if treat and len(treated) >= due:
            observed = np.array(treated)
            model = network(kind, seed).fit(X[rows[observed]], reward[observed] / UNIT)
            due = max(len(treated) + 1, GROWTH * len(treated))
    return regret.cumsum()


def print_table(regret):
    """Mean over the seeds at a few steps, and the range at the end."""
    steps = [N_STEPS // 10, N_STEPS // 3, N_STEPS]
    print(f"Cumulative regret, mean of {len(SEEDS)} seeds; in brackets the range")
    print(f"{'step':<30}", *[f"{step:>8}" for step in steps])
    for name, results in regret.items():
        cells = [f"{results[:, step - 1].mean():8.0f}" for step in steps]
        last = results[:, -1]
        print(f"{name:<30}", *cells, f"  ({last.min():.0f} to {last.max():.0f})")


def plot(regret):
    """Mean over the seeds with a band from the lowest to the highest."""
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    steps = np.arange(1, N_STEPS + 1)
    for name, results in regret.items():
        color = AGENTS[name][0]
        band = {"color": color, "alpha": 0.15, "lw": 0}
        axes.fill_between(steps, results.min(0), results.max(0), **band)
        axes.plot(steps, results.mean(0), color=color, label=name)
    axes.set(xlabel="tumours seen", ylabel="cumulative regret")
    axes.grid(color="#EEEEEE")
    axes.legend(frameon=False, loc="upper left")
    save(figure, "bandit.png")


if __name__ == "__main__":
    main()
