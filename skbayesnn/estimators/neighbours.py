"""Soft nearest neighbours in a learned embedding (Goldberger et al. 2005)."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import field
from numbers import Integral
from typing import Annotated, Any, Literal

import numpy as np

from skbayesnn import _stored as stored
from skbayesnn import _validation
from skbayesnn._data.groups import check_can_hold_out
from skbayesnn._distributions.mixtures import GaussianMixtures
from skbayesnn._likelihoods.base import MIN_NOISE
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._typing import Array
from skbayesnn._validation import MAX_N_DRAWS
from skbayesnn.estimators._embedding import (
    Draw,
    EmbeddingTrainer,
    Kernel,
    calibrated,
    report_failures,
    vector,
)
from skbayesnn.estimators._fitted import WithCache, are_same
from skbayesnn.estimators._parameters import parameters
from skbayesnn.estimators._table_model import (
    TableClassifier,
    TableModel,
    TableParameters,
    TableRegressor,
)
from skbayesnn.preprocessing import PiecewiseLinearEncoder

# Largest number of bins of a column, and of all columns.
MAX_BINS, MAX_ENCODED = 16, 256
# Bounds of the number of rows that a training step embeds, if given as a share.
SUBSET_BOUNDS = (512, 4096)
SUBSET_SHARE = 0.5
# Training steps per square root of the number of rows, and their bounds.
STEPS_PER_ROOT, STEP_BOUNDS = 6, (500, 1500)
# Standardised columns are clipped here, so that squared distances are finite.
MAX_FEATURE = 1e6
# Initial widths of the kernel, in standard deviations of y, and initial smoothing of
# classes.
START_WIDTHS = (math.exp(-1), math.exp(-3))
START_SMOOTHING = 0.1
# Length scale of the prior.
LENGTH_SCALE = 3.0
# Bounds of the number of held-out rows.
MIN_HELD_OUT, MAX_HELD_OUT = 60, 500
# Components of the mixture that describe the neighbours of a row, for each width, and
# how near these are merged (``_engine.compiled.neighbours.neighbour_values``). With
# more components the CRPS of a mixture takes longer, by the square of their number.
N_GROUPS = 12
MERGED = 0.25
# Most training rows that are encoded at once.
ENCODED_ROWS = 1 << 14
# Y has ties if fewer than this share of its values are distinct.
TIED = 0.5


@parameters
class _Parameters(TableParameters):
    """Constructor parameters of both estimators."""

    hidden_size: Any = field(default=64, kw_only=False)
    embedding_size: Any = field(default=16, kw_only=False)
    dropout: Any = 0.1
    n_draws: Annotated[int, stored.between(1, MAX_N_DRAWS)] = 2
    n_bins: Any = "auto"
    subset_size: Any = "auto"
    learning_rate_init: Any = 0.006
    validation_fraction: Any = 0.1
    dtype: Literal["float32", "float64"] = "float32"


class NeighbourModel(_Parameters, WithCache, TableModel):
    """Base class of both estimators: training and embeddings."""

    X_train_: Annotated[stored.Floats, "rows, inputs"]
    y_train_: Array
    weights_train_: Annotated[stored.Floats, "rows", stored.POSITIVE]
    seeds_: stored.Seeds
    dropout_: Annotated[stored.Floats, "2", stored.PROPER_SHARE]
    length_scale_: Annotated[stored.Floats, "3", stored.NOT_NEGATIVE]
    weight_decay_: Annotated[stored.Floats, "3", stored.NOT_NEGATIVE]
    loss_curve_: list[stored.Record]
    encoder_: PiecewiseLinearEncoder | None
    LEAST_ROWS = 2, "Each row is predicted from the others."

    @property
    def _n_classes(self) -> int:
        """Number of classes; 0 for a regression."""
        return len(getattr(self, "classes_", ()))

    @property
    def _n_targets(self) -> int:
        """Number of targets; 1 for classes."""
        return 1 if self.y_train_.ndim == 1 else self.y_train_.shape[1]

    _cache_class = dict

    @abstractmethod
    def _prepare_targets(self, y, weights) -> tuple[np.ndarray, Kernel]:
        """Set the standardisation of y; return y for the training, and the kernel."""

    @property
    def _least_kernel(self) -> np.ndarray | None:
        """Lower bounds of the parameters of a kernel that held-out rows scale."""
        return None

    @abstractmethod
    def _stored_targets(self) -> Any:
        """Targets of the training rows, as ``_distribution`` needs them."""

    @abstractmethod
    def _distribution(self, queries, targets, dtype):
        """Predictive distribution of some rows.

        queries : embeddings of the rows by each draw, with the draw
        targets : result of ``_stored_targets``
        dtype : of the rows
        """

    def _fit_table(self, table, groups, random, reset):
        weights = table.sample_weight
        check_can_hold_out(groups)
        targets, kernel = self._prepare_targets(table.y, weights)
        # Predictions read the weights of the rows in the order of y.
        order = np.argsort(targets.T[0] if targets.ndim > 1 else targets, kind="stable")
        groups = None if groups is None else groups[order]
        self.total_weight_ = float(weights.sum())
        dtype = _validation.check_option("dtype", self.dtype, ["float32", "float64"])
        self.X_train_ = self._standardised(table.X[order], dtype)
        self.y_train_, self.weights_train_ = targets[order], weights[order]
        self.encoder_ = self._fitted_encoder(self.weights_train_)
        self._train(kernel, groups, random)
        self._protect()

    # ---- training

    def _fitted_encoder(self, weights) -> PiecewiseLinearEncoder | None:
        """Encoder of the columns; None if they have too few bins."""
        X, most = self.X_train_, self.n_bins
        if isinstance(most, str):
            _validation.check_named("n_bins", most, ["auto"])
            n_encoded = sum(len(np.unique(column)) > 2 for column in X.T)
            most = min(MAX_BINS, MAX_ENCODED // max(n_encoded, 1))
        elif most != 0:
            _validation.check_number("n_bins", most, kind=Integral, low=2)
        if most < 2:
            return None
        encoder = PiecewiseLinearEncoder(n_bins=int(most), keep_columns=True)
        return encoder.fit(X, sample_weight=weights * (len(X) / weights.sum()))

    def _standardised(self, X, dtype) -> np.ndarray:
        """Standardise the columns of X, and clip distant values."""
        scaled = (X - self.x_mean_) / self.x_scale_
        return np.clip(scaled, -MAX_FEATURE, MAX_FEATURE).astype(dtype)

    def _encoded(self, X) -> np.ndarray:
        """Inputs of the networks for standardised columns."""
        if self.encoder_ is not None:
            X = self.encoder_.transform(X)
        return np.ascontiguousarray(X, dtype=self.X_train_.dtype)

    def _train(self, kernel: Kernel, groups, random) -> None:
        """Train all networks, and set the attributes that follow from it."""
        n_members = _validation.check_number(
            "n_estimators", self.n_estimators, kind=Integral, low=1
        )
        _validation.check_n_draws(self.n_draws)
        self.dropout_ = _validation.dropout_rates(self.dropout, 2)
        rate = _validation.check_number(
            "learning_rate_init", self.learning_rate_init, low=0, open_low=True
        )
        self.seeds_ = random.randint(0, 2**31 - 1, size=n_members)
        held_out = self._held_out_rows(groups, random)
        features = self._encoded(self.X_train_)
        n_rows = int(np.count_nonzero(~held_out))
        hidden = _validation.layer_size("hidden_size", self.hidden_size)
        embedding = _validation.layer_size("embedding_size", self.embedding_size)
        trainer = EmbeddingTrainer(
            features[~held_out],
            self.y_train_[~held_out],
            self.weights_train_[~held_out],
            np.empty(0) if groups is None else groups[~held_out],
            self._n_classes,
            kernel,
            hidden,
            embedding,
            self._rows_of_subset(n_rows),
            self._n_steps(n_rows),
            rate,
            1 - self.dropout_,
        )
        auto = np.full(3, LENGTH_SCALE)
        self.length_scale_ = _validation.length_scales(
            self.length_scale, trainer.fan_ins, auto
        )
        fits = trainer.train(self.seeds_, self.length_scale_)
        kept = [np.isfinite(fit.values).all() for fit in fits]
        report_failures(len(fits) - sum(kept), len(fits), rate)
        self.seeds_ = self.seeds_[kept]
        fits = [fit for fit in fits if np.isfinite(fit.values).all()]
        self.parameters_ = trainer.parameters(fits)
        if held_out.any():
            self.parameters_ = calibrated(self, trainer, held_out)
        self.loss_curve_ = np.mean([fit.losses for fit in fits], axis=0).tolist()
        self.n_iter_ = trainer.n_steps
        decay = np.square(self.length_scale_) / (2 * trainer.weights.sum())
        self.weight_decay_ = decay * [1.0, *(1 - self.dropout_)]

    def _held_out_rows(self, groups, random) -> np.ndarray:
        """Rows that estimate the calibration, (rows,), bool; none if there are few.

        These are whole groups; none if all are too large.
        """
        n_rows = len(self.X_train_)
        share = _validation.check_number(
            "validation_fraction", self.validation_fraction, low=0, high=1
        )
        n = min(max(share * n_rows, MIN_HELD_OUT), MAX_HELD_OUT, n_rows // 2)
        held_out = np.zeros(n_rows, dtype=bool)
        if not share or n < MIN_HELD_OUT:
            return held_out
        groups = np.arange(n_rows) if groups is None else groups
        _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        selected, room = [], int(n)
        for k in random.permutation(len(sizes)).tolist():
            if sizes[k] <= room:
                selected.append(k)
                room -= sizes[k]
        # The others must predict each other.
        return np.isin(group, selected[: len(sizes) - 2])

    def _rows_of_subset(self, n_rows: int) -> int:
        """Number of rows that a step embeds, at least 2."""
        size = self.subset_size
        if isinstance(size, str):
            _validation.check_named("subset_size", size, ["auto"])
            size = int(np.clip(SUBSET_SHARE * n_rows, *SUBSET_BOUNDS))
        else:
            _validation.check_number("subset_size", size, kind=Integral, low=2)
        return min(size, n_rows)

    def _n_steps(self, n_rows: int) -> int:
        if not isinstance(self.max_iter, str):
            return _validation.check_number(
                "max_iter", self.max_iter, kind=Integral, low=1
            )
        _validation.check_named("max_iter", self.max_iter, ["auto"])
        return int(np.clip(STEPS_PER_ROOT * math.sqrt(n_rows), *STEP_BOUNDS))

    # ---- predictions

    def _opened(self):
        _validation.check_n_draws(self.n_draws)
        draws, targets = self._stored_rows()

        def predicted(X, dtype):
            features = self._encoded(self._standardised(X, self.X_train_.dtype))
            return self._distribution(self._queries(features, draws), targets, dtype)

        return predicted, len(draws) * self._n_targets * 2 * N_GROUPS

    def _queries(self, features, draws) -> list[tuple[Draw, np.ndarray]]:
        """Embeddings of some rows by each draw, with the draw."""
        return [
            (draw, self._embedded(features, draw.member, draw.masks)) for draw in draws
        ]

    def _stored_rows(self) -> tuple[list[Draw], Any]:
        """All draws with their training rows, and the targets, from a cache."""
        arrays = self._cached_arrays
        cached, *rows = self._cache.get(self.n_draws, ([], [], None))
        if not are_same(arrays, cached):
            rows = [self._embedded_draws(), self._stored_targets()]
            self._cache.clear()
            self._cache[self.n_draws] = arrays, *rows
        draws, targets = rows
        return draws, targets

    def _embedded_draws(self) -> list[Draw]:
        """All draws with their training rows."""
        # Without dropout, all draws of a network are equal.
        n_draws = self.n_draws if self.dropout_.any() else 1
        # The networks of a draw are adjacent, as in other estimators.
        pairs = [
            (member, self._masks(seed, k))
            for k in range(n_draws)
            for member, seed in enumerate(self.seeds_.tolist())
        ]
        n_rows, n_embedding = len(self.X_train_), self.parameters_["w3"].shape[2]
        embedded = [np.empty((n_rows, n_embedding), self.X_train_.dtype) for _ in pairs]
        # Encoded columns need more memory than all embeddings.
        for start in range(0, n_rows, ENCODED_ROWS):
            rows = slice(start, start + ENCODED_ROWS)
            features = self._encoded(self.X_train_[rows])
            for z, pair in zip(embedded, pairs, strict=True):
                z[rows] = self._embedded(features, *pair)
        weights = self.weights_train_ / self.weights_train_.mean()
        return [Draw.of(*pair, embedded.pop(0), weights) for pair in pairs]

    def _masks(self, seed: int, k: int) -> np.ndarray:
        """Masks of draw k of the network with a seed, (2, hidden_size)."""
        n_hidden = self.parameters_["w2"].shape[1]
        uniform = np.random.default_rng([seed, k]).random((2, n_hidden))
        return (uniform < 1 - self.dropout_[:, None]).astype(self.X_train_.dtype)

    def _embedded(self, features, member: int, masks) -> np.ndarray:
        """Embeddings of some rows, (rows, embedding_size)."""
        from skbayesnn._engine.compiled import neighbours

        parts = {name: values[member] for name, values in self.parameters_.items()}
        hidden, embedding = parts["w3"].shape
        sizes = neighbours.Sizes(features.shape[1], hidden, embedding, 0, 0)
        z = np.empty((len(features), embedding), features.dtype)
        neighbours.embed(sizes, vector(parts, features.dtype), masks, features, z)
        return z

    def _check_stored(self) -> None:
        """Raise for arrays of other shapes: compiled functions do not check them."""
        if not hasattr(self, "parameters_"):
            return
        from skbayesnn._engine.compiled.neighbours import part_shapes

        n_rows, n_inputs = self.X_train_.shape
        if n_rows < 2:
            raise ValueError(f"it must have at least 2 training rows; got {n_rows}.")
        if self.encoder_ is not None:
            n_inputs = self.encoder_.transform(self.X_train_[:1]).shape[1]
        hidden, embedding = self.parameters_["w3"].shape[1:]
        shapes = part_shapes(n_inputs, hidden, embedding, self._n_targets)
        for values in (self.X_train_, *self.parameters_.values()):
            if values.dtype != self.dtype:
                raise ValueError(
                    f"its arrays must be {self.dtype}; got {values.dtype}."
                )
        actual = {name: values.shape[1:] for name, values in self.parameters_.items()}
        if list(actual.items()) != list(shapes.items()):
            raise ValueError(f"its parameters must have shapes {shapes}; got {actual}.")

    @property
    def _cached_arrays(self):
        rows = self.X_train_, self.y_train_, self.weights_train_
        return [*rows, self.seeds_, self.dropout_, *self.parameters_.values()]


@parameters
class NeighbourRegressor(TableRegressor, NeighbourModel):
    """Regression by soft nearest neighbours in a learned embedding.

    Use it for tables of some thousand rows or more in which similar rows have similar
    y, and where trees do better than networks. Small or noisy tables need a large
    ``length_scale``. A row x has the predictive density of a kernel regression,

        p(y | x) = sum_i w_i(x) [a N(y; y_i, h_1^2) + (1 - a) N(y; y_i, h_2^2)],
        w_i(x) = s_i exp(-|z(x) - z(x_i)|^2) / sum_j s_j exp(-|z(x) - z(x_j)|^2),

    where the sums are over the training rows and s are their weights. With several
    targets, h_1 and h_2 differ between targets, and a row i contributes the product of
    the densities of its targets. The embedding
    z is a network with two hidden layers plus a linear map. Embedding, h_1, h_2 and
    a maximise the density of each training row given the other training rows [1]_
    [2]_. ModernNCA [2]_ trains the mean instead of the density.

    Dropout of hidden units and several networks give the epistemic uncertainty: the
    spread of the means of the draws. A draw uses one mask for all rows, so that
    distances are between embeddings of the same draw.

    Parameters
    ----------
    hidden_size : int, default=64
        Units of each of the two hidden layers.
    embedding_size : int, default=16
        Length of z.
    dropout : float in [0, 1) or sequence of 2 floats, default=0.1
        Probability that a unit of each hidden layer is dropped. In a training step,
        all rows have the same masks.
    length_scale : {"auto", "fan_in"}, float >= 0 or sequence of 3 floats, \
