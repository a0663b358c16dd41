"""What the three neighbours share: faults played on the socket, the control API, the command line."""

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.faults import BadRule, Effect, Faults, parse_rules
from sandbox.http import BODILESS, Connection, Request, Response, Server
from sandbox.ledger import Entry, Ledger
from sandbox.processes import die_with_parent

_LONGEST_POLL_SECONDS = 60.0

Route = Callable[[Request, tuple[str, ...]], Response]


class NotFound(Exception):
    """The addressed thing does not exist."""


class Neighbour:
    """A service with faults, a ledger and a control API. Subclasses answer and may add control routes.

    Control (`/_sandbox/...`) is exempt from faults and also served on a port of its own, because the main
    port does not answer while it refuses connections. Thread-safe.
    """

    name = "neighbour"

    def __init__(self, host: str = "127.0.0.1", port: int = 0, control_port: int = 0) -> None:
        self.faults = Faults()
        self.ledger = Ledger()
        self._in_flight = 0
        self._count_lock = threading.Lock()
        self._stopping = threading.Event()
        self._control = Server(self._serve_control, host, control_port)
        self._main = Server(self._serve, host, port)
        self.url = self._main.url
        self.control_url = self._control.url

    def stop(self) -> None:
        self._stopping.set()
        self._main.stop()
        self._control.stop()

    def __enter__(self) -> "Neighbour":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def set_faults(self, rules: list[dict[str, Any]]) -> None:
        """Replace all fault rules, as PUT /_sandbox/faults does. Raises BadRule."""
        self.faults.replace(parse_rules(rules))
        self._main.refuse(self.faults.refusing)

    # --- for subclasses -------------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """The service itself."""
        raise NotImplementedError

    def enter(self, request: Request) -> Response | None:
        """Claim what one request alone may use; a Response refuses this one at once."""

    def leave(self, request: Request) -> None:
        """Give back what `enter` claimed; called exactly once, as soon as the processing is over."""

    def store(self, request: Request, response: Response) -> None:
        """Remember `response` as the answer to repeats of this request (effect `stored`)."""

    def identify(self, request: Request) -> tuple[str | None, str | None]:
        """Idempotency key and order reference, for the ledger."""
        return None, None

    def noted(self, entry: Entry) -> None:
        """A request arrived, or its answer begins to leave (then `status_sent` is set)."""

    def control(self, request: Request) -> Response:
        """Control routes of this neighbour alone. Raises NotFound."""
        raise NotFound

    def report(self, since: int) -> dict[str, Any]:
        """The body of GET /_sandbox/ledger."""
        return {"requests": self.ledger.requests(since), "connections": self._main.accepted}

    def forget(self) -> None:
        """DELETE /_sandbox/ledger."""
        self.ledger.clear()

    # --- a request's way ------------------------------------------------------------------------------

    def _serve(self, request: Request, connection: Connection) -> bool:
        if request.path.startswith("/_sandbox/"):
            return self._serve_control(request, connection)
        with self._count_lock:
            self._in_flight += 1
        try:
            return self._exchange(request, connection)
        finally:
            with self._count_lock:
                self._in_flight -= 1

    def _exchange(self, request: Request, connection: Connection) -> bool:
        entry = self.ledger.arrived(request.method, request.target, *self.identify(request))
        self.noted(entry)
        effect, wake = self.faults.choose(request)
        response = self._work(request, effect, connection, wake)
        if response is None or not self._survives(effect, "after", connection):
            return False
        if effect.hang:
            connection.wait_for_leave(None, wake)
            return False
        if not self._pause(effect.latency_after_ms / 1000, request):
            response = _too_late()
        entry.status_sent = response.status
        self.noted(entry)
        self.ledger.changed()
        return _deliver(_distort(response, effect), effect, connection, wake)

    def _work(
        self, request: Request, effect: Effect, connection: Connection, wake: socket.socket
    ) -> Response | None:
        """Everything up to the answer; None when the connection ends without one before processing."""
        refusal = self.enter(request)
        try:
            if not self._survives(effect, "before", connection):
                return None
            if effect.hang and not effect.after:
                connection.wait_for_leave(None, wake)
                return None
            if refusal is None and not self._pause(effect.delay(), request):
                return _too_late()
            if effect.instead:
                response = _prescribed(effect)
            else:
                response = refusal or self.answer(request)
                response = _prescribed(effect) if effect.status else response
            if effect.stored and refusal is None:
                self.store(request, response)
            return response
        finally:
            if refusal is None:
                self.leave(request)

    def _survives(self, effect: Effect, moment: str, connection: Connection) -> bool:
        if effect.reset == moment:
            connection.reset()
        return moment not in (effect.reset, effect.close)

    def _pause(self, seconds: float, request: Request) -> bool:
        """Wait; False when the caller's deadline is over at the end of it (we stop waiting at that point)."""
        deadline = request.deadline
        now = time.monotonic()
        if deadline is None:
            self._stopping.wait(seconds)
            return True
        self._stopping.wait(max(0.0, min(seconds, deadline - now)))
        return now + seconds < deadline

    # --- control --------------------------------------------------------------------------------------

    def _serve_control(self, request: Request, connection: Connection) -> bool:
        try:
            response = self._control_answer(request)
        except NotFound:
            response = Response.of({"error": "no such thing"}, 404)
        except (ValueError, TypeError) as error:
            response = Response.of({"error": str(error)}, 400)
        return connection.send(response.head(True) + response.body)

    def _control_answer(self, request: Request) -> Response:
        match request.path.removeprefix("/_sandbox/"):
            case "faults":
                return self._control_faults(request)
            case "ledger":
                return self._control_ledger(request)
            case "state":
                return Response.of(self._state())
            case _:
                return self.control(request)

    def _control_faults(self, request: Request) -> Response:
        if request.method in ("PUT", "DELETE"):
            self.set_faults(_json(request) if request.method == "PUT" else [])
        return Response.of(self.faults.sources())

    def _control_ledger(self, request: Request) -> Response:
        if request.method == "DELETE":
            self.forget()
            return Response(204)
        query = {name: int(value) for name, value in request.query.items()}
        seconds = min(query.get("timeout_ms", 5000) / 1000, _LONGEST_POLL_SECONDS)
        self.ledger.wait_until(lambda: self.reached(query), seconds)
        return Response.of(self.report(query.get("since", 0)))

    def reached(self, wanted: dict[str, int]) -> bool:
        """Is everything there that GET /_sandbox/ledger?wait_for_...= asks for?"""
        return self.ledger.count() >= wanted.get("wait_for_requests", 0)

    def _state(self) -> dict[str, Any]:
        with self._count_lock:
            in_flight = self._in_flight
        return {
            "neighbour": self.name,
            "connections": self._main.open_connections,
            "accepted": self._main.accepted,
            "in_flight": in_flight,
            "faults": self.faults.counters(),
        }


