"""A kept-alive connection that the gateway has just closed costs no shopper anything (OP-09)."""

from __future__ import annotations

import time

import pytest

from tests.world import Shopper, World


def test_fifty_checkouts_over_connections_that_are_closed_after_each_answer_are_all_paid(
    world: World,
) -> None:
    world.fault(world.gateway, {"effect": {"close_after_answer_ms": 30}})
    for number in range(50):
        page = Shopper().buy()
        assert "Thank you" in page.text, f"checkout {number}"
        # The pause is the subject: now and then the close and the next request meet.
        time.sleep(0.01 * (number % 5))
    assert len(world.charges) == 50


@pytest.mark.parametrize("way", ["reset", "close"])
def test_a_charge_that_was_booked_without_an_answer_is_never_made_again_with_another_key(
    world: World, shopper: Shopper, way: str
) -> None:
    world.fault(world.gateway, {"match": {"method": "POST", "count": 1}, "effect": {way: "after"}})
    page = shopper.buy()
    world.work()
    assert "Thank you" in shopper.get(page.path).text
    assert len(world.charges) == 1
    assert len({call["idempotency_key"] for call in world.money_calls}) == 1
