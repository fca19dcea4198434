"""Classes that a file may contain, with the rules for their attributes.

A new estimator is one entry of the table. Tests compare the table with the attributes
of fitted estimators.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from skbayesnn import scoring
from skbayesnn._data.column_encoding import Column
from skbayesnn._data.columns import KINDS
from skbayesnn._data.level_counts import LevelCounts
from skbayesnn._data.table_encoder import TableEncoder
from skbayesnn._persistence import consistency
from skbayesnn._persistence.rules import (
    BOOLS_1D,
    BOUNDS,
    COLUMN_CHOICE,
    COLUMN_NAME,
    COUNT,
    DICT,
    EDGES,
    ESTIMATOR,
    FINITE,
    FITTED,
    FLAG,
    FLOATS,
    FLOATS_1D,
    FUNCTION,
    LABELS,
    NAMES,
    NONE,
    NOT_NAN,
    NOT_NAN_OR_INF,
    NOT_NEGATIVE,
    NUMBER,
    POSITIONS,
    POSITIVE,
    POSITIVE_COUNT,
    POSITIVE_FLOATS,
    POSITIVE_FLOATS_1D,
    POSITIVE_NUMBER,
    PROPER_SHARE,
    RATE,
    RECORD,
    RECORDS,
    RECORDS_1D,
    SCALE,
    SEED,
    SEEDS,
    SHARE,
    SHARES_1D,
    SIZE,
    SORTED,
    TEXT,
    TEXTS,
    TIME_ZONE,
    Rule,
    Rules,
    Values,
    both,
    dict_of,
    either,
    floats,
    integer,
    integers,
    list_of,
    none_or,
    number,
    numbers,
    of_type,
    one_of,
    one_or_each,
    with_attribute,
)
from skbayesnn._predictive.recalibration import QuantileMap
from skbayesnn._runtime import imported
from skbayesnn._sklearn_compat import (
    METADATA_REQUEST,
    OUTPUT_CONFIG,
    SCORER_TYPES,
    STATE_VERSION,
    TRAINING_DIM,
    metrics_of,
    scorers_of_search,
)
from skbayesnn._stacking.summary import Summary
from skbayesnn._validation import MAX_N_DRAWS
from skbayesnn.networks import NetworkDescription
from skbayesnn.preprocessing import PiecewiseLinearEncoder

# ---- entries of the table

T = TypeVar("T")
# Attributes that a file does not contain, or stores elsewhere.
_NOT_KEPT = {"_unfinished", STATE_VERSION, METADATA_REQUEST}


def checked(value: Any, required_type: type[T]) -> T:
    """Return ``value`` if it is an instance of a type.

    Raises
    ------
    ValueError
    """
    if not isinstance(value, required_type):
        raise ValueError(
            f"a value must be of type {required_type.__name__}; got {value!r}."
        )
    return value


@dataclass(frozen=True)
class StoredClass:
    """A class, the attributes of its fitted objects, and their consistency.

    Parameters
    ----------
    module, class_name : str
        Import path for users.
    fitted : rules by name
        Attributes of all fitted objects.
    others : rules by name
        Optional attributes, and parameters with a rule.
    agrees : callable
        Raises an error if attributes are not consistent.
    derived : dict of str to callable
        Attributes that are computed from the others, and are not in files.
    has_state : bool
        Whether objects have attributes other than their parameters.
    """

    module: str
    class_name: str
    fitted: Rules = field(default_factory=dict)
    others: Rules = field(default_factory=dict)
    agrees: Callable[[Any], None] | None = None
    derived: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    has_state: bool = True

    @property
    def name(self) -> str:
        """Name in files, with the package unless it is skbayesnn."""
        root = self.module.partition(".")[0]
        return self.class_name if root == "skbayesnn" else f"{root}.{self.class_name}"

    @cached_property
    def type(self) -> Any:
        """The class; imports only modules in the table of this file."""
        return getattr(imported(self.module), self.class_name)

    @property
    def is_installed(self) -> bool:
        """Whether its package is installed."""
        return find_spec(self.module.partition(".")[0]) is not None

    @cached_property
    def params(self) -> tuple[str, ...]:
        """Parameters of the constructor, which only stores them."""
        return tuple(signature(self.type).parameters)

    def may_have(self, name: str) -> bool:
        """Whether a fitted object may have an attribute."""
        return self.has_state and (name in self.fitted or name in self.others)

    def kept(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of a state that a file contains, without the parameters."""
        dropped = {*self.params, *self.derived, *_NOT_KEPT}
        return {name: value for name, value in state.items() if name not in dropped}

    def fill(self, model, state: dict[str, Any], sklearn_version: str) -> None:
        """Set the fitted attributes of a constructed object, as unpickling does."""
        missing = self.fitted.keys() - state.keys()
        if missing:
            raise ValueError(f"{self.name} has no attribute {min(missing)!r}.")
        if self.module.startswith("sklearn."):
            state = state | {STATE_VERSION: sklearn_version}
        if hasattr(model, "__setstate__"):
            model.__setstate__(vars(model) | state)
        else:
            vars(model).update(state)
        for name, compute in self.derived.items():
            setattr(model, name, compute(model))

    def check(self, model) -> None:
        """Raise if an attribute is unknown, breaks its rule, or is inconsistent.

        Raises
        ------
        ValueError
            Or any error that a network of the wrong shapes raises.
        """
        state = model.__getstate__() or {}
        unknown = [
            n for n in self.kept(state) if self.has_state and not self.may_have(n)
        ]
        if unknown:
            raise ValueError(f"{self.name} has no {unknown[0]!r}.")
        for name, rule in {**self.fitted, **self.others}.items():
            value = state.get(name, rule)
            if value is not rule and not rule.holds(value):
                raise ValueError(
                    f"`{name}` of {self.name} must be {rule.what}; got {value!r:.200}."
                )
        if self.agrees is not None:
            self.agrees(model)


