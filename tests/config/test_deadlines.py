"""The deadline reaches the database and travels through Celery's headers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from celery.contrib.testing.worker import start_worker
from celery.signals import worker_process_init
from django.db import DatabaseError, OperationalError, connection, transaction

from config.celery import app
from config.deadlines import DeadlineTask, deadline_in, headers_of, within
from orders.models import Order, StockItem
from resilience.deadline import HEADER, Deadline, current_deadline, own_deadline, use_deadline
from resilience.errors import OutOfTime
from resilience.testing import ManualClock
from tests.world import Shopper, World


def in_force() -> int:
    """Milliseconds PostgreSQL gives the next statement of this connection; 0 is no bound."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'")
        return int(cursor.fetchone()[0])


def test_every_statement_gets_what_is_left_of_the_deadline(transactional_db: None) -> None:
    clock = ManualClock()
    with within(Deadline.after_ms(60_000, clock=clock)):
        assert in_force() == 60_000
        clock.advance(20)
        assert in_force() == 60_000  # more than half is left: not worth another round trip
        clock.advance(20)
        assert in_force() == 20_000
        clock.advance(30)
        assert in_force() == 1000  # the own work's time is always there: an outcome must be written down
    assert in_force() == 0


def test_a_transaction_gets_its_own_bound_which_a_rollback_cannot_mix_up(transactional_db: None) -> None:
    clock = ManualClock()
    with within(Deadline.after_ms(60_000, clock=clock)):
        with transaction.atomic():
            assert in_force() == 60_000
            clock.advance(50)
            assert in_force() == 10_000
            transaction.set_rollback(True)
        with transaction.atomic():
            assert in_force() == 10_000
        assert in_force() == 10_000
    assert in_force() == 0


def test_the_bound_of_a_transaction_ends_with_it(transactional_db: None) -> None:
    with within(Deadline.after_ms(60_000)), transaction.atomic():
        assert 0 < in_force() <= 60_000
    assert in_force() == 0


def test_a_failed_savepoint_can_be_left_when_half_of_the_time_has_passed(transactional_db: None) -> None:
    clock = ManualClock()
    with within(Deadline.after_ms(60_000, clock=clock)), transaction.atomic():
        assert in_force() == 60_000
        with suppress(DatabaseError), transaction.atomic():
            fail_and(lambda: clock.advance(40))
        assert in_force() == 20_000


def fail_and(then: Callable[[], None]) -> None:
    try:
        connection.cursor().execute("SELECT 1/0")
    finally:
        then()


def test_a_broken_transaction_still_reports_its_own_error(transactional_db: None) -> None:
    def go_on_after_a_failure() -> None:
        with transaction.atomic():
            with suppress(DatabaseError):
                connection.cursor().execute("SELECT 1/0")
            in_force()

    with within(Deadline.after_ms(60_000)), pytest.raises(DatabaseError, match="transaction is aborted"):
        go_on_after_a_failure()


def test_a_statement_that_hangs_ends_with_the_deadline(transactional_db: None, tune: Any) -> None:
    tune(own_work_ms=50)
    started = time.monotonic()
    with within(Deadline.after_ms(100)), pytest.raises(OperationalError, match="statement timeout"):
        connection.cursor().execute("SELECT pg_sleep(20)")
    assert time.monotonic() - started < 5


def test_a_callers_deadline_ends_the_wait_for_a_lock_in_its_request(
    world: World, shopper: Shopper, tune: Any
) -> None:
    """Somebody else holds what the page needs: an honest 503 when the caller's time is over, not ours."""
    tune(own_work_ms=50)
    shopper.put_in_basket()
    with psycopg.connect(os.environ["DATABASE_URL"], dbname=connection.settings_dict["NAME"]) as other:
        other.execute("LOCK TABLE orders_cartline")
        started = time.monotonic()
        answer = shopper.client.get("/cart/", headers={HEADER: "150"})
        assert time.monotonic() - started < 5  # the own budget of the suite is 10 s
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        other.rollback()
    assert shopper.get("/cart/").status == 200


