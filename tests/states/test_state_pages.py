"""The page of states is drawn from the tables: `python -m tests.states.test_state_pages` writes it anew."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from orders.states import INITIAL, OrderStatus
from orders.states import TRANSITIONS as ORDERS
from payments.states import TRANSITIONS as PAYMENTS
from payments.states import PaymentStatus

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "states.md"


def diagram(table: Mapping[Any, StrEnum], start: StrEnum) -> str:
    """Steps that change nothing are left out."""
    steps = [f"    {b.value} --> {a.value}: {event.value}" for (b, event), a in table.items() if b != a]
    return "\n".join(["```mermaid", "stateDiagram-v2", f"    [*] --> {start.value}", *steps, "```"])


def page() -> str:
    return "\n".join(
        [
            "# States",
            "",
            "Drawn from the tables in `orders/states.py` and `payments/states.py`; a test keeps it equal.",
            "",
            "## Order",
            diagram(ORDERS, INITIAL),
            "",
            "## Payment",
            diagram(PAYMENTS, PaymentStatus.NEW),
            "",
        ]
    )


def test_the_page_shows_the_tables_as_they_are() -> None:
    assert PAGE.read_text() == page()


def test_every_state_can_be_reached() -> None:
    for table, start, states in (
        (ORDERS, INITIAL, OrderStatus),
        (PAYMENTS, PaymentStatus.NEW, PaymentStatus),
    ):
        seen = {start}
        while more := {after for (before, _), after in table.items() if before in seen} - seen:
            seen |= more
        assert seen == set(states)


if __name__ == "__main__":
    PAGE.write_text(page())
