"""The payment gateway: Stripe's PaymentIntents wire format, idempotency keys, webhooks, a ledger.

Run it with `python -m sandbox.gateway --port 0 [--state DIR] [--webhook-url URL --webhook-secret SECRET]`.
"""

import hashlib
import html
import json
import re
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from sandbox import intents
from sandbox.book import Book, Change, Kept
from sandbox.http import Request, Response
from sandbox.intents import StripeError, Wire, invalid
from sandbox.ledger import Entry
from sandbox.neighbour import Neighbour, NotFound, main
from sandbox.webhooks import Webhooks

_SEARCH = re.compile(r"""metadata\[(['"])(?P<field>[^'"\]]+)\1\]\s*:\s*(['"])(?P<value>[^'"]*)\3""")
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Sandbox bank</title>
<h1>Confirm your payment</h1><p>Amount: {amount} {currency} (smallest units). Status: {status}.</p>
<form method="post"><button name="result" value="pass">Confirm the payment</button>
<button name="result" value="fail">Refuse the payment</button></form>"""


class Gateway(Neighbour):
    """Everything is in `book`; one lock makes each request one step. Thread-safe."""

    name = "gateway"

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        control_port: int = 0,
        *,
        state: Path | None = None,
        webhook_url: str | None = None,
        webhook_secret: str = "whsec_sandbox",
    ) -> None:
        self._lock = threading.RLock()
        self._in_use: dict[str, bool] = {}  # idempotency keys in flight → first use of the key?
        self.book = Book(state)
        self.webhooks = Webhooks(webhook_url, webhook_secret)
        super().__init__(host, port, control_port)
        self.ledger.restore(self.book.requests)

    def stop(self) -> None:
        super().stop()
        self.webhooks.stop()

    # --- idempotency ----------------------------------------------------------------------------------

    def identify(self, request: Request) -> tuple[str | None, str | None]:
        form = _form(request)
        reference = form.get("metadata[order_reference]")
        if reference is None and (found := self.book.intents.get(_addressed(request, form))):
            reference = found["metadata"].get("order_reference")
        return _key(request), reference

    def enter(self, request: Request) -> Response | None:
        key = _key(request)
        if key is None:
            return None
        with self._lock:
            if key in self._in_use:
                return _failure(
                    StripeError(
                        409,
                        "idempotency_error",
                        "There is currently another in-progress request using this Idempotency-Key.",
                        code="idempotency_key_in_use",
                    )
                )
            self._in_use[key] = key not in self.book.keys
        return None

    def leave(self, request: Request) -> None:
        with self._lock:
            self._in_use.pop(_key(request) or "", None)

    def store(self, request: Request, response: Response) -> None:
        key = _key(request)
        if key is not None and self._in_use.get(key):
            kept = Kept(_fingerprint(request), response.status, response.body.decode())
            self.book.commit(Change(key=key, kept=kept))

    def answer(self, request: Request) -> Response:
        if not _authorised(request):
            message = "You did not provide an API key, or it is not a test key (sk_test_...)."
            return _failure(StripeError(401, "invalid_request_error", message))
        key = _key(request)
        with self._lock:
            if key is not None and (kept := self.book.keys.get(key)):
                return _replay(request, kept)
            return self._first(request, key)

    def _first(self, request: Request, key: str | None) -> Response:
        """Process, and keep status and body under the key together with the booking, in one step.

        Validation errors are not kept: nothing began. A decline is: the bank was asked.
        """
        change = Change()
        try:
            response = Response.of(self._process(request, _form(request), change))
        except StripeError as error:
            response = _failure(error)
            if error.type != "card_error" or error.intent is None:
                return response
            change.intent = error.intent
            change.event = "payment_intent.payment_failed"
        if key is not None:
            change.key = key
            change.kept = Kept(_fingerprint(request), response.status, response.body.decode())
        if not change.empty:
            self._book(change)
        return response

    def _book(self, change: Change) -> None:
        self.book.commit(change)
        if change.event and change.intent is not None:
            self.webhooks.announce(change.event, change.intent)
        self.ledger.changed()

    # --- the API --------------------------------------------------------------------------------------

    def _process(self, request: Request, form: dict[str, str], change: Change) -> Wire:
        match (request.method, *request.segments()):
            case ("POST", "v1", "payment_intents"):
                return self._create(form, change, _key(request))
            case ("GET", "v1", "payment_intents"):
                return self._list(request)
            case ("GET", "v1", "payment_intents", "search"):
                return self._search(request)
            case ("GET", "v1", "payment_intents", name):
                return self._expanded(self._raw(name), request)
            case ("POST", "v1", "payment_intents", name, ("confirm" | "capture" | "cancel") as verb):
                return self._step(name, verb, form, change, _key(request))
            case ("POST", "v1", "refunds"):
                return self._refund(form, change, _key(request))
            case ("GET", "v1", "refunds", name) if name in self.book.refunds:
                return _public(self.book.refunds[name])
            case ("GET", "v1", "balance"):
                return _balance(self.book)
            case _:
                message = f"Unrecognized request URL ({request.method}: {request.path})."
                raise invalid(message, status=404)

    def _create(self, form: dict[str, str], change: Change, key: str | None) -> Wire:
        intent = intents.new_intent(form) | {"_key": key, "_created_ms": time.time_ns() // 1_000_000}
        if form.get("confirm") == "true":
            intent = intents.confirm(intent, form, self._page(intent["id"]))
        _changed(change, intent)
        return _public(intent)

    def _step(self, name: str, verb: str, form: dict[str, str], change: Change, key: str | None) -> Wire:
        intent = self._raw(name)
        if verb == "confirm":
            after = intents.confirm(intent, form, self._page(name)) | {"_key": key or intent["_key"]}
        elif verb == "capture":
            after = intents.capture(intent, form)
        else:
            after = intents.cancel(intent, form)
        _changed(change, after)
        return _public(after)

    def _refund(self, form: dict[str, str], change: Change, key: str | None) -> Wire:
        if not form.get("payment_intent"):
            raise invalid("Missing required param: payment_intent.", "payment_intent", "parameter_missing")
        intent = self._raw(form["payment_intent"])
        already = self.book.refunded(intent["id"])
        change.refund = intents.new_refund(intent, already, form) | {"_key": key}
        change.intent, change.event = intent, "charge.refunded"
        return _public(change.refund)

    def _raw(self, name: str) -> Wire:
        if name not in self.book.intents:
            raise invalid(f"No such payment_intent: '{name}'", "intent", "resource_missing", 404)
        return self.book.intents[name]

    def _expanded(self, intent: Wire, request: Request) -> Wire:
        """As asked for by `expand[]`: the charge itself in place of its id."""
        shown = _public(intent)
        if shown["latest_charge"] and request.query.get("expand[]", "").endswith("latest_charge"):
            back = self.book.refunded(intent["id"])
            shown["latest_charge"] = {
                "id": shown["latest_charge"],
                "object": "charge",
                "amount": intent["amount_received"],
                "amount_refunded": back,
                "refunded": back >= intent["amount_received"],
            }
        return shown

    def _list(self, request: Request) -> Wire:
        limit = request.query.get("limit", "10")
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:4]) <= 100):
            raise invalid("Invalid limit: must be from 1 to 100", "limit")
        newest = list(reversed(self.book.intents.values()))
        return {
            "object": "list",
            "data": [_public(intent) for intent in newest[: int(limit)]],
            "has_more": len(newest) > int(limit),
            "url": "/v1/payment_intents",
        }

    def _search(self, request: Request) -> Wire:
        found = _SEARCH.fullmatch(request.query.get("query", "").strip())
        if not found:
            raise invalid("The search query must be metadata['field']:'value' here.", "query")
        hits = [
            self._expanded(intent, request)
            for intent in reversed(self.book.intents.values())
            if intent["metadata"].get(found["field"]) == found["value"]
        ]
        url = "/v1/payment_intents/search"
        return {"object": "search_result", "data": hits[:10], "has_more": len(hits) > 10, "url": url}

    def _page(self, name: str) -> str:
        return f"{self.url}/_sandbox/authenticate/{name}"

    # --- control --------------------------------------------------------------------------------------

    def control(self, request: Request) -> Response:
        match (request.method, *request.segments()):
            case ("GET" | "POST", "_sandbox", "authenticate", name) if name in self.book.intents:
                return self._authenticate(request, name)
            case ("PUT" | "GET", "_sandbox", "webhooks"):
                if request.method == "PUT":
                    self.webhooks.configure(request.json())
                return Response.of(self.webhooks.state())
            case ("POST", "_sandbox", "webhooks", "resend"):
                self.webhooks.resend(str(request.json()["event"]))
                return Response.of(self.webhooks.state())
            case _:
                raise NotFound

    def _authenticate(self, request: Request, name: str) -> Response:
        """The bank's page. A POST `result=pass|fail` is what the person decides; then back to the shop."""
        with self._lock:
            intent = self.book.intents[name]
            waiting = intent["status"] == "requires_action"
            if request.method == "GET" or not waiting:
                status = 200 if request.method == "GET" else 409
                return Response.html(
                    _PAGE.format(**{k: html.escape(str(v)) for k, v in intent.items()}), status
                )
            passed = _form(request).get("result") == "pass"
            after = intents.take(intent) if passed else intents.authentication_failed(intent)
            change = Change()
            _changed(change, after)
            self._book(change)
        back = intent["next_action"]["redirect_to_url"]["return_url"]
        if not back:
            return Response.of(_public(after))
        return Response(303, b"", (("Location", back),))

    def report(self, since: int) -> dict[str, Any]:
        return super().report(since) | self.book.report()

    def reached(self, wanted: dict[str, int]) -> bool:
        charges = wanted.get("wait_for_charges", 0)
        return super().reached(wanted) and (not charges or self.book.charge_count() >= charges)

    def forget(self) -> None:
        with self._lock:
            self.book.clear()
        super().forget()

    def noted(self, entry: Entry) -> None:
        self.book.note(entry)


