"""A page about a fitted model and how it predicts held-out rows."""

import base64
import html
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    r2_score,
    roc_auc_score,
)
from sklearn.utils import check_random_state

from skbayesnn._data.validation import check_numbers, check_target_given
from skbayesnn._meta.find import described_estimator, target_transform
from skbayesnn._meta.functions import (
    crps,
    log_predictive_density,
    predict_interval,
    predict_uncertainty,
)
from skbayesnn._predictive.mixin import PredictiveMixin
from skbayesnn._runtime import warn_once_per_call
from skbayesnn._sklearn_compat import num_samples, safe_indexing
from skbayesnn._stacking.summary import (
    COVERAGE,
    COVERAGE_ERROR,
    normal_log_density,
    share_and_error,
    shares_log_probability,
)
from skbayesnn._validation import check_number
from skbayesnn.inspection._columns import (
    column_drift,
    column_names,
    number_text,
    shown,
    training_columns,
    with_dtype,
)
from skbayesnn.inspection._importance import (
    causes_of,
    default_kind,
    select_target,
    uncertainty_replaced,
)
from skbayesnn.metrics import expected_calibration_error
from skbayesnn.plotting import (
    CalibrationCurveDisplay,
    PredictionIntervalDisplay,
    RiskCoverageDisplay,
    UncertaintyDecompositionDisplay,
)
from skbayesnn.plotting._axes import require_matplotlib, short_label
from skbayesnn.plotting._prediction_interval import LONGEST_IN_LEGEND
from skbayesnn.plotting._rows import name_of_target, y_of_target

# Most rows in pictures of predictions, and rows whose values replace the values of an
# uncertain row.
MAX_SHOWN, N_REPLACED = 300, 8
# Samples of labels that give the calibration error of calibrated probabilities, and
# about the most labels in all of them.
N_SAMPLES, MAX_LABELS = 200, 4_000_000
# With fewer rows the coverage of thirds is mostly noise.
MIN_ROWS_FOR_THIRDS = 30
# With more columns, no reason of the uncertainty is computed.
MAX_COLUMNS_WITH_REASONS = 300
# Parts of the rows that are sorted by the probability of the rarest class, and fewest
# rows of a part.
N_PARTS, MIN_ROWS_OF_PART = 10, 10
# Costs of a missed row of the rarest class, in costs of a false alarm.
COST_RATIOS = (1, 3, 10, 30, 100)
# Most classes in the table of predicted and true classes.
MAX_CLASSES = 12
# A column whose p-value is below this level, divided by the number of columns that are
# tested, has drifted.
LEVEL = 0.05
DPI, SIZE = 90, (6.4, 4.0)

STYLE = """
body {font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff;
  max-width: 760px; margin: 2em auto; padding: 0 1em}
h1 {font-size: 1.5em} h2 {font-size: 1.15em; margin-top: 2em}
table {border-collapse: collapse; margin: .6em 0} th {text-align: left}
td, th {padding: .15em 1em .15em 0; border-bottom: 1px solid #ddd;
  font-variant-numeric: tabular-nums}
img {max-width: 100%} .note {color: #666}
"""


@dataclass(frozen=True)
class Report:
    """A page in HTML. Notebooks show it; ``save`` writes it to a file.

    Parameters
    ----------
    html : str
        The page. It loads nothing from other files.
    scores : dict of str to float
        Scores of the held-out rows: ``"log density"``, ``"R^2"``, ``"CRPS"`` and
        ``"90 % intervals cover"``, a share; for classes ``"log probability"``,
        ``"accuracy"``, ``"area under the ROC curve"``, ``"average precision"`` and
        ``"calibration error"``. Without the scores that the model does not have.
    constant_scores : dict of str to float
        The same of a constant prediction, the distribution of these y.
    """

    html: str = field(repr=False)
    scores: dict[str, float]
    constant_scores: dict[str, float]

    def save(self, path: str | Path) -> None:
        """Write the page to a file."""
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        # A frame keeps the styles of page and notebook apart.
        page = html.escape(self.html, quote=True)
        return (
            f'<iframe srcdoc="{page}" width="100%" height="700" '
            'style="border: 1px solid #ddd"></iframe>'
        )


