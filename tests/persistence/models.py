"""A small model of every kind that can be saved, by name."""

from types import SimpleNamespace

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import skbayesnn
from skbayesnn import (
    Abstainer,
    BayesianStackingClassifier,
    BayesianStackingRegressor,
    CalibratedUncertaintyRegressor,
    ConformalClassifier,
    ConformalRegressor,
    LaplaceClassifier,
    LaplaceRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
)
from skbayesnn._stacking.boosting import BoostingClassifier
from skbayesnn._stacking.forest import ForestClassifier, ForestRegressor
from skbayesnn._stacking.linear import (
    ShrunkLinearClassifier,
    ShrunkLinearRegressor,
)
from skbayesnn.decision import DecisionMaker, newsvendor, quadratic
from skbayesnn.inspection import DriftMonitor
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)
from skbayesnn.preprocessing import PiecewiseLinearEncoder, TableEncoder
from skbayesnn.scoring import log_density_scorer, neg_crps_scorer
from tests.helpers.frames import mixed_frame, new_frame
from tests.helpers.posteriors import CASES

SIZE = {
    "hidden_layer_sizes": (5,),
    "max_iter": 3,
    "n_draws": 7,
    "device": "cpu",
}


def sized(kind, seed, **parameters):
    """An estimator that is fitted in milliseconds."""
    wanted = {**SIZE, "random_state": seed, "taus": 2, "cv": 2} | parameters
    defaults = kind().get_params()
    return kind(**{name: value for name, value in wanted.items() if name in defaults})


def _neighbours(kind, seed, **parameters):
    return kind(
        **{"hidden_size": 5, "embedding_size": 2, "n_draws": 2, "max_iter": 3},
        random_state=seed,
        **parameters,
    )


def _searches(seed):
    network = sized(MCDropoutRegressor, seed)
    grid = {"tau": [1.0, 2.0], "hidden_layer_sizes": [(3,), (4, 2)]}
    several = {"density": log_density_scorer, "crps": neg_crps_scorer, "R2": "r2"}
    return {
        "grid search": BatchedGridSearchCV(network, grid, cv=2),
        "grid search, without refit": BatchedGridSearchCV(
            network, {"tau": [1.0]}, cv=KFold(2), refit=False
        ),
        "randomized search": BatchedRandomizedSearchCV(
            make_pipeline(StandardScaler(), network),
            {"mcdropoutregressor__tau": [1.0, 2.0, 3.0]},
            n_iter=2,
            scoring=several,
            refit="density",
            cv=ShuffleSplit(2, random_state=seed),
            random_state=np.random.RandomState(seed),
        ),
    }


def regressors(seed):
    """Regressors of one target."""
    network = sized(MCDropoutRegressor, seed)
    # Its draws differ for every seed.
    dropping = sized(MCDropoutRegressor, seed, dropout=0.4)
    steps = PiecewiseLinearEncoder(), FrozenEstimator(network)
    return {
        "gp": sized(skbayesnn.VariationalGPRegressor, seed),
        "laplace": LaplaceRegressor(
            (3,), likelihood="heteroscedastic", n_draws=4, random_state=seed
        ),
        "laplace of a last layer": LaplaceRegressor(
            (4, 3), posterior="last_layer", n_draws=4, random_state=seed
        ),
        "neighbours": _neighbours(skbayesnn.NeighbourRegressor, seed, n_bins=3),
        "scaled": CalibratedUncertaintyRegressor(network, cv=2),
        "isotonic": CalibratedUncertaintyRegressor(
            make_pipeline(RobustScaler(), network), method="isotonic", cv=KFold(2)
        ),
        "split conformal": ConformalRegressor(network, random_state=seed),
        "cv+": ConformalRegressor(network, method="cv+", cv=2),
        "abstainer": Abstainer(
            network, target_error=0.9, tolerance=2.0, abstain_label=-9.0, cv=2
        ),
        "quadratic": DecisionMaker(network, quadratic),
        "order": DecisionMaker(network, newsvendor(2.0, 1.0)),
        "monitor": DriftMonitor(dropping, false_alarm_rate=0.2, cv=2),
        "stack": BayesianStackingRegressor(max_iter=2, cv=2, random_state=seed),
        "stack of a pool": BayesianStackingRegressor(
            [("one", network, {"tau": [1.0, 2.0]})], cv=2, random_state=seed
        ),
        "linear": ShrunkLinearRegressor("adaptive_lasso", n_draws=3),
        "forest": ForestRegressor(n_trees=3, random_state=seed),
        "leaves of a forest": ForestRegressor(None, n_trees=2, random_state=seed),
        "encoder": PiecewiseLinearEncoder(n_bins=3, keep_columns=True, n_values=2),
        "pipeline": make_pipeline(
            *steps[:1],
            MinMaxScaler(),
            QuantileTransformer(n_quantiles=5),
            network,
        ),
        "target transform": TransformedTargetRegressor(
            make_pipeline(FunctionTransformer(np.cbrt), network),
            func=np.arcsinh,
            inverse_func=np.sinh,
        ),
        **_searches(seed),
    }


