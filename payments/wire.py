"""The gateway's JSON, read strictly: what it says about a payment, and whether it is the one we asked for.

Source: docs.stripe.com/api, objects PaymentIntent, Refund and Error. Pure functions; everything in an answer
is untrusted until it went through here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from payments.minor_units import NotChargeable, from_wire
from payments.outcomes import (
    ActionRequired,
    Charge,
    ChargeOutcome,
    Declined,
    Intent,
    LookupOutcome,
    NotFound,
    Succeeded,
    Unknown,
)

STATUSES: Final = frozenset(
    {
        "requires_payment_method",
        "requires_confirmation",
        "requires_action",
        "processing",
        "requires_capture",
        "canceled",
        "succeeded",
    }
)
_MONEY_MOVES: Final = frozenset({"succeeded", "processing", "requires_capture"})
_ID: Final = re.compile(r"[A-Za-z0-9_]{1,255}", re.ASCII)
_CODE: Final = re.compile(r"[a-z0-9_]{1,100}", re.ASCII)
_CURRENCY: Final = re.compile(r"[a-z]{3}", re.ASCII)


class Malformed(ValueError):
    """The answer breaks the gateway's own contract."""


@dataclass(frozen=True, slots=True)
class WireError:
    """An error body in the gateway's form."""

    type: str
    code: str
    decline_code: str | None
    intent: Intent | None


@dataclass(frozen=True, slots=True)
class WireRefund:
    """A refund as the gateway tells it."""

    id: str
    status: str
    intent: str
    amount_minor: int
    failure: str | None


