"""Degraded mode: what the person on duty set, and what follows from it.

Setting AUTO | ON | OFF, effective NORMAL | DEGRADED | RECOVERING. Kept in PostgreSQL and read per
checkout, so that all processes agree. Manual beats automatic until released or run out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from payments import dbtime
from payments.models import EffectiveMode, ModeChange, ModeSetting, ModeState

logger = logging.getLogger(__name__)


class StaleModeError(Exception):
    """Somebody else changed the mode since the form was shown. Nothing was changed."""


class ModeInputError(ValueError):
    """The wished change makes no sense; the text says why. Nothing was changed."""


@dataclass(frozen=True)
class Mode:
    """The mode as it stands now. `version` guards against stale forms."""

    setting: str
    effective: str
    since: datetime | None
    until: datetime | None
    reason: str
    actor: str
    version: int

    @property
    def degraded(self) -> bool:
        """Whether checkouts skip the payment call."""
        return self.effective == EffectiveMode.DEGRADED

    @property
    def manual(self) -> bool:
        """Whether a person decides."""
        return self.setting != ModeSetting.AUTO


def effective(setting: str, automatic: str, until: datetime | None, now: datetime) -> tuple[str, str]:
    """The pure rule: (setting in force, effective mode). A manual setting that ran out is AUTO."""
    if setting != ModeSetting.AUTO and until is not None and until <= now:
        setting = ModeSetting.AUTO
    if setting == ModeSetting.ON:
        return setting, EffectiveMode.DEGRADED
    if setting == ModeSetting.OFF:
        return setting, EffectiveMode.NORMAL
    return setting, automatic


def current() -> Mode:
    """One query. Without a row yet, everything is automatic and normal."""
    state = ModeState.objects.annotate(db_now=dbtime.Now()).first()
    if state is None:
        return Mode(ModeSetting.AUTO, EffectiveMode.NORMAL, None, None, "", "", 0)
    setting, now_effective = effective(state.setting, state.automatic, state.until, state.db_now)
    ran_out = setting != state.setting
    return Mode(
        setting=setting,
        effective=now_effective,
        since=state.until if ran_out else state.since,
        until=None if ran_out else state.until,
        reason="the manual setting ran out" if ran_out else state.reason,
        actor=state.actor,
        version=state.version,
    )


def change(
    setting: str,
    *,
    actor: str,
    reason: str,
    for_seconds: int | None = None,
    expected_version: int | None = None,
) -> Mode:
    """Sets AUTO, ON or OFF and writes the audit record in the same transaction.

    Raises ModeInputError for a missing reason or a senseless time, StaleModeError when
    `expected_version` is no longer the current one.
    """
    if setting not in ModeSetting.values:
        raise ModeInputError(f"mode must be auto, on or off, got {setting!r}")
    if setting != ModeSetting.AUTO and not reason.strip():
        raise ModeInputError("a reason is needed to switch the mode by hand")
    if for_seconds is not None and (setting == ModeSetting.AUTO or not 1 <= for_seconds <= 604_800):
        raise ModeInputError("a time limit goes with on or off and is 1 to 604800 seconds")
    with transaction.atomic():
        now = dbtime.read()
        ModeState.objects.bulk_create([ModeState(id=1, since=now)], ignore_conflicts=True)
        state = ModeState.objects.select_for_update().get(id=1)
        if expected_version is not None and expected_version != state.version:
            raise StaleModeError(f"the mode was changed meanwhile by {state.actor or 'somebody'}")
        old_setting, old_effective = effective(state.setting, state.automatic, state.until, now)
        state.setting, state.reason, state.actor, state.since = setting, reason.strip()[:500], actor, now
        state.until = now + timedelta(seconds=for_seconds) if for_seconds else None
        state.version += 1
        state.save()
        new_effective = effective(setting, state.automatic, state.until, now)[1]
        ModeChange.objects.create(
            at=now,
            actor=actor,
            old_setting=old_setting,
            new_setting=setting,
            old_effective=old_effective,
            new_effective=new_effective,
            until=state.until,
            reason=state.reason,
        )
    logger.warning("mode changed", extra={"actor": actor, "setting": setting, "effective": new_effective})
    return current()
