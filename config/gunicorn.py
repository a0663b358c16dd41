"""gunicorn's configuration: threads, bounded queues, its own port on every worker process, an orderly end."""

import math
import os
import socket
import sys
from typing import Any

from config import exposition
from config.draining import MasterDrain, WorkerDrain, close_politely
from config.environment import ConfigurationError, Reader

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# A web process keeps its connections ready; a burst after a quiet time shall not wait for handshakes.
os.environ.setdefault("DATABASE_POOL_MIN", str(Reader(os.environ).integer("WEB_THREADS", 16) // 2))

try:
    # All that is wrong with the environment is said once, by the master, before any worker is started.
    from config import settings

    _env = Reader(os.environ)
    _port = _env.integer("PORT", 8000, high=65_535)
    _env.finish()
except ConfigurationError as error:
    sys.exit(str(error))

exposition.prepare(settings.HOLDFAST_HOME, settings.METRICS_PORT)

bind = f"{os.environ.get('HOST', '127.0.0.1')}:{_port}"
workers = settings.HOLDFAST.web_workers
worker_class = "config.web_worker.PatientWorker"
# As many as may be in work, and some that only answer probes and say "later" to the rest.
threads = settings.HOLDFAST.web_threads + settings.HOLDFAST.spare_threads
reuse_port = True
control_socket_disable = True
# Longer than the idle time of usual proxies and browsers: whoever closes first loses the race for a new request.
keepalive = 75
timeout = 60
graceful_timeout = math.ceil(settings.HOLDFAST.grace_seconds)
# Whoever is idle longest makes room; below the 1,024 files that a process may usually have open, above all threads.
worker_connections = 600
PAGE_BYTES = 200_000
backlog = settings.HOLDFAST.web_backlog
accesslog = None
# gunicorn's own lines look like ours.
_OWN_LINES = {"gunicorn.error": {"level": "INFO", "handlers": ["console"], "propagate": False}}
logconfig_dict = {**settings.LOGGING, "loggers": _OWN_LINES}
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108


def on_starting(server: Any) -> None:
    """In the master, before any worker: a sentence and an end, not workers that die and are replaced."""
    from config.checks import insist

    insist()


def post_fork(arbiter: Any, worker: Any) -> None:
    """Accepted sockets inherit this: any page fits the buffer of a client that does not read it."""
    for listener in worker.sockets:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PAGE_BYTES)


def when_ready(arbiter: Any) -> None:
    """The master has its signal handlers: ours takes SIGTERM."""
    arbiter.log.info("serving at http://%s", bind)  # gunicorn names no address with reuse_port
    exposition.serve(settings.METRICS_HOST, settings.METRICS_PORT)
    MasterDrain(arbiter, settings.HOLDFAST.drain_seconds).install()


def post_worker_init(worker: Any) -> None:
    """After the fork and with the application loaded: this process tells the others about its breaker."""
    from config import valkey
    from orders.guesses import count_together
    from payments import reporter
    from payments.controller import WEB

    WorkerDrain(worker).install()
    if settings.HOLDFAST.otlp_endpoint:
        from config import traces

        worker.stop_traces = traces.start("holdfast-web")
    reporter.start(WEB)
    observer = None
    if exposition.wanted():
        from config import sampling

        observer = sampling.attempt
        sampling.start(web=True)
    count_together(valkey.build(settings.HOLDFAST, observer).count)


def worker_exit(arbiter: Any, worker: Any) -> None:
    """Everything is answered: the last traces go out."""
    if hasattr(worker, "stop_traces"):
        worker.stop_traces()


def pre_request(worker: Any, request: Any) -> None:
    close_politely(request)
