"""gunicorn's configuration: threads, bounded queues, its own port on every worker process."""

import os

bind = f"{os.environ.get('HOST', '127.0.0.1')}:{os.environ.get('PORT', '8000')}"
workers = int(os.environ.get("WEB_WORKERS", "2"))
worker_class = "gthread"
threads = int(os.environ.get("WEB_THREADS", "16"))
reuse_port = True
control_socket_disable = True
keepalive = 5
timeout = 60
graceful_timeout = 20
backlog = 256
accesslog = None
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108
