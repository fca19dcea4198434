"""Promises of the package, tested with every posterior.

The posteriors are in `helpers/posteriors.py`. A test uses each one as a regressor or as
a classifier, and the next test vice versa. The other files of this folder test one
posterior in depth, most often MC dropout, where the code is shared.
"""

import copy
import pickle

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone

from skbayesnn import load, save
from skbayesnn._data.validation import Table
from skbayesnn._engine.training import ENGINE_VARIABLE
from skbayesnn.estimators import _fitted
from tests.helpers.pairwise import pairwise
from tests.helpers.posteriors import CASES, HALF, OTHER_HALF, REGRESSORS
from tests.helpers.predictions import assert_same, predictions
from tests.helpers.together import fit_together

EPOCHS = 5

# float64 rounding of sums in blocks of different sizes.
SAME = {"rtol": 1e-10, "atol": 1e-12}
# Rounding of batched products, which grows with the training steps.
TRAINED = {"rtol": 1e-6, "atol": 1e-8}

parametrize_half = pytest.mark.parametrize("case", HALF, ids=str)
parametrize_other_half = pytest.mark.parametrize("case", OTHER_HALF, ids=str)
parametrize_regressors = pytest.mark.parametrize("case", REGRESSORS, ids=str)


@pytest.fixture(scope="module")
def small(small):
    """Smaller still, since it is fitted some thousand times."""
    return small | {"hidden_layer_sizes": (6, 5), "max_iter": EPOCHS}


def target(case, data):
    return data.labels if case.classifies else data.y


def new_target(case, data):
    return data.labels[:11] if case.classifies else data.y_new


def assert_same_parameters(actual, desired, **tolerance):
    assert actual.keys() == desired.keys()
    for name, value in desired.items():
        if tolerance:
            np.testing.assert_allclose(actual[name], value, err_msg=name, **tolerance)
        else:
            np.testing.assert_array_equal(actual[name], value, err_msg=name)


@pytest.fixture(scope="module")
def models():
    """Fitted models of this module by case, for the fixture ``fitted``."""
    return {}


@pytest.fixture
def fitted(case, models, data, small):
    """A model with two networks that tests do not change."""
    if case not in models:
        model = case.model(n_estimators=2, **small)
        models[case] = model.fit(data.X, target(case, data))
    return models[case]


# ---- prediction


@pytest.mark.parametrize("case", CASES, ids=str)
def test_prediction_is_a_function_of_the_row(fitted, data):
    whole = predictions(fitted, data.X_new)
    numbers = [value for value in whole.values() if value.dtype.kind == "f"]
    assert all(np.isfinite(value).all() for value in numbers)
    assert_same(predictions(fitted, data.X_new), whole)  # called twice
    order = np.array([8, 2, 3, 10, 0])  # a subset, in another order
    assert_same(predictions(fitted, data.X_new[order]), whole, order, **SAME)
    with sklearn.config_context(working_memory=3e-3):  # chunks of rows and draws
        assert_same(predictions(fitted, data.X_new), whole, **SAME)


@parametrize_half
def test_epistemic_uncertainty_is_positive(fitted, data):
    kind = "mutual_information" if hasattr(fitted, "classes_") else "epistemic"
    assert (fitted.predict_uncertainty(data.X_new, kind) > 0).all()


@parametrize_other_half
def test_fixed_and_fresh_draws_have_the_same_distribution(fitted, data):
    model = copy.copy(fitted).set_params(n_draws=1000)
    functions = model.sample_f(data.X_new, 2000, random_state=1)
    classifies = hasattr(model, "classes_")
    mean = (model.predict_proba if classifies else model.predict)(data.X_new)
    # 6 standard errors of both samples, each of 2000 draws from two networks.
    error = functions.std(-1) * np.sqrt(1 / 2000 + 1 / 2000)
    assert (np.abs(functions.mean(-1) - mean) <= 6 * error + 1e-12).all()
    if not classifies:
        # The standard error of a std is about 2 % for normal tails and more for
        # heavy ones; 25 % is far outside.
        epistemic = model.predict_uncertainty(data.X_new, kind="epistemic")
        np.testing.assert_allclose(functions.std(-1), epistemic, rtol=0.25)


