"""PaymentIntents and refunds as Stripe describes them: pure functions from objects to objects.

Source: Stripe's API reference (PaymentIntents, Refunds, Errors, Testing) and its page on currencies.
Objects are dictionaries in wire form. Nothing here stores or sends anything.
"""

import secrets
import time
from dataclasses import dataclass
from typing import Any

Wire = dict[str, Any]

LARGEST_AMOUNT = 99_999_999

# Three-decimal currencies take the amount in thousandths, but the last digit must be 0 (card networks settle
# hundredths): 5.124 KWD has to be sent as 5120 or 5130.
THREE_DECIMAL = frozenset({"bhd", "jod", "kwd", "omr", "tnd"})
# Two-decimal on the wire for old times' sake, but without a minor unit: multiples of 100 only.
WHOLE_UNITS_ONLY = frozenset({"isk", "ugx"})
_OTHERS = """
    aed afn all amd ang aoa ars aud awg azn bam bbd bdt bif bmd bnd bob brl bsd bwp byn bzd cad cdf chf
    clp cny cop crc cve czk djf dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gnf gtq gyd hkd hnl htg
    huf idr ils inr jmd jpy kes kgs khr kmf krw kyd kzt lak lbp lkr lrd lsl mad mdl mga mkd mmk mnt mop
    mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd pab pen pgk php pkr pln pyg qar ron rsd rub rwf sar
    sbd scr sek sgd shp sle sos srd std szl thb tjs top try ttd twd tzs uah usd uyu uzs vnd vuv wst xaf
    xcd xof xpf yer zar zmw
"""
CURRENCIES = THREE_DECIMAL | WHOLE_UNITS_ONLY | frozenset(_OTHERS.split())

# Payment method → decline code, or None when the money is taken; the 3-D Secure card asks first.
AUTHENTICATE = "pm_card_authenticationRequired"
METHODS: dict[str, str | None] = {
    "pm_card_visa": None,
    "pm_card_mastercard": None,
    AUTHENTICATE: None,
    "pm_card_chargeDeclined": "generic_decline",
    "pm_card_visa_chargeDeclined": "generic_decline",
    "pm_card_visa_chargeDeclinedInsufficientFunds": "insufficient_funds",
    "pm_card_chargeDeclinedInsufficientFunds": "insufficient_funds",
}
_DECLINE_WORDS = {
    "generic_decline": "Your card was declined.",
    "insufficient_funds": "Your card has insufficient funds.",
}
CONFIRMABLE = frozenset({"requires_payment_method", "requires_confirmation"})
CANCELLABLE = CONFIRMABLE | {"requires_action", "requires_capture", "processing"}


@dataclass
class StripeError(Exception):
    """An answer that is an error in Stripe's form. Validation errors are not stored under the key."""

    status: int
    type: str
    message: str
    code: str | None = None
    param: str | None = None
    decline_code: str | None = None
    intent: Wire | None = None

    def body(self) -> Wire:
        error = {
            "type": self.type,
            "message": self.message,
            "code": self.code,
            "param": self.param,
            "decline_code": self.decline_code,
            "payment_intent": self.intent,
        }
        return {"error": {key: value for key, value in error.items() if value is not None}}


def invalid(
    message: str, param: str | None = None, code: str | None = None, status: int = 400
) -> StripeError:
    return StripeError(status, "invalid_request_error", message, code=code, param=param)


def wrong_state(intent: Wire, verb: str) -> StripeError:
    message = f"You cannot {verb} this PaymentIntent because it has a status of {intent['status']}."
    return StripeError(
        400, "invalid_request_error", message, code="payment_intent_unexpected_state", intent=intent
    )


