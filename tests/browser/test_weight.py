"""What a page weighs and how soon it is seen on a slow line."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Page, Response, expect

from tests.browser.conftest import PHONE
from tests.browser.person import Person, Visit
from tests.world import World

pytestmark = pytest.mark.browser

HEAVIEST = 60_000
SLOW_3G = {"offline": False, "latency": 2000, "downloadThroughput": 50_000, "uploadThroughput": 50_000}


def weigh(page: Page, path: str) -> dict[str, int]:
    """Bytes on the wire of everything that a first visit to `path` loads, by kind, heads included."""
    answers: list[Response] = []

    def keep(answer: Response) -> None:
        answers.append(answer)

    page.on("response", keep)
    page.goto(path, wait_until="load")
    weights: dict[str, int] = {}
    for answer in answers:
        kind = answer.request.resource_type
        sizes = answer.request.sizes()
        weights[kind] = weights.get(kind, 0) + sizes["responseBodySize"] + sizes["responseHeadersSize"]
    return weights


def test_every_page_weighs_less_than_60_kilobytes_on_a_first_visit(world: World, visit: Visit) -> None:
    person = Person(visit(size=PHONE))
    person.put_in_basket("LANTERN-BR")
    person.buy("ROPE-12")
    order = person.page.url
    person.put_in_basket()
    cookies = person.page.context.cookies()
    for path in ("/", "/cart/", "/checkout/", order, "/account/login/"):
        page = visit(javascript=True)
        page.goto("about:blank")
        page.context.add_cookies(cookies)  # type: ignore[arg-type]
        cdp = page.context.new_cdp_session(page)
        cdp.send("Network.clearBrowserCache")
        weights = weigh(page, path)
        print(path.split("/", 3)[-1][:8] or "/", weights)
        assert {"document", "stylesheet", "script"} <= set(weights), path
        assert sum(weights.values()) < HEAVIEST, (path, weights)


def test_the_catalog_is_seen_on_slow_3g(world: World, visit: Visit) -> None:
    page = visit(size=PHONE)
    page.goto("about:blank")
    cdp = page.context.new_cdp_session(page)
    cdp.send("Network.enable")
    cdp.send("Network.clearBrowserCache")
    cdp.send("Network.emulateNetworkConditions", SLOW_3G)
    begun = time.monotonic()
    page.goto("/", wait_until="commit", timeout=30_000)
    expect(page.locator(".card").first).to_be_visible(timeout=30_000)
    # Asked for from outside: the page's own policy forbids the evaluation that waiting inside of it needs.
    asked = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    while not (paint := page.evaluate(asked)) and time.monotonic() < begun + 60:
        page.wait_for_timeout(50)
    print(f"first contentful paint {paint:.0f} ms, seen after {time.monotonic() - begun:.1f} s")
    assert paint > 0
