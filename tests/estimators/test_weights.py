"""sample_weight: integer weights equal repeated rows, weight zero an absent row."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    AnchoredEnsembleClassifier,
    BayesianStackingClassifier,
    BBBClassifier,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
)
from tests.helpers.checks import Checks

MODELS = {
    "gaussian": MCDropoutRegressor(length_scale=0.1),
    "given tau": MCDropoutRegressor(tau=2.0, length_scale=1.0),
    "heteroscedastic": MCDropoutRegressor(likelihood="heteroscedastic"),
    "classifier": MCDropoutClassifier(length_scale=1.0),
    "class_weight": MCDropoutClassifier(class_weight={"low": 2, "mid": 1, "top": 0.5}),
    "networks": MCDropoutRegressor(n_estimators=3),
}


@pytest.fixture(params=MODELS)
def model(request, small):
    """Deterministic, with all rows in one batch."""
    exact = small | {"dropout": 0.0, "batch_size": 1000}
    exact.pop("length_scale")
    return clone(MODELS[request.param]).set_params(**exact)


@pytest.fixture
def counts():
    """How often each of the 41 rows occurs: 0, 1, 2 or 3 times."""
    return np.arange(41) * 7 % 4


def target(model, data):
    return data.labels if isinstance(model, MCDropoutClassifier) else data.y


def assert_same_model(weighted, repeated, X, y):
    # Rounding of sums in another order, which grows in 20 steps.
    for method, arguments in (
        ("predict_uncertainty", (X,)),
        ("log_predictive_density", (X, y)),
    ):
        np.testing.assert_allclose(
            getattr(weighted, method)(*arguments),
            getattr(repeated, method)(*arguments),
            rtol=1e-7,
            atol=1e-7,
        )
    np.testing.assert_allclose(
        weighted.loss_curve_, repeated.loss_curve_, rtol=1e-8, atol=1e-9
    )
    np.testing.assert_allclose(weighted.weight_decay_, repeated.weight_decay_)
    assert weighted.elbo_ == pytest.approx(repeated.elbo_, rel=1e-8, abs=1e-7)


def test_integer_weight_equals_repeated_rows(model, data, counts):
    y = target(model, data)
    rows = np.repeat(np.arange(41), counts)
    repeated = clone(model).fit(data.X[rows], y[rows])
    weighted = clone(model).fit(data.X, y, sample_weight=counts)
    assert_same_model(weighted, repeated, data.X, y)


def test_weight_zero_equals_an_absent_row(model, data, counts):
    y = target(model, data)
    present = counts > 0
    absent = clone(model).fit(data.X[present], y[present])
    weighted = clone(model).fit(data.X, y, sample_weight=present.astype(float))
    for name, value in absent.parameters_.items():  # exactly
        np.testing.assert_array_equal(weighted.parameters_[name], value)
    np.testing.assert_array_equal(weighted.loss_curve_, absent.loss_curve_)
    np.testing.assert_array_equal(weighted.weight_decay_, absent.weight_decay_)


def test_weights_of_one_equal_no_weights(model, data):
    y = target(model, data)
    plain = clone(model).fit(data.X, y)
    for weights in (np.ones(41), np.ones(41, dtype=int), [1.0] * 41, 1.0):
        ones = clone(model).fit(data.X, y, sample_weight=weights)
        np.testing.assert_array_equal(
            ones.predict_uncertainty(data.X_new), plain.predict_uncertainty(data.X_new)
        )


def test_rows_of_weight_zero_are_not_held_out(data, small):
    weights = np.r_[np.ones(30), np.zeros(11)]
    model = MCDropoutRegressor(early_stopping=True, **small)
    weighted = clone(model).fit(data.X, data.y, sample_weight=weights)
    absent = clone(model).fit(data.X[:30], data.y[:30])
    np.testing.assert_array_equal(
        weighted.history_["validation_score"], absent.history_["validation_score"]
    )


WRONG_WEIGHTS = {
    "negative": (
        np.r_[-1.0, np.ones(40)],
        "[Nn]egative values in data.*`sample_weight`",
    ),
    "nan": (np.r_[np.nan, np.ones(40)], "sample_weight contains NaN"),
    "infinite": (np.r_[np.inf, np.ones(40)], "sample_weight contains infinity"),
    "all zero": (np.zeros(41), "zero"),
    "length": (np.ones(40), "sample_weight.shape == "),
    "2d": (np.ones((41, 2)), "[Ss]ample.weight.* must be 1D"),
}


@pytest.mark.parametrize("kind", [MCDropoutRegressor, MCDropoutClassifier])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_invalid_weights_are_refused(data, small, kind, method):
    with Checks() as check:
        for name, (weights, message) in WRONG_WEIGHTS.items():
            model = kind(**small)
            y = target(model, data)
            with check(name):
                with pytest.raises(ValueError, match=message):
                    getattr(model, method)(data.X, y, sample_weight=weights)
                assert not hasattr(model, "n_features_in_")


# ---- metadata routing


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_weights_reach_the_network_in_a_pipeline(routing, data, small, counts):
    network = MCDropoutRegressor(**small).set_fit_request(sample_weight=True)
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    pipeline = make_pipeline(scaler, network)
    pipeline.fit(data.X, data.y, sample_weight=counts)
    n = counts.sum()
    assert pipeline[-1].weight_decay_ == pytest.approx(
        0.9 * 0.1**2 / (2 * n * pipeline[-1].tau_)
    )
    expected = clone(network).fit(
        StandardScaler().fit_transform(data.X), data.y, sample_weight=counts
    )
    np.testing.assert_array_equal(
        pipeline.predict(data.X_new),
        expected.predict(pipeline[:-1].transform(data.X_new)),
    )


def test_weights_reach_the_network_in_a_search(routing, data, small, counts):
    network = MCDropoutRegressor(**small).set_fit_request(sample_weight=True)
    network.set_score_request(sample_weight=True)
    search = GridSearchCV(network, {"tau": [1.0, 4.0]}, cv=KFold(3))
    search.fit(data.X, data.y, sample_weight=counts)
    best = search.best_estimator_
    n = counts.sum()
    assert best.weight_decay_ == pytest.approx(0.9 * 0.1**2 / (2 * n * best.tau_))
    train, test = next(iter(KFold(3).split(data.X)))
    first = clone(network).set_params(tau=1.0)
    first.fit(data.X[train], data.y[train], sample_weight=counts[train])
    assert search.cv_results_["split0_test_score"][0] == pytest.approx(
        first.score(data.X[test], data.y[test], sample_weight=counts[test])
    )


def test_validation_rows_reach_the_network(routing, data, small):
    network = MCDropoutRegressor(early_stopping=True, **small)
    network.set_fit_request(X_val=True, y_val=True)
    pipeline = make_pipeline(StandardScaler(), network)
    scaled = StandardScaler().fit(data.X).transform(data.X_new)
    pipeline.fit(data.X, data.y, X_val=scaled, y_val=data.y_new)
    assert pipeline[-1].history_["validation_score"].shape[1] == 1
    assert pipeline[-1].total_weight_ == 41  # no training row was held out


def test_weights_that_were_not_requested_are_refused(routing, data, small, counts):
    pipeline = make_pipeline(StandardScaler(), MCDropoutRegressor(**small))
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        pipeline.fit(data.X, data.y, sample_weight=counts)


# ---- a class without training rows


def _classifiers(small):
    few = {name: value for name, value in small.items() if name != "length_scale"}
    few |= {"max_iter": 2, "n_draws": 3}
    network = MCDropoutClassifier(**few)
    return {
        "mc": network,
        "bbb": BBBClassifier(**few),
        "variational": VariationalDropoutClassifier(**few),
        "ordinal": clone(network).set_params(likelihood="ordinal"),
        "early": clone(network).set_params(early_stopping=True),
        "networks": clone(network).set_params(n_estimators=2),
        "anchored": AnchoredEnsembleClassifier((5,), max_iter=2, n_estimators=2),
        "stack": BayesianStackingClassifier([("net", clone(network))], cv=2),
    }


@pytest.mark.filterwarnings(
    "ignore:likelihood='ordinal' takes",
)
@pytest.mark.parametrize("by", ["sample_weight", "class_weight"])
@pytest.mark.parametrize("absent", ["low", "top"])
def test_class_of_weight_zero_has_probability_zero(by, absent, data, small):
    """Other classes are as in a fit without its rows; labels stay those of y."""
    present = data.labels != absent
    wrong = []
    for name, model in _classifiers(small).items():
        model.set_params(random_state=0)
        without = clone(model).fit(data.X[present], data.labels[present])
        weights = present.astype(float)
        if by == "class_weight":
            model.set_params(class_weight={absent: 0.0})
            weights = None
        model.fit(data.X, data.labels, sample_weight=weights)
        assert model.classes_.tolist() == ["low", "mid", "top"]
        probability = model.predict_proba(data.X_new)
        expected = np.zeros_like(probability)
        expected[:, model.classes_ != absent] = without.predict_proba(data.X_new)
        if not np.allclose(probability, expected, rtol=0, atol=1e-9):
            wrong.append(name)
        if (model.sample_y(data.X_new, 5) == absent).any():
            wrong.append(f"{name}: samples")
    assert not wrong


def test_rows_of_a_class_without_training_rows_are_refused(data, small):
    """Among validation rows, or in a later call of partial_fit."""
    weights = (data.labels != "mid").astype(float)
    model = MCDropoutClassifier(**small, early_stopping=True)
    message = r"only labels that have training rows with positive weight; got \['mid'\]"
    with pytest.raises(ValueError, match=message):
        model.fit(data.X, data.labels, weights, X_val=data.X, y_val=data.labels)
    model = MCDropoutClassifier(**small)
    model.partial_fit(data.X, data.labels, sample_weight=weights)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(data.X, data.labels)
    # Later rows may have any label named in the first call.
    model = MCDropoutClassifier(**small)
    model.partial_fit(data.X, data.labels, ["low", "mid", "top"], weights)
    model.partial_fit(data.X, data.labels)
    assert (model.predict_proba(data.X_new) > 0).all()


def test_raises_if_class_weight_leaves_one_class(data, small):
    only = {"low": 0.0, "top": 0.0}
    stack = BayesianStackingClassifier([("net", MCDropoutClassifier(**small))])
    for model in (MCDropoutClassifier(**small), stack):
        message = (
            f"{type(model).__name__} needs rows of at least 2 classes; got 1 class: "
            r"'mid' \(rows of weight zero, also by class_weight, do not count\)"
        )
        with pytest.raises(ValueError, match=message):
            model.set_params(class_weight=only).fit(data.X, data.labels)
