"""Workers and beat that can do nothing say so, end, and are replaced; being cut off for a moment is no reason."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from config import alive
from tests.neighbours import REFUSE, Neighbourhood
from tests.processes.harness import ROOT, Browser, Stack, eventually

pytestmark = pytest.mark.process
LOST = {"BROKER_LOST_SECONDS": "2", "GRACE_SECONDS": "2"}
FILES = {"worker": "worker", "money-worker": "money", "beat": "beat"}


def well(stack: Stack, process: str) -> bool:
    """What the shipped probe says."""
    command = [sys.executable, "-m", "config.alive", FILES[process], "3"]
    return subprocess.run(command, cwd=ROOT, env=stack.environment, check=False, timeout=20).returncode == 0


def test_a_worker_or_beat_that_can_do_nothing_looks_ill_and_ends_to_be_replaced(
    stack: Stack, neighbours: Neighbourhood
) -> None:
    stack.environment.update(LOST)
    browser = Browser(stack.web())
    neighbours.fault(neighbours.gateway, REFUSE)
    assert browser.buy().status == 302
    neighbours.heal()
    assert not well(stack, "beat"), "before the start"
    stack.workers()
    for process in FILES:
        eventually(lambda: well(stack, process), 20, f"{process}: {stack.log(process)}")  # noqa: B023
    eventually(lambda: stack.orders() == {"PAID": 1}, 20)
    _stop_listening(stack, "money")
    with redis.Redis.from_url(stack.valkey.url) as client:
        eventually(lambda: client.llen("money"), 5)
    os.kill(stack.processes["beat"].pid, signal.SIGSTOP)
    eventually(lambda: not well(stack, "beat"), 10, "a stopped process looks well")
    os.kill(stack.processes["beat"].pid, signal.SIGCONT)
    assert stack.processes["money-worker"].wait(20) == 1, "deaf to what waits for it"
    assert "messages wait and none is taken" in stack.log("money-worker")
    stack.valkey.pause()
    codes = {process: stack.processes[process].wait(25) for process in ("worker", "beat")}
    assert codes == {"worker": 1, "beat": 1}
    eventually(lambda: not any(well(stack, process) for process in FILES), 5)
    stack.valkey.resume()


def test_a_worker_whose_children_stand_still_looks_ill_and_ends_to_be_replaced(stack: Stack) -> None:
    stack.environment.update(LOST, TASK_SECONDS="1")
    stack.start("worker", stack.command("worker"))
    stack.start("beat", stack.command("beat"))
    eventually(lambda: well(stack, "worker"), 20, stack.log("worker"))
    stopped: set[int] = set()

    def looks_ill() -> bool:
        # Also those that took the place of one killed in the middle of a task for lasting too long.
        for child in set(stack.children("worker")) - stopped:
            os.kill(child, signal.SIGSTOP)
            stopped.add(child)
        return not well(stack, "worker")

    try:
        eventually(looks_ill, 30, "nothing is taken, and it looks well")
        assert stack.processes["worker"].wait(40) == 1, stack.log("worker")
    finally:
        for child in stopped:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def test_two_of_a_kind_that_share_a_folder_say_nothing_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alive").mkdir()
    for host, is_well in (("one", True), ("other", False)):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        if is_well:
            alive.file_of(tmp_path, "worker").touch()
        assert (alive.seconds_since(tmp_path, "worker") < 10) is is_well


def test_each_process_names_what_is_missing_in_one_line(stack: Stack) -> None:
    for process in ("web", "worker", "beat"):
        stack.start(process, stack.command(process), SECRET_KEY="", HOLDFAST_ENV="production", PORT="0")
        assert stack.processes[process].wait(30) != 0
        said = stack.log(process).strip().splitlines()
        assert len(said) == 1, said
        assert "SECRET_KEY is not set" in said[0]


def _stop_listening(stack: Stack, queue: str) -> None:
    """As a worker does that came back from a lost connection and forgot to subscribe."""
    command = ["-A", "config.celery", "control", "--timeout", "0.5", "cancel_consumer", queue]
    subprocess.run(
        [sys.executable, "-m", "celery", *command],
        cwd=ROOT,
        env=stack.environment,
        check=True,
        timeout=30,
        capture_output=True,
    )
