"""The pool of a stack: estimators with grids of their settings, given or by default.

The constants of the default pool come from a study: docs/defaults.md, "Stacks:
candidates".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skbayesnn._batch.jobs import last_step
from skbayesnn._distributions.recorded import TargetSpace
from skbayesnn._stacking.boosting import BoostingClassifier
from skbayesnn._stacking.folds import FOLDS_BELOW
from skbayesnn._stacking.foreign import adapted, takes_frame
from skbayesnn._stacking.forest import ForestClassifier, ForestRegressor
from skbayesnn._stacking.linear import ShrunkLinearClassifier, ShrunkLinearRegressor
from skbayesnn._stacking.separate_model import SeparateModel
from skbayesnn._stacking.target import Target
from skbayesnn._validation import batch_rows, check_option
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators.laplace import LaplaceModel, LaplaceRegressor
from skbayesnn.estimators.mc_dropout import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.estimators.neighbours import NeighbourModel, NeighbourRegressor
from skbayesnn.preprocessing import PiecewiseLinearEncoder

Grid = dict[str, Sequence[Any]]

# Units of both hidden layers.
WIDTH = 32
# Units of both hidden layers from WIDE_FROM rows on.
LARGE_WIDTH = 64
WIDE_FROM = 3000
# Bounds of the number of training steps.
MIN_STEPS = 750
MAX_STEPS = 5000
# From this many rows on, columns have more bins, and networks with the higher dropout
# rate train for fewer steps.
MANY_ROWS = 10_000
# Share of the steps for which these networks train. More steps do not improve them.
SHARE_OF_STEPS = 0.25
# Columns are not encoded if fewer bins than this are possible.
MIN_BINS = 4
# Largest number of bins of a column.
MAX_BINS = 16
# Largest number of bins of a column from MANY_ROWS rows on.
MAX_BINS_OF_MANY_ROWS = 32
# Largest number of bins of all columns. The cost of a network grows with the number of
# its inputs.
MAX_ENCODED = 256
# Largest number of indicator features of single values, over all columns.
MAX_VALUES = 128
# Largest sparse table that becomes dense, which the encoder needs. Tables with few
# columns have numeric columns as well as one-hot categories.
MAX_COLUMNS = 256
MAX_DENSE_ENTRIES = 2**25

# Linear models, from nearly no shrinkage to strong shrinkage. Their observation noise
# is constant. This suits small tables, where a noise that depends on the row cannot be
# estimated.
LINEAR_LENGTH_SCALES = (1.0, 2.0, 4.0, 8.0)
# Ridge and lasso replace these linear models with fewer rows than this. Ridge and lasso
# estimate their penalty and have a posterior.
SHRUNK_BELOW = FOLDS_BELOW
# They also replace them with more columns than this share of the rows.
SHARE_OF_COLUMNS = 0.2
# Numbers of rows with which ridge and lasso are used.
SHRUNK_ROWS = range(10, 1001)
# Largest number of entries of X with which ridge and lasso are used.
SHRUNK_ENTRIES = 2**22
REGRESSION_PENALTIES = "ridge", "lasso", "adaptive_lasso"
# Widths of the trees' kernels as shares of the standard deviation of y; None is the
# variance within leaves of a few rows.
FOREST_WIDTHS = (0.03, 0.1, 0.25, None)
# Trees are used from this number of rows on, with fewer columns than rows.
TREES_FROM = 200
# Numbers of rows with which networks by evidence are used, with fewer columns.
LAPLACE_ROWS = range(20, 20_001)
LAPLACE_HIDDEN = {"fast": [(16,)], "auto": [(16,)], "best": [(16,), (16, 16)]}
# Largest number of them that is fitted to all rows, from WIDE_FROM rows on.
LAPLACE_REFITS = 2
# Neighbours are used from this number of rows on, with fewer columns than rows.
NEIGHBOURS_FROM = 5000
# Settings of boosted trees with fewer than WIDE_FROM rows.
BOOSTING_OF_FEW_ROWS = {
    "max_iter": 150,
    "max_leaf_nodes": 7,
    "min_samples_leaf": 5,
    "early_stopping": False,
}
CLASSIFICATION_PENALTIES = {
    "ridge": (0.3, 1.0, 3.0, 10.0),
    "lasso": (0.4, 0.2, 0.1, 0.05),
}


class PoolSize(NamedTuple):
    """Settings of the default candidates that determine their training time.

    Parameters
    ----------
    regression_refits, many_rows_refits, classification_refits : int
        Defaults of ``n_refits``: of regression, also from ``WIDE_FROM`` rows on, and of
        classification.
    folds_below : int, or None
        Argument of ``make_folds``.
    n_trees : int
        Number of trees of a forest; half as many for classes.
    """

    regression_refits: int
    many_rows_refits: int
    classification_refits: int
    folds_below: int | None
    n_trees: int


SIZES = {
    "fast": PoolSize(2, 1, 1, None, 60),
    "auto": PoolSize(4, 4, 2, None, 200),
    "best": PoolSize(6, 6, 4, 3000, 200),
}
# Largest number of training steps in the fast pool.
MAX_FAST_STEPS = 2500


class NetworkPool(NamedTuple):
    """Networks of the default pool, for regression or for classification.

    Parameters
    ----------
    network : class
    steps : int
        Training steps per square root of the number of rows.
    rates : tuple of Grid
        The lower and the higher dropout rate. relu and silu suit different tables.
    length_scales : tuple
    fast : tuple of list of Grid
        Grids of the fast pool: of networks on the columns, and on encoded ones.
    larger_length_scales : tuple
        Of the deeper and wider networks of the best pool.
    options : dict
        Further parameters of all networks.
    on_columns : dict
        Further parameters of the networks on the original columns.
    further : list of Grid
        Further grids on encoded columns of the fast pool below ``WIDE_FROM`` rows,
        where they cost little.
    """

    network: type[MCDropoutRegressor | MCDropoutClassifier]
    steps: int
    rates: tuple[Grid, Grid]
    length_scales: tuple
    fast: tuple[list[Grid], list[Grid]]
    larger_length_scales: tuple
    options: dict[str, Any]
    on_columns: dict[str, Any]
    further: Sequence[Grid] = ()


# The last one is also fitted on another scale of y.
FAST_GRIDS: list[Grid] = [
    {"dropout": [0.01], "activation": ["silu"], "length_scale": [1.0]},
    {"dropout": [0.0], "length_scale": [3.0]},
]
REGRESSION = NetworkPool(
    MCDropoutRegressor,
    steps=75,
    rates=({"dropout": [0.0]}, {"dropout": [0.01], "activation": ["silu"]}),
    length_scales=(1.0, 3.0, "fan_in"),
    fast=(FAST_GRIDS, FAST_GRIDS[::-1]),
    larger_length_scales=(1.0, 3.0),
    options={"likelihood": "heteroscedastic"},
    on_columns={},
    further=[{"dropout": [0.0], "length_scale": ["fan_in"]}],
)
# Most lifetimes are noisy: networks with the higher dropout rate replace some.
LIFETIMES = REGRESSION._replace(
    rates=(
        {"dropout": [0.0], "length_scale": [1.0, 3.0]},
        {
            "dropout": [0.01, 0.2],
            "activation": ["silu"],
            "length_scale": [1.0, 4.0],
        },
    ),
    fast=(
        [{"dropout": [0.0, 0.2], "activation": ["silu"], "length_scale": [3.0]}],
        [{"dropout": [0.01, 0.2], "activation": ["silu"], "length_scale": [4.0]}],
    ),
    further=(),
)
CLASSIFICATION = NetworkPool(
    MCDropoutClassifier,
    steps=40,
    rates=({"dropout": [0.05]}, {"dropout": [0.2]}),
    length_scales=(0.3, 1.0, 3.0),
    fast=(
        [{"dropout": [0.05], "length_scale": [0.3, 1.0]}],
        [{"dropout": [0.2], "length_scale": [0.3]}],
    ),
    larger_length_scales=(0.3, 3.0),
    options={},
    # On encoded columns this learning rate is too high.
    on_columns={"learning_rate_init": 0.03},
)


class CandidateSpec(NamedTuple):
    """One estimator of the pool, and the grid of its settings.

    Parameters
    ----------
    name : str
    estimator : estimator
        One of this package, or a pipeline with one as its last step.
    grid : dict, or list of dict
        Argument of ``ParameterGrid``.
    on_frame : bool
        Whether the estimator gets the original X, if the stack encodes its columns.
    space : TargetSpace or None
        From y to what the estimator is fitted to, if it has no bounds itself.
    """

    name: str
    estimator: Any
    grid: Any
    on_frame: bool = False
    space: TargetSpace | None = None


# Groups of the default candidates, in the order of their training times.
DEFAULT_GROUPS = (
    "encoded",
    "network",
    "linear",
    "forest",
    "laplace",
    "neighbours",
    "boosted_trees",
)


def default_pool(size: str = "auto") -> list[tuple[str, str]]:
    """Names of the default candidates of a stack, as a list to extend.

    ``BayesianStackingRegressor(default_pool())`` is the same as the default
    ``estimators="auto"``, and so for the classifier and for the other sizes. The
    settings of the candidates depend on the rows: the stack chooses them in ``fit``.
    Leave an item out, or append estimators of other libraries.

    Parameters
    ----------
    size : {"fast", "auto", "best"}, default="auto"
        Number of settings and of starts of the candidates, as in the parameter
        ``estimators`` of a stack.

    Returns
    -------
    estimators : list of (name, size)
        ``"encoded"`` are networks on encoded columns, ``"network"`` are networks on the
        original columns, ``"linear"`` are linear models, ``"forest"`` are extremely
        randomised trees (for classes also bagged trees), ``"laplace"`` are small
        networks by evidence and ``"neighbours"`` nearest neighbours in a learned
        embedding, both for regression only, and ``"boosted_trees"`` is gradient
        boosting of classes. The last four depend on the number of rows.

    Examples
    --------
    >>> import skbayesnn
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> boosting = HistGradientBoostingRegressor(max_iter=20)
    >>> pool = [*skbayesnn.default_pool(), ("boosting", boosting)]
    >>> model = skbayesnn.BayesianStackingRegressor(pool, max_iter=5, random_state=0)
    >>> "boosting" in model.fit(X, y).weights_["weight"]
    True
    """
    check_option("size", size, list(SIZES))
    return [(name, size) for name in DEFAULT_GROUPS]


def largest_size(items: Sequence[tuple]) -> PoolSize:
    """The largest size of the default candidates; ``"auto"`` without any."""
    sizes = [item[1] for item in items if isinstance(item[1], str)]
    order = list(SIZES)
    return SIZES[max(sizes, key=order.index, default="auto")]


def pool_items(estimators) -> list[tuple]:
    """Items of a pool as (name, estimator, grid), with a size for default groups.

    Raises
    ------
    TypeError, ValueError
        If it is not a list of (name, estimator) or (name, estimator, grid).
    """
    rule = (
        "`estimators` must be 'fast', 'auto', 'best' or a list of (name, estimator) or "
        "(name, estimator, grid of its parameters)"
    )
    if isinstance(estimators, str):
        check_option("estimators", estimators, list(SIZES))
        estimators = default_pool(estimators)
    if not isinstance(estimators, list | tuple) or not estimators:
        raise TypeError(f"{rule}; got {estimators!r}.")
    items = []
    for item in estimators:
        if not isinstance(item, list | tuple) or len(item) not in (2, 3):
            raise TypeError(f"{rule}; got the item {item!r}.")
        name, estimator, *grid = item
        if not isinstance(name, str):
            raise TypeError(f"{rule}; got the name {name!r}.")
        if isinstance(estimator, str):
            if name not in DEFAULT_GROUPS or estimator not in SIZES:
                raise ValueError(
                    f"a default candidate must be one of {', '.join(DEFAULT_GROUPS)}, "
                    f"with one of the sizes {', '.join(SIZES)}; got {item!r}. Take "
                    "items of default_pool()."
                )
            if grid:
                raise TypeError(f"{rule}; the grid of {name!r} must be left out.")
        items.append((name, estimator, grid[0] if grid else {}))
    return items


def is_own(estimator) -> bool:
    """Whether this is a model of this package, or a pipeline that ends in one."""
    own = BayesianNetwork | LaplaceModel | NeighbourModel | SeparateModel
    return isinstance(last_step(estimator), own)


def given_spec(item, seed: int, *, is_classification: bool) -> CandidateSpec:
    """Candidate that a user gives.

    seed : random state of an estimator without one

    Raises
    ------
    TypeError
        If the estimator does not predict what the stack requires.
    """
    name, estimator, grid = item
    if is_own(estimator):
        on_frame, estimator = isinstance(estimator, Pipeline), clone(estimator)
        model = last_step(estimator)
        if model.random_state is None:
            model.set_params(random_state=seed)
        return CandidateSpec(name, estimator, grid, on_frame)
    adapter = adapted(name, estimator, is_classification=is_classification, seed=seed)
    grids = [grid] if isinstance(grid, Mapping) else grid
    grids = [
        {f"estimator__{param}": values for param, values in grid.items()}
        for grid in grids
    ]
    return CandidateSpec(name, adapter, grids, takes_frame(estimator))


def default_specs(
    X,
    sample_weight,
    *,
    is_classification: bool,
    max_iter,
    size: str = "auto",
    n_targets: int = 1,
    target: Target | None = None,
    **params,
) -> list[CandidateSpec]:
    """Networks, linear models, forests, neighbours and boosted trees.

    With at least as many columns as rows the pool has fewer networks. Linear models
    with a penalty predict such tables as well or better, unless the function is far
    from linear in a few directions.

    X : {array, sparse matrix} of shape (rows, columns), validated
    n_targets : number of targets
    target : what y is; plain numbers by default
    sample_weight : ndarray of shape (rows,)
    max_iter : int, epochs, or "auto"
    size : key of ``SIZES``
    params : parameters of all networks
    """
    n_rows, target = int(np.count_nonzero(sample_weight)), target or Target()
    networks = CLASSIFICATION if is_classification else REGRESSION
    if target.quantiles is not None:
        networks = LIFETIMES
    width = LARGE_WIDTH if n_rows >= WIDE_FROM else WIDTH
    params |= {
        "hidden_layer_sizes": (width, width),
        "batch_size": batch_rows("auto", n_rows),
        "max_iter": max_iter,
        # The stack itself holds out rows.
        "early_stopping": False,
    }
    grids = [{"length_scale": networks.length_scales} | rate for rate in networks.rates]
    if max_iter == "auto":
        most = MAX_FAST_STEPS if size == "fast" else MAX_STEPS
        params["max_iter"] = _n_epochs(n_rows, networks.steps, most)
        if n_rows >= MANY_ROWS:
            grids[1]["max_iter"] = [math.ceil(SHARE_OF_STEPS * params["max_iter"])]
    is_shrunk, is_wide = _uses_shrunk_models(X, n_rows), X.shape[1] >= n_rows
    # Linear networks know intervals.
    is_shrunk &= not target.has_intervals
    if target.bounds is not None and target.quantiles is None:
        params["y_bounds"] = target.bounds
    linear = _linear_specs(
        networks.network(**params), is_classification, is_shrunk, target
    )
    on_columns = on_encoded = grids
    if size == "fast":
        on_columns, on_encoded = networks.fast
        if n_rows < WIDE_FROM:
            on_encoded = [*networks.further, *on_encoded]
    elif size == "best":
        on_columns, on_encoded = (
            _with_larger(grids, networks, width, is_encoded=is_encoded)
            for is_encoded in (False, True)
        )
    if is_shrunk and is_wide and not is_classification:
        on_columns = [grid | {"length_scale": ["fan_in"]} for grid in grids]
    params |= networks.options
    network = networks.network(**params | networks.on_columns)
    on_columns = _with_scale(on_columns, target)
    pool = [
        CandidateSpec("network", network, on_columns, space=target.quantiles),
        *linear,
    ]
    without_limits = target.space(target.scale_without_limits)
    is_small = n_rows < TREES_FROM or is_wide or sparse.issparse(X)
    if is_classification and not is_small:
        pool += _class_tree_specs(n_rows, size, params.get("random_state"))
    if not is_classification and not is_small:
        forest = ForestRegressor(
            n_trees=SIZES[size].n_trees, random_state=params.get("random_state")
        )
        grid = {"width": FOREST_WIDTHS}
        pool.append(CandidateSpec("forest", forest, grid, space=without_limits))
    suits_laplace = not (is_classification or is_wide or sparse.issparse(X))
    if suits_laplace and n_rows in LAPLACE_ROWS:
        laplace = LaplaceRegressor(
            n_estimators=1, random_state=params.get("random_state")
        )
        hidden = {"hidden_layer_sizes": LAPLACE_HIDDEN[size]}
        pool.append(CandidateSpec("laplace", laplace, hidden, space=without_limits))
    if n_rows >= NEIGHBOURS_FROM and n_targets == 1 and not is_classification:
        if not is_small and size != "fast":
            spec = _neighbours_spec(n_rows, params["batch_size"], max_iter, params)
            pool.append(spec._replace(space=target.space()))
    n_bins = 0 if sparse.issparse(X) or is_wide else _n_bins(X, sample_weight)
    if n_bins < MIN_BINS:
        return pool
    # The encoder does not use y, except that the edges of a column of level means rest
    # on means of y. Fitted once to all rows, it gives all folds the same number of
    # columns, so that they can share a program.
    encoder = _encoder(X, sample_weight, n_bins)
    if target.exposure is not None:
        position = int(encoded_positions(encoder)[target.exposure])
        target = replace(target, exposure=position)
    on_encoded = _with_scale(on_encoded, target, is_encoded=True)
    frozen = FrozenEstimator(encoder)
    encoded = Pipeline([("encoder", frozen), ("network", networks.network(**params))])
    grids = [
        {f"network__{name}": values for name, values in grid.items()}
        for grid in on_encoded
    ]
    # Longest training first, which balances parallel workers.
    return [CandidateSpec("encoded", encoded, grids, space=target.quantiles), *pool]


def _uses_shrunk_models(X, n_rows: int) -> bool:
    """Whether the linear models are ridge and lasso."""
    few = n_rows < SHRUNK_BELOW or X.shape[1] > SHARE_OF_COLUMNS * n_rows
    return few and n_rows in SHRUNK_ROWS and n_rows * X.shape[1] <= SHRUNK_ENTRIES


def _class_tree_specs(n_rows: int, size: str, seed) -> list[CandidateSpec]:
    """Forests of half as many trees as for regression, and boosted trees."""
    forest = ForestClassifier(n_trees=SIZES[size].n_trees // 2, random_state=seed)
    forests = CandidateSpec("forest", forest, {"kind": ["extra_trees", "bagging"]})
    if size == "fast":
        return [forests]
    settings = {} if n_rows >= WIDE_FROM else BOOSTING_OF_FEW_ROWS
    boosting = BoostingClassifier(random_state=seed).set_params(**settings)
    return [forests, CandidateSpec("boosted_trees", boosting, {})]


def _neighbours_spec(
    n_rows: int, batch_size: int, max_iter, params: Grid
) -> CandidateSpec:
    """Neighbours, with as many training steps as networks if ``max_iter`` is given."""
    if max_iter != "auto":
        max_iter *= math.ceil(n_rows / batch_size)
    model = NeighbourRegressor(
        n_estimators=1, max_iter=max_iter, random_state=params.get("random_state")
    )
    return CandidateSpec("neighbours", model, {})


def _with_scale(
    grids: Sequence[Grid], target: Target, *, is_encoded: bool = False
) -> list[Grid]:
    """Grids of networks, and of networks on the other scale of y.

    The number of networks stays about the same: the smallest length scale makes room;
    on encoded columns, for the lower dropout rate, all but the largest one.
    """
    params = {name: [value] for name, value in target.on_scale.items()}
    if not params:
        return list(grids)
    scales = [list(grid["length_scale"]) for grid in grids]
    on_y = [
        grid | {"length_scale": values[-1 if is_encoded and not i else 1 :] or values}
        for i, (grid, values) in enumerate(zip(grids, scales, strict=True))
    ]
    on_scale = [
        grid | params | {"length_scale": values[1:2] or values}
        for grid, values in zip(grids, scales, strict=True)
        if len(values) > 1 or grid is grids[-1]
    ]
    return on_y + on_scale


def _linear_specs(
    network, is_classification: bool, is_shrunk: bool, target: Target
) -> list[CandidateSpec]:
    """Linear models: ridge and lasso, or networks without hidden layers.

    network : with the parameters of the pool; modified
    """
    seed = network.random_state
    if not is_shrunk:
        network.set_params(hidden_layer_sizes=(), dropout=0.0)
        scales = LINEAR_LENGTH_SCALES[: 2 if target.on_scale else None]
        grids: Any = _with_scale([{"length_scale": scales}], target)
        return [CandidateSpec("linear", network, grids, space=target.quantiles)]
    if not is_classification:
        grids = {"penalty": REGRESSION_PENALTIES}
        model = ShrunkLinearRegressor(random_state=seed)
        space = target.space(target.scale_without_limits)
        return [CandidateSpec("linear", model, grids, space=space)]
    grids = [
        {"penalty": [penalty], "strength": strengths}
        for penalty, strengths in CLASSIFICATION_PENALTIES.items()
    ]
    return [CandidateSpec("linear", ShrunkLinearClassifier(random_state=seed), grids)]


def dense_if_small(X):
    """Return X as an array, unless it is sparse and large."""
    if not sparse.issparse(X):
        return X
    small = X.shape[1] <= MAX_COLUMNS and X.shape[0] * X.shape[1] <= MAX_DENSE_ENTRIES
    return X.toarray() if small else X


def _n_epochs(n_rows: int, steps_per_root: float, most: int = MAX_STEPS) -> int:
    """Number of epochs of the networks, for a number of steps within the bounds."""
    steps = np.clip(steps_per_root * math.sqrt(n_rows), MIN_STEPS, most)
    return math.ceil(steps / math.ceil(n_rows / batch_rows("auto", n_rows)))


def _with_larger(
    grids: list[Grid], networks: NetworkPool, width: int, *, is_encoded: bool
) -> list[Grid]:
    """Grids with those of deeper and wider networks, for the best pool.

    These train as long as the others at the same dropout.
    """
    deep = {"hidden_layer_sizes": [(width,) * 3]}
    wide = {"hidden_layer_sizes": [(2 * width,) * 2]}
    scales = networks.larger_length_scales
    lower, higher = (grid | {"length_scale": scales} for grid in grids)
    if networks is CLASSIFICATION:
        larger = [lower | wide, higher | wide]
        return [*grids, *larger[: 1 + is_encoded]]
    larger = [lower | deep, higher | deep, lower | wide | {"length_scale": scales[-1:]}]
    return [*grids, *larger[: 2 + is_encoded]]


def _encoder(X, sample_weight, n_bins: int) -> PiecewiseLinearEncoder:
    """A fitted encoder with at most ``MAX_VALUES`` indicator features."""
    encoder = PiecewiseLinearEncoder(n_bins=n_bins, keep_columns=True)
    # The encoder requires a minimum number of rows per value: normalise the weights to
    # a mean of one.
    weights = sample_weight * (np.count_nonzero(sample_weight) / sample_weight.sum())
    encoder.set_params(n_values=MAX_VALUES).fit(X, sample_weight=weights)
    n_values = [len(values) for values in encoder.values_ if len(values)]
    if sum(n_values) > MAX_VALUES:
        encoder.set_params(n_values=MAX_VALUES // len(n_values))
        encoder.fit(X, sample_weight=weights)
    return encoder


def encoded_positions(encoder: PiecewiseLinearEncoder) -> np.ndarray:
    """Position of each column of X, which comes before the columns of its encoding."""
    widths = 1 + encoder.n_bins_ + [len(values) for values in encoder.values_]
    return np.cumsum(widths) - widths


def _n_bins(X, sample_weight) -> int:
    """Bins per column; columns with at most two distinct values are not binned."""
    X = X[sample_weight > 0]
    most = MAX_BINS_OF_MANY_ROWS if len(X) >= MANY_ROWS else MAX_BINS
    n_encoded = sum(len(np.unique(column)) > 2 for column in X.T)
    return min(most, MAX_ENCODED // n_encoded) if n_encoded else 0
