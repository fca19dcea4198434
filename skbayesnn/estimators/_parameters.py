"""Constructor parameters, with their rules in files (``_stored.py``).

A dataclass has the constructor. An estimator declares the parameters of its method,
and shared ones whose default differs; its other annotations are ``field(init=False)``.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, dataclass_transform

from skbayesnn import _stored as stored
from skbayesnn._validation import MAX_N_DRAWS
from skbayesnn.networks import NetworkDescription


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def parameters(kind: type) -> Any:
    """Make the constructor of a class, without types in the text of its signature."""
    kind = dataclass(eq=False, repr=False, kw_only=True)(kind)
    kind.__init__.__annotations__ = {"return": None}  # type: ignore[misc]
    return kind


@parameters
class Parameters:
    """Of all single networks."""

    hidden_layer_sizes: Any = field(default=(50, 50), kw_only=False)
    activation: str = field(default="relu", kw_only=False)
    network: NetworkDescription | None = None
    dropout: stored.Rates = 0.0
    length_scale: Annotated[Any, stored.each(stored.NOT_NEGATIVE)] = "auto"
    n_estimators: stored.PositiveCount = 1
    n_draws: Annotated[int, stored.between(1, MAX_N_DRAWS)] = 200
    standardize: bool = True
    categorical_features: stored.ColumnChoice = "from_dtype"
    batch_size: Any = "auto"
    learning_rate: str = "cosine"
    learning_rate_init: stored.PositiveFloat = 0.01
    max_iter: Any = "auto"
    early_stopping: Any = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    tol: Annotated[float, stored.NOT_NEGATIVE] = 1e-4
    warm_start: bool = False
    device: Any = "auto"
    dtype: str = "float32"
    verbose: bool | int = False
    random_state: stored.Seed = None


@parameters
class RegressorParameters:
    """Of the regressors."""

    tau: Annotated[Any, stored.each(stored.POSITIVE)] = "auto"
    likelihood: str = "auto"
    likelihood_options: dict | None = None
    target_scale: str = "identity"
    y_bounds: Any = None
    point_mass: float | None = None
    exposure: str | int | None = None


@parameters
class ClassifierParameters:
    """Of the classifiers."""

    tau: Annotated[Any, stored.each(stored.POSITIVE)] = 1.0
    likelihood: str = "categorical"
    class_weight: Any = None
