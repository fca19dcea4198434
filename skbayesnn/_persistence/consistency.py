"""Check that the attributes of a fitted model are consistent: shapes, sizes, networks.

Each function raises ``ValueError``, or any error that a network of the wrong shapes
raises. It is called after the rules of the single attributes hold. Sizes are compared
with stored arrays before arrays of that size are allocated.
"""

import math
from copy import copy

import numpy as np
import torch
from sklearn.pipeline import Pipeline

from skbayesnn import _validation
from skbayesnn._data.column_encoding import (
    BY_TEXT,
    N_SUBSTITUTES,
    Column,
    features_of_values,
)
from skbayesnn._data.level_counts import LevelCounts
from skbayesnn._data.table_encoder import TableEncoder
from skbayesnn._data.validation import table_of
from skbayesnn._engine.posterior import Posterior
from skbayesnn._likelihoods.base import OfLabels
from skbayesnn._persistence.rules import is_fitted
from skbayesnn.estimators import _fitted
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._streaming import REFUSED

# Attributes of scikit-learn's scalers with one value per column.
_PER_COLUMN = (
    "center_",
    "data_max_",
    "data_min_",
    "mean_",
    "min_",
    "quantiles_",
    "scale_",
)
_CPU = torch.device("cpu")
# For one row, a network has at most _UNITS + _UNITS_PER_NUMBER times the number of
# stored parameters. Images and sequences need many more units than parameters.
_UNITS = 1 << 22
_UNITS_PER_NUMBER = 256


def agree(aspect: str, *values) -> None:
    """Raise if the values are not all equal; ``aspect`` names what they describe."""
    if any(value != values[0] for value in values):
        different = ", ".join(map(repr, values))
        raise ValueError(f"its attributes must agree in {aspect}; got {different}.")


def check_network(model: BayesianNetwork) -> None:
    """Check the network, its likelihood, its parameters and its scaling."""
    _validation.device_for_prediction(model.device)
    if not hasattr(model, "parameters_"):
        return
    _check_columns(model)
    posterior = _fitted.restore_posterior(model, _CPU, torch.float64)
    likelihood, n_columns = posterior.likelihood, _n_inputs(model)
    described = _fitted.describe_network(posterior.network, likelihood)
    agree("the network description", repr(described), repr(model.network_))
    network = posterior.network
    without_masks = tuple(family.with_mask_shape(None) for family in network.families)
    agree("where masks are placed", network, network.with_families(without_masks))
    _check_groups(posterior, model.parameters_)
    if hasattr(model, "replay_"):
        _check_replay(model.replay_, n_columns)
    if hasattr(model, "unfinished_"):
        _check_unfinished(model.unfinished_, model)
    if getattr(model, "pruning_", None) is None:
        _check_moments(model.optimizer_, model.parameters_, len(posterior.layers))
    agree("epochs", *(values.shape for values in model.history_.values()))
    agree("columns", (n_columns,), model.x_mean_.shape, model.x_scale_.shape)
    agree("the scaling of y", model.y_mean_.shape, model.y_scale_.shape)
    task = "the task (regression or classification)"
    agree(task, likelihood.is_classification, hasattr(model, "classes_"))
    if isinstance(likelihood, OfLabels):
        agree("classes", likelihood.n_labels, len(vars(model)["classes_"]))
    else:
        agree("targets", (_n_targets(likelihood),), model.y_mean_.shape)
        is_flat = _n_targets(likelihood) == 1 and model.y_ndim_ == 1
        agree("axes of y", True, is_flat or model.y_ndim_ == 2)
    _check_predictions(model, posterior)


def _check_predictions(model: BayesianNetwork, posterior: Posterior) -> None:
    """Predict one draw at the mean of the columns, and one std from it."""
    likelihood = posterior.likelihood
    components = _components_near_mean(model, posterior)
    if likelihood.is_classification:
        predicted = [components.probability]
    else:
        moments = components.mean, components.variance
        predicted = list(model._scaling.moments_from_network(*moments))
        if not (predicted[1] > 0).all():
            raise ValueError(
                "its predictive variance must be > 0 at the mean of the columns; got "
                f"{predicted[1].min()}."
            )
    _check_finite(predicted)


