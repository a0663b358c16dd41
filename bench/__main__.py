"""`python -m bench [DIRECTORY]`: run everything, write benchmarks.json and benchmarks.md, print the tables."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import platform
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import deadlines, http_cost
from bench.measure import Call, medians, throughputs
from bench.subjects import Subject, subjects
from resilience.breaker import BreakerPolicy, CircuitBreaker

DEFAULT = Path(__file__).resolve().parent.parent / "docs" / "reference"


@dataclass(frozen=True)
class Goal:
    """A ratio within one run, and the most (or least) it may be."""

    what: str
    figure: float
    bound: float
    at_least: bool = False

    @property
    def reached(self) -> bool:
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound


def main() -> None:
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    logging.disable(logging.CRITICAL)  # some peers write a line for each refusal
    made, missing = _make(subjects())
    print(f"{len(made)} subjects, not installed or not working: {', '.join(missing) or 'none'}", flush=True)
    nanoseconds = medians({_key(subject): call for subject, call in made})
    chains = {_key(subject): call for subject, call in made if subject.kind == "chain"}
    threads = throughputs(chains)
    parallel = parallel_calls()
    http = http_cost.measure()
    table = deadlines.run()
    goals = _goals([subject for subject, _ in made], nanoseconds, threads, parallel, http)
    result = {
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "peers": {name: _version(name) for name in _PACKAGES},
        "nanoseconds": nanoseconds,
        "calls_per_second_8_threads": threads,
        "http_microseconds": http,
        "ten_parallel_over_one": parallel,
        "goals": [{**asdict(goal), "reached": goal.reached} for goal in goals],
        "deadlines": [asdict(row) for row in table],
    }
    text = _page(result, goals, [subject for subject, _ in made], table)
    where.mkdir(parents=True, exist_ok=True)
    (where / "benchmarks.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (where / "benchmarks.md").write_text(text, encoding="utf-8")
    print(text)


def _key(subject: Subject) -> str:
    return f"{subject.kind}: {subject.name}" + (" (floor)" if subject.role == "floor" else "")


def _make(wanted: list[Subject]) -> tuple[list[tuple[Subject, Call]], list[str]]:
    made, missing = [], []
    for subject in wanted:
        try:
            call = subject.make()
            call()
        except Exception as error:
            missing.append(f"{subject.name} ({subject.kind}, {type(error).__name__})")
        else:
            made.append((subject, call))
    return made, missing


def parallel_calls(threads: int = 10, seconds: float = 0.2) -> float:
    """How much longer that many calls through one closed breaker take together than one alone."""
    breaker = CircuitBreaker(BreakerPolicy())

    def together(count: int) -> float:
        workers = [
            threading.Thread(target=breaker.call, args=(lambda: time.sleep(seconds),)) for _ in range(count)
        ]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return time.perf_counter() - started

    return together(threads) / together(1)


class _Figures:
    """The nanoseconds of one run, by kind."""

    def __init__(self, made: list[Subject], taken: dict[str, float]) -> None:
        self._made, self._taken = made, taken

    def of(self, kind: str, role: str, word: str = "") -> list[float]:
        return [
            self._taken[_key(subject)]
            for subject in self._made
            if (subject.kind, subject.role) == (kind, role) and word in subject.name
        ]

    def over(self, kind: str, role: str, word: str = "") -> float:
        """Ours by the fastest of the others; not a number when there are none."""
        return self.of(kind, "ours")[0] / min(self.of(kind, role, word), default=float("nan"))


def _goals(
    made: list[Subject],
    taken: dict[str, float],
    threads: dict[str, float],
    parallel: float,
    http: dict[str, float],
) -> list[Goal]:
    figures = _Figures(made, taken)
    session = http["Holdfast session"]
    pace = {
        role: next(threads[_key(s)] for s in made if s.kind == "chain" and s.role == role and word in s.name)
        for role, word in (("ours", ""), ("floor", "with locks"))
    }
    own = figures.of("chain", "ours")[0]
    both = "breaker with window and slow calls ÷ fastest peer with both"
    eight = "chain, 8 threads, throughput ÷ floor with locks"
    plain = session / http["requests, trust_env off"]
    return [
        Goal("whole chain ÷ fastest complete peer", figures.over("chain", "peer"), 0.5),
        Goal("whole chain ÷ layered floor without locks", figures.over("chain", "floor", "without"), 2.0),
        Goal(both, figures.over("breaker", "peer"), 1.0),
        Goal("open rejection ÷ fastest peer", figures.over("open", "peer"), 1.0),
        Goal("open rejection ÷ floor", figures.over("open", "floor"), 1.6),
        Goal(eight, pace["ours"] / pace["floor"], 0.7, at_least=True),
        Goal("10 parallel 200 ms calls through a closed breaker ÷ one", parallel, 1.2),
        Goal("HTTP session ÷ plain requests without environment", plain, 1.08),
        Goal("chain's share of one local HTTP call", own / 1000 / session, 0.01),
    ]


def _page(result: dict[str, Any], goals: list[Goal], made: list[Subject], table: list[deadlines.Row]) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; absolute figures belong to the machine, ratios travel. Everything in one run, "
        f"Python {result['python']}, {result['machine']}.",
        "",
        "| ratio | measured | goal | |",
        "|---|---|---|---|",
        *(
            f"| {goal.what} | {goal.figure:.3f} | {'≥' if goal.at_least else '≤'} {goal.bound:g} | "
            f"{'reached' if goal.reached else '**missed**'} |"
            for goal in goals
        ),
        "",
    ]
    for kind, title in _TITLES.items():
        lines += [f"## {title}", "", "| what | ns, median |", "|---|---|"]
        rows = [(result["nanoseconds"][_key(s)], s) for s in made if s.kind in (kind, "bare")]
        rows.sort(key=lambda row: row[0])
        for taken, subject in rows:
            name = f"**{subject.name}**" if subject.role == "ours" else subject.name
            lines.append(f"| {name}{' (floor)' if subject.role == 'floor' else ''} | {taken:,.0f} |")
        lines.append("")
    lines += ["## Eight threads", "", "| chain | thousand calls a second |", "|---|---|"]
    pace = sorted(result["calls_per_second_8_threads"].items(), key=lambda item: -item[1])
    lines += [f"| {name.removeprefix('chain: ')} | {each / 1000:,.0f} |" for name, each in pace]
    lines += ["", "## One POST on a kept-alive local connection", "", "| client | µs, median |", "|---|---|"]
    lines += [f"| {name} | {each:,.0f} |" for name, each in result["http_microseconds"].items()]
    lines += ["", *deadlines.lines(table), ""]
    return "\n".join(lines)


_TITLES = {
    "chain": "Whole chain around a no-op",
    "breaker": "Breaker alone, window and slow calls",
    "open": "Rejection by an open breaker",
    "part": "What the chain is made of (each piece with the call around it; the rest is the frames between)",
}
_PACKAGES = [
    *(
        "requests",
        "urllib3",
        "crashbytes-resilience",
        "grit-toolkit",
        "nopanic",
        "pyresilience",
        "faultshield",
    ),
    *(
        "interlock-cb",
        "fluxgate",
        "resilix",
        "circuitbreaker",
        "pybreaker",
        "purgatory",
        "tenacity",
        "limits",
    ),
]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
