"""Bayes by Backprop: its parameters, and the previous posterior as a prior.

Promises of all posteriors are tested in `test_posteriors.py`, linear models against the
conjugate posterior in `test_conjugate.py`.
"""

import copy
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

from skbayesnn import (
    BBBClassifier,
    BBBRegressor,
    MCDropoutRegressor,
)
from skbayesnn._engine.training import TrainingHistory
from skbayesnn.networks import MLP
from tests.helpers.pairwise import pairwise
from tests.helpers.posteriors import BBB, VARIATIONAL

BOTH = pytest.mark.parametrize("kind", BBB)


@pytest.fixture(scope="module")
def small(small):
    """Parameters of small networks without dropout; no rows are held out for tau."""
    return small | {"dropout": 0.0, "tau": 1.0}


def target(kind, data):
    return data.labels if is_classifier(kind()) else data.y


def new_target(kind, data):
    return data.labels[:11] if is_classifier(kind()) else data.y_new


def same_arrays(actual, desired):
    assert actual.keys() == desired.keys()
    for name, value in desired.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


MIXTURE = {"prior": "scale_mixture", "kl": "sampled"}


@pytest.mark.parametrize("length_scale", [1.0, "auto", [0.5, 1.0, 2.0]])
@BOTH
def test_mixture_prior_takes_every_length_scale(data, small, kind, length_scale):
    model = kind(**small | MIXTURE | {"length_scale": length_scale})
    model.fit(data.X, target(kind, data))
    assert np.isfinite(model.loss_curve_).all()


# ---- effects of the parameters


# ---- the default width

AUTO = {"max_iter": 1, "n_draws": 2, "random_state": 0}


def hidden_sizes(model):
    return tuple(model.network_["sizes"][1:-1])


@pytest.mark.parametrize(
    ("n_rows", "sizes"),
    [
        (12, (10,)),
        (100, (10,)),
        (101, (20,)),
        (200, (20,)),
        (201, (20, 20)),
        (3000, (20, 20)),
        (3001, (50, 50)),
    ],
)
def test_default_width_depends_on_the_number_of_rows(n_rows, sizes):
    random = np.random.default_rng(n_rows)
    X, y = random.normal(size=(n_rows, 2)), random.normal(size=n_rows)
    assert hidden_sizes(BBBRegressor(**AUTO).fit(X, y)) == sizes


def test_default_width_depends_on_the_sum_of_weights(data):
    """41 rows of weight 3 count as 123."""
    weights = np.full(len(data.y), 3.0)
    model = BBBRegressor(**AUTO)
    assert hidden_sizes(model.fit(data.X, data.y, weights)) == (20,)
    repeated = np.repeat(data.X, 3, axis=0), np.repeat(data.y, 3)
    assert hidden_sizes(model.fit(*repeated)) == (20,)


def test_default_width_rounds_the_sum_of_weights():
    """A thousand weights of 0.1 sum to a little more than 100."""
    X = np.random.default_rng(0).normal(size=(1000, 2))
    tenths = np.full(1000, 0.1)
    assert tenths.sum() != 100
    assert hidden_sizes(BBBRegressor(**AUTO).fit(X, X[:, 0], tenths)) == (10,)


def test_continued_training_keeps_the_width(data):
    many = np.repeat(data.X, 3, axis=0), np.repeat(data.y, 3)
    model = BBBRegressor(**AUTO, warm_start=True).fit(data.X, data.y)
    assert hidden_sizes(model.fit(*many)) == (10,)
    assert hidden_sizes(model.partial_fit(*many)) == (10,)
    assert hidden_sizes(model.partial_fit(*many, prior="previous")) == (10,)
    assert hidden_sizes(model.set_params(warm_start=False).fit(*many)) == (20,)


