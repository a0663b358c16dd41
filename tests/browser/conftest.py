"""One Chromium for the session, a fresh context for each shopper, workers played in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test.testcases import LiveServerThread
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Fails where there is no Chromium: a skipped check would look like a passed one."""
    # Playwright's loop runs in this thread, where Django would otherwise refuse to use the database.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def shop_url(django_db_setup: None) -> Iterator[str]:
    """The shop behind a real socket, with its own middleware for static files as in production."""
    server = LiveServerThread("127.0.0.1", static_handler=lambda application: application)
    server.daemon = True
    server.start()
    server.is_ready.wait(10)
    if server.error:
        raise server.error
    yield f"http://{server.host}:{server.port}"
    server.terminate()


@pytest.fixture(autouse=True)
def cheap_passwords(settings: Any) -> None:
    """Hashing shall be slow for thieves; here it would only be slow."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def visit(browser: Browser, world: Any, shop_url: str) -> Iterator[Callable[..., Page]]:
    """Opens the shop for a new person: `visit(javascript=False, language="ru", dark=True, size=PHONE)`."""
    contexts = []

    def open_shop(
        *, javascript: bool = True, language: str = "en", dark: bool = False, size: dict[str, int] = DESKTOP
    ) -> Page:
        context = browser.new_context(
            base_url=shop_url,
            java_script_enabled=javascript,
            locale=language,
            color_scheme="dark" if dark else "light",
            viewport=size,
        )
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.goto("/")
        return page

    yield open_shop
    for context in contexts:
        context.close()
