"""Predictive distribution of a fitted model as tensors, through pipelines.

The counterpart of ``_meta.unwrap.open_predictive`` and of ``_predictive``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skbayesnn._data.column_encoding import N_SUBSTITUTES
from skbayesnn._data.scaling import Scaling
from skbayesnn._data.table_encoder import TableEncoder
from skbayesnn._data.validation import table_of
from skbayesnn._distributions.components import Gaussians, versions_of_draws
from skbayesnn._distributions.mixtures import GaussianMixtures
from skbayesnn._distributions.recorded import Recorded, TargetSpace, recorded
from skbayesnn._meta.calibration import CalibratedUncertaintyRegressor
from skbayesnn._onnx import neighbours
from skbayesnn._onnx.graph import Tensor, concatenated
from skbayesnn._onnx.mixtures import NORMAL, Draws, Normals, components_of, shares
from skbayesnn._onnx.networks import outputs_of
from skbayesnn._onnx.parts import thawed
from skbayesnn._onnx.steps import after_table, transformed
from skbayesnn._onnx.tables import Versions, encoded_table, encoded_versions
from skbayesnn._onnx.trees import leaf_values, summed_leaves
from skbayesnn._stacking.base import BayesianStacking
from skbayesnn._stacking.boosting import BoostingClassifier
from skbayesnn._stacking.foreign import ForeignModel
from skbayesnn._stacking.forest import ForestClassifier, ForestRegressor
from skbayesnn._stacking.linear import ShrunkLinearClassifier, ShrunkLinearRegressor
from skbayesnn._stacking.weights import BOUND
from skbayesnn.estimators import _fitted
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._dense_network import features, linearised
from skbayesnn.estimators._regression import recorded_of
from skbayesnn.estimators.laplace import (
    LaplaceClassifier,
    LaplaceModel,
    LaplaceRegressor,
    logit_proba,
)
from skbayesnn.estimators.neighbours import (
    NeighbourClassifier,
    NeighbourModel,
    NeighbourRegressor,
)


@dataclass(frozen=True)
class Regression:
    """Predictive distribution of a regression, in y's units.

    Parameters
    ----------
    draws : tuple of Draws
        All draws, in parts that are computed together.
    is_flat : bool
        Whether results drop the target axis.
    dtype : dtype
        Precision that resolves y.
    not_normal : frozenset of str
        Likelihoods whose components are not normal distributions.
    """

    draws: tuple[Draws, ...]
    is_flat: bool
    dtype: np.dtype
    not_normal: frozenset[str] = frozenset()

    def joined(self, other: "Regression") -> "Regression":
        """Mixture of the draws of both."""
        return Regression(
            self.draws + other.draws,
            self.is_flat,
            np.promote_types(self.dtype, other.dtype),
            self.not_normal | other.not_normal,
        )

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, (rows, targets)."""
        return self._mixed(lambda part: part.mean)

    @property
    def variance(self) -> Tensor:
        """Variance of the mixture, (rows, targets)."""
        mean = self.mean
        return self._mixed(lambda part: part.variance + (part.mean - mean).square())

    def _mixed(self, values: Callable[[Any], Tensor]) -> Tensor:
        """Mean over all draws of values of their components."""
        return reduce(
            add, [(part.share * values(part.components)).sum(0) for part in self.draws]
        )

    @property
    def is_recorded(self) -> bool:
        """Whether a distribution has bounds, another scale or a point mass."""
        return any(isinstance(part.components, Recorded) for part in self.draws)

    def in_spaces(self, record: Callable[[Any], Any]) -> "Regression":
        """Distribution of y, by a function of the latent distribution.

        Raises
        ------
        TypeError
            If a graph cannot compute it.
        """
        draws = [
            part._replace(components=record(part.components)) for part in self.draws
        ]
        found = [
            c for c in (part.components for part in draws) if isinstance(c, Recorded)
        ]
        if found and self.not_normal:
            raise TypeError(
                "`to_onnx` requires Gaussian observation noise for a y with bounds or "
                "on another scale; got likelihood="
                f"{', '.join(sorted(self.not_normal))}."
            )
        dtype = np.dtype(np.float64) if found else self.dtype
        return replace(self, draws=tuple(draws), dtype=dtype)

    def normals(self) -> Normals:
        """Normal distributions of all draws, with their shares."""
        parts = [part.normals() for part in self.draws]
        if any(isinstance(p.components, GaussianMixtures) for p in self.draws):
            parts = [p._replace(share=p.share.expand_as(p.mean)) for p in parts]
        columns = zip(*parts, strict=True)
        return Normals(*(concatenated(tensors, 0) for tensors in columns))

    def mixed(self, versions: Versions, part: "Part | None") -> "Regression":
        """Mixture of the versions of each row, as ``DrawArrays.mix_versions``."""

        def mixed(draws):
            uses, select = _mixing(draws.uses, versions, part)
            return Draws(uses, draws.components._mapped(select))

        return replace(self, draws=tuple(map(mixed, self.draws)))

    def corrected(self, factor: np.ndarray, bound: float = np.inf) -> "Regression":
        """Spread the mixture about its mean, as ``Components.scaled_about``.

        factor : (targets,)
        """
        centre = self.mean

        def latent_centre(kind):
            parts = [
                (part.share, part.components.latent.mean)
                for part in self.draws
                if _kind(part.components) == kind
            ]
            total = reduce(add, [(share * mean).sum(0) for share, mean in parts])
            return total / reduce(add, [share.sum(0) for share, _ in parts])

        def spread(draws):
            found = draws.components
            own = {}
            if isinstance(found, Recorded):
                own = {"own": latent_centre(_kind(found))}
            found = found.scaled_about(centre, factor, bound, **own)
            return draws._replace(components=found)

        return replace(self, draws=tuple(map(spread, self.draws)))


