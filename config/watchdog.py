"""Workers and beat watch themselves.

Celery tries for ever to get a lost broker back, and there are ways to be connected and deaf. One that has been in
such trouble for `BROKER_LOST_SECONDS` ends with exit code 1, for whoever supervises it to start another. While all is
well, and only then, a file is touched once a second; `python -m config.alive` tells its age.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from celery import bootsteps
from celery.worker import state

from config.alive import file_of

logger = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_ASK_SECONDS = 0.5
_TURN_SECONDS = 1.0
_LATE_SECONDS = 5.0
"""So long without a turn of its loop, or a message sent, a process is not well."""


class Watchdog(threading.Thread):
    """Looks once a second. `look` says what is wrong, or None; `end` is called after `patience` seconds of trouble."""

    def __init__(
        self, home: Path, name: str, look: Callable[[], str | None], patience: float, end: Callable[[], None]
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._file = file_of(home, name)
        self._look = look
        self._patience = patience
        self._end = end

    def run(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        looks_ill, pause = 0, threading.Event()
        while not pause.wait(_LOOK_SECONDS):
            trouble = self._look()
            # Looks are counted, not seconds: after a sleep of the whole machine it gets its time to recover.
            looks_ill = 0 if trouble is None else looks_ill + 1
            if trouble is None:
                self._file.touch()
            elif looks_ill * _LOOK_SECONDS > self._patience:
                logger.critical("not well for too long, ends to be replaced", extra={"reason": trouble})
                self._end()
                return


class Turns(bootsteps.StartStopStep):
    """A step of Celery's consumer: notes every second that its loop turns, which it does only while connected.

    `queues` are those that the worker was started for, whatever it listens to later.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)
    turned_at = time.monotonic()
    queues: tuple[str, ...] = ()

    def start(self, parent: Any) -> None:
        """Again after each reconnection, which clears the timers."""
        Turns.queues = Turns.queues or tuple(parent.app.amqp.queues.consume_from)
        self.note()
        parent.timer.call_repeatedly(_TURN_SECONDS, self.note)

    @classmethod
    def note(cls) -> None:
        cls.turned_at = time.monotonic()


class WorkerLook:
    """What is wrong with this worker. For one thread. `task_seconds`: no task is let run longer."""

    def __init__(self, broker: str, task_seconds: float) -> None:
        self._client = redis.Redis.from_url(
            broker, socket_timeout=_ASK_SECONDS, socket_connect_timeout=_ASK_SECONDS, retry=None
        )
        self._task_seconds = task_seconds
        self._taken = 0
        self._took_at = time.monotonic()

    def __call__(self) -> str | None:
        if time.monotonic() - Turns.turned_at > _LATE_SECONDS:
            return "has no broker, or stands still"
        try:
            waiting = sum(int(self._client.llen(queue)) for queue in Turns.queues)
        except (redis.RedisError, OSError):
            return "the broker does not answer"
        taken, now = sum(state.total_count.values()), time.monotonic()
        if taken != self._taken or not waiting:
            self._taken, self._took_at = taken, now
            return None
        # While it is busy it may take none, but not for longer than a task may last: then its children stand still.
        busy = state.active_requests or state.reserved_requests
        late = now - self._took_at > self._task_seconds + _LATE_SECONDS
        return None if busy and not late else "messages wait and none is taken"


class BeatLook:
    """What is wrong with beat: nothing, as long as it sends a message every `tick` seconds or so."""

    def __init__(self, tick: float) -> None:
        self._late = max(_LATE_SECONDS, 3 * tick)
        self._sent_at = time.monotonic()

    def sent(self, **_: object) -> None:
        self._sent_at = time.monotonic()

    def __call__(self) -> str | None:
        return "has sent nothing" if time.monotonic() - self._sent_at > self._late else None
