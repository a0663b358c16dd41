"""The client of the exchange rates, and the rules on which rate may be believed, shown and charged.

Wire format: Frankfurter v2, `GET /v2/rates?base=…&quotes=…&providers=ecb` (frankfurter.dev). Thread-safe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from orders.currencies import exponent
from orders.pricing import Freshness, Rate, plausible
from resilience import errors

if TYPE_CHECKING:
    from resilience.chain import Chain
    from resilience.deadline import Deadline
    from resilience.http import HttpSession

SOURCE = "ecb"


class Rejection(StrEnum):
    """Why a rate was not believed. The last good one stays in use."""

    NOT_A_NUMBER = "not_a_number"
    NAN = "nan"
    INFINITE = "infinite"
    ZERO = "zero"
    NEGATIVE = "negative"
    OUT_OF_RANGE = "out_of_range"
    WRONG_BASE = "wrong_base"
    MISSING = "missing"
    DUPLICATE = "duplicate"
    BAD_DATE = "bad_date"
    FUTURE_DATE = "future_date"
    JUMP = "jump"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class FetchedRate:
    """A rate as the provider gave it, well-formed but not yet compared with the one before."""

    value: Decimal
    date: date


@dataclass(frozen=True, slots=True)
class RatesAnswer:
    """One fetch, by quoted currency: what is well-formed, and what was rejected, with the reason."""

    good: Mapping[str, FetchedRate]
    rejected: Mapping[str, str]


class RatesUnavailable(Exception):
    """No rate at all could be had. `retry_after` is in seconds, `rejected` as in `RatesAnswer`."""

    def __init__(
        self, reason: str, retry_after: float | None, rejected: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"no exchange rates: {reason}")
        self.reason = reason
        self.retry_after = retry_after
        self.rejected: Mapping[str, str] = rejected or {}


@dataclass(frozen=True, slots=True)
class RateLimits:
    """How old a rate may be. Seconds since the last good fetch; days since the date the provider gave it."""

    fresh_seconds: int = 3600
    provider_max_days: int = 4
    show_seconds: int = 864_000
    charge_seconds: int = 86_400

    def __post_init__(self) -> None:
        if not 0 < self.fresh_seconds <= self.charge_seconds <= self.show_seconds:
            raise ValueError(
                "rate limits must satisfy 0 < fresh ≤ charge ≤ show, got "
                f"{self.fresh_seconds}, {self.charge_seconds}, {self.show_seconds}"
            )
        if self.provider_max_days < 0:
            raise ValueError(f"provider_max_days must be ≥ 0, got {self.provider_max_days}")


class Standing(NamedTuple):
    """What a rate is good for at one moment."""

    freshness: Freshness
    may_show: bool
    may_charge: bool


class _NothingGood(errors.BadAnswer):
    """The answer can be read, and nothing in it can be used: a failure of the service all the same."""

    def __init__(self, rejected: Mapping[str, str]) -> None:
        super().__init__("no usable rate in the answer", status=200)
        self.rejected = rejected


class RatesClient:
    """Fetches rates from `base` to other currencies. `http` is anything with `HttpSession.request`."""

    def __init__(self, http: HttpSession, chain: Chain, base: str) -> None:
        exponent(base)
        self._http = http
        self.chain = chain
        self._base = base

    def fetch(self, quotes: Collection[str], deadline: Deadline) -> RatesAnswer:
        """Fetch the rates to `quotes`. One bad rate spoils no other.

        Raises `RatesUnavailable` if none is good.
        """
        wanted = sorted(set(quotes) - {self._base})
        for code in wanted:
            exponent(code)
        if not wanted:
            return RatesAnswer({}, {})
        try:
            return self._ask(wanted, deadline)
        except _NothingGood as error:
            raise RatesUnavailable("no_usable_rate", None, error.rejected) from None
        except errors.BadAnswer as error:
            answer = self._one_by_one(wanted, deadline)
            if not answer.good:
                raise RatesUnavailable("bad_answer", error.retry_after, answer.rejected) from None
            return answer
        except errors.ResilienceError as error:
            raise RatesUnavailable(_reason(error), error.retry_after) from None

    def _one_by_one(self, wanted: Collection[str], deadline: Deadline) -> RatesAnswer:
        """One value that is no JSON (NaN, a key twice) makes the whole answer unreadable: find out which."""
        good: dict[str, FetchedRate] = {}
        rejected: dict[str, str] = {}
        for code in wanted if len(wanted) > 1 else ():
            try:
                good.update(self._ask([code], deadline).good)
            except _NothingGood as error:
                rejected.update(error.rejected)
            except errors.BadAnswer:
                rejected[code] = Rejection.UNREADABLE
            except errors.ResilienceError:
                break
        return RatesAnswer(good, rejected)

    def _ask(self, wanted: Collection[str], deadline: Deadline) -> RatesAnswer:
        query = {"base": self._base, "quotes": ",".join(wanted), "providers": SOURCE}

        def attempt(attempt_deadline: Deadline) -> RatesAnswer:
            response = self._http.request("GET", "/v2/rates", deadline=attempt_deadline, query=query)
            answer = _read(response.body, self._base, wanted)
            if not answer.good:
                raise _NothingGood(answer.rejected)
            return answer

        return self.chain.call(attempt, deadline=deadline, repeatable=True)


def judge(
    fetched: FetchedRate | None, previous: Rate | None, today: date, max_jump: Decimal | float
) -> str | None:
    """Return why `fetched` may not replace `previous`, or None if it may.

    `max_jump` is the largest change believed, as a share of the previous value. Pass `previous=None` once
    the old rate is too old to be shown, or a true jump would be rejected for ever. `today` is in UTC.
    """
    if fetched is None:
        return Rejection.MISSING
    reason = _value_reason(fetched.value)
    if reason is not None:
        return reason
    if fetched.date > today:
        return Rejection.FUTURE_DATE
    if previous is not None and abs(fetched.value - previous.value) > Decimal(str(max_jump)) * previous.value:
        return Rejection.JUMP
    return None


def freshness(provider_date: date, fetched_at: datetime, now: datetime, limits: RateLimits) -> Standing:
    """Tell what a rate is good for at `now`. Both times carry a zone; the provider's date is compared in UTC.

    A fetch that seems to lie in the future (the clock was set back) counts as just as old as it is ahead:
    otherwise a wrong clock could keep a rate fresh for ever.
    """
    age = abs((now - fetched_at).total_seconds())
    days = (now.astimezone(UTC).date() - provider_date).days
    fresh = age <= limits.fresh_seconds and days <= limits.provider_max_days
    return Standing(
        freshness=Freshness.FRESH if fresh else Freshness.STALE,
        may_show=age <= limits.show_seconds,
        may_charge=age <= limits.charge_seconds,
    )


def _read(body: Any, base: str, wanted: Collection[str]) -> RatesAnswer:
    """Sort the rows of an answer into good and rejected. Rows nobody asked for are ignored."""
    if not isinstance(body, list) or not body:
        raise errors.BadAnswer("the answer is not a list of rates", status=200)
    rows: dict[str, list[dict[str, Any]]] = {code: [] for code in wanted}
    for row in body:
        quote = row.get("quote") if isinstance(row, dict) else None
        if isinstance(quote, str) and quote in rows:
            rows[quote].append(row)
    good: dict[str, FetchedRate] = {}
    rejected: dict[str, str] = {}
    for code, found in rows.items():
        result = _row(found, base)
        if isinstance(result, FetchedRate):
            good[code] = result
        else:
            rejected[code] = result
    return RatesAnswer(good, rejected)


def _row(found: list[dict[str, Any]], base: str) -> FetchedRate | Rejection:
    if len(found) != 1:
        return Rejection.DUPLICATE if found else Rejection.MISSING
    row = found[0]
    if row.get("base") != base:
        return Rejection.WRONG_BASE
    value = _number(row.get("rate"))
    if value is None:
        return Rejection.MISSING if row.get("rate") is None else Rejection.NOT_A_NUMBER
    reason = _value_reason(value)
    if reason is not None:
        return reason
    day = _day(row.get("date"))
    return Rejection.BAD_DATE if day is None else FetchedRate(value, day)


def _number(value: Any) -> Decimal | None:
    """A JSON number as Decimal. A string is none, however much it looks like one."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    return Decimal(value)


def _day(value: Any) -> date | None:
    if not isinstance(value, str) or len(value) != len("2026-01-31"):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def _value_reason(value: Decimal) -> Rejection | None:
    if value.is_nan():
        return Rejection.NAN
    if value.is_infinite():
        return Rejection.INFINITE
    if value == 0:
        return Rejection.ZERO
    if value < 0:
        return Rejection.NEGATIVE
    return None if plausible(value) else Rejection.OUT_OF_RANGE


def _reason(error: errors.ResilienceError) -> str:
    """A short stable code for the log."""
    if isinstance(error, errors.NotSent):
        return error.reason
    return f"status_{error.status}" if isinstance(error, errors.Answered) else "no_answer"
