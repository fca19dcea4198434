"""Which rows to measure next: suggestions from coherent draws of the function.

>>> import numpy as np
>>> from skbayesnn import LaplaceRegressor
>>> from skbayesnn.acquisition import suggest
>>> X = np.linspace(0, 1, 8)[:, None]
>>> model = LaplaceRegressor(random_state=0).fit(X, np.sin(5 * X[:, 0]))
>>> suggestion = suggest(model, {"x": (0.0, 2.0)}, n=3, measured=X)
>>> suggestion.rows.shape, suggestion.score.shape
((3, 1), (3,))

Everything is computed from one matrix of draws of f, functions x rows, without the
noise of y. A batch is chosen greedily: each row adds the most to the rows before, in
the same functions, so that a batch has no near-duplicates (Wilson, Hutter & Deisenroth
2018, "Maximizing acquisition functions for Bayesian optimization", NeurIPS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from scipy.stats import qmc
from sklearn.base import is_classifier

from skbayesnn._data.validation import table_of
from skbayesnn._distributions.components import Gaussians
from skbayesnn._meta.functions import predict_uncertainty, sample_f
from skbayesnn._meta.unwrap import inner_estimator
from skbayesnn._runtime import default_settings, required, warn
from skbayesnn._sklearn_compat import safe_indexing
from skbayesnn._typing import Array, MatrixLike, RandomState
from skbayesnn._validation import check_number, check_option, random_source
from skbayesnn.estimators._dense_network import (
    ACTIVATIONS,
    SmoothActivation,
    features,
    linearised,
)
from skbayesnn.estimators._fitted import fitted_posterior
from skbayesnn.estimators._regression import BayesianRegressor
from skbayesnn.estimators.laplace import LaplaceRegressor
from skbayesnn.inspection._columns import reader_of, training_columns

__all__ = ["Suggestion", "suggest", "to_botorch"]

# Methods of a goal; the first is "auto".
_METHODS = {
    "best": ("expected_improvement", "upper_confidence_bound", "thompson", "maximiser"),
    "above": ("probability",),
    "learn": ("variance_reduction",),
    "several": ("hypervolume",),
}
_GOALS = "'maximise', 'minimise', 'learn', ('target', value) or ('above', level)"
# Scores of these methods are not gains, which costs and probabilities could multiply.
_WITHOUT_GAIN = "upper_confidence_bound", "thompson"
# The upper confidence bound is the mean plus this number of standard deviations.
_BETA = 2.0
# Improvements are smooth over this share of a standard deviation, so that no two rows
# without an improvement in any draw have equal scores.
_SMOOTH = 0.05
_TINY = 1e-300
# Draws of f, by default.
_N_DRAWS = 512
# Rows whose variance "learn" reduces.
_MAX_REFERENCE = 2_000
# Candidates of a space; then, round by round, neighbours of the best ones, at distances
# in units of the range of a column.
_N_SOBOL = 1_024
_N_BEST = 16
_N_NEIGHBOURS = 24
_DISTANCES = 0.15, 0.05, 0.015


@dataclass(frozen=True, eq=False)
class Suggestion:
    """Rows to measure next.

    Parameters
    ----------
    rows : table
        The rows, in order, of the type of the candidates. Of a space, a pandas
        DataFrame if the model was fitted to a frame, otherwise an array.
    index : ndarray of shape (n,)
        Their positions among the candidates; of a space, among the rows that were
        drawn.
    score : ndarray of shape (n,)
        What each row adds to the rows before it: expected improvement, probability, or
        hypervolume, in units of y; of ``"variance_reduction"`` the mean reduction of
        the variance of f over the candidates; of ``"upper_confidence_bound"`` the
        bound above its lowest value in any draw. Multiplied by the probability that the
        row is feasible, and divided by its cost.
    """

    rows: Any
    index: Array
    score: Array


# ---- what a row adds to a batch


class _Largest:
    """Expected increase of the largest utility of a batch.

    utility : (draws, rows), at least 0
    tie : (rows,), what decides between rows with equal gains
    """

    def __init__(self, utility: Array, tie: Array):
        self.utility, self.reached = utility, np.zeros((len(utility), 1))
        self.tie = tie

    def gains(self) -> Array:
        """Increase by each row, (rows,)."""
        return (np.maximum(self.utility, self.reached) - self.reached).mean(0)

    def choose(self, j: int) -> None:
        """Add a row to the batch."""
        self.reached = np.maximum(self.reached, self.utility[:, [j]])


class _VarianceReduction:
    """Mean reduction of the variance of f over some rows, if f is normal.

    f : (draws, rows)
    noise : (rows,), variances of y given f
    reference : indices of the rows over which the mean is
    """

    def __init__(self, f: Array, noise: Array, reference: Array):
        self.root = (f - f.mean(0)) / np.sqrt(len(f))
        self.noise, self.reference, self.tie = noise, reference, f.var(0)

    def _total(self) -> Array:
        """Variance of y in each row; not 0."""
        return np.maximum(np.square(self.root).sum(0) + self.noise, _TINY)

    def gains(self) -> Array:
        """Reduction by a measurement of each row, (rows,)."""
        covariance = self.root[:, self.reference].T @ self.root
        return np.square(covariance).mean(0) / self._total()

    def choose(self, j: int) -> None:
        """Add a row to the batch: condition on its measurement."""
        total, own = self._total()[j], self.root[:, j]
        # A square root of the covariance given the measurement (Potter 1963).
        factor = 1 / (total * (1 + np.sqrt(self.noise[j] / total)))
        self.root = self.root - factor * np.outer(own, own @ self.root)


class _Hypervolume:
    """Expected increase of the area that points of two targets dominate.

    f : (draws, rows, 2), larger is better
    front : (points, 2), of the measured rows
    reference : (2,), the corner of the area; smaller values add nothing
    """

    def __init__(self, f: Array, front: Array, reference: Array):
        self.f, self.tie = f - reference, f.mean(0).sum(-1)
        front = np.maximum(front - reference, 0)
        self.points = np.broadcast_to(front, (len(f), *front.shape))

    def gains(self) -> Array:
        """Increase by each row, (rows,)."""
        order = self.points[..., 0].argsort(1)[..., None]
        first, second = np.moveaxis(np.take_along_axis(self.points, order, 1), -1, 0)
        # Between two values of the first target, the area has one height.
        height = np.maximum.accumulate(second[:, ::-1], 1)[:, ::-1]
        edges = np.pad(first, ((0, 0), (1, 1)), constant_values=((0, 0), (0, np.inf)))
        height = np.pad(height, ((0, 0), (0, 1)))
        area = np.zeros(self.f.shape[:2])
        for low, high, top in zip(edges.T, edges.T[1:], height.T, strict=False):
            width = np.minimum(self.f[..., 0], high[:, None]) - low[:, None]
            rise = self.f[..., 1] - top[:, None]
            area += np.maximum(width, 0) * np.maximum(rise, 0)
        return area.mean(0)

    def choose(self, j: int) -> None:
        """Add a row to the batch."""
        chosen = np.maximum(self.f[:, [j]], 0)
        self.points = np.concatenate([self.points, chosen], axis=1)


def _greedy(gain, weights: Array, n: int) -> tuple[Array, Array]:
    """Indices of the rows with the largest weighted gains one after another, and gains.

    weights : (rows,), factors of the gains
    """
    free, index, score = np.ones(len(weights), dtype=bool), [], []
    for _ in range(n):
        gains = np.where(free, gain.gains() * weights, -np.inf)
        largest = gains >= gains.max()
        j = int(np.where(largest & free, gain.tie, -np.inf).argmax())
        gain.choose(j)
        free[j] = False
        index.append(j)
        score.append(gains[j])
    return np.array(index), np.array(score)


# ---- goals


def _check_goal(goal) -> tuple[str, tuple]:
    """Kind of the methods, and the goal of each target as (name, number)."""
    if isinstance(goal, list):
        goals = [_check_goal(g) for g in goal]
        if len(goals) != 2 or {kind for kind, _ in goals} != {"best"}:
            raise ValueError(
                "a list of goals must have two, each 'maximise', 'minimise' or "
                f"('target', value); got {goal!r}."
            )
        return "several", tuple(single for _, (single,) in goals)
    name, *number = goal if isinstance(goal, tuple) else (goal,)
    plain = name in ("maximise", "minimise", "learn") and not number
    if not (plain or (name in ("target", "above") and len(number) == 1)):
        raise ValueError(f"`goal` must be {_GOALS}, or a list of two; got {goal!r}.")
    value = check_number(f"the number of {name!r}", *number, kind=Real) if number else 0
    return name if name in ("above", "learn") else "best", ((name, value),)


def _utility(f: Array, goal: tuple) -> Array:
    """Values of f so that larger is better."""
    name, value = goal
    if name == "target":
        return -np.abs(f - value)
    return {"minimise": -f, "above": f - value}.get(name, f)


def _improvement(u: Array, best: float) -> Array:
    """Positive part of u - best, (draws, rows), smooth over a part of its spread."""
    width = _SMOOTH * u.std(0).mean() + 1e-12 * np.abs(u - best).max() + _TINY
    return width * np.logaddexp(0, (u - best) / width)


class _Problem:
    """What is the same for all candidates: the model, the goal and the measured rows.

    Arguments are as for ``suggest``, but checked.
    """

    def __init__(self, model, goal, method, measured, cost, feasible, n_draws, seed):
        self.model, self.seed, self.n_draws = model, seed, n_draws
        self.kind, self.goals = _check_goal(goal)
        methods = _METHODS[self.kind]
        check_option("method", method, ("auto", *methods), f"for {goal!r} one of")
        self.method = methods[0] if method == "auto" else method
        for name, given in (("cost", cost), ("feasible", feasible)):
            if given is not None and self.method in _WITHOUT_GAIN:
                raise ValueError(
                    f"`{name}` needs a method with a gain; got {self.method!r}. Leave "
                    f"out `method`, which is then {methods[0]!r}."
                )
        self.cost, self.feasible, self.measured = cost, feasible, measured
        if measured is not None:
            self.known = self._utilities(self.draws(measured).mean(0))
            self.may_be_best = self.probability(measured) >= 0.5

    def draws(self, X) -> Array:
        """Draws of f, (draws, rows, targets); the same functions for any X."""
        f = np.moveaxis(sample_f(self.model, X, self.n_draws, self.seed), -1, 0)
        f = f.reshape(*f.shape[:2], -1)
        if f.shape[2] != len(self.goals):
            raise ValueError(
                f"`goal` must have one goal for each of the {f.shape[2]} targets of "
                f"the model; got {len(self.goals)}. A list of two goals is for two "
                "targets; of more targets fit a model to the one of interest."
            )
        return f

    def _utilities(self, f) -> Array:
        parts = [_utility(f[..., t], goal) for t, goal in enumerate(self.goals)]
        return np.stack(parts, axis=-1)

    def probability(self, X) -> Array:
        """Probability that each row is feasible, (rows,)."""
        given: Any = self.feasible
        if isinstance(given, tuple):
            f = sample_f(given[0], X, self.n_draws, self.seed)
            values = (f >= given[1]).mean(-1)
        else:
            values = np.ones(_n_rows(X)) if given is None else given(X)
        return _numbers("feasible", values, _n_rows(X), 0.0, 1.0)

    def weights(self, X) -> Array:
        """Factor of the gain of each row, (rows,)."""
        cost = self.cost(X) if callable(self.cost) else self.cost
        cost = np.ones(_n_rows(X)) if cost is None else cost
        return self.probability(X) / _numbers("cost", cost, _n_rows(X), _TINY)

    def gain(self, X, n_reference: int):
        """What rows of X add to a batch.

        n_reference : number of rows, the first ones, over which "learn" has its mean
        """
        f = self.draws(X)
        if self.kind == "learn":
            noise = np.square(predict_uncertainty(self.model, X, "aleatoric"))
            step = -(-n_reference // _MAX_REFERENCE)
            reference = np.arange(0, n_reference, step)
            return _VarianceReduction(f[..., 0], noise.reshape(-1), reference)
        u, means = self._utilities(f), self._utilities(f.mean(0))
        known, may_be_best = means, np.ones(len(means), dtype=bool)
        if self.measured is not None:
            known, may_be_best = self.known, self.may_be_best
        if self.kind == "several":
            return _Hypervolume(u, _front(known[may_be_best]), known.min(0))
        u, mean = u[..., 0], means[:, 0]
        if self.method == "expected_improvement":
            best = known[may_be_best].max() if may_be_best.any() else known.min()
            return _Largest(_improvement(u, best), mean)
        if self.method == "upper_confidence_bound":
            # The mean of |f - mean| of a normal f is sqrt(2 / pi) of its deviation.
            bound = u.mean(0)
            bound = bound + _BETA * np.sqrt(np.pi / 2) * np.abs(u - bound)
            return _Largest(bound - bound.min(), mean)
        if self.method == "probability":
            return _Largest((u > 0).astype(float), mean)
        return _Largest((u >= u.max(1, keepdims=True)).astype(float), mean)

    def choose(self, X, n: int, n_reference: int) -> tuple[Array, Array]:
        """Indices of n rows of X, and scores."""
        gain, weights = self.gain(X, n_reference), self.weights(X)
        if self.method != "thompson":
            return _greedy(gain, weights, n)
        # Each draw has its maximum once, as a row of ones. A draw with a maximum that
        # is chosen already is of no use, unless all draws are like this.
        score = gain.gains()
        order = np.random.default_rng(self.seed).permutation(len(gain.utility))
        drawn = gain.utility[order].argmax(1)
        others = np.lexsort((-gain.tie, -score))
        index = np.array(list(dict.fromkeys([*drawn, *others]))[:n])
        return index, score[index]


def _n_rows(X) -> int:
    return X.shape[0] if hasattr(X, "shape") else len(X)


def _front(points: Array) -> Array:
    """Points that no other point dominates, (points, 2)."""
    points = np.unique(points, axis=0)
    better = (points[:, None] <= points).all(2).sum(1)
    return points[better == 1]


def _numbers(name: str, values, n_rows: int, low: float, high=np.inf) -> Array:
    """Checked numbers, one for each row."""
    values = np.asarray(values, dtype=np.float64)
    if values.shape != (n_rows,):
        raise ValueError(
            f"`{name}` must have one number for each of {n_rows} candidates; got shape "
            f"{values.shape}."
        )
    is_bad = ~((values >= low) & (values <= high) & np.isfinite(values))
    if is_bad.any():
        rule = "> 0" if high == np.inf else f"in [{low:g}, {high:g}]"
        raise ValueError(
            f"`{name}` must be finite and {rule}; got {values[is_bad][0]:g} and "
            f"{is_bad.sum()} such values."
        )
    return values


def _warn_of_outside(X, measured) -> None:
    """Warn of candidates that are far from all measured rows in a column.

    A number is far if it is outside of the measured range by more than the width of the
    range; a level, if no measured row has it.
    """
    reader: Any = reader_of(X)
    if reader is None:  # sparse rows or images
        return
    outside = np.zeros(reader.n_rows, dtype=bool)
    for j, column in enumerate(training_columns(measured)):
        if column.has_levels:
            outside |= reader[j].categories().recoded(column.levels) == -2
        elif len(column.values):
            values = reader[j].numbers_of_kind(column.kind, column.time_zone)
            low, high = column.values[[0, -1]]
            outside |= np.abs(values - (low + high) / 2) > 1.5 * (high - low)
    if outside.any():
        warn(
            "SKB408",
            f"{outside.sum()} of {len(outside)} candidates are far outside of the "
            "measured rows, by more than the range of a column, or by a level that no "
            "measured row has. Draws of f are extrapolations there.",
        )


# ---- candidates from a space


class _Space:
    """A box of bounds and levels, as the unit cube.

    columns : {column: (low, high) or list of levels}
    """

    def __init__(self, columns: Mapping, model, random):
        if not columns:
            raise ValueError("a space must have a column; got {}.")
        self.columns, self.random = columns, random
        inner = inner_estimator(model)
        names = getattr(model, "feature_names_in_", None)
        names = getattr(inner, "feature_names_in_", None) if names is None else names
        self.names = None if names is None else list(names)
        if self.names is not None and set(self.names) - set(columns):
            raise ValueError(
                f"a space must have the columns of the model, {self.names}; got "
                f"{list(columns)}."
            )
        self.n_levels = np.array([self._check(*item) for item in columns.items()])

    @staticmethod
    def _check(name, values) -> int:
        """Number of levels; 0 for bounds."""
        if isinstance(values, tuple):
            is_good = len(values) == 2 and -np.inf < values[0] < values[1] < np.inf
        else:
            is_good = not isinstance(values, str) and len(values) > 0
        if not is_good:
            raise ValueError(
                "a column of a space must be bounds (low, high) with low < high, or a "
                f"list of levels; got {values!r} for {name!r}."
            )
        return 0 if isinstance(values, tuple) else len(values)

    def _distinct(self, unit: Array) -> Array:
        """The points in their order, without repetition; levels at their middle."""
        k = np.maximum(self.n_levels, 1)
        middle = (np.minimum(np.floor(unit * k), k - 1) + 0.5) / k
        unit = np.where(self.n_levels > 0, middle, unit)
        return unit[np.sort(np.unique(unit, axis=0, return_index=True)[1])]

    def first(self) -> Array:
        """Points of a Sobol sequence, (points, columns)."""
        sobol = qmc.Sobol(len(self.columns), seed=self.random)
        return self._distinct(sobol.random(_N_SOBOL))

    def refined(self, unit: Array, best: Array, distance: float) -> Array:
        """The points and neighbours of the best ones."""
        near = np.repeat(unit[best], _N_NEIGHBOURS, axis=0)
        moved = np.clip(near + distance * self.random.normal(size=near.shape), 0, 1)
        other, uniform = self.random.random((2, *near.shape))
        switched = np.where(uniform < 1 / len(self.columns), other, near)
        near = np.where(self.n_levels > 0, switched, moved)
        return self._distinct(np.concatenate([unit, near]))

    def table(self, unit: Array) -> Any:
        """The points as a frame, or as an array."""
        columns = {}
        for (name, values), u in zip(self.columns.items(), unit.T, strict=True):
            if isinstance(values, tuple):
                columns[name] = values[0] + u * (values[1] - values[0])
            else:
                columns[name] = np.asarray(values)[(u * len(values)).astype(int)]
        if self.names is None:
            return np.column_stack(list(columns.values()))
        pandas = required("pandas", "a space of columns needs", "pip install pandas")
        frame = pandas.DataFrame(columns)
        return frame[[*self.names, *(c for c in frame if c not in self.names)]]


# ---- suggestions


def _check_regressor(model, name: str) -> None:
    inner = inner_estimator(model)
    if is_classifier(inner):
        raise TypeError(
            f"`{name}` needs a regressor; got {type(inner).__name__}. To label rows, "
            "choose the rows with the largest "
            "predict_uncertainty(model, X, 'mutual_information')."
        )


@default_settings
def suggest(
    model: Any,
    candidates: MatrixLike | Mapping[Any, Any],
    n: int = 1,
    goal: Any = "maximise",
    method: str = "auto",
    *,
    measured: MatrixLike | None = None,
    cost: Any = None,
    feasible: Any = None,
    n_draws: int = _N_DRAWS,
    random_state: RandomState = 0,
) -> Suggestion:
    """Return the rows to measure next, in order.

    Parameters
    ----------
    model : fitted regressor
        Any model that :func:`skbayesnn.sample_f` accepts, also pipelines, searches,
        calibrated models and stacks.
    candidates : table or dict
        Rows that could be measured; or a space, ``{column: (low, high)}`` for numbers
        and ``{column: [levels]}`` for others, from which candidates are drawn, and
        refined around the best ones.
    n : int, default=1
        Size of the batch.
    goal : str, tuple or list, default="maximise"
        - ``"maximise"`` or ``"minimise"`` the mean of y;
        - ``("target", value)``: a mean near the value;
        - ``("above", level)``: a row whose mean is above the level;
        - ``"learn"``: the function at all candidates;
        - a list of two of the first three kinds, for a model of two targets.
    method : str, default="auto"
        The best value has ``"expected_improvement"`` (the default), over the best mean;
        ``"upper_confidence_bound"``, the mean plus two standard deviations;
        ``"thompson"``, the best row of one draw for each row of the batch; and
        ``"maximiser"``, the probability that the row, or one of the batch, is the best
        candidate. Other goals have one method: ``"probability"`` of a row, or of one of
        the batch, above the level; ``"variance_reduction"`` to learn;
        ``"hypervolume"`` of two targets.
    measured : table, default=None
        Rows that have been measured, usually X of the fit. The best mean is the best
        among these rows, which is right for a y with noise; without them, it is the
        best among the candidates. They also show which candidates are extrapolations.
    cost : array-like of shape (n_candidates,) or callable, default=None
        Cost of each row, above 0; or a function of candidates, as a space requires.
    feasible : tuple (model, level) or callable, default=None
        A second regressor and the smallest mean with which a row is feasible; or a
        function that returns the probabilities of candidates.
    n_draws : int, default=512
        Draws of f, picked from the draws of the model.
    random_state : int, RandomState instance or None, default=0
        Selects the draws, and candidates of a space.

    Returns
    -------
    suggestion : Suggestion

    Warns
    -----
    UserWarning
        If candidates are far outside of the measured rows (SKB408).

    Notes
    -----
    The area of two targets is counted from the worst mean of each target among the
    measured rows. Memory is about 4 n_draws numbers for each candidate.
    """
    check_number("n", n, kind=Integral, low=1)
    check_number("n_draws", n_draws, kind=Integral, low=2)
    _check_regressor(model, "suggest")
    random = np.random.default_rng(random_source(random_state).randint(2**31))
    seed = int(random.integers(2**31))
    problem = _Problem(model, goal, method, measured, cost, feasible, n_draws, seed)
    X, n_reference = candidates, 0
    if isinstance(candidates, Mapping):
        if cost is not None and not callable(cost):
            raise TypeError("`cost` of a space must be a function of candidates.")
        space = _Space(candidates, model, random)
        unit = space.first()
        n_reference = len(unit)
        for distance in _DISTANCES:
            X = space.table(unit)
            score = problem.gain(X, n_reference).gains() * problem.weights(X)
            unit = space.refined(unit, np.argsort(-score)[:_N_BEST], distance)
        X = space.table(unit)
    n_rows = _n_rows(X)
    if n > n_rows:
        raise ValueError(f"`n` must be at most {n_rows}, the candidates; got {n}.")
    if measured is not None:
        _warn_of_outside(X, measured)
    index, score = problem.choose(X, n, n_reference or n_rows)
    return Suggestion(safe_indexing(X, index), index, score)


# ---- BoTorch


def _torch_draws(model) -> Callable[[torch.Tensor], torch.Tensor]:
    """Draws (draws, rows, targets) of f as a function of rows (rows, columns).

    Rows and draws are float64. Gradients are those of torch where f has no other parts.
    """
    is_network = isinstance(model, BayesianRegressor | LaplaceRegressor)
    if (
        not is_network
        or table_of(model) is not None
        or hasattr(model, "target_spaces_")
        or vars(model).get("likelihood_") == "poisson"
    ):
        return partial(_draws_of_values, model)
    tensor = partial(torch.as_tensor, dtype=torch.float64)
    if isinstance(model, LaplaceRegressor):
        parts = [
            [
                [tuple(map(tensor, layer)) for layer in model.layers_of(member, kind)]
                for kind in ("network", "draws", "hidden")
            ]
            for member in range(len(model.log_evidence_))
        ]
        name = {"tanh": torch.tanh, "logistic": torch.sigmoid}[model.activation]
        activation = SmoothActivation(name, ACTIVATIONS[model.activation].slope)

        def outputs(x):
            pairs = [
                linearised(layers, draws, activation, features(hidden, activation, x))
                for layers, draws, hidden in parts
            ]
            return torch.cat([torch.cat([f + d, f - d]) for f, d in pairs])

    else:
        posterior = fitted_posterior(model, np.zeros((1, 1))).to(
            torch.device("cpu"), torch.float64
        )
        if not issubclass(posterior.likelihood.components_class, Gaussians):
            return partial(_draws_of_values, model)
        sampled = posterior.sample_network(
            range(posterior.distinct_draws(model.n_draws))
        )

        def outputs(x):
            return posterior.components(sampled(x[None]))[0].flatten(0, 1)

    scaling = model._scaling
    x_mean, x_scale = tensor(scaling.x_mean), tensor(scaling.x_scale)
    zero = np.zeros(scaling.n_targets)
    shift, _ = map(tensor, scaling.moments_from_network(zero, zero))
    unit = tensor(scaling.std_from_network(zero + 1))
    return lambda X: outputs((X - x_mean) / x_scale) * unit + shift


def _draws_of_values(model, X: torch.Tensor) -> torch.Tensor:
    """Draws of any model, (draws, rows, targets), without gradients."""
    if X.requires_grad:
        raise TypeError(
            f"draws of {type(model).__name__} have no gradients here; networks of "
            "normal noise, fitted to an array of numbers, have them. Choose among "
            "rows, with optimize_acqf_discrete of botorch.optim or with `suggest`."
        )
    f = np.moveaxis(sample_f(model, X.numpy(), _N_DRAWS), -1, 0)
    return torch.as_tensor(f.reshape(*f.shape[:2], -1), dtype=torch.float64)


def to_botorch(model: Any) -> Any:
    """Return a model of BoTorch whose posterior is the ensemble of draws of f.

    BoTorch's acquisition functions of several rows (names with ``q``) and its
    optimisers take it. Gradients pass through the draws of networks with normal noise
    that are fitted to an array of numbers: of the estimators that are trained with
    torch, and of :class:`LaplaceRegressor`. Other models have values without gradients,
    for ``optimize_acqf_discrete``.

    Parameters
    ----------
    model : fitted regressor
        Any model that :func:`skbayesnn.sample_f` accepts, fitted to numbers.

    Returns
    -------
    model : botorch.models.ensemble.EnsembleModel
        Its rows are in the units of X, its values in the units of y.

    Raises
    ------
    ImportError
        If botorch is not installed.
    """
    _check_regressor(model, "to_botorch")
    models = required(
        "botorch.models.ensemble", "`to_botorch` needs", "pip install botorch"
    )
    base: Any = models.EnsembleModel
    draws = _torch_draws(model)
    row = torch.zeros(1, model.n_features_in_, dtype=torch.float64)
    n_targets = draws(row).shape[-1]

    class DrawsOfFunctions(base):
        """An ensemble of the posterior draws of f."""

        _num_outputs = n_targets

        def forward(self, X):
            """Draws, (..., draws, rows, targets), for X (..., rows, columns)."""
            rows = X.reshape(-1, X.shape[-1])
            f = draws(rows.double()).unflatten(1, X.shape[:-1])
            return f.movedim(0, -3).to(X)

    return DrawsOfFunctions()
