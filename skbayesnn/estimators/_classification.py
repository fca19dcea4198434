"""Base class of the classifiers: label validation and predictions."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from itertools import repeat
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from skbayesnn import _validation
from skbayesnn._data import class_order
from skbayesnn._data.validation import (
    check_classification,
    classes_of_stream,
    refuse_one_class,
)
from skbayesnn._distributions.components import labels_at
from skbayesnn._engine.resources import prediction_slots
from skbayesnn._predictive.classes import ClassPredictive, label_log_density
from skbayesnn._predictive.mixin import ClassificationPredictiveMixin
from skbayesnn._predictive.summaries import (
    CLASSIFICATION_KINDS,
    MeanProbability,
    classification_uncertainty,
)
from skbayesnn._sklearn_compat import ClassifierMixin
from skbayesnn._stored import Labels
from skbayesnn._typing import MatrixLike
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._diagnostics import explained_entropy
from skbayesnn.estimators._fitted import (
    PredictiveByDraws,
    posterior_by,
    warn_of_nan,
)
from skbayesnn.estimators._parameters import ClassifierParameters


class ClassesByDraws(PredictiveByDraws):
    """Predictive distribution of labels, from a part of the draws at a time."""

    kinds = CLASSIFICATION_KINDS
    is_classification = True

    @property
    def classes(self) -> np.ndarray:
        """Labels of all classes."""
        return self.estimator.classes_

    def predictive_of(self, components) -> ClassPredictive:
        """Predictive distribution of some rows with these components, one per draw."""
        probability = components.probability.astype(np.float64)
        uniform = self.uniform if len(self.uniform) == len(probability) else None
        return ClassPredictive(probability, self.classes, uniform, self.X.dtype)

    @cached_property
    def uniform(self) -> np.ndarray:
        """Numbers that sample a label of each draw, (draws of all networks,)."""
        random = np.random.default_rng(self.estimator.seeds_)
        return random.random(self.estimator.n_draws * self.posterior.n_members)

    @prediction_slots.acquire()
    def mean(self) -> np.ndarray:
        """Mean probabilities, (rows, classes), in the precision of X."""
        X = self.X
        probability = self.predictor.mean_probability()
        if probability is not None:
            probability = probability / probability.sum(1, keepdims=True)
            result = np.ascontiguousarray(probability, dtype=X.dtype)
        else:
            result = np.empty((X.shape[0], len(self.classes)), dtype=X.dtype)
            for chunk, parts in self.predictor.by_rows():
                mean = MeanProbability()
                for labels in parts:
                    mean.add(labels.probability)
                result[chunk] = mean.mean
        warn_of_nan(result)
        return result

    def uncertainty(self, kinds) -> dict[str, np.ndarray]:
        """Uncertainties of the labels: {kind: (rows,)}."""
        # All draws of a deterministic network are equal, and only one is computed.
        is_stochastic = self.posterior.network.stochastic
        n_copies = 1 if is_stochastic else self.estimator.n_draws

        def probabilities(rows):
            for _, parts in self.predictor.by_rows(rows):
                for labels in parts:
                    yield from repeat(labels.probability, n_copies)

        result = {kind: np.empty(self.X.shape[0]) for kind in kinds}
        for chunk in self.predictor.chunks():
            measures = classification_uncertainty(
                partial(probabilities, chunk), kinds, self.uniform
            )
            for kind, values in measures.items():
                result[kind][chunk] = values
        return result

    def log_density(self, y) -> np.ndarray:
        """Log of the mean probability of the labels y, (rows,)."""
        with np.errstate(divide="ignore"):
            log_probability = np.log(self.mean())
        return label_log_density(log_probability, self.classes, y)

    def sample(self, draws: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Sample one label from each of the given draws, (rows, samples)."""
        probability = self.probability_of(draws)
        uniform = random.random(probability.shape[:2])
        return self.classes[labels_at(probability, uniform)].T

    def sample_f(self, draws: np.ndarray) -> np.ndarray:
        """Class probabilities of the given draws, (rows, classes, samples)."""
        return np.moveaxis(self.probability_of(draws), 0, -1)

    def probability_of(self, draws: np.ndarray) -> np.ndarray:
        """Class probabilities of the given draws, (draws, rows, classes)."""
        labels, index = self.components_of(draws)
        return labels.probability[index]


class BayesianClassifier(
    ClassifierParameters,
    ClassificationPredictiveMixin,
    ClassifierMixin,
    BayesianNetwork,
):
    """Base class of the classifiers."""

    _predictive_class = ClassesByDraws

    classes_: Labels

    def _validate_table(self, X, y, sample_weight, *, groups=None, reset, classes=None):
        order = self._declared_order(y)
        table, labels = check_classification(
            self, X, y, sample_weight, groups=groups, reset=reset, classes=classes
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
        n_epochs: int | str = "auto",
        n_replay: int | str = "auto",
        n_total: float | None = None,
        prior: str | None = None,
    ) -> Self:
        """Update the fit with new rows, in a tenth of the time of a fit or less.

        See :meth:`MCDropoutRegressor.partial_fit`: how the update works, when it is not
        taken, and what it keeps. Pass each row once.

        Parameters
        ----------
        X : {frame, array-like, sparse matrix} of shape (n_samples, n_features)
            New inputs.
        y : array-like of shape (n_samples,)
            New labels.
        classes : array-like, default=None
            All labels that can occur. Required in the first call, unless its y
            contains all of them.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, as in ``fit``.
        n_epochs, n_replay : "auto" or int, default="auto"
            Passes over the rows, and number of rows to keep, as in
            :meth:`MCDropoutRegressor.partial_fit`.
        n_total : float, default=None
            Total weight of the rows of the whole stream, as in the same method.
        prior : {"previous", None}, default=None
            Prior of the call, as in the same method.

        Returns
        -------
        self : object
            The updated estimator; unchanged if the update was not taken.
        """
        return self._partial_fit(
            X,
            y,
            sample_weight,
            n_epochs=n_epochs,
            n_replay=n_replay,
            n_total=n_total,
            prior=prior,
            classes=classes_of_stream(self, classes),
        )

    def _prediction_spread(self, X, y):
        posterior = posterior_by(self, X, "mean_weights")
        probability = ClassesByDraws(self, X, posterior).mean()
        spread = float(probability.std(0).max())
        return spread, (
            "on the training rows no class's probability has a standard deviation "
            f"above {spread:.2g}"
        )

    def _explained_share(self, X, y, weights):
        probability = ClassesByDraws(self, X).mean()[np.arange(len(y)), y]
        tiny = np.finfo(probability.dtype).tiny
        return explained_entropy(X, y, weights, np.log(probability.clip(tiny)))
