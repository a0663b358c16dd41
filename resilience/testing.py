"""For tests of code that uses the library: a clock that stands still, and neighbours that follow a script."""

from __future__ import annotations

import threading


class ManualClock:
    """A clock that moves only when told to. Thread-safe."""

    def __init__(self, start: float = 1000.0) -> None:
        self._lock = threading.Lock()
        self._now = start
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """The clock's seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Moves the clock instead of waiting, and remembers it in `slept`."""
        with self._lock:
            self._now += seconds
            self.slept.append(seconds)

    def advance(self, seconds: float) -> None:
        """Let `seconds` (≥ 0) pass."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back, got {seconds}")
        with self._lock:
            self._now += seconds
