"""`skbayesnn.networks` through the estimators: shapes, messages, searches, wrappers."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skbayesnn import (
    BayesianStackingClassifier,
    BBBClassifier,
    CalibratedUncertaintyRegressor,
    MCDropoutClassifier,
    MCDropoutRegressor,
    VariationalDropoutClassifier,
    predict_interval,
)
from skbayesnn.model_selection import BatchedGridSearchCV
from skbayesnn.networks import MLP, ConvNet, NetworkDescription, RecurrentNet
from tests.helpers.seed import SEED

ROWS = 37
SMALL = {
    "max_iter": 4,
    "n_draws": 6,
    "random_state": SEED,
    "dtype": "float64",
    "device": "cpu",
}
IMAGES = ConvNet((1, 4, 6), channels=(3, 2), pool=(2, 1), hidden_layer_sizes=(5,))
COLOURS = ConvNet((2, 4, 3), channels=(3,), hidden_layer_sizes=())
SEQUENCES = RecurrentNet(n_steps=8, n_inputs=3, hidden_size=4)
NETWORKS = {"images": IMAGES, "colours": COLOURS, "sequences": SEQUENCES}

pytestmark = pytest.mark.filterwarnings("ignore:predictions differ")


@pytest.fixture(params=NETWORKS)
def network(request):
    return clone(NETWORKS[request.param])


@pytest.fixture
def table(seed):
    """X (37, 24), y (37,), labels (37,)."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(ROWS, 24)) * 3 + 2
    y = X[:, :8].sum(1) + 0.1 * random.normal(size=ROWS)
    return X, y, np.where(y > np.median(y), "high", "low")


# ---- shapes


def test_shaped_rows_give_the_predictions_of_flat_rows(network, table):
    """Bit by bit. An image with one channel may omit the channel axis."""
    X, y, _ = table
    model = MCDropoutRegressor(network=network, **SMALL).fit(X, y)
    for shape in network.row_shapes:
        rows = X.reshape(ROWS, *shape)
        again = clone(model).fit(rows, y)
        assert again.n_features_in_ == 24
        np.testing.assert_array_equal(again.predict(rows), model.predict(X))
        np.testing.assert_array_equal(
            model.predict_interval(rows[:5]), again.predict_interval(X[:5])
        )
    assert len(network.row_shapes) == (2 if network == IMAGES else 1)


def test_lists_and_validation_rows_can_be_shaped(table):
    X, y, _ = table
    rows = X.reshape(ROWS, 8, 3)
    model = MCDropoutRegressor(network=SEQUENCES, early_stopping=True, **SMALL)
    model.fit(rows[:30].tolist(), y[:30], X_val=rows[30:], y_val=y[30:])
    flat = clone(model).fit(X[:30], y[:30], X_val=X[30:], y_val=y[30:])
    np.testing.assert_array_equal(model.predict(rows), flat.predict(X))


@pytest.mark.parametrize(
    ("network", "shape", "message"),
    [
        (IMAGES, (4, 6, 1), r"\(n_features,\) or \(1, 4, 6\) or \(4, 6\).*\(4, 6, 1\)"),
        (COLOURS, (4, 6), r"\(n_features,\) or \(2, 4, 3\) for ConvNet.*got \(4, 6\)"),
        (SEQUENCES, (3, 8), r"\(n_features,\) or \(8, 3\) for Recur.*got \(3, 8\)"),
        (IMAGES, (23,), r"image_shape=\(1, 4, 6\), which is 24 val.*n_features=23"),
        (SEQUENCES, (12,), r"n_steps=8, n_inputs=3, which is 24 .*n_features=12"),
        (MLP(), (4, 6), r"\(n_features,\) for MLP.*got \(4, 6\)"),
        (None, (4, 6), "dim 3"),
    ],
)
def test_rows_of_a_wrong_shape_are_refused(network, shape, message, table):
    X = np.zeros((9, *shape))
    with pytest.raises(ValueError, match=message):
        MCDropoutRegressor(network=network, **SMALL).fit(X, np.arange(9.0))


def test_predict_refuses_rows_of_a_wrong_shape(table):
    X, y, _ = table
    model = MCDropoutRegressor(network=SEQUENCES, **SMALL).fit(X, y)
    with pytest.raises(ValueError, match=r"\(8, 3\).*got \(3, 8\)"):
        model.predict(X.reshape(ROWS, 3, 8))
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :9])


