"""Models of a table in memory that are trained alone, not in a program."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skbayesnn import _stored as stored
from skbayesnn import _validation
from skbayesnn._data.groups import check_groups
from skbayesnn._data.scaling import Scaling, warn_of_far_rows
from skbayesnn._data.table_encoder import TableEncoder
from skbayesnn._data.target import check_bounds, check_within, latent_values
from skbayesnn._data.validation import (
    Table,
    check_new_rows,
    check_regression,
    check_weighted_classes,
    dense_rows,
)
from skbayesnn._distributions.recorded import TargetSpace, is_space
from skbayesnn._predictive.blocks import BLOCK, PredictiveBlocks
from skbayesnn._predictive.mixin import (
    ClassificationPredictiveMixin,
    PredictiveMixin,
    RegressionPredictiveMixin,
)
from skbayesnn._predictive.mixture import MixturePredictive, in_space
from skbayesnn._runtime import atomic_update, default_settings, on_snapshot
from skbayesnn._sklearn_compat import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    accept_frames,
)
from skbayesnn._typing import MatrixLike
from skbayesnn.estimators._parameters import parameters
from skbayesnn.estimators._training_data import input_columns

# Most values of the draws of a block of rows.
MAX_COMPONENTS = 1 << 21


@parameters
class TableParameters:
    """Constructor parameters of networks by evidence and of neighbours."""

    length_scale: Annotated[Any, stored.each(stored.NOT_NEGATIVE)] = "auto"
    n_estimators: Any = 4
    categorical_features: stored.ColumnChoice = "from_dtype"
    max_iter: Any = "auto"
    random_state: stored.Seed = None


class TableModel(TableParameters, PredictiveMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of networks by evidence and of neighbours: fits, and blocks of rows."""

    likelihood: Any

    parameters_: dict[str, Annotated[stored.Floats, "networks, ..."]]
    n_iter_: stored.Count
    total_weight_: stored.PositiveFloat
    x_mean_: Annotated[stored.Floats, "inputs"]
    x_scale_: Annotated[stored.Floats, "inputs", stored.POSITIVE]
    table_: TableEncoder | None
    n_features_in_: stored.NumberOfColumns
    # Least number of rows of positive weight, and the reason.
    LEAST_ROWS: ClassVar[tuple[int, str]]
    # With metadata routing, `groups` are requested by default, as by GroupKFold.
    __metadata_request__fit: ClassVar = {"groups": True}

    @abstractmethod
    def _validate(self, X, y, sample_weight, groups, reset) -> Table:
        """Check the arguments of ``fit``; set attributes that depend only on y.

        groups : result of ``check_groups``
        reset : False for further rows of ``partial_fit``
        """

    @abstractmethod
    def _fit_table(self, table: Table, groups, random, reset) -> None:
        """Train with rows of positive weight, and set the fitted attributes."""

    @abstractmethod
    def _opened(self) -> tuple[Callable, int]:
        """Predictive distribution as a function of rows, and its values of a row.

        The function takes rows (rows, columns), float64, and the dtype of X.
        """

    @default_settings
    def fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit to all rows.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            Training inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            Target values, or class labels of shape (n_samples,).
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the likelihood, and of neighbours in predictions.
            Weight 2 is equivalent to a duplicated row, weight 0 to a removed row.
        groups : array-like of shape (n_samples,), default=None
            Give it if rows depend on each other, such as all rows of a patient, and
            predictions will be for new groups. In the training of neighbours, rows of a
            group do not predict each other, and they are held out together. Networks by
            evidence hold out no rows. With metadata routing, groups are requested by
            default.

        Returns
        -------
        self : object
            The fitted estimator. After an error it is unchanged.
        """
        return self._fit_rows(X, y, sample_weight, groups, reset=True)

    def _fit_rows(self, X, y, weights, groups=None, *, reset: bool, **options) -> Self:
        """Fit, or update with further rows; options : of ``_validate``."""
        random = _validation.random_source(self.random_state)
        with atomic_update(self) as new:
            groups = check_groups(groups, X)
            table = new._validate(X, y, weights, groups, reset, **options)
            used = table.sample_weight > 0
            groups = None if groups is None else groups[used]
            X, weights = dense_rows(table.X[used]), table.sample_weight[used]
            if reset:
                least, reason = self.LEAST_ROWS
                if len(weights) < least:
                    raise ValueError(
                        f"{type(self).__name__} must have at least {least} rows of "
                        f"positive weight; got n_samples={len(weights)}. {reason}"
                    )
                scaling = Scaling.of(X, weights, weights, inputs=True, targets=False)
                new.x_mean_, new.x_scale_ = scaling.x_mean, scaling.x_scale
            new._fit_table(Table(X, table.y[used], weights), groups, random, reset)
        return self

    @on_snapshot
    def _open_predictive(self, X) -> PredictiveBlocks:
        check_is_fitted(self)
        rows = check_new_rows(self, X, self.x_mean_, self.x_scale_)
        scale = self.x_mean_, self.x_scale_, self.total_weight_
        warn_of_far_rows(self, rows.X, *scale, input_columns(self))
        predicted, n_values = self._opened()
        block = max(1, min(BLOCK, MAX_COMPONENTS // n_values))

        def opened(X):
            return PredictiveBlocks(
                X.shape[0],
                lambda rows: predicted(dense_rows(X[rows]), X.dtype),
                block,
            )

        return PredictiveBlocks.of_encoded(rows, opened)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return accept_frames(tags)


class TableRegressor(RegressionPredictiveMixin, RegressorMixin, TableModel):
    """Base of the regressors: y in its units, within its bounds."""

    y_bounds: Any
    y_mean_: Annotated[stored.Floats, "targets"]
    y_scale_: Annotated[stored.Floats, "targets", stored.POSITIVE]
    y_ndim_: Literal[1, 2]
    target_spaces_: Annotated[
        list[Annotated[dict[str, Any], stored.Property("a space of y", is_space)]],
        "targets",
        stored.OPTIONAL,
    ]

    @property
    def _scaling(self) -> Scaling:
        return Scaling(self.x_mean_, self.x_scale_, self.y_mean_, self.y_scale_)

    @property
    def _space(self) -> TargetSpace | None:
        """Space of all targets, if y has bounds."""
        spaces = getattr(self, "target_spaces_", None)
        return TargetSpace(**spaces[0]) if spaces else None

    def _validate(self, X, y, sample_weight, groups, reset):
        table, self.y_ndim_ = check_regression(
            self, X, y, sample_weight, groups=groups, reset=reset
        )
        n_targets = table.y.shape[1]
        if not reset and n_targets != len(self.y_mean_):
            raise ValueError(
                f"`y` must have {len(self.y_mean_)} targets as in the first call; got "
                f"{n_targets}."
            )
        if reset:
            vars(self).pop("target_spaces_", None)
            if self.y_bounds is not None:
                if self.likelihood == "poisson":
                    raise ValueError(
                        "`y_bounds` requires a likelihood of continuous values; got "
                        "likelihood='poisson'. Take 'gaussian' or 'heteroscedastic'."
                    )
                bounds = check_bounds(self.y_bounds, "identity")
                bounded = TargetSpace.bounded("identity", *bounds)
                self.target_spaces_ = [asdict(bounded) for _ in range(n_targets)]
        space, weights = self._space, table.sample_weight
        if space is None:
            return table
        check_within(table.y[weights > 0], space.low, space.high)
        spread = None if reset else self.y_scale_
        return replace(table, y=latent_values(table.y, space, weights, spread))

    def _standardise(self, y, weights) -> None:
        """Set the standardisation of y."""
        scaling = Scaling.of(y, y, weights, inputs=False, targets=True)
        self.y_mean_, self.y_scale_ = scaling.y_mean, scaling.y_scale

    def _predictive_of(self, components, dtype) -> MixturePredictive:
        """Predictive distribution of rows of a dtype, of standardised draws."""
        scaling, is_flat = self._scaling, self.y_ndim_ == 1
        dtype = scaling.dtype_of_y(dtype)
        found = MixturePredictive(components, is_flat, scaling, dtype=dtype)
        return in_space(found, self._space)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class TableClassifier(ClassificationPredictiveMixin, ClassifierMixin, TableModel):
    """Base of the classifiers."""

    likelihood = "categorical"

    classes_: stored.Labels

    def _validate(self, X, y, sample_weight, groups, reset, classes=None):
        known = None if reset else classes
        table, self.classes_ = check_weighted_classes(
            self, X, y, sample_weight, groups, classes=known, reset=reset
        )
        if classes is not None and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"the first call of `partial_fit` of {type(self).__name__} must have "
                f"rows of all `classes`, {classes.tolist()}; got "
                f"{self.classes_.tolist()}. Classes without rows have no curvature."
            )
        return table
