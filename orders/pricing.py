"""Money, rates and quotes: exact arithmetic on integers, rounded once in a known place.

Rounding is half up, away from zero, as EU law prescribes for conversions between currencies (Council
Regulation 1103/97, article 5) and as a shopper would do it on paper. It happens once, on the unit price;
lines and total are integer sums of that, so what is shown always adds up.

Everything here is a pure function of its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Context, Decimal, localcontext
from enum import StrEnum

from orders.currencies import exponent
from payments.minor_units import charge_step

# A rate outside this range is no rate between two currencies of this world, whatever the day.
SMALLEST_RATE = Decimal("1e-8")
LARGEST_RATE = Decimal("1e8")
_MOST_DIGITS = 60
_CROSS = Context(prec=50)  # far below one minor unit of any amount: a quotient need not be finite


@dataclass(frozen=True, slots=True, order=False)
class Money:
    """An amount in minor units of its currency, never a float. Only amounts of one currency can be added."""

    minor: int
    currency: str

    def __post_init__(self) -> None:
        if isinstance(self.minor, bool) or not isinstance(self.minor, int):
            raise TypeError(f"minor must be an integer, got {type(self.minor).__name__}")
        exponent(self.currency)

    @property
    def amount(self) -> Decimal:
        """The amount in whole units, with exactly as many decimals as the currency has."""
        return Decimal(self.minor).scaleb(-exponent(self.currency), Context(prec=_MOST_DIGITS))

    def __add__(self, other: Money) -> Money:
        if not isinstance(other, Money):
            return NotImplemented
        if other.currency != self.currency:
            raise ValueError(f"cannot add {other.currency} to {self.currency}")
        return Money(self.minor + other.minor, self.currency)

    def __mul__(self, times: int) -> Money:
        if isinstance(times, bool) or not isinstance(times, int):
            return NotImplemented
        return Money(self.minor * times, self.currency)

    __rmul__ = __mul__


class Freshness(StrEnum):
    """Whether a rate is today's, or the last one we could get."""

    FRESH = "fresh"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Rate:
    """One unit of `base` is worth `value` units of `quote`, said by `source` for `provider_date`.

    `fetched_at` is when we last had it; `may_show` and `may_charge` say what it is good for now.
    """

    base: str
    quote: str
    value: Decimal
    source: str
    provider_date: date
    fetched_at: datetime
    freshness: Freshness
    may_charge: bool
    may_show: bool

    def __post_init__(self) -> None:
        exponent(self.base)
        exponent(self.quote)
        if self.base == self.quote:
            raise ValueError(f"a rate needs two currencies, got {self.base} twice")
        if not isinstance(self.value, Decimal) or not plausible(self.value):
            raise ValueError("the value of a rate must be a Decimal between 1e-8 and 1e8")
        if self.may_charge and not self.may_show:
            raise ValueError("a rate that may not be shown may not be charged either")


@dataclass(frozen=True, slots=True)
class Item:
    """What is to be priced: `unit` in the base currency; `as_of` is set when that price is a snapshot."""

    sku: str
    name: str
    quantity: int
    unit: Money
    as_of: datetime | None = None


@dataclass(frozen=True, slots=True)
class PricedLine:
    """One line of a quote. `total` is `unit` times `quantity`; `as_of` as in `Item`."""

    sku: str
    name: str
    quantity: int
    unit: Money
    total: Money
    as_of: datetime | None


@dataclass(frozen=True, slots=True)
class Quote:
    """What a basket costs. `rate` is None in the base currency; `price_as_of` is the oldest snapshot used.

    Whether it may be charged is the rate's `may_charge`.
    """

    lines: tuple[PricedLine, ...]
    total: Money
    rate: Rate | None
    price_as_of: datetime | None


class RateTooOld(ValueError):
    """The rate is past the age at which even showing a price would mislead."""


def plausible(value: Decimal) -> bool:
    """Whether `value` is a finite number in the range of rates between real currencies."""
    return (
        value.is_finite()
        and SMALLEST_RATE <= value <= LARGEST_RATE
        and len(value.as_tuple().digits) <= _MOST_DIGITS
    )


def convert(amount: Money, rate: Rate) -> Money:
    """Convert along the rate in either direction, rounded half up to the minor unit of the other currency."""
    return _convert(amount, rate, step=1)