default="auto"
        l of the prior N(0, 1 / l^2) of the embedding's weights, as in
        :class:`MCDropoutRegressor`; of three values, the first is for the first layer
        and the linear map. A larger l gives smoother embeddings, in which more rows
        are near. ``"auto"`` is 3.
    tau : "auto", float > 0 or sequence of n_targets floats, default="auto"
        Precision of the kernel in y's own units: with numbers, h_1 = h_2 = 1 /
        sqrt(tau). ``"auto"`` learns both widths and a. If y has ties, the widths are
        at least the distance of neighbouring values of y, divided by sqrt(12).
    y_bounds
        As in :class:`LaplaceRegressor`.
    n_estimators : int, default=4
        Networks with different initial weights; the predictive distribution is their
        mixture with equal weights.
    n_draws : int, default=2
        Posterior draws of each network in predictions; without dropout there is only
        one. The time of predictions and the memory are proportional to it.
    n_bins : "auto" or int, default="auto"
        Most bins of each column; see
        :class:`~skbayesnn.preprocessing.PiecewiseLinearEncoder`. The network gets the
        columns and their bins. ``"auto"`` is 16, and fewer with more than 16 columns.
        0 disables the bins.
    subset_size : "auto" or int, default="auto"
        Number of random rows that a training step embeds; 256 of them are predicted
        from the others. ``"auto"`` is half of the rows, between 512 and 4,096. If all
        rows are neighbours in every step, the embedding over-fits; with few rows it
        learns distances that are too large.
    categorical_features
        As in :class:`MCDropoutRegressor`.
    learning_rate_init : float > 0, default=0.006
        Step size of Adam at the start; it decays to zero.
    max_iter : "auto" or int, default="auto"
        Number of training steps. ``"auto"`` is 6 sqrt(N), between 500 and 1,500.
    validation_fraction : float in [0, 1), default=0.1
        Share of the rows that are held out from the training: at least 60 rows, and at
        most 500 or half of the rows. With fewer than 120 rows, or with 0, no rows are
        held out. Held-out rows estimate a factor on the embedding, which has adapted to
        the y of its training rows, and a factor on the widths of the kernel. In
        predictions they are neighbours like the other rows.
    dtype : {"float32", "float64"}, default="float32"
        Precision of training and embeddings.
    random_state : int, RandomState instance or None, default=None
        Seed of initial weights, subsets, masks and posterior draws. None is a fresh
        seed.

    Attributes
    ----------
    X_train_ : ndarray of shape (n_rows, n_columns)
        Standardised columns of the training rows of positive weight.
    y_train_ : ndarray of shape (n_rows,) or (n_rows, n_targets)
        Their standardised y, in the order of the first target.
    weights_train_ : ndarray of shape (n_rows,)
        Their weights.
    kernel_std_ : ndarray of shape (n_networks, 2) or (n_networks, 2, n_targets)
        h_1 and h_2 of each network, in the units of y.
    tau_ : float or ndarray of shape (n_targets,)
        1 / variance of the kernel, in the units of y, the mean over networks.
    dropout_ : ndarray of shape (2,)
        Dropout rates of both hidden layers.
    length_scale_ : ndarray of shape (3,)
        Prior length scales of the three layers.
    weight_decay_ : ndarray of shape (3,)
        p l^2 / (2 N) of each layer, the coefficient of its squared weights next to the
        mean negative log density of a row. N is the sum of the weights of the rows that
        are not held out, p the probability that an input of the layer is kept.
    loss_curve_ : list of float
        Mean negative log density of the standardised y in each pass over the rows.
    n_iter_ : int
        Number of training steps.
    encoder_ : PiecewiseLinearEncoder or None
        Encoder of the standardised columns.
    n_features_in_ : int
        Number of columns of X.
    parameters_, seeds_ : dict, ndarray
        The networks as plain arrays.
    total_weight_ : float
        N, the sum of the weights.
    feature_names_in_, table_, x_mean_, x_scale_, y_mean_, y_scale_, target_spaces_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    NeighbourClassifier : Classification.
    sklearn.neighbors.KNeighborsRegressor : Nearest neighbours of the columns.

    Notes
    -----
    A fitted model contains the training rows. The first prediction embeds them, once
    for each draw: 4 (embedding_size + 1) bytes per row and draw in single precision,
    54 MB for 100,000 rows with the defaults, and 16 bytes per row and target. A
    prediction needs 16 bytes per training row more.

    For each row and draw, a prediction computes the distances to all training rows.

    In the mixture of a row and draw, neighbours with similar y are merged to at most 12
    normal distributions for each width and target, with the same mean and variance.
    Predictive distributions treat several targets as independent, given the draw:
    densities and covariances do not contain that they come from the same neighbours.

    References
    ----------
    .. [1] Goldberger, Roweis, Hinton & Salakhutdinov (2005), "Neighbourhood components
       analysis", NeurIPS 17.
    .. [2] Ye, Yin, Zhan & Chao (2024), "Revisiting nearest neighbor for tabular data: a
       deep tabular baseline two decades later", arXiv:2407.03257.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import NeighbourRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = NeighbourRegressor(max_iter=50, random_state=0).fit(X, y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, std.shape
    ((3,), (3,))
    """

    # Predictions are mixtures of normal distributions.
    likelihood = "mixture"

    tau: Annotated[Any, stored.each(stored.POSITIVE)] = "auto"
    y_bounds: Any = None
    y_train_: (
        Annotated[stored.Floats, "rows"] | Annotated[stored.Floats, "rows, targets"]
    ) = field(init=False)

    @property
    def kernel_std_(self) -> Array:
        """Wider and smaller width of the kernel, in the units of y."""
        kernel = self.parameters_["kernel"][:, :-1]
        widths = np.exp(kernel).reshape(len(kernel), 2, -1)
        widths = self._scaling.std_from_network(widths)
        return widths[..., 0] if self._n_targets == 1 else widths

    @property
    def tau_(self) -> float | Array:
        """1 / variance of the kernel, the mean over networks, in the units of y."""
        share = _sigmoid(self.parameters_["kernel"][:, -1:])
        squares = np.square(self.kernel_std_, dtype=np.float64)
        squares = squares.reshape(len(share), 2, -1)
        variance = share * squares[:, 0] + (1 - share) * squares[:, 1]
        tau = 1 / variance.mean(0)
        return float(tau[0]) if len(tau) == 1 else tau

    def _prepare_targets(self, y, weights):
        self._standardise(y, weights)
        scaling = self._scaling
        y, n_targets = scaling.y_to_network(y), y.shape[1]
        tau = _validation.precisions(self.tau, n_targets)
        if tau is not None:
            widths = np.tile(scaling.tau_to_network(tau) ** -0.5, 2)
            kernel = Kernel(
                [*np.log(widths), 0.0], [-np.inf] * (2 * n_targets + 1), False
            )
        else:
            least = _least_kernel(y)
            start = np.append(np.repeat(np.log(START_WIDTHS), n_targets), 0.0)
            kernel = Kernel(np.maximum(start, least), least)
        return y[:, 0] if n_targets == 1 else y, kernel

    @property
    def _least_kernel(self) -> np.ndarray | None:
        return _least_kernel(self.y_train_) if isinstance(self.tau, str) else None

    def _stored_targets(self):
        y = np.atleast_2d(self.y_train_.T)
        order = np.argsort(y, axis=1, kind="stable")
        return np.take_along_axis(y, order, axis=1), order

    def _distribution(self, queries, targets, dtype):
        from skbayesnn._engine.compiled.neighbours import neighbour_values

        (y, order), components = targets, []
        for draw, z in queries:
            kernel = self.parameters_["kernel"][draw.member].astype(np.float64)
            widths, share = np.exp(kernel[:-1]).reshape(2, -1), _sigmoid(kernel[-1])
            groups = np.empty((3, len(z), len(y), N_GROUPS))
            arguments = z, draw.columns, draw.offsets, y, order, widths.min(0), MERGED
            neighbour_values(*arguments, *groups)
            weight, location, variance = groups
            scales = [np.sqrt(variance + width[:, None] ** 2) for width in widths]
            parts = [
                np.concatenate([share * weight, (1 - share) * weight], axis=-1),
                np.concatenate([location, location], axis=-1),
                np.concatenate(scales, axis=-1),
            ]
            components.append(GaussianMixtures(*(p[None] for p in parts)))
        return self._predictive_of(GaussianMixtures.concatenated(components), dtype)


def _least_kernel(y) -> np.ndarray:
    """Lower bounds of the parameters of the kernel; y : (rows[, targets])."""
    least = [math.log(_least_width(column)) for column in np.atleast_2d(y.T)]
    return np.array([*least, *least, -np.inf])


def _least_width(y) -> float:
    """Smallest width of the kernel that is learned, for standardised y.

    A normal distribution of this width is about as wide as the rounding of y, if y has
    ties. A smaller width would give tied values an infinite density.
    """
    distinct = np.unique(y)
    if len(distinct) < 2 or len(distinct) > TIED * len(y):
        return MIN_NOISE
    return max(MIN_NOISE, float(np.median(np.diff(distinct))) / math.sqrt(12))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


@parameters
class NeighbourClassifier(TableClassifier, NeighbourModel):
    """Classification by soft nearest neighbours in a learned embedding.

    The probability of a class is its share among the training rows, weighted by their
    distances in a learned embedding z [1]_ [2]_, with a learned smoothing a:

        p(k | x) = (1 - a) sum_i w_i(x) [y_i = k] + a / K,
        w_i(x) = s_i exp(-|z(x) - z(x_i)|^2) / sum_j s_j exp(-|z(x) - z(x_j)|^2).

    Embedding and smoothing maximise the mean log probability of each training row given
    the other training rows; see :class:`NeighbourRegressor`.

    Parameters
    ----------
    hidden_size, embedding_size, dropout, length_scale, n_estimators, n_draws, n_bins, \
