"""The client of the payment gateway: one call in, one outcome out, whatever the world does.

Wire format: Stripe's PaymentIntents (docs.stripe.com/api). Thread-safe; keeps no state between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from payments import wire
from payments.declines import CARD_DECLINES, decline_message
from payments.minor_units import NotChargeable, to_wire
from payments.outcomes import (
    ActionRequired,
    AlreadyCaptured,
    Cancelled,
    CancelOutcome,
    Charge,
    ChargeOutcome,
    Declined,
    Intent,
    LookupOutcome,
    NotFound,
    NotSent,
    Refunded,
    RefundOutcome,
    RefundRefused,
    Refused,
    Succeeded,
    Unknown,
)
from payments.webhooks import BadSignature, WebhookEvent, verify_webhook
from resilience import errors

if TYPE_CHECKING:
    from resilience.chain import Chain
    from resilience.deadline import Deadline
    from resilience.http import HttpSession

__all__ = [
    "CARD_DECLINES",
    "ActionRequired",
    "AlreadyCaptured",
    "BadSignature",
    "CancelOutcome",
    "Cancelled",
    "Charge",
    "ChargeOutcome",
    "Declined",
    "Gateway",
    "Intent",
    "LookupOutcome",
    "NotFound",
    "NotSent",
    "RefundOutcome",
    "RefundRefused",
    "Refunded",
    "Refused",
    "Succeeded",
    "Unknown",
    "WebhookEvent",
    "decline_message",
    "verify_webhook",
]

T = TypeVar("T")
_INTENTS: Final = "/v1/payment_intents"
_NO_ACCESS: Final = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class _Request(Generic[T]):
    method: str
    path: str
    read: Callable[[Any], T]
    form: Mapping[str, str] | None = None
    query: Mapping[str, str] | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class _Rejection:
    """A readable 4xx: the gateway understood and said no."""

    status: int
    error: wire.WireError

    @property
    def unsettled(self) -> str | None:
        """Why this no is not the last word on the request, or None if it is."""
        if self.status == 409:  # another request with the same key is running
            return "conflict"
        return "idempotency_error" if self.error.type == "idempotency_error" else None


class Gateway:
    """Charges, looks up, cancels and refunds.

    `http` is anything with `HttpSession.request`; `chain` guards every call. All deadlines are honoured, all
    writes carry an idempotency key and are therefore repeatable.
    """

    def __init__(self, http: HttpSession, chain: Chain) -> None:
        self._http = http
        self.chain = chain

    def charge(self, charge: Charge, deadline: Deadline) -> ChargeOutcome:
        """Create and confirm in one request. Repeat it with an equal `Charge` as often as needed.

        A `NotSent` speaks about this call only: after an earlier `Unknown` the payment stays unknown.
        """
        try:
            form = _charge_form(charge)
        except NotChargeable:
            return Refused("amount_not_chargeable")
        request = _Request(
            "POST", _INTENTS, _exactly(charge), form=form, idempotency_key=charge.idempotency_key
        )
        answer = self._send(request, deadline)
        return _refused_charge(answer, charge) if isinstance(answer, _Rejection) else answer

    def look_up(
        self, reference: str | None, intent: str | None, charge: Charge, deadline: Deadline
    ) -> LookupOutcome:
        """Ask what became of `charge`: by intent id if known, else by a search for the order reference.

        The search lags behind by a minute or more at the real gateway, so after `NotFound` the charge may be
        made again only under the same idempotency key.
        """
        if intent is not None:
            found = self._retrieve(intent, charge, deadline)
            if found != Unknown("mismatch") or reference is None:
                return found
            # The id is of somebody else's payment: only the reference tells of ours.
        if reference is None:
            raise ValueError("look_up needs a reference or an intent")
        quoted = reference.replace("\\", "\\\\").replace("'", "\\'")
        query = {
            "query": f"metadata['order_reference']:'{quoted}'",
            "limit": "100",
            "expand[]": "data.latest_charge",
        }
        request = _Request("GET", f"{_INTENTS}/search", wire.read_intents, query=query)
        answer = self._send(request, deadline)
        if isinstance(answer, _Rejection):
            return Unknown(answer.error.code)
        return answer if isinstance(answer, (NotSent, Unknown)) else wire.judge_all(answer, charge)

    def cancel(self, intent: str, idempotency_key: str, deadline: Deadline) -> CancelOutcome:
        """Make sure the intent takes no money any more, or learn how much it has taken."""
        request = _Request(
            "POST", f"{_path(intent)}/cancel", wire.read_intent, form={}, idempotency_key=idempotency_key
        )
        answer = self._send(request, deadline)
        if isinstance(answer, _Rejection):
            if answer.unsettled:
                return Unknown(answer.unsettled, intent)
            # Some state forbids it. What the refusal says of it may be a replay of long ago, so ask anew.
            answer = self._send(_Request("GET", _path(intent), wire.read_intent), deadline)
        return _cancelled(answer, intent)

    def refund(
        self, intent: str, amount_minor: int, idempotency_key: str, deadline: Deadline, *, currency: str
    ) -> RefundOutcome:
        """Give back `amount_minor` (ISO minor units). Money already given back counts as done."""
        try:
            form = {"payment_intent": intent, "amount": str(to_wire(amount_minor, currency))}
        except NotChargeable:
            return RefundRefused("amount_not_chargeable")
        request = _Request(
            "POST", "/v1/refunds", wire.read_refund, form=form, idempotency_key=idempotency_key
        )
        answer = self._send(request, deadline)
        if isinstance(answer, _Rejection):
            if answer.unsettled:
                return Unknown(answer.unsettled, intent)
            already = answer.error.code == "charge_already_refunded"
            return Refunded("") if already else RefundRefused(answer.error.code)
        if isinstance(answer, (NotSent, Unknown)):
            return answer
        return _refunded(answer, intent, amount_minor)

    def ping(self, deadline: Deadline) -> bool:
        """Whether the gateway answers an authenticated, read-only call in time."""
        answer = self._send(_Request("GET", "/v1/balance", wire.read_object), deadline)
        return answer is None

    def _retrieve(self, intent: str, charge: Charge, deadline: Deadline) -> LookupOutcome:
        request = _Request("GET", _path(intent), wire.read_intent, query={"expand[]": "latest_charge"})
        answer = self._send(request, deadline)
        if isinstance(answer, _Rejection):
            missing = answer.status == 404 or answer.error.code == "resource_missing"
            return NotFound() if missing else Unknown(answer.error.code, intent)
        if isinstance(answer, (NotSent, Unknown)):
            return answer
        return wire.judge(answer, charge) if answer.id == intent else Unknown("mismatch", intent)

    def _send(self, request: _Request[T], deadline: Deadline) -> T | _Rejection | NotSent | Unknown:
        """Run one request through the chain and say of a failure only what is certain.

        The chain reports its last attempt. "Not sent" is only true if no earlier attempt of this call may
        have arrived, so those are remembered here.
        """
        attempt = _Attempt(self._http, request)
        try:
            return self.chain.call(attempt, deadline=deadline, repeatable=True)
        except errors.NotSent as error:
            return attempt.untouched(error.reason, error.retry_after)
        except errors.ClientError as error:
            if error.status in _NO_ACCESS:
                return attempt.untouched("credentials", error.retry_after)
            return attempt.rejected(_Rejection(error.status, wire.read_error(error.body)))
        except errors.ServerError as error:
            if error.status == 429:
                return attempt.untouched("rate_limited", error.retry_after)
            # The gateway keeps errors under the key too: repeating a replayed one brings nothing new.
            replayed = error.headers.get("idempotent-replayed") == "true"
            return Unknown("stored_error" if replayed else "server_error", retry_after=error.retry_after)
        except errors.BadAnswer as error:
            return Unknown(attempt.complaint or "bad_answer", attempt.intent, error.retry_after)
        except errors.OutcomeUnknown as error:
            return Unknown(f"lost_in_{error.phase}", retry_after=error.retry_after)


class _Attempt(Generic[T]):
    """One request, made as often as the chain decides; remembers whether any try may have arrived."""

    def __init__(self, http: HttpSession, request: _Request[T]) -> None:
        self._http = http
        self._request = request
        self.uncertain = False
        self.complaint: str | None = None
        self.intent: str | None = None

    def __call__(self, deadline: Deadline) -> T:
        request = self._request
        try:
            response = self._http.request(
                request.method,
                request.path,
                deadline=deadline,
                form=request.form,
                query=request.query,
                idempotency_key=request.idempotency_key,
            )
            return request.read(response.body)
        except _Mismatch as error:
            self.uncertain = True
            self.complaint, self.intent = error.outcome.reason, error.outcome.intent
            raise errors.BadAnswer("the answer is about another payment", status=200) from None
        except wire.Malformed as error:
            self.uncertain = True
            raise errors.BadAnswer(str(error), status=200) from None
        except errors.ClientError as error:
            self._check_readable(error)
            raise
        except errors.ServerError as error:
            self.uncertain = self.uncertain or error.status != 429
            raise
        except errors.OutcomeUnknown:
            self.uncertain = True
            raise

    def untouched(self, reason: str, retry_after: float | None) -> NotSent | Unknown:
        """The last try changed nothing: say so, unless an earlier one of this call may have."""
        if self.uncertain:
            return Unknown(reason, retry_after=retry_after)
        return NotSent(reason, retry_after)

    def rejected(self, rejection: _Rejection) -> _Rejection | Unknown:
        """The last try was turned down. Only a decline also tells what became of an earlier one."""
        if self.uncertain and rejection.status != 402:
            return Unknown(rejection.unsettled or rejection.error.code)
        return rejection

    def _check_readable(self, error: errors.ClientError) -> None:
        """A 4xx that is not in the gateway's form came from something else, which is a failure."""
        if error.status in _NO_ACCESS:
            return
        try:
            wire.read_error(error.body)
        except wire.Malformed as reason:
            self.uncertain = True
            raise errors.BadAnswer(str(reason), status=error.status) from None


