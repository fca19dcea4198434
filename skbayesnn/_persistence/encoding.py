"""A model -> a document of JSON's values, and the members with its arrays.

None, booleans, integers, finite numbers, strings and lists are JSON's own. All else is
an object, whose names tell what it is: ``decoding.py`` has a table of them. Estimators,
functions and splitters of other packages are members that skops stores.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from skbayesnn import scoring
from skbayesnn._persistence import arrays, foreign
from skbayesnn._persistence.archive import ARRAY, FOREIGN, digest_of
from skbayesnn._persistence.kinds import Kind
from skbayesnn._persistence.table import function_name, kind_of
from skbayesnn._sklearn_compat import METADATA_REQUEST, requests_of


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
        value = arrays.as_stored(value)
        if type(value) is not np.ndarray or not arrays.is_plain(value.dtype):
            raise _refused(f"an array of dtype {value.dtype}", place)
        if arrays.is_small(value):
            return {"array": value.dtype.str, "values": value.tolist()}
        return {
            "array": value.dtype.str,
            "shape": list(value.shape),
            "fortran": value.flags.fnc,
            "member": self._member(arrays.as_member(value), ARRAY),
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
