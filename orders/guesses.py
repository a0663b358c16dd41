"""Wrong links to orders, counted by the address they come from: nobody tries keys by the thousand."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from resilience.clock import SYSTEM_CLOCK, Clock


class GuessLimit:
    """So many wrong tries at once, then `per_second` more; other addresses are not affected. Thread-safe.

    Kept in this process, for the `most` addresses that guessed last: it tells a program that tries links
    to stop. What keeps orders apart is that their keys are far too long to be guessed.
    """

    def __init__(
        self, *, burst: int, per_second: float, most: int = 10_000, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        if burst < 1 or per_second <= 0 or most < 1:
            raise ValueError("burst, per_second and most must be above 0")
        self._burst, self._per_second, self._most, self._clock = burst, per_second, most, clock
        self._lock = threading.Lock()
        self._tries: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def retry_after(self) -> int:
        """Seconds after which one more try is looked at."""
        return max(1, round(1 / self._per_second))

    def count(self, address: str) -> bool:
        """One wrong try more; False when it is one too many, which uses up nothing."""
        with self._lock:
            used = self._used(address)
            if used > self._burst - 1:
                return False
            self._tries[address] = (used + 1, self._clock.monotonic())
            self._tries.move_to_end(address)
            while len(self._tries) > self._most:
                self._tries.popitem(last=False)
            return True

    def forget(self) -> None:
        with self._lock:
            self._tries.clear()

    def _used(self, address: str) -> float:
        used, at = self._tries.get(address, (0.0, 0.0))
        return max(0.0, used - (self._clock.monotonic() - at) * self._per_second) if used else 0.0


WRONG_LINKS: Final = GuessLimit(burst=60, per_second=1)
