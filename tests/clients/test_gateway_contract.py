"""What the gateway's client promises, tried against the sandbox process and against the gateway in memory.

`localstripe`, a fake of the same wire format that others wrote, goes through the tests of what it supports.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import pytest

from payments.gateway import (
    ActionRequired,
    AlreadyCaptured,
    Cancelled,
    Charge,
    Declined,
    Gateway,
    NotFound,
    NotSent,
    Refunded,
    RefundRefused,
    Refused,
    Succeeded,
    Unknown,
)
from tests.clients.neighbours import (
    API_KEY,
    Process,
    chain,
    failures,
    localstripe_running,
    running,
    soon,
)
from tests.fakes import FakeStripe

_numbers = count(1)
EVERYWHERE = ["memory", "process", "localstripe"]
everywhere = pytest.mark.parametrize("books", EVERYWHERE, indirect=True)


class InMemory:
    """The books of the gateway in memory."""

    def __init__(self) -> None:
        self.http: Any = FakeStripe()

    def unrefunded(self, reference: str) -> list[tuple[int, str]]:
        return [(taken.amount - taken.refunded, taken.currency) for taken in self.http.unrefunded(reference)]

    def person_decides(self, intent: str, passes: bool) -> None:
        self.http.person_decides(intent, passes)


class InAProcess:
    """The books of the sandbox's gateway."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.http: Any = process.session(Authorization=f"Bearer {API_KEY}")

    def unrefunded(self, reference: str) -> list[tuple[int, str]]:
        return [
            (charge["amount"] - charge["refunded"], charge["currency"])
            for charge in self._process.ledger()["charges"]
            if charge["reference"] == reference and charge["refunded"] < charge["amount"]
        ]

    def person_decides(self, intent: str, passes: bool) -> None:
        # http.client follows no redirect: the bank sends the shopper back to a shop that is not there.
        bank = HTTPConnection(urlsplit(self._process.url).netloc, timeout=5)
        bank.request("POST", f"/_sandbox/authenticate/{intent}", f"result={'pass' if passes else 'fail'}")
        assert bank.getresponse().status == 303
        bank.close()


class InLocalstripe:
    """The books of a fake that others wrote."""

    def __init__(self, process: Process) -> None:
        self.http: Any = process.session(Authorization="Bearer sk_test_12345")

    def unrefunded(self, reference: str) -> list[tuple[int, str]]:
        answer = self.http.request("GET", "/v1/payment_intents", deadline=soon(), query={"limit": "100"})
        intents = answer.body["data"]
        return [
            (charge["amount"] - charge["amount_refunded"], charge["currency"])
            for intent in intents
            for charge in intent["charges"]["data"]
            if intent["metadata"]["order_reference"] == reference
            and charge["amount_refunded"] < charge["amount"]
        ]


@pytest.fixture(scope="module")
def localstripe() -> Iterator[Process]:
    with localstripe_running() as started:
        yield started


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with running("gateway") as started:
        yield started


@pytest.fixture(params=["memory", "process"])
def books(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return InMemory()
    kind = InAProcess if request.param == "process" else InLocalstripe
    return kind(request.getfixturevalue(request.param))


@pytest.fixture
def gateway(books: Any) -> Gateway:
    return Gateway(books.http, chain())


def new_charge(**changes: Any) -> Charge:
    number = next(_numbers)
    made = Charge(f"order-{number}", 1999, "EUR", "pm_card_visa", f"key-{number}")
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("currency", "minor", "sent"),
    [
        ("EUR", 1999, 1999),
        ("JPY", 3200, 3200),
        ("KWD", 6590, 6590),
        ("ISK", 2500, 250_000),
        ("HUF", 800_00, 80_000),
    ],
)
@everywhere
def test_a_charge_takes_the_shown_amount_in_the_currencys_own_units(books, gateway, currency, minor, sent):
    charge = new_charge(amount_minor=minor, currency=currency)
    assert isinstance(gateway.charge(charge, soon()), Succeeded)
    assert books.unrefunded(charge.reference) == [(sent, currency.lower())]


def test_the_same_charge_again_is_the_same_payment(books, gateway):
    charge = new_charge()
    assert gateway.charge(charge, soon()) == gateway.charge(charge, soon())
    assert len(books.unrefunded(charge.reference)) == 1


