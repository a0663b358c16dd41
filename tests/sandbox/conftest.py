from collections.abc import Iterator

import pytest

from sandbox.control import Control
from sandbox.gateway import Gateway


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        yield running


@pytest.fixture
def control(gateway: Gateway) -> Control:
    return Control(gateway.control_url)
