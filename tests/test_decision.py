"""Best actions, their costs, and what forecasts and data would save."""

import pickle

import numpy as np
import pytest
from scipy import integrate, stats
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skbayesnn import (
    Abstainer,
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    predict_distribution,
)
from skbayesnn._distributions.components import Gaussians
from skbayesnn._distributions.recorded import Recorded, TargetSpace
from skbayesnn._likelihoods.poisson import Counts
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.distribution import (
    ClassDistribution,
    ModelRows,
    RegressionDistribution,
)
from skbayesnn._predictive.mixture import MixturePredictive
from skbayesnn.decision import (
    Cost,
    DecisionMaker,
    absolute,
    best_action,
    cost_scorer,
    newsvendor,
    quadratic,
    realised_cost,
    threshold,
)
from tests.helpers.linear_gaussian import LinearGaussian

SMALL = {"hidden_layer_sizes": (7,), "max_iter": 2, "random_state": 0}
DRAWS, ROWS = 3, 5
CLASSES = np.array(["a", "b", "c", "d"])
# Middles of cells stand for y. Most cells are less than a tenth of a draw's standard
# deviation wide: the relative error of costs is at most 0.1^2 / 12 = 8e-4. Savings are
# compared in units of the cost.
CLOSE = 2e-3


class Fixed:
    """A model with a given predictive distribution, in blocks of 2 rows."""

    def __init__(self, predictive):
        self.predictive = predictive

    def _open_predictive(self, X):
        return PredictiveBlocks(len(X), lambda rows: self.predictive.rows(rows), 2)


def distribution(predictive, kind=RegressionDistribution, n_rows=ROWS):
    return kind([ModelRows(Fixed(predictive), np.zeros((n_rows, 1)))])


@pytest.fixture
def random(seed):
    return np.random.default_rng(seed)


@pytest.fixture
def classes(random):
    """Probabilities of every draw, and their distribution."""
    p = random.dirichlet(np.ones(4), size=(DRAWS, ROWS))
    return p, distribution(ClassPredictive(p, CLASSES), ClassDistribution)


@pytest.fixture
def gaussians(random):
    """Means and standard deviations of every draw, and their distribution."""
    mean = random.normal(20, 3, size=(DRAWS, ROWS, 1))
    std = random.uniform(0.5, 2, size=(DRAWS, ROWS, 1))
    predictive = MixturePredictive(Gaussians(mean, std**2), squeeze_targets=True)
    return mean[..., 0], std[..., 0], distribution(predictive)


# ---- classes


def by_hand(p, costs):
    """Results for costs (rows, classes, actions), one row at a time."""
    results = []
    for row, cost in enumerate(costs):
        each = p[:, row] @ cost
        expected = each.mean(0)
        known_y = p[:, row].mean(0) @ cost.min(1)
        best, second, *_ = np.sort(expected)
        values = best, second, best - known_y, best - each.min(1).mean()
        results.append((expected.argmin(), *values))
    return np.transpose(results)


def check(decision, expected, actions):
    np.testing.assert_array_equal(decision.action, actions[expected[0].astype(int)])
    names = ("expected_cost", "second_cost")
    names += ("value_of_perfect_forecast", "value_of_more_data")
    for name, values in zip(names, expected[1:], strict=True):
        actual = getattr(decision, name)
        # Sums of a few numbers of size one.
        np.testing.assert_allclose(actual, values, rtol=1e-12, atol=1e-12)


def test_matrix(classes, random):
    p, of_classes = classes
    cost, names = random.normal(size=(4, 3)), np.array(["x", "y", "z"])
    # A negative cost makes each action the best one of a class.
    cost[[0, 1, 2], [0, 1, 2]] = -9
    expected = by_hand(p, [cost] * ROWS)
    check(best_action(of_classes, cost, actions=names), expected, names)
    check(best_action(of_classes, cost.tolist()), expected, np.arange(3))
    # As a function, and as a frame in another order.
    function = lambda action, y: cost[  # noqa: E731
        np.searchsorted(CLASSES, y), np.searchsorted(names, action)
    ]
    check(best_action(of_classes, function, actions=names), expected, names)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(cost, CLASSES, names).iloc[[2, 0, 3, 1]]
    check(best_action(of_classes, frame), expected, names)
    assert (best_action(of_classes, cost).value_of_more_data >= 0).all()


