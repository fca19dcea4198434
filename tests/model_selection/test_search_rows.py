"""Batched searches give the results, or the errors, of scikit-learn's searches."""

import re
import warnings

import numpy as np
import pytest
import sklearn
from scipy import sparse
from scipy.stats import loguniform
from sklearn.base import is_classifier
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler

from skbayesnn import BBBClassifier, BBBRegressor, scoring
from skbayesnn.model_selection import BatchedGridSearchCV, BatchedRandomizedSearchCV
from skbayesnn.networks import ConvNet
from tests.helpers.comparison import (
    PLAIN,
    ROUNDING,
    ROUNDING_32,
    SEED,
    SMALL,
    assert_close,
    assert_same_members,
    assert_same_results,
    assert_same_state,
    classifier,
    fit_both,
    fitted_state,
    regressor,
)
from tests.helpers.searches import GRID, STOPPING

# ---- tables


def coded_table(data):
    """Numbers and codes of five levels, whose means do not follow the codes."""
    code = np.arange(47) * 7 % 5
    y = data.y + np.array([3.0, -2.0, 4.0, -5.0, 0.0])[code]
    return np.column_stack([data.X[:, 0], code]), y


def three_classes(data):
    return data.X, data.labels


def ordered_classes(data):
    """Labels whose declared order is not alphabetic."""
    pandas = pytest.importorskip("pandas")
    order = ["mid", "top", "low"]
    labels = pandas.Categorical(data.labels, categories=order, ordered=True)
    return data.X, pandas.Series(labels)


def images(data):
    """Rows of 2 x 2 pixels."""
    return data.X.reshape(-1, 2, 2), data.y


