"""The classifier: its parameters, methods and fitted attributes."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning

from skbayesnn import MCDropoutClassifier, VariationalDropoutClassifier
from skbayesnn import log_predictive_density as free_density
from skbayesnn.estimators._defaults import DEFAULTS, defaults_of

NETWORKS = 2
KINDS = [
    "entropy",
    "mutual_information",
    "variation_ratio",
    "expected_entropy",
    "overlap",
]


@pytest.fixture(scope="module")
def model(data, small):
    """Three string labels; two networks."""
    model = MCDropoutClassifier(n_estimators=NETWORKS, **small)
    return model.fit(data.X, data.labels)


# ---- predictions


def test_shapes_of_predictions(model, data):
    X = data.X_new
    probability = model.predict_proba(X)
    assert probability.shape == (11, 3)
    np.testing.assert_allclose(probability.sum(1), 1, rtol=1e-12)
    assert (probability > 0).all()
    np.testing.assert_array_equal(model.predict_log_proba(X), np.log(probability))
    labels = model.predict(X)
    assert labels.shape == (11,)
    np.testing.assert_array_equal(labels, model.classes_[probability.argmax(1)])
    assert model.predict_uncertainty(X).shape == (11,)
    functions = model.sample_f(X, 7)
    assert functions.shape == (11, 3, 7)
    np.testing.assert_allclose(functions.sum(1), 1, rtol=1e-12)
    assert model.sample_y(X, 7).shape == (11, 7)
    assert model.log_predictive_density(X, labels).shape == (11,)
    assert np.isscalar(model.score(X, labels))


def test_log_density_is_the_log_probability_of_the_label(model, data):
    probability = model.predict_proba(data.X_new)
    for code, label in enumerate(["low", "mid", "top"]):
        np.testing.assert_allclose(
            model.log_predictive_density(data.X_new, [label] * 11),
            np.log(probability[:, code]),
            rtol=1e-12,
        )


def test_unknown_label_is_refused(model, data):
    """Also a label of another type."""
    y = np.array(["low", "never", "top", "aaa"] + ["mid"] * 7)
    for function in (model.log_predictive_density, partial(free_density, model)):
        with pytest.raises(ValueError, match=r"among the model's.*\['aaa', 'never'\]"):
            function(data.X_new, y)
        with pytest.raises(ValueError, match=r"among the model's .*; got \[0\]"):
            function(data.X_new, np.zeros(11, int))


def test_sampled_labels_have_the_mean_probability(data, small):
    model = MCDropoutClassifier(**small | {"n_draws": 2000}).fit(data.X, data.labels)
    sampled = model.sample_y(data.X_new, 4000, random_state=1)
    assert set(np.unique(sampled)) <= {"low", "mid", "top"}
    p = model.predict_proba(data.X_new)
    share = np.stack([(sampled == label).mean(1) for label in model.classes_], axis=1)
    # Binomial standard error of 4000 samples and 2000 fixed draws; the last
    # term is one or two labels of a rare class.
    error = np.sqrt(p * (1 - p) * (1 / 4000 + 1 / 2000))
    assert (np.abs(share - p) < 5 * error + 5e-4).all()


# ---- uncertainty, eq. 7


def test_kinds_of_uncertainty(model, data):
    all_kinds = model.predict_uncertainty(data.X_new, kind="all")
    assert list(all_kinds) == KINDS
    for kind, value in all_kinds.items():
        assert value.shape == (11,)
        assert (value >= 0).all()
        np.testing.assert_array_equal(
            model.predict_uncertainty(data.X_new, kind=kind), value
        )
    np.testing.assert_array_equal(
        model.predict_uncertainty(data.X_new), all_kinds["entropy"]
    )
    subset = model.predict_uncertainty(data.X_new, kind=["overlap", "entropy"])
    assert list(subset) == ["overlap", "entropy"]
    assert all_kinds["entropy"].max() <= np.log(3) + 1e-12
    assert all_kinds["variation_ratio"].max() <= 1 - 1 / 3
    assert all_kinds["overlap"].max() <= 1 + 1e-12


@pytest.mark.parametrize("kind", ["total", ["entropy", "total"]])
def test_unknown_kind(model, data, kind):
    with pytest.raises(ValueError, match=r"`kind` must be 'all' or among 'entropy'.*"):
        model.predict_uncertainty(data.X_new, kind=kind)


# ---- labels


@pytest.mark.parametrize(
    "names",
    [
        np.array(["b", "dd", "a"]),
        np.array(["b", "dd", "a"], dtype=object),
        np.array([7, -2, 100]),
        np.array([2.0, 5.0, 1.0]),
    ],
    ids=["text", "object", "numbers", "floats"],
)
def test_labels_of_all_types(data, small, names):
    y = names[data.codes]
    model = MCDropoutClassifier(**small).fit(data.X, y)
    np.testing.assert_array_equal(model.classes_, np.unique(names))
    labels = model.predict(data.X_new)
    assert set(labels) <= set(names)
    assert model.classes_.dtype == names.dtype
    assert model.sample_y(data.X_new, 2).dtype == names.dtype
    # Better than chance: the labels are not permuted.
    model.set_params(max_iter=300, dropout=0.0, activation="tanh").fit(data.X, y)
    assert model.score(data.X, y) > 0.7
    assert np.isfinite(model.log_predictive_density(data.X, y)).all()


def test_boolean_labels(data, small):
    y = data.codes > 0
    model = MCDropoutClassifier(**small | {"max_iter": 100}).fit(data.X, y)
    assert model.predict_proba(data.X_new).shape == (11, 2)
    assert model.predict(data.X_new).dtype == bool
    assert model.score(data.X, y) > 0.8


def test_one_column_y_warns_and_is_raveled(data, small):
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        model = MCDropoutClassifier(**small).fit(data.X, data.labels[:, None])
    assert model.predict(data.X_new).shape == (11,)


def test_pandas_labels(data, small):
    pd = pytest.importorskip("pandas")
    reference = MCDropoutClassifier(**small).fit(data.X, data.labels)
    for y in (pd.Series(data.labels), pd.Series(data.labels, dtype="category")):
        model = MCDropoutClassifier(**small).fit(data.X, y)
        np.testing.assert_array_equal(
            model.predict(data.X_new), reference.predict(data.X_new)
        )


# ---- other types of X


# ---- class_weight


def test_class_weight_equals_sample_weight(data, small):
    weights = {"low": 3.0, "mid": 0.5, "top": 1.0}
    model = MCDropoutClassifier(**small)
    with_class_weight = (
        clone(model).set_params(class_weight=weights).fit(data.X, data.labels)
    )
    per_row = np.array([weights[label] for label in data.labels])
    model.fit(data.X, data.labels, sample_weight=per_row)
    np.testing.assert_array_equal(
        with_class_weight.predict_proba(data.X_new), model.predict_proba(data.X_new)
    )
    assert with_class_weight.weight_decay_ == model.weight_decay_
    # N is the sum of the products of both weights.
    rows = np.linspace(0.5, 1.5, 41)
    with_class_weight.fit(data.X, data.labels, sample_weight=rows)
    n = (rows * per_row).sum()
    assert with_class_weight.weight_decay_ == pytest.approx(
        0.9 * 0.1**2 / (2 * n), rel=1e-12
    )


def test_balanced_class_weight(data, small):
    rows = np.r_[0:20, 25:41]  # unequal classes
    y = data.labels[rows]
    model = MCDropoutClassifier(**small)
    balanced = clone(model).set_params(class_weight="balanced").fit(data.X[rows], y)
    counts = {label: (y == label).sum() for label in np.unique(y)}
    per_row = np.array([len(y) / (3 * counts[label]) for label in y])
    model.fit(data.X[rows], y, sample_weight=per_row)
    np.testing.assert_allclose(
        balanced.predict_proba(data.X_new),
        model.predict_proba(data.X_new),
        rtol=1e-7,  # rounding of the weights, which grows in 20 steps
    )


def test_class_weight_with_an_unknown_class_is_refused(data, small):
    """With scikit-learn's message."""
    model = MCDropoutClassifier(class_weight={"low": 2.0, "none": 3.0}, **small)
    with pytest.raises(ValueError, match=r"'mid', 'top'.* not in class_weight"):
        model.fit(data.X, data.labels)