def identifier(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"


def parse_amount(text: str, currency: str) -> int:
    """A charge's or refund's amount in the currency's smallest unit. Raises StripeError."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise invalid(f"Invalid integer: {text}", "amount", "parameter_invalid_integer")
    amount = int(text)
    if amount < 1:
        raise invalid("This value must be greater than or equal to 1.", "amount", "parameter_invalid_integer")
    if amount > LARGEST_AMOUNT:
        raise invalid("Amount must be no more than 999,999.99.", "amount", "amount_too_large")
    step = 10 if currency in THREE_DECIMAL else 100 if currency in WHOLE_UNITS_ONLY else 1
    if amount % step:
        raise invalid(
            f"Invalid amount. Amounts in {currency.upper()} must be evenly divisible by {step}.",
            "amount",
            "invalid_charge_amount_no_decimal_compatible" if step == 100 else "invalid_charge_amount",
        )
    return amount


def new_intent(form: dict[str, str]) -> Wire:
    """An unconfirmed intent from the parameters of POST /v1/payment_intents. Raises StripeError."""
    for name in ("amount", "currency"):
        if not form.get(name):
            raise invalid(f"Missing required param: {name}.", name, "parameter_missing")
    currency = form["currency"]
    if currency not in CURRENCIES:
        raise invalid(f"Invalid currency: {currency}.", "currency")
    capture = form.get("capture_method", "automatic")
    if capture not in ("automatic", "automatic_async", "manual"):
        raise invalid(f"Invalid capture_method: must be automatic or manual, not {capture}", "capture_method")
    method = _known_method(form.get("payment_method"))
    name = identifier("pi")
    return {
        "id": name,
        "object": "payment_intent",
        "amount": parse_amount(form["amount"], currency),
        "amount_capturable": 0,
        "amount_received": 0,
        "canceled_at": None,
        "cancellation_reason": None,
        "capture_method": capture,
        "client_secret": f"{name}_secret_{secrets.token_hex(8)}",
        "created": int(time.time()),
        "currency": currency,
        "description": form.get("description"),
        "last_payment_error": None,
        "latest_charge": None,
        "livemode": False,
        "metadata": _metadata(form),
        "next_action": None,
        "payment_method": method,
        "payment_method_types": ["card"],
        "status": "requires_confirmation" if method else "requires_payment_method",
    }


def confirm(intent: Wire, form: dict[str, str], page_url: str) -> Wire:
    """The intent after a confirmation: paid, to be captured, or waiting for the person's bank.

    Raises StripeError; a decline carries the intent as it is then. `page_url` is where the sandbox asks
    the person.
    """
    if intent["status"] not in CONFIRMABLE:
        raise wrong_state(intent, "confirm")
    method = _known_method(form.get("payment_method")) or intent["payment_method"]
    if not method:
        raise invalid(
            "You cannot confirm this PaymentIntent because it's missing a payment method.",
            code="payment_intent_unexpected_state",
        )
    intent = {**intent, "payment_method": method}
    if method == AUTHENTICATE:
        action = {"url": page_url, "return_url": form.get("return_url")}
        return intent | {
            "status": "requires_action",
            "next_action": {"type": "redirect_to_url", "redirect_to_url": action},
        }
    if decline := METHODS[method]:
        raise declined(intent, decline)
    return take(intent)


def take(intent: Wire) -> Wire:
    """The bank said yes: captured, or reserved for a capture when that is manual."""
    changes: Wire = {"next_action": None, "last_payment_error": None}
    if intent["capture_method"] == "manual":
        return intent | changes | {"status": "requires_capture", "amount_capturable": intent["amount"]}
    return intent | changes | _captured(intent["amount"])


def capture(intent: Wire, form: dict[str, str]) -> Wire:
    if intent["status"] != "requires_capture":
        raise wrong_state(intent, "capture")
    amount = intent["amount"]
    if "amount_to_capture" in form:
        amount = parse_amount(form["amount_to_capture"], intent["currency"])
    if amount > intent["amount_capturable"]:
        raise invalid("The amount to capture is more than what was authorized.", "amount_to_capture")
    return intent | _captured(amount)


def _captured(amount: int) -> Wire:
    return {
        "status": "succeeded",
        "amount_received": amount,
        "amount_capturable": 0,
        "latest_charge": identifier("ch"),
    }


def declined(intent: Wire, code: str, message: str | None = None) -> StripeError:
    """The 402 of a refused card; its `intent` is ready for another payment method."""
    words = message or _DECLINE_WORDS.get(code, "Your card was declined.")
    error = {"type": "card_error", "code": "card_declined", "decline_code": code, "message": words}
    after = intent | {
        "status": "requires_payment_method",
        "payment_method": None,
        "next_action": None,
        "last_payment_error": error,
    }
    return StripeError(402, "card_error", words, code="card_declined", decline_code=code, intent=after)


def authentication_failed(intent: Wire) -> Wire:
    """The person did not pass 3-D Secure: back to the choice of a payment method."""
    words = "We are unable to authenticate your payment method. Please choose a different one and try again."
    error = {"type": "card_error", "code": "payment_intent_authentication_failure", "message": words}
    return intent | {
        "status": "requires_payment_method",
        "payment_method": None,
        "next_action": None,
        "last_payment_error": error,
    }


def cancel(intent: Wire, form: dict[str, str]) -> Wire:
    if intent["status"] not in CANCELLABLE:
        raise wrong_state(intent, "cancel")
    return intent | {
        "status": "canceled",
        "amount_capturable": 0,
        "next_action": None,
        "canceled_at": int(time.time()),
        "cancellation_reason": form.get("cancellation_reason"),
    }


def new_refund(intent: Wire, already: int, form: dict[str, str]) -> Wire:
    """A refund of all that is left, or of `amount`. Raises StripeError."""
    left = intent["amount_received"] - already
    if intent["status"] != "succeeded":
        raise invalid(f"This PaymentIntent ({intent['id']}) does not have a successful charge to refund.")
    if left == 0:
        raise invalid(
            f"Charge {intent['latest_charge']} has already been refunded.", code="charge_already_refunded"
        )
    amount = parse_amount(form["amount"], intent["currency"]) if "amount" in form else left
    if amount > left:
        raise invalid(
            f"Refund amount ({amount}) is greater than unrefunded amount on charge ({left})", "amount"
        )
    return {
        "id": identifier("re"),
        "object": "refund",
        "amount": amount,
        "charge": intent["latest_charge"],
        "created": int(time.time()),
        "currency": intent["currency"],
        "metadata": _metadata(form),
        "payment_intent": intent["id"],
        "reason": form.get("reason"),
        "status": "succeeded",
    }


def _known_method(method: str | None) -> str | None:
    if method and method not in METHODS:
        raise invalid(f"No such PaymentMethod: '{method}'", "payment_method", "resource_missing", 404)
    return method or None


def _metadata(form: dict[str, str]) -> dict[str, str]:
    return {
        name.removeprefix("metadata[").removesuffix("]"): value
        for name, value in form.items()
        if name.startswith("metadata[") and name.endswith("]") and value
    }