def _components_near_mean(model: BayesianNetwork, posterior: Posterior):
    """Components at the mean of the columns, and one std above and below it."""
    points = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64, device=_CPU)
    rows = points.view(1, -1, 1).expand(1, len(points), _n_inputs(model))
    with torch.no_grad():
        outputs = posterior.outputs(rows, range(1))
        components = posterior.predictive_components(outputs)
    n_outputs = posterior.likelihood.n_outputs
    agree("outputs", outputs.shape[-2:], (len(points), n_outputs))
    return components


def _check_finite(predicted: list) -> None:
    if not all(np.isfinite(values).all() for values in predicted):
        raise ValueError(
            "its predictions must be finite at the mean of the columns and one "
            "standard deviation from it; got NaN or infinity."
        )


def check_target_transform(model) -> None:
    """Check that the inverse transform of a network's predictions is finite."""
    network = model.regressor_
    if isinstance(network, Pipeline):
        network = network[-1]
    if not isinstance(network, BayesianNetwork):
        return
    posterior = _fitted.restore_posterior(network, _CPU, torch.float64)
    components = _components_near_mean(network, posterior)
    mean, _ = network._scaling.moments_from_network(
        components.mean, components.variance
    )
    with np.errstate(all="ignore"):
        predicted = model.transformer_.inverse_transform(
            mean.reshape(-1, mean.shape[-1])
        )
    _check_finite([predicted])


def _check_groups(posterior: Posterior, arrays: dict[str, np.ndarray]) -> None:
    """Compare names and shapes of all parameters with initial parameters."""
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
    agree("keep", arrays["keep"].shape, (len(network.families), n_members))
    if not ((arrays["keep"] > 0) & (arrays["keep"] <= 1)).all():
        raise ValueError(
            "the probability that a unit is kept must be in (0, 1]; got "
            f"{arrays['keep'].min()} to {arrays['keep'].max()}."
        )
    keep = tuple(torch.ones(n_members, device=_CPU) for _ in network.families)

    def zeros(group: int, *shape: int) -> torch.Tensor:
        return torch.zeros(n_members, *shape, device=_CPU)

    initial = network.init(zeros, keep)
    expected = {
        f"layers/{i}/{name}": tuple(value.shape)
        for i, group in enumerate(initial)
        for name, value in group.items()
    }
    for name, value in _initial_params(posterior.likelihood, n_members).items():
        expected[f"likelihood/{name}"] = tuple(value.shape)
    actual = {name: values.shape for name, values in arrays.items() if name != "keep"}
    for name in posterior.likelihood.predictive_params:
        # These exist only if the noise was estimated again after the training.
        shape = expected["likelihood/log_tau"]
        agree("noise", shape, actual.pop(f"likelihood/{name}", shape))
    agree("parameters", sorted(actual.items()), sorted(expected.items()))


def _check_replay(stored, n_columns: int) -> None:
    """Check the stored rows of a stream."""
    names = ["X", "y", "sample_weight", "key"]
    refused = [REFUSED + name for name in names[:3]]
    for group in (names, refused if REFUSED + "y" in stored else []):
        agree("stored rows", *(len(stored[name]) for name in group))
        if group:
            agree("columns", n_columns, stored[group[0]].shape[1])


# Keys of ``unfinished_``, and the types of their values.
_UNFINISHED = {
    "rows": str,
    "parameters": dict,
    "random_state": int,
    "length_scale": np.ndarray,
    "n_epochs": int,
    "predictive_params": dict | None,
    "nll": np.ndarray,
    "kl": np.ndarray,
    "validation": np.ndarray | None,
    "kl_constant": np.ndarray,
    "progress": dict,
}
_PROGRESS = {"score", "best_epoch", "stopped", "n_epochs"}


