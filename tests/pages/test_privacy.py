"""Somebody else's order, old pages, shared caches: nothing leaks, nothing is guessed (OP-37, OP-38)."""

from __future__ import annotations

import logging
import re
import string
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from config.logging import LineFormatter
from orders.guesses import WRONG_LINKS, GuessLimit
from orders.models import Order
from resilience.testing import ManualClock
from tests.world import Shopper, World

PLACES = ("", "pay/", "cancel/")


def wrong_tokens(order: Order) -> list[str]:
    """The number in place of the key, the key with one character changed, keys of other shapes."""
    token = order.token
    other = next(char for char in string.ascii_letters if char != token[5])
    digits = [f"{order.pk + step}" for step in range(-50, 51, 10)]
    return [
        *digits,
        order.number,
        token[:5] + other + token[6:],
        token[:-1],
        token + "A",
        token.swapcase(),
        "é",
    ]


def bodies(shopper: Shopper, tokens: list[str]) -> set[tuple[int, str]]:
    found = set()
    for token in tokens:
        for place in PLACES:
            call = shopper.get if not place else lambda path: shopper.post(path, {"method": "pm_card_visa"})
            page = call(f"/orders/{token}/{place}")
            found.add((page.status, page.html))
    return found


def test_wrong_links_get_the_same_page_whether_or_not_there_is_an_order(
    world: World, shopper: Shopper, django_user_model: Any
) -> None:
    owner = Shopper()
    owner.buy()
    order = world.order()
    tokens = wrong_tokens(order)
    assert {status for status, _body in bodies(shopper, tokens)} == {404}
    WRONG_LINKS.forget()
    assert len(bodies(shopper, tokens)) == 1
    WRONG_LINKS.forget()
    django_user_model.objects.create_user("eve", password="a long secret")
    shopper.client.login(username="eve", password="a long secret")
    assert len(bodies(shopper, tokens)) == 1
    live = {"HX-Request": "true"}
    answers = {shopper.client.get(f"/orders/{token}/", headers=live).content for token in tokens[:5]}
    assert len(answers) == 1
    order.refresh_from_db()
    assert order.status == "PAID"
    assert "Thank you" in Shopper().get(f"/orders/{order.token}/").text


def test_a_hundred_wrong_links_are_limited_and_open_no_breaker(world: World, shopper: Shopper) -> None:
    shopper.buy()
    order = world.order()
    statuses = [shopper.get(f"/orders/{number}/").status for number in range(100)]
    assert set(statuses) == {404, 429}
    assert statuses.index(429) == 60
    page = shopper.get("/orders/wrong/")
    assert (page.status, page.headers["Retry-After"]) == (429, "1")
    assert "too many wrong links" in page.text
    assert Shopper(REMOTE_ADDR="192.0.2.7").get("/orders/wrong/").status == 404
    assert Shopper().get(f"/orders/{order.token}/").status == 200
    assert "Thank you" in Shopper().buy().text
    assert len(world.money_calls) == 2


def guess_often(address: str) -> None:
    """Nothing is left for the next try."""
    while WRONG_LINKS.count(address):
        pass


def test_the_limit_lets_go_second_by_second_and_forgets_old_addresses() -> None:
    clock = ManualClock()
    limit = GuessLimit("test", burst=3, per_second=1, most=2, clock=clock)
    assert [limit.count("a") for _ in range(5)] == [True, True, True, False, False]
    assert limit.count("b")
    clock.advance(1.01)
    assert [limit.count("a") for _ in range(2)] == [True, False]
    assert limit.count("c")
    assert limit.count("d")
    assert limit.count("a")
    with pytest.raises(ValueError, match="above 0"):
        GuessLimit("test", burst=0, per_second=1)


