"""The gateway of the simulation: in memory, with a search that lags, and with pauses in which others act."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from payments.gateway import Gateway
from resilience.breaker import BreakerPolicy
from resilience.chain import Chain, ChainPolicy
from resilience.http import HttpResponse
from resilience.retry import RetryPolicy
from tests.fakes import FakeStripe, Taken

SEARCH_LAG = 60.0


class LaggingStripe(FakeStripe):
    """As the real one: a payment can be searched for a minute after it was made, not before.

    `meanwhile` runs once, when the next request is on its way: before it is processed, or `after` it.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__()
        self._now = now
        self.meanwhile: Callable[[], None] | None = None
        self.after = False

    def request(self, method: str, path: str, **details: Any) -> HttpResponse:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile and not self.after:
            meanwhile()
            meanwhile = None
        try:
            return super().request(method, path, **details)
        finally:
            if meanwhile:
                meanwhile()

    def _create(self, form: dict[str, str], key: str | None) -> tuple[int, Any]:
        made = super()._create(form, key)
        for wire in self.intents.values():
            wire.setdefault("_at", self._now())
        return made

    def _process(
        self, method: str, path: str, form: dict[str, str], query: dict[str, str], key: str | None
    ) -> tuple[int, Any]:
        status, body = super()._process(method, path, form, query, key)
        if path.endswith("/search"):
            old = [i for i in body["data"] if (self._now() - i["_at"]).total_seconds() >= SEARCH_LAG]
            body["data"] = [self._expanded(intent) for intent in old]
        return status, body

    def charges(self) -> list[Taken]:
        return list(self.taken.values())


def build_gateway(stripe: LaggingStripe) -> Gateway:
    """A real client and chain around it. The breaker stays open until the simulation resets it: it counts on
    a clock of its own.
    """
    policy = ChainPolicy(
        name="payment",
        call_timeout=10.0,
        retry=RetryPolicy(attempts=1),
        breaker=BreakerPolicy(window=5, min_calls=5, failure_rate=50.0, open_seconds=1_000_000.0),
    )
    return Gateway(stripe, Chain(policy))  # type: ignore[arg-type]
