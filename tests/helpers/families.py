"""Every family of the table with its options, under every prior it is used with.

A new family is included automatically with its defaults; add its options below.
"""

from dataclasses import dataclass, fields, replace
from itertools import product

from skbayesnn._families import FAMILIES, Family
from skbayesnn._families.variational_dropout import Variational

# Options that are tested in addition to the defaults, by the family's name.
OPTIONS = {
    "mean_field": [
        {"spike": spike, "shared_draw": shared_draw, "sampled_kl": sampled_kl}
        for spike, shared_draw, sampled_kl in product([False, True], repeat=3)
    ],
    "fixed_width": [{"spike": True, "sigma": 0.2}, {"shared_draw": True}],
    "variational_independent": [
        {"alpha": alpha, "approximation": approximation}
        for alpha, approximation in product(
            ["layer", "unit", "weight"], ["kingma", "molchanov"]
        )
    ],
    "variational_correlated": [
        {"alpha": alpha, "approximation": approximation}
        for alpha, approximation in product(["layer", "unit"], ["kingma", "molchanov"])
    ],
}


def _priors(family: Family) -> list[str]:
    """Keys of ``PRIORS`` for which the family has a KL."""
    name = name_of(family)
    if name == "mean_field":
        mixture = ["scale_mixture"] if family.sampled_kl else []
        return ["gaussian", "previous", *mixture]
    if name == "variational_independent":
        return ["log_uniform", "gaussian"]
    if name == "point":  # also layers without dropout in a network with dropout
        return ["gaussian", "discrete", "log_uniform", "anchored"]
    if name == "bernoulli":
        return ["gaussian", "discrete", "anchored"]
    if name in ("concrete", "dropconnect"):
        return ["gaussian", "discrete"]
    return ["log_uniform"] if isinstance(family, Variational) else ["gaussian"]


def name_of(family: Family) -> str:
    """The family's key in the table."""
    [name] = [name for name, kind in FAMILIES.items() if type(family) is kind]
    return name


def _without(family: Family, *names: str) -> Family:
    """The family with the defaults of some options."""
    defaults = {f.name: f.default for f in fields(family) if f.name in names}
    return replace(family, **defaults)


@dataclass(frozen=True)
class Case:
    """A family and the prior of its KL, a key of ``PRIORS``."""

    family: Family
    prior: str

    def __str__(self):
        return f"{label(self.family)} {self.prior}"


def label(family: Family) -> str:
    """The family's name and options, for the names of tests."""
    options = {f.name: getattr(family, f.name) for f in fields(family)}
    options_shown = [
        (key if value else "") if isinstance(value, bool) else str(value or "")
        for key, value in options.items()
    ]
    return " ".join([name_of(family), *filter(None, options_shown)])


VARIANTS = list(
    dict.fromkeys(
        [
            *(kind() for kind in FAMILIES.values()),
            *(
                FAMILIES[name](**options)
                for name, variants in OPTIONS.items()
                for options in variants
            ),
        ]
    )
)
CASES = [Case(family, prior) for family in VARIANTS for prior in _priors(family)]

# One family for each law of the weights and way of training, whatever the computation
# of the KL.
LAWS = list(
    dict.fromkeys(
        _without(family, "sampled_kl", "approximation") for family in VARIANTS
    )
)
