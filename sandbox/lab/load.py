"""Requests at a steady pace, whatever becomes of them: an open crowd, that does not wait for answers."""

from __future__ import annotations

import http.client
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PATIENCE = 30.0
LOST = 0
"""In the place of a status: no answer came."""


@dataclass(frozen=True)
class Answer:
    """`at`: seconds since the crowd began; `status` LOST if none came within the patience."""

    at: float
    status: int
    seconds: float


@dataclass
class Answers:
    """What a crowd heard."""

    all: list[Answer] = field(default_factory=list)

    def statuses(self) -> Counter[int]:
        return Counter(answer.status for answer in self.all)

    def milliseconds(self, part: float, since: float = 0.0) -> float:
        """A quantile of the waiting times of all who began `since` then."""
        taken = sorted(answer.seconds for answer in self.all if answer.at >= since)
        return 1000 * taken[min(len(taken) - 1, int(part * len(taken)))] if taken else 0.0

    def median_ms(self) -> float:
        return 1000 * statistics.median(answer.seconds for answer in self.all)


def ask(url: str, path: str, method: str = "GET", patience: float = PATIENCE) -> tuple[int, float]:
    """One request on a connection of its own: status and seconds."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=patience)
    begun = time.monotonic()
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        answer.read()
        return answer.status, time.monotonic() - begun
    except (OSError, http.client.HTTPException):
        return LOST, time.monotonic() - begun
    finally:
        connection.close()


def crowd(
    url: str, streams: Sequence[tuple[str, float]], seconds: float, patience: float = PATIENCE
) -> dict[str, Answers]:
    """For each (path, requests a second) a stream of GET requests; returns when each has an answer or lost patience."""
    found = {path: Answers() for path, _ in streams}
    began = time.monotonic()
    lock = threading.Lock()
    threads: list[threading.Thread] = []

    def one(path: str) -> None:
        at = time.monotonic() - began
        status, took = ask(url, path, patience=patience)
        with lock:
            found[path].all.append(Answer(at, status, took))

    moments = sorted((number / pace, path) for path, pace in streams for number in range(int(seconds * pace)))
    for moment, path in moments:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        threads.append(threading.Thread(target=one, args=(path,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(patience + 5)
    return found