def test_default_width_of_a_stream(data):
    """The number of rows to come is unknown, unless each call is a full fit."""
    model = BBBRegressor(**AUTO)
    assert hidden_sizes(model.partial_fit(data.X, data.y)) == (50, 50)
    assert hidden_sizes(model.partial_fit(data.X, data.y)) == (50, 50)
    model = BBBRegressor(**AUTO).partial_fit(data.X, data.y, prior="previous")
    assert hidden_sizes(model) == (10,)


def test_given_network_keeps_its_width(data):
    model = BBBRegressor(network=MLP((7,)), warm_start=True, **AUTO)
    assert hidden_sizes(model.fit(data.X, data.y).fit(data.X, data.y)) == (7,)


@pytest.mark.parametrize("kind", [BBBRegressor, MCDropoutRegressor])
def test_invalid_width_is_refused(data, kind):
    with pytest.raises(TypeError, match="`hidden_layer_sizes` must be"):
        kind(hidden_layer_sizes="wide").fit(data.X, data.y)


@BOTH
def test_prior_scales_affect_the_mixture_only(data, small, kind):
    """Each of pi, s1 and s2 changes a fit under the mixture prior alone."""
    y = target(kind, data)
    for base, has_effect in ((MIXTURE, True), ({}, False)):
        plain = kind(**small | base).fit(data.X, y)
        for name, value in (("pi", 0.9), ("s1", 5.0), ("s2", 0.01)):
            changed = kind(**small | base | {name: value}).fit(data.X, y)
            assert (changed.loss_curve_ != plain.loss_curve_) == has_effect


@BOTH
def test_mixture_of_equal_scales_is_the_gaussian_prior(data, small, kind):
    """s1 = s2 = 1: the same density, sampled with the same random numbers."""
    y = target(kind, data)
    mixture = kind(**small | MIXTURE | {"s2": 1.0}).fit(data.X, y)
    gaussian = kind(**small | {"kl": "sampled"}).fit(data.X, y)
    np.testing.assert_allclose(
        mixture.loss_curve_,
        gaussian.loss_curve_,
        rtol=1e-8,  # rounding, grown by the steps
    )
    for name, value in gaussian.parameters_.items():
        np.testing.assert_allclose(mixture.parameters_[name], value, atol=1e-9)


@BOTH
def test_kl_is_spread_over_the_batches(data, small, kind):
    """With geometric weights the first batches have most of it."""
    y = target(kind, data)
    for batch_size, alike in ((41, True), (11, False)):
        uniform, geometric = (
            kind(kl_weighting=w, batch_size=batch_size, **small).fit(data.X, y)
            for w in ("uniform", "geometric")
        )
        assert (uniform.loss_curve_ == geometric.loss_curve_) == alike


@BOTH
def test_first_step_of_a_warm_up_ignores_the_prior(data, small, kind):
    y = target(kind, data)
    for warm_up, alike in ((0.5, True), (0.0, False)):
        weights = [
            kind(
                kl_warm_up=warm_up,
                **small | {"length_scale": length_scale, "max_iter": 1},
            )
            .fit(data.X, y)
            .parameters_["layers/1/mean"]
            for length_scale in (0.1, 10.0)
        ]
        assert np.array_equal(*weights) == alike


# ---- the previous posterior as the prior


def restore_posterior(model):
    """Means and standard deviations per layer, as the fields of a prior."""
    p = model.parameters_
    return [
        {
            "mean": p[f"layers/{i}/mean"],
            "std": np.logaddexp(0, p[f"layers/{i}/rho"]),
            "bias_mean": p[f"layers/{i}/bias"],
            "bias_std": np.logaddexp(0, p[f"layers/{i}/bias_rho"]),
        }
        for i in range(3)
    ]


def kl_between(after, before):
    """KL divergence of one posterior from another, nats, (networks,)."""
    total = 0
    for q, p in zip(after, before, strict=True):
        for mean, std in (("mean", "std"), ("bias_mean", "bias_std")):
            ratio = (q[std] / p[std]) ** 2
            shift = ((q[mean] - p[mean]) / p[std]) ** 2
            terms = 0.5 * (ratio + shift - 1 - np.log(ratio))
            total = total + terms.reshape(len(terms), -1).sum(1)
    return total