# ---- parameters and fitted attributes


def test_weight_decay(data, small):
    """p l^2 / (2 N tau), eq. 4; tau is the inverse temperature of the likelihood."""
    model = MCDropoutClassifier(**small | {"length_scale": 0.7}).fit(
        data.X, data.labels
    )
    assert model.tau_ == 1.0
    assert model.weight_decay_ == pytest.approx(0.9 * 0.49 / (2 * 41), rel=1e-14)
    dropout, scale = np.array([0.0, 0.2, 0.5]), np.array([0.1, 0.4, 2.0])
    model.set_params(dropout=dropout, length_scale=scale, tau=3.0)
    model.fit(data.X, data.labels)
    assert model.tau_ == 3.0
    np.testing.assert_allclose(
        model.weight_decay_, (1 - dropout) * scale**2 / (2 * 41 * 3.0)
    )
    model.set_params(length_scale="fan_in").fit(data.X, data.labels)
    np.testing.assert_allclose(
        model.weight_decay_, (1 - dropout) * np.array([4, 8, 6]) / (2 * 41 * 3.0)
    )


def test_learned_tau_is_refused(data, small):
    with pytest.raises(ValueError, match="inverse temperature and must be a number"):
        MCDropoutClassifier(tau="auto", **small).fit(data.X, data.labels)


