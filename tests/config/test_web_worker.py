"""One turn of the web worker's loop, with real sockets."""

from __future__ import annotations

import os
import selectors
import socket
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.glogging import Logger

from config.web_worker import Connection, PatientWorker


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    interval = sys.getswitchinterval()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server
    sys.setswitchinterval(interval)


@pytest.fixture
def worker(listener: socket.socket) -> Iterator[PatientWorker]:
    """It has room for one connection."""
    settings = Config()
    settings.set("worker_connections", 2)
    one = PatientWorker(1, os.getpid(), [listener], None, 30, settings, Logger(settings))
    with selectors.DefaultSelector() as poller:
        one.poller = poller
        one.set_accept_enabled(True)
        yield one


def kept(worker: PatientWorker, connection: Connection) -> None:
    """As gunicorn does it after an answer."""
    worker._forget(connection)
    connection.set_timeout()
    worker.keepalived_conns.append(connection)
    heard: Any = partial(worker.on_client_socket_readable, connection)
    worker.poller.register(connection.sock, selectors.EVENT_READ, heard)


@pytest.mark.parametrize("between_requests", [True, False])
def test_who_makes_room_in_the_very_turn_in_which_it_speaks_is_counted_out_once_and_ends_nobody_else(
    worker: PatientWorker, listener: socket.socket, between_requests: bool
) -> None:
    with socket.create_connection(listener.getsockname()) as first:
        worker.wait_for_and_dispatch_events(1)
        if between_requests:
            kept(worker, next(iter(worker._waiting)))
        with socket.create_connection(listener.getsockname()):
            first.sendall(b"GET / HTTP/1.1\r\n")
            assert len(worker.poller.select(0)) == 2
            worker.wait_for_and_dispatch_events(1)
            assert worker.nr_conns == 1
            assert len(worker._waiting) == 1
            assert not worker.keepalived_conns
            with pytest.raises(ConnectionResetError):
                first.recv(1)
