"""A column of a frame on the x axis: categories, dates, durations, missing values."""

import datetime

import numpy as np
import pandas as pd
import pytest

from skbayesnn.plotting import (
    ClassProbabilityDisplay,
    PredictionIntervalDisplay,
    UncertaintyDecompositionDisplay,
)
from skbayesnn.plotting._axes import plain
from skbayesnn.plotting._rows import MAX_SHOWN_LEVELS, select_feature

DAY = datetime.datetime(2024, 3, 1)
ROWS = 7


@pytest.fixture(params=["pandas", "polars", "pyarrow"])
def frame(request):
    library = pytest.importorskip(request.param)
    frame_of = library.table if request.param == "pyarrow" else library.DataFrame
    return frame_of(
        {
            "shop": ["shop 10", "shop 2", None, "shop 2", " ", "shop 2", "$a$"],
            "open": [True, False, True, True, None, False, True],
            "day": [DAY + datetime.timedelta(days=d) for d in (3, 0, 4, 1, 5, 9)]
            + [None],
            "waited": [datetime.timedelta(hours=h) for h in range(6)] + [None],
            "price": [0.5, None, 1.5, 2.5, 3.5, 4.5, 5.5],
        }
    )


def test_categories_are_positions_with_names(frame):
    """Integers in names are in order, and missing values come last."""
    x, name, levels = select_feature(frame, "shop").values()
    assert levels == ["' '", r"\$a\$", "shop 2", "shop 10", "missing"]
    np.testing.assert_array_equal(x, [3, 2, 4, 2, 0, 2, 1])
    assert name == "shop"
    x, _, levels = select_feature(frame, "open").values()
    assert levels == ["False", "True", "missing"]
    np.testing.assert_array_equal(x, [1, 0, 1, 1, 2, 0, 1])


def test_ordered_categories_keep_their_order():
    sizes = pd.Categorical(["L", "S", "L"], ["S", "M", "L"], ordered=True)
    table = pd.DataFrame({"size": sizes, "b": range(3)})
    x, _, levels = select_feature(table, 0).values()
    assert levels == ["S", "L"]  # only levels of these rows
    np.testing.assert_array_equal(x, [1, 0, 1])


def test_rare_levels_share_a_position():
    level = [f"level {i}" for i in range(30) for _ in range(1 + (i < 19))]
    x, _, levels = select_feature(pd.DataFrame({"a": level}), "a").values()
    assert levels == [f"level {i}" for i in range(19)] + ["11 other levels"]
    assert len(levels) == MAX_SHOWN_LEVELS and (x == 19).sum() == 11


def test_dates_and_durations(frame):
    x, name, joined = select_feature(frame, "day").values()
    expected = np.array(
        [*(DAY + datetime.timedelta(days=d) for d in (3, 0, 4, 1, 5, 9)), "NaT"],
        dtype="datetime64[ms]",
    )
    np.testing.assert_array_equal(x, expected)
    assert name == "day" and not joined
    x, name, _ = select_feature(frame, "waited").values()
    assert name == "waited (hours)"
    np.testing.assert_array_equal(x, [*range(6), np.nan])


@pytest.fixture
def uncertainties(seed):
    return np.random.default_rng(seed).uniform(1, 2, size=(3, ROWS))


def test_rows_of_a_level_are_spread_around_it(frame, uncertainties):
    display = UncertaintyDecompositionDisplay.from_predictions(
        *uncertainties, measure="std", **select_feature(frame, "shop")
    )
    positions, total = display.total_.get_data()
    levels = np.round(positions)
    np.testing.assert_array_equal(levels, np.sort(display.x))
    assert (np.diff(total[levels == 2]) >= 0).all()  # sorted within the level
    assert len(np.unique(positions)) == ROWS
    labels = [label.get_text() for label in display.ax_.get_xticklabels()]
    assert labels == display.x_levels


@pytest.mark.parametrize(("feature", "missing"), [("price", 1), ("day", 6)])
def test_rows_without_a_value_are_counted(frame, uncertainties, feature, missing):
    mean, _, std = uncertainties
    interval = np.stack([mean - std, mean + std], 1)
    display = PredictionIntervalDisplay.from_predictions(
        mean, mean, interval, coverage=0.9, **select_feature(frame, feature)
    )
    _, drawn = display.line_.get_data()
    x = display.x
    kept = np.flatnonzero(x == x)
    np.testing.assert_array_equal(drawn, mean[kept[np.argsort(x[kept])]])
    assert missing not in kept
    label = display.ax_.get_xlabel()
    assert label == f"{feature} (1 of {ROWS} rows have no value, not shown)"


def test_probabilities_by_date(seed):
    p = np.random.default_rng(seed).uniform(size=(ROWS, 1, 4))
    days = np.datetime64("2024-03-01") + np.arange(ROWS)
    display = ClassProbabilityDisplay.from_predictions(
        np.concatenate([p, 1 - p], 1), ["no", "yes"], x=days
    )
    display.figure_.canvas.draw()
    assert "2024-Mar" in display.ax_.xaxis.get_major_formatter().get_offset()


def test_names_are_no_formulas():
    assert [plain(name) for name in ("$a_b$", "", "a")] == [r"\$a_b\$", "''", "a"]
