"""Classes and functions that a file may contain.

The annotations of a class are the rules of its attributes (``skbayesnn._stored``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Annotated, Any, Literal, TypeVar

import numpy as np

from skbayesnn import _stored as stored
from skbayesnn import scoring
from skbayesnn._persistence.consistency import check_consistency
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
from skbayesnn.decision import _newsvendor, absolute, quadratic

T = TypeVar("T")


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


# Attributes that a file does not contain, or stores elsewhere.
_NOT_KEPT = {"_cache", "_unfinished", STATE_VERSION, METADATA_REQUEST}
# Attributes that fitted objects of any class may have.
_OF_ALL = {
    "feature_names_in_": Annotated[stored.ColumnNames, stored.OPTIONAL],
    "n_features_in_": Annotated[stored.NumberOfColumns, stored.OPTIONAL],
    OUTPUT_CONFIG: Annotated[dict[str, Any], stored.OPTIONAL],
}


@dataclass(frozen=True)
class StoredClass:
    """A class, and the attributes of its fitted objects.

    Parameters
    ----------
    module, class_name : str
        Import path for users.
    described_by : type
        A class with annotations, for a class of another package.
    derived : dict of str to callable
        Attributes that are computed from the others, and are not in files.
    """

    module: str
    class_name: str
    described_by: type | None = None
    derived: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name in files, with the package unless it is skbayesnn."""
        root = self.module.partition(".")[0]
        return self.class_name if root == "skbayesnn" else f"{root}.{self.class_name}"

    @cached_property
    def type(self) -> Any:
        """The class; imports only modules in the table of this file."""
        return getattr(imported(self.module), self.class_name)

    @cached_property
    def params(self) -> tuple[str, ...]:
        """Parameters of the constructor, which only stores them."""
        return tuple(signature(self.type).parameters)

    @cached_property
    def annotations(self) -> dict[str, Any]:
        """Annotations of parameters and attributes."""
        of_all = _OF_ALL if hasattr(self.type, "fit") else {}
        return of_all | stored.annotations_of(self.described_by or self.type)

    @cached_property
    def attributes(self) -> dict[str, bool]:
        """Attributes of fitted objects, and whether all of them have it."""
        return {
            name: stored.OPTIONAL not in getattr(annotation, "__metadata__", ())
            for name, annotation in self.annotations.items()
            if self.described_by or name.startswith("_") or name.endswith("_")
            if name not in self.params and not hasattr(self.type, name)
        }

    def kept(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of a state that a file contains, without the parameters."""
        dropped = {*self.params, *self.derived, *_NOT_KEPT}
        return {name: value for name, value in state.items() if name not in dropped}

    def fill(self, model, state: dict[str, Any], sklearn_version: str) -> None:
        """Set the fitted attributes of a constructed object, as unpickling does."""
        for name, is_required in self.attributes.items():
            if is_required and name not in state:
                raise ValueError(f"{self.name} has no attribute {name!r}.")
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
        for name in self.kept(state) if self.attributes else ():
            if name not in self.attributes:
                raise ValueError(f"{self.name} has no {name!r}.")
        axes = stored.check_stored(state, self.annotations, self.name)
        check_consistency(model, axes)


# ---- classes of other packages, whose attributes are arrays and call nothing


class _Pipeline:
    memory: Annotated[
        Any,
        stored.Property(
            "None, since a fit loads pickles from a folder: set it after loading",
            lambda v: v is None,
        ),
    ]
    steps: list[
        tuple[
            str,
            Annotated[
                Any,
                stored.Property(
                    "an estimator or 'passthrough'",
                    lambda v: hasattr(v, "fit") or v == "passthrough",
                ),
            ],
        ]
    ]


class _FrozenEstimator:
    estimator: stored.Fitted


_Function = Annotated[
    Any, stored.Property("None or a function", lambda v: v is None or callable(v))
]


class _FunctionTransformer:
    func: _Function
    inverse_func: _Function


class _TransformedTargetRegressor:
    regressor_: stored.Fitted
    transformer_: stored.Estimator


_TransformedTargetRegressor.__annotations__[TRAINING_DIM] = Literal[1, 2]


class _MinMaxScaler:
    data_max_: Annotated[stored.Floats, "columns"]
    data_min_: Annotated[stored.Floats, "columns"]
    data_range_: Annotated[stored.Floats, "columns"]
    min_: Annotated[stored.Floats, "columns"]
    scale_: Annotated[stored.Floats, "columns", stored.POSITIVE]
    n_samples_seen_: Annotated[stored.Count, stored.OPTIONAL]
    clip: bool


class _QuantileTransformer:
    quantiles_: Annotated[stored.Floats, "quantiles, columns", stored.SORTED]
    references_: Annotated[stored.Floats, "quantiles", stored.SHARE, stored.SORTED]
    n_quantiles_: stored.PositiveCount


class _RobustScaler:
    center_: Annotated[stored.Floats, "columns"] | None
    scale_: Annotated[stored.Floats, "columns", stored.POSITIVE] | None
    with_centering: bool
    with_scaling: bool


class _StandardScaler:
    mean_: Annotated[stored.Floats, "columns"] | None
    scale_: Annotated[stored.Floats, "columns", stored.POSITIVE] | None
    var_: Annotated[stored.Floats, "columns", stored.NOT_NEGATIVE] | None
    n_samples_seen_: Annotated[
        Annotated[float, stored.NOT_NEGATIVE]
        | Annotated[stored.Numbers, stored.NOT_NEGATIVE],
        stored.OPTIONAL,
    ]
    with_mean: bool
    with_std: bool


# ---- table of all classes

_OWN = {
    "skbayesnn": (
        "Abstainer",
        *(
            name
            for name in imported("skbayesnn").__all__
            if name.endswith(("Classifier", "Regressor"))
        ),
    ),
    "skbayesnn._data.column_encoding": ("Column",),
    "skbayesnn._data.level_counts": ("LevelCounts",),
    "skbayesnn._data.text_parts": ("TextParts",),
    "skbayesnn._meta.conformal_scores": ("Calibration",),
    "skbayesnn._predictive.recalibration": ("QuantileMap",),
    "skbayesnn._stacking.boosting": ("BoostingClassifier",),
    "skbayesnn._stacking.foreign": (
        "ForeignClassifier",
        "ForeignQuantileRegressor",
        "ForeignRegressor",
    ),
    "skbayesnn._stacking.forest": ("ForestClassifier", "ForestRegressor"),
    "skbayesnn._stacking.linear": ("ShrunkLinearClassifier", "ShrunkLinearRegressor"),
    "skbayesnn._stacking.summary": ("Summary",),
    "skbayesnn.decision": ("Cost", "DecisionMaker"),
    "skbayesnn.inspection": ("DriftMonitor",),
    "skbayesnn.inspection._columns": ("TrainingColumn",),
    "skbayesnn.inspection._watches": ("Watches",),
    "skbayesnn.networks": ("MLP", "ConvNet", "RecurrentNet"),
    "skbayesnn.preprocessing": ("PiecewiseLinearEncoder", "TableEncoder"),
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
_SCORER_OF_SEARCH = {"scorer_": lambda s: metrics_of(scorers_of_search(s)[0])}
STORED_CLASSES: dict[str, StoredClass] = {
    entry.name: entry
    for entry in (
        *(
            StoredClass(module, name)
            for module, names in _OWN.items()
            for name in names
        ),
        *(
            StoredClass("skbayesnn.model_selection", name, derived=_SCORER_OF_SEARCH)
            for name in ("BatchedGridSearchCV", "BatchedRandomizedSearchCV")
        ),
        StoredClass(
            "sklearn.compose", "TransformedTargetRegressor", _TransformedTargetRegressor
        ),
        StoredClass("sklearn.frozen", "FrozenEstimator", _FrozenEstimator),
        StoredClass("sklearn.pipeline", "Pipeline", _Pipeline),
        *(
            StoredClass("sklearn.preprocessing", kind.__name__[1:], kind)
            for kind in (
                _FunctionTransformer,
                _MinMaxScaler,
                _QuantileTransformer,
                _RobustScaler,
                _StandardScaler,
            )
        ),
        *(StoredClass("sklearn.model_selection", name) for name in _SPLITTERS),
    )
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
} | {
    f"skbayesnn.decision.{function.__name__}": function
    for function in (_newsvendor, absolute, quadratic)
}


def function_name(value) -> str | None:
    """Name of a function in ``FUNCTIONS``, or None."""
    return next((name for name, f in FUNCTIONS.items() if f is value), None)


def trusted_names() -> list[str]:
    """Full names of the classes in the tables, scorers and their attributes."""
    types = [entry.type for entry in STORED_CLASSES.values()]
    public = [getattr(scoring, name) for name in scoring.__all__]
    scorers = [item.function for item in public if isinstance(item, scoring.Scorer)]
    own = [f for name, f in FUNCTIONS.items() if name.startswith("skbayesnn.")]
    trusted = {*types, *scorers, *own, scoring.Scorer, *SCORER_TYPES}
    return sorted(f"{item.__module__}.{item.__qualname__}" for item in trusted)


def stored_class_of(value) -> StoredClass | None:
    """Entry of the table for an object, or None; subclasses have no entry."""
    value_type = type(value)
    root, name = value_type.__module__.partition(".")[0], value_type.__name__
    stored_class = STORED_CLASSES.get(name if root == "skbayesnn" else f"{root}.{name}")
    if stored_class is None or stored_class.type is not value_type:
        return None
    return stored_class
