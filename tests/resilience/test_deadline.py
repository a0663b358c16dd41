"""Semantics 1 and 2: one deadline for everything, and nothing begins without time for it."""

import threading

import pytest

from resilience.chain import Chain, ChainPolicy
from resilience.deadline import Deadline, current_deadline, use_deadline
from resilience.errors import OutOfTime
from resilience.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


def test_a_deadline_counts_down_and_never_below_zero(clock):
    deadline = Deadline.after_ms(500, clock=clock)
    clock.advance(0.2)
    assert deadline.remaining() == pytest.approx(0.3)
    assert not deadline.expired
    clock.advance(5)
    assert (deadline.remaining(), deadline.remaining_ms(), deadline.expired) == (0, 0, True)


def test_milliseconds_left_are_rounded_down(clock):
    deadline = Deadline.after_ms(500, clock=clock)
    clock.advance(0.2501)
    assert deadline.remaining_ms() == 249


@pytest.mark.parametrize(("incoming", "left"), [("200", 0.2), (" 200 ", 0.2), ("900", 0.5), ("0", 0.0)])
def test_the_smaller_of_own_budget_and_incoming_value_wins(clock, incoming, left):
    assert Deadline.after_ms(500, incoming=incoming, clock=clock).remaining() == pytest.approx(left)


@pytest.mark.parametrize(
    "garbage",
    [None, "", " ", "-5", "+5", "1.5", "1e3", "soon", "٣", "9" * 11, "9" * 6000, "1\r\n", "0x10", "nan"],
)
def test_a_garbage_incoming_value_is_ignored(clock, garbage):
    assert Deadline.after_ms(500, incoming=garbage, clock=clock).remaining() == pytest.approx(0.5)


@pytest.mark.parametrize("budget", [-1, float("nan"), float("inf")])
def test_a_nonsense_own_budget_is_refused(budget):
    with pytest.raises(ValueError, match="budget_ms must be"):
        Deadline.after_ms(budget)


def test_a_child_never_exceeds_its_parent(clock):
    parent = Deadline.after_ms(300, clock=clock)
    assert parent.child(10).remaining() == pytest.approx(0.3)
    assert parent.child(0.1).remaining() == pytest.approx(0.1)
    with pytest.raises(ValueError, match="seconds must be"):
        parent.child(-1)


def test_unspent_time_flows_to_the_next_child(clock):
    parent = Deadline.after_ms(400, clock=clock)
    first = parent.child(0.24)
    clock.advance(0.01)  # the first step used 10 of its 240 ms
    assert first.remaining() == pytest.approx(0.23)
    assert parent.child(0.39).remaining() == pytest.approx(0.39)


def test_the_current_deadline_holds_inside_the_block_only(clock):
    assert current_deadline() is None
    deadline = Deadline.after_ms(100, clock=clock)
    with use_deadline(deadline):
        assert current_deadline() is deadline
    assert current_deadline() is None


def test_an_inner_deadline_cannot_loosen_the_outer_one(clock):
    tight, loose = Deadline.after_ms(100, clock=clock), Deadline.after_ms(900, clock=clock)
    with use_deadline(tight), use_deadline(loose) as effective:
        assert effective is tight


def test_a_deadline_of_one_thread_is_not_seen_by_another(clock):
    seen = []
    with use_deadline(Deadline.after_ms(100, clock=clock)):
        thread = threading.Thread(target=lambda: seen.append(current_deadline()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_nothing_starts_when_less_than_the_minimum_is_left(clock):
    chain = Chain(ChainPolicy("gateway", call_timeout=0.24, minimum=0.02), clock=clock)
    ran = []
    with pytest.raises(OutOfTime):
        chain.call(ran.append, deadline=Deadline.after_ms(19, clock=clock))
    assert ran == []
    assert chain.snapshot().rejected_for_time == 1
    chain.call(ran.append, deadline=Deadline.after_ms(21, clock=clock))
    assert len(ran) == 1