def assert_same_fields(actual, desired):
    for actual_layer, desired_layer in zip(actual, desired, strict=True):
        assert actual_layer.keys() == desired_layer.keys()
        for name, value in desired_layer.items():
            # torch and NumPy compute softplus differently.
            np.testing.assert_allclose(
                actual_layer[name], value, rtol=1e-12, err_msg=name
            )


@pytest.mark.parametrize(
    ("options", "kind"),
    pairwise(
        [
            {},
            {"kl": "sampled"},
            {"gradient": "pathwise"},
            MIXTURE,
        ],
        BBB,
        interacting=[],
    ),
)
def test_previous_posterior_is_the_prior(data, small, kind, options, taken):
    """A full fit to new rows, then a stream under the same prior."""
    y, y_new = target(kind, data), new_target(kind, data)
    model = kind(n_estimators=2, **small | options).fit(data.X, y)
    assert model.prior_ is None
    before = restore_posterior(model)
    returned = model.partial_fit(
        data.X_new, y_new, sample_weight=np.full(11, 2.0), prior="previous"
    )
    assert returned is model
    assert_same_fields(model.prior_, before)
    assert model.total_weight_ == 22.0  # the new rows only
    assert len(model.loss_curve_) == 20  # max_iter epochs
    assert model.n_epochs_seen_ == model.n_iter_ == 40
    assert model.optimizer_["step"] == 20
    if "kl" not in options:
        # The history has the KL to the posterior before, divided by N.
        expected = kl_between(restore_posterior(model), before) / 22.0
        np.testing.assert_allclose(model.history_["kl"][-1], expected, rtol=1e-9)

    # A plain call keeps the prior, and its rows are added.
    model.partial_fit(data.X_new, y_new, n_epochs=1)
    assert_same_fields(model.prior_, before)
    assert model.total_weight_ == 33.0
    assert len(model.loss_curve_) == 1 and model.n_epochs_seen_ == 41
    if "kl" not in options:
        expected = kl_between(restore_posterior(model), before) / 33.0
        np.testing.assert_allclose(model.history_["kl"][-1], expected, rtol=1e-9)

    # Another call with prior='previous' takes the present posterior.
    before = restore_posterior(model)
    for fit in (
        lambda: model.partial_fit(data.X, y, prior="previous"),
        lambda: model.partial_fit(data.X_new, y_new),
    ):
        fit()
        assert_same_fields(model.prior_, before)
    assert model.total_weight_ == 41 + 11


@BOTH
@pytest.mark.parametrize("warm_start", [False, True])
def test_fit_removes_the_previous_posterior(data, small, kind, warm_start):
    y = target(kind, data)
    model = kind(warm_start=warm_start, **small).fit(data.X, y)
    model.partial_fit(data.X_new, new_target(kind, data), prior="previous")
    assert model.prior_ is not None
    model.fit(data.X, y)
    assert model.prior_ is None and model.total_weight_ == 41
    model.partial_fit(data.X, y)
    assert model.prior_ is None and model.total_weight_ == 82
    if not warm_start:  # as a new estimator
        fresh = kind(**small).fit(data.X, y).partial_fit(data.X, y)
        same_arrays(model.parameters_, fresh.parameters_)


@BOTH
def test_prior_follows_the_dtype(data, small, kind):
    """The dtype may change between calls."""
    y, y_new = target(kind, data), new_target(kind, data)
    model = kind(**small | {"dtype": "float32"}).fit(data.X, y)
    for dtype in ("float32", "float64", "float32"):
        model.set_params(dtype=dtype)
        for X_new in (data.X_new.astype(np.float32), data.X_new):
            model.partial_fit(X_new, y_new, prior="previous").partial_fit(X_new, y_new)
            values = [v for fields in model.prior_ for v in fields.values()]
            assert {value.dtype for value in values} == {np.dtype(dtype)}
            assert np.isfinite(model.loss_curve_).all()