def _json(request: Request) -> Any:
    try:
        return request.json()
    except ValueError as error:
        raise BadRule("the body is no JSON") from error


def _too_late() -> Response:
    return Response.of({"error": {"message": "the caller's deadline is over"}}, 504)


def _prescribed(effect: Effect) -> Response:
    assert effect.status is not None
    if isinstance(effect.body, str):
        return Response(effect.status, effect.body.encode(), (("Content-Type", "text/plain"),))
    return Response.of({} if effect.body is None else effect.body, effect.status)


def _distort(response: Response, effect: Effect) -> Response:
    """The answer with the effect's headers, lies, replaced or padded body."""
    body = response.body
    if effect.lie is not None:
        body = _lie(body, effect.lie)
    if effect.replace_body is not None:
        body = effect.replace_body.encode()
    body += b" " * effect.pad_bytes
    own = {name.lower() for name, _ in effect.headers}
    kept = tuple(pair for pair in response.headers if pair[0].lower() not in own)
    return dataclasses.replace(response, body=body, headers=kept + effect.headers)


def _lie(body: bytes, changes: dict[str, Any]) -> bytes:
    try:
        value = json.loads(body)
    except ValueError:
        return body
    if not isinstance(value, dict):
        return body
    merged = {**value, **changes}
    return json.dumps(
        {key: item for key, item in merged.items() if item is not None or key not in changes}
    ).encode()


def _deliver(response: Response, effect: Effect, connection: Connection, wake: socket.socket) -> bool:
    head = response.head(keep_alive=effect.truncate_bytes is None)
    body = b"" if response.status in BODILESS else response.body
    if effect.truncate_bytes is not None:
        body = body[: effect.truncate_bytes]
    slow, rest = {"headers": (head, body), "body": (body, b"")}.get(effect.trickle or "", (b"", head + body))
    if effect.trickle == "body" and not connection.send(head):
        return False
    for position in range(len(slow)):
        if not connection.send(slow[position : position + 1]):
            return False
        if not connection.wait_for_leave(effect.interval_ms / 1000, wake):
            return False
    if effect.close_after_answer_ms is not None:
        connection.closes_at = time.monotonic() + effect.close_after_answer_ms / 1000
    return connection.send(rest) and effect.truncate_bytes is None


def add_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    """The options of a neighbour on the command line."""
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--control-port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--with-parent", action="store_true", help="end when the starter ends")
    if name == "gateway":
        parser.add_argument("--state", type=Path, help="directory that keeps the books over a restart")
        parser.add_argument("--webhook-url", default=os.environ.get("SANDBOX_WEBHOOK_URL"))
        parser.add_argument(
            "--webhook-secret", default=os.environ.get("PAYMENT_WEBHOOK_SECRET", "whsec_sandbox")
        )


def main(name: str, build: Callable[..., Neighbour]) -> None:
    """`python -m sandbox.NAME`."""
    parser = argparse.ArgumentParser(prog=f"python -m sandbox.{name}")
    add_arguments(parser, name)
    run(name, build, vars(parser.parse_args()))


def run(name: str, build: Callable[..., Neighbour], options: dict[str, Any]) -> None:
    """Serve until SIGTERM or SIGINT, then end at once with exit code 0."""
    if options["with_parent"]:
        die_with_parent(os.getppid())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    chosen = ["host", "port", "control_port"]
    chosen += ["state", "webhook_url", "webhook_secret"] if name == "gateway" else []
    try:
        neighbour = build(**{option: options[option] for option in chosen})
    except OSError as error:
        sys.exit(f"the {name} cannot start: {error}")
    with contextlib.suppress(BrokenPipeError):
        print(f"control {neighbour.control_url}", flush=True)
        print(f"ready {neighbour.url}", flush=True)
    threading.Event().wait()
