"""Cross-validated score over the precision tau."""

import re
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from skbayesnn.inspection._importance import select_target
from skbayesnn.plotting._shared import (
    LINE_STYLES,
    axes_for,
    legend_on_top,
    next_color,
    require_matplotlib,
    styled,
)

MAX_LINES = 8


class TauPathDisplay:
    """Cross-validated score of a search over the noise precision tau.

    Create it by :meth:`from_estimator`. Bars are one standard error of the mean over
    folds. The folds share most of their training rows, so the bars are a hint, not a
    test. If the search varies other parameters, each of their settings has a line; at
    most the 8 with the best scores are shown. The candidate ``tau="auto"`` is a dashed
    horizontal line.

    Parameters
    ----------
    tau : list of ndarray of shape (n_candidates,)
        Per line, increasing; 1 / noise variance in y's units.
    score, error : list of ndarray of shape (n_candidates,)
        Per line: mean over the folds and its standard error (NaN with a single fold).
    auto_score : list of float
        Per line: score of ``tau="auto"``, NaN if it is not a candidate.
    settings : list of dict of str
        Per line: the other parameters that vary, and their values.
    n_settings : int
        Number of settings in the search, including settings that are not shown.
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
        Mark of the best candidate with a number as tau.
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
        """Plot the scores of a fitted search.

        Parameters
        ----------
        search : fitted search
            Search with ``cv_results_`` and ``tau`` or ``..__tau`` among its parameters,
            or an estimator with a built-in search, ``TauCV``.
        metric : str, default=None
            Name of the score; required if the search has several.
        score_name : str, default=None
            Label of the scores; by default the name of the metric or of ``scoring``.
        target : int, default=None
            Index of the target whose tau is on the x axis, if candidates have one tau
            per target; None is the first. The scores belong to all targets.
        ax : matplotlib Axes, default=None
            None creates a new figure.
        **kwargs : dict
            Keywords of :meth:`plot`.

        Returns
        -------
        display : TauPathDisplay
        """
        require_matplotlib(f"{cls.__name__}.from_estimator")
        results = _search_results(search)
        mean, error = _scores(results, metric)
        settings = _settings(results)
        per_target = any(np.ndim(tau) for _, taus in settings for tau, _ in taus)
        target = 0 if per_target and target is None else target
        lines = [
            _line(setting, taus, mean, error, target) for setting, taus in settings
        ]
        if not any(np.isfinite(line["score"]).any() for line in lines):
            raise ValueError(
                "a path over tau needs a finite score of a number as tau; got no "
                "number with a finite score."
            )
        ranks = np.argsort([-line["best"] for line in lines], kind="stable")
        shown = [lines[i] for i in np.sort(ranks[:MAX_LINES])]
        display = cls(
            tau=[line["tau"] for line in shown],
            score=[line["score"] for line in shown],
            error=[line["error"] for line in shown],
            auto_score=[line["auto"] for line in shown],
            settings=[line["setting"] for line in shown],
            n_settings=len(lines),
            score_name=score_name or metric or _scoring_name(search),
            tau_name="tau" if target is None else f"tau of target {target}",
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, *, name: str | None = None, **kwargs: Any) -> Self:
        """Draw the scores over tau.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None creates a new figure.
        name : str, default=None
            Prefix of the labels in the legend.
        **kwargs : dict
            Keywords of matplotlib's ``plot`` for the lines.

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
        subset = f"{n_shown} best of {self.n_settings}"
        title = _joined(*self.settings[0], subset if n_shown < self.n_settings else "")
        legend_on_top(ax, title=title or None)
        return self


