"""What the layers tell anybody who listens."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

_log = logging.getLogger("resilience")


class EventKind(Enum):
    """Everything that is announced."""

    STATE_CHANGED = "state_changed"  # detail: "CLOSED to OPEN"
    THRESHOLD_EXCEEDED = "threshold_exceeded"  # detail: "failure_rate 60.0 %" or "slow_rate 90.0 %"
    BREAKER_REJECTED = "breaker_rejected"
    RATE_LIMITED = "rate_limited"
    BULKHEAD_REJECTED = "bulkhead_rejected"
    OUT_OF_TIME = "out_of_time"
    ERROR_IGNORED = "error_ignored"  # detail: the exception's class
    LEASE_EXPIRED = "lease_expired"
    RETRY = "retry"  # detail: "attempt 2 after 0.050 s"
    RETRY_BUDGET_EMPTY = "retry_budget_empty"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `at` is the layer's monotonic clock in seconds."""

    name: str
    kind: EventKind
    at: float
    detail: str = ""


Listener = Callable[[Event], None]


class EventStream:
    """Hands each event to every listener, in the caller's thread and outside every lock.

    Thread-safe. A listener that raises is logged and changes nothing. `listeners` is replaced, never
    changed, so `if stream.listeners:` costs one read on paths that must stay cheap.
    """

    __slots__ = ("_lock", "listeners")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.listeners: tuple[Listener, ...] = ()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener; the returned function takes it away again (harmless when called twice)."""
        with self._lock:
            self.listeners = (*self.listeners, listener)

        def unsubscribe() -> None:
            with self._lock:
                self.listeners = tuple(known for known in self.listeners if known is not listener)

        return unsubscribe

    def publish(self, event: Event) -> None:
        """Call every listener. Must not be called with a lock held."""
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                _log.exception("a listener failed on %s of %s", event.kind.value, event.name)
