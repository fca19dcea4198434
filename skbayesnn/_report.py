"""A page about a fitted model and how it predicts held-out rows."""

import base64
import html
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.stats import binom
from sklearn.base import is_classifier
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    r2_score,
    roc_auc_score,
)
from sklearn.utils import check_consistent_length, check_random_state

from skbayesnn._data.target import as_intervals
from skbayesnn._data.validation import check_numbers, check_target_given
from skbayesnn._meta.bounds import has_bounds_only
from skbayesnn._meta.find import described_estimator, target_transform
from skbayesnn._meta.functions import predict_distribution, predict_interval
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
from skbayesnn.inspection._attributions import (
    attributions,
    cell_text,
    default_kind,
    reasons,
    select_target,
)
from skbayesnn.inspection._columns import (
    column_drift,
    column_names,
    number_text,
    parts_of_columns,
    training_columns,
    with_dtype,
)
from skbayesnn.metrics import expected_calibration_error
from skbayesnn.metrics._calibration import labelled
from skbayesnn.plotting import (
    CalibrationCurveDisplay,
    PredictionIntervalDisplay,
    RiskCoverageDisplay,
    UncertaintyDecompositionDisplay,
)
from skbayesnn.plotting._axes import require_matplotlib, short_label
from skbayesnn.plotting._prediction_interval import LONGEST_IN_LEGEND
from skbayesnn.plotting._rows import name_of_target, y_of_target

