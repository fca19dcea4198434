"""Encode a model as a JSON document and array members, and decode it.

None, booleans, integers, finite numbers, strings and lists are JSON's own. Every other
value is an object with a tag; the tags are listed in tables below. skops stores
estimators, functions and splitters of other packages.

Decoding looks names up in tables and imports or calls none of them. Parts stored by
skops are the exception: skops imports the types that the user trusts.
"""

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch

from skbayesnn import scoring
from skbayesnn._persistence import file_format, foreign
from skbayesnn._persistence.file_format import ARRAY, FOREIGN, digest_of
from skbayesnn._persistence.schema import (
    FUNCTIONS,
    KINDS,
    Kind,
    checked,
    function_name,
    integer,
    kind_of,
)
from skbayesnn._sklearn_compat import METADATA_REQUEST, requests_of, set_requests

# ---- encode


def encoded(model) -> tuple[Any, dict[str, bytes]]:
    """The document of a model, and its members by name.

    Raises
    ------
    ValueError
        For what no file can hold, with its place.
    """
    encoder = _Encoder()
    return encoder.value(model, type(model).__name__), encoder.members


def _refused(what: str, place: str) -> ValueError:
    return ValueError(
        "a file holds numbers, strings, arrays, estimators and functions that have a "
        f"name in a module; got {what} in {place}. Remove it, or store the model by "
        "joblib in a file that nobody else can write."
    )


class _Encoder:
    """Collects the members of a document; ``place`` is where a value stands."""

    def __init__(self):
        self.members: dict[str, bytes] = {}
        self._of_type: dict[type, Callable[[Any, str], Any]] = {
            float: self._number,
            list: self._list,
            tuple: lambda value, place: {"tuple": self._list(value, place)},
            dict: self._dict,
            np.ndarray: self._array,
            np.ma.MaskedArray: self._masked,
            np.random.RandomState: self._random_state,
            torch.device: lambda value, place: {"device": str(value)},
            scoring.Scorer: self._scorer,
        }

    def value(self, value: Any, place: str) -> Any:
        """The document of a value."""
        if value is None or type(value) in (bool, int, str):
            return value
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value), place)}
        return self._of_type.get(type(value), self._object)(value, place)

    def _number(self, value, place):
        return value if math.isfinite(value) else {"float": repr(value)}

    def _list(self, values, place):
        return [self.value(one, f"{place}[{i}]") for i, one in enumerate(values)]

    def _dict(self, value, place):
        if not all(type(key) is str for key in value):
            return {"items": self._list(list(value.items()), place)}
        return {
            "dict": {n: self.value(one, f"{place}[{n!r}]") for n, one in value.items()}
        }

    def _attributes(self, value, place):
        return {name: self.value(one, f"{place}.{name}") for name, one in value.items()}

    def _array(self, value, place):
        if value.dtype.kind == "O":
            entries = self._list(value.ravel().tolist(), place)
            return {"objects": entries, "shape": list(value.shape)}
        value = file_format.as_stored(value)
        if type(value) is not np.ndarray or not file_format.is_plain(value.dtype):
            raise _refused(f"an array of dtype {value.dtype}", place)
        if file_format.is_small(value):
            return {"array": value.dtype.str, "values": value.tolist()}
        return {
            "array": value.dtype.str,
            "shape": list(value.shape),
            "fortran": value.flags.fnc,
            "member": self._member(file_format.as_member(value), ARRAY),
        }

    def _member(self, content: bytes, ending: str) -> str:
        digest = digest_of(content)
        self.members[digest + ending] = content
        return digest

    def _masked(self, value, place):
        return {
            "masked": self._array(value.data, place),
            "mask": self._array(np.ma.getmaskarray(value), place),
        }

    def _random_state(self, value, place):
        return {"random_state": self.value(value.get_state(legacy=False), place)}

    def _scorer(self, value, place):
        listed = getattr(scoring, value.__name__, None)
        if getattr(listed, "function", None) is not value.function:
            raise _refused(f"the scorer {value.__name__}", place)
        return {
            "scorer": value.__name__,
            "options": self.value(value.options, place),
            "weight_request": self.value(value._weight_request, place),
        }

    def _object(self, value, place):
        kind = kind_of(value)
        if kind is None:
            return self._foreign(value, place)
        params = {name: getattr(value, name) for name in kind.params}
        return {
            "object": kind.name,
            "params": self._attributes(params, place),
            "state": self._state(value, kind, params, place),
        }

    def _foreign(self, value, place):
        if listed := function_name(value):
            return {"function": listed}
        kind = type(value)
        what = f"an object of {kind.__module__}.{kind.__qualname__}"
        name = getattr(value, "__qualname__", "")  # of a function
        is_own = kind.__module__.partition(".")[0] == "skbayesnn"
        is_known = callable(value) or any(
            hasattr(value, method) for method in ("get_params", "split")
        )
        is_local = "<" in name + kind.__qualname__  # <lambda>, <locals>
        if is_own or is_local or not is_known:
            raise _refused(f"{what} {name}".rstrip(), place)
        try:
            content = foreign.stored(value)
        except ImportError:
            raise
        # What skops raises for what it cannot store is not one kind of error.
        except Exception as error:
            what = f"{what}, which skops cannot store ({error})"
            raise _refused(what, place) from error
        return {"skops": self._member(content, FOREIGN)}

    def _state(self, value, kind: Kind, params, place):
        if not kind.has_state:
            return {}
        state = value.__getstate__()
        kept = kind.kept(state)
        unknown = [name for name in kept if not kind.may_have(name)]
        if unknown:
            raise _refused(f"the attribute {unknown[0]!r}", place)
        document = self._attributes(kept, place)
        if METADATA_REQUEST in state:
            document[METADATA_REQUEST] = self.value(requests_of(value), place)
        return document


