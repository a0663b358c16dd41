"""The whole shop on one machine: `python -m sandbox.demo`. Ctrl-C stops it.

Starts an embedded PostgreSQL and Valkey and the three sandbox neighbours, unless the environment names
others (DATABASE_URL, BROKER_URL, PAYMENT_URL, CATALOG_URL, RATES_URL), then the processes of the Procfile.
What the environment says always wins. `PORT` (8000; 0 takes a free one) and `HOLDFAST_HOME` (.holdfast).
"""

import contextlib
import fcntl
import http.client
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from sandbox.control import ROOT, ControlError, start_neighbour
from sandbox.embedded import EmbeddedError, start_postgres, start_valkey
from sandbox.processes import descendants, free_port, last_lines, send, spawn
from sandbox.supervisor import Command, Supervisor, read_procfile

PREPARATION: tuple[tuple[str, ...], ...] = (
    ("migrate", "--no-input", "--verbosity", "0"),
    ("seed_demo",),
)
_START_SECONDS = 60.0
_NEIGHBOURS = {"gateway": "PAYMENT", "catalog": "CATALOG", "rates": "RATES"}
_WEB = "web"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What a manage.py beside the demo must share with it; the person's other variables are none of its business.
NAMES_OF_SETTINGS = (
    "DATABASE_URL", "BROKER_URL", "CACHE_URL", "SECRET_KEY", "SITE_URL", "HOLDFAST_ENV", "HOLDFAST_HOME", "PORT",
    "CHECKOUT_BUDGET_MS", "OWN_WORK_MS", "WEB_THREADS", "EXPECTED_RPS", "PAYMENT_", "CATALOG_", "RATES_", "DEGRADED_",
    "RESERVE_", "RECOVER_", "REPLAY_", "OUTBOX_",
)  # fmt: skip


class DemoError(Exception):
    """The demo cannot start; the text is for the person who started it."""