def _search_results(search):
    """``cv_results_``, or the same from an estimator with a built-in search."""
    if hasattr(search, "cv_results_"):
        return search.cv_results_
    if not hasattr(search, "scores_") or not hasattr(search, "taus_"):
        raise TypeError(
            "a path over tau needs a fitted search with `cv_results_`, or a fitted "
            "estimator with `taus_` and `scores_`; got "
            f"{type(search).__name__} without them."
        )
    folds = {f"split{i}_test_score": fold for i, fold in enumerate(search.scores_.T)}
    candidates = [{"tau": tau} for tau in search.taus_]
    return {"params": candidates, "mean_test_score": search.scores_.mean(1)} | folds


def _scores(results, metric):
    """Mean over the folds of each candidate, and its standard error."""
    suffix = "score" if metric is None else metric
    names = [key.removeprefix("mean_test_") for key in results if "mean_test_" in key]
    if suffix not in names:
        raise ValueError(
            f"`metric` must be one of {names} (None if the search has one score); "
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
    """Settings of the other parameters that vary, each with its values of tau.

    Return pairs of a setting and [(tau, index of the candidate), ...]. The resources
    of a halving search count as a parameter.
    """
    candidates = [dict(params) for params in results["params"]]
    for params, n in zip(candidates, results.get("n_resources", ()), strict=False):
        params["n_resources"] = n
    names = sorted({name for params in candidates for name in params})
    tau_names = [name for name in names if name.split("__")[-1] == "tau"]
    if len(tau_names) != 1:
        raise ValueError(
            "a path over tau needs a search with one parameter `tau` or `..__tau`; "
            f"got {tau_names or 'none'} among {names}."
        )
    texts = [
        {name: _text(params, name) for name in names if name not in tau_names}
        for params in candidates
    ]
    varying = [name for name in texts[0] if len({text[name] for text in texts}) > 1]
    short = [name.split("__")[-1] for name in varying]
    shown = short if len(set(short)) == len(short) else varying
    settings: dict[tuple, list] = {}
    for i, (params, text) in enumerate(zip(candidates, texts, strict=True)):
        if tau_names[0] in params:
            values = tuple(text[name] for name in varying)
            settings.setdefault(values, []).append((params[tau_names[0]], i))
    return [
        (dict(zip(shown, values, strict=True)), taus)
        for values, taus in settings.items()
    ]


def _text(params, name):
    """Format a parameter's value for the legend."""
    if name not in params:
        return "default"
    value = params[name]
    if isinstance(value, BaseEstimator):
        return type(value).__name__
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _line(setting, taus, mean, error, target):
    """Path of one setting, sorted by tau; "auto" is returned separately."""
    taus = [(_tau_of_target(tau, target), i) for tau, i in taus]
    wrong = [tau for tau, _ in taus if not isinstance(tau, Real | str)]
    if wrong:
        raise ValueError(
            f"a path over tau needs numbers or 'auto' as candidates; got {wrong[0]!r}."
        )
    auto = [mean[i] for tau, i in taus if isinstance(tau, str)]
    path = sorted((tau, i) for tau, i in taus if not isinstance(tau, str))
    indices = [i for _, i in path]
    return {
        "setting": setting,
        "tau": np.array([tau for tau, _ in path], dtype=np.float64),
        "score": mean[indices],
        "error": error[indices],
        "auto": auto[0] if auto else np.nan,
        "best": np.nan_to_num(mean[[i for _, i in taus]], nan=-np.inf).max(),
    }


def _tau_of_target(tau, target):
    """Select one target's tau of a candidate; the caller reports invalid values."""
    if not np.ndim(tau) or np.ndim(tau) > 1:
        return tau
    return float(select_target("tau", np.asarray(tau)[None], target)[0])


def _scoring_name(search):
    """Name of the search's ``scoring``, as a label."""
    scoring = search.scoring
    if scoring is None:
        return "log density" if hasattr(search, "taus_") else "score"
    name = getattr(scoring, "__name__", None) if callable(scoring) else str(scoring)
    return (name or "score").removesuffix("_scorer").replace("_", " ")


def _joined(*parts):
    """Join the non-empty parts by commas."""
    return ", ".join(part for part in parts if part)
