"""The person on duty at a terminal: the same steps, the same record, JSON for machines."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from orders import outbox
from orders.models import OutboxMessage
from orders.tasks import drain
from payments import checks, ledger, mode
from payments.controller import WEB
from payments.models import ModeChange, MoneyCheck, Payment, StaffAction
from tests.mode.test_storage import process
from tests.neighbours import REFUSE
from tests.world import Shopper, World


def run(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def as_json(*words: str) -> Any:
    return json.loads(run(*words, "--json"))


def test_the_mode_is_shown_with_all_processes(world: World) -> None:
    process("web 1", WEB, failing=5)
    shown = as_json("mode")
    assert (shown["setting"], shown["effective"]) == ("auto", "NORMAL")
    assert [(row["process"], row["state"]) for row in shown["processes"]] == [("web 1", "OPEN")]


def test_a_switch_needs_a_reason_and_names_who(world: World) -> None:
    with pytest.raises(CommandError, match="reason"):
        run("mode", "on")
    assert as_json("mode", "on", "--reason", "maintenance", "--for", "60")["effective"] == "DEGRADED"
    assert ModeChange.objects.get().actor.startswith("cli:")


def test_the_replay_is_paused_and_resumed(world: World) -> None:
    with pytest.raises(CommandError, match="say why"):
        run("mode", "pause")
    assert "replay paused" in run("mode", "pause", "--reason", "they asked us to")
    assert not as_json("mode", "resume", "--reason", "go on")["replay_paused"]
    assert [deed.action for deed in StaffAction.objects.all()] == ["replay.resume", "replay.pause"]


def test_dead_letters_are_listed_tried_dry_redriven_and_discarded(world: World, shopper: Shopper) -> None:
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    world.heal()
    charge, mail = OutboxMessage.objects.order_by("kind")
    bury(charge, mail)
    assert {letter["id"] for letter in as_json("outbox", "list")} == {charge.pk, mail.pk}
    assert "1 would be redriven" in run("outbox", "redrive", str(mail.pk), "--dry-run")
    assert not StaffAction.objects.exists()
    with pytest.raises(CommandError, match="hangs on it"):
        run("outbox", "discard", str(charge.pk))
    assert as_json("outbox", "discard", str(mail.pk), "--reason", "told by telephone") == {
        "discarded": [mail.pk]
    }
    assert as_json("outbox", "redrive", "--all", "--rate", "5") == {"redriven": [charge.pk]}
    assert [deed.action for deed in StaffAction.objects.all()] == ["letter.redrive_many", "letter.discard"]
    assert mode.current().setting == "auto"
    world.work()
    assert len(world.charges) == 1


def bury(*messages: OutboxMessage) -> None:
    for message in messages:
        OutboxMessage.objects.filter(pk=message.pk).update(
            status="DEAD", attempts=10, last_error="gave up", finished_at=message.created_at
        )


def test_a_money_check_is_closed_with_what_was_found_and_that_is_on_record(world: World) -> None:
    checks.open_check("HF-1", "the gateway refuses the refund", order_key="HF-1")
    number = str(MoneyCheck.objects.get().pk)
    with pytest.raises(CommandError, match="note on what was found"):
        run("checks", "close", number)
    assert MoneyCheck.objects.get().closed_at is None
    assert run("checks", "close", number, "--reason", "returned by bank transfer") == "closed\n"
    with pytest.raises(CommandError, match="no open money check"):
        run("checks", "close", number, "--reason", "again")
    deed = StaffAction.objects.get()
    assert (deed.action, deed.subject, deed.reason) == ("check.close", "HF-1", "returned by bank transfer")
    assert deed.actor.startswith("cli:")


def test_what_is_charged_between_two_looks_of_an_audit_is_no_fault(
    world: World, shopper: Shopper, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[Any] = []
    looks = iter([lambda: before, ledger.read_ledger])

    def read() -> list[Any]:
        return next(looks)()

    monkeypatch.setattr("orders.management.commands.audit.read_ledger", read)
    shopper.buy()
    assert as_json("audit") == {"ok": True, "violations": []}
    assert next(looks, None) is None, "a second look was needed"


def test_a_fault_that_stays_is_told_by_an_audit(world: World, shopper: Shopper) -> None:
    shopper.buy()
    with world.unaudited():
        Payment.objects.update(intent="pi_other")
        with pytest.raises(SystemExit):
            run("audit")


@pytest.mark.parametrize("held", ["on", "paused"])
def test_charges_that_a_person_holds_back_are_neither_late_nor_forgotten(
    world: World, shopper: Shopper, held: str
) -> None:
    mode.change("on", actor="duty", reason="maintenance")
    shopper.buy()
    if held == "paused":
        mode.pause_replay(paused=True, actor="duty", reason="the gateway asked us to")
        mode.change("auto", actor="duty", reason="over")
    drain("mail")
    with world.later(600):
        assert outbox.stats(held=mode.current().held)["payment"].late_seconds == 0
        assert world.violations() == []
        mode.pause_replay(paused=False, actor="duty", reason="go on")
        mode.change("off", actor="duty", reason="go on")
        assert outbox.stats(held=mode.current().held)["payment"].late_seconds > 500
        assert [violation.invariant for violation in world.violations()] == ["I6"]
