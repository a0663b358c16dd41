"""From a state to what a person reads. Total: every state has words, a test walks the tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from django.utils.functional import Promise
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from orders.states import OrderStatus
from payments.declines import decline_message
from payments.states import PaymentStatus

Text = str | Promise


class Situation(StrEnum):
    """What is true for the shopper. Finer than the order's state: it knows what is certain."""

    PLACED = "placed"
    PAID = "paid"
    AWAITING = "awaiting"
    CONFIRMING = "confirming"
    ACTION_REQUIRED = "action-required"
    DECLINED = "declined"
    NOT_TAKEN = "not-taken"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    REFUNDING = "refunding"
    REFUNDED = "refunded"
    RETURN_IN_DOUBT = "return-in-doubt"


@dataclass(frozen=True)
class Words:
    """What a person reads in one situation. `next` is what to do now; `icon` names one of orders/icons.py."""

    title: Text
    text: Text
    icon: str
    next: Text


MONEY_CAME = frozenset({PaymentStatus.SUCCEEDED, PaymentStatus.REFUNDED})


def situation(
    order: OrderStatus, payment: PaymentStatus, *, expired: bool, looked_into: bool, refused: bool
) -> Situation:
    """Every pair of states has exactly one situation. `looked_into`: a person is asked about the money.
    `refused`: the gateway did not take the request, so no bank has declined anything.
    """
    if order in {OrderStatus.CANCELLED, OrderStatus.DECLINED, OrderStatus.REFUNDED}:
        if looked_into and payment in MONEY_CAME:
            return Situation.RETURN_IN_DOUBT
        if payment == PaymentStatus.REFUNDED:
            return Situation.REFUNDED
        if payment == PaymentStatus.SUCCEEDED:
            return Situation.REFUNDING
    if order == OrderStatus.CANCELLED:
        return Situation.EXPIRED if expired else Situation.CANCELLED
    if order == OrderStatus.AWAITING_PAYMENT:
        return Situation.AWAITING if payment == PaymentStatus.NEW else Situation.CONFIRMING
    if order == OrderStatus.DECLINED and refused:
        return Situation.NOT_TAKEN
    return {
        OrderStatus.PLACED: Situation.PLACED,
        OrderStatus.PAID: Situation.PAID,
        OrderStatus.ACTION_REQUIRED: Situation.ACTION_REQUIRED,
        OrderStatus.DECLINED: Situation.DECLINED,
        OrderStatus.REFUNDED: Situation.REFUNDED,
    }[order]


_MAYBE_CAPTURED = _(
    "If a payment turns out to have gone through after all, you get all of it back automatically."
)

WORDS: dict[Situation, Words] = {
    Situation.PLACED: Words(
        _("Your order is being processed"),
        _("We have your order and are taking the payment. Please do not pay again."),
        "clock",
        _("You can leave this page: your order is saved."),
    ),
    Situation.PAID: Words(
        _("Paid"),
        _("Thank you. Your payment has arrived and your order is being prepared."),
        "check",
        _("Nothing more to do. Keep the link to your order: it is the only key to it."),
    ),
    Situation.AWAITING: Words(
        _("Accepted, awaiting payment"),
        _(
            "Your order is saved and the goods are reserved for you. Payments cannot be taken at the "
            "moment, so nothing has been taken yet. We will take the payment within the hour and write to you. If that "
            "is not possible while the goods are reserved, the order is cancelled and nothing is charged."
        ),
        "hourglass",
        _("You need not do anything. If you like, pay now or cancel the order."),
    ),
    Situation.CONFIRMING: Words(
        _("Accepted, payment is being confirmed"),
        _(
            "Your order is saved and the goods are reserved for you. We are finding out whether your payment went "
            "through. Please do not pay again; we will write to you."
        ),
        "magnifier",
        _("You need not wait: we write as soon as we know."),
    ),
    Situation.ACTION_REQUIRED: Words(
        _("One more step"),
        _(
            "Your bank asks you to confirm this payment. Nothing is taken until you do. If you have done so already, "
            "do not pay again: this page will show what came of it."
        ),
        "key",
        _("Confirm the payment with your bank; your order's page shows what comes of it."),
    ),
    Situation.DECLINED: Words(
        _("Payment declined"),
        _(
            "Your card was declined and nothing was taken. The goods are no longer reserved. Try another card?"
        ),
        "card-off",
        _("Choose another way to pay. The goods are reserved again if they are still there."),
    ),
    Situation.NOT_TAKEN: Words(
        _("Payment could not be taken"),
        _(
            "Our payment service did not accept this payment, and nothing was taken. It is not your card that is at "
            "fault. The goods are no longer reserved."
        ),
        "card-off",
        _("Try again, or choose another way to pay. The goods are reserved again if they are still there."),
    ),
    Situation.CANCELLED: Words(
        _("Cancelled"),
        _("This order is cancelled. No payment will be taken for it from now on."),
        "cross",
        _MAYBE_CAPTURED,
    ),
    Situation.EXPIRED: Words(
        _("Cancelled: not paid in time"),
        _(
            "We could not take the payment while the goods were reserved. The order is cancelled: no payment "
            "will be taken for it from now on."
        ),
        "late",
        _MAYBE_CAPTURED,
    ),
    Situation.REFUNDING: Words(
        _("Cancelled, your money is on its way back"),
        _("A payment arrived although the order had ended. We are returning all of it automatically."),
        "back",
        _("You need not do anything: we write to you as soon as the money has been sent back."),
    ),
    Situation.REFUNDED: Words(
        _("Refunded"),
        _("The order has ended and your money has been returned in full."),
        "back",
        _("Your bank may take a few days to show it."),
    ),
    Situation.RETURN_IN_DOUBT: Words(
        _("Cancelled, a person of ours looks after your money"),
        _(
            "The order has ended, and sending your money back did not work by itself. A person of ours is looking "
            "into it."
        ),
        "back",
        _("You need not do anything. Should you ask us about it, name the number of the order."),
    ),
}

