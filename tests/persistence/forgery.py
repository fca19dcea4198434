"""Forged files: valid checksums, but one value is replaced.

Also the predictions of a model, and a check that they stay finite.
"""

import copy
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import skbayesnn
from skbayesnn._persistence import file_format

# Replacements for the values of a file.
VALUES = (0, -1, 10**9, math.nan, math.inf)
# Names in the documents of arrays.
_ARRAYS = ("array", "values"), ("member",)


@dataclass(frozen=True)
class Place:
    """The place of a value in a document, or in one of its arrays.

    keys : from the document's root to the container of the value\nindex : flat index in
    an array; None for a value of the document
    """

    keys: tuple
    index: int | None = None

    def __str__(self):
        named = [k for k in self.keys if k not in ("model", "state", "params", "dict")]
        index_text = "" if self.index is None else f"[{self.index}]"
        return "/".join(map(str, named)) + index_text


def places(document, members, random, keys=()) -> Iterator[Place]:
    """Places of all values; for a large array the first and a random one."""
    if isinstance(document, dict) and tuple(document) in _ARRAYS:
        values = _array(document, members)
        if values.dtype.kind not in "iuf" or not values.size:
            return
        few = range(values.size) if values.size <= file_format.FEW else ()
        for index in few or {0, int(random.integers(values.size))}:
            yield Place(keys, index)
        return
    if isinstance(document, dict) and "float" in document:
        yield Place(keys)
    elif isinstance(document, dict | list):
        inside = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in inside:
            yield from places(value, members, random, (*keys, key))
    elif type(document) in (int, float):
        yield Place(keys)


def forged(content: bytes, place: Place, value) -> bytes:
    """The file with one value replaced."""
    document, members = file_format.unpacked(content)
    document = copy.deepcopy(document)
    where = document
    for key in place.keys[:-1]:
        where = where[key]
    last = place.keys[-1]
    if place.index is None:
        where[last] = value if math.isfinite(value) else {"float": str(value)}
    else:
        where[last] = _with_replacement(where[last], place.index, value, members)
        used = {digest + file_format.ARRAY for digest in _members(document)}
        members = {name: v for name, v in members.items() if name in used}
    return file_format.packed(document, members)


def _array(document, members) -> np.ndarray:
    if "values" in document:
        return np.array(document["values"], document["array"])
    return file_format.member_array(members[document["member"] + file_format.ARRAY])


def _with_replacement(document, index, value, members):
    """The document of an array with one value replaced; its member is added."""
    values = _array(document, members).copy(order="K")
    kind = values.dtype
    if kind.kind != "f" and not math.isfinite(value):
        values = values.astype(float)
    elif kind.kind == "u" and value < 0:
        values = values.astype(np.int64)
    values[np.unravel_index(index, values.shape)] = value
    if file_format.is_small(values):
        return {"array": values.dtype.str, "values": values.tolist()}
    member = file_format.as_member(values)
    digest = file_format.compute_digest(member)
    members[digest + file_format.ARRAY] = member
    return {"member": digest}


def _members(document) -> Iterator[str]:
    """Digests of the members that a document names."""
    if isinstance(document, dict):
        if "member" in document:
            yield document["member"]
        for value in document.values():
            yield from _members(value)
    elif isinstance(document, list):
        for value in document:
            yield from _members(value)


def outcome(content: bytes, X, expected: dict) -> str:
    """Check a forged file: "refused", "finite", or a text that describes the error.

    expected : predictions of the original file, by method
    """
    try:
        model = skbayesnn.loads(content)
    except ValueError:
        return "refused"
    try:
        actual = predictions(model, X, list(expected))
        return not_finite(actual, expected) or "finite"
    # A loaded model must predict, so any error counts.
    except Exception as error:
        return f"{type(error).__name__}: {error}"


CALLS = {
    "transform": lambda model, X: model.transform(X),
    "predict": lambda model, X: model.predict(X),
    "predict_proba": lambda model, X: model.predict_proba(X),
    "predict_set": lambda model, X: model.predict_set(X),
    "predict_uncertainty": lambda model, X: np.stack(
        list(model.predict_uncertainty(X, kind="all").values())
    ),
    "score_samples": lambda model, X: model.score_samples(X),
    "p_value": lambda model, X: model.p_value(X),
    "predict_interval": lambda model, X: model.predict_interval(X),
    "sample_y": lambda model, X: model.sample_y(X, n_samples=3),
    "fold_estimators_": lambda model, X: model.predict_interval(X, method="cv+"),
}
QUICK = [name for name in CALLS if name not in list(CALLS)[-3:]]


def predictions(model, X, names=tuple(CALLS)) -> dict[str, np.ndarray]:
    """Numeric predictions of a model, by the method or attribute that it must have."""
    if getattr(model, "refit", True) is False:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = {
            name: np.asarray(CALLS[name](model, X))
            for name in names
            if hasattr(model, name)
        }
    return {n: values for n, values in actual.items() if values.dtype.kind in "fiub"}


def not_finite(actual: dict, expected: dict) -> str:
    """The method whose values are not finite although they were; or an empty text."""
    for name, values in actual.items():
        was_finite = np.isfinite(expected[name])
        finite = np.isfinite(values)
        if was_finite.shape != finite.shape:
            was_finite = np.True_
        if not (finite | ~was_finite).all():
            return f"{name} is not finite"
    return ""