def classifiers(seed):
    """Classifiers with labels that are strings."""
    network = sized(MCDropoutClassifier, seed, class_weight={"low": 2.0})
    return {
        "conformal": ConformalClassifier(network, random_state=seed),
        "neighbours of classes": _neighbours(
            skbayesnn.NeighbourClassifier, seed, n_bins=0
        ),
        "laplace of classes": LaplaceClassifier((3,), n_draws=4, random_state=seed),
        "abstaining": Abstainer(network, target_error=0.9, confidence=None, cv=2),
        "action": DecisionMaker(
            network, [[0.0, 2.0, 1.0]] + [[3.0, 0.0, 1.0]] * 2, actions=["a", "b", "c"]
        ),
        "monitor of classes": DriftMonitor(network, false_alarm_rate=0.2, cv=2),
        "boosting": BoostingClassifier(max_iter=3, random_state=seed),
        "linear of classes": ShrunkLinearClassifier("lasso", 0.3, n_draws=3),
        "forest of classes": ForestClassifier("bagging", 3, random_state=seed),
        "stack of classes": BayesianStackingClassifier(
            max_iter=2, cv=2, random_state=seed
        ),
    }


def _likelihoods(seed):
    """Networks with every likelihood, with the name of their target."""
    numbers = {
        "heteroscedastic": "y",
        "student_t": "Y",
        "poisson": "counts",
        "negative_binomial": "counts",
        "mixture": "Y",
        "gaussian": "Y",
    }
    actual = {
        name: (sized(MCDropoutRegressor, seed, likelihood=name), target)
        for name, target in numbers.items()
    }
    network = sized(MCDropoutRegressor, seed, tau=2.0, n_estimators=2)
    ordinal = sized(MCDropoutClassifier, seed, likelihood="ordinal")
    learned = sized(MCDropoutRegressor, seed, dropout="auto", likelihood="student_t")
    actual |= {
        f"intervals, {name}": (sized(MCDropoutRegressor, seed, **settings), target)
        for name, settings, target in [
            ("equal noise", {"likelihood": "gaussian"}, "intervals"),
            (
                "point mass",
                {"likelihood": "heteroscedastic", "point_mass": 0.0},
                "floored",
            ),
            ("scale", {"target_scale": "logit", "y_bounds": (0, 9)}, "floored"),
        ]
    }
    return actual | {
        "neighbours of two targets": (
            _neighbours(skbayesnn.NeighbourRegressor, seed),
            "Y",
        ),
        "tau given": (network, "y"),
        "ordinal": (ordinal, "codes"),
        "learned rates": (learned, "y"),
    }


def of_frames(seed):
    """Models that are fitted to a frame, with the name of their target."""
    network = sized(MCDropoutRegressor, seed)
    classifier = sized(MCDropoutClassifier, seed, categorical_features=["grade"])
    stack = BayesianStackingRegressor(max_iter=2, cv=2, random_state=seed)
    classes = BayesianStackingClassifier(max_iter=2, cv=2, random_state=seed)
    models = {
        "network": network,
        "stack": stack,
        "gp": sized(skbayesnn.VariationalGPRegressor, seed),
        "laplace": LaplaceRegressor((3,), n_draws=4, random_state=seed),
        "neighbours": _neighbours(skbayesnn.NeighbourRegressor, seed),
        "grid search": BatchedGridSearchCV(network, {"tau": [1.0, 2.0]}, cv=2),
        "scaled": CalibratedUncertaintyRegressor(network, cv=2),
        "split conformal": ConformalRegressor(
            network, groups="grade", random_state=seed
        ),
        "monitor": DriftMonitor(network, false_alarm_rate=0.2, cv=2),
        "encoder": TableEncoder(
            np.array(["grade", "flag"], dtype=object), target_type="continuous"
        ),
        "pipeline": make_pipeline(
            TableEncoder(target_type="continuous"), StandardScaler(), network
        ),
    }
    return {
        **{f"{name} of a frame": (model, "y") for name, model in models.items()},
        "classes of a frame": (classifier, "labels"),
        "stack of classes of a frame": (classes, "labels"),
    }


def every_kind(seed):
    """Unfitted models and the names of their targets in `data`, by name."""
    size = {name: v for name, v in SIZE.items() if name != "hidden_layer_sizes"}
    posteriors = {}
    for case in CASES:
        two_layers = {"hidden_layer_sizes": (4, 3), "random_state": seed}
        target = "labels" if case.classifies else "y"
        posteriors[str(case)] = case.model(**two_layers, **size), target
    return {
        **posteriors,
        **_likelihoods(seed),
        **{name: (model, "y") for name, model in regressors(seed).items()},
        **{name: (model, "labels") for name, model in classifiers(seed).items()},
        **of_frames(seed),
    }


def rows_of(name, data):
    """Training rows and new rows of a model of `every_kind`."""
    if name.endswith("of a frame"):
        return data.frame, data.frame_new
    return data.X, data.X_new


def made_up(seed):
    """X (41, 4), y (41,), Y (41, 2), codes and labels of 3 kinds, counts, X_new.

    Also y with a floor, and with intervals.

    Also frames with as many rows as X and X_new.
    """
    random = np.random.default_rng([seed, 21])
    X = random.standard_normal((41, 4))
    y = X[:, 0] + 0.3 * random.standard_normal(41)
    codes = np.argsort(np.argsort(y)) * 3 // 41
    return SimpleNamespace(
        X=X,
        y=y,
        Y=np.stack([y, 30 * X[:, 1] - y], axis=1),
        codes=codes,
        labels=np.array(["low", "mid", "top"])[codes],
        counts=random.poisson(np.exp(0.3 * y)).astype(float),
        floored=y.clip(0),
        intervals=skbayesnn.interval_target(y, np.where(y > 1, np.inf, y)),
        X_new=random.standard_normal((11, 4)),
        frame=mixed_frame(41, random),
        frame_new=new_frame(11, random),
    )
