"""What a production start insists on, and what its pages send along."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from tests.world import Shopper, World

ROOT = Path(__file__).resolve().parent.parent.parent
GOOD = {
    "HOLDFAST_ENV": "production",
    "ALLOWED_HOSTS": "shop.example",
    "SECRET_KEY": "8Jd0sK2mQx7vLr4TzWc9YbNf6HpGa3Ue5XiRoBt1ZlVhSyDkEwMqPuCn",
    "DATABASE_URL": "postgresql://shop:db-secret@127.0.0.1/none",
    "BROKER_URL": "redis://127.0.0.1/0",
    "PAYMENT_URL": "https://pay.example",
    "PAYMENT_API_KEY": "sk_live_secret",
    "PAYMENT_WEBHOOK_SECRET": "whsec_secret",
    "CATALOG_URL": "https://catalog.example",
    "RATES_URL": "https://rates.example",
}
ADVISED = {"SITE_URL": "https://shop.example", "EMAIL_HOST": "mail.example"}


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": path, "HOLDFAST_HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_deployment_checks_have_nothing_to_say() -> None:
    done = run(sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING", **GOOD, **ADVISED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no issues" in done.stdout


def test_values_that_would_fail_at_the_first_order_stop_the_start_all_in_one_message_without_a_secret() -> (
    None
):
    wrong = {
        "DATABASE_URL": "postgresql://shop:db/secret@127.0.0.1/none",
        "BROKER_URL": "redis://[::1/0",
        "PAYMENT_URL": "https://shop:db-secret@pay.example",
        "CATALOG_URL": "https://catalog.example/#secret",
        "PAYMENT_API_KEY": "ключ-secret",
        "ALLOWED_HOSTS": "https://shop.example",
        "CSRF_TRUSTED_ORIGINS": "shop.example",
        "EMAIL_PORT": "99999",
        "WEB_THREADS": "1_6",
        "SHED_CHECKOUT_SHARE": "0_1",
    }
    done = run(sys.executable, "manage.py", "check", **{**GOOD, **wrong})
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert [name for name in wrong if f"{name} must " not in said] == []
    assert "Traceback" not in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("number", "wrong", "said"),
    [
        ("W004", {"EMAIL_HOST": ""}, "reach nobody"),
        ("W005", {"SITE_URL": "http://shop.example"}, "http://shop.example"),
        ("W006", {"ALLOWED_HOSTS": "*"}, "anybody's name"),
        ("W007", {"PAYMENT_URL": "http://pay.example"}, "in the open"),
    ],
)
def test_what_a_shop_for_strangers_may_not_do_without_is_named(
    number: str, wrong: dict[str, str], said: str
) -> None:
    done = run(sys.executable, "manage.py", "check", "--deploy", **{**GOOD, **ADVISED, **wrong})
    assert f"holdfast.{number}) " in done.stderr, done.stderr
    assert said in done.stderr


def test_two_ways_to_protect_mail_exclude_each_other() -> None:
    done = run(sys.executable, "manage.py", "check", **GOOD, EMAIL_USE_TLS="1", EMAIL_USE_SSL="1")
    assert "EMAIL_USE_TLS and EMAIL_USE_SSL exclude each other" in done.stderr


@pytest.mark.parametrize("command", ["manage.py check", "gunicorn -c config/gunicorn.py config.wsgi"])
def test_everything_that_is_missing_is_named_at_once_and_no_secret_is_told(command: str) -> None:
    words = command.split()
    given = {
        "PAYMENT_API_KEY": "sk_live_secret",
        "DATABASE_URL": "mysql://shop:db-secret@db/none",
        "SECRET_KEY": "weak",
    }
    done = run(
        *([sys.executable, *words] if words[0] == "manage.py" else words), HOLDFAST_ENV="production", **given
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    missing = set(GOOD) - set(given) - {"HOLDFAST_ENV"}
    assert {name for name in missing if f"{name} is not set" in said} == missing, said
    assert "DATABASE_URL must be" in said
    assert "SECRET_KEY must have" in said
    assert not any(secret in said for secret in ("sk_live", "db-secret", "weak", "Traceback")), said


def test_pages_hold_nothing_that_the_content_policy_would_have_to_excuse(
    world: World, shopper: Shopper
) -> None:
    order = shopper.buy().path
    for path in (
        "/",
        "/cart/",
        "/checkout/",
        order,
        "/account/login/",
        "/account/join/",
        "/admin/login/",
        "/nothing/",
    ):
        page = shopper.get(path)
        policy = page.headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert "no-store" in page.headers["Cache-Control"] or "no-cache" in page.headers["Cache-Control"], (
            path
        )
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|<script(?![^>]*\ssrc=)", page.html), (
            path
        )


@pytest.mark.parametrize("path", ["/account/login/", "/admin/login/"])
def test_an_address_that_tries_passwords_hears_429_and_others_do_not(
    world: World, path: str, settings: Any
) -> None:
    settings.PASSWORD_HASHERS = [
        "django.contrib.auth.hashers.MD5PasswordHasher"
    ]  # its cost is not the subject
    get_user_model().objects.create_user("ann@example.com", password="right-horse-battery")
    client = Client()
    wrong = {"username": "ann@example.com", "password": "x"}
    answers = [client.post(path, wrong).status_code for _ in range(32)]
    assert answers[0] == 200
    assert 429 in answers
    refused = client.post(path, {"username": "ann@example.com", "password": "right-horse-battery"})
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) >= 1
    elsewhere = Client(REMOTE_ADDR="10.9.9.9").post(path, wrong)
    assert elsewhere.status_code == 200
