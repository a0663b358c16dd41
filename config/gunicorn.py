"""gunicorn's configuration: threads, bounded queues, its own port on every worker process, an orderly end."""

import importlib
import os
import sys
from typing import Any

from config.draining import MasterDrain, WorkerDrain, close_politely
from config.environment import ConfigurationError, Reader

# A web process keeps its connections ready; a burst after a quiet time shall not wait for handshakes.
os.environ.setdefault("DATABASE_POOL_MIN", str(Reader(os.environ).integer("WEB_THREADS", 16) // 2))

try:
    # All that is wrong is said once, by the master, before any worker is started.
    settings = importlib.import_module("config.settings")
except ConfigurationError as error:
    sys.exit(str(error))

bind = f"{settings.SERVER.host}:{settings.SERVER.port}"
workers = settings.SERVER.workers
worker_class = "gthread"
threads = settings.HOLDFAST.web_threads
reuse_port = True
control_socket_disable = True
# Longer than the idle time of usual proxies and browsers: whoever closes first loses the race for a new request.
keepalive = 75
timeout = 60
graceful_timeout = settings.SERVER.grace_seconds
backlog = 256
accesslog = None
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108


def when_ready(arbiter: Any) -> None:
    """The master has its signal handlers: ours takes SIGTERM."""
    MasterDrain(arbiter, settings.SERVER.drain_seconds).install()


def post_worker_init(worker: Any) -> None:
    """After the fork and with the application loaded: this process tells the others about its breaker."""
    from payments import reporter
    from payments.controller import WEB

    WorkerDrain(worker).install()
    reporter.start(WEB)


def pre_request(worker: Any, request: Any) -> None:
    close_politely(request)
