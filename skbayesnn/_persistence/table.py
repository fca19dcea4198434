"""The allow-list: the classes that a file may hold, and the attributes of each.

A new estimator is a line here; the tests of a stored model hold its attributes against
it.
"""

from collections.abc import Iterator
from dataclasses import replace

from skbayesnn._persistence import agreement, rules
from skbayesnn._persistence.kinds import Kind
from skbayesnn._persistence.rules import FITTED, FLOATS, FLOATS_1D, INTEGER, NUMBER
from skbayesnn._predictive.recalibration import QuantileMap
from skbayesnn._sklearn_compat import OUTPUT_CONFIG, metrics_of, scorers_of_search
from skbayesnn._stacking.summary import Summary
from skbayesnn.networks import NetworkDescription

_COLUMNS = {"feature_names_in_": rules.NAMES, "n_features_in_": INTEGER}
_AROUND = {**_COLUMNS, "estimator": rules.ESTIMATOR}
_OUTPUT = {OUTPUT_CONFIG: rules.DICT}
_NETWORK = {
    "network_": rules.DICT,
    "parameters_": rules.dict_of(FLOATS),
    "seeds_": rules.SEEDS,
    "x_mean_": FLOATS_1D,
    "x_scale_": FLOATS_1D,
    "y_mean_": FLOATS_1D,
    "y_scale_": FLOATS_1D,
    "tau_": rules.NUMBER_OR_FLOATS,
    "dropout_": rules.NUMBER_OR_FLOATS,
    "length_scale_": rules.NUMBER_OR_FLOATS,
    "weight_decay_": rules.NUMBER_OR_FLOATS,
    "optimizer_": rules.dict_of(rules.NUMBERS),
    "history_": rules.dict_of(FLOATS),
    "loss_curve_": rules.list_of(NUMBER),
    "n_iter_": INTEGER,
    "elbo_": NUMBER,
    "prior_": rules.none_or(rules.list_of(rules.dict_of(FLOATS))),
    "row_noise_std_": rules.none_or(rules.NUMBER_OR_FLOATS),
    "n_epochs_seen_": INTEGER,
    "total_weight_": NUMBER,
    "n_features_in_": INTEGER,
}
_OF_NETWORK = {
    **_COLUMNS,
    "network": rules.none_or(rules.of_type(NetworkDescription)),
    "pruning_": rules.none_or(rules.DICT),
    "replay_": rules.DICT,
    # Files of the first versions lack these.
    "elbo_std_error_": NUMBER,
    "tau_training_": rules.NUMBER_OR_FLOATS,
    "weight_decay_training_": rules.NUMBER_OR_FLOATS,
}
_OF_NUMBERS = {"y_ndim_": INTEGER}
_OF_CLASSES = {"classes_": rules.LABELS}
_PATH = {"taus_": FLOATS, "scores_": FLOATS, "best_score_": NUMBER}
_MODELS = {"estimators_": rules.list_of(FITTED)}
_STACK = {
    **_MODELS,
    "n_draws_": rules.INTEGERS_1D,
    "weights_": rules.dict_of(rules.dict_of(NUMBER)),
    "spread_factor_": FLOATS_1D,
    "summary_": rules.of_type(Summary),
    "oof_prediction_": FLOATS,
    "oof_log_density_": FLOATS_1D,
    "fitted_to_sparse_": rules.none_or(rules.FLAG),
    "n_iter_": INTEGER,
}
_OF_FOLDS = {
    "fold_estimators_": rules.list_of(rules.list_of(FITTED)),
    "fold_scores_": rules.list_of(FLOATS),
    "oof_std_": FLOATS,
}
_SEARCH = {
    "cv_results_": rules.DICT,
    "multimetric_": rules.FLAG,
    "n_splits_": INTEGER,
}
_OF_SEARCH = {
    **_AROUND,
    "best_estimator_": FITTED,
    "best_index_": INTEGER,
    "best_params_": rules.DICT,
    "best_score_": NUMBER,
    "refit_time_": NUMBER,
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
    "time_evaluate": rules.none_or(NUMBER),
    "time_fit": rules.none_or(NUMBER),
    "time_predict": rules.none_or(NUMBER),
}
_SCALERS = {
    "MinMaxScaler": ("data_max_", "data_min_", "data_range_", "min_", "scale_"),
    "QuantileTransformer": ("quantiles_",),
    "RobustScaler": ("center_", "scale_"),
    "StandardScaler": ("mean_", "scale_", "var_"),
}
_OF_SCALER = {
    "n_samples_seen_": rules.either(NUMBER, rules.NUMBERS),
    "n_quantiles_": INTEGER,
    "references_": FLOATS_1D,
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
        {**_COLUMNS, **_OF_FOLDS},
        agreement.of_stack,
    )
    yield regressor
    yield replace(
        regressor,
        class_name="BayesianStackingClassifier",
        fitted={**_STACK, **_OF_CLASSES},
        others=_COLUMNS,
    )
    said = {"log_density": NUMBER, "error": NUMBER, "others": rules.dict_of(NUMBER)}
    module = "skbayesnn._stacking.summary"
    yield Kind(module, "Summary", others=said, has_state=False)