class Demo:
    """The running shop. `start`, then `stop` (always, also after a failed start); one thread.

    `env` adds to and overrides the process's environment; an empty value is as good as none. `port` 0 takes a free one.
    """

    def __init__(
        self,
        home: Path,
        port: int = 0,
        env: Mapping[str, str] | None = None,
        *,
        procfile: Path = ROOT / "Procfile",
        preparation: Sequence[Sequence[str]] = PREPARATION,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.home = home.resolve()
        self.port = port
        given = {**os.environ, **(env or {})}
        self.env = {
            name: value for name, value in given.items() if value or not name.startswith(NAMES_OF_SETTINGS)
        }
        self.log_in = ""
        self._procfile = procfile
        self._preparation = preparation
        self._say = say
        self._lock: IO[str] | None = None
        self._supervisor: Supervisor | None = None

    @property
    def url(self) -> str:
        return f"http://{self.env.get('HOST', '127.0.0.1')}:{self.port}"

    def pids(self) -> dict[str, int]:
        """Name → process id of everything that runs."""
        return self._supervisor.pids() if self._supervisor else {}

    def start(self) -> None:
        """Returns when the shop answers. Raises DemoError with one sentence, and log lines if there are."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._take_home()
        self._take_port()
        (self.home / "logs").mkdir(exist_ok=True)
        self._fill_environment()
        self._supervisor = Supervisor(self._say, self._write_pids, [self._env_file, self._pid_file])
        try:
            self._start_servers(self._supervisor)
            self._write_env_file()
            for arguments in self._preparation:
                self._prepare(arguments)
            self._start_commands(self._supervisor)
        except (EmbeddedError, ControlError, OSError, ValueError) as error:
            raise DemoError(str(error)) from error
        self._supervisor.watch()

    def stop(self) -> None:
        """Ends everything within 15 s; nothing is left. Harmless when nothing runs."""
        if self._supervisor is not None:
            names = set(self._supervisor.pids())
            others = tuple(names - {_WEB, "gateway", "catalog", "rates", "Valkey", "PostgreSQL"})
            phases = [((_WEB,), 5.0), (others, 4.0), (tuple(_NEIGHBOURS), 1.0)]
            self._supervisor.stop([*phases, (("Valkey",), 1.0), (("PostgreSQL",), 1.5)])
            self._supervisor = None
        if self._lock is not None:  # otherwise the files are another demo's
            self._env_file.unlink(missing_ok=True)
            self._pid_file.unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    # --- before anything runs -------------------------------------------------------------------------

    @property
    def _env_file(self) -> Path:
        return self.home / "demo.env"

    @property
    def _pid_file(self) -> Path:
        return self.home / "pids.json"

    def _take_home(self) -> None:
        """One demo per home. The lock is the kernel's: it cannot outlive us."""
        lock = (self.home / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise DemoError(f"A demo already runs in {self.home}; stop it or set HOLDFAST_HOME.") from None
        self._lock = lock

    def _take_port(self) -> None:
        self.port = self.port or free_port()
        host = self.env.get("HOST", "127.0.0.1")
        give_up = time.monotonic() + 3  # the web processes of a demo killed just now let go of it soon
        while True:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, self.port))
                    return
                except OSError as error:
                    if time.monotonic() > give_up:
                        raise DemoError(
                            f"Port {self.port} cannot be used ({error.strerror}); choose another with PORT=…"
                        ) from None
            time.sleep(0.1)

    def _fill_environment(self) -> None:
        programs = str(Path(sys.executable).parent)
        self.env |= {
            "PATH": f"{programs}{os.pathsep}{self.env.get('PATH', '')}",
            "PYTHONUNBUFFERED": "1",
            "PORT": str(self.port),
            "HOLDFAST_HOME": str(self.home),
        }
        defaults = {
            "HOLDFAST_ENV": "demo",
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "SECRET_KEY": self._secret("secret_key"),
            "SITE_URL": self.url,
            "PAYMENT_API_KEY": "sk_test_demo",
            "PAYMENT_WEBHOOK_SECRET": "whsec_" + self._secret("webhook_secret"),
            "SANDBOX_WEBHOOK_URL": f"{self.url}/payments/webhook/",
            "DRAIN_SECONDS": "0",
            "GRACE_SECONDS": "4",
        }
        self.env = defaults | self.env

    def _secret(self, name: str) -> str:
        """Made once and kept, so that sessions and signatures live through a restart."""
        path = self.home / name
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, secrets.token_hex(32).encode())
            os.close(descriptor)
        return path.read_text()

    # --- starting -------------------------------------------------------------------------------------

    def _log(self, name: str) -> Path:
        """The emptied log file of one process."""
        path = self.home / "logs" / f"{name}.log"
        path.write_bytes(b"")
        return path

    def _start_servers(self, supervisor: Supervisor) -> None:
        """Everything the shop needs, side by side; those that are given are left alone."""
        jobs: list[tuple[str, Future[Any]]] = []
        with ThreadPoolExecutor() as pool:
            if "DATABASE_URL" not in self.env:
                jobs.append(("PostgreSQL", pool.submit(start_postgres, self.home)))
            if "BROKER_URL" not in self.env:
                jobs.append(("Valkey", pool.submit(start_valkey, self.home)))
            for name, prefix in _NEIGHBOURS.items():
                if f"{prefix}_URL" not in self.env:
                    options = ("--state", str(self.home / "gateway")) if name == "gateway" else ()
                    jobs.append(
                        (
                            name,
                            pool.submit(start_neighbour, name, *options, log=self._log(name), env=self.env),
                        )
                    )
        for name, job in jobs:  # keep what came up, before one that did not ends it all
            if job.exception() is None:
                supervisor.keep(name, job.result())
        for name, job in jobs:
            self._announce_server(name, job.result())

    def _announce_server(self, name: str, server: Any) -> None:
        self._say(f"{name:<12} {server.url}")
        if name == "PostgreSQL":
            self.env["DATABASE_URL"] = server.url
        elif name == "Valkey":
            self.env["BROKER_URL"] = server.url
            self.env.setdefault("CACHE_URL", server.url.removesuffix("/0") + "/1")
        else:
            prefix = _NEIGHBOURS[name]
            self.env[f"{prefix}_URL"] = server.url
            self.env[f"{prefix}_CONTROL_URL"] = server.control_url

    def _prepare(self, arguments: Sequence[str]) -> None:
        """One `manage.py` command, to its end."""
        log = self._log(arguments[0])
        process = spawn([sys.executable, ROOT / "manage.py", *arguments], log=log, env=self.env, cwd=ROOT)
        try:
            code = process.wait(_START_SECONDS)
        except BaseException:
            process.kill()
            process.wait(5)
            raise
        if code != 0:
            raise DemoError(f"manage.py {arguments[0]} failed:\n{last_lines(log)}")
        self.log_in = last_lines(log, 1) or self.log_in

    def _start_commands(self, supervisor: Supervisor) -> None:
        commands = {
            name: Command(line, self.env, self._log(name))
            for name, line in read_procfile(self._procfile).items()
        }
        for name, command in commands.items():
            command.start()
            supervisor.keep(name, command)
            self._say(f"{name:<12} pid {command.pid}")
        for path in ("/health/live/", "/health/ready/"):
            self._wait_for(path, commands)

    def _wait_for(self, path: str, commands: Mapping[str, Command]) -> None:
        give_up = time.monotonic() + _START_SECONDS
        while not _answers(self.env.get("HOST", "127.0.0.1"), self.port, path):
            for name, command in commands.items():
                if not command.alive:
                    raise DemoError(f"{name} ended while starting:\n{last_lines(command.log)}")
            if time.monotonic() > give_up:
                raise DemoError(f"{path} does not answer:\n{last_lines(commands[_WEB].log)}")
            time.sleep(0.05)

    # --- what others read -----------------------------------------------------------------------------

    def _write_env_file(self) -> None:
        lines = [
            f"{name}={value}"
            for name, value in sorted(self.env.items())
            if name.startswith(NAMES_OF_SETTINGS)
        ]
        _write_atomically(self._env_file, "\n".join(lines) + "\n")

    def _write_pids(self) -> None:
        if self._supervisor:
            pids = {"demo": os.getpid(), **self._supervisor.pids()}
            _write_atomically(self._pid_file, json.dumps(pids, indent=2) + "\n")