def is_id(value: object) -> bool:
    """Whether `value` has the form of an object id at the gateway, safe in a path."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def read_intent(body: Any) -> Intent:
    """Read a PaymentIntent. Raises `Malformed` for anything the contract does not allow."""
    answer = _object(body, "the intent")
    status = _word(answer, "status")
    if status not in STATUSES:
        raise Malformed("the status is not one the contract knows")
    currency = _currency(answer)
    wire_amount = _amount(answer, "amount")
    if status == "succeeded" and answer.get("amount_received") is not None:
        wire_amount = _amount(answer, "amount_received")  # less than `amount` after a partial capture
    return Intent(
        id=_id(answer, "id"),
        status=status,
        amount_minor=_minor(wire_amount, currency),
        currency=currency,
        reference=_reference(answer),
        amount_refunded=_refunded(answer, currency),
        decline_code=_decline_code(answer.get("last_payment_error")),
        action_url=_action_url(answer.get("next_action")),
    )


def read_intents(body: Any) -> tuple[Intent, ...]:
    """Read a search result. A further page counts as malformed: no payment of ours has so many tries."""
    answer = _object(body, "the search result")
    rows = answer.get("data")
    if not isinstance(rows, list) or answer.get("has_more") not in (None, False):
        raise Malformed("the search result is not one page of intents")
    return tuple(read_intent(row) for row in rows)


def read_refund(body: Any) -> WireRefund:
    """Read a Refund. Raises `Malformed`."""
    answer = _object(body, "the refund")
    failure = answer.get("failure_reason")
    return WireRefund(
        id=_id(answer, "id"),
        status=_word(answer, "status"),
        intent=_id(answer, "payment_intent"),
        amount_minor=_minor(_amount(answer, "amount"), _currency(answer)),
        failure=failure if isinstance(failure, str) and _CODE.fullmatch(failure) else None,
    )


def read_object(body: Any) -> None:
    """Accept any JSON object. Raises `Malformed`."""
    _object(body, "the answer")


def read_error(body: Any) -> WireError:
    """Read an error body. Raises `Malformed`: an answer 4xx in another form did not come from the gateway."""
    error = _object(_object(body, "the answer").get("error"), "the error")
    kind = _word(error, "type")
    code = error.get("code")
    embedded = error.get("payment_intent")
    return WireError(
        type=kind,
        code=code if isinstance(code, str) and _CODE.fullmatch(code) else kind,
        decline_code=_decline_code(error),
        intent=read_intent(embedded) if isinstance(embedded, dict) else None,
    )


def judge(intent: Intent, charge: Charge) -> ChargeOutcome:
    """Compare what the gateway tells with what was asked. Only a match in all four points is a success.

    The id of a payment under another reference is not passed on: it is somebody else's money.
    """
    if intent.reference != charge.reference:
        return Unknown("mismatch")
    if (intent.amount_minor, intent.currency) != (charge.amount_minor, charge.currency):
        return Unknown("mismatch", intent.id)
    if intent.amount_refunded:
        return Unknown("refunded", intent.id)
    outcomes: dict[str, Callable[[], ChargeOutcome]] = {
        "succeeded": lambda: Succeeded(intent.id),
        "requires_payment_method": lambda: Declined(intent.decline_code or "generic_decline", intent.id),
        "canceled": lambda: Declined("canceled", intent.id),
        "requires_action": lambda: ActionRequired(intent.id, intent.action_url),
    }
    outcome = outcomes.get(intent.status)
    return outcome() if outcome else Unknown(intent.status, intent.id)


def judge_all(intents: Sequence[Intent], charge: Charge) -> LookupOutcome:
    """Judge what a search found, newest first.

    Two payments that both took money can happen when the gateway has forgotten the idempotency key; that is
    never reported as a success, because all but the oldest have to go back. They are named only if each one
    is the whole of what was asked, since nothing else is given back without a person.
    """
    intents = [intent for intent in intents if intent.reference == charge.reference]
    kept = [i for i in intents if i.status in _MONEY_MOVES and i.amount_refunded < i.amount_minor]
    if len(kept) > 1:
        whole = [i.id for i in reversed(kept) if isinstance(judge(i, charge), Succeeded)]
        if len(whole) == len(kept):
            return Unknown("several_charges", whole[0], others=tuple(whole[1:]))
        return Unknown("several_charges", kept[-1].id)
    if kept:
        return judge(kept[0], charge)
    outcomes = [judge(intent, charge) for intent in intents]
    for wanted in (ActionRequired, Declined, Unknown):
        for outcome in outcomes:
            if isinstance(outcome, wanted):
                return outcome
    return NotFound()


def _object(body: Any, what: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise Malformed(f"{what} is not a JSON object")
    return body


def _word(answer: dict[str, Any], key: str) -> str:
    value = answer.get(key)
    if not isinstance(value, str) or not _CODE.fullmatch(value):
        raise Malformed(f"{key} is missing or no plain word")
    return value


def _id(answer: dict[str, Any], key: str) -> str:
    value = answer.get(key)
    if not isinstance(value, str) or not is_id(value):
        raise Malformed(f"{key} is missing or no id")
    return value


def _amount(answer: dict[str, Any], key: str) -> int:
    value = answer.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**15:
        raise Malformed(f"{key} is missing or no amount")
    return value


def _currency(answer: dict[str, Any]) -> str:
    value = answer.get("currency")
    if not isinstance(value, str) or not _CURRENCY.fullmatch(value):
        raise Malformed("currency is missing or no currency code")
    return value.upper()


def _minor(wire_amount: int, currency: str) -> int:
    try:
        return from_wire(wire_amount, currency)
    except NotChargeable as error:
        raise Malformed(str(error)) from None


def _reference(answer: dict[str, Any]) -> str | None:
    metadata = answer.get("metadata")
    reference = metadata.get("order_reference") if isinstance(metadata, dict) else None
    return reference if isinstance(reference, str) else None


def _refunded(answer: dict[str, Any], currency: str) -> int:
    latest = answer.get("latest_charge")  # an id, unless the request asked to expand it
    if not isinstance(latest, dict):
        return 0
    return _minor(_amount(latest, "amount_refunded"), currency)


def _decline_code(error: Any) -> str | None:
    if not isinstance(error, dict):
        return None
    for key in ("decline_code", "code"):
        value = error.get(key)
        if isinstance(value, str) and _CODE.fullmatch(value):
            return value
    return None


def _action_url(action: Any) -> str | None:
    redirect = action.get("redirect_to_url") if isinstance(action, dict) else None
    url = redirect.get("url") if isinstance(redirect, dict) else None
    if not isinstance(url, str) or len(url) > 2000 or not url.isascii() or not url.isprintable():
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in ("https", "http") and parts.hostname else None
