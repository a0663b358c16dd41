"""A payment gateway in memory: takes the place of the HTTP session below a real `Gateway` and its chain.

It keeps Stripe's contract on idempotency keys and tells what it has booked. Faults are planned request by request.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from resilience import errors
from resilience.http import HttpResponse

DECLINES = {
    "pm_card_chargeDeclined": "generic_decline",
    "pm_card_visa_chargeDeclinedInsufficientFunds": "insufficient_funds",
}
AUTHENTICATE = "pm_card_authenticationRequired"
SLOW = "pm_slow"  # a bank that takes its time: processing until it has decided
UNDECIDED = ("requires_action", "processing")
FAULTS = (
    "refuse",
    "lost",
    "lost_after",
    "error",
    "error_after",
    "stored_error",
    "limit",
    "in_use",
    "garbage",
    "foreign",
    "other_amount",
)
_MONEY = ("succeeded", "requires_capture")


@dataclass
class Taken:
    """Money that was taken, as the ledger of the gateway shows it. Amounts as they were sent."""

    idempotency_key: str | None
    intent: str
    amount: int
    currency: str
    reference: str | None
    refunded: int = 0


@dataclass
class FakeStripe:
    """Give it to `Gateway` as `http`. Thread-safe.

    `plan` holds the faults of the next requests, one each, None for a healthy one; `always` is for all others.
    refuse: no connection. lost: no answer, nothing done. lost_after: done, no answer. error, error_after: 500,
    nothing done or done. stored_error: 500, kept under the key. limit: 429. in_use: 409, nothing done.
    garbage: 200 with a web page. foreign, other_amount: done, and answered about something else.
    """

    plan: deque[str | None] = field(default_factory=deque)
    always: str | None = None
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    taken: dict[str, Taken] = field(default_factory=dict)
    intents: dict[str, dict[str, Any]] = field(default_factory=dict)
    refunds: list[dict[str, Any]] = field(default_factory=list)
    _kept: dict[str, tuple[Any, int, Any]] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def request(
        self,
        method: str,
        path: str,
        *,
        deadline: Any,
        form: Mapping[str, str] | None = None,
        json: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> HttpResponse:
        """One request, as `HttpSession.request` makes it."""
        if deadline.expired:
            raise errors.OutOfTime("too little time left")
        with self._lock:
            self.requests.append((method, path, idempotency_key))
            fault = self.plan.popleft() if self.plan else self.always
            _stop_before(fault)
            if fault == "stored_error" and idempotency_key:
                self._kept.setdefault(idempotency_key, ((method, path, dict(form or {})), 500, None))
            status, body, replayed = self._answer(
                method, path, dict(form or {}), dict(query or {}), idempotency_key
            )
        _stop_after(fault)
        extra = {"idempotent-replayed": "true"} if replayed else {}
        if fault == "garbage":
            return HttpResponse(200, "<html>", extra)
        if status == 200:
            return HttpResponse(200, _lie(fault, body), extra)
        kind = errors.ServerError if status >= 500 else errors.ClientError
        raise kind(status=status, body=body, headers=extra)

    def person_decides(self, intent: str, passes: bool) -> None:
        """What the shopper does on the bank's page, or a bank that took its time."""
        with self._lock:
            wire = self.intents[intent]
            assert wire["status"] in UNDECIDED
            self._take(wire) if passes else wire.update(status="requires_payment_method", next_action=None)

    def unrefunded(self, reference: str) -> list[Taken]:
        """Charges of an order whose money was not given back."""
        with self._lock:
            return [t for t in self.taken.values() if t.reference == reference and t.refunded < t.amount]

    def _answer(
        self, method: str, path: str, form: dict[str, str], query: dict[str, str], key: str | None
    ) -> tuple[int, Any, bool]:
        asked = (method, path, form)
        if key in self._kept:
            first, status, body = self._kept[key]
            if first != asked:
                return 400, _error("idempotency_error"), False
            return status, body, True
        status, body = self._process(method, path, form, query, key)
        # Like the original: what fails validation was never begun, so it is not kept. A cancellation refused
        # for the intent's state was.
        if method == "POST" and key and (status in (200, 402) or path.endswith("/cancel")):
            self._kept[key] = (asked, status, body)
        return status, body, False

    def _process(
        self, method: str, path: str, form: dict[str, str], query: dict[str, str], key: str | None
    ) -> tuple[int, Any]:
        match (method, *path.strip("/").split("/")):
            case ("POST", "v1", "payment_intents"):
                return self._create(form, key)
            case ("GET", "v1", "payment_intents", "search"):
                wanted = query["query"].partition(":")[2].strip("'")
                found = [i for i in self.intents.values() if i["metadata"]["order_reference"] == wanted]
                return 200, {"object": "search_result", "data": [dict(i) for i in found[::-1]]}
            case ("GET", "v1", "payment_intents", name) if name in self.intents:
                return 200, self._expanded(self.intents[name])
            case ("POST", "v1", "payment_intents", name, "cancel") if name in self.intents:
                return self._cancel(self.intents[name])
            case ("POST", "v1", "refunds") if form["payment_intent"] in self.taken:
                return self._refund(self.taken[form["payment_intent"]], int(form["amount"]))
            case ("GET", "v1", "balance"):
                return 200, {"object": "balance"}
        return 404, _error("invalid_request_error", "resource_missing")

    def _create(self, form: dict[str, str], key: str | None) -> tuple[int, Any]:
        method = form["payment_method"]
        if method not in {"pm_card_visa", AUTHENTICATE, SLOW, *DECLINES}:
            return 404, _error("invalid_request_error", "resource_missing")
        if int(form["amount"]) > 99_999_999:
            return 400, _error("invalid_request_error", "amount_too_large")
        wire = {
            "id": f"pi_{next(self._numbers)}",
            "status": "processing",
            "amount": int(form["amount"]),
            "amount_received": 0,
            "currency": form["currency"],
            "metadata": {"order_reference": form["metadata[order_reference]"]},
            "next_action": None,
            "latest_charge": None,
            "_key": key,
        }
        self.intents[wire["id"]] = wire
        if method in DECLINES:
            wire["status"] = "requires_payment_method"
            wire["last_payment_error"] = {"code": "card_declined", "decline_code": DECLINES[method]}
            declined = _error("card_error", "card_declined", decline_code=DECLINES[method])
            declined["error"]["payment_intent"] = dict(wire)
            return 402, declined
        if method == AUTHENTICATE:
            url = f"https://bank.example/{wire['id']}"
            wire.update(status="requires_action", next_action={"redirect_to_url": {"url": url}})
        elif method != SLOW:
            self._take(wire)
        return 200, dict(wire)

    def _take(self, wire: dict[str, Any]) -> None:
        wire.update(
            status="succeeded", amount_received=wire["amount"], next_action=None, latest_charge="ch_1"
        )
        self.taken[wire["id"]] = Taken(
            wire["_key"], wire["id"], wire["amount"], wire["currency"], wire["metadata"]["order_reference"]
        )

    def _expanded(self, wire: dict[str, Any]) -> dict[str, Any]:
        taken = self.taken.get(wire["id"])
        return wire | {"latest_charge": {"id": "ch_1", "amount_refunded": taken.refunded} if taken else None}

    def _cancel(self, wire: dict[str, Any]) -> tuple[int, Any]:
        if wire["status"] in (*_MONEY, "processing", "canceled"):
            refused = _error("invalid_request_error", "payment_intent_unexpected_state")
            refused["error"]["payment_intent"] = dict(wire)
            return 400, refused
        wire.update(status="canceled", next_action=None)
        return 200, dict(wire)

    def _refund(self, taken: Taken, amount: int) -> tuple[int, Any]:
        if taken.refunded == taken.amount:
            return 400, _error("invalid_request_error", "charge_already_refunded")
        if taken.refunded + amount > taken.amount:
            return 400, _error("invalid_request_error", "amount_too_large")
        taken.refunded += amount
        refund = {
            "id": f"re_{next(self._numbers)}",
            "status": "succeeded",
            "payment_intent": taken.intent,
            "amount": amount,
            "currency": taken.currency,
        }
        self.refunds.append(refund)
        return 200, dict(refund)


