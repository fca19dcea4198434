"""The table of automatic defaults is complete, and shown in the documentation."""

import inspect
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import skbayesnn
from skbayesnn.estimators import _defaults
from skbayesnn.estimators._base import BayesianNetwork
from skbayesnn.estimators._defaults import DEFAULTS, AutoDefaults, defaults_of
from tools.defaults import PAGE, page_with_table

NETWORKS = {
    name: kind
    for name in skbayesnn.__all__
    if inspect.isclass(kind := getattr(skbayesnn, name))
    and issubclass(kind, BayesianNetwork)
}


def test_every_estimator_has_a_row():
    assert DEFAULTS.keys() == NETWORKS.keys()


def test_every_field_is_used():
    """By the functions of the module, or by the estimators."""
    folder = Path(_defaults.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    unused = [
        field.name for field in fields(AutoDefaults) if f".{field.name}" not in text
    ]
    assert not unused


def test_subclasses_inherit_the_defaults():
    class Subclass(skbayesnn.BBBClassifier):
        pass

    assert defaults_of(Subclass()) == DEFAULTS["BBBClassifier"]


@pytest.mark.parametrize("kind", ["MCDropout", "VariationalDropout"])
def test_learned_rates_change_some_defaults(kind):
    estimator = NETWORKS[f"{kind}Regressor"]
    plain = DEFAULTS[f"{kind}Regressor"]
    learned = replace(plain, **plain.learned_rates)
    rates = {"MCDropout": ("auto", 0.1), "VariationalDropout": (0.1, 0.0)}[kind]
    assert defaults_of(estimator(dropout=rates[0])) == learned
    assert defaults_of(estimator(dropout=rates[1])) == plain


@pytest.mark.parametrize(
    ("name", "n_rows", "expected"),
    [
        # sqrt of (4, 50, 50), at most max(min(4, sqrt(N) / 2), sqrt(N) / 3).
        ("MCDropoutRegressor", 36, [2, 3, 3]),
        ("MCDropoutRegressor", 100, [2, 4, 4]),
        ("MCDropoutRegressor", 900, [2, np.sqrt(50), np.sqrt(50)]),
        ("BBBRegressor", 36, [2, np.sqrt(50), np.sqrt(50)]),
        ("MCDropoutClassifier", 36, [1, 1, 1]),
        # The first layer is divided by max(3 / 2, 0.5), the last by 3 or 10.
        ("AnchoredEnsembleRegressor", 36, [4 / 3, np.sqrt(50), np.sqrt(50) / 3]),
        ("AnchoredEnsembleClassifier", 36, [4 / 3, np.sqrt(50), np.sqrt(50) / 10]),
    ],
)
def test_length_scales_equal_those_computed_by_hand(name, n_rows, expected):
    scales = DEFAULTS[name].length_scale.scales((4, 50, 50), n_rows)
    np.testing.assert_allclose(scales, expected)


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is missing")
def test_documentation_shows_the_table():
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with_table(page)
