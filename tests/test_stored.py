"""Annotations of attributes, and the check of objects by them."""

import math
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import pytest

from skbayesnn import _stored as stored


class Kept(TypedDict, total=False):
    """A dict with fixed keys."""

    rows: Annotated[stored.Floats, "rows, columns"]


class Fitted:
    """Attributes of many types."""

    coef_: Annotated[stored.Floats, "targets, columns"]
    scale_: Annotated[stored.Floats, "columns", stored.POSITIVE]
    tau_: stored.PerTarget
    bins_: Annotated[list[Annotated[stored.Floats, "_", stored.RISING]], "columns"]
    edges_: Annotated[stored.Numbers, "columns + 1"] | None
    columns_: Annotated[stored.Integers, "selected", stored.Index("columns")]
    n_features_in_: stored.NumberOfColumns
    keep_: dict[str, Annotated[stored.Floats, "_, ...", stored.SHARE]]
    replay_: Annotated[dict[str, Any], Kept, stored.OPTIONAL]
    loss_: stored.Record
    kind_: Literal["a", "b"]
    bounds_: tuple[float, Annotated[float, stored.ANY]]
    names_: tuple[str, ...]
    is_flat_: bool
    rate: Annotated[Any, stored.each(stored.PROPER_SHARE)]


def valid():
    return {
        "coef_": np.zeros((1, 3)),
        "scale_": np.ones(3),
        "tau_": 2,
        "bins_": [np.arange(2.0)] * 3,
        "edges_": np.arange(4),
        "columns_": np.array([2, 0]),
        "n_features_in_": np.int64(3),
        "keep_": {"first": np.ones((2, 1, 4))},
        "replay_": {"rows": np.zeros((7, 3))},
        "loss_": math.nan,
        "kind_": "b",
        "bounds_": (0.0, math.inf),
        "names_": ("x", "y"),
        "is_flat_": np.True_,
        "rate": ["0.1", 0.2],
    }


def check(attributes):
    annotations = stored.annotations_of(Fitted)
    return stored.check_stored(attributes, annotations, "Fitted")


def test_valid_attributes_and_their_axes():
    axes = check(valid())
    axes.agree("columns", 3)
    with pytest.raises(ValueError, match="`coef_` and `here` must agree in the number"):
        axes.agree("columns", 4, "`here`")
    check({name: value for name, value in valid().items() if name != "replay_"})
    check(valid() | {"tau_": np.ones(1), "edges_": None, "columns_": np.zeros(0, int)})


INVALID = [
    ("coef_", np.zeros((1, 3), int), "an array of floats with axes (targets, columns)"),
    ("coef_", np.zeros(3), "with axes (targets, columns), finite; got"),
    ("coef_", np.full((1, 3), np.nan), "finite; got"),
    ("scale_", np.ones(4), "`coef_` and `scale_` must agree in the number of columns"),
    ("scale_", np.array([1.0, 0.0, 1.0]), "finite and > 0; got"),
    ("tau_", np.ones(2), "must agree in the number of targets; got 1 and 2"),
    ("tau_", "auto", "a number with axes (targets), finite and > 0 or an array"),
    ("bins_", [np.zeros(2)] * 3, "a list (each an array of floats with axes (_)"),
    ("bins_", [np.arange(2.0)], "must agree in the number of columns; got 3 and 1"),
    ("edges_", np.arange(3), "must agree in the number of columns; got 3 and 2"),
    ("columns_", np.array([3]), "must be from 0 to 2, the positions of columns; got 3"),
    ("columns_", np.array([-1]), "must be from 0 to 2, the positions of columns"),
    ("n_features_in_", 10**400, "an integer, finite and > 0; got"),
    ("n_features_in_", True, "an integer, finite and > 0; got True"),
    ("keep_", {1: np.ones(3)}, "a dict by name (each an array of floats"),
    ("replay_", {"rows": np.zeros((7, 2))}, "number of columns; got 3 and 2"),
    ("replay_", {"other": 1}, "a dict by name, with the keys and types of Kept"),
    ("loss_", None, "a number; got None"),
    ("kind_", "c", "one of 'a', 'b'; got 'c'"),
    ("kind_", ["a"], "one of 'a', 'b'; got ['a']"),
    ("bounds_", (math.inf, 0.0), "a tuple of 2: a number, finite, a number; got"),
    ("bounds_", (0.0,), "a tuple of 2"),
    ("names_", ["x"], "a tuple (each a string); got"),
    ("is_flat_", 1, "True or False; got 1"),
    ("rate", 1.0, "a string, or numeric values, in [0, 1); got 1.0"),
]


@pytest.mark.parametrize(("name", "value", "text"), INVALID)
def test_invalid_attributes(name, value, text):
    with pytest.raises(ValueError) as error:
        check(valid() | {name: value})
    assert text in str(error.value)
    assert f"`{name}`" in str(error.value)


def test_names_and_choices_of_columns():
    rule = stored.rule_of(stored.ColumnChoice)
    for value in (None, "a", ["a", 1], [True], np.array([0]), [("a", "b")]):
        assert rule.holds(value, stored.Axes())
    for value in (1.5, {"a": 1}, ["a", 2.0], np.array([[1]])):
        assert not rule.holds(value, stored.Axes())


def test_labels_are_distinct_and_finite():
    rule = stored.rule_of(stored.Labels)
    assert rule.holds(np.array(["a", "b"], object), stored.Axes())
    for value in ([0.0, 0.0], [0.0, np.inf], [[0, 1]]):
        assert not rule.holds(np.array(value), stored.Axes())


def test_a_class_of_another_package_is_not_fitted():
    assert not stored.is_fitted(SimpleNamespace())
