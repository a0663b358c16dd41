"""Using the sandbox from tests, the lab and the command line: start neighbours, set faults, read ledgers."""

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sandbox.processes import last_lines, spawn

ROOT = Path(__file__).resolve().parent.parent
_START_SECONDS = 15.0


class ControlError(Exception):
    """A neighbour did not start, could not be reached or refused what it was told."""


class Control:
    """The control API of one neighbour at `url` (its control address, or its main one). Thread-safe."""

    def __init__(self, url: str) -> None:
        self.control_url = url.rstrip("/")

    def set_faults(self, *rules: dict[str, Any]) -> None:
        """Replace all rules; without any, clear them. Each is `{"match": {...}, "effect": {...}}`."""
        self.call("PUT", "/_sandbox/faults", list(rules))

    def break_with(self, effect: dict[str, Any], **match: Any) -> None:
        """One rule only: `break_with({"hang": True}, path="/v1/payment_intents")`."""
        self.set_faults({"match": match, "effect": effect})

    def heal(self) -> None:
        self.call("DELETE", "/_sandbox/faults")

    def faults(self) -> Any:
        return self.call("GET", "/_sandbox/faults")

    def ledger(self, **query: int) -> dict[str, Any]:
        """Everything recorded; `wait_for_charges=1, timeout_ms=5000` waits for it first."""
        words = "&".join(f"{name}={value}" for name, value in query.items())
        ledger: dict[str, Any] = self.call("GET", f"/_sandbox/ledger?{words}")
        return ledger

    def clear_ledger(self) -> None:
        self.call("DELETE", "/_sandbox/ledger")

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.call("GET", "/_sandbox/state")
        return state

    def call(self, method: str, path: str, body: Any = None, timeout: float = 65.0) -> Any:
        """One request, decoded. Raises ControlError, with the neighbour's sentence if it gave one."""
        address = urlsplit(self.control_url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ControlError(f"{self.control_url} cannot be reached: {error}") from error
        finally:
            connection.close()
        try:
            answer = json.loads(text) if text else None
        except ValueError:
            answer = text.decode(errors="replace")
        if response.status >= 400:
            said = answer.get("error") if isinstance(answer, dict) else answer
            raise ControlError(f"{self.control_url} answers {response.status}: {said}")
        return answer


@dataclass
class Started(Control):
    """A neighbour running as a process of ours; it ends with us. One owner stops and restarts it."""

    name: str
    url: str
    control_url: str
    process: subprocess.Popen[bytes]
    options: tuple[str, ...]
    log: Path | None = None
    env: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        super().__init__(self.control_url)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self, timeout: float = 5.0) -> None:
        """SIGTERM, which ends it at once; SIGKILL after `timeout` seconds."""
        self._end(signal.SIGTERM, timeout)

    def kill(self) -> None:
        self._end(signal.SIGKILL, 5.0)

    def start(self) -> None:
        """Again, on the same two ports, with the same state directory."""
        ports = ("--port", str(urlsplit(self.url).port))
        control = ("--control-port", str(urlsplit(self.control_url).port))
        again = start_neighbour(self.name, *self.options, *ports, *control, log=self.log, env=self.env)
        self.process = again.process

    def _end(self, number: int, timeout: float) -> None:
        if self.alive:
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
        if self.process.stdout:
            self.process.stdout.close()

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_neighbour(
    name: str, *options: str, log: Path | None = None, env: Mapping[str, str] | None = None
) -> Started:
    """Start "gateway", "catalog" or "rates" on free ports and wait until it listens. Raises ControlError."""
    process = spawn(
        [sys.executable, "-m", f"sandbox.{name}", *options],
        log=log,
        env=env,
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    try:
        told = dict(_announcements(process))
    except ControlError as error:
        process.kill()
        process.wait(5)
        raise ControlError(f"{name} did not start: {error} {last_lines(log) if log else ''}") from error
    return Started(name, told["ready"], told["control"], process, tuple(options), log, env)


def _announcements(process: subprocess.Popen[bytes]) -> Sequence[tuple[str, str]]:
    """The two lines `control URL` and `ready URL` a neighbour prints once it listens."""
    assert process.stdout is not None
    watchdog = threading.Timer(_START_SECONDS, process.kill)
    watchdog.start()
    lines: list[tuple[str, str]] = []
    try:
        while not lines or lines[-1][0] != "ready":
            words = process.stdout.readline().decode().split()
            if len(words) != 2:
                raise ControlError("it ended without a word about its address.")
            lines.append((words[0], words[1]))
    finally:
        watchdog.cancel()
    return lines
