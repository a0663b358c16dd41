"""The demo's levers: what each neighbour can be made to do, told to it over HTTP within a second."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from orders.pricing import Money
from payments.minor_units import from_wire
from resilience.deadline import Deadline
from resilience.errors import ResilienceError
from resilience.http import HttpPolicy, HttpSession

_CALL_SECONDS: Final = 1.0
_NO_REQUESTS = {"since": str(10**12)}  # only the books; the list of requests grows without end


@dataclass(frozen=True)
class Trouble:
    """Something that can go wrong at a neighbour, in words and as the sandbox's fault rule."""

    words: Promise
    effect: Mapping[str, Any]
    match: Mapping[str, Any]

    @property
    def rule(self) -> dict[str, Any]:
        return {"match": dict(self.match), "effect": dict(self.effect)}


def _all(words: Promise, **effect: Any) -> Trouble:
    return Trouble(words, effect, {})


_DOWN = {"message": "down for the demo"}
_COMMON = {
    "hang": _all(_("Takes requests and never answers"), hang=True),
    "refuse": _all(_("Refuses connections"), refuse=True),
    "error": _all(_("Answers 503"), status=503, body=_DOWN),
    "slow": _all(_("Answers after two seconds"), latency_ms=2000),
}
TROUBLES: Final[Mapping[str, Mapping[str, Trouble]]] = {
    "payment": {
        **_COMMON,
        "lost": Trouble(
            _("Takes the money, then loses the answer"), {"hang": True, "after": True}, {"method": "POST"}
        ),
    },
    "catalog": _COMMON,
    "rates": {**_COMMON, "nonsense": _all(_("Answers nonsense"), status=200, body=[{"rate": "NaN"}])},
}
NAMES: Final[Mapping[str, Promise]] = {
    "payment": _("Payment gateway"),
    "catalog": _("Catalog service"),
    "rates": _("Exchange rates"),
}


@dataclass(frozen=True)
class Neighbour:
    """One neighbour as it is now. `trouble` says what is wrong; `reachable` is about its control address."""

    key: str
    name: Promise
    troubles: Mapping[str, Trouble]
    reachable: bool
    trouble: Promise | str

    @property
    def healthy(self) -> bool:
        return self.reachable and not self.trouble


@dataclass(frozen=True)
class Booked:
    """Money that the gateway says it took."""

    reference: str
    amount: int
    currency: str
    refunded: int

    @property
    def money(self) -> Money:
        return Money(from_wire(self.amount, self.currency), self.currency)


def neighbours() -> list[Neighbour]:
    """All three, each asked within a second."""
    return [_look_at(key) for key in TROUBLES]


def break_with(key: str, trouble: str) -> bool:
    """Lets a neighbour go wrong. False when it cannot be told. KeyError for words it does not know."""
    return _ask(key, "PUT", "/_sandbox/faults", json=[TROUBLES[key][trouble].rule]) is not None


def heal(key: str) -> bool:
    return key in TROUBLES and _ask(key, "DELETE", "/_sandbox/faults") is not None


def change_price(sku: str, minor: int) -> bool:
    """The catalog's price of one product from now on."""
    return _ask("catalog", "PUT", f"/_sandbox/products/{sku}", json={"price_minor": minor}) is not None


def books() -> list[Booked] | None:
    """The gateway's charges, newest first; None when it does not show them."""
    said = _ask("payment", "GET", "/_sandbox/ledger", query=_NO_REQUESTS)
    if said is None:
        return None
    charges = [
        Booked(
            str(charge["reference"]), charge["amount"], str(charge["currency"]).upper(), charge["refunded"]
        )
        for charge in said["charges"]
    ]
    return charges[::-1]


def _look_at(key: str) -> Neighbour:
    rules = _ask(key, "GET", "/_sandbox/faults")
    known = [trouble.words for trouble in TROUBLES[key].values() if [trouble.rule] == rules]
    trouble = known[0] if known else _("Follows fault rules of its own") if rules else ""
    return Neighbour(key, NAMES[key], TROUBLES[key], rules is not None, trouble)


def _ask(key: str, method: str, path: str, **more: Any) -> Any:
    """The decoded answer ({} for none); None when the neighbour cannot be reached or refuses."""
    deadline = Deadline.after_ms(_CALL_SECONDS * 1000)
    try:
        answer = _session(_address(key)).request(method, path, deadline=deadline, **more)
    except ResilienceError:
        return None
    return {} if answer.body is None else answer.body


def _address(key: str) -> str:
    return os.environ.get(f"{key.upper()}_CONTROL_URL") or getattr(settings.HOLDFAST, key).url


@lru_cache(maxsize=8)
def _session(url: str) -> HttpSession:
    return HttpSession(
        HttpPolicy(
            base_url=url,
            connect_timeout=0.3,
            read_timeout=_CALL_SECONDS,
            call_timeout=_CALL_SECONDS,
            pool_wait=0.2,
            max_bytes=5_000_000,
        )
    )
