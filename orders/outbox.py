"""The transactional outbox: promises in the database, kept by workers under a lease.

A message is written in the transaction that causes it. A claim moves `available_at` to the end of
the lease and hands out a token; every acknowledgement names the token, so a holder that was given
up (killed, paused, slow) can no longer speak for the row. Sending happens between transactions.
At least once: handlers are idempotent by keys of their own.
"""

from __future__ import annotations

import json
import logging
import random
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import Count, F, Min, Q

from orders.models import OutboxMessage
from payments import batch as batches
from payments import crashpoints, dbtime
from payments.batch import Batch

logger = logging.getLogger(__name__)

CHARGE, VOID, REFUND, CHECK, NOTIFY = "charge", "void", "refund", "check", "notify"
PAYMENT, MAIL = "payment", "mail"
DESTINATIONS: Mapping[str, str] = {
    CHARGE: PAYMENT,
    VOID: PAYMENT,
    REFUND: PAYMENT,
    CHECK: PAYMENT,
    NOTIFY: MAIL,
}
LONGEST_WAIT_SECONDS = 24 * 3600
"""No pause, lease or redrive of ours is longer."""
SETBACKS_PER_TRY = 10
"""So many times without an answer weigh as much as one answer that settles nothing."""


@dataclass(frozen=True)
class Lease:
    """One claim of one message. Only the holder of the token may acknowledge."""

    message_id: int
    token: uuid.UUID
    kind: str
    order_id: int
    payload: Mapping[str, Any]
    attempts: int
    setbacks: int = 0
    dedup: str = ""
    """Names the row of a message that was born leased: it has no id yet."""


class LeaseLostError(Exception):
    """The lease ran out and somebody else may hold the message now. The caller must roll back."""


class PoisonError(Exception):
    """The message can never be delivered as it is: straight to the dead letters. The text says why."""


Handler = Callable[[Lease], None]
_handlers: dict[str, Handler] = {}
_mourners: list[Callable[[Lease, str], None]] = []
_tracers: list[tuple[Callable[[], Mapping[str, str]], Callable[[Lease], AbstractContextManager[None]]]] = []


def register(kind: str, handler: Handler) -> None:
    """Names the one function that delivers messages of this kind. Called by orders/apps.py."""
    _handlers[kind] = handler


def on_dead(tell: Callable[[Lease, str], None]) -> None:
    """Names who is told of a dead letter and its reason, in the same transaction. Called by orders/apps.py."""
    _mourners[:] = [tell]


def trace_messages(
    carried: Callable[[], Mapping[str, str]], delivery: Callable[[Lease], AbstractContextManager[None]]
) -> None:
    """What a new message says of its cause, and what stands around each delivery. Called when traces are on."""
    _tracers[:] = [(carried, delivery)]


def append(
    kind: str,
    order_id: int,
    *,
    dedup: str,
    due_at: datetime,
    now: datetime,
    payload: Mapping[str, Any] | None = None,
    after: timedelta = timedelta(0),
    lease_for: timedelta | None = None,
    again: bool = False,
    batch: Batch | None = None,
) -> Lease:
    """Adds a message to the caller's transaction; with `lease_for` it is born leased to the caller.

    A second message with the same `dedup` is dropped: the first one stands. With `again` one that was
    delivered or withdrawn comes back instead, because there is a new cause for it.
    """
    token = uuid.uuid4()
    message = OutboxMessage(
        kind=kind,
        destination=DESTINATIONS[kind],
        order_id=order_id,
        payload={**(_tracers[0][0]() if _tracers else {}), **(payload or {})},
        dedup=dedup,
        due_at=due_at,
        available_at=now + (lease_for or after),
        lease_token=token if lease_for else None,
        attempts=1 if lease_for else 0,
        created_at=now,
    )
    batches.insert(message, batch, ignore_conflicts=True)
    if again:
        _bring_back(message)
    return Lease(0, token, kind, order_id, message.payload, message.attempts, dedup=dedup)


def _bring_back(message: OutboxMessage) -> None:
    OutboxMessage.objects.filter(dedup=message.dedup, status__in=["DONE", "CANCELLED"]).update(
        status=OutboxMessage.Status.PENDING,
        payload=message.payload,
        due_at=message.due_at,
        available_at=message.available_at,
        lease_token=message.lease_token,
        attempts=message.attempts,
        setbacks=0,
        finished_at=None,
    )


