"""Random lives of the shop. `make simulate` runs hundreds, and those of planted.py."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
from django.core import mail
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from orders.operations import place
from tests.simulation import machine

SEQUENCES = int(os.environ.get("SIMULATION_SEQUENCES", "24"))
STEPS = int(os.environ.get("SIMULATION_STEPS", "50"))
PARTS = 4


@pytest.fixture(autouse=True)
def quiet_shop(transactional_db: None, tune: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    tune(
        outbox_lease_seconds=30,
        inline_lease_seconds=5,
        outbox_retry_min_seconds=1.0,
        outbox_retry_max_seconds=60.0,
        void_look_seconds=60.0,
        replay_rate=1e6,
        reserve_seconds=900,
        degraded_reserve_seconds=3600,
    )
    monkeypatch.setattr(place, "quote_cart", machine.quote_cart)
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
    mail.outbox.clear()


def run(sequences: int, *, shrink: bool = False, repeatable: bool = False) -> None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        machine.Shop,
        _min_steps=0 if shrink else STEPS,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=repeatable,
            database=None,
            phases=phases,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_happens_no_money_is_lost_taken_twice_or_stuck(part: int) -> None:
    machine.steps.clear()
    run(SEQUENCES // PARTS, shrink="SIMULATION_SHRINK" in os.environ)
    print(f"part {part}: {sum(machine.steps.values())} turns: {dict(machine.steps.most_common())}")
