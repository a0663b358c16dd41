"""Real processes: one migrated database to copy from, clean neighbours for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.neighbours import Neighbourhood
from tests.processes.harness import Stack, migrated_template


@pytest.fixture(scope="session", autouse=True)
def _template() -> Iterator[None]:
    with migrated_template() as name:
        os.environ["HOLDFAST_TEMPLATE_DATABASE"] = name
        yield


@pytest.fixture
def neighbours() -> Iterator[Neighbourhood]:
    found = Neighbourhood()
    yield found
    found.heal()


@pytest.fixture
def stack(neighbours: Neighbourhood) -> Iterator[Stack]:
    with Stack() as stack:
        yield stack
