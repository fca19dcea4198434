"""Expected cost against the action, or against the threshold of a class."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from skbayesnn._predictive.classes import check_known
from skbayesnn._validation import check_levels
from skbayesnn.decision import _costs_for, _decide, _each_part, _open
from skbayesnn.inspection._columns import number_text
from skbayesnn.plotting import _axes

# Points of a curve, and the largest number of curves of classes.
N_POINTS, MAX_CLASSES = 101, 7


@dataclass(kw_only=True, repr=False, eq=False)
class DecisionDisplay(_axes.Display):
    """Expected cost of an action or of a threshold, with a band, and the best choice.

    Create it by :meth:`from_estimator`. The cost is a mean over the rows of X. The band
    is its range over posterior draws: what more training rows could change.

    Regression: the cost of the same action in all rows, against the action. Dashed: the
    cost of the best action of each row, which the distribution of each row allows.

    Classification: for each class (of two, the second), the action that is best for it
    is taken if the class has at least the probability on the x axis, and the best other
    action otherwise. Dotted: the break-even, the probability from which this is right;
    its median, if it depends on the row.

    Parameters
    ----------
    x : ndarray of shape (n_points,)
        Actions or thresholds.
    cost, lower, upper : dict of ndarray
        For each class, or for ``"action"``: the expected cost per row, and the bounds
        of the band.
    realised : dict of ndarray
        For the same keys, the mean cost with the given y; empty without y.
    break_even : dict of float
        For each class; empty for regressions.
    best_cost : float
        Expected cost of the best action of each row.
    largest_share : float
        Largest share of a row in the sum over rows of largest minus smallest cost;
        zero for regressions. A title names it if it is above one half.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_, bands_, realised_, break_even_ : dict of matplotlib Artist
    best_ : matplotlib Artist
    """

    x: Any
    cost: Any
    lower: Any
    upper: Any
    realised: Any
    break_even: Any
    best_cost: float
    largest_share: float = 0.0

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        cost: Any,
        y: Any = None,
        *,
        actions: Any = None,
        coverage: float = 0.9,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Plot the expected cost of a fitted regressor or classifier.

        Parameters
        ----------
        estimator : fitted estimator
            Any model that :func:`skbayesnn.decision.best_action` accepts.
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
        cost : matrix, DataFrame, callable or Cost
            See :mod:`skbayesnn.decision`.
        y : array-like of shape (n_samples,), default=None
            If given, the mean cost that occurred is drawn, too.
        actions : sequence, default=None
            Names of the columns of a matrix. For regressions the actions on the x axis;
            None is numbers in the range of y.
        coverage : float in (0, 1), default=0.9
            Probability of the band.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : DecisionDisplay
        """
        [coverage] = check_levels("coverage", coverage)
        distribution, table = _open((estimator, X), None)
        costs = _costs_for(distribution, cost, actions, table)
        costs.warn_of_unused()
        curves = _of_actions if costs.classes is None else _of_thresholds
        x, totals, best_cost, break_even = curves(distribution, costs, y)
        draws, realised = totals, {}
        if y is not None:
            draws = {key: values[:-1] for key, values in totals.items()}
            realised = {key: values[-1] for key, values in totals.items()}
        tails = [(1 - coverage) / 2, (1 + coverage) / 2]
        bounds = {key: np.quantile(v, tails, axis=0) for key, v in draws.items()}
        stakes = np.zeros(2) if costs.matrix is None else np.ptp(costs.matrix, (1, 2))
        return cls(
            x=x,
            cost={key: values.mean(0) for key, values in draws.items()},
            lower={key: low for key, (low, _) in bounds.items()},
            upper={key: high for key, (_, high) in bounds.items()},
            realised=realised,
            break_even=break_even,
            best_cost=best_cost,
            largest_share=stakes.max() / (stakes.sum() or 1) if len(stakes) > 1 else 0,
        ).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the expected cost.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of matplotlib's ``plot`` for the lines of expected cost.

        Returns
        -------
        display : DecisionDisplay
        """
        ax = self._axes(ax)
        bands = [*self.cost.values(), *self.lower.values(), *self.upper.values()]
        expected = np.append(np.concatenate(bands), self.best_cost)
        room = np.ptp(expected) * (_axes.LONGEST - 1) / 2
        low, high = expected.min() - room, expected.max() + room
        self.lines_, self.bands_ = {}, {}
        self.realised_: dict = {}
        self.break_even_: dict = {}
        for key, cost in self.cost.items():
            label, color = "expected, same action in all rows", _axes.next_color(ax)
            if key in self.break_even:
                value = number_text(self.break_even[key])
                label = f"{_axes.short_label(str(key), 20)}, break-even {value}"
            line = _axes.draw_line(ax, self.x, cost, kwargs, color=color, label=label)
            same, band = {"color": line.get_color()}, (self.lower[key], self.upper[key])
            self.lines_[key] = line
            self.bands_[key] = _axes.draw_band(ax, self.x, *band, same, alpha=0.2, lw=0)
            if key in self.break_even:
                self.break_even_[key] = ax.axvline(self.break_even[key], ls=":", **same)
            if key in self.realised:
                y = self.realised[key]
                label = f"occurred, {number_text(y.min())} to {number_text(y.max())}"
                label = "_" if self.realised_ else label
                y = np.where((low <= y) & (y <= high), y, np.nan)
                self.realised_[key] = _axes.draw_line(
                    ax, self.x, y, same, ls="-.", label=label
                )
        label = "expected, best action of each row"
        self.best_ = ax.axhline(self.best_cost, color=_axes.GREY, ls="--", label=label)
        ax.set_xlabel("threshold of the probability" if self.break_even else "action")
        ax.set_ylabel("cost per row")
        _axes.leave_out_outliers(ax, expected[:, None])
        _axes.legend_on_top(ax)
        if self.largest_share > 0.5:
            ax.set_title(f"one row has {self.largest_share:.0%} of what is at stake")
        return self


def _of_actions(distribution, costs, y):
    """Costs of the same action in all rows, for ``DecisionDisplay``.

    returns : actions, mean costs of every draw {"action": (draws, actions)}, with those
        that occurred as the last one if there is y, the cost of the best actions, and
        no break-even
    """
    if costs.actions is None:
        best, *_ = _decide(distribution, costs, only_action=True)
        likely = np.stack([best, *distribution.ppf([0.005, 0.995]).reshape(-1, 2).T])
        # A few rows with a larger y do not set the axis.
        low, high = np.quantile(likely, [0.02, 0.98])
        x = np.linspace(low, high, N_POINTS)
    else:
        x = np.sort(costs.actions)
    y = None if y is None else np.asarray(y, dtype=np.float64)[:, None]

    def of_part(block, rows):
        values, by_row = block.outcomes()
        each = by_row @ costs.of(rows, x[None], values)
        best = each.mean(1).min(1).sum()
        if y is not None:
            each = np.concatenate([each, costs.of(rows, x[None], y[rows])], axis=1)
        return each.sum(0), best

    parts = zip(*_each_part(distribution, costs, of_part), strict=True)
    total, best = (sum(values) / costs.n_rows for values in parts)
    return x, {"action": total}, best, {}


def _of_thresholds(distribution, costs, y):
    """Costs of thresholds of each class, for ``DecisionDisplay``.

    returns : thresholds, mean costs of every draw {class: (draws, thresholds)}, with
        those that occurred as the last one if there is y, the cost of the best actions,
        and {class: break-even}
    """
    classes, x = costs.classes, np.linspace(0, 1, N_POINTS)
    if len(costs.actions) < 2:
        raise ValueError(f"a decision needs two actions; got {costs.actions.tolist()}.")
    shown = [1] if len(classes) == 2 else range(min(len(classes), MAX_CLASSES))
    if y is not None:
        y = np.asarray(y)
        check_known(y, classes)

    def of_part(block, rows):
        labels, by_row = block.outcomes()
        mean, at = by_row.mean(1), np.arange(len(rows))
        matrix = costs.of(rows, costs.actions[None], labels)
        matrix = np.broadcast_to(matrix, (len(rows), *matrix.shape[1:]))
        each = by_row @ matrix
        expected, results = each.mean(1), []
        if y is not None:
            true = (y[rows][:, None] == classes).argmax(1)
            each = np.concatenate([each, matrix[at, true][:, None]], axis=1)
        for k in shown:
            own, others = matrix[:, k].argmin(1), expected.copy()
            others[at, own] = np.inf
            takes, best = mean[:, [k]] >= x, others.argmin(1)
            total = each[at, :, own].T @ takes + each[at, :, best].T @ ~takes
            results.append((total, _break_even(matrix, mean, k, own)))
        return results, expected.min(1).sum()

    parts, best = zip(*_each_part(distribution, costs, of_part), strict=True)
    totals, break_even = {}, {}
    for label, results in zip(classes[shown], zip(*parts, strict=True), strict=True):
        total, at = zip(*results, strict=True)
        totals[label] = sum(total) / costs.n_rows
        break_even[label] = float(np.median(np.concatenate(at)))
    return x, totals, sum(best) / costs.n_rows, break_even


def _break_even(matrix, probability, k, own) -> np.ndarray:
    """Probability of class k from which its action is best, (rows,).

    The other classes keep their proportions.

    matrix : (rows, classes, actions)
    probability : (rows, classes)
    own : (rows,), the action that is best for class k
    """
    rest = np.delete(probability, k, axis=1)
    rest = rest / np.maximum(rest.sum(1, keepdims=True), np.finfo(float).tiny)
    without = np.einsum("rk,rka->ra", rest, np.delete(matrix, k, axis=1))
    at = np.arange(len(matrix))
    lost = without[at, own][:, None] - without  # by the action if it is another class
    saved = matrix[:, k] - matrix[at, k, own][:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(lost > 0, lost / (lost + saved), 0.0)
    return share.max(1)
