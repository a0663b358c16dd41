"""Semantics 4, 5 and 7: the pool, what is sent, and what is kept out."""

import gzip
import os
import threading
import traceback
from decimal import Decimal

import pytest

from resilience.deadline import HEADER, Deadline
from resilience.errors import PoolTimeout, ResilienceError
from resilience.http import HttpPolicy, HttpSession, request_id
from resilience.testing import ManualClock, ScriptedNeighbour, answer
from tests.wire.cases import policy, refused_port, server_tls


def soon(ms=5000):
    return Deadline.after_ms(ms)


def head(request):
    """The request's headers, in lower case."""
    lines = request.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}


@pytest.fixture
def neighbour():
    with ScriptedNeighbour.answering(200, b'{"rate": 1.10}') as served:
        yield served


# The pool


def test_calls_in_a_row_share_one_connection(neighbour):
    session = HttpSession(policy(neighbour.url))
    for _ in range(10):
        assert session.request("GET", "/", deadline=soon()).body == {"rate": Decimal("1.10")}
    assert neighbour.accepted == 1


def test_calls_over_tls_in_a_row_share_one_connection():
    with ScriptedNeighbour.answering(tls=server_tls()) as neighbour:
        session = HttpSession(policy(neighbour.url, call_timeout=5, connect_timeout=5))
        for _ in range(10):
            session.request("GET", "/", deadline=soon())
        assert neighbour.accepted == 1
        session.close()


