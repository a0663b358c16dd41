"""Failures that others met in shops like this one, played against ours."""

from __future__ import annotations

import itertools
import smtplib
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pytest
from django.core.mail.backends.locmem import EmailBackend
from django.db import connection, connections, transaction

from orders import outbox, tasks
from orders.models import IdempotencyRecord, Order, OutboxMessage, Reservation, StockItem
from orders.operations import undo
from payments import dbtime
from payments.models import Payment
from tests.neighbours import REFUSE, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually
from tests.world import Shopper, World

CREATE = {"method": "POST", "path": "/v1/payment_intents"}
LIES: list[dict[str, Any]] = [
    {"lie": {"status": "pending"}},
    {"lie": {"status": "something_new"}},
    {"lie": {"status": None}},
    {"lie": {"amount": 1, "amount_received": 1}},
    {"lie": {"currency": "jpy"}},
    {"lie": {"metadata": {"order_reference": "HF-OTHER-ORDER"}}},
    {"replace_body": "[]"},
    {"replace_body": "null"},
    {"replace_body": "<html>We are down for maintenance</html>"},
    {"replace_body": ""},
    {"truncate_bytes": 60},
    {"pad_bytes": 10_000_000},
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: str(lie)[:40])
def test_an_answer_200_that_is_no_success_never_says_paid(
    world: World, shopper: Shopper, tune: Any, lie: dict[str, Any]
) -> None:
    """OP-12."""
    tune(checkout_budget_ms=3000)
    world.fault(world.gateway, {"match": CREATE, "effect": lie})
    page = shopper.buy()
    assert page.status == 200
    assert "Thank you" not in page.text
    assert "Please do not pay again" in page.text
    assert Order.objects.get().status == "AWAITING_PAYMENT"
    world.heal()
    world.work(4, later=2)
    assert "Thank you" in shopper.get(page.path).text
    assert len(world.charges) == 1


@pytest.mark.parametrize("late", [-0.4, -0.2, -0.05, 0.05, 0.2, 0.5])
def test_a_reserve_that_ends_around_the_answer_of_a_charge_ends_paid_or_refunded(
    world: World, shopper: Shopper, late: float
) -> None:
    """OP-18. The answer takes 0.4 s; the reserve ends `late` seconds after the answer."""
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    world.fault(world.gateway, {"effect": {"latency_ms": 400}})
    end = Order.objects.get().reserve_until
    start = end - timedelta(seconds=1.0 + 0.4 + late)
    with world.later((start - dbtime.read()).total_seconds()):
        worker = threading.Thread(target=lambda: (tasks.drain("payment"), connections.close_all()))
        worker.start()
        while worker.is_alive():
            undo.expire_overdue()
            worker.join(0.05)
    world.heal()
    with world.later(3700):
        undo.expire_overdue()
        world.work()
    order = Order.objects.get()
    kept = sum(1 for charge in world.charges if not charge["refunded"])
    assert (order.status, kept) in {("PAID", 1), ("CANCELLED", 0)}


def test_an_order_with_only_failed_attempts_does_expire(world: World, shopper: Shopper) -> None:
    """OP-18."""
    world.fault(world.gateway, {"effect": {"status": 500}})
    shopper.buy()
    world.work(4, later=3)
    with world.later(1000):
        assert undo.expire_overdue() == 1
    world.heal()
    for seconds in (1100, 1200, 1300, 1400, 1500):
        with world.later(seconds):
            world.work(1)
    assert Payment.objects.get().status == "VOIDED"


