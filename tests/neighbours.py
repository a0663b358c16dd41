"""The three neighbours of a test process: their faults, books and control API."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from sandbox.faults import parse_rules
from tests.servers import NEIGHBOURS

HANG = {"effect": {"hang": True}}
HANG_AFTER = {"effect": {"hang": True, "after": True}}
DOWN = {"effect": {"status": 503, "body": {"error": {"message": "down"}}}}
REFUSE = {"effect": {"refuse": True}}


class Neighbourhood:
    """Healthy, with empty books, at the start."""

    def __init__(self) -> None:
        self.gateway, self.catalog, self.rates = (NEIGHBOURS[n] for n in ("payment", "catalog", "rates"))
        self.heal()
        for neighbour in NEIGHBOURS.values():
            neighbour.forget()
        self.control(self.catalog, "DELETE", "/_sandbox/products")
        self.control(self.rates, "DELETE", "/_sandbox/rates")

    def control(self, neighbour: Any, method: str, path: str, body: Any = None) -> Any:
        """Speaks to a neighbour's control API, as `manage.py sandbox` does."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(neighbour.control_url + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def fault(self, neighbour: Any, *rules: dict[str, Any]) -> None:
        """Replaces a neighbour's faults. Rules as in the sandbox's control API."""
        neighbour.faults.replace(parse_rules([{"match": {}, **rule} for rule in rules]))
        neighbour._main.refuse(neighbour.faults.refusing)

    def heal(self) -> None:
        for neighbour in NEIGHBOURS.values():
            self.fault(neighbour)

    @property
    def charges(self) -> list[dict[str, Any]]:
        """What the gateway's books say was taken."""
        found: list[dict[str, Any]] = self.gateway.report(0)["charges"]
        return found

    @property
    def money_calls(self) -> list[dict[str, Any]]:
        """Requests to create a payment that reached the gateway."""
        return [
            request
            for request in self.gateway.report(0)["requests"]
            if request["method"] == "POST" and request["path"] == "/v1/payment_intents"
        ]

    def wait_for_charges(self, count: int, seconds: float = 5.0) -> None:
        """Until the gateway has booked so many charges."""
        self.gateway.ledger.wait_until(lambda: len(self.charges) >= count, seconds)
        assert len(self.charges) >= count
