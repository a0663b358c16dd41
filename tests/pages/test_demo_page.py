"""The demo page: levers that reach the neighbours, and books held against what shoppers were told."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import NoReverseMatch, reverse

from orders.demo import neighbours as levers
from tests.world import DECLINED, Shopper, World


@pytest.fixture
def demo(settings: Any) -> None:
    settings.ENVIRONMENT = "demo"
    settings.ROOT_URLCONF = "tests.demo_addresses"


def test_outside_the_demo_there_is_no_such_page_and_no_link_to_it(world: World, shopper: Shopper) -> None:
    assert shopper.get("/_demo/").status == 404
    assert "_demo" not in shopper.get("/").html
    with pytest.raises(NoReverseMatch):
        reverse("demo")


@pytest.mark.usefixtures("demo")
def test_every_lever_breaks_its_neighbour_and_heals_it(world: World, shopper: Shopper) -> None:
    assert "/_demo/" in shopper.get("/").html
    for key, troubles in levers.TROUBLES.items():
        for trouble, what in troubles.items():
            page = shopper.post("/_demo/break/", {"neighbour": key, "trouble": trouble})
            assert page.status == 200
            assert f"{levers.NAMES[key]}: {what.words}" in page.text
        assert f"{levers.NAMES[key]}: healthy" in shopper.post("/_demo/heal/", {"neighbour": key}).text


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize(
    "wish", [{"neighbour": "payment", "trouble": "nonsense"}, {"neighbour": "x", "trouble": "hang"}, {}]
)
def test_a_wish_that_no_lever_knows_changes_nothing(
    world: World, shopper: Shopper, wish: dict[str, str]
) -> None:
    assert "could not be told" in shopper.post("/_demo/break/", wish).text
    assert all(neighbour.healthy for neighbour in levers.neighbours())


@pytest.mark.usefixtures("demo")
def test_the_tour_goes_from_a_hung_gateway_to_books_that_agree(
    world: World, shopper: Shopper, tune: Any
) -> None:
    tune(checkout_budget_ms=1500)
    assert "step 1 of 5" in shopper.get("/_demo/").text
    page = shopper.post("/_demo/break/", {"neighbour": "payment", "trouble": "hang", "step": "2"})
    assert "step 2 of 5" in page.text
    order = shopper.buy()
    page = shopper.get("/_demo/?step=3")
    assert "Accepted, payment is being confirmed" in page.text
    assert "0 paid with one charge each, 0 not paid and not charged, 1 still being found out" in page.text
    page = shopper.post("/_demo/heal/", {"neighbour": "payment", "step": "5"})
    world.work()
    page = shopper.get("/_demo/?step=5")
    assert "1 paid with one charge each, 0 not paid and not charged" in page.text
    assert order.path in page.html
    assert "€24.50" in page.text


@pytest.mark.usefixtures("demo")
def test_an_order_that_the_books_contradict_is_named(world: World, shopper: Shopper) -> None:
    with world.unaudited():
        shopper.buy()
        Shopper().buy(method=DECLINED)
        world.control(world.gateway, "DELETE", "/_sandbox/ledger")
        assert f"disagree: {_paid_number()}" in shopper.get("/_demo/").text


def _paid_number() -> str:
    from orders.models import Order

    return Order.objects.get(status="PAID").number


@pytest.mark.usefixtures("demo")
def test_the_first_product_can_be_made_dearer_than_shown(world: World, shopper: Shopper) -> None:
    shopper.put_in_basket()
    form = shopper.checkout_form()
    shopper.post("/_demo/dearer/", {})
    page = shopper.submit(form)
    assert page.status == 409
    assert "You saw €24.50, it is now €25.50" in page.text


@pytest.mark.usefixtures("demo")
def test_a_neighbour_that_is_gone_is_said_to_be_unreachable_within_seconds(
    world: World, shopper: Shopper, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as gone:
        gone.setenv("PAYMENT_CONTROL_URL", "http://127.0.0.1:9")
        page = shopper.get("/_demo/")
    assert "Payment gateway: cannot be reached" in page.text
    assert "does not show its books" in page.text


@pytest.mark.usefixtures("demo")
def test_mails_are_shown_with_working_links(
    world: World, shopper: Shopper, settings: Any, tmp_path: Any
) -> None:
    from orders import letters

    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    settings.EMAIL_FILE_PATH = tmp_path
    shopper.post("/account/join/", {"email": "Ann@Example.com"})
    letters.wait_until_sent()
    page = shopper.get("/_demo/")
    assert "ann@example.com" in page.text
    assert 'href="http://localhost:8000/account/join/' in page.html
