"""The demo's own page: break and heal the neighbours, and watch the books beside the shop. Never in production."""

from __future__ import annotations

import email
import email.policy
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from orders import queries
from orders.demo import neighbours as levers
from orders.demo.neighbours import Booked
from orders.queries import OrderOutcome
from orders.wording import Situation
from payments.minor_units import to_wire

_STEPS = 5
_SHOWN = 8
_SHOWN_MAILS = 3
_DEARER_BY = 100


@require_safe
@never_cache
def page(request: HttpRequest) -> HttpResponse:
    step = _step(request.GET.get("step", ""))
    orders = queries.newest_orders(_SHOWN)
    booked = levers.books()
    context = {
        "step": step,
        "steps": range(1, _STEPS + 1),
        "before": step - 1,
        "after": step + 1 if step < _STEPS else None,
        "neighbours": levers.neighbours(),
        "outcomes": orders,
        "booked": None if booked is None else booked[:_SHOWN],
        "verdict": None if booked is None else compare(orders, booked),
        "mails": newest_mails(Path(settings.EMAIL_FILE_PATH)),
    }
    return render(request, "demo/page.html", context)


@require_POST
def break_one(request: HttpRequest) -> HttpResponse:
    key, trouble = request.POST.get("neighbour", ""), request.POST.get("trouble", "")
    if trouble not in levers.TROUBLES.get(key, {}) or not levers.break_with(key, trouble):
        messages.error(request, _("The neighbour could not be told. Is it running?"))
    return _back(request)


@require_POST
def heal_one(request: HttpRequest) -> HttpResponse:
    if not levers.heal(request.POST.get("neighbour", "")):
        messages.error(request, _("The neighbour could not be told. Is it running?"))
    return _back(request)


@require_POST
def dearer(request: HttpRequest) -> HttpResponse:
    """The first product of the catalog costs a little more than the shop has shown."""
    first = queries.first_price()
    if first is None or not levers.change_price(first.sku, first.price_minor + _DEARER_BY):
        messages.error(request, _("The neighbour could not be told. Is it running?"))
    return _back(request)


def _back(request: HttpRequest) -> HttpResponse:
    return redirect(f"{reverse('demo')}?step={_step(request.POST.get('step', ''))}")


def _step(text: str) -> int:
    return (
        min(_STEPS, int(text)) if text.isascii() and text.isdigit() and 0 < len(text) < 3 and int(text) else 1
    )


@dataclass(frozen=True)
class Verdict:
    """The shop's newest orders held against the gateway's books."""

    paid: int
    asking: int
    unpaid: int
    wrong: tuple[str, ...]


def compare(orders: list[OrderOutcome], booked: list[Booked]) -> Verdict:
    """A paid order has exactly one charge over its amount that was not returned; no other order has any."""
    kept = Counter(charge.reference for charge in booked if charge.refunded < charge.amount)
    taken = {charge.reference: (charge.amount, charge.currency) for charge in booked}
    wrong = []
    for order in orders:
        paid = order.situation is Situation.PAID
        amount = (to_wire(order.total.minor, order.total.currency), order.total.currency)
        fine = kept[order.number] == 1 and taken[order.number] == amount if paid else not kept[order.number]
        # Where the shop is still finding out, money may have been taken already.
        if not fine and order.situation is not Situation.CONFIRMING:
            wrong.append(order.number)
    paid_for = sum(order.situation is Situation.PAID for order in orders)
    asking = sum(order.situation is Situation.CONFIRMING for order in orders)
    return Verdict(paid_for, asking, len(orders) - paid_for - asking, tuple(wrong))


@dataclass(frozen=True)
class MailView:
    """`key` tells it from other mails."""

    key: str
    subject: str
    to: str
    text: str


def newest_mails(folder: Path) -> list[MailView]:
    """The mails that the demo wrote into files, as a mailbox would show them."""
    try:
        # A mail that could not be written leaves an empty file.
        written = [file for file in folder.glob("*.log") if file.stat().st_size]
        files = sorted(written, key=lambda file: file.stat().st_mtime, reverse=True)
        return [_mail(file.stem, file.read_bytes()) for file in files[:_SHOWN_MAILS]]
    except OSError:
        return []


def _mail(key: str, data: bytes) -> MailView:
    said: Any = email.message_from_bytes(data, policy=email.policy.default)
    body = said.get_body(preferencelist=("plain",))
    # The file ends with a line of dashes that belongs to no part.
    return MailView(key, str(said["Subject"]), str(said["To"]), body.get_content() if body else "")