def _check_unfinished(state: dict, model) -> None:
    """Check what a fit needs to continue."""
    agree("keys of an unfinished fit", sorted(state), sorted(_UNFINISHED))
    for name, kind in _UNFINISHED.items():
        checked = isinstance(state[name], kind)
        agree(f"the type of `unfinished_[{name!r}]`", True, checked)
    arrays, n_members = state["progress"], len(model.seeds_)
    values = {name: v for name, v in arrays.items() if name.startswith("value/")}
    agree("progress", sorted(arrays.keys() - values), sorted(_PROGRESS))
    _check_moments(values, model.parameters_, len(model.parameters_["keep"]))
    n_epochs = len(state["nll"])
    agree("epochs", (n_epochs, n_members), state["nll"].shape, state["kl"].shape)
    if state["validation"] is not None:
        agree("epochs", (n_epochs, n_members), state["validation"].shape)
    lengths = [arrays[name].shape for name in _PROGRESS]
    agree("networks", (n_members,), state["kl_constant"].shape, *lengths)
    n_layers = len(model.parameters_["keep"])
    agree("layers", (n_layers,), state["length_scale"].shape)
    if state["n_epochs"] < n_epochs:
        raise ValueError(
            f"an unfinished fit must have at most {state['n_epochs']} epochs; got "
            f"{n_epochs}."
        )


def _check_moments(moments, parameters, n_layers: int) -> None:
    """Compare the shapes of the optimiser's moments with the parameters."""
    for name, values in moments.items():
        _, *path = name.split("/")
        if path:
            i, param = path
            group = "likelihood" if int(i) == n_layers else f"layers/{i}"
            agree(name, parameters[f"{group}/{param}"].shape, values.shape)


def _initial_params(likelihood, n_members: int):
    """Initial parameters of a likelihood for two rows, or for one row per class."""
    n = _n_targets(likelihood)
    y = (
        np.arange(n)
        if likelihood.is_classification
        else np.outer([1.0, 2.0], np.ones(n))
    )
    statistics = likelihood.statistics(y, np.ones(len(y)))
    per_member = torch.as_tensor(statistics).expand(n_members, -1)
    n_taus = 1 if likelihood.is_classification else n
    tau = torch.ones(n_members, n_taus, dtype=torch.float64, device=_CPU)
    return likelihood.init(tau, per_member)


def _n_targets(likelihood) -> int:
    """Number of targets or classes."""
    return (
        likelihood.n_classes if likelihood.is_classification else likelihood.n_targets
    )


def check_linear_model(model) -> None:
    """Check the draws of the weights, their columns, and the noise."""
    if not hasattr(model, "coef_"):
        return
    n_draws, n_outputs, n_weights = model.coef_.shape
    n_columns = model.n_features_in_
    agree("weights", n_weights, len(model.columns_))
    agree("intercepts", (n_draws, n_outputs), model.intercept_.shape)
    agree("columns", (n_columns,), model.x_mean_.shape, model.x_scale_.shape)
    if np.setdiff1d(model.columns_, np.arange(n_columns)).size or not n_draws:
        raise ValueError(
            "it must have at least one draw, and weights for columns 0 to "
            f"{n_columns - 1}; got {n_draws} draws and columns "
            f"{model.columns_.tolist()}."
        )
    if hasattr(model, "classes_"):
        n_classes = len(model.classes_)
        agree("classes", n_outputs, n_classes if n_classes > 2 else 1)
        noise = np.ones(1)
    else:
        noise = model.noise_variance_
        agree("targets", (n_outputs,), noise.shape)
        agree("axes of y", True, model.y_ndim_ == 2 or model.y_ndim_ == n_outputs)
    weights = model.coef_, model.intercept_, noise, model.x_scale_
    if not all(np.isfinite(values).all() for values in weights) or noise.min() <= 0:
        raise ValueError(
            "its weights and noise must be finite, and the noise positive."
        )


def check_foreign_model(model) -> None:
    """Check the noise of a regressor of another library, and its columns."""
    if hasattr(model, "noise_factor_"):
        n_targets, n_edges = model.noise_edges_.shape
        agree("targets", (n_targets,), model.noise_factor_.shape)
        agree("bins", (n_targets, n_edges + 1), model.noise_variances_.shape)
        agree("axes of y", True, model.y_ndim_ == 2 or n_targets == 1)
    if hasattr(model, "levels_"):
        n_levels = len(model.levels_)
        agree("fits", True, len(model.estimators_) in (1, n_levels))
        agree("levels", True, n_levels > 1 and 0 < model.levels_[0])
        agree("levels", True, model.levels_[-1] < 1)
        agree("targets", (1,), model.spread_factor_.shape, model.least_scale_.shape)
    if hasattr(model, "x_mean_"):
        columns = (model.n_features_in_,)
        agree("columns", columns, model.x_mean_.shape, model.x_scale_.shape)