@BOTH
def test_network_that_fails_is_removed_with_its_prior(data, small, kind, monkeypatch):
    """The training of the other networks is unaffected."""
    y, y_new = target(kind, data), new_target(kind, data)
    model = kind(n_estimators=3, **small).fit(data.X, y)
    whole = copy.deepcopy(model).partial_fit(data.X_new, y_new, prior="previous")
    plain = TrainingHistory.add

    def add(self, nll, kl):
        plain(self, nll * torch.tensor([1.0, np.nan, 1.0]), kl)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingHistory, "add", add)
        with pytest.warns(ConvergenceWarning, match="1 of 3 networks were left out"):
            model.partial_fit(data.X_new, y_new, prior="previous")
    for fields, all_three in zip(model.prior_, whole.prior_, strict=True):
        for name, value in fields.items():
            np.testing.assert_array_equal(value, all_three[name][[0, 2]])
    model.set_params(n_estimators=2).partial_fit(data.X_new, y_new)
    whole.partial_fit(data.X_new, y_new)
    np.testing.assert_allclose(
        model.history_["loss"], whole.history_["loss"][:, [0, 2]], rtol=1e-10
    )


@BOTH
def test_first_call_with_previous_prior_is_a_full_fit(data, small, kind):
    """Not a single epoch, as in other first calls of `partial_fit`."""
    y = target(kind, data)
    model = kind(**small).partial_fit(data.X, y, prior="previous")
    assert model.prior_ is None
    same_arrays(model.parameters_, kind(**small).fit(data.X, y).parameters_)
    assert model.n_epochs_seen_ == model.n_iter_ == 20


@BOTH
def test_length_scale_is_computed_from_the_previous_posterior(data, small, kind):
    """lambda = l^2 / (2 N tau), l^2 the mean precision of a layer's weights."""
    model = kind(**small).fit(data.X, target(kind, data))
    precision = [np.mean(fields["std"] ** -2.0) for fields in restore_posterior(model)]
    model.partial_fit(data.X_new, new_target(kind, data), prior="previous")
    np.testing.assert_allclose(model.length_scale_, np.sqrt(precision))
    expected = np.array(precision) / (2 * 11 * model.tau_)
    np.testing.assert_allclose(model.weight_decay_, expected)


@BOTH
def test_first_call_that_collapses_warns_once(small, kind, seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(30, 4))
    y = X[:, 0] > 0 if kind is BBBClassifier else X[:, 0]
    model = kind(**small | {"length_scale": 100.0, "max_iter": 200})
    with pytest.warns(ConvergenceWarning, match="explains") as warned:
        model.partial_fit(X, y, prior="previous")
    # A second warning of the same problem could give contradicting advice.
    assert [str(warning.message).split()[:3] for warning in warned] == [
        ["the", "network", "explains"]
    ]


@pytest.mark.parametrize(
    ("before", "changes", "prior", "message"),
    [
        *[
            (
                {"dropout": dropout},
                {},
                "previous",
                "prior='previous' requires a normal posterior, but dropout makes it "
                r"spike-and-slab; got dropout=.*Set dropout=0",
            )
            for dropout in (0.2, [0.0, 0.1, 0.0])
        ],
        *[
            ({}, {}, prior, "`prior` must be one of 'previous'; got")
            for prior in ("gaussian", True, 3)
        ],
        ({}, {"early_stopping": True}, "previous", "hold out other rows"),
        (
            {},
            {"hidden_layer_sizes": (8, 7)},
            "previous",
            "must keep the network; the fitted network has sizes",
        ),
    ],
)
@BOTH
def test_refused_calls_change_nothing(
    data, small, kind, before, changes, prior, message
):
    y = target(kind, data)
    model = kind(**small | before).fit(data.X, y)
    parameters = copy.deepcopy(model.parameters_)
    with pytest.raises(ValueError, match=message):
        model.set_params(**changes).partial_fit(data.X, y, prior=prior)
    same_arrays(model.parameters_, parameters)
    assert model.total_weight_ == 41


