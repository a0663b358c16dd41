"""The supervisor with stand-ins for the shop's programs."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.control import ROOT
from sandbox.demo import Demo, DemoError
from sandbox.supervisor import read_procfile
from tests.sandbox.test_embedded import _runs, gone

pytestmark = pytest.mark.process

FAKE = Path(__file__).with_name("fake_web.py")
ELSEWHERE = {
    "DATABASE_URL": "postgresql://elsewhere/x",
    "BROKER_URL": "redis://elsewhere/0",
    "PAYMENT_URL": "http://elsewhere",
    "CATALOG_URL": "http://elsewhere",
    "RATES_URL": "http://elsewhere",
}


def procfile(home: Path, **kinds: str) -> Path:
    path = home / "Procfile"
    path.write_text("".join(f"{name}: {sys.executable} {FAKE} {kind}\n" for name, kind in kinds.items()))
    return path


def until(condition: Callable[[], object], seconds: float = 5.0) -> bool:
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True


def helper(home: Path, name: str = "web") -> int:
    log = home / "logs" / f"{name}.log"
    assert until(lambda: "helper" in log.read_text())
    return int(log.read_text().split()[-1])


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def demo(tmp_path: Path, lines: list[str]) -> Iterator[Demo]:
    programs = procfile(tmp_path, web="web", worker="worker")
    demo = Demo(tmp_path, 0, ELSEWHERE, procfile=programs, preparation=(), say=lines.append)
    demo.start()
    yield demo
    demo.stop()


def test_given_servers_are_used_and_only_the_procfile_runs(demo: Demo, lines: list[str]) -> None:
    assert set(demo.pids()) == {"web", "worker"}
    assert [line.split()[0] for line in lines] == ["web", "worker"]


def test_the_environment_file_lets_others_find_the_demo_and_nobody_else_read_it(demo: Demo) -> None:
    path = demo.home / "demo.env"
    found = dict(line.split("=", 1) for line in path.read_text().splitlines())
    assert found["PAYMENT_URL"] == "http://elsewhere"
    assert {"SECRET_KEY", "PAYMENT_API_KEY", "PAYMENT_WEBHOOK_SECRET", "HOLDFAST_ENV", "PORT"} <= set(found)
    assert "PATH" not in found
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_child_that_dies_starts_again_and_its_helpers_end_first(demo: Demo, lines: list[str]) -> None:
    old, orphan = demo.pids()["web"], helper(demo.home)
    os.kill(old, signal.SIGKILL)
    assert until(lambda: any("web is up again" in line for line in lines))
    assert "web died; it starts again in 0.5 s" in lines
    assert demo.pids()["web"] != old
    assert gone([old, orphan])
    assert json.loads((demo.home / "pids.json").read_text())["web"] == demo.pids()["web"]


def test_stop_leaves_no_process_and_no_file_also_with_a_stubborn_child(tmp_path: Path) -> None:
    programs = procfile(tmp_path, web="web", worker="stubborn")
    demo = Demo(tmp_path, 0, ELSEWHERE, procfile=programs, preparation=())
    demo.start()
    pids = [*demo.pids().values(), helper(tmp_path), helper(tmp_path, "worker")]
    begun = time.monotonic()
    demo.stop()
    assert time.monotonic() - begun < 15
    assert gone(pids)
    assert not (tmp_path / "demo.env").exists()
    assert not (tmp_path / "pids.json").exists()


def test_a_second_demo_in_the_same_home_is_refused_and_harms_nothing(demo: Demo) -> None:
    second = Demo(demo.home, 0, ELSEWHERE, procfile=demo.home / "Procfile", preparation=())
    with pytest.raises(DemoError, match="already runs"):
        second.start()
    second.stop()
    assert (demo.home / "demo.env").exists()
    assert len(demo.pids()) == 2


def test_a_taken_port_is_said_in_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        demo = Demo(tmp_path, port, ELSEWHERE, procfile=procfile(tmp_path, web="web"), preparation=())
        with pytest.raises(DemoError, match=f"Port {port} cannot be used"):
            demo.start()
        demo.stop()


def test_a_child_that_fails_at_start_shows_its_last_lines(tmp_path: Path) -> None:
    demo = Demo(tmp_path, 0, ELSEWHERE, procfile=procfile(tmp_path, web="broken"), preparation=())
    with pytest.raises(DemoError, match="I cannot find my settings"):
        demo.start()
    demo.stop()


def test_a_procfile_with_a_line_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Procfile").write_text("# comment\nweb: run it: now\n")
    assert read_procfile(tmp_path / "Procfile") == {"web": "run it: now"}
    (tmp_path / "Procfile").write_text("nonsense\n")
    with pytest.raises(ValueError, match="nonsense"):
        read_procfile(tmp_path / "Procfile")


SCRIPT = """
import sys
from pathlib import Path
from sandbox import demo
home = Path(sys.argv[1])
made = demo.Demo
demo.Demo = lambda place, port, say: made(place, port, procfile=home / "Procfile", preparation=(), say=say)
demo.main()
"""


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`python -m sandbox.demo` with real servers and neighbours, and stand-ins for the shop."""
    procfile(tmp_path, web="web", worker="worker")
    empty = dict.fromkeys(ELSEWHERE, "")
    env = {**os.environ, **empty, "HOLDFAST_HOME": str(tmp_path), "PORT": "0"}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env
    )
    yield process
    process.kill()
    process.wait(5)
    if process.stdout:
        process.stdout.close()


def everything(whole: "subprocess.Popen[str]", home: Path) -> list[int]:
    assert whole.stdout is not None
    for line in whole.stdout:
        if line.startswith("ready in"):
            break
    pids = json.loads((home / "pids.json").read_text())
    assert set(pids) == {
        "demo", "PostgreSQL", "Valkey", "gateway", "catalog", "rates", "web", "worker"
    }  # fmt: skip
    return [*pids.values(), helper(home), helper(home, "worker")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_whole_demo(
    whole: "subprocess.Popen[str]", tmp_path: Path, number: signal.Signals
) -> None:
    pids = everything(whole, tmp_path)
    whole.send_signal(number)
    assert whole.wait(15) == 0
    assert gone(pids)
    assert not (tmp_path / "demo.env").exists()


def test_kill_9_of_the_supervisor_leaves_nothing(whole: "subprocess.Popen[str]", tmp_path: Path) -> None:
    pids = everything(whole, tmp_path)
    whole.kill()
    whole.wait(5)
    assert gone(pids)
    assert until(lambda: not (tmp_path / "demo.env").exists())


def test_a_signal_during_the_start_ends_what_has_begun(
    whole: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    assert until((tmp_path / "lock").exists)
    time.sleep(0.2)
    children = [
        int(pid)
        for task in Path(f"/proc/{whole.pid}/task").glob("*/children")
        for pid in task.read_text().split()
    ]
    whole.send_signal(signal.SIGTERM)
    assert whole.wait(15) == 0
    assert not any(_runs(pid) for pid in children)