def check_forest(model) -> None:
    """Check the trees of a forest, and the values of their leaves."""
    if not hasattr(model, "roots_"):
        return
    n_leaves, n_targets = model.leaf_mean_.shape
    _check_trees(model, n_leaves)
    values = model.threshold_, model.leaf_mean_, model.leaf_variance_
    agree("floats", np.dtype(np.float32), *(array.dtype for array in values))
    overlaps = n_leaves, 2 if model.width is None else 1
    agree("leaf overlaps", overlaps, model.leaf_overlap_.shape)
    agree("leaf overlaps", np.dtype(np.float16), model.leaf_overlap_.dtype)
    agree("leaf variances", model.leaf_variance_.shape[1:], (n_targets,))
    n_variances = n_leaves if model.width is None else 0
    agree("leaf variances", n_variances, len(model.leaf_variance_))
    agree("targets", (n_targets,), model.y_mean_.shape, model.y_scale_.shape)
    agree("axes of y", True, model.y_ndim_ == 2 or n_targets == 1)
    agree("trees", model.roots_.shape, model.is_wide_.shape)


def check_boosting(model) -> None:
    """Check the trees of gradient boosting, and its outputs."""
    if not hasattr(model, "roots_"):
        return
    _check_trees(model, len(model.leaf_value_))
    values = model.threshold_, model.leaf_value_, model.baseline_
    agree("floats", np.dtype(np.float64), *(array.dtype for array in values))
    n_classes, n_outputs = len(model.classes_), len(model.baseline_)
    agree("classes", n_outputs, n_classes if n_classes > 2 else 1)
    agree("trees of an iteration", 0, len(model.roots_) % n_outputs)


def _check_trees(model, n_leaves: int) -> None:
    """Check that each row reaches a leaf in each tree."""
    feature, child, n_nodes = model.feature_, model.child_, len(model.feature_)
    agree("nodes", (n_nodes,), model.threshold_.shape, child.shape)
    integers = model.roots_, feature, child
    agree("integers", np.dtype(np.int32), *(values.dtype for values in integers))
    node, is_leaf = np.arange(n_nodes), feature == -1
    last = np.where(is_leaf, n_leaves, n_nodes)
    # Children come later, so that a row cannot return to a node.
    first = np.where(is_leaf, 0, node + 1)
    is_valid = (feature >= -1) & (feature < model.n_features_in_)
    is_valid &= (child >= first) & (child < last) & (is_leaf | (node < n_nodes - 1))
    is_root = (model.roots_ >= 0) & (model.roots_ < n_nodes)
    if not (is_valid.all() and is_root.all() and len(is_root)):
        raise ValueError(
            "trees must have roots, columns, children and leaves that exist; got "
            f"{np.count_nonzero(~is_valid)} invalid nodes of {n_nodes}."
        )
    columns = (model.n_features_in_,)
    agree("columns", columns, model.x_mean_.shape, model.x_scale_.shape)


