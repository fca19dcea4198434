"""Base of the candidates of a stack that are fitted alone, not in a program."""

from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from skbayesnn import _stored as stored
from skbayesnn._data.scaling import Scaling
from skbayesnn._predictive.blocks import PredictiveBlocks
from skbayesnn._predictive.mixin import PredictiveMixin
from skbayesnn._runtime import on_snapshot
from skbayesnn._sklearn_compat import BaseEstimator, num_samples
from skbayesnn._typing import Array


class SeparateModel(PredictiveMixin, BaseEstimator, metaclass=ABCMeta):
    """A model with ``fit(X, y, sample_weight, groups)`` and a predictive distribution.

    Attributes
    ----------
    n_features_in_ : int
    x_mean_, x_scale_ : ndarray of shape (n_features_in_,)
        Mean and standard deviation of each column, by which a stack finds far rows.
    total_weight_ : float
        Sum of the row weights.
    """

    likelihood: str
    # Parameters on which only predictions depend, if they are not None.
    params_of_predictions: ClassVar[tuple[str, ...]] = ()

    random_state: stored.Seed
    n_features_in_: stored.NumberOfColumns
    x_mean_: Annotated[stored.Floats, "columns"]
    x_scale_: Annotated[stored.Floats, "columns", stored.POSITIVE]
    total_weight_: stored.PositiveFloat
    table_: Annotated[None, stored.OPTIONAL]

    def _store_scales(self, X, weights: Array) -> None:
        """Store mean and standard deviation of each column."""
        # The second argument stands for y, which is not scaled.
        scaling = Scaling.of(X, weights, weights, inputs=True, targets=False)
        self.x_mean_, self.x_scale_ = scaling.x_mean, scaling.x_scale
        self.total_weight_ = float(weights.sum())

    @abstractmethod
    def _inputs(self, X) -> Any:
        """Rows of X as the model takes them, checked."""

    @abstractmethod
    def _distribution(self, X) -> Callable[[slice], Any]:
        """Function of a slice of rows that returns their predictive distribution."""

    @on_snapshot
    def _open_predictive(self, X):
        X = self._inputs(X)
        return PredictiveBlocks(num_samples(X), self._distribution(X))
