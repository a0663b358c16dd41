"""Signing up and a forgotten password: by a link in a mail, once, with the basket kept."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model

from orders import letters
from orders.models import CartLine
from orders.operations import carts
from payments import dbtime
from tests.world import Page, Shopper, World

SECRET = "three words of rope"


def link_in(mail: Any) -> str:
    """The path of the mail's link, the same in both parts."""
    text = re.findall(r"http://localhost:8000(/account/\S+)", mail.body)
    assert f'href="http://localhost:8000{text[0]}"' in mail.alternatives[0].content.replace("&amp;", "&")
    return str(text[0])


def choose(shopper: Shopper, path: str, password: str = SECRET) -> Page:
    shown = shopper.get(path)
    return shopper.post(shown.path, {"new_password1": password, "new_password2": password})


def test_a_guest_signs_up_by_mail_and_keeps_the_basket(
    world: World, shopper: Shopper, mailoutbox: list[Any]
) -> None:
    shopper.put_in_basket()
    page = shopper.post("/account/join/", {"email": "Ann@Example.com"})
    assert "Please look into your mailbox" in page.text
    assert not get_user_model().objects.exists()
    letters.wait_until_sent()
    link = link_in(mailoutbox[0])
    weak = choose(shopper, link, "12345")
    assert weak.status == 422
    assert "too short" in weak.text
    page = choose(shopper, link)
    assert "Welcome aboard" in page.text
    assert page.path == "/account/orders/"
    assert "Mooring rope" in shopper.get("/cart/").text
    assert get_user_model().objects.get().email == "ann@example.com"
    again = Shopper().get(link)
    assert again.status == 410
    assert "has been used or has run out" in again.text


def test_a_forgotten_password_is_replaced_once_and_logs_in(
    world: World, mailoutbox: list[Any], django_user_model: Any
) -> None:
    django_user_model.objects.create_user("ann@example.com", "ann@example.com", "old and forgotten")
    shopper = Shopper()
    shopper.post("/account/password/", {"email": "ann@example.com"})
    letters.wait_until_sent()
    link = link_in(mailoutbox[0])
    page = choose(shopper, link)
    assert "Your new password is set" in page.text
    assert "has been used or has run out" in Shopper().get(link).text
    fresh = Shopper()
    assert (
        "do not belong together"
        in fresh.post(
            "/account/login/", {"username": "ann@example.com", "password": "old and forgotten"}
        ).text
    )
    page = fresh.post("/account/login/", {"username": "ANN@example.com", "password": SECRET})
    assert page.path == "/account/orders/"


@pytest.mark.parametrize("path", ["/account/join/", "/account/password/"])
@pytest.mark.parametrize("typed", ["", "ann at example", "x" * 150 + "@example.com", "a@b\n.com"])
def test_an_address_that_is_none_comes_back_with_a_sentence(
    world: World, shopper: Shopper, path: str, typed: str
) -> None:
    page = shopper.post(path, {"email": typed})
    assert page.status == 422
    assert 'role="alert"' in page.html
    assert 'aria-invalid="true"' in page.html
    assert 'aria-describedby="id_email_error"' in page.html


def test_nobody_s_mailbox_is_filled_by_strangers(world: World, mailoutbox: list[Any], settings: Any) -> None:
    settings.PROXY_COUNT = 1
    for number in range(8):
        asker = Shopper(headers={"X-Forwarded-For": f"198.51.100.{number}"})
        page = asker.post(
            "/account/password/", {"email": "Ann@example.com" if number % 2 else "ann@example.com"}
        )
    assert page.status == 429
    assert "Too many mails with a link" in page.text
    letters.wait_until_sent()
    assert len(mailoutbox) == 5
    assert asker.post("/account/join/", {"email": "bob@example.com"}).status == 200


def test_one_network_does_not_write_to_everybody(
    world: World, shopper: Shopper, mailoutbox: list[Any]
) -> None:
    answers = [shopper.post("/account/join/", {"email": f"n{i}@example.com"}).status for i in range(40)]
    assert answers == [200] * 30 + [429] * 10
    letters.wait_until_sent()


def test_a_host_that_a_client_made_up_is_in_no_mail(
    world: World, mailoutbox: list[Any], settings: Any
) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    Shopper(headers={"Host": "evil.example"}).post("/account/join/", {"email": "ann@example.com"})
    letters.wait_until_sent()
    assert "evil.example" not in mailoutbox[0].body + mailoutbox[0].alternatives[0].content


def test_a_dead_mail_server_holds_up_no_page(
    world: World, shopper: Shopper, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    assert shopper.post("/account/join/", {"email": "ann@example.com"}).status == 200
    letters.wait_until_sent()
    assert "a mail could not be sent" in caplog.text
    assert "ann@example.com" not in caplog.text


def test_a_link_signed_for_something_else_opens_nothing(world: World, shopper: Shopper) -> None:
    from django.core import signing

    for forged in ("x", signing.dumps("ann@example.com"), signing.dumps("ann@example.com", salt="other")):
        assert shopper.get(f"/account/join/{forged}/").status == 410


def test_log_in_sends_nobody_to_another_site(world: World, django_user_model: Any) -> None:
    django_user_model.objects.create_user("ann@example.com", "ann@example.com", SECRET)
    form = {"username": "ann@example.com", "password": SECRET, "next": "//evil.example/"}
    assert Shopper().post("/account/login/", form).path == "/account/orders/"


def test_a_basket_that_does_not_fit_into_the_one_at_home_is_told_of(
    world: World, shopper: Shopper, django_user_model: Any
) -> None:
    user = django_user_model.objects.create_user("ann@example.com", "ann@example.com", SECRET)
    home = carts.add(carts.Owner(None, user.pk), "BELL-15", 990)
    for number in range(carts.MAX_LINES - 1):
        CartLine.objects.create(
            cart_id=home.id,
            sku=f"X-{number}",
            quantity=1,
            names={},
            price_minor=1,
            currency="EUR",
            priced_at=dbtime.read(),
        )
    shopper.put_in_basket("BELL-15", 20)
    shopper.put_in_basket("ROPE-12", 1)
    form = {"username": "ann@example.com", "password": SECRET}
    page = shopper.post("/account/login/", form)
    assert "Not everything you had put into it fitted in" in page.text
    lines = CartLine.objects.filter(cart_id=home.id)
    assert lines.count() == carts.MAX_LINES
    assert lines.get(sku="BELL-15").quantity == carts.MAX_QUANTITY
