"""A worker that loses its broker lives to see it come back."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

from kombu import Connection

from config import worker_end
from config.celery import app
from config.patience import QuickConsumer
from tests.wire.cases import CA, server_tls


class Doomed(Connection):
    """As kombu's connection to Redis sometimes is when the server goes while it is being put away."""

    def close(self) -> None:
        raise AttributeError("'NoneType' object has no attribute 'hostname'")


def test_a_lost_connection_that_cannot_even_be_closed_does_not_end_the_worker() -> None:
    consumer = QuickConsumer.__new__(QuickConsumer)
    consumer.app = app
    consumer.connection = Doomed("memory://")
    consumer.on_connection_error_after_connected(ConnectionError("gone"))
    assert consumer.connection is None


def test_a_pool_within_the_parent_leaves_the_parent_its_signals() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert before is not signal.SIG_IGN
    worker_end._leave_signals_to_the_parent()  # as a solo pool says it, in this process
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_lost_broker_is_asked_for_every_five_seconds_at_least() -> None:
    waits: list[float] = []
    consumer = QuickConsumer.__new__(QuickConsumer)
    consumer.app = app
    consumer.first_connection_attempt, consumer.broker_connection_retry_attempt = True, 0
    connection = Connection("memory://")
    connection.ensure_connection = lambda *_, **how: waits.append(how["interval_max"]) or connection
    assert consumer.ensure_connected(connection) is connection
    assert waits == [5]


def _listen(listener: socket.socket, heard: list[bytes]) -> None:
    """A broker behind TLS that hangs up once somebody trusts it with a command."""
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            with suppress(OSError), server_tls().wrap_socket(client, server_side=True) as safe:
                heard.append(safe.recv(65_536))


_CONNECT = "from config.celery import app; app.connection_for_write().default_channel"


def test_a_broker_by_tls_is_believed_by_its_certificate_alone() -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_listen, args=(listener, heard), daemon=True).start()

        def connect(query: str) -> str:
            url = f"rediss://localhost:{listener.getsockname()[1]}/0{query}"
            command = [sys.executable, "-c", _CONNECT]
            done = subprocess.run(
                command,
                env={**os.environ, "BROKER_URL": url},
                stderr=subprocess.PIPE,
                timeout=60,
                check=False,
            )
            return done.stderr.decode()

        assert "CERTIFICATE_VERIFY_FAILED" in connect("")
        assert not any(heard)
        connect(f"?ssl_ca_certs={CA}")
        assert any(b"HELLO" in said or b"PING" in said for said in heard)
