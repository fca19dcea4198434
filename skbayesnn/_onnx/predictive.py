"""A fitted model -> its predictive as tensors: through pipelines and corrections.

The counterpart of ``_meta.walk.open_predictive`` and ``_predictive``.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skbayesnn._data.scaling import Scaling
from skbayesnn._meta.calibration import CalibratedUncertaintyRegressor
from skbayesnn._onnx.graph import Tensor
from skbayesnn._onnx.likelihoods import (
    KNOWN,
    NORMAL,
    Moments,
    moments,
    probabilities,
)
from skbayesnn._onnx.networks import outputs_of
from skbayesnn._onnx.steps import transformed
from skbayesnn._stacking.base import BayesianStacking
from skbayesnn._stacking.linear import ShrunkLinearClassifier, ShrunkLinearRegressor
from skbayesnn.estimators import _fitted
from skbayesnn.estimators._base import BayesianNetwork


@dataclass(frozen=True)
class Numbers:
    """The predictive of a regression, in y's units.

    Parameters
    ----------
    moments : Moments
    flat : bool
        Whether results drop the target axis.
    likelihoods : frozenset of str
        Of its networks.
    normal : bool
        Whether all components are normal distributions.
    dtype : dtype
        That resolves y.
    """

    moments: Moments
    flat: bool
    likelihoods: frozenset[str]
    normal: bool
    dtype: np.dtype

    def joined(self, other: "Numbers") -> "Numbers":
        """The components of both."""
        pairs = zip(self.moments, other.moments, strict=True)
        return Numbers(
            Moments(*(one.op("Concat", two, axis=0) for one, two in pairs)),
            self.flat,
            self.likelihoods | other.likelihoods,
            self.normal and other.normal,
            np.promote_types(self.dtype, other.dtype),
        )

    def corrected(self, factor: np.ndarray, bound: float = np.inf) -> "Numbers":
        """Spread about the mean, (targets,); as ``Components.spread``."""
        share, mean, variance = self.moments
        centre = (share * mean).sum(0)
        after = variance * np.square(factor)
        if np.isinf(bound):
            mean = centre + factor * (mean - centre)
        else:
            most = bound * after.op("Sqrt")
            move = (1 - factor) * (centre - mean)
            mean = mean + move.op("Min", most).op("Max", -most)
        return replace(self, moments=Moments(share, mean, after))


@dataclass(frozen=True)
class Classes:
    """The predictive of a classification.

    Parameters
    ----------
    share : Tensor (networks, 1, 1)
    probability : Tensor (networks, rows, classes)
    labels : ndarray of shape (classes,)
    """

    share: Tensor
    probability: Tensor
    labels: np.ndarray

    def joined(self, other: "Classes") -> "Classes":
        """The draws of both."""
        share = self.share.op("Concat", other.share, axis=0)
        probability = self.probability.op("Concat", other.probability, axis=0)
        return replace(self, share=share, probability=probability)

    def corrected(self, factor: np.ndarray, bound: float = np.inf) -> "Classes":
        """With a temperature, (1,)."""
        logits = self.probability.op("Log") / factor.item()
        return replace(self, probability=logits.op("Softmax", axis=-1))


class Rows(NamedTuple):
    """Rows of X: what a graph gets, or what a pipeline's steps have made of it."""

    inputs: dict[str, Tensor]
    types: list | None = None


class Part(NamedTuple):
    """What a model is in a mixture: so many draws of so many."""

    n_draws: int
    n_all: int


def predictive(model, rows: Rows, part: Part | None = None) -> Numbers | Classes:
    """What the model says of the rows.

    part : of a network that is one of several, alone or in a pipeline; None: all
    """
    check_is_fitted(model)
    if hasattr(model, "best_estimator_"):  # also of other libraries
        return predictive(model.best_estimator_, rows)
    if isinstance(model, FrozenEstimator):
        return predictive(model.estimator, rows)
    if isinstance(model, Pipeline):
        if len(model) > 1:
            rows = Rows({"steps": transformed(model[:-1], *rows)})
        return predictive(model[-1], rows, part)
    if isinstance(model, CalibratedUncertaintyRegressor):
        if hasattr(model, "quantile_maps_"):
            raise TypeError(
                "`to_onnx` has no isotonic recalibration; got CalibratedUncertainty"
                "Regressor(method='isotonic'). Fit it with method='scale'."
            )
        inner = predictive(model.estimator_, rows)
        return inner.corrected(np.atleast_1d(model.scale_))
    if isinstance(model, BayesianStacking):
        return _stacked(model, rows)
    if isinstance(model, BayesianNetwork):
        return _of_network(model, rows, part)
    if isinstance(model, ShrunkLinearRegressor | ShrunkLinearClassifier):
        return _of_linear_model(model, rows, part)
    raise TypeError(
        "`to_onnx` takes the estimators of skbayesnn, alone, as the last step of a "
        "Pipeline, in a search, in FrozenEstimator, or in CalibratedUncertainty"
        f"Regressor(method='scale'); got {type(model).__name__}. Of meta-estimators "
        "that map y or mix models convert the networks inside one by one."
    )


