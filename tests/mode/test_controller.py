"""The law of degraded mode, row by row: mode × what is seen → the step that is taken."""

from __future__ import annotations

from typing import Any

import pytest

from payments.controller import RULES, WEB, WORKER, ControlPolicy, Replica, Seen, Step, decide, diagram
from payments.states import EffectiveMode as Mode

POLICY = ControlPolicy(after_open=60, quorum=0.5, recover_after=15, min_seconds=60)


def web(failing: float | None = None, asked: float | None = 1) -> Replica:
    return Replica(WEB, asked=asked, failing=failing)


def worker(healthy: float | None = None, *, failing: float | None = None, asked: float | None = 1) -> Replica:
    return Replica(WORKER, asked=asked, failing=failing, healthy=healthy)


def seen(*replicas: Replica, **more: Any) -> Seen:
    return Seen(replicas, **more)


STAYS = None
TABLE = [
    # From NORMAL, by the web's breakers
    ("nobody reports", Mode.NORMAL, seen(), STAYS),
    ("all breakers closed", Mode.NORMAL, seen(web(), web()), STAYS),
    ("one of four open", Mode.NORMAL, seen(web(90), web(), web(), web()), STAYS),
    ("two of four open: the quorum", Mode.NORMAL, seen(web(90), web(90), web(), web()), Mode.DEGRADED),
    ("open, a moment too short", Mode.NORMAL, seen(web(59.9)), STAYS),
    ("open for exactly long enough", Mode.NORMAL, seen(web(60)), Mode.DEGRADED),
    ("a process that nobody asked abstains", Mode.NORMAL, seen(web(90), web(asked=None)), Mode.DEGRADED),
    ("asked too long ago abstains too", Mode.NORMAL, seen(web(90), web(asked=61)), Mode.DEGRADED),
    ("open, but nobody asked lately", Mode.NORMAL, seen(web(90, asked=61)), STAYS),
    ("workers have no vote in the quorum", Mode.NORMAL, seen(web(), worker(failing=90)), STAYS),
    # From NORMAL, because nobody can deliver
    ("work waits and all workers fail", Mode.NORMAL, seen(worker(failing=90), waiting=3), Mode.DEGRADED),
    ("all workers fail but nothing waits", Mode.NORMAL, seen(worker(failing=90)), STAYS),
    ("work waits and a web process can pay", Mode.NORMAL, seen(web(), worker(failing=90), waiting=3), STAYS),
    ("work waits and nobody has tried", Mode.NORMAL, seen(worker(asked=None), waiting=3), STAYS),
    ("work waits and no worker lives", Mode.NORMAL, seen(web(), waiting=3), STAYS),
    # Hysteresis
    ("entered a moment ago", Mode.NORMAL, seen(web(90), since_entry=59), STAYS),
    ("entered long ago", Mode.NORMAL, seen(web(90), since_entry=60), Mode.DEGRADED),
    (
        "entered a moment ago, work waits",
        Mode.NORMAL,
        seen(worker(failing=90), waiting=1, since_entry=1),
        STAYS,
    ),
    # From DEGRADED
    ("no worker has probed", Mode.DEGRADED, seen(worker(asked=None)), STAYS),
    ("probes fail", Mode.DEGRADED, seen(worker(failing=30)), STAYS),
    ("probes succeed, too short", Mode.DEGRADED, seen(worker(14.9)), STAYS),
    ("probes succeed for long enough", Mode.DEGRADED, seen(worker(15)), Mode.RECOVERING),
    ("one worker disagrees", Mode.DEGRADED, seen(worker(20), worker(failing=30)), STAYS),
    ("one worker has just begun to succeed", Mode.DEGRADED, seen(worker(20), worker(2)), STAYS),
    (
        "a worker not asked lately abstains",
        Mode.DEGRADED,
        seen(worker(20), worker(asked=16)),
        Mode.RECOVERING,
    ),
    ("healthy, but asked too long ago", Mode.DEGRADED, seen(worker(100, asked=16)), STAYS),
    ("the web does not vote on leaving", Mode.DEGRADED, seen(web(400), worker(15)), Mode.RECOVERING),
    ("left at once, however short it was", Mode.DEGRADED, seen(worker(15), since_entry=1), Mode.RECOVERING),
    # From RECOVERING
    ("backlog left", Mode.RECOVERING, seen(worker(30), backlog=7, waiting=9), STAYS),
    ("backlog gone, newer work waits", Mode.RECOVERING, seen(worker(30), backlog=0, waiting=2), Mode.NORMAL),
    ("relapse", Mode.RECOVERING, seen(web(61), backlog=7, since_entry=300), Mode.DEGRADED),
    (
        "relapse seen by workers",
        Mode.RECOVERING,
        seen(worker(failing=61), waiting=7, backlog=7),
        Mode.DEGRADED,
    ),
    ("relapse too soon after the entry", Mode.RECOVERING, seen(web(61), backlog=7, since_entry=30), STAYS),
    ("relapse at the very end", Mode.RECOVERING, seen(web(61), since_entry=300), Mode.DEGRADED),
]


@pytest.mark.parametrize(
    ("mode", "what", "target"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_each_situation_has_its_step(mode: Mode, what: Seen, target: Mode | None) -> None:
    step = decide(mode, what, POLICY)
    assert (step.target if step else None) == target
    assert step is None or step.reason


def test_every_rule_of_the_law_is_taken_by_some_row_of_the_table() -> None:
    taken = set()
    for _name, mode, what, _target in TABLE:
        for rule in RULES:
            if rule.source == mode and rule.condition(what, POLICY):
                taken.add((rule.source, rule.target, rule.condition))
                break
    assert taken == {(rule.source, rule.target, rule.condition) for rule in RULES}


def test_every_mode_can_be_reached_and_left() -> None:
    assert {rule.target for rule in RULES} == {rule.source for rule in RULES} == set(Mode)


def test_the_reason_says_the_figures_that_decided() -> None:
    step = decide(Mode.NORMAL, seen(web(90), web(70), web()), POLICY)
    assert step == Step(Mode.DEGRADED, "payment breakers not closed for 60 s on 2 of 3 web processes")


@pytest.mark.parametrize(
    "numbers", [{"after_open": 0}, {"quorum": 0}, {"quorum": 1.1}, {"recover_after": -1}, {"min_seconds": -1}]
)
def test_nonsense_is_refused_with_a_sentence(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(numbers))):
        ControlPolicy(**numbers)


def test_the_diagram_in_the_documentation_is_the_law() -> None:
    from pathlib import Path

    page = Path(__file__).parents[2] / "docs/explanation/degraded-mode.md"
    assert diagram() in page.read_text(encoding="utf-8")
