"""The catalog's client against the sandbox's catalog, healthy and not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from orders.catalog import CatalogAnswer, CatalogClient, CatalogUnavailable
from orders.pricing import Money
from tests.clients.neighbours import Process, chain, failures, running, soon

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with running("catalog") as started:
        yield started


@pytest.fixture
def sandbox(process: Process) -> Iterator[Process]:
    process.heal()
    yield process
    process.heal()
    process.control("DELETE", "products")


@pytest.fixture
def client(sandbox: Process) -> CatalogClient:
    return CatalogClient(sandbox.session(), chain(call_timeout=0.3), lambda: NOW, base="EUR")


def product(**changes: Any) -> dict[str, Any]:
    made = {
        "sku": "ROPE-12",
        "name": "Rope",
        "description": "",
        "price": {"amount_minor": 2450, "currency": "EUR"},
        "image_svg": "",
    }
    return {key: value for key, value in (made | changes).items() if value is not ...}


def answering(sandbox: Process, *products: Any, missing: Any = ()) -> None:
    body = {"products": list(products), "missing": list(missing), "total": len(products)}
    sandbox.faulty({"replace_body": json.dumps(body)}, path="/products")


def test_a_basket_is_fetched_in_one_call_with_names_price_picture_and_time(sandbox, client):
    answer = client.batch(["ROPE-12", "BELL-15", "ROPE-12"], soon())
    assert len(sandbox.ledger()["requests"]) == 1
    rope = answer.products["ROPE-12"]
    assert (rope.name, rope.names["ru"]) == ("Mooring rope, 12 mm", "Швартовый трос, 12 мм")
    assert rope.descriptions["ru"].startswith("Двадцать")
    assert (rope.price, rope.as_of) == (Money(2450, "EUR"), NOW)
    assert rope.image_svg.startswith("<svg")
    assert set(answer.products) == {"ROPE-12", "BELL-15"}
    assert (answer.missing, answer.broken) == (frozenset(), {})


def test_what_the_catalog_does_not_have_is_missing(client):
    answer = client.batch(["ROPE-12", "NO-SUCH"], soon())
    assert set(answer.products) == {"ROPE-12"}
    assert answer.missing == {"NO-SUCH"}


def test_what_cannot_be_a_sku_is_missing_without_a_call(sandbox, client):
    strange = ["", "A,B", "A&limit=1", "../x", "A\0", "x" * 41, "ы"]
    assert client.batch(strange, soon()) == CatalogAnswer({}, frozenset(strange))
    assert sandbox.ledger()["requests"] == []


def test_a_changed_price_is_seen_at_the_next_call(sandbox, client):
    sandbox.control("PUT", "products/ROPE-12", {"price_minor": 1})
    assert client.batch(["ROPE-12"], soon()).products["ROPE-12"].price == Money(1, "EUR")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"price": {"amount_minor": -1, "currency": "EUR"}}, "price"),
        ({"price": {"amount_minor": 19.99, "currency": "EUR"}}, "price"),
        ({"price": {"amount_minor": "1999", "currency": "EUR"}}, "price"),
        ({"price": {"amount_minor": True, "currency": "EUR"}}, "price"),
        ({"price": {"amount_minor": 10**8, "currency": "EUR"}}, "price"),
        ({"price": {"currency": "EUR"}}, "price"),
        ({"price": 1999}, "price"),
        ({"price": ...}, "price"),
        ({"price": {"amount_minor": 1999, "currency": "USD"}}, "currency"),
        ({"price": {"amount_minor": 1999}}, "currency"),
        ({"name": ""}, "name"),
        ({"name": " "}, "name"),
        ({"name": None}, "name"),
        ({"name": "Ro\u0007pe"}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"description": 5}, "description"),
        ({"sku": "OTHER"}, "neither found nor missing"),
    ],
)
def test_a_product_that_breaks_the_contract_is_named_and_spoils_no_other(sandbox, client, changes, reason):
    answering(sandbox, product(**changes), product(sku="BELL-15"))
    answer = client.batch(["ROPE-12", "BELL-15"], soon())
    assert set(answer.products) == {"BELL-15"}
    assert answer.broken == {"ROPE-12": reason}
    assert failures(client.chain) == 0


def test_a_product_given_twice_is_believed_neither_time(sandbox, client):
    answering(sandbox, product(), product(name="Other"), product(sku="BELL-15"))
    assert client.batch(["ROPE-12", "BELL-15"], soon()).broken == {"ROPE-12": "given twice"}


def test_a_product_nobody_asked_for_is_ignored(sandbox, client):
    answering(sandbox, product(), product(sku="EXTRA", price=None))
    assert set(client.batch(["ROPE-12"], soon()).products) == {"ROPE-12"}


def test_a_listed_product_that_breaks_the_contract_is_named_in_the_log_and_spoils_no_other(
    sandbox, client, caplog
):
    long = "L" * 41  # more than the tables have room for
    answering(sandbox, product(sku=long), product(price=None), product(sku="BELL-15"))
    listing = client.listing(soon())
    assert [found.sku for found in listing.products] == ["BELL-15"]
    (record,) = [record for record in caplog.records if record.message == "catalog broke its contract"]
    assert record.products == {f"'{long}'": "sku", "'ROPE-12'": "price"}


def test_a_dangerous_picture_and_an_unusable_translation_are_dropped_and_the_product_stays(sandbox, client):
    answering(sandbox, product(image_svg="<svg onload='x()'/>", name_ru=7, name_de="Seil", name_xxx="?"))
    found = client.batch(["ROPE-12"], soon()).products["ROPE-12"]
    assert (found.image_svg, found.names) == ("", {"de": "Seil"})


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"products": {}, "missing": []}',
        '{"products": []}',
        "<html>",
        '{"products": [NaN]}',
        '{"products": [7], "missing": []}',
        json.dumps({"products": [product(name=7)], "missing": []}),
    ],
)
def test_an_answer_nothing_can_be_used_of_is_unavailable_and_a_failure_for_the_breaker(sandbox, client, body):
    sandbox.faulty({"replace_body": body}, path="/products")
    with pytest.raises(CatalogUnavailable) as caught:
        client.batch(["ROPE-12"], soon())
    assert caught.value.reason == "bad_answer"
    assert failures(client.chain) == 1


@pytest.mark.parametrize(
    ("effect", "reason", "retry_after"),
    [
        ({"status": 503, "headers": {"Retry-After": "7"}}, "status_503", 7.0),
        ({"status": 422}, "status_422", None),
        ({"hang": True}, "no_answer", None),
        ({"trickle": "headers"}, "no_answer", None),
        ({"trickle": "body"}, "bad_answer", None),
        ({"reset": "before"}, "no_answer", None),
        ({"refuse": True}, "connect_failed", None),
        ({"pad_bytes": 2_000_000}, "bad_answer", None),
    ],
    ids=str,
)
def test_trouble_is_one_exception_in_time_with_a_hint_when_to_come_back(
    sandbox, client, effect, reason, retry_after
):
    sandbox.control("PUT", "faults", [{"effect": effect}])
    began = time.monotonic()
    with pytest.raises(CatalogUnavailable) as caught:
        client.batch(["ROPE-12"], soon())
    assert time.monotonic() - began < 0.5
    assert (caught.value.reason, caught.value.retry_after) == (reason, retry_after)


def test_the_listing_is_read_on_from_a_place_until_its_end(client):
    first = client.listing(soon())
    assert (len(first.products), first.next_offset) == (24, None)
    assert len(client.listing(soon(), offset=20).products) == 4


def test_the_listing_leaves_out_what_breaks_the_contract(sandbox, client):
    answering(
        sandbox, product(), product(sku="A/B"), product(sku="BELL-15", price=0), 7, product(name="Again")
    )
    listing = client.listing(soon())
    assert [(p.sku, p.name) for p in listing.products] == [("ROPE-12", "Rope")]