@pytest.fixture
def sessions_in() -> Iterator[Callable[[str], None]]:
    """Gives the database a zone of its own, for all sessions that begin from now on."""

    def put(zone: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {connection.settings_dict['NAME']} SET timezone TO '{zone}'")
        connection.close()
        connection.close_pool()

    yield put
    put("UTC")


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Pacific/Chatham"])
def test_a_reserve_lasts_its_seconds_over_every_change_of_clocks(
    world: World, sessions_in: Callable[[str], None], zone: str
) -> None:
    """OP-21: five minutes before each change of the year, in a database of that zone."""
    sessions_in(zone)
    changes = _changes(zone, 2026)
    assert len(changes) == 2
    for change in changes:
        with dbtime.stopped(change - timedelta(minutes=5)) as time:
            world.fault(world.gateway, REFUSE)
            Shopper().buy()
            order = Order.objects.latest("pk")
            assert order.reserve_until == time.now + timedelta(seconds=3600)
            time.advance(3599)
            assert undo.expire_overdue() == 0
            time.advance(2)
            assert undo.expire_overdue() == 1
            world.heal()
            world.work(1)


def _changes(zone: str, year: int) -> list[datetime]:
    """The moments of a year at which the zone's clocks change."""
    tz = ZoneInfo(zone)
    hours = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(minutes=15 * n) for n in range(366 * 96)]
    return [
        after
        for before, after in itertools.pairwise(hours)
        if before.astimezone(tz).utcoffset() != after.astimezone(tz).utcoffset()
    ]


def test_an_acceptance_that_fails_at_its_last_statement_leaves_nothing_at_all(
    world: World, shopper: Shopper
) -> None:
    """OP-25: a trigger refuses the last row."""
    shopper.put_in_basket()
    form = shopper.checkout_form()
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE unique_violation; END $$;"
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON orders_reservation DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    try:
        shopper.client.raise_request_exception = False
        shopper.submit(form)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER refuse ON orders_reservation; DROP FUNCTION refuse()")
    world.work()
    for model in (Order, OutboxMessage, Reservation, Payment, IdempotencyRecord):
        assert not model.objects.exists(), model.__name__
    assert StockItem.objects.get(sku="ROPE-12").reserved == 0
    assert world.gateway.report(0)["requests"] == []


def test_a_message_whose_commit_is_late_is_delivered_all_the_same(world: World, shopper: Shopper) -> None:
    """OP-25: the row gets the lowest number and time and becomes visible after later ones are done."""
    world.fault(world.gateway, REFUSE)
    Shopper().buy()
    late = OutboxMessage.objects.get(kind="charge")
    Shopper().buy()
    world.heal()
    opened, go_on = threading.Event(), threading.Event()

    def commit_late() -> None:
        with transaction.atomic():
            OutboxMessage.objects.filter(pk=late.pk).update(last_error="not yet committed")
            opened.set()
            assert go_on.wait(10)
        connections.close_all()

    thread = threading.Thread(target=commit_late)
    thread.start()
    assert opened.wait(10)
    with world.later(2):
        world.work(1)
    assert Order.objects.filter(status="PAID").count() == 1
    go_on.set()
    thread.join(10)
    with world.later(4):
        world.work(1)
    assert Order.objects.filter(status="PAID").count() == 2


@pytest.mark.parametrize("years", [-5, 5])
def test_rows_that_lie_in_the_past_or_are_due_in_the_future_are_delivered(
    world: World, shopper: Shopper, years: int
) -> None:
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    world.heal()
    moved = dbtime.read() + timedelta(days=365 * years)
    OutboxMessage.objects.filter(kind="charge").update(
        due_at=moved, created_at=moved, available_at=dbtime.read()
    )
    world.work()
    assert Order.objects.get().status == "PAID"


def test_a_message_that_is_delivered_twice_charges_and_mails_once(
    world: World, shopper: Shopper, mailoutbox: list[Any]
) -> None:
    """OP-26: two workers hold the same message, one of them too late."""
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    world.heal()
    with world.later(2):
        first = outbox.claim(outbox.PAYMENT, 1)[0]
    with world.later(40):
        second = outbox.claim(outbox.PAYMENT, 1)[0]
        assert first.message_id == second.message_id
        outbox.deliver(second)
        outbox.deliver(first)
        outbox.deliver(second)
        world.work()
    assert len(world.charges) == len(world.money_calls) == 1
    assert [mail.subject for mail in mailoutbox if "is paid" in mail.subject] != []
    assert len(mailoutbox) == 1
    assert Order.objects.get().events.filter(kind="pay").count() == 1


