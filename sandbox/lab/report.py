"""What an experiment hands back: a table beside the source's figures, plots, and whether it came out as expected."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Say = Callable[[str], None]
"""Takes one line about the progress."""


@dataclass(frozen=True)
class Row:
    """One line of the table. `source`: what the story that is retold had measured, "" where it had no figure.

    `expected`: in words what must be true of ours, "" where nothing must. `ok` is False when it was not.
    """

    what: str
    source: str
    ours: str
    expected: str = ""
    ok: bool = True

    def __post_init__(self) -> None:
        if not self.ok and not self.expected:
            raise ValueError(f"{self.what}: a row can only fail an expectation that it names")


@dataclass(frozen=True)
class Report:
    """The end of one experiment.

    plots: file name without suffix → SVG. series: the measured values behind them. pages: further files that the
    experiment made, by name.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    plots: Mapping[str, str]
    series: Mapping[str, Any] = field(default_factory=dict)
    pages: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Every expectation held."""
        return all(row.ok for row in self.rows)

    def table(self) -> str:
        """For a terminal."""
        head = Row("", "source", "ours", "expected")
        cells = [(row.what, row.source, row.ours, row.expected) for row in (head, *self.rows)]
        widths = [max(len(line[place]) for line in cells) for place in range(4)]
        lines = [f"{self.name}: {self.title}", ""]
        for row, line in zip((head, *self.rows), cells, strict=True):
            texts = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
            lines.append(("  " + "  ".join(texts)).rstrip() + ("" if row.ok else "   <<< NOT SO"))
        return "\n".join(lines)

    def json(self) -> str:
        """Everything but the drawings."""
        value = {
            "name": self.name,
            "title": self.title,
            "ok": self.ok,
            "seconds": round(self.seconds, 1),
            "rows": [asdict(row) for row in self.rows],
            "series": dict(self.series),
        }
        return json.dumps(value, indent=1, ensure_ascii=False) + "\n"

    def write(self, folder: Path) -> list[Path]:
        """Plots, figures and pages as files in `folder`, which is made if it is missing. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        files = {f"{name}.svg": text for name, text in self.plots.items()}
        files |= {f"{self.name}.json": self.json(), **self.pages}
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return [folder / name for name in files]