def _write_atomically(path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)


def _answers(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class _Stop(BaseException):
    """A signal to end, raised in the main thread wherever it is."""


def _stop_on_signals() -> None:
    """The first signal begins the orderly end; another one, a second or more later, cuts it short.

    Not sooner: timeout(1) and terminals send the same signal twice.
    """
    begun = 0.0

    def first(*_: object) -> None:
        nonlocal begun
        begun = time.monotonic()
        for number in _SIGNALS:
            signal.signal(number, second)
        raise _Stop

    def second(*_: object) -> None:
        if time.monotonic() < begun + 1:
            return
        send(descendants(os.getpid()), signal.SIGKILL)
        os._exit(130)

    for number in _SIGNALS:
        signal.signal(number, first)


def _print(line: str) -> None:
    """One line at once; a terminal that is gone ends nothing."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _summary(demo: Demo, seconds: float) -> Iterator[str]:
    yield ""
    yield f"Shop         {demo.url}/"
    yield f"Operations   {demo.url}/ops/"
    yield f"Break it     {demo.url}/_demo/"
    if demo.log_in:
        yield f"Users        {demo.log_in}"
    for name, prefix in _NEIGHBOURS.items():
        if control := demo.env.get(f"{prefix}_CONTROL_URL"):
            yield f"{name:<12} {control}/_sandbox/faults"
    yield f"Logs         {demo.home / 'logs'}"
    yield f"ready in {seconds:.1f} s; Ctrl-C stops everything"


def main() -> None:
    begun = time.monotonic()
    port = os.environ.get("PORT", "8000")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        sys.exit(f"PORT must be a number from 0 to 65535, not {port}")
    demo = Demo(
        Path(os.environ.get("HOLDFAST_HOME", ".holdfast")),
        int(port),
        say=_print,
    )
    _stop_on_signals()
    code = 0
    try:
        demo.start()
        _print("\n".join(_summary(demo, time.monotonic() - begun)))
        while True:
            signal.pause()
    except _Stop:
        _print("stopping")
    except DemoError as error:
        print(error, file=sys.stderr, flush=True)
        code = 1
    finally:
        demo.stop()
        send(descendants(os.getpid()), signal.SIGKILL)  # a child forked in the instant of the signal
    sys.exit(code)


if __name__ == "__main__":
    main()