@dataclass(frozen=True)
class Classes:
    """Predictive distribution of a classification.

    Parameters
    ----------
    uses : ndarray of shape (networks, places), bool; or Tensor (networks, 1, 1)
        As in ``Draws``.
    probability : Tensor (networks, rows, classes)
    labels : ndarray of shape (classes,)
    """

    uses: np.ndarray | Tensor
    probability: Tensor
    labels: np.ndarray

    @property
    def share(self) -> Tensor:
        """Weight of each draw in the mixture, (networks, 1, 1)."""
        return shares(self.probability.graph, self.uses)

    def joined(self, other: "Classes") -> "Classes":
        """Mixture of the draws of both."""
        probability = self.probability.op("Concat", other.probability, axis=0)
        if isinstance(self.uses, np.ndarray) and isinstance(other.uses, np.ndarray):
            uses = np.concatenate([self.uses, other.uses])
            return replace(self, uses=uses, probability=probability)
        share = self.share.op("Concat", other.share, axis=0)
        return replace(self, uses=share, probability=probability)

    def mixed(self, versions: Versions, part: "Part | None") -> "Classes":
        """Mixture of the versions of each row, as ``DrawArrays.mix_versions``."""
        uses, select = _mixing(self.uses, versions, part)
        return replace(self, uses=uses, probability=select(self.probability))

    def corrected(self, factor: np.ndarray, bound: float = np.inf) -> "Classes":
        """Apply a temperature, (1,)."""
        logits = self.probability.op("Log") / factor.item()
        return replace(self, probability=logits.op("Softmax", axis=-1))


class OnnxRows(NamedTuple):
    """Rows of X: the inputs of the graph, or the output of the steps of a pipeline."""

    inputs: dict[str, Tensor]
    types: list | None = None


class Part(NamedTuple):
    """The first place of a model in a mixture, its draws, and the draws of all."""

    first: int
    n_draws: int
    n_total: int


def predictive(model, rows: OnnxRows, part: Part | None = None) -> Regression | Classes:
    """Predictive distribution of a model for the rows.

    part : for a candidate of a stack; None if the model is the whole mixture
    """
    check_is_fitted(model)
    if hasattr(model, "best_estimator_"):  # also searches of other libraries
        return predictive(model.best_estimator_, rows)
    if isinstance(model, FrozenEstimator):
        return predictive(model.estimator, rows)
    if isinstance(model, Pipeline):
        if len(model) > 1:
            rows = _after_steps(model[:-1], rows)
        return predictive(model[-1], rows, part)
    if isinstance(model, CalibratedUncertaintyRegressor):
        if hasattr(model, "quantile_maps_"):
            raise TypeError(
                "`to_onnx` does not support isotonic recalibration; got Calibrated"
                "UncertaintyRegressor(method='isotonic'). Fit it with method='scale'."
            )
        distribution = predictive(model.estimator_, rows)
        return distribution.corrected(np.atleast_1d(model.scale_))
    table = table_of(model)
    if table is not None:
        return _of_table(model, table, rows, part)
    return _of_numbers(model, rows, part)


