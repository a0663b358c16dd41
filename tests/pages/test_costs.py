"""What a page costs the database: the number of statements is pinned, whatever is in the basket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orders.models import ProductSnapshot
from tests.world import Shopper, World

MOST_OF_A_CHECKOUT = 13
PINNED = {
    "catalog": 7,
    "search": 7,
    "add": 6,
    "basket": 5,
    "checkout form": 4,
    "checkout": 12,
    "same checkout again": 2,
    "order": 6,
    "order's update": 4,
    "wrong link": 3,
}


def cost(call: Callable[[], Any]) -> int:
    """Statements, without BEGIN and COMMIT, which carry no work of their own."""
    with CaptureQueriesContext(connection) as captured:
        call()
    return len([query for query in captured if query["sql"] not in {"BEGIN", "COMMIT"}])


def costs(lines: int, currency: str) -> dict[str, int]:
    """What each page costs with so many products in the basket."""
    shopper = Shopper()
    skus = list(ProductSnapshot.objects.values_list("sku", flat=True)[:lines])
    for sku in skus:
        shopper.put_in_basket(sku)
    shopper.post("/currency/", {"currency": currency, "back": "cart"})
    more = {"sku": skus[0], "quantity": 1}
    found = {
        "catalog": cost(lambda: shopper.get("/")),
        "search": cost(lambda: shopper.get("/?q=rope")),
        "add": cost(lambda: shopper.post("/cart/add/", more, follow=False)),
        "basket": cost(lambda: shopper.get("/cart/")),
        "checkout form": cost(lambda: shopper.get("/checkout/")),
    }
    form, answers = shopper.checkout_form(), []
    found["checkout"] = cost(lambda: answers.append(shopper.post("/checkout/", form, follow=False)))
    order = answers[0].path
    assert order.startswith("/orders/")
    found["same checkout again"] = cost(lambda: shopper.post("/checkout/", form, follow=False))
    found["order"] = cost(lambda: shopper.get(order))
    found["order's update"] = cost(lambda: shopper.client.get(order, headers={"HX-Request": "true"}))
    found["wrong link"] = cost(lambda: shopper.get("/orders/wrong/"))
    return found


@pytest.mark.parametrize("lines", [1, 15])
def test_the_number_of_statements_is_known_for_every_page_and_does_not_grow_with_the_basket(
    world: World, lines: int
) -> None:
    assert costs(lines, "EUR") == PINNED


def test_another_currency_costs_at_most_one_statement_more(world: World) -> None:
    dearer = costs(3, "USD")
    more = {page: dearer[page] - PINNED[page] for page in PINNED if dearer[page] != PINNED[page]}
    assert more == {"basket": 1, "checkout form": 1, "checkout": 1}
    assert dearer["checkout"] <= MOST_OF_A_CHECKOUT
