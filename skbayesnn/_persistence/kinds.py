"""What a class is to a file: its parameters, its fitted attributes, their rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from inspect import signature
from typing import Any, TypeVar

from skbayesnn._persistence.rules import Rules
from skbayesnn._settings import imported
from skbayesnn._sklearn_compat import METADATA_REQUEST, STATE_VERSION

T = TypeVar("T")
# What an interrupted fit has left behind, and what a file says once for all.
_NOT_KEPT = {"_unfinished", STATE_VERSION, METADATA_REQUEST}


def checked(value: Any, kind: type[T]) -> T:
    """``value``, if it is of a type.

    Raises
    ------
    ValueError
    """
    if not isinstance(value, kind):
        raise ValueError(f"there must be a {kind.__name__}; got {value!r}.")
    return value


@dataclass(frozen=True)
class Kind:
    """A class, what a fitted object of it has, and whether that fits together.

    Parameters
    ----------
    module, class_name : str
        Where users import it from.
    fitted : rules by name
        Attributes that all fitted ones have.
    others : rules by name
        Attributes that they may have, and parameters that have a rule.
    agrees : callable
        Raises an error for attributes that do not fit together.
    derived : dict of str to callable
        Attributes that follow from the others, and are in no file.
    has_state : bool
        Whether there are attributes beside the parameters.
    """

    module: str
    class_name: str
    fitted: Rules = field(default_factory=dict)
    others: Rules = field(default_factory=dict)
    agrees: Callable[[Any], None] | None = None
    derived: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    has_state: bool = True

    @property
    def name(self) -> str:
        """In files: with the package, if that is another."""
        root = self.module.partition(".")[0]
        return self.class_name if root == "skbayesnn" else f"{root}.{self.class_name}"

    @cached_property
    def type(self) -> Any:
        """The class itself; a constant of this file is imported."""
        return getattr(imported(self.module), self.class_name)

    @property
    def is_there(self) -> bool:
        """Whether its package is installed."""
        return find_spec(self.module.partition(".")[0]) is not None

    @cached_property
    def params(self) -> tuple[str, ...]:
        """Of the constructor, which does no more than to store them."""
        return tuple(signature(self.type).parameters)

    def may_have(self, name: str) -> bool:
        """Whether a fitted object may have an attribute."""
        return self.has_state and (name in self.fitted or name in self.others)

    def kept(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of a state that a file keeps, without the parameters."""
        others = {*self.params, *self.derived, *_NOT_KEPT}
        return {name: value for name, value in state.items() if name not in others}

    def fill(self, model, state: dict[str, Any], sklearn_version: str) -> None:
        """Give a constructed object its fitted attributes, as unpickling does."""
        missing = self.fitted.keys() - state.keys()
        if missing:
            raise ValueError(f"{self.name} has no attribute {min(missing)!r}.")
        if self.module.startswith("sklearn."):
            state = state | {STATE_VERSION: sklearn_version}
        if hasattr(model, "__setstate__"):
            model.__setstate__(vars(model) | state)
        else:
            vars(model).update(state)
        for name, follows in self.derived.items():
            setattr(model, name, follows(model))

    def check(self, model) -> None:
        """Refuse attributes that no rule is for, break theirs, or do not fit together.

        Raises
        ------
        ValueError
            And whatever a network of the wrong shapes raises.
        """
        state = model.__getstate__() or {}
        unknown = [
            n for n in self.kept(state) if self.has_state and not self.may_have(n)
        ]
        if unknown:
            raise ValueError(f"{self.name} has no {unknown[0]!r}.")
        for name, rule in {**self.fitted, **self.others}.items():
            value = state.get(name, rule)
            if value is not rule and not rule.holds(value):
                raise ValueError(
                    f"`{name}` of {self.name} must be {rule.what}; got {value!r:.200}."
                )
        if self.agrees is not None:
            self.agrees(model)
