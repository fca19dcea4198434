"""Frames with a column of every kind, and with missing values."""

import numpy as np
import pytest


def mixed_frame(n_rows, random):
    """A frame with a column of every kind, and with missing values."""
    pandas = pytest.importorskip("pandas")
    minutes = random.integers(0, 10**6, n_rows).astype("timedelta64[m]")
    grades = random.choice(["low", "mid", "high"], n_rows)
    frame = pandas.DataFrame(
        {
            "size": random.standard_normal(n_rows),
            "flag": random.random(n_rows) < 0.5,
            "colour": random.choice(["red", "green", "blue"], n_rows),
            "shop": random.permutation(
                ([f"s{i}" for i in range(13)] + ["main"] * n_rows)[:n_rows]
            ),
            "grade": pandas.Categorical(grades, ["low", "mid", "high"], ordered=True),
            "start": np.datetime64("2020-01-01T00:00:00", "us") + minutes,
            "length": random.integers(1, 999, n_rows).astype("timedelta64[s]"),
            "constant": 1.0,
        }
    )
    frame["end"] = frame["start"].dt.tz_localize("UTC").dt.tz_convert("Asia/Kolkata")
    for j, name in enumerate(["size", "colour", "grade", "start", "length"]):
        frame.loc[j::6, name] = None
    return frame


def new_frame(n_rows, random):
    """Another frame: with levels that the first one lacks, and more missing values."""
    frame = mixed_frame(n_rows, random)
    frame["flag"] = frame["flag"].astype(object)
    frame.loc[1, "colour"], frame.loc[2, "shop"] = "mauve", "unknown"
    frame.loc[3, ["flag", "shop", "end"]] = None
    return frame
