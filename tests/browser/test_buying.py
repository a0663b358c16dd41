"""The shopper's way in a real browser; the page and the gateway's books are both read."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import translation
from django.utils.translation import gettext
from playwright.sync_api import Page, expect

from orders.models import Order, StockItem
from orders.operations import undo
from orders.wording import WORDS, Situation
from tests.browser.conftest import DESKTOP, PHONE
from tests.browser.person import DECLINED, NEEDS_ACTION, Person, Visit
from tests.neighbours import HANG, REFUSE
from tests.world import World

pytestmark = pytest.mark.browser

BROWSERS = [
    pytest.param({"javascript": True, "language": "en", "size": DESKTOP}, id="script-desktop-english"),
    pytest.param({"javascript": False, "language": "en", "size": PHONE}, id="plain-phone-english"),
    pytest.param({"javascript": True, "language": "ru", "size": PHONE}, id="script-phone-russian"),
    pytest.param({"javascript": False, "language": "ru", "size": DESKTOP}, id="plain-desktop-russian"),
]
BOTH = pytest.mark.parametrize("script", [True, False], ids=["script", "plain"])


def title(situation: Situation, language: str = "en") -> str:
    with translation.override(language):
        return str(WORDS[situation].title)


def no_sideways_scrolling(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.parametrize("how", BROWSERS)
def test_from_the_catalog_to_paid(world: World, visit: Visit, how: dict[str, Any]) -> None:
    person = Person(visit(**how))
    person.put_in_basket()
    person.put_in_basket("MUG-ANC")
    assert no_sideways_scrolling(person.page)
    person.go_to_checkout()
    assert no_sideways_scrolling(person.page)
    person.fill_in()
    person.order()
    expect(person.state).to_contain_text(title(Situation.PAID, how["language"]))
    assert no_sideways_scrolling(person.page)
    assert person.page.locator("html").get_attribute("lang") == how["language"]
    assert [charge["amount"] for charge in world.charges] == [world.order().total_minor] == [3700]


@pytest.mark.parametrize("how", BROWSERS)
def test_a_hung_gateway_then_healed_and_the_page_turns_to_paid(
    world: World, visit: Visit, tune: Any, how: dict[str, Any]
) -> None:
    tune(checkout_budget_ms=1500)
    world.fault(world.gateway, HANG)
    person = Person(visit(**how))
    person.buy()
    expect(person.state).to_contain_text(title(Situation.CONFIRMING, how["language"]))
    assert world.charges == []
    world.heal()
    world.work()
    if not how["javascript"]:
        person.look_again()
    expect(person.state).to_contain_text(title(Situation.PAID, how["language"]))
    expect(person.page).to_have_title(re.compile(title(Situation.PAID, how["language"])))
    assert len(world.charges) == 1


@BOTH
def test_a_declined_card_then_another_one_pays(world: World, visit: Visit, script: bool) -> None:
    person = Person(visit(javascript=script))
    person.buy(method=DECLINED)
    expect(person.state).to_contain_text("Your card was declined and nothing was taken")
    assert world.charges == []
    person.page.get_by_role("button", name="Pay now").click()
    expect(person.state).to_contain_text("Thank you")
    assert [charge["amount"] for charge in world.charges] == [2450]


@BOTH
def test_a_stale_rate_says_of_which_day_it_is_and_that_it_may_differ(
    world: World, visit: Visit, script: bool
) -> None:
    world.fault(world.rates, REFUSE)
    with world.later(2 * 3600):
        person = Person(visit(javascript=script))
        person.put_in_basket()
        person.choose_currency("USD", back="cart")
        expect(person.page.locator("aside")).to_contain_text(
            re.compile(r"Exchange rate of \d+ \w+, may differ")
        )
        person.go_to_checkout()
        expect(person.page.locator(".panel .stale")).to_contain_text("may differ from today's")
        person.page.set_viewport_size(PHONE)
        expect(person.page.locator("form .stale")).to_be_visible()
        person.fill_in()
        person.order()
        expect(person.state).to_contain_text("Paid")
        expect(person.page.locator(".panel .stale")).to_contain_text("may have differed")
        assert [charge["currency"] for charge in world.charges] == ["usd"]
        assert [charge["amount"] for charge in world.charges] == [world.order().total_minor]


@BOTH
def test_a_changed_price_is_shown_old_and_new_and_charged_only_after_a_second_yes(
    world: World, visit: Visit, script: bool
) -> None:
    person = Person(visit(javascript=script))
    person.put_in_basket()
    person.go_to_checkout()
    person.fill_in(email="bea@example.com")
    world.control(world.catalog, "PUT", "/_sandbox/products/ROPE-12", {"price_minor": 2600})
    person.order()
    expect(person.alert).to_contain_text("You saw €24.50, it is now €26.00.")
    expect(person.page.locator("del")).to_have_text("€24.50")
    expect(person.page.locator("#email")).to_have_value("bea@example.com")
    assert world.charges == []
    person.order()
    expect(person.state).to_contain_text("Paid")
    assert [charge["amount"] for charge in world.charges] == [2600]


@BOTH
def test_sold_out_while_you_looked_orders_nothing_and_keeps_the_basket(
    world: World, visit: Visit, script: bool
) -> None:
    person = Person(visit(javascript=script))
    person.put_in_basket()
    person.go_to_checkout()
    person.fill_in()
    world.stock("ROPE-12", 0)
    person.order()
    expect(person.alert).to_contain_text("Sold out while you looked: Mooring rope, 12 mm (left: 0).")
    assert world.money_calls == []
    assert Order.objects.count() == 0
    person.page.goto("/cart/")
    expect(person.page.locator("#basket")).to_contain_text("Mooring rope")


@BOTH
def test_an_order_that_is_not_paid_in_time_expires_before_the_shoppers_eyes(
    world: World, visit: Visit, script: bool
) -> None:
    world.fault(world.gateway, REFUSE)
    person = Person(visit(javascript=script))
    person.buy()
    expect(person.state).to_contain_text("Accepted, awaiting payment")
    expect(person.state).to_contain_text("UTC")
    with world.later(3700):
        assert undo.expire_overdue() == 1
    if not script:
        person.page.get_by_role("link", name="Look again").click()
    expect(person.state).to_contain_text("not paid in time")
    expect(person.page.get_by_role("button", name="Pay now")).to_have_count(0)
    assert StockItem.objects.get(sku="ROPE-12").reserved == 0


@BOTH
def test_going_back_after_the_order_and_submitting_again_leads_to_the_same_order(
    world: World, visit: Visit, script: bool
) -> None:
    person = Person(visit(javascript=script))
    person.put_in_basket()
    person.go_to_checkout()
    person.fill_in()
    old_form = person.page.context.new_page()
    old_form.goto("/checkout/")
    token = person.page.locator("input[name=token]").get_attribute("value")
    person.order()
    expect(person.state).to_contain_text("Paid")
    there = person.page.url
    person.page.go_back()
    expect(person.page.locator("main")).to_contain_text("Your basket is empty")
    # The very form that was sent, as a browser that keeps old pages would send it again.
    old_form.locator("input[name=token]").evaluate(f"field => field.value = '{token}'")
    old_form.locator("#email").fill("ann@example.com")
    old_form.locator("#checkout-form button").click()
    expect(old_form).to_have_url(there)
    assert len(world.charges) == Order.objects.count() == 1


def test_two_tabs_with_one_basket_make_one_order(world: World, visit: Visit) -> None:
    person = Person(visit())
    person.put_in_basket()
    person.go_to_checkout()
    person.fill_in()
    other = Person(person.page.context.new_page())
    other.page.goto("/checkout/")
    other.fill_in()
    person.order()
    expect(person.state).to_contain_text("Paid")
    other.order()
    expect(other.alert).to_contain_text("Your basket is empty, so there was nothing to order.")
    assert len(world.charges) == Order.objects.count() == 1


def test_a_currency_switched_in_another_tab_never_moves_the_number(world: World, visit: Visit) -> None:
    person = Person(visit())
    person.put_in_basket()
    person.go_to_checkout()
    person.fill_in()
    other = Person(person.page.context.new_page())
    other.page.goto("/cart/")
    other.choose_currency("JPY", back="cart")
    expect(other.page.locator("p.total")).to_contain_text("¥")
    person.order()
    expect(person.state).to_contain_text("Paid")
    assert [(charge["amount"], charge["currency"]) for charge in world.charges] == [(2450, "eur")]


@BOTH
def test_a_double_click_orders_once(world: World, visit: Visit, script: bool) -> None:
    person = Person(visit(javascript=script))
    person.put_in_basket()
    person.go_to_checkout()
    person.fill_in()
    person.order_button.dblclick()
    expect(person.state).to_be_visible()
    world.wait_for_charges(1)
    if not script:  # the second click may have been answered while the first was still paying
        person.look_again()
    expect(person.state).to_contain_text("Paid")
    assert len(world.charges) == Order.objects.count() == 1


def test_a_quantity_changes_in_place_and_the_focus_stays(world: World, visit: Visit) -> None:
    person = Person(visit())
    person.put_in_basket()
    person.page.evaluate("window.same = true")
    field = person.page.locator("#quantity-ROPE-12")
    field.fill("3")
    field.press("Enter")
    expect(person.page.locator("p.total")).to_contain_text("€73.50")
    expect(person.page.locator("#basket-said")).to_have_text("Total: €73.50")
    expect(person.page.locator("#basket-link .count")).to_have_text("3")
    expect(person.page.locator("#quantity-ROPE-12")).to_be_focused()
    assert person.page.evaluate("window.same") is True
    person.page.locator("#quantity-ROPE-12").fill("1.000")
    person.page.locator("#quantity-ROPE-12").press("Enter")
    expect(person.alert).to_contain_text("between 1 and 999")
    expect(person.page.locator("#quantity-ROPE-12")).to_have_value("1.000")
    expect(person.page.locator("#quantity-ROPE-12")).to_have_attribute("aria-invalid", "true")


@BOTH
def test_delayed_payments_are_announced_before_the_shopper_commits(
    world: World, visit: Visit, script: bool
) -> None:
    from payments import mode

    mode.change("on", actor="duty", reason="maintenance")
    person = Person(visit(javascript=script))
    expect(person.page.locator(".banner")).to_contain_text("Payments are delayed.")
    person.put_in_basket()
    person.go_to_checkout()
    expect(person.order_button).to_have_text("Order now, pay later: €24.50")
    person.fill_in()
    person.order()
    expect(person.state).to_contain_text("nothing has been taken yet")
    assert world.money_calls == []
    mode.change("auto", actor="duty", reason="")


def test_the_banks_confirmation_is_one_link_away_and_the_page_follows(world: World, visit: Visit) -> None:
    person = Person(visit())
    person.buy(method=NEEDS_ACTION)
    expect(person.state).to_contain_text("One more step")
    expect(person.page.get_by_role("link", name="Confirm with your bank")).to_be_visible()
    assert world.charges == []


def test_an_expired_session_keeps_the_basket_and_says_so(
    world: World, visit: Visit, django_user_model: Any
) -> None:
    django_user_model.objects.create_user("bea@example.com", "bea@example.com", "a long secret")
    person = Person(visit())
    person.put_in_basket()
    person.log_in("Bea@example.com", "a long secret")
    person.page.goto("/checkout/")
    expect(person.page.locator("#email")).to_have_value("bea@example.com")
    person.fill_in(email="bea@example.com")
    person.page.context.clear_cookies(name="sessionid")
    person.order()
    expect(person.alert).to_contain_text("You are no longer logged in. Your basket is kept")
    person.page.locator("#id_username").fill("bea@example.com")
    person.page.locator("#id_password").fill("a long secret")
    person.page.locator("main button[type=submit]").click()
    person.order()
    expect(person.state).to_contain_text("Paid")
    assert len(world.charges) == 1


def test_a_form_older_than_a_log_in_elsewhere_comes_back_with_what_was_typed(
    world: World, visit: Visit, django_user_model: Any
) -> None:
    django_user_model.objects.create_user("bea@example.com", "bea@example.com", "a long secret")
    person = Person(visit())
    person.put_in_basket()
    person.go_to_checkout()
    person.fill_in(email="typed@example.com")
    Person(tab := person.page.context.new_page()).log_in("bea@example.com", "a long secret")
    expect(tab).to_have_url(re.compile("/account/orders/"))
    person.order()
    expect(person.alert).to_contain_text("This page had been open for too long")
    expect(person.page.locator("#email")).to_have_value("typed@example.com")
    assert world.money_calls == []
    person.order()
    expect(person.state).to_contain_text("Paid")
    assert len(world.charges) == 1


def test_languages_switch_on_the_page_that_is_open(world: World, visit: Visit) -> None:
    page = visit()
    page.locator("#language").select_option("ru")
    page.locator("footer button").click()
    expect(page.locator("html")).to_have_attribute("lang", "ru")
    with translation.override("ru"):
        expect(page.locator("nav")).to_contain_text(gettext("Basket"))
