"""`python -m sandbox.lab [NAME…]`, also `manage.py lab`: plays experiments; exit 1 if one came out otherwise.

Needs no settings and no running shop: whatever an experiment wants, it starts and ends itself.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sandbox.lab.report import Report, Say

EXPERIMENTS = {
    "breaker-cycle": "the breaker's whole cycle, with the bounce at the edge of recovery",
    "limiter-edge": "100 calls in 2 ms under an honest limit of 50 a second",
    "raw-vs-final": "refusals counted in the layer, and refusals that a caller felt",
    "retry-storm": "3 × 3 × 3 = 27 calls for one request",
    "amplification": "work done for callers who have left",
    "exhaustion": "a hung gateway and 200 threads: without layers, and with one more each time",
    "drain": "a web server told to stop with a checkout in flight",
    "preroute": "requests for a server that has been told to stop",
    "poison": "a message that can never be delivered, at the head of the queue",
    "node-loss": "one cache node lost, and the connections that this opens",
    "outage": "ten minutes without a payment gateway, and the report for the business",
}
"""Name → what it shows, in the order they are best read. The module has the same name."""


def play(name: str, say: Say) -> Report:
    """Runs one experiment. Raises KeyError for a name that is none, and what the experiment raises."""
    EXPERIMENTS[name]
    module = importlib.import_module(f"sandbox.lab.{name.replace('-', '_')}")
    begun = time.monotonic()
    report: Report = module.run(say)
    return replace(report, seconds=time.monotonic() - begun)


def parser() -> argparse.ArgumentParser:
    """What the command line understands."""
    listed = "\n".join(f"  {name:<15} {what}" for name, what in EXPERIMENTS.items())
    made = argparse.ArgumentParser(
        prog="manage.py lab",
        description="Plays experiments and prints their figures beside the sources'; exit 1 if one came out otherwise.",
        epilog=listed,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("name", nargs="*", metavar="NAME", help="which experiments; all without a name")
    made.add_argument("--json", action="store_true", help="figures as JSON instead of the table")
    made.add_argument("--out", type=Path, metavar="DIR", help="write plots, figures and pages into DIR")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    options = parser().parse_args(words)
    if unknown := sorted(set(options.name) - set(EXPERIMENTS)):
        parser().error(f"no such experiment: {', '.join(unknown)}; there are: {', '.join(EXPERIMENTS)}")
    names = options.name or list(EXPERIMENTS)
    begun, failed = time.monotonic(), []
    for number, name in enumerate(names, 1):
        _say(f"[{number}/{len(names)}] {name}: {EXPERIMENTS[name]}")
        try:
            report = play(name, lambda line: _say(f"    {line}"))
        except Exception as error:  # the others shall be played all the same
            _say(f"    did not come to its end: {type(error).__name__}: {error}")
            failed.append(name)
            continue
        print(report.json() if options.json else f"\n{report.table()}\n", flush=True)
        if options.out:
            _say("    " + ", ".join(str(path) for path in report.write(options.out)))
        if not report.ok:
            failed.append(name)
    _say(
        f"{len(names)} played in {time.monotonic() - begun:.0f} s, "
        + (f"not as expected: {', '.join(failed)}" if failed else "all as expected")
    )
    return 1 if failed else 0


def _say(line: str) -> None:
    """Progress goes to standard error, so that --json can be piped."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
