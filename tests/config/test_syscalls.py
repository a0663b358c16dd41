"""One contract for Python's own recv and send and for those that keep the interpreter lock, on real sockets."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from config import syscalls

Recv = Callable[[socket.socket], bytes]
Send = Callable[[socket.socket, bytes], int]
Pair = tuple[socket.socket, socket.socket]


def python_recv(sock: socket.socket) -> bytes:
    return sock.recv(65_536)


def python_send(sock: socket.socket, data: bytes) -> int:
    return sock.send(data)


recvs = pytest.mark.parametrize("recv", [python_recv, syscalls.recv])
sends = pytest.mark.parametrize("send", [python_send, syscalls.send])


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Ours, which never blocks, and theirs."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as theirs,
    ):
        ours, _ = server.accept()
        with ours:
            ours.setblocking(False)
            theirs.settimeout(10)
            yield ours, theirs


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def told(call: Callable[[], bytes]) -> bytes:
    """What a call says when the other side's step has arrived: loopback may take a moment."""
    until = time.monotonic() + 10
    while True:
        try:
            return call()
        except BlockingIOError:
            assert time.monotonic() < until
            time.sleep(0.001)


def again_and_again(send: Send, sock: socket.socket, data: bytes) -> None:
    for _ in range(10_000):
        send(sock, data)


@recvs
def test_what_has_come_is_taken_with_every_byte_in_it(pair: Pair, recv: Recv) -> None:
    ours, theirs = pair
    theirs.sendall(b"a\0b\r\n\r\n")
    assert told(lambda: recv(ours)) == b"a\0b\r\n\r\n"
    theirs.sendall(b"cd")
    assert told(lambda: recv(ours)) == b"cd"


@recvs
def test_nothing_yet_is_no_end_and_an_end_is_nothing(pair: Pair, recv: Recv) -> None:
    ours, theirs = pair
    with pytest.raises(BlockingIOError):
        recv(ours)
    theirs.shutdown(socket.SHUT_WR)
    assert told(lambda: recv(ours)) == b""


@recvs
def test_a_client_that_has_gone_is_told_when_reading(pair: Pair, recv: Recv) -> None:
    ours, theirs = pair
    reset(theirs)
    with pytest.raises(ConnectionResetError):
        told(lambda: recv(ours))


@sends
def test_what_is_sent_arrives_with_every_byte_in_it(pair: Pair, send: Send) -> None:
    ours, theirs = pair
    assert send(ours, b"a\0b") == 3
    assert theirs.recv(10) == b"a\0b"


@sends
def test_a_client_that_reads_nothing_is_sent_a_part_and_then_keeps_nobody_waiting(
    pair: Pair, send: Send
) -> None:
    ours, _ = pair
    large = b"x" * 50_000_000
    assert 0 < send(ours, large) < len(large)
    with pytest.raises(BlockingIOError):
        again_and_again(send, ours, large)


@sends
def test_a_client_that_has_gone_is_told_when_writing(pair: Pair, send: Send) -> None:
    ours, theirs = pair
    reset(theirs)
    with pytest.raises(ConnectionError):  # a broken pipe must not end the process
        again_and_again(send, ours, b"x")


@pytest.mark.parametrize("call", [python_recv, syscalls.recv, lambda sock: syscalls.send(sock, b"x")])
def test_a_closed_socket_of_ours_is_an_error_and_nobody_elses(
    call: Callable[[socket.socket], object],
) -> None:
    sock = socket.socket()
    sock.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        call(sock)


def test_no_other_thread_runs_while_a_refusal_is_read_and_written(pair: Pair) -> None:
    """Else each of both would wait for a busy thread for as long as Python lets one run."""
    ours, theirs = pair
    ended = threading.Event()
    turns = [0]

    def busy() -> None:
        while not ended.is_set():
            turns[0] += 1

    seen = []
    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(200):
            theirs.sendall(b"x")
            before = turns[0]
            syscalls.send(ours, syscalls.recv(ours))
            seen.append(turns[0] - before)
    finally:
        ended.set()
        thread.join()
    assert sorted(seen)[len(seen) // 2] == 0
