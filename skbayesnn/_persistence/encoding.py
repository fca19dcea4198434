"""A model -> a document of JSON's values, and the members with its arrays.

None, booleans, integers, finite numbers, strings and lists are JSON's own. All else is
an object, whose names tell what it is: ``decoding.py`` has a table of them.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from skbayesnn import scoring
from skbayesnn._persistence import arrays
from skbayesnn._persistence.kinds import Kind
from skbayesnn._persistence.table import kind_of
from skbayesnn._sklearn_compat import METADATA_REQUEST, STATE_VERSION, requests_of

# What an interrupted fit has left behind, and what a file says once for all.
_NOT_KEPT = {"_unfinished", STATE_VERSION, METADATA_REQUEST}


def encoded(model) -> tuple[Any, dict[str, bytes]]:
    """The document of a model, and its members by their checksums.

    Raises
    ------
    ValueError
        For what no file can hold, with its place.
    """
    encoder = _Encoder()
    return encoder.value(model, type(model).__name__), encoder.members


def _refused(what: str, place: str) -> ValueError:
    return ValueError(
        "a file holds numbers, strings, arrays, and what skbayesnn and a few classes "
        f"of scikit-learn are made of; got {what} in {place}. Take it off, save the "
        "estimator inside, or store the whole by skops.io.dump and load it with "
        "trusted=skbayesnn.trusted_types() and the names of your own types."
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
        value = arrays.as_stored(value)
        if type(value) is not np.ndarray or not arrays.is_plain(value.dtype):
            raise _refused(f"an array of dtype {value.dtype}", place)
        if arrays.is_small(value):
            return {"array": value.dtype.str, "values": value.tolist()}
        digest, content = arrays.as_member(value)
        self.members[digest] = content
        return {
            "array": value.dtype.str,
            "shape": list(value.shape),
            "fortran": value.flags.fnc,
            "member": digest,
        }

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
            kind_of_value = type(value)
            name = f"{kind_of_value.__module__}.{kind_of_value.__qualname__}"
            raise _refused(f"an object of {name}", place)
        params = {name: getattr(value, name) for name in kind.params}
        return {
            "object": kind.name,
            "params": self._attributes(params, place),
            "state": self._state(value, kind, params, place),
        }

    def _state(self, value, kind: Kind, params, place):
        if not kind.has_state:
            return {}
        state = value.__getstate__()
        kept = {
            n: v
            for n, v in state.items()
            if n not in {*params, *kind.derived, *_NOT_KEPT}
        }
        unknown = [name for name in kept if not kind.may_have(name)]
        if unknown:
            raise _refused(f"the attribute {unknown[0]!r}", place)
        document = self._attributes(kept, place)
        if METADATA_REQUEST in state:
            document[METADATA_REQUEST] = self.value(requests_of(value), place)
        return document
