"""Wrong links to orders and tries to log in, counted by the address they come from: nobody guesses by the thousand."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from django.utils.crypto import salted_hmac

from resilience.clock import SYSTEM_CLOCK, Clock

Together = Callable[[str, int], int | None]
"""Counts one more under a key for so many seconds, in all processes: how many there are, or None when nobody knows."""

_together: list[Together] = []


def count_together(count: Together) -> None:
    """From now on the limits of this process also hold for all processes that count together."""
    _together[:] = [count]


class GuessLimit:
    """So many wrong tries at once, then `per_second` more; other addresses are not affected. Thread-safe.

    Kept in this process, for the `most` addresses that guessed last: it tells a program that tries links
    to stop. What keeps orders apart is that their keys are far too long to be guessed. All processes together let
    through what one may in the time in which a burst is forgotten; when they cannot count together, each counts alone.
    """

    def __init__(
        self, name: str, *, burst: int, per_second: float, most: int = 10_000, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        if burst < 1 or per_second <= 0 or most < 1:
            raise ValueError("burst, per_second and most must be above 0")
        self._name, self._window = name, math.ceil(burst / per_second)
        self._burst, self._per_second, self._most, self._clock = burst, per_second, most, clock
        self._lock = threading.Lock()
        self._tries: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def retry_after(self) -> int:
        """Seconds after which one more try is looked at."""
        return max(1, round(1 / self._per_second))

    def count(self, address: str) -> bool:
        """One wrong try more; False when it is one too many, which uses up nothing of this process."""
        return self._count_alone(address) and self._count_together(address)

    def _count_together(self, address: str) -> bool:
        if not _together:
            return True
        # Nobody who reads the counts shall learn who came.
        key = f"{self._name}:{salted_hmac('holdfast.guesses', address).hexdigest()[:20]}"
        found = _together[0](key, self._window)
        return found is None or found <= self._burst + self._per_second * self._window

    def _count_alone(self, address: str) -> bool:
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


WRONG_LINKS: Final = GuessLimit("wrong-links", burst=60, per_second=1)

LETTERS: Final = GuessLimit("letters", burst=30, per_second=0.1)
"""Mails with a link that were asked for, by where from."""
LETTERS_TO: Final = GuessLimit("letters-to", burst=5, per_second=1 / 600)
"""The same, by mailbox: nobody's is filled by strangers."""

LOG_INS: Final = GuessLimit("log-ins", burst=30, per_second=0.5)
"""Tries to log in, right or wrong: counted before a password is looked at, which costs us far more than the asker."""
