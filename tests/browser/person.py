"""A person at the shop's pages, who finds the way by what stands there in any language."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect

Visit = Callable[..., Page]
VISA, DECLINED, NEEDS_ACTION = "pm_card_visa", "pm_card_chargeDeclined", "pm_card_authenticationRequired"


class Person:
    """Clicks and reads. `page` is the browser's."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def put_in_basket(self, sku: str = "ROPE-12") -> None:
        self.page.goto("/")
        self.page.locator(f'form[action="/cart/add/"]:has(input[value="{sku}"]) button').click()
        expect(self.page).to_have_url(re.compile("/cart/$"))

    def go_to_checkout(self) -> None:
        self.page.locator('a[href="/checkout/"]').first.click()
        expect(self.order_button).to_be_visible()

    @property
    def order_button(self) -> Locator:
        return self.page.locator("#checkout-form button[type=submit]")

    def fill_in(self, *, email: str = "ann@example.com", method: str = VISA) -> None:
        self.page.locator("#email").fill(email)
        self.page.locator(f'input[name=method][value="{method}"]').check()

    def order(self) -> None:
        self.order_button.click()

    def buy(self, sku: str = "ROPE-12", **filled: Any) -> None:
        """From the shelf to the order's page."""
        self.put_in_basket(sku)
        self.go_to_checkout()
        self.fill_in(**filled)
        self.order()
        expect(self.state).to_be_visible()

    @property
    def state(self) -> Locator:
        """What the order's page says about the order; the same element from first load on."""
        return self.page.locator("#state[role=status]")

    @property
    def alert(self) -> Locator:
        return self.page.locator("[role=alert]")

    def choose_currency(self, code: str, *, back: str = "catalog") -> None:
        form = self.page.locator(f'form[action="/currency/"]:has(input[value="{back}"])')
        form.locator("select").select_option(code)
        form.locator("button").click()

    def look_again(self) -> None:
        """Reads the page anew, as a person without JavaScript does."""
        self.page.reload()

    def log_in(self, name: str, password: str) -> None:
        self.page.goto("/account/login/")
        self.page.locator("#id_username").fill(name)
        self.page.locator("#id_password").fill(password)
        self.page.locator("main button[type=submit]").click()