def _of_table(model, table: TableEncoder, rows: OnnxRows, part: Part | None):
    """Mixture of the versions of the rows, if their values may be unknown."""
    x, versions = encoded_versions(table, rows.inputs)
    encoded = OnnxRows({"table": x})

    def mixed(fitted, part):
        if versions is None:
            return _of_numbers(fitted, encoded, part)
        return _of_numbers(fitted, encoded, None).mixed(versions, part)

    if not any(getattr(model, "on_frame_", None) or []):
        return mixed(model, part)
    parts = [
        predictive(candidate, rows, of_candidate)
        if is_on_frame
        else mixed(candidate, of_candidate)
        for candidate, of_candidate, is_on_frame in zip(
            model.estimators_, _parts(model), model.on_frame_, strict=True
        )
    ]
    return _corrected(model, parts)


def _of_numbers(
    model, rows: OnnxRows, part: Part | None = None
) -> Regression | Classes:
    """Predictive distribution of a model whose columns are numbers, or encoded."""
    for kind, convert in _CONVERTERS.items():
        if isinstance(model, kind):
            return convert(model, rows, part)
    if isinstance(model, ForeignModel):
        raise TypeError(
            "`to_onnx` converts the candidates of skbayesnn; got "
            f"{type(model.estimator).__name__} in a stack. Leave it out of "
            "`estimators`, or predict with the stack itself."
        )
    raise TypeError(
        "`to_onnx` takes the estimators of skbayesnn, alone, as the last step of a "
        "Pipeline, in a search, in FrozenEstimator, or in CalibratedUncertainty"
        f"Regressor(method='scale'); got {type(model).__name__}. If this transforms y "
        "or mixes models, convert the networks inside separately."
    )


def _after_steps(steps: Pipeline, rows: OnnxRows) -> OnnxRows:
    """Output of the transformers of a pipeline."""
    transformers = [(n, thawed(s)) for n, s in steps.steps if hasattr(s, "transform")]
    encodes = [isinstance(step, TableEncoder) for _, step in transformers]
    if not any(encodes):
        return OnnxRows({"steps": transformed(steps, *rows)})
    i = encodes.index(True)
    if i:
        rows = OnnxRows({"steps": transformed(Pipeline(transformers[:i]), *rows)})
    x = encoded_table(transformers[i][1], rows.inputs)
    x = after_table(transformers[i + 1 :], x)
    return OnnxRows({"steps": x})


def _parts(model: BayesianStacking) -> list[Part]:
    """Places of the candidates in the mixture of a stack."""
    ends = np.cumsum(model.n_draws_)
    return [
        Part(int(end - n), int(n), int(ends[-1]))
        for end, n in zip(ends, model.n_draws_, strict=True)
    ]


def _stack(model: BayesianStacking, rows: OnnxRows, part: Part | None = None):
    """Mixture of the candidates of a stack for numbers."""
    pairs = zip(model.estimators_, _parts(model), strict=True)
    return _corrected(model, [predictive(c, rows, p) for c, p in pairs])


def _corrected(model: BayesianStacking, parts: list) -> Regression | Classes:
    """Mixture of the candidates of a stack, with its correction."""
    spaces = getattr(model, "candidate_spaces_", None) or [None] * len(parts)
    n_targets = len(model.spread_factor_)
    parts = [
        _in_space(part, space and TargetSpace(**space), n_targets)
        for part, space in zip(parts, spaces, strict=True)
    ]
    return _joined(parts).corrected(model.spread_factor_, BOUND)


