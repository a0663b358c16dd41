"""Money checks: what the machines could not settle about money, for a person to look at.

A check is opened with the dead letter or the event that caused it, in the same transaction. It closes by
itself when the payment comes to a certain end after all, or by a person who says what was found.
"""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from payments import dbtime, duty
from payments.models import MoneyCheck, Payment
from payments.states import OPEN

logger = logging.getLogger(__name__)

SYSTEM = "system"


def open_check(subject: str, reason: str, *, order_key: str = "") -> bool:
    """Puts a case before staff; False if one with this subject is open. Call inside a transaction.

    `subject` is the payment's reference or, for money without an order, the gateway's id of it.
    """
    check = MoneyCheck(order_key=order_key, subject=subject, reason=reason[:200], opened_at=dbtime.read())
    before = MoneyCheck.objects.filter(subject=subject, closed_at__isnull=True).exists()
    MoneyCheck.objects.bulk_create([check], ignore_conflicts=True)
    if not before:
        logger.error("money check", extra={"subject": subject, "order": order_key, "reason": reason})
    return not before


def close_if_settled(order_key: str) -> None:
    """Closes an order's checks once none of its payments is open. Call inside a transaction."""
    still_open = Payment.objects.filter(order_key=order_key, status__in=sorted(OPEN))
    _close(Q(~Exists(still_open), order_key=order_key), SYSTEM, "came to a certain end")


def lock(payment_id: UUID) -> tuple[Payment, bool]:
    """A payment, locked, and whether a person is still asked about its order: one round trip."""
    checks = MoneyCheck.objects.filter(order_key=OuterRef("order_key"), closed_at__isnull=True)
    locked = Payment.objects.select_for_update(of=("self",)).annotate(asked=Exists(checks)).get(pk=payment_id)
    return locked, locked.asked


def close_check(check_id: int, actor: str, note: str) -> bool:
    """A person has looked, and that goes on record. False if it was closed before. Raises MissingReasonError
    without a note on what was found.
    """
    with transaction.atomic():
        check = MoneyCheck.objects.filter(pk=check_id).first()
        if check is None or not _close(Q(pk=check_id), actor, note.strip()):
            return False
        duty.record(
            actor=actor,
            action="check.close",
            subject=check.subject,
            reason=note,
            before="open",
            after="closed",
        )
    logger.warning("money check closed", extra={"check": check_id, "actor": actor})
    return True


def _close(which: Q, actor: str, note: str) -> int:
    rows = MoneyCheck.objects.filter(which, closed_at__isnull=True)
    return rows.update(closed_at=dbtime.Now(), closed_by=actor[:150], note=note[:500])