def test_waiting_orders_wait_in_the_database_and_no_task_is_sent_for_later() -> None:
    """OP-27: no beat entry and no call carries an eta or a countdown; a tick not taken up is dropped."""
    from pathlib import Path

    from config.celery import app

    for entry in app.conf.beat_schedule.values():
        assert "expires" in entry["options"]
        assert not {"eta", "countdown"} & set(entry["options"])
    root = Path(__file__).resolve().parents[2]
    for package in ("orders", "payments"):
        for file in (root / package).rglob("*.py"):
            assert not any(w in file.read_text() for w in (".apply_async(", ".delay(", "send_task(")), file


class _Mail(EmailBackend):
    """A mail server that fails in one way."""

    how = ""

    def open(self) -> bool:
        if self.how == "refuses":
            raise ConnectionRefusedError
        if self.how == "hangs":
            raise TimeoutError
        return True

    def send_messages(self, messages: Any) -> int:
        if self.how == "says no":
            raise smtplib.SMTPDataError(451, b"try later")
        sent = super().send_messages(messages)
        if self.how == "accepts and fails":
            raise smtplib.SMTPServerDisconnected
        return sent


@pytest.mark.parametrize("how", ["refuses", "hangs", "says no", "accepts and fails"])
def test_a_broken_mail_server_touches_no_order_and_no_mail_goes_out_twice(
    world: World, shopper: Shopper, mailoutbox: list[Any], how: str
) -> None:
    """OP-29."""
    page = shopper.buy()
    with patch("orders.operations.notify.get_connection", _Mail), patch.object(_Mail, "how", how):
        world.work()
    for _ in range(20):
        assert "Thank you" in shopper.get(page.path).text
    with world.later(200):
        world.work()
    assert len(mailoutbox) == 1
    assert len(world.charges) == 1
    waiting = OutboxMessage.objects.get(kind="notify")
    if how == "accepts and fails":  # nobody can know: a person decides, the shopper gets it once
        assert (waiting.status, len(world.dead_letters())) == ("DEAD", 1)
    else:
        assert waiting.status == "DONE"


@pytest.mark.process
@pytest.mark.timeout(180)
def test_an_order_that_kills_its_worker_is_put_aside_while_others_are_paid(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    """OP-28, with real children: after so many tries a dead letter; healed and redriven, it is paid."""
    killer = stack.home / "killer"
    stack.environment.update(
        KILLED_BY=str(killer),
        OUTBOX_MAX_ATTEMPTS="3",
        OUTBOX_LEASE_SECONDS="3",
        WORKER_BUDGET_MS="1500",
        CHECKOUT_BUDGET_MS="8000",
        INLINE_LEASE_SECONDS="10",
    )
    base = stack.web()
    neighbours.fault(neighbours.gateway, REFUSE)
    for _ in range(4):
        browser = Browser(base)
        browser.put_in_basket()
        assert browser.submit(browser.checkout_form()).status == 302
    killer.write_text(str(stack.sql("SELECT min(id) FROM orders_order")[0][0]))
    neighbours.heal()
    command = stack.command("money-worker").replace("config.celery", "tests.scenarios.killing")
    stack.start("money-worker", command)
    stack.start("beat", stack.command("beat"))
    eventually(lambda: stack.orders() == {"PAID": 3, "AWAITING_PAYMENT": 1}, 60, str(stack.orders()))
    dead = "SELECT last_error FROM orders_outboxmessage WHERE status = 'DEAD'"
    eventually(lambda: stack.sql(dead), 60, "no dead letter")
    assert "the worker died each time" in stack.sql(dead)[0][0]
    assert "charge" in stack.manage("checks", "list")
    killer.unlink()
    stack.manage("outbox", "redrive", "--all", "--reason", "the hook is gone")
    eventually(lambda: stack.orders() == {"PAID": 4}, 60, str(stack.orders()))
    assert stack.manage("checks", "list") == ""
    stack.audit()


def test_a_charge_whose_money_is_taken_at_the_last_moment_of_a_cancelled_order_goes_back(
    world: World, lost: Order
) -> None:
    undo.cancel(lost.pk, "shopper", "changed my mind")
    with world.later(2):
        world.work()
    assert [charge["refunded"] for charge in world.charges] == [2450]
