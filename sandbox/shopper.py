"""A shopper over HTTP, for the programs that play an incident from outside: smoke, chaos, lab."""

import re
import time
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import requests

VISA = "pm_card_visa"
_FIELD = re.compile(r'<input type="hidden" name="(token|basket|shown_total|currency)" value="([^"]*)"')
_STATE = re.compile(r'class="words ([a-z-]+)"')
_TOTAL = re.compile(r'<td class="total">([^<]*)</td>')


@dataclass(frozen=True)
class Answer:
    """What came back for one submitted form. `seconds`: how long the shopper waited for it."""

    status: int
    order: str | None
    seconds: float


class Shopper:
    """One person with a browser of their own. Not thread-safe. Raises requests' exceptions."""

    def __init__(self, base: str, timeout: float = 30.0) -> None:
        self._base = base.rstrip("/")
        self._timeout = timeout
        self._session = requests.Session()
        self._session.trust_env = False

    def get(self, path: str) -> requests.Response:
        return self._session.get(self._base + path, timeout=self._timeout)

    def post(self, path: str, **fields: Any) -> requests.Response:
        """Posts a form with the session's CSRF token; redirects are not followed."""
        fields["csrfmiddlewaretoken"] = self._session.cookies.get("csrftoken", "")
        return self._session.post(
            self._base + path, data=fields, timeout=self._timeout, allow_redirects=False
        )

    def twin(self) -> "Shopper":
        """The same person's other hand: the same session, connections of its own."""
        other = Shopper(self._base, self._timeout)
        other._session.cookies.update(self._session.cookies)
        return other

    def cookies(self) -> dict[str, str]:
        """The session's cookies."""
        return dict(self._session.cookies.items())

    def hang_up(self) -> None:
        """Closes the connections; the next request makes one."""
        self._session.close()

    def fill_basket(self, sku: str, quantity: int = 1) -> dict[str, str]:
        """Puts a product into the basket and returns the checkout's form, filled in."""
        self.get("/cart/")
        self.post("/cart/add/", sku=sku, quantity=quantity)
        form = dict(_FIELD.findall(self.get("/checkout/").text))
        return {**form, "email": "shopper@example.com", "address": "Quay 1", "method": VISA}

    def submit(self, form: dict[str, str]) -> Answer:
        """Confirms the order. `order` is the path of its page, None if there is no order."""
        begun = time.monotonic()
        response = self.post("/checkout/", **form)
        seconds = time.monotonic() - begun
        path = urlsplit(response.headers.get("Location", "")).path
        return Answer(response.status_code, path if path.startswith("/orders/") else None, seconds)

    def state(self, order: str) -> str:
        """The situation that the order's page tells: paid, awaiting, confirming, declined, …"""
        found = _STATE.search(self.get(order).text)
        return found.group(1) if found else ""

    def total(self, order: str) -> str:
        """The total as the order's page shows it."""
        found = _TOTAL.search(self.get(order).text)
        return unescape(found.group(1)) if found else ""
