"""What staff may do to single orders and messages. Each step goes on record in the same transaction.

`seen` is what the form showed of its subject; when that has changed meanwhile, nothing is done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from django.db import transaction

from orders import outbox
from orders.models import Order, OutboxMessage
from orders.operations import undo
from orders.operations.steps import lock
from orders.outbox import DeadLetter
from orders.states import HOLDING, OrderStatus
from payments import checks, dbtime, duty


class StaleFormError(Exception):
    """Somebody or something was faster. Nothing was changed."""


class NotDiscardableError(Exception):
    """Money or a waiting order hangs on this message. Nothing was changed."""


def version_of(order: Order) -> str:
    """Differs after each step of the order."""
    return f"{order.status}-{order.updated_at.timestamp():.6f}"


def cancel_order(number: str, seen: str, *, actor: str, reason: str) -> None:
    """Cancels an unpaid order. Raises StaleFormError, IllegalTransitionError, MissingReasonError."""
    with transaction.atomic():
        found = Order.objects.filter(number=number).values_list("pk", flat=True).first()
        order = lock(found) if found is not None else None
        if order is None or version_of(order) != seen:
            raise StaleFormError
        before = order.status
        after = undo.cancel(order.pk, actor, reason)
        duty.record(
            actor=actor,
            action="order.cancel",
            subject=number,
            reason=reason,
            before=before,
            after=after,
        )


def letter_version(letter: DeadLetter) -> str:
    """Differs each time a message dies."""
    return letter.died_at.isoformat() if letter.died_at else ""


def letters_version(letters: Iterable[DeadLetter]) -> str:
    """Differs when the list does."""
    text = " ".join(f"{letter.id} {letter_version(letter)}" for letter in letters)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _locked_letter(message_id: int, seen: str) -> OutboxMessage:
    message = OutboxMessage.objects.select_for_update().filter(pk=message_id, status="DEAD").first()
    died_at = message.finished_at.isoformat() if message and message.finished_at else ""
    if message is None or died_at != seen:
        raise StaleFormError
    return message


def redrive_letter(message_id: int, seen: str, *, actor: str, reason: str) -> None:
    """Brings one dead letter back with fresh tries. Raises StaleFormError, MissingReasonError."""
    with transaction.atomic():
        message = _locked_letter(message_id, seen)
        outbox.redrive([message_id], actor)
        _record("letter.redrive", message, "PENDING", actor, reason)


def redrive_all(seen: str, *, rate: float, actor: str, reason: str) -> int:
    """Brings every dead letter of the list shown back, at `rate` a second. Raises as `redrive_letter`."""
    with transaction.atomic():
        letters = outbox.dead_letters()
        if letters_version(letters) != seen:
            raise StaleFormError
        return redrive_many([letter.id for letter in letters], rate=rate, actor=actor, reason=reason)


def redrive_many(ids: list[int], *, rate: float | None, actor: str, reason: str) -> int:
    """Brings dead letters back with fresh tries; returns how many. Raises MissingReasonError."""
    with transaction.atomic():
        count = outbox.redrive(ids, actor, rate=rate)
        if count:
            duty.record(
                actor=actor,
                action="letter.redrive_many",
                subject=f"{count} dead letters",
                reason=reason,
                before="DEAD",
                after="PENDING",
            )
    return count


def discard_letter(message_id: int, seen: str, *, actor: str, reason: str) -> None:
    """Gives up a message that nothing hangs on. Raises StaleFormError, NotDiscardableError, MissingReasonError."""
    with transaction.atomic():
        message = _locked_letter(message_id, seen)
        if not discardable(message.kind, message.order.status if message.order else None):
            raise NotDiscardableError
        message.status = OutboxMessage.Status.CANCELLED
        message.finished_at = dbtime.read()
        message.save(update_fields=["status", "finished_at"])
        _record("letter.discard", message, "CANCELLED", actor, reason)


def close_money_check(check_id: int, *, actor: str, reason: str) -> None:
    """Closes a case with what was found. Raises StaleFormError when it is closed, MissingReasonError."""
    if not checks.close_check(check_id, actor, reason):
        raise StaleFormError


def discardable(kind: str, order_status: str | None) -> bool:
    """Mail always; a charge once its order has ended; what undoes a payment never, since it is money."""
    if kind == outbox.NOTIFY or order_status is None:
        return True
    return kind == outbox.CHARGE and OrderStatus(order_status) not in HOLDING


def _record(action: str, message: OutboxMessage, after: str, actor: str, reason: str) -> None:
    number = message.order.number if message.order else "-"
    duty.record(
        actor=actor,
        action=action,
        subject=f"{message.kind} {message.pk} of {number}",
        reason=reason,
        before="DEAD",
        after=after,
    )
