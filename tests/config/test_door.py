"""A request without a place hears the same whether a thread or the server's own loop tells it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from config import shedding
from config.shedding import Door
from resilience.shedding import LoadShedder, Priority, SheddingPolicy

PLAIN = b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n"
FIELDS = b"X-Request-ID: r-7\r\nCookie: a=b; django_language=ru\r\naccept-language: de\r\nConnection: keep-alive\r\n"


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """Two of four places are taken, and the lesser ones may have no more."""
    shedder = LoadShedder(SheddingPolicy(limit=4, checkout_share=0.5, browsing_share=0.5, duty_extra=1))
    monkeypatch.setattr(shedding, "shedder", lambda: shedder)
    with ExitStack() as places:
        for _ in range(2):
            places.enter_context(shedder.place(Priority.PAYING))
        yield Door(lambda environ, start: [b"inside"])


def from_a_thread(door: Door, **environ: str) -> tuple[str, dict[str, str], bytes]:
    said: list[Any] = []
    body = b"".join(door(environ, lambda *args: said.extend(args)))
    return said[0], dict(said[1]), body


def parsed(answer: bytes) -> tuple[str, dict[str, str], bytes]:
    head, body = answer.split(b"\r\n\r\n", 1)
    first, *lines = head.decode().split("\r\n")
    return first.removeprefix("HTTP/1.1 "), dict(line.split(": ", 1) for line in lines), body


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_early_answer_is_the_late_one(door: Door, method: str) -> None:
    early = door.refuse_early(method.encode() + b" /?q=1 HTTP/1.1\r\n" + FIELDS + b"\r\n", 0)
    assert early is not None
    status, headers, body = parsed(early)
    assert headers.pop("Connection") == "keep-alive"
    known = {"X_REQUEST_ID": "r-7", "COOKIE": "a=b; django_language=ru", "ACCEPT_LANGUAGE": "de"}
    late = from_a_thread(
        door, REQUEST_METHOD=method, PATH_INFO="/", **{f"HTTP_{name}": text for name, text in known.items()}
    )
    assert (status, headers, body) == late
    assert (status, headers["X-Request-ID"]) == ("503 Service Unavailable", "r-7")
    assert ('<html lang="ru"' in body.decode()) is (method == "GET")


@pytest.mark.parametrize(
    ("request_line", "fields"),
    [
        (b"POST / HTTP/1.1", b""),
        (b"GET / HTTP/1.0", b""),
        # Who goes first is told by the address, and this one is written oddly.
        (b"GET /%6frders/1/ HTTP/1.1", b""),
        (b"GET http://shop/ HTTP/1.1", b""),
        (b"GET / HTTP/1.1", b"Content-Length: 1\r\n"),
        (b"GET / HTTP/1.1", b"connection: Close\r\n"),
        (b"GET / HTTP/1.1", b"Connection: upgrade, HTTP2-Settings\r\n"),
        (b"GET / HTTP/1.1", b"X: a\nContent-Length: 30\r\n"),
        (b"GET / HTTP/1.1", b"X: a\rb\r\n"),
        (b"GET / HTTP/1.1", b"Connection:\r\n close\r\n"),
        (b"GET / HTTP/1.1", b"\r\nGET /orders/1/ HTTP/1.1\r\nHost: shop\r\n"),  # two at once
        (b"GET /orders/1/ HTTP/1.1", b""),
        (b"GET /ops/ HTTP/1.1", b""),
        (b"GET /health/live/ HTTP/1.1", b""),
    ],
)
def test_what_has_a_place_or_needs_a_parser_gets_a_thread(
    door: Door, request_line: bytes, fields: bytes
) -> None:
    assert door.refuse_early(PLAIN, 0) is not None
    assert door.refuse_early(request_line + b"\r\nHost: shop\r\n" + fields + b"\r\n", 0) is None


@pytest.mark.parametrize("path", [b"/health/live/x", b"/health/live/../", b"/health/ready/index.html"])
def test_what_is_only_below_a_probe_is_none(door: Door, path: bytes) -> None:
    assert door.refuse_early(PLAIN.replace(b" / ", b" " + path + b" "), 0) is not None


def test_those_on_their_way_have_their_places_already(door: Door) -> None:
    paying = PLAIN.replace(b" / ", b" /orders/1/ ")
    assert [door.refuse_early(paying, coming) is None for coming in (0, 1, 2)] == [True, True, False]


def test_each_refusal_is_counted_once(door: Door) -> None:
    door.refuse_early(PLAIN, 0)
    from_a_thread(door, REQUEST_METHOD="GET", PATH_INFO="/")
    assert shedding.shedder().shed[Priority.BROWSING].value == 2
