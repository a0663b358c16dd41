"""English and Russian, complete: catalogs, pages and mails."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.utils import translation

from config.management.commands import catalogs
from orders.models import Order
from tests.neighbours import REFUSE
from tests.world import DECLINED, Shopper, World

ROOT = django_settings.BASE_DIR
_ASKING = {"_", "_now", "gettext", "gettext_lazy", "ngettext", "ngettext_lazy"}


def texts(value: Any) -> list[str]:
    return list(value) if isinstance(value, tuple | list) else [value]


def marks(text: str) -> list[str]:
    """What a translation must keep: placeholders and tags."""
    return sorted(set(re.findall(r"%\(\w+\)[sd]|\{\w+\}|</?\w+[^>]*>", text)))


@pytest.mark.parametrize("language", ["en", "ru"])
def test_every_text_that_is_asked_for_is_translated_and_no_other_is_kept(language: str) -> None:
    found, kept = catalogs.gather(ROOT), catalogs.read(ROOT, language)
    wanted = {(message.id, message.context) for message in found if message.id}
    present = {(message.id, message.context) for message in kept if message.id and not message.fuzzy}
    assert present == wanted
    assert [message.id for message in kept if message.id and not catalogs.is_translated(message)] == []


def test_the_gathering_misses_no_call_in_the_code() -> None:
    known = {text for message in catalogs.gather(ROOT) for text in texts(message.id)}
    asked = set()
    for package in ("config", "orders", "payments"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ASKING:
                    asked |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    assert {text for text in asked if isinstance(text, str)} - known == set()


def test_placeholders_and_tags_agree_in_every_form() -> None:
    for message in catalogs.read(ROOT, "ru"):
        if message.id:
            forms = texts(message.id)
            for said in texts(message.string):
                assert marks(said) in [marks(form) for form in forms], message.id


def test_russian_plurals_have_three_forms() -> None:
    plural = [message for message in catalogs.read(ROOT, "ru") if isinstance(message.id, tuple | list)]
    assert plural
    assert {len(message.string) for message in plural} == {3}


@pytest.mark.parametrize("language", ["en", "ru"])
def test_the_compiled_catalog_is_the_kept_one(language: str) -> None:
    po = catalogs.catalog_file(ROOT, language)
    assert po.with_suffix(".mo").read_bytes() == catalogs.as_mo(catalogs.read(ROOT, language))
    assert po.read_bytes() == catalogs.as_po(catalogs.updated(ROOT, language, catalogs.gather(ROOT)))


_NAMES = {"holdfast", "english", "example", "com", "ann", "shop"}


def english_words(text: str) -> list[str]:
    """Words in Latin letters that are neither names nor codes."""
    text = re.sub(r"\S+@\S+|HF-\S+|https?://\S+", " ", text)
    return [
        word
        for word in re.findall(r"[A-Za-z]{3,}", text)
        if not word.isupper() and word.lower() not in _NAMES
    ]


def test_no_page_of_the_shop_falls_back_to_english_for_a_russian_reader(world: World) -> None:
    shopper = Shopper(headers={"Accept-Language": "ru"})
    pages = [shopper.get("/"), shopper.get("/?q=777"), shopper.get("/cart/"), shopper.get("/nowhere/")]
    pages += [shopper.put_in_basket(quantity="1,5"), shopper.put_in_basket("ROPE-12", 2)]
    form = shopper.checkout_form(email="ann at example")
    pages += [shopper.submit(form), shopper.submit({**form, "email": "ann@example.com", "shown_total": 1})]
    world.fault(world.gateway, REFUSE)
    order = shopper.buy()
    pages += [
        order,
        shopper.post(f"{order.path}cancel/", {}),
        Shopper(headers={"Accept-Language": "ru"}).buy(method=DECLINED),
    ]
    for path in ("login/", "join/", "password/", "sent/", "join/bad/"):
        pages.append(shopper.get(f"/account/{path}"))
    pages.append(shopper.post("/account/login/", {"username": "x", "password": "y"}))
    for page in pages:
        assert english_words(page.text) == [], page.path


@pytest.mark.parametrize(
    ("language", "subject", "words", "sum_"),
    [
        ("en", "is paid", "Thank you. Your payment has arrived", "€49.00"),
        ("ru", "оплачен", "Спасибо. Оплата получена", "49,00\xa0€"),
    ],
)
def test_a_mail_says_in_text_and_html_what_the_page_says(
    world: World, mailoutbox: list[Any], language: str, subject: str, words: str, sum_: str
) -> None:
    shopper = Shopper(headers={"Accept-Language": language})
    page = shopper.buy(quantity=2)
    world.work()
    [mail] = mailoutbox
    assert subject in mail.subject
    assert world.order().number in mail.subject
    assert mail.to == ["ann@example.com"]
    html = mail.alternatives[0].content
    for part in (mail.body, html):
        assert words in part
        assert sum_ in part
        assert f"http://localhost:8000{page.path}" in part
    assert words in page.text
    assert f'lang="{language}"' in html


def test_every_notice_has_both_parts_in_both_languages(world: World) -> None:
    from orders.operations import notify

    for card in ("pm_card_visa", DECLINED, "pm_card_authenticationRequired"):
        Shopper().buy(method=card)
    for order in Order.objects.all():
        for language in ("en", "ru"):
            order.language = language
            for kind in ("accepted", "paid", "declined", "cancelled", "refunded", "action_required"):
                mail = notify.compose(order, kind, order.number)
                text = re.sub(r"\s+", " ", mail.body)
                assert order.number in text
                for sentence in re.findall(r"<p>([^<]+)</p>", mail.alternatives[0].content):
                    assert sentence.replace("&#x27;", "'").strip() in text


def test_a_products_name_in_a_mail_is_text_and_not_markup(world: World, mailoutbox: list[Any]) -> None:
    world.control(world.catalog, "PUT", "/_sandbox/products/ROPE-12", {"name": "<b>Rope & 'line'</b>"})
    Shopper().buy()
    world.work()
    assert "<b>Rope & 'line'</b>" in mailoutbox[0].body
    assert "&lt;b&gt;Rope &amp; &#x27;line&#x27;&lt;/b&gt;" in mailoutbox[0].alternatives[0].content


def test_the_catalogs_are_those_of_the_languages_offered() -> None:
    with translation.override("ru"):
        assert translation.gettext("Basket") == "Корзина"
    assert [code for code, _name in django_settings.LANGUAGES] == ["en", "ru"]
