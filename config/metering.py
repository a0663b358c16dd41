"""Counts and times every answer, by the page's name in our own address table: nothing a visitor can make up."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.core.exceptions import MiddlewareNotUsed
from django.http import HttpRequest, HttpResponse

from config import exposition

GetResponse = Callable[[HttpRequest], HttpResponse]
METHODS = frozenset({"GET", "HEAD", "POST"})


class MeteringMiddleware:
    """What is refused at the door is counted there. Not there without `METRICS_PORT`."""

    def __init__(self, get_response: GetResponse) -> None:
        if not exposition.wanted():
            raise MiddlewareNotUsed
        from config import metrics

        self._get_response = get_response
        self._requests, self._took = metrics.REQUESTS, metrics.TOOK

    def __call__(self, request: HttpRequest) -> HttpResponse:
        begun = time.perf_counter()
        response = self._get_response(request)
        page, method = page_of(request), request.method if request.method in METHODS else "other"
        self._requests.labels(page, method, "500")  # there before any: a series that begins at 9 has no rate
        self._requests.labels(page, method, str(response.status_code)).inc()
        self._took.labels(page, method).observe(time.perf_counter() - begun)
        return response


def page_of(request: HttpRequest) -> str:
    """The name of the page; the admin's many count as one, and so does all that was answered before the table."""
    match = request.resolver_match
    if match is None:
        return "none"
    return match.namespaces[0] if match.namespaces else match.url_name or "unnamed"
