"""Deliveries of the gateway, received by a plain HTTP server."""

import hashlib
import hmac
import json
import queue
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.control import Control
from sandbox.gateway import Gateway
from sandbox.http import Connection, Request, Response, Server
from tests.sandbox.raw import CHARGE, Raw

SECRET = "whsec_test"


class Receiver:
    def __init__(self) -> None:
        self.seen: queue.Queue[tuple[dict[str, Any], str, bytes]] = queue.Queue()
        self.statuses: list[int] = []
        self.server = Server(self._serve, "127.0.0.1", 0)

    def _serve(self, request: Request, connection: Connection) -> bool:
        self.seen.put((request.json(), request.headers["stripe-signature"], request.body))
        status = self.statuses.pop(0) if self.statuses else 200
        return connection.send(Response(status).head(keep_alive=True))

    def next(self) -> dict[str, Any]:
        return self.seen.get(timeout=5)[0]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.stop()


@pytest.fixture
def gateway(receiver: Receiver) -> Iterator[Gateway]:
    with Gateway(webhook_url=f"{receiver.server.url}/hook", webhook_secret=SECRET) as running:
        yield running


def charge(gateway: Gateway, method: str = "pm_card_visa") -> Any:
    with Raw(gateway.url) as client:
        return client.post("/v1/payment_intents", CHARGE | {"payment_method": method}).json()


def test_an_event_is_signed_over_time_and_body(gateway: Gateway, receiver: Receiver) -> None:
    intent = charge(gateway)
    event, signature, body = receiver.seen.get(timeout=5)
    parts = dict(part.split("=") for part in signature.split(","))
    signed = f"{parts['t']}.".encode() + body
    assert parts["v1"] == hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert (event["type"], event["data"]["object"]) == ("payment_intent.succeeded", intent)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("pm_card_chargeDeclined", "payment_intent.payment_failed"),
        ("pm_card_authenticationRequired", "payment_intent.requires_action"),
    ],
)
def test_each_outcome_has_its_event(gateway: Gateway, receiver: Receiver, method: str, kind: str) -> None:
    charge(gateway, method)
    assert receiver.next()["type"] == kind


def test_a_refund_is_told_with_its_intent(gateway: Gateway, receiver: Receiver) -> None:
    intent = charge(gateway)["id"]
    receiver.next()
    with Raw(gateway.url) as client:
        client.post("/v1/refunds", {"payment_intent": intent})
    event = receiver.next()
    assert (event["type"], event["data"]["object"]["payment_intent"]) == ("charge.refunded", intent)


def test_a_failed_delivery_is_tried_again(gateway: Gateway, receiver: Receiver) -> None:
    receiver.statuses = [500]
    charge(gateway)
    assert receiver.next()["id"] == receiver.next()["id"]


def test_events_come_twice_or_not_at_all_or_on_request(gateway: Gateway, receiver: Receiver) -> None:
    control = Control(gateway.control_url)
    control.call("PUT", "/_sandbox/webhooks", {"mode": "twice"})
    charge(gateway)
    assert receiver.next() == receiver.next()
    control.call("PUT", "/_sandbox/webhooks", {"mode": "off"})
    charge(gateway)
    event = control.call("GET", "/_sandbox/webhooks")["events"][-1]["id"]
    assert receiver.seen.empty()
    control.call("POST", "/_sandbox/webhooks/resend", {"event": event})
    assert receiver.next()["id"] == event


def test_an_unknown_mode_is_refused(gateway: Gateway) -> None:
    with Raw(gateway.control_url) as client:
        client.send("PUT", "/_sandbox/webhooks", json.dumps({"mode": "maybe"}).encode())
        assert client.receive().status == 400
