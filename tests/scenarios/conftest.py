"""Clean neighbours and a stack of real processes, for the scenarios that need them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.neighbours import Neighbourhood
from tests.processes.harness import Stack


@pytest.fixture
def neighbours() -> Iterator[Neighbourhood]:
    found = Neighbourhood()
    yield found
    found.heal()


@pytest.fixture
def stack(neighbours: Neighbourhood) -> Iterator[Stack]:
    with Stack() as stack:
        yield stack
