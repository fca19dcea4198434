"""A picture of the results: mean rank against seconds."""

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
VERMILION, BLUE = "#D55E00", "#0072B2"


def draw(records: list[dict], path: Path, clock: str) -> bool:
    """Draw the mean rank of the first score against seconds; False without results.

    Only contestants with results on the largest number of sets are drawn.
    """
    from matplotlib.figure import Figure

    panels = {}
    for kind in SCORES:
        by_task = fields(records, kind)
        for some, tasks in groups(by_task)[:1]:
            panels[kind] = by_task, some, tasks
    if not panels:
        return False
    figure = Figure(figsize=(6.2 * len(panels), 4.6), layout="constrained")
    for axes, (kind, (by_task, some, tasks)) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        score = RANKED[kind][0]
        ranks = mean_ranks(by_task, some, tasks, score)
        _panel(
            axes, ranks, {o: typical_seconds(by_task, o, tasks, clock) for o in ranks}
        )
        axes.set_ylabel(f"mean rank by {TITLES[score]}")
        axes.set_title(f"{kind}, {len(tasks)} sets")
    figure.savefig(path, dpi=130)
    return True


def _panel(axes, ranks: dict[str, float], times: dict[str, float]) -> None:
    ours = {one.name for one in CONTESTANTS if one.is_ours}
    colors = {one: VERMILION if one in ours else BLUE for one in ranks}
    for one, rank in ranks.items():
        axes.plot(times[one], rank, "o", color=colors[one], ms=5)
    axes.set_xscale("log")
    axes.margins(x=0.2)
    axes.invert_yaxis()
    axes.set_xlabel("seconds of fit and prediction")
    axes.grid(color="#EEEEEE")
    to_axes = axes.transData + axes.transAxes.inverted()
    points = {one: to_axes.transform((times[one], ranks[one])) for one in ranks}
    for one, place in _places(points).items():
        options = {"color": colors[one], "fontsize": 8, "va": "center"}
        axes.text(*place, one, transform=axes.transAxes, **options)


def _places(points: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Places of the names: left or right of their points, as near as there is room.

    points : in units of the panel, like the result
    """
    taken = [(x - 0.01, y - 0.01, x + 0.01, y + 0.01) for x, y in points.values()]
    result = {}
    for one, (x, y) in points.items():
        width = 0.012 * len(one)
        for step in sorted(range(-8, 9), key=abs):
            for start in (x + 0.015, x - 0.015 - width):
                middle = y + 0.012 * step
                box = start, middle - 0.015, start + width, middle + 0.015
                inside = box[0] > 0 and box[2] < 1
                free = inside and not any(_overlap(box, t) for t in taken)
                if one not in result and free:
                    taken.append(box)
                    result[one] = start, middle
        result.setdefault(one, (x + 0.015, y))
    return result


def _overlap(one: tuple, other: tuple) -> bool:
    """Whether two boxes (left, lower, right, upper) overlap."""
    disjoint = one[2] < other[0] or other[2] < one[0]
    return not (disjoint or one[3] < other[1] or other[3] < one[1])