# Parameters of the network that change the table on which it is trained.
OF_TABLE = {
    "categorical_features": (regressor(), [None, [1]], coded_table),
    "class_weight": (classifier(), [None, {"low": 0, "mid": 3}], three_classes),
    "likelihood": (classifier(), ["categorical", "ordinal"], ordered_classes),
    "network": (regressor(), [ConvNet((1, 2, 2), (3,), pool=1), None, "conv"], images),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # scores of candidates that fail
@pytest.mark.parametrize("name", OF_TABLE)
def test_parameters_that_change_the_table(data, name):
    """No candidate is trained on the table of another one, in either order."""
    estimator, values, rows = OF_TABLE[name]
    X, y = rows(data)
    for candidates in (values, values[::-1]):
        plain, batched = fit_both(
            estimator, {name: candidates}, X, y, scoring=scoring.log_density_scorer
        )
        assert_same_results(plain, batched)
        # The scores differ, unless candidates fail.
        scores = batched.cv_results_["mean_test_score"]
        assert len(set(scores)) == len(scores)


@pytest.mark.parametrize(
    "network",
    [
        BBBRegressor(**SMALL),
        BBBClassifier(**SMALL),
        regressor(length_scale="auto"),
        regressor(**STOPPING),
        classifier(**STOPPING),
    ],
)
def test_groups_of_the_networks(data, network):
    """Every member holds out the rows that it holds out alone."""
    y = data.labels if is_classifier(network) else data.y
    groups = np.array([f"patient {i}" for i in data.groups])
    pipeline = Pipeline([("scaler", StandardScaler()), ("network", network)])
    options = {"fit": {"network__groups": groups}, "tolerance": 1e-6}
    grid = {"network__tau": ["auto", 2.0]}
    if is_classifier(network):
        grid = {"network__tau": [0.5, 2.0], "network__dropout": [0.05, 0.2]}
    grouped = assert_same_members(pipeline, grid, data.X, y, **options)
    options["fit"] = {}
    split = assert_same_members(pipeline, grid, data.X, y, **options)
    # Networks with early stopping are trained again, on all rows.
    name = "history_" if network.early_stopping is True else "parameters_"
    assert any(
        repr(a[name]) != repr(b[name]) for a, b in zip(grouped, split, strict=True)
    )


def test_fold_that_lacks_a_class(data):
    order = np.argsort(data.labels, kind="stable")
    X, labels = data.X[order], data.labels[order]
    two_classes = fit_both(
        classifier(), GRID, X, labels, cv=KFold(3), scoring="accuracy"
    )
    assert_same_results(*two_classes)
    n_low = (labels == "low").sum()
    one_class = [np.arange(n_low), np.arange(n_low, 47)]
    folds = [one_class, (np.arange(1, 47), np.arange(1))]
    plain, batched = fit_both(classifier(), GRID, X, labels, cv=folds)
    assert_same_results(plain, batched)
    assert np.isnan(batched.cv_results_["split0_test_score"]).all()
    assert not np.isnan(batched.cv_results_["split1_test_score"]).any()


class TwoOfThree(KFold):
    """Yields two folds, although it announces three."""

    def split(self, X, y=None, groups=None):
        yield from list(super().split(X, y, groups))[:2]


def frame(data, kind):
    return pytest.importorskip(kind).DataFrame(dict(zip("abcd", data.X.T, strict=True)))


def sparse_rows(data, kind):
    return getattr(sparse, kind)(np.where(np.abs(data.X) > 0.3, data.X, 0))


def series(data):
    pandas = pytest.importorskip("pandas")
    return pandas.Series(data.y, index=range(100, 147))


def frame_of_targets(data):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(data.Y, columns=["u", "v"])


def with_folds(cv):
    scorer = "neg_mean_absolute_error"
    return {"cv": cv, "scoring": scorer, "return_train_score": True}


def with_weights(data, scoring):
    weights = {"sample_weight": data.weights}
    return {"fit": weights, "scoring": scoring, "return_train_score": True}


def failing(error_score, *bad):
    grids = [{"tau": [0.5, 2.0]}, *bad]
    return {"grid": grids, "error_score": error_score, "return_train_score": True}


def steps(*pairs, **grid):
    """A pipeline without scaling in the network, which makes all scalers equal."""
    network = regressor(standardize=False)
    grid = {"n__tau": [0.5, 2.0]} | grid
    return {"estimator": Pipeline([*pairs, ("n", network)]), "grid": grid}


def weights_of_steps(data):
    weights = {"scale__sample_weight": data.weights[::-1]}
    weights["n__sample_weight"] = data.weights
    case = steps(("scale", StandardScaler()), scale__with_mean=[True, False])
    return case | {"fit": weights}


def routed_weights_of_steps(data):
    """With different names for the steps."""
    scaler = StandardScaler().set_fit_request(sample_weight="of_scale")
    case = steps(("scale", scaler), scale__with_std=[True, False])
    case["estimator"][-1].set_fit_request(sample_weight="of_net")
    weights = {"of_net": data.weights, "of_scale": data.weights[::-1]}
    return case | {"fit": weights, "scoring": "r2", "routing": True}


def weights_of_a_scorer(data):
    return {
        "estimator": regressor().set_fit_request(sample_weight=False),
        "scoring": scoring.log_density_scorer.set_score_request(sample_weight="rows"),
        "fit": {"rows": data.weights},
        "routing": True,
    }


def groups(data, routing):
    fit = {"groups": data.groups}
    search = {"estimator": regressor(**STOPPING), "cv": GroupKFold(3)}
    return search | {"fit": fit, "routing": routing}


def replaced_steps(data):
    first, second = ("scale", StandardScaler()), ("project", PCA(2))
    case = steps(first, second)
    tau = {"n__tau": [0.5, 2.0]}
    case["grid"] = [
        tau | {"scale": ["passthrough", MinMaxScaler(), StandardScaler()]},
        {"project": ["passthrough", None, PCA(3)], "n__noise": ["gaussian"]},
        {
            "n": [BBBRegressor(**SMALL), regressor(tau=3.0)],
            "n__tau": [0.7],
            "project__n_components": [2, 3],
        },
    ]
    return case


def scorers_of_regressors(data):
    kinds = {
        "density": scoring.log_density_scorer,
        "crps": scoring.neg_crps_scorer,
        "pinball": scoring.neg_pinball_scorer,
        "coverage": scoring.interval_coverage_scorer.with_options(coverage=0.5),
        "width": scoring.neg_interval_width_scorer,
        "aurc": scoring.neg_aurc_scorer,
        "outside": scoring.ood_auroc_scorer(data.X_new + 5),
        "error": make_scorer(mean_absolute_error, greater_is_better=False),
    }
    return {"scoring": kinds, "refit": "density"}


def scorers_of_classifiers(data):
    kinds = {"density": scoring.log_density_scorer, "brier": scoring.neg_brier_scorer}
    search = {"scoring": kinds, "refit": "brier", "y": data.labels}
    return {"estimator": classifier()} | search


def several_scores(estimator, X, y):
    error = np.abs(estimator.predict(X) - y)
    return {"mean": -error.mean(), "max": -error.max()}


def fail_sometimes(estimator, X, y):
    if estimator.tau == 2.0:
        raise ValueError("no score")
    return 1.0


def SQUARE(X):
    return X**2


# joblib cannot hash a lambda.
HALF = lambda X: X / 2  # noqa: E731
METRICS = ["r2", "neg_mean_absolute_error"]
RATIO = {"ratio": lambda estimator, X, y: 1 / 0, "r2": "r2"}
BAD = {"tau": [1.0, -1.0]}, {"learning_rate_init": [1e200]}, {"dropout": [0.1, "b"]}

# Changes of the arguments: parameters of the search, rows and targets.
CHANGES = {
    # Rows.
    "csr_array": lambda data: {"X": sparse_rows(data, "csr_array")},
    "csc_matrix": lambda data: {"X": sparse_rows(data, "csc_matrix")},
    "float32": lambda data: {
        "X": data.X.astype("float32"),
        "estimator": regressor(dtype="float32"),
    },
    "list": lambda data: {"X": data.X.tolist()},
    "pandas": lambda data: {"X": frame(data, "pandas")},
    "polars": lambda data: {"X": frame(data, "polars")},
    "series": lambda data: {"y": series(data)},
    "frame of targets": lambda data: {"y": frame_of_targets(data)},
    "y as a list": lambda data: {"y": data.y.tolist()},
    "no y": lambda data: {"y": None},
    "missing y": lambda data: {"y": np.where(np.arange(47) == 3, np.nan, data.y)},
    "missing X": lambda data: {"X": np.where(data.X == data.X.max(), np.nan, data.X)},
    "lengths": lambda data: {"y": data.y[:40]},
    # Folds.
    "unequal folds": lambda data: with_folds(KFold(4)),
    "overlapping": lambda data: with_folds(
        ShuffleSplit(3, train_size=20, random_state=0)
    ),
    "given folds": lambda data: with_folds(
        [(np.arange(30), np.arange(30, 47)), (np.arange(9, 47), [0])]
    ),
    "masks": lambda data: with_folds([(data.X[:, 0] > 0, data.X[:, 0] <= 0)]),
    "generator": lambda data: with_folds(KFold(3).split(data.X)),
    "groups": lambda data: groups(data, routing=False),
    "routed groups": lambda data: groups(data, routing=True),
    "no groups": lambda data: {"cv": GroupKFold(3)},
    "too few splits": lambda data: {"cv": TwoOfThree(3)},
    "no training rows": lambda data: {"cv": [(np.arange(0), np.arange(47))]},
    # Arguments of `fit`.
    "weights": lambda data: with_weights(data, None),
    "weights of a metric": lambda data: with_weights(data, "r2"),
    "weights of a density": lambda data: with_weights(data, scoring.log_density_scorer),
    "weights of steps": weights_of_steps,
    "routed weights of steps": routed_weights_of_steps,
    "routed weights of a scorer": weights_of_a_scorer,
    "validation rows": lambda data: {
        "estimator": regressor(**STOPPING),
        "grid": {"early_stopping": [False, True], "random_state": [3, 4]},
        "fit": {"X_val": data.X_new, "y_val": data.y_new},
    },
    "unknown argument": lambda data: {"fit": {"rows": data.weights}},
    # Candidates.
    "no parameters": lambda data: {"grid": {}},
    "arrays": lambda data: {
        "grid": {"length_scale": [np.array([0.1, 0.2]), [0.1, 0.1], "auto"]}
    },
    "several grids": lambda data: {
        "grid": [{"tau": [0.5]}, {"hidden_layer_sizes": [3], "noise": ["gaussian"]}]
    },
    "sampled candidates": lambda data: {
        "search_class": BatchedRandomizedSearchCV,
        "grid": {"tau": loguniform(0.1, 10), "hidden_layer_sizes": [3, 4]},
        "n_iter": 6,
        "random_state": SEED,
    },
    "warm start": lambda data: {"estimator": regressor(warm_start=True)},
    "a generator": lambda data: {
        "estimator": regressor(random_state=np.random.RandomState(3))
    },
    "steps left out": lambda data: steps(("a", None), ("b", "passthrough")),
    "replaced steps": replaced_steps,
    "no steps": lambda data: steps(),
    "supervised step": lambda data: steps(
        ("select", SelectKBest(f_regression)), select__k=[2, 3]
    ),
    "steps as a tuple": lambda data: {
        "estimator": Pipeline((("scale", StandardScaler()), ("n", regressor()))),
        "grid": {"n__tau": [0.5, 2.0]},
    },
    "functions as parameters": lambda data: {
        "estimator": make_pipeline(FunctionTransformer(), regressor()),
        "grid": {"functiontransformer__func": [np.tanh, SQUARE, HALF]},
    },
    "unknown parameter": lambda data: failing(np.nan, {"tua": [0.5]}),
    "unknown parameter, aloud": lambda data: failing("raise", {"tua": [0.5]}),
    "unknown device": lambda data: failing(np.nan, {"device": ["cpu", "bogus"]}),
    **{
        f"bad {next(iter(bad))}, {score}": lambda data, bad=bad, score=score: failing(
            score, bad
        )
        for bad in BAD
        for score in (np.nan, -1e6, "raise")
    },
    "all fail": lambda data: {"grid": {"tau": [-1.0], "dropout": [0.1, 0.2]}},
    "all diverge": lambda data: {"grid": {"learning_rate_init": [1e200]}},
    # Scores.
    "classes": lambda data: {
        "estimator": classifier(),
        "grid": {"tau": [0.5, 2.0], "dropout": [0.1, 0.3]},
        "y": data.labels,
        "scoring": ["neg_log_loss", "accuracy", "roc_auc_ovr"],
        "refit": "neg_log_loss",
        "return_train_score": True,
    },
    "scorers of regressors": scorers_of_regressors,
    "scorers of classifiers": scorers_of_classifiers,
    "several scores": lambda data: {"scoring": several_scores, "refit": "max"},
    "no metric of numbers": lambda data: {"scoring": "roc_auc"},
    "no number": lambda data: {"scoring": lambda estimator, X, y: "many"},
    "no score": lambda data: {"scoring": lambda estimator, X, y: np.nan},
    "a score fails": lambda data: {"scoring": fail_sometimes},
    "one metric fails": lambda data: {"scoring": RATIO, "refit": "r2"},
    "one metric fails aloud": lambda data: {
        "scoring": RATIO,
        "refit": "r2",
        "error_score": "raise",
    },
    "metrics, no refit": lambda data: {"scoring": METRICS, "refit": False},
    "no refit": lambda data: {"refit": False},
    "chosen by a function": lambda data: {"refit": lambda results: 2},
    "metrics, by a function": lambda data: {
        "scoring": METRICS,
        "refit": lambda results: 2,
    },
    "best of nothing": lambda data: {"refit": lambda results: 9},
    "pre_dispatch": lambda data: {"n_jobs": 1, "pre_dispatch": "1.5*n_jobs"},
    # Invalid options.
    "wrong pre_dispatch": lambda data: {"pre_dispatch": 2.5},
    "one fold": lambda data: {"cv": 1},
    "wrong error_score": lambda data: {"error_score": "no"},
    "wrong refit": lambda data: {"refit": 7.0},
    "refit by no metric": lambda data: {"scoring": ["r2", "max_error"]},
    "refit by another": lambda data: {"scoring": ["r2"], "refit": "max_error"},
    "empty grid": lambda data: {"grid": []},
    "no list": lambda data: {"grid": {"tau": 1.0}},
    "no iteration": lambda data: {
        "search_class": BatchedRandomizedSearchCV,
        "n_iter": 0,
    },
}


def fitted_or_error(name, data, plain):
    """The search or its error; and kinds of warnings, or what an error leaves."""
    with sklearn.config_context(enable_metadata_routing=True):
        case = {"X": data.X, "y": data.y, "fit": {}, "cv": 3} | CHANGES[name](data)
    X, y, fit = (case.pop(argument) for argument in ("X", "y", "fit"))
    estimator, grid = case.pop("estimator", regressor()), case.pop("grid", GRID)
    search_class = case.pop("search_class", BatchedGridSearchCV)
    routing = case.pop("routing", False)
    search = (PLAIN[search_class] if plain else search_class)(estimator, grid, **case)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            sklearn.config_context(enable_metadata_routing=routing),
        ):
            warnings.simplefilter("always")
            search.fit(X, y, **fit)
    except Exception as error:
        # Without a traceback, and without words that differ between versions.
        message = re.split("Below are|return", str(error))[0]
        reason = re.sub(r"\S+\(\)", "", str(error).rstrip().splitlines()[-1])
        texts = [message.replace("Batched", "")]
        if y is not None:  # refused by another function
            texts.append(reason.replace("Batched", ""))
        return type(error), [*texts, hasattr(search, "cv_results_")]
    # A batched search checks the convergence of the last fit only, and does not
    # warn of missing values that a fold has and its training rows lack.
    kinds = {w.category for w in caught if "[SKB304]" not in str(w.message)}
    return search, kinds - {ConvergenceWarning}


