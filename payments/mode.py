"""Degraded mode: what the person on duty set, what the breakers say, and what follows from both.

Setting AUTO | ON | OFF, effective NORMAL | DEGRADED | RECOVERING. Kept in PostgreSQL and read per
checkout, so that all processes agree. Manual beats automatic until released or run out; meanwhile
the controller goes on deciding, so that a release finds the right mode.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from payments import controller, dbtime, duty, replicas, throttle
from payments.controller import ControlPolicy, Seen, Step
from payments.models import ModeChange, ModeState, Payment
from payments.states import EffectiveMode, ModeSetting, PaymentStatus

logger = logging.getLogger(__name__)

BREAKER, CLOCK = "breaker", "clock"
"""Who changes the mode, when it is no person."""
_RAN_OUT = "the manual setting ran out"


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
    automatic: str = EffectiveMode.NORMAL
    replay_paused: bool = False

    @property
    def degraded(self) -> bool:
        """Whether checkouts skip the payment call."""
        return self.effective == EffectiveMode.DEGRADED

    @property
    def manual(self) -> bool:
        """Whether a person decides."""
        return self.setting != ModeSetting.AUTO

    @property
    def held(self) -> bool:
        """Whether workers begin no charge because a person wants it so; see `outbox.claim`."""
        return self.replay_paused or (self.manual and self.degraded)

    @property
    def overruled(self) -> bool:
        """Whether the breakers would have it otherwise."""
        return self.manual and self.effective != self.automatic


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
    return _mode_of(state, state.db_now)


def _mode_of(state: ModeState, now: datetime) -> Mode:
    setting, now_effective = effective(state.setting, state.automatic, state.until, now)
    since, reason, actor = state.since, state.reason, state.actor
    if setting != state.setting:
        since, reason, actor = state.until or now, _RAN_OUT, CLOCK
    if setting == ModeSetting.AUTO and state.automatic_since and state.automatic_since > since:
        since, reason, actor = state.automatic_since, state.automatic_reason, BREAKER
    return Mode(
        setting=setting,
        effective=now_effective,
        since=since,
        until=state.until if setting == state.setting else None,
        reason=reason,
        actor=actor,
        version=state.version,
        automatic=state.automatic,
        replay_paused=state.replay_paused,
    )


def _locked(now: datetime, expected_version: int | None) -> ModeState:
    """The one row, locked until the end of the transaction, with a setting that ran out put aside."""
    ModeState.objects.bulk_create([ModeState(id=1, since=now, version=0)], ignore_conflicts=True)
    state = ModeState.objects.select_for_update().get(id=1)
    if expected_version is not None and expected_version != state.version:
        raise StaleModeError(f"the mode was changed meanwhile by {_mode_of(state, now).actor or 'somebody'}")
    if state.until is not None and state.until <= now:
        _set(state, ModeSetting.AUTO, None, CLOCK, _RAN_OUT, state.until)
    return state


def _set(
    state: ModeState, setting: str, until: datetime | None, actor: str, reason: str, now: datetime
) -> None:
    """Writes a setting down, with its audit record. The row is locked by the caller."""
    old_setting, old_effective = state.setting, effective(state.setting, state.automatic, None, now)[1]
    released = old_setting == ModeSetting.ON and setting != ModeSetting.ON
    if released and state.automatic == EffectiveMode.NORMAL and _orders_wait():
        # What piled up under a manual ON is worked off as after an outage: slowly, and visibly.
        state.automatic, state.automatic_since = EffectiveMode.RECOVERING, now
        state.automatic_reason = reason
        throttle.restart(throttle.REPLAY)
    state.setting, state.reason, state.actor, state.since = setting, reason, actor, now
    state.until = until
    state.version += 1
    state.save()
    _audit(state, actor, reason, now, old_setting, old_effective)


def _orders_wait() -> bool:
    return Payment.objects.filter(status=PaymentStatus.NEW).exists()


def _audit(
    state: ModeState, actor: str, reason: str, now: datetime, old_setting: str, old_effective: str
) -> None:
    new_effective = effective(state.setting, state.automatic, state.until, now)[1]
    ModeChange.objects.create(
        at=now,
        actor=actor,
        old_setting=old_setting,
        new_setting=state.setting,
        old_effective=old_effective,
        new_effective=new_effective,
        until=state.until,
        reason=reason,
    )
    logger.warning(
        "mode changed",
        extra={"actor": actor, "setting": state.setting, "effective": new_effective, "reason": reason},
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
    if setting not in list(ModeSetting):
        raise ModeInputError(f"mode must be auto, on or off, got {setting!r}")
    if setting != ModeSetting.AUTO and not reason.strip():
        raise ModeInputError("a reason is needed to switch the mode by hand")
    if for_seconds is not None and (setting == ModeSetting.AUTO or not 1 <= for_seconds <= 604_800):
        raise ModeInputError("a time limit goes with on or off and is 1 to 604800 seconds")
    with transaction.atomic():
        state = _locked(dbtime.read(), expected_version)
        now = dbtime.read()  # the lock may have been waited for
        until = now + timedelta(seconds=for_seconds) if for_seconds else None
        _set(state, setting, until, actor, reason.strip()[:500], now)
    return current()


def pause_replay(*, paused: bool, actor: str, reason: str, expected_version: int | None = None) -> Mode:
    """Stops or goes on making the charges that wait. Raises MissingReasonError, StaleModeError.

    Reserves run out all the same, so a long pause cancels orders.
    """
    with transaction.atomic():
        state = _locked(dbtime.read(), expected_version)
        if state.replay_paused != paused:
            words = {True: "paused", False: "running"}
            action = "replay.pause" if paused else "replay.resume"
            duty.record(
                actor=actor,
                action=action,
                subject="replay",
                reason=reason,
                before=words[not paused],
                after=words[paused],
            )
            state.replay_paused = paused
            state.version += 1
            state.save()
            throttle.restart(throttle.REPLAY)
    return current()


def tick(count_waiting: Callable[[datetime | None], int]) -> Mode:
    """The controller's turn: one step at most. Any number of beats may call it, also at once.

    `count_waiting` counts the charges that workers have still to make, with an argument those written
    before that time.
    """
    with transaction.atomic():
        state = _locked(dbtime.read(), None)
        now = dbtime.read()
        recovering_since = state.automatic_since or state.since
        seen = Seen(
            replicas=replicas.live(now),
            waiting=count_waiting(None),
            backlog=count_waiting(recovering_since) if state.automatic == EffectiveMode.RECOVERING else 0,
            since_entry=(now - state.entered_at).total_seconds() if state.entered_at else None,
        )
        step = controller.decide(EffectiveMode(state.automatic), seen, control_policy())
        if step is not None:
            _take(state, step, now)
        replicas.purge(now)
    return current()


def control_policy() -> ControlPolicy:
    """The numbers of the settings."""
    config = settings.HOLDFAST
    return ControlPolicy(
        after_open=config.degraded_after_open_seconds,
        quorum=config.degraded_quorum,
        recover_after=config.recover_after_closed_seconds,
        min_seconds=config.degraded_min_seconds,
    )


def _take(state: ModeState, step: Step, now: datetime) -> None:
    old_effective = effective(state.setting, state.automatic, None, now)[1]
    reason = step.reason
    if state.setting != ModeSetting.AUTO:
        reason = f"{reason}: would be {step.target}, the manual setting {state.setting} stands"
    state.automatic, state.automatic_since, state.automatic_reason = step.target, now, step.reason
    if step.target == EffectiveMode.DEGRADED:
        state.entered_at = now
    if step.target == EffectiveMode.RECOVERING:
        throttle.restart(throttle.REPLAY)
    state.version += 1
    state.save()
    _audit(state, BREAKER, reason, now, state.setting, old_effective)
