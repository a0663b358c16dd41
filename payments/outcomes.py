"""What a call to the payment gateway can come to. Plain values; every call returns exactly one of them.

Amounts are integer minor units by ISO 4217, currencies are capital ISO codes, `retry_after` is seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_REFERENCE: Final = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_METHOD: Final = re.compile(r"[A-Za-z0-9_]{1,100}")
_OUTAGES: Final = frozenset(
    {"server_error", "rate_limited", "credentials", "breaker_open", "bulkhead_full", "out_of_time"}
    | {"pool_timeout", "connect_failed", "not_sent"}
)
_KEY: Final = re.compile(r"[!-~]{1,255}")  # the gateway's limit: 255 characters


@dataclass(frozen=True, slots=True)
class Charge:
    """One charge to be made, the same for the first try and every repeat of it.

    `reference` names the order at the gateway. A repeat under the same `idempotency_key` must have all fields
    equal, `return_url` too: the gateway refuses the key otherwise.
    """

    reference: str
    amount_minor: int
    currency: str
    method: str
    idempotency_key: str
    return_url: str | None = None

    def __post_init__(self) -> None:
        if (
            isinstance(self.amount_minor, bool)
            or not isinstance(self.amount_minor, int)
            or self.amount_minor <= 0
        ):
            raise ValueError(f"amount_minor must be a positive integer, got {self.amount_minor!r}")
        for name, pattern in (("currency", _CURRENCY), ("reference", _REFERENCE), ("method", _METHOD)):
            if not pattern.fullmatch(getattr(self, name)):
                raise ValueError(f"{name} has an unusable form: {getattr(self, name)[:40]!r}")
        if not _KEY.fullmatch(self.idempotency_key):
            raise ValueError("idempotency_key must be 1 to 255 printable ASCII characters without spaces")


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The money was taken: status, amount, currency and reference all match the charge."""

    intent: str


@dataclass(frozen=True, slots=True)
class Declined:
    """No money was taken and this attempt will take none; `payments.declines` turns the code into words."""

    code: str
    intent: str | None = None


@dataclass(frozen=True, slots=True)
class ActionRequired:
    """The shopper has to confirm with the bank, at `url` if the gateway gave a usable one."""

    intent: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """This call certainly changed nothing at the gateway. It says nothing about earlier calls."""

    reason: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something may have happened there: look up, or repeat with the same key, never with a new one.

    `others` names further intents that took the same money, when `reason` is "several_charges"; `intent` is
    then the oldest one.
    """

    reason: str
    intent: str | None = None
    retry_after: float | None = None
    others: tuple[str, ...] = ()

    @property
    def touchable(self) -> bool:
        """Whether the intent is certainly the one that was asked for, so that it may be cancelled or given back."""
        return self.intent is not None and self.reason not in {"mismatch", "several_charges"}

    @property
    def outage(self) -> bool:
        """Whether the gateway failed to answer, rather than gave an answer that settles nothing."""
        return self.reason in _OUTAGES or self.reason.startswith("lost_in_")


@dataclass(frozen=True, slots=True)
class Refused:
    """The gateway answered that the request itself is wrong, and did nothing.

    Told apart from `Declined` (another card may do) and `NotSent` (later may do): here neither another card
    nor another time helps, a person has to look.
    """

    code: str


@dataclass(frozen=True, slots=True)
class NotFound:
    """The gateway knows no such payment. A search lags behind by a minute or more: this proves no absence."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The intent is cancelled and can take no money any more."""

    intent: str


@dataclass(frozen=True, slots=True)
class AlreadyCaptured:
    """Too late to cancel: `amount_minor` of `currency` was taken and has to be refunded."""

    intent: str
    amount_minor: int
    currency: str


@dataclass(frozen=True, slots=True)
class Refunded:
    """The money goes back; `refund` is empty when an earlier refund had returned all of it already."""

    refund: str


@dataclass(frozen=True, slots=True)
class RefundRefused:
    """The gateway will not make this refund; a person has to look."""

    code: str


@dataclass(frozen=True, slots=True)
class Intent:
    """What the gateway tells about one payment. `amount_refunded` is 0 where the answer does not say."""

    id: str
    status: str
    amount_minor: int
    currency: str
    reference: str | None
    amount_refunded: int
    decline_code: str | None
    action_url: str | None


ChargeOutcome = Succeeded | Declined | ActionRequired | NotSent | Unknown | Refused
LookupOutcome = ChargeOutcome | NotFound
CancelOutcome = Cancelled | AlreadyCaptured | NotSent | Unknown
RefundOutcome = Refunded | RefundRefused | NotSent | Unknown
