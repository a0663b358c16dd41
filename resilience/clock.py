"""The one place where the library gets the time from."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock and the sleep that belongs to it. Implementations are thread-safe."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back, whatever the wall clock does."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for `seconds` (≥ 0) of this clock."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    # The C functions themselves, not wrappers: the clock is read twice in every protected call.
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


SYSTEM_CLOCK: Clock = SystemClock()
