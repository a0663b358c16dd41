"""The law of degraded mode: mode × what the breakers say × time → the next mode and why.

Pure: no framework, no clock, no storage. `RULES` is the whole law; the diagram in
docs/explanation/degraded-mode.md is drawn from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from payments.states import EffectiveMode

WEB, WORKER = "web", "worker"


@dataclass(frozen=True)
class ControlPolicy:
    """When to enter and when to leave. Seconds; `quorum` is a share of the processes that have an opinion."""

    after_open: float = 60.0
    quorum: float = 0.5
    recover_after: float = 15.0
    min_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("after_open", "recover_after"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")
        if not 0 < self.quorum <= 1:
            raise ValueError(f"quorum must be above 0 and at most 1, got {self.quorum}")
        if self.min_seconds < 0:
            raise ValueError(f"min_seconds must be ≥ 0, got {self.min_seconds}")


@dataclass(frozen=True)
class Replica:
    """What one live process says of the gateway. Seconds up to now; None: not so.

    asked: since its last payment call, refused ones included. failing: for how long its breaker has
    been open or half-open without a break while it was asked. healthy: for how long it has been
    closed and has seen successes only.
    """

    kind: str
    asked: float | None = None
    failing: float | None = None
    healthy: float | None = None


@dataclass(frozen=True)
class Seen:
    """All that a decision rests on.

    waiting: charges that workers have still to make. backlog: those of them that were written before
    the recovery began. since_entry: seconds since degraded mode was last entered automatically.
    """

    replicas: tuple[Replica, ...] = ()
    waiting: int = 0
    backlog: int = 0
    since_entry: float | None = None


Condition = Callable[[Seen, ControlPolicy], str | None]
"""Gives the reason, or None while the condition does not hold."""


def _with_opinion(seen: Seen, within: float, *kinds: str) -> list[Replica]:
    return [r for r in seen.replicas if r.kind in kinds and r.asked is not None and r.asked <= within]


def _fails(replica: Replica, policy: ControlPolicy) -> bool:
    return replica.failing is not None and replica.failing >= policy.after_open


def breakers_open(seen: Seen, policy: ControlPolicy) -> str | None:
    """Enough of the web processes that have an opinion could not pay for long enough."""
    asked = _with_opinion(seen, policy.after_open, WEB)
    failing = sum(_fails(replica, policy) for replica in asked)
    if not failing or failing < policy.quorum * len(asked):
        return None
    return (
        f"payment breakers not closed for {policy.after_open:g} s on {failing} of {len(asked)} web processes"
    )


def nobody_delivers(seen: Seen, policy: ControlPolicy) -> str | None:
    """Payments wait, and every process that tried could not pay for long enough."""
    asked = _with_opinion(seen, policy.after_open, WEB, WORKER)
    if not seen.waiting or not asked or not all(_fails(replica, policy) for replica in asked):
        return None
    return f"{seen.waiting} payments wait and none of {len(asked)} processes can deliver them"


def workers_healthy(seen: Seen, policy: ControlPolicy) -> str | None:
    """The workers' probes have been succeeding for long enough, and no worker says otherwise."""
    asked = _with_opinion(seen, policy.recover_after, WORKER)
    if not asked or any(r.healthy is None or r.healthy < policy.recover_after for r in asked):
        return None
    return f"payments succeed for {policy.recover_after:g} s on {len(asked)} of {len(asked)} worker processes"


def backlog_empty(seen: Seen, policy: ControlPolicy) -> str | None:
    """All that had piled up has been dealt with."""
    return None if seen.backlog else "the backlog is empty"


@dataclass(frozen=True)
class Rule:
    """One way from a mode to another."""

    source: EffectiveMode
    target: EffectiveMode
    condition: Condition


_M = EffectiveMode
RULES: tuple[Rule, ...] = (
    Rule(_M.NORMAL, _M.DEGRADED, breakers_open),
    Rule(_M.NORMAL, _M.DEGRADED, nobody_delivers),
    Rule(_M.DEGRADED, _M.RECOVERING, workers_healthy),
    # A relapse comes before the end of the recovery.
    Rule(_M.RECOVERING, _M.DEGRADED, breakers_open),
    Rule(_M.RECOVERING, _M.DEGRADED, nobody_delivers),
    Rule(_M.RECOVERING, _M.NORMAL, backlog_empty),
)
"""Every automatic step there is; the first one that holds is taken."""


@dataclass(frozen=True)
class Step:
    """What is to be done now, and the sentence for the audit record."""

    target: EffectiveMode
    reason: str


def decide(mode: EffectiveMode, seen: Seen, policy: ControlPolicy) -> Step | None:
    """The step that is due, or None to stay. Degraded mode is entered at most once per `min_seconds`."""
    too_soon = seen.since_entry is not None and seen.since_entry < policy.min_seconds
    for rule in RULES:
        if rule.source != mode or (rule.target == EffectiveMode.DEGRADED and too_soon):
            continue
        if reason := rule.condition(seen, policy):
            return Step(rule.target, reason)
    return None


def diagram() -> str:
    """The rules as a Mermaid state diagram, for the documentation."""
    words = {rule.condition: (rule.condition.__name__).replace("_", " ") for rule in RULES}
    lines = [f"    {rule.source} --> {rule.target}: {words[rule.condition]}" for rule in RULES]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {EffectiveMode.NORMAL}", *lines])