@parametrize_half
def test_saved_model_predicts_exactly_the_same(fitted, data, tmp_path):
    save(fitted, tmp_path / "model")
    loaded = load(tmp_path / "model")
    whole = predictions(fitted, data.X_new)
    assert_same(predictions(loaded, data.X_new), whole)
    assert vars(loaded).keys() == vars(fitted).keys()


@parametrize_other_half
def test_pickled_model_predicts_exactly_the_same(fitted, data):
    skops = pytest.importorskip("skops.io")
    whole = predictions(fitted, data.X_new)
    assert_same(predictions(pickle.loads(pickle.dumps(fitted)), data.X_new), whole)
    stored = skops.dumps(fitted)
    untrusted = skops.get_untrusted_types(data=stored)
    # Plain arrays, no torch objects.
    assert all(name.startswith("skbayesnn.") for name in untrusted)
    restored = skops.loads(stored, trusted=untrusted)
    assert_same(predictions(restored, data.X_new), whole)
    # Further training gives the same, too.
    y = data.labels[:11] if hasattr(fitted, "classes_") else data.y_new
    continued = copy.deepcopy(fitted).partial_fit(data.X_new, y)
    restored.partial_fit(data.X_new, y)
    assert_same(predictions(restored, data.X_new), predictions(continued, data.X_new))


@parametrize_half
def test_fitted_attributes(fitted):
    assert fitted.n_iter_ == len(fitted.loss_curve_) == EPOCHS
    assert np.isfinite(fitted.loss_curve_).all() and np.isfinite(fitted.elbo_)
    assert fitted.total_weight_ == 41
    for values in fitted.history_.values():
        assert values.shape == (EPOCHS, 2) and np.isfinite(values).all()
    assert set(fitted.history_) == {"loss", "negative_log_likelihood", "kl"}
    np.testing.assert_allclose(
        fitted.history_["loss"],
        fitted.history_["negative_log_likelihood"] + fitted.history_["kl"],
    )
    np.testing.assert_allclose(fitted.loss_curve_, fitted.history_["loss"].mean(1))
    # lambda = p l^2 / (2 N tau), eq. 4.
    expected = (1 - np.asarray(fitted.dropout_)) * 0.1**2 / (2 * 41 * fitted.tau_)
    np.testing.assert_allclose(fitted.weight_decay_, expected, rtol=1e-12)
    dropout = fitted.dropout
    if dropout == "auto":  # a learned rate per layer
        assert fitted.dropout_.shape == (3,) and (fitted.dropout_ > 0).all()
        assert (fitted.dropout_ != 0.1).all()
    else:
        np.testing.assert_array_equal(fitted.dropout_, dropout)


# ---- batched training


