"""The operations room: who may, what it asks, what an old form does (OP-35, OP-36)."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from orders.models import Order, OrderEvent, OutboxMessage, StockItem
from orders.ops import charts
from payments import checks, dbtime, mode
from payments.models import ModeChange, MoneyCheck, StaffAction
from tests.neighbours import REFUSE
from tests.world import Page, Shopper, World

STEP = {"reason": "the gateway asked us to", "confirm": "on"}


class Staff(Shopper):
    """Somebody with a log-in and perhaps the right."""

    def __init__(self, name: str, *, right: bool, staff: bool = True) -> None:
        super().__init__()
        user = User.objects.create_user(name, is_staff=staff)
        if right:
            user.user_permissions.set(
                Permission.objects.filter(content_type__app_label__in=["orders", "payments"])
            )
        self.client.force_login(user)

    def take(self, path: str, **typed: str) -> Page:
        """Opens a step's page and sends its form."""
        form = self.get(path).forms[path]
        return self.post(path, {**form, **STEP, **typed}, follow=False)


@pytest.fixture
def duty(world: World) -> Staff:
    return Staff("duty", right=True)


@pytest.fixture
def waiting(world: World, shopper: Shopper) -> Order:
    """An accepted order whose payment waits."""
    world.fault(world.gateway, REFUSE)
    shopper.buy()
    world.heal()
    return world.order()


@pytest.fixture
def dead(waiting: Order) -> OutboxMessage:
    """Its mail, dead."""
    OutboxMessage.objects.filter(kind="notify").update(
        status="DEAD", attempts=10, last_error="mail server: SMTPException", finished_at=waiting.created_at
    )
    return OutboxMessage.objects.get(kind="notify")


def test_the_shop_leads_those_to_the_room_who_may_enter_it(world: World, duty: Staff) -> None:
    colleague, guest = Staff("colleague", right=False), Shopper()
    link = 'href="/ops/"'
    assert [link in who.get("/").html for who in (duty, colleague, guest)] == [True, False, False]


def every_step(order: Order, letter: OutboxMessage) -> list[str]:
    return [
        "/ops/mode/",
        "/ops/replay/pause/",
        "/ops/replay/resume/",
        f"/ops/orders/{order.number}/cancel/",
        f"/ops/letters/{letter.pk}/redrive/",
        f"/ops/letters/{letter.pk}/discard/",
        "/ops/letters/redrive/",
    ]


def nothing_happened(order: Order, letter: OutboxMessage) -> None:
    now = mode.current()
    assert (now.setting, now.effective, now.replay_paused) == ("auto", "NORMAL", False)
    order.refresh_from_db()
    letter.refresh_from_db()
    assert (order.status, letter.status) == ("AWAITING_PAYMENT", "DEAD")
    assert not ModeChange.objects.exists()
    assert not StaffAction.objects.exists()


@pytest.mark.parametrize(
    ("right", "staff"), [(False, True), (True, False)], ids=["staff without the right", "right without staff"]
)
def test_who_lacks_the_right_sees_no_button_and_a_hand_made_post_is_403(
    waiting: Order, dead: OutboxMessage, right: bool, staff: bool
) -> None:
    nosy = Staff("nosy", right=right, staff=staff)
    for path in ["/ops/", "/ops/charts/", *every_step(waiting, dead)]:
        assert nosy.client.get(path).status_code == 403
    for path in every_step(waiting, dead):
        assert nosy.client.post(path, {**STEP, "setting": "on", "seen": "1"}).status_code == 403
    nothing_happened(waiting, dead)


def test_a_stranger_is_sent_to_the_log_in_and_changes_nothing(waiting: Order, dead: OutboxMessage) -> None:
    for path in ["/ops/", *every_step(waiting, dead)]:
        answer = Client().post(path, STEP) if path != "/ops/" else Client().get(path)
        assert answer.status_code == 302
        assert answer.headers["Location"].startswith("/account/login/?next=/ops/")
    nothing_happened(waiting, dead)


