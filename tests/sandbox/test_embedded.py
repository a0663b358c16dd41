"""Real servers, as whoever runs the suite (root or not)."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from sandbox import embedded
from sandbox.control import ROOT
from sandbox.embedded import EmbeddedError, Running, start_postgres, start_valkey
from sandbox.processes import descendants

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that every account may enter, unlike pytest's own."""
    home = tmp_path_factory.mktemp("embedded")
    for step in (home, *home.parents):
        if step.stat().st_uid == os.geteuid() and step != Path("/tmp"):
            step.chmod(step.stat().st_mode | 0o711)
    return home


@pytest.fixture
def postgres(home: Path) -> Iterator[Running]:
    with start_postgres(home, durable=False) as running:
        yield running


def ask(running: Running, statement: str) -> object:
    with psycopg.connect(running.url, autocommit=True, connect_timeout=3) as connection:
        row = connection.execute(statement).fetchone()
    return row[0] if row else None


def ping(port: int, timeout: float = 0.3) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as client:
        client.sendall(b"PING\r\n")
        return client.recv(16)


def gone(pids: list[int], seconds: float = 5.0) -> bool:
    """All ended, or waiting for a parent to notice (zombies)."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if not any(_runs(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_postgres_is_ours_alone_on_loopback_without_a_unix_socket(postgres: Running) -> None:
    assert ask(postgres, "SELECT current_user || '@' || current_database()") == "holdfast@holdfast"
    assert ask(postgres, "SHOW listen_addresses") == "127.0.0.1"
    assert ask(postgres, "SHOW unix_socket_directories") == ""
    assert (ask(postgres, "SHOW max_connections"), ask(postgres, "SHOW timezone")) == ("500", "UTC")
    owner = Path(f"/proc/{postgres.pid}").stat().st_uid
    assert owner != 0


def test_data_survives_restart_and_crash_on_the_same_port(postgres: Running) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        connection.execute("INSERT INTO kept VALUES (7)")
    url = postgres.url
    postgres.restart()
    postgres.kill()
    assert not postgres.alive
    postgres.start()
    assert postgres.url == url
    assert ask(postgres, "SELECT max(n) FROM kept") == 7


def test_a_warm_start_is_quick(home: Path, postgres: Running) -> None:
    postgres.stop()
    begun = time.monotonic()
    with start_postgres(home, durable=False) as again:
        assert ask(again, "SHOW fsync") == "off"
        assert time.monotonic() - begun < 1.5


def test_paused_it_is_silent_with_connections_open_and_resumed_it_answers(postgres: Running) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        postgres.pause()
        answered = threading.Event()
        thread = threading.Thread(target=lambda: (connection.execute("SELECT 1"), answered.set()))
        thread.start()
        assert not answered.wait(0.2)
        postgres.resume()
        assert answered.wait(5)
        thread.join(5)


def test_a_second_start_on_the_same_data_says_why_it_fails(
    home: Path, postgres: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_START_SECONDS", 0.5)
    with pytest.raises(EmbeddedError, match="lock file"):
        start_postgres(home)
    assert postgres.alive


def test_valkey_answers_hangs_restarts_and_forgets(tmp_path: Path) -> None:
    with start_valkey(tmp_path) as valkey:
        assert ping(valkey.port) == b"+PONG\r\n"
        valkey.pause()
        with pytest.raises(TimeoutError):
            ping(valkey.port, 0.1)
        valkey.resume()
        valkey.kill()
        with pytest.raises(ConnectionRefusedError):
            ping(valkey.port)
        valkey.start()
        assert ping(valkey.port) == b"+PONG\r\n"
        pid = valkey.pid
    assert gone([pid])


def test_servers_started_by_a_thread_outlive_it(tmp_path: Path) -> None:
    started: list[Running] = []
    thread = threading.Thread(target=lambda: started.append(start_valkey(tmp_path)))
    thread.start()
    thread.join(10)
    with started[0] as valkey:
        assert ping(valkey.port) == b"+PONG\r\n"


def test_kill_9_of_the_starter_leaves_no_server(home: Path, tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, time\n"
        "from sandbox.embedded import start_postgres, start_valkey\n"
        "postgres = start_postgres(pathlib.Path(sys.argv[1]), durable=False)\n"
        "servers = postgres, start_valkey(pathlib.Path(sys.argv[2]))\n"
        "print(*(server.pid for server in servers), flush=True)\n"
        "time.sleep(60)\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(home), str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    assert starter.stdout is not None
    pids = [int(word) for word in starter.stdout.readline().split()]
    family = [pid for server in pids for pid in (server, *descendants(server))]
    assert len(family) > 4
    starter.send_signal(signal.SIGKILL)
    starter.wait(5)
    starter.stdout.close()
    assert gone(family)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_a_home_the_server_user_cannot_enter_is_served_from_elsewhere(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with start_postgres(tmp_path, durable=False) as postgres:
        place = Path(str(ask(postgres, "SHOW data_directory")))
    assert not place.is_relative_to(tmp_path)
    assert place.parent.stat().st_mode & 0o077 == 0
    subprocess.run(["rm", "-rf", place.parent], check=True, timeout=10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_programs_the_server_user_cannot_reach_are_copied(
    home: Path, postgres: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.stop()
    real = embedded._can_enter
    monkeypatch.setattr(embedded, "_can_enter", lambda path: path.name != "bin" and real(path))
    with start_postgres(home, durable=False) as copied:
        program = Path(f"/proc/{copied.pid}/exe").resolve()
        assert ask(copied, "SELECT 1") == 1
    assert program.is_relative_to(home)
