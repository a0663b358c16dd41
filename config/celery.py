"""Celery drives what the database holds: short ticks from beat, loops in the workers.

Nothing of value is in the broker. Publishers (beat) get tiny bounds so that a hung broker cannot
hold them; workers keep the defaults, since their blocking reads are longer than any such bound.
"""

from __future__ import annotations

import os
import signal
import ssl
import sys
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.signals import (
    after_task_publish,
    beat_init,
    celeryd_init,
    setup_logging,
    worker_process_init,
    worker_ready,
)
from django.conf import settings

from config import exposition
from config.checks import insist
from config.deadlines import DeadlineTask
from config.environment import ConfigurationError
from config.watchdog import BeatLook, Turns, Watchdog, WorkerLook
from config.worker_end import leave_when_done

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

MONEY, DEFAULT = "money", "default"

PUBLISHER_OPTIONS = {
    "max_retries": 0,
    "interval_start": 0,
    "interval_step": 0,
    "interval_max": 0,
    "socket_connect_timeout": 0.3,
    "socket_timeout": 0.3,
    "retry_on_timeout": False,
}

app = Celery("holdfast", task_cls=DeadlineTask)
app.steps["consumer"].add(Turns)


def _every(seconds: float, task: str, *args: str, queue: str = DEFAULT) -> dict[str, Any]:
    # A tick not taken up before the next one comes is dropped: after an outage there is no pile of them.
    return {
        "task": task,
        "schedule": seconds,
        "args": args,
        "options": {"queue": queue, "expires": max(2.0, seconds)},
    }


def _configure() -> None:
    try:
        tick = settings.HOLDFAST.tick_seconds
    except ConfigurationError as error:
        sys.exit(str(error))
    app.conf.update(
        broker_url=settings.BROKER_URL,
        # kombu takes any certificate unless told; what the URL says of it comes first.
        broker_use_ssl={"ssl_cert_reqs": ssl.CERT_REQUIRED}
        if settings.BROKER_URL.startswith("rediss")
        else None,
        broker_transport_options=PUBLISHER_OPTIONS,
        broker_connection_timeout=0.5,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_publish_retry=False,
        task_ignore_result=True,
        task_default_queue=DEFAULT,
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
        worker_consumer="config.patience:QuickConsumer",
        task_soft_time_limit=settings.HOLDFAST.task_seconds * 2 / 3,
        task_time_limit=settings.HOLDFAST.task_seconds,
        timezone="UTC",
        beat_scheduler="config.patience:QuickScheduler",
        beat_schedule={
            "drain-payment": _every(tick, "orders.tasks.drain", "payment", queue=MONEY),
            "drain-mail": _every(tick, "orders.tasks.drain", "mail"),
            "control-mode": _every(tick, "orders.tasks.control_mode"),
            "expire-orders": _every(tick, "orders.tasks.expire_orders"),
            "sweep-stuck": _every(max(10 * tick, 10.0), "orders.tasks.sweep_stuck"),
            "purge-old": _every(60.0, "orders.tasks.purge_old"),
            "refresh-rates": _every(settings.HOLDFAST.rates_refresh_seconds, "orders.tasks.refresh_rates"),
            "refresh-catalog": _every(30.0, "orders.tasks.refresh_catalog"),
        },
    )


_configure()
app.autodiscover_tasks(["orders", "payments"])


@setup_logging.connect
def _keep_the_log_of_the_settings(**kwargs: Any) -> None:
    """While somebody listens here Celery leaves handlers alone; its own format would drop every line's fields."""


@celeryd_init.connect
def _worker_waits_for_its_broker(sender: str = "", conf: Any = None, **kwargs: Any) -> None:
    insist()
    exposition.prepare(settings.HOLDFAST_HOME, settings.METRICS_PORT)
    _watch(
        sender.partition("@")[0],
        WorkerLook(settings.BROKER_URL, settings.HOLDFAST.task_seconds),
        lambda: leave_when_done(1),
    )
    conf.broker_transport_options = {
        "visibility_timeout": settings.HOLDFAST.broker_visibility_seconds,
        "socket_connect_timeout": 2,
        "socket_keepalive": True,
        "health_check_interval": 10,
    }
    conf.broker_connection_timeout = 4


@worker_process_init.connect
def _report_the_breaker(**kwargs: Any) -> None:
    from payments import reporter
    from payments.controller import WORKER

    if settings.HOLDFAST.otlp_endpoint:
        from config import traces

        traces.start("holdfast-worker")
    reporter.start(WORKER)
    if exposition.wanted():
        from config import sampling

        sampling.start(web=False)


@worker_ready.connect
def _serve_metrics(**kwargs: Any) -> None:
    exposition.serve(settings.METRICS_HOST, settings.METRICS_PORT)


@beat_init.connect
def _beat_ticks_often(sender: Any = None, **kwargs: Any) -> None:
    insist()
    look = BeatLook(settings.HOLDFAST.tick_seconds)
    after_task_publish.connect(look.sent, weak=False)
    _watch("beat", look, lambda: os._exit(1))
    sender.scheduler.max_interval = min(1.0, settings.HOLDFAST.tick_seconds)
    # It holds nothing, and Celery's own handler can wait for the broker that it is in the middle of asking.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _watch(name: str, look: Callable[[], str | None], end: Callable[[], None]) -> None:
    Watchdog(settings.HOLDFAST_HOME, name, look, settings.HOLDFAST.broker_lost_seconds, end).start()