def test_looking_at_a_step_or_previewing_its_link_changes_nothing(
    waiting: Order, dead: OutboxMessage, duty: Staff
) -> None:
    for path in every_step(waiting, dead):
        assert duty.client.get(path, {**STEP, "setting": "on", "seen": "1"}).status_code == 200
        assert duty.client.head(path).status_code in {200, 405}
    assert duty.client.post("/ops/", STEP).status_code == 405
    nothing_happened(waiting, dead)


@pytest.mark.parametrize(
    ("typed", "said"),
    [({"reason": " "}, "Please say why"), ({"confirm": ""}, "Please confirm that you mean it")],
)
def test_each_step_wants_a_reason_and_a_confirmation(
    waiting: Order, dead: OutboxMessage, duty: Staff, typed: dict[str, str], said: str
) -> None:
    for path in every_step(waiting, dead):
        answer = duty.take(path, setting="on", **typed)
        assert answer.status == 422
        assert said in answer.text
    nothing_happened(waiting, dead)


def test_a_post_from_another_site_is_refused(waiting: Order, dead: OutboxMessage, duty: Staff) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="duty"))
    for path in every_step(waiting, dead):
        assert strict.post(path, {**STEP, "setting": "on"}).status_code == 403
    nothing_happened(waiting, dead)


def test_the_switch_works_is_shown_and_goes_on_record(duty: Staff) -> None:
    assert duty.take("/ops/mode/", setting="on", minutes="30").status == 302
    page = duty.get("/ops/")
    assert "DEGRADED" in page.text
    assert "by duty" in page.text
    line = ModeChange.objects.get()
    assert (line.actor, line.old_setting, line.new_setting, line.reason) == (
        "duty",
        "auto",
        "on",
        STEP["reason"],
    )
    assert line.until is not None
    assert "Payments are delayed" in Shopper().get("/").text


@pytest.mark.parametrize("minutes", ["0", "10081", "1.5", "1e3", "-1"])
def test_a_senseless_time_is_refused(duty: Staff, minutes: str) -> None:
    answer = duty.take("/ops/mode/", setting="on", minutes=minutes)
    assert answer.status == 422
    assert mode.current().setting == "auto"


def test_the_second_person_with_an_old_form_gets_a_conflict_and_the_first_ones_change_stays(
    duty: Staff,
) -> None:
    second = Staff("second", right=True)
    old = second.get("/ops/mode/").forms["/ops/mode/"]
    duty.take("/ops/mode/", setting="on")
    answer = second.post("/ops/mode/", {**old, **STEP, "reason": "only other words"}, follow=False)
    assert answer.status == 409, answer.text
    assert "changed this meanwhile" in answer.text
    assert (mode.current().setting, mode.current().actor) == ("on", "duty")
    assert ModeChange.objects.count() == 1


def test_the_admins_old_form_loses_against_the_automatic_switch(duty: Staff) -> None:
    from payments.controller import WEB
    from tests.mode.test_storage import nothing_waits, process

    mode.tick(nothing_waits)  # writes the row, if the last test has emptied the table
    address = "/admin/payments/modestate/1/change/"
    old = duty.get(address).forms[""]
    process("web 1", WEB, failing=61)
    assert mode.tick(nothing_waits).effective == "DEGRADED"
    page = duty.post(address, {**old, "setting": "off", "reason": "false alarm", "confirm": "on"})
    assert "changed meanwhile by breaker" in page.text
    assert mode.current().effective == "DEGRADED"


def test_the_replay_is_paused_and_resumed_and_no_try_is_used_up(
    world: World, waiting: Order, duty: Staff
) -> None:
    assert duty.take("/ops/replay/pause/").status == 302
    assert "The replay is paused by hand" in duty.get("/ops/").text
    with world.later(5):
        world.work()
    assert world.money_calls == []
    assert OutboxMessage.objects.get(kind="charge").attempts == 0
    duty.take("/ops/replay/resume/")
    with world.later(10):
        world.work()
    assert len(world.charges) == 1
    assert [deed.action for deed in StaffAction.objects.all()] == ["replay.resume", "replay.pause"]


