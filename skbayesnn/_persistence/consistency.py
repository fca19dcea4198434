"""Check that the attributes of a fitted model fit together, and probe its predictions.

It is called after the rules of the single attributes hold. Sizes are compared with
stored arrays before arrays of that size are allocated.
"""

from copy import copy
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from skbayesnn import _validation
from skbayesnn._engine.posterior import Posterior
from skbayesnn._likelihoods.base import OfLabels
from skbayesnn._stored import Axes, is_fitted
from skbayesnn.estimators import _fitted
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.preprocessing import PiecewiseLinearEncoder

_CPU = torch.device("cpu")
# For one row, a network has at most _UNITS + _UNITS_PER_NUMBER times the number of
# stored parameters. Images and sequences need many more units than parameters.
_UNITS = 1 << 22
_UNITS_PER_NUMBER = 256
# Transformers that map finite rows to finite rows, and the most columns of a row that
# is transformed: without arrays, the number of columns is not verified.
_FINITE = (
    MinMaxScaler,
    PiecewiseLinearEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
_MOST_COLUMNS = 1 << 20


def check_consistency(model: Any, axes: Axes) -> None:
    """Check a model by its own hook, by its network and table, and by a prediction.

    axes : sizes of its axes

    Raises
    ------
    ValueError
        Or any error that a network of the wrong shapes raises.
    """
    if isinstance(model, BayesianNetwork):
        _validation.device_for_prediction(model.device)
    attributes = vars(model)
    if "table_" in attributes:
        _check_table(model, axes)
    if attributes.get("y_ndim_") == 1:
        for axis in ("targets", "outputs"):
            axes.agree(axis, 1, "`y_ndim_`")
    if isinstance(model, BayesianNetwork) and "parameters_" in attributes:
        _check_network(model, axes)
    if hasattr(model, "_check_stored"):
        model._check_stored()
    with np.errstate(all="ignore"):
        predicted = _probe(model)
    if not all(np.isfinite(values).all() for values in predicted):
        raise ValueError(
            "its predictions must be finite, and its noise > 0, at the mean of the "
            "columns and one standard deviation from it."
        )


def _probe(model) -> list[np.ndarray]:
    """What a model predicts near the mean of the columns: all must be finite."""
    if isinstance(model, _FINITE):
        n_columns = vars(model).get("n_features_in_", 0)
        if not 0 < n_columns <= _MOST_COLUMNS:
            return []
        transformed: Any = _without_names(model).transform(np.zeros((1, n_columns)))
        if sparse.issparse(transformed):
            transformed = transformed.toarray()
        return [np.asarray(transformed)]
    if isinstance(model, TransformedTargetRegressor):
        regressor = model.regressor_
        if isinstance(regressor, Pipeline):
            regressor = regressor[-1]
        mean, *_ = [*_probe(regressor), np.empty(0)]
        if not len(mean):
            return []
        return [model.transformer_.inverse_transform(mean.reshape(len(mean), -1))]
    if not (hasattr(model, "x_scale_") and hasattr(model, "predict_distribution")):
        return []
    return _predicted(model)


def _predicted(model) -> list[np.ndarray]:
    """Predictions of one draw, and the log of the noise."""
    inner = _without_names(model)
    inner.n_draws = 1
    # The rows are those that the fitted table would return.
    inner.table_, inner.n_features_in_ = None, len(model.x_mean_)
    if isinstance(model, BayesianNetwork):
        inner.device = "cpu"
    inner.target_spaces_ = None  # at a bound of y there may be no noise
    rows = model.x_mean_ + np.array([[0.0], [1.0], [-1.0]]) * model.x_scale_
    distribution = inner.predict_distribution(rows)
    if hasattr(model, "classes_"):
        probability = distribution.proba()
        if probability.shape != (len(rows), len(model.classes_)):
            raise ValueError(
                f"its probabilities must be of {len(model.classes_)} classes; got "
                f"{probability.shape[-1]}."
            )
        return [probability]
    return [distribution.mean(), np.log(distribution.aleatoric())]


def _without_names(model):
    """Copy of a model that takes arrays without a warning."""
    inner = copy(model)
    vars(inner).pop("feature_names_in_", None)
    return inner


def _check_table(model, axes: Axes) -> None:
    """Compare the columns of a model and of its fitted table."""
    table = model.table_
    if table is None:
        if "n_features_in_" in vars(model):
            axes.agree("inputs", model.n_features_in_, "`n_features_in_`")
        return
    if not is_fitted(table):
        raise ValueError("`table_` must be fitted; got an encoder without columns.")
    axes.agree("columns", table.n_features_in_, "`table_`")
    axes.agree("inputs", table.n_features_out, "`table_`")
    names = [getattr(owner, "feature_names_in_", None) for owner in (model, table)]
    _agree("names of columns", *(None if n is None else list(n) for n in names))


def _agree(what: str, first, second) -> None:
    if first != second:
        raise ValueError(
            f"its attributes must agree in {what}; got {first!r} and {second!r}."
        )


# ---- networks


def _check_network(model: BayesianNetwork, axes: Axes) -> None:
    """Check the sizes of a network, and all its parameters."""
    posterior = _fitted.restore_posterior(model, _CPU, torch.float64)
    network, likelihood = posterior.network, posterior.likelihood
    described = _fitted.describe_network(network, likelihood)
    _agree("the network description", repr(described), repr(model.network_))
    without_masks = tuple(family.with_mask_shape(None) for family in network.families)
    _agree("where masks are placed", network, network.with_families(without_masks))
    _check_sizes(posterior, model.parameters_)
    keep = model.parameters_["keep"]
    axes.has("layers, networks", keep.shape)
    axes.agree("layers", len(network.families), "`network_`")
    if not ((keep > 0) & (keep <= 1)).all():
        raise ValueError(
            "the probability that a unit is kept must be in (0, 1]; got "
            f"{keep.min()} to {keep.max()}."
        )
    if isinstance(likelihood, OfLabels):
        axes.agree("classes", likelihood.n_labels, "`network_`")
    else:
        axes.agree("targets", _n_targets(likelihood), "`network_`")
    shapes = {name: values.shape for name, values in model.parameters_.items()}
    del shapes["keep"]
    expected = _expected_shapes(posterior)
    for name in likelihood.predictive_params:
        # These exist only if the noise was estimated again after the training.
        shape = expected["likelihood/log_tau"]
        _agree("noise", shape, shapes.pop(f"likelihood/{name}", shape))
    _agree("parameters", sorted(shapes.items()), sorted(expected.items()))
    progress = getattr(model, "unfinished_", {}).get("progress", {})
    if getattr(model, "pruning_", None) is None:
        for name, values in {**model.optimizer_, **progress}.items():
            _, *path = name.split("/")
            if path:  # a moment of a parameter
                i, param = path
                is_layer = int(i) < len(network.families)
                group = f"layers/{i}" if is_layer else "likelihood"
                _agree(name, model.parameters_[f"{group}/{param}"].shape, values.shape)


def _check_sizes(posterior: Posterior, arrays: dict[str, np.ndarray]) -> None:
    """Compare the sizes of a network with the number of stored parameters."""
    network, n_members = posterior.network, posterior.n_members
    n_stored = sum(values.size for values in arrays.values())
    sizes = {
        "weights": n_members * network.n_weights,
        "outputs": posterior.likelihood.n_outputs,
        "targets or classes": _n_targets(posterior.likelihood),
    }
    for what, size in sizes.items():
        if not 0 < size <= n_stored + 1:  # K classes may have only K - 1 cut points.
            raise ValueError(
                f"{n_members} networks of {size} {what} must have at least as many "
                f"parameters; got {n_stored}."
            )
    most = _UNITS + _UNITS_PER_NUMBER * n_stored
    if n_members * network.peak_activation_size > most:
        raise ValueError(
            f"networks of {n_stored} parameters must have at most {most} units; got "
            f"{n_members} networks of {network.peak_activation_size} units."
        )


def _expected_shapes(posterior: Posterior) -> dict[str, tuple[int, ...]]:
    """Shapes of the initial parameters: of two rows, or of one row of each class."""
    network, n_members = posterior.network, posterior.n_members
    likelihood, n_targets = posterior.likelihood, _n_targets(posterior.likelihood)
    keep = tuple(torch.ones(n_members, device=_CPU) for _ in network.families)

    def zeros(group: int, *shape: int) -> torch.Tensor:
        return torch.zeros(n_members, *shape, device=_CPU)

    groups = {f"layers/{i}": g for i, g in enumerate(network.init(zeros, keep))}
    n_taus = 1 if likelihood.is_classification else n_targets
    y: np.ndarray = np.outer([1.0, 2.0], np.ones(n_targets))
    y = np.arange(n_targets) if likelihood.is_classification else y
    statistics = torch.as_tensor(likelihood.statistics(y, np.ones(len(y))))
    tau = torch.ones(n_members, n_taus, dtype=torch.float64, device=_CPU)
    groups["likelihood"] = likelihood.init(tau, statistics.expand(n_members, -1))
    return {
        f"{place}/{name}": tuple(value.shape)
        for place, group in groups.items()
        for name, value in group.items()
    }


def _n_targets(likelihood) -> int:
    """Number of targets or classes."""
    return (
        likelihood.n_classes if likelihood.is_classification else likelihood.n_targets
    )
