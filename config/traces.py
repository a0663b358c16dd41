"""OpenTelemetry traces: a span for each page, delivery, call of a neighbour and attempt. Imported only when configured.

Nothing a visitor typed, no address and no text of an error gets into a span: orders' addresses are keys to them.
Spans wait in a bounded queue for a thread that sends them; what does not fit is dropped, and no request waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from config.logging import trace_id
from config.metering import METHODS, page_of
from orders import outbox
from payments.dependencies import trace_calls
from resilience.chain import Chain
from resilience.deadline import Deadline
from resilience.errors import Answered, ClientError, is_local_refusal
from resilience.events import Event
from resilience.http import HttpResponse as Answer
from resilience.http import HttpSession, request_id

T = TypeVar("T")
GetResponse = Callable[[HttpRequest], HttpResponse]

EXPORT_SECONDS = 2.0
"""How long one batch may take to send."""
SHUTDOWN_SECONDS = 1.0
"""How long the end of a process waits for its last spans."""
_SECONDS_BETWEEN_LINES = 60.0
_QUEUE, _BATCH, _EVERY_MS = 2048, 256, 1000

_tracer = trace.get_tracer("holdfast")
_w3c = TraceContextTextMapPropagator()
_PARENT = "traceparent"


def start(service: str) -> Callable[[], None]:
    """Begins to trace this process; the returned function sends the rest and ends it. Call after the fork, once,
    before the first client of a neighbour is built.
    """
    endpoint = settings.HOLDFAST.otlp_endpoint.rstrip("/") + "/v1/traces"
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint, timeout=EXPORT_SECONDS)
    provider.add_span_processor(
        BatchSpanProcessor(exporter, _QUEUE, schedule_delay_millis=_EVERY_MS, max_export_batch_size=_BATCH)
    )
    trace.set_tracer_provider(provider)
    logging.getLogger(OTLPSpanExporter.__module__).addFilter(_Seldom())
    trace_calls(TracedChain, TracedSession)
    outbox.trace_messages(_carried, _delivery)

    def stop() -> None:
        # The library's own end waits for every batch that is left, up to half a minute.
        ending = threading.Thread(target=provider.shutdown, name="traces-end", daemon=True)
        ending.start()
        ending.join(SHUTDOWN_SECONDS)

    return stop


class _Seldom(logging.Filter):
    """The exporter tells of every batch that a collector did not take; one line a minute says as much."""

    def __init__(self) -> None:
        super().__init__()
        self._told_at = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if record.levelno < logging.ERROR or now - self._told_at < _SECONDS_BETWEEN_LINES:
            return False
        self._told_at = now
        return True


@contextmanager
def _span(
    name: str, kind: SpanKind, attributes: Mapping[str, Any], parent: Context | None = None
) -> Iterator[Span]:
    """A span around the block, current inside, whose trace the log's lines name."""
    with _tracer.start_as_current_span(
        name,
        parent,
        kind,
        {key: value for key, value in attributes.items() if value is not None},
        record_exception=False,  # its text may hold anything
        set_status_on_exception=False,
    ) as span:
        token = trace_id.set(trace.format_trace_id(span.get_span_context().trace_id))
        try:
            yield span
        except BaseException as error:
            _fail(span, error)
            raise
        finally:
            trace_id.reset(token)


def _fail(span: Span, error: BaseException) -> None:
    """What a call ended with, in the words of the metrics."""
    refused, ignored = is_local_refusal(error), isinstance(error, ClientError)
    outcome = "refused" if refused else "ignored" if ignored else "failed"
    span.set_attributes({"holdfast.outcome": outcome, "error.type": type(error).__name__})
    if isinstance(error, Answered):
        span.set_attribute("http.response.status_code", error.status)
    if not ignored:
        span.set_status(StatusCode.ERROR)


class TracesMiddleware:
    """A span for each page that got past the door. A proxy's trace is continued, a stranger's is not."""

    def __init__(self, get_response: GetResponse) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        method = request.method if request.method in METHODS else "other"
        parent = _w3c.extract({_PARENT: request.headers.get(_PARENT, "")}) if settings.PROXY_COUNT else None
        attributes = {"http.request.method": method, "holdfast.request_id": request_id.get()}
        with _span(method, SpanKind.SERVER, attributes, parent) as span:
            response = self._get_response(request)
            span.update_name(f"{method} {page_of(request)}")
            if request.resolver_match:
                span.set_attribute("http.route", request.resolver_match.route)
            span.set_attribute("http.response.status_code", response.status_code)
            if response.status_code >= 500:
                span.set_status(StatusCode.ERROR)
        return response


class TracedChain(Chain):
    """A chain whose calls are spans, with a span inside for each attempt and what the layers tell as events."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.events.subscribe(_note)

    def call(self, operation: Callable[[Deadline], T], *, deadline: Deadline, repeatable: bool = False) -> T:
        attempts = 0

        def attempt(own: Deadline) -> T:
            nonlocal attempts
            attempts += 1
            with _span(f"{self.name} attempt", SpanKind.CLIENT, {"holdfast.attempt": attempts}) as span:
                value = operation(own)
                span.set_attribute("holdfast.outcome", "successful")
                return value

        with _span(self.name, SpanKind.INTERNAL, {"holdfast.neighbour": self.name}) as span:
            try:
                value = super().call(attempt, deadline=deadline, repeatable=repeatable)
                span.set_attribute("holdfast.outcome", "successful")
                return value
            finally:
                span.set_attribute("holdfast.attempts", attempts)


def _note(event: Event) -> None:
    """Runs in the caller's thread, between its attempts: the current span is the call's."""
    trace.get_current_span().add_event(
        event.kind.value, {"holdfast.neighbour": event.name, "holdfast.detail": event.detail}
    )


class TracedSession(HttpSession):
    """A session that sends the trace on to the neighbour, as it does the request's id."""

    def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Answer:
        return super().request(method, path, headers={**(headers or {}), **_carried()}, **options)


def _carried() -> dict[str, str]:
    carrier: dict[str, str] = {}
    _w3c.inject(carrier)
    return carrier


@contextmanager
def _delivery(lease: outbox.Lease) -> Iterator[None]:
    """A worker's delivery goes on with the trace of the request that promised it."""
    carried = lease.payload.get(_PARENT)
    parent = _w3c.extract({_PARENT: carried}) if isinstance(carried, str) else None
    attributes = {"holdfast.order_id": lease.order_id, "holdfast.try": lease.attempts}
    with _span(f"deliver {lease.kind}", SpanKind.CONSUMER, attributes, parent):
        yield
