"""The web server's end, readiness first.

gunicorn closes its listeners the moment SIGTERM comes, while load balancers go on sending for seconds: every
one of those requests would fail. Here the first SIGTERM only turns readiness to 503; serving goes on for the
drain time, then gunicorn gets the signal and finishes what was begun. A second SIGTERM ends everything at once.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import Any

from resilience.stopping import FAMILY, Stage

_ECHO_SECONDS = 0.1
"""A second signal sooner than this is the first one told twice: timeout(1) signals its child, then the group."""
_LOOK_AGAIN_SECONDS = 0.2


class MasterDrain:
    """Takes the place of the arbiter's own SIGTERM handler. Runs in the master's main thread only."""

    def __init__(self, arbiter: Any, drain_seconds: float) -> None:
        self._arbiter = arbiter
        self._seconds = drain_seconds
        self._pid = os.getpid()
        self._told_at = 0.0

    def install(self) -> None:
        signal.signal(signal.SIGALRM, self._drained)
        signal.signal(signal.SIGTERM, self._told)

    def _told(self, *_: object) -> None:
        if os.getpid() != self._pid:
            return  # a child just forked that has no handlers of its own yet
        now = time.monotonic()
        if FAMILY.now is Stage.SERVING:
            self._told_at = now
            FAMILY.advance(Stage.DRAINING)
            if self._seconds > 0:
                signal.setitimer(signal.ITIMER_REAL, self._seconds)
            else:
                self._drained()
        elif now - self._told_at > _ECHO_SECONDS:
            FAMILY.advance(Stage.NOW)
            self._arbiter.SIG_QUEUE.put_nowait(signal.SIGQUIT)

    def _drained(self, *_: object) -> None:
        if os.getpid() == self._pid:
            FAMILY.advance(Stage.STOPPING)
            self._arbiter.SIG_QUEUE.put_nowait(signal.SIGTERM)


class WorkerDrain:
    """A worker's handlers: a SIGTERM sent to the whole process group must not close its listener too early."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def install(self) -> None:
        """Call when the application is loaded. Signals that came before are made up for."""
        signal.signal(signal.SIGALRM, self._looked_again)
        signal.signal(signal.SIGTERM, self._told)
        for number in (signal.SIGQUIT, signal.SIGINT):
            signal.signal(number, self._leave)
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.siginterrupt(number, False)
        if FAMILY.now is Stage.STOPPING:
            self._worker.alive = False
        elif FAMILY.now is Stage.NOW:
            self._leave()

    def _told(self, *_: object) -> None:
        if FAMILY.now >= Stage.STOPPING:
            self._finish()
        elif FAMILY.now is Stage.SERVING:
            # Either the master wants one worker fewer, or the signal went to all of us and reached us first.
            signal.setitimer(signal.ITIMER_REAL, _LOOK_AGAIN_SECONDS)

    def _looked_again(self, *_: object) -> None:
        if FAMILY.now is not Stage.DRAINING:
            self._finish()

    def _finish(self) -> None:
        self._worker.handle_exit(signal.SIGTERM, None)
        self._worker.method_queue.defer(self._close_the_door)  # in the main loop, between two events

    def _close_the_door(self) -> None:
        """Who connects from now on is refused at once, instead of waiting in a queue that nobody will serve."""
        worker = self._worker
        worker.set_accept_enabled(False)
        for listener in worker.sockets:
            waiting = True
            while waiting:  # those who came before are served
                before = worker.nr_conns
                worker.accept(listener)
                waiting = worker.nr_conns > before
            listener.sock.close()
            listener.sock = _Closed()

    def _leave(self, *_: object) -> None:
        # Not sys.exit(): it would wait for the threads that are busy.
        os._exit(0)


class _Closed:
    """In the place of a closed listener, for an event that the main loop had already been told of."""

    def accept(self) -> None:
        raise BlockingIOError(errno.EAGAIN, "closed")

    def close(self) -> None:
        return


def close_politely(request: Any) -> None:
    """While we drain, each answer says "Connection: close": a kept-alive client goes elsewhere by itself."""
    if FAMILY.now is not Stage.SERVING:
        request.force_close()