def test_costs_of_rows(classes, random):
    """Arrays and columns of X in a matrix, and values of a function."""
    p, of_classes = classes
    cost = random.uniform(1, 2, size=(ROWS, 4, 4)) * (1 - np.eye(4))
    entries = [[cost[:, i, j] for j in range(4)] for i in range(4)]
    expected = by_hand(p, cost)
    check(best_action(of_classes, entries), expected, CLASSES)
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"amount": cost[:, 3, 1]})
    entries[3][1] = "amount"
    check(best_action(of_classes, entries, X=X), expected, CLASSES)
    amount = cost[:, 3, 1]
    by_function = Cost(
        lambda action, y, amount: amount * (action != y), {"amount": amount}
    )
    costs = amount[:, None, None] * (1 - np.eye(4))
    check(best_action(of_classes, by_function), by_hand(p, costs), CLASSES)
    assert "amount" in repr(by_function)


def test_threshold_is_the_break_even(random):
    """Without costs of right decisions, and of Elkan's (2001, eq. 2) with them."""
    p = random.random((1, ROWS, 1))
    predictive = ClassPredictive(np.concatenate([1 - p, p], -1), np.array([0, 1]))
    of_classes = distribution(predictive, ClassDistribution)
    for costs in ({}, {"true_positive": 0.3, "true_negative": -0.5}):
        cost = threshold(1.0, 3.0, **costs)
        (tn, fp), (fn, tp) = cost
        share = (fp - tn) / (fp - tn + fn - tp)
        action = best_action(of_classes, cost).action
        np.testing.assert_array_equal(action, p[0, :, 0] > share)


# ---- numbers


def expected_loss(order, mean, std, under, over):
    """Cost of an order for a normal demand, in closed form."""
    z = (order - mean) / std
    left = std * (z * stats.norm.cdf(z) + stats.norm.pdf(z))
    return under * (mean - order) + (under + over) * left


@pytest.mark.parametrize("per_row", [False, True])
def test_newsvendor(gaussians, per_row):
    mean, std, of_numbers = gaussians
    under = np.linspace(1, 7, ROWS) if per_row else np.full(ROWS, 4.0)
    decision = best_action(of_numbers, newsvendor(under if per_row else 4.0, 1.5))
    level = under / (under + 1.5)
    # The quantile of a mixture is a root, found to 1e-8 of the spread.
    share = stats.norm.cdf((decision.action - mean) / std).mean(0)
    np.testing.assert_allclose(share, level, atol=1e-7)
    cost = expected_loss(decision.action, mean, std, under, 1.5).mean(0)
    np.testing.assert_allclose(decision.expected_cost, cost, rtol=CLOSE)
    np.testing.assert_allclose(decision.value_of_perfect_forecast, cost, rtol=CLOSE)
    best_of_draws = expected_loss(
        mean + std * stats.norm.ppf(level), mean, std, under, 1.5
    )
    expected = cost - best_of_draws.mean(0)
    saved = decision.value_of_more_data
    np.testing.assert_allclose(saved / cost, expected / cost, atol=CLOSE)
    assert np.isnan(decision.second_cost).all()


