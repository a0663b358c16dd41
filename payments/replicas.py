"""What each process says of its payment breaker, and what is made of it.

The breaker stays local to its process; only its snapshot is shared. `Tracker` is the pure part.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from payments import dbtime
from payments.controller import Replica
from payments.models import BreakerReport
from resilience.breaker import BreakerSnapshot, State
from resilience.breaker_policy import NOT_CLOSED

DEAD_AFTER = 15.0
"""Seconds without a report after which a process no longer counts."""
FORGET_AFTER = 600.0
"""Seconds after which the report of a dead process is thrown away."""


@dataclass(frozen=True)
class Finding:
    """A snapshot and what the ones before it add. Seconds up to now; None: not so."""

    snapshot: BreakerSnapshot
    asked: float | None
    failing: float | None
    healthy: float | None


class Tracker:
    """Follows one breaker from snapshot to snapshot. Not thread-safe.

    `after_open`: a breaker that nobody asked for so long has its stretch of failing begin anew, since
    one that stands half-open all night says nothing about the gateway.
    """

    def __init__(self, after_open: float) -> None:
        self._after_open = after_open
        self._before: BreakerSnapshot | None = None
        self._noted_at = 0.0
        self._asked_at: float | None = None
        self._bad_at: float | None = None
        self._failing_since: float | None = None
        self._healthy_since: float | None = None

    def note(self, snapshot: BreakerSnapshot, now: float) -> Finding:
        """Takes the next snapshot, `now` on any monotonic clock."""
        before = self._before
        grown = {
            name: getattr(snapshot, name) - (getattr(before, name) if before else 0)
            for name in ("calls", "succeeded", "failed", "not_permitted")
        }
        if grown["calls"]:
            self._asked_at = now
        self._note_failing(snapshot, grown["failed"] + grown["not_permitted"], now)
        if grown["failed"] or snapshot.state in NOT_CLOSED:
            self._healthy_since = None
        elif grown["succeeded"] and self._healthy_since is None:
            self._healthy_since = now
        self._before, self._noted_at = snapshot, now
        return Finding(snapshot, *(_ago(now, at) for at in self._times()))

    def _times(self) -> tuple[float | None, float | None, float | None]:
        return self._asked_at, self._failing_since, self._healthy_since

    def _note_failing(self, snapshot: BreakerSnapshot, bad: int, now: float) -> None:
        if snapshot.state not in NOT_CLOSED:
            self._failing_since = self._bad_at = None
            return
        if self._bad_at is not None and now - self._bad_at > self._after_open:
            self._failing_since = self._bad_at = None
        if bad:
            if self._failing_since is None:
                since_last = now - self._noted_at if self._before else 0.0
                self._failing_since = now - min(snapshot.seconds_not_closed, since_last)
            self._bad_at = now


def _ago(now: float, at: float | None) -> float | None:
    return None if at is None else now - at


def report(process: str, kind: str, finding: Finding) -> None:
    """Writes the newest word of one process over its last one. One statement, no lock waited for long."""
    now = dbtime.read()
    snapshot = finding.snapshot

    def since(seconds: float | None) -> datetime | None:
        return None if seconds is None else now - timedelta(seconds=seconds)

    row = BreakerReport(
        process=process[:100],
        kind=kind,
        state=snapshot.state.name,
        since=now - timedelta(seconds=snapshot.seconds_in_state),
        asked_at=since(finding.asked),
        failing_since=since(finding.failing),
        healthy_since=since(finding.healthy),
        failure_rate=snapshot.failure_rate,
        slow_rate=snapshot.slow_rate,
        window_calls=snapshot.window_calls,
        succeeded=snapshot.succeeded,
        failed=snapshot.failed,
        not_permitted=snapshot.not_permitted,
        at=now,
    )
    fields = [field.name for field in BreakerReport._meta.concrete_fields if field.name != "process"]
    BreakerReport.objects.bulk_create(
        [row], update_conflicts=True, unique_fields=["process"], update_fields=fields
    )


def live(now: datetime) -> tuple[Replica, ...]:
    """What the processes say that reported within the last `DEAD_AFTER` seconds."""

    def ago(at: datetime | None) -> float | None:
        return None if at is None else (now - at).total_seconds()

    rows = BreakerReport.objects.filter(at__gte=now - timedelta(seconds=DEAD_AFTER)).order_by("process")
    return tuple(
        Replica(
            row.kind, asked=ago(row.asked_at), failing=ago(row.failing_since), healthy=ago(row.healthy_since)
        )
        for row in rows
    )


def purge(now: datetime) -> int:
    """Forgets processes that are long gone."""
    return BreakerReport.objects.filter(at__lt=now - timedelta(seconds=FORGET_AFTER)).delete()[0]


@dataclass(frozen=True)
class BoardRow:
    """One breaker on the board. Rates are percent, None while undefined; ages are seconds."""

    process: str
    kind: str
    state: State
    since: datetime
    asked_at: datetime | None
    failure_rate: float | None
    slow_rate: float | None
    window_calls: int
    not_permitted: int
    report_age: float

    @property
    def dead(self) -> bool:
        """Whether nothing has been heard of the process for too long."""
        return self.report_age > DEAD_AFTER


def board() -> list[BoardRow]:
    """Every process heard of lately: web before workers, the dead ones last."""
    now = dbtime.read()
    rows = [
        BoardRow(
            process=row.process,
            kind=row.kind,
            state=State[row.state],
            since=row.since,
            asked_at=row.asked_at,
            failure_rate=row.failure_rate,
            slow_rate=row.slow_rate,
            window_calls=row.window_calls,
            not_permitted=row.not_permitted,
            report_age=max(0.0, (now - row.at).total_seconds()),
        )
        for row in BreakerReport.objects.order_by("kind", "process")
    ]
    return sorted(rows, key=lambda row: row.dead)