def test_the_pool_never_opens_more_connections_than_its_size():
    let_go = threading.Event()

    def slow(connection):
        while connection.read_request() is not None:
            let_go.wait(5)
            connection.send(answer())

    refused = []
    with ScriptedNeighbour(slow) as neighbour:
        session = HttpSession(policy(neighbour.url, pool_size=2, pool_wait=0.01, call_timeout=5))

        def call():
            try:
                session.request("GET", "/", deadline=soon())
            except PoolTimeout as error:
                refused.append(error)
                if len(refused) == 6:
                    let_go.set()

        threads = [threading.Thread(target=call) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert (neighbour.accepted, len(refused)) == (2, 6)


def test_a_thread_that_reaches_the_pool_too_late_leaves_it_as_it_was(monkeypatch):
    clock = ManualClock()
    with ScriptedNeighbour.answering() as neighbour:
        session = HttpSession(policy(neighbour.url, pool_size=2), clock=clock)
        session.request("GET", "/", deadline=Deadline.after_ms(5000, clock=clock))
        pool = session._connected()._pool.pool
        assert pool.qsize() == 2
        taken = pool.get_nowait()  # one call is in flight
        connected = session._connected

        def put_to_sleep_on_the_way():
            clock.advance(10)
            return connected()

        monkeypatch.setattr(session, "_connected", put_to_sleep_on_the_way)
        with pytest.raises(PoolTimeout):
            session.request("GET", "/", deadline=Deadline.after_ms(5000, clock=clock))
        assert pool.qsize() == 1
        pool.put_nowait(taken)


def test_failures_use_up_no_place_in_the_pool_and_do_not_rebuild_it():
    scripts = [
        lambda connection: (connection.read_request(), connection.reset()),
        lambda connection: (connection.read_request(), connection.send(answer(body=b"{", length=50))),
        lambda connection: (connection.read_request(), connection.send(answer(body=b" " * 2_000_000))),
        lambda connection: (connection.read_request(), connection.send(answer(500))),
        lambda connection: (connection.read_request(), connection.hang()),
    ]
    with ScriptedNeighbour(scripts[0]) as neighbour:
        session = HttpSession(policy(neighbour.url, pool_size=2, call_timeout=0.05))
        for turn in range(20):
            neighbour.script = scripts[turn % len(scripts)]
            with pytest.raises(ResilienceError):
                session.request("POST", "/", deadline=soon())
        assert neighbour.accepted <= 20  # at most one connection for one call: no storm
        neighbour.script = lambda connection: (connection.read_request(), connection.send(answer()))
        assert session.request("POST", "/", deadline=soon()).status == 200
        assert session._adapter[1]._pool.pool.qsize() == 2


def test_a_kept_alive_connection_the_server_has_closed_is_replaced_unseen():
    def one_answer(connection):
        connection.read_request()
        connection.send(answer())

    with ScriptedNeighbour(one_answer) as neighbour:
        session = HttpSession(policy(neighbour.url))
        for _ in range(50):
            session.request("POST", "/pay", deadline=soon())
            assert neighbour.wait_until_closed()
        assert (len(neighbour.requests), neighbour.accepted) == (50, 50)


def test_a_child_process_makes_connections_of_its_own(neighbour):
    session = HttpSession(policy(neighbour.url))
    session.request("GET", "/", deadline=soon())
    child = os.fork()
    if child == 0:
        try:
            session.request("GET", "/", deadline=soon())
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    session.request("GET", "/", deadline=soon())
    assert (neighbour.accepted, len(neighbour.requests)) == (2, 3)


def test_a_closed_session_can_be_used_again(neighbour):
    session = HttpSession(policy(neighbour.url))
    session.close()
    session.request("GET", "/", deadline=soon())
    session.close()
    assert neighbour.wait_until_closed()
    session.request("GET", "/", deadline=soon())
    assert neighbour.accepted == 2


# What is sent


def test_each_request_carries_what_is_left_of_the_deadline(neighbour):
    session = HttpSession(policy(neighbour.url))
    session.request("GET", "/", deadline=soon(200))
    session.request("GET", "/", deadline=soon(9000))
    sent = [int(head(request)[HEADER.lower()]) for request in neighbour.requests]
    assert 150 < sent[0] <= 200
    assert 250 < sent[1] <= 300  # the call's own cap is smaller than the deadline


def test_each_request_carries_the_request_id_of_its_context(neighbour):
    session = HttpSession(policy(neighbour.url))
    for known in ("order-7", None, "bad\r\nid", "x" * 65):
        token = request_id.set(known)
        session.request("GET", "/", deadline=soon())
        request_id.reset(token)
    ids = [head(request)["x-request-id"] for request in neighbour.requests]
    assert ids[0] == "order-7"
    assert len(set(ids)) == 4
    assert all(len(made) == 32 for made in ids[1:])


def test_a_write_carries_its_idempotency_key_and_its_form(neighbour):
    session = HttpSession(policy(neighbour.url + "/v1/"))
    session.request(
        "POST",
        "/pay",
        deadline=soon(),
        form={"amount": "100", "note": "a&b"},
        query={"q": "1 2"},
        headers={"X-Extra": "1"},
        idempotency_key="key-1",
    )
    request = neighbour.requests[0]
    sent = head(request)
    assert request.startswith(b"POST /v1/pay?q=1+2 HTTP/1.1\r\n")
    assert request.endswith(b"\r\n\r\namount=100&note=a%26b")
    assert (sent["idempotency-key"], sent["x-extra"]) == ("key-1", "1")
    assert sent["content-type"] == "application/x-www-form-urlencoded"
    assert sent["authorization"] == "Bearer sk_very_secret"


def test_a_json_body_is_sent_as_json(neighbour):
    HttpSession(policy(neighbour.url)).request("PUT", "/", deadline=soon(), json={"skus": ["é"]})
    assert head(neighbour.requests[0])["content-type"] == "application/json"
    assert neighbour.requests[0].endswith(b'{"skus": ["\\u00e9"]}')


def test_a_gzipped_answer_is_unpacked():
    data = gzip.compress(b'{"a": 1}')
    with ScriptedNeighbour.answering(200, data, headers={"Content-Encoding": "gzip"}) as neighbour:
        assert HttpSession(policy(neighbour.url)).request("GET", "/", deadline=soon()).body == {"a": 1}


@pytest.mark.parametrize("path", ["pay", "/a b", "/a\r\nHost: x", "/a#b", "/é", ""])
def test_a_path_that_is_not_quoted_is_a_mistake_and_nothing_is_sent(neighbour, path):
    with pytest.raises(ValueError, match="path must begin with /"):
        HttpSession(policy(neighbour.url)).request("GET", path, deadline=soon())
    assert neighbour.accepted == 0


@pytest.mark.parametrize(
    "request_parts", [{"headers": {"X": "a\r\nY: b"}}, {"json": float("nan")}, {"form": {}, "json": 1}]
)
def test_a_request_that_cannot_be_built_is_a_mistake_and_no_outcome(neighbour, request_parts):
    session = HttpSession(policy(neighbour.url, pool_size=1))
    for _ in range(3):
        with pytest.raises(ValueError, match=r".+"):
            session.request("POST", "/", deadline=soon(), **request_parts)
    assert session.request("POST", "/", deadline=soon()).status == 200


# What is kept out


def test_proxies_credentials_and_trust_from_the_environment_are_ignored(neighbour, monkeypatch, tmp_path):
    dead = f"http://127.0.0.1:{refused_port()}"
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, dead)
    monkeypatch.delenv("NO_PROXY", raising=False)
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password stolen\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere.pem")
    HttpSession(policy(neighbour.url, headers={})).request("GET", "/", deadline=soon())
    assert "authorization" not in head(neighbour.requests[0])
    with ScriptedNeighbour.answering(tls=server_tls()) as secure:
        HttpSession(policy(secure.url)).request("GET", "/", deadline=soon())


