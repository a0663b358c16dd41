"""Keeps a set of processes alive, and ends them completely."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sandbox.control import ROOT
from sandbox.processes import spawn

_LOOK_SECONDS = 0.2
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_STEADY_SECONDS = 30.0  # alive for so long: the next death is a new story


class Kept(Protocol):
    """What the supervisor keeps alive: a command, a sandbox neighbour or an embedded server."""

    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self, timeout: float) -> None: ...


@dataclass
class Command:
    """One line of the Procfile. Its process is the leader of a group that holds all its helpers."""

    line: str
    env: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        self._kill_group()
        self.process = spawn(["/bin/sh", "-c", f"exec {self.line}"], log=self.log, env=self.env, cwd=ROOT)

    def stop(self, timeout: float) -> None:
        """SIGTERM, SIGKILL after `timeout` seconds, and no helper is left."""
        if self.process is None:
            return
        if self.alive:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
        self._kill_group()
        self.process.wait(5)

    def _kill_group(self) -> None:
        """Helpers of a leader that died still hold its port and its locks."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class _Place:
    """One kept process and its history of deaths."""

    name: str
    kept: Kept
    pause: float = _FIRST_PAUSE
    since: float = field(default_factory=time.monotonic)
    again_at: float | None = None


class Supervisor:
    """Restarts what dies, with a pause that doubles up to 10 s. `say` gets one line per happening;
    `changed` is called after every start. Public methods are for one thread."""

    def __init__(
        self, say: Callable[[str], None], changed: Callable[[], None], doomed_files: Iterable[Path]
    ) -> None:
        self._say = say
        self._changed = changed
        self._places: list[_Place] = []
        self._stopping = threading.Event()
        self._watch: threading.Thread | None = None
        self._guardian = spawn(
            [sys.executable, "-m", "sandbox.guardian", *doomed_files],
            cwd=ROOT,
            death_signal=0,  # it is there for the time after us
            stdin=subprocess.PIPE,
        )

    def keep(self, name: str, kept: Kept) -> None:
        """Take over a process that runs. The order of calls is the reverse order of ending."""
        self._places.append(_Place(name, kept))
        self._tell_guardian("+", kept)
        self._changed()

    def pids(self) -> dict[str, int]:
        return {place.name: place.kept.pid for place in list(self._places) if place.kept.alive}

    def watch(self) -> None:
        """Begin to restart, in a thread of its own."""
        self._watch = threading.Thread(target=self._look, name="supervisor", daemon=True)
        self._watch.start()

    def stop(self, phases: Iterable[tuple[tuple[str, ...], float]]) -> None:
        """End everything: phase by phase the named ones at once, each within its seconds; then the rest."""
        self._stopping.set()
        if self._watch:
            self._watch.join(5)  # it may be waiting for a server that does not come up
        for names, seconds in phases:
            self._end([place for place in self._places if place.name in names], seconds)
        self._end(list(reversed(self._places)), 2.0)
        assert self._guardian.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guardian.stdin.close()
        self._guardian.wait(5)

    def _end(self, places: list[_Place], seconds: float) -> None:
        threads = [threading.Thread(target=self._end_one, args=(place, seconds)) for place in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _end_one(self, place: _Place, seconds: float) -> None:
        if not place.kept.pid:
            return
        place.kept.stop(seconds)
        self._tell_guardian("-", place.kept)

    def _look(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            for place in self._places:
                if not place.kept.alive:
                    self._revive(place)

    def _revive(self, place: _Place) -> None:
        now = time.monotonic()
        if place.again_at is None:
            if now - place.since > _STEADY_SECONDS:
                place.pause = _FIRST_PAUSE
            self._say(f"{place.name} died; it starts again in {place.pause:g} s")
            self._tell_guardian("-", place.kept)
            place.again_at = now + place.pause
            place.pause = min(_LONGEST_PAUSE, place.pause * 2)
        elif now >= place.again_at:
            place.again_at = None
            place.since = now
            try:
                place.kept.start()
            except Exception as error:
                self._say(f"{place.name} could not start again: {error}")
                return
            self._tell_guardian("+", place.kept)
            self._changed()
            self._say(f"{place.name} is up again (pid {place.kept.pid})")

    def _tell_guardian(self, sign: str, kept: Kept) -> None:
        """Commands only: the embedded servers and neighbours end by the parent-death signal, which lets
        PostgreSQL close its files."""
        if isinstance(kept, Command) and self._guardian.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guardian.stdin.write(f"{sign}{kept.pid}\n".encode())
                self._guardian.stdin.flush()


def read_procfile(path: Path) -> dict[str, str]:
    """Name → command. Raises ValueError for a line that is none."""
    commands = {}
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, command = line.partition(":")
        if not colon or not command.strip():
            raise ValueError(f"{path.name}: not a `name: command` line: {line}")
        commands[name.strip()] = command.strip()
    return commands
