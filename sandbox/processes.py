"""Starting child processes that never outlive their starter (Linux).

The kernel's parent-death signal is tied to the *thread* that forked, not to the process: a child started
from a short-lived thread dies with that thread. Every child is therefore forked by one daemon thread that
lives as long as the interpreter.
"""

import ctypes
import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class User:
    """The account a child runs as, when it is not the account of its starter."""

    uid: int
    gid: int


def die_with_parent(parent: int, death_signal: int = signal.SIGKILL) -> None:
    """Make this process receive `death_signal` when the thread that forked it ends.

    `parent` is the pid of the starter, read before the fork: if it died in between, the kernel would never
    tell, so the process then ends here. A change of user clears the setting; call this afterwards.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(1)


def spawn(
    argv: Sequence[str | Path],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: User | None = None,
    death_signal: int = signal.SIGKILL,
    stdin: int | None = None,
    stdout: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start `argv` in its own process group; it receives `death_signal` when this process dies, however.

    Output is appended to `log` (or thrown away); `stdout=subprocess.PIPE` takes standard output out of it.
    Thread-safe. Raises OSError when the program cannot be started.
    """
    parent = os.getpid()

    def fork() -> subprocess.Popen[bytes]:
        sink: IO[bytes] | int = log.open("ab") if log else subprocess.DEVNULL
        try:
            return subprocess.Popen(
                [str(part) for part in argv],
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=sink if stdout is None else stdout,
                stderr=sink,
                env=None if env is None else dict(env),
                cwd=cwd,
                process_group=0,
                user=user.uid if user else None,
                group=user.gid if user else None,
                extra_groups=[] if user else None,
                # Between fork and exec it only makes two system calls: no lock another thread could hold.
                preexec_fn=lambda: die_with_parent(parent, death_signal),  # noqa: PLW1509
            )
        finally:
            if not isinstance(sink, int):
                sink.close()

    return _forker().run(fork)


class _Forker:
    """The one thread that forks. A copy of this process made by fork() has lost it and makes its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._jobs: queue.SimpleQueue[tuple[object, Future[subprocess.Popen[bytes]]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="sandbox-forker", daemon=True).start()

    def run(self, job: object) -> subprocess.Popen[bytes]:
        done: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((job, done))
        return done.result(timeout=30)

    def _work(self) -> None:
        while True:
            job, done = self._jobs.get()
            try:
                done.set_result(job())  # type: ignore[operator]
            except BaseException as error:
                done.set_exception(error)


_lock = threading.Lock()
_current: list[_Forker] = []


def _forker() -> _Forker:
    with _lock:
        if not _current or _current[0].pid != os.getpid():
            _current[:] = [_Forker()]
        return _current[0]


def _tasks(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Every living child, grandchild and so on of `pid`, parents before children."""
    found: list[int] = []
    for task in _tasks(pid):
        try:
            children = [int(word) for word in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
        except OSError:  # it ended while we looked
            continue
        for child in children:
            found.append(child)
            found.extend(descendants(child))
    return found


def send(pids: Sequence[int], number: int) -> None:
    """Signal each of `pids`; those already gone are passed over."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port nobody listens on now. Somebody may take it before you do: callers try again."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def last_lines(path: Path, count: int = 12, reach: int = 8192) -> str:
    """The end of a log file, for a message about a child that failed; at most `reach` bytes are read."""
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - reach))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-count:])