def test_staff_cancel_an_order_once_and_an_old_page_cannot(world: World, waiting: Order, duty: Staff) -> None:
    path = f"/ops/orders/{waiting.number}/cancel/"
    old = duty.get(path).forms[path]
    assert duty.take(path, reason="the shopper called").status == 302
    waiting.refresh_from_db()
    assert waiting.status == "CANCELLED"
    assert StockItem.objects.get(sku="ROPE-12").reserved == 0
    event = OrderEvent.objects.get(kind="cancel")
    assert (event.actor, event.detail["reason"]) == ("duty", "the shopper called")
    deed = StaffAction.objects.get()
    assert (deed.before, deed.after, deed.subject) == ("AWAITING_PAYMENT", "CANCELLED", waiting.number)
    assert duty.post(path, {**old, **STEP}, follow=False).status == 409
    world.work()
    assert world.money_calls == []


def test_an_order_that_got_paid_while_the_form_stood_open_is_not_cancelled(
    world: World, waiting: Order, duty: Staff
) -> None:
    path = f"/ops/orders/{waiting.number}/cancel/"
    old = duty.get(path).forms[path]
    with world.later(5):
        world.work()
    answer = duty.post(path, {**old, **STEP}, follow=False)
    assert answer.status == 409
    assert world.order().status == "PAID"
    assert "can no longer be cancelled" in duty.get(path).text


def test_an_order_that_took_another_step_meanwhile_is_looked_at_again_first(
    world: World, waiting: Order, duty: Staff
) -> None:
    """It still waits and could be cancelled, but not by somebody who saw it before the step."""
    path = f"/ops/orders/{waiting.number}/cancel/"
    old = duty.get(path).forms[path]
    waiting.save()
    assert duty.post(path, {**old, **STEP}, follow=False).status == 409
    assert world.order().status == "AWAITING_PAYMENT"
    assert duty.take(path).status == 302


def test_a_letter_that_was_redriven_and_died_again_is_looked_at_again_first(
    dead: OutboxMessage, duty: Staff
) -> None:
    for wish in ("redrive", "discard"):
        path = f"/ops/letters/{dead.pk}/{wish}/"
        old = duty.get(path).forms[path]
        OutboxMessage.objects.filter(pk=dead.pk).update(finished_at=dbtime.read())
        assert duty.post(path, {**old, **STEP}, follow=False).status == 409
    dead.refresh_from_db()
    assert dead.status == "DEAD"


def test_a_dead_letter_is_redriven_once_and_delivered(
    world: World, dead: OutboxMessage, duty: Staff, mailoutbox: list[Any]
) -> None:
    path = f"/ops/letters/{dead.pk}/redrive/"
    assert "mail server: SMTPException" in duty.get("/ops/").text
    old = duty.get(path).forms[path]
    assert duty.take(path).status == 302
    assert duty.post(path, {**old, **STEP}, follow=False).status == 409
    assert StaffAction.objects.get().action == "letter.redrive"
    world.work()
    assert len(mailoutbox) == 1


def test_all_dead_letters_of_the_list_that_was_shown_are_redriven(dead: OutboxMessage, duty: Staff) -> None:
    path = "/ops/letters/redrive/"
    old = duty.get(path).forms[path]
    OutboxMessage.objects.filter(pk=dead.pk).update(finished_at="2026-01-01T00:00:00Z")  # died once more
    assert duty.post(path, {**old, **STEP}, follow=False).status == 409
    assert duty.take(path).status == 302
    dead.refresh_from_db()
    assert (dead.status, dead.attempts) == ("PENDING", 0)


def test_mail_can_be_discarded_and_a_charge_on_which_an_order_waits_cannot(
    world: World, waiting: Order, dead: OutboxMessage, duty: Staff
) -> None:
    assert duty.take(f"/ops/letters/{dead.pk}/discard/").status == 302
    dead.refresh_from_db()
    assert dead.status == "CANCELLED"
    charge = OutboxMessage.objects.get(kind="charge")
    OutboxMessage.objects.filter(pk=charge.pk).update(status="DEAD", finished_at=waiting.created_at)
    answer = duty.take(f"/ops/letters/{charge.pk}/discard/")
    assert answer.status == 409
    assert "cannot be discarded" in answer.text


