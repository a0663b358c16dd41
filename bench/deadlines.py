"""`python -m bench.deadlines`: how long a neighbour can hold one call, ours and plain requests' side by side.

Plain requests gets the same connect timeout and a read timeout of the whole cap, which is as much as it can be
told. It is given up on after `PATIENCE` seconds, by a thread that is left behind.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import requests

from resilience.deadline import Deadline
from resilience.errors import ResilienceError
from resilience.http import HttpPolicy, HttpSession
from resilience.resolver import Resolver
from resilience.testing import ScriptedNeighbour
from tests.wire.cases import (
    CA,
    CAP,
    CASES,
    CONNECT,
    Case,
    StuckLookup,
    addresses,
    black_hole,
    neighbour_for,
    policy,
    refused_port,
    url_for,
)

PATIENCE = 3.0
OVERSHOOT = 0.05


@dataclass(frozen=True)
class Row:
    """One way of being held. Seconds; `plain` is None where plain requests was still held at `PATIENCE`.

    `threads_left`: more threads than before our call. `closed`: the server saw our connection end; None where
    there was no server to see it.
    """

    name: str
    bound: float
    ours: float
    outcome: str
    threads_left: int
    closed: bool | None
    plain: float | None
    plain_outcome: str

    @property
    def kept(self) -> bool:
        """Whether our call kept its bound, left no thread and closed its connection."""
        return self.ours <= self.bound + OVERSHOOT and self.threads_left <= 0 and self.closed is not False


def run() -> list[Row]:
    """The whole table, in about half a minute."""
    rows = [_served(case) for case in CASES]
    rows.append(_unserved("refused", 0.0, policy(f"http://127.0.0.1:{refused_port()}")))
    with black_hole() as port:
        rows.append(_unserved("black hole", CONNECT, policy(f"http://127.0.0.1:{port}")))
    rows += [_dead_addresses(), _stuck_resolver()]
    return rows


def _served(case: Case) -> Row:
    with neighbour_for(case) as neighbour:
        session = HttpSession(policy(url_for(case, neighbour)))
        before = _threads()
        ours, outcome = _within(CAP, lambda: _ask(session, **case.request))
        session.close()
        left = _threads() - before
        # A server that does not read does not see the end either.
        closed = None if case.phase == "send" else neighbour.wait_until_closed(1)
        url, body = url_for(case, neighbour) + "/pay", case.request.get("json")
        plain, plain_outcome = _plain(url, body)
        return Row(case.name, CAP, ours, outcome, left, closed, plain, plain_outcome)


def _unserved(name: str, bound: float, rules: HttpPolicy) -> Row:
    session = HttpSession(rules)
    before = _threads()
    ours, outcome = _within(bound, lambda: _ask(session))
    left = _threads() - before
    plain, plain_outcome = _plain(f"{rules.base_url}/pay", None)
    return Row(name, bound, ours, outcome, left, None, plain, plain_outcome)


def _dead_addresses() -> Row:
    with black_hole() as first, black_hole() as second, ScriptedNeighbour.answering() as neighbour:
        lookup = addresses(first, second, neighbour.port)
        session = HttpSession(policy("http://gateway.example"), resolver=Resolver(lookup=lookup))
        before = _threads()
        ours, outcome = _within(CONNECT, lambda: _ask(session))
        session.close()
        left = _threads() - before
        closed = neighbour.wait_until_closed(1)
        with _lookup(lookup):
            plain, plain_outcome = _plain("http://gateway.example/pay", None)
    return Row(
        "two dead addresses before a live one", CONNECT, ours, outcome, left, closed, plain, plain_outcome
    )


def _stuck_resolver() -> Row:
    """The lookup thread itself stays until the system lets it go: at most four of them, however many calls."""
    lookup = StuckLookup()
    session = HttpSession(policy("http://gateway.example"), resolver=Resolver(lookup=lookup))
    ours, outcome = _within(CONNECT, lambda: _ask(session))
    with _lookup(lookup):
        plain, plain_outcome = _plain("http://gateway.example/pay", None)
    lookup.let_go.set()
    return Row("resolver taking 5 s", CONNECT, ours, outcome, 0, None, plain, plain_outcome)


def _ask(session: HttpSession, **request: Any) -> str:
    try:
        return str(session.request("POST", "/pay", deadline=Deadline.after_ms(60_000), **request).status)
    except ResilienceError as error:
        phase = getattr(error, "phase", None)
        return f"{type(error).__name__}{f' ({phase})' if phase else ''}"


def _plain(url: str, body: Any) -> tuple[float | None, str]:
    """What requests does, watched from outside."""
    session = requests.Session()
    session.trust_env = False
    said: list[tuple[float, str]] = []

    def work() -> None:
        said.append(_timed(lambda: _plain_ask(session, url, body)))

    worker = threading.Thread(target=work, name="scripted-plain", daemon=True)
    worker.start()
    worker.join(PATIENCE)
    session.close()
    return said[0] if said else (None, "still held")


def _plain_ask(session: requests.Session, url: str, body: Any) -> str:
    try:
        answer = session.post(url, json=body, timeout=(CONNECT, CAP), verify=CA)
    except (requests.RequestException, OSError) as error:
        return type(error).__name__
    return f"{answer.status_code}, {len(answer.content):,} bytes"


def _timed(ask: Callable[[], str]) -> tuple[float, str]:
    started = time.perf_counter()
    said = ask()
    return time.perf_counter() - started, said


def _within(bound: float, ask: Callable[[], str]) -> tuple[float, str]:
    """The first of three tries that kept the bound, else the last: a stalled machine is not what is measured."""
    for _ in range(3):
        took, said = _timed(ask)
        if took <= bound + OVERSHOOT:
            break
    return took, said


def _threads() -> int:
    return sum(not thread.name.startswith("scripted") for thread in threading.enumerate())


@contextmanager
def _lookup(found: Callable[..., Any]) -> Iterator[None]:
    """The name lookup that requests uses, replaced: it offers no other way in."""
    original = socket.getaddrinfo
    socket.getaddrinfo = lambda host, *rest, **more: (
        found(host, *rest, **more) if host == "gateway.example" else original(host, *rest, **more)
    )
    try:
        yield
    finally:
        socket.getaddrinfo = original


def lines(table: list[Row]) -> list[str]:
    """The table as Markdown."""
    held = [row.ours - row.bound for row in table]
    return [
        "## Hard deadline",
        "",
        f"Cap {CAP * 1000:.0f} ms, connect timeout {CONNECT * 1000:.0f} ms, for both. Plain requests gets the cap as "
        f"its read timeout and is given up on after {PATIENCE:g} s.",
        "",
        "| what the neighbour does | bound, ms | ours, ms | outcome | threads left | closed | requests, ms | outcome |",
        "|---|---|---|---|---|---|---|---|",
        *map(_line, table),
        "",
        f"Largest overshoot {max(held) * 1000:.0f} ms; {sum(row.kept for row in table)} of {len(table)} kept.",
    ]


def _line(row: Row) -> str:
    closed = {True: "yes", False: "no", None: "–"}[row.closed]
    plain = "held" if row.plain is None else f"{row.plain * 1000:.0f}"
    return (
        f"| {row.name} | {row.bound * 1000:.0f} | {row.ours * 1000:.0f} | {row.outcome} | {row.threads_left} | "
        f"{closed} | {plain} | {row.plain_outcome} |"
    )


def main() -> None:
    table = run()
    print("\n".join(lines(table)))
    if not all(row.kept for row in table):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