@pytest.mark.parametrize("case", CASES, ids=str)
def test_batched_fit_equals_single_fit(case, data, small):
    """Members differ in tau, rates, prior scales, seed and rows.

    The first and the last share a seed, and with it the random numbers.
    """
    seed = small["random_state"]
    models = [
        case.model(batch_size=17, **small).set_params(
            tau=[0.5, 2.0, 30.0][i],
            length_scale=[0.05, 0.3, (0.1, 0.2, 0.4)][i],
            random_state=[seed, seed + 1, seed][i],
            **case.differences(i),
        )
        for i in range(3)
    ]
    if case.classifies:
        models[1].set_params(class_weight="balanced")
    rows = [np.arange(41) % 4 != i for i in (1, 2, 3)]
    rows = [np.flatnonzero(r)[:30] for r in rows]
    classes = np.unique(data.labels) if case.classifies else None
    y = data.codes if case.classifies else data.y[:, None]
    together = fit_together(
        models, Table(data.X, y, np.ones(41)), rows, classes=classes
    )
    for model, r, member in zip(models, rows, together, strict=True):
        single = clone(model).fit(data.X[r], target(case, data)[r])
        arrays = _fitted.to_arrays(member.trained.posterior)
        assert_same_parameters(arrays, single.parameters_, **TRAINED)
        attributes, _ = _fitted.fitted_attributes(member)
        np.testing.assert_allclose(attributes["loss_curve_"], single.loss_curve_)
        np.testing.assert_allclose(attributes["dropout_"], single.dropout_)
        np.testing.assert_allclose(attributes["weight_decay_"], single.weight_decay_)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("bernoulli", {"dropout": 0.0}),
        ("bernoulli", {"dropout": "auto"}),
        ("bernoulli", {"noise": "gaussian"}),
        ("mean field", {"dropout": 0.2}),
        ("mean field", {"gradient": "pathwise"}),
        ("mean field", {"kl_warm_up": 0.25}),
        ("scale mixture", {"prior": "gaussian"}),
        ("type B, unit", {"alpha_per": "layer"}),
        ("type A, weight", {"kl_approximation": "kingma"}),
        ("type A, weight", {"prior": "gaussian"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_posteriors_that_cannot_be_batched_are_refused(data, small, name, change):
    """Members may differ in rates and prior scales, but not in family or training."""
    [case] = [case for case in REGRESSORS if case.name == name]
    model = case.model(**small)
    changed = clone(model).set_params(**change)
    table = Table(data.X, data.y[:, None], np.ones(41))
    with pytest.raises(
        ValueError, match="of one program may only differ in tau, dropout"
    ):
        fit_together([model, changed], table, [np.arange(41)] * 2)


@parametrize_half
def test_ensemble_is_the_mixture_of_its_networks(case, data, small):
    """RandomState gives the same seeds one by one and together."""
    y = target(case, data)
    together = case.model(n_estimators=2, batch_size=17, **small).fit(data.X, y)
    random = np.random.RandomState(small["random_state"])
    template = case.model(
        n_estimators=1, batch_size=17, **small | {"random_state": random}
    )
    singles = [
        clone(template).set_params(random_state=random).fit(data.X, y) for _ in "ab"
    ]
    for i, model in enumerate(singles):
        assert model.seeds_.tolist() == [together.seeds_[i]]
        np.testing.assert_allclose(
            model.history_["loss"][:, 0], together.history_["loss"][:, i], rtol=1e-8
        )
    # Both have the same weight.
    method = "predict_proba" if case.classifies else "predict"
    means = [getattr(model, method)(data.X_new) for model in singles]
    assert (means[0] != means[1]).any()
    np.testing.assert_allclose(
        getattr(together, method)(data.X_new), np.mean(means, 0), rtol=1e-6
    )


# ---- random_state


@parametrize_other_half
def test_same_random_state_gives_the_same_model(case, data, small):
    y = target(case, data)
    model = case.model(batch_size=17, **small)
    first, second = (clone(model).fit(data.X, y) for _ in range(2))
    assert_same_parameters(second.parameters_, first.parameters_)
    assert second.loss_curve_ == first.loss_curve_
    assert_same(predictions(second, data.X_new), predictions(first, data.X_new))
    other_seed = clone(model).set_params(random_state=small["random_state"] + 1)
    assert other_seed.fit(data.X, y).loss_curve_[0] != first.loss_curve_[0]


# ---- sample_weight


@pytest.fixture
def counts():
    """How often each of the 41 rows occurs: 0, 1, 2 or 3 times."""
    return np.arange(41) * 7 % 4


@parametrize_other_half
def test_weight_zero_equals_an_absent_row(case, data, small, counts):
    """Exactly, whatever values the row has, with random numbers and mini-batches."""
    present = counts > 0
    y = target(case, data)
    model = case.model(batch_size=17, **small)
    absent = clone(model).fit(data.X[present], y[present])
    X = np.where(present[:, None], data.X, 1e6)
    y = np.where(present, y, "low" if case.classifies else -1e6)
    weighted = clone(model).fit(X, y, sample_weight=present.astype(float))
    assert_same_parameters(weighted.parameters_, absent.parameters_)
    np.testing.assert_array_equal(weighted.weight_decay_, absent.weight_decay_)
    assert weighted.elbo_ == absent.elbo_


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if "gradient" in c.chosen],
    ids=str,
)
def test_integer_weight_equals_repeated_rows(case, data, small, counts):
    """If all rows of a step share the random numbers, and a batch has all rows."""
    y = target(case, data)
    rows = np.repeat(np.arange(41), counts)
    model = case.model(batch_size=1000, **small)
    weighted = clone(model).fit(data.X, y, sample_weight=counts)
    repeated = clone(model).fit(data.X[rows], y[rows])
    # Rounding of sums in another order, which grows with the steps.
    assert_same_parameters(weighted.parameters_, repeated.parameters_, **TRAINED)
    np.testing.assert_allclose(weighted.loss_curve_, repeated.loss_curve_)
    np.testing.assert_allclose(weighted.weight_decay_, repeated.weight_decay_)


