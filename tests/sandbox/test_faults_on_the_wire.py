"""Every effect, seen by a client that reads bytes."""

import socket
import time
from urllib.parse import urlsplit

import pytest

from sandbox.control import Control, ControlError
from sandbox.gateway import Gateway
from tests.sandbox.raw import CHARGE, Raw

CREATE = "/v1/payment_intents"


def charges(control: Control) -> int:
    return len(control.ledger()["charges"])


def test_a_status_is_answered_instead_of_booking(gateway: Gateway, control: Control) -> None:
    pairs = [["Retry-After", "1"], ["Retry-After", "soon"]]
    control.break_with({"status": 503, "body": "away", "headers": pairs}, method="POST")
    with Raw(gateway.url) as client:
        answer = client.post(CREATE, CHARGE, "k1")
    assert (answer.status, answer.body, charges(control)) == (503, b"away", 0)
    assert [value for name, value in answer.headers if name == "Retry-After"] == ["1", "soon"]


def test_a_status_after_booking_hides_a_charge_that_a_repeat_shows(
    gateway: Gateway, control: Control
) -> None:
    control.break_with({"status": 500, "after": True}, method="POST", count=1)
    with Raw(gateway.url) as client:
        assert client.post(CREATE, CHARGE, "k1").status == 500
        assert charges(control) == 1
        repeat = client.post(CREATE, CHARGE, "k1")
    assert (repeat.status, repeat.header("Idempotent-Replayed"), charges(control)) == (200, "true", 1)


@pytest.mark.parametrize(("after", "booked"), [(False, 0), (True, 1)])
def test_a_stored_500_is_what_the_key_answers_for_ever(
    gateway: Gateway, control: Control, after: bool, booked: int
) -> None:
    control.break_with({"status": 500, "body": {"error": {}}, "stored": True, "after": after})
    with Raw(gateway.url) as client:
        client.post(CREATE, CHARGE, "k1")
        control.heal()
        repeat = client.post(CREATE, CHARGE, "k1")
    assert (repeat.status, repeat.json(), charges(control)) == (500, {"error": {}}, booked)


def test_latency_comes_before_booking_and_latency_after_behind_it(gateway: Gateway, control: Control) -> None:
    control.break_with({"latency_ms": 60, "latency_after_ms": 60}, method="POST")
    begun = time.monotonic()
    with Raw(gateway.url) as client:
        client.post_only(CREATE, CHARGE, "k1")
        assert charges(control) == 0
        control.ledger(wait_for_charges=1)
        booked = time.monotonic() - begun
        assert client.receive().status == 200
    assert 0.06 <= booked < 0.115
    assert 0.12 <= time.monotonic() - begun < 1


def test_a_late_booking_happens_although_the_client_has_left(gateway: Gateway, control: Control) -> None:
    control.break_with({"latency_ms": 80}, method="POST")
    with Raw(gateway.url) as client:
        client.post_only(CREATE, CHARGE, "k1")
        control.ledger(wait_for_requests=1)
    assert len(control.ledger(wait_for_charges=1, timeout_ms=2000)["charges"]) == 1


@pytest.mark.parametrize(("after", "booked"), [(False, 0), (True, 1)])
def test_a_hang_answers_never_and_ends_without_an_answer_when_healed(
    gateway: Gateway, control: Control, after: bool, booked: int
) -> None:
    control.break_with({"hang": True, "after": after}, method="POST")
    with Raw(gateway.url, timeout=0.15) as client:
        client.post_only(CREATE, CHARGE, "k1")
        with pytest.raises(TimeoutError):
            client.receive()
        assert control.state()["in_flight"] == 1
        control.heal()
        with pytest.raises(EOFError):
            client.receive()
    assert charges(control) == booked


def test_a_hanging_request_ends_when_its_client_leaves(gateway: Gateway, control: Control) -> None:
    control.break_with({"hang": True})
    with Raw(gateway.url) as client:
        client.post_only(CREATE, CHARGE, "k1")
        control.ledger(wait_for_requests=1)
    give_up = time.monotonic() + 2
    while control.state()["in_flight"] and time.monotonic() < give_up:
        time.sleep(0.005)
    assert control.state()["in_flight"] == 0
    control.heal()
    with Raw(gateway.url) as client:
        assert client.post(CREATE, CHARGE, "k1").status == 200  # the key is free again


@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_trickle_sends_one_byte_per_interval(gateway: Gateway, control: Control, part: str) -> None:
    control.break_with({"status": 200, "body": "0123456789", "trickle": part, "interval_ms": 5})
    begun = time.monotonic()
    with Raw(gateway.url) as client:
        answer = client.get("/v1/balance")
    size = len(answer.body) if part == "body" else 60
    assert answer.body == b"0123456789"
    assert time.monotonic() - begun >= (size - 1) * 0.005


@pytest.mark.parametrize(("moment", "booked"), [("before", 0), ("after", 1)])
def test_a_reset_is_an_rst_before_or_after_booking(
    gateway: Gateway, control: Control, moment: str, booked: int
) -> None:
    control.break_with({"reset": moment}, method="POST")
    with Raw(gateway.url) as client, pytest.raises(ConnectionResetError):
        client.post(CREATE, CHARGE, "k1")
    assert charges(control) == booked


@pytest.mark.parametrize(("moment", "booked"), [("before", 0), ("after", 1)])
def test_a_close_is_a_fin_without_a_byte(
    gateway: Gateway, control: Control, moment: str, booked: int
) -> None:
    control.break_with({"close": moment}, method="POST")
    with Raw(gateway.url) as client, pytest.raises(EOFError):
        client.post(CREATE, CHARGE, "k1")
    assert charges(control) == booked