# ---- table of all classes

_COLUMNS = {"feature_names_in_": NAMES, "n_features_in_": POSITIVE_COUNT}
_META_ESTIMATOR = {**_COLUMNS, "estimator": ESTIMATOR, "random_state": SEED}
_OUTPUT = {OUTPUT_CONFIG: DICT}
_TABLE = none_or(of_type(TableEncoder))
_NETWORK = {
    "elbo_std_error_": RECORD,
    "engine_": TEXT,
    "n_processes_": POSITIVE_COUNT,
    "table_": _TABLE,
    "tau_training_": SCALE,
    "weight_decay_training_": SIZE,
    "network_": DICT,
    "parameters_": dict_of(floats(NOT_NAN_OR_INF)),
    "seeds_": SEEDS,
    "x_mean_": FLOATS_1D,
    "x_scale_": POSITIVE_FLOATS_1D,
    "y_mean_": FLOATS_1D,
    "y_scale_": POSITIVE_FLOATS_1D,
    "tau_": SCALE,
    "dropout_": RATE,
    "length_scale_": SIZE,
    "weight_decay_": SIZE,
    "optimizer_": dict_of(numbers(NOT_NAN)),
    "history_": dict_of(RECORDS),
    "loss_curve_": list_of(RECORD),
    "n_iter_": COUNT,
    "elbo_": RECORD,
    "prior_": none_or(list_of(dict_of(FLOATS))),
    "row_noise_std_": none_or(SCALE),
    "n_epochs_seen_": COUNT,
    "total_weight_": POSITIVE_NUMBER,
    "n_features_in_": POSITIVE_COUNT,
}
# Parameters of networks that predictions use, with the rules of `fit`; see
# tests/persistence/test_parameter_rules.py.
NETWORK_SETTINGS = {
    "categorical_features": COLUMN_CHOICE,
    "dropout": one_or_each(PROPER_SHARE),
    "learning_rate_init": POSITIVE_NUMBER,
    "length_scale": one_or_each(NOT_NEGATIVE),
    "n_draws": integer(1, MAX_N_DRAWS),
    "n_estimators": POSITIVE_COUNT,
    "n_training_draws": POSITIVE_COUNT,
    "network": none_or(of_type(NetworkDescription)),
    "random_state": SEED,
    "tau": one_or_each(POSITIVE),
    "tol": number(NOT_NEGATIVE),
}
_NETWORK_OPTIONAL = {
    **_COLUMNS,
    **NETWORK_SETTINGS,
    "pruning_": none_or(DICT),
    "replay_": dict_of(either(numbers(), NUMBER)),
    # Of a fit that is not finished; see consistency.check_network.
    "unfinished_": DICT,
}
_AXES = integer(1, 2)
_REGRESSOR = {"y_ndim_": _AXES}
_CLASSIFIER = {"classes_": LABELS}
_DRAWS = Values(f"from 1 to {MAX_N_DRAWS}", lambda v: (v >= 1) & (v <= MAX_N_DRAWS))
_MODELS = {"estimators_": list_of(FITTED)}
_STACK = {
    **_MODELS,
    "n_draws_": integers(_DRAWS),
    "weights_": dict_of(dict_of(RECORD)),
    "spread_factor_": POSITIVE_FLOATS_1D,
    "table_": _TABLE,
    "fold_tables_": none_or(list_of(of_type(TableEncoder))),
    "on_frame_": none_or(list_of(FLAG)),
    "summary_": of_type(Summary),
    "oof_prediction_": RECORDS,
    "oof_log_density_": RECORDS_1D,
    "fitted_to_sparse_": none_or(FLAG),
    "n_iter_": COUNT,
}
_STACK_OPTIONAL = {
    **_COLUMNS,
    "random_state": SEED,
    "categorical_features": COLUMN_CHOICE,
    "sample_rows_": integers(ndim=1),
}
_LINEAR = {
    "columns_": integers(ndim=1),
    "coef_": FLOATS,
    "intercept_": FLOATS,
    "x_mean_": FLOATS_1D,
    "x_scale_": POSITIVE_FLOATS_1D,
    "total_weight_": POSITIVE_NUMBER,
    "n_features_in_": POSITIVE_COUNT,
}
_NEIGHBOURS = {
    "X_train_": FLOATS,
    "weights_train_": POSITIVE_FLOATS_1D,
    "parameters_": dict_of(FLOATS),
    "seeds_": SEEDS,
    "dropout_": floats(PROPER_SHARE, ndim=1),
    "length_scale_": SIZE,
    "weight_decay_": SIZE,
    "loss_curve_": list_of(RECORD),
    "n_iter_": COUNT,
    "total_weight_": POSITIVE_NUMBER,
    "x_mean_": FLOATS_1D,
    "x_scale_": POSITIVE_FLOATS_1D,
    "encoder_": none_or(of_type(PiecewiseLinearEncoder)),
    "table_": _TABLE,
    "n_features_in_": POSITIVE_COUNT,
}
# Predictions use these parameters.
_NEIGHBOURS_OPTIONAL = {
    **_COLUMNS,
    "categorical_features": COLUMN_CHOICE,
    "dtype": one_of("float32", "float64"),
    "n_draws": integer(1, MAX_N_DRAWS),
    "random_state": SEED,
}
_FOLDS_OPTIONAL = {
    "fold_estimators_": list_of(list_of(FITTED)),
    "fold_scores_": list_of(floats(NOT_NEGATIVE)),
    "oof_std_": RECORDS,
}
_SEARCH = {
    "cv_results_": DICT,
    "multimetric_": FLAG,
    "n_splits_": POSITIVE_COUNT,
}
_SEARCH_OPTIONAL = {
    **_META_ESTIMATOR,
    "best_estimator_": FITTED,
    "best_index_": COUNT,
    "best_params_": DICT,
    "best_score_": RECORD,
    "refit_time_": RECORD,
}
_SCORES = either(list_of(FLOATS_1D), with_attribute("alphas", FLOATS_1D))
# Attributes of crepes' objects, without Mondrian categories, which are not supported.
_CREPES = {
    "alphas": FLOATS_1D,
    "bins": NONE,
    "binned_alphas": NONE,
    "fitted": FLAG,
    "fitted_": FLAG,
    "mondrian": FLAG,
    "normalized": none_or(FLAG),
    "seed": NONE,
    "time_evaluate": none_or(RECORD),
    "time_fit": none_or(RECORD),
    "time_predict": none_or(RECORD),
}
_SCALE = none_or(POSITIVE_FLOATS)
_SCALERS = {
    "MinMaxScaler": {
        "data_max_": FLOATS,
        "data_min_": FLOATS,
        "data_range_": FLOATS,
        "min_": FLOATS,
        "scale_": _SCALE,
    },
    "QuantileTransformer": {"quantiles_": both(FLOATS, SORTED)},
    "RobustScaler": {"center_": none_or(FLOATS), "scale_": _SCALE},
    "StandardScaler": {
        "mean_": none_or(FLOATS),
        "scale_": _SCALE,
        "var_": none_or(floats(NOT_NEGATIVE)),
    },
}
_SCALER_OPTIONAL = {
    "n_samples_seen_": either(number(NOT_NEGATIVE), numbers(NOT_NEGATIVE)),
    "n_quantiles_": POSITIVE_COUNT,
    "references_": both(SHARES_1D, SORTED),
    "clip": FLAG,
    "with_centering": FLAG,
    "with_mean": FLAG,
    "with_scaling": FLAG,
    "with_std": FLAG,
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


def _of_entry(name: str) -> Rule:
    """Rule for an instance of a class in the table, without an import of the class."""
    return Rule(f"a {name}", lambda v: getattr(stored_class_of(v), "name", "") == name)


def _networks() -> Iterator[StoredClass]:
    """The single estimators."""
    roles = ("Regressor", _REGRESSOR), ("Classifier", _CLASSIFIER)
    for method in ("AnchoredEnsemble", "BBB", "MCDropout", "VariationalDropout"):
        for role, rules in roles:
            yield _network(method + role, rules)
    yield _network("VariationalGPRegressor", _REGRESSOR)


def _neighbours() -> Iterator[StoredClass]:
    targets = {
        "y_train_": FLOATS,
        "y_mean_": FLOATS_1D,
        "y_scale_": POSITIVE_FLOATS_1D,
        "y_ndim_": _AXES,
    }
    classes = {"y_train_": both(integers(), SORTED), **_CLASSIFIER}
    for role, rules in (("Regressor", targets), ("Classifier", classes)):
        yield StoredClass(
            "skbayesnn",
            f"Neighbour{role}",
            {**_NEIGHBOURS, **rules},
            _NEIGHBOURS_OPTIONAL,
            agrees=consistency.check_neighbours,
        )


def _network(name: str, rules: Rules) -> StoredClass:
    return StoredClass(
        "skbayesnn",
        name,
        {**_NETWORK, **rules},
        _NETWORK_OPTIONAL,
        consistency.check_network,
    )


def _stacks() -> Iterator[StoredClass]:
    regressor = StoredClass(
        "skbayesnn",
        "BayesianStackingRegressor",
        {**_STACK, "largest_epistemic_": POSITIVE_FLOATS_1D},
        {
            **_STACK_OPTIONAL,
            **_FOLDS_OPTIONAL,
            "weights": one_of("log_density", "crps"),
        },
        consistency.check_stack,
    )
    yield regressor
    yield replace(
        regressor,
        class_name="BayesianStackingClassifier",
        fitted={**_STACK, **_CLASSIFIER},
        others=_STACK_OPTIONAL,
    )
    for role, rules in (
        ("Regressor", {**_REGRESSOR, "noise_variance_": POSITIVE_FLOATS_1D}),
        ("Classifier", _CLASSIFIER),
    ):
        yield StoredClass(
            "skbayesnn._stacking.linear",
            f"ShrunkLinear{role}",
            {**_LINEAR, **rules},
            {
                **_COLUMNS,
                "n_draws": integer(1, MAX_N_DRAWS),
                "random_state": SEED,
                "table_": NONE,
            },
            agrees=consistency.check_linear_model,
        )
    of_foreign_model = {
        "estimator": ESTIMATOR,
        "feature_names": none_or(list_of(TEXT)),
        "n_features_in_": POSITIVE_COUNT,
        "x_mean_": FLOATS_1D,
        "x_scale_": POSITIVE_FLOATS_1D,
        "total_weight_": POSITIVE_NUMBER,
    }
    yield StoredClass(
        "skbayesnn._stacking.foreign",
        "ForeignQuantileRegressor",
        {
            "estimators_": list_of(ESTIMATOR),
            "levels_": both(FLOATS_1D, SORTED),
            "least_scale_": POSITIVE_FLOATS_1D,
            "spread_factor_": POSITIVE_FLOATS_1D,
            **_REGRESSOR,
        },
        of_foreign_model,
        agrees=consistency.check_foreign_model,
    )
    noise = {
        "noise_factor_": floats(NOT_NEGATIVE, ndim=1),
        "noise_edges_": floats(NOT_NAN),
        "noise_variances_": POSITIVE_FLOATS,
    }
    for role, rules in (
        ("Regressor", {**_REGRESSOR, **noise}),
        ("Classifier", _CLASSIFIER),
    ):
        yield StoredClass(
            "skbayesnn._stacking.foreign",
            f"Foreign{role}",
            # scikit-learn does not recognise whether some are fitted, as NGBoost.
            {"estimator_": ESTIMATOR, **rules},
            of_foreign_model,
            agrees=consistency.check_foreign_model,
        )
    trees = {
        "roots_": integers(ndim=1),
        "feature_": integers(FINITE, ndim=1),
        "threshold_": FLOATS_1D,
        "child_": integers(ndim=1),
        "x_mean_": FLOATS_1D,
        "x_scale_": POSITIVE_FLOATS_1D,
        "total_weight_": POSITIVE_NUMBER,
        "n_features_in_": POSITIVE_COUNT,
    }
    yield StoredClass(
        "skbayesnn._stacking.boosting",
        "BoostingClassifier",
        {
            **trees,
            "leaf_value_": FLOATS_1D,
            "baseline_": FLOATS_1D,
            **_CLASSIFIER,
        },
        {
            **_COLUMNS,
            "learning_rate": POSITIVE_NUMBER,
            "max_iter": POSITIVE_COUNT,
            "random_state": SEED,
            "table_": NONE,
        },
        agrees=consistency.check_boosting,
    )
    yield StoredClass(
        "skbayesnn._stacking.forest",
        "ForestRegressor",
        {
            **trees,
            "is_wide_": BOOLS_1D,
            "leaf_mean_": FLOATS,
            "leaf_variance_": POSITIVE_FLOATS,
            "leaf_overlap_": floats(SHARE),
            "y_mean_": FLOATS_1D,
            "y_scale_": POSITIVE_FLOATS_1D,
            **_REGRESSOR,
        },
        {
            **_COLUMNS,
            "width": none_or(POSITIVE_NUMBER),
            "n_trees": POSITIVE_COUNT,
            "random_state": SEED,
            "table_": NONE,
        },
        agrees=consistency.check_forest,
    )
    scores = {"log_density": RECORD, "error": RECORD, "others": dict_of(RECORD)}
    module = "skbayesnn._stacking.summary"
    yield StoredClass(module, "Summary", others=scores, has_state=False)


def _recalibration() -> Iterator[StoredClass]:
    yield StoredClass(
        "skbayesnn",
        "CalibratedUncertaintyRegressor",
        {"estimator_": FITTED, "scale_": SCALE},
        {**_META_ESTIMATOR, "quantile_maps_": list_of(of_type(QuantileMap))},
        agrees=consistency.check_calibration,
    )
    yield StoredClass(
        "skbayesnn._predictive.recalibration",
        "QuantileMap",
        others={"level": EDGES, "share": EDGES},
        agrees=consistency.check_quantile_map,
        has_state=False,
    )


def _conformal() -> Iterator[StoredClass]:
    models = {"conformal_": _SCORES, "n_calibration_": POSITIVE_COUNT}
    yield StoredClass(
        "skbayesnn",
        "ConformalRegressor",
        {**_MODELS, **models},
        _META_ESTIMATOR,
        agrees=consistency.check_conformal,
    )
    yield StoredClass(
        "skbayesnn",
        "ConformalClassifier",
        {"estimator_": FITTED, **models, **_CLASSIFIER},
        _META_ESTIMATOR,
        agrees=consistency.check_conformal,
    )
    for name in ("ConformalRegressor", "ConformalClassifier"):
        yield StoredClass("crepes", name, _CREPES)


def _decisions() -> Iterator[StoredClass]:
    label, kind = either(RECORD, TEXT), none_or(TEXT)
    # An infinite threshold accepts all rows, or none.
    threshold = number(NOT_NAN)
    yield StoredClass(
        "skbayesnn",
        "Abstainer",
        {"estimator_": FITTED, "threshold_": threshold, "abstain_label_": label},
        {
            **_META_ESTIMATOR,
            **_CLASSIFIER,
            "coverage_": number(SHARE),
            "error_": RECORD,
            "error_bound_": RECORD,
            "kind": kind,
            "tolerance": none_or(number(NOT_NEGATIVE)),
        },
        agrees=consistency.check_abstainer,
    )
    fitted = {
        **_MODELS,
        "held_out_": list_of(integers()),
        "offset_": NUMBER,
        "training_columns_": list_of(_of_entry("TrainingColumn")),
        "uncertainty_": FLOATS_1D,
    }
    yield StoredClass(
        "skbayesnn.inspection",
        "DriftMonitor",
        fitted,
        {"kind": kind, "random_state": SEED},
        agrees=consistency.check_monitor,
    )
    yield StoredClass(
        "skbayesnn.inspection._columns",
        "TrainingColumn",
        others={
            "name": COLUMN_NAME,
            "kind": one_of(*KINDS, "other"),
            "n_rows": POSITIVE_COUNT,
            "n_missing": COUNT,
            "levels": TEXTS,
            "counts": integers(),
            "values": both(FLOATS_1D, SORTED),
            "direction": integer(-1, 1),
            "time_zone": none_or(TIME_ZONE),
        },
        agrees=consistency.check_training_column,
        has_state=False,
    )


def _searches() -> Iterator[StoredClass]:
    derived = {"scorer_": lambda search: metrics_of(scorers_of_search(search)[0])}
    for name in ("BatchedGridSearchCV", "BatchedRandomizedSearchCV"):
        module = "skbayesnn.model_selection"
        yield StoredClass(
            module,
            name,
            _SEARCH,
            _SEARCH_OPTIONAL,
            agrees=consistency.check_search,
            derived=derived,
        )


def _descriptions() -> Iterator[StoredClass]:
    for name in ("MLP", "ConvNet", "RecurrentNet"):
        yield StoredClass("skbayesnn.networks", name)


def _transformers() -> Iterator[StoredClass]:
    yield StoredClass(
        "skbayesnn.preprocessing",
        "PiecewiseLinearEncoder",
        {
            "bin_edges_": list_of(EDGES),
            "n_bins_": integers(),
            "values_": list_of(EDGES),
            "n_features_in_": POSITIVE_COUNT,
        },
        {**_COLUMNS, **_OUTPUT, "keep_columns": FLAG, "sparse_output": FLAG},
        agrees=consistency.check_encoder,
    )


def _tables() -> Iterator[StoredClass]:
    """The encoder of frames, and its fitted columns."""
    yield StoredClass(
        "skbayesnn.preprocessing",
        "TableEncoder",
        {
            "_columns": list_of(of_type(Column)),
            "_counts": none_or(list_of(of_type(LevelCounts))),
            "n_features_in_": POSITIVE_COUNT,
        },
        {
            **_COLUMNS,
            **_OUTPUT,
            "categorical_features": COLUMN_CHOICE,
            "target_type": one_of("auto", "continuous", "classes"),
        },
        agrees=consistency.check_table,
    )
    yield StoredClass(
        "skbayesnn._data.level_counts",
        "LevelCounts",
        others={
            "columns": POSITIONS,
            "keys": integers(),
            "counts": floats(NOT_NEGATIVE, ndim=1),
        },
        has_state=False,
    )
    yield StoredClass(
        "skbayesnn._data.column_encoding",
        "Column",
        others={
            "name": COLUMN_NAME,
            "kind": one_of(*KINDS),
            "encoding": TEXT,
            "n_missing": COUNT,
            "suffixes": TEXTS,
            "fill": NUMBER,
            "indicator": FLAG,
            "levels": TEXTS,
            "rare": TEXTS,
            "level_features": floats(),
            "substitutes": floats(),
            "spreads": floats(NOT_NEGATIVE),
            "parts": none_or(_of_entry("TextParts")),
            "coefficients": floats(),
            "text_ratio": floats(NOT_NEGATIVE, ndim=1),
            "time_zone": none_or(TIME_ZONE),
            "bounds": BOUNDS,
            "mostly_unique": FLAG,
        },
        agrees=consistency.check_column,
        has_state=False,
    )
    yield StoredClass(
        "skbayesnn._data.text_parts",
        "TextParts",
        others={"vocabulary": TEXTS, "idf": floats(ndim=1)},
        has_state=False,
    )


def _scikit_learn() -> Iterator[StoredClass]:
    """Classes of scikit-learn whose attributes are arrays and call nothing."""
    yield StoredClass(
        "sklearn.pipeline",
        "Pipeline",
        others=_OUTPUT,
        agrees=consistency.check_pipeline,
    )
    yield StoredClass("sklearn.frozen", "FrozenEstimator", others={"estimator": FITTED})
    yield StoredClass(
        "sklearn.compose",
        "TransformedTargetRegressor",
        {"regressor_": FITTED, "transformer_": ESTIMATOR, TRAINING_DIM: _AXES},
        _COLUMNS,
        agrees=consistency.check_target_transform,
    )
    functions = dict.fromkeys(("func", "inverse_func"), none_or(FUNCTION))
    yield StoredClass(
        "sklearn.preprocessing",
        "FunctionTransformer",
        others={**_COLUMNS, **_OUTPUT, **functions},
    )
    for name, fitted in _SCALERS.items():
        others = {**_COLUMNS, **_OUTPUT, **_SCALER_OPTIONAL}
        yield StoredClass(
            "sklearn.preprocessing",
            name,
            fitted,
            others,
            agrees=consistency.check_scaler,
        )
    for name in _SPLITTERS:
        yield StoredClass("sklearn.model_selection", name, has_state=False)


STORED_CLASSES: dict[str, StoredClass] = {
    entry.name: entry
    for entries in (
        _networks,
        _neighbours,
        _stacks,
        _recalibration,
        _conformal,
        _decisions,
        _searches,
        _descriptions,
        _transformers,
        _tables,
        _scikit_learn,
    )
    for entry in entries()
}


# Functions that a file may contain, by name. They map arrays to arrays, without side
# effects.
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
    """Name of a function in ``FUNCTIONS``, or None."""
    return next((name for name, f in FUNCTIONS.items() if f is value), None)


def trusted_names() -> list[str]:
    """Full names of the classes in the table, of scorers, and of their attributes."""
    types = [entry.type for entry in STORED_CLASSES.values() if entry.is_installed]
    public = [getattr(scoring, name) for name in scoring.__all__]
    scorers = [item.function for item in public if isinstance(item, scoring.Scorer)]
    trusted = {*types, *scorers, scoring.Scorer, *SCORER_TYPES}
    return sorted(f"{item.__module__}.{item.__qualname__}" for item in trusted)


def stored_class_of(value) -> StoredClass | None:
    """Entry of the table for an object, or None; subclasses have no entry."""
    value_type = type(value)
    root, name = value_type.__module__.partition(".")[0], value_type.__name__
    stored_class = STORED_CLASSES.get(name if root == "skbayesnn" else f"{root}.{name}")
    if stored_class is None or stored_class.type is not value_type:
        return None
    return stored_class
