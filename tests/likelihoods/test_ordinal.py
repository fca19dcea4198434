"""Cumulative logits against plain loops and the logistic model, in float64."""

import pickle
import tempfile
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow
import pytest
import sklearn
import torch
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn import (
    Abstainer,
    BayesianStackingClassifier,
    BBBClassifier,
    MCDropoutClassifier,
    VariationalDropoutClassifier,
    load,
    save,
)
from skbayesnn._data import sources
from skbayesnn._likelihoods import Ordinal
from skbayesnn.model_selection import BatchedGridSearchCV

DRAWS, MEMBERS, ROWS, CLASSES = 7, 3, 5, 4
TAU = torch.tensor([[1.0], [0.2], [6.0]], dtype=torch.float64)


@pytest.fixture
def problem(seed):
    """A likelihood, its parameters, outputs of draws, and labels of each member."""
    random = np.random.default_rng(seed)
    likelihood = Ordinal(CLASSES)
    shares = torch.as_tensor(random.dirichlet(np.ones(CLASSES), size=MEMBERS))
    params = likelihood.init(TAU, shares)
    outputs = torch.as_tensor(3 * random.normal(size=(DRAWS, MEMBERS, ROWS, 1)))
    labels = torch.as_tensor(random.integers(CLASSES, size=(MEMBERS, ROWS)))
    return likelihood, params, outputs, labels


def _cut_points(params):
    first, *log_gaps = params["cuts"].numpy().T
    return np.cumsum([first, *np.exp(log_gaps)], axis=0).T


def test_cumulative_probabilities_are_sigmoids(problem):
    likelihood, params, outputs, _ = problem
    (probability,) = likelihood.components(params, outputs)
    assert probability.shape == (DRAWS, MEMBERS, ROWS, CLASSES)
    np.testing.assert_allclose(probability.sum(-1), 1, rtol=1e-14)
    cut_points = _cut_points(params)[:, None]
    expected = expit(cut_points - outputs.numpy())
    np.testing.assert_allclose(
        probability.cumsum(-1)[..., :-1], expected, rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("shared", [True, False], ids=["shared y", "y per member"])
def test_log_density_of_the_label(problem, shared):
    likelihood, params, outputs, labels = problem
    labels = labels[:1] if shared else labels
    (probability,) = likelihood.components(params, outputs)
    density = likelihood.log_density(params, outputs, labels)
    assert density.shape == (DRAWS, MEMBERS, ROWS)
    labels_of_draws = labels.expand(DRAWS, MEMBERS, ROWS)
    for index in np.ndindex(*density.shape):
        expected = probability[index][labels_of_draws[index]].log()
        torch.testing.assert_close(density[index], expected, rtol=1e-12, atol=1e-14)
    nll = likelihood.nll(params, outputs, labels)
    torch.testing.assert_close(nll, -TAU * density)


def test_start_values_give_the_class_shares(seed):
    """At f = 0; a class without rows has a small share at any scale of the weights."""
    random = np.random.default_rng(seed)
    y = np.concatenate([random.integers(2, size=200), np.full(100, 3)])
    weights = random.uniform(0.5, 2, size=300)
    likelihood = Ordinal(CLASSES)
    statistics = likelihood.statistics(y, weights)
    np.testing.assert_allclose(likelihood.statistics(y, 9 * weights), statistics)
    shares = np.bincount(y, weights) / weights.sum()
    np.testing.assert_allclose(statistics, shares, atol=0.01)
    params = likelihood.init(TAU, torch.as_tensor(statistics).expand(MEMBERS, -1))
    zero = torch.zeros(1, MEMBERS, 1, 1, dtype=torch.float64)
    (probability,) = likelihood.components(params, zero)
    np.testing.assert_allclose(probability[0, 1, 0], statistics, rtol=1e-12)
    assert statistics[2] > 0
    (even,) = likelihood.components(likelihood.init(TAU), zero)
    np.testing.assert_allclose(even, 1 / CLASSES)


def test_no_cancellation_at_large_outputs():
    likelihood = Ordinal(3)
    params = likelihood.init(torch.ones(1, 1))
    # Cut points are -log 2 and log 2: p ~ e^-|f| (2 - 1/2).
    for f in (50.0, -50.0):
        outputs = torch.full((1, 1, 1, 1), f)
        density = likelihood.log_density(params, outputs, torch.tensor([[1]]))
        assert density.item() == pytest.approx(-50 + np.log(1.5), rel=1e-5)
    outputs = torch.tensor([[[[1e4], [-1e4]]]])
    density = likelihood.log_density(params, outputs, torch.tensor([[1, 1]]))
    assert density.isfinite().all()


# ---- in estimators

SMALL = {
    "likelihood": "ordinal",
    "hidden_layer_sizes": (8,),
    "max_iter": 15,
    "n_draws": 11,
    "dtype": "float64",
    "random_state": 0,
}


def _ordered(seed, n):
    """A cumulative logit model with five classes: X (n, 3), classes (n,)."""
    random = np.random.default_rng([seed, n])
    X = random.normal(size=(n, 3))
    latent = 3 * X[:, 0] + X[:, 1] + random.logistic(size=n)
    return X, np.searchsorted([-3.0, -1.0, 1.0, 3.0], latent)


@pytest.fixture
def rows(seed):
    return _ordered(seed, 83)


@pytest.mark.parametrize(
    "kind", [MCDropoutClassifier, BBBClassifier, VariationalDropoutClassifier]
)
def test_every_classifier_accepts_it(kind, rows):
    X, y = rows
    model = kind(**SMALL, class_weight="balanced", n_estimators=2, early_stopping=True)
    model.fit(X, y)
    probability = model.predict_proba(X)
    assert probability.shape == (len(X), 5)
    np.testing.assert_allclose(probability.sum(1), 1)
    assert set(model.predict(X)) <= set(range(5))
    for values in model.predict_uncertainty(X, "all").values():
        assert np.isfinite(values).all()
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    assert model.sample_y(X, 3).shape == (len(X), 3)
    assert model.network_["likelihood"] == {"name": "ordinal", "n_classes": 5}
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), probability)


