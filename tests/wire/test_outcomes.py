"""Semantics 6: every failure is exactly one of not sent, unknown, answered; and the server's count agrees."""

import socket
import threading

import pytest

from resilience.deadline import Deadline
from resilience.errors import (
    Answered,
    BadAnswer,
    ClientError,
    ConnectFailed,
    NotSent,
    OutcomeUnknown,
    OutOfTime,
    PoolTimeout,
    ServerError,
)
from resilience.http import HttpSession
from resilience.resolver import Resolver
from resilience.testing import ScriptedNeighbour, answer
from tests.wire.cases import CA, policy, refused_port, server_tls


def soon(ms=5000):
    return Deadline.after_ms(ms)


def says(*data):
    """A script: read one request, send this, close."""

    def script(connection):
        connection.read_request()
        for piece in data:
            connection.send(piece)

    return script


def outcome(neighbour, url=None, method="POST", **changes):
    session = HttpSession(policy(url or neighbour.url, **changes))
    with pytest.raises(Exception) as caught:
        session.request(method, "/v1/pay", deadline=soon())
    return caught.value


# Not sent


def test_a_refused_connection_is_not_sent():
    error = outcome(None, f"http://127.0.0.1:{refused_port()}")
    assert type(error) is ConnectFailed
    assert str(error) == "no connection (connect: ConnectionRefusedError)"


def fails(*args, **kwargs):
    raise socket.gaierror("no such name")


def not_a_name(*args, **kwargs):
    raise UnicodeError


@pytest.mark.parametrize("lookup", [fails, not_a_name, lambda *args, **kwargs: []])
def test_a_name_failure_is_not_sent(lookup):
    session = HttpSession(policy("http://gateway.example"), resolver=Resolver(lookup=lookup))
    with pytest.raises(ConnectFailed):
        session.request("GET", "/", deadline=soon())


@pytest.mark.parametrize("trust", [None, CA])
def test_a_certificate_that_does_not_fit_is_not_sent(trust):
    """Once signed by nobody we trust, once issued for another name."""
    with ScriptedNeighbour(says(answer()), tls=server_tls()) as neighbour:
        host = "127.0.0.1" if trust is None else "gateway.example"
        resolver = Resolver(
            lookup=lambda *args, **kwargs: [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", neighbour.port))
            ]
        )
        session = HttpSession(policy(f"https://{host}:{neighbour.port}", ca_bundle=trust), resolver=resolver)
        with pytest.raises(ConnectFailed, match="tls: SSLCertVerificationError"):
            session.request("POST", "/v1/pay", deadline=soon())
        assert neighbour.requests == []


def test_tls_to_a_plain_port_is_not_sent():
    with ScriptedNeighbour(says(answer())) as neighbour:
        error = outcome(neighbour, neighbour.url.replace("http:", "https:"))
        assert type(error) is ConnectFailed


def test_no_time_left_is_not_sent_and_reaches_nobody():
    with ScriptedNeighbour.answering() as neighbour:
        session = HttpSession(policy(neighbour.url))
        with pytest.raises(OutOfTime):
            session.request("POST", "/v1/pay", deadline=soon(0))
        assert neighbour.accepted == 0


def test_waiting_for_a_pooled_connection_ends_as_not_sent():
    with ScriptedNeighbour(lambda connection: (connection.read_request(), connection.hang())) as neighbour:
        session = HttpSession(policy(neighbour.url, pool_size=1, pool_wait=0.03, call_timeout=0.5))

        def hangs():
            with pytest.raises(OutcomeUnknown):
                session.request("GET", "/", deadline=soon())

        arrived = threading.Thread(target=hangs)
        arrived.start()
        while not neighbour.requests:
            threading.Event().wait(0.001)
        with pytest.raises(PoolTimeout):
            session.request("GET", "/", deadline=soon())
        arrived.join()
        assert len(neighbour.requests) == 1


# Unknown


def resets(connection):
    connection.read_request()
    connection.reset()


