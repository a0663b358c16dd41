"""The life of one payment as a table of data. No framework here.

A payment is one intention to take money under one idempotency key. `PROCESSING` is written before
the call, so whoever finds it without a live lease knows only that the call may have left.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar


class PaymentStatus(StrEnum):
    NEW = "NEW"
    PROCESSING = "PROCESSING"
    UNKNOWN = "UNKNOWN"
    SUCCEEDED = "SUCCEEDED"
    DECLINED = "DECLINED"
    ACTION_REQUIRED = "ACTION_REQUIRED"
    VOIDED = "VOIDED"
    REFUNDED = "REFUNDED"


class PaymentEvent(StrEnum):
    START = "start"
    NOT_SENT = "not_sent"
    LOST_SIGHT = "lost_sight"
    SUCCEED = "succeed"
    DECLINE = "decline"
    REQUIRE_ACTION = "require_action"
    VOID = "void"
    REFUND = "refund"


_S, _E = PaymentStatus, PaymentEvent

TRANSITIONS: Mapping[tuple[PaymentStatus, PaymentEvent], PaymentStatus] = {
    (_S.NEW, _E.START): _S.PROCESSING,
    (_S.NEW, _E.VOID): _S.VOIDED,
    (_S.NEW, _E.NOT_SENT): _S.NEW,
    (_S.NEW, _E.LOST_SIGHT): _S.UNKNOWN,
    (_S.NEW, _E.SUCCEED): _S.SUCCEEDED,
    (_S.NEW, _E.DECLINE): _S.DECLINED,
    (_S.NEW, _E.REQUIRE_ACTION): _S.ACTION_REQUIRED,
    (_S.PROCESSING, _E.START): _S.UNKNOWN,  # the last holder vanished, its call may have left
    (_S.PROCESSING, _E.NOT_SENT): _S.NEW,
    (_S.PROCESSING, _E.LOST_SIGHT): _S.UNKNOWN,
    (_S.PROCESSING, _E.SUCCEED): _S.SUCCEEDED,
    (_S.PROCESSING, _E.DECLINE): _S.DECLINED,
    (_S.PROCESSING, _E.REQUIRE_ACTION): _S.ACTION_REQUIRED,
    (_S.PROCESSING, _E.VOID): _S.VOIDED,
    (_S.UNKNOWN, _E.START): _S.UNKNOWN,
    (_S.UNKNOWN, _E.NOT_SENT): _S.UNKNOWN,  # this try did not leave, an earlier one may have
    (_S.UNKNOWN, _E.LOST_SIGHT): _S.UNKNOWN,
    (_S.UNKNOWN, _E.SUCCEED): _S.SUCCEEDED,
    (_S.UNKNOWN, _E.DECLINE): _S.DECLINED,
    (_S.UNKNOWN, _E.REQUIRE_ACTION): _S.ACTION_REQUIRED,
    (_S.UNKNOWN, _E.VOID): _S.VOIDED,
    (_S.ACTION_REQUIRED, _E.START): _S.ACTION_REQUIRED,
    (_S.ACTION_REQUIRED, _E.NOT_SENT): _S.ACTION_REQUIRED,
    (_S.ACTION_REQUIRED, _E.LOST_SIGHT): _S.ACTION_REQUIRED,
    (_S.ACTION_REQUIRED, _E.REQUIRE_ACTION): _S.ACTION_REQUIRED,
    (_S.ACTION_REQUIRED, _E.SUCCEED): _S.SUCCEEDED,
    (_S.ACTION_REQUIRED, _E.DECLINE): _S.DECLINED,
    (_S.ACTION_REQUIRED, _E.VOID): _S.VOIDED,
    # What has ended stays ended, whatever an older answer says or leaves open; only money opens it again, see below.
    (_S.DECLINED, _E.NOT_SENT): _S.DECLINED,
    (_S.DECLINED, _E.LOST_SIGHT): _S.DECLINED,
    (_S.DECLINED, _E.DECLINE): _S.DECLINED,
    (_S.DECLINED, _E.REQUIRE_ACTION): _S.DECLINED,
    (_S.DECLINED, _E.VOID): _S.DECLINED,
    # Money that arrives late is a fact in every state: it is recorded, then refunded.
    (_S.DECLINED, _E.SUCCEED): _S.SUCCEEDED,
    (_S.VOIDED, _E.SUCCEED): _S.SUCCEEDED,
    (_S.VOIDED, _E.NOT_SENT): _S.VOIDED,
    (_S.VOIDED, _E.LOST_SIGHT): _S.VOIDED,
    (_S.VOIDED, _E.DECLINE): _S.VOIDED,
    (_S.VOIDED, _E.REQUIRE_ACTION): _S.VOIDED,
    (_S.VOIDED, _E.VOID): _S.VOIDED,
    (_S.SUCCEEDED, _E.NOT_SENT): _S.SUCCEEDED,
    (_S.SUCCEEDED, _E.LOST_SIGHT): _S.SUCCEEDED,
    (_S.SUCCEEDED, _E.SUCCEED): _S.SUCCEEDED,
    (_S.SUCCEEDED, _E.DECLINE): _S.SUCCEEDED,
    (_S.SUCCEEDED, _E.REQUIRE_ACTION): _S.SUCCEEDED,
    (_S.SUCCEEDED, _E.REFUND): _S.REFUNDED,
    (_S.REFUNDED, _E.NOT_SENT): _S.REFUNDED,
    (_S.REFUNDED, _E.LOST_SIGHT): _S.REFUNDED,
    (_S.REFUNDED, _E.SUCCEED): _S.REFUNDED,
    (_S.REFUNDED, _E.DECLINE): _S.REFUNDED,
    (_S.REFUNDED, _E.REQUIRE_ACTION): _S.REFUNDED,
    (_S.REFUNDED, _E.VOID): _S.REFUNDED,
    (_S.REFUNDED, _E.REFUND): _S.REFUNDED,
}

OPEN = frozenset({_S.NEW, _S.PROCESSING, _S.UNKNOWN, _S.ACTION_REQUIRED})


class ModeSetting(StrEnum):
    """What the person on duty chose."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class EffectiveMode(StrEnum):
    """How orders are taken."""

    NORMAL = "NORMAL"
    DEGRADED = "DEGRADED"
    RECOVERING = "RECOVERING"


State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)


class IllegalTransitionError(Exception):
    """The pair (state, event) is not in the table. Nothing was changed."""


def advance(table: Mapping[tuple[State, Event], State], state: State, event: Event) -> State:
    """The state that follows. Raises IllegalTransitionError for a pair that the table does not hold."""
    try:
        return table[(state, event)]
    except KeyError:
        raise IllegalTransitionError(f"{event.value} is not possible in state {state.value}") from None