@pytest.mark.parametrize(
    ("network", "error", "message"),
    [
        ("mlp", TypeError, "`network` must be None or an object of skbayesnn.networks"),
        (ConvNet, TypeError, "`network` must be None or an object"),
        (ConvNet((24,)), ValueError, r"`image_shape` must be \(channels, height, wid"),
        (ConvNet((1, 4, 0)), ValueError, "`image_shape` must be finite and >= 1"),
        (ConvNet("146"), TypeError, "`image_shape` must be a sequence of integers"),
        (ConvNet((1, 4, 6), channels=()), ValueError, "`channels` must have one"),
        (ConvNet((1, 4, 6), channels=8), TypeError, "`channels` must be a sequence"),
        (ConvNet((1, 4, 6), pool=5), ValueError, "`pool` of convolution 1 .* 4 x 6"),
        (ConvNet((1, 4, 6), pool=3), ValueError, "`pool` of convolution 2 .* 1 x 2"),
        (ConvNet((1, 4, 6), kernel_size=(3,)), ValueError, "one for each conv.*2 here"),
        (ConvNet((1, 4, 6), mask_per="pixel"), ValueError, "'unit', 'channel'; got"),
        (RecurrentNet(8, 3, cell="elman"), ValueError, "`cell` must be one of 'rnn'"),
        (RecurrentNet(8, 3, hidden_size=0), ValueError, "`hidden_size` must be finite"),
        (RecurrentNet(8.0, 3), TypeError, "`n_steps` must be an integer; got 8.0"),
    ],
)
def test_bad_networks_are_refused(network, error, message, table):
    X, y, _ = table
    with pytest.raises(error, match=message):
        MCDropoutRegressor(network=network, **SMALL).fit(X, y)


def test_number_of_rates_must_match_the_layers_of_the_network(table):
    X, y, _ = table
    with pytest.raises(ValueError, match=r"4 here.*convolutions.*got 2"):
        MCDropoutRegressor(network=IMAGES, dropout=[0.1, 0.2], **SMALL).fit(X, y)
    model = MCDropoutRegressor(network=IMAGES, dropout=[0.0, 0.1, 0.2, 0.3], **SMALL)
    np.testing.assert_allclose(model.fit(X, y).dropout_, [0.0, 0.1, 0.2, 0.3])


# ---- scaling


def test_channel_or_input_has_one_scale(table):
    """One scale per channel, or per input of all steps; constant pixels do not warn."""
    X, y, _ = table
    X[:, 5] = 1.0
    weights = np.linspace(0.5, 2, ROWS)
    for network, shape, axes in [
        (COLOURS, (2, 4, 3), (0, 2, 3)),
        (SEQUENCES, (8, 3), (0, 1)),
    ]:
        model = MCDropoutRegressor(network=network, **SMALL).fit(X, y, weights)
        rows = X.reshape(ROWS, *shape)
        each = np.broadcast_to(weights.reshape(-1, *(1,) * len(shape)), rows.shape)
        mean = np.average(rows, axis=axes, weights=each, keepdims=True)
        square = np.average((rows - mean) ** 2, axis=axes, weights=each, keepdims=True)
        for actual, expected in [
            (model.x_mean_, mean),
            (model.x_scale_, np.sqrt(square)),
        ]:
            spread = np.broadcast_to(expected, (1, *shape)).ravel()
            np.testing.assert_allclose(actual, spread)


def test_constant_channel_has_scale_one(table):
    X, y, _ = table
    X[:, :12] = 0.1
    model = MCDropoutRegressor(network=COLOURS, **SMALL).fit(X, y)
    assert (model.x_scale_[:12] == 1).all() and (model.x_scale_[12:] != 1).all()


def test_length_scale_of_the_recurrent_state(table):
    """It is 1, not the root of the number of inputs, unless the user sets a value."""
    X, y, _ = table
    for setting in ("auto", "fan_in"):
        model = MCDropoutRegressor(
            network=SEQUENCES, length_scale=setting, tau=1.0, **SMALL
        )
        actual = model.fit(X, y).length_scale_
        np.testing.assert_allclose(actual, [np.sqrt(3), 1.0, 2.0])
    model = MCDropoutRegressor(network=SEQUENCES, length_scale=0.7, **SMALL)
    assert model.fit(X, y).length_scale_ == 0.7


# ---- parameters, searches, wrappers


