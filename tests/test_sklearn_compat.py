"""Private names of scikit-learn that the package uses exist at every version.

Run these tests at the oldest and at the newest supported version. One file uses the
private names, and the tests try each of them.
"""

import ast
import inspect
import re
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skbayesnn
from skbayesnn import MCDropoutRegressor, _sklearn_compat
from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)

PACKAGE = Path(skbayesnn.__file__).parent
COMPAT = PACKAGE / "_sklearn_compat.py"
MODULES = sorted(set(PACKAGE.rglob("*.py")) - {COMPAT})
ROWS, INPUTS = 31, 4
SMALL = {
    "hidden_layer_sizes": (3,),
    "max_iter": 2,
    "n_draws": 3,
    "device": "cpu",
    "dtype": "float64",
    "random_state": 0,
}


@pytest.fixture
def data():
    """X (31, 4), y (31,) and weights (31,)."""
    random = np.random.default_rng(7)
    X = random.standard_normal((ROWS, INPUTS))
    return X, X[:, 0] + random.standard_normal(ROWS), random.uniform(0.5, 2, ROWS)


# ---- used in one file only


def _name(path):
    return str(path.relative_to(PACKAGE))


@cache
def _tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def _private(name):
    return name.startswith("_") and not name.endswith("__")


def _imported(path):
    """Line and full name of everything that a file imports."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{a.name}") for a in node.names)


def _attributes(path):
    """Line and name of private attributes, also of ``self`` and ``super()``."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Attribute) and _private(node.attr):
            yield node.lineno, node.attr


def _defined(path):
    """Private names that a file gives to a function, a variable or a field."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute | ast.Name):
            if isinstance(node.ctx, ast.Store):
                yield node.attr if isinstance(node, ast.Attribute) else node.id


@cache
def _private_names_of_sklearn():
    """Private names of scikit-learn that _sklearn_compat.py uses, also in quotes."""
    tree = _tree(COMPAT)
    texts = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
    quoted = {text for text in texts if isinstance(text, str) and _private(text)}
    methods = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    attributes = {name for _, name in _attributes(COMPAT)}
    return (quoted | attributes | set(filter(_private, methods))) - {
        "_known"  # an attribute of the file's class
    }


@cache
def _ours():
    """Private names that the package defines."""
    return {name for path in MODULES for name in _defined(path)}


def test_search_for_private_names_finds_each_kind():
    assert {
        "_scorers",
        "_skl_callbacks",
        "_format_results",
    } <= _private_names_of_sklearn()


def test_private_names_are_imported_in_one_file():
    offenders = []
    for path in MODULES:
        for line, name in _imported(path):
            root, *parts = name.split(".")
            if root != "sklearn":
                continue
            if any(map(_private, parts)):
                offenders.append(
                    f"{_name(path)}:{line} imports {name}, which is private"
                )
            if "callback" in parts:
                offenders.append(
                    f"{_name(path)}:{line} imports {name}, which some versions lack"
                )
    assert not offenders, "import these in _sklearn_compat.py:\n" + "\n".join(offenders)


# Attributes of torch, skorch and joblib without public names. `_getframe` is
# Python's.
_OF_OTHERS = {
    "estimators/torch_module.py": {"_get_predict_nonlinearity", "_orig_mod"},
    "estimators/_workers.py": {"_backend", "_parallel_backends"},
    "_engine/processes.py": {"_get_default_store"},
    # Notebooks call it.
    "_report.py": {"_repr_html_"},
}


def test_private_attributes_are_used_in_one_file():
    """Other files use no name of _sklearn_compat.py and no undefined private name."""
    offenders = []
    pattern = re.compile(rf"\b({'|'.join(sorted(_private_names_of_sklearn()))})\b")
    for path in MODULES:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            offenders += [
                f"{_name(path)}:{number} uses {name} of scikit-learn"
                for name in pattern.findall(line)
                if name not in _OF_OTHERS.get(_name(path), set())
            ]
        allowed = (
            _ours() | {"_getframe", "_asdict"} | _OF_OTHERS.get(_name(path), set())
        )
        offenders += [
            f"{_name(path)}:{line} uses {name}, which no file here defines"
            for line, name in _attributes(path)
            if name not in allowed
        ]
    assert not offenders, "use these in _sklearn_compat.py:\n" + "\n".join(offenders)


def test_every_name_is_used():
    """The package uses every name of _sklearn_compat.py."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    words = set(re.findall(r"\w+", text))
    missing = [
        name for name in _sklearn_compat.__all__ if not hasattr(_sklearn_compat, name)
    ]
    unused = [name for name in _sklearn_compat.__all__ if name not in words]
    assert not missing, f"_sklearn_compat.py lacks {', '.join(missing)}"
    assert not unused, f"_sklearn_compat.py has unused names: {', '.join(unused)}"


