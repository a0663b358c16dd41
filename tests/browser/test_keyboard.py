"""The whole way by keyboard alone: Tab, Space, arrows and Enter, with a focus that can be seen."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE
from tests.browser.person import Person, Visit
from tests.neighbours import REFUSE
from tests.world import World

pytestmark = pytest.mark.browser

_MOST_TABS = 80


def tab_to(page: Page, selector: str) -> None:
    """Presses Tab until the element has the focus, as a person would."""
    wanted = page.locator(f"{selector} >> nth=0")
    for _ in range(_MOST_TABS):
        page.keyboard.press("Tab")
        if wanted.evaluate("element => element === document.activeElement"):
            width = wanted.evaluate("element => getComputedStyle(element).outlineWidth")
            assert width == "3px", f"the focus on {selector} cannot be seen"
            return
    raise AssertionError(f"{selector} cannot be reached by Tab")


def press_on(page: Page, selector: str, key: str = "Enter") -> None:
    tab_to(page, selector)
    page.keyboard.press(key)


@pytest.mark.parametrize("script", [True, False], ids=["script", "plain"])
def test_from_the_catalog_over_awaiting_to_paid_by_keyboard(world: World, visit: Visit, script: bool) -> None:
    world.fault(world.gateway, REFUSE)
    page = visit(javascript=script, size=PHONE if script else {"width": 1280, "height": 900})
    person = Person(page)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    press_on(page, 'form[action="/cart/add/"] button')
    expect(page).to_have_url(re.compile("/cart/$"))
    press_on(page, 'a[href="/checkout/"]')
    tab_to(page, "#email")
    page.keyboard.type("ann@example.com")
    tab_to(page, "#address")
    page.keyboard.type("1 Quay Street")
    tab_to(page, "input[name=method]:checked")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    press_on(page, "#checkout-form button[type=submit]")
    expect(person.state).to_contain_text("Accepted, awaiting payment")
    world.heal()
    press_on(page, '#actions form[action$="/pay/"] button')
    expect(person.state).to_contain_text("Paid")
    assert [charge["amount"] for charge in world.charges] == [2450]
