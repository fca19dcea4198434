"""Write the table of abilities into ``docs/which_estimator.md``.

    python tools/which_estimator.py

The table contains the tags, parameters and methods of the estimators, and whether
``to_onnx`` accepts them. A test compares both.
"""

import inspect
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.utils import get_tags

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import skbayesnn  # noqa: E402

PAGE = ROOT / "docs" / "which_estimator.md"
START, END = (
    "<!-- table of abilities: tools/which_estimator.py -->",
    "<!-- end of the table -->",
)
KINDS = ("Regressor", "Classifier")
YES, NO, INSIDE = "yes", "-", "as inside"


def families() -> dict[str, list[type]]:
    """Public estimators by their names without Regressor or Classifier."""
    result: dict[str, list[type]] = {}
    for name in skbayesnn.__all__:
        item = getattr(skbayesnn, name)
        if inspect.isclass(item) and hasattr(item, "fit"):
            stem = name.removesuffix(KINDS[0]).removesuffix(KINDS[1])
            result.setdefault(stem, []).append(item)
    # Wrappers last, then by name; regressors before classifiers.
    for kinds in result.values():
        kinds.sort(key=lambda kind: not kind.__name__.endswith(KINDS[0]))
    return dict(sorted(result.items(), key=lambda i: (_wraps(i[1][0]), i[0])))


def _wraps(kind: type) -> bool:
    return "estimator" in inspect.signature(kind).parameters


def _instance(kind: type):
    """A small estimator of the class."""
    is_classifier = kind.__name__.endswith(KINDS[1])
    inner = skbayesnn.MCDropoutRegressor
    if is_classifier or kind is skbayesnn.Abstainer:
        inner = skbayesnn.MCDropoutClassifier
    small = {"max_iter": 1, "hidden_layer_sizes": (2,), "n_draws": 2, "device": "cpu"}
    small |= {"length_scale": 1.0, "random_state": 0}
    network = inner(**small)
    names = inspect.signature(kind).parameters
    options = {name: small[name] for name in small if name in names}
    options |= {"estimator": network, "estimators": [("network", network)]}
    options |= {"threshold": 0.5}
    return kind(**{n: v for n, v in options.items() if n in names})


def _exports(kind: type) -> bool:
    """Whether ``to_onnx`` accepts a fitted estimator of the class."""
    model = _instance(kind)
    X = np.linspace(-1, 1, 40)[:, None] * np.array([1.0, -2.0, 3.0])
    y = X[:, 0] ** 2
    if hasattr(model, "predict_proba") or kind is skbayesnn.Abstainer:
        y = (y > 0.3).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
        try:
            skbayesnn.to_onnx(model)
        except TypeError:
            return False
    return True


def _has_parameter(name: str):
    def has(kind: type) -> str:
        if _wraps(kind):
            return INSIDE
        return YES if name in inspect.signature(kind).parameters else NO

    return has


def _fits_with(name: str):
    def takes(kind: type) -> str:
        parameters = inspect.signature(kind.fit).parameters
        return YES if name in parameters or "fit_params" in parameters else NO

    return takes


def _tag(group: str, name: str):
    def has(kind: type) -> str:
        return YES if getattr(getattr(get_tags(_instance(kind)), group), name) else NO

    return has


COLUMNS = {
    "categories, dates": _tag("input_tags", "categorical"),
    "missing values": _tag("input_tags", "allow_nan"),
    "sparse X": _tag("input_tags", "sparse"),
    "weights": _fits_with("sample_weight"),
    "groups": _fits_with("groups"),
    "several targets": _tag("target_tags", "multi_output"),
    "`partial_fit`": lambda kind: YES if hasattr(kind, "partial_fit") else NO,
    "`network=`": _has_parameter("network"),
    "`likelihood=`": _has_parameter("likelihood"),
    "GPU": _has_parameter("device"),
    "ONNX": lambda kind: YES if _exports(kind) else NO,
}


def _cell(kinds: list[type], ability) -> str:
    """One word if regressor and classifier agree, otherwise the one that can."""
    values = [ability(kind) for kind in kinds]
    if len(set(values)) == 1:
        return values[0]
    able = [kind for kind, value in zip(kinds, values, strict=True) if value == YES]
    return "regressor" if able[0].__name__.endswith(KINDS[0]) else "classifier"


def table() -> str:
    """The table in Markdown, with a row per method."""
    lines = [["estimator", *COLUMNS], ["---"] * (len(COLUMNS) + 1)]
    for stem, kinds in families().items():
        name = kinds[0].__name__ if len(kinds) == 1 else f"{stem}*"
        lines.append([f"`{name}`", *(_cell(kinds, a) for a in COLUMNS.values())])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page_with_table(page: str) -> str:
    """The page with the current table between its two comments."""
    before, rest = page.split(START)
    after = rest.split(END)[1]
    return f"{before}{START}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
