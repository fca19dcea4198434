"""Variational families q(W, b) of one affine map, and the table of their names.

A family has four functions (see :class:`skbayesnn._families.base.Family`):

===========  ==================================================================
function     purpose
===========  ==================================================================
``init``     initial params, from weights (members, inputs, outputs) and biases
``linear``   one stochastic affine map with weights per row, for training;
             maps (members or 1, rows, inputs) to (members, rows, outputs)
``draw``     weights (draws, members, inputs, outputs) and biases of whole
             networks, for predictions; all rows share a draw
``kl``       KL(q || prior) in nats, (members,)
===========  ==================================================================

Random source and prior are arguments, so a family never holds a generator. Parameters
that may differ between the members of a program are in ``keep`` and the prior; options
that all members share are fields of the family.
"""

from dataclasses import asdict
from typing import Any

from skbayesnn._families.base import (
    Draw,
    Family,
    MaskLayout,
    Needed,
    Params,
    Pullback,
    RandomSource,
)
from skbayesnn._families.dropout import Bernoulli, Concrete, Gaussian
from skbayesnn._families.mean_field import FixedWidth, MeanField
from skbayesnn._families.point import Point
from skbayesnn._families.variational_dropout import Correlated, Independent
from skbayesnn._families.weight_noise import Additive, DropConnect

FAMILIES: dict[str, type[Family]] = {
    "point": Point,
    "bernoulli": Bernoulli,
    "gaussian": Gaussian,
    "dropconnect": DropConnect,
    "additive": Additive,
    "concrete": Concrete,
    "mean_field": MeanField,
    "fixed_width": FixedWidth,
    "variational_independent": Independent,
    "variational_correlated": Correlated,
}


def describe_family(family: Family) -> dict[str, Any]:
    """The name of a family in the table and its options, as plain values."""
    [name] = [
        name for name, family_class in FAMILIES.items() if type(family) is family_class
    ]
    options = {key: value for key, value in asdict(family).items() if value is not None}
    return {"name": name} | options


def family_from(description: dict[str, Any]) -> Family:
    """Inverse of ``describe_family``."""
    options = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in description.items()
        if key != "name"
    }
    return FAMILIES[description["name"]](**options)


__all__ = [
    "FAMILIES",
    "Additive",
    "Bernoulli",
    "Concrete",
    "Correlated",
    "Draw",
    "DropConnect",
    "Family",
    "FixedWidth",
    "Gaussian",
    "Independent",
    "MaskLayout",
    "MeanField",
    "Needed",
    "Params",
    "Point",
    "Pullback",
    "RandomSource",
    "describe_family",
    "family_from",
]
