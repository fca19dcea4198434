"""Validate the arguments of ``fit``."""

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse

from skbayesnn._data._advice import listed
from skbayesnn._data.columns import TableReader, is_frame
from skbayesnn._data.groups import check_can_hold_out, check_groups
from skbayesnn._data.scaling import InputColumns, Scaling, warn_of_codes
from skbayesnn._data.validation import Table, check_inputs, network_columns, table_of
from skbayesnn._likelihoods import likelihood_named
from skbayesnn._runtime import warn, warn_once

# A Pipeline transforms X, but passes a fit parameter such as `X_val` unchanged.
_THROUGH_STEPS = (
    "In a Pipeline, `X_val` must go through the steps before the estimator: enable "
    "metadata routing, give Pipeline(steps, transform_input=['X_val']), and call "
    "set_fit_request(X_val=True, y_val=True) on the estimator; or give "
    "pipeline[:-1].transform(X_val)."
)
# X_val is in other units if its median is farther than this from the mean of X, in
# standard deviations, in at least this share of the columns.
_FAR, _SHARE_FAR = 8.0, 0.4


@dataclass(frozen=True)
class TrainingData:
    """Validated arguments of ``fit``. In a search, the candidates share one per fold.

    Parameters
    ----------
    table : Table
        Training rows, followed by a given validation set.
    rows : ndarray of int
        Indices of the training rows with positive weight.
    validation : ndarray of int, or None
        Indices of the rows of ``X_val``.
    target_attributes : dict
        Fitted attributes that depend only on y.
    groups : ndarray of int, or None
        Group of each row of ``fit``, which are the first rows of ``table``.
    """

    table: Table
    rows: np.ndarray
    validation: np.ndarray | None
    target_attributes: dict
    groups: np.ndarray | None = None
    _scalings: dict = field(default_factory=dict, repr=False, compare=False)

    @property
    def classes(self) -> np.ndarray | None:
        """Class labels; None for regression."""
        return self.target_attributes.get("classes_")

    @property
    def separate_targets(self) -> list[np.ndarray]:
        """y, and ``y_val`` if given."""
        y, validation = self.table.y, self.validation
        return [y] if validation is None else np.split(y, validation[:1])

    def groups_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Groups of some training rows; None without groups."""
        return None if self.groups is None else self.groups[rows]

    def n_independent(self, rows: np.ndarray, weights: np.ndarray) -> float:
        """N of some training rows, or their number of groups if it is smaller."""
        n_rows = float(weights.sum())
        if self.groups is None:
            return n_rows
        return min(n_rows, len(np.unique(self.groups[rows])))

    def scaling(self, rows: np.ndarray, weights: np.ndarray, **options) -> Scaling:
        """Standardisation of some rows, from a cache."""
        key = rows.tobytes(), weights.tobytes(), *options.values()
        if key not in self._scalings:
            X, y = self.table.X[rows], self.table.y[rows]
            self._scalings[key] = Scaling.of(X, y, weights, **options)
        return self._scalings[key]

    def forget_scalings(self) -> None:
        """Clear the cache of ``scaling``."""
        self._scalings.clear()


def training_data(
    estimator,
    X,
    y,
    sample_weight=None,
    X_val=None,
    y_val=None,
    groups=None,
    *,
    reset: bool = True,
) -> TrainingData:
    """Validate the arguments of an estimator's ``fit``.

    reset : bool, whether to store the number and the names of the columns of X
    """
    groups = check_groups(groups, X)
    table, target_attributes = estimator._validate_table(
        X, y, sample_weight, groups=groups, reset=reset
    )
    encoder = table_of(estimator)
    if not reset and encoder is not None and encoder.uses_y:
        # Statistics of y that encode a row must not include its y.
        y_used = table.y[:, 0] if table.y.shape[1:] == (1,) else table.y
        [(estimator.table_, features)] = encoder.with_statistics_of(
            X, y_used, [table.sample_weight], groups
        )
        table = replace(table, X=features)
    likelihood = likelihood_named(estimator.likelihood)
    has_noise = likelihood is not None and not likelihood.tempered
    if estimator.network is None or not estimator.network.row_shapes:
        columns, used = input_columns(estimator), table.sample_weight > 0
        rows_used = table.X if used.all() else table.X[used]
        _warn_of_constant_columns(rows_used, columns.names)
        warn_of_codes(rows_used, columns)
    if has_noise:
        _warn_of_constant_targets(table)
    rows = np.flatnonzero(table.sample_weight > 0)
    check_can_hold_out(None if groups is None else groups[rows])
    table, validation = _with_validation(
        estimator, table, X_val, y_val, target_attributes
    )
    return TrainingData(table, rows, validation, target_attributes, groups)


def input_columns(estimator) -> InputColumns:
    """Columns of the user's table, of an estimator that is fitted or in `fit`."""
    table = table_of(estimator)
    are_numbers = None if table is None else table.are_numbers
    return InputColumns(network_columns(estimator), are_numbers)


