"""A short storm in every run of the suite; `make chaos` blows for longer."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.chaos.storm import Storm
from tests.processes.harness import migrated_template

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", autouse=True)
def _template() -> Iterator[None]:
    with migrated_template() as name:
        os.environ["HOLDFAST_TEMPLATE_DATABASE"] = name
        yield


@pytest.mark.timeout(400)
def test_half_a_minute_of_everything_dying_costs_no_money_and_no_goods() -> None:
    report = Storm(random.randrange(10**6), 25, shoppers=2).blow()
    print(report)
    assert report.violations == []
    assert sum(report.orders.values()) > 0
