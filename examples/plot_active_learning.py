"""Do labels chosen by mutual information teach more than labels at random?
========================================================================

A network starts with two labelled images of every digit. In each round it is fitted
again, and ten more images are labelled [Gal, Islam & Ghahramani 2017]: at random, or
the images with the largest mutual information between label and weights (BALD), or with
the largest entropy. Every seed has its own images and networks; all strategies of a
seed start with the same images.

With MC dropout, BALD is worse than random with nearly every seed, to the end. With
variational dropout it is worse at first and better with all four seeds from 120 labels
on. Entropy, the simpler measure, is the best of the three with both networks from 100
labels on, and better than random with all four seeds at the end. The ten images of a
round are rated separately, so they may all teach the same.

The loop needs no other package. The strategies of scikit-activeml accept the same
estimators, see tests/test_active_learning.py. Writes
examples/output/active_learning.png and prints the accuracies.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from _common import save, size
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skbayesnn import MCDropoutClassifier, VariationalDropoutClassifier

# Colours that colour-blind people can distinguish (Okabe & Ito).
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"

SEEDS = size((0, 1, 2, 3), short=(0, 1))
FIRST_PER_CLASS, BATCH, LAST = 2, 10, size(140, short=40)
MAX_ITER = size(50, short=5)
MODELS = {
    "MC dropout": MCDropoutClassifier,
    "variational dropout": VariationalDropoutClassifier,
}
# Measure to maximise, and colour.
STRATEGIES = {
    "random": (None, GREY),
    "mutual information": ("mutual_information", ORANGE),
    "entropy": ("entropy", BLUE),
}


def main():
    """Accuracy on test images after every round, for all models and strategies."""
    # With few labels some pixels are dark in all images; they share one scale.
    warnings.filterwarnings("ignore", r"\d+ columns of X are constant")
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.float32)
    n_labels = np.arange(FIRST_PER_CLASS * 10, LAST + 1, BATCH)
    accuracy = {
        (model, strategy): np.array(
            [learn(X, y, kind, measure, seed) for seed in SEEDS]
        )
        for model, kind in MODELS.items()
        for strategy, (measure, _) in STRATEGIES.items()
    }
    print_table(accuracy, n_labels)
    plot(accuracy, n_labels)


def learn(X, y, kind, measure, seed):
    """Accuracy on test images after every round, (rounds,)."""
    pool, X_test, y_pool, y_test = train_test_split(
        X, y, test_size=0.3, stratify=y, random_state=seed
    )
    # Pixels are alike: one scale for all, of order one, from images without labels.
    centre, scale = pool.mean(0), pool.std()
    pool, X_test = ((X - centre) / scale for X in (pool, X_test))
    random = np.random.default_rng(seed)
    labelled = np.concatenate(
        [
            random.choice(np.flatnonzero(y_pool == c), FIRST_PER_CLASS, replace=False)
            for c in np.unique(y)
        ]
    )
    accuracy = []
    while True:
        model = kind(
            (50,),
            n_draws=50,
            standardize=False,
            batch_size=LAST,
            learning_rate_init=0.02,
            max_iter=MAX_ITER,
            random_state=seed,
        )
        model.fit(pool[labelled], y_pool[labelled])
        accuracy.append(model.score(X_test, y_test))
        if len(labelled) == LAST:
            return accuracy
        rest = np.setdiff1d(np.arange(len(pool)), labelled)
        if measure is None:
            bought = random.choice(rest, BATCH, replace=False)
        else:
            value = model.predict_uncertainty(pool[rest], measure)
            bought = rest[np.argsort(value)[-BATCH:]]
        labelled = np.concatenate([labelled, bought])


def print_table(accuracy, n_labels):
    """Mean accuracy over the seeds, and for how many seeds it is above random."""
    print(
        f"Digits: accuracy on 540 test images, mean of {len(SEEDS)} seeds; in brackets"
    )
    print("with how many of the seeds it is higher than at random")
    for model in MODELS:
        print(f"\n{model}")
        print(f"{'labels':<20}", *[f"{n:>10}" for n in n_labels[::2]])
        for strategy in STRATEGIES:
            results = accuracy[model, strategy]
            ahead = (results > accuracy[model, "random"]).sum(0)
            cells = [
                f"{m:.3f} ({a})" for m, a in zip(results.mean(0), ahead, strict=True)
            ]
            print(f"{strategy:<20}", *[f"{cell:>10}" for cell in cells[::2]])


def plot(accuracy, n_labels):
    """Mean over the seeds with a band from the lowest to the highest."""
    figure, all_axes = plt.subplots(
        1, len(MODELS), figsize=(11, 5), sharey=True, layout="constrained"
    )
    for axes, model in zip(all_axes, MODELS, strict=True):
        for strategy, (_, color) in STRATEGIES.items():
            results = accuracy[model, strategy]
            band = {"color": color, "alpha": 0.15, "lw": 0}
            axes.fill_between(n_labels, results.min(0), results.max(0), **band)
            axes.plot(n_labels, results.mean(0), color=color, label=strategy)
        axes.set(title=model, xlabel="labelled images")
        axes.grid(color="#EEEEEE")
    all_axes[0].set_ylabel(f"accuracy: mean and range of {len(SEEDS)} seeds")
    all_axes[0].legend(frameon=False, loc="lower right")
    save(figure, "active_learning.png")


if __name__ == "__main__":
    main()
