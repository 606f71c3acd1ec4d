"""Labels beside points that cover neither each other nor other points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simkv.plots.style import PALE

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

_FONT_SIZE = 7.5
_NEAR = (5.0, 9.0)  # points from the marker
_FAR = (18.0, 30.0, 44.0, 60.0)  # … with a line to it
_SIDES = (  # the preferred one first
    (1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1),
)  # fmt: skip
_ALIGN_X = {1: "left", 0: "center", -1: "right"}
_ALIGN_Y = {1: "bottom", 0: "center", -1: "top"}
_NUM_ON_A_LEADER = 20
_GAP_PX = 5.0  # between labels
_MARKER_PX = 4.0  # half of what a marker takes


class Label(NamedTuple):
    """A text for a point, in data coordinates."""

    x: float
    y: float
    text: str
    color: str


def place_labels(
    ax: Axes,
    labels: Sequence[Label],
    obstacles: Iterable[tuple[float, float]],
    taken: Sequence[Bbox] = (),
    far: bool = False,
) -> list[Bbox | None]:
    """Write each label where it is free; return the boxes they take in pixels, None for one left out.

    obstacles   points that must stay visible, in data coordinates
    taken       boxes that are occupied already
    far         a label may also stand further off, with a line to its point
    """
    from matplotlib.transforms import Bbox

    ax.figure.canvas.figure.draw_without_rendering()  # the layout settles where the axes are
    points = ax.transData.transform(list(obstacles))
    visible = [Bbox.from_extents(*(point - _MARKER_PX), *(point + _MARKER_PX)) for point in points]
    written = list(taken)
    boxes: list[Bbox | None] = []
    for label in labels:
        box, leader = _place(ax, label, visible, written, _NEAR + _FAR if far else _NEAR)
        boxes.append(box)
        if box is not None:
            written += [box.padded(_GAP_PX), *leader]
    return boxes


def _place(
    ax: Axes, label: Label, visible: Sequence[Bbox], written: Sequence[Bbox], distances: Sequence[float]
) -> tuple[Bbox | None, list[Bbox]]:
    """Try one place after the other; return the box of the text and small ones along the line to the point."""
    from matplotlib.text import Text

    frame = ax.get_window_extent()
    for distance in distances:
        for side_x, side_y in _SIDES:
            text = ax.annotate(
                label.text, (label.x, label.y), (side_x * distance, side_y * distance * (0.7 if side_x else 1.0)),
                textcoords="offset points", ha=_ALIGN_X[side_x], va=_ALIGN_Y[side_y], fontsize=_FONT_SIZE,
                color=label.color, zorder=4,
                arrowprops=None if distance in _NEAR else {
                    "arrowstyle": "-", "color": PALE, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3,
                },
            )  # fmt: skip
            text.set_in_layout(False)  # moving the axes would move the points under the labels
            text.get_window_extent()  # puts it into its place; with a line this would be the box of both
            box = Text.get_window_extent(text)
            is_inside = (
                frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1
            )
            leader = [] if distance in _NEAR else _along(ax.transData.transform((label.x, label.y)), box)
            # a line may pass over points, not over words
            is_free = not _touches(box, visible) and not any(
                _touches(mine, written) for mine in (box, *leader)
            )
            if is_inside and is_free:
                return box, leader
            text.remove()
    return None, []


def _touches(box: Bbox, others: Sequence[Bbox]) -> bool:
    return any(box.overlaps(other) for other in others)


def _along(point: npt.NDArray[np.float64], box: Bbox) -> list[Bbox]:
    """Return boxes of a pixel from beside a point's marker to the nearest point of a box."""
    from matplotlib.transforms import Bbox

    end = np.clip(point, box.min, box.max)
    shares = np.linspace(0.0, 1.0, _NUM_ON_A_LEADER)[:, None]
    pixels = point + shares * (end - point)
    outside = np.abs(pixels - point).max(axis=1) > 2 * _MARKER_PX
    return [Bbox.from_extents(*(pixel - 0.5), *(pixel + 0.5)) for pixel in pixels[outside]]
