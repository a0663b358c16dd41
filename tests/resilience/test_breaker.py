"""Semantics 13 to 20: the circuit breaker, line by line."""

import contextlib
import threading
import time

import pytest

from resilience.breaker import BreakerPolicy, CircuitBreaker, State
from resilience.breaker_policy import NOT_CLOSED, TRANSITIONS, Trigger
from resilience.errors import (
    BadAnswer,
    BreakerOpen,
    BulkheadFull,
    ClientError,
    ConnectFailed,
    OutcomeUnknown,
    OutOfTime,
    PoolTimeout,
    RateLimited,
    ServerError,
)
from resilience.events import EventKind
from resilience.testing import ManualClock

REFUSALS = [BulkheadFull(), RateLimited(), PoolTimeout(), OutOfTime()]


class Rig:
    """A breaker on a manual clock, with everything it tells."""

    def __init__(self, **numbers):
        self.clock = ManualClock()
        self.breaker = CircuitBreaker(
            BreakerPolicy(**{"jitter": 0.0, **numbers}), name="gateway", clock=self.clock
        )
        self.events = []
        self.breaker.events.subscribe(self.events.append)

    def ok(self, took=0.0):
        return self.breaker.call(lambda: self.clock.advance(took))

    def fail(self, error=None, took=0.0):
        def operation():
            self.clock.advance(took)
            raise error or ServerError(status=500)

        with pytest.raises(type(error or ServerError(status=500))):
            self.breaker.call(operation)

    def open(self):
        for _ in range(self.breaker.policy.min_calls):
            self.fail()
        assert self.breaker.state is State.OPEN

    def half_open(self):
        self.open()
        self.clock.advance(self.breaker.policy.open_seconds)
        assert self.breaker.state is State.HALF_OPEN

    def told(self):
        return [(event.kind, event.detail) for event in self.events]


# 13


def test_the_transition_table_reaches_every_state_and_traps_in_none():
    reached = {State.CLOSED}
    for _ in State:
        reached |= {target for (state, _), target in TRANSITIONS.items() if state in reached}
    assert reached == set(State)
    for state in State:
        assert TRANSITIONS[state, Trigger.RESET] is State.CLOSED


def test_every_transition_rejection_threshold_and_ignored_error_is_told():
    rig = Rig(min_calls=2, window=2, half_open_calls=1)
    rig.fail(ClientError(status=404))
    rig.open()
    with pytest.raises(BreakerOpen):
        rig.ok()
    rig.clock.advance(30)
    rig.ok()
    assert rig.told() == [
        (EventKind.ERROR_IGNORED, "ClientError"),
        (EventKind.THRESHOLD_EXCEEDED, "failure_rate 100.0 %"),
        (EventKind.STATE_CHANGED, "CLOSED to OPEN"),
        (EventKind.BREAKER_REJECTED, ""),
        (EventKind.STATE_CHANGED, "OPEN to HALF_OPEN"),
        (EventKind.STATE_CHANGED, "HALF_OPEN to CLOSED"),
    ]


def test_forced_open_lets_nothing_through_until_reset():
    rig = Rig()
    rig.breaker.force_open()
    rig.clock.advance(1e6)
    with pytest.raises(BreakerOpen) as refused:
        rig.ok()
    assert refused.value.retry_after is None
    rig.breaker.reset()
    rig.ok()
    assert rig.breaker.state is State.CLOSED


def test_disabled_lets_everything_through_and_remembers_nothing():
    rig = Rig()
    rig.breaker.disable()
    for _ in range(50):
        rig.fail()
    rig.fail(ClientError(status=404))
    seen = rig.breaker.snapshot()
    assert (seen.state, seen.calls, seen.window_calls) == (State.DISABLED, 0, 0)


def test_metrics_only_measures_and_reports_once_but_never_opens():
    rig = Rig()
    rig.breaker.metrics_only()
    for _ in range(30):
        rig.fail()
    seen = rig.breaker.snapshot()
    assert (seen.state, seen.failure_rate, seen.failed) == (State.METRICS_ONLY, 100.0, 30)
    assert rig.told().count((EventKind.THRESHOLD_EXCEEDED, "failure_rate 100.0 %")) == 1


