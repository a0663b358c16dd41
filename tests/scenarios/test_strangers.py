"""An order's address is its only key, and tells nothing to those who guess (OP-37)."""

from __future__ import annotations

import logging
import re

import pytest

from orders.models import Order
from payments import mode
from tests.world import Shopper, World


def body(html: str) -> str:
    """A page without what is random in every answer."""
    return re.sub(r'value="[A-Za-z0-9]{64}"', "", html)


def changed(path: str) -> str:
    """The link with one character changed."""
    return path[:-2] + ("A" if path[-2] != "A" else "B") + "/"


@pytest.mark.parametrize("known", [False, True], ids=["anonymous", "another customer"])
@pytest.mark.parametrize("suffix", ["", "cancel/", "pay/"])
def test_a_guessed_link_gets_the_same_404_whether_or_not_something_is_near(
    world: World, shopper: Shopper, suffix: str, known: bool
) -> None:
    mode.change("on", actor="duty", reason="maintenance")
    page = shopper.buy()
    stranger = Shopper()
    if known:
        from django.contrib.auth.models import User

        stranger.client.force_login(User.objects.create_user("eve", password="x"))
    guesses = [changed(page.path), "/orders/x/", f"/orders/{Order.objects.get().number}/", "/orders/1/"]
    send = stranger.get if not suffix else (lambda path: stranger.post(path, {"method": "pm_card_visa"}))
    answers = [send(f"{guess}{suffix}") for guess in guesses]
    assert {answer.status for answer in answers} == {404}
    assert len({body(answer.html) for answer in answers}) == 1
    assert Order.objects.get().status == "AWAITING_PAYMENT"


def test_the_owners_link_works_in_a_fresh_browser_and_is_not_passed_on(
    world: World, shopper: Shopper
) -> None:
    page = shopper.buy()
    seen = Shopper().get(page.path)
    assert "Thank you" in seen.text
    assert seen.headers["Referrer-Policy"] in {"no-referrer", "strict-origin"}  # at most the shop's name
    assert "no-store" in seen.headers["Cache-Control"]
    assert "http://" not in seen.html.replace("http://www.w3.org", "")
    assert "https://" not in seen.html


def test_order_numbers_do_not_tell_how_many_orders_there_are(world: World) -> None:
    for _ in range(3):
        Shopper().buy()
    numbers = sorted(Order.objects.values_list("number", flat=True))
    assert all(re.fullmatch(r"HF-[A-Z0-9]{5}-[A-Z0-9]{5}", number) for number in numbers)
    assert len({number[:6] for number in numbers}) == 3


def test_an_orders_key_is_in_no_log_line(
    world: World, shopper: Shopper, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        page = shopper.buy()
        shopper.get(page.path)
        shopper.get(changed(page.path))
        world.work()
    token = page.path.split("/")[2]
    assert caplog.records
    for record in caplog.records:
        if not record.name.startswith(("django.db", "django.template")):
            assert token not in record.getMessage()
            assert token not in str(record.__dict__.get("order", ""))
