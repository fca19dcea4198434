"""Bayesian neural networks that are ordinary scikit-learn estimators.

A public name is imported when it is used first. The stub next to this file has its
module.
"""

import ast as _ast
from importlib import import_module as _import_module
from pkgutil import get_data as _get_data

from skbayesnn._version import __version__ as __version__

_MODULES = {
    alias.name: node.module
    for node in _ast.parse(_get_data(__name__, "__init__.pyi") or "").body
    if isinstance(node, _ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(name for name, home in _MODULES.items() if home != __name__)
__all__.remove("__version__")


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _MODULES[name]
    if home == __name__:
        return _import_module(f"{home}.{name}")
    value = globals()[name] = getattr(_import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
