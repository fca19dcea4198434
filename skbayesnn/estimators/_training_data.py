"""What ``fit`` was given -> checked rows."""

from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from skbayesnn._data.other_units import THROUGH_STEPS, warn_of_other_units
from skbayesnn._data.scaling import Scaling
from skbayesnn._data.validation import Table, check_inputs
from skbayesnn._likelihoods import likelihood_named
from skbayesnn._runtime import warn, warn_once


@dataclass(frozen=True)
class TrainingData:
    """What ``fit`` was given, checked; the candidates of a search share one per fold.

    Parameters
    ----------
    table : Table
    rows : ndarray of int
        Of positive weight, to be trained on.
    validation : ndarray of int, or None
        Rows given to stop the training.
    of_y : dict
        Fitted attributes that follow from y alone.
    """

    table: Table
    rows: np.ndarray
    validation: np.ndarray | None
    of_y: dict
    _scalings: dict = field(default_factory=dict, repr=False, compare=False)

    @property
    def classes(self) -> np.ndarray | None:
        """Labels of a classification."""
        return self.of_y.get("classes_")

    @property
    def targets_apart(self) -> list[np.ndarray]:
        """y as it was given, and y of the given validation rows."""
        y, validation = self.table.y, self.validation
        return [y] if validation is None else np.split(y, validation[:1])

    def scaling(self, rows: np.ndarray, weights: np.ndarray, **which) -> Scaling:
        """That of some rows; computed once for the same ones."""
        key = rows.tobytes(), weights.tobytes(), *which.values()
        if key not in self._scalings:
            X, y = self.table.X[rows], self.table.y[rows]
            self._scalings[key] = Scaling.of(X, y, weights, **which)
        return self._scalings[key]

    def forget_scalings(self) -> None:
        """Those computed so far, one for each candidate's own rows."""
        self._scalings.clear()


def training_data(
    estimator,
    X,
    y,
    sample_weight=None,
    X_val=None,
    y_val=None,
    *,
    reset: bool = True,
) -> TrainingData:
    """Checked arguments of an estimator's ``fit``.

    reset : bool, whether the columns of X are new to the estimator
    """
    table, of_y = estimator._check(X, y, sample_weight, reset=reset)
    likelihood = likelihood_named(estimator.likelihood)
    has_noise = likelihood is not None and not likelihood.tempered
    if estimator.network is None or not estimator.network.row_shapes:
        _warn_of_constant_columns(table, getattr(estimator, "feature_names_in_", None))
    if has_noise:
        _warn_of_constant_targets(table)
    rows = np.flatnonzero(table.sample_weight > 0)
    table, validation = _with_validation(estimator, table, X_val, y_val, of_y)
    return TrainingData(table, rows, validation, of_y)


def _with_validation(estimator, table, X_val, y_val, of_y):
    """The table with the given validation rows below, and their numbers."""
    if X_val is None and y_val is None:
        return table, None
    if X_val is None or y_val is None or not estimator.early_stopping:
        raise ValueError(
            "`X_val` and `y_val` must be given together, with "
            f"early_stopping=True; got X_val={_given(X_val)}, "
            f"y_val={_given(y_val)}, early_stopping={estimator.early_stopping!r}."
        )
    way_out = f" {THROUGH_STEPS}"
    try:
        check_inputs(estimator, X_val, reset=False)
        way_out = ""
        held_out = estimator._check_held_out(X_val, y_val, table, of_y)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"of `X_val` and `y_val`: {error}{way_out}") from error
    if held_out.y.shape[1:] != table.y.shape[1:]:
        raise ValueError(
            "`y_val` must have as many targets as `y`; got "
            f"{held_out.y.shape[1]} targets, y has {table.y.shape[1]}."
        )
    warn_of_other_units(table.X, held_out.X)
    n = len(table.sample_weight)
    both = table.append(held_out)
    return both, np.arange(n, len(both.sample_weight))


def _given(value):
    return None if value is None else type(value).__name__


def _warn_of_constant_columns(table: Table, names) -> None:
    """They can be fitted, but tell nothing; of all folds of a call it is said once."""
    used = table.sample_weight > 0
    X = table.X if used.all() else table.X[used]
    ends = X.max(axis=0), X.min(axis=0)
    if sparse.issparse(X):
        ends = tuple(end.toarray().ravel() for end in ends)
    columns = np.flatnonzero(ends[0] == ends[1])
    if len(columns):
        which = columns.tolist() if names is None else [str(names[j]) for j in columns]
        shown = ", ".join(map(repr, which[:10])) + ", ..." * (len(which) > 10)
        warn_once(
            "constant columns",
            f"{len(columns)} columns of X are constant in the training rows ({shown}): "
            "nothing can be learned from them, and where they have other values at "
            "prediction the prior alone decides. Remove them, for instance with "
            "sklearn.feature_selection.VarianceThreshold.",
        )


def _warn_of_constant_targets(table: Table) -> None:
    y = table.y[table.sample_weight > 0]
    if (y == y[0]).all(0).any():
        warn(
            "y is constant in the training rows: its noise cannot be told, and the "
            "predicted uncertainty means nothing. Are these the right rows and column?",
        )
