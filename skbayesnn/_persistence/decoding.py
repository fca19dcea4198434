"""A document and members -> a model.

Names in a document are looked up in tables; none of them is imported or called. Parts
that skops has stored are the exception: it imports the types that a user trusts.
"""

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch

from skbayesnn import scoring
from skbayesnn._persistence import arrays, foreign
from skbayesnn._persistence.archive import ARRAY, FOREIGN
from skbayesnn._persistence.kinds import Kind, checked
from skbayesnn._persistence.rules import integer
from skbayesnn._persistence.table import FUNCTIONS, KINDS
from skbayesnn._sklearn_compat import METADATA_REQUEST, set_requests

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
        found = arrays.of_few(dtype, values)
        self._count_bytes(found.nbytes)
        return found

    def of_member(self, dtype, shape, fortran, digest):
        """An array of its own member."""
        content = self._member(digest, ARRAY)
        self._count_bytes(len(content))
        return arrays.of_member(content, dtype, shape, fortran)

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