@parametrize_half
def test_integer_weight_equals_repeated_rows_in_distribution(case, data, small, counts):
    """Means over networks agree within their standard error.

    Networks of the same seed start alike, which makes the differences small. Without
    the weights the means differ.
    """
    y = target(case, data)
    rows = np.repeat(np.arange(41), counts)
    model = case.model(n_estimators=24, **small).set_params(
        batch_size=1000, length_scale=1.0, max_iter=8
    )

    def statistics(fitted):
        """For every network: final loss and KL, and mean square of the weights."""
        *_, last = fitted.history_["negative_log_likelihood"]
        sizes = [
            np.square(value).mean(tuple(range(1, value.ndim)))
            for name, value in fitted.parameters_.items()
            if name.endswith("/mean")
        ]
        return np.stack([last, fitted.history_["kl"][-1], *sizes], 1)

    weighted = statistics(clone(model).fit(data.X, y, sample_weight=counts))
    repeated = statistics(clone(model).fit(data.X[rows], y[rows]))
    unweighted = statistics(clone(model).fit(data.X, y))

    def distance(difference):
        """The mean, in standard errors."""
        error = difference.std(0, ddof=1) / np.sqrt(len(difference))
        return np.abs(difference.mean(0)) / (error + 1e-9)

    # Student's t with 23 degrees of freedom: beyond 6 about once in 10^5.
    assert (distance(weighted - repeated) < 6).all()
    assert (distance(unweighted - repeated) > 6).any()


# ---- kinds of data


@parametrize_other_half
def test_sparse_equals_dense(case, data, small, monkeypatch):
    # The compiled loop trains on dense X only, with sums in another order:
    # tests/engine/test_compiled.py compares it with torch.
    monkeypatch.setenv(ENGINE_VARIABLE, "torch")
    y = target(case, data)
    X = np.where(np.abs(data.X) < 0.7, 0, data.X)
    X_new = np.where(np.abs(data.X_new) < 0.7, 0, data.X_new)
    model = case.model(batch_size=17, standardize=False, **small)
    dense = clone(model).fit(X, y)
    model.fit(sparse.csr_array(X), y)
    assert_same(
        predictions(model, sparse.csr_array(X_new)), predictions(dense, X_new), **SAME
    )


@pytest.mark.parametrize(
    ("case", "likelihood"),
    pairwise(REGRESSORS, ["gaussian", "heteroscedastic"], interacting=[]),
    ids=str,
)
def test_several_targets(case, data, small, likelihood):
    # Anchors of l = 0.1 are so wide that the noise can be at its bound for all rows.
    small = small | {"length_scale": 1.0}
    model = case.model(n_estimators=2, likelihood=likelihood, **small)
    model.fit(data.X, data.Y)
    parts = model.predict_uncertainty(data.X_new, kind="all")
    for value in (model.predict(data.X_new), *parts.values()):
        assert value.shape == (11, 3) and np.isfinite(value).all()
    assert model.predict_interval(data.X_new).shape == (11, 3, 2)
    assert model.sample_f(data.X_new, 5).shape == (11, 3, 5)
    assert model.tau_.shape == model.noise_std_.shape == (3,)
    assert np.isfinite(model.log_predictive_density(data.X_new, data.Y_new)).all()
    # The homoscedastic model has rounding errors only (1e-16).
    varies = parts["aleatoric"].std(0) > 1e-4 * parts["aleatoric"].mean(0)
    assert varies.all() if likelihood == "heteroscedastic" else not varies.any()


