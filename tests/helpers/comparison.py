"""Compares a batched search with scikit-learn's on the same table and candidates."""

import warnings
from contextlib import contextmanager

import joblib
import numpy as np
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline

from skbayesnn import MCDropoutClassifier, MCDropoutRegressor
from skbayesnn.model_selection import BatchedGridSearchCV, BatchedRandomizedSearchCV
from tests.helpers.seed import SEED

SMALL = {
    "hidden_layer_sizes": (5,),
    "max_iter": 4,
    "n_draws": 5,
    "batch_size": 16,
    "device": "cpu",
    "dtype": "float64",
    "random_state": SEED,
}
# Sums are taken in another order, and Adam multiplies the last digits by some hundreds
# in a few dozen steps. The larger tolerance is for float32.
ROUNDING, ROUNDING_32 = 1e-8, 5e-3
PLAIN = {
    BatchedGridSearchCV: GridSearchCV,
    BatchedRandomizedSearchCV: RandomizedSearchCV,
}


def regressor(**parameters):
    return MCDropoutRegressor(**SMALL | parameters)


def classifier(**parameters):
    return MCDropoutClassifier(**SMALL | parameters)


class Watch:
    """A scorer that records the candidates and rows it scored."""

    def __init__(self):
        self.seen = {}

    def __call__(self, estimator, X, y):
        member = repr(estimator.get_params()), joblib.hash((X, y))
        self.seen[member] = fitted_state(estimator)
        return 0.0


def fitted_state(estimator):
    """All learned values of the network at the end of a pipeline."""
    while isinstance(estimator, Pipeline):
        estimator = estimator[-1]
    state = {name: v for name, v in vars(estimator).items() if name.endswith("_")}
    # Networks of folds keep no rows for later updates.
    state.pop("replay_", None)
    if estimator.early_stopping is True:
        # Adam's moments differ with the length of the common training. They are not
        # used: `partial_fit` refuses early stopping, and a warm start resets them.
        state.pop("optimizer_", None)
    return state


def fit_both(
    estimator, candidates, X, y, fit=None, search_class=BatchedGridSearchCV, **options
):
    """scikit-learn's search and ours, fitted to the same data."""
    options = {"cv": 3} | options
    searches = [
        each_class(estimator, candidates, **options)
        for each_class in (PLAIN[search_class], search_class)
    ]
    with quiet():
        for search in searches:
            search.fit(X, y, **fit or {})
    return searches


@contextmanager
def quiet():
    """Ignore warnings about short trainings, failures and scorers without weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FitFailedWarning)
        warnings.filterwarnings(
            "ignore", "One or more of the|The scoring|Scoring failed"
        )
        yield


def assert_same_members(
    estimator, candidates, X, y, tolerance=None, fit=None, **options
):
    """Each member of a search equals the network of scikit-learn's search.

    tolerance : by default the rounding of the member's `dtype`
    """
    seen = []
    for search_class in (GridSearchCV, BatchedGridSearchCV):
        watch = Watch()
        options = {"cv": 3} | options
        search = search_class(
            estimator, candidates, scoring=watch, refit=False, **options
        )
        with quiet():
            search.fit(X, y, **fit or {})
        seen.append(watch.seen)
    assert seen[0].keys() == seen[1].keys()
    for member, plain in seen[0].items():
        single = "dtype': 'float32'" in member[0]
        rounding = tolerance or (ROUNDING_32 if single else ROUNDING)
        assert_same_state(plain, seen[1][member], rounding)
    return list(seen[1].values())


def assert_same_state(plain, batched, tolerance=ROUNDING, path=""):
    """Nested dicts, lists and arrays agree to rounding; everything else exactly."""
    assert type(plain) is type(batched), path
    if isinstance(plain, dict):
        assert set(plain) == set(batched), path
        for name in plain:
            part = f"{path}/{name}"
            assert_same_state(plain[name], batched[name], tolerance, part)
    elif isinstance(plain, list | tuple):
        assert len(plain) == len(batched), path
        for i, pair in enumerate(zip(plain, batched, strict=True)):
            assert_same_state(*pair, tolerance, f"{path}/{i}")
    elif isinstance(plain, np.ndarray | float | np.floating):
        assert_close(plain, batched, tolerance, path)
    else:
        assert plain == batched, path


def assert_close(plain, batched, tolerance=ROUNDING, what=""):
    """Arrays or values agree to rounding, and in shape and type."""
    plain, batched = np.asarray(plain), np.asarray(batched)
    assert plain.dtype == batched.dtype and plain.shape == batched.shape, what
    if plain.dtype.kind == "f":
        np.testing.assert_allclose(
            batched, plain, rtol=tolerance, atol=tolerance, err_msg=what
        )
    else:
        np.testing.assert_array_equal(batched, plain, err_msg=what)


def assert_same_results(plain, batched, tolerance=ROUNDING):
    """All fitted attributes of a search except times."""
    assert _learned(plain) == _learned(batched)
    assert_same_table(plain.cv_results_, batched.cv_results_, tolerance)
    for name in ("n_splits_", "multimetric_", "best_index_"):
        assert getattr(plain, name, None) == getattr(batched, name, None), name
    if hasattr(plain, "best_params_"):
        # Parameters can be estimators, which compare by identity.
        assert repr(plain.best_params_) == repr(batched.best_params_)
    if hasattr(plain, "best_score_"):
        assert_close(plain.best_score_, batched.best_score_, tolerance)


def assert_same_table(plain, batched, tolerance=ROUNDING):
    """``cv_results_``: the same keys, shapes and types; values to rounding."""
    assert set(plain) == set(batched)
    for name, theirs in plain.items():
        ours = batched[name]
        assert type(ours) is type(theirs), name
        if name.startswith("param"):
            assert repr(ours) == repr(theirs), name
        elif "time" in name:
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, name
        else:
            assert_close(theirs, ours, tolerance, name)


def _learned(search):
    return {name for name in vars(search) if name.endswith("_")}
