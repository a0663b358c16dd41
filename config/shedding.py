"""The door: what cannot be served in time is refused at once, browsing before checkout, checkout before paying."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import cache

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.translation import gettext as _

from resilience.shedding import LoadShedder, Overloaded, Priority, SheddingPolicy, queue_seconds

logger = logging.getLogger(__name__)

GetResponse = Callable[[HttpRequest], HttpResponse]

_PRIORITIES = (
    # People on duty get in when it matters most; probes must never wait.
    (("/health/", "/metrics", "/ops/", "/admin/", "/_demo/"), Priority.PROBE),
    # Money under way, what an order page needs to be read, and the log-in that leads to either.
    (("/orders/", "/account/", "/payments/", "/static/"), Priority.PAYING),
    (("/checkout/", "/cart/"), Priority.CHECKOUT),
)
_SECONDS_BETWEEN_LINES = 10.0


def priority_of(path: str) -> Priority:
    """How important an address is when not all can be served."""
    for prefixes, priority in _PRIORITIES:
        if path.startswith(prefixes):
            return priority
    return Priority.BROWSING


@cache
def shedder() -> LoadShedder:
    """The one door of this process."""
    config = settings.HOLDFAST
    return LoadShedder(
        SheddingPolicy(
            limit=config.web_threads,
            checkout_share=config.shed_checkout_share,
            browsing_share=min(config.shed_browsing_share, config.shed_checkout_share),
            queue_seconds=config.queue_limit_ms / 1000,
            retry_after=config.retry_after_seconds,
        )
    )


class SheddingMiddleware:
    """Lets a request in, or answers 503 with Retry-After in about a millisecond."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response
        shedder()  # made before any two requests could make two of it
        self._lock = threading.Lock()
        self._told_at = float("-inf")

    def __call__(self, request: HttpRequest) -> HttpResponse:
        queued = queue_seconds(request.headers.get("X-Request-Start"), time.time())
        try:
            with shedder().place(priority_of(request.path), queued):
                return self._get_response(request)
        except Overloaded as refusal:
            self._tell(refusal)
            return _later(request, refusal)

    def _tell(self, refusal: Overloaded) -> None:
        """One line every ten seconds: an overload is no time to write a line for each refusal."""
        now = time.monotonic()
        with self._lock:
            if now - self._told_at < _SECONDS_BETWEEN_LINES:
                return
            self._told_at = now
        shed = {priority.name: counter.value for priority, counter in shedder().shed.items() if counter.value}
        logger.warning("shedding load", extra={"reason": refusal.reason, "shed_so_far": shed})


def _later(request: HttpRequest, refusal: Overloaded) -> HttpResponse:
    response = HttpResponse(_page(translation.get_language_from_request(request)), status=503)
    response["Retry-After"] = str(max(1, round(refusal.retry_after or 1)))
    response["Cache-Control"] = "no-store"
    response._has_been_logged = True  # type: ignore[attr-defined]  # counted, and told by _tell
    return response


@cache
def _page(language: str) -> str:
    """Rendered once a language and process."""
    with translation.override(language):
        text = _(
            "So many people are here at the moment that we had to turn this request away. Nothing was ordered."
        )
        return render_to_string("orders/storage_unavailable.html", {"text": text, "LANGUAGE_CODE": language})