def _recalibration() -> Iterator[Kind]:
    yield Kind(
        "skbayesnn",
        "CalibratedUncertaintyRegressor",
        {"estimator_": FITTED, "scale_": rules.NUMBER_OR_FLOATS},
        {**_AROUND, "quantile_maps_": rules.list_of(rules.of_type(QuantileMap))},
        agreement.of_calibration,
    )
    yield Kind(
        "skbayesnn._predictive.recalibration",
        "QuantileMap",
        others={"level": FLOATS_1D, "share": FLOATS_1D},
        agrees=agreement.of_quantile_map,
        has_state=False,
    )


def _conformal() -> Iterator[Kind]:
    models = {"conformal_": _SCORES, "n_calibration_": INTEGER}
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
    label, kind = rules.either(NUMBER, rules.TEXT), rules.none_or(rules.TEXT)
    yield Kind(
        "skbayesnn",
        "Abstainer",
        {"estimator_": FITTED, "threshold_": NUMBER, "abstain_label_": label},
        {**_AROUND, **_OF_CLASSES, "coverage_": NUMBER, "error_": NUMBER, "kind": kind},
    )
    fitted = {
        **_MODELS,
        "held_out_": rules.list_of(rules.INTEGERS_1D),
        "offset_": NUMBER,
        "uncertainty_": FLOATS_1D,
    }
    yield Kind(
        "skbayesnn.inspection",
        "DriftMonitor",
        fitted,
        {"kind": kind},
        agreement.of_monitor,
    )


def _searches() -> Iterator[Kind]:
    derived = {"scorer_": lambda search: metrics_of(scorers_of_search(search)[0])}
    for name in ("BatchedGridSearchCV", "BatchedRandomizedSearchCV"):
        module = "skbayesnn.model_selection"
        yield Kind(module, name, _SEARCH, _OF_SEARCH, derived=derived)


def _descriptions() -> Iterator[Kind]:
    for name in ("MLP", "ConvNet", "RecurrentNet"):
        yield Kind("skbayesnn.networks", name)


def _transformers() -> Iterator[Kind]:
    flag = rules.FLAG
    of_columns = rules.list_of(FLOATS_1D)
    edges = {"bin_edges_": of_columns, "n_bins_": rules.INTEGERS_1D}
    yield Kind(
        "skbayesnn.preprocessing",
        "PiecewiseLinearEncoder",
        edges | {"values_": of_columns, "n_features_in_": INTEGER},
        {**_COLUMNS, **_OUTPUT, "keep_columns": flag, "sparse_output": flag},
        agreement.of_encoder,
    )


def _of_scikit_learn() -> Iterator[Kind]:
    """Of attributes that are plain arrays; what is fitted with them calls nothing."""
    yield Kind(
        "sklearn.pipeline", "Pipeline", others=_OUTPUT, agrees=agreement.of_pipeline
    )
    yield Kind("sklearn.frozen", "FrozenEstimator", others={"estimator": FITTED})
    for name, names in _SCALERS.items():
        fitted = {one: rules.none_or(FLOATS) for one in names}
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


def kind_of(value) -> Kind | None:
    """Of an object of exactly one of the classes; None for all others."""
    kind = type(value)
    root = kind.__module__.partition(".")[0]
    name = kind.__name__ if root == "skbayesnn" else f"{root}.{kind.__name__}"
    found = KINDS.get(name)
    return found if found is not None and found.type is kind else None
