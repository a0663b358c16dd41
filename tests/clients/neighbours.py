"""The sandbox's neighbours as processes of their own, and chains to reach them with."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resilience.breaker import BreakerPolicy
from resilience.chain import Chain, ChainPolicy
from resilience.deadline import Deadline
from resilience.http import HttpPolicy, HttpSession
from resilience.retry import RetryPolicy

API_KEY = "sk_test_contract"
CALL_TIMEOUT = 1.0


@dataclass(frozen=True)
class Process:
    """A running neighbour."""

    url: str
    control_url: str

    def control(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.control_url}/_sandbox/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text.strip() else None

    def faulty(self, effect: dict[str, Any], **match: Any) -> None:
        """Play one effect from now on, in place of any before."""
        self.control("PUT", "faults", [{"match": match, "effect": effect}])

    def heal(self) -> None:
        self.control("DELETE", "faults")
        self.control("DELETE", "ledger")

    def ledger(self) -> Any:
        return self.control("GET", "ledger")

    def session(self, **headers: str) -> HttpSession:
        return HttpSession(
            HttpPolicy(
                base_url=self.url,
                connect_timeout=0.5,
                read_timeout=CALL_TIMEOUT,
                call_timeout=CALL_TIMEOUT,
                pool_wait=0.5,
                headers=headers,
            )
        )


@contextmanager
def running(name: str) -> Iterator[Process]:
    """Start `python -m sandbox.NAME` on free ports; it ends with the block, or with the tests at the latest."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"sandbox.{name}", "--port", "0", "--with-parent"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found: dict[str, str] = {}
        while "ready" not in found:
            line = process.stdout.readline()
            assert line, f"sandbox.{name} ended before it was ready"
            word, _, url = line.strip().partition(" ")
            found[word] = url
        yield Process(found["ready"], found["control"])
    finally:
        process.terminate()
        process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()


# It keeps its books in one file of /tmp for everybody: each of ours gets a file of its own.
_LOCALSTRIPE = """
import builtins, sys
from localstripe import resources, server
books = sys.argv.pop(1)
resources.open = lambda path, mode: builtins.open(books, mode)
server.start()
"""


@contextmanager
def localstripe_running() -> Iterator[Process]:
    """Start localstripe on a free port, with nothing in it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="holdfast-localstripe-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", _LOCALSTRIPE, f"{folder}/books", "--port", str(port), "--from-scratch"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            text=True,
        )
        try:
            assert process.stdout is not None
            assert "Running on" in process.stdout.readline()
            yield Process(f"http://127.0.0.1:{port}", "")
        finally:
            process.kill()
            process.communicate(timeout=10)


def chain(*, attempts: int = 1, call_timeout: float = CALL_TIMEOUT) -> Chain:
    """A chain whose breaker opens after ten failures of the last ten calls and not before."""
    return Chain(
        ChainPolicy(
            name="test",
            call_timeout=call_timeout,
            retry=RetryPolicy(attempts=attempts, backoff=0.001, budget_floor_per_second=100.0),
            breaker=BreakerPolicy(window=10, min_calls=10, failure_rate=100.0, slow_rate=100.0),
        )
    )


def failures(guard: Chain) -> int:
    """How many calls the breaker has counted as failures."""
    return guard.breaker.snapshot().failed


def soon(milliseconds: int = 900) -> Deadline:
    return Deadline.after_ms(milliseconds)
