"""A picture of the results: mean rank against seconds, and the Pareto front."""

from pathlib import Path

import numpy as np
from _leaderboard.contestants import CONTESTANTS
from _leaderboard.predictives import SCORES
from _leaderboard.ranking import (
    RANKED,
    TITLES,
    fields,
    groups,
    mean_ranks,
    typical_seconds,
)

# Okabe & Ito: colours that colour-blind people can distinguish.
BLUE, GREY = "#0072B2", "#666666"
# Width of a letter of a name, as a share of the panel.
WIDTH = 0.013


def draw(records: list[dict], path: Path, clock: str) -> bool:
    """Draw the mean rank of the first score against seconds; False without results.

    Only contestants with results on the largest number of sets are drawn. No contestant
    is both faster and better than those on the line.
    """
    from matplotlib.figure import Figure

    panels = {}
    for kind in SCORES:
        by_task = fields(records, kind)
        for some, tasks in groups(by_task)[:1]:
            panels[kind] = by_task, some, tasks
    if not panels:
        return False
    figure = Figure(figsize=(6.2 * len(panels), 5.4), layout="constrained")
    for axes, (kind, (by_task, some, tasks)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        score = RANKED[kind][0]
        ranks = mean_ranks(by_task, some, tasks, score)
        _panel(
            axes, ranks, {o: typical_seconds(by_task, o, tasks, clock) for o in ranks}
        )
        axes.set_ylabel(f"mean rank by {TITLES[score]} (1 is the best)")
        axes.set_title(f"{kind}: {len(tasks)} sets, {len(ranks)} models")
    for label, color in (("skbayesnn", BLUE), ("other packages", GREY)):
        figure.axes[0].plot([], [], "o", color=color, ms=6, label=label)
    figure.axes[0].legend(loc="lower right", frameon=False)
    figure.savefig(path, dpi=130)
    return True


def _panel(axes, ranks: dict[str, float], times: dict[str, float]) -> None:
    from matplotlib.patheffects import withStroke

    ours = {one.name for one in CONTESTANTS if one.is_ours}
    colors = {one: BLUE if one in ours else GREY for one in ranks}
    for one, rank in ranks.items():
        axes.plot(times[one], rank, "o", color=colors[one], ms=6, zorder=3)
    front = pareto_front(ranks, times)
    axes.step(
        [times[one] for one in front],
        [ranks[one] for one in front],
        where="post",
        color="#CCCCCC",
        lw=1.2,
        zorder=2,
    )
    axes.set_xscale("log")
    axes.margins(x=0.3)
    axes.invert_yaxis()
    axes.set_xlabel("seconds of fit and prediction, geometric mean")
    axes.grid(color="#EEEEEE")
    to_axes = axes.transData + axes.transAxes.inverted()
    points = {one: to_axes.transform((times[one], ranks[one])) for one in ranks}
    for one, (start, middle, side) in _places(points).items():
        x, y = points[one]
        if abs(middle - y) > 0.01:  # a line from the point to its name
            line = {"color": colors[one], "lw": 0.6, "transform": axes.transAxes}
            axes.plot([x, start], [y, middle], **line)
        text = axes.text(
            start,
            middle,
            _shown(one),
            transform=axes.transAxes,
            color=colors[one],
            fontsize=9,
            va="center",
            ha=side,
            weight="bold" if one in front else "normal",
        )
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])


def pareto_front(ranks: dict[str, float], times: dict[str, float]) -> list[str]:
    """Contestants that no other is both faster and better than, the fastest first."""
    front: list[str] = []
    for one in sorted(ranks, key=lambda one: (times[one], ranks[one])):
        if not front or ranks[one] < ranks[front[-1]]:
            front.append(one)
    return front


def _shown(name: str) -> str:
    """Name of a contestant in the picture."""
    return name.replace("_", " ")


def _places(points: dict[str, np.ndarray]) -> dict[str, tuple[float, float, str]]:
    """Places of the names: left or right of their points, as near as there is room.

    points : in units of the panel, like the result
    returns : for each name its start or end, its height, and "left" or "right"
    """
    taken = [(x - 0.01, y - 0.01, x + 0.01, y + 0.01) for x, y in points.values()]
    result = {}
    for one, (x, y) in points.items():
        width = WIDTH * len(one)
        for step in sorted(range(-8, 9), key=abs):
            for end, side in ((x + 0.015, "left"), (x - 0.015, "right")):
                middle = y + 0.012 * step
                first = end if side == "left" else end - width
                box = first, middle - 0.015, first + width, middle + 0.015
                inside = box[0] > 0 and box[2] < 1
                free = inside and not any(_overlap(box, t) for t in taken)
                if one not in result and free:
                    taken.append(box)
                    result[one] = end, middle, side
        result.setdefault(one, (x + 0.015, y, "left"))
    return result


def _overlap(one: tuple, other: tuple) -> bool:
    """Whether two boxes (left, lower, right, upper) overlap."""
    disjoint = one[2] < other[0] or other[2] < one[0]
    return not (disjoint or one[3] < other[1] or other[3] < one[1])