def _stacked(model: BayesianStacking, rows: Rows) -> Numbers | Classes:
    """The candidates, each with its number of draws, corrected together."""
    n_all = int(model.n_draws_.sum())
    parts = [
        predictive(one, rows, Part(int(n), n_all))
        for one, n in zip(model.estimators_, model.n_draws_, strict=True)
    ]
    bound = getattr(model, "spread_bound_", np.inf)
    return _joined(parts).corrected(model.spread_factor_, bound)


def _of_network(model: BayesianNetwork, rows: Rows, part: Part | None):
    """The draws of a fitted posterior."""
    _check_known(model)
    posterior = _fitted.posterior_of(model, torch.device("cpu"), torch.float32)
    scaling = _fitted.scaling_of(model)
    x = scaling.x_to_network(_only(rows).cast(np.float64)).cast(np.float32)
    n_draws = posterior.distinct_draws(model.n_draws)
    n_networks = n_draws * posterior.n_members
    part = part or Part(n_networks, n_networks)
    counts = _counts(part, n_networks)
    found: list = []
    for members, count, outputs in outputs_of(posterior, n_draws, counts, x):
        share = count / part.n_all
        if members.likelihood.of_classes:
            shares = outputs.graph.constant(share[:, None, None])
            probability = probabilities(members, outputs)
            found.append(Classes(shares, probability, vars(model)["classes_"]))
            continue
        _check_units(scaling)
        own = _in_units_of_y(moments(members, share, outputs), scaling)
        likelihood = members.likelihood
        normal = likelihood.components_class in NORMAL
        names = frozenset([likelihood.name])
        dtype = scaling.dtype_of_y(np.float32)
        found.append(Numbers(own, model.y_ndim_ == 1, names, normal, dtype))
    return _joined(found)


def _counts(part: Part, n_draws: int) -> np.ndarray:
    """How often each of a model's draws is in the mixture, as `DrawArrays.resized`."""
    picked = np.arange(part.n_draws) * n_draws // part.n_draws
    return np.bincount(picked, minlength=n_draws)


def _of_linear_model(
    model: ShrunkLinearRegressor | ShrunkLinearClassifier,
    rows: Rows,
    part: Part | None,
):
    """The draws of its weights."""
    n_draws = len(model.coef_)
    part = part or Part(n_draws, n_draws)
    counts = _counts(part, n_draws)
    used = np.flatnonzero(counts)
    x = _only(rows).cast(np.float64).take(model.columns_, axis=1)
    outputs = x @ model.coef_[used].transpose(0, 2, 1)
    outputs = outputs + model.intercept_[used][:, None]
    share = outputs.graph.constant((counts[used] / part.n_all)[:, None, None])
    if isinstance(model, ShrunkLinearClassifier):
        own = outputs.op("Sigmoid")
        if len(model.classes_) == 2:
            probability = (1.0 - own).op("Concat", own, axis=2)
        else:
            probability = own / own.sum(2, keepdims=True)
        return Classes(share, probability, model.classes_)
    variance = outputs.graph.constant(model.noise_variance_).expand_as(outputs)
    found = Moments(share, outputs, variance)
    kinds = frozenset([model.likelihood])
    return Numbers(found, model.y_ndim_ == 1, kinds, True, np.dtype(np.float64))


def _only(rows: Rows) -> Tensor:
    """The rows as a network takes them: of one type, side by side."""
    if len(rows.inputs) > 1:
        raise TypeError(
            "`initial_types` must have one input where no step of a Pipeline puts "
            f"several together; got {', '.join(rows.inputs)}. Put a ColumnTransformer "
            "in front of the network, or leave `initial_types` out."
        )
    return next(iter(rows.inputs.values()))


def _check_units(scaling: Scaling) -> None:
    """ONNX Runtime leaves out the addition of a double that is zero in float32."""
    small = np.concatenate([scaling.y_mean, scaling.y_scale])
    lost = (small != 0) & (small.astype(np.float32) == 0)
    if lost.any():
        raise ValueError(
            "a graph needs y in a unit in which its mean and standard deviation are "
            f"not zero in float32; got {small[lost][0]:g}. Fit to y in a smaller unit, "
            "whose numbers are larger."
        )


def _in_units_of_y(own: Moments, scaling: Scaling) -> Moments:
    return Moments(own.share, *scaling.moments_from_network(own.mean, own.variance))


def _joined(parts):
    first, *others = parts
    for one in others:
        first = first.joined(one)
    return first


def _check_known(model: BayesianNetwork) -> None:
    """Refuse networks and likelihoods that no operators are known of."""
    network, likelihood = (
        model.network_["name"],
        model.network_["likelihood"]["name"],
    )
    if network != "mlp":
        raise TypeError(
            "`to_onnx` needs a multi-layer perceptron; got a network of kind "
            f"{network!r}. Fit with network=None or skbayesnn.networks.MLP."
        )
    if likelihood not in KNOWN:
        raise TypeError(
            f"`to_onnx` knows the likelihoods {', '.join(sorted(KNOWN))}; got "
            f"{likelihood!r}."
        )
