"""One exception for each decision a caller can take.

Three families, told apart by what may have happened at the neighbour: `NotSent` (nothing), `OutcomeUnknown`
(something may have), `Answered` (it said so itself). Messages carry no URL, header or body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ResilienceError(Exception):
    """Base of everything this library raises about a call."""

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        # Kept in `args` and not as an attribute: an exception without a dict of its own is made in half the
        # time, and an open breaker makes thousands.
        super().__init__(message, retry_after)

    @property
    def retry_after(self) -> float | None:
        """Seconds until another try makes sense, if that is known."""
        return self.args[1] if len(self.args) > 1 else None

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotSent(ResilienceError):
    """Certainly no byte of the request reached the neighbour. `reason` is a short stable code."""

    reason: str = "not_sent"


class BreakerOpen(NotSent):
    """The circuit breaker lets nothing through at the moment."""

    reason = "breaker_open"


class RateLimited(NotSent):
    """Our own rate limit for this neighbour is used up."""

    reason = "rate_limited"


class BulkheadFull(NotSent):
    """As many calls to this neighbour are running as we allow at a time."""

    reason = "bulkhead_full"


class OutOfTime(NotSent):
    """Too little of the deadline was left to begin."""

    reason = "out_of_time"


class PoolTimeout(NotSent):
    """No pooled connection became free in time."""

    reason = "pool_timeout"


class ConnectFailed(NotSent):
    """The network or the neighbour refused before a request could be sent: name, connection or TLS.

    The only `NotSent` that speaks about the neighbour, so the only one the breaker counts and retry repeats.
    """

    reason = "connect_failed"


class OutcomeUnknown(ResilienceError):
    """At least a part of the request may have left; whether the neighbour acted cannot be known from here.

    `phase` says how far the call had come: "send", "headers" or "body".
    """

    def __init__(
        self, message: str = "", *, phase: str = "headers", retry_after: float | None = None
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.phase = phase


class BadAnswer(OutcomeUnknown):
    """A status arrived, but the body is unusable: cut, too large, not JSON, or against the contract.

    Clients raise it too, for a 200 that says nothing they can trust: the breaker must see it as a failure.
    """

    def __init__(self, message: str = "", *, status: int, retry_after: float | None = None) -> None:
        super().__init__(message, phase="body", retry_after=retry_after)
        self.status = status


class Answered(ResilienceError):
    """The neighbour answered, and the answer is not a success.

    `body` is the parsed JSON or None; `headers` are the few harmless ones, in lower case.
    """

    def __init__(
        self,
        message: str = "",
        *,
        status: int,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message or f"answered {status}", retry_after=retry_after)
        self.status = status
        self.body = body
        self.headers: Mapping[str, str] = dict(headers or {})


class ClientError(Answered):
    """4xx except 408, 425 and 429: a real answer to our question.

    Says nothing about the neighbour's health.
    """


class ServerError(Answered):
    """5xx, 408, 425, 429, and redirects, which no neighbour of ours may send: a failure of the neighbour."""


def is_local_refusal(error: BaseException) -> bool:
    """True when the call was stopped on our side, which tells nothing about the neighbour."""
    return isinstance(error, NotSent) and not isinstance(error, ConnectFailed)
