"""One order is one trace, in whichever process its pieces happen; a collector in trouble costs no shopper anything."""

from __future__ import annotations

import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.neighbours import DOWN, Neighbourhood
from tests.processes.harness import Browser, Stack, eventually

pytestmark = pytest.mark.process
BUDGET_SECONDS, MARGIN_SECONDS = 0.5, 0.1
PATIENT = {"CHECKOUT_BUDGET_MS": "8000", "INLINE_LEASE_SECONDS": "10"}
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


class Collector(ThreadingHTTPServer):
    """Takes spans by OTLP over HTTP."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Exports)
        self.received: list[bytes] = []
        self.paths: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Any]:
        found = [ExportTraceServiceRequest.FromString(body) for body in list(self.received)]
        return [
            span
            for one in found
            for resource in one.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Any:
        """Waits for the only span of a name."""
        eventually(lambda: self.named(name), 20, f"no {name} among {[span.name for span in self.spans]}")
        (span,) = self.named(name)
        return span


class _Exports(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.paths.add(self.path)
        self.server.received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def told(span: Any) -> dict[str, Any]:
    values = {a.key: (a.value.string_value or a.value.int_value) for a in span.attributes}
    return {key.removeprefix("holdfast."): value for key, value in values.items()}


def test_one_checkout_is_one_trace_that_names_the_log_lines_and_tells_no_secret(
    stack: Stack, neighbours: Neighbourhood, collector: Collector
) -> None:
    base = stack.web(**{ENDPOINT: collector.url}, **PATIENT)
    ann = Browser(base)
    page = ann.buy()
    assert ann.get(page.path).status == 200
    eventually(lambda: collector.named("GET order"), 20)
    request, call, attempt = (collector.one(name) for name in ("POST checkout", "payment", "payment attempt"))
    assert request.trace_id == call.trace_id == attempt.trace_id
    assert (call.parent_span_id, attempt.parent_span_id) == (request.span_id, call.span_id)
    assert request.start_time_unix_nano <= call.start_time_unix_nano <= attempt.start_time_unix_nano
    assert told(request)["http.response.status_code"] == 302
    assert told(call) == {"neighbour": "payment", "attempts": 1, "outcome": "successful"}
    assert told(attempt) == {"attempt": 1, "outcome": "successful"}
    lines = [line for line in stack.log("web").splitlines() if "payment outcome" in line]
    assert f"trace_id={request.trace_id.hex()}" in lines[0]
    everything = b"".join(collector.received)
    secrets = [page.path.split("/")[2], "ann@example.com", "pm_card", *ann.session.cookies.values()]
    secrets += [stack.environment["PAYMENT_API_KEY"], stack.environment["SECRET_KEY"]]
    assert [secret for secret in secrets if secret.encode() in everything] == []
    assert collector.paths == {"/v1/traces"}


def test_a_refused_call_says_why_and_a_worker_s_charge_goes_on_with_the_shopper_s_trace(
    stack: Stack, neighbours: Neighbourhood, collector: Collector
) -> None:
    stack.environment.update(PATIENT, **{ENDPOINT: collector.url})
    base = stack.web(PAYMENT_BREAKER_OPEN_SECONDS="60")
    neighbours.fault(neighbours.gateway, DOWN)
    browsers = [Browser(base) for _ in range(12)]
    assert {browser.buy().status for browser in browsers} == {302}

    def refused() -> list[Any]:
        return [span for span in collector.named("payment") if told(span)["outcome"] == "refused"]

    eventually(refused, 20, "an open breaker refuses")
    assert told(refused()[0])["error.type"] == "BreakerOpen"
    assert [event.name for event in refused()[0].events] == ["breaker_rejected"]
    neighbours.heal()
    stack.workers()
    eventually(lambda: stack.orders() == {"PAID": 12}, 40, str(stack.orders()))
    asked = {span.trace_id for span in collector.named("POST checkout")}
    eventually(lambda: asked == {span.trace_id for span in collector.named("deliver charge")}, 20)
    paid = [span for span in collector.named("payment attempt") if told(span)["outcome"] == "successful"]
    assert {span.trace_id for span in paid} <= asked


@pytest.mark.parametrize("trouble", ["hangs", "refuses"])
def test_a_collector_in_trouble_slows_neither_a_checkout_nor_the_end_of_a_server(
    stack: Stack, neighbours: Neighbourhood, trouble: str
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if trouble == "hangs":
            listener.listen(64)  # connections are made, nobody ever answers
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        times: dict[str, list[float]] = {"off": [], "on": []}
        bases = {
            name: stack.web(name, DRAIN_SECONDS="0", **environment)
            for name, environment in {"off": {}, "on": {ENDPOINT: endpoint}}.items()
        }
        for base in bases.values():
            Browser(base).buy()
        for _ in range(15):  # by turns, so that whatever else the machine does is done to both
            for name, base in bases.items():
                times[name].append(_checkout(base))
        assert max(times["on"]) < BUDGET_SECONDS + MARGIN_SECONDS, times
        assert statistics.median(times["on"]) < statistics.median(times["off"]) + 0.03, times
        ends = {name: _end(stack, name) for name in times}
    print(
        f"{trouble}: medians { {name: statistics.median(all_) for name, all_ in times.items()} }, ends {ends}"
    )
    assert ends["on"] < ends["off"] + 2.0, ends
    assert stack.log("on").count("opentelemetry") <= 1, "one line an outage"


def _checkout(base: str) -> float:
    browser = Browser(base)
    browser.put_in_basket()
    form = browser.checkout_form()
    begun = time.monotonic()
    assert browser.submit(form).status == 302
    return time.monotonic() - begun


def _end(stack: Stack, name: str) -> float:
    process = stack.processes.pop(name)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    return time.monotonic() - begun
