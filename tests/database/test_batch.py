"""Rows of several tables in one statement."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orders.models import IdempotencyRecord, ProductSnapshot, StockItem
from payments import dbtime
from payments.batch import Batch

TOKEN = "8f9f4f1e-2c1f-4a70-9a39-0d0b6f3a1c11"


def product(sku: str, price: int = 1) -> ProductSnapshot:
    return ProductSnapshot(
        sku=sku,
        names={"en": "'%s"},
        descriptions={},
        price_minor=price,
        currency="EUR",
        fetched_at=dbtime.read(),
    )


@pytest.mark.django_db
def test_new_and_changed_rows_of_several_tables_are_one_statement() -> None:
    old = StockItem.objects.create(sku="OLD", on_hand=1)
    with CaptureQueriesContext(connection) as captured, Batch() as batch:
        batch.insert(StockItem(sku="NEW", on_hand=5), told := product("NEW"))
        old.on_hand = 2
        batch.save(old)
        batch.save(told)
        told.price_minor = 7
    assert len([query for query in captured if "clock_timestamp" not in query["sql"]]) == 1
    assert dict(StockItem.objects.values_list("sku", "on_hand")) == {"OLD": 2, "NEW": 5}
    assert ProductSnapshot.objects.values_list("names", "price_minor").get() == ({"en": "'%s"}, 7)


@pytest.mark.django_db
def test_a_block_that_fails_writes_nothing() -> None:
    def fail() -> None:
        with Batch() as batch:
            batch.insert(StockItem(sku="NEW", on_hand=5))
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert not StockItem.objects.exists()


@pytest.mark.django_db
def test_what_is_there_already_stays_when_conflicts_are_ignored() -> None:
    IdempotencyRecord.objects.create(token=TOKEN, owner="first", order_token="a")
    with Batch() as batch:
        batch.insert(IdempotencyRecord(token=TOKEN, owner="second", order_token="b"), ignore_conflicts=True)
    assert IdempotencyRecord.objects.values_list("owner", flat=True).get() == "first"
