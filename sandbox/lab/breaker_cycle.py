"""CLOSED, OPEN, HALF_OPEN, OPEN again at the very edge of recovery, HALF_OPEN, CLOSED."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from resilience.deadline import Deadline
from resilience.errors import ResilienceError
from resilience.events import Event, EventKind
from sandbox.control import start_neighbour
from sandbox.lab.downstream import EVERY, Downstream, chain, submit
from sandbox.lab.plot import strip
from sandbox.lab.report import Report, Row, Say

OUTAGE = 5.0
LONGEST = 16.0
_JUST_LET_IN = 0.01  # a call may be let in, lose the processor, and begin when the state has changed
CYCLE = ("CLOSED", "OPEN", "HALF_OPEN", "OPEN", "HALF_OPEN", "CLOSED")
_SOURCE = (0.62, 5.02, 5.41, 9.41, 9.97)  # seconds since its stand began
_COLOURS = {
    "CLOSED": "#17603f",
    "OPEN": "#98231c",
    "HALF_OPEN": "#8a5a10",
    "down": "#98231c",
    "up": "#17603f",
}


@dataclass
class _Film:
    """What happened when, in seconds of the story."""

    pace: float
    began: float = field(default_factory=time.monotonic)
    changes: list[tuple[float, str]] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)

    def at(self, reading: float) -> float:
        return (reading - self.began) / self.pace

    def bands(self, end: float) -> list[tuple[float, float, str]]:
        starts = [(0.0, "CLOSED"), *self.changes, (end, "")]
        return [(begin, until, state) for (begin, state), (until, _) in itertools.pairwise(starts)]

    def sent_while(self, state: str, end: float) -> list[int]:
        """Calls begun in each stay in `state`."""
        stays = [band for band in self.bands(end) if band[2] == state]
        return [sum(begin + _JUST_LET_IN < at <= until for at in self.sent) for begin, until, _ in stays]


def run(say: Say, pace: float = 1.0) -> Report:
    """Ten seconds of the story. `pace`: how many seconds one of it takes."""
    with start_neighbour("gateway") as gateway:
        neighbour, protected = Downstream(gateway, pace), chain(pace)
        neighbour.fail()
        film = _Film(pace)

        def noted(event: Event) -> None:
            if event.kind is EventKind.STATE_CHANGED:
                film.changes.append((film.at(event.at), event.detail.rpartition(" ")[2]))
                say(f"{film.changes[-1][0]:5.2f} s  {event.detail}")

        def operation(deadline: Deadline) -> None:
            film.sent.append(film.at(time.monotonic()))
            neighbour.call(deadline)

        def task() -> None:
            with contextlib.suppress(ResilienceError):
                protected.call(operation, deadline=Deadline.after_ms(60_000), repeatable=True)

        protected.events.subscribe(noted)
        healing = threading.Timer(OUTAGE * pace, neighbour.recover)
        healing.start()
        enough = threading.Event()
        crowd = threading.Thread(target=submit, args=(task, int(LONGEST / EVERY), pace, enough))
        crowd.start()
        while crowd.is_alive() and len(film.changes) < len(CYCLE) - 1:
            protected.breaker.state  # noqa: B018  # the wait is over for whoever looks
            time.sleep(0.005)
        end = film.at(time.monotonic()) + 0.5
        enough.set()
        crowd.join()
        healing.join()
        return _report(film, end, len(neighbour.arrivals), protected.snapshot().rejected_by_breaker)


def _rows(film: _Film, end: float, arrived: int, refused: int) -> Iterator[Row]:
    states = ("CLOSED", *(state for _, state in film.changes))
    steps = list(itertools.pairwise(CYCLE))
    ours = "→".join(state[0] for state in states)
    yield Row("the way it goes", "C→O→H→O→H→C", ours, "the same, bounce included", states == CYCLE)
    for (before, after), theirs, (at, _) in zip(steps, _SOURCE, film.changes, strict=False):
        yield Row(f"{before} to {after}, s", f"{theirs:.2f}", f"{at:.2f}")
    probes = film.sent_while("HALF_OPEN", end)
    open_calls = sum(film.sent_while("OPEN", end))
    few = max(probes, default=4) <= 3
    yield Row("probes in each HALF_OPEN", "3, 3", ", ".join(map(str, probes)), "at most 3", few)
    yield Row("calls sent while OPEN", "", str(open_calls), "0", open_calls == 0)
    sent = len(film.sent)
    yield Row("calls the neighbour saw", "", str(arrived), f"all that were sent, {sent}", arrived == sent)
    yield Row("calls refused by the breaker", "", str(refused))


def _report(film: _Film, end: float, arrived: int, refused: int) -> Report:
    lanes = [("neighbour", [(0.0, OUTAGE, "down"), (OUTAGE, end, "up")]), ("breaker", film.bands(end))]
    picture = strip(
        "The breaker while its neighbour is down for 5 s",
        "seconds",
        lanes,
        _COLOURS,
        marks=[(OUTAGE, "recovery")],
    )
    return Report(
        "breaker-cycle",
        "the whole cycle, with the bounce at the edge of recovery",
        tuple(_rows(film, end, arrived, refused)),
        {"breaker-cycle": picture},
        {"changes": film.changes, "sent": film.sent},
    )