_CLAIM = """
    UPDATE orders_outboxmessage
       SET lease_token = %(token)s, available_at = {now} + make_interval(secs => %(lease)s),
           attempts = least(attempts, 1000000) + 1,
           due_at = CASE WHEN due_at BETWEEN '2000-01-01' AND '3000-01-01' THEN due_at ELSE {now} END
     WHERE id IN (
        SELECT id FROM orders_outboxmessage
         WHERE status = 'PENDING' AND destination = %(destination)s AND available_at <= {now} {held}
         ORDER BY due_at, id
           FOR UPDATE SKIP LOCKED
         LIMIT %(limit)s)
    RETURNING id, kind, order_id, payload, attempts, setbacks, due_at
"""


_HELD = """AND (kind <> 'charge' OR payload @> '{"begun": true}')"""
"""Charges that a person holds back stay where they are: claiming them only to hand them back is a storm. One
that may have left is found out whatever anybody wants: a shopper waits for the truth.
"""


NOT_BEGUN = Q(kind="charge") & ~Q(payload__contains={"begun": True})
"""The same for the ORM."""


def claim(destination: str, limit: int, *, held: bool = False) -> list[Lease]:
    """Leases up to `limit` messages, earliest due first. No message is handed out twice at a time.

    `held`: charges of which no call has begun are to be left alone.
    """
    token = uuid.uuid4()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            _CLAIM.format(now=dbtime.sql(), held=_HELD if held else ""),
            {
                "token": token,
                "lease": settings.HOLDFAST.outbox_lease_seconds,
                "destination": destination,
                "limit": limit,
            },
        )
        rows = cursor.fetchall()
    rows.sort(key=lambda row: (row[6], row[0]))
    crashpoints.reached("outbox.claimed")
    # A row without an order reads as order 0, which exists for no handler: it becomes a dead letter.
    return [Lease(row[0], token, row[1], row[2] or 0, _payload(row[3]), row[4], row[5]) for row in rows]


def _payload(raw: object) -> Mapping[str, Any]:
    """What the row holds, if it is an object; anything else reads as empty and fails in the handler."""
    value = json.loads(raw) if isinstance(raw, str) else raw
    return value if isinstance(value, dict) else {}


def _mine(lease: Lease) -> Any:
    rows = OutboxMessage.objects.filter(status="PENDING", lease_token=lease.token)
    return rows.filter(id=lease.message_id) if lease.message_id else rows.filter(dedup=lease.dedup)


def done(lease: Lease) -> None:
    """Delivered. Raises LeaseLostError if the token no longer holds the row."""
    _finish(lease, OutboxMessage.Status.DONE, "")


def cancel(lease: Lease, reason: str) -> None:
    """No longer wanted. Raises LeaseLostError."""
    _finish(lease, OutboxMessage.Status.CANCELLED, reason)


def dead(lease: Lease, reason: str) -> None:
    """Into the dead letters, visible to staff. Raises LeaseLostError."""
    _finish(lease, OutboxMessage.Status.DEAD, reason)
    for tell in _mourners:
        tell(lease, reason)
    logger.error("dead letter", extra={"kind": lease.kind, "order_id": lease.order_id, "reason": reason})


def bury(message_id: int, reason: str) -> bool:
    """A pending message that nobody will claim goes to the dead letters. False if it is pending no more."""
    with transaction.atomic():
        row = OutboxMessage.objects.select_for_update().filter(pk=message_id, status="PENDING").first()
        if row is None:
            return False
        token = uuid.uuid4()
        OutboxMessage.objects.filter(pk=message_id).update(lease_token=token)
        dead(Lease(row.pk, token, row.kind, row.order_id or 0, _payload(row.payload), 1), reason)
    return True


def pull_in() -> int:
    """Messages that would wait longer than anything asks for are due now; how many. A clock was wrong, or a hand."""
    far = OutboxMessage.objects.filter(
        status="PENDING", available_at__gt=dbtime.Now() + timedelta(seconds=LONGEST_WAIT_SECONDS)
    )
    count = far.update(available_at=dbtime.Now(), lease_token=None)
    if count:
        logger.error("messages from a far future are due now", extra={"count": count})
    return count


def _finish(lease: Lease, status: str, reason: str) -> None:
    changed = _mine(lease).update(
        status=status, finished_at=dbtime.Now(), lease_token=None, last_error=reason[:200]
    )
    if not changed:
        raise LeaseLostError(f"{lease.kind} message is no longer held")


