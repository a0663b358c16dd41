"""Money, dates and names as the reader's language writes them, and the shop's icons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from datetime import date, datetime
from decimal import Decimal

from babel import UnknownLocaleError
from babel.core import Locale
from babel.dates import format_date, format_datetime
from babel.numbers import format_decimal
from django import template
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language, get_language_bidi

from orders.currencies import exponent
from orders.icons import drawing
from orders.pricing import Money
from orders.queries import CurrencyOffer
from orders.states import OrderStatus
from orders.wording import STATUS_WORDS, WORDS, Situation, Text, Words, decline_words, event_words

register = template.Library()


def _locale() -> Locale:
    try:
        return Locale.parse(get_language() or "en", sep="-")
    except (UnknownLocaleError, ValueError):
        return Locale("en")


@register.filter
def money(value: Money) -> str:
    """An amount with the decimals that it is charged with: those of ISO 4217.

    Babel's own idea is that of everyday life: no fillér, no decimals of the Icelandic króna, and so on.
    """
    places, locale = exponent(value.currency), _locale()
    pattern = copy(locale.currency_formats["standard"])
    pattern.frac_prec = (places, places)
    text = pattern.apply(value.amount, locale, currency=value.currency, currency_digits=False)
    # Isolated where writing runs from right to left, so that no sign of it changes sides.
    return f"\N{FIRST STRONG ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}" if get_language_bidi() else text


@register.filter
def exact(value: Decimal | str) -> str:
    """A rate with all the digits it has and no more."""
    return format_decimal(Decimal(value).normalize(), locale=_locale(), decimal_quantization=False)


@register.filter
def day(value: date) -> str:
    """A date that will be read in years to come."""
    return format_date(value, format="d MMMM y", locale=_locale())


@register.filter
def recent_day(value: date) -> str:
    """A date of the last days, where the year would be noise."""
    return format_date(value, format="d MMMM", locale=_locale())


@register.filter
def moment(value: datetime) -> str:
    """A point in time with its zone named."""
    return f"{format_datetime(value, format='d MMM y HH:mm', locale=_locale())} UTC"


@register.filter
def named(names: Mapping[str, str]) -> str:
    """A product's name in the reader's language."""
    return names.get((get_language() or "en")[:2]) or names.get("en", "")


@register.filter
def missing(offers: Iterable[CurrencyOffer]) -> list[str]:
    """The currencies that are not offered now."""
    return [offer.code for offer in offers if not offer.offered]


@register.filter
def words(value: Situation) -> Words:
    return WORDS[value]


@register.filter
def status_words(value: OrderStatus) -> tuple[Text, str]:
    """Title and icon."""
    return STATUS_WORDS[value]


@register.filter
def event(kind: str) -> str:
    return str(event_words(kind))


@register.filter
def declined(code: str) -> str:
    return str(decline_words(code))


@register.filter
def at(mapping: Mapping[str, Mapping[str, str]], key: str) -> Mapping[str, str]:
    """The names of one product."""
    return mapping.get(key, {})


@register.simple_tag
def icon(name: str) -> SafeString:
    """One of the shop's drawings, inlined."""
    return mark_safe(drawing(name))  # noqa: S308 - a constant of ours