def test_quadratic_and_absolute(gaussians):
    """What more data save is the variance of the means."""
    mean, std, of_numbers = gaussians
    decision = best_action(of_numbers, quadratic)
    np.testing.assert_allclose(decision.action, mean.mean(0), rtol=1e-12)
    total = (std**2).mean(0) + mean.var(0)
    for values in (decision.expected_cost, decision.value_of_perfect_forecast):
        np.testing.assert_allclose(values, total, rtol=CLOSE)
    saved = decision.value_of_more_data
    np.testing.assert_allclose(saved / total, mean.var(0) / total, atol=CLOSE)
    median = of_numbers.median()
    decision = best_action(of_numbers, absolute)
    np.testing.assert_array_equal(decision.action, median)
    cost = expected_loss(median, mean, std, 1, 1).mean(0)
    np.testing.assert_allclose(decision.expected_cost, cost, rtol=CLOSE)


def test_search_finds_the_same(gaussians):
    """Without the name of the cost, to a tenth of the width of a cell."""
    _, _, of_numbers = gaussians
    named = best_action(of_numbers, newsvendor(4.0, 1.5))
    found = best_action(
        of_numbers,
        lambda order, y: np.where(y > order, 4 * (y - order), 1.5 * (order - y)),
    )
    distance = np.abs(found.action - named.action) / of_numbers.std()
    assert distance.max() < 0.05
    # The cost is flat about the best action.
    np.testing.assert_allclose(found.expected_cost, named.expected_cost, rtol=CLOSE)


def test_batched_equals_alone(gaussians):
    """Also for costs with a search, and a distribution far from the others."""
    mean, std, _ = gaussians
    mean = mean.copy()
    mean[:, 1] *= 1e3
    predictive = MixturePredictive(
        Gaussians(mean[..., None], std[..., None] ** 2), squeeze_targets=True
    )
    of_numbers = distribution(predictive)
    cost = lambda action, y: np.abs(y - action) ** 1.5  # noqa: E731
    together = best_action(of_numbers, cost)
    alone = [
        best_action(distribution(predictive.rows([i]), n_rows=1), cost)
        for i in range(ROWS)
    ]
    for name, values in vars(together).items():
        of_rows = np.concatenate([vars(one)[name] for one in alone])
        # Sums in another order, and differences of costs that are larger.
        scale = 1e-10 * together.expected_cost.max()
        np.testing.assert_allclose(values, of_rows, rtol=1e-10, atol=scale)


def test_given_actions(gaussians):
    mean, std, of_numbers = gaussians
    actions = [10, 18.5, 21, 30]
    decision = best_action(of_numbers, newsvendor(4.0, 1.5), actions=actions)
    each = np.stack([expected_loss(a, mean, std, 4, 1.5) for a in actions])
    expected = np.sort(each.mean(1), axis=0)
    np.testing.assert_array_equal(
        decision.action, np.take(actions, each.mean(1).argmin(0))
    )
    np.testing.assert_allclose(decision.expected_cost, expected[0], rtol=CLOSE)
    np.testing.assert_allclose(decision.second_cost, expected[1], rtol=CLOSE)
    saved = expected[0] - each.min(0).mean(0)
    np.testing.assert_allclose(
        decision.value_of_more_data, saved, atol=CLOSE * expected.max()
    )


def test_counts(random):
    """Sums over counts are exact."""
    rate = random.uniform(0.2, 9, size=(DRAWS, ROWS, 1))
    predictive = MixturePredictive(Counts(rate), squeeze_targets=True)
    decision = best_action(distribution(predictive), newsvendor(3.0, 1.0))
    counts = np.arange(80)
    pmf = stats.poisson.pmf(counts, rate)  # (draws, rows, counts)
    order = counts[:, None]
    cost = np.where(counts > order, 3.0 * (counts - order), order - counts)
    each = pmf @ cost.T
    np.testing.assert_array_equal(decision.action, each.mean(0).argmin(-1))
    # Counts beyond a probability of 1e-7 are counted with the last one.
    expected = each.mean(0).min(-1)
    np.testing.assert_allclose(decision.expected_cost, expected, rtol=1e-5)
    saved = expected - each.min(-1).mean(0)
    np.testing.assert_allclose(decision.value_of_more_data, saved, atol=1e-5)