@pytest.mark.parametrize(
    ("proxies", "forwarded", "limited"),
    [
        (0, "198.51.100.1", True),
        (1, "198.51.100.1", False),
        (1, "1.2.3.4, 198.51.100.1", False),
        (1, "", True),
    ],
)
def test_an_address_is_what_our_own_proxy_says_and_nothing_else(
    world: World, settings: Any, proxies: int, forwarded: str, limited: bool
) -> None:
    settings.PROXY_COUNT = proxies
    guess_often("127.0.0.1")
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    assert (Shopper(headers=headers).get("/orders/x/").status == 429) is limited


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("198.51.100.7:1000", "198.51.100.7:2000"),
        ("[2001:db8::7]:1000", "2001:db8::7"),
        ("2001:db8::7", "2001:DB8:0:0:a:b:c:d"),
        ("198.51.100.7", "::ffff:198.51.100.7"),
    ],
)
def test_an_address_is_the_same_from_whichever_port_it_comes_and_however_it_is_written(
    world: World, settings: Any, first: str, second: str
) -> None:
    settings.PROXY_COUNT = 1
    for _ in range(80):
        Shopper(headers={"X-Forwarded-For": first}).get("/orders/x/")
    assert Shopper(headers={"X-Forwarded-For": second}).get("/orders/x/").status == 429


def test_the_key_to_an_order_is_in_no_log_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shopper = Shopper()
    page = shopper.buy()
    token = world.order().token
    shopper.get(page.path)
    shopper.post(f"{page.path}cancel/", {})
    shopper.post(f"{page.path}pay/", {"method": "nonsense"})
    world.work()
    for record in caplog.records:
        for as_json in (True, False):
            assert token not in LineFormatter(as_json).format(record)


@pytest.mark.parametrize("as_json", [True, False])
def test_keys_in_addresses_are_cut_out_of_whatever_is_logged(as_json: bool) -> None:
    key = "smlCgbEHjllpJpL5E-n9IB93zp1fSIPD"
    record = logging.makeLogRecord(
        {
            "msg": "Internal Server Error: %s",
            "args": (f"/orders/{key}/pay/",),
            "next": f"http://shop/account/join/{key}:1abc:{key}/",
            "reset": f"/account/password/MQ/{key}/",
        }
    )
    line = LineFormatter(as_json).format(record)
    assert key not in line
    assert "/orders/…/pay/" in line


def test_no_page_of_a_person_may_be_kept_by_any_cache(world: World, django_user_model: Any) -> None:
    django_user_model.objects.create_superuser("boss", password="a long secret")
    shopper = Shopper()
    order = shopper.buy()
    shopper.put_in_basket()
    shopper.client.login(username="boss", password="a long secret")
    paths = ["/", "/cart/", "/checkout/", order.path, "/account/orders/", "/account/login/", "/admin/"]
    paths += ["/account/join/", "/account/join/x/", "/account/sent/", "/nowhere/", "/orders/x/", "/ops/"]
    for path in paths:
        page = shopper.client.get(path)
        assert "no-store" in page.headers["Cache-Control"], path
        assert "private" in page.headers["Cache-Control"], path
    static = shopper.client.get("/static/holdfast.css")
    assert "no-store" not in static.headers["Cache-Control"]


def test_no_page_tells_another_site_where_it_was(world: World, shopper: Shopper) -> None:
    page = shopper.buy()
    assert page.headers["Referrer-Policy"] == "strict-origin"
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page.html)


def test_order_numbers_and_keys_say_nothing_about_how_many_orders_there_are(world: World) -> None:
    for _ in range(3):
        Shopper().buy()
    numbers = sorted(Order.objects.values_list("number", flat=True))
    assert all(re.fullmatch(r"HF-[0-9A-HJKMNP-TV-Z]{5}-[0-9A-HJKMNP-TV-Z]{5}", number) for number in numbers)
    assert len({number[:6] for number in numbers}) > 1
    assert all(len(token) == 32 for token in Order.objects.values_list("token", flat=True))


@pytest.mark.parametrize(
    ("path", "address"),
    [("/account/join/", "known@example.com"), ("/account/password/", "nobody@example.com")],
)
def test_no_page_tells_who_has_an_account(
    world: World, mailoutbox: list[Any], django_user_model: Any, path: str, address: str
) -> None:
    from orders import letters

    django_user_model.objects.create_user("known@example.com", "known@example.com", "a long secret")
    pages = {Shopper().post(path, {"email": who}).text for who in ("known@example.com", "nobody@example.com")}
    assert len(pages) == 1
    wrong = {
        Shopper().post("/account/login/", {"username": who, "password": "no"}).text.replace(who, "")
        for who in ("known@example.com", "nobody@example.com")
    }
    assert len(wrong) == 1
    letters.wait_until_sent()
    assert sorted(mail.to[0] for mail in mailoutbox) == ["known@example.com", "nobody@example.com"]
    assert get_user_model().objects.count() == 1