def retry(
    lease: Lease,
    reason: str,
    *,
    after: float | None = None,
    counts: bool = True,
    setback: bool = False,
    not_before: float = 0.0,
    due_at: datetime | None = None,
) -> None:
    """Hands the message back for later. Raises LeaseLostError.

    `after` (seconds) is a wish of the other side, kept within the configured bounds; without it the
    pause grows with the tries, with full jitter; `not_before` is the least pause that makes sense.
    `counts=False` gives the attempt back: nothing reached the other side, so the message has not used
    up a try. A `setback` weighs a part of a try: no answer came, from a neighbour that answers others.
    `due_at` moves the message to its new place in the queue.
    """
    config = settings.HOLDFAST
    attempts = lease.attempts if counts and not setback else lease.attempts - 1
    setbacks = lease.setbacks + (1 if setback else 0)
    if counts and attempts + setbacks // SETBACKS_PER_TRY >= config.outbox_max_attempts:
        dead(lease, f"gave up after {attempts + setbacks} tries: {reason}")
        return
    low, high = config.outbox_retry_min_seconds, config.outbox_retry_max_seconds
    grown = min(high, low * 2 ** min(lease.attempts + setbacks, 16))
    pause = random.uniform(low, max(low, grown)) if after is None else min(max(after, low), high)
    changed = _mine(lease).update(
        available_at=dbtime.Now() + timedelta(seconds=max(pause, not_before)),
        lease_token=None,
        attempts=max(0, attempts),
        setbacks=setbacks,
        last_error=reason[:200],
        **({"due_at": due_at} if due_at else {}),
    )
    if not changed:
        raise LeaseLostError(f"{lease.kind} message is no longer held")


def deliver(lease: Lease) -> None:
    """Runs the handler of one claimed message and lets no failure escape.

    An unexpected error counts as a try; a row that killed its worker has its try counted by the
    claim, so it too ends in the dead letters.
    """
    with _tracers[0][1](lease) if _tracers else nullcontext():
        _deliver(lease)


def _deliver(lease: Lease) -> None:
    handler = _handlers.get(lease.kind)
    try:
        if handler is None:
            raise PoisonError(f"no handler for kind {lease.kind!r}")
        if lease.attempts > settings.HOLDFAST.outbox_max_attempts:
            raise PoisonError(f"gave up after {lease.attempts - 1} tries: the worker died each time")
        handler(lease)
    except LeaseLostError:
        logger.warning("lease lost", extra={"kind": lease.kind, "order_id": lease.order_id})
    except PoisonError as error:
        reason = str(error)
        _settle_quietly(lease, lambda: dead(lease, reason))
    except DatabaseError:
        # The lease runs out by itself; the database is the very thing that does not answer.
        logger.exception("database error in delivery", extra={"kind": lease.kind, "order_id": lease.order_id})
    except Exception as error:
        logger.exception("delivery failed", extra={"kind": lease.kind, "order_id": lease.order_id})
        reason = f"{type(error).__name__}"
        _settle_quietly(lease, lambda: retry(lease, reason))


def _settle_quietly(lease: Lease, step: Callable[[], None]) -> None:
    try:
        with transaction.atomic():
            step()
    except LeaseLostError:
        logger.warning("lease lost", extra={"kind": lease.kind, "order_id": lease.order_id})


def amend(lease: Lease, payload: Mapping[str, Any]) -> None:
    """Changes what a message says, for its next delivery. Raises LeaseLostError."""
    if not _mine(lease).update(payload=dict(payload)):
        raise LeaseLostError(f"{lease.kind} message is no longer held")


def holds(lease: Lease) -> bool:
    """Whether the message is still this holder's. Call with the order locked."""
    return bool(_mine(lease).exists())


def hurry(dedup: str) -> None:
    """Makes a waiting message due now. One that is being delivered is left alone."""
    OutboxMessage.objects.filter(dedup=dedup, status="PENDING", lease_token__isnull=True).update(
        available_at=dbtime.Now()
    )


def hurry_all(kind: str) -> int:
    """Makes every waiting message of a kind due now, so that they go by their deadlines alone; how many."""
    waiting = OutboxMessage.objects.filter(kind=kind, status="PENDING", lease_token__isnull=True)
    return waiting.filter(available_at__gt=dbtime.Now()).update(available_at=dbtime.Now())


def is_open(dedup: str) -> bool:
    """Whether this message waits for delivery or, as a dead letter, for a person."""
    return OutboxMessage.objects.filter(dedup=dedup, status__in=["PENDING", "DEAD"]).exists()


def in_flight(order_id: int, kind: str) -> bool:
    """Whether a live lease on this kind of message exists: somebody is at it right now."""
    return OutboxMessage.objects.filter(
        order_id=order_id,
        kind=kind,
        status="PENDING",
        lease_token__isnull=False,
        available_at__gt=dbtime.Now(),
    ).exists()


