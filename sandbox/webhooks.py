"""Signed webhooks of the gateway, sent by one background thread; Stripe's `Stripe-Signature` scheme v1."""

import hashlib
import hmac
import json
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from typing import Any

from sandbox.intents import Wire, identifier

_TRIES = 4
_TIMEOUT_SECONDS = 3.0
_KEPT_EVENTS = 1000
_MODES = {"on": 1, "off": 0, "twice": 2}


def sign(payload: bytes, secret: str, timestamp: int) -> str:
    """The value of the `Stripe-Signature` header."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + payload, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


class Webhooks:
    """A queue of deliveries with time-outs and few retries. Thread-safe; without a URL nothing is sent."""

    def __init__(self, url: str | None, secret: str) -> None:
        self._url = url
        self._secret = secret
        self._mode = "on"
        self._delay_ms = 0
        self._events: dict[str, bytes] = {}
        self._delivered = 0
        self._failed = 0
        self._queue: deque[tuple[float, bytes, int]] = deque()  # due, payload, tries so far
        self._changed = threading.Condition()
        self._stopped = False
        if url:
            threading.Thread(target=self._work, name="sandbox-webhooks", daemon=True).start()

    def announce(self, kind: str, intent: Wire) -> None:
        """Make an event about `intent` as it is now, and send it as the mode says."""
        event = identifier("evt")
        shown = {key: value for key, value in intent.items() if not key.startswith("_")}
        body = {
            "id": event,
            "object": "event",
            "type": kind,
            "created": int(time.time()),
            "livemode": False,
            "data": {"object": _charge(shown) if kind.startswith("charge.") else shown},
        }
        payload = json.dumps(body, ensure_ascii=False).encode()
        with self._changed:
            self._events[event] = payload
            while len(self._events) > _KEPT_EVENTS:
                del self._events[next(iter(self._events))]
            self._enqueue(payload, _MODES[self._mode])

    def resend(self, event: str) -> None:
        """Once more, whatever the mode. Raises ValueError for an unknown event."""
        with self._changed:
            if event not in self._events:
                raise ValueError(f"no event {event}")
            self._enqueue(self._events[event], 1)

    def configure(self, wanted: dict[str, Any]) -> None:
        """`{"mode": "on"|"off"|"twice", "delay_ms": n}`, both optional. Raises ValueError."""
        mode, delay_ms = wanted.get("mode", self._mode), wanted.get("delay_ms", self._delay_ms)
        if mode not in _MODES or not isinstance(delay_ms, int) or not 0 <= delay_ms <= 600_000:
            raise ValueError("mode must be on, off or twice, and delay_ms from 0 to 600000")
        with self._changed:
            self._mode, self._delay_ms = mode, delay_ms

    def state(self) -> dict[str, Any]:
        with self._changed:
            return {
                "mode": self._mode,
                "delay_ms": self._delay_ms,
                "events": [
                    {"id": event, "type": json.loads(payload)["type"]}
                    for event, payload in self._events.items()
                ],
                "waiting": len(self._queue),
                "delivered": self._delivered,
                "failed": self._failed,
            }

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _enqueue(self, payload: bytes, times: int) -> None:
        if self._url:
            due = time.monotonic() + self._delay_ms / 1000
            self._queue.extend([(due, payload, 0)] * times)
            self._changed.notify_all()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            _, payload, tries = item
            fine = self._deliver(payload)
            with self._changed:
                self._delivered += fine
                if not fine and tries + 1 < _TRIES:
                    self._queue.append((time.monotonic() + 0.5 * 2**tries, payload, tries + 1))
                elif not fine:
                    self._failed += 1

    def _next(self) -> tuple[float, bytes, int] | None:
        """The delivery that is due first; None at the end."""
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                if self._queue and (first := min(self._queue))[0] <= now:
                    self._queue.remove(first)
                    return first
                self._changed.wait(min(self._queue)[0] - now if self._queue else None)
        return None

    def _deliver(self, payload: bytes) -> bool:
        signature = sign(payload, self._secret, int(time.time()))
        headers = {"Content-Type": "application/json", "Stripe-Signature": signature}
        request = urllib.request.Request(str(self._url), payload, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                return bool(200 <= response.status < 300)
        except (OSError, ValueError):  # urllib's errors are OSErrors
            return False


def _charge(intent: Wire) -> Wire:
    """The part of a charge object that receivers of charge.refunded look at."""
    return {
        "id": intent["latest_charge"],
        "object": "charge",
        "amount": intent["amount_received"],
        "currency": intent["currency"],
        "metadata": intent["metadata"],
        "payment_intent": intent["id"],
        "refunded": True,
    }
