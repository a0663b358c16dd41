"""Clients that send slowly, not at all, or never close their end cost a connection, not a thread and nobody's time."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
import requests

from tests.processes.harness import Stack
from tests.processes.test_shutdown import Stop

pytestmark = pytest.mark.process
LIVE = b"GET /health/live/ HTTP/1.1\r\nHost: x\r\n"
FORM = (
    b"POST /account/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nCookie: csrftoken=abcdefghijklmnopqrstuvwxyz012345\r\n\r\na"
)


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with Stack(WEB_THREADS="4", SPARE_THREADS="2") as stack:
        yield stack.web()


@contextmanager
def clients(base: str, number: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections that have said `first`."""
    parts = urlsplit(base)
    with ExitStack() as opened:
        found = []
        for _ in range(number):
            one = socket.create_connection((parts.hostname, parts.port), timeout=20)
            found.append(opened.enter_context(one))
            one.sendall(first)
        yield found


def answer_of(client: socket.socket) -> str:
    """Everything until the server's end."""
    return b"".join(iter(lambda: client.recv(65536), b"")).decode()


def slowest(base: str, path: str, seconds: float) -> float:
    """Of new connections, one after the other."""
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        assert requests.get(base + path, timeout=20).status_code == 200
        took.append(time.monotonic() - begun)
    return max(took)


def test_clients_that_keep_their_end_open_after_the_last_answer_hold_nobody_up(base: str) -> None:
    close = b"Connection: close\r\n\r\n"
    unread = (
        b"POST /health/live/ HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n" + close + b"123456789 and more"
    )
    with clients(base, 10, LIVE + close) as lazy, clients(base, 10, unread) as rude:
        assert slowest(base, "/health/live/", 3) < 1
        assert all("200 OK" in answer_of(one) for one in lazy)
        assert {answer_of(one).splitlines()[0] for one in rude} == {"HTTP/1.1 200 OK"}


def test_silent_and_dripping_clients_leave_all_threads_to_the_others_and_hear_408(base: str) -> None:
    over = threading.Event()

    def drip(crowd: list[socket.socket]) -> None:
        while not over.wait(0.5):
            for one in crowd:
                one.sendall(b"a")

    with (
        clients(base, 200),
        clients(base, 30, LIVE + b"X-A: ") as heads,
        clients(base, 30, FORM) as forms,
    ):
        dripping = threading.Thread(target=drip, args=([*heads, *forms],))
        dripping.start()
        assert slowest(base, "/health/live/", 4) < 1
        assert slowest(base, "/", 4) < 2
        over.set()
        dripping.join()
        answers = [answer_of(one) for one in (*heads, *forms)]
    assert all(answer.startswith("HTTP/1.1 408 Request Timeout") for answer in answers), answers[:3]


@pytest.mark.parametrize(
    "announced",
    [b"0000000000000099", b"99\r\nContent-Length: 99", b"+99", b"9" * 40, b"\xb2", b""],
    ids=["many zeros", "twice", "signed", "endless", "no digit", "none"],
)
def test_a_length_that_could_be_read_in_two_ways_holds_no_thread(base: str, announced: bytes) -> None:
    head = b"POST /payments/webhook/ HTTP/1.1\r\nHost: x\r\nContent-Length: " + announced + b"\r\n\r\n"
    with clients(base, 30, head) as crowd:
        assert slowest(base, "/", 0.5) < 2
        for one in crowd:
            one.close()


def test_clients_that_do_not_read_their_answers_hold_the_threads_for_seconds_only(base: str) -> None:
    parts = urlsplit(base)
    script = re.search(r'src="(/static/\S+?\.js)"', requests.get(base, timeout=20).text)
    assert script is not None
    many = f"GET {script[1]} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() * 100
    with ExitStack() as opened:
        for _ in range(6):  # as many as there are threads
            one = opened.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            one.connect((parts.hostname, parts.port))
            one.sendall(many)
        end = time.monotonic() + 7
        while time.monotonic() < end:
            requests.get(base, timeout=12)
        assert requests.get(base, timeout=12).status_code == 200


def test_a_stop_waits_for_no_client_that_keeps_its_end_open(stack: Stack) -> None:
    base = stack.web(DRAIN_SECONDS="1")
    with clients(base, 10, LIVE + b"\r\n") as kept, clients(base, 10), clients(base, 5, LIVE):
        for one in kept:
            assert b"200 OK" in one.recv(65536)
        stop = Stop(stack)
        time.sleep(0.3)
        for one in kept:
            one.sendall(LIVE + b"\r\n")
        assert slowest(base, "/health/live/", 0.4) < 0.5
        code, took = stop.wait()
    assert (code, took < 12) == (0, True), (code, took)  # GRACE_SECONDS is 20


def test_idle_connections_make_room_for_who_asks(base: str) -> None:
    with clients(base, 700) as crowd:
        assert slowest(base, "/health/live/", 1) < 1
        crowd[-1].sendall(LIVE + b"Connection: close\r\n\r\n")
        assert "200 OK" in answer_of(crowd[-1])


def test_who_does_not_read_its_answers_holds_a_thread_for_seconds_only(base: str) -> None:
    page = b"GET /static/vendor/htmx.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with clients(base, 12, page * 40):
        assert slowest(base, "/health/live/", 3) < 12


def test_a_request_in_pieces_is_one_request(base: str) -> None:
    whole = b"POST /payments/webhook/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nConnection: close\r\n\r\n1234"
    with clients(base, 3) as crowd:
        for place, one in zip((1, 40, len(whole) - 2), crowd, strict=True):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.sendall(whole[:place])
        time.sleep(0.2)
        for place, one in zip((1, 40, len(whole) - 2), crowd, strict=True):
            one.sendall(whole[place:])
        answers = {answer_of(one).splitlines()[0] for one in crowd}
    assert answers == {"HTTP/1.1 400 Bad Request"}


def test_requests_sent_ahead_are_answered_in_order_also_after_the_client_has_ended_its_side(
    base: str,
) -> None:
    with clients(base, 1, (LIVE + b"\r\n") * 3 + LIVE + b"Connection: close\r\n\r\n") as (one,):
        one.shutdown(socket.SHUT_WR)
        assert answer_of(one).count("HTTP/1.1 200 OK") == 4


def test_who_asks_before_it_sends_a_body_is_told_to(base: str) -> None:
    head = b"POST /payments/webhook/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n"
    with clients(base, 1, head + b"Connection: close\r\n\r\n") as (one,):
        assert one.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(b"1234")
        assert "HTTP/1.1 400 Bad Request" in answer_of(one)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "411 Length Required"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200001\r\n\r\n", "413 Content Too Large"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 33_000, "431 Request Header Fields Too Large"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\naa", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", "400 Bad Request"),
    ],
)
def test_what_no_page_takes_is_refused_by_name(base: str, request_: bytes, status: str) -> None:
    with clients(base, 1, request_) as (one,):
        assert answer_of(one).splitlines()[0] == f"HTTP/1.1 {status}"