def withdraw(order_id: int, kind: str, reason: str) -> None:
    """Cancels pending messages of an order. A holder in flight will find its lease lost."""
    OutboxMessage.objects.filter(order_id=order_id, kind=kind, status="PENDING").update(
        status=OutboxMessage.Status.CANCELLED, finished_at=dbtime.Now(), lease_token=None, last_error=reason
    )


def take_over(order_id: int, kind: str, lease_for: timedelta) -> Lease | None:
    """Leases an order's own pending message for a request that calls at once; None if it is held or gone.

    Call with the order row locked.
    """
    message = (
        OutboxMessage.objects.select_for_update(skip_locked=True)
        .filter(order_id=order_id, kind=kind, status="PENDING")
        .exclude(lease_token__isnull=False, available_at__gt=dbtime.Now())
        .first()
    )
    if message is None:
        return None
    token = uuid.uuid4()
    payload = {**_payload(message.payload), "begun": True}
    OutboxMessage.objects.filter(pk=message.pk).update(
        lease_token=token, available_at=dbtime.Now() + lease_for, attempts=F("attempts") + 1, payload=payload
    )
    return Lease(message.pk, token, kind, order_id, payload, message.attempts + 1, message.setbacks)


@dataclass(frozen=True)
class Stats:
    """How much waits. Ages in seconds: of the oldest pending message, of the one that could have been
    claimed for the longest time, and of the oldest dead letter.
    """

    pending: int
    dead: int
    oldest_seconds: float
    late_seconds: float
    oldest_dead_seconds: float


def stats(*, held: bool = False) -> dict[str, Stats]:
    """Figures per destination. `held` as in `claim`: nothing is late that is to be left alone."""
    now = dbtime.read()
    claimable = ~NOT_BEGUN if held else Q()
    found = (
        OutboxMessage.objects.filter(status__in=["PENDING", "DEAD"])
        .values("destination", "status")
        .annotate(
            n=Count("id"),
            oldest=Min("created_at"),
            next=Min("available_at", filter=claimable),
            died=Min("finished_at"),
        )
    )

    def age(cell: Any, column: str) -> float:
        return max(0.0, (now - cell[column]).total_seconds()) if cell and cell[column] else 0.0

    cells = {(row["destination"], row["status"]): row for row in found}
    result = {}
    for destination in sorted(set(DESTINATIONS.values())):
        pending = cells.get((destination, "PENDING"))
        lost = cells.get((destination, "DEAD"))
        result[destination] = Stats(
            pending=pending["n"] if pending else 0,
            dead=lost["n"] if lost else 0,
            oldest_seconds=age(pending, "oldest"),
            late_seconds=age(pending, "next"),
            oldest_dead_seconds=age(lost, "died"),
        )
    return result


def charges_waiting(before: datetime | None = None) -> int:
    """Charges that have still to be made, of those written `before` a time if given."""
    rows = OutboxMessage.objects.filter(status="PENDING", kind=CHARGE, destination=PAYMENT)
    return rows.filter(created_at__lt=before).count() if before else rows.count()


@dataclass(frozen=True)
class DeadLetter:
    id: int
    kind: str
    order: str | None
    attempts: int
    reason: str
    died_at: datetime | None


def dead_letters(limit: int | None = 1000) -> list[DeadLetter]:
    """The oldest first. All of them without a limit."""
    rows = OutboxMessage.objects.filter(status="DEAD").select_related("order").order_by("id")[:limit]
    return [
        DeadLetter(
            row.pk,
            row.kind,
            row.order.number if row.order else None,
            row.attempts,
            row.last_error,
            row.finished_at,
        )
        for row in rows
    ]


def redrive(ids: list[int], actor: str, rate: float | None = None) -> int:
    """Brings dead letters back with fresh tries, at `rate` a second if given. Returns how many.

    Raises ValueError for a rate at which they would not all be back within a day.
    """
    if rate is not None and not (rate > 0 and len(ids) / rate <= LONGEST_WAIT_SECONDS):
        raise ValueError("the rate must be so many a second that all are back within a day")
    count = 0
    for place, message_id in enumerate(ids):
        after = timedelta(seconds=place / rate if rate else 0)
        count += OutboxMessage.objects.filter(status="DEAD", pk=message_id).update(
            status=OutboxMessage.Status.PENDING,
            attempts=0,
            setbacks=0,
            available_at=dbtime.Now() + after,
            finished_at=None,
            lease_token=None,
        )
    logger.warning("dead letters redriven", extra={"count": count, "actor": actor})
    return count