def test_zeros(random):
    """A point mass at zero, and a log-normal part."""
    mean = random.normal(1, 0.3, size=(DRAWS, ROWS, 1))
    std, zero = 0.5, random.uniform(0.1, 0.6, size=(DRAWS, ROWS, 1))
    latent = Gaussians(mean, np.full(mean.shape, std**2))
    space = TargetSpace("log", 0.0, np.inf, 0.0, np.inf, point=0.0)
    predictive = MixturePredictive(
        Recorded(latent, (space,), zero), squeeze_targets=True
    )
    decision = best_action(distribution(predictive), newsvendor(3.0, 1.0))
    for row, order in enumerate(decision.action):
        cost = 0.0
        for m, p in zip(mean[:, row, 0], zero[:, row, 0], strict=True):
            positive = stats.lognorm(std, scale=np.exp(m))
            # E (y - order)+ is the integral of the survival function.
            lost, _ = integrate.quad(positive.sf, order, np.inf)
            left = order - positive.mean() + lost
            cost += (1 - p) * (3 * lost + left) + p * order
        # The cells above zero are wider than without a point mass.
        assert decision.expected_cost[row] == pytest.approx(cost / DRAWS, rel=5e-3)


def test_target_transform_and_recalibration(random):
    """Costs are in the units of y."""
    X = random.normal(size=(400, 2))
    y = np.exp(1 + 0.3 * X[:, 0] + 0.4 * random.normal(size=400))
    log = TransformedTargetRegressor(LinearGaussian(), func=np.log, inverse_func=np.exp)
    log.fit(X, y)
    decision = best_action((log, X[:7]), newsvendor(2.0, 1.0))
    of_rows = predict_distribution(log, X[:7])
    np.testing.assert_allclose(decision.action, of_rows.ppf(2 / 3))
    levels = (np.arange(4000) + 0.5) / 4000
    values = of_rows.ppf(levels.tolist())
    cost = newsvendor(2.0, 1.0).function(decision.action[:, None], values, 2.0, 1.0)
    # 4,000 quantiles cut the tails off: 1e-3 of the cost.
    np.testing.assert_allclose(decision.expected_cost, cost.mean(1), rtol=5e-3)
    isotonic = CalibratedUncertaintyRegressor(LinearGaussian(3.0), method="isotonic")
    isotonic.fit(X, y)
    decision = best_action((isotonic, X[:7]), quadratic)
    variance = predict_distribution(isotonic, X[:7]).var()
    # Both are sums over nodes, and the recalibrated density has steps.
    np.testing.assert_allclose(decision.expected_cost, variance, rtol=0.05)


# ---- through models


@pytest.fixture
def table(random):
    """A frame with an amount, labels, and counts."""
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(random.normal(size=(60, 3)), columns=["p", "q", "r"])
    X["amount"] = random.exponential(10, 60)
    X["shop"] = random.choice(["north", "south"], 60)
    return (
        X,
        np.where(X["p"] > random.normal(size=60), "fraud", "fair"),
        random.poisson(3, 60),
    )