@warn_once_per_call
def page_of(model, X, y, X_train, target, random_state, n_rows) -> Report:
    """Describe a fitted model and its predictions; see :func:`skbayesnn.report`."""
    require_matplotlib("report")
    n_rows = check_number("n_rows", n_rows, kind=Integral, low=0)
    if y is None:
        raise ValueError(
            "a report requires y to be passed, the measured targets of the rows of X, "
            "to compare the predictions with them; got None. Call `report(X, y)` with "
            "held-out rows."
        )
    check_target_given(model, y)
    if sparse.issparse(X):
        raise TypeError(
            "a report requires a dense X, since it replaces single columns; got "
            f"{type(X).__name__}. Give some rows as `X.toarray()`."
        )
    X = with_dtype("X", X)
    if num_samples(X) != num_samples(y):
        raise ValueError(
            "`X` and `y` must have the same rows; got inconsistent numbers of samples: "
            f"{num_samples(X)} rows of X and {num_samples(y)} of y. Give the held-out "
            "rows of both."
        )
    y_name = name_of_target(y, target)
    y = np.asarray(y) if is_classifier(model) else check_numbers(model, y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    random = check_random_state(random_state)
    page = _Page(model, X, y, X_train, target, random, n_rows, y_name)
    body = "\n".join(page.sections())
    name = html.escape(page.name)
    return Report(
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{name}</title><style>{STYLE}</style></head>\n"
        f"<body><h1>{name}: predictions of {num_samples(X):,} held-out rows</h1>\n"
        f"{body}\n</body></html>",
        page.scores,
        page.constant_scores,
    )


class _Page:
    """The sections of a page."""

    def __init__(
        self, model, X, y, X_train, target, random, n_uncertain, y_name="y"
    ) -> None:
        self.model, self.X, self.X_train = model, X, X_train
        self.y, self.target, self.n_uncertain = y, target, n_uncertain
        self.is_classifier = is_classifier(model)
        self.estimator = described_estimator(model)
        self.name, self.y_name = type(self.estimator).__name__, y_name
        self.transform = target_transform(model)
        if self.transform is not None:
            self.name += f" of {self.transform}({y_name})"
        if not isinstance(self.estimator, PredictiveMixin):
            # An ensemble; raises for a model without a predictive distribution.
            predict_uncertainty(model, safe_indexing(X, [0]))
        if self.is_classifier:
            self.probability = model.predict_proba(X)
            self.code = _codes(model.classes_, y)
        self.random = random
        self.scores: dict[str, float] = {}
        self.constant_scores: dict[str, float] = {}
        self.thirds = ""
        self.labels = getattr(X, "index", None) if hasattr(X, "iloc") else None
        n_rows = num_samples(X)
        shown = random.permutation(n_rows)[:MAX_SHOWN]
        self.shown = np.sort(shown)
        # The part of the uncertainty that more data would reduce.
        self.kind = default_kind(model)

    def sections(self) -> Iterator[str]:
        """HTML of each section."""
        yield self._section("Scores", self._scores)
        if self.is_classifier:
            yield self._section("Predicted and true classes", self._confusion)
            yield self._section("Probability of the rarest class", self._rarest)
        else:
            yield self._section("Predictions", self._predictions)
        yield self._section("Calibration", self._calibration)
        yield self._section("Parts of the uncertainty", self._parts)
        yield self._section("Rejecting uncertain rows", self._risk)
        if hasattr(self.estimator, "weights_"):
            yield self._section("Candidates and their weights", self._candidates)
        if self.n_uncertain:
            yield self._section("The most uncertain rows", self._uncertain_rows)
        if self.X_train is not None:
            yield self._section("Columns that have drifted", self._drift)

    def _section(self, title: str, content: Callable[[], str]) -> str:
        """Title and content, or the reason why the model has no such content."""
        try:
            found = content()
        except TypeError as error:
            found = _note(f"Not available for this model: {error}")
        return f"<h2>{html.escape(title)}</h2>\n{found}"

    def _scores(self) -> str:
        summary = getattr(self.estimator, "summary_", None)
        if self.transform is not None:
            # The scores out of fold are of the transformed y, in its units.
            summary = None
        if self.is_classifier:
            rows = self._class_scores(summary)
            text = (
                "The log probability of the true class, in nats; larger is better. The "
                "area under the ROC curve and the average precision are scores of the "
                f"order of the rows by their probability {self.ranked}; 1 is the best. "
                "The calibration error is the mean difference between predicted and "
                "observed probabilities. For this number of rows it is "
                f"{self.calibrated_error:.3f} by chance if the probabilities are true."
            )
        else:
            rows = self._regression_scores(summary)
            text = (
                "The log density of y, in nats, and R<sup>2</sup>: larger is better. "
                "The CRPS is the error of the predictive distribution in units of y; "
                "smaller is better. 90 % intervals should cover 90 % of the rows"
                f"{self.more_is_covered}. The constant prediction is the distribution "
                "of these y: a normal distribution for the log density, their values "
                "for the CRPS."
            )
            if self.transform is not None:
                text = (
                    "The model is fitted to a transformed y. This page has the units "
                    f"of y. {text}"
                )
        header = ["", "held-out rows", "constant prediction"]
        if summary is not None:
            header.append("training rows, out of fold")
            text += (
                " Scores out of fold are from models that were not fitted to the row. "
                "If held-out rows have clearly worse scores, they differ from the "
                "training rows."
            )
        else:
            rows = [row[:3] for row in rows]
        notes = self.thirds + self._dominating_row()
        return f"<p>{text}</p>{_table(header, rows)}{notes}"

    def _dominating_row(self) -> str:
        """A note if a single row changes the mean log density by more than 1 nat."""
        try:
            density = log_predictive_density(self.model, self.X, self.y)
        except TypeError:
            return ""
        worst = int(np.argmin(density))
        others = np.delete(density, worst)
        if not len(others) or density[worst] - others.mean() > -len(density):
            return ""
        return _note(
            f"Row {self._label(worst)} alone has a log density of "
            f"{number_text(density[worst])}. Without it the mean is "
            f"{others.mean():.3f}. Look at this row first."
        )

    def _label(self, row: int) -> str:
        """Label of a row in the index of a frame; its position in other tables."""
        return str(row if self.labels is None else self.labels[row])

    def _regression_scores(self, summary) -> list[list[str]]:
        y, mean = self.y, self.model.predict(self.X)
        interval = predict_interval(self.model, self.X, 0.9)
        y2, mean2 = y.reshape(len(y), -1), np.reshape(mean, (len(y), -1))
        low, high = (
            interval[..., i].reshape(len(y), -1) for i in range(interval.shape[-1])
        )
        varies = np.ptp(y2, axis=0) > 0
        inside = (low <= y2) & (y2 <= high)
        are_integers = not np.any([y2 % 1, low % 1, high % 1])
        self.more_is_covered = "; intervals of integers cover more" * are_integers
        coverage, coverage_error = share_and_error(inside)
        self.thirds = _coverage_of_thirds(mean2, inside)
        others = {} if summary is None else summary.others
        score = self.scores
        with suppress(TypeError):
            score["log density"] = _mean(log_predictive_density(self.model, self.X, y))
        if varies.any():
            score["R^2"] = float(r2_score(y2[:, varies], mean2[:, varies]))
        with suppress(TypeError):
            score["CRPS"] = _mean(crps(self.model, self.X, y))
        score[COVERAGE] = coverage
        self.constant_scores |= {
            "log density": normal_log_density(y),
            "R^2": 0.0,
            # Of the distribution of y: half of the mean of |y_i - y_j|.
            "CRPS": _mean_gap(y2) / 2,
        }
        constant = self.constant_scores
        return [
            [
                "log density",
                _number(score.get("log density"), "not available"),
                f"{constant['log density']:.3f}",
                _number(None if summary is None else summary.log_density),
            ],
            [
                "R<sup>2</sup>",
                _number(score.get("R^2"), "not available: y is constant"),
                "0",
                _number(others.get("R^2")),
            ],
            [
                "CRPS",
                number_text(score["CRPS"]) if "CRPS" in score else "not available",
                number_text(constant["CRPS"]),
                "",
            ],
            [
                COVERAGE,
                _percent(coverage, coverage_error),
                "",
                _percent(others.get(COVERAGE), others.get(COVERAGE_ERROR)),
            ],
        ]

    def _class_scores(self, summary) -> list[list[str]]:
        probability, code = self.probability, self.code
        classes, predicted = self.model.classes_, probability.argmax(1)
        self.calibrated_error = error_of_calibrated(probability)
        floor = np.finfo(probability.dtype).tiny
        log_p = np.log(np.maximum(probability[np.arange(len(code)), code], floor))
        others = {} if summary is None else summary.others
        self.scores |= {
            "log probability": float(log_p.mean()),
            "accuracy": float(np.mean(predicted == code)),
            "calibration error": float(
                expected_calibration_error(self.y, probability, classes)
            ),
        }
        self.constant_scores |= {
            "log probability": shares_log_probability(code),
            "accuracy": float(np.bincount(code).max() / len(code)),
        }
        score, constant = self.scores, self.constant_scores
        self._rank(probability, code)
        return [
            [
                "log probability",
                f"{score['log probability']:.3f}",
                f"{constant['log probability']:.3f}",
                _number(None if summary is None else summary.log_density),
            ],
            [
                "accuracy",
                _percent(score["accuracy"]),
                _percent(constant["accuracy"]),
                _percent(others.get("accuracy")),
            ],
            *(
                [
                    name,
                    _number(score.get(name), "not available: one class"),
                    _number(constant.get(name)),
                    "",
                ]
                for name in ("area under the ROC curve", "average precision")
            ),
            ["calibration error", f"{score['calibration error']:.3f}", "", ""],
        ]

    def _rank(self, probability: np.ndarray, code: np.ndarray) -> None:
        """Scores of the ranking: of the rarer of two classes, or means over classes."""
        counts = np.bincount(code, minlength=probability.shape[1])
        # A class needs rows, and other rows, to be ranked.
        ranked = np.flatnonzero((counts > 0) & (counts < len(code)))
        rarest = ranked[counts[ranked].argmin()] if len(ranked) else None
        self.rarest = rarest
        if len(counts) == 2 and rarest is not None:
            ranked = np.array([rarest])
            self.ranked = f"of {html.escape(self._class(rarest))}"
        else:
            self.ranked = "of each class, means over the classes"
        if len(ranked):
            is_class, score = code[:, None] == ranked, probability[:, ranked]
            self.scores |= {
                "area under the ROC curve": float(roc_auc_score(is_class, score)),
                "average precision": float(average_precision_score(is_class, score)),
            }
            self.constant_scores |= {
                "area under the ROC curve": 0.5,
                "average precision": _mean(is_class),
            }

    def _class(self, code: int) -> str:
        return str(self.model.classes_[code])

    def _predictions(self) -> str:
        shown = safe_indexing(self.X, self.shown)
        display = PredictionIntervalDisplay.from_estimator(
            self.model,
            shown,
            self.y[self.shown],
            target=self.target,
            y_name=self.y_name,
            ax=new_axes(),
        )
        text = (
            f"{len(self.shown)} rows, sorted by their prediction, with intervals that "
            "should cover 50 and 90 % of the rows."
        )
        return _captioned(
            text, display.figure_, "Predictions and intervals of some rows"
        )

    def _confusion(self) -> str:
        classes = self.model.classes_
        if len(classes) > MAX_CLASSES:
            return _note(f"{len(classes)} classes are too many for a table.")
        predicted, labels = self.probability.argmax(1), range(len(classes))
        counts = confusion_matrix(self.code, predicted, labels=labels)
        names = [html.escape(str(label)) for label in classes]
        rows = [
            [name, *map(str, row)]
            for name, row in zip(names, counts.tolist(), strict=True)
        ]
        text = (
            "Number of rows: true classes in rows, the most probable in columns. A "
            "rare class is seldom the most probable one, also for a good model."
        )
        return f"<p>{text}</p>{_table(['', *names], rows)}"

    def _rarest(self) -> str:
        """Observed shares of parts of the rows, and decisions at some thresholds."""
        if self.rarest is None:
            return _note("These rows have one class only.")
        p, is_rare = self.probability[:, self.rarest], self.code == self.rarest
        n_rows = len(p)
        n_parts = int(np.clip(n_rows // MIN_ROWS_OF_PART, 1, N_PARTS))
        order, first, n_found, parts = np.argsort(-p, kind="stable"), 1, 0, []
        for part in np.array_split(order, n_parts):
            n_found += is_rare[part].sum()
            parts.append(
                [
                    f"{first:,} to {first + len(part) - 1:,}",
                    _percent(_mean(p[part])),
                    _percent(_mean(is_rare[part])),
                    _percent(n_found / is_rare.sum()),
                ]
            )
            first += len(part)
        decisions = []
        for ratio in COST_RATIOS:
            threshold = 1 / (1 + ratio)
            _, false, missed, found = confusion_matrix(
                is_rare, p >= threshold, labels=[False, True]
            ).ravel()
            constant = min(ratio * is_rare.mean(), 1 - is_rare.mean())
            decisions.append(
                [
                    str(ratio),
                    _percent(threshold),
                    f"{found + false:,}",
                    _percent(found / (found + false)) if found + false else "",
                    _percent(found / (found + missed)),
                    _number((ratio * missed + false) / n_rows),
                    _number(constant),
                ]
            )
        text = (
            f"{html.escape(self._class(self.rarest))} is the class of "
            f"{is_rare.sum():,} of {n_rows:,} rows. The table has all rows in equal "
            "parts, sorted by the probability of this class, the largest first: its "
            "mean probability, its observed share, and the share of its rows that are "
            "in this part or above. The probabilities of a calibrated model are equal "
            "to the observed shares."
        )
        rule = (
            "If a missed row of this class costs r times as much as a false alarm, the "
            "best decision is to accept the class from a probability of 1 / (1 + r) "
            "on. Costs are means over the rows, in units of a false alarm. The last "
            "column is the cost without a model: no row is accepted, or every row, "
            "whichever costs less."
        )
        header = ["r", "threshold", "rows accepted", "precision", "recall", "cost"]
        tables = (
            _table(["rows", "predicted", "observed", "found up to here"], parts),
            _table([*header, "cost without a model"], decisions),
        )
        return f"<p>{text}</p>{tables[0]}<p>{rule}</p>{tables[1]}"

    def _calibration(self) -> str:
        display = CalibrationCurveDisplay.from_estimator(
            self.model,
            self.X,
            self.y,
            target=self.target,
            name=type(self.estimator).__name__,
            ax=new_axes(),
        )
        text = (
            "A calibrated model is on the diagonal: of the rows with a predicted "
            "probability of 70 %, 70 % have the class."
            if self.is_classifier
            else "A calibrated model is on the diagonal: intervals that should cover "
            "70 % of the rows cover 70 %."
        )
        return _captioned(text, display.figure_, "Calibration curve")

    def _parts(self) -> str:
        shown = safe_indexing(self.X, self.shown)
        display = UncertaintyDecompositionDisplay.from_estimator(
            self.model, shown, target=self.target, ax=new_axes()
        )
        units = f"units of {short_label(self.y_name, LONGEST_IN_LEGEND)}"
        label = display.ax_.get_ylabel().replace("y's units", units)
        display.ax_.set_ylabel(label)
        text = (
            "Aleatoric uncertainty is noise of y: more rows do not reduce it. "
            "Epistemic uncertainty is about the model: it is large where training rows "
            "are rare."
        )
        return _captioned(
            text, display.figure_, "Aleatoric and epistemic uncertainty of some rows"
        )

    def _risk(self) -> str:
        display = RiskCoverageDisplay.from_estimator(
            self.model, self.X, self.y, target=self.target, ax=new_axes()
        )
        text = (
            "The error of the remaining rows if the most uncertain rows are rejected. "
            "A curve that falls to the left shows that the uncertainty finds errors."
        )
        return _captioned(
            text, display.figure_, "Error of the accepted rows against their share"
        )

    def _candidates(self) -> str:
        weights = dict(self.estimator.weights_["weight"].items())
        used = [(name, w) for name, w in weights.items() if w >= 0.005]
        rows = [[html.escape(str(name)), f"{100 * w:.0f} %"] for name, w in used]
        n_others = len(weights) - len(used)
        text = (
            "The prediction is a mixture of these models. The weights are those with "
            "which the mixture predicts training rows out of fold best. "
            f"{n_others} further candidates have nearly no weight."
        )
        return f"<p>{text}</p>{_table(['model', 'weight'], rows)}"

    def _uncertainty(self, X) -> np.ndarray:
        values = predict_uncertainty(self.model, X, kind=self.kind)
        return select_target(self.kind, values, self.target)

    def _uncertain_rows(self) -> str:
        uncertainty = self._uncertainty(self.X)
        top = np.argsort(-uncertainty, kind="stable")[: self.n_uncertain]
        names = column_names(self.X)
        header = ["row", "prediction", "measured", "epistemic uncertainty"]
        if self.is_classifier:
            predicted = [
                f"{html.escape(self._class(p.argmax()))} ({100 * p.max():.0f} %)"
                for p in self.probability[top]
            ]
            measured = [html.escape(self._class(code)) for code in self.code[top]]
        else:
            mean = self.model.predict(safe_indexing(self.X, top))
            mean = select_target("prediction", mean, self.target)
            predicted = [number_text(value) for value in mean]
            y = y_of_target(self.y[top], self.target)
            measured = [number_text(value) for value in y]
        rows = [
            [html.escape(self._label(row)), *texts, number_text(uncertainty[row])]
            for row, *texts in zip(top.tolist(), predicted, measured, strict=True)
        ]
        meaning = (
            "the mutual information of class and model, in nats"
            if self.kind == "mutual_information"
            else "the standard deviation of the mean prediction over the models that "
            "fit the training rows, in units of y"
        )
        text = (
            "The rows with the largest epistemic uncertainty. This "
            f"uncertainty is {meaning}; more training rows reduce it. Its median over "
            f"all {len(uncertainty):,} held-out rows is "
            f"{number_text(np.median(uncertainty))}. "
        )
        text += (
            "Rows have their position; the first is row 0."
            if self.labels is None
            else "Rows have their label in the index of X: <code>X.loc[[label]]</code>."
        )
        if len(names) <= MAX_COLUMNS_WITH_REASONS:
            header.append("mostly because of")
            for row, reason in zip(rows, self._reasons(top, names), strict=True):
                row.append(html.escape(reason))
            text += (
                " The reason is the column whose value, replaced by the values of "
                f"{N_REPLACED} other rows, reduces the uncertainty most."
            )
        else:
            text += (
                f" X has {len(names)} columns. Columns that make a row uncertain are "
                f"computed for at most {MAX_COLUMNS_WITH_REASONS}."
            )
        return f"<p>{text}</p>{_table(header, rows)}"

    def _reasons(self, top: np.ndarray, names: Sequence[str]) -> list[str]:
        """For each row, the column that explains most of its uncertainty."""
        rows = safe_indexing(self.X, top)
        # The same rows for all, so that equal rows have equal reasons.
        others = self.random.randint(num_samples(self.X), size=(N_REPLACED, 1))
        before = self._uncertainty(rows)
        after = uncertainty_replaced(self._uncertainty, rows, self.X, others).mean(1)
        reasons = []
        for row, value, without in zip(top.tolist(), before, after.T, strict=True):
            texts = [
                f"{name} = {_cell(self.X, row, j)}" for j, name in enumerate(names)
            ]
            causes = causes_of(value, without, texts)
            reasons.append(causes[0] if causes else "no single column")
        return reasons

    def _drift(self) -> str:
        drifts = column_drift(self.X, training_columns(self.X_train))
        new_levels = "".join(
            f"<p>Levels of {html.escape(str(d.column))} that no training row has: "
            f"{html.escape(', '.join(map(str, d.new_levels[:5])))}"
            f"{', and others' if len(d.new_levels) > 5 else ''}.</p>"
            for d in drifts
            if d.new_levels
        )
        n_tested = max(1, sum(not np.isnan(d.p_value) for d in drifts))
        found = [d for d in drifts if d.p_value < LEVEL / n_tested]
        if not found:
            text = "No column differs significantly from the training rows."
            return f"<p>{text}</p>{new_levels}"
        rows = [
            [
                html.escape(str(d.column)),
                html.escape(d.change),
                f"{d.p_value:.1g}",
            ]
            for d in sorted(found, key=lambda d: d.p_value)
        ]
        text = (
            "Columns whose values differ significantly from the training rows: p below "
            f"{LEVEL:g} divided by the {n_tested} columns tested. Predictions may be "
            "worse there, and scores out of fold too good."
        )
        table = _table(["column", "change", "p-value"], rows)
        return f"<p>{text}</p>{table}{new_levels}"


def error_of_calibrated(probability: np.ndarray) -> float:
    """Mean calibration error of labels that have these probabilities.

    probability : (rows, classes)
    """
    random = np.random.default_rng(0)
    n_rows, n_classes = probability.shape
    classes, upper = np.arange(n_classes), probability.cumsum(1)
    # The last sum is 1 but for rounding.
    upper = upper[:, :-1]
    n_samples = min(N_SAMPLES, max(5, MAX_LABELS // n_rows))
    errors = [
        expected_calibration_error(
            (upper < random.random((n_rows, 1))).sum(1), probability, classes
        )
        for _ in range(n_samples)
    ]
    return _mean(errors)


def _mean(values) -> float:
    return float(np.mean(values))


def _number(value, other: str = "") -> str:
    return other if value is None else f"{value:.3f}"


def _percent(value, error=None) -> str:
    if value is None:
        return ""
    plus_minus = "" if error is None else f" \u00b1 {100 * error:.1f}"
    # Without a line break before the sign.
    return f"{100 * value:.1f}{plus_minus}\u00a0%"


def _coverage_of_thirds(mean: np.ndarray, inside: np.ndarray) -> str:
    """Shares inside of the intervals by the size of the prediction, (rows, targets)."""
    if len(mean) < MIN_ROWS_FOR_THIRDS:
        return ""
    order = mean.argsort(axis=0, kind="stable")
    thirds = np.array_split(np.take_along_axis(inside, order, axis=0), 3)
    low, middle, high = (_percent(*share_and_error(third)) for third in thirds)
    return _note(
        f"By thirds of the rows: 90 % intervals cover {low} of the lowest predictions, "
        f"{middle} of the middle ones and {high} of the highest."
    )


def _mean_gap(y: np.ndarray) -> float:
    """Mean absolute difference of two rows, a mean over targets."""
    n = len(y)
    position = (2 * np.arange(1, n + 1) - n - 1)[:, np.newaxis]
    return float(np.mean((position * np.sort(y, axis=0)).sum(0) * 2 / n**2))


def _codes(classes, y) -> np.ndarray:
    """Index of the class of each row."""
    position = {label: i for i, label in enumerate(np.asarray(classes).tolist())}
    labels = np.asarray(y).tolist()
    unknown = [label for label in labels if label not in position]
    if unknown:
        raise ValueError(
            f"y must contain classes of the model, {list(position)[:10]}; got "
            f"{unknown[0]!r}."
        )
    return np.array([position[label] for label in labels])


def _cell(X, row: int, column: int) -> str:
    """Value of one cell, as text."""
    if hasattr(X, "iloc"):
        value = X.iloc[row, column]
    elif hasattr(X, "column_names"):
        value = X.column(column)[row].as_py()
    else:
        value = X[row, column] if hasattr(X, "shape") else X[row][column]
    is_fraction = isinstance(value, float | np.floating) and value % 1 > 0
    return number_text(value) if is_fraction else shown(value)


def new_axes():
    """Axes of a figure that no window shows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.ticklabel_format(axis="y", scilimits=(-5, 9), useOffset=False)
    return axes


def data_address(figure) -> str:
    """A picture in PNG as the address of an image."""
    content = io.BytesIO()
    figure.savefig(content, dpi=DPI, format="png")
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


def _captioned(text: str, figure, description: str) -> str:
    """A text, and a picture with a description for readers who cannot see it."""
    picture = f'<img alt="{description}" src="{data_address(figure)}">'
    return f"<p>{text}</p>{picture}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table; texts are HTML."""
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>'
