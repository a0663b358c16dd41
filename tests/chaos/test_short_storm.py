"""A short storm in every run of the suite; `make chaos` blows for longer."""

from __future__ import annotations

import random

import pytest

from tests.chaos.storm import Storm

pytestmark = pytest.mark.process


@pytest.mark.timeout(400)
def test_a_while_of_everything_dying_costs_no_money_and_no_goods() -> None:
    report = Storm(random.randrange(10**6), 12, shoppers=2).blow()
    print(report)
    assert report.violations == []
    assert sum(report.orders.values()) > 0
