"""Estimators of other packages: stored by skops, loaded if they are trusted."""

import io
import json
import sys
import zipfile

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, RepeatedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import skbayesnn
from skbayesnn import ConformalRegressor, MCDropoutRegressor
from skbayesnn._persistence import file_format, foreign
from tests.persistence.models import sized

pytest.importorskip("skops.io")


class Halved(TransformerMixin, BaseEstimator):
    """A user's transformer, which counts how often it is constructed."""

    n_constructed = 0

    def __init__(self):
        type(self).n_constructed += 1

    def __setstate__(self, state):
        type(self).n_constructed += 1
        vars(self).update(state)

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X / 2


class Own(MCDropoutRegressor):
    """A user's subclass of an estimator of the package."""


def _columns():
    return make_column_transformer(
        (SimpleImputer(), [0, 1]), (StandardScaler(), [2, 3])
    )


MODELS = {
    "steps of a pipeline": lambda n: make_pipeline(_columns(), Halved(), n),
    "inside of a meta-estimator": lambda n: ConformalRegressor(
        make_pipeline(VarianceThreshold(), n), method="cv+", cv=2
    ),
    "a class of a user": lambda n: Own(**n.get_params()),
    "a splitter": lambda n: ConformalRegressor(
        n, method="cv+", cv=RepeatedKFold(n_splits=2, n_repeats=1, random_state=0)
    ),
    "a search around ours": lambda n: GridSearchCV(
        make_pipeline(StandardScaler(), n), {"mcdropoutregressor__tau": [1.0, 2.0]}
    ),
    "behind a transform of the target": lambda n: TransformedTargetRegressor(
        make_pipeline(SimpleImputer(), n), func=np.arcsinh, inverse_func=np.sinh
    ),
}


@pytest.fixture
def network(seed):
    return sized(MCDropoutRegressor, seed)


@pytest.fixture(params=MODELS)
def model(request, network, data):
    return MODELS[request.param](network).fit(data.X, data.y)


def test_loading_requires_trust_in_every_type(model, data):
    stored = skbayesnn.dumps(model)
    types = skbayesnn.get_untrusted_types(data=stored)
    again = skbayesnn.loads(stored, trusted=types)
    np.testing.assert_array_equal(again.predict(data.X_new), model.predict(data.X_new))
    assert types
    for i, name in enumerate(types):
        with pytest.raises(ValueError, match=f"not trusted: {name}. If you trust"):
            skbayesnn.loads(stored, trusted=types[:i] + types[i + 1 :])
    with pytest.raises(ValueError, match=", ".join(types)):
        skbayesnn.loads(stored)


def test_untrusted_types_are_not_constructed(network, data, tmp_path):
    path = tmp_path / "model"
    model = make_pipeline(Halved(), network).fit(data.X, data.y)
    skbayesnn.save(model, path)
    [name] = skbayesnn.get_untrusted_types(path)
    assert name == f"{Halved.__module__}.Halved"
    before = Halved.n_constructed
    with pytest.raises(ValueError, match=f"{path}.*{name}"):
        skbayesnn.load(path)
    assert Halved.n_constructed == before
    again = skbayesnn.load(path, trusted=[Halved])
    assert Halved.n_constructed > before
    np.testing.assert_array_equal(again.predict(data.X_new), model.predict(data.X_new))


@pytest.mark.parametrize(
    "around",
    [
        lambda n: TransformedTargetRegressor(n, transformer=StandardScaler()),
        lambda n: TransformedTargetRegressor(n, func=np.arcsinh, inverse_func=np.sinh),
        lambda n: TransformedTargetRegressor(n),
        lambda n: make_pipeline(FunctionTransformer(np.cbrt), n),
    ],
    ids=["scaler", "functions", "nothing", "step"],
)
def test_listed_types_of_scikit_learn_need_no_trust(around, network, data, monkeypatch):
    for name in ("skops", "skops.io"):
        monkeypatch.setitem(sys.modules, name, None)
    model = around(network).fit(data.X, data.y)
    stored = skbayesnn.dumps(model)
    assert skbayesnn.get_untrusted_types(data=stored) == []
    again = skbayesnn.loads(stored)
    np.testing.assert_array_equal(again.predict(data.X_new), model.predict(data.X_new))
    assert skbayesnn.dumps(again) == stored


def test_table_of_mixed_columns(data, network):
    """A skrub pipeline; its column names are a list, not an array."""
    skrub, pandas = pytest.importorskip("skrub"), pytest.importorskip("pandas")
    X = pandas.DataFrame({"size": data.X[:, 0], "kind": data.labels})
    inside = make_pipeline(skrub.TableVectorizer(n_jobs=1), network)
    model = TransformedTargetRegressor(inside).fit(X, data.y)
    stored = skbayesnn.dumps(model)
    types = skbayesnn.get_untrusted_types(data=stored)
    again = skbayesnn.loads(stored, trusted=types)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_without_skops(network, data, monkeypatch):
    model = make_pipeline(VarianceThreshold(), network).fit(data.X, data.y)
    stored = skbayesnn.dumps(model)
    for name in ("skops", "skops.io"):
        monkeypatch.setitem(sys.modules, name, None)
    calls = [
        lambda: skbayesnn.dumps(model),
        lambda: skbayesnn.loads(stored, trusted=[VarianceThreshold]),
        lambda: skbayesnn.get_untrusted_types(data=stored),
    ]
    for call in calls:
        with pytest.raises(ImportError, match=r'pip install "skbayesnn\[skops\]"'):
            call()


