"""Write the table of automatic defaults into ``docs/defaults.md``.

    python tools/defaults.py

The table contains the values of ``skbayesnn/estimators/_defaults.py``. A test compares
both.
"""

import inspect
import math
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import skbayesnn  # noqa: E402
from skbayesnn.estimators._defaults import DEFAULTS, AutoDefaults  # noqa: E402

PAGE = ROOT / "docs" / "defaults.md"
START, END = (
    "<!-- table of defaults: tools/defaults.py -->",
    "<!-- end of the table -->",
)
HEADS = (
    "estimator",
    "`max_iter`: steps / sqrt(N)",
    "held-out rows select fewer epochs",
    "`early_stopping`",
    "`length_scale`",
    "held-out rows select other scales",
)


def _rows_below(n: float) -> str:
    return "always" if n == math.inf else f"N < {n:,.0f}" if n else "no"


def _learned(defaults: AutoDefaults, name: str, formatter) -> str:
    """A field, and its value for learned dropout rates if it differs."""
    text = formatter(getattr(defaults, name))
    if name in defaults.learned_rates:
        text += f"; learned rates: {formatter(defaults.learned_rates[name])}"
    return text


def _length_scale(name: str, defaults: AutoDefaults) -> str:
    parameters = inspect.signature(getattr(skbayesnn, name)).parameters
    default = parameters["length_scale"].default
    return defaults.length_scale.text if default == "auto" else f"{default:g}, no auto"


def _candidates(defaults: AutoDefaults) -> str:
    if not defaults.length_scale_candidates:
        return "no"
    text = ", ".join(f"{scale:g}" for scale in defaults.length_scale_candidates)
    if defaults.candidates_below_n < math.inf:
        text += f" if N < {defaults.candidates_below_n:,.0f}"
    if defaults.candidates_need_auto_tau:
        text += ' if `tau="auto"`'
    return text


def table() -> str:
    """The table in Markdown; N is the sum of the weights of the training rows."""
    lines = [HEADS, ["---"] * len(HEADS)]
    for name, defaults in DEFAULTS.items():
        lines.append(
            [
                f"`{name}`",
                _learned(defaults, "steps_per_sqrt_n", str),
                _learned(defaults, "selects_epochs_below_n", _rows_below),
                _learned(
                    defaults,
                    "early_stopping_from_n",
                    lambda n: "no" if n == math.inf else f"N >= {n:,.0f}",
                ),
                _length_scale(name, defaults),
                _candidates(defaults),
            ]
        )
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    for name, defaults in DEFAULTS.items():
        if defaults.hidden_layer_sizes:
            sizes = "; ".join(
                f"{shape} up to N = {most:,.0f}" if most < math.inf else f"then {shape}"
                for most, shape in defaults.hidden_layer_sizes
            )
            text += f'\n\n`{name}(hidden_layer_sizes="auto")`: {sizes}.'
        if defaults.estimates_noise_below_n:
            text += (
                f'\n\n`{name}(tau="auto")`: with N < '
                f"{defaults.estimates_noise_below_n:,.0f}, held-out rows estimate the "
                "observation noise."
            )
    return text


def page_with_table(page: str) -> str:
    """The page with the current table between its two comments."""
    before, rest = page.split(START)
    after = rest.split(END)[1]
    return f"{before}{START}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
