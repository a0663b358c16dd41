"""gunicorn's configuration: threads, bounded queues, its own port on every worker process."""

import os
from typing import Any

bind = f"{os.environ.get('HOST', '127.0.0.1')}:{os.environ.get('PORT', '8000')}"
workers = int(os.environ.get("WEB_WORKERS", "2"))
worker_class = "gthread"
threads = int(os.environ.get("WEB_THREADS", "16"))
# A web process keeps its connections ready; a burst after a quiet time shall not wait for handshakes.
os.environ.setdefault("DATABASE_POOL_MIN", str(threads // 2))
reuse_port = True
control_socket_disable = True
# Longer than the idle time of usual proxies and browsers: whoever closes first loses the race for a new request.
keepalive = 75
timeout = 60
graceful_timeout = 20
backlog = int(os.environ.get("WEB_BACKLOG", "256"))
accesslog = None
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108


def on_starting(server: Any) -> None:
    """In the master, before any worker: a sentence and an end, not workers that die and are replaced."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from config.checks import insist

    insist()


def post_worker_init(worker: Any) -> None:
    """After the fork and with the application loaded: this process tells the others about its breaker."""
    from payments import reporter
    from payments.controller import WEB

    reporter.start(WEB)
