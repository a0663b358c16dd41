"""Nothing leaves before or without the commit (OP-25); the same message twice changes nothing (OP-26)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core import mail
from django.db import connection, transaction

from orders import tasks
from orders.models import Order, OrderEvent, OutboxMessage, Reservation
from payments import mode
from payments import operations as payments
from tests.world import Shopper, World


@pytest.fixture
def on_insert_of_an_order(db: None) -> Iterator[Any]:
    """Installs a trigger body that PostgreSQL runs for each new order, at the commit if deferred."""

    def install(body: str, *, deferred: bool) -> None:
        when = "DEFERRABLE INITIALLY DEFERRED" if deferred else ""
        with connection.cursor() as cursor:
            cursor.execute(
                "CREATE OR REPLACE FUNCTION test_trouble() RETURNS trigger LANGUAGE plpgsql AS"
                f" $$ BEGIN {body}; RETURN NULL; END $$"
            )
            cursor.execute(
                f"CREATE CONSTRAINT TRIGGER test_trouble AFTER INSERT ON orders_reservation {when}"
                " FOR EACH ROW EXECUTE FUNCTION test_trouble()"
            )

    yield install
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION IF EXISTS test_trouble CASCADE")


@pytest.mark.parametrize("deferred", [False, True], ids=["last statement", "commit"])
def test_an_order_whose_acceptance_fails_at_the_very_end_leaves_nothing_behind(
    world: World, shopper: Shopper, on_insert_of_an_order: Any, deferred: bool
) -> None:
    on_insert_of_an_order(
        "RAISE EXCEPTION 'broken' USING ERRCODE = 'read_only_sql_transaction'", deferred=deferred
    )
    shopper.put_in_basket()
    page = shopper.submit(shopper.checkout_form())
    assert page.status == 503
    assert page.headers["Retry-After"]
    assert "nothing was ordered" in page.text
    for model in (Order, OrderEvent, OutboxMessage, Reservation):
        assert model.objects.count() == 0
    assert world.money_calls == []
    assert mail.outbox == []


def test_a_worker_never_sees_an_order_before_its_slow_commit(
    world: World, shopper: Shopper, on_insert_of_an_order: Any, caplog: pytest.LogCaptureFixture, tune: Any
) -> None:
    tune(checkout_budget_ms=20_000)
    on_insert_of_an_order("PERFORM pg_sleep(1.5)", deferred=True)
    mode.change("on", actor="duty", reason="so that the worker charges")
    shopper.put_in_basket()
    form = shopper.checkout_form()
    done = threading.Event()

    def work_on() -> None:
        try:
            while not done.wait(0.05):
                tasks.drain("payment")
                tasks.drain("mail")
        finally:
            connection.close()

    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(1) as pool:
        worker = pool.submit(work_on)
        page = shopper.submit(form)
        mode.change("auto", actor="duty", reason="over")
        done.set()
        worker.result(10)
    world.work()
    assert "Thank you" in shopper.get(page.path).text
    assert [r for r in caplog.records if "not found" in r.getMessage() or r.levelno >= logging.ERROR] == []
    assert len(world.charges) == 1


def test_the_money_call_waits_for_the_outermost_commit(world: World, shopper: Shopper) -> None:
    """Where somebody wraps requests in a transaction, the checkout refuses to call inside of it."""
    shopper.put_in_basket()
    form = shopper.checkout_form()
    with pytest.raises(RuntimeError), transaction.atomic():
        shopper.submit(form)
    assert world.money_calls == []
    assert Order.objects.count() == 0


def test_the_same_tick_delivered_many_times_at_once_charges_once_and_writes_once(
    world: World, shopper: Shopper
) -> None:
    mode.change("on", actor="duty", reason="maintenance")
    pages = [Shopper().buy() for _ in range(5)]
    mode.change("auto", actor="duty", reason="over")
    world.fault(world.gateway, {"effect": {"latency_ms": 300}})
    barrier = threading.Barrier(6)

    def tick(number: int) -> None:
        barrier.wait(10)
        try:
            tasks.drain("payment")
            tasks.drain("mail")
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(tick, range(6)))
    world.work()
    assert len(world.charges) == len(world.money_calls) == 5
    for page in pages:
        assert "Thank you" in shopper.get(page.path).text
    assert OrderEvent.objects.filter(kind="pay").count() == 5
    subjects = [message.subject for message in mail.outbox]
    assert len([subject for subject in subjects if subject.endswith("is paid")]) == 5


def test_a_database_that_turns_read_only_after_the_charge_leaves_the_shopper_the_order_s_page(
    world: World, shopper: Shopper, monkeypatch: pytest.MonkeyPatch
) -> None:
    shopper.put_in_basket()
    form = shopper.checkout_form()
    record = payments.record

    def turned(*args: Any, **kwargs: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")
        return record(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(payments, "record", turned)
        page = shopper.submit(form)
    assert (page.status, page.path.split("/")[1]) == (200, "orders")
    assert "Thank you" not in page.text
    with world.later(60):
        world.work()
    assert "Thank you" in shopper.get(page.path).text
    assert len(world.charges) == 1
