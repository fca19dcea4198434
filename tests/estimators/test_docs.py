"""Docstrings of the estimators are complete, and agree with the constructors."""

import inspect
import re

import pytest

import skbayesnn
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._docs import complete_docstrings, entries_of

NETWORKS = [
    kind
    for kind in (getattr(skbayesnn, name) for name in skbayesnn.__all__)
    if inspect.isclass(kind) and issubclass(kind, BayesianNetwork)
]


def documented(kind):
    """Header of the entry of each parameter, by name."""
    return {
        name.strip(): header
        for header in entries_of(inspect.getdoc(kind), "Parameters")
        for name in header.split(" : ")[0].split(",")
    }


def as_shown(value):
    """Notations of a default in a header: 0.0 is "0", strings have quotes."""
    if isinstance(value, str):
        return {f'"{value}"'}
    shown = {repr(value)}
    if isinstance(value, float):
        shown |= {f"{value:g}", f"{value:.0e}".replace("e-0", "e-")}
    return shown


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_parameter_is_documented_once_with_its_default(kind):
    headers = documented(kind)
    parameters = inspect.signature(kind).parameters
    assert headers.keys() == parameters.keys()
    wrong = []
    for name, parameter in parameters.items():
        default = re.search(r"default=(.*)$", headers[name])
        if default is None:
            wrong.append(f"{name}: no default")
        elif " and " in default[1]:  # several parameters
            names = headers[name].split(" : ")[0].split(", ")
            values = dict(zip(names, default[1].split(" and "), strict=True))
            if float(values[name]) != parameter.default:
                wrong.append(f"{name}: {values[name]}, not {parameter.default}")
        elif default[1] not in as_shown(parameter.default):
            wrong.append(f"{name}: {default[1]}, not {parameter.default!r}")
    assert not wrong


@pytest.mark.parametrize("kind", NETWORKS)
def test_first_paragraphs_contain_use_and_cost(kind):
    summary, advice, *_ = inspect.getdoc(kind).split("\n\n")
    assert "\n" not in summary and summary.endswith(".")
    assert advice.startswith("Use it ") and "A fit " in advice


def test_references_are_replaced_by_the_entries():
    class Other:
        """Other.

        Parameters
        ----------
        a, b : int, default=1
            Both.
        c : str
            Of c,

            two paragraphs.

        Examples
        --------
        >>> 1
        1
        """

    class One:
        """One.

        Parameters
        ----------
        d : float
            Its own.
        a, b, c
            As in :class:`Other`.

        Attributes
        ----------
        e : int
            As in :class:`Other`, but different.
        """

    complete_docstrings([One, Other])
    expected = "d : float\n    Its own.\na, b : int, default=1\n    Both.\n"
    expected += "c : str\n    Of c,\n\n    two paragraphs.\n\nAttributes"
    assert expected in One.__doc__
    assert "As in :class:`Other`, but different." in One.__doc__
    assert ">>> 1" in Other.__doc__