# ---- what is needed of each name


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist, sparse.csr_array])
def test_safe_indexing(data, form):
    rows = _sklearn_compat.safe_indexing(form(data[0]), np.array([3, 1]))
    rows = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    np.testing.assert_array_equal(rows, data[0][[3, 1]])


def test_safe_indexing_of_frames(data):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(data[0], columns=list("abcd"), index=range(50, 50 + ROWS))
    rows = _sklearn_compat.safe_indexing(frame, slice(2, 5))
    assert list(rows.index) == [52, 53, 54]
    column = _sklearn_compat.safe_indexing(frame, "c", axis=1)
    np.testing.assert_array_equal(column, data[0][:, 2])


def test_num_samples(data):
    X, y, _ = data
    for rows in (X, X.tolist(), sparse.csr_array(X), y):
        assert _sklearn_compat.num_samples(rows) == ROWS


def test_check_sample_weight(data):
    X, _, weights = data
    check = _sklearn_compat.check_sample_weight
    options = {"dtype": np.float64, "ensure_non_negative": True}
    np.testing.assert_array_equal(check(None, X, **options), np.ones(ROWS))
    np.testing.assert_array_equal(check(weights.tolist(), X, **options), weights)
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        check(-weights, X, **options)


def test_check_method_params(data):
    """Only values with one entry per row are indexed."""
    X, _, weights = data
    params = {"sample_weight": weights, "X_val": X[:5], "copy": True}
    rows = np.array([4, 2])
    cut = _sklearn_compat.check_method_params(X, params, indices=rows)
    np.testing.assert_array_equal(cut["sample_weight"], weights[rows])
    assert cut["X_val"].shape == (5, INPUTS) and cut["copy"] is True
    whole = _sklearn_compat.check_method_params(X, params)
    np.testing.assert_array_equal(whole["sample_weight"], weights)


def test_safe_split(data):
    X, y, _ = data
    rows, train = np.array([1, 3]), np.array([0, 2, 4])
    cut = _sklearn_compat.safe_split(Ridge(), X, y, rows, train)
    np.testing.assert_array_equal(cut[0], X[rows])
    np.testing.assert_array_equal(cut[1], y[rows])
    assert _sklearn_compat.safe_split(Ridge(), X, None, rows)[1] is None


def test_routing_enabled():
    assert not _sklearn_compat.routing_enabled()
    with sklearn.config_context(enable_metadata_routing=True):
        assert _sklearn_compat.routing_enabled()


def test_metadata_requests():
    with sklearn.config_context(enable_metadata_routing=True):
        asking = Ridge().set_fit_request(sample_weight="w")
        asking.set_score_request(sample_weight=False)
    assert hasattr(asking, _sklearn_compat.METADATA_REQUEST)
    requests = _sklearn_compat.requests_of(asking)
    assert requests == {
        "fit": {"sample_weight": "w"},
        "score": {"sample_weight": False},
    }
    again = Ridge()
    _sklearn_compat.set_requests(again, requests)
    assert _sklearn_compat.requests_of(again) == requests
    with pytest.raises(ValueError, match="does not route metadata to 'eval'"):
        _sklearn_compat.set_requests(again, {"eval": {"sample_weight": True}})


def test_names_of_attributes(data):
    X, _, _ = data
    scaler = StandardScaler().set_output(transform="default").fit(X)
    assert hasattr(scaler, _sklearn_compat.OUTPUT_CONFIG)
    version = scaler.__getstate__()[_sklearn_compat.STATE_VERSION]
    assert version == sklearn.__version__


def test_types_of_scorers(data):
    X, y, _ = data
    for scoring in (None, "r2"):
        search = GridSearchCV(Ridge(), {"alpha": [1.0]}, scoring=scoring).fit(X, y)
        assert type(search.scorer_) in _sklearn_compat.SCORER_TYPES


