"""The world of a test: neighbours with faults and books, stock, shoppers, workers in the same process."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser
from typing import Any

from django.test import Client

from orders import audit, outbox, tasks
from orders.models import Order, OutboxMessage, StockItem
from orders.operations import quoting
from payments import dbtime
from payments.ledger import read_ledger
from resilience.deadline import Deadline
from tests.neighbours import Neighbourhood

VISA = "pm_card_visa"
DECLINED = "pm_card_chargeDeclined"
NEEDS_ACTION = "pm_card_authenticationRequired"


class _Forms(HTMLParser):
    """The forms of a page: their addresses and what a browser would send."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: dict[str, dict[str, str]] = {}
        self._current: dict[str, str] | None = None
        self._select: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._current = self.forms.setdefault(given.get("action", ""), {})
        elif self._current is None:
            return
        elif tag == "input" and "name" in given:
            ticked = given.get("type") in {"radio", "checkbox"}
            if not ticked or "checked" in given:
                self._current[given["name"]] = given.get("value", "on" if ticked else "")
        elif tag == "select":
            self._select = given.get("name")
        elif tag == "option" and self._select and (self._select not in self._current or "selected" in given):
            self._current[self._select] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._current = None


def forms_of(html: str) -> dict[str, dict[str, str]]:
    parser = _Forms()
    parser.feed(html)
    return parser.forms


@dataclass
class Page:
    """What a person sees after a step."""

    status: int
    html: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        body = re.sub(r"(?s)<(script|style|svg).*?</\1>", " ", self.html)
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))

    @property
    def forms(self) -> dict[str, dict[str, str]]:
        return forms_of(self.html)


class Shopper:
    """A person with a browser, on the test client."""

    def __init__(self, **headers: str) -> None:
        self.client = Client(**headers)

    def get(self, path: str) -> Page:
        return self._page(self.client.get(path, follow=True), path)

    def post(self, path: str, data: dict[str, Any], *, follow: bool = True) -> Page:
        return self._page(self.client.post(path, data, follow=follow), path)

    def _page(self, response: Any, path: str) -> Page:
        chain = getattr(response, "redirect_chain", [])
        where = chain[-1][0] if chain else response.headers.get("Location", path)
        return Page(response.status_code, response.content.decode(), where, dict(response.headers))

    def put_in_basket(self, sku: str = "ROPE-12", quantity: int | str = 1) -> Page:
        return self.post("/cart/add/", {"sku": sku, "quantity": quantity})

    def checkout_form(self, **changes: Any) -> dict[str, Any]:
        """The checkout page's form as filled in by a person."""
        page = self.get("/checkout/")
        form: dict[str, Any] = dict(page.forms.get("/checkout/", {}))
        assert "token" in form, f"no form on the page: {page.text[:400]}"
        form.update(email="ann@example.com", method=VISA)
        form.update(changes)
        return form

    def submit(self, form: dict[str, Any]) -> Page:
        return self.post("/checkout/", form)

    def buy(self, sku: str = "ROPE-12", quantity: int = 1, **changes: Any) -> Page:
        """From the shelf to the order page."""
        self.put_in_basket(sku, quantity)
        return self.submit(self.checkout_form(**changes))


class World(Neighbourhood):
    """Neighbours, stock and workers. After each test the invariants are checked."""

    def __init__(self) -> None:
        super().__init__()
        self.audited = True

    def open_shop(self, units: int = 100) -> None:
        """Products from the catalog, rates, and so many units of each."""
        assert quoting.refresh_catalog(Deadline.after_ms(5000))
        assert quoting.refresh_rates(Deadline.after_ms(5000))
        from orders.models import ProductSnapshot

        StockItem.objects.bulk_create(
            [
                StockItem(sku=sku, on_hand=units)
                for sku in ProductSnapshot.objects.values_list("sku", flat=True)
            ]
        )

    def stock(self, sku: str, units: int) -> None:
        StockItem.objects.filter(sku=sku).update(on_hand=units)

    def order(self) -> Order:
        return Order.objects.get()

    def work(self, rounds: int = 3, *, later: float = 1.0) -> None:
        """Workers take their turns, each round a little later than the one before."""
        for turn in range(rounds):
            with dbtime.shifted(timedelta(seconds=later * turn)):
                tasks.drain("payment")
                tasks.drain("mail")

    def later(self, seconds: float) -> Any:
        return dbtime.shifted(timedelta(seconds=seconds))

    def dead_letters(self) -> list[outbox.DeadLetter]:
        return outbox.dead_letters()

    def pending(self, kind: str) -> int:
        return OutboxMessage.objects.filter(kind=kind, status="PENDING").count()

    def violations(self) -> list[audit.Violation]:
        return audit.audit([audit.LedgerCharge(**charge) for charge in read_ledger()])

    @contextmanager
    def unaudited(self) -> Iterable[None]:
        """For tests that damage the books on purpose."""
        self.audited = False
        yield