def test_eight_equal_charges_at_once_take_the_money_once_and_nobody_is_told_otherwise(books, gateway):
    charge = new_charge()
    outcomes: list[Any] = []
    together = threading.Barrier(8)

    def pay() -> None:
        together.wait(timeout=5)
        outcomes.append(gateway.charge(charge, soon()))

    threads = [threading.Thread(target=pay) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=5)
    assert len(books.unrefunded(charge.reference)) == 1
    assert len({outcome.intent for outcome in outcomes if isinstance(outcome, Succeeded)}) == 1
    others = [outcome for outcome in outcomes if not isinstance(outcome, Succeeded)]
    assert all(outcome == Unknown("conflict") for outcome in others)


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("pm_card_chargeDeclined", "generic_decline"),
        ("pm_card_visa_chargeDeclinedInsufficientFunds", "insufficient_funds"),
    ],
)
def test_a_decline_says_which_and_takes_nothing_and_stays_a_decline(books, gateway, method, code):
    charge = new_charge(method=method)
    first, again = gateway.charge(charge, soon()), gateway.charge(charge, soon())
    assert isinstance(first, Declined)
    assert (first.code, first) == (code, again)
    found = gateway.look_up(charge.reference, first.intent, charge, soon())
    assert found == first
    assert books.unrefunded(charge.reference) == []
    assert failures(gateway.chain) == 0


def test_the_shopper_passes_the_banks_check_and_the_payment_is_found_paid(books, gateway):
    charge = new_charge(method="pm_card_authenticationRequired", return_url="https://shop.example/back")
    asked = gateway.charge(charge, soon())
    assert isinstance(asked, ActionRequired)
    assert asked.url is not None
    assert gateway.look_up(None, asked.intent, charge, soon()) == asked
    books.person_decides(asked.intent, passes=True)
    assert gateway.look_up(None, asked.intent, charge, soon()) == Succeeded(asked.intent)
    assert len(books.unrefunded(charge.reference)) == 1


def test_the_shopper_fails_the_banks_check_and_the_payment_is_found_declined(books, gateway):
    charge = new_charge(method="pm_card_authenticationRequired", return_url="https://shop.example/back")
    asked = gateway.charge(charge, soon())
    books.person_decides(asked.intent, passes=False)
    assert isinstance(gateway.look_up(charge.reference, None, charge, soon()), Declined)


@everywhere
def test_a_payment_is_found_by_its_id(gateway):
    charge = new_charge()
    paid = gateway.charge(charge, soon())
    assert gateway.look_up(charge.reference, paid.intent, charge, soon()) == paid


def test_a_payment_is_found_by_its_order_reference(gateway):
    charge = new_charge()
    paid = gateway.charge(charge, soon())
    assert gateway.look_up(charge.reference, None, charge, soon()) == paid


def test_what_was_never_asked_for_is_not_found(gateway):
    charge = new_charge()
    assert gateway.look_up(charge.reference, None, charge, soon()) == NotFound()


@everywhere
def test_an_id_nobody_gave_is_not_found(gateway):
    assert gateway.look_up(None, "pi_never", new_charge(), soon()) == NotFound()


@pytest.mark.parametrize(
    "changes", [{"amount_minor": 2000}, {"currency": "USD"}, {"reference": "order-other"}]
)
@everywhere
def test_money_taken_for_something_else_is_no_success(gateway, changes):
    charge = new_charge()
    paid = gateway.charge(charge, soon())
    found = gateway.look_up(None, paid.intent, replace(charge, **changes), soon())
    # Under another reference it is somebody else's: its id is not passed on.
    assert found == Unknown("mismatch", None if "reference" in changes else paid.intent)


def test_two_payments_for_one_order_are_never_called_a_success(gateway):
    charge = new_charge()
    gateway.charge(charge, soon())
    gateway.charge(replace(charge, idempotency_key=charge.idempotency_key + "-forgotten"), soon())
    found = gateway.look_up(charge.reference, None, charge, soon())
    assert isinstance(found, Unknown)
    assert found.reason == "several_charges"


def test_another_amount_under_the_same_key_is_unknown_and_takes_nothing_more(books, gateway):
    charge = new_charge()
    gateway.charge(charge, soon())
    assert gateway.charge(replace(charge, amount_minor=5), soon()) == Unknown("idempotency_error")
    assert books.unrefunded(charge.reference) == [(1999, "eur")]


def test_a_request_the_gateway_finds_wrong_is_refused_with_its_code(gateway):
    assert gateway.charge(new_charge(method="pm_card_none"), soon()) == Refused("resource_missing")
    assert gateway.charge(new_charge(amount_minor=100_000_000), soon()) == Refused("amount_too_large")
    assert failures(gateway.chain) == 0


