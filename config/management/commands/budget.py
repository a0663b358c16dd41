"""`manage.py budget`: where a checkout's time goes, and whether the numbers add up."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from config.budget import Row, Table, cut_off, table
from config.checks import Problem, problems


class Command(BaseCommand):
    help = "The table of the time budget, derived from the settings, with a verdict. Exit 1 when it is bad."
    requires_system_checks = []  # the verdict is what this command is for

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="for machines")
        parser.add_argument(
            "--metrics",
            type=Path,
            metavar="FILE",
            help="what a metrics port served: whom would the timeouts cut off",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        found = problems(settings.HOLDFAST)
        bad = any(problem.number.startswith("E") for problem in found)
        try:
            whole = table(settings.HOLDFAST)
        except ValueError:  # one of the errors says why there is none
            whole = None
        shares = _cut_off(whole, options["metrics"]) if whole and options["metrics"] else {}
        if options["json"]:
            self.stdout.write(json.dumps({**_as_json(whole, found, bad), "cut_off": shares}, indent=1))
        else:
            lines = _lines(whole) if whole else []
            lines += [_cut_off_line(name, share) for name, share in shares.items()]
            for line in [*lines, *_verdict(found, bad)]:
                self.stdout.write(line)
        if bad:
            raise SystemExit(1)


def _cut_off(whole: Table, metrics: Path) -> dict[str, float | None]:
    try:
        text = metrics.read_text()
        return {row.name: cut_off(text, row) for row in whole.rows}
    except (OSError, ValueError, KeyError) as error:
        raise CommandError(f"{metrics} cannot be read as metrics: {error}") from None


def _cut_off_line(name: str, share: float | None) -> str:
    if share is None:
        return f"{name}: the metrics know of no successful call"
    return f"{name}: the timeout would cut off {share:.2%} of the calls that succeeded"


def _as_json(whole: Table | None, found: list[Problem], bad: bool) -> dict[str, Any]:
    return {
        "verdict": "bad" if bad else "good",
        "table": asdict(whole) if whole else None,
        "problems": [{"id": f"holdfast.{problem.number}", "text": problem.text} for problem in found],
    }


def _lines(whole: Table) -> list[str]:
    titles = ["", *(row.name for row in whole.rows)]
    cells = [titles, *([title, *map(show, whole.rows)] for title, show in _COLUMNS)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(titles))]
    return [
        f"Budget {whole.budget_ms} ms = own work {whole.own_work_ms} ms + the neighbours' shares; "
        f"worst case {whole.worst_case_ms} ms; {whole.expected_rps} rps on {whole.threads} threads",
        "",
        *("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in cells),
        "",
        *(f"{row.name} hangs: after {row.worst_case_ms} ms, {row.caller_sees}" for row in whole.rows),
        "",
    ]


def _pauses(row: Row) -> str:
    return " + ".join(f"{pause} ms" for pause in row.pauses_ms) or "none"


_COLUMNS = [
    ("share", lambda row: f"{row.share_ms} ms"),
    ("attempts × call", lambda row: f"{row.attempts} × {row.call_ms} ms"),
    ("pauses, at most", _pauses),
    ("connect / read / pool wait", lambda row: f"{row.connect_ms} / {row.read_ms} / {row.pool_wait_ms} ms"),
    ("worst case of one call", lambda row: f"{row.worst_case_ms} ms"),
    ("threads held when it hangs", lambda row: f"{row.threads_held:g}"),
    ("… behind its bulkhead", lambda row: f"{row.threads_taken:g}"),
    (
        "requests per call in an outage",
        lambda row: f"{row.requests_per_call:g} (unbudgeted {row.requests_per_call_at_most:g})",
    ),
    ("breaker opens after", lambda row: f"{row.seconds_until_open:.2f} s"),
]


def _verdict(found: list[Problem], bad: bool) -> list[str]:
    lines = [f"holdfast.{problem.number}: {problem.text}" for problem in found]
    return [*lines, "Verdict: it does not add up." if bad else "Verdict: it adds up."]
