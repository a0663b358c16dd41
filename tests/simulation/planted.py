"""Faults planted in the shop, which the simulation must find: `make simulate`, not part of `make test`."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import pytest
from django.db.models import QuerySet

from orders import outbox
from orders.models import OutboxMessage
from orders.operations import undo
from payments.models import Payment
from tests.simulation import machine
from tests.simulation.test_simulation import quiet_shop, run

__all__ = ["quiet_shop"]
ENOUGH = 400
"""Sequences within which a planted fault must be found: less than CI runs."""


def _without_the_token(lease: outbox.Lease) -> Any:
    """Planted: whoever names a message may acknowledge it."""
    rows = OutboxMessage.objects.filter(status="PENDING")
    return rows.filter(id=lease.message_id) if lease.message_id else rows.filter(dedup=lease.dedup)


def _key_of_the_attempt(payment: Payment) -> str:
    """Planted: every attempt to charge has a key of its own."""
    return f"charge-{payment.id}-{os.urandom(4).hex()}"


def _expire_without_lock(order_id: int) -> bool:
    """Planted: expiry reads the order and takes no lock before it writes."""
    with patch.object(QuerySet, "select_for_update", lambda rows, **how: rows):
        return _expire(order_id)


_expire = undo._expire
PLANTED = {
    "no lease token is asked for": (outbox, "_mine", _without_the_token),
    "a key is made for each attempt": (Payment, "idempotency_key", property(_key_of_the_attempt)),
    "expiry takes no lock": (undo, "_expire", _expire_without_lock),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_within_the_budget(fault: str) -> None:
    machine.steps.clear()
    where, name, wrong = PLANTED[fault]
    with patch.object(where, name, wrong), pytest.raises(machine.Violated) as found:
        run(ENOUGH, repeatable=True)
    print(f"{fault}: {sum(machine.steps.values())} turns, then: {found.value}")