def test_a_money_check_is_closed_once_with_what_was_found(world: World, duty: Staff) -> None:
    checks.open_check("HF-1", "the gateway refuses the refund", order_key="HF-1")
    check = MoneyCheck.objects.get()
    path = f"/ops/checks/{check.pk}/close/"
    assert "the gateway refuses the refund" in duty.get("/ops/").text
    old = duty.get(path).forms[path]
    assert duty.take(path, reason="returned by bank transfer").status == 302
    check.refresh_from_db()
    assert (check.closed_by, check.note) == ("duty", "returned by bank transfer")
    assert duty.post(path, {**old, **STEP}, follow=False).status == 409
    assert StaffAction.objects.get().action == "check.close"
    assert Staff("nosy", right=False).client.post(path, STEP).status_code == 403


def test_the_room_counts_all_money_checks_though_it_lists_the_first(world: World, duty: Staff) -> None:
    for number in range(23):
        checks.open_check(f"HF-{number}", "lost sight of")
    assert "Money checks 23" in duty.get("/ops/").text


def test_the_page_is_read_without_script_and_its_script_gets_only_what_changed(
    waiting: Order, duty: Staff
) -> None:
    page = duty.get("/ops/")
    for said in ("NORMAL", "Backlog", "Exposure", "Dead letters", "Reserves about to run out", "On record"):
        assert said in page.text
    seen = page.html.split("?seen=")[1].split('"')[0]
    again = duty.client.get("/ops/", {"seen": seen}, headers={"HX-Request": "true"})
    # Ages grow by the second, so the figures may differ; nothing else may.
    changed = again.content.decode().count("<section")
    assert (again.status_code, changed) in {(200, 0), (200, 1)}
    assert "As of " in again.content.decode()
    mode.change("on", actor="other", reason="maintenance")
    fresh = duty.client.get("/ops/", {"seen": seen}, headers={"HX-Request": "true"}).content.decode()
    assert 'id="part-mode"' in fresh
    assert 'id="part-board"' not in fresh


def test_a_room_whose_session_has_ended_goes_to_the_log_in_as_a_whole(duty: Staff) -> None:
    duty.client.logout()
    for path in ("/ops/", "/ops/charts/"):
        answer = duty.client.get(path, headers={"HX-Request": "true"})
        assert answer.headers["HX-Redirect"] == "/account/login/?next=/ops/"
        assert not answer.content


def test_who_may_not_enter_is_told_so_in_words(world: World) -> None:
    page = Staff("nosy", right=False).get("/ops/")
    assert page.status == 403
    assert "does not have the right" in page.text


def test_charts_count_what_the_rows_say(world: World, waiting: Order) -> None:
    assert charts.waiting_charges().values[-1] == 1
    with world.later(300):
        values = charts.waiting_charges().values
        assert values[-6:] == (0, 1, 1, 1, 1, 1) or values[-5:] == (1, 1, 1, 1, 1)
        world.work()
        assert charts.waiting_charges().values[-1] == 0
    Shopper().buy()
    sums = charts.checkout_outcomes().sums
    assert (sums["unpaid"], sums["paid"], sums["declined"]) == (1, 1, 0)


def test_history_is_read_only_in_the_admin(waiting: Order, duty: Staff) -> None:
    mode.change("on", actor="duty", reason="maintenance")
    change = ModeChange.objects.get()
    for address in (
        f"/admin/payments/modechange/{change.pk}/change/",
        f"/admin/payments/modechange/{change.pk}/delete/",
        f"/admin/orders/order/{waiting.pk}/change/",
        f"/admin/orders/order/{waiting.pk}/delete/",
        "/admin/payments/staffaction/add/",
        "/admin/payments/payment/add/",
    ):
        assert duty.client.post(address, {"reason": "other", "post": "yes"}).status_code == 403
    assert ModeChange.objects.get().reason == "maintenance"
    order_list = "/admin/orders/order/"
    answer = duty.post(order_list, {"action": "cancel_order", "_selected_action": waiting.pk}, follow=False)
    assert answer.path == f"/ops/orders/{waiting.number}/cancel/"
    waiting.refresh_from_db()
    assert waiting.status == "AWAITING_PAYMENT"