def test_trusted_is_a_list(network, data):
    stored = skbayesnn.dumps(network.fit(data.X, data.y))
    for wrong in (True, "sklearn.impute._base.SimpleImputer", 3):
        with pytest.raises(TypeError, match="`trusted` must be a list"):
            skbayesnn.loads(stored, trusted=wrong)


# ---- forged parts


def with_part(stored, change):
    """A file whose only skops part is changed, with its checksums."""
    document, members = file_format.unpacked(stored)
    [name] = [name for name in members if name.endswith(file_format.FOREIGN)]
    part = change(members.pop(name))
    digest = file_format.compute_digest(part)
    text = json.dumps(document).replace(name.removesuffix(file_format.FOREIGN), digest)
    return file_format.packed(
        json.loads(text), members | {digest + file_format.FOREIGN: part}
    )


def rewritten(part, change=lambda text: text, compression=zipfile.ZIP_STORED):
    """A skops archive with a changed schema."""
    with zipfile.ZipFile(io.BytesIO(part)) as old:
        members = {name: old.read(name) for name in old.namelist()}
    members["schema.json"] = change(members["schema.json"].decode()).encode()
    with zipfile.ZipFile(file := io.BytesIO(), "w", compression) as new:
        for name, member in members.items():
            new.writestr(name, member)
    return file.getvalue()


def test_forged_type_is_named_and_not_imported(network, data):
    """Also if it replaces a type that skops trusts by default."""
    stored = skbayesnn.dumps(
        make_pipeline(VarianceThreshold(), network).fit(data.X, data.y)
    )
    module, name = VarianceThreshold.__module__, VarianceThreshold.__name__
    forged = with_part(
        stored,
        lambda part: rewritten(
            part,
            lambda text: text.replace(module, "antigravity").replace(name, "fly"),
        ),
    )
    assert skbayesnn.get_untrusted_types(data=forged) == ["antigravity.fly"]
    with pytest.raises(ValueError, match=r"not trusted: antigravity\.fly"):
        skbayesnn.loads(forged, trusted=[VarianceThreshold])
    assert "antigravity" not in sys.modules


def test_part_without_foreign_types(network, data):
    """skops constructs only types that the caller trusts."""
    fitted = network.fit(data.X, data.y)
    model = make_pipeline(VarianceThreshold(), network).fit(data.X, data.y)
    stored = skbayesnn.dumps(model)
    forged = with_part(stored, lambda part: foreign.stored(fitted))
    with pytest.raises(ValueError, match="a part of skops without types of other"):
        skbayesnn.loads(forged, trusted=[VarianceThreshold])


def test_state_of_a_generator_in_a_part_needs_trust(network, data):
    """skops trusts it by default; a wrong position makes NumPy read out of bounds."""
    search = GridSearchCV(network, {"random_state": [np.random.RandomState(0)]}, cv=2)
    stored = skbayesnn.dumps(search.fit(data.X, data.y))
    types = skbayesnn.get_untrusted_types(data=stored)
    assert "numpy.random.mtrand.RandomState" in types


def test_compressed_part_is_refused(network, data):
    """It could expand to many times the size of the file."""
    stored = skbayesnn.dumps(
        make_pipeline(VarianceThreshold(), network).fit(data.X, data.y)
    )
    deflated = zipfile.ZIP_DEFLATED
    forged = with_part(stored, lambda part: rewritten(part, compression=deflated))
    for read in (
        lambda: skbayesnn.loads(forged, trusted=[VarianceThreshold]),
        lambda: skbayesnn.get_untrusted_types(data=forged),
    ):
        with pytest.raises(ValueError, match="compressed"):
            read()


def test_estimators_of_the_package_inside_a_part_are_checked(network, data):
    model = GridSearchCV(network, {"tau": [1.0]}, cv=2).fit(data.X, data.y)
    part = foreign.stored(model)
    types = foreign.types_of(part)
    assert foreign.loaded(part, types).best_estimator_.n_draws == network.n_draws
    model.best_estimator_.x_scale_ = -model.best_estimator_.x_scale_
    with pytest.raises(ValueError, match="`x_scale_` of MCDropoutRegressor must be"):
        foreign.loaded(foreign.stored(model), types)
    with pytest.raises(ValueError, match="`x_scale_` of MCDropoutRegressor must be"):
        skbayesnn.dumps(model)
