"""What ``"auto"`` means for each estimator: one table.

The documentation page of defaults shows this table (``python tools/defaults.py``).
Measurements behind the values are in ``docs/defaults.md``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

# Relative rounding error of a sum of weights.
_ROUNDING = 1e-9
# With fewer rows, classifiers select the length scale on held-out rows, and Bayes by
# Backprop estimates the observation noise on them.
_FEW_ROWS = 200
# With fewer rows, classifiers select the number of epochs on held-out rows. With more,
# classifiers that learn dropout rates stop early.
_MANY_ROWS = 5_000


@dataclass(frozen=True)
class LengthScaleRule:
    """``length_scale="auto"``.

    Parameters
    ----------
    text : str
        The rule as the documentation shows it.
    scales : callable
        Function of the inputs of every weight layer and N; returns (layers,).
    """

    text: str
    scales: Callable[[Sequence[int], float], np.ndarray]


def _at_most_by_rows(fan_ins, n_rows):
    # With few rows, a larger l would outweigh the data.
    root = math.sqrt(n_rows)
    return np.minimum(np.sqrt(fan_ins), max(min(4.0, root / 2), root / 3))


def _wide_ends(output_std: float) -> LengthScaleRule:
    """Fan-in scales, with wider priors of the first and the last layer.

    Away from the data, the ensemble's predictions follow its anchors.

    output_std : prior std of the outputs; y is standardised, logits are not
    """
    # Prior std of a first-layer unit with one input column; lower bound of that std
    # with many columns.
    one_column_std, first_std = 3.0, 0.5

    def scales(fan_ins, n_rows):
        scale = np.sqrt(fan_ins)
        scale[0] /= max(one_column_std / scale[0], first_std)
        scale[-1] /= output_std
        return scale

    return LengthScaleRule(
        f"sqrt(inputs), divided by max({one_column_std:g} / sqrt(inputs), "
        f"{first_std:g}) at the first layer and by {output_std:g} at the last",
        scales,
    )


FAN_IN = LengthScaleRule("sqrt(inputs)", lambda fan_ins, _: np.sqrt(fan_ins))
ONE = LengthScaleRule("1", lambda fan_ins, _: np.ones(len(fan_ins)))
BY_ROWS = LengthScaleRule(
    "sqrt(inputs), at most max(min(4, sqrt(N) / 2), sqrt(N) / 3)", _at_most_by_rows
)


@dataclass(frozen=True)
class AutoDefaults:
    """What ``"auto"`` means for an estimator; N is the sum of the weights.

    Parameters
    ----------
    steps_per_sqrt_n : int
        ``max_iter="auto"``: this number times sqrt(N) steps. Small tables need steps,
        not epochs.
    selects_epochs_below_n : float
        Below this N, held-out rows may select fewer epochs.
    early_stopping_from_n : float
        ``early_stopping="auto"``: from this N on, rows are held out.
    length_scale : LengthScaleRule
    length_scale_candidates : tuple of float
        Other scales that held-out rows may select.
    candidates_below_n : float
        Held-out rows select among the candidates below this N.
    candidates_need_auto_tau : bool
        Whether a given tau turns the selection off: ``weight_decay_`` is proportional
        to l^2 / tau, so that another tau has the effect of another scale.
    estimates_noise_below_n : float
        ``tau="auto"``: below this N, held-out rows estimate the observation noise,
        whatever the method does with more rows.
    hidden_layer_sizes : tuple of (float, tuple of int)
        ``hidden_layer_sizes="auto"``: sizes up to each N; empty if the estimator has
        no "auto".
    can_collapse : bool
        Whether the KL may outweigh the data, so that a fit must be as good as a linear
        model.
    learned_rates : mapping
        Values that replace the above if dropout rates are learned.
    """

    steps_per_sqrt_n: int = 100
    selects_epochs_below_n: float = 0
    early_stopping_from_n: float = math.inf
    length_scale: LengthScaleRule = FAN_IN
    length_scale_candidates: tuple[float, ...] = ()
    candidates_below_n: float = math.inf
    candidates_need_auto_tau: bool = False
    estimates_noise_below_n: float = 0
    hidden_layer_sizes: tuple[tuple[float, tuple[int, ...]], ...] = ()
    can_collapse: bool = False
    learned_rates: Mapping[str, Any] = field(default_factory=dict)


_CLASSES = AutoDefaults(
    selects_epochs_below_n=_MANY_ROWS,
    length_scale=ONE,
    length_scale_candidates=(0.3, 3.0),
    candidates_below_n=_FEW_ROWS,
)
_WIDTHS = ((100, (10,)), (200, (20,)), (3000, (20, 20)), (math.inf, (50, 50)))

DEFAULTS: dict[str, AutoDefaults] = {
    "MCDropoutRegressor": AutoDefaults(
        length_scale=BY_ROWS,
        length_scale_candidates=(4.0, 1.0),
        candidates_need_auto_tau=True,
        learned_rates={"selects_epochs_below_n": math.inf},
    ),
    "MCDropoutClassifier": replace(
        _CLASSES,
        steps_per_sqrt_n=40,
        learned_rates={"steps_per_sqrt_n": 20, "early_stopping_from_n": _MANY_ROWS},
    ),
    "BBBRegressor": AutoDefaults(
        estimates_noise_below_n=_FEW_ROWS,
        hidden_layer_sizes=_WIDTHS,
        can_collapse=True,
    ),
    "BBBClassifier": replace(_CLASSES, selects_epochs_below_n=0, can_collapse=True),
    "VariationalDropoutRegressor": AutoDefaults(
        can_collapse=True, learned_rates={"selects_epochs_below_n": math.inf}
    ),
    "VariationalDropoutClassifier": replace(
        _CLASSES,
        steps_per_sqrt_n=20,
        early_stopping_from_n=_MANY_ROWS,
        can_collapse=True,
    ),
    "VariationalGPRegressor": AutoDefaults(),
    "AnchoredEnsembleRegressor": AutoDefaults(length_scale=_wide_ends(3.0)),
    "AnchoredEnsembleClassifier": replace(
        _CLASSES, length_scale=_wide_ends(10.0), length_scale_candidates=()
    ),
}


def defaults_of(estimator) -> AutoDefaults:
    """Return the defaults of an estimator's class or nearest base.

    Raises
    ------
    TypeError
        If neither the class nor a base is in ``DEFAULTS``.
    """
    names = [base.__name__ for base in type(estimator).__mro__]
    defaults = next((DEFAULTS[name] for name in names if name in DEFAULTS), None)
    if defaults is None:
        raise TypeError(
            "an estimator's class or one of its bases must have a line in the table "
            f"`DEFAULTS` of skbayesnn/estimators/_defaults.py; got {names[0]}. Add "
            f'one, for instance "{names[0]}": AutoDefaults().'
        )
    if defaults.learned_rates and estimator._learns_rates:
        return replace(defaults, **defaults.learned_rates)
    return defaults


def hidden_layer_sizes(estimator, n_rows: float, before=None):
    """`hidden_layer_sizes` for N rows.

    before : tuple of int, sizes of the fit that is continued

    Raises
    ------
    TypeError
        If it is a string other than "auto".
    """
    sizes = estimator.hidden_layer_sizes
    rule = defaults_of(estimator).hidden_layer_sizes
    if not (rule and isinstance(sizes, str)):
        return sizes
    if sizes != "auto":
        raise TypeError(
            "`hidden_layer_sizes` must be 'auto', an integer or a sequence of them; "
            f"got {sizes!r}."
        )
    if before is not None:
        return before
    n_rows = n_rows * (1 - _ROUNDING)
    return next(sizes for most, sizes in rule if n_rows <= most)


def length_scale_candidates(estimator, fan_ins, n_rows: float) -> list[np.ndarray]:
    """Other scales that held-out rows may select, each (layers,)."""
    defaults = defaults_of(estimator)
    tau_is_given = not isinstance(estimator.tau, str)
    if n_rows >= defaults.candidates_below_n or (
        defaults.candidates_need_auto_tau and tau_is_given
    ):
        return []
    return [np.full(len(fan_ins), s) for s in defaults.length_scale_candidates]
