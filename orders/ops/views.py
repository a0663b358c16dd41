"""The operations room's pages. Reading by GET; every step by POST, with confirmation, reason and version."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRedirect

from orders import outbox
from orders.operations import duty as steps
from orders.ops import charts, room
from orders.ops.forms import ModeForm, StepForm
from payments import mode
from payments.duty import MissingReasonError
from payments.states import IllegalTransitionError

PERMISSION = "payments.operate"
PARTS = ("mode", "figures", "board", "reserves", "letters", "checks", "audit")

View = Callable[..., HttpResponse]


def for_duty(view: View) -> View:
    """Only for staff with the right; never kept by a cache."""

    @never_cache
    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            if "HX-Request" in request.headers:
                # The page, not a part of it, goes to the log-in: it must not go on showing what is no longer so.
                return HttpResponseClientRedirect(f"{reverse('login')}?next={reverse('ops')}")
            return redirect_to_login(request.get_full_path())
        if not (request.user.is_staff and request.user.has_perm(PERMISSION)):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return guarded


@require_safe
@for_duty
def ops(request: HttpRequest) -> HttpResponse:
    """The room; for its own script only the parts that differ from those `seen`."""
    found = room.read()
    parts = {
        name: render_to_string(f"ops/_{name}.html", {"room": found, "soon": room.SOON}, request)
        for name in PARTS
    }
    digests = {name: hashlib.sha256(html.encode()).hexdigest()[:12] for name, html in parts.items()}
    context: dict[str, Any] = {
        "room": found,
        "parts": parts,
        "seen": ".".join(digests[name] for name in PARTS),
    }
    if "HX-Request" not in request.headers:
        return render(request, "ops/room.html", context | _pictures())
    known = set(request.GET.get("seen", "").split("."))
    context["parts"] = {name: html for name, html in parts.items() if digests[name] not in known}
    return render(request, "ops/_changed.html", context)


@require_safe
@for_duty
def pictures(request: HttpRequest) -> HttpResponse:
    """The two charts alone, for the page's script."""
    return render(request, "ops/_charts.html", _pictures())


def _pictures() -> dict[str, Any]:
    return {
        "waiting": charts.waiting_charges(),
        "outcomes": charts.checkout_outcomes(),
        "width": charts.WIDTH,
        "height": charts.HEIGHT,
    }


@dataclass(frozen=True)
class Page:
    """What a confirmation page says before the step is taken."""

    title: str
    text: str
    button: str


def _step(
    request: HttpRequest, form: StepForm, page: Page, act: Callable[[Mapping[str, Any], str], str]
) -> HttpResponse:
    """Shows the form, or takes the step and goes back to the room with what `act` says."""

    def ask(status: int, alert: str = "") -> HttpResponse:
        return render(request, "ops/step.html", {"form": form, "page": page, "alert": alert}, status=status)

    if request.method != "POST":
        return ask(200)
    if not form.is_valid():
        return ask(422)
    try:
        done = act(form.cleaned_data, request.user.get_username())
    except (mode.StaleModeError, steps.StaleFormError):
        return ask(409, _("Somebody or something changed this meanwhile. Nothing was changed by you."))
    except IllegalTransitionError:
        return ask(409, _("This order can no longer be cancelled."))
    except steps.NotDiscardableError:
        return ask(409, _("Money or a waiting order hangs on this message: it cannot be discarded."))
    except (mode.ModeInputError, MissingReasonError) as error:
        return ask(422, str(error))
    messages.success(request, done)
    return redirect("ops")


def _form(request: HttpRequest, kind: type[StepForm], **initial: Any) -> StepForm:
    return kind(request.POST) if request.method == "POST" else kind(initial=initial)


@require_http_methods(["GET", "POST"])
@for_duty
def switch(request: HttpRequest) -> HttpResponse:
    now = mode.current()
    form = _form(request, ModeForm, seen=now.version, setting=request.GET.get("setting", now.setting))
    assert isinstance(form, ModeForm)

    def act(data: Mapping[str, Any], actor: str) -> str:
        changed = mode.change(
            data["setting"],
            actor=actor,
            reason=data["reason"],
            for_seconds=form.seconds,
            expected_version=_version(data["seen"]),
        )
        return _("The setting is %(setting)s now, orders are taken as %(effective)s.") % {
            "setting": changed.setting.upper(),
            "effective": changed.effective,
        }

    page = Page(
        _("Change how orders are taken"),
        _(
            "Now: %(setting)s, effective %(effective)s. Your choice holds for all processes at once. While it is ON, "
            "no waiting charge begins: an order whose goods are no longer reserved before it ends is cancelled, "
            "%(minutes)s minutes after it was accepted."
        )
        % {
            "setting": now.setting.upper(),
            "effective": now.effective,
            "minutes": settings.HOLDFAST.degraded_reserve_seconds // 60,
        },
        _("Change it"),
    )
    return _step(request, form, page, act)


def _version(seen: str) -> int:
    return int(seen) if seen.isascii() and seen.isdigit() else -1


