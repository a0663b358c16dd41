"""The door: what cannot be served in time is refused at once, browsing before checkout, checkout before paying."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from csp.middleware import CSPMiddleware
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.middleware.security import SecurityMiddleware
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.translation import gettext as _

from config import exposition
from config.health import PROBES
from config.metering import METHODS
from config.middleware import identity_of
from resilience.shedding import LoadShedder, Overloaded, Priority, SheddingPolicy, queue_seconds

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger(__name__)

_PRIORITIES = (
    # People on duty get in when it matters most, but a crowd at their door must not take the probes' threads.
    (("/health/dependencies/", "/ops/", "/admin/", "/_demo/"), Priority.DUTY),
    # Money under way, what an order page needs to be read, and the log-in that leads to either.
    (("/orders/", "/account/", "/payments/", "/static/"), Priority.PAYING),
    (("/checkout/", "/cart/"), Priority.CHECKOUT),
)
_SECONDS_BETWEEN_LINES = 10.0
_STATUS = "503 Service Unavailable"
_PLAIN = re.compile(rb"(GET|HEAD) (/[^\s%?#]*)(?:\?[^\s#]*)? HTTP/1\.1\r\n")
_NOT_PLAIN = re.compile(
    rb"\r\n(?:(?:content-length|transfer-encoding|expect|upgrade)[ \t]*:|connection:[^\r\n]*(?:close|upgrade))",
    re.IGNORECASE,
)
_FIELD = re.compile(rb"\r\n(accept-language|cookie|x-request-id):[ \t]*([^\r\n]*)", re.IGNORECASE)
_FIELDS = {
    b"accept-language": "HTTP_ACCEPT_LANGUAGE",
    b"cookie": "HTTP_COOKIE",
    b"x-request-id": "HTTP_X_REQUEST_ID",
}
_CHOSEN = re.compile(r"\bdjango_language=([A-Za-z-]{2,20})")  # Django's own name of that cookie


def priority_of(path: str) -> Priority:
    """How important an address is when not all can be served."""
    if path in PROBES:  # they must never wait, and ask nobody else; what is only below them does
        return Priority.PROBE
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
            duty_extra=config.spare_threads // 2,
            queue_seconds=config.queue_limit_ms / 1000,
            retry_after=config.retry_after_seconds,
        )
    )


class Door:
    """Lets a request in to `inside`, or answers 503 with Retry-After.

    Stands before Django, whose way to its middleware alone would double what a refusal costs.
    """

    def __init__(self, inside: WSGIApplication) -> None:
        self._inside = inside
        shedder()  # made before any two requests could make two of it
        self._lock = threading.Lock()
        self._told_at = float("-inf")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        queued = queue_seconds(environ.get("HTTP_X_REQUEST_START"), time.time())
        try:
            with shedder().place(priority_of(environ.get("PATH_INFO", "")), queued):
                return self._inside(environ, start_response)
        except Overloaded as refusal:
            headers, page = self._later(environ, refusal)
            start_response(_STATUS, headers)
            return [page]

    def refuse_early(self, head: bytes, coming: int) -> bytes | None:
        """The whole answer to a request that there is no place for, from the loop that read it.

        None is "give it a thread": there may be a place, or it is none that can be judged at a glance. `coming`: how
        many have been given one and are not here yet.
        """
        plain = _PLAIN.match(head)
        if plain is None or _NOT_PLAIN.search(head) or not _is_one(head):
            return None
        method, path = plain[1].decode(), plain[2].decode("latin-1")
        try:
            shedder().ask_ahead(priority_of(path), coming)
        except Overloaded as refusal:
            fields = {_FIELDS[name.lower()]: value.decode("latin-1") for name, value in _FIELD.findall(head)}
            headers, page = self._later({"REQUEST_METHOD": method, **fields}, refusal)
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
            return f"HTTP/1.1 {_STATUS}\r\n{lines}Connection: keep-alive\r\n\r\n".encode("latin-1") + page
        return None

    def _later(self, environ: WSGIEnvironment, refusal: Overloaded) -> tuple[list[tuple[str, str]], bytes]:
        identity = identity_of(environ.get("HTTP_X_REQUEST_ID", ""))
        self._tell(refusal, identity)
        method = environ["REQUEST_METHOD"]
        if exposition.wanted():
            from config import metrics

            metrics.REQUESTS.labels("none", method if method in METHODS else "other", "503").inc()
        chosen = _CHOSEN.search(environ.get("HTTP_COOKIE", ""))
        language = _language(chosen[1] if chosen else "", environ.get("HTTP_ACCEPT_LANGUAGE", "")[:200])
        headers, page = _refusal(language)
        retry_after = str(max(1, round(refusal.retry_after or 1)))
        own = [("Retry-After", retry_after), ("X-Request-ID", identity)]
        return [*headers, *own], b"" if method == "HEAD" else page

    def _tell(self, refusal: Overloaded, identity: str) -> None:
        """One line every ten seconds: an overload is no time to write a line for each refusal."""
        now = time.monotonic()
        with self._lock:
            if now - self._told_at < _SECONDS_BETWEEN_LINES:
                return
            self._told_at = now
        shed = {priority.name: counter.value for priority, counter in shedder().shed.items() if counter.value}
        told = {"reason": refusal.reason, "shed_so_far": shed, "request_id": identity}
        logger.warning("shedding load", extra=told)


def _is_one(head: bytes) -> bool:
    """Nothing behind it, and no bare line end or folded field that another could read in another way.

    Counts, for one expression of all this takes twenty times as long, and every request comes by here.
    """
    ends = head.count(b"\r\n")
    return (
        head.find(b"\r\n\r\n") == len(head) - 4
        and head.count(b"\r") == head.count(b"\n") == ends
        and not any(odd in head for odd in (b"\r\n ", b"\r\n\t", b"\0"))
    )


@lru_cache(maxsize=256)
def _language(chosen: str, accepted: str) -> str:
    request = HttpRequest()
    request.COOKIES[settings.LANGUAGE_COOKIE_NAME] = chosen
    request.META["HTTP_ACCEPT_LANGUAGE"] = accepted
    return translation.get_language_from_request(request)


@cache
def _refusal(language: str) -> tuple[list[tuple[str, str]], bytes]:
    """Headers and page, made once a language and process, by the same middleware as every page's."""
    with translation.override(language):
        text = _(
            "So many people are here at the moment that we had to turn this request away. Nothing was ordered."
        )
        page = render_to_string("orders/storage_unavailable.html", {"text": text, "LANGUAGE_CODE": language})
    made = HttpResponse(page, headers={"Cache-Control": "no-store"})
    request = HttpRequest()
    request.META["HTTP_X_FORWARDED_PROTO"] = "https"  # else the answer would be a redirect to there
    SecurityMiddleware(CSPMiddleware(lambda _: made))(request)
    made["Content-Length"] = str(len(made.content))
    return list(made.items()), made.content
