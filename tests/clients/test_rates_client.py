"""The rates' client against the sandbox's rates, honest and absurd (scenario OP-22)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from orders.currencies import UnknownCurrency
from orders.rates import FetchedRate, RatesAnswer, RatesClient, RatesUnavailable, judge
from tests.clients.neighbours import Process, chain, failures, running, soon
from tests.pricing.rates_of import rate

QUOTES = ("USD", "JPY", "KWD")


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with running("rates") as started:
        yield started


@pytest.fixture
def sandbox(process: Process) -> Iterator[Process]:
    process.heal()
    process.control("DELETE", "rates")
    yield process
    process.heal()
    process.control("DELETE", "rates")


@pytest.fixture
def client(sandbox: Process) -> RatesClient:
    return RatesClient(sandbox.session(), chain(call_timeout=0.3), base="EUR")


def test_rates_come_as_exact_decimals_with_the_providers_date(client):
    answer = client.fetch(QUOTES, soon())
    assert set(answer.good) == set(QUOTES)
    assert answer.rejected == {}
    today = datetime.now(UTC).date()
    for fetched in answer.good.values():
        assert isinstance(fetched.value, Decimal)
        assert 0 <= (today - fetched.date).days <= 4
        assert judge(fetched, None, today, Decimal("0.5")) is None


def test_all_currencies_are_asked_for_in_one_call_and_the_base_in_none(sandbox, client):
    client.fetch([*QUOTES, "EUR", "USD"], soon())
    assert ["JPY%2CKWD%2CUSD" in r["path"] for r in sandbox.ledger()["requests"]] == [True]
    assert client.fetch(["EUR"], soon()) == RatesAnswer({}, {})
    assert len(sandbox.ledger()["requests"]) == 1


def test_an_unknown_currency_is_never_asked_for(sandbox, client):
    with pytest.raises(UnknownCurrency):
        client.fetch(["USD", "DOGE"], soon())
    assert sandbox.ledger()["requests"] == []


@pytest.mark.parametrize(
    ("served", "reason"),
    [
        ("0", "zero"),
        ("0.000", "zero"),
        ("-1", "negative"),
        ("null", "missing"),
        (None, "missing"),
        ('"1,0842"', "not_a_number"),
        ('"1 084.2"', "not_a_number"),
        ('"1.0842"', "not_a_number"),
        ("true", "not_a_number"),
        ("[1.1]", "not_a_number"),
        ("1e-9", "out_of_range"),
        ("1e9", "out_of_range"),
        ("NaN", "unreadable"),
        ("Infinity", "unreadable"),
        ("-Infinity", "unreadable"),
        ('1.1,"rate":1.2', "unreadable"),
        ("1,0842", "unreadable"),
        ("1e400", "unreadable"),
    ],
)
def test_one_absurd_rate_is_rejected_with_its_reason_and_spoils_no_other(sandbox, client, served, reason):
    sandbox.control("PUT", "rates", {"rates": {"USD": served}})
    answer = client.fetch(QUOTES, soon())
    assert set(answer.good) == {"JPY", "KWD"}
    assert answer.rejected == {"USD": reason}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"base": "USD"}], "wrong_base"),
        ([{"base": None}], "wrong_base"),
        ([{}, {"rate": 1.2}], "duplicate"),
        ([{}, {}], "duplicate"),
        ([], "missing"),
        ([{"quote": "usd"}], "missing"),
        ([{"date": "25.11.2026"}], "bad_date"),
        ([{"date": "2026-02-30"}], "bad_date"),
        ([{"date": 20261125}], "bad_date"),
        ([{"date": None}], "bad_date"),
    ],
)
def test_a_row_that_breaks_the_contract_is_rejected_with_its_reason(sandbox, client, rows, reason):
    good = {"date": "2026-11-25", "base": "EUR", "quote": "USD", "rate": 1.1}
    body = [good | row for row in rows] + [good | {"quote": "JPY", "rate": 160}, good | {"quote": "CHF"}, 7]
    sandbox.faulty({"replace_body": json.dumps(body)})
    answer = client.fetch(["USD", "JPY"], soon())
    assert answer.good == {"JPY": FetchedRate(Decimal(160), date(2026, 11, 25))}
    assert answer.rejected == {"USD": reason}


def test_a_thousand_times_yesterday_and_a_date_in_the_future_are_left_to_the_judge(sandbox, client):
    sandbox.control("PUT", "rates", {"date": "2999-01-01", "rates": {"USD": "1100"}})
    fetched = client.fetch(["USD"], soon()).good["USD"]
    today = datetime.now(UTC).date()
    assert judge(fetched, rate("USD", "1.10"), today, 0.5) == "future_date"
    assert judge(FetchedRate(fetched.value, today), rate("USD", "1.10"), today, 0.5) == "jump"


def test_when_every_rate_is_absurd_there_are_none_and_the_breaker_sees_a_failure(sandbox, client):
    sandbox.control("PUT", "rates", {"rates": {"USD": "0", "JPY": "-1", "KWD": "null"}})
    with pytest.raises(RatesUnavailable) as caught:
        client.fetch(QUOTES, soon())
    assert caught.value.rejected == {"USD": "zero", "JPY": "negative", "KWD": "missing"}
    assert failures(client.chain) == 1


@pytest.mark.parametrize("body", ["[]", "{}", "null", "", "<html>", '[{"rate": 1}]', "[7]"])
def test_an_empty_or_unreadable_list_is_a_failure_and_never_a_success(sandbox, client, body):
    sandbox.faulty({"replace_body": body})
    with pytest.raises(RatesUnavailable):
        client.fetch(QUOTES, soon())
    assert failures(client.chain) >= 1


@pytest.mark.parametrize(
    ("effect", "reason", "retry_after"),
    [
        ({"status": 503, "headers": {"Retry-After": "7"}}, "status_503", 7.0),
        ({"status": 404}, "status_404", None),
        ({"hang": True}, "no_answer", None),
        ({"reset": "after"}, "no_answer", None),
        ({"refuse": True}, "connect_failed", None),
    ],
    ids=str,
)
def test_trouble_is_one_exception_in_time_with_a_hint_when_to_come_back(
    sandbox, client, effect, reason, retry_after
):
    sandbox.faulty(effect)
    began = time.monotonic()
    with pytest.raises(RatesUnavailable) as caught:
        client.fetch(QUOTES, soon())
    assert time.monotonic() - began < 0.5
    assert (caught.value.reason, caught.value.retry_after) == (reason, retry_after)


def test_a_trickling_answer_does_not_outlast_the_deadline_though_each_currency_is_asked_for(sandbox, client):
    sandbox.faulty({"trickle": "body", "interval_ms": 50})
    began = time.monotonic()
    with pytest.raises(RatesUnavailable):
        client.fetch(QUOTES, soon(500))
    assert time.monotonic() - began < 0.6


def test_another_base_gives_the_same_market(sandbox):
    from_euro = RatesClient(sandbox.session(), chain(), base="EUR").fetch(("USD", "JPY"), soon()).good
    from_dollar = RatesClient(sandbox.session(), chain(), base="USD").fetch(("EUR", "JPY"), soon()).good
    ratio = from_euro["JPY"].value / from_euro["USD"].value / from_dollar["JPY"].value
    assert abs(ratio - 1) < Decimal("0.00001")
