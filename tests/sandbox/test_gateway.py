"""Stripe's contract as the documentation gives it, over real sockets."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandbox.control import Control
from sandbox.gateway import Gateway
from tests.sandbox.raw import CHARGE, Answer, Raw

CREATE = "/v1/payment_intents"


def post(gateway: Gateway, path: str = CREATE, key: str | None = None, **changes: Any) -> Answer:
    form = (CHARGE if path == CREATE else {}) | {name: str(value) for name, value in changes.items()}
    with Raw(gateway.url) as client:
        return client.post(path, {name: value for name, value in form.items() if value != "None"}, key)


def get(gateway: Gateway, path: str) -> Any:
    with Raw(gateway.url) as client:
        return client.get(path).json()


def error(answer: Answer) -> tuple[int, str, str | None]:
    body = answer.json()["error"]
    return answer.status, body["type"], body.get("code")


def test_a_charge_is_succeeded_and_in_the_ledger(gateway: Gateway, control: Control) -> None:
    intent = post(gateway, key="k1").json()
    assert (intent["status"], intent["amount_received"], intent["currency"]) == ("succeeded", 1999, "eur")
    [charge] = control.ledger()["charges"]
    assert charge["idempotency_key"] == "k1"
    assert (charge["intent"], charge["amount"], charge["currency"]) == (intent["id"], 1999, "eur")
    assert (charge["reference"], charge["status"], charge["refunded"]) == ("R1", "succeeded", 0)


def test_the_same_key_with_the_same_parameters_gets_the_first_answer_again(
    gateway: Gateway, control: Control
) -> None:
    first, again = post(gateway, key="k1"), post(gateway, key="k1")
    assert first.body == again.body
    assert first.header("Idempotent-Replayed") is None
    assert again.header("Idempotent-Replayed") == "true"
    assert len(control.ledger()["charges"]) == 1


def test_the_same_key_with_other_parameters_is_an_idempotency_error(gateway: Gateway) -> None:
    intent = post(gateway, key="k1").json()["id"]
    assert error(post(gateway, key="k1", amount=2000)) == (400, "idempotency_error", None)
    assert error(post(gateway, f"{CREATE}/{intent}/cancel", key="k1"))[1] == "idempotency_error"


def test_a_concurrent_duplicate_gets_409_and_the_first_goes_on(gateway: Gateway, control: Control) -> None:
    control.break_with({"latency_ms": 150}, method="POST", count=1)
    with Raw(gateway.url) as first:
        first.post_only(CREATE, CHARGE, "k1")
        control.ledger(wait_for_requests=1)
        assert error(post(gateway, key="k1")) == (409, "idempotency_error", "idempotency_key_in_use")
        assert first.receive().status == 200
    assert post(gateway, key="k1").header("Idempotent-Replayed") == "true"


def test_eight_identical_posts_at_once_make_one_charge(gateway: Gateway, control: Control) -> None:
    barrier = threading.Barrier(8)

    def one(_: int) -> int:
        barrier.wait(5)
        return post(gateway, key="k1").status

    with ThreadPoolExecutor(8) as pool:
        statuses = set(pool.map(one, range(8)))
    assert statuses <= {200, 409}
    assert len(control.ledger()["charges"]) == 1


def test_validation_failures_are_not_stored_under_the_key(gateway: Gateway) -> None:
    assert post(gateway, key="k1", amount=0).status == 400
    assert post(gateway, key="k1").json()["status"] == "succeeded"


def test_a_decline_is_stored_under_the_key(gateway: Gateway, control: Control) -> None:
    first = post(gateway, key="k1", payment_method="pm_card_chargeDeclined")
    again = post(gateway, key="k1", payment_method="pm_card_chargeDeclined")
    assert (first.status, first.body) == (402, again.body)
    assert control.ledger()["charges"] == []


@pytest.mark.parametrize(
    ("method", "decline"),
    [
        ("pm_card_chargeDeclined", "generic_decline"),
        ("pm_card_visa_chargeDeclinedInsufficientFunds", "insufficient_funds"),
    ],
)
def test_a_decline_is_402_with_the_intent_ready_for_another_card(
    gateway: Gateway, method: str, decline: str
) -> None:
    answer = post(gateway, key="k1", payment_method=method)
    assert error(answer) == (402, "card_error", "card_declined")
    body = answer.json()["error"]
    assert (body["decline_code"], body["payment_intent"]["status"]) == (decline, "requires_payment_method")
    intent = body["payment_intent"]["id"]
    paid = post(gateway, f"{CREATE}/{intent}/confirm", key="k2", payment_method="pm_card_visa").json()
    assert paid["status"] == "succeeded"


@pytest.mark.parametrize(("result", "status"), [("pass", "succeeded"), ("fail", "requires_payment_method")])
def test_authentication_is_asked_on_a_page_and_decides(
    gateway: Gateway, control: Control, result: str, status: str
) -> None:
    intent = post(
        gateway, key="k1", payment_method="pm_card_authenticationRequired", return_url="http://shop/back"
    ).json()
    assert (intent["status"], control.ledger()["charges"]) == ("requires_action", [])
    page = intent["next_action"]["redirect_to_url"]["url"].removeprefix(gateway.url)
    with Raw(gateway.url) as client:
        assert b"Confirm your payment" in client.get(page).body
        answer = client.post(page, {"result": result})
        assert client.post(page, {"result": "pass"}).status == 409
    assert (answer.status, answer.header("Location")) == (303, "http://shop/back")
    assert get(gateway, f"{CREATE}/{intent['id']}")["status"] == status


def test_an_unconfirmed_intent_takes_no_money_until_it_is_confirmed(
    gateway: Gateway, control: Control
) -> None:
    intent = post(gateway, confirm="false").json()
    assert (intent["status"], control.ledger()["charges"]) == ("requires_confirmation", [])
    assert post(gateway, f"{CREATE}/{intent['id']}/confirm", key="k1").json()["status"] == "succeeded"
    assert error(post(gateway, f"{CREATE}/{intent['id']}/confirm", key="k2"))[2] == (
        "payment_intent_unexpected_state"
    )


def test_manual_capture_takes_money_at_capture(gateway: Gateway, control: Control) -> None:
    intent = post(gateway, capture_method="manual").json()
    assert (intent["status"], intent["amount_capturable"]) == ("requires_capture", 1999)
    assert control.ledger()["charges"] == []
    taken = post(gateway, f"{CREATE}/{intent['id']}/capture", amount_to_capture=1500).json()
    assert (taken["status"], taken["amount_received"]) == ("succeeded", 1500)


def test_cancel_ends_an_intent_and_a_paid_one_refuses(gateway: Gateway) -> None:
    waiting = post(gateway, confirm="false").json()["id"]
    assert post(gateway, f"{CREATE}/{waiting}/cancel", key="c1").json()["status"] == "canceled"
    paid = post(gateway).json()["id"]
    assert error(post(gateway, f"{CREATE}/{paid}/cancel"))[2] == "payment_intent_unexpected_state"
    assert error(post(gateway, f"{CREATE}/pi_unknown/cancel")) == (
        404, "invalid_request_error", "resource_missing"
    )  # fmt: skip


def test_refunds_never_exceed_the_charge(gateway: Gateway, control: Control) -> None:
    intent = post(gateway).json()["id"]
    part = post(gateway, "/v1/refunds", key="r1", payment_intent=intent, amount=999).json()
    assert (part["status"], part["amount"]) == ("succeeded", 999)
    assert post(gateway, "/v1/refunds", key="r1", payment_intent=intent, amount=999).json() == part
    assert post(gateway, "/v1/refunds", payment_intent=intent, amount=1001).status == 400
    assert post(gateway, "/v1/refunds", payment_intent=intent).json()["amount"] == 1000
    assert error(post(gateway, "/v1/refunds", payment_intent=intent))[2] == "charge_already_refunded"
    assert get(gateway, f"/v1/refunds/{part['id']}") == part
    ledger = control.ledger()
    assert ledger["charges"][0]["refunded"] == 1999
    assert [item["idempotency_key"] for item in ledger["refunds"]] == ["r1", None]


def test_search_finds_by_order_reference_only(gateway: Gateway) -> None:
    post(gateway, key="k1")
    found = get(gateway, f"{CREATE}/search?query=metadata%5B%27order_reference%27%5D%3A%27R1%27")
    assert [item["metadata"]["order_reference"] for item in found["data"]] == ["R1"]
    assert get(gateway, f"{CREATE}/search?query=metadata%5B%27order_reference%27%5D%3A%27R2%27")["data"] == []
    with Raw(gateway.url) as client:
        assert client.get(f"{CREATE}/search?query=amount%3E1").status == 400


def test_balance_sums_what_is_left_by_currency(gateway: Gateway) -> None:
    post(gateway)
    post(gateway, amount=500, currency="jpy")
    assert [(item["currency"], item["amount"]) for item in get(gateway, "/v1/balance")["available"]] == [
        ("eur", 1999), ("jpy", 500)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("amount", "currency", "fine"),
    [
        ("1", "eur", True), ("99999999", "eur", True), ("0", "eur", False), ("-1", "eur", False),
        ("100000000", "eur", False), ("1.5", "eur", False), ("1e3", "eur", False), ("", "eur", False),
        ("1", "jpy", True), ("5120", "kwd", True), ("5124", "kwd", False), ("500", "isk", True),
        ("550", "isk", False), ("10", "EUR", False), ("10", "xxx", False),
    ],
)  # fmt: skip
def test_amounts_and_currencies(gateway: Gateway, amount: str, currency: str, fine: bool) -> None:
    answer = post(gateway, amount=amount, currency=currency)
    assert answer.status == (200 if fine else 400)


def test_without_a_test_key_nothing_is_done(gateway: Gateway, control: Control) -> None:
    for header in ("", "Bearer ", "Bearer sk_live_x", "Basic sk_test_x", "Bearer sk_test_"):
        with Raw(gateway.url) as client:
            assert client.post(CREATE, CHARGE, "k1", Authorization=header).status == 401
    assert control.ledger()["charges"] == []


def test_the_ledger_knows_every_request_with_its_reference_and_answer(
    gateway: Gateway, control: Control
) -> None:
    intent = post(gateway, key="k1").json()["id"]
    control.break_with({"close": "after"}, path="/v1/refunds")
    with pytest.raises(EOFError):
        post(gateway, "/v1/refunds", key="r1", payment_intent=intent)
    get_before = control.ledger()["requests"]
    assert [(item["method"], item["path"]) for item in get_before] == [
        ("POST", CREATE),
        ("POST", "/v1/refunds"),
    ]
    assert [item["idempotency_key"] for item in get_before] == ["k1", "r1"]
    assert [item["reference"] for item in get_before] == ["R1", "R1"]
    assert [item["status_sent"] for item in get_before] == [200, None]
    assert get_before[0]["at_ms"] <= get_before[1]["at_ms"]
    assert [item["seq"] for item in control.ledger(since=1)["requests"]] == [2]


def test_clearing_the_ledger_makes_the_gateway_like_new(gateway: Gateway, control: Control) -> None:
    intent = post(gateway, key="k1").json()["id"]
    control.clear_ledger()
    ledger = control.ledger()
    assert (ledger["charges"], ledger["requests"], ledger["intents"]) == ([], [], [])
    assert post(gateway, key="k1", amount=5).status == 200
    with Raw(gateway.url) as client:
        assert client.get(f"{CREATE}/{intent}").status == 404


def test_a_restarted_gateway_knows_everything_also_with_a_torn_last_line(tmp_path: Path) -> None:
    with Gateway(state=tmp_path) as before:
        first = post(before, key="k1")
        post(before, "/v1/refunds", key="r1", payment_intent=first.json()["id"], amount=10)
        remembered = Control(before.control_url).ledger()
    with (tmp_path / "gateway.jsonl").open("a") as journal:
        journal.write('{"intent": {"id": "pi_to')
    for _ in range(2):  # the second start reads what the first one wrote in short
        with Gateway(state=tmp_path) as after:
            ledger = Control(after.control_url).ledger()
            for part in ("charges", "refunds", "requests", "intents"):
                assert ledger[part] == remembered[part]
            again = post(after, key="k1")
            assert (again.body, again.header("Idempotent-Replayed")) == (first.body, "true")
            remembered = Control(after.control_url).ledger()
    assert [item["seq"] for item in remembered["requests"]] == [1, 2, 3, 4]
