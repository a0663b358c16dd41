"""One turn of the web worker's loop, with real sockets."""

from __future__ import annotations

import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.glogging import Logger

from config import web_worker
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


class Full:
    """A door with no place left."""

    def refuse_early(self, head: bytes, coming: int) -> bytes:
        return b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def full(worker: PatientWorker) -> Iterator[PatientWorker]:
    """As `worker`, with a door with no place left."""
    worker.wsgi = Full()
    worker.method_queue.init()
    yield worker
    worker.method_queue.close()


def refused(worker: PatientWorker, client: socket.socket) -> None:
    client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    worker.wait_for_and_dispatch_events(10)
    assert client.recv(12) == b"HTTP/1.1 503"


def rests(worker: PatientWorker) -> bool:
    """Whether the turn ends with a rest, as long as this one's, when nothing happens."""
    begun = time.monotonic()
    worker.murder_pending()
    return time.monotonic() - begun >= web_worker.REST_SECONDS


def test_a_turn_that_refused_somebody_is_followed_by_one_rest(
    full: PatientWorker, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_worker, "REST_SECONDS", 1.0)
    with socket.create_connection(listener.getsockname()) as client:
        full.wait_for_and_dispatch_events(10)
        assert not rests(full)
        refused(full, client)
        assert rests(full)
        assert not rests(full)


def test_the_rest_ends_when_somebody_has_been_served(
    full: PatientWorker, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_worker, "REST_SECONDS", 60.0)
    with socket.create_connection(listener.getsockname()) as client:
        full.wait_for_and_dispatch_events(10)
        refused(full, client)
        threading.Timer(0.1, full.method_queue.defer, [lambda: None]).start()
        assert not rests(full)


def test_a_worker_that_stops_in_the_very_turn_in_which_it_refused_somebody_does_not_wait_at_closed_sockets(
    full: PatientWorker, listener: socket.socket
) -> None:
    with socket.create_connection(listener.getsockname()) as client:
        full.wait_for_and_dispatch_events(10)
        refused(full, client)
        full.alive = False
        listener.close()
        assert not rests(full)


def test_the_rest_ends_when_somebody_connects(
    full: PatientWorker, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_worker, "REST_SECONDS", 60.0)
    with socket.create_connection(listener.getsockname()) as client:
        full.wait_for_and_dispatch_events(10)
        refused(full, client)
        with socket.create_connection(listener.getsockname()):
            assert not rests(full)
