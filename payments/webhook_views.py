"""The address to which the gateway sends its events."""

from __future__ import annotations

import logging
import time

from django.conf import settings
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from payments import incoming
from payments.webhooks import BadSignature, verify_webhook

logger = logging.getLogger(__name__)


@csrf_exempt
@require_POST
def webhook(request: HttpRequest) -> HttpResponse:
    """200 for every genuine event, known or not, first or repeated: the gateway need not come again."""
    signature = request.headers.get("Stripe-Signature", "")
    try:
        event = verify_webhook(request.body, signature, settings.PAYMENT_WEBHOOK_SECRET, time.time())
    except BadSignature as error:
        logger.warning("webhook refused", extra={"reason": str(error)})
        return HttpResponse(status=400)
    try:
        fresh = incoming.receive(event)
    except IntegrityError:  # the same event, at the same moment
        fresh = False
    logger.info("webhook", extra={"event": event.id, "kind": event.type, "fresh": fresh})
    return HttpResponse(status=200)
