"""Encode a model as a JSON document and array members, and decode it.

JSON represents None, booleans, integers, finite floats, strings and lists. Every other
value is a JSON object with a tag; two tables below list the tags. skops stores
estimators, functions and splitters of other packages.

Decoding looks names up in tables. It imports and calls nothing by name, except that
skops imports the types that the user trusts.
"""

import math
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import torch

from skbayesnn import _stored as stored
from skbayesnn import scoring
from skbayesnn._persistence import file_format, foreign
from skbayesnn._persistence.file_format import ARRAY, FOREIGN, compute_digest
from skbayesnn._persistence.schema import (
    FUNCTIONS,
    STORED_CLASSES,
    StoredClass,
    checked,
    function_name,
    stored_class_of,
)
from skbayesnn._sklearn_compat import METADATA_REQUEST, requests_of, set_requests

# ---- encode


def encoded(model) -> tuple[Any, dict[str, bytes]]:
    """Document of a model, and its members by name.

    Raises
    ------
    ValueError
        If the model contains an object that cannot be saved. The message contains its
        path.
    """
    encoder = _Encoder()
    return encoder.value(model, type(model).__name__), encoder.members


def _cannot_save(what: str, place: str) -> ValueError:
    return ValueError(
        "a file can contain numeric values, strings, arrays, estimators and functions "
        f"with a name in a module; got {what} in {place}. Remove it, or store the "
        "model with joblib in a file that nobody else can write."
    )


class _Encoder:
    """Encodes values and collects their members; ``place`` is the path of a value."""

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
        """Encode a value."""
        if value is None or type(value) in (bool, int, str):
            return value
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value), place)}
        return self._of_type.get(type(value), self._object)(value, place)

    def _number(self, value, place):
        return value if math.isfinite(value) else {"float": repr(value)}

    def _list(self, values, place):
        return [self.value(value, f"{place}[{i}]") for i, value in enumerate(values)]

    def _dict(self, value, place):
        if not all(type(key) is str for key in value):
            return {"items": self._list(list(value.items()), place)}
        entries = {k: self.value(v, f"{place}[{k!r}]") for k, v in value.items()}
        return {"dict": entries}

    def _attributes(self, values, place):
        return {name: self.value(v, f"{place}.{name}") for name, v in values.items()}

    def _array(self, value, place):
        if value.dtype.kind == "O":
            entries = self._list(value.ravel().tolist(), place)
            return {"objects": entries, "shape": list(value.shape)}
        value = file_format.as_stored(value)
        if type(value) is not np.ndarray or not file_format.is_plain(value.dtype):
            raise _cannot_save(f"an array of dtype {value.dtype}", place)
        if file_format.is_small(value):
            return {"array": value.dtype.str, "values": value.tolist()}
        return {"member": self._member(file_format.as_member(value), ARRAY)}

    def _member(self, content: bytes, ending: str) -> str:
        digest = compute_digest(content)
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
            raise _cannot_save(f"the scorer {value.__name__}", place)
        return {
            "scorer": value.__name__,
            "options": self.value(value.options, place),
            "weight_request": self.value(value._weight_request, place),
        }

    def _object(self, value, place):
        stored_class = stored_class_of(value)
        if stored_class is None:
            return self._foreign(value, place)
        params = {name: getattr(value, name) for name in stored_class.params}
        return {
            "object": stored_class.name,
            "params": self._attributes(params, place),
            "state": self._state(value, stored_class, params, place),
        }

    def _foreign(self, value, place):
        if listed := function_name(value):
            return {"function": listed}
        value_type = type(value)
        what = f"an object of {value_type.__module__}.{value_type.__qualname__}"
        name = getattr(value, "__qualname__", "")  # functions have one
        is_own = value_type.__module__.partition(".")[0] == "skbayesnn"
        is_supported = callable(value) or any(
            hasattr(value, method) for method in ("get_params", "split")
        )
        is_local = "<" in name + value_type.__qualname__  # <lambda>, <locals>
        if is_own or is_local or not is_supported:
            raise _cannot_save(f"{what} {name}".rstrip(), place)
        try:
            content = foreign.stored(value)
        except ImportError:
            raise
        # skops raises several types of errors.
        except Exception as error:
            what = f"{what}, which skops cannot store ({error})"
            raise _cannot_save(what, place) from error
        return {"skops": self._member(content, FOREIGN)}

    def _state(self, value, stored_class: StoredClass, params, place):
        if not stored_class.attributes:
            return {}
        state = value.__getstate__()
        kept = stored_class.kept(state)
        for name in kept:
            if name not in stored_class.attributes:
                raise _cannot_save(f"the attribute {name!r}", place)
        document = self._attributes(kept, place)
        if METADATA_REQUEST in state:
            document[METADATA_REQUEST] = self.value(requests_of(value), place)
        return document