@everywhere
def test_an_amount_the_gateway_cannot_take_is_refused_without_asking(books, gateway):
    charge = new_charge(amount_minor=6591, currency="KWD")
    assert gateway.charge(charge, soon()) == Refused("amount_not_chargeable")
    assert books.unrefunded(charge.reference) == []


def test_an_intent_that_took_no_money_is_cancelled_and_stays_so(gateway):
    charge = new_charge(method="pm_card_authenticationRequired", return_url="https://shop.example/back")
    asked = gateway.charge(charge, soon())
    key = f"void-{charge.idempotency_key}"
    assert gateway.cancel(asked.intent, key, soon()) == Cancelled(asked.intent)
    assert gateway.cancel(asked.intent, key, soon()) == Cancelled(asked.intent)
    assert gateway.cancel(asked.intent, key + "-other", soon()) == Cancelled(asked.intent)
    assert gateway.look_up(None, asked.intent, charge, soon()) == Declined("canceled", asked.intent)


@everywhere
def test_cancelling_too_late_says_how_much_has_to_go_back(gateway):
    charge = new_charge(amount_minor=2500, currency="ISK")
    paid = gateway.charge(charge, soon())
    cancelled = gateway.cancel(paid.intent, f"void-{charge.idempotency_key}", soon())
    assert cancelled == AlreadyCaptured(paid.intent, 2500, "ISK")


def test_cancelling_what_does_not_exist_is_unknown(gateway):
    assert gateway.cancel("pi_never", f"void-{next(_numbers)}", soon()) == Unknown(
        "resource_missing", "pi_never"
    )


def test_a_refund_gives_all_back_once_however_often_it_is_asked_for(books, gateway):
    charge = new_charge(amount_minor=2500, currency="ISK")
    paid = gateway.charge(charge, soon())
    key = f"refund-{charge.idempotency_key}"
    first = gateway.refund(paid.intent, 2500, key, soon(), currency="ISK")
    assert isinstance(first, Refunded)
    assert first.refund
    assert gateway.refund(paid.intent, 2500, key, soon(), currency="ISK") == first
    assert gateway.refund(paid.intent, 2500, key + "-other", soon(), currency="ISK") == Refunded("")
    assert books.unrefunded(charge.reference) == []


@everywhere
def test_a_refund_gives_all_back(books, gateway):
    charge = new_charge()
    paid = gateway.charge(charge, soon())
    key = f"refund-{charge.idempotency_key}"
    assert isinstance(gateway.refund(paid.intent, 1999, key, soon(), currency="EUR"), Refunded)
    assert books.unrefunded(charge.reference) == []


def test_a_refund_of_more_than_was_taken_is_refused(books, gateway):
    charge = new_charge()
    paid = gateway.charge(charge, soon())
    refund = gateway.refund(paid.intent, 2000, f"refund-{charge.idempotency_key}", soon(), currency="EUR")
    assert isinstance(refund, RefundRefused)
    assert books.unrefunded(charge.reference) == [(1999, "eur")]


def test_a_refund_of_an_unknown_payment_is_refused(gateway):
    refund = gateway.refund("pi_never", 5, f"refund-{next(_numbers)}", soon(), currency="EUR")
    assert refund == RefundRefused("resource_missing")


@everywhere
def test_the_gateway_answers_a_ping(gateway):
    assert gateway.ping(soon()) is True


def test_with_no_time_left_nothing_is_sent(books, gateway):
    charge = new_charge()
    outcome = gateway.charge(charge, soon(0))
    assert isinstance(outcome, NotSent)
    assert outcome.reason == "out_of_time"
    assert books.unrefunded(charge.reference) == []


def test_an_open_breaker_defers_at_once_and_says_when_to_come_back(books, gateway):
    gateway.chain.breaker.force_open()
    charge = new_charge()
    outcome = gateway.charge(charge, soon())
    assert isinstance(outcome, NotSent)
    assert outcome.reason == "breaker_open"
    assert gateway.ping(soon()) is False
    assert books.unrefunded(charge.reference) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"amount_minor": 0},
        {"amount_minor": -1},
        {"amount_minor": 1.0},
        {"amount_minor": True},
        {"currency": "eur"},
        {"reference": "it's"},
        {"reference": ""},
        {"method": "pm card"},
        {"idempotency_key": ""},
        {"idempotency_key": "a\nb"},
        {"idempotency_key": "x" * 256},
    ],
)
def test_a_charge_that_makes_no_sense_cannot_be_made(changes):
    with pytest.raises(ValueError, match=r"must|unusable"):
        new_charge(**changes)