def unit_price(unit: Money, currency: str, rate: Rate | None) -> Money:
    """Return the price of one piece in `currency`, as shown, added up and charged.

    It is a multiple of what the gateway can charge: the last digit of a price in KWD is always 0. A price
    above nothing stays above nothing. `rate` is None for the base currency itself.
    """
    if rate is None:
        if unit.currency != currency:
            raise ValueError(f"no rate from {unit.currency} to {currency}")
        priced = Money(_rounded(unit.minor, 1, charge_step(currency)), currency)
    else:
        if (rate.base, rate.quote) != (unit.currency, currency):
            raise ValueError(f"the rate leads from {rate.base} to {rate.quote}, not to {currency}")
        if not rate.may_show:
            raise RateTooOld(f"the rate from {rate.base} to {rate.quote} is too old")
        priced = _convert(unit, rate, step=charge_step(currency))
    return Money(charge_step(currency), currency) if unit.minor > 0 and priced.minor == 0 else priced


def cross(rates: Mapping[str, Rate], from_: str, to: str) -> Rate:
    """Make a rate between two currencies out of their rates to the common base.

    `rates` holds one rate for each quoted currency. The result is as old and as weak as the weaker of the
    two. Raises `LookupError` when a rate is missing, `ValueError` for a rate of a currency to itself.
    """
    if from_ == to:
        raise ValueError(f"there is no rate from {from_} to itself")
    used = [rates[code] for code in (from_, to) if code in rates]
    bases = {rate.base for rate in used}
    if len(bases) != 1 or not {from_, to} <= {rate.quote for rate in used} | bases:
        raise LookupError(f"no rates that lead from {from_} to {to}")
    with localcontext(_CROSS):
        value = (rates[to].value if to in rates else Decimal(1)) / (
            rates[from_].value if from_ in rates else Decimal(1)
        )
    return Rate(
        base=from_,
        quote=to,
        value=value,
        source=" / ".join(sorted({rate.source for rate in used})),
        provider_date=min(rate.provider_date for rate in used),
        fetched_at=min(rate.fetched_at for rate in used),
        freshness=Freshness.STALE if any(r.freshness is Freshness.STALE for r in used) else Freshness.FRESH,
        may_charge=all(rate.may_charge for rate in used),
        may_show=all(rate.may_show for rate in used),
    )


def price(items: Sequence[Item], currency: str, rate: Rate | None) -> Quote:
    """Price a basket in `currency`. `rate` leads from the items' currency to it, None if they are the same.

    Raises `ValueError` for an empty basket, a quantity below 1, a negative price, or a rate that does not
    fit, and `RateTooOld` for one that may not even be shown.
    """
    lines = tuple(_line(item, currency, rate) for item in items)
    if not lines:
        raise ValueError("an empty basket has no price")
    snapshots = [line.as_of for line in lines if line.as_of is not None]
    return Quote(
        lines=lines,
        total=Money(sum(line.total.minor for line in lines), currency),
        rate=rate,
        price_as_of=min(snapshots, default=None),
    )


def _line(item: Item, currency: str, rate: Rate | None) -> PricedLine:
    if isinstance(item.quantity, bool) or not isinstance(item.quantity, int) or item.quantity < 1:
        raise ValueError(f"quantity must be an integer ≥ 1, got {item.quantity!r}")
    if item.unit.minor < 0:
        raise ValueError("a price cannot be negative")
    unit = unit_price(item.unit, currency, rate)
    return PricedLine(item.sku, item.name, item.quantity, unit, unit * item.quantity, item.as_of)


def _convert(amount: Money, rate: Rate, step: int) -> Money:
    numerator, denominator = rate.value.as_integer_ratio()
    if amount.currency == rate.base:
        target = rate.quote
    elif amount.currency == rate.quote:
        target = rate.base
        numerator, denominator = denominator, numerator
    else:
        raise ValueError(f"a rate from {rate.base} to {rate.quote} cannot convert {amount.currency}")
    numerator *= 10 ** exponent(target)
    denominator *= 10 ** exponent(amount.currency)
    return Money(_rounded(amount.minor * numerator, denominator, step), target)


def _rounded(numerator: int, denominator: int, step: int) -> int:
    """Return the fraction rounded to a multiple of `step`, halves away from zero. `denominator` > 0."""
    denominator *= step
    steps = (2 * abs(numerator) + denominator) // (2 * denominator)
    return steps * step if numerator >= 0 else -steps * step
