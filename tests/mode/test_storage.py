"""The mode's one row: ticks, people and their races, on PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection

from orders.models import Order
from payments import dbtime, duty, mode, reporter
from payments.controller import WEB, WORKER
from payments.models import BreakerReport, ModeChange, ModeState, StaffAction
from tests.neighbours import REFUSE
from tests.world import Shopper, World

pytestmark = pytest.mark.django_db(transaction=True)


def nothing_waits(before: datetime | None = None) -> int:
    return 0


def five_wait(before: datetime | None = None) -> int:
    return 5


def process(name: str, kind: str, *, failing: float | None = None, healthy: float | None = None) -> None:
    now = dbtime.read()

    def ago(seconds: float | None) -> datetime | None:
        return None if seconds is None else now - timedelta(seconds=seconds)

    BreakerReport.objects.update_or_create(
        process=name,
        defaults={
            "kind": kind,
            "state": "OPEN" if failing else "CLOSED",
            "since": now,
            "asked_at": now,
            "failing_since": ago(failing),
            "healthy_since": ago(healthy),
            "at": now,
        },
    )


def lines() -> list[tuple[str, str, str]]:
    return list(ModeChange.objects.order_by("id").values_list("actor", "old_effective", "new_effective"))


def test_an_outage_from_entry_to_the_empty_backlog_leaves_three_lines_by_the_breaker() -> None:
    process("web 1", WEB, failing=61)
    assert mode.tick(five_wait).effective == "DEGRADED"
    assert mode.current().actor == "breaker"
    assert "1 of 1 web processes" in mode.current().reason
    process("worker 1", WORKER, healthy=16)
    assert mode.tick(five_wait).effective == "RECOVERING"
    process("web 1", WEB)
    assert mode.tick(five_wait).effective == "RECOVERING"
    assert mode.tick(nothing_waits).effective == "NORMAL"
    assert lines() == [
        ("breaker", "NORMAL", "DEGRADED"),
        ("breaker", "DEGRADED", "RECOVERING"),
        ("breaker", "RECOVERING", "NORMAL"),
    ]


def test_the_word_of_a_dead_process_does_not_count_and_is_forgotten_in_time() -> None:
    process("web 1", WEB, failing=61)
    with dbtime.shifted(timedelta(seconds=16)):
        assert mode.tick(nothing_waits).effective == "NORMAL"
    assert BreakerReport.objects.count() == 1
    with dbtime.shifted(timedelta(seconds=700)):
        mode.tick(nothing_waits)
    assert not BreakerReport.objects.exists()


def test_two_beats_and_a_person_in_the_same_second_end_in_one_truth_and_one_line_each() -> None:
    for _ in range(10):
        ModeState.objects.update(setting="auto", automatic="NORMAL", entered_at=None, until=None)
        seen = ModeChange.objects.count()
        process("web 1", WEB, failing=61)
        barrier = threading.Barrier(3)

        def beat(barrier: threading.Barrier = barrier) -> None:
            barrier.wait(5)
            mode.tick(nothing_waits)

        def person(barrier: threading.Barrier = barrier) -> None:
            barrier.wait(5)
            mode.change("off", actor="duty", reason="it is the breaker that is wrong")

        together(beat, beat, person)
        now = mode.current()
        assert (now.setting, now.effective, now.automatic) == ("off", "NORMAL", "DEGRADED")
        actors = sorted(
            ModeChange.objects.values_list("actor", flat=True)[: ModeChange.objects.count() - seen]
        )
        assert actors == ["breaker", "duty"]


def together(*jobs: Callable[[], None]) -> None:
    def run(job: Callable[[], None]) -> None:
        try:
            job()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(jobs)) as pool:
        list(pool.map(run, jobs))


def test_manual_beats_automatic_and_the_record_says_so() -> None:
    mode.change("off", actor="duty", reason="false alarm")
    process("web 1", WEB, failing=61)
    now = mode.tick(nothing_waits)
    assert (now.effective, now.automatic, now.overruled, now.actor) == ("NORMAL", "DEGRADED", True, "duty")
    newest = ModeChange.objects.first()
    assert newest is not None
    assert (newest.actor, newest.old_effective, newest.new_effective) == ("breaker", "NORMAL", "NORMAL")
    assert "would be DEGRADED, the manual setting off stands" in newest.reason
    assert mode.change("auto", actor="duty", reason="").effective == "DEGRADED"


def test_a_timed_setting_ends_by_itself_and_is_put_on_record_once() -> None:
    mode.change("on", actor="duty", reason="maintenance", for_seconds=60)
    assert mode.current().degraded
    with dbtime.shifted(timedelta(seconds=61)):
        now = mode.current()
        assert (now.setting, now.effective, now.actor) == ("auto", "NORMAL", "clock")
        mode.tick(nothing_waits)
        mode.tick(nothing_waits)
        assert mode.current().setting == "auto"
    assert lines() == [("duty", "NORMAL", "DEGRADED"), ("clock", "DEGRADED", "NORMAL")]


def test_an_old_form_changes_nothing_whoever_came_in_between() -> None:
    seen = mode.current().version
    process("web 1", WEB, failing=61)
    mode.tick(nothing_waits)
    with pytest.raises(mode.StaleModeError, match="breaker"):
        mode.change("off", actor="duty", reason="old page", expected_version=seen)
    with pytest.raises(mode.StaleModeError):
        mode.pause_replay(paused=True, actor="duty", reason="old page", expected_version=seen)
    assert mode.current().effective == "DEGRADED"


def test_a_pause_needs_a_reason_and_says_who_held_the_replay() -> None:
    with pytest.raises(duty.MissingReasonError):
        mode.pause_replay(paused=True, actor="duty", reason="  ")
    assert not mode.current().replay_paused
    assert mode.pause_replay(paused=True, actor="duty", reason="the gateway asked us to").held
    assert not mode.pause_replay(paused=False, actor="duty", reason="go on").replay_paused
    assert list(StaffAction.objects.values_list("action", "actor", "after")) == [
        ("replay.resume", "duty", "running"),
        ("replay.pause", "duty", "paused"),
    ]


def test_the_record_cannot_be_changed_even_with_sql() -> None:
    mode.change("on", actor="duty", reason="maintenance")
    mode.pause_replay(paused=True, actor="duty", reason="maintenance")
    for table in ("payments_modechange", "payments_staffaction"):
        for statement in (f"UPDATE {table} SET reason = 'other'", f"DELETE FROM {table}"):
            with pytest.raises(DatabaseError, match="history is not changed"), connection.cursor() as cursor:
                cursor.execute(statement)


_GRANTS = """
CREATE ROLE holdfast_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO holdfast_app;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO holdfast_app;
"""
"""As docs/how-to/deploy.md has them."""


def test_a_role_that_owns_no_table_runs_the_shop_and_cannot_empty_its_records(
    world: World, shopper: Shopper
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_GRANTS + "SET ROLE holdfast_app")
        try:
            world.fault(world.gateway, REFUSE)
            mode.change("on", actor="duty", reason="maintenance")
            shopper.buy()
            world.heal()
            mode.change("off", actor="duty", reason="all is well")
            world.work()
            assert Order.objects.get().status == "PAID"
            for table in ("orders_orderevent", "payments_modechange", "payments_staffaction"):
                with pytest.raises(DatabaseError, match="permission denied"):
                    cursor.execute(f"TRUNCATE {table}")
        finally:
            cursor.execute("RESET ROLE; DROP OWNED BY holdfast_app; DROP ROLE holdfast_app")


def test_a_process_reports_its_own_breaker(world: Any) -> None:
    """The reporter's one step, as its thread takes it."""
    from payments.clients import inline_gateway

    web = reporter.Reporter(WEB)
    web.report_once()
    assert BreakerReport.objects.get().state == "CLOSED"
    inline_gateway().chain.breaker.force_open()
    web.report_once()
    row = BreakerReport.objects.get()
    assert (row.kind, row.state, row.asked_at) == ("web", "FORCED_OPEN", None)
    reporter.Reporter(WORKER).report_once()  # has never called the gateway: nothing to tell
    assert BreakerReport.objects.count() == 1
