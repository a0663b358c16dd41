"""Messages to the shopper: promised in the outbox, worded when they are sent, sent once."""

from __future__ import annotations

import contextlib
import logging
from datetime import datetime, timedelta
from smtplib import SMTPRecipientsRefused, SMTPResponseException

from django.core.mail import EmailMultiAlternatives, get_connection
from django.db import transaction
from django.utils import translation

from orders import outbox
from orders.letters import letter
from orders.models import Order
from orders.outbox import Lease, PoisonError
from orders.states import OrderStatus
from orders.wording import mail_subject
from payments import crashpoints
from payments.batch import Batch

logger = logging.getLogger(__name__)

ACCEPTED, PAID, DECLINED, NOT_TAKEN, CANCELLED, REFUNDED, ACTION = (
    "accepted",
    "paid",
    "declined",
    "not_taken",
    "cancelled",
    "refunded",
    "action_required",
)
_TRUE_WHILE: dict[str, frozenset[OrderStatus]] = {
    ACCEPTED: frozenset({OrderStatus.AWAITING_PAYMENT}),
    PAID: frozenset({OrderStatus.PAID}),
    DECLINED: frozenset({OrderStatus.DECLINED}),
    NOT_TAKEN: frozenset({OrderStatus.DECLINED}),
    CANCELLED: frozenset({OrderStatus.CANCELLED}),
    REFUNDED: frozenset({OrderStatus.CANCELLED, OrderStatus.DECLINED, OrderStatus.REFUNDED}),
    ACTION: frozenset({OrderStatus.ACTION_REQUIRED}),
}


def promise(
    order: Order,
    kind: str,
    now: datetime,
    *,
    attempt: str = "",
    after: timedelta = timedelta(0),
    batch: Batch | None = None,
) -> None:
    """Adds the message to the caller's transaction; a second one of the same kind is dropped.

    What can be said once of each attempt to pay names the payment's reference as its `attempt`.
    """
    attempt = attempt or order.number
    outbox.append(
        outbox.NOTIFY,
        order.pk,
        dedup=f"notify:{attempt}:{kind}",
        due_at=now,
        now=now,
        after=after,
        payload={"notice": kind, "attempt": attempt},
        batch=batch,
    )


def deliver_notice(lease: Lease) -> None:
    """Sends one message, if what it says is still true; otherwise drops it with the reason."""
    kind = lease.payload.get("notice")
    if kind not in _TRUE_WHILE:
        raise PoisonError(f"unknown notice {kind!r}"[:100])
    order = Order.objects.filter(pk=lease.order_id).prefetch_related("lines").first()
    if order is None:
        raise PoisonError("the order does not exist")
    if OrderStatus(order.status) not in _TRUE_WHILE[kind]:
        with transaction.atomic():
            outbox.cancel(lease, f"no longer true: the order is {order.status}")
        return
    try:
        send(compose(order, kind, str(lease.payload.get("attempt", order.number))))
    except NotAcceptedError as error:
        with transaction.atomic():
            outbox.retry(lease, f"mail server: {error}", counts=error.answered)
        return
    except OSError as error:  # SMTPException is an OSError
        with transaction.atomic():
            outbox.dead(lease, f"the mail may have been sent: {type(error).__name__}")
        return
    crashpoints.reached("mail.sent")
    with transaction.atomic():
        outbox.done(lease)


class NotAcceptedError(Exception):
    """The mail server certainly did not take the message. `answered`: it was there and refused."""

    def __init__(self, error: OSError, *, answered: bool) -> None:
        super().__init__(type(error).__name__)
        self.answered = answered


def send(message: EmailMultiAlternatives) -> None:
    """Hands a mail to the server. Raises NotAcceptedError, or OSError when nobody can know.

    Whoever cannot know must not try again by himself: the shopper would get it twice.
    """
    server = get_connection()
    try:
        server.open()
    except OSError as error:
        raise NotAcceptedError(error, answered=False) from error
    try:
        server.send_messages([message])
    except (SMTPResponseException, SMTPRecipientsRefused) as error:
        raise NotAcceptedError(error, answered=True) from error
    finally:
        with contextlib.suppress(OSError):
            server.close()


def compose(order: Order, kind: str, attempt: str) -> EmailMultiAlternatives:
    """The mail in the order's language. Its Message-ID is stable, so a doubled delivery can be told."""
    from orders.queries import order_page

    with translation.override(order.language):
        return letter(
            "notice",
            mail_subject(kind, order.number),
            order.email,
            {"page": order_page(order), "notice": kind},
            headers={"Message-ID": f"<{kind}.{attempt}@holdfast>"},
        )
