"""A document and members -> a model, of classes of the allow-list only.

Nothing that a document names is imported or called: names are looked up in tables.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from skbayesnn import scoring
from skbayesnn._persistence import arrays
from skbayesnn._persistence.kinds import Kind, checked
from skbayesnn._persistence.table import KINDS
from skbayesnn._sklearn_compat import METADATA_REQUEST, set_requests

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def decoded(
    document: Any, members: dict[str, bytes], sklearn_version: str, *, all_params: bool
):
    """Undo ``encoded``; raises an error for what it cannot have made.

    sklearn_version : of which scikit-learn its objects were
    all_params : whether no parameter may be missing, as those of later versions are
    """
    decoder = _Decoder(members, sklearn_version, all_params)
    model = decoder.value(document)
    unused = members.keys() - decoder.used
    if unused:
        raise ValueError(f"no array of the model is {unused.pop()}.npy.")
    return model


class _Decoder:
    """A method for each kind of object."""

    def __init__(self, members, sklearn_version, all_params):
        self._members: dict[str, bytes] = members
        self._made_with, self._all_params = sklearn_version, all_params
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
        return arrays.of_few(dtype, values)

    def of_member(self, dtype, shape, fortran, digest):
        """An array of its own member."""
        if digest not in self._members:
            raise ValueError(f"the array {digest}.npy is missing.")
        self.used.add(digest)
        return arrays.of_member(self._members[digest], dtype, shape, fortran)

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
        random = np.random.RandomState(0)
        random.set_state(checked(self.value(state), dict))
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
    ("random_state",): _Decoder.of_random_state,
    ("device",): _Decoder.of_device,
    ("scorer", "options", "weight_request"): _Decoder.of_scorer,
    ("object", "params", "state"): _Decoder.of_object,
}