def check_neighbours(model) -> None:
    """Check the shapes of the training rows and of the networks, and predict a row."""
    if not hasattr(model, "parameters_"):
        return
    from skbayesnn._engine.compiled.neighbours import part_shapes

    _check_columns(model)
    n_rows, n_columns = model.X_train_.shape
    if n_rows < 2:
        raise ValueError(f"it must have at least 2 training rows; got {n_rows}.")
    agree("rows", (n_rows,), model.y_train_.shape[:1], model.weights_train_.shape)
    agree("columns", (_n_inputs(model),), (n_columns,), model.x_mean_.shape)
    agree("columns", model.x_mean_.shape, model.x_scale_.shape)
    n_inputs = n_columns
    if model.encoder_ is not None:
        agree("encoded columns", n_columns, model.encoder_.n_features_in_)
        n_inputs = model.encoder_.transform(np.zeros((1, n_columns))).shape[1]
    parts, n_networks = model.parameters_, len(model.seeds_)
    hidden, embedding = parts["w3"].shape[1:]
    shapes = part_shapes(n_inputs, hidden, embedding, model._n_targets)
    agree("the names of parameters", list(shapes), list(parts))
    for name, shape in shapes.items():
        agree(f"the shape of {name}", (n_networks, *shape), parts[name].shape)
    agree("layers", (2,), model.dropout_.shape)
    for values in (model.X_train_, *parts.values()):
        agree("the precision", np.dtype(model.dtype), values.dtype)
    if hasattr(model, "classes_"):
        if model.y_train_.max() >= len(model.classes_):
            raise ValueError(
                "its classes must be indices of `classes_`; got "
                f"{model.y_train_.max()} with {len(model.classes_)} classes."
            )
    else:
        n_targets, y = model._n_targets, model.y_train_
        agree("targets", (n_targets,), model.y_mean_.shape, model.y_scale_.shape)
        agree("axes of y", y.shape[1:], () if n_targets == 1 else (n_targets,))
        agree("axes of y", True, model.y_ndim_ == 2 or n_targets == 1)
    one_draw = copy(model)
    one_draw.n_draws = 1
    with np.errstate(all="ignore"):
        predictive = one_draw._of_rows(model.x_mean_[None], one_draw._draws())
        predicted = [predictive.mean()]
        if not hasattr(model, "classes_"):
            std = predictive.uncertainty(["aleatoric"])["aleatoric"]
            predicted.append(np.log(std))
    _check_finite(predicted)


def check_encoder(model) -> None:
    """Check the bin edges and the values of each column."""
    if not hasattr(model, "bin_edges_"):
        return
    per_column = model.bin_edges_, model.n_bins_, model.values_
    agree("columns", model.n_features_in_, *map(len, per_column))
    n_bins = [len(edges) - 1 for edges in model.bin_edges_]
    agree("bins", n_bins, model.n_bins_.tolist())


def check_column(column: Column) -> None:
    """Check the features of a column of a frame, for missing and extreme values."""
    n_features, n_levels = len(column.suffixes), len(column.levels)
    is_dropped = column.encoding.startswith("dropped: ")
    agree("whether it is dropped", is_dropped, n_features == 0)
    if column.time_zone is not None:
        agree("the kind of a column with a time zone", column.kind, "date")
    has_levels = column.kind == "category" and not is_dropped
    shape = (n_levels + 1, n_features) if has_levels else (0, 0)
    agree("levels", shape, column.level_features.shape)
    is_never_unknown = is_dropped or (column.indicator and not has_levels)
    shape = (0, 0) if is_never_unknown else (N_SUBSTITUTES, n_features)
    agree("substitutes of unknown values", shape, column.substitutes.shape)
    shape = (n_levels + 1, n_features) if column.uses_y else (0, 0)
    agree("spreads of levels", shape, column.spreads.shape)
    agree("whether text is used", column.encoding == BY_TEXT, column.parts is not None)
    shape = (0, 0)
    if column.parts is not None:
        n_parts = len(set(column.parts.vocabulary))
        agree("parts", n_parts, len(column.parts.vocabulary), len(column.parts.idf))
        shape = (n_parts, n_features)
    agree("coefficients of parts", shape, column.coefficients.shape)
    agree("ratios of text", shape[1:], column.text_ratio.shape)
    for values in (column.level_features, column.substitutes, column.coefficients):
        if not np.isfinite(values).all():
            raise ValueError(
                f"the features of a column must be finite; got {values.tolist()}."
            )
    if has_levels and n_levels == column.indicator:
        raise ValueError("a category must have a level that is not missing.")
    named = column.levels[: n_levels - (has_levels and column.indicator)]
    named += column.rare
    agree("the number of distinct levels", len(set(named)), len(named))
    if is_dropped or has_levels:
        return
    low, high = column.bounds
    if not (math.isfinite(low) and low <= column.fill <= high < math.inf):
        raise ValueError(
            f"the median of a column must be between its finite bounds {low} and "
            f"{high}; got {column.fill}."
        )
    if column.kind == "ordered" and not 0 <= low <= high < n_levels:
        raise ValueError(
            f"positions of {n_levels} levels must be from 0 to {n_levels - 1}; got "
            f"{low} to {high}."
        )
    features = features_of_values(np.array([np.nan, low, high]), column)
    agree("features", features.shape, (3, n_features))
    if not np.isfinite(features).all():
        raise ValueError(
            f"a column must have finite features; got {features.tolist()} for missing "
            f"values, {low} and {high}."
        )