# 14


def test_the_rate_is_undefined_below_min_calls():
    rig = Rig(window=10, min_calls=5)
    for _ in range(4):
        rig.fail()
    assert rig.breaker.snapshot().failure_rate is None
    assert rig.breaker.state is State.CLOSED
    rig.fail()
    assert rig.breaker.state is State.OPEN


def test_the_call_that_completes_min_calls_is_judged_even_if_it_succeeds():
    rig = Rig(window=10, min_calls=10)
    for _ in range(9):
        rig.fail()
    rig.ok()
    assert rig.breaker.state is State.OPEN


def test_it_opens_at_the_threshold_and_not_below():
    rig = Rig(window=10, min_calls=10, failure_rate=50)
    for turn in range(60):
        rig.fail() if turn % 5 in (0, 1) else rig.ok()  # 40 %
    rig.fail()
    rig.fail()  # these two took the places of two other failures
    assert rig.breaker.state is State.CLOSED
    rig.fail()
    assert rig.breaker.state is State.OPEN


def test_the_window_forgets_the_oldest_call():
    rig = Rig(window=4, min_calls=4, failure_rate=75)
    for good in (False, False, True, True, False, True):
        rig.ok() if good else rig.fail()
    seen = rig.breaker.snapshot()
    assert (seen.window_calls, seen.window_failures, seen.failure_rate) == (4, 1, 25.0)


def test_a_slow_success_counts_as_slow_and_many_open_the_breaker():
    rig = Rig(slow_call=1.0, slow_rate=80)
    for _ in range(8):
        rig.ok(took=1.5)
    rig.ok(took=1.0)  # not above the threshold
    assert rig.breaker.snapshot().window_slow == 8
    rig.ok()
    assert rig.breaker.state is State.OPEN
    assert (EventKind.THRESHOLD_EXCEEDED, "slow_rate 80.0 %") in rig.told()


def test_a_call_that_never_ends_counts_as_slow_and_failed_when_its_lease_ends():
    rig = Rig(window=2, min_calls=2, slow_call=1.0, half_open_max_seconds=10, open_seconds=30)
    hanging = [rig.breaker.acquire(), rig.breaker.acquire()]
    rig.clock.advance(9.9)
    assert rig.breaker.state is State.CLOSED
    rig.clock.advance(0.1)
    seen = rig.breaker.snapshot()
    assert (seen.state, seen.slow, seen.failed) == (State.OPEN, 2, 2)
    hanging[0].success()  # too late to be anything
    assert rig.breaker.snapshot().succeeded == 0
    assert rig.told()[0][0] is EventKind.LEASE_EXPIRED


def test_a_lease_that_ran_out_unseen_opened_the_breaker_back_then():
    rig = Rig(window=1, min_calls=1, half_open_max_seconds=10, open_seconds=30)
    rig.breaker.acquire()
    rig.clock.advance(10 + 29)
    assert rig.breaker.snapshot().seconds_in_state == pytest.approx(29)
    rig.clock.advance(1)
    assert rig.breaker.state is State.HALF_OPEN


def test_every_lease_is_noticed_on_time_whenever_its_call_began():
    rig = Rig(window=5, min_calls=5, half_open_max_seconds=10)
    for wait in (0, 3, 4, 6):  # they begin at 0, 3, 7 and 13
        rig.clock.advance(wait)
        rig.breaker.acquire()
    failed_at = {}
    for second in range(13, 25):
        failed_at[second] = rig.breaker.snapshot().failed
        rig.clock.advance(1)
    assert [failed_at[second] for second in (13, 16, 17, 22, 23)] == [2, 2, 3, 3, 4]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_time_window_forgets_what_is_older_than_it_is(share):
    rig = Rig(window_seconds=10, min_calls=4, failure_rate=50)
    rig.clock.advance(share)
    for _ in range(3):
        rig.fail()
    rig.clock.advance(10.5)
    rig.fail()
    assert (rig.breaker.state, rig.breaker.snapshot().window_failures) == (State.CLOSED, 1)