def test_cookies_are_not_kept():
    with ScriptedNeighbour.answering(headers={"Set-Cookie": "session=1"}) as neighbour:
        session = HttpSession(policy(neighbour.url))
        session.request("GET", "/", deadline=soon())
        session.request("GET", "/", deadline=soon())
        assert "cookie" not in head(neighbour.requests[1])


@pytest.mark.parametrize(
    "script",
    [
        lambda connection: (connection.read_request(), connection.reset()),
        lambda connection: (connection.read_request(), connection.send(answer(402, b'{"card": "4242"}'))),
        lambda connection: (connection.read_request(), connection.send(answer(200, b"<p>4242"))),
        lambda connection: (connection.read_request(), connection.send(answer(200, b"4242", length=99))),
        None,
    ],
)
def test_no_error_holds_a_url_a_header_or_a_body_of_ours(script):
    with ScriptedNeighbour(script or (lambda connection: None)) as neighbour:
        url = neighbour.url if script else f"http://127.0.0.1:{refused_port()}"
        session = HttpSession(policy(url))
        with pytest.raises(ResilienceError) as caught:
            session.request(
                "POST", "/secret-path", deadline=soon(), form={"token": "hush"}, query={"k": "hush"}
            )
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error) + str(error.args)
    assert (error.__context__, error.__cause__) == (None, None)
    for secret in ("sk_very_secret", "hush", "4242", "127.0.0.1"):
        assert secret not in shown
    assert "sk_very_secret" not in repr(session.policy) + repr(session)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"base_url": "ftp://host"}, "base_url must be http://host or https://host"),
        ({"base_url": "http://"}, "base_url must be http://host or https://host"),
        ({"base_url": "http://me:secret@host"}, "base_url must not hold credentials; use headers"),
        ({"base_url": "http://host?q"}, "base_url must not hold a query"),
        ({"connect_timeout": 0}, "connect_timeout must be a finite number of seconds > 0, got 0"),
        ({"call_timeout": float("inf")}, "call_timeout must be a finite number of seconds > 0, got inf"),
        ({"pool_wait": -1}, "pool_wait must be a finite number of seconds ≥ 0, got -1"),
        ({"pool_size": 0}, "pool_size must be ≥ 1, got 0"),
        ({"max_bytes": 0}, "max_bytes must be ≥ 1, got 0"),
    ],
)
def test_an_http_policy_refuses_nonsense_with_a_sentence(changes, sentence):
    numbers = {"connect_timeout": 1, "read_timeout": 1, "call_timeout": 1, "pool_wait": 1}
    with pytest.raises(ValueError, match=sentence) as caught:
        HttpPolicy(**{"base_url": "http://host", **numbers, **changes})
    assert "secret" not in str(caught.value)
