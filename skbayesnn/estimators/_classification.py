"""Classification: what the draws of the predictive are turned into."""

from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length, column_or_1d

from skbayesnn import _validation
from skbayesnn._data import class_order
from skbayesnn._data.validation import check_classification, refuse_one_class
from skbayesnn._distributions.components import labels_at
from skbayesnn._engine.resources import slots
from skbayesnn._predictive.classes import (
    ClassPredictive,
    check_known,
    label_log_density,
)
from skbayesnn._predictive.mixin import PredictiveBlocks, PredictiveMixin
from skbayesnn._predictive.summaries import (
    CLASSIFICATION_KINDS,
    MeanProbability,
    classification_uncertainty,
    select_kinds,
    to_frame,
)
from skbayesnn._runtime import default_settings, on_snapshot
from skbayesnn._sklearn_compat import ClassifierMixin
from skbayesnn._typing import Array, MatrixLike, RandomState
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._diagnostics import explained_entropy
from skbayesnn.estimators._fitted import (
    fitted_posterior,
    open_posterior,
    posterior_by,
    sampled_draws,
    warn_of_nan,
)


class BayesianClassifier(PredictiveMixin, ClassifierMixin, BayesianNetwork):
    """Base of the classifiers."""

    class_weight: Any
    classes_: Array

    def _check(self, X, y, sample_weight, *, reset, classes=None):
        order = self._declared_order(y)
        table, found = check_classification(
            self, X, y, sample_weight, reset=reset, classes=classes
        )
        table = self._without_left_out(table, found)
        present = np.ones(len(found), dtype=bool)
        if classes is None:
            present = np.bincount(table.y, table.sample_weight, len(found)) > 0
            refuse_one_class(self, found[present])
        if reset or not np.array_equal(found, self.classes_):
            ranks = class_order.class_ranks(found, order, present)
            if self.likelihood == "ordinal" and order is None:
                class_order.warn_of_sorted_text(found[present])
        else:
            before = self.network_["likelihood"].get("ranks")
            ranks = class_order.continued_ranks(found, order, before)
            self._refuse_left_out(table, found, ranks)
        return replace(table, ranks=ranks), {"classes_": found}

    def _check_held_out(self, X, y, table, of_y):
        classes = of_y["classes_"]
        held_out = check_classification(self, X, y, None, reset=False, classes=classes)[
            0
        ]
        self._refuse_left_out(held_out, classes, table.ranks)
        return held_out

    def _declared_order(self, y) -> list | None:
        """Of the categories of y, where the likelihood takes classes in order."""
        return class_order.declared_order(y) if self.likelihood == "ordinal" else None

    def _without_left_out(self, table, classes):
        """The table, with weight zero for rows of classes whose weight is zero."""
        if not isinstance(self.class_weight, dict):
            return table
        by_class = self._weights_by_class(classes[table.y])
        return replace(table, sample_weight=table.sample_weight * (by_class > 0))

    def _refuse_left_out(self, table, classes, ranks) -> None:
        """Refuse rows of positive weight whose class had none in the fit."""
        if ranks is None:
            return
        codes = np.unique(table.y[table.sample_weight > 0])
        unknown = codes[np.array(ranks)[codes] < 0]
        if len(unknown):
            raise ValueError(
                "`y` must hold only labels with training rows of positive weight; got "
                f"{classes[unknown].tolist()}, all of whose training rows have weight "
                "zero. Give some of them a weight, or name all labels in `classes` of "
                "the first `partial_fit`."
            )

    def _row_weights(self, table, rows, classes):
        weights = table.sample_weight[rows]
        if self.class_weight is None:
            return weights
        labels = classes[table.y]
        if isinstance(self.class_weight, dict):  # it may name labels without rows
            return weights * self._weights_by_class(labels)[rows]
        return weights * self._weights_by_class(labels[rows])

    def _weights_by_class(self, labels) -> np.ndarray:
        return _validation.weights_of_classes(self.class_weight, labels)

    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        n_epochs: int = 1,
        n_replay: int = 0,
    ) -> Self:
        """Go on training with new rows (streams, out-of-core data).

        The first call fixes the standardisation. N grows with every call, and the
        weight of the prior falls with it: pass each row once. For further epochs over
        all rows there are ``fit`` and ``warm_start``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like, default=None
            All labels that can occur; needed in the first call, unless that call's
            y has them all.
        sample_weight : array-like of shape (n_samples,), default=None
        n_epochs, n_replay : int, default=1 and 0
            Passes over these rows, and rows of the stream to be kept, as in
            :meth:`MCDropoutRegressor.partial_fit`.

        Returns
        -------
        self : object
        """
        classes = self._classes_of_stream(classes)
        how = {"n_epochs": n_epochs, "n_replay": n_replay, "classes": classes}
        return self._partial_fit(X, y, sample_weight, **how)

    def _classes_of_stream(self, classes):
        """All labels of a stream, or None before they are known."""
        if not hasattr(self, "classes_"):
            classes = None if classes is None else np.unique(classes)
            if classes is not None and len(classes) < 2:
                raise ValueError(
                    "`classes` must hold all labels that can occur, at least 2; got "
                    f"{classes.tolist()}."
                )
            return classes
        if classes is not None and not np.array_equal(
            np.unique(classes), self.classes_
        ):
            raise ValueError(
                "`classes` must be those of the first call of `partial_fit`, "
                f"{self.classes_.tolist()}; got {np.unique(classes).tolist()}."
            )
        return self.classes_

    @on_snapshot
    def predict(self, X: MatrixLike, *, method: str = "draws") -> Array:
        """The class of the largest mean probability.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        method : {"draws", "mean_weights"}, default="draws"
            As in ``predict_proba``.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        # What overrides predict_proba(X) need not know of methods.
        how = {} if method == "draws" else {"method": method}
        codes = self.predict_proba(X, **how).argmax(1)
        return self.classes_[codes]

    @on_snapshot
    def predict_proba(self, X: MatrixLike, *, method: str = "draws") -> Array:
        """Mean over the draws of the class probabilities.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        method : {"draws", "mean_weights"}, default="draws"
            Of ``n_draws`` posterior draws; or one pass of each network with the means
            of its weights (units scaled by their probability of being kept): some
            hundred times as quick, and surer than the draws are.

        Returns
        -------
        probability : ndarray of shape (n_samples, n_classes)
            In the order of ``classes_``.
        """
        X = self._checked_inputs(X)
        return self._mean_probability(X, posterior_by(self, X, method))

    @slots.one()
    def _mean_probability(self, X, posterior=None):
        """Mean class probabilities; X is checked."""
        result = np.empty((X.shape[0], len(self.classes_)), dtype=X.dtype)
        for chunk, parts in open_posterior(self, X, posterior).by_rows():
            mean = MeanProbability()
            for labels in parts:
                mean.add(labels.probability)
            result[chunk] = mean.mean
        warn_of_nan(result)
        return result

    @default_settings
    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Logarithm of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @overload
    def predict_uncertainty(  # type: ignore[overload-overlap]
        self,
        X: MatrixLike,
        kind: Literal["all"] | list[str] | tuple[str, ...],
        as_frame: Literal[False] = False,
    ) -> dict[str, Array]: ...
    @overload
    def predict_uncertainty(
        self,
        X: MatrixLike,
        kind: str | None = "entropy",
        as_frame: Literal[False] = False,
    ) -> Array: ...
    @overload
    def predict_uncertainty(
        self,
        X: MatrixLike,
        kind: str | list[str] | tuple[str, ...] | None = "entropy",
        as_frame: bool = False,
    ) -> Any: ...
    @on_snapshot
    def predict_uncertainty(self, X, kind="entropy", as_frame=False):
        """How uncertain the predicted class is (eq. 7; Gal's thesis 3.3.1).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        kind : str or list of str, default="entropy"
            ``"entropy"`` of the mean probability, in nats; ``"expected_entropy"``,
            the mean of the draws' entropies (noise); ``"mutual_information"``, their
            difference, what the draws disagree on (more data remove it, down to the
            spread of masks at a given rate); ``"variation_ratio"``, 1 - the
            share of the modal label among labels sampled one per draw;
            ``"overlap"``, the Bhattacharyya coefficient of the draws' probabilities
            of the two likeliest classes, which says how far the draws disagree on
            which of them it is, and not how uncertain that is: draws that all say
            nearly one half have none; ``"all"``.
        as_frame : bool, default=False
            Whether to return a pandas DataFrame with a column per kind, and the index
            of X if that is one.

        Returns
        -------
        uncertainty : ndarray of shape (n_samples,), or dict of them
            A dict for a list of kinds or ``"all"``.
        """
        kind = "entropy" if kind is None else kind
        values = select_kinds(
            kind, CLASSIFICATION_KINDS, lambda kinds: self._measures(X, kinds)
        )
        return to_frame(values, kind, X) if as_frame else values

    @on_snapshot
    def sample_f(
        self, X: MatrixLike, n_samples: int = 1, random_state: RandomState = 0
    ) -> Array:
        """Sample class probabilities of posterior draws, the same for all rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Each is one of the ``n_draws`` posterior draws of each network that
            predictions average, picked at random: raise ``n_draws`` for more distinct
            ones.
        random_state : int, RandomState instance or None, default=0

        Returns
        -------
        f : ndarray of shape (n_samples_X, n_classes, n_samples)
        """
        labels, _ = sampled_draws(
            self, self._checked_inputs(X), n_samples, random_state
        )
        return np.moveaxis(labels.probability, 0, -1)

    @on_snapshot
    def sample_y(
        self, X: MatrixLike, n_samples: int = 1, random_state: RandomState = 0
    ) -> Array:
        """Sample labels from the probabilities of ``sample_f``.

        Returns
        -------
        labels : ndarray of shape (n_samples_X, n_samples)
        """
        labels, random = sampled_draws(
            self, self._checked_inputs(X), n_samples, random_state
        )
        uniform = random.random(labels.probability.shape[:2])
        return self.classes_[labels_at(labels.probability, uniform)].T

    @on_snapshot
    def log_predictive_density(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Log of the mean probability of the label y (eq. 8).

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        density : ndarray of shape (n_samples,)
            Nats.

        Raises
        ------
        ValueError
            A label that is not among ``classes_``.
        """
        log_probability = self.predict_log_proba(X)
        y = column_or_1d(y)
        check_consistent_length(log_probability, y)
        check_known(y, self.classes_)
        return label_log_density(log_probability, self.classes_, y)

    @on_snapshot
    def _open_predictive(self, X):
        X = self._checked_inputs(X)
        opened = open_posterior(self, X)

        def of_rows(rows):
            probability = opened.whole(rows).probability.astype(np.float64)
            return ClassPredictive(probability, self.classes_)

        return PredictiveBlocks(X.shape[0], of_rows, opened.block)

    def _spread(self, X, y):
        probability = self._mean_probability(X, posterior_by(self, X, "mean_weights"))
        spread = float(probability.std(0).max())
        return spread, (
            "over the training rows no class's probability has a standard deviation "
            f"above {spread:.2g}"
        )

    def _explained(self, X, y, weights):
        probability = self._mean_probability(X)[np.arange(len(y)), y]
        tiny = np.finfo(probability.dtype).tiny
        return explained_entropy(X, y, weights, np.log(probability.clip(tiny)))

    def _measures(self, X, kinds) -> dict[str, np.ndarray]:
        X = self._checked_inputs(X)
        posterior = fitted_posterior(self, X)
        uniform = np.random.default_rng(self.seeds_).random(
            (self.n_draws, posterior.n_members)
        )
        opened = open_posterior(self, X, posterior)
        # Draws of a deterministic network are all the same.
        times = 1 if posterior.network.stochastic else self.n_draws

        def probabilities(rows):
            for _, parts in opened.by_rows(rows):
                for labels in parts:
                    yield from repeat(labels.probability, times)

        result = {kind: np.empty(X.shape[0]) for kind in kinds}
        for chunk in opened.chunks():
            found = classification_uncertainty(
                partial(probabilities, chunk), kinds, uniform.ravel()
            )
            for kind, values in found.items():
                result[kind][chunk] = values
        return result