subset_size
        As in :class:`NeighbourRegressor`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply the weights of the rows, also as
        neighbours.
    categorical_features
        As in :class:`MCDropoutRegressor`.
    learning_rate_init, max_iter, validation_fraction, dtype, random_state
        As in :class:`NeighbourRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels in the order of the probabilities.
    y_train_ : ndarray of shape (n_rows,)
        Index of the class of each training row, increasing.
    X_train_, weights_train_, dropout_, length_scale_, weight_decay_, loss_curve_, \
n_iter_, encoder_, n_features_in_, parameters_, seeds_, total_weight_
        As in :class:`NeighbourRegressor`.
    x_mean_, x_scale_ : ndarray of shape (n_columns,)
        The standardisation of the columns.
    feature_names_in_, table_
        As in :class:`MCDropoutRegressor`.

    See Also
    --------
    NeighbourRegressor : Regression.
    sklearn.neighbors.NeighborhoodComponentsAnalysis : A linear embedding.

    References
    ----------
    .. [1] Goldberger, Roweis, Hinton & Salakhutdinov (2005), "Neighbourhood components
       analysis", NeurIPS 17.
    .. [2] Ye, Yin, Zhan & Chao (2024), "Revisiting nearest neighbor for tabular data: a
       deep tabular baseline two decades later", arXiv:2407.03257.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skbayesnn import NeighbourClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = NeighbourClassifier(max_iter=50, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:3]).shape
    (3, 3)
    """

    class_weight: Any = None
    y_train_: Annotated[
        stored.Integers, "rows", stored.Index("classes"), stored.SORTED
    ] = field(init=False)

    def _prepare_targets(self, y, weights):
        n_rows = len(y)
        least = math.log(1 / (n_rows + 1))
        start = math.log(START_SMOOTHING / (1 - START_SMOOTHING))
        kernel = Kernel([0.0, 0.0, max(start, least)], [0.0, 0.0, least])
        return y.astype(np.int64), kernel

    def _stored_targets(self):
        return self.y_train_

    def _distribution(self, queries, targets, dtype):
        from skbayesnn._engine.compiled.neighbours import neighbour_labels

        n_classes, parts = len(self.classes_), []
        for draw, z in queries:
            shares = np.empty((len(z), n_classes))
            neighbour_labels(z, draw.columns, draw.offsets, targets, shares)
            smoothing = _sigmoid(np.float64(self.parameters_["kernel"][draw.member, 2]))
            parts.append((1 - smoothing) * shares + smoothing / n_classes)
        probability = np.stack(parts)
        return ClassPredictive(probability.astype(dtype), self.classes_)