def test_a_time_window_opens_at_its_rate():
    rig = Rig(window_seconds=10, min_calls=4, failure_rate=50, slow_call=1.0)
    for step in (rig.ok, rig.fail, rig.ok):
        step()
        rig.clock.advance(1)
    rig.fail()
    seen = rig.breaker.snapshot()
    assert (seen.state, seen.failure_rate) == (State.OPEN, 50.0)


def test_a_time_window_opens_when_old_successes_leave_it():
    rig = Rig(window_seconds=10, min_calls=4, failure_rate=60)
    for _ in range(4):
        rig.ok()
    rig.clock.advance(9)
    for _ in range(4):
        rig.fail()
    assert rig.breaker.state is State.CLOSED  # 4 of 8
    rig.clock.advance(3)
    rig.ok()  # 4 of 5
    assert rig.breaker.state is State.OPEN


# 15


@pytest.mark.parametrize("status", [400, 402, 404, 409, 422])
def test_real_answers_are_neither_failure_nor_success(status):
    rig = Rig()
    for _ in range(50):
        rig.fail(ClientError(status=status))
    seen = rig.breaker.snapshot()
    assert (seen.state, seen.window_calls, seen.ignored) == (State.CLOSED, 0, 50)


def test_declines_do_not_dilute_the_failures_between_them():
    rig = Rig()
    for _ in range(9):
        rig.fail(ClientError(status=402))
        rig.fail()
    assert rig.breaker.state is State.CLOSED
    rig.fail()
    assert rig.breaker.state is State.OPEN


@pytest.mark.parametrize(
    "error",
    [
        ServerError(status=500),
        ServerError(status=429),
        OutcomeUnknown(),
        ConnectFailed(),
        ValueError(),
        BadAnswer(status=200),  # a 200 whose body breaks the contract
    ],
)
def test_unlisted_exceptions_are_failures(error):
    rig = Rig()
    for _ in range(10):
        rig.fail(error)
    assert rig.breaker.state is State.OPEN


@pytest.mark.parametrize("error", REFUSALS)
def test_local_refusals_are_not_counted(error):
    rig = Rig()
    for _ in range(50):
        rig.fail(error)
    assert (rig.breaker.state, rig.breaker.snapshot().window_calls) == (State.CLOSED, 0)


@pytest.mark.parametrize("error", REFUSALS)
def test_a_flag_counts_local_refusals_in_closed_only(error):
    rig = Rig(count_refusals=True)
    for _ in range(10):
        rig.fail(error)
    assert rig.breaker.state is State.OPEN
    rig.clock.advance(30)
    for _ in range(9):
        rig.fail(error)
    assert rig.breaker.state is State.HALF_OPEN


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_a_stop_from_outside_says_nothing_about_the_neighbour(error):
    rig = Rig(window=1, min_calls=1)
    rig.fail(error)
    assert (rig.breaker.state, rig.breaker.snapshot().ignored) == (State.CLOSED, 1)


# 16


def test_an_open_breaker_rejects_without_calling_and_says_when_to_come_back():
    rig = Rig(open_seconds=30)
    rig.open()
    rig.clock.advance(12)
    ran = []
    with pytest.raises(BreakerOpen) as refused:
        rig.breaker.call(lambda: ran.append(1))
    assert refused.value.retry_after == pytest.approx(18)
    assert (ran, rig.breaker.snapshot().not_permitted) == ([], 1)


def test_an_open_breaker_rejects_even_while_its_lock_is_held():
    rig = Rig()
    rig.open()
    with rig.breaker.lock, pytest.raises(BreakerOpen):
        rig.ok()


def test_a_closed_breaker_passes_good_calls_without_its_lock():
    rig = Rig()
    with rig.breaker.lock:
        for _ in range(25):
            rig.ok()
    assert rig.breaker.snapshot().succeeded == 25


