"""The gateway's own books, for the audit. The sandbox shows them at `/_sandbox/ledger`."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings

from resilience.deadline import Deadline
from resilience.errors import ResilienceError
from resilience.http import HttpPolicy, HttpSession


class LedgerUnavailableError(Exception):
    """The gateway does not show its books."""


def read_ledger() -> list[dict[str, Any]]:
    """Every charge with reference, amount and currency on the wire, and what of it was refunded."""
    url = os.environ.get("PAYMENT_CONTROL_URL") or settings.HOLDFAST.payment.url
    policy = HttpPolicy(
        base_url=url, connect_timeout=2, read_timeout=20, call_timeout=30, pool_wait=1, max_bytes=200_000_000
    )
    try:
        answer = HttpSession(policy).request("GET", "/_sandbox/ledger", deadline=Deadline.after_ms(30_000))
    except ResilienceError as error:
        raise LedgerUnavailableError(f"the gateway does not show its ledger: {error}") from error
    return [
        {
            "reference": str(charge.get("reference")),
            "amount": charge["amount"],
            "currency": charge["currency"],
            "refunded": charge["refunded"],
            "intent": str(charge.get("intent") or ""),
        }
        for charge in answer.body["charges"]
    ]