AMOUNTS = threshold(2.0, "amount")
CLASSIFIERS = {
    "network": MCDropoutClassifier(**SMALL),
    "pipeline": make_pipeline(
        ColumnTransformer(
            [("one", OneHotEncoder(), ["shop"])], remainder="passthrough"
        ),
        StandardScaler(),
        MCDropoutClassifier(**SMALL),
    ),
    "abstainer": Abstainer(MCDropoutClassifier(**SMALL), threshold=0.5),
    "calibrated": CalibratedClassifierCV(MCDropoutClassifier(**SMALL), cv=2),
    "stack": BayesianStackingClassifier(
        [("one", MCDropoutClassifier(**SMALL))], random_state=0
    ),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(table, name):
    X, labels, _ = table
    model = DecisionMaker(CLASSIFIERS[name], AMOUNTS).fit(X, labels)
    p = model.predict_proba(X)[:, 1]
    expected = np.where(p * X["amount"] > (1 - p) * 2.0, "fraud", "fair")
    # Float32 probabilities near the break-even may round to the other side.
    close = np.isclose(p * X["amount"], (1 - p) * 2.0, rtol=1e-4)
    np.testing.assert_array_equal(model.predict(X)[~close], expected[~close])
    decision = best_action((model, X), AMOUNTS)
    np.testing.assert_array_equal(decision.action, model.predict(X))
    has_draws = name != "calibrated"
    assert np.isfinite(decision.value_of_more_data).all() == has_draws
    cost = np.where(
        model.predict(X) == labels, 0, np.where(labels == "fraud", X["amount"], 2.0)
    )
    np.testing.assert_array_equal(
        realised_cost(model.predict(X), labels, AMOUNTS, X=X), cost
    )
    assert model.score(X, labels) == pytest.approx(-cost.mean())
    assert cost_scorer(AMOUNTS)(model.estimator_, X, labels) == model.score(X, labels)
    alone = [model.predict(X[i : i + 1])[0] for i in range(5)]
    np.testing.assert_array_equal(alone, model.predict(X[:5]))


def test_inside_of_a_pipeline_of_frames(table):
    """With set_output, a column of the transformed frame may be a cost."""
    X, labels, _ = table
    numbers = X.drop(columns="shop")
    pipeline = make_pipeline(
        ColumnTransformer(
            [("scaled", StandardScaler(), ["p", "q", "r"])],
            remainder="passthrough",
            verbose_feature_names_out=False,
        ),
        DecisionMaker(MCDropoutClassifier(**SMALL), AMOUNTS),
    ).set_output(transform="pandas")
    pipeline.fit(numbers, labels)
    action = pipeline.predict(numbers)
    np.testing.assert_array_equal(
        action, best_action((pipeline, numbers), AMOUNTS).action
    )


def test_searches_and_cross_validation(table):
    X, _, counts = table
    numbers = X.drop(columns="shop")
    cost = newsvendor("amount", 2.0)
    search = GridSearchCV(
        DecisionMaker(MCDropoutRegressor(**SMALL, likelihood="poisson"), cost),
        {"estimator__tau": ["auto"], "cost": [cost, newsvendor(1.0, 2.0)]},
        scoring=cost_scorer(cost),
        cv=3,
    ).fit(numbers, counts)
    order = search.predict(numbers)
    np.testing.assert_array_equal(order, order.round())
    scores = cross_validate(
        search.best_estimator_, numbers, counts, scoring=cost_scorer(cost), cv=3
    )["test_score"]
    np.testing.assert_allclose(scores.mean(), search.best_score_)


def test_scores_of_models_without_draws(table):
    """Probabilities decide; the point prediction of a regressor is its action."""
    X, labels, counts = table
    numbers = X.drop(columns="shop")
    logistic = LogisticRegression(max_iter=1000).fit(numbers, labels)
    action = best_action((logistic, numbers), AMOUNTS).action
    cost = realised_cost(action, labels, AMOUNTS, X=numbers)
    weights = np.arange(60.0)
    score = cost_scorer(AMOUNTS)(logistic, numbers, labels, sample_weight=weights)
    assert score == pytest.approx(-np.average(cost, weights=weights))
    points = LinearRegression().fit(numbers, counts)
    score = cost_scorer(absolute)(points, numbers, counts)
    assert score == pytest.approx(-np.abs(points.predict(numbers) - counts).mean())


@pytest.mark.filterwarnings("ignore:.*SKB")
def test_stack_of_regressors(table):
    X, _, counts = table
    stack = BayesianStackingRegressor(
        [("one", MCDropoutRegressor(**SMALL))], random_state=0
    )
    model = DecisionMaker(stack, newsvendor(3.0, 1.0)).fit(X, counts)
    quantile = predict_distribution(model, X).ppf(0.75)
    np.testing.assert_allclose(model.predict(X), quantile)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    assert clone(model).cost.values == {"under": 3.0, "over": 1.0}


def test_failed_fit_changes_nothing(table):
    X, _, counts = table
    model = DecisionMaker(LinearGaussian(), absolute).fit(X[["p"]], counts)
    before = vars(model).copy()
    model.cost = newsvendor("price", 1.0)
    with pytest.raises(ValueError, match="'price'"):
        model.fit(X[["p"]], counts)
    model.cost = absolute
    assert vars(model) == before


# ---- bad input


def test_unused_actions(classes):
    _, of_classes = classes
    names = ["first", "second", "third"]
    cost = np.array([[0.0, 4, 3], [4, 0, 5], [1, 1, 1], [0, 0, 0.5]])
    with pytest.warns(UserWarning, match=r"actions \['third'\] are never.*SKB406"):
        best_action(of_classes, cost, actions=names)


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (np.zeros((3, 2)), ValueError, "4 rows, one for each class"),
        ([1.0, 2.0, 3.0, 4.0], ValueError, "4 rows, one for each class"),
        (3.0, ValueError, "4 rows, one for each class.*got 3"),
        (None, ValueError, "4 rows, one for each class.*got None"),
        ([[0, 1], [0, 1], [0], [0, 1]], ValueError, "must have 2 entries"),
        (np.full((4, 4), np.nan), ValueError, "finite; got NaN or infinity in 1 of 1"),
        ([["amount", 0]] * 4, ValueError, "or a column of X; got 'amount'"),
        ([[np.ones(3), 0]] * 4, ValueError, r"each of 5 rows; got shape \(3,\)"),
        ([[{}, 0]] * 4, TypeError, "must be numbers"),
        (newsvendor(1.0, 2.0), TypeError, "newsvendor is a cost of numbers"),
        (quadratic, TypeError, "quadratic is a cost of numbers"),
        (
            lambda action, y: np.ones(3),
            ValueError,
            r"shape \(1, 4, 4\); got shape \(3,\)",
        ),
    ],
)
def test_bad_costs_of_classes(classes, cost, error, message):
    with pytest.raises(error, match=message):
        best_action(classes[1], cost)


