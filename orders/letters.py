"""Mails as text and HTML with the same words, and the way out for those that no order depends on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string

logger = logging.getLogger(__name__)

_MOST_WAITING: Final = 50
_room = threading.BoundedSemaphore(_MOST_WAITING)
# One thread, so that a dead mail server holds up one thread and no page.
_sender = ThreadPoolExecutor(max_workers=1, thread_name_prefix="letters")


def letter(
    name: str, subject: str, to: str, context: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> EmailMultiAlternatives:
    """The mail of `emails/<name>.txt` and `.html`, in the language that is active."""
    known = {**context, "subject": subject, "site": settings.SITE_URL}
    mail = EmailMultiAlternatives(
        subject=subject,
        body=render_to_string(f"emails/{name}.txt", known).strip() + "\n",
        to=[to],
        headers=dict(headers or {}),
    )
    mail.attach_alternative(render_to_string(f"emails/{name}.html", known), "text/html")
    return mail


def post(mail: EmailMultiAlternatives) -> None:
    """Sends a mail beside the request: at most once, soon or not at all. Thread-safe.

    For links that a person can ask for again. What an order promises goes through the outbox instead.
    """
    if not _room.acquire(blocking=False):
        logger.error("too many mails wait; one is dropped")
        return
    _sender.submit(mail.send).add_done_callback(_done)


def wait_until_sent() -> None:
    """Returns when everything posted so far has been tried."""
    _sender.submit(lambda: None).result()


def _done(sending: Future[int]) -> None:
    _room.release()
    if error := sending.exception():
        logger.error("a mail could not be sent", extra={"error": type(error).__name__})
