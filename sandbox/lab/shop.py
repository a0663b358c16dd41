"""The whole shop for one experiment: the demo in a folder of its own, and more web servers beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg

from sandbox.control import ROOT, Control
from sandbox.demo import NAMES_OF_SETTINGS, Demo
from sandbox.lab.load import ask
from sandbox.processes import descendants, free_port, last_lines, send, spawn
from sandbox.supervisor import read_procfile


class Web:
    """One web server by its line of the Procfile, a leader with children. One owner."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url, self.process = url, process
        self.family = [process.pid, *descendants(process.pid)]

    def kill(self) -> None:
        """Nothing is left."""
        send([self.process.pid, *descendants(self.process.pid)], signal.SIGKILL)
        self.process.wait(5)


class Shop:
    """A context manager: everything runs inside, nothing afterwards. `settings` are environment variables."""

    def __init__(self, settings: Mapping[str, str], processes: tuple[str, ...] = ("web",)) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="holdfast-lab-"))
        self.home.chmod(0o711)  # run by root, PostgreSQL is another user's, who has to pass through
        lines = read_procfile(ROOT / "Procfile")
        procfile = self.home / "Procfile"
        procfile.write_text("".join(f"{name}: {lines[name]}\n" for name in processes))
        # Whatever this machine is configured for, an experiment has servers and numbers of its own.
        blank = {name: "" for name in os.environ if name.startswith(NAMES_OF_SETTINGS)}
        self.demo = Demo(self.home, env={**blank, **settings}, procfile=procfile)
        self._command = lines["web"]
        self._webs: list[Web] = []

    def __enter__(self) -> Shop:
        try:
            self.demo.start()
        except BaseException:
            self.__exit__()
            raise
        self.gateway = Control(self.demo.env["PAYMENT_CONTROL_URL"])
        return self

    def __exit__(self, *_: object) -> None:
        for web in self._webs:
            web.kill()
        self.demo.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def web(self, **settings: str) -> Web:
        """One more web server, on a port of its own, ready. Raises RuntimeError."""
        port, log = free_port(), self.home / f"web-{len(self._webs)}.log"
        env = {**self.demo.env, **settings, "PORT": str(port)}
        process = spawn(["/bin/sh", "-c", f"exec {self._command}"], log=log, env=env, cwd=ROOT)
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: ask(url, "/health/ready/", patience=2)[0] == 200, 30)
        except TimeoutError:
            process.kill()
            process.wait(5)
            raise RuntimeError(f"the web server does not come up:\n{last_lines(log)}") from None
        self._webs.append(Web(url, process))
        return self._webs[-1]

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.demo.env["DATABASE_URL"], autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def manage(self, *words: str) -> str:
        """One command of `manage.py`: what it prints, whatever its exit code."""
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env=self.demo.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout or done.stderr

    def violations(self) -> list[str]:
        """What `manage.py audit` has to say."""
        told = self.manage("audit", "--json")
        try:
            found = json.loads(told)["violations"]
        except (ValueError, KeyError, TypeError):
            return [f"the audit did not run: {told.strip()[-300:]}"]
        return [f"{violation['invariant']} {violation['text']}" for violation in found]


def wait_until(what: Callable[[], object], seconds: float) -> float:
    """Looks again and again; returns the seconds it took. Raises TimeoutError."""
    begun = time.monotonic()
    while not what():
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.02)
    return time.monotonic() - begun
