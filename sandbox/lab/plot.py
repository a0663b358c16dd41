"""Plots as plain SVG: same figures, same bytes. Dark ink on a light sheet of their own, so they read on any page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH = 760
_LEFT, _RIGHT, _TOP = 64, 24, 56
_INK, _SOFT, _GRID, _SHEET = "#17262d", "#51626a", "#d8d6cb", "#fffefb"
COLOURS = ("#0d5566", "#c0561f", "#5b7f2b", "#7a4b94", "#98231c", "#8a6d1a")
"""Told apart by lightness too, and all at least 4.5 : 1 on the sheet but the last."""

Points = Sequence[tuple[float, float]]


def lines(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, Points],
    *,
    steps: bool = False,
    spans: Sequence[tuple[float, float, str]] = (),
) -> str:
    """Curves over one pair of axes that both begin at 0. `steps`: values hold until the next one. `spans`: named
    stretches of the x axis, drawn behind."""
    right = max((x for points in series.values() for x, _ in points), default=1.0)
    right = max([right, *(end for _, end, _ in spans)])
    top = _round_up(max((y for points in series.values() for _, y in points), default=1.0))
    height, base = 250, _TOP + 250
    xs, ys = _Scale(right, _LEFT, WIDTH - _RIGHT), _Scale(top, base, base - height)
    body = [_span(xs, begin, end, word, base, height) for begin, end, word in spans]
    body += [_grid_line(ys(tick), _number(tick)) for tick in _ticks(top)]
    body += [_x_tick(xs(tick), base, _number(tick)) for tick in _ticks(right)]
    for place, (name, points) in enumerate(series.items()):
        colour = COLOURS[place % len(COLOURS)]
        path = _steps(points) if steps else list(points)
        drawn = " ".join(f"{xs(x):.1f},{ys(y):.1f}" for x, y in path)
        body.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body.append(_legend(place, len(series), name, colour))
    body.append(_axis_words(x_label, y_label, base))
    return _sheet(title, base + 54, body)


def bars(title: str, unit: str, groups: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Lying bars with their figures: groups of one bar for each series, in the order given."""
    names = list(dict.fromkeys(name for _, values in groups for name in values))
    top = max((value for _, values in groups for value in values.values()), default=1.0) or 1.0
    left = 34 + max(len(label) for label, _ in groups) * 7
    scale = _Scale(top, left, WIDTH - 110)
    body, y = [], _TOP + 8
    for label, values in groups:
        middle = y + 11 * len(values)
        body.append(_text(left - 10, middle + 5, label, anchor="end"))
        for name, value in values.items():
            colour = COLOURS[names.index(name) % len(COLOURS)]
            width = max(1.5, scale(value) - left)
            body.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="18" rx="2" fill="{colour}"/>')
            body.append(_text(left + width + 7, y + 14, f"{_number(value)} {unit}".strip()))
            y += 22
        y += 12
    if len(names) > 1:
        body += [_legend(n, len(names), name, COLOURS[n % len(COLOURS)]) for n, name in enumerate(names)]
    body.append(f'<path d="M{left} {_TOP}V{y - 6}" stroke="{_INK}"/>')
    return _sheet(title, y + 8, body)


