"""The data of a figure of matplotlib: what its axes are called, and the series on them."""

import contextlib
import json
import math
from typing import Any

#: The type of the data in a display.
CHART = "application/vnd.fastaudit.chart+json"

#: The axes of a figure, the series of each, and the points of a series.
AXES, SERIES, POINTS = 20, 50, 1_000

#: The characters of a text.
TEXT = 200


def chart(figure: Any) -> str | None:
    """Return the data of a figure as JSON; ``None`` if it has no lines, bars and points."""
    axes = [_axes(one) for one in figure.axes[:AXES]]
    if not any(one["series"] for one in axes):
        return None
    return json.dumps({"title": _title(figure), "axes": axes})


def _title(figure: Any) -> str:
    title = getattr(figure, "_suptitle", None)
    return "" if title is None else _text(title.get_text())


def _axes(axes: Any) -> dict[str, Any]:
    series: list[dict[str, Any]] = []
    for line in axes.get_lines():
        found = {"type": "line", "label": line.get_label()}
        series.append({**found, "x": line.get_xdata(), "y": line.get_ydata()})
    for points in axes.collections:
        offsets = points.get_offsets()
        if type(points).__name__ == "PathCollection":
            found = {"type": "scatter", "label": points.get_label()}
            series.append({**found, "x": offsets[:, 0], "y": offsets[:, 1]})
    for bars in axes.containers:
        if type(bars).__name__ == "BarContainer":
            series.append({"type": "bar", "label": bars.get_label(), **_bars(axes, bars)})
    return {
        "title": _text(axes.get_title()),
        "x_label": _text(axes.get_xlabel()),
        "y_label": _text(axes.get_ylabel()),
        "series": [
            {
                "type": one["type"],
                # Matplotlib makes up labels with an underscore.
                "label": "" if str(one["label"]).startswith("_") else _text(one["label"]),
                "x": _values(one["x"]),
                "y": _values(one["y"]),
            }
            for one in series[:SERIES]
        ],
    }


def _bars(axes: Any, bars: Any) -> dict[str, Any]:
    is_flat = getattr(bars, "orientation", None) == "horizontal"
    ticks = axes.get_yticks() if is_flat else axes.get_xticks()
    labels = axes.get_yticklabels() if is_flat else axes.get_xticklabels()
    named = {float(tick): label.get_text() for tick, label in zip(ticks, labels, strict=False)}
    places, sizes = [], []
    for patch in bars.patches[:POINTS]:
        middle = patch.get_y() + patch.get_height() / 2
        if not is_flat:
            middle = patch.get_x() + patch.get_width() / 2
        places.append(named.get(float(middle)) or middle)
        sizes.append(patch.get_width() if is_flat else patch.get_height())
    return {"x": sizes, "y": places} if is_flat else {"x": places, "y": sizes}


def _values(values: Any) -> list[float | str | None]:
    return [_value(value) for value in list(values[:POINTS])]


def _value(value: Any) -> float | str | None:
    if not isinstance(value, str):
        with contextlib.suppress(TypeError, ValueError):
            number = float(value)
            return number if math.isfinite(number) else None
    return _text(value)


def _text(value: Any) -> str:
    return str(value)[:TEXT]