def test_fitted_attributes(model):
    assert model.n_features_in_ == 4
    assert model.dropout_ == 0.1
    assert not hasattr(model, "noise_std_")
    np.testing.assert_array_equal(model.classes_, ["low", "mid", "top"])


def test_loss_is_the_negative_log_probability(data, small):
    """Deterministic initial weights, and a step that is next to zero."""
    model = MCDropoutClassifier(
        **small | {"dropout": 0.0, "learning_rate_init": 1e-12, "max_iter": 1}
    )
    model.fit(data.X, data.labels)
    density = model.log_predictive_density(data.X, data.labels)
    np.testing.assert_allclose(
        model.history_["negative_log_likelihood"], [[-density.mean()]], rtol=1e-9
    )


LEARNED_RATES = [
    (MCDropoutClassifier, {"dropout": "auto"}),
    (VariationalDropoutClassifier, {}),
]


def fitted_probabilities(model, data, **rows):
    y = data.labels
    return model.fit(data.X, y, **rows).predict_proba(data.X_new)


def stop_early_from(monkeypatch, kind, n_rows):
    """Make early_stopping="auto" hold rows out from ``n_rows`` on."""
    name = kind.__name__
    changed = replace(DEFAULTS[name], early_stopping_from_n=n_rows, learned_rates={})
    monkeypatch.setitem(DEFAULTS, name, changed)


@pytest.mark.parametrize(("kind", "params"), LEARNED_RATES)
def test_learned_rates_stop_early_with_many_rows(
    data, small, monkeypatch, kind, params
):
    """With "auto" as with True; with fewer rows none are held out."""
    params = small | params | {"n_iter_no_change": 1, "tol": 1.0}
    assert kind().early_stopping == "auto"
    without = fitted_probabilities(kind(early_stopping=False, **params), data)
    np.testing.assert_array_equal(fitted_probabilities(kind(**params), data), without)
    stop_early_from(monkeypatch, kind, len(data.X))
    stopped = fitted_probabilities(kind(early_stopping=True, **params), data)
    assert not np.array_equal(stopped, without)
    np.testing.assert_array_equal(fitted_probabilities(kind(**params), data), stopped)
    stop_early_from(monkeypatch, kind, len(data.X) + 1)
    np.testing.assert_array_equal(fitted_probabilities(kind(**params), data), without)


def test_given_rates_do_not_stop_early_by_default():
    from_n = {
        model: defaults_of(model).early_stopping_from_n
        for model in (
            MCDropoutClassifier(),
            MCDropoutClassifier(dropout="auto"),
            VariationalDropoutClassifier(),
        )
    }
    assert list(from_n.values()) == [math.inf, 5_000, 5_000]


@pytest.mark.parametrize(("kind", "params"), LEARNED_RATES)
def test_given_validation_rows_stop_the_training(data, small, kind, params):
    params = small | params | {"n_iter_no_change": 1, "tol": 1.0}
    rows = {"X_val": data.X_new, "y_val": data.labels[: len(data.X_new)]}
    expected = fitted_probabilities(kind(early_stopping=True, **params), data, **rows)
    actual = fitted_probabilities(kind(**params), data, **rows)
    np.testing.assert_array_equal(actual, expected)


def test_single_row_of_a_class_is_not_held_out(data, small, monkeypatch):
    """Then no rows are held out, and the fit succeeds."""
    stop_early_from(monkeypatch, VariationalDropoutClassifier, 3)
    labels = data.labels.astype("U9")
    labels[0] = "alone"
    model = VariationalDropoutClassifier(**small).fit(data.X, labels)
    assert "validation_score" not in model.history_
    assert "alone" in model.classes_


def test_partial_fit_with_learned_rates_holds_no_rows_out(data, small):
    model = VariationalDropoutClassifier(**small)
    model.partial_fit(data.X, data.labels, classes=np.unique(data.labels))
    assert "validation_score" not in model.history_


def test_validation_rows_are_stratified(data, small):
    model = MCDropoutClassifier(
        early_stopping=True, validation_fraction=0.2, class_weight="balanced", **small
    )
    model.fit(data.X, data.labels)
    assert model.history_["validation_score"].shape == (model.n_iter_, 1)
    assert np.isfinite(model.history_["validation_score"]).all()
