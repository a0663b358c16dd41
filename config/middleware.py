"""What happens to a request before a page sees it. Sits in the order of the settings."""

from __future__ import annotations

import logging
import random
import re
import sys
from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views import defaults

from config import health
from config.deadlines import within
from payments.storage import DATABASE_ERRORS, is_storage_failure, possible_writes
from resilience.deadline import HEADER, Deadline
from resilience.http import request_id

logger = logging.getLogger(__name__)

GetResponse = Callable[[HttpRequest], HttpResponse]

_WRITES = "holdfast.writes"
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ProbeMiddleware:
    """Answers the orchestrator before hosts, sessions or the database come into play."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        probe = health.PROBES.get(request.path)
        return probe(request) if probe else self._get_response(request)


class RequestIdMiddleware:
    """Every request has an id: the proxy's if it is harmless, else a new one. It travels to the neighbours."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        identity = identity_of(request.headers.get("X-Request-ID", ""))
        token = request_id.set(identity)
        try:
            response = self._get_response(request)
        finally:
            request_id.reset(token)
        response["X-Request-ID"] = identity
        return response


def identity_of(given: str) -> str:
    """The id that came with a request, or a new one: no secret, and the system's random numbers cost a refusal dear."""
    return given if _SAFE_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"


class NulMiddleware:
    """No name of ours holds a NUL byte, and PostgreSQL refuses it in any text: such an address is malformed."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if any("\0" in text for text in (request.path, *request.GET.values(), *request.COOKIES.values())):
            return HttpResponse(_("This address is malformed."), status=400, content_type="text/plain")
        return self._get_response(request)


class NoStoreMiddleware:
    """Pages are one person's: no cache keeps any of them, not even a "not found". Static files come before."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        if not response.has_header("Cache-Control"):
            response["Cache-Control"] = "no-store, private"
        return response


class DeadlineMiddleware:
    """Starts the clock of the response budget, for the database too; an earlier deadline of the caller wins."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        budget = settings.HOLDFAST.checkout_budget_ms
        with within(Deadline.after_ms(budget, incoming=request.headers.get(HEADER))):
            return self._get_response(request)


class StorageUnavailableMiddleware:
    """A database that is away, busy or read-only is an honest 503, never an error page, never "accepted"."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.META[_WRITES] = possible_writes()
        try:
            return self._get_response(request)
        except DATABASE_ERRORS as error:
            return self.process_exception(request, error) or _storage_page(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Also called by Django for errors inside views."""
        if not is_storage_failure(error):
            return None
        logger.error("storage unavailable", extra={"error": type(error.__cause__ or error).__name__})
        return _storage_page(request)


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500: also for pages made outside of any view, such as "not found", that could not ask the database."""
    error = sys.exc_info()[1]
    if isinstance(error, Exception) and is_storage_failure(error):
        return _storage_page(request)
    return defaults.server_error(request)


def _storage_page(request: HttpRequest) -> HttpResponse:
    if request.method in ("GET", "HEAD"):
        text = _("This page cannot be shown just now. What was ordered or paid before is safe.")
    elif possible_writes() > request.META.get(_WRITES, 0):
        text = _(
            "We did not hear whether this was saved. Please send the same page again in a minute: a checkout page "
            "makes one order at most, and no order is paid twice."
        )
    else:
        text = _("We could not save this just now, so nothing was ordered or changed.")
    response = render(None, "orders/storage_unavailable.html", {"text": text}, status=503)
    response["Retry-After"] = "5"
    response["Cache-Control"] = "no-store"
    return response