def check_table(encoder: TableEncoder) -> None:
    """Check the names of the columns."""
    if not hasattr(encoder, "_columns"):
        return
    names = [column.name for column in encoder._columns]
    agree("columns", encoder.n_features_in_, len(names), len(set(names)))
    if hasattr(encoder, "feature_names_in_"):
        agree("names of columns", names, list(encoder.feature_names_in_))
    for counts in encoder.level_counts:
        _check_counts(counts, encoder._columns)


def _check_counts(counts: LevelCounts, columns: list[Column]) -> None:
    """Check the combinations of levels, and their columns."""
    agree("combinations of levels", len(counts.keys), len(counts.counts))
    if max(counts.columns) >= len(columns):
        raise ValueError(
            f"columns with numbers of rows must be from 0 to {len(columns) - 1}; got "
            f"{counts.columns}."
        )
    counted = [columns[j] for j in counts.columns]
    agree("columns with statistics of y", len(counted), sum(c.uses_y for c in counted))
    n_keys = math.prod(len(column.levels) for column in counted)
    keys = counts.keys
    if (np.diff(keys) <= 0).any() or keys.max(initial=-1) >= n_keys:
        raise ValueError(
            f"keys of combinations of levels must rise, from 0 to {n_keys - 1}."
        )


def _check_columns(model) -> None:
    """Compare the columns of a model and of its fitted table."""
    table = table_of(model)
    if table is None:
        return
    if not is_fitted(table):
        raise ValueError("`table_` must be fitted; got an encoder without columns.")
    agree("columns", model.n_features_in_, table.n_features_in_)
    names = [getattr(owner, "feature_names_in_", None) for owner in (model, table)]
    agree("names of columns", *(None if n is None else list(n) for n in names))


def _features(table: TableEncoder) -> list:
    """Names, kinds and numbers of features of the columns, and counted columns."""
    columns = [(c.name, c.kind, c.suffixes) for c in table._columns]
    return [*columns, *(counts.columns for counts in table.level_counts)]


def _n_inputs(model) -> int:
    """Number of columns that a network gets."""
    table = table_of(model)
    if table is None:
        return model.n_features_in_
    return table.n_features_out


def check_scaler(model) -> None:
    """Check that a scaler has one value per column."""
    arrays = [vars(model).get(name) for name in _PER_COLUMN]
    columns = {values.shape[-1] for values in arrays if values is not None}
    if hasattr(model, "n_features_in_"):
        agree("columns", columns | {model.n_features_in_}, {model.n_features_in_})
    if columns:  # Without arrays the number of columns is not verified.
        row = np.zeros((1, *columns))
        transformed = model.transform(row)
        agree("columns", transformed.shape, row.shape)
        if not np.isfinite(transformed).all():
            raise ValueError(
                f"it must transform zeros to finite values; got {transformed}."
            )


def check_quantile_map(model) -> None:
    """Check that levels and shares have the same length, and range from 0 to 1."""
    agree("knots", len(model.level), len(model.share))
    for values in (model.level, model.share):
        agree("the first and last knot", [0.0, 1.0], values[[0, -1]].tolist())


def check_abstainer(model) -> None:
    """Check that the label of rejected rows matches the parameter."""
    if not hasattr(model, "abstain_label_"):
        return
    param, label = model.abstain_label, model.abstain_label_
    if isinstance(param, str) and param == "auto":
        allowed = ["abstain", -1] if hasattr(model, "classes_") else [math.nan]
    else:
        allowed = [param]
    agree("the label of rejected rows", True, repr(label) in map(repr, allowed))


def check_search(model) -> None:
    """Check that the index of the best candidate exists."""
    if hasattr(model, "best_index_"):
        n_candidates = len(model.cv_results_["params"])
        agree("candidates", True, model.best_index_ < n_candidates)


def check_calibration(model) -> None:
    """Check that each target has a quantile map."""
    maps = getattr(model, "quantile_maps_", None)
    if maps is not None:
        agree("targets", np.size(model.scale_), len(maps))


