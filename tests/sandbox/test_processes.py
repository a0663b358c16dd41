"""Neighbours as programs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.control import ROOT, ControlError, start_neighbour
from tests.sandbox.raw import CHARGE, Raw
from tests.sandbox.test_embedded import gone

pytestmark = pytest.mark.process


def test_kill_9_loses_nothing_that_was_booked_and_the_ports_stay(tmp_path: Path) -> None:
    with start_neighbour("gateway", "--state", str(tmp_path)) as gateway:
        with Raw(gateway.url) as client:
            assert client.post("/v1/payment_intents", CHARGE, "k1").status == 200
        gateway.kill()
        with pytest.raises(ControlError, match="cannot be reached"):
            gateway.ledger()
        gateway.start()
        assert [charge["idempotency_key"] for charge in gateway.ledger()["charges"]] == ["k1"]
        with Raw(gateway.url) as client:
            again = client.post("/v1/payment_intents", CHARGE, "k1")
        assert again.header("Idempotent-Replayed") == "true"


@pytest.mark.parametrize("name", ["gateway", "catalog", "rates"])
def test_sigterm_ends_a_neighbour_at_once_with_exit_code_0(name: str) -> None:
    with start_neighbour(name) as neighbour:
        neighbour.break_with({"hang": True})
        with Raw(neighbour.url) as client:
            client.send("GET", "/")
            neighbour.ledger(wait_for_requests=1)
            neighbour.process.send_signal(signal.SIGTERM)
            assert neighbour.process.wait(2) == 0


def test_with_parent_a_neighbour_ends_when_its_starter_is_killed() -> None:
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-m', 'sandbox.catalog', '--with-parent'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    starter.kill()
    starter.wait(5)
    starter.stdout.close()
    assert gone([pid])


def test_a_taken_port_is_said_in_a_sentence(tmp_path: Path) -> None:
    with start_neighbour("rates") as first:
        port = first.url.rpartition(":")[2]
        with pytest.raises(ControlError, match="the rates cannot start"):
            start_neighbour("rates", "--port", port, log=tmp_path / "log")


def test_manage_py_runs_a_neighbour(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "sandbox", "gateway", "--port", "0", "--state", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("control http://")
        url = process.stdout.readline().split()[1]
        with Raw(url) as client:
            assert json.loads(client.get("/v1/balance").body)["object"] == "balance"
    finally:
        process.terminate()
        process.stdout.close()
    assert process.wait(5) == 0
