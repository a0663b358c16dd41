"""What our HTTP session costs over plain requests, and the chain as a share of a local call."""

from __future__ import annotations

import math
import multiprocessing
import statistics
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection

import requests

from resilience.chain import Chain, ChainPolicy
from resilience.deadline import Deadline
from resilience.http import HttpPolicy, HttpSession

_BODY = b'{"status": "ok", "note": "' + b"a" * 40 + b'"}'
_FORM = {"amount": "1230", "currency": "eur", "reference": "x" * 20}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(_BODY)))
        self.end_headers()
        self.wfile.write(_BODY)
        self.wfile.flush()

    def log_message(self, *args: object) -> None:
        """Quiet."""


def _serve(where: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    where.send(server.server_port)
    server.serve_forever()


def measure(rounds: int = 60, calls: int = 30) -> dict[str, float]:
    """Median microseconds of one POST on a kept-alive connection to a server in a process of its own."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
    server.start()
    try:
        subjects = _subjects(f"http://127.0.0.1:{here.recv()}")
        found: dict[str, list[float]] = {name: [] for name in subjects}
        for call in subjects.values():
            call()
        for _ in range(rounds):
            for name, call in subjects.items():
                found[name].append(_median(call, calls))
        return {name: statistics.median(values) for name, values in found.items()}
    finally:
        server.kill()
        server.join()


def _subjects(url: str) -> dict[str, Callable[[], object]]:
    plain = requests.Session()
    plain.trust_env = False
    trusting = requests.Session()
    session = HttpSession(HttpPolicy(url, connect_timeout=1, read_timeout=2, call_timeout=2, pool_wait=0.1))
    chain = Chain(ChainPolicy("bench", call_timeout=2.0))
    deadline = Deadline(math.inf)

    def ours(left: Deadline = deadline) -> object:
        return session.request("POST", "/pay", deadline=left, form=_FORM, idempotency_key="k").body

    return {
        "requests, trust_env on": lambda: trusting.post(f"{url}/pay", data=_FORM, timeout=2).json(),
        "requests, trust_env off": lambda: plain.post(f"{url}/pay", data=_FORM, timeout=2).json(),
        "Holdfast session": ours,
        "Holdfast session in a chain": lambda: chain.call(ours, deadline=deadline),
    }


def _median(call: Callable[[], object], calls: int) -> float:
    taken = []
    for _ in range(calls):
        started = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - started)
    return statistics.median(taken) / 1000