@pytest.mark.parametrize("name", CHANGES)
def test_same_results_or_same_error(data, name):
    plain, of_plain = fitted_or_error(name, data, plain=True)
    batched, of_batched = fitted_or_error(name, data, plain=False)
    assert of_plain == of_batched
    if isinstance(plain, type):
        assert plain == batched
        return
    tolerance = ROUNDING_32 if name == "float32" else ROUNDING
    assert_same_results(plain, batched, tolerance)
    assert hasattr(plain, "predict") == hasattr(batched, "predict")
    np.testing.assert_array_equal(
        getattr(batched, "feature_names_in_", None),
        getattr(plain, "feature_names_in_", None),
    )
    if hasattr(plain, "predict"):
        assert batched.refit_time_ > 0
        states = [fitted_state(search.best_estimator_) for search in (plain, batched)]
        for state in states:
            state.pop("table_", None)  # encoders are equal by identity only
        assert_same_state(*states, tolerance)


# ---- weights


def test_warnings_equal_scikit_learn(data):
    """Of a scorer without weights (scikit-learn 1.9 or later), shown once."""

    def score(estimator, X, y):
        return estimator.tau

    warned = []
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        search = search_class(regressor(), {"tau": [0.5, 2.0]}, cv=3, scoring=score)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search.fit(data.X, data.y, sample_weight=data.weights)
        # A batched search checks the convergence of the last fit only.
        kept = (w for w in caught if w.category is not ConvergenceWarning)
        messages = (str(w.message).replace("Batched", "") for w in kept)
        warned.append([" ".join(message.split()) for message in messages])
    assert warned[0] == warned[1]


def test_rows_of_weight_zero_are_ignored(data):
    """They are ignored, which makes the folds unequal."""
    weights = data.weights * (np.arange(47) % 5 > 0) * (np.arange(47) != 2)
    for estimator, y in ((regressor(), data.y), (classifier(), data.labels)):
        assert_same_members(
            estimator.set_params(**STOPPING),
            {"tau": [0.5, 2.0], "random_state": [3, 4]},
            data.X,
            y,
            fit={"sample_weight": weights},
        )


@pytest.mark.parametrize("score", [False, True])
def test_routed_weights(data, score):
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = regressor().set_fit_request(sample_weight=True)
        estimator.set_score_request(sample_weight=score)
        weights = {"sample_weight": data.weights}
        plain, batched = fit_both(estimator, GRID, data.X, data.y, fit=weights)
        assert_same_results(plain, batched)
        plain, batched = (
            search.score(data.X_new, data.y_new, sample_weight=data.weights[:11])
            if score
            else search.score(data.X_new, data.y_new)
            for search in (plain, batched)
        )
        assert_close(plain, batched)
