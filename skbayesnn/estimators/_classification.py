"""Base class of the classifiers: label validation and predictions."""

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
from skbayesnn._engine.resources import prediction_slots
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
    """Base class of the classifiers."""

    class_weight: Any
    classes_: Array

    def _validate_table(self, X, y, sample_weight, *, reset, classes=None):
        order = self._declared_order(y)
        table, labels = check_classification(
            self, X, y, sample_weight, reset=reset, classes=classes
        )
        table = self._with_zero_weights(table, labels)
        present = np.ones(len(labels), dtype=bool)
        if classes is None:
            present = np.bincount(table.y, table.sample_weight, len(labels)) > 0
            refuse_one_class(self, labels[present])
        if reset or not np.array_equal(labels, self.classes_):
            ranks = class_order.class_ranks(labels, order, present)
            if self.likelihood == "ordinal" and order is None:
                class_order.warn_of_sorted_text(labels[present])
        else:
            before = self.network_["likelihood"].get("ranks")
            ranks = class_order.continued_ranks(labels, order, before)
            self._check_trained_classes(table, labels, ranks)
        return replace(table, ranks=ranks), {"classes_": labels}

    def _check_held_out(self, X, y, table, target_attributes):
        classes = target_attributes["classes_"]
        held_out, _ = check_classification(
            self, X, y, None, reset=False, classes=classes
        )
        self._check_trained_classes(held_out, classes, table.ranks)
        return held_out

    def _declared_order(self, y) -> list | None:
        """Categories of y in order, for the ordinal likelihood; else None."""
        return class_order.declared_order(y) if self.likelihood == "ordinal" else None

    def _with_zero_weights(self, table, classes):
        """Set weights to zero for classes whose ``class_weight`` is zero."""
        if not isinstance(self.class_weight, dict):
            return table
        by_class = self._weights_by_class(classes[table.y])
        return replace(table, sample_weight=table.sample_weight * (by_class > 0))

    def _check_trained_classes(self, table, classes, ranks) -> None:
        """Raise if a row has positive weight, but no training row had its class."""
        if ranks is None:
            return
        codes = np.unique(table.y[table.sample_weight > 0])
        unknown = codes[np.array(ranks)[codes] < 0]
        if len(unknown):
            raise ValueError(
                "`y` must contain only labels that have training rows with positive "
                f"weight; got {classes[unknown].tolist()}. Give some of their rows a "
                "weight, or name all labels in `classes` of the first `partial_fit`."
            )

    def _row_weights(self, table, rows, classes):
        weights = table.sample_weight[rows]
        if self.class_weight is None:
            return weights
        labels = classes[table.y]
        # A dict may contain labels without rows.
        if isinstance(self.class_weight, dict):
            return weights * self._weights_by_class(labels)[rows]
        return weights * self._weights_by_class(labels[rows])

    def _weights_by_class(self, labels) -> np.ndarray:
        return _validation.compute_class_weights(self.class_weight, labels)

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
        """Update the fit with new rows, for streams and out-of-core data.

        The first call fixes the standardisation. Pass each row once: every call adds
        its rows to N, which lowers the weight of the prior. For more epochs over the
        same rows use ``fit`` with ``warm_start=True``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            New inputs.
        y : array-like of shape (n_samples,)
            New labels.
        classes : array-like, default=None
            All labels that can occur. Required in the first call, unless its y
            contains all of them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, as in ``fit``.
        n_epochs, n_replay : int, default=1 and 0
            Passes over the new rows, and number of earlier rows to replay, as in
            :meth:`MCDropoutRegressor.partial_fit`.

        Returns
        -------
        self : object
            The updated estimator.
        """
        return self._partial_fit(
            X,
            y,
            sample_weight,
            n_epochs=n_epochs,
            n_replay=n_replay,
            classes=self._classes_of_stream(classes),
        )

    def _classes_of_stream(self, classes):
        """All labels of a stream; None in a first call without ``classes``."""
        if not hasattr(self, "classes_"):
            classes = None if classes is None else np.unique(classes)
            if classes is not None and len(classes) < 2:
                raise ValueError(
                    "`classes` must contain all labels that can occur, at least 2; got "
                    f"{classes.tolist()}."
                )
            return classes
        if classes is not None and not np.array_equal(
            np.unique(classes), self.classes_
        ):
            raise ValueError(
                "`classes` must be the same as in the first call of `partial_fit`, "
                f"{self.classes_.tolist()}; got {np.unique(classes).tolist()}."
            )
        return self.classes_

    @on_snapshot
    def predict(self, X: MatrixLike, *, method: str = "draws") -> Array:
        """Predict the class of the largest mean probability.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        method : {"draws", "mean_weights"}, default="draws"
            How to compute the probabilities, as in ``predict_proba``.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Predicted labels.
        """
        # Subclasses may override predict_proba(X) without the parameter `method`.
        options = {} if method == "draws" else {"method": method}
        # First compute: before `fit`, `classes_` does not exist.
        codes = self.predict_proba(X, **options).argmax(1)
        return self.classes_[codes]

    @on_snapshot
    def predict_proba(self, X: MatrixLike, *, method: str = "draws") -> Array:
        """Predict class probabilities, averaged over the posterior.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        method : {"draws", "mean_weights"}, default="draws"
            Leave the default unless predictions must be fast. ``"draws"`` averages
            ``n_draws`` posterior draws. ``"mean_weights"`` runs each network once with
            the posterior means of its weights (units scaled by their probability of
            being kept). It is about a hundred times as fast, and its probabilities are
            more confident.

        Returns
        -------
        probability : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        X = self._checked_inputs(X)
        return self._mean_probability(X, posterior_by(self, X, method))

    @prediction_slots.acquire()
    def _mean_probability(self, X, posterior=None):
        """Mean class probabilities; X is checked."""
        predictor = open_posterior(self, X, posterior)
        probability = predictor.mean_probability()
        if probability is not None:
            probability = probability / probability.sum(1, keepdims=True)
            result = np.ascontiguousarray(probability, dtype=X.dtype)
        else:
            result = np.empty((X.shape[0], len(self.classes_)), dtype=X.dtype)
            for chunk, parts in predictor.by_rows():
                mean = MeanProbability()
                for labels in parts:
                    mean.add(labels.probability)
                result[chunk] = mean.mean
        warn_of_nan(result)
        return result

    @default_settings
    def predict_log_proba(self, X: MatrixLike) -> Array:
        """Predict logarithms of class probabilities; see ``predict_proba``."""
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
        """Predict the uncertainty of the class, in total or split by its source.

        The definitions follow Gal (2016), "Uncertainty in deep learning", section
        3.3.1.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        kind : str or list of str, default="entropy"
            Measure of uncertainty, or ``"all"``:

            - ``"entropy"``: total uncertainty, the entropy of the mean probability, in
              nats;
            - ``"expected_entropy"``: aleatoric part, the mean entropy of the draws;
            - ``"mutual_information"``: epistemic part, the entropy minus the expected
              entropy. It shrinks with more data, but not to zero with a fixed dropout
              rate;
            - ``"variation_ratio"``: 1 - the share of the most frequent label, if one
              label is sampled per draw;
            - ``"overlap"``: Bhattacharyya coefficient of the draws' probabilities of
              the two most likely classes. It is large if the draws disagree on which of
              these classes is more likely, and small if all draws give nearly 1/2 to
              both.
        as_frame : bool, default=False
            Whether to return a pandas DataFrame, with one column per kind, and with
            the index of X if X is a DataFrame.

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
        """Draw class probabilities from the posterior.

        A sample evaluates one posterior draw at all rows, so that its values form one
        function.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples_X, n_features)
            Inputs.
        n_samples : int, default=1
            Number of draws. Each is picked at random among the ``n_draws`` posterior
            draws of each network that predictions average. Raise ``n_draws`` for more
            distinct draws.
        random_state : int, RandomState instance or None, default=0
            Source of the random numbers.

        Returns
        -------
        f : ndarray of shape (n_samples_X, n_classes, n_samples)
            Class probabilities.
        """
        labels, _ = sampled_draws(
            self, self._checked_inputs(X), n_samples, random_state
        )
        return np.moveaxis(labels.probability, 0, -1)

    @on_snapshot
    def sample_y(
        self, X: MatrixLike, n_samples: int = 1, random_state: RandomState = 0
    ) -> Array:
        """Draw labels from the predictive distribution.

        Draws each label from class probabilities that are drawn as in ``sample_f``. The
        parameters are the same.

        Returns
        -------
        labels : ndarray of shape (n_samples_X, n_samples)
            Sampled labels.
        """
        labels, random = sampled_draws(
            self, self._checked_inputs(X), n_samples, random_state
        )
        uniform = random.random(labels.probability.shape[:2])
        return self.classes_[labels_at(labels.probability, uniform)].T

    @on_snapshot
    def log_predictive_density(self, X: MatrixLike, y: ArrayLike) -> Array:
        """Log predictive probability of the labels y.

        Its mean over test rows is minus their log loss: higher is better.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,)
            Observed labels.

        Returns
        -------
        density : ndarray of shape (n_samples,)
            Log probability, in nats.

        Raises
        ------
        ValueError
            If a label is not in ``classes_``.
        """
        log_probability = self.predict_log_proba(X)
        y = column_or_1d(y)
        check_consistent_length(log_probability, y)
        check_known(y, self.classes_)
        return label_log_density(log_probability, self.classes_, y)

    @on_snapshot
    def _open_predictive(self, X):
        X = self._checked_inputs(X)
        predictor = open_posterior(self, X)

        def predictive(rows):
            probability = predictor.whole(rows).probability.astype(np.float64)
            return ClassPredictive(probability, self.classes_)

        return PredictiveBlocks(X.shape[0], predictive, predictor.block)

    def _prediction_spread(self, X, y):
        probability = self._mean_probability(X, posterior_by(self, X, "mean_weights"))
        spread = float(probability.std(0).max())
        return spread, (
            "on the training rows no class's probability has a standard deviation "
            f"above {spread:.2g}"
        )

    def _explained_share(self, X, y, weights):
        probability = self._mean_probability(X)[np.arange(len(y)), y]
        tiny = np.finfo(probability.dtype).tiny
        return explained_entropy(X, y, weights, np.log(probability.clip(tiny)))

    def _measures(self, X, kinds) -> dict[str, np.ndarray]:
        X = self._checked_inputs(X)
        posterior = fitted_posterior(self, X)
        uniform = np.random.default_rng(self.seeds_).random(
            (self.n_draws, posterior.n_members)
        )
        predictor = open_posterior(self, X, posterior)
        # All draws of a deterministic network are equal, and only one is computed.
        n_copies = 1 if posterior.network.stochastic else self.n_draws

        def probabilities(rows):
            for _, parts in predictor.by_rows(rows):
                for labels in parts:
                    yield from repeat(labels.probability, n_copies)

        result = {kind: np.empty(X.shape[0]) for kind in kinds}
        for chunk in predictor.chunks():
            measures = classification_uncertainty(
                partial(probabilities, chunk), kinds, uniform.ravel()
            )
            for kind, values in measures.items():
                result[kind][chunk] = values
        return result