# Most rows in pictures of predictions, rows that uncertain rows are compared with, and
# pairs of orders of the columns in this comparison.
MAX_SHOWN, N_COMPARED, N_PERMUTATIONS = 300, 100, 32
# Samples of labels that give the calibration error of calibrated probabilities, and
# about the most labels in all of them.
N_SAMPLES, MAX_LABELS = 200, 4_000_000
# With fewer rows the coverage of a part is mostly noise.
MIN_ROWS_OF_COVERAGE = 30
# Parts of the columns that are listed, those with the lowest coverage.
N_LOWEST = 8
# With more columns, no reason of the uncertainty is computed.
MAX_COLUMNS_WITH_REASONS = 300
# Parts of the rows that are sorted by the probability of the rarest class, and fewest
# rows of a part.
N_PARTS, MIN_ROWS_OF_PART = 10, 10
# Costs of a missed row of the rarest class, in costs of a false alarm.
COST_RATIOS = (1, 3, 10, 30, 100)
# Most classes in the table of predicted and true classes.
MAX_CLASSES = 12
# Names of the scores of regressors and classifiers, and why a model lacks a score.
AREA, PRECISION = "area under the ROC curve", "average precision"
SCORES = {
    False: ("log density", "R^2", "CRPS", COVERAGE),
    True: ("log probability", "accuracy", AREA, PRECISION, "calibration error"),
}
NO_SCORE = dict.fromkeys((AREA, PRECISION), "not available: one class")
NO_SCORE["R^2"] = "not available: y is constant"
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
def page_of(model, X, y, X_train, target, random_state, n_rows, monitor) -> Report:
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
    check_consistent_length(X, y)
    y_name = name_of_target(y, target)
    if is_classifier(model):
        y = np.asarray(y)
    elif (intervals := as_intervals(y)) is not None:
        y = intervals
    else:
        y = check_numbers(model, y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    random = check_random_state(random_state)
    page = _Page(model, X, y, X_train, target, random, n_rows, y_name, monitor)
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
        self,
        model,
        X,
        y,
        X_train,
        target,
        random,
        n_uncertain,
        y_name="y",
        monitor=None,
    ) -> None:
        self.model, self.X, self.X_train = model, X, X_train
        self.y, self.target, self.n_uncertain = y, target, n_uncertain
        self.is_classifier = is_classifier(model)
        self.has_intervals = y.dtype.names is not None
        self.estimator = described_estimator(model)
        self.name, self.y_name = type(self.estimator).__name__, y_name
        self.monitor = monitor
        self.transform = target_transform(model)
        if self.transform is not None:
            self.name += f" of {self.transform}({y_name})"
        if not isinstance(self.estimator, PredictiveMixin):
            # An ensemble; raises for a model without a predictive distribution.
            predict_distribution(model, safe_indexing(X, [0]))
        if self.is_classifier:
            self.classes = list(map(str, model.classes_))
            _, self.code, self.probability = labelled(
                y, model.predict_proba(X), model.classes_, None
            )
            self.counts = np.bincount(self.code, minlength=len(self.classes))
            # A class needs rows, and other rows, to be ranked.
            self.ranked = np.flatnonzero((self.counts > 0) & (self.counts < len(y)))
            self.rarest = min(self.ranked, key=lambda k: self.counts[k], default=None)
        self.random = random
        self.scores: dict[str, float] = {}
        self.constant_scores: dict[str, float] = {}
        self.errors: dict[str, float] = {}
        self.labels = getattr(X, "index", None) if hasattr(X, "iloc") else None
        self.shown = np.sort(random.permutation(num_samples(X))[:MAX_SHOWN])
        # The part of the uncertainty that more data would reduce.
        self.kind = default_kind(model)

    @cached_property
    def distribution(self) -> Any:
        """Predictive distribution of the rows."""
        return predict_distribution(self.model, self.X)

    @cached_property
    def density(self) -> np.ndarray:
        """Log density, or log probability, of y in each row."""
        return self.distribution.logpdf(self.y)

    def sections(self) -> Iterator[str]:
        """HTML of each section."""
        yield self._section("Scores", self._scores)
        if self.is_classifier:
            yield self._section("Predicted and true classes", self._confusion)
            yield self._section("Probability of the rarest class", self._rarest)
        else:
            yield self._section("Predictions", self._predictions)
        yield self._section("Calibration", self._calibration)
        if not self.is_classifier and not self.has_intervals:
            yield self._section("Coverage by columns", self._coverage_by_columns)
        yield self._section("Parts of the uncertainty", self._parts)
        yield self._section("Rejecting uncertain rows", self._risk)
        if hasattr(self.estimator, "weights_"):
            yield self._section("Candidates and their weights", self._candidates)
        if self.n_uncertain:
            yield self._section("The most uncertain rows", self._uncertain_rows)
        if self.X_train is not None:
            yield self._section("Columns that have drifted", self._drift)
        if self.monitor is not None:
            yield self._section("Alarms", self._alarms)

    def _section(self, title: str, content: Callable[[], str]) -> str:
        """Title and content, or the reason why the model has no such content."""
        try:
            found = content()
        except TypeError as error:
            found = _note(f"Not available for this model: {error}")
        return f"<h2>{html.escape(title)}</h2>\n{found}"

    # ---- scores

    def _scores(self) -> str:
        compute = self._class_scores if self.is_classifier else self._regression_scores
        text = compute()
        summary = getattr(self.estimator, "summary_", None)
        training: dict[str, float] = {}
        if self.transform is not None:
            # The scores out of fold are of the transformed y, in its units.
            text = (
                "The model is fitted to a transformed y. This page has the units of y. "
                f"{text}"
            )
        elif summary is not None:
            likelihood = "log probability" if self.is_classifier else "log density"
            training = {likelihood: summary.log_density} | summary.others
            text += (
                " Scores out of fold are from models that were not fitted to the row. "
                "If held-out rows have clearly worse scores, they differ from the "
                "training rows."
            )
        held_out = self.scores | self.errors
        header = ["", "held-out rows", "constant prediction"]
        header += ["training rows, out of fold"] * bool(training)
        missing = {} if self.has_intervals else NO_SCORE
        rows = [
            [
                name.replace("R^2", "R<sup>2</sup>"),
                _score(held_out, name, missing.get(name, "not available")),
                _score(self.constant_scores, name),
                _score(training, name),
            ][: len(header)]
            for name in SCORES[self.is_classifier]
        ]
        return f"<p>{text}</p>{_table(header, rows)}{self._dominating_row()}"

    def _regression_scores(self) -> str:
        """Compute the scores; return a text about them."""
        if self.has_intervals:
            with suppress(TypeError):
                self.scores["log density"] = _mean(self.density)
            return (
                "y has intervals. The log density is the mean log probability of the "
                "intervals, and log density of exact values, in nats; larger is "
                "better. The other scores need exact values."
            )
        y, mean = self.y, self.model.predict(self.X)
        y2, mean2 = y.reshape(len(y), -1), np.reshape(mean, (len(y), -1))
        interval = predict_interval(self.model, self.X, 0.9).reshape(*y2.shape, -1)
        low, high = np.moveaxis(interval, -1, 0)
        varies = np.ptp(y2, axis=0) > 0
        inside = (low <= y2) & (y2 <= high)
        shown = self.target or 0
        self.inside, self.width = inside[:, shown], (high - low)[:, shown]
        are_integers = not np.any([y2 % 1, low % 1, high % 1])
        with suppress(TypeError):
            self.scores["log density"] = _mean(self.density)
        if varies.any():
            self.scores["R^2"] = float(r2_score(y2[:, varies], mean2[:, varies]))
        with suppress(TypeError):
            self.scores["CRPS"] = _mean(self.distribution.crps(y))
        self.scores[COVERAGE], self.errors[COVERAGE_ERROR] = share_and_error(inside)
        self.constant_scores |= {
            "log density": normal_log_density(y),
            "R^2": 0.0,
            # Of the distribution of y: half of the mean of |y_i - y_j|.
            "CRPS": _mean_gap(y2) / 2,
        }
        text = (
            "The log density of y, in nats, and R<sup>2</sup>: larger is better. "
            "The CRPS is the error of the predictive distribution in units of y; "
            "smaller is better. 90 % intervals should cover 90 % of the rows"
            f"{'; intervals of integers cover more' * are_integers}. The constant "
            "prediction is the distribution of these y: a normal distribution for the "
            "log density, their values for the CRPS."
        )
        if has_bounds_only(self.model):
            text += (
                " The intervals are conformal. All other results, also the calibration "
                "curve, are of the predictive distribution inside, which is not."
            )
        return text

    def _class_scores(self) -> str:
        """Compute the scores; return a text about them."""
        p, code, counts = self.probability, self.code, self.counts
        floor = np.finfo(p.dtype).tiny
        p_of_y = np.maximum(p[np.arange(len(code)), code], floor)
        self.scores |= {
            "log probability": _mean(np.log(p_of_y)),
            "accuracy": _mean(p.argmax(1) == code),
            "calibration error": expected_calibration_error(
                code, p, np.arange(len(counts))
            ),
        }
        self.constant_scores |= {
            "log probability": shares_log_probability(code),
            "accuracy": float(counts.max() / len(code)),
        }
        ranked, order = self.ranked, "of each class, means over the classes with rows"
        if len(counts) == 2 and self.rarest is not None:
            ranked = np.array([self.rarest])
            order = f"of {html.escape(self.classes[self.rarest])}"
        if len(ranked):
            is_class = code[:, None] == ranked
            self.scores |= {
                AREA: float(roc_auc_score(is_class, p[:, ranked])),
                PRECISION: float(average_precision_score(is_class, p[:, ranked])),
            }
            self.constant_scores |= {AREA: 0.5, PRECISION: _mean(is_class)}
        text = (
            "The log probability of the true class, in nats; larger is better. The "
            "area under the ROC curve and the average precision are scores of the "
            f"order of the rows by their probability {order}; 1 is the best. "
            "The calibration error is the mean difference between predicted and "
            "observed probabilities. For this number of rows it is "
            f"{error_of_calibrated(p):.3f} by chance if the probabilities are true."
        )
        return text

    def _dominating_row(self) -> str:
        """A note if a single row changes the mean log density by more than 1 nat."""
        try:
            density = self.density
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

    # ---- classes

    def _confusion(self) -> str:
        n_classes = len(self.classes)
        if n_classes > MAX_CLASSES:
            return _note(f"{n_classes} classes are too many for a table.")
        predicted = self.probability.argmax(1)
        counts = confusion_matrix(self.code, predicted, labels=range(n_classes))
        names = list(map(html.escape, self.classes))
        rows = [[name, *row] for name, row in zip(names, counts, strict=True)]
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
        n_rows, share = len(p), is_rare.mean()
        order = np.argsort(-p, kind="stable")
        found = is_rare[order].cumsum() / is_rare.sum()
        n_parts = int(np.clip(n_rows // MIN_ROWS_OF_PART, 1, N_PARTS))
        parts, decisions = [], []
        for part in np.array_split(np.arange(n_rows), n_parts):
            rows, last = order[part], part[-1]
            shares = p[rows].mean(), is_rare[rows].mean(), found[last]
            parts.append([f"{part[0] + 1:,} to {last + 1:,}", *map(_percent, shares)])
        for ratio in COST_RATIOS:
            threshold = 1 / (1 + ratio)
            accepted = p >= threshold
            cost = np.where(is_rare, ratio * ~accepted, accepted).mean()
            decisions.append(
                [
                    ratio,
                    _percent(threshold),
                    f"{accepted.sum():,}",
                    _percent(is_rare[accepted].mean()) if accepted.any() else "",
                    _percent(accepted[is_rare].mean()),
                    f"{cost:.3f}",
                    f"{min(ratio * share, 1 - share):.3f}",
                ]
            )
        text = (
            f"{html.escape(self.classes[self.rarest])} is the class of "
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

    # ---- pictures

    def _drawn(self) -> dict[str, Any]:
        """Keywords of a display of this page."""
        return {"target": self.target, "ax": new_axes()}

    def _predictions(self) -> str:
        X = safe_indexing(self.X, self.shown)
        y = None if self.has_intervals else self.y[self.shown]
        display = PredictionIntervalDisplay.from_estimator(
            self.model, X, y, y_name=self.y_name, **self._drawn()
        )
        text = (
            f"{len(self.shown)} rows, sorted by their prediction, with intervals that "
            "should cover 50 and 90 % of the rows."
        )
        return _captioned(text, display, "Predictions and intervals of some rows")

    def _calibration(self) -> str:
        name = type(self.estimator).__name__
        display = CalibrationCurveDisplay.from_estimator(
            self.model, self.X, self.y, name=name, **self._drawn()
        )
        meaning = (
            "of the rows with a predicted probability of 70 %, 70 % have the class"
            if self.is_classifier
            else "intervals that should cover 70 % of the rows cover 70 %"
        )
        text = f"A calibrated model is on the diagonal: {meaning}."
        return _captioned(text, display, "Calibration curve")

    def _coverage_by_columns(self) -> str:
        """The parts of the columns with the lowest coverage of 90 % intervals."""
        parts = [
            (name, text, rows, binom.cdf(self.inside[rows].sum(), rows.sum(), 0.9))
            for name, text, rows in parts_of_columns(self.X)
            if MIN_ROWS_OF_COVERAGE <= rows.sum() < len(rows)
        ]
        if not parts:
            return _note(f"No part has {MIN_ROWS_OF_COVERAGE} rows.")
        parts.sort(key=lambda part: self.inside[part[2]].mean())
        lowest = [
            [
                html.escape(str(name)),
                html.escape(text),
                f"{rows.sum():,}",
                _percent(*share_and_error(self.inside[rows])),
                number_text(self.width[rows].mean()),
                f"{min(1.0, len(parts) * p):.2g}",
            ]
            for name, text, rows, p in parts[:N_LOWEST]
        ]
        text = (
            "Coverage of 90 % intervals for the values of each column: levels, and "
            f"quarters of numbers. Of {len(parts)} parts with at least "
            f"{MIN_ROWS_OF_COVERAGE} rows, those with the lowest coverage. The p-value "
            "is for a coverage of 90 %, multiplied by the number of parts; large "
            "values are chance. ConformalRegressor with <code>groups</code> repairs "
            "the coverage of groups."
        )
        header = ["column", "values", "rows", "coverage", "mean width", "p-value"]
        return f"<p>{text}</p>{_table(header, lowest)}"

    def _parts(self) -> str:
        X = safe_indexing(self.X, self.shown)
        display = UncertaintyDecompositionDisplay.from_estimator(
            self.model, X, **self._drawn()
        )
        units = f"units of {short_label(self.y_name, LONGEST_IN_LEGEND)}"
        label = display.ax_.get_ylabel().replace("y's units", units)
        display.ax_.set_ylabel(label)
        text = (
            "Aleatoric uncertainty is noise of y: more rows do not reduce it. "
            "Epistemic uncertainty is about the model: it is large where training rows "
            "are rare."
        )
        name = "Aleatoric and epistemic uncertainty of some rows"
        return _captioned(text, display, name)

    def _risk(self) -> str:
        if self.has_intervals:
            return _note("Not available: errors need exact values; y has intervals.")
        display = RiskCoverageDisplay.from_estimator(
            self.model, self.X, self.y, **self._drawn()
        )
        text = (
            "The error of the remaining rows if the most uncertain rows are rejected. "
            "A curve that falls to the left shows that the uncertainty finds errors."
        )
        name = "Error of the accepted rows against their share"
        return _captioned(text, display, name)

    # ---- candidates, rows and columns

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
        values = predict_distribution(self.model, X).uncertainty(self.kind)
        return select_target(self.kind, values, self.target)

    def _uncertain_rows(self) -> str:
        uncertainty = self._uncertainty(self.X)
        top = np.argsort(-uncertainty, kind="stable")[: self.n_uncertain]
        names = column_names(self.X)
        header = ["row", "prediction", "measured", "epistemic uncertainty"]
        if self.is_classifier:
            predicted = [
                f"{html.escape(self.classes[p.argmax()])} ({100 * p.max():.0f} %)"
                for p in self.probability[top]
            ]
            measured = [html.escape(self.classes[code]) for code in self.code[top]]
        else:
            mean = self.model.predict(safe_indexing(self.X, top))
            mean = select_target("prediction", mean, self.target)
            predicted = list(map(number_text, mean))
            y = self.y[top]
            ends = y.tolist() if self.has_intervals else y_of_target(y, self.target)
            measured = [
                " to ".join(dict.fromkeys(map(number_text, np.atleast_1d(end))))
                for end in ends
            ]
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
                " The reason is the column that contributes most to the difference "
                "from the mean uncertainty of other rows, and its contribution."
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
        others = self.random.randint(num_samples(self.X), size=N_COMPARED)
        result = attributions(
            self.model,
            rows,
            background=safe_indexing(self.X, others),
            of=self.kind,
            n_permutations=N_PERMUTATIONS,
            random_state=self.random,
            target=self.target,
        )
        texts = [
            [f"{name} = {cell_text(self.X, row, j)}" for j, name in enumerate(names)]
            for row in top.tolist()
        ]
        found = reasons(result, texts)
        return [first for first, *_ in (r or ["no single column"] for r in found)]

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
            [html.escape(str(d.column)), html.escape(d.change), f"{d.p_value:.1g}"]
            for d in sorted(found, key=lambda d: d.p_value)
        ]
        text = (
            "Columns whose values differ significantly from the training rows: p below "
            f"{LEVEL:g} divided by the {n_tested} columns tested. Predictions may be "
            "worse there, and scores out of fold too good."
        )
        table = _table(["column", "change", "p-value"], rows)
        return f"<p>{text}</p>{table}{new_levels}"

    def _alarms(self) -> str:
        rate = self.monitor.false_alarm_rate
        rows = [
            [
                alarm.signal,
                html.escape(
                    f"{alarm.column} = {alarm.group}" if alarm.column else "all rows"
                ),
                f"{alarm.n_rows:,}",
                _percent(alarm.share) if alarm.n_rows else "",
                _percent(alarm.expected),
                f"{alarm.p_value:.2g}",
                "alarm" if alarm.p_value <= rate else "",
            ]
            for alarm in self.monitor.alarms()
        ]
        text = (
            "Tests of the rows that the monitor got: the share of rows outside of 90 % "
            "intervals, and of rows with a log density below its median, next to the "
            "share without drift. Without drift, the probability that any p-value ever "
            f"falls to {rate:g} is at most {rate:g}."
        )
        header = ["signal", "rows of", "rows", "share", "without drift", "p-value", ""]
        return f"<p>{text}</p>{_table(header, rows)}"


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


def _score(scores: dict[str, float], name: str, missing: str = "") -> str:
    """Text of a score; a share in percent, with its error if that is known."""
    if name not in scores:
        return missing
    if name in (COVERAGE, "accuracy"):
        return _percent(scores[name], scores.get(COVERAGE_ERROR))
    return number_text(scores[name]) if name == "CRPS" else f"{scores[name]:.3f}"


def _percent(value, error=None) -> str:
    plus_minus = "" if error is None else f" \u00b1 {100 * error:.1f}"
    # Without a line break before the sign.
    return f"{100 * value:.1f}{plus_minus}\u00a0%"


def _mean_gap(y: np.ndarray) -> float:
    """Mean absolute difference of two rows, a mean over targets."""
    n = len(y)
    position = (2 * np.arange(1, n + 1) - n - 1)[:, np.newaxis]
    return float(np.mean((position * np.sort(y, axis=0)).sum(0) * 2 / n**2))


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


def _captioned(text: str, display, description: str) -> str:
    """A text, and a picture with a description for readers who cannot see it."""
    picture = f'<img alt="{description}" src="{data_address(display.figure_)}">'
    return f"<p>{text}</p>{picture}"


def _table(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """An HTML table; texts are HTML."""
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>'
