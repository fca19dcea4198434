"""The allow-list: the classes that a file may hold, and the attributes of each.

A new estimator is a line here; the tests of a stored model hold its attributes against
it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from skbayesnn import scoring
from skbayesnn._parameters import LARGEST_N_DRAWS
from skbayesnn._persistence import agreement, rules
from skbayesnn._persistence.kinds import Kind
from skbayesnn._persistence.rules import (
    ESTIMATOR,
    FITTED,
    FLOATS,
    FLOATS_1D,
    POSITIVE_COUNT,
    RECORD,
    RECORDS,
)
from skbayesnn._predictive.recalibration import QuantileMap
from skbayesnn._sklearn_compat import (
    OUTPUT_CONFIG,
    SCORER_TYPES,
    TRAINING_DIM,
    metrics_of,
    scorers_of_search,
)
from skbayesnn._stacking.summary import Summary
from skbayesnn.networks import NetworkDescription

_COLUMNS = {"feature_names_in_": rules.NAMES, "n_features_in_": POSITIVE_COUNT}
_AROUND = {**_COLUMNS, "estimator": ESTIMATOR, "random_state": rules.SEED}
_OUTPUT = {OUTPUT_CONFIG: rules.DICT}
_NETWORK = {
    "network_": rules.DICT,
    "parameters_": rules.dict_of(rules.floats(rules.NOT_NAN_OR_INF)),
    "seeds_": rules.SEEDS,
    "x_mean_": FLOATS_1D,
    "x_scale_": rules.POSITIVE_FLOATS_1D,
    "y_mean_": FLOATS_1D,
    "y_scale_": rules.POSITIVE_FLOATS_1D,
    "tau_": rules.SCALE,
    "dropout_": rules.RATE,
    "length_scale_": rules.SIZE,
    "weight_decay_": rules.SIZE,
    "optimizer_": rules.dict_of(rules.numbers(rules.NOT_NAN)),
    "history_": rules.dict_of(RECORDS),
    "loss_curve_": rules.list_of(RECORD),
    "n_iter_": rules.COUNT,
    "elbo_": RECORD,
    "prior_": rules.none_or(rules.list_of(rules.dict_of(FLOATS))),
    "row_noise_std_": rules.none_or(rules.SCALE),
    "n_epochs_seen_": rules.COUNT,
    "total_weight_": rules.POSITIVE_NUMBER,
    "n_features_in_": POSITIVE_COUNT,
}
# Parameters of networks, as `fit` checks them.
_SETTINGS = {
    "dropout": rules.one_or_each(rules.PROPER_SHARE),
    "learning_rate_init": rules.POSITIVE_NUMBER,
    "length_scale": rules.one_or_each(rules.NOT_NEGATIVE),
    "n_draws": rules.integer(1, LARGEST_N_DRAWS),
    "n_estimators": POSITIVE_COUNT,
    "n_training_draws": POSITIVE_COUNT,
    "network": rules.none_or(rules.of_type(NetworkDescription)),
    "random_state": rules.SEED,
    "tau": rules.one_or_each(rules.POSITIVE),
    "tol": rules.number(rules.NOT_NEGATIVE),
}
_OF_NETWORK = {
    **_COLUMNS,
    **_SETTINGS,
    "pruning_": rules.none_or(rules.DICT),
    "replay_": rules.dict_of(rules.either(rules.numbers(), rules.NUMBER)),
    # Files of the first versions lack these.
    "elbo_std_error_": RECORD,
    "tau_training_": rules.SCALE,
    "weight_decay_training_": rules.SIZE,
}
_AXES = rules.integer(1, 2)
_OF_NUMBERS = {"y_ndim_": _AXES}
_OF_CLASSES = {"classes_": rules.LABELS}
_DRAWS = rules.Values(
    f"from 1 to {LARGEST_N_DRAWS}", lambda v: (v >= 1) & (v <= LARGEST_N_DRAWS)
)
_PATH = {"taus_": rules.POSITIVE_FLOATS, "scores_": RECORDS, "best_score_": RECORD}
_MODELS = {"estimators_": rules.list_of(FITTED)}
_STACK = {
    **_MODELS,
    "n_draws_": rules.integers(_DRAWS),
    "weights_": rules.dict_of(rules.dict_of(RECORD)),
    "spread_factor_": rules.POSITIVE_FLOATS_1D,
    "summary_": rules.of_type(Summary),
    "oof_prediction_": RECORDS,
    "oof_log_density_": rules.RECORDS_1D,
    "fitted_to_sparse_": rules.none_or(rules.FLAG),
    "n_iter_": rules.COUNT,
}
_OF_STACK = {
    **_COLUMNS,
    "random_state": rules.SEED,
    # Stacks of earlier versions have none.
    "spread_bound_": rules.POSITIVE_NUMBER,
}
_LINEAR = {
    "columns_": rules.integers(ndim=1),
    "coef_": FLOATS,
    "intercept_": FLOATS,
    "x_mean_": FLOATS_1D,
    "x_scale_": rules.POSITIVE_FLOATS_1D,
    "total_weight_": rules.POSITIVE_NUMBER,
    "n_features_in_": POSITIVE_COUNT,
}
_OF_FOLDS = {
    "fold_estimators_": rules.list_of(rules.list_of(FITTED)),
    "fold_scores_": rules.list_of(rules.floats(rules.NOT_NEGATIVE)),
    "oof_std_": RECORDS,
}
_SEARCH = {
    "cv_results_": rules.DICT,
    "multimetric_": rules.FLAG,
    "n_splits_": POSITIVE_COUNT,
}
_OF_SEARCH = {
    **_AROUND,
    "best_estimator_": FITTED,
    "best_index_": rules.COUNT,
    "best_params_": rules.DICT,
    "best_score_": RECORD,
    "refit_time_": RECORD,
}
_SCORES = rules.either(
    rules.list_of(FLOATS_1D), rules.with_attribute("alphas", FLOATS_1D)
)
# Of crepes; without Mondrian categories, for which there is no parameter.
_CREPES = {
    "alphas": FLOATS_1D,
    "bins": rules.NONE,
    "binned_alphas": rules.NONE,
    "fitted": rules.FLAG,
    "fitted_": rules.FLAG,
    "mondrian": rules.FLAG,
    "normalized": rules.none_or(rules.FLAG),
    "seed": rules.NONE,
    "time_evaluate": rules.none_or(RECORD),
    "time_fit": rules.none_or(RECORD),
    "time_predict": rules.none_or(RECORD),
}
_SCALE = rules.none_or(rules.POSITIVE_FLOATS)
_SCALERS = {
    "MinMaxScaler": {
        "data_max_": FLOATS,
        "data_min_": FLOATS,
        "data_range_": FLOATS,
        "min_": FLOATS,
        "scale_": _SCALE,
    },
    "QuantileTransformer": {"quantiles_": rules.both(FLOATS, rules.SORTED)},
    "RobustScaler": {"center_": rules.none_or(FLOATS), "scale_": _SCALE},
    "StandardScaler": {
        "mean_": rules.none_or(FLOATS),
        "scale_": _SCALE,
        "var_": rules.none_or(rules.floats(rules.NOT_NEGATIVE)),
    },
}
_OF_SCALER = {
    "n_samples_seen_": rules.either(
        rules.number(rules.NOT_NEGATIVE), rules.numbers(rules.NOT_NEGATIVE)
    ),
    "n_quantiles_": POSITIVE_COUNT,
    "references_": rules.both(rules.SHARES_1D, rules.SORTED),
    "clip": rules.FLAG,
    "with_centering": rules.FLAG,
    "with_mean": rules.FLAG,
    "with_scaling": rules.FLAG,
    "with_std": rules.FLAG,
}
_SPLITTERS = (
    "GroupKFold",
    "GroupShuffleSplit",
    "KFold",
    "LeaveOneGroupOut",
    "LeaveOneOut",
    "ShuffleSplit",
    "StratifiedGroupKFold",
    "StratifiedKFold",
    "StratifiedShuffleSplit",
    "TimeSeriesSplit",
)


def _networks() -> Iterator[Kind]:
    """The single estimators, and those that find their tau."""
    for method in ("AnchoredEnsemble", "BBB", "MCDropout", "VariationalDropout"):
        for role, own in (("Regressor", _OF_NUMBERS), ("Classifier", _OF_CLASSES)):
            yield _network("skbayesnn", method + role, own)
            if method != "AnchoredEnsemble":
                own = {**own, **_PATH}
                yield _network("skbayesnn.model_selection", f"{method}{role}CV", own)
    yield _network("skbayesnn", "VariationalGPRegressor", _OF_NUMBERS)


def _network(module: str, name: str, own) -> Kind:
    fitted = {**_NETWORK, **own}
    return Kind(module, name, fitted, _OF_NETWORK, agreement.of_network)


def _stacks() -> Iterator[Kind]:
    regressor = Kind(
        "skbayesnn",
        "BayesianStackingRegressor",
        _STACK,
        {**_OF_STACK, **_OF_FOLDS},
        agreement.of_stack,
    )
    yield regressor
    yield replace(
        regressor,
        class_name="BayesianStackingClassifier",
        fitted={**_STACK, **_OF_CLASSES},
        others=_OF_STACK,
    )
    for role, own in (
        ("Regressor", {**_OF_NUMBERS, "noise_variance_": rules.POSITIVE_FLOATS_1D}),
        ("Classifier", _OF_CLASSES),
    ):
        yield Kind(
            "skbayesnn._stacking.linear",
            f"ShrunkLinear{role}",
            {**_LINEAR, **own},
            {
                **_COLUMNS,
                "n_draws": rules.integer(1, LARGEST_N_DRAWS),
                "random_state": rules.SEED,
            },
            agreement.of_linear_model,
        )
    said = {"log_density": RECORD, "error": RECORD, "others": rules.dict_of(RECORD)}
    module = "skbayesnn._stacking.summary"
    yield Kind(module, "Summary", others=said, has_state=False)


def _recalibration() -> Iterator[Kind]:
    yield Kind(
        "skbayesnn",
        "CalibratedUncertaintyRegressor",
        {"estimator_": FITTED, "scale_": rules.SCALE},
        {**_AROUND, "quantile_maps_": rules.list_of(rules.of_type(QuantileMap))},
        agreement.of_calibration,
    )
    yield Kind(
        "skbayesnn._predictive.recalibration",
        "QuantileMap",
        others={"level": rules.EDGES, "share": rules.EDGES},
        agrees=agreement.of_quantile_map,
        has_state=False,
    )


def _conformal() -> Iterator[Kind]:
    models = {"conformal_": _SCORES, "n_calibration_": POSITIVE_COUNT}
    yield Kind(
        "skbayesnn",
        "ConformalRegressor",
        {**_MODELS, **models},
        _AROUND,
        agreement.of_conformal,
    )
    yield Kind(
        "skbayesnn",
        "ConformalClassifier",
        {"estimator_": FITTED, **models, **_OF_CLASSES},
        _AROUND,
        agreement.of_conformal,
    )
    for name in ("ConformalRegressor", "ConformalClassifier"):
        yield Kind("crepes", name, _CREPES)


def _decisions() -> Iterator[Kind]:
    label, kind = rules.either(RECORD, rules.TEXT), rules.none_or(rules.TEXT)
    # Infinite ones accept all rows, or none.
    threshold = rules.number(rules.NOT_NAN)
    yield Kind(
        "skbayesnn",
        "Abstainer",
        {"estimator_": FITTED, "threshold_": threshold, "abstain_label_": label},
        {
            **_AROUND,
            **_OF_CLASSES,
            "coverage_": rules.number(rules.SHARE),
            "error_": RECORD,
            "kind": kind,
        },
        agreement.of_abstainer,
    )
    fitted = {
        **_MODELS,
        "held_out_": rules.list_of(rules.integers()),
        "offset_": rules.NUMBER,
        "uncertainty_": FLOATS_1D,
    }
    yield Kind(
        "skbayesnn.inspection",
        "DriftMonitor",
        fitted,
        {"kind": kind, "one_way_columns_": FLOATS, "random_state": rules.SEED},
        agreement.of_monitor,
    )


def _searches() -> Iterator[Kind]:
    derived = {"scorer_": lambda search: metrics_of(scorers_of_search(search)[0])}
    for name in ("BatchedGridSearchCV", "BatchedRandomizedSearchCV"):
        module = "skbayesnn.model_selection"
        yield Kind(
            module, name, _SEARCH, _OF_SEARCH, agreement.of_search, derived=derived
        )


def _descriptions() -> Iterator[Kind]:
    for name in ("MLP", "ConvNet", "RecurrentNet"):
        yield Kind("skbayesnn.networks", name)


def _transformers() -> Iterator[Kind]:
    flag = rules.FLAG
    of_columns = rules.list_of(rules.EDGES)
    edges = {"bin_edges_": of_columns, "n_bins_": rules.integers()}
    yield Kind(
        "skbayesnn.preprocessing",
        "PiecewiseLinearEncoder",
        edges | {"values_": of_columns, "n_features_in_": POSITIVE_COUNT},
        {**_COLUMNS, **_OUTPUT, "keep_columns": flag, "sparse_output": flag},
        agreement.of_encoder,
    )


def _of_scikit_learn() -> Iterator[Kind]:
    """Of attributes that are plain arrays; what is fitted with them calls nothing."""
    yield Kind(
        "sklearn.pipeline", "Pipeline", others=_OUTPUT, agrees=agreement.of_pipeline
    )
    yield Kind("sklearn.frozen", "FrozenEstimator", others={"estimator": FITTED})
    yield Kind(
        "sklearn.compose",
        "TransformedTargetRegressor",
        {"regressor_": FITTED, "transformer_": ESTIMATOR, TRAINING_DIM: _AXES},
        _COLUMNS,
    )
    functions = dict.fromkeys(("func", "inverse_func"), rules.none_or(rules.FUNCTION))
    yield Kind(
        "sklearn.preprocessing",
        "FunctionTransformer",
        others={**_COLUMNS, **_OUTPUT, **functions},
    )
    for name, fitted in _SCALERS.items():
        others = {**_COLUMNS, **_OUTPUT, **_OF_SCALER}
        yield Kind("sklearn.preprocessing", name, fitted, others, agreement.of_scaler)
    for name in _SPLITTERS:
        yield Kind("sklearn.model_selection", name, has_state=False)


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kinds in (
        _networks,
        _stacks,
        _recalibration,
        _conformal,
        _decisions,
        _searches,
        _descriptions,
        _transformers,
        _of_scikit_learn,
    )
    for kind in kinds()
}


# By name; of inputs and outputs that are arrays, of which nothing can go wrong.
FUNCTIONS: dict[str, Callable] = {
    f"numpy.{name}": getattr(np, name)
    for name in (
        "arcsinh",
        "cbrt",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log10",
        "log1p",
        "log2",
        "sinh",
        "sqrt",
        "square",
    )
}


def function_name(value) -> str | None:
    """The name of one of ``FUNCTIONS``; None for all else."""
    return next((name for name, one in FUNCTIONS.items() if one is value), None)


def trusted_names() -> list[str]:
    """Full names of the types of the list, and of scorers and what they are made of."""
    types = [kind.type for kind in KINDS.values() if kind.is_there]
    listed = [getattr(scoring, name) for name in scoring.__all__]
    scorers = [one.function for one in listed if isinstance(one, scoring.Scorer)]
    named = {*types, *scorers, scoring.Scorer, *SCORER_TYPES}
    return sorted(f"{one.__module__}.{one.__qualname__}" for one in named)


def kind_of(value) -> Kind | None:
    """Of an object of exactly one of the classes; None for all others."""
    kind = type(value)
    root = kind.__module__.partition(".")[0]
    name = kind.__name__ if root == "skbayesnn" else f"{root}.{kind.__name__}"
    found = KINDS.get(name)
    return found if found is not None and found.type is kind else None