def test_a_stream_may_begin_without_some_classes(rows):
    X, y = rows
    model = MCDropoutClassifier(**SMALL)
    model.partial_fit(X[y < 3], y[y < 3], classes=range(5))
    first = model.predict_proba(X)
    assert (first > 0).all()
    model.partial_fit(X, y)
    assert (model.predict_proba(X) != first).any()


def test_searches_and_calibration(rows):
    X, y = rows
    grid = {"length_scale": [0.01, 0.1], "likelihood": ["ordinal", "categorical"]}
    search = BatchedGridSearchCV(MCDropoutClassifier(**SMALL), grid, cv=2).fit(X, y)
    model = clone(search.estimator).set_params(**search.best_params_).fit(X, y)
    np.testing.assert_allclose(
        search.predict_proba(X), model.predict_proba(X), rtol=1e-9
    )
    calibrated = CalibratedClassifierCV(MCDropoutClassifier(**SMALL), cv=2).fit(X, y)
    assert calibrated.predict_proba(X).shape == (len(X), 5)


def test_order_improves_small_samples(seed):
    X, y = _ordered(seed, 60)
    X_new, y_new = _ordered(seed, 1000)
    loss = {}
    for likelihood in ("ordinal", "categorical"):
        model = MCDropoutClassifier(likelihood=likelihood, random_state=seed)
        model.set_params(hidden_layer_sizes=(20,), n_draws=20).fit(X, y)
        loss[likelihood] = log_loss(y_new, model.predict_proba(X_new), labels=range(5))
    assert loss["ordinal"] < loss["categorical"]


# ---- order of categories

NAMES = np.array(["poor", "fair", "typical", "good", "excellent"])


def _as_series(codes):
    """A pandas series whose index is not a range."""
    values = pd.Categorical.from_codes(codes, NAMES, ordered=True)
    return pd.Series(values, index=np.arange(len(codes))[::-1] + 7)


def _as_polars(codes):
    return pl.Series(NAMES[codes], dtype=pl.Enum(NAMES.tolist()))


def _as_arrow(codes):
    """A dictionary of pyarrow in a pandas series."""
    pa = pytest.importorskip("pyarrow")
    values = pa.DictionaryArray.from_arrays(codes, NAMES.tolist(), ordered=True)
    return pd.Series(pd.arrays.ArrowExtensionArray(values))