STATUS_WORDS: dict[OrderStatus, tuple[Text, str]] = {
    OrderStatus.PLACED: (_("Being processed"), "clock"),
    OrderStatus.PAID: (_("Paid"), "check"),
    OrderStatus.AWAITING_PAYMENT: (_("Accepted, payment follows"), "hourglass"),
    OrderStatus.ACTION_REQUIRED: (_("One more step"), "key"),
    OrderStatus.DECLINED: (_("Payment not taken"), "card-off"),
    OrderStatus.CANCELLED: (_("Cancelled"), "cross"),
    OrderStatus.REFUNDED: (_("Refunded"), "back"),
}
"""Title and icon of an order in a list, where only its own state is known."""

_DECLINES: dict[str, Text] = {
    "declined": _("The bank gave no reason."),
    "insufficient_funds": _("The card has not enough funds."),
    "limit_exceeded": _("The card's limit is used up."),
    "expired_card": _("The card has expired."),
    "wrong_details": _("A number of the card is wrong."),
    "not_supported": _("The bank does not allow this kind of payment with this card."),
    "authentication_failed": _("The confirmation that the bank asks for was not given."),
    "try_again": _("The bank could not be reached. The same card may work in a few minutes."),
    "canceled": _("The payment was called off."),
}


def decline_words(code: str) -> Text:
    """Why a card was declined, as far as a shopper may know."""
    return _DECLINES[decline_message(code)]


EVENTS: dict[str, Text] = {
    "placed": _("Order placed"),
    "pay": _("Payment received"),
    "defer": _("Accepted, awaiting payment"),
    "require_action": _("Confirmation by your bank needed"),
    "decline": _("Payment not taken"),
    "retry": _("Another attempt to pay"),
    "cancel": _("Order cancelled"),
    "expire": _("Cancelled: not paid in time"),
    "refund": _("Refunded"),
    "refunded": _("Money returned"),
    "money_check": _("A person of ours looks into the payment"),
    "late_money": _("A payment arrived late and is being returned"),
}


def event_words(kind: str) -> Text:
    """A line of the timeline."""
    return EVENTS.get(kind, kind)


def mail_subject(notice: str, number: str) -> str:
    """The subject of a mail, in the language that is active."""
    subjects = {
        "accepted": _now("Your order %(number)s is accepted, payment follows"),
        "paid": _now("Your order %(number)s is paid"),
        "declined": _now("The payment of your order %(number)s was declined"),
        "not_taken": _now("The payment of your order %(number)s could not be taken"),
        "cancelled": _now("Your order %(number)s is cancelled"),
        "refunded": _now("Your money for order %(number)s is on its way back"),
        "action_required": _now("Your order %(number)s needs one more step"),
    }
    return subjects[notice] % {"number": number}
