"""Fitted state that is taken over at once.

While one thread fits an estimator again, others may predict with it or pickle it: they
see the fit before or the one after, and nothing in between. A fit works on a twin,
whose attributes then replace the estimator's in one assignment; what reads several
attributes reads those of a twin, too.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from skbayesnn._settings import undisturbed

P = ParamSpec("P")
R = TypeVar("R")


def twin_of(estimator):
    """The estimator as it is now, with attributes of its own."""
    twin = object.__new__(type(estimator))
    vars(twin).update(vars(estimator))
    return twin


def prediction(method: Callable[P, R]) -> Callable[P, R]:
    """A method that sees neither other threads' fits nor what its caller has set."""

    @undisturbed
    @wraps(method)
    def of_one_fit(*args: P.args, **kwargs: P.kwargs) -> R:
        estimator, *others = args
        return method(twin_of(estimator), *others, **kwargs)  # type: ignore[arg-type]

    return of_one_fit


@contextmanager
def changed_at_once(estimator) -> Iterator[Any]:
    """A twin to be fitted.

    In the end the estimator takes over what has changed of it; after an error nothing.
    """
    twin = twin_of(estimator)
    before = dict(vars(twin))
    yield twin
    after = vars(twin)
    changed = {n: v for n, v in after.items() if n not in before or before[n] is not v}
    _replace(estimator, before.keys() - after.keys(), changed)


def become(estimator, fitted: Mapping[str, Any]) -> None:
    """Fitted attributes in the place of those of an earlier fit."""
    earlier = {name for name in vars(estimator) if name.endswith("_")}
    _replace(estimator, earlier, fitted)


def _replace(estimator, removed, changed: Mapping[str, Any]) -> None:
    kept = {n: v for n, v in vars(estimator).items() if n not in removed}
    estimator.__dict__ = kept | dict(changed)
