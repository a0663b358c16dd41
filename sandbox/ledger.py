"""What a neighbour remembers for its checkers: every request and, journaled, every object of the gateway."""

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_KEPT_REQUESTS = 100_000


@dataclass
class Entry:
    """One request. `at_ms` is the arrival in milliseconds since the ledger began; `status_sent` is None
    until an answer begins to leave, for ever if none did."""

    seq: int
    at_ms: float
    method: str
    path: str
    idempotency_key: str | None = None
    reference: str | None = None
    status_sent: int | None = None


class Ledger:
    """The requests of one neighbour, oldest first, the newest 100,000 kept. Thread-safe.

    Anything that wants to be waited for calls `changed()`; `wait_until` then looks again.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: deque[Entry] = deque(maxlen=_KEPT_REQUESTS)
        self._seq = 0
        self._began = time.monotonic()

    def arrived(self, method: str, path: str, key: str | None, reference: str | None) -> Entry:
        with self._changed:
            self._seq += 1
            at_ms = round((time.monotonic() - self._began) * 1000, 3)
            entry = Entry(self._seq, at_ms, method, path, key, reference)
            self._entries.append(entry)
            self._changed.notify_all()
        return entry

    def restore(self, entries: list[Entry]) -> None:
        """Go on where an earlier process stopped: numbers and times continue."""
        with self._changed:
            self._entries.extend(entries)
            if entries:
                self._seq = entries[-1].seq
                self._began = time.monotonic() - entries[-1].at_ms / 1000

    def requests(self, since: int = 0) -> list[dict[str, Any]]:
        with self._changed:
            return [asdict(entry) for entry in self._entries if entry.seq > since]

    def count(self) -> int:
        with self._changed:
            return len(self._entries)

    def clear(self) -> None:
        with self._changed:
            self._entries.clear()
            self._changed.notify_all()

    def changed(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, reached: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(reached, seconds)


class Journal:
    """Append-only JSON lines in one file. A line is written by one system call before anything acts on it,
    so it survives a kill -9 of the process (not a power cut: nothing here is worth an fsync)."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, ensure_ascii=False) + "\n"
        with self._lock:
            os.write(self._file, line.encode())

    def read(self) -> Iterator[dict[str, Any]]:
        """All whole lines; a last line cut by a kill is dropped."""
        with self._path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield json.loads(line)

    def rewrite(self, records: list[dict[str, Any]]) -> None:
        """Replace everything by `records`, in one step."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
        with self._lock:
            fresh.rename(self._path)
            os.close(self._file)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