@pytest.mark.parametrize(
    ("case", "likelihood", "unit"),
    pairwise(
        REGRESSORS,
        ["gaussian", "heteroscedastic"],
        [1e3, 1e12, 1e-12],
        interacting=[(1, 2)],
    ),
    ids=str,
)
def test_units_of_y_do_not_matter(case, data, small, likelihood, unit):
    """If tau is learned, the noise variance follows the units of y."""
    model = case.model(likelihood=likelihood, **small)
    reference = clone(model).fit(data.X, data.y)
    model.fit(data.X, data.y * unit)
    std, X = reference.predict_uncertainty(data.X_new), data.X_new
    # Rounding errors of the scaling, which grow with the steps.
    close = {"rtol": 1e-6, "atol": 1e-6 * std.min()}
    for method in ("predict", "predict_uncertainty", "predict_interval"):
        actual, expected = (getattr(m, method)(X) for m in (model, reference))
        np.testing.assert_allclose(actual / unit, expected, **close)
    np.testing.assert_allclose(model.noise_std_ / unit, reference.noise_std_, **close)
    np.testing.assert_allclose(model.tau_ * unit**2, reference.tau_, rtol=1e-6)
    np.testing.assert_allclose(
        model.log_predictive_density(X, data.y_new * unit),
        reference.log_predictive_density(X, data.y_new) - np.log(unit),
        rtol=1e-6,
        atol=1e-6,
    )
    loss = np.array(reference.loss_curve_) + np.log(unit)
    np.testing.assert_allclose(model.loss_curve_, loss, rtol=1e-6)
    assert model.elbo_ == pytest.approx(reference.elbo_ - 41 * np.log(unit), rel=1e-6)


# ---- early stopping and continued training


@parametrize_half
def test_early_stopping_keeps_the_best_weights(case, data, small):
    """The validation score is the log density of the validation rows (8 draws)."""
    model = case.model(early_stopping=True, **small)
    model.set_params(
        n_estimators=1,
        max_iter=50,
        n_iter_no_change=4,
        tol=0.05 if case.classifies else 0.0,
        n_draws=8,
        learning_rate="constant",
        learning_rate_init=0.03,
    )
    y_val = new_target(case, data)
    model.fit(data.X, target(case, data), X_val=data.X_new, y_val=y_val)
    scores = model.history_["validation_score"][:, 0]
    assert len(scores) == model.n_iter_ and model.total_weight_ == 41
    best, n_best = -np.inf, 0
    for n, score in enumerate(scores, 1):
        if score > best + model.tol:
            best, n_best = score, n
    assert model.log_predictive_density(data.X_new, y_val).mean() == pytest.approx(
        best, rel=1e-9
    )
    if model.n_iter_ < 50:
        assert model.n_iter_ == n_best + 4


@parametrize_other_half
def test_warm_start_continues_training(case, data, small):
    """With the present weights and scaling: the learning rate is next to zero."""
    y = target(case, data)
    model = case.model(warm_start=True, **small).fit(data.X, y)
    before = copy.deepcopy(vars(model))
    model.set_params(max_iter=3, learning_rate_init=1e-12).fit(data.X, y)
    for name, value in before["parameters_"].items():
        # Three steps of 1e-12 each.
        np.testing.assert_allclose(model.parameters_[name], value, atol=1e-11)
    for name in ("x_scale_", "y_mean_", "seeds_"):
        np.testing.assert_array_equal(getattr(model, name), before[name])
    assert model.n_iter_ == len(model.loss_curve_) == 3
    assert model.n_epochs_seen_ == EPOCHS + 3 and model.total_weight_ == 41


