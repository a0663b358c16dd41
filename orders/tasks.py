"""Celery's envelopes: each calls one operation. All state is in the database; a tick may be lost or doubled."""

from __future__ import annotations

import time

from celery import shared_task
from django.conf import settings

from orders import housekeeping, outbox
from orders.operations import quoting, sweep, undo
from payments import mode, probing, throttle
from payments import operations as payments
from payments.states import EffectiveMode
from resilience.deadline import own_deadline
from resilience.stopping import FAMILY, Stage

DRAIN_SECONDS = 20.0
"""How long one tick keeps draining payments before it lets the next one take over."""
MAIL_SECONDS = 1.0
"""The same for mail, which shares its workers with the ticks that nothing may delay."""


@shared_task
def drain(destination: str) -> int:
    """Delivers what is due for one destination, one message at a time, until nothing is left."""
    delivered = 0
    end = time.monotonic() + (DRAIN_SECONDS if destination == outbox.PAYMENT else MAIL_SECONDS)
    while time.monotonic() < end and FAMILY.now is Stage.SERVING:
        if destination == outbox.PAYMENT and payments.paused_for():
            throttle.restart(throttle.REPLAY)
            break
        leases = outbox.claim(destination, 1, held=mode.current().held)
        if not leases:
            if destination == outbox.PAYMENT and not delivered:
                probing.probe_if_degraded()
            break
        for lease in leases:
            outbox.deliver(lease)
            delivered += 1
    return delivered


@shared_task
def control_mode() -> str:
    """The controller of degraded mode takes its turn."""
    before, now = mode.current().effective, mode.tick(outbox.charges_waiting).effective
    if now == EffectiveMode.RECOVERING != before:
        # Pauses were for a gateway that was down. Without them the backlog goes earliest deadline first.
        outbox.hurry_all(outbox.CHARGE)
    return now


@shared_task
def expire_orders() -> int:
    """Cancels orders whose reserve ran out."""
    return undo.expire_overdue()


@shared_task
def sweep_stuck() -> int:
    """Promises again what waits with nobody trying."""
    return sweep.sweep()


@shared_task
def purge_old() -> int:
    """Forgets delivered messages and old events, a bounded number at a time."""
    return housekeeping.purge()


@shared_task
def refresh_rates() -> bool:
    """Asks for exchange rates ahead of need."""
    return quoting.refresh_rates(own_deadline(settings.HOLDFAST.worker_budget_ms))


@shared_task
def refresh_catalog() -> bool:
    """Asks for the catalog's list ahead of need."""
    return quoting.refresh_catalog(own_deadline(settings.HOLDFAST.worker_budget_ms))
