"""The gateway's events: signed, repeated, out of order, too early, about strangers; and the way back from the bank."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from django.test import Client

from orders.models import Order, OutboxMessage
from payments.models import MoneyCheck, Payment, WebhookReceipt
from payments.queries import open_checks
from sandbox.webhooks import sign
from tests.world import DECLINED, NEEDS_ACTION, VISA, Shopper, World

SECRET = "whsec_suite"


def told(
    intent: str,
    reference: str | None,
    *,
    event: str = "evt_1",
    kind: str = "payment_intent.succeeded",
    secret: str = SECRET,
    **lies: Any,
) -> int:
    """What our endpoint answers to an event; it has no cookie and no form token."""
    subject = {"id": intent, "object": "payment_intent", "metadata": {"order_reference": reference}, **lies}
    body = json.dumps({"id": event, "type": kind, "data": {"object": subject}}).encode()
    client = Client(enforce_csrf_checks=True)
    answer = client.post(
        "/payments/webhook/",
        body,
        content_type="application/json",
        headers={"Stripe-Signature": sign(body, secret, int(time.time()))},
    )
    return answer.status_code


def test_an_event_settles_an_order_before_our_own_answer_does(world: World, lost: Order) -> None:
    """The charge message is still leased to the request, so the event's own message does it."""
    OutboxMessage.objects.filter(kind="charge").update(
        available_at=lost.created_at.replace(year=2100), lease_token="00000000-0000-4000-8000-000000000000"
    )
    assert told(world.charges[0]["intent"], lost.number) == 200
    world.work()
    lost.refresh_from_db()
    assert lost.status == "PAID"
    assert Payment.objects.get().intent == world.charges[0]["intent"]
    OutboxMessage.objects.filter(kind="charge").update(available_at=lost.created_at)
    world.work()
    assert OutboxMessage.objects.get(kind="charge").status == "CANCELLED"


def test_an_event_counts_once_however_often_it_comes(world: World, lost: Order) -> None:
    for _ in range(3):
        assert told(world.charges[0]["intent"], lost.number) == 200
    assert WebhookReceipt.objects.count() == 1
    assert OutboxMessage.objects.filter(kind="check").count() == 1
    world.work()
    assert OutboxMessage.objects.filter(kind="notify", status="DONE").count() == 1


def test_an_event_that_comes_again_when_its_message_is_long_forgotten_causes_nothing(
    world: World, lost: Order
) -> None:
    assert told(world.charges[0]["intent"], lost.number) == 200
    world.work()
    OutboxMessage.objects.filter(status="DONE").delete()
    assert told(world.charges[0]["intent"], lost.number) == 200
    assert not OutboxMessage.objects.filter(kind="check").exists()


def test_events_out_of_order_and_lies_in_the_body_change_nothing_that_is_true(
    world: World, lost: Order
) -> None:
    intent = world.charges[0]["intent"]
    told(intent, lost.number, event="evt_2", amount=1, amount_received=1, status="succeeded")
    told(intent, lost.number, event="evt_1", kind="payment_intent.payment_failed", status="canceled")
    told(intent, lost.number, event="evt_0", kind="payment_intent.created")
    world.work()
    lost.refresh_from_db()
    assert lost.status == "PAID"
    assert [charge["refunded"] for charge in world.charges] == [0]


def test_an_event_that_claims_money_for_an_unpaid_order_is_looked_up_and_not_believed(
    world: World, shopper: Shopper
) -> None:
    shopper.buy(method=DECLINED)
    order = Order.objects.get()
    told(str(Payment.objects.get().intent), order.number, status="succeeded", amount_received=2450)
    world.work()
    order.refresh_from_db()
    assert order.status == "DECLINED"


def test_money_for_an_order_that_does_not_exist_becomes_a_case_for_staff(world: World) -> None:
    assert told("pi_stranger", "HF-ZZZZZ-ZZZZZ") == 200
    assert told("pi_other", None, event="evt_2", kind="payment_intent.created") == 200
    assert [(check.subject, check.order_key) for check in open_checks()] == [("pi_stranger", "")]
    assert told("pi_stranger", "HF-ZZZZZ-ZZZZZ", event="evt_3") == 200
    assert MoneyCheck.objects.count() == 1


def test_what_is_not_signed_by_the_gateway_is_refused_and_leaves_nothing(world: World, lost: Order) -> None:
    assert told(world.charges[0]["intent"], lost.number, secret="whsec_wrong") == 400
    assert Client().get("/payments/webhook/").status_code == 405
    assert WebhookReceipt.objects.count() == 0


def _bank(world: World, answer: str) -> None:
    intent = Payment.objects.latest("number").intent
    data = f"result={answer}".encode()
    request = urllib.request.Request(
        f"{world.gateway.control_url}/_sandbox/authenticate/{intent}", data, method="POST"
    )
    opener = urllib.request.build_opener(_NoRedirect)
    with pytest.raises(urllib.error.HTTPError) as sent_back:
        opener.open(request, timeout=5)
    assert sent_back.value.code == 303
    assert "/back/" in sent_back.value.headers["Location"]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def test_a_shopper_who_confirms_at_the_bank_is_paid_without_any_event(world: World, shopper: Shopper) -> None:
    page = shopper.buy(method=NEEDS_ACTION)
    _bank(world, "pass")
    assert "One more step" in shopper.get(page.path).text
    shopper.get(f"{page.path}back/")
    world.work()
    assert "Thank you" in shopper.get(page.path).text
    assert len(world.charges) == 1


def test_a_shopper_who_never_comes_back_is_paid_too(world: World, shopper: Shopper, tune: Any) -> None:
    tune(action_poll_seconds=5.0)
    page = shopper.buy(method=NEEDS_ACTION)
    with world.later(10):
        world.work(1)
    _bank(world, "pass")
    with world.later(20):
        world.work(1)
    assert "Thank you" in shopper.get(page.path).text


def test_a_shopper_who_refuses_at_the_bank_may_take_another_card(world: World, shopper: Shopper) -> None:
    page = shopper.buy(method=NEEDS_ACTION)
    _bank(world, "fail")
    shopper.get(f"{page.path}back/")
    world.work()
    assert "declined" in shopper.get(page.path).text
    assert "Thank you" in shopper.post(f"{page.path}pay/", {"method": VISA}).text
    assert len(world.charges) == 1


def test_a_shopper_at_the_bank_may_pay_with_another_card_and_the_first_takes_nothing_any_more(
    world: World, shopper: Shopper
) -> None:
    page = shopper.buy(method=NEEDS_ACTION)
    assert "Thank you" in shopper.post(f"{page.path}pay/", {"method": VISA}).text
    assert {intent["status"] for intent in world.gateway.report(0)["intents"]} == {"canceled", "succeeded"}
    world.work()
    assert len(world.charges) == 1


def test_a_shopper_who_has_confirmed_already_is_not_charged_again(world: World, shopper: Shopper) -> None:
    page = shopper.buy(method=NEEDS_ACTION)
    _bank(world, "pass")
    assert "do not pay again" in shopper.post(f"{page.path}pay/", {"method": VISA}).text
    world.work(later=20)
    assert "Thank you" in shopper.get(page.path).text
    assert len(world.charges) == 1