def _changed(change: Change, intent: Wire) -> None:
    change.intent = intent
    change.event = {
        "succeeded": "payment_intent.succeeded",
        "requires_action": "payment_intent.requires_action",
        "requires_payment_method": "payment_intent.payment_failed" if intent["last_payment_error"] else None,
        "canceled": "payment_intent.canceled",
    }.get(intent["status"])


def _public(wire: Wire) -> Wire:
    """Without the sandbox's own notes."""
    return {key: value for key, value in wire.items() if not key.startswith("_")}


def _failure(error: StripeError) -> Response:
    body = error.body()
    if error.intent is not None:
        body["error"]["payment_intent"] = _public(error.intent)
    return Response.of(body, error.status)


def _replay(request: Request, kept: Kept) -> Response:
    if kept.fingerprint != _fingerprint(request):
        message = "A key for idempotent requests can only be used again with the parameters of its first use."
        return _failure(StripeError(400, "idempotency_error", message))
    headers = (("Content-Type", "application/json"), ("Idempotent-Replayed", "true"))
    return Response(kept.status, kept.body.encode(), headers)


def _balance(book: Book) -> Wire:
    total: dict[str, int] = {}
    for charge in book.report()["charges"]:
        left = charge["amount"] - charge["refunded"]
        total[charge["currency"]] = total.get(charge["currency"], 0) + left
    available = [{"amount": amount, "currency": currency} for currency, amount in sorted(total.items())]
    return {"object": "balance", "available": available, "pending": [], "livemode": False}


def _authorised(request: Request) -> bool:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and token.startswith("sk_test_") and len(token) > len("sk_test_")


def _key(request: Request) -> str | None:
    """Idempotency keys count for POST only, as with Stripe."""
    return (request.headers.get("idempotency-key") or None) if request.method == "POST" else None


def _form(request: Request) -> dict[str, str]:
    return dict(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True))


def _addressed(request: Request, form: dict[str, str]) -> str:
    """The intent a request is about, if it names one."""
    segments = request.segments()
    return (
        segments[2]
        if segments[:2] == ["v1", "payment_intents"] and len(segments) > 2
        else form.get("payment_intent", "")
    )


def _fingerprint(request: Request) -> str:
    """What must be the same when a key comes again: method, path and parameters, in any order."""
    pairs = sorted(parse_qsl(request.body.decode(errors="replace"), keep_blank_values=True))
    return hashlib.sha256(json.dumps([request.method, request.path, pairs]).encode()).hexdigest()


if __name__ == "__main__":
    main("gateway", Gateway)
