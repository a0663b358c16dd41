"""The gateway's client when the gateway lies, hangs or breaks off (scenario OP-12 and the outcome map)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from payments.gateway import AlreadyCaptured, Charge, Gateway, NotFound, NotSent, Succeeded, Unknown
from resilience.http import HttpResponse
from tests.clients.neighbours import API_KEY, Process, chain, failures, running, soon
from tests.fakes import FakeStripe

_numbers = count(1)
CREATE = {"method": "POST", "path": "/v1/payment_intents"}


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with running("gateway") as started:
        yield started


@pytest.fixture
def sandbox(process: Process) -> Iterator[Process]:
    process.heal()
    yield process
    process.heal()


def client(process: Process, **policy: Any) -> Gateway:
    return Gateway(process.session(Authorization=f"Bearer {API_KEY}"), chain(**policy))


def new_charge() -> Charge:
    number = next(_numbers)
    return Charge(f"trouble-{number}", 1999, "EUR", "pm_card_visa", f"trouble-key-{number}")


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"status": "pending"}, "bad_answer"),
        ({"status": "declined"}, "bad_answer"),
        ({"status": "held_for_review"}, "bad_answer"),
        ({"status": None}, "bad_answer"),
        ({"status": "SUCCEEDED"}, "bad_answer"),
        ({"status": True}, "bad_answer"),
        ({"status": ["succeeded"]}, "bad_answer"),
        ({"amount": "1999"}, "bad_answer"),
        ({"amount": 19.99}, "bad_answer"),
        ({"amount_received": -1999}, "bad_answer"),
        ({"currency": "euro"}, "bad_answer"),
        ({"id": "pi/../x"}, "bad_answer"),
        ({"id": None}, "bad_answer"),
        ({"amount": 19990, "amount_received": 19990}, "mismatch"),
        ({"amount_received": 1998}, "mismatch"),
        ({"currency": "usd"}, "mismatch"),
        ({"metadata": {"order_reference": "another"}}, "mismatch"),
        ({"metadata": {}}, "mismatch"),
        ({"metadata": [1]}, "mismatch"),
    ],
)
def test_a_200_that_is_no_exact_success_is_unknown_and_a_failure_for_the_breaker(sandbox, lie, reason):
    sandbox.faulty({"lie": lie}, **CREATE)
    gateway = client(sandbox)
    outcome = gateway.charge(new_charge(), soon())
    assert isinstance(outcome, Unknown)
    assert outcome.reason == reason
    assert failures(gateway.chain) == 1


@pytest.mark.parametrize("status", ["processing", "requires_capture", "requires_confirmation"])
def test_a_payment_on_its_way_is_unknown_but_no_failure_of_the_gateway(sandbox, status):
    sandbox.faulty({"lie": {"status": status}}, **CREATE)
    gateway = client(sandbox)
    outcome = gateway.charge(new_charge(), soon())
    assert isinstance(outcome, Unknown)
    assert outcome.reason == status
    assert outcome.intent is not None
    assert failures(gateway.chain) == 0


@pytest.mark.parametrize(
    "effect",
    [
        {"replace_body": "[]"},
        {"replace_body": "null"},
        {"replace_body": "true"},
        {"replace_body": "<html>We will be back soon</html>"},
        {"replace_body": ""},
        {"replace_body": '{"status": "succeeded", "status": "succeeded"}'},
        {"truncate_bytes": 40},
        {"pad_bytes": 10_000_000},
        {"trickle": "body", "interval_ms": 100},
        {"trickle": "headers", "interval_ms": 100},
    ],
    ids=lambda effect: next(iter(effect)) + str(next(iter(effect.values())))[:12],
)
def test_garbage_is_unknown_within_the_deadline_and_a_failure_for_the_breaker(sandbox, effect):
    sandbox.faulty(effect, **CREATE)
    gateway = client(sandbox, call_timeout=0.3)
    began = time.monotonic()
    outcome = gateway.charge(new_charge(), soon())
    assert time.monotonic() - began < 0.4
    assert isinstance(outcome, Unknown)
    assert failures(gateway.chain) == 1


@pytest.mark.parametrize(
    ("effect", "charges"),
    [
        ({"status": 500}, 0),
        ({"status": 503, "after": True}, 1),
        ({"status": 302, "headers": {"Location": "http://127.0.0.1:9/"}}, 0),
        ({"status": 404, "body": "<html>no such page</html>"}, 0),
        ({"status": 402, "body": {"message": "pay your bill"}}, 0),
        ({"hang": True}, 0),
        ({"hang": True, "after": True}, 1),
        ({"reset": "after"}, 1),
        ({"close": "after"}, 1),
        ({"reset": "before"}, 0),
        ({"close": "before"}, 0),
    ],
    ids=str,
)
def test_what_may_have_happened_is_unknown_and_the_same_key_finds_out(sandbox, effect, charges):
    sandbox.faulty(effect, **CREATE)
    gateway = client(sandbox)
    charge = new_charge()
    assert isinstance(gateway.charge(charge, soon(300)), Unknown)
    assert len(sandbox.ledger()["charges"]) == charges
    sandbox.control("DELETE", "faults")
    # The first request may still be leaving: then the key is in use for a moment.
    tries = (gateway.charge(charge, soon()) for _ in range(100))
    assert isinstance(next(found for found in tries if found != Unknown("conflict")), Succeeded)
    assert [row["idempotency_key"] for row in sandbox.ledger()["charges"]] == [charge.idempotency_key]


@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        ({"status": 429, "headers": {"Retry-After": "3"}}, "rate_limited"),
        ({"status": 401}, "credentials"),
        ({"status": 403, "body": "<html>forbidden</html>"}, "credentials"),
    ],
)
def test_a_gateway_that_turned_us_away_did_nothing(sandbox, effect, reason):
    sandbox.faulty(effect, **CREATE)
    outcome = client(sandbox).charge(new_charge(), soon())
    assert outcome == NotSent(reason, 3.0 if reason == "rate_limited" else None)


def test_a_wrong_key_is_named_and_never_shown(sandbox):
    gateway = Gateway(sandbox.session(Authorization="Bearer not-a-key-5501"), chain())
    outcome = gateway.charge(new_charge(), soon())
    assert outcome == NotSent("credentials")
    assert "5501" not in repr(outcome) + repr(gateway.__dict__)


def test_a_refused_connection_is_not_sent(sandbox):
    sandbox.faulty({"refuse": True})
    gateway = client(sandbox)
    assert gateway.charge(new_charge(), soon()) == NotSent("connect_failed")
    assert failures(gateway.chain) == 1


def test_an_error_kept_under_the_key_is_told_apart_when_it_comes_again(sandbox):
    sandbox.faulty({"status": 500, "stored": True, "body": {"error": {"type": "api_error"}}}, **CREATE)
    gateway, charge = client(sandbox), new_charge()
    assert gateway.charge(charge, soon()) == Unknown("server_error")
    sandbox.control("DELETE", "faults")
    assert gateway.charge(charge, soon()) == Unknown("stored_error")
    assert gateway.look_up(charge.reference, None, charge, soon()) == NotFound()


def test_the_answer_lost_after_booking_is_found_by_a_repeat_inside_the_same_call(sandbox):
    sandbox.faulty({"reset": "after"}, **CREATE, count=1)
    charge = new_charge()
    assert isinstance(client(sandbox, attempts=2).charge(charge, soon()), Succeeded)
    ledger = sandbox.ledger()
    assert len(ledger["charges"]) == 1
    assert [row["idempotency_key"] for row in ledger["requests"]] == [charge.idempotency_key] * 2


@pytest.mark.parametrize("first", ["lost", "lost_after", "error", "garbage"])
@pytest.mark.parametrize("second", ["refuse", "limit"])
def test_a_repeat_that_did_not_arrive_does_not_make_the_first_try_undone(first, second):
    fake = FakeStripe()
    fake.plan.extend([first, second])
    outcome = Gateway(fake, chain(attempts=2)).charge(new_charge(), soon())
    assert isinstance(outcome, Unknown)
    assert len(fake.requests) == 2


def test_two_tries_that_did_not_arrive_are_not_sent():
    fake = FakeStripe(always="refuse")
    assert Gateway(fake, chain(attempts=2)).charge(new_charge(), soon()) == NotSent("connect_failed")
    assert len(fake.requests) == 2


def test_a_breaker_that_opens_between_two_tries_leaves_the_outcome_unknown():
    fake = FakeStripe(always="lost_after")
    guard = chain(attempts=3)
    for _ in range(9):
        guard.breaker.acquire().failure()
    outcome = Gateway(fake, guard).charge(new_charge(), soon())
    assert outcome.reason == "breaker_open"
    assert isinstance(outcome, Unknown)
    assert len(fake.requests) == 1


@pytest.mark.parametrize("fault", ["lost", "lost_after", "error", "garbage"])
def test_a_cancellation_or_refund_without_an_answer_is_unknown_and_can_be_repeated(fault):
    fake = FakeStripe()
    gateway = Gateway(fake, chain())
    charge = new_charge()
    paid = gateway.charge(charge, soon())
    fake.plan.append(fault)
    assert isinstance(gateway.refund(paid.intent, 1999, "refund-1", soon(), currency="EUR"), Unknown)
    fake.plan.append(fault)
    assert isinstance(gateway.cancel(paid.intent, "void-1", soon()), Unknown)
    assert gateway.refund(paid.intent, 1999, "refund-1", soon(), currency="EUR").refund
    assert len(fake.refunds) == 1


def test_a_refusal_to_cancel_that_is_replayed_does_not_hide_what_happened_since():
    fake = FakeStripe()
    gateway = Gateway(fake, chain())
    paid = gateway.charge(new_charge(), soon())
    fake.intents[paid.intent]["status"] = "processing"
    assert gateway.cancel(paid.intent, "void-1", soon()) == Unknown("processing", paid.intent)
    fake.intents[paid.intent]["status"] = "succeeded"
    assert gateway.cancel(paid.intent, "void-1", soon()) == AlreadyCaptured(paid.intent, 1999, "EUR")


def test_an_answer_about_another_intent_is_not_believed(sandbox):
    gateway, charge = client(sandbox), new_charge()
    paid = gateway.charge(charge, soon())
    sandbox.faulty({"lie": {"id": "pi_other"}}, method="GET")
    assert gateway.look_up(None, paid.intent, charge, soon()) == Unknown("mismatch", paid.intent)


def test_money_that_went_back_is_no_success():
    fake = FakeStripe()
    gateway = Gateway(fake, chain())
    charge = new_charge()
    paid = gateway.charge(charge, soon())
    gateway.refund(paid.intent, 1999, "refund-1", soon(), currency="EUR")
    assert gateway.look_up(None, paid.intent, charge, soon()) == Unknown("refunded", paid.intent)


@pytest.mark.parametrize("pages", [{"data": None}, {"data": [{}]}, {"data": [], "has_more": True}, [], None])
def test_a_search_that_cannot_be_read_finds_nothing_out(pages):
    class Answers:
        def request(self, *_: Any, **__: Any) -> Any:
            return HttpResponse(200, pages, {})

    gateway = Gateway(Answers(), chain())
    assert gateway.look_up("order-1", None, new_charge(), soon()) == Unknown("bad_answer")
    assert failures(gateway.chain) == 1
