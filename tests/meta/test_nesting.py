"""Meta-estimators nested at random: the predictive passes, or the refusal names why.

All nestings must satisfy: shapes, order of the bounds, parts of the variance, the mean
of ``predict``, and that a row's values do not depend on other rows.
"""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

from skbayesnn import (
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    log_predictive_density,
    predict_interval,
    predict_quantile,
    predict_uncertainty,
    sample_y,
)
from skbayesnn._meta.unwrap import open_predictive
from tests.helpers.seed import SEED

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

pytestmark = [
    # After two epochs, and because all rows have labels.
    pytest.mark.filterwarnings("ignore:the predictions are constant"),
    pytest.mark.filterwarnings("ignore:y contains no unlabeled samples"),
]
SMALL = {
    "hidden_layer_sizes": (4,),
    "max_iter": 2,
    "n_draws": 5,
    "dropout": 0.2,
    "length_scale": 0.1,
    "device": "cpu",
    "dtype": "float64",
    "random_state": SEED,
}
ONE, TWO = {"random_state": SEED}, {"n_estimators": 2, "random_state": SEED}
RANDOM = np.random.default_rng([SEED, 9])
X, X_NEW = RANDOM.standard_normal((40, 3)), RANDOM.standard_normal((7, 3))
Y, Y_NEW = X[:, 0] + RANDOM.standard_normal(40), RANDOM.standard_normal(7)
LABELS = (Y > np.median(Y)).astype(int)


class Halved(TransformerMixin, BaseEstimator):
    """A transformer without fitted state."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X / 2


def linear_target(inner):
    return TransformedTargetRegressor(
        inner, func=lambda y: 2 * y + 1, inverse_func=lambda z: (z - 1) / 2
    )


EITHER = {
    "scaled": lambda inner: make_pipeline(StandardScaler(), inner),
    "halved": lambda inner: make_pipeline("passthrough", Halved(), inner),
    "search": lambda inner: GridSearchCV(inner, {}, cv=2),
}
AROUND_REGRESSORS = EITHER | {
    "frozen": lambda inner: FrozenEstimator(inner.fit(X, Y)),
    "transformed": linear_target,
    "bagging": lambda inner: BaggingRegressor(inner, **TWO),
    "scale": lambda inner: CalibratedUncertaintyRegressor(inner, cv=2),
    "isotonic": lambda inner: CalibratedUncertaintyRegressor(
        inner, method="isotonic", cv=2
    ),
    "boosted": lambda inner: AdaBoostRegressor(inner, **TWO),
}
AROUND_CLASSIFIERS = EITHER | {
    "frozen": lambda inner: FrozenEstimator(inner.fit(X, LABELS)),
    "calibrated": lambda inner: CalibratedClassifierCV(inner, cv=2),
    "tuned": lambda inner: TunedThresholdClassifierCV(inner, cv=2, **ONE),
    "fixed": lambda inner: FixedThresholdClassifier(inner, threshold=0.6),
    "self-taught": SelfTrainingClassifier,
    "one by one": OneVsRestClassifier,
}
# Estimators without a predictive; and bagging, which passes weights to estimators that
# accept them, around a calibrated pipeline, which refuses them.
MAY_REFUSE = {"boosted", "bagging", "isotonic", "scale", "calibrated", "one by one"}
REFUSALS = (
    "has no predictive|Put (one )?CalibratedUncertaintyRegressor around|"
    "Pipeline.fit does not accept the sample_weight"
)


def nested(network, names, table):
    for name in names:
        network = table[name](network)
    return network


def nestings_of(table):
    """Lists of names, from the inside outwards."""
    names = st.lists(st.sampled_from(sorted(table)), max_size=3)
    return names.filter(_scikit_learn_fits)


def _scikit_learn_fits(names):
    """Nestings that scikit-learn can fit: searches do not clone a frozen estimator."""
    around = names[names.index("frozen") + 1 :] if "frozen" in names else []
    return around[:1] != ["search"]


def random_nestings(names):
    """Decorator: test random nestings, the same ones for one seed."""

    def decorate(function):
        wanted = hypothesis.settings(max_examples=12, deadline=None, database=None)
        return hypothesis.seed(SEED)(wanted(hypothesis.given(names)(function)))

    return decorate


def check_or_be_refused(names, check):
    try:
        check()
    except (TypeError, ValueError) as refusal:
        with pytest.raises(type(refusal), match=REFUSALS):
            raise refusal
        assert MAY_REFUSE & set(names)


@random_nestings(nestings_of(AROUND_REGRESSORS))
def test_nested_regressors(names):
    def check():
        network = MCDropoutRegressor(**SMALL)
        model = nested(network, names, AROUND_REGRESSORS).fit(X, Y)
        parts = predict_uncertainty(model, X_NEW, "all")
        assert all(part.shape == (7,) for part in parts.values())
        np.testing.assert_allclose(
            parts["total"] ** 2, parts["epistemic"] ** 2 + parts["aleatoric"] ** 2
        )
        interval = predict_interval(model, X_NEW, [0.5, 0.9])
        assert interval.shape == (7, 2, 2)
        bounds = np.concatenate([interval[:, ::-1, 0], interval[:, :, 1]], axis=1)
        assert (np.diff(bounds, axis=1) >= 0).all()  # 0.05, 0.25, 0.75, 0.95
        median = predict_quantile(model, X_NEW, 0.5)
        assert ((interval[:, 0, 0] <= median) & (median <= interval[:, 0, 1])).all()
        assert not np.isnan(log_predictive_density(model, X_NEW, Y_NEW)).any()
        assert sample_y(model, X_NEW, 2).shape == (7, 2)
        if "isotonic" not in names:  # it changes the predictive's mean
            np.testing.assert_allclose(
                open_predictive(model, X_NEW).whole().mean(),
                model.predict(X_NEW),
                rtol=1e-6,
                atol=1e-9,
            )
        few = predict_uncertainty(model, X_NEW[4:])
        np.testing.assert_allclose(few, parts["total"][4:], rtol=1e-9)

    check_or_be_refused(names, check)


@random_nestings(nestings_of(AROUND_CLASSIFIERS))
def test_nested_classifiers(names):
    def check():
        network = MCDropoutClassifier(**SMALL)
        model = nested(network, names, AROUND_CLASSIFIERS).fit(X, LABELS)
        parts = predict_uncertainty(model, X_NEW, "all")
        assert all(part.shape == (7,) for part in parts.values())
        entropy = parts["entropy"]
        assert (parts["mutual_information"] <= entropy + 1e-12).all()
        assert (entropy <= np.log(2) + 1e-12).all()
        density = [log_predictive_density(model, X_NEW, [k] * 7) for k in (0, 1)]
        probability = np.exp(density).T
        np.testing.assert_allclose(probability.sum(1), 1)
        np.testing.assert_allclose(probability, model.predict_proba(X_NEW), rtol=1e-6)
        few = predict_uncertainty(model, X_NEW[4:])
        np.testing.assert_allclose(few, entropy[4:], rtol=1e-9)
        with pytest.raises(TypeError, match="`predict_interval` needs a regressor"):
            predict_interval(model, X_NEW)

    check_or_be_refused(names, check)