@pytest.mark.parametrize(
    "script",
    [says(), resets, says(b"NONSENSE\r\n\r\n"), says(b"HTTP/1.1 abc OK\r\n\r\n"),
     says(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"), says(b"HTTP/1.1 200 " + b"x" * 70_000)],
    ids=["FIN", "RST", "no status line", "bad status", "too many headers", "line too long"],
)  # fmt: skip
def test_what_breaks_after_sending_is_unknown_and_was_sent_once(script):
    with ScriptedNeighbour(script) as neighbour:
        error = outcome(neighbour)
        assert type(error) is OutcomeUnknown
        assert error.phase == "headers"
        assert (len(neighbour.requests), neighbour.accepted) == (1, 1)


def test_a_kept_alive_connection_closed_in_the_middle_of_our_sending_is_unknown():
    """The server has closed unread; but a POST that may have been read must not be called not sent."""

    def answers_once_then_resets(connection):
        connection.read_request()
        connection.send(answer())
        connection.sock.recv(1, socket.MSG_PEEK)
        connection.reset()

    with ScriptedNeighbour(answers_once_then_resets) as neighbour:
        session = HttpSession(policy(neighbour.url))
        session.request("POST", "/v1/pay", deadline=soon())
        with pytest.raises(OutcomeUnknown) as caught:
            session.request("POST", "/v1/pay", deadline=soon())
        assert type(caught.value) is OutcomeUnknown
        assert neighbour.accepted == 1


# Status known, body unusable


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIP = {"Content-Encoding": "gzip"}


@pytest.mark.parametrize(
    "data",
    [
        answer(body=b'{"a"', length=100),
        CHUNKED + b"ZZ\r\n{}\r\n",
        CHUNKED + b"5\r\n{}",
        CHUNKED,
        answer(body=b"no gzip", headers=GZIP),
        answer(body=b"", headers=GZIP),
        answer(body=b""),
        answer(body=b"<html>maintenance</html>"),
        answer(body=b" " * 1_000_001),
        answer(body=b"{}", headers={"Content-Encoding": "br"}),
    ],
    ids=["cut", "bad chunk", "chunk cut", "no chunk", "bad gzip", "empty gzip", "empty", "HTML", "10 MB", "brotli"],
)  # fmt: skip
def test_a_success_whose_body_is_unusable_is_a_bad_answer(data):
    with ScriptedNeighbour(says(data)) as neighbour:
        error = outcome(neighbour)
        assert type(error) is BadAnswer
        assert (error.status, error.phase, len(neighbour.requests)) == (200, "body", 1)


@pytest.mark.parametrize("status", [200, 402, 500])
def test_an_answer_cut_off_among_its_headers_is_a_bad_answer(status):
    with ScriptedNeighbour(says(f"HTTP/1.1 {status} Fine\r\nX: y".encode())) as neighbour:
        error = outcome(neighbour)
        assert (type(error), error.status) == (BadAnswer, status)


@pytest.mark.parametrize("status", [402, 500])
def test_an_error_answer_cut_in_the_middle_is_a_bad_answer_too(status):
    with ScriptedNeighbour(says(answer(status, b'{"error"', length=100))) as neighbour:
        error = outcome(neighbour)
        assert (type(error), error.status) == (BadAnswer, status)


# Answered


@pytest.mark.parametrize("status", [400, 401, 402, 404, 409, 422])
def test_a_4xx_is_a_real_answer(status):
    body = b'{"error": {"code": "card_declined"}}'
    with ScriptedNeighbour.answering(
        status, body, headers={"Request-Id": "req_1", "Set-Cookie": "x=y"}
    ) as neighbour:
        error = outcome(neighbour)
    assert type(error) is ClientError
    assert (error.status, error.body["error"]["code"]) == (status, "card_declined")
    assert error.headers == {"content-type": "application/json", "request-id": "req_1"}


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 600, 999])
def test_a_5xx_and_the_three_transient_4xx_are_failures_of_the_neighbour(status):
    with ScriptedNeighbour.answering(status, headers={"Retry-After": "7"}) as neighbour:
        error = outcome(neighbour)
    assert (type(error), error.status, error.retry_after) == (ServerError, status, 7.0)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_never_followed(status):
    with ScriptedNeighbour.answering(status, headers={"Location": "/elsewhere"}) as neighbour:
        assert type(outcome(neighbour, method="GET")) is ServerError
        assert len(neighbour.requests) == 1


@pytest.mark.parametrize(
    "value", ["-5", "1.5", "9999999999", "9" * 6000, "", "soon", "Fri, 01 Jan 99999 00:00:00 GMT"]
)
def test_a_hostile_retry_after_is_left_out(value):
    with ScriptedNeighbour.answering(503, headers={"Retry-After": value}) as neighbour:
        assert outcome(neighbour).retry_after is None


def test_two_retry_after_headers_are_no_advice():
    data = answer(503).replace(b"\r\n\r\n", b"\r\nRetry-After: 1\r\nRetry-After: 2\r\n\r\n")
    with ScriptedNeighbour(says(data)) as neighbour:
        assert outcome(neighbour).retry_after is None


def test_an_error_page_that_is_no_json_leaves_the_status_to_speak():
    with ScriptedNeighbour.answering(404, b"<html>") as neighbour:
        error = outcome(neighbour)
    assert (type(error), error.body) == (ClientError, None)


@pytest.mark.parametrize("status", [204, 304])
def test_a_success_without_a_body_has_none(status):
    data = f"HTTP/1.1 {status} Fine\r\nETag: x\r\n\r\n".encode()
    with ScriptedNeighbour(says(data)) as neighbour:
        response = HttpSession(policy(neighbour.url)).request("GET", "/", deadline=soon())
    assert (response.status, response.body, response.headers["etag"]) == (status, None, "x")


def test_the_three_families_share_no_member():
    families = (NotSent, OutcomeUnknown, Answered)
    for family in families:
        assert sum(issubclass(family, other) for other in families) == 1
