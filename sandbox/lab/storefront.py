"""A shop of two pages for gunicorn: `/pay` asks the gateway through as many layers as it is told, `/page` asks nobody.

The layers are the product's. Only here can they be left out: the product's own start refuses a breaker that never
opens and timeouts beyond the budget.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from resilience.breaker import BreakerPolicy
from resilience.bulkhead import BulkheadPolicy
from resilience.chain import Chain, ChainPolicy
from resilience.deadline import Deadline
from resilience.errors import NotSent, ResilienceError
from resilience.events import Event, EventKind
from resilience.http import HttpPolicy, HttpSession

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_SAMPLE_SECONDS = 0.05
_NEVER = 100_000


@dataclass(frozen=True)
class Layers:
    """What stands between the shop and the gateway. `timeout` in seconds."""

    timeout: float
    breaker: bool = False
    bulkhead: int | None = None
    count_refusals: bool = False

    def environment(self, gateway_url: str, log: Path) -> dict[str, str]:
        """For the process that shall have these layers. It writes to `log`, one JSON list a line:
        "busy", seconds, threads in `/pay`; or "breaker", seconds, what it did. Seconds since its first request.
        """
        return {"LAB_LAYERS": json.dumps(asdict(self)), "LAB_GATEWAY": gateway_url, "LAB_LOG": str(log)}

    def chain(self) -> Chain:
        breaker = BreakerPolicy(count_refusals=self.count_refusals, jitter=0)
        if not self.breaker:
            breaker = BreakerPolicy(window=_NEVER, min_calls=_NEVER)
        bulkhead = BulkheadPolicy(self.bulkhead) if self.bulkhead else None
        return Chain(ChainPolicy("gateway", call_timeout=self.timeout, breaker=breaker, bulkhead=bulkhead))


class Storefront:
    """The WSGI application of one process. Thread-safe."""

    def __init__(self, layers: Layers, gateway_url: str, log: Path) -> None:
        bound = layers.timeout
        self._timeout = bound
        self._session = HttpSession(
            HttpPolicy(
                gateway_url,
                connect_timeout=bound,
                read_timeout=bound,
                call_timeout=bound,
                pool_wait=0.05,
                pool_size=400,
            )
        )
        self._chain = layers.chain()
        self._chain.events.subscribe(self._noted)
        self._busy = 0
        self._lock = threading.Lock()
        self._log = log
        self._began: float | None = None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status = self._pay() if environ["PATH_INFO"] == "/pay" else "200 OK"
        start_response(status, [("Content-Type", "text/plain"), ("Content-Length", "0")])
        return [b""]

    def _pay(self) -> str:
        with self._lock:
            self._busy += 1
            if self._began is None:
                self._began = time.monotonic()
                threading.Thread(target=self._sample, name="sampler", daemon=True).start()
        try:
            self._chain.call(
                lambda attempt: self._session.request("POST", "/v1/payment_intents", deadline=attempt),
                deadline=Deadline.after_ms(self._timeout * 1000),
            )
        except NotSent:
            return "503 Service Unavailable"
        except ResilienceError:
            return "504 Gateway Timeout"
        finally:
            with self._lock:
                self._busy -= 1
        return "200 OK"

    def _sample(self) -> None:
        while True:
            self._write("busy", self._busy)
            time.sleep(_SAMPLE_SECONDS)

    def _noted(self, event: Event) -> None:
        if event.kind is EventKind.STATE_CHANGED:
            self._write("breaker", event.detail)

    def _write(self, what: str, value: object) -> None:
        seconds = time.monotonic() - (self._began or 0.0)
        with contextlib.suppress(OSError), self._log.open("a") as log:
            log.write(json.dumps([what, round(seconds, 3), value]) + "\n")


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """What gunicorn serves."""
    global _storefront
    with _making:
        if _storefront is None:
            layers = Layers(**json.loads(os.environ["LAB_LAYERS"]))
            _storefront = Storefront(layers, os.environ["LAB_GATEWAY"], Path(os.environ["LAB_LOG"]))
    return _storefront(environ, start_response)


_making = threading.Lock()
_storefront: Storefront | None = None