def test_the_wait_ends_by_itself_for_whoever_looks():
    rig = Rig(open_seconds=30)
    rig.open()
    rig.clock.advance(29.999)
    assert rig.breaker.state is State.OPEN
    rig.clock.advance(0.001)
    assert rig.breaker.snapshot().state is State.HALF_OPEN


def test_half_open_began_when_the_wait_ended_and_not_when_somebody_looked():
    rig = Rig(open_seconds=30)
    rig.open()
    rig.clock.advance(100)
    assert rig.breaker.snapshot().seconds_in_state == pytest.approx(70)


def test_the_wait_is_jittered_upwards_so_that_replicas_do_not_probe_together():
    ends = set()
    for chance in (0.0, 0.5, 0.999):
        clock = ManualClock()
        breaker = CircuitBreaker(
            BreakerPolicy(window=1, min_calls=1, open_seconds=30, jitter=0.1),
            clock=clock,
            rand=lambda c=chance: c,
        )
        breaker.acquire().failure()
        ends.add(breaker.snapshot().retry_after)
    assert sorted(ends) == pytest.approx([30, 31.5, 32.997])


# 17


def test_half_open_admits_only_so_many_probes_at_a_time_and_rejects_the_rest_at_once():
    rig = Rig(half_open_calls=3)
    rig.half_open()
    permits = [rig.breaker.acquire() for _ in range(3)]
    for _ in range(60):
        with pytest.raises(BreakerOpen):
            rig.breaker.acquire()
    permits[0].success()
    with pytest.raises(BreakerOpen):  # a verdict is in: verdicts and running probes together are three
        rig.breaker.acquire()
    for permit in permits[1:]:
        permit.success()
    assert rig.breaker.state is State.CLOSED


def test_half_open_decides_only_when_all_verdicts_are_in():
    rig = Rig(half_open_calls=3)
    rig.half_open()
    rig.fail()
    rig.fail()
    assert rig.breaker.state is State.HALF_OPEN
    rig.ok()
    assert rig.breaker.state is State.OPEN


def test_slow_probes_open_the_breaker_again():
    rig = Rig(half_open_calls=2, slow_call=1.0)
    rig.half_open()
    rig.ok(took=2)
    rig.ok(took=2)
    assert rig.breaker.state is State.OPEN


@pytest.mark.parametrize("error", [ClientError(status=402), *REFUSALS, KeyboardInterrupt()])
def test_an_ignored_probe_gives_its_permit_back_and_decides_nothing(error):
    rig = Rig(half_open_calls=3)
    rig.half_open()
    for _ in range(20):
        rig.fail(error)
    assert rig.breaker.state is State.HALF_OPEN
    for _ in range(3):
        rig.ok()
    assert rig.breaker.state is State.CLOSED


def test_a_probe_that_never_ends_loses_its_lease_and_counts_as_a_failure():
    """OP-01."""
    rig = Rig(half_open_calls=2, half_open_max_seconds=10, open_seconds=30)
    rig.half_open()
    lost = [rig.breaker.acquire(), rig.breaker.acquire()]
    rig.clock.advance(10)
    assert rig.breaker.state is State.OPEN
    lost[0].success()
    lost[1].success()
    assert rig.breaker.state is State.OPEN
    rig.clock.advance(30)
    rig.ok()
    rig.ok()
    assert rig.breaker.state is State.CLOSED


def test_one_lost_probe_does_not_keep_the_others_from_deciding():
    rig = Rig(half_open_calls=3, half_open_max_seconds=10)
    rig.half_open()
    rig.breaker.acquire()
    rig.ok()
    rig.ok()
    rig.clock.advance(10)
    assert rig.breaker.state is State.CLOSED  # one failure of three


