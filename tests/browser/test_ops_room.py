"""The operations room in a real browser, with and without JavaScript, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import Permission, User
from playwright.sync_api import Page, expect

from orders.models import Order, OrderEvent, OutboxMessage
from payments import dbtime, mode
from payments.controller import WEB, WORKER
from payments.models import BreakerReport, ModeState
from tests.browser.conftest import DESKTOP, PHONE
from tests.mode.test_storage import process
from tests.neighbours import REFUSE
from tests.world import Shopper, World

pytestmark = pytest.mark.browser

REASON = "the gateway asked us to"
both = pytest.mark.parametrize("javascript", [True, False], ids=["with JavaScript", "without"])
Visit = Callable[..., Page]


@pytest.fixture
def enter(visit: Visit) -> Visit:
    """Opens the room as the person on duty."""
    duty = User.objects.create_user("duty", password="duty", is_staff=True)
    duty.user_permissions.set(Permission.objects.filter(content_type__app_label__in=["orders", "payments"]))

    def open_room(**how: Any) -> Page:
        page = visit(**how)
        page.goto("/ops/")
        page.locator("[name=username]").fill("duty")
        page.locator("[name=password]").fill("duty")
        page.locator("main form button[type=submit]").click()
        expect(page.locator(".word")).to_be_visible()
        return page

    return open_room


@pytest.fixture
def waiting(world: World) -> Order:
    world.fault(world.gateway, REFUSE)
    Shopper().buy()
    world.heal()
    return world.order()


def take_step(page: Page, button: str) -> None:
    page.get_by_label("Why?").fill(REASON)
    page.get_by_label("Yes, do it").check()
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.locator(".done")).to_be_visible()


@both
def test_the_switch_is_thrown_and_thrown_back(enter: Visit, javascript: bool) -> None:
    page = enter(javascript=javascript)
    expect(page.locator(".word")).to_have_text("NORMAL")
    page.get_by_role("link", name="Change the setting").click()
    page.get_by_label("ON: take orders, take no money now").check()
    page.get_by_role("button", name="Change it").click()  # the browser holds it back: no reason yet
    assert mode.current().setting == "auto"
    take_step(page, "Change it")
    expect(page.locator(".word")).to_have_text("DEGRADED")
    expect(page.locator("#part-audit")).to_contain_text(REASON)
    page.get_by_role("link", name="Change the setting").click()
    page.get_by_label("AUTO: the breakers decide").check()
    take_step(page, "Change it")
    expect(page.locator(".word")).to_have_text("NORMAL")


@both
def test_a_dead_letter_is_redriven(world: World, waiting: Order, enter: Visit, javascript: bool) -> None:
    OutboxMessage.objects.filter(kind="notify").update(
        status="DEAD", attempts=10, last_error="mail server: SMTPException", finished_at=waiting.created_at
    )
    page = enter(javascript=javascript)
    expect(page.locator("#part-letters")).to_contain_text("mail server: SMTPException")
    page.locator("#part-letters").get_by_role("link", name="Redrive", exact=False).first.click()
    take_step(page, "Redrive")
    expect(page.locator("#part-letters")).to_contain_text("None.")
    assert OutboxMessage.objects.get(kind="notify").status == "PENDING"


@both
def test_an_order_is_cancelled_by_its_number(
    world: World, waiting: Order, enter: Visit, javascript: bool
) -> None:
    page = enter(javascript=javascript, size=PHONE)
    page.get_by_label("Number").fill(waiting.number.lower())
    page.get_by_role("button", name="Find").click()
    expect(page.locator("h1")).to_have_text(f"Cancel order {waiting.number}")
    take_step(page, "Cancel the order")
    waiting.refresh_from_db()
    assert waiting.status == "CANCELLED"


def test_the_room_follows_what_happens_by_itself_and_keeps_the_focus(world: World, enter: Visit) -> None:
    page = enter()
    page.get_by_role("link", name="Pause the replay").focus()
    process("web 1", WEB, failing=61)
    expect(page.locator("#part-board")).to_contain_text("web 1")
    assert page.evaluate("document.activeElement.textContent").strip() == "Pause the replay"
    mode.tick(lambda before=None: 0)
    expect(page.locator(".word")).to_have_text("DEGRADED")
    expect(page.locator("#part-mode")).to_contain_text("by breaker")


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_room_is_accessible_and_fits_the_screen(
    world: World, enter: Visit, size: dict[str, int], dark: bool
) -> None:
    world.audited = False
    an_incident()
    page = enter(size=size, dark=dark)
    for address in ("/ops/", "/ops/mode/"):
        page.goto(address)
        found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def an_incident() -> None:
    """An outage half an hour old: its rows, without waiting for it."""
    for name, kind, failing, healthy in (
        ("web shop-1:101", WEB, 1400, None),
        ("web shop-1:102", WEB, 1380, None),
        ("web shop-2:101", WEB, 1390, None),
        ("web shop-2:102", WEB, None, None),
        ("worker shop-1:201", WORKER, 1300, None),
        ("worker shop-2:201", WORKER, 1310, None),
    ):
        process(name, kind, failing=failing, healthy=healthy)
    now = dbtime.read()
    down = BreakerReport.objects.filter(failing_since__isnull=False)
    down.update(failure_rate=100.0, slow_rate=60.0, window_calls=10, not_permitted=431)
    down.update(since=now - timedelta(seconds=9))
    BreakerReport.objects.filter(process="web shop-2:102").update(
        asked_at=None, since=now - timedelta(hours=7)
    )
    for minute in range(55, 0, -1):
        with dbtime.shifted(timedelta(minutes=-minute)):
            _one_minute(paid=minute > 32, orders=3 + minute % 3)
    letter = OutboxMessage.objects.filter(kind="notify").first()
    assert letter is not None
    OutboxMessage.objects.filter(pk=letter.pk).update(
        status="DEAD", attempts=10, last_error="mail server: SMTPException", finished_at=letter.created_at
    )
    mode.tick(lambda before=None: 90)


def _one_minute(*, paid: bool, orders: int) -> None:
    """What the checkouts of one minute leave behind."""
    from decimal import Decimal

    now = dbtime.read()
    for number in range(orders):
        declined = paid and number == 0 and now.minute % 7 == 0
        status = "DECLINED" if declined else "PAID" if paid else "AWAITING_PAYMENT"
        order = Order.objects.create(
            status=status,
            email="ann@example.com",
            currency="EUR",
            total_minor=2450,
            base_total_minor=2450,
            rate_value=Decimal(1),
            reserve_until=now + timedelta(minutes=60 if not paid else 15),
            created_at=now,
        )
        kind = "decline" if declined else "pay" if paid else "defer"
        OrderEvent.objects.create(
            order=order, at=now, kind=kind, from_status="PLACED", to_status=status, actor="shopper"
        )
        for message, done in (("charge", paid), ("notify", True)):
            OutboxMessage.objects.create(
                kind=message,
                destination="payment" if message == "charge" else "mail",
                order=order,
                payload={"deferred": not paid},
                dedup=f"{message}:{order.pk}",
                status="DONE" if done else "PENDING",
                due_at=order.reserve_until,
                available_at=now,
                created_at=now,
                finished_at=now if done else None,
            )


def test_the_pictures_of_the_documentation_are_taken(
    world: World, enter: Visit, tune: Any, tmp_path: Any
) -> None:
    """Normal, degraded, recovering: what the run book shows. Kept only where HOLDFAST_PICTURES says."""
    import os
    from pathlib import Path

    folder = Path(os.environ.get("HOLDFAST_PICTURES") or tmp_path)
    world.audited = False
    tune(
        replay_rate=5.0,
        degraded_max_unpaid_total=10_000,
        degraded_max_unpaid_orders=500,
        degraded_max_order_total=500,
    )
    for name, kind in (("web shop-1:101", WEB), ("web shop-2:101", WEB), ("worker shop-1:201", WORKER)):
        process(name, kind)
    BreakerReport.objects.update(failure_rate=0.0, slow_rate=0.0, window_calls=10)
    page = enter(size={"width": 1280, "height": 1000})
    take_picture(page, folder / "ops-normal.png")
    an_incident()
    then = dbtime.read() - timedelta(minutes=30)
    ModeState.objects.update(since=then - timedelta(days=1), automatic_since=then)
    take_picture(page, folder / "ops-degraded.png")
    page.set_viewport_size(PHONE)
    take_picture(page, folder / "ops-phone.png")
    page.set_viewport_size({"width": 1280, "height": 1000})
    for name in ("worker shop-1:201", "worker shop-2:201"):
        process(name, WORKER, healthy=16)
    mode.tick(lambda before=None: 90)
    now = dbtime.read()
    late = OutboxMessage.objects.filter(kind="charge", status="PENDING").order_by("due_at")
    for place, pk in enumerate(late.values_list("pk", flat=True)[:40]):
        OutboxMessage.objects.filter(pk=pk).update(
            status="DONE", finished_at=now - timedelta(seconds=place * 0.3)
        )
        Order.objects.filter(messages__pk=pk).update(status="PAID")
    BreakerReport.objects.filter(kind=WORKER).update(failure_rate=0.0, slow_rate=0.0)
    take_picture(page, folder / "ops-recovering.png")
    assert {picture.name for picture in folder.glob("ops-*.png")} >= {"ops-normal.png", "ops-recovering.png"}


def take_picture(page: Page, path: Any) -> None:
    page.goto("/ops/")
    expect(page.locator(".word")).to_be_visible()
    page.screenshot(path=path, full_page=True)
