"""At most so many calls to one neighbour at a time, so that a slow one cannot hold every thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from resilience.counter import Counter
from resilience.errors import BulkheadFull


@dataclass(frozen=True)
class BulkheadPolicy:
    """`max_concurrent`: calls that may run at the same time in this process."""

    max_concurrent: int = 20

    def __post_init__(self) -> None:
        if not 1 <= self.max_concurrent <= 10_000:
            raise ValueError(f"max_concurrent must be between 1 and 10,000, got {self.max_concurrent}")


class Bulkhead:
    """A counting semaphore that never waits.

    Waiting would only move the queue from the neighbour into our threads. The places lie in a deque
    whose `pop` and `append` are single C calls: no lock, hence no convoy behind one, and the count
    cannot drift. Thread-safe.
    """

    __slots__ = ("_places", "give_back", "name", "policy", "pop", "rejected")

    def __init__(self, policy: BulkheadPolicy, *, name: str = "") -> None:
        self.policy = policy
        self.name = name
        self.rejected = Counter()
        self._places = deque(range(policy.max_concurrent))
        self.pop = self._places.pop
        """`take` for the chain, which saves a frame: raises IndexError instead, to be turned into `refusal()`."""
        self.give_back = self._places.append
        """Give back a place that `take` returned, exactly once."""

    @property
    def available(self) -> int:
        """Places free at this moment."""
        return len(self._places)

    def take(self) -> int:
        """Take a place, to be given back with `give_back`. Raises BulkheadFull at once when there is none."""
        try:
            return self.pop()
        except IndexError:
            raise self.refusal() from None

    def refusal(self) -> BulkheadFull:
        """Count a refusal and return it."""
        self.rejected.add()
        return BulkheadFull(f"{self.name}: all {self.policy.max_concurrent} places are taken")

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place inside the block. Raises BulkheadFull."""
        place = self.take()
        try:
            yield
        finally:
            self.give_back(place)
