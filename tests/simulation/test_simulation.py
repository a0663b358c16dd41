"""Thousands of random lives of the shop, and faults planted in it that they must find."""

from __future__ import annotations

import logging
import os
from typing import Any
from unittest.mock import patch

import pytest
from django.core import mail
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from orders import outbox
from orders.models import OutboxMessage
from orders.operations import place
from payments.models import Payment
from tests.simulation import machine

SEQUENCES = int(os.environ.get("SIMULATION_SEQUENCES", "40"))
STEPS = int(os.environ.get("SIMULATION_STEPS", "50"))
PARTS = 4
_ENOUGH = 400
"""Sequences within which a planted fault must be found: less than CI runs."""


@pytest.fixture(autouse=True)
def _quiet_shop(transactional_db: None, tune: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
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


def run(sequences: int, *, shrink: bool = False) -> None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        machine.Shop,
        _min_steps=0 if shrink else STEPS,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=STEPS,
            deadline=None,
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


def _without_the_token(lease: outbox.Lease) -> Any:
    """Planted: whoever names a message may acknowledge it."""
    rows = OutboxMessage.objects.filter(status="PENDING")
    return rows.filter(id=lease.message_id) if lease.message_id else rows.filter(dedup=lease.dedup)


def _key_of_the_attempt(payment: Payment) -> str:
    """Planted: every attempt to charge has a key of its own."""
    return f"charge-{payment.id}-{os.urandom(4).hex()}"


PLANTED = {
    "no lease token is asked for": (outbox, "_mine", _without_the_token),
    "a key is made for each attempt": (Payment, "idempotency_key", property(_key_of_the_attempt)),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_within_the_budget(fault: str) -> None:
    machine.steps.clear()
    where, name, wrong = PLANTED[fault]
    with patch.object(where, name, wrong), pytest.raises(machine.Violated) as found:
        run(_ENOUGH)
    print(f"{fault}: {sum(machine.steps.values())} turns, then: {found.value}")