def _with_order():
    """Estimators and searches that get y as given, or pass it unchanged."""
    small = SMALL | {"max_iter": 2, "n_draws": 3}
    network = MCDropoutClassifier(**small)
    few = {"dropout": [0.05, 0.2]}
    return [
        MCDropoutClassifier(**small, early_stopping=True),
        BBBClassifier(**small),
        VariationalDropoutClassifier(**small),
        make_pipeline(StandardScaler(), network),
        BatchedGridSearchCV(network, few, cv=2),
        GridSearchCV(network, few, cv=2),
        CalibratedClassifierCV(network, cv=2),
        Abstainer(network, target_error=0.9, cv=2),
        BayesianStackingClassifier([("net", network)], cv=2, random_state=0),
    ]


@pytest.mark.parametrize("as_categories", [_as_series, _as_polars, _as_arrow])
def test_names_of_categories_do_not_matter(as_categories, rows):
    """Codes and categories give the same fit in any alphabetical order."""
    X, codes = rows
    models = _with_order()
    wrong = []
    for model in models if as_categories is _as_series else (models[0], models[-1]):
        expected = clone(model).fit(X, codes).predict_proba(X)
        model.fit(X, as_categories(codes))
        assert model.classes_.tolist() == sorted(NAMES)
        column = np.searchsorted(model.classes_, NAMES)
        if not np.allclose(model.predict_proba(X)[:, column], expected, atol=1e-9):
            wrong.append(type(model).__name__)
    assert not wrong


def test_predictions_are_in_the_order_of_sorted_labels(rows):
    """Also after pickling and saving."""
    X, codes = rows
    by_code = MCDropoutClassifier(**SMALL).fit(X, codes)
    model = MCDropoutClassifier(**SMALL).fit(X, _as_series(codes))
    for restored in (model, pickle.loads(pickle.dumps(model)), _through_file(model)):
        column = np.searchsorted(restored.classes_, NAMES)
        y = NAMES[codes]
        np.testing.assert_array_equal(restored.predict(X), NAMES[by_code.predict(X)])
        np.testing.assert_allclose(
            restored.log_predictive_density(X, y),
            by_code.log_predictive_density(X, codes),
        )
        np.testing.assert_allclose(
            restored.sample_f(X, 2)[:, column], by_code.sample_f(X, 2), atol=1e-12
        )
        for kind in ("entropy", "mutual_information", "overlap"):
            np.testing.assert_allclose(
                restored.predict_uncertainty(X, kind),
                by_code.predict_uncertainty(X, kind),
                atol=1e-12,
            )


def _through_file(model):
    with tempfile.TemporaryDirectory() as folder:
        save(model, f"{folder}/model")
        return load(f"{folder}/model")


def test_a_stream_keeps_the_order(rows):
    """Rows without an order use the model's order; another order is refused."""
    X, codes = rows
    y = _as_series(codes)
    model = MCDropoutClassifier(**SMALL).partial_fit(X, y, classes=NAMES)
    by_code = MCDropoutClassifier(**SMALL).partial_fit(X, codes, classes=range(5))
    for again in (y, NAMES[codes]):
        column = np.searchsorted(model.classes_, NAMES)
        np.testing.assert_allclose(
            model.partial_fit(X, again).predict_proba(X)[:, column],
            by_code.partial_fit(X, codes).predict_proba(X),
            atol=1e-12,
        )
    reversed_order = y.cat.reorder_categories(NAMES[::-1].tolist(), ordered=True)
    with pytest.raises(ValueError, match=r"'poor' < 'fair' < .* y has 'excellent' < "):
        model.partial_fit(X, reversed_order)


def _named(kind, X, codes, folder):
    """X and y of a kind of table, or source of rows, with categories as y."""
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=_as_series(codes).array)
    path = folder / "rows.parquet"
    frame.to_parquet(path, index=False, row_group_size=30)
    if kind == "dask":
        dask = pytest.importorskip("dask.dataframe")
        return dask.from_pandas(frame, npartitions=2, sort=False), "y"
    if kind == "values":
        source = np.memmap(folder / "X", np.float64, "w+", shape=X.shape)
        source[:] = X
        return source, _as_series(codes)
    return {
        "pandas": frame,
        "pyarrow": pyarrow.table(frame),
        "parquet": path,
        "lazy": pl.DataFrame(X, list("abc")).with_columns(y=_as_polars(codes)).lazy(),
    }[kind], "y"


