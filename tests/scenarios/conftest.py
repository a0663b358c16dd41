"""Scenarios with real processes need a migrated database to copy from."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.neighbours import Neighbourhood
from tests.processes.harness import Stack, migrated_template


@pytest.fixture(scope="module")
def template() -> Iterator[None]:
    with migrated_template() as name:
        os.environ["HOLDFAST_TEMPLATE_DATABASE"] = name
        yield


@pytest.fixture
def neighbours() -> Iterator[Neighbourhood]:
    found = Neighbourhood()
    yield found
    found.heal()


@pytest.fixture
def stack(template: None, neighbours: Neighbourhood) -> Iterator[Stack]:
    with Stack() as stack:
        yield stack
