import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from sandbox.control import Control, ControlError
from sandbox.rates import USD_PER_KWD, Rates
from tests.sandbox.raw import Answer, Raw

MONDAY, SUNDAY = date(2026, 11, 30), date(2026, 11, 29)


@pytest.fixture
def rates() -> Iterator[Rates]:
    with Rates(today=SUNDAY) as running:
        yield running


def get(rates: Rates, path: str) -> Answer:
    with Raw(rates.url) as client:
        return client.get(path)


def rows(rates: Rates, query: str) -> Any:
    return json.loads(get(rates, f"/v2/rates?{query}").body, parse_float=Decimal)


def test_rows_have_date_base_quote_and_rate_on_the_last_working_day(rates: Rates) -> None:
    answer = rows(rates, "base=EUR&quotes=USD,JPY,KWD&providers=ecb")
    assert [(row["date"], row["base"], row["quote"]) for row in answer] == [
        ("2026-11-27", "EUR", quote) for quote in ("USD", "JPY", "KWD")
    ]
    assert all(isinstance(row["rate"], Decimal) and row["rate"] > 0 for row in answer)


def test_a_pair_is_one_object_and_crosses_go_through_the_euro(rates: Rates) -> None:
    euro = {row["quote"]: row["rate"] for row in rows(rates, "quotes=USD,JPY,KWD")}
    pair = json.loads(get(rates, "/v2/rate/USD/JPY").body, parse_float=Decimal)
    assert abs(pair["rate"] - euro["JPY"] / euro["USD"]) < Decimal("0.001")
    assert abs(euro["USD"] / euro["KWD"] - USD_PER_KWD) < Decimal("0.001")
    assert json.loads(get(rates, "/v2/rate/USD/EUR").body)["rate"] < 1


def test_a_weekend_is_answered_with_the_day_before_it(rates: Rates) -> None:
    assert rows(rates, "quotes=USD&date=2026-11-22")[0]["date"] == "2026-11-20"


def test_on_a_working_day_the_newest_rate_is_of_today() -> None:
    with Rates(today=MONDAY) as rates:
        assert rows(rates, "quotes=USD")[0]["date"] == "2026-11-30"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/rates?quotes=XXX", 422), ("/v2/rates?base=XXX", 422), ("/v2/rates?providers=nobody", 422),
        ("/v2/rates?date=soon", 422), ("/v2/rates?date=1990-01-01", 422), ("/v1/latest", 404),
        ("/v2/rate/EUR/EUR", 404),
    ],
)  # fmt: skip
def test_errors_have_a_status_and_a_message(rates: Rates, path: str, status: int) -> None:
    answer = get(rates, path)
    assert (answer.status, answer.json()["status"]) == (status, status)
    assert answer.json()["message"]


def test_answers_may_be_cached_until_midnight_and_served_stale_on_errors(rates: Rates) -> None:
    header = get(rates, "/v2/rates").header("Cache-Control") or ""
    assert header.endswith("stale-if-error=86400")
    assert 0 <= int(header.split("max-age=")[1].split(",")[0]) <= 86400


@pytest.mark.parametrize("text", ["NaN", "Infinity", "0", "-1", "null", '"1,0842"', "1e-9", "1.10"])
def test_an_overridden_rate_goes_out_verbatim_and_others_stay(rates: Rates, text: str) -> None:
    control = Control(rates.control_url)
    before = rows(rates, "quotes=JPY")[0]["rate"]
    control.call("PUT", "/_sandbox/rates", {"date": "2030-01-01", "rates": {"USD": text}})
    assert (
        f'"date":"2030-01-01","base":"EUR","quote":"USD","rate":{text}}}'.encode()
        in get(rates, "/v2/rates?quotes=USD,JPY").body
    )
    assert rows(rates, "quotes=JPY")[0]["rate"] == before
    control.call("DELETE", "/_sandbox/rates")
    assert rows(rates, "quotes=USD")[0]["date"] == "2026-11-27"


def test_a_null_leaves_the_quote_out_and_nonsense_is_refused(rates: Rates) -> None:
    control = Control(rates.control_url)
    control.call("PUT", "/_sandbox/rates", {"rates": {"USD": None}})
    assert [row["quote"] for row in rows(rates, "quotes=USD,JPY")] == ["JPY"]
    with pytest.raises(ControlError, match="400"):
        control.call("PUT", "/_sandbox/rates", {"rates": {"USD": 1.1}})