def _network(model: BayesianNetwork, rows: OnnxRows, part: Part | None):
    """Mixture of the draws of a fitted posterior."""
    _check_supported(model)
    posterior = _fitted.restore_posterior(model, torch.device("cpu"), torch.float32)
    scaling = _fitted.restore_scaling(model)
    given = _single_input(rows).cast(np.float64)
    x = scaling.x_to_network(given).cast(np.float32)

    def log_exposure(column):
        return given.take([column], axis=1).log()

    n_draws = posterior.distinct_draws(model.n_draws)
    n_networks = n_draws * posterior.n_members
    parts: list = []
    every_use = _uses(part, n_networks)
    for members, uses, outputs in outputs_of(posterior, n_draws, every_use, x):
        likelihood, found = members.likelihood, components_of(members, outputs)
        if likelihood.is_classification:
            [probability] = found
            parts.append(Classes(uses, probability, vars(model)["classes_"]))
            continue
        draws = Draws(uses, likelihood.components_class(*found))
        regression = _regression(model, draws, scaling.dtype_of_y(np.float32), scaling)
        if not issubclass(likelihood.components_class, NORMAL):
            regression = replace(regression, not_normal=frozenset([likelihood.name]))
        if hasattr(model, "target_spaces_"):
            regression = regression.in_spaces(
                partial(recorded_of, model, log_exposure=log_exposure)
            )
        parts.append(regression)
    return _joined(parts)


def _kind(components) -> tuple | None:
    """What parts of a mixture that are spread together have in common."""
    if not isinstance(components, Recorded):
        return None
    return type(components.latent), components.spaces


def _in_space(found, space: TargetSpace | None, n_targets: int):
    """The counterpart of ``_predictive.mixture.in_space``."""
    if space is None:
        return found
    spaces = (space,) * n_targets

    def record(components):
        return (
            recorded(components, spaces) if components.is_location_scale else components
        )

    return found.in_spaces(record)


def _regression(
    model, draws: Draws, dtype=np.float64, scaling: Scaling | None = None
) -> Regression:
    """Draws in units of y, from the units of a scaling."""
    if scaling is not None:
        _check_units(scaling.y_mean, scaling.y_scale)
        components = scaling.components_from_network(draws.components)
        draws = draws._replace(components=components)
    return Regression((draws,), model.y_ndim_ == 1, np.dtype(dtype))


def _gaussians(uses: np.ndarray, mean: Any, variance: Any) -> Draws:
    """Normal draws, of tensors (draws, rows, targets)."""
    return Draws(uses, Gaussians(mean, variance))


def _uses(part: Part | None, n_draws: int) -> np.ndarray:
    """Places of the mixture that contain each draw of a model, (draws, places).

    part : places of the model, as `DrawArrays.resized`; None: one place for each draw
    """
    uses = np.eye(n_draws, dtype=bool)
    return uses if part is None else _resized(uses, part)


def _resized(uses: np.ndarray, part: Part) -> np.ndarray:
    """Evenly spaced places, as part of a larger mixture."""
    selected = np.arange(part.n_draws) * uses.shape[1] // part.n_draws
    resized = np.zeros((len(uses), part.n_total), dtype=bool)
    resized[:, part.first : part.first + part.n_draws] = uses[:, selected]
    return resized


