"""How much money do decisions by the predictive distribution save?

Four made-up tables, whose costs are known. Each model is fitted to the training rows,
and acts on test rows by a default rule, by the best action for its distribution, or by
another rule. The tables print the mean cost of a test row, over seeds.

fraud
    Payments with an amount; 4 % are fraud. A review costs 8; an undetected fraud costs
    the amount.
orders
    Demand of shops and days, of which a third is zero. A unit too little costs 3, a
    unit too much 1.
person
    Four classes. A wrong label costs 10, a person who labels the row 2.
bids
    A bid wins an item if it is at least the price, and the item has a value that
    depends on the row.

    python benchmarks/decisions.py
    python benchmarks/decisions.py --parts orders --seeds 2
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from common import environment, table
from sklearn.datasets import make_classification

from skbayesnn import (
    Abstainer,
    BayesianStackingClassifier,
    BayesianStackingRegressor,
)
from skbayesnn.decision import (
    Cost,
    best_action,
    newsvendor,
    realised_cost,
    threshold,
)

try:
    import catboost
except ImportError:
    catboost = None

TRAIN, TEST = 2_000, 5_000
REVIEW, UNDER, OVER, WRONG, PERSON = 8.0, 3.0, 1.0, 10.0, 2.0
LEVELS = np.arange(1, 20) / 20


def payments(seed):
    """Payments; fraud is likelier at night, abroad and on new accounts."""
    random, n = np.random.default_rng(seed), TRAIN + TEST
    X = pd.DataFrame(
        {
            "amount": np.exp(random.normal(3.5, 1.2, n)).round(2),
            "hour": random.integers(0, 24, n),
            "country": random.choice(["home", "near", "far"], n, p=[0.8, 0.15, 0.05]),
            "account_days": random.exponential(400, n).round(),
            "payments_today": random.poisson(1.5, n),
        }
    )
    log_odds = (
        -4.8
        + 1.5 * (X["hour"] < 6)
        + X["country"].map({"home": 0, "near": 1, "far": 2.5})
        + 1.5 * np.exp(-X["account_days"] / 60)
        + 0.3 * X["payments_today"]
        + 0.2 * (np.log(X["amount"]) - 3.5)
    )
    y = random.random(n) < 1 / (1 + np.exp(-log_odds))
    return X, np.where(y, "fraud", "fair")


def demand(seed):
    """Units sold per shop and day, with many zeros and more spread than Poisson."""
    random, n = np.random.default_rng(seed), TRAIN + TEST
    X = pd.DataFrame(
        {
            "shop": random.choice(list("ABCDEF"), n),
            "weekday": random.integers(0, 7, n),
            "temperature": random.normal(15, 8, n).round(1),
            "offer": random.random(n) < 0.2,
        }
    )
    mean = np.exp(
        1.4
        + 0.25 * X["shop"].map({c: i for i, c in enumerate("ABCDEF")})
        + 0.5 * (X["weekday"] >= 5)
        + 0.03 * X["temperature"]
        + 0.7 * X["offer"]
        - 0.5
    )
    is_zero = random.random(n) < 0.4 - 0.25 * X["offer"]
    return X, np.where(is_zero, 0, random.poisson(mean * random.gamma(4, 1 / 4, n)))


def images(seed):
    """Four classes, of which the best label is right in about 85 %."""
    return make_classification(
        TRAIN + TEST,
        12,
        n_informative=6,
        n_classes=4,
        n_clusters_per_class=1,
        class_sep=1.3,
        flip_y=0.03,
        random_state=seed,
    )


def auctions(seed):
    """Prices of items whose spread depends on the condition, and values to us."""
    random, n = np.random.default_rng(seed), TRAIN + TEST
    X = pd.DataFrame(
        {
            "age": random.uniform(0, 10, n),
            "condition": random.choice(["good", "fair", "poor"], n),
            "mileage": random.exponential(50, n),
        }
    )
    level = 4 - 0.1 * X["age"] - 0.004 * X["mileage"]
    spread = X["condition"].map({"good": 0.1, "fair": 0.25, "poor": 0.5})
    price = np.exp(level + spread * random.normal(size=n))
    X["value"] = np.exp(level + 0.2 + 0.1 * random.normal(size=n))
    return X, price


def loss(bid, price, value):
    """Cost of a bid: what is paid less the value, if it wins."""
    return np.where(bid >= price, bid - value, 0.0)


def boosted(kind, X, y, **options):
    """A fitted CatBoost with its defaults; strings are categories."""
    words = [c for c in getattr(X, "columns", []) if X[c].dtype.kind not in "bifu"]
    model = getattr(catboost, f"CatBoost{kind}")
    options |= {"verbose": False, "thread_count": 1, "random_seed": 0}
    options["allow_writing_files"] = False
    return model(cat_features=words, **options).fit(X, y)


def fraud(X, y, X_test, y_test):
    """Costs of payments, by model and rule, and the share that is reviewed."""
    cost = threshold(REVIEW, "amount", true_positive=REVIEW)
    classes = ["fair", "fraud"]

    def row(name, action):
        reviewed = (action == "fraud").mean()
        options = {"X": X_test, "classes": classes}
        return name, realised_cost(action, y_test, cost, **options).mean(), reviewed

    flat = threshold(REVIEW, X["amount"].mean(), true_positive=REVIEW)
    models = {"stack": BayesianStackingClassifier("fast", random_state=0).fit(X, y)}
    if catboost is not None:
        models["CatBoost"] = boosted("Classifier", X, y)
    yield row("no review", np.full(len(y_test), "fair"))
    for name, model in models.items():
        yield row(f"{name}, threshold 1/2", np.ravel(model.predict(X_test)))
        decision = best_action((model, X_test), flat)
        yield row(f"{name}, threshold of the mean amount", decision.action)
        decision = best_action((model, X_test), cost)
        yield row(f"{name}, best action", decision.action)


def orders(X, y, X_test, y_test):
    """Costs of orders, by model and rule, and the share of demands that are met."""
    cost = newsvendor(UNDER, OVER)

    def row(name, order):
        met = (order >= y_test).mean()
        return name, realised_cost(order, y_test, cost).mean(), met

    stack = BayesianStackingRegressor("fast", random_state=0).fit(X, y)
    yield row("stack, mean", stack.predict(X_test))
    yield row("stack, best action", best_action((stack, X_test), cost).action)
    if catboost is None:
        return
    yield row("CatBoost, mean", boosted("Regressor", X, y).predict(X_test))
    level = f"Quantile:alpha={UNDER / (UNDER + OVER)}"
    model = boosted("Regressor", X, y, loss_function=level)
    yield row("CatBoost, quantile .75", model.predict(X_test).clip(0))


def person(X, y, X_test, y_test):
    """Costs of labels, by model and rule, and the share that a person gives."""
    classes = np.unique(y)
    wrong = WRONG * (1 - np.eye(len(classes)))
    cost = np.column_stack([wrong, np.full(len(classes), PERSON)])
    actions = [*classes.tolist(), -1]

    def row(name, action):
        given = (action == -1).mean()
        options = {"classes": classes, "actions": actions}
        return name, realised_cost(action, y_test, cost, **options).mean(), given

    stack = BayesianStackingClassifier("fast", random_state=0).fit(X, y)
    yield row("stack, most likely label", stack.predict(X_test))
    decision = best_action((stack, X_test), cost, actions=actions)
    yield row("stack, best action", decision.action)
    for target in (0.05, 0.1):
        model = Abstainer(
            BayesianStackingClassifier("fast", random_state=0),
            target_error=target,
            cv=3,
        ).fit(X, y)
        yield row(f"Abstainer, target_error={target}", model.predict(X_test))
    if catboost is not None:
        model = boosted("Classifier", X, y)
        yield row("CatBoost, most likely label", np.ravel(model.predict(X_test)))
        decision = best_action((model, X_test), cost, actions=actions)
        yield row("CatBoost, best action", decision.action)


def bids(X, y, X_test, y_test):
    """Costs of bids, by model and rule, and the share of items that are won."""
    cost = Cost(loss, {"value": "value"})

    def row(name, bid):
        won = (bid >= y_test).mean()
        return name, realised_cost(bid, y_test, cost, X=X_test).mean(), won

    stack = BayesianStackingRegressor("fast", random_state=0).fit(X, y)
    value = X_test["value"].to_numpy()
    yield row("stack, mean or value", np.minimum(stack.predict(X_test), value))
    yield row("stack, best action", best_action((stack, X_test), cost).action)
    if catboost is None:
        return
    point = boosted("Regressor", X, y).predict(X_test)
    yield row("CatBoost, mean or value", np.minimum(point, value))
    levels = ",".join(f"{level:g}" for level in LEVELS)
    model = boosted("Regressor", X, y, loss_function=f"MultiQuantile:alpha={levels}")
    quantiles = np.sort(model.predict(X_test), axis=1)
    best = (LEVELS * (quantiles - value[:, None])).argmin(1)
    bid = quantiles[np.arange(len(best)), best]
    yield row("CatBoost, best of 19 quantiles", np.minimum(bid, value))


PARTS = {
    "fraud": (payments, fraud, "reviewed"),
    "orders": (demand, orders, "demand met"),
    "person": (images, person, "to a person"),
    "bids": (auctions, bids, "won"),
}


def main() -> None:
    """Print one table per part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(environment())
    for part in args.parts:
        data, costs_of, extra = PARTS[part]
        found: dict = {}
        for seed in range(args.seeds):
            X, y = data(seed)
            train, test = (X[:TRAIN], y[:TRAIN]), (X[TRAIN:], y[TRAIN:])
            for name, cost, share in costs_of(*train, *test):
                found.setdefault(name, []).append((cost, share))
        rows = []
        for name, results in found.items():
            costs = np.array([cost for cost, _ in results])
            error = costs.std(ddof=1) / np.sqrt(len(costs)) if len(costs) > 1 else 0.0
            share = np.mean([share for _, share in results])
            rows.append([name, f"{costs.mean():.3f} +- {error:.3f}", f"{share:.0%}"])
        print(f"\n{part}\n\n{table(['rule', 'cost of a row', extra], rows)}")


if __name__ == "__main__":
    main()
