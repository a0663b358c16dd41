"""Real processes for a test: web servers, Celery workers and beat over a database of their own.

PostgreSQL is the suite's, with a fresh database per stack copied from a migrated template, or the stack's
own where it shall be stopped; Valkey is the stack's own always. The neighbours are the test's.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import requests

from sandbox.embedded import Running, start_postgres, start_valkey
from sandbox.processes import descendants, free_port, spawn
from tests import servers
from tests.servers import NEIGHBOURS, temporary_home
from tests.world import VISA, Page

ROOT = Path(__file__).resolve().parent.parent.parent
# For a crowd: the last of sixty has its order in 4 s on two free cores, and in 8 s beside others.
TIME_ENOUGH = {"CHECKOUT_BUDGET_MS": "25000", "OWN_WORK_MS": "15000", "INLINE_LEASE_SECONDS": "30"}
_FAST = {
    "HOLDFAST_ENV": "test",
    "TICK_SECONDS": "0.3",
    "INLINE_LEASE_SECONDS": "2",
    "OUTBOX_RETRY_MIN_SECONDS": "0.3",
    "OUTBOX_RETRY_MAX_SECONDS": "2",
    "PAYMENT_BREAKER_OPEN_SECONDS": "1",
    "CHECKOUT_BUDGET_MS": "500",
    "OWN_WORK_MS": "100",
    "WORKER_BUDGET_MS": "4000",
    "OUTBOX_LEASE_SECONDS": "10",
    "REPLAY_RATE": "50",
    "REPLAY_RAMP_SECONDS": "0",
    "WEB_THREADS": "16",
    "WEB_WORKERS": "1",
}


def eventually(what: Callable[[], Any], seconds: float = 20.0, message: str = "it did not happen") -> Any:
    """Waits for something to become true, with a bound."""
    end = time.monotonic() + seconds
    while True:
        if value := what():
            return value
        assert time.monotonic() < end, message
        time.sleep(0.05)


def database_url(name: str) -> str:
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))


def _admin(statement: str) -> None:
    with psycopg.connect(database_url("postgres"), autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[arg-type]


class Browser:
    """A person's browser over real HTTP, one session."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.session = requests.Session()
        self.session.trust_env = False

    def _page(self, response: requests.Response) -> Page:
        return Page(response.status_code, response.text, urlsplit(response.url).path, dict(response.headers))

    def get(self, path: str, timeout: float = 30) -> Page:
        return self._page(self.session.get(self.base + path, timeout=timeout))

    def post(self, path: str, data: dict[str, Any], *, follow: bool = True, timeout: float = 30) -> Page:
        token = self.session.cookies.get("csrftoken", "")
        data = {"csrfmiddlewaretoken": token, **data}
        response = self.session.post(
            self.base + path,
            data=data,
            headers={"Referer": self.base},
            allow_redirects=follow,
            timeout=timeout,
        )
        page = self._page(response)
        if not follow and response.is_redirect:
            page.path = urlsplit(response.headers["Location"]).path
        return page

    def put_in_basket(self, sku: str = "ROPE-12", quantity: int = 1) -> Page:
        self.get("/cart/")
        page = self.post("/cart/add/", {"sku": sku, "quantity": quantity})
        assert page.status == 200, f"{page.status} {page.text[:300]}"
        return page

    def checkout_form(self, **changes: Any) -> dict[str, Any]:
        page = self.get("/checkout/")
        form: dict[str, Any] = dict(page.forms.get("/checkout/", {}))
        assert "token" in form, f"no form on the page: {page.status} {page.text[:400]}"
        form.update(email="ann@example.com", method=VISA, **changes)
        return form

    def submit(self, form: dict[str, Any], *, follow: bool = False) -> Page:
        return self.post("/checkout/", form, follow=follow)

    def buy(self, sku: str = "ROPE-12", quantity: int = 1, **changes: Any) -> Page:
        self.put_in_basket(sku, quantity)
        return self.submit(self.checkout_form(**changes))