def _curve(seed, n_rows=80):
    random = np.random.default_rng([seed, 11])
    X = random.uniform(-1, 1, (n_rows, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * random.standard_normal(n_rows)


def test_uncertainty_falls_with_every_call(seed):
    """The same rows again, each time under the previous posterior.

    `test_conjugate.py` has the exact posterior under the Gaussian prior.
    """
    X, y = _curve(seed)
    X_new, _ = _curve(seed + 1000)
    model = BBBRegressor(
        (10,), tau=100.0, max_iter=300, device="cpu", random_state=seed, **MIXTURE
    ).fit(X, y)
    sizes, stds = [], []
    for i in range(3):
        if i:
            model.partial_fit(X, y, prior="previous")
        sizes.append(posterior_width(model))
        stds.append(model.predict_uncertainty(X_new, "epistemic").mean())
    # k passes over the rows would scale the stds by 1 / sqrt(k), 0.7 and 0.6, if
    # the data determined all weights.
    assert stds[1] < 0.85 * stds[0] and stds[2] < 0.95 * stds[1]
    assert sizes[0] > sizes[1] > sizes[2]


def posterior_width(model):
    """Mean standard deviation of the first layer's weights."""
    return np.logaddexp(0, model.parameters_["layers/0/rho"]).mean()


# ---- warning of posterior collapse

CALLBACKS = find_spec("sklearn.callback") is not None  # scikit-learn >= 1.9
MESSAGE = (
    r"the network explains -?\d+% of y .* a linear model \d+%. The KL .*outweighs the "
    r"data.* or the training was too short\. .*length_scale .*max_iter.*narrower "
    r"hidden layers.*kl_warm_up"
)
# Wide layers under a prior that does not follow their width, and few rows: the KL of
# some thousand weights outweighs 60 rows.
COLLAPSING = {
    "hidden_layer_sizes": (50, 50),
    "length_scale": 1.0,
    "kl_warm_up": 0.0,
    "max_iter": 200,
    "learning_rate_init": 0.1,
    "n_draws": 50,
    "device": "cpu",
}


def _surface(seed, n_rows, truth):
    """Six inputs; y is mostly linear, linear, or noise alone."""
    random = np.random.default_rng([seed, 9])
    X = random.uniform(-1, 1, (n_rows, 6))
    noise = random.standard_normal(n_rows)
    slope = X @ [1.0, 0.8, -0.6, 0.4, 0.0, 0.2]
    y = {
        "curved": slope + np.sin(3 * X[:, 3]) / 2 + X[:, 4] * X[:, 0] + 0.2 * noise,
        "linear": slope + 0.1 * noise,
        "noise": noise,
    }[truth]
    return X, y


def _blobs(seed, n_rows):
    """Three classes along a diagonal that hardly overlap."""
    random = np.random.default_rng([seed, 10])
    codes = np.arange(n_rows) % 3
    X = random.standard_normal((n_rows, 4)) + 2.0 * codes[:, None]
    return X, codes


@pytest.mark.filterwarnings("default:the network explains")
def test_collapse_of_a_regressor(seed):
    X, y = _surface(seed, 60, "curved")
    model = BBBRegressor(likelihood="gaussian", **COLLAPSING, random_state=seed)
    with pytest.warns(UserWarning, match=MESSAGE) as record:
        model.fit(X, y)
    assert model.score(X, y) < 0.3  # it collapsed; a linear model has 0.8
    [warning] = [w for w in record if "network explains" in str(w.message)]
    if CALLBACKS:  # scikit-learn's wrapper around fit is a separate frame
        assert warning.filename == __file__  # the call of fit
    # The advice of the message helps.
    model.set_params(length_scale="auto", hidden_layer_sizes=(10,), kl_warm_up=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # scikit-learn's, with some versions of SciPy.
        warnings.simplefilter("ignore", DeprecationWarning)
        model.set_params(learning_rate_init=0.01, max_iter=400).fit(X, y)
    assert model.score(X, y) > 0.75


@pytest.mark.filterwarnings("default:the network explains")
def test_collapse_of_a_classifier(seed):
    X, y = _blobs(seed, 90)
    model = BBBClassifier(
        **COLLAPSING | {"length_scale": "fan_in", "learning_rate_init": 0.03},
        random_state=seed,
    )
    with pytest.warns(UserWarning, match=MESSAGE):
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # scikit-learn's, with some versions of SciPy.
        warnings.simplefilter("ignore", DeprecationWarning)
        model.set_params(length_scale=1.0, kl_warm_up=0.5).fit(X, y)
    assert model.score(X, y) > 0.85


@pytest.mark.filterwarnings("error:the network explains")
@pytest.mark.parametrize(
    ("kind", "truth"),
    [
        # Each posterior with each truth, alternately as a regressor and a classifier.
        (kinds[(i + j) % 2], truth)
        for i, kinds in enumerate((BBB, VARIATIONAL))
        for j, truth in enumerate(["curved", "linear", "noise"])
    ],
)
def test_no_warning_without_collapse(seed, kind, truth):
    """For a good fit, for a linear y, and for a y that is noise."""
    X, y = _surface(seed, 128, truth)
    classifies = is_classifier(kind())
    y = y > np.median(y) if classifies else y
    model = kind((20,), max_iter=300, n_draws=50, device="cpu", random_state=seed)
    model.fit(X, y)
    if truth != "noise":
        assert model.score(X, y) > 0.8


@pytest.mark.filterwarnings("error:the network explains")
@pytest.mark.parametrize("n_rows", [2, 5, 12])
@pytest.mark.parametrize("kind", [*BBB, *VARIATIONAL])
def test_no_warning_with_few_rows(seed, kind, n_rows):
    """A linear model with as many parameters as rows explains everything."""
    X, y = _surface(seed, n_rows, "linear")
    y = y > np.median(y) if is_classifier(kind()) else y
    kind(max_iter=5, n_draws=5, device="cpu", random_state=seed).fit(X, y)


@pytest.mark.filterwarnings("default:the network explains")
def test_warning_of_collapse_takes_weights_targets_and_sparse_rows(seed):
    """The prior is so narrow that the network is constant to a few per cent."""
    X, y = _surface(seed, 100, "linear")
    flat = {
        "hidden_layer_sizes": (5,),
        "length_scale": 100.0,
        "max_iter": 150,
        "learning_rate_init": 0.05,
        "n_draws": 50,
        "device": "cpu",
        "random_state": seed,
    }
    noise = np.random.default_rng([seed, 12]).standard_normal(100)
    half_noise = np.r_[y[:50], noise[50:]]
    for rows, warned in ((np.arange(100) < 50, True), (np.arange(100) >= 50, False)):
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            BBBRegressor(**flat).fit(X, half_noise, sample_weight=rows)
        assert any("network explains" in str(w.message) for w in record) == warned
    with pytest.warns(UserWarning, match=MESSAGE):
        BBBRegressor(**flat).fit(X, np.stack([y, 100 * y, -y], 1))
    with pytest.warns(UserWarning, match=MESSAGE):
        BBBRegressor(**flat).fit(sparse.csr_array(X), y)
    with pytest.warns(UserWarning, match=MESSAGE):
        BBBClassifier(**flat).fit(sparse.csr_array(X), y > 0)