class _Mismatch(Exception):
    """An answer about another payment: garbage, and the breaker must see it."""

    def __init__(self, outcome: Unknown) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


def _exactly(charge: Charge) -> Callable[[Any], ChargeOutcome]:
    def read(body: Any) -> ChargeOutcome:
        outcome = wire.judge(wire.read_intent(body), charge)
        if isinstance(outcome, Unknown) and outcome.reason == "mismatch":
            raise _Mismatch(outcome)
        return outcome

    return read


def _path(intent: str) -> str:
    if not wire.is_id(intent):
        raise ValueError("not the id of an intent")
    return f"{_INTENTS}/{intent}"


def _charge_form(charge: Charge) -> dict[str, str]:
    form = {
        "amount": str(to_wire(charge.amount_minor, charge.currency)),
        "currency": charge.currency.lower(),
        "payment_method": charge.method,
        "payment_method_types[]": "card",
        "confirm": "true",
        "metadata[order_reference]": charge.reference,
    }
    if charge.return_url is not None:
        form["return_url"] = charge.return_url
    return form


def _refused_charge(rejection: _Rejection, charge: Charge) -> ChargeOutcome:
    error, embedded = rejection.error, rejection.error.intent
    intent = embedded.id if embedded and embedded.reference == charge.reference else None
    if rejection.unsettled:
        return Unknown(rejection.unsettled, intent)
    if rejection.status != 402:
        return Refused(error.code)
    if embedded is not None and not isinstance(wire.judge(embedded, charge), Declined):
        return Unknown("mismatch", intent)  # a decline that speaks of a payment which is not declined
    if error.type != "card_error":
        return Unknown(error.code, intent)
    return Declined(error.decline_code or "generic_decline", intent)


def _cancelled(answer: Intent | _Rejection | NotSent | Unknown, intent: str) -> CancelOutcome:
    if isinstance(answer, (NotSent, Unknown)):
        return answer
    if isinstance(answer, _Rejection):
        return Unknown(answer.error.code, intent)
    if answer.id != intent:
        return Unknown("mismatch", intent)
    if answer.status == "succeeded":
        return AlreadyCaptured(answer.id, answer.amount_minor, answer.currency)
    return Cancelled(answer.id) if answer.status == "canceled" else Unknown(answer.status, answer.id)


def _refunded(refund: wire.WireRefund, intent: str, amount_minor: int) -> RefundOutcome:
    if (refund.intent, refund.amount_minor) != (intent, amount_minor):
        return Unknown("mismatch", intent)
    if refund.status in ("succeeded", "pending"):
        return Refunded(refund.id)
    if refund.status in ("failed", "canceled"):
        return RefundRefused(refund.failure or refund.status)
    return Unknown(refund.status, intent)