@pytest.mark.filterwarnings("error:likelihood='ordinal' takes")
@pytest.mark.parametrize(
    "kind", ["pandas", "pyarrow", "parquet", "lazy", "dask", "values"]
)
def test_order_of_a_named_column_and_of_sources(kind, rows, tmp_path, monkeypatch):
    X, codes = rows
    params = SMALL | {"max_iter": 1}
    expected = MCDropoutClassifier(**params).fit(X, _as_series(codes))
    model = MCDropoutClassifier(**params).fit(*_named(kind, X, codes, tmp_path))
    ranks = expected.network_["likelihood"]["ranks"]
    assert model.network_["likelihood"]["ranks"] == ranks
    monkeypatch.setattr(sources.RowSource, "is_small", False)
    streamed = MCDropoutClassifier(**params).fit(*_named(kind, X, codes, tmp_path))
    assert streamed.network_["likelihood"]["ranks"] == ranks


@pytest.mark.filterwarnings("error:likelihood='ordinal' takes")
def test_order_in_a_stack_on_many_rows(tmp_path):
    X, codes = _ordered(1, 200)
    network = MCDropoutClassifier(**SMALL | {"max_iter": 2, "n_draws": 3})
    stack = BayesianStackingClassifier(
        [("net", network)], cv=2, n_refits=1, n_selection_rows=100, random_state=0
    )
    expected = network.fit(X, _as_series(codes)).network_["likelihood"]["ranks"]
    for kind in ("pandas", "parquet"):
        stack.fit(*_named(kind, X, codes, tmp_path))
        [fitted] = stack.estimators_
        assert fitted.network_["likelihood"]["ranks"] == expected
        assert fitted.total_weight_ == len(X)
    # Statistics of y need rows of y by fold.
    frame = pd.DataFrame(X, columns=list("abc")).assign(d=np.arange(200) % 40)
    frame["d"] = frame["d"].map("level {}".format)
    stack.set_params(n_selection_rows=200).fit(pl.from_pandas(frame), _as_polars(codes))
    assert stack.estimators_[0].network_["likelihood"]["ranks"] == expected


def test_parts_with_different_orders(rows, tmp_path):
    """They are refused if the likelihood needs the order."""
    X, codes = rows
    frame = pd.DataFrame(X, columns=list("abc"))
    for i, names in enumerate((NAMES, NAMES[::-1])):
        y = pd.Categorical(NAMES[codes], names, ordered=True)
        frame.assign(y=y).to_parquet(tmp_path / f"{i}.parquet", index=False)
    small = SMALL | {"max_iter": 1}
    for megabytes in (1024, 0.01):
        with sklearn.config_context(working_memory=megabytes):
            with pytest.raises(ValueError, match=r"'exc.* < .* in one part and 'poor"):
                MCDropoutClassifier(**small).fit(tmp_path, y="y")
            nominal = small | {"likelihood": "categorical"}
            MCDropoutClassifier(**nominal).fit(tmp_path, y="y")


def test_strings_without_an_order_warn(rows):
    X, codes = rows
    quiet = [
        NAMES[codes],  # nominal
        codes,
        np.array(list("abcde"))[codes],
        np.array(["1 low", "2", "3", "4", "5 top"])[codes],
        _as_series(codes),
        NAMES[codes // 3],
    ]
    for y in quiet:
        kind = "categorical" if y is quiet[0] else "ordinal"
        model = MCDropoutClassifier(**SMALL | {"likelihood": kind, "max_iter": 1})
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="likelihood='ordinal' takes")
            model.fit(X, y)
    message = "alphabetical order: 'excellent' < 'fair' < 'good'"
    for y in (NAMES[codes], pd.Series(NAMES[codes], dtype="category")):
        with pytest.warns(UserWarning, match=message):
            model.fit(X, y)
