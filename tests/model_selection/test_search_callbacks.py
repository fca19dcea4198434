"""Callbacks of scikit-learn (1.9 and later) in batched searches."""

import warnings

import pytest
from sklearn.base import clone
from sklearn.model_selection import (
    GridSearchCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skbayesnn.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
)
from tests.helpers.comparison import (
    PLAIN,
    regressor,
)
from tests.helpers.searches import GRID, STOPPING


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


class PropagatedRecorder(Recorder):
    """Also records events of the estimators inside."""

    max_propagation_depth = None


def events_of(place, recorder, estimator, grid, X, y, search_class, **options):
    """Events of a search whose callbacks are set on it, its estimator or network."""
    pytest.importorskip("sklearn.callback")
    search = search_class(clone(estimator), grid, cv=3, **options)
    {
        "search": search,
        "estimator": search.estimator,
        "network": search.estimator[-1] if "__" in min(grid) else search.estimator,
    }[place].set_callbacks(recorder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, y)
    return recorder.events


@pytest.mark.parametrize("place", ["search", "network"])
@pytest.mark.parametrize(
    "search_class", [BatchedGridSearchCV, BatchedRandomizedSearchCV]
)
def test_callbacks(data, place, search_class):
    """Setup, tasks and teardown in the order of scikit-learn's search."""
    options = (
        {} if search_class is BatchedGridSearchCV else {"n_iter": 2, "random_state": 0}
    )
    plain, batched = (
        events_of(place, Recorder(), regressor(), GRID, data.X, data.y, k, **options)
        for k in (PLAIN[search_class], search_class)
    )
    assert plain == batched
    assert "setup" in {hook for hook, *_ in plain}


def test_propagated_callbacks(data):
    """They get the epochs of the networks, too."""
    plain, batched = (
        events_of(
            "search",
            PropagatedRecorder(),
            regressor(),
            GRID,
            data.X,
            data.y,
            search_class,
        )
        for search_class in (GridSearchCV, BatchedGridSearchCV)
    )
    assert plain == batched
    assert any(tasks[-1][1] == "epoch" for _, _, tasks in plain)


@pytest.mark.parametrize("place", ["search", "estimator", "network"])
def test_callbacks_with_a_pipeline(data, place):
    """Compared without the steps before the network, which are fitted once per fold."""
    pipeline = make_pipeline(StandardScaler(), regressor())
    grid = {"mcdropoutregressor__tau": [0.5, 2.0]}
    plain, batched = (
        events_of(
            place,
            PropagatedRecorder() if place == "search" else Recorder(),
            pipeline,
            grid,
            data.X,
            data.y,
            search_class,
            refit=False,
        )
        for search_class in (GridSearchCV, BatchedGridSearchCV)
    )

    def without_steps(events):
        # The id of the last step's task depends on the tasks of other steps.
        return [
            (hook, name, [task[:2] for task in tasks])
            for hook, name, tasks in events
            if not {"fit-transform-standardscaler", "StandardScaler"}
            & {word for task in tasks for word in task[:2]}
        ]

    assert without_steps(plain) == without_steps(batched)
    assert len(batched) > 6


def test_callbacks_after_early_stopping(data):
    """As many epochs as were trained."""
    plain, batched = (
        events_of(
            "network",
            Recorder(),
            regressor(**STOPPING),
            {"random_state": range(4)},
            data.X,
            data.y,
            search_class,
        )
        for search_class in (GridSearchCV, BatchedGridSearchCV)
    )
    assert plain == batched


def test_callbacks_are_torn_down_after_a_failure(data):
    recorder = Recorder()
    with pytest.raises(ValueError, match="tau"):
        events_of(
            "search",
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