def test_an_idle_connection_is_closed_some_time_after_an_answer(gateway: Gateway, control: Control) -> None:
    control.break_with({"close_after_answer_ms": 60})
    with Raw(gateway.url) as client:
        assert client.get("/v1/balance").header("Connection") == "keep-alive"
        begun = time.monotonic()
        assert client.times_until_end() == []
    assert 0.04 < time.monotonic() - begun < 1


def test_refusing_closes_the_listener_and_idle_connections_and_leaves_control(
    gateway: Gateway, control: Control
) -> None:
    address = urlsplit(gateway.url)
    with Raw(gateway.url) as idle:
        assert idle.get("/v1/balance").status == 200
        control.break_with({"refuse": True})
        with pytest.raises((ConnectionResetError, EOFError)):
            idle.receive()
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.hostname, address.port), timeout=1)
    assert control.state()["connections"] == 0
    control.heal()
    with Raw(gateway.url) as client:
        assert client.get("/v1/balance").status == 200


def test_a_lie_changes_the_answer_and_not_the_books(gateway: Gateway, control: Control) -> None:
    control.break_with({"lie": {"status": "pending", "amount": 1, "client_secret": None}}, method="POST")
    with Raw(gateway.url) as client:
        told = client.post(CREATE, CHARGE, "k1").json()
    assert (told["status"], told["amount"]) == ("pending", 1)
    assert "client_secret" not in told
    assert control.ledger()["charges"][0]["amount"] == 1999


def test_a_replaced_body_goes_out_as_it_is(gateway: Gateway, control: Control) -> None:
    control.break_with({"replace_body": "<html>maintenance"})
    with Raw(gateway.url) as client:
        answer = client.post(CREATE, CHARGE, "k1")
    assert (answer.status, answer.body, charges(control)) == (200, b"<html>maintenance", 1)


def test_a_truncated_body_ends_before_its_announced_length(gateway: Gateway, control: Control) -> None:
    control.break_with({"truncate_bytes": 20})
    with Raw(gateway.url) as client, pytest.raises(EOFError):
        client.post(CREATE, CHARGE, "k1")
    assert charges(control) == 1


def test_a_padded_body_is_large_and_still_json(gateway: Gateway, control: Control) -> None:
    control.break_with({"pad_bytes": 10_000_000})
    with Raw(gateway.url) as client:
        answer = client.get("/v1/balance")
    assert len(answer.body) > 10_000_000
    assert answer.json()["object"] == "balance"


def test_work_that_is_already_too_late_is_not_done(gateway: Gateway, control: Control) -> None:
    with Raw(gateway.url) as client:
        late = client.post(CREATE, CHARGE, "k1", X_Envoy_Expected_Rq_Timeout_Ms="0")
    assert (late.status, charges(control)) == (504, 0)


def test_latency_beyond_the_callers_deadline_is_answered_504_at_the_deadline(
    gateway: Gateway, control: Control
) -> None:
    control.break_with({"latency_ms": 5000})
    begun = time.monotonic()
    with Raw(gateway.url) as client:
        late = client.post(CREATE, CHARGE, "k1", X_Envoy_Expected_Rq_Timeout_Ms="80")
    assert (late.status, charges(control)) == (504, 0)
    assert 0.08 <= time.monotonic() - begun < 0.5


@pytest.mark.parametrize("garbage", ["soon", "-5", "1.5", "9" * 400, "²"])
def test_a_senseless_deadline_is_ignored(gateway: Gateway, garbage: str) -> None:
    with Raw(gateway.url) as client:
        text = garbage.encode().decode("latin-1") if not garbage.isascii() else garbage
        assert client.get("/v1/balance", X_Envoy_Expected_Rq_Timeout_Ms=text).status == 200


def test_control_on_the_main_port_is_exempt_from_faults(gateway: Gateway) -> None:
    main = Control(gateway.url)
    main.break_with({"status": 500})
    with Raw(gateway.url) as client:
        assert client.get("/v1/balance").status == 500
    assert main.faults()[0]["effect"] == {"status": 500}


def test_a_wrong_rule_is_refused_with_a_sentence_and_the_old_rules_stay(control: Control) -> None:
    control.break_with({"status": 500})
    with pytest.raises(ControlError, match="rule 1: effect does not know sttaus"):
        control.break_with({"sttaus": 503})
    assert control.faults()[0]["effect"] == {"status": 500}


def test_an_answer_that_must_have_no_body_has_none(gateway: Gateway, control: Control) -> None:
    control.break_with({"status": 204}, method="GET")
    with Raw(gateway.url) as client:
        assert [client.get("/v1/balance").status for _ in range(2)] == [204, 204]


def test_garbage_on_the_socket_is_400_and_the_service_goes_on(gateway: Gateway) -> None:
    for garbage in (
        b"\0\1\2\r\n\r\n",
        b"GET nowhere HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ):
        with Raw(gateway.url) as client:
            client.sock.sendall(garbage)
            assert client.receive().status == 400
    with Raw(gateway.url) as client:
        assert client.get("/v1/balance").status == 200


def test_a_request_takes_well_under_a_millisecond(gateway: Gateway) -> None:
    times = []
    with Raw(gateway.url) as client:
        for _ in range(200):
            begun = time.perf_counter()
            client.get("/v1/balance")
            times.append(time.perf_counter() - begun)
    assert sorted(times)[20] < 0.002  # both sides share this interpreter