@pytest.mark.parametrize(
    ("cost", "actions", "error", "message"),
    [
        (np.eye(4), None, TypeError, "needs classes; got a regression"),
        (newsvendor(0.0, 2.0), None, ValueError, "`under` must be > 0; got 0"),
        (newsvendor(1.0, np.nan), None, ValueError, "over of the cost must be finite"),
        (absolute, [], ValueError, "must be a list, not empty"),
        (absolute, [[1.0], [2.0]], ValueError, "must be a list, not empty"),
        (absolute, [1.0, 2.0, 1.0], ValueError, "`actions` must differ"),
        (absolute, ["few", "many"], TypeError, "`actions` must be numbers"),
        (
            lambda a, y: np.full(np.broadcast_shapes(a.shape, y.shape), np.inf),
            None,
            ValueError,
            "the cost must be finite",
        ),
    ],
)
def test_bad_costs_of_numbers(gaussians, cost, actions, error, message):
    with pytest.raises(error, match=message):
        best_action(gaussians[2], cost, actions=actions)


def test_other_bad_input(classes, random):
    with pytest.raises(TypeError, match=r"\(model, X\); got ndarray"):
        best_action(np.ones(3), absolute)
    with pytest.raises(TypeError, match="LinearRegression"):
        best_action((LinearRegression(), np.ones((2, 1))), absolute)
    with pytest.raises(ValueError, match=r"`y` must be in \['a', 'b'\]; got \['c'\]"):
        realised_cost(["a"], ["c"], threshold(1, 2), classes=["a", "b"])
    X = random.normal(size=(20, 2))
    two = LinearGaussian().fit(X, X)
    with pytest.raises(ValueError, match="one target; got 2"):
        best_action((two, X), absolute)
    frame = pytest.importorskip("pandas").DataFrame(np.eye(3), ["a", "b", "d"])
    with pytest.raises(ValueError, match=r"without \['c'\]"):
        best_action(classes[1], frame)
