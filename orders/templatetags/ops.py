"""How the operations room writes ages, rates and states."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from resilience.breaker import State

register = template.Library()

_STATES: dict[State, str | Promise] = {
    State.CLOSED: gettext_lazy("closed: calls pass"),
    State.OPEN: gettext_lazy("open: no call passes"),
    State.HALF_OPEN: gettext_lazy("half open: a few calls probe"),
    State.FORCED_OPEN: gettext_lazy("opened by hand"),
    State.DISABLED: gettext_lazy("disabled by hand"),
    State.METRICS_ONLY: gettext_lazy("measuring only"),
}


@register.filter
def breaker_words(state: State) -> str:
    """A breaker's state in words: colour alone says nothing to many."""
    return str(_STATES[state])


@register.filter
def duration(seconds: float | None) -> str:
    """So many seconds, as two units at most."""
    if seconds is None:
        return "–"
    total = round(seconds)
    hours, minutes = total // 3600, total % 3600 // 60
    if hours:
        return _("%(h)s\u00a0h %(m)s\u00a0min") % {"h": hours, "m": minutes}
    if minutes:
        return _("%(m)s\u00a0min %(s)s\u00a0s") % {"m": minutes, "s": total % 60}
    return _("%(s)s\u00a0s") % {"s": total}


@register.filter
def percent(rate: float | None) -> str:
    """A rate in percent; below the minimum of calls there is none."""
    return "–" if rate is None else f"{rate:.0f} %"


@register.filter
def clock(value: datetime | None) -> str:
    """A time of these days to the second. UTC, as the page says once."""
    return f"{value:%d.%m. %H:%M:%S}" if value else "–"