def test_a_flood_of_threads_in_half_open_gets_exactly_the_configured_probes():
    rig = Rig(half_open_calls=3)
    rig.half_open()
    ready, admitted = threading.Barrier(16), []

    def probe():
        ready.wait()
        with contextlib.suppress(BreakerOpen):
            admitted.append(rig.breaker.acquire())

    threads = [threading.Thread(target=probe) for _ in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(admitted) == 3


# 18


def test_a_late_success_does_not_close_an_open_breaker():
    rig = Rig()
    late = rig.breaker.acquire()
    rig.open()
    late.success()
    assert rig.breaker.state is State.OPEN


def test_a_result_from_before_opening_is_no_probe_verdict():
    rig = Rig(half_open_calls=1)
    late_good, late_bad = rig.breaker.acquire(), rig.breaker.acquire()
    rig.open()
    rig.clock.advance(29.9)  # their leases of 30 s run on
    assert rig.breaker.state is State.OPEN
    rig.clock.advance(0.1)
    late_good.success()
    late_bad.failure()
    assert rig.breaker.state is State.HALF_OPEN


def test_a_result_from_before_a_reset_is_not_in_the_new_window():
    rig = Rig(window=1, min_calls=1)
    late = rig.breaker.acquire()
    rig.breaker.reset()
    late.failure()
    assert (rig.breaker.state, rig.breaker.snapshot().failed) == (State.CLOSED, 0)


def test_a_permit_is_closed_exactly_once():
    rig = Rig()
    permit = rig.breaker.acquire()
    permit.success()
    permit.failure()
    permit.success()
    assert rig.breaker.snapshot().calls == 1


def test_a_permit_as_context_manager_judges_by_what_leaves_the_block():
    rig = Rig()
    with rig.breaker.acquire():
        pass
    with pytest.raises(ServerError), rig.breaker.acquire():
        raise ServerError(status=500)
    with pytest.raises(ClientError), rig.breaker.acquire():
        raise ClientError(status=404)
    seen = rig.breaker.snapshot()
    assert (seen.succeeded, seen.failed, seen.ignored) == (1, 1, 1)


def test_the_decorator_form_passes_arguments_and_results():
    rig = Rig()

    @rig.breaker.protect
    def add(a, b=1):
        """Adds."""
        return a + b

    assert (add(2, b=3), add.__doc__, rig.breaker.snapshot().succeeded) == (5, "Adds.", 1)


# 19


@pytest.mark.parametrize("step", [-3600, 3600])
def test_wall_clock_steps_change_nothing(step, monkeypatch):
    rig = Rig(open_seconds=30)
    rig.open()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + step)
    rig.clock.advance(29)
    assert rig.breaker.state is State.OPEN
    rig.clock.advance(1)
    assert rig.breaker.state is State.HALF_OPEN


def test_the_wait_grows_with_successive_openings_up_to_the_cap_and_starts_again_when_closed():
    rig = Rig(open_seconds=10, open_factor=2, open_cap=35, half_open_calls=1, window=1, min_calls=1)
    rig.fail()
    waits = []
    for _ in range(4):
        waits.append(rig.breaker.snapshot().retry_after)
        rig.clock.advance(waits[-1])
        rig.fail()
    assert waits == pytest.approx([10, 20, 35, 35])
    rig.clock.advance(35)
    rig.ok()
    rig.fail()
    assert rig.breaker.snapshot().retry_after == pytest.approx(10)


# 20


def test_a_snapshot_tells_state_since_generation_rates_counts_and_totals():
    rig = Rig(slow_call=1.0)
    for _ in range(6):
        rig.ok()
    rig.ok(took=2)
    for _ in range(3):
        rig.fail()
    rig.clock.advance(5)
    seen = rig.breaker.snapshot()
    assert (seen.failure_rate, seen.slow_rate) == (30.0, 10.0)
    assert (seen.succeeded, seen.failed, seen.slow, seen.not_permitted) == (7, 3, 1, 0)
    assert (seen.state, seen.generation, seen.seconds_in_state) == (State.CLOSED, 0, pytest.approx(7))
    assert seen.seconds_not_closed == 0


