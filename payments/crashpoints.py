"""Named places between two durable steps, where tests let a process die or let others go first.

`reached` does nothing and looks nothing up unless a test has armed this process; no setting and no
environment variable arms it, so production has no way to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

POINTS: Mapping[str, str] = MappingProxyType(
    {
        "place.committed": "the order, its stock and its charge message are saved; the gateway is not called yet",
        "outbox.claimed": "a worker holds the message's lease; nothing is done about it yet",
        "charge.begun": "the payment is marked PROCESSING; the gateway is not called yet",
        "charge.called": "the gateway has answered the charge; nothing of the answer is saved",
        "settle.written": "the outcome is written but not committed",
        "settle.committed": "the outcome is committed; nobody has been told",
        "switch.cancelled": "the first card's payment is cancelled at the gateway; the second card is not noted",
        "expire.checked": "an overdue order is locked and found to be overdue; nothing is written",
        "expire.committed": "an overdue order is cancelled; the rest of the batch is not",
        "cancel.written": "a cancellation is written but not committed",
        "cancel.committed": "the order is cancelled and its void promised; the shopper has no answer",
        "void.looked": "the gateway has told what became of an unwanted payment; nothing is saved",
        "void.cancelled": "the intent is cancelled at the gateway; nothing is saved",
        "void.committed": "the end of an unwanted payment is saved",
        "refund.called": "the gateway has given the money back; nothing is saved",
        "refund.committed": "the refund is saved",
        "webhook.committed": "the event and its check are saved; the gateway has no answer",
        "check.looked": "the gateway has told what became of a payment; nothing is saved",
        "mail.sent": "the mail server has the message; nothing is saved",
    }
)
"""Every point and what is durable there and what is not."""

_hook: Callable[[str], None] | None = None


def reached(name: str) -> None:
    """Marks a point of `POINTS`."""
    if _hook is not None:
        _hook(name)


@contextmanager
def armed(hook: Callable[[str], None]) -> Iterator[None]:
    """For tests: calls `hook` with the name of every point that this process reaches."""
    global _hook
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before