def _stop_before(fault: str | None) -> None:
    if fault == "refuse":
        raise errors.ConnectFailed("no connection")
    if fault == "lost":
        raise errors.OutcomeUnknown("no answer", phase="headers")
    if fault == "error":
        raise errors.ServerError(status=500)
    if fault == "limit":
        raise errors.ServerError(status=429, retry_after=2.0)
    if fault == "in_use":
        raise errors.ClientError(status=409, body=_error("invalid_request_error", "idempotency_key_in_use"))


def _stop_after(fault: str | None) -> None:
    if fault == "lost_after":
        raise errors.OutcomeUnknown("no answer", phase="headers")
    if fault == "error_after":
        raise errors.ServerError(status=500)


def _lie(fault: str | None, body: Any) -> Any:
    if "data" in body:
        return body | {"data": [_lie(fault, one) for one in body["data"]]}
    if fault == "foreign":
        return body | {
            "id": "pi_other",
            "payment_intent": "pi_other",
            "metadata": {"order_reference": "OTHER"},
        }
    if fault == "other_amount" and "amount" in body:
        return body | {"amount": body["amount"] + 1}
    return body


def _error(kind: str, code: str | None = None, **more: Any) -> dict[str, Any]:
    return {"error": {"type": kind, "code": code, **more}}
