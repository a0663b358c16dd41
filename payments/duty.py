"""The audit of what staff did: written with the deed, read newest first, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from payments import dbtime
from payments.models import ModeChange, StaffAction


class MissingReasonError(ValueError):
    """A risky step needs a reason. Nothing was changed."""


def record(*, actor: str, action: str, subject: str, reason: str, before: str = "", after: str = "") -> None:
    """Adds a line to the caller's transaction. Raises MissingReasonError."""
    if not reason.strip():
        raise MissingReasonError("please say why")
    StaffAction.objects.create(
        at=dbtime.read(),
        actor=actor[:150],
        action=action[:40],
        subject=subject[:100],
        before=before[:100],
        after=after[:100],
        reason=reason.strip()[:500],
    )


@dataclass(frozen=True)
class AuditLine:
    """One change: who, when, what, from, to, why."""

    at: datetime
    actor: str
    action: str
    subject: str
    before: str
    after: str
    reason: str


def recent(limit: int = 20) -> list[AuditLine]:
    """The newest changes of the mode and deeds of staff, in one list."""
    changes = [
        AuditLine(
            row.at,
            row.actor,
            "mode",
            "",
            f"{row.old_setting}/{row.old_effective}",
            f"{row.new_setting}/{row.new_effective}",
            row.reason,
        )
        for row in ModeChange.objects.order_by("-id")[:limit]
    ]
    deeds = [
        AuditLine(row.at, row.actor, row.action, row.subject, row.before, row.after, row.reason)
        for row in StaffAction.objects.order_by("-id")[:limit]
    ]
    return sorted([*changes, *deeds], key=lambda line: line.at, reverse=True)[:limit]