def strip(
    title: str,
    x_label: str,
    lanes: Sequence[tuple[str, Sequence[tuple[float, float, str]]]],
    colours: Mapping[str, str],
    *,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Bands over time: each lane a row of (begin, end, word) in the colour of its word. `marks`: named moments."""
    right = max(end for _, bands in lanes for _, end, _ in bands)
    left, base = 34 + max(len(name) for name, _ in lanes) * 7, _TOP + 18 + 46 * len(lanes)
    xs = _Scale(right, left, WIDTH - _RIGHT)
    body = []
    for place, (name, bands) in enumerate(lanes):
        y = _TOP + 18 + 46 * place
        body.append(_text(left - 10, y + 21, name, anchor="end"))
        for begin, end, word in bands:
            width = xs(end) - xs(begin)
            fill = colours.get(word, _GRID)
            body.append(f'<rect x="{xs(begin):.1f}" y="{y}" width="{width:.1f}" height="32" fill="{fill}"/>')
            if width > 8 * len(word):
                middle = xs(begin) + width / 2
                body.append(_text(middle, y + 21, word, anchor="middle", fill="#fff", size=12))
    words = list(dict.fromkeys(word for _, bands in lanes for _, _, word in bands))
    body += [_legend(n, len(words), word, colours.get(word, _GRID)) for n, word in enumerate(words)]
    for at, word in marks:
        body.append(
            f'<path d="M{xs(at):.1f} {_TOP + 14}V{base - 8}" stroke="{_INK}" stroke-dasharray="4 3"/>'
        )
        body.append(_text(xs(at), _TOP + 10, word, anchor="middle", fill=_SOFT, size=12))
    body += [_x_tick(xs(tick), base - 6, _number(tick)) for tick in _ticks(right)]
    body.append(_text((left + WIDTH - _RIGHT) / 2, base + 32, x_label, anchor="middle", fill=_SOFT))
    return _sheet(title, base + 46, body)


class _Scale:
    """A value from 0 to `top` to a place between two others."""

    def __init__(self, top: float, begin: float, end: float) -> None:
        self._top, self._begin, self._end = top or 1.0, begin, end

    def __call__(self, value: float) -> float:
        return self._begin + (self._end - self._begin) * value / self._top


def _round_up(value: float) -> float:
    """The next 1, 2, 2.5 or 5 times a power of ten, so that the top of the axis is a number to read."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999)


def _ticks(top: float) -> list[float]:
    """Four to seven round values from 0 up to `top`."""
    power = 10.0 ** math.floor(math.log10(top))
    step = next(part * power for part in (0.1, 0.2, 0.25, 0.5, 1, 2) if top / (part * power) <= 7)
    return [round(step * n, 10) for n in range(int(top / step + 1e-9) + 1)]


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}".replace(",", "\u202f")
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def _steps(points: Points) -> list[tuple[float, float]]:
    path: list[tuple[float, float]] = []
    for x, y in points:
        if path:
            path.append((x, path[-1][1]))
        path.append((x, y))
    return path


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", fill: str = _INK, size: int = 13, more: str = ""
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}"{more}'
    return f"<text {place}>{escape(words)}</text>"


def _span(xs: _Scale, begin: float, end: float, word: str, base: float, height: float) -> str:
    width = xs(end) - xs(begin)
    area = f'<rect x="{xs(begin):.1f}" y="{base - height}" width="{width:.1f}" height="{height}" fill="#fbe9e6"/>'
    return area + _text(
        xs(begin) + width / 2, base - height + 16, word, anchor="middle", fill="#98231c", size=12
    )


def _grid_line(y: float, word: str) -> str:
    line = f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" stroke="{_GRID}"/>'
    return line + _text(_LEFT - 8, y + 4, word, anchor="end", fill=_SOFT, size=12)


def _x_tick(x: float, base: float, word: str) -> str:
    line = f'<path d="M{x:.1f} {base}v5" stroke="{_INK}"/>'
    return line + _text(x, base + 19, word, anchor="middle", fill=_SOFT, size=12)


def _axis_words(x_label: str, y_label: str, base: float) -> str:
    middle = (_TOP + base) / 2
    turned = f' transform="rotate(-90 16 {middle:.0f})"'
    return _text((_LEFT + WIDTH - _RIGHT) / 2, base + 40, x_label, anchor="middle", fill=_SOFT) + _text(
        16, middle, y_label, anchor="middle", fill=_SOFT, more=turned
    )


def _legend(place: int, count: int, name: str, colour: str) -> str:
    x = 24 + place * min(190, (WIDTH - 48) / max(1, count))
    box = f'<rect x="{x:.0f}" y="38" width="11" height="11" rx="2" fill="{colour}"/>'
    return box + _text(x + 16, 48, name, fill=_SOFT, size=12)


def _sheet(title: str, height: float, body: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif">'
    )
    sheet = f'<rect width="{WIDTH}" height="{height:.0f}" rx="10" fill="{_SHEET}"/>'
    heading = _text(24, 26, title, size=16, more=' font-weight="600"')
    return "\n".join([head, sheet, heading, *body, "</svg>", ""])
