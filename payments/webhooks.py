"""Is this webhook really from the gateway, and what is it about?

Source: docs.stripe.com/webhooks, "Verify webhook signatures manually". Nothing in the body is believed beyond
which payment to look at: amounts and status are asked for afterwards.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from payments.wire import is_id

_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_SIGNATURE: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TYPE: Final = re.compile(r"[a-z_.]{1,100}", re.ASCII)
_REFERENCE: Final = re.compile(r"[A-Za-z0-9._:-]{1,100}", re.ASCII)
_LONGEST_HEADER: Final = 4096
_LARGEST_BODY: Final = 1_000_000


class BadSignature(ValueError):
    """Not a webhook of the gateway, too old or too new, or nothing that can be read."""


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """Which payment something happened to. `intent` or `reference` is None where the event does not name
    it.
    """

    id: str
    type: str
    intent: str | None
    reference: str | None


def verify_webhook(
    payload: bytes, header: str, secret: str, now: float, tolerance: int = 300
) -> WebhookEvent:
    """Check signature and age of a webhook and read it.

    `now` is Unix time in seconds, `tolerance` the seconds an event may lie in the past or the future. Several
    v1 signatures may be given while a secret is being changed; one that fits is enough. Raises `BadSignature`
    and nothing else, whatever arrives.
    """
    if not secret:
        raise BadSignature("no webhook secret is configured")
    if len(header) > _LONGEST_HEADER or len(payload) > _LARGEST_BODY:
        raise BadSignature("too large")
    timestamp, signatures = _split(header)
    signed = timestamp.encode() + b"." + payload
    expected = hmac.new(secret.encode("utf-8", "surrogatepass"), signed, hashlib.sha256).hexdigest()
    fits = [hmac.compare_digest(expected, signature) for signature in signatures]
    if not any(fits):
        raise BadSignature("no signature fits")
    if not abs(now - int(timestamp)) <= tolerance:
        raise BadSignature("the timestamp is too far from now")
    return _read(payload)


def _split(header: str) -> tuple[str, list[str]]:
    pairs = [item.strip().partition("=") for item in header.split(",")]
    timestamps = [value for name, _, value in pairs if name == "t" and _TIMESTAMP.fullmatch(value)]
    signatures = [value for name, _, value in pairs if name == "v1" and _SIGNATURE.fullmatch(value)]
    if len(timestamps) != 1 or not signatures:
        raise BadSignature("the header has no timestamp or no signature")
    return timestamps[0], signatures


def _read(payload: bytes) -> WebhookEvent:
    try:
        body = json.loads(payload)
    except (ValueError, RecursionError):
        raise BadSignature("the body is not JSON") from None
    event: dict[str, Any] = body if isinstance(body, dict) else {}
    data = event.get("data")
    subject = data.get("object") if isinstance(data, dict) else None
    kind = event.get("type")
    if not is_id(event.get("id")) or not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise BadSignature("the body is not an event")
    if not isinstance(subject, dict):
        raise BadSignature("the event is about nothing")
    # A charge or refund names its intent, a payment intent is one.
    intent = subject.get("id") if kind.startswith("payment_intent.") else subject.get("payment_intent")
    metadata = subject.get("metadata")
    reference = metadata.get("order_reference") if isinstance(metadata, dict) else None
    return WebhookEvent(
        id=event["id"],
        type=kind,
        intent=intent if isinstance(intent, str) and is_id(intent) else None,
        reference=reference if isinstance(reference, str) and _REFERENCE.fullmatch(reference) else None,
    )