def check_conformal(model) -> None:
    """Check the number of calibration rows."""
    if not hasattr(model, "conformal_"):
        return
    scores = model.conformal_
    if isinstance(scores, list):
        agree("models", len(model.estimators_), len(scores))
        n_scores = sum(map(len, scores))
    else:
        n_scores = len(scores.alphas)
    agree("calibration rows", model.n_calibration_, n_scores)


def check_monitor(model) -> None:
    """Check the held-out rows of each model."""
    if not hasattr(model, "held_out_"):
        return
    agree("models", len(model.estimators_), len(model.held_out_))
    agree("held-out rows", sum(map(len, model.held_out_)), len(model.uncertainty_))
    columns = model.training_columns_
    if not columns:  # a sparse matrix, or images
        return
    agree("training rows", *(column.n_rows for column in columns))
    first = model.estimators_[0]
    if hasattr(first, "n_features_in_"):
        agree("columns", first.n_features_in_, len(columns))
    if hasattr(first, "feature_names_in_"):
        names = [column.name for column in columns]
        agree("names of columns", list(first.feature_names_in_), names)


def check_training_column(column) -> None:
    """Check the numbers of values of a column of the training rows."""
    n_levels, n_values = len(column.levels), len(column.values)
    agree("levels", n_levels, len(column.counts), len(set(column.levels)))
    n_present = column.n_rows - column.n_missing
    if column.has_levels:
        agree("rows of the levels", n_present, int(column.counts.sum()))
    else:
        agree("whether a column has levels", 0, n_levels)
    has_numbers = n_present > 0 and not column.has_levels and column.kind != "other"
    agree("whether a column has numbers", has_numbers, n_values > 0)
    if n_values > n_present:
        raise ValueError(
            f"a column must have at most {n_present} values, of {column.n_rows} rows; "
            f"got {n_values}."
        )
    if column.direction and not n_values:
        raise ValueError(
            "a column that rises or falls from row to row must have values."
        )
    if column.time_zone is not None:
        agree("the kind of a column with a time zone", column.kind, "date")


def check_stack(model) -> None:
    """Check the candidates of the mixture and of its folds."""
    if not hasattr(model, "estimators_"):
        return
    n_parts = len(model.estimators_)
    agree("candidates", n_parts, len(model.n_draws_))
    on_frame = getattr(model, "on_frame_", None) or [False] * n_parts
    agree("candidates", n_parts, len(on_frame))
    n_columns = [
        getattr(candidate, "n_features_in_", None)
        for candidate, is_on_frame in zip(model.estimators_, on_frame, strict=True)
        if not is_on_frame
    ]
    _check_columns(model)
    agree("columns", _n_inputs(model), *(n for n in n_columns if n is not None))
    is_classification, shape = hasattr(model, "classes_"), model.oof_prediction_.shape
    if len(model.spread_factor_) != 1 or is_classification:
        n_factors = 1 if is_classification else math.prod(shape[1:])
        agree("factors of the spread", n_factors, len(model.spread_factor_))
    if hasattr(model, "fold_estimators_"):
        agree("candidates", n_parts, *map(len, model.fold_estimators_))
        agree("folds", len(model.fold_estimators_), len(model.fold_scores_))
    tables = getattr(model, "fold_tables_", None)
    table = table_of(model)
    # Folds have encoders only if encodings are statistics of y.
    uses_y = table is not None and table.uses_y
    agree("whether folds have encoders", tables is not None, uses_y)
    if tables is not None:
        n_folds = len(getattr(model, "fold_estimators_", tables))
        agree("folds", n_folds, len(tables))
        agree("features", *(_features(table) for table in [table, *tables]))


def check_pipeline(model) -> None:
    """Check the steps; raise for a folder, from which a fit would load pickles."""
    if model.memory is not None:
        raise ValueError(
            f"a Pipeline must have memory=None; got {model.memory!r}. A fit loads "
            "pickles from that folder: set it after loading."
        )
    for name, step in model.steps:
        is_step = step == "passthrough" or hasattr(step, "fit")
        if not (isinstance(name, str) and is_step):
            raise ValueError(
                f"a Pipeline must have named estimators; got {name!r}, {step!r}."
            )