def test_fit_context(data):
    """The decorator validates the parameters before ``fit``."""

    class Checked(BaseEstimator):
        _parameter_constraints = {"n": [int]}  # noqa: RUF012

        def __init__(self, n=1):
            self.n = n

        @_sklearn_compat.fit_context(prefer_skip_nested_validation=False)
        def fit(self, X, y):
            return self

    X, y, _ = data
    assert isinstance(Checked().fit(X, y), Checked)
    with pytest.raises(ValueError, match="'n' parameter"):
        Checked("one").fit(X, y)


SEARCHES = [GridSearchCV, RandomizedSearchCV]
BATCHED = [BatchedGridSearchCV, BatchedRandomizedSearchCV]


@pytest.mark.parametrize("kind", SEARCHES + BATCHED)
def test_base_of_searches(kind):
    assert issubclass(kind, _sklearn_compat.BaseSearchCV)


def test_scorers_of_search():
    of = _sklearn_compat.scorers_of_search
    scorer, metric = of(GridSearchCV(Ridge(), {}, scoring="r2"))
    assert metric == "score" and repr(scorer) == repr(check_scoring(Ridge(), "r2"))
    assert _sklearn_compat.metrics_of(scorer) is scorer
    metrics = ["r2", "neg_max_error"]
    search = GridSearchCV(Ridge(), {}, scoring=metrics, refit="r2")
    scorer, metric = of(search)
    assert metric == "r2" and isinstance(scorer, _sklearn_compat.MultimetricScorer)
    assert list(_sklearn_compat.metrics_of(scorer)) == metrics


@pytest.mark.parametrize("error_score", [np.nan, "raise"])
def test_scorer_with_metrics_of_another_scorer(data, error_score):
    class Mine(_sklearn_compat.MultimetricScorer):
        pass

    def fail(estimator, X, y):
        raise ArithmeticError

    metrics = {"r2": "r2", "fail": fail}
    search = GridSearchCV(
        Ridge(), {}, scoring=metrics, refit="r2", error_score=error_score
    )
    mine = _sklearn_compat.with_metrics_of(
        Mine, _sklearn_compat.scorers_of_search(search)[0]
    )
    assert type(mine) is Mine
    model = Ridge().fit(*data[:2])
    if error_score == "raise":
        with pytest.raises(ArithmeticError):
            mine(model, *data[:2])
    else:
        scores = mine(model, *data[:2])
        assert scores["r2"] == model.score(*data[:2])
        # With an error message in their place, scikit-learn uses its `error_score`.
        assert "ArithmeticError" in scores["fail"]


@pytest.mark.parametrize("routing", [False, True])
def test_routed_fit_params(data, routing):
    groups = np.arange(ROWS) % 3
    params = {"sample_weight": data[2]}
    with sklearn.config_context(enable_metadata_routing=routing):
        estimator = Ridge()
        if routing:
            estimator.set_fit_request(sample_weight=True)
            estimator.set_score_request(sample_weight=False)
        else:
            params |= {"groups": groups}
        search = GridSearchCV(estimator, {}, cv=3)
        routed = _sklearn_compat.routed_fit_params(search, params)
    np.testing.assert_array_equal(routed.estimator.fit["sample_weight"], data[2])
    assert isinstance(routed.scorer.score, dict)
    if not routing:
        np.testing.assert_array_equal(routed.splitter.split["groups"], groups)


def test_search_over_stored_scores(data):
    """The search loop uses the given scores and returns the candidates unchanged."""
    X, y, _ = data

    class Stored(_sklearn_compat.SearchOverStored, GridSearchCV):
        def add_times(self, results):
            for result in results:
                result["fit_time"] = 7.0

    candidates = [{"solver": "svd", "alpha": 1.0}, {"alpha": 2.0}]
    plain = GridSearchCV(Ridge(), [{"alpha": [1.0]}, {"alpha": [2.0]}], cv=3)
    search = Stored(Ridge(), {"alpha": [9.0]}, cv=3)
    scorers = _sklearn_compat.scorers_of_search(plain)
    routed = _sklearn_compat.routed_fit_params(plain, {})
    search.set_known(scorers, routed, candidates)
    search.fit(X, y)
    assert search.cv_results_["params"] == candidates
    assert (search.cv_results_["mean_fit_time"] == 7).all()
    name = "mean_test_score"
    expected = plain.fit(X, y).cv_results_[name]
    np.testing.assert_allclose(search.cv_results_[name], expected, rtol=1e-12)


