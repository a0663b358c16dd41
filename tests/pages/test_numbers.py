"""Numbers written the local way, in German, French, Arabic, Russian and English (OP-39)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils import translation

from orders.models import CartLine, ProductSnapshot
from orders.pricing import Money
from orders.templatetags.shop import money
from tests.world import Page, Shopper, World

LANGUAGES = ["de", "fr", "ar", "ru", "en"]
TYPED = [
    "1.000",
    "1,000",
    "1 000",
    "1\u00a0000",
    "1\u202f000",
    "1'000",
    "1,5",
    "1.5",
    "٣",
    "1e2",
    "0x10",
    "+5",
    "-1",
    "0",
    "1000",
]


@pytest.fixture
def speaking(settings: Any) -> Any:
    """A shopper in a language, on a site that groups thousands wherever nobody forbids it."""
    settings.LANGUAGES = [(code, code) for code in LANGUAGES]
    settings.USE_THOUSAND_SEPARATOR = True

    def make(language: str) -> Shopper:
        return Shopper(headers={"Accept-Language": language})

    return make


def plain(page: Page) -> None:
    """Whatever goes back to the shop is digits without any grouping."""
    for tag in re.findall(r"<input[^>]*>", page.html):
        if re.search(r'name="(quantity|shown_total|sku|token)"', tag) and "aria-invalid" not in tag:
            value = re.search(r'value="([^"]*)"', tag)
            assert value
            assert re.fullmatch(r"[A-Za-z0-9-]*", value[1]), tag


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_posted_back_is_plain_digits_and_large_orders_go_through(
    world: World, speaking: Any, language: str
) -> None:
    world.stock("SEXTANT-M", 1500)
    shopper = speaking(language)
    page = shopper.put_in_basket("SEXTANT-M", 999)
    assert f'lang="{language}"' in page.html
    plain(page)
    assert 'value="999"' in page.html
    plain(shopper.get("/checkout/"))
    form = shopper.checkout_form()
    assert form["shown_total"] == "39860100"
    order = shopper.submit(form)
    assert order.path.startswith("/orders/")
    assert [charge["amount"] for charge in world.charges] == [39860100]
    shown = money(Money(39860100, "EUR"))
    with translation.override(language):
        assert money(Money(39860100, "EUR")) in order.html, shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_typed_number_is_read_exactly_or_refused_and_shown_again(
    world: World, speaking: Any, language: str
) -> None:
    shopper = speaking(language)
    shopper.put_in_basket("ROPE-12", 7)
    for typed in TYPED:
        page = shopper.post("/cart/update/", {"sku": "ROPE-12", "quantity": typed})
        assert page.status == 422, typed
        assert 'role="alert"' in page.html
        assert CartLine.objects.get().quantity == 7, typed
    assert shopper.post("/cart/update/", {"sku": "ROPE-12", "quantity": " 12 "}).status == 200
    assert CartLine.objects.get().quantity == 12


@pytest.mark.parametrize(
    ("language", "shown"),
    [
        ("de", "398.601,00\xa0€"),
        ("fr", "398\u202f601,00\xa0€"),
        ("ru", "398\xa0601,00\xa0€"),
        ("en", "€398,601.00"),
    ],
)
def test_an_amount_has_the_separators_of_its_language(language: str, shown: str) -> None:
    with translation.override(language):
        assert money(Money(39860100, "EUR")) == shown


def test_in_arabic_an_amount_is_kept_together_and_the_page_runs_from_right_to_left(
    world: World, speaking: Any
) -> None:
    page = speaking("ar").put_in_basket()
    assert 'dir="rtl"' in page.html
    with translation.override("ar"):
        shown = money(Money(2450, "EUR"))
    assert shown[0] == "\N{FIRST STRONG ISOLATE}"
    assert shown[-1] == "\N{POP DIRECTIONAL ISOLATE}"
    assert shown in page.html


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_hidden_amount_is_only_compared_and_only_if_it_is_digits(
    world: World, speaking: Any, language: str
) -> None:
    shopper = speaking(language)
    shopper.put_in_basket()
    for typed in ("2.450", "2,450", "24,50", "24.50", "2 450", "-2450", ""):
        page = shopper.submit(shopper.checkout_form(shown_total=typed))
        assert page.status == 422, typed
    assert world.money_calls == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_admins_numbers_survive_being_looked_at(
    world: World, speaking: Any, django_user_model: Any, language: str
) -> None:
    django_user_model.objects.create_superuser("boss", password="a long secret")
    world.stock("ROPE-12", 12345)
    shopper = speaking(language)
    shopper.client.login(username="boss", password="a long secret")
    assert shopper.get("/admin/orders/stockitem/ROPE-12/change/").status == 200
    shopper.post("/admin/orders/stockitem/ROPE-12/change/", {"_save": "Save"})
    from orders.models import StockItem

    assert StockItem.objects.get(sku="ROPE-12").on_hand == 12345
    assert ProductSnapshot.objects.get(sku="ROPE-12").price_minor == 2450
