"""Fixtures of the whole suite."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import config.urls  # noqa: F401  decides at its import whether there is a demo: before any test says so
from orders import clients as order_clients
from orders.guesses import LETTERS, LETTERS_TO, LOG_INS, WRONG_LINKS
from orders.models import Order
from payments import clients as payment_clients
from resilience.testing import ManualClock
from tests.neighbours import HANG_AFTER, Neighbourhood
from tests.processes.harness import Stack
from tests.world import Shopper, World

LIMITS = (LETTERS, LETTERS_TO, LOG_INS, WRONG_LINKS)


@pytest.fixture(autouse=True)
def _the_process_is_left_as_it_was() -> Iterator[None]:
    """An open breaker refuses the next test's calls; logging switched off blinds it; an ignored SIGTERM
    is inherited by every process it starts."""
    ending = signal.getsignal(signal.SIGTERM)
    for limit in LIMITS:
        limit.forget()
    yield
    payment_clients.reset()
    order_clients.reset()
    logger = logging.getLogger("resilience")
    state = (logging.root.manager.disable, logger.disabled, logger.propagate, logger.getEffectiveLevel())
    assert state == (logging.NOTSET, False, True, logging.INFO)
    assert signal.getsignal(signal.SIGTERM) == ending


@pytest.fixture
def world(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A shop with stock and healthy neighbours; afterwards every invariant must hold."""
    for limit in LIMITS:
        # However slow a machine is, no try is forgotten while a test still counts them.
        monkeypatch.setattr(limit, "_clock", ManualClock())
    world = World()
    world.open_shop()
    yield world
    world.heal()
    if world.audited:
        assert world.violations() == []


@pytest.fixture
def shopper() -> Shopper:
    return Shopper()


@pytest.fixture
def tune(settings: Any) -> Any:
    """Changes numbers of the checkout for one test: `tune(reserve_seconds=3)`."""

    def change(**numbers: Any) -> None:
        settings.HOLDFAST = replace(settings.HOLDFAST, **numbers)
        order_clients.reset()
        payment_clients.reset()

    return change


@pytest.fixture
def neighbours() -> Iterator[Neighbourhood]:
    """Healthy neighbours for tests with real processes."""
    found = Neighbourhood()
    yield found
    found.heal()


@pytest.fixture
def stack(neighbours: Neighbourhood) -> Iterator[Stack]:
    """A shop of real processes."""
    with Stack() as stack:
        yield stack


@pytest.fixture
def lost(world: World, shopper: Shopper, tune: Any) -> Order:
    """An order whose money was taken, but the answer never came."""
    tune(checkout_budget_ms=1500)
    world.fault(world.gateway, HANG_AFTER)
    shopper.buy()
    world.heal()
    return Order.objects.get()