@pytest.mark.parametrize("method", ["warm_start", "partial_fit"])
@pytest.mark.parametrize(
    "case", [case for case in HALF if "dropout" in case.differences(0)], ids=str
)
def test_continued_training_uses_a_changed_dropout(case, data, small, method):
    """``dropout_`` is the new rate, and so are the dropout parameters."""
    y = target(case, data)
    model = case.model(warm_start=True, **small).fit(data.X, y)
    model.set_params(dropout=0.4)
    fresh = clone(model).fit(data.X, y)
    model.fit(data.X, y) if method == "warm_start" else model.partial_fit(data.X, y)
    assert model.dropout_ == 0.4
    names = [n for n in fresh.parameters_ if n == "keep" or n.endswith("/variance")]
    for name in names:
        np.testing.assert_array_equal(model.parameters_[name], fresh.parameters_[name])


@parametrize_half
def test_partial_fit(case, data, small, taken):
    """N and the epochs grow, the optimiser state is kept, and the fit improves."""
    y, y_new = target(case, data), new_target(case, data)
    # Anchors of l = 0.1 are so wide that the first steps gain little.
    model = case.model(**small | {"length_scale": 1.0, "learning_rate_init": 0.03})
    model.partial_fit(data.X, y, n_epochs=1)
    scale = model.x_scale_
    first = model.log_predictive_density(data.X, y).mean()
    for i in range(2, 5):
        weights = np.full(11, 0.5)
        model.partial_fit(data.X_new, y_new, sample_weight=weights, n_epochs=1)
        assert model.n_iter_ == model.n_epochs_seen_ == i
        assert model.total_weight_ == pytest.approx(41 + (i - 1) * 5.5)
        decay = (1 - np.asarray(model.dropout_)) / (
            2 * model.total_weight_ * model.tau_
        )
        np.testing.assert_allclose(model.weight_decay_, decay)
        assert model.optimizer_["step"] == i
    np.testing.assert_array_equal(model.x_scale_, scale)
    model.partial_fit(data.X, y, n_epochs=20)
    assert model.log_predictive_density(data.X, y).mean() > first


@parametrize_other_half
def test_partial_fit_does_not_change_a_shallow_copy(case, data, small):
    """No array of the fitted state is changed in place."""
    model = case.model(**small).partial_fit(data.X, target(case, data))
    shallow, deep = copy.copy(model), copy.deepcopy(model)
    model.partial_fit(data.X_new, new_target(case, data))
    for name in ("parameters_", "optimizer_"):
        assert_same_parameters(getattr(shallow, name), getattr(deep, name))


# ---- scikit-learn


# ---- CUDA


@pytest.mark.cuda
@parametrize_half
def test_devices_agree(case, data, small):
    """Fits on a GPU repeat exactly, and predict the same on a CPU."""
    y = target(case, data)
    model = case.model(n_estimators=2, batch_size=17, **small | {"device": "cuda"})
    model.fit(data.X, y)
    on_gpu = predictions(model, data.X_new)
    assert_same(predictions(model, data.X_new), on_gpu)
    refitted = clone(model).fit(data.X, y)
    assert_same(predictions(refitted, data.X_new), on_gpu)
    on_cpu = pickle.loads(pickle.dumps(model)).set_params(device="cpu")
    # float64 rounding; quantiles are found to 1e-12 of the std.
    assert_same(predictions(on_cpu, data.X_new), on_gpu, rtol=1e-9, atol=1e-9)
    # Training continues on the GPU.
    model.partial_fit(data.X_new, new_target(case, data))
    assert np.isfinite(model.loss_curve_).all()


@pytest.mark.cuda
@parametrize_other_half
def test_batched_fit_equals_single_fit_on_a_gpu(case, data, small):
    models = [
        case.model(**small | {"device": "cuda"}).set_params(
            tau=[0.5, 2.0, 30.0][i],
            random_state=small["random_state"] + i,
            **case.differences(i),
        )
        for i in range(3)
    ]
    classes = np.unique(data.labels) if case.classifies else None
    y = data.codes if case.classifies else data.y[:, None]
    table = Table(data.X, y, np.ones(41))
    together = fit_together(models, table, [np.arange(41)] * 3, classes=classes)
    for model, member in zip(models, together, strict=True):
        single = clone(model).fit(data.X, target(case, data))
        arrays = _fitted.to_arrays(member.trained.posterior)
        assert_same_parameters(arrays, single.parameters_, **TRAINED)
