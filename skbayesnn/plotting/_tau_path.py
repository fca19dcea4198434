"""The score of a search over tau."""

import re
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from skbayesnn.inspection._importance import of_target
from skbayesnn.plotting._shared import (
    LINE_STYLES,
    axes_for,
    legend_on_top,
    next_color,
    require_matplotlib,
    styled,
)

MOST_LINES = 8


class TauPathDisplay:
    """Cross-validated score over the precision tau, of a search.

    It is made by :meth:`from_estimator`. Bars are one standard error of the mean over
    the folds, which share most of their training rows: a hint, not a test. Where the
    search varies other parameters too, each of their settings has a line; of more than
    8 the 8 with the best scores are shown. A candidate with ``tau="auto"`` is a dashed
    horizontal line.

    Parameters
    ----------
    tau : list of ndarray of shape (n_candidates,)
        Per line, rising; 1 / noise variance in y's units.
    score, error : list of ndarray of shape (n_candidates,)
        Per line: mean over the folds, and its standard error (NaN of a single fold).
    auto_score : list of float
        Per line: score of ``tau="auto"``, NaN where it is no candidate.
    settings : list of dict of str
        Per line: the other parameters that vary, and their values.
    n_settings : int
        Of these in the search; more than there are lines where not all are shown.
    score_name : str, default="score"
    tau_name : str, default="tau"

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Artist
        The scores with their error bars.
    auto_ : list of matplotlib Artist
        The horizontal lines.
    best_ : matplotlib Artist
        Mark of the best number for tau.
    """

    ax_: Any
    figure_: Any
    lines_: Any
    auto_: Any
    best_: Any

    def __init__(
        self,
        *,
        tau,
        score,
        error,
        auto_score,
        settings,
        n_settings,
        score_name="score",
        tau_name="tau",
    ) -> None:
        self.tau = tau
        self.score = score
        self.error = error
        self.auto_score = auto_score
        self.settings = settings
        self.n_settings = n_settings
        self.score_name = score_name
        self.tau_name = tau_name

    @classmethod
    def from_estimator(
        cls,
        search: Any,
        *,
        metric: Any = None,
        score_name: str | None = None,
        target: int | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Display of a fitted search.

        Parameters
        ----------
        search : fitted search
            With ``cv_results_``, and ``tau`` or ``..__tau`` among its parameters; or an
            estimator with a search of its own, ``MCDropoutRegressorCV``.
        metric : str, default=None
            Which score; needed where there are several.
        score_name : str, default=None
            Label of the scores; by default the name of the metric or of ``scoring``.
        target : int, default=None
            Which target's tau is on the axis where candidates have one per target; None
            is the first. The scores are those of all targets.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        **kwargs : dict
            As in :meth:`plot`.

        Returns
        -------
        display : TauPathDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_estimator")
        results = _results_of(search)
        mean, error = _scores(results, metric)
        settings = _settings(results)
        several = any(np.ndim(tau) for _, taus in settings for tau, _ in taus)
        target = 0 if several and target is None else target
        lines = [
            _line(setting, taus, mean, error, target) for setting, taus in settings
        ]
        if not any(np.isfinite(line["score"]).any() for line in lines):
            raise ValueError(
                "a path over tau needs a finite score of a number as tau; got no "
                "number with one."
            )
        ranks = np.argsort([-line["best"] for line in lines], kind="stable")
        shown = [lines[i] for i in np.sort(ranks[:MOST_LINES])]
        display = cls(
            tau=[line["tau"] for line in shown],
            score=[line["score"] for line in shown],
            error=[line["error"] for line in shown],
            auto_score=[line["auto"] for line in shown],
            settings=[line["setting"] for line in shown],
            n_settings=len(lines),
            score_name=score_name or metric or _name_of(search),
            tau_name="tau" if target is None else f"tau of target {target}",
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.
        name : str, default=None
            Goes before the labels in the legend.
        **kwargs : dict
            Keywords for the lines, as matplotlib's ``plot`` takes them.

        Returns
        -------
        display : TauPathDisplay
        """
        ax = axes_for(self, ax)
        ax.set_xscale("log")
        self.lines_, self.auto_ = [], []
        for i, setting in enumerate(self.settings):
            text = _joined(name, *setting.values())
            style = styled(
                "Line2D",
                kwargs,
                color=next_color(ax),
                linestyle=LINE_STYLES[i % len(LINE_STYLES)],
                marker="o",
                markersize=4,
                label=text or None,
            )
            self.lines_.append(
                ax.errorbar(
                    self.tau[i],
                    self.score[i],
                    self.error[i],
                    capsize=2,
                    elinewidth=1,
                    **style,
                )
            )
            if not np.isnan(self.auto_score[i]):
                text = _joined(text, 'tau="auto"')
                level = {"color": style["color"], "ls": "--", "lw": 1, "label": text}
                self.auto_.append(ax.axhline(self.auto_score[i], **level))
        tau, score = np.concatenate(self.tau), np.concatenate(self.score)
        best = np.nanargmax(score)
        [self.best_] = ax.plot(
            tau[best],
            score[best],
            color="black",
            linestyle="",
            marker="o",
            markersize=11,
            markerfacecolor="none",
            label=_joined(name, f"best: tau = {tau[best]:.3g}"),
        )
        ax.set(
            xlabel=f"{self.tau_name} (1 / noise variance)",
            ylabel=f"{self.score_name}, mean over folds",
        )
        n_shown = len(self.settings)
        few = f"{n_shown} best of {self.n_settings}"
        title = _joined(*self.settings[0], few if n_shown < self.n_settings else "")
        legend_on_top(ax, title=title or None)
        return self


def _results_of(search):
    """``cv_results_``, or what an estimator with a search of its own has of it."""
    if hasattr(search, "cv_results_"):
        return search.cv_results_
    if not hasattr(search, "scores_") or not hasattr(search, "taus_"):
        raise TypeError(
            "a path over tau can be had from a fitted search, which has "
            "`cv_results_`, or an estimator that has `taus_` and `scores_`; got "
            f"{type(search).__name__} without."
        )
    folds = {f"split{i}_test_score": fold for i, fold in enumerate(search.scores_.T)}
    candidates = [{"tau": tau} for tau in search.taus_]
    return {"params": candidates, "mean_test_score": search.scores_.mean(1)} | folds


def _scores(results, metric):
    """Mean over the folds of each candidate, and its standard error."""
    suffix = "score" if metric is None else metric
    known = [key.removeprefix("mean_test_") for key in results if "mean_test_" in key]
    if suffix not in known:
        raise ValueError(
            f"`metric` must be one of {known} (None where the search has one score); "
            f"got {metric!r}."
        )
    pattern = re.compile(rf"split\d+_test_{re.escape(suffix)}")
    folds = np.array([results[key] for key in results if pattern.fullmatch(key)])
    n = len(folds)
    error = (
        folds.std(0, ddof=1) / np.sqrt(n) if n > 1 else np.full(folds[0].shape, np.nan)
    )
    return folds.mean(0), error


def _settings(results):
    """Pairs of the other parameters that vary, and [(tau, number of candidate), ...].

    The resources of a halving search are one of these parameters.
    """
    candidates = [dict(params) for params in results["params"]]
    for params, n in zip(candidates, results.get("n_resources", ()), strict=False):
        params["n_resources"] = n
    names = sorted({name for params in candidates for name in params})
    of_tau = [name for name in names if name.split("__")[-1] == "tau"]
    if len(of_tau) != 1:
        raise ValueError(
            "a path over tau needs a search with one parameter `tau` or `..__tau`; "
            f"got {of_tau or 'none'} among {names}."
        )
    texts = [
        {name: _text(params, name) for name in names if name not in of_tau}
        for params in candidates
    ]
    varying = [name for name in texts[0] if len({text[name] for text in texts}) > 1]
    short = [name.split("__")[-1] for name in varying]
    shown = short if len(set(short)) == len(short) else varying
    settings: dict[tuple, list] = {}
    for i, (params, text) in enumerate(zip(candidates, texts, strict=True)):
        if of_tau[0] in params:
            values = tuple(text[name] for name in varying)
            settings.setdefault(values, []).append((params[of_tau[0]], i))
    return [
        (dict(zip(shown, values, strict=True)), taus)
        for values, taus in settings.items()
    ]


def _text(params, name):
    """A parameter's value in a legend."""
    if name not in params:
        return "default"
    value = params[name]
    if isinstance(value, BaseEstimator):
        return type(value).__name__
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _line(setting, taus, mean, error, target):
    """One setting's path, sorted by tau; "auto" apart."""
    taus = [(_of_one_target(tau, target), i) for tau, i in taus]
    wrong = [tau for tau, _ in taus if not isinstance(tau, Real | str)]
    if wrong:
        raise ValueError(
            f"a path over tau needs numbers or 'auto' as candidates; got {wrong[0]!r}."
        )
    auto = [mean[i] for tau, i in taus if isinstance(tau, str)]
    path = sorted((tau, i) for tau, i in taus if not isinstance(tau, str))
    places = [i for _, i in path]
    return {
        "setting": setting,
        "tau": np.array([tau for tau, _ in path], dtype=np.float64),
        "score": mean[places],
        "error": error[places],
        "auto": auto[0] if auto else np.nan,
        "best": np.nan_to_num(mean[[i for _, i in taus]], nan=-np.inf).max(),
    }


def _of_one_target(tau, target):
    """A candidate's tau of one target; what is none is told of by the caller."""
    if not np.ndim(tau) or np.ndim(tau) > 1:
        return tau
    return float(of_target("tau", np.asarray(tau)[None], target)[0])


def _name_of(search):
    """Of its ``scoring``, as a label."""
    scoring = search.scoring
    if scoring is None:
        return "log density" if hasattr(search, "taus_") else "score"
    name = getattr(scoring, "__name__", None) if callable(scoring) else str(scoring)
    return (name or "score").removesuffix("_scorer").replace("_", " ")


def _joined(*parts):
    """The parts that are there, with commas."""
    return ", ".join(part for part in parts if part)