@pytest.mark.parametrize("path", ["/nothere/", "/orders/nobody-has-this/", "/health/live/x"])
def test_what_is_not_found_is_an_honest_503_too_while_its_page_cannot_ask_the_database(
    world: World, shopper: Shopper, tune: Any, path: str
) -> None:
    tune(own_work_ms=50)
    shopper.put_in_basket()
    shopper.client.raise_request_exception = False
    assert shopper.get(path).status == 404
    with psycopg.connect(os.environ["DATABASE_URL"], dbname=connection.settings_dict["NAME"]) as other:
        other.execute("LOCK TABLE payments_modestate, orders_cart, orders_cartline, django_session")
        answer = shopper.client.get(path, headers={HEADER: "150"})
        assert (answer.status_code, bool(answer.headers.get("Retry-After"))) == (503, True)
        other.rollback()
    assert shopper.get(path).status == 404


def test_a_healthy_checkout_is_paid_with_bounded_statements(world: World, shopper: Shopper) -> None:
    page = shopper.buy()
    assert "Your payment has arrived" in page.text
    assert Order.objects.get().status == "PAID"
    assert StockItem.objects.get(sku="ROPE-12").sold == 1


# Celery


@app.task(name="tests.tell_deadline")
def tell_deadline() -> int | None:
    current = current_deadline()
    TOLD.append(None if current is None else current.remaining_ms())
    return TOLD[-1]


TOLD: list[int | None] = []


def test_a_deadline_travels_to_a_worker_in_the_headers_of_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The worker is the tests' own process: what a process of a worker sets up for itself must not stay.
    monkeypatch.setattr(worker_process_init, "receivers", [])
    assert isinstance(tell_deadline, DeadlineTask)
    TOLD.clear()
    queue = "deadline-test"
    with start_worker(app, perform_ping_check=False, queues=[queue], pool="solo", shutdown_timeout=20):
        with use_deadline(Deadline.after_ms(30_000)):
            tell_deadline.apply_async(queue=queue)
        tell_deadline.apply_async(queue=queue)
        end = time.monotonic() + 20
        while len(TOLD) < 2:
            assert time.monotonic() < end, "the worker did not take the messages"
            time.sleep(0.02)
    assert TOLD[0] is not None
    assert 5_000 < TOLD[0] < 30_000
    assert TOLD[1] is None


def test_nothing_is_sent_when_the_time_is_over() -> None:
    with use_deadline(Deadline.after_ms(0)), pytest.raises(OutOfTime):
        tell_deadline.apply_async()


def test_time_in_the_queue_counts_and_a_wrong_clock_cannot_lengthen_what_is_left() -> None:
    headers = headers_of(Deadline.after_ms(5_000), wall_now=1000.0)

    def left(wall_now: float) -> int:
        deadline = deadline_in(headers, wall_now)
        assert deadline is not None
        return deadline.remaining_ms()

    assert 2_800 < left(1002.0) <= 3_000
    assert 4_800 < left(900.0) <= 5_000
    assert left(2000.0) == 0


@pytest.mark.parametrize("value", ["", "soon", "-1", "1e3", "9" * 30, None, "NaN"])
def test_garbage_in_the_headers_is_no_deadline(value: Any) -> None:
    good = headers_of(Deadline.after_ms(5_000), wall_now=0.0)
    assert deadline_in({**good, HEADER: value}, 0.0) is None
    wrong = deadline_in({**good, "x-holdfast-sent-at": value}, 0.0)
    assert wrong is None or wrong.remaining_ms() <= 5_000


def test_own_work_is_bounded_by_the_deadline_that_came_with_it() -> None:
    assert 4_900 < own_deadline(5_000).remaining_ms() <= 5_000
    with use_deadline(Deadline.after_ms(1_000)):
        assert own_deadline(5_000).remaining_ms() <= 1_000
        assert own_deadline(10).remaining_ms() <= 10