def test_mlp_equals_hidden_layer_sizes(table):
    X, y, _ = table
    plain = MCDropoutRegressor((7, 5), **SMALL).fit(X, y)
    described = MCDropoutRegressor(network=MLP((7, 5)), **SMALL).fit(X, y)
    np.testing.assert_array_equal(plain.predict(X), described.predict(X))


def test_parameters_can_be_set_and_compared():
    model = MCDropoutClassifier(network=ConvNet((1, 4, 6)))
    model.set_params(network__channels=(2,), network__pool=1)
    assert model.network == ConvNet((1, 4, 6), channels=(2,), pool=1)
    assert clone(model).network is not model.network
    assert clone(model).network == model.network != ConvNet((1, 4, 6))
    assert pickle.loads(pickle.dumps(model.network)) == model.network
    assert "channels=(2,)" in repr(model)
    assert ConvNet(np.array([1, 4, 6])) == ConvNet(np.array([1, 4, 6]))
    assert ConvNet(np.array([1, 4, 6])) != ConvNet(np.array([2, 4, 6]))


@pytest.mark.parametrize(
    "grid",
    [
        {"network__hidden_size": [3, 4], "tau": [0.5, 2.0]},
        {"network": [None, SEQUENCES, IMAGES]},
    ],
    ids=["its parameters", "networks"],
)
def test_batched_search_equals_plain_search(grid, table):
    """Folds of unequal sizes, flat rows."""
    X, y, _ = table
    model = MCDropoutRegressor(network=SEQUENCES, **SMALL)
    batched = BatchedGridSearchCV(model, grid, cv=3).fit(X, y)
    plain = GridSearchCV(model, grid, cv=3).fit(X, y)
    for name in ("split0_test_score", "split2_test_score"):
        np.testing.assert_allclose(
            batched.cv_results_[name], plain.cv_results_[name], rtol=1e-6
        )


def test_meta_estimators_accept_shaped_rows(table):
    X, y, _ = table
    rows = X.reshape(ROWS, 8, 3)
    model = MCDropoutRegressor(network=SEQUENCES, **SMALL)
    search = BatchedGridSearchCV(model, {"tau": [0.5, 2.0]}, cv=2).fit(rows, y)
    assert search.predict(rows).shape == (ROWS,)
    calibrated = CalibratedUncertaintyRegressor(model, cv=2).fit(rows, y)
    assert calibrated.predict_interval(rows).shape == (ROWS, 2)
    piped = make_pipeline(FunctionTransformer(lambda x: x / 2), model).fit(rows, y)
    assert predict_interval(piped, rows).shape == (ROWS, 2)
    assert cross_val_predict(model, rows, y, cv=2).shape == (ROWS,)


def test_stack_of_networks(table):
    """One stack of an image network, a sequence network and a perceptron."""
    X, _, labels = table
    model = MCDropoutClassifier(**SMALL)
    pool = [("all", model, {"network": [None, IMAGES, SEQUENCES]})]
    stack = BayesianStackingClassifier(pool, cv=2, n_refits=1, random_state=SEED)
    assert stack.fit(X, labels).predict_proba(X).shape == (ROWS, 2)
    assert len(stack.weights_) == 3


@pytest.mark.parametrize("kind", [BBBClassifier, VariationalDropoutClassifier])
def test_prune_refuses_other_networks_than_perceptrons(kind, table):
    X, _, labels = table
    model = kind(network=IMAGES, **SMALL).fit(X, labels)
    with pytest.raises(ValueError, match=r"perceptron.*got ConvNet"):
        model.prune()


def test_every_network_is_a_network_description():
    assert all(isinstance(net, NetworkDescription) for net in NETWORKS.values())


def test_too_large_sizes_are_refused():
    """The error names the parameter; it is not a bare MemoryError."""
    X = np.random.default_rng(0).normal(size=(9, 16))
    image = (1, 4, 4)
    for network, message in (
        (ConvNet(image, channels=(10**9,)), "`channels` must be at most 1000000 per"),
        (ConvNet(image, channels=(10**5, 10**5)), "`network` and .*ConvNet"),
        (ConvNet(image, kernel_size=10**6), "`network` and .*kernel_size=1000000"),
        (RecurrentNet(4, 4, hidden_size=10**9), "`hidden_size` must be at most"),
        (RecurrentNet(4, 4, hidden_size=10**5), "`network` and .*RecurrentNet"),
    ):
        with pytest.raises(ValueError, match=message):
            MCDropoutRegressor(network=network).fit(X, X[:, 0])
