"""Which rate is believed, shown and charged (scenarios OP-22, OP-24)."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from orders.pricing import Freshness
from orders.rates import FetchedRate, RateLimits, freshness, judge
from tests.pricing.rates_of import NOW, rate

TODAY = date(2026, 11, 25)
LIMITS = RateLimits()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0", "zero"),
        ("-0.0", "zero"),
        ("-1", "negative"),
        ("NaN", "nan"),
        ("sNaN", "nan"),
        ("Infinity", "infinite"),
        ("-Infinity", "infinite"),
        ("1e-9", "out_of_range"),
        ("1e999999", "out_of_range"),
        ("1100", "jump"),
        ("0.5", "jump"),
        ("1", None),
        ("1.65", None),
        ("1.6500001", "jump"),
        ("0.55", None),
    ],
)
def test_a_value_is_believed_or_named_why_not(value, reason):
    assert judge(FetchedRate(Decimal(value), TODAY), rate("USD", "1.10"), TODAY, Decimal("0.5")) == reason


def test_a_rate_of_one_between_dollar_and_yen_is_a_jump():
    assert judge(FetchedRate(Decimal(1), TODAY), rate("JPY", "150", base="USD"), TODAY, 0.5) == "jump"


def test_with_nothing_to_compare_a_plausible_value_is_believed():
    assert judge(FetchedRate(Decimal("160.5"), TODAY), None, TODAY, 0.5) is None


def test_a_date_in_the_future_is_rejected_and_a_missing_rate_is_named():
    tomorrow = TODAY + timedelta(days=1)
    assert judge(FetchedRate(Decimal(1), tomorrow), None, TODAY, 0.5) == "future_date"
    assert judge(None, None, TODAY, 0.5) == "missing"


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        (0, (Freshness.FRESH, True, True)),
        (3600, (Freshness.FRESH, True, True)),
        (3601, (Freshness.STALE, True, True)),
        (86_400, (Freshness.STALE, True, True)),
        (86_401, (Freshness.STALE, True, False)),
        (864_000, (Freshness.STALE, True, False)),
        (864_001, (Freshness.STALE, False, False)),
        (-60, (Freshness.FRESH, True, True)),
        (-3601, (Freshness.STALE, True, True)),
        (-864_001, (Freshness.STALE, False, False)),
    ],
)
def test_the_age_of_the_last_good_fetch_decides_what_a_rate_is_good_for(age, expected):
    fetched = NOW - timedelta(seconds=age)
    assert freshness(NOW.date(), fetched, NOW, LIMITS) == expected


def test_a_provider_that_stands_still_makes_a_rate_stale_but_does_not_stop_the_sale():
    assert freshness(TODAY - timedelta(days=4), NOW, NOW, LIMITS).freshness is Freshness.FRESH
    standing = freshness(TODAY - timedelta(days=5), NOW, NOW, LIMITS)
    assert standing == (Freshness.STALE, True, True)


def test_the_providers_date_is_compared_in_utc_wherever_the_clock_is():
    early = datetime(2026, 11, 26, 0, 30, tzinfo=timezone(timedelta(hours=13)))  # the 25th in UTC
    assert freshness(date(2026, 11, 21), early, early, LIMITS).freshness is Freshness.FRESH
    assert freshness(date(2026, 11, 21), early, early + timedelta(days=0), LIMITS).may_charge
    assert early.astimezone(UTC).date() == TODAY


@pytest.mark.parametrize(
    "limits",
    [
        {"fresh_seconds": 0},
        {"charge_seconds": 10},
        {"show_seconds": 86_399},
        {"provider_max_days": -1},
    ],
)
def test_limits_that_contradict_each_other_are_refused(limits):
    with pytest.raises(ValueError, match="must"):
        RateLimits(**limits)