@require_http_methods(["GET", "POST"])
@for_duty
def replay(request: HttpRequest, wish: str) -> HttpResponse:
    """Pause or resume."""
    paused = wish == "pause"
    form = _form(request, StepForm, seen=mode.current().version)

    def act(data: Mapping[str, Any], actor: str) -> str:
        mode.pause_replay(
            paused=paused, actor=actor, reason=data["reason"], expected_version=_version(data["seen"])
        )
        return _("The replay is paused.") if paused else _("The replay goes on.")

    if paused:
        text = _(
            "Workers will make none of the charges that wait. Reserves run out all the same, and orders whose "
            "reserve ends are cancelled."
        )
        page = Page(_("Pause the replay"), text, _("Pause"))
    else:
        page = Page(
            _("Resume the replay"),
            _("Workers go on with the charges that wait, slowly at first."),
            _("Resume"),
        )
    return _step(request, form, page, act)


@require_safe
@for_duty
def find(request: HttpRequest) -> HttpResponse:
    """From a typed number to the order's page here."""
    number = request.GET.get("number", "").strip().upper()
    if room.candidate(number) is None:
        messages.error(request, _("There is no order with this number."))
        return redirect("ops")
    return redirect("ops-cancel", number)


@require_http_methods(["GET", "POST"])
@for_duty
def cancel(request: HttpRequest, number: str) -> HttpResponse:
    order = room.candidate(number)
    if order is None:
        raise Http404("no such order")
    form = _form(request, StepForm, seen=order.seen)

    def act(data: Mapping[str, Any], actor: str) -> str:
        steps.cancel_order(number, data["seen"], actor=actor, reason=data["reason"])
        return _("Order %(number)s is cancelled.") % {"number": number}

    page = Page(
        _("Cancel order %(number)s") % {"number": number},
        _(
            "The goods are freed, the shopper is told, nothing will be charged; money that turns out to have been "
            "taken goes back by itself. The order is %(status)s now."
        )
        % {"status": order.status},
        _("Cancel the order"),
    )
    if request.method != "POST" and not order.can_cancel:
        messages.error(request, _("This order can no longer be cancelled."))
        return redirect("ops")
    return _step(request, form, page, act)


@require_http_methods(["GET", "POST"])
@for_duty
def letter(request: HttpRequest, digits: str, wish: str) -> HttpResponse:
    """Redrive or discard one dead letter."""
    message_id = int(digits)
    found = room.letter(message_id)
    if found is None and request.method != "POST":
        messages.error(request, _("This is no longer a dead letter."))
        return redirect("ops")
    form = _form(request, StepForm, seen=steps.letter_version(found) if found else "")
    step = {"redrive": steps.redrive_letter, "discard": steps.discard_letter}[wish]

    def act(data: Mapping[str, Any], actor: str) -> str:
        step(message_id, data["seen"], actor=actor, reason=data["reason"])
        return _("Done. It is on record.")

    about = _("Message %(id)s (%(kind)s, order %(order)s) died after %(tries)s tries: %(why)s") % {
        "id": message_id,
        "kind": found.kind if found else "-",
        "order": (found.order if found else None) or "-",
        "tries": found.attempts if found else "-",
        "why": found.reason if found else "-",
    }
    if wish == "redrive":
        page = Page(_("Redrive a dead letter"), about, _("Redrive"))
    else:
        page = Page(_("Discard a dead letter"), about, _("Discard"))
    return _step(request, form, page, act)


@require_http_methods(["GET", "POST"])
@for_duty
def close_check(request: HttpRequest, digits: str) -> HttpResponse:
    """The end of a case about money: what was found becomes its note."""
    check = room.money_check(int(digits))
    if check is None and request.method != "POST":
        messages.error(request, _("This case is closed."))
        return redirect("ops")

    def act(data: Mapping[str, Any], actor: str) -> str:
        steps.close_money_check(int(digits), actor=actor, reason=data["reason"])
        return _("Done. It is on record.")

    text = _("%(subject)s: %(why)s. Close it once you have looked it up at the payment service.") % {
        "subject": check.subject if check else "",
        "why": check.reason if check else "",
    }
    page = Page(_("Close a money check"), text, _("Close it"))
    return _step(request, _form(request, StepForm), page, act)


@require_http_methods(["GET", "POST"])
@for_duty
def redrive_all(request: HttpRequest) -> HttpResponse:
    letters = outbox.dead_letters()
    form = _form(request, StepForm, seen=steps.letters_version(letters))
    rate = settings.HOLDFAST.replay_rate

    def act(data: Mapping[str, Any], actor: str) -> str:
        count = steps.redrive_all(data["seen"], rate=rate, actor=actor, reason=data["reason"])
        return ngettext("%(n)s message is redriven.", "%(n)s messages are redriven.", count) % {"n": count}

    text = ngettext(
        "%(n)s dead letter comes back with fresh tries.",
        "%(n)s dead letters come back with fresh tries, %(rate)s a second.",
        len(letters),
    ) % {"n": len(letters), "rate": f"{rate:g}"}
    return _step(request, form, Page(_("Redrive all dead letters"), text, _("Redrive all")), act)