# ---- decode

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
# The arrays of a file have at most _BYTES + _BYTES_PER_BYTE times the size of its
# members. Several attributes may refer to the same member, and each gets a copy.
_BYTES = 1 << 26
_BYTES_PER_BYTE = 20
_WORDS = 624  # in the state of NumPy's RandomState


def decoded(
    document: Any,
    members: dict[str, bytes],
    sklearn_version: str,
    trusted: Collection[str],
):
    """Undo ``encoded``; raise an error for a document that it cannot have written.

    sklearn_version : version that saved the scikit-learn objects
    trusted : types that skops may construct
    """
    decoder = _Decoder(members, sklearn_version, trusted)
    model = decoder.value(document)
    unused = members.keys() - decoder.used
    if unused:
        raise ValueError(f"the model does not use the member {unused.pop()}.")
    return model


class _Decoder:
    """Decodes each tag by a method."""

    def __init__(self, members, sklearn_version, trusted):
        self._members: dict[str, bytes] = members
        self._version, self._trusted = sklearn_version, trusted
        self._bytes_left = _BYTES + _BYTES_PER_BYTE * sum(map(len, members.values()))
        self.used: set[str] = set()

    def value(self, document: Any) -> Any:
        """Decode a document."""
        if isinstance(document, list):
            return [self.value(item) for item in document]
        if not isinstance(document, dict):
            return document
        decode = _DECODERS.get(tuple(document))
        if decode is None:
            raise ValueError(f"no object has the names {list(document)}.")
        return decode(self, *document.values())

    def decode_float(self, text):
        """Decode NaN or infinity, which JSON lacks."""
        return _FLOATS[text]

    def decode_tuple(self, values):
        """Decode a tuple."""
        return tuple(self._list(values))

    def decode_dict(self, values):
        """Decode a dict with strings as keys."""
        return self._by_name(values)

    def decode_items(self, values):
        """Decode a dict with any keys, from a list of pairs."""
        return dict(self._list(values))

    def decode_scalar(self, array):
        """Decode a NumPy scalar, from an array without axes."""
        return self.value(checked(array, dict))[()]

    def decode_small_array(self, dtype, values):
        """Decode an array that the document contains."""
        array = file_format.small_array(dtype, values)
        self._count_bytes(array.nbytes)
        return array

    def decode_member(self, digest):
        """Decode an array with its own member."""
        content = self._member(digest, ARRAY)
        self._count_bytes(len(content))
        return file_format.member_array(content)

    def decode_skops(self, digest):
        """Decode an object that skops has stored."""
        return foreign.loaded(self._member(digest, FOREIGN), self._trusted)

    def decode_function(self, name):
        """Decode a NumPy function of a scikit-learn transformer."""
        if name not in FUNCTIONS:
            raise ValueError(
                f"it contains the function {name!r}, which skbayesnn.save does not "
                "write."
            )
        return FUNCTIONS[name]

    def decode_objects(self, values, shape):
        """Decode an array of objects, such as strings or parameters of a grid."""
        values = self._list(values)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array.reshape(shape)

    def decode_masked(self, values, mask):
        """Decode a masked array."""
        values, mask = self.value(values), self.value(mask)
        if values.shape != mask.shape:
            raise ValueError(
                f"a mask must have the shape of its array, {values.shape}; got "
                f"{mask.shape}."
            )
        return np.ma.MaskedArray(values, mask)

    def decode_random_state(self, state):
        """Decode a NumPy generator with its state."""
        state = self.value(state)
        _check_generator(state)
        random = np.random.RandomState(0)
        random.set_state(state)
        return random

    def decode_device(self, name):
        """Decode a torch device."""
        return torch.device(checked(name, str))

    def decode_scorer(self, name, options, weight_request):
        """Decode a scorer of ``skbayesnn.scoring``."""
        listed = getattr(scoring, name) if name in scoring.__all__ else None
        scorer = checked(listed, scoring.Scorer).with_options(**self.value(options))
        scorer._weight_request = self.value(weight_request)
        return scorer

    def decode_object(self, name, params, state):
        """Construct an object of a listed class, set its attributes, validate it."""
        stored_class = STORED_CLASSES.get(name)
        if stored_class is None:
            raise ValueError(
                f"it contains the class {name!r}, which skbayesnn.save does not write."
            )
        params, state = self._by_name(params), self._by_name(state)
        known = stored_class.attributes.keys() | {METADATA_REQUEST}
        for key in [*(params.keys() - stored_class.params), *(state.keys() - known)]:
            raise ValueError(f"{name} has no {key!r}.")
        for key in stored_class.params:
            if key not in params:
                raise ValueError(f"the parameter {key!r} of {name} is missing.")
        model = stored_class.type(**params)
        self._fill(model, stored_class, state)
        stored_class.check(model)
        return model

    def _fill(self, model, stored_class: StoredClass, state):
        requests = state.pop(METADATA_REQUEST, None)
        if state:
            stored_class.fill(model, state, self._version)
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
                "its arrays must not take many times the size of the file; it refers "
                "to the same members too often."
            )

    def _list(self, values) -> list:
        return self.value(checked(values, list))

    def _by_name(self, values) -> dict[str, Any]:
        return {k: self.value(v) for k, v in checked(values, dict).items()}