def _used(part: Part | None, n_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the draws of a model that the mixture contains, and their places."""
    uses = _uses(part, n_draws)
    used = np.flatnonzero(uses.any(1))
    return used, uses[used]


def _mixing(
    uses: np.ndarray | Tensor, versions: Versions, part: Part | None
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Draws with one version of each row, as ``DrawArrays.mix_versions``.

    If every row has one version, pairs of the same draw are merged: a mixture with
    fewer draws takes less time.

    uses : (draws, places)
    part : places of the model in a larger mixture
    returns : shares of pairs of a draw and a version, (pairs, 1, 1); and a function
        that selects their rows from tensors (draws, versions of all rows, ...)
    """
    assert isinstance(uses, np.ndarray)  # mixed once
    times, turn = versions_of_draws(uses.shape[1], N_SUBSTITUTES)
    uses = np.repeat(uses, times, axis=1)
    of_version = turn == np.arange(N_SUBSTITUTES)[:, np.newaxis]
    draw, version = np.nonzero((uses[:, np.newaxis] & of_version).any(-1))
    used, first, index = np.unique(draw, return_index=True, return_inverse=True)
    # The first pair of each draw comes first.
    order = np.append(first, np.delete(np.arange(len(draw)), first))
    draw, version, index = draw[order], version[order], index[order]
    of_pairs = uses[draw] & of_version[version]
    share = (of_pairs if part is None else _resized(of_pairs, part)).mean(1)
    merged = np.zeros(len(draw))
    np.add.at(merged, index, share)

    graph = versions.number.graph
    has_more = versions.number.max(0).op("Greater", np.array(1))
    end = has_more.op("Where", np.array([len(draw)]), np.array([len(used)]))

    def needed(values):
        return values.op("Slice", np.array([0]), end)

    every_share = has_more.op("Where", graph.constant(share), graph.constant(merged))
    shares_of_pairs = needed(every_share).op("Unsqueeze", np.array([1, 2]))
    draw, version = (needed(graph.constant(v)) for v in (draw, version))
    # A row with one version uses it in all draws.
    rows = versions.first + version.unsqueeze(1).op("Mod", versions.number)
    rows = rows.unsqueeze(2)

    def select(values):
        return values.op("Gather", draw, axis=0).op("GatherND", rows, batch_dims=1)

    return shares_of_pairs, select


def _linear_model(
    model: ShrunkLinearRegressor | ShrunkLinearClassifier,
    rows: OnnxRows,
    part: Part | None,
):
    """Mixture of the draws of the weights."""
    n_draws = len(model.coef_)
    used, uses = _used(part, n_draws)
    x = _single_input(rows).cast(np.float64).take(model.columns_, axis=1)
    outputs = x @ model.coef_[used].transpose(0, 2, 1)
    outputs = outputs + model.intercept_[used][:, None]
    if isinstance(model, ShrunkLinearClassifier):
        sigmoid = outputs.op("Sigmoid")
        if len(model.classes_) == 2:
            probability = (1.0 - sigmoid).op("Concat", sigmoid, axis=2)
        else:
            probability = sigmoid / sigmoid.sum(2, keepdims=True)
        return Classes(uses, probability, model.classes_)
    variance = outputs.graph.constant(model.noise_variance_).expand_as(outputs)
    return _regression(model, _gaussians(uses, outputs, variance))


def _forest(model: ForestRegressor, rows: OnnxRows, part: Part | None) -> Regression:
    """Mixture of the trees."""
    n_trees = len(model.roots_)
    used, uses = _used(part, n_trees)
    x = _single_input(rows).cast(np.float32)
    mean = leaf_values(x, model, used, model.leaf_value_)
    if model.width is None:
        variance = leaf_values(x, model, used, model.leaf_variance_)
    else:
        squares = np.square(model.widths[used])[:, np.newaxis, np.newaxis]
        variance = x.graph.constant(squares).expand_as(mean)
    draws = _gaussians(uses, mean, variance)
    return _regression(model, draws, scaling=model._scaling)


def _class_forest(model: ForestClassifier, rows: OnnxRows, part: Part | None):
    """Draws about the mean of all trees."""
    n_trees, n_classes = len(model.roots_), len(model.classes_)
    drawn = model.drawn_trees
    used, uses = _used(part, len(drawn))
    x = _single_input(rows).cast(np.float32)
    values = np.concatenate([model.leaf_value_, model.leaf_overlap_], axis=1)
    outputs = np.tile(np.arange(n_classes + 1), (n_trees, 1))
    sums = summed_leaves(x, model, np.arange(n_trees), values, outputs)
    means = sums.cast(np.float64) / n_trees
    probability = model.draws_about(
        means.take(np.arange(n_classes), axis=1),
        means.take([n_classes], axis=1),
        leaf_values(x, model, drawn[used], model.leaf_value_),
    )
    return Classes(uses, probability, model.classes_)


def _boosting(model: BoostingClassifier, rows: OnnxRows, part: Part | None) -> Classes:
    """Class probabilities of gradient boosting, as one draw."""
    n_outputs, n_trees = len(model.baseline_), len(model.roots_)
    x = _single_input(rows).cast(np.float32)
    sums = summed_leaves(
        x,
        model,
        np.arange(n_trees),
        model.leaf_value_[:, None],
        (np.arange(n_trees) % n_outputs)[:, None],
    )
    outputs = sums.cast(np.float64) + model.baseline_
    if n_outputs == 1:
        sigmoid = outputs.op("Sigmoid")
        probability = (1.0 - sigmoid).op("Concat", sigmoid, axis=1)
    else:
        probability = outputs.op("Softmax", axis=1)
    return Classes(_uses(part, 1), probability.unsqueeze(0), model.classes_)


def _laplace(model: LaplaceModel, rows: OnnxRows, part: Part | None):
    """Mixture of the draws of linearised networks."""
    every_use = _uses(part, model.n_components)
    x = (_single_input(rows).cast(np.float64) - model.x_mean_) / model.x_scale_
    outputs, variances, uses = [], [], []
    n_networks = len(model.log_evidence_)
    for member in range(n_networks):
        layers, draws, noise, hidden = map(
            partial(model.layers_of, member), model.KINDS
        )
        units = features(hidden, model.activation, x)
        for first, sign in enumerate((1.0, -1.0)):
            of_draws = every_use[member::n_networks][first::2]
            used = of_draws.any(1)
            if not used.any():
                continue
            of_used = [(matrix[used], bias[used]) for matrix, bias in draws]
            f, change = linearised(layers, of_used, model.activation, units)
            outputs.append(f + change * sign)
            uses.append(of_draws[used])
            if isinstance(model, LaplaceRegressor):
                variance = model.noise_variance(member, noise, x)
                variances.append(outputs[-1] * 0.0 + variance)
    f, use = concatenated(outputs, 0), np.concatenate(uses)
    if isinstance(model, LaplaceClassifier):
        return Classes(use, logit_proba(f, model._n_outputs), model.classes_)
    assert isinstance(model, LaplaceRegressor)
    if model.likelihood_ == "poisson":
        counts = _regression(model, Draws(use, model.counts(f)))
        return replace(counts, not_normal=frozenset([model.likelihood_]))
    gaussians = _gaussians(use, f, concatenated(variances, 0))
    found = _regression(model, gaussians, scaling=model._scaling)
    return _in_space(found, model._space, len(model.y_mean_))


def _neighbours(model: NeighbourModel, rows: OnnxRows, part: Part | None):
    """Mixture of the draws of the embeddings."""
    n_draws = len(model.seeds_) * (model.n_draws if model.dropout_.any() else 1)
    used, uses = _used(part, n_draws)
    neighbours.check_size(model, len(used))
    x = _single_input(rows)
    if isinstance(model, NeighbourClassifier):
        probability = neighbours.class_shares(model, used, x)
        return Classes(uses, probability, model.classes_)
    assert isinstance(model, NeighbourRegressor)
    mixtures: Any = neighbours.normal_mixtures(model, used, x)
    scaling, draws = model._scaling, Draws(uses, GaussianMixtures(*mixtures))
    found = _regression(model, draws, scaling.dtype_of_y(np.float32), scaling)
    return _in_space(found, model._space, len(model.y_mean_))


def _single_input(rows: OnnxRows) -> Tensor:
    """Return the single tensor with all columns, which a network needs."""
    if len(rows.inputs) > 1:
        raise TypeError(
            "`initial_types` must have one input, unless a step of a Pipeline joins "
            f"several; got {', '.join(rows.inputs)}. Put a ColumnTransformer before "
            "the network, or leave `initial_types` out."
        )
    return next(iter(rows.inputs.values()))


def _check_units(y_mean: np.ndarray, y_scale: np.ndarray) -> None:
    """Raise if the mean or scale of y is zero in float32.

    ONNX Runtime removes the addition of a double that is zero in float32.
    """
    small = np.concatenate([y_mean, y_scale])
    is_lost = (small != 0) & (small.astype(np.float32) == 0)
    if is_lost.any():
        raise ValueError(
            "a graph needs y in a unit in which its mean and standard deviation are "
            f"not zero in float32; got {small[is_lost][0]:g}. Fit to y in a smaller "
            "unit, which makes the values larger."
        )


def _joined(parts):
    return reduce(lambda first, second: first.joined(second), parts)


def _check_supported(model: BayesianNetwork) -> None:
    """Raise for networks without ONNX operators."""
    network = model.network_["name"]
    if network != "mlp":
        raise TypeError(
            "`to_onnx` needs a multi-layer perceptron; got a network of kind "
            f"{network!r}. Fit with network=None, or MLP of skbayesnn.networks."
        )


_CONVERTERS: dict[type, Callable[..., Regression | Classes]] = {
    BayesianStacking: _stack,
    BayesianNetwork: _network,
    ShrunkLinearRegressor: _linear_model,
    ShrunkLinearClassifier: _linear_model,
    ForestRegressor: _forest,
    ForestClassifier: _class_forest,
    BoostingClassifier: _boosting,
    LaplaceModel: _laplace,
    NeighbourModel: _neighbours,
}