def warn_of_codes_in_table(X, weights=None) -> None:
    """Warn if columns of numbers have a code for missing values.

    X : as a user gives it; only frames and arrays of numbers are checked
    weights : (rows,), or None
    """
    used = slice(None) if weights is None else weights > 0
    if is_frame(X):
        import narwhals.stable.v2 as narwhals

        reader = TableReader(X)
        schema = narwhals.from_native(X, eager_only=True).schema
        names = [name for name, dtype in schema.items() if dtype.is_numeric()]
        numbers = [reader[reader.names.index(name)].numbers() for name in names]
        values = np.array(numbers).reshape(len(names), reader.n_rows).T[used]
        warn_of_codes(values, InputColumns(names))
    elif isinstance(X, np.ndarray) and X.dtype.kind in "iuf" and X.ndim == 2:
        warn_of_codes(X[used])


def _with_validation(estimator, table, X_val, y_val, target_attributes):
    """Append the validation set to the table; return the indices of its rows."""
    if X_val is None and y_val is None:
        return table, None
    if X_val is None or y_val is None or not estimator.early_stopping:
        raise ValueError(
            "`X_val` and `y_val` must be given together, with "
            f"early_stopping=True; got X_val={_type_name(X_val)}, "
            f"y_val={_type_name(y_val)}, early_stopping={estimator.early_stopping!r}."
        )
    hint = f" {_THROUGH_STEPS}"
    try:
        check_inputs(estimator, X_val, reset=False)
        hint = ""
        held_out = estimator._check_held_out(X_val, y_val, table, target_attributes)
    except (TypeError, ValueError) as error:
        error_class = TypeError if isinstance(error, TypeError) else ValueError
        raise error_class(f"in `X_val` and `y_val`: {error}{hint}") from error
    if held_out.y.shape[1:] != table.y.shape[1:]:
        raise ValueError(
            f"`y_val` must have the number of targets of `y`, {table.y.shape[1]}; got "
            f"{held_out.y.shape[1]}."
        )
    _warn_of_other_units(table.X, held_out.X)
    n = len(table.sample_weight)
    both = table.append(held_out)
    return both, np.arange(n, len(both.sample_weight))


def _warn_of_other_units(X, X_val) -> None:
    """Warn if X_val is far from X in many columns, as if only X were scaled."""
    if sparse.issparse(X) or sparse.issparse(X_val):
        return
    scaling = Scaling.of(X, X, np.ones(len(X)), inputs=True, targets=False)
    far = np.abs(np.median(scaling.x_to_network(X_val), axis=0)) > _FAR
    if far.mean() >= _SHARE_FAR:
        warn(
            "SKB210",
            f"`X_val` seems to be in other units than `X`: in {far.sum()} of "
            f"{len(far)} columns its median is more than {_FAR:g} standard deviations "
            "from the mean of X. Its scores are then meaningless, and training stops "
            f"too early or too late. {_THROUGH_STEPS}",
        )


def _type_name(value):
    return None if value is None else type(value).__name__


def _warn_of_constant_columns(X, names) -> None:
    """Warn of constant columns, once for all folds of a call."""
    bounds = X.max(axis=0), X.min(axis=0)
    if sparse.issparse(X):
        bounds = tuple(bound.toarray().ravel() for bound in bounds)
    columns = np.flatnonzero(bounds[0] == bounds[1])
    if len(columns):
        labels = columns.tolist() if names is None else [str(names[j]) for j in columns]
        shown = listed([*map(repr, labels)])
        warn_once(
            "SKB201",
            "constant columns",
            f"{len(columns)} columns of X are constant in the training rows ({shown}): "
            "nothing can be learned from them, and for other values in a prediction "
            "only the prior counts. Remove them, for instance with "
            "sklearn.feature_selection.VarianceThreshold.",
        )


def _warn_of_constant_targets(table: Table) -> None:
    y = table.y[table.sample_weight > 0]
    if (y == y[0]).all(0).any():
        warn(
            "SKB202",
            "y is constant in the training rows: the observation noise cannot be "
            "estimated, and predicted uncertainties are meaningless. Check the rows "
            "and the column of y.",
        )
