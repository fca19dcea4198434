"""From a predictive distribution to an action: costs, decisions, and their value.

>>> from sklearn.datasets import load_breast_cancer
>>> from skbayesnn import MCDropoutClassifier
>>> from skbayesnn.decision import best_action, threshold
>>> X, y = load_breast_cancer(return_X_y=True)
>>> model = MCDropoutClassifier((20,), max_iter=10, random_state=0).fit(X, y)
>>> decision = best_action((model, X[:3]), threshold(1.0, 20.0))
>>> decision.action.shape, decision.value_of_more_data.shape
((3,), (3,))

A cost is one of these:

- a matrix with a row for each true class, in the order of ``classes_``, and a column
  for each action; or a frame, whose index are the classes and whose columns are the
  actions. Entries are numbers, arrays with one value per row of X, or names of columns
  of X, such as an amount (Elkan 2001, "The foundations of cost-sensitive learning",
  IJCAI);
- a function ``cost(action, y)`` of arrays that broadcast; :class:`Cost` adds values
  that depend on the row;
- :func:`threshold`, :func:`newsvendor`, or the functions :func:`quadratic` and
  :func:`absolute`.

Negative costs are gains. The action with the smallest expected cost is the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from skbayesnn import _stored as stored
from skbayesnn._meta import functions
from skbayesnn._meta.base import DecidingMetaEstimator, one_target
from skbayesnn._meta.unwrap import inner_estimator
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.classes import ClassPredictive
from skbayesnn._predictive.distribution import (
    ClassDistribution,
    ModelRows,
    PredictiveDistribution,
)
from skbayesnn._runtime import on_snapshot, warn
from skbayesnn._typing import Array, MatrixLike
from skbayesnn._validation import check_row_weights
from skbayesnn.scoring import Scorer

__all__ = [
    "Cost",
    "Decision",
    "DecisionMaker",
    "absolute",
    "best_action",
    "cost_scorer",
    "newsvendor",
    "quadratic",
    "realised_cost",
    "threshold",
]

# Largest number of elements of a temporary array: rows x values of y x actions. A
# regression has about this many values of y.
_CHUNK = 4_000_000
_N_VALUES = 200
# Actions between two neighbouring values of y, in the last step of a search.
_N_FINE = 33


# ---- costs


class Cost:
    """Cost of an action, if y becomes known later, with values that depend on the row.

    Parameters
    ----------
    function : callable
        ``function(action, y, **values)`` takes arrays that broadcast, and returns the
        costs in an array of their common shape. Define it at the top level of a module,
        so that the cost can be pickled.
    values : dict, default=None
        Further arguments of the function: numbers, arrays with one value per row of X,
        or names of columns of X.

    Examples
    --------
    A bid that is at least the price y wins an item, which is worth its ``value``:

    >>> import numpy as np
    >>> from skbayesnn.decision import Cost
    >>> def loss(bid, price, value):
    ...     return np.where(bid >= price, bid - value, 0.0)
    >>> cost = Cost(loss, {"value": "value"})
    """

    function: Annotated[Any, stored.Property("a function", callable)]
    values: dict[str, Any] | None

    def __init__(self, function: Callable, values: dict | None = None) -> None:
        self.function = function
        self.values = values

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", self.function)
        return f"Cost({name}, {self.values})"


def quadratic(action: Array, y: Array) -> Array:
    """Square of the difference; the best action is the mean.

    Parameters
    ----------
    action, y : ndarray
        They must broadcast.

    Returns
    -------
    cost : ndarray
    """
    return np.square(y - action)


def absolute(action: Array, y: Array) -> Array:
    """Absolute difference; the best action is the median.

    Parameters
    ----------
    action, y : ndarray
        They must broadcast.

    Returns
    -------
    cost : ndarray
    """
    return np.abs(y - action)


def _newsvendor(action, y, under, over):
    return np.where(y > action, under * (y - action), over * (action - y))


def newsvendor(under: Any, over: Any) -> Cost:
    """Cost of an order, proportional to what is missing or left over.

    The best order is the quantile at under / (under + over), the service level.

    Parameters
    ----------
    under, over : float, array-like of shape (n_samples,) or str
        Costs of one unit too little and of one unit too much, above zero: numbers,
        values per row, or names of columns of X.

    Returns
    -------
    cost : Cost
    """
    return Cost(_newsvendor, {"under": under, "over": over})


def threshold(
    false_positive: Any,
    false_negative: Any,
    *,
    true_positive: Any = 0.0,
    true_negative: Any = 0.0,
) -> list:
    """Cost matrix of two classes; the second of ``classes_`` is the positive one.

    Without costs of right decisions, the positive class is predicted if its probability
    is above false_positive / (false_positive + false_negative).

    Parameters
    ----------
    false_positive, false_negative : float, array-like of shape (n_samples,) or str
        Numbers, values per row, or names of columns of X.
    true_positive, true_negative : as ``false_positive``, default=0

    Returns
    -------
    cost : list of list
        The matrix, classes x actions.
    """
    return [[true_negative, false_positive], [false_negative, true_positive]]


# Exact best actions; each takes the distribution of a block and the values of its rows.
_EXACT: dict[Any, Callable[..., Array]] = {
    quadratic: lambda block: block.mean(),
    absolute: lambda block: block.quantile(0.5),
    _newsvendor: lambda block, under, over: block.quantile(
        (under / (under + over))[:, np.newaxis]
    ),
}


class _Costs:
    """A checked cost for rows of X.

    Parameters
    ----------
    cost : matrix, frame, callable or Cost
    actions : sequence or None
    X : table with the columns that the cost names
    n_rows : int
    classes : ndarray of shape (classes,), or None for regressions

    Attributes
    ----------
    actions : ndarray of shape (actions,), or None for any number
    function, values : of (action, y), and its further arguments, (rows,) each
    matrix : ndarray of shape (rows or 1, classes, actions), or None for regressions
    """

    matrix: Any = None

    def __init__(self, cost, actions, X, n_rows: int, classes=None) -> None:
        self._X, self.n_rows, self.classes = X, n_rows, classes
        self.actions: Any = None if actions is None else np.asarray(actions)
        if actions is not None and (np.ndim(actions) != 1 or len(actions) == 0):
            raise ValueError(f"`actions` must be a list, not empty; got {actions!r}.")
        if actions is not None and len(set(actions)) < len(actions):
            raise ValueError(f"`actions` must differ; got {list(actions)}.")
        if isinstance(cost, Cost) or callable(cost):
            self._set_function(cost if isinstance(cost, Cost) else Cost(cost))
        elif classes is None:
            raise TypeError(
                "a matrix of costs needs classes; got a regression. Give a function "
                "cost(action, y), or newsvendor(under, over), quadratic or absolute."
            )
        else:
            self.matrix = self._matrix(cost)

    def _set_function(self, cost: Cost) -> None:
        self.function, given = cost.function, cost.values or {}
        self.values = {
            name: np.broadcast_to(self._per_row(name, value), self.n_rows)
            for name, value in given.items()
        }
        if self.classes is not None:
            if self.function in _EXACT:
                raise TypeError(
                    f"{self.function.__name__.strip('_')} is a cost of numbers; got "
                    f"the classes {self.classes.tolist()}. Give a matrix or threshold."
                )
            self.actions = self.classes if self.actions is None else self.actions
            rows = np.arange(self.n_rows if given else 1)
            self.matrix = self.of(rows, self.actions[None], self.classes[None])
        elif self.actions is not None:
            self.actions = _finite("`actions`", self.actions)
        for name, values in self.values.items():
            if self.function is _newsvendor and not (values > 0).all():
                raise ValueError(f"`{name}` must be > 0; got {values.min():g}.")

    def _per_row(self, name: str, value) -> Array:
        """A number, values per row, or a column of X, as () or (rows,)."""
        rule = f"{name} of the cost must be a number, values per row, or a column of X"
        if isinstance(value, str):
            columns = list(getattr(self._X, "columns", []))
            if value not in columns:
                raise ValueError(f"{rule}; got {value!r}, and the columns {columns}.")
            name, value = f"the column {value!r} as {name}", self._X[value]
        values = _finite(f"{name} of the cost", value)
        if values.shape not in ((), (self.n_rows,)):
            raise ValueError(
                f"{rule}, one for each of {self.n_rows} rows; got shape {values.shape}."
            )
        return values

    def _matrix(self, cost) -> Array:
        if hasattr(cost, "columns"):
            if missing := set(self.classes.tolist()) - set(cost.index):
                raise ValueError(
                    "the index of a frame of costs must contain all classes; got "
                    f"{list(cost.index)}, without {sorted(missing)}."
                )
            if self.actions is None:
                self.actions = np.asarray(cost.columns)
            cost = cost.loc[self.classes].to_numpy().tolist()
        rows: list[list] = []
        with suppress(TypeError):
            rows = [list(row) for row in cost]
        widths = {len(row) for row in rows}
        n_classes, n_actions = len(self.classes), max(widths, default=0)
        if self.actions is None:
            is_square = n_classes == n_actions
            self.actions = self.classes if is_square else np.arange(n_actions)
        if len(rows) != n_classes or widths != {len(self.actions)}:
            raise ValueError(
                f"a cost matrix must have {n_classes} rows, one for each class of "
                f"{self.classes.tolist()}, and each of them must have "
                f"{len(self.actions)} entries, one for each action; got {cost}."
            )
        entries = [
            self._per_row(f"entry ({i}, {j})", entry)
            for i, row in enumerate(rows)
            for j, entry in enumerate(row)
        ]
        matrix = np.stack(np.broadcast_arrays(*entries), axis=-1)
        return matrix.reshape(-1, n_classes, len(self.actions))

    def of(self, rows: Array, action: Array, y: Array) -> Array:
        """Costs of actions, (rows or 1, values of y, actions).

        rows : indices of rows
        action : (rows or 1, actions); of a matrix all actions are returned
        y : (rows or 1, values)
        """
        if self.matrix is not None:
            return self.matrix if len(self.matrix) == 1 else self.matrix[rows]
        values = {k: v[rows, None, None] for k, v in self.values.items()}
        return self.call(action[:, None, :], y[:, :, None], values)

    def call(self, action, y, values) -> Array:
        """Call the function, and check what it returns."""
        cost = _finite("the cost", self.function(action, y, **values))
        shape = np.broadcast_shapes(*map(np.shape, (action, y, *values.values())))
        if cost.shape != shape:
            raise ValueError(
                "a cost function must return one cost for each pair of action and y, "
                f"which broadcast to the shape {shape}; got shape {cost.shape}."
            )
        return cost

    def warn_of_unused(self) -> None:
        """Warn of actions that cost more than another one for all classes."""
        if self.matrix is None or len(self.matrix) > 1 or len(self.actions) == 1:
            return
        first, second = self.matrix[0][:, :, None], self.matrix[0][:, None]
        is_better = (first <= second).all(0) & (first < second).any(0)
        unused = self.actions[is_better.any(0)]
        if len(unused):
            warn(
                "SKB406",
                f"The actions {unused.tolist()} are never best: another one costs "
                "less, or the same, for all classes. Check the order of the rows, "
                f"{self.classes.tolist()}, and columns, {self.actions.tolist()}.",
            )


def _finite(name: str, values) -> Array:
    """Convert to float64, and raise if a value is not finite."""
    try:
        values = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numbers; got {values!r}.") from error
    if n_bad := np.size(values) - np.isfinite(values).sum():
        raise ValueError(
            f"{name} must be finite; got NaN or infinity in {n_bad} of {values.size} "
            "values."
        )
    return values


# ---- the best action


@dataclass(frozen=True, eq=False)
class Decision:
    """Best actions for the rows of X, (n_samples,) each.

    Parameters
    ----------
    action : ndarray
        Action with the smallest expected cost.
    expected_cost : ndarray
        Its expected cost.
    second_cost : ndarray
        Expected cost of the second best action; NaN if actions are continuous.
    value_of_perfect_forecast : ndarray
        How much lower the expected cost would be if y were known.
    value_of_more_data : ndarray
        How much lower it would be if the posterior draw, a function or its class
        probabilities, were known: the part that training rows could save. NaN if the
        model has no posterior draws.

    Notes
    -----
    For regressions, about 150 values of y per row represent the distribution, more if
    it has point masses. Actions of ``quadratic``, ``absolute`` and ``newsvendor`` are
    the exact mean and quantiles; their costs have errors below 0.1 % for normal noise.
    The two values are the expected values of perfect information about y and about the
    function (Raiffa & Schlaifer 1961, "Applied statistical decision theory").
    """

    action: Array
    expected_cost: Array
    second_cost: Array
    value_of_perfect_forecast: Array
    value_of_more_data: Array


class _Probabilities:
    """A classifier without posterior draws, whose probabilities are one draw."""

    def __init__(self, model):
        self.model = model

    def _open_predictive(self, X):
        probability = np.asarray(self.model.predict_proba(X))
        block = ClassPredictive(probability[None], np.asarray(self.model.classes_))
        return PredictiveBlocks(len(probability), block.rows)


def _open(prediction, X):
    """Distribution, and the table for named columns."""
    if isinstance(prediction, PredictiveDistribution):
        return prediction, X
    if not (isinstance(prediction, tuple) and len(prediction) == 2):
        raise TypeError(
            "give a predictive distribution, or a model and its rows as (model, X); "
            f"got {type(prediction).__name__}."
        )
    model, rows = prediction
    X = rows if X is None else X
    try:
        return functions.predict_distribution(model, rows), X
    except TypeError:
        if not hasattr(model, "predict_proba"):
            raise
    return ClassDistribution([ModelRows(_Probabilities(model), rows)]), X


def best_action(
    prediction: Any, cost: Any, *, actions: Sequence | None = None, X: Any = None
) -> Decision:
    """Return the action with the smallest expected cost, and what it costs.

    Parameters
    ----------
    prediction : PredictiveDistribution, or tuple (model, X)
        The model is any one that :func:`skbayesnn.predict_distribution` takes, or a
        classifier with ``predict_proba``. Regressions must have one target.
    cost : array-like of shape (n_classes, n_actions), DataFrame, callable or Cost
        See :mod:`skbayesnn.decision`.
    actions : sequence, default=None
        Names of the columns of a matrix; None is the classes if it is square. For a
        function, the possible actions; None is the classes, or for regressions any
        number between the smallest and the largest likely y.
    X : table, default=None
        Table with the columns that the cost names; None is X of the tuple.

    Returns
    -------
    decision : Decision

    Warns
    -----
    UserWarning
        If an action costs more than another one for all classes (SKB406).
    """
    distribution, X = _open(prediction, X)
    costs = _costs_for(distribution, cost, actions, X)
    costs.warn_of_unused()
    return Decision(*_decide(distribution, costs))


def _costs_for(distribution, cost, actions, X) -> _Costs:
    if X is not None:
        check_consistent_length(range(len(distribution)), X)
    classes = getattr(distribution, "classes", None)
    return _Costs(cost, actions, X, len(distribution), classes)


def _each_part(distribution, costs: _Costs, function: Callable) -> list:
    """Results of a function for parts of the rows, whose arrays fit into memory.

    function : takes the distribution of a part of the rows, and their indices
    """
    if costs.classes is None:
        n_targets = distribution._first.components.n_targets
        if n_targets != 1:
            raise ValueError(
                f"a decision needs one target; got {n_targets}. Fit a model for each "
                "target."
            )
    n_values = _N_VALUES if costs.classes is None else len(costs.classes)
    n_actions = n_values if costs.actions is None else len(costs.actions)

    def of_block(block, rows):
        most, *others = sorted([n_values, n_actions, block.n_draws], reverse=True)
        step = max(_CHUNK // (most * max(others)), 1)
        starts = range(0, len(rows), step)
        parts = [slice(start, start + step) for start in starts]
        return [function(block.rows(part), rows[part]) for part in parts]

    blocks = distribution._each(of_block, np.arange(len(distribution)))
    return [result for block in blocks for result in block]


def _decide(distribution, costs: _Costs, only_action: bool = False) -> list[Array]:
    """Fields of a ``Decision``, (rows,) each; or actions alone."""
    exact = None
    if costs.classes is None and costs.actions is None:
        exact = _EXACT.get(costs.function)

    def of_part(block, rows) -> tuple[Array, ...]:
        best: Any = None
        if exact is not None:
            values = {name: values[rows] for name, values in costs.values.items()}
            best = exact(block, **values).reshape(-1, 1)
            if only_action:
                return (best[:, 0],)
        y, by_row = block.outcomes()
        mean = by_row.mean(1, keepdims=True)
        second = np.full(len(rows), np.nan)
        if costs.actions is None:
            cost = costs.of(rows, y, y)
            best = _searched(costs, rows, y, mean, cost) if best is None else best
            actions = np.concatenate([best, y], axis=1)
            cost = np.concatenate([costs.of(rows, best, y), cost], axis=2)
        else:
            actions = np.broadcast_to(costs.actions, (len(rows), len(costs.actions)))
            cost = costs.of(rows, actions, y)
        each = by_row @ cost  # (rows, draws, actions)
        expected = each.mean(1)
        least, chosen = expected.min(1), np.zeros(len(rows), dtype=int)
        if costs.actions is not None:
            chosen = expected.argmin(1)
            second = np.sort(expected, 1)[:, 1] if len(costs.actions) > 1 else second
        at = np.arange(len(rows)), chosen
        known_y = (mean[:, 0] * cost.min(2)).sum(1)
        known_draw = each.min(2).mean(1) if by_row.shape[1] > 1 else np.nan
        saved = (np.maximum(least - known, 0.0) for known in (known_y, known_draw))
        return actions[at], expected[at], second, *saved

    parts = _each_part(distribution, costs, of_part)
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def _searched(costs: _Costs, rows, y, mean, cost) -> Array:
    """Best number, (rows, 1): first among the values of y, then between these.

    mean : (rows, 1, values), probabilities
    cost : (rows, values, values), of each value of y as an action
    """
    at = np.arange(len(rows))
    best = (mean @ cost)[:, 0].argmin(1)
    low = y[at, np.maximum(best - 1, 0)]
    high = y[at, np.minimum(best + 1, y.shape[1] - 1)]
    fine = np.linspace(low, high, _N_FINE, axis=1)
    fine = np.concatenate([y[at, best][:, None], fine], axis=1)
    best = (mean @ costs.of(rows, fine, y))[:, 0].argmin(1)
    return fine[at, best][:, None]


# ---- costs that occurred


def realised_cost(
    action: ArrayLike,
    y: ArrayLike,
    cost: Any,
    *,
    X: Any = None,
    classes: ArrayLike | None = None,
    actions: Sequence | None = None,
) -> Array:
    """Cost of each action, after y became known.

    Parameters
    ----------
    action : array-like of shape (n_samples,)
    y : array-like of shape (n_samples,)
    cost : matrix, DataFrame, callable or Cost
    X : table, default=None
        Table with the columns that the cost names.
    classes : array-like, default=None
        Classes of the rows of a matrix; None is the sorted labels of y, or the index of
        a frame.
    actions : sequence, default=None
        Names of the columns of a matrix, as in :func:`best_action`.

    Returns
    -------
    cost : ndarray of shape (n_samples,)
    """
    action, y = np.asarray(action), np.asarray(y)
    check_consistent_length(action, y)
    if isinstance(cost, Cost) or callable(cost):
        costs = _Costs(cost, None, X, len(y))
        return costs.call(action, y, costs.values)
    if classes is None:
        classes = cost.index if hasattr(cost, "columns") else np.unique(y)
    costs = _Costs(cost, actions, X, len(y), np.asarray(classes))

    def positions(name, values, known):
        is_one = values[:, None] == known
        if len(unknown := np.unique(values[~is_one.any(1)])):
            raise ValueError(
                f"`{name}` must be in {known.tolist()}; got {unknown[:10].tolist()}."
            )
        return is_one.argmax(1)

    rows = np.arange(len(y)) % len(costs.matrix)
    at = positions("y", y, costs.classes), positions("action", action, costs.actions)
    return costs.matrix[rows, *at]


def _neg_cost(estimator, X, y, sample_weight, cost, actions=None):
    """Minus the mean cost of the actions on the rows of X.

    The actions are what a ``DecisionMaker`` predicts, and otherwise the best actions
    for the predictive distribution or the class probabilities. A regressor without
    these acts by its point prediction.
    """
    prediction = None
    if not isinstance(inner_estimator(estimator), DecisionMaker):
        try:
            prediction, _ = _open((estimator, X), None)
        except TypeError:
            if is_classifier(estimator):
                raise
    if prediction is None:
        action = estimator.predict(X)
    else:
        costs = _costs_for(prediction, cost, actions, X)
        [action, *_] = _decide(prediction, costs, only_action=True)
    classes = cost.index if hasattr(cost, "columns") else None
    classes = getattr(estimator, "classes_", None) if classes is None else classes
    occurred = realised_cost(action, y, cost, X=X, classes=classes, actions=actions)
    return -float(np.average(occurred, weights=check_row_weights(sample_weight, y)))


def cost_scorer(cost: Any, *, actions: Sequence | None = None) -> Scorer:
    """Scorer for searches and ``cross_validate``: minus the mean cost, in its units.

    Parameters
    ----------
    cost : matrix, DataFrame, callable or Cost
        See :mod:`skbayesnn.decision`.
    actions : sequence, default=None
        As in :func:`best_action`.

    Returns
    -------
    scorer : Scorer
        It scores the predictions of a :class:`DecisionMaker`, and for other models the
        best actions for their predictive distributions or class probabilities.
    """
    return Scorer("neg_cost_scorer", _neg_cost, cost=cost, actions=actions)


# ---- the meta-estimator


class DecisionMaker(DecidingMetaEstimator):
    """Estimator that predicts the action with the smallest expected cost.

    Put it around a whole pipeline if the cost names columns of X, which then need not
    be features.

    Parameters
    ----------
    estimator : estimator
        A classifier or regressor that :func:`best_action` takes. A ``FrozenEstimator``
        is not fitted again.
    cost : array-like of shape (n_classes, n_actions), DataFrame, callable or Cost
        See :mod:`skbayesnn.decision`.
    actions : sequence, default=None
        As in :func:`best_action`.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to all rows.
    classes_ : ndarray of shape (n_classes,)
        Classes of a classifier.
    n_features_in_, feature_names_in_
        As in the fitted estimator, if it has them.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skbayesnn import MCDropoutRegressor
    >>> from skbayesnn.decision import DecisionMaker, newsvendor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> network = MCDropoutRegressor(max_iter=10, random_state=0)
    >>> maker = DecisionMaker(network, newsvendor(under=5.0, over=1.0)).fit(X, y)
    >>> maker.predict(X[:3]).shape
    (3,)
    """

    estimator: stored.Estimator
    estimator_: stored.Fitted
    classes_: Annotated[stored.Labels, stored.OPTIONAL]

    def __init__(self, estimator, cost, *, actions=None) -> None:
        self.estimator = estimator
        self.cost = cost
        self.actions = actions

    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Check the cost, and fit the estimator.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        **fit_params : dict
            Parameters of the estimator's ``fit``. With metadata routing those that it
            requests.

        Returns
        -------
        self : object
        """
        given = y
        X, y, _, routed = self._validate_fit_arguments(X, y, sample_weight, fit_params)
        y = one_target(y, "Fit a DecisionMaker for each target.")
        classes = np.unique(y) if is_classifier(self.estimator) else None
        _Costs(self.cost, self.actions, X, len(y), classes).warn_of_unused()
        model = clone(self.estimator).fit(X, given, **routed.estimator.fit)
        fitted = {} if classes is None else {"classes_": model.classes_}
        return self._set_fitted(model, estimator_=model, **fitted)

    def _check_groups_are_kept(self, routed) -> None:
        """There are no folds."""

    @on_snapshot
    def predict(self, X: MatrixLike) -> Array:
        """Predict the best action for each row.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)

        Returns
        -------
        action : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        distribution, _ = _open((self.estimator_, X), None)
        costs = _costs_for(distribution, self.cost, self.actions, X)
        return _decide(distribution, costs, only_action=True)[0]

    def score(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Minus the mean cost of the predicted actions; larger is better."""
        return _neg_cost(self, X, y, sample_weight, self.cost, self.actions)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        for kind in (tags.classifier_tags, tags.regressor_tags):
            if kind is not None:
                kind.poor_score = True  # a cost, neither accuracy nor R^2
        return tags