@pytest.mark.parametrize("n_targets", [1, 2])
def test_target_dimensions(data, n_targets):
    X, y, _ = data
    y = y if n_targets == 1 else np.stack([y, y], 1)
    model = TransformedTargetRegressor(Ridge()).fit(X, y)
    assert _sklearn_compat.target_dimensions(model) == y.ndim


# ---- the package as a whole


def test_fit_and_predict(data):
    X, y, weights = data
    model = MCDropoutRegressor(**SMALL).fit(X, y, sample_weight=weights)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == (ROWS,)
    assert skbayesnn.predict_interval(model, X).shape == (ROWS, 2)


def assert_same_search(plain, batched):
    """Equal scores and the same best candidate, to rounding that Adam enlarges."""
    for name, theirs in plain.cv_results_.items():
        ours = batched.cv_results_[name]
        if "score" in name and "time" not in name:
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, err_msg=name)
    assert plain.best_params_ == batched.best_params_


@pytest.mark.parametrize(
    ("plain", "batched"), list(zip(SEARCHES, BATCHED, strict=True))
)
@pytest.mark.parametrize("routing", [False, True])
def test_batched_search(data, plain, batched, routing):
    """A pipeline with weights for its steps, and two metrics."""
    X, y, weights = data
    with sklearn.config_context(enable_metadata_routing=routing):
        scale, network = StandardScaler(), MCDropoutRegressor(**SMALL)
        name = "mcdropoutregressor"
        if routing:
            scale.set_fit_request(sample_weight="of_scale")
            network.set_fit_request(sample_weight="of_network")
            fit = {"of_network": weights, "of_scale": weights[::-1]}
        else:
            fit = {f"{name}__sample_weight": weights}
        estimator = make_pipeline(scale, network)
        options = {"scoring": ["r2", "neg_max_error"], "refit": "r2", "cv": 3}
        if plain is RandomizedSearchCV:
            options |= {"n_iter": 3, "random_state": 0}
        grid = {f"{name}__tau": [0.5, 1.0, 2.0], "standardscaler__with_mean": [True]}
        searches = [
            kind(estimator, grid, **options).fit(X, y, **fit)
            for kind in (plain, batched)
        ]
    assert_same_search(*searches)
    assert set(searches[1].scorer_) == {"r2", "neg_max_error"}


def _next_line():
    """Number of the line below the call."""
    return inspect.currentframe().f_back.f_lineno + 1


WARNED = {
    "fit": lambda: MCDropoutRegressor(**SMALL),
    "search": lambda: BatchedGridSearchCV(
        MCDropoutRegressor(**SMALL), {"tau": [0.5, 2.0]}, cv=2
    ),
    "pipeline": lambda: make_pipeline(StandardScaler(), MCDropoutRegressor(**SMALL)),
}


@pytest.mark.parametrize("name", WARNED)
def test_warnings_point_at_the_line_of_the_caller(data, name):
    """The number of scikit-learn's frames in between does not matter."""
    X, y, _ = data
    X = np.column_stack([X, np.zeros(ROWS)])
    model = WARNED[name]()
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        line = _next_line()
        model.fit(X, y)
    messages = [
        message
        for message in messages
        if "constant in the training rows" in str(message.message)
    ]
    assert [(message.filename, message.lineno) for message in messages] == [
        (__file__, line)
    ]


def test_warning_of_an_interruption_points_at_the_line_of_the_caller(data):
    """The warning comes from the search, not from one of its fits."""
    X, y, _ = data
    n_scored = []

    def score(estimator, X, y):
        n_scored.append(True)
        if len(n_scored) > 3:
            raise KeyboardInterrupt
        return 0.0

    network = MCDropoutRegressor(**SMALL)
    search = BatchedGridSearchCV(
        network, {"tau": [0.5, 2.0]}, cv=[(np.arange(20),) * 2]
    )
    search.set_params(scoring=score, param_grid={"tau": [0.5, 1.0, 2.0, 3.0]})
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        line = _next_line()
        search.fit(X, y)
    [message] = [
        message
        for message in messages
        if issubclass(message.category, ConvergenceWarning)
    ]
    assert (message.filename, message.lineno) == (__file__, line)


# ---- notebooks


def test_html_of_a_fitted_estimator_has_its_summary():
    class Summed(_sklearn_compat.ShowsSummary, Ridge):
        pass

    model = Summed()
    assert "1 &lt; 2" not in model._repr_html_()
    model.summary_ = "1 < 2"
    for shown in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert shown.endswith("<p>1 &lt; 2</p>")
