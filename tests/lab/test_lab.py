"""The lab's command, its table and drawings, and the quick experiments played for real."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.lab import amplification, breaker_cycle, limiter_edge, plot, raw_vs_final, retry_storm
from sandbox.lab.__main__ import EXPERIMENTS, main
from sandbox.lab.report import Report, Row

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "explanation" / "lab"


def quiet(_: str) -> None:
    """Nobody listens to the progress."""


def expect(play: Callable[[], Report]) -> None:
    """Played in real time and far faster than the sources: a machine that stands still spoils a try, not three."""
    report = play()
    for _ in range(2):
        if not report.ok:
            report = play()
    assert report.ok, report.table()
    for svg in report.plots.values():
        ET.fromstring(svg)


def test_the_breaker_goes_its_whole_way_with_the_bounce() -> None:
    expect(lambda: breaker_cycle.run(quiet, pace=0.15))


def test_a_limit_is_kept_at_the_edge_of_its_periods() -> None:
    expect(lambda: limiter_edge.run(quiet))


def test_raw_refusals_and_final_ones_are_counted_apart() -> None:
    expect(lambda: raw_vs_final.run(quiet, pace=0.1, tasks=150))


def test_repeats_multiply_along_a_chain_of_services_and_a_budget_ends_that() -> None:
    expect(lambda: retry_storm.run(quiet, requests=8))


def test_a_deadline_handed_on_saves_the_work_for_nobody() -> None:
    expect(lambda: amplification.run(quiet, requests=40))


def test_a_failed_expectation_is_shown_and_ends_with_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (Row("in time", "1", "2", "1", ok=True), Row("failed requests", "149", "3", "0", ok=False))
    monkeypatch.setattr("sandbox.lab.__main__.play", lambda *_: Report("breaker-cycle", "", rows, {}))
    assert main(["breaker-cycle"]) == 1
    shown = capsys.readouterr()
    assert [line for line in shown.out.splitlines() if "NOT SO" in line] == [
        "  failed requests  149     3     0   <<< NOT SO"
    ]
    assert "not as expected: breaker-cycle" in shown.err


def test_a_row_cannot_fail_what_it_does_not_expect() -> None:
    with pytest.raises(ValueError, match="an expectation that it names"):
        Row("latency", "", "3 ms", ok=False)


def test_figures_and_plots_are_written_where_they_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = plot.bars("Refused", "calls", [("fixed", {"all": 100}), ("sliding", {"all": 50})])
    report = Report(
        "limiter-edge", "", (Row("calls", "100", "50"),), {"limiter-edge": picture}, {"calls": [50]}
    )
    monkeypatch.setattr("sandbox.lab.__main__.play", lambda *_: report)
    assert main(["breaker-cycle", "--json", "--out", str(tmp_path / "new")]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "new/limiter-edge.json").read_text())
    assert ET.parse(tmp_path / "new/limiter-edge.svg").getroot().get("aria-label") == "Refused"


def test_the_command_needs_no_settings_and_names_the_experiments() -> None:
    asked = subprocess.run(
        [sys.executable, "manage.py", "lab", "no-such"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert asked.returncode == 2
    assert all(name in asked.stderr for name in EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_its_page_with_its_plot_and_the_figures_of_that_run(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    kept = json.loads((ROOT / "docs" / "images" / "lab" / f"{name}.json").read_text())
    assert kept["ok"]
    for row in kept["rows"]:
        assert f"| {row['what']} | {row['source']} | {row['ours']} |" in page
    assert f"manage.py lab {name}" in page
    assert f"../../images/lab/{name}.svg" in page
    assert f"({name}.md)" in (PAGES / "README.md").read_text()
    assert ET.parse(ROOT / "docs" / "images" / "lab" / f"{name}.svg").getroot().tag.endswith("svg")


def test_curves_steps_and_stretches_are_drawn_the_same_each_time() -> None:
    def draw() -> str:
        points = {"busy <threads>": [(0.0, 0.0), (1.5, 200.0)]}
        return plot.lines("Threads", "seconds", "busy", points, steps=True, spans=[(0.5, 1.0, "outage")])

    assert draw() == draw()
    words = [text.text for text in ET.fromstring(draw()).iter("{http://www.w3.org/2000/svg}text")]
    assert {"busy <threads>", "outage", "seconds", "busy", "200"} <= set(words)