# ---- decode

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# Arrays may take so many bytes, and so many more per byte of the members. Several
# attributes may name the same member, and each gets a copy.
_BYTES, _BYTES_PER_BYTE = 1 << 26, 20
_WORDS = 624  # of the state of NumPy's RandomState


def decoded(
    document: Any,
    members: dict[str, bytes],
    sklearn_version: str,
    trusted: Collection[str],
    *,
    all_params: bool,
):
    """Undo ``encoded``; raises an error for what it cannot have made.

    sklearn_version : of which scikit-learn its objects were
    trusted : types that parts stored by skops may be of
    all_params : whether no parameter may be missing, as those of later versions are
    """
    decoder = _Decoder(members, sklearn_version, trusted, all_params)
    model = decoder.value(document)
    unused = members.keys() - decoder.used
    if unused:
        raise ValueError(f"nothing in the model is stored as {unused.pop()}.")
    return model


class _Decoder:
    """A method for each kind of object."""

    def __init__(self, members, sklearn_version, trusted, all_params):
        self._members: dict[str, bytes] = members
        self._made_with, self._all_params = sklearn_version, all_params
        self._trusted = trusted
        self._bytes_left = _BYTES + _BYTES_PER_BYTE * sum(map(len, members.values()))
        self.used: set[str] = set()

    def value(self, document: Any) -> Any:
        """What a document is of."""
        if isinstance(document, list):
            return [self.value(one) for one in document]
        if not isinstance(document, dict):
            return document
        decode = _DECODERS.get(tuple(document))
        if decode is None:
            raise ValueError(f"no object has the names {list(document)}.")
        return decode(self, *document.values())

    def of_float(self, text):
        """What JSON has no number for."""
        return _FLOATS[text]

    def of_tuple(self, values):
        """Of a list."""
        return tuple(self._list(values))

    def of_dict(self, values):
        """With names as keys."""
        return self._by_name(values)

    def of_items(self, values):
        """A dict with keys of any kind."""
        return dict(self._list(values))

    def of_scalar(self, of_array):
        """NumPy's, of an array without axes."""
        return self.value(checked(of_array, dict))[()]

    def of_few(self, dtype, values):
        """A small array."""
        found = file_format.of_few(dtype, values)
        self._count_bytes(found.nbytes)
        return found

    def of_member(self, dtype, shape, fortran, digest):
        """An array of its own member."""
        content = self._member(digest, ARRAY)
        self._count_bytes(len(content))
        return file_format.of_member(content, dtype, shape, fortran)

    def of_skops(self, digest):
        """What skops has stored."""
        return foreign.loaded(self._member(digest, FOREIGN), self._trusted)

    def of_function(self, name):
        """One of NumPy's that scikit-learn's transformers are often made of."""
        if name not in FUNCTIONS:
            raise ValueError(
                f"it names the function {name!r}, which is none of save's."
            )
        return FUNCTIONS[name]

    def of_objects(self, values, shape):
        """An array of strings, or whatever a grid has."""
        values = self._list(values)
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found.reshape(shape)

    def of_masked(self, values, mask):
        """A masked array."""
        values, mask = self.value(values), self.value(mask)
        if values.shape != mask.shape:
            raise ValueError(f"a mask of shape {mask.shape} is on {values.shape}.")
        return np.ma.MaskedArray(values, mask)

    def of_random_state(self, state):
        """NumPy's generator, where it was."""
        state = checked(self.value(state), dict)
        _check_generator(state)
        random = np.random.RandomState(0)
        random.set_state(state)
        return random

    def of_device(self, name):
        """torch's."""
        return torch.device(checked(name, str))

    def of_scorer(self, name, options, weight_request):
        """One of ``skbayesnn.scoring``."""
        listed = getattr(scoring, name) if name in scoring.__all__ else None
        scorer = checked(listed, scoring.Scorer).with_options(**self.value(options))
        scorer._weight_request = self.value(weight_request)
        return scorer

    def of_object(self, name, params, state):
        """Of a class of the allow-list: constructed, filled, checked."""
        kind = KINDS.get(name)
        if kind is None:
            raise ValueError(f"it names the class {name!r}, which is none of save's.")
        params, state = self._by_name(params), self._by_name(state)
        unknown = [one for one in params if one not in kind.params]
        unknown += [
            one for one in state if one != METADATA_REQUEST and not kind.may_have(one)
        ]
        if unknown:
            raise ValueError(f"{name} has no {unknown[0]!r}.")
        missing = [one for one in kind.params if one not in params]
        if missing and self._all_params:
            raise ValueError(f"the parameter {missing[0]!r} of {name} is missing.")
        model = kind.type(**params)
        self._fill(model, kind, state)
        kind.check(model)
        return model

    def _fill(self, model, kind: Kind, state):
        requests = state.pop(METADATA_REQUEST, None)
        if state:
            kind.fill(model, state, self._made_with)
        if requests is not None:
            set_requests(model, requests)

    def _member(self, digest, ending: str) -> bytes:
        name = checked(digest, str) + ending
        if name not in self._members:
            raise ValueError(f"{name} is missing.")
        self.used.add(name)
        return self._members[name]

    def _count_bytes(self, n_bytes: int) -> None:
        self._bytes_left -= n_bytes
        if self._bytes_left < 0:
            raise ValueError(
                "its arrays must not take many times the size of the file; it names "
                "the same members too often."
            )

    def _list(self, values) -> list:
        return self.value(checked(values, list))

    def _by_name(self, values) -> dict[str, Any]:
        return {n: self.value(one) for n, one in checked(values, dict).items()}