def test_seconds_not_closed_run_through_open_and_half_open_without_a_break():
    rig = Rig(open_seconds=30, half_open_calls=1)
    rig.half_open()
    rig.fail()
    rig.clock.advance(20)
    seen = rig.breaker.snapshot()
    assert (seen.state, seen.seconds_not_closed, seen.seconds_in_state) == (State.OPEN, 50, 20)
    assert seen.failure_rate is None  # one probe is fewer than min_calls
    rig.clock.advance(10)
    rig.ok()
    assert rig.breaker.snapshot().seconds_not_closed == 0
    assert State.CLOSED not in NOT_CLOSED


def test_totals_go_on_growing_through_all_states():
    rig = Rig(half_open_calls=1)
    rig.half_open()
    rig.ok()
    rig.ok()
    rig.fail()
    seen = rig.breaker.snapshot()
    assert (seen.succeeded, seen.failed, seen.calls) == (2, 11, 13)


# Threads


def test_ten_parallel_calls_through_a_closed_breaker_are_under_way_at_once():
    """OP-05: no lock is held around the protected call. Each waits until all ten have come as far."""
    breaker, all_here = CircuitBreaker(BreakerPolicy()), threading.Barrier(10)
    threads = [threading.Thread(target=breaker.call, args=(lambda: all_here.wait(5),)) for _ in range(10)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not all_here.broken
    assert breaker.snapshot().succeeded == 10


def test_no_result_is_lost_between_threads():
    """OP-05: ten threads of failing calls, and every one of them is counted."""
    breaker = CircuitBreaker(BreakerPolicy(window=1000, min_calls=1000))

    def fail():
        raise ServerError(status=500)

    def hundred():
        for _ in range(100):
            with pytest.raises(ServerError):
                breaker.call(fail)

    threads = [threading.Thread(target=hundred) for _ in range(10)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    seen = breaker.snapshot()
    assert (seen.failed, seen.window_failures, seen.state) == (1000, 1000, State.OPEN)


def test_no_lock_is_held_while_a_listener_runs():
    rig = Rig(half_open_calls=1)
    locked = []
    rig.breaker.events.subscribe(lambda event: locked.append(rig.breaker.lock.locked()))
    rig.half_open()
    rig.fail()
    with pytest.raises(BreakerOpen):
        rig.ok()
    rig.breaker.reset()
    assert len(locked) == 6
    assert not any(locked)


def test_a_failing_listener_changes_nothing(caplog):
    rig = Rig()
    rig.breaker.events.subscribe(lambda event: 1 / 0)
    rig.open()
    assert "a listener failed" in caplog.text


@pytest.mark.parametrize(
    ("nonsense", "sentence"),
    [
        ({"min_calls": 20}, r"min_calls must be ≤ window \(10\), else the breaker can never open, got 20"),
        ({"min_calls": 0}, "min_calls must be ≥ 1, got 0"),
        ({"window": 0}, "window must be between 1 and 100,000, got 0"),
        ({"window_seconds": 0}, "window_seconds must be finite and > 0, got 0"),
        ({"failure_rate": 0}, "failure_rate must be above 0 and at most 100 percent, got 0"),
        ({"slow_rate": 101}, "slow_rate must be above 0 and at most 100 percent, got 101"),
        ({"slow_call": 0}, "slow_call must be a finite number of seconds > 0, got 0"),
        ({"open_seconds": float("nan")}, "open_seconds must be a finite number > 0, got nan"),
        ({"half_open_calls": 0}, "half_open_calls must be between 1 and 1000, got 0"),
        ({"half_open_max_seconds": 0}, "half_open_max_seconds must be a finite number > 0, got 0"),
        ({"open_factor": 0.5}, "open_factor must be between 1 and 10, got 0.5"),
        ({"open_factor": 2, "open_cap": 3}, "open_cap must be ≥ open_seconds"),
        ({"jitter": 2}, "jitter must be between 0 and 1, got 2"),
    ],
)
def test_a_breaker_policy_refuses_nonsense_with_a_sentence(nonsense, sentence):
    with pytest.raises(ValueError, match=sentence):
        BreakerPolicy(**nonsense)