_DECODERS: dict[tuple[str, ...], Callable] = {
    ("float",): _Decoder.decode_float,
    ("tuple",): _Decoder.decode_tuple,
    ("dict",): _Decoder.decode_dict,
    ("items",): _Decoder.decode_items,
    ("scalar",): _Decoder.decode_scalar,
    ("array", "values"): _Decoder.decode_small_array,
    ("member",): _Decoder.decode_member,
    ("objects", "shape"): _Decoder.decode_objects,
    ("masked", "mask"): _Decoder.decode_masked,
    ("skops",): _Decoder.decode_skops,
    ("function",): _Decoder.decode_function,
    ("random_state",): _Decoder.decode_random_state,
    ("device",): _Decoder.decode_device,
    ("scorer", "options", "weight_request"): _Decoder.decode_scorer,
    ("object", "params", "state"): _Decoder.decode_object,
}


class _Twister(TypedDict):
    key: Annotated[
        np.ndarray,
        stored.Kinds("unsigned integers", "u"),
        str(_WORDS),
        stored.BITS_32,
        # A state of zeros generates only zeros, and some methods would never return.
        stored.Property("not all zero", np.any),
    ]
    pos: Annotated[int, stored.between(0, _WORDS)]


class _Generator(TypedDict):
    """State of a RandomState; NumPy does not check it, and would read beyond it."""

    bit_generator: Literal["MT19937"]
    state: _Twister
    has_gauss: Literal[0, 1]
    gauss: float


def _check_generator(state: Any) -> None:
    if not stored.rule_of(_Generator).holds(state, stored.Axes()):
        raise ValueError(
            f"the state of a RandomState must be {_WORDS} words, not all zero, with a "
            f"position from 0 to {_WORDS}, has_gauss 0 or 1 and a finite gauss; got "
            f"{state!r:.200}."
        )
