"""Forgetting what is done. Dead letters, waiting messages and the timeline stay."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings

from orders.models import OutboxMessage
from payments import dbtime, incoming

BATCH = 1000
"""Rows deleted in one go, so that no transaction grows long and no vacuum is overrun."""
EVENTS_KEPT = timedelta(days=30)
"""The gateway repeats an event for three days at most."""


def purge(batches: int = 10) -> int:
    """Deletes delivered and withdrawn messages that are old enough, oldest first; returns how many.

    A message that comes again after that is a new one. Safe: by then what it would do is recorded
    in the payment and the order, where every handler looks first.
    """
    before = dbtime.read() - timedelta(seconds=settings.HOLDFAST.outbox_keep_seconds)
    old = OutboxMessage.objects.filter(status__in=["DONE", "CANCELLED"], finished_at__lt=before)
    gone = 0
    for _ in range(batches):
        ids = list(old.order_by("pk").values_list("pk", flat=True)[:BATCH])
        # Asked again in the statement itself: one of them may have come back to life.
        gone += old.filter(pk__in=ids).delete()[0]
        if len(ids) < BATCH:
            break
    incoming.purge(EVENTS_KEPT)
    return gone
