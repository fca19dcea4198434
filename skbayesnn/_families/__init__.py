"""Variational families q(W, b) of one affine map, one file each, and their table.

A family has four functions (see :class:`skbayesnn._families.base.Family`):

===========  ==================================================================
function     what it does
===========  ==================================================================
``init``     start weights (members, inputs, outputs) and biases -> params
``linear``   one stochastic affine map, noise per row (training):
             (members or 1, rows, inputs) -> (members, rows, outputs)
``draw``     weights and biases of whole networks, one draw serves all rows
             (prediction): -> (draws, members, inputs, outputs), and biases
``kl``       KL(q || prior) in nats -> (members,)
===========  ==================================================================

Noise and prior are arguments, so that a family never holds a generator. What may
differ between the members of a program comes in with ``keep`` and the prior; what
is the same for all of them is a field of the family.
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
    """Its name in the table and its options, plain values."""
    [name] = [name for name, kind in FAMILIES.items() if type(family) is kind]
    options = {key: value for key, value in asdict(family).items() if value is not None}
    return {"name": name} | options


def family_from(about: dict[str, Any]) -> Family:
    """Undo ``describe_family``."""
    options = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in about.items()
        if key != "name"
    }
    return FAMILIES[about["name"]](**options)


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