class Stack:
    """One shop of real processes. Use as a context manager: nothing is left behind."""

    def __init__(self, *, own_postgres: bool = False, **environment: str) -> None:
        self.home = temporary_home("holdfast-stack-")
        self.database = f"stack_{uuid.uuid4().hex[:12]}"
        self.valkey: Running = start_valkey(self.home / "valkey")
        self.postgres = start_postgres(self.home / "postgres", durable=False) if own_postgres else None
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        self.environment = {
            **os.environ,
            **_FAST,
            "DATABASE_URL": self.postgres.url if self.postgres else database_url(self.database),
            "BROKER_URL": self.valkey.url,
            "CACHE_URL": self.valkey.url,
            "HOLDFAST_HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            **{f"{name.upper()}_URL": neighbour.url for name, neighbour in NEIGHBOURS.items()},
            **environment,
        }

    def __enter__(self) -> Stack:
        if self.postgres:
            self.manage("migrate", "--verbosity", "0")
        else:
            _admin(f"CREATE DATABASE {self.database} TEMPLATE {_template().name}")
        # However slow the machine is at the moment: a shop without products would be no test of anything.
        seeded = self.manage(
            "seed_demo", CHECKOUT_BUDGET_MS="20000", INLINE_LEASE_SECONDS="30", WEB_THREADS="60"
        )
        assert not seeded.startswith("0 "), seeded
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.kill(name)
            print(f"--- {name}\n{self.log(name)}")  # shown by pytest when the test fails
        self.valkey.stop()
        if self.postgres:
            self.postgres.stop()
        else:
            _admin(f"DROP DATABASE IF EXISTS {self.database} WITH (FORCE)")
        shutil.rmtree(self.home, ignore_errors=True)

    def manage(self, *arguments: str, check: bool = True, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.environment["DATABASE_URL"], autocommit=True) as connection:
            cursor = connection.execute(statement, parameters or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def start(self, name: str, command: str, **environment: str) -> None:
        """A child with a log in the stack's folder."""
        self.processes[name] = spawn(
            ["/bin/sh", "-c", f"exec {command}"],
            log=self.home / f"{name}.log",
            env={**self.environment, **environment},
            cwd=ROOT,
        )

    def command(self, process: str) -> str:
        """The shipped command line of a process, out of the Procfile."""
        lines = dict(
            line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines() if ": " in line
        )
        return lines[process]

    def web(self, name: str = "web", **environment: str) -> str:
        """A web server; returns its address once it is ready."""
        port = self.ports.setdefault(name, free_port())
        self.start(name, self.command("web"), PORT=str(port), **environment)
        base = f"http://127.0.0.1:{port}"
        eventually(lambda: self._answers(f"{base}/health/ready/"), 20, f"{name}: {self.log(name)}")
        return base

    def _answers(self, url: str) -> bool:
        with contextlib.suppress(requests.RequestException):
            return requests.get(url, timeout=2).status_code == 200
        return False

    def workers(self) -> None:
        for name in ("worker", "money-worker", "beat"):
            self.start(name, self.command(name))

    def signal(self, name: str, number: int) -> None:
        """To the whole family of a process."""
        process = self.processes[name]
        for pid in [process.pid, *descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def children(self, name: str) -> list[int]:
        """The processes that a process has forked."""
        return descendants(self.processes[name].pid)

    def kill(self, name: str) -> None:
        """kill -9, children too."""
        self.signal(name, signal.SIGKILL)
        self.processes.pop(name).wait(5)

    def log(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")[-4000:]

    def orders(self) -> dict[str, int]:
        return dict(self.sql("SELECT status, count(*) FROM orders_order GROUP BY status"))

    def audit(self) -> None:
        """Every invariant holds, by the shipped command."""
        output = self.manage("audit", check=False)
        assert "all invariants hold" in output, output


@dataclass(frozen=True)
class _Template:
    """A migrated, empty database to copy from."""

    name: str

    def stop(self) -> None:
        _admin(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


@functools.cache
def _template() -> _Template:
    """Made by the first stack of this test process, dropped before the servers end."""
    template = _Template(f"template_{uuid.uuid4().hex[:12]}")
    _admin(f"CREATE DATABASE {template.name}")
    servers.end_with_the_run(template)
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
        cwd=ROOT,
        env={**os.environ, **_FAST, "DATABASE_URL": database_url(template.name)},
        check=True,
        timeout=60,
    )
    return template