_DECODERS: dict[tuple[str, ...], Callable] = {
    ("float",): _Decoder.of_float,
    ("tuple",): _Decoder.of_tuple,
    ("dict",): _Decoder.of_dict,
    ("items",): _Decoder.of_items,
    ("scalar",): _Decoder.of_scalar,
    ("array", "values"): _Decoder.of_few,
    ("array", "shape", "fortran", "member"): _Decoder.of_member,
    ("objects", "shape"): _Decoder.of_objects,
    ("masked", "mask"): _Decoder.of_masked,
    ("skops",): _Decoder.of_skops,
    ("function",): _Decoder.of_function,
    ("random_state",): _Decoder.of_random_state,
    ("device",): _Decoder.of_device,
    ("scorer", "options", "weight_request"): _Decoder.of_scorer,
    ("object", "params", "state"): _Decoder.of_object,
}


def _check_generator(state: dict[str, Any]) -> None:
    """Refuse a state with which NumPy would read beyond it; ``set_state`` does not."""
    twister = checked(state.get("state"), dict)
    key, pos = twister.get("key"), twister.get("pos")
    has_gauss, gauss = state.get("has_gauss"), state.get("gauss")
    if not (
        state.keys() == {"bit_generator", "state", "has_gauss", "gauss"}
        and twister.keys() == {"key", "pos"}
        and state["bit_generator"] == "MT19937"
        and isinstance(key, np.ndarray)
        and (key.dtype, key.shape) == (np.dtype(np.uint32), (_WORDS,))
        # Zeros make only zeros, and some methods then never return.
        and key.any()
        and integer(0, _WORDS).holds(pos)
        and integer(0, 1).holds(has_gauss)
        and isinstance(gauss, float)
        and math.isfinite(gauss)
    ):
        raise ValueError(
            f"the state of a RandomState must be {_WORDS} words, not all zero, with a "
            f"position from 0 to {_WORDS}, has_gauss 0 or 1 and a finite gauss; got "
            f"position {pos!r:.20}, has_gauss {has_gauss!r:.20}, gauss {gauss!r:.20} "
            f"and the words {key!r:.60}."
        )
