"""Callbacks of scikit-learn (1.9 and later) in batched searches."""

import warnings

import pytest
from sklearn.base import clone

from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)
from tests.helpers.comparison import (
    PLAIN,
    regressor,
)
from tests.helpers.searches import GRID


class Recorder:
    """Records the events of a callback with the ids of the tasks."""

    requires_fit_predict = False

    def __init__(self):
        self.events = []

    def _add(self, hook, estimator, context):
        tasks = []
        while context is not None:
            name = context.estimator_name.replace("Batched", "")
            tasks.insert(0, (name, context.task_name, context.task_id))
            context = context.parent
        name = type(estimator).__name__.replace("Batched", "")
        self.events.append((hook, name, tuple(tasks)))

    def setup(self, estimator, context):
        self._add("setup", estimator, context)

    def teardown(self, estimator, context):
        self._add("teardown", estimator, context)

    def on_fit_task_begin(self, estimator, context, **_):
        self._add("begin", estimator, context)

    def on_fit_task_end(self, estimator, context, **_):
        self._add("end", estimator, context)


def events_of(recorder, estimator, grid, X, y, search_class, **options):
    """Events of a search."""
    pytest.importorskip("sklearn.callback")
    search = search_class(clone(estimator), grid, cv=3, **options)
    search.set_callbacks(recorder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, y)
    return recorder.events


@pytest.mark.parametrize(
    "search_class", [BatchedGridSearchCV, BatchedRandomizedSearchCV]
)
def test_callbacks(data, search_class):
    """Setup, tasks and teardown in the order of scikit-learn's search."""
    options = (
        {} if search_class is BatchedGridSearchCV else {"n_iter": 2, "random_state": 0}
    )
    plain, batched = (
        events_of(Recorder(), regressor(), GRID, data.X, data.y, k, **options)
        for k in (PLAIN[search_class], search_class)
    )
    assert plain == batched
    assert "setup" in {hook for hook, *_ in plain}


def test_callbacks_are_torn_down_after_a_failure(data):
    recorder = Recorder()
    with pytest.raises(ValueError, match="tau"):
        events_of(
            recorder,
            regressor(),
            {"tau": [-1.0]},
            data.X,
            data.y,
            BatchedGridSearchCV,
            error_score="raise",
        )
    hooks = [hook for hook, *_ in recorder.events]
    assert hooks.count("setup") == hooks.count("teardown") == 1
