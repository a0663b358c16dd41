"""axe on every page in every state, in both themes: no violation of WCAG 2.2 A and AA."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import DESKTOP, PHONE
from tests.browser.person import Person, Visit
from tests.browser.scenes import ALL
from tests.world import World

pytestmark = pytest.mark.browser

_LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
_EVERYTHING = {
    "resultTypes": ["violations"],
    "runOnly": {"type": "tag", "values": _LEVELS},
    "rules": {"target-size": {"enabled": True}},
}
_AXE = Axe()
_COLOURS = {"resultTypes": ["violations"], "runOnly": {"type": "rule", "values": ["color-contrast"]}}


def violations(page: Page, options: dict[str, Any]) -> list[str]:
    """One line for each broken rule, with the elements that break it."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(_AXE.axe_script)
    found = page.evaluate("options => axe.run(options)", options)["violations"]
    return [f"{rule['id']}: {[node['html'][:120] for node in rule['nodes']]}" for rule in found]


def look_at(page: Page, scene: str) -> list[str]:
    """What is wrong in the light, then in the dark. With `PICTURES` set, both are kept there."""
    wrong = []
    for theme, options in (("light", _EVERYTHING), ("dark", _COLOURS)):
        page.emulate_media(color_scheme=theme)
        if folder := os.environ.get("PICTURES"):
            page.screenshot(path=Path(folder) / f"{scene}-{theme}.png", animations="disabled")
        wrong += [f"{scene} ({theme}): {line}" for line in violations(page, options)]
    return wrong


@pytest.mark.parametrize("group", ALL)
def test_no_page_in_any_state_shuts_anybody_out(
    world: World, visit: Visit, tune: Any, settings: Any, group: str
) -> None:
    if group == "demo":
        settings.ENVIRONMENT = "demo"
        settings.ROOT_URLCONF = "tests.demo_addresses"
        settings.X_FRAME_OPTIONS = "SAMEORIGIN"
    size = PHONE if os.environ.get("PICTURES_OF") == "phone" else DESKTOP
    person = Person(visit(size=size))
    wrong: list[str] = []
    for scene in ALL[group](world, person, tune):
        wrong += look_at(person.page, scene)
    assert wrong == []


def test_the_scanner_sees_what_it_is_there_for(world: World, visit: Visit) -> None:
    page = visit()
    page.locator("#q").evaluate("field => field.labels[0].remove()")
    page.locator(".intro p").evaluate("text => text.style.setProperty('color', '#d0d0d0', 'important')")
    assert [line.split(":")[0] for line in violations(page, _EVERYTHING)] == ["color-contrast", "label"]
    assert [line.split(":")[0] for line in violations(page, _COLOURS)] == ["color-contrast"]


def test_the_demo_page_fits_the_narrowest_phone_and_a_dearer_product_leaves_the_shop_beside_it_alone(
    world: World, visit: Visit, settings: Any
) -> None:
    settings.ENVIRONMENT = "demo"
    settings.ROOT_URLCONF = "tests.demo_addresses"
    settings.X_FRAME_OPTIONS = "SAMEORIGIN"
    page = visit(size={"width": 320, "height": 640})
    page.goto("/_demo/")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.evaluate("window.kept = true")
    with page.expect_response("**/_demo/dearer/"):
        page.get_by_role("button", name="Let the first product cost one euro more").click()
    expect(page.locator("#console")).to_be_visible()
    assert page.evaluate("window.kept")
